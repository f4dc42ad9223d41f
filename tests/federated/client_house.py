"""A client of a federated study with its rows, its ledger and its state, and what is sent to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tulle import Budget, FileLedger
from tulle.fast.sparse_weights import SparseWeights
from tulle.federated.client_side.client import Client
from tulle.federated.client_side.linear_study import linear_terms
from tulle.federated.encoding import decode, encode
from tulle.federated.messages import Enrol, Enrolled, Refused, Round, Update, Willing
from tulle.federated.terms import Terms

N, D = 40, 12

RNG = np.random.default_rng(0)

X = RNG.uniform(-1, 1, (N, D))

Y = np.where(X[:, 3] - X[:, 7] > 0, "b", "a")

CAP = Budget(100.0, 0.5)

LINEAR = linear_terms(D, step=1.0, classes=("a", "b"), row_l2=2.0)

TERMS = Terms("s", LINEAR, 3, 2, 4, 1.0, 0.25, batch=8, epsilon=2.0, delta=1e-3)

ZERO = SparseWeights.zeros(*LINEAR.shape)

SOME = SparseWeights.from_dense(np.eye(D + 1)[:, [2]])

REPLIES = (Willing, Enrolled, Update, Refused, SparseWeights)

# Of noise and nothing else: rows that have no label of the study count as nothing, regardless of their values.
LONG = 2000


@dataclass
class House:
    """A client's place: its rows, its ledger and its folder. `start` starts its process, or starts it again."""

    folder: Path
    X: Any = field(default_factory=lambda: X)
    y: Any = field(default_factory=lambda: Y)
    cap: Budget = CAP
    settings: dict[str, Any] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)

    def start(self, **other: Any) -> Client:
        path = self.folder / "budget"
        settings = self.settings | other
        ledger = None
        if not settings.get("without_privacy"):
            ledger = FileLedger(path, "rows") if path.exists() else FileLedger.create(path, "rows", self.cap)
        rows = {"X": self.X, "y": self.y} | {key: settings.pop(key) for key in ("X", "y") if key in settings}
        state = self.folder / "state"
        return Client("ada", **rows, ledger=ledger, state=state, tell=self.told.append, **settings)

    @property
    def entries(self) -> tuple[Any, ...]:
        return FileLedger(self.folder / "budget", "rows").entries

    @property
    def files(self) -> dict[str, bytes]:
        """All that is on disk, but locks."""
        found = [path for path in self.folder.rglob("*") if path.is_file() and path.suffix != ".lock"]
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in found}

    def state_of(self, terms: Terms) -> Path:
        return self.folder / "state" / f"{terms.digest}.study"


def said(client: Client, message: Any) -> Any:
    return decode(client.answer(encode(message)), REPLIES)


def enrol(client: Client, terms: Terms = TERMS) -> Enrolled:
    about = said(client, Enrol(terms))
    assert isinstance(about, Enrolled), about
    return about


def ask(client: Client, number: int, weights: SparseWeights = ZERO, terms: Terms = TERMS) -> Any:
    return said(client, Round(terms.digest, number, weights))


def answer(client: Client, number: int, weights: SparseWeights = ZERO, terms: Terms = TERMS) -> np.ndarray:
    update = ask(client, number, weights, terms)
    assert isinstance(update, Update), update
    assert (update.study, update.number, update.client) == (terms.digest, number, "ada")
    return update.weights.to_dense()


def refused(reply: Any, why: str) -> Refused:
    assert isinstance(reply, Refused), reply
    assert reply.why == why, reply
    assert reply.client == "ada"
    return reply


def weights(values: Any) -> SparseWeights:
    return SparseWeights.from_dense(np.asarray(values, dtype=float).reshape(-1, 1))
