"""Sensitivity replay of rows on a Dask cluster: see tests/sensitivity_replay.py."""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import dask.bag as db
import numpy as np
import pytest
import scipy.sparse as sp
from sensitivity_replay import Tally, draw_pair, replay

from tulle.backends.dask import RowsOnDask

pytestmark = pytest.mark.usefixtures("client")

# Sums, choices, batches, minimisers, steps that are followed.
METHODS = ["auto", "hard thresholding, gaussian", "batches, poisson", "frank wolfe", "coordinate descent, selection"]
PART = 5


def on_workers(X: Any, y: Any) -> tuple[Any, Any]:
    """Partitions of five rows."""
    starts = range(0, X.shape[0], PART)
    X = sp.csr_array(X) if sp.issparse(X) else X
    parts = [dask.delayed([X[start : start + PART]]) for start in starts]
    return db.from_delayed(parts), da.from_array(np.asarray(y), chunks=PART)


@pytest.mark.parametrize("method", METHODS)
def test_no_answer_moves_further_than_its_sensitivity(method: str) -> None:
    tally, number = Tally(), 0
    while tally.pairs < 2:
        number += 1
        replay(draw_pair(np.random.default_rng([31, METHODS.index(method), number]), method, number), tally, on_workers)
    print(f"{method}: {tally}")
    assert not tally.violations


@pytest.mark.parametrize("storage", [np.array, sp.csr_array])
def test_rows_that_do_not_count_are_zeros_on_workers(storage: Any) -> None:
    """Surplus rows, and rows that are too long; a task that runs again finds its block as it was."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (23, 4))
    X[7], X[20] = 1.7e308, -1.7e308
    active = np.arange(23) != 7
    rows = RowsOnDask(*on_workers(storage(X), np.ones(23))).rows(active)
    for clip in (False, True):
        if clip:
            rows.clip_rows(1e9)
            active[20] = False
        held = rows.reduce(_held, _stacked)
        assert not held[~active].any()
        np.testing.assert_array_equal(held[active], np.column_stack([X, np.ones(23)])[active])


def _held(block: Any) -> Any:
    entries = block._csc.toarray() if hasattr(block, "_csc") else block._rows
    return np.column_stack([entries, block.targets])


def _stacked(one: Any, other: Any) -> Any:
    return np.vstack([one, other])
