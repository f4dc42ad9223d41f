"""Partitions of Dask collections: the cells of X, y and groups that belong together, read together and checked.

X, y and groups of one Dask DataFrame are taken as one expression. Dask would otherwise optimise each by itself: of a
Parquet folder it reads fewer columns for y than for X, and puts other numbers of files into a partition. Taken as one
they are also one read: a row's features, target and person come from the same bytes.

Faults of a partition are returned and not raised: no traceback with rows is logged, and no library's message, which may
quote a cell, leaves the worker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import cloudpickle
import dask
import dask.array
import dask.bag
import numpy as np
import scipy.sparse as sp
from dask.delayed import Delayed
from distributed import Client, futures_of

from tulle.backends.rows_elsewhere import Reader, join_cells
from tulle.files.array_checks import read_rows
from tulle.files.error_messages import describe_error, get_own_message
from tulle.trusted.intake import Cells, Mask, read_cells

UNREADABLE = (
    "it cannot be read ({}); every worker must be able to open the source, and all files must have the same columns, "
    "each of one type"
)


@dataclass(frozen=True)
class Rules:
    """How a partition is read: by which reader of raw cells, if any, and whether entries may be NaN or infinite."""

    missing: bool = False
    reader: Reader | None = None


class Checked(NamedTuple):
    """A partition: features, targets, which of these are masked, person ids, and its fault ("" if it has none)."""

    features: Any
    targets: Cells | None
    masked: Mask | None
    people: Cells | None
    problem: str


class PartitionFacts(NamedTuple):
    """What the process that runs fit learns of a partition before it is billed."""

    n_rows: int
    n_features: int
    sparse: bool
    by_columns: bool  # whether a dense array is stored column by column
    n_bytes: int
    problem: str


class Partitions:
    """The partitions of a collection, in their order.

    Attributes
    ----------
    count : int
    at_once : bool
        Whether several can be read by one task.
    """

    count: int
    at_once: bool

    def submit(self, client: Client, runs: Sequence[range], rules: Rules) -> list[Any]:
        """Futures of tuples of checked partitions, one for each run of partition numbers."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class GraphPartitions(Partitions):
    """Partitions of which each is computed by tasks of its own: a run of them is one task of the cluster.

    Parameters
    ----------
    graph : mapping from key to task
    keys : sequence of keys
        Of each partition's tuple of cells.
    parts : sequence of set of keys
        The tasks of each partition; no two share one.
    """

    graph: Mapping[Any, Any]
    keys: Sequence[Any]
    parts: Sequence[set[Any]]
    at_once = True

    @property
    def count(self) -> int:  # type: ignore[override]
        return len(self.keys)

    def submit(self, client: Client, runs: Sequence[range], rules: Rules) -> list[Any]:
        found = []
        for run in runs:
            tasks = [{key: self.graph[key] for key in self.parts[k]} for k in run]
            # As bytes: Dask would take the tasks in it for tasks of its own.
            packed = cloudpickle.dumps([(self.keys[k], part) for k, part in zip(run, tasks)])
            found.append(client.submit(check_graphs, packed, rules, pure=False))
        return found


@dataclass(frozen=True, eq=False)
class DelayedPartitions(Partitions):
    """Partitions whose tasks are the cluster's: persisted ones, such as depend on each other, bags and arrays.

    Parameters
    ----------
    cells : sequence of tuple
        Of delayed features, targets and person ids of each; or, `taken`, of one delayed tuple of them.
    """

    cells: Sequence[tuple[Any, ...]]
    taken: bool = False
    at_once = False

    @property
    def count(self) -> int:  # type: ignore[override]
        return len(self.cells)

    def submit(self, client: Client, runs: Sequence[range], rules: Rules) -> list[Any]:
        check = dask.delayed(check_taken if self.taken else check_one, pure=False)
        chosen = [self.cells[k] for run in runs for k in run]
        return list(client.compute([check(rules, *cells) for cells in chosen], optimize_graph=False))


def find_partitions(X: Any, y: Any, groups: Any) -> Partitions:
    """The partitions of features, targets and person ids, which belong together by their places.

    Parameters
    ----------
    X : Dask array, DataFrame or bag
    y, groups : Dask array, Series or bag, array, or None

    Raises
    ------
    ValueError
        Where they are not divided in the same way.
    """
    if isinstance(X, Delayed):
        raise TypeError(
            f"X is a {type(X).__name__}, which has no partitions; convert it to a bag (dask.bag.from_delayed)"
        )
    given = [cells for cells in (y, groups) if cells is not None]
    if _is_frame(X) and all(map(_is_frame, given)) and _have_one_source(X, *given):
        return _take_together(X, y, groups)
    if isinstance(X, dask.array.Array):
        if X.ndim != 2:
            raise ValueError(f"X must have two dimensions, rows and features, got the shape {X.shape}")
        X = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
        y, groups = _divide_like(X, y, "y"), _divide_like(X, groups, "groups")
    features = _delayed(X)
    targets, people = _match(features, y, "y"), _match(features, groups, "groups")
    return DelayedPartitions(list(zip(features, targets, people)))


def _is_frame(collection: Any) -> bool:
    return hasattr(collection, "map_partitions") and hasattr(collection, "divisions")


def _have_one_source(*frames: Any) -> bool:
    """Whether frames and series are made, row by row, of one frame."""
    from dask.dataframe.dask_expr._expr import are_co_aligned

    return bool(are_co_aligned(*(frame.expr for frame in frames))) and len({one.npartitions for one in frames}) == 1


def _take_together(X: Any, y: Any, groups: Any) -> Partitions:
    """The cells of one frame: one expression, which is optimised once."""
    given = [cells for cells in (y, groups) if cells is not None]
    take = _Take(y is not None, groups is not None)
    joint = X.map_partitions(take, *given, meta=X._meta, enforce_metadata=False, clear_divisions=True).optimize()
    graph, keys = dict(joint.__dask_graph__()), list(dask.core.flatten(joint.__dask_keys__()))
    parts = [] if futures_of(graph) else [_find_tasks(graph, key) for key in keys]
    # Persisted partitions are on workers already, and what partitions share must not be computed for each of them.
    if not parts or sum(map(len, parts)) > len(set().union(*parts)):
        return DelayedPartitions([(one,) for one in joint.to_delayed(optimize_graph=False)], True)
    return GraphPartitions(graph, keys, parts)


@dataclass(frozen=True)
class _Take:
    """The cells of a partition as a tuple."""

    targets: bool
    people: bool

    def __call__(self, features: Any, *cells: Any) -> tuple[Any, Any, Any]:
        given = iter(cells)
        return features, next(given) if self.targets else None, next(given) if self.people else None

    def __dask_tokenize__(self) -> Any:
        return "tulle", self.targets, self.people


def _find_tasks(graph: Mapping[Any, Any], key: Any) -> set[Any]:
    """The tasks that one needs, itself included."""
    found, waiting = set(), [key]
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting.extend(dask.core.get_dependencies(graph, one))
    return found


def _divide_like(X: Any, cells: Any, name: str) -> Any:
    """Targets or ids in the chunks of an array, where the sizes of both are known."""
    if cells is None or np.isnan(X.chunks[0]).any():
        return cells
    if not hasattr(cells, "to_delayed"):
        cells = read_cells(cells, name)
        cells = dask.array.from_array(cells, chunks=(len(cells),))
    if isinstance(cells, dask.array.Array) and not np.isnan(cells.chunks[0]).any():
        if cells.shape[0] != X.shape[0]:
            raise ValueError(
                f"X has {X.shape[0]:,} rows and {name} has {cells.shape[0]:,}; pass the {_WHAT[name]} of these rows"
            )
        return cells.rechunk({0: X.chunks[0]})
    return cells


_WHAT = {"y": "targets", "groups": "person ids"}


def _match(features: Sequence[Any], cells: Any, name: str) -> list[Any]:
    """The delayed partitions of targets or ids; None for each where there are none."""
    if cells is None:
        return [None] * len(features)
    if not hasattr(cells, "to_delayed"):
        raise ValueError(
            f"X is a Dask collection but {name} is not; pass {name} in the same partitions, as a Dask array or Series"
        )
    found = _delayed(cells)
    if len(found) != len(features):
        raise ValueError(
            f"X has {len(features)} partitions and {name} has {len(found)}; take both from one Dask DataFrame, or "
            "divide both in the same way (rechunk, repartition)"
        )
    return found


def _delayed(collection: Any) -> list[Any]:
    """The partitions. Arrays and bags are left as they are: optimising them would lose their owner's settings of tasks,
    such as the number of retries. DataFrames are optimised, or they would read columns that are not needed."""
    as_it_is = isinstance(collection, (dask.array.Array, dask.bag.Bag))
    delayed = collection.to_delayed(optimize_graph=False) if as_it_is else collection.to_delayed()
    return list(np.ravel(delayed))


# --- on workers ------------------------------------------------------------------------------------------------------


def check_graphs(packed: bytes, rules: Rules) -> tuple[Checked, ...]:
    """Compute partitions one after another, and check each."""
    found = []
    for key, tasks in cloudpickle.loads(packed):
        try:
            # Of one task alone, as of a file that is read: without a look for an order of tasks, which takes longer.
            alone = len(tasks) == 1 and callable(tasks[key])
            cells = tasks[key]() if alone else dask.get(tasks, key)
        except Exception as error:
            found.append(_refuse(UNREADABLE.format(describe_error(error))))
        else:
            found.append(_check(rules, *cells))
            del cells
    return tuple(found)


def check_one(rules: Rules, features: Any, targets: Any, people: Any) -> tuple[Checked, ...]:
    """Check one partition."""
    return (_check(rules, features, targets, people),)


def check_taken(rules: Rules, cells: tuple[Any, Any, Any]) -> tuple[Checked, ...]:
    """Check one partition whose cells were taken together."""
    return (_check(rules, *cells),)


def _refuse(problem: str) -> Checked:
    return Checked(None, None, None, None, problem)


def _check(rules: Rules, x: Any, y: Any, people: Any) -> Checked:
    """The rows of a partition as one array."""
    try:
        if isinstance(x, (list, tuple)):  # of a bag
            x, y = _join(x, y)
        for name, cells in (("y", y), ("groups", people)):
            if hasattr(x, "columns") and hasattr(cells, "index") and not x.index.equals(cells.index):
                # Of different sources; one that is not in the same order would mix up people.
                return _refuse(f"X and {name} have different indices; take both from one Dask DataFrame")
        if rules.reader is not None:
            read = rules.reader(x)
            x, y = read.features, read.targets if y is None else y
            people = read.people if people is None else people
        features = read_rows(x, least_rows=0, missing=rules.missing)
        masked = np.ma.getmaskarray(y) if isinstance(y, np.ma.MaskedArray) else None
        targets = None if y is None else read_cells(y if masked is None else np.ma.getdata(y), "y")
        ids = None if people is None else read_cells(people, "groups")
        for name, cells in (("y", targets), ("groups", ids)):
            if cells is not None and len(cells) != features.shape[0]:
                return _refuse(f"X has {features.shape[0]} rows there and {name} has {len(cells)}")
    except Exception as error:  # of any type: Dask would log it with the cells that the task was given
        return _refuse(get_own_message(error) or describe_error(error))
    return Checked(features, targets, masked, ids, "")


def _join(blocks: Sequence[Any], targets: Any) -> tuple[Any, Any]:
    """The blocks of a bag's partition under each other."""
    if blocks and isinstance(blocks[0], tuple):
        if targets is not None:
            raise ValueError("X contains pairs of rows and targets, but y is given too; pass y=None")
        blocks, targets = zip(*blocks)
    if isinstance(targets, (list, tuple)):
        targets = join_cells([read_cells(part if np.ndim(part) else [part], "y") for part in targets])
    if not blocks:
        return np.empty((0, 1)), targets
    return sp.vstack(blocks, format="csr") if sp.issparse(blocks[0]) else np.vstack(blocks), targets


def describe_partitions(run: Sequence[Checked]) -> list[PartitionFacts]:
    """Facts about the partitions of a run."""
    return [_describe(part) for part in run]


def _describe(part: Checked) -> PartitionFacts:
    x = part.features
    if part.problem:
        return PartitionFacts(0, 0, False, False, 0, part.problem)
    by_columns = not sp.issparse(x) and x.flags.f_contiguous and not x.flags.c_contiguous
    size = x.data.nbytes + x.indices.nbytes if sp.issparse(x) else 8 * x.shape[0] * x.shape[1]
    n_rows, n_features = x.shape
    return PartitionFacts(n_rows, n_features, bool(sp.issparse(x)), bool(by_columns), int(size), "")
