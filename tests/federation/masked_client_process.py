"""One client of a masked study, as a process: python masked_client_process.py FOLDER NAME PORT BEHAVIOUR.

BEHAVIOUR is "honest", "slow" (two seconds for each answer), "killed K" (the process ends when question K arrives,
before it is answered), "answered K" (it ends after its answer to question K was written down, before it is sent),
"replaying" (its first answer to every question), or "impostor CERTIFICATE" (it connects with another's certificate).
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np

from tulle import Budget, FileLedger
from tulle.federated.client_side.client import Client
from tulle.federated.client_side.client_identity import ClientIdentity
from tulle.federated.client_side.grpc_connection import connect
from tulle.federated.client_side.masked_study import MASKED_CLASSES
from tulle.federated.encoding import decode
from tulle.federated.masked_terms import AskSum

D = 8


def rows_of(name: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(sum(name.encode()))
    X = rng.uniform(-1, 1, (400, D))
    return X, np.where(X[:, 1] - X[:, 4] > 0, 1, 0)


def main() -> None:
    folder, name, port, behaviour, *more = sys.argv[1:]
    place = Path(folder)
    ledger = place / name / "ledger"
    ledger.parent.mkdir(exist_ok=True)
    own = FileLedger(ledger, "rows") if ledger.exists() else FileLedger.create(ledger, "rows", Budget(3.0, 1e-4))
    authority = place / "keys" / "authority.pem"
    files = [place / "keys" / "clients" / f"{name}{end}" for end in (".pem", ".key")]
    client = Client(
        name,
        *rows_of(name),
        ledger=own,
        state=place / name / "state",
        identity=ClientIdentity.read(name, *files, authority),
    )
    first: list[bytes] = []

    def answer(raw: bytes) -> bytes:
        asked = decode(raw, MASKED_CLASSES)
        if not isinstance(asked, AskSum):
            return client.answer(raw)
        if behaviour == "slow":
            time.sleep(2.0)
        if behaviour == "killed" and asked.number == int(more[0]):
            os._exit(9)
        said = client.answer(raw)
        if behaviour == "answered" and asked.number == int(more[0]):
            os._exit(9)
        first.append(said)
        return first[0] if behaviour == "replaying" else said

    shown = more[0] if behaviour == "impostor" else name
    certificate, key = (place / "keys" / "clients" / f"{shown}{end}" for end in (".pem", ".key"))
    connect(f"localhost:{port}", answer, certificates=(authority, certificate, key), retry_seconds=60.0)


if __name__ == "__main__":
    main()
