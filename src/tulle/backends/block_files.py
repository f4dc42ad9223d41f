"""The files of one block (`tulle.backends.block_folder`): written from its rows alone, with their SHA-256.

The bytes of a block depend on its rows and on nothing else: not on the batches that they came in, nor on which thread
writes them.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from tulle.backends.block_folder import COLUMN_PARTS, ROW_PARTS, StoredFile
from tulle.files.tables.input_files import TableError

Column = npt.NDArray[Any] | None


class WriteError(TableError):
    """A folder cannot be written: the disk is full, or something else that can be mended without other input."""


@dataclass(frozen=True)
class BlockRows:
    """The rows of one block in parts, in order.

    Attributes
    ----------
    parts : sequence of (X, y, groups)
    n_rows : int
    width : int
        The number of features, as far as it is known.
    sparse : bool
    dtype : data type
        Of dense rows.
    """

    parts: Sequence[tuple[Any, Column, Column]]
    n_rows: int
    width: int
    sparse: bool
    dtype: np.dtype[Any]


def write_block(folder: Path, k: int, block: BlockRows) -> dict[str, StoredFile]:
    """Write all files of block `k`; what the manifest says of each."""
    files = {}
    features, targets, people = zip(*block.parts)
    if block.sparse:
        wide = [
            sp.csr_array((part.data, part.indices, part.indptr), shape=(part.shape[0], block.width))
            for part in features
        ]
        rows = sp.csr_array(sp.vstack(wide, format="csr"))
        for names, matrix in ((ROW_PARTS, rows), (COLUMN_PARTS, rows.tocsc())):
            matrix.sort_indices()
            for name, array, dtype in zip(names, (matrix.data, matrix.indices, matrix.indptr), ("<f8", "<i4", "<i4")):
                files[f"{k:06d}.{name}.npy"] = [array.astype(dtype, copy=False)]
    else:
        stored = block.dtype.newbyteorder("<")
        files[f"{k:06d}.dense.npy"] = [part.astype(stored, copy=False) for part in features]
    for name, given in (("target", targets), ("groups", people)):
        if given[0] is not None:
            files[f"{k:06d}.{name}.npy"] = [_shortest(join_columns(given))]
    return {name: write_array(folder / name, arrays) for name, arrays in files.items()}


def write_array(path: Path, parts: Sequence[npt.NDArray[Any]]) -> StoredFile:
    """Write parts under each other as one npy file, which only its owner may read, and sync it."""
    shape = (sum(len(part) for part in parts), *parts[0].shape[1:])
    header = {"descr": np.lib.format.dtype_to_descr(parts[0].dtype), "fortran_order": False, "shape": shape}
    with open(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb", buffering=0) as file:
        told = _Hashed(file)
        np.lib.format.write_array_header_1_0(cast(Any, told), header)
        for part in parts:
            told.write(np.ascontiguousarray(part).reshape(-1).view(np.uint8))
        os.fsync(file.fileno())
    return StoredFile(told.size, told.sha256.hexdigest(), parts[0].dtype.str, shape)


class _Hashed:
    """A file that counts and hashes its bytes as they are written, a piece at a time, while they are in the cache."""

    _BYTES = 1 << 20

    def __init__(self, file: io.FileIO) -> None:
        self._file = file
        self.size = 0
        self.sha256 = hashlib.sha256()

    def write(self, content: Any) -> None:
        """Write all of it."""
        view = memoryview(content)
        for first in range(0, view.nbytes, self._BYTES):
            piece = view[first : first + self._BYTES]
            self.size += piece.nbytes
            self.sha256.update(piece)
            while piece.nbytes:
                piece = piece[self._file.write(piece) :]


def check_file(path: Path, stored: StoredFile) -> bool:
    """Whether a file has the size and the SHA-256 of what was written."""
    try:
        if path.stat().st_size != stored.size:
            return False
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == stored.sha256
    except OSError:
        return False


def join_columns(parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Parts under each other, if that changes none of them: numpy makes floats of whole numbers among floats."""
    array = np.concatenate(parts)
    whole = [part for part in parts if part.dtype.kind in "iu"]
    if array.dtype.kind == "f" and any((part.astype(array.dtype).astype(part.dtype) != part).any() for part in whole):
        raise ValueError("integers too large for floats are mixed with fractions; pass all of them as text")
    return array


def _shortest(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Words in as many characters as the longest needs; other rows of a batch may have had longer ones."""
    if array.dtype.kind != "U":
        return array
    longest = int(np.char.str_len(array).max(initial=1))
    return array.astype(f"<U{max(1, longest)}", copy=False)


@contextmanager
def report_write_errors(folder: str) -> Iterator[None]:
    """What the system says of a folder that cannot be written, with its name."""
    try:
        yield
    except OSError as error:
        raise WriteError(f"{folder}: cannot be written ({error.strerror}); check free space and permissions") from None
