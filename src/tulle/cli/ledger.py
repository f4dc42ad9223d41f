"""Ledgers: everything that was ever released about a data set, and a cap that no fit may pass.

  tulle ledger open budget.json --dataset "visits 2026" --epsilon 3 --delta 1e-6
  tulle fit visits.csv --target y --epsilon 1 --ledger budget.json --dataset "visits 2026" -o models/first
  tulle ledger show budget.json

A data set is its name: a changed row, or a new file, does not give it a new budget. A cap cannot be raised. Keep the
file with the rows: it is not for release, and whoever can write it can reset it.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tulle.cli.outcome import Outcome, UserError

if TYPE_CHECKING:
    from tulle.ledger_file import FileLedger


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="ledger_command", metavar="open|show", required=True)
    opening = commands.add_parser("open", help="open an account with a cap for a data set; makes the file if need be")
    opening.add_argument("ledger", metavar="FILE", help="the ledger; made where it is missing")
    opening.add_argument("--dataset", required=True, metavar="NAME", help="a name for the data set; new in the file")
    opening.add_argument("--epsilon", required=True, type=float, metavar="E", help="the cap")
    opening.add_argument("--delta", required=True, type=float, metavar="D", help="well below 1 / people")
    opening.set_defaults(run=_open)
    showing = commands.add_parser("show", help="what was spent, on what, when")
    showing.add_argument("ledger", metavar="FILE", help="the ledger")
    showing.add_argument("--dataset", metavar="NAME", help="default: all of the file")
    showing.set_defaults(run=_show)


def run(arguments: argparse.Namespace) -> Outcome:
    raise UserError("say open or show")  # argparse has said so before


def _open(arguments: argparse.Namespace) -> Outcome:
    from tulle.ledger_file import FileLedger
    from tulle.privacy import Budget

    ledger = FileLedger.create(arguments.ledger, arguments.dataset, Budget(arguments.epsilon, arguments.delta))
    return Outcome(f"Opened in {arguments.ledger}: {ledger}", {"ledger": arguments.ledger, **_values(ledger)})


def _show(arguments: argparse.Namespace) -> Outcome:
    from tulle.ledger_file import FileLedger, read_ledgers

    if arguments.dataset is None:
        ledgers = read_ledgers(arguments.ledger)
    else:
        ledgers = {arguments.dataset: FileLedger(arguments.ledger, arguments.dataset)}
    text = "\n".join(map(str, ledgers.values())) or f"{arguments.ledger} has no data sets yet"
    return Outcome(text, {"ledger": arguments.ledger, "datasets": [_values(ledger) for ledger in ledgers.values()]})


def _values(ledger: FileLedger) -> dict[str, Any]:
    return {
        "dataset": ledger.dataset,
        "cap": asdict(ledger.cap),
        "share": ledger.share,
        "epsilon_so_far": ledger.epsilon,
        "entries": [asdict(entry) for entry in ledger.entries],
    }
