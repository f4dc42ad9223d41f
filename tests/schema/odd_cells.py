"""Cells of every sort, kinds of columns, and tables that hold the same cells, for tests of schemas."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse as sp
from hypothesis import strategies as st

from tulle.schema.column_kinds import Boolean, Categories, ColumnKind, Date, Number, Range
from tulle.schema.hashed_kinds import Hashed, Text

KINDS: dict[str, ColumnKind] = {
    "range": Range(-3, 40),
    "range, all settings": Range(0, 10, missing=9, indicator=True),
    "number": Number(5.0),
    "number, indicator": Number(1e-3, indicator=True),
    "categories": Categories(("a", "7", "true", "2020-01-01")),
    "categories, other": Categories(("a", "b"), other=True, missing="b"),
    "categories, numbers": Categories((7, 2**60 + 1, 0.5), other=True, indicator=True),
    "boolean": Boolean(),
    "boolean, all settings": Boolean(("ja",), ("nein",), missing=True, indicator=True),
    "date": Date("1990-01-01", "2030-01-01"),
    "date, all settings": Date("1990-01-01", "2030-01-01", "year", "%d.%m.%Y", "2030-01-01", indicator=True),
    "text": Text(6),
    "text, all settings": Text(8, ngrams=2, counts=True),
    "hashed": Hashed(5),
    "hashed, indicator": Hashed(4, indicator=True),
}


class Stubborn:
    """An object that does not let itself be looked at."""

    def _refuse(self, *_: Any) -> Any:
        raise RuntimeError("a cell")

    __str__ = __float__ = __eq__ = __ne__ = __hash__ = __len__ = __iter__ = __getattr__ = _refuse
    __class__ = property(_refuse)  # type: ignore[assignment]


class Text2(str):
    """Text with a will of its own."""

    def strip(self, *_: Any) -> str:
        raise RuntimeError("a cell")

    __str__ = __float__ = strip  # type: ignore[assignment]


TEXTS = (
    *("", " ", "a", " a ", "7", "007", "7.0", "+7", "-0", "1e3", "1.", ".5", "1e400", "1e-400", "nan", "inf", "1_000"),
    *("1,5", "0x10", "٣", "7\n", "7\0", "\0", "a\0b", "\ud800", "wo\udcffrds and words", "\ufeff7", "\u2028", "TRUE"),
    *("yes", "ja", "2020-01-01", "2020-02-30", "2020-01-01T12:00:00+02:00", "9999-12-31T23:59:59-05:00", "0001-01-01"),
    *("01.02.2020", "31.02.2020", str(2**60 + 1), str(2**60), "9" * 500, "1" * 9_999 + "x", "so many words " * 500),
)
OBJECTS: tuple[Any, ...] = (
    *(None, True, False, 0, 7, -1, 2**53 + 1, 2**60, 2**60 + 1, 10**400, 10**5000, 0.0, -0.0, 0.5, 7.0, 1e300, 5e-324),
    *(math.nan, math.inf, -math.inf, 1j, complex(math.nan, 0), Decimal("7.00"), Decimal("1E+999999"), Decimal("sNaN")),
    *(Fraction(1, 2), Fraction(10**400, 3), date(2020, 1, 1), datetime(2020, 1, 1, 12), datetime.max, datetime.min),
    *(datetime(2020, 1, 1, tzinfo=UTC), datetime.max.replace(tzinfo=UTC), timedelta(1), UUID(int=7), b"a", b"\xff 7"),
    *(b"7", bytearray(b"7"), memoryview(b"a"), [], [1, "a"], ["a", [1]], (), {}, {"a": 1}, {"a"}, object(), print),
    *(np.float32(0.1), np.int8(7), np.uint64(2**64 - 1), np.bool_(True), np.str_(" a "), np.bytes_(b"7")),
    *(np.longdouble(1) / 3, np.longdouble("1e4000"), np.clongdouble(1 + 2j), np.float16("nan"), np.array([7.0])),
    *(np.void(b"a"), np.array(["a", "b"]), np.timedelta64(7, "D"), np.timedelta64("NaT")),
    *(np.datetime64("NaT"), np.datetime64("2020-01-01"), np.datetime64("2020-01-01T12", "ns"), np.datetime64("20000")),
    *(np.datetime64(2**62, "Y"), np.datetime64(2**62, "W"), np.datetime64(-(2**62), "as"), Stubborn(), Text2(" 7 ")),
)
texts = st.sampled_from(TEXTS) | st.text(max_size=12) | st.text("0123456789.eE+- ", max_size=8)
cells: st.SearchStrategy[Any] = st.one_of(
    texts,
    st.integers(0, len(OBJECTS) - 1).map(OBJECTS.__getitem__),  # by their places: hypothesis would look at them
    st.integers(),
    st.floats(),
    st.datetimes(),
    st.binary(max_size=6),
)
# One type each, as a column of a table has.
typed: dict[str, st.SearchStrategy[Any]] = {
    "text": st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(["7", "a", "1e3", "ja"]),
    "whole": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(),
    "truth": st.booleans(),
    "time": st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1)),
    "date": st.dates(),
    "zoned": st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)),
    "decimal": st.decimals(-(10**6), 10**6, places=2),
    "bytes": st.binary(max_size=6),
    "list": st.lists(st.integers(0, 9), min_size=1, max_size=3),
    "struct": st.fixed_dictionaries({"a": st.integers(0, 9)}),
}


def dense(encoded: Any) -> npt.NDArray[np.float64]:
    """Features as a dense array."""
    return np.asarray(encoded.toarray() if sp.issparse(encoded) else encoded)


def by_itself(kind: ColumnKind, given: Sequence[Any]) -> npt.NDArray[np.float64]:
    """The features of each cell as the only one of its column."""
    return np.vstack([np.zeros((0, kind.width)), *(dense(kind.encode([cell])) for cell in given)])


def objects(given: Sequence[Any]) -> npt.NDArray[Any]:
    """An array of objects as they are: numpy would look into some of them."""
    array = np.empty(len(given), dtype=object)
    for place, cell in enumerate(given):
        array[place] = cell
    return array


@contextmanager
def in_silence() -> Iterator[None]:
    """Assert that nothing warns, and let numpy raise what it ignores by default. A rule may catch what is raised: so
    warnings are kept, and not raised."""
    with warnings.catch_warnings(record=True) as told, np.errstate(all="raise"):
        warnings.simplefilter("always")
        yield
    assert [str(one.message) for one in told] == []


def arrow_bytes(given: Sequence[bytes]) -> Any:
    """An Arrow column of text whose bytes need be no UTF-8, as files can hold it."""
    pa = pytest.importorskip("pyarrow")
    return pa.Array.from_buffers(pa.string(), len(given), pa.array(list(given), pa.binary()).buffers())


def _arrow(given: Sequence[Any]) -> Any:
    return pytest.importorskip("pyarrow").array(list(given))


def _pandas(given: Sequence[Any]) -> Any:
    return pytest.importorskip("pandas").Series(objects(given), dtype=object)


def _nullable(given: Sequence[Any]) -> str:
    """The name of pandas' own type for cells of one type."""
    kinds = {type(cell) for cell in given} - {type(None)}
    names = {int: "Int64", float: "Float64", bool: "boolean", str: "string"}
    return names.get(kinds.pop(), "object") if len(kinds) == 1 else "object"


def _pandas_of_arrow(given: Sequence[Any]) -> Any:
    pd, column = pytest.importorskip("pandas"), _arrow(given)
    return pd.Series(pd.array(column, dtype=pd.ArrowDtype(column.type)))


def _arrow_chunks(given: Sequence[Any]) -> Any:
    return pytest.importorskip("pyarrow").chunked_array([_arrow(given)[:1], _arrow(given)[1:]])


# Tables with these cells as the column "x".
TABLES: dict[str, Callable[[Sequence[Any]], Any]] = {
    "list": lambda given: {"x": list(given)},
    "numpy": lambda given: {"x": objects(given)},
    "pandas": lambda given: _pandas(given).to_frame("x"),
    "pandas, nullable": lambda given: _pandas(given).astype(_nullable(given)).to_frame("x"),
    "pandas, Arrow": lambda given: _pandas_of_arrow(given).to_frame("x"),
    "pandas, categories": lambda given: _pandas(given).astype("category").to_frame("x"),
    "arrow": lambda given: pytest.importorskip("pyarrow").table({"x": _arrow(given)}),
    "arrow, chunks": lambda given: pytest.importorskip("pyarrow").table({"x": _arrow_chunks(given)}),
    "polars": lambda given: pytest.importorskip("polars").DataFrame({"x": list(given)}),
}
