"""Folders of blocks: rows on disk, some thousands to a block, memory-mapped one block at a time while they are used.

Such a folder holds private rows. It and its files are for their owner alone (0700 and 0600, where the system has such
rights). Layout:

- ``blocks.json``: sizes, names, where blocks begin, and the SHA-256 of every file. Written last, so that a folder
  without it was never finished.
- A sparse block k: its columns (CSC) in ``k.column_values.npy``, ``k.column_rows.npy``, ``k.column_starts.npy``, and
  the same entries by rows (CSR) in ``k.row_values.npy``, ``k.row_columns.npy``, ``k.row_starts.npy``. Twice, because
  gradients go by columns and batches by rows. Values are float64; everything else is int32, the one type that scipy
  takes without a copy.
- A dense block k: ``k.dense.npy``, float64 or float32. Entries are finite, unless the manifest says that they may be
  missing.
- ``k.target.npy`` and ``k.groups.npy``: numbers or words of the block's rows, where there are any. Where a schema
  encoded the rows, the manifest contains it, and targets are as in `tulle.backends.encoded_rows`.

Checks on opening: the manifest, all names, sizes and types, and the bytes of targets and groups. Checks when a block is
used for the first time, and again where its files have changed since: all its bytes against their SHA-256, and every
index, because compiled code does not check them, and a wrong one would read outside of memory.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from tulle.backends.rows_elsewhere import join_cells, join_ids
from tulle.files.own_types import register
from tulle.files.tables.input_files import TableError, shown

MANIFEST = "blocks.json"
# The second is written where entries may be missing or a schema encoded the rows: code that knows the first alone would
# take places of classes for targets.
FORMATS = ("tulle blocks 1", "tulle blocks 2")

# Positions are stored in 32 bits.
LARGEST_POSITION = 2**31 - 1

COLUMN_PARTS = ("column_values", "column_rows", "column_starts")
ROW_PARTS = ("row_values", "row_columns", "row_starts")
KINDS = "biufU"

# Which file it is, its size and when it was changed.
State = tuple[int, int, int]


@dataclass(frozen=True)
class StoredFile:
    """What the manifest says of one file."""

    size: int
    sha256: str
    dtype: str
    shape: tuple[int, ...]


@register("block matrix")
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
    missing : bool
        Whether entries may be NaN or infinite: declared when the folder was written, whether there are any or not.
    """

    path: str
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    starts: tuple[int, ...] = field(repr=False)
    sparse: bool
    feature_names: tuple[str, ...] | None = field(repr=False)
    _files: dict[str, StoredFile] = field(repr=False)
    missing: bool = False
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
            "these rows are on disk, but the function called needs them as one array in memory; SparseClassifier, "
            "SparseRegressor, Bounds.estimate and private_score read them from disk"
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
            Dense rows; or sparse ones twice, by columns and by rows. All are read-only, canonical, and finite unless
            entries may be `missing`.

        Raises
        ------
        TableError
            Where the block's files are not what was written.
        """
        if not 0 <= k < self.n_blocks:
            raise IndexError(f"block {k} of {self.n_blocks} does not exist")
        mapped = [_mapped(self.path, name, self._files[name]) for name in self._names(k)]
        arrays, seen = [array for array, _ in mapped], tuple(state for _, state in mapped)
        n, d = self.starts[k + 1] - self.starts[k], self.shape[1]
        good = self._checked.get(k) == seen
        if not self.sparse:
            if not (good or self.missing or np.isfinite(arrays[0]).all()):
                raise _damaged(self.path, f"block {k} contains numbers that are not finite")
            self._check_bytes(k, seen)
            return arrays[0]
        columns, rows = arrays[:3], arrays[3:]
        if not good:
            for (values, indices, starts), size in ((columns, n), (rows, d)):
                if not (_canonical(indices, starts, size) and np.isfinite(values).all()):
                    raise _damaged(self.path, f"the entries of block {k} have invalid indices")
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
        return [f"{k:06d}.{part}.npy" for part in ((*COLUMN_PARTS, *ROW_PARTS) if self.sparse else ("dense",))]


@register("block folder")
@dataclass(frozen=True, eq=False)
class BlockFolder:
    """An open folder of blocks: ``model.fit(folder.X, folder.y, groups=folder.groups)``.

    Attributes
    ----------
    path : str
    X : BlockMatrix
    y : ndarray of shape (n,) or None
        Targets, in memory: numbers or words. Where a schema encoded the rows, those that it leaves without a target are
        None or masked, and count as nothing.
    groups : ndarray of shape (n,) or None
        Whose row it is, in memory.
    feature_names : tuple of str or None
    content : str
        "sha256:" and a hash: of the file that was converted, else of all blocks.
    width_from_rows : bool
        As in `tulle.files.tables.Table`.
    schema : tulle.Schema or None
        What encoded the rows, if they were raw.
    """

    path: str
    X: BlockMatrix
    y: npt.NDArray[Any] | None
    groups: npt.NDArray[Any] | None
    feature_names: tuple[str, ...] | None
    content: str
    width_from_rows: bool = False
    schema: Any = None

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
    """Whether a folder holds blocks, or the remains of some."""
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
        raise TableError(f"{name}: no such folder; check the path, or create it with tulle convert")
    manifest = _read_manifest(name)
    with _report_damage(name):
        n, d = (int(size) for size in manifest["shape"])
        starts = tuple(int(start) for start in manifest["starts"])
        sparse, dtype = bool(manifest["sparse"]), np.dtype(manifest["dtype"])
        files = {
            file: StoredFile(int(of["size"]), str(of["sha256"]), str(of["dtype"]), tuple(int(m) for m in of["shape"]))
            for file, of in manifest["files"].items()
        }
        names = None if manifest["feature_names"] is None else tuple(map(str, manifest["feature_names"]))
        content = str(manifest["content"])
        # Folders of before do not say it.
        counted = bool(manifest.get("width_from_rows", sparse and names is None))
        kept = [part for part in ("target", "groups") if manifest[part]]
        missing, encoded = bool(manifest.get("missing", False)), manifest.get("schema")
    rises = all(before < after for before, after in pairwise(starts))
    if not (len(starts) > 1 and starts[0] == 0 and starts[-1] == n and rises and 0 < d <= LARGEST_POSITION):
        raise _damaged(name, "the starts of its blocks do not match its number of rows")
    if dtype not in (np.float64, np.float32) or (names is not None and len(names) != d):
        raise _damaged(name, "its description of columns is invalid")
    if missing and sparse:
        raise _damaged(name, "its description of columns is invalid")
    X = BlockMatrix(name, (n, d), dtype, starts, sparse, names, files, missing)
    expected = {file for k in range(X.n_blocks) for file in [*X._names(k), *(f"{k:06d}.{part}.npy" for part in kept)]}
    if expected != set(files):
        raise _damaged(name, "its list of files does not match its blocks")
    for k in range(X.n_blocks):
        _check_described(X, k)
    for file, stored in files.items():
        with _report_damage(name):
            found = os.stat(os.path.join(name, file)).st_size
        if found != stored.size:
            raise _damaged(name, f"{file} has {found:,} bytes, but {stored.size:,} were written")
    y, groups = (_join(X, part) if part in kept else None for part in ("target", "groups"))
    schema = None
    if encoded is not None:
        from tulle.backends.encoded_rows import decode_targets, unpack_schema

        with _report_damage(name):
            schema = unpack_schema(encoded)
            y = None if y is None else decode_targets(schema, y)
    return BlockFolder(name, X, y, groups, names, content, counted, schema)


def _read_manifest(folder: str) -> dict[str, Any]:
    try:
        with open(os.path.join(folder, MANIFEST), "rb") as file:
            manifest = json.load(file)
        claimed = manifest.pop("sha256")
        if manifest["format"] not in FORMATS:
            raise TableError(
                f"{folder}: its format is {shown(manifest['format'])} and this tulle reads {FORMATS[-1]!r}; "
                "convert the rows again, or install the tulle that wrote it"
            )
    except TableError:
        raise
    except FileNotFoundError:
        raise TableError(
            f"{folder}: no {MANIFEST} in it: it is not a folder of blocks, or writing it was not finished; convert "
            "the rows again (tulle convert)"
        ) from None
    except OSError as error:
        raise TableError(f"{folder}: cannot be read ({error.strerror}); check its permissions") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise _damaged(folder, f"{MANIFEST} cannot be read") from None
    if claimed != manifest_hash(manifest):
        raise _damaged(folder, f"{MANIFEST} has changed since it was written")
    return cast(dict[str, Any], manifest)


def manifest_hash(manifest: dict[str, Any]) -> str:
    """The SHA-256 of a manifest without its own."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _check_bytes(folder: str, name: str, stored: StoredFile) -> None:
    """Hold a file against the SHA-256 that was taken when it was written."""
    with _report_damage(folder), open(os.path.join(folder, name), "rb") as file:
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
        raise _damaged(X.path, f"the parts of block {k} do not match")


def _mapped(folder: str, name: str, stored: StoredFile) -> tuple[npt.NDArray[Any], State]:
    """A file as an array that the system reads as it is used, and the state of that very file."""
    with _report_damage(folder), open(os.path.join(folder, name), "rb") as file:
        found = os.fstat(file.fileno())
        version = np.lib.format.read_magic(file)
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = header(file)
        if (found.st_size, shape, dtype.str, fortran) != (stored.size, stored.shape, stored.dtype, False):
            raise _damaged(folder, f"{name} is not the array that was written")
        # A map cannot be empty.
        array = np.memmap(file, dtype, "r", file.tell(), shape) if math.prod(shape) else np.empty(shape, dtype)
    return array, (found.st_ino, found.st_size, found.st_mtime_ns)


def _join(X: BlockMatrix, part: str) -> npt.NDArray[Any]:
    """The targets or groups of all blocks."""
    parts = []
    for k in range(X.n_blocks):
        name = f"{k:06d}.{part}.npy"
        stored = X._files[name]
        with _report_damage(X.path):
            array = np.load(os.path.join(X.path, name), allow_pickle=False)
            with open(os.path.join(X.path, name), "rb") as file:
                good = hashlib.file_digest(file, "sha256").hexdigest() == stored.sha256
        if not (good and array.shape == (X.starts[k + 1] - X.starts[k],) and array.dtype.kind in KINDS):
            raise _damaged(X.path, f"{name} is not what was written")
        parts.append(array)
    return (join_ids if part == "groups" else join_cells)(parts)


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
def _report_damage(folder: str) -> Iterator[None]:
    """Turn any error inside into one that says that the folder is damaged."""
    try:
        yield
    except (TableError, MemoryError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EACCES):
            raise TableError(
                f"{folder}: cannot be read ({error.strerror}); free memory or file handles, or check permissions"
            ) from None
        raise _damaged(folder, f"cannot be read ({type(error).__name__})") from None
