"""Queries about batches: gradients and differences of gradients that cost a batch's own entries, not all features.

They are means over the rows of a batch, divided by the batch's *public* size (the curator hands it in as the number of
rows), so that replacing a unit moves them by 2 C rows_per_unit / batch. How likely the unit is in the batch at all is
the mechanism's business. Adjacency is replace-one. Proof: docs/proofs/stochastic_hard_thresholding.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from tulle.events import FloatArray
from tulle.lazy_noise import Background
from tulle.mechanisms import Sensitivity, SparseAnswer
from tulle.public import PublicFacts
from tulle.queries import Query, clipped, counted, largest_margin, lengths_of, longest, mean_moves
from tulle.rows import Block, Rows
from tulle.weights import SparseWeights


@dataclass(frozen=True, eq=False)
class BatchGradient(Query):
    """The mean over a batch of clipped loss gradients, or of how they change from one point to another.

    Parameters
    ----------
    weights : SparseWeights of shape (n_parameters, n_outputs)
        Where the gradient is taken; already public.
    clip : float
        In (0, inf]. The slope at which a row at its bound is clipped.
    intercept_value : float, default=0.0
        Entry of the constant column that the last line of `weights` belongs to; 0 for no intercept.
    anchor : SparseWeights or None, default=None
        Another public point: what is summed is the clipped gradient at `weights` less the clipped gradient at the
        anchor, and the difference is clipped again, to `difference_clip` at most.
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
        difference. Where the points are close a difference of gradients is small, whatever the rows: this is where
        a snapshot pays. The bound *is* the clip level, so the sensitivity holds whatever the loss says of itself.
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

    def sensitivity(self, public: PublicFacts) -> Sensitivity:
        return Sensitivity(l2=mean_moves(self.level(public), public))

    def one_unit(self, public: PublicFacts) -> float:
        return mean_moves(self.level(public), public) / 2

    def size(self, public: PublicFacts) -> float:
        return self.level(public)

    def evaluate(self, rows: Rows, public: PublicFacts) -> SparseAnswer:
        total = rows.reduce(partial(self._contribution, public=public))
        return SparseAnswer(finite(total.scaled(1.0 / public.n_rows)))

    def _contribution(self, block: Block, public: PublicFacts) -> SparseWeights:
        row = public.row_bound(self.intercept_value)
        slopes = self._slopes(block, self.weights, self._slope_level(self.weights, public) * row, public)
        if self.anchor is not None:
            before = self._slopes(block, self.anchor, self._slope_level(self.anchor, public) * row, public)
            slopes = self._clip(slopes - before, block, self.level(public))
        total = block.gather_sparsely(slopes)
        lines, values = total.lines, total.values
        if self.intercept_value:
            lines = np.append(lines, public.n_features)
            values = np.vstack([values, self.intercept_value * slopes.sum(axis=0)])
        return SparseWeights(lines, values, self.weights.n_lines)

    def _slopes(self, block: Block, at: SparseWeights, level: float, public: PublicFacts) -> FloatArray:
        slopes = public.loss.slope(block.margins_at(at, self.intercept_value), block.targets)
        return self._clip(counted(slopes, block), block, level)

    def _clip(self, slopes: FloatArray, block: Block, level: float) -> FloatArray:
        lengths = longest(block.norms("l2"), self.weights.n_lines, self.intercept_value)
        return clipped(slopes, lengths_of(slopes) * lengths * (1.0 + 2.0**-52 * self.weights.n_lines), level)


@dataclass(frozen=True, eq=False)
class BatchStep(Query):
    """A gradient step on a batch: start - size × (gradient + drift + penalty × weights).

    The start, the weights and the drift are public and the penalty does not touch data, so only the gradient's
    sensitivity counts, times the step size. The intercept is not penalised.

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

    def sensitivity(self, public: PublicFacts) -> Sensitivity:
        return self.gradient.sensitivity(public).times(self.step_size)

    def one_unit(self, public: PublicFacts) -> float:
        return self.gradient.one_unit(public) * self.step_size

    def size(self, public: PublicFacts) -> float:
        penalised = self.step_size * self.penalty * float(np.linalg.norm(self.gradient.weights.values))
        drift = 0.0 if self.drift is None else self.step_size * self.drift.norm
        start = float(np.linalg.norm(self.start.values))
        return start + penalised + drift + self.step_size * self.gradient.size(public)

    def evaluate(self, rows: Rows, public: PublicFacts) -> SparseAnswer:
        start, weights = self.start, self.gradient.weights
        if self.penalty:
            features = weights.lines < public.n_features
            penalised = SparseWeights(weights.lines[features], weights.values[features], weights.n_lines)
            start = start.plus(penalised, -self.step_size * self.penalty)
        if public.fit_intercept and not (len(start.lines) and start.lines[-1] == public.n_features):
            # Always listed: a threshold keeps it whatever it is.
            values = np.vstack([start.values, np.zeros((1, start.shape[1]))])
            start = SparseWeights(np.append(start.lines, public.n_features), values, start.n_lines)
        moved = start.plus(self.gradient.evaluate(rows, public).listed, -self.step_size)
        if self.drift is None:
            return SparseAnswer(moved)
        background = self.drift.times(-self.step_size)
        values = moved.values + background.factor * background.means[moved.lines]
        return SparseAnswer(SparseWeights(moved.lines, values, moved.n_lines), background)


def finite(weights: SparseWeights) -> SparseWeights:
    """Behind the estimator's checks a number that is not finite counts as nothing rather than raise."""
    values = np.nan_to_num(weights.values, nan=0.0, posinf=0.0, neginf=0.0)
    return SparseWeights(weights.lines, values, weights.n_lines)
