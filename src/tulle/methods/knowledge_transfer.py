"""Knowledge transfer: a teacher on private rows answers on public features, and a student learns from its answers.

Paper: Wang and Gu, "A knowledge transfer framework for differentially private sparse learning" (AAAI 2020), here
"[KT]", Algorithm 1:

    teacher    theta = IGHT on the private rows, no noise
    transfer   y_i = <theta, x_i> + xi_i  on public features x_1 ... x_m,  xi_i ~ N(0, σ²)
    student    w = IGHT on (x_i, y_i), squared loss

Its theorem does not hold, whatever σ: one changed row can swap the teacher's support, and the teacher then moves much
further than the proof says (docs/proofs/published_transfer.md). What its users wanted can be had:

    sparse     S = s features by noisy scores |X'y|;  theta = argmin of the penalised loss on S, noise once
    dense      the same without a choice, on all features or in the directions in which public features vary most

and then any number of answers on any public features, and any student, for free: they are functions of what was
released. Where public features are at hand the released teacher is first freed of its penalty, see
`tulle.students.unshrunk`. Proofs: docs/proofs/knowledge_transfer.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils.extmath import row_norms

from tulle.curator import Ask
from tulle.events import FloatArray, NoisePerSensitivity
from tulle.losses import of_one_output
from tulle.mechanisms import HardThreshold, Mechanism, NoiseWithoutProof, TopK
from tulle.methods.geometry import budget_mu, kept_row_norm, selection_pays, signal_to_noise
from tulle.methods.hard_thresholding import HardThresholding
from tulle.methods.parameters import (
    NOT_NEGATIVE,
    POSITIVE,
    SHARE,
    SHARE_OR_NONE,
    Range,
    check_choices,
    check_numbers,
    check_whole,
)
from tulle.methods.refinement import Refinement, check_convex, gaussian, perturbation, refinement_of_share
from tulle.methods.screen_refine import ScreenRefine
from tulle.privacy import Budget, Release
from tulle.public import PublicFacts
from tulle.public_features import (
    FeatureDistribution,
    check_features,
    largest_second_moment,
    leading_directions,
    public_rows,
)
from tulle.queries import ClippedGradient, Known, Magnitudes, Step, Teacher
from tulle.students import Shrinkage, at_right_length, can_unshrink, classifies, train, unshrunk

Variant = Literal["sparse", "dense", "published"]

_SENSIBLE: Range = ("lie in [1e-100, 1e100]", lambda value: 1e-100 <= value <= 1e100)
_RANGES: dict[str, Range] = {
    "screening_share": SHARE,
    "start_share": SHARE_OR_NONE,
    "clip": POSITIVE,
    "slope_clip": POSITIVE,
    "row_bound": _SENSIBLE,
    "determinant_share": ("lie in (0, 0.5]", lambda value: 0 < value <= 0.5),
    "gradient_bound": POSITIVE,
    "sparse_eigenvalue": POSITIVE,
    "published_constant": POSITIVE,
}
_OPTIONAL = (
    "screening_share",
    "clip",
    "slope_clip",
    "row_bound",
    "determinant_share",
    "gradient_bound",
    "sparse_eigenvalue",
)

# lambda, where noise goes on the minimiser, over the curvature of a coordinate if rows at their bound had equal ones.
_PENALTY = 0.3

_REASON = (
    "theorem 4.3 and corollary 4.7 bound how far the teacher moves while its support stays the same, and one changed "
    "row can swap the support: examples/audit_dpsl_kt.py breaks the claim on data that meets every assumption, and "
    "docs/proofs/published_transfer.md explains it. variant='sparse' keeps the promise"
)


@dataclass(frozen=True)
class Coordinates:
    """The coordinates in which one output's teacher is fitted: some features, or public directions in all of them."""

    features: npt.NDArray[np.intp]
    mixing: FloatArray | None = None

    @property
    def count(self) -> int:
        return len(self.features) if self.mixing is None else self.mixing.shape[1]

    def of_rows(self, rows: Any) -> Any:
        """Public rows in these coordinates, CSR or dense."""
        return rows[:, self.features] if self.mixing is None else np.asarray(rows @ self.mixing)

    def to_weights(self, theta: FloatArray, n_features: int) -> FloatArray:
        """The weights of all features."""
        weights = np.zeros(n_features)
        weights[self.features] = theta if self.mixing is None else self.mixing @ theta
        return weights


@dataclass(frozen=True)
class Settings:
    """The public settings of one run, after defaults."""

    selection: bool
    clip: float
    start_share: float
    screening_share: float  # 0 where nothing is chosen
    slope_clip: float
    determinant_share: float
    directions: int | None
    unshrink: bool


class KnowledgeTransfer(BaseEstimator):
    """A private teacher, its answers on public features, and a student that learns from them.

    Parameters
    ----------
    variant : {"sparse", "dense", "published"}, default="sparse"
        "sparse": the teacher is fitted to privately chosen features. "dense": to all features, or in the leading
        directions of the public ones; the student makes the model sparse. "published": Algorithm 1 of the paper with
        its printed noise, whose promise is false: the report says epsilon = inf.
    features : None, distribution, array or sparse array of shape (m, d), default=None
        Public features: `tulle.public_features.UniformFeatures` or `GaussianFeatures`, or rows that are public already.
        They must not be private rows, nor depend on them. None: the teacher is the model.
    n_public : int or None, default=None
        m, at least 2: how many rows are drawn from a distribution. None: as many as there are private rows.
    public_seed : int, default=0
        Public features are drawn from it; >= 0. It need not be secret.
    student : "auto", "ight", None or estimator, default="auto"
        Who learns from the teacher's answers on the public features. "ight": iterative gradient hard thresholding with
        squared loss, as in the paper. An estimator with `coef_` (scikit-learn's `Lasso`, a `SparseRegressor` with
        epsilon=None, ...): regressors learn margins, classifiers predicted classes; it decides itself how many weights
        it keeps. None: nobody, the model is the teacher, cut to its n_nonzero largest weights. "auto": "ight" where
        there are public features, except for the sparse variant, whose teacher is sparse already.
    unshrink : "auto" or bool, default="auto"
        Whether to use public features to undo what penalty and clipping did to the teacher, and to weigh signal against
        noise; if not, its length alone is put right (squared, Huber and logistic loss, up to 2000 coordinates; else
        neither). "auto": for regression, and for classification where features come from a distribution. Signs of
        margins do not ask for lengths, and on real text rows the clipped fit predicts them better.
    directions : "auto", int or None, default="auto"
        For the dense variant: in how many leading directions of the public features the teacher is fitted, at least 1.
        None: all features, each for itself. "auto": n mu / 14, at most 500, where public rows are given; None where a
        distribution or nothing is.
    perturbation : {"objective", "output"}, default="objective"
        Where the teacher's noise goes: on the gradient of its objective, or on its minimiser.
    noise : {"auto", "gaussian", "selection"}, default="auto"
        How the sparse variant chooses features: by Gaussian noise on all scores, or by one-shot Gumbel top-s; "auto"
        takes the one with the smaller error scale, as in `ScreenRefine`.
    screening_share : float or None, default=None
        In (0, 1): the part of the cost that goes to choosing features. None: 0.65.
    start_share : float, default=0.02
        In [0, 1): the part of the sparse variant's cost spent on the intercept that scores are taken at.
    clip : float or None, default=None
        Largest slope kept in the scores, > 0. None: 1/2 for the logistic loss, a quarter of the label bound for
        regression.
    slope_clip : float or None, default=None
        Largest slope of the teacher's loss, > 0: R for Huber's and the squared loss. None: for regression 0.4 of the
        label bound, half of that where features are chosen by selection noise; 1/2 for the logistic loss.
    row_bound : float or None, default=None
        What rows are scaled down to in the teacher's coordinates, > 0. None: three quarters of the median length of
        public rows there, empty ones not counted; without public features as in `ScreenRefine`.
    determinant_share : float or None, default=None
        In (0, 0.5]: the part of epsilon that goes to the determinant of a perturbed objective, which decides its
        penalty. None: 0.08 for regression, 0.04 for classification.
    penalty : float or None, default=None
        lambda, for a mean of losses. With perturbation="output", in [1e-100, 1e100], and raised to 1e-6 curvature ×
        row_bound²; None: 0.3 curvature × row_bound² / coordinates.
        For "published", >= 0; None: c1 sqrt(s log(d) log(1/delta) / (n epsilon)), as in [KT]'s theorem 4.5; 0 needs
        `sparse_eigenvalue`, and takes the noise of its corollary 4.7. Else it must be None.
    gradient_bound : float or None, default=None
        [KT]'s gamma, > 0, for "published": bounds the entries of a row's gradient. None: row_linf, times the label
        bound for regression.
    sparse_eigenvalue : float or None, default=None
        [KT]'s mu, > 0, for "published" with penalty=0: the least curvature of the loss along sparse vectors.
    published_constant : float, default=1.0
        [KT]'s c1, > 0.
    n_iter : int, default=100
        Steps of the published variant's teacher, at least 1.

    Examples
    --------
    >>> from tulle import SparseRegressor
    >>> from tulle.methods import KnowledgeTransfer
    >>> from tulle.public_features import UniformFeatures
    >>> model = SparseRegressor(method=KnowledgeTransfer(features=UniformFeatures(-1, 1)))
    >>> model.method.variant
    'sparse'
    """

    def __init__(
        self,
        variant: Variant = "sparse",
        features: Any = None,
        n_public: int | None = None,
        public_seed: int = 0,
        student: Any = "auto",
        unshrink: bool | Literal["auto"] = "auto",
        directions: int | Literal["auto"] | None = "auto",
        perturbation: Literal["objective", "output"] = "objective",
        noise: Literal["auto", "gaussian", "selection"] = "auto",
        screening_share: float | None = None,
        start_share: float = 0.02,
        clip: float | None = None,
        slope_clip: float | None = None,
        row_bound: float | None = None,
        determinant_share: float | None = None,
        penalty: float | None = None,
        gradient_bound: float | None = None,
        sparse_eigenvalue: float | None = None,
        published_constant: float = 1.0,
        n_iter: int = 100,
    ) -> None:
        self.variant = variant
        self.features = features
        self.n_public = n_public
        self.public_seed = public_seed
        self.student = student
        self.unshrink = unshrink
        self.directions = directions
        self.perturbation = perturbation
        self.noise = noise
        self.screening_share = screening_share
        self.start_share = start_share
        self.clip = clip
        self.slope_clip = slope_clip
        self.row_bound = row_bound
        self.determinant_share = determinant_share
        self.penalty = penalty
        self.gradient_bound = gradient_bound
        self.sparse_eigenvalue = sparse_eigenvalue
        self.published_constant = published_constant
        self.n_iter = n_iter

    # --- what will be released ---

    @property
    def only_published(self) -> bool:
        """Whether there is no noise but the paper's."""
        return self.variant == "published"

    @property
    def _own_student(self) -> bool:
        """Whether the student is an estimator of the user's."""
        return not (self.student is None or isinstance(self.student, str))

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
        plan = [Release("start", gaussian(settings.start_share), 1)] if settings.start_share else []
        rest = 1 - settings.start_share
        if settings.screening_share:
            choosing = settings.screening_share * rest
            if settings.selection:
                noise = NoisePerSensitivity(math.sqrt(public.n_nonzero * outputs / choosing))
                plan.append(Release("select", TopK(noise, public.n_nonzero, outputs), 1))
            else:
                plan.append(Release("screen", gaussian(choosing), 1))
        teaching = (1 - settings.screening_share) * rest / outputs
        # The plan depends on the determinant, not on lengths.
        constants = self._constants(public, settings, 1.0, public.n_nonzero)
        by_output = self.perturbation == "output"
        mechanism = gaussian(teaching) if by_output else perturbation(constants, teaching, public)
        plan.append(Release("teacher", mechanism, outputs))
        return tuple(plan)

    def published(self, public: PublicFacts, budget: Budget) -> tuple[Release, ...]:
        """[KT]'s sigma² = 8 m beta s gamma² log(2.5/delta) / (n epsilon lambda)², on top of an exposed teacher."""
        if self.variant != "published":
            raise ValueError(
                f"no paper prints noise for variant={self.variant!r}; use calibration='rigorous' for sound noise, or "
                "variant='published' for the paper's algorithm"
            )
        if budget.delta == 0:
            raise ValueError("the published noise needs delta > 0")
        self._check(public)
        curvature = self._published_penalty(public) or self.sparse_eigenvalue
        assert curvature is not None  # checked
        gamma = self.gradient_bound or public.row_linf * (public.label if public.loss.kind == "regression" else 1.0)
        stretch = math.sqrt(self._n_rows(public) * largest_second_moment(self.features, public))
        claimed = 2 * math.sqrt(public.n_nonzero) * gamma * stretch / (public.n_rows * curvature)
        noise = NoisePerSensitivity(math.sqrt(2 * math.log(2.5 / budget.delta)) / budget.epsilon)
        teacher = [release.scaled(0.0) for release in self._published_teacher(public)]
        return (*teacher, Release("responses", NoiseWithoutProof(noise, claimed), 1))

    def failed_conditions(self, public: PublicFacts, budget: Budget) -> tuple[str, ...]:
        """Why the printed noise proves nothing, whatever the data."""
        return (_REASON,) if self.variant == "published" else ()

    def _published_penalty(self, public: PublicFacts) -> float:
        if self.penalty is not None or public.budget is None:
            return self.penalty or 0.0
        delta = public.budget.delta
        rate = public.n_nonzero * math.log(max(public.n_features, 2)) * math.log(1 / delta) / public.n_rows
        return self.published_constant * math.sqrt(rate / public.budget.epsilon)

    def _ight(self, public: PublicFacts) -> HardThresholding:
        return HardThresholding(n_iter=self.n_iter, noise="gaussian", penalty=self._published_penalty(public))

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
            length = self._length(public, settings, mine)
            constants = self._constants(public, settings, length, coordinates.count)
            theta = self._teacher(ask, constants, coordinates, k)
            if mine is not None and public.budget is not None:
                theta = self._unshrunk(public, settings, constants, theta, mine)
            weights[:d, k] = coordinates.to_weights(theta[: coordinates.count], d)
            weights[d, k] = constants.intercept_value * theta[-1] if constants.intercept_value else 0.0
        return weights

    def teach(self, teacher: FloatArray, public: PublicFacts) -> FloatArray:
        """The student's weights: a function of the teacher's and of what is public."""
        if self.variant == "published":
            return teacher  # its student has learnt already, from noisy answers
        largest = HardThreshold(public.n_nonzero, free_from=public.n_features)(teacher)
        student = self.student
        if student == "auto":
            student = "ight" if self.variant == "dense" else None
        if student is None or self.features is None:
            return largest
        rows = self._public_rows(public)
        margins = np.asarray(rows @ teacher[:-1]) + teacher[-1]
        return train(student, rows, margins, teacher[-1], public.n_nonzero, largest)

    def _coordinates(self, ask: Ask, public: PublicFacts, settings: Settings, rows: Any) -> list[Coordinates]:
        """Where each output's teacher is fitted: on chosen features, on all of them, or in public directions."""
        d, outputs = public.n_features, public.loss.n_outputs
        if self.variant == "dense":
            mixing = None if settings.directions is None else leading_directions(rows, settings.directions)
            return [Coordinates(np.arange(d), mixing)] * outputs
        a = public.row_l2 / 4 if public.row_l2 < math.inf else 1.0
        a = a if public.fit_intercept else 0.0
        w = np.zeros((public.n_parameters, outputs))
        if settings.start_share:
            no_features = np.zeros(w.shape, dtype=bool)
            slopes = ask("start", ClippedGradient(w, settings.clip, "l2", a, no_features, a))[d] / a
            w[d] = [of_one_output(public.loss).constant_margin(float(slope)) / a for slope in slopes]
        if settings.selection:
            chosen = ask("select", Magnitudes(Step(ClippedGradient(w, settings.clip, "linf", a), 1.0)))
        else:
            threshold = HardThreshold(public.n_nonzero, free_from=d)
            chosen = ask("screen", ClippedGradient(w, settings.clip, "l2", a), then=threshold)[:d] != 0
        return [Coordinates(np.flatnonzero(chosen[:, k])) for k in range(outputs)]

    def _teacher(self, ask: Ask, constants: Refinement, coordinates: Coordinates, output: int) -> FloatArray:
        centre = np.zeros(coordinates.count + bool(constants.intercept_value))
        problem = constants.minimiser(coordinates.features, centre, output, coordinates.mixing)
        if self.perturbation == "output":
            return np.asarray(ask("teacher", Teacher(problem))[:, 0])
        return np.asarray(ask("teacher", problem))

    def _unshrunk(
        self, public: PublicFacts, settings: Settings, constants: Refinement, theta: FloatArray, rows: Any
    ) -> FloatArray:
        loss = of_one_output(public.loss)
        if not can_unshrink(loss, len(theta)):
            return theta
        rows = rows if isinstance(rows, np.ndarray) else rows.toarray()
        if constants.intercept_value:
            rows = np.hstack([rows, np.full((len(rows), 1), constants.intercept_value)])
        n, penalty = public.n_rows, constants.penalty
        # The noise is known up to what the accountant found between the Gaussian parts that it was planned in.
        part = (1 - settings.screening_share) * (1 - settings.start_share) / public.loss.n_outputs
        mu = budget_mu(public.budget) * math.sqrt(part)
        moves = 2 * constants.slope_clip * constants.row_bound * public.rows_per_unit / mu if mu < math.inf else 0.0
        by_output = self.perturbation == "output"
        shrinkage = Shrinkage(
            loss=loss,
            slope_clip=constants.slope_clip,
            row_bound=constants.row_bound,
            penalty=penalty / n,
            noise_on_slopes=0.0 if by_output else moves / n,
            noise_on_weights=moves / penalty if by_output else 0.0,
            spread=1.0 if loss.kind == "classification" else min(settings.slope_clip, public.label) ** 2,
            n_rows=n,
        )
        return unshrunk(theta, rows, shrinkage) if settings.unshrink else at_right_length(theta, rows, shrinkage)

    def _run_published(self, ask: Ask, public: PublicFacts) -> FloatArray:
        teacher = self._exact_teacher(ask, replace(public, budget=None), self._ight(public))
        rows = self._public_rows(public)
        exact = np.asarray(rows @ teacher[:-1]) + teacher[-1]
        responses = ask("responses", Known(exact))
        fallback = np.zeros_like(teacher)
        student = self.student if self._own_student else "ight"
        return train(student, rows, responses, teacher[-1], public.n_nonzero, fallback)

    @staticmethod
    def _exact_teacher(ask: Ask, public: PublicFacts, ight: HardThresholding) -> FloatArray:
        """Asked under the facts of a fit without privacy."""
        return ight.run(ask, public)

    # --- defaults: functions of public quantities alone ---

    def settings(self, public: PublicFacts) -> Settings:
        """The settings of a run. Reads nothing but the parameters and public facts."""
        self._check(public)
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
        return Settings(
            selection=selection,
            clip=clip,
            start_share=self.start_share if public.fit_intercept and self.variant == "sparse" else 0.0,
            screening_share=choosing,
            slope_clip=tau,
            determinant_share=self.determinant_share or (0.04 if classify else 0.08),
            directions=self._n_directions(public),
            unshrink=private and (not classify or known_law if self.unshrink == "auto" else self.unshrink),
        )

    def _n_directions(self, public: PublicFacts) -> int | None:
        if self.variant != "dense" or self.features is None or self.directions is None:
            return None
        most = min(self._n_rows(public), public.n_features)
        if self.directions != "auto":
            return min(self.directions, most)
        if isinstance(self.features, FeatureDistribution):
            return None
        count = round(public.n_rows * budget_mu(public.budget) / 14) if public.budget is not None else 500
        count = min(max(count, 1), 500, most)
        return count if count < public.n_features else None

    def _length(self, public: PublicFacts, settings: Settings, rows: Any) -> float:
        """What rows are scaled down to, the constant column not counted."""
        if self.row_bound is not None:
            return self.row_bound
        if public.budget is None:
            return math.inf
        lengths = np.zeros(0) if rows is None else row_norms(rows)
        if np.any(lengths > 0):  # of a few rare words most rows have none
            return max(0.75 * float(np.median(lengths[lengths > 0])), 1e-3 * public.row_l2)
        bound = public.row_l2
        if self.variant == "sparse":
            bound = kept_row_norm(public, settings.selection)
            if public.loss.kind == "classification":
                bound = min(bound, public.row_l2 / 5)
        return bound

    def _constants(self, public: PublicFacts, settings: Settings, length: float, count: int) -> Refinement:
        """The teacher's objective, for rows of at most that length in so many coordinates."""
        a = (length / 4 if length < math.inf else 1.0) if public.fit_intercept else 0.0
        bound = math.hypot(length, a)
        share = settings.determinant_share / public.loss.n_outputs
        constants = refinement_of_share(public, settings.slope_clip, bound, a, share)
        if self.perturbation == "objective":
            return constants
        if public.budget is None:
            return constants if self.penalty is None else replace(constants, penalty=public.n_rows * self.penalty)
        curvature = of_one_output(public.loss).curvature_within(settings.slope_clip, public.label) * bound**2
        penalty = self.penalty or _PENALTY * curvature / max(count, 1)
        # Far below what one row can bend the objective by, floats would no longer certify its minimum.
        penalty = max(penalty, 1e-6 * curvature)
        return replace(constants, penalty=public.n_rows * penalty, log_determinant=0.0)

    def _n_rows(self, public: PublicFacts) -> int:
        if isinstance(self.features, FeatureDistribution):
            return self.n_public or public.n_rows
        return int(np.shape(self.features)[0])

    def _public_rows(self, public: PublicFacts) -> Any:
        return public_rows(self.features, public, self.n_public, self.public_seed)

    def _check(self, public: PublicFacts) -> None:
        name = type(self).__name__
        check_choices(
            self,
            {
                "variant": ("sparse", "dense", "published"),
                "perturbation": ("objective", "output"),
                "noise": ("auto", "gaussian", "selection"),
                "unshrink": ("auto", True, False),
            },
        )
        check_numbers(self, _RANGES, _OPTIONAL)
        check_whole(self, {"n_public": 2, "n_iter": 1, "public_seed": 0}, optional=("n_public",))
        if self.directions not in ("auto", None):
            check_whole(self, {"directions": 1})
        if isinstance(self.student, str) and self.student not in ("auto", "ight"):
            raise ValueError(f"{name}(student=...) must be 'auto', 'ight', None or an estimator, got {self.student!r}")
        if self._own_student and not hasattr(self.student, "fit"):
            raise TypeError(f"{name}(student=...) must have a fit method and, after it, coef_; got {self.student!r}")
        if isinstance(self.student, type):
            raise TypeError(f"{name}(student=...) is a class; pass an object, {self.student.__name__}()")
        if self._own_student and public.loss.kind == "regression" and classifies(self.student):
            raise ValueError(f"{name}(student=...) is a classifier, and this is a regression: {self.student!r}")
        if self.features is None:
            if self.student not in ("auto", None):
                raise ValueError(f"{name}(student=...) learns from public features; give features=... or student=None")
            if self.variant == "published":
                raise ValueError(f"{name}(variant='published') answers on public features; give features=...")
        else:
            check_features(self.features, public.n_features)
        if self.variant != "published":
            check_convex(self, public)
        self._check_penalty()

    def _check_penalty(self) -> None:
        zero = self.variant == "published"
        check_numbers(self, {"penalty": NOT_NEGATIVE if zero else _SENSIBLE}, optional=("penalty",))
        if zero and self.penalty == 0 and self.sparse_eigenvalue is None:
            raise ValueError(
                "KnowledgeTransfer(penalty=0) takes the noise of the paper's corollary 4.7, which divides by a sparse "
                "eigenvalue of the loss; give sparse_eigenvalue=..."
            )
        if not zero and self.penalty is not None and self.perturbation == "objective":
            raise ValueError(
                "KnowledgeTransfer(perturbation='objective') derives its penalty from determinant_share; leave "
                "penalty=None, or use perturbation='output'"
            )

    # --- for the report and for warnings ---

    def describe(self, public: PublicFacts) -> str:
        settings = self.settings(public)
        kept = f"{public.n_nonzero:,} of {public.n_features:,} weights kept"
        if self._own_student:
            kept = "as many weights as its student keeps"
        if self.variant == "published":
            return (
                f"knowledge transfer (DPSL-KT) as published, penalty {self._published_penalty(public):.4g}: an exact "
                f"teacher, {self._n_rows(public):,} answers on public features, {kept}"
            )
        if self.variant == "dense":
            where = "all features" if settings.directions is None else f"{settings.directions} public directions"
        else:
            kind = "one-shot selection" if settings.selection else "Gaussian noise on all scores"
            where = f"features chosen by {kind}"
        student = "no student" if self.features is None else f"{self._n_rows(public):,} public rows"
        return (
            f"knowledge transfer, {self.variant}: a teacher on {where}, its noise on its "
            f"{'minimiser' if self.perturbation == 'output' else 'objective'} (slopes cut at "
            f"{settings.slope_clip:.4g}), {student}, {kept}"
        )

    def assumptions(self, public: PublicFacts) -> tuple[str, ...]:
        """What the promise counts on, for the report."""
        if self.features is None:
            return ()
        return (
            "The features that the teacher answered on were given as public: they are not protected, and the promise "
            "counts on it that they were chosen without looking at the private rows.",
        )

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
