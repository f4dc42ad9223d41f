"""Rows on the workers of a Dask cluster: Dask arrays, Dask DataFrames, or bags of blocks of rows (extra `dask`).

Each partition becomes a block that stays on a worker. A question is sent to the blocks, their exact sums are added up
on workers in the order of partitions, and the process that runs fit gets the total, draws the noise once and goes on.

Nothing random happens on a worker. Which rows are in a batch is drawn here, and sent as row numbers: a task that runs
twice, or again after its worker was lost, sums over the same rows and gives the same numbers. The bill is charged here
before a question is sent, so that lost workers cannot change it either.
"""

from __future__ import annotations

import operator
import zlib
from collections.abc import Callable, Sequence
from copy import copy
from functools import lru_cache, reduce
from typing import Any, NamedTuple, TypeVar

import cloudpickle
import dask
import dask.array
import dask.bag
import numpy as np
import scipy.sparse as sp
from dask.delayed import Delayed
from dask.sizeof import sizeof
from distributed import Client, get_client

from tulle.backends.rows_elsewhere import Code, Spread, count_bytes, join_cells, targets_of
from tulle.files.array_checks import read_finite_numbers, read_rows
from tulle.files.class_labels import find_different
from tulle.files.error_messages import describe_error, get_own_message
from tulle.files.own_types import register
from tulle.trusted.events import FloatArray
from tulle.trusted.intake import Cells, Mask, mask_unlabelled, read_cells
from tulle.trusted.objectives import Part
from tulle.trusted.rows import Block, Pieces, RowNumbers, Rows, make_block, sum_in_pairs

T = TypeVar("T")

# What workers count of their memory: for Python an object is as large as its dictionary.
sizeof.register((Block, Part), count_bytes)

# Sums are added up by so many: few enough to fit into a worker's memory, many enough for few rounds.
_TOGETHER = 8
# A scheduler that does not answer for so long is taken for dead.
_REACHED_SECONDS = 15.0
# A longer question is put on the cluster once, and not once for each block.
_LONG = 1 << 16


@register("rows elsewhere")
class RowsOnDask(Spread):
    """Rows of a Dask collection, checked by the workers that hold them.

    Parameters
    ----------
    X : Dask array, Dask DataFrame or bag
        Of shape (n, d), dense or with CSR chunks; or a bag of blocks of rows (CSR or dense), or of pairs of a block
        and its targets.
    y : Dask array, Series or bag, array, or None
        Targets, in the partitions of X. None for bags of pairs, and where rows are only looked at (`map`).
    missing : bool, default=False
        Whether entries may be NaN or infinite.
    """

    def __init__(self, X: Any, y: Any, *, missing: bool = False) -> None:
        self._client = _client()
        self._raw: list[Any] = []
        self.check_reachable()  # a client whose scheduler is gone looks for it for a minute
        features, targets = _partitions(X, y)
        checked = dask.delayed(_check_partition, pure=False)
        raw = self._client.compute([checked(x, t, missing) for x, t in zip(features, targets)], optimize_graph=False)
        facts = self._client.gather([self._client.submit(_facts, part, pure=False) for part in raw])
        for k, of in enumerate(facts):
            if of.problem:
                raise ValueError(f"partition {k} of the rows: {of.problem}")
        used = [k for k, of in enumerate(facts) if of.n_rows]
        if not used:
            raise ValueError("Found array with 0 sample(s): no partition has a row")
        widths = {facts[k].n_features for k in used}
        if len(widths) > 1:
            raise ValueError(f"the partitions have {sorted(widths)} columns; all must have the same")
        self._raw = [raw[k] for k in used]
        self.sparse = any(facts[k].sparse for k in used)
        self._sizes = [facts[k].n_rows for k in used]
        self.shape = (sum(self._sizes), widths.pop())
        columns = list(getattr(X, "columns", ()))
        self.feature_names = tuple(columns) if columns and all(isinstance(name, str) for name in columns) else None

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
        if self._raw and not told["workers"]:  # before that a cluster may start them on demand
            raise ConnectionError(f"{lost}has no workers; nothing was billed. Start some, and fit again")
        if any(part.cancelled() for part in self._raw):
            raise ConnectionError(f"{lost}was started again and lost the rows; nothing was billed. Fit again")

    def _of_targets(self, function: Callable[[Cells], Any]) -> list[Any]:
        found = self._client.gather([self._client.submit(_of_targets, raw, function, pure=False) for raw in self._raw])
        return list(found)

    def labels(self) -> Cells:
        return join_cells(self._of_targets(find_different))

    def smallest_target(self) -> float:
        smallest, problems = zip(*self._of_targets(_smallest))
        for k, problem in enumerate(problems):
            if problem:
                raise ValueError(f"partition {k} of the targets: {problem}")
        return min(smallest)

    def rows(self, active: Mask | None) -> Rows:
        ends = np.cumsum(self._sizes)
        counted = [None] * len(ends) if active is None else np.split(active, ends[:-1])
        changes = _send(self._client, self.changes) if self.changes else None
        blocks = [
            self._client.submit(_block, raw, self.code, which, changes, pure=False)
            for raw, which in zip(self._raw, counted)
        ]
        return DaskRows(self._client, blocks, self._sizes)

    def map(self, function: Callable[[Any], FloatArray]) -> FloatArray:
        question = _send(self._client, self.changes.before(function))
        made = [self._client.submit(_of_features, raw, question, pure=False) for raw in self._raw]
        return np.concatenate(self._client.gather(made))


class DaskRows(Rows):
    """All rows, as blocks on workers.

    Parameters
    ----------
    client : distributed.Client
    blocks : list of futures of Block
    sizes : list of int
        How many rows each block has.
    """

    seen_by = (
        "The workers of a Dask cluster held the rows and the exact sums over them. The exact totals passed through its "
        "scheduler to the process that ran fit, which alone drew the noise; only the answers on the bill left the "
        "code that saw them.",
        "Anyone who can read the cluster's traffic, memory or spilled files sees rows and exact sums: the cluster is "
        "trusted, and its operator must protect it (TLS, access).",
    )

    def __init__(self, client: Client, blocks: Sequence[Any], sizes: Sequence[int]) -> None:
        self._client, self._blocks, self._sizes = client, list(blocks), list(sizes)
        self._numbers: list[RowNumbers | None] = [None] * len(self._blocks)

    def only_block(self) -> Block | None:
        return None  # on no machine, or on another one

    def sizes(self) -> list[int]:
        return self._sizes

    def batch(self, numbers: RowNumbers) -> Rows:
        parts = self._numbers_in_blocks(numbers)
        if parts is None:
            return self
        assert all(part is None for part in self._numbers), "row numbers are those of blocks, not of a batch"
        used = [k for k, part in enumerate(parts) if len(part)] or [0]
        chosen = copy(self)
        chosen._blocks, chosen._numbers = [self._blocks[k] for k in used], [parts[k] for k in used]
        chosen._sizes = [len(parts[k]) for k in used]
        return chosen

    def reduce(self, contribution: Callable[[Block], Any], combine: Callable[[Any, Any], Any] = operator.add) -> Any:
        return _total(self._client, self._make(contribution), combine)

    def derive(self, make: Callable[[Block], Sequence[T]]) -> Pieces[T]:
        return _PiecesOnDask(self._client, self._make(make))

    def _make(self, function: Callable[[Block], Any]) -> list[Any]:
        """Futures of what a function makes of each block."""
        question = _send(self._client, function)
        return [
            self._client.submit(_of_block, block, question, numbers, pure=False)
            for block, numbers in zip(self._blocks, self._numbers)
        ]

    def _clip(self, how: str, *bounds: Any) -> None:
        self._blocks = [self._client.submit(_clip_block, block, how, bounds, pure=False) for block in self._blocks]


class _PiecesOnDask(Pieces[T]):
    """Futures of lists of pieces."""

    def __init__(self, client: Client, pieces: list[Any]) -> None:
        self._client, self._pieces = client, pieces

    def sum(self, function: Callable[[T], Any], start: Any) -> Any:
        question = _send(self._client, function)
        sums = [self._client.submit(_sum_of_pieces, pieces, question, pure=False) for pieces in self._pieces]
        return start + _total(self._client, sums, operator.add)


def _client() -> Client:
    try:
        return get_client()
    except ValueError:
        raise ValueError(
            "the rows are a Dask collection, but no cluster is connected; connect one first, for example "
            "`from dask.distributed import Client; client = Client()`"
        ) from None


def _partitions(X: Any, y: Any) -> tuple[list[Any], list[Any]]:
    """The delayed partitions of features and of targets; None for each where there are no targets."""
    if isinstance(X, dask.array.Array):
        if X.ndim != 2:
            raise ValueError(f"X must have two dimensions, rows and features, got the shape {X.shape}")
        X = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
        known = not np.isnan(X.chunks[0]).any()
        if known and y is not None and not hasattr(y, "to_delayed"):
            y = read_cells(y, "y")
            y = dask.array.from_array(y, chunks=(len(y),))
        if known and isinstance(y, dask.array.Array) and not np.isnan(y.chunks[0]).any():
            if y.shape[0] != X.shape[0]:
                raise ValueError(f"X has {X.shape[0]:,} rows and y has {y.shape[0]:,}; pass the targets of these rows")
            y = y.rechunk({0: X.chunks[0]})
    if isinstance(X, Delayed):
        raise TypeError(
            f"X is a {type(X).__name__}, which has no partitions; convert it to a bag (dask.bag.from_delayed)"
        )
    if y is not None and not hasattr(y, "to_delayed"):
        raise ValueError(
            "X is a Dask collection but y is not; pass y in the same partitions, as a Dask array or Series"
        )
    features = _delayed(X)
    targets = [None] * len(features) if y is None else _delayed(y)
    if len(features) != len(targets):
        raise ValueError(
            f"X has {len(features)} partitions and y has {len(targets)}; divide both in the same way (rechunk, "
            "repartition)"
        )
    return features, targets


def _delayed(collection: Any) -> list[Any]:
    """The partitions. Arrays and bags are left as they are: optimising them would lose what their owner said of tasks,
    such as how often to try again. DataFrames are optimised, or they would read columns that nobody asked for."""
    as_it_is = isinstance(collection, (dask.array.Array, dask.bag.Bag))
    delayed = collection.to_delayed(optimize_graph=False) if as_it_is else collection.to_delayed()
    return list(np.ravel(delayed))


def _send(client: Client, function: Callable[..., Any]) -> Any:
    """A question as bytes, or as a future of them. Weights are mostly zeros: packed they are short."""
    packed = zlib.compress(cloudpickle.dumps(function), 1)
    # A task, not scattered data: what was scattered is gone with its worker, and a task is run again.
    return packed if len(packed) < _LONG else client.submit(bytes, packed, pure=False)


def _total(client: Client, parts: list[Any], combine: Callable[[Any, Any], Any]) -> Any:
    """The parts combined in their order, whichever workers have them."""
    while len(parts) > 1:
        groups = [parts[k : k + _TOGETHER] for k in range(0, len(parts), _TOGETHER)]
        parts = [client.submit(_combined, combine, group, pure=False) for group in groups]
    return parts[0].result()


# --- on workers ------------------------------------------------------------------------------------------------------


class _Checked(NamedTuple):
    """A partition: features, targets, and what is wrong with them ("" for nothing)."""

    features: Any
    targets: Cells | None
    problem: str


class _Facts(NamedTuple):
    n_rows: int
    n_features: int
    sparse: bool
    problem: str


def _check_partition(x: Any, y: Any, missing: bool) -> _Checked:
    """The rows of a partition as one array. What is wrong is said and not raised: no traceback with rows is logged."""
    try:
        if isinstance(x, (list, tuple)):  # of a bag
            x, y = _join(x, y)
        if hasattr(x, "columns") and hasattr(y, "index") and not x.index.equals(y.index):
            # Features and targets are read by themselves; a source that is not the same twice would mix up people.
            return _Checked(None, None, "X and y have different indices; take both from one source, in one order")
        features = read_rows(x, least_rows=0, missing=missing)
        targets = None if y is None else read_cells(y, "y")
        if targets is not None and len(targets) != features.shape[0]:
            return _Checked(None, None, f"X has {features.shape[0]} rows there and y has {len(targets)}")
    except (ValueError, TypeError) as error:
        return _Checked(None, None, get_own_message(error) or describe_error(error))
    return _Checked(features, targets, "")


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


def _facts(part: _Checked) -> _Facts:
    n_rows, n_features = (0, 0) if part.problem else part.features.shape
    return _Facts(n_rows, n_features, bool(sp.issparse(part.features)), part.problem)


def _smallest(targets: Cells) -> tuple[float, str]:
    """The smallest target, or what is wrong with one of them."""
    try:
        return float(read_finite_numbers(targets, "y").min()), ""
    except ValueError as error:
        return 0.0, get_own_message(error) or describe_error(error)


def _of_targets(part: _Checked, function: Callable[[Cells], Any]) -> Any:
    if part.targets is None:
        raise ValueError("y is None; pass the targets in the partitions of X, or a bag of pairs")
    return function(part.targets)


def _of_features(part: _Checked, question: bytes) -> FloatArray:
    with np.errstate(all="ignore"):
        return np.asarray(_unpack(question)(part.features))


def _block(part: _Checked, code: Code | None, active: Mask | None, changes: bytes | None) -> Block:
    made = np.zeros(part.features.shape[0]) if part.targets is None else targets_of(part.targets, code)
    with np.errstate(all="ignore"):
        features = part.features if changes is None else _unpack(changes)(part.features)
        return make_block(features, *mask_unlabelled(made, active))


def _clip_block(block: Block, how: str, bounds: tuple[Any, ...]) -> Block:
    twin = copy(block)  # a task must not change what it was given: it may be run again
    with np.errstate(all="ignore"):
        getattr(twin, how)(*bounds)
    return twin


def _of_block(block: Block, question: bytes, numbers: RowNumbers | None) -> Any:
    with np.errstate(all="ignore"):  # a warning about somebody's extreme row would be a release
        return _unpack(question)(block if numbers is None else block.take(numbers))


def _sum_of_pieces(pieces: Sequence[Any], question: bytes) -> Any:
    function = _unpack(question)
    with np.errstate(all="ignore"):
        return sum_in_pairs(function(piece) for piece in pieces)


def _combined(combine: Callable[[Any, Any], Any], parts: list[Any]) -> Any:
    with np.errstate(all="ignore"):
        return reduce(combine, parts)


@lru_cache(maxsize=4)
def _unpack(question: bytes) -> Callable[..., Any]:
    """The question behind bytes; all blocks of a worker are asked the same one."""
    function: Callable[..., Any] = cloudpickle.loads(zlib.decompress(question))
    return function
