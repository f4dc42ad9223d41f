"""Arrays, tables and lists of rows as finite numbers, checked and refused as scikit-learn does.

Layouts, shapes and the words of errors are decided here. What a cell is, is decided in `tulle.trusted.intake`, cell by
cell, and errors name rows and columns without quoting cells.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from tulle.trusted.intake import (
    MISSING,
    NUMBERS,
    Cells,
    FloatArray,
    index_keys,
    name_rows,
    read_cells,
    read_column,
    read_lists,
)

_AT_ONCE = 1 << 22  # entries that are looked at together


def read_rows(X: Any, *, least_rows: int = 1, estimator: Any = None, missing: bool = False) -> Any:
    """Rows as finite numbers: a dense array, CSR or CSC, of float64, or float32 where all of it was given so.

    Parameters
    ----------
    X : array, sparse array, DataFrame or list of lists, of shape (n, d)
    least_rows : int, default=1
        How many there must be.
    estimator : object, default=None
        Named in errors.
    missing : bool, default=False
        Whether entries may be NaN or infinite.

    Raises
    ------
    ValueError, TypeError
        Where the shape is wrong, or an entry is NaN, infinite or no number. What scikit-learn or numpy would say is not
        passed on where it quotes entries.
    """
    from sklearn.utils import check_array

    with np.errstate(all="ignore"):  # a warning about somebody's extreme entry would be a release
        rows = _read_numbers(X)
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
        if not missing:
            _check_finite(rows)
    return rows


def warn_of_column(given: Any, name: str) -> None:
    """Warn where one value for each row was given as a column. Its shape is public."""
    if getattr(given, "ndim", 1) == 2 and given.shape[1] == 1:
        from sklearn.exceptions import DataConversionWarning

        warnings.warn(
            f"A column-vector {name} was passed when a 1d array was expected. Please change the shape of {name} to "
            "(n_samples,), for example using ravel().",
            DataConversionWarning,
            stacklevel=4,
        )


def _check_finite(rows: Any) -> None:
    """Raise where an entry is NaN or infinite. Each is looked at by itself: sums of finite entries can overflow."""
    entries = rows.data[:, None] if sp.issparse(rows) else rows
    step = max(1, _AT_ONCE // max(1, entries.shape[1]))
    nan = infinite = False
    for first in range(0, len(entries), step):
        part = entries[first : first + step]
        if not np.isfinite(part).all():
            nan, infinite = nan or np.isnan(part).any(), infinite or np.isinf(part).any()
    if nan:
        raise ValueError(
            "Input X contains NaN. A mean or a median of other rows in its place would be a release. Declare what "
            "missing cells count as in a tulle.Schema, fill them privately with PrivateScaler or PrivateImputer in a "
            "tulle.PrivatePipeline (billed with the model), or write a constant chosen without looking at the rows."
        )
    if infinite:
        raise ValueError(f"Input X contains infinity or a value too large for {rows.dtype!r}.")


def _read_numbers(X: Any) -> Any:
    """Rows as an array of numbers, not looked at any further."""
    if isinstance(X, np.matrix):
        raise TypeError("np.matrix is not supported. Please convert to a numpy array with np.asarray.")
    if hasattr(X, "iloc") and hasattr(X, "dtypes") and np.ndim(X) == 2:
        return _read_table(X)
    if sp.issparse(X):
        array = X
    elif isinstance(X, Sequence) and not isinstance(X, (str, bytes)):
        array = read_lists(X)
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
    if array.dtype.kind in NUMBERS:
        return array
    if sp.issparse(array) or array.dtype.kind in "mM":
        raise TypeError(f"X must be numeric, but is of type {array.dtype} (argument must be a string or a real number)")
    if array.ndim > 2:
        raise ValueError(f"Found array with dim {array.ndim}, while dim <= 2 is required.")
    return _read_columns([array[:, place] for place in range(array.shape[1])], range(array.shape[1]), len(array))


def _read_table(X: Any) -> Any:
    """A DataFrame's columns, each by its own type."""
    types = list(X.dtypes)
    if types and all(isinstance(dtype, np.dtype) and dtype.kind in NUMBERS for dtype in types):
        return X.to_numpy()
    if types and all(type(dtype).__name__ == "SparseDtype" for dtype in types):
        return X.sparse.to_coo()
    columns = [_split_off_column(X.iloc[:, place], dtype) for place, dtype in enumerate(types)]
    return _read_columns(columns, list(X.columns), len(X))


def _split_off_column(column: Any, dtype: Any) -> Cells:
    """A column of a DataFrame; of pandas' own types of numbers as floats, without a look at each."""
    from pandas.api.types import is_numeric_dtype

    if isinstance(dtype, np.dtype) or not is_numeric_dtype(dtype):
        return read_cells(column, "X")
    return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))


def _read_columns(columns: Sequence[Cells], names: Sequence[Any], n_rows: int) -> FloatArray:
    """Columns of any type as numbers; all of those that cannot be read are named together."""
    rows = np.empty((n_rows, len(columns)), dtype=np.float64)
    words: list[str] = []
    others: list[str] = []
    for place, (column, name) in enumerate(zip(columns, names)):
        rows[:, place], bad = read_column(column)
        if bad.any():
            text = any(isinstance(cell, (str, bytes)) for cell in column[bad])
            (words if text else others).append(f"column {name!r} ({name_rows(bad)})")
    if words:
        raise ValueError(
            f"could not convert string to float: X contains text in {', '.join([*words, *others])}; declare "
            "its categories or words in a tulle.Schema, encode it as numbers by a rule that uses no other row, or drop "
            "these columns"
        )
    if others:
        raise TypeError(f"argument must be a string or a real number: X has neither in {', '.join(others)}")
    return rows


def read_finite_numbers(given: Cells, name: str) -> FloatArray:
    """All cells as finite numbers.

    Raises
    ------
    ValueError
        Where some cell is missing, infinite or no number.
    """
    values, bad = read_column(given)
    if bad.any():
        raise ValueError(
            f"could not convert string to float: {name} contains text, but a regression needs numbers; convert it"
            f"{', or fit a classifier' if name == 'y' else ''} ({name_rows(bad)})"
        )
    for problem, bad in (
        ("NaN", np.isnan(values)),
        ("infinity or a value too large for dtype('float64')", ~np.isfinite(values)),
    ):
        if bad.any():
            raise ValueError(f"Input {name} contains {problem} ({name_rows(bad)}).")
    return values


def check_values(given: Cells, name: str) -> list[Hashable]:
    """The different keys; an error where a cell is missing or infinite."""
    keys, _ = index_keys(given)
    if MISSING in keys:
        raise ValueError(f"Input {name} contains NaN, or missing cells; drop these rows")
    if any(isinstance(key, float) and math.isinf(key) for key in keys):
        raise ValueError(f"Input {name} contains infinity; drop these rows")
    return keys


def check_same_length(X: Any, y: Cells) -> None:
    """Raise, as scikit-learn does, where there are not as many labels as rows."""
    if X.shape[0] != len(y):
        raise ValueError(f"Found input variables with inconsistent numbers of samples: {[X.shape[0], len(y)]}")
