"""A file on disk: its name in messages, its bytes in whole lines, unpacked on the way, and their fingerprint."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import os
import stat
import sys
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from typing import NamedTuple, NoReturn

# One block is parsed at a time: large enough for compiled parsers, small compared with a table that takes long to read.
BLOCK_BYTES = 1 << 22
# Hashes are computed of so much at a time, which stays in the processor's cache.
_HASHED_BYTES = 1 << 18
# A row of a million features fits; a file without line ends is refused before it fills the memory.
LONGEST_LINE = 1 << 26

FORMATS: dict[str, tuple[str, ...]] = {
    "csv": (".csv", ".tsv"),
    "parquet": (".parquet", ".pq"),
    "svmlight": (".svm", ".svmlight", ".libsvm"),
    "npz": (".npz",),
}

# What files begin with: what such a file is, and what to do where another was expected.
_BEGINNINGS = {
    b"PK\x03\x04": (
        "a zip archive, as npz files and Excel workbooks are",
        "pass --format npz, or save the workbook as CSV",
    ),
    b"\xd0\xcf\x11\xe0": ("an Excel workbook", "save it as CSV"),
    b"PAR1": ("a Parquet file", "pass --format parquet"),
    b"\x1f\x8b": ("compressed by gzip", "give its name the suffix .gz, or unpack it"),
    b"BZh": ("compressed by bzip2", "give its name the suffix .bz2, or unpack it"),
    b"\xfd7zXZ": ("compressed by xz", "unpack it"),
    b"\x28\xb5\x2f\xfd": ("compressed by zstd", "unpack it"),
    b"\x93NUMPY": ("a single numpy array", "write it with np.savez(path, X=X, y=y)"),
}
_PACKED = {".gz": b"\x1f\x8b", ".bz2": b"BZh"}
_BINARY = {"npz": b"PK\x03\x04", "parquet": b"PAR1"}


class TableError(ValueError):
    """A file cannot be read as a table: the message names the file, the place and what to change, and quotes no cell.

    Parameters
    ----------
    message : str
        With the line or the row, for the user's screen.
    without_rows : str or None, default=None
        The same without them, for output that is kept or passed on: JSON, logs. None: the message has none.
    """

    def __init__(self, message: str, without_rows: str | None = None) -> None:
        super().__init__(message)
        self.without_rows = message if without_rows is None else without_rows


class BatchStart(NamedTuple):
    """Where some rows of a file begin: how many rows are before them, and the byte, where the reader needs it."""

    row: int
    offset: int


def shown(value: object, longest: int = 40) -> str:
    """A name or an option as a message quotes it: one line, cut where it is long. Never a cell."""
    text = repr(value)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


class Source:
    """An open file.

    Parameters
    ----------
    name : str
        The path as the user gave it.
    raw : binary file
        Open for reading, at its start.
    size : int
        Its size in bytes, at least 1.
    """

    def __init__(self, name: str, raw: BufferedReader, size: int) -> None:
        self.name = name
        self.size = size
        self.batch_start: BatchStart | None = None  # of the last rows read, if reading can begin again with them
        self.width_from_rows = False  # whether the number of features is the largest index that somebody's row has
        self._raw = raw
        self._share: float | None = None
        self.suffix, self.packing = _suffixes(name)

    def refusal(
        self, what: str, *, line: int | None = None, row: int | None = None, column: str | None = None
    ) -> TableError:
        """The error that says `what` of a place in this file; lines and rows count from 1."""
        rows = [f"{kind} {number}" for kind, number in (("line", line), ("row", row)) if number is not None]
        columns = [] if column is None else [f"column {shown(column)}"]
        return TableError(
            f"{', '.join([self.name, *rows, *columns])}: {what}", f"{', '.join([self.name, *columns])}: {what}"
        )

    def format(self, asked: str | None) -> str:
        """The format that was asked for, or the one that the suffix says; refused where the first bytes contradict."""
        head = self._raw.read(8)
        self._raw.seek(0)
        found = next((begin for begin in _BEGINNINGS if head.startswith(begin)), b"")
        if asked is None:
            asked = next((name for name, suffixes in FORMATS.items() if self.suffix in suffixes), None)
            if asked is None and found and not self.packing:
                what, advice = _BEGINNINGS[found]
                raise self.refusal(f"this is {what}; {advice}")
        if asked is None:
            ends = ", ".join(suffix for suffixes in FORMATS.values() for suffix in suffixes)
            raise self.refusal(
                f"the suffix {self.suffix!r} does not determine the format; pass --format ({', '.join(FORMATS)}), or "
                "rename "
                f"the file ({ends}; text also with .gz or .bz2 after it)"
            )
        if asked not in FORMATS:
            raise self.refusal(f"--format must be one of {', '.join(FORMATS)}, not {asked!r}")
        if asked in _BINARY and self.packing:
            raise self.refusal(f"{asked} files are not read through {self.packing}; unpack the file")
        if found != _BINARY.get(asked, _PACKED.get(self.packing, b"")):
            self._contradict(asked, found)
        return asked

    def _contradict(self, asked: str, found: bytes) -> NoReturn:
        if found:
            what, advice = _BEGINNINGS[found]
            raise self.refusal(f"this is not {asked} but {what}; {advice}")
        if self.packing:
            raise self.refusal(
                f"not compressed as {self.packing}, or damaged; remove the suffix {self.packing} or copy the file again"
            )
        raise self.refusal(
            f"not {asked}, or damaged; copy it again, or pass its actual format (--format: {', '.join(FORMATS)})"
        )

    @property
    def share(self) -> float:
        """Which part of the file the rows come from that were read, in (0, 1]."""
        return self.position if self._share is None else self._share

    @property
    def position(self) -> float:
        """Which part of the bytes was read, in (0, 1]."""
        return max(self._raw.tell(), 1) / self.size

    def at(self, share: float | None) -> None:
        """Set `share`, for readers that jump about in the file or read ahead. None: by the position."""
        self._share = share

    @property
    def raw(self) -> BufferedReader:
        """The bytes as they lie on disk, for formats that are read from the end."""
        return self._raw

    def blocks(self, size: int | None = None) -> Iterator[bytes]:
        """The unpacked bytes in order, at most `size` at a time (None: `BLOCK_BYTES`)."""
        stream: BufferedReader | gzip.GzipFile | bz2.BZ2File = self._raw
        if self.packing == ".gz":
            stream = gzip.GzipFile(fileobj=self._raw)
        elif self.packing == ".bz2":
            stream = bz2.BZ2File(self._raw)
        try:
            while block := stream.read(size or BLOCK_BYTES):
                yield block
        except (EOFError, zlib.error, OSError):
            raise self.refusal(
                f"truncated or damaged at about byte {self._raw.tell():,} of {self.size:,}; copy it again"
            ) from None

    def fingerprint(self, progress: Progress | None = None) -> str:
        """ "sha256:" and the hash of the file's bytes as they lie on disk."""
        self._raw.seek(0)
        digest, buffer = hashlib.sha256(), memoryview(bytearray(_HASHED_BYTES))
        while size := self._raw.readinto(buffer):
            digest.update(buffer[:size])
            if progress is not None:
                progress.at(self.position)
        return f"sha256:{digest.hexdigest()}"


@contextmanager
def open_source(name: str) -> Iterator[Source]:
    """Open a regular file that is not empty, and notice where it changes while it is read."""
    try:
        with open(name, "rb") as raw:
            before = os.fstat(raw.fileno())
            if not stat.S_ISREG(before.st_mode):
                raise TableError(f"{name}: not a regular file; pass the path of a file")
            if not before.st_size:
                raise TableError(f"{name}: the file is empty; write the table again")
            yield Source(name, raw, before.st_size)
            after = os.fstat(raw.fileno())
            if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
                raise TableError(
                    f"{name}: changed while it was being read; wait until it is complete and read it again"
                )
    except IsADirectoryError:
        raise TableError(f"{name}: this is a folder, but not of blocks; pass the path of a file in it") from None
    except FileNotFoundError:
        raise TableError(f"{name}: no such file; check the path") from None
    except MemoryError:
        raise TableError(f"{name}: reading it needs more memory than is free; omit columns or rows") from None
    except OSError as error:
        raise TableError(
            f"{name}: cannot be read ({error.strerror or type(error).__name__}); check the path and its permissions"
        ) from None
    except ValueError as error:
        if isinstance(error, TableError) or "\0" not in name:
            raise
        raise TableError(f"{name!r}: not a path; it contains a NUL character") from None


def _suffixes(name: str) -> tuple[str, str]:
    """The suffix that says the format and the one that says the packing, in lower case; each may be ""."""
    stem, last = os.path.splitext(name.lower())
    if last in _PACKED:
        return os.path.splitext(stem)[1], last
    return last, ""


def whole_lines(source: Source, pieces: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Pieces cut anew after line ends, each with the number of its first line."""
    rest, line = b"", 1
    for piece in pieces:
        rest += piece
        cut = rest.rfind(b"\n") + 1
        if cut:
            yield line, rest[:cut]
            line += rest.count(b"\n")
            rest = rest[cut:]
        elif len(rest) > LONGEST_LINE:
            raise source.refusal(
                f"no row ends within {LONGEST_LINE >> 20} MiB; check --format and line endings", line=line
            )
    if rest:
        yield line, rest


@contextmanager
def report_damage(source: Source, what: str) -> Iterator[None]:
    """Turn any error of a library into one that says that `what` is damaged. Libraries raise many kinds of errors, and
    their messages can quote a cell: only the kind is named."""
    try:
        yield
    except (TableError, MemoryError):
        raise
    except Exception as error:
        raise source.refusal(
            f"{what} is truncated or damaged ({type(error).__name__}); copy or write the file again"
        ) from None


class Progress:
    """Says on standard error how much of a file is read and how many seconds are left."""

    def __init__(self, name: str, *, shown: bool, verb: str = "read") -> None:
        self._name = os.path.basename(name)
        self._verb = verb
        self._shown = shown
        self._start = self._last = time.monotonic()
        self._written = False

    def at(self, share: float) -> None:
        """A share in (0, 1] is done. Written twice a second at most."""
        now = time.monotonic()
        if not self._shown or (now - self._last < 0.5 and share < 1):
            return
        self._last = now
        left = (now - self._start) * (1 - share) / share
        text = f"\r{self._name}: {share:4.0%} {self._verb}, {left:.0f} s left "
        print(text, end="", file=sys.stderr, flush=True)
        self._written = True

    def close(self) -> None:
        """Ends the line."""
        if self._written:
            print(file=sys.stderr)
