"""Judges: how the counts of an attack become a bound, and what the bound is about.

The assumption-free judge ("any") bounds the epsilon of any release at the given delta. The Gaussian judge ("gaussian")
bounds the mu of a claim of mu-GDP. It proves more from the same counts, because it tests more: mu-GDP limits every
event, (epsilon, delta) only those that are rare. Its epsilon is the one that any true claim of mu-GDP has to print; a
release whose claim is no mu can be (epsilon, delta)-DP with a smaller one. Proofs: docs/proofs/audit.md.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy.typing as npt

from tulle.accounting.bounds_from_counts import epsilon_lower_bound, mu_lower_bound
from tulle.accounting.mechanism_words import describe_mechanism
from tulle.audit.result import JUDGES
from tulle.estimators.request import FitRequest
from tulle.trusted.events import FloatArray
from tulle.trusted.fit import Proved
from tulle.trusted.gaussian import gaussian_epsilon
from tulle.trusted.mechanisms import price_of
from tulle.trusted.plan import Plan, PlanError, compose, is_number


class Judge(ABC):
    """Turns counts into a bound in its own measure, and that into an epsilon."""

    name: ClassVar[str]

    @abstractmethod
    def bound(
        self, hits: npt.ArrayLike, false_hits: npt.ArrayLike, runs: int, delta: float, confidence: float
    ) -> FloatArray:
        """What counts prove, wrong with probability at most 1 - confidence where the event was fixed beforehand."""

    @abstractmethod
    def epsilon(self, bound: float, delta: float) -> float:
        """The epsilon at `delta` that a bound of this judge gives; 0 where it proves nothing."""


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


@dataclass(frozen=True)
class GaussianCurve(Judge):
    """Tests a claim of mu-GDP; its bound is a mu.

    Attributes
    ----------
    claimed_mu : float
    moved : float
        How far, in total variation, the release may lie from one that is mu-GDP: finite precision.
    """

    claimed_mu: float
    moved: float = 0.0
    name = "gaussian"

    def bound(
        self, hits: npt.ArrayLike, false_hits: npt.ArrayLike, runs: int, delta: float, confidence: float
    ) -> FloatArray:
        return mu_lower_bound(hits, false_hits, runs, confidence, self.moved)

    def epsilon(self, bound: float, delta: float) -> float:
        # `gaussian_epsilon` rounds up by 1e-7, for promises; a lower bound is rounded down.
        return gaussian_epsilon(max(bound, 0.0), delta) * (1 - 3e-7)


ANY_LAW = AnyLaw()


def choose_judge(
    name: str, *, delta: float, claimed: float | None, claimed_mu: float | None, moved: float = 0.0
) -> Judge:
    """The judge of that name, or an error where the claim is not one that it tests."""
    if name not in JUDGES:
        raise ValueError(f"judge must be 'any' or 'gaussian', got {name!r}")
    if name == "any":
        if claimed_mu is not None:
            raise ValueError("claimed_mu is tested by judge='gaussian'; judge='any' tests claimed, an epsilon")
        return ANY_LAW
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
    request: FitRequest, shape: tuple[int, int], name: str, claimed: float | None, claimed_mu: float | None
) -> Judge:
    """The judge of an estimator's fits; the claimed mu, where none is passed, is the one of its plan."""
    if name != "gaussian" or claimed is not None or claimed_mu is not None:
        return choose_judge(name, delta=request.delta, claimed=claimed, claimed_mu=claimed_mu)
    instead = "use judge='any', or pass claimed_mu"
    if request.published:
        raise ValueError(f"the paper of {type(request.method).__name__} claims an epsilon and no mu; {instead}")
    if request.wanted:
        raise ValueError(
            f"bounds are estimated ({', '.join(request.wanted)}), and the plan, with its mu, depends on the estimates; "
            f"declare them with bounds=Bounds(...), {instead}"
        )
    (planned,) = request.plan_all(shape)
    mu = mu_of_plan(planned.plan)
    # As before a fit: too little noise in the plan itself would raise the mu that is tested, and never be refuted.
    order = request.order((planned,))
    proved = Proved.of(order.plans, order.delta).epsilon
    if order.budget is not None and not proved <= order.budget.epsilon * (1 + 1e-9):
        raise PlanError(f"the plan of {order.what} proves epsilon = {proved:.6g}, more than {order.budget}")
    return choose_judge(name, delta=request.delta, claimed=None, claimed_mu=mu, moved=planned.plan.inexact)


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
