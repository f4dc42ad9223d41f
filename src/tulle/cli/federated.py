"""Fit a model to rows that stay where they are: a server, and clients that hold the rows.

  tulle federated server --study readmission --features 40 --classes home,ward --row-l2 1 --epsilon 1 --rounds 50 \\
      --n-nonzero 10 --host 0.0.0.0 --port 8080 --clients north,south,west -o models/readmission
  tulle federated client --data visits.csv --target outcome --name north --server study.example.org:8080 \\
      --ledger budget.json --dataset "visits 2026" --state study-state
  tulle federated simulate --data visits.csv --target outcome --parts 3 --row-l2 1 --epsilon 1 --rounds 50 \\
      --n-nonzero 10 -o models/simulated

The server is not trusted: each client draws its own noise, bills the whole study to its own ledger before it answers
anything, and refuses what passes its cap or what was not agreed on. Rows never leave it, and no code comes to it. With
--trust aggregator, to which clients must agree by --trust-aggregator, they send exact sums over their rows, and the
server adds the noise once: any method of tulle fit, at its accuracy.

The server's folder gets what tulle fit writes, and rounds.csv: who answered when. Needs the extra federated, but for
simulate.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from tulle.cli.data import (
    add_bound_arguments,
    add_data_arguments,
    add_loss_arguments,
    add_people_argument,
    estimator_class,
    model_settings,
    read_data,
    task_of,
    told_width,
)
from tulle.cli.fit import epsilon_or_none
from tulle.cli.model_folder import (
    MODEL,
    PRIVACY,
    REPORT,
    WEIGHTS,
    add_output_arguments,
    check_words,
    fit_outcome,
    largest_weights,
    made,
    output_folder,
    proved,
    weights_of,
    write_beside,
)
from tulle.cli.outcome import BAD_NEWS, DONE, REFUSED, Outcome, UserError, output_file, spent_told

if TYPE_CHECKING:
    from tulle.federated.client import Client
    from tulle.federated.flower import FlowerLink
    from tulle.federated.server import FederatedFit, RoundRecord
    from tulle.federated.terms import Terms
    from tulle.report import About
    from tulle.tables import Table

ROUNDS = "rounds.csv"
_STUDY_SPENT = "The budget is spent: the study was done, and its clients were billed for it."
# Settings of a study that a trusted aggregator has no use for, with what they are where nobody says anything.
_OF_STUDIES: dict[str, Any] = {
    "rounds": 50,
    "local_steps": 1,
    "batch": None,
    "step": None,
    "clip": None,
    "memory": None,
    "penalty": 0.0,
    "weighting": "rows",
    "average": 0.0,
    "journal": None,
}
_COLUMNS = ("round", "answered", "missing", "rejected", "seconds", "bytes_received")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="federated_command", metavar="server|client|simulate", required=True)
    server = commands.add_parser("server", help="run a study with clients on other machines")
    _add_terms(server)
    _add_server(server)
    add_output_arguments(server)
    server.set_defaults(run=_server)
    client = commands.add_parser("client", help="take part in studies with the rows of a file, which stay here")
    add_data_arguments(client, option=True)
    _add_client(client)
    client.set_defaults(run=_client)
    simulation = commands.add_parser(
        "simulate", help="a study in one process, with the rows of a file dealt to clients"
    )
    add_data_arguments(simulation, option=True)
    simulation.add_argument("--parts", type=int, required=True, metavar="N", help="how many clients the rows go to")
    simulation.add_argument(
        "--skew",
        action="store_true",
        help="clients see different labels: each gets two runs of the rows sorted by label",
    )
    simulation.add_argument(
        "--seed", type=int, metavar="N", help="reproducible parts and noise: voids the promise towards whoever knows it"
    )
    _add_terms(simulation, of_file=True)
    add_output_arguments(simulation)
    simulation.set_defaults(run=_simulate)


def run(arguments: argparse.Namespace) -> Outcome:
    raise UserError("say server, client or simulate")  # argparse has said so before


# --- the terms of a study --------------------------------------------------------------------------------------------


def _add_terms(parser: argparse.ArgumentParser, *, of_file: bool = False) -> None:
    """What all clients are asked to agree to; shape and classes where no file says them."""
    study = parser.add_argument_group("the study")
    study.add_argument(
        "--study",
        required=not of_file,
        default="simulation",
        metavar="NAME",
        help="its name, which clients see and write into their ledgers (a trusted aggregator's fit has none there)",
    )
    if not of_file:
        study.add_argument(
            "--features", type=int, metavar="D", help="how many features all clients have, in the same order"
        )
    kind = study.add_mutually_exclusive_group(required=not of_file)
    kind.add_argument(
        "--classes",
        metavar="A,B",
        help="the labels to tell apart, such as home,ward or 0,1; rows with others count as nothing"
        + (" (default: those of the file, or --regression)" if of_file else ""),
    )
    kind.add_argument("--regression", action="store_true", help="the target is a number")
    budget = parser.add_argument_group("the budget")
    budget.add_argument(
        "--epsilon",
        required=True,
        type=epsilon_or_none,
        metavar="E",
        help="what each client promises its own people for the whole study; none: no privacy",
    )
    budget.add_argument(
        "--delta",
        type=float,
        metavar="D",
        help="well below 1 / (rows of the largest client); default 1e-6"
        + ("" if of_file else "; with --trust aggregator as in tulle fit"),
    )
    add_bound_arguments(parser)
    model = parser.add_argument_group("the model")
    model.add_argument("--n-nonzero", type=int, metavar="S", help="how many weights to keep")
    add_loss_arguments(model)
    steps = parser.add_argument_group("the steps")
    steps.add_argument(
        "--rounds",
        type=int,
        default=_OF_STUDIES["rounds"],
        metavar="R",
        help="how often clients are asked (default 50)",
    )
    steps.add_argument(
        "--local-steps",
        type=int,
        default=_OF_STUDIES["local_steps"],
        metavar="K",
        help="steps of a client a round (default 1)",
    )
    steps.add_argument(
        "--batch",
        type=_batch,
        metavar="B",
        help="expected rows of a step, drawn at random by each client; all: every row in every step (default all)",
    )
    steps.add_argument(
        "--step",
        type=float,
        metavar="X",
        help="size of a step (default: 1 / the loss's curvature for rows at their bound)",
    )
    steps.add_argument(
        "--clip", type=float, metavar="C", help="largest slope of a row (default: by the loss; none without privacy)"
    )
    steps.add_argument(
        "--memory",
        type=int,
        metavar="M",
        help="weights remembered between steps, at least --n-nonzero (default: --n-nonzero, as in the paper)",
    )
    steps.add_argument(
        "--penalty", type=float, default=_OF_STUDIES["penalty"], metavar="P", help="ℓ2 penalty (default 0)"
    )
    steps.add_argument(
        "--weighting",
        choices=("rows", "equal"),
        default=_OF_STUDIES["weighting"],
        help="what clients count by in the mean (default rows)",
    )
    steps.add_argument(
        "--average",
        type=float,
        default=_OF_STUDIES["average"],
        metavar="A",
        help="mean of the last part A of all rounds (default 0: the last)",
    )


def _batch(text: str) -> int | None:
    if text == "all":
        return None
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number of rows, or all, not {text!r}") from None


def _classes(text: str) -> tuple[str | int | float, ...]:
    """Labels as numbers where all of them are, as files hold them."""
    words = [word.strip() for word in text.split(",")]
    for kind in (int, float):
        try:
            return tuple(kind(word) for word in words)
        except ValueError:
            pass
    return tuple(words)


def _terms(arguments: argparse.Namespace, n_features: int, classes: tuple[Any, ...] | None) -> Terms:
    from tulle.federated.linear import linear_terms
    from tulle.federated.terms import Terms

    public: dict[str, Any] = {
        "classes": classes,
        "loss": arguments.loss or ("squared" if classes is None else "logistic"),
        "row_l2": arguments.row_l2,
        "row_linf": arguments.row_linf,
        "label": arguments.label_bound,
        "normalise": arguments.normalise,
    }
    if arguments.n_nonzero is None:
        raise UserError("say how many weights the model may have: --n-nonzero S")
    private = arguments.epsilon is not None
    if not private and arguments.delta is not None:
        raise UserError("--delta goes with an --epsilon; leave it out")
    bounded = linear_terms(n_features, step=1.0, fit_intercept=False, **public)
    if private:
        try:
            bounded.check_bounded()
        except ValueError:
            raise UserError("declare --row-l2, --row-linf or --normalise: nothing is estimated from rows") from None
    step, clip = arguments.step, arguments.clip
    if step is None:
        known = bounded.public(1)
        curvature = known.loss.typical_curvature(known.label) * known.row_l2**2
        if not 0 < curvature < math.inf:
            raise UserError("nothing is known of the rows' length to size steps by; pass --step, or --row-l2")
        step = 1.0 / curvature
    if clip is None:
        clip = bounded.resolved_loss.default_clip(bounded.public(1).label) if private else math.inf
        if private and not clip < math.inf:
            raise UserError("the slope of a row has no bound: pass --label-bound, or --clip")
    model = linear_terms(n_features, step=step, fit_intercept=arguments.fit_intercept, **public)
    return Terms(
        study=arguments.study,
        model=model,
        rounds=arguments.rounds,
        local_steps=arguments.local_steps,
        n_nonzero=arguments.n_nonzero,
        step=step,
        clip=clip,
        batch=arguments.batch,
        epsilon=arguments.epsilon,
        delta=(1e-6 if arguments.delta is None else arguments.delta) if private else None,
        memory=arguments.memory,
        penalty=arguments.penalty,
    )


# --- the server ------------------------------------------------------------------------------------------------------


def _add_server(parser: argparse.ArgumentParser) -> None:
    network = parser.add_argument_group("the network")
    network.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="HOST",
        help="default 127.0.0.1: this machine only; 0.0.0.0: from anywhere",
    )
    network.add_argument("--port", type=int, default=8080, metavar="P", help="default 8080; 0: a free one")
    network.add_argument("--tls-ca", metavar="FILE", help="certificate of the authority that clients know, PEM")
    network.add_argument("--tls-cert", metavar="FILE", help="this server's certificate, PEM")
    network.add_argument("--tls-key", metavar="FILE", help="this server's private key, PEM")
    trust = parser.add_argument_group("trust")
    trust.add_argument(
        "--trust",
        choices=("nobody", "aggregator"),
        default="nobody",
        help="nobody (default): each client draws its own noise; aggregator: this server gets exact sums and draws it",
    )
    trust.add_argument("--method", metavar="NAME", help="with --trust aggregator: as in tulle fit (default auto)")
    trust.add_argument(
        "--rows-per-person",
        type=int,
        metavar="K",
        help="with --trust aggregator: protect people with up to K rows, as the clients say too (default 1)",
    )
    group = parser.add_argument_group("the clients")
    group.add_argument("--clients", metavar="A,B,C", help="who may take part (default: whoever connects)")
    group.add_argument(
        "--min-clients", type=int, default=2, metavar="N", help="a round counts if so many answer (default 2)"
    )
    group.add_argument(
        "--seconds", type=float, default=60.0, metavar="T", help="how long a round waits for answers (default 60)"
    )
    group.add_argument(
        "--patience",
        type=float,
        default=600.0,
        metavar="T",
        help="how long to wait at first for --clients, and in any round for --min-clients (default 600)",
    )
    group.add_argument("--journal", metavar="FILE", help="a server that is started again with it goes on where it was")


def _server(arguments: argparse.Namespace) -> Outcome:
    from tulle.federated.flower import FlowerLink

    names = None if arguments.clients is None else sorted({name.strip() for name in arguments.clients.split(",")})
    if names is not None and len(names) < arguments.min_clients:
        raise UserError(f"--clients names fewer than the {arguments.min_clients} of --min-clients")
    keys = (arguments.tls_ca, arguments.tls_cert, arguments.tls_key)
    if any(keys) and not all(keys):
        raise UserError("--tls-ca, --tls-cert and --tls-key go together")
    _check_words(arguments)
    link = FlowerLink(arguments.host, arguments.port, certificates=keys if all(keys) else None)
    serve = _aggregate if arguments.trust == "aggregator" else _study
    return serve(arguments, link, names, keys)


def _study(arguments: argparse.Namespace, link: FlowerLink, names: list[str] | None, keys: Sequence[str]) -> Outcome:
    """Clients draw their own noise."""
    from tulle.federated.server import Server, StudyStoppedError

    for option, given in (("--method", arguments.method), ("--rows-per-person", arguments.rows_per_person)):
        if given is not None:
            raise UserError(f"{option} goes with --trust aggregator")
    if arguments.features is None:
        raise UserError("say how many features all clients have: --features D")
    terms = _terms(arguments, arguments.features, None if arguments.regression else _classes(arguments.classes))
    if arguments.journal is not None:
        output_file(arguments.journal, *keys)
    going_on = arguments.journal is not None and Path(arguments.journal).exists()
    folder = output_folder(
        arguments.output, arguments.replace, arguments.journal, *keys, also=() if going_on else (ROUNDS,)
    )
    tell = _teller(arguments)
    with made(folder), _Rounds(folder / ROUNDS, terms.rounds, going_on, tell) as rounds:
        server = Server(
            terms,
            clients=names,
            journal=arguments.journal,
            min_clients=arguments.min_clients,
            seconds=arguments.seconds,
            patience=arguments.patience,
            weighting=arguments.weighting,
            average=arguments.average,
            progress=rounds.add,
        )
        with link:
            tell(f"listening at {link.address}{_in_the_clear(link.address, all(keys))}")
            link.wait_for(arguments.min_clients if names is None else len(names), arguments.patience)
            try:
                fit = server.run(link)
            except StudyStoppedError as stop:
                return Outcome(f"Stopped: {stop}", {"stopped": str(stop), "rounds": str(folder / ROUNDS)}, BAD_NEWS)
        model = _saved(fit, folder, arguments)
    return _fitted(fit, model, folder)


def _aggregate(
    arguments: argparse.Namespace, link: FlowerLink, names: list[str] | None, keys: Sequence[str]
) -> Outcome:
    """Clients send exact sums, and a fit of tulle draws the noise here."""
    from tulle.federated.aggregator import RowsAtClients
    from tulle.saving import save

    for name, usual in _OF_STUDIES.items():
        if getattr(arguments, name) != usual:
            raise UserError(f"--{name.replace('_', '-')} does not go with --trust aggregator; --method says the steps")
    folder = output_folder(arguments.output, arguments.replace, *keys)
    arguments.rows_per_person = arguments.rows_per_person or 1
    model = estimator_class("regression" if arguments.regression else "classification")(
        arguments.epsilon,
        arguments.delta,
        method=arguments.method or "auto",
        verbose=0 if arguments.quiet or arguments.json else 1,
        **model_settings(arguments),
    )
    tell = _teller(arguments)
    with made(folder):
        with link:
            tell(f"listening at {link.address}{_in_the_clear(link.address, all(keys))}")
            rows = RowsAtClients(
                link,
                clients=names,
                seconds=arguments.seconds,
                patience=arguments.patience,
                min_clients=arguments.min_clients,
            )
            tell(f"clients: {', '.join(rows.clients)}; {rows.shape[0]:,} rows of {rows.shape[1]:,} features")
            if arguments.features not in (None, rows.shape[1]):
                raise UserError(
                    f"the clients have {rows.shape[1]:,} features, and --features says {arguments.features:,}"
                )
            model.fit(rows, None)
        model.verbose = 0
        about = _about(arguments, folder, rows.clients)
        with spent_told(lambda: _STUDY_SPENT):
            save(model, folder / MODEL, about)
            write_beside(folder, model, about)
    outcome = fit_outcome(folder, model, about, rows.shape)
    trust = "Trust model: trusted aggregator. Clients sent exact sums to this process, which drew the noise."
    return replace(outcome, text=f"{outcome.text}\n{trust}", values={**outcome.values, "trust": "trusted aggregator"})


def _in_the_clear(address: str, tls: bool) -> str:
    from tulle.federated.flower import is_this_machine

    if is_this_machine(address):
        return " (this machine only; --host 0.0.0.0 lets others in)"
    return "" if tls else ", without TLS: whoever is on the way reads what clients send, and can pose as the server"


class _Rounds:
    """A line for each round, on standard error and in a file: kept as they come, as a server may be killed."""

    def __init__(self, path: Path, rounds: int, going_on: bool, tell: Callable[[str], None]) -> None:
        self._path, self._rounds, self._going_on, self._tell = path, rounds, going_on, tell
        self._file: TextIO | None = None

    def __enter__(self) -> _Rounds:
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            self._file.close()

    def _written(self, *cells: Any) -> None:
        if self._file is None:  # not before the first round: a study that never starts leaves no file
            new = not (self._going_on and self._path.exists())
            self._file = self._path.open("w" if new else "a", encoding="utf-8", newline="")
            if new:
                csv.writer(self._file, lineterminator="\n").writerow(_COLUMNS)
        csv.writer(self._file, lineterminator="\n").writerow(cells)
        self._file.flush()

    def add(self, record: RoundRecord, weights: Any) -> None:
        rejected = "; ".join(f"{count} x {why}" for why, count in sorted(record.rejected.items()))
        answered, missing = ";".join(record.answered), ";".join(record.missing)
        self._written(record.number, answered, missing, rejected, f"{record.seconds:.3f}", record.bytes_received)
        told = [f"round {record.number} of {self._rounds}: {', '.join(record.answered)} answered"]
        told += [f"missing: {', '.join(record.missing)}"] if missing else []
        told += [f"rejected: {rejected}"] if rejected else []
        self._tell("; ".join(told))


# --- what a study gives ----------------------------------------------------------------------------------------------


def _check_words(arguments: argparse.Namespace) -> None:
    names = ("study", "title", "by", "purpose")
    check_words({f"--{name}": getattr(arguments, name) for name in names})


def _saved(fit: FederatedFit, folder: Path, arguments: argparse.Namespace, names: Any = None) -> Any:
    """The model of a study, written with its report."""
    import numpy as np

    from tulle.saving import save

    model = fit.model()
    if names is not None:
        model.feature_names_in_ = np.asarray(names, dtype=object)
    about = _about(arguments, folder, [client.client for client in fit.clients])
    with spent_told(lambda: _STUDY_SPENT):
        save(model, folder / MODEL, about)
        write_beside(folder, model, about)
    return model


def _about(arguments: argparse.Namespace, folder: Path, clients: Iterable[str]) -> About:
    from tulle.report import About

    return About(
        title=arguments.title or folder.resolve().name,
        asked_by=arguments.by,
        purpose=arguments.purpose,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        data=f"{arguments.study}: {', '.join(clients)}",
    )


def _fitted(fit: FederatedFit, model: Any, folder: Path) -> Outcome:
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
        "weights": [
            {"class": name, "feature": feature, "weight": weight} for name, feature, weight in weights_of(model)
        ],
    }
    return Outcome("\n".join(lines), values)


def _teller(arguments: argparse.Namespace) -> Callable[[str], None]:
    """Says what happens as it happens, unless nobody wants to know."""
    if arguments.quiet or arguments.json:
        return lambda line: None
    return lambda line: print(line, file=sys.stderr, flush=True)


# --- a client --------------------------------------------------------------------------------------------------------


def _add_client(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the client")
    group.add_argument("--name", required=True, metavar="NAME", help="the name by which the server knows this client")
    group.add_argument("--server", required=True, metavar="HOST:PORT", help="where the server listens")
    group.add_argument("--tls-ca", metavar="FILE", help="certificate of the authority that vouches for the server, PEM")
    group.add_argument(
        "--state",
        required=True,
        metavar="FOLDER",
        help="what must outlive the process: which rounds were answered; one folder for each data set of a ledger",
    )
    group.add_argument(
        "--retry-seconds", type=float, default=60.0, metavar="T", help="how long the server may stay away (default 60)"
    )
    group.add_argument("--forever", action="store_true", help="go on after a study: wait for the next")
    promise = parser.add_argument_group("what it agrees to")
    promise.add_argument("--ledger", metavar="FILE", help="every study is billed to this ledger (see tulle ledger)")
    promise.add_argument("--dataset", metavar="NAME", help="the data set's name in the ledger")
    promise.add_argument(
        "--max-epsilon", type=float, metavar="E", help="the most that one study may cost (default: what the cap leaves)"
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
    promise.add_argument(
        "--insecure", action="store_true", help="with --trust-aggregator: sums may travel without TLS, as within a VPN"
    )


def _client(arguments: argparse.Namespace) -> Outcome:
    from tulle.federated.client import Client
    from tulle.federated.flower import connect, is_this_machine
    from tulle.ledger_file import FileLedger

    if arguments.without_privacy and (arguments.ledger or arguments.dataset):
        raise UserError("--without-privacy is for rows without a ledger; leave out it, or --ledger and --dataset")
    if not arguments.without_privacy and not (arguments.ledger and arguments.dataset):
        raise UserError(
            "name --ledger FILE and --dataset NAME, which tulle ledger open makes, or say --without-privacy"
        )
    exposed = arguments.trust_aggregator and not arguments.tls_ca and not is_this_machine(arguments.server)
    if exposed and not arguments.insecure:
        raise UserError("sums without noise would travel in the clear: pass --tls-ca FILE, or --insecure within a VPN")
    table = read_data(arguments)
    ledger = None
    if arguments.ledger is not None:
        note = f"federated client {arguments.name}"
        ledger = FileLedger(arguments.ledger, arguments.dataset, note=note, rows=table.content)
    tell = _teller(arguments)
    counts: Counter[str] = Counter()

    def told(line: str) -> None:
        counts[line.partition(":")[0]] += line.startswith("refused (")
        tell(line)

    client = Client(
        arguments.name,
        table.X,
        table.y,
        ledger=ledger,
        state=arguments.state,
        groups=table.groups,
        rows_per_person=arguments.rows_per_person,
        max_epsilon=arguments.max_epsilon,
        without_privacy=arguments.without_privacy,
        trusts_aggregator=arguments.trust_aggregator,
        tell=told,
    )
    try:
        connect(
            arguments.server,
            client.answer,
            certificate=arguments.tls_ca,
            retry_seconds=arguments.retry_seconds,
            forever=arguments.forever,
            told=tell,
        )
    except ConnectionError as error:
        if ledger is not None:
            error.add_note(f"({ledger.refresh().summary()})")
        raise
    return _parted(client, counts)


def _parted(client: Client, counts: Counter[str]) -> Outcome:
    summary = "" if client.ledger is None else client.ledger.refresh().summary()
    refused = {kind.removeprefix("refused (").removesuffix(")"): n for kind, n in sorted(counts.items()) if n}
    code = REFUSED if "cap" in refused else DONE
    lines = [
        *(["The ledger refused: its cap would have been passed."] if code == REFUSED else []),
        f"Refused: {', '.join(f'{n} x {why}' for why, n in refused.items()) or 'nothing'}.",
        *([f"Ledger: {summary}"] if summary else ["No ledger: nothing is promised."]),
    ]
    return Outcome("\n".join(lines), {"client": client.name, "refused": refused, "ledger": summary}, code)


# --- a simulation ----------------------------------------------------------------------------------------------------


def _simulate(arguments: argparse.Namespace) -> Outcome:
    from tulle.federated.simulation import simulate

    if arguments.groups is not None:
        raise UserError("leave --groups out: simulated clients protect one row each")
    _check_words(arguments)
    folder = output_folder(arguments.output, arguments.replace, arguments.data, also=(ROUNDS,))
    table = read_data(arguments)
    terms = _terms(arguments, table.X.shape[1], _classes_of(arguments, table))
    parts = _parts(table, arguments.parts, arguments.skew, arguments.seed)
    with made(folder), _Rounds(folder / ROUNDS, terms.rounds, False, _teller(arguments)) as rounds:
        fit = simulate(
            terms,
            parts,
            seed=arguments.seed,
            weighting=arguments.weighting,
            average=arguments.average,
            progress=rounds.add,
        )
        fit = replace(fit, privacy=told_width(fit.privacy, table))
        model = _saved(fit, folder, arguments, table.feature_names)
    return _fitted(fit, model, folder)


def _classes_of(arguments: argparse.Namespace, table: Table) -> tuple[Any, ...] | None:
    """The classes that were said, or those of the file: the set of labels is public, as in tulle fit."""
    import numpy as np

    if arguments.classes is not None:
        return _classes(arguments.classes)
    arguments.task = "regression" if arguments.regression else None
    assert table.y is not None
    if task_of(arguments, table) == "regression":
        return None
    return tuple(label.item() if hasattr(label, "item") else label for label in np.unique(table.y))


def _parts(table: Table, count: int, skew: bool, seed: int | None) -> dict[str, tuple[Any, Any]]:
    """The rows of a table, dealt to so many clients."""
    import numpy as np

    assert table.y is not None
    n = len(table.y)
    if not 1 <= count <= n // 4:
        raise UserError(f"--parts must be from 1 to a quarter of the {n:,} rows, got {count}")
    generator = np.random.default_rng(seed)
    order = generator.permutation(n)
    if skew:
        runs = np.array_split(order[np.argsort(table.y[order], kind="stable")], 2 * count)
        dealt = generator.permutation(2 * count)
        hands = [np.concatenate([runs[k] for k in dealt[2 * i : 2 * i + 2]]) for i in range(count)]
    else:
        hands = np.array_split(order, count)
    return {f"part {i + 1}": (table.X[np.sort(hand)], table.y[np.sort(hand)]) for i, hand in enumerate(hands)}
