"""Raw tables by a `tulle.Schema`: features, targets and people of partitions on a cluster, or of a table in memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tulle.backends.input_kinds import take_together
from tulle.backends.rows_elsewhere import RawCells
from tulle.estimators.bounds import Bounds
from tulle.schema.declared_schema import Schema
from tulle.schema.raw_rows import column_of


@dataclass(frozen=True, eq=False)
class SchemaReader:
    """Encodes a partition by a fitted schema, each row by its own cells. It travels to where partitions are.

    Parameters
    ----------
    schema : Schema
    targets, people : bool
        Whether targets, and ids of people, are those that the schema declares.
    """

    schema: Schema
    targets: bool
    people: bool

    def __call__(self, table: Any) -> RawCells:
        targets = self.schema.labels(table) if self.targets else None
        return RawCells(self.schema.transform(table), targets, self._find_ids(table) if self.people else None)

    def _find_ids(self, table: Any) -> Any:
        """As text; numbers as they are, since a float may not hold all digits of an id (`join_ids`)."""
        name = self.schema.person_column
        column = None if name is None else column_of(table, name)
        plain = isinstance(column, np.ndarray) and column.dtype.kind in "iuf"
        return column if plain else self.schema.ids(table)


def read_declared_targets(schema: Schema, model: Any) -> None:
    """Give a model what the schema declares of targets and people, where the schema reads them."""
    if schema.target_column is None:
        raise ValueError("y is None, and the schema declares no target; pass y, or declare Schema(target=...)")
    bounds = Bounds() if model.bounds is None else model.bounds
    label = schema.label_bound if bounds.label is None else bounds.label
    model.set_params(bounds=replace(bounds, label=label, rows_per_person=schema.rows_per_person))
    if schema.classes is not None and getattr(model, "classes", True) is None:
        model.set_params(classes=schema.classes)


def read_raw_rows(schema: Schema, X: Any, y: Any, groups: Any) -> tuple[Any, Any, Any]:
    """The rows of a Dask DataFrame of raw cells, checked and encoded by workers, their targets and their people.

    Parameters
    ----------
    schema : Schema
        Not fitted yet; it is matched with the names of columns.
    X : Dask DataFrame
    y, groups : Series of the same DataFrame, or None
        None: as the schema declares them.
    """
    if not hasattr(X, "columns"):
        raise ValueError(f"a schema reads columns by name: pass a Dask DataFrame, not {type(X).__name__}")
    schema.restore(list(schema.choose([str(name) for name in X.columns], labelled=y is None)))
    own_people = y is None and groups is None and schema.person_column is not None
    rows, y, people = take_together(X, y, groups, reader=SchemaReader(schema, y is None, own_people))
    return rows, y, Schema.people_of(Schema.spell_ids(people)) if own_people else people
