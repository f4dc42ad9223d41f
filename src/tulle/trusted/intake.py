"""The one way in: every private entry, label, weight and person id is read here, each by a rule of that cell alone.

One person's cell must not decide how the cells of others are read. numpy does that: one word in a list turns all labels
into words, one fraction rounds all large ids, one missing value makes floats of whole numbers. So nothing here asks
numpy for a common type of cells that were given one by one. A cell is compared by its *key*:

- numbers of any type: their value. 7, 7.0 and ``np.int64(7)`` are one label or id, and so are 1 and True, 0 and False.
  Whole numbers are exact, however large.
- words: their characters. "7" is not 7 (but see `tulle.files.class_labels.get_text_key`).
- anything else (dates, bytes, tuples): its type and its representation.
- None, NaN, NaT and ``pandas.NA``, and what cannot even be represented, are missing.

Adjacency is replace-one: cells of one person change, and with them what these cells count as; nothing else does.
Refusals (docs/what_a_refusal_reveals.md) name rows and columns and never quote a cell. The user's side of a local study
has this module too: numpy, scipy and the standard library.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

FloatArray = npt.NDArray[np.float64]
Cells = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.intp]
GetKey = Callable[[Any], Hashable]

# Arrays of these kinds hold one type in all cells, given so; their cells are not looked at one by one.
NUMBERS, PLAIN = "biuf", "biufUS"

# Objects of which numpy makes numbers as `float` does.
_READABLE = {float, int, bool, str, np.float64, np.float32, np.int64, np.int32, np.bool_, np.str_}


class _Missing:
    """The key of a cell without a value."""


MISSING: Final = _Missing()


def read_cells(given: Any, name: str) -> Cells:
    """One cell for each row, as an array of one plain type, or of objects as they were given. `name` is for errors."""
    if hasattr(given, "compute"):  # on a cluster: which rows count is a matter of all rows of a person
        given = given.compute()
    if sp.issparse(given):
        raise TypeError(f"{name} is a sparse array, but dense data is required; use toarray()")
    if isinstance(given, np.ma.MaskedArray):
        array = np.asarray(given.data).astype(object)
        array[np.ma.getmaskarray(given)] = None
    elif hasattr(given, "iloc") and hasattr(given, "to_numpy"):  # pandas; its own types become objects, cell by cell
        plain = all(isinstance(dtype, np.dtype) for dtype in np.ravel(getattr(given, "dtypes", given.dtype)))
        array = given.to_numpy() if plain else given.astype(object).to_numpy(dtype=object)
    elif isinstance(given, Sequence) and not isinstance(given, (str, bytes)):
        # One by one: numpy would look for a type that all of them fit into.
        array = np.empty(len(given), dtype=object)
        for row, cell in enumerate(given):
            alone = len(cell) == 1 if isinstance(cell, list) else isinstance(cell, np.ndarray) and cell.shape == (1,)
            array[row] = cell[0] if alone else cell  # of a column that is written as a list of rows
    else:
        array = np.asarray(given)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise ValueError(f"{name} should be a 1d array, got an array of shape {array.shape} instead.")
    if array.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: {name} is of type {array.dtype}")
    return array if array.dtype.kind in PLAIN + "Mm" else array.astype(object)


def get_key(cell: Any) -> Hashable:
    """What a cell is compared by; `MISSING` where there is nothing."""
    kind = type(cell)
    if kind is str or kind is int:  # nearly all
        return cell
    try:
        return _make_key(unwrap(cell))
    except Exception:  # an object of the user's own that does not let itself be looked at
        return MISSING


def unwrap(cell: Any) -> Any:
    """A cell without what numpy wraps around it."""
    if isinstance(cell, np.longdouble):
        return float(cell) if float(cell) == cell or cell != cell else (np.longdouble, repr(cell))
    dated = isinstance(cell, (np.datetime64, np.timedelta64))
    return cell.item() if isinstance(cell, np.generic) and not dated else cell


def _make_key(cell: Any) -> Hashable:
    if cell is None or type(cell).__name__ in ("NAType", "NaTType"):
        return MISSING
    if isinstance(cell, str):
        return str.__str__(cell)
    if isinstance(cell, int):
        return int(cell)
    if isinstance(cell, (float, complex, Decimal)):
        return MISSING if cell != cell else cell
    if isinstance(cell, (np.datetime64, np.timedelta64)) and np.isnat(cell):
        return MISSING
    return cell if isinstance(cell, Fraction) else (type(cell), repr(cell))


def index_keys(of: Cells, key: GetKey = get_key) -> tuple[list[Hashable], Codes]:
    """The different keys, and which of them each cell has."""
    if of.dtype.kind not in "OU":
        values, places = _index_values(of)
        # Dates as they are: tolist() would make plain numbers of some.
        return [key(value) for value in (values if of.dtype.kind in "mM" else values.tolist())], places
    numbers: dict[Hashable, int] = {}
    each = of.tolist() if of.dtype.kind == "U" else of  # words are sorted more slowly than they are looked up
    places = np.fromiter((numbers.setdefault(key(cell), len(numbers)) for cell in each), np.intp, len(of))
    return list(numbers), places


def _index_values(of: Cells) -> tuple[Cells, Codes]:
    values, places = np.unique(of, return_inverse=True)
    return values, places.astype(np.intp, copy=False)


def name_rows(bad: Mask) -> str:
    """The numbers of some of the rows that a refusal is about."""
    rows = np.flatnonzero(bad)
    some = ", ".join(str(row) for row in rows[:5])
    return f"row{'s' * (len(rows) > 1)} {some}" + (f" and {len(rows) - 5:,} more" if len(rows) > 5 else "")


def read_number(cell: Any) -> float | None:
    """A cell as a number, which may be NaN or infinite; None where it is none."""
    if get_key(cell) is MISSING:
        return math.nan
    plain = unwrap(cell)
    if isinstance(plain, (np.datetime64, np.timedelta64, np.ndarray)):
        return None
    try:
        return float(plain)
    except OverflowError:
        return math.inf
    except Exception:  # a word, or any error of a class of the user's own
        return None


def read_finite_number(cell: Any) -> float:
    """A cell as a finite number, also where text spells it; NaN where it is none."""
    number = read_number(cell)
    return number if number is not None and math.isfinite(number) else math.nan


def read_numbers(given: Cells) -> FloatArray:
    """Each cell as a number by itself; NaN where it is no finite one."""
    if given.dtype.kind in NUMBERS:
        with np.errstate(all="ignore"):
            values = given.astype(np.float64)
        return np.where(np.isfinite(values), values, np.nan)
    return np.fromiter((read_finite_number(cell) for cell in given), np.float64, len(given))


def read_column(column: Cells) -> tuple[FloatArray, Mask]:
    """Each cell as a number by itself, which may be NaN or infinite, and the cells that are none (NaN)."""
    try:
        if column.dtype.kind in "mM" or (column.dtype.kind == "O" and not set(map(type, column)) <= _READABLE):
            raise TypeError  # numpy would warn of some, and read dates as numbers
        with np.errstate(all="ignore"):  # a warning about one extreme cell would be a release
            return column.astype(np.float64), np.zeros(len(column), dtype=bool)
    except Exception:  # what numpy says quotes the cell
        numbers = [read_number(cell) for cell in column]
        values = [math.nan if number is None else number for number in numbers]
        return np.array(values, dtype=np.float64), np.array([number is None for number in numbers], dtype=bool)


def read_lists(X: Sequence[Any]) -> Cells:
    """Lists of rows. Numbers become float64 each by itself; where there is anything else the cells stay as they are."""
    try:
        array = np.asarray(X)
        if array.dtype.kind not in NUMBERS + "c" and array.ndim >= 2:
            array = np.asarray(X, dtype=object)
    except Exception:
        raise ValueError("the rows of X are not equally long: an inhomogeneous shape") from None
    return array.astype(np.float64) if array.dtype.kind in NUMBERS else array


def encode_labels(labels: Cells, classes: Any, key: GetKey = get_key) -> Codes:
    """The number of each label's class; -1 for a label that is none of them. `classes` are public, and different."""
    number_of_class = {key(label): number for number, label in enumerate(np.asarray(classes).tolist())}
    number_of_class.pop(MISSING, None)
    keys, places = index_keys(labels, key)
    return np.array([number_of_class.get(key, -1) for key in keys], dtype=np.intp)[places]


@dataclass(frozen=True, eq=False)
class ClassCodes:
    """Labels as the numbers of their classes from 0 on (`numbers`), or as -1 and +1; NaN for a label that is none of
    the public `classes`, see `mask_unlabelled`. Data and not a closure, so that it can travel to where rows are."""

    classes: npt.NDArray[Any] | tuple[str, ...]
    numbers: bool

    def __call__(self, y: Cells, key: GetKey = get_key) -> FloatArray:
        found = encode_labels(y, self.classes, key)
        return np.where(found < 0, np.nan, found if self.numbers else 2.0 * found - 1.0)


@dataclass(frozen=True)
class AsNumbers:
    """Targets as they are; NaN for one that is no finite number, see `mask_unlabelled`."""

    def __call__(self, y: Cells, key: GetKey = get_key) -> FloatArray:
        return read_numbers(y)


def mask_unlabelled(targets: FloatArray, active: Mask | None) -> tuple[FloatArray, Mask]:
    """Targets and the rows that count: one without a target (NaN) does not.

    `select_first_rows` chooses the rows of a person without a look at labels, and rows without a target are taken away
    after. So replacing one person changes the activity of its own rows alone, and no more than its share of them are
    active before and after: the sensitivities of queries rely on that.
    """
    known = np.isfinite(targets)
    return np.where(known, targets, 0.0), known if active is None else active & known


def select_first_rows(groups: Any, limit: int, n_rows: int | None = None) -> Mask:
    """Which rows count: the first `limit` (at least 1) of each person.

    `groups` are person ids, compared by their keys: whether two rows are one person's depends on these two ids alone.
    Raises where one is missing, or where there are not `n_rows` of them.
    """
    ids = read_cells(groups, "groups")
    if n_rows is not None and ids.shape != (n_rows,):
        raise ValueError(f"groups has shape {ids.shape} for {n_rows} rows; pass one person id per row")
    if ids.dtype.kind in "OU":
        keys, person = index_keys(ids)
        missing = np.array([key is MISSING for key in keys], dtype=bool)[person]
    else:  # the same, without a key for each of millions of ids
        _, person = _index_values(ids)
        missing = np.isnat(ids) if ids.dtype.kind in "mM" else ids != ids
    if missing.any():
        raise ValueError(
            f"groups holds no person id for {name_rows(missing)}; every row needs one, so fill it in or leave the row "
            "out"
        )
    order = np.argsort(person, kind="stable")
    in_order = person[order]
    starts = np.flatnonzero(np.r_[True, in_order[1:] != in_order[:-1]][: len(ids)])
    position = np.arange(len(ids)) - np.repeat(starts, np.diff(np.r_[starts, len(ids)]))
    active = np.empty(len(ids), dtype=bool)
    active[order] = position < limit
    return active
