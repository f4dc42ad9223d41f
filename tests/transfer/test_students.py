"""Students and unshrinking: what is made of a released teacher, on public rows, after the last question."""

from __future__ import annotations

import math
import re
import warnings
from dataclasses import replace
from typing import Any

import fits
import numpy as np
import pytest
import scipy.sparse as sp
from fits import Array, ridge_fit, shortened
from scipy.optimize import brentq, root
from scipy.special import expit
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.linear_model import Lasso, LogisticRegression

from tulle import Bounds, Budget, Ledger, SparseClassifier, SparseRegressor
from tulle.ledgers.ledger import BudgetExceededError
from tulle.methods import HardThresholding, KnowledgeTransfer
from tulle.methods.loss_functions import Huber, Logistic, Loss, Poisson, Squared, SquaredHinge
from tulle.transfer.public_features import UniformFeatures
from tulle.transfer.students import (
    LARGEST_UNSHRUNK,
    Shrinkage,
    ThresholdedStudent,
    at_right_length,
    can_unshrink,
    train,
    unshrunk,
)
from tulle.trusted.fit import Order, open_account
from tulle.trusted.mechanisms import Gaussian
from tulle.trusted.plan import Plan, PlanError, Release

M, D, KEEP = 300, 8, 3
ROWS = np.random.default_rng(0).uniform(-1, 1, (M, D))
# Three large weights, five small ones, an intercept.
TEACHER = np.array([2.0, 0.0, -1.5, 0.1, 1.0, -0.05, 0.02, 0.0, 0.4])[:, None]
MARGINS = ROWS @ TEACHER[:-1] + TEACHER[-1]
FALLBACK = np.where(np.abs(TEACHER) >= 0.4, TEACHER, 0.0)
LARGE = {0, 2, 4}


def trained(student: Any, rows: Any = ROWS, margins: Array = MARGINS, keep: int = KEEP) -> Array:
    """With warnings as errors: the student is no fallback."""
    outputs = margins.shape[1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return train(
            student, rows, margins, np.full(outputs, TEACHER[-1, 0]), keep, np.repeat(FALLBACK, outputs, axis=1)
        )


# --- students --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array], ids=["dense", "csr"])
def test_the_student_of_the_paper_is_least_squares_on_the_largest_weights(convert: Any) -> None:
    """IGHT with squared loss keeps `n_nonzero` weights, fits them to the margins, and takes the intercept over."""
    weights = trained("ight", convert(ROWS))
    support = np.flatnonzero(weights[:-1, 0])
    assert set(support) == LARGE
    best = np.linalg.lstsq(ROWS[:, support], MARGINS[:, 0] - TEACHER[-1, 0], rcond=None)[0]
    np.testing.assert_allclose(weights[support, 0], best, rtol=1e-4)
    assert weights[-1, 0] == TEACHER[-1, 0]


def test_a_student_who_may_keep_all_weights_repeats_the_teacher() -> None:
    np.testing.assert_allclose(trained("ight", keep=D), TEACHER, atol=1e-4)


@pytest.mark.parametrize(
    ("student", "sparse"),
    [
        (Lasso(alpha=0.05), True),
        (SparseRegressor(None, n_nonzero=KEEP, method="hard_thresholding"), True),
        (SparseRegressor(None, n_nonzero=KEEP, method=KnowledgeTransfer()), True),
        (LogisticRegression(solver="liblinear", l1_ratio=1.0, C=1.0), False),
        (SparseClassifier(None, n_nonzero=KEEP, method="hard_thresholding"), False),
    ],
    ids=["lasso", "hard thresholding", "transfer", "logistic", "classifier"],
)
@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array], ids=["dense", "csr"])
def test_estimators_learn_margins_or_signs(student: Any, sparse: bool, convert: Any) -> None:
    """Regressors come close to the teacher, classifiers to its signs; both put the large weights first."""
    before = repr(student)
    weights = trained(student, convert(ROWS))
    assert set(np.argsort(-np.abs(weights[:-1, 0]))[:KEEP]) == LARGE
    if sparse:
        assert np.count_nonzero(weights[:-1]) <= KEEP
        assert np.abs(weights - FALLBACK).max() < 0.3
    agreement = np.mean((ROWS @ weights[:-1] + weights[-1] > 0) == (MARGINS > 0))
    assert agreement > 0.93
    assert repr(student) == before
    assert not hasattr(student, "coef_"), "a student is cloned, so that it can be used again"


def test_several_outputs_have_a_student_each() -> None:
    """Regressors learn each margin, classifiers whether it is the largest."""
    teachers = np.hstack([TEACHER, np.roll(TEACHER, 1), -TEACHER])
    margins = ROWS @ teachers[:-1]
    for weights in (trained("ight", margins=margins + TEACHER[-1]), trained(Lasso(alpha=0.01), margins=margins)):
        assert np.abs(weights[:-1] - teachers[:-1]).max() < 0.41  # a fourth weight of 0.4 is left out
    weights = trained(LogisticRegression(solver="liblinear", C=10.0), margins=margins)
    agreement = np.mean((ROWS @ weights[:-1] + weights[-1]).argmax(axis=1) == margins.argmax(axis=1))
    assert agreement > 0.9


class Broken(RegressorMixin, BaseEstimator):
    """A student that fails in the way it is told."""

    def __init__(self, way: str = "raises") -> None:
        self.way = way

    def fit(self, X: Any, y: Any) -> Broken:
        if self.way == "raises":
            raise RuntimeError("too hard a lesson")
        if self.way == "nan":
            self.coef_ = np.full(X.shape[1], np.nan)
        if self.way == "short":
            self.coef_ = np.ones(2)
        return self


@pytest.mark.parametrize(
    ("way", "why"),
    [
        ("raises", "RuntimeError: too hard a lesson"),
        ("nan", "ValueError: its weights are not finite"),
        ("short", "ValueError: could not broadcast"),
        ("nothing", "AttributeError: 'Broken' object has no attribute 'coef_'"),
    ],
)
def test_where_a_student_fails_the_teacher_is_kept(way: str, why: str) -> None:
    """A warning says why, and the model is the teacher, cut to its largest weights: it was paid for."""
    message = re.escape(f"the student Broken(way={way!r}) could not be trained ({why}" if way != "raises" else why)
    with pytest.warns(UserWarning, match=message):
        weights = train(Broken(way), ROWS, MARGINS, TEACHER[-1], KEEP, FALLBACK)
    np.testing.assert_array_equal(weights, FALLBACK)


def fitted(student: Any, variant: Any = "dense", **parameters: Any) -> Any:
    X, y = fits.problem("regression", 400)
    method = KnowledgeTransfer(variant, UniformFeatures(), student=student)
    return fits.model_for("regression", 5.0, method, n_nonzero=KEEP, **parameters).fit(X, y)


def test_a_fit_with_a_student_that_fails_is_not_lost() -> None:
    """The model is the thresholded teacher, the teacher and the report are all there."""
    with pytest.warns(UserWarning, match="the model is the teacher itself, cut to its largest weights"):
        model = fitted(Broken())
    kept = np.argsort(-np.abs(model.teacher_coef_))[:KEEP]
    assert set(model.support_) == set(kept)
    np.testing.assert_array_equal(model.coef_[kept], model.teacher_coef_[kept])
    assert 4.95 < model.privacy_.epsilon <= 5


def test_no_student_is_the_same_model_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = fitted(None)
    with pytest.warns(UserWarning, match="could not be trained"):
        np.testing.assert_array_equal(model.coef_, fitted(Broken()).coef_)
    assert np.count_nonzero(model.teacher_coef_) == fits.D


@pytest.mark.parametrize("student", ["ight", Lasso(alpha=0.05), SparseRegressor(None, n_nonzero=KEEP)], ids=str)
def test_the_teacher_does_not_depend_on_its_student(student: Any) -> None:
    """Nor do bill and report: a student is post-processing."""
    model, alone = fitted(student), fitted(None)
    np.testing.assert_array_equal(model.teacher_coef_, alone.teacher_coef_)
    assert model.teacher_intercept_ == alone.teacher_intercept_
    # The text about the method names how many weights the student keeps; the rest is the same.
    assert replace(model.privacy_, method="") == replace(alone.privacy_, method="")
    assert 0 < np.count_nonzero(model.coef_) < fits.D


# --- ledgers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "student",
    ["ight", SparseRegressor(None)],
    ids=["ight", "exact"],
)
def test_a_student_is_not_billed(student: Any) -> None:
    """Inside a ledger a fit with a student costs what the fit without one costs."""
    spent = []
    for one in (None, student):
        with Ledger(Budget(20.0, 1e-3)) as ledger, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fitted(one, delta=1e-5)
            assert not [one for one in caught if "could not be trained" in str(one.message)]
            spent.append(ledger.epsilon)
            assert len(ledger.fits) == 1
    assert spent[0] == spent[1]


def test_what_comes_after_a_student_is_billed_again() -> None:
    """Also after one that failed: nothing but the student is exempt."""
    with Ledger(Budget(5.0, 1e-5)) as ledger:
        with pytest.warns(UserWarning, match="could not be trained"):
            fitted(Broken(), delta=1e-5)
        with pytest.raises(BudgetExceededError):
            fitted(None, delta=1e-5)
        assert len(ledger.fits) == 1


class Prying(BaseEstimator):
    """A student that fits another model, without privacy or with it, to rows that it was not given."""

    def __init__(self, model: Any, X: Any, y: Any) -> None:
        self.model, self.X, self.y = model, X, y

    def fit(self, X: Any, y: Any) -> Any:
        self.coef_ = self.model.fit(self.X, self.y).coef_
        return self


@pytest.mark.parametrize("epsilon", [None, 30.0])
def test_what_a_student_releases_of_other_rows_is_billed(epsilon: float | None) -> None:
    """A fit inside of a student goes through the ledger like all others."""
    X, y = fits.problem("regression", 50)
    with Ledger(Budget(20.0, 1e-3)) as ledger:
        with pytest.warns(UserWarning, match="could not be trained .BudgetExceededError"):
            fitted(Prying(SparseRegressor(epsilon, bounds=fits.BOUNDS), X, y), delta=1e-5)
        assert len(ledger.fits) == 1


def test_a_private_student_is_billed() -> None:
    """Nothing with noise goes unbilled: whether its rows are public is not for trusted code to know."""
    with Ledger(Budget(20.0, 1e-3)) as ledger:
        fitted(SparseRegressor(1.0, bounds=fits.BOUNDS), delta=1e-5)
        assert len(ledger.fits) == 2
    plan = Plan((Release("x", Gaussian(), 1),))
    with pytest.raises(PlanError, match="must be billed"), open_account(Order("x", (plan,), 1e-5), ledgers=()):
        pass


# --- unshrinking -----------------------------------------------------------------------------------------------------

WEIGHTS = np.array([1.2, -0.8, 0.5, 0.0, 0.3])
N = 20_000


def private_rows(loss: str) -> tuple[Array, Array]:
    """Rows and targets of a model that is true, with a constant column of 1/2 for the last weight."""
    rng = np.random.default_rng(1)
    X = np.hstack([rng.normal(size=(N, 4)), np.full((N, 1), 0.5)])
    margins = X @ WEIGHTS
    if loss == "logistic":
        return X, np.where(rng.random(N) < expit(margins), 1.0, -1.0)
    return X, margins + 0.3 * rng.standard_normal(N)


def teacher_of(loss: str, tau: float, bound: float, penalty: float) -> Array:
    """The penalised fit with cut slopes and cut rows, by a root finder."""
    X, y = private_rows(loss)
    return ridge_fit(shortened(X[:, :4], bound, 0.5), y, loss, tau, N * penalty, np.zeros(5))


def public_copies(m: int) -> Array:
    return np.hstack([np.random.default_rng(2).normal(size=(m, 4)), np.full((m, 1), 0.5)])


def shrinkage(loss: Loss, tau: float, bound: float, penalty: float, **changes: Any) -> Shrinkage:
    return replace(Shrinkage(loss, tau, bound, penalty, 0.0, 0.0, 1.0, N, 0.5), **changes)


@pytest.mark.parametrize(
    ("loss", "tau", "bound", "penalty"),
    [
        ("squared", math.inf, math.inf, 1.0),
        ("squared", math.inf, 1.5, 0.5),
        ("squared", 10.0, 1.0, 2.0),
        ("logistic", math.inf, math.inf, 0.3),
        ("logistic", 0.5, 1.5, 0.1),
        ("logistic", 0.3, 1.0, 0.15),
    ],
)
def test_what_penalty_and_cuts_took_away_is_given_back(loss: str, tau: float, bound: float, penalty: float) -> None:
    """With many public rows of the same law and no noise the true weights come back, from a teacher far too short.

    20,000 private and 20,000 public rows: over seeds the error is 0.07 on average at most, with a deviation of 0.017,
    so that 0.18 is a false alarm of about 10^-6.
    """
    theta = teacher_of(loss, tau, bound, penalty)
    kind: Loss = Logistic() if loss == "logistic" else Squared()
    found = unshrunk(theta, public_copies(20_000), shrinkage(kind, tau, bound, penalty))
    off = np.linalg.norm(theta - WEIGHTS)
    assert off > 0.3
    assert np.linalg.norm(found - WEIGHTS) < min(0.18, off / 3)


def gap(w: Array, theta: Array, rows: Array, loss: str, tau: float, bound: float, penalty: float) -> Array:
    """mean(A_i z_i) + lambda theta - mean(B_i z_i mu(<x_i, w>)), row by row."""
    total = penalty * theta
    for x in rows:
        z = np.append(x[:4] * min(1.0, math.sqrt(bound**2 - x[4] ** 2) / np.linalg.norm(x[:4])), x[4])
        margin, wanted = z @ theta, x @ w
        if loss == "logistic":
            # The slope for label 1 is -min(1 - p, tau), for label 0 it is min(p, tau).
            up, down = min(float(expit(margin)), tau), min(float(expit(-margin)), tau)
            total = total + z * (up - (up + down) * expit(wanted)) / len(rows)
        else:
            total = total + z * (margin - wanted) / len(rows)
    return total


@pytest.mark.parametrize(("loss", "tau", "bound"), [("squared", math.inf, 1.5), ("logistic", 0.3, 1.2)])
def test_it_is_the_root_of_the_equation_that_it_states(loss: str, tau: float, bound: float) -> None:
    """In all directions at once, or in that of the teacher alone, by a root finder; spread and noise are 0."""
    rows, theta = public_copies(300), np.array([0.5, -0.3, 0.2, 0.1, 0.1])
    case = (theta, rows, loss, tau, bound, 0.1)
    kind: Loss = Logistic() if loss == "logistic" else Squared()
    given = shrinkage(kind, tau, bound, 0.1, spread=0.0)
    found = unshrunk(theta, rows, given)
    np.testing.assert_allclose(found, root(gap, theta, case, tol=1e-12).x, rtol=1e-5, atol=1e-7)
    assert np.linalg.norm(found - theta) > 0.05
    factor = brentq(lambda c: float(theta @ gap(c * theta, *case)), 0.01, 100.0)
    np.testing.assert_allclose(at_right_length(theta, rows, given), factor * theta, rtol=1e-6)
    assert abs(factor - 1) > 0.05


@pytest.mark.parametrize(("tau", "bound", "penalty"), [(math.inf, math.inf, 0.3), (0.5, 1.5, 0.1), (0.3, 1.0, 0.15)])
def test_the_right_length_makes_probabilities_what_they_should_be(tau: float, bound: float, penalty: float) -> None:
    """The factor that describes the labels best is 1 within 0.1 after it, and far from 1 before.

    Its deviation over seeds is 0.017: a false alarm of about 10^-8.
    """
    X, y = private_rows("logistic")
    theta = teacher_of("logistic", tau, bound, penalty)
    longer = at_right_length(theta, public_copies(20_000), shrinkage(Logistic(), tau, bound, penalty))

    def best_factor(margins: Array) -> float:
        return float(brentq(lambda c: float(margins @ (expit(c * margins) - (y > 0))), 0.01, 100.0))

    assert best_factor(X @ longer) == pytest.approx(1.0, abs=0.1)
    assert abs(best_factor(X @ theta) - 1) > 0.5
    np.testing.assert_array_equal(np.sign(X @ longer), np.sign(X @ theta))


@pytest.mark.parametrize("kind", [Squared(), Logistic()], ids=["squared", "logistic"])
def test_a_teacher_of_pure_noise_becomes_short_and_keeps_its_signs(kind: Loss) -> None:
    """What it fits of its own noise is taken off: next to nothing is left of its length."""
    theta = 0.01 * np.array([0.5, -0.3, 0.2, 0.1, 0.1])
    for place in ("noise_on_slopes", "noise_on_weights"):
        found = at_right_length(theta, public_copies(500), shrinkage(kind, 0.5, 1.5, 0.3, **{place: 1.0}))
        np.testing.assert_allclose(found, 1e-3 * theta)


def test_noise_makes_it_careful() -> None:
    """The more noise was added, wherever, the shorter what is given back; without any it is longest."""
    theta = np.array([0.5, -0.3, 0.2, 0.1, 0.1])
    rows = public_copies(500)
    for place in ("noise_on_slopes", "noise_on_weights"):
        lengths = [
            np.linalg.norm(unshrunk(theta, rows, shrinkage(Squared(), 1.0, 1.5, 0.3, **{place: noise})))
            for noise in (0.0, 0.1, 0.5, 5.0)
        ]
        assert lengths == sorted(lengths, reverse=True)
        assert lengths[0] > 1.2 * lengths[-1]
        assert lengths[0] > np.linalg.norm(theta)


@pytest.mark.parametrize("kind", [Squared(), Huber(), Logistic()], ids=["squared", "huber", "logistic"])
@pytest.mark.parametrize(
    ("theta", "rows"),
    [
        (np.zeros(0), np.zeros((9, 0))),
        (np.zeros(3), np.ones((9, 3))),
        (np.ones(3), np.zeros((9, 3))),
        (np.full(3, 1e300), np.ones((9, 3))),
        (np.ones(3), np.full((9, 3), 1e200)),
        (np.ones(3), np.full((9, 3), 1e-200)),
        (np.full(3, 50.0), 10 * np.eye(3)),
        (np.ones(3), np.outer(np.arange(9.0), np.ones(3))),
    ],
    ids=["nothing", "zero", "no rows", "huge", "huge rows", "tiny rows", "saturated", "one direction"],
)
def test_it_is_finite_whatever_it_is_given(kind: Loss, theta: Array, rows: Array) -> None:
    """Where there is nothing to go by, the teacher stays as it is: it is never lost."""
    for better in (unshrunk, at_right_length):
        for noise in (0.0, 1.0):
            found = better(theta, rows, shrinkage(kind, 0.3, 1.0, 0.1, noise_on_slopes=noise, n_rows=100))
            assert found.shape == theta.shape
            assert np.all(np.isfinite(found))


def test_which_losses_can_be_unshrunk() -> None:
    """Those with a natural link, up to a size; classes derived from them are not known."""
    for loss in (Squared(), Huber(), Logistic()):
        assert can_unshrink(loss, LARGEST_UNSHRUNK)
        assert not can_unshrink(loss, LARGEST_UNSHRUNK + 1)
    for other in (SquaredHinge(), Poisson(), type("Own", (Squared,), {})()):
        assert not can_unshrink(other, 3)


@pytest.mark.parametrize("loss", ["squared_hinge", "poisson"])
@pytest.mark.parametrize("perturbation", ["output", "objective"])
def test_other_losses_keep_their_teacher_as_it_is(loss: str, perturbation: Any) -> None:
    """unshrink changes nothing for a loss that is not known, and neither do public features."""
    X, y = fits.problem(loss, 300)
    models = [
        fits.model_for(
            loss,
            2.0,
            KnowledgeTransfer(features=features, perturbation=perturbation, unshrink=unshrink, row_bound=0.9),
            loss=loss,
            n_nonzero=KEEP,
        ).fit(X, y)
        for features, unshrink in ((UniformFeatures(), True), (UniformFeatures(), False), (None, "auto"))
    ]
    for other in models[1:]:
        np.testing.assert_array_equal(models[0].coef_, other.coef_)


@pytest.mark.parametrize("loss", ["squared", "logistic", "huber"])
@pytest.mark.parametrize(("perturbation", "row_bound"), [("output", 2.0), ("objective", 0.8)])
def test_in_a_fit_it_corrects_the_teacher(loss: str, perturbation: Any, row_bound: float) -> None:
    """With the same seed, on public rows of the private rows' own law, the model comes much closer to the truth.

    A large penalty made the one teacher too short, and cut rows the other too long.
    """
    rng = np.random.default_rng(0)
    truth = np.array([1.0, -2.0, 0.5, 0, 0, 0])
    X = rng.uniform(-1, 1, (8000, 6))
    y = X @ truth + 0.1 * rng.standard_normal(8000)
    if loss == "logistic":
        y = (rng.random(8000) < expit(X @ truth)).astype(float)
    errors = []
    for features, unshrink in ((UniformFeatures(), True), (UniformFeatures(), False), (None, "auto")):
        method = KnowledgeTransfer(features=features, perturbation=perturbation, unshrink=unshrink, row_bound=row_bound)
        model = fits.model_for(
            loss, 4.0, method, loss=loss, n_nonzero=3, bounds=Bounds(row_linf=1.0, label=4.0), fit_intercept=False
        )
        errors.append(float(np.linalg.norm(np.ravel(model.fit(X, y).coef_) - truth)))
    assert errors[2] > 0.6
    assert max(errors[:2]) < 0.4 * errors[2]


def test_the_student_of_the_paper_is_the_estimator_without_privacy() -> None:
    """ "ight" is a SparseRegressor(None) by hard thresholding, without an intercept of its own."""
    alone = SparseRegressor(None, n_nonzero=KEEP, method=HardThresholding(), fit_intercept=False)
    alone.fit(ROWS, MARGINS[:, 0] - TEACHER[-1, 0])
    np.testing.assert_array_equal(trained("ight")[:-1, 0], alone.coef_)
    np.testing.assert_array_equal(trained(ThresholdedStudent()), trained("ight"))


def test_the_student_of_the_paper_takes_the_steps_that_are_given() -> None:
    """Two steps of size 0.7 by hand: from 0 down the mean of squares / 2, the largest weights kept."""
    w = np.zeros(D)
    for _ in range(2):
        w = w - 0.7 * ROWS.T @ (ROWS @ w - MARGINS[:, 0] + TEACHER[-1, 0]) / len(ROWS)
        w[np.argsort(-np.abs(w))[KEEP:]] = 0.0
    np.testing.assert_allclose(trained(ThresholdedStudent(2, 0.7))[:-1, 0], w, rtol=1e-9)
