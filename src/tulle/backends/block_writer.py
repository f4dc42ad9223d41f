"""Writing folders of blocks (`tulle.backends.block_folder`): from batches of rows, or from a table file."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from tulle import __version__
from tulle.backends.block_folder import (
    COLUMN_PARTS,
    FORMAT,
    KINDS,
    LARGEST_POSITION,
    MANIFEST,
    ROW_PARTS,
    BlockFolder,
    StoredFile,
    is_block_folder,
    manifest_hash,
    open_blocks,
)
from tulle.files.durable_writes import sync_folder, write_durably
from tulle.files.own_types import register
from tulle.files.tables.input_files import TableError
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

    Rows go into a hidden folder beside, which takes its name when all is written: ``with BlockWriter(path) as writer:``
    leaves the whole folder, or nothing where something was raised. A process that is killed leaves the hidden one,
    with rows in it: delete it.

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
        The fingerprint of the file that the rows come from; None: a hash of what is written.
    replace : bool, default=False
        Whether to replace a folder of blocks that is there already. Anything else is never replaced.

    Raises
    ------
    TableError
        Where the folder cannot be made.
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
    ) -> None:
        for given, what in ((rows_per_block, "rows_per_block"), (n_features, "n_features")):
            if given is not None and not 1 <= given <= LARGEST_POSITION:
                raise ValueError(f"{what} must be from 1 to {LARGEST_POSITION:,}, not {given}")
        self.path = os.fsdecode(path)
        self.content = content
        self.width_from_rows = False
        self.feature_names = None if feature_names is None else tuple(feature_names)
        self._rows_per_block = rows_per_block
        self._asked_rows = rows_per_block is not None
        self._n_features = n_features
        self._replace = replace
        target = Path(self.path)
        _check_free(target, replace)
        left = sorted(target.parent.glob(f".{target.name}.*.partial"))
        if left:
            warnings.warn(
                f"{left[0]} contains rows of a conversion that is still running or was killed; delete it if it was "
                "killed",
                stacklevel=2,
            )
        # A name of its own for each process and moment, as in `write_durably`.
        self._partial = target.with_name(f".{target.name}.{os.getpid()}-{time.monotonic_ns()}.partial")
        with _report_write_errors(self.path):
            self._partial.mkdir(mode=0o700)
        self._files: dict[str, StoredFile] = {}
        self._starts = [0]
        self._width = n_features or 0
        self._pending: list[tuple[Any, npt.NDArray[Any] | None, npt.NDArray[Any] | None]] = []
        self._pending_rows = self._pending_entries = 0
        self._sparse: bool | None = None
        self._dtype: np.dtype[Any] = np.dtype(np.float64)
        self._kinds: tuple[str, str] | None = None

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
        """Add rows; they are cut into blocks here, so that any number of them will do.

        Parameters
        ----------
        X : array or sparse array of shape (m, d)
            All rows dense, or all sparse. Sparse rows may be narrower than others.
        y, groups : array of shape (m,) or None
            Numbers or words; for all rows or for none.
        """
        X = self._accepted(X)
        first = self._starts[-1] + self._pending_rows
        target, people = (
            None if given is None else _one_per_row(given, X.shape[0], first, what)
            for given, what in ((y, "y"), (groups, "groups"))
        )
        kinds = tuple("" if part is None else _family(part.dtype) for part in (target, people))
        if self._kinds not in (None, kinds):
            raise ValueError("y and groups must be numbers in all rows, or text in all rows, or absent from all")
        self._kinds = (kinds[0], kinds[1])
        assert self._rows_per_block is not None
        row = 0
        while row < X.shape[0]:
            part = slice(row, min(X.shape[0], row + self._rows_per_block - self._pending_rows))
            # Copies: anyone who hands rows over may use the same array for the next ones.
            self._pending.append(
                (X[part].copy(), *(None if of is None else of[part].copy() for of in (target, people)))
            )
            self._pending_rows += part.stop - part.start
            self._pending_entries += self._pending[-1][0].nnz if self._sparse else 0
            self._check_size()
            if self._pending_rows == self._rows_per_block:
                self._write_block()
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
            finite = np.isfinite(X).all(axis=1)
            bad = None if finite.all() else int(finite.argmin())
        if bad is not None:
            raise ValueError(f"row {self._starts[-1] + self._pending_rows + bad} has an entry that is not finite")
        self._sparse, self._width = sparse, max(self._width, width)
        if self._rows_per_block is None:
            dense_rows = max(1, _BLOCK_BYTES // (self._dtype.itemsize * max(1, width)))
            self._rows_per_block = _SPARSE_ROWS if sparse else dense_rows
        return X

    def _write_block(self) -> None:
        k, n = len(self._starts) - 1, self._pending_rows
        parts, targets, people = zip(*self._pending)
        self._pending = []
        if self._sparse:
            wide = [
                sp.csr_array((part.data, part.indices, part.indptr), shape=(part.shape[0], self._width))
                for part in parts
            ]
            rows = sp.csr_array(sp.vstack(wide, format="csr"))
            del parts, wide
            for names, matrix in ((ROW_PARTS, rows), (COLUMN_PARTS, rows.tocsc())):
                matrix.sort_indices()
                for name, array, dtype in zip(
                    names, (matrix.data, matrix.indices, matrix.indptr), ("<f8", "<i4", "<i4")
                ):
                    self._write(f"{k:06d}.{name}.npy", array.astype(dtype, copy=False))
        else:
            dense = parts[0] if len(parts) == 1 else np.concatenate(parts)
            self._write(f"{k:06d}.dense.npy", dense.astype(self._dtype.newbyteorder("<"), copy=False))
        for name, given in (("target", targets), ("groups", people)):
            if given[0] is not None:
                self._write(f"{k:06d}.{name}.npy", _together(given))
        self._starts.append(self._starts[-1] + n)
        self._pending_rows = self._pending_entries = 0

    def _write(self, name: str, array: npt.NDArray[Any]) -> None:
        with _report_write_errors(self.path):
            place = self._partial / name
            with open(os.open(place, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as file:
                told = _Hashed(file)
                np.lib.format.write_array(cast(Any, told), np.ascontiguousarray(array), allow_pickle=False)
                file.flush()
                os.fsync(file.fileno())
        self._files[name] = StoredFile(told.size, told.sha256.hexdigest(), array.dtype.str, array.shape)

    def close(self) -> None:
        """Write what is left and the manifest, and give the folder its name."""
        try:
            self._finish()
        except BaseException:
            self.discard()
            raise

    def _finish(self) -> None:
        if self._pending:
            self._write_block()
        n, d = self._starts[-1], self._n_features or self._width
        if not n or not d:
            raise ValueError(f"nothing to write: {n} rows of {d} features")
        if self.feature_names is not None and len(self.feature_names) != d:
            raise ValueError(f"{len(self.feature_names):,} feature names for {d:,} features")
        if self._sparse:
            self._widen(d)
        hashes = "\n".join(f"{name} {stored.sha256}" for name, stored in sorted(self._files.items()))
        manifest: dict[str, Any] = {
            "format": FORMAT,
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
                for name, of in self._files.items()
            },
        }
        with _report_write_errors(self.path):
            sync_folder(self._partial)
            text = json.dumps({**manifest, "sha256": manifest_hash(manifest)}, indent=1)
            write_durably(self._partial / MANIFEST, text.encode(), mode=0o600)
            self._take_name()
        # Neither a width that was found in the rows nor the size of the files, which counts entries that are not zero.
        width = {} if self.width_from_rows else {"n_features": int(d)}
        log_event(__name__, "convert.end", n_rows=int(n), n_blocks=len(self._starts) - 1, **width)

    def _widen(self, d: int) -> None:
        """Blocks that were written before the last column was known lack the ends of columns that they do not have."""
        for k in range(len(self._starts) - 1):
            name = f"{k:06d}.{COLUMN_PARTS[2]}.npy"
            if self._files[name].shape != (d + 1,):
                starts = np.load(self._partial / name, allow_pickle=False)
                self._write(name, np.pad(starts, (0, d + 1 - len(starts)), mode="edge"))

    def _take_name(self) -> None:
        target = Path(self.path)
        _check_free(target, self._replace)
        if target.exists():
            target.rename(self._old)
        self._partial.rename(target)
        sync_folder(target.parent)
        if self._old.exists():
            shutil.rmtree(self._old)

    @property
    def _old(self) -> Path:
        """Where a folder that is replaced is for a moment."""
        return self._partial.with_suffix(".old")

    def discard(self) -> None:
        """Delete what was written so far. A folder that was to be replaced stays, wherever the writer was stopped."""
        target = Path(self.path)
        if self._old.exists() and not target.exists():
            self._old.rename(target)
        shutil.rmtree(self._partial, ignore_errors=True)
        shutil.rmtree(self._old, ignore_errors=True)


def write_blocks(
    path: str | os.PathLike[str],
    batches: Iterable[Any],
    *,
    rows_per_block: int | None = None,
    n_features: int | None = None,
    feature_names: Sequence[str] | None = None,
    content: str | None = None,
    replace: bool = False,
) -> BlockFolder:
    """Write batches of rows as a folder of blocks, and open it.

    Parameters
    ----------
    path : path
        The folder to make.
    batches : iterable of X, (X, y) or (X, y, groups)
        As in `BlockWriter.append`. One batch at a time is held in memory.
    rows_per_block, n_features, feature_names, content, replace
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
    ) as writer:
        for batch in batches:
            writer.append(*(batch if isinstance(batch, tuple) else (batch,)))
    return open_blocks(path)


def convert_table(
    path: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    rows_per_block: int | None = None,
    replace: bool = False,
    format: str | None = None,
    progress: bool = False,
    **reading: Any,
) -> BlockFolder:
    """Put the rows of a file into a folder of blocks; ``tulle convert`` does this.

    CSV, svmlight and Parquet files are read a few megabytes at a time, however long they are. npz files are read whole.

    Parameters
    ----------
    path : path
        A file that `tulle.files.tables.read_table` reads. What that refuses is refused here, with the same words.
    folder : path
        The folder to make.
    rows_per_block, replace
        As in `BlockWriter`.
    format, progress, **reading
        As in `tulle.files.tables.read_table`: `target`, `groups`, `ignore`, `n_features` and so on.

    Returns
    -------
    BlockFolder
        With the arrays that `read_table` would give, and the file's own fingerprint as its `content`.
    """
    from tulle.files.tables import open_batches
    from tulle.files.tables.columns import Wanted

    given: dict[str, Any] = {name: tuple(of) if isinstance(of, list) else of for name, of in reading.items()}
    log_event(__name__, "convert.begin")
    # The file is left first: one that has changed while it was read makes no folder.
    with (
        BlockWriter(folder, rows_per_block=rows_per_block, replace=replace) as writer,
        open_batches(path, Wanted(**given), format=format, progress=progress) as (source, batches),
    ):
        for batch in batches:
            writer.append(batch.X, batch.y, batch.groups)
            writer.feature_names = batch.feature_names
        writer.content = source.fingerprint()
        writer.width_from_rows = source.width_from_rows
    return open_blocks(folder)


class _Hashed:
    """A file that counts and hashes what is written to it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.size = 0
        self.sha256 = hashlib.sha256()

    def write(self, content: Any) -> int:
        self.size += memoryview(content).nbytes
        self.sha256.update(content)
        return self._file.write(content)


def _check_free(target: Path, replace: bool) -> None:
    """Refuse a name that is taken, unless by a folder of blocks that may be replaced."""
    if not target.name or not target.parent.is_dir():
        raise TableError(f"{target}: its parent folder does not exist; create it first, or choose another path")
    if target.is_symlink() or (target.exists() and not is_block_folder(target)):
        raise TableError(
            f"{target}: exists and is not a folder of blocks, so it is not replaced; choose another folder"
        )
    if target.exists() and not replace:
        raise TableError(f"{target}: exists; choose another folder, or replace it (--replace)")


@contextmanager
def _report_write_errors(folder: str) -> Iterator[None]:
    """What the system says of a folder that cannot be written, with its name."""
    try:
        yield
    except OSError as error:
        raise TableError(f"{folder}: cannot be written ({error.strerror}); check free space and permissions") from None


def _one_per_row(given: npt.ArrayLike, n: int, first: int, what: str) -> npt.NDArray[Any]:
    array = _of_one_kind(read_cells(given, what))
    if array.dtype.kind not in KINDS:
        raise ValueError(f"{what} has type {array.dtype}; pass numbers or text (astype(str))")
    if array.shape != (n,):
        raise ValueError(f"{what} has shape {array.shape}, where X has {n} rows")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError(f"{what} of row {first + int(np.isfinite(array).argmin())} is not finite")
    return array


def _of_one_kind(given: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Objects that are all words, or all whole numbers, or all numbers, as an array of them; others as they are."""
    types = set(map(type, given)) if given.dtype == object else set()
    if types and (types <= {str, np.str_} or types <= {bool, np.bool_}):
        return np.array(given.tolist())
    if types and types <= {int, float, bool, np.bool_, np.int64, np.int32, np.float64, np.float32}:
        return _together([np.array([number]) for number in given.tolist()])
    return given


def _together(parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Parts under each other, if that changes none of them: numpy makes floats of whole numbers beside floats."""
    array = np.concatenate(parts)
    whole = [part for part in parts if part.dtype.kind in "iu"]
    if array.dtype.kind == "f" and any((part.astype(array.dtype).astype(part.dtype) != part).any() for part in whole):
        raise ValueError("integers too large for floats are mixed with fractions; pass all of them as text")
    return array


def _family(dtype: np.dtype[Any]) -> str:
    return "words" if dtype.kind == "U" else "numbers"
