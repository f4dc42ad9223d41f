"""Where bytes of CSV can be cut between two rows, so that the pieces can be parsed by themselves.

A line end inside of a quoted cell ends no row. The rule for quoted cells is that of
`tulle.files.tables.raw_cells.open_raw`: a cell is quoted if its first character is a quotation mark.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

_QUOTE, _CR, _LF = b'"\r\n'


def last_row_end(text: bytes, delimiter: str) -> int:
    """Where the last whole row ends, in bytes that begin with a row; 0 where no row ends.

    Parameters
    ----------
    text : bytes
        UTF-8, or any encoding that contains ASCII unchanged.
    delimiter : str
        One ASCII character.
    """
    marks = _find_quoted(text, delimiter)
    # A carriage return at the end may be the first half of a line end.
    return _last_outside(text, b"\n", marks, len(text)) or _last_outside(text, b"\r", marks, len(text) - 1)


def ends_outside_quotes(text: bytes, delimiter: str) -> bool:
    """Whether no quoted cell is open at the end of bytes that begin with a row."""
    return len(_find_quoted(text, delimiter)) % 2 == 0


def _last_outside(text: bytes, end: bytes, marks: Sequence[int] | npt.NDArray[Any], stop: int) -> int:
    """The position after the last such line end that is in no quoted cell."""
    while (place := text.rfind(end, 0, stop)) >= 0:
        before = int(np.searchsorted(marks, place))
        if before % 2 == 0:
            # In "\r" mode another one or a newline may follow: only a newline would belong to it.
            if end == b"\n" or text[place + 1] != _LF:
                return place + 1
            stop = place
        else:
            stop = int(marks[before - 1])
    return 0


def _find_quoted(text: bytes, delimiter: str) -> Sequence[int] | npt.NDArray[Any]:
    """Positions of quotation marks that open (even places) and close (odd places) quoted parts, in order."""
    if b'"' not in text:
        return ()
    codes = np.frombuffer(text, dtype=np.uint8)
    quotes = np.flatnonzero(codes == _QUOTE)
    opening = quotes[::2]
    begins = np.isin(codes[opening - 1], (ord(delimiter), _CR, _LF, _QUOTE)) | (opening == 0)
    # Marks take turns if each that would open stands where a cell begins, or behind one that would close: a doubled
    # mark, which closes and opens.
    return quotes if begins.all() else _scan(text, quotes.tolist(), {ord(delimiter), _CR, _LF})


def _scan(text: bytes, quotes: Sequence[int], begin: set[int]) -> list[int]:
    """The same where quotation marks are also ordinary characters of cells, mark by mark."""
    marks: list[int] = []
    doubled = -1
    for place in quotes:
        if place == doubled:
            continue
        if len(marks) % 2:
            if text[place + 1 : place + 2] == b'"':
                doubled = place + 1
            else:
                marks.append(place)
        elif place == 0 or text[place - 1] in begin:
            marks.append(place)
    return marks
