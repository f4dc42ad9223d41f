"""What it costs that rows stay at clients: studies and fits over ten clients, next to one fit to all rows in memory.

The clients are threads of this process, reached directly or, with the extra `federated`, over gRPC on loopback.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from timing import Line, print_lines, ratio, text_rows

from tulle import Bounds, Budget, FileLedger, SparseClassifier
from tulle.federated import Client, Server, Terms, linear_terms
from tulle.federated.link import DirectLink, Link
from tulle.federated.server_side.aggregator import RowsAtClients
from tulle.methods import StochasticHardThresholding

ROWS, FEATURES, PER_ROW = 20_000, 20_000, 50
CLIENTS, STEPS, NONZERO, STEP = 10, 20, 200, 30.0
EPSILON, DELTA = 2.0, 1e-6
BOUNDS = Bounds(row_l2=1.0)
ROUNDS = 3


@contextmanager
def clients(link: str) -> Iterator[Link]:
    """Ten clients with a tenth of the rows each, new ones every time: a study is answered once."""
    X, y = text_rows((ROWS, FEATURES, PER_ROW))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        answers: dict[str, Callable[[bytes], bytes]] = {}
        for k in range(CLIENTS):
            ledger = FileLedger.create(folder / f"{k}.json", "rows", Budget(1.001 * EPSILON, DELTA))
            own = slice(k * ROWS // CLIENTS, (k + 1) * ROWS // CLIENTS)
            answers[f"client {k}"] = Client(
                f"client {k}", X[own], y[own], ledger=ledger, state=folder / str(k), trusts_aggregator=True
            ).answer
        if link == "directly":
            yield DirectLink(answers)
            return
        from tulle.federated.client_side.grpc_connection import connect
        from tulle.federated.server_side.grpc_link import GrpcLink

        server = stack.enter_context(GrpcLink())
        for answer in answers.values():
            threading.Thread(target=connect, args=(server.address, answer), daemon=True).start()
        assert server.wait_for(CLIENTS, 30.0)
        yield server


def study(link: str) -> None:
    """DP-FedGD-HT, one step a round."""
    model = linear_terms(FEATURES, step=STEP, classes=(-1.0, 1.0), row_l2=1.0, fit_intercept=False)
    terms = Terms("benchmark", model, STEPS, 1, NONZERO, STEP, 0.2, None, EPSILON, DELTA)
    with clients(link) as reached:
        Server(terms, min_clients=CLIENTS).run(reached)


def aggregated(method: Any, link: str) -> None:
    with clients(link) as reached:
        _model(method).fit(RowsAtClients(reached), None)


def central(method: Any) -> None:
    _model(method).fit(*text_rows((ROWS, FEATURES, PER_ROW)))


def _model(method: Any) -> SparseClassifier:
    return SparseClassifier(
        EPSILON, DELTA, n_nonzero=NONZERO, method=method, bounds=BOUNDS, fit_intercept=False, random_state=0
    )


def measure() -> Iterator[Line]:
    links = ["directly", *(["over gRPC"] if find_spec("grpc") is not None else [])]
    full = StochasticHardThresholding(
        batch=ROWS, passes=STEPS, step=STEP, memory=NONZERO, clip=0.2, average=0.0, damping=0.0
    )
    for link in links:
        name = f"{STEPS} rounds of DP-FedGD-HT with {CLIENTS} clients, {link}, times as many central steps"
        yield name, ratio(partial(study, link), partial(central, full), ROUNDS), "(no target)"
        for method in ("hard_thresholding", "screen_refine"):
            name = f"{method} by a trusted aggregator, {CLIENTS} clients, {link}, times in memory"
            yield name, ratio(partial(aggregated, method, link), partial(central, method), ROUNDS), "(no target)"


if __name__ == "__main__":
    print_lines(measure())
