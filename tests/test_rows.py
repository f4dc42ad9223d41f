"""Rows: every storage gives the same answers, clipping obeys its bounds, and the user's arrays are left alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from tulle import rows as rows_module
from tulle.rows import Rows

N, D, K = 23, 9, 2


def with_duplicates(X: np.ndarray) -> Any:
    """CSC in which every entry is stored as two halves, unsorted."""
    coo = sp.coo_array(X)
    order = np.random.default_rng(1).permutation(2 * coo.nnz)
    row, column, data = (np.tile(a, 2)[order] for a in (coo.row, coo.col, coo.data / 2))
    indptr = np.r_[0, np.cumsum(np.bincount(column, minlength=X.shape[1]))]
    by_column = np.argsort(column, kind="stable")
    return sp.csc_array((data[by_column], row[by_column], indptr), shape=X.shape)


STORAGES: dict[str, Callable[[np.ndarray], Any]] = {
    "float64": lambda X: X.copy(),
    "fortran": np.asfortranarray,
    "float32": lambda X: X.astype(np.float32),
    "csr": sp.csr_array,
    "csr_matrix": sp.csr_matrix,
    "csc": sp.csc_array,
    "csc float32": lambda X: sp.csc_array(X.astype(np.float32)),
    "csc duplicates": with_duplicates,
}
every_storage = pytest.mark.parametrize("storage", STORAGES)


@pytest.fixture
def X() -> np.ndarray:
    """Entries that float32 holds exactly, many zeros, one empty row and one empty column."""
    rng = np.random.default_rng(0)
    X = np.round(rng.normal(size=(N, D)) * 8) / 8 * (rng.random((N, D)) < 0.5)
    X[4], X[:, 6] = 0.0, 0.0
    return X


@pytest.fixture(params=["one block", "many blocks"], autouse=True)
def block_size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of this file runs with the usual blocks and with blocks of three rows, or of four entries."""
    if request.param == "many blocks":
        monkeypatch.setattr(rows_module, "_DENSE_BLOCK_BYTES", 3 * 8 * D)
        monkeypatch.setattr(rows_module, "_SPARSE_PART_ENTRIES", 4)


def make(X: np.ndarray, storage: str = "float64", active: np.ndarray | None = None) -> Rows:
    return Rows(STORAGES[storage](X), np.arange(len(X), dtype=float), active)


def collect(rows: Rows, of: Callable[[Any], np.ndarray]) -> np.ndarray:
    return np.concatenate([of(block) for block in rows.blocks])


def contents(rows: Rows, d: int = D) -> np.ndarray:
    """The rows as the rest of the library sees them, one margin per feature."""
    return collect(rows, lambda block: block.margins(np.eye(d), 0.0))


def clipped(X: np.ndarray, entry: float | None, row: float | None, normalise: bool) -> np.ndarray:
    X = X if entry is None else np.clip(X, -entry, entry)
    if row is None:
        return X
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    safe = np.where(norms > 0, norms, 1.0)
    return X * np.where(norms > 0, row / safe if normalise else np.minimum(row / safe, 1.0), 1.0)


CLIPPINGS = [(None, None, False), (0.5, None, False), (None, 1.0, False), (0.5, 1.0, False), (None, 1.0, True)]


@every_storage
@pytest.mark.parametrize(("entry", "row", "normalise"), CLIPPINGS)
def test_all_storages_agree(
    X: np.ndarray, storage: str, entry: float | None, row: float | None, normalise: bool
) -> None:
    rng = np.random.default_rng(2)
    expected = clipped(X, entry, row, normalise)
    rows = make(X, storage)
    if entry is not None:
        rows.clip_entries(entry)
    if row is not None:
        rows.clip_rows(row, normalise=normalise)
    weights, slopes = rng.normal(size=(D + 1, K)), rng.normal(size=(N, K))
    weights[[1, 2, 3, 5, 7, 8]] = 0.0
    parts = np.split(slopes, np.cumsum([block.n_rows for block in rows.blocks])[:-1])
    features = np.array([0, 3, 6, 7])
    near = {"rtol": 1e-12, "atol": 1e-12}
    np.testing.assert_allclose(contents(rows), expected, **near)
    for w in (weights, rng.normal(size=(D + 1, K)), np.zeros((D + 1, K))):
        margins = collect(rows, lambda block: block.margins(w, 0.3))  # noqa: B023
        np.testing.assert_allclose(margins, expected @ w[:D] + 0.3 * w[D], **near)
    gathered = sum(block.gather(part) for block, part in zip(rows.blocks, parts))
    np.testing.assert_allclose(gathered, expected.T @ slopes, **near)
    gathered_on = sum(block.gather_on(part[:, 0], features) for block, part in zip(rows.blocks, parts))
    np.testing.assert_allclose(gathered_on, expected[:, features].T @ slopes[:, 0], **near)
    np.testing.assert_allclose(collect(rows, lambda b: b.norms("l2")), np.linalg.norm(expected, axis=1), **near)
    np.testing.assert_allclose(collect(rows, lambda b: b.norms("linf")), np.abs(expected).max(axis=1), **near)
    norms_on = collect(rows, lambda b: b.norms_on(features))
    np.testing.assert_allclose(norms_on, np.linalg.norm(expected[:, features], axis=1), **near)


@every_storage
def test_no_features_chosen_gathers_nothing(X: np.ndarray, storage: str) -> None:
    block = make(X, storage).blocks[0]
    none = np.array([], dtype=np.intp)
    assert block.gather_on(np.ones(block.n_rows), none).shape == (0,)
    np.testing.assert_array_equal(block.norms_on(none), np.zeros(block.n_rows))


@every_storage
def test_the_users_arrays_are_never_modified(X: np.ndarray, storage: str) -> None:
    matrix, targets, active = STORAGES[storage](X), np.linspace(-5, 5, N), np.arange(N) % 2 == 0
    parts = (matrix.data, matrix.indices, matrix.indptr) if sp.issparse(matrix) else (matrix,)
    before = [part.copy() for part in (*parts, targets, active)]
    rows = Rows(matrix, targets, active)
    rows.clip_entries(0.25)
    rows.clip_entries(0.125)
    rows.clip_rows(0.2, normalise=True)
    rows.clip_targets(-1.0, 1.0)
    for block in rows.blocks:
        block.gather(block.margins(np.ones((D, 1)), 0.0))
    for part, copy in zip((*parts, targets, active), before):
        np.testing.assert_array_equal(part, copy)
    assert np.abs(contents(rows)).max() < 0.21  # and yet the rows were clipped


@every_storage
def test_read_only_arrays_are_accepted(X: np.ndarray, storage: str) -> None:
    """Memory-mapped files are read-only."""
    matrix = STORAGES[storage](X)
    for part in (matrix.data, matrix.indices, matrix.indptr) if sp.issparse(matrix) else (matrix,):
        part.flags.writeable = False
    rows = Rows(matrix, np.zeros(N))
    rows.clip_entries(0.25)
    assert np.abs(contents(rows)).max() == 0.25


@pytest.mark.parametrize("storage", ["float64", "csc"])
def test_a_later_wider_clip_undoes_nothing(X: np.ndarray, storage: str) -> None:
    rows = make(X, storage)
    rows.clip_entries(0.25)
    rows.clip_entries(0.75)
    assert np.abs(contents(rows)).max() <= 0.25


ENTRIES = {
    "ordinary": (0.0, 1.0, -3.0, 1e-3, 1e30, -1e30, 1e-30, 1e-44, 5e-324),
    "squares overflow": (0.0, 1.0, 1e154, 1e200, -1.7e308),
    "squares underflow": (0.0, 5e-324, 1e-200, 2.7e-162, -1.5e-162, 1e-160),
}


@pytest.mark.parametrize("entries", ENTRIES)
@pytest.mark.parametrize("storage", ["float64", "csr"])
@given(data=st.data(), bound=st.sampled_from([1e-3, 1.0, 1e3]), normalise=st.booleans())
def test_clipped_rows_obey_their_bound(
    storage: str, entries: str, data: st.DataObject, bound: float, normalise: bool
) -> None:
    """Rows of huge, ordinary, denormal and zero entries; the norm is taken without overflow or underflow."""
    entry = st.sampled_from(ENTRIES[entries])
    X = np.array(data.draw(st.lists(st.lists(entry, min_size=4, max_size=4), min_size=1, max_size=4)))
    rows = make(X, storage)
    rows.clip_rows(bound, normalise=normalise)
    after = contents(rows, 4)
    assert np.all(scaled_norms(after) <= bound * (1 + 1e-12))
    for norms in (collect(rows, lambda block: block.norms("l2")), collect(rows, lambda block: block.norms("linf"))):
        assert np.all(norms <= bound * (1 + 1e-12)), "a norm that is not a number bounds nothing"


def scaled_norms(X: np.ndarray) -> np.ndarray:
    largest = np.abs(X).max(axis=1, keepdims=True)
    safe = np.where(largest > 0, largest, 1.0)
    return largest[:, 0] * np.linalg.norm(X / safe, axis=1)


@every_storage
def test_normalising_stops_where_an_entry_reaches_its_bound(X: np.ndarray, storage: str) -> None:
    rows = make(X, storage)
    rows.clip_rows(1.0, 0.75, normalise=True)
    norms, entries = (collect(rows, lambda block: block.norms(norm)) for norm in ("l2", "linf"))  # noqa: B023
    full = np.any(X != 0, axis=1)
    assert np.all(norms <= 1 + 1e-12)
    assert np.all(entries <= 0.75 * (1 + 1e-12))
    np.testing.assert_allclose(np.maximum(norms, entries / 0.75)[full], 1.0, rtol=1e-12)


@every_storage
def test_normalising_leaves_empty_rows_empty_and_scales_all_others(X: np.ndarray, storage: str) -> None:
    rows = make(X, storage)
    rows.clip_rows(2.0, normalise=True)
    norms = collect(rows, lambda block: block.norms("l2"))
    np.testing.assert_allclose(norms, np.where(np.any(X != 0, axis=1), 2.0, 0.0), rtol=1e-12)


@pytest.mark.parametrize("storage", ["float64", "csc"])
class TestMarginsCache:
    def test_weights_changed_in_place_are_noticed(self, X: np.ndarray, storage: str) -> None:
        rows, weights = make(X, storage), np.ones((D, 1))
        for value in (1.0, 2.0, -3.0):
            weights[0] = value
            margins = collect(rows, lambda block: block.margins(weights, 0.0))
            np.testing.assert_allclose(margins, X @ weights, atol=1e-12)

    def test_another_intercept_is_noticed(self, X: np.ndarray, storage: str) -> None:
        rows, weights = make(X, storage), np.ones((D + 1, 1))
        first, second = (collect(rows, lambda block: block.margins(weights, a)) for a in (0.5, 0.25))  # noqa: B023
        np.testing.assert_allclose(first - second, 0.25, atol=1e-12)

    def test_clipping_is_noticed(self, X: np.ndarray, storage: str) -> None:
        rows = make(X, storage)
        contents(rows)
        rows.clip_entries(0.5)
        np.testing.assert_allclose(contents(rows), clipped(X, 0.5, None, False), atol=1e-12)
        rows.clip_rows(0.6)
        np.testing.assert_allclose(contents(rows), clipped(X, 0.5, 0.6, False), atol=1e-12)


@every_storage
def test_targets_and_activity_follow_their_rows(X: np.ndarray, storage: str) -> None:
    active = np.random.default_rng(3).random(N) < 0.5
    rows = make(X, storage, active)
    np.testing.assert_array_equal(collect(rows, lambda block: block.active), active)
    np.testing.assert_array_equal(collect(rows, lambda block: block.targets), np.arange(N))
    rows.clip_targets(3.0, 7.0)
    np.testing.assert_array_equal(collect(rows, lambda block: block.targets), np.clip(np.arange(N), 3, 7))
    np.testing.assert_array_equal(collect(make(X, storage), lambda block: block.active), np.ones(N, dtype=bool))


@every_storage
def test_reduce_sums_every_row_once(X: np.ndarray, storage: str) -> None:
    total = make(X, storage).reduce(lambda block: np.array([block.n_rows, block.targets.sum()]))
    np.testing.assert_array_equal(total, [N, N * (N - 1) / 2])
