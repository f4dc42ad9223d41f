"""Targets that carry a weight and an offset for each row, and what a certificate needs where there are offsets.

A weight in [0, 1] multiplies the loss of its row, and an offset is added to its margin: both are numbers of that row
alone. They travel with the targets, so that a loss finds them wherever it is asked for slopes. Proof:
docs/proofs/weighted_rows.md.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tulle.trusted.events import FloatArray
from tulle.trusted.facts import PublicFacts
from tulle.trusted.losses import ConvexLogistic, ConvexLoss, ConvexPoisson, ConvexSquaredHinge
from tulle.trusted.objectives import PART_ROWS, Minimiser, RowTerms

# Of a margin. Beyond, sums of offsets and margins would lose digits that the certificate counts on.
LARGEST_OFFSET = 30.0

# How much of the tolerance of a certificate the proof leaves to what offsets add to it, and how far offsets may reach
# in units of slopes over curvature.
_ROOM, _FAR = 61.0 / 60.0, 98.0


def clip_weights(weights: FloatArray) -> FloatArray:
    """Weights in [0, 1], each by itself: no row counts for more than a row without a weight does."""
    return np.clip(np.nan_to_num(weights, nan=0.0), 0.0, 1.0)


def clip_offsets(offsets: FloatArray, bound: float) -> FloatArray:
    """Offsets in [-bound, bound], each by itself."""
    return np.clip(np.nan_to_num(offsets, nan=0.0), -bound, bound)


class WeightedTargets(np.ndarray[Any, np.dtype[np.float64]]):
    """Targets with the weight and the offset of each row.

    A part of them (an index of rows) carries its part of both, and so do targets that were clipped or left out row by
    row (`np.clip`, `np.where`): whether a row counts must not decide whether weights do. What else is computed from
    them carries nothing.

    Attributes
    ----------
    weights : array of shape (n,) or None
        In [0, 1]. None where this is no longer a vector of targets.
    offsets : array of shape (n,) or None
        None: all are 0.
    """

    weights: FloatArray | None
    offsets: FloatArray | None

    @classmethod
    def make(
        cls, targets: FloatArray, weights: FloatArray, offsets: FloatArray | None, offset_bound: float
    ) -> WeightedTargets:
        """The targets of rows that have these weights and offsets, clipped."""
        made = np.array(targets, dtype=np.float64).view(cls)
        made.weights = clip_weights(weights)
        made.offsets = None if offsets is None else clip_offsets(offsets, offset_bound)
        return made

    def __array_finalize__(self, obj: Any) -> None:
        self.weights, self.offsets = None, None

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        found = super().__array_function__(func, types, args, kwargs)
        same = func in (np.where, np.clip) and isinstance(found, np.ndarray) and found.shape == self.shape
        if not same or self.weights is None:
            return found
        carried = found.view(WeightedTargets)
        carried.weights, carried.offsets = self.weights, self.offsets
        return carried

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        if self.weights is not None and isinstance(found, WeightedTargets) and found.ndim == 1:
            found.weights = self.weights[key]
            found.offsets = None if self.offsets is None else self.offsets[key]
        return found


def largest_fall(loss: ConvexLoss, offset_bound: float) -> float:
    """Upper bound of f(o, y) - inf f(., y) over all |o| <= offset_bound, for one-sided losses; inf for others."""
    if type(loss) is ConvexLogistic:
        return float(np.logaddexp(0.0, offset_bound))
    if type(loss) is ConvexSquaredHinge:
        return (1.0 + offset_bound) ** 2 / 2
    return math.inf


def is_certified(question: Minimiser, public: PublicFacts, offset_bound: float) -> bool:
    """Whether the tolerance of a minimiser holds for rows with offsets too: by public quantities alone.

    docs/proofs/weighted_rows.md, theorem 2. The third figure in t bounds how far a minimiser is from its centre, by
    f(0) - inf f; with an offset that is f(o) - inf f.
    """
    loss = public.convex_loss
    if loss is None or type(loss) not in (ConvexLogistic, ConvexSquaredHinge, ConvexPoisson) or question.itself:
        return False
    slopes = question.slope_clip + (public.label if public.label < math.inf else 0.0)
    if not question._curvature(public) * offset_bound <= _FAR * slopes:
        return False
    if type(loss) is ConvexPoisson:  # its distance is bounded by slopes alone
        return True
    n, length = public.n_rows, float(np.linalg.norm(question.centre)) * (1 + 1e-9)
    slope = question.slope_clip * question.row_bound
    fall = largest_fall(loss, offset_bound) + slope * length
    far = 0.5 * (question.penalty * length + min(n * slope, math.sqrt(2 * n * fall * question.penalty)))
    return question._step_rounding(public) * far <= _ROOM * question._tolerance(public)


def raise_penalty(
    public: PublicFacts, slope_clip: float, row_bound: float, penalty: float, curvature: float, offset_bound: float
) -> float:
    """The least penalty, by factors of two, with which minimisers of any centre and any number of weights are certified
    for rows with offsets (`is_certified`; docs/proofs/weighted_rows.md, lemma 3)."""
    loss = public.convex_loss
    if loss is None or public.budget is None:
        return penalty
    slopes = slope_clip + (public.label if public.label < math.inf else 0.0)
    if curvature * offset_bound > _FAR * slopes:
        raise ValueError(
            f"offsets up to {offset_bound:g} are too large for slopes that are cut at {slope_clip:.3g}; declare a "
            "smaller Bounds(offset=...) or set a larger slope_clip"
        )
    fall = largest_fall(loss, offset_bound)
    if math.isinf(fall) or fall <= 1.0:
        return penalty
    n, slope, error = public.n_rows, slope_clip * row_bound, 2.0**-53
    centre = 30.0 * (fall - 1.0) / slope
    for _ in range(100):
        steepest = n * curvature * row_bound**2 + penalty
        rounding = 4.0 * ((public.n_parameters + 8) * RowTerms.wide_error + 12 * error) * steepest / penalty
        far = 0.5 * (penalty * centre + math.sqrt(2 * n * (fall + slope * centre) * penalty))
        hidden = 0.1 * 2 * slope * public.rows_per_unit / 75.0 * penalty / steepest  # of one weight: the least
        if rounding * far <= max(hidden, 8 * PART_ROWS * error * n * slope):
            return penalty
        penalty *= 2
    raise ValueError(f"offsets up to {offset_bound:g} leave no digits to find a minimiser by; declare a smaller bound")
