"""How a server gets one masked sum: it asks a set of clients, waits, and where some are missing asks fewer again."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tulle.fast.sparse_weights import SparseWeights
from tulle.federated.client_side.masks import add_up
from tulle.federated.encoding import WireError, decode, encode
from tulle.federated.link import Link
from tulle.federated.masked_terms import (
    MASKED_REPLIES,
    Accepted,
    AskName,
    AskSum,
    Begin,
    MaskedAnswer,
    Named,
    Review,
    Seat,
    Study,
)
from tulle.federated.messages import Refused
from tulle.federated.server_side.server import StudyStoppedError
from tulle.monitoring.log_events import log_event
from tulle.trusted.events import FloatArray

# Between two looks at who is there.
_PAUSE = 0.1


@dataclass(frozen=True)
class SumRecord:
    """What became of a question.

    Attributes
    ----------
    number : int
        From 1.
    release : str
    members : tuple of str
        The clients that the sum is over.
    attempts : int
        1, and one more for each retry.
    rejected : dict of str to int
        Messages that did not count, by reason.
    seconds : float
    bytes_received : int
    """

    number: int
    release: str
    members: tuple[str, ...]
    attempts: int
    rejected: dict[str, int]
    seconds: float
    bytes_received: int


class MaskedClients:
    """The clients of a study as the server reaches them.

    Parameters
    ----------
    link : Link
    seconds : float
        How long a set is waited for before fewer are asked, > 0.
    patience : float
        How long to wait for enough answers before `StudyStoppedError`, > 0.
    """

    def __init__(self, link: Link, seconds: float, patience: float) -> None:
        self.link, self.seconds, self.patience = link, seconds, patience
        self._names: dict[str, str] = {}  # of connections
        # Connections that refused to begin or gave no usable answer: in a set they would cost a retry each time.
        self.refusing: set[str] = set()
        self.rejected: Counter[str] = Counter()

    def connections(self) -> dict[str, str]:
        """The connection of each client that is there now, by its name.

        A name that the transport certifies cannot be taken by another. Where it certifies none, the first living
        connection under a name keeps it.
        """
        there = self.link.connected()
        self._names = {at: name for at, name in self._names.items() if at in there}
        for at in there:
            if (certified := self.link.certified_name(at)) is not None:
                self._names[at] = certified
        new = [at for at in there if at not in self._names]
        for at, reply in self.ask(AskName(), new, self.seconds):
            if isinstance(reply, Named):
                self._names[at] = reply.client
        found: dict[str, str] = {}
        for at in there:
            name = self._names.get(at)
            if name is not None and found.setdefault(name, at) != at:
                self.rejected["name in use"] += 1
        return found

    def ask(self, message: Any, whom: Sequence[str], seconds: float) -> list[tuple[str, Any]]:
        """Replies of connections, as far as they can be read and come from the client that they name."""
        return list(self.replies(encode(message), whom, seconds))

    def ask_clients(
        self, message: Review | Begin, names: Sequence[str], enough: int
    ) -> tuple[dict[str, Accepted], dict[str, str]]:
        """Ask clients about a study: who accepts, and why others refuse. All are waited for for `seconds`, then until
        `enough` accept, or `patience` is over."""
        began = time.monotonic()
        said: dict[str, Accepted] = {}
        refused: dict[str, str] = {}
        while True:
            at = self.connections()
            waiting = [at[name] for name in names if name in at and name not in said and name not in refused]
            for connection, reply in self.ask(message, waiting, self.seconds):
                if isinstance(reply, Refused):
                    refused[reply.client] = f"{reply.why}: {reply.text}"
                    self.refusing.add(connection)
                elif isinstance(reply, Accepted):
                    said[reply.client] = reply
            waited = time.monotonic() - began
            is_late = waited > (self.seconds if len(said) >= enough else self.patience)
            if len(said) + len(refused) >= len(names) or is_late:
                return said, refused
            time.sleep(_PAUSE)

    def replies(self, raw: bytes, whom: Sequence[str], seconds: float) -> Iterator[tuple[str, Any]]:
        """The same of a message in bytes, one by one."""
        for at, answer in self.link.ask(raw, whom, seconds):
            try:
                reply = decode(answer, (*MASKED_REPLIES, Seat, Refused, SparseWeights))
            except WireError:
                reply = None
            if not hasattr(reply, "client"):  # or a number, or a part of a message
                self.rejected["malformed"] += 1
                self.refusing.add(at)
                continue
            if self._names.get(at) not in (None, reply.client):  # the certified name, where there is one
                self.rejected["unknown client"] += 1
                continue
            yield at, reply


class MaskedSums:
    """Asks the questions of one study.

    Parameters
    ----------
    study : Study
    clients : MaskedClients
    note : callable
        Is given each question before it is sent: a server that is started again must not ask another set.
    resume : AskSum or None
        The last question that was noted, and not answered, before a crash.
    retries : int
        How many retries were used before.
    """

    def __init__(
        self,
        study: Study,
        clients: MaskedClients,
        note: Callable[[AskSum, int], None],
        resume: AskSum | None = None,
        retries: int = 0,
    ) -> None:
        self._study, self._clients, self._note = study, clients, note
        self._resume, self.retries = resume, retries
        self._places = {seat.client: place for place, seat in enumerate(study.seats)}
        self._late: set[int] = set()  # places that the last retry was without

    def ask(
        self, number: int, release: str, query: Any, grid: float, most: float, size: int
    ) -> tuple[FloatArray, SumRecord]:
        """The sum of a question: on the grid, with the noise of all members.

        Parameters
        ----------
        number : int
            Of the question.
        release : str
        query : ClippedSum
            As it travels.
        grid, most : float
            The unit of answers, and what no honest sum surpasses in these units.
        size : int
            How many numbers an answer has.

        Raises
        ------
        StudyStoppedError
            Where too few answer, or the sum is none that honest clients can have.
        """
        began = time.monotonic()
        self._clients.rejected = Counter()
        if self._resume is not None and self._resume.number == number:
            members, attempt, query = self._resume.members, self._resume.attempt, self._resume.query
        else:
            members, attempt = self._wait_for_set(number, began), 1
        self._resume = None
        received = 0
        while True:
            asked = AskSum(self._study.digest, number, attempt, release, members, query)
            self._note(asked, self.retries)
            answers, length = self._collect(asked, size, grid, last=self.retries >= self._study.terms.retries)
            received += length
            if len(answers) == len(members):
                break
            self._late = set(members) - set(answers)
            members, attempt = tuple(sorted(answers)), attempt + 1
            self.retries += 1
            log_event(__name__, "federated.retry", round=number, answered=len(members))
        total = add_up([answers[place].values for place in members])
        # The magnitude of the smallest int64 is none.
        if int(total.min()) < -most or int(total.max()) > most:
            raise StudyStoppedError(
                f"question {number}: the sum is none that clients of these terms can have. A client sent a wrong "
                "answer; masked answers cannot be checked one by one. The study stays on the clients' bills"
            )
        names = tuple(self._study.seats[place].client for place in members)
        record = SumRecord(
            number, release, names, attempt, dict(self._clients.rejected), time.monotonic() - began, received
        )
        return total.astype(np.float64) * grid, record

    def _wait_for_set(self, number: int, began: float) -> tuple[int, ...]:
        """All clients of the study that are there and answer, at least as many as the smallest set; all of them are
        given a moment to come back, since a set cannot grow. One that refused, or is still busy with an earlier
        question, is left out unless there are too few without it."""
        terms, moment = self._study.terms, min(1.0, self._clients.seconds)
        while True:
            at = {self._places[name]: one for name, one in self._clients.connections().items() if name in self._places}
            late = [at[place] for place in self._late if place in at]
            awake = {connection for connection, _ in self._clients.ask(AskName(), late, moment)}
            self._late = {place for place in self._late if place not in at or at[place] not in awake}
            there = sorted(
                place for place, one in at.items() if one not in self._clients.refusing and place not in self._late
            )
            waited = time.monotonic() - began
            if len(there) == len(self._places) or (len(there) >= terms.least and waited > moment):
                return tuple(there)
            if len(at) >= terms.least and waited > self._clients.seconds:
                return tuple(sorted(at))
            if waited > self._clients.patience:
                raise self._stopped(number, len(there))
            time.sleep(_PAUSE)

    def _collect(self, asked: AskSum, size: int, grid: float, last: bool) -> tuple[dict[int, MaskedAnswer], int]:
        """Answers by place: of all members, or after `seconds` of enough for a retry, where there is one left."""
        began, terms = time.monotonic(), self._study.terms
        answers: dict[int, MaskedAnswer] = {}
        pauses: dict[str, float] = {}  # when those who refused are asked again
        received, raw = 0, encode(asked)
        while True:
            at = self._clients.connections()
            waiting = [
                at[name]
                for name, place in self._places.items()
                if place in asked.members and place not in answers and name in at
            ]
            waiting = [connection for connection in waiting if pauses.get(connection, began) <= time.monotonic()]
            left = max(self._clients.seconds - (time.monotonic() - began), _PAUSE)
            for connection, reply in self._clients.replies(raw, waiting, left):
                if self._is_answer(reply, asked, size, grid):
                    answers[self._places[reply.client]] = reply
                    received += reply.values.nbytes
                    self._clients.refusing.discard(connection)
                elif not self._begins_again(connection, reply):
                    self._clients.refusing.add(connection)
                    pauses[connection] = time.monotonic() + self._clients.seconds
            if len(answers) == len(asked.members):
                return answers, received
            waited = time.monotonic() - began
            if waited >= self._clients.seconds and len(answers) >= terms.least and not last:
                return answers, received
            if waited > self._clients.patience:
                raise self._stopped(asked.number, len(answers))
            time.sleep(_PAUSE)

    def _begins_again(self, connection: str, reply: Any) -> bool:
        """Whether a client that refuses a question was only started again: it has paid, and goes on."""
        if not isinstance(reply, Refused) or reply.why != "not enrolled":
            return False
        said = self._clients.ask(Begin(self._study), [connection], self._clients.seconds)
        return not any(isinstance(one, Refused) for _, one in said)

    def _is_answer(self, reply: Any, asked: AskSum, size: int, grid: float) -> bool:
        if isinstance(reply, Refused):
            self._clients.rejected[f"refused: {reply.why}"] += 1
            return False
        if not isinstance(reply, MaskedAnswer) or reply.client not in self._places:
            self._clients.rejected["malformed"] += 1
            return False
        if (reply.study, reply.number, reply.attempt) != (asked.study, asked.number, asked.attempt):
            self._clients.rejected["other question"] += 1
            return False
        if len(reply.values) != size or reply.grid != grid:
            self._clients.rejected["other grid"] += 1
            return False
        return True

    def _stopped(self, number: int, count: int) -> StudyStoppedError:
        log_event(__name__, "federated.stopped", round=number, answered=count)
        why = ", ".join(f"{n} × {why}" for why, n in self._clients.rejected.items()) or "nothing was rejected"
        return StudyStoppedError(
            f"question {number}: {count} clients answered within {self._clients.patience:g} seconds, at least "
            f"{self._study.terms.least} are needed and {self._study.terms.retries - self.retries} retries are left "
            f"({why}); start the missing clients, and run it again from its journal"
        )
