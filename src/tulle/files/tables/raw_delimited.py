"""CSV as cells: by pyarrow's parser, and by the standard library where pyarrow is not installed or gives up.

For pyarrow the file is cut between rows into pieces (`tulle.files.tables.row_cuts`), which are parsed by themselves, by
several threads where asked. The standard library decides. What pyarrow refuses, in messages that quote rows, is read
again by it: either the line at fault is found, or the rows are read. The rules are those in
`tulle.files.tables.raw_cells.open_raw`; tests compare both parsers on the same bytes.
"""

from __future__ import annotations

import codecs
import csv
import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from tulle.files.tables import input_files
from tulle.files.tables.columns import DOUBTFUL, is_number, missing_spellings
from tulle.files.tables.delimited import NUL, Lines, Text, divide, find_delimiter
from tulle.files.tables.in_order import map_in_order
from tulle.files.tables.input_files import BatchStart, Progress, Source
from tulle.files.tables.raw_cells import Cells, Choose, RawBatch, RawTable, check_names, chosen_columns
from tulle.files.tables.row_cuts import ends_outside_quotes, last_row_end

# What pyarrow parses at a time: its columns should stay in the processor's cache while rows are made of them.
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

    def batches(jobs: int = 1, start: BatchStart | None = None) -> Iterator[RawBatch]:
        for part in cells.batches(places, progress, plain=plain, jobs=jobs, start=start):
            yield RawBatch(dict(zip(columns, part)), len(part[0]), source.batch_start)

    return RawTable(source.name, tuple(cells.names), columns, (), batches, source.fingerprint)


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
        character are refused, messages say how many cells a row has, and the delimiter is also looked for in the first
        line where it is a row.

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
        finish: Callable[[list[Cells]], Any] = list,
        jobs: int = 1,
        start: BatchStart | None = None,
    ) -> Iterator[Any]:
        """All rows after the header, some at a time: what `finish` makes of their columns.

        Parameters
        ----------
        places : sequence of int
            The columns to read.
        progress : Progress
        plain : bool, default=False
            Whether to read by the standard library although pyarrow is installed, into arrays of numpy.
        numbers : collection of int, default=()
            Columns that pyarrow is to read as float64. If there are any, its array of one is of that type, or is an
            object array of text: from the first piece on in which a cell is no number to it.
        missing : bool, default=False
            Whether a cell among these numbers that says that there is no value is null. If not, it is no number.
        finish : callable, default=list
            Called with the columns of some rows, by any thread.
        jobs : int, default=1
            Threads that parse at a time.
        start : BatchStart or None, default=None
            Rows to skip: a `Source.batch_start` of an earlier reading of the same file.
        """
        n_rows, complete = (0, False) if start is None else (start.row, False)
        if not plain and self._delimiter.isascii() and _has_pyarrow():
            parser = _ArrowParser(self._delimiter, len(self.names), places, numbers, missing=missing)
            pieces = _Pieces(self._source, self._text, self._delimiter, self._start)
            parts = map_in_order(partial(_parse, parser, finish), pieces.cut(start), jobs)
            with closing(parts):
                for part in parts:
                    if part is None:
                        break
                    self._report(progress, part.share)
                    exact = self._text.exact
                    self._source.batch_start = BatchStart(n_rows, part.offset) if exact else None
                    n_rows += part.n_rows
                    yield part.content
                else:
                    complete = pieces.complete
            self._source.at(None)
        if not complete:
            to_cells = _object_array if plain or numbers or not _has_pyarrow() else _string_array
            self._source.batch_start = None
            for rows in self._plain_rows(places, n_rows):
                n_rows += len(rows)
                progress.at(self._source.share)
                yield finish([to_cells(cells) for cells in zip(*rows)])
        if not n_rows:
            raise self._source.refusal("a header but no rows; write the table again")
        progress.at(1.0)

    def _report(self, progress: Progress, share: float) -> None:
        self._source.at(share)
        progress.at(share)

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


class _Piece(NamedTuple):
    """Whole rows of a file, where they begin, and which part of the file they end at."""

    text: bytes
    offset: int
    share: float


class _Part(NamedTuple):
    """What was made of a piece."""

    content: Any
    n_rows: int
    offset: int
    share: float


class _Pieces:
    """A file cut between rows.

    Parameters
    ----------
    source : Source
    text : Text
    delimiter : str
        One ASCII character.
    begin : int
        How many bytes of UTF-8 the header takes.

    Attributes
    ----------
    complete : bool
        Whether all rows were handed out. If not, the standard library says why.
    """

    def __init__(self, source: Source, text: Text, delimiter: str, begin: int) -> None:
        self._source, self._text, self._delimiter, self._begin = source, text, delimiter, begin
        self.complete = False

    def cut(self, start: BatchStart | None) -> Iterator[_Piece]:
        """The rows, from `start` on."""
        # The header is skipped in the decoded text: its length in the file differs where bytes of it are replaced.
        offset, skip, begin = (self._begin, self._begin, 0) if start is None else (start.offset, 0, start.offset)
        rest, taken = b"", 1
        stream = self._text.encoded(min(input_files.BLOCK_BYTES, _ARROW_BYTES), begin)
        while True:
            try:
                piece = next(stream, None)
            except MemoryError:
                raise
            except Exception:  # raised again by the standard library, with its line
                return
            if piece is None:
                break
            dropped = min(skip, len(piece))
            skip -= dropped
            taken += len(piece)
            whole = rest + piece[dropped:]
            end = last_row_end(whole, self._delimiter)
            text, rest = whole[:end], whole[end:]
            if not _is_blank(text):
                yield _Piece(text, offset, self._source.position * (1 - len(rest) / taken))
            offset += end
            if len(rest) > input_files.LONGEST_LINE:
                return
        if not ends_outside_quotes(rest, self._delimiter):
            return
        if not _is_blank(rest):
            yield _Piece(rest, offset, 1.0)
        self.complete = True


def _is_blank(text: bytes) -> bool:
    """Whether there are line ends alone. Mostly the first byte tells."""
    return text[:1] in (b"", b"\r", b"\n") and not text.strip(b"\r\n")


def _parse(parser: _ArrowParser, finish: Callable[[list[Cells]], Any], piece: _Piece) -> _Part | None:
    columns = parser.read(piece.text)
    return None if columns is None else _Part(finish(columns), len(columns[0]), piece.offset, piece.share)


class _ArrowParser:
    """pyarrow's reader of CSV.

    Parameters
    ----------
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
    """

    def __init__(
        self, delimiter: str, width: int, places: Sequence[int], numbers: Collection[int], *, missing: bool
    ) -> None:
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        self._names = [str(place) for place in range(width)]
        types = {str(place): pa.float64() if place in numbers else pa.string() for place in places}
        self._parse_options = arrow_csv.ParseOptions(
            delimiter=delimiter, newlines_in_values=True, ignore_empty_lines=True
        )
        self._convert_options = arrow_csv.ConvertOptions(
            check_utf8=False,
            column_types=types,
            include_columns=list(types),
            null_values=missing_spellings() if missing else [],
            strings_can_be_null=False,
        )

    def read(self, text: bytes) -> list[Cells] | None:
        """The columns of whole rows; None at an error, which is not shown: it quotes a row."""
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        if text.startswith(codecs.BOM_UTF8):  # pyarrow skips one, and here it belongs to a cell
            text = codecs.BOM_UTF8 + text
        options = arrow_csv.ReadOptions(use_threads=False, block_size=len(text) + 1, column_names=self._names)
        try:
            table = arrow_csv.read_csv(
                pa.BufferReader(text),
                read_options=options,
                parse_options=self._parse_options,
                convert_options=self._convert_options,
            )
        except MemoryError:
            raise
        except Exception:
            return None
        columns = [part.chunk(0) if part.num_chunks == 1 else part.combine_chunks() for part in table.columns]
        return columns if table.num_rows else None
