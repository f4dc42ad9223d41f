"""Waiting for a Dask cluster, but not for ever: for one without workers an error comes after a while."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import CancelledError
from typing import Any

import dask
from dask.utils import parse_timedelta
from distributed import Client, KilledWorker, TimeoutError, wait

BEFORE_THE_BILL = "nothing was billed"
AFTER_THE_BILL = "what was billed stays billed"

# How often a cluster that has not answered yet is asked for its workers, in seconds.
_LOOK_SECONDS = 2.0


def find_patience() -> float:
    """For how many seconds a cluster may be without workers: Dask's configuration `tulle.no-workers-timeout`, 60 s
    unless it is set. Workers that a nanny or an operator starts again are waited for."""
    return float(parse_timedelta(dask.config.get("tulle.no-workers-timeout", "60s")))


def fetch(client: Client, futures: Sequence[Any], bill: str) -> list[Any]:
    """The results of futures.

    Parameters
    ----------
    client : distributed.Client
    futures : sequence of futures
    bill : str
        What an error says of the bill: `BEFORE_THE_BILL` or `AFTER_THE_BILL`.

    Raises
    ------
    ConnectionError
        Where the cluster lost all workers or its scheduler, or where every worker that ran a task died.
    """
    futures, idle_since = list(futures), None
    while True:
        try:
            if _are_done(futures):
                return list(client.gather(futures))
            idle_since = None if _has_workers(client, bill) else idle_since or time.monotonic()
            if idle_since is not None and time.monotonic() - idle_since > find_patience():
                raise ConnectionError(
                    f"the cluster lost all its workers, and none came back within {find_patience():g} seconds; {bill}. "
                    "Start workers, and fit again (Dask's configuration tulle.no-workers-timeout sets how long to wait)"
                ) from None
        except KilledWorker:
            raise ConnectionError(
                f"several workers died while they ran the same task, most likely for lack of memory; {bill}. Use "
                "workers with more memory or smaller partitions, and fit again"
            ) from None
        except CancelledError:
            raise ConnectionError(
                f"the Dask scheduler was lost or started again, and the rows with it; {bill}. Fit again"
            ) from None


def _are_done(futures: Sequence[Any]) -> bool:
    try:
        wait(futures, timeout=_LOOK_SECONDS)
    except TimeoutError:  # of this wait: one that a task raised is its result
        return False
    return True


def _has_workers(client: Client, bill: str) -> bool:
    try:
        return bool(client.sync(client.scheduler.identity, callback_timeout=15.0)["workers"])
    except Exception as error:
        raise ConnectionError(f"the Dask scheduler does not answer ({type(error).__name__}); {bill}") from None
