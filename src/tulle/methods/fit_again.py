"""Fit, keep, fit again: a penalised private fit of all features, then of fewer and fewer with the largest weights.

    fit       theta = argmin sum_i f_tau(<z_i, theta>, y_i) + (Lambda/2) |theta|² + <b, theta>, b ~ N(0, σ² I)
    keep      S = where |theta| is largest
    again     the same on S, rows scaled to the bound anew, centred at theta on S; keep and fit once more
    rescale   the same in the two directions <x, theta> and 1, with the uncut loss

Where all features are kept there is one fit, for the whole cost. Choosing features is expensive at small budgets; a
penalised fit of many is not, because the noise in a margin does not grow with their number. All fits are objective
perturbation (Kifer, Smith and Thakurta, COLT 2012).

With public rows, or public frequencies of features, the first fit is of the features that are publicly common, in the
directions in which public rows vary, if a noisy check says that private rows are like them:

    check     the part of the rows' squared length in the public directions, with noise
    fit       the same in public coordinates, if the check is passed; else of all features
    keep      a sparse student: few weights that give public rows the same margins

Proofs: docs/proofs/fit_again.md, docs/proofs/objective_perturbation.md.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

import numpy as np

from tulle.methods.base import MethodBase
from tulle.methods.column_rules import NO_RULES, ColumnRules
from tulle.methods.gradient_queries import Curvature
from tulle.methods.loss_functions import of_one_output
from tulle.methods.noise_scales import budget_mu, tellable_directions
from tulle.methods.parameter_checks import POSITIVE, SHARE, SHARE_OR_NONE, Range, check_numbers, check_whole
from tulle.methods.penalised_fit import (
    Refinement,
    Rescaling,
    check_convex,
    curvature_of,
    gaussian,
    perturbation,
    refinement,
)
from tulle.methods.thresholds import HardThreshold
from tulle.transfer.public_knowledge import Features, PublicKnowledge, PublicView
from tulle.trusted.curator import Ask
from tulle.trusted.events import FloatArray
from tulle.trusted.facts import PublicFacts
from tulle.trusted.plan import Release

_XI: Range = ("lie in (0, 4]", lambda value: 0 < value <= 4)
_RANGES: dict[str, Range] = {
    "again_share": SHARE,
    "rescale_share": SHARE_OR_NONE,
    "slope_clip": POSITIVE,
    "row_bound": POSITIVE,
    "curvature": _XI,
}

# Fits where features are dropped and rows are scarce, and what those after the first take of the cost of all.
_ROUNDS, _AGAIN_SHARE = 3, 0.6
# What the rescaling takes: more where rows are few, since noise in the intercept then costs more than noise elsewhere.
# Regression has none: its rows are not scaled down, and the noise of a rescaling costs more than cut slopes do
# (docs/fit_again.md).
_RESCALE_SHARE, _RESCALE_ROWS = (0.03, 0.06), 30.0
# From this many features for each n mu on rows are scarce: a quarter of the features is kept, in three fits.
_SCARCE = 0.25
# Rows are scaled down to this part of row_l2 for classification, where only directions matter.
_SHORT = 0.1
# xi of a fit: a factor, times q to minus a power, the smallest and the largest. A fit alone could have 3.2; from about
# 1.9 on no noise is enough next to other releases, such as estimated bounds (docs/proofs/objective_perturbation.md).
_CURVATURE = {"classification": (0.6, 0.1, 0.0, 1.2), "regression": (0.4, 0.4, 0.4, 1.6)}
_PUBLIC_REGRESSION_CURVATURE = (0.8, 0.3, 0.0, 0.8)  # with public knowledge, in whose directions rows are scaled down
# Slopes of regression are cut at this part of the usual clip: at a fifth of the label bound for the squared loss.
_REGRESSION_CLIP = 0.8
# With s of d features kept xi is multiplied by s/d to this power, in the first fit and in later ones, which rank
# features by less data: a stiffer fit ranks better, a weaker one predicts better.
_STIFFER = {"classification": (0.2, 0.35), "regression": (0.0, 0.2)}
# With public knowledge: what later fits take of the cost of all; for classification xi of all fits, and the slope clips
# of the first fit in public directions and of later fits, in units of the slope at margin 0.
_PUBLIC_AGAIN_SHARE, _PUBLIC_CURVATURE, _PUBLIC_CLIP = 0.5, 0.4, (0.4, 0.3)
# What rows are scaled down to in public directions, in units of the median length of public rows there.
_PUBLIC_BOUND = {"classification": 0.75, "regression": 1.5}


@dataclass(frozen=True)
class Settings:
    """The public settings of one run, after defaults."""

    first: Refinement
    again: tuple[Refinement, ...]  # of the later fits
    n_kept: int  # how many features the last one has at most
    rescale: Rescaling | None
    check_share: float
    first_share: float
    again_share: float  # of each later fit

    @property
    def intercept_value(self) -> float:
        return self.first.intercept_value

    def sizes(self, view: PublicView | None, n_features: int) -> list[int]:
        """How many features the later fits have, after a first one in public coordinates, or of all features."""
        if view is not None:
            return _sizes(len(view.features), self.n_kept, len(self.again))
        # Two fits are planned where there are public directions. Without them the last step down needs no fit.
        steps = max(len(self.again), 2) if self.check_share else len(self.again)
        return _sizes(n_features, self.n_kept, steps)[: len(self.again)]


class FitAgain(MethodBase):
    """A private fit of all features, and further ones of those that it gives the largest weights.

    Below, q is the number of weights of a fit divided by n and by the mu that the fit may cost: how scarce rows are.

    Parameters
    ----------
    rounds : int or None, default=None
        How many fits, at least 1; their numbers of features fall by equal factors. None: 1 where all features are kept;
        else 3 where rows are scarce (d >= 0.25 n mu), and 2 where they are not or where public directions are used.
    again_share : float or None, default=None
        In (0, 1): the part of the cost of all fits that those after the first take, in equal parts. None: 0.6.
    rescale_share : float or None, default=None
        In [0, 1): the part of the whole cost spent on the length of the weights and on the intercept at the end.
        None: 30 / (n mu), within [0.03, 0.06]; 0 for regression without public knowledge.
    slope_clip : float or None, default=None
        tau, > 0. None: a fifth of the label bound for regression, with public knowledge a quarter; for classification
        the slope at margin 0 (1/2 for the logistic loss) up to q = 0.2, less as q grows, down to a fifth of it.
    row_bound : float or None, default=None
        What rows are scaled down to, on the features that are fitted, > 0. None: a tenth of row_l2 for classification,
        where only directions matter, and row_l2 for regression; in public directions three quarters of the median
        length that public rows have there, for regression one and a half times that.
    curvature : float or None, default=None
        xi, in (0, 4]: the curvature that one row can add relative to the penalty, in units of half the mu that a fit
        costs. It decides the penalty, which falls as the budget grows; see `ScreenRefine`. None: 0.6 q^-0.1, at most
        1.2, for classification and 0.4 q^-0.4, within [0.4, 1.6], for regression (with public knowledge 0.8 q^-0.3, at
        most 0.8); with s of d features kept times (s/d)^0.2, in later fits (s/d)^0.35, for regression 1 and (s/d)^0.2:
        a stiffer fit ranks features better.

    Examples
    --------
    >>> from tulle import SparseClassifier
    >>> from tulle.methods import FitAgain
    >>> model = SparseClassifier(n_nonzero=1000, method=FitAgain(again_share=0.5))
    >>> model.set_params(method__again_share=0.2).method.again_share
    0.2
    """

    _knowledge: PublicKnowledge | None = None  # of one fit: `with_public` sets it in a copy
    _rules: ColumnRules = NO_RULES  # of one fit: `with_columns` sets it in a copy

    def __init__(
        self,
        rounds: int | None = None,
        again_share: float | None = None,
        rescale_share: float | None = None,
        slope_clip: float | None = None,
        row_bound: float | None = None,
        curvature: float | None = None,
    ) -> None:
        self.rounds = rounds
        self.again_share = again_share
        self.rescale_share = rescale_share
        self.slope_clip = slope_clip
        self.row_bound = row_bound
        self.curvature = curvature

    def with_public(self, knowledge: PublicKnowledge) -> FitAgain:
        if self._rules:
            raise ValueError("public= takes no always= and no feature_groups=; omit one or the other")
        informed = copy.copy(self)
        informed._knowledge = knowledge
        return informed

    def with_columns(self, rules: ColumnRules) -> FitAgain:
        if self._knowledge is not None:
            raise ValueError("public= takes no always= and no feature_groups=; omit one or the other")
        ruled = copy.copy(self)
        ruled._rules = rules
        return ruled

    # --- what will be released ---

    def bounds_wanted(self) -> tuple[str, ...]:
        return ("row_l2",)

    def default_nonzero(self, public: PublicFacts) -> int:
        """All features, or a quarter of them where rows are scarce; of those that are publicly known to occur."""
        d = public.n_features
        count = max(d // 4, 1) if self._is_scarce(public) else d
        if self._knowledge is None or public.budget is None:
            return self._rules.to_units(count)
        candidates = len(self._knowledge.candidates)
        if not self._tell_more_than_directions(public):
            return candidates
        return len(self._knowledge.common(max(count, candidates)))

    @staticmethod
    def _is_scarce(public: PublicFacts) -> bool:
        """Whether rows are few for a fit of all features."""
        return public.n_features >= _SCARCE * public.n_rows * budget_mu(public.budget)

    def _tell_more_than_directions(self, public: PublicFacts) -> bool:
        """Whether private rows can tell more than public directions can hold."""
        assert self._knowledge is not None
        shown = self._knowledge.most_directions(public)
        return public.n_features > shown and tellable_directions(public, math.inf) > 1.25 * shown

    def releases(self, public: PublicFacts) -> tuple[Release, ...]:
        settings, outputs = self.settings(public), public.loss.n_outputs
        if settings.check_share and not public.estimated:
            _ = self._view(public).expected_share  # what can fail in public rows fails before the bill
        # All releases together cost a sum of mu² of about 1 in the wanted parts; see HardThresholding.releases.
        plan = [Release("check", gaussian(settings.check_share / 2), 2)] if settings.check_share else []
        plan.append(Release("fit", perturbation(settings.first, settings.first_share / outputs, public), outputs))
        if settings.again:
            # Later fits differ in slopes and lengths; the scale of their noise is the same, except for penalties that
            # offsets raise.
            most = max(settings.again, key=lambda fit: fit.log_determinant)
            again = perturbation(most, settings.again_share / outputs, public)
            plan.append(Release("fit again", again, len(settings.again) * outputs))
        return (*plan, *(settings.rescale.releases(public) if settings.rescale is not None else ()))

    # --- the algorithm ---

    def run(self, ask: Ask, public: PublicFacts) -> FloatArray:
        settings = self.settings(public)
        a, d, outputs = settings.intercept_value, public.n_features, public.loss.n_outputs
        view = self._check(ask, public) if settings.check_share else None
        if view is None:
            features, nowhere = np.arange(d), np.zeros(public.n_parameters)
            w = np.column_stack([ask("fit", settings.first.minimiser(features, nowhere, k)) for k in range(outputs)])
        else:
            w = np.column_stack([self._fit_in_view(ask, public, settings, view, k) for k in range(outputs)])
        units = _sizes(self._rules.n_units(d), public.n_nonzero, len(settings.again))
        stays = view is not None and settings.n_kept == len(view.features)  # later fits were in public coordinates too
        for number, (size, again) in enumerate(zip(settings.sizes(view, d), () if stays else settings.again)):
            for k in range(outputs):
                if self._rules:
                    w[:, [k]] = self._rules.threshold(units[number], d)(w[:, [k]])
                    features = np.flatnonzero(w[:d, k])
                else:
                    features = self._keep(w, k, size, view if number == 0 else None, d)
                lines = np.append(features, np.arange(d, len(w)))  # the constant's is always fitted
                w[lines, k] = ask("fit again", again.minimiser(features, w[lines, k], k))
        w = self._rules.threshold(public.n_nonzero, d)(w)
        if settings.rescale is not None:
            for k in range(outputs):
                column = w[:, [k]]
                unit = settings.rescale.unit(column, a, ask("spread", settings.rescale.spread(column, a)))
                theta = ask("rescale", settings.rescale.question(column, a, unit, k))
                w[:, [k]] = settings.rescale.rescaled(column, a, unit, theta)
        return np.vstack([w[:d], a * w[d:] if a else np.zeros((1, outputs))])

    def _view(self, public: PublicFacts) -> PublicView:
        """The public coordinates under the bounds of this fit."""
        assert self._knowledge is not None
        return self._knowledge.view(public, tellable_directions(public))

    def _check(self, ask: Ask, public: PublicFacts) -> PublicView | None:
        """The public coordinates; None where the noisy answers say that private rows are not like public ones."""
        view = self._view(public)
        # A row's mean square along a probe is its squared length there over the number of directions, or about that.
        counts, largest = (view.n_probed, public.n_features), (view.checked_length, public.row_l2 * math.sqrt(2))
        answers = [
            float(ask("check", Curvature(probes, 0.0, length / math.sqrt(count)))[0, 0]) * count
            for probes, count, length in zip(view.probes(public.n_parameters), counts, largest)
        ]
        return view if answers[0] >= view.least_share * view.expected_share * answers[1] else None

    def _fit_in_view(
        self, ask: Ask, public: PublicFacts, settings: Settings, view: PublicView, output: int
    ) -> FloatArray:
        """The first fit in public coordinates, as weights for rows that are scaled down as in later fits. Where all
        candidates are kept, the later ones too: each is centred at the one before."""
        d, a = public.n_features, settings.intercept_value
        count = len(view.features) if view.mixing is None else view.mixing.shape[1]
        theta, shorter, entry = np.zeros(count + bool(a)), 1.0, a
        fits = (settings.first, *(settings.again if settings.n_kept == len(view.features) else ()))
        for name, fit in zip(("fit", *["fit again"] * len(fits)), fits):
            if view.mixing is not None:
                fit, shorter = self._constants_in_view(public, fit, view)
            entry = fit.intercept_value
            theta = np.asarray(ask(name, fit.minimiser(view.features, theta, output, view.mixing)))
        weights = np.zeros(public.n_parameters)
        weights[view.features] = shorter * (theta[:count] if view.mixing is None else view.mixing @ theta[:count])
        if a:
            weights[d] = theta[count] * entry / a
        return weights

    def _constants_in_view(self, public: PublicFacts, fit: Refinement, view: PublicView) -> tuple[Refinement, float]:
        """The constants of a fit in public directions, of the same kappa; and how much shorter its weights are to be
        for rows that are scaled down on features."""
        kind, a, lengths = public.loss.kind, fit.intercept_value, view.lengths()
        positive = lengths[lengths > 0]
        usual = _PUBLIC_BOUND[kind] * float(np.median(positive if len(positive) else 1.0))
        bound = self.row_bound or max(usual, 1e-3 * public.row_l2)  # public rows may be of any length
        tau = fit.slope_clip
        if kind == "classification":
            tau = self.slope_clip or _PUBLIC_CLIP[0] * of_one_output(public.loss).default_clip(public.label)
        entry = bound / 4 if a else 0.0
        kappa = math.expm1(fit.log_determinant / public.rows_per_unit)
        room = math.sqrt(fit.row_bound**2 - a**2)
        shorter = _mean_scale(lengths, bound) / _mean_scale(view.lengths(view.features), room)
        return refinement(public, tau, math.hypot(bound, entry), entry, kappa), shorter

    def _keep(self, w: FloatArray, k: int, size: int, view: PublicView | None, d: int) -> Features:
        """The features that output k is left with; its other weights become 0.

        After a fit in public directions those of a sparse student, or more than these: all that are common. Else those
        of the largest weights.
        """
        if view is not None and size > len(view.features):
            assert self._knowledge is not None
            return self._knowledge.common(size)
        if view is not None and view.mixing is not None:
            w[:d, k] = view.sparse_student(w[:d, k], size)
        else:
            w[:, [k]] = HardThreshold(size, free_from=d)(w[:, [k]])
        return np.flatnonzero(w[:d, k])

    # --- defaults: functions of public quantities alone ---

    def settings(self, public: PublicFacts) -> Settings:
        """The settings of a run. Reads nothing but the parameters, public facts and public knowledge."""
        check_numbers(self, _RANGES, optional=list(_RANGES))
        check_whole(self, {"rounds": 1}, optional=("rounds",))
        check_convex(self, public)
        private, classify = public.budget is not None, public.loss.kind == "classification"
        s, d = self._rules.n_kept(public), public.n_features
        start, check_share = d, 0.0
        if self._knowledge is not None and self._is_informed(public):
            start = len(self._knowledge.candidates)
            check_share = min(max((100 / (public.n_rows * budget_mu(public.budget))) ** 2, 0.002), 0.05)
        rescale_share = self.rescale_share
        if rescale_share is None:
            least, most = _RESCALE_SHARE
            rescale_share = min(max(_RESCALE_ROWS / (public.n_rows * budget_mu(public.budget)), least), most)
            if not classify and not self._is_informed(public):
                rescale_share = 0.0
        if not private:
            rescale_share = 0.0  # nothing was cut, and nothing is to be put right
        check_share *= 1 - rescale_share
        fits = 1 - rescale_share - check_share
        rounds = self.rounds or (1 if s >= start else _ROUNDS if self._is_scarce(public) else 2)
        if self.rounds is None and ((check_share and s >= start) or self._has_directions(public)):
            rounds = 2
        usual = _PUBLIC_AGAIN_SHARE if check_share else _AGAIN_SHARE
        share = (self.again_share or usual) if rounds > 1 else 0.0
        first_share, each = (1 - share) * fits, share * fits / max(rounds - 1, 1)
        bound = self.row_bound or public.row_l2 * (_SHORT if classify and private else 1.0)
        stiffer, stiffest = (min(s / d, 1.0) ** power for power in _STIFFER[public.loss.kind])
        sizes = _sizes(start, s, rounds - 1)
        first = self._refinement(public, bound, d, first_share, self._kappa(public, d, first_share, stiffer))
        kappa = self._kappa(public, s, each, stiffest) if rounds > 1 else 0.0
        again = tuple(self._refinement(public, bound, size, each, kappa, later=True) for size in sizes)
        # Rows at row_l2 were scaled down to the bound: there the weights are as much too long. In regression noise is
        # better pulled to the constant model.
        length = min(bound / public.row_l2, 1.0) if classify else 0.0
        rescale = None
        if rescale_share:
            own = max(one.own_influence(public, size) for one, size in zip((first, *again), (d, *sizes)))
            own *= public.row_l2 / bound
            rescale = Rescaling.of(public, rescale_share, public.row_l2 / 2, length, own)
        return Settings(first, again, s, rescale, check_share, first_share, each)

    @staticmethod
    def _scarcity(public: PublicFacts, size: int, share: float) -> float:
        """q of a fit of `size` weights for the part `share` of the cost."""
        mu = budget_mu(public.budget) * math.sqrt(share / public.loss.n_outputs)
        return max(size / (public.n_rows * mu), 1e-12)

    def _has_directions(self, public: PublicFacts) -> bool:
        """Whether there are public rows enough for half of the directions that private rows can tell."""
        if self._knowledge is None or not self._is_informed(public):
            return False
        return self._knowledge.shows_enough(public, tellable_directions(public))

    def _is_informed(self, public: PublicFacts) -> bool:
        """Whether there is public knowledge to use; a fit without privacy needs none."""
        return public.budget is not None and self._knowledge is not None and self._knowledge.is_useful

    def _kappa(self, public: PublicFacts, size: int, share: float, stiffer: float) -> float:
        """The curvature that a row may add, relative to the penalty, in a fit of `size` weights."""
        constants, informed = _CURVATURE[public.loss.kind], self._is_informed(public)
        if informed and public.loss.kind == "regression":
            constants = _PUBLIC_REGRESSION_CURVATURE
        factor, power, smallest, largest = constants
        xi = stiffer * min(max(factor * self._scarcity(public, size, share) ** -power, smallest), largest)
        if informed and public.loss.kind == "classification":
            xi = _PUBLIC_CURVATURE
        return curvature_of(public, self.curvature or xi, share / public.loss.n_outputs)

    def _refinement(
        self, public: PublicFacts, bound: float, size: int, share: float, kappa: float, later: bool = False
    ) -> Refinement:
        """A fit of `size` weights for the part `share` of the cost."""
        binary, tau = of_one_output(public.loss), self.slope_clip
        if tau is None:
            tau = binary.default_clip(public.label) if public.budget is not None else math.inf
            if later and self._is_informed(public) and binary.kind == "classification":
                tau *= _PUBLIC_CLIP[1]
            elif binary.kind == "classification":
                tau *= min(1.0, max(math.sqrt(0.2 / self._scarcity(public, size, share)), 0.2))
            elif public.budget is not None and not self._is_informed(public):
                tau *= _REGRESSION_CLIP
        a = (bound / 4 if bound < math.inf else 1.0) if public.fit_intercept else 0.0
        return refinement(public, tau, math.hypot(bound, a), a, kappa)

    # --- for the report and for warnings ---

    def describe(self, public: PublicFacts) -> str:
        settings = self.settings(public)

        def words(fit: Refinement) -> str:
            return f"slopes cut at {fit.slope_clip:.4g}, rows at {fit.row_bound:.4g}, penalty {fit.penalty:.4g}"

        start, where = public.n_features, "all"
        if settings.check_share:
            assert self._knowledge is not None
            start = len(self._knowledge.candidates)
            where = f"the {start:,} publicly most common features if a check is passed, else of all"
        sizes = _sizes(start, settings.n_kept, len(settings.again))
        again = "".join(f", then of {size:,} ({words(fit)})" for size, fit in zip(sizes, settings.again))
        other = "; in public directions with constants of their own" if settings.check_share else ""
        of_first = f"objective perturbation of {where} ({words(settings.first)})"
        return f"fit, keep, fit again: {self._rules.words(public)}, {of_first}{again}{other}"

    def assumptions(self, public: PublicFacts) -> tuple[str, ...]:
        return () if self._knowledge is None else (self._knowledge.assumption(),)

    def n_dense_vectors(self) -> int:
        return 17 if self._knowledge is None else 150  # with the vectors of the check

    def n_iterations(self, public: PublicFacts) -> int:
        return 1 + len(self.settings(public).again)

    def signal_to_noise(self, public: PublicFacts, releases: tuple[Release, ...]) -> float:
        """n mu / 100 per row of a unit: the margin that labels of a common kind of data give, over that of noise.

        In the direction that n rows point to, a fit moves the margin of a row by n tau r² / Lambda, r² being the
        squared length of the mean of y z in units of rows; noise moves it by 2 tau / (mu Lambda). Text and gene
        expressions have r² of about 0.02.
        """
        return public.n_rows * budget_mu(public.budget) / (100.0 * public.rows_per_unit)


def _sizes(start: int, last: int, count: int) -> list[int]:
    """`count` numbers of features from `start`, not included, to `last`, by equal factors."""
    return [round(start * (last / start) ** (number / count)) for number in range(1, count + 1)]


def _mean_scale(lengths: FloatArray, bound: float) -> float:
    """By how much public rows are scaled down on average."""
    positive = lengths[lengths > 0]
    return float(np.minimum(1.0, bound / positive).mean()) if len(positive) else 1.0
