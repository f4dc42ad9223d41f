"""Folders of blocks: rows on disk, some thousands to a block, memory-mapped one block at a time while they are used.

Such a folder holds private rows. It and its files are for their owner alone (0700 and 0600, where the system has such
rights). Layout:

- ``blocks.json``: sizes, names, where blocks begin, and the SHA-256 of every file. Written last, so that a folder
  without it was never finished.
- A sparse block k: its columns (CSC) in ``k.column_values.npy``, ``k.column_rows.npy``, ``k.column_starts.npy``, and
  the same entries by rows (CSR) in ``k.row_values.npy``, ``k.row_columns.npy``, ``k.row_starts.npy``. Twice, because
  gradients go by columns and batches by rows. Values are float64; everything else is int32, the one type that scipy
  takes without a copy.
- A dense block k: ``k.dense.npy``, float64 or float32.
- ``k.target.npy`` and ``k.groups.npy``: numbers or words of the block's rows, where there are any.

What is checked when: on opening, the manifest, all names, sizes and types, and the bytes of targets and groups. When a
block is used for the first time, and again where its files have changed since, all its bytes against their SHA-256, and
every index: compiled code follows them without a look, and a wrong one would read outside of memory.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import shutil
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from tulle.durable import sync_folder, write_durably
from tulle.intake import cells, joined
from tulle.tables.files import TableError, shown

MANIFEST = "blocks.json"
_FORMAT = "tulle blocks 1"

# About what one block takes on disk, and twice that in memory while it is written.
_BLOCK_BYTES = 1 << 26
# Of sparse rows the size is unknown, and must not be read off them: where blocks begin is public. With 80 entries a
# row, each stored twice in 12 bytes, this makes `_BLOCK_BYTES`.
_SPARSE_ROWS = 1 << 15
# More than this in so many rows, and the writer asks for a smaller block instead of filling the memory.
_MOST_ENTRIES = 1 << 26
# Positions are stored in 32 bits.
_LARGEST = 2**31 - 1

_COLUMNS = ("column_values", "column_rows", "column_starts")
_ROWS = ("row_values", "row_columns", "row_starts")
_KINDS = "biufU"

# Which file it is, its size and when it was changed.
State = tuple[int, int, int]


@dataclass(frozen=True)
class _Stored:
    """What the manifest says of one file."""

    size: int
    sha256: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class BlockMatrix:
    """The features of a folder of blocks. Pass it to `fit` and `predict` like an array.

    Attributes
    ----------
    path : str
        The folder.
    shape : (n, d)
    dtype : data type
        float64, or float32 for dense blocks that were written so.
    starts : tuple of int
        The number of the first row of each block, and n at the end.
    sparse : bool
        Whether blocks are sparse.
    feature_names : tuple of str or None
        Names of the columns; `fit` takes them as `feature_names_in_`.
    """

    path: str
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    starts: tuple[int, ...] = field(repr=False)
    sparse: bool
    feature_names: tuple[str, ...] | None = field(repr=False)
    _files: dict[str, _Stored] = field(repr=False)
    # Blocks whose indices were found good, with the state of the files then.
    _checked: dict[int, tuple[State, ...]] = field(default_factory=dict, repr=False)

    @property
    def ndim(self) -> int:
        """2."""
        return 2

    @property
    def n_blocks(self) -> int:
        """How many blocks there are."""
        return len(self.starts) - 1

    @property
    def nbytes(self) -> int:
        """Bytes of all blocks on disk."""
        return sum(self._files[name].size for k in range(self.n_blocks) for name in self._names(k))

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        raise TypeError(
            "these rows are on disk, and what was called wants them as one array in memory; SparseClassifier, "
            "SparseRegressor, Bounds.estimate and private_score take them as they are"
        )

    def block(self, k: int) -> Any:
        """Map block `k` into memory; it is let go when the last reference to it is dropped.

        Parameters
        ----------
        k : int
            From 0 to `n_blocks` - 1.

        Returns
        -------
        ndarray of shape (rows, d), or (csc_array, csr_array)
            Dense rows; or sparse ones twice, by columns and by rows. All are read-only, finite, and canonical.

        Raises
        ------
        TableError
            Where the block's files are not what was written.
        """
        if not 0 <= k < self.n_blocks:
            raise IndexError(f"block {k}, where there are {self.n_blocks}")
        mapped = [_mapped(self.path, name, self._files[name]) for name in self._names(k)]
        arrays, seen = [array for array, _ in mapped], tuple(state for _, state in mapped)
        n, d = self.starts[k + 1] - self.starts[k], self.shape[1]
        good = self._checked.get(k) == seen
        if not self.sparse:
            if not (good or np.isfinite(arrays[0]).all()):
                raise _damaged(self.path, f"block {k} holds numbers that are not finite")
            self._check_bytes(k, seen)
            return arrays[0]
        columns, rows = arrays[:3], arrays[3:]
        if not good:
            for (values, indices, starts), size in ((columns, n), (rows, d)):
                if not (_canonical(indices, starts, size) and np.isfinite(values).all()):
                    raise _damaged(self.path, f"the entries of block {k} are out of place")
            self._check_bytes(k, seen)
        return _as_known(sp.csc_array(tuple(columns), shape=(n, d))), _as_known(sp.csr_array(tuple(rows), shape=(n, d)))

    def check(self) -> None:
        """Look at every block as its first use does, so that a damaged one is found before a budget is spent."""
        for k in range(self.n_blocks):
            self.block(k)

    def _check_bytes(self, k: int, seen: tuple[State, ...]) -> None:
        """Hold a block that is used for the first time, in this state, against its SHA-256.

        Values too: rows are clipped by what their columns say, so that both copies must be the same entries.
        """
        if self._checked.get(k) != seen:
            for name in self._names(k):
                _check_bytes(self.path, name, self._files[name])
            self._checked[k] = seen

    def _names(self, k: int) -> list[str]:
        return [f"{k:06d}.{part}.npy" for part in ((*_COLUMNS, *_ROWS) if self.sparse else ("dense",))]


@dataclass(frozen=True, eq=False)
class BlockFolder:
    """An open folder of blocks: ``model.fit(folder.X, folder.y, groups=folder.groups)``.

    Attributes
    ----------
    path : str
    X : BlockMatrix
    y : ndarray of shape (n,) or None
        Targets, in memory: numbers or words.
    groups : ndarray of shape (n,) or None
        Whose row it is, in memory.
    feature_names : tuple of str or None
    content : str
        "sha256:" and a hash: of the file that was converted, else of all blocks.
    width_from_rows : bool
        As in `tulle.tables.Table`.
    """

    path: str
    X: BlockMatrix
    y: npt.NDArray[Any] | None
    groups: npt.NDArray[Any] | None
    feature_names: tuple[str, ...] | None
    content: str
    width_from_rows: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and features."""
        return self.X.shape

    def verify(self) -> None:
        """Read every file and hold it against the SHA-256 that was taken when it was written.

        Raises
        ------
        TableError
            Where one has changed since.
        """
        for name, stored in self.X._files.items():
            _check_bytes(self.path, name, stored)


def is_block_folder(path: str | os.PathLike[str]) -> bool:
    """Whether a folder holds blocks, or what is left of some."""
    folder = Path(path)
    return folder.is_dir() and ((folder / MANIFEST).exists() or next(folder.glob("000000.*.npy"), None) is not None)


def open_blocks(path: str | os.PathLike[str]) -> BlockFolder:
    """Open a folder that `write_blocks` or ``tulle convert`` wrote.

    Parameters
    ----------
    path : path
        The folder.

    Returns
    -------
    BlockFolder

    Raises
    ------
    TableError
        Where there is no such folder, or where it is not whole.
    """
    name = os.fsdecode(path)
    if not os.path.isdir(name):
        raise TableError(f"{name}: there is no such folder; check the path, or make it with tulle convert")
    manifest = _read_manifest(name)
    with _damage_told(name):
        n, d = (int(size) for size in manifest["shape"])
        starts = tuple(int(start) for start in manifest["starts"])
        sparse, dtype = bool(manifest["sparse"]), np.dtype(manifest["dtype"])
        files = {
            file: _Stored(int(of["size"]), str(of["sha256"]), str(of["dtype"]), tuple(int(m) for m in of["shape"]))
            for file, of in manifest["files"].items()
        }
        names = None if manifest["feature_names"] is None else tuple(map(str, manifest["feature_names"]))
        content = str(manifest["content"])
        # Folders of before do not say it.
        counted = bool(manifest.get("width_from_rows", sparse and names is None))
        kept = [part for part in ("target", "groups") if manifest[part]]
    rises = all(before < after for before, after in pairwise(starts))
    if not (len(starts) > 1 and starts[0] == 0 and starts[-1] == n and rises and 0 < d <= _LARGEST):
        raise _damaged(name, "where its blocks begin does not agree with its number of rows")
    if dtype not in (np.float64, np.float32) or (names is not None and len(names) != d):
        raise _damaged(name, "its columns are not described as they should be")
    X = BlockMatrix(name, (n, d), dtype, starts, sparse, names, files)
    expected = {file for k in range(X.n_blocks) for file in [*X._names(k), *(f"{k:06d}.{part}.npy" for part in kept)]}
    if expected != set(files):
        raise _damaged(name, "its list of files is not that of its blocks")
    for k in range(X.n_blocks):
        _check_described(X, k)
    for file, stored in files.items():
        with _damage_told(name):
            found = os.stat(os.path.join(name, file)).st_size
        if found != stored.size:
            raise _damaged(name, f"{file} has {found:,} bytes, where {stored.size:,} were written")
    y, groups = (_joined(X, part) if part in kept else None for part in ("target", "groups"))
    return BlockFolder(name, X, y, groups, names, content, counted)


def _read_manifest(folder: str) -> dict[str, Any]:
    try:
        with open(os.path.join(folder, MANIFEST), "rb") as file:
            manifest = json.load(file)
        claimed = manifest.pop("sha256")
        if manifest["format"] != _FORMAT:
            raise TableError(
                f"{folder}: its format is {shown(manifest['format'])} and this tulle reads {_FORMAT!r}; "
                "convert the rows again, or install the tulle that wrote it"
            )
    except TableError:
        raise
    except FileNotFoundError:
        raise TableError(
            f"{folder}: no {MANIFEST} in it: it is no folder of blocks, or writing it was never finished; convert the "
            "rows again (tulle convert)"
        ) from None
    except OSError as error:
        raise TableError(f"{folder}: cannot be read ({error.strerror}); check its rights") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise _damaged(folder, f"{MANIFEST} cannot be read") from None
    if claimed != _sealed(manifest):
        raise _damaged(folder, f"{MANIFEST} has changed since it was written")
    return cast(dict[str, Any], manifest)


def _sealed(manifest: dict[str, Any]) -> str:
    """The SHA-256 of a manifest without its own."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _check_bytes(folder: str, name: str, stored: _Stored) -> None:
    """Hold a file against the SHA-256 that was taken when it was written."""
    with _damage_told(folder), open(os.path.join(folder, name), "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != stored.sha256:
        raise _damaged(folder, f"{name} has changed since it was written")


def _check_described(X: BlockMatrix, k: int) -> None:
    """That the manifest gives a block's files types and shapes that fit each other; `_mapped` sees whether it is so."""
    n, d = X.starts[k + 1] - X.starts[k], X.shape[1]
    described = [X._files[name] for name in X._names(k)]
    found = [(stored.dtype, stored.shape) for stored in described]
    if X.sparse:
        entries = described[0].shape
        lines = [[("<f8", entries), ("<i4", entries), ("<i4", (size + 1,))] for size in (d, n)]
        expected: list[tuple[str, tuple[int, ...]]] = [*lines[0], *lines[1]]
        good = found == expected and len(entries) == 1
    else:
        good = found == [(X.dtype.newbyteorder("<").str, (n, d))]
    if not good:
        raise _damaged(X.path, f"the parts of block {k} do not fit each other")


def _mapped(folder: str, name: str, stored: _Stored) -> tuple[npt.NDArray[Any], State]:
    """A file as an array that the system reads as it is used, and the state of that very file."""
    with _damage_told(folder), open(os.path.join(folder, name), "rb") as file:
        found = os.fstat(file.fileno())
        version = np.lib.format.read_magic(file)
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = header(file)
        if (found.st_size, shape, dtype.str, fortran) != (stored.size, stored.shape, stored.dtype, False):
            raise _damaged(folder, f"{name} is not the array that was written")
        # A map cannot be empty.
        array = np.memmap(file, dtype, "r", file.tell(), shape) if math.prod(shape) else np.empty(shape, dtype)
    return array, (found.st_ino, found.st_size, found.st_mtime_ns)


def _joined(X: BlockMatrix, part: str) -> npt.NDArray[Any]:
    """The targets or groups of all blocks."""
    parts = []
    for k in range(X.n_blocks):
        name = f"{k:06d}.{part}.npy"
        stored = X._files[name]
        with _damage_told(X.path):
            array = np.load(os.path.join(X.path, name), allow_pickle=False)
            with open(os.path.join(X.path, name), "rb") as file:
                good = hashlib.file_digest(file, "sha256").hexdigest() == stored.sha256
        if not (good and array.shape == (X.starts[k + 1] - X.starts[k],) and array.dtype.kind in _KINDS):
            raise _damaged(X.path, f"{name} is not what was written")
        parts.append(array)
    return joined(parts)


def _canonical(indices: npt.NDArray[Any], starts: npt.NDArray[Any], size: int) -> bool:
    """Whether `starts` divides the indices into lines, in each of which they rise and lie in [0, size)."""
    if starts[0] != 0 or starts[-1] != len(indices) or (starts[1:] < starts[:-1]).any():
        return False
    if not len(indices):
        return True
    if indices.min() < 0 or indices.max() >= size:
        return False
    rises = indices[1:] > indices[:-1]
    begins = starts[1:-1]
    rises[begins[(begins > 0) & (begins < len(indices))] - 1] = True
    return bool(rises.all())


def _as_known(matrix: Any) -> Any:
    """Spare scipy the search for duplicates, which `_canonical` did."""
    matrix.has_sorted_indices = matrix.has_canonical_format = True
    return matrix


def _damaged(folder: str, what: str) -> TableError:
    return TableError(f"{folder}: {what}; it is damaged, so convert the rows again (tulle convert … --replace)")


@contextmanager
def _damage_told(folder: str) -> Iterator[None]:
    """Say that a folder is damaged, whatever is raised on the way."""
    try:
        yield
    except (TableError, MemoryError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EACCES):
            raise TableError(
                f"{folder}: cannot be read ({error.strerror}); free what is short, or check rights"
            ) from None
        raise _damaged(folder, f"cannot be read ({type(error).__name__})") from None


# --- writing -------------------------------------------------------------------------------------------------------


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
            if given is not None and not 1 <= given <= _LARGEST:
                raise ValueError(f"{what} is from 1 to {_LARGEST:,}, not {given}")
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
                f"{left[0]} holds rows of a conversion that is still running or was killed; delete it if it was",
                stacklevel=2,
            )
        # A name of its own for each process and moment, as in `write_durably`.
        self._partial = target.with_name(f".{target.name}.{os.getpid()}-{time.monotonic_ns()}.partial")
        with _writing_told(self.path):
            self._partial.mkdir(mode=0o700)
        self._files: dict[str, _Stored] = {}
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
            raise ValueError("y and groups must be numbers in all rows, or words in all rows, or absent from all")
        self._kinds = (kinds[0], kinds[1])
        assert self._rows_per_block is not None
        row = 0
        while row < X.shape[0]:
            part = slice(row, min(X.shape[0], row + self._rows_per_block - self._pending_rows))
            # Copies: whoever hands rows over may use the same array for the next ones.
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
        most = _LARGEST if self._asked_rows else _MOST_ENTRIES
        if self._pending_entries > most:
            fitting = max(1, self._pending_rows * (_BLOCK_BYTES // 24) // self._pending_entries)
            raise ValueError(
                f"{self._pending_rows:,} rows have {self._pending_entries:,} entries, which is too much for one block; "
                f"pass a smaller number of rows per block, such as {fitting:,} (--rows-per-block {fitting})"
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
            raise ValueError(f"rows have {width:,} features, where {self._n_features:,} are wanted")
        if width > _LARGEST:
            raise ValueError(f"{width:,} features are too many; at most {_LARGEST:,} can be stored")
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
                raise ValueError(f"the first rows were {self._dtype} and these are {X.dtype}; append one type")
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
            for names, matrix in ((_ROWS, rows), (_COLUMNS, rows.tocsc())):
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
        with _writing_told(self.path):
            place = self._partial / name
            with open(os.open(place, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as file:
                told = _Hashed(file)
                np.lib.format.write_array(cast(Any, told), np.ascontiguousarray(array), allow_pickle=False)
                file.flush()
                os.fsync(file.fileno())
        self._files[name] = _Stored(told.size, told.sha256.hexdigest(), array.dtype.str, array.shape)

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
            "format": _FORMAT,
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
        with _writing_told(self.path):
            sync_folder(self._partial)
            text = json.dumps({**manifest, "sha256": _sealed(manifest)}, indent=1)
            write_durably(self._partial / MANIFEST, text.encode(), mode=0o600)
            self._take_name()

    def _widen(self, d: int) -> None:
        """Blocks that were written before the last column was known lack the ends of columns that they do not have."""
        for k in range(len(self._starts) - 1):
            name = f"{k:06d}.{_COLUMNS[2]}.npy"
            if self._files[name].shape != (d + 1,):
                starts = np.load(self._partial / name, allow_pickle=False)
                self._write(name, np.pad(starts, (0, d + 1 - len(starts)), mode="edge"))

    def _take_name(self) -> None:
        target = Path(self.path)
        _check_free(target, self._replace)
        old = self._partial.with_suffix(".old")
        if target.exists():
            target.rename(old)
        self._partial.rename(target)
        sync_folder(target.parent)
        if old.exists():
            shutil.rmtree(old)

    def discard(self) -> None:
        """Delete what was written so far."""
        shutil.rmtree(self._partial, ignore_errors=True)


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
        A file that `tulle.tables.read_table` reads. What that refuses is refused here, with the same words.
    folder : path
        The folder to make.
    rows_per_block, replace
        As in `BlockWriter`.
    format, progress, **reading
        As in `tulle.tables.read_table`: `target`, `groups`, `ignore`, `n_features` and so on.

    Returns
    -------
    BlockFolder
        With the arrays that `read_table` would give, and the file's own fingerprint as its `content`.
    """
    from tulle.tables import open_batches
    from tulle.tables.columns import Wanted

    given: dict[str, Any] = {name: tuple(of) if isinstance(of, list) else of for name, of in reading.items()}
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
        raise TableError(f"{target}: its folder does not exist; make it first, or name another place")
    if target.is_symlink() or (target.exists() and not is_block_folder(target)):
        raise TableError(f"{target}: exists and is no folder of blocks, so it is not replaced; name another folder")
    if target.exists() and not replace:
        raise TableError(f"{target}: exists; name another folder, or replace it (--replace)")


@contextmanager
def _writing_told(folder: str) -> Iterator[None]:
    """What the system says of a folder that cannot be written, with its name."""
    try:
        yield
    except OSError as error:
        raise TableError(
            f"{folder}: cannot be written ({error.strerror}); check the space and the rights there"
        ) from None


def _one_per_row(given: npt.ArrayLike, n: int, first: int, what: str) -> npt.NDArray[Any]:
    array = _of_one_kind(cells(given, what))
    if array.dtype.kind not in _KINDS:
        raise ValueError(f"{what} holds {array.dtype}; pass numbers or words (astype(str))")
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
        raise ValueError("whole numbers stand beside fractions and are too large for floats; pass all of them as words")
    return array


def _family(dtype: np.dtype[Any]) -> str:
    return "words" if dtype.kind == "U" else "numbers"
