"""Everything that leaves a fit follows from its settings and from what the curator answered; see tests/replayed.py.

The other rows are as unlike the first as rows can be: of another size by hundreds of orders of magnitude, all equal,
constant in some columns, of one person, of one class but for a row. Their shape and the set of their labels are the
same, since both are public.
"""

from __future__ import annotations

import logging
import pickle
import shutil
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from datetime import datetime
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from pairwise import draw_cases
from replayed import differences, replayed
from sklearn.datasets import dump_svmlight_file
from sklearn.linear_model import LinearRegression, LogisticRegression

from tulle import (
    Bounds,
    Budget,
    FileLedger,
    Ledger,
    PrivateSearch,
    PublicFrequencies,
    SparseClassifier,
    SparseRegressor,
    private_score,
    save,
)
from tulle.cli import main
from tulle.ledgers.nonces import FIXED_NONCE
from tulle.methods import (
    CoordinateDescent,
    FitAgain,
    FrankWolfe,
    HardThresholding,
    KnowledgeTransfer,
    ScreenRefine,
    StochasticHardThresholding,
    TwoStage,
)
from tulle.reports.pages import fit_page
from tulle.reports.report import About

Array = NDArray[Any]
N, D = 120, 6
N_CLASSES = {"logistic": 2, "squared_hinge": 2, "three classes": 3}

# Fits: the method and the calibration of its noise.
METHODS: dict[str, Callable[[], tuple[Any, str]]] = {
    "auto": lambda: ("auto", "rigorous"),
    "fit_again": lambda: (FitAgain(), "rigorous"),
    "fit_again public rows": lambda: (FitAgain(), "rigorous"),
    "fit_again public frequencies": lambda: (FitAgain(), "rigorous"),
    "screen_refine": lambda: (ScreenRefine(), "rigorous"),
    "screen_refine statistics": lambda: (ScreenRefine(refinement="statistics"), "rigorous"),
    "hard_thresholding gaussian": lambda: (HardThresholding(n_iter=3, noise="gaussian"), "rigorous"),
    "hard_thresholding selection": lambda: (HardThresholding(n_iter=3, noise="selection"), "rigorous"),
    "hard_thresholding published": lambda: (HardThresholding(n_iter=3, noise="gaussian"), "published"),
    "stochastic poisson": lambda: (stochastic("sgd", "poisson"), "rigorous"),
    "stochastic without_replacement": lambda: (stochastic("svrg", "without_replacement"), "rigorous"),
    "stochastic shuffled": lambda: (stochastic("scsg", "shuffled"), "rigorous"),
    "stochastic published": lambda: (stochastic("svrg", "poisson"), "published"),
    "frank_wolfe": lambda: (FrankWolfe(n_iter=3), "rigorous"),
    "frank_wolfe incremental": lambda: (FrankWolfe(n_iter=3, noise="selection", engine="incremental"), "rigorous"),
    "frank_wolfe gaussian": lambda: (FrankWolfe(n_iter=3, noise="gaussian"), "rigorous"),
    "frank_wolfe published": lambda: (FrankWolfe(n_iter=3, noise="selection"), "published"),
    "coordinate_descent": lambda: (CoordinateDescent(n_iter=3), "rigorous"),
    "coordinate_descent incremental": lambda: (
        CoordinateDescent(n_iter=3, noise="selection", engine="incremental"),
        "rigorous",
    ),
    "knowledge_transfer": lambda: (KnowledgeTransfer(), "rigorous"),
    "knowledge_transfer dense": lambda: (KnowledgeTransfer("dense", features=PUBLIC), "rigorous"),
    "knowledge_transfer output": lambda: (KnowledgeTransfer(perturbation="output"), "rigorous"),
    "knowledge_transfer published": lambda: (KnowledgeTransfer("published", features=PUBLIC), "published"),
    "two_stage": lambda: (TwoStage(), "rigorous"),
    "two_stage published": lambda: (TwoStage(), "published"),
}
PUBLIC = np.random.default_rng(5).standard_normal((200, D))
# What some of them are given as public=.
GIVEN = {"fit_again public rows": PUBLIC, "fit_again public frequencies": PublicFrequencies(np.arange(D))}


def stochastic(variant: Any, sampling: Any) -> StochasticHardThresholding:
    return StochasticHardThresholding(variant, batch=30, passes=1.0, sampling=sampling)


BOUNDS: dict[str, dict[str, Any]] = {
    "declared": {"row_l2": 1.0, "label": 2.0},
    "entries declared": {"row_linf": 0.5, "label": 1.0},
    "estimated": {},
    "normalised": {"normalise": True, "label": 3.0},
}
PEOPLE = {"rows": None, "people": 1, "people with 3 rows": 3}

# --- rows ------------------------------------------------------------------------------------------------------------


def usual(d: int = D) -> Array:
    return np.random.default_rng(1).standard_normal((N, d))


def _extreme(sizes: tuple[float, ...]) -> Array:
    """Rows of other sizes in turn, every fourth one of which is as in the first data set."""
    rng = np.random.default_rng(2)
    X = rng.standard_normal((N, D))
    signs = rng.choice([-1.0, 1.0], (N, D))
    for k, size in enumerate(sizes):
        X[k :: len(sizes) + 1] = size * signs[k :: len(sizes) + 1]
    return X


OTHER_ROWS: dict[str, Callable[[], Array]] = {
    "longer": lambda: 50.0 * np.random.default_rng(2).standard_normal((N, D)),
    "largest": lambda: _extreme((1.7e308,)),
    "smallest": lambda: _extreme((5e-324, 1e-160)),
    "both": lambda: _extreme((1e300, 1e-300, 1e155)),
    "constant columns": lambda: usual() * np.array([1.0, 0.0, 0.0, 1.0, 0.0, 1.0]) + np.array([0, 3.0, 0, 0, -7, 0]),
    "all equal": lambda: np.full((N, D), 0.25),
    "empty": lambda: np.zeros((N, D)),
}


def targets(loss: str, other: str | None = None) -> Array:
    """Of the usual rows, or of others: another balance of classes, of which one is nearly absent, and other sizes."""
    n_classes = N_CLASSES.get(loss)
    if n_classes is not None:
        y = np.arange(N) % n_classes
        return y if other is None else np.where(np.arange(N) < N - n_classes + 1, 0, y)
    rng = np.random.default_rng(3)
    y = rng.standard_normal(N)
    if other is not None:
        y = 40.0 * y
        y[:4] = [1.7e308, -1.7e308, 5e-324, 0.0]
    return np.abs(np.round(y)) if loss == "poisson" else y


def people(other: bool) -> Array:
    """Three rows each; or one who has all rows but a few."""
    return np.where(np.arange(N) < N - 5, 7, np.arange(N)) if other else np.arange(N) // 3


def in_form(form: str, X: Array) -> Any:
    if "float32" in form:
        largest = np.finfo(np.float32).max
        X = np.clip(X, -largest, largest).astype(np.float32)
    return sp.csr_array(X) if "sparse" in form else X


# --- what leaves -----------------------------------------------------------------------------------------------------


def told_in_any_case(fitted: Any, folder: Path) -> dict[str, Any]:
    """What models and pipelines can be turned into, and what a ledger in memory says of them."""
    model, ledger = fitted
    save(model, folder / "model.npz", About(title="a model", made="2026-11-01"))
    return {
        "the ledger": ledger,
        "its attributes": vars(model),
        "its pickle": pickle.dumps(model),
        "its file": (folder / "model.npz").read_bytes(),
        "its report": str(model.privacy_),
        "its report as JSON": model.privacy_.to_json(),
    }


def told_of_model(folder: Path) -> Callable[[Any], dict[str, Any]]:
    """All that a fitted model can be turned into."""

    def told(fitted: Any) -> dict[str, Any]:
        model, _ = fitted
        return {
            **told_in_any_case(fitted, folder),
            "its public page": fit_page(model, About(title="a model")),
            "its internal page": fit_page(model, About(title="a model"), internal=True),
        }

    return told


AXES: dict[str, list[Any]] = {
    "method": [*METHODS],
    "loss": ["logistic", "squared_hinge", "three classes", "squared", "huber", "poisson"],
    "other": [*OTHER_ROWS],
    "bounds": [*BOUNDS],
    "form": ["dense", "sparse", "dense float32", "sparse float32"],
    "people": [*PEOPLE],
}
CASES = draw_cases(AXES)


def loss_of(case: dict[str, Any]) -> str:
    """Some methods are for one loss, or for one output."""
    if case["method"] == "screen_refine statistics":
        return "squared"
    if case["method"] in ("frank_wolfe published", "stochastic published", "knowledge_transfer published"):
        return "logistic" if case["loss"] in N_CLASSES else "squared"
    return str(case["loss"])


def named(case: dict[str, Any]) -> str:
    return ", ".join(case.values())


@pytest.mark.parametrize("case", CASES, ids=named)
def test_a_fit_tells_nothing_but_its_answers(case: dict[str, Any], tmp_path: Path, monkeypatch: Any) -> None:
    """Whatever a model is turned into, and whatever is said on the way."""
    loss, form, rows_each = loss_of(case), case["form"], PEOPLE[case["people"]]
    classes = N_CLASSES.get(loss)
    method, calibration = METHODS[case["method"]]()
    kind = SparseRegressor if classes is None else SparseClassifier
    known: dict[str, Any] = BOUNDS[case["bounds"]] | ({} if rows_each is None else {"rows_per_person": rows_each})

    def fit(X: Array, y: Array, groups: Array | None) -> Any:
        # The algorithm that no noise makes private is refused by every ledger.
        with nullcontext() if case["method"] == "knowledge_transfer published" else Ledger(Budget(1e9, 0.1)) as ledger:
            model = kind(
                2.0,
                1e-6,
                method=method,
                bounds=Bounds(**known),
                loss="squared_hinge" if classes == 3 else loss,
                n_nonzero=2,
                calibration=calibration,
                random_state=1,
            )
            model.fit(in_form(form, X), y, groups, public=GIVEN.get(case["method"]))
            return model, None if ledger is None else ledger.fits

    ids = [None, None] if rows_each is None else [people(False), people(True)]
    one, other = replayed(
        lambda: fit(usual(), targets(loss), ids[0]),
        lambda: fit(OTHER_ROWS[case["other"]](), targets(loss, case["other"]), ids[1]),
        told_of_model(tmp_path),
    )
    assert not one.error, one.error
    assert differences(one, other) == []


@pytest.mark.parametrize("loss", ["logistic", "squared"])
@pytest.mark.parametrize("other", OTHER_ROWS)
def test_a_score_tells_nothing_but_its_answers(loss: str, other: str, monkeypatch: Any) -> None:
    """Of a model that is public."""
    classes = loss in N_CLASSES
    model: Any = (LogisticRegression() if classes else LinearRegression()).fit(usual(), targets(loss))
    metrics = ("accuracy", "auc") if classes else ("r2", "absolute_error", "squared_error")

    def scores(X: Array, y: Array) -> list[Any]:
        bound = {} if classes else {"label": 3.0}
        return [private_score(model, X, y, epsilon=1.0, metric=name, random_state=1, **bound) for name in metrics]

    one, other_rows = replayed(
        lambda: scores(usual(), targets(loss)),
        lambda: scores(OTHER_ROWS[other](), targets(loss, other)),
        lambda found: {"scores": [(repr(score), str(score), pickle.dumps(score)) for score in found]},
    )
    assert not one.error, one.error
    assert differences(one, other_rows) == []


@pytest.mark.parametrize("form", ["dense", "sparse", "dense float32"])
@pytest.mark.parametrize("other", OTHER_ROWS)
def test_estimated_bounds_tell_nothing_but_their_answers(form: str, other: str, monkeypatch: Any) -> None:
    def estimated(X: Array, y: Array | None) -> Bounds:
        return Bounds.estimate(in_form(form, X), y, epsilon=1.0, random_state=1)

    for y, y_other in ((None, None), (targets("squared"), targets("squared", other))):
        one, other_rows = replayed(
            lambda y=y: estimated(usual(), y),
            lambda y=y_other: estimated(OTHER_ROWS[other](), y),
            lambda bounds: {"bounds": repr(bounds), "its pickle": pickle.dumps(bounds)},
        )
        assert not one.error, one.error
        assert differences(one, other_rows) == []


@pytest.mark.parametrize("loss", ["logistic", "three classes", "squared"])
@pytest.mark.parametrize("other", ["longer", "largest", "all equal"])
def test_a_search_tells_nothing_but_its_answers(loss: str, other: str, monkeypatch: Any) -> None:
    classes = N_CLASSES.get(loss)
    known = Bounds(row_l2=1.0, label=2.0)
    model: Any = (
        SparseRegressor(2.0, 1e-6, method="hard_thresholding", bounds=known)
        if classes is None
        else SparseClassifier(2.0, 1e-6, method="hard_thresholding", bounds=known)
    )

    def search(X: Array, y: Array) -> Any:
        grid = {"n_nonzero": [1, 2, 4]}
        return PrivateSearch(model, grid, Budget(8.0, 1e-5), n_trials=4, random_state=1).fit(X, y)

    def told(found: Any) -> dict[str, Any]:
        best = found.best_estimator_
        return {
            "its attributes": {name: value for name, value in vars(found).items() if name != "estimator"},
            "the best one": vars(best),
            "its pickle": pickle.dumps(found),
            "its report": str(found.privacy_),
        }

    one, other_rows = replayed(
        lambda: search(usual(), targets(loss)),
        lambda: search(OTHER_ROWS[other](), targets(loss, other)),
        told,
    )
    assert not one.error, one.error
    assert differences(one, other_rows) == []


# --- the command line ------------------------------------------------------------------------------------------------

COMMANDS: dict[str, tuple[str, str, list[str]]] = {
    "csv": ("csv", "logistic", ["--row-l2", "1"]),
    "csv, JSON": ("csv", "three classes", ["--row-linf", "1", "--json"]),
    "csv, estimated bounds": ("csv", "squared", ["--task", "regression", "--json"]),
    "csv, people": ("csv", "logistic", ["--row-l2", "1", "--groups", "person", "--rows-per-person", "2"]),
    "csv, published noise": (
        "csv",
        "logistic",
        ["--row-l2", "1", "--method", "two_stage", "--calibration", "published"],
    ),
    "svmlight": ("svm", "logistic", ["--row-l2", "1", "--n-features", str(D)]),
    "svmlight, JSON": ("svm", "squared", ["--task", "regression", "--label-bound", "2", "--normalise", "--json"]),
}


class Stopped(datetime):
    """A clock that stands still."""

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return datetime(2026, 11, 1, 12, 0, 0, tzinfo=tz)


def written(folder: Path, suffix: str, X: Array, y: Array, groups: Array) -> None:
    """The rows as a file; classes are words in CSV and numbers in svmlight files."""
    if suffix == "svm":
        dump_svmlight_file(X, y, str(folder / "rows.svm"), zero_based=False)
        return
    words = [f"class {label}" for label in y] if y.dtype.kind == "i" else [repr(float(value)) for value in y]
    lines = [",".join([*(f"x{k}" for k in range(D)), "person", "outcome"])]
    lines += [
        ",".join([*(repr(float(cell)) for cell in row), f"{one}", word]) for row, one, word in zip(X, groups, words)
    ]
    (folder / "rows.csv").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("other", ["longer", "largest", "constant columns", "all equal"])
def test_the_command_line_tells_nothing_but_its_answers(
    command: str, other: str, tmp_path: Path, monkeypatch: Any
) -> None:
    """Its exit code, what it prints and every file that it writes."""
    suffix, loss, options = COMMANDS[command]
    monkeypatch.setenv(FIXED_NONCE, "00" * 16)  # random bytes of entries, which heads in the output cover
    for module in ("tulle.cli.fit", "tulle.ledgers.entries"):
        monkeypatch.setattr(f"{module}.datetime", Stopped)
    ledger = tmp_path / "budget"
    FileLedger.create(ledger, "visits", Budget(100.0, 1e-3))
    X, y = OTHER_ROWS[other](), targets(loss, other)
    if suffix == "svm":
        X[0] = 1.0  # the largest index in the file is public, and the same
    for name, rows in (("first", (usual(), targets(loss), people(False))), ("other", (X, y, people(True)))):
        (tmp_path / name).mkdir()
        written(tmp_path / name, suffix, *rows)
        shutil.copytree(ledger, tmp_path / name / "budget")

    def run(name: str) -> tuple[int, Path]:
        monkeypatch.chdir(tmp_path / name)
        columns = ["--target", "outcome"] if suffix == "csv" else []
        columns += ["--ignore", "person"] if suffix == "csv" and "--groups" not in options else []
        words = ["--epsilon", "2", "--delta", "1e-6", "--n-nonzero", "2", "--seed", "1", "--quiet"]
        billed = ["--ledger", "budget", "--dataset", "visits", "-o", "model"]
        return main(["fit", f"rows.{suffix}", *columns, *words, *billed, *options]), tmp_path / name

    def told(ran: tuple[int, Path]) -> dict[str, Any]:
        code, folder = ran
        files = {path.name: path.read_bytes() for path in sorted(folder.glob("model/*"))}
        return {
            "its exit code": code,
            **files,
            # All but the names of hints, which are keyed hashes of the rows.
            "the ledger": {path.name: path.read_bytes() for path in sorted(folder.glob("budget/*/0*.json"))},
            "the folder": sorted(path.name for path in folder.iterdir()),
        }

    one, other_rows = replayed(lambda: run("first"), lambda: run("other"), told)
    assert not one.error, one.error
    assert one.result["its exit code"] == 0
    assert {"model.npz", "report.html", "privacy.json", "weights.csv"} <= set(one.result)
    assert differences(one, other_rows) == []


# --- the harness itself ----------------------------------------------------------------------------------------------


def test_every_two_settings_meet() -> None:
    axes = list(combinations(AXES, 2))
    met = {(a, case[a], b, case[b]) for case in CASES for a, b in axes}
    assert len(met) == sum(len(AXES[a]) * len(AXES[b]) for a, b in axes)


@pytest.mark.parametrize(
    ("way", "found"),
    [
        ("attribute", "its attributes"),
        ("printed", "out"),
        ("warned", "warnings"),
        ("logged", "logged"),
        ("refused", "error"),
    ],
)
def test_what_passes_the_curator_by_is_found(way: str, found: str, tmp_path: Path, monkeypatch: Any) -> None:
    """Rows that leave by each way out."""

    def leaky(X: Array) -> Any:
        model = SparseRegressor(2.0, 1e-6, bounds=Bounds(row_l2=1.0, label=1.0), random_state=1)
        model.fit(X, targets("squared"))
        largest = float(np.abs(X).max())
        if way == "attribute":
            model.largest_ = largest
        elif way == "printed":
            print(largest)
        elif way == "warned":
            warnings.warn(f"{largest}", UserWarning, stacklevel=1)
        elif way == "logged":
            logging.getLogger("tulle").warning("%s", largest)
        elif largest > 10:
            raise ValueError("too large")
        return model, None

    one, other = replayed(lambda: leaky(usual()), lambda: leaky(50 * usual()), told_of_model(tmp_path))
    assert any(difference.startswith(found) for difference in differences(one, other))
