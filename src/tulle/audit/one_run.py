"""Audits in one run with many canaries, for fits that take minutes.

Each of m rows is one of two versions, by a fair coin of its own. One run of the fit; the attacker guesses the coins of
the r rows that it is surest of and abstains on the others. A claimed trade-off curve limits how many guesses are right:
docs/proofs/audit.md, theorem 9. The game is that of Steinke, Nasr and Jagielski (2023); that a whole curve can be
tested in it was shown by Mahloujifar, Melis and Chaudhuri (2024).
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from tulle.audit.claimed_curves import ClaimedCurve, GaussianClaim, Profile, RangeClaim
from tulle.audit.first_runs import Fit, TargetError, name_of
from tulle.audit.judged_runs import check_levels
from tulle.audit.judges import ANY_LAW, BoundedRange, GaussianCurve, Judge, WholeCurve, choose_judge
from tulle.audit.neighbours import differing_rows
from tulle.audit.one_run_power import OneRunPower, check_guesses, power_of_claim
from tulle.audit.one_run_tails import largest_refuted, tail_bound, touching_lines
from tulle.audit.result import AuditResult
from tulle.files.error_messages import describe_error
from tulle.trusted.events import FloatArray
from tulle.trusted.randomness import keyed_generator

Versions = tuple[tuple[Any, Any], tuple[Any, Any]]
Score = Callable[[Any], Any]

# The largest epsilon, mu or range that is looked for.
_LARGEST = 40.0


def one_run_p_value(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Upper bound on the probability of so many right guesses under (epsilon, delta)-DP."""
    return tail_bound(canaries, guesses, right, touching_lines(Profile(((epsilon, delta),))))


def one_run_bound(canaries: int, guesses: int, right: int, delta: float, confidence: float) -> float:
    """The epsilon that so many right guesses prove at this confidence."""
    return _bound(ANY_LAW, canaries, guesses, right, delta, confidence)


def audit_one_run(
    fit: Fit,
    first: tuple[Any, Any],
    second: tuple[Any, Any],
    score: Score,
    *,
    delta: float,
    claimed: float | None = None,
    judge: str = "any",
    claimed_mu: float | None = None,
    claimed_range: float | None = None,
    claimed_curve: Any = None,
    guesses: int | None = None,
    confidence: float = 0.95,
    seed: int | None = None,
    verbose: int = 0,
) -> AuditResult:
    """Audit a function by one run on rows whose versions were drawn by coins.

    Parameters
    ----------
    fit : callable
        fit(X, y, rng) -> what would be published.
    first, second : tuple (X, y)
        Two versions of every row, of the same shape, dense or sparse. Each row that differs is a canary.
    score : callable
        score(published) -> array with a number per row, large where the first version is likely. It may use both
        versions of all rows, and nothing else about the run.
    delta : float
        In [0, 1).
    claimed : float or None, default=None
        The epsilon that is claimed at `delta`.
    judge : {"any", "gaussian", "bounded_range", "curve"}, default="any"
        As in `audit_function`: "any" assumes nothing and tests `claimed`. Choose before the run.
    claimed_mu, claimed_range : float or None, default=None
        As in `audit_function`.
    claimed_curve : list of (epsilon, delta) or None, default=None
        For judge="curve": pairs for all of which (epsilon, delta)-DP is claimed. Functions are refused: lines that
        touch the curve must be known.
    guesses : int or None, default=None
        How many rows to guess, an even number, fixed before the run. Half of the guesses are for the first version
        (highest scores), half for the second (lowest). None: the number that `one_run_power` chooses, from the number
        of canaries and the claim alone; a third of the canaries where nothing is claimed.
    confidence : float, default=0.95
        In (0, 1).
    seed : int or None, default=None
        For a result that can be repeated.
    verbose : int, default=0
        1 prints the power before the run.

    Returns
    -------
    AuditResult
        Its `runs` is the number of canaries, and `guesses` that of the guesses. With judge="curve", `excess` is the
        part of right guesses beyond the largest that does not refute the claim.
    """
    check_levels(confidence, delta)
    chosen = choose_judge(
        judge,
        delta=delta,
        claimed=claimed,
        claimed_mu=claimed_mu,
        claimed_range=claimed_range,
        claimed_curve=claimed_curve,
    )
    return judge_one_run(
        fit,
        (first, second),
        score,
        chosen,
        delta=delta,
        claimed=claimed,
        guesses=guesses,
        confidence=confidence,
        seed=seed,
        verbose=verbose,
    )


def judge_one_run(
    fit: Fit,
    versions: Versions,
    score: Score,
    judge: Judge,
    *,
    delta: float,
    claimed: float | None,
    guesses: int | None,
    confidence: float,
    seed: int | None,
    verbose: int,
    what: str = "",
    most_guesses: int | None = None,
) -> AuditResult:
    """Make the run and judge it. `claimed` is an epsilon; other judges than "any" have their own claim. `most_guesses`
    limits the number of guesses where None is passed for it."""
    start = time.monotonic()
    rows = np.array(sorted(differing_rows(*versions)), dtype=int)  # checks the shapes, too
    canaries = len(rows)
    if canaries < 2:
        raise ValueError(f"the two versions differ in {canaries} row(s); an audit in one run needs at least 2 canaries")
    # All that is chosen is chosen here, from public facts: the coins are not drawn yet.
    plan = _plan(judge, canaries, check_guesses(guesses, canaries), delta, claimed, confidence, most_guesses)
    if verbose:
        print(f"power: {plan}", file=sys.stderr, flush=True)
    coins = keyed_generator(seed, (0,)).random(canaries) < 0.5
    scores = _scores(fit, versions, rows[~coins], score, keyed_generator(seed, (1,)))[rows]
    order = np.argsort(scores, kind="stable")
    half = plan.guesses // 2
    right = int(coins[order[-half:]].sum() + (~coins[order[:half]]).sum())
    # The epsilon of a judge of curves is the one that assumes nothing.
    measure = ANY_LAW if isinstance(judge, WholeCurve) else judge
    bound, most = (_bound(measure, canaries, plan.guesses, count, delta, confidence) for count in (right, plan.guesses))
    of_claim: dict[str, Any] = {}
    if isinstance(judge, GaussianCurve):
        of_claim = {"mu": bound, "claimed_mu": judge.claimed_mu}
    elif isinstance(judge, BoundedRange):
        of_claim = {"range": bound, "claimed_range": judge.claimed_range}
    elif isinstance(judge, WholeCurve):
        excess = (right - plan.fewest_right + 1) / plan.guesses
        of_claim = {"excess": excess, "claimed_curve": judge.claim.text}
    if isinstance(judge, GaussianCurve | BoundedRange):
        of_claim["epsilon_any"] = one_run_bound(canaries, plan.guesses, right, delta, confidence)
    return AuditResult(
        epsilon=measure.epsilon(bound, delta),
        delta=delta,
        confidence=confidence,
        claimed=claimed if judge is ANY_LAW else plan.claimed,
        attack=f"one run, {right:,} of {plan.guesses:,} guesses right",
        pair=what or f"{canaries:,} canaries, each one of two rows by a coin",
        runs=canaries,
        best_possible=measure.epsilon(most, delta),
        seconds=time.monotonic() - start,
        judge=judge.name,
        guesses=plan.guesses,
        **of_claim,
    )


def _plan(
    judge: Judge,
    canaries: int,
    guesses: int | None,
    delta: float,
    claimed: float | None,
    confidence: float,
    most_guesses: int | None,
) -> OneRunPower:
    """The number of guesses, and what they can show."""
    nothing = judge is ANY_LAW and (claimed is None or claimed == math.inf)
    if isinstance(judge, WholeCurve):
        claim, moved = judge.claim, judge.moved
    elif isinstance(judge, GaussianCurve):
        claim, moved = _claim_of(judge, judge.claimed_mu, delta), judge.moved
    elif isinstance(judge, BoundedRange):
        claim, moved = _claim_of(judge, judge.claimed_range, delta), judge.moved
    else:
        claim, moved = _claim_of(judge, 0.0 if nothing else float(claimed or 0.0), delta), 0.0
    return power_of_claim(canaries, claim, nothing, guesses, delta, confidence, moved=moved, most_guesses=most_guesses)


def _claim_of(judge: Judge, value: float, delta: float) -> ClaimedCurve:
    """The claim of so large an epsilon, mu or range."""
    if isinstance(judge, GaussianCurve):
        return GaussianClaim(value)
    return RangeClaim(value) if isinstance(judge, BoundedRange) else Profile(((value, delta),))


def _bound(judge: Judge, canaries: int, guesses: int, right: int, delta: float, confidence: float) -> float:
    """The largest epsilon, mu or range that so many right guesses refute."""
    return largest_refuted(
        canaries,
        guesses,
        right,
        1 - confidence,
        lambda value: _claim_of(judge, value, delta),
        _LARGEST,
        getattr(judge, "moved", 0.0),
    )


def _scores(
    fit: Fit, versions: Versions, of_second: npt.NDArray[np.intp], score: Score, rng: np.random.Generator
) -> FloatArray:
    """The scores of all rows after one run on the first version, with the rows `of_second` of the second."""
    (X, y), (X_other, y_other) = versions
    n_rows = np.shape(y)[0]
    taken = np.arange(n_rows)
    taken[of_second] += n_rows
    both = sp.vstack([X, X_other]).tocsr() if sp.issparse(X) else np.concatenate([np.asarray(X), np.asarray(X_other)])
    drawn = both[taken], np.concatenate([np.asarray(y), np.asarray(y_other)])[taken]
    try:
        published = fit(*drawn, rng)
    except TargetError:
        raise
    except Exception as error:
        # The message of another library may quote a row.
        raise TargetError(f"{name_of(fit)}(X, y, rng) failed: {describe_error(error)}") from error
    try:
        scores = np.asarray(score(published), dtype=float)
    except Exception as error:
        raise TargetError(
            f"score(published) must return one number per row, and failed: {describe_error(error)}"
        ) from error
    if scores.shape != (n_rows,):
        raise TargetError(
            f"score(published) must return one number per row, {n_rows} in all; it returned shape {scores.shape}"
        )
    if np.isnan(scores).any():
        raise TargetError("score(published) returned NaN: return a number for every row, 0 where nothing is known")
    return scores
