"""Gaussian differential privacy: epsilon, delta and mu of one Gaussian release, each from the other two.

Small and on its own: the user side of a local study rests on it too. Proof: docs/proofs/gaussian.md.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr


def gaussian_delta(epsilon: float, mu: float) -> float:
    """The exact delta at `epsilon` of one Gaussian release whose mean moves by `mu` standard deviations."""
    if mu == 0:
        return max(-math.expm1(min(epsilon, 0.0)), 0.0)
    if math.isinf(mu):
        return 1.0
    upper = epsilon / mu
    return float(max(ndtr(mu / 2 - upper) - np.exp(epsilon + log_ndtr(-mu / 2 - upper)), 0.0))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The smallest epsilon for which mu-GDP implies (epsilon, delta)."""
    if gaussian_delta(0.0, mu) <= delta:
        return 0.0
    if math.isinf(mu) or delta == 0:
        return math.inf
    high = 1.0
    while gaussian_delta(high, mu) > delta:
        high *= 2
    root = float(brentq(lambda e: gaussian_delta(e, mu) - delta, 0.0, high, xtol=1e-14, rtol=1e-13))
    return root * (1 + 1e-7)  # beyond what rounding can hide, also where epsilon and delta are tiny


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The largest mu for which mu-GDP implies (epsilon, delta)."""
    # Floats, lest a float32 that equals a float answer for it from the cache.
    return _gaussian_mu(float(epsilon), float(delta))


@lru_cache(maxsize=256)
def _gaussian_mu(epsilon: float, delta: float) -> float:
    if delta == 0:
        return 0.0
    low, high = 1e-12, 1.0
    while gaussian_delta(epsilon, high) < delta:
        high *= 2
    root = float(brentq(lambda mu: gaussian_delta(epsilon, mu) - delta, low, high, xtol=1e-15, rtol=1e-13))
    return root * (1 - 1e-9)
