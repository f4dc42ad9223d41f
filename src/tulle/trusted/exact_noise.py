"""Noise without rounding errors: a released value has exactly the law that its proof is about.

Trusted. A draw is a uniform number of which 64 bits are drawn at first. A transformation in float64 gives the noise
with a known error; where that error could change the released value (a border of the grid or a rival lies within it),
more bits are drawn and the question is decided in decimal arithmetic. Nothing depends on how large the exact answer is:
it is rounded to a public grid, noise is rounded to the same grid, and two whole numbers are added up.
Proof: docs/proofs/floating_point.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, Context, Decimal, DivisionByZero, InvalidOperation, Overflow, localcontext
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

# Nothing of tulle is imported: a user's device loads this (tulle.local), and no accountant with it.
FloatArray = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]

# Noise computed in float64 is within ERROR × (1 + its magnitude) of the noise that its uniform number stands for. The
# errors are below 2^-46; tests/trusted/test_exact_noise.py compares with decimal arithmetic.
ERROR = 2.0**-45
# The largest of these errors: 1024 bits give no noise beyond 40.
LARGEST_ERROR = 41 * ERROR
# Uniform numbers below 2^46 / 2^64 get more words, so that every one is known to a relative error of 2^-47.
_SHORT = 2**46
# Bits of one uniform number, at most. Numbers that agree in all of them cannot be told apart in practice.
_MOST_BITS = 1024
# A grid is usually this much finer than an answer's sensitivity, and the scale of noise is at most this many steps. The
# noise of very many numbers at once may need more; beyond the last figure it is no longer an exact float.
_FINE, _MANY_STEPS, _MOST_STEPS = 2.0**12, 2.0**32, 2.0**46
# Noise that is asked for never underflows to none, however little an answer moves and however little noise that is.
_LEAST_MOVED, _LEAST_SCALE = 1e-200, 1e-290
# Scores may differ by up to 600 orders of magnitude, and noise is compared to 77 digits.
_CHOICE_DIGITS = 700
# Beyond, an answer in units of its grid is cut: a cut moves no two answers further apart.
_LARGEST = 1e300


def _decimals(precision: int) -> Context:
    """Decimal arithmetic that does not depend on how a user has set up theirs."""
    return Context(precision, ROUND_HALF_EVEN, -999999, 999999, 1, 0, [], [InvalidOperation, DivisionByZero, Overflow])


class Draws:
    """Uniform numbers in (0, 1/2), each with a fair side, known to as many bits as a question needs: a uniform word is
    the first 63 bits of a number and its side, and the generator gives more bits."""

    def __init__(self, words: Words, generator: np.random.Generator) -> None:
        self._generator = generator
        self._words = words
        heads = (words >> np.uint64(1)).view(np.int64)  # no sign: signed numbers become floats faster
        self.values = heads.astype(np.float64)
        self.values += 0.5
        self.values *= 2.0**-64
        self._longer: dict[int, tuple[int, int]] = {}
        for place in np.flatnonzero(heads < _SHORT):
            while self.cell(int(place))[0] < _SHORT and self.cell(int(place))[1] < _MOST_BITS:
                self._extend(int(place))
            number, bits = self.cell(int(place))
            self.values[place] = math.ldexp(float(2 * number + 1), -bits - 1)

    @classmethod
    def fresh(cls, size: int, generator: np.random.Generator) -> Draws:
        return cls(generator.integers(0, 2**64, size, dtype=np.uint64), generator)

    @property
    def sides(self) -> npt.NDArray[np.bool_]:
        return (self._words & np.uint64(1)).astype(bool)

    def with_sides(self, magnitudes: FloatArray) -> FloatArray:
        """Magnitudes that are negative where the side is 1. Overwrites them."""
        magnitudes.view(np.uint64)[...] ^= self._words << np.uint64(63)  # the sign bit
        return magnitudes

    def cell(self, place: int) -> tuple[int, int]:
        """The known bits of a number: it lies between k and k + 1, in units of 2^-bits; returns k and bits."""
        return self._longer.get(place) or (int(self._words[place]) >> 1, 64)

    def _extend(self, place: int) -> None:
        number, bits = self.cell(place)
        self._longer[place] = number << 64 | int(self._generator.integers(0, 2**64, dtype=np.uint64)), bits + 64

    def is_below(self, place: int, border: Callable[[], Decimal]) -> bool:
        """Whether a number is below a border in (0, 1/2), which is computed to the precision of the decimal context."""
        while True:
            number, bits = self.cell(place)
            with localcontext(_decimals(int(0.302 * bits) + 40)):
                above = border() * 2**bits - number
            if above > Decimal("1.000001") or bits >= _MOST_BITS:
                return above > Decimal("0.5")
            if above < Decimal("-0.000001"):
                return False
            self._extend(place)

    def exactly(self, place: int) -> tuple[Decimal, bool]:
        """A number, to 256 bits or more, and its side."""
        while self.cell(place)[1] < 256:
            self._extend(place)
        number, bits = self.cell(place)
        return Decimal(2 * number + 1) / Decimal(2) ** (bits + 1), bool(self._words[place] & np.uint64(1))


def decimal_normal_tail(z: Decimal) -> Decimal:
    """P(N(0, 1) > z) for z >= 0, to the precision of the context except for its last few digits.

    1/2 - φ(z) (z + z³/3 + z⁵/(3·5) + ...). What cancels is made up for by as many more digits.
    """
    with localcontext() as context:
        wanted = context.prec
        context.prec = wanted + int(z * z / 2) + 20
        term = total = z
        k = 1
        while term > total.scaleb(-context.prec):
            k += 2
            term *= z * z / k
            total += term
        density = (-z * z / 2).exp() / (2 * decimal_pi()).sqrt()
        tail = Decimal("0.5") - density * total
    return +tail


def decimal_pi() -> Decimal:
    """π by Machin's formula, to the precision of the context."""
    with localcontext() as context:
        context.prec += 10

        def arctan_of_reciprocal(x: int) -> Decimal:
            power = total = Decimal(1) / x
            k = 1
            while abs(power) > Decimal(10) ** -context.prec:
                power /= -x * x
                k += 2
                total += power / k
            return total

        pi = 4 * (4 * arctan_of_reciprocal(5) - arctan_of_reciprocal(239))
    return +pi


class SymmetricLaw(NamedTuple):
    """Noise of scale 1 whose magnitude falls with a uniform number in (0, 1/2), and whose sign is the side."""

    magnitudes: Callable[[FloatArray], FloatArray]  # in float64, to within `ERROR` × (1 + magnitude)
    # The uniform number that has a magnitude, half the chance of a larger one: in decimal arithmetic.
    tail: Callable[[Decimal], Decimal]

    def noise(self, draws: Draws) -> FloatArray:
        return draws.with_sides(self.magnitudes(draws.values))


class ChoiceLaw(NamedTuple):
    """Noise of scale 1 on scores that are compared with each other: a function of a uniform number and a side."""

    noise: Callable[[Draws], FloatArray]  # in float64, to within `ERROR` × (1 + magnitude)
    noise_exactly: Callable[[Decimal, bool], Decimal]  # the same in decimal arithmetic


NORMAL = SymmetricLaw(lambda values: -ndtri(values), decimal_normal_tail)
LAPLACE = SymmetricLaw(lambda values: -np.log(2.0 * values), lambda magnitude: (-magnitude).exp() / 2)
LAPLACE_CHOICE = ChoiceLaw(LAPLACE.noise, lambda value, side: (2 * value).ln() * (1 if side else -1))
EXPONENTIAL = ChoiceLaw(
    lambda draws: np.where(draws.sides, -np.log(draws.values), -np.log1p(-draws.values)),
    lambda value, side: -(value if side else 1 - value).ln(),
)
# -log of an exponential draw: for *largest* score + noise.
GUMBEL = ChoiceLaw(
    lambda draws: -np.log(EXPONENTIAL.noise(draws)),
    lambda value, side: -EXPONENTIAL.noise_exactly(value, side).ln(),
)


def grid_and_scale(noise: float, moved: float, coordinates: float) -> tuple[float, float]:
    """A public grid, a power of two, and the scale of the noise on answers that are rounded to it.

    For noise > 0 per sensitivity and a sensitivity `moved` >= 0. Rounding takes two answers further apart by at most
    grid × `coordinates`, where that is √count in the ℓ2 norm and count in the ℓ1 norm. It joins the sensitivity:
    commonly one part in 4096 of it.
    """
    moved, coordinates = max(moved, _LEAST_MOVED), max(coordinates, 1.0)
    if not noise * moved < math.inf:
        raise ValueError(f"noise of {noise:g} times a sensitivity of {moved:g} is no float64")
    fine = max(moved * min(noise, 1.0) / (_FINE * coordinates), _LEAST_SCALE)
    # Not so fine that many draws lie within their error of a border.
    grid = 2.0 ** max(math.floor(math.log2(fine)), math.ceil(math.log2(max(noise * moved, fine) / (_MANY_STEPS / 2))))
    return grid, max(noise * (moved + grid * coordinates), _LEAST_SCALE)


def round_noise(law: SymmetricLaw, draws: Draws, steps: float) -> FloatArray:
    """Noise of a scale of `steps` units, rounded to whole units: exactly."""
    if not steps <= _MOST_STEPS:
        raise ValueError(f"noise of {steps:g} steps of its grid cannot be rounded exactly")
    magnitudes = law.magnitudes(draws.values)
    scaled = steps * magnitudes
    rounded = np.rint(scaled)
    # In doubt where the border between two whole numbers lies within the error: |scaled - rounded| + error > 1/2. In
    # place, since vectors can be long.
    error, distance = magnitudes, scaled - rounded
    error += 1.0
    error *= 2 * ERROR * steps
    np.abs(distance, out=distance)
    distance += error
    for place in np.flatnonzero(distance > 0.5):
        # Commonly one border, more where there are very many steps.
        low = max(math.floor(scaled[place] - error[place]), 0)
        high = math.ceil(scaled[place] + error[place])
        while low < high:
            middle = (low + high) // 2

            def border(middle: int = middle) -> Decimal:
                return law.tail((middle + Decimal("0.5")) / Decimal(steps))

            low, high = (middle + 1, high) if draws.is_below(int(place), border) else (low, middle)
        rounded[place] = low
    return draws.with_sides(rounded)


def in_units(exact: FloatArray, grid: float) -> FloatArray:
    """An exact answer in whole units of a grid."""
    units = exact / grid
    np.rint(units, out=units)
    return np.clip(units, -_LARGEST, _LARGEST, out=units)


def add_noise(
    exact: FloatArray, scale: float, grid: float, law: SymmetricLaw, generator: np.random.Generator
) -> FloatArray:
    """The exact answer and noise of a scale, in whole units of the grid: the sum of two whole numbers each.

    Of a sum beyond 2^53 the nearest float is given, which is a function of the sum.
    """
    noisy = in_units(exact, grid)
    noisy += round_noise(law, Draws.fresh(exact.size, generator), scale / grid).reshape(exact.shape)
    return noisy


def mark_largest(scores: FloatArray, k: int) -> npt.NDArray[np.bool_]:
    """Which are the k largest of each column of scores, k >= 0; all where there are no more of them."""
    size = len(scores)
    marked = np.full(scores.shape, k >= size)
    if 0 < k < size:
        np.put_along_axis(marked, np.argpartition(scores, size - k, axis=0)[size - k :], True, axis=0)
    return marked


def choose_largest(
    scores: FloatArray, scale: float, k: int, law: ChoiceLaw, generator: np.random.Generator
) -> npt.NDArray[np.bool_]:
    """Which are the k largest of scores + scale × noise, in each column of scores: decided exactly.

    For scale > 0 and k >= 0; where there are fewer candidates than k, all are chosen.
    """
    if not 0 < k < len(scores):
        return mark_largest(scores, k)
    draws = Draws.fresh(scores.size, generator)
    noise = law.noise(draws).reshape(scores.shape)
    noisy = scores + scale * noise
    error = (2 * ERROR * scale) * (1.0 + np.abs(noise)) + 2.0**-50 * np.abs(scores)
    chosen = mark_largest(noisy, k)
    low, high = noisy - error, noisy + error
    least = np.where(chosen, low, np.inf).min(axis=0)
    most = np.where(chosen, -np.inf, high).max(axis=0)
    for column in np.flatnonzero(~(least > most)):
        sure = chosen[:, column] & (low[:, column] > most[column])
        contested = np.flatnonzero(np.where(chosen[:, column], ~sure, high[:, column] >= least[column]))
        with localcontext(_decimals(_CHOICE_DIGITS)):
            exactly = [
                Decimal(float(scores[j, column]))
                + Decimal(scale) * law.noise_exactly(*draws.exactly(int(j) * scores.shape[1] + int(column)))
                for j in contested
            ]
        best = sorted(range(len(contested)), key=exactly.__getitem__, reverse=True)[: k - int(sure.sum())]
        chosen[:, column] = sure
        chosen[contested[best], column] = True
    return chosen
