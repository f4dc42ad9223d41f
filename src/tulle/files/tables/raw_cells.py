"""Tables from files as cells, for a declared schema: no type is inferred, and no cell decides whether a file is read.

`tulle.files.tables.read_table` reads numbers and refuses a cell that is none. Here every column of a CSV file is text
and every column of a Parquet file has the type that the file declares. A file is refused for its type, its header, or
rows that cannot be divided into cells. No message contains a cell, and no library's error is chained to one: pyarrow's
errors quote rows.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from tulle.files.tables.addresses import files_at, open_address
from tulle.files.tables.columns import some
from tulle.files.tables.input_files import FORMATS, BatchStart, Progress, Source, TableError

# A column: a pyarrow array (CSV: strings; Parquet: the declared type), or without pyarrow a numpy object array of str.
Cells: TypeAlias = Any
Choose: TypeAlias = Callable[[Sequence[str]], Sequence[str]]

# An Arrow array of strings has 32-bit offsets; a longer one needs another type.
_MOST_TEXT = 2**31 - 1
# Batches joined to a longer part. Small arrays of all columns share pages of memory, which are free only when all of
# them are: joined at the end alone, they would be held next to the whole table.
_JOINED_AT_ONCE = 32


class RawBatch(NamedTuple):
    """Some rows, at least one: the chosen columns by name, the number of rows, and where they begin, if reading can
    begin there."""

    columns: dict[str, Cells]
    n_rows: int
    start: BatchStart | None = None


class ReadBatches(Protocol):
    """Reads rows; see `RawTable.batches`."""

    def __call__(self, jobs: int = 1, start: BatchStart | None = None) -> Iterator[RawBatch]: ...


@dataclass(frozen=True, eq=False)
class RawTable:
    """An open table.

    Attributes
    ----------
    name : str
        The path as given.
    header : tuple of str
        The names of all columns.
    columns : tuple of str
        The chosen ones.
    types : tuple of str
        The types that a Parquet file declares for them; empty for CSV.
    """

    name: str
    header: tuple[str, ...]
    columns: tuple[str, ...]
    types: tuple[str, ...]
    _batches: ReadBatches
    _fingerprint: Callable[[], str]

    def batches(self, jobs: int = 1, start: BatchStart | None = None) -> Iterator[RawBatch]:
        """All rows in order, from the first one at each call. Only one such iterator may be in use at a time.

        Parameters
        ----------
        jobs : int, default=1
            Threads that parse CSV at a time; more than 1: those of pyarrow for Parquet.
        start : BatchStart or None, default=None
            The `RawBatch.start` to begin with, of an earlier reading of the same single file.
        """
        with _without_causes():
            yield from self._batches(jobs, start)

    def fingerprint(self) -> str:
        """ "sha256:" and the hash of the file's bytes; of several files, the hash of their hashes in order.

        Not to be called while an iterator of `batches` is in use.
        """
        with _without_causes():
            return self._fingerprint()


@contextmanager
def open_raw(
    path: str | os.PathLike[str],
    choose: Choose,
    *,
    format: str | None = None,
    header: bool = True,
    delimiter: str | None = None,
    encoding: str = "utf-8",
    progress: bool = False,
    plain: bool = False,
) -> Iterator[RawTable]:
    """Open a table of raw cells.

    Parameters
    ----------
    path : path
        A CSV file, also packed (.gz or .bz2); a Parquet file, a folder of Parquet files as Spark writes it, or a glob
        of them. Addresses such as s3://bucket/table.parquet need fsspec.
    choose : callable
        Called once, with the names of all columns, before any row is read. Returns those to read, or raises
        `TableError`.
    format : {"csv", "parquet"} or None, default=None
        None: by the suffix; a folder is Parquet.
    header : bool, default=True
        CSV: whether the first line names the columns. If not, they are called "0", "1", ….
    delimiter : str or None, default=None
        CSV: one character. None: whichever of comma, semicolon and tab is most frequent in the header; without a
        header, tab for .tsv files and comma for others.
    encoding : str, default="utf-8"
        CSV: how characters are written. A byte-order mark is skipped. Bytes that are not in the encoding, and NUL
        characters, become replacement characters (U+FFFD).
    progress : bool, default=False
        Whether to say on standard error how much is read.
    plain : bool, default=False
        CSV: whether to read by the standard library although pyarrow is installed.

    Yields
    ------
    RawTable

    Raises
    ------
    TableError
        The file has a fault. The message contains no cell.

    Notes
    -----
    The rules for CSV, with pyarrow and without: a line ends with a newline, a carriage return, or both. Blank lines are
    skipped, in a table of one column too. A cell is quoted if it starts with a quotation mark; it may then contain
    delimiters and line ends, which are kept unchanged, and doubled quotation marks, which stand for one. Characters
    after the closing mark belong to the cell; a quotation mark inside an unquoted cell is a character. Spaces around
    cells are kept, those around column names are not. The file is refused, by a line number, where a row has more or
    fewer cells than the header, where a quoted cell is not closed, where a row is longer than 64 MiB, and where
    the header has a NUL character.

    Parquet: dictionary types are decoded to their values; text and bytes of any kind become strings. Statistics,
    dictionaries, null counts and pandas' metadata are not used.
    """
    name = os.fsdecode(path)
    with _without_causes():
        files, folder = files_at(name)
        said = Progress(name, shown=progress)
        try:
            if format is None and (folder or all(file.lower().endswith(FORMATS["parquet"]) for file in files)):
                format = "parquet"
            if format == "parquet":
                from tulle.files.tables.parquet import open_parquet_cells

                with open_parquet_cells(name, files, choose, said) as table:
                    yield table
            elif folder or len(files) != 1:
                raise TableError(f"{name}: several files are read together only as Parquet; pass one file")
            else:
                from tulle.files.tables.raw_delimited import open_csv_cells

                with open_address(files[0]) as source:
                    if (found := source.format(format)) != "csv":
                        raise source.refusal(_not_raw(found))
                    yield open_csv_cells(source, choose, header, delimiter, encoding, said, plain=plain)
        finally:
            said.close()


def read_raw(path: str | os.PathLike[str], choose: Choose, **settings: Any) -> tuple[dict[str, Cells], int, str]:
    """Read all rows of a table of raw cells.

    Parameters
    ----------
    path, choose, **settings
        As in `open_raw`.

    Returns
    -------
    columns : dict of str to Cells
        The chosen columns, in the order in which they were chosen.
    n_rows : int
    content : str
        "sha256:" and a hash; see `RawTable.fingerprint`.
    """
    with open_raw(path, choose, **settings) as table:
        parts: dict[str, list[Cells]] = {name: [] for name in table.columns}
        n_rows = recent = 0
        for batch in table.batches():
            n_rows += batch.n_rows
            for name, cells in batch.columns.items():
                parts[name].append(cells)
            recent += 1
            if recent == _JOINED_AT_ONCE:
                for column in parts.values():
                    column[-recent:] = [_joined(column[-recent:])]
                recent = 0
            del batch
        # A column's parts are given up as soon as they are joined: one column is held twice, never the table.
        columns = {name: _joined(parts.pop(name)) for name in table.columns}
        return columns, n_rows, table.fingerprint()


def _joined(parts: list[Cells]) -> Cells:
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    import pyarrow as pa

    text = any(pa.types.is_string(part.type) for part in parts)
    if text and sum(part.nbytes for part in parts) > _MOST_TEXT:
        parts = [part.cast(pa.large_string()) for part in parts]
    return pa.concat_arrays(parts)


def _not_raw(format: str) -> str:
    ends = ", ".join(suffix for name in ("csv", "parquet") for suffix in FORMATS[name])
    return f"{format} files have no columns with names; a schema describes CSV and Parquet files ({ends})"


@contextmanager
def _without_causes() -> Iterator[None]:
    """No exception is chained to a `TableError`: `raise … from None` hides a library's error but keeps it."""
    try:
        yield
    except TableError as error:
        error.__cause__ = error.__context__ = None
        raise


# --- names ---------------------------------------------------------------------------------------------------------


def check_names(source: Source, names: Sequence[str]) -> None:
    """Refuse a header in which names are missing or repeated: by place, as the first line may be a row."""
    places = defaultdict(list)
    for place, name in enumerate(names, 1):
        places[name].append(place)
    nameless = places.pop("", [])
    faults = [f"the header has no name for {_columns(nameless)} (often row numbers)"] if nameless else []
    faults += [f"{_columns(same)} have the same name" for same in places.values() if len(same) > 1]
    if faults:
        more = f"; {len(faults) - 8:,} more such groups" if len(faults) > 8 else ""
        raise source.refusal(f"{'; '.join(faults[:8])}{more}; give each column a unique name")


def _columns(places: Sequence[int]) -> str:
    if len(places) == 1:
        return f"column {places[0]}"
    more = f" and {len(places) - 8:,} more" if len(places) > 8 else ""
    return f"columns {', '.join(map(str, places[:8]))}{more}"


def chosen_columns(source: Source, header: Sequence[str], choose: Choose) -> tuple[str, ...]:
    """What `choose` returns, if the header has it; each column once."""
    columns = tuple(dict.fromkeys(choose(tuple(header))))
    if absent := [name for name in columns if name not in header]:
        raise source.refusal(f"no column is named {some(absent)}; check the header and the delimiter")
    if not columns:
        raise source.refusal("no column is chosen; name one at least")
    return columns
