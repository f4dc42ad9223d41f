"""Fit a private sparse model to the rows of a file.

  tulle fit visits.csv --target readmitted --epsilon 1 --row-linf 1 -o models/readmission
  tulle fit notes.svm --epsilon 2 --delta 1e-6 --normalise --n-nonzero 500 -o models/notes \\
      --ledger budget.json --dataset "notes 2026" --by "A. Smith" --purpose "triage"

The folder gets model.npz (no pickle; read it with tulle.load), report.html (what was promised, for release with the
model), privacy.json and weights.csv. With --ledger the fit is written into that ledger before its noise is drawn, and
refused (exit code 3) if it would pass the cap.
"""

from __future__ import annotations

import argparse
import csv
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tulle.cli.data import (
    add_data_arguments,
    add_model_arguments,
    estimator_class,
    model_settings,
    read_data,
    task_of,
)
from tulle.cli.outcome import Outcome, UserError, output_file

if TYPE_CHECKING:
    from tulle.report import About

MODEL, REPORT, PRIVACY, WEIGHTS = "model.npz", "report.html", "privacy.json", "weights.csv"


def internal_report(folder: Path) -> Path:
    """Where tulle report --internal writes: beside the folder, all of whose files are for release."""
    place = folder.resolve()
    return place.with_name(f"{place.name}-internal.html")


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
    parser.add_argument("--method", default="auto", metavar="NAME", help="default auto; see tulle compare")
    parser.add_argument(
        "--calibration",
        choices=("rigorous", "published"),
        default="rigorous",
        help="published: the paper's noise, reported with the epsilon that it really has",
    )
    parser.add_argument(
        "--seed", type=int, metavar="N", help="reproducible noise: voids the promise towards whoever knows the seed"
    )
    about = parser.add_argument_group("for the report")
    about.add_argument("--title", default="", help="default: the model's folder")
    about.add_argument("--by", default="", metavar="NAME", help="who asked for the model")
    about.add_argument("--purpose", default="", metavar="TEXT", help="what it is for")
    parser.add_argument("-o", "--output", required=True, metavar="FOLDER", help="where the model and its report go")
    parser.add_argument("--replace", action="store_true", help="replace a model that is there already")


def epsilon_or_none(text: str) -> float | None:
    """A number, or None for the word none."""
    if text.lower() == "none":
        return None
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number > 0, or none, not {text!r}") from None


def run(arguments: argparse.Namespace) -> Outcome:
    from tulle.blocks import is_block_folder
    from tulle.report import About
    from tulle.saving import save

    if (arguments.ledger is None) != (arguments.dataset is None):
        raise UserError("--ledger FILE and --dataset NAME go together: one file holds the ledgers of several data sets")
    if not arguments.output:
        raise UserError("-o names no folder; is a variable unset?")
    folder = Path(arguments.output)
    if (folder / "comparison.json").exists() or (folder / "settings.json").exists():
        raise UserError(f"{folder} holds a comparison, which is not for release; name another folder with -o")
    if is_block_folder(folder):
        raise UserError(f"{folder} holds private rows, which are not for release; name another folder with -o")
    written = [folder / MODEL, folder / REPORT, folder / PRIVACY, folder / WEIGHTS, internal_report(folder)]
    for place in written:
        if place.exists() and not arguments.replace:
            raise UserError(f"{place} exists; name another folder with -o, or pass --replace")
        if place.exists():
            output_file(place, arguments.data, arguments.ledger)
    title = arguments.title or folder.resolve().name
    name = os.path.basename(os.path.normpath(arguments.data))
    said = {"--title": title, "--by": arguments.by, "--purpose": arguments.purpose, "the name of DATA": name}
    for what, text in said.items():
        if not text.isprintable():  # it goes into the ledger and the report, where a line must be one line
            raise UserError(f"{what} must be printable text on one line, got {text!r}")
    table = read_data(arguments, blocks=True)
    task = task_of(arguments, table)
    model = estimator_class(task)(
        arguments.epsilon,
        arguments.delta,
        method=arguments.method,
        calibration=arguments.calibration,
        random_state=arguments.seed,
        verbose=0 if arguments.quiet or arguments.json else 1,
        **model_settings(arguments),
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
    with _made(folder), ledger or nullcontext(), _bill_told(ledger):
        model.fit(table.X, table.y, groups=table.groups)
        model.verbose = 0
        if table.feature_names is not None:
            import numpy as np

            model.feature_names_in_ = np.asarray(table.feature_names, dtype=object)
        # First of all, as the noise is drawn and the budget gone. The model is for release; what a ledger says is not.
        save(model, folder / MODEL, about)
    about = about if ledger is None else replace(about, ledger=ledger.summary())
    try:
        for old in written[1:]:
            old.unlink(missing_ok=True)  # never the report of one model beside another
        _write_rest(folder, model, about)
    except BaseException as error:
        error.add_note(f"The model itself is safe in {folder / MODEL}.")
        raise
    return _outcome(folder, model, about, table.X.shape)


@contextmanager
def _made(folder: Path) -> Iterator[None]:
    """Make a folder and see that it can be written to, before anything is spent; take it away where nothing comes."""
    new = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        trial = folder / f".write-{os.getpid()}"
        trial.write_bytes(b"")
        trial.unlink()
        yield
    except BaseException:
        for place in new:
            with suppress(OSError):
                place.rmdir()
        raise


@contextmanager
def _bill_told(ledger: Any) -> Iterator[None]:
    """Say so where a fit was billed and came to nothing."""
    before = 0 if ledger is None else len(ledger.entries)
    try:
        yield
    except BaseException as error:
        if ledger is not None and len(ledger.entries) > before:
            error.add_note("The fit had been billed, and it stays on the ledger: its noise may have been drawn.")
        raise


def _write_rest(folder: Path, model: Any, about: About) -> None:
    from tulle.durable import write_durably
    from tulle.pages import fit_page

    write_durably(folder / REPORT, fit_page(model, about).encode())
    write_durably(folder / PRIVACY, model.privacy_.to_json().encode())
    lines = io.StringIO(newline="")
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(("class", "feature", "weight"))
    for name, feature, weight in _weights(model):
        writer.writerow((name, feature, repr(weight)))
    write_durably(folder / WEIGHTS, lines.getvalue().encode())


def _weights(model: Any) -> list[tuple[str, str, float]]:
    """Class ("" where there is one output), feature and weight, by falling magnitude."""
    classes = getattr(model, "classes_", ())
    if len(classes) > 2:
        named = [(str(of), feature, weight) for of in classes for feature, weight in model.named_weights(of=of)]
        return sorted(named, key=lambda line: -abs(line[2]))
    return [("", feature, weight) for feature, weight in model.named_weights()]


def _outcome(folder: Path, model: Any, about: About, shape: tuple[int, int]) -> Outcome:
    from tulle.pages.weights import NUMBERED
    from tulle.report import rounded_up

    report, weights = model.privacy_, _weights(model)
    shown = [f"  {weight:+.4g}  {name + ': ' if name else ''}{feature}" for name, feature, weight in weights[:10]]
    more = f"  ... and {len(weights) - 10:,} more in {WEIGHTS}" if len(weights) > 10 else ""
    lines = [
        f"Fitted {shape[0]:,} rows of {shape[1]:,} features: {len(model.support_):,} features have a weight.",
        "No privacy: this fit used no noise."
        if report.asked is None
        else f"Proved: ε = {rounded_up(report.epsilon)} at δ = {rounded_up(report.delta)} (asked: {report.asked[0]:g}, "
        f"{report.asked[1]:g}).",
        *([f"Ledger: {about.ledger}"] if about.ledger else []),
        "Largest weights:",
        *shown,
        *([more] if more else []),
        *([] if hasattr(model, "feature_names_in_") else [NUMBERED]),
        f"Written: {folder / MODEL}, {REPORT}, {PRIVACY}, {WEIGHTS}",
    ]
    values = {
        "model": str(folder / MODEL),
        "report": str(folder / REPORT),
        "n_rows": shape[0],
        "n_features": shape[1],
        "n_nonzero": len(model.support_),
        "privacy": report.to_dict(),
        "ledger": about.ledger,
        "weights": [{"class": name, "feature": feature, "weight": weight} for name, feature, weight in weights],
    }
    return Outcome("\n".join(lines), values)
