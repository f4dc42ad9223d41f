"""Predict for the rows of a file with a saved model.

  tulle predict models/readmission new_visits.csv -o predictions.csv
  tulle predict models/readmission new_visits.csv --probabilities --json

Columns are matched by name, in any order; others are ignored. Files without names (svmlight, npz, --no-header)
must have the model's features in its order. A model that was fitted with a schema takes raw tables.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tulle.cli.data import add_data_arguments, is_folder_of_blocks, read_data
from tulle.cli.logs import is_silent
from tulle.cli.model_features import add_offset_argument, split_off
from tulle.cli.model_folder import MODEL
from tulle.cli.outcome import Outcome, UserError, output_file
from tulle.cli.schema_input import read_encoded

if TYPE_CHECKING:
    from tulle.files.tables import Table
    from tulle.schema.declared_schema import Schema


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a folder written by tulle fit, or a model file")
    add_data_arguments(parser, target=False, blocks=True)
    parser.add_argument("--probabilities", action="store_true", help="also the probability of each class")
    parser.add_argument(
        "--margins",
        action="store_true",
        help="also the margin, whose sign decides between two classes (logistic loss: the log-odds of the second); of "
        "more classes one each",
    )
    add_offset_argument(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="a CSV file; default: standard output")


def model_path(name: str) -> Path:
    """The model file in a folder, or the file itself."""
    path = Path(name)
    if path.is_dir():
        path /= MODEL
    if not path.exists():
        raise UserError(f"{path} does not exist; pass a folder written by tulle fit, or a model file")
    return path


def run(arguments: argparse.Namespace) -> Outcome:
    from tulle.estimators.saved_steps import last_model, schema_before, takes_missing, transform_encoded
    from tulle.estimators.saving import load

    path = model_path(arguments.model)
    target = None if arguments.output is None else output_file(arguments.output, path, arguments.data)
    model = load(path)
    if (schema := schema_before(model)) is not None:
        if arguments.offset is not None:
            raise UserError("--offset needs a table of numbers with named columns, without a schema; or use Python")
        if is_folder_of_blocks(arguments.data):
            table = _open_encoded(arguments, schema)
        else:
            table = read_encoded(
                arguments, schema, arguments.data, labelled=False, private=True, progress=not is_silent(arguments)
            )
        rows = (transform_encoded(model, block) for block in _row_blocks(table.X, None))
        return _write_predictions(last_model(model), rows, None, table.X.shape[0], target, arguments)
    last = last_model(model)
    names = getattr(last, "feature_names_in_", None)
    arguments.n_features, arguments.missing = last.n_features_in_, takes_missing(model)
    features = None if names is None else [*names]
    read = features
    if arguments.offset is not None:
        read = None if features is None else [*features, arguments.offset]
        arguments.n_features += 1
    table = read_data(arguments, need_target=False, features=read, blocks=True)
    if table.schema is not None:
        raise UserError(
            f"a schema encoded the rows of {table.source}, but this model has none; pass rows as it takes them"
        )
    if getattr(table.X, "missing", False) and not arguments.missing:
        raise UserError(
            f"{table.source} was converted with --missing, and this model takes no rows with cells without a value; "
            "convert the rows without it"
        )
    table, own = split_off(table, {"offset": arguments.offset})
    order = _order(table, features)
    if order is None and table.X.shape[1] != last.n_features_in_:
        raise UserError(
            f"{table.source} has {table.X.shape[1]:,} features and the model {last.n_features_in_:,}; omit columns "
            "with --ignore, or give the file a header with the model's feature names"
        )
    blocks = _row_blocks(table.X, order)
    return _write_predictions(model, blocks, own["offset"], table.X.shape[0], target, arguments)


def _open_encoded(arguments: argparse.Namespace, schema: Schema) -> Table:
    """A folder of blocks whose rows this schema has encoded."""
    arguments.n_features = None
    table = read_data(arguments, need_target=False, blocks=True)
    mine, others = ((one.needed(), one.to_dict()["columns"]) for one in (schema, table.schema or schema))
    if table.schema is None or mine != others:
        raise UserError(f"{table.source} was not converted with the schema of this model; pass raw rows")
    return table


def _write_predictions(
    model: Any, blocks: Iterable[Any], offset: Any, n_rows: int, target: Path | None, arguments: argparse.Namespace
) -> Outcome:
    """Predict for blocks of rows, and write or print the table. Rows with offsets are one block."""
    from tulle.files.csv_cells import write_csv
    from tulle.files.durable_writes import write_durably

    if arguments.probabilities and not hasattr(model, "predict_proba"):
        raise UserError("this model has no probabilities: it is a regression, or its loss has none")
    if arguments.margins and not hasattr(model, "decision_function"):
        raise UserError("this model has no margins: it is a regression, whose prediction is all there is")
    asked = {
        "probability": ("predict_proba", arguments.probabilities),
        "margin": ("decision_function", arguments.margins),
    }
    methods = {word: method for word, (method, wanted) in asked.items() if wanted}
    predictions: list[Any] = []
    further: dict[str, list[Any]] = {word: [] for word in methods}
    with warnings.catch_warnings():
        # Columns were put in the order of the model's names already.
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        for rows in blocks:
            more = {} if offset is None else {"offset": offset}
            predictions += model.predict(rows, **more).tolist()
            for word, method in methods.items():
                further[word] += getattr(model, method)(rows, **more).tolist()
    plain: dict[str, Sequence[Any]] = {"prediction": predictions}
    for word, values in further.items():
        if word == "margin" and len(model.classes_) == 2:
            plain[word] = values
        else:
            plain |= {f"{word}_{name}": column for name, column in zip(model.classes_, zip(*values))}
    text = write_csv(tuple(plain), zip(*plain.values()))
    if target is None:
        return Outcome(text.removesuffix("\n"), {"n_rows": n_rows, **plain})
    write_durably(target, text.encode())
    return Outcome(f"Predicted {n_rows:,} rows: {target}", {"n_rows": n_rows, "output": str(target)})


def _order(table: Table, features: list[str] | None) -> list[int] | None:
    """Where the model's features stand in a folder of blocks; None where they stand in their places, as in a table."""
    from tulle.files.tables.columns import some

    if table.feature_names is None or features is None or [*table.feature_names] == features:
        return None
    places = {name: place for place, name in enumerate(table.feature_names)}
    absent = [name for name in features if name not in places]
    if absent:
        raise UserError(
            f"{table.source}: {len(absent)} of {len(features)} features are missing: {some(absent)}; convert rows that "
            "have them"
        )
    return [places[name] for name in features]


def _row_blocks(X: Any, order: list[int] | None) -> Iterator[Any]:
    """All rows of a table at once; those of a folder block by block, their columns in the model's order."""
    from tulle.backends.block_folder import BlockMatrix

    if not isinstance(X, BlockMatrix):
        yield X
        return
    for k in range(X.n_blocks):
        rows = X.block(k)[1] if X.sparse else X.block(k)
        yield rows if order is None else rows[:, order]
