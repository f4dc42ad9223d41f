"""Rényi curves of events, and the accountant that adds them up.

Vouched for on use: a report names the accountant whose proof it prints. Without this module the larger epsilon of the
Gaussian accountant or of pure composition is proved. Proofs: docs/proofs/events.md, docs/proofs/accounting.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import log_ndtr

from tulle.accounting.sampled_pairs import sampled_pair
from tulle.trusted import hooks
from tulle.trusted.accountants import Accountant, vouch_for
from tulle.trusted.events import (
    BoundedRangeEvent,
    Event,
    FloatArray,
    GaussianEvent,
    LaplaceEvent,
    ObjectivePerturbationEvent,
    SampledGaussianEvent,
)
from tulle.trusted.plan import Composition


def find_curve(event: Event, orders: FloatArray) -> FloatArray:
    """An upper bound on the Rényi divergence of neighbours' answers at each order (> 1), in both directions.

    By exact type. What has no curve of its own is a post-processing of randomised response.
    """
    curve = _CURVES.get(type(event))
    return bound_pure(event.pure_epsilon(), orders) if curve is None else np.asarray(curve(event, orders))


def _bound_gaussian(event: GaussianEvent, orders: FloatArray) -> FloatArray:
    return orders * event.gaussian_mu() ** 2 / 2.0


def _bound_sampled(event: SampledGaussianEvent, orders: FloatArray) -> FloatArray:
    if 0 < event.noise.value < math.inf:
        return sampled_pair(event).renyi(orders)
    return _bound_gaussian(event, orders)


def _bound_laplace(event: LaplaceEvent, orders: FloatArray) -> FloatArray:
    shift = event.pure_epsilon()
    # Mironov 2017, table II, written with logarithms so that large orders do not overflow.
    first = np.log(orders / (2 * orders - 1)) + (orders - 1) * shift
    second = np.log((orders - 1) / (2 * orders - 1)) - orders * shift
    rounding = 1e-13 * (1 + orders * shift) / (orders - 1)
    return np.maximum(np.logaddexp(first, second) / (orders - 1), 0.0) + rounding


def _bound_range(event: BoundedRangeEvent, orders: FloatArray) -> FloatArray:
    concentrated = orders * event.epsilon**2 / 8
    if event.epsilon < 1e-3 or event.epsilon > 500:
        return concentrated
    # The supremum over where the interval lies is attained at exp(t) = b A / ((b + 1) B); see lemma 2.
    b = orders - 1.0
    log_a = event.epsilon + np.log(-np.expm1(-orders * event.epsilon))
    log_b = np.log(-np.expm1(-b * event.epsilon))
    t = np.clip(np.log(b / orders) + log_a - log_b, 0.0, event.epsilon)
    exact = (b * t + log_a - np.log(orders) - np.log(np.expm1(event.epsilon))) / b
    rounding = 1e-13 * (1.0 + b * event.epsilon) / b
    return np.minimum(concentrated, np.maximum(exact, 0.0) + rounding)


def _bound_objective(event: ObjectivePerturbationEvent, orders: FloatArray) -> FloatArray:
    """That of the Gaussian pair that dominates it, or of the determinants and the largest of a few Gaussian losses
    (docs/proofs/objective_perturbation.md, theorem 1 and lemma 6)."""
    b, mu, rows = orders - 1.0, event.noise.inverse, event.rows_per_unit
    if math.isinf(mu):
        return np.full_like(orders, math.inf)
    hidden = orders * (mu / event.certificate) ** 2 / 2
    if rows > 1:  # in logarithms: 4^k is soon out of what floats can hold
        bound = rows * math.log(4) / b + orders * mu**2 / 2
    else:
        parts = ((1.0, 1.0), (2.0, 0.25), (1.0, 0.0)) if event.one_sided else ((2.0, 1.0), (2.0, 0.5))
        exponents = [math.log(times) + orders * b * part * mu**2 / 2 for times, part in parts]
        # At small orders the two-dimensional bound is the smaller one: mu²/2 + mu R with R of Rayleigh's law.
        t = mu * b
        tail = 0.5 * math.log(2 * math.pi) + np.log(np.maximum(t, 1e-300)) + t**2 / 2 + log_ndtr(t)
        bound = np.minimum(np.logaddexp.reduce(exponents, axis=0) / b, mu**2 / 2 + np.logaddexp(0.0, tail) / b)
    with_determinants = event.log_determinant + bound + hidden + 1e-13 * (1 + np.abs(bound))
    return np.minimum(orders * event.gaussian_mu() ** 2 / 2, with_determinants)


def bound_pure(epsilon: float, orders: FloatArray) -> FloatArray:
    """The Rényi divergence of randomised response at each order, in both directions."""
    b = orders - 1.0
    # The expectation less 1, as a product: nothing cancels for a small epsilon or near order 1. Where it would
    # overflow, its logarithm is taken term by term, and there epsilon is by far the largest of the terms.
    half = epsilon / 2
    large = orders * epsilon > 300
    tame = np.where(large, 0.0, half)
    excess = 2 * np.sinh(orders * tame) * np.sinh(b * tame) / np.cosh(tame)
    tails = np.log1p(np.exp(-2 * half)) - np.log1p(np.exp(-2 * (orders + b) * half))
    exact = np.where(large, epsilon - tails / b, np.log1p(excess) / b)
    return np.minimum(exact * (1 + 1e-13), epsilon)


_CURVES: dict[type[Event], Callable[[Any, FloatArray], FloatArray]] = {
    GaussianEvent: _bound_gaussian,
    SampledGaussianEvent: _bound_sampled,
    LaplaceEvent: _bound_laplace,
    BoundedRangeEvent: _bound_range,
    ObjectivePerturbationEvent: _bound_objective,
}
hooks.install("renyi", find_curve)


# Where Rényi curves are compared first. A search puts its order on this grid: nothing is lost between the points then.
ORDERS = 1.0 + np.geomspace(1e-4, 1e7, 320)


def renyi_curve(composition: Composition, orders: FloatArray) -> FloatArray:
    return np.asarray(sum((count * event.renyi(orders) for event, count in composition), np.zeros_like(orders)))


def renyi_conversion(orders: FloatArray, delta: float) -> FloatArray:
    """The term to add to a Rényi curve to get an epsilon at `delta` (Canonne, Kamath, Steinke 2020, prop. 12)."""
    return (math.log(1 / delta) - np.log(orders)) / (orders - 1) + np.log1p(-1 / orders)


class RenyiAccountant(Accountant):
    """Rényi curves added up. Every order gives a valid epsilon; the best one is searched on two nested grids."""

    name = "Rényi differential privacy"

    def epsilon(self, composition: Composition, delta: float) -> float:
        def curve(orders: FloatArray) -> FloatArray:
            return renyi_curve(composition, orders) + renyi_conversion(orders, delta)

        coarse = curve(ORDERS)
        best = int(np.argmin(coarse))
        low, high = ORDERS[max(best - 1, 0)], ORDERS[min(best + 1, len(ORDERS) - 1)]
        fine = curve(1.0 + np.geomspace(low - 1, high - 1, 320))
        return float(max(min(coarse[best], fine.min()), 0.0))


vouch_for(RenyiAccountant())
