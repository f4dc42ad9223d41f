"""Private rows in memory, and the one reduction that everything else is built on.

All that an algorithm needs from rows is sums over rows of a function of one row and of values that are already public.
`Rows.reduce` computes the sum over blocks; a back end is another way to do it. Faster blocks can be installed (the hook
"block"), of the same answers up to the rounding of sums. A row that does not count is zeros, its target included:
sums never use its numbers, and infinity times zero is never computed. The user's arrays are never changed.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from tulle.trusted import hooks
from tulle.trusted.events import FloatArray
from tulle.trusted.losses import Norm

Mask = npt.NDArray[np.bool_]
RowNumbers = npt.NDArray[np.intp]
T = TypeVar("T")
_DENSE_BLOCK_BYTES = 1 << 25
_SHORTEST, _LONGEST = 1e-140, 1e140


class Pieces(Generic[T]):
    """What was derived from blocks and stays where they are (here: in this process), in a fixed order."""

    def __init__(self, items: Iterable[T]) -> None:
        self.items = list(items)

    def sum(self, function: Callable[[T], Any], start: Any) -> Any:
        """start + the sum over pieces of a function of one piece, which must not change the piece."""
        return start + sum_in_pairs(function(item) for item in self.items)


def sum_in_pairs(values: Iterable[Any]) -> Any:
    """The sum of at least one value, added up in pairs, pairs of pairs, and so on: each of n values goes through at
    most log2 n additions, so that the rounding of a sum does not depend on the blocks that rows lie in."""
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


def _entries(x: Any) -> FloatArray:
    return x.data if sp.issparse(x) else x


def _with_entries(x: Any, entries: FloatArray) -> Any:
    return sp.csr_array((entries, x.indices, x.indptr), shape=x.shape) if sp.issparse(x) else entries


def _per_entry(x: Any, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A value for each row, at each of the row's entries."""
    return np.repeat(values, np.diff(x.indptr)) if sp.issparse(x) else values[:, None]


def square_norms(x: Any) -> FloatArray:
    """The square of each row's ℓ2 norm."""
    if not sp.issparse(x):
        return np.einsum("ij,ij->i", x, x)
    return np.bincount(_per_entry(x, np.arange(x.shape[0])), x.data**2, minlength=x.shape[0]).astype(np.float64)


def _norms_of(x: Any, norm: Norm) -> FloatArray:
    """The norm of each row; not finite where an entry is not."""
    if norm == "l2":
        return np.sqrt(square_norms(x))
    if not sp.issparse(x):
        return np.asarray(np.abs(x).max(axis=1, initial=0.0))
    largest = np.zeros(x.shape[0])
    np.maximum.at(largest, _per_entry(x, np.arange(x.shape[0])), np.abs(x.data))
    return largest


class Block:
    """Some rows with their targets; only queries that run inside the curator touch it. Entries are clipped first, then
    the length of rows, by a factor of each row that goes into margins, slopes and norms."""

    def __init__(self, matrix: Any, targets: FloatArray, active: Mask) -> None:
        self.targets = targets
        self.active = active  # rows that count; a person's surplus rows do not
        self._scale: FloatArray | None = None
        if sp.issparse(matrix):
            # Made anew: what an array remembers of itself (no duplicates, in order) may be out of date.
            given = sp.csr_array(matrix)
            parts = (given.data.astype(np.float64), given.indices.copy(), given.indptr.copy())
            self._held: Any = sp.csr_array(parts, shape=given.shape)
            self._held.sum_duplicates()
        else:
            self._held = np.asarray(matrix, dtype=np.float64)
        # Behind the estimator's checks a record with an entry that is not finite counts as nothing.
        self._leave_out(~np.isfinite(_norms_of(self._held, "linf")))

    @property
    def n_rows(self) -> int:
        return len(self.targets)

    def take(self, numbers: RowNumbers) -> Block:
        """Some rows as they now are."""
        batch = copy(self)
        batch.targets, batch.active, batch._held = self.targets[numbers], self.active[numbers], self._held[numbers]
        batch._scale = None if self._scale is None else self._scale[numbers]
        return batch

    def _leave_out(self, rows: Mask | None = None) -> None:
        """Make zeros of the rows that do not count, from now on these too."""
        self.active = self.active if rows is None else self.active & ~rows
        if not self.active.all():
            self.targets = np.where(self.active, self.targets, 0.0)
            self._clear_rows()

    def _clear_rows(self) -> None:
        """Make zeros of the entries of rows that do not count, but never in arrays of the user's."""
        entries = np.where(_per_entry(self._held, self.active), _entries(self._held), 0.0)
        self._held = _with_entries(self._held, entries)

    def clip_entries(self, bound: float) -> None:
        """Clip every entry of X to [-bound, bound]. Comes before `clip_rows`."""
        self._held = _with_entries(self._held, np.clip(_entries(self._held), -bound, bound))

    def clip_targets(self, low: float, high: float) -> None:
        self.targets = np.where(self.active, np.clip(self.targets, low, high), 0.0)

    def clip_rows(self, bound: float, entry_bound: float, normalise: bool) -> None:
        """Scale rows longer than `bound` down to it; with `normalise` every row, until an entry is `entry_bound`."""
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

    def _n_features(self) -> int:
        return int(self._held.shape[1])

    def _norms(self, norm: Norm) -> FloatArray:
        """The norm of each row before its factor."""
        return _norms_of(self._held, norm)

    def norms(self, norm: Norm) -> FloatArray:
        """The norm of each row as it now is, clipped or not."""
        return self._norms(norm) if self._scale is None else self._norms(norm) * self._scale

    def norms_in(self, units: FloatArray) -> FloatArray:
        """The largest |entry| / unit of each row as it now is, with a unit for each feature."""
        x = self._with_factors(self._held)
        units = units[x.indices] if sp.issparse(x) else units
        return _norms_of(_with_entries(x, _entries(x) / units), "linf")

    def norms_on(self, features: npt.NDArray[np.intp]) -> FloatArray:
        """The ℓ2 norm of each row on some features, of entries times their factor: squares of their own may vanish."""
        return _norms_of(self.columns(features), "l2")

    def margins(self, weights: FloatArray, intercept_value: float) -> FloatArray:
        """<x, w> of each row and output; the last line of `weights` belongs to a constant column of that value."""
        margins = self._product(weights[: self._n_features()])
        if self._scale is not None:
            margins = margins * self._scale[:, None]
        return margins + intercept_value * weights[-1] if intercept_value else margins

    def columns(self, features: npt.NDArray[np.intp]) -> Any:
        """The rows, as they now are, on some features: CSR or dense, of shape (rows, features)."""
        return self._with_factors(self._columns(features))

    def gather(self, slopes: FloatArray) -> FloatArray:
        """Sum over rows of x times the row's slopes; shape (features, outputs)."""
        return np.asarray(self._held.T @ self._scaled(slopes))

    def gather_on(self, slopes: FloatArray, features: npt.NDArray[np.intp]) -> FloatArray:
        """The same on some features only, for one output."""
        return np.asarray(self._columns(features).T @ self._scaled(slopes))

    def _scaled(self, slopes: FloatArray) -> FloatArray:
        if self._scale is None:
            return slopes
        return slopes * (self._scale if slopes.ndim == 1 else self._scale[:, None])

    def _with_factors(self, x: Any) -> Any:
        return x if self._scale is None else _with_entries(x, _entries(x) * _per_entry(x, self._scale))

    def _product(self, weights: FloatArray) -> FloatArray:
        return np.asarray(self._held @ weights)

    def _columns(self, features: npt.NDArray[np.intp]) -> Any:
        return self._held[:, features]


def make_block(matrix: Any, targets: FloatArray, active: Mask | None = None) -> Block:
    """A block of the rows of a dense or sparse array; all of them count where `active` is None."""
    kind: Callable[..., Block] = hooks.get("block") or Block
    return kind(matrix, targets, np.ones(len(targets), dtype=bool) if active is None else active)


class Rows:
    """All private rows, as blocks that this process holds: n rows, dense (float32 or float64) or sparse (CSR or CSC),
    with n targets. `active` are the rows that count; None means all."""

    # Who saw rows and exact sums over them, for the report; where it is empty, this process alone.
    seen_by: tuple[str, ...] = ()

    def __init__(self, matrix: Any, targets: FloatArray, active: Mask | None = None) -> None:
        active = np.ones(len(targets), dtype=bool) if active is None else active
        if sp.issparse(matrix):
            self.blocks = [make_block(matrix, targets, active)]
        else:
            step = max(1, _DENSE_BLOCK_BYTES // (8 * max(1, matrix.shape[1])))
            parts = [slice(start, start + step) for start in range(0, len(targets), step)]
            self.blocks = [make_block(matrix[part], targets[part], active[part]) for part in parts]

    @classmethod
    def of_blocks(cls, blocks: Sequence[Block]) -> Rows:
        """Rows that are blocks already; at least one."""
        rows = cls.__new__(cls)
        rows.blocks = list(blocks)
        return rows

    def only_block(self) -> Block | None:
        """The block that holds all rows in memory, if there is one."""
        return self.blocks[0] if len(self.blocks) == 1 else None

    def _in_turn(self) -> Iterator[Block]:
        """The blocks one after another, each ready to be read."""
        return iter(self.blocks)

    def batch(self, numbers: RowNumbers) -> Rows:
        """Some rows, by their numbers, which rise; all of them are not copied."""
        parts = self._numbers_in_blocks(numbers)
        if parts is None:
            return self
        taken = [block.take(part) for block, part in zip(self._in_turn(), parts)]
        return Rows.of_blocks([block for block in taken if block.n_rows] or taken[:1])

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
        return Pieces(piece for block in self._in_turn() for piece in make(block))

    def clip_entries(self, bound: float) -> None:
        self._clip("clip_entries", bound)

    def clip_rows(self, bound: float, entry_bound: float = np.inf, normalise: bool = False) -> None:
        self._clip("clip_rows", bound, entry_bound, normalise)

    def clip_targets(self, low: float, high: float) -> None:
        self._clip("clip_targets", low, high)

    def _clip(self, how: str, *bounds: Any) -> None:
        """Call a method of every block."""
        for block in self._in_turn():
            getattr(block, how)(*bounds)
