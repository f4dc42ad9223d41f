"""Ledgers: everything that was ever released about a data set, and a cap that no fit may exceed.

  tulle ledger open budget --dataset "visits 2026" --epsilon 3 --delta 1e-6
  tulle fit visits.csv --target y --epsilon 1 --ledger budget --dataset "visits 2026" -o models/first
  tulle ledger show budget                              # what was spent, and what remains
  tulle ledger show budget --html budget.html           # the same over time, by analyst and purpose
  tulle ledger show budget --receipt spent.json         # a file to sign with tulle sign: entries, totals and heads
  tulle ledger verify budget --head 3fa9c2d1            # is everything still there that a report was printed with?
  tulle ledger convert budget.json budget               # a ledger of an older tulle, which was one file
  tulle ledger serve budget --certificate c.pem --key k.pem --authority ca.pem   # for hosts without a shared folder

A ledger is a folder with one file per entry. A data set is identified by its name: a changed row, or a new file, does
not give it a new budget. A cap cannot be raised. Keep the folder with the rows: it is not for release, and anyone who
can write it can reset it. A head that was printed, or a witness file on another disk, shows that.
"""

from __future__ import annotations

import argparse
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tulle.cli.logs import add_metrics_option
from tulle.cli.outcome import BAD_NEWS, Outcome, UserError, output_file

if TYPE_CHECKING:
    from tulle.ledgers.on_disk import FileLedger


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="ledger_command", metavar="open|show|verify|convert|serve", required=True)
    opening = commands.add_parser(
        "open", help="open an account with a cap for a data set; creates the folder if it is missing"
    )
    opening.add_argument("ledger", metavar="FOLDER", help="the ledger; created if it is missing")
    opening.add_argument(
        "--dataset", required=True, metavar="NAME", help="a name for the data set that is not yet in the ledger"
    )
    opening.add_argument("--epsilon", required=True, type=float, metavar="E", help="the cap")
    opening.add_argument("--delta", required=True, type=float, metavar="D", help="well below 1 / people")
    opening.add_argument("--witness", metavar="FILE", help="a second place for the heads; every charge then needs it")
    opening.set_defaults(run=_open)
    showing = commands.add_parser("show", help="show the entries and the remaining budget")
    showing.add_argument("ledger", metavar="FOLDER", help="the ledger")
    showing.add_argument("--dataset", metavar="NAME", help="default: all data sets of the ledger")
    showing.add_argument("--html", metavar="FILE", help="write a page: spending over time, by analyst and purpose")
    showing.add_argument("--receipt", metavar="FILE", help="write entries, totals and heads as JSON, for tulle sign")
    showing.set_defaults(run=_show)
    verifying = commands.add_parser("verify", help="check every entry, the chain of their hashes and the sums")
    verifying.add_argument("ledger", metavar="FOLDER", help="the ledger")
    verifying.add_argument("--dataset", metavar="NAME", help="default: all data sets of the ledger")
    verifying.add_argument("--head", default="", metavar="HEX", help="a head that a report printed: it must be there")
    verifying.add_argument("--witness", metavar="FILE", help="compare with this witness, and bring it up to date")
    verifying.set_defaults(run=_verify)
    converting = commands.add_parser("convert", help="convert a ledger of an older tulle, which was one file")
    converting.add_argument("old", metavar="FILE", help="the old file; it is renamed to FILE.converted")
    converting.add_argument("ledger", metavar="FOLDER", help="the new folder")
    converting.set_defaults(run=_convert)
    serving = commands.add_parser("serve", help="bill over HTTPS, for hosts that do not share a folder")
    serving.add_argument("ledger", metavar="FOLDER", help="the ledger")
    serving.add_argument("--host", default="127.0.0.1", metavar="HOST", help="default 127.0.0.1")
    serving.add_argument("--port", type=int, default=8714, metavar="PORT", help="default 8714; 0 takes a free one")
    serving.add_argument("--certificate", required=True, metavar="PEM", help="of this server")
    serving.add_argument("--key", required=True, metavar="PEM", help="of the certificate")
    serving.add_argument("--authority", required=True, metavar="PEM", help="which clients' certificates are signed by")
    serving.add_argument("--witness", metavar="FILE", help="a second place for the heads")
    add_metrics_option(serving)
    serving.set_defaults(run=_serve)


def run(arguments: argparse.Namespace) -> Outcome:
    raise UserError("choose a command: open, show, verify, convert or serve")  # argparse has said so before


def _open(arguments: argparse.Namespace) -> Outcome:
    from tulle.ledgers.on_disk import FileLedger
    from tulle.trusted.plan import Budget

    cap = Budget(arguments.epsilon, arguments.delta)
    ledger = FileLedger.create(arguments.ledger, arguments.dataset, cap, witness=arguments.witness)
    return Outcome(f"Opened in {arguments.ledger}: {ledger}", {"ledger": arguments.ledger, **_values(ledger)})


def _names(arguments: argparse.Namespace) -> list[str]:
    from tulle.ledgers.chain import datasets

    return datasets(arguments.ledger) if arguments.dataset is None else [arguments.dataset]


def _show(arguments: argparse.Namespace) -> Outcome:
    from tulle.ledgers.on_disk import FileLedger
    from tulle.ledgers.remaining import remaining
    from tulle.ledgers.verification import remove_leftovers

    page = None if arguments.html is None else output_file(arguments.html)
    receipt = None if arguments.receipt is None else output_file(arguments.receipt)
    lines: list[str] = []
    ledgers = []
    for name in _names(arguments):
        ledger = FileLedger(arguments.ledger, name)
        ledgers.append(ledger)
        lines += [str(ledger), f"  {remaining(ledger)}"]
        removed, kept = remove_leftovers(arguments.ledger, name)
        lines += [f"  removed {path.name}, left by a process that was killed" for path in removed]
        lines += [f"  {path.name}: a charge is being written, or its process was just killed" for path in kept]
    if page is not None:
        from tulle.files.durable_writes import write_durably
        from tulle.reports.pages import ledger_page

        write_durably(page, ledger_page(ledgers).encode(), 0o600)
        lines.append(f"Wrote {page}. It is not for release.")
    values = {"ledger": arguments.ledger, "datasets": [_values(ledger) for ledger in ledgers]}
    if receipt is not None:
        _write_receipt(receipt, values["datasets"])
        lines.append(f"Wrote {receipt}. It is not for release. Sign it: tulle sign {receipt} --key KEY")
    text = "\n".join(lines) or f"{arguments.ledger} has no data sets yet"
    return Outcome(text, values)


def _write_receipt(path: Path, datasets: Any) -> None:
    """What a ledger holds at this time, as one file that can be signed."""
    import json

    from tulle import __version__
    from tulle.files.durable_writes import write_durably
    from tulle.files.number_text import finite
    from tulle.files.signatures import RECEIPT_FORMAT

    said = {"format": RECEIPT_FORMAT, "tulle": __version__, "datasets": datasets}
    text = json.dumps(finite(said), indent=2, ensure_ascii=False, allow_nan=False)
    write_durably(path, f"{text}\n".encode(), 0o600)


def _verify(arguments: argparse.Namespace) -> Outcome:
    from tulle.ledgers.entries import LedgerFileError
    from tulle.ledgers.verification import verify

    if not (names := _names(arguments)):
        raise UserError(f"{arguments.ledger} has no data sets yet")
    if arguments.head and len(names) > 1:
        raise UserError("pass --dataset NAME with --head: a head is that of one data set's ledger")
    lines, values, code = [], [], 0
    for name in names:
        try:
            found = verify(arguments.ledger, name, head=arguments.head, witness=arguments.witness)
        except LedgerFileError as error:
            lines.append(f"{name}: NOT whole: {error}")
            values.append({"dataset": name, "whole": False, "why": str(error)})
            code = BAD_NEWS
            continue
        says = [f"{name}: whole, {_count_entries(found.last.number)}, head {found.last.head}"]
        says += [f"head {arguments.head} is entry {found.found_at}"] if found.found_at is not None else []
        says += [f"the witness {found.witnessed}"] if found.witnessed else []
        lines.append("; ".join(says))
        values.append(
            {
                "dataset": name,
                "whole": True,
                "entries": found.last.number,
                "head": found.last.head,
                "found_at": found.found_at,
                "witness": found.witnessed,
            }
        )
    if not code and not arguments.head and not arguments.witness:
        lines.append("Without --head or --witness, entries that were all written anew cannot be noticed.")
    return Outcome("\n".join(lines), {"ledger": arguments.ledger, "datasets": values}, code)


def _convert(arguments: argparse.Namespace) -> Outcome:
    from tulle.ledgers.conversion import convert

    folder, imprecise = convert(arguments.old, arguments.ledger)
    lines = [f"Converted {arguments.old} to {arguments.ledger}; the old file is now {arguments.old}.converted."]
    lines += [
        f"{name}: {_count_entries(count)} without the effect of finite precision in delta, which stays so."
        for name, count in imprecise.items()
        if count
    ]
    return Outcome("\n".join(lines), {"ledger": str(folder), "imprecise": imprecise})


def _count_entries(count: int) -> str:
    return f"{count:,} {'entry' if count == 1 else 'entries'}"


def _serve(arguments: argparse.Namespace) -> Outcome:
    from tulle.ledgers.service import serve

    credentials = (arguments.certificate, arguments.key, arguments.authority)
    with suppress(KeyboardInterrupt):
        place, second = (arguments.host, arguments.port), arguments.metrics
        serve(arguments.ledger, place, credentials, witness=arguments.witness, metrics=second, tell=print)
    return Outcome("The service has ended.", {"ledger": arguments.ledger})


def _values(ledger: FileLedger) -> dict[str, Any]:
    from tulle.ledgers.entries import charge_to_plain

    return {
        "dataset": ledger.dataset,
        "cap": asdict(ledger.cap),
        "share": ledger.share,
        "epsilon_so_far": ledger.epsilon,
        "head": ledger.head,
        "entries": [charge_to_plain(entry) for entry in ledger.entries],
    }
