"""Compiled loops over batches of rows, compared with scipy and numpy. Others: tests/fast/test_scores_on_demand.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from tulle.fast import batch_kernels as kernels

D = 9000  # more than 64 × 64: some blocks of bits stay empty


def _rows(kind: str) -> Any:
    rng = np.random.default_rng(11)
    X = sp.random_array((40, D), density=0.01, format="lil", random_state=rng, data_sampler=rng.standard_normal)
    if kind == "empty rows":
        X[5:30] = 0.0
    elif kind == "no entries":
        X[:] = 0.0
    elif kind == "borders":
        X[:] = 0.0
        X[7, [0, 63, 64, 4095, 4096, D - 1]] = [1.0, -2.0, 3.0, -4.0, 5.0, -6.0]
    return sp.csr_array(X)


def _taken(X: Any, numbers: np.ndarray, bound: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    counts = np.diff(X.indptr)[numbers]
    features, entries = np.empty(counts.sum(), dtype=X.indices.dtype), np.empty(counts.sum())
    kernels.take_rows(X.indptr, X.indices, X.data, numbers, bound, features, entries)
    return counts, features, entries


every_kind = pytest.mark.parametrize("kind", ["plain", "empty rows", "no entries", "borders"])
every_choice = pytest.mark.parametrize(
    "numbers", [np.arange(0), np.array([7]), np.arange(0, 40, 3)], ids=["no row", "one row", "some rows"]
)


@every_kind
@every_choice
@pytest.mark.parametrize("bound", [np.inf, 0.5], ids=["unclipped", "clipped"])
def test_rows_are_taken_and_multiplied_as_scipy_does(kind: str, numbers: np.ndarray, bound: float) -> None:
    X = _rows(kind)
    expected = X[numbers]
    expected.data = np.clip(expected.data, -bound, bound)
    counts, features, entries = _taken(X, numbers, bound)
    np.testing.assert_array_equal(features, expected.indices)
    np.testing.assert_array_equal(entries, expected.data)
    weights, products = np.random.default_rng(1).normal(size=D), np.empty(len(numbers))
    kernels.row_products(counts, features, entries, weights, products)
    np.testing.assert_allclose(products, expected @ weights, rtol=1e-12, atol=1e-12)


@every_kind
@every_choice
def test_sums_are_listed_in_order_and_leave_nothing_behind(kind: str, numbers: np.ndarray) -> None:
    X = _rows(kind)
    counts, features, entries = _taken(X, numbers, np.inf)
    slopes = np.random.default_rng(2).normal(size=len(numbers))
    sums, bits, words = np.zeros(D), np.zeros(-(-D // 64), np.uint64), np.zeros(-(-D // 4096), np.uint64)
    lines, values = np.full(len(features), -1), np.full(len(features), np.nan)
    found = kernels.sum_rows(counts, features, entries, slopes, sums, bits, words, lines, values)
    expected = X[numbers].T @ slopes
    np.testing.assert_array_equal(lines[:found], np.unique(features))
    np.testing.assert_allclose(values[:found], expected[lines[:found]], rtol=1e-12, atol=1e-12)
    assert not sums.any()
    assert not bits.any()
    assert not words.any()


def test_each_bit_is_told_from_the_others() -> None:
    for number in range(64):
        higher = (0x9E3779B97F4A7C15 << (number + 1)) & (2**64 - 1)
        assert kernels._lowest_bit(np.uint64(higher | 1 << number)) == number
