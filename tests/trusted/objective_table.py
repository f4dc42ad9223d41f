"""Upper bounds on the factor F(xi) of docs/proofs/objective_perturbation.md, computed with roundings that go up.

Theorem 1 there: objective perturbation is mu F(xi)-GDP. F comes from two functions of a threshold t >= 0 (lemma 3):

    R(t), from a row that is taken away:  sup over U of ∫_0^1 φ(u) clip(1 - (t - ωu)/xi, 0, 1) dω,  u = min(U(ω), t/ω),
          U(ω) + ω/xi nonincreasing
    A(t), from a row that is added:       g(t) for one-sided losses; else sup over u0 of W(u0) + W(-u0),
          W(u0) = ∫_0^1 φ(u) max(1 - (ωu - t)/xi, 0) dω,  u = max(u0 + ω/xi, t/ω)

    F(xi) = 1/2 sup over z <= 0 of [ inf_t (R(t) + t Φ(z)) + inf_t (A(t) + t Φ(z)) ] / φ(z).

Every sup over a continuum is taken over cells whose values are bounded from above, every inf over a grid. All functions
of t are multiplied by √(2π) exp(t²/2), which keeps them within the range of floats. Run as a script, this prints the
table of `tulle.trusted.events`.
"""

from __future__ import annotations

import math
import sys

import numpy as np
import numpy.typing as npt
from scipy.special import erfcx

Array = npt.NDArray[np.float64]

# What rounding of float64 can hide in any value below: 1 - t mills(t) loses the most, 1e-10 for t below 400.
UP = 1 + 1e-9


def mills(x: Array | float) -> Array:
    """(1 - Φ(x)) / φ(x)."""
    return math.sqrt(math.pi / 2) * np.asarray(erfcx(np.asarray(x) / math.sqrt(2)))


def gaussian(t: Array | float) -> Array:
    """g(t) = φ(t) - t (1 - Φ(t)), scaled: 1 - t mills(t)."""
    return 1 - np.asarray(t) * mills(t)


def removed_far(t: float, xi: float, cells: int = 400) -> float:
    """R(t) for t > xi, where the constraint on U hardly matters: it is dropped, which only adds.

    The best u for ω is (t - xi η)/ω with η in closed form. Relative to φ(t/ω) the integrand does not increase with ω,
    so that it is bounded by its value at the left end of a cell; ∫φ(t/ω) dω = ω g(t/ω).
    """
    assert t > xi
    least = min((t - xi) / math.sqrt(t * t + 100), 0.5)
    ends = np.append(least + (1 - least) * (1 - np.geomspace(1, 1e-6, cells)), 1.0)
    left = ends[:-1]
    eta = np.clip((xi + t - np.sqrt((t - xi) ** 2 + 4 * left**2)) / (2 * xi), 0.0, 1.0)
    ratio = np.log1p(-eta) + (xi * eta * t - (xi * eta) ** 2 / 2) / left**2
    logs = np.log(ends) - t * t * (1 / ends**2 - 1) / 2 + np.log(gaussian(t / ends))
    terms = np.exp(ratio + logs[1:]) * -np.expm1(logs[:-1] - logs[1:])
    # Below the least ω the integrand is at most φ((t - xi)/ω).
    rest = least * math.exp((t * t - ((t - xi) / least) ** 2) / 2)
    return float(terms.sum() + rest) * UP


def removed_near(t: float, xi: float, cells: int = 400, levels: int = 1500) -> tuple[float, float]:
    """R(t) of one-sided and of two-sided losses, by a dynamic programme over V = U + ω/xi, which does not increase.

    In every cell of ω the value is the largest that any V of one level allows; the levels do not increase. For
    two-sided losses the row pulls one way up to u0 and the other way beyond it: V <= u0 for the one, V <= -u0 for the
    other, and both add up.
    """
    top = 9.0 + 1 / xi
    inner = np.linspace(-top, top, levels - 1)
    low, high = np.append(-np.inf, inner), np.append(inner, np.inf)
    best = np.zeros(levels)
    for cell in range(cells - 1, -1, -1):
        left, right = cell / cells, (cell + 1) / cells
        smallest = np.minimum(low - right / xi, t / right)
        largest = np.minimum(high - left / xi, t / left if left else np.inf)
        with np.errstate(invalid="ignore"):
            product = np.minimum(np.where(largest > 0, largest * right, largest * left), t)
        share = np.clip(1 - (t - np.nan_to_num(product, nan=0.0, posinf=t, neginf=-np.inf)) / xi, 0.0, 1.0)
        nearest = np.clip(0.0, smallest, largest)
        value = np.exp((t * t - nearest**2) / 2) * share
        best = value / cells + np.maximum.accumulate(best)
    best = np.maximum.accumulate(best)
    return float(best[-1]) * UP, float(np.max(best + best[::-1])) * UP


def added_two_sided(t: float, xi: float, cells: int = 1000, points: int = 120) -> float:
    """A(t) of two-sided losses: W does not increase with u0, so between two points it is bounded by both of them."""
    if t > 1.6 / xi:  # both tails at once, which is the most that there can be
        return 2 * float(gaussian(t)) * UP
    far = max(t + xi, 9.0)
    starts = np.concatenate([[-np.inf], np.linspace(-far, far, 2 * points + 1)])
    ends = np.linspace(0, 1, cells + 1)
    left, right = ends[:-1], ends[1:]
    lowest = np.maximum(starts[:, None] + left / xi, t / right)  # of u in a cell
    with np.errstate(invalid="ignore"):
        product = np.fmax((starts[:, None] + left / xi) * left, t)  # of ωu
    values = np.exp((t * t - np.maximum(lowest, 0.0) ** 2) / 2) * np.clip(1 - (product - t) / xi, 0.0, None)
    # Where u is t/ω in the whole cell, its integral is known.
    known = np.maximum(_mass(right, t) - _mass(left, t), 0.0)
    own = (starts[:, None] + right / xi) * right <= t
    whole = np.where(own, known, values * (right - left)).sum(axis=1)
    # u0 in [starts[j], starts[j + 1]]: W(starts[j]) + W(-starts[j + 1]); beyond the last, W(last) + W(-inf).
    finite = whole[1:]
    pairs = finite[:-1] + finite[::-1][1:]
    return float(max(pairs.max(), finite[-1] + whole[0])) * UP


def _mass(omega: Array, t: float) -> Array:
    """∫_0^ω φ(t/x) dx, scaled."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        mass = omega * np.exp(t * t * (1 - 1 / omega**2) / 2) * gaussian(t / omega)
    return np.nan_to_num(mass, nan=0.0) if t else omega


def thresholds(xi: float) -> Array:
    """The grid of t: fine, and as far as F's bound is not known in closed form."""
    return np.concatenate([np.arange(0.0, 3.0, 0.05), np.arange(3.0, farthest(xi) + 2 * xi + 1, 0.04)])


def farthest(xi: float) -> float:
    return 11.0 / xi + 3.0


def least_shift(t: Array, values: Array, z: Array, reach: float) -> Array:
    """An upper bound, in each cell of neighbouring z, of inf over t of (R(t) + t Φ(z)) / φ(z).

    For one t this is convex in z (exp(z²/2) and Mills' ratio are), so it is largest at an end of the cell.
    """
    x = -z
    result = np.full(len(z) - 1, np.inf)
    first = np.clip(np.searchsorted(t, np.minimum(x[:-1], x[1:])) - 3, 0, len(t) - 1)
    steps = math.ceil((reach + float(np.max(np.abs(np.diff(z))))) / 0.04) + 6
    ratio = mills(x)
    for step in range(steps):
        k = np.minimum(first + step, len(t) - 1)
        ends = [values[k] * np.exp((x[i:j] ** 2 - t[k] ** 2) / 2) + t[k] * ratio[i:j] for i, j in ((0, -1), (1, None))]
        result = np.minimum(result, np.maximum(*ends))
    return result


def factors(xi: float) -> tuple[float, float]:
    """Upper bounds of F(xi), xi > 0, for one-sided and for two-sided losses."""
    t, far = thresholds(xi), farthest(xi)
    border = max(2.5, xi + 1.0)
    removed = np.array([removed_near(x, xi) if x < border else (removed_far(x, xi),) * 2 for x in t])
    added = np.array([added_two_sided(x, xi) for x in t])
    z = -np.linspace(0.0, far, 200 + int(100 * far))
    one, two = (least_shift(t, removed[:, side], z, 1.2 * xi + 0.2) for side in (0, 1))
    # Beyond: 1 + xi/|z| for the row that is taken away and 1 + log 2/z² for the one that is added.
    one_sided = max(float(np.max(one + 1)), 2 + xi / far)
    two_sided = max(float(np.max(two + least_shift(t, added, z, 1.0))), 2 + xi / far + math.log(2) / far**2)
    return one_sided / 2 * UP, two_sided / 2 * UP


XI = (
    0.1,
    0.15,
    0.2,
    0.25,
    0.3,
    0.35,
    0.4,
    0.45,
    0.5,
    0.55,
    0.6,
    0.65,
    0.7,
    0.75,
    0.8,
    0.9,
    1.0,
    1.2,
    1.4,
    1.6,
    2.0,
    2.5,
    3.0,
    4.0,
)

if __name__ == "__main__":
    for xi in XI if len(sys.argv) < 2 else map(float, sys.argv[1:]):
        one, two = factors(xi)
        print(f"{xi:g} {one:.6f} {two:.6f}", flush=True)
