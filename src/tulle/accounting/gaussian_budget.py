"""How far a Gaussian release may move within an epsilon and a delta. A user's device loads this, and no accountant.

A plan that is calibrated with it is proved again.
"""

from __future__ import annotations

from functools import lru_cache

from scipy.optimize import brentq

from tulle.trusted.gaussian import gaussian_delta


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
