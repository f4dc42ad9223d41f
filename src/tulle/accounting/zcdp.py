"""Zero-concentrated differential privacy: the rho of releases, and budgets in it.

A release is rho-zCDP where its Rényi divergence at every order alpha > 1 is at most rho alpha (Bun and Steinke 2016).
Vouched for on use: a report prints a rho only where this module has added it up. The epsilon of the same report is
proved by `tulle.trusted.accountants`, regardless of the result here. Proofs: docs/proofs/zcdp.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tulle.accounting.gaussian_budget import gaussian_mu
from tulle.accounting.mechanism_words import describe_mechanism
from tulle.accounting.renyi import ORDERS, renyi_conversion, renyi_curve
from tulle.trusted import plan as plans
from tulle.trusted.events import (
    BoundedRangeEvent,
    Event,
    GaussianEvent,
    LaplaceEvent,
    ObjectivePerturbationEvent,
    PureEvent,
    SampledGaussianEvent,
)
from tulle.trusted.gaussian import gaussian_epsilon
from tulle.trusted.mechanisms import price_of
from tulle.trusted.plan import Composition, Plan, PlanError, Release, compose, is_number

# Sums and functions below err by a few units in the last place; a printed value must not be too small.
_ROUNDED_UP = 1 + 1e-12


class AnyBudget(plans.Budget):
    """What may be spent, under replace-one adjacency: an epsilon and a delta, or a rho (zCDP) and a delta.

    Parameters
    ----------
    epsilon : float or None, default=None
        In (0, inf); None where `rho` is given. The attribute of a budget in rho is an epsilon that rho implies at
        `delta`. What a fit reports is the epsilon that is proved for its noise, which is smaller.
    delta : float, default=0.0
        In [0, 1); above 0 for a budget in rho, whose epsilon is reported at it. 0 admits only releases that are purely
        epsilon-private.
    rho : float or None, default=None
        In (0, inf): everything together is rho-zCDP.

    Examples
    --------
    >>> from tulle import Budget
    >>> Budget(3.0, 1e-5)
    Budget(epsilon=3.0, delta=1e-05)
    >>> Budget(rho=0.1, delta=1e-6)
    Budget(rho=0.1, delta=1e-06)
    """

    rho: float | None

    def __init__(self, epsilon: float | None = None, delta: float = 0.0, *, rho: float | None = None) -> None:
        if rho is None:
            if epsilon is None:
                raise ValueError("a budget needs an epsilon or a rho: Budget(1.0, 1e-5) or Budget(rho=0.1, delta=1e-5)")
        else:
            if epsilon is not None:
                raise ValueError(f"a budget is in epsilon or in rho, got epsilon={epsilon!r} and rho={rho!r}; omit one")
            if not (is_number(rho) and 0 < rho < math.inf):
                raise ValueError(f"rho must be a finite number > 0, got {rho!r}")
            if not (is_number(delta) and 0 < delta < 1):
                raise ValueError(
                    f"a budget in rho needs a delta in (0, 1), at which its epsilon is reported, got {delta!r}"
                )
            rho = float(rho)
            epsilon = implied_epsilon(rho, float(delta))
        object.__setattr__(self, "rho", rho)
        super().__init__(epsilon, delta)

    def __eq__(self, other: object) -> bool:
        # Calibrations are remembered by equality: a budget in rho is no budget in the epsilon that it implies.
        if not isinstance(other, plans.Budget):
            return NotImplemented
        return (self.epsilon, self.delta, self.rho) == (other.epsilon, other.delta, rho_of(other))

    def __hash__(self) -> int:
        return hash((self.epsilon, self.delta))

    def __repr__(self) -> str:
        if self.rho is None:
            return f"Budget(epsilon={self.epsilon!r}, delta={self.delta!r})"
        return f"Budget(rho={self.rho!r}, delta={self.delta!r})"


# Its name in `tulle`. Trusted code has a class of that name, which knows of no rho.
Budget = AnyBudget


def rho_of(budget: plans.Budget | None) -> float | None:
    """The rho of a budget in rho; None for any other."""
    return budget.rho if isinstance(budget, AnyBudget) else None


def refuse_rho(budget: plans.Budget | None, what: str) -> None:
    """Raise where a budget is in rho and `what` has none."""
    if (rho := rho_of(budget)) is not None:
        raise ValueError(f"{what} takes a budget in epsilon and delta, not rho = {rho:g}; use Budget(epsilon, delta)")


@lru_cache(maxsize=256)
def implied_epsilon(rho: float, delta: float) -> float:
    """An epsilon that every rho-zCDP release has at a delta in (0, 1) (Canonne, Kamath, Steinke 2020, prop. 12).

    The least over the accountant's first grid of orders alone: `RenyiAccountant` then never proves more for releases
    whose rho add up to this one (docs/proofs/zcdp.md, theorem 4).
    """
    found = float(np.min(rho * ORDERS + renyi_conversion(ORDERS, delta)))
    return max(found, rho) * (1 + 1e-9)  # above 0, also at a delta near 1


# --- the rho of releases ---------------------------------------------------------------------------------------------


def event_rho(event: Event) -> float:
    """A rho for which one release is rho-zCDP, in both directions; inf where none is proved. By exact type."""
    found = _RHO.get(type(event))
    return math.inf if found is None else float(found(event))


def _gaussian_rho(event: GaussianEvent | ObjectivePerturbationEvent) -> float:
    return event.gaussian_mu() ** 2 / 2


def _laplace_rho(event: LaplaceEvent) -> float:
    epsilon = event.pure_epsilon()
    # epsilon - 1 + exp(-epsilon) is at most epsilon² / 2, and loses its digits to cancellation near 0.
    return epsilon**2 / 2 if epsilon < 1e-3 else epsilon + math.expm1(-epsilon)


def _pure_rho(event: PureEvent) -> float:
    epsilon = event.pure_epsilon()
    return epsilon * math.tanh(epsilon / 2)


def _range_rho(event: BoundedRangeEvent) -> float:
    return min(event.epsilon**2 / 8, _pure_rho(event))


_RHO: dict[type[Event], Callable[[Any], float]] = {
    GaussianEvent: _gaussian_rho,
    LaplaceEvent: _laplace_rho,
    PureEvent: _pure_rho,
    BoundedRangeEvent: _range_rho,
    ObjectivePerturbationEvent: _gaussian_rho,
}


def _sum_rho(composition: Composition) -> float:
    return math.fsum(count * event_rho(event) for event, count in composition) * _ROUNDED_UP


def total_rho(releases: Plan | Iterable[Release]) -> float:
    """The rho that is proved for everything in a plan; inf where there is none.

    Nothing is proved of answers that are only close to an ideal law: zCDP has no delta for the difference.
    """
    plan = releases if isinstance(releases, Plan) else Plan(tuple(releases))
    return math.inf if plan.inexact else _sum_rho(compose(plan))


def total_mu(plan: Plan) -> float | None:
    """The mu for which everything in a plan is proved to be mu-GDP; None where none is, or where it is no use.

    Where bounds were estimated, the plan is one of several. Of random batches, mu is that of all rows.
    """
    events = compose(plan)
    if plan.preliminary or plan.inexact or any(type(event) is SampledGaussianEvent for event, _ in events):
        return None
    total = math.sqrt(math.fsum(count * event.gaussian_mu() ** 2 for event, count in events)) * _ROUNDED_UP
    return total if total < math.inf else None


_WHY: dict[type[Event], str] = {
    SampledGaussianEvent: "random batches lower no rho, use sampling='shuffled' or all rows",
}


def check_has_rho(releases: Sequence[Release]) -> None:
    """Raise where a release has no rho, however much noise it gets."""
    for release in releases:
        event, _ = price_of(release.mechanism)
        if type(event) not in _RHO:
            raise ValueError(
                f"no rho is proved for {release.name} ({describe_mechanism(release.mechanism)}): "
                f"{_WHY.get(type(event), 'nothing is known of its Rényi divergence')}; use "
                "method='hard_thresholding', 'coordinate_descent' or 'frank_wolfe', or a budget in epsilon and delta"
            )
    if Plan(tuple(releases)).inexact:
        raise ValueError("no rho is proved where finite precision takes a part of delta; use engine='plain'")


def epsilon_left(budget: plans.Budget, releases: Sequence[Release]) -> float:
    """The epsilon that is left of a budget after releases that are composed with what follows as Gaussian differential
    privacy; 0 where nothing is left."""
    used = sum(count * event.gaussian_mu() ** 2 for event, count in compose(releases))
    left = gaussian_mu(budget.epsilon, budget.delta) ** 2 - used
    return gaussian_epsilon(math.sqrt(left), budget.delta) if left > 0 else 0.0


def budget_after(
    budget: plans.Budget, releases: Sequence[Release], spent: float, together: bool = False
) -> plans.Budget:
    """The rest of a budget after purely private releases that cost `spent` of its epsilon.

    `together`: composed with what follows as Gaussian differential privacy.
    """
    rho = rho_of(budget)
    if together:
        return plans.Budget(epsilon_left(budget, releases), budget.delta)
    if rho is None:
        return plans.Budget(budget.epsilon - spent, budget.delta)
    if not releases:
        return budget
    left = rho - total_rho(releases)
    if not left > 0:
        raise ValueError(
            f"estimating bounds would take {total_rho(releases):.3g} of rho = {rho:g}; declare them with "
            "bounds=Bounds(...), or lower Bounds(estimate_share=...)"
        )
    return AnyBudget(rho=left * (1 - 1e-11), delta=budget.delta)  # so that sums, rounded up, stay below the whole


def confirm_rho(plan: Plan, promised: float) -> None:
    """Raise unless the plan that a fit settled on has no more rho than was promised before."""
    if not total_rho(plan) <= promised:
        raise PlanError("the method's plan depends on the estimated bounds in a way that its rho does not cover")


# --- the Rényi curve of a report -------------------------------------------------------------------------------------

# The orders that reports print.
REPORTED_ORDERS = (1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)

Curve = tuple[tuple[float, float], ...]


def reported_curve(plan: Plan) -> Curve:
    """The Rényi divergence of everything in a plan at the orders that reports print; () where none is proved."""
    return () if plan.inexact else _curve(compose(plan))


@lru_cache(maxsize=64)  # curves of random batches take time, and folds and clones have the same ones
def _curve(composition: Composition) -> Curve:
    found = renyi_curve(composition, np.array(REPORTED_ORDERS)) * _ROUNDED_UP
    pairs = tuple(zip(REPORTED_ORDERS, (float(value) for value in found)))
    return pairs if all(math.isfinite(value) for _, value in pairs) else ()


def straight_curve(rho: float) -> Curve:
    """The same of anything that is rho-zCDP."""
    return tuple((order, order * rho * _ROUNDED_UP) for order in REPORTED_ORDERS)
