"""Queries: what may be asked of private rows, each with its sensitivity and the argument for it.

Adjacency is replace-one: the number of rows n is public, and one unit (a row, or a person with at most
`rows_per_unit` rows) is replaced. A mean over n rows in which each row contributes a vector of norm at most C therefore
moves by at most 2 C rows_per_unit / n. Proof pages: docs/proofs/clipped_gradient.md, docs/proofs/quantile.md.

`evaluate` is called by the curator alone. `size` bounds the ℓ2 norm of the exact answer from public quantities; only
the statement on floating point uses it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tulle.events import FloatArray
from tulle.losses import Norm
from tulle.mechanisms import HardThreshold, Sensitivity
from tulle.public import PublicFacts
from tulle.rows import Block, Rows

Mask = npt.NDArray[np.bool_]


class Query(ABC):
    """A function of all private rows with a bounded change when one unit is replaced."""

    @abstractmethod
    def sensitivity(self, public: PublicFacts) -> Sensitivity: ...

    @abstractmethod
    def size(self, public: PublicFacts) -> float: ...

    @abstractmethod
    def evaluate(self, rows: Rows, public: PublicFacts) -> FloatArray: ...


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

    def level(self, public: PublicFacts) -> float:
        """C: what one row's contribution is clipped to.

        The weights are public, so a bound on all margins is known, |m| <= M = min(K2 |w|_2, Kinf |w|_1), and with it
        a bound on all slopes. Where that is below `clip` the clip level shrinks with it; it *is* the clip level
        of this query, so the sensitivity holds whatever the loss says of itself.
        """
        row, entry = public.row_bound(self.intercept_value), public.entry_bound(self.intercept_value)
        slope = self.clip
        if not public.as_published:
            two = float(np.sqrt((self.weights**2).sum(axis=0)).max())
            one = float(np.abs(self.weights).sum(axis=0).max())
            margins = min((row * two) if two else 0.0, (entry * one) if one else 0.0)
            slope = max(0.0, min(slope, public.loss.slope_bound(margins, public.label, self.norm)))
        if self.norm == "linf":
            return slope * entry
        return slope * (row if self.support_row_bound is None else self.support_row_bound)

    def sensitivity(self, public: PublicFacts) -> Sensitivity:
        moved = 2.0 * self.level(public) * public.rows_per_unit / public.n_rows
        return Sensitivity(l2=moved) if self.norm == "l2" else Sensitivity(linf=moved)

    def size(self, public: PublicFacts) -> float:
        entries = 1 if self.norm == "l2" else self.weights.size
        return self.level(public) * math.sqrt(entries)

    def evaluate(self, rows: Rows, public: PublicFacts) -> FloatArray:
        level = self.level(public)
        total = rows.reduce(lambda block: self._contribution(block, level, public))
        total /= public.n_rows
        return total

    def _contribution(self, block: Block, level: float, public: PublicFacts) -> FloatArray:
        slopes = public.loss.slope(block.margins(self.weights, self.intercept_value), block.targets)
        # Behind the estimator's checks a record whose slope is not finite counts as nothing rather than raise.
        slopes = np.where(np.isfinite(slopes) & block.active[:, None], slopes, 0.0)
        norms = self._contribution_norms(block, slopes)
        with np.errstate(divide="ignore", invalid="ignore"):
            # Written so that a norm which is not a number counts as nothing, never as unclipped.
            factor = np.where(norms <= level, 1.0, np.where(norms < np.inf, level / norms, 0.0))
        slopes = slopes * factor[:, None]
        total = np.zeros_like(self.weights)
        features = public.n_features
        if self.support is None:
            total[:features] = block.gather(slopes)
        else:
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
            norms = np.sqrt((slopes**2).sum(axis=1)) * np.hypot(block.norms("l2"), a)
        else:
            squares = np.zeros(block.n_rows)
            for column in range(slopes.shape[1]):
                chosen = np.flatnonzero(self.support[: len(self.weights) - bool(a), column])
                squares += slopes[:, column] ** 2 * (block.norms_on(chosen) ** 2 + a**2)
            norms = np.sqrt(squares)
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
    """The magnitudes of a step's feature weights: scores for a selection. ||a| - |b|| <= |a - b|."""

    step: Step

    def sensitivity(self, public: PublicFacts) -> Sensitivity:
        return self.step.sensitivity(public)

    def size(self, public: PublicFacts) -> float:
        return self.step.size(public)

    def evaluate(self, rows: Rows, public: PublicFacts) -> FloatArray:
        return np.abs(self.step.evaluate(rows, public)[: public.n_features])


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
        moved = self.size(public) * public.rows_per_unit / public.n_rows
        return Sensitivity(l1=moved, l2=moved, linf=moved)

    def size(self, public: PublicFacts) -> float:
        return (public.row_bound(self.intercept_value) if self.row_bound is None else self.row_bound) ** 2

    def evaluate(self, rows: Rows, public: PublicFacts) -> FloatArray:
        length = float((self.direction**2).sum())
        if length == 0:
            return np.zeros((1, 1))
        return rows.reduce(lambda block: self._contribution(block, length, self.size(public))) / public.n_rows

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
        label = max(float(np.abs(block.targets).max()) for block in rows.blocks)
        return np.array([[along * public.loss.typical_curvature(label)]])
