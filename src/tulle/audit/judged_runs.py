"""From a subject to a result: run it in two worlds, attack what it released, and judge the counts."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from tulle.audit.attacks import counted_verdict, strongest_verdict
from tulle.audit.judges import ANY_LAW, GaussianCurve, Judge
from tulle.audit.result import AuditResult, attack_curve
from tulle.audit.runner import Schedule, Subject, collect
from tulle.trusted.events import FloatArray
from tulle.trusted.gaussian import gaussian_epsilon

TwoScores = Callable[[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]


def judge_runs(
    subject: Subject,
    schedule: Schedule,
    what: str,
    *,
    delta: float,
    confidence: float,
    claimed: float | None,
    judge: Judge = ANY_LAW,
    known: tuple[TwoScores, float] | None = None,
) -> AuditResult:
    """Make the runs and judge them. `claimed` is an epsilon; the Gaussian judge has its own claim."""
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie strictly between 0 and 1, got {confidence!r}")
    if not 0 <= delta < 1:
        raise ValueError(f"delta must lie in [0, 1), got {delta!r}")
    start = time.monotonic()
    look = "" if judge is ANY_LAW else f", judge {judge.name}"
    first, second = _finite(*collect(subject, schedule, what, look))
    if len(first) < 8:
        raise ValueError(f"an audit needs at least 8 runs on each data set, got {len(first)}; raise runs or seconds")
    if known is None:
        verdict = strongest_verdict(first, second, delta, confidence, judge)
    else:
        scores, threshold = known
        verdict = counted_verdict("likelihood ratio", *scores(first, second), threshold, delta, confidence, judge)
    mu = claimed_mu = epsilon_any = None
    if isinstance(judge, GaussianCurve):
        mu, claimed_mu, claimed = max(verdict.bound, 0.0), judge.claimed_mu, gaussian_epsilon(judge.claimed_mu, delta)
        # The same runs, with an attack and a threshold that were chosen for this judge. Each of the two bounds has the
        # stated confidence; the claim is judged by the first alone.
        epsilon_any = strongest_verdict(first, second, delta, confidence).epsilon
    false_rates, hit_rates = attack_curve(verdict.scores, verdict.other)
    most = float(judge.bound(verdict.runs, 0, verdict.runs, delta, confidence))
    return AuditResult(
        epsilon=verdict.epsilon,
        delta=delta,
        confidence=confidence,
        claimed=claimed,
        attack=verdict.attack,
        pair=what,
        runs=min(verdict.runs, schedule.runs),
        best_possible=judge.epsilon(most, delta),
        seconds=time.monotonic() - start,
        judge=judge.name,
        mu=mu,
        claimed_mu=claimed_mu,
        epsilon_any=epsilon_any,
        false_rates=false_rates,
        hit_rates=hit_rates,
    )


def _finite(first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The released values, with extra columns that mark numbers that are not finite: they can be the leak."""
    finite = [np.isfinite(world) for world in (first, second)]
    if all(kept.all() for kept in finite):
        return first, second
    cleaned = [np.hstack([np.where(kept, world, 0.0), ~kept]) for world, kept in zip((first, second), finite)]
    return cleaned[0], cleaned[1]
