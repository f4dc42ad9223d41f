"""Draft a schema from the header of a table, or check a table against one.

  tulle schema visits.csv -o columns.toml      # drafts a schema; complete it by what you know about the columns
  tulle schema check visits.csv columns.toml   # counts cells that met no rule; its output is not private

A draft reads the names of columns and, of Parquet, their types; no row. Types may have been inferred from rows by the
program that wrote the file. A file without a header has a person in its first line: pass --no-header.

A check is for the holder of the rows alone. Nothing of it enters a model or a report; do not publish it, and do not
change a schema by it if the schema is to be public.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Any

from tulle.cli.data import add_file_arguments
from tulle.cli.logs import is_silent
from tulle.cli.outcome import Outcome, UserError, output_file
from tulle.cli.schema_input import read_header, reading_of_raw

_DRAFT = """\
# Drafted from {source}: {how}. Nothing of its rows was read.
# Replace every "?" by what you know WITHOUT looking at the rows, or by "ignore":
#   {{ range = [18, 95] }}                     numbers, clipped to the range
#   {{ number = 20 }}                          sparse numbers, clipped at +-20
#   {{ categories = ["a", "b"], other = true }}
#   "boolean"                                 true and false, yes and no, 1 and 0
#   {{ date = ["2015-01-01", "2026-12-31"], unit = "year" }}
#   {{ text = 14 }}                            words, hashed into 2^14 features
#   {{ hashed = 10 }}                          categories that you cannot list, hashed into 2^10 features
# A cell that holds nothing of the kind counts as the middle of a range, or 0; say missing = ... for another value, and
# indicator = true for a feature that says so. "answer_*" = ... declares all columns with such names.
"""

_TARGET = """
[target]
column = "?"         # then remove this column above
classes = ["?", "?"]  # or range = [low, high] for a regression

# [person]
# column = "?"       # the column with people's ids, if a person may have several rows
# rows = 1
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words",
        nargs="+",
        metavar="FILE",
        help="a table: CSV, Parquet or a folder of Parquet; or: check FILE SCHEMA",
    )
    add_file_arguments(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="write the draft to this file; default: standard output")


def run(arguments: argparse.Namespace) -> Outcome:
    if arguments.words[0] == "check":
        if len(arguments.words) != 3:
            raise UserError("write tulle schema check FILE SCHEMA")
        if arguments.output is not None:
            raise UserError("the counts of a check are not for release, and are printed only; omit -o")
        return _check(arguments, *arguments.words[1:])
    if len(arguments.words) != 1:
        raise UserError("write tulle schema FILE, or tulle schema check FILE SCHEMA")
    return _draft(arguments, arguments.words[0])


# --- draft -----------------------------------------------------------------------------------------------------------


def _draft(arguments: argparse.Namespace, path: str) -> Outcome:
    from tulle.files.durable_writes import write_durably
    from tulle.schema.schema_format import write_toml

    target = None if arguments.output is None else output_file(arguments.output, path)
    header = read_header(arguments, path)
    types = _declared_types(path, arguments.format)
    how = "the names of its columns" if not types else "the names and types of its columns"
    lines = write_toml({name: _guess(types.get(name, "")) for name in header}).splitlines()
    hints = ["", *(_hint(types.get(name, "")) for name in header)]
    body = "\n".join(line + hint for line, hint in zip(lines, hints))
    warning = "# Types of a file may have been inferred from its rows.\n" if types else ""
    text = _DRAFT.format(source=os.path.basename(os.path.normpath(path)), how=how) + warning + body + "\n" + _TARGET
    if target is None:
        return Outcome(text.removesuffix("\n"), {"schema": text, "n_columns": len(header), "columns": [*header]})
    write_durably(target, text.encode())
    values = {"output": str(target), "n_columns": len(header), "columns": [*header]}
    return Outcome(f"Drafted {len(header):,} columns: {target}", values)


def _declared_types(path: str, format: str | None) -> dict[str, str]:
    """The types that a Parquet file declares; {} for CSV."""
    from tulle.files.tables.addresses import files_at, open_address
    from tulle.files.tables.parquet import open_parquet

    files, parquet = files_at(path)
    with open_address(files[0]) as source:
        if not parquet and source.format(format) != "parquet":
            return {}
        _, schema, _ = open_parquet(source)
    return {field.name: str(getattr(field.type, "value_type", field.type)) for field in schema}


def _guess(kind: str) -> str:
    return "boolean" if kind == "bool" else "?"


def _hint(kind: str) -> str:
    """What a type allows."""
    if not kind or kind == "bool":
        return ""
    if kind.startswith(("int", "uint", "float", "double", "halffloat", "decimal")):
        return f"  # {kind}: range, number or categories"
    if kind.startswith(("date", "timestamp")):
        return f"  # {kind}: date"
    return f"  # {kind}: categories, text or date"


# --- check -----------------------------------------------------------------------------------------------------------


def _check(arguments: argparse.Namespace, path: str, schema_path: str) -> Outcome:
    from tulle.files.tables.raw_cells import open_raw
    from tulle.schema.declared_schema import Schema
    from tulle.schema.raw_rows import column_of

    schema = Schema.from_file(schema_path)

    def choose(header: Sequence[str]) -> list[str]:
        kinds.update(schema.choose(header, labelled=False))
        return list(kinds)

    kinds: dict[str, Any] = {}
    unknown: dict[str, int] = {}
    n_rows = 0
    with open_raw(path, choose, **reading_of_raw(arguments), progress=not is_silent(arguments)) as table:
        unknown = dict.fromkeys(kinds, 0)
        for batch in table.batches():
            n_rows += batch.n_rows
            for name, kind in kinds.items():
                unknown[name] += int((~kind.known(column_of(batch.columns, name))).sum())
    widest = max(map(len, unknown))
    lines = [
        "NOT PRIVATE: these are exact counts of the rows. For the holder of the rows alone; do not publish them.",
        f"{n_rows:,} rows. Cells that are blank, out of range, or of no declared category:",
        *(f"  {name:<{widest}}  {count:>12,}  {kinds[name].word}" for name, count in unknown.items() if count),
    ]
    if not any(unknown.values()):
        lines.append("  none")
    return Outcome("\n".join(lines), {"not_private": True, "n_rows": n_rows, "cells_without_rule": unknown})
