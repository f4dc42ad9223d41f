"""The fit behind `inference=True`: weights, and what their intervals need, on one bill.

    start      the constant model c
    screen     (fewer features than columns alone) choose features, by a part of the rows that is used for nothing else
    weights    argmin sum_i f(<z_i, theta>, y_i) + (Lambda/2) |theta - c|² + <b, theta>, b ~ N(0, sigma² I), uncut loss
    curvature  sum_i f''(<z_i, theta>) z_i z_i' + noise, at the released weights
    spread     sum_i f'(<z_i, theta>, y_i)² z_i z_i' + noise

For squared loss one release, `moments`, of sum_i (z_i, y_i)(z_i, y_i)' + noise has the weights and the curvature. Rows
are whole, that is as long as their bounds allow, and slopes are not cut where the model is any good: a fit that cuts
either has other weights than those that intervals are wanted for. Proofs: docs/proofs/inference.md.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import gammaincinv

from tulle.accounting.zcdp import rho_of
from tulle.inference.curvature_change import AverageRow, SlopeCurves
from tulle.inference.evidence import Choice, Estimated, Evidence, Scores, estimate, take_to_curves
from tulle.inference.noisy_matrices import denoise, estimate_spread
from tulle.inference.weighted_moments import Factor, WeightedMoments
from tulle.methods.base import MethodBase, RowSplit
from tulle.methods.column_rules import NO_RULES, ColumnRules
from tulle.methods.gradient_queries import SecondMoments, to_symmetric
from tulle.methods.loss_functions import LOSSES, Logistic, Loss, Poisson, Squared, of_one_output, without_weights
from tulle.methods.noise_scales import kept_row_norm
from tulle.methods.penalised_fit import Refinement, Start, curvature_of, gaussian, perturbation, refinement
from tulle.methods.screen_refine import ScreenRefine
from tulle.trusted.curator import Ask
from tulle.trusted.events import FloatArray
from tulle.trusted.facts import PublicFacts
from tulle.trusted.mechanisms import ObjectivePerturbation
from tulle.trusted.plan import Release
from tulle.trusted.queries import Query

# No published table has intervals; models are fitted by this with inference=True alone.
_RESULTS_DEPEND_ON = "nothing"

# Weights that a fit with intervals can have, and columns that they can be chosen among. The curvature has as many
# entries as half the square of the one.
MOST_WEIGHTS, MOST_COLUMNS = 200, 100_000

# How the cost is divided, by simulation (benchmarks/inference.py): of the part that is not for choosing features.
_CURVATURE_SHARE = 0.3
_SPREAD_SHARE, _SPREAD_SHARE_OF_SQUARED = 0.05, 0.1
# Of the constant model, where the penalty's centre is: with classes of unequal size it is far from 0.
_START_SHARE = 0.02
# What choosing takes, of the cost and of the rows.
_SCREENING_SHARE, _SCREENING_ROWS = 0.3, 0.35
# xi of the penalty (docs/proofs/objective_perturbation.md): what a smaller penalty costs in noise.
_XI = 0.5
# The entry of the constant column in units of the row bound: that of an average feature, and at least this.
_LEAST_CONSTANT = 0.2
# How far the spread of gradients may commonly be from the curvature, for classes.
_USUAL_SPREAD = (1.0, 0.15)
# For the warning: the mean second derivative, the residual's standard deviation in label bounds, and the largest
# interval that is worth having, as what it makes of the margin at a typical entry.
_USUAL_CURVATURE, _USUAL_RESIDUAL, _WIDEST = 0.2, 0.25, 1.0

# Of the sums that trusted code answers, some powers of ten below its limit.
_LARGEST_SUM = 1e140

_SCREENING = ("start", "select", "screen")


@dataclass(frozen=True)
class _Settings:
    """The public constants of one run."""

    constants: Refinement
    curvature_cut: float
    unit: float  # of targets among second moments
    screening_share: float

    @property
    def row_bound(self) -> float:
        return self.constants.row_bound

    @property
    def intercept_value(self) -> float:
        return self.constants.intercept_value


@dataclass(frozen=True, eq=False)
class _Released:
    """The answers; `weights` is None for squared loss, whose moments have them."""

    features: npt.NDArray[np.intp]
    centre: FloatArray
    weights: FloatArray | None
    curvature: FloatArray
    spread: FloatArray

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """All of them in one vector, for audits."""
        parts = (self.features, self.centre, self.weights, self.curvature, self.spread)
        return np.concatenate([np.ravel(part) for part in parts if part is not None]).astype(dtype or np.float64)


def _solve(matrix: FloatArray, right: FloatArray) -> FloatArray:
    """The solution of a system, 0 where there is none: no answer may end a fit with an error."""
    try:
        found = np.asarray(np.linalg.lstsq(matrix, right, rcond=1e-8)[0], dtype=np.float64)
    except np.linalg.LinAlgError:
        return np.zeros_like(right)
    return np.nan_to_num(found, nan=0.0, posinf=0.0, neginf=0.0)


def _largest_mean(label: float) -> float:
    """The largest mean of a count that is above the label bound with a probability of 1 % only: if the bound is any
    good, rows of a larger mean, whose part of the curvature is cut, are few."""
    return max(float(gammaincinv(label + 1, 0.01)), label / 3)


def _has_loss(public: PublicFacts, kind: type[Loss]) -> bool:
    """Whether the loss is of a kind, with weights of rows or without."""
    return isinstance(of_one_output(public.loss), kind)


def _spread_share(public: PublicFacts) -> float:
    return _SPREAD_SHARE_OF_SQUARED if _has_loss(public, Squared) else _SPREAD_SHARE


class IntervalFit(MethodBase):
    """Weights with all that intervals need. For logistic, squared and Poisson loss, one row per person.

    Parameters
    ----------
    split_rows : bool, default=True
        Whether features, if they are to be chosen, are chosen by other rows than those that weights are fitted to.
        Intervals then hold for the chosen features. False is for rows that cannot be divided here.
    periods : int, default=0
        Above 0 where the rows of a person are so many periods of a hazard: given what came before, gradients of a
        period have mean 0, so that those of different periods are not correlated and add up as those of independent
        rows do. The first so many columns are then indicators of the period.
    period_value : float, default=1.0
        The entry of these indicators, > 0.
    """

    _rules: ColumnRules = NO_RULES  # of one fit: `with_columns` sets it in a copy

    def __init__(self, split_rows: bool = True, periods: int = 0, period_value: float = 1.0) -> None:
        self.split_rows = split_rows
        self.periods = periods
        self.period_value = period_value

    def with_columns(self, rules: ColumnRules) -> IntervalFit:
        if rules.groups is not None:
            raise ValueError("intervals take no feature_groups=; use always=, or omit inference=True")
        ruled = copy.copy(self)
        ruled._rules = rules
        return ruled

    def _chooses(self, public: PublicFacts) -> bool:
        """Whether features are chosen; not where all are kept, or as many as there are in `always`."""
        return public.n_nonzero < public.n_features and self._rules.n_free(public) > 0

    def _screening(self) -> ScreenRefine:
        return ScreenRefine(rounds=1).with_columns(self._rules)

    # --- what will be released ---

    def bounds_wanted(self) -> tuple[str, ...]:
        return ("row_l2", "row_linf")

    def releases(self, public: PublicFacts) -> tuple[Release, ...]:
        settings = self._settings(public)
        if public.budget is not None:
            reach = settings.constants.slope_clip * settings.row_bound
            # What trusted code would refuse, but only once the budget is spent.
            if not max(reach, settings.row_bound) ** 2 * public.n_rows < _LARGEST_SUM:
                raise ValueError("intervals: bounds are so large that squares overflow; use larger units for columns")
        rest = 1 - settings.screening_share
        plan = self._screening_releases(public, settings.screening_share)
        if _has_loss(public, Squared):
            plan.append(Release("moments", gaussian((1 - _spread_share(public)) * rest), 1))
        else:
            if self._starts(public) and not settings.screening_share:
                plan.append(Release("start", gaussian(_START_SHARE), 1))
            weights = self._weights_share(public) * rest
            plan.append(Release("weights", perturbation(settings.constants, weights, public), 1))
            plan.append(Release("curvature", gaussian(_CURVATURE_SHARE * rest), 1))
        plan.append(Release("spread", gaussian(_spread_share(public) * rest), 1))
        return tuple(plan)

    def split(self, public: PublicFacts) -> RowSplit | None:
        """Rows that choose features are used for nothing else."""
        return RowSplit(_SCREENING, _SCREENING_ROWS) if self._chooses(public) and self.split_rows else None

    @staticmethod
    def _starts(public: PublicFacts) -> bool:
        """Whether the constant model is asked for; the fit to second moments has no use for it."""
        return public.fit_intercept and not _has_loss(public, Squared) and public.budget is not None

    def _weights_share(self, public: PublicFacts) -> float:
        """Of the cost of all but choosing features."""
        own = _START_SHARE if self._starts(public) and not self._chooses(public) else 0.0
        return 1 - _CURVATURE_SHARE - _SPREAD_SHARE - own

    def _screening_releases(self, public: PublicFacts, share: float) -> list[Release]:
        """Those of `ScreenRefine` that choose features, at this part of the cost."""
        if not share:
            return []
        screening = self._screening()
        settings = screening.settings(public)
        own = settings.start_share + settings.screening_share * (1 - settings.start_share - settings.rescale_share)
        chosen = [release for release in screening.releases(public) if release.name in _SCREENING]
        return [release.scaled(math.sqrt(own / share)) for release in chosen]

    # --- the algorithm ---

    def run(self, ask: Ask, public: PublicFacts) -> _Released:  # type: ignore[override]
        settings = self._settings(public)
        features, start = np.arange(public.n_features), 0.0
        if public.n_nonzero < public.n_features:
            features = np.flatnonzero(self._rules.mask(public.n_features))
        if settings.screening_share:
            features, start = self._choose(ask, public)
        elif self._starts(public):
            # Any clip serves, and the one that costs no accuracy where classes are of unequal size.
            clip = public.loss.default_clip(public.label)
            constant = Start(public, clip, _START_SHARE, settings.intercept_value)
            start = settings.intercept_value * float(constant.intercepts(ask("start", constant.question()))[0])
        centre = np.zeros(len(features) + bool(settings.intercept_value))
        if settings.intercept_value:
            centre[-1] = start / settings.intercept_value
        if _has_loss(public, Squared):
            moments = to_symmetric(ask("moments", self._moments(settings, features)))
            p = len(moments) - 1
            # Slopes are taken at the weights that these moments have; noise is taken off them later, with its scale.
            at = _solve(moments[:p, :p], moments[:p, p] / settings.unit)
            spread = ask("spread", self._question(public, settings, features, at, "slope"))
            return _Released(features, centre, None, moments, to_symmetric(spread))
        weights: FloatArray = np.asarray(ask("weights", settings.constants.minimiser(features, centre, 0)))
        curvature = ask("curvature", self._question(public, settings, features, weights, "curvature"))
        spread = ask("spread", self._question(public, settings, features, weights, "slope"))
        return _Released(features, centre, weights, to_symmetric(curvature), to_symmetric(spread))

    def _choose(self, ask: Ask, public: PublicFacts) -> tuple[npt.NDArray[np.intp], float]:
        """The chosen features, and the constant model's margin."""
        screening = self._screening()
        settings = screening.settings(public)
        w = np.zeros((public.n_parameters, 1))
        if settings.start_share:
            start = Start(public, settings.clip, settings.start_share, settings.intercept_value)
            w[public.n_features] = start.intercepts(ask("start", start.question()))
        support = self._rules.mask(public.n_features)[:, None]
        margin = settings.intercept_value * float(w[-1, 0]) if settings.start_share else 0.0
        chosen = np.flatnonzero((support | (screening.screen(ask, public, settings, w, support, 0) != 0))[:, 0])
        # A noisy score of 0 chooses nothing; and a model without any feature has no line to show.
        return chosen if len(chosen) else np.zeros(1, dtype=np.intp), margin

    @staticmethod
    def _moments(settings: _Settings, features: npt.NDArray[np.intp]) -> SecondMoments:
        return SecondMoments(features, settings.row_bound, settings.intercept_value, settings.unit)

    @staticmethod
    def _question(
        public: PublicFacts, settings: _Settings, features: npt.NDArray[np.intp], weights: FloatArray, factor: Factor
    ) -> WeightedMoments:
        most = settings.curvature_cut if factor == "curvature" else settings.constants.slope_clip
        return WeightedMoments(features, weights, factor, most, settings.row_bound, settings.intercept_value)

    # --- what follows from the answers: no row is in reach ---

    def infer(self, released: _Released, public: PublicFacts, releases: tuple[Release, ...]) -> Evidence:  # type: ignore[override]
        """The estimates and the law of their errors. Numbers beyond all floats, or matrices without eigenvalues, are no
        error: by now the budget is spent."""
        try:
            with np.errstate(all="ignore"):  # a filter may make errors of warnings
                return self._infer(released, public, releases)
        except (ArithmeticError, np.linalg.LinAlgError):
            p, constant = len(released.features) + public.fit_intercept, self._settings(public).intercept_value
            weights = np.zeros(p) if released.weights is None else released.weights.copy()
            weights[len(released.features) :] *= constant  # the constant column's weight belongs to that entry
            nothing = Estimated(weights, np.zeros((p, p)), np.zeros(p), np.ones(p), np.zeros(p, dtype=bool))
            return self._evidence(released.features, nothing, public, SlopeCurves.straight(p))

    def _infer(self, released: _Released, public: PublicFacts, releases: tuple[Release, ...]) -> Evidence:
        settings, n = self._settings(public), public.n_rows
        features, a = released.features, settings.intercept_value
        noise = {release.name: release.mechanism.noise.value for release in releases}

        def scale(name: str, query: Query) -> float:
            """The standard deviation of the noise on a sum over rows."""
            return noise[name] * query.sensitivity(public).l2 * n if noise[name] else 0.0

        at = np.zeros(len(features) + bool(a)) if released.weights is None else released.weights
        spread_scale = scale("spread", self._question(public, settings, features, at, "slope"))
        if released.weights is None:
            moments, p = n * released.curvature, len(released.curvature) - 1
            of_moments = scale("moments", self._moments(settings, features))
            curvature = denoise(moments[:p, :p], of_moments, bool(a))
            pull = moments[:p, p] / settings.unit
            scores = Scores(np.zeros(p), pull, (of_moments / settings.unit) ** 2 / 2, 0.0)
            usual = None
        else:
            query = self._question(public, settings, features, at, "curvature")
            curvature = denoise(n * released.curvature, scale("curvature", query), bool(a))
            scores = self._scores(released.weights, released.centre, public, settings, noise["weights"])
            # Weights of rows multiply the curvature, and their squares the spread.
            usual = _USUAL_SPREAD if isinstance(public.loss, Logistic) else None
        spread = estimate_spread(n * released.spread, spread_scale, curvature, usual)

        row = self._average_row(released, public, settings, curvature.matrix)
        found = estimate(scores, curvature, spread, None if row is None else row.mean_change)
        # The constant column's weight belongs to an entry of `a`.
        units = np.append(np.ones(len(features)), [a] * bool(a))
        weights, curves = found.weights, SlopeCurves.straight(len(units))
        if not found.determined.any() and released.weights is not None:
            weights = released.weights  # as the penalty leaves them: taking its bias off would add noise alone
        elif row is not None:
            curves = row.find_curves(min(public.row_linf, settings.row_bound))
        covariance = found.covariance * np.outer(units, units)
        sampling = found.sampling * units**2
        found = Estimated(weights * units, covariance, sampling, found.freedom, found.determined)
        return self._evidence(features, found, public, curves)

    def _average_row(
        self, released: _Released, public: PublicFacts, settings: _Settings, curvature: FloatArray
    ) -> AverageRow | None:
        """None where the curvature does not change, or where it is unknown how."""
        loss, weights, a = of_one_output(public.loss), released.weights, settings.intercept_value
        if weights is None or public.budget is None:
            return None
        if isinstance(loss, Logistic) and getattr(public.loss, "offset_bound", 0.0) > 0:
            return None  # offsets are unknown parts of margins; for counts the average row is not needed
        if self.periods:
            return AverageRow.of_periods(loss, curvature, weights, self.periods, self.period_value)
        return AverageRow.of_intercept(loss, curvature, weights, a) if a else None

    def _evidence(
        self, features: npt.NDArray[np.intp], found: Estimated, public: PublicFacts, curves: SlopeCurves
    ) -> Evidence:
        """The errors of estimates, and how features were chosen."""
        split = self.split(public)
        choice: Choice = "fixed" if not self._chooses(public) else "split" if split is not None else "same rows"
        n_rows = public.n_rows if split is None else public.n_rows - split.count(public.n_rows)
        return take_to_curves(features, found, curves, choice, n_rows)

    @staticmethod
    def _scores(
        weights: FloatArray, centre: FloatArray, public: PublicFacts, settings: _Settings, noise: float
    ) -> Scores:
        """The equation of a penalised fit: its minimiser solves gradient + Lambda (theta - centre) + b = 0."""
        pull = settings.constants.penalty * (weights - centre)
        if not noise:
            return Scores(weights, pull, 0.0, 0.0)
        query = settings.constants.minimiser(np.arange(len(weights) - public.fit_intercept), np.zeros(len(weights)), 0)
        moves = query.sensitivity(public).objective
        assert moves is not None
        hidden = ObjectivePerturbation.CERTIFICATE * noise * moves.minimiser
        return Scores(weights, pull, (noise * moves.gradient) ** 2, hidden)

    # --- defaults: functions of public quantities alone ---

    def _settings(self, public: PublicFacts) -> _Settings:
        self._check(public)
        private, share = public.budget is not None, _SCREENING_SHARE if self._chooses(public) else 0.0
        bound = kept_row_norm(public, spread_out=False)
        a = 0.0
        if public.fit_intercept:
            a = max(1 / math.sqrt(public.n_nonzero + 1), _LEAST_CONSTANT) * bound if bound < math.inf else 1.0
        longest = math.hypot(bound, a)
        # The slope of the logistic loss is at most 1. Others are at most what predictions within the label bound can be
        # off by: counts and their means are both positive, and other targets are of both signs.
        tau = 1.0 if _has_loss(public, Logistic) else public.label * (2 if _has_loss(public, Squared) else 1)
        if not private:
            tau = math.inf
        square = self._weights_share(public) * (1 - share)
        constants = refinement(public, tau, longest, a, curvature_of(public, _XI, square))
        if not private:  # as good as none: its bias is taken off in one step
            constants = replace(constants, penalty=1e-9 * constants.penalty)
        cut = 0.25 if _has_loss(public, Logistic) else math.inf
        if private and _has_loss(public, Poisson):
            cut = _largest_mean(public.label)
        unit = longest / public.label if max(longest, public.label) < math.inf else 1.0
        return _Settings(constants, cut, unit, share)

    def _check(self, public: PublicFacts) -> None:
        if type(without_weights(public.loss)) not in (LOSSES["logistic"], LOSSES["squared"], LOSSES["poisson"]):
            raise ValueError(
                f"intervals are there for loss='logistic' (two classes), 'squared' and 'poisson', not "
                f"{without_weights(public.loss)!r}"
            )
        if public.n_features > MOST_COLUMNS or public.n_nonzero > MOST_WEIGHTS:
            raise ValueError(
                f"intervals are there for at most {MOST_WEIGHTS} weights among {MOST_COLUMNS:,} columns, and this fit "
                f"is of {public.n_nonzero:,} among {public.n_features:,}; pass fewer columns, or n_nonzero=..."
            )
        if self.periods and public.n_nonzero < public.n_features:
            raise ValueError("periods of a person cannot be divided: intervals of hazards are for all features")
        if public.rows_per_unit > 1 and not self.periods:
            raise ValueError("intervals take rows as independent: one row per person; use Bounds(rows_per_person=1)")
        if public.budget is not None and public.budget.delta == 0:
            raise ValueError("intervals need delta > 0: their noise is Gaussian")
        if rho_of(public.budget) is not None and not _has_loss(public, Squared):
            raise ValueError("intervals need a budget in epsilon, not in rho, except for loss='squared'")

    # --- for the report and for warnings ---

    def describe(self, public: PublicFacts) -> str:
        settings = self._settings(public)
        fitted = (
            "noisy second moments"
            if _has_loss(public, Squared)
            else f"objective perturbation (rows at {settings.row_bound:.4g}, penalty {settings.constants.penalty:.4g}) "
            "with the curvature at the weights"
        )
        chosen = ""
        if (split := self.split(public)) is not None:
            stay = f" ({len(self._rules.always):,} of them in any case)" if self._rules.always else ""
            chosen = f" {public.n_nonzero:,} features{stay} are chosen by {split.count(public.n_rows):,} rows drawn at"
            chosen += " random, which are used for nothing else;"
        elif settings.screening_share:
            chosen = f" {public.n_nonzero:,} features are chosen by the same rows;"
        return f"fit with intervals:{chosen} weights by {fitted}, and the spread of gradients"

    def assumptions(self, public: PublicFacts) -> tuple[str, ...]:
        """What intervals rest on; privacy rests on none of it."""
        return (
            "Intervals, standard errors and p-values are computed from what was released, and cost nothing more. They "
            "take rows as independent, are for the weights of rows and targets clipped to their bounds, and hold "
            "approximately, the better the more rows there are. The privacy guarantee depends on none of that.",
        )

    def n_passes(self, public: PublicFacts) -> float:
        """All releases but the choice read the chosen columns alone."""
        return 2.0 if self._chooses(public) else 3.0

    def doubt(self, public: PublicFacts, releases: tuple[Release, ...]) -> str:
        """What to expect of the intervals where that is little, from public quantities; "" otherwise.

        Entries are taken to be spread evenly within what the row bound allows each.
        """
        if public.budget is None:
            return ""
        settings, n, s = self._settings(public), public.n_rows, public.n_nonzero
        noise = {release.name: release.mechanism.noise.value for release in releases}
        split = self.split(public)
        rows = n if split is None else n - split.count(n)
        bound, label = kept_row_norm(public, spread_out=False), public.label
        entry = bound / math.sqrt(3 * s)
        squared = _has_loss(public, Squared)
        bend = 1.0 if squared else min(1.0, label) if _has_loss(public, Poisson) else _USUAL_CURVATURE
        curvature = rows * bend * entry**2
        residual = (_USUAL_RESIDUAL * label) ** 2 if squared else 1.0
        p = s + public.fit_intercept
        at, features = np.zeros(p), np.arange(s)
        if squared:
            query: Query = self._moments(settings, features)
            of_curvature = noise["moments"] * query.sensitivity(public).l2 * n
            # The weights' own noise, and that of the curvature times weights of half the label bound.
            variance = (of_curvature / settings.unit) ** 2 / 2 + (of_curvature * label / (2 * bound)) ** 2
        else:
            query = self._question(public, settings, features, at, "curvature")
            of_curvature = noise["curvature"] * query.sensitivity(public).l2 * n
            variance = self._scores(at, at, public, settings, noise["weights"]).noise_variance
            # The noise of the curvature times how far the penalty moves weights that make a margin of 1.
            moved = settings.constants.penalty / (settings.constants.penalty + curvature) / (entry * math.sqrt(s))
            variance += (of_curvature * moved) ** 2 / 2
        half = 1.96 * math.sqrt(variance + residual * curvature) / curvature
        at_entry = half * entry / (label if squared else 1.0)
        hidden = of_curvature * math.sqrt(2 * p) > curvature
        if at_entry <= _WIDEST and not hidden:
            return ""
        unit = " times the label bound" if squared else ""
        more = " Their curvature may not stand out of its noise, and then there are no intervals at all." * hidden
        return (
            f"{rows:,} rows are few for 95 % intervals of {p} weights at this budget: expect each to extend about "
            f"±{at_entry:.2g}{unit} in what a typical entry adds to the prediction's scale.{more} More rows, a larger "
            "epsilon or fewer features make them narrower"
        )
