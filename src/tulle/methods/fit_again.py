"""Fit, keep, fit again: a penalised private fit of all features, then one of those with the largest weights.

    fit       theta = argmin sum_i f_tau(<z_i, theta>, y_i) + (Lambda/2) |theta|² + <b, theta>, b ~ N(0, σ² I)
    keep      S = where |theta| is largest
    again     the same on S, rows scaled to the bound anew, centred at theta on S
    rescale   the same in the two directions <x, theta> and 1, with the uncut loss

Where all features are kept there is one fit, for the whole cost. Choosing features is what is expensive at small
budgets; a penalised fit of many is not, because the noise in a margin does not grow with their number. Both fits are
objective perturbation (Kifer, Smith and Thakurta, COLT 2012). Proofs: docs/proofs/fit_again.md,
docs/proofs/objective_perturbation.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tulle.methods.base import MethodBase
from tulle.methods.loss_functions import of_one_output
from tulle.methods.noise_scales import budget_mu, signal_to_noise
from tulle.methods.parameter_checks import POSITIVE, SHARE, SHARE_OR_NONE, Range, check_numbers
from tulle.methods.penalised_fit import (
    Refinement,
    Rescaling,
    check_convex,
    curvature_of,
    perturbation,
    refinement,
)
from tulle.methods.thresholds import HardThreshold
from tulle.trusted.curator import Ask
from tulle.trusted.events import FloatArray
from tulle.trusted.facts import PublicFacts
from tulle.trusted.plan import Release

_XI: Range = ("lie in (0, 4]", lambda value: 0 < value <= 4)
_RANGES: dict[str, Range] = {
    "again_share": SHARE,
    "rescale_share": SHARE_OR_NONE,
    "slope_clip": POSITIVE,
    "again_slope_clip": POSITIVE,
    "row_bound": POSITIVE,
    "curvature": _XI,
    "again_curvature": _XI,
}

# What the second fit takes of the cost of both, and what the rescaling takes of all.
_AGAIN_SHARE, _RESCALE_SHARE = 0.25, 0.03
# Rows are scaled down to this part of row_l2 for classification, where only directions matter.
_SHORT = 0.1
# xi of a fit: a factor, times q to minus a power, and the largest.
_CURVATURE = {"classification": (0.6, 0.1, 1.2), "regression": (0.8, 0.3, 0.8)}


@dataclass(frozen=True)
class Settings:
    """The public settings of one run, after defaults."""

    first: Refinement
    again: Refinement | None  # None where all features are kept
    rescale: Rescaling | None
    first_share: float
    again_share: float

    @property
    def intercept_value(self) -> float:
        return self.first.intercept_value


class FitAgain(MethodBase):
    """A private fit of all features, and a second one of those that it gives the largest weights.

    Below, q is the number of weights of a fit divided by n and by the mu that the fit may cost: how scarce rows are.

    Parameters
    ----------
    again_share : float or None, default=None
        In (0, 1): the part of the cost of both fits that the second one takes, where features are dropped. None: 0.25.
    rescale_share : float or None, default=None
        In [0, 1): the part of the whole cost spent on the length of the weights and on the intercept at the end.
        None: 0.03.
    slope_clip : float or None, default=None
        tau of the first fit, > 0. None: a quarter of the label bound for regression; for classification the slope at
        margin 0 (1/2 for the logistic loss) where q is at most 0.2, less as q grows, down to a fifth of it.
    again_slope_clip : float or None, default=None
        The same of the second fit.
    row_bound : float or None, default=None
        What rows are scaled down to, on the features that are fitted, > 0. None: a tenth of row_l2 for classification,
        where only directions matter, and row_l2 for regression.
    curvature : float or None, default=None
        xi of the first fit, in (0, 4]: the curvature that one row can add relative to the penalty, in units of half the
        mu that the fit costs. It decides the penalty, which falls as the budget grows; see `ScreenRefine`. None:
        0.6 q^-0.1, at most 1.2, for classification and 0.8 q^-0.3, at most 0.8, for regression; with s of d features
        kept times (s/d)^0.2, since a stiffer fit ranks features better.
    again_curvature : float or None, default=None
        The same of the second fit. None: 0.7 times these: its centre is a good guess already.

    Examples
    --------
    >>> from tulle import SparseClassifier
    >>> from tulle.methods import FitAgain
    >>> model = SparseClassifier(n_nonzero=1000, method=FitAgain(again_share=0.3))
    >>> model.set_params(method__again_share=0.2).method.again_share
    0.2
    """

    def __init__(
        self,
        again_share: float | None = None,
        rescale_share: float | None = None,
        slope_clip: float | None = None,
        again_slope_clip: float | None = None,
        row_bound: float | None = None,
        curvature: float | None = None,
        again_curvature: float | None = None,
    ) -> None:
        self.again_share = again_share
        self.rescale_share = rescale_share
        self.slope_clip = slope_clip
        self.again_slope_clip = again_slope_clip
        self.row_bound = row_bound
        self.curvature = curvature
        self.again_curvature = again_curvature

    # --- what will be released ---

    def bounds_wanted(self) -> tuple[str, ...]:
        return ("row_l2",)

    def releases(self, public: PublicFacts) -> tuple[Release, ...]:
        settings, outputs = self.settings(public), public.loss.n_outputs
        # All releases together cost a sum of mu² of about 1 in the wanted parts; see HardThresholding.releases.
        plan = [Release("fit", perturbation(settings.first, settings.first_share / outputs, public), outputs)]
        if settings.again is not None:
            again = perturbation(settings.again, settings.again_share / outputs, public)
            plan.append(Release("fit again", again, outputs))
        return (*plan, *(settings.rescale.releases(public) if settings.rescale is not None else ()))

    # --- the algorithm ---

    def run(self, ask: Ask, public: PublicFacts) -> FloatArray:
        settings = self.settings(public)
        a, d, outputs = settings.intercept_value, public.n_features, public.loss.n_outputs
        nowhere = np.zeros(public.n_parameters)
        w = np.column_stack([ask("fit", settings.first.minimiser(np.arange(d), nowhere, k)) for k in range(outputs)])
        if settings.again is not None:
            w = HardThreshold(public.n_nonzero, free_from=d)(w)
            for k in range(outputs):
                features = np.flatnonzero(w[:d, k])
                lines = np.append(features, np.arange(d, len(w)))  # the constant's is always fitted
                w[lines, k] = ask("fit again", settings.again.minimiser(features, w[lines, k], k))
        if settings.rescale is not None:
            for k in range(outputs):
                column = w[:, [k]]
                unit = settings.rescale.unit(column, a, ask("spread", settings.rescale.spread(column, a)))
                theta = ask("rescale", settings.rescale.question(column, a, unit, k))
                w[:, [k]] = settings.rescale.rescaled(column, a, unit, theta)
        return np.vstack([w[:d], a * w[d:] if a else np.zeros((1, outputs))])

    # --- defaults: functions of public quantities alone ---

    def settings(self, public: PublicFacts) -> Settings:
        """The settings of a run. Reads nothing but the parameters and public facts."""
        check_numbers(self, _RANGES, optional=list(_RANGES))
        check_convex(self, public)
        private, classify = public.budget is not None, public.loss.kind == "classification"
        s, d = public.n_nonzero, public.n_features
        rescale_share = _RESCALE_SHARE if self.rescale_share is None else self.rescale_share
        if not private:
            rescale_share = 0.0  # nothing was cut, and nothing is to be put right
        share = (self.again_share or _AGAIN_SHARE) if s < d else 0.0
        first_share, again_share = (1 - share) * (1 - rescale_share), share * (1 - rescale_share)
        bound = self.row_bound or public.row_l2 * (_SHORT if classify and private else 1.0)
        first = self._refinement(public, bound, d, first_share, self.slope_clip, self.curvature, (s / d) ** 0.2)
        again = None
        if share:
            again = self._refinement(public, bound, s, again_share, self.again_slope_clip, self.again_curvature, 0.7)
        # Rows at row_l2 were scaled down to the bound: there the weights are as much too long. In regression noise is
        # better pulled to the constant model.
        length = min(bound / public.row_l2, 1.0) if classify else 0.0
        rescale = Rescaling.of(public, rescale_share, public.row_l2 / 2, length) if rescale_share else None
        return Settings(first, again, rescale, first_share, again_share)

    @staticmethod
    def _refinement(
        public: PublicFacts,
        bound: float,
        size: int,
        share: float,
        slope_clip: float | None,
        curvature: float | None,
        stiffer: float,
    ) -> Refinement:
        """A fit of `size` weights for the part `share` of the cost."""
        binary, square = of_one_output(public.loss), share / public.loss.n_outputs
        scarcity = max(size / (public.n_rows * budget_mu(public.budget) * math.sqrt(square)), 1e-12)
        tau = slope_clip
        if tau is None:
            tau = binary.default_clip(public.label) if public.budget is not None else math.inf
            if binary.kind == "classification":
                tau *= min(1.0, max(math.sqrt(0.2 / scarcity), 0.2))
        factor, power, largest = _CURVATURE[binary.kind]
        xi = curvature or stiffer * min(factor * scarcity**-power, largest)
        a = (bound / 4 if bound < math.inf else 1.0) if public.fit_intercept else 0.0
        return refinement(public, tau, math.hypot(bound, a), a, curvature_of(public, xi, square))

    # --- for the report and for warnings ---

    def describe(self, public: PublicFacts) -> str:
        settings = self.settings(public)

        def words(fit: Refinement) -> str:
            return f"slopes cut at {fit.slope_clip:.4g}, rows at {fit.row_bound:.4g}, penalty {fit.penalty:.4g}"

        again = "" if settings.again is None else f", then of the largest alone ({words(settings.again)})"
        return (
            f"fit, keep, fit again: {public.n_nonzero:,} of {public.n_features:,} weights kept, objective perturbation "
            f"of all ({words(settings.first)}){again}"
        )

    def n_dense_vectors(self) -> int:
        return 17

    def n_iterations(self, public: PublicFacts) -> int:
        return 2 if self.settings(public).again is not None else 1

    def signal_to_noise(self, public: PublicFacts, releases: tuple[Release, ...]) -> float:
        return signal_to_noise(public, releases[0].mechanism)
