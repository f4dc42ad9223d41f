"""What private steps ask: the noise of answers, their sensitivity, and what a row contributes, by itself.

Statistical tests fix their seed; a false alarm has probability 1e-6 a test, were the seed drawn anew.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from private_steps import (
    EVERY_STEP,
    STEPS,
    Answered,
    Array,
    bounded,
    learn_exactly,
    private,
    query_of,
    step_of,
    table,
    words,
)
from scipy.stats import chi2
from sklearn.base import clone

from tulle.accounting.gaussian_budget import gaussian_mu
from tulle.methods.loss_functions import facts_without_model
from tulle.preprocessing import PrivateImputer, PrivateScaler, PrivateWeights
from tulle.trusted.plan import Budget
from tulle.trusted.rows import Rows

pytestmark = pytest.mark.filterwarnings("ignore:.*rows of .*:UserWarning")  # of few rows

ALPHA = 1e-6
D = 4
# Of finite rows; missing ones for steps that take them.
HOSTILE = (0.0, -0.0, 5e-324, -1e-300, 1e-160, 0.3, -1.0, 7.0, 1e12, -1e139, 1e141, 1e155, -1.7e308)
MISSING = (math.nan, math.inf, -math.inf)

# How far answers move for one row of n, times n; and how many there are.
MOVES: dict[str, tuple[Any, int]] = {
    "column masses": (lambda d: 2.0, 1),
    "quartiles": (lambda d: math.sqrt(2 * d + 1), 18),
}


# --- noise -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("rows_per_person", [1, 3])
@pytest.mark.parametrize(("factor", "accepted"), [(1.0, True), (2 / 3, False), (3 / 2, False)])
def test_answers_have_the_noise_of_their_share(
    name: str, rows_per_person: int, factor: float, accepted: bool, answers: list[Answered]
) -> None:
    """What was released less what is exact, in units that are computed here: chi-squared over a thousand numbers."""
    X, y = words(300, 1000) if name == "column masses" else table(300, 30)
    private(STEPS[name], shares={"step": 0.3}, delta=1e-5, bounds=bounded(rows_per_person)).fit(X, y)
    found = [one for one in answers if one.name == name]
    moves, count = MOVES[name]
    sigma = moves(X.shape[1]) * rows_per_person / 300 * math.sqrt(count / 0.3) / gaussian_mu(1.0, 1e-5)
    noise = np.concatenate([(one.released - one.exact).ravel() for one in found]) / sigma
    assert len(found) == count
    assert len(noise) >= 1000
    p_value = float(chi2(len(noise)).cdf(np.square(factor * noise).sum()))
    assert (ALPHA / 2 < p_value < 1 - ALPHA / 2) == accepted


def test_the_floor_of_weights_is_that_of_their_noise(answers: list[Answered]) -> None:
    """Masses below 3 standard deviations of the noise, as the curator scaled it, are raised to these."""
    X, y = words()
    weights = step_of(private(PrivateWeights(power=1.0), method="auto", delta=1e-5).fit(X, y)).weights_
    sigma = 2 / 400 / (gaussian_mu(1.0, 1e-5) * math.sqrt(0.1))  # so few rows have the largest share
    (masses,) = [one.released.ravel() for one in answers if one.name == "column masses"]
    raised = np.maximum(masses, 3 * sigma)
    assert (masses < 3 * sigma).any()
    assert (masses > 3 * sigma).any()
    np.testing.assert_allclose(weights, raised.min() / raised, rtol=1e-4)


# --- sensitivity -----------------------------------------------------------------------------------------------------


def change(step: Any, X: Any, other: Any, active: Any, unit: int) -> tuple[float, float]:
    """How far the step's answer moves from rows to neighbouring ones, and how far it may."""
    n, d = X.shape
    public, query = facts_without_model(n, d, unit), query_of(step, d)
    with np.errstate(all="ignore"):
        found = [
            query.evaluate(Rows(step.prepare(step.mark(rows)), np.zeros(n), counts), public)
            for rows, counts in zip((X, other), active)
        ]
    assert np.isfinite(found).all()
    return float(np.linalg.norm(found[0] - found[1])), query.sensitivity(public).l2


@pytest.mark.parametrize("name", STEPS)
@given(data=st.data(), unit=st.integers(1, 2), sparse=st.booleans())
@settings(max_examples=80)
def test_no_neighbour_moves_an_answer_further(name: str, data: st.DataObject, unit: int, sparse: bool) -> None:
    """Rows as they were given, of any size; of which some may have no label, or be a person's surplus."""
    cells = st.sampled_from(HOSTILE if name == "column masses" else HOSTILE + MISSING) | st.floats(-3, 3)
    n = 5

    def draw(lines: int) -> Array:
        return np.array(data.draw(st.lists(cells, min_size=lines * D, max_size=lines * D))).reshape(lines, D)

    X, replaced = draw(n), draw(unit)
    other = np.vstack([replaced, X[unit:]])
    counts = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    after = np.r_[np.array(data.draw(st.lists(st.booleans(), min_size=unit, max_size=unit))), counts[unit:]]
    kind = sp.csr_array if sparse and name == "column masses" else np.array
    moved, allowed = change(STEPS[name], kind(X), kind(other), (counts, after), unit)
    assert moved <= allowed * (1 + 1e-9)


@pytest.mark.parametrize("unit", [1, 2])
@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        # Values are of all signs where an answer is clipped, so that two bounds are counted; of masses, which have one
        # sign, sqrt(1/2) of that is all.
        ("column masses", [1.0, 0, 0, 0], [0, 1.0, 0, 0]),
        ("quartiles", [-1e30] * D, [1e30] * D),
    ],
)
def test_some_neighbour_moves_an_answer_so_far(name: str, unit: int, before: Any, after: Any) -> None:
    X = np.zeros((5, D))
    other, both = X.copy(), (np.ones(5, dtype=bool),) * 2
    X[:unit], other[:unit] = before, after
    moved, allowed = change(STEPS[name], X, other, both, unit)
    if name == "quartiles":  # but for the value that says that a row counts, which is the same
        allowed *= math.sqrt(2 * D / (2 * D + 1))
    assert moved == pytest.approx(allowed / (math.sqrt(2) if name == "column masses" else 1), rel=0.01)


def test_the_query_of_masses_moves_as_far_as_it_says_on_rows_that_were_not_prepared() -> None:
    """The clip is the query's own: a step that prepares nothing is as private."""

    class Raw(PrivateWeights):
        def prepare(self, X: Any) -> Any:
            return X

    X = np.zeros((5, D))
    other = X.copy()
    X[0, 0], other[0, 0] = 1e100, -1e100
    moved, allowed = change(Raw(), X, other, (np.ones(5, dtype=bool),) * 2, 1)
    assert moved == pytest.approx(allowed, rel=0.01)


# --- each row by itself ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EVERY_STEP)
@given(data=st.data(), sparse=st.booleans())
@settings(max_examples=40)
def test_a_row_is_transformed_by_itself_and_keeps_its_bounds(name: str, data: st.DataObject, sparse: bool) -> None:
    """Whatever the rows beside it are."""
    step = learn_exactly(clone(EVERY_STEP[name]), table(50, D)[0])
    weights = isinstance(step, PrivateWeights)
    cells = st.sampled_from(HOSTILE if weights else HOSTILE + MISSING) | st.floats(-3, 3)
    X = np.array(data.draw(st.lists(cells, min_size=3 * D, max_size=3 * D))).reshape(3, D)
    rows = sp.csr_array(X) if sparse and weights else X
    for made in (step.mark, step.prepare, step.transform):
        whole, alone = made(rows), [made(rows[[i]]) for i in range(3)]
        dense = [part.toarray() if sp.issparse(part) else part for part in (whole, *alone)]
        np.testing.assert_allclose(dense[0], np.vstack(dense[1:]), rtol=1e-13, atol=0)
        assert dense[0].dtype == np.float64
    bounds, found = step.bounds(D), dense[0]
    assert np.abs(found).max() <= bounds.row_linf
    assert np.linalg.norm(found, axis=1).max() <= bounds.row_l2 * (1 + 1e-12)


def test_transforming_marked_rows_is_transforming_rows() -> None:
    """A fit transforms what was marked, a prediction what is given."""
    X = np.array([[math.nan, 1e300, -1.0, 0.5], [math.inf, -1e300, 2.0, -0.0], [0.0, 1.0, -math.inf, 3.0]])
    for step in (PrivateScaler(), PrivateImputer(2.0)):
        learn_exactly(step, table(50, D)[0])
        np.testing.assert_array_equal(step.transform(step.mark(X)), step.transform(X))


# --- learning --------------------------------------------------------------------------------------------------------


def test_without_noise_weights_are_of_the_exact_masses() -> None:
    """From dense rows and CSR, of all signs."""
    X = words()[0].toarray() * np.random.default_rng(1).choice([-1.0, 1.0], (400, 30))
    unit = np.abs(X) / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-300)
    expected = np.maximum(unit.mean(axis=0), 1e-9) ** -0.5
    for rows in (X, sp.csr_array(X), sp.csc_array(X)):
        step = learn_exactly(PrivateWeights(), rows)
        np.testing.assert_allclose(step.weights_, expected / expected.max(), rtol=1e-9)
        made = step.transform(rows)
        dense = made.toarray() if sp.issparse(made) else made
        weighted = X * step.weights_
        lengths = np.linalg.norm(weighted, axis=1, keepdims=True)
        np.testing.assert_allclose(dense, np.divide(weighted, lengths, where=lengths > 0, out=weighted * 0), atol=1e-12)


@pytest.mark.parametrize("kind", ["all", "missing entries", "rows that do not count", "other units"])
def test_without_noise_quartiles_are_those_of_the_entries_that_there_are(kind: str) -> None:
    """Missing entries, rows without a label and surplus rows of a person move none of them."""
    rng = np.random.default_rng(0)
    X, active = rng.normal(size=(4000, 3)) + 0.5, None
    expected = np.quantile(X, [0.25, 0.75], axis=0)
    if kind == "missing entries":
        X[rng.random(X.shape) < 0.6] = math.nan
        expected = np.nanquantile(X, [0.25, 0.75], axis=0)
    elif kind == "rows that do not count":
        active = np.arange(4000) % 4 == 0
        X[~active] = 1e9
        expected = np.quantile(X[active], [0.25, 0.75], axis=0)
    elif kind == "other units":
        X, expected = X * [1e-4, 1e3, 1e8], expected * [1e-4, 1e3, 1e8]
    for step in (PrivateScaler(rounds=30), PrivateImputer(2.0, rounds=30)):
        learn_exactly(step, X, active)
        reach = np.ptp(expected, axis=0)
        np.testing.assert_allclose([step.low_, step.high_] / reach, expected / reach, rtol=0, atol=0.005)


def test_missing_numbers_become_the_centre() -> None:
    X = table(500, 3)[0] * 2 + 7
    X[0] = math.nan
    scaler, imputer = learn_exactly(PrivateScaler(), X), learn_exactly(PrivateImputer(9.0), X)
    assert scaler.transform(X)[0].tolist() == [0.0] * 3
    np.testing.assert_array_equal(imputer.transform(X)[0], imputer.centre_)
    np.testing.assert_array_equal(imputer.transform(X)[1:], np.clip(X[1:], -9.0, 9.0))


@pytest.mark.parametrize("step", EVERY_STEP.values(), ids=EVERY_STEP)
def test_rows_of_other_columns_are_refused(step: Any) -> None:
    """One column would be spread over all."""
    step = clone(step)
    with pytest.raises(ValueError, match="has learnt nothing yet"):
        step.transform(np.ones((2, 1)))
    learn_exactly(step, table(50, D)[0])
    with pytest.raises(ValueError, match=r"X has 1 columns, but .* learnt from 4"):
        step.transform(np.ones((2, 1)))


def test_weights_take_a_larger_share_where_rows_are_few() -> None:
    """Of public quantities alone, and at most 10 %."""

    def share(n: int, epsilon: float | None) -> float:
        public = facts_without_model(n, 5, 1)
        return PrivateWeights().default_share(
            replace(public, budget=None if epsilon is None else Budget(epsilon, 1e-5))
        )

    assert [share(n, 1.0) for n in (400, 10**6)] == [0.1, 0.05]
    assert share(20_000, 1.0) == pytest.approx(350 / (20_000 * gaussian_mu(1.0, 1e-5)))
    assert share(400, None) == 0.05
