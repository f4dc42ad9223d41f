"""A small cluster for all tests of this folder: two worker processes on this machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from distributed import Client, LocalCluster

import tulle.backends.dask_groups
import tulle.trusted.rows


@pytest.fixture(scope="session")
def client() -> Iterator[Client]:
    """Connected to two workers of one thread each."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster) as connected,
    ):
        yield connected


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some more than a dozen blocks of 2,000 rows of 100 columns, in memory and on workers."""
    for module in (tulle.trusted.rows, tulle.backends.dask_groups):
        monkeypatch.setattr(module, "_DENSE_BLOCK_BYTES", 8 * 100 * 150)
    monkeypatch.setattr(tulle.backends.dask_groups, "_SPARSE_BLOCK_BYTES", 18_000)
    monkeypatch.setattr(tulle.backends.dask_groups, "_LEAST_SUMS", 0)
