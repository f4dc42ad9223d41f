"""Judges: how the counts of an attack become a bound, and what the bound is about.

The assumption-free judge ("any") bounds the epsilon of any release at the given delta. The Gaussian judge ("gaussian")
bounds the mu of a claim of mu-GDP, the judge of selections ("bounded_range") the range of a claim of a bounded range,
and the judge of curves ("curve") tests a whole trade-off curve at many thresholds at once. Each proves more from the
same counts than "any", because it tests more: a curve limits every event, (epsilon, delta) only those that are rare.
Their epsilon is one that any true claim of that kind has to print; a release whose claim is of another kind can be
(epsilon, delta)-DP with a smaller one. Proofs: docs/proofs/audit.md.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tulle.accounting.bounds_from_counts import (
    LEAST_CONFIDENCE,
    epsilon_lower_bound,
    mu_lower_bound,
    mu_of_guess_rate,
    mu_of_right_guesses,
    paired_guess_rate,
    range_lower_bound,
    range_of_guess_rate,
    range_of_right_guesses,
    rate_bounds,
)
from tulle.accounting.mechanism_words import describe_mechanism
from tulle.audit.claimed_curves import (
    ClaimedCurve,
    GaussianClaim,
    Profile,
    RangeClaim,
    epsilon_of_range,
    moved_claim,
    read_claim,
)
from tulle.estimators.request import FitRequest
from tulle.trusted.events import BoundedRangeEvent, FloatArray
from tulle.trusted.fit import Proved
from tulle.trusted.gaussian import gaussian_epsilon
from tulle.trusted.mechanisms import price_of
from tulle.trusted.plan import Plan, PlanError, compose, is_number

JUDGES = ("any", "gaussian", "bounded_range", "curve")


class Judge(ABC):
    """Turns counts into a bound in its own measure, and that into an epsilon."""

    name: ClassVar[str]
    # Into how many parts the runs are split by default: measured, docs/audit.md.
    splits: ClassVar[int] = 1

    @abstractmethod
    def bound(
        self, hits: npt.ArrayLike, false_hits: npt.ArrayLike, runs: int, delta: float, confidence: float
    ) -> FloatArray:
        """What counts prove, wrong with probability at most 1 - confidence where the event was fixed beforehand."""

    @abstractmethod
    def epsilon(self, bound: float, delta: float) -> float:
        """The epsilon at `delta` that a bound of this judge gives; 0 where it proves nothing."""

    def count(
        self, scores: FloatArray, other: FloatArray, thresholds: FloatArray, delta: float, confidence: float
    ) -> tuple[float, float]:
        """The bound of the runs of both worlds and its epsilon, where `thresholds` were fixed before these runs.

        Most judges count one event, that of the first threshold, which looked best on other runs.
        """
        hits, false_hits = (count_above(world, thresholds[:1]) for world in (scores, other))
        bound = float(self.bound(hits, false_hits, len(scores), delta, confidence)[0])
        return bound, self.epsilon(bound, delta)

    def promise(
        self, hits: npt.ArrayLike, false_hits: npt.ArrayLike, runs: int, delta: float, confidence: float
    ) -> FloatArray:
        """How good an event looks on runs that choose: the largest is taken."""
        return self.bound(hits, false_hits, runs, delta, confidence)

    def ways(self, confidence: float) -> tuple[Judge, ...]:
        """Ways to count one event that are proved at a confidence. Other runs than those that are counted choose one,
        with the event."""
        return (self,)

    def count_pairs(
        self, scores: FloatArray, other: FloatArray, threshold: float, delta: float, confidence: float
    ) -> tuple[float, float]:
        """As `count`, of runs that are in pairs with the same noise; one event, fixed before these runs."""
        raise NotImplementedError(f"judge {self.name!r} counts no pairs")

    def pilot(self) -> Judge:
        """The judge of the short audits that choose a pair of data sets."""
        return self

    def most_epsilon(self, runs: int, delta: float, confidence: float) -> float:
        """The largest epsilon that so many counted runs could show."""
        return self.epsilon(float(self.bound(runs, 0, runs, delta, confidence)), delta)

    @abstractmethod
    def curve(self, claimed: float, delta: float) -> ClaimedCurve:
        """The claim, as a curve for bets; `claimed` is an epsilon at `delta`, for the judge that tests one."""

    def look(self) -> str:
        """How saved runs are judged, where not as usual: a folder refuses another look."""
        return f", judge {self.name}"


def right_rate_of_pairs(scores: FloatArray, other: FloatArray, threshold: float, confidence: float) -> float:
    """From below: how often a guess of the world by {score >= threshold} is right, of runs in pairs."""
    first, second = scores >= threshold, other >= threshold
    return paired_guess_rate(int(np.sum(first & ~second)), int(np.sum(second & ~first)), len(scores), confidence)


def count_above(scores: FloatArray, thresholds: FloatArray) -> FloatArray:
    """How many scores lie at or above each threshold."""
    return np.asarray(len(scores) - np.searchsorted(np.sort(scores), thresholds, side="left"))


@dataclass(frozen=True)
class AnyLaw(Judge):
    """Assumes nothing; its bound is an epsilon."""

    name = "any"

    def bound(
        self, hits: npt.ArrayLike, false_hits: npt.ArrayLike, runs: int, delta: float, confidence: float
    ) -> FloatArray:
        return epsilon_lower_bound(hits, false_hits, runs, delta, confidence)

    def epsilon(self, bound: float, delta: float) -> float:
        return bound

    def curve(self, claimed: float, delta: float) -> ClaimedCurve:
        return Profile(((claimed, delta),))

    def look(self) -> str:
        return ""


@dataclass(frozen=True)
class GaussianCurve(Judge):
    """Tests a claim of mu-GDP; its bound is a mu.

    Attributes
    ----------
    claimed_mu : float
    moved : float
        How far, in total variation, the release may lie from one that is mu-GDP: finite precision.
    guesses : bool
        Whether right guesses of both worlds are counted together, and not the event in each by itself.
    """

    claimed_mu: float
    moved: float = 0.0
    guesses: bool = False
    name = "gaussian"
    splits = 2

    def bound(
        self, hits: npt.ArrayLike, false_hits: npt.ArrayLike, runs: int, delta: float, confidence: float
    ) -> FloatArray:
        if self.guesses:
            return mu_of_right_guesses(hits, false_hits, runs, confidence, self.moved)
        return mu_lower_bound(hits, false_hits, runs, confidence, self.moved)

    def ways(self, confidence: float) -> tuple[Judge, ...]:
        return (self, replace(self, guesses=True)) if confidence >= LEAST_CONFIDENCE else (self,)

    def epsilon(self, bound: float, delta: float) -> float:
        # `gaussian_epsilon` rounds up by 1e-7, for promises; a lower bound is rounded down.
        return gaussian_epsilon(max(bound, 0.0), delta) * (1 - 3e-7)

    def count_pairs(
        self, scores: FloatArray, other: FloatArray, threshold: float, delta: float, confidence: float
    ) -> tuple[float, float]:
        bound = float(mu_of_guess_rate(right_rate_of_pairs(scores, other, threshold, confidence) - self.moved))
        return bound, self.epsilon(bound, delta)

    def curve(self, claimed: float, delta: float) -> ClaimedCurve:
        return moved_claim(GaussianClaim(self.claimed_mu), self.moved)


@dataclass(frozen=True)
class BoundedRange(Judge):
    """Tests a claim of a bounded range, as of one choice by noisy maximum; its bound is a range.

    Attributes
    ----------
    claimed_range : float
    moved, guesses
        As in `GaussianCurve`.
    """

    claimed_range: float
    moved: float = 0.0
    guesses: bool = False
    name = "bounded_range"
    splits = 2

    def ways(self, confidence: float) -> tuple[Judge, ...]:
        return (self, replace(self, guesses=True)) if confidence >= LEAST_CONFIDENCE else (self,)

    def bound(
        self, hits: npt.ArrayLike, false_hits: npt.ArrayLike, runs: int, delta: float, confidence: float
    ) -> FloatArray:
        if self.guesses:
            return range_of_right_guesses(hits, false_hits, runs, confidence, self.moved)
        return range_lower_bound(hits, false_hits, runs, confidence, self.moved)

    def epsilon(self, bound: float, delta: float) -> float:
        return epsilon_of_range(max(bound, 0.0), delta) * (1 - 1e-12)

    def count_pairs(
        self, scores: FloatArray, other: FloatArray, threshold: float, delta: float, confidence: float
    ) -> tuple[float, float]:
        bound = float(range_of_guess_rate(right_rate_of_pairs(scores, other, threshold, confidence) - self.moved))
        return bound, self.epsilon(bound, delta)

    def curve(self, claimed: float, delta: float) -> ClaimedCurve:
        return moved_claim(RangeClaim(self.claimed_range), self.moved)


@dataclass(frozen=True, eq=False)
class WholeCurve(Judge):
    """Tests a claimed trade-off curve at all thresholds at once; its bound is by how much hit rates exceed the curve.

    A bound above 0 refutes the claim. Half of the allowed failure goes to the threshold that looked best on other runs,
    the other half is divided evenly among all others, so that a violation elsewhere is seen too.

    Attributes
    ----------
    claim : ClaimedCurve
    moved : float
        How far, in total variation, the release may lie from one that keeps the claim: finite precision.
    """

    claim: ClaimedCurve
    moved: float = 0.0
    name = "curve"
    splits = 2

    def bound(
        self, hits: npt.ArrayLike, false_hits: npt.ArrayLike, runs: int, delta: float, confidence: float
    ) -> FloatArray:
        return self._excess(*rate_bounds(hits, false_hits, runs, confidence))

    def promise(
        self, hits: npt.ArrayLike, false_hits: npt.ArrayLike, runs: int, delta: float, confidence: float
    ) -> FloatArray:
        # The excess in units of its uncertainty. The excess itself would choose events that nearly always or nearly
        # never happen: they have hardly any uncertainty, and nothing to prove.
        low, high = rate_bounds(hits, false_hits, runs, confidence)
        hit, false = np.asarray(hits) / runs, np.asarray(false_hits) / runs
        seen = self._excess(hit, false)
        return np.asarray(seen / (seen - self._excess(low, high) + 1e-9))

    def pilot(self) -> Judge:
        # The largest excess of a pair that exceeds nothing says nothing; its mu says how well it is told apart.
        return GaussianCurve(0.0, self.moved)

    def epsilon(self, bound: float, delta: float) -> float:
        """The epsilon of the claim where it is exceeded: an excess has no epsilon of its own."""
        return self.claim.epsilon(delta) if bound > 0 else 0.0

    def count(
        self, scores: FloatArray, other: FloatArray, thresholds: FloatArray, delta: float, confidence: float
    ) -> tuple[float, float]:
        hits, false_hits = (count_above(world, thresholds) for world in (scores, other))
        confidences = 1 - (1 - confidence) * failure_shares(len(thresholds))
        low, high = rate_bounds(hits, false_hits, len(scores), confidences)
        with np.errstate(divide="ignore"):
            # All bounds are true together, so that the best of them may be chosen.
            epsilons = np.log(np.maximum(low - delta, 0.0)) - np.log(high)
        return float(self._excess(low, high).max()), max(float(epsilons.max()), 0.0)

    def most_epsilon(self, runs: int, delta: float, confidence: float) -> float:
        return float(epsilon_lower_bound(runs, 0, runs, delta, 1 - (1 - confidence) / 2))

    def curve(self, claimed: float, delta: float) -> ClaimedCurve:
        return moved_claim(self.claim, self.moved)

    def look(self) -> str:
        # The attack was chosen for this claim, so another claim on the same runs is another look.
        return f", judge {self.name} of {self.claim.text}"

    def _excess(self, low: FloatArray, high: FloatArray) -> FloatArray:
        """Of the event, and of its complement with the worlds exchanged: the same two bounds serve both."""
        low, high = np.maximum(low - self.moved, 0.0), np.minimum(high + self.moved, 1.0)
        ahead = low - self.claim.allowed(high)
        reversed_order = (1 - high) - self.claim.allowed(1 - low)
        return np.asarray(np.maximum(ahead, reversed_order) - 1e-12)  # more than rounding


def failure_shares(thresholds: int) -> FloatArray:
    """The part of the allowed failure that each threshold has: half for the first, the rest evenly."""
    if thresholds == 1:
        return np.ones(1)
    return np.concatenate([[0.5], np.full(thresholds - 1, 0.5 / (thresholds - 1))])


ANY_LAW = AnyLaw()


def choose_judge(
    name: str,
    *,
    delta: float,
    claimed: float | None,
    claimed_mu: float | None,
    claimed_range: float | None = None,
    claimed_curve: Any = None,
    moved: float = 0.0,
) -> Judge:
    """The judge of that name, or an error where the claim is not one that it tests."""
    if name not in JUDGES:
        raise ValueError(f"judge must be {', '.join(map(repr, JUDGES[:-1]))} or {JUDGES[-1]!r}, got {name!r}")
    others = {"claimed_mu": claimed_mu, "claimed_range": claimed_range, "claimed_curve": claimed_curve}
    tested_by = {"claimed_mu": "gaussian", "claimed_range": "bounded_range", "claimed_curve": "curve"}
    for other, value in others.items():
        if value is not None and name != "curve" and tested_by[other] != name:
            here = "claimed, an epsilon" if name == "any" else "another kind of claim"
            raise ValueError(f"{other} is tested by judge={tested_by[other]!r}; judge={name!r} tests {here}")
    if name == "any":
        return ANY_LAW
    if name == "curve":
        if claimed is not None:
            raise ValueError(
                "judge='curve' tests a whole trade-off curve, and claimed is one epsilon at one delta: pass "
                "claimed_curve, claimed_mu or claimed_range, or test it with judge='any'"
            )
        return WholeCurve(
            read_claim(claimed_mu=claimed_mu, claimed_range=claimed_range, claimed_curve=claimed_curve), moved
        )
    if name == "bounded_range":
        if claimed is not None or claimed_range is None:
            raise ValueError(
                "judge='bounded_range' tests the range of a selection: pass claimed_range and not claimed. A choice of "
                "range r is r-DP, but an r-DP release can have a range of 2 r; test an epsilon with judge='any'"
            )
        read_claim(claimed_range=claimed_range)
        return BoundedRange(float(claimed_range), moved)
    if claimed is not None or claimed_mu is None:
        raise ValueError(
            "judge='gaussian' tests a claim of mu-GDP: pass claimed_mu and not claimed. A claim that is an epsilon at "
            "one delta is no mu; test it with judge='any'"
        )
    if not (is_number(claimed_mu) and 0 <= claimed_mu < math.inf):
        raise ValueError(f"claimed_mu must be a finite number >= 0, got {claimed_mu!r}")
    if delta == 0:
        raise ValueError(
            "judge='gaussian' states its bound as an epsilon at a delta > 0; at delta = 0 no mu > 0 has one"
        )
    return GaussianCurve(float(claimed_mu), moved)


def judge_of_model(
    request: FitRequest,
    shape: tuple[int, int],
    name: str,
    claimed: float | None,
    claimed_mu: float | None,
    claimed_range: float | None = None,
    claimed_curve: Any = None,
) -> Judge:
    """The judge of an estimator's fits; the claimed mu or range, where none is passed, is the one of its plan."""
    own = any(value is not None for value in (claimed, claimed_mu, claimed_range, claimed_curve))
    if own or name not in ("gaussian", "bounded_range", "curve"):
        return choose_judge(
            name,
            delta=request.delta,
            claimed=claimed,
            claimed_mu=claimed_mu,
            claimed_range=claimed_range,
            claimed_curve=claimed_curve,
        )
    kind = "range" if name == "bounded_range" else "mu"
    instead = f"use judge='any', or pass claimed_{kind}"
    if request.published:
        raise ValueError(f"the paper of {type(request.method).__name__} claims an epsilon and no {kind}; {instead}")
    if request.wanted:
        raise ValueError(
            f"bounds are estimated ({', '.join(request.wanted)}), and the plan, with its {kind}, depends on the "
            f"estimates; declare them with bounds=Bounds(...), {instead}"
        )
    (planned,) = request.plan_all(shape)
    plan = planned.plan
    value = range_of_plan(plan) if kind == "range" else mu_of_plan(plan)
    # As before a fit: too little noise in the plan itself would raise the mu that is tested, and never be refuted.
    order = request.order((planned,))
    proved = Proved.of(order.plans, order.delta).epsilon
    if order.budget is not None and not proved <= order.budget.epsilon * (1 + 1e-9):
        raise PlanError(f"the plan of {order.what} proves epsilon = {proved:.6g}, more than {order.budget}")
    if name == "curve":
        return WholeCurve(GaussianClaim(value), plan.inexact)
    return choose_judge(
        name,
        delta=request.delta,
        claimed=None,
        claimed_mu=value if kind == "mu" else None,
        claimed_range=value if kind == "range" else None,
        moved=plan.inexact,
    )


def range_of_plan(plan: Plan) -> float:
    """The range that is claimed for a plan of a single choice. An error for others: ranges do not add up.

    What a second choice is between may depend on the first, and with it where its interval of log-ratios lies.
    """
    events = list(compose(plan))
    if len(events) == 1 and type(events[0][0]) is BoundedRangeEvent and events[0][1] == 1:
        return events[0][0].epsilon
    raise ValueError(
        "judge='bounded_range' tests a plan of one choice, and this one has other or more releases; use judge='any' or "
        "'gaussian', or pass claimed_range"
    )


def mu_of_plan(plan: Plan) -> float:
    """The mu that is claimed for everything in a plan: squares add up. An error where a release has none."""
    total = math.sqrt(math.fsum(count * event.gaussian_mu() ** 2 for event, count in compose(plan)))
    if total < math.inf:
        return total
    without = [release for release in plan if math.isinf(price_of(release.mechanism)[0].gaussian_mu())]
    named = ", ".join(f"{release.name} ({describe_mechanism(release.mechanism)})" for release in without)
    raise ValueError(
        f"no mu is claimed for {named}, and judge='gaussian' tests nothing else; use judge='any', or pass claimed_mu"
    )
