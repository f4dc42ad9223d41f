"""What privacy rests on in a loss f(margin, target): for objective perturbation, convexity and the bounds on f'' below.

Proof: docs/proofs/objective_perturbation.md, lemma 7. Everything else of a loss is public arithmetic, or is clipped
where it meets rows, so that a wrong value costs accuracy: `tulle.methods.loss_functions` has the losses to fit with.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from scipy.special import expit

from tulle.trusted.events import FloatArray

Norm = Literal["l2", "linf"]


@dataclass(frozen=True)
class ConvexLoss(ABC):
    """A loss of one margin whose slope does not decrease in the margin, for all values of its parameters."""

    one_sided = False  # whether slope × target is never positive

    @abstractmethod
    def slope(self, margins: FloatArray, targets: FloatArray) -> FloatArray:
        """The derivative in the margin, row by row; margins of shape (n, 1)."""

    def curvature_within(self, slope: float, label_bound: float) -> float:
        """Upper bound of the second derivative where the slope's magnitude is below `slope` and |y| <= label_bound."""
        return 1.0

    def fall(self, label_bound: float) -> float:
        """Upper bound of f(0, y) - inf f(., y) where |y| <= label_bound: y²/2, and log 2 or 1/2 if one-sided."""
        return 1.0 if self.one_sided else label_bound * label_bound / 2 + 1e-300  # which may underflow


@dataclass(frozen=True)
class ConvexSquared(ConvexLoss):
    def slope(self, margins: FloatArray, targets: FloatArray) -> FloatArray:
        return margins - targets[:, None]


@dataclass(frozen=True)
class ConvexHuber(ConvexLoss):
    threshold: float

    def slope(self, margins: FloatArray, targets: FloatArray) -> FloatArray:
        return np.clip(margins - targets[:, None], -self.threshold, self.threshold)


@dataclass(frozen=True)
class ConvexPoisson(ConvexLoss):
    cap: float

    def slope(self, margins: FloatArray, targets: FloatArray) -> FloatArray:
        return np.exp(np.minimum(margins, self.cap)) - targets[:, None]

    def curvature_within(self, slope: float, label_bound: float) -> float:
        return min(slope + label_bound, math.exp(self.cap))  # exp(m) - y < slope

    def fall(self, label_bound: float) -> float:
        return math.inf  # where y < 0


@dataclass(frozen=True)
class ConvexLogistic(ConvexLoss):
    one_sided = True

    def slope(self, margins: FloatArray, targets: FloatArray) -> FloatArray:
        sign = targets[:, None]
        return -sign * expit(-sign * margins)

    def curvature_within(self, slope: float, label_bound: float) -> float:
        return slope * (1 - slope) if slope < 0.5 else 0.25  # f'' = |f'| (1 - |f'|)


@dataclass(frozen=True)
class ConvexSquaredHinge(ConvexLoss):
    one_sided = True

    def slope(self, margins: FloatArray, targets: FloatArray) -> FloatArray:
        sign = targets[:, None]
        return -sign * np.maximum(0.0, 1.0 - sign * margins)


CONVEX: tuple[type[ConvexLoss], ...] = (ConvexSquared, ConvexHuber, ConvexPoisson, ConvexLogistic, ConvexSquaredHinge)


class AnyLoss(Protocol):
    """A loss of any package. Trusted code uses `n_outputs`, and `convex` by its exact type; methods use the rest."""

    @property
    def kind(self) -> Literal["regression", "classification"]: ...
    @property
    def curvature(self) -> float: ...
    @property
    def n_outputs(self) -> int: ...
    @property
    def convex(self) -> ConvexLoss | None:
        """What objective perturbation is to use of it, one output at a time; None where it may not."""

    def slope(self, margins: FloatArray, targets: FloatArray) -> FloatArray: ...
    def slope_bound(self, margin_bound: float, label_bound: float, norm: Norm = "l2") -> float: ...
    def default_clip(self, label_bound: float) -> float: ...
    def typical_curvature(self, label_bound: float) -> float: ...
    def margin_scale(self, label_bound: float) -> float: ...
