"""Rows in memory whose parts of an objective are made from short runs of rows, so that few copies exist at once.

Vouched for on use: it decides which rows a part of an objective holds. Every row is in exactly one part, in the order
of rows; trusted code clips them as before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from tulle.fast.compiled_rows import SparseBlock
from tulle.trusted.objectives import PART_ROWS, Minimiser
from tulle.trusted.rows import Block, Pieces, Rows

T = TypeVar("T")

# Parts of an objective are made one run of rows at a time: a sixteenth of all rows, since the copies of one run that
# are made on the way are several, and no fewer than this many rows, since every part costs some calls and a vector.
_RUNS, _SHORTEST_RUN = 16, 256

# With fewer features than one in so many of all, reading their columns costs less than reading all rows.
_FEW = 8


class RowsInMemory(Rows):
    """All private rows, as blocks that this process holds."""

    def derive(self, make: Callable[[Block], Sequence[T]]) -> Pieces[T]:
        return Pieces(piece for block in self._in_runs(make) for piece in make(block))

    def _in_runs(self, make: Callable[[Block], Sequence[T]]) -> Iterator[Block]:
        """The blocks one after another, in shorter runs where `make` is asked for the parts of a large objective."""
        question = make.func.__self__ if isinstance(make, partial) and hasattr(make.func, "__self__") else None
        for block in self._in_turn():
            if isinstance(question, Minimiser) and type(block) is SparseBlock and _is_wide(question, block):
                yield from block.runs(min(PART_ROWS, max(-(-block.n_rows // _RUNS), _SHORTEST_RUN)))
            else:
                yield block


def _is_wide(question: Minimiser, block: SparseBlock) -> bool:
    """Whether many of the features are asked for, in rising order: sums over a row are then in the same order."""
    features: Any = question.features
    return _FEW * len(features) >= block._n_features() and bool(np.all(np.diff(features) > 0))
