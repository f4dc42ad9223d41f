"""What methods ask: recipes for `tulle.trusted.clipped_sum.ClippedSum` with a row function and a clip level.

A recipe decides how far contributions are clipped, from public facts. The level that it states *is* the clip level of
the query that the curator asks, so a wrong one costs accuracy and no privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from tulle.fast.batch_answers import BatchStart
from tulle.fast.coordinate_path import PathPoint
from tulle.fast.lazy_noise import Background
from tulle.fast.sparse_weights import SparseWeights
from tulle.methods.recipe import Recipe
from tulle.methods.row_functions import (
    Features,
    FeaturesAndTarget,
    LossSlopes,
    RowWeights,
    SlopeChanges,
    SquaredMargins,
)
from tulle.trusted.clipped_sum import LEAST_BOUND, ClippedSum, Kind, RowFunction, SignedScores
from tulle.trusted.events import FloatArray
from tulle.trusted.facts import PublicFacts
from tulle.trusted.losses import Norm
from tulle.trusted.queries import Affine, Mask

Engine = Literal["auto", "incremental", "plain"]


def largest_margin(public: PublicFacts, l1: float, l2: float, intercept_value: float) -> float:
    """The largest |<x, w>| of any row, for weights of these norms: min(K2 |w|_2, Kinf |w|_1)."""
    row, entry = public.row_bound(intercept_value), public.entry_bound(intercept_value)
    return min((row * l2) if l2 else 0.0, (entry * l1) if l1 else 0.0)


@dataclass(frozen=True, eq=False)
class ClippedGradient(Recipe):
    """The mean over rows of the loss gradient, each row's contribution clipped in one norm.

    Parameters
    ----------
    weights : array or SparseWeights of shape (n_parameters, n_outputs)
        Where the gradient is taken; already public.
    clip : float
        In (0, inf]. The slope at which a row at its bound is clipped: contributions are clipped to clip × row bound.
    norm : {"l2", "linf"}, default="l2"
        The norm that is clipped and in which the sensitivity holds.
    intercept_value : float, default=0.0
        Entry of the constant column that the last line of `weights` belongs to; 0 for no intercept. It counts in
        every row norm.
    support : boolean array like `weights` or None, default=None
        Answer only there (zero elsewhere); contributions are then clipped after restriction to it. The intercept's
        line, where there is one, is answered in any case.
    support_row_bound : float or None, default=None
        With `support`: the row norm on the support (constant column included) that goes with `clip`.
    """

    weights: FloatArray | SparseWeights
    clip: float
    norm: Norm = "l2"
    intercept_value: float = 0.0
    support: Mask | None = None
    support_row_bound: float | None = None

    @cached_property
    def _norms(self) -> tuple[float, float]:
        """The largest ℓ1 and ℓ2 norm of an output's weights."""
        if isinstance(self.weights, SparseWeights):
            return self.weights.norms()
        return float(np.abs(self.weights).sum(axis=0).max()), float(np.sqrt((self.weights**2).sum(axis=0)).max())

    def level(self, public: PublicFacts) -> float:
        """C: what one row's contribution is clipped to.

        The weights are public, so a bound on all margins is known, |m| <= M = min(K2 |w|_2, Kinf |w|_1), and with it
        a bound on all slopes. Where that is below `clip` the clip level shrinks with it.
        """
        slope = self.clip
        if not public.as_published:
            margins = largest_margin(public, *self._norms, self.intercept_value)
            slope = max(0.0, min(slope, public.loss.slope_bound(margins, public.label, self.norm)))
        if self.norm == "linf":
            return slope * public.entry_bound(self.intercept_value)
        row = public.row_bound(self.intercept_value) if self.support_row_bound is None else self.support_row_bound
        return slope * row

    def resolve(self, public: PublicFacts) -> ClippedSum:
        lines, outputs = self.weights.shape
        return ClippedSum(
            LossSlopes(self.weights),
            (lines, outputs),
            self.level(public),
            self.norm,
            intercept_value=self.intercept_value,
            support=self.support,
        )


@dataclass(frozen=True, eq=False)
class MeanRow(Recipe):
    """The mean over rows of the row itself, each scaled down to a length; rows that have weights count with them.

    Where rows have weights there is a constant column, whose line says how large the weights are on average.

    Parameters
    ----------
    row_bound : float
        In (0, inf]: what rows are scaled down to, without the constant column.
    support : boolean array of shape (features, 1) or None, default=None
        Answer only there, zero elsewhere; rows are then scaled down after restriction to it. Public.
    """

    row_bound: float
    support: Mask | None = None

    def _entry(self, public: PublicFacts) -> float:
        if not getattr(public.loss, "weighted", False):
            return 0.0
        return self.row_bound / 4 if self.row_bound < math.inf else 1.0

    def level(self, public: PublicFacts) -> float:
        """What one row's contribution is clipped to."""
        return math.hypot(self.row_bound, self._entry(public))

    def mean_weight(self, answer: FloatArray, public: PublicFacts) -> float:
        """The mean weight of rows by an answer, at least 0.05; 1 where they have none."""
        entry = self._entry(public)
        return max(float(answer[-1, 0]) / entry, 0.05) if entry else 1.0

    def resolve(self, public: PublicFacts) -> ClippedSum:
        entry, support = self._entry(public), self.support
        if support is not None and entry:
            support = np.vstack([support, np.ones((1, 1), dtype=bool)])
        lines = public.n_features + bool(entry)
        return ClippedSum(RowWeights(), (lines, 1), self.level(public), intercept_value=entry, support=support)


@dataclass(frozen=True, eq=False)
class Step(Recipe):
    """A gradient step: weights - size × (gradient + penalty × weights). The intercept is not penalised."""

    gradient: ClippedGradient
    step_size: float
    penalty: float = 0.0

    def resolve(self, public: PublicFacts) -> Affine:
        start = np.array(self.gradient.weights)
        start[: public.n_features] *= 1.0 - self.step_size * self.penalty
        if self.gradient.support is not None:
            start[~self.gradient.support] = 0.0
        stretch = max(1.0, abs(1.0 - self.step_size * self.penalty))
        size = stretch * float(np.linalg.norm(self.gradient.weights))
        return Affine(self.gradient.resolve(public), start, -self.step_size, size)


@dataclass(frozen=True, eq=False)
class _AlongPath(Recipe):
    """Sums over rows of slope × entry at a point of a coordinate path, each row's contribution clipped in ℓ∞.

    Parameters
    ----------
    point : PathPoint
        Where the slopes are taken; already public.
    clip : float
        In (0, inf]. The slope at which a row at its entry bound is clipped.
    intercept_value : float, default=0.0
        Entry of the constant column, the path's last coordinate; 0 for none.
    units : array of shape (parameters,) or None, default=None
        Public; coordinate j is measured in units[j]: the largest |slope × entry| / unit of a row is clipped.
    engine : {"incremental", "plain"}, default="plain"
        How the same sums are found: by following the path (sparse rows, one output, tulle's own losses; all others are
        read) or by reading all rows anew. The answers have the same law.
    """

    point: PathPoint
    clip: float
    intercept_value: float = 0.0
    units: FloatArray | None = None
    engine: Engine = "plain"

    def level(self, public: PublicFacts) -> float:
        """C: what one row adds to a slope sum, in units.

        As in `ClippedGradient` it shrinks to what the public weights allow, here in steps of 2^(1/16): code that
        follows the path starts afresh when it changes.
        """
        slope, entry = self.clip, public.entry_bound(self.intercept_value)
        if not public.as_published:
            margins = largest_margin(public, *self.point.norms, self.intercept_value)
            bound = max(0.0, public.loss.slope_bound(margins, public.label, "linf"))
            if 0 < bound < self.clip:
                bound = 2.0 ** (math.ceil(16 * math.log2(bound)) / 16)
            slope = min(slope, bound)
        return slope * entry

    def _sum(self, public: PublicFacts, coordinates: npt.NDArray[np.intp] | None = None) -> ClippedSum:
        lines, outputs = self.point.shape
        return ClippedSum(
            LossSlopes(self.point),
            (lines, outputs),
            self.level(public),
            "each",
            intercept_value=self.intercept_value,
            units=self.units,
            coordinates=coordinates,
            path=self.point if self.engine == "incremental" else None,
        )


@dataclass(frozen=True, eq=False)
class CoordinateScores(_AlongPath):
    """Scores of the coordinates, or of the two vertices ±e_j of each, at a point of a coordinate path.

    Parameters
    ----------
    kind : {"vertices", "simplex", "magnitudes"}, default="vertices"
        As in `tulle.trusted.clipped_sum.SignedScores`.
    reach : float, default=1.0
        In (0, inf): the radius of the ball or simplex.
    """

    kind: Kind = "vertices"
    reach: float = 1.0

    def resolve(self, public: PublicFacts) -> SignedScores:
        return SignedScores(self._sum(public), self.kind, self.reach)


@dataclass(frozen=True, eq=False)
class CoordinateGradient(_AlongPath):
    """One entry of the mean clipped gradient for each output, at a point of a coordinate path; shape (1, outputs).

    Contributions are clipped as in `CoordinateScores`: to C units[j].

    Parameters
    ----------
    coordinates : int array of shape (outputs,), default=()
        Already public.
    """

    coordinates: npt.NDArray[np.intp] = field(default_factory=lambda: np.zeros(1, dtype=np.intp))

    def resolve(self, public: PublicFacts) -> ClippedSum:
        return self._sum(public, self.coordinates)


@dataclass(frozen=True, eq=False)
class Curvature(Recipe):
    """The mean over rows of <x, v>² / |v|² for a public direction v: how fast margins change along it.

    By Cauchy-Schwarz each row contributes between 0 and its squared norm, and contributions are clipped to a squared
    bound in any case.

    Parameters
    ----------
    direction : array or SparseWeights of shape (n_parameters, n_outputs)
        Already public.
    intercept_value : float, default=0.0
        Entry of the constant column; 0 for no intercept.
    row_bound : float or None, default=None
        The bound whose square contributions are clipped to; None is the row bound, and then nothing is clipped.
    weighted : bool, default=False
        Whether rows that have weights count with them, as in the curvature of the loss.
    """

    direction: FloatArray | SparseWeights
    intercept_value: float = 0.0
    row_bound: float | None = None
    weighted: bool = False

    def resolve(self, public: PublicFacts) -> ClippedSum:
        bound = public.row_bound(self.intercept_value) if self.row_bound is None else self.row_bound
        return ClippedSum(
            SquaredMargins(self.direction, self.weighted),
            (1, 1),
            bound**2,
            "each",
            "one",
            intercept_value=self.intercept_value,
            non_negative=True,
            in_batches=True,
        )


@dataclass(frozen=True, eq=False)
class SecondMoments(Recipe):
    """The mean over rows of v v', v = (row on the chosen features, constant column, scaled target): a symmetric matrix.

    It is released as the vector of its upper triangle with off-diagonal entries times sqrt(2), whose length is the
    matrix's Frobenius norm. |v|² <= row_bound² + (unit × label)².

    Parameters
    ----------
    features : int array
        Columns of the rows; already public.
    row_bound : float
        What rows (constant column included) are scaled down to, > 0.
    intercept_value : float, default=0.0
        Entry of the constant column; 0 for no intercept.
    unit : float, default=1.0
        Targets are multiplied by it, > 0.
    """

    features: npt.NDArray[np.intp]
    row_bound: float
    intercept_value: float = 0.0
    unit: float = 1.0

    def __post_init__(self) -> None:
        if not self.row_bound >= LEAST_BOUND:
            raise ValueError(f"row_bound must be at least {LEAST_BOUND:g}, got {self.row_bound}")

    def _triangle(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        return np.triu_indices(len(self.features) + bool(self.intercept_value) + 1)

    def resolve(self, public: PublicFacts) -> ClippedSum:
        return ClippedSum(
            FeaturesAndTarget(self.features, self.row_bound, self.unit),
            (len(self._triangle()[0]), 1),
            self.row_bound**2 + (self.unit * public.label) ** 2,
            times="itself",
            intercept_value=self.intercept_value,
        )

    def as_matrix(self, answer: FloatArray) -> FloatArray:
        """The symmetric matrix behind an answer."""
        return to_symmetric(answer)


def to_symmetric(answer: FloatArray) -> FloatArray:
    """The symmetric matrix behind an answer of its upper triangle, off-diagonal entries times sqrt(2)."""
    size = (math.isqrt(8 * len(answer) + 1) - 1) // 2
    line, column = np.triu_indices(size)
    matrix = np.zeros((size, size))
    matrix[line, column] = answer[:, 0] / np.where(line == column, 1.0, math.sqrt(2))
    return np.asarray(np.triu(matrix) + np.triu(matrix, 1).T)


@dataclass(frozen=True, eq=False)
class BoundedMeans(Recipe):
    """The mean over rows of each of `columns` values in [0, 1] that a public model makes of a row.

    The rows that are asked hold these values as their features: each is a function of one row and of public values.

    Parameters
    ----------
    columns : int
        At least 1.
    """

    columns: int

    def resolve(self, public: PublicFacts) -> ClippedSum:
        return ClippedSum(Features(self.columns), (self.columns, 1), 1.0, "each", "one", non_negative=True)


@dataclass(frozen=True, eq=False)
class BatchGradient(Recipe):
    """The mean over a batch of clipped loss gradients, or of how they change from one point to another.

    It is divided by the batch's *public* size, which the curator hands in as the number of rows. How likely a unit is
    in the batch at all is the mechanism's business. Proof: docs/proofs/stochastic_hard_thresholding.md.

    Parameters
    ----------
    weights : SparseWeights of shape (n_parameters, n_outputs)
        Where the gradient is taken; already public.
    clip : float
        In (0, inf]. The slope at which a row at its bound is clipped.
    intercept_value : float, default=0.0
        Entry of the constant column that the last line of `weights` belongs to; 0 for no intercept.
    anchor : SparseWeights or None, default=None
        Another public point: the sum is over clipped gradients at `weights` less the clipped gradients at the anchor,
        where each difference is clipped again, to `difference_clip` at most.
    difference_clip : float, default=inf
        In (0, inf]. The change of slope at which a row at its bound is clipped.
    """

    weights: SparseWeights
    clip: float
    intercept_value: float = 0.0
    anchor: SparseWeights | None = None
    difference_clip: float = np.inf

    def _slope_level(self, at: SparseWeights, public: PublicFacts) -> float:
        """The slope that a row at its bound is clipped to; as in `ClippedGradient` it shrinks to what `at` allows."""
        if public.as_published:
            return self.clip
        margins = largest_margin(public, *at.norms(), self.intercept_value)
        return max(0.0, min(self.clip, public.loss.slope_bound(margins, public.label)))

    def level(self, public: PublicFacts) -> float:
        """C: what one row's contribution is clipped to.

        Slopes between two public points change by no more than the loss's curvature times the largest margin of their
        difference. Where the points are close a difference of gradients is small for any rows, and a snapshot pays.
        """
        row = public.row_bound(self.intercept_value)
        slope = self._slope_level(self.weights, public)
        if self.anchor is not None:
            slope += self._slope_level(self.anchor, public)
            if not public.as_published:
                # All outputs together: the curvature bounds the change of a row's vector of slopes.
                change = self.weights.plus(self.anchor, -1.0).values
                l1 = float(np.linalg.norm(np.abs(change).sum(axis=0)))
                moved = largest_margin(public, l1, float(np.linalg.norm(change)), self.intercept_value)
                slope = max(0.0, min(slope, self.difference_clip, public.loss.curvature * moved))
        return slope * row if slope else 0.0  # also where rows have no bound

    def resolve(self, public: PublicFacts) -> ClippedSum:
        slopes: RowFunction = LossSlopes(self.weights)
        if self.anchor is not None:
            row = public.row_bound(self.intercept_value)
            here, there = (self._slope_level(point, public) * row for point in (self.weights, self.anchor))
            slopes = SlopeChanges(self.weights, self.anchor, (here, there))
        return ClippedSum(
            slopes, self.weights.shape, self.level(public), intercept_value=self.intercept_value, in_batches=True
        )


@dataclass(frozen=True, eq=False)
class BatchStep(Recipe):
    """A gradient step on a batch: start - size × (gradient + drift + penalty × weights).

    The start, the weights and the drift are public and the penalty does not touch data. The intercept is not penalised.

    Parameters
    ----------
    start : SparseWeights
        What the step is taken from; the gradient may be taken at other weights, for example the largest of these.
    gradient : BatchGradient
    step_size : float
        > 0.
    penalty : float, default=0.0
        >= 0.
    drift : Background or None, default=None
        A public direction with an entry for every line, such as a noisy snapshot of the gradient.
    """

    start: SparseWeights
    gradient: BatchGradient
    step_size: float
    penalty: float = 0.0
    drift: Background | None = None

    def resolve(self, public: PublicFacts) -> Affine:
        start, weights = self.start, self.gradient.weights
        penalised = self.step_size * self.penalty * weights.norm()
        drift = 0.0 if self.drift is None else self.step_size * self.drift.norm
        size = start.norm() + penalised + drift
        if self.penalty:
            features = weights.lines < public.n_features
            shrunk = SparseWeights(weights.lines[features], weights.values[features], weights.n_lines)
            start = start.plus(shrunk, -self.step_size * self.penalty)
        if public.fit_intercept and not (len(start.lines) and start.lines[-1] == public.n_features):
            # Always listed: a threshold keeps every value of it.
            values = np.vstack([start.values, np.zeros((1, start.shape[1]))])
            start = SparseWeights(np.append(start.lines, public.n_features), values, start.n_lines)
        background = None if self.drift is None else self.drift.times(-self.step_size)
        return Affine(self.gradient.resolve(public), BatchStart(start, background, size), -self.step_size)
