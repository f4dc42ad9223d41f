"""Clients of a masked study with their certificates, ledgers and states, and a server whose every message is ours."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tulle import Budget, FileLedger
from tulle.fast.sparse_weights import SparseWeights
from tulle.federated.certificates import fingerprint, read_certificate
from tulle.federated.client_side.client import Client
from tulle.federated.client_side.client_identity import ClientIdentity
from tulle.federated.client_side.linear_study import linear_terms
from tulle.federated.client_side.masked_plan import plan_shares
from tulle.federated.encoding import decode, encode
from tulle.federated.masked_terms import (
    MASKED_REPLIES,
    Accepted,
    AskSum,
    Begin,
    MaskedAnswer,
    MaskedTerms,
    Propose,
    Seat,
    Seated,
    Study,
)
from tulle.federated.messages import Refused
from tulle.federated.question_data import pack
from tulle.federated.study_authority import AUTHORITY, client_files, make_certificates
from tulle.methods.gradient_queries import ClippedGradient
from tulle.trusted.events import NoisePerSensitivity
from tulle.trusted.mechanisms import Gaussian
from tulle.trusted.plan import Release

D = 6
LINEAR = linear_terms(D, step=1.0, classes=("a", "b"), row_l2=2.0)
NAMES = ("ada", "ben", "cyd", "dan", "eve")


def rows_of(name: str, n: int = 40) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(NAMES.index(name))
    X = rng.uniform(-1, 1, (n, D))
    return X, np.where(X[:, 1] - X[:, 4] > 0, "b", "a")


@dataclass
class Hospitals:
    """Some clients, each in a folder of its own."""

    folder: Path
    names: tuple[str, ...] = NAMES
    cap: Budget = field(default_factory=lambda: Budget(10.0, 1e-2))
    told: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        make_certificates(self.folder / "keys", clients=self.names)

    @property
    def authority(self) -> Path:
        return self.folder / "keys" / AUTHORITY

    def identity(self, name: str) -> ClientIdentity:
        certificate, key = (self.folder / "keys" / one for one in client_files(name))
        return ClientIdentity.read(name, certificate, key, self.authority)

    def terms(self, **other: Any) -> MaskedTerms:
        authority = fingerprint(read_certificate(self.authority.read_bytes()))
        settings = {
            "model": LINEAR,
            "epsilon": 2.0,
            "delta": 1e-3,
            "least": 3,
            "colluding": 1,
            "retries": 1,
            "authority": authority,
        }
        return MaskedTerms("study", **(settings | other))

    def start(self, name: str, **other: Any) -> Client:
        """Start a client's process, or start it again."""
        (self.folder / name).mkdir(parents=True, exist_ok=True)
        path = self.folder / name / "ledger"
        ledger = FileLedger(path, "rows") if path.exists() else FileLedger.create(path, "rows", self.cap)
        rows = dict(zip("Xy", rows_of(name))) if name in NAMES else {}
        settings = rows | {"ledger": ledger, "identity": self.identity(name)} | other
        return Client(name, state=self.folder / name / "state", tell=self.told.append, **settings)

    def start_all(self, **other: Any) -> dict[str, Client]:
        return {name: self.start(name, **other) for name in self.names}

    def entries(self, name: str) -> tuple[Any, ...]:
        path = self.folder / name / "ledger"
        return FileLedger(path, "rows").entries if path.exists() else ()


def said(client: Client, message: Any) -> Any:
    return decode(client.answer(encode(message)), (*MASKED_REPLIES, Seat, Refused, SparseWeights))


def seat_of(client: Client, terms: MaskedTerms) -> Seat:
    reply = said(client, Propose(terms))
    assert isinstance(reply, Seated), reply
    return reply.seat


def make_study(terms: MaskedTerms, seats: list[Seat], count: int = 3) -> Study:
    releases = (Release("gradient", Gaussian(NoisePerSensitivity(1.0)), count),)
    ordered = tuple(sorted(seats, key=lambda seat: seat.client))
    return Study(terms, ordered, plan_shares(releases, terms, sum(seat.n_rows for seat in seats)))


def join_all(clients: dict[str, Client], terms: MaskedTerms, count: int = 3) -> Study:
    study = make_study(terms, [seat_of(client, terms) for client in clients.values()], count)
    for client in clients.values():
        assert isinstance(said(client, Begin(study)), Accepted)
    return study


def question(
    study: Study, number: int = 1, attempt: int = 1, members: tuple[int, ...] | None = None, clip: float = 0.5
) -> AskSum:
    """A gradient at zero, asked of some clients, or of all."""
    terms = study.terms
    public = terms.model.public(study.n_rows, terms.rows_per_person)
    query = ClippedGradient(np.zeros((D + 1, 1)), clip, "l2", 1.0).resolve(public)
    places = tuple(range(len(study.seats))) if members is None else members
    return AskSum(study.digest, number, attempt, "gradient", places, pack(query))


def answer(client: Client, asked: AskSum) -> MaskedAnswer:
    reply = said(client, asked)
    assert isinstance(reply, MaskedAnswer), reply
    return reply


def refused(reply: Any, why: str, text: str = "") -> None:
    assert isinstance(reply, Refused), reply
    assert reply.why == why, reply
    assert text in reply.text, reply


def forged(seat: Seat, **other: Any) -> Seat:
    """A seat with something changed, and the signature that it had."""
    return replace(seat, **other)
