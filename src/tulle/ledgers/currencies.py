"""Currencies: in what a ledger counts. Shares of a cap add up, and what adds up to at most 1 is within the cap."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tulle.accounting.gaussian_budget import gaussian_mu
from tulle.accounting.renyi import renyi_conversion, renyi_curve
from tulle.accounting.zcdp import implied_epsilon, rho_of, total_rho
from tulle.trusted.accountants import exp_or_inf
from tulle.trusted.gaussian import gaussian_epsilon
from tulle.trusted.plan import Budget, Plan, Promise, compose


class Currency(ABC):
    """A price for every fit, as a share of a cap. Shares add up, and what adds up to at most 1 is within the cap."""

    @abstractmethod
    def share(self, plan: Plan, promise: Promise) -> float:
        """The part of the cap that a plan takes; inf where it has no price."""

    @abstractmethod
    def epsilon(self, share: float) -> float:
        """The epsilon, at the cap's delta, that is proved where this share is spent."""


def cheapest_currency(cap: Budget, plans: Sequence[Plan], promise: Promise, *, with_gaussian: bool = True) -> Currency:
    """The currency in which the first fit takes the least share of the cap.

    Each currency is a valid privacy filter on its own; fixing one before any noise is drawn keeps it so. A cap in rho
    is counted in rho for all fits.
    """
    if rho_of(cap) is not None:
        return RhoCurrency(cap)
    currencies: list[Currency] = [SumCurrency(cap)]
    if cap.delta > 0:
        orders = 1.0 + np.geomspace(1e-3, 1e5, 800)
        room = np.maximum(cap.epsilon - renyi_conversion(orders, cap.delta), 1e-300)
        dearest = np.max([renyi_curve(compose(plan), orders) for plan in plans], axis=0)
        currencies.append(RenyiCurrency(cap, float(orders[np.argmin(dearest / room)])))
    if cap.delta > 0 and with_gaussian:
        currencies.append(GaussianCurrency(cap))
    return min(currencies, key=lambda currency: max(currency.share(plan, promise) for plan in plans))


def _arithmetic_share(cap: Budget, plan: Plan) -> float:
    """The part of a cap's delta that finite precision takes of a plan."""
    return (1 + exp_or_inf(cap.epsilon)) * plan.inexact / cap.delta


@dataclass(frozen=True)
class SumCurrency(Currency):
    """Basic composition: epsilons and deltas add up."""

    cap: Budget

    def share(self, plan: Plan, promise: Promise) -> float:
        epsilon, delta = promise
        delta_share = 0.0 if delta == 0 else math.inf if self.cap.delta == 0 else delta / self.cap.delta
        return max(epsilon / self.cap.epsilon, delta_share)

    def epsilon(self, share: float) -> float:
        return share * self.cap.epsilon


@dataclass(frozen=True)
class GaussianCurrency(Currency):
    """Squares of Gaussian mu add up; other mechanisms than Gaussian ones may have no price."""

    cap: Budget

    @property
    def mu(self) -> float:
        return gaussian_mu(self.cap.epsilon, self.cap.delta)

    def share(self, plan: Plan, promise: Promise) -> float:
        total_mu = math.sqrt(sum(count * event.gaussian_mu() ** 2 for event, count in compose(plan)))
        share = (total_mu / self.mu) ** 2
        if plan.inexact == 0:
            return share
        # Finite precision takes a part of the cap's delta. Where this holds, the delta at the cap's epsilon is convex
        # in the share of mu² and at most the share of the cap's delta, so both parts may be added up.
        convex = self.cap.epsilon**2 >= self.mu**4 / 4 + self.mu**2
        return share + _arithmetic_share(self.cap, plan) if convex else math.inf

    def epsilon(self, share: float) -> float:
        return gaussian_epsilon(math.sqrt(share) * self.mu, self.cap.delta)


@dataclass(frozen=True)
class RhoCurrency(Currency):
    """The rho of zero-concentrated differential privacy adds up; what has no rho has no price."""

    cap: Budget

    @property
    def rho(self) -> float:
        """That of the cap."""
        rho = rho_of(self.cap)
        assert rho is not None
        return rho

    def share(self, plan: Plan, promise: Promise) -> float:
        return total_rho(plan) / self.rho

    def epsilon(self, share: float) -> float:
        return implied_epsilon(share * self.rho, self.cap.delta) if share > 0 else 0.0


@dataclass(frozen=True)
class RenyiCurrency(Currency):
    """Rényi divergences at one order add up."""

    cap: Budget
    order: float

    @property
    def conversion(self) -> float:
        return float(renyi_conversion(np.array([self.order]), self.cap.delta)[0])

    @property
    def room(self) -> float:
        """The divergence that the cap allows; none where it is not positive."""
        return self.cap.epsilon - self.conversion

    def share(self, plan: Plan, promise: Promise) -> float:
        if self.room <= 0:
            return math.inf
        share = float(renyi_curve(compose(plan), np.array([self.order]))[0]) / self.room
        if plan.inexact == 0:
            return share
        # With a share s to spare the delta at the cap's epsilon is that of the cap times exp(-s room (order - 1)).
        return share + _arithmetic_share(self.cap, plan) / -math.expm1(-self.room * (self.order - 1))

    def epsilon(self, share: float) -> float:
        return share * self.room + self.conversion if self.room > 0 else math.inf
