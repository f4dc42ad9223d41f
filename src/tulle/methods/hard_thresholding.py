"""Noisy gradient descent with hard thresholding: DP-IGHT = DP-GD-HT = DP-IHT.

Papers: Wang and Gu, "Differentially private iterative gradient hard thresholding for sparse learning" (IJCAI 2019),
Algorithm 1, here "[IGHT]"; Liang et al., DP-GD-HT; Wang and Xu, "On sparse linear regression in the local differential
privacy model" (ICML 2019), Algorithm 3, here "[LDP]". They are one update,

    w_t = H_s( w_{t-1} - eta ( grad L(w_{t-1}) + u_t ) ),

with H_s keeping the s largest magnitudes. Proof: docs/proofs/hard_thresholding.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from sklearn.base import BaseEstimator

from tulle.curator import Ask
from tulle.events import FloatArray, NoisePerSensitivity
from tulle.mechanisms import Exact, Gaussian, HardThreshold, TopK
from tulle.methods.geometry import (
    budget_mu,
    intercept_entry,
    kept_row_norm,
    selection_pays,
    signal_to_noise,
    tellable_weights,
)
from tulle.methods.parameters import (
    NOT_NEGATIVE,
    POSITIVE,
    SHARE,
    SHARE_OR_ALL,
    SHARE_OR_NONE,
    Range,
    check_numbers,
    check_whole,
)
from tulle.privacy import Budget, Release
from tulle.public import PublicFacts
from tulle.queries import ClippedGradient, Curvature, CurvatureAlongGradient, Magnitudes, Step

PublishedRule = Literal["remark_5.3", "corollary_5.8", "ldp"]

# The standard deviation, at most, that all noise together may put on a margin <x, w>, in units of the scale on which
# margins live: 1 for classifiers, half a clip for regressions. Chosen on synthetic data and on the RCV1 subset.
_MARGIN_NOISE = 0.5


_RANGES: dict[str, Range] = {
    "step": POSITIVE,
    "clip": POSITIVE,
    "ball": POSITIVE,
    "published_constant": POSITIVE,
    "clip_decay": SHARE_OR_ALL,
    "selection_share": SHARE,
    "damping": SHARE_OR_NONE,
    "penalty": NOT_NEGATIVE,
}
_OPTIONAL = ("step", "clip", "ball", "clip_decay")


@dataclass(frozen=True)
class Settings:
    """The public settings of one run, after defaults."""

    n_iter: int
    step: float | None  # None: chosen anew in each step from the rows' curvature; only without privacy
    damped: bool
    selection: bool
    clip: float
    clip_decay: float
    intercept_value: float
    kept_row_bound: float  # of a row on the features whose weights are kept, the constant column included


class HardThresholding(BaseEstimator):
    """Gradient steps on clipped gradients, private noise, the s largest weights kept.

    Parameters
    ----------
    n_iter : int or None, default=None
        T, at least 1. None: 6 with selection noise; with Gaussian noise sqrt(n mu) / 20 (twice that for regression),
        within [2, 50], where mu is the budget's Gaussian privacy parameter: each of T gradients gets sqrt(T) times
        the noise of one, so few steps pay while n mu is small. 100 without privacy.
    step : float or None, default=None
        eta, > 0, and then fixed, as in the papers. None: as large as the known noise allows, so that all noise
        together moves no margin by more than half a unit (classifiers) or a quarter of a clip (regressions) in standard
        deviation, and no larger than is stable on independent features, 1.5 d / (loss curvature × row_l2²). That much
        looks at no data; `damping` then shortens steps that would overshoot. Without privacy: the step of normalised
        iterative hard thresholding.
    damping : float, default=0.05
        In [0, 1): the part of the privacy cost spent on asking, after each step of the default size, how curved the
        loss can be along it; the step is cut to the reciprocal. Features that occur in most rows make a loss so
        curved that no step chosen without looking is both safe and useful. 0 turns it off; a given `step` too.
    clip : float or None, default=None
        Largest slope kept for a row at its bound, > 0: gradients are clipped to clip × row bound (C in the papers).
        None: the loss's slope at margin 0 (1/2 for logistic), a quarter of the label bound for regression; no
        clipping without privacy.
    clip_decay : float or None, default=None
        In (0, 1]; the clip of step t is clip × clip_decay^t. None: 0.65 for regression with selection noise, where
        residuals shrink as the model learns, otherwise 1.
    noise : {"auto", "gaussian", "selection"}, default="auto"
        "gaussian": noise on the whole step, as in the papers. "selection": one-shot Gumbel top-s on the step, then
        Gaussian noise on the chosen coordinates alone. "auto": whichever has the smaller error scale at equal
        privacy, row_l2 sqrt(2 log d) against row_linf sqrt(s) log d.
    selection_share : float, default=0.6
        In (0, 1): the part of the privacy cost that goes to choosing coordinates, with selection noise.
    penalty : float, default=0.0
        ℓ2 penalty, >= 0; outside clipping and noise, since it does not touch data. The intercept is free of it.
    ball : float or None, default=None
        Project the weights onto the ℓ2 ball of this radius (> 0) after each threshold, as [LDP] does.
    published_rule : {"remark_5.3", "corollary_5.8", "ldp"}, default="remark_5.3"
        Which printed noise ``calibration="published"`` means: [IGHT] Remark 5.3, [IGHT] Corollary 5.8, or [LDP].
    published_constant : float, default=1.0
        The "some constant c" of [LDP], > 0.

    Examples
    --------
    >>> from tulle import SparseClassifier
    >>> from tulle.methods import HardThresholding
    >>> model = SparseClassifier(method=HardThresholding(n_iter=10))
    >>> model.set_params(method__n_iter=5).method.n_iter
    5
    """

    def __init__(
        self,
        n_iter: int | None = None,
        step: float | None = None,
        damping: float = 0.05,
        clip: float | None = None,
        clip_decay: float | None = None,
        noise: Literal["auto", "gaussian", "selection"] = "auto",
        selection_share: float = 0.6,
        penalty: float = 0.0,
        ball: float | None = None,
        published_rule: PublishedRule = "remark_5.3",
        published_constant: float = 1.0,
    ) -> None:
        self.n_iter = n_iter
        self.step = step
        self.damping = damping
        self.clip = clip
        self.clip_decay = clip_decay
        self.noise = noise
        self.selection_share = selection_share
        self.penalty = penalty
        self.ball = ball
        self.published_rule = published_rule
        self.published_constant = published_constant

    # --- what will be released ---

    def bounds_wanted(self) -> tuple[str, ...]:
        return ("row_l2",) if self.noise == "gaussian" else ("row_l2", "row_linf")

    def default_nonzero(self, public: PublicFacts) -> int:
        return tellable_weights(public, budget_mu(public.budget))

    def releases(self, public: PublicFacts) -> tuple[Release, ...]:
        settings = self.settings(public)
        steps, damping = settings.n_iter, self.damping if settings.damped else 0.0
        # All releases together cost a sum of mu² (1 / noise² for Gaussian noise, (2 / noise)² / 4 for one choice); the
        # noises below divide a sum of 1 in the wanted parts.
        extra: tuple[Release, ...] = ()
        if settings.damped:
            extra = (Release("curvature", Gaussian(NoisePerSensitivity(math.sqrt(1 / damping))), steps),)
        elif settings.step is None:
            extra = (Release("curvature", Exact(), steps),)
        if not settings.selection:
            return (Release("step", Gaussian(NoisePerSensitivity(math.sqrt(1 / (1 - damping)))), steps), *extra)
        choices = public.n_nonzero * public.loss.n_outputs
        choosing, valuing = self.selection_share * (1 - damping), (1 - self.selection_share) * (1 - damping)
        select = TopK(NoisePerSensitivity(math.sqrt(choices / choosing)), public.n_nonzero, public.loss.n_outputs)
        values = Gaussian(NoisePerSensitivity(math.sqrt(1 / valuing)))
        return (Release("select", select, steps), Release("values", values, steps), *extra)

    def published(self, public: PublicFacts, budget: Budget) -> tuple[Release, ...]:
        """The papers' sigma, divided by the true sensitivity 2 C / n (they take sqrt(2) C / n, or C / n)."""
        settings = self.settings(public)
        if settings.selection:
            raise ValueError(
                "no paper prints noise for noise='selection'; use noise='gaussian' or calibration='rigorous'"
            )
        if budget.delta == 0:
            raise ValueError("the published noise needs delta > 0")
        log_delta, eps = math.log(1 / budget.delta), budget.epsilon
        sigma = {  # in units of C / n
            "remark_5.3": math.sqrt(settings.n_iter) / (math.sqrt(log_delta + eps) - math.sqrt(log_delta)),
            "corollary_5.8": math.sqrt(settings.n_iter * log_delta) / eps,
            "ldp": math.sqrt(self.published_constant * settings.n_iter * log_delta) / eps,
        }[self.published_rule]
        return (Release("step", Gaussian(NoisePerSensitivity(sigma / 2)), settings.n_iter),)

    # --- the loop ---

    def run(self, ask: Ask, public: PublicFacts) -> FloatArray:
        settings = self.settings(public)
        a = settings.intercept_value
        threshold = HardThreshold(public.n_nonzero, free_from=public.n_features)
        w = np.zeros((public.n_parameters, public.loss.n_outputs))
        for t in range(settings.n_iter):
            clip = settings.clip * settings.clip_decay**t
            step = settings.step
            if step is None:
                probe = CurvatureAlongGradient(ClippedGradient(w, clip, "l2", a), public.n_nonzero)
                step = 1.0 / max(float(ask("curvature", probe)[0, 0]) + self.penalty, 1e-12)
            if settings.selection:
                scores = Step(ClippedGradient(w, clip, "linf", a), step, self.penalty)
                chosen = ask("select", Magnitudes(scores))
                support = np.vstack([chosen, np.ones((public.n_parameters - public.n_features, w.shape[1]), bool)])
                # Fresh noise on the exact coordinates: the noisy scores are never used as values.
                gradient = ClippedGradient(w, clip, "l2", a, support, settings.kept_row_bound)
                new = np.where(support, ask("values", Step(gradient, step, self.penalty)), 0.0)
            else:
                new = ask("step", Step(ClippedGradient(w, clip, "l2", a), step, self.penalty), then=threshold)
            if settings.damped:
                curvature = float(ask("curvature", Curvature(new - w, a, settings.kept_row_bound))[0, 0])
                overshoot = step * (curvature * public.loss.typical_curvature(public.label) + self.penalty)
                new = threshold(w + (new - w) / max(1.0, overshoot))
            w = new
            if self.ball is not None:
                w = w * min(1.0, self.ball / max(float(np.linalg.norm(w)), 1e-300))
        return np.vstack([w[: public.n_features], a * w[public.n_features :] if a else np.zeros((1, w.shape[1]))])

    # --- defaults: functions of public quantities alone ---

    def settings(self, public: PublicFacts) -> Settings:
        """The settings of a run. Reads nothing but the parameters and public facts."""
        self._check()
        private = public.budget is not None
        selection = selection_pays(public) if self.noise == "auto" else self.noise == "selection"
        mu = budget_mu(public.budget)
        clip = self.clip
        if clip is None:
            clip = public.loss.default_clip(public.label) if private else math.inf
        n_iter = self.n_iter
        if n_iter is None:
            if not private:
                n_iter = 100
            elif selection:
                n_iter = 6
            else:
                few = math.sqrt(public.n_rows * mu) / (20 if public.loss.kind == "classification" else 10)
                n_iter = int(min(max(round(few), 2), 50))
        decay = self.clip_decay
        if decay is None:
            decay = 0.65 if private and selection and public.loss.kind == "regression" else 1.0
        kept = kept_row_norm(public, selection and private)
        step = self.step
        if step is None and private:
            # Noise of a step of size 1 on one weight is 2 clip bound sqrt(T) / (n mu), on a margin `kept` times that.
            bound = kept if selection else public.row_l2
            value_mu = mu * math.sqrt(1 - self.selection_share) if selection else mu
            steps = math.sqrt(n_iter * sum(decay ** (2 * t) for t in range(n_iter)))
            noise = 2 * clip * bound * kept * public.rows_per_unit * steps / (public.n_rows * value_mu)
            scale = 1.0 if public.loss.kind == "classification" else clip / 2
            curvature = public.loss.typical_curvature(public.label)
            step = min(_MARGIN_NOISE * scale / noise, 1.5 * public.n_features / (curvature * public.row_l2**2))
        damped = private and self.step is None and self.damping > 0 and not public.as_published
        a = intercept_entry(public, step)
        return Settings(n_iter, step, damped, selection, clip, decay, a, math.hypot(kept, a))

    def _check(self) -> None:
        check_whole(self, {"n_iter": 1}, optional=("n_iter",))
        check_numbers(self, _RANGES, _OPTIONAL)
        if self.noise not in ("auto", "gaussian", "selection"):
            raise ValueError(
                f"HardThresholding(noise=...) must be 'auto', 'gaussian' or 'selection', got {self.noise!r}"
            )
        if self.published_rule not in ("remark_5.3", "corollary_5.8", "ldp"):
            raise ValueError(
                "HardThresholding(published_rule=...) must be 'remark_5.3', 'corollary_5.8' or 'ldp', "
                f"got {self.published_rule!r}"
            )

    # --- for the report and for warnings ---

    def describe(self, public: PublicFacts) -> str:
        settings = self.settings(public)
        kind = "one-shot selection" if settings.selection else "Gaussian noise on the whole step"
        step = "1 / curvature along the gradient" if settings.step is None else f"{settings.step:.4g}"
        step += " (damped)" if settings.damped else ""
        return (
            f"hard thresholding (DP-IGHT), {kind}: {settings.n_iter} steps of size {step}, "
            f"{public.n_nonzero:,} of {public.n_features:,} weights kept, slopes clipped at {settings.clip:.4g}"
            + (f" × {settings.clip_decay:g}^t" if settings.clip_decay != 1 else "")
        )

    def n_iterations(self, public: PublicFacts) -> int:
        return self.settings(public).n_iter

    def n_passes(self, public: PublicFacts) -> float:
        settings = self.settings(public)
        return float(settings.n_iter * (3 if settings.step is None else 2 if settings.damped else 1))

    def n_thresholds(self, public: PublicFacts) -> int:
        """How often weights are thresholded, once a step; shortening a step is not counted as one more."""
        return self.settings(public).n_iter

    def signal_to_noise(self, public: PublicFacts, releases: tuple[Release, ...]) -> float:
        return signal_to_noise(public, releases[0].mechanism)
