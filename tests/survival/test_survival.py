"""Survival: persons and periods, Kaplan-Meier curves, concordance, and what each of them releases.

Statistical tests fix their seed; a false alarm has probability 1e-6 a test, were the seed drawn anew.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from replayed import differences, replayed
from scipy.stats import chi2

from tulle import Bounds, Budget, Ledger, SparseClassifier, private_score
from tulle.methods.loss_functions import facts_without_model
from tulle.survival import SparseHazard, expand_periods, private_kaplan_meier
from tulle.survival.concordance import Concordance
from tulle.survival.kaplan_meier import _curves
from tulle.survival.person_periods import find_periods
from tulle.trusted.rows import Rows
from tulle.tuning.metrics import CellCounts

ALPHA = 1e-6
EDGES = [0.0, 30.0, 60.0, 90.0]
Array = NDArray[np.float64]
# Far before the first edge, on edges, between and beyond them.
TIMES = (-1e300, -1.0, 0.0, 5e-324, 29.9, 30.0, 30.1, 60.0, 89.0, 90.0, 91.0, 1e308)


def people(n: int, seed: int = 0) -> tuple[Array, Array]:
    """Features, and times with events: the first feature brings them nearer."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 3)) / math.sqrt(3)
    times, ends = rng.exponential(np.exp(4 - 2 * X[:, 0])), rng.uniform(20, 200, n)
    return X, np.column_stack([np.minimum(times, ends), times <= ends])


# --- persons and periods ---------------------------------------------------------------------------------------------


def test_periods_are_lived_through_or_hold_the_event() -> None:
    """By hand: on an edge a time belongs to the period that ends there."""
    y = np.array([[30.0, 1], [30.0, 0], [45.0, 1], [45.0, 0], [90.0, 1], [95.0, 1], [95.0, 0], [-5.0, 1], [0.0, 0]])
    expected = [
        *([1, None, None], [0, None, None], [0, 1, None], [0, 0, None], [0, 0, 1], [0, 0, 0], [0, 0, 0]),
        *([1, None, None], [None, None, None]),
    ]
    made = expand_periods(np.arange(9.0)[:, None] + 1, y, EDGES)
    assert made.y.reshape(9, 3).tolist() == expected
    halves = np.ones((9, 3))
    halves[3, 1] = 0.5  # observation ends within the second period
    np.testing.assert_array_equal(made.sample_weight.reshape(9, 3), halves)
    whole = expand_periods(np.ones((9, 1)), y, EDGES, half_periods=False)
    assert whole.y[9:12].tolist() == [0, None, None]
    assert (whole.sample_weight == 1).all()
    np.testing.assert_array_equal(made.groups, np.repeat(np.arange(9), 3))
    assert made.X.toarray()[3:6].tolist() == [[1, 0, 0, 2], [0, 1, 0, 2], [0, 0, 1, 2]]


@given(st.lists(st.tuples(st.sampled_from(TIMES), st.booleans()), min_size=2, max_size=6), st.data())
@settings(max_examples=60)
def test_rows_of_a_person_are_of_that_person_alone(outcomes: list[tuple[float, bool]], data: st.DataObject) -> None:
    """Whatever the others are, each has K rows, at most one event, and zeros before it."""
    n = len(outcomes)
    X = np.array(data.draw(st.lists(st.floats(-1e300, 1e300), min_size=n, max_size=n)))[:, None]
    made = expand_periods(X, outcomes, EDGES)
    assert made.X.shape == (3 * n, 4)
    for i, outcome in enumerate(outcomes):
        alone = expand_periods(X[[i]], [outcome], EDGES)
        np.testing.assert_array_equal(made.X.toarray()[3 * i : 3 * i + 3], alone.X.toarray())
        labels = made.y[3 * i : 3 * i + 3].tolist()
        assert labels == alone.y.tolist()
        assert made.sample_weight[3 * i : 3 * i + 3].tolist() == alone.sample_weight.tolist()
        counted = [label for label in labels if label is not None]
        assert labels == counted + [None] * (3 - len(counted))
        assert counted in ([0] * len(counted), [0] * (len(counted) - 1) + [1])


@pytest.mark.parametrize(
    "y",
    [
        [(20.0, True), (50.0, False)],
        pd.DataFrame({"t": [20, 50], "e": [1, 0]}),
        np.array([(True, 20.0), (False, 50.0)], dtype=[("event", bool), ("time", float)]),
        [["20", "1"], ["50", "0"]],
    ],
    ids=["pairs", "frame", "structured", "text"],
)
def test_outcomes_are_read_in_several_forms(y: Any) -> None:
    assert expand_periods(np.ones((2, 1)), y, EDGES).y.tolist() == [1, None, None, 0, 0, None]


# --- Kaplan-Meier ----------------------------------------------------------------------------------------------------


def test_without_noise_curves_are_actuarial() -> None:
    """By hand, and against the exact curve where nobody is lost within a period."""
    exits = np.array([[20.0, 10, 5, 0, 8, 4, 53]])  # events; observation that ended after 0, 1, 2 and 3 periods
    survival, at_risk, events = _curves(exits, 3)
    np.testing.assert_allclose(at_risk, [[100, 80 - 4, 62 - 2]])
    np.testing.assert_allclose(events, exits[:, :3])
    np.testing.assert_allclose(survival[0], np.cumprod([1, 0.8, 1 - 10 / 76, 1 - 5 / 60]))


def test_times_are_counted_in_their_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Array] = []
    monkeypatch.setattr(CellCounts, "_count", lambda query, block: asked.append(block.margins(np.ones((1, 1)), 0.0)))
    y = [(20.0, 1), (50.0, 0), (95.0, 0), (95.0, 1), (10.0, 1)]
    with pytest.raises(AttributeError):  # nothing was counted
        private_kaplan_meier(y, EDGES, epsilon=1.0, groups=["a", "b", "b", "a", "?"], values=["a", "b"])
    assert asked[0][:, 0].tolist() == [0, 7 + 4, 7 + 6, 6, 0]  # the last is of no group, and counts as nothing


@pytest.mark.parametrize(("factor", "accepted"), [(1.0, True), (2 / 3, False), (3 / 2, False)])
def test_counts_have_laplace_noise_of_scale_two_over_epsilon(factor: float, accepted: bool) -> None:
    """The mean magnitude of 100 curves' counts; twice it over its scale is chi-squared."""
    _, y = people(500)
    exact = np.bincount(SparseHazard(EDGES).find_exits(y), minlength=7)
    noise = []
    for seed in range(100):
        curve = private_kaplan_meier(y, EDGES, epsilon=0.7, random_state=seed)
        noise.append(np.abs(curve.events[0] - exact[:3]))
    total = 2 * factor * np.sum(noise) / (2 / 0.7)
    p_value = float(chi2(2 * np.size(noise)).cdf(total))
    assert (ALPHA / 2 < p_value < 1 - ALPHA / 2) == accepted


@given(
    st.lists(st.tuples(st.sampled_from(TIMES), st.booleans()), min_size=3, max_size=6),
    st.tuples(st.sampled_from(TIMES), st.booleans()),
)
@settings(max_examples=60)
def test_one_person_moves_two_counts_by_one(outcomes: list[Any], other: Any) -> None:
    def counts(of: list[Any]) -> Any:
        cells = SparseHazard(EDGES).find_exits(of).astype(float)[:, None]
        return CellCounts(7).evaluate(Rows(cells, np.zeros(len(of))), facts_without_model(len(of), 1, 1))

    moved = np.abs(counts(outcomes) - counts([other, *outcomes[1:]])).sum()
    assert moved <= CellCounts(7).sensitivity(facts_without_model(len(outcomes), 1, 1)).l1
    assert counts(outcomes).sum() == len(outcomes)  # each is in one cell


def test_intervals_of_curves_hold_the_truth() -> None:
    """100 curves of 4 edges: at 95 % each, fewer than 80 have a chance below 1e-6."""
    rng = np.random.default_rng(3)
    truth, held = np.exp(-np.array(EDGES) / 100), np.zeros(4)
    for _ in range(100):
        times, ends = rng.exponential(100, 1000), rng.uniform(20, 300, 1000)
        curve = private_kaplan_meier(np.column_stack([np.minimum(times, ends), times <= ends]), EDGES, epsilon=1.0)
        held += (curve.low[0] <= truth) & (truth <= curve.high[0])
    assert (held >= 80).all()
    assert curve.to_frame().shape == (4, 5)
    assert "Survival, 95 % intervals" in str(curve)


def test_tables_of_any_size_and_any_noise_have_intervals() -> None:
    """Of 600 periods and 20 groups, and with noise far beyond the counts: by now the budget is spent."""
    _, y = people(200)
    many = private_kaplan_meier(
        y, np.arange(601.0), epsilon=1.0, groups=np.arange(200) % 20, values=range(20), random_state=0
    )
    assert many.low.shape == (20, 601)
    noisy = private_kaplan_meier(y, EDGES, epsilon=1e-12, random_state=0)
    assert ((noisy.low >= 0) & (noisy.high <= 1) & (noisy.low <= noisy.high)).all()


# --- hazards ---------------------------------------------------------------------------------------------------------


def test_without_noise_it_is_the_classification_of_person_periods() -> None:
    X, y = people(2000)
    model = SparseHazard(EDGES, None, inference=False).fit(X, y)
    made = expand_periods(X, y, EDGES)
    plain = SparseClassifier(
        None, fit_intercept=False, bounds=Bounds(row_l2=math.sqrt(2), rows_per_person=3), classes=[0, 1]
    ).fit(made.X, made.y, groups=made.groups, sample_weight=made.sample_weight)
    np.testing.assert_allclose(np.r_[model.baseline_, model.coef_], plain.coef_[0], rtol=1e-8)
    hazard, survival = model.predict_hazard(X), model.predict_survival(X)
    np.testing.assert_allclose(survival[:, 1:], np.cumprod(1 - hazard, axis=1))
    np.testing.assert_allclose(
        SparseHazard(EDGES, None, inference=False).fit(sp.csr_array(X), y).coef_, model.coef_, rtol=1e-8
    )


def test_there_is_no_summary_without_inference() -> None:
    model = SparseHazard(EDGES, None, inference=False).fit(*people(200))
    with pytest.raises(AttributeError, match="after a fit with inference=True"):
        model.summary()


@pytest.mark.parametrize("inference", [True, False])
def test_the_unit_is_a_person_and_the_ledger_has_one_entry(inference: bool) -> None:
    X, y = people(2000)
    with Ledger(Budget(10.0, 0.1)) as ledger:
        model = SparseHazard(EDGES, 1.0, inference=inference, random_state=0).fit(X, y)
    assert len(ledger.fits) == 1
    assert 0.99 < model.privacy_.epsilon <= 1.0
    assert "at most 3 rows" in model.privacy_.unit


@pytest.mark.parametrize("what", ["fit", "curve", "score"])
def test_nothing_leaves_but_answers(what: str, tmp_path: Path, monkeypatch: Any) -> None:
    """Other people, with other times, and the answers of the first."""
    model = SparseHazard(EDGES, None).fit(*people(300, 9))

    def compute(X: Array, y: Array) -> Any:
        with Ledger(Budget(1e9, 0.1)) as ledger:
            if what == "fit":
                found: Any = SparseHazard(EDGES, 1.0, random_state=1).fit(X, y)
            elif what == "curve":
                sex = ["f", "m"] * 100 if X[0, 0] < 5 else ["m", "x"] * 100
                found = private_kaplan_meier(y, EDGES, epsilon=1.0, groups=sex, values=["f", "m"], random_state=1)
            else:
                found = private_score(model, X, y, epsilon=1.0, random_state=1)
            return found, ledger.fits

    def told(result: Any) -> dict[str, Any]:
        return {"attributes": vars(result[0]), "ledger": result[1], "text": str(result[0])}

    other = np.full((200, 3), 9.0), np.tile([[1e300, 0], [-4.0, 1]], (100, 1))
    one, two = replayed(lambda: compute(*people(200)), lambda: compute(*other), told)
    assert not one.error, one.error
    assert differences(one, two) == []


def test_intervals_of_weights_hold_the_truth() -> None:
    """60 studies of 5,000 people: of 180 intervals at 95 %, fewer than 155 have a chance below 1e-6. Rows of a person
    are not independent, and add up as if they were."""
    rng, truth, held = np.random.default_rng(5), np.array([1.5, -1.0, 0.0]), 0
    for _ in range(60):
        X = rng.uniform(-1, 1, (5000, 3)) / math.sqrt(3)
        periods = rng.geometric(1 / (1 + np.exp(1.5 - X @ truth)))
        ends = rng.integers(0, 5, 5000)  # at the ends of periods
        y = np.column_stack([30.0 * np.minimum(periods, ends), periods <= ends])
        table = SparseHazard(EDGES, 4.0).fit(X, y).summary().to_frame()
        held += int(((table["low"] <= truth) & (truth <= table["high"])).sum())
    assert table.index.tolist() == ["feature 0", "feature 1", "feature 2"]
    assert held >= 155


def test_concordance_counts_pairs() -> None:
    """Against all pairs, one by one; cells of a private score can only make ties."""
    X, y = people(300)
    model = SparseHazard(EDGES, None).fit(X, y)
    risk = model.predict(X)
    through, happens = find_periods(y[:, 0], y[:, 1] > 0, np.array(EDGES))
    pairs = [
        (risk[i] > risk[j]) + 0.5 * (risk[i] == risk[j])
        for i in np.flatnonzero(happens)
        for j in range(300)
        if through[j] > through[i]
    ]
    assert model.score(X, y) == pytest.approx(np.mean(pairs))
    score = private_score(model, X, y, epsilon=100.0, random_state=0)
    assert score.value == pytest.approx(model.score(X, y), abs=0.02)
    assert score.low < score.value < score.high
    metric = Concordance(3, model.largest_risk)
    assert metric.figures(model, X, model.find_exits(y), 1.0).max() < metric.answers


HAZARD = SparseHazard(EDGES, None).fit(*people(300, 9))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda X, y: SparseHazard([0]).fit(X, y), "rising numbers"),
        (lambda X, y: SparseHazard([0, 30, 30]).fit(X, y), "rising numbers"),
        (lambda X, y: SparseHazard([0, math.inf]).fit(X, y), "rising numbers"),
        (lambda X, y: SparseHazard("0, 1").fit(X, y), "rising numbers"),
        (lambda X, y: SparseHazard(EDGES, row_l2=0.0).fit(X, y), "row_l2"),
        (lambda X, y: SparseHazard(EDGES, n_nonzero=1).fit(X, y), "inference=False"),
        (lambda X, y: SparseHazard(EDGES, method="fit_again").fit(X, y), "inference=False"),
        (lambda X, y: SparseHazard(EDGES).fit(X, y[:, 0]), "two columns"),
        (lambda X, y: SparseHazard(EDGES).fit(X[:-1], y), "X has 49 rows and y 50"),
        (lambda X, y: SparseHazard(EDGES).fit(X, np.where(y > 100, math.nan, y)), "NaN"),
        (lambda X, y: SparseHazard(EDGES).fit(np.where(X > 0.5, math.inf, X), y), "infinity"),
        (lambda X, y: SparseHazard(EDGES).fit(X[:1], y[:1]), "minimum of 2"),
        (lambda X, y: private_kaplan_meier(y, EDGES, epsilon=0.0), "epsilon"),
        (lambda X, y: private_kaplan_meier(y, EDGES, epsilon=1e-30), "outside the range"),
        (lambda X, y: private_score(HAZARD, X, y, epsilon=1e-12), "outside the range"),
        (lambda X, y: private_kaplan_meier(y, EDGES, epsilon=1.0, confidence=1.0), "confidence"),
        (lambda X, y: private_kaplan_meier(y, EDGES, epsilon=1.0, groups=["a"] * 50), "groups and values"),
        (lambda X, y: private_kaplan_meier(y, EDGES, epsilon=1.0, groups=["a"] * 9, values=["a", "b"]), "9 cells"),
        (lambda X, y: private_kaplan_meier(y[:1], EDGES, epsilon=1.0), "too few"),
    ],
)
def test_bad_input_is_refused_before_anything_is_billed(call: Any, words: str) -> None:
    X, y = people(50)
    y[0, 0] = 150.0
    with Ledger(Budget(10.0, 0.1)) as ledger, pytest.raises(ValueError, match=words):
        call(X, y)
    assert len(ledger.fits) == 0
