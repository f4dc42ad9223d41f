"""Batches of rows, as readers yield them, collected into one table in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tulle.files.tables.columns import Parts
from tulle.files.tables.free_memory import DENSE_ADVICE, SPARSE_ADVICE, Growing
from tulle.files.tables.input_files import Source

# Rows that are read for one block at a time need no such room.
_OR_CONVERT = ", or convert the rows to blocks on disk with tulle convert"


def collected(source: Source, batches: Iterator[Parts]) -> Parts:
    """All rows of a file as one table.

    Parameters
    ----------
    source : Source
    batches : iterator of Parts
        At least one; see `tulle.files.tables.columns.Parts`.
    """
    first, second = next(batches), next(batches, None)
    if second is None:
        return first
    X = _Dense(source, first.X.shape[1]) if isinstance(first.X, np.ndarray) else _Sparse(source)
    y, groups = _Column(source, first.y), _Column(source, first.groups)
    batch: Parts | None = first
    first = first._replace(X=None, y=None, groups=None)  # or it would be held to the end
    while batch is not None:
        X.append(batch.X)
        y.append(batch.y)
        groups.append(batch.groups)
        batch, second = second, None
        if batch is None:
            batch = next(batches, None)
    return Parts(X.finished(), y.finished(), first.feature_names, groups.finished())


class _Dense:
    def __init__(self, source: Source, width: int) -> None:
        self._rows = Growing(source, np.float64, width, DENSE_ADVICE + _OR_CONVERT)

    def append(self, X: Any) -> None:
        self._rows.append(X)

    def finished(self) -> Any:
        return self._rows.finished()


class _Sparse:
    def __init__(self, source: Source) -> None:
        advice = SPARSE_ADVICE + _OR_CONVERT
        self._values, self._indices = Growing(source, np.float64, None, advice), Growing(source, np.int32, None, advice)
        self._ends = Growing(source, np.int64, None, advice)
        self._n_entries = self._width = 0

    def append(self, X: Any) -> None:
        self._values.append(X.data)
        self._indices.append(X.indices)
        self._ends.append(X.indptr[1:].astype(np.int64) + self._n_entries)
        self._n_entries += X.nnz
        self._width = max(self._width, X.shape[1])

    def finished(self) -> Any:
        import scipy.sparse as sp

        ends = self._ends.finished()
        starts = np.concatenate([[0], ends])
        if self._n_entries <= np.iinfo(np.int32).max:
            starts = starts.astype(np.int32)
        entries = (self._values.finished(), self._indices.finished(), starts)
        return sp.csr_array(entries, shape=(len(ends), self._width))


class _Column:
    """Targets or people: numbers grow in place, words differ in length and are joined at the end."""

    def __init__(self, source: Source, first: npt.NDArray[Any] | None) -> None:
        self._numbers = Growing(source, first.dtype) if first is not None and first.dtype.kind in "biuf" else None
        self._others: list[npt.NDArray[Any]] = []

    def append(self, part: npt.NDArray[Any] | None) -> None:
        if part is None:
            return
        if self._numbers is None:
            self._others.append(part)
        else:
            self._numbers.append(part)

    def finished(self) -> npt.NDArray[Any] | None:
        if self._numbers is not None:
            return self._numbers.finished()
        return np.concatenate(self._others) if self._others else None
