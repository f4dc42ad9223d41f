"""Sparse weights are the dense ones, without the zeros."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tulle.fast.sparse_weights import SparseWeights

# Many zeros, so that whole lines are zero.
ENTRIES = st.sampled_from([0.0, 0.0, 0.0, 0.0, 1.0, -2.0, 0.1])
MATRICES = st.tuples(st.integers(0, 8), st.integers(1, 3)).flatmap(lambda shape: arrays(float, shape, elements=ENTRIES))


@given(MATRICES)
def test_to_dense_and_back(dense: np.ndarray) -> None:
    sparse = SparseWeights.from_dense(dense)
    np.testing.assert_array_equal(sparse.to_dense(), dense)
    np.testing.assert_array_equal(np.asarray(sparse), dense)
    np.testing.assert_array_equal(sparse.lines, np.flatnonzero(dense.any(axis=1)))
    assert sparse.shape == dense.shape
    assert np.asarray(sparse, dtype=np.float32).dtype == np.float32


@given(st.data())
def test_sums_are_those_of_the_dense_matrices(data: st.DataObject) -> None:
    first = data.draw(MATRICES)
    second = data.draw(arrays(float, first.shape, elements=ENTRIES))
    factor = data.draw(st.sampled_from([1.0, -0.5, 0.0]))
    total = SparseWeights.from_dense(first).plus(SparseWeights.from_dense(second), factor)
    np.testing.assert_allclose(total.to_dense(), first + factor * second, atol=1e-15)
    np.testing.assert_array_equal(SparseWeights.from_dense(first).scaled(factor).to_dense(), factor * first)


@given(MATRICES)
def test_norms_are_the_largest_of_the_columns(dense: np.ndarray) -> None:
    l1, l2 = SparseWeights.from_dense(dense).norms()
    assert l1 == pytest.approx(np.abs(dense).sum(axis=0).max(initial=0.0))
    assert l2 == pytest.approx(np.linalg.norm(dense, axis=0).max(initial=0.0))


def test_norms_are_of_columns_and_not_of_lines() -> None:
    weights = SparseWeights(np.array([1, 4]), np.array([[3.0, 1.0], [-4.0, 1.0]]), 6)
    assert weights.norms() == (7.0, 5.0)


@pytest.mark.parametrize("values", [np.ones((2, 1)), np.ones((3, 2)), np.ones((2, 2), dtype=np.float32)])
def test_other_values_must_fit_the_lines(values: np.ndarray) -> None:
    weights = SparseWeights(np.array([1, 4]), np.ones((2, 2)), 6)
    with pytest.raises(ValueError, match="cannot be replaced"):
        weights.with_values(values)
    np.testing.assert_array_equal(weights.with_values(2 * weights.values).to_dense(), 2 * weights.to_dense())


def test_pruning_drops_zero_lines_only() -> None:
    weights = SparseWeights(np.array([0, 2, 5]), np.array([[0.0, 1.0], [0.0, 0.0], [-0.0, 0.0]]), 6)
    np.testing.assert_array_equal(weights.pruned().lines, [0])
    np.testing.assert_array_equal(weights.pruned().to_dense(), weights.to_dense())


def test_nothing_is_listed_in_zeros() -> None:
    zeros = SparseWeights.zeros(4, 2)
    assert zeros.shape == (4, 2)
    assert len(zeros.lines) == 0
    assert zeros.norms() == (0.0, 0.0)
    np.testing.assert_array_equal(zeros.to_dense(), np.zeros((4, 2)))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([3, 1], "strictly increasing"),
        ([1, 1], "strictly increasing"),
        ([-1, 2], "between 0 and 4"),
        ([1, 5], "between 0 and 4"),
        ([1, 2, 3], "do not go with"),
    ],
)
def test_lines_that_are_none_raise(lines: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SparseWeights(np.array(lines), np.ones((2, 1)), 5)


def test_different_shapes_cannot_be_added() -> None:
    with pytest.raises(ValueError, match="cannot be added"):
        SparseWeights.zeros(4, 2).plus(SparseWeights.zeros(4, 1))


def test_a_dense_array_without_a_copy_is_refused() -> None:
    with pytest.raises(ValueError, match="always a copy"):
        np.asarray(SparseWeights.zeros(4, 2), copy=False)


def test_costs_what_is_listed() -> None:
    """16 million lines of which a thousand are listed: far less than one dense vector of 128 MB."""
    lines = np.arange(1000) * 16_000
    tracemalloc.start()
    weights = SparseWeights(lines, np.ones((1000, 1)), 16_000_000)
    weights = weights.plus(SparseWeights(lines + 7, np.ones((1000, 1)), 16_000_000), -2.0).scaled(0.5).pruned()
    assert weights.norms() == (1500.0, np.sqrt(1250.0))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 500_000
