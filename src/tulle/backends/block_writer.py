"""Writing folders of blocks (`tulle.backends.block_folder`) from batches of rows."""

from __future__ import annotations

import hashlib
import json
import os
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from tulle import __version__
from tulle.backends.block_files import BlockRows, Column, join_columns, report_write_errors, write_array, write_block
from tulle.backends.block_folder import (
    COLUMN_PARTS,
    FORMATS,
    KINDS,
    LARGEST_POSITION,
    BlockFolder,
    StoredFile,
    manifest_hash,
    open_blocks,
)
from tulle.backends.partial_folder import FinishedBlock, PartialFolder, Place
from tulle.files.own_types import register
from tulle.monitoring.log_events import log_event
from tulle.trusted.intake import read_cells

# About what one block takes on disk, and twice that in memory while it is written.
_BLOCK_BYTES = 1 << 26

# Of sparse rows the size is unknown, and must not be read off them: where blocks begin is public. With 80 entries a
# row, each stored twice in 12 bytes, this makes `_BLOCK_BYTES`.
_SPARSE_ROWS = 1 << 15

# More than this in so many rows, and the writer asks for a smaller block instead of filling the memory.
_MOST_ENTRIES = 1 << 26


@register("block folder")
class BlockWriter:
    """Writes a folder of blocks, with the memory of a few of them however many rows there are.

    Rows go into a hidden folder next to it, ``.NAME.partial``, and it gets its name when all is written:
    ``with BlockWriter(path) as writer:`` leaves the whole folder, or nothing where something was raised. A process
    that is killed leaves the hidden one, with rows in it; the next writer of the same name deletes it.

    Parameters
    ----------
    path : path
        The folder to make.
    rows_per_block : int or None, default=None
        At least 1; public. None: so many that a dense block takes about 64 MB, and 32,768 of sparse rows, which is the
        same with about 80 entries a row.
    n_features : int or None, default=None
        At least 1. None: the number of columns of dense rows; for sparse ones the largest width appended.
    feature_names : sequence of str or None, default=None
    content : str or None, default=None
        The fingerprint of the file that the rows come from; None: a hash of the bytes that are written.
    replace : bool, default=False
        Whether to replace a folder of blocks that is there already. Anything else is never replaced.
    missing : bool, default=False
        Whether dense rows may have entries that are NaN or infinite. The folder says so, and only steps that take such
        entries (`tulle.preprocessing.PrivateScaler`, `PrivateImputer`) can be fitted to it.
    jobs : int, default=1
        At least 1: threads that hash and write blocks. Each holds one block in memory.
    restart : bool, default=False
        Whether to delete an unfinished conversion of another input to the same folder.
    identity : dict or None, default=None
        What the bytes of the folder depend on, as JSON has it. A writer with the same one continues where an earlier
        one was stopped: `finished` says where. None: nothing is continued.

    Attributes
    ----------
    finished : tuple of FinishedBlock
        The blocks of the earlier writer. Their rows must not be appended again.

    Raises
    ------
    TableError
        Where the folder cannot be made, or another process is writing it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        rows_per_block: int | None = None,
        n_features: int | None = None,
        feature_names: Sequence[str] | None = None,
        content: str | None = None,
        replace: bool = False,
        missing: bool = False,
        jobs: int = 1,
        restart: bool = False,
        identity: dict[str, Any] | None = None,
    ) -> None:
        for given, what in ((rows_per_block, "rows_per_block"), (n_features, "n_features"), (jobs, "jobs")):
            if given is not None and not 1 <= given <= LARGEST_POSITION:
                raise ValueError(f"{what} must be from 1 to {LARGEST_POSITION:,}, not {given}")
        self.path = os.fsdecode(path)
        self.content = content
        self.width_from_rows = False
        # How a schema encoded the rows (`tulle.backends.encoded_rows`); targets without a value are NaN then.
        self.schema: dict[str, Any] | None = None
        # Called before a block is noted as finished: raises where its rows are not those of the identity.
        self.check_input: Callable[[], None] = lambda: None
        self.feature_names = None if feature_names is None else tuple(feature_names)
        self._rows_per_block = rows_per_block
        self._asked_rows = rows_per_block is not None
        self._n_features = n_features
        self._missing = missing
        self._files: dict[str, StoredFile] = {}
        self._starts = [0]
        self._width = n_features or 0
        self._pending: list[tuple[Any, Column, Column]] = []
        self._pending_rows = self._pending_entries = 0
        self._end: Place | None = None  # of the rows appended so far
        self._sparse: bool | None = None
        self._dtype: np.dtype[Any] = np.dtype(np.float64)
        self._kinds: tuple[str, str] | None = None
        self._partial = PartialFolder(Path(self.path), replace, identity, restart=restart, jobs=jobs)
        self.finished = tuple(self._partial.finished)
        self._jobs = jobs
        self._pool = ThreadPoolExecutor(jobs, thread_name_prefix="tulle-write") if jobs > 1 else None
        self._writing: deque[tuple[int, Place | None, Future[dict[str, StoredFile]]]] = deque()
        self._go_on()

    def _go_on(self) -> None:
        """Take over what an earlier writer has finished."""
        for block in self.finished:
            self._starts.append(self._starts[-1] + block.n_rows)
            self._files |= block.files
        if not self.finished:
            return
        first = self.finished[0]
        if self._rows_per_block is None:
            self._rows_per_block = first.n_rows
        parts = {name.split(".")[1]: stored for name, stored in first.files.items()}
        self._sparse = "dense" not in parts
        self._kinds = tuple(  # type: ignore[assignment]
            _family(np.dtype(parts[name].dtype)) if name in parts else "" for name in ("target", "groups")
        )
        if self._sparse:
            starts = [of.shape[0] - 1 for name, of in self._files.items() if f".{COLUMN_PARTS[2]}." in name]
            self._width = max(self._width, *starts)
        else:
            self._dtype = np.dtype(parts["dense"].dtype).newbyteorder("=")
            self._n_features = self._width = parts["dense"].shape[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self.discard()

    def append(self, X: Any, y: npt.ArrayLike | None = None, groups: npt.ArrayLike | None = None) -> None:
        """Add any number of rows; they are cut into blocks here.

        Parameters
        ----------
        X : array or sparse array of shape (m, d)
            All rows dense, or all sparse. Sparse rows may be narrower than others.
        y, groups : array of shape (m,) or None
            Numbers or words; for all rows or for none.
        """
        self._cut(X, y, groups, None, copy=True)  # the caller may use the same arrays for the next rows

    def take(self, X: Any, y: Column, groups: Column, place: Place) -> None:
        """As `append`, of arrays that the caller does not change any more and that begin at a place of the input."""
        self._cut(X, y, groups, place, copy=False)

    def _cut(self, X: Any, y: Any, groups: Any, place: Place | None, *, copy: bool) -> None:
        X = self._accepted(X)
        first = self._starts[-1] + self._pending_rows
        target, people = (
            None if given is None else _one_per_row(given, X.shape[0], first, what, finite=self.schema is None)
            for given, what in ((y, "y"), (groups, "groups"))
        )
        kinds = tuple("" if part is None else _family(part.dtype) for part in (target, people))
        if self._kinds not in (None, kinds):
            raise ValueError("y and groups must be numbers in all rows, or text in all rows, or absent from all")
        self._kinds = (kinds[0], kinds[1])
        assert self._rows_per_block is not None
        self._end = None if place is None else replace(place, taken=place.taken + X.shape[0])
        row = 0
        while row < X.shape[0]:
            part = slice(row, min(X.shape[0], row + self._rows_per_block - self._pending_rows))
            parts = [None if of is None else of[part].copy() if copy else of[part] for of in (X, target, people)]
            self._pending.append((parts[0], parts[1], parts[2]))
            self._pending_rows += part.stop - part.start
            self._pending_entries += self._pending[-1][0].nnz if self._sparse else 0
            self._check_size()
            if self._pending_rows == self._rows_per_block:
                self._write_block(None if place is None else replace(place, taken=place.taken + part.stop))
            row = part.stop

    def _check_size(self) -> None:
        most = LARGEST_POSITION if self._asked_rows else _MOST_ENTRIES
        if self._pending_entries > most:
            fitting = max(1, self._pending_rows * (_BLOCK_BYTES // 24) // self._pending_entries)
            raise ValueError(
                f"{self._pending_rows:,} rows have {self._pending_entries:,} entries, too many for one block; pass a "
                f"smaller number of rows per block, such as {fitting:,} (--rows-per-block {fitting})"
            )

    def _accepted(self, X: Any) -> Any:
        """Rows as they are stored, all of whose entries are finite."""
        sparse = bool(sp.issparse(X))
        if self._sparse not in (None, sparse):
            raise ValueError("all rows must be sparse, or all dense")
        X = X if sparse else np.asarray(X)
        if X.ndim != 2 or X.dtype.kind not in "biuf":
            raise ValueError(f"X must be numbers in two dimensions, not {X.dtype} in {X.ndim}")
        width = int(X.shape[1])
        if self._sparse is None and not sparse:
            self._n_features = self._n_features or width
            self._dtype = np.dtype(np.float32 if X.dtype == np.float32 else np.float64)
        if self._n_features is not None and (width > self._n_features or (not sparse and width != self._n_features)):
            raise ValueError(f"rows have {width:,} features, expected {self._n_features:,}")
        if width > LARGEST_POSITION:
            raise ValueError(f"{width:,} features are too many; at most {LARGEST_POSITION:,} can be stored")
        if sparse and self._missing:
            raise ValueError("rows with missing entries must be dense; leave missing entries of sparse rows out")
        if sparse:
            X = sp.csr_array(X)
            X.check_format(full_check=True)
            X = sp.csr_array((X.data.astype(np.float64, copy=False), X.indices, X.indptr), shape=X.shape)
            if not X.has_canonical_format:
                X = X.copy()  # it may be the caller's
                X.sum_duplicates()
            finite = np.isfinite(X.data)
            bad = None if finite.all() else int(np.searchsorted(X.indptr, np.flatnonzero(~finite)[0], "right")) - 1
        else:
            if not np.can_cast(X.dtype, self._dtype, "same_kind" if self._dtype == np.float64 else "safe"):
                raise ValueError(f"the first rows were {self._dtype} but these are {X.dtype}; append a single type")
            X = X.astype(self._dtype, copy=False)
            good = self._missing or np.isfinite(X).all()
            bad = None if good else int(np.isfinite(X).all(axis=1).argmin())
        if bad is not None:
            raise ValueError(f"row {self._starts[-1] + self._pending_rows + bad} has an entry that is not finite")
        self._sparse, self._width = sparse, max(self._width, width)
        if self._rows_per_block is None:
            dense_rows = max(1, _BLOCK_BYTES // (self._dtype.itemsize * max(1, width)))
            self._rows_per_block = _SPARSE_ROWS if sparse else dense_rows
        return X

    def _write_block(self, place: Place | None) -> None:
        k, n = len(self._starts) - 1, self._pending_rows
        block = BlockRows(self._pending, n, self._width, bool(self._sparse), self._dtype)
        self._pending = []
        self._starts.append(self._starts[-1] + n)
        self._pending_rows = self._pending_entries = 0
        work: Future[dict[str, StoredFile]]
        if self._pool is None:
            work = Future()
            with report_write_errors(self.path):
                work.set_result(write_block(self._partial.blocks, k, block))
        else:
            work = self._pool.submit(write_block, self._partial.blocks, k, block)
        self._writing.append((n, place, work))
        while len(self._writing) > (self._jobs if self._pool is not None else 0):
            self._note_written()

    def _note_written(self) -> None:
        """Wait for the oldest block, and note it: the journal has blocks in their order, whichever is written first."""
        n, place, work = self._writing.popleft()
        with report_write_errors(self.path):
            files = work.result()
            self._files |= files
            self.check_input()
            self._partial.add(FinishedBlock(n, files, place))

    def close(self) -> None:
        """Write the remaining rows and the manifest, and give the folder its name."""
        try:
            self.finish()
        except BaseException:
            self.discard()
            raise

    def finish(self) -> None:
        """As `close`, but leave what was written where it fails."""
        if self._pending:
            self._write_block(self._end)
        while self._writing:
            self._note_written()
        self._stop()
        n, d = self._starts[-1], self._n_features or self._width
        if not n or not d:
            raise ValueError(f"nothing to write: {n} rows of {d} features")
        if self.feature_names is not None and len(self.feature_names) != d:
            raise ValueError(f"{len(self.feature_names):,} feature names for {d:,} features")
        with report_write_errors(self.path):
            if self._sparse:
                self._widen(d)
            manifest = self._describe(n, d)
            text = json.dumps({**manifest, "sha256": manifest_hash(manifest)}, indent=1)
            self._partial.take_name(text.encode())
        # Neither a width that was found in the rows nor the size of the files, which counts entries that are not zero.
        width = {} if self.width_from_rows else {"n_features": int(d)}
        log_event(__name__, "convert.end", n_rows=int(n), n_blocks=len(self._starts) - 1, **width)

    def _describe(self, n: int, d: int) -> dict[str, Any]:
        """The manifest, without its checksum."""
        hashes = "\n".join(f"{name} {stored.sha256}" for name, stored in sorted(self._files.items()))
        manifest: dict[str, Any] = {
            "format": FORMATS[self._missing or self.schema is not None],
            "tulle": __version__,
            "shape": [n, d],
            "sparse": self._sparse,
            "dtype": self._dtype.name,
            "starts": self._starts,
            "target": bool(self._kinds and self._kinds[0]),
            "groups": bool(self._kinds and self._kinds[1]),
            "feature_names": None if self.feature_names is None else list(self.feature_names),
            "width_from_rows": self.width_from_rows,
            "content": self.content or f"sha256:{hashlib.sha256(hashes.encode()).hexdigest()}",
            "files": {
                name: {"size": of.size, "sha256": of.sha256, "dtype": of.dtype, "shape": list(of.shape)}
                for name, of in sorted(self._files.items())
            },
        }
        manifest |= {"missing": True} if self._missing else {}
        return manifest | ({} if self.schema is None else {"schema": self.schema})

    def _widen(self, d: int) -> None:
        """Blocks that were written before the last column was known lack the ends of columns that they do not have."""
        for k in range(len(self._starts) - 1):
            name = f"{k:06d}.{COLUMN_PARTS[2]}.npy"
            if self._files[name].shape != (d + 1,):
                path = self._partial.blocks / name
                starts = np.load(path, allow_pickle=False)
                self._files[name] = write_array(path, [np.pad(starts, (0, d + 1 - len(starts)), mode="edge")])

    def _stop(self) -> None:
        """End the threads; what they have begun to write is written."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        self._pool = None
        self._writing.clear()

    def discard(self) -> None:
        """Delete what was written so far. A folder that was to be replaced stays, wherever the writer was stopped."""
        self._stop()
        self._partial.discard()

    def leave(self) -> str:
        """Stop, and leave finished blocks for a writer of the same identity; the hidden folder that they are in, or ""
        where there are none."""
        self._stop()
        if not self._files:
            self._partial.discard()
            return ""
        return str(self._partial) if self._partial.release() else ""


def write_blocks(
    path: str | os.PathLike[str],
    batches: Iterable[Any],
    *,
    rows_per_block: int | None = None,
    n_features: int | None = None,
    feature_names: Sequence[str] | None = None,
    content: str | None = None,
    replace: bool = False,
    missing: bool = False,
    jobs: int = 1,
) -> BlockFolder:
    """Write batches of rows as a folder of blocks, and open it.

    Parameters
    ----------
    path : path
        The folder to make.
    batches : iterable of X, (X, y) or (X, y, groups)
        As in `BlockWriter.append`. One batch at a time is held in memory.
    rows_per_block, n_features, feature_names, content, replace, missing, jobs
        As in `BlockWriter`.

    Returns
    -------
    BlockFolder
    """
    with BlockWriter(
        path,
        rows_per_block=rows_per_block,
        n_features=n_features,
        feature_names=feature_names,
        content=content,
        replace=replace,
        missing=missing,
        jobs=jobs,
    ) as writer:
        for batch in batches:
            writer.append(*(batch if isinstance(batch, tuple) else (batch,)))
    return open_blocks(path)


def _one_per_row(given: npt.ArrayLike, n: int, first: int, what: str, *, finite: bool) -> npt.NDArray[Any]:
    array = _of_one_kind(read_cells(given, what))
    if array.dtype.kind not in KINDS:
        raise ValueError(f"{what} has type {array.dtype}; pass numbers or text (astype(str))")
    if array.shape != (n,):
        raise ValueError(f"{what} has shape {array.shape}, where X has {n} rows")
    if finite and array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError(f"{what} of row {first + int(np.isfinite(array).argmin())} is not finite")
    return array


def _of_one_kind(given: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Objects that are all words, or all whole numbers, or all numbers, as an array of them; others as they are."""
    types = set(map(type, given)) if given.dtype == object else set()
    if types and (types <= {str, np.str_} or types <= {bool, np.bool_}):
        return np.array(given.tolist())
    if types and types <= {int, float, bool, np.bool_, np.int64, np.int32, np.float64, np.float32}:
        return join_columns([np.array([number]) for number in given.tolist()])
    return given


def _family(dtype: np.dtype[Any]) -> str:
    return "words" if dtype.kind == "U" else "numbers"
