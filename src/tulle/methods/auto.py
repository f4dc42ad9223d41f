"""method="auto": which method, from public quantities alone. The rule and the evidence: docs/choosing.md."""

from __future__ import annotations

from sklearn.base import BaseEstimator

from tulle.curator import Ask
from tulle.events import FloatArray
from tulle.losses import certified_convex
from tulle.methods.coordinate_descent import CoordinateDescent
from tulle.methods.geometry import budget_mu, selection_pays
from tulle.methods.hard_thresholding import HardThresholding
from tulle.methods.screen_refine import ScreenRefine
from tulle.privacy import Budget, Release
from tulle.public import PublicFacts

# n mu / s below which the steps of hard thresholding do not get off the ground on dense features and moving one
# coordinate at a time does better: between 56 and 69 on the settings of DPSL-KT's figure 2. Default numbers of weights
# are n mu / 60.
_ROWS_PER_WEIGHT = 58.0


class Auto(BaseEstimator):
    """Screen and refine, except where hard thresholding is known to do better or to be all there is.

    Hard thresholding it is without privacy, unless all features are kept; with a published calibration; for a loss
    that is not known to be convex in one margin at a time (several classes by softmax, a loss of the user's own); and
    for regression on dense features of equal size (where selection noise pays) if rows are not too few: there every
    noisy gradient step brings the model much closer to the truth, but the first ones need a signal to start from. With
    fewer rows greedy coordinate descent takes its place: one choice a step is the least noisy way to start.
    """

    def choose(self, public: PublicFacts) -> HardThresholding | ScreenRefine | CoordinateDescent:
        """The method for these public facts."""
        if public.as_published or not certified_convex(public.loss):
            return HardThresholding()
        if public.budget is None:
            return HardThresholding() if public.n_nonzero < public.n_features else ScreenRefine()
        if public.loss.kind == "regression" and selection_pays(public):
            rows_per_weight = public.n_rows * budget_mu(public.budget) / public.n_nonzero
            return HardThresholding() if rows_per_weight >= _ROWS_PER_WEIGHT else CoordinateDescent(noise="selection")
        return ScreenRefine()

    def bounds_wanted(self) -> tuple[str, ...]:
        return ("row_l2", "row_linf")

    def default_nonzero(self, public: PublicFacts) -> int:
        if public.as_published or not certified_convex(public.loss):
            return HardThresholding().default_nonzero(public)
        # Otherwise the method may depend on this very number, so one rule serves for both.
        return ScreenRefine().default_nonzero(public)

    def releases(self, public: PublicFacts) -> tuple[Release, ...]:
        return self.choose(public).releases(public)

    def published(self, public: PublicFacts, budget: Budget) -> tuple[Release, ...]:
        return self.choose(public).published(public, budget)

    def run(self, ask: Ask, public: PublicFacts) -> FloatArray:
        return self.choose(public).run(ask, public)

    def describe(self, public: PublicFacts) -> str:
        return self.choose(public).describe(public)

    def n_iterations(self, public: PublicFacts) -> int:
        return self.choose(public).n_iterations(public)

    def n_passes(self, public: PublicFacts) -> float:
        return self.choose(public).n_passes(public)

    def n_thresholds(self, public: PublicFacts) -> int:
        method = self.choose(public)
        return method.n_thresholds(public) if isinstance(method, HardThresholding) else 0

    def signal_to_noise(self, public: PublicFacts, releases: tuple[Release, ...]) -> float:
        return self.choose(public).signal_to_noise(public, releases)
