"""Kinds of columns: each cell is encoded by itself and within the declared length, and by the documented rules."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from odd_cells import KINDS, OBJECTS, TABLES, TEXTS, by_itself, cells, dense, in_silence, objects, typed

from tulle.schema.column_kinds import Boolean, Categories, ColumnKind, Date, Ignore, Number, Range
from tulle.schema.hashed_kinds import Hashed, Text
from tulle.schema.raw_rows import column_of

every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
unhashable = [("pandas, categories", sort) for sort in ("list", "struct")]
every_table = pytest.mark.parametrize(
    ("table", "sort"), [(table, sort) for table in TABLES for sort in typed if (table, sort) not in unhashable]
)


def encoded(kind: ColumnKind, *given: Any) -> list[list[float]]:
    return dense(kind.encode(list(given))).tolist()


# --- each cell by itself, within its length --------------------------------------------------------------------------


@every_kind
def test_no_cell_raises_warns_or_is_too_long(kind: ColumnKind) -> None:
    """All odd cells in one column, with what numpy ignores by default made an error."""
    given = [*TEXTS, *OBJECTS]
    with in_silence():
        features = dense(kind.encode(objects(given)))
    assert features.shape == (len(given), kind.width)
    assert np.abs(features).max() <= 1 + 1e-12
    assert (features**2).sum(axis=1).max() <= kind.largest_square + 1e-12
    assert np.array_equal(features, by_itself(kind, given))
    assert kind.known(given).shape == (len(given),)


@every_kind
@given(st.data())
def test_a_cell_changes_no_other(kind: ColumnKind, data: st.DataObject) -> None:
    drawn = data.draw(st.lists(cells, max_size=4))
    features = dense(kind.encode(drawn))
    assert np.array_equal(features, by_itself(kind, drawn))
    assert (features**2).sum(axis=1).max(initial=0) <= kind.largest_square + 1e-12


@every_table
@given(st.data())
@settings(max_examples=8)
def test_every_table_gives_the_same(table: str, sort: str, data: st.DataObject) -> None:
    """A blank among others: numpy and pandas have none for whole numbers, and would make floats of them all."""
    drawn = data.draw(st.lists(st.none() | typed[sort], max_size=4))
    column = column_of(TABLES[table](drawn), "x")
    for name, kind in KINDS.items():
        assert np.array_equal(dense(kind.encode(column)), by_itself(kind, drawn)), name


@every_kind
def test_the_longest_row_is_as_long_as_declared(kind: ColumnKind) -> None:
    """Within 1 %: a looser bound would be paid for with noise."""
    features = dense(kind.encode([*TEXTS, *OBJECTS]))
    assert np.sqrt((features**2).sum(axis=1).max()) >= 0.99 * np.sqrt(kind.largest_square)


@every_kind
def test_there_is_a_name_for_every_feature(kind: ColumnKind) -> None:
    assert len(kind.names("x")) == len(set(kind.names("x"))) == kind.width
    assert dense(kind.encode([])).shape == (0, kind.width)


# --- the documented rules --------------------------------------------------------------------------------------------


def test_a_range() -> None:
    """Clipped, mapped to [-1, 1]; a cell without a number is in the middle."""
    assert encoded(Range(20, 100), 60, "20", 100, 1e9, "-5", "", "unknown", None) == [
        *[[0], [-1], [1], [1], [-1], [0], [0], [0]]
    ]
    assert encoded(Range(0, 10, missing=5, indicator=True), 0, "") == [[-1, 0], [0, 1]]
    assert encoded(Range(0, 10, missing=0), 5, "") == [[0], [-1]]
    assert Range(20, 100).unit() == (60, 40)
    assert Range(0, 10, missing=10).names("age") == ["age"]
    assert Range(0, 10, indicator=True).names("age") == ["age", "age is missing"]
    assert Range(0, 10).known([5, 11, "", "10"]).tolist() == [True, False, False, True]


@pytest.mark.parametrize(
    ("low", "high"), [(1, 1), (2, 1), (0, np.inf), (np.nan, 1), (-1.7e308, 1.7e308), (0, 5e-324), (1e16, 1e16 + 2)]
)
def test_a_range_that_numbers_cannot_be_mapped_from(low: float, high: float) -> None:
    with pytest.raises(ValueError, match="range"):
        Range(low, high)


@given(st.floats(-1e300, 1e300), st.floats(1e-300, 1e300), st.floats(0, 1), st.floats())
def test_a_range_of_any_width(low: float, width: float, place: float, cell: float) -> None:
    try:
        kind = Range(low, low + width, missing=min(low + place * width, low + width), indicator=True)
    except ValueError:
        return
    features = dense(kind.encode([cell, None, low, low + width]))
    assert np.abs(features).max() <= 1
    assert (features**2).sum(axis=1).max() <= kind.largest_square


def test_numbers() -> None:
    """0 stays 0, and so does a cell without a number."""
    assert encoded(Number(4), 0, "2", -8, "", "many") == [[0], [0.5], [-1], [0], [0]]
    assert encoded(Number(4, indicator=True), 0, "") == [[0, 0], [0, 1]]


def test_categories() -> None:
    """All zeros for others and for blanks, unless declared otherwise."""
    jobs = ("clerk", "nurse")
    cells = ("nurse", " clerk ", "Nurse", "", None)
    none, clerk, nurse = [0, 0], [1, 0], [0, 1]
    assert encoded(Categories(jobs), *cells) == [nurse, clerk, none, none, none]
    assert encoded(Categories(jobs, missing="nurse"), *cells) == [nurse, clerk, none, nurse, nurse]
    marked = [[*nurse, 0, 0], [*clerk, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 1]]
    assert encoded(Categories(jobs, other=True, indicator=True), *cells) == marked
    assert Categories(jobs, other=True, indicator=True).names("job") == [
        *["job = clerk", "job = nurse", "job = (other)", "job = (missing)"]
    ]


@pytest.mark.parametrize(
    ("values", "cell", "found"),
    [
        *[
            (("7",), 7, True),
            (("7",), 7.0, True),
            (("7",), "007", False),
            (("7",), "7.0", False),
            (("true",), True, True),
        ],
        *[((7,), "7", True), ((7,), "7.0", True), ((7.0,), 7, True), ((7,), "007", True), ((7,), "seven", False)],
        *[
            ((0.1,), "0.1", True),
            ((2**60 + 1,), 2**60, False),
            ((2**60 + 1,), str(2**60 + 1), True),
            ((1,), True, True),
        ],
        *[
            ((2**60,), 2.0**60, True),
            (("2020-01-01",), date(2020, 1, 1), True),
            (("2020-01-01",), datetime(2020, 1, 1), True),
        ],
    ],
)
def test_text_and_numbers_as_categories(values: tuple[Any, ...], cell: Any, found: bool) -> None:
    assert encoded(Categories(values), cell) == [[float(found)]]


def test_booleans() -> None:
    assert encoded(Boolean(), "TRUE", "y", 1, True, 1.0, "no", "0", False, "", "maybe") == [*[[1]] * 5, *[[0]] * 5]
    assert encoded(Boolean(("Ja",), ("nein",), missing=True, indicator=True), "JA", "nein", "yes") == [
        *[[1, 0], [0, 0], [1, 1]]
    ]


def test_dates() -> None:
    """Clipped, in UTC; a cell without a date is in the middle."""
    kind = Date("2020-01-01", "2020-01-11", indicator=True)
    cells = ("2020-01-06", "2020-01-11T00:00:00", "2020-01-01T02:00:00+02:00", date(1990, 1, 1), "", "06.01.2020")
    assert encoded(kind, *cells) == [[0, 0], [1, 0], [-1, 0], [-1, 0], [0, 1], [0, 1]]
    german = Date("2020-01-01", "2020-01-11", pattern="%d.%m.%Y", missing="2020-01-11")
    assert encoded(german, "2020-01-06", "06.01.2020", date(2020, 1, 6)) == [[1], [0], [0]]
    assert Date("2020-01-01", "2021-01-01", "week").unit()[1] == 366 / 2 / 7


@pytest.mark.parametrize("pattern", ["%d.%m.%Y", "%Y-%m-%d %H:%M:%S %z", "%y%m%d", "%A, %d %B %Y", "%Y-%j"])
def test_formats_of_a_whole_date(pattern: str) -> None:
    assert Date("2020-01-01", "2021-01-01", pattern=pattern).pattern == pattern


@pytest.mark.parametrize("pattern", ["%H:%M", "%d.%m.", "%Y", "%Q", "", "%", "date", 7, "\ud800%Y-%m-%d"])
def test_formats_that_are_none(pattern: Any) -> None:
    with pytest.raises(ValueError, match="format must describe a whole date"):
        Date("2020-01-01", "2021-01-01", pattern=pattern)


def test_words_have_these_buckets() -> None:
    """Saved models count on them: a change of the hash, or of what a word is, makes them useless."""
    kind = Text(14)
    found = [kind.encode([word]).indices.tolist() for word in ("sparse", "Sparse!", "naïve", "2026", "a", "new york")]
    assert found == [[9935], [9935], [1493], [12971], [], [9607, 13827]]
    assert Text(14, ngrams=2).encode(["new york"]).indices.tolist() == [9607, 9664, 13827]


def test_text_has_length_one() -> None:
    """Each word once, or by the logarithm of its count."""
    assert Text(10).encode(["one two two two"]).data == pytest.approx([np.sqrt(0.5)] * 2, rel=1e-15)
    counted = np.sort(Text(10, counts=True).encode(["one two two two"]).data)
    assert counted == pytest.approx(np.array([1, 1 + np.log(3)]) / np.hypot(1, 1 + np.log(3)), rel=1e-15)
    assert Text(10).encode(["", None, "!"]).nnz == 0


def test_public_words_name_buckets() -> None:
    kind = Text(14)
    bucket = int(kind.encode(["sparse"]).indices[0])
    assert kind.names("note")[bucket] == f"note: bucket {bucket}"
    assert kind.names("note", ["sparse"])[bucket] == "note: sparse"


def test_a_column_that_is_ignored() -> None:
    assert Ignore().encode([1, 2]).shape == (2, 0)
    assert Ignore().names("x") == []
    assert Ignore().largest_square == 0


def test_hashed_categories_are_whole_cells_in_fixed_buckets() -> None:
    """A change of the hash would make saved models wrong without a word."""
    kind = Hashed(6, indicator=True)
    cells = ["nurse", " nurse ", "Nurse", "night nurse", 7, 7.0, "7", None, "  "]
    buckets = kind.encode(cells).tocoo().coords[1].tolist()
    assert buckets[0] == buckets[1]
    assert len({buckets[0], buckets[2], buckets[3]}) == 3
    assert len(set(buckets[4:7])) == 1
    assert buckets[7:] == [64, 64]
    assert buckets[:1] + buckets[3:5] == [7, 35, 40]
    assert kind.names("job", ["nurse"])[buckets[0]] == "job: nurse"
    assert kind.names("job")[-2:] == ["job: bucket 63", "job is missing"]
