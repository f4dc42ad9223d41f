"""Types of what `fit` and `predict` take, for type checkers."""

from __future__ import annotations

from typing import Any, Protocol

import numpy.typing as npt


class Shaped(Protocol):
    """What has a shape: arrays, sparse arrays, tables and series, Dask arrays, folders of blocks, rows at clients."""

    @property
    def shape(self) -> Any: ...


class Partitioned(Protocol):
    """A Dask collection: an array, a DataFrame or a bag of blocks of rows."""

    @property
    def npartitions(self) -> int: ...


# Rows: of shape (n, d), in memory or elsewhere.
RowsLike = npt.ArrayLike | Shaped | Partitioned
# One value for each row, and where there may be none.
ColumnLike = npt.ArrayLike | Shaped | Partitioned
MaybeColumn = ColumnLike | None
