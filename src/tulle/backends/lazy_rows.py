"""Rows of a Dask collection that a fitted model answers for: lazily, partition by partition, wherever Dask computes.

Nothing is computed here, and no cluster needs to be connected. Faults that show in names and sizes are raised at once;
faults of rows are raised when answers are computed, in words that quote no cell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import dask
import dask.array
import dask.bag
import numpy as np
import scipy.sparse as sp

from tulle.backends.rows_elsewhere import Changes, check_feature_names
from tulle.files.array_checks import read_rows
from tulle.files.error_messages import describe_error, get_own_message
from tulle.files.own_types import register


@register("lazy rows")
@dataclass(frozen=True, eq=False)
class LazyRows:
    """A Dask collection of rows to predict for.

    Parameters
    ----------
    collection : Dask array, DataFrame or bag of blocks of rows
        As `tulle.backends.dask.RowsOnDask` takes it.
    missing : bool, default=False
        Whether entries may be NaN or infinite.
    reader : callable or None, default=None
        Makes rows of numbers of a partition of raw cells.
    changes : Changes
        Functions that are applied to rows before the model answers for them.
    """

    collection: Any
    missing: bool = False
    reader: Callable[[Any], Any] | None = None
    changes: Changes = field(default_factory=Changes)

    @property
    def n_features(self) -> int | None:
        """The number of columns, as far as it is known before anything is computed."""
        if self.reader is not None or isinstance(self.collection, dask.bag.Bag):
            return None
        if isinstance(self.collection, dask.array.Array):
            if self.collection.ndim != 2:
                raise ValueError(f"X must have two dimensions, rows and features, got {self.collection.ndim}")
            return None if np.isnan(self.collection.shape[1]) else int(self.collection.shape[1])
        return len(self.collection.columns)

    def then(self, function: Callable[[Any], Any]) -> LazyRows:
        """The rows that a function makes of these, each of one row alone."""
        return replace(self, changes=Changes((*self.changes.functions, function)))

    def check_columns(self, n_features: int, names: Any, who: str) -> None:
        """Raise where the collection has other columns than the model that answers for its rows."""
        if self.n_features is not None and self.n_features != n_features:
            raise ValueError(f"X has {self.n_features} features, but {who} is expecting {n_features} features as input")
        if self.reader is None:
            check_feature_names(names, getattr(self.collection, "columns", None))

    def map(self, answer: Callable[[Any], Any], n_features: int, columns: Sequence[Any] | None = None) -> Any:
        """What a function answers for rows: one number or label each, or some numbers each.

        Parameters
        ----------
        answer : callable
            Of an array of shape (m, n_features), with an array of shape (m,) or (m, k).
        n_features : int
        columns : sequence or None
            Names of the k numbers, for a DataFrame.

        Returns
        -------
        Dask array of shape (n,) or (n, k); of a DataFrame a Series, or a DataFrame of k columns, with its index
        """
        none = np.asarray(answer(np.zeros((1, n_features))))[:0]
        one = partial(_answer, answer, replace(self, collection=None), n_features, none)
        X = self.collection
        if isinstance(X, dask.array.Array):
            X = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
            if none.ndim == 1:
                return X.map_blocks(one, drop_axis=1, dtype=none.dtype, meta=none)
            return X.map_blocks(one, chunks=(X.chunks[0], (none.shape[1],)), dtype=none.dtype, meta=none)
        if isinstance(X, dask.bag.Bag):
            shape = (np.nan, *none.shape[1:])
            parts = [dask.delayed(one)(part) for part in X.to_delayed(optimize_graph=False)]
            return dask.array.concatenate([dask.array.from_delayed(part, shape, meta=none) for part in parts])
        if not hasattr(X, "columns"):
            raise TypeError(f"X is a {type(X).__name__}; pass a Dask array, a DataFrame or a bag of blocks of rows")
        of_frame = partial(_answer_frame, one, columns)
        return X.map_partitions(of_frame, meta=_with_index(none, X._meta.index[:0], columns))


def _with_index(answers: Any, index: Any, columns: Sequence[Any] | None) -> Any:
    import pandas as pd

    if answers.ndim == 1:
        return pd.Series(answers, index=index)
    return pd.DataFrame(answers, index=index, columns=None if columns is None else list(columns))


def _answer_frame(one: Callable[[Any], Any], columns: Sequence[Any] | None, part: Any) -> Any:
    return _with_index(one(part), part.index, columns)


def _answer(answer: Callable[[Any], Any], how: LazyRows, n_features: int, none: Any, part: Any) -> Any:
    """The answers for a partition."""
    try:
        if isinstance(part, (list, tuple)):  # of a bag
            part = _stack(part, n_features)
        with np.errstate(all="ignore"):  # a warning about somebody's extreme row would be a release
            rows = how.reader(part) if how.reader is not None else part
            rows = read_rows(rows, least_rows=0, missing=how.missing)
            if not rows.shape[0]:
                return none
            if rows.shape[1] != n_features:
                raise ValueError(f"X has {rows.shape[1]} features, but the model is expecting {n_features}")
            return np.asarray(answer(how.changes(rows)))
    except Exception as error:
        words = get_own_message(error) or describe_error(error)
    # Outside of the handler: the library's own message, which may quote a cell, is no context of this error.
    raise ValueError(f"a partition of the rows: {words}")


def _stack(blocks: Sequence[Any], n_features: int) -> Any:
    """The blocks of a bag's partition under each other, without their targets."""
    blocks = [block[0] if isinstance(block, tuple) else block for block in blocks]
    if not blocks:
        return np.empty((0, n_features))
    return sp.vstack(blocks, format="csr") if sp.issparse(blocks[0]) else np.vstack(blocks)
