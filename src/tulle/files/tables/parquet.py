"""Parquet files through pyarrow, a batch of rows at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tulle.files.tables.columns import (
    MISSING_PERSON,
    MISSING_TARGET,
    MISSING_VALUE,
    Fault,
    Faults,
    Parts,
    Wanted,
    assign_roles,
    check_finite,
    check_people,
    check_target,
)
from tulle.files.tables.input_files import BLOCK_BYTES, Progress, Source, report_damage

# Fewer rows at a time would spend more on each column than on its values.
_FEWEST_ROWS = 256
# Read ahead in each column.
_BUFFER_BYTES = 1 << 20


def open_parquet(source: Source) -> tuple[Any, Any, int]:
    """A `pyarrow.parquet.ParquetFile`, its schema in Arrow's types, and how many rows it states."""
    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise source.refusal("reading Parquet needs pyarrow: pip install tulle[parquet]") from None
    with report_damage(source, "the file"):
        # Unless told otherwise pyarrow holds all of the file that it has read, and reads a row group as a whole.
        file = pq.ParquetFile(source.raw, page_checksum_verification=True, pre_buffer=False, buffer_size=_BUFFER_BYTES)
        return file, file.schema_arrow, file.metadata.num_rows


def read_parquet(source: Source, wanted: Wanted, progress: Progress) -> Iterator[Parts]:
    """The rows in batches; see `tulle.files.tables.read_table`."""
    file, schema, n = open_parquet(source)
    roles = assign_roles(source, schema.names, wanted)
    names = tuple(schema.names[place] for place in roles.features)
    target, groups = (None if place is None else schema.names[place] for place in (roles.target, roles.groups))
    _check_types(source, schema, names, [name for name in (target, groups) if name is not None])
    if n < 1:
        raise source.refusal("no rows; write the table again")
    row, faults = 0, Faults(source)
    for batch in record_batches(
        source, file, [*names, *(name for name in (target, groups) if name is not None)], len(names)
    ):
        end = row + batch.num_rows
        if end > n:
            break
        X = np.zeros((batch.num_rows, len(names)))
        for place, name in enumerate(names):
            column = _numbers(source, batch, name, row, None if wanted.missing else MISSING_VALUE, faults)
            if column is not None:
                X[:, place] = column
        if not wanted.missing:
            check_finite(faults, X, row + 1, names)
        y = people = None
        if target is not None:
            read = _words if _is_text(schema.field(target).type) else _numbers
            y = read(source, batch, target, row, MISSING_TARGET, faults)
            if y is not None:
                check_target(faults, y, row + 1, target)
        if groups is not None:
            people = _people(source, batch, groups, row, faults)
            if people is not None:
                check_people(faults, people, row + 1, groups)
        row = end
        source.at_row(row, n)
        progress.at(source.share)
        if not faults:
            yield Parts(X, y, names, people)
    faults.check()
    if row != n:
        raise source.refusal(wrong_number(n))


def wrong_number(n: int) -> str:
    """What is wrong where the rows of a file are not as many as it states."""
    return f"it does not have the {n:,} rows that it states; it is damaged, so write it again"


def _check_types(source: Source, schema: Any, features: tuple[str, ...], others: list[str]) -> None:
    faults = Faults(source)
    for name in features:
        kind = schema.field(name).type
        if not _is_number(kind):
            faults.add(name, Fault(f"the column contains {kind}, not numbers", "encode it as numbers", True))
    for name in others:
        kind = schema.field(name).type
        if not (_is_number(kind) or _is_text(kind)):
            faults.add(name, Fault(f"the column contains {kind}", "store numbers or text"))
    faults.check()


def record_batches(source: Source, file: Any, columns: Sequence[str], width: int) -> Iterator[Any]:
    """The rows of an open file, about `BLOCK_BYTES` at a time for `width` numbers a row."""
    batches = file.iter_batches(max(_FEWEST_ROWS, BLOCK_BYTES // (8 * width)), columns=list(columns))
    while True:
        with report_damage(source, "the file"):
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


# --- columns of a batch --------------------------------------------------------------------------------------------


def plain_type(kind: Any) -> Any:
    """The type of the values: categories are stored as a dictionary of them."""
    import pyarrow as pa

    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_number(kind: Any) -> bool:
    from pyarrow import types

    plain = plain_type(kind)
    return any(holds(plain) for holds in (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal))


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    plain = plain_type(kind)
    return any(holds(plain) for holds in (types.is_string, types.is_large_string, types.is_string_view))


def _cast(
    source: Source, batch: Any, name: str, first_row: int, missing: Fault | None, faults: Faults, kind: Any
) -> npt.NDArray[Any] | None:
    """A column as `kind` or, for None, as stored; None, and a fault, where it has nulls and these are one."""
    import pyarrow.compute as pc

    column = batch.column(name)
    with report_damage(source, f"the column {name}"):
        nulls = column.is_null().to_numpy(zero_copy_only=False)
        if missing is not None and nulls.any():
            faults.add(name, missing, row=first_row + int(nulls.argmax()) + 1)
            return None
        column = pc.cast(column, plain_type(column.type) if kind is None else kind, safe=False)
        array: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return array


def _numbers(
    source: Source, batch: Any, name: str, first_row: int, missing: Fault | None, faults: Faults
) -> npt.NDArray[Any] | None:
    import pyarrow as pa

    return _cast(source, batch, name, first_row, missing, faults, pa.float64())


def _words(
    source: Source, batch: Any, name: str, first_row: int, missing: Fault, faults: Faults
) -> npt.NDArray[Any] | None:
    import pyarrow as pa

    words = _cast(source, batch, name, first_row, missing, faults, pa.string())
    return None if words is None else np.char.strip(words.astype(str))


def _people(source: Source, batch: Any, name: str, first_row: int, faults: Faults) -> npt.NDArray[Any] | None:
    kind = plain_type(batch.schema.field(name).type)
    if _is_text(kind):
        return _words(source, batch, name, first_row, MISSING_PERSON, faults)
    return _cast(source, batch, name, first_row, MISSING_PERSON, faults, None)
