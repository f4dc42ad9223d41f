"""Screen and refine: choose features by one noisy gradient, then fit them by one objective perturbation.

The "two stage" idea of Kifer, Smith and Thakurta, "Private convex empirical risk minimization and high-dimensional
regression" (COLT 2012), with a first stage that can be computed and with today's accounting:

    start     the intercept of the constant model, from one noisy mean
    screen    g = gradient of the mean loss at the current model, with noise;  S = where |g| is largest
    refine    theta = argmin sum_i f_tau(<z_i, theta>, y_i) + (Lambda/2) |theta - centre|² + <b, theta>, b ~ N(0, σ² I)
    rescale   the same in the two directions <x, theta> and 1, with the uncut loss

It pays for about two noisy gradients in all, where a loop of T steps pays for T. z_i is row i on S, scaled down to
`row_bound`, and f_tau is the loss with its slope cut at tau: smaller gradients need less noise. Both distort the length
of theta, hardly its direction; `rescale` puts the length right. Proofs: docs/proofs/screen_refine.md,
docs/proofs/objective_perturbation.md.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from tulle.methods.base import MethodBase
from tulle.methods.column_rules import NO_RULES, ColumnRules
from tulle.methods.gradient_queries import ClippedGradient, SecondMoments, Step
from tulle.methods.loss_functions import Squared, of_one_output, without_weights
from tulle.methods.noise_scales import budget_mu, kept_row_norm, selection_pays, signal_to_noise
from tulle.methods.parameter_checks import (
    NOT_NEGATIVE,
    POSITIVE,
    SHARE,
    SHARE_OR_NONE,
    Range,
    check_choices,
    check_numbers,
    check_whole,
)
from tulle.methods.penalised_fit import (
    USUAL_XI,
    Refinement,
    Rescaling,
    Start,
    check_convex,
    curvature_of,
    gaussian,
    perturbation,
    refinement,
)
from tulle.methods.step_refinement import StepRefinement
from tulle.trusted.curator import Ask
from tulle.trusted.events import FloatArray, NoisePerSensitivity
from tulle.trusted.facts import PublicFacts
from tulle.trusted.mechanisms import TopK
from tulle.trusted.plan import Budget, Release
from tulle.trusted.queries import Magnitudes

_RANGES: dict[str, Range] = {
    "screening_share": SHARE,
    "curvature": ("lie in (0, 4]", lambda value: 0 < value <= 4),
    "start_share": SHARE_OR_NONE,
    "rescale_share": SHARE_OR_NONE,
    "clip": POSITIVE,
    "slope_clip": POSITIVE,
    "row_bound": POSITIVE,
    "centre": NOT_NEGATIVE,
}

# The largest xi of a refinement, for one-sided losses and for others.
_LARGEST_XI = {True: 1.0, False: 0.8}


@dataclass(frozen=True)
class Settings:
    """The public settings of one run, after defaults."""

    rounds: int
    selection: bool
    clip: float
    refine: Refinement
    rescale: Rescaling | None
    centre: float  # the largest margin that the ridge's centre can give a row
    start_share: float
    screening_share: float
    rescale_share: float

    @property
    def intercept_value(self) -> float:
        return self.refine.intercept_value


class ScreenRefine(MethodBase):
    """A private choice of features, then a tightly accounted private fit of these alone.

    Parameters
    ----------
    rounds : int or None, default=None
        At least 1: how often to screen at the current model and refine; each round adds a part of the features. None: 2
        for classification with selection noise, 5 without privacy, else 1.
    noise : {"auto", "gaussian", "selection"}, default="auto"
        Screening by Gaussian noise on all scores, or by one-shot Gumbel top-s; "auto" takes the one with the smaller
        error scale at equal privacy, row_l2 sqrt(2 log d) against row_linf sqrt(s) log d.
    screening_share : float or None, default=None
        In (0, 1): the part of the cost of screening and refining that goes to screening. None: 0.5 with Gaussian, 0.65
        with selection noise.
    start_share : float, default=0.02
        In [0, 1): the part of the cost spent on the intercept that screening starts from. Without it the features of
        the larger class look useful.
    rescale_share : float or None, default=None
        In [0, 1): the part of the cost spent on the length of the weights and on the intercept at the end. None: 0.03
        with Gaussian noise; with selection noise 0.1 for classification and 0 for regression.
    clip : float or None, default=None
        Largest slope kept in screening, > 0. None: 1/2 for the logistic loss, a quarter of the label bound for
        regression. Where all slopes are cut, screening goes by their signs and loses nothing.
    slope_clip : float or None, default=None
        tau, > 0. None: a third of the label bound for regression; for classification the slope at margin 0 (1/2 for the
        logistic loss), and down to half of it as s / (n mu) grows: the less the data can tell about each weight,
        the more a smaller noise is worth.
    row_bound : float or None, default=None
        What rows are scaled down to on the chosen features, > 0. None: a fifth of row_l2 for classification, where only
        directions matter, and what the features can hold for regression; with selection noise 1.25 sqrt(s/d) row_l2.
    curvature : float or None, default=None
        xi, in (0, 4]: the curvature that one row can add relative to the penalty, in units of half the mu that refining
        costs. It decides the penalty, Lambda = curvature of a row / (xi mu / 2), and its price: the noise grows by the
        factor F(xi) of docs/proofs/objective_perturbation.md, at 0.5 1.013 for classification and 1.076 for regression.
        None: 0.45 and 0.5 where s / (n mu) is 0.18, more where it is smaller (to the power -1/4), at most 1 and 0.8.
    centre : float or None, default=None
        The largest margin, in units of the label bound for regression, that the ridge's centre may give a row; >= 0.
        It points where the noisy screening scores point: the screening is used twice for one price. None: 8 for
        classification and 4 for regression with Gaussian screening in one round, else 0. Selection noise has no
        scores, and no centre.
    refinement : {"objective", "statistics", "steps"}, default="objective"
        "statistics" (squared loss only) refines by noisy second moments of the chosen features and the target. "steps"
        refines by a few noisy gradient steps, so that all noise is Gaussian noise on sums over rows, and any loss does;
        `clip` is then for start and screening, `slope_clip` (0.6 times the loss's default) and `row_bound` (1.25 times
        the length of rows, which is measured) are for steps, `screening_share` (0.6) counts only where screening pays,
        `rescale_share` (0.02) is for the last intercept, and `rounds`, `curvature` and `centre` have no place.
    steps : int or None, default=None
        How many steps there are with refinement="steps", at least 1. None: sqrt(n mu) / 8 within [6, 8], where mu is
        the budget's Gaussian privacy parameter; 200 without privacy.

    Examples
    --------
    >>> from tulle import SparseClassifier
    >>> from tulle.methods import ScreenRefine
    >>> model = SparseClassifier(method=ScreenRefine(slope_clip=0.3))
    >>> model.set_params(method__rounds=2).method.rounds
    2
    """

    _rules: ColumnRules = NO_RULES  # of one fit: `with_columns` sets it in a copy

    def __init__(
        self,
        rounds: int | None = None,
        noise: Literal["auto", "gaussian", "selection"] = "auto",
        screening_share: float | None = None,
        start_share: float = 0.02,
        rescale_share: float | None = None,
        clip: float | None = None,
        slope_clip: float | None = None,
        row_bound: float | None = None,
        curvature: float | None = None,
        centre: float | None = None,
        refinement: Literal["objective", "statistics", "steps"] = "objective",
        steps: int | None = None,
    ) -> None:
        self.rounds = rounds
        self.noise = noise
        self.screening_share = screening_share
        self.start_share = start_share
        self.rescale_share = rescale_share
        self.clip = clip
        self.slope_clip = slope_clip
        self.row_bound = row_bound
        self.curvature = curvature
        self.centre = centre
        self.refinement = refinement
        self.steps = steps

    # --- what will be released ---

    def with_columns(self, rules: ColumnRules) -> ScreenRefine:
        ruled = copy.copy(self)
        ruled._rules = rules
        return ruled

    def _by_steps(self, public: PublicFacts) -> StepRefinement | None:
        """What does it all where refinement="steps"."""
        if self.refinement != "steps":
            return None
        self._check(public)
        return StepRefinement(
            self.steps,
            self.start_share,
            self.screening_share,
            self.rescale_share,
            self.clip,
            self.slope_clip,
            self.row_bound,
            self._rules,
        )

    def bounds_wanted(self) -> tuple[str, ...]:
        return ("row_l2",) if self.noise == "gaussian" else ("row_l2", "row_linf")

    def default_nonzero(self, public: PublicFacts) -> int:
        """n / (2 log d): rows enough for each weight; at small budgets, too, more have not hurt on text.

        On dense features of equal size, where each choice is paid for, n mu / 60 if that is less.
        """
        if by_steps := self._by_steps(public):
            return by_steps.default_nonzero(public)
        many = int(min(max(public.n_rows / (2 * math.log(max(public.n_features, 2))), 1), public.n_features))
        if public.budget is not None:
            few = min(max(int(public.n_rows * budget_mu(public.budget) / 60), 1), many)
            many = few if selection_pays(replace(public, n_nonzero=few)) else many
        return self._rules.to_units(many)

    def releases(self, public: PublicFacts) -> tuple[Release, ...]:
        if by_steps := self._by_steps(public):
            return by_steps.releases(public)
        settings = self.settings(public)
        rounds, outputs = settings.rounds, public.loss.n_outputs
        both = 1 - settings.start_share - settings.rescale_share
        screening, refining = settings.screening_share * both, (1 - settings.screening_share) * both
        # All releases together cost a sum of mu² of about 1 in the wanted parts; see HardThresholding.releases.
        plan = [Release("start", gaussian(settings.start_share), 1)] if settings.start_share else []
        if settings.selection:
            noise = NoisePerSensitivity(math.sqrt(self._rules.n_free(public) * outputs / screening))
            rooms = Counter(self._room(public, settings, number) for number in range(rounds))
            names = ("select", "select the rest")
            plan += [
                Release(name, TopK(noise, room, outputs), count) for name, (room, count) in zip(names, rooms.items())
            ]
        elif screening:
            plan.append(Release("screen", gaussian(screening / rounds), rounds))
        each = refining / (rounds * outputs)
        if self.refinement == "statistics":
            plan.append(Release("moments", gaussian(each), rounds))
        else:
            plan.append(Release("refine", perturbation(settings.refine, each, public), rounds * outputs))
        if settings.rescale is not None:
            plan += settings.rescale.releases(public)
        return tuple(plan)

    def published(self, public: PublicFacts, budget: Budget) -> tuple[Release, ...]:
        raise ValueError("no paper prints noise for 'screen_refine'; use method='two_stage' or calibration='rigorous'")

    # --- the algorithm ---

    def run(self, ask: Ask, public: PublicFacts) -> FloatArray:
        if by_steps := self._by_steps(public):
            return by_steps.run(ask, public)
        settings = self.settings(public)
        a, d, outputs = settings.intercept_value, public.n_features, public.loss.n_outputs
        w = np.zeros((public.n_parameters, outputs))
        if settings.start_share:
            start = Start(public, settings.clip, settings.start_share, a)
            w[d] = start.intercepts(ask("start", start.question()))
        support = np.repeat(self._rules.mask(d)[:, None], outputs, axis=1)
        for number in range(settings.rounds):
            scores = self.screen(ask, public, settings, w, support, number)
            support |= self._rules.whole_groups(scores != 0)
            chosen = [np.flatnonzero(column) for column in support.T]
            centres = [
                self._centre(public, settings, w[:, k], features, scores[features, k])
                for k, features in enumerate(chosen)
            ]
            del scores  # a vector less while the chosen columns are copied
            for k, (features, centre) in enumerate(zip(chosen, centres)):
                theta = self._refine(ask, public, settings.refine, features, centre, k)
                w[features, k] = theta[: len(features)]
                w[d:, k] = theta[len(features) :]
        if settings.rescale is not None:
            for k in range(outputs):
                column = w[:, [k]]
                unit = settings.rescale.unit(column, a, ask("spread", settings.rescale.spread(column, a)))
                theta = ask("rescale", settings.rescale.question(column, a, unit, k))
                w[:, [k]] = settings.rescale.rescaled(column, a, unit, theta)
        return np.vstack([w[:d], a * w[d:] if a else np.zeros((1, outputs))])

    def screen(
        self,
        ask: Ask,
        public: PublicFacts,
        settings: Settings,
        w: FloatArray,
        support: npt.NDArray[np.bool_],
        number: int,
    ) -> FloatArray:
        """Scores of the features that join the support; zero for all others."""
        if not settings.screening_share:
            return np.zeros(support.shape)
        a, d = settings.intercept_value, public.n_features
        taken = int(support.sum(axis=0).max())
        room = self._room(public, settings, number)
        if settings.selection:
            step = Step(ClippedGradient(w, settings.clip, "linf", a), 1.0)
            name = "select" if room == self._room(public, settings, 0) else "select the rest"
            return np.where(ask(name, Magnitudes(step, passed_over=support.copy())), 1.0, 0.0)
        gradient = ClippedGradient(w, settings.clip, "l2", a)
        noisy = ask("screen", gradient, then=self._rules.threshold(room + taken, d, always=False))[:d]
        return self._rules.threshold(room, d, always=False)(np.where(support, 0.0, -noisy))

    def _centre(
        self,
        public: PublicFacts,
        settings: Settings,
        w: FloatArray,
        features: npt.NDArray[np.intp],
        scores: FloatArray,
    ) -> FloatArray:
        """Where the ridge pulls to: the current model, and along the scores of new features."""
        length = float(np.linalg.norm(scores))
        pull = settings.centre / (length * settings.refine.row_bound) if length and settings.centre else 0.0
        return np.append(w[features] + pull * scores, w[public.n_features :])

    def _refine(
        self,
        ask: Ask,
        public: PublicFacts,
        constants: Refinement,
        features: npt.NDArray[np.intp],
        centre: FloatArray,
        output: int,
    ) -> FloatArray:
        if self.refinement == "statistics":
            return self._by_moments(ask, public, constants, features, len(centre))
        return np.asarray(ask("refine", constants.minimiser(features, centre, output)))

    @staticmethod
    def _by_moments(
        ask: Ask, public: PublicFacts, constants: Refinement, features: npt.NDArray[np.intp], size: int
    ) -> FloatArray:
        """Ridge regression on noisy second moments of (z, y), with y scaled to the rows' length."""
        unit = constants.row_bound / public.label if max(constants.row_bound, public.label) < math.inf else 1.0
        query = SecondMoments(features, constants.row_bound, constants.intercept_value, unit)
        moments = query.as_matrix(ask("moments", query))
        # Noise can make small eigenvalues negative; the penalty is their floor.
        ridge = constants.penalty / public.n_rows
        values, vectors = np.linalg.eigh(moments[:size, :size])
        inverse = vectors / np.maximum(values, ridge)
        return np.asarray(inverse @ (vectors.T @ moments[:size, size]) / unit)

    # --- defaults: functions of public quantities alone ---

    def settings(self, public: PublicFacts) -> Settings:
        """The settings of a run. Reads nothing but the parameters and public facts."""
        self._check(public)
        private = public.budget is not None
        classify = public.loss.kind == "classification"
        rules = self._rules
        single = rules.groups is None and rules.n_free(public) > 0
        selection = single and selection_pays(public) if self.noise == "auto" else self.noise == "selection"
        if selection:
            rules.check_selection(type(self).__name__, public)
        rounds = self.rounds or (5 if not private else 2 if selection and classify else 1)
        rounds = max(min(rounds, rules.n_free(public)), 1)
        clip = self.clip or (self._default_clip(public) if private else math.inf)
        share = self.screening_share or (0.65 if selection else 0.5)
        if not rules.n_free(public):
            share = 0.0  # there is nothing to choose
        rescale_share = self.rescale_share
        if rescale_share is None:
            rescale_share = 0.03 if not selection else 0.1 if classify else 0.0
        if not private:
            rescale_share = 0.0  # nothing was cut, and nothing is to be put right
        start_share = self.start_share if public.fit_intercept else 0.0
        refining = (1 - share) * (1 - start_share - rescale_share) / (rounds * public.loss.n_outputs)
        refine = self._refinement(rules.in_features(public), selection, refining)
        centre = self.centre
        if centre is None:
            centre = (8.0 if classify else 4.0) if rounds == 1 else 0.0
        if selection or not private:
            centre = 0.0  # which features were chosen says nothing of their signs; without noise the data say it all
        spread_bound = kept_row_norm(public, True) if selection else public.row_l2 / 2
        return Settings(
            rounds=rounds,
            selection=selection,
            clip=clip,
            refine=refine,
            rescale=Rescaling.of(public, rescale_share, spread_bound, length=0.0) if rescale_share else None,
            centre=centre * public.loss.margin_scale(public.label) if centre else 0.0,
            start_share=start_share,
            screening_share=share,
            rescale_share=rescale_share,
        )

    def _default_clip(self, public: PublicFacts) -> float:
        return public.loss.default_clip(public.label)

    def _refinement(self, public: PublicFacts, selection: bool, square: float) -> Refinement:
        """Where one refining takes the part `square` of the cost."""
        classify = public.loss.kind == "classification"
        scarcity = public.n_nonzero / (public.n_rows * budget_mu(public.budget))
        tau, bound, xi = self.slope_clip, self.row_bound, self.curvature
        if tau is None:
            if public.budget is None:
                tau = math.inf
            elif not classify:
                tau = min(public.loss.slope_bound(math.inf, public.label), public.label / 3)
            else:
                tau = of_one_output(public.loss).default_clip(public.label)
                if not selection:
                    tau *= min(1.0, max(0.5, (0.02 / scarcity) ** 0.25))
        if bound is None:
            bound = kept_row_norm(public, selection)
            if classify and public.budget is not None:
                bound = min(bound, public.row_l2 / 5)
        if xi is None:
            one_sided = of_one_output(public.loss).one_sided
            xi = USUAL_XI[one_sided]  # where s / (n mu) is 0.18
            if not selection:
                xi = min(_LARGEST_XI[one_sided], xi * (0.18 / max(scarcity, 1e-12)) ** 0.25)
        a = (bound / 4 if bound < math.inf else 1.0) if public.fit_intercept else 0.0
        return refinement(public, tau, math.hypot(bound, a), a, curvature_of(public, xi, square))

    def _room(self, public: PublicFacts, settings: Settings, number: int) -> int:
        few, more = divmod(self._rules.n_free(public), settings.rounds)
        return few + (number < more)

    def _check(self, public: PublicFacts) -> None:
        name = type(self).__name__
        check_whole(self, {"rounds": 1, "steps": 1}, optional=("rounds", "steps"))
        check_numbers(self, _RANGES, optional=[parameter for parameter in _RANGES if parameter != "start_share"])
        if self.start_share + (self.rescale_share or 0.0) >= 1:
            raise ValueError(f"{name}: start_share and rescale_share leave nothing for screening and refining")
        refinements = ("objective", "statistics", "steps")
        check_choices(self, {"noise": ("auto", "gaussian", "selection"), "refinement": refinements})
        if self.refinement == "statistics" and not isinstance(without_weights(public.loss), Squared):
            raise ValueError(f"{name}(refinement='statistics') needs loss='squared', not {public.loss!r}")
        if self.refinement != "steps":
            if self.steps is not None:
                raise ValueError(f"{name}(steps=...) is for refinement='steps'; set it, or omit steps=")
            check_convex(self, public)
        elif self.noise == "selection":
            raise ValueError(f"{name}(refinement='steps') has Gaussian noise alone; use noise='gaussian' or 'auto'")
        elif unused := [one for one in ("rounds", "curvature", "centre") if getattr(self, one) is not None]:
            raise ValueError(f"{name}(refinement='steps') has no {', '.join(unused)}; omit {'=, '.join(unused)}=")

    # --- for the report and for warnings ---

    def describe(self, public: PublicFacts) -> str:
        if by_steps := self._by_steps(public):
            return by_steps.describe(public)
        settings = self.settings(public)
        kind = "one-shot selection" if settings.selection else "Gaussian noise on all scores"
        screened = f"screening by {kind}, " if settings.screening_share else ""
        refined = (
            f"objective perturbation (slopes cut at {settings.refine.slope_clip:.4g}, rows at "
            f"{settings.refine.row_bound:.4g}, penalty {settings.refine.penalty:.4g})"
            if self.refinement == "objective"
            else "noisy second moments"
        )
        return (
            f"screen and refine, {settings.rounds} round{'s' if settings.rounds > 1 else ''}: {screened}"
            f"{self._rules.words(public)}, refined by {refined}"
        )

    def n_dense_vectors(self) -> int:
        return 45 if self.refinement == "steps" else 14  # with the directions that the spread is measured in

    def n_iterations(self, public: PublicFacts) -> int:
        by_steps = self._by_steps(public)
        return by_steps.settings(public).n_steps if by_steps else self.settings(public).rounds

    def n_passes(self, public: PublicFacts) -> float:
        """Screenings read all columns; what reads only the chosen ones (refining) is not counted."""
        if by_steps := self._by_steps(public):
            return by_steps.n_passes(public)
        settings = self.settings(public)
        return float(settings.rounds + bool(settings.start_share))

    def signal_to_noise(self, public: PublicFacts, releases: tuple[Release, ...]) -> float:
        if by_steps := self._by_steps(public):
            return by_steps.signal_to_noise(public, releases)
        screening = [release.mechanism for release in releases if release.name in ("screen", "select")]
        return signal_to_noise(public, screening[0]) if screening else math.inf
