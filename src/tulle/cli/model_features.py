"""Options of weights, offsets, class weights and rules about columns. See docs/model_features.md."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tulle.cli.outcome import UserError

if TYPE_CHECKING:
    from tulle.files.tables import Table


def add_feature_arguments(parser: argparse.ArgumentParser) -> None:
    """What a fit has besides rows and a target."""
    group = parser.add_argument_group("weights, offsets, and columns that stay together or in")
    group.add_argument("--sample-weight", metavar="COLUMN", help="what each row counts, clipped to [0, 1]")
    group.add_argument(
        "--class-weight",
        type=parse_class_weights,
        metavar="A=1,B=5",
        help="what the rows of each class count, the largest scaled to 1; or balanced: from noisy counts, billed",
    )
    add_offset_argument(group)
    group.add_argument("--offset-bound", type=float, metavar="B", help="no offset is larger; needed with --offset")
    group.add_argument("--always", metavar="A,B", help="columns that are never dropped, by name, or by number from 0")
    group.add_argument(
        "--group",
        action="append",
        default=[],
        metavar="A,B,...",
        help="columns that are kept or dropped together; may be repeated. With a schema, a column is all its features",
    )


def add_offset_argument(group: argparse._ActionsContainer) -> None:
    group.add_argument(
        "--offset",
        metavar="COLUMN",
        help="a known part of each margin; Poisson: the logarithm of the exposure",
    )


def parse_class_weights(text: str) -> Any:
    """The word balanced, or a dict of numbers; labels are numbers where all of them spell numbers."""
    from tulle.trusted.intake import read_finite_number

    if text == "balanced":
        return text
    try:
        pairs = [part.rpartition("=") for part in text.split(",")]
        weights = {label.strip(): float(weight) for label, equals, weight in pairs if equals and label.strip()}
        if len(weights) != len(pairs):
            raise ValueError
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be balanced, or look like yes=5,no=1, not {text!r}") from None
    numbers = {read_finite_number(label): weight for label, weight in weights.items()}
    return weights if any(label != label for label in numbers) else numbers


def split_off(table: Table, columns: dict[str, str | None]) -> tuple[Table, dict[str, Any]]:
    """A table without some of its columns, and these, by the options that name them; None where an option is not given.

    Parameters
    ----------
    table : Table
    columns : dict
        The name of a column, or None, for each option.
    """
    import numpy as np

    given = {option: name for option, name in columns.items() if name is not None}
    found: dict[str, Any] = dict.fromkeys(columns)
    if not given:
        return table, found
    first = "--" + next(iter(given)).replace("_", "-")
    if table.schema is not None and all(name in table.numbers for name in given.values()):
        return table, found | {option: table.numbers[name] for option, name in given.items()}
    if table.schema is not None or not isinstance(table.X, np.ndarray) or table.feature_names is None:
        raise UserError(f"{first} needs a table of numbers with named columns, or a schema")
    names = list(table.feature_names)
    for option, name in given.items():
        if name not in names:
            raise UserError(f"--{option.replace('_', '-')}: no column is named {name!r}")
        found[option] = table.X[:, names.index(name)].copy()
    kept = [place for place, name in enumerate(names) if name not in given.values()]
    if not kept:
        raise UserError(f"no column is left for features besides {first}")
    chosen = tuple(names[place] for place in kept)
    return replace(table, X=np.ascontiguousarray(table.X[:, kept]), feature_names=chosen), found


def feature_settings(arguments: argparse.Namespace, table: Table, task: str) -> dict[str, Any]:
    """The estimator's parameters that `add_feature_arguments` holds; columns by their numbers."""
    settings: dict[str, Any] = {}
    if arguments.class_weight is not None:
        if task != "classification":
            raise UserError("--class-weight is for classification; omit it")
        settings["class_weight"] = arguments.class_weight
    if arguments.always is not None:
        settings["always"] = _find_columns(arguments.always, table, "--always")
    if arguments.group:
        groups = {f"group {k}": _find_columns(text, table, "--group") for k, text in enumerate(arguments.group, 1)}
        settings["feature_groups"] = groups
    return settings


def _find_columns(text: str, table: Table, option: str) -> list[int]:
    """The numbers of columns that are named between commas."""
    from tulle.estimators.column_settings import ColumnNames

    columns = () if table.schema is None else tuple(table.schema.get_columns_of_features())
    known = ColumnNames(tuple(table.feature_names or ()), columns)
    found: list[int] = []
    for name in (part.strip() for part in text.split(",")):
        places = known.find(name)
        if not places and table.feature_names is None and name.isdecimal():
            places = [int(name)]
        if not places:
            raise UserError(f"{option}: no column is named {name!r}")
        found += places
    return found
