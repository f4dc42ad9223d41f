"""CSV by the standard library: characters, lines and rows. What a cell holds is not looked at.

The rules are those in `tulle.files.tables.raw_cells.open_raw`.
"""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import math
import re
from collections.abc import Iterator

import numpy as np

from tulle.files.tables import input_files
from tulle.files.tables.input_files import Source, TableError, shown

# A NUL character is replaced or refused in all that is read. A row of them after the last row shows whether that has
# ended: if a quotation mark is open, they are part of its cell.
END, _REPLACEMENT = "\0", "\ufffd"
NUL = "a NUL character: not text, or text in another encoding; try --encoding utf-16, or pass the right --format"

_DELIMITERS = (",", ";", "\t")
_NOT_ASCII = bytes(range(128, 256))
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def find_delimiter(source: Source, lines: Lines, given: str | None, *, look: bool) -> str:
    """The mark that was given, or the most frequent one in the first line.

    Parameters
    ----------
    source : Source
    lines : Lines
    given : str or None
    look : bool
        Whether the first line may be looked at. If not, the mark is the one that the file's suffix says.
    """
    if given is not None:
        if len(given) != 1 or given in f'"\r\n{END}':
            raise source.refusal(f"--delimiter must be one character, not {shown(given)}")
        return given
    if not look:
        return "\t" if source.suffix == ".tsv" else ","
    unquoted = re.sub('"[^"]*"', "", lines.first_line())
    return max(_DELIMITERS, key=unquoted.count)


class Text:
    """The characters of a file without a byte-order mark.

    Parameters
    ----------
    source : Source
    encoding : str
    strict : bool
        Whether bytes that are not in the encoding and NUL characters are refused, by their line. If not, replacement
        characters stand for them.
    """

    def __init__(self, source: Source, encoding: str, *, strict: bool) -> None:
        self._source = source
        self._encoding = encoding
        self._strict = strict
        self._decoder()  # refuses unknown encodings
        self._utf8 = codecs.lookup(encoding).name in ("utf-8", "utf-8-sig")
        # Whether all that `encoded` has read is the bytes of the file, so that a position in it is one in the file.
        self.exact = self._utf8 and not source.packing
        self.first_nul = math.inf  # how many characters come before the first NUL, of those that `pieces` has read

    def _decoder(self) -> io.IncrementalNewlineDecoder:
        try:
            codec = "utf-8-sig" if codecs.lookup(self._encoding).name == "utf-8" else self._encoding
            plain = codecs.getincrementaldecoder(codec)("strict" if self._strict else "replace")
            if not isinstance(plain.decode(b""), str):
                raise LookupError
        except (LookupError, TypeError, ValueError):
            raise self._source.refusal(
                f"--encoding {shown(self._encoding)} is unknown; try utf-8, cp1252, latin-1 or utf-16"
            ) from None
        return io.IncrementalNewlineDecoder(plain, translate=False)  # never ends inside a line end

    def pieces(self, size: int) -> Iterator[str]:
        """All characters, in pieces of about `size` bytes that do not end inside a line end."""
        decoder = self._decoder()
        self._source.raw.seek(0)
        n_characters, line, begin = 0, 1, b""
        for block in itertools.chain(self._source.blocks(size), [b""]):
            begin = begin or block[:2]
            try:
                text = decoder.decode(block, final=not block)
            except ValueError as error:  # a few decoders cannot replace what they cannot read
                refusal = self._wrong_encoding(error, line, begin)
                text = None
            if text is None:  # raised here, nothing is chained to it
                raise refusal
            if not self._utf8:  # some have surrogates, which no UTF-8 has
                text = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
            if END in text:
                if self._strict:
                    raise self._source.refusal(NUL, line=line + _line_ends(text[: text.index(END)]))
                self.first_nul = min(self.first_nul, n_characters + text.index(END))
                text = text.replace(END, _REPLACEMENT)
            n_characters += len(text)
            line += _line_ends(text)
            yield text

    def _wrong_encoding(self, error: ValueError, line: int, begin: bytes) -> TableError:
        if not self._utf8:
            advice = "pass the encoding that the file was written in with --encoding"
        elif begin in _UTF16:
            advice = "the file begins like UTF-16, so pass --encoding utf-16"
        else:
            advice = "if it was written on Windows, pass --encoding cp1252; if it is not text, pass the right --format"
        if not isinstance(error, UnicodeDecodeError):  # UTF-16 without its mark, for one
            return self._source.refusal(f"not {self._encoding}; {advice}", line=line)
        line += _line_ends(error.object[: error.start].decode(self._encoding, "ignore"))
        return self._source.refusal(f"a byte is not {self._encoding}; {advice}", line=line)

    def encoded(self, size: int, begin: int = 0) -> Iterator[bytes]:
        """The same characters as UTF-8; where the file is UTF-8 it is checked and not decoded. An error of any kind is
        raised where `pieces` would refuse the file, and where so many bytes have no character of ASCII.

        Where it is `exact`, `begin` bytes after the byte-order mark are skipped; they end with a character.
        """
        if not self._utf8:
            yield from (text.encode() for text in self.pieces(size))
            return
        self._source.raw.seek(0)
        if begin:
            mark = len(codecs.BOM_UTF8) * (self._source.raw.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8)
            self._source.raw.seek(mark + begin)
        rest, begun = b"", begin > 0
        for block in itertools.chain(self._source.blocks(size), [b""]):
            whole = rest + block
            cut = len(whole.rstrip(_NOT_ASCII)) if block else len(whole)  # not inside a character
            if block and not cut:
                raise ValueError
            piece, rest = whole[:cut], whole[cut:]
            if not begun:
                piece, begun = piece.removeprefix(codecs.BOM_UTF8), True
            if END.encode() in piece or not _is_utf8(piece):
                if self._strict:
                    raise ValueError
                self.exact = False
                piece = piece.decode("utf-8", "replace").replace(END, _REPLACEMENT).encode()
            yield piece


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


class Lines:
    """Lines with their ends for `csv.reader`, the last one `END`; counts what was handed out."""

    def __init__(self, source: Source, pieces: Iterator[str]) -> None:
        self._source = source
        self._cut = self._lines(pieces)
        self._ahead: list[str] = []
        self._line = 0
        self._row_start = 0
        self._n_read = 1
        self.characters = 0
        self.row_line = 1
        self.ended = False
        self.kept: list[str] | None = None  # what was handed out, for those who need it

    def begin_row(self) -> None:
        """What follows is a new row."""
        self._row_start, self.row_line = self.characters, self._line + 1

    @property
    def share(self) -> float:
        """Which part of the file was handed out, in (0, 1]."""
        return min(1.0, self._source.position * self.characters / self._n_read)

    def first_line(self) -> str:
        """The first line that is not blank, without its end; it is not handed out by this."""
        for line in self._cut:
            self._ahead.append(line)
            if line.strip("\r\n"):
                return line.strip("\r\n")
        return ""

    def __iter__(self) -> Iterator[str]:
        for line in itertools.chain(self._ahead, self._cut):
            self.ended = line == END
            self._line += 1
            self.characters += len(line)
            if self.kept is not None:
                self.kept.append(line)
            yield line

    def _lines(self, pieces: Iterator[str]) -> Iterator[str]:
        rest = ""
        for text in pieces:
            self._n_read += len(text)
            whole, rest = rest + text, ""
            for line in io.StringIO(whole, newline=""):
                if line[-1] not in "\r\n":  # the last one of this text
                    rest = line
                    break
                yield line
            if self.characters + len(rest) - self._row_start > input_files.LONGEST_LINE:
                raise self._source.refusal(
                    f"no row ends within {input_files.LONGEST_LINE >> 20} MiB; check --format, line endings and "
                    "unclosed quotation marks",
                    line=self.row_line,
                )
        if rest:
            yield f"{rest}\n"
        yield END


def divide(source: Source, lines: Lines, delimiter: str) -> Iterator[list[str]]:
    """The rows that are not blank; `lines.row_line` is the first line of the last one."""
    reader = csv.reader(lines, delimiter=delimiter)
    while True:
        lines.begin_row()
        try:
            row = next(reader)
        except csv.Error:
            raise source.refusal("cells cannot be separated here", line=lines.row_line) from None
        if lines.ended:
            if row != [END]:
                raise source.refusal(
                    "a quotation mark that begins here is not closed; check quotation marks and where the file ends",
                    line=lines.row_line,
                )
            return
        if row:
            yield row
