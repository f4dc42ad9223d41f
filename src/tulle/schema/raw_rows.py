"""Raw rows in memory as named columns: DataFrames of pandas and polars, tables of pyarrow, dicts of columns.

Nothing is converted: cells keep the types that they have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tulle.schema.schema_format import SchemaError

Columns = Mapping[str, Any]


def header_of(rows: Any) -> tuple[str, ...]:
    """The names of all columns, in order."""
    names = getattr(rows, "column_names", None)  # pyarrow
    if names is None:
        names = rows.keys() if isinstance(rows, Mapping) else getattr(rows, "columns", None)
    if names is None:
        raise SchemaError(
            f"a schema reads columns by name: pass a DataFrame, an Arrow table or a dict of columns, not "
            f"{type(rows).__name__}"
        )
    return tuple(str(name) for name in names)


def column_of(rows: Any, name: str) -> Any:
    """One column: an array of numpy or pyarrow, or a list."""
    if isinstance(rows, Mapping):
        found = rows[name]
    elif hasattr(rows, "iloc"):  # pandas; names may be no strings
        found = rows.iloc[:, header_of(rows).index(name)]
        dtype = found.dtype
        return found.to_numpy() if isinstance(dtype, np.dtype) else found.astype(object).to_numpy(dtype=object)
    elif hasattr(rows, "column_names"):
        found = rows.column(name)
        return found.combine_chunks() if hasattr(found, "combine_chunks") else found
    else:  # polars
        found = rows.get_column(name)
        return found.to_list() if str(found.dtype) in ("String", "Categorical", "Enum", "Object") else found.to_numpy()
    return found if _is_column(found) else list(found)


def _is_column(found: Any) -> bool:
    return isinstance(found, (np.ndarray, list)) or type(found).__module__.split(".")[0] == "pyarrow"


def count_rows(rows: Any, names: Sequence[str]) -> int:
    """How many rows there are; all columns have as many."""
    if hasattr(rows, "num_rows"):
        return int(rows.num_rows)
    if not isinstance(rows, Mapping):
        return len(rows)
    lengths = {name: len(rows[name]) for name in names}
    if len(set(lengths.values())) > 1:
        raise SchemaError(f"columns of different lengths: {lengths}")
    return next(iter(lengths.values()), 0)
