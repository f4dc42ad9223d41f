"""Steps without privacy: of exact gradients, as long as the rows' curvature allows. They state no sensitivity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tulle.fast.exact_answers import ExactFollowUp
from tulle.fast.sparse_weights import SparseWeights
from tulle.methods.gradient_queries import ClippedGradient, Curvature
from tulle.methods.thresholds import HardThreshold
from tulle.trusted.events import FloatArray
from tulle.trusted.facts import PublicFacts
from tulle.trusted.queries import Query


@dataclass(frozen=True, eq=False)
class _CurvatureAlong:
    """The curvature along the gradient, restricted to the current features."""

    weights: SparseWeights
    intercept_value: float
    keep: int

    def queries(self, answer: FloatArray, public: PublicFacts) -> list[Query]:
        w = self.weights
        staying = SparseWeights(w.lines, np.where(w.values != 0, answer[w.lines], 0.0), w.n_lines)
        entering = HardThreshold(self.keep, public.n_features).to_sparse(answer)
        # Where a weight is not zero, the slope counts once.
        places = np.searchsorted(entering.lines, w.lines)
        found = np.append(entering.lines, -1)[places] == w.lines
        entering.values[places[found]] *= w.values[found] == 0
        return [
            Curvature(direction, self.intercept_value, weighted=True)
            for direction in (entering.plus(staying).pruned(), staying.pruned())
        ]

    def curvature(self, answers: list[FloatArray], largest_target: float, public: PublicFacts) -> float:
        return max(float(found[0, 0]) for found in answers) * public.loss.typical_curvature(largest_target)

    def finish(self, answer: FloatArray, answers: list[FloatArray], largest_target: float, public: PublicFacts) -> Any:
        return np.array([[self.curvature(answers, largest_target, public)]])


def curvature_along_gradient(gradient: ClippedGradient, keep: int) -> ExactFollowUp:
    """The curvature that the loss can have along the gradient, restricted to the current features. Without privacy.

    Those are the current support and the `keep` largest entries of the gradient. The reciprocal is the step of
    normalised iterative hard thresholding (Blumensath and Davies 2010).
    """
    weights = SparseWeights.of(gradient.weights)
    return ExactFollowUp(gradient, _CurvatureAlong(weights, gradient.intercept_value, keep))


@dataclass(frozen=True, eq=False)
class _NormalisedStep(_CurvatureAlong):
    """The weights after a step of that size, thresholded: the gradient is taken once for both."""

    penalty: float
    ball: float | None
    threshold: HardThreshold

    def finish(
        self, answer: FloatArray, answers: list[FloatArray], largest_target: float, public: PublicFacts
    ) -> SparseWeights:
        step = 1.0 / max(self.curvature(answers, largest_target, public) + self.penalty, 1e-12)
        moved = answer  # in place: with many classes this is the largest array of the fit
        if not math.isfinite(float(moved.sum())):
            np.nan_to_num(moved, copy=False, nan=0.0, posinf=0.0, neginf=0.0)
        moved *= -step
        w = self.weights
        shrunk = np.where(w.lines < public.n_features, 1.0 - step * self.penalty, 1.0)  # the intercept is free
        moved[w.lines] += shrunk[:, None] * w.values
        kept = self.threshold.to_sparse(moved)
        return kept if self.ball is None else kept.scaled(min(1.0, self.ball / max(kept.norm(), 1e-300)))


@dataclass(frozen=True)
class ExactDescent:
    """Normalised iterative hard thresholding: one gradient a step, weights kept as the lines that are not zero.

    Parameters
    ----------
    threshold : HardThreshold
    keep : int
        As in `curvature_along_gradient`.
    intercept_value : float
        Entry of the constant column; 0 for no intercept.
    penalty : float
        ℓ2 penalty, >= 0.
    ball : float or None
        The largest ℓ2 norm of the weights, > 0; None: any.
    """

    threshold: HardThreshold
    keep: int
    intercept_value: float
    penalty: float = 0.0
    ball: float | None = None

    def step(self, weights: FloatArray | SparseWeights, clip: float) -> ExactFollowUp:
        """The weights after one step, as `SparseWeights`: an answer for the mechanism `Exact` alone."""
        a, start = self.intercept_value, SparseWeights.of(weights)
        return ExactFollowUp(
            ClippedGradient(start, clip, "l2", a),
            _NormalisedStep(start, a, self.keep, self.penalty, self.ball, self.threshold),
        )
