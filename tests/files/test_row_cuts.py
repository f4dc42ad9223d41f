"""Where CSV is cut: the rows before and after a cut are those that the standard library reads from the whole."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tulle.files.tables.row_cuts import ends_outside_quotes, last_row_end


def rows_of(text: str) -> list[list[str]]:
    return [row for row in csv.reader(io.StringIO(text, newline="")) if row]


@settings(max_examples=300)
@given(st.text(st.sampled_from('a,"\r\n'), max_size=40), st.integers(0, 40))
def test_a_cut_is_between_two_rows(text: str, stop: int) -> None:
    """Of any characters, and wherever the bytes that were read so far end."""
    end = last_row_end(text[:stop].encode(), ",")
    assert end <= stop
    if end:
        assert text[end - 1] in "\r\n"
        assert text[end - 1 : end + 1] != "\r\n"
        assert rows_of(text[:end]) + rows_of(text[end:]) == rows_of(text)


@settings(max_examples=300)
@given(st.text(st.sampled_from('a,"\n'), max_size=30))
def test_an_open_cell_is_noticed(text: str) -> None:
    """A row that is appended stays a row of its own just where no quoted cell is open."""
    assert ends_outside_quotes(text.encode(), ",") == (rows_of(f"{text}\nend")[-1:] == [["end"]])


@pytest.mark.parametrize(
    ("text", "end"),
    [
        (b"a,b\nc,d\ne", 8),
        (b'a,"b\nc"\nd', 8),
        (b'a,"b\nc', 0),
        (b'a,"b""\n"\nc', 9),
        (b'a"b\nc"\nd', 7),
        (b'1,5" pipe\n2,"x\ny', 10),
        (b"a\rb\rc", 4),
        (b"a\r", 0),
        (b"a\r\n", 3),
        (b'"a\r', 0),
        (b"", 0),
    ],
)
def test_the_last_cut(text: bytes, end: int) -> None:
    assert last_row_end(text, ",") == end
