"""The messages of a study between a curious server and its clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from tulle.federated.linear import LinearTerms
from tulle.federated.terms import ModelTerms, Terms
from tulle.weights import SparseWeights

Reason = Literal["malformed", "cap", "terms", "not enrolled", "answered", "out of turn", "weights", "trust", "failed"]
_REASONS = get_args(Reason)
_LONGEST_TEXT = 1000


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
class Enrol:
    """Server to client: will you take part on these terms?"""

    terms: Terms


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
    slack : float
        What finite precision can add to delta.
    unit : str
        Whom its promise covers.
    seeded : bool
    """

    study: str
    client: str
    n_rows: int
    batch: int
    epsilon: float | None
    delta: float | None
    noise: float
    slack: float
    unit: str
    seeded: bool

    def __post_init__(self) -> None:
        check_name(self.client)
        private = (self.epsilon is None) == (self.delta is None) and (
            self.epsilon is None or (self.epsilon > 0 and 0 < (self.delta or 0) < 1)
        )
        whole = all(type(number) is int for number in (self.n_rows, self.batch))
        if not (private and whole and 1 <= self.batch <= self.n_rows and self.noise >= 0 and self.slack >= 0):
            raise ValueError("its figures are none that a client can have")
        if not (isinstance(self.unit, str) and len(self.unit) <= _LONGEST_TEXT and isinstance(self.seeded, bool)):
            raise ValueError("its words are none that a client can have")


@dataclass(frozen=True, eq=False)
class Round:
    """Server to client: start from this model."""

    study: str
    number: int
    weights: SparseWeights

    def __post_init__(self) -> None:
        if type(self.number) is not int or not isinstance(self.weights, SparseWeights):
            raise ValueError("a round is a number and weights")


@dataclass(frozen=True, eq=False)
class Update:
    """Client to server: the model after its steps."""

    study: str
    number: int
    client: str
    weights: SparseWeights

    def __post_init__(self) -> None:
        check_name(self.client)
        if type(self.number) is not int or not isinstance(self.weights, SparseWeights):
            raise ValueError("an update is a number and weights")


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


def model_terms(raw: bytes) -> tuple[type[ModelTerms], ...]:
    """The kinds of models that a message can be about; torch is imported where it is about a network."""
    if b'"NetworkTerms"' not in raw:
        return (LinearTerms,)
    from tulle.federated.network import NetworkTerms

    return LinearTerms, NetworkTerms
