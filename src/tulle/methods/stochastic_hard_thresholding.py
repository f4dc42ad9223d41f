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
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from tulle.fast.lazy_noise import Background
from tulle.fast.sparse_weights import SparseWeights
from tulle.methods.base import MethodBase
from tulle.methods.batch_schedule import batch_sizes, check_batches, epoch_lengths, margin_noise
from tulle.methods.exact_steps import curvature_along_gradient
from tulle.methods.gradient_queries import (
    BatchGradient,
    BatchStep,
    ClippedGradient,
    Curvature,
)
from tulle.methods.noise_scales import budget_mu, intercept_entry, signal_to_noise, tellable_weights
from tulle.methods.parameter_checks import (
    NOT_NEGATIVE,
    POSITIVE,
    SHARE_OR_NONE,
    Range,
    check_choices,
    check_groups,
    check_numbers,
    check_whole,
)
from tulle.methods.public_start import START_ASSUMPTION, first_weights, read_method_start
from tulle.methods.published_noise import scsg_failed_conditions, scsg_noise, sgd_failed_conditions, sgd_noise
from tulle.methods.theorem_settings import Theorem, refuse_unknown
from tulle.methods.thresholds import count_features, count_groups, kept_words, make_threshold
from tulle.trusted.curator import Ask
from tulle.trusted.events import FloatArray, NoisePerSensitivity
from tulle.trusted.facts import PublicFacts
from tulle.trusted.mechanisms import Exact, Gaussian, SampledGaussian
from tulle.trusted.plan import Budget, Release
from tulle.trusted.sampling import SCHEMES, Sampling, Scheme

Variant = Literal["sgd", "scsg", "svrg"]

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
    "difference_clip": ("lie in (0, 2]", lambda value: 0 < value <= 2),
    "average": ("lie in [0, 1]", lambda value: 0 <= value <= 1),
    "damping": SHARE_OR_NONE,
    "penalty": NOT_NEGATIVE,
    "iteration_constant": POSITIVE,
}
_WHOLE = {"memory": 1, "schedule_seed": 0}
_OPTIONAL = ("memory", "passes", "step", "clip", "sampling")
_CHOICES = {
    "variant": ("sgd", "scsg", "svrg"),
    "option": ("I", "II"),
    "sampling": SCHEMES,
    "lazy_noise": (True, False),
    "published_constants": ("printed", "intended"),
}


@dataclass(frozen=True)
class Settings:
    """The public settings of one run, after defaults."""

    batch: int  # the largest, where sizes differ
    snapshot_batch: int | None  # None: no snapshots
    lengths: tuple[int, ...]  # steps of each epoch; a single epoch without snapshots
    scheme: Scheme
    step: float | None  # None: from the rows' curvature; only without privacy
    memory: int
    clip: float
    intercept_value: float
    snapshot_noise: float  # noise of snapshots over noise of steps, both per sensitivity
    damped: bool
    sizes: tuple[int, ...] = ()  # rows of each step's batch, where they differ; `batch` is the largest

    def step_name(self, t: int) -> str:
        """The release of step t, from 0: batches of each size have their own, since rates differ."""
        return f"step on {self.sizes[t]} rows" if len(set(self.sizes)) > 1 else "step"

    @property
    def n_steps(self) -> int:
        return sum(self.lengths)

    @property
    def n_questions(self) -> int:
        """How often the curvature is asked for: after steps 1, 2, 4, 8, ..."""
        return self.n_steps.bit_length()


class StochasticHardThresholding(MethodBase):
    """Gradient steps on random batches, private noise, the s largest weights kept.

    Parameters
    ----------
    variant : {"sgd", "scsg", "svrg"}, default="sgd"
        DP-SGD-HT; DP-SCSG-HT, whose steps are corrected by a snapshot of the gradient on a large batch; DP-SVRG-HT,
        whose snapshots are on all rows.
    batch : int, sequence of int, "theorem" or None, default=None
        b, in [1, n]: rows of a step, expected. For "sgd" also b_t for each of the T steps, of at most 20 different
        sizes; noise on the mean is the same in all steps. "theorem": n / sqrt(k) for "svrg", k being the number of
        weights. None: a tenth of all rows; with snapshots a fifth of a snapshot's.
    snapshot_batch : int, "theorem" or None, default=None
        B of "scsg", in [b, n]: rows of a snapshot, expected. "theorem": b sqrt(k). None: such that `passes` are enough
        for ten snapshots with their steps.
    passes : float, "theorem" or None, default=None
        About how often each row is read, > 0; the number of steps and snapshots follows. "theorem", for "sgd": such
        that T = iteration_constant × log(n² ε² / log(1/δ)), of [SGD]'s corollary 4.4.1. None: 3 for "sgd", 6 for
        "scsg", 12 for "svrg".
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
        eta, > 0; the theorems' is not offered. None: as large as the known noise allows, so that all noise together
        moves a margin by about 1.4 units (classifiers) or clips (regressions) in standard deviation, and no larger than
        is stable on independent features. That looks at no data; `damping` then shortens steps that would overshoot.
        Without privacy it starts from the reciprocal of the curvature along the first gradient.
    damping : float, default=0.05
        In [0, 1): about the part of the privacy cost spent on asking, after steps 1, 2, 4, 8 and so on of the default
        size, how curved the loss can be along them; later steps are cut so as to overshoot by no more than a factor of
        four (not at all where slopes are not bounded: regression without clipping). 0 turns it off; a given `step` too.
    average : float, default=0.2
        In [0, 1]: the result is the mean of the last so many models (thresholded once more); 0: the last one.
    clip : float or None, default=None
        Largest slope kept for a row at its bound, > 0. None: 0.4 of the loss's slope at margin 0 (1/5 for logistic) for
        classifiers, a quarter of the label bound for regression; no clipping without privacy.
    difference_clip : float, default=0.2
        In (0, 2]: with snapshots, the largest change of a row's slope since the snapshot, in units of clip. Changes are
        also clipped to what the distance of the two public models allows.
    penalty : float, default=0.0
        ℓ2 penalty, >= 0; outside clipping and noise. The intercept is free of it.
    lazy_noise : bool, default=True
        Draw only the noise that can pass the threshold: the same law, in time that does not grow with the number of
        features.
    published_constants : {"printed", "intended"}, default="printed"
        What ``calibration="published"`` means with snapshots: Theorem 5.1 as printed, or with its two constants
        exchanged, as its proof needs them.
    start : None, array or tuple, default=None
        Public weights to start from: of shape (features,) or (features, outputs), or a tuple (coef, intercept) as a
        fitted model has them; finite, at most 1e50 in magnitude. They must not come from the same private rows unless
        that fit is billed too. None: 0.
    iteration_constant : float, default=1.0
        C of passes="theorem", > 0, which the theorem leaves open; it hides a condition number.
    groups : array of shape (features,) or None, default=None
        As in `HardThresholding`: a label for each feature. `n_nonzero` and `memory` then count groups, which are kept
        as a whole. None: every feature by itself.

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
        batch: int | Sequence[int] | Theorem | None = None,
        snapshot_batch: int | Theorem | None = None,
        passes: float | Theorem | None = None,
        sampling: Scheme | None = None,
        option: Literal["I", "II"] = "II",
        schedule_seed: int = 0,
        memory: int | None = None,
        step: float | None = None,
        damping: float = 0.05,
        average: float = 0.2,
        clip: float | None = None,
        difference_clip: float = 0.2,
        penalty: float = 0.0,
        lazy_noise: bool = True,
        published_constants: Literal["printed", "intended"] = "printed",
        start: Any = None,
        iteration_constant: float = 1.0,
        groups: Any = None,
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
        self.average = average
        self.clip = clip
        self.difference_clip = difference_clip
        self.penalty = penalty
        self.lazy_noise = lazy_noise
        self.published_constants = published_constants
        self.start = start
        self.iteration_constant = iteration_constant
        self.groups = groups

    # --- what will be released ---

    def bounds_wanted(self) -> tuple[str, ...]:
        return ("row_l2",)

    def default_nonzero(self, public: PublicFacts) -> int:
        return count_groups(tellable_weights(public, budget_mu(public.budget)), check_groups(self, public.n_features))

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
        if len(set(settings.sizes)) > 1:
            raise ValueError(
                "the paper prints noise for batches of one size; give batch=... one number, or calibration='rigorous'"
            )
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
        if settings.sizes:
            # Noise per sensitivity in proportion to the size: all steps have the same noise, and cost about the same.
            counts = Counter((settings.step_name(t), size) for t, size in enumerate(settings.sizes))
            return tuple(
                self._release(name, public, settings, step_noise * size / settings.batch, size, count)
                for (name, size), count in counts.items()
            )
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
        groups = check_groups(self, public.n_features)
        remember = make_threshold(settings.memory, public.n_features, groups)
        keep = make_threshold(public.n_nonzero, public.n_features, groups)
        u = w = SparseWeights.from_dense(first_weights(self, public, a))
        if step is None:
            kept = count_features(public.n_nonzero, groups)
            probe = curvature_along_gradient(ClippedGradient(w.to_dense(), clip, "l2", a), kept)
            step = 1.0 / max(float(ask("first curvature", probe)[0, 0]) + self.penalty, 1e-12)
        total, averaged, t = np.zeros(w.shape), 0, 0
        for length in settings.lengths:
            drift, anchor = None, None
            if settings.snapshot_batch is not None:
                drift, anchor = Background(np.asarray(ask("snapshot", BatchGradient(w, clip, a)))), w
            for _ in range(length):
                gradient = BatchGradient(w, clip, a, anchor, self.difference_clip * clip)
                answer = ask(settings.step_name(t), BatchStep(u, gradient, step, self.penalty, drift), then=remember)
                new = SparseWeights.of(answer)
                t += 1
                if settings.damped and t & (t - 1) == 0:
                    direction = keep.sparsely(new).plus(w, -1.0).to_dense()
                    curvature = float(ask("curvature", Curvature(direction, a, weighted=True))[0, 0])
                    shorter = 1 / self._overshoot(step, curvature, 1 if anchor is None else length, clip, public)
                    new = remember.sparsely(u.scaled(1 - shorter).plus(new, shorter))
                    step *= shorter
                u, w = new, keep.sparsely(new)
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

    def _averaged(self, public: PublicFacts) -> float:
        return 0.0 if public.as_published else self.average

    # --- defaults: functions of public quantities alone ---

    def settings(self, public: PublicFacts) -> Settings:
        """The settings of a run. Reads nothing but the parameters and public facts."""
        self._check()
        read_method_start(self, public)
        groups = check_groups(self, public.n_features)
        n, private = public.n_rows, public.budget is not None
        sizes, large, passes = batch_sizes(self, public, _PASSES[self.variant])
        batch, several = max(sizes), len(sizes) > 1
        scheme = self.sampling or ("without_replacement" if public.as_published else "poisson")
        lengths: tuple[int, ...] = (len(sizes),)
        if not several:
            lengths = epoch_lengths(n, batch, large, passes, self.option, self.schedule_seed)
        clip = self.clip
        if clip is None:
            smaller = 0.4 if public.loss.kind == "classification" else 1.0
            clip = smaller * public.loss.default_clip(public.label) if private else math.inf
        memory = 5 * public.n_nonzero if self.memory is None else self.memory
        memory = public.n_nonzero if public.as_published else min(max(memory, public.n_nonzero), public.n_features)
        # All noise together is least with this ratio.
        snapshot_noise = (large or batch) / batch * math.sqrt(self.difference_clip / (sum(lengths) / len(lengths)))
        step = self.step
        if step is None and private:
            counts = Counter(sizes) if several else Counter({batch: sum(lengths)})
            features = replace(public, n_nonzero=count_features(public.n_nonzero, groups))
            noise = margin_noise(features, counts, large, lengths, clip, snapshot_noise, self.difference_clip)
            scale = 1.0 if public.loss.kind == "classification" else clip
            curvature = public.loss.typical_curvature(public.label)
            fresh = 1.0 if large is None else min(1.0, len(lengths) / _SNAPSHOTS)
            step = min(_MARGIN_NOISE * scale * fresh / noise, 1.5 * public.n_features / (curvature * public.row_l2**2))
        a = intercept_entry(public, step)
        damped = self.step is None and self.damping > 0 and not public.as_published
        sizes = sizes if several else ()
        return Settings(batch, large, lengths, scheme, step, memory, clip, a, snapshot_noise, damped, sizes)

    def _check(self) -> None:
        refuse_unknown(self, "step", "the printed η was not at hand")
        theorem = self.passes == "theorem"
        check_numbers(self, {name: _RANGES[name] for name in _RANGES if not (theorem and name == "passes")}, _OPTIONAL)
        check_batches(self)
        check_whole(self, _WHOLE, _OPTIONAL)
        check_choices(self, _CHOICES, _OPTIONAL)

    # --- for the report and for warnings ---

    def describe(self, public: PublicFacts) -> str:
        settings = self.settings(public)
        name = {"sgd": "DP-SGD-HT", "scsg": "DP-SCSG-HT", "svrg": "DP-SVRG-HT"}[self.variant]
        step = "1 / curvature along the first gradient" if settings.step is None else f"{settings.step:.4g}"
        snapshots, smallest = "", f"{min(settings.sizes):,} to " if settings.sizes else ""
        if settings.snapshot_batch is not None:
            snapshots = f", after {len(settings.lengths):,} snapshots on {settings.snapshot_batch:,} rows"
        return (
            f"stochastic hard thresholding ({name}): {settings.n_steps:,} steps of size {step} on batches of "
            f"{smallest}{settings.batch:,} of {public.n_rows:,} rows ({settings.scheme.replace('_', ' ')}){snapshots}; "
            f"{kept_words(public, check_groups(self, public.n_features))} kept, {settings.memory:,} remembered, "
            f"slopes clipped at {settings.clip:.4g}"
        )

    def assumptions(self, public: PublicFacts) -> tuple[str, ...]:
        return () if self.start is None else (START_ASSUMPTION,)

    def n_dense_vectors(self) -> int:
        return 13

    def n_iterations(self, public: PublicFacts) -> int:
        return self.settings(public).n_steps

    def n_passes(self, public: PublicFacts) -> float:
        settings = self.settings(public)
        questions = settings.n_questions if settings.damped else 0
        steps = sum(settings.sizes) or settings.n_steps * settings.batch
        rows = steps + questions * settings.batch + len(settings.lengths) * (settings.snapshot_batch or 0)
        return rows / public.n_rows + (1.0 if settings.step is None else 0.0)

    def n_thresholds(self, public: PublicFacts) -> int:
        """How often weights are thresholded: once a step."""
        return self.settings(public).n_steps

    def signal_to_noise(self, public: PublicFacts, releases: tuple[Release, ...]) -> float:
        # What all answers of a kind tell together, as one answer about all rows.
        first, settings = releases[0], self.settings(public)
        batch = settings.snapshot_batch or (settings.sizes or (settings.batch,))[0]
        answers = settings.n_steps if settings.sizes else first.answers
        together = first.mechanism.noise.times(public.n_rows / batch / math.sqrt(answers))
        return signal_to_noise(public, Gaussian(together))
