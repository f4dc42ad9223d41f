"""Parquet through pyarrow, a batch of rows at a time: as cells with the types that the files declare, of one file or
of several with the same columns."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tulle.files.install_hints import install_hint
from tulle.files.tables.addresses import open_address, stamp_of
from tulle.files.tables.columns import Fault, Faults, check_same_columns, check_same_types
from tulle.files.tables.input_files import BLOCK_BYTES, BatchStart, Progress, Source, TableError, report_damage
from tulle.files.tables.raw_cells import Cells, Choose, RawBatch, RawTable, check_names, chosen_columns

# Fewer rows at a time would spend more on each column than on its values.
_FEWEST_ROWS = 256
# Read ahead in each column.
_BUFFER_BYTES = 1 << 20

# Types as `pyarrow.types` calls them.
NUMBERS = ("boolean", "integer", "floating", "decimal")
STRINGS = ("string", "large_string", "string_view")
_BYTES = ("binary", "large_binary", "binary_view", "fixed_size_binary")
_OTHERS = ("null", "date", "timestamp", "time")


def open_parquet(source: Source) -> tuple[Any, Any, int]:
    """A `pyarrow.parquet.ParquetFile`, its schema in Arrow's types, and how many rows it states."""
    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise source.refusal(f"reading Parquet needs pyarrow: {install_hint('parquet')}") from None
    with report_damage(source, "the file"):
        # Unless told otherwise pyarrow holds all of the file that it has read, and reads a row group as a whole.
        file = pq.ParquetFile(source.raw, page_checksum_verification=True, pre_buffer=False, buffer_size=_BUFFER_BYTES)
        return file, file.schema_arrow, file.metadata.num_rows


def read_cells(
    source: Source,
    file: Any,
    columns: Sequence[str],
    n_rows: int,
    *,
    strict: bool = False,
    jobs: int = 1,
    first: int = 0,
) -> Iterator[list[Cells]]:
    """The rows of an open file as columns of cells, about `BLOCK_BYTES` at a time; `Source.batch_start` says where
    each begins.

    Parameters
    ----------
    source : Source
    file : pyarrow.parquet.ParquetFile
    columns : sequence of str
    n_rows : int
        As many as there must be.
    strict : bool, default=False
        Whether text that is not UTF-8 is refused. If not, replacement characters stand for such bytes.
    jobs : int, default=1
        More than 1: pyarrow decodes columns by its own threads.
    first : int, default=0
        How many rows to skip.
    """
    with report_damage(source, "the file"):
        groups = [file.metadata.row_group(place) for place in range(file.metadata.num_row_groups)]
        # Long texts must not fill the memory.
        longest = max((group.total_byte_size // max(group.num_rows, 1) for group in groups), default=0)
    size = max(_FEWEST_ROWS, BLOCK_BYTES // max(longest, 8 * len(columns)))
    read = place = 0
    while place < len(groups) and read + groups[place].num_rows <= first:
        read += groups[place].num_rows
        place += 1
    later = list(range(place, len(groups)))
    batches = file.iter_batches(size, row_groups=later, columns=list(columns), use_threads=jobs > 1)
    while True:
        with report_damage(source, "the file"):
            batch = next(batches, None)
            cells = [] if batch is None else [_cells(batch.column(name), strict=strict) for name in columns]
        read += 0 if batch is None else batch.num_rows
        if read > n_rows or (batch is None and read < n_rows):
            raise source.refusal(
                f"it does not have the {n_rows:,} rows that it states; it is damaged, so write it again"
            )
        if batch is None:
            return
        skip = max(0, batch.num_rows - (read - first))
        if batch.num_rows > skip:
            source.batch_start = BatchStart(max(first, read - batch.num_rows), 0)
            yield [column[skip:] for column in cells] if skip else cells


@dataclass(frozen=True)
class _File:
    """What the footer of a file says, and when it was written."""

    path: str
    n_rows: int
    stamp: str


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
            else:
                check_same_columns(source, schema.names, paths[0], header)
                kinds = _types(source, schema, columns)
                check_same_types(source, dict(zip(columns, kinds)), paths[0], dict(zip(columns, types)))
            files.append(_File(path, n_rows, stamp_of(source)))
    if sum(file.n_rows for file in files) < 1:
        raise TableError(f"{name}: no rows; write the table again")

    def batches(jobs: int = 1, start: BatchStart | None = None) -> Iterator[RawBatch]:
        return _batches(files, columns, progress, jobs, 0 if start is None else start.row)

    yield RawTable(name, header, columns, tuple(map(str, types)), batches, lambda: _fingerprint(files))


@contextmanager
def _opened(path: str, file: _File | None = None) -> Iterator[Source]:
    """A part, refused where it is not what it was."""
    with open_address(path) as source:
        source.format("parquet")
        if file is not None and stamp_of(source) != file.stamp:
            raise source.refusal("changed while it was being read; wait until it is complete and read it again")
        yield source


def _fingerprint(files: Sequence[_File]) -> str:
    found = []
    for file in files:
        with _opened(file.path, file) as source:
            found.append(source.fingerprint())
    if len(found) == 1:
        return found[0]
    return f"sha256:{hashlib.sha256(' '.join(found).encode()).hexdigest()}"


def _batches(
    files: Sequence[_File], columns: tuple[str, ...], progress: Progress, jobs: int, first: int
) -> Iterator[RawBatch]:
    """`first`: rows to skip, of the first file."""
    done, n_rows = first, sum(file.n_rows for file in files)
    for file in files:
        with _opened(file.path, file) as source:
            opened = open_parquet(source)[0]
            for cells in read_cells(source, opened, columns, file.n_rows, jobs=jobs, first=first):
                done += len(cells[0])
                progress.at(done / n_rows)
                start = source.batch_start if len(files) == 1 else None
                yield RawBatch(dict(zip(columns, cells)), len(cells[0]), start)
        first = 0


# --- types ---------------------------------------------------------------------------------------------------------


def is_one_of(kinds: Sequence[str], kind: Any) -> bool:
    """Whether cells of a type are of one of these kinds; those of a dictionary are its values."""
    from pyarrow import types

    plain = _plain_type(kind)
    return any(getattr(types, f"is_{name}")(plain) for name in kinds)


def plain_name(kind: Any) -> str:
    """The type of a column's cells as messages name it; text and bytes of any kind are strings."""
    return "string" if is_one_of((*STRINGS, *_BYTES), kind) else str(_plain_type(kind))


def _plain_type(kind: Any) -> Any:
    from pyarrow import types

    return kind.value_type if types.is_dictionary(kind) else kind


def _types(source: Source, schema: Any, columns: Sequence[str]) -> list[Any]:
    """The types of the columns' cells, or a refusal of all columns that are none of cells."""
    import pyarrow as pa

    faults = Faults(source, named=False)
    kinds = [_plain_type(schema.field(name).type) for name in columns]
    for name, kind in zip(columns, kinds):
        if not is_one_of((*NUMBERS, *STRINGS, *_BYTES, *_OTHERS), kind):
            advice = "store numbers, dates or text, or leave the column out"
            faults.add(name, Fault(f"the column contains {kind}", advice))
    faults.check()
    return [pa.string() if is_one_of((*STRINGS, *_BYTES), kind) else kind for kind in kinds]


def _cells(column: Any, *, strict: bool) -> Cells:
    """A column with its dictionary decoded, and text as UTF-8."""
    import pyarrow as pa

    if _plain_type(column.type) != column.type:
        column = column.dictionary_decode()
    if not is_one_of((*STRINGS, *_BYTES), column.type):
        return column
    column = column.cast(pa.binary())
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        if strict:
            raise
    # What Parquet calls text need not be; the same rule as for CSV.
    return pa.array(
        [None if cell is None else cell.decode("utf-8", "replace") for cell in column.to_pylist()], pa.string()
    )
