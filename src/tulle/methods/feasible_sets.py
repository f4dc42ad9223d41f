"""Convex sets over which a linear model is fitted: what Frank-Wolfe needs to know of them. Public, like all settings.

A set answers one question, its linear oracle: which of its points is least in a direction. Polytopes also list their
vertices, among which a private method can choose.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog

from tulle.methods.thresholds import HardThreshold
from tulle.trusted.events import FloatArray
from tulle.trusted.plan import is_number

Reach = Literal["l1", "l2", "linf"]


def _check_radius(radius: Any) -> None:
    if not (is_number(radius) and 0 < radius < math.inf):
        raise ValueError(f"a set's radius must be a finite number > 0, got {radius!r}")


@dataclass(frozen=True)
class FeasibleSet(ABC):
    """A convex set, the same for each output of a model, its constant column included.

    Parameters
    ----------
    radius : float
        In (0, inf).
    """

    radius: float

    def __post_init__(self) -> None:
        _check_radius(self.radius)

    # How vertices that are multiples of coordinate vectors are numbered; None for other sets.
    coordinates: ClassVar[Literal["vertices", "simplex"] | None] = None

    @property
    def selectable(self) -> bool:
        """Whether it has vertices to choose among."""
        return self.coordinates is not None

    @abstractmethod
    def least(self, direction: FloatArray) -> FloatArray:
        """The linear oracle: the point of the set that is least along a direction, for each column of it."""

    def start(self, shape: tuple[int, int]) -> FloatArray:
        """A point of the set to start from, of shape (parameters, outputs): public, and 0 where 0 is in the set."""
        return np.zeros(shape)

    def contains(self, points: FloatArray) -> bool:
        """Whether every column of an array of shape (parameters, outputs) is in the set, up to rounding."""
        raise ValueError(f"{type(self).__name__} has no method contains(points), which start=... needs; define one")

    def n_nonzero(self, n_iter: int) -> float:
        """How many non-zeros a mixture of `n_iter` of its extreme points has at most."""
        return math.inf

    @abstractmethod
    def longest(self, n_parameters: int, norm: Reach) -> float:
        """The largest norm of a point of the set."""


@dataclass(frozen=True)
class L1Ball(FeasibleSet):
    """|w|_1 <= radius: the LASSO's set. Its vertices are ±radius e_j."""

    coordinates = "vertices"

    def least(self, direction: FloatArray) -> FloatArray:
        return _spikes(-np.sign(direction) * self.radius, np.abs(direction).argmax(axis=0))

    def contains(self, points: FloatArray) -> bool:
        return _within(np.abs(points).sum(axis=0), self.radius)

    def n_nonzero(self, n_iter: int) -> float:
        return n_iter

    def longest(self, n_parameters: int, norm: Reach) -> float:
        return self.radius


@dataclass(frozen=True)
class Simplex(FeasibleSet):
    """w >= 0 with sum radius. Its vertices are radius e_j."""

    coordinates = "simplex"

    def least(self, direction: FloatArray) -> FloatArray:
        return _spikes(np.full(direction.shape, self.radius), direction.argmin(axis=0))

    def contains(self, points: FloatArray) -> bool:
        return _within(-points, 0.0, self.radius) and _within(
            np.abs(points.sum(axis=0) - self.radius), 0.0, self.radius
        )

    def start(self, shape: tuple[int, int]) -> FloatArray:
        return np.vstack([np.full((1, shape[1]), self.radius), np.zeros((shape[0] - 1, shape[1]))])

    def n_nonzero(self, n_iter: int) -> float:
        return n_iter + 1  # and the start

    def longest(self, n_parameters: int, norm: Reach) -> float:
        return self.radius


@dataclass(frozen=True)
class _SparseExtremes(FeasibleSet):
    """A set whose extreme points have k non-zeros.

    Parameters
    ----------
    radius : float
    k : int, default=10
        At least 1; k = 1 is the ℓ1-ball.
    """

    k: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (isinstance(self.k, (int, np.integer)) and self.k >= 1):
            raise ValueError(f"{type(self).__name__}(k=...) must be an integer >= 1, got {self.k!r}")

    def n_nonzero(self, n_iter: int) -> float:
        return n_iter * self.k


class CappedL1Ball(_SparseExtremes):
    """|w|_1 <= radius and |w_j| <= radius / k for every j: a part of the ℓ1-ball.

    Where the whole gradient is noisy anyway, k coordinates can be read off it for the price of one.

    Parameters
    ----------
    radius : float
    k : int, default=10
        At least 1; k = 1 is the ℓ1-ball.
    """

    def least(self, direction: FloatArray) -> FloatArray:
        return -self.radius / self.k * np.sign(_top(direction, self.k))

    def contains(self, points: FloatArray) -> bool:
        return _within(np.abs(points).sum(axis=0), self.radius) and _within(np.abs(points), self.radius / self.k)

    def longest(self, n_parameters: int, norm: Reach) -> float:
        return self.radius / {"l1": 1.0, "l2": math.sqrt(self.k), "linf": self.k}[norm]


class KSupportBall(_SparseExtremes):
    """The unit ball of the k-support norm times radius: mixtures of vectors with k non-zeros and |v|_2 <= radius.

    Parameters
    ----------
    radius : float
    k : int, default=10
        At least 1; k = 1 is the ℓ1-ball.
    """

    def least(self, direction: FloatArray) -> FloatArray:
        kept = _top(_relative(direction), self.k)
        return -self.radius * kept / _at_least_tiny(np.sqrt((kept**2).sum(axis=0)))

    def contains(self, points: FloatArray) -> bool:
        return _within(np.array([_k_support_norm(column, self.k) for column in points.T]), self.radius)

    def longest(self, n_parameters: int, norm: Reach) -> float:
        return self.radius * (math.sqrt(self.k) if norm == "l1" else 1.0)


def _top(direction: FloatArray, k: int) -> FloatArray:
    """The k entries of largest magnitude of each column, and zeros."""
    return HardThreshold(k, free_from=len(direction))(direction)


def _spikes(values: FloatArray, rows: Any) -> FloatArray:
    points = np.zeros_like(values)
    columns = np.arange(values.shape[1])
    points[rows, columns] = values[rows, columns]
    return points


@dataclass(frozen=True, eq=False, repr=False)
class Polytope(FeasibleSet):
    """All mixtures of given points, for a set of your own.

    Parameters
    ----------
    vertices : array or sparse array of shape (vertices, features), or (vertices, features + 1) with an intercept
        Public: chosen without looking at private rows.
    """

    radius: float = field(init=False, default=1.0)
    vertices: Any = None

    def __post_init__(self) -> None:
        # A read-only copy: sensitivities rest on the radius below.
        sparse = sp.issparse(self.vertices)
        points = sp.csr_array(self.vertices, dtype=float, copy=True) if sparse else np.array(self.vertices, dtype=float)
        entries: Any = points.data if sparse else points
        entries.flags.writeable = False
        if points.ndim != 2 or points.shape[0] < 1:
            raise ValueError(f"Polytope needs vertices of shape (vertices, features), got shape {points.shape}")
        if not np.all(np.isfinite(entries)):
            raise ValueError("Polytope needs finite vertices")
        object.__setattr__(self, "vertices", points)
        radius = float(abs(points).sum(axis=1).max())
        _check_radius(radius)
        object.__setattr__(self, "radius", radius * (1.0 + 2.0**-52 * points.shape[1]))

    def __repr__(self) -> str:
        return f"Polytope({self.vertices.shape[0]:,} vertices, |v|_1 <= {self.radius:.4g})"

    def start(self, shape: tuple[int, int]) -> FloatArray:
        return np.repeat(self.point(0)[:, None], shape[1], axis=1)

    @property
    def selectable(self) -> bool:
        return True

    def point(self, number: int) -> FloatArray:
        """A vertex as a dense vector."""
        row = self.vertices[[number]]
        return np.asarray(row.toarray() if sp.issparse(row) else row, dtype=float).ravel()

    def least(self, direction: FloatArray) -> FloatArray:
        chosen = np.asarray(self.vertices @ direction).argmin(axis=0)
        return np.stack([self.point(int(number)) for number in chosen], axis=1)

    def contains(self, points: FloatArray) -> bool:
        # Mixtures q >= 0 with sum 1 whose point is within rounding of the given one.
        slack = 1e-9 * self.radius
        vertices = self.vertices.T
        stack = sp.vstack([vertices, -vertices]) if sp.issparse(vertices) else np.vstack([vertices, -vertices])
        count = self.vertices.shape[0]
        for column in points.T:
            limits = np.concatenate([column + slack, slack - column])
            if not linprog(np.zeros(count), stack, limits, np.ones((1, count)), [1.0], method="highs").success:
                return False
        return True

    def longest(self, n_parameters: int, norm: Reach) -> float:
        if norm == "l1":
            return self.radius
        if norm == "linf":
            return float(abs(self.vertices).max())
        squares = self.vertices.multiply(self.vertices) if sp.issparse(self.vertices) else self.vertices**2
        return math.sqrt(float(squares.sum(axis=1).max()))


@dataclass(frozen=True)
class L2Ball(FeasibleSet):
    """|w|_2 <= radius."""

    def least(self, direction: FloatArray) -> FloatArray:
        direction = _relative(direction)
        return -self.radius * direction / _at_least_tiny(np.sqrt((direction**2).sum(axis=0)))

    def contains(self, points: FloatArray) -> bool:
        return _within(np.linalg.norm(points, axis=0), self.radius)

    def longest(self, n_parameters: int, norm: Reach) -> float:
        return self.radius * (math.sqrt(n_parameters) if norm == "l1" else 1.0)


@dataclass(frozen=True)
class LqBall(FeasibleSet):
    """|w|_q <= radius.

    Parameters
    ----------
    radius : float
    q : float, default=1.5
        In (1, 2].
    """

    q: float = 1.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (is_number(self.q) and 1 < self.q <= 2):
            raise ValueError(f"LqBall(q=...) must lie in (1, 2], got {self.q!r}; use L1Ball for q = 1")

    def least(self, direction: FloatArray) -> FloatArray:
        # Equality in Hölder's inequality.
        powers = np.abs(_relative(direction)) ** (1 / (self.q - 1))
        return -self.radius * np.sign(direction) * powers / _at_least_tiny((powers**self.q).sum(axis=0) ** (1 / self.q))

    def contains(self, points: FloatArray) -> bool:
        return _within(((np.abs(points) / self.radius) ** self.q).sum(axis=0), 1.0)

    def longest(self, n_parameters: int, norm: Reach) -> float:
        return self.radius * (n_parameters ** (1 - 1 / self.q) if norm == "l1" else 1.0)


@dataclass(frozen=True)
class Box(FeasibleSet):
    """|w_j| <= radius for every j."""

    def least(self, direction: FloatArray) -> FloatArray:
        return -self.radius * np.sign(direction)

    def contains(self, points: FloatArray) -> bool:
        return _within(np.abs(points), self.radius)

    def longest(self, n_parameters: int, norm: Reach) -> float:
        return self.radius * {"l1": float(n_parameters), "l2": math.sqrt(n_parameters), "linf": 1.0}[norm]


def _within(norms: FloatArray, most: float, unit: float | None = None) -> bool:
    """Whether no number passes `most`, up to rounding of numbers as large as `unit`."""
    return bool(np.all(norms <= most + 1e-9 * (most if unit is None else unit)))


def _k_support_norm(w: FloatArray, k: int) -> float:
    """The k-support norm (Argyriou, Foygel and Srebro 2012, proposition 2.1): the largest entries by themselves, and
    the others by their sum."""
    sizes = np.sort(np.abs(w))[::-1]
    k = min(k, len(sizes))
    tails = np.append(np.cumsum(sizes[::-1])[::-1], 0.0)  # tails[i]: the sum from entry i on
    for r in range(k):
        mean = tails[k - r - 1] / (r + 1)
        larger = math.inf if k - r - 1 == 0 else sizes[k - r - 2]
        if larger > mean >= sizes[k - r - 1]:
            return math.sqrt(float((sizes[: k - r - 1] ** 2).sum()) + (r + 1) * float(mean) ** 2)
    return float(np.linalg.norm(sizes))  # ties, by rounding: all entries by themselves


def _relative(direction: FloatArray) -> FloatArray:
    """The direction over its largest entry, lest powers over- or underflow."""
    return direction / _at_least_tiny(np.abs(direction).max(axis=0))


def _at_least_tiny(norms: FloatArray) -> FloatArray:
    return np.maximum(norms, 1e-300)
