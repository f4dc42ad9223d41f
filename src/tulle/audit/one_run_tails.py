"""The number of right guesses in one run: how likely a claim makes so many, at most.

Each of m rows is one of two versions by a fair coin, a mechanism that keeps a claimed trade-off curve is run once, and
r coins are guessed from what it released. Let W be the number of right guesses. docs/proofs/audit.md, theorem 9, turns
a line that lies above the claimed curve into a lower bound on P(W >= c - 1) in terms of P(W >= c), P(W >= c + 1), ...
Followed down to c = 0, where the probability is 1 at most, they bound P(W >= v) from above.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from tulle.audit.claimed_curves import ClaimedCurve
from tulle.trusted.events import FloatArray

IntArray = npt.NDArray[np.int_]

# Where lines touch the curve, as normal quantiles of the false-hit rate. More lines would give sharper bounds; any
# choice gives true ones.
_TOUCHES = ndtr(np.arange(-9.0, 6.01, 0.1))
# Rounding, with room: of heights, of slopes, and of numbers compared with 1.
_ROUNDING = 1e-11
_STEEPER = 1 + 1e-12
_MARGIN = 1e-9
_CANDIDATES = 12


@dataclass(frozen=True, eq=False)
class Lines:
    """Lines that lie above a claimed curve: hit rate <= height + slope * false-hit rate."""

    slopes: FloatArray
    heights: FloatArray


def touching_lines(claim: ClaimedCurve, moved: float = 0.0) -> Lines:
    """Lines that touch the curve from above. `moved`: how far each world may lie from one that keeps the claim, in
    total variation."""
    slopes, allowed = claim.slope(_TOUCHES), claim.allowed(_TOUCHES)
    heights = np.maximum(allowed - slopes * _TOUCHES, 0.0) + _ROUNDING * allowed
    # A flat line says hardly more than that rates are 1 at most, and to divide by its slope would enlarge rounding.
    steep = (slopes > 1e-3) & (slopes < 1e300)
    slopes, heights = np.where(steep, slopes, 1.0), np.where(steep, heights, 1.0)
    # A slope that is rounded down would cut the curve to the right; one that is too steep by less than _ROUNDING does
    # not cut it to the left.
    slopes = slopes * _STEEPER
    return Lines(slopes, heights + moved * (1 + slopes))


def are_refuted(
    canaries: int, guesses: Sequence[int], right: Sequence[int], failures: Sequence[float], claims: Sequence[Lines]
) -> list[bool]:
    """For each entry, whether so many right guesses have a probability below `failure` under the claim.

    Parameters
    ----------
    canaries : int
    guesses : sequence of int
        From 1 to `canaries`.
    right : sequence of int
        From 0 to the guesses.
    failures : sequence of float
        In (0, 1).
    claims : sequence of Lines
    """
    r, v, failure = np.array(guesses), np.array(right), np.array(failures, dtype=float)
    slopes, heights = np.array([one.slopes for one in claims]), np.array([one.heights for one in claims])
    pulled = _equalised(r[:, None], v[:, None], slopes) * failure[:, None] - canaries * heights
    # below: P(c <= W < v), at least, with c = v at first; summed: of all larger c.
    below, summed = np.zeros(len(r)), np.zeros(len(r))
    found = np.zeros(len(r), dtype=bool)
    for step in range(int(v.max(initial=0))):
        c = v - step
        weighted = c * below + summed
        least = np.max((pulled + weighted[:, None]) / slopes, axis=1) + below + summed
        summed = summed + below
        below = np.where(c >= 1, np.maximum(below, least / np.maximum(r - c + 1, 1)), below)
        found |= below + failure > 1 + _MARGIN
        if np.all(found | (c <= 1)):
            break
        below = np.minimum(below, 2.0)  # decided already; keeps sums finite
    return [bool(one) for one in found]


def _equalised(r: IntArray, v: IntArray, slopes: FloatArray) -> FloatArray:
    """v P(B = v) / P(B >= v) for B binomial of r draws with odds `slopes`, from below: what each unit of P(W >= v)
    adds, wherever above v it lies.

    By the recursion of the proof, in which all terms are positive: the incomplete beta function of SciPy is wrong in
    its third digit near 1e-280.
    """
    tail = np.ones_like(slopes)  # P(B >= w) / P(B = w), from w = r down to v
    with np.errstate(over="ignore"):  # so large a tail that nothing is added
        for step in range(int(np.max(r - v, initial=0))):
            w = r - 1 - step
            longer = 1 + slopes * (step + 1) / np.maximum(w + 1, 1) * tail
            tail = np.where(w >= v, longer, tail)
    return np.asarray(v / tail * (1 - _MARGIN - 1e-15 * r))


def tail_bound(canaries: int, guesses: int, right: int, lines: Lines) -> float:
    """The probability of so many right guesses under a claim, at most."""
    if right == 0:
        return 1.0

    def excluded(logs: FloatArray) -> list[bool]:
        n = len(logs)
        return are_refuted(canaries, [guesses] * n, [right] * n, np.exp(logs), [lines] * n)  # type: ignore[arg-type]

    low, high = -700.0, 0.0
    while high - low > 1e-9 * max(1.0, -low):
        middles = np.linspace(low, high, _CANDIDATES + 2)[1:-1]
        low, high = _shrink(low, high, middles, [not one for one in excluded(middles)])
    return math.exp(high)


def largest_refuted(
    canaries: int,
    guesses: int,
    right: int,
    failure: float,
    claim_of: Callable[[float], ClaimedCurve],
    most: float,
    moved: float = 0.0,
) -> float:
    """The largest value in [0, most] whose claim is refuted by so many right guesses; 0 where none is.

    `claim_of(value)` must allow more the larger the value is.
    """

    def refuted(values: FloatArray) -> list[bool]:
        n = len(values)
        claims = [touching_lines(claim_of(float(value)), moved) for value in values]
        return are_refuted(canaries, [guesses] * n, [right] * n, [failure] * n, claims)

    low, high = 0.0, most
    if not refuted(np.zeros(1))[0]:
        return 0.0
    while high - low > 1e-7:
        middles = np.linspace(low, high, _CANDIDATES + 2)[1:-1]
        low, high = _shrink(low, high, middles, refuted(middles))
    return low


def _shrink(low: float, high: float, middles: FloatArray, is_low: list[bool]) -> tuple[float, float]:
    """The part of an interval between the last value that is low and the first that is not."""
    first = is_low.index(False) if False in is_low else len(middles)
    below, above = (low if first == 0 else middles[first - 1]), (high if first == len(middles) else middles[first])
    return float(below), float(above)


def fewest_right(canaries: int, guesses: Sequence[int], failure: float, lines: Lines) -> list[int]:
    """For each number of guesses, the fewest right ones that refute the claim; one more than the guesses where none
    does."""
    low, high = np.zeros(len(guesses), dtype=int), np.array(guesses) + 1
    while np.any(high - low > 1):
        middle = (low + high) // 2
        middle = np.maximum(middle, 1)
        refuted = are_refuted(canaries, guesses, middle.tolist(), [failure] * len(middle), [lines] * len(middle))
        low, high = np.where(refuted, low, middle), np.where(refuted, middle, high)
    return [int(one) for one in high]
