"""From a subject to a result: run it in two worlds, attack what it released, and judge the counts."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tulle.audit.attacks import counted_verdict, paired_verdict, split_confidence, strongest_verdict
from tulle.audit.claimed_curves import epsilon_of_range
from tulle.audit.judges import ANY_LAW, BoundedRange, GaussianCurve, Judge, WholeCurve
from tulle.audit.power import JUDGES_WITH_POWER, Attack, expected_power
from tulle.audit.result import KNOWN_EVENT, AuditResult, attack_curve
from tulle.audit.runner import Schedule, Subject, collect
from tulle.trusted.events import FloatArray
from tulle.trusted.gaussian import gaussian_epsilon
from tulle.trusted.plan import is_number

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
    splits: int | None = None,
    known: tuple[TwoScores, float] | None = None,
    paired: bool = False,
    plan_mu: Callable[[], float | None] | None = None,
) -> AuditResult:
    """Make the runs and judge them. `claimed` is an epsilon; other judges than "any" have their own claim. `plan_mu`
    tells what judge "gaussian" would test, for an audit that had no power. `known` is a number and its threshold, fixed
    beforehand, and all runs are counted; `paired`: in pairs, one on each data set with the same noise."""
    check_levels(confidence, delta)
    if splits is None:
        splits = judge.splits if known is None else 1
    if not (is_number(splits) and splits >= 1 and splits % 1 == 0):
        raise ValueError(f"splits must be a whole number >= 1, got {splits!r}")
    if not (isinstance(schedule.runs, int | np.integer) and schedule.runs >= 1):
        raise ValueError(f"runs must be a whole number >= 8, got {schedule.runs!r}")
    if schedule.verbose:
        _print_power(schedule.runs, delta, confidence, claimed, judge, splits, known is not None)
    if paired:
        schedule = replace(schedule, paired=True)
    start = time.monotonic()
    look = judge.look() + ("" if splits == 1 else f", {splits} parts") + (", known event" if known else "")
    first, second = _finite(*collect(subject, schedule, what, look))
    if len(first) < 8 * max(1, splits - 1):
        raise ValueError(
            f"an audit needs at least 8 runs on each data set, and 8 for each part but one of splits={splits}; got "
            f"{len(first)}; raise runs or seconds"
        )
    if known is None:
        verdict = strongest_verdict(first, second, delta, confidence, judge, splits)
    else:
        scores, threshold = known
        if paired:
            verdict = paired_verdict(KNOWN_EVENT, *scores(first, second), threshold, delta, confidence, judge)
        else:
            # The last way to count is made for a likelihood ratio at 1, which is right as often in either world.
            way = judge.ways(confidence)[-1]
            verdict = counted_verdict(KNOWN_EVENT, *scores(first, second), threshold, delta, confidence, way)
    of_claim: dict[str, Any] = {}
    if isinstance(judge, GaussianCurve):
        of_claim = {"mu": max(verdict.bound, 0.0), "claimed_mu": judge.claimed_mu}
        claimed = gaussian_epsilon(judge.claimed_mu, delta)
    elif isinstance(judge, BoundedRange):
        of_claim = {"range": max(verdict.bound, 0.0), "claimed_range": judge.claimed_range}
        claimed = epsilon_of_range(judge.claimed_range, delta)
    elif isinstance(judge, WholeCurve):
        of_claim = {"excess": verdict.bound, "claimed_curve": judge.claim.text}
        claimed = judge.claim.epsilon(delta)
    if isinstance(judge, GaussianCurve | BoundedRange):
        # The same runs, with an attack and a threshold that were chosen for this judge. Each of the two bounds has the
        # stated confidence; the claim is judged by the first alone.
        of_claim["epsilon_any"] = strongest_verdict(first, second, delta, confidence, splits=splits).epsilon
    false_rates, hit_rates = attack_curve(verdict.scores, verdict.other)
    result = AuditResult(
        epsilon=verdict.epsilon,
        delta=delta,
        confidence=confidence,
        claimed=claimed,
        attack=verdict.attack,
        pair=what,
        runs=min(verdict.runs, schedule.runs),
        best_possible=judge.most_epsilon(verdict.runs, delta, split_confidence(confidence, splits)),
        seconds=time.monotonic() - start,
        judge=judge.name,
        splits=int(splits),
        false_rates=false_rates,
        hit_rates=hit_rates,
        **of_claim,
    )
    if plan_mu is None or result.power is None or result.power.has_power:
        return result
    return replace(result, plan_mu=plan_mu())


def check_levels(confidence: float, delta: float) -> None:
    """Raise for a confidence or a delta out of range."""
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie strictly between 0 and 1, got {confidence!r}")
    if not 0 <= delta < 1:
        raise ValueError(f"delta must lie in [0, 1), got {delta!r}")


def _print_power(
    runs: int,
    delta: float,
    confidence: float,
    claimed: float | None,
    judge: Judge,
    splits: int,
    known: bool,
) -> None:
    """Before the runs: what they can show."""
    claim: dict[str, Any] = {"claimed": claimed}
    if isinstance(judge, GaussianCurve):
        claim = {"claimed_mu": judge.claimed_mu}
    elif isinstance(judge, BoundedRange):
        claim = {"claimed_range": judge.claimed_range}
    if judge.name in JUDGES_WITH_POWER and runs >= 8 * max(1, splits - 1) and None not in claim.values():
        attack: Attack = "likelihood_ratio" if known else "chosen"
        levels: dict[str, Any] = {"delta": delta, "confidence": confidence, "splits": splits}
        power = expected_power(runs, judge=judge.name, attack=attack, **levels, **claim)
        print(f"power: {power}", file=sys.stderr, flush=True)


def _finite(first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The released values, with extra columns that mark numbers that are not finite: they can be the leak."""
    finite = [np.isfinite(world) for world in (first, second)]
    if all(kept.all() for kept in finite):
        return first, second
    cleaned = [np.hstack([np.where(kept, world, 0.0), ~kept]) for world, kept in zip((first, second), finite)]
    return cleaned[0], cleaned[1]
