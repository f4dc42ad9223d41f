"""Rules for one cell: the number, the truth value, the date or the text that it holds, or that it holds none.

Every rule is a function of one cell and of public settings, so one person's cell never decides how another is read.
Columns come as numpy arrays, as lists, or as arrays of pyarrow (duck-typed: it is not imported unless the table came
from it). Where a column is read as a whole for speed, each cell gets what it would get alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from tulle.trusted.intake import MISSING, get_key, read_finite_number, unwrap

FloatArray = npt.NDArray[np.float64]
T = TypeVar("T")

# The numbers that text can spell: digits with a point and an exponent, nothing else ("inf", "1_000" and "1,5" are not).
NUMBER = r"[ \t]*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?[ \t]*"
_NUMBER = re.compile(NUMBER)

TRUE, FALSE = ("true", "t", "yes", "y", "1"), ("false", "f", "no", "n", "0")

_DAY = 86400.0
_PER_DAY = {"D": 1.0, "h": 24.0, "m": 1440.0, "s": 86400.0, "ms": 864e5, "us": 864e8, "ns": 864e11}
_EPOCH = datetime(1970, 1, 1)


def read_text(cell: Any) -> str | None:
    """The text of a cell without blanks around it; None where there is none. Whole numbers are spelled without a
    point, so that 7 and 7.0 are "7"."""
    if type(cell) is str:
        text = cell.strip()
        return text or None
    if isinstance(cell, bytes):
        return read_text(cell.decode("utf-8", "replace"))
    key = get_key(cell)
    if key is MISSING:
        return None
    plain = unwrap(cell)
    if isinstance(plain, bool):
        return "true" if plain else "false"
    if isinstance(plain, float):
        if not math.isfinite(plain):
            return None
        return str(int(plain)) if plain.is_integer() and abs(plain) < 2**53 else repr(plain)
    if isinstance(plain, str):
        return read_text(str.__str__(plain))
    try:
        return str(plain).strip() or None
    except Exception:  # an object of the user's own
        return None


def read_number(cell: Any) -> float:
    """The finite number that a cell is or spells; NaN where there is none."""
    if isinstance(cell, bytes):
        cell = cell.decode("utf-8", "replace")
    if isinstance(cell, str):
        return _finite(float(cell)) if _NUMBER.fullmatch(cell) else math.nan
    return read_finite_number(cell)


def _finite(number: float) -> float:
    return number if math.isfinite(number) else math.nan


def read_days(cell: Any, pattern: str | None = None) -> float:
    """The days since 1970-01-01 of a date or time: a date object, or text by ISO 8601 or a `strptime` pattern; NaN
    where there is none. Times with a zone are taken to UTC."""
    if isinstance(cell, np.datetime64):
        cell = None if np.isnat(cell) else cell.astype("datetime64[us]").item()
    if isinstance(cell, (str, bytes)):
        text = read_text(cell)
        try:
            cell = None if text is None else _parse(text, pattern)
        except (ValueError, OverflowError):
            return math.nan
    try:
        if isinstance(cell, datetime):
            if cell.tzinfo is not None:
                cell = cell.astimezone(UTC).replace(tzinfo=None)
            return (cell - _EPOCH).total_seconds() / _DAY
        if isinstance(cell, date):
            return float((cell - _EPOCH.date()).days)
    except Exception:  # NaT of pandas, or a date beyond what can be computed with
        return math.nan
    return math.nan


def _parse(text: str, pattern: str | None) -> datetime:
    return datetime.fromisoformat(text) if pattern is None else datetime.strptime(text, pattern)


# --- whole columns ---------------------------------------------------------------------------------------------------


def _is_arrow(column: Any) -> bool:
    return type(column).__module__.split(".")[0] == "pyarrow"


def cells_of(column: Any) -> Sequence[Any]:
    """A column as a sequence of cells."""
    if _is_arrow(column):
        return _arrow_cells(column)
    if isinstance(column, np.ndarray):
        return column.tolist() if column.dtype.kind in "biufUOS" else list(column)
    return column if isinstance(column, list) else list(column)


def _arrow_cells(column: Any) -> list[Any]:
    try:
        return column.to_pylist()
    except Exception:  # one cell is no UTF-8, or a date that Python cannot hold: each by itself then
        return [_arrow_cell(cell) for cell in column]


def _arrow_cell(cell: Any) -> Any:
    try:
        return cell.as_py()
    except UnicodeDecodeError:
        return cell.as_buffer().to_pybytes().decode("utf-8", "replace")
    except Exception:
        return None


def numbers_of(column: Any) -> FloatArray:
    """`read_number` of each cell."""
    if _is_arrow(column):
        return _arrow_numbers(column)
    if isinstance(column, np.ndarray) and column.dtype.kind in "biuf":
        with np.errstate(all="ignore"):
            values = column.astype(np.float64)
        return np.where(np.isfinite(values), values, np.nan)
    cells = cells_of(column)
    return np.fromiter((read_number(cell) for cell in cells), np.float64, len(cells))


def _arrow_numbers(column: Any) -> FloatArray:
    """The same of an array of pyarrow. The cells that spell numbers are found first, so that none can make the
    conversion of all fail; where one still does, because it is beyond what floats hold, each is read by itself."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        plain = column.cast(pa.int8()) if pa.types.is_boolean(kind) else column
        values = plain.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False).astype(np.float64)
        return np.where(np.isfinite(values), values, np.nan)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        spelled = pc.match_substring_regex(column, f"^(?:{NUMBER})$")
        try:
            # "1." and ".5" are numbers here and for Python, but not for pyarrow: those are left to the slow path.
            chosen = pc.if_else(spelled, pc.utf8_trim(column, " \t+"), pa.scalar(None, kind))
            values = chosen.cast(pa.float64()).to_numpy(zero_copy_only=False).astype(np.float64)
            return np.where(np.isfinite(values), values, np.nan)
        except pa.ArrowException:
            pass  # its message quotes a cell
    cells = _arrow_cells(column)
    return np.fromiter((read_number(cell) for cell in cells), np.float64, len(cells))


def days_of(column: Any, pattern: str | None = None) -> FloatArray:
    """`read_days` of each cell; of columns of dates and times by arithmetic, so that every date can be read."""
    if _is_arrow(column):
        column = _arrow_times(column)
    if isinstance(column, np.ndarray) and column.dtype.kind == "M":
        unit, count = np.datetime_data(column.dtype)
        if unit not in _PER_DAY:  # years, months and weeks have no fixed number of these
            column, unit, count = column.astype("datetime64[D]"), "D", 1
        whole = column.astype(np.int64)
        return np.where(np.isnat(column), np.nan, whole * (count / _PER_DAY[unit]))
    return np.array(map_distinct(column, lambda cell: read_days(cell, pattern)), dtype=np.float64)


def _arrow_times(column: Any) -> Any:
    """A column of dates or times as one of numpy; others as they are."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_timestamp(kind):
        unit = kind.unit
    elif pa.types.is_date(kind):
        unit = "D" if pa.types.is_date32(kind) else "ms"
    else:
        return column
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
