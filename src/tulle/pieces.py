"""Things made of blocks of rows, each of which stays where its rows are, and sums over them.

Trusted, as rows are. A solver that needs many sums over the same few columns derives them once and then sums over what
it derived; where that is (this process, a file, another machine) is the business of `tulle.rows` and its back ends.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

import numpy as np
import scipy.sparse as sp

T = TypeVar("T")


class Pieces(ABC, Generic[T]):
    """Some pieces, in a fixed order that neither chance nor lost machines can change."""

    @abstractmethod
    def sum(self, function: Callable[[T], Any], start: Any) -> Any:
        """start + the sum over pieces of a function of one piece, which must not change the piece."""


class HeldPieces(Pieces[T]):
    """Pieces that this process holds."""

    def __init__(self, items: Iterable[T]) -> None:
        self.items = list(items)

    def sum(self, function: Callable[[T], Any], start: Any) -> Any:
        return start + summed(function(item) for item in self.items)


def summed(values: Iterable[Any]) -> Any:
    """The sum of at least one value, added up in pairs, pairs of pairs, and so on.

    However many values there are, each goes through no more than log2 of that many additions: what rounding can do to a
    sum over rows does then not depend on the blocks that they lie in.
    """
    waiting: list[tuple[int, Any]] = []  # sums of 1, 2, 4, ... values: the sizes fall
    for value in values:
        size = 1
        while waiting and waiting[-1][0] == size:
            value = waiting.pop()[1] + value
            size *= 2
        waiting.append((size, value))
    total = waiting.pop()[1]
    while waiting:
        total = waiting.pop()[1] + total
    return total


def bytes_of(held: object) -> int:
    """The memory of the arrays, dense and sparse, among the attributes of an object.

    Whoever moves or keeps such objects (`sys.getsizeof`, a cluster's scheduler) would otherwise take them for small.
    """
    size = 0
    for value in vars(held).values():
        if isinstance(value, np.ndarray):
            size += value.nbytes
        elif sp.issparse(value):
            size += value.data.nbytes + value.indices.nbytes + value.indptr.nbytes
    return size
