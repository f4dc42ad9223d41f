"""Audits of estimators of other libraries: anything with fit(X, y), on ready pairs of neighbouring data sets."""

from __future__ import annotations

import inspect
import math
import os
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tulle.audit.first_runs import TargetError
from tulle.audit.neighbours import Pair, worst_case_pairs
from tulle.audit.result import AuditResult
from tulle.audit.runner import choose_once, time_left
from tulle.audit.targets import audit_function
from tulle.backends.known_bounds import KnownBounds
from tulle.methods.loss_functions import resolve_loss
from tulle.trusted.events import FloatArray

Worlds = tuple[tuple[Any, Any], tuple[Any, Any]]


def audit_estimator(
    estimator: Any,
    pair: Pair | Worlds | None = None,
    *,
    delta: float,
    claimed: float | None = None,
    task: str | None = None,
    row_l2: float = 1.0,
    row_linf: float = math.inf,
    label: float = 1.0,
    n_rows: int = 6,
    n_features: int = 2,
    released: Callable[[Any], Any] | None = None,
    judge: str = "any",
    claimed_mu: float | None = None,
    claimed_range: float | None = None,
    claimed_curve: Any = None,
    runs: int = 2_000,
    pilot_runs: int = 200,
    confidence: float = 0.95,
    max_differing_rows: int = 1,
    seed: int | None = None,
    n_jobs: int = 1,
    seconds: float | None = None,
    folder: str | os.PathLike[str] | None = None,
    verbose: int = 0,
) -> AuditResult:
    """Audit an estimator of any library on the worst of some pairs of neighbouring data sets.

    Parameters
    ----------
    estimator : estimator or callable
        Unfitted, with get_params() as in scikit-learn: each run fits a clone whose `random_state`, if it has one, is
        new. Or a function that returns a new unfitted estimator with fit(X, y); one with a parameter is passed a seed.
    pair : Pair, ((X, y), (X, y)) or None, default=None
        Two neighbouring data sets. None: the one of `worst_case_pairs` on which a pilot shows most. Pass a pair where
        the estimator takes rows of another form, such as entries in [0, 1].
    delta : float
        In [0, 1); 0 where the library claims pure differential privacy.
    claimed : float or None, default=None
        The epsilon that is claimed at `delta`.
    task : {"classification", "regression"} or None, default=None
        For the ready pairs, whose labels are -1 and 1, or -label and label. None asks the estimator.
    row_l2, row_linf, label : float, default=1, inf and 1
        The bounds that the estimator was told: ready pairs press on them.
    n_rows, n_features : int, default=6 and 2
        Size of the ready pairs, at least 3 and 1.
    released : callable or None, default=None
        released(fitted estimator) -> numbers that would be published. None: all public fitted attributes (with names
        that end in "_") that are numbers or arrays of numbers.
    judge, claimed_mu, claimed_range, claimed_curve
        As in `audit_function`.
    runs, confidence, max_differing_rows, seed, n_jobs, seconds, folder, verbose
        As in `audit_function`.
    pilot_runs : int, default=200
        Runs on each data set of each ready pair, at least 16, to choose the pair; they are not counted.

    Returns
    -------
    AuditResult
    """
    start = time.monotonic()
    words: dict[str, Any] = {
        "delta": delta,
        "claimed": claimed,
        "judge": judge,
        "claimed_mu": claimed_mu,
        "claimed_range": claimed_range,
        "claimed_curve": claimed_curve,
        "confidence": confidence,
    }
    words |= {"seed": seed, "n_jobs": n_jobs, "max_differing_rows": max_differing_rows}
    fit, chosen = fit_and_pair(
        estimator,
        pair,
        released=released,
        task=task,
        bounds=KnownBounds(row_l2, row_linf, label, normalise=False),
        size=(n_rows, n_features),
        runs=pilot_runs,
        folder=folder,
        verbose=verbose,
        **words,
    )
    left = time_left(seconds, start)
    return audit_function(fit, *chosen, runs=runs, seconds=left, folder=folder, verbose=verbose, **words)


def fit_and_pair(
    estimator: Any,
    pair: Pair | Worlds | None,
    *,
    released: Callable[[Any], Any] | None,
    task: str | None,
    bounds: KnownBounds,
    size: tuple[int, int],
    **pilot: Any,
) -> tuple[_EstimatorFit, Worlds]:
    """fit(X, y, rng) of an estimator, and the pair that was passed or that a pilot chose."""
    fit = _EstimatorFit(estimator, released)
    if pair is not None:
        return fit, (pair.world(0), pair.world(1)) if isinstance(pair, Pair) else pair
    chosen, which = choose_pair(fit, ready_pairs(task or _task_of(fit.make(0)), bounds, *size), **pilot)
    fit.__name__ = f"{fit.__name__}, {which},"
    return fit, chosen


def ready_pairs(task: str, bounds: KnownBounds, n_rows: int, n_features: int) -> dict[str, Worlds]:
    """Pairs that press on one sensitivity each, by name; classes are -1 and 1."""
    if task not in ("classification", "regression"):
        raise ValueError(f"task must be 'classification' or 'regression', got {task!r}")
    loss = resolve_loss("logistic" if task == "classification" else "squared", task)
    pairs = worst_case_pairs(loss, bounds, n_rows, n_features)
    return {pair.name: (pair.world(0), pair.world(1)) for pair in pairs}


def choose_pair(
    fit: Callable[..., Any],
    pairs: dict[str, Worlds],
    *,
    folder: str | os.PathLike[str] | None,
    **words: Any,
) -> tuple[Worlds, str]:
    """The pair on which a short audit shows most, and its name; the one of the folder, where it holds one. Its runs are
    not counted. A pair that the target refuses is left out; where it refuses all of them, the first refusal is
    raised."""
    best = choose_once(folder, list(pairs), lambda: _strongest_pair(fit, pairs, **words))
    return pairs[best], best


def _strongest_pair(
    fit: Callable[..., Any], pairs: dict[str, Worlds], *, runs: int, verbose: int = 0, seed: int | None, **words: Any
) -> str:
    if seed is not None:  # other streams than those of the counted runs, or the pair would be chosen on these
        seed += 2**62
    words |= {"confidence": 0.5}  # it ranks pairs and claims nothing: at a high confidence few runs show 0 for each
    shown: dict[str, float] = {}
    refusals: list[TargetError] = []
    for name, worlds in pairs.items():
        try:
            found = audit_function(fit, *worlds, runs=runs, seed=seed, **words)
        except TargetError as refusal:
            refusals.append(refusal)
            continue
        shown[name] = found.epsilon if found.mu is None else found.mu
        if verbose:
            print(f"pilot: {name}: ε >= {found.epsilon:.3g}", file=sys.stderr, flush=True)
    if not shown:
        raise refusals[0]
    return max(shown, key=lambda name: shown[name])


class _EstimatorFit:
    """fit(X, y, rng) of an estimator: what a new one released."""

    def __init__(self, estimator: Any, released: Callable[[Any], Any] | None) -> None:
        self._source, self._released = estimator, released
        first, second = self.make(0), self.make(0)
        if not callable(getattr(first, "fit", None)):
            raise TargetError(
                f"{type(first).__name__} has no fit(X, y); pass an estimator, or a function that returns one"
            )
        if first is second:
            raise TargetError(
                "the function returned the same estimator twice, which keeps state between runs: let it make a new one"
            )
        made = getattr(first, "__dict__", {})
        fitted = [name for name in made if _is_fitted_name(name) and made[name] is not None]  # None: declared, not set
        if fitted:
            raise TargetError(f"the function returned a fitted estimator (it has {fitted[0]}): let it make a new one")
        self.__name__ = self.__qualname__ = type(first).__name__
        self.__module__ = type(first).__module__
        # By which a folder of saved runs tells settings apart.
        self.__code__ = getattr(estimator, "__code__", repr(first))

    def make(self, seed: int) -> Any:
        """A new unfitted estimator."""
        source = self._source
        if hasattr(source, "get_params") and not inspect.isclass(source):
            from sklearn.base import clone

            made = clone(source)
            settings = made.get_params()
            seeds = [name for name in settings if name == "random_state" or name.endswith("__random_state")]
            return made.set_params(**dict.fromkeys(seeds, seed))
        if not callable(source):
            raise TargetError(f"{type(source).__name__} is no estimator: it has no get_params(), and cannot be called")
        return source(seed) if _required(source) else source()

    def __call__(self, X: Any, y: Any, rng: np.random.Generator) -> FloatArray:
        made = self.make(int(rng.integers(2**31 - 1)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # tiny data sets are what audits are made on
            found = made.fit(X, y)
        made = made if found is None else found
        return _numbers(made) if self._released is None else np.asarray(self._released(made), dtype=float)


def _required(function: Callable[..., Any]) -> int:
    """Parameters without a default."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return sum(one.kind in kinds and one.default is inspect.Parameter.empty for one in parameters)


def _is_fitted_name(name: str) -> bool:
    return name.endswith("_") and not name.startswith("_")


def _numbers(model: Any) -> FloatArray:
    """All public fitted attributes that are numbers, by name."""
    parts: list[FloatArray] = []
    for name in sorted(filter(_is_fitted_name, vars(model))):
        values = np.asarray(vars(model)[name]) if _is_numeric(vars(model)[name]) else np.zeros(0)
        parts.append(np.ravel(values).astype(float))
    if not sum(part.size for part in parts):
        raise TargetError(
            f"{type(model).__name__} has no fitted attributes that are numbers; pass released=, which returns the "
            "numbers that would be published"
        )
    return np.concatenate(parts)


def _is_numeric(value: Any) -> bool:
    if isinstance(value, (bool, int, float, np.number, np.ndarray)):
        return np.asarray(value).dtype.kind in "biuf"
    return isinstance(value, Sequence) and not isinstance(value, str) and all(map(_is_numeric, value)) and bool(value)


def _task_of(estimator: Any) -> str:
    from sklearn.base import is_classifier, is_regressor

    kind = getattr(estimator, "_estimator_type", None)  # estimators written for older versions of scikit-learn
    for task, name, check in (
        ("classification", "classifier", is_classifier),
        ("regression", "regressor", is_regressor),
    ):
        try:
            if kind == name or check(estimator):
                return task
        except AttributeError:  # no scikit-learn estimator
            continue
    raise TargetError(f"{type(estimator).__name__} does not say what it does: pass task= or a pair")
