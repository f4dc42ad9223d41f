"""The one way in: every private entry, label, weight and person id is read here, each by a rule of that cell alone.

Somebody's cell must not decide how the cells of others are read. numpy does that: one word in a list turns all labels
into words, one fraction rounds all large ids, one missing value makes floats of whole numbers. So nothing here asks
numpy for a common type of cells that were given one by one. What a cell is compared by, its *key*, is:

- numbers of any type: their value. 7, 7.0 and ``np.int64(7)`` are one label or id, and so are 1 and True, 0 and False.
  Whole numbers are exact, however large.
- words: their characters. "7" is not 7 (but see `spelled`).
- anything else (dates, bytes, tuples): its type and its representation.
- None, NaN, NaT and ``pandas.NA``, and what cannot even be represented, are missing.

Adjacency is replace-one: cells of one person change, and with them what these cells count as; nothing else does. What
is refused because of one cell stands in docs/what_a_refusal_reveals.md. Refusals name rows and columns and never quote
a cell. Trusted, and the user's side of a local study has it too: numpy, scipy and the standard library.
"""

from __future__ import annotations

import math
import warnings
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
Read = Callable[[Any], Hashable]

# Arrays of these kinds hold one type in all cells, whoever's they are; their cells are not looked at one by one.
_NUMBERS, _WORDS = "biuf", "U"
_PLAIN = "biufUS"

# Objects of which numpy makes numbers as `float` does.
_READABLE = {float, int, bool, str, np.float64, np.float32, np.int64, np.int32, np.bool_, np.str_}

# So many entries of dense rows are looked at together.
_AT_ONCE = 1 << 22


class _Missing:
    """The key of a cell without a value."""

    def __repr__(self) -> str:
        return "missing"


MISSING: Final = _Missing()

# What reports say of the set of class labels.
LABELS_DECLARED = "The class labels were declared beforehand; rows with another label count as nothing."
LABELS_PUBLISHED = "The set of class labels was taken from the rows, and the fit published it (no classes= declared)."


# --- cells -----------------------------------------------------------------------------------------------------------


def cells(given: Any, name: str) -> Cells:
    """What was given for each row, as an array of one dimension: of one plain type, or of objects as they were given.

    Parameters
    ----------
    given : array, pandas Series, list or other sequence
    name : str
        What it is, for errors.
    """
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
        from sklearn.exceptions import DataConversionWarning

        warnings.warn(  # of its shape, which is public
            f"A column-vector {name} was passed when a 1d array was expected. Please change the shape of {name} to "
            "(n_samples,), for example using ravel().",
            DataConversionWarning,
            stacklevel=5,
        )
        array = array[:, 0]
    if array.ndim != 1:
        raise ValueError(f"{name} should be a 1d array, got an array of shape {array.shape} instead.")
    if array.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: {name} is of type {array.dtype}")
    return array if array.dtype.kind in _PLAIN + "Mm" else array.astype(object)


def key_of(cell: Any) -> Hashable:
    """What a cell is compared by; `MISSING` where there is nothing."""
    kind = type(cell)
    if kind is str or kind is int:  # nearly all
        return cell
    try:
        return _key_of(_plain(cell))
    except Exception:  # an object of the user's own that does not let itself be looked at
        return MISSING


def _plain(cell: Any) -> Any:
    """A cell without what numpy wraps around it."""
    if isinstance(cell, np.longdouble):
        return float(cell) if float(cell) == cell or cell != cell else (np.longdouble, repr(cell))
    dated = isinstance(cell, (np.datetime64, np.timedelta64))
    return cell.item() if isinstance(cell, np.generic) and not dated else cell


def _key_of(cell: Any) -> Hashable:
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


def _reading(cell: Any) -> float | None:
    """A cell as a number, which may be NaN or infinite; None where it is none."""
    if key_of(cell) is MISSING:
        return math.nan
    plain = _plain(cell)
    if isinstance(plain, (np.datetime64, np.timedelta64, np.ndarray)):
        return None
    try:
        return float(plain)
    except OverflowError:
        return math.inf
    except Exception:  # a word, or whatever an object of the user's own raises
        return None


def number_of(cell: Any) -> float:
    """A cell as a finite number, also where text spells it; NaN where it is none."""
    number = _reading(cell)
    return number if number is not None and math.isfinite(number) else math.nan


def spelled(cell: Any) -> Hashable:
    """The key of a cell of a file: what text spells, if that is a number. In a file every cell is text, and whether a
    column was read as numbers may be the doing of another row."""
    key = key_of(cell)
    if isinstance(key, str):
        number = number_of(key)
        return key if math.isnan(number) else number
    return key


def spelled_cells(given: Cells) -> Cells:
    """Cells of a file with text that spells numbers as numbers."""
    if given.dtype.kind in _NUMBERS:
        return given
    keys, places = _told_apart(given, spelled)
    values = np.empty(len(keys), dtype=object)
    values[:] = [None if key is MISSING else key for key in keys]
    return values[places]


def _told_apart(of: Cells, read: Read = key_of) -> tuple[list[Hashable], Codes]:
    """The different keys, and which of them each cell has."""
    if of.dtype.kind not in "OU":
        values, places = _different(of)
        # Dates as they are: tolist() would make plain numbers of some.
        keys = [read(value) for value in (values if of.dtype.kind in "mM" else values.tolist())]
        return keys, places
    numbers: dict[Hashable, int] = {}
    each = of.tolist() if of.dtype.kind == "U" else of  # words are sorted more slowly than they are looked up
    places = np.fromiter((numbers.setdefault(read(cell), len(numbers)) for cell in each), np.intp, len(of))
    return list(numbers), places


def _different(of: Cells) -> tuple[Cells, Codes]:
    """The different values of an array of one plain type, and which of them each cell has."""
    values, places = np.unique(of, return_inverse=True)
    return values, places.astype(np.intp, copy=False)


def different(of: Cells) -> Cells:
    """Cells with every key that there is, the first of each."""
    _, places = _told_apart(of)
    return of[np.unique(places, return_index=True)[1]]


def joined(parts: Sequence[Cells]) -> Cells:
    """The cells of several parts of the rows, each as it is in its own part."""
    if len({part.dtype.kind if part.dtype.kind in _PLAIN else "O" for part in parts}) > 1:
        parts = [part.astype(object) for part in parts]
    return np.concatenate(parts) if parts else np.empty(0, dtype=object)


def _in_rows(bad: Mask) -> str:
    """Which rows they are, in words."""
    rows = np.flatnonzero(bad)
    some = ", ".join(str(row) for row in rows[:5])
    return f"row{'s' * (len(rows) > 1)} {some}" + (f" and {len(rows) - 5:,} more" if len(rows) > 5 else "")


def check_same_length(X: Any, y: Cells) -> None:
    """Raise, as scikit-learn does, where there are not as many labels as rows."""
    if X.shape[0] != len(y):
        raise ValueError(f"Found input variables with inconsistent numbers of samples: {[X.shape[0], len(y)]}")


# --- labels ----------------------------------------------------------------------------------------------------------


def declared_classes(classes: Any, read: Read = key_of) -> npt.NDArray[Any]:
    """The classes that somebody declares, in order; an error where they are not at least two, all words or all numbers.

    Parameters
    ----------
    classes : sequence
        Public.
    read : callable, default=key_of
        What they are told apart by.
    """
    if isinstance(classes, (str, bytes)) or not hasattr(classes, "__len__"):
        raise ValueError(f"classes must be at least two different words, or numbers, got {classes!r}")
    values = [cell.item() if isinstance(cell, np.generic) else cell for cell in cells(classes, "classes").tolist()]
    words = [isinstance(value, str) for value in values]
    numbers = [isinstance(value, (int, float)) and math.isfinite(value) for value in values]
    different = len({read(value) for value in values}) == len(values)
    if not (len(values) >= 2 and different and (all(words) or all(numbers))):
        raise ValueError(f"classes must be at least two different words, or numbers, got {classes!r}")
    return _ordered(values)


def _ordered(values: Sequence[Any]) -> npt.NDArray[Any]:
    """Different words, or numbers, in order, as an array that holds them as they are."""
    values = sorted(values)
    array = np.array(values)
    if array.tolist() == values:
        return array
    array = np.empty(len(values), dtype=object)  # numbers beyond 64 bits, words that end in a zero byte
    array[:] = values
    return array


def found_classes(labels: Cells) -> npt.NDArray[Any]:
    """The classes that labels hold, in order: published, since a model says which classes it has.

    Raises
    ------
    ValueError
        Where some label is no class: missing, infinite, a fraction, or a word among numbers.
    """
    keys = check_values(labels, "y")
    words = [isinstance(key, str) for key in keys]
    numbers = [isinstance(key, (int, float)) for key in keys]
    if not (all(words) or all(numbers)):
        raise ValueError(
            "Unknown label type: labels must be all words or all numbers; declare classes=..., and rows with any other "
            "label count as nothing"
        )
    if any(isinstance(key, float) and not key.is_integer() for key in keys):
        raise ValueError(
            "Unknown label type: continuous. A classifier expects discrete classes, and there are fractions among the "
            "labels; fit a regression, or declare classes=..."
        )
    if labels.dtype.kind != "O":
        return np.unique(labels)
    return _ordered([_plain(label) for label in different(labels)])


def codes(labels: Cells, classes: Any, read: Read = key_of) -> Codes:
    """The number of each label's class; -1 for a label that is none of them.

    Parameters
    ----------
    labels : Cells
    classes : array or sequence
        Public, different.
    read : callable, default=key_of
    """
    number_of_class = {read(label): number for number, label in enumerate(np.asarray(classes).tolist())}
    number_of_class.pop(MISSING, None)
    keys, places = _told_apart(labels, read)
    return np.array([number_of_class.get(key, -1) for key in keys], dtype=np.intp)[places]


@dataclass(frozen=True, eq=False)
class ClassCodes:
    """Labels as the numbers of their classes, or as -1 and +1; NaN for a label that is none of them, see `counted`.

    Data and not a closure, so that it can travel to where rows are.

    Parameters
    ----------
    classes : array or tuple of str
        All of them, in order.
    numbers : bool
        Numbers from 0 on; otherwise -1 and +1.
    """

    classes: npt.NDArray[Any] | tuple[str, ...]
    numbers: bool

    def __call__(self, y: Cells, read: Read = key_of) -> FloatArray:
        found = codes(y, self.classes, read)
        return np.where(found < 0, np.nan, found if self.numbers else 2.0 * found - 1.0)


@dataclass(frozen=True)
class AsNumbers:
    """Targets as they are; NaN for one that is no finite number, see `counted`."""

    def __call__(self, y: Cells, read: Read = key_of) -> FloatArray:
        return numbers(y)


@dataclass(frozen=True)
class NoTargets:
    """Zeros, where rows alone are asked about."""

    def __call__(self, y: Cells, read: Read = key_of) -> FloatArray:
        return np.zeros(len(y))


def counted(targets: FloatArray, active: Mask | None) -> tuple[FloatArray, Mask]:
    """Targets and the rows that count: one without a target (NaN) does not.

    Which rows of a person are within its share (`first_rows_of_each_person`) is settled without a look at labels, and
    rows without a target are taken away after. Replacing one person so changes the activity of its own rows alone, and
    no more than its share of them are active before and after: what the sensitivities of queries rely on. (The first
    rows among those with a label would do too: that choice looks at no other person's rows either.)
    """
    known = np.isfinite(targets)
    return np.where(known, targets, 0.0), known if active is None else active & known


# --- numbers ---------------------------------------------------------------------------------------------------------


def numbers(given: Cells) -> FloatArray:
    """Each cell as a number by itself; NaN where it is no finite one."""
    if given.dtype.kind in _NUMBERS:
        with np.errstate(all="ignore"):
            values = given.astype(np.float64)
        return np.where(np.isfinite(values), values, np.nan)
    return np.fromiter((number_of(cell) for cell in given), np.float64, len(given))


def check_values(given: Cells, name: str) -> list[Hashable]:
    """The different keys; an error where a cell is missing or infinite."""
    keys, _ = _told_apart(given)
    if MISSING in keys:
        raise ValueError(f"Input {name} contains NaN, or missing cells; leave these rows out")
    if any(isinstance(key, float) and math.isinf(key) for key in keys):
        raise ValueError(f"Input {name} contains infinity; leave these rows out")
    return keys


def finite_numbers(given: Cells, name: str) -> FloatArray:
    """All cells as finite numbers.

    Raises
    ------
    ValueError
        Where some cell is missing, infinite or no number.
    """
    if given.dtype.kind in _NUMBERS:
        with np.errstate(all="ignore"):
            values = given.astype(np.float64)
    else:
        read = [_reading(cell) for cell in given]
        bad = np.array([number is None for number in read], dtype=bool)
        if bad.any():
            raise ValueError(
                f"could not convert string to float: {name} holds words, and a regression needs numbers; convert them, "
                f"or fit a classifier ({_in_rows(bad)})"
            )
        values = np.array(read, dtype=np.float64)
    for problem, bad in (
        ("NaN", np.isnan(values)),
        ("infinity or a value too large for dtype('float64')", ~np.isfinite(values)),
    ):
        if bad.any():
            raise ValueError(f"Input {name} contains {problem} ({_in_rows(bad)}).")
    return values


# --- people ----------------------------------------------------------------------------------------------------------


def first_rows_of_each_person(groups: Any, limit: int, n_rows: int | None = None) -> Mask:
    """Which rows count: the first `limit` of each person.

    Parameters
    ----------
    groups : array of shape (n,)
        Person ids, told apart by their keys: whether two rows are one person's depends on these two ids alone.
    limit : int
        At least 1.
    n_rows : int or None, default=None
        How many ids there must be.

    Raises
    ------
    ValueError
        Where there is not one id for each row, or one is missing.
    """
    ids = cells(groups, "groups")
    if n_rows is not None and ids.shape != (n_rows,):
        raise ValueError(f"groups has shape {ids.shape} for {n_rows} rows; pass one person id per row")
    if ids.dtype.kind in "OU":
        keys, person = _told_apart(ids)
        missing = np.array([key is MISSING for key in keys], dtype=bool)[person]
    else:  # the same, without a key for each of millions of ids
        _, person = _different(ids)
        missing = np.isnat(ids) if ids.dtype.kind in "mM" else ids != ids
    if missing.any():
        raise ValueError(
            f"groups holds no person id for {_in_rows(missing)}; every row needs one, so fill it in or leave the row "
            "out"
        )
    order = np.argsort(person, kind="stable")
    in_order = person[order]
    starts = np.flatnonzero(np.r_[True, in_order[1:] != in_order[:-1]][: len(ids)])
    position = np.arange(len(ids)) - np.repeat(starts, np.diff(np.r_[starts, len(ids)]))
    active = np.empty(len(ids), dtype=bool)
    active[order] = position < limit
    return active


# --- entries ---------------------------------------------------------------------------------------------------------


def entries(X: Any, *, least_rows: int = 1, estimator: Any = None) -> Any:
    """Rows as finite numbers: a dense array, CSR or CSC, of float64, or float32 where all of it was given so.

    Parameters
    ----------
    X : array, sparse array, DataFrame or list of lists, of shape (n, d)
    least_rows : int, default=1
        How many there must be.
    estimator : object, default=None
        Who is named in errors.

    Raises
    ------
    ValueError, TypeError
        Where the shape is wrong, or an entry is NaN, infinite or no number. What scikit-learn or numpy would say is not
        passed on where it quotes entries.
    """
    from sklearn.utils import check_array

    with np.errstate(all="ignore"):  # a warning about somebody's extreme entry would be a release
        rows = _as_numbers(X)
        # Of numbers in two dimensions or more: only shapes are left to be wrong.
        rows = check_array(
            rows,
            accept_sparse=("csr", "csc"),
            dtype=(np.float64, np.float32),
            ensure_all_finite=False,
            ensure_min_samples=least_rows,
            estimator=estimator,
            input_name="X",
        )
        _check_finite(rows)
    return rows


def _as_numbers(X: Any) -> Any:
    """Rows as an array of numbers, not looked at any further."""
    if isinstance(X, np.matrix):
        raise TypeError("np.matrix is not supported. Please convert to a numpy array with np.asarray.")
    if hasattr(X, "iloc") and hasattr(X, "dtypes") and np.ndim(X) == 2:
        return _of_table(X)
    if sp.issparse(X):
        array = X
    elif isinstance(X, Sequence) and not isinstance(X, (str, bytes)):
        array = _of_lists(X)
    else:
        array = np.asarray(X)
    if array.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: X is of type {array.dtype}")
    if array.ndim < 2:
        got = "scalar" if array.ndim == 0 else f"{array.ndim}D"
        raise ValueError(
            f"Expected 2D array, got {got} array instead. Reshape your data either using array.reshape(-1, 1) if your "
            "data has a single feature or array.reshape(1, -1) if it contains a single sample."
        )
    if array.dtype.kind in _NUMBERS:
        return array
    if sp.issparse(array) or array.dtype.kind in "mM":
        raise TypeError(
            f"X must hold numbers, and is of type {array.dtype} (argument must be a string or a real number)"
        )
    if array.ndim > 2:
        raise ValueError(f"Found array with dim {array.ndim}, while dim <= 2 is required.")
    return _of_cells([array[:, place] for place in range(array.shape[1])], range(array.shape[1]), len(array))


def _of_lists(X: Sequence[Any]) -> npt.NDArray[Any]:
    """Lists of rows. Numbers become float64 each by itself; where there is anything else the cells stay as they are."""
    try:
        array = np.asarray(X)
        if array.dtype.kind not in _NUMBERS + "c" and array.ndim >= 2:
            array = np.asarray(X, dtype=object)
    except Exception:
        raise ValueError("the rows of X are not equally long: an inhomogeneous shape") from None
    return array.astype(np.float64) if array.dtype.kind in _NUMBERS else array


def _of_table(X: Any) -> Any:
    """A DataFrame's columns, each by its own type."""
    types = list(X.dtypes)
    if types and all(isinstance(dtype, np.dtype) and dtype.kind in _NUMBERS for dtype in types):
        return X.to_numpy()
    if types and all(type(dtype).__name__ == "SparseDtype" for dtype in types):
        return X.sparse.to_coo()
    columns = [_column(X.iloc[:, place], dtype) for place, dtype in enumerate(types)]
    return _of_cells(columns, list(X.columns), len(X))


def _column(column: Any, dtype: Any) -> Cells:
    """A column of a DataFrame; of pandas' own types of numbers as floats, without a look at each."""
    from pandas.api.types import is_numeric_dtype

    if isinstance(dtype, np.dtype) or not is_numeric_dtype(dtype):
        return cells(column, "X")
    return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))


def _of_cells(columns: Sequence[Cells], names: Sequence[Any], n_rows: int) -> FloatArray:
    """Columns of any type as numbers; all of those that cannot be read are named together."""
    rows = np.empty((n_rows, len(columns)), dtype=np.float64)
    words: list[str] = []
    others: list[str] = []
    for place, (column, name) in enumerate(zip(columns, names)):
        try:
            if (
                not set(map(type, column.flat if column.dtype.kind == "O" else ())) <= _READABLE
                or column.dtype.kind in "mM"
            ):
                raise TypeError  # numpy would warn of some, and read dates as numbers
            rows[:, place] = column.astype(np.float64)
        except Exception:  # what numpy says quotes the cell
            read = [_reading(cell) for cell in column]
            bad = np.array([number is None for number in read], dtype=bool)
            rows[:, place] = [math.nan if number is None else number for number in read]
            if bad.any():
                text = any(isinstance(cell, (str, bytes)) for cell in column[bad])
                (words if text else others).append(f"column {name!r} ({_in_rows(bad)})")
    if words:
        raise ValueError(
            f"could not convert string to float: X holds words in {', '.join([*words, *others])}; encode them as "
            "numbers by a rule that looks at no other row, or leave these columns out"
        )
    if others:
        raise TypeError(f"argument must be a string or a real number: X holds neither in {', '.join(others)}")
    return rows


def _check_finite(rows: Any) -> None:
    """Raise where an entry is NaN or infinite. Each is looked at by itself: sums of finite entries can overflow."""
    if sp.issparse(rows):
        parts = [(0, rows.data)]
    else:
        step = max(1, _AT_ONCE // max(1, rows.shape[1]))
        parts = [(first, rows[first : first + step]) for first in range(0, rows.shape[0], step)]
    found = {"NaN": False, "infinity": False}
    for _, part in parts:
        if not np.isfinite(part).all():
            found["NaN"] |= bool(np.isnan(part).any())
            found["infinity"] |= bool(np.isinf(part).any())
    if found["NaN"]:
        raise ValueError(
            "Input X contains NaN. Fill it with a constant that is chosen without looking at the rows; what other rows "
            "hold (a mean, a median) would be a release."
        )
    if found["infinity"]:
        raise ValueError(f"Input X contains infinity or a value too large for {rows.dtype!r}.")
