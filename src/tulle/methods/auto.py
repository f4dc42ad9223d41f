"""method="auto": which method, from public quantities alone. The rule and the evidence: docs/choosing.md."""

from __future__ import annotations

import copy
from dataclasses import replace

from tulle.accounting.zcdp import rho_of
from tulle.methods.base import MethodBase
from tulle.methods.column_rules import NO_RULES, ColumnRules
from tulle.methods.coordinate_descent import CoordinateDescent
from tulle.methods.fit_again import FitAgain
from tulle.methods.hard_thresholding import HardThresholding
from tulle.methods.noise_scales import budget_mu, selection_pays
from tulle.methods.screen_refine import ScreenRefine
from tulle.transfer.public_knowledge import PublicKnowledge
from tulle.trusted.curator import Ask
from tulle.trusted.events import FloatArray
from tulle.trusted.facts import PublicFacts
from tulle.trusted.plan import Release

# Regression on fewer dense features than this fits all of them first: real tables of 4 to 218 columns were chosen by
# (docs/choosing.md). From here on choosing features before they are fitted pays where few of them matter.
_MANY_FEATURES = 300
# n mu / s below which the steps of hard thresholding do not get off the ground on dense features and moving one
# coordinate at a time does better: between 56 and 69 on the settings of DPSL-KT's figure 2. Default numbers of weights
# are n mu / 60.
_ROWS_PER_WEIGHT = 58.0


def _only_thresholding(public: PublicFacts) -> bool:
    """Whether objective perturbation cannot do it: no printed noise, a loss not known to be convex, or delta = 0."""
    pure = public.budget is not None and public.budget.delta == 0
    return public.as_published or public.convex_loss is None or pure


class Auto(MethodBase):
    """Fit, keep, fit again, except where another method is known to do better or to be all there is.

    Hard thresholding it is without privacy, unless all features are kept; with a published calibration; with delta = 0;
    for a loss that is not known to be convex in one margin at a time (several classes by softmax, a loss of the user's
    own); for a budget in rho, which objective perturbation cannot keep to; and for regression on 300 or more dense
    features of equal size (where selection noise pays) if rows are not too few: there every noisy gradient step brings
    the model much closer to the truth, but the first ones need a signal to start from. With fewer rows greedy
    coordinate descent takes its place: one choice a step is the least noisy way to start.

    Screen and refine it is for classification where a few features of equal size are asked for and selection noise
    pays, for several classes one against the rest, and without privacy where all features are kept.

    Where public rows or frequencies are given, fit, keep, fit again makes use of them wherever it can fit at all.
    """

    _knowledge: PublicKnowledge | None = None  # of one fit: `with_public` sets it in a copy

    _rules: ColumnRules = NO_RULES  # and `with_columns` this

    def with_columns(self, rules: ColumnRules) -> Auto:
        ruled = copy.copy(self)
        ruled._rules = rules
        return ruled

    def with_public(self, knowledge: PublicKnowledge) -> Auto:
        if self._rules:
            raise ValueError("public= takes no always= and no feature_groups=; omit one or the other")
        informed = copy.copy(self)
        informed._knowledge = knowledge
        return informed

    def _fit_again(self) -> FitAgain:
        return FitAgain() if self._knowledge is None else FitAgain().with_public(self._knowledge)

    def resolve(self, public: PublicFacts) -> HardThresholding | ScreenRefine | FitAgain | CoordinateDescent:
        """The method for these public facts."""
        chosen = self._choose(self._rules.in_features(public), public)
        return chosen.with_columns(self._rules) if self._rules and not isinstance(chosen, CoordinateDescent) else chosen

    def _choose(
        self, public: PublicFacts, given: PublicFacts
    ) -> HardThresholding | ScreenRefine | FitAgain | CoordinateDescent:
        """`given` counts weights in groups, where there are groups; `public` in features."""
        informed = self._knowledge is not None
        if _only_thresholding(public) or (informed and rho_of(public.budget) is not None):
            if informed:
                raise ValueError(
                    "public rows are used by objective perturbation, which needs a convex loss of one margin at a "
                    "time (for several classes loss='squared_hinge'), delta > 0, a budget in epsilon and "
                    "calibration='rigorous'; change that or omit public="
                )
            return HardThresholding()
        if informed:
            return self._fit_again()
        if public.budget is None:
            return HardThresholding() if public.n_nonzero < public.n_features else ScreenRefine()
        fixed = self._rules.always and not self._rules.n_free(given)
        if fixed and rho_of(public.budget) is None:
            return ScreenRefine()  # without a screening
        if self._chooses_few(public) and selection_pays(public):
            rows_per_weight = public.n_rows * budget_mu(public.budget) / public.n_nonzero
            enough = rows_per_weight >= _ROWS_PER_WEIGHT or bool(self._rules)  # coordinates have no groups
            return HardThresholding() if enough else CoordinateDescent(noise="selection")
        if rho_of(public.budget) is not None:  # objective perturbation has no rho
            return HardThresholding()
        asked = public.n_nonzero < self._fit_again().default_nonzero(public)
        few = asked and public.loss.kind == "classification" and selection_pays(public)
        return ScreenRefine() if few or public.loss.n_outputs > 1 else FitAgain()

    def _chooses_few(self, public: PublicFacts) -> bool:
        """Whether regression may choose dense features before it fits them: if there are many, or a budget in rho."""
        many = public.n_features >= _MANY_FEATURES or rho_of(public.budget) is not None
        return many and public.loss.kind == "regression"

    def default_nonzero(self, public: PublicFacts) -> int:
        """As many as fit, keep, fit again wants: what choosing costs is more than what fitting many does. Fewer where
        other methods are at work: for regression on dense features of equal size, where selection noise pays."""
        return self._rules.to_units(self._default_features(public))

    def _default_features(self, public: PublicFacts) -> int:
        if _only_thresholding(public):
            return HardThresholding().default_nonzero(public)
        if self._knowledge is not None:
            return self._fit_again().default_nonzero(public)
        few = ScreenRefine().default_nonzero(public)
        dense = selection_pays(replace(public, n_nonzero=few)) and self._chooses_few(public)
        if rho_of(public.budget) is not None and not dense:
            return HardThresholding().default_nonzero(public)
        # The method may depend on this very number, so one rule serves for both.
        if dense or public.budget is None or public.loss.n_outputs > 1:
            return few
        return self._fit_again().default_nonzero(public)

    def releases(self, public: PublicFacts) -> tuple[Release, ...]:
        """A fit asks the method that was resolved."""
        return self.resolve(public).releases(public)

    def run(self, ask: Ask, public: PublicFacts) -> FloatArray:
        """A fit runs the method that was resolved."""
        return self.resolve(public).run(ask, public)
