"""Private greedy coordinate descent: in each step the steepest coordinate, chosen and moved privately.

Paper: Mangold, Bellet, Salmon and Tommasi, "High-dimensional private empirical risk minimization by greedy coordinate
descent" (AISTATS 2023), Algorithm 1 (DP-GCD). One update,

    j_t = argmax_j |grad_j L(w_t)| / sqrt(M_j)  (noisy),   w_{t+1} = w_t - step / M_j (grad_j L(w_t) + noise) e_j,

with M_j the curvature of the loss along coordinate j. The paper draws Laplace noise for both and composes by the
advanced theorem; here the choice is an exponential mechanism, the value Gaussian, and both are accounted together.
Proof: docs/proofs/coordinate_descent.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tulle.fast.coordinate_path import CoordinatePath
from tulle.fast.gumbel_on_demand import GumbelOnDemand
from tulle.methods.base import MethodBase
from tulle.methods.frank_wolfe import ENGINES, finished
from tulle.methods.gradient_queries import ClippedGradient, CoordinateGradient, CoordinateScores, Engine
from tulle.methods.noise_scales import (
    averaging_pays,
    budget_mu,
    choose_engine,
    margin_unit,
    signal_to_noise,
    stepwise_nonzero,
)
from tulle.methods.parameter_checks import (
    POSITIVE,
    SHARE,
    SHARE_OR_ALL,
    Range,
    check_choices,
    check_numbers,
    check_whole,
)
from tulle.methods.public_start import START_ASSUMPTION, first_weights, read_method_start
from tulle.methods.thresholds import HardThreshold
from tulle.trusted.curator import Ask
from tulle.trusted.events import FloatArray, NoisePerSensitivity
from tulle.trusted.facts import PublicFacts
from tulle.trusted.mechanisms import Gaussian, GumbelMax
from tulle.trusted.plan import Budget, Release

_RANGES: dict[str, Range] = {
    "step": POSITIVE,
    "clip": POSITIVE,
    "last_clip": SHARE_OR_ALL,
    "selection_share": SHARE,
}


@dataclass(frozen=True)
class Settings:
    """The public settings of one run, after defaults."""

    n_iter: int
    selection: bool
    block: int  # coordinates that move in a step; 1 with selection noise
    step: float  # times 1 / units²
    clip: float
    last_clip: float
    intercept_value: float
    units: FloatArray | None

    def clip_at(self, t: int) -> float:
        """The clip of step t, counted from 0. In parts: code that follows the path starts afresh when it changes."""
        return self.clip * self.last_clip ** (8 * t // self.n_iter / 7)


class CoordinateDescent(MethodBase):
    """Greedy coordinate descent: the steepest coordinate is chosen and moved privately, again and again.

    Parameters
    ----------
    n_iter : int or None, default=None
        T, at least 1. None: with selection noise 1.5 (n mu / log 2d)^(2/3), 0.6 times that for classification, but
        at most twice n_nonzero or 30, within [5, 300]; with Gaussian noise (n mu)² / (100 d) within [40, 200]; without
        privacy 1000.
    step : float or None, default=None
        > 0: coordinate j moves by step × slope / unit_j². None: with selection noise d / (loss curvature × row_l2²),
        which is exact on independent features of equal size; with Gaussian noise sqrt(d) / (2 × loss curvature ×
        row_l2²).
    clip : float or None, default=None
        Largest slope kept for a row at its bound, > 0. None: the loss's slope at margin 0 for classification (1/2 for
        logistic), a quarter of the label bound for regression; no clipping without privacy.
    last_clip : float or None, default=None
        With selection noise, in (0, 1]: the clip of the last steps relative to the first, reached in eight parts. None:
        1/4 for regression with selection noise, where residuals shrink as the model learns, otherwise 1.
    noise : {"auto", "selection", "gaussian"}, default="auto"
        "selection": one coordinate a step, by a noisy maximum, as in the paper, then Gaussian noise on its slope.
        "gaussian": noise on the whole gradient; a running mean of the noisy gradients, the t-th with weight t^(-2/3),
        is followed in its `block` largest coordinates. "auto": the second where averaging takes away more noise than
        choosing saves: 2 row_linf sqrt(s) log d >= row_l2 sqrt(2 log d).
    block : int or None, default=None
        Coordinates that move in a step with Gaussian noise, at least 1. None: 5 sqrt(d).
    selection_share : float, default=0.6
        In (0, 1): the part of the privacy cost that goes to choosing coordinates, with selection noise.
    feature_scale : array of shape (features,) or None, default=None
        Public per-coordinate constants, > 0: the size of each feature relative to the others. Coordinates compete by
        slope / feature_scale and move by step / feature_scale², as with M_j proportional to feature_scale². With
        selection noise a row is clipped where an entry passes row_linf × feature_scale. None: all 1.
    engine : {"auto", "incremental", "plain"}, default="auto"
        As in `FrankWolfe`, for selection noise.
    start : None, array or tuple, default=None
        Public weights to start from: of shape (features,) or (features, outputs), or a tuple (coef, intercept) as a
        fitted model has them; finite, at most 1e50 in magnitude. They must not come from the same private rows unless
        that fit is billed too. None: 0.

    Examples
    --------
    >>> from tulle import SparseRegressor
    >>> from tulle.methods import CoordinateDescent
    >>> SparseRegressor(method=CoordinateDescent(n_iter=20)).method.n_iter
    20
    """

    def __init__(
        self,
        n_iter: int | None = None,
        step: float | None = None,
        clip: float | None = None,
        last_clip: float | None = None,
        noise: Literal["auto", "selection", "gaussian"] = "auto",
        block: int | None = None,
        selection_share: float = 0.6,
        feature_scale: Any = None,
        engine: Literal["auto", "incremental", "plain"] = "auto",
        start: Any = None,
    ) -> None:
        self.n_iter = n_iter
        self.step = step
        self.clip = clip
        self.last_clip = last_clip
        self.noise = noise
        self.block = block
        self.selection_share = selection_share
        self.feature_scale = feature_scale
        self.engine = engine
        self.start = start

    # --- what will be released ---

    def default_nonzero(self, public: PublicFacts) -> int:
        return stepwise_nonzero(public)

    def releases(self, public: PublicFacts) -> tuple[Release, ...]:
        settings, outputs = self.settings(public), public.loss.n_outputs
        if not settings.selection:
            return (Release("gradient", Gaussian(), settings.n_iter),)
        # All choices together cost T outputs (2 / noise)² / 4 in mu², all values T / noise²; these noises divide T by
        # the share.
        choosing, valuing = self.selection_share, 1 - self.selection_share
        select = GumbelMax(NoisePerSensitivity(math.sqrt(outputs / choosing)), outputs)
        if self._engine(public, settings) != "plain":
            select = GumbelOnDemand(select.noise, outputs, candidates=public.n_parameters, rows=public.n_rows)
        update = Gaussian(NoisePerSensitivity(math.sqrt(1 / valuing)))
        return (Release("select", select, settings.n_iter), Release("update", update, settings.n_iter))

    def published(self, public: PublicFacts, budget: Budget) -> tuple[Release, ...]:
        raise ValueError(
            "coordinate descent has no published calibration here; use calibration='rigorous' (the paper's own noise "
            "rests on advanced composition and is larger than needed)"
        )

    # --- the loop ---

    def run(self, ask: Ask, public: PublicFacts) -> FloatArray:
        settings = self.settings(public)
        start = first_weights(self, public, settings.intercept_value)
        if settings.selection:
            w = self._by_choices(ask, public, settings, start)
        else:
            w = self._by_gradients(ask, public, settings, start)
        return finished(w, settings.intercept_value, public)

    def _by_choices(self, ask: Ask, public: PublicFacts, settings: Settings, start: FloatArray) -> FloatArray:
        path = CoordinatePath(start)
        for t in range(settings.n_iter):
            shared: dict[str, Any] = {
                "point": path.point,
                "clip": settings.clip_at(t),
                "intercept_value": settings.intercept_value,
                "units": settings.units,
                "engine": self._engine(public, settings),
            }
            chosen = ask("select", CoordinateScores(**shared, kind="magnitudes"))
            slope = ask("update", CoordinateGradient(**shared, coordinates=chosen))[0]
            unit = 1.0 if settings.units is None else settings.units[chosen]
            path.move(1.0, chosen, -settings.step * slope / unit**2)
        return path.weights

    def _engine(self, public: PublicFacts, settings: Settings) -> Engine:
        return choose_engine(self.engine, settings.n_iter, public.n_parameters, public)

    def _by_gradients(self, ask: Ask, public: PublicFacts, settings: Settings, start: FloatArray) -> FloatArray:
        w, mean = start, np.zeros_like(start)
        unit = np.ones((len(start), 1)) if settings.units is None else settings.units[:, None]
        steepest = HardThreshold(settings.block, free_from=public.n_features)
        for t in range(1, settings.n_iter + 1):
            fresh = ask("gradient", ClippedGradient(w, settings.clip, "l2", settings.intercept_value))
            mean += t ** (-2 / 3) * (fresh - mean)
            w = w - settings.step * steepest(mean / unit) / unit
        return w

    # --- defaults: functions of public quantities alone ---

    def settings(self, public: PublicFacts) -> Settings:
        """The settings of a run. Reads nothing but the parameters and public facts."""
        self._check(public)
        read_method_start(self, public)
        private = public.budget is not None
        selection = not averaging_pays(public) if self.noise == "auto" else self.noise == "selection"
        clip = self.clip
        if clip is None:
            clip = public.loss.default_clip(public.label) if private else math.inf
        last_clip = self.last_clip if selection else 1.0
        if last_clip is None:
            last_clip = 0.25 if private and public.loss.kind == "regression" else 1.0
        mu = budget_mu(public.budget)
        n_iter = self.n_iter
        if n_iter is None:
            n_iter = self._default_n_iter(public, selection, mu) if private else 1000
        step = self.step
        if step is None:
            # Without privacy and without bounds rows are taken to have features of size 1.
            row = public.row_l2 if public.row_l2 < math.inf else math.sqrt(public.n_features)
            spread = public.n_features if selection else 0.35 * math.sqrt(public.n_features)
            step = spread / (public.loss.typical_curvature(public.label) * row**2)
            if private and not selection:
                noise = 2 * clip * row * public.rows_per_unit * math.sqrt(n_iter) / (public.n_rows * mu)
                step = min(step, 0.3 * margin_unit(public) / (noise * row))
        block = self.block or round(5 * math.sqrt(public.n_features))
        a = 0.0
        if public.fit_intercept:
            a = public.row_linf if selection else public.row_l2 / 8
            a = a if a < math.inf else 1.0
            if not private:  # nothing clips an overshooting intercept: its column is no more curved than a feature's
                a = min(a, 1.0 / math.sqrt(step * public.loss.typical_curvature(public.label)))
        units = None
        if self.feature_scale is not None:
            units = np.append(np.asarray(self.feature_scale, dtype=float), np.ones(int(public.fit_intercept)))
        return Settings(n_iter, selection, min(block, public.n_features), step, clip, last_clip, a, units)

    def _default_n_iter(self, public: PublicFacts, selection: bool, mu: float) -> int:
        if not selection:
            return int(min(max((public.n_rows * mu) ** 2 / (100 * public.n_features), 40), 200))
        best = 1.5 * (public.n_rows * mu / math.log(2 * max(public.n_features, 2))) ** (2 / 3)
        best *= 0.6 if public.loss.kind == "classification" else 1.0
        return int(min(max(min(best, max(2 * public.n_nonzero, 30)), 5), 300))

    def _check(self, public: PublicFacts) -> None:
        check_whole(self, {"n_iter": 1, "block": 1}, optional=("n_iter", "block"))
        check_numbers(self, _RANGES, optional=("step", "clip", "last_clip"))
        check_choices(self, {"noise": ("auto", "selection", "gaussian"), "engine": ENGINES})
        if self.feature_scale is not None:
            scale = np.asarray(self.feature_scale, dtype=float)
            if scale.shape != (public.n_features,) or not np.all((scale >= 1e-100) & (scale <= 1e100)):
                raise ValueError(
                    "CoordinateDescent(feature_scale=...) must hold a number within [1e-100, 1e100] for each of the "
                    f"{public.n_features} features"
                )

    # --- for the report and for warnings ---

    def describe(self, public: PublicFacts) -> str:
        settings = self.settings(public)
        how = "noisy maxima" if settings.selection else f"noisy gradients, {settings.block} coordinates a step"
        return (
            f"greedy coordinate descent (DP-GCD), {how}: {settings.n_iter} steps of size {settings.step:.4g}, "
            f"{public.n_nonzero:,} of {public.n_features:,} weights kept, slopes clipped at {settings.clip:.4g}"
            + (f", in the end at {settings.clip * settings.last_clip:.4g}" if settings.last_clip < 1 else "")
        )

    def assumptions(self, public: PublicFacts) -> tuple[str, ...]:
        return () if self.start is None else (START_ASSUMPTION,)

    def n_iterations(self, public: PublicFacts) -> int:
        return self.settings(public).n_iter

    def n_passes(self, public: PublicFacts) -> float:
        settings = self.settings(public)
        return float(settings.n_iter * (2 if settings.selection else 1))

    def signal_to_noise(self, public: PublicFacts, releases: tuple[Release, ...]) -> float:
        return signal_to_noise(public, releases[0].mechanism)
