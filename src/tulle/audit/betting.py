"""Bets against a claim: a capital that a true claim lets grow twentyfold with probability 1/20 at most, at any time.

An event A is fixed; a run in each world shows whether it happened: x in the world that A speaks for, y in the other. A
true claim keeps the two rates (p, q) below its curve, and so below any line that touches it: p - p0 <= k (q - q0). The
capital is multiplied by

    (1 + c (x - p0)) (1 - c k (y - q0)),       c >= 0 so small that no factor is negative.

Its mean is (1 + u) (1 + v) with u + v <= 0, which is at most 1. So the capital is a supermartingale, for any
event, line and size of the bet that were fixed before the runs. Proof: docs/proofs/audit.md, lemma 6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import expit, logit, rel_entr

from tulle.audit.claimed_curves import ClaimedCurve
from tulle.trusted.events import FloatArray

# Parts of the bet that would be best if the rates were those that were seen so far. Rates of an event that was chosen
# because it looked good are too good on average, and the smaller bets lose little then. The capitals are averaged.
FRACTIONS = np.array([0.25, 0.5, 1.0])


@dataclass(frozen=True)
class Bet:
    """A bet on one event.

    Attributes
    ----------
    hit_rate, false_rate : float
        The point (p0, q0) at which the line touches the claimed curve.
    slope : float
        k, the slope of the line.
    size : float
        c; 0 is no bet.
    """

    hit_rate: float
    false_rate: float
    slope: float
    size: float

    def log_factors(self, hits: npt.NDArray[np.bool_], false_hits: npt.NDArray[np.bool_]) -> FloatArray:
        """The logarithm of what each pair of runs multiplies the capital by, for each of FRACTIONS, a row each."""
        size = FRACTIONS[:, None] * self.size
        with np.errstate(divide="ignore"):
            ahead = np.log1p(size * (hits - self.hit_rate))
            return np.asarray(ahead + np.log1p(-size * self.slope * (false_hits - self.false_rate)))


NO_BET = Bet(0.5, 0.5, 1.0, 0.0)


def smoothed_rates(hits: FloatArray, runs: int) -> FloatArray:
    """Rates to bet on: never 0 or 1."""
    return (np.asarray(hits, dtype=float) + 0.5) / (runs + 1)


def _touching_points(hit_rate: FloatArray, false_rate: FloatArray, points: int) -> FloatArray:
    """False-hit rates between the two rates, where the curve is touched; one row for each pair of rates."""
    low, high = logit(false_rate), logit(np.maximum(hit_rate, false_rate))
    return np.asarray(expit(low[:, None] + (high - low)[:, None] * np.linspace(0, 1, points)))


def _divergence(claim: ClaimedCurve, hit_rate: FloatArray, false_rate: FloatArray, q: FloatArray) -> FloatArray:
    """How far, in nats, the rates are from each point of the curve; inf at points that are above them."""
    p = claim.allowed(q)
    hit_rate, false_rate = hit_rate[:, None], false_rate[:, None]
    distance = rel_entr(hit_rate, p) + rel_entr(1 - hit_rate, 1 - p)
    distance = distance + rel_entr(false_rate, q) + rel_entr(1 - false_rate, 1 - q)
    return np.where((p < hit_rate) & (p < 1), distance, math.inf)


def growth(claim: ClaimedCurve, hit_rate: FloatArray, false_rate: FloatArray, points: int = 24) -> FloatArray:
    """How fast, in nats for each pair of runs, the best bet grows at these rates; 0 where the claim allows them."""
    nearest = _divergence(claim, hit_rate, false_rate, _touching_points(hit_rate, false_rate, points)).min(axis=1)
    return np.where(np.isfinite(nearest), nearest, 0.0)


def best_bet(claim: ClaimedCurve, hit_rate: float, false_rate: float) -> Bet:
    """The bet that grows fastest if these are the rates: the line touches the curve where it is nearest to them.

    Where the point is found inexactly the bet grows more slowly and is as valid.
    """
    rates = np.array([hit_rate]), np.array([false_rate])
    q = _touching_points(*rates, points=400)
    distance = _divergence(claim, *rates, q)[0]
    place = int(np.argmin(distance))
    if not math.isfinite(distance[place]):
        return NO_BET
    touched = q[0, place]
    p = float(claim.allowed(touched))
    slope = float(claim.slope(touched))
    most = 1 / max(p, slope * (1 - touched))
    size = min((hit_rate - p) / (p * (1 - p)), (1 - 1e-9) * most)
    return Bet(p, float(touched), slope, size)
