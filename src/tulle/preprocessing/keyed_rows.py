"""Raw rows whose categories or words are not features yet: declared features, and the keys of each row.

Private, as rows are: `names` has every word that occurs, somebody's name among them. Nothing but `PrivateColumns` reads
it, and what it releases are the names of keys that enough people hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from tulle.schema.declared_schema import Schema
from tulle.schema.found_kinds import FoundKind
from tulle.schema.raw_rows import column_of, count_rows, header_of

# Keys of a row count so much less than what makes its length 1 that rounding errors make it no longer than that.
SHORTENED = 1.0 - 2.0**-30

# A key: a column, and a value that a cell of it holds.
Key = tuple[str, str]


@dataclass(frozen=True, eq=False)
class KeyedRows:
    """n rows with the features that a schema declares, and with their keys.

    Parameters
    ----------
    columns : tuple of str
        The columns of the table that are read.
    plain : csr_array of shape (n, features)
        0 in the features of values that are to be found.
    keys : csr_array of shape (n, keys)
        What each key of a row counts where keys are looked for: all keys of a row together have length 1 at most, and
        those of each column the same. 0 (stored) for keys beyond the first `most_keys` of a cell.
    names : tuple of (column, value)
        Of the keys, in the order in which they occur.
    """

    columns: tuple[str, ...]
    plain: sp.csr_array
    keys: sp.csr_array
    names: tuple[Key, ...]

    @property
    def shape(self) -> tuple[int, int]:
        """(n, features): public."""
        return self.plain.shape[0], self.plain.shape[1]

    def blank(self) -> sp.csr_array:
        """As many empty rows: what may be checked of them is their shape."""
        return sp.csr_array(self.shape)


def read_keys(schema: Schema, X: Any) -> KeyedRows:
    """Rows of a table as a fitted schema declares them, each by its own cells.

    Parameters
    ----------
    schema : Schema
    X : DataFrame of pandas or polars, Arrow table, or dict of columns
    """
    schema.find(header_of(X))
    kinds = schema.fitted_kinds()
    n_rows = count_rows(X, list(kinds))
    blocks: list[Any] = []
    found = _Keys(sum(isinstance(kind, FoundKind) for kind in kinds.values()))
    for column, kind in kinds.items():
        cells = column_of(X, column)
        if isinstance(kind, FoundKind):
            blocks.append(sp.csr_array((n_rows, kind.width)))
            found.add(column, kind.keys(cells), kind.most_keys)
        else:
            blocks.append(sp.csr_array(kind.encode(cells)))
    plain = sp.csr_array(sp.hstack(blocks, format="csr", dtype=np.float64))
    plain.eliminate_zeros()
    return KeyedRows(tuple(kinds), plain, found.matrix(n_rows), tuple(found.numbers))


class _Keys:
    """The keys of rows, numbered in the order of their first occurrence."""

    def __init__(self, n_columns: int) -> None:
        self._n_columns = n_columns
        self.numbers: dict[Key, int] = {}
        self._rows: list[Any] = []
        self._keys: list[Any] = []
        self._counted: list[Any] = []

    def add(self, column: str, cells: Sequence[Sequence[str]], most: int) -> None:
        numbers = self.numbers
        lengths = np.fromiter(map(len, cells), np.intp, len(cells))
        flat = [numbers.setdefault((column, value), len(numbers)) for cell in cells for value in cell]
        self._rows.append(np.repeat(np.arange(len(cells)), lengths))
        self._keys.append(np.array(flat, dtype=np.intp))
        places = np.arange(len(flat)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        shared = np.repeat(SHORTENED / np.sqrt(self._n_columns * np.clip(lengths, 1, most)), lengths)
        self._counted.append(np.where(places < most, shared, 0.0))

    def matrix(self, n_rows: int) -> sp.csr_array:
        parts = (np.concatenate(part) for part in (self._counted, self._rows, self._keys))
        counted, rows, keys = parts
        return sp.csr_array((counted, (rows, keys)), shape=(n_rows, max(len(self.numbers), 1)))


def join_keyed(parts: Sequence[KeyedRows]) -> KeyedRows:
    """The rows of several blocks of one table, in order."""
    if len(parts) == 1:
        return parts[0]
    numbers: dict[Key, int] = {}
    blocks = []
    for part in parts:
        places = np.array([numbers.setdefault(key, len(numbers)) for key in part.names] or [0], dtype=np.intp)
        blocks.append((part.keys.data, places[part.keys.indices], part.keys.indptr))
    width = max(len(numbers), 1)
    keys = [sp.csr_array(block, shape=(len(block[2]) - 1, width)) for block in blocks]
    plain = sp.csr_array(sp.vstack([part.plain for part in parts], format="csr"))
    return KeyedRows(parts[0].columns, plain, sp.csr_array(sp.vstack(keys, format="csr")), tuple(numbers))


def spread_keys(rows: KeyedRows, features: Mapping[Key, tuple[int, float]], other: Mapping[str, int]) -> sp.csr_array:
    """Features of keys: of each one its place and its weight; of all others in a column the place `other`, if any."""
    count = max(len(rows.names), 1)
    places, weights = np.full(count, -1, dtype=np.intp), np.ones(count)
    for number, key in enumerate(rows.names):
        if key in features:
            places[number], weights[number] = features[key]
        elif key[0] in other:
            places[number] = other[key[0]]
    numbers = np.repeat(np.arange(rows.shape[0]), np.diff(rows.keys.indptr))
    own = places[rows.keys.indices]
    kept = own >= 0
    entries = weights[rows.keys.indices][kept], (numbers[kept], own[kept])
    return sp.csr_array(entries, shape=rows.shape)
