"""Gaussian differential privacy: epsilon and delta of one Gaussian release, each from the other and mu.

Small and on its own: the user side of a local study rests on it too. Proof: docs/proofs/gaussian.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable

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
    if gaussian_delta(0.0, mu) > delta and (math.isinf(mu) or delta == 0):
        return math.inf
    return find_epsilon(lambda epsilon: gaussian_delta(epsilon, mu), delta)


def find_epsilon(delta_at: Callable[[float], float], delta: float) -> float:
    """The smallest epsilon >= 0 at which a function that falls to 0 is at most `delta`; there is one."""
    if delta_at(0.0) <= delta:
        return 0.0
    high = 1.0
    while delta_at(high) > delta:
        high *= 2
    root = float(brentq(lambda epsilon: delta_at(epsilon) - delta, 0.0, high, xtol=1e-14, rtol=1e-13))
    return root * (1 + 1e-7)  # beyond what rounding can hide, also where epsilon and delta are tiny
