"""Settings of `KnowledgeTransfer`: the coordinates of its teacher, what a run goes by, and checks of its parameters."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.extmath import row_norms

from tulle.methods.loss_functions import of_one_output
from tulle.methods.noise_scales import budget_mu, kept_row_norm, tellable_directions
from tulle.methods.parameter_checks import (
    NOT_NEGATIVE,
    POSITIVE,
    SHARE,
    Range,
    check_choices,
    check_numbers,
    check_whole,
)
from tulle.methods.penalised_fit import Refinement, check_convex
from tulle.methods.public_start import read_method_start
from tulle.methods.theorem_settings import missing_of, refuse
from tulle.transfer.public_features import FeatureDistribution, check_features, largest_second_moment
from tulle.transfer.students import Shrinkage, at_right_length, can_unshrink, classifies, unshrunk
from tulle.trusted.events import FloatArray
from tulle.trusted.facts import PublicFacts

_SENSIBLE: Range = ("lie in [1e-100, 1e100]", lambda value: 1e-100 <= value <= 1e100)

_RANGES: dict[str, Range] = {
    "screening_share": SHARE,
    "clip": POSITIVE,
    "slope_clip": POSITIVE,
    "row_bound": _SENSIBLE,
    "gradient_bound": POSITIVE,
    "sparse_eigenvalue": POSITIVE,
    "published_constant": POSITIVE,
    "teacher_step": POSITIVE,
    "student_step": POSITIVE,
    "smoothness": POSITIVE,
    "step_constant": POSITIVE,
}

_OPTIONAL = (
    "screening_share",
    "clip",
    "slope_clip",
    "row_bound",
    "gradient_bound",
    "sparse_eigenvalue",
    "teacher_step",
    "student_step",
    "smoothness",
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
    curvature: float  # xi of the teacher's objective
    directions: int | None
    unshrink: bool
    pure: bool  # whether every release is purely epsilon-private
    by_output: bool  # whether the teacher's noise goes on its minimiser


def n_public_rows(method: Any, public: PublicFacts) -> int:
    """How many public rows the teacher of a `KnowledgeTransfer` answers on."""
    if isinstance(method.features, FeatureDistribution):
        return method.n_public or public.n_rows
    return int(np.shape(method.features)[0])


def n_directions(method: Any, public: PublicFacts) -> int | None:
    """In how many public directions its teacher is fitted; None where each feature is one."""
    if method.variant != "dense" or method.features is None or method.directions is None:
        return None
    most = min(n_public_rows(method, public), public.n_features)
    if method.directions != "auto":
        return min(method.directions, most)
    if isinstance(method.features, FeatureDistribution):
        return None
    count = min(tellable_directions(public), most)
    return count if count < public.n_features else None


def is_own_student(student: Any) -> bool:
    """Whether the student is an estimator of the user's."""
    return not (student is None or isinstance(student, str))


def check_parameters(method: Any, public: PublicFacts) -> None:
    """Raise where a parameter of a `KnowledgeTransfer` is out of its range, or does not go with another."""
    name = type(method).__name__
    check_choices(
        method,
        {
            "variant": ("sparse", "dense", "published"),
            "perturbation": ("objective", "output"),
            "noise": ("auto", "gaussian", "selection"),
            "unshrink": ("auto", True, False),
        },
    )
    check_numbers(method, {key: _RANGES[key] for key in _RANGES if getattr(method, key) != "theorem"}, _OPTIONAL)
    check_whole(method, {"n_public": 2, "n_iter": 1, "student_iter": 1}, optional=("n_public", "student_iter"))
    if method.directions not in ("auto", None):
        check_whole(method, {"directions": 1})
    if isinstance(method.student, str) and method.student not in ("auto", "ight"):
        raise ValueError(f"{name}(student=...) must be 'auto', 'ight', None or an estimator, got {method.student!r}")
    if is_own_student(method.student) and not hasattr(method.student, "fit"):
        raise TypeError(f"{name}(student=...) must have a fit method and, after it, coef_; got {method.student!r}")
    if isinstance(method.student, type):
        raise TypeError(f"{name}(student=...) is a class; pass an object, {method.student.__name__}()")
    ruled = [
        one for one in ("class_weight", "always", "feature_groups") if getattr(method.student, one, None) is not None
    ]
    if ruled and hasattr(method.student, "feature_groups"):  # tulle's own
        raise ValueError(f"{name}(student=...) takes no {' and no '.join(ruled)}: answers have no classes or names")
    if is_own_student(method.student) and public.loss.kind == "regression" and classifies(method.student):
        raise ValueError(f"{name}(student=...) is a classifier, and this is a regression: {method.student!r}")
    if method.features is None:
        if method.student not in ("auto", None):
            raise ValueError(f"{name}(student=...) learns from public features; give features=... or student=None")
        if method.variant == "published":
            raise ValueError(f"{name}(variant='published') answers on public features; give features=...")
    else:
        check_features(method.features, public.n_features)
    if method.variant != "published":
        check_convex(method, public)
        if method.teacher_step is not None:
            raise ValueError(f"{name}(teacher_step=...) is for variant='published'; other teachers are minimisers")
        if method.start is not None:
            raise ValueError(
                f"{name}(start=...) is for variant='published'; other teachers are minimisers, which start from nothing"
            )
    read_method_start(method, public)
    if is_own_student(method.student) and (method.student_iter, method.student_step) != (None, None):
        raise ValueError(f"{name}(student_iter=..., student_step=...) are for student='ight', not for one of your own")
    _check_penalty(method)
    if method.features is not None:  # what a theorem prescribes can be evaluated
        published_teacher_step(method, public)
        published_student_step(method, public)


# Places in the paper that prescribe a penalty by formulas that no source of this package has.
_UNKNOWN_PENALTIES = ("theorem_4.5", "corollary_4.9", "corollary_4.12")


def published_penalty(method: Any, public: PublicFacts) -> float:
    """[KT]'s λ: the given one, or c1 sqrt(s log(d) log(1/delta) / (n epsilon)); 0 without privacy."""
    named = method.penalty == "section_5"
    if public.budget is None or not (named or method.penalty is None):
        return 0.0 if named else method.penalty or 0.0
    if public.budget.delta == 0:
        raise ValueError("the published noise needs delta > 0")
    rate = public.n_nonzero * math.log(max(public.n_features, 2)) * math.log(1 / public.budget.delta) / public.n_rows
    return float(method.published_constant * math.sqrt(rate / public.budget.epsilon))


def published_teacher_step(method: Any, public: PublicFacts) -> float | None:
    """[KT]'s η1: the given one, or C λ / β̄²."""
    if method.teacher_step != "theorem":
        return None if method.teacher_step is None else float(method.teacher_step)
    missing = missing_of(method, {"smoothness": "β̄, the largest curvature of the mean loss along sparse vectors"})
    penalty = published_penalty(method, public)
    if not penalty > 0:
        missing.append("a penalty > 0 (λ)" if public.budget is not None else "a penalty > 0 (λ) and a privacy budget")
    if missing:
        refuse(method, "teacher_step", missing)
    return float(method.step_constant * penalty / method.smoothness**2)


def published_student_step(method: Any, public: PublicFacts) -> float | None:
    """[KT]'s η2: the given one, or C / β̃, β̃ being the spectral norm of the public features' second moments."""
    if method.student_step != "theorem":
        return None if method.student_step is None else float(method.student_step)
    return float(method.step_constant / largest_second_moment(method.features, public))


def _check_penalty(method: Any) -> None:
    zero = method.variant == "published"
    if method.penalty in _UNKNOWN_PENALTIES:
        raise ValueError(
            f"KnowledgeTransfer(penalty={method.penalty!r}) cannot be evaluated without the formula of λ in "
            f"{method.penalty.replace('_', ' ')} of the paper, which no source of this package has; give the value of "
            "λ, or penalty='section_5'"
        )
    if zero and isinstance(method.penalty, str) and method.penalty == "section_5":
        return
    check_numbers(method, {"penalty": NOT_NEGATIVE if zero else _SENSIBLE}, optional=("penalty",))
    if zero and method.penalty == 0 and method.sparse_eigenvalue is None:
        raise ValueError(
            "KnowledgeTransfer(penalty=0) takes the noise of the paper's corollary 4.7, which divides by a sparse "
            "eigenvalue of the loss; give sparse_eigenvalue=..."
        )
    if not zero and method.penalty is not None and method.perturbation == "objective":
        raise ValueError(
            "KnowledgeTransfer(perturbation='objective') derives its penalty from the privacy budget; leave "
            "penalty=None, or use perturbation='output'"
        )


def teacher_length(method: Any, public: PublicFacts, settings: Settings, rows: Any) -> float:
    """What rows are scaled down to, the constant column not counted."""
    if method.row_bound is not None:
        return float(method.row_bound)
    if public.budget is None:
        return math.inf
    lengths = np.zeros(0) if rows is None else row_norms(rows)
    if np.any(lengths > 0):  # of a few rare words most rows have none
        return max(0.75 * float(np.median(lengths[lengths > 0])), 1e-3 * public.row_l2)
    bound = public.row_l2
    if method.variant == "sparse":
        bound = kept_row_norm(public, settings.selection)
        if public.loss.kind == "classification":
            bound = min(bound, public.row_l2 / 5)
    return bound


def correct_length(
    public: PublicFacts, settings: Settings, constants: Refinement, theta: FloatArray, rows: Any
) -> FloatArray:
    """A released teacher freed of its penalty, or at the right length, by public rows."""
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
    if settings.pure and public.budget is not None:  # Laplace noise, scaled by the ℓ1 norm, in standard deviations
        mu = public.budget.epsilon * part / math.sqrt(2 * len(theta))
    moves = 2 * constants.slope_clip * constants.row_bound * public.rows_per_unit / mu if mu < math.inf else 0.0
    shrinkage = Shrinkage(
        loss=loss,
        slope_clip=constants.slope_clip,
        row_bound=constants.row_bound,
        penalty=penalty / n,
        noise_on_slopes=0.0 if settings.by_output else moves / n,
        noise_on_weights=moves / penalty if settings.by_output else 0.0,
        spread=1.0 if loss.kind == "classification" else min(settings.slope_clip, public.label) ** 2,
        n_rows=n,
        constant=constants.intercept_value,
    )
    return unshrunk(theta, rows, shrinkage) if settings.unshrink else at_right_length(theta, rows, shrinkage)
