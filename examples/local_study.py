"""Local differential privacy: 10,000 users, hosted by eight processes, answer an untrusted server over HTTP.

Run it with `make local`. One user in a hundred sends invalid answers; they are counted, and the model is the same as
without these users. The users' rows never leave their processes.
"""

from __future__ import annotations

import multiprocessing
import time

import numpy as np

from tulle import Bounds, Budget
from tulle.local import HttpStudy, HttpUserClient, LdpIht, Server, User
from tulle.local.estimators.local_bill import report
from tulle.local.server_side.expectations import expectation
from tulle.local.user_side.answer_format import decode_question
from tulle.trusted.events import FloatArray

USERS, PROCESSES, FEATURES = 10_000, 8, 10
WEIGHTS = np.r_[0.8, 0.0, 0.0, -0.6, np.zeros(FEATURES - 4)]


def row_of(user: int) -> tuple[FloatArray, float]:
    """The private row of one user."""
    rng = np.random.default_rng([2026, user])
    x = rng.choice([-1.0, 1.0], FEATURES)
    return x, float(x @ WEIGHTS + rng.uniform(-0.05, 0.05))


def host(url: str, numbers: range) -> None:
    """A process that hosts users. Each reads the question, answers once, and refuses more than epsilon = 2."""
    users = {f"user {number}": User(f"user {number}", *row_of(number), max_epsilon=2.0) for number in numbers}
    after = 0
    with HttpUserClient(url) as client:
        while (question := client.question(after)) is not None:
            asked = decode_question(question)
            after = asked.round
            for name, user in users.items():
                if asked.is_for(name):
                    nonsense = int(name.split()[1]) % 100 == 0
                    client.send(name, b"{oh no" if nonsense else user.answer(question))


def main() -> None:
    bounds = Bounds(row_linf=1.0, label=1.5)
    protocol = LdpIht(Budget(2.0), FEATURES, bounds, False, n_nonzero=2)
    print("Expected:", expectation(protocol, USERS))
    names = [f"user {number}" for number in range(USERS)]
    start = time.monotonic()
    with HttpStudy(Server(protocol, names, "an example")) as study:
        context = multiprocessing.get_context("spawn")
        each = USERS // PROCESSES
        hosts = [
            context.Process(target=host, args=(study.url, range(number * each, (number + 1) * each)))
            for number in range(PROCESSES)
        ]
        for process in hosts:
            process.start()
        study.run(seconds_per_round=60, verbose=1)
        for process in hosts:
            process.join(30)
        server = study.server
    print(f"{server.accepted:,} answers, rejected: {dict(server.rejected)}, {time.monotonic() - start:.0f} s")
    print("true weights ", WEIGHTS)
    print("found weights", protocol.weights.round(2))
    method = f"LDP-IHT, {protocol.n_gradients} rounds"
    print(report(protocol, method, USERS, server.accepted))


if __name__ == "__main__":
    main()
