"""Scores of public models on private rows: sensitivities, noise, intervals that cover, and the bill."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr
from scipy.stats import binom
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import r2_score, roc_auc_score

import tulle.trusted.fit
import tulle.tuning.private_score
from tulle import Bounds, Budget, Ledger, PrivateSearch, SparseClassifier, SparseRegressor, private_score
from tulle.ledgers.ledger import BudgetExceededError
from tulle.methods.gradient_queries import BoundedMeans
from tulle.methods.loss_functions import facts_without_model
from tulle.trusted.events import NoisePerSensitivity
from tulle.trusted.fit import Order, open_account
from tulle.trusted.mechanisms import Gaussian, Laplace
from tulle.trusted.plan import Plan, Release
from tulle.trusted.queries import Query
from tulle.trusted.rows import Rows
from tulle.tuning.metrics import METRICS, CellCounts
from tulle.tuning.private_score import PrivateScore, ask_score

RNG = np.random.default_rng(0)
EXTREME = (0.0, 1.0, -1.0, 0.5, 2.0, 1e300, -1e300, math.inf, -math.inf, math.nan, 1e-320)


class Told(ClassifierMixin, BaseEstimator):
    """A classifier whose decision value is the row's first entry."""

    def fit(self, X: Any = None, y: Any = None) -> Told:
        self.classes_ = np.array([0, 1])
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        return np.asarray(X)[:, 0]

    def predict(self, X: Any) -> np.ndarray:
        return (self.decision_function(X) > 0).astype(int)


class ToldNumber(RegressorMixin, BaseEstimator):
    """A regressor that predicts the row's first entry."""

    def fit(self, X: Any = None, y: Any = None) -> ToldNumber:
        self.coef_ = 1.0
        return self

    def predict(self, X: Any) -> np.ndarray:
        return np.asarray(X)[:, 0]


class Shaped(Told):
    """Answers of any shape; 0.5, the second class."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.classes_ = np.array([0, 1])

    def decision_function(self, X: Any) -> np.ndarray:
        return np.full(self.shape, 0.5)


class ShapedNumber(ToldNumber):
    """Predictions of any shape, all 0.5."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.coef_ = 1.0

    def predict(self, X: Any) -> np.ndarray:
        return np.full(self.shape, 0.5)


class OddChances:
    """A model without decision values whose probabilities are of one class only."""

    classes_ = np.array([0, 1])

    def predict(self, X: Any) -> np.ndarray:
        return np.zeros(len(X))

    def predict_proba(self, X: Any) -> np.ndarray:
        return np.full(len(X), 0.5)


# --- questions -------------------------------------------------------------------------------------------------------


def moved(query: Query, first: np.ndarray, second: np.ndarray, unit: int) -> tuple[dict[str, float], dict[str, float]]:
    """How far the answer moves in each norm, and how far it may."""
    public = facts_without_model(len(first), first.shape[1], unit)
    change = np.subtract(
        *(query.evaluate(Rows(figures, np.zeros(len(figures))), public) for figures in (first, second))
    )
    declared = query.sensitivity(public)
    assert np.linalg.norm(query.evaluate(Rows(first, np.zeros(len(first))), public)) <= query.size(public) * (1 + 1e-9)
    found = {"l1": np.abs(change).sum(), "l2": np.linalg.norm(change), "linf": np.abs(change).max()}
    return found, {norm: getattr(declared, norm) for norm in found}


@st.composite
def neighbours(draw: st.DrawFn, columns: int, figure: st.SearchStrategy[float]) -> tuple[np.ndarray, np.ndarray, int]:
    n, unit = draw(st.integers(3, 6)), draw(st.integers(1, 3))
    rows = st.lists(figure, min_size=n * columns, max_size=n * columns)
    first = np.array(draw(rows)).reshape(n, columns)
    second = first.copy()
    second[:unit] = np.array(draw(rows)).reshape(n, columns)[:unit]
    return first, second, unit


class TestSensitivity:
    @pytest.mark.parametrize("columns", [1, 3])
    @given(data=st.data())
    def test_no_neighbour_moves_means_further(self, columns: int, data: st.DataObject) -> None:
        figures = st.sampled_from(EXTREME) | st.floats(-2, 2)
        found, declared = moved(BoundedMeans(columns), *data.draw(neighbours(columns, figures)))
        assert all(found[norm] <= declared[norm] * (1 + 1e-12) for norm in found)

    @given(data=st.data())
    def test_no_neighbour_moves_counts_further(self, data: st.DataObject) -> None:
        cells = st.sampled_from(EXTREME) | st.floats(-1, 7)
        found, declared = moved(CellCounts(5), *data.draw(neighbours(1, cells)))
        assert all(found[norm] <= declared[norm] for norm in found)

    @pytest.mark.parametrize("unit", [1, 3])
    def test_some_neighbour_moves_them_as_far(self, unit: int) -> None:
        """Within one per cent in every norm."""
        first, second = np.zeros((10, 3)), np.zeros((10, 3))
        second[:unit] = 1.0
        for query, a, b in ((BoundedMeans(3), first, second), (CellCounts(5), first[:, :1], second[:, :1])):
            found, declared = moved(query, a, b, unit)
            assert all(0.99 * declared[norm] <= found[norm] <= declared[norm] * (1 + 1e-12) for norm in found)

    @pytest.mark.parametrize("metric", METRICS)
    @given(data=st.data())
    def test_a_row_is_turned_into_figures_by_itself(self, metric: str, data: st.DataObject) -> None:
        """Replacing one row, whatever its prediction and label, changes the figures of that row alone."""
        chosen = METRICS[metric]
        model = Told().fit() if chosen.kind == "classification" else ToldNumber().fit()
        entry = st.sampled_from(EXTREME) | st.floats(-3, 3)
        label = st.sampled_from([0.0, 1.0]) if chosen.kind == "classification" else st.floats(-1e9, 1e9)
        X = np.array(data.draw(st.lists(entry, min_size=4, max_size=4)))[:, None]
        y = np.array(data.draw(st.lists(label, min_size=4, max_size=4)))
        X2, y2 = X.copy(), y.copy()
        X2[2], y2[2] = data.draw(entry), data.draw(label)
        one, other = (chosen.figures(model, *rows, 2.0) for rows in ((X, y), (X2, y2)))
        np.testing.assert_array_equal(np.delete(one, 2, axis=0), np.delete(other, 2, axis=0))
        assert np.all(np.isfinite(one))
        assert metric == "auc" or (one.min() >= 0 and one.max() <= 1)


# --- releases --------------------------------------------------------------------------------------------------------


def classified(n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    X = RNG.normal(size=(n, 2))
    return X, (X[:, 0] + RNG.normal(size=n) > 0).astype(int)


def test_much_epsilon_gives_the_usual_scores() -> None:
    """Against scikit-learn's, for a classifier and a regressor that are not tulle's."""
    X, y = classified(2000)
    model = LogisticRegression().fit(X, y)
    assert private_score(model, X, y, epsilon=1e6).value == pytest.approx(model.score(X, y), abs=1e-4)
    auc = private_score(model, X, y, epsilon=1e6, metric="auc").value
    assert auc == pytest.approx(roc_auc_score(y, model.decision_function(X)), abs=0.01)
    target = X[:, 0] + 0.5 * RNG.normal(size=2000)
    line = LinearRegression().fit(X, target)
    assert private_score(line, X, target, epsilon=1e6, label=8.0).value == pytest.approx(
        line.score(X, target), abs=1e-3
    )
    residuals = target - line.predict(X)
    for metric, expected in (
        ("absolute_error", np.abs(residuals).mean() / 8),
        ("squared_error", np.mean(residuals**2) / 64),
    ):
        score = private_score(line, X, target, epsilon=1e6, label=8.0, metric=metric)  # type: ignore[arg-type]
        assert score.value == pytest.approx(1 - expected, abs=1e-4)


def test_labels_and_residuals_are_clipped_to_the_bound() -> None:
    """One label of a million counts as the bound; so does one prediction."""
    X = np.zeros((50, 1))
    y = np.linspace(-1, 1, 50)
    y_large, X_large = y.copy(), X.copy()
    y_large[0], X_large[0] = -1e6, 1e6
    model = ToldNumber().fit()
    exact, one, other = (
        private_score(model, *rows, epsilon=1e9, label=1.0).value for rows in ((X, y), (X, y_large), (X_large, y))
    )
    assert one == pytest.approx(exact, abs=1e-6)
    assert other == pytest.approx(exact, abs=1e-6)  # the residual of that row was the bound already
    assert exact == pytest.approx(r2_score(y, X[:, 0]), abs=1e-6)


@pytest.mark.parametrize("metric", ["absolute_error", "squared_error", "r2"])
def test_residuals_are_those_of_clipped_labels(metric: str) -> None:
    """A label of 3 counts as the bound 1: predicting 1 is right, and predicting 3 is wrong by the bound."""
    y = np.array([3.0, -3.0])
    predicted = np.array([[1.0], [-3.0]])
    figures = METRICS[metric].figures(ToldNumber().fit(), predicted, y, 1.0)
    residuals = figures[:, 0] if metric == "r2" else 1 - figures[:, 0]
    np.testing.assert_array_equal(residuals, [0.0, 1.0])


@pytest.mark.parametrize("rows_per_person", [1, 3])
@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_the_noise_has_the_right_scale(epsilon: float, rows_per_person: int) -> None:
    """Mean magnitude of 2,500 draws: within 10 % of rows per person / (n epsilon), 5 deviations, one in a million.

    A scale 20 % too small would be out, but for one in a million.
    """
    X = np.ones((500, 1))
    y = (np.arange(500) % 2).astype(int)
    model = Told().fit()
    draws = [
        private_score(model, X, y, epsilon=epsilon, random_state=seed, rows_per_person=rows_per_person).value - 0.5
        for seed in range(2500)
    ]
    ratio = np.abs(draws).mean() * 500 * epsilon / rows_per_person
    assert 0.9 < ratio < 1.1


def test_the_histogram_has_the_right_noise() -> None:
    """96 cells, 100 draws of Gaussian noise: the deviation is within 5 % of noise × sqrt 2; 7 deviations of a draw."""
    metric = METRICS["auc"]
    plan = Plan((Release("score", Gaussian(NoisePerSensitivity(2.0)), 1),))
    figures = np.zeros((50, 1))

    def answer(seed: int) -> Any:
        with open_account(Order("score", (plan,), 1e-5), generator=np.random.default_rng(seed)) as account:
            return ask_score(account, metric, figures)[1:, 0]

    answers = np.array([answer(seed) for seed in range(100)])
    assert answers.std() / (2 * math.sqrt(2)) == pytest.approx(1.0, abs=0.05)


def test_seeds() -> None:
    """A seed repeats itself; none does not; inside a ledger equal seeds have different noise."""
    X, y = classified()
    model = Told().fit()

    def value(seed: int | None) -> float:
        return private_score(model, X, y, epsilon=0.1, random_state=seed).value

    assert value(3) == value(3)
    assert len({value(None) for _ in range(10)}) > 1
    with Ledger(Budget(5.0)):
        assert value(3) != value(3)


# --- intervals -------------------------------------------------------------------------------------------------------

TRIALS = 400
# Of 400 intervals at 90 % confidence at least this many cover, but for one run in a million.
ENOUGH = int(binom.ppf(1e-6, TRIALS, 0.9))


def covered(metric: str, n: int, epsilon: float, monkeypatch: pytest.MonkeyPatch | None = None) -> int:
    """How many of 400 intervals hold the population's score."""
    rng = np.random.default_rng(1)
    count = 0
    if monkeypatch is not None:
        interval = METRICS[metric].interval
        forgets = lambda answer, n, scale, error: interval(answer, n, 1e-9 * scale, error)  # noqa: E731
        monkeypatch.setattr(METRICS[metric], "interval", forgets)
    for trial in range(TRIALS):
        if METRICS[metric].kind == "classification":
            y = rng.integers(0, 2, n)
            X = (0.7 * (2 * y - 1) + rng.normal(size=n))[:, None]
            truth = float(ndtr(0.7)) if metric == "accuracy" else float(ndtr(1.4 / math.sqrt(2)))
            model: Any = Told().fit()
        else:
            X = rng.uniform(-1, 1, (n, 1))
            noise = rng.uniform(-0.5, 0.5, n)
            y = X[:, 0] + noise
            label = 1.5
            truth = {
                "r2": 1 - (1 / 12) / (1 / 3 + 1 / 12),
                "absolute_error": 1 - 0.25 / label,
                "squared_error": 1 - (1 / 12) / label**2,
            }[metric]
            model = ToldNumber().fit()
        found = private_score(
            model,
            X,
            y,
            epsilon=epsilon,
            metric=metric,
            label=1.5,
            confidence=0.9,
            random_state=trial,  # type: ignore[arg-type]
        )
        assert found.low <= found.value <= found.high
        count += found.low <= truth <= found.high
    return count


@pytest.mark.parametrize(
    ("metric", "n", "epsilon"),
    [
        ("accuracy", 30, 1.0),
        ("accuracy", 1000, 0.05),
        ("accuracy", 1000, 10.0),
        ("auc", 400, 1.0),
        ("auc", 2000, 1.0),
        ("auc", 2000, 100.0),
        ("r2", 2000, 1.0),
        ("r2", 200, 0.2),
        ("absolute_error", 300, 0.5),
        ("squared_error", 300, 0.5),
    ],
)
def test_intervals_cover(metric: str, n: int, epsilon: float) -> None:
    assert covered(metric, n, epsilon) >= ENOUGH


@pytest.mark.parametrize(("metric", "n", "epsilon"), [("accuracy", 1000, 0.05), ("auc", 2000, 0.1), ("r2", 2000, 0.02)])
def test_intervals_that_forget_the_noise_do_not(
    metric: str, n: int, epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert covered(metric, n, epsilon, monkeypatch) < ENOUGH


def covered_area(value: Any, truth: float) -> int:
    """How many of 400 intervals of the AUC hold it, for decision values drawn by ``value(labels, rng)``."""
    rng = np.random.default_rng(2)
    count = 0
    for trial in range(TRIALS):
        y = rng.integers(0, 2, 1000)
        found = private_score(
            Told().fit(), value(y, rng)[:, None], y, epsilon=5.0, metric="auc", confidence=0.9, random_state=trial
        )
        assert found.low <= found.value <= found.high
        count += found.low <= truth <= found.high
    return count


@pytest.mark.parametrize(
    ("unit", "offset"), [(1.0, 0.0), (1e-3, 0.0), (0.02, 0.0), (1e3, 0.0), (1.0, 3.0), (1.0, 50.0)]
)
def test_intervals_cover_the_area_in_any_unit(unit: float, offset: float) -> None:
    """The cells see decision values of one size only; where these share cells, the interval says so."""
    truth = float(ndtr(1.4 / math.sqrt(2)))
    assert covered_area(lambda y, rng: offset + unit * (0.7 * (2 * y - 1) + rng.normal(size=len(y))), truth) >= ENOUGH


@pytest.mark.parametrize("side", [1, -1])
def test_intervals_cover_the_area_where_cells_hide_an_order(side: int) -> None:
    """Four cells, the same for both classes, each with all its pairs in order: 1/2 by cells, 5/8 or 3/8 really."""
    factor = {1: (1.05, 1.3), -1: (1.3, 1.05)}[side]

    def value(y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return 2.0 ** rng.integers(0, 4, len(y)) * np.array(factor)[y]

    assert covered_area(value, 0.5 + side / 8) >= ENOUGH


@pytest.mark.parametrize("metric", METRICS)
def test_intervals_know_the_scale_that_is_drawn(metric: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The curator allows for rounding in its sums: 30,000 rows are enough to tell at twelve digits."""
    seen: dict[str, float] = {}
    chosen, release = METRICS[metric], Laplace.release
    interval = chosen.interval

    def watched_interval(answer: Any, n: int, scale: float, error: float) -> Any:
        seen["said"] = scale
        return interval(answer, n, scale, error)

    def watched_release(self: Laplace, exact: Any, sensitivity: Any, *rest: Any) -> Any:
        grid, seen["drawn"] = self.grid_and_scale(sensitivity, exact.size)
        seen["rounded"] = grid  # half a unit each for the answer and the noise
        return release(self, exact, sensitivity, *rest)

    monkeypatch.setattr(chosen, "interval", watched_interval)
    monkeypatch.setattr(Laplace, "release", watched_release)
    model: Any = Told().fit() if chosen.kind == "classification" else ToldNumber().fit()
    X, y = np.ones((30_000, 1)), np.arange(30_000) % 2
    private_score(model, X, y, epsilon=0.5, metric=metric, label=1.0, rows_per_person=2)  # type: ignore[arg-type]
    assert seen["said"] == pytest.approx(seen["drawn"] + seen["rounded"], rel=1e-8)
    assert seen["drawn"] < seen["said"]


def test_intervals_narrow_with_rows_and_widen_with_confidence() -> None:
    model = Told().fit()

    def width(n: int, confidence: float, metric: Any) -> float:
        X = np.where(np.arange(n) % 4, 1.0, -1.0)[:, None] * (1 + np.arange(n) % 7)[:, None]
        y = (np.arange(n) % 3 > 0).astype(int)
        score = private_score(model, X, y, epsilon=1.0, metric=metric, confidence=confidence, random_state=0)
        return score.high - score.low

    for metric in ("accuracy", "auc"):
        assert width(500, 0.95, metric) > width(5000, 0.95, metric) > width(50_000, 0.95, metric)
        assert width(5000, 0.99, metric) > width(5000, 0.9, metric)


def test_a_class_that_drowns_in_noise_has_an_interval_of_everything() -> None:
    X = np.ones((30, 1))
    score = private_score(Told().fit(), X, np.arange(30) % 2, epsilon=0.01, metric="auc", random_state=0)
    assert (score.low, score.high) == (0.0, 1.0)


# --- the bill --------------------------------------------------------------------------------------------------------


@pytest.fixture
def no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> Any:
        raise AssertionError("noise would have been drawn")

    monkeypatch.setattr(tulle.trusted.fit, "keyed_generator", refuse)


def test_is_billed_purely() -> None:
    X, y = classified()
    with Ledger(Budget(1.0)) as ledger:
        score = private_score(Told().fit(), X, y, epsilon=0.75)
    assert ledger.fits == [("private_score", pytest.approx(0.75))]
    assert (score.privacy.epsilon, score.privacy.delta) == (0.75, 0.0)
    assert score.privacy.bill[0].noise_per_sensitivity == pytest.approx(1 / 0.75)


@pytest.mark.usefixtures("no_noise")
def test_past_the_cap_nothing_is_drawn() -> None:
    X, y = classified()
    with Ledger(Budget(1.0)) as ledger, pytest.raises(BudgetExceededError, match="private_score would take"):
        private_score(Told().fit(), X, y, epsilon=1.5)
    assert ledger.fits == []


@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must be a finite number > 0"),
        ({"epsilon": math.inf}, "epsilon must be a finite number > 0"),
        ({"epsilon": None}, "epsilon must be a finite number > 0"),
        ({"confidence": 1.0}, "confidence must lie strictly between"),
        ({"rows_per_person": 0}, "rows_per_person must be an integer >= 1"),
        ({"metric": "r2"}, r"scored by one of \['accuracy', 'auc'\], got 'r2'"),
        ({"metric": "gini"}, r"scored by one of"),
        ({"random_state": "seed"}, "random_state must be"),
        ({"y": np.zeros(3)}, "inconsistent numbers of samples"),
        ({"model": ToldNumber().fit()}, r"declare it with Bounds\(label=\.\.\.\)"),
        ({"model": ToldNumber().fit(), "label": -1.0}, "label must be a finite number > 0"),
        ({"model": ToldNumber().fit(), "label": 1.0, "y": np.full(400, np.nan)}, "NaN"),
        ({"model": SparseClassifier()}, "not fitted yet"),
        ({"model": object()}, "takes a classifier or a regressor"),
        ({"X": np.zeros((0, 2)), "y": np.zeros(0)}, "no rows to score"),
        ({"epsilon": 1e-320}, "noise outside the range of float64"),
        ({"epsilon": 1e-120}, "noise outside the range of float64"),
        ({"epsilon": 1e300}, "noise outside the range of float64"),
        ({"model": Shaped((2, 400))}, r"predictions of shape \(2, 400\) for 400 rows"),
        ({"model": Shaped((2, 400)), "metric": "auc"}, r"predictions of shape \(2, 400\) for 400 rows"),
        ({"model": Shaped((399,))}, r"predictions of shape \(399,\) for 400 rows"),
        ({"model": ShapedNumber((399,)), "label": 1.0}, r"predictions of shape \(399,\) for 400 rows"),
        ({"model": OddChances(), "metric": "auc"}, r"predict_proba returns shape \(400,\)"),
    ],
)
def test_bad_input_is_neither_billed_nor_released(changed: dict[str, Any], message: str) -> None:
    X, y = classified()
    settings = {"model": Told().fit(), "X": X, "y": y, "epsilon": 1.0, **changed}
    with Ledger(Budget(10.0)) as ledger, pytest.raises((ValueError, TypeError), match=message):
        private_score(settings.pop("model"), settings.pop("X"), settings.pop("y"), **settings)
    assert ledger.fits == []


@pytest.mark.parametrize("shape", [(400, 1), (1, 400)])
@pytest.mark.parametrize("metric", METRICS)
def test_predictions_may_be_a_column_or_a_line(metric: str, shape: tuple[int, ...]) -> None:
    X, y = classified()
    made = Shaped if METRICS[metric].kind == "classification" else ShapedNumber
    one, other = (
        private_score(made(s), X, y, epsilon=1.0, metric=metric, label=1.0, random_state=0)  # type: ignore[arg-type]
        for s in (shape, (400,))
    )
    assert one == other


def test_figures_of_a_wrong_shape_are_neither_billed_nor_released(
    monkeypatch: pytest.MonkeyPatch, no_noise: None
) -> None:
    X, y = classified()
    monkeypatch.setattr(METRICS["accuracy"], "figures", lambda model, X, y, label: np.ones((len(y), 2)))
    with Ledger(Budget(10.0)) as ledger, pytest.raises(ValueError, match=r"values of shape \(400, 2\) for 400 rows"):
        private_score(Told().fit(), X, y, epsilon=1.0)
    assert ledger.fits == []


def test_auc_is_for_two_classes_and_models_with_scores() -> None:
    X, y = classified()
    three = LogisticRegression().fit(X, np.arange(400) % 3)
    with pytest.raises(ValueError, match="two classes, but the model has 3"):
        private_score(three, X, y, epsilon=1.0, metric="auc")

    class Bare(ClassifierMixin, BaseEstimator):
        classes_ = np.array([0, 1])

        def predict(self, X: Any) -> Any:
            return np.zeros(len(X))

        def __sklearn_is_fitted__(self) -> bool:
            return True

    with pytest.raises(ValueError, match="decision_function or predict_proba"):
        private_score(Bare(), X, y, epsilon=1.0, metric="auc")


def test_tulle_models_bring_their_bound_and_rows_may_be_sparse() -> None:
    X = RNG.uniform(-1, 1, (300, 4))
    y = X[:, 0]
    model = SparseRegressor(5.0, bounds=Bounds(row_linf=1.0, label=1.0), random_state=0).fit(X, y)
    dense, sparse, labels = (
        private_score(model, rows, target, epsilon=2.0, random_state=0)
        for rows, target in ((X, y), (sp.csr_array(X), y), (X, y.tolist()))
    )
    assert dense == sparse == labels
    assert dense.metric == "r2"


def test_the_search_of_a_regressor_brings_its_bound() -> None:
    X = RNG.uniform(-1, 1, (300, 4))
    y = X[:, 0]
    regressor = SparseRegressor(bounds=Bounds(row_linf=1.0, label=1.5))
    search = PrivateSearch(regressor, {"n_nonzero": [1, 2]}, Budget(4.0, 1e-5), n_trials=2.0, random_state=0).fit(X, y)
    scores = [private_score(search, X, y, epsilon=2.0, random_state=0, label=label) for label in (None, 1.5)]
    assert scores[0] == scores[1]


def test_probabilities_serve_where_there_is_no_decision_value() -> None:
    X, y = classified(1000)
    model = LogisticRegression().fit(X, y)

    class Chances(ClassifierMixin, BaseEstimator):
        classes_ = model.classes_

        def predict(self, X: Any) -> Any:
            return model.predict(X)

        def predict_proba(self, X: Any) -> Any:
            return model.predict_proba(X)

        def __sklearn_is_fitted__(self) -> bool:
            return True

    one, other = (private_score(m, X, y, epsilon=1.0, metric="auc", random_state=0).value for m in (model, Chances()))
    assert one == pytest.approx(other, abs=1e-12)


def test_reads_well_and_cannot_be_changed() -> None:
    X, y = classified()
    score = private_score(Told().fit(), X, y, epsilon=0.5, random_state=0)
    assert isinstance(score, PrivateScore)
    assert str(score).startswith("accuracy 0.")
    assert "95 % interval" in str(score)
    assert "400 private rows; ε = 0.5, δ = 0" in str(score)
    assert score.privacy.seeded
    assert "or sees another release with the same seed" in " ".join(str(score.privacy).split())
    assert json.loads(score.privacy.to_json())["delta"] == 0
    assert "the sum of both guarantees" in str(score.privacy).replace("\n    ", " ")
    with pytest.raises(dataclasses.FrozenInstanceError):
        score.value = 1.0  # type: ignore[misc]
