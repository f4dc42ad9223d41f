"""Work space for sums over a batch of sparse rows."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt


class Scratch:
    """Room for one batch at a time, of the length of a row: made once, so that a batch costs its own entries only.

    What one batch leaves in it would be added to the next. So it is cleared where its use ends in an error, and it
    never travels: a copy in another process, or on a disk that a worker spills to, is an empty one. Of the ways to list
    the features of a batch only one is used in a fit, and only its room is made.
    """

    def __init__(self, n_features: int) -> None:
        self.sums = np.zeros(n_features)  # zero between uses

    @cached_property
    def flags(self) -> npt.NDArray[np.bool_]:
        """False between uses."""
        return np.zeros(len(self.sums), dtype=bool)

    @cached_property
    def marks(self) -> npt.NDArray[np.intp]:
        """Anything between uses."""
        return np.zeros(len(self.sums), dtype=np.intp)

    @cached_property
    def bits(self) -> tuple[npt.NDArray[np.uint64], ...]:
        """A bit for each feature, and one for each 64 of these; zero between uses."""
        return tuple(np.zeros(-(-len(self.sums) // size), dtype=np.uint64) for size in (1 << 6, 1 << 12))

    def __enter__(self) -> Scratch:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        if kind is not None:
            self.sums[:] = 0.0
            for name in ("flags", "bits"):
                self.__dict__.pop(name, None)

    def __reduce__(self) -> tuple[Any, ...]:
        return Scratch, (len(self.sums),)
