"""Predict for the rows of a file with a saved model.

  tulle predict models/readmission new_visits.csv -o predictions.csv
  tulle predict models/readmission new_visits.csv --probabilities --json

Columns are found by their names, in any order; others are ignored. Files without names (svmlight, npz, --no-header)
must have the model's features in its order.
"""

from __future__ import annotations

import argparse
import csv
import io
import warnings
from pathlib import Path
from typing import Any

from tulle.cli.data import add_data_arguments, read_data
from tulle.cli.fit import MODEL
from tulle.cli.outcome import Outcome, UserError, output_file


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a folder that tulle fit made, or a model file")
    add_data_arguments(parser, target=False)
    parser.add_argument("--probabilities", action="store_true", help="also the probability of each class")
    parser.add_argument("-o", "--output", metavar="FILE", help="a CSV file; default: standard output")


def model_path(name: str) -> Path:
    """The model file in a folder, or the file itself."""
    path = Path(name)
    if path.is_dir():
        path /= MODEL
    if not path.exists():
        raise UserError(f"{path} does not exist; name a folder that tulle fit made, or a model file")
    return path


def run(arguments: argparse.Namespace) -> Outcome:
    from tulle.durable import write_durably
    from tulle.saving import load

    path = model_path(arguments.model)
    target = None if arguments.output is None else output_file(arguments.output, path, arguments.data)
    model = load(path)
    names = getattr(model, "feature_names_in_", None)
    arguments.n_features = model.n_features_in_
    table = read_data(arguments, need_target=False, features=None if names is None else [*names])
    if table.X.shape[1] != model.n_features_in_:
        raise UserError(
            f"{table.source} has {table.X.shape[1]:,} features and the model {model.n_features_in_:,}; leave columns "
            "out with --ignore, or give the file a header with the model's names"
        )
    columns: dict[str, Any] = {}
    with warnings.catch_warnings():
        # Columns were put in the order of the model's names already.
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        columns["prediction"] = model.predict(table.X)
        if arguments.probabilities:
            if not hasattr(model, "predict_proba"):
                raise UserError("this model has no probabilities: it is a regression, or its loss has none")
            chances = model.predict_proba(table.X)
            columns |= {f"probability_{name}": chances[:, k] for k, name in enumerate(model.classes_)}
    plain = {name: values.tolist() for name, values in columns.items()}
    lines = io.StringIO(newline="")
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(plain)
    writer.writerows(zip(*plain.values()))
    if target is None:
        return Outcome(lines.getvalue().removesuffix("\n"), {"n_rows": table.X.shape[0], **plain})
    write_durably(target, lines.getvalue().encode())
    text = f"Predicted {table.X.shape[0]:,} rows: {target}"
    return Outcome(text, {"n_rows": table.X.shape[0], "output": str(target)})
