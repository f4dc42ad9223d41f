"""Students: models that learn from a private teacher's answers on public features.

All of it is post-processing. A student sees released weights, public rows and public figures, and nothing that it does
costs any privacy.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit
from sklearn.base import clone, is_classifier

from tulle.trusted.events import FloatArray
from tulle.trusted.losses import AnyLoss, ConvexHuber, ConvexLogistic, ConvexSquared

# The mean of a target and its derivative, as functions of the margin, for losses with a natural link.
_NATURAL: dict[type, Any] = {
    ConvexSquared: (lambda m: m, np.ones_like),
    ConvexHuber: (lambda m: m, np.ones_like),
    ConvexLogistic: (expit, lambda m: expit(m) * expit(-m)),
}

# A Hessian of this many parameters is taken apart in about three seconds.
LARGEST_UNSHRUNK = 2000

_NEWTON_STEPS = 25

# fit(student, rows, responses, n_nonzero) -> the fitted student. Registered by `tulle.estimators.sparse`, which knows
# how a model of tulle is fitted to public rows: without privacy, and so without a bill.
_fit_student: Callable[[Any, Any, FloatArray, int], Any] | None = None


def register_student_fit(fit: Callable[[Any, Any, FloatArray, int], Any]) -> None:
    """Have students fitted by a function of the package of estimators."""
    global _fit_student
    _fit_student = fit


@dataclass(frozen=True, eq=False)
class ThresholdedStudent:
    """The paper's student: iterative gradient hard thresholding (IGHT) of the squared loss.

    Attributes
    ----------
    n_iter : int or None
        Steps. None: as many as hard thresholding takes without privacy.
    step : float or None
        Their size. None: that of normalised iterative hard thresholding.
    start : array of shape (features, outputs) or None
        Where it starts, an output by itself; public. None: 0.
    """

    n_iter: int | None = None
    step: float | None = None
    start: FloatArray | None = None

    def of_output(self, output: int) -> ThresholdedStudent:
        """The student of one output."""
        return self if self.start is None else replace(self, start=self.start[:, output])


@dataclass(frozen=True, eq=False)
class Shrinkage:
    """What made a released teacher too short, and how noisy it is. All of it is public.

    Attributes
    ----------
    loss : AnyLoss
        Of one output.
    slope_clip : float
        Where slopes were cut.
    row_bound : float
        What rows were scaled down to.
    constant : float
        The entry of the constant column, the last, which was not scaled; 0 without one.
    penalty : float
        lambda: the ridge's penalty for a *mean* of losses.
    noise_on_slopes, noise_on_weights : float
        Standard deviations, per coordinate, of what was added to the objective's gradient (a mean over rows), and to
        its minimiser.
    spread : float
        Variance of a target about its mean, over the loss's curvature: 1 for logistic labels. For the sampling error.
    n_rows : int
    """

    loss: AnyLoss
    slope_clip: float
    row_bound: float
    penalty: float
    noise_on_slopes: float
    noise_on_weights: float
    spread: float
    n_rows: int
    constant: float = 0.0

    def scaled(self, rows: FloatArray) -> FloatArray:
        """Rows as the teacher saw them."""
        features = rows[:, : rows.shape[1] - bool(self.constant)]
        room = math.sqrt(max(self.row_bound**2 - self.constant**2, 0.0)) if self.row_bound < math.inf else math.inf
        scale = np.minimum(1.0, room / np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-300))
        return np.hstack([features * scale, rows[:, features.shape[1] :]])


def can_unshrink(loss: AnyLoss, parameters: int) -> bool:
    """Whether `unshrunk` knows the loss and can afford that many parameters."""
    return type(loss.convex) in _NATURAL and parameters <= LARGEST_UNSHRUNK


def unshrunk(theta: FloatArray, rows: FloatArray, shrinkage: Shrinkage) -> FloatArray:
    """The weights behind a penalised, clipped and noisy teacher, given public rows of the same kind.

    Where floats cannot hold the problem it is the teacher as it was: what was released must not be lost.

    At the teacher, whose row x_i was scaled to z_i with the margin m_i, the mean of z_i slope(m_i, y_i) and
    lambda theta add up to 0. A slope is linear in the target, slope = A_i - B_i y_i; cut slopes too, for labels 0 and
    1. So

        mean(B_i z_i y_i) = mean(A_i z_i) + lambda theta .

    The right side can be worked out on public rows. The left side is on average mean(B_i z_i mu(<x_i, w>)) for the
    w that is wanted, mu the mean of a target. So w is fitted to the right side, as a generalised linear model is fitted
    to its sufficient statistics, with a ridge that weighs each direction's signal against its noise. The cut of
    regression slopes is left out: what it does depends on the spread of targets, which is not public.

    Parameters
    ----------
    theta : array of shape (parameters,)
        The released teacher.
    rows : array of shape (m, parameters)
        Public rows in the teacher's coordinates, its constant column included.
    shrinkage : Shrinkage
    """
    return _rescued(theta, lambda: _fit_to(_Statistic.behind(theta, rows, shrinkage), theta))


def at_right_length(theta: FloatArray, rows: FloatArray, shrinkage: Shrinkage) -> FloatArray:
    """The teacher times one number > 0, so that its margins have the size that its statistic implies.

    As `unshrunk` in one direction alone: no sign of a margin changes, and probabilities become what they should be. A
    noisy teacher fits its own noise; by how much, on average, is known and taken off.
    """
    return _rescued(theta, lambda: _lengthened(_Statistic.behind(theta, rows, shrinkage), theta))


def _rescued(theta: FloatArray, better: Callable[[], FloatArray]) -> FloatArray:
    if len(theta) == 0:
        return theta
    try:
        with np.errstate(all="ignore"):
            w = better()
    except (np.linalg.LinAlgError, ArithmeticError, ValueError):
        return theta
    return w if np.isfinite(w).all() else theta


@dataclass(frozen=True, eq=False)
class _Statistic:
    """mean(B z y) as the teacher implies it, in the coordinates of public rows, and how noisy it is."""

    mean: Callable[[FloatArray], FloatArray]
    curvature: Callable[[FloatArray], FloatArray]
    rows: FloatArray
    weighted: FloatArray  # B z / m
    value: FloatArray
    h: FloatArray  # the curvature at the teacher along `directions`
    directions: FloatArray
    stiff: FloatArray
    variance: FloatArray
    least_ridge: float

    @classmethod
    def behind(cls, theta: FloatArray, rows: FloatArray, shrinkage: Shrinkage) -> _Statistic:
        mean, curvature = _NATURAL[type(shrinkage.loss.convex)]
        scaled = shrinkage.scaled(rows)
        margins = scaled @ theta
        intercepts, factors = mean(margins), np.ones(len(rows))
        if type(shrinkage.loss.convex) is ConvexLogistic:
            cut = shrinkage.slope_clip
            up, down = np.minimum(expit(margins), cut), np.minimum(expit(-margins), cut)
            intercepts, factors = up, up + down
        value = scaled.T @ (intercepts / len(rows)) + shrinkage.penalty * theta
        weighted = scaled * (factors / len(rows))[:, None]
        curved = weighted.T @ (curvature(rows @ theta)[:, None] * rows)
        h, directions = np.linalg.eigh((curved + curved.T) / 2)
        if not h[-1] > 1e-200:
            raise ValueError("the public rows say nothing about these coordinates")
        h = np.maximum(h, 1e-9 * h[-1])
        stiff = h + shrinkage.penalty
        variance = shrinkage.noise_on_slopes**2 + (shrinkage.noise_on_weights * stiff) ** 2
        variance = variance + h * shrinkage.spread / shrinkage.n_rows
        # A perturbed objective has a small penalty, below which it pays to go nowhere.
        least = shrinkage.penalty if shrinkage.noise_on_slopes else 0.0
        return cls(mean, curvature, rows, weighted, value, h, directions, stiff, variance, least)


def _fit_to(statistic: _Statistic, theta: FloatArray) -> FloatArray:
    """The weights whose expected statistic it is, with a ridge."""
    rows, weighted, h = statistic.rows, statistic.weighted, statistic.h
    # How large the weights are a priori: the length of the teacher, less its noise, unshrunk on average.
    square = float(theta @ theta)
    signal = max(square - float((statistic.variance / statistic.stiff**2).sum()), 0.01 * square)
    prior = signal / float(((h / statistic.stiff) ** 2).sum())
    ridge = np.maximum(statistic.variance / (h * max(prior, 1e-300)), statistic.least_ridge)
    resistance = (statistic.directions * ridge) @ statistic.directions.T
    w = theta
    for _ in range(_NEWTON_STEPS):
        margins = rows @ w
        gradient = weighted.T @ statistic.mean(margins) - statistic.value + resistance @ w
        hessian = weighted.T @ (statistic.curvature(margins)[:, None] * rows) + resistance
        hessian[np.diag_indices_from(hessian)] += 1e-12 * h[-1]
        step = np.linalg.solve(hessian, gradient)
        # Far out the logistic curvature vanishes, and so would the sense of a whole Newton step.
        if statistic.curvature is not np.ones_like:
            step *= min(1.0, 5.0 / max(float(np.abs(rows @ step).max()), 1e-300))
        w = w - step
        if np.linalg.norm(step) <= 1e-9 * (1.0 + np.linalg.norm(w)):
            break
    return w


# What a teacher of pure noise is multiplied by, at least: its signs stay, its probabilities are near 1/2.
_SHORTEST, _LONGEST = 1e-3, 1e3


def _lengthened(statistic: _Statistic, theta: FloatArray) -> FloatArray:
    margins, towards = statistic.rows @ theta, statistic.weighted @ theta
    wanted = float(theta @ statistic.value) - float((statistic.variance / statistic.stiff).sum())

    def excess(log_factor: float) -> float:  # increases: mean does, and margins and towards have one sign, or nearly
        return float(towards @ statistic.mean(math.exp(log_factor) * margins)) - wanted

    low, high = math.log(_SHORTEST), math.log(_LONGEST)
    if excess(low) >= 0:
        return _SHORTEST * theta
    if excess(high) <= 0:
        return theta
    return math.exp(brentq(excess, low, high, xtol=1e-9)) * theta


def classifies(student: Any) -> bool:
    """Whether an estimator is a classifier; one that does not say so is not."""
    try:
        return bool(is_classifier(student))
    except AttributeError:  # not scikit-learn's own kind
        return False


def train(
    student: Any, rows: Any, margins: FloatArray, intercept: FloatArray, n_nonzero: int, fallback: FloatArray
) -> FloatArray:
    """Weights of shape (features + 1, outputs) of a student that was shown the teacher's margins on public rows.

    Parameters
    ----------
    student : "ight", ThresholdedStudent or estimator
        "ight", a `ThresholdedStudent` with its defaults, keeps `n_nonzero` weights by iterative gradient hard
        thresholding of the squared loss, as in the paper, and takes over the teacher's intercept. An estimator is
        cloned for each output; regressors are shown margins, classifiers the sign that a margin has (for several
        outputs: whether it is the largest).
    rows : array or CSR array of shape (m, features)
    margins : array of shape (m, outputs)
    intercept : array of shape (outputs,)
        The teacher's, which is part of the margins.
    n_nonzero : int
    fallback : array of shape (features + 1, outputs)
        What to return, with a warning, should the student fail: what was released must not be lost.
    """
    if _fit_student is None:
        raise RuntimeError("nothing can fit a student: import tulle.estimators.sparse")
    weights = np.zeros_like(fallback)
    if isinstance(student, str):
        student = ThresholdedStudent()
    try:
        for k in range(margins.shape[1]):
            if isinstance(student, ThresholdedStudent):
                learner = _fit_student(student.of_output(k), rows, margins[:, k] - intercept[k], n_nonzero)
                weights[:, k] = np.append(learner.coef_, intercept[k])
            else:
                learner = clone(student)
                responses = _responses(learner, margins, k)
                weights[:, k] = _weights_of(_fit_student(learner, rows, responses, n_nonzero))
        if not np.isfinite(weights).all():
            raise ValueError("its weights are not finite")
    except Exception as error:  # any error of a user's estimator: the teacher is paid for
        warnings.warn(
            f"the student {student!r} could not be trained ({type(error).__name__}: {error}); the model is the teacher "
            "itself, cut to its largest weights",
            UserWarning,
            stacklevel=2,
        )
        return fallback
    return weights


def _responses(learner: Any, margins: FloatArray, output: int) -> FloatArray:
    """What a student is shown: margins, or the class that they stand for."""
    responses = margins[:, output]
    if not classifies(learner):
        return responses
    first = margins.argmax(axis=1) == output if margins.shape[1] > 1 else responses > 0
    return np.where(first, 1, -1)


def _weights_of(learner: Any) -> FloatArray:
    """The weights and the intercept of a fitted student."""
    coef = learner.coef_
    coef = np.ravel(coef.toarray() if hasattr(coef, "toarray") else coef)
    return np.append(coef, np.ravel(getattr(learner, "intercept_", 0.0))[0])
