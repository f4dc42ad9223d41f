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
from tulle.privacy import Budget, Release, gaussian_mu
from tulle.public import PublicFacts
from tulle.queries import ClippedGradient, CurvatureAlongGradient, Magnitudes, Step

PublishedRule = Literal["remark_5.3", "corollary_5.8", "ldp"]

# The standard deviation, at most, that all noise together may put on a margin <x, w>, in units of the scale on which
# margins live: 1 for classifiers, half a clip for regressions. Chosen on synthetic data and on the RCV1 subset.
_MARGIN_NOISE = 0.5


@dataclass(frozen=True)
class Settings:
    """The public settings of one run, after defaults."""

    n_iter: int
    step: float | None  # None: chosen anew in each step from the rows' curvature; only without privacy
    selection: bool
    clip: float
    clip_decay: float
    intercept_value: float
    support_row_bound: float


class HardThresholding(BaseEstimator):
    """Gradient steps on clipped gradients, private noise, the s largest weights kept.

    Parameters
    ----------
    n_iter : int or None, default=None
        T, at least 1. None: 6 with selection noise; with Gaussian noise sqrt(n mu) / 20, where mu is the budget's
        Gaussian privacy parameter (each of T gradients gets sqrt(T) times the noise of one, so few steps pay while
        n mu is small), or more where steps are kept small for stability, within [2, 50]; 100 without privacy.
    step : float or None, default=None
        eta, > 0. None: as large as the known noise allows, so that all noise together moves no margin by more than
        half a unit (classifiers) or a quarter of a clip (regressions) in standard deviation, but no larger than is
        stable on independent features, 1.5 features / (loss curvature × row_l2²), and in regression than 8 / (loss
        curvature × row_linf²). None of this looks at data. Without privacy: the step of normalised iterative hard
        thresholding, which does.
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

    def releases(self, public: PublicFacts) -> tuple[Release, ...]:
        settings = self.settings(public)
        steps = settings.n_iter
        curvature = (Release("curvature", Exact(), steps),) if settings.step is None else ()
        if not settings.selection:
            return (*curvature, Release("step", Gaussian(), steps))
        # At equal cost the two parts have sum of mu² in the ratio share : 1 - share. Choosing costs (2 / noise)² / 4
        # for each of s coordinates and outputs, the values 1 / noise².
        share, choices = self.selection_share, public.n_nonzero * public.loss.n_outputs
        choosing = TopK(NoisePerSensitivity(math.sqrt(choices / share)), public.n_nonzero, public.loss.n_outputs)
        values = Gaussian(NoisePerSensitivity(math.sqrt(1 / (1 - share))))
        return (*curvature, Release("select", choosing, steps), Release("values", values, steps))

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
                gradient = ClippedGradient(w, clip, "l2", a, support, settings.support_row_bound)
                w = np.where(support, ask("values", Step(gradient, step, self.penalty)), 0.0)
            else:
                w = ask("step", Step(ClippedGradient(w, clip, "l2", a), step, self.penalty), then=threshold)
            if self.ball is not None:
                w = w * min(1.0, self.ball / max(float(np.linalg.norm(w)), 1e-300))
        return np.vstack([w[: public.n_features], a * w[public.n_features :] if a else np.zeros((1, w.shape[1]))])

    # --- defaults: functions of public quantities alone ---

    def settings(self, public: PublicFacts) -> Settings:
        """The settings of a run. Reads nothing but the parameters and public facts."""
        self._check()
        private = public.budget is not None
        selection = self._selects(public)
        mu = self._mu(public.budget)
        clip = self.clip
        if clip is None:
            clip = public.loss.default_clip(public.label) if private else math.inf
        # Kept weights are s, so a row meets noise with at most this part of its norm; among d equal features it keeps
        # sqrt(s/d) of it, and a quarter more is allowed where rows are clipped anew on the support.
        widest = min(math.sqrt(public.n_nonzero) * public.row_linf, public.row_l2)
        typical = min(widest, 1.25 * math.sqrt(public.n_nonzero / public.n_features) * public.row_l2)
        # Noise of a step of size 1 on one weight is 2 clip bound sqrt(T) / (n mu), on a margin `reach` times that.
        bound, reach = (typical, typical) if selection else (public.row_l2, widest)
        value_mu = mu * math.sqrt(1 - self.selection_share) if selection else mu
        scale = 1.0 if public.loss.kind == "classification" else 0.5 * clip
        margin_noise = 2 * clip * bound * reach * public.rows_per_unit / (public.n_rows * value_mu * scale)
        stable = self._stable_step(public)
        n_iter = self.n_iter
        if n_iter is None:
            if not private:
                n_iter = 100
            elif selection:
                n_iter = 6
            else:
                few = math.sqrt(public.n_rows * mu) / 20
                affordable = _MARGIN_NOISE / (margin_noise * stable)  # as many stable steps as the noise allows
                n_iter = int(min(max(round(max(few, affordable)), 2), 50))
        decay = self.clip_decay
        if decay is None:
            decay = 0.65 if private and selection and public.loss.kind == "regression" else 1.0
        step = self.step
        if step is None and private:
            total = math.sqrt(n_iter * sum(decay ** (2 * t) for t in range(n_iter)))
            step = min(_MARGIN_NOISE / (margin_noise * total), stable)
        a = self._intercept_value(public, step)
        return Settings(n_iter, step, selection, clip, decay, a, math.hypot(typical, a))

    @staticmethod
    def _stable_step(public: PublicFacts) -> float:
        """The largest step that a design known only by its bounds can be trusted to bear.

        Independent features of equal scale have curvature row_l2² / d. A regression whose rows may have few large
        entries gets no more than 8 / row_linf²: steps beyond its curvature diverge. A classifier's slopes saturate, so
        that there noise alone limits the step.
        """
        curvature = public.loss.typical_curvature(public.label)
        independent = 1.5 * public.n_features / (curvature * public.row_l2**2)
        return (
            min(independent, 8 / (curvature * public.row_linf**2)) if public.loss.kind == "regression" else independent
        )

    def _intercept_value(self, public: PublicFacts, step: float | None) -> float:
        """The constant column's entry: large enough that the intercept is learnt in about one step of unit curvature,
        never above a quarter of the row bound, where it would add more than 3 % to all noise."""
        if not public.fit_intercept:
            return 0.0
        if math.isinf(public.row_l2) or step is None:
            return 1.0
        return min(public.row_l2 / 4, 1.0 / math.sqrt(step * public.loss.typical_curvature(public.label)))

    def _selects(self, public: PublicFacts) -> bool:
        if self.noise != "auto":
            return self.noise == "selection"
        if public.budget is None or math.isinf(public.row_linf):
            return False
        log_d = math.log(max(public.n_features, 2))
        choosing = public.row_linf * math.sqrt(public.n_nonzero * public.loss.n_outputs) * log_d
        return choosing < public.row_l2 * math.sqrt(2 * log_d)

    @staticmethod
    def _mu(budget: Budget | None) -> float:
        if budget is None:
            return math.inf
        # Without delta there is no mu; the defaults then size themselves for a delta of 1e-6.
        return gaussian_mu(budget.epsilon, budget.delta or 1e-6)

    def _check(self) -> None:
        if self.n_iter is not None and not (isinstance(self.n_iter, (int, np.integer)) and self.n_iter >= 1):
            raise ValueError(f"HardThresholding(n_iter=...) must be an integer >= 1, got {self.n_iter!r}")
        for name in ("step", "clip", "ball", "published_constant"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"HardThresholding({name}=...) must be a finite number > 0, got {value!r}")
        if self.clip_decay is not None and not 0 < self.clip_decay <= 1:
            raise ValueError(f"HardThresholding(clip_decay=...) must lie in (0, 1], got {self.clip_decay!r}")
        if not 0 < self.selection_share < 1:
            raise ValueError(f"HardThresholding(selection_share=...) must lie in (0, 1), got {self.selection_share!r}")
        if not 0 <= self.penalty < math.inf:
            raise ValueError(f"HardThresholding(penalty=...) must be a finite number >= 0, got {self.penalty!r}")
        if self.noise not in ("auto", "gaussian", "selection"):
            raise ValueError(
                f"HardThresholding(noise=...) must be 'auto', 'gaussian' or 'selection', got {self.noise!r}"
            )
        if self.published_rule not in ("remark_5.3", "corollary_5.8", "ldp"):
            raise ValueError(
                "HardThresholding(published_rule=...) must be 'remark_5.3', 'corollary_5.8' or 'ldp', "
                f"got {self.published_rule!r}"
            )

    # --- for the report ---

    def describe(self, public: PublicFacts) -> str:
        settings = self.settings(public)
        kind = "one-shot selection" if settings.selection else "Gaussian noise on the whole step"
        step = "1 / curvature along the gradient" if settings.step is None else f"{settings.step:.4g}"
        return (
            f"hard thresholding (DP-IGHT), {kind}: {settings.n_iter} steps of size {step}, "
            f"{public.n_nonzero:,} of {public.n_features:,} weights kept, slopes clipped at {settings.clip:.4g}"
            + (f" × {settings.clip_decay:g}^t" if settings.clip_decay != 1 else "")
        )

    def n_iterations(self, public: PublicFacts) -> int:
        return self.settings(public).n_iter

    def n_passes(self, public: PublicFacts) -> float:
        settings = self.settings(public)
        return float(settings.n_iter * (3 if settings.step is None else 1))
