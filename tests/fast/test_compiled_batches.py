"""Batches through compiled loops and through numpy: the same to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from tulle.fast import compiled, sparse_batch
from tulle.fast.batch_answers import find_margins
from tulle.fast.sparse_weights import SparseWeights
from tulle.trusted.rows import Block, Rows

N, D = 60, 5000


def _answers(batch: Block, outputs: int) -> list[np.ndarray]:
    rng = np.random.default_rng(4)
    lines = np.sort(rng.choice(D + 1, 400, replace=False))
    weights = SparseWeights(lines, rng.normal(size=(400, outputs)), D + 1)
    answers = []
    for _ in range(2):  # what the first use leaves behind must not be seen by the second
        total = batch.gather_sparsely(rng.normal(size=(batch.n_rows, outputs)))
        answers += [batch.margins_at(weights, 0.3), total.lines, total.values]
    return answers


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("size", [0, 1, 17, N - 1])
@pytest.mark.parametrize("index", [np.int32, np.int64], ids=["32 bits", "64 bits"])
def test_compiled_batches_are_numpys(size: int, outputs: int, index: type, monkeypatch: pytest.MonkeyPatch) -> None:
    from tulle.fast import batch_kernels

    rng = np.random.default_rng(size)
    X = sp.random_array((N, D), density=0.02, format="csr", random_state=rng, data_sampler=rng.standard_normal)
    X[[3, 4]] = 0.0
    X.eliminate_zeros()
    X = sp.csr_array((X.data, X.indices.astype(index), X.indptr.astype(index)), shape=(N, D))
    numbers = np.sort(rng.choice(N, size, replace=False))
    answers = []
    # Few and many features are listed in different ways, and compiled loops have a third one.
    for loops, many in ((None, D), (None, D - 1), (batch_kernels, D)):
        monkeypatch.setattr(sparse_batch, "_compiled_loops", lambda n_rows, n_features, loops=loops: loops)
        monkeypatch.setattr(sparse_batch, "_MANY_FEATURES", many)
        rows = Rows(X, np.zeros(N))
        rows.clip_entries(0.5)
        rows.clip_rows(1.0)
        answers.append(_answers(rows.batch(numbers).blocks[0], outputs))
    for by_flags, by_marks, by_loops in zip(*answers, strict=True):
        np.testing.assert_array_equal(by_marks, by_flags)
        np.testing.assert_array_equal(by_loops, by_flags)


@pytest.mark.parametrize(
    ("n", "d", "loaded", "expected"),
    [(1000, 100, False, False), (1000, 100, True, True), (200_000, 1_000_000, False, True)],
    ids=["few rows", "few rows and loaded", "many rows"],
)
def test_loops_are_compiled_by_public_figures_only(
    n: int, d: int, loaded: bool, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "_loaded", loaded)
    assert (sparse_batch._compiled_loops(n, d) is not None) == expected


@pytest.mark.parametrize("numbers", [np.arange(6), np.arange(3)], ids=["all rows", "a batch"])
def test_weights_of_other_lines_than_the_rows_have_are_refused(numbers: Any) -> None:
    """All rows took the last feature's weight for the constant's, and batches took none."""
    rows = Rows(sp.csr_array(np.eye(6)), np.ones(6)).batch(numbers)
    for lines, constant in ((6, 1.0), (7, 0.0), (5, 0.0)):
        with pytest.raises(ValueError, match="do not fit the rows"):
            rows.reduce(lambda block: find_margins(block, SparseWeights.zeros(lines, 1), constant))  # noqa: B023
    assert rows.reduce(lambda block: find_margins(block, SparseWeights.zeros(7, 1), 1.0)).shape == (len(numbers), 1)
