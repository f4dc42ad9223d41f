"""A study in one process: the same questions, the same channels, the same server; rows of an array play the users."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from tulle.local.server_side.protocols import Protocol
from tulle.local.server_side.study_server import Server
from tulle.local.user_side.answer_format import LabelAsk
from tulle.local.user_side.responses import Response
from tulle.local.user_side.uniforms import SeededUniforms, SystemUniforms
from tulle.local.user_side.user import check_question, respond
from tulle.monitoring.log_events import log_event, muted
from tulle.trusted.events import FloatArray

# Numbers of an answer that are drawn at a time.
_AT_ONCE = 4_000_000


@dataclass(frozen=True, eq=False)
class Population:
    """Simulated users: user i is called str(i) and has row i.

    Attributes
    ----------
    X : array or CSR array of shape (n, d)
    y : array of shape (n,)
    responses : mapping of str to Response
        What the users know.
    seed : int or None
        None: every user draws from the operating system.
    """

    X: Any
    y: FloatArray
    responses: Mapping[str, Response]
    seed: int | None

    @property
    def names(self) -> list[str]:
        return [str(number) for number in range(len(self.y))]

    def answer(self, server: Server) -> None:
        """Let everyone in the current group answer."""
        question = server.asking
        assert question is not None
        check_question(question, self.X.shape[1], server.protocol.epsilon, server.protocol.delta, self.responses)
        numbers = np.array(sorted(int(user) for user in server.asked), dtype=np.intp)
        uniforms = SystemUniforms() if self.seed is None else SeededUniforms(self.seed, numbers)
        block = max(1, _AT_ONCE // question.channel.n_uniforms)
        for start in range(0, len(numbers), block):
            some = numbers[start : start + block]
            rows: Any = np.zeros((len(some), 0)) if isinstance(question.ask, LabelAsk) else self.X[some]
            rows = np.asarray(rows.toarray() if sp.issparse(rows) else rows, dtype=np.float64)
            answers = respond(question, rows, self.y[some], uniforms, self.responses)
            server.receive_many([str(number) for number in some], answers)


def simulate(protocol: Protocol, population: Population, study: str | None = None, verbose: int = 0) -> Server:
    """Run a study to its end.

    Parameters
    ----------
    protocol : Protocol
    population : Population
    study : str or None, default=None
        Its name, which decides who is in which group. None: one that depends on the population's seed, or a random one.
    verbose : int, default=0
        1 shows progress on standard error.
    """
    seed = population.seed
    name = study or (f"simulation {seed}" if seed is not None else f"simulation {secrets.token_hex(8)}")
    about = {"n_users": len(population.names), "n_rounds": int(protocol.n_rounds)}
    log_event(__name__, "local.begin", method=type(protocol).__name__, **about)
    # How large groups are follows from the name, and the name from the seed: a log with these counts would help to
    # guess the seed, and with it all noise.
    with muted():
        server = Server(protocol, population.names, name)
    while not server.finished:
        number = int(server.round)
        with muted():
            population.answer(server)
        if verbose:
            print(f"\rround {number} of {protocol.n_rounds}", end="", file=sys.stderr, flush=True)
        with muted():
            server.close_round()
        log_event(__name__, "local.round", round=number)
    log_event(__name__, "local.end")
    if verbose:
        print(file=sys.stderr)
    return server
