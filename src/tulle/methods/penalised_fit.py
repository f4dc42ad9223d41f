"""The public constants of one penalised fit to private rows, what it costs, and the rescaling that ends such methods.

Shared by methods that fit weights by one release, whichever way they chose them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tulle.backends.weighted_targets import raise_penalty
from tulle.methods.gradient_queries import ClippedGradient, Curvature
from tulle.methods.loss_functions import of_one_output
from tulle.methods.noise_scales import budget_mu, margin_unit
from tulle.trusted.events import FloatArray, NoisePerSensitivity
from tulle.trusted.facts import PublicFacts
from tulle.trusted.mechanisms import Gaussian, Mechanism, ObjectivePerturbation
from tulle.trusted.objectives import Minimiser
from tulle.trusted.plan import Release

# A penalty of a twentieth of what one row can add to the curvature is as good as none, and a smaller one makes the
# problem ill-conditioned for nothing.
_LARGEST_CURVATURE = 20.0

# The xi that a penalty is set by where nothing else is known, for one-sided losses and for others.
USUAL_XI = {True: 0.45, False: 0.5}

# In the rescaling a row is its margin, in units of the root mean square margin, and this constant; rows longer than the
# bound are scaled down to it. For classification, whose noise would move the intercept, shorter than for others.
_RESCALE_INTERCEPT, _RESCALE_BOUND = {True: 1.0, False: 0.5}, {True: 1.5, False: 2.5}
# How its cost is divided, and its xi.
_SPREAD_PART = 0.25
_RESCALE_XI = {True: 0.8, False: 0.4}
# The least root mean square margin that it leaves, in units of the label bound for regression: where noise makes the
# slope negative, the order of the rows is still worth having.
_LEAST_MARGIN = 0.05


@dataclass(frozen=True)
class Refinement:
    """The public constants of one objective."""

    slope_clip: float
    row_bound: float  # the constant column included
    penalty: float
    log_determinant: float
    intercept_value: float

    def own_influence(self, public: PublicFacts, size: int) -> float:
        """The margin that a row's own label gives it in a fit of `size` weights, about: rows that a model was fitted to
        look better than others by it."""
        if public.budget is None or math.isinf(self.row_bound):
            return 0.0
        bend = math.expm1(self.log_determinant / public.rows_per_unit) * self.penalty / 2
        return self.slope_clip * self.row_bound**2 / (self.penalty + public.n_rows * bend / max(size, 1))

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
    steepest = of_one_output(public.loss).curvature_within(tau, public.label)
    penalty = steepest * unit / curvature
    if offsets := getattr(public.loss, "offset_bound", 0.0):
        # So that the certificate holds for rows with offsets, too; of use where rows are very many.
        penalty = raise_penalty(public, tau, bound, penalty, steepest, offsets)
        curvature = steepest * unit / penalty
    return Refinement(tau, bound, penalty, public.rows_per_unit * math.log1p(curvature), a)


def curvature_of(public: PublicFacts, xi: float, square: float) -> float:
    """The kappa at which a release that takes the part `square` of the budget's mu² has this xi: what curvature costs
    depends on their ratio alone (docs/proofs/objective_perturbation.md, theorem 1)."""
    return xi * budget_mu(public.budget) * math.sqrt(square) / (2 * public.rows_per_unit)


def gaussian(square: float) -> Mechanism:
    """Gaussian noise that costs mu² = `square`."""
    return Gaussian(NoisePerSensitivity(math.sqrt(1 / square)))


def perturbation(constants: Refinement, square: float, public: PublicFacts) -> Mechanism:
    """Objective perturbation that costs about mu² = `square` besides its determinant."""
    noise = NoisePerSensitivity(math.sqrt(1 / square))
    return ObjectivePerturbation(
        noise, constants.log_determinant, of_one_output(public.loss).one_sided, public.rows_per_unit
    )


@dataclass(frozen=True)
class Start:
    """The constant models, next to an entry `a`, from noisy mean slopes at margin 0 that are cut at `clip`.

    They take the part `share` of the cost, so the scale of their noise is public.
    """

    public: PublicFacts
    clip: float
    share: float
    a: float

    def question(self) -> ClippedGradient:
        w = np.zeros((self.public.n_parameters, self.public.loss.n_outputs))
        return ClippedGradient(w, self.clip, "l2", self.a, np.zeros(w.shape, dtype=bool), self.a)

    def intercepts(self, answer: FloatArray) -> FloatArray:
        """The constants' weights. A slope shrinks by what of it is noise, and one within that of the largest is no
        evidence that all labels are the same."""
        public, slopes = self.public, answer[self.public.n_features] / self.a
        if public.budget is not None and self.clip < math.inf:
            mu = budget_mu(public.budget) * math.sqrt(self.share)
            scale = 2 * self.clip * public.rows_per_unit / (public.n_rows * mu)
            most = max(self.clip - scale, 0.0)
            slopes = np.clip(slopes, -most, most) * slopes**2 / np.maximum(slopes**2 + scale**2, 1e-300)
        constant_margin = of_one_output(public.loss).constant_margin
        return np.array([constant_margin(float(slope)) / self.a for slope in slopes])


@dataclass(frozen=True)
class Rescaling:
    """The length of the weights and the intercept that goes with it, fitted in these two directions with the whole
    loss: cut slopes and scaled rows distort both, hardly the direction."""

    constants: Refinement
    spread_bound: float  # a mean square margin of unit weights is cut off at its square
    least: float  # the root mean square margin that is left at least
    length: float  # what the weights are multiplied by where nothing can be learnt of it
    share: float  # of the cost
    noise: tuple[float, float]  # twice the standard deviations, about, of the slope and of the constant's weight
    spread_noise: float  # the standard deviation of the first answer, about
    own: float = 0.0  # the margin that a row at its bound has from its own label

    @classmethod
    def of(cls, public: PublicFacts, share: float, spread_bound: float, length: float, own: float = 0.0) -> Rescaling:
        binary = of_one_output(public.loss)
        classify = binary.kind == "classification"
        # For classification nearly the whole loss: at twice the slope of margin 0 a row is as wrong as can be.
        tau = binary.default_clip(public.label) * (1.4 if classify else 1)
        b = _RESCALE_INTERCEPT[classify] if public.fit_intercept else 0.0
        square = (1 - _SPREAD_PART) * share / public.loss.n_outputs
        curvature = curvature_of(public, _RESCALE_XI[binary.one_sided], square)
        constants = refinement(public, tau, math.hypot(_RESCALE_BOUND[classify], b), b, curvature)
        noise = _noise_of(public, constants, square, (1.0, b))
        spread_mu = budget_mu(public.budget) * math.sqrt(_SPREAD_PART * share / public.loss.n_outputs)
        spread_noise = spread_bound**2 * public.rows_per_unit / (public.n_rows * spread_mu)
        least = _LEAST_MARGIN * margin_unit(public)
        return cls(constants, spread_bound, least, length, share, noise, spread_noise, own)

    def releases(self, public: PublicFacts) -> list[Release]:
        outputs = public.loss.n_outputs
        each = self.share / outputs
        rescale = perturbation(self.constants, (1 - _SPREAD_PART) * each, public)
        return [Release("spread", gaussian(_SPREAD_PART * each), outputs), Release("rescale", rescale, outputs)]

    def spread(self, w: FloatArray, a: float) -> Curvature:
        """The first question: the mean square margin of weights w (a column, the last next to a constant `a`)."""
        d = len(w) - bool(a)
        return Curvature(np.vstack([w[:d] / (_length(w[:d]) or 1.0), 0.0 * w[d:]]), 0.0, self.spread_bound)

    def unit(self, w: FloatArray, a: float, answer: FloatArray) -> float:
        """The root mean square margin of the weights as they are, given the answer."""
        # Where noise hides the spread, a thirtieth of the bound is as good a guess as any; one below the noise would
        # make margins of any length.
        least = max(1e-3 * self.spread_bound**2, min(0.3 * self.spread_noise, self.spread_bound**2))
        return math.sqrt(max(float(answer[0, 0]), least)) * max(_length(w[: len(w) - bool(a)]), 1e-300)

    def question(self, w: FloatArray, a: float, unit: float, output: int) -> Minimiser:
        """The second: the slope of margins in that unit, and the constant."""
        d = len(w) - bool(a)
        features = np.flatnonzero(w[:d, 0])
        # The ridge pulls there: where noise dominates, only this centre remains; at a length of 0, the rows' order.
        centre = np.append(self.length * unit, w[d:, 0] * (a / self.constants.intercept_value if a else 0.0))
        return self.constants.minimiser(features, centre, output, w[features] / unit)

    def rescaled(self, w: FloatArray, a: float, unit: float, theta: FloatArray) -> FloatArray:
        """The weights at the right length, and the intercept that goes with it, given the answer."""
        d = len(w) - bool(a)
        # Both shrink by what of them is noise, whose scale is public.
        theta = theta * theta**2 / np.maximum(theta**2 + np.square(self.noise[: len(theta)]), 1e-300)
        constant = [[theta[1] * self.constants.intercept_value / a]] if a else np.zeros((0, 1))
        if _length(w[:d]) == 0:
            return np.vstack([w[:d], constant])
        # Of the mean square margin, what rows have from their own labels says nothing about other rows.
        slope = float(theta[0]) * (1.0 - min(self.own / unit, 1.0) ** 2)
        return np.vstack([w[:d] / unit * max(slope, self.least), constant])


def _noise_of(
    public: PublicFacts, constants: Refinement, square: float, entries: tuple[float, float]
) -> tuple[float, float]:
    """About twice the standard deviation of the noise in two weights, of columns with these root mean squares."""
    if public.budget is None:
        return (0.0, 0.0)
    mu = budget_mu(public.budget) * math.sqrt(square)
    scale = 2 * constants.slope_clip * constants.row_bound * public.rows_per_unit / mu
    bend = of_one_output(public.loss).curvature_within(constants.slope_clip, public.label) / 2
    slope, constant = (2 * scale / (constants.penalty + public.n_rows * bend * entry**2) for entry in entries)
    return slope, constant


def _length(w: FloatArray) -> float:
    return float(np.linalg.norm(w))


def check_convex(method: object, public: PublicFacts) -> None:
    """Raise unless the loss is known to be convex in one margin at a time."""
    if public.convex_loss is None:
        raise ValueError(
            f"{type(method).__name__} rests on the convexity of the loss in one margin at a time, which is not known "
            f"of {public.loss!r}; use method='hard_thresholding', or loss='squared_hinge' for several classes"
        )
