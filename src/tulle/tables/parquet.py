"""Parquet files through pyarrow, a batch of rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tulle.tables.columns import (
    MISSING_PERSON,
    Parts,
    Wanted,
    assign_roles,
    check_finite,
    check_people,
    check_target,
    missing_target,
    missing_value,
)
from tulle.tables.files import BLOCK_BYTES, Progress, Source, damage_told, shown

# Fewer rows at a time would spend more on each column than on its values.
_FEWEST_ROWS = 256
# Read ahead in each column.
_BUFFER_BYTES = 1 << 20


def read_parquet(source: Source, wanted: Wanted, progress: Progress) -> Iterator[Parts]:
    """The rows in batches; see `tulle.tables.read_table`."""
    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise source.refusal("reading Parquet needs pyarrow: pip install tulle[parquet]") from None
    with damage_told(source, "the file"):
        # Unless told otherwise pyarrow holds all of the file that it has read, and reads a row group as a whole.
        file = pq.ParquetFile(source.raw, page_checksum_verification=True, pre_buffer=False, buffer_size=_BUFFER_BYTES)
        schema, n = file.schema_arrow, file.metadata.num_rows
    roles = assign_roles(source, schema.names, wanted)
    names = tuple(schema.names[place] for place in roles.features)
    target, groups = (None if place is None else schema.names[place] for place in (roles.target, roles.groups))
    _check_types(source, schema, names, [name for name in (target, groups) if name is not None])
    if n < 1:
        raise source.refusal("no rows; write the table again")
    row = 0
    for batch in _batches(source, file, [*names, *(name for name in (target, groups) if name is not None)], len(names)):
        end = row + batch.num_rows
        if end > n:
            break
        X = np.empty((batch.num_rows, len(names)))
        for place, name in enumerate(names):
            X[:, place] = _numbers(source, batch, name, row, missing_value(None, name))
        check_finite(source, X, row + 1, names)
        y = people = None
        if target is not None:
            text = _is_text(schema.field(target).type)
            read = _words if text else _numbers
            y = read(source, batch, target, row, missing_target(None))
            check_target(source, y, row + 1, target)
        if groups is not None:
            people = _people(source, batch, groups, row)
            check_people(source, people, row + 1, groups)
        row = end
        source.at_row(row, n)
        progress.at(source.share)
        yield Parts(X, y, names, people)
    if row != n:
        raise source.refusal(f"its rows are not the {n:,} that it states; it is damaged, so write it again")


def _check_types(source: Source, schema: Any, features: tuple[str, ...], others: list[str]) -> None:
    for name in features:
        kind = schema.field(name).type
        if not _is_number(kind):
            raise source.refusal(
                f"holds {kind}, not numbers; encode it as numbers, or leave the column out with --ignore {shown(name)}",
                column=name,
            )
    for name in others:
        kind = schema.field(name).type
        if not (_is_number(kind) or _is_text(kind)):
            raise source.refusal(f"holds {kind}; store numbers or words", column=name)


def _batches(source: Source, file: Any, columns: list[str], width: int) -> Iterator[Any]:
    batches = file.iter_batches(max(_FEWEST_ROWS, BLOCK_BYTES // (8 * width)), columns=columns)
    while True:
        with damage_told(source, "the file"):
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


# --- columns of a batch --------------------------------------------------------------------------------------------


def _plain(kind: Any) -> Any:
    """The type of the values: categories are stored as a dictionary of them."""
    import pyarrow as pa

    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_number(kind: Any) -> bool:
    from pyarrow import types

    plain = _plain(kind)
    return any(holds(plain) for holds in (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal))


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    plain = _plain(kind)
    return any(holds(plain) for holds in (types.is_string, types.is_large_string, types.is_string_view))


def _cast(source: Source, batch: Any, name: str, first_row: int, missing: str, kind: Any) -> npt.NDArray[Any]:
    """A column without nulls, as `kind` or, for None, as stored."""
    import pyarrow.compute as pc

    column = batch.column(name)
    with damage_told(source, f"the column {name}"):
        nulls = column.is_null().to_numpy(zero_copy_only=False)
        if nulls.any():
            raise source.refusal(missing, row=first_row + int(nulls.argmax()) + 1, column=name)
        column = pc.cast(column, _plain(column.type) if kind is None else kind, safe=False)
        array: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return array


def _numbers(source: Source, batch: Any, name: str, first_row: int, missing: str) -> npt.NDArray[Any]:
    import pyarrow as pa

    return _cast(source, batch, name, first_row, missing, pa.float64())


def _words(source: Source, batch: Any, name: str, first_row: int, missing: str) -> npt.NDArray[Any]:
    import pyarrow as pa

    return np.char.strip(_cast(source, batch, name, first_row, missing, pa.string()).astype(str))


def _people(source: Source, batch: Any, name: str, first_row: int) -> npt.NDArray[Any]:
    kind = _plain(batch.schema.field(name).type)
    if _is_text(kind):
        return _words(source, batch, name, first_row, MISSING_PERSON)
    return _cast(source, batch, name, first_row, MISSING_PERSON, None)
