"""What a study of masked sums asks of its clients, and its messages.

The order of a study: the server proposes the terms, and each client answers with a *seat*: its number of rows and its
key, signed under its certificate. All seats and the plan of all answers make up the *study*; each client checks it, and
only when all agree does each bill it. Then come questions, each to a set of clients, each answered under masks.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tulle.federated.client_side.linear_study import LinearTerms
from tulle.federated.encoding import encode
from tulle.federated.messages import check_name
from tulle.federated.terms import describe_settings
from tulle.trusted.plan import Budget, Plan, is_number

MOST_CLIENTS = 1000
_MOST_RETRIES = 10_000
_LONGEST_WORDS = 1000
# A certificate of a few keys and names; longer ones are none that a client has.
_LONGEST_CERTIFICATE = 20_000


def _is_hex(value: Any, digits: int | None = None) -> bool:
    long_enough = isinstance(value, str) and (len(value) == digits if digits else len(value) <= _LONGEST_CERTIFICATE)
    return long_enough and re.fullmatch("([0-9a-f]{2})+", value) is not None


def _is_whole(value: Any, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most


@dataclass(frozen=True)
class MaskedTerms:
    """One study of masked sums: public, and fixed before anybody takes part.

    Parameters
    ----------
    study : str
        Its name, of 1 to 100 printable characters.
    model : LinearTerms
        The model to fit: columns, classes, loss and bounds.
    epsilon, delta : float
        What each client promises its own people for the whole study: epsilon > 0, delta in (0, 1).
    least : int
        The smallest set of clients that a sum is over, from colluding + 2 to 1000. Noise is for sets of this size:
        where more clients take part than that, there is more noise than needed.
    authority : str
        SHA-256 of the certificate (DER) of the study's certificate authority, in 64 hexadecimal digits. It certifies
        the clients, and no other party may use it to make up clients.
    colluding : int, default=0
        t, at least 0: how many clients may tell the server all that they know, without harm to the others.
    retries : int, default=0
        How often, in the whole study, a question may be asked again of fewer clients because some did not answer;
        at least 0. Noise is calibrated for all of them.
    rows_per_person : int, default=1
        The unit of the promise is a person with at most this many rows, at least 1.
    method : str, default=""
        How the model is fitted, in words, for those who approve the terms.
    """

    study: str
    model: LinearTerms
    epsilon: float
    delta: float
    least: int
    authority: str
    colluding: int = 0
    retries: int = 0
    rows_per_person: int = 1
    method: str = ""

    def __post_init__(self) -> None:
        if not (isinstance(self.study, str) and self.study.isprintable() and 0 < len(self.study) <= 100):
            raise ValueError(f"a study's name must have 1 to 100 printable characters, got {self.study!r}")
        if not isinstance(self.model, LinearTerms):
            raise ValueError(f"a study of masked sums fits a linear model, not {self.model!r}")
        self.model.check_bounded()
        if not (is_number(self.epsilon) and is_number(self.delta) and Budget(self.epsilon, self.delta).delta > 0):
            raise ValueError("delta must lie strictly between 0 and 1: Gaussian noise needs one")
        if not _is_whole(self.colluding, 0, MOST_CLIENTS):
            raise ValueError(f"colluding must be an integer >= 0, got {self.colluding!r}")
        if not _is_whole(self.least, self.colluding + 2, MOST_CLIENTS):
            raise ValueError(
                f"least must be an integer from colluding + 2 = {self.colluding + 2} to {MOST_CLIENTS}, so that no sum "
                f"is over one honest client, got {self.least!r}"
            )
        if not _is_whole(self.retries, 0, _MOST_RETRIES):
            raise ValueError(f"retries must be an integer from 0 to {_MOST_RETRIES:,}, got {self.retries!r}")
        if not _is_whole(self.rows_per_person, 1, 2**31):
            raise ValueError(f"rows_per_person must be an integer >= 1, got {self.rows_per_person!r}")
        if not _is_hex(self.authority, 64):
            raise ValueError("authority must be the SHA-256 of a certificate, 64 hexadecimal digits")
        if not (isinstance(self.method, str) and self.method.isprintable() and len(self.method) <= _LONGEST_WORDS):
            raise ValueError(f"the method is described in at most {_LONGEST_WORDS} printable characters")

    @property
    def budget(self) -> Budget:
        return Budget(self.epsilon, self.delta)

    @property
    def shares(self) -> int:
        """How many honest clients every set has at least."""
        return self.least - self.colluding

    @property
    def digest(self) -> str:
        """The terms as a data steward approves them: other terms have another digest."""
        return hashlib.sha256(encode(self)).hexdigest()

    def describe(self) -> str:
        """In words, for reports."""
        return (
            f"masked sums over sets of at least {self.least:,} clients, of which {self.colluding:,} may collude with "
            f"the server; at most {self.retries:,} retries{': ' if self.method else ''}{self.method}"
        )

    def describe_fully(self) -> str:
        """All that the digest is of, for someone who is to approve it."""
        return describe_settings(self, (self.epsilon, self.delta))


@dataclass(frozen=True)
class Seat:
    """What a client states of itself, signed with the key of its certificate.

    Attributes
    ----------
    terms : str
        The digest of the terms that it is willing to take part on.
    client : str
        Its name, the common name of its certificate.
    n_rows : int
        Public.
    key : str
        Its X25519 public key for this study, 64 hexadecimal digits.
    certificate : str
        DER, in hexadecimal digits.
    signature : str
        Of `statement`, in hexadecimal digits.
    """

    terms: str
    client: str
    n_rows: int
    key: str
    certificate: str
    signature: str

    def __post_init__(self) -> None:
        check_name(self.client)
        if not (_is_hex(self.terms, 64) and _is_hex(self.key, 64)):
            raise ValueError("a seat names terms and a key by 64 hexadecimal digits each")
        if not _is_whole(self.n_rows, 1, 2**53 - 1):
            raise ValueError("a seat has a number of rows")
        if not (_is_hex(self.certificate) and _is_hex(self.signature)):
            raise ValueError("a seat has a certificate and a signature in hexadecimal digits")

    @property
    def statement(self) -> bytes:
        """The signed bytes. The first line keeps the signature from being valid in any other protocol."""
        return b"tulle masked seat 1\n" + f"{self.terms}\n{self.client}\n{self.n_rows}\n{self.key}\n".encode()


# --- messages: the server's ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AskName:
    """Who are you?"""


@dataclass(frozen=True)
class Propose:
    """Would you take part on these terms? Nothing is billed."""

    terms: MaskedTerms

    def __post_init__(self) -> None:
        if not isinstance(self.terms, MaskedTerms):
            raise ValueError("no terms")


@dataclass(frozen=True)
class Study:
    """Who takes part, on which terms, and everything that will be asked.

    Attributes
    ----------
    terms : MaskedTerms
    seats : tuple of Seat
        In the order of the clients' names. The place of a seat is the number of its client.
    plan : Plan
        All answers, retries included, by `GaussianShare` mechanisms.
    """

    terms: MaskedTerms
    seats: tuple[Seat, ...]
    plan: Plan

    def __post_init__(self) -> None:
        if not (isinstance(self.terms, MaskedTerms) and isinstance(self.plan, Plan)):
            raise ValueError("a study has terms and a plan")
        if not (isinstance(self.seats, tuple) and all(isinstance(seat, Seat) for seat in self.seats)):
            raise ValueError("a study has seats")
        names = [seat.client for seat in self.seats]
        if not self.terms.least <= len(names) <= MOST_CLIENTS:
            raise ValueError(f"{len(names)} clients, where at least {self.terms.least} are needed")
        if names != sorted(set(names)) or len({seat.key for seat in self.seats}) < len(names):
            raise ValueError("every client has one seat and a key of its own, in the order of names")

    @property
    def digest(self) -> str:
        """The study as clients know it."""
        return hashlib.sha256(encode(self)).hexdigest()

    @property
    def n_rows(self) -> int:
        """Of all clients together."""
        return sum(seat.n_rows for seat in self.seats)


@dataclass(frozen=True)
class Review:
    """Would you bill this study? Nothing is billed."""

    study: Study


@dataclass(frozen=True)
class Begin:
    """Bill this study, and answer its questions from now on."""

    study: Study


@dataclass(frozen=True, eq=False)
class AskSum:
    """A masked sum over the rows of some clients.

    Attributes
    ----------
    study : str
        Its digest.
    number : int
        Of the question, from 1, rising.
    attempt : int
        1; 2 and so on where the question is asked again of fewer members.
    release : str
        The line of the plan that pays for it.
    members : tuple of int
        The numbers of the clients that the sum is over, rising.
    query : ClippedSum
        As it travels (`tulle.federated.question_data.pack`).
    """

    study: str
    number: int
    attempt: int
    release: str
    members: tuple[int, ...]
    query: Any

    def __post_init__(self) -> None:
        if not (_is_hex(self.study, 64) and isinstance(self.release, str)):
            raise ValueError("a question belongs to a study and a release")
        if not (_is_whole(self.number, 1, 2**40) and _is_whole(self.attempt, 1, 2**40)):
            raise ValueError("questions and attempts are counted from 1")
        members = self.members
        whole = isinstance(members, tuple) and all(_is_whole(one, 0, MOST_CLIENTS) for one in members)
        if not (whole and members and list(members) == sorted(set(members))):
            raise ValueError("members are a rising list of numbers")


@dataclass(frozen=True)
class EndStudy:
    """The study is over. Forget its key, and answer nothing more of it, ever."""

    study: str

    def __post_init__(self) -> None:
        if not _is_hex(self.study, 64):
            raise ValueError("a study is known by 64 hexadecimal digits")


# --- messages: the clients' ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _ByClient:
    """From a client."""

    client: str

    def __post_init__(self) -> None:
        check_name(self.client)


@dataclass(frozen=True)
class Named(_ByClient):
    """My name."""


@dataclass(frozen=True)
class Seated(_ByClient):
    """Yes to the terms; nothing was billed."""

    seat: Seat

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (isinstance(self.seat, Seat) and self.seat.client == self.client):
            raise ValueError("a client answers with its own seat")


@dataclass(frozen=True)
class Accepted(_ByClient):
    """Yes to the study: it would be billed (to `Review`), or is (to `Begin`), or is over (to `EndStudy`)."""

    study: str
    epsilon: float = 0.0  # what the client proved for the plan
    seeded: bool = False  # whether its noise comes from a seed

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (_is_hex(self.study, 64) and is_number(self.epsilon) and self.epsilon >= 0):
            raise ValueError("no study, or no epsilon")
        if type(self.seeded) is not bool:
            raise ValueError("noise comes from a seed, or it does not")


@dataclass(frozen=True, eq=False)
class MaskedAnswer(_ByClient):
    """The client's sum with its share of the noise, masked: `values` modulo 2^64, in units of `grid`."""

    study: str
    number: int
    attempt: int
    grid: float
    values: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (_is_hex(self.study, 64) and _is_whole(self.number, 1, 2**40) and _is_whole(self.attempt, 1, 2**40)):
            raise ValueError("an answer belongs to a question")
        if not (is_number(self.grid) and self.grid > 0 and isinstance(self.values, np.ndarray)):
            raise ValueError("an answer has a grid and values")
        if self.values.ndim != 1 or self.values.dtype != np.int64:
            raise ValueError("values are a vector of whole numbers")


# What a client understands, and what it says.
MASKED_MESSAGES: tuple[type, ...] = (AskName, Propose, Review, Begin, AskSum, EndStudy)
MASKED_REPLIES: tuple[type, ...] = (Named, Seated, Accepted, MaskedAnswer)
