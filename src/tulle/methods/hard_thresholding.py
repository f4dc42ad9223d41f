"""Noisy gradient descent with hard thresholding: DP-IGHT = DP-GD-HT = DP-IHT.

Papers: Wang and Gu, "Differentially private iterative gradient hard thresholding for sparse learning" (IJCAI 2019),
Algorithm 1, here "[IGHT]"; Liang et al., DP-GD-HT; Wang and Xu, "On sparse linear regression in the local differential
privacy model" (ICML 2019), Algorithm 3, here "[LDP]". They are one update,

    w_t = H_s( w_{t-1} - eta ( grad L(w_{t-1}) + u_t ) ),

with H_s keeping the s largest magnitudes. Proof: docs/proofs/hard_thresholding.md.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from tulle.accounting.zcdp import rho_of
from tulle.methods.base import MethodBase
from tulle.methods.column_rules import NO_RULES, ColumnRules
from tulle.methods.exact_steps import ExactDescent, curvature_along_gradient
from tulle.methods.gradient_queries import ClippedGradient, Curvature, Step
from tulle.methods.noise_scales import (
    budget_mu,
    intercept_entry,
    kept_row_norm,
    selection_pays,
    signal_to_noise,
    tellable_weights,
)
from tulle.methods.noise_shares import additive_noise, choice_noise
from tulle.methods.parameter_checks import (
    NOT_NEGATIVE,
    POSITIVE,
    SHARE,
    SHARE_OR_ALL,
    SHARE_OR_NONE,
    Range,
    check_choices,
    check_groups,
    check_numbers,
    check_whole,
)
from tulle.methods.public_start import START_ASSUMPTION, first_weights, read_method_start
from tulle.methods.theorem_settings import Theorem, check_ight_nonzero, ight_nonzero, ight_step, refuse_unknown
from tulle.methods.thresholds import project_on_ball
from tulle.trusted.curator import Ask
from tulle.trusted.events import FloatArray, NoisePerSensitivity
from tulle.trusted.facts import PublicFacts
from tulle.trusted.mechanisms import Exact, Gaussian
from tulle.trusted.plan import Budget, Release
from tulle.trusted.queries import Magnitudes

PublishedRule = Literal["remark_5.3", "corollary_5.6", "corollary_5.8", "ldp"]
Noise = Literal["auto", "gaussian", "selection", "laplace"]

# The standard deviation, at most, that all noise together may put on a margin <x, w>, in units of the scale on which
# margins live: 1 for classifiers, half a clip for regressions. Chosen on synthetic data and on the RCV1 subset.
_MARGIN_NOISE = 0.5

# For several classes: the same, the length that a row's slopes are clipped to together, and the range of steps. Chosen
# on 20 newsgroups and two parts of MNIST at epsilon 0.5 to 8 (docs/hard_thresholding.md): many short steps with all
# features are as good as any number of long ones, or better.
_CLASSES_NOISE, _CLASSES_CLIP, _CLASSES_STEPS = 0.7, 0.3, (20, 60)


_RANGES: dict[str, Range] = {
    "step": POSITIVE,
    "clip": POSITIVE,
    "ball": POSITIVE,
    "published_constant": POSITIVE,
    "weight_norm": POSITIVE,
    "label_noise": NOT_NEGATIVE,
    "clip_decay": SHARE_OR_ALL,
    "selection_share": SHARE,
    "damping": SHARE_OR_NONE,
    "penalty": NOT_NEGATIVE,
    "smoothness": POSITIVE,
    "strong_convexity": POSITIVE,
    "step_constant": POSITIVE,
    "nonzero_constant": POSITIVE,
}
_OPTIONAL = ("step", "clip", "ball", "clip_decay", "smoothness", "strong_convexity", "weight_norm", "label_noise")


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
    pure: bool  # whether every release is purely epsilon-private


class HardThresholding(MethodBase):
    """Gradient steps on clipped gradients, private noise, the s largest weights kept.

    Parameters
    ----------
    n_iter : int or None, default=None
        T, at least 1; the theorem's, O(κ log ...), is not offered. None: 6 with selection noise; with Gaussian noise
        sqrt(n mu) / 20 (twice that for regression), within [2, 50], where mu is the budget's Gaussian privacy
        parameter: each of T gradients gets sqrt(T) times the noise of one, so few steps pay while n mu is small; for
        several classes sqrt(n mu) / 2.5 within [20, 60]. Where delta = 0, and each gets T times the noise, sqrt(n
        epsilon) / 30 within [3, 20]. 100 without privacy.
    step : float, "theorem" or None, default=None
        eta, > 0, and then fixed, as in the papers. "theorem": step_constant / (smoothness + strong_convexity), the eta
        = C / (β + μ) of [IGHT]. None: as large as the known noise allows, so that all noise together moves no margin by
        more than half a unit (classifiers; 0.7 for several classes) or a quarter of a clip (regressions) in standard
        deviation, and no larger than is stable on independent features, 1.5 d / (loss curvature × row_l2²). That much
        looks at no data; `damping` then shortens steps that would overshoot. Without privacy: the step of normalised
        iterative hard thresholding.
    damping : float, default=0.05
        In [0, 1): the part of the privacy cost spent on asking, after each step of the default size, how curved the
        loss can be along it; the step is cut to the reciprocal. Features that occur in most rows make a loss so
        curved that no step chosen without looking is both safe and useful. 0 turns it off; a given `step` too.
    clip : float or None, default=None
        Largest slope kept for a row at its bound, > 0: gradients are clipped to clip × row bound (C in the papers).
        None: the loss's slope at margin 0 (1/2 for logistic), 0.3 for the slopes of several classes together, a quarter
        of the label bound for regression; no clipping without privacy.
    clip_decay : float or None, default=None
        In (0, 1]; the clip of step t is clip × clip_decay^t. None: 0.65 for regression with selection noise, where
        residuals shrink as the model learns, otherwise 1.
    noise : {"auto", "gaussian", "selection", "laplace"}, default="auto"
        "gaussian": noise on the whole step, as in the papers. "selection": one-shot Gumbel top-s on the step, then
        Gaussian noise on the chosen coordinates alone, or Laplace noise for a budget with delta = 0. "laplace": Laplace
        noise on the whole step; for delta = 0. "auto": whichever has the smaller error scale at equal privacy, row_l2
        sqrt(2 log d) against row_linf sqrt(s) log d; with delta = 0, row_l2 sqrt(d) against row_linf 2 s.
    selection_share : float, default=0.6
        In (0, 1): the part of the privacy cost that goes to choosing coordinates, with selection noise.
    penalty : float, default=0.0
        ℓ2 penalty, >= 0; outside clipping and noise, since it does not touch data. The intercept is free of it.
    ball : float or None, default=None
        Project the weights onto the ℓ2 ball of this radius (> 0) after each threshold, as [LDP] does in algorithms 1
        and 2.
    published_rule : {"remark_5.3", "corollary_5.6", "corollary_5.8", "ldp"}, default="remark_5.3"
        Which printed noise ``calibration="published"`` means: [IGHT] Remark 5.3, [IGHT] Corollary 5.6 (regression:
        the noise of Remark 5.3 for gradients of row_l2 × (sqrt(2 s) weight_norm + label_noise log n), to which they
        are clipped), [IGHT] Corollary 5.8, or [LDP]. With a budget in rho the first is [IGHT]'s sigma² = T G² / (n²
        rho), and the others are refused.
    published_constant : float, default=1.0
        The "some constant c" of [LDP], > 0.
    weight_norm : float or None, default=None
        For Corollary 5.6: the ℓ2 norm of the true weights, > 0, known without looking at the rows.
    label_noise : float or None, default=None
        nu of Corollary 5.6: the standard deviation of the labels' noise, >= 0, known without looking at the rows.
    start : None, array or tuple, default=None
        Public weights to start from: of shape (features,) or (features, outputs), or a tuple (coef, intercept) as a
        fitted model has them; finite, at most 1e50 in magnitude. They must not come from the same private rows unless
        that fit is billed too. None: 0.
    smoothness : float or None, default=None
        β of [IGHT], > 0: the largest curvature of the mean loss along sparse vectors. Public.
    strong_convexity : float or None, default=None
        μ of [IGHT], > 0: the smallest such curvature. Public.
    true_nonzero : int or None, default=None
        s*, at least 1: how many weights of the true model are not zero. Where it is given, n_nonzero=None keeps
        ⌈nonzero_constant κ² s*⌉ weights, the least s of [IGHT]'s s >= C κ² s* with κ = β / μ, and fewer are refused.
    step_constant : float, default=1.0
        C of eta, > 0, which the theorem leaves open.
    nonzero_constant : float, default=1.0
        C of s, > 0, which the theorem leaves open.
    groups : array of shape (features,) or None, default=None
        A label, whole number or string, for each feature: the public partition of the features into groups. The
        `n_nonzero` groups with the largest ℓ2 norm of their noisy weights are then kept, each as a whole: for the
        columns of one category, say. Not with selection noise. None: every feature by itself.

    Examples
    --------
    >>> from tulle import SparseClassifier
    >>> from tulle.methods import HardThresholding
    >>> model = SparseClassifier(method=HardThresholding(n_iter=10))
    >>> model.set_params(method__n_iter=5).method.n_iter
    5
    """

    _rules: ColumnRules = NO_RULES  # of one fit: `with_columns` sets it in a copy

    def __init__(
        self,
        n_iter: int | None = None,
        step: float | Theorem | None = None,
        damping: float = 0.05,
        clip: float | None = None,
        clip_decay: float | None = None,
        noise: Noise = "auto",
        selection_share: float = 0.6,
        penalty: float = 0.0,
        ball: float | None = None,
        published_rule: PublishedRule = "remark_5.3",
        published_constant: float = 1.0,
        weight_norm: float | None = None,
        label_noise: float | None = None,
        start: Any = None,
        smoothness: float | None = None,
        strong_convexity: float | None = None,
        true_nonzero: int | None = None,
        step_constant: float = 1.0,
        nonzero_constant: float = 1.0,
        groups: Any = None,
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
        self.weight_norm = weight_norm
        self.label_noise = label_noise
        self.start = start
        self.smoothness = smoothness
        self.strong_convexity = strong_convexity
        self.true_nonzero = true_nonzero
        self.step_constant = step_constant
        self.nonzero_constant = nonzero_constant
        self.groups = groups

    # --- what will be released ---

    @property
    def publishes_rho(self) -> bool:
        """[IGHT]'s theorem is for rho-zCDP."""
        return True

    def with_columns(self, rules: ColumnRules) -> HardThresholding:
        if self.groups is not None and rules.groups is not None:
            raise ValueError("HardThresholding(groups=...) is given already; omit feature_groups=")
        ruled = copy.copy(self)
        ruled._rules = rules
        return ruled

    def _columns(self, public: PublicFacts) -> ColumnRules:
        """The rules about columns, with the method's own groups where it has any."""
        if (own := check_groups(self, public.n_features)) is None:
            return self._rules
        return ColumnRules(own, tuple(np.unique(own[list(self._rules.always)]).tolist()))

    def bounds_wanted(self) -> tuple[str, ...]:
        return ("row_l2",) if self.noise in ("gaussian", "laplace") else ("row_l2", "row_linf")

    def default_nonzero(self, public: PublicFacts) -> int:
        self._check()
        least = ight_nonzero(self)
        if least is not None:
            few = min(least, public.n_features)
        elif self._pure(public):  # the noise on a score grows with s, not with sqrt(s)
            assert public.budget is not None
            few = tellable_weights(public, public.budget.epsilon, power=0.5)
        elif self._many_classes(public):  # which features to drop would have to be told class by class
            few = public.n_features
        else:
            few = tellable_weights(public, budget_mu(public.budget))
        return self._columns(public).to_units(few)

    def releases(self, public: PublicFacts) -> tuple[Release, ...]:
        settings = self.settings(public)
        steps, damping = settings.n_iter, self.damping if settings.damped else 0.0
        extra: tuple[Release, ...] = ()
        if settings.damped:
            extra = (Release("curvature", additive_noise(damping, settings.pure), steps),)
        elif settings.step is None:
            if not settings.selection:
                return (Release("step", Exact(), steps),)
            extra = (Release("curvature", Exact(), steps),)
        if not settings.selection:
            return (Release("step", additive_noise(1 - damping, settings.pure), steps), *extra)
        choosing, valuing = self.selection_share * (1 - damping), (1 - self.selection_share) * (1 - damping)
        select = choice_noise(choosing, self._columns(public).n_free(public), public.loss.n_outputs, settings.pure)
        return (
            Release("select", select, steps),
            Release("values", additive_noise(valuing, settings.pure), steps),
            *extra,
        )

    def published(self, public: PublicFacts, budget: Budget) -> tuple[Release, ...]:
        """The papers' sigma, divided by the true sensitivity 2 C / n (they take sqrt(2) C / n, or C / n)."""
        settings = self.settings(public)
        if settings.selection:
            raise ValueError(
                "no paper prints noise for noise='selection'; use noise='gaussian' or calibration='rigorous'"
            )
        if budget.delta == 0:
            raise ValueError("the published noise needs delta > 0")
        if settings.pure:
            raise ValueError("no paper prints noise for noise='laplace'; use noise='gaussian' or 'auto' and delta > 0")
        rho = rho_of(budget)
        if rho is not None:
            if self.published_rule != "remark_5.3":
                raise ValueError(
                    f"published_rule={self.published_rule!r} prints noise for epsilon and delta, not for rho; use "
                    "published_rule='remark_5.3', which is [IGHT]'s noise for rho, or a budget in epsilon"
                )
            # [IGHT]: sigma² = T G² / (n² rho). With the true sensitivity 2 G / n that is 2 rho-zCDP.
            noise = NoisePerSensitivity(math.sqrt(settings.n_iter / rho) / 2)
            return (Release("step", Gaussian(noise), settings.n_iter),)
        log_delta, eps = math.log(1 / budget.delta), budget.epsilon
        remark = math.sqrt(settings.n_iter) / (math.sqrt(log_delta + eps) - math.sqrt(log_delta))
        sigma = {  # in units of C / n
            "remark_5.3": remark,
            "corollary_5.6": remark,  # with another C
            "corollary_5.8": math.sqrt(settings.n_iter * log_delta) / eps,
            "ldp": math.sqrt(self.published_constant * settings.n_iter * log_delta) / eps,
        }[self.published_rule]
        return (Release("step", Gaussian(NoisePerSensitivity(sigma / 2)), settings.n_iter),)

    # --- the loop ---

    def run(self, ask: Ask, public: PublicFacts) -> FloatArray:
        settings = self.settings(public)
        a, rules = settings.intercept_value, self._columns(public)
        threshold, stays = rules.threshold(public.n_nonzero, public.n_features), rules.mask(public.n_features)
        w = first_weights(self, public, a)
        descent = ExactDescent(threshold, self._kept(public), a, self.penalty, self.ball)
        for t in range(settings.n_iter):
            clip = settings.clip * settings.clip_decay**t
            if settings.step is None and not settings.selection:
                w = ask("step", descent.step(w, clip))
                continue
            step = settings.step
            if step is None:
                probe = curvature_along_gradient(ClippedGradient(w, clip, "l2", a), self._kept(public))
                step = 1.0 / max(float(ask("curvature", probe)[0, 0]) + self.penalty, 1e-12)
            if settings.selection:
                scores = Step(ClippedGradient(w, clip, "linf", a), step, self.penalty)
                stay = np.repeat(stays[:, None], w.shape[1], axis=1)
                chosen = ask("select", Magnitudes(scores, passed_over=stay if rules.always else None)) | stay
                support = np.vstack([chosen, np.ones((public.n_parameters - len(chosen), w.shape[1]), bool)])
                # Fresh noise on the exact coordinates: the noisy scores are never used as values.
                gradient = ClippedGradient(w, clip, "l2", a, support, settings.kept_row_bound)
                new = np.where(support, ask("values", Step(gradient, step, self.penalty)), 0.0)
            else:
                new = ask("step", Step(ClippedGradient(w, clip, "l2", a), step, self.penalty), then=threshold)
            if settings.damped:
                curvature = float(ask("curvature", Curvature(new - w, a, settings.kept_row_bound, weighted=True))[0, 0])
                overshoot = step * (curvature * public.loss.typical_curvature(public.label) + self.penalty)
                new = threshold(w + (new - w) / max(1.0, overshoot))
            w = new
            if self.ball is not None:
                w = project_on_ball(w, self.ball)
        w = np.asarray(w)  # exact steps keep it sparse
        return np.vstack([w[: public.n_features], a * w[public.n_features :] if a else np.zeros((1, w.shape[1]))])

    # --- defaults: functions of public quantities alone ---

    def settings(self, public: PublicFacts) -> Settings:
        """The settings of a run. Reads nothing but the parameters and public facts."""
        self._check()
        read_method_start(self, public)
        check_ight_nonzero(self, public)
        private, pure = public.budget is not None, self._pure(public)
        rules = self._columns(public)
        selection = self.noise == "selection" or (
            self.noise == "auto" and rules.groups is None and rules.n_free(public) > 0 and selection_pays(public)
        )
        if selection:
            rules.check_selection(type(self).__name__, public)
        classes = self._many_classes(public) and not selection
        mu = budget_mu(public.budget)
        clip = self.clip
        if self.published_rule == "corollary_5.6" and public.as_published:
            clip = self._corollary_clip(public)
        elif clip is None:
            clip = public.loss.default_clip(public.label) if private else math.inf
            if classes:
                clip = _CLASSES_CLIP
        n_iter = self.n_iter
        if n_iter is None:
            if not private:
                n_iter = 100
            elif pure:
                assert public.budget is not None
                n_iter = int(min(max(round(math.sqrt(public.n_rows * public.budget.epsilon) / 30), 3), 20))
            elif classes:
                n_iter = int(np.clip(round(math.sqrt(public.n_rows * mu) / 2.5), *_CLASSES_STEPS))
            elif selection:
                n_iter = 6
            else:
                few = math.sqrt(public.n_rows * mu) / (20 if public.loss.kind == "classification" else 10)
                n_iter = int(min(max(round(few), 2), 50))
        decay = self.clip_decay
        if decay is None:
            decay = 0.65 if private and selection and public.loss.kind == "regression" else 1.0
        kept = kept_row_norm(replace(public, n_nonzero=self._kept(public)), selection and private)
        step = ight_step(self) if self.step == "theorem" else self.step
        if step is None and private:
            # Noise of a step of size 1 on one weight is 2 clip bound sqrt(T) / (n mu), on a margin `kept` times that.
            bound = kept if selection else public.row_l2
            value_mu = mu * math.sqrt(1 - self.selection_share) if selection else mu
            if pure:  # Laplace noise of scale T sqrt(count) / epsilon has sqrt(2) times that standard deviation
                assert public.budget is not None
                count = public.loss.n_outputs * (public.n_nonzero + 1 if selection else public.n_parameters)
                value_mu = public.budget.epsilon * (1 - self.selection_share if selection else 1.0)
                value_mu /= math.sqrt(2 * n_iter * count)
            steps = math.sqrt(n_iter * sum(decay ** (2 * t) for t in range(n_iter)))
            noise = 2 * clip * bound * kept * public.rows_per_unit * steps / (public.n_rows * value_mu)
            scale = 1.0 if public.loss.kind == "classification" else clip / 2
            curvature = public.loss.typical_curvature(public.label)
            most = _CLASSES_NOISE if classes else _MARGIN_NOISE
            step = min(most * scale / noise, 1.5 * public.n_features / (curvature * public.row_l2**2))
        damped = private and self.step is None and self.damping > 0 and not public.as_published
        a = intercept_entry(public, step)
        return Settings(n_iter, step, damped, selection, clip, decay, a, math.hypot(kept, a), pure)

    def _pure(self, public: PublicFacts) -> bool:
        """Whether all noise is purely private: with delta = 0 nothing else is, and Laplace noise always is."""
        if public.budget is None:
            return False
        if public.budget.delta == 0 and public.as_published:  # no noise that is printed has such a delta
            raise ValueError("the published noise needs delta > 0")
        if public.budget.delta == 0 and self.noise == "gaussian":
            raise ValueError(
                "HardThresholding(noise='gaussian') cannot give delta = 0; use noise='selection', 'laplace' or 'auto', "
                "or a delta > 0"
            )
        return public.budget.delta == 0 or self.noise == "laplace"

    def _many_classes(self, public: PublicFacts) -> bool:
        """Whether the defaults are those of several classes with sound Gaussian noise on all scores."""
        dense = self.noise in ("auto", "gaussian") and not public.as_published
        return public.loss.n_outputs > 1 and public.budget is not None and dense and not self._pure(public)

    def _kept(self, public: PublicFacts) -> int:
        """How many features are kept, at most."""
        return self._columns(public).n_kept(public)

    def _corollary_clip(self, public: PublicFacts) -> float:
        """G / K of Corollary 5.6. Its G bounds gradients in a data model only; as a clip it does for all rows."""
        if self.weight_norm is None or self.label_noise is None:
            missing = [name for name in ("weight_norm", "label_noise") if getattr(self, name) is None]
            raise ValueError(
                f"HardThresholding(published_rule='corollary_5.6') needs {' and '.join(missing)}: its gradient bound "
                "is row_l2 (sqrt(2 s) weight_norm + label_noise log n), with the norm of the true weights and the "
                "standard deviation of the labels' noise; give public values, or use published_rule='remark_5.3'"
            )
        if public.loss.kind != "regression" or self.clip is not None:
            raise ValueError(
                "HardThresholding(published_rule='corollary_5.6') is for a regression and has a clip of its own; leave "
                "clip=None, or use published_rule='remark_5.3'"
            )
        return math.sqrt(2 * public.n_nonzero) * self.weight_norm + self.label_noise * math.log(public.n_rows)

    def _check(self) -> None:
        refuse_unknown(self, "n_iter", "T = O(κ log ...), and the argument of its logarithm was not at hand")
        check_whole(self, {"n_iter": 1}, optional=("n_iter",))
        ranges = _RANGES if self.step != "theorem" else {name: _RANGES[name] for name in _RANGES if name != "step"}
        check_numbers(self, ranges, _OPTIONAL)
        check_choices(self, {"noise": get_args(Noise), "published_rule": get_args(PublishedRule)})
        if self.groups is not None and self.noise == "selection":
            raise ValueError(
                "HardThresholding(groups=...) keeps groups by their norm; noise='selection' chooses single features; "
                "use noise='gaussian', 'laplace' or 'auto'"
            )

    # --- for the report and for warnings ---

    def describe(self, public: PublicFacts) -> str:
        settings = self.settings(public)
        whole = "Laplace" if settings.pure else "Gaussian"
        kind = "one-shot selection" if settings.selection else f"{whole} noise on the whole step"
        step = "1 / curvature along the gradient" if settings.step is None else f"{settings.step:.4g}"
        step += " (damped)" if settings.damped else ""
        return (
            f"hard thresholding (DP-IGHT), {kind}: {settings.n_iter} steps of size {step}, "
            f"{self._columns(public).words(public)}, slopes clipped at {settings.clip:.4g}"
            + (f" × {settings.clip_decay:g}^t" if settings.clip_decay != 1 else "")
        )

    def assumptions(self, public: PublicFacts) -> tuple[str, ...]:
        return () if self.start is None else (START_ASSUMPTION,)

    def n_dense_vectors(self) -> int:
        return 15

    def n_iterations(self, public: PublicFacts) -> int:
        return self.settings(public).n_iter

    def n_passes(self, public: PublicFacts) -> float:
        settings = self.settings(public)
        exact = 3 if settings.selection else 2  # a step and its size are then found from one gradient
        return float(settings.n_iter * (exact if settings.step is None else 2 if settings.damped else 1))

    def n_thresholds(self, public: PublicFacts) -> int:
        """How often weights are thresholded, once a step; shortening a step is not counted as one more."""
        return self.settings(public).n_iter

    def signal_to_noise(self, public: PublicFacts, releases: tuple[Release, ...]) -> float:
        return signal_to_noise(public, releases[0].mechanism)
