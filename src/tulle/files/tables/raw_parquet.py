"""Parquet as cells, with the types that the files declare: one file, or several with the same columns."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tulle.files.tables.addresses import open_address
from tulle.files.tables.columns import Fault, Faults
from tulle.files.tables.input_files import Progress, Source, TableError, report_damage
from tulle.files.tables.parquet import open_parquet, plain_type, record_batches, wrong_number
from tulle.files.tables.raw_cells import Cells, Choose, RawBatch, RawTable, check_names, chosen_columns


@dataclass(frozen=True)
class _File:
    """What the footer of a file says, and when it was written."""

    path: str
    n_rows: int
    stamp: tuple[int, int]


@contextmanager
def open_parquet_cells(name: str, paths: Sequence[str], choose: Choose, progress: Progress) -> Iterator[RawTable]:
    """Read the footers and choose columns; see `tulle.files.tables.raw_cells.open_raw`."""
    files: list[_File] = []
    header: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    types: list[Any] = []
    for path in paths:
        with _opened(path) as source:
            _, schema, n_rows = open_parquet(source)
            check_names(source, schema.names)
            if not files:
                header = tuple(schema.names)
                columns = chosen_columns(source, header, choose)
                types = _types(source, schema, columns)
            elif set(schema.names) != set(header):
                raise source.refusal(f"not the same columns as in {os.path.basename(paths[0])}; write all files alike")
            elif _types(source, schema, columns) != types:
                raise source.refusal(
                    f"a column has another type than in {os.path.basename(paths[0])}; write all files alike"
                )
            files.append(_File(path, n_rows, _stamp(source)))
    if sum(file.n_rows for file in files) < 1:
        raise TableError(f"{name}: no rows; write the table again")
    yield RawTable(name, header, columns, lambda: _batches(files, columns, progress), lambda: _fingerprint(files))


@contextmanager
def _opened(path: str, file: _File | None = None) -> Iterator[Source]:
    """A part, refused where it is not what it was."""
    with open_address(path) as source:
        source.format("parquet")
        if file is not None and _stamp(source) != file.stamp:
            raise source.refusal("changed while it was being read; wait until it is complete and read it again")
        yield source


def _stamp(source: Source) -> tuple[int, int]:
    """The size and, of a file on disk, the time of the last change."""
    return source.size, 0 if "://" in source.name else os.fstat(source.raw.fileno()).st_mtime_ns


def _fingerprint(files: Sequence[_File]) -> str:
    found = []
    for file in files:
        with _opened(file.path, file) as source:
            found.append(source.fingerprint())
    if len(found) == 1:
        return found[0]
    return f"sha256:{hashlib.sha256(' '.join(found).encode()).hexdigest()}"


def _batches(files: Sequence[_File], columns: tuple[str, ...], progress: Progress) -> Iterator[RawBatch]:
    done, n_rows = 0, sum(file.n_rows for file in files)
    for file in files:
        with _opened(file.path, file) as source:
            opened, _, _ = open_parquet(source)
            read = 0
            for batch in record_batches(source, opened, columns, _numbers_per_row(source, opened, len(columns))):
                read += batch.num_rows
                if read > file.n_rows:
                    break
                with report_damage(source, "the file"):
                    cells = {name: _cells(batch.column(name)) for name in columns}
                progress.at((done + read) / n_rows)
                if batch.num_rows:
                    yield RawBatch(cells, batch.num_rows)
            if read != file.n_rows:
                raise source.refusal(wrong_number(file.n_rows))
            done += read


def _numbers_per_row(source: Source, opened: Any, width: int) -> int:
    """How many numbers take as much memory as a row: long texts must not fill it. From the sizes of row groups."""
    with report_damage(source, "the file"):
        groups = [opened.metadata.row_group(place) for place in range(opened.metadata.num_row_groups)]
        most = max((group.total_byte_size // max(group.num_rows, 1) for group in groups), default=0)
    return max(width, int(most) // 8)


# --- types ---------------------------------------------------------------------------------------------------------


def _types(source: Source, schema: Any, columns: Sequence[str]) -> list[Any]:
    """The types of the columns' cells, or a refusal of all columns that are none of cells."""
    faults = Faults(source, named=False)
    for name in columns:
        kind = plain_type(schema.field(name).type)
        if not (_is_text(kind) or any(holds(kind) for holds in _supported())):
            faults.add(
                name, Fault(f"the column contains {kind}", "store numbers, dates or text, or leave the column out")
            )
    faults.check()
    return [_cell_type(plain_type(schema.field(name).type)) for name in columns]


def _supported() -> list[Callable[[Any], bool]]:
    from pyarrow import types

    numbers = [types.is_boolean, types.is_integer, types.is_floating, types.is_decimal, types.is_null]
    return [*numbers, types.is_date, types.is_timestamp, types.is_time]


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    strings = (types.is_string, types.is_large_string, types.is_string_view)
    others = (types.is_binary, types.is_large_binary, types.is_binary_view, types.is_fixed_size_binary)
    return any(holds(kind) for holds in (*strings, *others))


def _cell_type(kind: Any) -> Any:
    import pyarrow as pa

    return pa.string() if _is_text(kind) else kind


def _cells(column: Any) -> Cells:
    """A column with its dictionary decoded, and text as valid UTF-8."""
    import pyarrow as pa

    kind = plain_type(column.type)
    if kind != column.type:
        column = column.dictionary_decode()
    if not _is_text(kind):
        return column
    # What Parquet calls text need not be; the same rule as for CSV.
    column = column.cast(pa.binary())
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        pass
    return pa.array(
        [None if cell is None else cell.decode("utf-8", "replace") for cell in column.to_pylist()], pa.string()
    )
