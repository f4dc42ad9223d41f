"""Rows on the workers of a Dask cluster: Dask arrays, Dask DataFrames, or bags of blocks of rows (extra `dask`).

Partitions are read and checked on workers, and put together to the blocks that the same rows have in memory: block
boundaries depend on row numbers, and not on partitions or workers. Consecutive blocks are one group, about one for each
thread of the cluster, which stays on a worker. A question is one task for each group; exact sums are added up on
workers in an order that does not depend on groups, and the process that runs fit gets the total, draws the noise once
and goes on.

Nothing random happens on a worker. Which rows are in a batch is drawn here, and sent as row numbers: a task that runs
twice, or again after its worker was lost, sums over the same rows and gives the same numbers. The bill is charged here
before a question is sent, so that lost workers cannot change it either.
"""

from __future__ import annotations

import operator
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import cloudpickle
import numpy as np
from dask.sizeof import sizeof
from distributed import Client, get_client

from tulle.backends.dask_groups import (
    GroupPlan,
    HeldRows,
    Layout,
    assemble,
    clip_blocks,
    find_smallest,
    make_blocks,
    map_features,
    map_targets,
    plan_groups,
)
from tulle.backends.dask_partitions import (
    UNREADABLE,
    Checked,
    PartitionFacts,
    Partitions,
    Rules,
    describe_partitions,
    find_partitions,
)
from tulle.backends.lost_workers import AFTER_THE_BILL, BEFORE_THE_BILL, fetch
from tulle.backends.rows_elsewhere import Code, Reader, Spread, count_bytes, join_cells, join_ids
from tulle.backends.sums_in_order import Sum, join_in_pairs, join_in_turn, number_terms, take_total
from tulle.files.class_labels import find_different
from tulle.files.error_messages import describe_error
from tulle.files.own_types import register
from tulle.trusted.events import FloatArray
from tulle.trusted.intake import Cells, Mask
from tulle.trusted.objectives import Part
from tulle.trusted.rows import Block, Pieces, RowNumbers, Rows

T = TypeVar("T")
Chosen = list[tuple[int, RowNumbers]]

# What workers count of their memory: for Python an object is as large as its dictionary.
sizeof.register((Block, Part, HeldRows), count_bytes)

# Sums are added up by so many groups at a time: few enough to fit into a worker's memory, many enough for few rounds.
_TOGETHER = 8
# A scheduler that does not answer for so long is taken for dead.
_REACHED_SECONDS = 15.0
# A longer question is put on the cluster once, and not once for each group.
_LONG = 1 << 16
# What one task reads of small partitions, unless that is more than this part of a worker's memory.
_RUN_BYTES, _PART_OF_MEMORY = 1 << 28, 16


@register("rows elsewhere")
class RowsOnDask(Spread):
    """Rows of a Dask collection, checked by the workers that hold them.

    Parameters
    ----------
    X : Dask array, Dask DataFrame or bag
        Of shape (n, d), dense or with CSR chunks; or a bag of blocks of rows (CSR or dense), or of pairs of a block
        and its targets.
    y : Dask array, Series or bag, array, or None
        Targets, in the partitions of X. None for bags of pairs, for rows with a reader that finds targets, and where
        rows are only looked at (`map`).
    groups : Dask array or Series, or None, default=None
        Person ids, in the partitions of X: `people` has them.
    missing : bool, default=False
        Whether entries may be NaN or infinite.
    reader : callable or None, default=None
        Makes `RawCells` of a partition of raw cells, each row by its own cells.

    Attributes
    ----------
    people : array of shape (n,) or None
        The person ids that were given, or that the reader found; in this process.
    """

    people: Cells | None = None

    def __init__(
        self, X: Any, y: Any, groups: Any = None, *, missing: bool = False, reader: Reader | None = None
    ) -> None:
        self._client = _client()
        self._groups: list[Any] = []
        self.check_reachable()  # a client whose scheduler is gone looks for it for a minute
        runs, facts = self._read(find_partitions(X, y, groups), Rules(missing, reader))
        used = [of for of in facts if of.n_rows]
        if not used:
            raise ValueError("Found array with 0 sample(s): no partition has a row")
        widths = {of.n_features for of in used}
        if len(widths) > 1:
            raise ValueError(f"the partitions have {sorted(widths)} columns; all must have the same")
        self._layout = Layout.of(used)
        self.sparse, self.shape = self._layout.sparse, self._layout.shape
        if groups is not None or reader is not None:
            found = [ids for run in self._ask(_people_of, [run for run, _ in runs]) for ids in run]
            self.people = None if any(ids is None for ids in found) else join_ids(found)
        plan = plan_groups(self._layout, self._threads, self.least_memory)
        self._sizes = [list(group.sizes) for group in plan]
        self._groups = self._assemble(runs, plan)
        columns = list(getattr(X, "columns", ())) if reader is None else []
        self.feature_names = tuple(columns) if columns and all(isinstance(name, str) for name in columns) else None

    def _ask(self, function: Callable[..., Any], futures: Sequence[Any], *more: Any) -> list[Any]:
        """What a function makes of the results of futures: before the bill."""
        made = [self._client.submit(function, future, *more, pure=False) for future in futures]
        try:
            return fetch(self._client, made, BEFORE_THE_BILL)
        finally:
            _release(made)

    def _read(self, partitions: Partitions, rules: Rules) -> tuple[list[tuple[Any, int]], list[PartitionFacts]]:
        """Futures of runs of checked partitions with their numbers of rows, and the facts about all partitions.

        Small partitions are read by the hundred: runs grow as sizes in memory become known.
        """
        limit = min(_RUN_BYTES, (self.least_memory or _RUN_BYTES * _PART_OF_MEMORY) // _PART_OF_MEMORY)
        runs: list[tuple[Any, int]] = []
        facts: list[PartitionFacts] = []
        length = 1
        while len(facts) < partitions.count:
            left = range(len(facts), partitions.count)
            now = left[: 2 * self._threads * length] if partitions.at_once else left
            numbers = [now[k : k + length] for k in range(0, len(now), length)]
            new = partitions.submit(self._client, numbers, rules)
            for run, described in zip(new, self._describe(new)):
                for of in described:
                    if of.problem:
                        raise ValueError(f"partition {len(facts)} of the rows: {of.problem}")
                    facts.append(of)
                runs.append((run, sum(of.n_rows for of in described)))
            length = max(1, min(2 * length, limit // max(of.n_bytes + 1 for of in facts)))
        return runs, facts

    def _describe(self, runs: Sequence[Any]) -> list[list[PartitionFacts]]:
        """Facts about the partitions of runs."""
        try:
            return self._ask(describe_partitions, runs)
        except ConnectionError:
            raise
        except Exception as error:
            words = UNREADABLE.format(describe_error(error))
        # Outside of the handler: what failed is the user's own task, and its message may quote a cell.
        raise ValueError(f"a partition of the rows: {words}")

    def _assemble(self, runs: Sequence[tuple[Any, int]], plan: Sequence[GroupPlan]) -> list[Any]:
        """Futures of groups of blocks. The runs are let go: a worker drops each as soon as its blocks are made."""
        ends = np.cumsum([0, *(n_rows for _, n_rows in runs)]).tolist()
        found = []
        for group in plan:
            used = [k for k in range(len(runs)) if ends[k] < group.stop and ends[k + 1] > group.start]
            chosen, skip = [runs[k][0] for k in used], group.start - ends[used[0]]
            found.append(self._client.submit(assemble, chosen, skip, group.sizes, self._layout, pure=False))
        _release([run for run, _ in runs])
        return found

    def check_reachable(self) -> None:
        lost = (
            f"the Dask scheduler at {self._client.scheduler.address} " if self._client.scheduler else "the scheduler "
        )
        try:
            told = self._client.sync(self._client.scheduler.identity, callback_timeout=_REACHED_SECONDS)
        except Exception as error:
            raise ConnectionError(
                f"{lost}does not answer ({type(error).__name__}); nothing was billed. Connect to a cluster that runs, "
                "and fit again"
            ) from None
        limits = [worker.get("memory_limit") for worker in told["workers"].values()]
        self.least_memory = min((limit for limit in limits if limit), default=None)
        self._threads = max(1, sum(worker.get("nthreads", 1) for worker in told["workers"].values()))
        if self._groups and not told["workers"]:  # before that a cluster may start them on demand
            raise ConnectionError(f"{lost}has no workers; nothing was billed. Start some, and fit again")
        if any(group.cancelled() for group in self._groups):
            raise ConnectionError(f"{lost}was started again and lost the rows; nothing was billed. Fit again")

    def _of_targets(self, function: Callable[[Cells], Any]) -> list[Any]:
        return [found for group in self._ask(map_targets, self._groups, function) for found in group]

    def labels(self) -> Cells:
        return join_cells(self._of_targets(find_different))

    def smallest_target(self) -> float:
        smallest, problems = zip(*self._of_targets(find_smallest))
        for problem in problems:
            if problem:
                raise ValueError(f"in the targets: {problem}")
        return min(smallest)

    def rows(self, active: Mask | None) -> Rows:
        ends = np.cumsum([sum(sizes) for sizes in self._sizes])
        counted = [None] * len(ends) if active is None else np.split(active, ends[:-1])
        changes = _send(self._client, self.changes) if self.changes else None
        groups = [
            self._client.submit(_make_blocks, group, self.code, which, changes, pure=False)
            for group, which in zip(self._groups, counted)
        ]
        return DaskRows(self._client, groups, self._sizes, self._layout.in_turn)

    def map(self, function: Callable[[Any], FloatArray]) -> FloatArray:
        question = _send(self._client, self.changes.before(function))
        return np.concatenate(self._ask(_map_features, self._groups, question))


class DaskRows(Rows):
    """All rows, as groups of blocks on workers.

    Parameters
    ----------
    client : distributed.Client
    groups : list of futures of lists of Block
    sizes : list of list of int
        How many rows each block of each group has.
    in_turn : bool
        Whether sums over blocks are added up one after another, else in pairs.
    """

    seen_by = (
        "The workers of a Dask cluster held the rows and the exact sums over them. The exact totals passed through its "
        "scheduler to the process that ran fit, which alone drew the noise; only the answers on the bill left the "
        "code that saw them.",
        "Anyone who can read the cluster's traffic, memory or spilled files sees rows and exact sums: the cluster is "
        "trusted, and its operator must protect it (TLS, access).",
    )

    def __init__(self, client: Client, groups: Sequence[Any], sizes: Sequence[Sequence[int]], in_turn: bool) -> None:
        self._client, self._groups, self._sequential = client, list(groups), in_turn
        self._sizes = [list(of) for of in sizes]
        # Of a batch: the blocks of each group that have rows in it, and which rows.
        self._chosen: list[Chosen | None] = [None] * len(self._groups)

    def only_block(self) -> Block | None:
        return None  # on no machine, or on another one

    def sizes(self) -> list[int]:
        return [size for sizes in self._sizes for size in sizes]

    def batch(self, numbers: RowNumbers) -> Rows:
        parts = self._numbers_in_blocks(numbers)
        if parts is None:
            return self
        assert all(chosen is None for chosen in self._chosen), "row numbers are those of blocks, not of a batch"
        each, start = [], 0
        for sizes in self._sizes:
            each.append([(k, part) for k, part in enumerate(parts[start : start + len(sizes)]) if len(part)])
            start += len(sizes)
        each[0] = each[0] if any(each) else [(0, parts[0])]
        used = [k for k, chosen in enumerate(each) if chosen]
        batch = copy(self)
        batch._groups, batch._chosen = [self._groups[k] for k in used], [each[k] for k in used]
        batch._sizes = [[len(part) for _, part in each[k]] for k in used]
        return batch

    def reduce(self, contribution: Callable[[Block], Any], combine: Callable[[Any, Any], Any] = operator.add) -> Any:
        order = _Order(combine, self._sequential)
        question, starts = _send(self._client, contribution), _starts([len(sizes) for sizes in self._sizes])
        alone = len(self._groups) == 1
        sums = [
            self._client.submit(_sum_blocks, group, question, chosen, start, order, alone, pure=False)
            for group, chosen, start in zip(self._groups, self._chosen, starts)
        ]
        return _total(self._client, sums, order)

    def derive(self, make: Callable[[Block], Sequence[T]]) -> Pieces[T]:
        question = _send(self._client, make)
        pieces = [
            self._client.submit(_make_pieces, group, question, chosen, pure=False)
            for group, chosen in zip(self._groups, self._chosen)
        ]
        return _PiecesOnDask(self._client, pieces)

    def _clip(self, how: str, *bounds: Any) -> None:
        self._groups = [self._client.submit(clip_blocks, group, how, bounds, pure=False) for group in self._groups]


class _PiecesOnDask(Pieces[T]):
    """Futures of lists of pieces. Their sums are added up in pairs, as in memory, whichever group they are in."""

    def __init__(self, client: Client, pieces: list[Any]) -> None:
        self._client, self._pieces = client, pieces
        counts = [client.submit(len, some, pure=False) for some in pieces] if len(pieces) > 1 else []
        self._starts = _starts(fetch(client, counts, AFTER_THE_BILL)) if counts else [0]

    def sum(self, function: Callable[[T], Any], start: Any) -> Any:
        order, question = _Order(operator.add, False), _send(self._client, function)
        alone = len(self._pieces) == 1
        sums = [
            self._client.submit(_sum_pieces, pieces, question, first, order, alone, pure=False)
            for pieces, first in zip(self._pieces, self._starts)
        ]
        return start + _total(self._client, sums, order)


def _client() -> Client:
    try:
        return get_client()
    except ValueError:
        raise ValueError(
            "the rows are a Dask collection, but no cluster is connected; connect one first, for example "
            "`from dask.distributed import Client; client = Client()`"
        ) from None


def _release(futures: Sequence[Any]) -> None:
    """Let workers drop results that are no longer needed: at once, and not when Python collects garbage."""
    for future in futures:
        future.release()


def _starts(counts: Sequence[int]) -> list[int]:
    """The number of the first of each group's terms."""
    return [0, *np.cumsum(counts[:-1]).tolist()]


def _send(client: Client, function: Callable[..., Any]) -> Any:
    """A question as bytes, or as a future of them. Weights are mostly zeros: packed they are short."""
    packed = zlib.compress(cloudpickle.dumps(function), 1)
    # A task, not scattered data: what was scattered is gone with its worker, and a task is run again.
    return packed if len(packed) < _LONG else client.submit(bytes, packed, pure=False)


def _total(client: Client, sums: list[Any], order: _Order) -> Any:
    """The total of futures of lists of sums, whichever workers have them; of one future of the total, that."""
    made = list(sums)
    while len(sums) > 1:
        last = len(sums) <= _TOGETHER
        groups = [sums[k : k + _TOGETHER] for k in range(0, len(sums), _TOGETHER)]
        # One after another: the first ones, and then the total so far with the next ones.
        now = groups[:1] if order.in_turn else groups
        joined = [client.submit(_join, group, order, last, pure=False) for group in now]
        made += joined
        sums = [*joined, *sums[_TOGETHER:]] if order.in_turn else joined
    try:
        return fetch(client, sums, AFTER_THE_BILL)[0]
    finally:
        _release(made)


# --- on workers ------------------------------------------------------------------------------------------------------


class _Order(NamedTuple):
    """How terms are added up: by which function, and one after another or in pairs."""

    combine: Callable[[Any, Any], Any]
    in_turn: bool

    def join(self, sums: Iterable[Sum]) -> list[Sum]:
        return (join_in_turn if self.in_turn else join_in_pairs)(sums, self.combine)


def _people_of(run: Sequence[Checked]) -> list[Cells | None]:
    return [part.people for part in run]


def _map_features(group: Sequence[HeldRows], question: bytes) -> FloatArray:
    return map_features(group, _unpack(question))


def _make_blocks(
    group: Sequence[HeldRows], code: Code | None, active: Mask | None, changes: bytes | None
) -> list[Block]:
    return make_blocks(group, code, active, None if changes is None else _unpack(changes))


def _choose(group: Sequence[Block], chosen: Chosen | None) -> Iterator[Block]:
    """The blocks of a group; of a batch those with rows in it, and these rows alone."""
    if chosen is None:
        return iter(group)
    return (group[k].take(numbers) for k, numbers in chosen)


def _sum_blocks(
    group: Sequence[Block], question: bytes, chosen: Chosen | None, start: int, order: _Order, alone: bool
) -> Any:
    """What a question adds up to in a group, as far as the order allows; the total where the group is `alone`."""
    contribution = _unpack(question)
    with np.errstate(all="ignore"):  # a warning about somebody's extreme row would be a release
        terms = (contribution(block) for block in _choose(group, chosen))
        sums = order.join(number_terms(terms, start))
        return take_total(sums, order.combine) if alone else sums


def _make_pieces(group: Sequence[Block], question: bytes, chosen: Chosen | None) -> list[Any]:
    make = _unpack(question)
    with np.errstate(all="ignore"):
        return [piece for block in _choose(group, chosen) for piece in make(block)]


def _sum_pieces(pieces: Sequence[Any], question: bytes, start: int, order: _Order, alone: bool) -> Any:
    function = _unpack(question)
    with np.errstate(all="ignore"):
        sums = order.join(number_terms((function(piece) for piece in pieces), start))
        return take_total(sums, order.combine) if alone else sums


def _join(parts: Sequence[Sequence[Sum]], order: _Order, last: bool) -> Any:
    """The sums of consecutive groups, joined; the total where these are all."""
    with np.errstate(all="ignore"):
        sums = order.join(one for part in parts for one in part)
        return take_total(sums, order.combine) if last else sums


@lru_cache(maxsize=4)
def _unpack(question: bytes) -> Callable[..., Any]:
    """The question behind bytes; all groups of a worker are asked the same one."""
    function: Callable[..., Any] = cloudpickle.loads(zlib.decompress(question))
    return function
