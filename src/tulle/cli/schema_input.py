"""Rows of a file as a declared schema encodes them, and the options that declare one."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tulle.cli.outcome import UserError

if TYPE_CHECKING:
    from tulle.files.tables import Table
    from tulle.schema.declared_schema import Schema

# Options that declare one column each, and what they are in a schema.
_SHORT = ("range", "number", "categories", "boolean", "date", "text")


def add_schema_arguments(parser: argparse.ArgumentParser) -> None:
    """A schema file, or columns one by one."""
    group = parser.add_argument_group("raw tables: columns that you know without looking at the rows")
    group.add_argument(
        "--schema",
        metavar="FILE",
        help="a TOML file that declares the columns, the target and the person (tulle schema drafts one); CSV and "
        "Parquet, words, dates and blanks included",
    )
    for name, form, words in (
        ("range", "COLUMN=LOW:HIGH", "numbers, clipped to the range"),
        ("number", "COLUMN=BOUND", "sparse numbers, clipped at the bound"),
        ("categories", "COLUMN=A,B,...", "one feature for each category"),
        ("boolean", "COLUMN", "yes and no, true and false, 1 and 0"),
        ("date", "COLUMN=SINCE:UNTIL", "dates such as 2026-12-31"),
        ("text", "COLUMN", "words, hashed into 16,384 features"),
    ):
        help_text = f"without --schema: {words}; may be repeated"
        group.add_argument(
            f"--{name}", dest=f"schema_{name}", action="append", default=[], metavar=form, help=help_text
        )


def schema_of(arguments: argparse.Namespace) -> Schema | None:
    """The schema that the arguments declare; None where they declare none."""
    short = {name: getattr(arguments, f"schema_{name}", []) for name in _SHORT}
    path = getattr(arguments, "schema", None)
    if path is None and not any(short.values()):
        return None
    from tulle.schema.declared_schema import Schema

    if path is not None:
        clashing = [f"--{name}" for name in _SHORT if short[name]]
        clashing += [f"--{name}" for name in ("target", "groups", "classes") if getattr(arguments, name, None)]
        clashing += ["--ignore"] if arguments.ignore else []
        if clashing:
            raise UserError(f"--schema declares all columns; omit {', '.join(clashing)}, or say it in {path}")
        return Schema.from_file(path)
    columns: dict[str, Any] = {}
    for kind, given in short.items():
        for text in given:
            name, settings = _read_option(kind, text)
            if name in columns:
                raise UserError(f"the column {name!r} is declared twice")
            columns[name] = settings
    columns |= dict.fromkeys(_ignored(arguments), "ignore")
    target = _target_of(arguments, columns)
    person = getattr(arguments, "groups", None)
    if person is not None:
        person = {"column": person, "rows": arguments.rows_per_person}
    return Schema(columns, target=target, person=person)


def _ignored(arguments: argparse.Namespace) -> list[str]:
    """The columns of --ignore. The header is read only where it is to say whether a comma belongs to a name."""
    from tulle.files.tables.columns import split_names

    if not any("," in given for given in arguments.ignore):
        return list(arguments.ignore)
    first = arguments.data if isinstance(arguments.data, str) else arguments.data[0]
    return split_names(arguments.ignore, read_header(arguments, first))


def read_header(arguments: argparse.Namespace, path: str) -> tuple[str, ...]:
    """The names of all columns; no row is read."""
    from tulle.files.tables import TableError
    from tulle.files.tables.raw_cells import open_raw

    found: list[str] = []

    def choose(header: Sequence[str]) -> Sequence[str]:
        found.extend(header)
        return header

    try:
        with open_raw(path, choose, **reading_of_raw(arguments)):
            pass
    except TableError:
        if not found:  # of types that no schema reads, which a schema may ignore
            raise
    return tuple(found)


def _read_option(kind: str, text: str) -> tuple[str, Any]:
    """A column and its settings, from COLUMN or COLUMN=VALUE."""
    name, equals, value = text.rpartition("=") if kind not in ("boolean", "text") else (text, "", "")
    if kind in ("boolean", "text"):
        return text, kind
    if not equals or not name:
        raise UserError(f"--{kind} {text}: write the column, = and the value, as in --{kind} {_EXAMPLES[kind]}")
    if kind == "categories":
        return name, {kind: [word.strip() for word in value.split(",")]}
    try:
        if kind == "number":
            return name, {kind: float(value)}
        first, second = value.split(":")
        return name, {kind: [first, second] if kind == "date" else [float(first), float(second)]}
    except ValueError:
        raise UserError(f"--{kind} {text}: must look like --{kind} {_EXAMPLES[kind]}") from None


_EXAMPLES = {
    "range": "age=18:95",
    "number": "visits=20",
    "categories": "job=clerk,nurse",
    "date": "admitted=2015-01-01:2026-12-31",
}


def _target_of(arguments: argparse.Namespace, columns: dict[str, Any]) -> Any:
    name = getattr(arguments, "target", None)
    if name is None:
        return None
    declared = columns.pop(name, None)
    if isinstance(declared, dict) and "range" in declared:
        return {"column": name, "range": declared["range"]}
    if arguments.classes is None:
        raise UserError(
            f"declare the target too: --classes A,B,... for a classification, --range {name}=LOW:HIGH for a regression"
        )
    return {"column": name, "classes": arguments.classes}


def read_encoded(
    arguments: argparse.Namespace,
    schema: Schema,
    path: str,
    *,
    labelled: bool = True,
    private: bool = False,
    progress: bool = True,
) -> Table:
    """The rows of a file as the schema encodes them; with keys (`tulle.preprocessing.keyed_rows`) where it leaves
    values to be found, and the command supports that: `private`.

    Where they are not `labelled`, the schema was matched with a header before, and columns that it did not find there
    are not read.
    """
    import numpy as np
    import scipy.sparse as sp

    from tulle.files.tables import Table
    from tulle.files.tables.raw_cells import open_raw
    from tulle.preprocessing.keyed_rows import join_keyed, read_keys
    from tulle.schema.cell_rules import numbers_of
    from tulle.schema.raw_rows import column_of

    if schema.is_private and not private:
        raise UserError(
            "the schema leaves categories or words to be found privately, which tulle fit does alone; declare them, or "
            "hash them ({ hashed = 10 }, { text = 14 })"
        )
    if labelled and schema.target_column is None:
        raise UserError("the schema declares no target; add [target] with column and classes or range")

    def choose(header: Sequence[str]) -> list[str]:
        if not labelled:
            return schema.find(header)
        schema.fit({name: [] for name in header})
        roles = (schema.target_column, schema.person_column)
        features = schema.choose(header)
        for name in beside:
            if name not in header or name in features or name in roles:
                raise UserError(f'the column {name!r} must be in the table, and declared as "ignore": it is no feature')
        return [*features, *(name for name in roles if name is not None), *beside]

    named = (getattr(arguments, option, None) for option in ("sample_weight", "offset"))
    beside = list(dict.fromkeys(name for name in named if name is not None)) if labelled else []
    blocks, labels, people = [], [], []
    numbers: dict[str, list[Any]] = {name: [] for name in beside}
    with open_raw(path, choose, **reading_of_raw(arguments), progress=progress) as table:
        for batch in table.batches():
            blocks.append(read_keys(schema, batch.columns) if schema.is_private else schema.transform(batch.columns))
            if labelled:
                labels.append(schema.labels(batch.columns))
                people.append(schema.ids(batch.columns))
            for name in beside:  # a cell that is no number counts as 0
                numbers[name].append(np.nan_to_num(numbers_of(column_of(batch.columns, name)), nan=0.0))
        content, name = table.fingerprint(), table.name
    if schema.is_private:
        X = join_keyed(blocks)
    else:
        X = sp.csr_array(sp.vstack(blocks, format="csr")) if len(blocks) > 1 else blocks[0]
    y = groups = None
    if labelled:
        y = np.concatenate(labels) if schema.classes is not None else _join_masked(labels)
        groups = None if schema.person_column is None else schema.people_of(np.concatenate(people))
    names = tuple(schema.get_feature_names_out())
    joined = {one: np.concatenate(parts) for one, parts in numbers.items()}
    return Table(X, y, names, groups, source=name, content=content, schema=schema, numbers=joined)


def _join_masked(parts: Sequence[Any]) -> Any:
    """Numbers of which some are masked. numpy's own function for it has no types."""
    import numpy as np

    mask = np.concatenate([np.ma.getmaskarray(part) for part in parts])
    return np.ma.MaskedArray(np.concatenate([part.data for part in parts]), mask=mask)


def reading_of_raw(arguments: argparse.Namespace) -> dict[str, Any]:
    """How a raw table is written, as `tulle.files.tables.raw_cells.open_raw` takes it."""
    if arguments.format not in (None, "csv", "parquet"):
        raise UserError(f"--schema is for CSV and Parquet, not for {arguments.format}")
    return {name: getattr(arguments, name) for name in ("format", "header", "delimiter", "encoding")}
