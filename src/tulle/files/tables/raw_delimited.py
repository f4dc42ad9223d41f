"""CSV as cells: by pyarrow's parser, and by the standard library where pyarrow is not installed or gives up.

The standard library decides. What pyarrow refuses, in messages that quote rows, is read again by it: either the line at
fault is found, or the rows are read (one longer than pyarrow's blocks, for example). The rules are those in
`tulle.files.tables.raw_cells.open_raw`; tests compare both parsers on the same bytes.
"""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import threading
from collections.abc import Collection, Iterator, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from tulle.files.tables import input_files
from tulle.files.tables.columns import DOUBTFUL, is_number, missing_spellings
from tulle.files.tables.delimited import END, NUL, Lines, Text, divide, find_delimiter
from tulle.files.tables.input_files import Progress, Source
from tulle.files.tables.raw_cells import Cells, Choose, RawBatch, RawTable, check_names, chosen_columns

# For pyarrow, which holds up to 32 blocks that it has read ahead. A row that is longer is left to the standard library.
_ARROW_BYTES = 1 << 20


def open_csv_cells(
    source: Source,
    choose: Choose,
    header: bool,
    delimiter: str | None,
    encoding: str,
    progress: Progress,
    *,
    plain: bool = False,
) -> RawTable:
    """Read the header and choose columns; see `tulle.files.tables.raw_cells.open_raw`."""
    cells = CsvCells(source, header, delimiter, encoding)
    check_names(source, cells.names)
    columns = chosen_columns(source, cells.names, choose)
    places = [cells.names.index(name) for name in columns]

    def batches() -> Iterator[RawBatch]:
        for part in cells.batches(places, progress, plain=plain):
            yield RawBatch(dict(zip(columns, part)), len(part[0]))

    return RawTable(source.name, tuple(cells.names), columns, batches, source.fingerprint)


def _text_bytes() -> int:
    """How much the standard library reads at a time: cells as Python's objects take some 40 times the memory."""
    return max(1, input_files.BLOCK_BYTES // 32)


def _has_pyarrow() -> bool:
    try:
        import pyarrow.csv  # noqa: F401
    except ImportError:
        return False
    return True


class CsvCells:
    """A CSV file whose header was read.

    Parameters
    ----------
    source : Source
    header, delimiter, encoding
        See `tulle.files.tables.raw_cells.open_raw`.
    strict : bool, default=False
        For tables of numbers, which are refused for their cells. Whether a byte that is not in the encoding and a NUL
        character are refused, how many cells a row has is told, and the delimiter is looked for in the first line also
        where it is a row.

    Attributes
    ----------
    names : list of str
        Of all columns; "" for one without.
    doubtful : bool
        Whether the header may be somebody's row, as it has a number in it.
    """

    def __init__(
        self, source: Source, header: bool, delimiter: str | None, encoding: str, *, strict: bool = False
    ) -> None:
        self._source = source
        self._strict = strict
        self._text = Text(source, encoding, strict=strict)
        lines = Lines(source, self._text.pieces(_text_bytes()))
        self._delimiter = find_delimiter(source, lines, delimiter, look=header or strict)
        # The limit of the module holds for the process. It is raised for good: lowered, it could fail another thread.
        csv.field_size_limit(max(csv.field_size_limit(), 2 * input_files.LONGEST_LINE))
        lines.kept = []
        first = next(divide(source, lines, self._delimiter), None)
        if first is None:
            raise source.refusal("only blank lines; write the table again")
        if header and self._text.first_nul < lines.characters:
            raise source.refusal(NUL, line=1)
        self.names = [cell.strip() for cell in first] if header else [str(place) for place in range(len(first))]
        if header and all(is_number(name) for name in self.names):
            raise source.refusal(
                "the first line has only numbers; if it is a row, pass --no-header, and if it is the header, give a "
                "column a name that is not a number",
                line=lines.row_line,
            )
        self.doubtful = header and any(is_number(name) for name in self.names)
        self._start = len("".join(lines.kept).encode()) if header else 0  # bytes of UTF-8 that the header takes

    def _rows(self) -> tuple[Lines, Iterator[list[str]]]:
        """The rows after the header, and the lines that they are in."""
        lines = Lines(self._source, self._text.pieces(_text_bytes()))
        rows = divide(self._source, lines, self._delimiter)
        if self._start:
            next(rows)
        return lines, rows

    def first_cell(self, place: int) -> str | None:
        """A cell of the first row; None where there is none."""
        row = next(self._rows()[1], [])
        return row[place] if place < len(row) else None

    def lines_of(self, numbers: Collection[int]) -> dict[int, int]:
        """The first line of each of the rows with these numbers; both count from 1."""
        lines, rows = self._rows()
        return {row: lines.row_line for row, _ in enumerate(itertools.islice(rows, max(numbers)), 1) if row in numbers}

    def batches(
        self,
        places: Sequence[int],
        progress: Progress,
        *,
        plain: bool = False,
        numbers: Collection[int] = (),
        missing: bool = False,
    ) -> Iterator[list[Cells]]:
        """All rows after the header, some at a time.

        Parameters
        ----------
        places : sequence of int
            The columns to read.
        progress : Progress
        plain : bool, default=False
            Whether to read by the standard library although pyarrow is installed, into arrays of numpy.
        numbers : collection of int, default=()
            Columns that pyarrow is to read as float64. If there are any, its array of one is of that type, or is an
            object array of text: from the first block on in which a cell is no number to it.
        missing : bool, default=False
            Whether a cell among these numbers that says that there is no value is null. If not, it is no number.
        """
        n_rows, complete = 0, False
        if not plain and self._delimiter.isascii() and _has_pyarrow():
            stream = _ByteStream(self._bytes(), self._source)
            parser = _ArrowParser(stream, self._delimiter, len(self.names), places, numbers, missing=missing)
            try:
                while (part := parser.next_part()) is not None:
                    n_rows += len(part[0])
                    self._source.at(parser.share)
                    progress.at(parser.share)
                    yield part
            finally:
                parser.stop()
                self._source.at(None)
            complete = parser.complete
        if not complete:
            to_cells = _object_array if plain or numbers or not _has_pyarrow() else _string_array
            for rows in self._plain_rows(places, n_rows):
                n_rows += len(rows)
                progress.at(self._source.share)
                yield [to_cells(cells) for cells in zip(*rows)]
        if not n_rows:
            raise self._source.refusal("a header but no rows; write the table again")
        progress.at(1.0)

    def _bytes(self) -> Iterator[bytes]:
        """UTF-8 for pyarrow, which skips one byte-order mark: the one that is written here, and none of a cell."""
        yield codecs.BOM_UTF8
        skipped, last = 0, b"\n"
        for piece in self._text.encoded(min(input_files.BLOCK_BYTES, _ARROW_BYTES)):
            rest = piece[max(0, self._start - skipped) :]
            skipped += len(piece) - len(rest)
            last = rest[-1:] or last
            yield rest
        end = "" if last in b"\r\n" else "\n"
        yield f"{end}{self._delimiter.join(END * len(self.names))}\n".encode()

    def _plain_rows(self, places: Sequence[int], skip: int) -> Iterator[list[Sequence[str]]]:
        """The chosen cells of the rows after the first `skip`, some rows at a time."""
        lines, rows = self._rows()
        take = itemgetter(*places) if len(places) > 1 else lambda row: (row[places[0]],)
        taken: list[Sequence[str]] = []
        begin, width, size = lines.characters, len(self.names), _text_bytes()
        for row in rows:
            if len(row) != width:
                raise self._source.refusal(self._ragged(len(row)), line=lines.row_line)
            if skip:
                skip -= 1
                continue
            taken.append(take(row))
            if lines.characters - begin >= size:
                self._source.at(lines.share)
                yield taken
                taken, begin = [], lines.characters
        self._source.at(1.0)
        if taken:
            yield taken

    def _ragged(self, n_cells: int) -> str:
        what = "a row with more or fewer cells than the first line"
        if self._strict:
            what = f"{n_cells} cells, but the first line has {len(self.names)}"
        doubt = f" ({DOUBTFUL})" if self._strict and self.doubtful else ""
        return (
            f"{what}; the file may be truncated here, or a cell that contains {self._delimiter!r} lacks quotation "
            f"marks{doubt}"
        )


def _object_array(cells: Sequence[str]) -> Cells:
    array = np.empty(len(cells), dtype=object)
    array[:] = cells
    return array


def _string_array(cells: Sequence[str]) -> Cells:
    import pyarrow as pa

    return pa.array(cells, pa.string())


class _ArrowParser:
    """pyarrow's streaming reader of CSV. It stops at its first error, which is not shown: it quotes a row.

    Parameters
    ----------
    stream : _ByteStream
        UTF-8, with `END` in every cell of the last row.
    delimiter : str
        One ASCII character.
    width : int
        The number of columns.
    places : sequence of int
        The columns to read.
    numbers : collection of int
        Those of them to read as float64; the others are strings.
    missing : bool
        Whether a number may be missing, and is null then.

    Attributes
    ----------
    share : float
        Which part of the file the rows come from that were read, in (0, 1].
    complete : bool
        Whether they are all.
    """

    def __init__(
        self,
        stream: _ByteStream,
        delimiter: str,
        width: int,
        places: Sequence[int],
        numbers: Collection[int],
        *,
        missing: bool,
    ) -> None:
        self._stream = stream
        self._delimiter = delimiter
        self._names = [str(place) for place in range(width)]
        self._n_columns = len(places)
        self._kinds = {str(place): "float64" if place in numbers else "string" for place in places}
        self._nulls, self._end = [END], 0
        if missing:  # the end shows in the last column only, which is read whether it was asked for or not
            self._nulls += missing_spellings()
            self._kinds.setdefault(self._names[-1], "string")
            self._end = list(self._kinds).index(self._names[-1])
        self._reader: Any = None
        self._held: list[Cells] | None = None
        self._n_blocks = 0
        self.share = 1.0
        self.complete = False

    def next_part(self) -> list[Cells] | None:
        """The next rows, a column each; None at the end, or at an error."""
        if self.complete:
            return None
        while True:
            try:
                part = self._read()
            except MemoryError:
                raise
            except Exception:
                return None
            held, self._held = self._held, part
            self.share = 1.0 if part is None else self._stream.share_after(self._n_blocks - 1)
            if part is None:
                return self._last(held)
            if held is not None:
                return held[: self._n_columns]

    def _last(self, held: list[Cells] | None) -> list[Cells] | None:
        """The last rows without `END`; the file was read to its end only if it is there.

        If a quotation mark is open, all that follows is in the last cell of its row, and not `END` alone, no number and
        not null. The cells before it are null only if numbers may be missing.
        """
        if held is None or held[self._end][-1].as_py() not in (None, END):
            return None
        self.complete = True
        return [cells[:-1] for cells in held[: self._n_columns]] if len(held[0]) > 1 else None

    def _read(self) -> list[Cells] | None:
        """The rows of a block; None at the end."""
        if self._reader is None:
            self._reader = self._open()
        while True:
            try:
                batch = self._reader.read_next_batch()
            except StopIteration:
                return None
            self._n_blocks += 1
            if batch.num_rows:
                return list(batch.columns)

    def _open(self) -> Any:
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        types = {name: pa.type_for_alias(kind) for name, kind in self._kinds.items()}
        return arrow_csv.open_csv(
            self._stream,
            read_options=arrow_csv.ReadOptions(
                use_threads=False, block_size=min(input_files.BLOCK_BYTES, _ARROW_BYTES), column_names=self._names
            ),
            parse_options=arrow_csv.ParseOptions(
                delimiter=self._delimiter, newlines_in_values=True, ignore_empty_lines=True
            ),
            convert_options=arrow_csv.ConvertOptions(
                check_utf8=False,
                column_types=types,
                include_columns=list(types),
                null_values=self._nulls,
                strings_can_be_null=False,
            ),
        )

    def stop(self) -> None:
        """Read no more of the file, in pyarrow's thread either."""
        self._stream.stop()
        self._reader = self._held = None


class _ByteStream(io.RawIOBase):
    """Pieces of bytes as a file, for pyarrow, which reads ahead in a thread of its own."""

    def __init__(self, pieces: Iterator[bytes], source: Source) -> None:
        self._pieces = pieces
        self._source = source
        self._n_taken = 0
        self._shares: list[float] = []  # of the file, after each read
        self._rest = b""
        self._lock = threading.Lock()

    def readable(self) -> bool:
        """True."""
        return True

    def read(self, size: int = -1) -> bytes:
        """At least half as many bytes as asked for, as a block could be shorter than a row, or those up to the end."""
        with self._lock:
            parts, length, ended = [self._rest] if self._rest else [], len(self._rest), False
            while not ended and (size < 0 or 2 * length < size):
                piece = next(self._pieces, None)
                ended = piece is None
                if piece:
                    parts.append(piece)
                    length += len(piece)
                    self._n_taken += len(piece)
            whole = b"".join(parts)  # no copy where it is one
            end = length if size < 0 else min(size, length)
            # pyarrow takes a newline that begins a block for the rest of a line end, inside a quoted cell too.
            if not ended and end > 1 and whole[end - 1 : end] == b"\r":
                end -= 1
            self._rest = whole[end:]
            self._shares.append(self._source.position * (1 - len(self._rest) / max(self._n_taken, 1)))
            return whole[:end]

    def share_after(self, n_blocks: int) -> float:
        """Which part of the file was read when so many blocks were."""
        return self._shares[min(max(n_blocks, 1), len(self._shares)) - 1]

    def stop(self) -> None:
        """The stream ends here."""
        with self._lock:
            self._pieces, self._rest = iter(()), b""
