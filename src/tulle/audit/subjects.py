"""What can be audited: a mechanism, a model of tulle, and any function of your own."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tulle.audit.attacks import counted_verdict, strongest_verdict
from tulle.audit.evidence import best_possible, epsilon_lower_bound
from tulle.audit.neighbours import Pair, worst_case_pairs
from tulle.audit.result import AuditResult, attack_curve
from tulle.audit.runner import Runs, Schedule, collect
from tulle.curator import Curator, Witness
from tulle.events import FloatArray
from tulle.fitting import FitRequest, run_fit
from tulle.losses import resolve_loss
from tulle.mechanisms import Gaussian, Mechanism, Sensitivity, TopK, rounding_grid
from tulle.rows import Rows

TwoScores = Callable[[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]


def _audit(
    subject: Runs,
    schedule: Schedule,
    what: str,
    *,
    delta: float,
    confidence: float,
    claimed: float | None,
    known: tuple[TwoScores, float] | None = None,
) -> AuditResult:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie strictly between 0 and 1, got {confidence!r}")
    if not 0 <= delta < 1:
        raise ValueError(f"delta must lie in [0, 1), got {delta!r}")
    if schedule.runs < 8:
        raise ValueError(f"runs must be at least 8, got {schedule.runs!r}: half of them choose the attack")
    start = time.monotonic()
    first, second = collect(subject, schedule, what)
    if known is None:
        verdict = strongest_verdict(first, second, delta, confidence)
    else:
        scores, threshold = known
        verdict = counted_verdict("likelihood ratio", *scores(first, second), threshold, delta, confidence)
    false_rates, hit_rates = attack_curve(verdict.scores, verdict.other)
    return AuditResult(
        epsilon=verdict.epsilon,
        delta=delta,
        confidence=confidence,
        claimed=claimed,
        attack=verdict.attack,
        pair=what,
        runs=min(verdict.runs, schedule.runs),
        best_possible=best_possible(verdict.runs, delta, confidence),
        seconds=time.monotonic() - start,
        false_rates=false_rates,
        hit_rates=hit_rates,
    )


# --- mechanisms ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _MechanismRuns:
    """Draws of a mechanism on answers that are one sensitivity apart, many at a time."""

    mechanism: Mechanism
    items: int = 20

    def __call__(self, world: int, count: int, generator: np.random.Generator) -> FloatArray:
        unit = Sensitivity(l1=1.0, l2=1.0, linf=1.0)
        if isinstance(self.mechanism, TopK):
            # Every score may move by one: the first item gains, all others lose. Columns are independent draws.
            scores = np.zeros((self.items, count))
            if world == 0:
                scores[0], scores[1:] = 1.0, -1.0
            chosen = replace(self.mechanism, columns=count).release(scores, unit, generator, None)
            return np.asarray(chosen.T, dtype=float)
        # One coordinate per draw: noise is independent over coordinates.
        exact = np.full((count, 1), 1.0 if world == 0 else 0.0)
        return np.asarray(self.mechanism.release(exact, unit, generator, None))


def _first_item(first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray]:
    return first[:, 0], second[:, 0]


def _both_tails(first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Symmetric noise: mirrored at 1/2 the second world is the first, so every draw is evidence twice.

    A sum of independent counts with different rates is no more spread than a binomial of the mean rate (Hoeffding
    1956), so Clopper-Pearson holds for the pooled counts; the two inequalities add up to one for the mean rates.
    """
    return np.concatenate([first[:, 0], 1 - second[:, 0]]), np.concatenate([second[:, 0], 1 - first[:, 0]])


def _best_threshold(mechanism: Mechanism, runs: int, delta: float, confidence: float) -> float:
    """The threshold on the output that will prove most, if the mechanism's law is the one it claims.

    Should the law be another, the threshold is a worse one, and the bound is still valid.
    """
    from scipy.stats import laplace, norm

    if isinstance(mechanism, TopK):
        return 0.5
    law = norm if isinstance(mechanism, Gaussian) else laplace
    scale = mechanism.noise.value
    # Between the values of the grid that outputs are rounded to.
    grid = rounding_grid(scale)
    thresholds = (np.arange(-400, 400) + 0.5) * grid
    hits, false_hits = (np.round(runs * law.sf(thresholds - mean, scale=scale)) for mean in (1.0, 0.0))
    bounds = epsilon_lower_bound(hits, false_hits, runs, delta, confidence)
    return float(thresholds[np.argmax(bounds)])


def audit_mechanism(
    mechanism: Mechanism,
    *,
    delta: float,
    claimed: float | None = None,
    runs: int = 1_000_000,
    confidence: float = 0.95,
    seed: int | None = None,
    n_jobs: int = 1,
    verbose: int = 0,
) -> AuditResult:
    """Audit one use of a mechanism on answers that are one sensitivity apart.

    Parameters
    ----------
    mechanism : Mechanism
        Gaussian, Laplace or TopK, with its noise.
    delta : float
        In [0, 1).
    claimed : float or None, default=None
        The epsilon that is claimed at `delta`.
    runs : int, default=1_000_000
        Draws in each world.
    confidence : float, default=0.95
        In (0, 1).
    seed : int or None, default=None
        For a result that can be repeated.
    n_jobs : int, default=1
        Processes.
    verbose : int, default=0
        1 shows progress.

    Returns
    -------
    AuditResult
    """
    # The likelihood ratio increases with the output: additive noise with a log-concave density, or the choice itself.
    schedule = Schedule(runs, min(runs, 100_000), seed, n_jobs, verbose=verbose)
    what = f"{mechanism.label}, answers one sensitivity apart"
    threshold = _best_threshold(mechanism, runs if isinstance(mechanism, TopK) else 2 * runs, delta, confidence)
    return _audit(
        _MechanismRuns(mechanism),
        schedule,
        what,
        delta=delta,
        confidence=confidence,
        claimed=claimed,
        known=(_first_item if isinstance(mechanism, TopK) else _both_tails, threshold),
    )


# --- your own function -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _FunctionRuns:
    fit: Callable[[Any, Any, np.random.Generator], Any]
    worlds: tuple[tuple[Any, Any], tuple[Any, Any]]

    def __call__(self, world: int, count: int, generator: np.random.Generator) -> FloatArray:
        X, y = self.worlds[world]
        return np.array([np.ravel(np.asarray(self.fit(X, y, generator), dtype=float)) for _ in range(count)])


def audit_function(
    fit: Callable[[Any, Any, np.random.Generator], Any],
    first: tuple[Any, Any],
    second: tuple[Any, Any],
    *,
    delta: float,
    claimed: float | None = None,
    runs: int = 2_000,
    confidence: float = 0.95,
    max_differing_rows: int = 1,
    seed: int | None = None,
    n_jobs: int = 1,
    seconds: float | None = None,
    folder: str | os.PathLike[str] | None = None,
    verbose: int = 0,
) -> AuditResult:
    """Audit any function on two neighbouring data sets.

    Parameters
    ----------
    fit : callable
        fit(X, y, rng) -> array (or number): everything that would be published, always of the same size.
    first, second : tuple (X, y)
        Two data sets of the same shape that differ in at most `max_differing_rows` rows.
    delta : float
        In [0, 1).
    claimed : float or None, default=None
        The epsilon that is claimed at `delta`.
    runs : int, default=2000
        Runs on each data set, at least 8; half of them choose the attack.
    confidence : float, default=0.95
        In (0, 1).
    max_differing_rows : int, default=1
        What counts as neighbouring.
    seed, n_jobs, seconds, folder, verbose
        How the runs are made: a seed to repeat them, processes, a time limit, a folder to resume from, progress.

    Returns
    -------
    AuditResult
    """
    worlds = tuple((np.asarray(X), np.asarray(y)) for X, y in (first, second))
    (X, y), (X_other, y_other) = worlds
    if X.shape != X_other.shape or y.shape != y_other.shape or len(X) != len(y):
        raise ValueError(
            f"the two data sets differ in shape: {X.shape}, {y.shape} and {X_other.shape}, {y_other.shape}"
        )
    differing = int(np.sum(np.any((X_other != X).reshape(len(X), -1), axis=1) | (y != y_other)))
    if differing > max_differing_rows:
        raise ValueError(
            f"the data sets differ in {differing} rows and are no neighbours; at most {max_differing_rows} may"
        )
    schedule = Schedule(runs, max(1, min(250, runs // 8)), seed, n_jobs, seconds, folder, verbose)
    what = f"{getattr(fit, '__name__', 'fit')} on two data sets that differ in {differing} row(s)"
    return _audit(
        _FunctionRuns(fit, (worlds[0], worlds[1])), schedule, what, delta=delta, confidence=confidence, claimed=claimed
    )


# --- models of tulle -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _ModelRuns:
    """Fits of a model; what was released is every answer on the bill, not the last weights alone."""

    request: FitRequest
    pair: Pair

    def __call__(self, world: int, count: int, generator: np.random.Generator) -> FloatArray:
        X, targets = self.pair.world(world)
        if not self.request.wanted:
            return self._runs_of_one_plan(X, targets, count, generator)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # tiny data sets with any delta are what audits are made on
            return np.array([self._whole_fit(X, targets, int(generator.integers(2**63))) for _ in range(count)])

    def _runs_of_one_plan(
        self, X: FloatArray, targets: FloatArray, count: int, generator: np.random.Generator
    ) -> FloatArray:
        """Declared bounds: plan and clip once, then let the method ask its questions again and again."""
        known = self.request.bounds.known(X.shape[1])
        public = self.request.public(X.shape, known)
        plan, rows = self.request.plan(public), Rows(X, targets)
        known.clip(rows, self.request.loss)
        released = []
        for _ in range(count):
            answers: list[FloatArray] = []
            curator = Curator(rows, public, plan, generator, _witness(answers))
            weights = self.request.method.run(curator.ask, public)
            curator.settle()
            released.append(np.concatenate([*answers, np.ravel(weights)]))
        return np.array(released)

    def _whole_fit(self, X: FloatArray, targets: FloatArray, seed: int) -> FloatArray:
        """Estimated bounds: the number of answers varies, what comes first and last does not."""
        answers: list[FloatArray] = []
        fitted = run_fit(replace(self.request, seed=seed), X, targets, witness=_witness(answers))
        return np.concatenate([*answers[: len(self.request.wanted)], np.ravel(fitted.weights)])


def _witness(answers: list[FloatArray]) -> Witness:
    return lambda name, answer: answers.append(np.ravel(np.asarray(answer, dtype=float)))


def audit_model(
    model: Any,
    *,
    n_rows: int = 6,
    n_features: int = 2,
    claimed: float | None = None,
    runs: int = 20_000,
    pilot_runs: int = 1_000,
    confidence: float = 0.95,
    pairs: Sequence[Pair] | None = None,
    seed: int | None = None,
    n_jobs: int = 1,
    seconds: float | None = None,
    folder: str | os.PathLike[str] | None = None,
    verbose: int = 0,
) -> AuditResult:
    """Audit a `SparseClassifier` or `SparseRegressor` with its method, bounds and budget, on the worst pair found.

    Parameters
    ----------
    model : estimator
        Unfitted, with a budget (epsilon not None).
    n_rows, n_features : int, default=6 and 2
        Size of the data sets that are made for the audit. Noise is scaled to sensitivities, so small ones will do.
    claimed : float or None, default=None
        None is the model's epsilon (with ``calibration="published"`` the epsilon that was asked for).
    runs : int, default=20_000
        Fits in each world; half of them choose the attack.
    pilot_runs : int, default=1000
        Fits in each world and on each candidate pair, to choose the pair; they are not counted.
    confidence : float, default=0.95
        In (0, 1).
    pairs : sequence of Pair or None, default=None
        None takes `worst_case_pairs` of the model's loss and bounds.
    seed, n_jobs, seconds, folder, verbose
        As in `audit_function`.

    Returns
    -------
    AuditResult
    """
    if model.epsilon is None:
        raise ValueError("a model without a budget (epsilon=None) promises nothing that could be audited")
    kind = "classification" if hasattr(model, "decision_function") else "regression"
    loss = resolve_loss(model.loss, kind)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        request: FitRequest = model._request(loss, n_rows)
    if pairs is None:
        pairs = worst_case_pairs(loss, request.bounds.known(n_features), n_rows, n_features)
    delta = request.delta
    batch = max(1, min(250, pilot_runs // 2))
    pilots = [
        collect(_ModelRuns(request, pair), Schedule(pilot_runs, batch, seed, n_jobs), pair.name) for pair in pairs
    ]
    strength = [strongest_verdict(first, second, delta, confidence).epsilon for first, second in pilots]
    chosen = pairs[int(np.argmax(strength))]
    # Other streams than the pilot's: what chose the pair must not be counted.
    fresh = None if seed is None else seed + 1
    schedule = Schedule(runs, 250, fresh, n_jobs, seconds, folder, verbose)
    return _audit(
        _ModelRuns(request, chosen),
        schedule,
        f"{type(model).__name__}, {chosen.name}",
        delta=delta,
        confidence=confidence,
        claimed=model.epsilon if claimed is None else claimed,
    )
