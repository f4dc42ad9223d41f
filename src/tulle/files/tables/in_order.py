"""Work on the parts of a file by several threads at a time, whose results come in the order of the parts."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def map_in_order(function: Callable[[T], R], items: Iterable[T], jobs: int) -> Generator[R, None, None]:
    """What a function makes of each item, in the order of the items.

    At most `jobs` + 1 items are held at a time, so that memory does not grow with their number. Compiled parsers, casts
    and hashes run in parallel, because they release Python's lock.

    Parameters
    ----------
    function : callable
        It must not depend on what it made of other items.
    items : iterable
        Advanced by the thread that asks for results.
    jobs : int
        At least 1: the number of threads. 1: the calling thread alone.
    """
    if jobs <= 1:
        yield from map(function, items)
        return
    waiting: deque[Future[R]] = deque()
    with ThreadPoolExecutor(jobs, thread_name_prefix="tulle-read") as pool:
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                del item
                if len(waiting) > jobs:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
