"""The same rows as every kind of Dask collection."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import scipy.sparse as sp
from spread_fits import margins, sparse_rows

X = sparse_rows()
DENSE = X.toarray()
MARGINS = margins(X)
Y = (MARGINS > 0).astype(float)
N, D = X.shape
# Five partitions, the last one shorter.
PART = 420
NAMES = [f"word {k}" for k in range(D)]


def cut(rows: Any, ends: Any = (*range(0, N, PART), N)) -> list[Any]:
    return [rows[start:end] for start, end in pairwise(ends)]


def bag(parts: list[list[Any]]) -> Any:
    """A bag with these partitions."""
    return db.from_delayed([dask.delayed(part) for part in parts])


def in_partitions(y: Any) -> Any:
    return da.from_array(np.asarray(y), chunks=PART)


def bag_of_csr(y: Any) -> tuple[Any, Any]:
    return bag([[part] for part in cut(X)]), in_partitions(y)


def bag_of_halves(y: Any) -> tuple[Any, Any]:
    """Two blocks in each partition, and targets of each."""
    halves = [[part[:60], part[60:]] for part in cut(DENSE)]
    return bag(halves), bag([[part[:60], part[60:]] for part in cut(np.asarray(y))])


def bag_of_pairs(y: Any) -> tuple[Any, Any]:
    return bag([[pair] for pair in zip(cut(X), cut(np.asarray(y)))]), None


def array(y: Any) -> tuple[Any, Any]:
    return da.from_array(DENSE, chunks=(PART, D)), in_partitions(y)


def array_in_columns(y: Any) -> tuple[Any, Any]:
    """Cut both ways, and targets cut otherwise."""
    return da.from_array(DENSE, chunks=(PART, 40)), da.from_array(np.asarray(y), chunks=300)


def array_of_csr(y: Any) -> tuple[Any, Any]:
    return da.from_array(DENSE, chunks=(PART, D)).map_blocks(sp.csr_array), in_partitions(y)


def array_of_csr_in_columns(y: Any) -> tuple[Any, Any]:
    return da.from_array(DENSE, chunks=(PART, 40)).map_blocks(sp.csr_array), in_partitions(y)


def array_with_plain_targets(y: Any) -> tuple[Any, Any]:
    return da.from_array(DENSE, chunks=(PART, D)), y


def frame(y: Any) -> tuple[Any, Any]:
    rows = pd.DataFrame(DENSE, columns=NAMES)
    return dd.from_pandas(rows, chunksize=PART), dd.from_pandas(pd.Series(y), chunksize=PART)


COLLECTIONS: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    one.__name__.replace("_", " "): one
    for one in (
        bag_of_csr,
        bag_of_halves,
        bag_of_pairs,
        array,
        array_in_columns,
        array_of_csr,
        array_of_csr_in_columns,
        array_with_plain_targets,
        frame,
    )
}


def in_memory(collection: str) -> Any:
    """The same rows, stored in the same way."""
    return X if "csr" in collection or "pairs" in collection else DENSE
