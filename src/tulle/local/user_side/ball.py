"""Randomisers of vectors in the Euclidean ball: the hemisphere of Duchi, Jordan and Wainwright (2018), and PrivUnit of
Bhowmick et al. (2018) with the cap that serves best.

A vector v of norm at most r becomes a direction u = ±v/|v|, the sign such that E u = v/r. The answer is a random
direction U: with chance p0 uniform on the cap {<U, u> >= g} of the sphere, else uniform on the rest. With q the
sphere's share that lies in the cap, p0/(1 - p0) = e^epsilon q/(1 - q) makes the two densities differ by exactly
e^epsilon, so the channel is epsilon-private for every g. Z = (r/m) U is unbiased for m = E<U, u>, and the g that
makes m largest gives the least noise. The hemisphere is g = 0.

Proof: docs/proofs/ball_randomisers.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import betaincc, betainccinv, betaincinv, betaln, expit, ndtri

from tulle.local.user_side.channel import Channel, IntArray, check_count, on_lattice
from tulle.local.user_side.uniforms import FloatArray

# An entry of a direction is about 1/sqrt(dimension); answers are whole multiples of at most 2^-10 of that. The more
# entries, the likelier that a rounding error carries one of them over a border of the grid: many have a coarser one.
_GRID_BITS, _FEWER_BITS, _MANY = 10, 6, 64

# The chance of a smaller cap would be lost among 52 random bits; the best caps have shares above 1e-6.
_LEAST_SHARE = 1e-9


@dataclass(frozen=True)
class PrivUnit(Channel):
    """A vector in a ball, answered by a random direction. Purely epsilon-private, except for rounding errors.

    Parameters
    ----------
    epsilon : float
        In [1e-6, 16].
    bound : float
        The radius r of the ball, in [1e-100, 1e100].
    dimension : int
        At least 1.
    cap : float
        The height g of the cap, in [0, 1). Any that leaves 1e-9 of the sphere or more is as private as any other;
        `PrivUnit.best` has the least noise.
    """

    name = "priv_unit"

    dimension: int
    cap: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("PrivUnit(dimension=...)", self.dimension, 1)
        if not (isinstance(self.cap, (int, float)) and 0 <= self.cap < 1):
            raise ValueError(f"PrivUnit(cap=...) must lie in [0, 1), got {self.cap!r}")
        if self.dimension == 1 and self.cap > 0:
            raise ValueError("in one dimension there is no cap: use PrivUnit(cap=0.0)")
        if self.share < _LEAST_SHARE:
            raise ValueError(
                f"a cap of height {self.cap} has almost no mass in {self.dimension} dimensions; use PrivUnit.best"
            )

    @classmethod
    def best(cls, epsilon: float, bound: float, dimension: int) -> PrivUnit:
        """The randomiser with the least noise at an epsilon."""
        hemisphere = cls.hemisphere(epsilon, bound, dimension)  # checks all three
        return cls(hemisphere.epsilon, hemisphere.bound, hemisphere.dimension, best_cap(float(epsilon), int(dimension)))

    @classmethod
    def hemisphere(cls, epsilon: float, bound: float, dimension: int) -> PrivUnit:
        """Duchi, Jordan and Wainwright's randomiser: the cap is half of the sphere."""
        return cls(epsilon, bound, dimension, 0.0)

    @property
    def width(self) -> int:
        return self.dimension

    @cached_property
    def share(self) -> float:
        """q: the part of the sphere that lies in the cap."""
        return cap_share(self.cap, self.dimension)

    @cached_property
    def chance(self) -> float:
        """p0: the chance that an answer lies in the cap."""
        return on_lattice(float(expit(self.kept_epsilon + math.log(self.share) - math.log1p(-self.share))))

    @cached_property
    def mean(self) -> float:
        """m: the mean component of an answer's direction along the value's."""
        return mean_component(self.chance, self.cap, self.share, self.dimension)

    @property
    def n_uniforms(self) -> int:
        return self.dimension + 3

    @property
    def largest(self) -> int:
        return 2 ** (self._grid_bits + math.ceil(math.log2(self.dimension) / 2))

    @property
    def _grid_bits(self) -> int:
        return _GRID_BITS if self.dimension < _MANY else _FEWER_BITS

    @property
    def unit(self) -> float:
        return self.bound / (self.mean * self.largest)

    @property
    def worst_variance(self) -> float:
        return (self.bound / self.mean) ** 2  # at value 0; |Z| is the same for all

    @property
    def rounding(self) -> float:
        if self.dimension == 1:
            return 0.0  # two answers, of which each has a chance that 52 bits have exactly
        # 64 units in the last place of an entry's typical size, against a cell of 2^-11 of it or more; and against the
        # width of the cap, where that is less than a cell (docs/proofs/ball_randomisers.md, lemmas 7 to 9).
        narrow = 4 * (1 + math.sqrt(self.dimension) * self.cap) / ((1 - self.cap) * (1 + self.cap))
        return 64 * 2.0**-53 * self.dimension * (2.0 ** (self._grid_bits + 1) + narrow)

    def answer(self, values: FloatArray, uniforms: FloatArray) -> IntArray:
        coin, inside, height, *_ = uniforms.T
        direction = self._directions(values, coin)
        # The share of the sphere that lies above the answer: up to q inside of the cap, from q to 1 outside.
        above = np.where(inside < self.chance, height * self.share, self.share + height * (1 - self.share))
        along, aside = self._components(above)
        across = ndtri(uniforms[:, 3:])
        across -= np.sum(across * direction, axis=1, keepdims=True) * direction
        across /= np.maximum(np.linalg.norm(across, axis=1, keepdims=True), 1e-300)
        point = along[:, None] * direction + aside[:, None] * across
        return np.round(point * self.largest).astype(np.int64)

    def _directions(self, values: FloatArray, coin: FloatArray) -> FloatArray:
        """±v/|v|, the sign with chance 1/2 ± |v|/(2r); the first axis where there is no usable direction."""
        with np.errstate(all="ignore"):  # a warning would tell of a user's extreme row
            greatest = np.max(np.abs(values), axis=1, keepdims=True)
            usable = np.isfinite(greatest) & (greatest > 0)
            scaled = np.where(usable, values / greatest, 0.0)
            scaled[:, 0] = np.where(usable[:, 0], scaled[:, 0], 1.0)
            lengths = np.linalg.norm(scaled, axis=1)
            norms = np.where(usable[:, 0], lengths * greatest[:, 0], 0.0)
            towards = coin < 0.5 + np.minimum(norms / self.bound, 1.0) / 2
        return np.where(towards, 1.0, -1.0)[:, None] * scaled / lengths[:, None]

    def _components(self, above: FloatArray) -> tuple[FloatArray, FloatArray]:
        """t such that the part `above` of the sphere has a component along u of t or more, and the length of the rest.

        Each is as precise as a float can be, also where the other is nearly 1.
        """
        side = np.where(above < 0.5, 1.0, -1.0)
        if self.dimension == 1:
            return side, np.zeros_like(side)
        both = 2 * np.minimum(above, 1 - above)
        rest = betaincinv((self.dimension - 1) / 2, 0.5, both)
        square = np.where(rest < 0.5, 1 - rest, betainccinv(0.5, (self.dimension - 1) / 2, both))
        rest = np.where(rest < 0.5, rest, 1 - square)
        return side * np.sqrt(np.clip(square, 0.0, 1.0)), np.sqrt(np.clip(rest, 0.0, 1.0))

    def possible(self, answer: IntArray) -> bool:
        """Also that it is a direction: a stranger cannot move the mean by more than a user can."""
        if not super().possible(answer):
            return False
        length = float(np.linalg.norm(answer.astype(np.float64)))
        return abs(length - self.largest) <= 0.5 * math.sqrt(self.dimension) + 1e-6 * self.largest


def cap_share(height: float, dimension: int) -> float:
    """The part of the unit sphere whose component along one axis is at least `height`."""
    if dimension == 1:
        return 0.5
    return 0.5 * float(betaincc(0.5, (dimension - 1) / 2, height**2))


def mean_component(chance: float, height: float, share: float, dimension: int) -> float:
    """E<U, u> where U lies in the cap with a given chance, and is uniform inside and outside."""
    if dimension == 1:
        return 2 * chance - 1
    # The integral of t over the cap of the uniform law on the sphere.
    log_moment = (dimension - 1) / 2 * math.log1p(-(height**2)) - betaln(0.5, (dimension - 1) / 2)
    return (chance / share - (1 - chance) / (1 - share)) * math.exp(log_moment) / (dimension - 1)


@lru_cache(maxsize=1024)
def best_cap(epsilon: float, dimension: int) -> float:
    """The height at which an answer points along the value most, on average."""
    if dimension == 1:
        return 0.0

    def height_of(log_share: float) -> float:
        square = float(betainccinv(0.5, (dimension - 1) / 2, 2 * math.exp(log_share)))
        return min(math.sqrt(square), 1 - 2.0**-40)

    def loss(log_share: float) -> float:
        height = height_of(log_share)
        share = cap_share(height, dimension)  # not quite what was asked for where the cap is tiny
        chance = float(expit(epsilon + math.log(share) - math.log1p(-share)))
        return -mean_component(chance, height, share, dimension)

    # In one variable with one optimum: the smaller the cap the more an answer says, if it lies in it at all.
    found = minimize_scalar(loss, bounds=(-2 * epsilon - 3, math.log(0.5)), method="bounded")
    return height_of(found.x) if found.fun < loss(math.log(0.5)) else 0.0
