"""Queries: what may be asked of private rows, each with its sensitivity and the argument for it.

Adjacency is replace-one: the number of rows n is public, and one unit (a row, or a person with at most
`rows_per_unit` rows) is replaced. A mean over n rows in which each row contributes a vector of norm at most C therefore
moves by at most 2 C rows_per_unit / n. Proof pages: docs/proofs/clipped_gradient.md, docs/proofs/quantile.md.

What rows are asked is a bound method of a query, with keywords where it needs more: data, not a closure, so that it can
be written down and sent to where rows are.

`evaluate` is called by the curator alone. `size` bounds the ℓ2 norm of the exact answer from public quantities; only
the statement on floating point uses it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from tulle.events import FloatArray
from tulle.following import FollowedScores, Follower, Kind, can_follow, scores_of
from tulle.losses import Loss, Norm, OneVsRest, certified_convex, of_one_output
from tulle.mechanisms import HardThreshold, ObjectivePerturbation, ObjectiveSensitivity, Sensitivity
from tulle.minimise import PART_ROWS, Part, PenalisedSum, Terms
from tulle.public import PublicFacts
from tulle.rows import Block, Rows, SparseBlock
from tulle.sets import Polytope
from tulle.walk import Walk

Mask = npt.NDArray[np.bool_]
Engine = Literal["auto", "incremental", "plain"]

# Squares of shorter rows underflow, and a row that looks empty would not be scaled down.
_LEAST_BOUND = 1e-140

# A row whose contribution must be scaled down by more than this counts as nothing.
LEAST_FACTOR = 1e-290

# Slopes are multiplied by the factors of rows, down to 1e-190, and then by entries up to 1e140. Under a clip level
# below this such a product may have no digits left and be rounded up to twice the level: then no row counts.
_LEAST_LEVEL = 1e-150

# Below every score, and finite: sums with noise stay numbers.
_PASSED_OVER = -1e200


class Query(ABC):
    """A function of all private rows with a bounded change when one unit is replaced."""

    @abstractmethod
    def sensitivity(self, public: PublicFacts) -> Sensitivity: ...

    def one_unit(self, public: PublicFacts) -> float:
        """Bounds the ℓ2 norm of what one unit adds to the answer, compared with nothing in its place.

        Asked of batches alone, which may or may not hold the unit; inf where no bound is claimed. Half the sensitivity
        for contributions that may point anywhere, all of it for contributions that are never negative.
        """
        return math.inf

    @abstractmethod
    def size(self, public: PublicFacts) -> float: ...

    def largest(self, public: PublicFacts) -> float:
        """Bounds the largest entry of the exact answer, from public quantities."""
        return self.size(public)

    @abstractmethod
    def evaluate(self, rows: Rows, public: PublicFacts) -> Any:
        """The exact answer: an array, an objective for objective perturbation, or scores on demand for a noisy max."""


def mean_moves(level: float, public: PublicFacts) -> float:
    """How far a mean over n rows, each contributing a vector of norm at most `level`, moves when a unit is replaced."""
    return 2.0 * level * public.rows_per_unit / public.n_rows


def counted(slopes: FloatArray, block: Block) -> FloatArray:
    """The slopes of the rows that count. Behind the estimator's checks a record whose slope is not finite counts as
    nothing rather than raise."""
    return np.where(np.isfinite(slopes) & block.active[:, None], slopes, 0.0)


def largest_margin(public: PublicFacts, l1: float, l2: float, intercept_value: float) -> float:
    """The largest |<x, w>| of any row, for weights of these norms: min(K2 |w|_2, Kinf |w|_1)."""
    row, entry = public.row_bound(intercept_value), public.entry_bound(intercept_value)
    return min((row * l2) if l2 else 0.0, (entry * l1) if l1 else 0.0)


def lengths_of(rows: FloatArray) -> FloatArray:
    """The ℓ2 norm of each row, also of entries whose squares underflow: what is too long must not look short."""
    largest = np.abs(rows).max(axis=1)
    if rows.shape[1] == 1:
        return np.asarray(largest)
    unit = np.where(largest > 0, largest, 1.0)
    return np.asarray(largest * np.sqrt(((rows / unit[:, None]) ** 2).sum(axis=1)))


def longest(norms: FloatArray, n_features: int, intercept_value: float) -> FloatArray:
    """Upper bounds of the ℓ2 norms of rows with their constant column, given norms computed from squares.

    Squares of entries below 1e-150 vanish or lose their digits. A row of such entries looks empty, and a slope that is
    as huge as they are small would pass unclipped.
    """
    return np.hypot(norms + 1e-150 * math.sqrt(n_features), intercept_value)


def clipped(slopes: FloatArray, norms: FloatArray, level: float) -> FloatArray:
    """Slopes scaled down where the norm of a row's contribution is above `level`."""
    if level < _LEAST_LEVEL:
        return np.zeros_like(slopes)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Written so that a norm which is not a number counts as nothing, never as unclipped.
        factor = np.where(norms <= level, 1.0, np.where(norms < np.inf, level / norms, 0.0))
    # Factors below all normal numbers have few digits, and may be rounded up to twice what they should be.
    return slopes * np.where(factor < LEAST_FACTOR, 0.0, factor)[:, None]


@dataclass(frozen=True, eq=False)
class ClippedGradient(Query):
    """The mean over rows of the loss gradient, each row's contribution clipped in one norm.

    A row contributes (slope × x) for each output, so its norm is |slopes| |x|: clipping needs no per-row gradients.

    Parameters
    ----------
    weights : array of shape (n_parameters, n_outputs)
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

    weights: FloatArray
    clip: float
    norm: Norm = "l2"
    intercept_value: float = 0.0
    support: Mask | None = None
    support_row_bound: float | None = None

    @cached_property
    def _norms(self) -> tuple[float, float]:
        """The largest ℓ1 and ℓ2 norm of an output's weights."""
        return float(np.abs(self.weights).sum(axis=0).max()), float(np.sqrt((self.weights**2).sum(axis=0)).max())

    def level(self, public: PublicFacts) -> float:
        """C: what one row's contribution is clipped to.

        The weights are public, so a bound on all margins is known, |m| <= M = min(K2 |w|_2, Kinf |w|_1), and with it
        a bound on all slopes. Where that is below `clip` the clip level shrinks with it; it *is* the clip level
        of this query, so the sensitivity holds whatever the loss says of itself.
        """
        slope = self.clip
        if not public.as_published:
            margins = largest_margin(public, *self._norms, self.intercept_value)
            slope = max(0.0, min(slope, public.loss.slope_bound(margins, public.label, self.norm)))
        if self.norm == "linf":
            return slope * public.entry_bound(self.intercept_value)
        row = public.row_bound(self.intercept_value) if self.support_row_bound is None else self.support_row_bound
        return slope * row

    def sensitivity(self, public: PublicFacts) -> Sensitivity:
        moved = mean_moves(self.level(public), public)
        return Sensitivity(l2=moved) if self.norm == "l2" else Sensitivity(linf=moved)

    def size(self, public: PublicFacts) -> float:
        entries = 1 if self.norm == "l2" else self.weights.size
        return self.level(public) * math.sqrt(entries)

    def evaluate(self, rows: Rows, public: PublicFacts) -> FloatArray:
        level = self.level(public)
        total = rows.reduce(partial(self._contribution, level=level, public=public))
        total /= public.n_rows
        return total

    def _contribution(self, block: Block, level: float, public: PublicFacts) -> FloatArray:
        slopes = public.loss.slope(block.margins(self.weights, self.intercept_value), block.targets)
        slopes = counted(slopes, block)
        slopes = clipped(slopes, self._contribution_norms(block, slopes), level)
        features = public.n_features
        if self.support is None:
            total = block.gather(slopes)
            constant = self.intercept_value * slopes.sum(axis=0)
            return total if len(self.weights) == features else np.vstack([total, constant])
        total = np.zeros_like(self.weights)
        for column in range(total.shape[1]):
            chosen = np.flatnonzero(self.support[:features, column])
            total[chosen, column] = block.gather_on(slopes[:, column], chosen)
        if self.intercept_value:
            total[features:] = self.intercept_value * slopes.sum(axis=0)
        return total

    def _contribution_norms(self, block: Block, slopes: FloatArray) -> FloatArray:
        """The norm of each row's contribution before clipping, rounded up."""
        a = self.intercept_value
        if self.norm == "linf":
            norms = np.abs(slopes).max(axis=1) * np.maximum(block.norms("linf"), a)
        elif self.support is None:
            norms = lengths_of(slopes) * longest(block.norms("l2"), len(self.weights), a)
        else:
            parts = np.empty_like(slopes)
            for column in range(slopes.shape[1]):
                chosen = np.flatnonzero(self.support[: len(self.weights) - bool(a), column])
                parts[:, column] = slopes[:, column] * longest(block.norms_on(chosen), len(self.weights), a)
            norms = lengths_of(parts)
        return norms * (1.0 + 2.0**-52 * self.weights.size)


@dataclass(frozen=True, eq=False)
class Step(Query):
    """A gradient step: weights - size × (gradient + penalty × weights).

    The weights are public and the penalty does not touch data, so only the gradient's sensitivity counts, times the
    step size. The intercept is not penalised.
    """

    gradient: ClippedGradient
    step_size: float
    penalty: float = 0.0

    def sensitivity(self, public: PublicFacts) -> Sensitivity:
        return self.gradient.sensitivity(public).times(self.step_size)

    def size(self, public: PublicFacts) -> float:
        stretch = max(1.0, abs(1.0 - self.step_size * self.penalty))
        return stretch * float(np.linalg.norm(self.gradient.weights)) + self.step_size * self.gradient.size(public)

    def evaluate(self, rows: Rows, public: PublicFacts) -> FloatArray:
        start = self.gradient.weights.copy()
        start[: public.n_features] *= 1.0 - self.step_size * self.penalty
        if self.gradient.support is not None:
            start[~self.gradient.support] = 0.0
        step = self.gradient.evaluate(rows, public)
        step *= -self.step_size
        step += start
        return step


@dataclass(frozen=True, eq=False)
class Magnitudes(Query):
    """The magnitudes of a step's feature weights: scores for a selection. ||a| - |b|| <= |a - b|.

    Parameters
    ----------
    step : Step
    passed_over : boolean array of shape (features, outputs) or None, default=None
        Features that score less than all others whatever the rows: a constant, so it moves nothing.
    """

    step: Step
    passed_over: Mask | None = None

    def sensitivity(self, public: PublicFacts) -> Sensitivity:
        return self.step.sensitivity(public)

    def size(self, public: PublicFacts) -> float:
        return self.step.size(public)

    def evaluate(self, rows: Rows, public: PublicFacts) -> FloatArray:
        scores = np.abs(self.step.evaluate(rows, public)[: public.n_features])
        return scores if self.passed_over is None else np.where(self.passed_over, _PASSED_OVER, scores)


@dataclass(frozen=True, eq=False)
class VertexScores(Query):
    """Minus the slope of the loss towards each vertex of a polytope: scores for a selection.

    By Hölder's inequality |<v, g> - <v, g'>| <= |v|_1 |g - g'|_inf, and the polytope's radius is the largest |v|_1.

    Parameters
    ----------
    gradient : ClippedGradient
        Clipped in ℓ∞.
    polytope : Polytope
        Its vertices are public.
    """

    gradient: ClippedGradient
    polytope: Polytope

    def sensitivity(self, public: PublicFacts) -> Sensitivity:
        # Scores are sums over parameters, and their rounding is beyond what the curator adds for sums over rows.
        rounding = 1.0 + 2.0**-52 * public.n_parameters * (public.n_rows + 2.0)
        return Sensitivity(linf=rounding * self.polytope.radius * self.gradient.sensitivity(public).linf)

    def largest(self, public: PublicFacts) -> float:
        return self.polytope.radius * self.gradient.level(public)

    def size(self, public: PublicFacts) -> float:
        return self.largest(public) * math.sqrt(self.polytope.vertices.shape[0] * self.gradient.weights.shape[1])

    def evaluate(self, rows: Rows, public: PublicFacts) -> FloatArray:
        return np.asarray(self.polytope.vertices @ -self.gradient.evaluate(rows, public))


@dataclass(frozen=True, eq=False)
class _AlongWalk(Query):
    """Sums over rows of slope × entry at the present weights of a walk, each row's contribution clipped in ℓ∞.

    Parameters
    ----------
    walk : Walk
        Where the slopes are taken; already public.
    clip : float
        In (0, inf]. The slope at which a row at its entry bound is clipped.
    intercept_value : float, default=0.0
        Entry of the constant column, the walk's last coordinate; 0 for none.
    units : array of shape (parameters,) or None, default=None
        Public; coordinate j is measured in units[j]: what is clipped is the largest |slope × entry| / unit of a row.
    engine : {"incremental", "plain"}, default="plain"
        How the same sums are found: by following the walk (sparse rows, one output, tulle's own losses; all others are
        read) or by reading all rows anew. The answers have the same law.
    """

    walk: Walk
    clip: float
    intercept_value: float = 0.0
    units: FloatArray | None = None
    engine: Engine = "plain"

    def level(self, public: PublicFacts) -> float:
        """C: what one row adds to a slope sum, in units; rows are clipped to it.

        As in `ClippedGradient` it shrinks to what the public weights allow, here in steps of 2^(1/16): whoever follows
        the walk starts afresh when it changes.
        """
        slope, entry = self.clip, public.entry_bound(self.intercept_value)
        if not public.as_published:
            margins = largest_margin(public, *self.walk.norms(), self.intercept_value)
            bound = max(0.0, public.loss.slope_bound(margins, public.label, "linf"))
            if 0 < bound < self.clip:
                bound = 2.0 ** (math.ceil(16 * math.log2(bound)) / 16)
            slope = min(slope, bound)
        return slope * entry

    def _follower(self, rows: Rows, public: PublicFacts) -> Follower | None:
        block, level = rows.only_block(), self.level(public)
        if self.engine != "incremental" or not isinstance(block, SparseBlock):
            return None
        margins = self.walk.norms()[0] * public.entry_bound(self.intercept_value)
        # Squares of margins over the walk's scale, and scores over the level, must be numbers.
        moderate = margins < 1e100 and self.walk.scale > 1e-50 and _LEAST_LEVEL < level < 1e100
        if public.loss.n_outputs > 1 or not can_follow(public.loss) or not moderate:
            return None
        key = (self.walk, self.intercept_value, self.units, public)
        follower: Follower = rows.kept_for(
            key, lambda: Follower(block, self.walk, public.loss, self.intercept_value, self.units)
        )
        follower.catch_up(level)
        return follower

    def _sums(self, rows: Rows, public: PublicFacts) -> FloatArray:
        """All slope sums in units, of shape (parameters, outputs), by reading all rows."""
        cut = self.level(public)
        total = rows.reduce(partial(self._contribution, level=cut, public=public))
        return total if self.units is None else total / self.units[:, None]

    def _contribution(self, block: Block, level: float, public: PublicFacts) -> FloatArray:
        slopes = self._clipped_slopes(block, level, public)
        total = block.gather(slopes)
        if self.intercept_value:
            total = np.vstack([total, self.intercept_value * slopes.sum(axis=0)])
        return total

    def _clipped_slopes(self, block: Block, level: float, public: PublicFacts) -> FloatArray:
        a = self.intercept_value
        slopes = public.loss.slope(block.margins_along(self.walk, a), block.targets)
        slopes = counted(slopes, block)
        if level < _LEAST_LEVEL:
            return np.zeros_like(slopes)
        if self.units is None:
            sizes = np.maximum(block.norms("linf"), a)
        else:
            sizes = np.maximum(block.norms_in(self.units[: public.n_features]), a / self.units[-1])
        with np.errstate(divide="ignore"):
            cap = np.where(sizes > 0, level / sizes, math.inf)[:, None] * (1 - 2.0**-50)
        return np.clip(slopes, -cap, cap)


@dataclass(frozen=True, eq=False)
class CoordinateScores(_AlongWalk):
    """Scores of the coordinates, or of the two vertices ±e_j of each, at the present weights of a walk.

    With g_j the mean over rows of clipped slope × entry / unit: reach × |g_j| ("magnitudes"), -reach × g_j ("simplex"),
    or for "vertices" first -reach × g_j for all +e_j and then +reach × g_j for all -e_j. Replacing a row moves every
    g_j by at most 2 C / n, so every score by at most reach × 2 C / n.

    Parameters
    ----------
    kind : {"vertices", "simplex", "magnitudes"}, default="vertices"
    reach : float, default=1.0
        In (0, inf): the radius of the ball or simplex.
    """

    kind: Kind = "vertices"
    reach: float = 1.0

    def sensitivity(self, public: PublicFacts) -> Sensitivity:
        return Sensitivity(linf=self.reach * mean_moves(self.level(public), public))

    def largest(self, public: PublicFacts) -> float:
        return self.reach * self.level(public)

    def size(self, public: PublicFacts) -> float:
        return self.largest(public) * math.sqrt(2 * self.walk.unscaled.size)

    def evaluate(self, rows: Rows, public: PublicFacts) -> Any:
        follower = self._follower(rows, public)
        if follower is not None:
            return FollowedScores(follower, self.kind, self.reach / public.n_rows, public.n_parameters)
        return scores_of(self._sums(rows, public) * (self.reach / public.n_rows), self.kind)


@dataclass(frozen=True, eq=False)
class CoordinateGradient(_AlongWalk):
    """One entry of the mean clipped gradient for each output, at the present weights of a walk; shape (1, outputs).

    Contributions are clipped as in `CoordinateScores`: to C units[j]. Replacing a row moves each entry by at most
    2 C units[j] / n.

    Parameters
    ----------
    coordinates : int array of shape (outputs,), default=()
        Already public.
    """

    coordinates: npt.NDArray[np.intp] = field(default_factory=lambda: np.zeros(1, dtype=np.intp))

    def _units(self) -> FloatArray:
        return np.ones(len(self.coordinates)) if self.units is None else self.units[self.coordinates]

    def sensitivity(self, public: PublicFacts) -> Sensitivity:
        moved = mean_moves(self.level(public), public)
        units = self._units()
        return Sensitivity(
            l1=moved * float(units.sum()),
            l2=moved * float(np.sqrt((units**2).sum())),
            linf=moved * float(units.max()),
        )

    def size(self, public: PublicFacts) -> float:
        return self.level(public) * float(np.sqrt((self._units() ** 2).sum()))

    def evaluate(self, rows: Rows, public: PublicFacts) -> FloatArray:
        if not np.all((self.coordinates >= 0) & (self.coordinates < public.n_parameters)):
            raise ValueError(f"a model of {public.n_parameters} parameters has no coordinates {self.coordinates}")
        follower = self._follower(rows, public)
        if follower is not None:
            return np.array([[follower.sum_of(int(self.coordinates[0])) * self._units()[0] / public.n_rows]])
        level = self.level(public)
        return rows.reduce(partial(self._entries, level=level, public=public)) / public.n_rows

    def _entries(self, block: Block, level: float, public: PublicFacts) -> FloatArray:
        slopes = self._clipped_slopes(block, level, public)
        entries = np.zeros((1, slopes.shape[1]))
        for output, coordinate in enumerate(self.coordinates):
            if coordinate == public.n_features:
                entries[0, output] = self.intercept_value * float(slopes[:, output].sum())
            else:
                entries[0, output] = block.gather_on(slopes[:, output], np.array([coordinate]))[0]
        return entries


@dataclass(frozen=True, eq=False)
class QuantileScores(Query):
    """For each cell of a public grid, minus how many ranks it is away from holding the wanted quantile.

    With C(t) the number of rows whose norm (or |label|) is at most t, cell k between two values of the grid scores
    -max(quantile n - C(t_k), C(t_{k-1}) - quantile n, 0). Replacing a row moves each count by at most 1, and a maximum
    moves by no more than what it is taken over. Scoring cells, not values, tells the cell that all rows lie in from
    the empty ones above it.

    Parameters
    ----------
    grid : array of shape (values,)
    quantile : float
        In (0, 1).
    of : {"row_l2", "row_linf", "label"}
        Row norms, or magnitudes of labels.
    """

    grid: FloatArray
    quantile: float
    of: str

    def sensitivity(self, public: PublicFacts) -> Sensitivity:
        return Sensitivity(linf=float(public.rows_per_unit))

    def size(self, public: PublicFacts) -> float:
        return public.n_rows * math.sqrt(len(self.grid))

    def evaluate(self, rows: Rows, public: PublicFacts) -> FloatArray:
        counts = rows.reduce(self._counts)
        below, wanted = np.r_[0.0, counts[:-1]], self.quantile * public.n_rows
        return -np.maximum(np.maximum(wanted - counts, below - wanted), 0.0)[:, None]

    def _counts(self, block: Block) -> FloatArray:
        values = np.abs(block.targets) if self.of == "label" else block.norms("l2" if self.of == "row_l2" else "linf")
        values = np.where(block.active, values, 0.0)
        return np.searchsorted(np.sort(values), self.grid, side="right").astype(float)


@dataclass(frozen=True, eq=False)
class Curvature(Query):
    """The mean over rows of <x, v>² / |v|² for a public direction v: how fast margins change along it.

    By Cauchy-Schwarz each row contributes between 0 and its squared norm, and contributions are clipped to a squared
    bound in any case, so replacing a row moves the mean by at most the squared bound / n: one bound, not two.

    Parameters
    ----------
    direction : array of shape (n_parameters, n_outputs)
        Already public.
    intercept_value : float, default=0.0
        Entry of the constant column; 0 for no intercept.
    row_bound : float or None, default=None
        The bound whose square contributions are clipped to; None is the row bound, and then nothing is clipped.
    """

    direction: FloatArray
    intercept_value: float = 0.0
    row_bound: float | None = None

    def sensitivity(self, public: PublicFacts) -> Sensitivity:
        moved = self.one_unit(public)
        return Sensitivity(l1=moved, l2=moved, linf=moved)

    def one_unit(self, public: PublicFacts) -> float:
        return self.size(public) * public.rows_per_unit / public.n_rows

    def size(self, public: PublicFacts) -> float:
        return (public.row_bound(self.intercept_value) if self.row_bound is None else self.row_bound) ** 2

    def evaluate(self, rows: Rows, public: PublicFacts) -> FloatArray:
        length = float((self.direction**2).sum())
        if length == 0:
            return np.zeros((1, 1))
        return rows.reduce(partial(self._contribution, length=length, bound=self.size(public))) / public.n_rows

    def _contribution(self, block: Block, length: float, bound: float) -> FloatArray:
        squares = (block.margins(self.direction, self.intercept_value) ** 2).sum(axis=1) / length
        counted = np.where(np.isfinite(squares) & block.active, np.minimum(squares, bound), 0.0)
        return np.array([[float(counted.sum())]])


@dataclass(frozen=True, eq=False)
class CurvatureAlongGradient(Query):
    """The curvature that the loss can have along the gradient, restricted to the features in play.

    Those are the current support and the `keep` largest entries of the gradient. The reciprocal is the step of
    normalised iterative hard thresholding (Blumensath and Davies 2010). It has no useful sensitivity, so no mechanism
    but the exact answer of a fit without privacy accepts it.
    """

    gradient: ClippedGradient
    keep: int

    def sensitivity(self, public: PublicFacts) -> Sensitivity:
        return Sensitivity()

    def size(self, public: PublicFacts) -> float:
        return math.inf

    def evaluate(self, rows: Rows, public: PublicFacts) -> FloatArray:
        weights = self.gradient.weights
        gradient = self.gradient.evaluate(rows, public)
        entering = np.where(weights != 0, gradient, HardThreshold(self.keep, public.n_features)(gradient))
        staying = np.where(weights != 0, gradient, 0.0)
        a = self.gradient.intercept_value
        along = max(float(Curvature(d, a).evaluate(rows, public)[0, 0]) for d in (entering, staying))
        label = rows.reduce(self._largest_target, max)
        return np.array([[along * public.loss.typical_curvature(label)]])

    def _largest_target(self, block: Block) -> float:
        return float(np.abs(block.targets).max(initial=0.0))


@dataclass(frozen=True, eq=False)
class Minimiser(Query):
    """The minimiser of a penalised loss over a few public directions: what objective perturbation perturbs.

    theta minimises sum_i f_tau(<z_i, theta>, y_i) + (penalty / 2) |theta - centre|². The row z_i holds x_i on
    `features` (mixed by `mixing`, if given) and the constant column's entry, and is scaled down to `row_bound` if it
    is longer; f_tau is the loss with its slope cut at ±tau. So, for every theta and every row,
    |gradient| <= tau × row_bound =: G, and the Hessian of one row has rank one and norm at most
    curvature × row_bound².

    Replacing a row moves the gradient by at most 2 G, and log det of the Hessian by at most
    log(1 + curvature × row_bound² / penalty): one row's rank one is taken from, another's added to, something that is
    at least the penalty. Clipping cannot enforce convexity, so losses other than tulle's own are refused.

    Parameters
    ----------
    features : int array
        Columns of the rows; already public.
    slope_clip : float
        tau, in (0, inf); inf only without privacy.
    row_bound : float
        In (0, inf); inf only without privacy.
    penalty : float
        In (0, inf).
    centre : array of shape (directions + 1 with an intercept,)
        Already public.
    intercept_value : float, default=0.0
        Entry of the constant column, which is the last direction; 0 for no intercept.
    mixing : array of shape (features, directions) or None, default=None
        Public directions; None is one direction for each feature.
    output : int, default=0
        Which class is told from the others, for a one-against-the-rest loss.
    """

    features: npt.NDArray[np.intp]
    slope_clip: float
    row_bound: float
    penalty: float
    centre: FloatArray
    intercept_value: float = 0.0
    mixing: FloatArray | None = None
    output: int = 0

    def __post_init__(self) -> None:
        if not (0 < self.penalty < math.inf and self.slope_clip > 0 and self.row_bound >= _LEAST_BOUND):
            raise ValueError(
                f"penalty and slope_clip must be > 0 and row_bound at least {_LEAST_BOUND:g}, got {self.penalty}, "
                f"{self.slope_clip} and {self.row_bound}"
            )

    def _loss(self, public: PublicFacts) -> Loss:
        loss = public.loss
        if not certified_convex(loss):
            raise ValueError(f"{loss!r} is not a loss of one output, of tulle's own, that is known to be convex")
        return of_one_output(loss)

    def _curvature(self, public: PublicFacts) -> float:
        return self._loss(public).curvature_within(self.slope_clip, public.label)

    def _gradient_moves(self, public: PublicFacts) -> float:
        """How far replacing a unit can move the gradient; inf without privacy, where nothing bounds it."""
        return 2.0 * self.slope_clip * self.row_bound * public.rows_per_unit

    def _tolerance(self, public: PublicFacts) -> float:
        """The length of the gradient at which the solver may stop.

        The noise that hides the remaining distance is then a tenth of what the linear term puts on a coordinate of
        average curvature: half a percent of its variance. It is never below eight times what rounding can make of the
        gradient's sum, which is n contributions added up by parts.
        """
        if math.isinf(self._gradient_moves(public)):  # nothing is to be hidden
            return self._rounding(public)
        n = public.n_rows
        typical = self.penalty + n * self._curvature(public) * self.row_bound**2 / max(len(self.centre), 1)
        hidden = 0.1 * self._gradient_moves(public) / (2.5 * ObjectivePerturbation.CERTIFICATE)
        return max(self._rounding(public), hidden * self.penalty / typical)

    def _rounding(self, public: PublicFacts) -> float:
        """Eight times what rounding can make of the gradient's sum; of one with contributions of length 1, without
        privacy."""
        n = public.n_rows
        additions = PART_ROWS + math.ceil(n / PART_ROWS) + len(self.centre) + 8
        rounding = 8 * additions * 2.0**-53 * n
        if math.isinf(self._gradient_moves(public)):
            return rounding
        slope = self.slope_clip + (public.label if public.label < math.inf else 0.0)
        return rounding * slope * self.row_bound

    def sensitivity(self, public: PublicFacts) -> Sensitivity:
        square = self._curvature(public) * self.row_bound**2
        moves = ObjectiveSensitivity(
            gradient=self._gradient_moves(public),
            log_determinant=math.log1p(square / self.penalty) * public.rows_per_unit,
            # Both answers are off by up to tolerance / penalty; a quarter more for a gradient computed in floats.
            minimiser=2.5 * self._tolerance(public) / self.penalty,
            penalty=self.penalty,
            one_sided=self._loss(public).one_sided,
            rows_per_unit=public.rows_per_unit,
        )
        return Sensitivity(objective=moves)

    def size(self, public: PublicFacts) -> float:
        return float(np.linalg.norm(self.centre)) + public.n_rows * self.slope_clip * self.row_bound / self.penalty

    def evaluate(self, rows: Rows, public: PublicFacts) -> PenalisedSum:
        return self._objective(rows, public, self._tolerance(public))

    def _objective(self, rows: Rows, public: PublicFacts, tolerance: float) -> PenalisedSum:
        return PenalisedSum(
            parts=rows.derive(partial(self._parts, public=public)),
            n_rows=public.n_rows,
            terms=Terms(self._loss(public), self.slope_clip, self._curvature(public)),
            row_bound=self.row_bound,
            penalty=self.penalty,
            centre=self.centre,
            tolerance=tolerance,
        )

    def _parts(self, block: Block, public: PublicFacts) -> list[Part]:
        features = _clipped_rows(block, self.features, self.intercept_value, self.row_bound, self.mixing)
        targets = block.targets
        if isinstance(public.loss, OneVsRest):
            targets = np.where(targets == self.output, 1.0, -1.0)
        cuts = range(0, block.n_rows, PART_ROWS)
        return [Part(features[k : k + PART_ROWS], targets[k : k + PART_ROWS]) for k in cuts]


@dataclass(frozen=True, eq=False)
class Teacher(Query):
    """A penalised minimiser itself, as a vector to which noise may be added.

    The objective F is a sum over rows, each with a gradient of length at most G, plus (penalty / 2) |theta - centre|².
    Between neighbours the gradients of F and F' differ by at most 2 G k at every theta, k rows per unit. F is
    penalty-strongly convex on a fixed space, so |theta* - theta'*| <= 2 G k / penalty: the features are public, and no
    row can swap them. The solver stops where |grad F| <= tolerance, within tolerance / penalty of theta*, on both data
    sets; a quarter more is for a gradient computed in floats.

    Parameters
    ----------
    problem : Minimiser
    """

    problem: Minimiser

    def _tolerance(self, public: PublicFacts) -> float:
        """A millionth of what a row can do, and no less than what rounding allows."""
        rounding, moves = self.problem._rounding(public), self.problem._gradient_moves(public)
        return rounding if math.isinf(moves) else max(rounding, 1e-6 * moves)

    def sensitivity(self, public: PublicFacts) -> Sensitivity:
        moves = self.problem._gradient_moves(public) + 2.5 * self._tolerance(public)
        return Sensitivity(l2=moves / self.problem.penalty)

    def size(self, public: PublicFacts) -> float:
        return self.problem.size(public) + self._tolerance(public) / self.problem.penalty

    def evaluate(self, rows: Rows, public: PublicFacts) -> FloatArray:
        objective = self.problem._objective(rows, public, self._tolerance(public))
        return objective.minimise(np.zeros(objective.shape))[:, None]


def _clipped_rows(
    block: Block,
    features: npt.NDArray[np.intp],
    intercept_value: float,
    bound: float,
    mixing: FloatArray | None = None,
) -> Any:
    """A block's rows on some features (mixed, if asked) and the constant column, dense or CSR, at most `bound` long.

    A row that does not count is zero.
    """
    columns = block.columns(features)
    if mixing is not None:
        columns = np.asarray(columns @ mixing)
    dense = isinstance(columns, np.ndarray)
    if dense:
        squares = np.einsum("ij,ij->i", columns, columns)
    else:
        lengths = np.diff(columns.indptr)
        line = np.repeat(np.arange(block.n_rows, dtype=np.int32), lengths)
        squares = np.bincount(line, columns.data**2, minlength=block.n_rows)
        del line
    norms = np.sqrt(squares + intercept_value**2) * (1.0 + 2.0**-52 * (columns.shape[1] + 8))
    # Written so that a length which is not a number counts as nothing.
    scale = np.where(norms <= bound, 1.0, np.where(norms < np.inf, bound / norms, 0.0))
    scale = np.where(block.active, scale, 0.0)
    if dense:
        clipped = columns * scale[:, None]
        clipped[~np.isfinite(clipped)] = 0.0
        return np.hstack([clipped, intercept_value * scale[:, None]]) if intercept_value else clipped
    columns.data *= np.repeat(scale, lengths)  # a copy of the block's own, made for this question
    data, indices, indptr = columns.data, columns.indices, columns.indptr
    width = columns.shape[1]
    if intercept_value:  # one more entry at the end of each row
        data = np.insert(data, indptr[1:], intercept_value * scale)
        indices = np.insert(indices, indptr[1:], width)
        indptr = indptr + np.arange(block.n_rows + 1, dtype=indptr.dtype)
        width += 1
    return sp.csr_array((data, indices, indptr), shape=(block.n_rows, width))


@dataclass(frozen=True, eq=False)
class SecondMoments(Query):
    """The mean over rows of v v', v = (row on the chosen features, constant column, scaled target): a symmetric matrix.

    It is released as the vector of its upper triangle with off-diagonal entries times sqrt(2), whose length is the
    matrix's Frobenius norm. |v|² <= row_bound² + (unit × label)² =: R², and for two rows
    |v v' - u u'|² = |v|⁴ + |u|⁴ - 2 <u, v>² <= 2 R⁴: replacing a row moves the mean by at most sqrt(2) R² / n.

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
        if not self.row_bound >= _LEAST_BOUND:
            raise ValueError(f"row_bound must be at least {_LEAST_BOUND:g}, got {self.row_bound}")

    def _triangle(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        return np.triu_indices(len(self.features) + bool(self.intercept_value) + 1)

    def size(self, public: PublicFacts) -> float:
        return self.row_bound**2 + (self.unit * public.label) ** 2

    def sensitivity(self, public: PublicFacts) -> Sensitivity:
        return Sensitivity(l2=math.sqrt(2) * self.size(public) * public.rows_per_unit / public.n_rows)

    def evaluate(self, rows: Rows, public: PublicFacts) -> FloatArray:
        line, column = self._triangle()
        moments = rows.reduce(partial(self._contribution, public=public)) / public.n_rows
        return np.asarray((moments * np.where(line == column, 1.0, math.sqrt(2)))[:, None])

    def _contribution(self, block: Block, public: PublicFacts) -> FloatArray:
        features = _clipped_rows(block, self.features, self.intercept_value, self.row_bound)
        features = features if isinstance(features, np.ndarray) else features.toarray()
        targets = self.unit * np.clip(block.targets, -public.label, public.label)
        both = np.hstack([features, np.where(np.isfinite(targets), targets, 0.0)[:, None]])
        return np.asarray((both.T @ both)[self._triangle()])

    def as_matrix(self, answer: FloatArray) -> FloatArray:
        """The symmetric matrix behind an answer."""
        line, column = self._triangle()
        matrix = np.zeros((line[-1] + 1, line[-1] + 1))
        matrix[line, column] = answer[:, 0] / np.where(line == column, 1.0, math.sqrt(2))
        return np.asarray(np.triu(matrix) + np.triu(matrix, 1).T)


@dataclass(frozen=True, eq=False)
class Known(Query):
    """Values that are known already, to have noise drawn on them. No row is looked at, so nothing moves.

    Parameters
    ----------
    values : array of shape (lines, columns)
    """

    values: FloatArray

    def sensitivity(self, public: PublicFacts) -> Sensitivity:
        return Sensitivity(l1=0.0, l2=0.0, linf=0.0)

    def size(self, public: PublicFacts) -> float:
        return float(np.linalg.norm(self.values))

    def evaluate(self, rows: Rows, public: PublicFacts) -> FloatArray:
        return self.values.copy()


@dataclass(frozen=True, eq=False)
class BoundedMeans(Query):
    """The mean over rows of each of `columns` figures in [0, 1] that a public model makes of a row.

    The rows that are asked hold these figures as their features: each is a function of one row and of what is public.
    Whatever lies outside [0, 1] is clipped, and what is not a number counts as 0. Replacing a row moves each mean by at
    most 1 / n: one bound, not two.

    Parameters
    ----------
    columns : int
        At least 1.
    """

    columns: int

    def sensitivity(self, public: PublicFacts) -> Sensitivity:
        moved = public.rows_per_unit / public.n_rows
        return Sensitivity(l1=self.columns * moved, l2=math.sqrt(self.columns) * moved, linf=moved)

    def size(self, public: PublicFacts) -> float:
        return math.sqrt(self.columns)

    def evaluate(self, rows: Rows, public: PublicFacts) -> FloatArray:
        return rows.reduce(self._contribution) / public.n_rows

    def _contribution(self, block: Block) -> FloatArray:
        figures = block.margins(np.eye(self.columns), 0.0)
        counted = np.where(np.isfinite(figures) & block.active[:, None], np.clip(figures, 0.0, 1.0), 0.0)
        return counted.sum(axis=0)[:, None]


@dataclass(frozen=True, eq=False)
class CellCounts(Query):
    """How many rows lie in each of `cells` public cells.

    The rows that are asked hold the number of their cell as their only feature. A row is in one cell at most, so that
    replacing it lowers one count by 1 and raises another.

    Parameters
    ----------
    cells : int
        At least 1.
    """

    cells: int

    def sensitivity(self, public: PublicFacts) -> Sensitivity:
        rows = float(public.rows_per_unit)
        return Sensitivity(l1=2 * rows, l2=math.sqrt(2) * rows, linf=rows)

    def size(self, public: PublicFacts) -> float:
        return float(public.n_rows)

    def evaluate(self, rows: Rows, public: PublicFacts) -> FloatArray:
        return rows.reduce(self._contribution)

    def _contribution(self, block: Block) -> FloatArray:
        cell = block.margins(np.ones((1, 1)), 0.0)[:, 0]
        counted = block.active & (cell >= 0) & (cell < self.cells)
        return np.bincount(cell[counted].astype(np.intp), minlength=self.cells).astype(float)[:, None]
