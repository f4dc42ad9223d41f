"""The best of a secret number of trials: the law of that number, what the best one costs, what one trial may cost.

Papernot and Steinke, "Hyperparameter tuning with Rényi differential privacy" (ICLR 2022), theorem 2. Fitting with
several settings and keeping the best costs far less than releasing all fits, provided that the number of fits is drawn
at random and stays secret. Proof: docs/proofs/tuning.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from scipy.optimize import brentq

from tulle.accounting.gaussian_budget import gaussian_mu
from tulle.accounting.mechanism_words import describe_mechanism
from tulle.accounting.renyi import ORDERS, renyi_conversion, renyi_curve
from tulle.ledgers.currencies import Currency
from tulle.ledgers.ledger import Ledger
from tulle.trusted.events import Event, FloatArray
from tulle.trusted.events import NoisePerSensitivity as Noise
from tulle.trusted.gaussian import gaussian_epsilon
from tulle.trusted.mechanisms import PRICES, Mechanism, Sensitivity, Then
from tulle.trusted.plan import Budget, Plan, PlanError, Promise, Release, compose, is_number

# gamma is no smaller than this: the tail of the number of trials ends at a few dozen times its reciprocal.
_LEAST_GAMMA = 1e-6


@dataclass(frozen=True)
class TrialCount:
    """The law of the number of trials: a negative binomial without its 0 (truncated), K >= 1.

    P(K = k) is proportional to (1 - gamma)^k (shape)(shape + 1)...(shape + k - 1) / k!; shape 0 is the limit, the
    logarithmic law, and shape 1 the geometric one. A smaller shape spreads K more widely and costs less privacy.

    Parameters
    ----------
    mean : float, default=10.0
        E[K], in (1, inf).
    shape : float, default=0.0
        eta in the paper, in (-1, 10]; within 1e-12 of 0 it is taken as 0.
    """

    mean: float = 10.0
    shape: float = 0.0

    def __post_init__(self) -> None:
        if not (is_number(self.mean) and 1 < self.mean < math.inf):
            raise ValueError(f"the mean number of trials must be a finite number > 1, got {self.mean!r}")
        if not (is_number(self.shape) and -1 < self.shape <= 10):
            raise ValueError(f"the shape of the number of trials must lie in (-1, 10], got {self.shape!r}")
        # So near to 0 formulas divide one rounding by another, and their limit at 0 is as good.
        object.__setattr__(self, "shape", 0.0 if abs(self.shape) < 1e-12 else float(self.shape))
        object.__setattr__(self, "mean", float(self.mean))
        if _log_mean(-math.log(_LEAST_GAMMA), self.shape) < math.log(self.mean):
            raise ValueError(
                f"a mean of {self.mean:g} trials with shape {self.shape:g} is not supported: the number of trials "
                "could reach millions; lower the mean or raise the shape"
            )

    @cached_property
    def gamma(self) -> float:
        """The success probability that gives the mean."""
        return math.exp(-self._log_reciprocal)

    @cached_property
    def _log_reciprocal(self) -> float:
        wanted = math.log(self.mean)
        return float(
            brentq(lambda g: _log_mean(g, self.shape) - wanted, 0.0, -math.log(_LEAST_GAMMA), xtol=1e-15, rtol=1e-14)
        )

    def draw(self, generator: np.random.Generator) -> int:
        """One K, by inversion: the loop takes as many turns as there will be trials."""
        g, shape = self._log_reciprocal, self.shape
        chance = -math.expm1(-g) * (shape / math.expm1(shape * g) if shape else 1 / g)
        left, k = generator.random(), 1
        # Sums of chances can end a rounding below 1; the second clause stops there instead of never.
        while left >= chance and not (k > self.mean and chance < 2.0**-60):
            left -= chance
            chance *= -math.expm1(-g) * (k + shape) / (k + 1)
            k += 1
        return k


def _log_mean(log_reciprocal: float, shape: float) -> float:
    """log E[K] as a function of log(1 / gamma); increasing, 0 at 0."""
    g = log_reciprocal
    if g < 1e-12:
        return 0.0
    return math.log(math.expm1(g) * (shape / -math.expm1(-shape * g) if shape else 1 / g))


@dataclass(frozen=True)
class TrialPrice:
    """What one trial may cost: at each of two Rényi orders no more than one Gaussian release of this mu.

    Every setting that can be drawn obeys the same price, with any mechanisms.

    Attributes
    ----------
    mu : float
        In [0, inf].
    order : float
        The order, > 1, at which the best of all trials gets its bound (lambda in the paper).
    other_order : float
        The order, > 1, that pays for there being several trials (lambda-hat).
    """

    mu: float
    order: float
    other_order: float

    @property
    def divergences(self) -> FloatArray:
        """The caps at `order` and `other_order`."""
        return np.array([self.order, self.other_order]) * self.mu**2 / 2

    def delta(self, budget: Budget) -> float:
        """The delta at which trials are planned: the budget's, or so small that the price is worth some epsilon."""
        return min(budget.delta, self.mu / 100)

    def share(self, plan: Plan) -> float:
        """The share of the price that a plan uses; above 1 it is too expensive."""
        if plan.inexact:  # the price has no room for it
            return math.inf
        curve = renyi_curve(compose(plan), np.array([self.order, self.other_order]))
        return float(np.max(curve / self.divergences))


def _paid_for_several(trials: TrialCount, other_order: float, divergence: float) -> float:
    """What it adds that the number of trials is not always 1, for trials of a divergence at `other_order`."""
    return (1 + trials.shape) * ((1 - 1 / other_order) * divergence - math.log(trials.gamma) / other_order)


@dataclass(frozen=True)
class BestOfTrialsEvent(Event):
    """The best of K independent trials, each within one price, K secret and drawn from its law.

    Theorem 2 of the paper bounds the Rényi divergence at one order; lower orders follow since divergences grow with
    the order, and nothing is claimed above.
    """

    trials: TrialCount
    price: TrialPrice

    def renyi(self, orders: FloatArray) -> FloatArray:
        at_order, at_other = self.price.divergences
        several = _paid_for_several(self.trials, self.price.other_order, at_other)
        total = at_order + several + math.log(self.trials.mean) / (self.price.order - 1)
        return np.where(orders <= self.price.order, total, math.inf)


@dataclass(frozen=True)
class BestOfTrials(Mechanism):
    """A whole search as one release, so that plans, ledgers and accountants can speak of it. It draws no noise itself.

    Parameters
    ----------
    noise : NoisePerSensitivity
        The noise of one trial, were it one Gaussian release: the reciprocal of the price's mu.
    trials : TrialCount
    order, other_order : float
        The orders of the price, > 1.
    """

    trials: TrialCount = TrialCount()
    order: float = 2.0
    other_order: float = 2.0

    @property
    def price(self) -> TrialPrice:
        return TrialPrice(math.inf if self.noise.value == 0 else 1 / self.noise.value, self.order, self.other_order)

    def release(
        self, exact: FloatArray, sensitivity: Sensitivity, generator: np.random.Generator, then: Then | None
    ) -> Any:
        raise PlanError("a search consists of trials; it has no exact answer to add noise to")


PRICES[BestOfTrials] = lambda search: (BestOfTrialsEvent(search.trials, search.price), 1)


@describe_mechanism.register
def _(mechanism: BestOfTrials) -> str:
    return "best of a secret number of trials"


def cheapest_search(trials: TrialCount, mu: float, delta: float) -> BestOfTrials:
    """The search over trials that cost as much as one Gaussian release of `mu`, at the orders that prove least."""
    order = float(ORDERS[np.argmin(_spent(trials, mu, delta))])
    return BestOfTrials(Noise(1 / mu), trials, order, _other_order(trials, mu))


@lru_cache(maxsize=64)
def affordable_search(trials: TrialCount, budget: Budget) -> BestOfTrials:
    """The search whose trials may cost most within the budget.

    Where all trials were Gaussian releases no other pair of orders on the accountant's grid would allow them less
    noise. Other trials are held to the same two figures.
    """
    if budget.delta == 0:
        raise ValueError("a search needs a budget with delta > 0; for example Budget(1.0, 1e-5)")
    # A hair below the budget, for what a ledger forgives a trial in rounding.
    allowed = budget.epsilon * (1 - 1e-8)
    low, high = 1e-9, gaussian_mu(budget.epsilon, budget.delta)
    if _spent(trials, low, budget.delta).min() > allowed:
        raise ValueError(f"no amount of noise fits {trials.mean:g} trials into {budget}; raise epsilon")
    while high / low > 1 + 1e-10:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if _spent(trials, middle, budget.delta).min() <= allowed else (low, middle)
    return cheapest_search(trials, low, budget.delta)


def _spent(trials: TrialCount, mu: float, delta: float) -> FloatArray:
    """The epsilon of the best of Gaussian trials, by the accountant's orders."""
    other = _other_order(trials, mu)
    several = _paid_for_several(trials, other, other * mu**2 / 2)
    return ORDERS * mu**2 / 2 + several + math.log(trials.mean) / (ORDERS - 1) + renyi_conversion(ORDERS, delta)


def _other_order(trials: TrialCount, mu: float) -> float:
    """The best second order: (x - 1) mu² / 2 + log(1 / gamma) / x is least there, and grows on either side."""
    return max(math.sqrt(-2 * math.log(trials.gamma)) / mu, float(ORDERS[0]))


@dataclass(frozen=True)
class _TrialCurrency(Currency):
    """The dearer of the two orders of a price."""

    price: TrialPrice

    def share(self, plan: Plan, promise: Promise) -> float:
        return self.price.share(plan)

    def epsilon(self, share: float) -> float:
        return math.inf  # two Rényi figures are kept within their caps; no epsilon of the trial alone is claimed


class TrialLedger(Ledger):
    """Bills what one trial releases about one part of the rows, and refuses what passes the trial's price.

    Fits that are run while it stands in for the open ledgers (`tulle.trusted.billing.billed_to`) are on the bill of the
    search already.
    """

    def __init__(self, price: TrialPrice, delta: float) -> None:
        super().__init__(Budget(gaussian_epsilon(price.mu, delta), delta))
        self._currency = _TrialCurrency(price)


def as_plan(search: BestOfTrials) -> Plan:
    """The plan that a search is billed with."""
    return Plan((Release("search", search, 1),))
