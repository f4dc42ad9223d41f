"""CSV: names by the csv module, numbers by numpy's compiled parser in blocks of whole rows.

The fast path reads a block of good rows and knows nothing of places. Where it fails, or where a number is not finite,
the same block is read again cell by cell, and the columns that are wrong are noted. The rest of the file is then read
without them, for all of them to be told in one message.
"""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import math
import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tulle.files.tables.columns import (
    DOUBTFUL,
    INFINITE_TARGET,
    MISSING_PERSON,
    MISSING_TARGET,
    Fault,
    Faults,
    Parts,
    Wanted,
    assign_roles,
    fault_of_feature,
    is_missing,
    is_number,
)
from tulle.files.tables.input_files import Progress, Source, shown, whole_lines

# What is wrong with a file, for every reader of CSV.
NUL = "a NUL character: not text, or text in another encoding; try --encoding utf-16, or pass the right --format"
ONLY_BLANK = "only blank lines; write the table again"
NO_ROWS = "a header but no rows; write the table again"
ONLY_NUMBERS = (
    "the first line has only numbers; if it is a row, pass --no-header, and if it is the header, give a column a name "
    "that is not a number"
)

_DELIMITERS = (",", ";", "\t")
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_QUOTES = "cells cannot be separated here; check quotation marks and --delimiter"
_ONE_KIND = "targets must be all numbers or all text, so correct the cell or write every class as text"
_WORD = Fault("a target is text, but the first row's is a number", _ONE_KIND)
_NUMBER = Fault("a target is a number, but the first row's is text", _ONE_KIND)


def read_csv(source: Source, wanted: Wanted, progress: Progress) -> Iterator[Parts]:
    """The rows in batches; see `tulle.files.tables.read_table`."""
    delimiter = Delimiter(source, wanted.delimiter)
    rows: _Rows | None = None
    for line, text in whole_lines(source, _decoded(source, wanted.encoding), "\n", delimiter.closes):
        if "\0" in text:
            raise source.refusal(NUL, line=line + text[: text.index("\0")].count("\n"))
        if not text.endswith("\n"):  # the last line may lack its end
            text += "\n"
        if rows is None:
            blank = len(text) - len(text.lstrip("\n"))
            line, text = line + blank, text[blank:]
            if not text:
                continue
            rows, skipped = _begin(source, wanted, delimiter.of(text), line, text)
            line, text = line + skipped, text.split("\n", skipped)[skipped]
        progress.at(source.share)
        parts = rows.read(line, text) if text.strip("\n") else None
        if parts is not None:
            yield parts
    if rows is None:
        raise source.refusal(ONLY_BLANK)
    rows.faults.check()
    if not rows.begun:
        raise source.refusal(NO_ROWS)


# --- text ----------------------------------------------------------------------------------------------------------


def text_decoder(
    source: Source, encoding: str, errors: str = "strict", *, translate: bool = True
) -> io.IncrementalNewlineDecoder:
    """A decoder that skips a byte-order mark and never ends inside a line end.

    Parameters
    ----------
    source : Source
    encoding : str
    errors : {"strict", "replace"}, default="strict"
        What to do with bytes that are not in the encoding.
    translate : bool, default=True
        Whether to write every line end as a newline.
    """
    try:
        codec = "utf-8-sig" if codecs.lookup(encoding).name == "utf-8" else encoding
        plain = codecs.getincrementaldecoder(codec)(errors)
        if not isinstance(plain.decode(b""), str):
            raise LookupError
    except (LookupError, TypeError, ValueError):
        raise source.refusal(f"--encoding {shown(encoding)} is unknown; try utf-8, cp1252, latin-1 or utf-16") from None
    return io.IncrementalNewlineDecoder(plain, translate=translate)


def _decoded(source: Source, encoding: str) -> Iterator[str]:
    """The text in pieces, with every line end written as a newline and without a byte-order mark."""
    decoder = text_decoder(source, encoding)
    line, begin = 1, b""
    for block in itertools.chain(source.blocks(), [b""]):
        begin = begin or block[:2]
        try:
            text = decoder.decode(block, final=not block)
        except UnicodeError as error:
            raise _wrong_encoding(source, error, line, encoding, begin) from None
        line += text.count("\n")
        yield text


def _wrong_encoding(source: Source, error: UnicodeError, line: int, encoding: str, begin: bytes) -> Exception:
    if encoding.lower().replace("_", "-") not in ("utf-8", "utf8"):
        advice = "pass the encoding that the file was written in with --encoding"
    elif begin in _UTF16:
        advice = "the file begins like UTF-16, so pass --encoding utf-16"
    else:
        advice = "if it was written on Windows, pass --encoding cp1252; if it is not text, pass the right --format"
    if not isinstance(error, UnicodeDecodeError):  # UTF-16 without its mark, for one
        return source.refusal(f"not {encoding}; {advice}", line=line)
    good = error.object[: error.start].decode(encoding, "ignore")
    line += len(re.findall("\r\n|\r|\n", good))
    return source.refusal(f"a byte is not {encoding}; {advice}", line=line)


class Delimiter:
    """What separates cells: the mark that was given, or the most frequent one in the file's first line."""

    def __init__(self, source: Source, given: str | None) -> None:
        if given is not None and (len(given) != 1 or given in '"\r\n'):
            raise source.refusal(f"--delimiter must be one character, not {shown(given)}")
        self._mark = given

    def of(self, text: str) -> str:
        """The mark; `text` starts where the file does when this is first called."""
        if self._mark is None:
            first_line = text.lstrip("\n").partition("\n")[0]
            unquoted = re.sub('"[^"]*"', "", first_line)
            mark = max(_DELIMITERS, key=unquoted.count)
            if not first_line:
                return mark
            self._mark = mark
        return self._mark

    def closes(self, text: str) -> bool:
        """Whether every quoted cell ends before the text does."""
        if '"' not in text:
            return True
        reader = csv.reader(io.StringIO(text), delimiter=self.of(text), strict=True)
        try:
            for _ in reader:
                pass
        except csv.Error:
            # A cell that stays open runs to the end; other errors are for `_Rows` to explain.
            return reader.line_num < text.count("\n")
        return True


def _begin(source: Source, wanted: Wanted, delimiter: str, line: int, text: str) -> tuple[_Rows, int]:
    """The columns by the first row, and how many lines the header takes."""
    reader = csv.reader(io.StringIO(text), delimiter=delimiter, strict=True)
    try:
        first = [cell.strip() for cell in next(reader)]
    except csv.Error:
        raise source.refusal(_QUOTES, line=line) from None
    if not wanted.header:
        return _Rows(source, wanted, [str(place) for place in range(len(first))], delimiter), 0
    if all(is_number(cell) for cell in first):
        raise source.refusal(ONLY_NUMBERS, line=line)
    return _Rows(source, wanted, first, delimiter), reader.line_num


# --- rows ----------------------------------------------------------------------------------------------------------


class _Words:
    """The words of one text as numbers in order of appearance: numpy's parser calls this once a cell.

    Parameters
    ----------
    numbers : bool
        Whether a number may stand among them: in a person's id, not in a target.
    """

    def __init__(self, *, numbers: bool) -> None:
        self._numbers = numbers
        self._codes: dict[str, int] = {}

    def __call__(self, cell: str) -> int:
        code = self._codes.get(cell)
        if code is None:
            if is_missing(cell) or (is_number(cell) and not self._numbers):
                raise ValueError  # _Rows._note_faults says where and why
            code = self._codes[cell] = len(self._codes)
        return code

    def decode(self, codes: npt.NDArray[np.float64]) -> npt.NDArray[np.str_]:
        """The words of the text, which are forgotten: a file may have a person in every row."""
        words = np.array([word.strip() for word in self._codes], dtype=str)
        self._codes = {}
        return words[codes.astype(np.intp)]

    def forget(self) -> None:
        """Begin with no words, for another text."""
        self._codes = {}


class _Rows:
    """Turns text into rows: an array for features, one each for target and people."""

    def __init__(self, source: Source, wanted: Wanted, names: list[str], delimiter: str) -> None:
        self._source = source
        self._names = names
        self._named = wanted.header
        self._delimiter = delimiter
        # A header with a number in it may be a row. Then columns are told by their places, but for those that the user
        # has named: what is quoted from a header is public, and what is quoted from a row is not.
        doubtful = wanted.header and any(is_number(name) for name in names)
        self._roles = roles = assign_roles(source, names, wanted, doubtful=doubtful)
        self._used = [*roles.features, *(place for place in (roles.target, roles.groups) if place is not None)]
        known = {wanted.target, wanted.groups, *(wanted.features or ())}
        self._told = [
            f"column {place}" if doubtful and name not in known else name for place, name in enumerate(names, 1)
        ]
        self._doubt = f" ({DOUBTFUL})" if doubtful else ""
        # The first row says whether targets are words or numbers; a column that mixes them is refused.
        self._target_words: _Words | None = _Words(numbers=True) if wanted.labels else None
        self._labels = wanted.labels
        self._missing = wanted.missing
        self._people = _Words(numbers=True)
        self.faults = Faults(source, named=not doubtful)
        self.begun = False

    def read(self, line: int, text: str) -> Parts | None:
        """The rows of a text whose first line has number `line`; None where a column cannot be read."""
        if not self.begun:
            self._decide_target(text)
        self.begun = True
        if not self._used:  # no column is left to look at
            return None
        values = self._parsed(text)
        if values is None and self._missing:
            self._forget_words()
            values = self._parsed(self._with_nan(text))
        checked = len(self._roles.features) if self._missing else 0
        if values is None or not np.isfinite(values[:, checked:]).all():
            self._note_faults(line, text)
        if self.faults or values is None:
            self._forget_words()
            return None
        others = [column.copy() for column in values[:, len(self._roles.features) :].T]
        groups = None if self._roles.groups is None else self._people.decode(others.pop())
        y = None if self._roles.target is None else others.pop()
        if self._target_words is not None and y is not None:
            y = self._target_words.decode(y)
        names = tuple(self._names[place] for place in self._roles.features) if self._named else None
        return Parts(np.ascontiguousarray(values[:, : len(self._roles.features)]), y, names, groups)

    def _forget_words(self) -> None:
        for words in (self._target_words, self._people):
            if words is not None:
                words.forget()

    def _with_nan(self, text: str) -> str:
        """The text with features that have no value written as numpy reads them; as it is where it is no table."""
        features, written = set(self._roles.features), io.StringIO(newline="")
        writer = csv.writer(written, delimiter=self._delimiter, lineterminator="\n")
        try:
            for row in csv.reader(io.StringIO(text), delimiter=self._delimiter, strict=True):
                if row:
                    writer.writerow(
                        "nan" if place in features and is_missing(cell) else cell for place, cell in enumerate(row)
                    )
        except csv.Error:
            return text
        return written.getvalue()

    def _decide_target(self, text: str) -> None:
        if self._roles.target is None or self._labels:
            return
        first = next(csv.reader(io.StringIO(text.lstrip("\n")), delimiter=self._delimiter))
        if self._roles.target < len(first) and not is_number(first[self._roles.target]):
            self._target_words = _Words(numbers=False)

    def _parsed(self, text: str) -> npt.NDArray[np.float64] | None:
        """The columns that are still read, or None where they cannot be.

        What a library says of a cell is dropped here: it quotes the cell.
        """
        try:
            return self._columns(text)
        except (ValueError, csv.Error):
            return None

    def _columns(self, text: str) -> npt.NDArray[np.float64]:
        quoted = '"' in text
        lines: Iterable[str]
        if quoted:
            reader = csv.reader(io.StringIO(text), delimiter=self._delimiter, strict=True)
            widths = [len(row) for row in reader if row]
            lines = io.StringIO(text)  # with line ends: a blank line inside a quoted cell is none without
        else:
            lines = text.split("\n")
            widths = [line.count(self._delimiter) + 1 for line in lines if line]
        if set(widths) != {len(self._names)}:  # numpy does not look at columns that are left out
            raise ValueError
        converters: dict[int | str, Any] = {}
        if self._target_words is not None and self._roles.target in self._used:
            assert self._roles.target is not None
            converters[self._roles.target] = self._target_words
        if self._roles.groups in self._used:
            assert self._roles.groups is not None
            converters[self._roles.groups] = self._people
        values = np.loadtxt(
            lines,
            dtype=np.float64,
            comments=None,
            delimiter=self._delimiter,
            converters=converters or None,
            usecols=None if self._used == list(range(len(self._names))) else self._used,
            quotechar='"' if quoted else None,
            ndmin=2,
        )
        if len(values) != len(widths):  # both parsers must see the same rows
            raise ValueError
        return values

    def _note_faults(self, first_line: int, text: str) -> None:
        """Note the columns of the text that are wrong, and read them no more; raise where a row is no row."""
        reader = csv.reader(io.StringIO(text), delimiter=self._delimiter, strict=True)
        line, before = first_line, len(self._used)
        try:
            for row in reader:
                if row:
                    self._note_row(line, row)
                line = first_line + reader.line_num
        except csv.Error:
            raise self._source.refusal(_QUOTES, line=line) from None
        self._used = [place for place in self._used if self._told[place] not in self.faults]
        if len(self._used) == before:
            raise self._source.refusal("a row here cannot be read; check its quotation marks", line=first_line)

    def _note_row(self, line: int, row: list[str]) -> None:
        if len(row) != len(self._names):
            raise self._source.refusal(
                f"{len(row)} cells, but the first line has {len(self._names)}; the file may be truncated here, or a "
                f"cell that contains {self._delimiter!r} lacks quotation marks{self._doubt}",
                line=line,
            )
        for place in self._used:
            fault = self._fault(place, row[place])
            if fault is not None:
                self.faults.add(self._told[place], fault, line=line)

    def _fault(self, place: int, cell: str) -> Fault | None:
        if place == self._roles.target:
            return self._fault_of_target(cell)
        if place == self._roles.groups:
            return MISSING_PERSON if is_missing(cell) else None
        return fault_of_feature(cell, self._missing)

    def _fault_of_target(self, cell: str) -> Fault | None:
        if is_missing(cell):
            return MISSING_TARGET
        if self._labels:
            return None
        if is_number(cell) == (self._target_words is not None):
            return _NUMBER if is_number(cell) else _WORD
        if self._target_words is None and not math.isfinite(float(cell)):
            return INFINITE_TARGET
        return None
