"""Rows: every storage gives the same answers, clipping obeys its bounds, and the user's arrays are left alone."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from copy import copy
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from pairwise import reduce_to_pairs

from tulle.fast import compiled_rows, sparse_batch
from tulle.fast.compiled_rows import SparseBlock
from tulle.fast.coordinate_path import CoordinatePath
from tulle.fast.sparse_batch import SparseBatch
from tulle.fast.sparse_weights import SparseWeights
from tulle.trusted import rows as rows_module
from tulle.trusted.rows import Rows, make_block

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
        monkeypatch.setattr(compiled_rows, "_SPARSE_PART_ENTRIES", 4)


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
    units = rng.uniform(0.1, 5.0, D)
    norms_in = collect(rows, lambda b: b.norms_in(units))
    np.testing.assert_allclose(norms_in, np.abs(expected / units).max(axis=1), **near)


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
    for part, old in zip((*parts, targets, active), before):
        np.testing.assert_array_equal(part, old)
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


def a_walk(outputs: int, intercept: bool, start: bool = True) -> CoordinatePath:
    rng = np.random.default_rng(5)
    return CoordinatePath(rng.normal(size=(D + intercept, outputs)) * start)


def some_moves(walk: CoordinatePath, seed: int, count: int = 1) -> None:
    """To any coordinate, an empty column and the constant one included."""
    rng, (parameters, outputs) = np.random.default_rng(seed), walk.unscaled.shape
    for _ in range(count):
        walk.move(rng.choice([1.0, 0.5, 0.9]), rng.integers(0, parameters, outputs), rng.normal(size=outputs))


def margins_along(rows: Rows, walk: CoordinatePath, a: float = 0.0) -> np.ndarray:
    return collect(rows, lambda block: block.margins_along(walk.point, a).copy())


class TestMarginsAlong:
    @reduce_to_pairs()
    @every_storage
    @pytest.mark.parametrize(("entry", "row", "normalise"), CLIPPINGS)
    @pytest.mark.parametrize(("outputs", "a"), [(1, 0.0), (K, 0.3)])
    def test_are_the_margins_of_the_present_weights(
        self,
        X: np.ndarray,
        storage: str,
        entry: float | None,
        row: float | None,
        normalise: bool,
        outputs: int,
        a: float,
    ) -> None:
        """After every move, and after several at once; all coordinates are moved, the constant column's too."""
        rows, expected = make(X, storage), clipped(X, entry, row, normalise)
        if entry is not None:
            rows.clip_entries(entry)
        if row is not None:
            rows.clip_rows(row, normalise=normalise)
        walk = a_walk(outputs, a > 0)
        full = np.hstack([expected, np.full((N, 1), a)]) if a else expected
        for seed, count in enumerate([0, *[1] * 25, 0, 7]):
            some_moves(walk, seed, count)
            np.testing.assert_allclose(margins_along(rows, walk, a), full @ walk.weights, rtol=1e-11, atol=1e-11)
        moves = walk.point.moves_since(None) or []
        assert len(set(np.concatenate([move.coordinates for move in moves]))) == len(walk.unscaled)

    @every_storage
    def test_another_walk_starts_afresh(self, X: np.ndarray, storage: str) -> None:
        """Also one that starts where the first did and has made as many moves, and the first one once more."""
        rows, first = make(X, storage), a_walk(1, False)
        second = CoordinatePath(first.point.start)
        for seed, walk in enumerate([first, second, first, first, second]):
            some_moves(walk, seed, 2)
            np.testing.assert_allclose(margins_along(rows, walk), X @ walk.weights, atol=1e-12)

    @every_storage
    def test_another_intercept_starts_afresh(self, X: np.ndarray, storage: str) -> None:
        rows, walk = make(X, storage), a_walk(1, True)
        for seed, a in enumerate([0.5, 0.25, 0.5]):
            some_moves(walk, seed, 3)
            np.testing.assert_allclose(
                margins_along(rows, walk, a), X @ walk.weights[:D] + a * walk.weights[D], atol=1e-12
            )

    @every_storage
    def test_clipping_is_noticed(self, X: np.ndarray, storage: str) -> None:
        rows, walk = make(X, storage), a_walk(1, False)
        some_moves(walk, 0, 3)
        margins_along(rows, walk)
        rows.clip_entries(0.5)
        np.testing.assert_allclose(margins_along(rows, walk), clipped(X, 0.5, None, False) @ walk.weights, atol=1e-12)
        some_moves(walk, 1, 3)
        rows.clip_rows(0.6)
        np.testing.assert_allclose(margins_along(rows, walk), clipped(X, 0.5, 0.6, False) @ walk.weights, atol=1e-12)

    @every_storage
    def test_rows_are_multiplied_with_the_start_alone(
        self, X: np.ndarray, storage: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Afterwards only moved columns are read."""
        rows, walk, products = make(X, storage), a_walk(1, False), []
        kind = type(rows.blocks[0])
        product = kind._product
        monkeypatch.setattr(kind, "_product", lambda self, w: products.append(w) or product(self, w))
        for seed in range(5):
            margins_along(rows, walk)
            some_moves(walk, seed)
        assert len(products) == len(rows.blocks)

    @every_storage
    def test_margins_at_other_weights_are_not_disturbed(self, X: np.ndarray, storage: str) -> None:
        """The two memories of a block are apart: the start's margins are asked for before, between and after."""
        rows, walk = make(X, storage), a_walk(1, False)
        for seed in range(3):
            at_start = collect(rows, lambda block: block.margins(walk.point.start, 0.0).copy())
            np.testing.assert_allclose(at_start, X @ walk.point.start, atol=1e-12)
            np.testing.assert_allclose(margins_along(rows, walk), X @ walk.weights, atol=1e-12)
            some_moves(walk, seed)

    @every_storage
    def test_an_empty_column_moves_nothing(self, X: np.ndarray, storage: str) -> None:
        rows, walk = make(X, storage), a_walk(1, False)
        before = margins_along(rows, walk)
        walk.move(1.0, np.array([6]), np.array([1e6]))
        np.testing.assert_array_equal(margins_along(rows, walk), before)


@every_storage
def test_norms_in_units_are_those_of_rows_as_they_now_are(X: np.ndarray, storage: str) -> None:
    """Not remembered for other units, nor from before a clip."""
    rows = make(X, storage)
    for units in (np.ones(D), np.arange(1.0, D + 1), np.full(D, 0.25)):
        found = collect(rows, lambda block: block.norms_in(units))  # noqa: B023
        np.testing.assert_allclose(found, np.abs(X / units).max(axis=1), rtol=1e-12)
    np.testing.assert_array_equal(collect(rows, lambda block: block.norms_in(np.ones(D)))[4], 0.0)
    rows.clip_rows(0.6)
    expected = np.abs(clipped(X, None, 0.6, False) / units).max(axis=1)
    np.testing.assert_allclose(collect(rows, lambda block: block.norms_in(units)), expected, rtol=1e-12)


class TestKept:
    def test_is_made_once_for_a_key(self, X: np.ndarray) -> None:
        block, key, made = make(X).blocks[0], (object(), 0.5), []
        for _ in range(3):
            assert block.kept_for(key, lambda: made.append(1) or "what was made") == "what was made"
        assert len(made) == 1

    def test_only_the_last_is_kept(self, X: np.ndarray) -> None:
        """Keys are told apart by the identity of their parts, not equality: walks that look the same are not."""
        block, made = make(X).blocks[0], []
        first, second, units = [1], [1], np.ones(2)
        keys = [(first, None), (second, None), (first, None), (first, units), (first, units.copy())]
        for key in keys:
            assert block.kept_for(key, lambda: made.append(key) or len(made)) == len(made)  # noqa: B023
        assert len(made) == len(keys)

    @pytest.mark.parametrize("storage", ["float64", "csr"])
    @pytest.mark.parametrize(
        "clip",
        [
            lambda rows: rows.clip_entries(1e9),
            lambda rows: rows.clip_rows(1e9),
            lambda rows: rows.clip_targets(-1e9, 1e9),
        ],
        ids=["entries", "rows", "targets"],
    )
    def test_every_clip_forgets(self, X: np.ndarray, storage: str, clip: Callable[[Rows], None]) -> None:
        """Even one that changes nothing."""
        rows, key = make(X, storage), (object(),)
        assert rows.blocks[0].kept_for(key, lambda: "before") == "before"
        clip(rows)
        assert rows.blocks[0].kept_for(key, lambda: "after") == "after"


@pytest.mark.parametrize("storage", [name for name in STORAGES if name.startswith("cs")])
@pytest.mark.parametrize(("entry", "row", "normalise"), CLIPPINGS)
def test_columns_in_place_are_the_rows_as_they_now_are(
    X: np.ndarray, storage: str, entry: float | None, row: float | None, normalise: bool
) -> None:
    """Entries times the factor of their row; entries are not copied, and row numbers of 32 bits are unsigned."""
    rows = make(X, storage)
    if entry is not None:
        rows.clip_entries(entry)
    if row is not None:
        rows.clip_rows(row, normalise=normalise)
    (block,) = rows.blocks
    assert isinstance(block, SparseBlock)
    starts, lines, entries, factors = block.columns_in_place()
    assert len(entries) == len(lines) == starts[-1] == np.count_nonzero(X)
    assert starts.dtype == np.int64
    assert (lines.dtype.kind == "u") is (block._csc.indices.dtype.itemsize == 4)
    assert entries is block._csc.data
    found = np.zeros((N, D))
    found[lines, np.repeat(np.arange(D), np.diff(starts))] = entries * factors[lines]
    np.testing.assert_allclose(found, clipped(X, entry, row, normalise), rtol=1e-12, atol=1e-15)


@every_storage
def test_targets_and_activity_follow_their_rows(X: np.ndarray, storage: str) -> None:
    active = np.random.default_rng(3).random(N) < 0.5
    rows = make(X, storage, active)
    np.testing.assert_array_equal(collect(rows, lambda block: block.active), active)
    targets = np.where(active, np.arange(N), 0.0)
    np.testing.assert_array_equal(collect(rows, lambda block: block.targets), targets)
    rows.clip_targets(-7.0, 7.0)
    np.testing.assert_array_equal(collect(rows, lambda block: block.targets), np.clip(targets, -7, 7))
    np.testing.assert_array_equal(collect(make(X, storage), lambda block: block.active), np.ones(N, dtype=bool))


@every_storage
def test_reduce_sums_every_row_once(X: np.ndarray, storage: str) -> None:
    total = make(X, storage).reduce(lambda block: np.array([block.n_rows, block.targets.sum()]))
    np.testing.assert_array_equal(total, [N, N * (N - 1) / 2])


@pytest.mark.parametrize("compiled", [False, True])
def test_a_copy_of_a_block_has_nothing_of_a_batch_in_it(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker may copy a block to its disk in the middle of a sum; what is half summed must not come back."""
    from tulle.fast import batch_kernels

    monkeypatch.setattr(sparse_batch, "_compiled_loops", lambda *_: batch_kernels if compiled else None)
    X = sp.random_array((40, 30), density=0.3, format="csr", random_state=np.random.default_rng(0))
    block = make_block(X, np.ones(40))
    first, second = np.arange(0, 20), np.arange(20, 30)
    right = block.take(second).gather_sparsely(np.ones((10, 1)))
    batch = block.take(first)
    assert isinstance(batch, SparseBatch)
    whole = batch.gather_sparsely(np.ones((20, 1)))
    batch._scratch.sums[:] = 7.0  # as in the middle of a sum
    batch._scratch.bits[0][:] = 1
    of_block = pickle.loads(pickle.dumps(block)).take(second).gather_sparsely(np.ones((10, 1)))
    of_batch = pickle.loads(pickle.dumps(batch)).gather_sparsely(np.ones((20, 1)))
    for found, expected in ((of_block, right), (of_batch, whole)):
        np.testing.assert_array_equal(found.lines, expected.lines)
        np.testing.assert_array_equal(found.values, expected.values)


@pytest.mark.parametrize("use", ["margins", "sums"])
def test_a_batch_that_fails_leaves_nothing_for_the_next(use: str, monkeypatch: pytest.MonkeyPatch) -> None:
    X = sp.random_array((40, 30), density=0.3, format="csr", random_state=np.random.default_rng(0))
    block = make_block(X, np.ones(40))
    batch = block.take(np.arange(20))
    assert isinstance(batch, SparseBatch)
    right = block.take(np.arange(20, 40)).gather_sparsely(np.ones((20, 1)))
    weights = SparseWeights(np.arange(30), np.ones((30, 1)), 30)

    class Failing:
        """Loops that leave something behind and then fail."""

        def row_products(self, counts: Any, features: Any, entries: Any, weights: Any, products: Any) -> None:
            raise MemoryError

        def sum_rows(self, counts: Any, features: Any, entries: Any, slopes: Any, sums: Any, *rest: Any) -> None:
            sums[:] = 3.0
            raise MemoryError

    monkeypatch.setattr(batch, "_loops", Failing())
    with pytest.raises(MemoryError):
        batch.margins_at(weights, 0.0) if use == "margins" else batch.gather_sparsely(np.ones((20, 1)))
    found = block.take(np.arange(20, 40)).gather_sparsely(np.ones((20, 1)))
    np.testing.assert_array_equal(found.values, right.values)


# --- rows that do not count ------------------------------------------------------------------------------------------


def left_out(X: np.ndarray, storage: str, why: str) -> tuple[Any, Rows, np.ndarray]:
    """The given array, its rows, and which of them count: all but rows 2, 4 and 11, with huge entries in two."""
    X, counts = X.copy(), np.ones(N, dtype=bool)
    counts[[2, 4, 11]] = False
    largest = 3e38 if "32" in storage else 1.7e308
    X[2], X[11, 3], X[11, 6] = -largest, largest, 0.5
    if why == "not finite":
        X[~counts, 1] = [np.nan, np.inf, -np.inf]
    if why == "too long" and "32" in storage:
        pytest.skip("no float32 is too long")
    X[4, 0] = largest
    matrix = STORAGES[storage](X)
    rows = Rows(matrix, np.arange(1.0, N + 1), counts if why == "surplus" else None)
    if why == "too long":
        with np.errstate(all="ignore"):
            rows.clip_rows(1e9)
    return matrix, rows, counts


@every_storage
@pytest.mark.parametrize("why", ["surplus", "not finite", "too long"])
def test_rows_that_do_not_count_are_zeros(X: np.ndarray, storage: str, why: str) -> None:
    """Entries and target, by columns, by rows, in batches and in batches of batches; sums never meet what they were."""
    matrix, rows, counts = left_out(X, storage, why)
    parts = (matrix.data,) if sp.issparse(matrix) else (matrix,)
    before = [part.copy() for part in parts]
    expected = np.where(counts[:, None], X, 0.0)
    numbers = np.array([1, 2, 4, 7, 11, 20])
    batch = rows.batch(numbers)
    some = np.arange(0, 6, 2)
    for found, right in (
        (rows, np.arange(N)),
        (batch, numbers),
        (batch.batch(some), numbers[some]),
    ):
        np.testing.assert_array_equal(collect(found, lambda block: block.active), counts[right])
        np.testing.assert_array_equal(
            collect(found, lambda block: block.targets), (counts * np.arange(1.0, N + 1))[right]
        )
        np.testing.assert_array_equal(contents(found), expected[right])
        columns = collect(found, lambda block: sp.csr_array(block.columns(np.arange(D))).toarray())
        np.testing.assert_array_equal(columns, expected[right])
        np.testing.assert_array_equal(collect(found, lambda b: b.norms("linf")), np.abs(expected[right]).max(axis=1))
        infinite = found.reduce(lambda block: block.gather(np.where(block.active, 1.0, 1e300)[:, None]))
        np.testing.assert_allclose(infinite[:, 0], expected[right].sum(axis=0), atol=1e-12)
        sparsely = found.reduce(lambda block: block.gather_sparsely(np.where(block.active, 1.0, 1e300)[:, None]))
        np.testing.assert_allclose(sparsely.to_dense()[:, 0], expected[right].sum(axis=0), atol=1e-12)
    for block in rows.blocks:
        held = block._csc.toarray() if isinstance(block, SparseBlock) else block._rows  # type: ignore[attr-defined]
        assert not held[~block.active].any()
    for part, old in zip(parts, before):
        np.testing.assert_array_equal(part, old)


@every_storage
def test_nothing_is_copied_where_all_rows_count(X: np.ndarray, storage: str) -> None:
    matrix = STORAGES[storage](X)
    rows = Rows(matrix, np.zeros(N))
    rows.clip_rows(1.0)
    for block in rows.blocks:
        if storage == "csc":
            assert np.shares_memory(block._csc.data, matrix.data)  # type: ignore[attr-defined]
        if not sp.issparse(matrix):
            assert np.shares_memory(block._rows, matrix)  # type: ignore[attr-defined]


@every_storage
def test_a_twin_is_cleared_without_a_change_to_its_block(X: np.ndarray, storage: str) -> None:
    """Also where the block has a copy of its own already."""
    rows = make(X, storage, np.arange(N) != 3)
    for block in rows.blocks:
        block.clip_entries(0.5)
        right = block.margins(np.eye(D), 0.0).copy()
        twin = copy(block)
        twin._leave_out(np.ones(block.n_rows, dtype=bool))
        assert not twin.margins(np.eye(D), 0.0).any()
        block._forget()
        np.testing.assert_array_equal(block.margins(np.eye(D), 0.0), right)


@every_storage
@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_lengths_are_not_those_of_rows_before_a_clip(X: np.ndarray, storage: str, norm: str) -> None:
    """A fit that estimates its bounds asks for lengths, and clips the rows then."""
    rows = make(X, storage)
    collect(rows, lambda block: block.norms(norm))
    rows.clip_rows(0.25)
    order = 2 if norm == "l2" else np.inf
    expected = np.linalg.norm(clipped(X, None, 0.25, False), ord=order, axis=1)
    np.testing.assert_allclose(collect(rows, lambda block: block.norms(norm)), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("storage", ["float64", "csr", "csc"])
def test_a_stretched_row_is_measured_as_it_now_is(storage: str) -> None:
    """Its entries on a few features may be so small, before it is stretched, that their squares vanish."""
    X = np.zeros((N, D))
    X[5, :3] = [1e-120, 1e-165, 1e-170]
    rows = make(X, storage)
    rows.clip_rows(1e50, normalise=True)
    on, units = np.array([1, 2]), np.r_[np.full(D - 1, 1e60), 1.0]
    for found in (rows, rows.batch(np.arange(4, 7))):
        place = 5 if found is rows else 1
        np.testing.assert_allclose(collect(found, lambda block: block.norms_on(on))[place], 1e5, rtol=1e-9)
        np.testing.assert_allclose(collect(found, lambda block: block.norms_in(units))[place], 1e-10, rtol=1e-9)
