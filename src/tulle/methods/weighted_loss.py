"""The loss w f(m + o, y) of rows with a weight w in [0, 1] and an offset o, which their targets carry.

What a method reads of a loss (slopes, curvatures) is an upper bound for every weight, so it is that of f; margins reach
further by the declared bound of offsets. Proof: docs/proofs/weighted_rows.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tulle.backends.weighted_targets import WeightedTargets
from tulle.methods.loss_functions import Loss
from tulle.trusted.events import FloatArray
from tulle.trusted.losses import ConvexLoss, Norm


def row_weights(targets: FloatArray) -> FloatArray | float:
    """The weights of rows, from their targets; 1 where they carry none."""
    weights = getattr(targets, "weights", None)
    return 1.0 if weights is None else np.asarray(weights)


def row_offsets(targets: FloatArray) -> FloatArray | float:
    """The offsets that are added to margins, from the targets of rows; 0 where they carry none."""
    offsets = getattr(targets, "offsets", None)
    return 0.0 if offsets is None else np.asarray(offsets)


@dataclass(frozen=True)
class WeightedLoss(Loss):
    """Another loss, of rows with weights and offsets.

    Parameters
    ----------
    base : Loss
    offset_bound : float, default=0.0
        The declared bound of offsets that are added to margins, >= 0.
    """

    base: Loss
    offset_bound: float = 0.0
    weighted = True  # for faster code, which knows the losses of rows without weights

    @property
    def kind(self) -> Any:  # type: ignore[override]
        return self.base.kind

    @property
    def curvature(self) -> float:  # type: ignore[override]
        return self.base.curvature

    @property
    def n_outputs(self) -> int:  # type: ignore[override]
        return self.base.n_outputs

    @property
    def one_sided(self) -> bool:  # type: ignore[override]
        return self.base.one_sided

    @property
    def convex(self) -> ConvexLoss | None:
        return self.base.convex

    def _split(self, margins: FloatArray, targets: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The margins with their offsets, the targets themselves, and the weights."""
        if not isinstance(targets, WeightedTargets) or targets.weights is None:
            raise TypeError("targets that carry no weights were given to a weighted loss")
        if targets.offsets is not None:
            margins = margins + targets.offsets[:, None]
        return margins, np.asarray(targets), targets.weights

    def value(self, margins: FloatArray, targets: FloatArray) -> FloatArray:
        margins, plain, weights = self._split(margins, targets)
        return weights * self.base.value(margins, plain)

    def slope(self, margins: FloatArray, targets: FloatArray) -> FloatArray:
        margins, plain, weights = self._split(margins, targets)
        return weights[:, None] * self.base.slope(margins, plain)

    def slope_bound(self, margin_bound: float, label_bound: float, norm: Norm = "l2") -> float:
        return self.base.slope_bound(margin_bound + self.offset_bound, label_bound, norm)

    def default_clip(self, label_bound: float) -> float:
        return self.base.default_clip(label_bound)

    def typical_curvature(self, label_bound: float) -> float:
        return self.base.typical_curvature(label_bound)

    def margin_scale(self, label_bound: float) -> float:
        return self.base.margin_scale(label_bound)

    def curvature_within(self, slope: float, label_bound: float) -> float:
        return self.base.curvature_within(slope, label_bound)

    def constant_margin(self, mean_slope: float) -> float:
        return self.base.constant_margin(mean_slope)

    def mean(self, margins: FloatArray) -> FloatArray:
        return self.base.mean(margins)
