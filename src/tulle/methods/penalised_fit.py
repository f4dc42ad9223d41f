"""The public constants of one penalised fit to private rows, and what it costs.

Shared by methods that fit a few weights by one release, whichever way they chose them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tulle.methods.loss_functions import of_one_output
from tulle.methods.noise_scales import budget_mu
from tulle.trusted.events import FloatArray, NoisePerSensitivity
from tulle.trusted.facts import PublicFacts
from tulle.trusted.mechanisms import Gaussian, Mechanism, ObjectivePerturbation
from tulle.trusted.objectives import Minimiser

# A penalty of a twentieth of what one row can add to the curvature is as good as none, and a smaller one makes the
# problem ill-conditioned for nothing.
_LARGEST_CURVATURE = 20.0

# The xi that a penalty is set by where nothing else is known, for one-sided losses and for others.
USUAL_XI = {True: 0.45, False: 0.5}


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


def refinement(public: PublicFacts, tau: float, bound: float, a: float, curvature: float) -> Refinement:
    """A refinement in which one row adds at most `curvature` (kappa, > 0) times the penalty to the curvature."""
    unit = bound**2 if bound < math.inf else 1.0
    if public.budget is None:
        return Refinement(tau, bound, 0.1 * unit, 0.0, a)
    curvature = min(curvature, _LARGEST_CURVATURE)
    penalty = of_one_output(public.loss).curvature_within(tau, public.label) * unit / curvature
    return Refinement(tau, bound, penalty, public.rows_per_unit * math.log1p(curvature), a)


def curvature_of(public: PublicFacts, xi: float, square: float) -> float:
    """The kappa at which a release that takes the part `square` of the budget's mu² has this xi: what curvature costs
    depends on their ratio alone (docs/proofs/objective_perturbation.md, theorem 1)."""
    return xi * budget_mu(public.budget) * math.sqrt(square) / (2 * public.rows_per_unit)


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
    if public.convex_loss is None:
        raise ValueError(
            f"{type(method).__name__} rests on the convexity of the loss in one margin at a time, which is not known "
            f"of {public.loss!r}; use method='hard_thresholding', or loss='squared_hinge' for several classes"
        )
