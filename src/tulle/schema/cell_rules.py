"""Rules for one cell: the number, the truth value, the date or the text that it holds, or that it holds none.

Every rule is a function of one cell and of public settings, so one person's cell never decides how another is read; it
raises nothing and warns of nothing, for any cell. Columns are numpy arrays, lists, or arrays of pyarrow (duck-typed: it
is not imported unless the table came from it). Where a column is read as a whole for speed, each cell gets the same
bits that it would get alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
T = TypeVar("T")

# The numbers that text can spell: digits with a point and an exponent, nothing else ("inf", "1_000" and "1,5" are not).
# No text can be split in two ways, or the time to refuse one would grow with the square of its length.
_NUMBER = re.compile(r"[ \t]*[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,4})?[ \t]*")
_WHOLE = re.compile(r"[ \t]*[+-]?[0-9]{1,400}[ \t]*")
# Those of them that pyarrow reads too, with no more than so many characters: none of these is beyond what floats hold.
_PLAIN_NUMBER = r"^[ \t]*[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,2})?[ \t]*$"
_PLAIN_LENGTH = 200

TRUE, FALSE = ("true", "t", "yes", "y", "1"), ("false", "f", "no", "n", "0")

_BYTES = (bytes, bytearray, memoryview)
_REAL = (int, float, np.integer, np.floating, np.bool_, Decimal, Fraction)
_SPAN = (np.timedelta64, timedelta)  # numpy's is an integer to Python

_DAY = 86_400 * 10**6
# Microseconds in so many of numpy's units of time, and these in a day.
_MICROSECONDS = {
    **{"W": (7 * _DAY, 1), "D": (_DAY, 1), "h": (3600 * 10**6, 1), "m": (60 * 10**6, 1), "s": (10**6, 1)},
    **{"ms": (1000, 1), "us": (1, 1), "ns": (1, 10**3), "ps": (1, 10**6), "fs": (1, 10**9), "as": (1, 10**12)},
}
_PER_DAY = {"D": 1, "h": 24, "m": 1440, "s": 86_400, "ms": 86_400_000, "us": _DAY}
_EPOCH = datetime(1970, 1, 1)
_FAR = 12 * 10**5  # months, beyond every date that a schema can declare


def read_text(cell: Any) -> str | None:
    """The text of a cell without blanks around it; None where there is none.

    Whole numbers are spelled without a point, so that 7 and 7.0 are "7"; times in UTC, and as a date at midnight, as a
    table's file type decides which of the two a date is; a list by the texts in it, with blanks between.
    """
    if type(cell) is str:
        return cell.strip() or None
    try:
        if isinstance(cell, (list, tuple, np.ndarray)):
            cell = " ".join(filter(None, map(_spell, cell)))
        text = _spell(cell)
    except Exception:  # an object of the user's own, or more digits than Python spells
        return None
    return None if text is None else text.strip() or None


def _spell(cell: Any) -> str | None:
    if isinstance(cell, str):
        return str.__str__(cell)
    if isinstance(cell, _BYTES):
        return bytes(cell).decode("utf-8", "replace")
    if isinstance(cell, (date, np.datetime64)):
        return _spell_time(cell)
    if isinstance(cell, (bool, np.bool_)):
        return "true" if cell else "false"
    if cell is None or isinstance(cell, _SPAN) or hasattr(cell, "__iter__") or cell != cell:
        return None
    if isinstance(cell, (int, np.integer)):
        return str(int(cell))
    if isinstance(cell, (float, np.floating)):
        return _spell_float(float(cell))
    if isinstance(cell, Decimal):
        return _spell_decimal(cell)
    # An object without a text of its own would be spelled by its place in memory.
    own = any({"__str__", "__repr__"} & vars(cls).keys() for cls in type(cell).__mro__[:-1])
    return str.__str__(str(cell)) if own else None


def _spell_float(number: float) -> str | None:
    if not math.isfinite(number):
        return None
    return str(int(number)) if number.is_integer() and abs(number) < 2**53 else repr(number)


def _spell_decimal(number: Decimal) -> str | None:
    if not number:
        return "0"
    if not number.is_finite():
        return None
    text = format(number, "f") if abs(number.adjusted()) < 400 else str(number)
    return text.rstrip("0").removesuffix(".") if "." in text and "E" not in text else text


def _spell_time(cell: Any) -> str | None:
    passed = _microseconds(cell)
    if passed is None:
        return None
    moment = _EPOCH + timedelta(microseconds=passed)
    return moment.isoformat(" ") if passed % _DAY else moment.date().isoformat()


def read_number(cell: Any) -> float:
    """The finite number that a cell is or spells; NaN where there is none."""
    try:
        if isinstance(cell, (str, *_BYTES)):
            text = cell if type(cell) is str else _spell(cell) or ""
            number = float(text) if _NUMBER.fullmatch(text) else math.nan
        else:
            number = float(cell) if isinstance(cell, _REAL) and not isinstance(cell, _SPAN) else math.nan
    except Exception:  # beyond what floats hold, or an object of the user's own
        return math.nan
    return number if math.isfinite(number) else math.nan


def read_exact(cell: Any) -> float | int:
    """The same, but whole numbers are exact, however large."""
    number = read_number(cell)
    if abs(number) < 2**53 or math.isnan(number):
        return number
    try:
        if isinstance(cell, (str, *_BYTES)):
            text = _spell(cell) or ""
            return int(text) if _WHOLE.fullmatch(text) else number
        return int(cell) if int(cell) == cell else number
    except Exception:  # an object of the user's own
        return number


def read_days(cell: Any, pattern: str | None = None) -> float:
    """The days since 1970-01-01 of a date or time: a date object, or text by ISO 8601 or a `strptime` pattern; NaN
    where there is none. Times with a zone are taken to UTC; fractions of a microsecond are cut off."""
    try:
        if isinstance(cell, (str, *_BYTES)):
            text = read_text(cell)
            cell = None if text is None else _parse(text, pattern)
        passed = _microseconds(cell)
    except Exception:  # no date, or an object of the user's own
        return math.nan
    if passed is None:
        return math.nan
    days, rest = divmod(passed, _DAY)
    return days + rest / _DAY


def _parse(text: str, pattern: str | None) -> datetime:
    return datetime.fromisoformat(text) if pattern is None else datetime.strptime(text, pattern)


def _microseconds(cell: Any) -> int | None:
    """Microseconds since 1970-01-01 in UTC, exact also for years that Python's dates do not reach."""
    if isinstance(cell, datetime) and hasattr(cell, "asm8"):
        cell = cell.asm8  # of pandas, also NaT
    if isinstance(cell, np.datetime64):
        return None if np.isnat(cell) else _microseconds_of_numpy(cell)
    if isinstance(cell, datetime):
        passed = cell.replace(tzinfo=None) - _EPOCH - (cell.utcoffset() or timedelta(0))
        return passed // timedelta(microseconds=1)
    return (cell - _EPOCH.date()).days * _DAY if isinstance(cell, date) else None


def _microseconds_of_numpy(cell: np.datetime64) -> int:
    unit, count = np.datetime_data(cell.dtype)
    passed = int(cell.astype(np.int64)) * count
    if unit in ("Y", "M"):  # numpy's own conversion wraps around in silence
        months = max(-_FAR, min(_FAR, 12 * passed if unit == "Y" else passed))
        return int(np.datetime64(months, "M").astype("datetime64[D]").astype(np.int64)) * _DAY
    many, few = _MICROSECONDS[unit]
    return passed * many // few


# --- whole columns ---------------------------------------------------------------------------------------------------


def is_arrow(column: Any) -> bool:
    """Whether a column is an array of pyarrow."""
    return type(column).__module__.split(".")[0] == "pyarrow"


def cells_of(column: Any) -> Sequence[Any]:
    """A column as a sequence of cells."""
    if is_arrow(column):
        return _arrow_cells(column)
    if isinstance(column, np.ndarray):
        return column.tolist() if column.dtype.kind in "biufUOS" else list(column)
    return column if isinstance(column, list) else list(column)


def _arrow_cells(column: Any) -> list[Any]:
    if hasattr(column, "chunks"):
        return [cell for chunk in column.chunks for cell in _arrow_cells(chunk)]
    times = _arrow_times(column)
    if times is not None:
        return list(times)
    try:
        return column.to_pylist()
    except Exception:  # one cell is no UTF-8, or a date that Python cannot hold: each by itself then
        return [_arrow_cell(cell) for cell in column]


def _arrow_cell(cell: Any) -> Any:
    """What `to_pylist` makes of a cell; its bytes where they are no UTF-8, None where nothing can be made of it."""
    try:
        return cell.as_py()
    except Exception:
        pass
    try:
        if hasattr(cell, "as_buffer"):
            return cell.as_buffer().to_pybytes()
        return _arrow_cell(cell.value) if hasattr(cell, "value") else _arrow_cells(cell.values)
    except Exception:
        return None


def numbers_of(column: Any) -> FloatArray:
    """`read_number` of each cell."""
    if is_arrow(column):
        return _arrow_numbers(column)
    if isinstance(column, np.ndarray) and column.dtype.kind in "biuf":
        return _finite(column)
    return _numbers_of_cells(cells_of(column))


def _finite(numbers: npt.NDArray[Any]) -> FloatArray:
    with np.errstate(all="ignore"):  # a warning about one extreme cell would be a release
        values = numbers.astype(np.float64)
        return np.where(np.isfinite(values), values, np.nan)


def _numbers_of_cells(cells: Sequence[Any]) -> FloatArray:
    return np.fromiter((read_number(cell) for cell in cells), np.float64, len(cells))


def _arrow_numbers(column: Any) -> FloatArray:
    """The same of an array of pyarrow."""
    import pyarrow as pa

    if hasattr(column, "chunks"):
        return np.concatenate([np.zeros(0), *map(_arrow_numbers, column.chunks)])
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        plain = column.cast(pa.int8()) if pa.types.is_boolean(kind) else column
        return _finite(plain.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _spelled_numbers(column)
    return _numbers_of_cells(_arrow_cells(column))


def _spelled_numbers(column: Any) -> FloatArray:
    """The same of text. pyarrow gets only what it reads as Python does; one cell that it cannot read would make the
    conversion of all fail, and its message would quote the cell."""
    import pyarrow as pa
    import pyarrow.compute as pc

    short = pc.less_equal(pc.binary_length(column), _PLAIN_LENGTH)
    plain = pc.and_(pc.match_substring_regex(column, _PLAIN_NUMBER), short).fill_null(False)
    chosen = plain.to_numpy(zero_copy_only=False)
    values = np.empty(len(column))
    values[chosen] = pc.ascii_trim(column.filter(plain), " \t+").cast(pa.float64()).to_numpy(zero_copy_only=False)
    values[~chosen] = _numbers_of_cells(_arrow_cells(column.filter(pc.invert(plain))))
    return values


def days_of(column: Any, pattern: str | None = None) -> FloatArray:
    """`read_days` of each cell; of columns of dates and times by arithmetic, so that every date can be read."""
    if is_arrow(column):
        if hasattr(column, "chunks"):
            return np.concatenate([np.zeros(0), *(days_of(chunk, pattern) for chunk in column.chunks)])
        times = _arrow_times(column)
        column = column if times is None else times
    if isinstance(column, np.ndarray) and column.dtype.kind == "M":
        unit, count = np.datetime_data(column.dtype)
        passed = column.astype(np.int64)
        if unit == "ns":
            passed, unit = passed // 1000, "us"
        if unit in _PER_DAY and count == 1:
            days, rest = np.divmod(passed, _PER_DAY[unit])
            return np.where(np.isnat(column), np.nan, days + rest / _PER_DAY[unit])
    return np.array(map_distinct(column, lambda cell: read_days(cell, pattern)), dtype=np.float64)


def _arrow_times(column: Any) -> Any:
    """A column of dates or times as one of numpy; None for others."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_timestamp(kind):
        unit = kind.unit
    elif pa.types.is_date(kind):
        unit = "D" if pa.types.is_date32(kind) else "ms"
    else:
        return None
    whole = column.cast(pa.int32() if unit == "D" else pa.int64())
    known = whole.is_valid().to_numpy(zero_copy_only=False)
    values = whole.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64).astype(f"datetime64[{unit}]")
    return np.where(known, values, np.datetime64("NaT", unit))


def map_distinct(column: Any, rule: Callable[[Any], T]) -> list[T]:
    """`rule` of each cell, computed once for cells that are the same text."""
    found: dict[str, T] = {}

    def value(cell: Any) -> T:
        if type(cell) is not str:
            return rule(cell)
        if cell not in found:
            found[cell] = rule(cell)
        return found[cell]

    return [value(cell) for cell in cells_of(column)]
