"""Batches of sparse rows, read row by row, by compiled loops where these are worth their loading."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from tulle.fast import compiled
from tulle.fast.fast_block import FastBlock
from tulle.fast.scratch import Scratch
from tulle.fast.sparse_weights import SparseWeights
from tulle.trusted.events import FloatArray
from tulle.trusted.rows import Mask, RowNumbers

# Entries of all rows, at 75 a row: with fewer, what compiled loops save on batches is less than loading them takes.
_WORTH_COMPILING = 1e7


def _compiled_loops(n_rows: int, n_features: int) -> Any:
    """`tulle.fast.batch_kernels` where compiled loops are loaded already or so many rows are worth it; otherwise None.

    By public figures: whether something is compiled can be seen. The sums are the same, to the last bit.
    """
    if n_rows * min(n_features, 75) < _WORTH_COMPILING and not compiled.is_loaded():
        return None
    from tulle.fast import batch_kernels

    return batch_kernels


class SparseBatch(FastBlock):
    """Some rows of a sparse block, read row by row. What it does sparsely costs the batch's entries alone.

    Parameters
    ----------
    matrix : CSR array
        All rows of the block.
    numbers : array of int
        The rows of the batch.
    entry_bound : float
        Entries are clipped to it.
    scratch : Scratch
        Shared by all batches of a block.
    targets, active : arrays
        Of all rows. Those that do not count are taken as zeros, regardless of their entries in the matrix.
    """

    def __init__(
        self,
        matrix: Any,
        numbers: RowNumbers,
        entry_bound: float,
        scratch: Scratch,
        targets: FloatArray,
        active: Mask,
    ) -> None:
        super().__init__(targets[numbers], active[numbers])
        self._width = int(matrix.shape[1])
        self._scratch = scratch
        self._loops = _compiled_loops(*matrix.shape)
        starts = matrix.indptr[numbers].astype(np.intp)
        self._counts = counts = matrix.indptr[numbers + 1] - starts
        ends = np.cumsum(counts)
        size = int(ends[-1]) if len(ends) else 0
        if self._loops is not None:
            self._features, self._entries = np.empty(size, dtype=matrix.indices.dtype), np.empty(size)
            arrays = (matrix.indptr, matrix.indices, matrix.data, numbers, entry_bound)
            self._loops.take_rows(*arrays, self._features, self._entries)
        else:
            places = np.repeat(starts - (ends - counts), counts) + np.arange(size)
            self._features = matrix.indices[places]
            self._entries = matrix.data[places]
            if entry_bound < np.inf:
                self._entries = np.clip(self._entries, -entry_bound, entry_bound)
        self._leave_out()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_loops": None}  # a module; numpy gives the same sums

    @cached_property
    def _held(self) -> Any:
        starts = np.append(0, np.cumsum(self._counts))
        return sp.csr_array((self._entries, self._features, starts), shape=(self.n_rows, self._width))

    def _sum_by_row(self, values: FloatArray) -> FloatArray:
        """The sums of values, one for each entry, over the entries of each row."""
        # In the order of entries, as the compiled loops add them up: the sums are equal to the last bit.
        rows = np.repeat(np.arange(self.n_rows), self._counts)
        return np.bincount(rows, values, minlength=self.n_rows).astype(np.float64, copy=False)

    def margins_at(self, weights: SparseWeights, intercept_value: float) -> FloatArray:
        inside = weights.lines < self._width
        lines = weights.lines[inside]
        margins = np.empty((self.n_rows, weights.values.shape[1]))
        with self._scratch as scratch:
            lookup = scratch.sums
            for output in range(margins.shape[1]):
                lookup[lines] = weights.values[inside, output]
                if self._loops is None:
                    margins[:, output] = self._sum_by_row(self._entries * lookup[self._features])
                else:
                    self._loops.row_products(self._counts, self._features, self._entries, lookup, margins[:, output])
            lookup[lines] = 0.0
        if self._scale is not None:
            margins *= self._scale[:, None]
        if intercept_value:
            margins += intercept_value * weights.values[~inside].sum(axis=0)
        return margins

    def gather_sparsely(self, slopes: FloatArray) -> SparseWeights:
        with self._scratch as scratch:
            return self._gathered(self._scaled(slopes), scratch)

    def _gathered(self, scaled: FloatArray, scratch: Scratch) -> SparseWeights:
        features, marks, sums = self._features, scratch.marks, scratch.sums
        if self._loops is not None and scaled.shape[1] == 1:
            most = min(len(features), self._width)
            lines, values = np.empty(most, dtype=np.intp), np.empty((most, 1))
            arrays = (self._counts, features, self._entries, scaled[:, 0], sums, *scratch.bits)
            found = self._loops.sum_rows(*arrays, lines, values[:, 0])
            return SparseWeights(lines[:found], values[:found], self._width)
        # Of the entries of one feature the last one that wrote its mark stands for all.
        places = np.arange(len(features))
        marks[features] = places
        lines = np.sort(features[marks[features] == places]).astype(np.intp)
        values = np.empty((len(lines), scaled.shape[1]))
        for output, column in enumerate(scaled.T):
            np.add.at(sums, features, self._entries * np.repeat(column, self._counts))
            values[:, output] = sums[lines]
            sums[lines] = 0.0
        return SparseWeights(lines, values, self._width)

    def _n_features(self) -> int:
        return self._width

    def _take(self, numbers: RowNumbers) -> FastBlock:
        return SparseBatch(self._held, numbers, np.inf, self._scratch, self.targets, self.active)

    def _add_column(self, to: FloatArray, feature: int, amount: float) -> None:
        to += amount * self.columns(np.array([feature])).toarray()[:, 0]

    def _clip_entries(self, bound: float) -> None:
        self._entries = np.clip(self._entries, -bound, bound)
        self.__dict__.pop("_held", None)

    def _clear_rows(self) -> None:
        self._entries[np.repeat(~self.active, self._counts)] = 0.0
