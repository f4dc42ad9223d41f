"""An append-only file of records that survives crashes and notices changes.

Every record is one line: the checksum of the record, the number of bytes of its content, and the content.

    8a5f… 52 {"tulle":1,"message":"answer", …}

The checksum is the SHA-256 of the checksum before and of the content, so that a line that is changed, removed, added or
moved is noticed. `append` returns after the disk has confirmed the record. A record that was cut off at the end of the
file, in the middle of a line, was therefore never confirmed to anybody, and is removed by `start`. Anything else that
does not match is refused.

A checksum is not a signature: anyone who can write the file can compute new ones. And a file that lost whole records at
its end, or the end of its last one, cannot be distinguished from the file of a crash.

Files of older versions, whose lines have no checksums, are read. The checksum of the first record that is appended to
such a file covers all lines before it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import IO

from tulle import __version__
from tulle.files.durable_writes import lock_open_file, name_file, sync_folder

_FORMAT = "tulle journal 2"
_START = b"tulle journal 2\n"
_LINE = re.compile(rb"([0-9a-f]{64}) ([0-9]{1,12}) (.*)", re.DOTALL)
# The beginnings of a line, and of lines of older versions.
_CUT_OFF = re.compile(rb"[0-9a-f]{0,64}|[0-9a-f]{64} [0-9]{0,12}|[0-9a-f]{64} [0-9]{1,12} .*", re.DOTALL)
_OLD_LINES = (b'{"written by": "tulle ', b'{"tulle":1,"message":"answer",', b'{"closed": ')


class JournalError(ValueError):
    """A journal that was changed, or is not one."""


class Journal:
    """A file of records: read when this is made, and appended to after `start`.

    Parameters
    ----------
    path : path
        Need not exist. One process at a time may append to it.

    Attributes
    ----------
    records : tuple of (int, bytes)
        The content of the records that were in the file, each with its line number from 1.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        data = self._path.read_bytes() if self._path.exists() else b""
        old, records, checksum, used = _read(self._path, data)
        self.records = tuple(records)
        self._checksum = checksum
        self._has_checksums = used > old
        self._file: IO[bytes] | None = None
        self._size, self._found = used, len(data)

    def start(self) -> None:
        """Create the file, or remove a record that was cut off at its end. It is not changed before this."""
        new = not self._path.exists()
        with name_file(self._path):
            self._file = self._path.open("ab", buffering=0)
            with lock_open_file(self._file, self._path):
                self._check_size(self._found)
                if self._found:
                    self._file.truncate(self._size)
                    # A killed process may have written records that no disk has confirmed, and that count from now on.
                    os.fsync(self._file.fileno())
            if new:
                sync_folder(self._path.parent)
        if not self._size:
            self._write_format()

    def append(self, content: bytes) -> None:
        """Add a record. When this returns, the disk has confirmed it; if it raises, the record is not in the file.

        Parameters
        ----------
        content : bytes
            Without line breaks.
        """
        if b"\n" in content:
            raise ValueError("a record is one line")
        if not self._has_checksums:
            self._write_format()
        self._write(content)

    def close(self) -> None:
        """Close the file. Nothing can be appended afterwards."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write_format(self) -> None:
        self._write(json.dumps({"format": _FORMAT, "written by": f"tulle {__version__}"}).encode())
        self._has_checksums = True

    def _write(self, content: bytes) -> None:
        """Write a record and have the disk confirm it. If that fails nothing of it stays: the next record would
        continue it, and the journal could not be read again."""
        if self._file is None:
            raise JournalError(f"{self._path} is closed, or the disk did not confirm an earlier record; open it again")
        checksum = _chain(self._checksum, content)
        left = line = b"%s %d %s\n" % (checksum, len(content), content)
        # Without the lock another process could write between the look at the size and the write.
        with lock_open_file(self._file, self._path), name_file(self._path):
            self._check_size(self._size)
            try:
                while left:
                    left = left[self._file.write(left) :]
            except BaseException:
                self._file.truncate(self._size)
                raise
            try:
                os.fsync(self._file.fileno())
            except BaseException:
                # What the disk has is unknown, and a later success of the same call would not say.
                self._file.truncate(self._size)
                self.close()
                raise
        self._checksum, self._size = checksum, self._size + len(line)

    def _check_size(self, expected: int) -> None:
        if self._file is not None and os.fstat(self._file.fileno()).st_size != expected:
            raise JournalError(f"{self._path} was changed by another process; one process at a time may write to it")


def _chain(before: bytes, content: bytes) -> bytes:
    return hashlib.sha256(before + b"\n" + content).hexdigest().encode()


def _read(path: Path, data: bytes) -> tuple[int, list[tuple[int, bytes]], bytes, int]:
    """How many bytes at the beginning have no checksums, all records, the last checksum, and how many bytes are whole
    lines."""
    whole = data.rfind(b"\n") + 1
    lines = data[:whole].split(b"\n")[:-1]
    n_old = next((number for number, line in enumerate(lines) if not line.startswith(b"{")), len(lines))
    old = sum(len(line) + 1 for line in lines[:n_old])
    records = [(number, line) for number, line in enumerate(lines[:n_old], 1) if not _is_version(number, line)]
    checksum = hashlib.sha256(_START + data[:old]).hexdigest().encode()
    for number, line in enumerate(lines[n_old:], n_old + 1):
        found = _LINE.fullmatch(line)
        if found is None or int(found[2]) != len(found[3]) or found[1] != _chain(checksum, found[3]):
            raise JournalError(
                f"{path}, line {number}: the checksum does not match. The line or one before it was changed, removed "
                "or added after it was written; restore the file from a copy"
            )
        checksum = found[1]
        if number == n_old + 1:
            _check_format(path, found[3])
        else:
            records.append((number, found[3]))
    _check_torn(path, data[whole:], len(lines) + 1)
    return old, records, checksum, whole


def _is_version(number: int, line: bytes) -> bool:
    return number == 1 and line.startswith(b'{"written by": "tulle ')


def _check_format(path: Path, content: bytes) -> None:
    """The first record with a checksum says the format; later formats are refused with the version that wrote them."""
    try:
        values = json.loads(content)
        said, version = values["format"], values["written by"]
    except (ValueError, TypeError, KeyError):
        said, version = None, None
    if said != _FORMAT:
        raise JournalError(f"{path} was made by {version} as {said!r}; this is tulle {__version__}: upgrade tulle")


def _check_torn(path: Path, rest: bytes, number: int) -> None:
    """Raise unless bytes without a line break are the beginning of a record: one that has all its bytes and another end
    was confirmed, and changed afterwards."""
    # Zeros are blocks that never reached the disk.
    begun = rest.rstrip(b"\0")
    old = any(begun[: len(line)] == line[: len(begun)] for line in _OLD_LINES)
    if not (old or _CUT_OFF.fullmatch(begun) or (number > 1 and rest.startswith(b"\0"))):
        raise JournalError(f"{path}, line {number}: this is no line of a journal; is it another file?")
    found = _LINE.fullmatch(rest)
    if found is not None and len(found[3]) > int(found[2]):
        raise JournalError(f"{path}, line {number}: the end of the line was changed; restore the file from a copy")
