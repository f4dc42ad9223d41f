"""Digests of some hundred small fits with fixed seeds, to compare two states of the source to the last bit.

    python tests/fit_digests.py write FILE [--dask]      one line of JSON for each case
    python tests/fit_digests.py compare FILE [--dask]    runs all cases of the file again; exit code 1 where one differs
    ... --group NAME                                     this group of cases alone (may be repeated)

`--dask` runs the cases on a Dask cluster as well; they are skipped, with a line that says so, where Dask is missing.

A case is one fit, score, search or study. Its line holds a SHA-256 of all that it gave, one for each part of it
(weights, plan, names, predictions), the first numbers of its weights as `float.hex`, and the numbers of its report. A
case that raises has the type of its error instead.

This file must run on any state of the source. It imports public names alone; everything else is found by its name
(`find`). Each case runs in a forked process: whether compiled loops are used depends on what was imported before.

Start it from a shell that stays: a process whose parent has ended cannot tell whose ledgers are open elsewhere on the
machine, and its fits are refused (BudgetExceededError).
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import importlib
import importlib.util
import json
import os
import secrets
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import scipy.sparse as sp

import tulle
from tulle import (
    Bounds,
    Budget,
    FileLedger,
    Ledger,
    PrivateSearch,
    SparseClassifier,
    SparseRegressor,
    load,
    private_score,
    save,
)
from tulle.methods import (
    METHODS,
    CoordinateDescent,
    FitAgain,
    FrankWolfe,
    HardThresholding,
    KnowledgeTransfer,
    ScreenRefine,
    StochasticHardThresholding,
    TwoStage,
)

N, D = 240, 30
SEED = 1
_MOST_NUMBERS = 200
# The order of BLAS's sums depends on the number of threads, which BLAS reads when numpy is imported.
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_NONCE = {"TULLE_TEST_NONCE": "00112233445566778899aabbccddeeff"}
_CAP = Budget(200.0, 1e-3)


# --- symbols by name -------------------------------------------------------------------------------------------------


@cache
def _definitions() -> dict[str, list[str]]:
    """The modules of tulle that define each class, function and constant at top level."""
    found: dict[str, list[str]] = {}
    root = Path(tulle.__file__).parent
    for path in sorted(root.rglob("*.py")):
        parts = ("tulle", *path.relative_to(root).with_suffix("").parts)
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                found.setdefault(node.name, []).append(module)
    return found


def find(*names: str) -> Any:
    """The class or function of the first of these names that one module of tulle defines at top level."""
    for name in names:
        modules = _definitions().get(name, [])
        if len(modules) > 1:
            raise LookupError(f"{name} is defined in {', '.join(modules)}")
        if modules:
            return getattr(importlib.import_module(modules[0]), name)
    raise LookupError(f"tulle defines none of {', '.join(names)}")


# --- what a case gave ------------------------------------------------------------------------------------------------


@dataclass
class Given:
    """What a case gave, by part."""

    weights: list[Any]
    report: Any = None
    predictions: tuple[Any, ...] = ()

    def line(self) -> dict[str, Any]:
        plan, names = ([], []) if self.report is None else _plan_of(self.report)
        parts = {
            "weights": _digest(_bytes_of(self.weights)),
            "plan": _digest(_bytes_of(plan)),
            "names": _digest(_bytes_of(names)),
            "predictions": _digest(_bytes_of(self.predictions)),
        }
        numbers = [float(number) for value in self.weights for number in _numbers_of(value)]
        return {
            "sha256": _digest(json.dumps(parts, sort_keys=True).encode()),
            "parts": parts,
            "numbers": [number.hex() for number in numbers[:_MOST_NUMBERS]],
            "plan": plan,
            "names": names,
        }


def _plan_of(report: Any) -> tuple[list[str], list[str]]:
    """The numbers of a report, and the names of its releases and mechanisms."""
    numbers = [report.epsilon, report.delta, report.asked, report.calibration, report.seeded]
    numbers += [report.floating_point_slack]
    for line in report.bill:
        numbers += [line.count, line.noise_per_sensitivity, line.epsilon_alone]
    return [repr(number) for number in numbers], [
        name for line in report.bill for name in (line.release, line.mechanism)
    ]


def _bytes_of(value: Any) -> bytes:
    """All that is in a value, its type and shape included."""
    if isinstance(value, (list, tuple)):
        return b"(" + b",".join(_bytes_of(one) for one in value) + b")"
    if sp.issparse(value):
        rows = sp.csr_array(value)
        return _bytes_of([rows.shape, rows.data, rows.indices, rows.indptr])
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        little = np.ascontiguousarray(value).astype(value.dtype.newbyteorder("<"))
        return f"{little.dtype.str}{value.shape}".encode() + little.tobytes()
    if isinstance(value, np.ndarray):
        return repr((value.shape, value.tolist())).encode()
    if isinstance(value, np.generic):
        return _bytes_of(np.asarray(value))
    if isinstance(value, bytes):
        return value
    return repr(value).encode()


def _numbers_of(value: Any) -> Any:
    if sp.issparse(value):
        return sp.csr_array(value).data
    array = np.asarray(value) if isinstance(value, (np.ndarray, float, int, np.generic)) else np.empty(0)
    if array.dtype.kind not in "biuf":
        return np.empty(0)
    return array.ravel() if array.size <= _MOST_NUMBERS else array[array != 0]


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def of_model(model: Any, X: Any) -> Given:
    """Weights, report and predictions of a fitted model."""
    weights = [model.coef_, model.intercept_, model.support_]
    for name in ("teacher_coef_", "teacher_intercept_", "n_iter_", "n_passes_", "n_thresholds_", "classes_"):
        if hasattr(model, name):
            weights.append(getattr(model, name))
    rows = X[:7]
    asked = [
        getattr(model, name)(rows) for name in ("predict", "decision_function", "predict_proba") if hasattr(model, name)
    ]
    return Given(weights, model.privacy_, tuple(asked))


@dataclass(frozen=True)
class Case:
    """One fit or what else is compared."""

    group: str
    name: str
    run: Callable[[], Given]

    @property
    def label(self) -> str:
        return f"{self.group} / {self.name}"


# --- rows ------------------------------------------------------------------------------------------------------------

CLASSES = {"logistic": 2, "squared_hinge": 2, "logistic, three classes": 3, "squared_hinge, three classes": 3}
LOSSES = (*CLASSES, "squared", "huber", "poisson")


@cache
def rows(form: str = "dense", n: int = N, d: int = D) -> Any:
    """Entries in (-1, 1), about two of three missing, a few rows without any."""
    rng = np.random.default_rng(11)
    X = rng.uniform(-1, 1, (n, d)) * (rng.random((n, d)) < 0.35)
    X[5] = 0.0
    return {"dense": np.asarray, "csr": sp.csr_array, "csc": sp.csc_array, "float32": np.float32}[form](X)


@cache
def targets(loss: str, n: int = N) -> Any:
    X = rows(n=n)
    rng = np.random.default_rng(12)
    margins = 3 * X[:, 0] - 3 * X[:, 3] + 2 * X[:, 7] + 0.2 + 0.1 * rng.standard_normal(n)
    if loss == "poisson":
        return rng.poisson(np.exp(margins / 3)).astype(float)
    if loss not in CLASSES:
        return margins
    return np.digitize(margins, np.quantile(margins, [0.4, 0.75][: CLASSES[loss] - 1]))


def estimator(loss: str = "logistic", method: Any = "auto", **settings: Any) -> Any:
    """An unfitted model with a seed, at a budget that lets some signal through."""
    kind = SparseClassifier if loss in CLASSES else SparseRegressor
    known = {"bounds": Bounds(row_l2=2.0, row_linf=1.0, label=4.0), "n_nonzero": 4, "random_state": SEED}
    return kind(
        settings.pop("epsilon", 8.0),
        settings.pop("delta", 1e-5),
        method=method,
        loss=loss.partition(",")[0],
        **known | settings,
    )


def fit(form: str, loss: str, method: Callable[[], Any] | str, groups: Any = None, **settings: Any) -> Given:
    X = rows(form)
    chosen = method() if callable(method) else method
    return of_model(estimator(loss, chosen, **settings).fit(X, targets(loss), groups), X)


# --- methods ---------------------------------------------------------------------------------------------------------

PUBLIC_ROWS = np.random.default_rng(5).uniform(-0.6, 0.6, (60, D)) * (np.arange(60 * D).reshape(60, D) % 7 < 4)


def _batches(variant: Any = "sgd", sampling: Any = None, **settings: Any) -> StochasticHardThresholding:
    return StochasticHardThresholding(variant, batch=40, passes=1.0, sampling=sampling, **settings)


def _feasible(name: str, *arguments: Any) -> FrankWolfe:
    return FrankWolfe(n_iter=4, noise="gaussian", feasible=find(name)(*arguments))


# One of each kind of plan: the method, and the calibration of its noise.
BASIC: dict[str, tuple[Callable[[], Any], str]] = {
    "auto": (lambda: "auto", "rigorous"),
    "fit_again": (FitAgain, "rigorous"),
    "screen_refine": (ScreenRefine, "rigorous"),
    "two_stage": (TwoStage, "rigorous"),
    "two_stage, published": (TwoStage, "published"),
    "hard_thresholding, gaussian": (lambda: HardThresholding(n_iter=3, noise="gaussian"), "rigorous"),
    "hard_thresholding, selection": (lambda: HardThresholding(n_iter=3, noise="selection"), "rigorous"),
    "hard_thresholding, published": (lambda: HardThresholding(n_iter=3, noise="gaussian"), "published"),
    "batches, poisson": (lambda: _batches("sgd", "poisson"), "rigorous"),
    "batches, scsg shuffled": (lambda: _batches("scsg", "shuffled"), "rigorous"),
    "batches, svrg without replacement": (lambda: _batches("svrg", "without_replacement"), "rigorous"),
    "frank_wolfe, selection": (lambda: FrankWolfe(n_iter=4, noise="selection"), "rigorous"),
    "frank_wolfe, gaussian": (lambda: FrankWolfe(n_iter=4, noise="gaussian"), "rigorous"),
    "coordinate_descent, selection": (lambda: CoordinateDescent(n_iter=15, noise="selection"), "rigorous"),
    "coordinate_descent, gaussian": (lambda: CoordinateDescent(n_iter=4, noise="gaussian"), "rigorous"),
    "knowledge_transfer": (KnowledgeTransfer, "rigorous"),
    "knowledge_transfer, dense": (lambda: KnowledgeTransfer("dense", PUBLIC_ROWS), "rigorous"),
}

# Settings of the methods that are not in BASIC. Each is fitted to two classes and to numbers, dense and sparse.
VARIANTS: dict[str, tuple[Callable[[], Any], str]] = {
    **{f"{name} by name": (partial(str, name), "rigorous") for name in METHODS},
    **{
        f"screen_refine, {noise}, two rounds": (partial(ScreenRefine, noise=noise, rounds=2), "rigorous")
        for noise in ("gaussian", "selection")
    },
    "screen_refine, statistics": (partial(ScreenRefine, refinement="statistics"), "rigorous"),
    "screen_refine, statistics, two rounds": (partial(ScreenRefine, 2, refinement="statistics"), "rigorous"),
    "hard_thresholding, damped": (partial(HardThresholding, 4, damping=0.5, clip=0.7), "rigorous"),
    "hard_thresholding, ball": (partial(HardThresholding, 3, ball=1.5, penalty=0.01), "rigorous"),
    **{
        f"batches, {variant} {scheme}": (partial(_batches, variant, scheme), "rigorous")
        for variant in ("sgd", "scsg", "svrg")
        for scheme in ("poisson", "without_replacement", "shuffled")
    },
    "batches, scsg option I": (partial(_batches, "scsg", option="I"), "rigorous"),
    "batches, svrg without average": (partial(_batches, "svrg", damping=0.0, average=0.0), "rigorous"),
    "batches, plain noise": (partial(_batches, lazy_noise=False), "rigorous"),
    "batches, published": (partial(_batches, "svrg", "poisson"), "published"),
    "batches, published scsg": (partial(_batches, "scsg", "poisson"), "published"),
    **{
        f"frank_wolfe, {selection}": (partial(FrankWolfe, n_iter=4, noise="selection", selection=selection), "rigorous")
        for selection in ("laplace", "permute_and_flip")
    },
    **{
        f"{name}, {engine} engine": (partial(method, n_iter=10, noise="selection", engine=engine), "rigorous")
        for name, method in (("frank_wolfe", FrankWolfe), ("coordinate_descent", CoordinateDescent))
        for engine in ("plain", "incremental")
    },
    "frank_wolfe, radius": (partial(FrankWolfe, 0.5, n_iter=4, noise="gaussian", averaging=False), "rigorous"),
    "frank_wolfe, published": (partial(FrankWolfe, n_iter=4, noise="selection"), "published"),
    **{
        f"frank_wolfe, {name}": (partial(_feasible, name, *arguments), "rigorous")
        for name, arguments in {
            "L1Ball": (2.0,),
            "Simplex": (2.0,),
            "CappedL1Ball": (2.0, 3),
            "L2Ball": (2.0,),
            "LqBall": (2.0,),
            "Box": (2.0,),
            "KSupportBall": (2.0, 3),
        }.items()
    },
    "coordinate_descent, blocks": (partial(CoordinateDescent, 3, noise="gaussian", block=2), "rigorous"),
    "coordinate_descent, scaled": (
        partial(CoordinateDescent, 15, noise="selection", feature_scale=np.linspace(1.0, 2.0, D)),
        "rigorous",
    ),
    "knowledge_transfer, uniform": (lambda: KnowledgeTransfer(features=find("UniformFeatures")()), "rigorous"),
    "knowledge_transfer, gaussian": (lambda: KnowledgeTransfer(features=find("GaussianFeatures")(0.3)), "rigorous"),
    "knowledge_transfer, output": (partial(KnowledgeTransfer, perturbation="output"), "rigorous"),
    "knowledge_transfer, ight": (
        partial(KnowledgeTransfer, features=sp.csr_array(PUBLIC_ROWS), student="ight", unshrink=True),
        "rigorous",
    ),
    "knowledge_transfer, dense output": (partial(KnowledgeTransfer, "dense", perturbation="output"), "rigorous"),
    "knowledge_transfer, dense, five directions": (
        partial(KnowledgeTransfer, "dense", sp.csr_array(PUBLIC_ROWS), directions=5, unshrink=True),
        "rigorous",
    ),
    "knowledge_transfer, dense, no student": (
        partial(KnowledgeTransfer, "dense", PUBLIC_ROWS, directions=None, student=None),
        "rigorous",
    ),
    "knowledge_transfer, published": (partial(KnowledgeTransfer, "published", PUBLIC_ROWS, n_iter=3), "published"),
}
_SQUARED_ALONE = ("screen_refine, statistics",)
# Those that minimise need a loss that is convex in one margin at a time.
_NOT_SOFTMAX = ("fit_again", "screen_refine", "two_stage", "knowledge_transfer")


def _suits(name: str, calibration: str, loss: str) -> bool:
    """Whether a method has a fit of this loss."""
    if calibration == "published":
        return loss in ("logistic", "squared")
    if loss == "logistic, three classes":
        return not name.startswith(_NOT_SOFTMAX)
    return loss == "squared" or not name.startswith(_SQUARED_ALONE)


BOUNDS: dict[str, dict[str, Any]] = {
    "rows declared": {"row_l2": 1.0, "label": 3.0},
    "entries declared": {"row_linf": 0.5, "label": 2.0},
    "estimated": {},
    "normalised": {"row_l2": 1.0, "normalise": True, "label": 3.0},
}
PEOPLE = np.arange(N) * 7 % 90
# One of each kind of question to rows: sums, choices, minimisers, batches, steps along coordinates.
SOME = (
    "screen_refine",
    "hard_thresholding, gaussian",
    "hard_thresholding, selection",
    "batches, poisson",
    "batches, svrg without replacement",
    "coordinate_descent, selection",
)


def method_cases() -> Iterator[Case]:
    for form in ("dense", "csr"):
        for name, (method, calibration) in BASIC.items():
            for loss in LOSSES:
                if _suits(name, calibration, loss):
                    run = partial(fit, form, loss, method, calibration=calibration)
                    yield Case("methods", f"{name}; {loss}; {form}", run)
        for name, (method, calibration) in VARIANTS.items():
            for loss in ("logistic", "squared"):
                if _suits(name, calibration, loss):
                    run = partial(fit, form, loss, method, calibration=calibration)
                    yield Case("variants", f"{name}; {loss}; {form}", run)


def setting_cases() -> Iterator[Case]:
    for name, (method, calibration) in BASIC.items():
        if calibration == "published":
            continue
        for number, (form, loss) in enumerate((("csr", "logistic"), ("dense", "squared"))):
            at = f"{name}; {loss}; {form}"
            for kind, known in [*BOUNDS.items()][2 * number :]:
                yield Case("bounds", f"{kind}; {at}", partial(fit, form, loss, method, bounds=Bounds(**known)))
            people = {"groups": PEOPLE, "bounds": Bounds(row_l2=2.0, label=4.0, rows_per_person=2)}
            yield Case("people", at, partial(fit, form, loss, method, **people))
            yield Case("no intercept", at, partial(fit, form, loss, method, fit_intercept=False))
            yield Case("not private", at, partial(fit, form, loss, method, epsilon=None, delta=None))
            yield Case("small epsilon", at, partial(fit, form, loss, method, epsilon=0.3, n_nonzero=None, delta=None))
        for form in ("csc", "float32"):
            yield Case("storage", f"{name}; {form}", partial(fit, form, "logistic", method))
    declared = partial(fit, "csr", "squared_hinge, three classes", ScreenRefine, classes=[0, 2])
    yield Case("storage", "classes declared, one left out", declared)


# --- compiled loops --------------------------------------------------------------------------------------------------


@cache
def _many_rows() -> tuple[Any, Any]:
    """So many rows that loops are compiled, with three entries each."""
    n, d = 140_000, 80
    rng = np.random.default_rng(21)
    columns = np.sort((rng.integers(0, d, (n, 1)) + np.array([0, 11, 37])) % d, axis=1)
    X = sp.csr_array((rng.uniform(-1, 1, 3 * n), columns.ravel(), np.arange(0, 3 * n + 1, 3)), shape=(n, d))
    return X, (X[:, [0, 3, 7, 12]] @ np.array([3.0, -3.0, 2.0, 2.0]) + 0.3 > 0.4).astype(int)


def _fit_many(method: Callable[[], Any], threads: str, dense: bool = False) -> Given:
    X, y = _many_rows()
    X = X.toarray() if dense else X
    with patch.dict(os.environ, OMP_NUM_THREADS=threads):
        return of_model(estimator(method=method(), epsilon=1.0).fit(X, y), X)


def _fit_wide(method: Callable[[], Any], epsilon: float = 50.0) -> Given:
    """Few rows and many features: noise that is drawn where it is looked at."""
    rng = np.random.default_rng(22)
    X = sp.random_array((400, 20_000), density=0.002, random_state=rng, format="csr")
    y = (X[:, :2000].sum(axis=1) > 2.0).astype(int)
    return of_model(estimator(method=method(), epsilon=epsilon).fit(X, y), X)


def compiled_cases() -> Iterator[Case]:
    plain = ("auto", "screen_refine", "hard_thresholding, gaussian", "hard_thresholding, selection")
    methods: dict[str, Callable[[], Any]] = {
        **{name: BASIC[name][0] for name in (*plain, "frank_wolfe, selection", "coordinate_descent, selection")},
        "batches, poisson": partial(StochasticHardThresholding, batch=10_000, passes=0.5, sampling="poisson"),
        "batches, svrg": partial(StochasticHardThresholding, "svrg", batch=10_000, passes=1.2),
        "coordinate_descent, incremental": partial(CoordinateDescent, 15, noise="selection", engine="incremental"),
        "frank_wolfe, incremental": partial(FrankWolfe, n_iter=4, noise="selection", engine="incremental"),
    }
    for name, method in methods.items():
        for threads in ("1", "2"):
            yield Case("compiled", f"{name}; threads: {threads}", partial(_fit_many, method, threads))
        # Scores that are kept up to date are allowed little of delta for finite precision.
        epsilon = 1.0 if name.endswith("incremental") else 50.0
        yield Case("compiled", f"{name}; wide", partial(_fit_wide, method, epsilon))
    yield Case("compiled", "hard_thresholding; dense", partial(_fit_many, partial(HardThresholding, 2), "1", True))


# --- ledgers ---------------------------------------------------------------------------------------------------------


@contextmanager
def fixed_secrets() -> Iterator[None]:
    """Keys of new ledger files come from a counter; the nonce is fixed by the environment."""
    count = iter(range(1, 1_000_000))

    def draw(size: int | None = None) -> bytes:
        return hashlib.shake_256(f"{next(count)}".encode()).digest(32 if size is None else size)

    with (
        patch.object(secrets, "token_bytes", draw),
        patch.object(secrets, "token_hex", lambda size=None: draw(size).hex()),
    ):
        yield


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@contextmanager
def _ledger(kind: str, cap: Budget = _CAP) -> Iterator[Any]:
    with ExitStack() as stack:
        opened: Any = Ledger(cap)
        if kind == "file":
            folder = stack.enter_context(_folder())
            stack.enter_context(fixed_secrets())
            opened = FileLedger.create(folder / "budget", "rows", cap)
        yield stack.enter_context(opened)


def _spent(ledger: Any) -> list[Any]:
    fits = [[getattr(one, "what", one), getattr(one, "share", None)] for one in ledger.fits]
    return [ledger.epsilon() if callable(ledger.epsilon) else ledger.epsilon, repr(fits)]


def _two_fits(kind: str, form: str, method: Callable[[], Any], **settings: Any) -> Given:
    """Two fits with one seed under one ledger: each has a stream of noise of its own."""
    with _ledger(kind) as ledger:
        first = fit(form, "logistic", method, **settings)
        second = fit(form, "logistic", method, **settings)
        return Given([*first.weights, *second.weights, *_spent(ledger)], second.report, second.predictions)


def ledger_cases() -> Iterator[Case]:
    for kind in ("memory", "file"):
        for name, (method, calibration) in BASIC.items():
            if calibration == "rigorous":
                for form in ("dense", "csr"):
                    yield Case("ledgers", f"{kind}; {name}; {form}", partial(_two_fits, kind, form, method))
                estimated = partial(_two_fits, kind, "csr", method, bounds=Bounds())
                yield Case("ledgers", f"{kind}; {name}; bounds estimated", estimated)
        for name, run in release_runs().items():
            yield Case("ledgers", f"{kind}; {name}", partial(_under, kind, run))


def _under(kind: str, run: Callable[[], Given]) -> Given:
    with _ledger(kind) as ledger:
        given = run()
        return Given([*given.weights, *_spent(ledger)], given.report, given.predictions)


# --- other releases --------------------------------------------------------------------------------------------------


def _path(form: str, loss: str, noise: str, epsilon: float | None = 8.0) -> Given:
    known: dict[str, Any] = {"bounds": Bounds(row_l2=2.0, row_linf=1.0, label=4.0), "random_state": SEED}
    found = find("lasso_path")(
        rows(form), targets(loss), [2.0, 0.5, 1.0], epsilon, loss=loss, n_iter=5, noise=noise, **known
    )
    return Given([found.radii, found.coefs, found.intercepts], found.privacy)


@cache
def _scored_model(form: str, loss: str) -> Any:
    """Fitted before any ledger is opened: a fit without privacy is refused by every ledger."""
    return estimator(loss, "hard_thresholding", epsilon=None, delta=None).fit(rows(form), targets(loss))


def _score(form: str, loss: str, metric: str, rows_per_person: int = 1) -> Given:
    model = _scored_model(form, loss)
    more: dict[str, Any] = {} if loss in CLASSES else {"label": 3.0}
    found = private_score(
        model,
        rows(form),
        targets(loss),
        epsilon=1.0,
        metric=metric,
        rows_per_person=rows_per_person,
        random_state=SEED,
        **more,
    )
    return Given([found.value, found.low, found.high], found.privacy)


def _search(form: str, loss: str, shape: float) -> Given:
    model = estimator(loss, HardThresholding(noise="gaussian"))
    search = PrivateSearch(
        model,
        {"n_nonzero": [1, 3], "method__n_iter": [1, 2]},
        Budget(10.0, 1e-5),
        n_trials=3.0,
        shape=shape,
        random_state=SEED,
    ).fit(rows(form), targets(loss))
    best = of_model(search.best_estimator_, rows(form))
    chosen = [search.best_score_, repr(sorted(search.best_params_.items()))]
    return Given([*best.weights, *chosen], search.privacy_, best.predictions)


def _estimate(form: str, with_targets: bool, rows_per_person: int = 1) -> Given:
    y = targets("squared") if with_targets else None
    found = Bounds.estimate(rows(form), y, epsilon=2.0, rows_per_person=rows_per_person, random_state=SEED)
    return Given([found.row_l2, found.row_linf, found.label])


def _synthetic(form: str, loss: str, method: Callable[[], Any]) -> Given:
    model = estimator(loss, method()).fit(rows(form), targets(loss))
    public = sp.csr_array(PUBLIC_ROWS) if form == "csr" else PUBLIC_ROWS
    data = model.release_synthetic(public)
    with _folder() as folder:
        data.save(folder / "data.npz")
        again = type(data).load(folder / "data.npz")
    return Given([data.X, data.y, data.margins, again.X, again.y, again.margins], again.privacy)


def _saved(form: str, loss: str, method: Callable[[], Any] | str) -> Given:
    model = estimator(loss, method() if callable(method) else method).fit(rows(form), targets(loss))
    with _folder() as folder:
        save(model, folder / "model.npz")
        return of_model(load(folder / "model.npz"), rows(form))


def _command(task: str, *more: str) -> Given:
    """`tulle fit` on a CSV file, and the model that it wrote."""
    from tulle.cli import main

    X, y = rows(), targets("squared" if task == "regression" else "logistic")
    with _folder() as folder:
        table = np.column_stack([X, y])
        head = ",".join([*(f"c{k}" for k in range(D)), "target"])
        np.savetxt(folder / "rows.csv", table, fmt="%.17g", delimiter=",", header=head, comments="")
        options = [
            "--target",
            "target",
            "--epsilon",
            "3",
            "--row-l2",
            "2",
            "--n-nonzero",
            "3",
            "--seed",
            "1",
            "--quiet",
        ]
        words = ["fit", str(folder / "rows.csv"), *options, "--task", task, *more, "-o", str(folder / "m")]
        with (folder / "out").open("w") as out, redirect_stdout(out), redirect_stderr(out):
            code = main(words)
        if code:
            raise RuntimeError((folder / "out").read_text())
        return of_model(load(folder / "m" / "model.npz"), X)


def release_runs() -> dict[str, Callable[[], Given]]:
    """Releases that are no plain fits; each runs by itself and under ledgers."""
    runs: dict[str, Callable[[], Given]] = {}
    for form in ("dense", "csr"):
        for noise in ("auto", "selection", "gaussian"):
            runs[f"lasso_path; {noise}; {form}"] = partial(_path, form, "squared", noise)
        runs[f"lasso_path; huber; {form}"] = partial(_path, form, "huber", "auto")
        for loss, metrics in {
            "logistic": ("accuracy", "auc"),
            "logistic, three classes": ("accuracy",),
            "squared": ("r2", "absolute_error", "squared_error"),
        }.items():
            for metric in metrics:
                runs[f"private_score; {metric}; {loss}; {form}"] = partial(_score, form, loss, metric)
        runs[f"Bounds.estimate; {form}"] = partial(_estimate, form, True)
        runs[f"Bounds.estimate; without targets; {form}"] = partial(_estimate, form, False)
        for loss in ("logistic", "squared"):
            runs[f"PrivateSearch; {loss}; {form}"] = partial(_search, form, loss, 0.0)
    return runs


def release_cases() -> Iterator[Case]:
    for name, run in release_runs().items():
        yield Case("releases", name, run)
    yield Case("releases", "lasso_path; not private", partial(_path, "csr", "squared", "auto", None))
    yield Case("releases", "PrivateSearch; shape 1", partial(_search, "dense", "logistic", 1.0))
    yield Case("releases", "private_score; people", partial(_score, "dense", "logistic", "accuracy", 3))
    yield Case("releases", "Bounds.estimate; people", partial(_estimate, "dense", True, 3))
    for form in ("dense", "csr"):
        for loss in ("logistic", "squared", "poisson", "squared_hinge, three classes"):
            for name in ("knowledge_transfer", "knowledge_transfer, dense", "hard_thresholding, gaussian"):
                run = partial(_synthetic, form, loss, BASIC[name][0])
                yield Case("synthetic", f"{name}; {loss}; {form}", run)
            if form == "csr":
                for method in METHODS:
                    yield Case("saved", f"{method}; {loss}; {form}", partial(_saved, form, loss, method))
    for method in METHODS:
        for task in ("classification", "regression"):
            more = ("--method", method, *(("--label-bound", "4") if task == "regression" else ()))
            yield Case("command", f"{method}; {task}", partial(_command, task, *more))


# --- rows on disk ----------------------------------------------------------------------------------------------------


def _on_disk(form: str, loss: str, method: Callable[[], Any], people: bool = False, **settings: Any) -> Given:
    with _folder() as folder:
        some: Any = (rows(form), targets(loss), PEOPLE) if people else (rows(form), targets(loss))
        blocks = find("write_blocks")(folder / "rows.blocks", [some], rows_per_block=70)
        model = estimator(loss, method(), **settings)
        model.fit(blocks.X, blocks.y, blocks.groups) if people else model.fit(blocks.X, blocks.y)
        return of_model(model, rows(form))


def _estimate_on_disk(form: str) -> Given:
    with _folder() as folder:
        blocks = find("write_blocks")(folder / "rows.blocks", [(rows(form), targets("squared"))], rows_per_block=70)
        found = Bounds.estimate(blocks.X, blocks.y, epsilon=2.0, random_state=SEED)
        return Given([found.row_l2, found.row_linf, found.label])


def disk_cases() -> Iterator[Case]:
    for form in ("dense", "csr"):
        for name, (method, calibration) in BASIC.items():
            for loss in ("logistic", "logistic, three classes", "squared"):
                if _suits(name, calibration, loss):
                    run = partial(_on_disk, form, loss, method, calibration=calibration)
                    yield Case("disk", f"{name}; {loss}; {form}", run)
        for name in SOME:
            method = BASIC[name][0]
            for kind, known in BOUNDS.items():
                run = partial(_on_disk, form, "logistic", method, bounds=Bounds(**known))
                yield Case("disk", f"{name}; {kind}; {form}", run)
            bounds = Bounds(row_l2=2.0, rows_per_person=2)
            yield Case(
                "disk", f"{name}; people; {form}", partial(_on_disk, form, "logistic", method, True, bounds=bounds)
            )
            plain = partial(_on_disk, form, "logistic", method, epsilon=None, delta=None)
            yield Case("disk", f"{name}; not private; {form}", plain)
        yield Case("disk", f"Bounds.estimate; {form}", partial(_estimate_on_disk, form))
        under = partial(_under, "file", partial(_on_disk, form, "logistic", ScreenRefine))
        yield Case("disk", f"ledger file; {form}", under)


# --- federated -------------------------------------------------------------------------------------------------------

PARTS = {"ada": slice(0, 110), "ben": slice(110, 120), "cy": slice(120, N)}


def _study(
    form: str, loss: str, *, kept: bool = False, average: float = 0.0, weighting: Any = "rows", **terms: Any
) -> Given:
    """A study with a curious server, its clients in this process."""
    from tulle.federated import Terms, linear_terms, simulate

    public: dict[str, Any] = {"loss": loss.partition(",")[0], "row_l2": 2.0, "label": 4.0}
    if loss in CLASSES:
        public["classes"] = tuple(range(CLASSES[loss]))
    model = linear_terms(D, step=2.0, fit_intercept=terms.pop("fit_intercept", True), **public)
    said: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-5, "batch": 40, "local_steps": 2} | terms
    study = Terms("a study", model, 4, n_nonzero=4, step=2.0, clip=0.5, **said)
    X, y = rows(form), targets(loss)
    with _folder() as folder, fixed_secrets():
        place = {"folder": folder} if kept else {}
        found = simulate(
            study,
            {name: (X[part], y[part]) for name, part in PARTS.items()},
            seed=SEED,
            weighting=weighting,
            average=average,
            **place,
        )
    given = of_model(found.model(), X)
    promised = [(client.n_rows, client.batch) for client in found.clients]
    return Given([*given.weights, found.weights.to_dense(), repr(promised)], found.privacy, given.predictions)


def _aggregated(form: str, loss: str, method: Callable[[], Any], people: bool = False, **settings: Any) -> Given:
    """Rows at clients of a trusted aggregator, each with a ledger file of its own."""
    from tulle.federated import Client

    X, y = rows(form), targets(loss)
    private = settings.get("epsilon", 1.0) is not None
    with _folder() as folder, fixed_secrets():
        clients = {}
        for name, part in PARTS.items():
            ledger = FileLedger.create(folder / f"{name}.json", name, Budget(1e4, 1e-2)) if private else None
            clients[name] = Client(
                name,
                X[part],
                y[part],
                ledger=ledger,
                state=folder / name,
                groups=PEOPLE[part] if people else None,
                without_privacy=not private,
                trusts_aggregator=True,
                **({"rows_per_person": 2} if people else {}),
            )
        link = find("DirectLink")({name: client.answer for name, client in clients.items()})
        there = find("RowsAtClients")(link, seconds=5.0, patience=0.1)
        return of_model(estimator(loss, method(), **settings).fit(there, None), X)


def federated_cases() -> Iterator[Case]:
    for form in ("dense", "csr"):
        for loss in ("logistic", "logistic, three classes", "squared_hinge", "squared", "huber"):
            yield Case("federated", f"{loss}; {form}", partial(_study, form, loss))
            plain = partial(_study, form, loss, epsilon=None, delta=None)
            yield Case("federated", f"{loss}; not private; {form}", plain)
        for name, terms in {
            "all rows": {"batch": None},
            "memory": {"memory": 9},
            "penalty": {"penalty": 0.1},
            "no intercept": {"fit_intercept": False},
            "equal weights": {"weighting": "equal"},
            "averaged": {"average": 0.5},
            "ledgers kept": {"kept": True},
        }.items():
            run = partial(_study, form, "logistic", **terms)
            yield Case("federated", f"{name}; {form}", run)
        for name, (method, calibration) in BASIC.items():
            if calibration == "rigorous":
                for loss in ("logistic", "squared"):
                    yield Case("aggregator", f"{name}; {loss}; {form}", partial(_aggregated, form, loss, method))
        for name in SOME:
            method = BASIC[name][0]
            run = partial(_aggregated, form, "logistic", method, bounds=Bounds())
            yield Case("aggregator", f"{name}; bounds estimated; {form}", run)
            plain = partial(_aggregated, form, "logistic", method, epsilon=None, delta=None)
            yield Case("aggregator", f"{name}; not private; {form}", plain)


# --- local studies ---------------------------------------------------------------------------------------------------


def _local(name: str, form: str, people: int = 600, *, classes: bool = False, **settings: Any) -> Given:
    import tulle.local

    rng = np.random.default_rng(31)
    X: Any = rng.choice([-1.0, 1.0], (people, 6))
    y: Any = 0.8 * X[:, 1] - 0.6 * X[:, 4]
    known: dict[str, Any] = {"n_nonzero": 2, "random_state": SEED}
    if classes:
        y = np.where(y > 0, "up", "down")
    else:
        known["bounds"] = Bounds(row_linf=1.0, label=2.0)
    X = sp.csr_array(X) if form == "csr" else X
    model = getattr(tulle.local, name)(**{"epsilon": 4.0} | known | settings).fit(X, y)
    return of_model(model, X)


def local_cases() -> Iterator[Case]:
    whole: dict[str, dict[str, Any]] = {
        "default": {},
        "hemisphere": {"ball": "hemisphere"},
        "tanh": {"response": "tanh"},
        "no intercept": {"fit_intercept": False},
        "not private": {"epsilon": None},
        "bounds estimated": {"bounds": Bounds()},
    }
    labels: dict[str, dict[str, Any]] = {
        "default": {},
        "no intercept": {"fit_intercept": False},
        "not private": {"epsilon": None},
        "lasso": {"solver": "lasso"},
        "no refit": {"refit": False},
    }
    for form in ("dense", "csr"):
        for name, settings in whole.items():
            run = partial(_local, "LocalSparseRegressor", form, **{"n_rounds": 4} | settings)
            yield Case("local", f"LDP-IHT; {name}; {form}", run)
            yield Case(
                "local", f"one round; {name}; {form}", partial(_local, "OneRoundSparseRegressor", form, **settings)
            )
        for name, settings in labels.items():
            run = partial(_local, "LabelPrivateSparseRegressor", form, **settings)
            yield Case("local", f"private labels, numbers; {name}; {form}", run)
            run = partial(_local, "LabelPrivateSparseClassifier", form, classes=True, **settings)
            yield Case("local", f"private labels, classes; {name}; {form}", run)
        for randomiser in ("laplace", "gaussian", "piecewise", "hybrid", "two_point"):
            run = partial(_local, "LabelPrivateSparseRegressor", form, randomiser=randomiser)
            yield Case("local", f"private labels, {randomiser}; {form}", run)


# --- Dask ------------------------------------------------------------------------------------------------------------


def _on_dask(form: str, loss: str, method: Callable[[], Any], people: bool = False, **settings: Any) -> Given:
    import dask
    import dask.array as da
    import dask.bag as db

    X, y = rows(form), targets(loss)
    parts = [slice(start, start + 70) for start in range(0, N, 70)]
    if form == "csr":
        spread: Any = db.from_delayed([dask.delayed([X[part]]) for part in parts])
    else:
        spread = da.from_array(X, chunks=(70, D))
    groups = da.from_array(PEOPLE, chunks=70) if people else None
    model = estimator(loss, method(), **settings)
    return of_model(model.fit(spread, da.from_array(y, chunks=70), groups), X)


def dask_cases() -> Iterator[Case]:
    for form in ("dense", "csr"):
        for name, (method, calibration) in BASIC.items():
            if calibration == "rigorous":
                for loss in ("logistic", "squared") if form == "csr" else ("logistic",):
                    yield Case("dask", f"{name}; {loss}; {form}", partial(_on_dask, form, loss, method))
        for name in ("hard_thresholding, gaussian", "screen_refine"):
            method = BASIC[name][0]
            for kind, known in BOUNDS.items():
                run = partial(_on_dask, form, "logistic", method, bounds=Bounds(**known))
                yield Case("dask", f"{name}; {kind}; {form}", run)
            bounds = Bounds(row_l2=2.0, rows_per_person=2)
            yield Case(
                "dask", f"{name}; people; {form}", partial(_on_dask, form, "logistic", method, True, bounds=bounds)
            )
        under = partial(_under, "file", partial(_on_dask, form, "logistic", ScreenRefine))
        yield Case("dask", f"ledger file; {form}", under)


@contextmanager
def _cluster() -> Iterator[None]:
    from distributed import Client, LocalCluster

    settings: dict[str, Any] = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with LocalCluster(**settings) as cluster, Client(cluster):
        yield


def dask_is_missing() -> bool:
    return any(importlib.util.find_spec(name) is None for name in ("dask", "distributed"))


# --- running all of them ---------------------------------------------------------------------------------------------

MAKERS = (
    method_cases,
    setting_cases,
    compiled_cases,
    ledger_cases,
    release_cases,
    disk_cases,
    federated_cases,
    local_cases,
)


def run_case(case: Case) -> dict[str, Any]:
    """The line of a case. No power cuts are tested here: waiting for the disk would take most of the time."""
    start = time.perf_counter()
    without_waiting = patch.object(os, "fsync", lambda handle: None)
    with warnings.catch_warnings(), without_waiting, patch.dict(os.environ, _NONCE):
        warnings.simplefilter("ignore")
        try:
            line = case.run().line()
        except Exception as error:
            line = {"error": type(error).__name__, "message": str(error)[:300]}
    return {"case": case.label, **line, "seconds": round(time.perf_counter() - start, 3)}


def _run_forked(case: Case) -> dict[str, Any]:
    """The same in a process of its own, which sees what was imported here and leaves nothing behind."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        with os.fdopen(writing, "w") as pipe:
            pipe.write(json.dumps(run_case(case)))
            pipe.flush()
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        content = pipe.read()
    os.waitpid(child, 0)
    return json.loads(content) if content else {"case": case.label, "error": "died", "message": "", "seconds": 0.0}


def _import_first() -> None:
    """Import here, once, what most cases import when they are first used; but no compiled loops."""
    _definitions()
    for name in ("UniformFeatures", "lasso_path", "write_blocks", "RowsAtClients"):
        find(name)
    for method in (HardThresholding(2), KnowledgeTransfer(), StochasticHardThresholding(batch=40, passes=0.5)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            estimator(method=method).fit(rows(), targets("logistic"))
    for form in ("dense", "csr"):
        for loss in ("logistic", "logistic, three classes", "squared"):
            _scored_model(form, loss)
    if "numba" in sys.modules:
        raise RuntimeError("numba is loaded before the first case: cases would depend on each other")


def run_all(with_dask: bool, groups: list[str] | None = None) -> Iterator[dict[str, Any]]:
    _import_first()
    for make in MAKERS:
        for case in make():
            if groups is None or case.group in groups:
                yield _run_forked(case)
    if not with_dask or (groups is not None and "dask" not in groups):
        return
    if dask_is_missing():
        print("skipped: the cases on Dask, since dask or distributed is not installed", file=sys.stderr)
        return
    with _cluster():
        for case in dask_cases():
            yield run_case(case)


def _group_of(label: str) -> str:
    return label.partition(" / ")[0]


def write(path: Path, with_dask: bool, groups: list[str] | None) -> int:
    counts: Counter[str] = Counter()
    errors = 0
    start = time.perf_counter()
    with path.open("w", encoding="utf-8") as file:
        for line in run_all(with_dask, groups):
            counts[_group_of(line["case"])] += 1
            if "error" in line:
                errors += 1
                print(f"  {line['case']}: {line['error']}: {line['message']}")
            file.write(json.dumps(line) + "\n")
    print(", ".join(f"{group} {count}" for group, count in counts.items()))
    print(f"{sum(counts.values())} cases, of which {errors} raise, in {time.perf_counter() - start:.0f} s")
    return int(errors > 0)


def largest_difference(before: dict[str, Any], now: dict[str, Any]) -> float:
    """Between the numbers that both lines hold; inf where they hold other numbers of them."""
    one, other = ([float.fromhex(text) for text in line["numbers"]] for line in (before, now))
    if len(one) != len(other):
        return float("inf")
    return max((abs(a - b) for a, b in zip(one, other) if a != b), default=0.0)


def explain(before: dict[str, Any], now: dict[str, Any] | None) -> str:
    """How two lines of one case differ; empty where they do not."""
    if now is None:
        return "did not run"
    if "error" in before or "error" in now:
        same = before.get("error") == now.get("error")
        return (
            ""
            if same
            else f"{before.get('error', 'a result')} -> {now.get('error', 'a result')} {now.get('message', '')}"
        )
    if before["sha256"] == now["sha256"]:
        return ""
    parts = [part for part in before["parts"] if before["parts"][part] != now["parts"].get(part)]
    words = f"{', '.join(parts)}; largest absolute difference {largest_difference(before, now):.3g}"
    for part in ("plan", "names"):
        if part in parts:
            pairs = [f"{a} -> {b}" for a, b in zip(before[part], now[part]) if a != b]
            words += f"; {part}: {', '.join(pairs[:3]) or 'another length'}"
    return words


def compare(path: Path, with_dask: bool, groups: list[str] | None) -> int:
    with path.open(encoding="utf-8") as file:
        before = {line["case"]: line for line in map(json.loads, file)}
    now = {line["case"]: line for line in run_all(with_dask, groups)}
    equal: Counter[str] = Counter()
    differing: dict[str, list[str]] = {}
    for label, line in before.items():
        group = _group_of(label)
        if (groups is not None and group not in groups) or (group == "dask" and label not in now and not with_dask):
            continue
        words = explain(line, now.get(label))
        if words:
            differing.setdefault(group, []).append(f"  {label}: {words}")
        else:
            equal[group] += 1
    for group in dict.fromkeys([*map(_group_of, before)]):
        if total := equal[group] + len(differing.get(group, [])):
            print(f"{group}: {equal[group]} of {total} equal")
            print(*differing.get(group, []), sep="\n", end="\n" if group in differing else "")
    if new := [label for label in now if label not in before]:
        print(f"not in the file: {len(new)}, {new[0]} the first")
    print(f"{sum(equal.values())} equal, {sum(map(len, differing.values()))} differ")
    return int(bool(differing))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("write", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--dask", action="store_true", help="also the cases on a Dask cluster")
    parser.add_argument("--group", action="append", help="this group of cases alone; may be repeated")
    given = parser.parse_args(arguments)
    if any(os.environ.get(name) != value for name, value in _ONE_THREAD.items()):
        words = sys.argv[1:] if arguments is None else arguments
        os.execve(sys.executable, [sys.executable, __file__, *words], {**os.environ, **_ONE_THREAD})
    return (write if given.command == "write" else compare)(given.file, given.dask, given.group)


if __name__ == "__main__":
    sys.exit(main())
