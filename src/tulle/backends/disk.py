"""Rows in a folder of blocks (`tulle.backends.block_folder`): read from memory-mapped files, one block at a time.

What stays in memory is some numbers a row (targets, lengths, margins), and for a solver the columns that it works on,
as far as there is room. Files are never written to: of a block with rows that do not count, with entries to be
clipped, or with rows that private steps have changed, a copy is made for as long as it is awake. Everything is summed
in this process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp

from tulle.backends.block_folder import BlockMatrix
from tulle.backends.rows_elsewhere import Changes, Spread, count_bytes, targets_of
from tulle.fast.compiled_rows import DenseBlock, SparseBlock
from tulle.fast.fast_block import FastBlock
from tulle.files.array_checks import read_finite_numbers
from tulle.files.class_labels import find_different
from tulle.files.own_types import register
from tulle.trusted.events import FloatArray
from tulle.trusted.intake import Cells, Mask, mask_unlabelled, read_cells
from tulle.trusted.rows import Block, Pieces, RowNumbers, Rows, make_block, sum_in_pairs

T = TypeVar("T")

# What a solver derives is kept in memory up to this many bytes, and made anew from disk beyond.
ROOM = 1 << 29


@dataclass(frozen=True, eq=False)
class ChangedMatrix:
    """The blocks of a folder, changed whenever they are read: nothing that was changed is written, or kept."""

    folder: BlockMatrix
    changes: Changes

    @property
    def shape(self) -> tuple[int, int]:
        return self.folder.shape

    def block(self, k: int) -> Any:
        """As `BlockMatrix.block`; entries need not be finite."""
        if not self.folder.sparse:
            return np.asarray(self.changes(self.folder.block(k)), dtype=np.float64)
        rows = self._canonical(self.changes(self.folder.block(k)[1]))
        return rows.tocsc(), rows

    def take(self, k: int, numbers: RowNumbers) -> Any:
        """Some rows of block `k`: no others are changed for them."""
        block = self.folder.block(k)
        return self.changes(block[1][numbers] if self.folder.sparse else block[numbers])

    def _canonical(self, rows: Any) -> Any:
        """Made anew: what an array remembers of itself may be out of date."""
        made = sp.csr_array(rows, dtype=np.float64)
        made = sp.csr_array((made.data, made.indices, made.indptr), shape=made.shape)
        if not made.has_canonical_format:
            made = made.copy()
            made.sum_duplicates()
        return made


class SparseBlockOnDisk(SparseBlock):
    """A sparse block whose entries are in files. While it rests, nothing of them is mapped."""

    def __init__(self, matrix: BlockMatrix | ChangedMatrix, k: int, targets: FloatArray, active: Mask) -> None:
        # Its rows were checked when they were converted, and again before the fit: none is left out here.
        FastBlock.__init__(self, targets, active)
        self._folder, self._number = matrix, k
        self._entry_bound = np.inf
        self.rest()

    def wake(self) -> None:
        """Get ready to be read."""
        columns, by_rows = self._folder.block(self._number)
        self._borrowed = True
        if self._entry_bound < np.inf:
            entries = np.clip(columns.data, -self._entry_bound, self._entry_bound)
            columns = sp.csc_array((entries, columns.indices, columns.indptr), shape=columns.shape)
            self._borrowed = False
        self._hold(columns, by_rows)
        self._leave_out()

    def rest(self) -> None:
        """Let go of what can be read again."""
        self._csc = self._transposed = self._row_order = self._scratch = None

    def _clip_entries(self, bound: float) -> None:
        entries = self._csc.data
        if entries.size and max(entries.max(), -entries.min()) > bound:  # a copy for every visit is not made in vain
            self._entry_bound = min(self._entry_bound, bound)
            self.wake()


class DenseBlockOnDisk(DenseBlock):
    """A dense block in a file."""

    def __init__(self, matrix: BlockMatrix | ChangedMatrix, k: int, targets: FloatArray, active: Mask) -> None:
        FastBlock.__init__(self, targets, active)
        self._folder, self._number = matrix, k
        self._entry_bound = np.inf
        self.rest()

    def wake(self) -> None:
        """Get ready to be read."""
        self._rows, self._borrowed = self._folder.block(self._number), True
        self._leave_out()

    def rest(self) -> None:
        """Let go of what can be read again."""
        self._rows = np.empty((0, self._folder.shape[1]))


class ChangedSparseBlock(SparseBlockOnDisk):
    """A sparse block on disk whose rows are changed when it is read."""

    def wake(self) -> None:
        """Get ready to be read. A row that a step made numbers of which are not finite counts as nothing."""
        super().wake()
        finite = np.isfinite(self._csc.data)
        if not finite.all():
            bad = np.zeros(self.n_rows, dtype=bool)
            bad[self._csc.indices[~finite]] = True
            self._leave_out(bad)


class ChangedDenseBlock(DenseBlockOnDisk):
    """A dense block on disk whose rows are changed when it is read."""

    def wake(self) -> None:
        """As in `ChangedSparseBlock`."""
        super().wake()
        self._leave_out(~np.isfinite(self._rows).all(axis=1))


def _take_changed(block: ChangedSparseBlock | ChangedDenseBlock, numbers: RowNumbers) -> Block:
    """Some rows of a block as they now are, while it rests."""
    matrix: Any = block._folder
    batch = make_block(matrix.take(block._number, numbers), block.targets[numbers], block.active[numbers])
    if block._entry_bound < np.inf:
        batch.clip_entries(block._entry_bound)
    batch._scale = None if block._scale is None else block._scale[numbers]
    return batch.take(np.arange(len(numbers)))


class DiskRows(Rows):
    """All rows, as blocks on disk."""

    seen_by = (
        "The process that ran fit read the rows from a folder, block by block, and held the exact sums over them; "
        "only the answers on the bill left the code that saw them.",
        "Anyone who can read the folder of blocks sees the rows.",
    )

    blocks: list[SparseBlockOnDisk | DenseBlockOnDisk]  # type: ignore[assignment]

    def _in_turn(self) -> Iterator[Block]:
        for block in self.blocks:
            block.wake()
            try:
                yield block
            finally:
                block.rest()

    def batch(self, numbers: RowNumbers) -> Rows:
        parts = self._numbers_in_blocks(numbers)
        changed = [block for block in self.blocks if isinstance(block, (ChangedSparseBlock, ChangedDenseBlock))]
        if parts is None or not changed:
            return super().batch(numbers)
        taken = [_take_changed(block, part) for block, part in zip(changed, parts) if len(part)]
        return Rows.of_blocks(taken or [_take_changed(changed[0], numbers)])

    def only_block(self) -> Block | None:
        return None  # the data kept for following a block would be as large as the block

    def derive(self, make: Callable[[Block], Sequence[T]]) -> Pieces[T]:
        return _PiecesOnDisk(self, make)


class _PiecesOnDisk(Pieces[T]):
    """Pieces of blocks on disk: held in memory as far as there is room, otherwise made anew for every sum."""

    def __init__(self, rows: DiskRows, make: Callable[[Block], Sequence[T]]) -> None:
        self._rows, self._make = rows, make
        self._held: dict[int, Sequence[T]] = {}
        self._room = ROOM

    def sum(self, function: Callable[[T], Any], start: Any) -> Any:
        return start + sum_in_pairs(function(piece) for pieces in self._in_turn() for piece in pieces)

    def _in_turn(self) -> Iterator[Sequence[T]]:
        for k, block in enumerate(self._rows.blocks):
            if k in self._held:
                yield self._held[k]
                continue
            block.wake()
            try:
                pieces = self._make(block)
                self._keep(k, pieces)
                yield pieces
            finally:
                block.rest()

    def _keep(self, k: int, pieces: Sequence[T]) -> None:
        size = sum(map(count_bytes, pieces))
        if size <= self._room:
            self._room -= size
            self._held[k] = pieces


@register("rows elsewhere")
class RowsOnDisk(Spread):
    """The rows of a folder, with targets in memory.

    Parameters
    ----------
    X : BlockMatrix
    y : array of shape (n,) or None
        None where rows are only looked at (`map`).
    missing : bool, default=False
        Whether entries may be NaN or infinite. If not, a folder that declares such entries is refused, whether it has
        any or not.
    """

    def __init__(self, X: BlockMatrix, y: Any, *, missing: bool = False) -> None:
        if X.missing and not missing:
            raise ValueError(
                "this folder of blocks was written for rows with missing entries; fit it with a PrivateScaler or a "
                "PrivateImputer as the first step (--private-scaler), or convert the rows again without --missing"
            )
        self._X = X
        # Masked: a row without a target, which counts as nothing.
        self._masked = np.ma.getmaskarray(y) if isinstance(y, np.ma.MaskedArray) else None
        self._y = None if y is None else read_cells(y if self._masked is None else np.ma.filled(y, 0.0), "y")
        if self._y is not None and len(self._y) != X.shape[0]:
            raise ValueError(f"X has {X.shape[0]:,} rows and y has {len(self._y):,}; pass the targets of these rows")
        self.shape, self.feature_names, self.sparse = X.shape, X.feature_names, X.sparse
        self.block_bytes = 0 if X.sparse else 8 * X.shape[1] * max(np.diff(X.starts).tolist())

    def check(self) -> None:
        self._X.check()

    def _targets(self) -> Cells:
        if self._y is None:
            raise ValueError("y is None; pass the targets of these rows, such as folder.y")
        return self._y

    def labels(self) -> Cells:
        return find_different(self._targets())

    def smallest_target(self) -> float:
        return float(read_finite_numbers(self._targets(), "y").min())

    def rows(self, active: Mask | None) -> Rows:
        made = np.zeros(self.shape[0]) if self._y is None else targets_of(self._y, self.code)
        if self._masked is not None:
            made = np.where(self._masked, np.nan, made)
        targets, active = mask_unlabelled(made, active)
        matrix: BlockMatrix | ChangedMatrix = self._X
        kind: type[SparseBlockOnDisk | DenseBlockOnDisk] = SparseBlockOnDisk if self.sparse else DenseBlockOnDisk
        if self.changes:
            matrix = ChangedMatrix(self._X, self.changes)
            kind = ChangedSparseBlock if self.sparse else ChangedDenseBlock
        ends = self._X.starts[1:]
        places = [slice(first, end) for first, end in zip(self._X.starts, ends)]
        return DiskRows.of_blocks([kind(matrix, k, targets[at], active[at]) for k, at in enumerate(places)])

    def map(self, function: Callable[[Any], FloatArray]) -> FloatArray:
        made, function = [], self.changes.before(function)
        with np.errstate(all="ignore"):  # a warning about somebody's extreme row would be a release
            for k in range(self._X.n_blocks):
                block = self._X.block(k)
                made.append(function(block[1] if self.sparse else block))
        return np.concatenate(made)
