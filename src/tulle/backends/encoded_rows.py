"""Raw tables as rows that a declared schema encodes, and how a folder of blocks stores them.

Each row is encoded by its own cells (`tulle.schema`). In a folder the target is the place of its class among the
declared ones, -1 for a row that counts as nothing; for a regression a number, NaN for such a row. The manifest contains
the schema, so that a fit has the declared classes and bounds, and the model takes raw rows.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tulle.files.tables.columns import Layout, Parts
from tulle.files.tables.in_order import map_in_order
from tulle.files.tables.input_files import BatchStart, Source, TableError
from tulle.files.tables.input_list import InputFile
from tulle.files.tables.raw_cells import RawBatch, open_raw
from tulle.schema.declared_schema import Schema
from tulle.schema.schema_format import SchemaError


def pack_schema(schema: Schema) -> dict[str, Any]:
    """A fitted schema as JSON has it."""
    return {"settings": schema.to_dict(), "columns": schema.needed()}


def unpack_schema(packed: dict[str, Any]) -> Schema:
    """The schema that `pack_schema` packed."""
    return Schema(**packed["settings"]).restore([str(name) for name in packed["columns"]])


def encode_targets(schema: Schema, labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Targets as they are stored, of what `Schema.labels` returns."""
    if schema.classes is None:
        return np.ma.filled(labels, np.nan)
    places = {one: place for place, one in enumerate(schema.classes)}
    return np.array([-1 if one is None else places[one] for one in labels], dtype=np.int32)


def decode_targets(schema: Schema, stored: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """What `Schema.labels` returned, of stored targets."""
    if schema.classes is None:
        hidden = np.isnan(stored)
        return np.ma.MaskedArray(np.where(hidden, 0.0, stored), mask=hidden)
    if stored.dtype.kind != "i" or stored.min() < -1 or stored.max() >= len(schema.classes):
        raise ValueError("targets are no places of classes")
    classes = np.array([*schema.classes, None], dtype=object)
    return classes[stored]


class _Encoded(NamedTuple):
    X: Any
    y: npt.NDArray[Any] | None
    ids: npt.NDArray[Any] | None
    start: BatchStart | None


class EncodedInput:
    """Raw files as a schema encodes them.

    Parameters
    ----------
    schema : Schema
        It is fitted to the header of the first file.
    reading : dict
        How the files are written, as `tulle.files.tables.raw_cells.open_raw` takes it.
    """

    def __init__(self, schema: Schema, reading: dict[str, Any]) -> None:
        if schema.is_private:
            raise TableError(
                "the schema leaves categories or words to be found privately, which needs rows in memory; declare "
                "them, or hash them ({ hashed = 10 }, { text = 14 })"
            )
        self.schema = schema
        self._reading = reading
        self._roles = [name for name in (schema.target_column, schema.person_column) if name is not None]
        self._fitted = False

    def find_layout(self, source: Source) -> tuple[str, Layout]:
        """The format and the columns of an open file, which the schema must declare."""

        def choose(header: Sequence[str]) -> list[str]:
            try:
                features = self.schema.choose(header)
            except SchemaError as error:
                raise TableError(f"{source.name}: {error}") from None
            if not self._fitted:
                self.schema.fit({name: [] for name in header})
                self._fitted = True
            return [*features, *self._roles]

        with open_raw(source.name, choose, **self._reading) as table:
            format = "parquet" if table.types else "csv"
            return format, Layout(table.columns, "", "", sparse=True, text=not table.types, types=table.types)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the features."""
        return tuple(self.schema.get_feature_names_out())

    def read(
        self, file: InputFile, first_row: int, jobs: int, start: BatchStart | None, *, progress: bool
    ) -> Generator[tuple[Parts, BatchStart | None], None, None]:
        """The rows of a file in batches, and where each begins; `first_row` is the number of the first of them among
        the rows of all files."""
        names = self.feature_names
        with (
            open_raw(
                file.path, lambda header: [*self.schema.needed(), *self._roles], progress=progress, **self._reading
            ) as table,
            closing(map_in_order(self._encode, table.batches(jobs, start), jobs)) as batches,
        ):
            for batch in batches:
                people = None
                if batch.ids is not None:
                    people = self.schema.people_of(batch.ids, first_row).astype(str)
                first_row += batch.X.shape[0]
                yield Parts(batch.X, batch.y, names, people), batch.start

    def _encode(self, batch: RawBatch) -> _Encoded:
        X, y, ids = self.schema.transform(batch.columns), None, None
        if self.schema.target_column is not None:
            y = encode_targets(self.schema, self.schema.labels(batch.columns))
        if self.schema.person_column is not None:
            ids = self.schema.ids(batch.columns)
        return _Encoded(X, y, ids, batch.start)
