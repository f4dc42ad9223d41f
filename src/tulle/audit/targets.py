"""Audits of models of tulle and of any function of your own."""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from tulle.audit.attacks import strongest_verdict
from tulle.audit.fingerprints import digest, function_text
from tulle.audit.first_runs import check_first_runs, run_once
from tulle.audit.judged_runs import TwoScores, judge_runs
from tulle.audit.judges import BoundedRange, GaussianCurve, Judge, choose_judge, judge_of_model
from tulle.audit.likelihood import KnownWorlds, WatchedRows
from tulle.audit.neighbours import Pair, differing_rows, worst_case_pairs
from tulle.audit.own_ledger import AuditLedger, run_plan
from tulle.audit.replayed_ratio import ReplayedRuns
from tulle.audit.result import AuditResult
from tulle.audit.runner import Schedule, choose_once, collect, different_sizes, time_left
from tulle.estimators.progress import Witness
from tulle.estimators.request import FitRequest, clip_and_plan, run_fit
from tulle.fast.install import install
from tulle.methods.loss_functions import resolve_loss
from tulle.trusted.events import FloatArray
from tulle.trusted.plan import PlanError
from tulle.trusted.randomness import keyed_generator
from tulle.trusted.rows import Rows

install()

Attack = Literal["chosen", "likelihood_ratio"]


# --- your own function -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _FunctionRuns:
    fit: Callable[[Any, Any, np.random.Generator], Any]
    worlds: tuple[tuple[Any, Any], tuple[Any, Any]]

    def fingerprint(self) -> str:
        return digest(*function_text(self.fit), *sum(self.worlds, ()))

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
    attack: Attack = "chosen",
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
    attack : {"chosen", "likelihood_ratio"}, default="chosen"
        "chosen": half of the runs choose among attacks on what `fit` returns. "likelihood_ratio": for functions whose
        noise is all from mechanisms of tulle, such as fits, pipelines and the steps of a client. Each run is played
        with the same answers on the other data set, which gives the likelihood ratio of all answers; the event is that
        it is at least 1, and all runs are counted. For judges "gaussian" and "bounded_range". Not for random batches,
        which are secret. Blind to leaks that pass the answers by, in what `fit` returns too.
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
    known = known_event(attack, chosen, splits)
    subject, what = function_runs(fit, first, second, max_differing_rows)
    schedule = Schedule(runs, max(1, min(250, runs // 8)), seed, n_jobs, seconds, folder, verbose)
    schedule = check_first_runs(fit, subject.worlds, schedule)
    return judge_runs(
        subject if known is None else ReplayedRuns(fit, subject.worlds),
        schedule,
        what,
        delta=delta,
        confidence=confidence,
        claimed=claimed,
        judge=chosen,
        splits=splits,
        known=known,
        paired=known is not None,
    )


def known_event(attack: Attack, judge: Judge, splits: int | None) -> tuple[TwoScores, float] | None:
    """The number that is attacked and its threshold, where nothing is chosen; an error where that cannot be counted."""
    if attack not in ("chosen", "likelihood_ratio"):
        raise ValueError(f"attack must be 'chosen' or 'likelihood_ratio', got {attack!r}")
    if attack == "chosen":
        return None
    if not isinstance(judge, GaussianCurve | BoundedRange) or splits not in (None, 1):
        raise ValueError("attack='likelihood_ratio' is for judge='gaussian' and 'bounded_range', and splits=1")
    return _first_number, 0.0


# --- models of tulle -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _ModelRuns:
    """Fits of a model; what was released is every answer on the bill, not the last weights alone."""

    request: FitRequest
    pair: Pair
    paired: bool = False  # whether each run has a source of random numbers of its own

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
        rows = WatchedRows(X, targets)
        planned = clip_and_plan(self.request, rows, X.shape, {})
        public = planned.public
        known = KnownWorlds(planned, self._clipped_worlds(), self.pair.kinds())
        released = []
        for _ in range(count):
            answers: list[FloatArray] = []
            ratios: list[float] = []
            source = keyed_generator(int(generator.integers(2**63))) if self.paired else generator
            weights = run_plan(
                planned, rows, source, _witness(answers), partial(known.watch, ratios=ratios, asked=rows)
            )
            # A score that the grid rounds to 0 leaves its feature out, so answers of one plan vary in length.
            k = public.n_parameters
            width = max(k * public.loss.n_outputs, (k + 1) * (k + 2) // 2)
            answers = [np.pad(answer, (0, max(0, width - len(answer)))) for answer in answers]
            released.append(np.concatenate([[sum(ratios)], *answers, np.ravel(weights)]))
        return np.array(released)

    def shows_ratio(self) -> bool:
        """Whether the likelihood ratio can differ from 1."""
        X, targets = self.pair.world(0)
        planned = clip_and_plan(self.request, Rows(X.copy(), targets.copy()), X.shape, {})
        divided = planned.method.split(planned.public) is not None
        return not divided and KnownWorlds(planned, self._clipped_worlds(), self.pair.kinds()).has_densities

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


def check_model(model: Any) -> None:
    """Raise for a model that is no estimator of tulle or has no budget."""
    if not hasattr(model, "_request"):
        raise ValueError(
            f"model must be an estimator of tulle, got {type(model).__name__}; use audit_estimator for others"
        )
    if model.epsilon is None:
        raise ValueError("a model without a budget (epsilon=None) has no guarantee to audit")


@dataclass(frozen=True, eq=False)
class ModelAudit:
    """The claim of a model, and the pairs that it can be audited on.

    Attributes
    ----------
    name : str
    request : FitRequest
    pairs : sequence of Pair
    judge : Judge
    epsilon : float
        The claimed one at the request's delta.
    """

    name: str
    request: FitRequest
    pairs: Sequence[Pair]
    judge: Judge
    epsilon: float

    @classmethod
    def of(
        cls, model: Any, n_rows: int, n_features: int, pairs: Sequence[Pair] | None, judge: str, **claim: Any
    ) -> ModelAudit:
        """An error where the model claims nothing that the judge tests. None makes the pairs."""
        check_model(model)
        kind = "classification" if hasattr(model, "decision_function") else "regression"
        loss = resolve_loss(model.loss, kind)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            request: FitRequest = model._request(loss, n_rows)
        assert request.budget is not None
        if pairs is None:
            persons = request.bounds.rows_per_person
            known = request.bounds.known(n_features)
            pairs = worst_case_pairs(loss, known, n_rows, n_features, rows_per_person=persons)
        shape = (pairs[0].X.shape[0], pairs[0].X.shape[1]) if pairs else (n_rows, n_features)
        judged_by = judge_of_model(request, shape, judge, **claim)
        epsilon = request.budget.epsilon if claim["claimed"] is None else claim["claimed"]
        return cls(type(model).__name__, request, pairs, judged_by, epsilon)

    def on_worst_pair(
        self,
        runs: int,
        confidence: float,
        *,
        n_jobs: int,
        folder: str | os.PathLike[str] | None,
        verbose: int,
        seconds: float | None,
    ) -> tuple[_ModelRuns, str, float | None]:
        """Fits on the pair that a pilot of so many runs chose, their name, and the seconds that it left."""
        start = time.monotonic()
        pairs = {pair.name: pair for pair in self.pairs}
        if not pairs or len(pairs) < len(self.pairs):
            raise ValueError("pairs must be one or more pairs of data sets with different names")
        name = self.pairs[0].name
        if len(pairs) > 1:
            if not (isinstance(runs, int | np.integer) and runs >= 8):
                raise ValueError(f"pilot_runs must be a whole number >= 8, got {runs!r}")
            name = choose_once(
                folder,
                list(pairs),
                lambda: _strongest_pair(self.request, self.judge, self.pairs, runs, confidence, n_jobs, verbose).name,
            )
        return _ModelRuns(self.request, pairs[name]), f"{self.name}, {name}", time_left(seconds, start)


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
    attack: Attack = "chosen",
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
    claim = {"claimed": claimed, "claimed_mu": claimed_mu}
    claim |= {"claimed_range": claimed_range, "claimed_curve": claimed_curve}
    audit = ModelAudit.of(model, n_rows, n_features, pairs, judge, **claim)
    known = known_event(attack, audit.judge, splits)
    if known is not None and audit.request.wanted:
        raise ValueError(
            "attack='likelihood_ratio' is for declared bounds here; of estimated ones audit_function knows the ratio"
        )
    subject, what, left = audit.on_worst_pair(
        pilot_runs, confidence, n_jobs=n_jobs, folder=folder, verbose=verbose, seconds=seconds
    )
    if known is not None and not subject.shows_ratio():
        raise ValueError(
            "attack='likelihood_ratio' sees nothing of a method that divides rows, or of random batches that are too "
            "many to go through: use attack='chosen'"
        )
    return judge_runs(
        replace(subject, paired=known is not None),
        Schedule(runs, 250, seed, n_jobs, left, folder, verbose),
        what,
        delta=audit.request.delta,
        confidence=confidence,
        claimed=audit.epsilon,
        judge=audit.judge,
        splits=splits,
        known=known,
        paired=known is not None,
        plan_mu=lambda: _mu_of_model(subject),
    )


def _mu_of_model(subject: _ModelRuns) -> float | None:
    """The mu of a model's plan, which judge="gaussian" would test; None where it claims none."""
    shape = subject.pair.X.shape
    try:
        judge = judge_of_model(subject.request, (shape[0], shape[1]), "gaussian", None, None)
    except (ValueError, PlanError):
        return None
    return judge.claimed_mu if isinstance(judge, GaussianCurve) else None
