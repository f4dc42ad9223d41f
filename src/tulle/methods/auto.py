"""method="auto": which method, from public quantities alone. The rule and the evidence: docs/choosing.md."""

from __future__ import annotations

from dataclasses import replace

from tulle.accounting.zcdp import rho_of
from tulle.methods.base import MethodBase
from tulle.methods.coordinate_descent import CoordinateDescent
from tulle.methods.fit_again import FitAgain
from tulle.methods.hard_thresholding import HardThresholding
from tulle.methods.noise_scales import budget_mu, selection_pays
from tulle.methods.screen_refine import ScreenRefine
from tulle.trusted.curator import Ask
from tulle.trusted.events import FloatArray
from tulle.trusted.facts import PublicFacts
from tulle.trusted.plan import Release

# n mu / s below which the steps of hard thresholding do not get off the ground on dense features and moving one
# coordinate at a time does better: between 56 and 69 on the settings of DPSL-KT's figure 2. Default numbers of weights
# are n mu / 60.
_ROWS_PER_WEIGHT = 58.0

# n mu / d from which a classifier of all features is no worse than one of a few that selection noise chooses: between 5
# and 18 on dense synthetic rows, and above it far better on w8a.
_ROWS_PER_FEATURE = 10.0


def _only_thresholding(public: PublicFacts) -> bool:
    """Whether objective perturbation cannot do it: no printed noise, a loss not known to be convex, or delta = 0."""
    pure = public.budget is not None and public.budget.delta == 0
    return public.as_published or public.convex_loss is None or pure


class Auto(MethodBase):
    """Fit, keep, fit again, except where another method is known to do better or to be all there is.

    Hard thresholding it is without privacy, unless all features are kept; with a published calibration; with delta = 0;
    for a loss that is not known to be convex in one margin at a time (several classes by softmax, a loss of the user's
    own); for a budget in rho, which objective perturbation cannot keep to; and for regression on dense features of
    equal size (where selection noise pays) if rows are not too few: there every noisy gradient step brings the model
    much closer to the truth, but the first ones need a signal to start from. With fewer rows greedy coordinate descent
    takes its place: one choice a step is the least noisy way to start.

    Screen and refine it is for classification where a few features of equal size are asked for and selection noise
    pays, for several classes one against the rest, and without privacy where all features are kept.
    """

    def resolve(self, public: PublicFacts) -> HardThresholding | ScreenRefine | FitAgain | CoordinateDescent:
        """The method for these public facts."""
        if _only_thresholding(public):
            return HardThresholding()
        if public.budget is None:
            return HardThresholding() if public.n_nonzero < public.n_features else ScreenRefine()
        if public.loss.kind == "regression" and selection_pays(public):
            rows_per_weight = public.n_rows * budget_mu(public.budget) / public.n_nonzero
            return HardThresholding() if rows_per_weight >= _ROWS_PER_WEIGHT else CoordinateDescent(noise="selection")
        if rho_of(public.budget) is not None:  # objective perturbation has no rho
            return HardThresholding()
        few = public.n_nonzero < public.n_features and selection_pays(public)
        return ScreenRefine() if few or public.loss.n_outputs > 1 else FitAgain()

    def default_nonzero(self, public: PublicFacts) -> int:
        """All features: what choosing costs is more than what fitting many does. Fewer where selection noise pays (few
        rows of dense features of equal size) and where other methods than fit, keep, fit again are at work."""
        if _only_thresholding(public):
            return HardThresholding().default_nonzero(public)
        few = ScreenRefine().default_nonzero(public)
        dense = selection_pays(replace(public, n_nonzero=few))
        if public.loss.kind == "classification":
            dense &= public.n_rows * budget_mu(public.budget) < _ROWS_PER_FEATURE * public.n_features
        if rho_of(public.budget) is not None and not (dense and public.loss.kind == "regression"):
            return HardThresholding().default_nonzero(public)
        # The method may depend on this very number, so one rule serves for both.
        return few if dense or public.budget is None or public.loss.n_outputs > 1 else public.n_features

    def releases(self, public: PublicFacts) -> tuple[Release, ...]:
        """A fit asks the method that was resolved."""
        return self.resolve(public).releases(public)

    def run(self, ask: Ask, public: PublicFacts) -> FloatArray:
        """A fit runs the method that was resolved."""
        return self.resolve(public).run(ask, public)
