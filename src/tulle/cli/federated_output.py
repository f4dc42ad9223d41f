"""Output of the federated commands: each round as it finishes, the model and its report."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from tulle.cli.logs import is_silent
from tulle.cli.model_folder import (
    MODEL,
    PRIVACY,
    REPORT,
    WEIGHTS,
    check_words,
    describe_weights,
    largest_weights,
    proved,
    room_for_model,
    save_model,
    write_beside,
)
from tulle.cli.outcome import Outcome, mark_spent

if TYPE_CHECKING:
    from tulle.federated.server_side.federated_fit import FederatedFit, RoundRecord
    from tulle.federated.terms import Terms
    from tulle.files.reserved_room import ReservedRoom
    from tulle.reports.report import About

ROUNDS = "rounds.csv"

STUDY_SPENT = "The budget is spent: the study ran, and its clients were billed."
STUDY_BILLED = "The budget is spent, or a part of it: clients may have billed the study."

_ROUND_COLUMNS = ("round", "answered", "missing", "rejected", "seconds", "bytes_received")


class RoundLog:
    """A line for each round, on standard error and in a file: written at once, as a server may be killed."""

    def __init__(self, path: Path, rounds: int | None, going_on: bool, tell: Callable[[str], None]) -> None:
        self._path, self._rounds, self._going_on, self._tell = path, rounds, going_on, tell
        self._file: TextIO | None = None

    def __enter__(self) -> RoundLog:
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            self._file.close()

    def _write(self, *cells: Any) -> None:
        from tulle.files.csv_cells import write_csv
        from tulle.files.durable_writes import name_file

        with name_file(self._path):
            if self._file is None:  # not before the first round: a study that never starts leaves no file
                new = not (self._going_on and self._path.exists())
                self._file = self._path.open("w" if new else "a", encoding="utf-8", newline="")
                if new:
                    self._file.write(write_csv(_ROUND_COLUMNS, ()))
            self._file.write(write_csv((), [cells]))
            self._file.flush()

    def add(self, record: RoundRecord, weights: Any) -> None:
        rejected = "; ".join(f"{count} x {why}" for why, count in sorted(record.rejected.items()))
        answered, missing = ";".join(record.answered), ";".join(record.missing)
        self._write(record.number, answered, missing, rejected, f"{record.seconds:.3f}", record.bytes_received)
        of_all = "" if self._rounds is None else f" of {self._rounds}"
        told = [f"round {record.number}{of_all}: {', '.join(record.answered)} answered"]
        told += [f"missing: {', '.join(record.missing)}"] if missing else []
        told += [f"rejected: {rejected}"] if rejected else []
        self._tell("; ".join(told))


def check_study_words(arguments: argparse.Namespace) -> None:
    names = ("study", "title", "by", "purpose")
    check_words({f"--{name}": getattr(arguments, name) for name in names})


def room_for_study(terms: Terms, names: Sequence[str] | None = None) -> int:
    """How many bytes the files of a study take at most."""
    d, n_outputs = terms.model.shape
    rounds = terms.rounds * 1000  # a line of names and counts each
    return rounds + room_for_model(d, n_outputs, terms.n_nonzero, names)


def save_study(
    fit: FederatedFit, folder: Path, arguments: argparse.Namespace, reserved: ReservedRoom, names: Any = None
) -> Any:
    """The model of a study, written with its report."""
    import numpy as np

    model = fit.model()
    if names is not None:
        model.feature_names_in_ = np.asarray(names, dtype=object)
    about = about_study(arguments, [client.client for client in fit.clients])
    with mark_spent(lambda error: STUDY_SPENT if fit.terms.budget is not None else ""):
        save_model(model, folder, about, reserved)
        write_beside(folder, model, about)
    return model


def about_study(arguments: argparse.Namespace, clients: Iterable[str]) -> About:
    from tulle.reports.report import About

    return About(
        title=arguments.title,
        asked_by=arguments.by,
        purpose=arguments.purpose,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        data=f"{arguments.study}: {', '.join(clients)}",
    )


def study_outcome(fit: FederatedFit, model: Any, folder: Path) -> Outcome:
    counts = Counter(name for record in fit.rounds for name in record.answered)
    asked, rows = len(fit.rounds), sum(client.n_rows for client in fit.clients)
    lines = [
        f"{fit.terms.method}, {fit.terms.rounds:,} rounds: {len(fit.clients)} clients with {rows:,} rows; "
        f"{len(model.support_):,} of {model.n_features_in_:,} features have a weight.",
        *(
            f"  {client.client}: {client.n_rows:,} rows, answered {counts[client.client]:,} of {asked:,} rounds"
            for client in fit.clients
        ),
        proved(fit.privacy),
        *fit.privacy.who_saw_what[:1],
        *largest_weights(model),
        f"Written: {folder / MODEL}, {REPORT}, {PRIVACY}, {WEIGHTS}, {ROUNDS}",
    ]
    values = {
        "model": str(folder / MODEL),
        "report": str(folder / REPORT),
        "rounds": str(folder / ROUNDS),
        "study": fit.terms.digest,
        "clients": [
            {"name": client.client, "n_rows": client.n_rows, "answered": counts[client.client]}
            for client in fit.clients
        ],
        "n_features": model.n_features_in_,
        "n_nonzero": len(model.support_),
        "privacy": fit.privacy.to_dict(),
        "weights": describe_weights(model),
    }
    return Outcome("\n".join(lines), values)


def make_printer(arguments: argparse.Namespace) -> Callable[[str], None]:
    """A printer of progress messages; it prints nothing if the output is quiet."""
    if is_silent(arguments):
        return lambda line: None
    return lambda line: print(line, file=sys.stderr, flush=True)
