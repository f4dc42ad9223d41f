"""Work space for sums over a batch of sparse rows."""

from __future__ import annotations

from typing import Any

import numpy as np


class Scratch:
    """Room for one batch at a time, of the length of a row: made once, so that a batch costs its own entries only.

    What one batch leaves in it would be added to the next. So it is cleared where its use ends in an error, and it
    never travels: a copy in another process, or on a disk that a worker spills to, is an empty one.
    """

    def __init__(self, n_features: int) -> None:
        self.sums = np.zeros(n_features)  # zero between uses
        self.marks = np.zeros(n_features, dtype=np.intp)  # anything between uses
        # A bit for each feature, and one for each 64 of these; zero between uses.
        self.bits = tuple(np.zeros(-(-n_features // size), dtype=np.uint64) for size in (1 << 6, 1 << 12))

    def __enter__(self) -> Scratch:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        if kind is not None:
            for array in (self.sums, *self.bits):
                array[:] = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return Scratch, (len(self.sums),)
