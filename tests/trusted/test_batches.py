"""Batches of rows: what is asked of a batch is answered as by rows that are nothing but the batch, clipped alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from test_rows import CLIPPINGS, STORAGES, D, K, N, block_size, collect  # noqa: F401 (an autouse fixture)

from tulle.fast.compiled_rows import DenseBlock, SparseBlock
from tulle.fast.coordinate_path import CoordinatePath
from tulle.fast.sparse_batch import SparseBatch
from tulle.fast.sparse_weights import SparseWeights
from tulle.trusted.rows import Block, Rows

every_storage = pytest.mark.parametrize("storage", STORAGES)
every_clipping = pytest.mark.parametrize(("entry", "row", "normalise"), CLIPPINGS)

# Within one block of three rows, over several, without entries, and none at all.
BATCHES: dict[str, list[int]] = {
    "none": [],
    "first": [0],
    "last": [N - 1],
    "one block": [3, 5],
    "last block": [21, 22],
    "empty row": [4],
    "empty rows": [4, 11],
    "some": [0, 2, 4, 9, 10, 11, 17, 22],
    "nearly all": [i for i in range(N) if i != 7],
}


@pytest.fixture
def X() -> np.ndarray:
    """Entries that float32 holds exactly, many zeros, two empty rows and an empty column."""
    rng = np.random.default_rng(0)
    X = np.round(rng.normal(size=(N, D)) * 8) / 8 * (rng.random((N, D)) < 0.5)
    X[[4, 11]], X[:, 6] = 0.0, 0.0
    return X


ACTIVE = np.random.default_rng(3).random(N) < 0.7


def make(
    X: Any,
    numbers: list[int] | None = None,
    entry: float | None = None,
    row: float | None = None,
    normalise: bool = False,
) -> Rows:
    """Clipped rows; given numbers, nothing but these rows of a dense array."""
    targets, active = np.arange(N, dtype=float), ACTIVE
    if numbers is not None:
        # As columns: dense rows of which there are none have no block to ask.
        X, targets, active = sp.csc_array(X[numbers]), targets[numbers], ACTIVE[numbers]
    rows = Rows(X, targets, active)
    with np.errstate(all="ignore"):
        if entry is not None:
            rows.clip_entries(entry)
        if row is not None:
            rows.clip_rows(row, normalise=normalise)
    return rows


def dense_columns(block: Block, features: np.ndarray) -> np.ndarray:
    columns = block.columns(features)
    return np.asarray(columns.toarray() if sp.issparse(columns) else columns)


def answers(rows: Rows) -> Iterator[tuple[str, np.ndarray]]:
    """Everything that queries ask of blocks, with a name; sums are over all of the rows."""
    rng = np.random.default_rng(2)
    n = sum(block.n_rows for block in rows.blocks)
    weights = rng.normal(size=(D + 1, K))
    few = SparseWeights(np.array([1, 4, D]), rng.normal(size=(3, K)), D + 1)
    without = SparseWeights(np.array([1, 4]), rng.normal(size=(2, K)), D + 1)
    sparse = weights.copy()
    sparse[[1, 2, 3, 5, 7, 8]] = 0.0
    features, nothing = np.array([0, 3, 6, 7]), np.array([], dtype=np.intp)
    units = rng.uniform(0.1, 5.0, D)
    ends = np.cumsum([block.n_rows for block in rows.blocks])

    def total(of: Callable[[Block, np.ndarray], Any], outputs: int) -> np.ndarray:
        slopes = np.split(np.random.default_rng(4).normal(size=(n, outputs)), ends[:-1])
        return np.asarray(sum(of(block, part) for block, part in zip(rows.blocks, slopes)))

    for name, w in (("dense", weights), ("sparse", sparse), ("zero", 0 * weights)):
        for a in (0.0, 0.3):
            yield f"margins {name} {a}", collect(rows, lambda b: b.margins(w, a))  # noqa: B023
    for name, some in (("few", few), ("no intercept", without), ("none", SparseWeights.zeros(D + 1, K))):
        for a in (0.0, 0.3):
            yield f"margins at {name} {a}", collect(rows, lambda b: b.margins_at(some, a))  # noqa: B023
    for outputs in (1, K):
        yield f"gather {outputs}", total(lambda b, s: b.gather(s), outputs)
        yield f"gather sparsely {outputs}", total(lambda b, s: b.gather_sparsely(s).to_dense(), outputs)
    yield "gather on", total(lambda b, s: b.gather_on(s[:, 0], features), 1)
    yield "gather on nothing", total(lambda b, s: b.gather_on(s[:, 0], nothing), 1)
    yield "l2", collect(rows, lambda b: b.norms("l2"))
    yield "linf", collect(rows, lambda b: b.norms("linf"))
    yield "norms on", collect(rows, lambda b: b.norms_on(features))
    yield "norms on nothing", collect(rows, lambda b: b.norms_on(nothing))
    yield "norms in", collect(rows, lambda b: b.norms_in(units))
    yield "columns", collect(rows, lambda b: dense_columns(b, features))
    yield "active", collect(rows, lambda b: b.active).astype(float)
    yield "targets", collect(rows, lambda b: b.targets)
    walk = CoordinatePath(weights)
    for shrink, coordinates in ((1.0, [0, 3]), (0.5, [D, 6]), (0.9, [7, 0])):
        yield f"along a walk {coordinates}", collect(rows, lambda b: b.margins_along(walk.point, 0.3)).copy()
        walk.move(shrink, np.array(coordinates), np.array([0.7, -1.3]))
    yield "at the end of a walk", collect(rows, lambda b: b.margins_along(walk.point, 0.3)).copy()


def assert_alike(batch: Rows, alone: Rows) -> None:
    with np.errstate(all="ignore"):
        for (name, found), (_, expected) in zip(answers(batch), answers(alone), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12, err_msg=name)


def assert_scratch_is_clean(rows: Rows) -> None:
    for block in rows.blocks:
        if isinstance(block, SparseBlock) and block._scratch is not None:
            np.testing.assert_array_equal(block._scratch.sums, 0.0)
            assert not block._scratch.flags.any()


@every_storage
@every_clipping
def test_a_batch_answers_as_rows_of_its_own(
    X: np.ndarray, storage: str, entry: float | None, row: float | None, normalise: bool
) -> None:
    rows = make(STORAGES[storage](X), None, entry, row, normalise)
    for numbers in BATCHES.values():
        assert_alike(rows.batch(np.array(numbers, dtype=np.intp)), make(X, numbers, entry, row, normalise))
        assert_scratch_is_clean(rows)


@every_storage
def test_all_rows_are_not_copied(X: np.ndarray, storage: str) -> None:
    rows = make(STORAGES[storage](X))
    assert rows.batch(np.arange(N)) is rows


@pytest.mark.parametrize("storage", ["float64", "csr", "csc"])
def test_sparse_batches_read_rows_and_dense_ones_copy_them(X: np.ndarray, storage: str) -> None:
    """What a batch costs: its entries where rows are sparse, whoever stored them."""
    batch = make(STORAGES[storage](X)).batch(np.array(BATCHES["some"]))
    assert {type(block) for block in batch.blocks} == {DenseBlock if storage == "float64" else SparseBatch}
    total = batch.blocks[0].gather_sparsely(np.ones((batch.blocks[0].n_rows, 1)))
    touched = np.flatnonzero(np.any(X[BATCHES["some"]] != 0, axis=0))
    np.testing.assert_array_equal(total.lines, np.arange(D) if storage == "float64" else touched)


@every_storage
@pytest.mark.parametrize("name", ["none", "first", "some", "nearly all"])
def test_records_that_are_not_finite_count_as_nothing_in_a_batch_too(X: np.ndarray, storage: str, name: str) -> None:
    """Behind the estimator's checks, which refuse them."""
    numbers = BATCHES[name]
    X[[0, 9, 22], [2, 1, 8]] = np.nan, np.inf, -np.inf
    batch = make(STORAGES[storage](X), None, 0.5, 1.0).batch(np.array(numbers, dtype=np.intp))
    assert_alike(batch, make(X, numbers, 0.5, 1.0))
    found = collect(batch, lambda block: block.active)
    np.testing.assert_array_equal(found, (ACTIVE & np.isfinite(X).all(axis=1))[numbers])
    assert all(np.all(np.isfinite(answer)) for _, answer in answers(batch))


@pytest.mark.parametrize("storage", ["float64", "csr", "csc"])
@pytest.mark.parametrize("huge", [1e155, 1.7e308])
def test_rows_whose_norms_overflow_count_as_nothing_in_a_batch_too(X: np.ndarray, storage: str, huge: float) -> None:
    X[[0, 5, 21]] = huge
    rows = make(STORAGES[storage](X), None, None, 1.0)
    for numbers in BATCHES.values():
        with np.errstate(all="ignore"):
            batch = rows.batch(np.array(numbers, dtype=np.intp))
        assert_alike(batch, make(X, numbers, None, 1.0))
        assert not np.any(collect(batch, lambda block: block.active)[np.isin(numbers, [0, 5, 21])])


@every_storage
def test_batches_in_turn_do_not_disturb_each_other(X: np.ndarray, storage: str) -> None:
    """Asked one after the other, and each again when the other was asked, and so all rows."""
    rows = make(STORAGES[storage](X), None, 0.5, 1.0)
    names = ("some", "nearly all", "none", "last block")
    batches = {name: rows.batch(np.array(BATCHES[name], dtype=np.intp)) for name in names}
    for name, batch in batches.items():
        assert_alike(batch, make(X, BATCHES[name], 0.5, 1.0))
        assert_scratch_is_clean(rows)
    assert_alike(rows, make(X, list(range(N)), 0.5, 1.0))
    steps = [answers(batch) for batch in batches.values()]  # interleaved, answer by answer
    alone = [answers(make(X, BATCHES[name], 0.5, 1.0)) for name in names]
    for found, expected in zip(zip(*steps), zip(*alone)):
        for (name, one), (_, other) in zip(found, expected):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12, err_msg=name)


@every_storage
@pytest.mark.parametrize("asked_before", [False, True])
def test_norms_that_all_rows_know_are_those_of_the_batch(X: np.ndarray, storage: str, asked_before: bool) -> None:
    rows = make(STORAGES[storage](X), None, 0.5, 1.0)
    if asked_before:
        for block in rows.blocks:
            block.norms("linf")
            block.norms("l2")
    numbers = BATCHES["some"]
    batch = rows.batch(np.array(numbers))
    for norm in ("l2", "linf"):
        expected = collect(rows, lambda block: block.norms(norm))[numbers]  # noqa: B023
        np.testing.assert_array_equal(collect(batch, lambda block: block.norms(norm)), expected)  # noqa: B023


@every_storage
def test_a_batch_of_a_batch_is_a_batch(X: np.ndarray, storage: str) -> None:
    rows = make(STORAGES[storage](X), None, 0.5, 1.0)
    numbers, some = np.array(BATCHES["some"]), np.array([0, 3, 6])
    assert_alike(rows.batch(numbers).batch(some), make(X, numbers[some].tolist(), 0.5, 1.0))


@every_storage
def test_clipping_a_batch_leaves_all_rows_as_they_are(X: np.ndarray, storage: str) -> None:
    rows = make(STORAGES[storage](X), None, 0.5)
    batch = rows.batch(np.array(BATCHES["some"]))
    assert max(float(block.norms("linf").max()) for block in batch.blocks) > 0.25
    batch.clip_entries(0.25)
    batch.clip_rows(0.5)
    assert_alike(batch, make(X, BATCHES["some"], 0.25, 0.5))
    assert_alike(rows, make(X, list(range(N)), 0.5))


@every_storage
def test_rows_clipped_after_a_first_batch_are_clipped_in_the_next(X: np.ndarray, storage: str) -> None:
    """What was kept for batches, such as norms and rows in their order, knows of it."""
    rows = make(STORAGES[storage](X))
    numbers = np.array(BATCHES["some"])
    assert_alike(rows.batch(numbers), make(X, BATCHES["some"]))
    rows.clip_entries(0.5)
    rows.clip_rows(1.0)
    rows.clip_targets(3.0, 7.0)
    alone = make(X, BATCHES["some"], 0.5, 1.0)
    alone.clip_targets(3.0, 7.0)
    assert_alike(rows.batch(numbers), alone)


@every_storage
def test_batches_never_modify_the_users_arrays(X: np.ndarray, storage: str) -> None:
    matrix = STORAGES[storage](X)
    parts = (matrix.data, matrix.indices, matrix.indptr) if sp.issparse(matrix) else (matrix,)
    before = [part.copy() for part in parts]
    rows = make(matrix, None, 0.25, 0.2, True)
    batch = rows.batch(np.array(BATCHES["some"]))
    batch.clip_entries(0.125)
    for _ in answers(batch):
        pass
    for part, copy in zip(parts, before):
        np.testing.assert_array_equal(part, copy)


def test_rows_of_many_entries_in_64_bit_indices(X: np.ndarray) -> None:
    """As files with more than 2^31 entries are read."""
    matrix = sp.csr_array(X)
    matrix.indices, matrix.indptr = matrix.indices.astype(np.int64), matrix.indptr.astype(np.int64)
    assert_alike(make(matrix, None, 0.5, 1.0).batch(np.array(BATCHES["some"])), make(X, BATCHES["some"], 0.5, 1.0))


@pytest.mark.parametrize("storage", ["float64", "csr"])
def test_what_is_kept_for_all_rows_is_not_the_batchs(X: np.ndarray, storage: str) -> None:
    rows = make(STORAGES[storage](X))
    key = (object(),)
    assert rows.blocks[0].kept_for(key, lambda: "all") == "all"
    batch = rows.batch(np.array(BATCHES["some"])).blocks[0]
    assert batch.kept_for(key, lambda: "batch") == "batch"
    assert rows.blocks[0].kept_for(key, lambda: "anew") == "all"
