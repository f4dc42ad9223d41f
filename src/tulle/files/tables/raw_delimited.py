"""CSV as cells: by pyarrow's parser, and by the standard library where pyarrow is not installed or gives up.

The standard library decides. What pyarrow refuses, in messages that quote rows, is read again here: either the line at
fault is found, or the rows are read (one longer than pyarrow's blocks, for example). The rules are those in
`tulle.files.tables.raw_cells.open_raw`; tests compare both parsers on the same bytes.
"""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import math
import threading
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from tulle.files.tables.columns import is_number
from tulle.files.tables.delimited import NO_ROWS, NUL, ONLY_BLANK, ONLY_NUMBERS, Delimiter, text_decoder
from tulle.files.tables.input_files import BLOCK_BYTES, LONGEST_LINE, Progress, Source, shown
from tulle.files.tables.raw_cells import Cells, Choose, RawBatch, RawTable, check_names, chosen_columns

# A NUL character is replaced in all that is read. A row of them after the last row shows whether that has ended: if
# a quotation mark is open, they are part of its cell.
_END, _REPLACEMENT = "\0", "\ufffd"
# Read at first, for the header.
_HEAD_BYTES = 1 << 16
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
    text = _Text(source, encoding)
    lines = _Lines(source, text.pieces(min(BLOCK_BYTES, _HEAD_BYTES)))
    mark = _delimiter(source, lines, header, delimiter)
    # The limit of the module holds for the process. It is raised for good: lowered, it could fail another thread.
    csv.field_size_limit(max(csv.field_size_limit(), 2 * LONGEST_LINE))
    lines.kept = []
    first = next(_rows(source, lines, mark), None)
    if first is None:
        raise source.refusal(ONLY_BLANK)
    if header and text.first_nul < lines.characters:
        raise source.refusal(NUL, line=1)
    names = [cell.strip() for cell in first] if header else [str(place) for place in range(len(first))]
    if header and all(is_number(name) for name in names):
        raise source.refusal(ONLY_NUMBERS, line=lines.row_line)
    check_names(source, names)
    columns = chosen_columns(source, names, choose)
    cells = _CsvCells(source, text, mark, names, columns, len("".join(lines.kept).encode()) if header else 0)
    arrow = not plain and mark.isascii() and _has_pyarrow()
    return RawTable(
        source.name,
        tuple(names),
        columns,
        lambda: cells.batches(progress, arrow=arrow, plain=plain),
        source.fingerprint,
    )


def _delimiter(source: Source, lines: _Lines, header: bool, given: str | None) -> str:
    mark = Delimiter(source, given)
    if given == _END:
        raise source.refusal(f"--delimiter must be a printed character, not {shown(given)}")
    if given is not None:
        return given
    if not header:  # the first line is somebody's row
        return "\t" if source.suffix == ".tsv" else ","
    return mark.of(lines.first_line())


def _has_pyarrow() -> bool:
    try:
        import pyarrow.csv  # noqa: F401
    except ImportError:
        return False
    return True


# --- text and lines ------------------------------------------------------------------------------------------------


class _Text:
    """The characters of a file. Bytes that are not in its encoding and NUL characters are replaced; a byte-order mark
    is skipped."""

    def __init__(self, source: Source, encoding: str) -> None:
        text_decoder(source, encoding)  # refuses unknown ones
        self._source = source
        self._encoding = encoding
        self._utf8 = codecs.lookup(encoding).name in ("utf-8", "utf-8-sig")
        self.first_nul = math.inf  # how many characters come before the first NUL, of those that `pieces` has read

    def pieces(self, size: int) -> Iterator[str]:
        """All characters, in pieces of about `size` bytes that do not end inside a line end."""
        decoder = text_decoder(self._source, self._encoding, "replace", translate=False)
        self._source.raw.seek(0)
        n_characters = 0
        for block in itertools.chain(self._source.blocks(size), [b""]):
            try:
                text = decoder.decode(block, final=not block)
            except ValueError:  # a few decoders cannot replace what they cannot read
                text = None
            if text is None:
                raise self._source.refusal(f"not {self._encoding}; pass the right --encoding")
            if not self._utf8:  # some have surrogates, which no UTF-8 has
                text = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
            if _END in text:
                self.first_nul = min(self.first_nul, n_characters + text.index(_END))
                text = text.replace(_END, _REPLACEMENT)
            n_characters += len(text)
            yield text

    def encoded(self, size: int) -> Iterator[bytes]:
        """The same characters as UTF-8; where the file is UTF-8 it is checked and not decoded."""
        if not self._utf8:
            for text in self.pieces(size):
                yield text.encode()
            return
        self._source.raw.seek(0)
        rest, begun = b"", False
        for block in itertools.chain(self._source.blocks(size), [b""]):
            whole = rest + block
            cut = _whole_characters(whole) if block else len(whole)
            piece, rest = whole[:cut], whole[cut:]
            if piece and not begun:
                piece, begun = piece.removeprefix(codecs.BOM_UTF8), True
            piece = piece if _is_utf8(piece) else piece.decode("utf-8", "replace").encode()
            yield piece.replace(_END.encode(), _REPLACEMENT.encode())


def _whole_characters(text: bytes) -> int:
    """Where the last character begins if it is not complete, else the length. A decoder could stop and go on there."""
    for back, byte in enumerate(reversed(text[-3:]), 1):
        if byte >= 0xC0:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(text) - back if needed > back else len(text)
        if byte < 0x80:
            break
    return len(text)


def _is_utf8(text: bytes) -> bool:
    """By pyarrow, several times faster than decoding."""
    import pyarrow as pa

    offsets = np.array([0, len(text)], dtype=np.int32)
    array = pa.StringArray.from_buffers(1, pa.py_buffer(offsets), pa.py_buffer(text))
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _line_ends(text: str) -> int:
    return text.count("\n") + text.count("\r") - text.count("\r\n")


class _Lines:
    """Lines with their ends for `csv.reader`, the last one `_END`; counts what was handed out."""

    def __init__(self, source: Source, pieces: Iterator[str]) -> None:
        self._source = source
        self._cut = self._lines(pieces)
        self._ahead: list[str] = []
        self._line = 0
        self._row_start = 0
        self.characters = 0
        self.row_line = 1
        self.ended = False
        self.kept: list[str] | None = None  # what was handed out, for those who need it

    def begin_row(self) -> None:
        """What follows is a new row."""
        self._row_start, self.row_line = self.characters, self._line + 1

    def first_line(self) -> str:
        """The first line that is not blank, without its end; it is not handed out by this."""
        for line in self._cut:
            self._ahead.append(line)
            if line.strip("\r\n"):
                return line.strip("\r\n")
        return ""

    def __iter__(self) -> Iterator[str]:
        for line in itertools.chain(self._ahead, self._cut):
            self.ended = line == _END
            self._line += 1
            self.characters += len(line)
            if self.kept is not None:
                self.kept.append(line)
            yield line

    def _lines(self, pieces: Iterator[str]) -> Iterator[str]:
        rest = ""
        for text in pieces:
            whole, rest = rest + text, ""
            for line in io.StringIO(whole, newline=""):
                if line[-1] not in "\r\n":  # the last one of this text
                    rest = line
                    break
                yield line
            if self.characters + len(rest) - self._row_start > LONGEST_LINE:
                raise self._source.refusal(
                    f"no row ends within {LONGEST_LINE >> 20} MiB; check line endings and unclosed quotation marks",
                    line=self.row_line,
                )
        if rest:
            yield f"{rest}\n"
        yield _END


def _rows(source: Source, lines: _Lines, delimiter: str) -> Iterator[list[str]]:
    """The rows that are not blank; `lines.row_line` is the first line of the last one."""
    reader = csv.reader(lines, delimiter=delimiter)
    while True:
        lines.begin_row()
        try:
            row = next(reader)
        except csv.Error:
            raise source.refusal("cells cannot be separated here", line=lines.row_line) from None
        if lines.ended:
            if row != [_END]:
                raise source.refusal(
                    "a quotation mark that begins here is not closed; the file may be truncated", line=lines.row_line
                )
            return
        if row:
            yield row


# --- batches -------------------------------------------------------------------------------------------------------


class _CsvCells:
    """The rows after the header.

    Parameters
    ----------
    source : Source
    text : _Text
    delimiter : str
    names : sequence of str
        Of all columns.
    columns : tuple of str
        To be read.
    start : int
        How many bytes of UTF-8 the header takes.
    """

    def __init__(
        self,
        source: Source,
        text: _Text,
        delimiter: str,
        names: Sequence[str],
        columns: tuple[str, ...],
        start: int,
    ) -> None:
        self._source = source
        self._text = text
        self._delimiter = delimiter
        self._width = len(names)
        self._columns = columns
        self._places = [names.index(name) for name in columns]
        self._start = start

    def batches(self, progress: Progress, *, arrow: bool, plain: bool) -> Iterator[RawBatch]:
        """All rows; by pyarrow as far as it can where `arrow`, in numpy's arrays where `plain`."""
        n_rows = 0
        complete = False
        if arrow:
            parser = _ArrowParser(self._bytes(), self._delimiter, self._width, self._places)
            try:
                while (part := parser.next_part()) is not None:
                    n_rows += len(part[0])
                    progress.at(self._source.share)
                    yield RawBatch(dict(zip(self._columns, part)), len(part[0]))
            finally:
                parser.stop()
            complete = parser.complete
        if not complete:
            to_cells = _object_array if plain or not _has_pyarrow() else _string_array
            for rows in self._plain_rows(n_rows):
                n_rows += len(rows)
                progress.at(self._source.share)
                yield RawBatch({name: to_cells(cells) for name, cells in zip(self._columns, zip(*rows))}, len(rows))
        if not n_rows:
            raise self._source.refusal(NO_ROWS)

    def _bytes(self) -> Iterator[bytes]:
        """UTF-8 for pyarrow, which skips one byte-order mark: the one that is written here, and none of a cell."""
        yield codecs.BOM_UTF8
        skipped, last = 0, b"\n"
        for piece in self._text.encoded(min(BLOCK_BYTES, _ARROW_BYTES)):
            rest = piece[max(0, self._start - skipped) :]
            skipped += len(piece) - len(rest)
            last = rest[-1:] or last
            yield rest
        end = "" if last in b"\r\n" else "\n"
        yield f"{end}{self._delimiter.join(_END * self._width)}\n".encode()

    def _plain_rows(self, skip: int) -> Iterator[list[Sequence[str]]]:
        """The chosen cells of the rows after the first `skip`, some rows at a time."""
        lines = _Lines(self._source, self._text.pieces(BLOCK_BYTES))
        rows = _rows(self._source, lines, self._delimiter)
        if self._start:
            next(rows)
        places = self._places
        take = itemgetter(*places) if len(places) > 1 else lambda row: (row[places[0]],)
        taken: list[Sequence[str]] = []
        begin = lines.characters
        for row in rows:
            if len(row) != self._width:
                raise self._source.refusal(
                    "a row with more or fewer cells than the first line; the file may be truncated here, or a cell "
                    f"that contains {self._delimiter!r} lacks quotation marks",
                    line=lines.row_line,
                )
            if skip:
                skip -= 1
                continue
            taken.append(take(row))
            if lines.characters - begin >= BLOCK_BYTES:
                yield taken
                taken, begin = [], lines.characters
        if taken:
            yield taken


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
    pieces : iterator of bytes
        UTF-8, with `_END` in every cell of the last row.
    delimiter : str
        One ASCII character.
    width : int
        The number of columns.
    places : sequence of int
        The columns to read.
    """

    def __init__(self, pieces: Iterator[bytes], delimiter: str, width: int, places: Sequence[int]) -> None:
        self._stream = _ByteStream(pieces)
        self._settings = (delimiter, width, [str(place) for place in places])
        self._reader: Any = None
        self._held: list[Cells] | None = None
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
            if part is None:
                return self._last(held)
            if held is not None:
                return held

    def _last(self, held: list[Cells] | None) -> list[Cells] | None:
        """The last rows without `_END`; the file was read to its end only if it is there."""
        if held is None or held[0][-1].as_py() != _END:
            return None
        self.complete = True
        return [cells[:-1] for cells in held] if len(held[0]) > 1 else None

    def _read(self) -> list[Cells] | None:
        """The rows of a block; None at the end."""
        if self._reader is None:
            self._reader = self._open()
        while True:
            try:
                batch = self._reader.read_next_batch()
            except StopIteration:
                return None
            if batch.num_rows:
                return list(batch.columns)

    def _open(self) -> Any:
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        delimiter, width, chosen = self._settings
        names = [str(place) for place in range(width)]
        return arrow_csv.open_csv(
            self._stream,
            read_options=arrow_csv.ReadOptions(
                use_threads=False, block_size=min(BLOCK_BYTES, _ARROW_BYTES), column_names=names
            ),
            parse_options=arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True, ignore_empty_lines=True),
            convert_options=arrow_csv.ConvertOptions(
                check_utf8=False,
                column_types=dict.fromkeys(names, pa.string()),
                include_columns=chosen,
                null_values=[],
                strings_can_be_null=False,
            ),
        )

    def stop(self) -> None:
        """Read no more of the file, in pyarrow's thread either."""
        self._stream.stop()
        self._reader = self._held = None


class _ByteStream(io.RawIOBase):
    """Pieces of bytes as a file, for pyarrow, which reads ahead in a thread of its own."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""
        self._lock = threading.Lock()

    def readable(self) -> bool:
        """True."""
        return True

    def read(self, size: int = -1) -> bytes:
        """As many bytes as asked for, or those up to the end; one fewer where they would end inside a line end."""
        with self._lock:
            # A short block could be shorter than a row.
            parts, length = [self._rest], len(self._rest)
            while size < 0 or length <= size:
                piece = next(self._pieces, None)
                if piece is None:
                    break
                parts.append(piece)
                length += len(piece)
            whole = b"".join(parts)
            end = length if size < 0 else size
            # pyarrow takes a newline that begins a block for the rest of a line end, inside a quoted cell too.
            if 1 < end < length and whole[end - 1 : end + 1] == b"\r\n":
                end -= 1
            self._rest = whole[end:]
            return whole[:end]

    def stop(self) -> None:
        """The stream ends here."""
        with self._lock:
            self._pieces, self._rest = iter(()), b""
