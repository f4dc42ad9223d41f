"""What a client writes down about a study of masked sums, and which question it lets it answer next."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from tulle.federated.encoding import encode
from tulle.federated.masked_terms import AskSum, MaskedAnswer, Study
from tulle.federated.messages import RefusedError


@dataclass(frozen=True, eq=False)
class MaskedState:
    """What a client knows of a study after any crash.

    Attributes
    ----------
    study : str
        Its digest.
    terms : str
        The digest of its terms, by which its key is known.
    n_rows : int
        How many rows it took its seat with.
    billed : bool
        Whether the ledger has it. Without a bill nothing was answered.
    used : tuple of (str, int)
        How many answers of each release were written down.
    retries : int
        How many of them were to a question that had been asked before.
    number, attempt : int
        Of the last answer; 0 where there is none.
    members : tuple of int
        The set of the last answer.
    question, query : str
        SHA-256 of the last question as it was sent, and of what it asked, without its members.
    answer : MaskedAnswer or None
        The last answer.
    over : bool
        Whether the study has ended.
    version : str
        Of tulle.
    """

    study: str
    terms: str
    n_rows: int
    billed: bool = False
    used: tuple[tuple[str, int], ...] = ()
    retries: int = 0
    number: int = 0
    attempt: int = 0
    members: tuple[int, ...] = ()
    question: str = ""
    query: str = ""
    answer: MaskedAnswer | None = None
    over: bool = False
    version: str = ""

    def count(self, release: str) -> int:
        return dict(self.used).get(release, 0)


def digest_of_query(asked: AskSum) -> str:
    """What a question asks, without its members."""
    return hashlib.sha256(encode(replace(asked, attempt=1, members=(0,)))).hexdigest()


def check_turn(asked: AskSum, state: MaskedState, study: Study, place: int) -> int:
    """How many retries this client has answered with this one; raises unless the question may be answered.

    One question has one set, or a chain of sets each of which is a part of the one before: the question stays the
    same, and each attempt has its own masks and noise, which the plan has counted.
    """
    members, terms = asked.members, study.terms
    if state.over:
        raise RefusedError("answered", "this study is over")
    # By the state on disk: another process with the same state may have answered, too.
    planned = {release.name: release.count for release in study.plan.releases}
    if state.count(asked.release) >= planned.get(asked.release, 0):
        raise RefusedError("terms", "the plan of the study has no such answer, or no more of them")
    if place not in members or members[-1] >= len(study.seats):
        raise RefusedError("malformed", "the set is not one of this study's clients, this one included")
    if len(members) < terms.least:
        raise RefusedError("terms", f"a set of {len(members)} clients, where the noise is for at least {terms.least}")
    if asked.number > state.number:
        if asked.attempt != 1:
            raise RefusedError("out of turn", "a question begins with its first attempt")
        return state.retries
    if asked.number < state.number or asked.attempt <= state.attempt:
        raise RefusedError("answered", f"question {asked.number} was answered; there is one answer")
    if asked.attempt != state.attempt + 1 or not set(members) < set(state.members):
        raise RefusedError("out of turn", "a question is asked again of a smaller part of the same set only")
    if digest_of_query(asked) != state.query:
        raise RefusedError("out of turn", "a question that is asked again must be the same")
    if state.retries >= terms.retries:
        raise RefusedError("terms", f"the terms allow {terms.retries} retries, and they are used up")
    return state.retries + 1
