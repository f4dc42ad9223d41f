"""The messages of a study between a curious server and its clients."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Literal, get_args

from tulle.fast.sparse_weights import SparseWeights
from tulle.federated.client_side.linear_study import LinearTerms
from tulle.federated.encoding import ADDED_LATER
from tulle.federated.terms import ModelTerms, Terms
from tulle.ledgers.on_disk import FileLedger
from tulle.reports.words import ONE_ROW_OF_A_PERSON
from tulle.trusted.plan import is_number

Reason = Literal[
    "malformed", "cap", "terms", "not invited", "not enrolled", "answered", "out of turn", "weights", "trust", "failed"
]
_REASONS = get_args(Reason)
_LONGEST_TEXT = 1000
_LARGEST_FIGURE = 1e300


class RefusedError(RuntimeError):
    """A client does not do what was asked. `why` is the kind of reason; neither depends on any row."""

    def __init__(self, why: Reason, text: str) -> None:
        super().__init__(text)
        self.why: Reason = why


def check_name(name: str) -> str:
    """A client's name: 1 to 100 printable characters."""
    if not (isinstance(name, str) and name.strip() == name and name.isprintable() and 0 < len(name) <= 100):
        raise ValueError(f"a client's name must be 1 to 100 printable characters without spaces around, got {name!r}")
    return name


@dataclass(frozen=True)
class AskWilling:
    """Server to client: would you take part on these terms? Nothing is billed, and nothing is written down.

    Attributes
    ----------
    terms : Terms
    invited : tuple of str
        The `invitation` of each client that may take part; () for anyone. Who is not among them would bill the study
        for nothing, and refuses.
    """

    terms: Terms
    invited: tuple[str, ...] = field(default=(), metadata=ADDED_LATER)

    def __post_init__(self) -> None:
        if not all(isinstance(one, str) for one in self.invited):
            raise ValueError("its invitations are not words")


@dataclass(frozen=True)
class Willing:
    """Client to server: yes, as far as the terms, its ledger and public figures say. It reserves nothing.

    Attributes
    ----------
    study : str
        The digest of the terms.
    client : str
    n_rows : int
        Public.
    """

    study: str
    client: str
    n_rows: int

    def __post_init__(self) -> None:
        check_name(self.client)
        if not (isinstance(self.study, str) and type(self.n_rows) is int and 1 <= self.n_rows < 2**53):
            raise ValueError("its words or its number of rows are none that a client can have")


@dataclass(frozen=True)
class Enrol(AskWilling):
    """Server to client: take part on these terms, and bill the whole study now. Fields as in `AskWilling`."""


def invitation(study: str, name: str) -> str:
    """What a server says in place of a client's name, which others must not learn: a name that was drawn at random
    cannot be found from it."""
    return hashlib.sha256(f"{study} {name}".encode()).hexdigest()


@dataclass(frozen=True)
class Enrolled:
    """Client to server: yes.

    Attributes
    ----------
    study : str
        The digest of the terms.
    client : str
    n_rows : int
        Public.
    batch : int
        Expected rows of its steps.
    epsilon, delta : float or None
        What it proved for the noise that it will draw.
    noise : float
        Per sensitivity of one step.
    rows_per_person : int
        Its promise covers one person with at most so many rows.
    seeded : bool
        Whether its noise came from a seed.
    grouped : bool
        Whether it has person ids: with one row of each person the unit is then a person.
    snapshot_noise : float
        Per sensitivity of one snapshot; 0 in studies without them.
    epsilons_alone : tuple of float
        With snapshots and noise: what all steps would cost without snapshots, and all snapshots without steps.
    """

    study: str
    client: str
    n_rows: int
    batch: int
    epsilon: float | None
    delta: float | None
    noise: float
    rows_per_person: int
    seeded: bool
    grouped: bool = field(default=False, metadata=ADDED_LATER)
    snapshot_noise: float = field(default=0.0, metadata=ADDED_LATER)
    epsilons_alone: tuple[float, ...] = field(default=(), metadata=ADDED_LATER)

    def __post_init__(self) -> None:
        check_name(self.client)
        whole = all(type(number) is int for number in (self.n_rows, self.batch, self.rows_per_person))
        if not (whole and 1 <= self.batch <= self.n_rows < 2**53 and 1 <= self.rows_per_person < 2**53):
            raise ValueError("its numbers of rows are none that a client can have")
        if not (isinstance(self.epsilons_alone, tuple) and len(self.epsilons_alone) in (0, 2)):
            raise ValueError("its epsilons are none that a client can have")
        figures = [self.noise, self.snapshot_noise, *self.epsilons_alone]
        if self.epsilon is not None or self.delta is not None:
            figures += [self.epsilon, self.delta]  # type: ignore[list-item]
        if not all(is_number(figure) and 0 <= figure <= _LARGEST_FIGURE for figure in figures):
            raise ValueError("its figures are none that a client can have")
        if not (isinstance(self.study, str) and isinstance(self.seeded, bool) and isinstance(self.grouped, bool)):
            raise ValueError("its words are none that a client can have")

    @property
    def unit(self) -> str:
        """Whom its promise covers."""
        k = self.rows_per_person
        if k == 1:
            return ONE_ROW_OF_A_PERSON if self.grouped else "one row"
        return f"one person with at most {k} rows (how many is not protected)"


@dataclass(frozen=True, eq=False)
class Round:
    """Server to client: start from this model."""

    study: str
    number: int
    weights: SparseWeights

    def __post_init__(self) -> None:
        _check_round(self.study, self.number, self.weights)


@dataclass(frozen=True, eq=False)
class Update:
    """Client to server: the model after its steps."""

    study: str
    number: int
    client: str
    weights: SparseWeights

    def __post_init__(self) -> None:
        check_name(self.client)
        _check_round(self.study, self.number, self.weights)


def _check_round(study: str, number: int, weights: SparseWeights) -> None:
    if not (isinstance(study, str) and type(number) is int and isinstance(weights, SparseWeights)):
        raise ValueError("a round is a study, a number and weights")


@dataclass(frozen=True)
class Refused:
    """Client to server: no. What it says depends on no row."""

    client: str
    why: Reason
    text: str

    def __post_init__(self) -> None:
        check_name(self.client)
        if self.why not in _REASONS or not isinstance(self.text, str) or len(self.text) > _LONGEST_TEXT:
            raise ValueError("a refusal has one of the known reasons")


def check_delta(delta: float, n_rows: int, ledger: FileLedger) -> None:
    """Raise unless a promise with this delta says something about each of n rows, and fits under the ledger's cap."""
    if not delta < 1 / n_rows:
        raise RefusedError("terms", f"delta = {delta:g} is not below 1 / (number of rows)")
    if delta > ledger.cap.delta:
        raise RefusedError("terms", f"delta = {delta:g} is above what the ledger of this client allows")


def model_terms(raw: bytes) -> tuple[type[ModelTerms], ...]:
    """The kinds of models that a message can be about; torch is imported where it is about a network."""
    if b'"NetworkTerms"' not in raw:
        return (LinearTerms,)
    from tulle.federated.client_side.network_study import NetworkTerms

    return LinearTerms, NetworkTerms
