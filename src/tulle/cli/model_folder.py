"""The folder of a fitted model: what is in it, who may write there, and what is said of it."""

from __future__ import annotations

import argparse
import csv
import io
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tulle.cli.outcome import Outcome, UserError, output_file

if TYPE_CHECKING:
    from tulle.report import About, PrivacyReport

MODEL, REPORT, PRIVACY, WEIGHTS = "model.npz", "report.html", "privacy.json", "weights.csv"


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """Where a model goes, and what its report says of who asked for it."""
    about = parser.add_argument_group("for the report")
    about.add_argument("--title", default="", help="default: the model's folder")
    about.add_argument("--by", default="", metavar="NAME", help="who asked for the model")
    about.add_argument("--purpose", default="", metavar="TEXT", help="what it is for")
    parser.add_argument("-o", "--output", required=True, metavar="FOLDER", help="where the model and its report go")
    parser.add_argument("--replace", action="store_true", help="replace a model that is there already")


def internal_report(folder: Path) -> Path:
    """Where tulle report --internal writes: beside the folder, all of whose files are for release."""
    place = folder.resolve()
    return place.with_name(f"{place.name}-internal.html")


def written_in(folder: Path) -> list[Path]:
    """Everything that is written of a model, the model first."""
    return [folder / MODEL, folder / REPORT, folder / PRIVACY, folder / WEIGHTS, internal_report(folder)]


def output_folder(name: str, replace: bool, *read: str | Path | None, also: Iterable[str] = ()) -> Path:
    """A folder for a model, refused before any work is done where it holds what must not be lost or released.

    Parameters
    ----------
    name : str
    replace : bool
        Whether a model that is there may go.
    *read : path or None
        What this command reads, which it must not overwrite.
    also : iterable of str
        Further files that it writes there.
    """
    from tulle.blocks import is_block_folder

    if not name:
        raise UserError("-o names no folder; is a variable unset?")
    folder = Path(name)
    if (folder / "comparison.json").exists() or (folder / "settings.json").exists():
        raise UserError(f"{folder} holds a comparison, which is not for release; name another folder with -o")
    if is_block_folder(folder):
        raise UserError(f"{folder} holds private rows, which are not for release; name another folder with -o")
    for place in (*written_in(folder), *(folder / file for file in also)):
        if place.exists() and not replace:
            raise UserError(f"{place} exists; name another folder with -o, or pass --replace")
        if place.exists():
            output_file(place, *read)
    return folder


def check_words(said: Mapping[str, str]) -> None:
    """Refuse words for ledgers and reports, by the option that they came with, where a line would not be one line."""
    for what, text in said.items():
        if not text.isprintable():
            raise UserError(f"{what} must be printable text on one line, got {text!r}")


@contextmanager
def made(folder: Path) -> Iterator[None]:
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


def write_beside(folder: Path, model: Any, about: About) -> None:
    """The report and the tables of a model that is saved already; what was there of another goes."""
    try:
        for old in written_in(folder)[1:]:
            old.unlink(missing_ok=True)  # never the report of one model beside another
        _write_beside(folder, model, about)
    except BaseException as error:
        error.add_note(f"The model itself is safe in {folder / MODEL}.")
        raise


def _write_beside(folder: Path, model: Any, about: About) -> None:
    from tulle.durable import write_durably
    from tulle.pages import fit_page

    write_durably(folder / REPORT, fit_page(model, about).encode())
    write_durably(folder / PRIVACY, model.privacy_.to_json().encode())
    lines = io.StringIO(newline="")
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(("class", "feature", "weight"))
    for name, feature, weight in weights_of(model):
        writer.writerow((name, feature, repr(weight)))
    write_durably(folder / WEIGHTS, lines.getvalue().encode())


def weights_of(model: Any) -> list[tuple[str, str, float]]:
    """Class ("" where there is one output), feature and weight, by falling magnitude."""
    classes = getattr(model, "classes_", ())
    if len(classes) > 2:
        named = [(str(of), feature, weight) for of in classes for feature, weight in model.named_weights(of=of)]
        return sorted(named, key=lambda line: -abs(line[2]))
    return [("", feature, weight) for feature, weight in model.named_weights()]


def largest_weights(model: Any) -> list[str]:
    """The first lines of the table of weights, for people."""
    from tulle.pages.weights import NUMBERED

    weights = weights_of(model)
    shown = [f"  {weight:+.4g}  {name + ': ' if name else ''}{feature}" for name, feature, weight in weights[:10]]
    more = [f"  ... and {len(weights) - 10:,} more in {WEIGHTS}"] if len(weights) > 10 else []
    return ["Largest weights:", *shown, *more, *([] if hasattr(model, "feature_names_in_") else [NUMBERED])]


def proved(report: PrivacyReport) -> str:
    """What a report promises, in a line."""
    from tulle.report import of_which, rounded_up

    if report.asked is None:
        return "No privacy: this fit used no noise."
    whole = f"{rounded_up(report.delta)}{of_which(report.delta, report.floating_point_slack)}"
    return f"Proved: ε = {rounded_up(report.epsilon)} at δ = {whole} (asked: {report.asked[0]:g}, {report.asked[1]:g})."


def fit_outcome(folder: Path, model: Any, about: About, shape: tuple[int, int]) -> Outcome:
    """What is said of a fit that is written."""
    report, weights = model.privacy_, weights_of(model)
    lines = [
        f"Fitted {shape[0]:,} rows of {shape[1]:,} features: {len(model.support_):,} features have a weight.",
        proved(report),
        *([f"Ledger: {about.ledger}"] if about.ledger else []),
        *largest_weights(model),
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
