"""How things are timed here: side by side in one process and in turn, so that a slow moment of the machine meets both.

The printed figure is a median of ratios. Single times mean nothing on a shared machine.
"""

from __future__ import annotations

import os
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from tulle.datasets import load_rcv1_subset, rcv1_like
from tulle.estimators.request import run_fit
from tulle.fast import threads
from tulle.trusted.events import FloatArray

Line = tuple[str, float, str]  # what was measured, the figure, and its target

# RCV1's shape and a larger one: rows, features, entries a row.
SMALL, LARGE = (20_242, 47_236, 74), (200_000, 1_000_000, 100)


def named(shape: tuple[int, int, int]) -> str:
    return f"{shape[0]:,} × {shape[1]:,}"


def seconds(work: Callable[[], Any], repeats: int = 1, clock: Callable[[], float] = time.perf_counter) -> float:
    start = clock()
    for _ in range(repeats):
        work()
    return (clock() - start) / repeats


def ratio(
    first: Callable[[], Any],
    second: Callable[[], Any],
    rounds: int = 7,
    repeats: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """The time of the first over that of the second, after both have run once."""
    first(), second()
    return float(np.median([seconds(first, repeats, clock) / seconds(second, repeats, clock) for _ in range(rounds)]))


@contextmanager
def n_threads(count: int) -> Iterator[None]:
    """So many threads for sums over rows and for BLAS."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = str(count)
    try:
        with threadpool_limits(count):
            yield
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before


def text_rows(shape: tuple[int, int, int]) -> tuple[Any, FloatArray]:
    """Generated rows with power-law columns, CSR with 32-bit indices as readers of files make it; labels -1 and +1."""
    X, y = rcv1_like(*shape)
    X = sp.csr_array((X.data, X.indices.astype(np.int32), X.indptr.astype(np.int32)), shape=X.shape)
    X.sort_indices()
    return X, y


def rcv1() -> tuple[str, Any, FloatArray]:
    """The RCV1 subset where TULLE_DATA names its folder, otherwise generated rows of the same shape; with a name."""
    try:
        data = load_rcv1_subset()
        return "RCV1 subset", data.X_train, data.y_train
    except FileNotFoundError:
        return "rows of RCV1's shape", *text_rows(SMALL)


class _Clock:
    """Notes when answers come."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def __call__(self, name: str, answer: Any) -> None:
        self.times.append(time.perf_counter())


@dataclass(frozen=True)
class TimedFit:
    """A fit: the model, seconds from one answer to the next (the first one has the set-up in it), and in all."""

    model: Any
    per_step: float
    whole: float


def timed_fit(model: Any, X: Any, y: FloatArray) -> TimedFit:
    clock = _Clock()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that models of noise alone are no better than guessing is known here
        X, targets, loss = model._prepare(X, y)
        start = time.perf_counter()
        model._keep(run_fit(model._request(loss, X.shape[0]), X, targets, witness=clock))
        whole = time.perf_counter() - start
    # A mean: where a few steps do the work of many, they count.
    return TimedFit(model, float(np.mean(np.diff(clock.times))), whole)


def peak_bytes(work: Callable[[], Any]) -> int:
    """The most memory that work holds at once, beyond what was there before."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def transposed_bytes(X: Any) -> int:
    """The size of a copy of a CSR array in the other order."""
    return int(X.data.nbytes + X.indices.nbytes + (X.shape[1] + 1) * X.indptr.itemsize)


def read_seconds(array: FloatArray, count: int) -> float:
    """How long so many threads take to read an array that lies in memory in one piece, and add it up."""
    with n_threads(count):
        pieces = np.array_split(array.ravel(), count)
        return seconds(lambda: threads.together([piece.sum for piece in pieces]))


def print_lines(lines: Iterator[Line]) -> None:
    for what, measured, target in lines:
        print(f"{what:<100} {measured:>10.3g}  {target}", flush=True)
