"""Blocks of rows for speed: columns read in lanes and by threads, batches by compiled loops, answers remembered.

It sees rows, and is named in the report. The hook "block" of `tulle.trusted.rows` makes these blocks in place of the
plain ones; the answers are the same up to the rounding of sums.

Rows are clipped without copying them: entries are clipped in the transposed copy that the gradient needs anyway, and
row norms by a factor per row that is applied to margins and slopes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from tulle.fast import threads
from tulle.fast.fast_block import FastBlock
from tulle.fast.scratch import Scratch
from tulle.fast.sparse_batch import SparseBatch
from tulle.fast.sparse_weights import SparseWeights
from tulle.trusted.events import FloatArray
from tulle.trusted.losses import Norm
from tulle.trusted.rows import Block, Mask, RowNumbers

_SPARSE_PART_ENTRIES = 1 << 16

# Margins are summed in so many lanes for any number of threads, so that the sums do not depend on that number.
_LANES = 4

# Dense blocks of fewer entries are one lane.
_LARGE_DENSE = 1 << 20


class SparseBlock(FastBlock):
    """Rows held as columns (CSC): margins read only the support's columns, and gradients gather along columns."""

    def __init__(self, matrix: Any, targets: FloatArray, active: Mask) -> None:
        super().__init__(targets, active)
        self._borrowed = matrix.format == "csc"
        # Made anew: what an array remembers of itself (no duplicates, in order) may be out of date.
        columns = sp.csc_array(matrix)
        columns = sp.csc_array((columns.data, columns.indices, columns.indptr), shape=columns.shape)
        if columns.dtype != np.float64:
            columns, self._borrowed = columns.astype(np.float64), False
        if not columns.has_canonical_format:
            columns = columns.copy()
            columns.sum_duplicates()
            self._borrowed = False
        # Behind the estimator's checks a record with an entry that is not finite counts as nothing.
        bad, finite = np.zeros(self.n_rows, dtype=bool), np.isfinite(columns.data)
        if not finite.all():
            bad[columns.indices[~finite]] = True
        row_order = None
        if matrix.format == "csr" and matrix.dtype == np.float64:
            given = sp.csr_array((matrix.data, matrix.indices, matrix.indptr), shape=matrix.shape)
            row_order = given if given.has_canonical_format else None
        self._entry_bound = np.inf
        self._scratch: Scratch | None = None
        self._hold(columns, row_order)
        self._leave_out(bad)

    def _hold(self, columns: Any, row_order: Any) -> None:
        """Columns for passes over all rows. Batches are read row by row: from the given rows, or from a copy of that
        order made when it is first needed. The given rows may be the user's own, and hold what was never clipped or
        cleared: `SparseBatch` does both to what it takes."""
        self._csc, self._row_order = columns, row_order
        self._transposed = _as_rows(columns)

    @cached_property
    def _csc(self) -> Any:
        """The columns, made from the rows where `runs` has dropped them: the same entries in the same order."""
        columns = sp.csc_array(self._row_order)
        if self._entry_bound < np.inf:
            np.clip(columns.data, -self._entry_bound, self._entry_bound, out=columns.data)
        if not self.active.all():
            columns.data[~self.active[columns.indices]] = 0.0
        self._borrowed = False
        return columns

    @cached_property
    def _transposed(self) -> Any:
        return _as_rows(self._csc)

    def runs(self, n_rows: int) -> Iterator[Block]:
        """All rows in their order, in plain blocks of so many: for questions that need most columns of rows.

        The columns are dropped meanwhile, since there is room for one copy of the rows: they are made again when they
        are needed. Where the rows were not given row by row, all are one block, this one.
        """
        if self._row_order is None:
            yield self
            return
        for name in ("_csc", "_transposed"):
            self.__dict__.pop(name, None)
        for start in range(0, self.n_rows, n_rows):
            yield self._run(slice(start, min(start + n_rows, self.n_rows)))

    def _run(self, place: slice) -> Block:
        """Some rows in a plain block, which reads their entries in place where nothing is to be done to them."""
        starts = self._row_order.indptr[place.start : place.stop + 1]
        entries, active = self._row_order.data[starts[0] : starts[-1]], self.active[place]
        if self._entry_bound < np.inf:
            entries = np.clip(entries, -self._entry_bound, self._entry_bound)
        if not active.all():
            entries = np.where(np.repeat(active, np.diff(starts)), entries, 0.0)
        run = Block.__new__(Block)
        run.targets, run.active = self.targets[place], active
        run._scale = None if self._scale is None else self._scale[place]
        # Array by array: the constructor copies an array that is less than half of a larger one.
        run._held = sp.csr_array((len(active), self._n_features()))
        run._held.data, run._held.indices = entries, self._row_order.indices[starts[0] : starts[-1]]
        run._held.indptr = starts - starts[0]
        return run

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_scratch": None}  # not shared with a copy

    def _n_features(self) -> int:
        return int((self._csc if self._row_order is None else self._row_order).shape[1])

    def _take(self, numbers: RowNumbers) -> FastBlock:
        if self._row_order is None:
            self._row_order = self._csc.tocsr()
        if self._scratch is None:
            self._scratch = Scratch(self._n_features())
        return SparseBatch(self._row_order, numbers, self._entry_bound, self._scratch, self.targets, self.active)

    def columns_in_place(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any], FloatArray, FloatArray]:
        """Where each column starts, row numbers, entries (not copied) and the factor of each row."""
        rows = self._csc.indices
        # Unsigned, so that compiled loops need not look for negative numbers; of 64 bits numba would make floats.
        rows = rows.view(np.uint32) if rows.dtype.itemsize == 4 else rows
        scale = np.ones(self.n_rows) if self._scale is None else self._scale
        return self._csc.indptr.astype(np.int64), rows, self._csc.data, scale

    def _feature_parts(self, features: npt.NDArray[np.intp], outputs: int = 1) -> list[npt.NDArray[np.intp]]:
        """Some features, in parts of few entries: popular columns together can be half of the data. The sums of a part
        have a number for each row and output, so with more outputs there are fewer parts."""
        starts = self._csc.indptr
        counts = starts[features + 1] - starts[features]
        part = (np.cumsum(counts) - counts) // (_SPARSE_PART_ENTRIES * min(outputs, _LANES))
        return [chosen for chosen in np.split(features, np.flatnonzero(np.diff(part)) + 1) if len(chosen)]

    def _columns(self, features: npt.NDArray[np.intp]) -> Any:
        return self._csc[:, features].tocsr()

    def _entry_parts(self) -> Iterator[slice]:
        for start in range(0, self._csc.nnz, _SPARSE_PART_ENTRIES):
            yield slice(start, start + _SPARSE_PART_ENTRIES)

    def _product(self, weights: FloatArray) -> FloatArray:
        features = np.flatnonzero(weights.any(axis=1))
        return self._product_on(features, weights[features])

    def _product_on(self, features: npt.NDArray[np.intp], values: FloatArray) -> FloatArray:
        """The same for weights that are zero except on some features, whose lines these are."""
        parts = self._feature_parts(features, values.shape[1])

        def lane(first: int) -> FloatArray:
            total = np.zeros((self.n_rows, values.shape[1]))
            for chosen in parts[first::_LANES]:
                place = slice(*np.searchsorted(features, (chosen[0], chosen[-1] + 1)))
                if values.shape[1] == 1:  # scipy's product with a vector is the faster one
                    total[:, 0] += self._csc[:, chosen] @ values[place, 0]
                else:
                    total += self._csc[:, chosen] @ values[place]
            return total

        lanes = [partial(lane, first) for first in range(max(1, min(_LANES, len(parts))))]
        first, *others = threads.together(
            lanes, threads.worth_sharing(self.n_rows, self._n_features(), values.shape[1])
        )
        for other in others:
            first += other
        return first

    def margins_at(self, weights: SparseWeights, intercept_value: float) -> FloatArray:
        if type(self) is not SparseBlock:  # rows at clients add up margins in an order that no other row decides
            return super().margins_at(weights, intercept_value)
        held = weights.pruned()
        inside = int(np.searchsorted(held.lines, self._n_features()))
        margins = self._product_on(held.lines[:inside], held.values[:inside])
        if self._scale is not None:
            margins = margins * self._scale[:, None]
        if intercept_value and inside < len(held.lines):
            margins = margins + intercept_value * held.values[inside]
        return margins

    def gather(self, slopes: FloatArray) -> FloatArray:
        slopes = self._scaled(slopes)
        if slopes.shape[1] == 1:  # as in `_product`
            return threads.product(self._transposed, slopes[:, 0])[:, None]
        return threads.product(self._transposed, slopes)

    def gather_on(self, slopes: FloatArray, features: npt.NDArray[np.intp]) -> FloatArray:
        slopes = self._scaled(slopes)

        def job(chosen: npt.NDArray[np.intp]) -> Any:
            return self._csc[:, chosen].T @ slopes

        jobs = [partial(job, chosen) for chosen in self._feature_parts(features)]
        sums = threads.together(jobs, threads.worth_sharing(*self._csc.shape))
        return np.concatenate(sums) if sums else np.zeros(0)

    def _norms(self, norm: Norm) -> FloatArray:
        norms = np.zeros(self.n_rows)
        for part in self._entry_parts():
            rows, entries = self._csc.indices[part], self._csc.data[part]
            if norm == "l2":
                norms += np.bincount(rows, entries**2, minlength=self.n_rows)
            else:
                np.maximum.at(norms, rows, np.abs(entries))
        return np.sqrt(norms) if norm == "l2" else norms

    def norms_in(self, units: FloatArray) -> FloatArray:
        norms = np.zeros(self.n_rows)
        for part in self._entry_parts():
            positions = np.arange(part.start, min(part.stop, self._csc.nnz))
            features = np.searchsorted(self._csc.indptr, positions, side="right") - 1
            rows = self._csc.indices[part]
            np.maximum.at(norms, rows, np.abs(self._times_factor(self._csc.data[part], rows)) / units[features])
        return norms

    def _times_factor(self, entries: FloatArray, rows: npt.NDArray[Any]) -> FloatArray:
        """Some entries as they now are."""
        return entries if self._scale is None else entries * self._scale[rows]

    def norms_on(self, features: npt.NDArray[np.intp]) -> FloatArray:
        squares = np.zeros(self.n_rows)
        for chosen in self._feature_parts(features):
            columns = self._csc[:, chosen]
            entries = self._times_factor(columns.data, columns.indices)
            squares += np.bincount(columns.indices, entries**2, minlength=self.n_rows)
        return np.sqrt(squares)

    def _add_column(self, to: FloatArray, feature: int, amount: float) -> None:
        place = slice(self._csc.indptr[feature], self._csc.indptr[feature + 1])
        rows = self._csc.indices[place]
        to[rows] += amount * self._times_factor(self._csc.data[place], rows)

    def _clip_entries(self, bound: float) -> None:
        data = self._csc.data
        if data.size == 0 or max(data.max(), -data.min()) <= bound:
            return
        data = self._own_entries()
        np.clip(data, -bound, bound, out=data)
        self._entry_bound = min(self._entry_bound, bound)

    def _own_entries(self) -> FloatArray:
        """The entries, in an array that may be changed."""
        if self._borrowed:
            columns = self._csc
            columns = sp.csc_array((columns.data.copy(), columns.indices, columns.indptr), shape=columns.shape)
            self._hold(columns, self._row_order)
            self._borrowed = False
        return np.asarray(self._csc.data)

    def _clear_rows(self) -> None:
        entries, left_out = self._own_entries(), ~self.active
        for part in self._entry_parts():
            np.copyto(entries[part], 0.0, where=left_out[self._csc.indices[part]])


def _as_rows(columns: Any) -> Any:
    """The same arrays as rows of the transposed matrix."""
    return sp.csr_array((columns.data, columns.indices, columns.indptr), shape=columns.shape[::-1])


def _row_by_row(entries: FloatArray, vectors: FloatArray) -> bool:
    """Whether products are best taken row by row: numpy's einsum then reads memory in one stream at its full speed,
    where BLAS reads several rows at once; wider rows push the sums out of the first cache."""
    return vectors.shape[1] == 1 and entries.flags.c_contiguous and 32 <= entries.shape[1] <= 1500


def _in_lanes(array: FloatArray, size: int | None = None) -> list[FloatArray]:
    """Runs of rows for threads. How many depends on the size alone, so that sums do not depend on the threads."""
    return np.array_split(array, _LANES if (size or array.size) >= _LARGE_DENSE else 1)


class DenseBlock(FastBlock):
    """Rows of a dense array, float32 or float64; arithmetic is in float64."""

    def __init__(self, matrix: npt.NDArray[Any], targets: FloatArray, active: Mask, borrowed: bool = True) -> None:
        super().__init__(targets, active)
        self._rows, self._borrowed = matrix, borrowed
        self._entry_bound = np.inf
        self._leave_out(~np.isfinite(matrix).all(axis=1))  # as in SparseBlock

    def _n_features(self) -> int:
        return int(self._rows.shape[1])

    @property
    def _held(self) -> FloatArray:
        return self._entries(self._rows)

    def _entries(self, rows: npt.NDArray[Any]) -> FloatArray:
        rows = np.asarray(rows, dtype=np.float64)
        return rows if np.isinf(self._entry_bound) else np.clip(rows, -self._entry_bound, self._entry_bound)

    def _columns(self, features: npt.NDArray[np.intp]) -> FloatArray:
        return self._entries(self._rows[:, features])

    def _product(self, weights: FloatArray) -> FloatArray:
        support = np.flatnonzero(weights.any(axis=1))
        if 16 * len(support) <= len(weights):  # otherwise most of the rows' cache lines are read in any case
            return np.asarray(self._columns(support) @ weights[support])
        entries = self._held
        if not _row_by_row(entries, weights):
            return entries @ weights
        jobs = [partial(np.einsum, "ij,j->i", part, weights[:, 0]) for part in _in_lanes(entries)]
        return np.concatenate(threads.together(jobs))[:, None]

    def gather(self, slopes: FloatArray) -> FloatArray:
        entries, slopes = self._held, self._scaled(slopes)
        if not _row_by_row(entries, slopes):
            return entries.T @ slopes
        lanes = zip(_in_lanes(entries), _in_lanes(slopes[:, 0], entries.size))
        total, *others = threads.together([partial(np.einsum, "ij,i->j", *lane) for lane in lanes])
        for other in others:
            total += other
        return np.asarray(total)[:, None]

    def _add_column(self, to: FloatArray, feature: int, amount: float) -> None:
        column = self._entries(self._rows[:, feature])
        to += amount * (column if self._scale is None else column * self._scale)

    def _in_memory(self) -> type[DenseBlock]:
        """What batches of these rows are."""
        return DenseBlock

    def _take(self, numbers: RowNumbers) -> FastBlock:
        batch = self._in_memory()(self._rows[numbers], self.targets[numbers], self.active[numbers], borrowed=False)
        batch._entry_bound = self._entry_bound
        return batch

    def _clip_entries(self, bound: float) -> None:
        if max(self._rows.max(initial=0.0), -self._rows.min(initial=0.0)) > bound:
            self._entry_bound = min(self._entry_bound, bound)

    def _clear_rows(self) -> None:
        if self._borrowed:
            self._rows, self._borrowed = np.array(self._rows), False
        self._rows[~self.active] = 0.0
