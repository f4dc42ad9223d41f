"""`tulle federated client`: take part in studies with the rows of a file."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tulle.cli.data import add_ledger_arguments, add_people_argument, ledger_settings, read_data
from tulle.cli.federated_output import make_printer
from tulle.cli.federated_transport import add_connection_arguments, client_name, connect_client, read_identity
from tulle.cli.outcome import DONE, NO_PART, REFUSED, SPENT, Outcome, UserError, mark_spent
from tulle.ledgers.spending import count_releases

if TYPE_CHECKING:
    from tulle.federated.client_side.client import Client


_SPENT = "The budget is spent: a study or a fit was billed and stays on the ledger."


def add_client_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the client")
    add_connection_arguments(group)
    group.add_argument(
        "--state",
        required=True,
        metavar="FOLDER",
        help="persistent state: the rounds already answered; use one folder per data set of a ledger",
    )
    group.add_argument(
        "--retry-seconds",
        type=float,
        default=60.0,
        metavar="T",
        help="how long to wait for an unreachable server (default 60)",
    )
    group.add_argument("--forever", action="store_true", help="after a study, wait for the next one")
    promise = parser.add_argument_group("what this client accepts")
    add_ledger_arguments(promise, "every study is billed to this ledger, a folder or https://HOST:PORT")
    promise.add_argument(
        "--max-epsilon", type=float, metavar="E", help="the most that one study may cost (default: what the cap leaves)"
    )
    promise.add_argument(
        "--approve",
        action="append",
        metavar="DIGEST",
        help="take part on these terms only, by the digest that tulle federated terms prints (repeatable; default: any "
        "terms within the cap and --max-epsilon)",
    )
    promise.add_argument(
        "--show-terms", action="store_true", help="print the terms that the server proposes, and refuse all of them"
    )
    add_people_argument(promise)
    promise.add_argument(
        "--trust-aggregator",
        action="store_true",
        help="send sums over rows to the server, which is trusted to add the noise",
    )
    promise.add_argument(
        "--without-privacy",
        action="store_true",
        help="take part in studies without noise, in place of a ledger: for rows that need no protection",
    )


def run_client(arguments: argparse.Namespace) -> Outcome:
    from tulle.federated.client_side.approval import NOT_APPROVED, read_approved
    from tulle.federated.client_side.client import Client
    from tulle.ledgers.on_disk import FileLedger

    name = client_name(arguments)
    if arguments.without_privacy and (arguments.ledger or arguments.dataset):
        raise UserError("--without-privacy is for rows without a ledger; omit it, or omit --ledger and --dataset")
    if not arguments.without_privacy and not (arguments.ledger and arguments.dataset):
        raise UserError(
            "pass --ledger FOLDER and --dataset NAME, as created by tulle ledger open, or pass --without-privacy"
        )
    if arguments.show_terms and arguments.approve:
        raise UserError("--show-terms refuses all terms; omit it, or omit --approve")
    approved = () if arguments.show_terms else arguments.approve
    if approved is not None and arguments.trust_aggregator:
        raise UserError("--approve and --show-terms are for studies with terms; omit them, or omit --trust-aggregator")
    read_approved(approved)  # an invalid digest is reported before files are read
    table = read_data(arguments)
    ledger = None
    if arguments.ledger is not None:
        note = f"federated client {name}"
        ledger = FileLedger(
            arguments.ledger, arguments.dataset, note=note, rows=table.content, **ledger_settings(arguments)
        )
    tell = make_printer(arguments)
    counts: Counter[str] = Counter()
    proposed: dict[str, None] = {}  # terms that were not approved, each once

    def told(line: str) -> None:
        counts[line.partition(":")[0]] += line.startswith("refused (")
        if line.startswith(NOT_APPROVED):
            proposed[line.removeprefix(NOT_APPROVED).strip()] = None
        tell(line)

    client = Client(
        name,
        table.X,
        table.y,
        ledger=ledger,
        state=arguments.state,
        groups=table.groups,
        rows_per_person=arguments.rows_per_person,
        max_epsilon=arguments.max_epsilon,
        without_privacy=arguments.without_privacy,
        trusts_aggregator=arguments.trust_aggregator,
        identity=read_identity(arguments, name),
        approved=approved,
        tell=told,
    )
    begun = count_releases()

    def is_spent() -> bool:
        # The ledger too: a bill that failed in the end may be on it.
        return count_releases() > begun or (ledger is not None and ledger.n_billed > 0)

    with mark_spent(lambda error: _SPENT if is_spent() else ""):
        try:
            connect_client(arguments, client.answer, tell)
        except ConnectionError as error:
            if ledger is not None:
                error.add_note(f"({ledger.refresh().summary()})")
            raise
        return _parted(client, counts, is_spent(), list(proposed))


def _parted(client: Client, counts: Counter[str], spent: bool, proposed: Sequence[str]) -> Outcome:
    """The outcome. A client that answered has done its part, even if it refused other requests."""
    from tulle.federated.client_side.approval import NOT_APPROVED

    summary = "" if client.ledger is None else client.ledger.refresh().summary()
    refused = {kind.removeprefix("refused (").removesuffix(")"): n for kind, n in sorted(counts.items()) if n}
    if client.n_answers or not (refused or spent):
        code, said = (REFUSED if "cap" in refused else DONE), ""
    elif spent:
        code, said = SPENT, f"{_SPENT} No round was answered."
    else:
        code, said = (REFUSED if "cap" in refused else NO_PART), "This client took no part, and nothing was spent."
    lines = [
        *(f"{NOT_APPROVED}\n{terms}" for terms in proposed),
        *(["The ledger refused: its cap would have been exceeded."] if code == REFUSED else []),
        f"Refused: {', '.join(f'{n} x {why}' for why, n in refused.items()) or 'nothing'}.",
        *([said] if said else []),
        *([f"Ledger: {summary}"] if summary else ["No ledger: no privacy guarantee."]),
    ]
    values = {"client": client.name, "answers": client.n_answers, "refused": refused, "ledger": summary}
    values |= {"not_approved": list(proposed)} if proposed else {}
    return Outcome("\n".join(lines), values, code)
