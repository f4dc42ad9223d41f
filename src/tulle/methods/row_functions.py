"""Row functions: what a row contributes to a `tulle.trusted.clipped_sum.ClippedSum`, as a function of that row alone.

A wrong number here costs accuracy and is clipped; a number that depends on other rows would break the promise. Tests
ask every function of this module about rows in another order, in parts and one at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from tulle.methods.loss_functions import of_one_output
from tulle.methods.weighted_loss import row_offsets, row_weights
from tulle.trusted.clipped_sum import RowFunction, SeenRows, clip_contributions, compute_lengths
from tulle.trusted.events import FloatArray
from tulle.trusted.facts import PublicFacts


class PublicPoint(Protocol):
    """Public weights in a form that faster code makes use of."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def norm(self) -> float:
        """At least the ℓ2 norm."""
        ...

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]: ...


@dataclass(frozen=True, eq=False)
class LossSlopes(RowFunction):
    """The slopes of the loss at public weights: times the row they are its gradient."""

    weights: FloatArray | PublicPoint

    def values(self, seen: SeenRows, targets: FloatArray, public: PublicFacts) -> FloatArray:
        return public.loss.slope(seen.margins(self.weights), targets)


@dataclass(frozen=True, eq=False)
class RowWeights(RowFunction):
    """The weight of each row, 1 where it has none: times the row, what it adds to the mean row."""

    def values(self, seen: SeenRows, targets: FloatArray, public: PublicFacts) -> FloatArray:
        return np.ones((len(targets), 1)) * np.reshape(row_weights(targets), (-1, 1))


@dataclass(frozen=True, eq=False)
class SlopeChanges(RowFunction):
    """How the slopes, clipped at both points, change from an anchor to the weights.

    Attributes
    ----------
    weights, anchor : public weights
    levels : tuple of float
        What contributions are clipped to at the weights and at the anchor.
    """

    weights: FloatArray | PublicPoint
    anchor: FloatArray | PublicPoint
    levels: tuple[float, float]

    def values(self, seen: SeenRows, targets: FloatArray, public: PublicFacts) -> FloatArray:
        here, before = (
            self._clip(seen, point, level, targets, public)
            for point, level in zip((self.weights, self.anchor), self.levels)
        )
        return here - before

    def _clip(
        self, seen: SeenRows, point: FloatArray | PublicPoint, level: float, targets: FloatArray, public: PublicFacts
    ) -> FloatArray:
        slopes = public.loss.slope(seen.margins(point), targets)
        slopes = np.where(np.isfinite(slopes), slopes, 0.0)
        lines, outputs = point.shape
        norms = compute_lengths(slopes) * seen.lengths(lines) * (1.0 + 2.0**-52 * lines * outputs)
        return clip_contributions(slopes, norms, level)


@dataclass(frozen=True, eq=False)
class SquaredMargins(RowFunction):
    """<x, v>² / |v|² for a public direction v; 0 where v is. `weighted`: times the weight of the row, if it has one."""

    direction: FloatArray | PublicPoint
    weighted: bool = False

    def values(self, seen: SeenRows, targets: FloatArray, public: PublicFacts) -> FloatArray:
        of = self.direction
        length = float((of**2).sum()) if isinstance(of, np.ndarray) else of.norm() ** 2
        if length == 0:
            return np.zeros((len(targets), 1))
        squares = (seen.margins(self.direction) ** 2).sum(axis=1) / length
        if self.weighted:
            squares = squares * row_weights(targets)
        return np.asarray(squares[:, None])


@dataclass(frozen=True, eq=False)
class FeaturesAndTarget(RowFunction):
    """v = (row on the chosen features, constant column, scaled target), the row scaled down to a length; times the root
    of the row's weight, if it has one.

    Attributes
    ----------
    features : int array
    row_bound : float
    unit : float
        Targets are multiplied by it.
    """

    features: npt.NDArray[np.intp]
    row_bound: float
    unit: float

    def values(self, seen: SeenRows, targets: FloatArray, public: PublicFacts) -> FloatArray:
        scaled = self.unit * np.clip(targets, -public.label, public.label)
        scaled = np.where(np.isfinite(scaled), scaled, 0.0)
        values = np.hstack([seen.columns(self.features, self.row_bound), scaled[:, None]])
        return values * np.sqrt(np.reshape(row_weights(targets), (-1, 1)))


@dataclass(frozen=True, eq=False)
class RootsOfMoments(RowFunction):
    """The row on the chosen features and the constant column, scaled down to a length, times the root of the loss's
    second derivative at public weights ("curvature"), or times its slope there ("slope"): v v' is then what the row
    adds to the Hessian, or to the spread of gradients. The loss is that of a row with its weight and its offset, if it
    has them.

    Attributes
    ----------
    features : int array
    row_bound : float
    weights : array
        One for each feature, then that of the constant column.
    factor : {"curvature", "slope"}
    most : float
        The second derivative, or the slope's magnitude, is cut off there.
    """

    features: npt.NDArray[np.intp]
    row_bound: float
    weights: FloatArray
    factor: Literal["curvature", "slope"]
    most: float

    def values(self, seen: SeenRows, targets: FloatArray, public: PublicFacts) -> FloatArray:
        rows, loss = seen.columns(self.features, self.row_bound), of_one_output(public.loss)
        margins, weights = rows @ self.weights + row_offsets(targets), row_weights(targets)
        if self.factor == "slope":
            slopes = loss.slope(margins[:, None], np.asarray(targets))[:, 0]
            factors = weights * np.clip(slopes, -self.most, self.most)
        else:
            factors = np.sqrt(weights * np.clip(loss.curvature_at(margins), 0.0, self.most))
        return np.asarray(rows * factors[:, None])


@dataclass(frozen=True, eq=False)
class Features(RowFunction):
    """The first `columns` features themselves: rows that hold values which a public model makes of a row."""

    columns: int

    def values(self, seen: SeenRows, targets: FloatArray, public: PublicFacts) -> FloatArray:
        return seen.margins(np.eye(self.columns))
