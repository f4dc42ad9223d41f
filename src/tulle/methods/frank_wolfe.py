"""Private Frank-Wolfe: a linear model on the ℓ1-ball (LASSO), the simplex, any polytope, any set with a linear oracle.

Paper: Talwar, Thakurta and Zhang, "Nearly optimal private LASSO" (NIPS 2015), Algorithm 2 (polytopes) and Theorem 2.6
(general convex sets). One update,

    w_{t+1} = (1 - mu_t) w_t + mu_t v_t,   mu_t = 2 / (t + 2),

where v_t is the point of the set that is least along the gradient: for a polytope one of its vertices, chosen by a
noisy maximum; for any set what its linear oracle says of a noisy gradient. Proof: docs/proofs/frank_wolfe.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from tulle.fast.coordinate_path import CoordinatePath
from tulle.fast.gumbel_on_demand import GumbelOnDemand
from tulle.methods.base import MethodBase
from tulle.methods.feasible_sets import CappedL1Ball, FeasibleSet, L1Ball, Polytope
from tulle.methods.gradient_queries import ClippedGradient, CoordinateScores, Engine
from tulle.methods.noise_scales import (
    averaging_pays,
    budget_mu,
    choose_engine,
    margin_unit,
    signal_to_noise,
    stepwise_nonzero,
)
from tulle.methods.parameter_checks import POSITIVE, check_choices, check_numbers, check_whole
from tulle.methods.public_start import START_ASSUMPTION, first_weights, read_method_start
from tulle.methods.theorem_settings import refuse, theorem_n_iter
from tulle.methods.thresholds import HardThreshold
from tulle.trusted.curator import Ask
from tulle.trusted.events import FloatArray, NoisePerSensitivity
from tulle.trusted.facts import PublicFacts
from tulle.trusted.mechanisms import Gaussian, GumbelMax, LaplaceMax, NoisyMax, PermuteAndFlip
from tulle.trusted.plan import Budget, Release
from tulle.trusted.queries import VertexScores

ENGINES = ("auto", "incremental", "plain")
SELECTIONS: dict[str, type[NoisyMax]] = {
    "gumbel": GumbelMax,
    "laplace": LaplaceMax,
    "permute_and_flip": PermuteAndFlip,
}


@dataclass(frozen=True)
class Settings:
    """The public settings of one run, after defaults."""

    n_iter: int  # T
    n_choices: int  # T; as published T - 1, since the paper counts its start as the first of T iterates
    feasible: FeasibleSet
    selection: bool
    clip: float
    intercept_value: float
    averaging: bool


class FrankWolfe(MethodBase):
    """Steps towards privately chosen extreme points of a convex set.

    Parameters
    ----------
    radius : float or None, default=None
        Radius of the ℓ1-ball, > 0, where `feasible` is None. None: margins of about the label bound (regression) or of
        a few units (classification) if d features of equal size share them; see `_default_set`.
    feasible : FeasibleSet or None, default=None
        The set to stay in: an object of `tulle.methods.feasible_sets`, constant column included. None: the ℓ1-ball,
        and for Gaussian noise the part of it in which no weight passes radius / k.
    n_iter : int, "theorem" or None, default=None
        T, the number of steps, at least 1; with vertices that are multiples of coordinate vectors there are at most T
        non-zero weights (one more on the simplex, which has no 0 to start from). With ``calibration="published"`` T is
        the paper's number of iterates, its start counted: T - 1 steps, and T at least 2. "theorem": the T of the
        theorem on Algorithm 2's excess risk with its constant as 1; see `theorem_n_iter`. None: with selection noise in
        proportion to (n mu radius)^(2/3), which balances the theorem's two terms, within [5, 5000]; with Gaussian noise
        60; without privacy 1000.
    noise : {"auto", "selection", "gaussian"}, default="auto"
        "selection": a noisy maximum over the vertices. "gaussian": noise on the whole gradient, for any set. "auto",
        for a polytope of the user's own: whichever has the smaller error scale at equal privacy, row_l2 sqrt(2 log 2d)
        against row_linf log 2d; Gaussian noise for other sets. For the default set: Gaussian noise where averaging
        takes away more of it than choosing saves, 2 row_linf sqrt(s) log d >= row_l2 sqrt(2 log d).
    selection : {"gumbel", "laplace", "permute_and_flip"}, default="gumbel"
        The noisy maximum. The paper's is "laplace"; many uses of "gumbel" cost about half as much.
    clip : float or None, default=None
        Largest slope kept for a row at its bound, > 0. None: the loss's slope at margin 0 for classification (1/2 for
        logistic), a quarter of the label bound for regression, an eighth with selection noise; no clipping without
        privacy, and for ``calibration="published"`` the largest slope in the set.
    averaging : bool, default=True
        With Gaussian noise: follow a running mean of the noisy gradients, the t-th with weight t^(-2/3), instead of the
        last one. Post-processing. False: the update of Theorem 2.6.
    engine : {"auto", "incremental", "plain"}, default="auto"
        How a vertex of the ℓ1-ball or simplex is found on sparse rows: by following what each step changes, or by
        reading all rows in every step. The law of the result is the same; "auto" takes the faster one.
    start : None, array or tuple, default=None
        Public weights to start from, as in `HardThresholding`. They must lie in the set, their intercept over the
        constant column's entry included; nothing is projected. None: 0, or the first vertex where 0 is not in the set.

    Examples
    --------
    >>> from tulle import SparseRegressor
    >>> from tulle.methods import FrankWolfe
    >>> model = SparseRegressor(method=FrankWolfe(radius=5.0))
    >>> model.set_params(method__n_iter=40).method.n_iter
    40
    """

    def __init__(
        self,
        radius: float | None = None,
        feasible: FeasibleSet | None = None,
        n_iter: int | Literal["theorem"] | None = None,
        noise: Literal["auto", "selection", "gaussian"] = "auto",
        selection: Literal["gumbel", "laplace", "permute_and_flip"] = "gumbel",
        clip: float | None = None,
        averaging: bool = True,
        engine: Literal["auto", "incremental", "plain"] = "auto",
        start: Any = None,
    ) -> None:
        self.radius = radius
        self.feasible = feasible
        self.n_iter = n_iter
        self.noise = noise
        self.selection = selection
        self.clip = clip
        self.averaging = averaging
        self.engine = engine
        self.start = start

    # --- what will be released ---

    def default_nonzero(self, public: PublicFacts) -> int:
        """As many as the rows can tell apart; all of them in a set of the user's own that is not sparse."""
        self._check()
        if self.feasible is not None and self.feasible.n_nonzero(1) == math.inf:
            return public.n_features
        return stepwise_nonzero(public)

    def releases(self, public: PublicFacts) -> tuple[Release, ...]:
        settings = self.settings(public)
        if settings.selection:
            mechanism = SELECTIONS[self.selection](NoisePerSensitivity(1.0), public.loss.n_outputs)
            if isinstance(mechanism, GumbelMax) and self._engine(public, settings) != "plain":
                mechanism = GumbelOnDemand(
                    mechanism.noise, mechanism.columns, candidates=2 * public.n_parameters, rows=public.n_rows
                )
            return (Release("vertex", mechanism, settings.n_choices),)
        return (Release("gradient", Gaussian(), settings.n_choices),)

    def published(self, public: PublicFacts, budget: Budget) -> tuple[Release, ...]:
        """Algorithm 2's Laplace scale L1 |C|_1 sqrt(8 T log(1/delta)) / (n epsilon), per sensitivity 2 L1 |C|_1 / n.

        It has T for the T - 1 choices that the algorithm makes.
        """
        settings = self.settings(public)
        if not settings.selection or public.loss.n_outputs > 1:
            raise ValueError(
                "the paper prints noise for choosing vertices, of a model with one output; use noise='selection' and a "
                "polytope, or calibration='rigorous'"
            )
        if budget.delta == 0:
            raise ValueError("the published noise needs delta > 0")
        noise = math.sqrt(8 * settings.n_iter * math.log(1 / budget.delta)) / (2 * budget.epsilon)
        return (Release("vertex", LaplaceMax(NoisePerSensitivity(noise)), settings.n_choices),)

    # --- the loop ---

    def run(self, ask: Ask, public: PublicFacts) -> FloatArray:
        settings = self.settings(public)
        if not settings.selection:
            w = self._by_gradients(ask, public, settings)
        elif settings.feasible.coordinates is not None:
            w = self._by_coordinates(ask, public, settings)
        else:
            w = self._by_vertices(ask, public, settings)
        return finished(w, settings.intercept_value, public)

    def _by_coordinates(self, ask: Ask, public: PublicFacts, settings: Settings) -> FloatArray:
        """The ℓ1-ball and the simplex: a step moves one coordinate and one scale, so the curator can follow it."""
        path = CoordinatePath(self._start(public, settings.feasible, settings.intercept_value))
        radius = settings.feasible.radius
        scores = CoordinateScores(
            path.point,
            settings.clip,
            settings.intercept_value,
            engine=self._engine(public, settings),
            kind=settings.feasible.coordinates or "vertices",
            reach=radius,
        )
        for t in range(1, settings.n_choices + 1):
            number = ask("vertex", replace(scores, point=path.point))
            coordinate, sign = number % public.n_parameters, np.where(number < public.n_parameters, 1.0, -1.0)
            path.move(1 - step_size(t), coordinate, step_size(t) * radius * sign)
        return path.weights

    def _engine(self, public: PublicFacts, settings: Settings) -> Engine:
        """Only Gumbel noise on coordinates can be drawn without visiting all vertices."""
        if self._choice(public) != "gumbel" or settings.feasible.coordinates is None:
            return "plain"
        return choose_engine(self.engine, settings.n_choices, 2 * public.n_parameters, public)

    def _by_vertices(self, ask: Ask, public: PublicFacts, settings: Settings) -> FloatArray:
        polytope: Any = settings.feasible
        w = self._start(public, settings.feasible, settings.intercept_value)
        for t in range(1, settings.n_choices + 1):
            gradient = ClippedGradient(w, settings.clip, "linf", settings.intercept_value)
            chosen = ask("vertex", VertexScores(gradient, polytope.vertices))
            v = np.stack([polytope.point(int(number)) for number in chosen], axis=1)
            w = (1 - step_size(t)) * w + step_size(t) * v
        return w

    def _by_gradients(self, ask: Ask, public: PublicFacts, settings: Settings) -> FloatArray:
        w = self._start(public, settings.feasible, settings.intercept_value)
        direction = np.zeros_like(w)
        for t in range(1, settings.n_choices + 1):
            fresh = ask("gradient", ClippedGradient(w, settings.clip, "l2", settings.intercept_value))
            weight = t ** (-2 / 3) if settings.averaging else 1.0
            direction = (1 - weight) * direction + weight * fresh
            w = (1 - step_size(t)) * w + step_size(t) * settings.feasible.least(direction)
        return w

    # --- defaults: functions of public quantities alone ---

    def settings(self, public: PublicFacts) -> Settings:
        """The settings of a run. Reads nothing but the parameters and public facts."""
        self._check()
        private = public.budget is not None
        own = self._own_set(public)
        if self.noise == "auto":
            selection = not averaging_pays(public) if own is None else own.selectable and _choosing_pays(public)
        else:
            selection = self.noise == "selection"
        if own is not None and selection and not own.selectable:
            raise ValueError(f"{own} has no vertices to choose among; use noise='gaussian' or 'auto'")
        clip = self._clip(public, selection)
        feasible = own or self._default_set(public, selection, clip)
        if public.as_published and self.clip is None:  # nothing is clipped: the largest slope in the set
            clip = public.loss.slope_bound(_largest_margin(public, feasible), public.label, "linf")
        if self.n_iter == "theorem":
            n_iter = self._theorem_n_iter(public, selection, feasible, clip)
        elif self.n_iter is None:
            n_iter = self._default_n_iter(public, selection, feasible, clip) if private else 1000
        else:
            n_iter = self.n_iter
        if public.as_published and n_iter < 2:
            raise ValueError(
                "FrankWolfe(n_iter=...) is the paper's T with calibration='published', and T - 1 vertices are chosen: "
                f"it must be at least 2, got {n_iter}"
            )
        a = 0.0
        if public.fit_intercept:
            # One step can move the intercept's weight by the longest entry of an extreme point: not by more than a few
            # units of margin, then, and without adding to the rows' norm.
            spike = feasible.longest(public.n_parameters, "linf")
            largest = public.row_linf if selection else public.row_l2 / 4
            a = min(largest, (3.0 if selection else 1.0) * margin_unit(public) / spike)
        self._start(public, feasible, a)
        n_choices = n_iter - 1 if public.as_published else n_iter
        return Settings(n_iter, n_choices, feasible, selection, clip, a, self.averaging)

    def _start(self, public: PublicFacts, feasible: FeasibleSet, intercept_value: float) -> FloatArray:
        """The first iterate; raise where a given one is not in the set, in which the published noise has its slopes."""
        if read_method_start(self, public) is None:
            return feasible.start((public.n_parameters, public.loss.n_outputs))
        if public.estimated:
            raise ValueError("FrankWolfe(start=...) needs declared bounds: the set is chosen before rows are read")
        start = first_weights(self, public, intercept_value)
        if not feasible.contains(start):
            constant = f" (with intercept / {intercept_value:.4g} as the last weight)" if intercept_value else ""
            raise ValueError(f"FrankWolfe(start=...) is not in {feasible}{constant}; shrink it, or give a larger set")
        return start

    def _own_set(self, public: PublicFacts) -> FeasibleSet | None:
        """The set that the user asks for, if any."""
        own = self.feasible
        if own is None and self.radius is not None and self.noise != "gaussian":
            return L1Ball(self.radius)
        if isinstance(own, Polytope) and own.vertices.shape[1] != public.n_parameters:
            constant = " and the constant column" if public.fit_intercept else ""
            raise ValueError(
                f"the polytope's vertices have {own.vertices.shape[1]} entries, but the model has "
                f"{public.n_parameters} parameters ({public.n_features} features{constant}); fit_intercept=False "
                "leaves the constant column out"
            )
        return own

    def _choice(self, public: PublicFacts) -> str:
        """The noisy maximum: the paper's own with its own calibration."""
        return "laplace" if public.as_published else self.selection

    def _clip(self, public: PublicFacts, selection: bool) -> float:
        if self.clip is not None:
            return self.clip
        if public.budget is None:
            return math.inf
        clip = public.loss.default_clip(public.label)
        return clip / 2 if selection and public.loss.kind == "regression" else clip

    def _default_set(self, public: PublicFacts, selection: bool, clip: float) -> FeasibleSet:
        """An ℓ1-ball that holds a good model, by public figures.

        If features have equal size, one weight of sqrt(d) / row_l2 gives margins of about 1, and s equal weights of
        ℓ1 norm sqrt(s d) / row_l2 do. Classifiers gain from larger margins; but T steps wash out the first ones only if
        T is a few times the radius, and the rows pay for no more steps than (n mu)^(2/3).
        """
        if self.radius is not None:
            radius = self.radius
        elif public.row_l2 == math.inf:  # without privacy, and nothing is declared
            radius = 10.0 * margin_unit(public)
        else:
            radius = margin_unit(public) * math.sqrt(public.n_features) / public.row_l2
            if not selection:
                radius *= 12.0 if public.loss.kind == "classification" else 6.0
            elif public.loss.kind == "classification":
                steps = self._steps_per_reach(public, clip) if public.budget is not None else math.inf
                radius = min(1.5 * math.sqrt(public.n_nonzero) * radius, steps**2 / (1000 * public.row_linf))
        if selection:
            return L1Ball(radius)
        return CappedL1Ball(radius, int(min(round(5 * math.sqrt(public.n_features)), public.n_parameters)))

    def _rows_per_choice(self, public: PublicFacts) -> float:
        """n mu in units of the noise that a choice among 2 d vertices has."""
        noise = public.rows_per_unit * math.log(2 * max(public.n_features, 2))
        return public.n_rows * budget_mu(public.budget) / noise

    def _steps_per_reach(self, public: PublicFacts, clip: float) -> float:
        return public.loss.typical_curvature(public.label) / clip * self._rows_per_choice(public)

    def _default_n_iter(self, public: PublicFacts, selection: bool, feasible: FeasibleSet, clip: float) -> int:
        """For vertices a fifth of what balances the theorem's two terms, curvature / T and sqrt(T) × noise."""
        if not selection:
            return 60
        reach = feasible.longest(public.n_parameters, "l1") * public.row_linf
        terms = reach * self._steps_per_reach(public, clip)
        if public.estimated:
            # The plan is billed before the bounds are known: what comes out for uniform features, the default radius
            # and the default clip of the squared or the logistic loss, in which bounds cancel.
            terms = math.sqrt(3) * (8.0 if public.loss.kind == "regression" else 0.5) * self._rows_per_choice(public)
        best = 0.2 * terms ** (2 / 3)
        return int(min(max(round(best), 5), 5000))

    def _theorem_n_iter(self, public: PublicFacts, selection: bool, feasible: FeasibleSet, clip: float) -> int:
        """The theorem's T by bounds that hold for every row; raise where one of its quantities is not known."""
        missing = []
        if public.budget is None:
            missing.append("a privacy budget (epsilon)")
        if not selection:
            missing.append("a set with vertices and noise='selection' (its T for Gaussian noise has the set's width)")
        if public.estimated:
            missing.append("declared bounds (row_linf, and label for a regression), which set T before rows are read")
        # Gamma = sup 2 (L(w') - L(w) - <w' - w, grad L(w)>) / step² over steps from w towards points of the set: the
        # loss's curvature times the square of how far two margins can be apart.
        gamma = public.loss.curvature * (2 * _largest_margin(public, feasible)) ** 2
        if not gamma < math.inf:
            missing.append("a finite curvature of the loss and a finite bound on the entries of rows (row_linf)")
        if not clip < math.inf:
            missing.append("a bound on the slopes of rows: clip, or label for a regression")
        if missing or public.budget is None:
            refuse(self, "n_iter", missing)
        lipschitz = clip * public.row_linf * feasible.longest(public.n_parameters, "l1")
        return theorem_n_iter(public.n_rows, public.budget.epsilon, gamma, lipschitz)

    def _check(self) -> None:
        if isinstance(self.n_iter, str) and self.n_iter != "theorem":
            raise ValueError(f"FrankWolfe(n_iter=...) must be an integer >= 1 or 'theorem', got {self.n_iter!r}")
        if self.n_iter != "theorem":
            check_whole(self, {"n_iter": 1}, optional=("n_iter",))
        check_numbers(self, {"radius": POSITIVE, "clip": POSITIVE}, optional=("radius", "clip"))
        if self.feasible is not None and not isinstance(self.feasible, FeasibleSet):
            raise TypeError(
                f"FrankWolfe(feasible=...) must be an object of tulle.methods.feasible_sets, got {self.feasible!r}"
            )
        if self.feasible is not None and self.radius is not None:
            raise ValueError("FrankWolfe(radius=...) is for the default set; `feasible` has a radius of its own")
        check_choices(
            self,
            {"noise": ("auto", "selection", "gaussian"), "selection": tuple(SELECTIONS), "engine": ENGINES},
        )

    # --- for the report and for warnings ---

    def describe(self, public: PublicFacts) -> str:
        settings = self.settings(public)
        how = f"noisy maxima ({self._choice(public)})" if settings.selection else "Gaussian noise on the gradient"
        return (
            f"private Frank-Wolfe, {how}: {settings.n_choices} steps in {settings.feasible}, "
            f"{public.n_nonzero:,} of {public.n_features:,} weights kept, slopes clipped at {settings.clip:.4g}"
        )

    def assumptions(self, public: PublicFacts) -> tuple[str, ...]:
        return () if self.start is None else (START_ASSUMPTION,)

    def n_dense_vectors(self) -> int:
        return 16

    def n_iterations(self, public: PublicFacts) -> int:
        return self.settings(public).n_choices

    def n_passes(self, public: PublicFacts) -> float:
        return float(self.settings(public).n_choices)

    def signal_to_noise(self, public: PublicFacts, releases: tuple[Release, ...]) -> float:
        return signal_to_noise(public, releases[0].mechanism)


def _largest_margin(public: PublicFacts, feasible: FeasibleSet) -> float:
    """How large |<x, w>| can be for w in the set; the constant column's entry is at most row_linf."""
    return min(
        public.row_linf * feasible.longest(public.n_parameters, "l1"),
        math.hypot(public.row_l2, public.row_linf) * feasible.longest(public.n_parameters, "l2"),
    )


def _choosing_pays(public: PublicFacts) -> bool:
    """Whether one vertex is chosen better by a noisy maximum than from a noisy gradient, at equal privacy."""
    if public.budget is None or public.budget.delta == 0:
        return True
    return public.row_linf * math.sqrt(math.log(2 * public.n_parameters) / 2) < public.row_l2


class RadiusPath(FrankWolfe):
    """Frank-Wolfe on ℓ1-balls of several radii for one budget; `tulle.estimators.lasso_path.lasso_path` is the way to
    use it.

    Parameters
    ----------
    radii : tuple of float
        Each > 0.
    n_iter, noise
        As in `FrankWolfe`, for each radius.
    """

    def __init__(
        self,
        radii: tuple[float, ...] = (1.0,),
        n_iter: int | Literal["theorem"] | None = None,
        noise: Literal["auto", "selection", "gaussian"] = "auto",
    ) -> None:
        super().__init__(n_iter=n_iter, noise=noise)
        self.radii = radii

    def _each(self) -> list[FrankWolfe]:
        if len(self.radii) < 1:
            raise ValueError("a path needs at least one radius")
        return [FrankWolfe(radius, n_iter=self.n_iter, noise=self.noise) for radius in sorted(self.radii)]

    def default_nonzero(self, public: PublicFacts) -> int:
        return public.n_features

    def releases(self, public: PublicFacts) -> tuple[Release, ...]:
        plans = [one.releases(public)[0] for one in self._each()]
        return (replace(plans[0], count=sum(plan.count for plan in plans)),)

    def published(self, public: PublicFacts, budget: Budget) -> tuple[Release, ...]:
        raise ValueError("the paper prints no noise for a path; use calibration='rigorous'")

    def run(self, ask: Ask, public: PublicFacts) -> FloatArray:
        """The weights of all radii next to each other."""
        return np.hstack([one.run(ask, public) for one in self._each()])

    def describe(self, public: PublicFacts) -> str:
        return f"a path of {len(self.radii)} radii; the largest: {self._each()[-1].describe(public)}"

    def n_dense_vectors(self) -> int:
        return super().n_dense_vectors() + 2 * len(self.radii)

    def n_iterations(self, public: PublicFacts) -> int:
        return sum(one.n_iterations(public) for one in self._each())

    def n_passes(self, public: PublicFacts) -> float:
        return float(self.n_iterations(public))


def step_size(t: int) -> float:
    """mu_t of the paper; steps are numbered from 1."""
    return 2.0 / (t + 2.0)


def finished(w: FloatArray, intercept_value: float, public: PublicFacts) -> FloatArray:
    """The weights of a model: the n_nonzero largest, and the intercept that belongs to a constant column of 1."""
    kept = HardThreshold(public.n_nonzero, free_from=public.n_features)(w)
    if not intercept_value:
        return np.vstack([kept[: public.n_features], np.zeros((1, w.shape[1]))])
    kept[public.n_features :] *= intercept_value
    return kept
