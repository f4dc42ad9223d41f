"""A scheduler that dies before the bill: the fit fails, and nothing is billed."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from collections_of_rows import Y, array
from distributed import Client

import tulle.estimators.request
from tulle import Bounds, Budget, Ledger, SparseClassifier


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


class Cluster:
    """A scheduler and a worker in processes of their own, and the client that is connected to them."""

    def __init__(self) -> None:
        self.address = f"tcp://127.0.0.1:{free_port()}"
        self.scheduler = self._start("dask_scheduler", "--port", self.address.rpartition(":")[2])
        self.worker = self._start("dask_worker", self.address, "--no-nanny", "--nthreads", "1")
        self.client = Client(self.address, timeout=60, set_as_default=True)
        self.client.wait_for_workers(1, timeout=60)

    def _start(self, *words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.{words[0]}", *words[1:], "--no-dashboard"]
        return subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    try:
        yield cluster
    finally:
        for process in (cluster.scheduler, cluster.worker):
            cluster.kill(process)
        with suppress(TimeoutError):  # there is no scheduler to sign off from
            cluster.client.close(timeout=1)


def classifier() -> SparseClassifier:
    return SparseClassifier(1.0, 1e-5, n_nonzero=2, bounds=Bounds(row_linf=1.0))


@pytest.mark.parametrize("who", ["scheduler", "worker"])
def test_a_cluster_that_dies_before_the_bill_costs_nothing(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    """After the rows were checked and the fit was planned, and a second fit at once; a running one is billed."""
    real = tulle.estimators.request._active_rows

    def die(*given: Any) -> Any:
        cluster.kill(getattr(cluster, who))
        end = time.monotonic() + 30
        while who == "worker" and cluster.client.scheduler_info()["workers"] and time.monotonic() < end:
            time.sleep(0.05)
        return real(*given)

    # Other tests of this process may have a client of their own, which would be taken for the current one.
    with cluster.client.as_current(), Ledger(Budget(5.0, 1e-4)) as ledger:
        classifier().fit(*array(Y))
        assert len(ledger.fits) == 1
        monkeypatch.setattr(tulle.estimators.request, "_active_rows", die)
        words = "does not answer" if who == "scheduler" else "has no workers"
        with pytest.raises(ConnectionError, match=f"{words}.*nothing was billed"):
            classifier().fit(*array(Y))
        if who == "scheduler":
            start = time.monotonic()
            for act in (lambda: classifier().fit(*array(Y)), lambda: Bounds.estimate(array(Y)[0], epsilon=1.0)):
                with pytest.raises((ConnectionError, ValueError)):
                    act()
            assert time.monotonic() - start < 40
    assert len(ledger.fits) == 1
