"""The server's side of a local study: who is asked when, which answers count, and the result.

The server never sees a row. It rejects and counts answers that are malformed, late, doubled, oversized or impossible,
and goes on. With a journal it goes on after a crash too: users who have answered once will not answer again.
"""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tulle.files.journal import Journal
from tulle.local.server_side.protocols import Protocol, Tally
from tulle.local.user_side.answer_format import (
    Answer,
    Question,
    Reason,
    WireError,
    answer_bytes,
    check_name,
    decode_answer,
    encode_answer,
    encode_question,
    place,
)
from tulle.local.user_side.channel import IntArray
from tulle.monitoring.log_events import log_event


@dataclass(frozen=True)
class Receipt:
    """What became of an answer. `reason` says why it does not count; None where it does."""

    reason: Reason | None = None
    text: str = ""

    @property
    def accepted(self) -> bool:
        return self.reason is None


class Server:
    """Runs a protocol with users who each answer once.

    Parameters
    ----------
    protocol : Protocol
        The questions. Its groups are fixed by the names of study and users, before anybody answers.
    users : sequence of str
        The names of those who may answer; random ones, so that no user can answer for another.
    study : str
        The name of the study.
    journal : path or None, default=None
        A file to which each answer that counts is appended, with a checksum; the user is told that the answer counts
        after the disk has confirmed it. If the file exists, the study goes on where it stopped. A file that was changed
        is refused with a `tulle.files.journal.JournalError`.

    Attributes
    ----------
    accepted : int
        Answers that counted.
    rejected : Counter
        Messages that did not, by reason.
    closed_counts : tuple of int and dict
        The same two at the end of the last round that was closed. Logs and metrics show these, since they must not show
        who answers when.
    """

    def __init__(
        self, protocol: Protocol, users: Sequence[str], study: str, journal: str | os.PathLike[str] | None = None
    ) -> None:
        if len(set(users)) < len(users):
            raise ValueError("two users have the same name; give each a unique name")
        for name in (study, *users):
            check_name(name)
        self.protocol = protocol
        self.study = study
        self.accepted = 0
        self.rejected: Counter[Reason] = Counter()
        self._borders = protocol.borders()
        self._places = {user: place(study, user) for user in users}
        self._answered: set[str] = set()
        self._lock = threading.RLock()
        self.changed = threading.Condition(self._lock)
        self._open_round()
        self._journal: Journal | None = None
        self.journal = None if journal is None else Path(journal)
        self.closed_counts: tuple[int, dict[str, int]] = (0, {})
        if journal is not None:
            found = Journal(journal)
            with self._lock:
                self._replay(found, Path(journal))
            found.start()
            self._journal = found
        log_event(
            __name__,
            "local.begin",
            method=type(protocol).__name__,
            n_users=len(users),
            n_rounds=int(protocol.n_rounds),
            round=int(self.round),
            answered=self.accepted,
            asked_epsilon=None if protocol.budget is None else float(protocol.budget.epsilon),
            asked_delta=0.0 if protocol.budget is None else float(protocol.budget.delta),
        )

    def _open_round(self) -> None:
        self._heard: set[str] = set()
        self._raw: bytes | None = None
        if self.protocol.finished:
            self._question, self.asked = None, frozenset[str]()
            return
        number = self.protocol.round
        start, end = (float(border) for border in self._borders[number - 1 : number + 1])
        ask, channel = self.protocol.ask()
        self._width = channel.width
        self._question = Question(self.study, number, start, end, ask, channel)
        self.asked = frozenset(user for user, at in self._places.items() if start <= at < end)
        self._tally = Tally.empty(channel.width, self.protocol.keep_each)

    @property
    def question(self) -> bytes | None:
        """What the current round asks; None where the study is over."""
        with self._lock:
            if self._raw is None and self._question is not None:
                self._raw = encode_question(self._question)
            return self._raw

    @property
    def asking(self) -> Question | None:
        """The same before it is written down."""
        return self._question

    @property
    def round(self) -> int:
        """The number of the current round, from 1."""
        return self.protocol.round

    @property
    def finished(self) -> bool:
        return self.protocol.finished

    @property
    def everyone_heard(self) -> bool:
        """Whether every user of the current group has said something, sense or not."""
        return len(self._heard) == len(self.asked)

    @property
    def most_bytes(self) -> int:
        """No answer to the current question is longer, or to the last one."""
        return answer_bytes(self._width)

    def receive(self, raw: bytes, sender: str | None = None) -> Receipt:
        """Take an answer, or reject and count it.

        Parameters
        ----------
        raw : bytes
        sender : str or None, default=None
            Whose message it is, where the transport knows. A round need not wait for somebody who sent nonsense, but
            takes a proper answer from them while it lasts.
        """
        with self._lock:
            try:
                answer = self._check(raw, sender)
            except WireError as error:
                return self.reject(error.reason, str(error), sender)
            self._append(encode_answer(answer))  # one line, however the message was laid out
            self._count(answer)
            return Receipt()

    def receive_many(self, users: Sequence[str], values: IntArray) -> None:
        """Count the answers of users that this very process simulates: there is no message to distrust.

        Parameters
        ----------
        users : sequence of str
            All of them in the group that is asked.
        values : array of int of shape (users, width)
        """
        if not len(users) == len(set(users)) == len(values):
            raise ValueError("one answer for each user, and each user once")
        if not self.asked.issuperset(users) or not self._answered.isdisjoint(users):
            raise ValueError("these users are not asked in this round, or have answered before")
        with self._lock:
            for user, answer in zip(users, values):
                self._count(Answer(self.study, self.round, user, answer))

    def reject(self, reason: Reason, text: str, sender: str | None = None) -> Receipt:
        """Count a message that does not count."""
        with self._lock:
            self.rejected[reason] += 1
            if sender in self.asked:
                self._heard.add(str(sender))
                self.changed.notify_all()
            return Receipt(reason, text)

    def _check(self, raw: bytes, sender: str | None) -> Answer:
        if self._question is None:
            raise WireError("late", "the study is over")
        answer = decode_answer(raw, self._question.channel.width)
        if answer.study != self.study:
            raise WireError("other study", f"this is {self.study!r}")
        if answer.user not in self._places or sender not in (None, answer.user):
            raise WireError("unknown user", "no user of that name may answer")
        if answer.user in self._answered:
            raise WireError("duplicate", "this user has answered before")
        if answer.round < self.round:
            raise WireError("late", f"round {answer.round} is over")
        if answer.round > self.round or answer.user not in self.asked:
            raise WireError("not asked", f"round {self.round} does not ask this user")
        if not self._question.channel.possible(answer.values):
            raise WireError("impossible", "the channel cannot produce this answer")
        return answer

    def _count(self, answer: Answer) -> None:
        self._answered.add(answer.user)
        self._heard.add(answer.user)
        self._tally.add(answer.user, answer.values)
        self.accepted += 1
        self.changed.notify_all()

    def close_round(self) -> None:
        """Learn from the answers of this round, even if some are missing, and open the next."""
        with self._lock:
            if self.finished:
                raise RuntimeError("the study is over")
            number = int(self.round)
            self._append(json.dumps({"closed": number}).encode())
            self._close()
            answered, rejected = self.closed_counts
            log_event(__name__, "local.round", round=number, answered=answered, rejected=rejected)
            if self.finished:
                log_event(__name__, "local.end", answered=answered)

    def close(self) -> None:
        """Close the journal, if there is one. A server that is closed takes no more answers."""
        with self._lock:
            if self._journal is not None:
                self._journal.close()

    def _close(self) -> None:
        self.protocol.absorb(self._tally)
        self.closed_counts = (self.accepted, {str(reason): count for reason, count in self.rejected.items()})
        self._open_round()
        self.changed.notify_all()

    def _append(self, line: bytes) -> None:
        """Add a line to the journal, if there is one; it has reached the disk when this returns."""
        if self._journal is not None:
            self._journal.append(line)

    def _replay(self, journal: Journal, path: Path) -> None:
        """Take in what a journal holds."""
        for number, line in journal.records:
            if line == json.dumps({"closed": self.round}).encode():
                self._close()
                continue
            try:
                self._count(self._check(line, None))
            except WireError as error:
                raise ValueError(f"{path}, line {number}, does not belong to this study: {error}") from None
