"""Fit a private sparse model to the rows of a file.

  tulle fit visits.csv --target readmitted --epsilon 1 --row-linf 1 -o models/readmission
  tulle fit notes.svm --epsilon 2 --delta 1e-6 --normalise --n-nonzero 500 -o models/notes \\
      --ledger budget.json --dataset "notes 2026" --by "A. Smith" --purpose "triage"

The folder gets model.npz (no pickle; read it with tulle.load), report.html (what was promised, for release with the
model), privacy.json and weights.csv. With --ledger the fit is written into that ledger before its noise is drawn, and
refused (exit code 3) if it would pass the cap. Exit code 4 says that the budget is spent and that not all of the result
could be written.
"""

from __future__ import annotations

import argparse
import os
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from tulle.cli.data import (
    add_data_arguments,
    add_model_arguments,
    estimator_class,
    model_settings,
    read_data,
    task_of,
    told_width,
)
from tulle.cli.model_folder import (
    MODEL,
    add_output_arguments,
    check_words,
    fit_outcome,
    made,
    output_folder,
    write_beside,
)
from tulle.cli.outcome import Outcome, UserError, spent_told


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_data_arguments(parser, blocks=True)
    budget = parser.add_argument_group("the budget")
    budget.add_argument(
        "--epsilon", required=True, type=epsilon_or_none, metavar="E", help="the privacy loss allowed; none: no privacy"
    )
    budget.add_argument("--delta", type=float, metavar="D", help="default: min(1e-5, 1 / (10 rows)), or the ledger's")
    budget.add_argument("--ledger", metavar="FILE", help="bill the fit to this ledger (see tulle ledger)")
    budget.add_argument("--dataset", metavar="NAME", help="the data set's name in the ledger")
    add_model_arguments(parser)
    parser.add_argument(
        "--classes",
        type=classes_named,
        metavar="A,B,...",
        help="classification: the labels that there are, known without looking; rows with another one count as "
        "nothing. Without it the labels in the file are published",
    )
    parser.add_argument("--method", default="auto", metavar="NAME", help="default auto; see tulle compare")
    parser.add_argument(
        "--calibration",
        choices=("rigorous", "published"),
        default="rigorous",
        help="published: the paper's noise, reported with the epsilon that it really has",
    )
    parser.add_argument(
        "--seed",
        type=int,
        metavar="N",
        help="reproducible noise: voids the promise towards whoever knows the seed; with --ledger it repeats nothing",
    )
    add_output_arguments(parser)


def classes_named(text: str) -> list[Any]:
    """The labels between commas; numbers where all of them spell numbers."""
    import math

    from tulle.intake import declared_classes, number_of, spelled

    words = [word.strip() for word in text.split(",")]
    numbers = [number_of(word) for word in words]
    named: list[Any] = words if any(map(math.isnan, numbers)) else numbers
    try:
        return list(declared_classes(named, spelled).tolist())
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"must be at least two different labels between commas, not {text!r}"
        ) from None


def epsilon_or_none(text: str) -> float | None:
    """A number, or None for the word none."""
    if text.lower() == "none":
        return None
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number > 0, or none, not {text!r}") from None


def run(arguments: argparse.Namespace) -> Outcome:
    from tulle.report import About
    from tulle.saving import save

    if (arguments.ledger is None) != (arguments.dataset is None):
        raise UserError("--ledger FILE and --dataset NAME go together: one file holds the ledgers of several data sets")
    folder = output_folder(arguments.output, arguments.replace, arguments.data, arguments.ledger)
    title = arguments.title or folder.resolve().name
    name = os.path.basename(os.path.normpath(arguments.data))
    check_words(
        {"--title": title, "--by": arguments.by, "--purpose": arguments.purpose, "the name of DATA": name},
    )
    table = read_data(arguments, blocks=True)
    task = task_of(arguments, table)
    settings = model_settings(arguments)
    labels = table.y
    if arguments.classes is not None:
        from tulle.intake import spelled_cells

        # By what each cell of the file spells: another row may decide whether the column was read as numbers.
        assert labels is not None
        labels, settings["classes"] = spelled_cells(labels), arguments.classes
    model = estimator_class(task)(
        arguments.epsilon,
        arguments.delta,
        method=arguments.method,
        calibration=arguments.calibration,
        random_state=arguments.seed,
        verbose=0 if arguments.quiet or arguments.json else 1,
        **settings,
    )
    ledger: Any = None
    if arguments.ledger is not None:
        from tulle.ledger_file import FileLedger
        from tulle.privacy import default_delta

        note = "; ".join(text for text in (arguments.by, arguments.purpose, f"model: {title}") if text)
        ledger = FileLedger(arguments.ledger, arguments.dataset, note=note, rows=table.content)
        if arguments.delta is None and arguments.epsilon is not None:
            # A promise at a laxer delta than the cap's would be worth less than it says there.
            model.set_params(delta=min(default_delta(table.X.shape[0]), ledger.cap.delta))
    about = About(
        title=title,
        asked_by=arguments.by,
        purpose=arguments.purpose,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        data=arguments.dataset or name,
    )
    billed_before = 0 if ledger is None else len(ledger.entries)

    def spent() -> str:
        if ledger is not None and len(ledger.entries) > billed_before:
            return "The budget is spent: the fit had been billed, and it stays on the ledger; its noise may be drawn."
        # Without a ledger, too: whoever runs the fit again releases a second one about the same people.
        fitted = arguments.epsilon is not None and hasattr(model, "privacy_")
        return "The fit was done and its noise drawn: its epsilon is spent." if fitted else ""

    with spent_told(spent):
        with made(folder), ledger or nullcontext():
            model.fit(table.X, labels, groups=table.groups)
            model.verbose = 0
            model.privacy_ = told_width(model.privacy_, table)
            if table.feature_names is not None:
                import numpy as np

                model.feature_names_in_ = np.asarray(table.feature_names, dtype=object)
            # First of all, as the noise is drawn and the budget gone. The model is for release; a ledger's words not.
            save(model, folder / MODEL, about)
        about = about if ledger is None else replace(about, ledger=ledger.summary())
        write_beside(folder, model, about)
    return fit_outcome(folder, model, about, table.X.shape)
