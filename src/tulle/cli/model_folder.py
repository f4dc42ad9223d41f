"""The folder of a fitted model: its files, when it may be written, and the summary that is printed."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tulle.cli.outcome import Outcome, UserError, output_file

if TYPE_CHECKING:
    from tulle.files.reserved_room import ReservedRoom
    from tulle.inference.weight_summary import WeightSummary
    from tulle.reports.report import About, PrivacyReport
    from tulle.schema.declared_schema import Schema

MODEL, REPORT, PRIVACY, WEIGHTS = "model.npz", "report.html", "privacy.json", "weights.csv"
INTERVALS = "intervals.csv"

# Bytes reserved for the report, and for how many weights: see `room_for_model`.
_PAGE_BYTES, _MOST_WEIGHTS = 4_000_000, 1_000_000


def add_output_arguments(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Where a model goes, and what its report says of who asked for it."""
    about = parser.add_argument_group("for the report")
    about.add_argument("--title", default="", help="default: from target, data and purpose")
    about.add_argument("--by", default="", metavar="NAME", help="who requested the model")
    about.add_argument("--purpose", default="", metavar="TEXT", help="purpose of the model")
    parser.add_argument(
        "-o", "--output", required=required, metavar="FOLDER", help="folder for the model and its report"
    )
    parser.add_argument("--replace", action="store_true", help="replace an existing model")


def internal_report(folder: Path) -> Path:
    """Where tulle report --internal writes: next to the folder, all of whose files are for release."""
    place = folder.resolve()
    return place.with_name(f"{place.name}-internal.html")


def find_written(folder: Path) -> list[Path]:
    """Everything that is written of a model, the model first."""
    files = (MODEL, REPORT, PRIVACY, WEIGHTS, INTERVALS)
    return [*(folder / file for file in files), internal_report(folder)]


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
    from tulle.backends.block_folder import is_block_folder

    if not name:
        raise UserError("-o is empty; is a shell variable unset?")
    folder = Path(name)
    if (folder / "comparison.json").exists() or (folder / "settings.json").exists():
        raise UserError(f"{folder} contains a comparison, which is not for release; choose another folder with -o")
    if (folder / "ledger.json").exists():
        raise UserError(f"{folder} contains a ledger, which is not for release; choose another folder with -o")
    if is_block_folder(folder):
        raise UserError(f"{folder} contains private rows, which are not for release; choose another folder with -o")
    for place in (*find_written(folder), *(folder / file for file in also)):
        if place.exists() and not replace:
            raise UserError(f"{place} exists; choose another folder with -o, or pass --replace")
        if place.exists():
            output_file(place, *read)
    return folder


def check_words(said: Mapping[str, str]) -> None:
    """Refuse words for ledgers and reports, by the option that they came with, where a line would not be one line."""
    for what, text in said.items():
        if not text.isprintable():
            raise UserError(f"{what} must be printable text on one line, got {text!r}")


def room_for_model(n_features: int, n_outputs: int, n_nonzero: int | None, names: Sequence[str] | None = None) -> int:
    """How many bytes the files of a model take at most, from public quantities.

    A weight is a number and two indices in the model (twice, where there is a teacher), and a line of text in the table
    of weights. More than a million non-zero weights are not reckoned with unless they are asked for.
    """
    longest = 4 * max(map(len, names), default=0) if names is not None else 0
    n_weights = min(n_features, max(_MOST_WEIGHTS, n_nonzero or 0)) * n_outputs
    listed = 0 if names is None else n_features * longest
    return _PAGE_BYTES + listed + n_weights * (2 * 24 + longest + 64)


@contextmanager
def make_folder(folder: Path, n_bytes: int) -> Iterator[ReservedRoom]:
    """Make a folder and take the room that its files need, before anything is spent; remove it where nothing comes.

    Parameters
    ----------
    folder : path
    n_bytes : int
        How much room, as `room_for_model` says. `save_model` gives it back just before it writes.
    """
    from tulle.files.reserved_room import ReservedRoom

    new = [place for place in (folder, *folder.parents) if not place.exists()]
    trial = folder / f".write-{os.getpid()}"
    try:  # a signal can arrive between any two of these lines
        folder.mkdir(parents=True, exist_ok=True)
        trial.write_bytes(b"")
        trial.unlink()
        with ReservedRoom(folder, n_bytes) as reserved:
            yield reserved
    except BaseException:
        with suppress(OSError):
            trial.unlink()
        for place in new:
            with suppress(OSError):
                place.rmdir()
        raise


def save_model(model: Any, folder: Path, about: About, reserved: ReservedRoom) -> None:
    """Write the model, first of all its files: the noise is drawn and the budget gone. Where the folder cannot be
    written to any more, the model goes to another one, and the error says where it is."""
    from tulle.estimators.saving import save

    reserved.release()
    try:
        save(model, folder / MODEL, about)
    except OSError as error:
        place = _save_elsewhere(model, about)
        error.add_note(
            "No other folder could be written to either, and the model is lost."
            if place is None
            else f"The model is saved in {place} instead; move it from there, and run tulle report."
        )
        raise


def _save_elsewhere(model: Any, about: About) -> Path | None:
    """The file that a model was saved in: in the system's folder for temporary files, or in the user's own."""
    import tempfile

    from tulle.estimators.saving import save

    for base in (tempfile.gettempdir(), Path.home(), Path.cwd()):
        with suppress(OSError):
            place = Path(tempfile.mkdtemp(prefix="tulle-model-", dir=base))
            try:
                save(model, place / MODEL, about)
            except BaseException:
                place.rmdir()
                raise
            return place / MODEL
    return None


def write_beside(folder: Path, model: Any, about: About, schema: Schema | None = None) -> None:
    """The report and the tables of a model that is saved already; what was there of another goes. Where a schema
    encodes the rows, the table of weights also has them for one unit of the user's columns."""
    try:
        for old in find_written(folder)[1:]:
            old.unlink(missing_ok=True)  # a folder never has the report of one model and the file of another
        _write_beside(folder, model, about, schema)
    except BaseException as error:
        error.add_note(f"The model is saved in {folder / MODEL}.")
        raise


def _write_beside(folder: Path, model: Any, about: About, schema: Schema | None) -> None:
    from tulle.files.csv_cells import write_csv
    from tulle.files.durable_writes import write_durably
    from tulle.reports.pages import fit_page

    write_durably(folder / REPORT, fit_page(model, about, schema=schema).encode())
    write_durably(folder / PRIVACY, model.privacy_.to_json().encode())
    units = {} if schema is None else dict(zip(schema.get_feature_names_out(), schema.units()[1]))
    header = ("class", "feature", "weight", *(["weight_per_unit"] if units else []))
    lines = [
        (name, feature, repr(weight), *([repr(float(weight / units[feature]))] if units else []))
        for name, feature, weight in weights_of(model)
    ]
    write_durably(folder / WEIGHTS, write_csv(header, lines).encode())
    if hasattr(model, "inference_"):
        write_durably(folder / INTERVALS, _write_intervals(model.summary(schema=schema)).encode())


def _write_intervals(summary: WeightSummary) -> str:
    """The table of intervals as CSV; cells are empty where there is none."""
    from tulle.files.csv_cells import write_csv

    columns = ("estimate", "standard_error", "low", "high", "p_value", "privacy_share")
    lines = []
    for line in summary.lines:
        values = [getattr(line, column) for column in columns]
        lines.append((line.name, *("" if value != value else repr(value) for value in values)))
    return write_csv(("feature", *columns), lines)


def _of_json(value: Any) -> Any:
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return None if math.isnan(value) else str(value)


def weights_of(model: Any) -> list[tuple[str, str, float]]:
    """Class ("" where there is one output), feature and weight, by falling magnitude."""
    classes = getattr(model, "classes_", ())
    if len(classes) > 2:
        named = [(str(of), feature, weight) for of in classes for feature, weight in model.named_weights(of=of)]
        return sorted(named, key=lambda line: -abs(line[2]))
    return [("", feature, weight) for feature, weight in model.named_weights()]


def largest_weights(model: Any) -> list[str]:
    """The first lines of the table of weights, for people."""
    from tulle.reports.pages.weight_tables import NUMBERED

    weights = weights_of(model)
    shown = [f"  {weight:+.4g}  {name + ': ' if name else ''}{feature}" for name, feature, weight in weights[:10]]
    more = [f"  ... and {len(weights) - 10:,} more in {WEIGHTS}"] if len(weights) > 10 else []
    named = hasattr(model, "feature_names_in_") or hasattr(model, "weight_names_")
    return ["Largest weights:", *shown, *more, *([] if named else [NUMBERED])]


def proved(report: PrivacyReport) -> str:
    """The guarantee of a report, in one line."""
    from tulle.files.number_text import rounded_up
    from tulle.reports.report import of_which

    if report.asked is None:
        return "No privacy: this fit used no noise."
    whole = f"{rounded_up(report.delta)}{of_which(report.delta, report.floating_point_slack, report.slack_is_for)}"
    # Rounded like the proved value, so that a proved value that is no larger than requested does not look larger.
    measure = rounded_up(report.asked[0]) if report.asked_rho is None else f"ρ = {rounded_up(report.asked_rho)}"
    rho = "" if report.asked_rho is None or report.rho is None else f"ρ = {rounded_up(report.rho)}, "
    asked = f"{measure}, {rounded_up(report.asked[1])}"
    return f"Proved: {rho}ε = {rounded_up(report.epsilon)} at δ = {whole} (asked: {asked})."


def fit_outcome(
    folder: Path, model: Any, about: About, shape: tuple[int, int], schema: Schema | None = None
) -> Outcome:
    """The summary of a fit that was written."""
    report, weights = model.privacy_, weights_of(model)
    summary = model.summary(schema=schema) if hasattr(model, "inference_") else None
    lines = [
        f"Fitted {shape[0]:,} rows of {shape[1]:,} features: {len(model.support_):,} features have a weight.",
        proved(report),
        *([f"Ledger: {about.ledger}"] if about.ledger else []),
        *(largest_weights(model) if summary is None else str(summary).splitlines()),
        f"Written: {folder / MODEL}, {REPORT}, {PRIVACY}, {WEIGHTS}{'' if summary is None else f', {INTERVALS}'}",
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
    if summary is not None:
        # JSON has no numbers that are not finite: an open end is a word.
        lines_of = [{name: _of_json(value) for name, value in asdict(line).items()} for line in summary.lines]
        values["intervals"] = {"level": summary.level, "notes": list(summary.notes), "weights": lines_of}
    return Outcome("\n".join(lines), values)
