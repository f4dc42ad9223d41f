"""The public constants of one penalised fit to private rows, and what it costs.

Shared by methods that fit a few weights by one release, whichever way they chose them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tulle.events import FloatArray, NoisePerSensitivity
from tulle.losses import certified_convex, of_one_output
from tulle.mechanisms import Gaussian, Mechanism, ObjectivePerturbation
from tulle.public import PublicFacts
from tulle.queries import Minimiser

# A penalty of a twentieth of what one row can add to the curvature is as good as none, and a smaller one makes the
# problem ill-conditioned for nothing.
_LARGEST_DETERMINANT = 3.0


@dataclass(frozen=True)
class Refinement:
    """The public constants of one objective."""

    slope_clip: float
    row_bound: float  # the constant column included
    penalty: float
    log_determinant: float
    intercept_value: float

    def minimiser(
        self, features: npt.NDArray[np.intp], centre: FloatArray, output: int, mixing: FloatArray | None = None
    ) -> Minimiser:
        """The question that goes with them."""
        return Minimiser(
            features, self.slope_clip, self.row_bound, self.penalty, centre, self.intercept_value, mixing, output
        )


def refinement_of_share(public: PublicFacts, tau: float, bound: float, a: float, share: float) -> Refinement:
    """A refinement whose determinant costs `share` of epsilon, or as much as is of use, whatever the bounds are."""
    unit = bound**2 if bound < math.inf else 1.0
    if public.budget is None:
        return Refinement(tau, bound, 0.1 * unit, 0.0, a)
    log_determinant = min(share * public.budget.epsilon, _LARGEST_DETERMINANT)
    curvature = of_one_output(public.loss).curvature_within(tau, public.label)
    penalty = curvature * unit / math.expm1(log_determinant / public.rows_per_unit)
    return Refinement(tau, bound, penalty, log_determinant, a)


def gaussian(square: float) -> Mechanism:
    """Gaussian noise that costs mu² = `square`."""
    return Gaussian(NoisePerSensitivity(math.sqrt(1 / square)))


def perturbation(constants: Refinement, square: float, public: PublicFacts) -> Mechanism:
    """Objective perturbation that costs about mu² = `square` beside its determinant."""
    noise = NoisePerSensitivity(math.sqrt(1 / square))
    return ObjectivePerturbation(
        noise, constants.log_determinant, of_one_output(public.loss).one_sided, public.rows_per_unit
    )


def check_convex(method: object, public: PublicFacts) -> None:
    """Raise unless the loss is known to be convex in one margin at a time."""
    if not certified_convex(public.loss):
        raise ValueError(
            f"{type(method).__name__} rests on the convexity of the loss in one margin at a time, which is not known "
            f"of {public.loss!r}; use method='hard_thresholding', or loss='squared_hinge' for several classes"
        )
