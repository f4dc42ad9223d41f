"""A study with all its clients in one process: the same code and the same bytes, no network."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tulle.fast.sparse_weights import SparseWeights
from tulle.federated.client_side.client import Client
from tulle.federated.link import DirectLink
from tulle.federated.server_side.federated_fit import FederatedFit, RoundRecord
from tulle.federated.server_side.server import Server, Weighting
from tulle.federated.terms import Terms
from tulle.ledgers.on_disk import FileLedger
from tulle.monitoring.log_events import muted
from tulle.trusted.plan import Budget


def simulate(
    terms: Terms,
    parts: Mapping[str, tuple[Any, Any]],
    *,
    folder: str | os.PathLike[str] | None = None,
    seed: int | None = None,
    weighting: Weighting | Mapping[str, float] = "rows",
    average: float = 0.0,
    progress: Callable[[RoundRecord, SparseWeights], None] | None = None,
    start: Any = None,
) -> FederatedFit:
    """Run a study with clients in this process.

    Parameters
    ----------
    terms : Terms
    parts : mapping of str to (X, y)
        The rows of each client, by its name.
    folder : path or None, default=None
        Where the clients keep their ledgers (each with the study's budget as its cap) and states; None: a folder that
        is deleted at the end.
    seed : int or None, default=None
        Reproducible batches and noise, other ones at every client. Where the ledgers are kept in `folder`, no seed
        repeats noise.
    weighting, average, progress, start :
        As in `Server`.

    Returns
    -------
    FederatedFit
    """
    with tempfile.TemporaryDirectory() as kept:
        place = Path(kept if folder is None else folder)
        seeds = spawn_seeds(seed, len(parts))
        repeatable = folder is None and seed is not None
        clients = {
            name: _client(name, X, y, terms, place, own, repeatable)
            for (name, (X, y)), own in zip(parts.items(), seeds)
        }
        # Of a simulation the server's side is logged: clients' ledgers have the names of clients, who may be people.
        link = DirectLink({name: partial(answer_muted, client) for name, client in clients.items()})
        server = Server(terms, weighting=weighting, average=average, progress=progress, patience=1.0, start=start)
        return server.run(link)


def answer_muted(client: Client, raw: bytes) -> bytes:
    """A client's answer, without log events."""
    with muted():
        return client.answer(raw)


def spawn_seeds(seed: int | None, count: int) -> list[int | None]:
    """A seed for each client; the first has the one that was given."""
    if seed is None:
        return [None] * count
    spawned = np.random.SeedSequence(seed).spawn(count)
    return [seed, *(int(child.generate_state(1, np.uint64)[0]) for child in spawned[1:])]


class _SeededLedger(FileLedger):
    """A ledger that ends with its simulation: no older copy can be put back, so its seed may repeat noise."""

    repeats = True

    def stream(self, number: int) -> tuple[int, ...]:
        return (number,)  # each client has a seed of its own


def _client(name: str, X: Any, y: Any, terms: Terms, place: Path, seed: int | None, repeatable: bool) -> Client:
    ledger = None if terms.budget is None else make_ledger(place / f"{name}.ledger", name, terms.budget, repeatable)
    return Client(name, X, y, ledger=ledger, state=place / name, without_privacy=ledger is None, seed=seed)


def make_ledger(path: Path, name: str, cap: Budget, repeatable: bool) -> FileLedger:
    """A client's ledger; `repeatable`: the same seed gives the same noise, for simulations that leave no ledger."""
    kind = _SeededLedger if repeatable else FileLedger
    path.parent.mkdir(parents=True, exist_ok=True)
    return kind(path, name) if path.exists() else kind.create(path, name, cap)
