"""Fit a private sparse model to the rows of a file.

  tulle fit visits.csv --target readmitted --epsilon 1 --row-linf 1 -o models/readmission
  tulle fit notes.svm --epsilon 2 --delta 1e-6 --normalise --n-nonzero 500 -o models/notes \\
      --ledger budget --dataset "notes 2026" --by "A. Smith" --purpose "triage"
  tulle fit raw_visits.csv --schema columns.toml --epsilon 1 -o models/raw
  tulle fit raw_visits.csv --schema columns.toml --epsilon 2 --intervals -o models/odds

The folder gets model.npz (no pickle; read it with tulle.load), report.html (the privacy guarantee, for release with
the model), privacy.json and weights.csv, and with --intervals intervals.csv. With --ledger the fit is written into that
ledger before its noise is drawn, and refused (exit code 3) if it would exceed the cap. Exit code 4 means that the
budget is spent and that not all of the result could be written.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tulle.cli.data import (
    add_data_arguments,
    add_ledger_arguments,
    add_model_arguments,
    add_public_argument,
    estimator_class,
    is_folder_of_blocks,
    ledger_settings,
    model_settings,
    name_features,
    read_data,
    read_public_rows,
    state_origins,
    state_width,
    task_of,
)
from tulle.cli.logs import is_silent
from tulle.cli.model_features import add_feature_arguments, feature_settings, split_off
from tulle.cli.model_folder import (
    add_output_arguments,
    check_words,
    fit_outcome,
    make_folder,
    output_folder,
    room_for_model,
    save_model,
    write_beside,
)
from tulle.cli.outcome import Outcome, UserError, mark_spent

if TYPE_CHECKING:
    from tulle.files.tables import Table
    from tulle.reports.report import About


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_data_arguments(parser, blocks=True, schema=True)
    budget = parser.add_argument_group("the budget")
    measure = budget.add_mutually_exclusive_group(required=True)
    measure.add_argument(
        "--epsilon", default=1.0, type=epsilon_or_none, metavar="E", help="the privacy loss allowed; none: no privacy"
    )
    measure.add_argument(
        "--rho", type=float, metavar="R", help="a budget in zero-concentrated differential privacy instead of epsilon"
    )
    budget.add_argument("--delta", type=float, metavar="D", help="default: min(1e-5, 1 / (10 rows)), or the ledger's")
    add_ledger_arguments(budget, "bill the fit to this ledger, a folder or https://HOST:PORT (see tulle ledger)")
    add_model_arguments(parser)
    add_public_argument(parser)
    parser.add_argument(
        "--classes",
        type=parse_class_labels,
        metavar="A,B,...",
        help="classification: the class labels, known without looking at the rows; rows with another label contribute "
        "nothing. Default: the labels in the file, which are then published",
    )
    add_feature_arguments(parser)
    steps = parser.add_argument_group("private preprocessing, billed together with the model")
    steps.add_argument(
        "--private-weights",
        action=argparse.BooleanOptionalAction,
        help="weight columns by how common they are (as IDF does) and scale rows to length 1: for words and codes that "
        "are not weighted yet. Default: where a schema declares text alone",
    )
    steps.add_argument(
        "--private-scaler",
        action="store_true",
        help="centre and scale dense columns by private quartiles: for numbers without a declared range, and "
        "with cells that have no value",
    )
    parser.add_argument(
        "--intervals",
        action="store_true",
        help="fit so that weights have standard errors, intervals and p-values: at most 200 weights, logistic, squared "
        "or Poisson loss, one row per person; writes intervals.csv and a chart in the report",
    )
    parser.add_argument("--method", default="auto", metavar="NAME", help="default auto; see tulle compare")
    parser.add_argument(
        "--calibration",
        choices=("rigorous", "published"),
        default="rigorous",
        help="published: the paper's noise, reported with the epsilon that it proves",
    )
    parser.add_argument(
        "--seed",
        type=int,
        metavar="N",
        help="reproducible noise: no guarantee against anyone who knows the seed; with --ledger noise never repeats",
    )
    add_output_arguments(parser)


def parse_class_labels(text: str) -> list[Any]:
    """The labels between commas; numbers where all of them spell numbers."""
    import math

    from tulle.files.class_labels import check_classes, get_text_key
    from tulle.trusted.intake import read_finite_number

    words = [word.strip() for word in text.split(",")]
    numbers = [read_finite_number(word) for word in words]
    named: list[Any] = words if any(map(math.isnan, numbers)) else numbers
    try:
        return list(check_classes(named, get_text_key).tolist())
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"must be at least two different labels separated by commas, not {text!r}"
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
    if (arguments.ledger is None) != (arguments.dataset is None):
        raise UserError(
            "pass both --ledger FOLDER and --dataset NAME: one folder contains the ledgers of several data sets"
        )
    folder = output_folder(arguments.output, arguments.replace, arguments.data, arguments.ledger)
    name = os.path.basename(os.path.normpath(arguments.data))
    known_as = arguments.title or folder.resolve().name
    check_words(
        {"--title": known_as, "--by": arguments.by, "--purpose": arguments.purpose, "the name of DATA": name},
    )
    arguments.missing = arguments.private_scaler  # which fills them
    table = read_data(arguments, blocks=True, private=True)
    own = {"sample_weight": arguments.sample_weight, "offset": arguments.offset}
    table, of_rows = split_off(table, own)
    public = read_public_rows(arguments, table)
    task = task_of(arguments, table)
    settings = model_settings(arguments, table.schema) | feature_settings(arguments, table, task)
    labels = table.y
    if arguments.classes is not None and table.schema is None:
        from tulle.files.class_labels import read_text_cells

        # By what each cell of the file spells: another row may decide whether the column was read as numbers.
        assert labels is not None
        labels, settings["classes"] = read_text_cells(labels), arguments.classes
    model = estimator_class(task)(
        arguments.epsilon,
        arguments.delta,
        rho=arguments.rho,
        method=arguments.method,
        calibration=arguments.calibration,
        inference=arguments.intervals,
        random_state=arguments.seed,
        verbose=0 if is_silent(arguments) else 1,
        **settings,
    )
    about = _about(arguments, table, arguments.dataset or name)
    private = _private_steps(arguments, table)
    if private:
        model = _with_steps(model, private, arguments)
    ledger: Any = None
    if arguments.ledger is not None:
        from tulle.accounting.calibration import default_delta
        from tulle.ledgers.on_disk import FileLedger

        ledger = FileLedger(
            arguments.ledger,
            arguments.dataset,
            note=f"model: {known_as}",
            analyst=arguments.by,
            purpose=arguments.purpose,
            rows=table.content,
            **ledger_settings(arguments),
        )
        if arguments.delta is None and arguments.epsilon is not None:
            # A guarantee at a larger delta than the cap's would be weaker than the ledger states.
            model.set_params(delta=min(default_delta(table.X.shape[0]), ledger.cap.delta))
    n_outputs = 1 if task == "regression" else _count_outputs(settings.get("classes") or labels)
    names = table.feature_names
    if names is not None and table.schema is not None and table.schema.is_private:
        from tulle.schema.found_kinds import LONGEST_VALUE

        names = tuple(name + LONGEST_VALUE * "x" for name in names)  # those of values that will be found
    room = room_for_model(table.X.shape[1], n_outputs, arguments.n_nonzero, names)
    with mark_spent(_words_for_spend(ledger)):
        with make_folder(folder, room) as reserved, ledger or nullcontext():
            if private:
                steps = model.fit(table.X, labels, table.groups, **of_rows).fitted_steps()
                model = model.model_
            else:
                steps = []
                model.fit(table.X, labels, groups=table.groups, public=public, **of_rows)
            model.verbose = 0
            model.privacy_ = state_origins(state_width(model.privacy_, table), arguments, table.schema)
            whole = name_features(model, table, steps)
            save_model(whole, folder, about, reserved)  # the model is for release; a ledger's words are not
        about = about if ledger is None else replace(about, ledger=ledger.summary())
        # A weight for one unit says nothing after private steps, which change the units.
        schema = None if private else table.schema
        write_beside(folder, model, about, schema)
    return fit_outcome(folder, model, about, table.X.shape, schema)


def _about(arguments: argparse.Namespace, table: Table, data: str) -> About:
    """Who asked for the fit, when, of which data, and which columns it is about."""
    from tulle.reports.report import About

    schema = table.schema
    ignored = arguments.ignore if schema is None else schema.ignored_columns
    converted = schema is None and is_folder_of_blocks(arguments.data)  # which columns were left out, it does not say
    about = About(
        title=arguments.title,
        asked_by=arguments.by,
        purpose=arguments.purpose,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        data=data,
        target=(arguments.target if schema is None else schema.target_column) or "",
        ignored="" if converted else ", ".join(ignored) or "none",
    )
    return about if about.title else replace(about, title=about.default_title())


def _private_steps(arguments: argparse.Namespace, table: Table) -> list[tuple[str, Any]]:
    """The private steps that the arguments ask for, by name; for text alone also where they are silent."""
    weights = arguments.private_weights
    if weights is None:
        declared = arguments.row_l2, arguments.row_linf, arguments.public, arguments.rho
        usual = declared == (None, None, None, None) and not (arguments.normalise or arguments.private_scaler)
        plain = arguments.epsilon is not None and arguments.calibration == "rigorous" and arguments.method == "auto"
        weights = table.schema is not None and table.schema.is_text and usual and plain
    finds = table.schema is not None and table.schema.is_private
    if not (weights or arguments.private_scaler or finds):
        return []
    from tulle.preprocessing import PrivateColumns, PrivateScaler, PrivateWeights

    if weights and arguments.private_scaler:
        raise UserError("--private-weights is for sparse rows and --private-scaler for dense ones; pass one of them")
    if arguments.private_scaler and table.schema is not None:
        raise UserError("a schema scales columns by what it declares, and fills blanks; omit --private-scaler")
    if arguments.public is not None:
        raise UserError("--public does not go together with private preprocessing; omit one")
    if (arguments.row_l2, arguments.row_linf, arguments.normalise) != (None, None, False):
        raise UserError("private preprocessing bounds the rows by itself; omit --row-l2, --row-linf and --normalise")
    steps: list[tuple[str, Any]] = [("schema", PrivateColumns(table.schema))] if finds else []
    if weights:
        steps.append(("weights", PrivateWeights()))
    return [*steps, ("scaler", PrivateScaler())] if arguments.private_scaler else steps


def _with_steps(model: Any, private: list[tuple[str, Any]], arguments: argparse.Namespace) -> Any:
    """A model as the last step of a private pipeline, which has its budget and bounds its rows."""
    from tulle.estimators.private_pipeline import PrivatePipeline

    if arguments.rho is not None:
        raise UserError("private preprocessing needs a budget in epsilon; omit --rho")
    model.set_params(epsilon=1.0, delta=None, random_state=None, bounds=replace(model.bounds, row_l2=None))
    steps = [*private, ("model", model)]
    return PrivatePipeline(steps, arguments.epsilon, arguments.delta, random_state=arguments.seed)


def _count_outputs(labels: Any) -> int:
    """One for two classes, else one for each: of the labels, which are public."""
    count = len(set(labels if isinstance(labels, list) else labels.tolist()))
    return 1 if count <= 2 else count


def _words_for_spend(ledger: Any) -> Callable[[BaseException], str]:
    """What to say of a failure from now on: whether the fit was billed, or has drawn its noise."""
    from tulle.ledgers.ledger import BudgetExceededError
    from tulle.ledgers.spending import count_releases

    begun = count_releases()

    def words(error: BaseException) -> str:
        if count_releases() > begun:
            # Without a ledger, too: running the fit again is a second release about the same people.
            return (
                "The fit had begun to draw its noise: its epsilon is spent."
                if ledger is None
                else "The budget is spent: the fit was billed and stays on the ledger; its noise may have been drawn."
            )
        if ledger is None or isinstance(error, BudgetExceededError) or not ledger.n_billed:
            return ""
        return "The ledger did not answer as it should: the fit may have been billed. See tulle ledger show."

    return words
