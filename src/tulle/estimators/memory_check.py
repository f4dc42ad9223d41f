"""Whether a fit will fit into memory, from public quantities and before anything is billed.

The number of columns decides: one mistyped index of a sparse file makes billions of them, for which rows take no room,
and every vector of weights, gradients and noise does. The number of rows and of columns are public in tulle, and so is
all that is said here; how many entries sparse rows have is not looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tulle.backends.rows_elsewhere import Spread, count_bytes
from tulle.files.tables.free_memory import free_memory, shown_size
from tulle.methods.base import MOST_DENSE_VECTORS
from tulle.trusted.rows import Rows

if TYPE_CHECKING:
    from tulle.estimators.request import PlannedFit

# What a worker of a cluster holds at most: the sums of eight blocks, their total and one more.
_VECTORS_OF_A_WORKER = 10


# Private steps hold dense rows before and after, and some parts of what lies between; elsewhere those of one block.
_COPIES_OF_STEPS = 4


class TooLargeError(ValueError):
    """A fit would need more memory than there is. Nothing was billed."""


def check_memory(X: Any, planned: Sequence[PlannedFit], steps: int = 0) -> None:
    """Raise where a planned fit would need more memory than is free.

    Parameters
    ----------
    X : array, sparse array or Spread of shape (n, d)
    planned : sequence of PlannedFit
        All that the fit can become.
    steps : int, default=0
        How many private steps there are, which transform the rows.
    """
    n_rows, n_features = X.shape
    spread = X if isinstance(X, Spread) else None
    for one in planned:
        n_outputs = one.public.loss.n_outputs
        vectors = n_outputs * (count_vectors(one.method) + (0 if spread is None else spread.answers_at_once))
        clips = one.public.row_linf < one.public.row_l2 and not one.public.normalised
        # Dense rows are copied once where entries are clipped, or where they are not of 64 bits.
        copied = isinstance(X, np.ndarray) and (clips or X.dtype != np.float64)
        copies = copied + (_COPIES_OF_STEPS if steps and isinstance(X, np.ndarray) else 0)
        copies += isinstance(X, np.ndarray) and one.method.split(one.public) is not None  # the parts of the rows
        one_block = _COPIES_OF_STEPS * spread.block_bytes if steps and spread is not None else 0
        _check(n_features, vectors, 8 * n_rows * n_features * copies + one_block)
        if spread is not None and spread.least_memory is not None:
            needed = 8 * n_features * n_outputs * _VECTORS_OF_A_WORKER
            if needed > spread.least_memory:
                raise _refusal(n_features, needed, spread.least_memory, "the smallest worker has")


def rehearse_copy(rows: Rows) -> None:
    """Take the memory of a copy of the rows, and give it back.

    Parts of sparse rows are made after the bill, and how much they take depends on the rows. Where it is too much, the
    fit ends here, before the bill, as it does where the rows themselves do not fit.
    """
    np.ones(sum(count_bytes(block) for block in rows.blocks), dtype=np.uint8)


def check_width(n_features: int, n_outputs: int = 1) -> None:
    """Raise where the vectors that a method may need for so many columns and outputs do not fit."""
    _check(n_features, n_outputs * MOST_DENSE_VECTORS)


def count_vectors(method: Any) -> int:
    """How many dense vectors, as long as there are columns, a method holds at most for each output."""
    return int(method.n_dense_vectors()) if hasattr(method, "n_dense_vectors") else MOST_DENSE_VECTORS


def _check(n_features: int, vectors: int, rows: int = 0) -> None:
    needed, free = 8 * n_features * vectors + rows, free_memory()
    if free is not None and needed > free:
        raise _refusal(n_features, needed, free, "this process may take")


def _refusal(n_features: int, needed: int, free: int, who: str) -> TooLargeError:
    return TooLargeError(
        f"a fit of {n_features:,} columns needs up to {shown_size(needed)} of memory, and {who} {shown_size(free)}; "
        f"nothing was billed. The largest column index is {n_features - 1:,}, counted from 0: if that is a mistake in "
        "one row, correct it, or declare the number of columns (--n-features, n_features=); otherwise use fewer "
        "columns, or a machine with more memory"
    )
