"""What masked sums cost a client: time and bytes of one question, with RCV1's number of features and up to 30 clients.

Compared with the same question where the client draws noise of its own and sends it in the clear, as to a curious
server, and with the exact sum that a trusted aggregator gets.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from timing import Line, print_lines, ratio, seconds, text_rows

from tulle.federated.client_side.masks import Mask, MaskKey
from tulle.federated.client_side.noise_share import GaussianShare
from tulle.federated.encoding import encode
from tulle.federated.masked_terms import MaskedAnswer
from tulle.methods.gradient_queries import ClippedGradient
from tulle.methods.loss_functions import Logistic
from tulle.trusted.curator import Curator
from tulle.trusted.events import NoisePerSensitivity
from tulle.trusted.facts import PublicFacts
from tulle.trusted.mechanisms import Exact, Gaussian, Mechanism
from tulle.trusted.plan import Plan, Release
from tulle.trusted.rows import Rows

FEATURES, PER_ROW, CLIENTS, ROWS_EACH = 47_236, 74, 30, 675


def client_rows() -> Rows:
    X, y = text_rows((ROWS_EACH, FEATURES, PER_ROW))
    return Rows(X, np.asarray(y, dtype=float))


def public() -> PublicFacts:
    return PublicFacts(CLIENTS * ROWS_EACH, FEATURES, 100, Logistic(), None, 1.0, 1.0, 1.0, False)


def mask(n_clients: int) -> Mask:
    """Of the first of so many clients; the secrets are agreed on once in a study."""
    own = MaskKey(MaskKey.draw())
    return Mask([(own.agree(MaskKey(MaskKey.draw()).public), True) for _ in range(n_clients - 1)], b"question")


def answer(rows: Rows, facts: PublicFacts, mechanism: Mechanism, then: Any = None) -> Any:
    plan = Plan((Release("gradient", mechanism, 1),))
    query = ClippedGradient(np.zeros((FEATURES, 1)), 0.5)
    return Curator(rows, facts, plan, np.random.default_rng(0)).ask("gradient", query, then)


def measure() -> Iterator[Line]:
    rows, facts = client_rows(), public()
    share = GaussianShare(NoisePerSensitivity(5.0), shares=CLIENTS, rows=facts.n_rows)
    masked = partial(answer, rows, facts, share, mask(CLIENTS))
    cpu = partial(ratio, rounds=9, clock=time.process_time)
    gaussian, exact = (partial(answer, rows, facts, one) for one in (Gaussian(NoisePerSensitivity(5.0)), Exact()))
    of_clients = f"{FEATURES:,} features, {CLIENTS} clients"
    yield f"CPU of a masked answer, {of_clients}, times one with noise of its own", cpu(masked, gaussian), "(no target)"
    yield f"CPU of a masked answer, {of_clients}, times an exact sum", cpu(masked, exact), "(no target)"
    few = partial(answer, rows, facts, share, mask(10))
    yield f"CPU of a masked answer, {CLIENTS} clients, times 10 clients", cpu(masked, few), "below 3"
    masked()
    took = min(seconds(masked, clock=time.process_time) for _ in range(9))
    yield f"CPU seconds of a masked answer, {of_clients}", took, "below 1"
    hidden = masked()
    sent = encode(MaskedAnswer("client", "0" * 64, 1, 1, hidden.grid, hidden.values))
    yield "bytes of a masked answer per coordinate", len(sent) / FEATURES, "below 10"
    grid, steps, _ = share.units(ClippedGradient(np.zeros((FEATURES, 1)), 0.5).sensitivity(facts), FEATURES)
    exactly = 5.0 * ClippedGradient(np.zeros((FEATURES, 1)), 0.5).sensitivity(facts).l2
    variance = CLIENTS * (steps**2 + 1 / 12) * grid**2 / exactly**2
    yield "variance of the noise of a sum, times that of the exact Gaussian mechanism", variance, "below 1.02"


if __name__ == "__main__":
    print_lines(measure())
