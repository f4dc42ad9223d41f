"""Raw rows in memory as named columns: DataFrames of pandas and polars, tables of pyarrow, dicts of columns.

Cells keep the values that they have. The libraries' own conversions of a whole column are used only where no cell can
change what becomes of another: none to floats because one cell is missing, none that fails because of one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from tulle.schema.cell_rules import cells_of, is_arrow
from tulle.schema.schema_format import SchemaError

Columns = Mapping[str, Any]


def header_of(rows: Any) -> tuple[str, ...]:
    """The names of all columns, in order."""
    return tuple(str(name) for name in _names(rows))


def _names(rows: Any) -> Any:
    """The names as they are. A DataFrame of pandas has its columns as attributes, too: none is asked for by chance."""
    if isinstance(rows, Mapping):
        return rows.keys()
    if is_arrow(rows) and hasattr(rows, "column_names"):
        return rows.column_names
    if _is_of("pandas", rows) or _is_of("polars", rows):
        return rows.columns
    if _is_of("dask", rows):
        raise SchemaError(
            "these rows are on a cluster: fit a tulle.PrivatePipeline with the schema as its first step to them"
        )
    raise SchemaError(
        f"a schema reads columns by name: pass a DataFrame, an Arrow table or a dict of columns, not "
        f"{type(rows).__name__}"
    )


def _is_of(library: str, thing: Any) -> bool:
    return any(cls.__module__.split(".")[0] == library for cls in type(thing).__mro__)


def column_of(rows: Any, name: str) -> Any:
    """One column: an array of numpy or pyarrow, or a list."""
    return _plain(_find(rows, name))


def _find(rows: Any, name: str) -> Any:
    """One column as it is."""
    found = None
    if is_arrow(rows):
        place = rows.schema.get_field_index(name)  # -1 also where it occurs twice
        found = rows.column(place) if place >= 0 else None
    elif name in (names := _names(rows)):
        found = rows[name]
    else:  # a name that is no text
        found = next((rows[one] for one in names if str(one) == name), None)
    if found is None:
        raise SchemaError(f"not in the table, or more than once: {name!r}")
    if getattr(found, "ndim", 1) != 1 or isinstance(found, (str, bytes)) or not hasattr(found, "__len__"):
        raise SchemaError(f"{name!r} is no list of cells, or occurs more than once")
    return found


def _plain(column: Any) -> Any:
    """A column of any library as an array of numpy or pyarrow, or as a list."""
    if is_arrow(column) or isinstance(column, list):
        return column
    if isinstance(column, np.ma.MaskedArray):
        hidden = np.ma.getmaskarray(column)
        return [None if nothing else cell for cell, nothing in zip(cells_of(column.data), hidden)]
    if isinstance(column, np.ndarray):
        return column
    if _is_of("pandas", column):
        return _of_pandas(column)
    return _of_polars(column) if _is_of("polars", column) else list(column)


def _of_pandas(column: Any) -> Any:
    kind = column.dtype
    if isinstance(kind, np.dtype):
        return column.to_numpy()
    name = type(kind).__name__
    if name == "ArrowDtype" or getattr(kind, "storage", None) == "pyarrow":
        return column.array.__arrow_array__()
    if name == "DatetimeTZDtype":
        return np.asarray(column.array.tz_convert(None))
    if name == "CategoricalDtype":
        words = [*cells_of(_plain(kind.categories)), None]
        return [words[code] for code in column.array.codes]
    return column.astype(object).to_numpy(dtype=object)


def _of_polars(column: Any) -> Any:
    """Its own lists are avoided: they panic at dates that Python does not have, and at bytes that are no UTF-8."""
    kind = column.dtype
    name = type(kind).__name__
    if "Struct" in str(kind) or "Map" in str(kind):
        return [None] * len(column)  # as dicts and lists of them, which hold nothing that a kind knows
    if kind.is_nested():
        return [None if cells is None else cells_of(_of_polars(cells)) for cells in column]
    if kind.is_float() or kind.is_temporal():
        return column.to_numpy()
    # numpy would make floats of whole numbers where one is missing, and has none of 128 bits.
    if kind.is_integer() and not column.has_nulls() and not name.endswith("128"):
        return column.to_numpy()
    if name in ("String", "Categorical", "Enum") and find_spec("pyarrow") is not None:
        return column.to_arrow()
    return column.to_list()


def count_rows(rows: Any, names: Sequence[str]) -> int:
    """How many rows there are; all columns have as many."""
    if not isinstance(rows, Mapping):
        return len(rows)
    lengths = {name: len(_find(rows, name)) for name in names}
    if len(set(lengths.values())) > 1:
        raise SchemaError(f"columns of different lengths: {lengths}")
    return next(iter(lengths.values()), 0)
