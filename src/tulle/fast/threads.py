"""Several threads for one sum over rows: as many as OMP_NUM_THREADS says, otherwise one a core.

Work is cut so that its results do not depend on how many threads there are, to the last bit. scipy's products and
compiled loops let other threads run meanwhile. Threads are made for each piece of work: that takes some 50 µs, and
there is nothing to shut down or to lose in a fork.
"""

from __future__ import annotations

import math
import os
import threading
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextvars import copy_context
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp

from tulle.trusted.events import FloatArray

T = TypeVar("T")

# Rows of text have about 75 entries. With fewer entries than this, estimated from public figures (the real number is
# private), waking another core costs more time than it saves.
_ENTRIES_A_ROW = 75
_WORTH_SHARING = 10_000_000

# The cost of a line of a product in addition to its entries, in entries.
_LINE = 4


def n_threads() -> int:
    """How many threads one sum over rows may use."""
    wanted = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    if wanted.isdecimal() and int(wanted) > 0:
        return int(wanted)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def worth_sharing(n_rows: int, n_features: int, outputs: int = 1) -> bool:
    """Whether a sum over sparse rows is long enough for several threads, by public figures."""
    return n_rows * min(n_features, _ENTRIES_A_ROW) * outputs >= _WORTH_SHARING


def together(jobs: Sequence[Callable[[], T]], worth: bool = True) -> list[T]:
    """The results of all jobs, in their order, which as many threads as allowed share out; this one is the first.

    Where the work is not worth it this thread does it all, in the same order of sums.
    """
    workers = min(n_threads(), len(jobs)) if worth else 1
    if workers < 2:
        return [job() for job in jobs]
    results: dict[int, T] = {}
    failures: list[BaseException] = []

    def work(first: int) -> None:
        try:
            for number in range(first, len(jobs), workers):
                results[number] = jobs[number]()
        except BaseException as failure:  # raised below, in the thread that waits for the results
            failures.append(failure)

    # Which warnings of numpy are on is a matter of the context, and a thread starts without one.
    others = [threading.Thread(target=copy_context().run, args=(work, first)) for first in range(1, workers)]
    for thread in others:
        thread.start()
    work(0)
    for thread in others:
        thread.join()
    if failures:
        raise failures[0]
    return [results[number] for number in range(len(jobs))]


def product(matrix: Any, vectors: FloatArray) -> FloatArray:
    """The product of a CSR array with a vector or with the columns of a matrix: each thread takes a run of lines."""
    outputs = math.prod(vectors.shape[1:])
    runs = n_threads() if worth_sharing(matrix.shape[1], matrix.shape[0], outputs) else 1
    if runs == 1:
        return np.asarray(matrix @ vectors)
    starts = matrix.indptr

    def work(line: int) -> int:
        """What all lines before this one cost."""
        return int(starts[line]) + _LINE * line

    lines = range(matrix.shape[0] + 1)
    borders = [bisect_left(lines, k * work(lines[-1]) / runs, key=work) for k in range(runs)] + [matrix.shape[0]]
    result = np.empty((matrix.shape[0], *vectors.shape[1:]))

    def run(first: int, last: int) -> None:
        starts = matrix.indptr[first : last + 1]
        place = slice(starts[0], starts[-1])
        # Array by array: the constructor copies an array that is less than half of a larger one.
        lines = sp.csr_array((last - first, matrix.shape[1]))
        lines.data, lines.indices, lines.indptr = matrix.data[place], matrix.indices[place], starts - starts[0]
        result[first:last] = lines @ vectors

    together([partial(run, first, last) for first, last in pairwise(borders)])
    return result
