"""Blocks of rows on workers: the blocks that the same rows have in memory, and groups of them.

A block begins and ends at row numbers that depend on the number and the width of rows alone (of sparse rows also on how
many entries they have), so that sums over blocks are the same numbers however rows are partitioned. A group is some
consecutive blocks that one worker holds as one piece of data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from tulle.backends.dask_partitions import Checked, PartitionFacts
from tulle.backends.rows_elsewhere import Code, join_cells, targets_of
from tulle.files.array_checks import read_finite_numbers
from tulle.files.error_messages import describe_error, get_own_message
from tulle.trusted.events import FloatArray
from tulle.trusted.intake import Cells, Mask, mask_unlabelled
from tulle.trusted.rows import _DENSE_BLOCK_BYTES, Block, make_block

# Of sparse rows, which are one block of any size when they are in memory.
_SPARSE_BLOCK_BYTES = 1 << 25
# A sparse block is larger than so many sums over it, and a dense block of this many rows at least is summed in the
# order of memory: more blocks would have more sums than rows.
_LEAST_SUMS, _LEAST_ROWS = 4, 64
# A group takes at most this part of a worker's memory, or so many bytes where that is not known.
_PART_OF_MEMORY, _GROUP_BYTES = 8, 1 << 30


@dataclass(frozen=True)
class Layout:
    """How all rows are stored, and what follows for blocks."""

    shape: tuple[int, int]
    sparse: bool
    by_columns: bool
    n_bytes: int

    @classmethod
    def of(cls, facts: Sequence[PartitionFacts]) -> Layout:
        """Of partitions with rows, all of one width."""
        sparse = any(of.sparse for of in facts)
        shape = sum(of.n_rows for of in facts), facts[0].n_features
        return cls(shape, sparse, any(of.by_columns for of in facts), sum(of.n_bytes for of in facts))

    @property
    def step(self) -> int:
        """The number of rows of a block; the last may have fewer."""
        n_rows, n_features = self.shape
        if not self.sparse:  # as in `tulle.trusted.rows.Rows`
            return max(1, _DENSE_BLOCK_BYTES // (8 * max(1, n_features)))
        blocks = self.n_bytes // max(_SPARSE_BLOCK_BYTES, _LEAST_SUMS * 8 * n_features)
        return math.ceil(n_rows / max(1, blocks))

    @property
    def in_turn(self) -> bool:
        """Whether sums over blocks are added up one after another, as in memory; else in pairs, and pairs of pairs."""
        return not self.sparse and self.step >= _LEAST_ROWS


class GroupPlan(NamedTuple):
    """Consecutive blocks: from which row on, up to which, and how many rows each block has."""

    start: int
    stop: int
    sizes: tuple[int, ...]


def plan_groups(layout: Layout, n_threads: int, least_memory: int | None) -> list[GroupPlan]:
    """About one group for each thread of a cluster, and more where these would be too large for a worker."""
    n_rows, step = layout.shape[0], layout.step
    ends = [*range(step, n_rows, step), n_rows]
    most = _GROUP_BYTES if least_memory is None else max(1, least_memory // _PART_OF_MEMORY)
    count = min(len(ends), max(n_threads, math.ceil(layout.n_bytes / most)))
    found, start = [], 0
    for part in np.array_split(np.array(ends), count):
        sizes = np.diff([start, *part.tolist()])
        found.append(GroupPlan(start, int(part[-1]), tuple(sizes.tolist())))
        start = int(part[-1])
    return found


# --- on workers ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class HeldRows:
    """The rows of a block as they were read; `masked` are those whose targets count as nothing."""

    features: Any
    targets: Cells | None
    masked: Mask | None


def assemble(runs: Sequence[Sequence[Checked]], skip: int, sizes: Sequence[int], layout: Layout) -> list[HeldRows]:
    """The blocks of a group, of the partitions that hold their rows; the first `skip` rows belong to another group."""
    parts = [part for run in runs for part in run if part.features.shape[0]]
    ends = np.cumsum([0, *(part.features.shape[0] for part in parts)])
    found = []
    for size in sizes:
        places = [
            (part, slice(int(max(0, skip - start)), int(min(skip + size, end) - start)))
            for part, start, end in zip(parts, ends[:-1], ends[1:])
            if start < skip + size and end > skip
        ]
        skip += size
        features = _join_features([_cut(part.features, at) for part, at in places], layout)
        assert features.shape[0] == size, "blocks have the rows of their partitions"
        cells = [part.targets[at] for part, at in places if part.targets is not None]
        masked = None
        if any(part.masked is not None for part, _ in places):
            masked = np.concatenate(
                [np.zeros(at.stop - at.start, bool) if part.masked is None else part.masked[at] for part, at in places]
            )
        found.append(HeldRows(features, join_cells(cells) if cells else None, masked))
    return found


def _cut(features: Any, at: slice) -> Any:
    """Some rows; all of them as they are."""
    if at.start == 0 and at.stop == features.shape[0]:
        return features
    return features.tocsr()[at] if sp.issparse(features) else features[at]


def _join_features(parts: Sequence[Any], layout: Layout) -> Any:
    """Rows under each other, stored as all rows are: products of another layout round in another way."""
    if layout.sparse:
        return sp.vstack([sp.csr_array(part) for part in parts], format="csr") if len(parts) > 1 else _to_csr(parts[0])
    if len(parts) == 1 and parts[0].strides[0 if layout.by_columns else 1] == parts[0].itemsize:
        return parts[0]
    n_rows = sum(len(part) for part in parts)
    joined = np.empty((n_rows, layout.shape[1]), np.result_type(*parts), order="F" if layout.by_columns else "C")
    return np.concatenate(parts, out=joined)


def _to_csr(part: Any) -> Any:
    return part if sp.issparse(part) else sp.csr_array(part)


def map_targets(group: Sequence[HeldRows], function: Callable[[Cells], Any]) -> list[Any]:
    """What a function makes of the targets of each block, without masked ones."""
    found = []
    for held in group:
        if held.targets is None:
            raise ValueError("y is None; pass the targets in the partitions of X, or a bag of pairs")
        found.append(function(held.targets if held.masked is None else held.targets[~held.masked]))
    return found


def find_smallest(targets: Cells) -> tuple[float, str]:
    """The smallest target, or the fault of one of them."""
    try:
        return float(read_finite_numbers(targets, "y").min(initial=np.inf)), ""
    except ValueError as error:
        return 0.0, get_own_message(error) or describe_error(error)


def map_features(group: Sequence[HeldRows], function: Callable[[Any], FloatArray]) -> FloatArray:
    """What a function makes of features."""
    with np.errstate(all="ignore"):
        return np.concatenate([np.asarray(function(held.features)) for held in group])


def make_blocks(
    group: Sequence[HeldRows], code: Code | None, active: Mask | None, changes: Callable[[Any], Any] | None
) -> list[Block]:
    """Blocks, with targets as `code` makes them and with rows as `changes` do. `active` are the rows that count."""
    return list(_make_blocks(group, code, active, changes))


def _make_blocks(
    group: Sequence[HeldRows], code: Code | None, active: Mask | None, changes: Callable[[Any], Any] | None
) -> Iterator[Block]:
    start = 0
    for held in group:
        n_rows = held.features.shape[0]
        counted = None if active is None else active[start : start + n_rows]
        start += n_rows
        made = np.zeros(n_rows) if held.targets is None else targets_of(held.targets, code)
        if held.masked is not None:
            made = np.where(held.masked, np.nan, made)
        with np.errstate(all="ignore"):
            features = held.features if changes is None else changes(held.features)
            yield make_block(features, *mask_unlabelled(made, counted))


def clip_blocks(group: Sequence[Block], how: str, bounds: tuple[Any, ...]) -> list[Block]:
    """Twins of blocks whose rows obey bounds: a task must not change what it was given, as it may be run again."""
    twins = [copy(block) for block in group]
    with np.errstate(all="ignore"):
        for twin in twins:
            getattr(twin, how)(*bounds)
    return twins
