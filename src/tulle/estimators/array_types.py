"""Types of what `fit` and `predict` take, for type checkers, and a decorator of scikit-learn that keeps types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast

import numpy.typing as npt
from sklearn.callback import with_callbacks as _with_callbacks


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

F = TypeVar("F", bound=Callable[..., Any])


def with_callbacks(method: F) -> F:
    """scikit-learn's decorator of the same name, which has no types: without this, `fit` would return Any."""
    return cast(F, _with_callbacks(method))
