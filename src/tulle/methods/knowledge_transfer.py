"""Knowledge transfer: a teacher on private rows answers on public features, and a student learns from its answers.

Paper: Wang and Gu, "A knowledge transfer framework for differentially private sparse learning" (AAAI 2020), here
"[KT]", Algorithm 1:

    teacher    theta = IGHT on the private rows, no noise
    transfer   y_i = <theta, x_i> + xi_i  on public features x_1 ... x_m,  xi_i ~ N(0, σ²)
    student    w = IGHT on (x_i, y_i), squared loss

Its theorem holds for no σ: one changed row can swap the teacher's support, and the teacher then moves much further than
the proof says (docs/proofs/published_transfer.md). These variants are proved:

    sparse     S = s features by noisy scores |X'y|;  theta = argmin of the penalised loss on S, noise once
    dense      the same without a choice, on all features or in the directions in which public features vary most

and then any number of answers on any public features, and any student, at no cost: they are functions of what was
released. With public features, the effect of the penalty on the released teacher is removed first, see
`tulle.transfer.students.unshrunk`. Proofs: docs/proofs/knowledge_transfer.md.
"""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from tulle.fast.exact_answers import Known
from tulle.methods.base import MethodBase
from tulle.methods.gradient_queries import ClippedGradient, Step
from tulle.methods.hard_thresholding import HardThresholding
from tulle.methods.loss_functions import of_one_output
from tulle.methods.noise_scales import selection_pays, signal_to_noise
from tulle.methods.noise_shares import additive_noise, choice_noise
from tulle.methods.penalised_fit import USUAL_XI, Refinement, Start, curvature_of, perturbation, refinement
from tulle.methods.public_start import START_ASSUMPTION, first_weights
from tulle.methods.published_noise import NoiseWithoutProof
from tulle.methods.screen_refine import ScreenRefine
from tulle.methods.theorem_settings import Theorem
from tulle.methods.thresholds import HardThreshold
from tulle.methods.transfer_settings import (
    Coordinates,
    Settings,
    check_parameters,
    correct_length,
    is_own_student,
    n_directions,
    n_public_rows,
    published_penalty,
    published_student_step,
    published_teacher_step,
    teacher_length,
)
from tulle.transfer.public_features import (
    FeatureDistribution,
    largest_second_moment,
    leading_directions,
    public_rows,
)
from tulle.transfer.public_knowledge import PublicKnowledge
from tulle.transfer.students import ThresholdedStudent, train
from tulle.trusted.curator import Ask
from tulle.trusted.events import FloatArray, NoisePerSensitivity
from tulle.trusted.facts import PublicFacts
from tulle.trusted.mechanisms import Mechanism
from tulle.trusted.plan import Budget, Release
from tulle.trusted.queries import Magnitudes

Variant = Literal["sparse", "dense", "published"]


# lambda, where noise goes on the minimiser, over the curvature of a coordinate if rows at their bound had equal ones.
_PENALTY = 0.3

# The part of the sparse variant's privacy cost that is spent on the intercept at which scores are computed.
_START_SHARE = 0.02

# Public features are drawn from this seed. It need not be secret.
_PUBLIC_SEED = 0

FEATURES_ASSUMPTION = (
    "The features that the teacher answered on were given as public: they are not protected, and the promise "
    "counts on it that they were chosen without looking at the private rows."
)
_REASON = (
    "theorem 4.3 and corollary 4.7 bound how far the teacher moves while its support stays the same, and one changed "
    "row can swap the support: examples/audit_dpsl_kt.py breaks the claim on data that meets every assumption, and "
    "docs/proofs/published_transfer.md explains it. variant='sparse' keeps the promise"
)


class KnowledgeTransfer(MethodBase):
    """A private teacher, its answers on public features, and a student that learns from them.

    Parameters
    ----------
    variant : {"sparse", "dense", "published"}, default="sparse"
        "sparse": the teacher is fitted to privately chosen features. "dense": to all features, or in the leading
        directions of the public ones; the student makes the model sparse. "published": Algorithm 1 of the paper with
        its printed noise, whose promise is false: the report says epsilon = inf.
    features : None, distribution, array or sparse array of shape (m, d), default=None
        Public features: `tulle.transfer.public_features.UniformFeatures` or `GaussianFeatures`, or rows that are
        public already. They must not be private rows, nor depend on them. None: the teacher is the model.
    n_public : int or None, default=None
        m, at least 2: how many rows are drawn from a distribution. None: as many as there are private rows.
    student : "auto", "ight", None or estimator, default="auto"
        Who learns from the teacher's answers on the public features. "ight": iterative gradient hard thresholding with
        squared loss, as in the paper. An estimator with `coef_` (scikit-learn's `Lasso`, a `SparseRegressor` with
        epsilon=None, ...): regressors learn margins, classifiers predicted classes; it decides itself how many weights
        it keeps. None: no student, the model is the teacher, cut to its n_nonzero largest weights. "auto": "ight" where
        there are public features, except for the sparse variant, whose teacher is sparse already.
    unshrink : "auto" or bool, default="auto"
        Whether to use public features to undo what penalty and clipping did to the teacher, and to weigh signal against
        noise; if not, its length alone is put right (squared, Huber and logistic loss, up to 2000 coordinates; else
        neither). "auto": for regression, and for classification where features come from a distribution. Signs of
        margins do not ask for lengths, and on real text rows the clipped fit predicts them better.
    directions : "auto", int or None, default="auto"
        For the dense variant: in how many leading directions of the public features the teacher is fitted, at least 1.
        None: all features, each for itself. "auto": n mu / 14, or sqrt(n epsilon / 14) where delta = 0, at most 500,
        where public rows are given; None where a distribution or nothing is.
    perturbation : {"objective", "output"}, default="objective"
        Where the teacher's noise goes: on the gradient of its objective, or on its minimiser. With delta = 0 it is
        Laplace noise, on the minimiser in any case.
    noise : {"auto", "gaussian", "selection"}, default="auto"
        How the sparse variant chooses features: by Gaussian noise on all scores (Laplace noise where delta = 0), or by
        one-shot Gumbel top-s; "auto" takes the one with the smaller error scale, as in `HardThresholding`.
    screening_share : float or None, default=None
        In (0, 1): the part of the cost that goes to choosing features. None: 0.65.
    clip : float or None, default=None
        Largest slope kept in the scores, > 0. None: 1/2 for the logistic loss, a quarter of the label bound for
        regression.
    slope_clip : float or None, default=None
        Largest slope of the teacher's loss, > 0: R for Huber's and the squared loss. None: for regression 0.4 of the
        label bound, half of that where features are chosen by selection noise; 1/2 for the logistic loss.
    row_bound : float or None, default=None
        What rows are scaled down to in the teacher's coordinates, > 0. None: three quarters of the median length of
        public rows there, empty ones not counted; without public features as in `ScreenRefine`.
    penalty : float, "section_5" or None, default=None
        lambda, for a mean of losses. With perturbation="output", in [1e-100, 1e100], and raised to 1e-6 curvature ×
        row_bound²; None: 0.3 curvature × row_bound² / coordinates.
        For "published", >= 0; "section_5" and None: c1 sqrt(s log(d) log(1/delta) / (n epsilon)), of [KT]'s
        experiments and of no theorem or corollary; 0 needs `sparse_eigenvalue`, and takes the noise of [KT]'s corollary
        4.7. Else it must be None.
    gradient_bound : float or None, default=None
        [KT]'s gamma, > 0, for "published": bounds the entries of a row's gradient. None: row_linf, times the label
        bound for regression.
    sparse_eigenvalue : float or None, default=None
        [KT]'s mu, > 0, for "published" with penalty=0: the least curvature of the loss along sparse vectors.
    published_constant : float, default=1.0
        c1 of the published variant's default penalty, > 0.
    n_iter : int, default=100
        [KT]'s T1: steps of the published variant's teacher, at least 1.
    teacher_step : float, "theorem" or None, default=None
        [KT]'s eta1, > 0: the size of these steps. "theorem": step_constant × penalty / smoothness². None: that of
        normalised iterative hard thresholding, chosen anew in each step from the rows' curvature.
    student_iter : int or None, default=None
        [KT]'s T2: steps of the student "ight", at least 1. None: 100.
    student_step : float, "theorem" or None, default=None
        [KT]'s eta2, > 0: the size of these steps. "theorem": step_constant / beta, the largest second moment of the
        public features. None: as for `teacher_step`, from the public rows' curvature.
    start : None, array or tuple, default=None
        [KT]'s theta0, for "published": public weights that the teacher and the student "ight" start from, as in
        `HardThresholding`. None: 0.
    smoothness : float or None, default=None
        [KT]'s beta-bar, > 0: the largest curvature of the teacher's mean loss along sparse vectors. Public.
    step_constant : float, default=1.0
        C of eta1 and eta2, > 0, which the theorem leaves open.

    Examples
    --------
    >>> from tulle import SparseRegressor
    >>> from tulle.methods import KnowledgeTransfer
    >>> from tulle.transfer.public_features import UniformFeatures
    >>> model = SparseRegressor(method=KnowledgeTransfer(features=UniformFeatures(-1, 1)))
    >>> model.method.variant
    'sparse'
    """

    def __init__(
        self,
        variant: Variant = "sparse",
        features: Any = None,
        n_public: int | None = None,
        student: Any = "auto",
        unshrink: bool | Literal["auto"] = "auto",
        directions: int | Literal["auto"] | None = "auto",
        perturbation: Literal["objective", "output"] = "objective",
        noise: Literal["auto", "gaussian", "selection"] = "auto",
        screening_share: float | None = None,
        clip: float | None = None,
        slope_clip: float | None = None,
        row_bound: float | None = None,
        penalty: float | Literal["section_5"] | None = None,
        gradient_bound: float | None = None,
        sparse_eigenvalue: float | None = None,
        published_constant: float = 1.0,
        n_iter: int = 100,
        teacher_step: float | Theorem | None = None,
        student_iter: int | None = None,
        student_step: float | Theorem | None = None,
        start: Any = None,
        smoothness: float | None = None,
        step_constant: float = 1.0,
    ) -> None:
        self.variant = variant
        self.features = features
        self.n_public = n_public
        self.student = student
        self.unshrink = unshrink
        self.directions = directions
        self.perturbation = perturbation
        self.noise = noise
        self.screening_share = screening_share
        self.clip = clip
        self.slope_clip = slope_clip
        self.row_bound = row_bound
        self.penalty = penalty
        self.gradient_bound = gradient_bound
        self.sparse_eigenvalue = sparse_eigenvalue
        self.published_constant = published_constant
        self.n_iter = n_iter
        self.teacher_step = teacher_step
        self.student_iter = student_iter
        self.student_step = student_step
        self.start = start
        self.smoothness = smoothness
        self.step_constant = step_constant

    def with_public(self, knowledge: PublicKnowledge) -> KnowledgeTransfer:
        """Public rows are the features that the teacher answers on, where none are given."""
        if self.features is not None:
            raise ValueError("KnowledgeTransfer(features=...) is given already; omit public=")
        if knowledge.rows is None:
            raise ValueError("KnowledgeTransfer needs public rows, not frequencies; use method='auto'")
        informed = copy.copy(self)
        informed.features = knowledge.rows
        return informed

    # --- what will be released ---

    @property
    def takes_offsets(self) -> bool:
        """No: a student has none."""
        return False

    @property
    def only_published(self) -> bool:
        """Whether there is no noise but the paper's."""
        return self.variant == "published"

    def bounds_wanted(self) -> tuple[str, ...]:
        if self.variant == "dense" or (self.variant == "sparse" and self.noise == "gaussian"):
            return ("row_l2",)
        return ("row_l2", "row_linf")

    def default_nonzero(self, public: PublicFacts) -> int:
        return ScreenRefine().default_nonzero(public)

    def releases(self, public: PublicFacts) -> tuple[Release, ...]:
        settings = self.settings(public)
        if self.variant == "published":
            return (*self._published_teacher(public), Release("responses", NoiseWithoutProof(), 1))
        outputs = public.loss.n_outputs
        # The noises below divide a sum of mu² of about 1 in the wanted parts; see HardThresholding.releases.
        pure = settings.pure
        plan = [Release("start", additive_noise(settings.start_share, pure), 1)] if settings.start_share else []
        rest = 1 - settings.start_share
        if settings.screening_share:
            choosing = settings.screening_share * rest
            if settings.selection:
                plan.append(Release("select", choice_noise(choosing, public.n_nonzero, outputs, pure), 1))
            else:
                plan.append(Release("screen", additive_noise(choosing, pure), 1))
        teaching = (1 - settings.screening_share) * rest / outputs
        # The plan depends on the determinant, not on lengths.
        constants = self._constants(public, settings, 1.0, public.n_nonzero)
        noise = additive_noise(teaching, pure) if settings.by_output else perturbation(constants, teaching, public)
        return (*plan, Release("teacher", noise, outputs))

    def published(self, public: PublicFacts, budget: Budget) -> tuple[Release, ...]:
        """[KT]'s sigma² = 8 m beta s gamma² log(2.5/delta) / (n epsilon lambda)², on top of an exposed teacher."""
        if self.variant != "published":
            raise ValueError(
                f"no paper prints noise for variant={self.variant!r}; use calibration='rigorous' for sound noise, or "
                "variant='published' for the paper's algorithm"
            )
        if budget.delta == 0:
            raise ValueError("the published noise needs delta > 0")
        check_parameters(self, public)
        curvature = published_penalty(self, public) or self.sparse_eigenvalue
        assert curvature is not None  # checked
        gamma = self.gradient_bound or public.row_linf * (public.label if public.loss.kind == "regression" else 1.0)
        stretch = math.sqrt(n_public_rows(self, public) * largest_second_moment(self.features, public))
        claimed = 2 * math.sqrt(public.n_nonzero) * gamma * stretch / (public.n_rows * curvature)
        noise = NoisePerSensitivity(math.sqrt(2 * math.log(2.5 / budget.delta)) / budget.epsilon)
        teacher = [release.scaled(0.0) for release in self._published_teacher(public)]
        return (*teacher, Release("responses", NoiseWithoutProof(noise, claimed), 1))

    def failed_conditions(self, public: PublicFacts, budget: Budget) -> tuple[str, ...]:
        """Why the printed noise proves nothing, for any data."""
        return (_REASON,) if self.variant == "published" else ()

    def _ight(self, public: PublicFacts) -> HardThresholding:
        penalty, steps = published_penalty(self, public), (self.n_iter, published_teacher_step(self, public))
        return HardThresholding(*steps, noise="gaussian", penalty=penalty, start=self.start)

    def _published_teacher(self, public: PublicFacts) -> tuple[Release, ...]:
        """What the teacher's exact steps expose."""
        return self._ight(public).releases(replace(public, budget=None))

    # --- the algorithm ---

    def run(self, ask: Ask, public: PublicFacts) -> FloatArray:
        """The teacher's weights; for "published", whose teacher is not released, the student's."""
        if self.variant == "published":
            return self._run_published(ask, public)
        settings = self.settings(public)
        rows = None if self.features is None else self._public_rows(public)
        d, outputs = public.n_features, public.loss.n_outputs
        weights = np.zeros((d + 1, outputs))
        for k, coordinates in enumerate(self._coordinates(ask, public, settings, rows)):
            mine = None if rows is None else coordinates.of_rows(rows)
            length = teacher_length(self, public, settings, mine)
            constants = self._constants(public, settings, length, coordinates.count)
            theta = self._teacher(ask, settings.by_output, constants, coordinates, k)
            if mine is not None and public.budget is not None:
                theta = correct_length(public, settings, constants, theta, mine)
            weights[:d, k] = coordinates.to_weights(theta[: coordinates.count], d)
            weights[d, k] = constants.intercept_value * theta[-1] if constants.intercept_value else 0.0
        return weights

    def teach(self, weights: FloatArray, public: PublicFacts) -> tuple[FloatArray | None, FloatArray]:
        """The teacher's weights, and the student's. The published variant's student has learnt already, from noisy
        answers, and its teacher is not released."""
        return (None, weights) if self.only_published else (weights, self._student(weights, public))

    def _student(self, teacher: FloatArray, public: PublicFacts) -> FloatArray:
        """The student's weights: a function of the teacher's and of public values."""
        largest = HardThreshold(public.n_nonzero, free_from=public.n_features)(teacher)
        student = self.student
        if student == "auto":
            student = "ight" if self.variant == "dense" else None
        if student is None or self.features is None:
            return largest
        rows = self._public_rows(public)
        margins = np.asarray(rows @ teacher[:-1]) + teacher[-1]
        return train(self._learner(student, public), rows, margins, teacher[-1], public.n_nonzero, largest)

    def _learner(self, student: Any, public: PublicFacts) -> Any:
        """The student that "ight" stands for, or the user's own."""
        if not isinstance(student, str):
            return student
        start = None if self.start is None else first_weights(self, public, 1.0)[: public.n_features]
        return ThresholdedStudent(self.student_iter, published_student_step(self, public), start)

    def _coordinates(self, ask: Ask, public: PublicFacts, settings: Settings, rows: Any) -> list[Coordinates]:
        """Where each output's teacher is fitted: on chosen features, on all of them, or in public directions."""
        d, outputs = public.n_features, public.loss.n_outputs
        if self.variant == "dense":
            mixing = None if settings.directions is None else leading_directions(rows, settings.directions)
            return [Coordinates(np.arange(d), mixing)] * outputs
        a = (public.row_l2 / 4 if public.row_l2 < math.inf else 1.0) if public.fit_intercept else 0.0
        w = np.zeros((public.n_parameters, outputs))
        if settings.start_share:
            start = Start(public, settings.clip, settings.start_share, a)
            w[d] = start.intercepts(ask("start", start.question()))
        if settings.selection:
            chosen = ask("select", Magnitudes(Step(ClippedGradient(w, settings.clip, "linf", a), 1.0)))
        else:
            keep = HardThreshold(public.n_nonzero, free_from=d)
            chosen = ask("screen", ClippedGradient(w, settings.clip, "l2", a), then=keep)[:d] != 0
        return [Coordinates(np.flatnonzero(chosen[:, k])) for k in range(outputs)]

    @staticmethod
    def _teacher(ask: Ask, itself: bool, constants: Refinement, coordinates: Coordinates, output: int) -> FloatArray:
        centre = np.zeros(coordinates.count + bool(constants.intercept_value))
        problem = constants.minimiser(coordinates.features, centre, output, coordinates.mixing)
        if itself:
            return np.asarray(ask("teacher", replace(problem, itself=True))[:, 0])
        return np.asarray(ask("teacher", problem))

    def _run_published(self, ask: Ask, public: PublicFacts) -> FloatArray:
        teacher = self._exact_teacher(ask, replace(public, budget=None), self._ight(public))
        rows = self._public_rows(public)
        exact = np.asarray(rows @ teacher[:-1]) + teacher[-1]
        responses = ask("responses", Known(exact))
        fallback = np.zeros_like(teacher)
        student = self.student if is_own_student(self.student) else "ight"
        return train(self._learner(student, public), rows, responses, teacher[-1], public.n_nonzero, fallback)

    @staticmethod
    def _exact_teacher(ask: Ask, public: PublicFacts, ight: HardThresholding) -> FloatArray:
        """Asked under the facts of a fit without privacy."""
        return ight.run(ask, public)

    # --- defaults: functions of public quantities alone ---

    def settings(self, public: PublicFacts) -> Settings:
        """The settings of a run. Reads nothing but the parameters and public facts."""
        check_parameters(self, public)
        private, classify = public.budget is not None, public.loss.kind == "classification"
        loss = of_one_output(public.loss)
        selection = selection_pays(public) if self.noise == "auto" else self.noise == "selection"
        clip, tau = self.clip, self.slope_clip
        if clip is None:
            clip = public.loss.default_clip(public.label) if private else math.inf
        if tau is None:
            tau = math.inf
            if private:
                most = loss.slope_bound(math.inf, public.label)
                part = 0.2 if self.variant == "sparse" and selection else 0.4
                tau = loss.default_clip(public.label) if classify else min(most, part * public.label)
        known_law = isinstance(self.features, FeatureDistribution)
        choosing = (self.screening_share or 0.65) if self.variant == "sparse" else 0.0
        pure = public.budget is not None and public.budget.delta == 0
        return Settings(
            selection=selection,
            clip=clip,
            start_share=_START_SHARE if public.fit_intercept and self.variant == "sparse" else 0.0,
            screening_share=choosing,
            slope_clip=tau,
            curvature=USUAL_XI[loss.one_sided],
            directions=n_directions(self, public),
            unshrink=private and (not classify or known_law if self.unshrink == "auto" else self.unshrink),
            pure=pure,
            by_output=pure or self.perturbation == "output",
        )

    def _constants(self, public: PublicFacts, settings: Settings, length: float, count: int) -> Refinement:
        """The teacher's objective, for rows of at most that length in so many coordinates."""
        a = (length / 4 if length < math.inf else 1.0) if public.fit_intercept else 0.0
        bound = math.hypot(length, a)
        teaching = (1 - settings.start_share) * (1 - settings.screening_share) / public.loss.n_outputs
        curvature = curvature_of(public, settings.curvature, teaching)
        constants = refinement(public, settings.slope_clip, bound, a, curvature)
        if not settings.by_output:
            return constants
        given = None if isinstance(self.penalty, str) else self.penalty
        if public.budget is None:
            return constants if given is None else replace(constants, penalty=public.n_rows * given)
        curvature = of_one_output(public.loss).curvature_within(settings.slope_clip, public.label) * bound**2
        penalty = given or _PENALTY * curvature / max(count, 1)
        # Far below what one row can bend the objective by, floats would no longer certify its minimum.
        penalty = max(penalty, 1e-6 * curvature)
        return replace(constants, penalty=public.n_rows * penalty, log_determinant=0.0)

    def _public_rows(self, public: PublicFacts) -> Any:
        return public_rows(self.features, public, self.n_public, _PUBLIC_SEED)

    # --- for the report and for warnings ---

    def describe(self, public: PublicFacts) -> str:
        settings = self.settings(public)
        kept = f"{public.n_nonzero:,} of {public.n_features:,} weights kept"
        if is_own_student(self.student):
            kept = "as many weights as its student keeps"
        if self.variant == "published":
            return (
                f"knowledge transfer (DPSL-KT) as published, penalty {published_penalty(self, public):.4g}: an exact "
                f"teacher, {n_public_rows(self, public):,} answers on public features, {kept}"
            )
        if self.variant == "dense":
            where = "all features" if settings.directions is None else f"{settings.directions} public directions"
        else:
            whole = "Laplace" if settings.pure else "Gaussian"
            kind = "one-shot selection" if settings.selection else f"{whole} noise on all scores"
            where = f"features chosen by {kind}"
        student = "no student" if self.features is None else f"{n_public_rows(self, public):,} public rows"
        return (
            f"knowledge transfer, {self.variant}: a teacher on {where}, its noise on its "
            f"{'minimiser' if settings.by_output else 'objective'} (slopes cut at "
            f"{settings.slope_clip:.4g}), {student}, {kept}"
        )

    def assumptions(self, public: PublicFacts) -> tuple[str, ...]:
        """What the promise counts on, for the report."""
        started = () if self.start is None else (START_ASSUMPTION,)
        if self.features is None:
            return started
        return (*started, FEATURES_ASSUMPTION)

    def n_iterations(self, public: PublicFacts) -> int:
        return self.n_iter if self.variant == "published" else 1

    def n_passes(self, public: PublicFacts) -> float:
        """As for screen and refine, the teacher's solver is not counted."""
        if self.variant == "published":
            return self._ight(public).n_passes(replace(public, budget=None))
        return 1.0 + bool(self.settings(public).start_share)

    def signal_to_noise(self, public: PublicFacts, releases: tuple[Release, ...]) -> float:
        if self.variant == "published":
            return math.inf  # nothing is known of noise that proves nothing
        name = "teacher" if self.variant == "dense" else "select" if self.settings(public).selection else "screen"
        mechanism: Mechanism = next(release.mechanism for release in releases if release.name == name)
        directions = self.settings(public).directions
        return signal_to_noise(public if directions is None else replace(public, n_features=directions), mechanism)
