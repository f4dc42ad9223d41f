"""`tulle federated server`: a study with clients on other machines, or a fit by a trusted aggregator."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tulle.cli.data import estimator_class, model_settings
from tulle.cli.federated_masked import add_masked_arguments, check_no_masked_options, serve_masked
from tulle.cli.federated_output import (
    ROUNDS,
    STUDY_BILLED,
    STUDY_SPENT,
    RoundLog,
    about_study,
    check_study_words,
    make_printer,
    room_for_study,
    save_study,
    study_outcome,
)
from tulle.cli.federated_terms import STUDY_DEFAULTS, make_server_terms, parse_classes
from tulle.cli.federated_transport import add_link_arguments, describe_link, key_files, open_link
from tulle.cli.logs import add_metrics_option, is_silent, serve_metrics
from tulle.cli.model_folder import fit_outcome, make_folder, output_folder, room_for_model, save_model, write_beside
from tulle.cli.outcome import BAD_NEWS, SPENT, Outcome, UserError, mark_spent, output_file

if TYPE_CHECKING:
    from tulle.federated.server_side.flower import FlowerLink
    from tulle.federated.server_side.grpc_link import GrpcLink


def add_server_arguments(parser: argparse.ArgumentParser) -> None:
    network = parser.add_argument_group("the network")
    add_link_arguments(network)
    add_metrics_option(network)
    trust = parser.add_argument_group("trust")
    trust.add_argument(
        "--trust",
        choices=("nobody", "masked", "aggregator"),
        default="nobody",
        help="%(default)s (default): each client draws its own noise; masked: clients share the noise and mask their "
        "sums, at the accuracy of one data set; aggregator: this server gets exact sums and draws the noise",
    )
    trust.add_argument("--method", metavar="NAME", help="with --trust aggregator or masked: as in tulle fit")
    trust.add_argument(
        "--rows-per-person",
        type=int,
        metavar="K",
        help="with --trust aggregator or masked: protect people with up to K rows, as the clients say too (default 1)",
    )
    add_masked_arguments(trust)
    group = parser.add_argument_group("the clients")
    group.add_argument("--clients", metavar="A,B,C", help="names of the clients allowed (default: any client)")
    group.add_argument(
        "--min-clients",
        type=int,
        default=2,
        metavar="N",
        help="fewest clients for a study to begin, and fewest answers for a round to count (default 2)",
    )
    group.add_argument(
        "--seconds", type=float, default=60.0, metavar="T", help="how long a round waits for answers (default 60)"
    )
    group.add_argument(
        "--patience",
        type=float,
        default=600.0,
        metavar="T",
        help="how long to wait at first for --clients, then for --min-clients that would take part, and in any round "
        "for their answers (default 600)",
    )
    group.add_argument(
        "--journal", metavar="FILE", help="state file, with --trust masked a folder: a restarted server resumes from it"
    )


def run_server(arguments: argparse.Namespace) -> Outcome:
    names = None if arguments.clients is None else sorted({name.strip() for name in arguments.clients.split(",")})
    if names is not None and len(names) < arguments.min_clients:
        raise UserError(f"--clients lists fewer than the {arguments.min_clients} of --min-clients")
    check_study_words(arguments)
    if arguments.trust == "masked":
        return serve_masked(arguments, names)
    link = open_link(arguments)
    check_no_masked_options(arguments)
    serve = _aggregate if arguments.trust == "aggregator" else _study
    return serve(arguments, link, names)


def _study(arguments: argparse.Namespace, link: GrpcLink | FlowerLink, names: list[str] | None) -> Outcome:
    """Clients draw their own noise."""
    from tulle.federated.server_side.server import Server, StudyStoppedError
    from tulle.monitoring.status_pages import StatusPages, check_store

    for option, given in (("--method", arguments.method), ("--rows-per-person", arguments.rows_per_person)):
        if given is not None:
            raise UserError(f"{option} needs --trust aggregator or masked")
    terms = make_server_terms(arguments)
    if arguments.journal is not None:
        output_file(arguments.journal, *key_files(arguments))
    going_on = arguments.journal is not None and Path(arguments.journal).exists()
    folder = output_folder(
        arguments.output,
        arguments.replace,
        arguments.journal,
        *key_files(arguments),
        also=() if going_on else (ROUNDS,),
    )
    tell = make_printer(arguments)
    with (
        make_folder(folder, room_for_study(terms)) as reserved,
        RoundLog(folder / ROUNDS, terms.rounds, going_on, tell) as rounds,
    ):
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
        pages = StatusPages(server.counts.metrics, lambda: check_store(arguments.journal or folder))
        with (
            link,
            serve_metrics(arguments, pages, tell),
            mark_spent(lambda error: STUDY_BILLED if server.may_be_billed else ""),
        ):
            tell(describe_link(arguments, link.address))
            link.wait_for(arguments.min_clients if names is None else len(names), arguments.patience)
            try:
                fit = server.run(link)
            except StudyStoppedError as stop:
                code, billed = (SPENT, f" {STUDY_BILLED}") if server.may_be_billed else (BAD_NEWS, "")
                values = {"stopped": str(stop), "rounds": str(folder / ROUNDS), "may_be_billed": server.may_be_billed}
                return Outcome(f"Stopped: {stop}.{billed}", values, code)
        model = save_study(fit, folder, arguments, reserved)
    return study_outcome(fit, model, folder)


def _aggregate(arguments: argparse.Namespace, link: GrpcLink | FlowerLink, names: list[str] | None) -> Outcome:
    """Clients send exact sums, and a fit of tulle draws the noise here."""
    from tulle.federated.server_side.aggregator import RowsAtClients
    from tulle.federated.server_side.client_requests import TooFewClientsError
    from tulle.monitoring.status_pages import StatusPages, check_store

    for name, usual in STUDY_DEFAULTS.items():
        if getattr(arguments, name) != usual:
            raise UserError(
                f"--{name.replace('_', '-')} cannot be used with --trust aggregator; --method defines the steps"
            )
    folder = output_folder(arguments.output, arguments.replace, *key_files(arguments))
    arguments.rows_per_person = arguments.rows_per_person or 1
    model = estimator_class("regression" if arguments.regression else "classification")(
        arguments.epsilon,
        arguments.delta,
        method=arguments.method or "auto",
        verbose=0 if is_silent(arguments) else 1,
        **model_settings(arguments),
    )
    tell = make_printer(arguments)
    # The number of features is the clients' to say; a classifier of them has as many outputs as classes, at most.
    n_outputs = 1 if arguments.regression else len(parse_classes(arguments.classes))
    room = room_for_model(arguments.features or 10**6, n_outputs, arguments.n_nonzero)
    pages = StatusPages(health=lambda: check_store(folder))
    with make_folder(folder, room) as reserved:
        with link, serve_metrics(arguments, pages, tell):
            tell(describe_link(arguments, link.address))
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
                    f"the clients have {rows.shape[1]:,} features, but --features is {arguments.features:,}"
                )
            with mark_spent(lambda error: STUDY_BILLED if rows.billed and arguments.epsilon is not None else ""):
                try:
                    model.fit(rows, None)
                except TooFewClientsError as error:
                    raise UserError(str(error)) from error
        model.verbose = 0
        about = about_study(arguments, rows.clients)
        with mark_spent(lambda error: STUDY_SPENT if arguments.epsilon is not None else ""):
            save_model(model, folder, about, reserved)
            write_beside(folder, model, about)
    outcome = fit_outcome(folder, model, about, rows.shape)
    trust = "Trust model: trusted aggregator. Clients sent exact sums to this process, which drew the noise."
    return replace(outcome, text=f"{outcome.text}\n{trust}", values={**outcome.values, "trust": "trusted aggregator"})
