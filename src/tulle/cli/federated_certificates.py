"""`tulle federated certificates`: the certificates of a study, for people who have no authority of their own."""

from __future__ import annotations

import argparse

from tulle.cli.outcome import Outcome


def add_certificates_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--folder", required=True, metavar="FOLDER", help="the study's certificates; a new folder gets an authority"
    )
    parser.add_argument(
        "--server", metavar="HOST[,HOST]", help="host names and IP addresses under which clients reach the server"
    )
    parser.add_argument("--clients", metavar="A,B,C", help="names of clients; more can be added later")
    parser.add_argument(
        "--days",
        type=int,
        default=365,
        metavar="N",
        help="how long certificates are valid (default 365); none longer than its authority",
    )


def run_certificates(arguments: argparse.Namespace) -> Outcome:
    from tulle.federated.study_authority import AUTHORITY, AUTHORITY_KEY, make_certificates

    hosts, names = _words(arguments.server), _words(arguments.clients)
    written = make_certificates(arguments.folder, server=hosts, clients=names, days=arguments.days)
    files = [str(path) for path in written]
    lines = [f"Written: {', '.join(files)}"]
    lines += [f"To the server: {AUTHORITY} and the folder server."] if hosts else []
    lines += [f"To each client: {AUTHORITY}, and its own two files in the folder clients."] if names else []
    lines.append(
        f"{AUTHORITY_KEY} signs certificates: keep it off the server and readable only by you. Keys (.key) are "
        "secret; send each by a way that only its owner can read."
    )
    return Outcome("\n".join(lines), {"written": files, "days": arguments.days})


def _words(text: str | None) -> list[str]:
    return [] if text is None else [word.strip() for word in text.split(",")]
