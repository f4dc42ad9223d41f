"""Workers that are killed in the middle of a fit: the fit goes on, with the same weights and the same bill."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from collections_of_rows import DENSE, NAMES, Y, array, bag_of_csr
from distributed import Client, LocalCluster
from spread_fits import METHODS, model

import tulle.backends.dask as on_dask
from tulle import Bounds, Budget, FileLedger, Ledger
from tulle.backends.dask import RowsOnDask
from tulle.ledgers.on_disk import LedgerEntry

FITTED = ["two stage", "batches, poisson", "hard thresholding, gaussian"]


@pytest.fixture(scope="module")
def restarted() -> Iterator[Client]:
    """Workers that are started again after they were killed."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster, set_as_default=True) as client,
    ):
        yield client


class Lost:
    """A cluster of workers that nobody starts again."""

    def __init__(self, cluster: Any) -> None:
        self._address = cluster.scheduler_address
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        command = [sys.executable, "-m", "distributed.cli.dask_worker", self._address]
        command += ["--no-nanny", "--nthreads", "1", "--no-dashboard", "--death-timeout", "60"]
        self._processes.append(subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL))

    def stop(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


@pytest.fixture
def for_good() -> Iterator[Client]:
    with (
        LocalCluster(n_workers=0, processes=True, dashboard_address=None) as cluster,
        Client(cluster, set_as_default=True) as client,
    ):
        workers = Lost(cluster)
        try:
            for _ in range(2):
                workers.start()
            client.wait_for_workers(2, timeout=60)
            yield client
        finally:
            workers.stop()


def kill_one(client: Client) -> None:
    """The worker process with the most blocks, without a word of warning."""
    held = client.has_what()
    address = max(held, key=lambda worker: len(held[worker]))
    assert held[address]
    os.kill(client.run(os.getpid, workers=[address])[address], signal.SIGKILL)


@pytest.fixture
def kill_during(monkeypatch: pytest.MonkeyPatch) -> Callable[[Client, int], list[int]]:
    """Kills a worker while the k-th sum over rows is on its way."""
    total = on_dask._total

    def plan(client: Client, k: int) -> list[int]:
        sums: list[int] = []

        def interrupted(of: Client, parts: list[Any], order: Any) -> Any:
            sums.append(len(sums))
            if len(sums) == k:
                kill_one(client)
            return total(of, parts, order)

        monkeypatch.setattr(on_dask, "_total", interrupted)
        return sums

    return plan


def fitted(method: str, ledger: Path, rows: tuple[Any, Any]) -> tuple[Any, tuple[LedgerEntry, ...]]:
    with FileLedger(ledger, "rows"):
        found = model(METHODS[method], bounds=Bounds()).fit(*rows)
    return found, FileLedger(ledger, "rows").entries


def assert_nothing_is_lost(
    client: Client, kill: Callable[[Client, int], list[int]], method: str, folder: Path, make: Any
) -> None:
    # Two copies of one ledger, opened with one nonce: otherwise their noise would differ.
    ledgers = [folder / "calm.json", folder / "killed.json"]
    FileLedger.create(ledgers[0], "rows", Budget(500.0, 1e-5))
    shutil.copytree(*ledgers)
    calm, calm_entries = fitted(method, ledgers[0], make(Y))
    before = set(client.run(os.getpid).values())
    sums = kill(client, 4)
    killed, killed_entries = fitted(method, ledgers[1], make(Y))
    assert len(sums) > 4
    assert before - set(client.run(os.getpid).values())
    np.testing.assert_array_equal(killed.coef_, calm.coef_)
    np.testing.assert_array_equal(killed.intercept_, calm.intercept_)
    # Heads depend on the time.
    assert replace(killed.privacy_, billed=()) == replace(calm.privacy_, billed=())
    assert len(killed_entries) == len(calm_entries) == 1
    (one,), (other,) = killed_entries, calm_entries
    assert replace(one, time=other.time, head=other.head) == other


@pytest.mark.usefixtures("fixed_nonce")
@pytest.mark.parametrize("method", FITTED)
def test_a_worker_that_is_killed_and_comes_back(
    restarted: Client, kill_during: Callable[[Client, int], list[int]], method: str, tmp_path: Path
) -> None:
    """Bit for bit the same weights, one entry in the ledger, the same report."""
    assert_nothing_is_lost(restarted, kill_during, method, tmp_path, bag_of_csr)


@pytest.mark.usefixtures("fixed_nonce")
@pytest.mark.parametrize("make", [bag_of_csr, array], ids=["sparse", "dense"])
def test_a_worker_that_is_lost_for_good(
    for_good: Client, kill_during: Callable[[Client, int], list[int]], make: Any, tmp_path: Path
) -> None:
    """The other one makes its blocks again, and goes on alone."""
    assert_nothing_is_lost(for_good, kill_during, "hard thresholding, gaussian", tmp_path, make)
    assert len(for_good.run(os.getpid)) == 1


def test_a_cluster_without_workers_is_not_waited_for_for_ever(
    for_good: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of a fit: an error, and the bill stays. Before one: an error, and there is no bill."""
    total, sums = on_dask._total, []

    def interrupted(*given: Any) -> Any:
        sums.append(len(sums))
        while len(sums) == 3 and for_good.has_what():
            for process in for_good.run(os.getpid).values():
                os.kill(process, signal.SIGKILL)
            time.sleep(1.0)
        return total(*given)

    monkeypatch.setattr(on_dask, "_total", interrupted)
    # Other tests of this process may have a client of their own, which would be taken for the current one.
    with for_good.as_current(), dask.config.set({"tulle.no-workers-timeout": "3s"}):
        with Ledger(Budget(500.0, 1e-5)) as ledger, pytest.raises(ConnectionError) as raised:
            model(METHODS["hard thresholding, gaussian"]).fit(*array(Y))
        assert "lost all its workers" in str(raised.value)
        assert "what was billed stays billed" in str(raised.value)
        assert len(ledger.fits) == 1
        with Ledger(Budget(500.0, 1e-5)) as ledger, pytest.raises(ConnectionError, match="nothing was billed"):
            model(METHODS["hard thresholding, gaussian"]).fit(*array(Y))
        assert ledger.fits == []


def test_a_worker_that_is_killed_while_parquet_is_fitted(
    restarted: Client, kill_during: Callable[[Client, int], list[int]], tmp_path: Path
) -> None:
    """The files of its blocks are read again: the weights of the same rows in memory, to the last bit."""
    frame = pd.DataFrame(DENSE, columns=NAMES).assign(label=Y, person=np.arange(len(Y)) // 2)
    for k, part in enumerate(np.array_split(np.arange(len(Y)), 60)):
        frame.iloc[part].to_parquet(tmp_path / f"{k:02d}.parquet")
    unfitted = model(METHODS["fit again"], bounds=Bounds(row_l2=1.5, rows_per_person=2))
    expected = unfitted.fit(frame[NAMES], frame["label"], groups=frame["person"]).coef_.copy()
    there = dd.read_parquet(tmp_path)
    with restarted.as_current():
        sums = kill_during(restarted, 5)
        found = unfitted.fit(there[NAMES], there["label"], groups=there["person"]).coef_
    assert len(sums) > 5
    np.testing.assert_array_equal(found, expected)


def test_a_long_question_outlives_the_worker_that_held_it(
    for_good: Client, kill_during: Callable[[Client, int], list[int]]
) -> None:
    """It goes to the cluster once, and again where it is lost."""
    rows = RowsOnDask(*bag_of_csr(Y)).rows(None)
    long = np.random.default_rng(0).standard_normal(20_000)
    expected = rows.reduce(lambda block: long * block.n_rows)
    sums = kill_during(for_good, 1)
    np.testing.assert_array_equal(rows.reduce(lambda block: long * block.n_rows), expected)
    assert len(sums) == 1
    assert len(for_good.run(os.getpid)) == 1
