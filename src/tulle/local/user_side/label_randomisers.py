"""Randomisers of one number in [-B, B], and of one class among several.

| channel | paper | best for |
| --- | --- | --- |
| `TwoPoint` | Duchi, Jordan, Wainwright 2018 | epsilon below 0.61 |
| `Piecewise` | Wang et al., ICDE 2019 | large epsilon, if values are mostly small |
| `Hybrid` | the same | epsilon above 0.61: the least worst-case variance of all |
| `LaplaceLabel` | Dwork et al. 2006 | comparison |
| `GaussianLabel` | Wang and Xu 2019 (label-LDP-IHT) | comparison; it needs a delta and has the most noise |
| `RandomisedResponse` | Warner 1965 | classes |

The computed answers keep the promise, with no delta but the Gaussian one's: chances of answers have small relative
errors, for which epsilon leaves room, and noise is rounded to whole numbers exactly (`tulle.trusted.exact_noise`).
Proof: docs/proofs/label_randomisers.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, cast

import numpy as np

from tulle.accounting.gaussian_budget import gaussian_mu
from tulle.local.user_side.channel import Channel, IntArray, check_count, on_lattice
from tulle.local.user_side.uniforms import FloatArray
from tulle.trusted.exact_noise import LAPLACE, NORMAL, Draws, SymmetricLaw, round_noise

# Continuous answers are whole multiples of 2^-12 of their scale.
_GRID = 2.0**-12

# Below it a mixture with `Piecewise` only adds noise (Wang et al. 2019, section 3.3).
_ROOTS = ((6353 - 405 * math.sqrt(241)) ** (1 / 3), (6353 + 405 * math.sqrt(241)) ** (1 / 3))
_MIXING_FROM = math.log((-5 + 2 * sum(_ROOTS)) / 27)

# Room in epsilon for cells of `Piecewise` whose chances are off by some points of the lattice of uniforms: at most one
# part in 2^33 (docs/proofs/label_randomisers.md, lemma 10).
_ROOM_OF_CELLS = 2.0**-30

# More would make one class in some thousand points of the lattice of uniforms.
_MOST_CLASSES = 2**22

# Uniforms that one draw of noise is made of, of 52 bits each.
_NOISE_UNIFORMS = 4


@dataclass(frozen=True)
class LabelChannel(Channel):
    """A randomiser of one number."""

    def answer(self, values: FloatArray, uniforms: FloatArray) -> IntArray:
        with np.errstate(all="ignore"):
            shares = np.clip(np.nan_to_num(values[:, 0] / self.bound, nan=0.0), -1.0, 1.0)
        return self._answer(shares, uniforms)[:, None]

    def _answer(self, shares: FloatArray, uniforms: FloatArray) -> IntArray:
        """The answers to values of -1 to 1 bounds."""
        raise NotImplementedError


@dataclass(frozen=True)
class TwoPoint(LabelChannel):
    """One of two answers, ±B (e^epsilon + 1)/(e^epsilon - 1)."""

    name = "two_point"

    @property
    def n_uniforms(self) -> int:
        return 1

    @cached_property
    def slant(self) -> float:
        """How much likelier the end on a value's own side is, for a value at the bound; halves of it are exact."""
        return 2 * on_lattice(math.tanh(self.kept_epsilon / 2) / 2)

    @property
    def unit(self) -> float:
        return self.bound / self.slant

    @property
    def largest(self) -> int:
        return 1

    def possible(self, answer: IntArray) -> bool:
        return super().possible(answer) and bool(np.all(answer != 0))

    @property
    def worst_variance(self) -> float:
        return self.unit**2  # at 0

    def _answer(self, shares: FloatArray, uniforms: FloatArray) -> IntArray:
        up = uniforms[:, 0] < 0.5 + shares * (self.slant / 2)
        return np.where(up, 1, -1).astype(np.int64)


@dataclass(frozen=True)
class Piecewise(LabelChannel):
    """A number in [-C B, C B], e^epsilon times as likely in a window about the value as outside of it."""

    name = "piecewise"

    @property
    def n_uniforms(self) -> int:
        return 2

    @property
    def kept_epsilon(self) -> float:
        return super().kept_epsilon - _ROOM_OF_CELLS

    @cached_property
    def reach(self) -> float:
        """C = (e^(epsilon/2) + 1)/(e^(epsilon/2) - 1)."""
        return 1 / math.tanh(self.kept_epsilon / 4)

    @property
    def unit(self) -> float:
        return self.bound * self.reach * _GRID

    @property
    def largest(self) -> int:
        return round(1 / _GRID)

    @property
    def worst_variance(self) -> float:
        return self.variance(1.0)

    def variance(self, share: float) -> float:
        """The variance of an answer to a value of `share` bounds."""
        less_one = math.expm1(self.kept_epsilon / 2)
        return self.bound**2 * (share**2 / less_one + (less_one + 4) / (3 * less_one**2))

    def _answer(self, shares: FloatArray, uniforms: FloatArray) -> IntArray:
        return _whole(self.point(shares, uniforms) / self.reach)

    def point(self, shares: FloatArray, uniforms: FloatArray) -> FloatArray:
        """The answers in units of the bound, before they are put on the grid."""
        window = self.reach - 1
        low = (self.reach + 1) / 2 * shares - window / 2
        near, place = uniforms[:, 0], uniforms[:, 1]
        # Outside: the interval without the window, of length C + 1, laid out from -C and with the window stepped over.
        outside = -self.reach + place * (self.reach + 1)
        outside = np.where(outside < low, outside, outside + window)
        in_window = on_lattice(1 / (1 + math.exp(-self.kept_epsilon / 2)))
        return np.where(near < in_window, low + place * window, outside)


@dataclass(frozen=True)
class Hybrid(LabelChannel):
    """`Piecewise` with chance 1 - e^(-epsilon/2), else `TwoPoint`: which of them does not depend on the value."""

    name = "hybrid"

    @property
    def n_uniforms(self) -> int:
        return 3

    @cached_property
    def mixing(self) -> float:
        """The chance of `Piecewise`."""
        return -math.expm1(-self.epsilon / 2) if self.epsilon > _MIXING_FROM else 0.0

    @cached_property
    def _parts(self) -> tuple[TwoPoint, Piecewise]:
        return TwoPoint(self.epsilon, self.bound), Piecewise(self.epsilon, self.bound)

    @property
    def unit(self) -> float:
        return self._parts[0].unit * _GRID  # both of its points are whole numbers

    @property
    def largest(self) -> int:
        # What lies beyond the last whole number counts as that: a sliver of a cell would have a chance of its own, of
        # few points of the lattice.
        two_point, piecewise = self._parts
        return math.floor(max(1.0, piecewise.reach * two_point.slant) / _GRID) if self.mixing else round(1 / _GRID)

    @property
    def worst_variance(self) -> float:
        # Quadratic in the value, so at 0 or at the bound.
        two_point, piecewise = self._parts
        return max(
            self.mixing * piecewise.variance(share)
            + (1 - self.mixing) * (two_point.worst_variance - (share * self.bound) ** 2)
            for share in (0.0, 1.0)
        )

    def _answer(self, shares: FloatArray, uniforms: FloatArray) -> IntArray:
        two_point, piecewise = self._parts
        rest = uniforms[:, 1:]
        points = np.clip(_whole(piecewise.point(shares, rest) * two_point.slant), -self.largest, self.largest)
        ends = two_point._answer(shares, rest) * round(1 / _GRID)
        return np.where(uniforms[:, 0] < self.mixing, points, ends)


class _OwnDraws(Draws):
    """Draws whose bits are users' own uniforms, and zeros where those end: noise rises with the first of a user's.

    Parameters
    ----------
    uniforms : array of shape (users, _NOISE_UNIFORMS)
    """

    def __init__(self, uniforms: FloatArray) -> None:
        self._chunks = np.floor(uniforms * 2.0**52).astype(np.uint64)
        first = self._chunks[:, 0] << np.uint64(12) | self._chunks[:, 1] >> np.uint64(40)
        # Above 1/2 the distance to 1 counts: all bits are inverted.
        self._above = first >> np.uint64(63) == 1
        words = np.where(self._above, ~first, first) << np.uint64(1) | ~self._above
        super().__init__(words, cast(np.random.Generator, None))  # never asked: see `_extend`

    def _extend(self, place: int) -> None:
        number, bits = self.cell(place)
        own = 0
        for chunk in self._chunks[place]:
            own = own << 52 | int(chunk)
        end = 52 * self._chunks.shape[1] - bits - 64
        word = (own >> end if end >= 0 else own << -end) & (2**64 - 1)
        self._longer[place] = number << 64 | (2**64 - 1 - word if self._above[place] else word), bits + 64


@dataclass(frozen=True)
class NoisyLabel(LabelChannel):
    """The value plus noise, both whole numbers of one unit.

    The bounds are whole numbers as well, so that values are no further apart after rounding; a value between two of
    them is rounded to either by chance, without bias. What lies beyond `largest` counts as that.
    """

    LAW: ClassVar[SymmetricLaw]
    FARTHEST: ClassVar[float]  # noise beyond so many scales is cut off with the answer

    @property
    def n_uniforms(self) -> int:
        return 1 + _NOISE_UNIFORMS

    @property
    def scale(self) -> float:
        """Of the noise, in units of the bound."""
        raise NotImplementedError

    @cached_property
    def steps(self) -> int:
        """How many units the bound is."""
        return math.ceil(1 / (self.scale * _GRID))

    @property
    def unit(self) -> float:
        return self.bound / self.steps

    @property
    def largest(self) -> int:
        return self.steps + math.ceil(self.FARTHEST * self.scale * self.steps)

    def _answer(self, shares: FloatArray, uniforms: FloatArray) -> IntArray:
        exact = shares * self.steps
        below = np.floor(exact)
        whole = below + (uniforms[:, _NOISE_UNIFORMS] < exact - below)
        noise = round_noise(self.LAW, _OwnDraws(uniforms[:, :_NOISE_UNIFORMS]), self.scale * self.steps)
        return np.clip(whole + noise, -self.largest, self.largest).astype(np.int64)


@dataclass(frozen=True)
class LaplaceLabel(NoisyLabel):
    """The value plus Laplace noise of scale 2B/epsilon."""

    name = "laplace"

    LAW: ClassVar[SymmetricLaw] = LAPLACE
    FARTHEST: ClassVar[float] = 60.0

    @property
    def scale(self) -> float:
        return 2 / self.kept_epsilon

    @property
    def worst_variance(self) -> float:
        return 2 * (self.bound * self.scale) ** 2


@dataclass(frozen=True)
class GaussianLabel(NoisyLabel):
    """The value plus Gaussian noise, the exact one for (epsilon, delta).

    Parameters
    ----------
    epsilon : float
        In [1e-6, 16].
    bound : float
        In [1e-100, 1e100].
    gaussian_delta : float
        In [1e-100, 1).
    """

    name = "gaussian"

    LAW: ClassVar[SymmetricLaw] = NORMAL
    FARTHEST: ClassVar[float] = 9.0

    gaussian_delta: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (isinstance(self.gaussian_delta, float) and 1e-100 <= self.gaussian_delta < 1):
            raise ValueError(f"GaussianLabel needs a delta in [1e-100, 1), got {self.gaussian_delta!r}")

    @property
    def delta(self) -> float:
        return self.gaussian_delta

    @cached_property
    def scale(self) -> float:
        """The standard deviation, in units of the bound; two values are at most two bounds apart."""
        # With room for what `gaussian_epsilon` adds when this noise is accounted for.
        return 2 / gaussian_mu(self.epsilon * (1 - 2e-7), self.gaussian_delta)

    @property
    def worst_variance(self) -> float:
        return (self.bound * self.scale) ** 2


def _whole(points: FloatArray) -> IntArray:
    return np.round(points / _GRID).astype(np.int64)


def best_label_channel(epsilon: float, bound: float) -> LabelChannel:
    """The purely private channel with the least variance for the worst value."""
    candidates = (TwoPoint, Piecewise, Hybrid, LaplaceLabel)
    return min((cls(epsilon, bound) for cls in candidates), key=lambda channel: channel.worst_variance)


@dataclass(frozen=True)
class RandomisedResponse(Channel):
    """One class among several: the true one with chance e^epsilon/(e^epsilon + k - 1), else any other.

    Parameters
    ----------
    epsilon : float
        In [1e-6, 16].
    bound : float
        1.0; there is nothing to bound.
    n_classes : int
        k, from 2 to 2^22. Values are class numbers, 0 to k - 1.
    """

    name = "randomised_response"

    n_classes: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("RandomisedResponse(n_classes=...)", self.n_classes, 2)
        if self.n_classes > _MOST_CLASSES:
            raise ValueError(f"RandomisedResponse(n_classes=...) must be at most {_MOST_CLASSES:,}")
        if self.bound != 1:
            raise ValueError(f"RandomisedResponse has no bound: use bound=1.0, not {self.bound!r}")

    @property
    def n_uniforms(self) -> int:
        return 2

    @property
    def kept_epsilon(self) -> float:
        # Each of the other classes has its share of the lattice of uniforms, to within two points.
        return super().kept_epsilon - 2.0**-50 * self.n_classes

    @cached_property
    def chance(self) -> float:
        """The chance of the true class."""
        return on_lattice(1 / (1 + (self.n_classes - 1) * math.exp(-self.kept_epsilon)))

    @property
    def unit(self) -> float:
        return 1.0  # answers are class numbers; see `indicators`

    @property
    def largest(self) -> int:
        return self.n_classes - 1

    @property
    def _false(self) -> float:
        """The chance of each class that is not the true one."""
        return (1 - self.chance) / (self.n_classes - 1)

    @property
    def worst_variance(self) -> float:
        """Of `indicators`, summed over the classes; the same for all values."""
        false = (self.n_classes - 1) * self._false * (1 - self._false)
        return (self.chance * (1 - self.chance) + false) / (self.chance - self._false) ** 2

    def answer(self, values: FloatArray, uniforms: FloatArray) -> IntArray:
        with np.errstate(all="ignore"):
            codes = np.clip(np.nan_to_num(values[:, 0], nan=0.0), 0, self.largest).astype(np.int64)
        # One of the other classes, each as likely as the next.
        others = np.minimum((uniforms[:, 1] * (self.n_classes - 1)).astype(np.int64), self.n_classes - 2)
        others += others >= codes
        return np.where(uniforms[:, 0] < self.chance, codes, others)[:, None]

    def possible(self, answer: IntArray) -> bool:
        return super().possible(answer) and bool(np.all(answer >= 0))

    def indicators(self, answers: IntArray) -> FloatArray:
        """Unbiased estimates of which class each user is of: shape (users, classes), rows that sum to 1."""
        given = answers[:, None] == np.arange(self.n_classes)
        return np.asarray((given - self._false) / (self.chance - self._false))
