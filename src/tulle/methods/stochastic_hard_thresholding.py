"""Hard thresholding on batches: DP-SGD-HT, DP-SCSG-HT and DP-SVRG-HT.

Paper: Liang, Tong, Ding, Pan, Bi, "Stochastic privacy-preserving methods for nonconvex sparse learning" (2023),
Algorithms 1 and 2, here "[SGD]". With u noise and I a batch,

    DP-SGD-HT:   x_t = H_k( x_{t-1} - eta ( grad f_I(x_{t-1}) + u ) )
    DP-SCSG-HT:  from time to time a snapshot on a large batch, m = grad f_B(x~) + u1, and until the next one
                 x_t = H_k( x_{t-1} - eta ( grad f_I(x_{t-1}) - grad f_I(x~) + m + u2 ) )
    DP-SVRG-HT:  the same with snapshots on all rows.

The noise that the paper prints is unsound; here it is calibrated to privacy loss distributions of the batches as they
are drawn. Two things are added because they pay: a step remembers more weights than the model has (`memory`), and
differences of gradients are clipped by how far the public iterates are apart. Proof:
docs/proofs/stochastic_hard_thresholding.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.optimize import brentq
from sklearn.base import BaseEstimator

from tulle.batch_queries import BatchGradient, BatchStep
from tulle.curator import Ask
from tulle.events import FloatArray, NoisePerSensitivity
from tulle.lazy_noise import Background
from tulle.mechanisms import Exact, Gaussian, HardThreshold, SampledGaussian
from tulle.methods.geometry import budget_mu, intercept_entry, kept_row_norm, signal_to_noise, tellable_weights
from tulle.methods.parameters import (
    NOT_NEGATIVE,
    POSITIVE,
    SHARE_OR_NONE,
    Range,
    check_choices,
    check_numbers,
    check_whole,
)
from tulle.methods.published_stochastic import (
    scsg_failed_conditions,
    scsg_noise,
    sgd_failed_conditions,
    sgd_noise,
)
from tulle.privacy import Budget, Release
from tulle.public import PublicFacts
from tulle.queries import ClippedGradient, Curvature, CurvatureAlongGradient
from tulle.sampling import SCHEMES, Sampling, Scheme
from tulle.weights import SparseWeights

Variant = Literal["sgd", "scsg", "svrg"]
Decay = Literal["constant", "linear", "sqrt"]

# The standard deviation that all noise together may put on a margin <x, w>: in units for classifiers, in clips for
# regressions. This and what follows was chosen on the RCV1 subset, PneumoniaMNIST, a9a and IMDB ratings.
_MARGIN_NOISE = 1.4

# Steps may overshoot the minimum along their own direction by this factor. Slopes are bounded, so that a model swings
# and does not diverge, while all other directions gain by it; the mean of the last models takes the swing out.
_OVERSHOOT = 4.0

# A snapshot pulls the same way until it is renewed, and clipped differences hold against it only in part: overshooting
# is counted over the steps of an epoch to this power. Slopes of classifiers are bounded, those of regressions grow.
_HELD = {"classification": 0.5, "regression": 1.0}

# Snapshots are used for several steps, and a model needs several of them.
_PASSES = {"sgd": 3.0, "scsg": 6.0, "svrg": 12.0}

# With fewer snapshots than this, steps are shorter in proportion.
_SNAPSHOTS = 5.0

_RANGES: dict[str, Range] = {
    "passes": POSITIVE,
    "step": POSITIVE,
    "clip": POSITIVE,
    "snapshot_noise": POSITIVE,
    "difference_clip": ("lie in (0, 2]", lambda value: 0 < value <= 2),
    "average": ("lie in [0, 1]", lambda value: 0 <= value <= 1),
    "momentum": SHARE_OR_NONE,
    "damping": SHARE_OR_NONE,
    "penalty": NOT_NEGATIVE,
}
_WHOLE = {"batch": 1, "snapshot_batch": 1, "memory": 1, "schedule_seed": 0}
_OPTIONAL = ("batch", "snapshot_batch", "memory", "passes", "step", "clip", "snapshot_noise", "sampling")
_CHOICES = {
    "variant": ("sgd", "scsg", "svrg"),
    "option": ("I", "II"),
    "decay": ("constant", "linear", "sqrt"),
    "sampling": SCHEMES,
    "lazy_noise": (True, False),
    "published_constants": ("printed", "intended"),
}


@dataclass(frozen=True)
class Settings:
    """The public settings of one run, after defaults."""

    batch: int
    snapshot_batch: int | None  # None: no snapshots
    lengths: tuple[int, ...]  # steps of each epoch; a single epoch without snapshots
    scheme: Scheme
    step: float | None  # None: from the rows' curvature; only without privacy
    memory: int
    clip: float
    intercept_value: float
    snapshot_noise: float  # noise of snapshots over noise of steps, both per sensitivity
    damped: bool

    @property
    def n_steps(self) -> int:
        return sum(self.lengths)

    @property
    def n_questions(self) -> int:
        """How often the curvature is asked for: after steps 1, 2, 4, 8, ..."""
        return self.n_steps.bit_length()


class StochasticHardThresholding(BaseEstimator):
    """Gradient steps on random batches, private noise, the s largest weights kept.

    Parameters
    ----------
    variant : {"sgd", "scsg", "svrg"}, default="sgd"
        DP-SGD-HT; DP-SCSG-HT, whose steps are corrected by a snapshot of the gradient on a large batch; DP-SVRG-HT,
        whose snapshots are on all rows.
    batch : int or None, default=None
        b, in [1, n]: rows of a step, expected. None: a tenth of all rows; with snapshots a fifth of a snapshot's.
    snapshot_batch : int or None, default=None
        B of "scsg", in [b, n]: rows of a snapshot, expected. None: such that `passes` are enough for ten snapshots with
        their steps.
    passes : float or None, default=None
        About how often each row is read, > 0; the number of steps and snapshots follows. None: 3 for
        "sgd", 6 for "scsg", 12 for "svrg".
    sampling : {"poisson", "without_replacement", "shuffled"} or None, default=None
        How batches are drawn. "poisson" (every row by itself) is the cheapest in privacy by far. "without_replacement":
        all batches have the same size. "shuffled": epochs in a random order, for which no amplification is claimed.
        None: "poisson"; for the published noise "without_replacement", as in the paper.
    option : {"I", "II"}, default="II"
        With snapshots: "II", B / b steps after each one; "I", a geometric number with that mean, drawn from
        `schedule_seed` before anything is calibrated, and at most ten times as many.
    schedule_seed : int, default=0
        Public, >= 0. See `option`.
    memory : int or None, default=None
        How many weights a step remembers, in [n_nonzero, d] (smaller and larger numbers are taken as these ends);
        gradients are taken at the n_nonzero largest of them. The paper's is n_nonzero: what a step adds to any other
        weight is then forgotten, and small steps never get a feature in. None: five times n_nonzero.
    step : float or None, default=None
        eta, > 0. None: as large as the known noise allows, so that all noise together moves a margin by about 1.4 units
        (classifiers) or clips (regressions) in standard deviation, and no larger than is stable on independent
        features. That looks at no data; `damping` then shortens steps that would overshoot. Without privacy it starts
        from the reciprocal of the curvature along the first gradient.
    damping : float, default=0.05
        In [0, 1): about the part of the privacy cost spent on asking, after steps 1, 2, 4, 8 and so on of the default
        size, how curved the loss can be along them; later steps are cut so as to overshoot by no more than a factor of
        four (not at all where slopes are not bounded: regression without clipping). 0 turns it off; a given `step` too.
    decay : {"constant", "linear", "sqrt"}, default="constant"
        Steps of size eta, eta (1 - t / T) or eta / sqrt(t + 1).
    average : float, default=0.2
        In [0, 1]: the result is the mean of the last so many models (thresholded once more); 0: the last one.
    momentum : float, default=0.0
        In [0, 1): gradients are taken at w_t + momentum (w_t - w_{t-1}).
    clip : float or None, default=None
        Largest slope kept for a row at its bound, > 0. None: 0.4 of the loss's slope at margin 0 (1/5 for logistic) for
        classifiers, a quarter of the label bound for regression; no clipping without privacy.
    difference_clip : float, default=0.2
        In (0, 2]: with snapshots, the largest change of a row's slope since the snapshot, in units of clip. Changes are
        also clipped to what the distance of the two public models allows.
    snapshot_noise : float or None, default=None
        > 0: the noise of snapshots over that of steps, both relative to their sensitivities. None: such that all noise
        together is least, (B / b) sqrt(difference_clip / steps of an epoch).
    penalty : float, default=0.0
        ℓ2 penalty, >= 0; outside clipping and noise. The intercept is free of it.
    lazy_noise : bool, default=True
        Draw only the noise that can pass the threshold: the same law, in time that does not grow with the number of
        features.
    published_constants : {"printed", "intended"}, default="printed"
        What ``calibration="published"`` means with snapshots: Theorem 5.1 as printed, or with its two constants
        exchanged, as its proof needs them.

    Examples
    --------
    >>> from tulle import SparseClassifier
    >>> from tulle.methods import StochasticHardThresholding
    >>> model = SparseClassifier(method=StochasticHardThresholding(variant="svrg"))
    >>> model.set_params(method__passes=6).method.passes
    6
    """

    def __init__(
        self,
        variant: Variant = "sgd",
        batch: int | None = None,
        snapshot_batch: int | None = None,
        passes: float | None = None,
        sampling: Scheme | None = None,
        option: Literal["I", "II"] = "II",
        schedule_seed: int = 0,
        memory: int | None = None,
        step: float | None = None,
        damping: float = 0.05,
        decay: Decay = "constant",
        average: float = 0.2,
        momentum: float = 0.0,
        clip: float | None = None,
        difference_clip: float = 0.2,
        snapshot_noise: float | None = None,
        penalty: float = 0.0,
        lazy_noise: bool = True,
        published_constants: Literal["printed", "intended"] = "printed",
    ) -> None:
        self.variant = variant
        self.batch = batch
        self.snapshot_batch = snapshot_batch
        self.passes = passes
        self.sampling = sampling
        self.option = option
        self.schedule_seed = schedule_seed
        self.memory = memory
        self.step = step
        self.damping = damping
        self.decay = decay
        self.average = average
        self.momentum = momentum
        self.clip = clip
        self.difference_clip = difference_clip
        self.snapshot_noise = snapshot_noise
        self.penalty = penalty
        self.lazy_noise = lazy_noise
        self.published_constants = published_constants

    # --- what will be released ---

    def bounds_wanted(self) -> tuple[str, ...]:
        return ("row_l2",)

    def default_nonzero(self, public: PublicFacts) -> int:
        return tellable_weights(public, budget_mu(public.budget))

    def releases(self, public: PublicFacts) -> tuple[Release, ...]:
        settings = self.settings(public)
        planned = self._planned(public, settings, settings.snapshot_noise, 1.0)
        if settings.step is None:
            planned = (*planned, Release("first curvature", Exact(), 1))
        if settings.damped:
            questions = settings.n_questions
            noise = math.sqrt(questions * (1 - self.damping) / (self.damping * settings.n_steps))
            return (*planned, self._release("curvature", public, settings, noise, settings.batch, questions))
        return planned

    def published(self, public: PublicFacts, budget: Budget) -> tuple[Release, ...]:
        """Theorem 4.1's sigma, or Theorem 5.1's two, divided by the true sensitivities 2 l / b, 2 l / B and 4 l / b."""
        settings = self.settings(public)
        if budget.delta == 0:
            raise ValueError("the published noise needs delta > 0")
        n, b = public.n_rows, settings.batch
        if settings.snapshot_batch is None:
            steps = sgd_noise(n, b, settings.n_steps, budget.epsilon, budget.delta)
            return self._planned(public, settings, 0.0, steps)
        snapshots, steps = scsg_noise(
            n,
            settings.snapshot_batch,
            b,
            len(settings.lengths),
            budget.epsilon,
            budget.delta,
            self.option,
            intended=self.published_constants == "intended",
        )
        return self._planned(public, settings, snapshots, steps)

    def failed_conditions(self, public: PublicFacts, budget: Budget) -> tuple[str, ...]:
        """The side conditions of the theorem behind the published noise that these settings do not meet."""
        settings = self.settings(public)
        n, b, eps, delta = public.n_rows, settings.batch, budget.epsilon, budget.delta
        if settings.snapshot_batch is None:
            return sgd_failed_conditions(n, b, settings.n_steps, eps, delta)
        return scsg_failed_conditions(n, settings.snapshot_batch, b, len(settings.lengths), eps, delta, self.option)

    def _planned(
        self, public: PublicFacts, settings: Settings, snapshot_noise: float, step_noise: float
    ) -> tuple[Release, ...]:
        steps = self._release("step", public, settings, step_noise, settings.batch, settings.n_steps)
        if settings.snapshot_batch is None:
            return (steps,)
        large, epochs = settings.snapshot_batch, len(settings.lengths)
        return (self._release("snapshot", public, settings, snapshot_noise, large, epochs), steps)

    def _release(
        self, name: str, public: PublicFacts, settings: Settings, noise: float, batch: int, answers: int
    ) -> Release:
        batches = Sampling(settings.scheme, public.n_rows, batch, public.rows_per_unit)
        mechanism = SampledGaussian(NoisePerSensitivity(noise), batches, self.lazy_noise)
        return Release(name, mechanism, math.ceil(answers / batches.answers_per_release))

    # --- the loop ---

    def run(self, ask: Ask, public: PublicFacts) -> FloatArray:
        settings = self.settings(public)
        a, clip, step = settings.intercept_value, settings.clip, settings.step
        remember = HardThreshold(settings.memory, free_from=public.n_features)
        keep = HardThreshold(public.n_nonzero, free_from=public.n_features)
        u = w = last = SparseWeights.zeros(public.n_parameters, public.loss.n_outputs)
        if step is None:
            probe = CurvatureAlongGradient(ClippedGradient(w.to_dense(), clip, "l2", a), public.n_nonzero)
            step = 1.0 / max(float(ask("first curvature", probe)[0, 0]) + self.penalty, 1e-12)
        total, averaged, t = np.zeros(w.shape), 0, 0
        for length in settings.lengths:
            drift, anchor = None, None
            if settings.snapshot_batch is not None:
                drift, anchor = Background(np.asarray(ask("snapshot", BatchGradient(w, clip, a)))), w
            for _ in range(length):
                at = w.plus(w.plus(last, -1.0), self.momentum) if self.momentum else w
                gradient = BatchGradient(at, clip, a, anchor, self.difference_clip * clip)
                size = step * self._share_of_step(t, settings.n_steps)
                new = ask("step", BatchStep(u, gradient, size, self.penalty, drift), then=remember)
                t += 1
                if settings.damped and t & (t - 1) == 0:
                    direction = keep.sparsely(new).plus(w, -1.0).to_dense()
                    curvature = float(ask("curvature", Curvature(direction, a))[0, 0])
                    shorter = 1 / self._overshoot(size, curvature, 1 if anchor is None else length, clip, public)
                    new = remember.sparsely(u.scaled(1 - shorter).plus(new, shorter))
                    step *= shorter
                u, last, w = new, w, keep.sparsely(new)
                if t > (1 - self._averaged(public)) * settings.n_steps:
                    total[w.lines] += w.values
                    averaged += 1
        result = keep(total / averaged) if averaged else w.to_dense()
        return np.vstack([result[: public.n_features], a * result[public.n_features :] if a else 0 * result[:1]])

    def _overshoot(self, size: float, curvature: float, length: int, clip: float, public: PublicFacts) -> float:
        """By how much a step of this size, held for so many steps, is longer than it may be; at least 1."""
        curvature = curvature * public.loss.typical_curvature(public.label) + self.penalty
        held = 1.0 if math.isinf(clip) else length ** _HELD[public.loss.kind]  # no clip, no clipped differences
        bounded = math.isfinite(clip) or public.loss.kind == "classification"
        return max(1.0, size * held * curvature / (_OVERSHOOT if bounded else 1.0))

    def _share_of_step(self, t: int, n_steps: int) -> float:
        return {"constant": 1.0, "linear": 1.0 - t / n_steps, "sqrt": 1.0 / math.sqrt(t + 1.0)}[self.decay]

    def _averaged(self, public: PublicFacts) -> float:
        return 0.0 if public.as_published else self.average

    # --- defaults: functions of public quantities alone ---

    def settings(self, public: PublicFacts) -> Settings:
        """The settings of a run. Reads nothing but the parameters and public facts."""
        self._check()
        n, private = public.n_rows, public.budget is not None
        snapshots = self.variant != "sgd"
        passes = _PASSES[self.variant] if self.passes is None else self.passes
        large: int | None = None
        if snapshots:
            few = max(math.ceil(passes * n / 20), self.batch or 1)
            large = n if self.variant == "svrg" else min(self.snapshot_batch or few, n)
        batch = min(self.batch or math.ceil(n / 10 if large is None else large / 5), n)
        if large is not None and large < batch:
            raise ValueError(f"snapshot_batch={large} must be at least batch={batch}")
        scheme = self.sampling or ("without_replacement" if public.as_published else "poisson")
        lengths = self._lengths(n, batch, large, passes)
        clip = self.clip
        if clip is None:
            smaller = 0.4 if public.loss.kind == "classification" else 1.0
            clip = smaller * public.loss.default_clip(public.label) if private else math.inf
        memory = 5 * public.n_nonzero if self.memory is None else self.memory
        memory = public.n_nonzero if public.as_published else min(max(memory, public.n_nonzero), public.n_features)
        snapshot_noise = self.snapshot_noise
        if snapshot_noise is None:
            steps = sum(lengths) / len(lengths)
            snapshot_noise = (large or batch) / batch * math.sqrt(self.difference_clip / steps)
        step = self.step
        if step is None and private:
            noise = self._margin_noise(public, batch, large, lengths, clip, snapshot_noise)
            scale = 1.0 if public.loss.kind == "classification" else clip
            curvature = public.loss.typical_curvature(public.label)
            fresh = 1.0 if large is None else min(1.0, len(lengths) / _SNAPSHOTS)
            step = min(_MARGIN_NOISE * scale * fresh / noise, 1.5 * public.n_features / (curvature * public.row_l2**2))
        a = intercept_entry(public, step)
        damped = self.step is None and self.damping > 0 and not public.as_published
        return Settings(batch, large, lengths, scheme, step, memory, clip, a, snapshot_noise, damped)

    def _lengths(self, n: int, batch: int, large: int | None, passes: float) -> tuple[int, ...]:
        """The steps after each snapshot; without snapshots all steps at once."""
        if large is None:
            return (max(round(passes * n / batch), 1),)
        mean = large / batch
        epochs = max(round(passes * n / (large + round(mean) * batch)), 1)
        if self.option == "II":
            return (round(mean),) * epochs
        # P(N = k) = (1 - p) p^k with p = B / (B + b). The coins are public and drawn before anything is calibrated.
        coins = np.random.default_rng(self.schedule_seed)
        drawn = coins.geometric(batch / (large + batch), epochs) - 1
        drawn[0] = max(drawn[0], 1)  # a run of no step at all would be none
        return tuple(int(min(length, math.ceil(10 * mean))) for length in drawn)

    def _margin_noise(
        self,
        public: PublicFacts,
        batch: int,
        large: int | None,
        lengths: tuple[int, ...],
        clip: float,
        snapshot_noise: float,
    ) -> float:
        """About the standard deviation that all noise of steps of size 1 puts on the margin of a row at its bound.

        Many small releases are together about Gaussian: a sampled one of rate q and noise z (per record bound) adds
        4 q² sinh(1 / z²) to mu² (docs/stochastic_hard_thresholding.md). Only default steps depend on it.
        """
        n, mu = public.n_rows, budget_mu(public.budget)
        parts = [(batch / n, 1.0, sum(lengths))]
        if large is not None:
            parts.append((large / n, snapshot_noise, len(lengths)))

        def excess(log_z: float) -> float:
            squares = [count * q**2 * _sinh((r * math.exp(log_z)) ** -2.0) for q, r, count in parts]
            return 4 * sum(squares) - mu**2

        z = math.exp(float(brentq(excess, -12.0, 30.0)))
        shares = [self._share_of_step(t, sum(lengths)) for t in range(sum(lengths))]
        level = clip * public.row_l2 * kept_row_norm(public, False) * public.rows_per_unit
        if large is None:
            return level * z / batch * math.sqrt(sum(share**2 for share in shares))
        steps = self.difference_clip * z / batch * math.sqrt(sum(share**2 for share in shares))
        # The noise of a snapshot is in every step until the next one.
        ends = np.cumsum(lengths)
        sums = [sum(shares[end - length : end]) for length, end in zip(lengths, ends)]
        snapshots = snapshot_noise * z / large * math.sqrt(sum(total**2 for total in sums))
        return level * math.hypot(steps, snapshots)

    def _check(self) -> None:
        check_numbers(self, _RANGES, _OPTIONAL)
        check_whole(self, _WHOLE, _OPTIONAL)
        check_choices(self, _CHOICES, _OPTIONAL)

    # --- for the report and for warnings ---

    def describe(self, public: PublicFacts) -> str:
        settings = self.settings(public)
        name = {"sgd": "DP-SGD-HT", "scsg": "DP-SCSG-HT", "svrg": "DP-SVRG-HT"}[self.variant]
        step = "1 / curvature along the first gradient" if settings.step is None else f"{settings.step:.4g}"
        snapshots = ""
        if settings.snapshot_batch is not None:
            snapshots = f", after {len(settings.lengths):,} snapshots on {settings.snapshot_batch:,} rows"
        return (
            f"stochastic hard thresholding ({name}): {settings.n_steps:,} steps of size {step} on batches of "
            f"{settings.batch:,} of {public.n_rows:,} rows ({settings.scheme.replace('_', ' ')}){snapshots}; "
            f"{public.n_nonzero:,} of {public.n_features:,} weights kept, {settings.memory:,} remembered, "
            f"slopes clipped at {settings.clip:.4g}"
        )

    def n_iterations(self, public: PublicFacts) -> int:
        return self.settings(public).n_steps

    def n_passes(self, public: PublicFacts) -> float:
        settings = self.settings(public)
        questions = settings.n_questions if settings.damped else 0
        rows = (settings.n_steps + questions) * settings.batch + len(settings.lengths) * (settings.snapshot_batch or 0)
        return rows / public.n_rows + (1.0 if settings.step is None else 0.0)

    def n_thresholds(self, public: PublicFacts) -> int:
        """How often weights are thresholded: once a step."""
        return self.settings(public).n_steps

    def signal_to_noise(self, public: PublicFacts, releases: tuple[Release, ...]) -> float:
        # What all answers of a kind tell together, as one answer about all rows.
        first = releases[0]
        batch = self.settings(public).snapshot_batch or self.settings(public).batch
        together = first.mechanism.noise.times(public.n_rows / batch / math.sqrt(first.answers))
        return signal_to_noise(public, Gaussian(together))


def _sinh(x: float) -> float:
    return math.sinh(min(x, 700.0))
