"""What can be audited: a mechanism, a model of tulle, and any function of your own."""

from __future__ import annotations

import math
import os
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from tulle.accounting.bounds_from_counts import epsilon_lower_bound
from tulle.accounting.mechanism_words import describe_mechanism
from tulle.audit.attacks import strongest_verdict
from tulle.audit.fingerprints import code_text, digest
from tulle.audit.first_runs import check_first_runs, run_once
from tulle.audit.judged_runs import judge_runs
from tulle.audit.judges import Judge, choose_judge, judge_of_model
from tulle.audit.likelihood import KnownWorlds
from tulle.audit.neighbours import Pair, differing_rows, worst_case_pairs
from tulle.audit.own_ledger import AuditLedger, run_plan
from tulle.audit.result import AuditResult
from tulle.audit.runner import Schedule, collect, different_sizes
from tulle.estimators.progress import Witness
from tulle.estimators.request import FitRequest, clip_and_plan, run_fit
from tulle.fast.install import install
from tulle.methods.loss_functions import resolve_loss
from tulle.trusted.events import FloatArray
from tulle.trusted.mechanisms import Gaussian, Mechanism, Sensitivity, TopK
from tulle.trusted.rows import Rows

install()


# --- mechanisms ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _MechanismRuns:
    """Draws of a mechanism on answers that are one sensitivity apart, many at a time."""

    mechanism: Mechanism
    items: int = 20

    def fingerprint(self) -> str:
        return repr(self)

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
    thresholds = (np.arange(-400, 400) + 0.5) * scale / 8
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
    if not 0 < mechanism.noise.value < math.inf:
        raise ValueError(f"only a mechanism with finite noise > 0 can be audited, got {mechanism!r}")
    # The likelihood ratio increases with the output: additive noise with a log-concave density, or the choice itself.
    schedule = Schedule(runs, min(runs, 100_000), seed, n_jobs, verbose=verbose)
    what = f"{describe_mechanism(mechanism)}, answers one sensitivity apart"
    threshold = _best_threshold(mechanism, runs if isinstance(mechanism, TopK) else 2 * runs, delta, confidence)
    return judge_runs(
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

    def fingerprint(self) -> str:
        name = (getattr(self.fit, "__module__", ""), getattr(self.fit, "__qualname__", type(self.fit).__qualname__))
        return digest(repr(name), code_text(getattr(self.fit, "__code__", None)), *sum(self.worlds, ()))

    def __call__(self, world: int, count: int, generator: np.random.Generator) -> FloatArray:
        X, y = self.worlds[world]
        released = [run_once(self.fit, (X, y), generator) for _ in range(count)]
        widths = sorted({len(answer) for answer in released})
        if len(widths) > 1:
            raise different_sizes(widths)
        return np.array(released)


def function_runs(
    fit: Callable[[Any, Any, np.random.Generator], Any],
    first: tuple[Any, Any],
    second: tuple[Any, Any],
    max_differing_rows: int,
) -> tuple[_FunctionRuns, str]:
    """The runs of a function and their name; an error where the data sets are not neighbours."""
    differing = len(differing_rows(first, second))
    if differing > max_differing_rows:
        raise ValueError(
            f"the data sets differ in {differing} rows and are not neighbours; at most {max_differing_rows} may"
        )
    what = f"{getattr(fit, '__name__', 'fit')} on two data sets that differ in {differing} row(s)"
    return _FunctionRuns(fit, (tuple(first), tuple(second))), what


def audit_function(
    fit: Callable[[Any, Any, np.random.Generator], Any],
    first: tuple[Any, Any],
    second: tuple[Any, Any],
    *,
    delta: float,
    claimed: float | None = None,
    judge: str = "any",
    claimed_mu: float | None = None,
    claimed_range: float | None = None,
    claimed_curve: Any = None,
    runs: int = 2_000,
    splits: int | None = None,
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
        fit(X, y, rng) -> array (or number): everything that would be published, always of the same size. A few runs
        that are not counted raise `TargetError` where it fails, has no noise, changes its rows or keeps state.
    first, second : tuple (X, y)
        Two data sets of the same shape that differ in at most `max_differing_rows` rows.
    delta : float
        In [0, 1).
    claimed : float or None, default=None
        The epsilon that is claimed at `delta`.
    judge : {"any", "gaussian", "bounded_range", "curve"}, default="any"
        "any" assumes nothing and tests `claimed`. The others test a claim of mu-GDP, of a bounded range, and of a whole
        trade-off curve, and are stronger for it. Choose before the runs.
    claimed_mu : float or None, default=None
        For judge="gaussian", which tests nothing else, and "curve": the mu for which the function is claimed to be
        mu-GDP.
    claimed_range : float or None, default=None
        For judge="bounded_range", which tests nothing else, and "curve": the length of the interval that is claimed for
        the log-ratios of all outcomes.
    claimed_curve : callable, list of (epsilon, delta) or None, default=None
        For judge="curve": the claimed trade-off curve, a function from the type I error to the least type II error, for
        both orders of the data sets; or pairs for all of which (epsilon, delta)-DP is claimed.
    runs : int, default=2000
        Runs on each data set, at least 8.
    splits : int or None, default=None
        1: half of the runs choose the attack, the others are counted. 2 or more: each of so many parts of the runs is
        counted with an attack chosen on the others, at a confidence that is corrected for the number of parts. None is
        1 for judge "any" and 2 for the others.
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
    chosen = choose_judge(
        judge,
        delta=delta,
        claimed=claimed,
        claimed_mu=claimed_mu,
        claimed_range=claimed_range,
        claimed_curve=claimed_curve,
    )
    subject, what = function_runs(fit, first, second, max_differing_rows)
    schedule = Schedule(runs, max(1, min(250, runs // 8)), seed, n_jobs, seconds, folder, verbose)
    schedule = check_first_runs(fit, subject.worlds, schedule)
    return judge_runs(
        subject, schedule, what, delta=delta, confidence=confidence, claimed=claimed, judge=chosen, splits=splits
    )


# --- models of tulle -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _ModelRuns:
    """Fits of a model; what was released is every answer on the bill, not the last weights alone."""

    request: FitRequest
    pair: Pair

    def fingerprint(self) -> str:
        setting = f"{replace(self.request, seed=None)!r}, with likelihood ratios"
        return digest(setting, *self.pair.world(0), *self.pair.world(1))

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
        """Declared bounds: clip and plan once, then let the method ask its questions again and again."""
        rows = Rows(X, targets)
        planned = clip_and_plan(self.request, rows, X.shape, {})
        public = planned.public
        known = KnownWorlds(planned, self._clipped_worlds())
        released = []
        for _ in range(count):
            answers: list[FloatArray] = []
            ratios: list[float] = []
            weights = run_plan(planned, rows, generator, _witness(answers), partial(known.watch, ratios=ratios))
            # A score that the grid rounds to 0 leaves its feature out, so answers of one plan vary in length.
            k = public.n_parameters
            width = max(k * public.loss.n_outputs, (k + 1) * (k + 2) // 2)
            answers = [np.pad(answer, (0, max(0, width - len(answer)))) for answer in answers]
            released.append(np.concatenate([[sum(ratios)], *answers, np.ravel(weights)]))
        return np.array(released)

    def _clipped_worlds(self) -> tuple[Rows, Rows]:
        """Both data sets, within the declared bounds."""
        worlds = []
        for index in (0, 1):
            X, targets = self.pair.world(index)
            rows = Rows(X.copy(), targets.copy())
            clip_and_plan(self.request, rows, X.shape, {})
            worlds.append(rows)
        return worlds[0], worlds[1]

    def _whole_fit(self, X: FloatArray, targets: FloatArray, seed: int) -> FloatArray:
        """Estimated bounds: the number of answers varies, what comes first and last does not."""
        answers: list[FloatArray] = []
        fitted = run_fit(
            replace(self.request, seed=seed), X, targets, witness=_witness(answers), ledgers=(AuditLedger(),)
        )
        weights = fitted.weights if fitted.teacher is None else fitted.teacher
        return np.concatenate([*answers[: len(self.request.wanted)], np.ravel(weights)])


def _first_number(first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The log-likelihood ratio of all answers."""
    return first[:, 0], second[:, 0]


def _witness(answers: list[FloatArray]) -> Witness:
    return lambda name, answer: answers.append(np.ravel(np.asarray(answer, dtype=float)))


def _strongest_pair(
    request: FitRequest, judge: Judge, pairs: Sequence[Pair], runs: int, confidence: float, n_jobs: int, verbose: int
) -> Pair:
    """The pair on which a short audit proves most. Its runs are not counted.

    Its seed is fixed, so that an audit that is resumed chooses the same pair again, and its streams are others than
    those of counted runs under any seed.
    """
    strength = []
    for number, pair in enumerate(pairs):
        subject = _ModelRuns(request, pair)
        schedule = Schedule(runs, max(1, min(250, runs // 2)), 0, n_jobs, stream=(1,))
        if verbose:
            print(f"pilot {number + 1}/{len(pairs)}: {pair.name}", file=sys.stderr, flush=True)
        released = collect(subject, schedule, pair.name)
        strength.append(strongest_verdict(*released, request.delta, confidence, judge.pilot()).bound)
    return pairs[int(np.argmax(strength))]


def audit_model(
    model: Any,
    *,
    n_rows: int = 6,
    n_features: int = 2,
    claimed: float | None = None,
    judge: str = "any",
    claimed_mu: float | None = None,
    claimed_range: float | None = None,
    claimed_curve: Any = None,
    runs: int = 20_000,
    splits: int | None = None,
    attack: Literal["chosen", "likelihood_ratio"] = "chosen",
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
        None is the model's epsilon (with ``calibration="published"`` the epsilon that was asked for), or one that its
        rho implies at its delta.
    judge : {"any", "gaussian", "bounded_range", "curve"}, default="any"
        As in `audit_function`.
    claimed_mu, claimed_range, claimed_curve
        As in `audit_function`. All None: with judge="gaussian" or "curve" the mu of the model's plan, with
        judge="bounded_range" its range, and an error where the plan has none.
    runs : int, default=20_000
        Fits in each world.
    splits : int or None, default=None
        As in `audit_function`.
    attack : {"chosen", "likelihood_ratio"}, default="chosen"
        "chosen": half of the runs choose among attacks on all answers on the bill, the weights and, where bounds are
        declared, the likelihood ratio of all answers. "likelihood_ratio": the event is that this ratio is at least 1,
        and all runs are counted; for judges "gaussian" and "bounded_range", declared bounds, and methods that do not
        divide rows. Stronger where the noise is what the plan says, blind to leaks that pass the answers by.
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
        raise ValueError("a model without a budget (epsilon=None) has no guarantee to audit")
    kind = "classification" if hasattr(model, "decision_function") else "regression"
    loss = resolve_loss(model.loss, kind)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        request: FitRequest = model._request(loss, n_rows)
    assert request.budget is not None
    if pairs is None:
        persons = request.bounds.rows_per_person
        pairs = worst_case_pairs(loss, request.bounds.known(n_features), n_rows, n_features, rows_per_person=persons)
    shape = pairs[0].X.shape
    judged_by = judge_of_model(request, (shape[0], shape[1]), judge, claimed, claimed_mu, claimed_range, claimed_curve)
    if attack not in ("chosen", "likelihood_ratio"):
        raise ValueError(f"attack must be 'chosen' or 'likelihood_ratio', got {attack!r}")
    if attack == "likelihood_ratio" and (len(judged_by.ways()) == 1 or request.wanted or splits not in (None, 1)):
        raise ValueError(
            "attack='likelihood_ratio' is for judge='gaussian' and 'bounded_range', declared bounds and splits=1"
        )
    start = time.monotonic()
    chosen = pairs[0]
    if len(pairs) > 1:
        chosen = _strongest_pair(request, judged_by, pairs, pilot_runs, confidence, n_jobs, verbose)
    left = None if seconds is None else max(0.0, seconds - (time.monotonic() - start))
    schedule = Schedule(runs, 250, seed, n_jobs, left, folder, verbose)
    return judge_runs(
        _ModelRuns(request, chosen),
        schedule,
        f"{type(model).__name__}, {chosen.name}",
        delta=request.delta,
        confidence=confidence,
        claimed=request.budget.epsilon if claimed is None else claimed,
        judge=judged_by,
        splits=splits,
        known=(_first_number, 0.0) if attack == "likelihood_ratio" else None,
    )
