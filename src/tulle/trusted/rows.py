"""Private rows in memory, and the one reduction that everything else is built on.

Rule 5 of the house: whatever an algorithm needs from rows is a sum over rows of a function of one row and of what is
already public. `Rows.reduce` does that sum over blocks; a back end (`tulle.backends`) is another way to do it.

Rows are clipped without copying them: entries are clipped in the transposed copy that the gradient needs anyway, and
row norms by a factor per row that is applied to margins and slopes.

A row that does not count is zeros, its target included, from the moment at which that is known: a sum over all rows
never meets its numbers, and infinity times zero is nowhere computed.
"""

from __future__ import annotations

import operator
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from tulle import threads
from tulle.events import FloatArray
from tulle.losses import Norm
from tulle.pieces import HeldPieces, Pieces, bytes_of
from tulle.walk import Walk
from tulle.weights import SparseWeights

RowNumbers = npt.NDArray[np.intp]
T = TypeVar("T")

_DENSE_BLOCK_BYTES = 1 << 25
_SPARSE_PART_ENTRIES = 1 << 16

# Margins are summed in so many lanes, whatever the number of threads that share them out: the sums do not depend on it.
_LANES = 4

# Dense blocks of fewer entries are one lane.
_LARGE_DENSE = 1 << 20

# Entries of all rows, at 75 a row: with fewer, what compiled loops save on batches is less than loading them takes.
_WORTH_COMPILING = 1e7

_SHORTEST, _LONGEST = 1e-140, 1e140


class Block(ABC):
    """Some rows with their targets. Trusted: only queries that run inside the curator touch it."""

    def __init__(self, targets: FloatArray, active: npt.NDArray[np.bool_]) -> None:
        self.targets = targets
        self.active = active  # rows that count; a person's surplus rows do not
        self._borrowed = True  # whether the entries are somebody else's, to be copied before they are changed
        self._scale: FloatArray | None = None
        self._known_norms: dict[Norm, FloatArray] = {}
        self._last_margins: tuple[FloatArray, float, FloatArray] | None = None
        self._walked: tuple[Walk, float, int, FloatArray] | None = None

    @staticmethod
    def of(matrix: Any, targets: FloatArray, active: npt.NDArray[np.bool_] | None = None) -> Block:
        """Rows of a dense or sparse array; all of them count where `active` is None."""
        active = np.ones(len(targets), dtype=bool) if active is None else active
        return SparseBlock(matrix, targets, active) if sp.issparse(matrix) else DenseBlock(matrix, targets, active)

    @property
    def n_rows(self) -> int:
        return len(self.targets)

    def __sizeof__(self) -> int:
        return bytes_of(self)

    def __getstate__(self) -> dict[str, Any]:
        # What travels is rows: what was remembered of a question may be changing while it is copied.
        return {**self.__dict__, "_known_norms": {}, "_last_margins": None, "_walked": None}

    def wake(self) -> None:
        """Get ready to be read."""
        return  # rows in memory are

    def rest(self) -> None:
        """Let go of what can be read again."""
        return  # nothing, of rows in memory

    def twin(self) -> Block:
        """The same rows, to be clipped without a change to this block."""
        other = copy(self)
        other._borrowed = True
        other._forget()
        return other

    @abstractmethod
    def _product(self, weights: FloatArray) -> FloatArray:
        """X @ weights, using only the columns in which `weights` is not zero."""

    @abstractmethod
    def _transposed_product(self, slopes: FloatArray) -> FloatArray:
        """Xᵀ @ slopes."""

    @abstractmethod
    def _norms(self, norm: Norm) -> FloatArray:
        """The norm of each row of X."""

    @abstractmethod
    def norms_in(self, units: FloatArray) -> FloatArray:
        """The largest |entry| / unit of each row as it now is, with a unit for each feature."""

    @abstractmethod
    def _squares_on(self, features: npt.NDArray[np.intp]) -> FloatArray:
        """The squared ℓ2 norm of each row, as it now is, restricted to some features.

        Of entries times their row's factor: on a few features the entries of a row that is stretched can be so much
        smaller than the row that their own squares vanish.
        """

    @abstractmethod
    def _transposed_product_on(self, slopes: FloatArray, features: npt.NDArray[np.intp]) -> FloatArray:
        """The lines of Xᵀ @ slopes that belong to some features, for one column of slopes."""

    @abstractmethod
    def _columns(self, features: npt.NDArray[np.intp]) -> Any:
        """X restricted to some features, CSR or dense."""

    @abstractmethod
    def _add_column(self, to: FloatArray, feature: int, amount: float) -> None:
        """Adds amount × a column of the rows as they now are."""

    @abstractmethod
    def _clip_entries(self, bound: float) -> None: ...

    @abstractmethod
    def _clear_rows(self) -> None:
        """Make zeros of the entries of rows that do not count, but never in arrays of the user's."""

    @abstractmethod
    def _n_features(self) -> int: ...

    @abstractmethod
    def _take(self, numbers: RowNumbers) -> Block:
        """Some rows of X with their targets, entries clipped."""

    def take(self, numbers: RowNumbers) -> Block:
        """Some rows as they now are."""
        batch = self._take(numbers)
        batch._scale = None if self._scale is None else self._scale[numbers]
        self.norms("l2")  # once for all batches
        batch._known_norms = {norm: norms[numbers] for norm, norms in self._known_norms.items()}
        return batch

    def clip_entries(self, bound: float) -> None:
        """Clip every entry of X to [-bound, bound]. Comes before `clip_rows`."""
        self._clip_entries(bound)
        self._forget()

    def _leave_out(self, rows: npt.NDArray[np.bool_] | None = None) -> None:
        """Make zeros of the rows that do not count, from now on these too; nothing is copied where all count."""
        self.active = self.active if rows is None else self.active & ~rows
        if not self.active.all():
            self.targets = np.where(self.active, self.targets, 0.0)
            self._clear_rows()

    def _forget(self) -> None:
        self._known_norms, self._last_margins, self._walked = {}, None, None

    def clip_targets(self, low: float, high: float) -> None:
        self.targets = np.where(self.active, np.clip(self.targets, low, high), 0.0)

    def clip_rows(self, bound: float, entry_bound: float, normalise: bool) -> None:
        """Scale rows longer than `bound` down to it.

        With `normalise`, scale every row to it, but no further than until its largest entry reaches `entry_bound`.
        """
        # A computed norm can fall short of the true one by d roundings; divide by an upper bound of the true norm.
        norms = self._norms("l2") * (1 + self._n_features() * 2.0**-52)
        with np.errstate(all="ignore"):
            largest = entry_bound / self._norms("linf") if normalise else 1.0
            scale = np.minimum(bound / norms, largest)
        # Squares of entries outside of these limits over- or underflow: beyond the upper one a record counts as
        # nothing, below the lower one it is shorter than any bound and stays as it is.
        self._scale = np.where(norms > _SHORTEST, scale, 1.0)
        # Nor does a record count that would have to be stretched beyond all numbers.
        out_of_range = ~(norms < _LONGEST) | ~np.isfinite(self._scale)
        self._scale[out_of_range] = 0.0
        if out_of_range.any():
            self._leave_out(out_of_range)
        self._forget()

    def norms(self, norm: Norm) -> FloatArray:
        """The norm of each row as it now is, clipped or not."""
        if norm not in self._known_norms:
            norms = self._norms(norm)
            self._known_norms[norm] = norms if self._scale is None else norms * self._scale
        return self._known_norms[norm]

    def norms_on(self, features: npt.NDArray[np.intp]) -> FloatArray:
        """The ℓ2 norm of each row restricted to some features."""
        return np.sqrt(self._squares_on(features))

    def margins(self, weights: FloatArray, intercept_value: float) -> FloatArray:
        """<x, w> of each row and output; the last line of `weights` belongs to a constant column of that value."""
        if self._last_margins is not None:
            last_weights, last_value, last = self._last_margins
            if last_value == intercept_value and np.array_equal(last_weights, weights):
                return last
        margins = self._product(weights[: self._n_features()])
        if self._scale is not None:
            margins = margins * self._scale[:, None]
        if intercept_value:
            margins = margins + intercept_value * weights[-1]
        self._last_margins = (weights.copy(), intercept_value, margins)
        return margins

    def margins_at(self, weights: SparseWeights, intercept_value: float) -> FloatArray:
        """`margins`, of weights that are zero almost everywhere."""
        return self.margins(weights.to_dense(), intercept_value)

    def margins_along(self, walk: Walk, intercept_value: float) -> FloatArray:
        """The margins at a walk's present weights, from those at the last question: only moved columns are read."""
        if self._walked is None or self._walked[0] is not walk or self._walked[1] != intercept_value:
            self._walked = (walk, intercept_value, 0, self.margins(walk.start, intercept_value).copy())
        _, _, done, margins = self._walked
        for move in walk.moves[done:]:
            margins *= move.shrink
            for output, (coordinate, amount) in enumerate(zip(move.coordinates, move.amounts)):
                if coordinate == self._n_features():
                    margins[:, output] += amount * intercept_value
                else:
                    self._add_column(margins[:, output], int(coordinate), float(amount))
        self._walked = (walk, intercept_value, len(walk.moves), margins)
        return margins

    def columns(self, features: npt.NDArray[np.intp]) -> Any:
        """The rows, as they now are, on some features: CSR or dense, of shape (rows, features)."""
        columns = self._columns(features)
        if self._scale is None:
            return columns
        if isinstance(columns, np.ndarray):
            return columns * self._scale[:, None]
        columns.data *= np.repeat(self._scale, np.diff(columns.indptr))
        return columns

    def gather(self, slopes: FloatArray) -> FloatArray:
        """Sum over rows of x times the row's slopes; shape (features, outputs)."""
        return self._transposed_product(self._scaled(slopes))

    def gather_sparsely(self, slopes: FloatArray) -> SparseWeights:
        """`gather`, on the features that any row has; zero on all others."""
        return SparseWeights(np.arange(self._n_features()), self.gather(slopes), self._n_features())

    def gather_on(self, slopes: FloatArray, features: npt.NDArray[np.intp]) -> FloatArray:
        """The same on some features only, for one output."""
        return self._transposed_product_on(self._scaled(slopes), features)

    def _scaled(self, slopes: FloatArray) -> FloatArray:
        if self._scale is None:
            return slopes
        return slopes * (self._scale if slopes.ndim == 1 else self._scale[:, None])


class SparseBlock(Block):
    """Rows held as columns (CSC): margins read only the support's columns, and gradients gather along columns."""

    def __init__(self, matrix: Any, targets: FloatArray, active: npt.NDArray[np.bool_]) -> None:
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
        self._transposed = sp.csr_array((columns.data, columns.indices, columns.indptr), shape=columns.shape[::-1])

    def _n_features(self) -> int:
        return int(self._csc.shape[1])

    def twin(self) -> Block:
        other: Any = super().twin()
        other._scratch = None
        return other

    def _take(self, numbers: RowNumbers) -> Block:
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

    def _feature_parts(self, features: npt.NDArray[np.intp]) -> list[npt.NDArray[np.intp]]:
        """Some features, in parts of few entries: popular columns together can be half of the data."""
        starts = self._csc.indptr
        counts = starts[features + 1] - starts[features]
        part = (np.cumsum(counts) - counts) // _SPARSE_PART_ENTRIES
        return [chosen for chosen in np.split(features, np.flatnonzero(np.diff(part)) + 1) if len(chosen)]

    def _columns(self, features: npt.NDArray[np.intp]) -> Any:
        return self._csc[:, features].tocsr()

    def _entry_parts(self) -> Iterator[slice]:
        for start in range(0, self._csc.nnz, _SPARSE_PART_ENTRIES):
            yield slice(start, start + _SPARSE_PART_ENTRIES)

    def _product(self, weights: FloatArray) -> FloatArray:
        parts = self._feature_parts(np.flatnonzero(weights.any(axis=1)))

        def lane(first: int) -> FloatArray:
            total = np.zeros((self.n_rows, weights.shape[1]))
            for chosen in parts[first::_LANES]:
                if weights.shape[1] == 1:  # scipy's product with a vector is the faster one
                    total[:, 0] += self._csc[:, chosen] @ weights[chosen, 0]
                else:
                    total += self._csc[:, chosen] @ weights[chosen]
            return total

        lanes = [partial(lane, first) for first in range(max(1, min(_LANES, len(parts))))]
        first, *others = threads.together(lanes, threads.worth_sharing(*self._csc.shape))
        for other in others:
            first += other
        return first

    def _transposed_product(self, slopes: FloatArray) -> FloatArray:
        if slopes.shape[1] == 1:  # as in `_product`
            return threads.product(self._transposed, slopes[:, 0])[:, None]
        return threads.product(self._transposed, slopes)

    def _transposed_product_on(self, slopes: FloatArray, features: npt.NDArray[np.intp]) -> FloatArray:
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

    def _squares_on(self, features: npt.NDArray[np.intp]) -> FloatArray:
        squares = np.zeros(self.n_rows)
        for chosen in self._feature_parts(features):
            columns = self._csc[:, chosen]
            entries = self._times_factor(columns.data, columns.indices)
            squares += np.bincount(columns.indices, entries**2, minlength=self.n_rows)
        return squares

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


class Scratch:
    """Room for one batch at a time, of the length of a row: made once, so that a batch costs its own entries only.

    What one batch leaves in it would be added to the next. So it is cleared where its use ends in an error, and it
    never travels: a copy in another process, or on a disk that a worker spills to, is an empty one.
    """

    def __init__(self, n_features: int) -> None:
        self.sums = np.zeros(n_features)  # zero between uses
        self.marks = np.zeros(n_features, dtype=np.intp)  # anything between uses
        # A bit for each feature, and one for each 64 of these; zero between uses.
        self.bits = tuple(np.zeros(-(-n_features // size), dtype=np.uint64) for size in (1 << 6, 1 << 12))

    def __enter__(self) -> Scratch:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        if kind is not None:
            for array in (self.sums, *self.bits):
                array[:] = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return Scratch, (len(self.sums),)


def _compiled_loops(n_rows: int, n_features: int) -> Any:
    """`tulle.kernels` where it is loaded already, or where rows are so many that loading it pays; otherwise None.

    By public figures: whether something is compiled can be seen. The sums are the same, to the last bit.
    """
    if n_rows * min(n_features, 75) < _WORTH_COMPILING and "tulle.kernels" not in sys.modules:
        return None
    from tulle import kernels

    return kernels


class SparseBatch(Block):
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
        Of all rows. Those that do not count are taken as zeros, whatever the matrix holds.
    """

    def __init__(
        self,
        matrix: Any,
        numbers: RowNumbers,
        entry_bound: float,
        scratch: Scratch,
        targets: FloatArray,
        active: npt.NDArray[np.bool_],
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

    @cached_property
    def _matrix(self) -> Any:
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

    def _take(self, numbers: RowNumbers) -> Block:
        return SparseBatch(self._matrix, numbers, np.inf, self._scratch, self.targets, self.active)

    def _product(self, weights: FloatArray) -> FloatArray:
        return np.asarray(self._matrix @ weights)

    def _transposed_product(self, slopes: FloatArray) -> FloatArray:
        return np.asarray(self._matrix.T @ slopes)

    def _transposed_product_on(self, slopes: FloatArray, features: npt.NDArray[np.intp]) -> FloatArray:
        return np.asarray(self._columns(features).T @ slopes)

    def _norms(self, norm: Norm) -> FloatArray:
        if norm == "l2":
            return np.sqrt(self._sum_by_row(self._entries**2))
        norms = np.zeros(self.n_rows)
        np.maximum.at(norms, np.repeat(np.arange(self.n_rows), self._counts), np.abs(self._entries))
        return norms

    def norms_in(self, units: FloatArray) -> FloatArray:
        norms, rows = np.zeros(self.n_rows), np.repeat(np.arange(self.n_rows), self._counts)
        entries = self._entries if self._scale is None else self._entries * self._scale[rows]
        np.maximum.at(norms, rows, np.abs(entries) / units[self._features])
        return norms

    def _squares_on(self, features: npt.NDArray[np.intp]) -> FloatArray:
        columns = self.columns(features)
        return np.asarray(columns.multiply(columns).sum(axis=1), dtype=np.float64).ravel()

    def _columns(self, features: npt.NDArray[np.intp]) -> Any:
        return self._matrix[:, features]

    def _add_column(self, to: FloatArray, feature: int, amount: float) -> None:
        to += amount * self.columns(np.array([feature])).toarray()[:, 0]

    def _clip_entries(self, bound: float) -> None:
        self._entries = np.clip(self._entries, -bound, bound)
        self.__dict__.pop("_matrix", None)

    def _clear_rows(self) -> None:
        self._entries[np.repeat(~self.active, self._counts)] = 0.0


def _row_by_row(entries: FloatArray, vectors: FloatArray) -> bool:
    """Whether products are best taken row by row: numpy's einsum then reads memory in one stream at its full speed,
    where BLAS reads several rows at once; wider rows push the sums out of the first cache."""
    return vectors.shape[1] == 1 and entries.flags.c_contiguous and 32 <= entries.shape[1] <= 1500


def _in_lanes(array: FloatArray, size: int | None = None) -> list[FloatArray]:
    """Runs of rows for threads. How many depends on the size alone, so that sums do not depend on the threads."""
    return np.array_split(array, _LANES if (size or array.size) >= _LARGE_DENSE else 1)


class DenseBlock(Block):
    """Rows of a dense array, float32 or float64; arithmetic is in float64."""

    def __init__(
        self, matrix: npt.NDArray[Any], targets: FloatArray, active: npt.NDArray[np.bool_], borrowed: bool = True
    ) -> None:
        super().__init__(targets, active)
        self._rows, self._borrowed = matrix, borrowed
        self._entry_bound = np.inf
        self._leave_out(~np.isfinite(matrix).all(axis=1))  # as in SparseBlock

    def _n_features(self) -> int:
        return int(self._rows.shape[1])

    def _entries(self, rows: npt.NDArray[Any]) -> FloatArray:
        rows = np.asarray(rows, dtype=np.float64)
        return rows if np.isinf(self._entry_bound) else np.clip(rows, -self._entry_bound, self._entry_bound)

    def _columns(self, features: npt.NDArray[np.intp]) -> FloatArray:
        return self._entries(self._rows[:, features])

    def _product(self, weights: FloatArray) -> FloatArray:
        support = np.flatnonzero(weights.any(axis=1))
        if 16 * len(support) <= len(weights):  # otherwise most of the rows' cache lines are read in any case
            return np.asarray(self._columns(support) @ weights[support])
        entries = self._entries(self._rows)
        if not _row_by_row(entries, weights):
            return entries @ weights
        jobs = [partial(np.einsum, "ij,j->i", part, weights[:, 0]) for part in _in_lanes(entries)]
        return np.concatenate(threads.together(jobs))[:, None]

    def _transposed_product(self, slopes: FloatArray) -> FloatArray:
        entries = self._entries(self._rows)
        if not _row_by_row(entries, slopes):
            return entries.T @ slopes
        lanes = zip(_in_lanes(entries), _in_lanes(slopes[:, 0], entries.size))
        total, *others = threads.together([partial(np.einsum, "ij,i->j", *lane) for lane in lanes])
        for other in others:
            total += other
        return np.asarray(total)[:, None]

    def _transposed_product_on(self, slopes: FloatArray, features: npt.NDArray[np.intp]) -> FloatArray:
        return np.asarray(self._columns(features).T @ slopes)

    def _norms(self, norm: Norm) -> FloatArray:
        entries = self._entries(self._rows)
        if norm == "l2":
            return np.sqrt(np.einsum("ij,ij->i", entries, entries))
        return np.asarray(np.abs(entries).max(axis=1, initial=0.0))

    def norms_in(self, units: FloatArray) -> FloatArray:
        entries = self._entries(self._rows)
        entries = entries if self._scale is None else entries * self._scale[:, None]
        return np.asarray((np.abs(entries) / units).max(axis=1, initial=0.0))

    def _squares_on(self, features: npt.NDArray[np.intp]) -> FloatArray:
        columns = self.columns(features)
        return np.asarray(np.einsum("ij,ij->i", columns, columns))

    def _add_column(self, to: FloatArray, feature: int, amount: float) -> None:
        column = self._entries(self._rows[:, feature])
        to += amount * (column if self._scale is None else column * self._scale)

    def _take(self, numbers: RowNumbers) -> Block:
        batch = DenseBlock(self._rows[numbers], self.targets[numbers], self.active[numbers], borrowed=False)
        batch._entry_bound = self._entry_bound
        return batch

    def _clip_entries(self, bound: float) -> None:
        if max(self._rows.max(initial=0.0), -self._rows.min(initial=0.0)) > bound:
            self._entry_bound = min(self._entry_bound, bound)

    def _clear_rows(self) -> None:
        if self._borrowed:
            self._rows, self._borrowed = np.array(self._rows), False
        self._rows[~self.active] = 0.0


class Rows:
    """All private rows, as blocks that this process holds.

    Parameters
    ----------
    matrix : array or sparse array of shape (n, d)
        Dense float32 or float64, CSR or CSC. Not copied where that can be avoided, never densified.
    targets : array of shape (n,)
    active : boolean array of shape (n,) or None
        Rows that count; None means all.
    """

    # Who saw rows and exact sums over them, for the report.
    seen_by: tuple[str, ...] = (
        "The process that ran fit held the rows and the exact sums over them; nothing but the answers on the bill left "
        "the part of the code that saw them.",
    )

    def __init__(self, matrix: Any, targets: FloatArray, active: npt.NDArray[np.bool_] | None = None) -> None:
        active = np.ones(len(targets), dtype=bool) if active is None else active
        self.blocks: list[Block] = []
        self._kept: tuple[tuple[Any, ...], Any] | None = None
        if sp.issparse(matrix):
            self.blocks = [SparseBlock(matrix, targets, active)]
        else:
            step = max(1, _DENSE_BLOCK_BYTES // (8 * max(1, matrix.shape[1])))
            parts = [slice(start, start + step) for start in range(0, len(targets), step)]
            self.blocks = [DenseBlock(matrix[part], targets[part], active[part]) for part in parts]

    @classmethod
    def of_blocks(cls, blocks: Sequence[Block]) -> Rows:
        """Rows that are blocks already; at least one."""
        rows = cls.__new__(cls)
        rows.blocks, rows._kept = list(blocks), None
        return rows

    def only_block(self) -> Block | None:
        """The block that holds all rows in memory, if there is one: what is followed from step to step is kept
        beside it."""
        return self.blocks[0] if len(self.blocks) == 1 else None

    def _in_turn(self) -> Iterator[Block]:
        """The blocks one after another, each awake while it is looked at."""
        for block in self.blocks:
            block.wake()
            try:
                yield block
            finally:
                block.rest()

    def batch(self, numbers: RowNumbers) -> Rows:
        """Some rows, by their numbers, which rise; all of them are not copied."""
        parts = self._numbers_in_blocks(numbers)
        if parts is None:
            return self
        taken = [block.take(part) for block, part in zip(self._in_turn(), parts) if len(part)]
        if not taken:  # an empty batch is a block of no rows
            self.blocks[0].wake()
            taken = [self.blocks[0].take(numbers)]
            self.blocks[0].rest()
        return Rows.of_blocks(taken)

    def _numbers_in_blocks(self, numbers: RowNumbers) -> list[RowNumbers] | None:
        """Row numbers within each block; None where they are all rows."""
        sizes = self.sizes()
        if len(numbers) == sum(sizes):
            return None
        ends = np.cumsum(sizes)
        parts = np.split(numbers, np.searchsorted(numbers, ends[:-1]))
        return [part - end + size for part, end, size in zip(parts, ends, sizes)]

    def sizes(self) -> list[int]:
        """How many rows each block has."""
        return [block.n_rows for block in self.blocks]

    def reduce(self, contribution: Callable[[Block], Any], combine: Callable[[Any, Any], Any] = operator.add) -> Any:
        """The sum over rows of a function of one row, computed block by block and combined in the order of blocks."""
        total: Any = None
        for k, block in enumerate(self._in_turn()):
            total = combine(total, contribution(block)) if k else contribution(block)
        return total

    def derive(self, make: Callable[[Block], Sequence[T]]) -> Pieces[T]:
        """What a function makes of each block, kept where the block is, for many sums over it."""
        return HeldPieces(piece for block in self._in_turn() for piece in make(block))

    def kept_for(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """What was made for the very same objects, such as a walk that is followed; only the last one is kept."""
        known = self._kept is not None and all(one is other for one, other in zip(self._kept[0], key, strict=True))
        if self._kept is None or not known:
            self._kept = (key, make())
        return self._kept[1]

    def clip_entries(self, bound: float) -> None:
        self._clip("clip_entries", bound)

    def clip_rows(self, bound: float, entry_bound: float = np.inf, normalise: bool = False) -> None:
        self._clip("clip_rows", bound, entry_bound, normalise)

    def clip_targets(self, low: float, high: float) -> None:
        self._clip("clip_targets", low, high)

    def _clip(self, how: str, *bounds: Any) -> None:
        """Call a method of every block."""
        self._kept = None
        for block in self._in_turn():
            getattr(block, how)(*bounds)
