"""Fit a model to rows that stay where they are: a server, and clients that hold the rows.

  tulle federated certificates --folder study --server study.example.org --clients north,south,west
  tulle federated server --study readmission --features 40 --classes home,ward --row-l2 1 --epsilon 1 --rounds 50 \\
      --n-nonzero 10 --host 0.0.0.0 --port 8080 --clients north,south,west -o models/readmission \\
      --tls-ca authority.pem --tls-certificate server.pem --tls-key server.key
  tulle federated terms ...        the same options: print the terms in words and their digest, and run nothing
  tulle federated client --data visits.csv --target outcome --server study.example.org:8080 \\
      --tls-ca authority.pem --tls-certificate north.pem --tls-key north.key \\
      --ledger budget --dataset "visits 2026" --state study-state
  tulle federated simulate --data visits.csv --target outcome --parts 3 --row-l2 1 --epsilon 1 --rounds 50 \\
      --n-nonzero 10 -o models/simulated

The server is not trusted: each client draws its own noise, bills the whole study to its own ledger before it answers
anything, and refuses what passes its cap or, with --approve, terms that were not approved. Rows never leave it, and no
code comes to it. With --trust aggregator, to which clients must agree by --trust-aggregator, they send exact sums over
their rows, and the server adds the noise once: any method of tulle fit, at its accuracy.

The server's folder gets what tulle fit writes, and rounds.csv: who answered when. Needs the extra federated, except
for simulate; --transport flower needs the extra flower.
"""

from __future__ import annotations

import argparse

from tulle.cli.data import add_data_arguments
from tulle.cli.federated_certificates import add_certificates_arguments, run_certificates
from tulle.cli.federated_client import add_client_arguments, run_client
from tulle.cli.federated_server import add_server_arguments, run_server
from tulle.cli.federated_simulation import run_simulation
from tulle.cli.federated_terms import add_terms_arguments, run_terms
from tulle.cli.model_folder import add_output_arguments
from tulle.cli.outcome import Outcome, UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(
        dest="federated_command", metavar="server|terms|client|simulate|certificates", required=True
    )
    server = commands.add_parser("server", help="run a study with clients on other machines")
    add_terms_arguments(server)
    add_server_arguments(server)
    add_output_arguments(server)
    server.set_defaults(run=run_server)
    terms = commands.add_parser(
        "terms", help="print the terms of a study and their digest, for the options of the server; nothing is run"
    )
    add_terms_arguments(terms)
    add_server_arguments(terms)
    add_output_arguments(terms, required=False)
    terms.set_defaults(run=run_terms)
    client = commands.add_parser("client", help="take part in studies with the rows of a file, which stay here")
    add_data_arguments(client, option=True)
    add_client_arguments(client)
    client.set_defaults(run=run_client)
    simulation = commands.add_parser(
        "simulate", help="a study in one process, with the rows of a file divided among clients"
    )
    add_data_arguments(simulation, option=True)
    simulation.add_argument("--parts", type=int, required=True, metavar="N", help="number of clients")
    simulation.add_argument(
        "--skew",
        action="store_true",
        help="unequal label distributions: each client gets two contiguous parts of the rows sorted by label",
    )
    simulation.add_argument(
        "--seed",
        type=int,
        metavar="N",
        help="reproducible parts and noise: no guarantee against anyone who knows the seed",
    )
    add_terms_arguments(simulation, of_file=True)
    add_output_arguments(simulation)
    simulation.set_defaults(run=run_simulation)
    certificates = commands.add_parser(
        "certificates", help="make the certificates of a study: an authority, the server's, and one for each client"
    )
    add_certificates_arguments(certificates)
    certificates.set_defaults(run=run_certificates)


def run(arguments: argparse.Namespace) -> Outcome:
    raise UserError("choose a command: server, terms, client, simulate or certificates")  # argparse has said so before
