"""`tulle federated server --trust masked`: the server reads sums of all clients, which carry the noise, and nothing
else."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tulle.cli.federated_output import (
    ROUNDS,
    STUDY_BILLED,
    STUDY_SPENT,
    RoundLog,
    about_study,
    make_printer,
)
from tulle.cli.federated_terms import STUDY_DEFAULTS, parse_classes, public_settings
from tulle.cli.federated_transport import describe_link, key_files, open_link
from tulle.cli.logs import serve_metrics
from tulle.cli.model_folder import fit_outcome, make_folder, output_folder, room_for_model, save_model, write_beside
from tulle.cli.outcome import BAD_NEWS, SPENT, Outcome, UserError, mark_spent

if TYPE_CHECKING:
    from tulle.federated.masked_terms import MaskedTerms
    from tulle.federated.server_side.masked_sums import SumRecord
    from tulle.methods.base import Method

# Methods whose questions are all sums with Gaussian noise.
_METHODS = ("hard_thresholding", "stochastic_hard_thresholding", "screen_refine")


def add_masked_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--least",
        type=int,
        metavar="N",
        help="with --trust masked: the smallest set of clients that a sum is over (default: all of --clients)",
    )
    group.add_argument(
        "--colluding",
        type=int,
        default=0,
        metavar="T",
        help="with --trust masked: how many clients may tell the server all they know (default 0)",
    )
    group.add_argument(
        "--retries",
        type=int,
        default=0,
        metavar="R",
        help="with --trust masked: how often in all fewer clients may be asked again when some are gone (default 0)",
    )


def check_no_masked_options(arguments: argparse.Namespace) -> None:
    """Raise where options of masked sums are given without them."""
    for name, usual in (("least", None), ("colluding", 0), ("retries", 0)):
        if getattr(arguments, name) != usual:
            raise UserError(f"--{name} needs --trust masked")


def make_masked_terms(arguments: argparse.Namespace) -> MaskedTerms:
    """The terms of a masked study, by the options of the server."""
    from tulle.federated.certificates import fingerprint, read_certificate
    from tulle.federated.client_side.linear_study import linear_terms
    from tulle.federated.masked_terms import MaskedTerms

    for name, usual in STUDY_DEFAULTS.items():
        if name != "journal" and getattr(arguments, name) != usual:
            raise UserError(
                f"--{name.replace('_', '-')} cannot be used with --trust masked; --method defines the steps"
            )
    if arguments.transport == "flower":
        raise UserError("masked sums need the certificates of clients; omit --transport flower")
    if arguments.method not in (None, *_METHODS):  # before clients approve what this server cannot run
        raise UserError(f"--method with --trust masked must be one of {', '.join(_METHODS)}, not {arguments.method!r}")
    if arguments.features is None:
        raise UserError("pass the number of features that all clients have: --features D")
    if arguments.epsilon is None:
        raise UserError("masked sums are private: pass --epsilon E")
    if arguments.tls_ca is None:
        raise UserError("pass the certificate of the study's authority: --tls-ca FILE")
    names = [] if arguments.clients is None else {name.strip() for name in arguments.clients.split(",")}
    least = arguments.least or len(names)
    if not least:
        raise UserError("pass --clients A,B,C, or the smallest set of clients: --least N")
    classes = None if arguments.regression else parse_classes(arguments.classes)
    model = linear_terms(
        arguments.features, step=1.0, fit_intercept=arguments.fit_intercept, **public_settings(arguments, classes)
    )
    return MaskedTerms(
        study=arguments.study,
        model=model,
        epsilon=arguments.epsilon,
        delta=1e-6 if arguments.delta is None else arguments.delta,
        least=least,
        authority=fingerprint(read_certificate(Path(arguments.tls_ca).read_bytes())),
        colluding=arguments.colluding,
        retries=arguments.retries,
        rows_per_person=arguments.rows_per_person or 1,
        method=arguments.method or "chosen from the numbers of rows and features",
    )


def _make_method(name: str | None) -> Method | None:
    from tulle.methods import METHODS

    if name is None:
        return None
    kind: Any = METHODS[name]
    settings: dict[str, dict[str, Any]] = {
        "hard_thresholding": {"noise": "gaussian"},
        "screen_refine": {"noise": "gaussian", "refinement": "steps"},
    }
    method: Method = kind(**settings.get(name, {}))
    return method


def serve_masked(arguments: argparse.Namespace, names: list[str] | None) -> Outcome:
    """Clients send masked sums with shares of the noise."""
    from tulle.federated.server_side.federated_fit import RoundRecord
    from tulle.federated.server_side.masked_server import MaskedServer
    from tulle.federated.server_side.server import StudyStoppedError
    from tulle.monitoring.status_pages import StatusPages, check_store

    terms, method = make_masked_terms(arguments), _make_method(arguments.method)
    link = open_link(arguments)
    going_on = arguments.journal is not None and Path(arguments.journal).exists()
    folder = output_folder(
        arguments.output, arguments.replace, *key_files(arguments), also=() if going_on else (ROUNDS,)
    )
    tell = make_printer(arguments)
    n_outputs = terms.model.shape[1]
    room = room_for_model(terms.model.n_features, n_outputs, arguments.n_nonzero)
    with make_folder(folder, room) as reserved, RoundLog(folder / ROUNDS, None, going_on, tell) as rounds:

        def note(record: SumRecord) -> None:
            missing = sorted(set(names or ()) - set(record.members))
            about = (record.number, record.members, tuple(missing), record.rejected, record.seconds)
            rounds.add(RoundRecord(*about, record.bytes_received), None)

        server = MaskedServer(
            terms,
            method,
            authority=arguments.tls_ca,
            n_nonzero=arguments.n_nonzero,
            clients=names,
            n_clients=None if names else max(arguments.min_clients, terms.least),
            journal=arguments.journal,
            seconds=arguments.seconds,
            patience=arguments.patience,
            progress=note,
        )
        pages = StatusPages(health=lambda: check_store(arguments.journal or folder))
        with (
            link,
            serve_metrics(arguments, pages, tell),
            mark_spent(lambda error: STUDY_BILLED if server.may_be_billed else ""),
        ):
            tell(describe_link(arguments, link.address))
            try:
                fit = server.run(link)
            except StudyStoppedError as stop:
                code, billed = (SPENT, f" {STUDY_BILLED}") if server.may_be_billed else (BAD_NEWS, "")
                values = {"stopped": str(stop), "rounds": str(folder / ROUNDS), "may_be_billed": server.may_be_billed}
                return Outcome(f"Stopped: {stop}.{billed}", values, code)
        model = fit.model()
        about = about_study(arguments, [seat.client for seat in fit.study.seats])
        with mark_spent(lambda error: STUDY_SPENT):
            save_model(model, folder, about, reserved)
            write_beside(folder, model, about)
    outcome = fit_outcome(folder, model, about, (fit.study.n_rows, terms.model.n_features))
    trust = fit.privacy.who_saw_what[0]
    values = {**outcome.values, "trust": "masked sums", "study": fit.study.digest, "rounds": str(folder / ROUNDS)}
    return replace(outcome, text=f"{outcome.text}\n{trust}", values=values)
