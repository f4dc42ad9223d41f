"""A study of masked sums with all its clients in one process: the same code and the same bytes, no network."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tulle.federated.certificates import fingerprint, read_certificate
from tulle.federated.client_side.client import Client
from tulle.federated.client_side.client_identity import ClientIdentity
from tulle.federated.client_side.linear_study import LinearTerms
from tulle.federated.link import DirectLink
from tulle.federated.masked_terms import MaskedTerms
from tulle.federated.server_side.masked_server import MaskedFit, MaskedServer
from tulle.federated.server_side.masked_sums import SumRecord
from tulle.federated.server_side.simulation import answer_muted, make_ledger, spawn_seeds
from tulle.federated.study_authority import AUTHORITY, client_files, make_certificates
from tulle.methods.base import Method


def simulate_masked(
    model: LinearTerms,
    parts: Mapping[str, tuple[Any, ...]],
    *,
    epsilon: float,
    delta: float,
    colluding: int = 0,
    least: int | None = None,
    retries: int = 0,
    rows_per_person: int = 1,
    method: Method | None = None,
    n_nonzero: int | None = None,
    seed: int | None = None,
    progress: Callable[[SumRecord], None] | None = None,
) -> MaskedFit:
    """Run a study of masked sums with clients in this process.

    Parameters
    ----------
    model : LinearTerms
    parts : mapping of str to (X, y) or (X, y, groups)
        The rows of each client, by its name, and person ids where people have several rows; at least two clients.
    epsilon, delta : float
        As in `MaskedTerms`.
    colluding, retries : int, default=0
        As in `MaskedTerms`.
    rows_per_person : int, default=1
        As in `MaskedTerms`, at all clients.
    least : int or None, default=None
        The smallest set of clients that a sum is over. None: all of them.
    method, n_nonzero, progress :
        As in `MaskedServer`.
    seed : int or None, default=None
        Reproducible batches and noise, other ones at every client. The masks are drawn anew.

    Returns
    -------
    MaskedFit
    """
    with tempfile.TemporaryDirectory() as kept:
        place = Path(kept)
        make_certificates(place, clients=tuple(parts))
        authority = place / AUTHORITY
        terms = MaskedTerms(
            study="simulation",
            model=model,
            epsilon=epsilon,
            delta=delta,
            least=len(parts) if least is None else least,
            authority=fingerprint(read_certificate(authority.read_bytes())),
            colluding=colluding,
            retries=retries,
            rows_per_person=rows_per_person,
        )
        clients = {}
        for (name, rows), own in zip(parts.items(), spawn_seeds(seed, len(parts))):
            certificate, key = client_files(name)
            clients[name] = Client(
                name,
                *rows[:2],
                groups=rows[2] if len(rows) > 2 else None,
                rows_per_person=rows_per_person,
                ledger=make_ledger(place / f"{name}.ledger", name, terms.budget, repeatable=seed is not None),
                state=place / f"{name}.state",
                identity=ClientIdentity.read(name, place / certificate, place / key, authority),
                seed=own,
            )
        # Of a simulation the server's side is logged: clients' ledgers have the names of clients, who may be people.
        link = DirectLink({name: partial(answer_muted, client) for name, client in clients.items()})
        server = MaskedServer(
            terms,
            method,
            authority=authority,
            n_nonzero=n_nonzero,
            clients=tuple(parts),
            patience=1.0,
            seconds=1.0,
            progress=progress,
        )
        return server.run(link)
