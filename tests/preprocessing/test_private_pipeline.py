"""`PrivatePipeline`: one plan, one calibration and one bill for steps and model; refusals come before it.

Statistical tests fix their seed; false alarms are stated where there are any.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from private_steps import EVERY_STEP, GAUSSIAN, STEPS, Answered, private, step_of, table, words
from sensitivity_replay import Conversation, Tally, hostile_row
from sklearn.base import clone
from sklearn.feature_extraction.text import HashingVectorizer, TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.preprocessing import Normalizer, StandardScaler

from tulle import Bounds, Budget, Ledger, PrivatePipeline, SparseClassifier, SparseRegressor, check_pipeline
from tulle.accounting.gaussian_budget import gaussian_mu
from tulle.audit import audit_function
from tulle.estimators import memory_check
from tulle.ledgers.ledger import BudgetExceededError
from tulle.methods import CoordinateDescent, FrankWolfe, HardThresholding
from tulle.preprocessing import PrivateImputer, PrivateScaler, PrivateWeights
from tulle.trusted.accountants import epsilon
from tulle.trusted.plan import Plan

pytestmark = pytest.mark.filterwarnings("ignore:.*rows of .*:UserWarning")  # of few rows

CAP = Budget(100.0, 1e-2)
METHODS: dict[str, Any] = {
    **{name: name for name in ("auto", "screen_refine", "stochastic_hard_thresholding", "two_stage")},
    "knowledge_transfer": "knowledge_transfer",
    "gaussian": GAUSSIAN,
    "laplace": HardThresholding(n_iter=2, noise="laplace"),
    "frank_wolfe, selection": FrankWolfe(n_iter=3, noise="selection"),
    "coordinate_descent, selection": CoordinateDescent(n_iter=3, noise="selection"),
}


# --- the bill --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [0.2, 1.0, 8.0])
@pytest.mark.parametrize("method", METHODS)
def test_the_whole_budget_is_proved_and_shares_hold(method: str, budget: float) -> None:
    """Whatever mechanisms the method has, and whichever accountant proves them: a step costs its share of what Gaussian
    releases may cost in all, up to what choices and batches lose when they are accounted for together with it."""
    X, y = table()
    pipeline = private(PrivateScaler(), budget, method=METHODS[method], delta=1e-5, shares={"step": 0.2}).fit(X, y)
    report = pipeline.privacy_
    assert 0.99 * budget < report.epsilon <= budget * (1 + 1e-9)
    line = next(one for one in report.bill if one.release == "quartiles")
    assert line.count == 18
    share = 18 / (line.noise_per_sensitivity * gaussian_mu(budget, 1e-5)) ** 2
    assert share == pytest.approx(0.2, rel=1e-4 if method in ("auto", "gaussian") else 0.35)


class Noting(Ledger):
    """A ledger that keeps the plans it was billed for."""

    plans: tuple[Plan, ...] = ()

    def bill(self, what: str, plans: Any, *price: Any) -> int:
        Noting.plans = tuple(plans)
        return super().bill(what, plans, *price)


@pytest.mark.parametrize("name", STEPS)
def test_the_ledger_has_one_entry_which_is_the_plan(name: str, answers: list[Answered]) -> None:
    X, y = table()
    with Noting(CAP) as ledger:
        report = private(STEPS[name], method="auto").fit(X, y).privacy_
    (plan,) = Noting.plans
    planned = [(release.name, release.count, release.mechanism.noise.value) for release in plan]
    assert planned == [(line.release, line.count, line.noise_per_sensitivity) for line in report.bill]
    assert len(answers) == {release: count for release, count, _ in planned}[name]
    assert [what for what, _ in ledger.fits] == ["SparseClassifier.fit"]
    assert epsilon(plan, report.delta) == pytest.approx(report.epsilon, rel=1e-9)
    assert any(line.startswith(type(STEPS[name]).__name__) for line in report.assumptions)


def test_without_privacy_nothing_is_noisy_and_nothing_is_promised() -> None:
    X, y = words()
    weights = step_of(private(PrivateWeights(), None).fit(X, y)).weights_
    unit = X.toarray() / np.maximum(sp.linalg.norm(X, axis=1)[:, None], 1e-300)
    expected = np.maximum(unit.mean(axis=0), 1e-9) ** -0.5
    np.testing.assert_allclose(weights, expected / expected.max(), rtol=1e-9)
    dense, labels = table()
    scaler = private(PrivateScaler(rounds=30), None).fit(dense, labels)
    np.testing.assert_allclose(step_of(scaler).low_, np.quantile(dense, 0.25, axis=0), rtol=0.05, atol=0.02)
    assert math.isinf(scaler.privacy_.epsilon)
    with Ledger(CAP), pytest.raises(BudgetExceededError):
        private(PrivateScaler(), None).fit(dense, labels)


def test_dense_rows_and_csr_give_one_model() -> None:
    """Noise included."""
    X, y = words()
    one, *others = (private(PrivateWeights()).fit(rows, y) for rows in (X, X.toarray(), sp.csc_array(X)))
    for other in others:
        np.testing.assert_allclose(step_of(other).weights_, step_of(one).weights_, rtol=1e-9)
        np.testing.assert_allclose(other.model_.coef_, one.model_.coef_, rtol=0, atol=1e-9)


def test_plain_code_and_faster_code_agree() -> None:
    """TULLE_PLAIN=1 in another process: the same weights, quartiles and model, up to the rounding of sums."""
    code = (
        "import numpy as np, sys; sys.path[:0] = ['tests', 'tests/preprocessing']\n"
        "from private_steps import *\n"
        "for step, rows in ((PrivateWeights(), words()), (PrivateScaler(), table())):\n"
        "    fitted = private(step).fit(*rows)\n"
        "    print(*np.r_[getattr(step_of(fitted), step.learnt[0]), fitted.model_.coef_.ravel()], sep='\\n')\n"
    )
    answers = [
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code],
            env={**os.environ, "TULLE_PLAIN": setting},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for setting in ("", "1")
    ]
    assert len(answers[0]) == 30 + 30 + 5 + 5
    fast, plain = (np.array(one, dtype=float) for one in answers)
    np.testing.assert_allclose(fast, plain, rtol=1e-9, atol=1e-12)


# --- refused, before anything is billed ------------------------------------------------------------------------------

DENSE = table(60, 3)[0]
LABELS = DENSE[:, 0] > 0


def of(*steps: Any, **model: Any) -> Any:
    named = [(f"step {number}", step) for number, step in enumerate(steps)]
    return PrivatePipeline([*named, ("model", SparseClassifier(classes=[False, True], **model))])


REFUSED: dict[str, tuple[Any, Any, str]] = {
    "a scaler without a bill": (of(StandardScaler(), PrivateScaler()), DENSE, "neither public nor private.*Standard"),
    "a vocabulary": (of(TfidfVectorizer(), PrivateWeights()), ["secret"] * 60, "neither public nor private.*Tfidf"),
    "after a private step": (of(PrivateScaler(), Normalizer()), DENSE, "public steps must come before private ones"),
    "two bills": (of(PrivateScaler(), epsilon=2.0), DENSE, "give epsilon and delta to PrivatePipeline"),
    "two seeds": (of(PrivateScaler(), random_state=2), DENSE, "give random_state to PrivatePipeline"),
    "two bounds": (of(PrivateScaler(), bounds=Bounds(row_l2=1.0)), DENSE, "the last private step bounds the rows"),
    "quartiles twice": (of(PrivateImputer(1.0), PrivateScaler()), DENSE, "two private steps learn quartiles"),
    "published noise": (of(PrivateScaler(), calibration="published"), DENSE, "calibration='rigorous'"),
    "delta = 0": (of(PrivateScaler()).set_params(delta=0.0), DENSE, "delta > 0"),
    "no rest": (of(PrivateScaler()).set_params(shares={"step 0": 1.0}), DENSE, "shares must lie in"),
    "no such step": (of(PrivateScaler()).set_params(shares={"x": 0.1}), DENSE, "x, which is no private step"),
    "sparse rows": (of(PrivateScaler()), sp.csr_array(DENSE), "PrivateScaler is for dense columns"),
    "many columns": (of(PrivateScaler()), np.ones((60, 5001)), "at most 5,000 columns, got 5,001"),
    "words": (of(PrivateScaler()), [["secret", 1.0]] * 60, "X contains text in column 0"),
    "words, weights": (of(PrivateWeights()), [["secret", 1.0]] * 60, "X contains text in column 0"),
    "missing, weights": (of(PrivateWeights()), np.full((60, 2), np.nan), "contains NaN"),
    "one dimension": (of(PrivateScaler()), DENSE[:, 0], "Expected 2D array"),
    "rounds": (of(PrivateScaler(rounds=3)), DENSE, r"rounds=...\) must be a whole number in \[4, 40\]"),
    "reach": (of(PrivateScaler(reach=0.5)), DENSE, r"reach=...\) must lie in \[1, 100\]"),
    "row_linf": (of(PrivateImputer(row_linf=0.0)), DENSE, r"row_linf=...\) must lie in \(0, 1e\+12\]"),
    "power": (of(PrivateWeights(power=3.0)), DENSE, r"power=...\) must lie in \[0, 2\]"),
    "no model": (PrivatePipeline([("s", PrivateScaler())]), DENSE, "the last step must be a SparseClassifier"),
    "no step": (PrivatePipeline([]), DENSE, r"steps must be \(name, step\) pairs"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_fitted_is_refused_before_anything_is_billed(case: str) -> None:
    pipeline, X, message = REFUSED[case]
    with Ledger(CAP) as ledger, pytest.raises((ValueError, TypeError), match=message) as refused:
        pipeline.fit(X, LABELS)
    assert not ledger.fits
    assert "secret" not in str(refused.value)
    assert not hasattr(pipeline, "model_")


def test_a_regression_needs_a_declared_label_bound() -> None:
    pipeline = PrivatePipeline([("step", PrivateScaler()), ("model", SparseRegressor())])
    with Ledger(CAP) as ledger, pytest.raises(ValueError, match="declare label in Bounds"):
        pipeline.fit(DENSE, DENSE[:, 0])
    assert not ledger.fits
    assert pipeline.set_params(model__bounds=Bounds(label=2.0)).fit(DENSE, DENSE[:, 0]).predict(DENSE).shape == (60,)


@pytest.mark.parametrize("step", EVERY_STEP.values(), ids=EVERY_STEP)
def test_a_step_by_itself_learns_nothing(step: Any) -> None:
    for learn in (step.fit, step.fit_transform):
        with pytest.raises(TypeError, match=r"fit it as a step of tulle\.PrivatePipeline, which bills it"):
            learn(DENSE)


def test_memory_of_dense_rows_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_check, "free_memory", lambda: 4 * DENSE.nbytes)
    SparseClassifier(bounds=Bounds(row_linf=1.0), method=GAUSSIAN).fit(DENSE, LABELS)
    with Ledger(CAP) as ledger, pytest.raises(memory_check.TooLargeError):
        private(PrivateScaler()).fit(DENSE, LABELS)
    assert not ledger.fits


def test_few_rows_for_many_columns_are_warned_of() -> None:
    """From public figures: the same of other rows."""
    said = []
    for X in (DENSE, 1e9 * DENSE):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            private(PrivateScaler()).fit(X, LABELS)
        said.append([str(one.message) for one in caught])
    assert said[0] == said[1]
    assert any("PrivateScaler: 60 rows of 3 columns are few" in line for line in said[0])


# --- as an estimator -------------------------------------------------------------------------------------------------


def test_it_is_an_estimator_of_scikit_learn() -> None:
    X, y = table()
    pipeline = private(PrivateScaler(), 8.0, shares={"step": 0.3})
    assert clone(pipeline).get_params()["step__rounds"] == 18
    assert clone(pipeline).set_params(step__rounds=12, model__n_nonzero=2).fit(X, y).model_.n_nonzero == 2
    assert pipeline.get_params(deep=False).keys() == {"steps", "epsilon", "delta", "shares", "random_state"}
    with Ledger(CAP) as ledger:
        scores = cross_val_score(pipeline, X, y, cv=3)
    assert scores.mean() > 0.8
    assert len(ledger.fits) == 3
    assert not hasattr(pipeline.steps[0][1], "low_")  # the steps that were given stay as they were
    with pytest.raises(ValueError, match="not fitted yet"):
        pipeline.predict(X)


def test_a_search_around_it_is_named_in_the_report() -> None:
    X, y = table()
    search = GridSearchCV(private(PrivateScaler()), {"epsilon": [1.0, 2.0]}, cv=2).fit(X, y)
    lines = search.best_estimator_.privacy_.assumptions
    assert any("does not cover GridSearchCV" in line for line in lines)
    assert check_pipeline(private(PrivateScaler())) == ()
    assert check_pipeline(private(PrivateScaler(), None)) != ()


def test_columns_keep_their_names() -> None:
    pandas = pytest.importorskip("pandas")
    X, y = table()
    named = pandas.DataFrame(X, columns=list("abcde"))
    pipeline = private(PrivateScaler(), 8.0).fit(named, y)
    np.testing.assert_array_equal(pipeline.predict(named), private(PrivateScaler(), 8.0).fit(X, y).predict(X))
    with pytest.raises(ValueError, match="feature names should match"):
        pipeline.predict(named[list("edcba")])


def test_public_steps_come_first() -> None:
    texts = ["good day", "bad night"] * 200
    steps = [("hash", HashingVectorizer(n_features=32)), ("weights", PrivateWeights())]
    model = SparseClassifier(classes=[0, 1])
    pipeline = PrivatePipeline([*steps, ("model", model)], epsilon=8.0, random_state=0)
    assert pipeline.fit(texts, [1, 0] * 200).score(texts, [1, 0] * 200) == 1.0


def test_one_column_in_other_units_does_not_spoil_the_model() -> None:
    """Accuracy within 0.03 of the unscaled columns', at epsilon = 1; without the step half of it is lost."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6000, 6)) + 1.0
    y = X[:, 0] - X[:, 1] + 0.5 * rng.normal(size=6000) > 0
    accuracy = {}
    for unit in (1, 10, 100, 1000, 100_000):
        scaled = X * [unit, 1, 1, 1, 1, 1]
        accuracy[unit] = private(PrivateScaler(), method="auto").fit(scaled, y).score(scaled, y)
    assert accuracy[1] > 0.85
    assert max(abs(value - accuracy[1]) for value in accuracy.values()) <= 0.03
    plain = SparseClassifier(classes=[False, True], random_state=0).fit(X * [1000, 1, 1, 1, 1, 1], y)
    assert plain.score(X * [1000, 1, 1, 1, 1, 1], y) < 0.8


# --- attacks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EVERY_STEP)
def test_no_answer_of_a_fit_moves_further_than_its_sensitivity(name: str) -> None:
    """Pairs of neighbours with hostile rows, persons of up to two rows, and labels that go missing; the second fit has
    the answers of the first (see tests/sensitivity_replay.py)."""
    tally, rng = Tally(), np.random.default_rng(5)
    for number in range(25):
        n, d = 12, int(rng.choice([1, 3]))
        X = np.array([hostile_row(rng, d) for _ in range(n)]) if number % 2 else rng.normal(size=(n, d))
        y = np.array([True, False] * 6, dtype=object)
        other, other_y = X.copy(), y.copy()
        for row in (0, 5):
            other[row], other_y[row] = hostile_row(rng, d), rng.choice(np.array([True, False, None], dtype=object))
            if name != "weights" and number % 3 == 0:
                other[row, 0] = np.nan
        groups = np.arange(n) % 5 if number % 2 else None
        pipeline = private(EVERY_STEP[name], bounds=Bounds(rows_per_person=2))
        conversation = Conversation(f"{name}, pair {number}", tally)
        with conversation.listens():
            pipeline.fit(X, y, groups)
        with conversation.repeats():
            pipeline.fit(other, other_y, groups)
    assert not tally.violations
    assert tally.worst["Gaussian"] > 0.4


@pytest.mark.parametrize("name", EVERY_STEP)
def test_rows_that_do_not_count_move_no_answer(name: str) -> None:
    """Surplus rows of a person, and a row without a label: not of steps, nor of the model after them."""
    X, y = table(40, 3)
    groups, labels = np.arange(40) % 20, y.astype(object)
    labels[0] = None
    other = X.copy()
    other[0], other[20:] = -7.0, 1e100
    tally = Tally()
    conversation = Conversation(name, tally)
    with conversation.listens():
        private(EVERY_STEP[name]).fit(X, labels, groups)
    with conversation.repeats():
        private(EVERY_STEP[name]).fit(other, labels, groups)
    assert tally.worst == {"Gaussian": 0.0}


class Exact(PrivateWeights):
    """Weights from exact masses, with the noisy ones on the bill."""

    def prepare(self, X: Any) -> Any:
        rows = super().prepare(X)
        self.masses_ = np.asarray(rows.mean(axis=0))
        return rows

    def learn(self, ask: Any, public: Any, mu: float) -> None:
        super().learn(ask, public, mu)
        self.weights_ = self.masses_


@pytest.mark.parametrize(("step", "refuted"), [(PrivateWeights, False), (Exact, True)])
def test_an_audit(step: Any, refuted: bool) -> None:
    """Weights and model on two data sets; a false alarm has probability 1e-3. Exact masses are found out."""
    X = np.tile([[1.0, 0.0], [0.0, 1.0]], (2, 1))
    other = X.copy()
    other[0] = [0.0, 1.0]
    y = np.array([True, False, True, False])

    def fit(X: Any, y: Any, rng: Any) -> Any:
        made = private(step(power=1.0, floor=0.0), shares={"step": 0.5}, random_state=int(rng.integers(1 << 40)))
        fitted = made.set_params(delta=1e-3).fit(X, y)
        return np.r_[np.log(step_of(fitted).weights_), fitted.model_.coef_.ravel(), fitted.model_.intercept_]

    result = audit_function(fit, (X, y), (other, y), delta=1e-3, claimed=1.0, runs=200, confidence=0.999, seed=0)
    assert result.refuted is refuted


def test_the_steps_that_are_tested_are_all() -> None:
    assert {type(step) for step in (*EVERY_STEP.values(), *STEPS.values())} == {
        PrivateWeights,
        PrivateScaler,
        PrivateImputer,
    }


class OwnWeights(PrivateWeights):
    """A step of somebody else."""


def test_the_report_names_steps_that_rest_on_the_users_word() -> None:
    X, y = table()
    frozen = FrozenEstimator(Normalizer().fit(X))
    steps = [("before", frozen), ("own", OwnWeights()), ("model", SparseClassifier())]
    lines = PrivatePipeline(steps, 1.0, 1e-5).fit(np.abs(X), y).privacy_.assumptions
    assert "The step before (FrozenEstimator) was declared to learn nothing from the private rows." in lines
    assert "The step own (OwnWeights) is the user's own: it must treat each row by itself." in lines
