"""Room on a disk that is taken before it is needed, so that a full disk is noticed while nothing is lost."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from tulle.files.durable_writes import name_file
from tulle.files.tables.free_memory import shown_size

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_PIECE = 1 << 20


class ReservedRoom:
    """Room in a folder: a file without a name, which the system removes when the process ends, however it ends.

    Parameters
    ----------
    folder : path
    n_bytes : int
        At least 0.

    Raises
    ------
    OSError
        Where the folder cannot be written to or has no such room; the message names it.
    """

    def __init__(self, folder: str | os.PathLike[str], n_bytes: int) -> None:
        with name_file(folder):
            self._file = tempfile.TemporaryFile(dir=Path(folder))  # noqa: SIM115 (closed by release)
        try:
            _allocate(self._file.fileno(), n_bytes)
        except OSError as error:
            self.release()
            if error.errno not in _NO_ROOM:
                raise
            words = f"no room for {shown_size(n_bytes)}, which the result may need; free some space or choose another"
            raise OSError(error.errno, f"{words} folder", os.fspath(folder)) from None

    def release(self) -> None:
        """Give the room back, just before it is used."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def check_room(folder: str | os.PathLike[str], n_bytes: int) -> None:
    """Raise where a folder has no such room now."""
    ReservedRoom(folder, n_bytes).release()


def _allocate(handle: int, n_bytes: int) -> None:
    if n_bytes and hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(handle, 0, n_bytes)
            return
        except OSError as error:
            if error.errno in _NO_ROOM:
                raise  # others: the file system cannot do it
    for start in range(0, n_bytes, _PIECE):
        os.write(handle, bytes(min(_PIECE, n_bytes - start)))
