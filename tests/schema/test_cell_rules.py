"""Rules for one cell: what each holds, and that a column gives each cell what it gets alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from odd_cells import OBJECTS, TEXTS, arrow_bytes, cells, in_silence, objects, texts

from tulle.schema.cell_rules import cells_of, days_of, numbers_of, read_days, read_exact, read_number, read_text

UNITS = ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as", "25s", "3M")


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        *[(" a b\t", "a b"), ("007", "007"), ("", None), (" \u2003", None), ("a\0", "a\0"), ("\ud800", "\ud800")],
        *[
            (7, "7"),
            (7.0, "7"),
            (-0.0, "0"),
            (0.1, "0.1"),
            (True, "true"),
            (np.bool_(False), "false"),
            (1e300, "1e+300"),
        ],
        *[(2**60 + 1, "1152921504606846977"), (2.0**53, "9007199254740992.0"), (np.float32(0.5), "0.5")],
        *[(Decimal("7.00"), "7"), (Decimal("-7.10"), "-7.1"), (Decimal("0E+5"), "0"), (Decimal("1E+3"), "1000")],
        *[(math.nan, None), (math.inf, None), (None, None), (np.datetime64("NaT"), None)],
        *[
            (date(2020, 1, 2), "2020-01-02"),
            (datetime(2020, 1, 2), "2020-01-02"),
            (np.datetime64("2020"), "2020-01-01"),
        ],
        *[(datetime(2020, 1, 2, 3, 4, 5, 6), "2020-01-02 03:04:05.000006")],
        *[(datetime(2020, 1, 2, 3, tzinfo=timezone(timedelta(hours=2))), "2020-01-02 01:00:00")],
        *[(np.datetime64("2020-01-02T03:04:05", "ns"), "2020-01-02 03:04:05"), (np.datetime64("20000"), None)],
        *[(b" a\xff", "a\ufffd"), (bytearray(b"a"), "a"), (UUID(int=7), "00000000-0000-0000-0000-000000000007")],
        *[([1, None, "a b"], "1 a b"), (np.array(["a", "b"]), "a b"), (["a", [1]], "a"), ([], None), ({"a": 1}, None)],
        *[({"a"}, None), (object(), None), (timedelta(1), None), (np.timedelta64(7, "D"), None), (1j, "1j")],
        *[(np.ma.masked, None), (np.array(7.0), None)],
    ],
)
def test_text(cell: Any, text: str | None) -> None:
    assert read_text(cell) == text


@pytest.mark.parametrize(
    ("cell", "number"),
    [
        *[("7", 7), (" 7\t", 7), ("+7", 7), ("007", 7), ("1.", 1), (".5", 0.5), ("-1.5e-3", -0.0015), ("1e-400", 0)],
        *[
            (word, math.nan)
            for word in ("", " ", "nan", "inf", "1e400", "1_000", "1,5", "0x10", "٣", "7\n", "7\0", "7 7")
        ],
        *[
            (True, 1),
            (np.int8(7), 7),
            (Decimal("0.1"), 0.1),
            (np.longdouble(1) / 3, 1 / 3),
            (b"7", 7),
            (b"\xff", math.nan),
        ],
        *[
            (cell, math.nan)
            for cell in (None, math.inf, 10**400, 1j, np.clongdouble(1), date(2020, 1, 1), [7], np.array([7]))
        ],
        *[(np.timedelta64(7, "D"), math.nan), (np.datetime64("2020"), math.nan), (Decimal("sNaN"), math.nan)],
    ],
)
def test_number(cell: Any, number: float) -> None:
    assert np.array_equal(read_number(cell), number, equal_nan=True)


@pytest.mark.parametrize("form", [int, str, Decimal, lambda value: str(value).encode(), np.int64])
def test_whole_numbers_are_exact(form: Callable[[int], Any]) -> None:
    assert read_exact(form(2**60 + 1)) == 2**60 + 1 != read_exact(form(2**60))
    assert read_exact(form(7)) == 7


@pytest.mark.parametrize(
    ("cell", "days"),
    [
        *[
            ("1970-01-02", 1),
            ("1970-01-01T12:00", 0.5),
            ("1970-01-01T12:00:00+12:00", 0),
            ("19700102", 1),
            (b"1970-01-02", 1),
        ],
        *[("9999-12-31T23:59:59-05:00", 2932896 + 104_399 / 86_400), ("0001-01-01", -719162)],
        *[("1970-02-30", math.nan), ("02.01.1970", math.nan), ("yesterday", math.nan), ("", math.nan), (7, math.nan)],
        *[(date(1970, 1, 2), 1), (datetime(1970, 1, 1, 6), 0.25), (datetime.max.replace(tzinfo=UTC), 2932897)],
        *[(np.datetime64("1970-01-02"), 1), (np.datetime64(2**62, "D"), 2.0**62), (np.datetime64("NaT"), math.nan)],
        *[(np.datetime64(1999, "ns"), 1e-6 / 86400), (None, math.nan), (np.datetime64(2**62, "Y"), 36524250)],
    ],
)
def test_days(cell: Any, days: float) -> None:
    assert read_days(cell) == pytest.approx(days, rel=1e-15, nan_ok=True)


def test_days_by_a_pattern() -> None:
    assert read_days("02.01.1970", "%d.%m.%Y") == 1
    assert read_days("1970-01-02 00:00 +1200", "%Y-%m-%d %H:%M %z") == 0.5
    assert math.isnan(read_days("1970-01-02", "%d.%m.%Y"))
    assert read_days(date(1970, 1, 2), "%d.%m.%Y") == 1


@pytest.mark.parametrize(
    "rule", [read_text, read_number, read_exact, read_days, lambda cell: read_days(cell, "%d.%m.%Y")]
)
def test_no_cell_raises_or_warns(rule: Callable[[Any], Any]) -> None:
    with in_silence():
        for cell in (*TEXTS, *OBJECTS):
            rule(cell)


def test_a_long_cell_is_refused_in_a_moment() -> None:
    """A pattern that reads digits in two ways would need hours."""
    assert math.isnan(read_number("1" * 10**6 + "x"))
    assert math.isnan(read_number(" " * 10**6 + "x"))


def check_columns(columns: Sequence[Any], given: Sequence[Any]) -> None:
    """Each cell of these columns gives to the last bit what it gives alone."""
    for column in columns:
        assert numbers_of(column).tobytes() == np.array([read_number(cell) for cell in given]).tobytes()
        assert days_of(column).tobytes() == np.array([read_days(cell) for cell in given]).tobytes()


@given(st.lists(cells, max_size=6))
def test_a_column_of_objects(drawn: list[Any]) -> None:
    check_columns([drawn, objects(drawn)], drawn)


@given(st.lists(texts.filter(lambda text: not text.endswith("\0")), max_size=6))
def test_a_column_of_text(drawn: list[str]) -> None:
    """An array of numpy holds no zeros at the end of a text."""
    check_columns([np.array(drawn, dtype=str)], drawn)


@given(st.lists(texts, max_size=6))
def test_an_arrow_column_of_text(drawn: list[str]) -> None:
    pa = pytest.importorskip("pyarrow")
    drawn = [text.encode("utf-8", "replace").decode() for text in drawn]
    whole = pa.array(drawn, pa.string())
    check_columns([whole, whole.cast(pa.large_string()), whole.dictionary_encode(), pa.chunked_array([whole])], drawn)


@given(st.lists(st.binary(max_size=4) | st.sampled_from([b"7", b"7\xff", b"1.", b"+.5"]), min_size=1, max_size=6))
def test_bytes_that_are_no_text(drawn: list[bytes]) -> None:
    """By themselves, in a dictionary, and in lists: one such cell makes pyarrow's own conversions of a column fail."""
    pa = pytest.importorskip("pyarrow")
    column = arrow_bytes(drawn)
    places = pa.array(range(len(drawn)))
    check_columns([column, pa.DictionaryArray.from_arrays(places, column)], drawn)
    words = [read_text(cell) for cell in drawn]
    assert [read_text(cell) for cell in cells_of(column)] == words
    lists = pa.ListArray.from_arrays([*range(len(drawn)), len(drawn)], column)
    assert [read_text(cell) for cell in cells_of(lists)] == words


@pytest.mark.parametrize("unit", UNITS)
@given(st.lists(st.integers(-(2**63) + 1, 2**63 - 1) | st.integers(-(10**6), 10**6), max_size=6))
def test_a_column_of_times(unit: str, drawn: list[int]) -> None:
    column = np.array(drawn, dtype=np.int64).astype(f"datetime64[{unit}]")
    assert days_of(column).tobytes() == np.array([read_days(cell) for cell in column]).tobytes()
