"""Queries about batches: gradients, differences of gradients and steps, and the curator that draws the batches.

Whatever the batch, replacing a unit moves an answer by no more than the declared sensitivity, and taking the unit out
of the batch by no more than `one_unit`: random batches may hold a unit or not.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from pairwise import reduce_to_pairs
from test_queries import (
    BOUNDS,
    LABEL,
    LOSSES,
    ROUNDING,
    STORAGES,
    Negative,
    every_loss,
    every_storage,
    neighbours,
    weights_of,
    worst_pair,
)

from tulle import Bounds
from tulle.fast.lazy_noise import Background
from tulle.fast.sparse_weights import SparseWeights
from tulle.fast.thresholded_noise import SparseAnswer
from tulle.methods.gradient_queries import BatchGradient, BatchStep, ClippedGradient, Curvature
from tulle.methods.loss_functions import Loss, Poisson, Squared
from tulle.methods.thresholds import HardThreshold
from tulle.trusted.curator import Curator, summation_slack
from tulle.trusted.events import NoisePerSensitivity
from tulle.trusted.facts import PublicFacts
from tulle.trusted.losses import Norm
from tulle.trusted.mechanisms import SampledGaussian as Noisy
from tulle.trusted.mechanisms import Sensitivity
from tulle.trusted.plan import Plan, PlanError, Release
from tulle.trusted.queries import Query
from tulle.trusted.randomness import keyed_generator
from tulle.trusted.rows import Rows
from tulle.trusted.sampling import SCHEMES, Sampler, Sampling, Scheme

every_scheme = pytest.mark.parametrize("scheme", SCHEMES)
sparse = SparseWeights.from_dense


def answer(query: Query, rows: Rows, public: PublicFacts) -> np.ndarray:
    with np.errstate(all="ignore"):
        exact = query.evaluate(rows, public)
    return exact.to_dense() if isinstance(exact, SparseAnswer) else np.asarray(exact)


def batch_of(rows: Rows, numbers: Any) -> Rows:
    with np.errstate(all="ignore"):
        return rows.batch(np.array(sorted(numbers), dtype=np.intp))


# --- answers ---------------------------------------------------------------------------------------------------------


def some_problem(loss: Loss, a: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray, PublicFacts]:
    """Twenty rows, some of them beyond the bounds and one empty, and the facts of all of them."""
    rng = np.random.default_rng(seed)
    n, d = 20, 4
    X = rng.uniform(-1, 1, (n, d)) * (rng.random((n, d)) < 0.7)
    X[3], X[5] = 0.0, 2.0
    y = rng.integers(0, 3, n).astype(float) if loss.n_outputs > 1 else np.where(rng.random(n) < 0.5, -1.0, 1.0)
    y = np.abs(y) if isinstance(loss, Poisson) else y
    known = BOUNDS["both"].known(d)
    return X, y, PublicFacts(n, d, 2, loss, None, known.row_l2, known.row_linf, LABEL, a > 0)


def clipped_rows(X: Any, y: np.ndarray, loss: Loss) -> Rows:
    rows = Rows(X, y)
    BOUNDS["both"].known(X.shape[1]).clip(rows, loss)
    return rows


CHOSEN: list[list[int]] = [[], [0], [3], [0, 3, 5, 7, 11, 19], list(range(20))]


@reduce_to_pairs()
@every_storage
@every_loss
@pytest.mark.parametrize("a", [0.0, 0.5])
@pytest.mark.parametrize("clip", [0.2, 100.0])
def test_without_an_anchor_it_is_the_clipped_gradient_over_the_public_size(
    loss: str, storage: str, a: float, clip: float
) -> None:
    """The sum over the rows of the batch, divided by what batches are expected to hold."""
    X, y, public = some_problem(LOSSES[loss], a)
    rows = clipped_rows(STORAGES[storage](X), y, public.loss)
    weights = np.random.default_rng(1).normal(size=(public.n_parameters, public.loss.n_outputs))
    weights[1] = 0.0
    for numbers in CHOSEN:
        found = answer(BatchGradient(sparse(weights), clip, a), batch_of(rows, numbers), replace(public, n_rows=6))
        if not numbers:
            np.testing.assert_array_equal(found, np.zeros_like(weights))
            continue
        alone = clipped_rows(X[numbers], y[numbers], public.loss)
        expected = answer(ClippedGradient(weights, clip, "l2", a), alone, replace(public, n_rows=len(numbers)))
        np.testing.assert_allclose(found, expected * len(numbers) / 6, rtol=1e-12, atol=1e-13)


@reduce_to_pairs()
@every_storage
@every_loss
@pytest.mark.parametrize("a", [0.0, 0.5])
@pytest.mark.parametrize("clip", [0.2, 100.0])
@pytest.mark.parametrize("as_published", [False, True])
def test_with_an_anchor_it_is_the_difference_of_two_clipped_gradients(
    loss: str, storage: str, a: float, clip: float, as_published: bool
) -> None:
    """The distance of two points bounds how far slopes change between them: of itself it clips nothing."""
    X, y, public = some_problem(LOSSES[loss], a)
    public = replace(public, n_rows=6, as_published=as_published)
    rows = clipped_rows(STORAGES[storage](X), y, public.loss)
    rng = np.random.default_rng(1)
    shape = (public.n_parameters, public.loss.n_outputs)
    for start, change in ((np.zeros(shape), np.ones(shape)), *((rng.normal(size=shape), rng.normal(size=shape)),) * 3):
        for distance in (1e-3, 0.3, 3.0):
            points = [sparse(start + distance * change), sparse(start)]
            query = BatchGradient(points[0], clip, a, points[1])
            for numbers in CHOSEN:
                batch = batch_of(rows, numbers)
                one, other = (answer(BatchGradient(point, clip, a), batch, public) for point in points)
                np.testing.assert_allclose(answer(query, batch, public), one - other, rtol=0, atol=1e-12)


@every_storage
def test_differences_are_clipped_row_by_row(storage: str) -> None:
    """A row whose slope changes by more than is allowed is scaled down; others stay as they are."""
    public = PublicFacts(2, 2, 1, Squared(), None, 1.0, 1.0, LABEL, False)
    rows = Rows(STORAGES[storage](np.array([[1.0, 0.0], [0.0, 1.0]])), np.zeros(2))
    query = BatchGradient(sparse(np.array([[0.5], [0.1]])), 10.0, 0.0, SparseWeights.zeros(2, 1), 0.2)
    np.testing.assert_allclose(answer(query, rows, public), [[0.1], [0.05]], rtol=1e-12)


@every_storage
@every_loss
def test_at_the_anchor_nothing_changes_and_nothing_moves(loss: str, storage: str) -> None:
    X, y, public = some_problem(LOSSES[loss], 0.5)
    weights = sparse(np.random.default_rng(1).normal(size=(public.n_parameters, public.loss.n_outputs)))
    query = BatchGradient(weights, 0.3, 0.5, weights)
    np.testing.assert_array_equal(answer(query, clipped_rows(STORAGES[storage](X), y, public.loss), public), 0.0)
    assert query.sensitivity(public).l2 == query.one_unit(public) == 0.0


@reduce_to_pairs()
@every_storage
@pytest.mark.parametrize("with_drift", [False, True])
@pytest.mark.parametrize("penalty", [0.0, 0.4])
@pytest.mark.parametrize("a", [0.0, 0.5])
@pytest.mark.parametrize("loss", ["logistic", "softmax"])
def test_a_step_goes_from_its_start_along_gradient_drift_and_penalty(
    loss: str, storage: str, a: float, penalty: float, with_drift: bool
) -> None:
    """The penalty is on the weights at which the gradient is taken, and not on the intercept."""
    X, y, public = some_problem(LOSSES[loss], a)
    rows = clipped_rows(STORAGES[storage](X), y, public.loss)
    rng = np.random.default_rng(1)
    shape = (public.n_parameters, public.loss.n_outputs)
    start, weights, drift = rng.normal(size=(3, *shape))
    start[0], weights[1] = 0.0, 0.0
    gradient = BatchGradient(sparse(weights), 0.2, a)
    step = BatchStep(sparse(start), gradient, 0.7, penalty, Background(drift) if with_drift else None)
    shrunk = weights.copy()
    shrunk[public.n_features :] = 0.0
    for numbers in CHOSEN:
        batch = batch_of(rows, numbers)
        expected = start - 0.7 * (answer(gradient, batch, public) + penalty * shrunk + with_drift * drift)
        np.testing.assert_allclose(answer(step, batch, public), expected, rtol=1e-12, atol=1e-13)
        exact = step.evaluate(batch, public)
        assert (exact.background is not None) is with_drift
        if a:
            assert exact.listed.lines[-1] == public.n_features  # a threshold keeps every value of it


def test_a_drift_in_other_units_is_taken_in_these() -> None:
    X, y, public = some_problem(Squared(), 0.0)
    drift = np.random.default_rng(0).normal(size=(4, 1))
    zero = SparseWeights.zeros(4, 1)
    rows = clipped_rows(X, y, public.loss)
    plain, scaled = (
        BatchStep(zero, BatchGradient(zero, 0.2), 0.7, 0.0, background)
        for background in (Background(3.0 * drift), Background(drift).times(3.0))
    )
    np.testing.assert_allclose(answer(scaled, rows, public), answer(plain, rows, public), rtol=1e-12)
    assert scaled.size(public) == pytest.approx(plain.size(public))


@every_storage
def test_a_record_that_is_not_finite_counts_as_nothing(storage: str) -> None:
    """Behind the estimator's checks: entries and labels; the sums stay numbers."""
    X, y, public = some_problem(Squared(), 0.5)
    weights = sparse(np.random.default_rng(1).normal(size=(5, 1)))
    query = BatchGradient(weights, 0.3, 0.5, SparseWeights.zeros(5, 1))
    kept = np.delete(np.arange(20), [0, 7, 9])
    X[0, 1], X[7, 2], y[9] = math.nan, math.inf, math.nan
    found = answer(query, clipped_rows(STORAGES[storage](X), y, Squared()), public)
    expected = answer(query, clipped_rows(X[kept], y[kept], Squared()), public)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


# --- sensitivities ---------------------------------------------------------------------------------------------------


@st.composite
def points(draw: st.DrawFn, public: PublicFacts) -> SparseWeights:
    zero = np.zeros((public.n_parameters, public.loss.n_outputs))
    return sparse(draw(weights_of(public) | st.just(zero)))


@st.composite
def batch_gradients(draw: st.DrawFn, public: PublicFacts, a: float) -> BatchGradient:
    """With an anchor or without; near it, far from it, or there."""
    weights = draw(points(public))
    clip = draw(st.sampled_from([0.01, 0.3, 0.5, 1.0, 10.0]))
    if draw(st.booleans()):
        return BatchGradient(weights, clip, a)
    other = draw(points(public))
    anchor = other if draw(st.booleans()) else weights.plus(other, draw(st.sampled_from([0.0, 1e-9, 1e-3, 0.1])))
    return BatchGradient(weights, clip, a, anchor, draw(st.sampled_from([math.inf, 2.0, 1.0, 0.25, 0.01])) * clip)


def assert_no_unit_moves_it_further(
    query: Query,
    first: Rows,
    second: Rows,
    n: int,
    public: PublicFacts,
    batches: list[set[int]],
    rounding: float = 0.0,
) -> None:
    """Within the declared bounds for every one of the batches, each with its own sum over the same public size."""
    unit = set(range(public.rows_per_unit))
    declared = query.sensitivity(public).l2 * ROUNDING + rounding
    own = query.one_unit(public) * ROUNDING + rounding
    fullest = n / public.n_rows * query.size(public) * ROUNDING
    assert declared < math.inf
    for numbers in batches:
        with_unit = [answer(query, batch_of(rows, numbers), public) for rows in (first, second)]
        without = [answer(query, batch_of(rows, numbers - unit), public) for rows in (first, second)]
        assert all(np.all(np.isfinite(found)) for found in (*with_unit, *without))
        assert np.linalg.norm(with_unit[0] - with_unit[1]) <= declared
        np.testing.assert_array_equal(without[0], without[1])
        for found, base in zip(with_unit, without):
            assert np.linalg.norm(found - base) <= own
            assert np.linalg.norm(found) <= fullest


def all_kinds(n: int, drawn: list[int]) -> list[set[int]]:
    """All rows, the first one alone, all others, and a batch that was drawn."""
    return [set(range(n)), {0}, set(range(1, n)), set(drawn)]


@every_storage
@every_loss
class TestNoUnitMovesAnAnswerFurther:
    @given(data=st.data(), batch=st.integers(1, 3), drawn=st.lists(st.integers(0, 2)))
    @settings(max_examples=35)
    def test_batch_gradient(self, loss: str, storage: str, data: st.DataObject, batch: int, drawn: list[int]) -> None:
        first, second, public, a = data.draw(neighbours(LOSSES[loss], storage))
        query, n = data.draw(batch_gradients(public, a)), public.n_rows
        public = replace(public, n_rows=batch)
        assert_no_unit_moves_it_further(query, first, second, n, public, all_kinds(n, drawn))

    @given(data=st.data(), size=st.sampled_from([0.01, 1.0, 30.0]), penalty=st.sampled_from([0.0, 0.5]))
    @settings(max_examples=15)
    def test_batch_step(self, loss: str, storage: str, data: st.DataObject, size: float, penalty: float) -> None:
        first, second, public, a = data.draw(neighbours(LOSSES[loss], storage))
        gradient = data.draw(batch_gradients(public, a))
        drift = Background(data.draw(weights_of(public))) if data.draw(st.booleans()) else None
        step = BatchStep(data.draw(points(public)), gradient, size, penalty, drift)
        declared, own = gradient.sensitivity(public).l2, gradient.one_unit(public)
        assert step.sensitivity(public).l2 == pytest.approx(size * declared)
        assert step.one_unit(public) == pytest.approx(size * own)
        # The last digits of a long step are the start's and the drift's.
        rounding, n = 1e-14 * step.size(public), public.n_rows
        assert_no_unit_moves_it_further(step, first, second, n, public, all_kinds(n, []), rounding)

    @given(data=st.data(), batch=st.integers(1, 3), drawn=st.lists(st.integers(0, 2)))
    @settings(max_examples=15)
    def test_curvature(self, loss: str, storage: str, data: st.DataObject, batch: int, drawn: list[int]) -> None:
        first, second, public, a = data.draw(neighbours(LOSSES[loss], storage))
        query, n = (
            Curvature(data.draw(weights_of(public)), a, data.draw(st.sampled_from([None, 0.2, 3.0]))),
            public.n_rows,
        )
        public = replace(public, n_rows=batch)
        assert_no_unit_moves_it_further(query, first, second, n, public, all_kinds(n, drawn))


def attained(query: Query, first: Rows, second: Rows, public: PublicFacts) -> float:
    """The part of the declared sensitivity that a pair of neighbours uses."""
    change = np.linalg.norm(answer(query, first, public) - answer(query, second, public))
    return float(change / query.sensitivity(public).l2)


def own_part(query: Query, rows: Rows, public: PublicFacts) -> float:
    """The part of the bound on one unit that the first rows use, compared with a batch without them."""
    n = sum(block.n_rows for block in rows.blocks)
    without = batch_of(rows, range(public.rows_per_unit, n))
    change = np.linalg.norm(answer(query, rows, public) - answer(query, without, public))
    return float(change / query.one_unit(public))


@every_storage
@pytest.mark.parametrize("unit", [1, 3])
@every_loss
def test_worst_case_of_a_gradient(loss: str, unit: int, storage: str) -> None:
    """Within 1 % of both bounds, so that those of 2/3 would be exceeded and those of 3/2 not be reached."""
    first, second, public = worst_pair(LOSSES[loss], unit, 0.0, False, storage=storage)
    public = replace(public, n_rows=4)
    query = BatchGradient(SparseWeights.zeros(3, public.loss.n_outputs), 0.4)
    assert 0.99 < attained(query, first, second, public) <= ROUNDING
    assert 0.99 < own_part(query, first, public) <= ROUNDING
    step = BatchStep(query.weights, query, 7.0, 0.1)
    assert 0.99 < attained(step, first, second, public) <= ROUNDING


@pytest.mark.parametrize("a", [0.75, 4.0])
@pytest.mark.parametrize("loss", ["squared", "huber", "logistic", "squared hinge"])
def test_worst_case_of_a_gradient_with_an_intercept(loss: str, a: float) -> None:
    first, second, public = worst_pair(LOSSES[loss], 1, a, True)
    query = BatchGradient(SparseWeights.zeros(4, 1), 0.4, a)
    assert 0.99 < attained(query, first, second, public) <= ROUNDING
    assert 0.99 < own_part(query, first, public) <= ROUNDING


def across(loss: Loss, unit: int, a: float = 0.0) -> tuple[list[Rows], PublicFacts]:
    """Rows at the bound that are nearly across the second feature, and one unit's the other way along the first.

    Slopes of convex losses rise along the way from the anchor: a row and its mirror image would change alike.
    """
    X = np.tile(1.5 * np.array([math.cos(0.05), math.sin(0.05)]), (8, 1))
    X2 = X.copy()
    X2[:unit, 0] *= -1
    y = np.full(8, LABEL / 2 if loss.kind == "regression" else 1.0)
    pair = [Rows(M, y) for M in (X, X2)]
    known = Bounds(row_l2=1.5, label=LABEL).known(2)
    for rows in pair:
        known.clip(rows, loss)
    return pair, PublicFacts(4, 2, 1, loss, None, 1.5, 1.5, LABEL, a > 0, unit)


@pytest.mark.parametrize("unit", [1, 3])
@every_loss
def test_worst_case_of_a_difference(loss: str, unit: int) -> None:
    """Where the clip of the difference decides, and not the distance of the points."""
    (first, second), public = across(LOSSES[loss], unit)
    outputs = public.loss.n_outputs
    far = np.zeros((2, outputs))
    far[1, 0] = 300.0 if outputs == 1 else -300.0
    query = BatchGradient(sparse(far), 0.4, 0.0, SparseWeights.zeros(2, outputs), 0.05)
    assert query.level(public) == pytest.approx(0.05 * 1.5)
    assert 0.99 < attained(query, first, second, public) <= ROUNDING
    assert 0.99 < own_part(query, first, public) <= ROUNDING


# --- levels ----------------------------------------------------------------------------------------------------------


def facts(loss: Loss, as_published: bool = False, **changes: Any) -> PublicFacts:
    return replace(PublicFacts(10, 3, 1, loss, None, 2.0, 1.0, LABEL, False, as_published=as_published), **changes)


@every_loss
@given(data=st.data(), clip=st.sampled_from([0.05, 0.6, 3.0, 1e3]), a=st.sampled_from([0.0, 0.3, 1.0]))
@settings(max_examples=20)
def test_the_level_of_a_gradient_is_that_of_a_gradient_on_all_rows(
    loss: str, data: st.DataObject, clip: float, a: float
) -> None:
    public = facts(LOSSES[loss], data.draw(st.booleans()), fit_intercept=a > 0)
    weights = data.draw(weights_of(public))
    level = BatchGradient(sparse(weights), clip, a).level(public)
    assert level == pytest.approx(ClippedGradient(weights, clip, "l2", a).level(public), rel=1e-12)


def test_the_level_of_a_difference_is_the_least_of_what_bounds_it() -> None:
    """Both slopes together, its own clip, and what the distance of the points allows."""
    public = facts(Squared())
    near, far, zero = sparse(np.array([[0.01], [0.0], [0.0]])), sparse(np.full((3, 1), 50.0)), SparseWeights.zeros(3, 1)
    # |m| <= min(K2 |w|_2, Kinf |w|_1) = min(0.02, 0.01), and curvature 1.
    assert BatchGradient(near, 0.3, 0.0, zero, 0.2).level(public) == pytest.approx(0.01 * 2.0)
    assert BatchGradient(far, 0.3, 0.0, zero, 0.2).level(public) == pytest.approx(0.2 * 2.0)
    assert BatchGradient(far, 0.3, 0.0, zero).level(public) == pytest.approx(0.6 * 2.0)
    # The intercept's entry counts in the row, and in the margin that the points can differ by.
    with_intercept = facts(Squared(), fit_intercept=True)
    moved = sparse(np.array([[0.0], [0.0], [0.0], [0.01]]))
    level = BatchGradient(moved, 0.3, 1.5, SparseWeights.zeros(4, 1), 0.2).level(with_intercept)
    assert level == pytest.approx(1.5 * 0.01 * math.hypot(2.0, 1.5))


@every_loss
def test_as_published_the_levels_are_those_of_the_paper(loss: str) -> None:
    """2 l / b for a gradient and 4 l / b for a difference, whatever the points and the clip of differences."""
    public = facts(LOSSES[loss], as_published=True)
    weights = sparse(np.full((3, public.loss.n_outputs), 1e-3))
    zero, bound = SparseWeights.zeros(*weights.shape), 0.3 * 2.0
    assert BatchGradient(weights, 0.3).sensitivity(public).l2 == pytest.approx(2 * bound / 10)
    for anchor in (zero, weights):
        query = BatchGradient(weights, 0.3, 0.0, anchor, 0.01)
        assert query.sensitivity(public).l2 == pytest.approx(4 * bound / 10)
        assert query.one_unit(public) == pytest.approx(2 * bound / 10)


def test_the_worst_case_of_a_published_difference() -> None:
    """Slopes at opposite clips in the two points: 4 l / b is needed."""
    (first, second), public = across(Squared(), 1)
    public = replace(public, as_published=True)
    away = np.array([[0.0], [300.0]])
    query = BatchGradient(sparse(away), 0.4, 0.0, sparse(-away))
    assert 0.99 < attained(query, first, second, public) <= ROUNDING


# --- losses that lie -------------------------------------------------------------------------------------------------


class SlopeLiar(Squared):
    def slope_bound(self, margin_bound: float, label_bound: float, norm: Norm = "l2") -> float:
        return 0.1


class CurvatureLiar(Squared):
    curvature = 1e-3


class NotANumber(Squared):
    curvature = math.nan


class Unbounded(Squared):
    curvature = math.inf


@pytest.mark.parametrize(
    "loss", [SlopeLiar(), CurvatureLiar(), NotANumber(), Unbounded()], ids=lambda l: type(l).__name__
)
@pytest.mark.parametrize("unit", [1, 3])
def test_a_loss_that_lies_is_clipped_to_its_word(loss: Loss, unit: int) -> None:
    """Understated slopes or curvatures cost accuracy and break no promise."""
    (first, second), public = across(loss, unit)
    near, far = sparse(np.array([[0.1], [0.2]])), sparse(np.array([[0.0], [300.0]]))
    zero = SparseWeights.zeros(2, 1)
    for anchor in (None, zero, near, far):
        for weights in (zero, near, far):
            query = BatchGradient(weights, 5.0, 0.0, anchor, 2.0)
            assert_no_unit_moves_it_further(query, first, second, 8, public, all_kinds(8, []))
    said = {"SlopeLiar": 0.2 * 1.5, "CurvatureLiar": 1e-3 * 1.5 * math.hypot(0.1, 0.2) * 1.5}
    assert BatchGradient(near, 5.0, 0.0, zero).level(public) <= said.get(type(loss).__name__, math.inf) * ROUNDING


class NegativeCurvature(Squared):
    curvature = -1.0


@pytest.mark.parametrize("loss", [Negative(), NegativeCurvature()], ids=lambda l: type(l).__name__)
def test_nonsensical_bounds_let_nothing_through(loss: Loss) -> None:
    """No contribution and no sensitivity, and not the level's magnitude with a wrong sign."""
    (rows, _), public = across(loss, 1)
    query = BatchGradient(sparse(np.ones((2, 1))), 0.5, 0.0, SparseWeights.zeros(2, 1))
    assert query.sensitivity(public).l2 == query.one_unit(public) == 0.0
    np.testing.assert_array_equal(answer(query, rows, public), 0.0)


# --- the curator -----------------------------------------------------------------------------------------------------

N, B = 40, 8


class Spy(Noisy):
    """Answers exactly, and keeps the sensitivity that it was told."""

    seen: list[Sensitivity]

    def release(self, exact: Any, sensitivity: Sensitivity, *rest: Any) -> Any:
        type(self).seen.append(sensitivity)
        return exact


def curator(mechanism: Noisy, count: int = 1, seed: int = 0, X: Any = None, **changes: Any) -> Curator:
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.5, 0.5, (N, 3)) if X is None else X
    public = facts(Squared(), n_rows=N, **changes)
    return Curator(Rows(X, rng.normal(size=N)), public, Plan((Release("x", mechanism, count),)), keyed_generator(seed))


def noisy(scheme: Scheme, noise: float = 1.0, n: int = N, b: int = B, k: int = 1, cls: type[Noisy] = Noisy) -> Noisy:
    return cls(NoisePerSensitivity(noise), Sampling(scheme, n, b, k))


class TestCurator:
    @every_scheme
    @pytest.mark.parametrize("k", [1, 3])
    def test_the_noise_covers_a_unit_that_is_in_the_batch_or_not(self, scheme: Scheme, k: int) -> None:
        """Two bounds on a unit, even where replacing one unit by another moves an answer by one of them."""
        curvature = Curvature(np.array([[1.0], [0.0], [0.0]]))
        gradient = BatchGradient(SparseWeights.zeros(3, 1), 0.3)
        of_batches = facts(Squared(), n_rows=B, rows_per_unit=k)
        assert 2 * curvature.one_unit(of_batches) == 2 * curvature.sensitivity(of_batches).l2
        assert 2 * gradient.one_unit(of_batches) == gradient.sensitivity(of_batches).l2
        for query, expected in ((curvature, 2 * 2.0**2 * k / B), (gradient, 2 * 0.3 * 2.0 * k / B)):
            Spy.seen = []
            curator(noisy(scheme, k=k, cls=Spy), rows_per_unit=k).ask("x", query)
            (told,) = Spy.seen
            assert told.l2 == pytest.approx(expected * summation_slack(N), rel=1e-15)
            assert math.isinf(told.l1)
            assert math.isinf(told.linf)

    @every_scheme
    @pytest.mark.parametrize("batch", [B, N])
    def test_queries_that_claim_no_bound_on_one_unit_are_refused(self, scheme: Scheme, batch: int) -> None:
        query = ClippedGradient(np.zeros((3, 1)), 0.3)
        assert math.isinf(query.one_unit(facts(Squared())))
        with pytest.raises(ValueError, match="states no sensitivity"):
            curator(noisy(scheme, b=batch)).ask("x", query)

    @every_scheme
    def test_sums_are_divided_by_the_public_size(self, scheme: Scheme) -> None:
        """Of batches of many sizes, drawn again from a generator of the same seed; without noise none else is drawn."""
        X, y = np.full((N, 3), 0.5), np.full(N, -1.0)
        plan = Plan((Release("x", noisy(scheme, 0.0), 60),))
        one = Curator(Rows(X, y), facts(Squared(), n_rows=N), plan, keyed_generator(3))
        sampler, generator = Sampler(Sampling(scheme, N, B)), keyed_generator(3)
        sizes = set()
        for _ in range(60):
            size = len(sampler.draw(generator))
            found = one.ask("x", BatchGradient(SparseWeights.zeros(3, 1), 10.0))
            np.testing.assert_allclose(found, np.full((3, 1), 0.5 * size / B), rtol=1e-12, atol=1e-15)
            sizes.add(size)
        assert len(sizes) > 5 if scheme == "poisson" else sizes == {B}

    @pytest.mark.parametrize("X", [np.full((N, 3), 0.5), sp.csr_array(np.full((N, 3), 0.5))], ids=["dense", "csr"])
    @pytest.mark.parametrize("then", [None, HardThreshold(3, 3)], ids=["whole", "thresholded"])
    def test_an_empty_batch_answers_with_noise_alone(self, X: Any, then: HardThreshold | None) -> None:
        """Of the usual scale. The mean of 900 squares is beyond these limits with probability below 1e-6."""
        one = curator(noisy("poisson", b=1), 2000, X=X)
        batches = record_batches(one)
        found: list[np.ndarray] = []
        step = BatchStep(SparseWeights.zeros(3, 1), BatchGradient(SparseWeights.zeros(3, 1), 0.3), 1.0)
        while len(found) < 300:
            value = np.asarray(one.ask("x", step, then=then))
            if not batches[-1]:
                found.append(value)
        assert 0.75 < np.mean(np.square(found)) / (2 * 0.3 * 2.0) ** 2 < 1.25

    def test_plans_of_other_rows_are_refused(self) -> None:
        query = BatchGradient(SparseWeights.zeros(3, 1), 0.3)
        for mechanism in (noisy("poisson", n=N + 1), noisy("poisson", n=B), noisy("poisson", k=2)):
            with pytest.raises(PlanError, match="'x' plans batches of other rows than there are"):
                curator(mechanism).ask("x", query)
        with pytest.raises(PlanError, match="plans batches of other rows"):
            curator(noisy("poisson"), rows_per_unit=2).ask("x", query)

    @every_scheme
    def test_who_is_in_a_batch_is_drawn_from_the_secret_generator(self, scheme: Scheme) -> None:
        """Another generator, other batches; the same one, the same batches."""
        drawn = []
        for seed in (0, 1, 0):
            one = curator(noisy(scheme), 5, seed)
            batches = record_batches(one)
            for _ in range(5):
                one.ask("x", BatchGradient(SparseWeights.zeros(3, 1), 0.3))
            drawn.append(batches)
        assert drawn[0] == drawn[2]
        assert not set(drawn[0]) & set(drawn[1])
        assert len(set(drawn[0])) == 5

    def test_epochs_go_on_from_answer_to_answer_and_each_release_has_its_own(self) -> None:
        rng = np.random.default_rng(0)
        names = ("step", "snapshot")
        plan = Plan(tuple(Release(name, noisy("shuffled"), 2) for name in names))
        one = Curator(
            Rows(rng.normal(size=(N, 3)), rng.normal(size=N)), facts(Squared(), n_rows=N), plan, keyed_generator()
        )
        batches = record_batches(one)
        asked = [name for _ in range(2 * N // B) for name in names]
        for name in asked:
            one.ask(name, BatchGradient(SparseWeights.zeros(3, 1), 0.3))
        one.settle()
        for name in names:
            own = [batch for of, batch in zip(asked, batches) if of == name]
            for epoch in (own[: N // B], own[N // B :]):
                assert sorted(row for batch in epoch for row in batch) == list(range(N))
            with pytest.raises(PlanError, match="more than the 10 times"):
                one.ask(name, BatchGradient(SparseWeights.zeros(3, 1), 0.3))

    def test_roundings_of_the_fullest_batch_join_the_sensitivity(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A Poisson batch can hold all rows, and its sum is then n / b times what is expected."""
        seen: list[Sensitivity] = []
        released = Noisy.release

        def release(self: Noisy, exact: Any, sensitivity: Sensitivity, *rest: Any) -> Any:
            seen.append(sensitivity)
            return released(self, exact, sensitivity, *rest)

        monkeypatch.setattr(Noisy, "release", release)
        query = BatchStep(sparse(np.full((3, 1), 1e9)), BatchGradient(sparse(np.ones((3, 1))), 0.3), 0.5)
        curator(noisy("poisson")).ask("x", query)
        of_batches = facts(Squared(), n_rows=B)
        moved = query.sensitivity(of_batches).times(summation_slack(N)).l2
        assert seen[0].l2 == moved + 2.0**-49 * N / B * query.size(of_batches) > moved * (1 + 1e-6)

    def test_an_answer_that_depends_on_nobody_is_not_rounded_for_anybody(self) -> None:
        """A difference at the anchor itself: no row moves it, so that no digit of it tells of one."""
        weights = sparse(np.ones((3, 1)))
        one = curator(noisy("poisson"))
        step = BatchStep(weights, BatchGradient(weights, 0.3, 0.0, weights), 0.5)
        found = one.ask("x", step, then=HardThreshold(3, 3))
        np.testing.assert_allclose(np.asarray(found), 1.0, rtol=1e-12)

    @pytest.mark.parametrize("storage", STORAGES)
    @pytest.mark.parametrize("entry", [1e160, 1.7e308])
    def test_no_warning_tells_of_an_extreme_row_in_or_out_of_the_batch(self, storage: str, entry: float) -> None:
        """A warning would be a release, be it about a row that was not even drawn."""
        X = np.full((N, 3), 0.1)
        X[0] = entry
        rows, public = Rows(STORAGES[storage](X), np.ones(N)), facts(Squared(), n_rows=N)
        Bounds(row_l2=2.0).known(3).clip(rows, Squared())
        one = Curator(rows, public, Plan((Release("x", noisy("poisson"), 20),)), keyed_generator(0))
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            for _ in range(20):
                one.ask("x", BatchGradient(sparse(np.ones((3, 1))), 0.3, 0.0, SparseWeights.zeros(3, 1)))
        assert [str(warning.message) for warning in seen] == []


def record_batches(one: Curator) -> list[tuple[int, ...]]:
    """The batches that a curator takes from now on."""
    drawn: list[tuple[int, ...]] = []
    rows, take = one._rows, one._rows.batch

    def recorded(numbers: Any) -> Rows:
        drawn.append(tuple(numbers.tolist()))
        return take(numbers)

    rows.batch = recorded  # type: ignore[method-assign]
    return drawn
