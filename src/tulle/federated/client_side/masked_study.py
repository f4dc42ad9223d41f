"""The client's side of a study of masked sums.

The server and the other clients are not trusted. A client answers a question of a study with its own sum, its share of
the noise, and masks that cancel only in the sum over all members of the set that the question names. What it sees to by
itself: that every other member has a key which the study's certificate authority certifies, that the plan of all
answers proves the promised epsilon, that the study is on its ledger before the first answer, that every set has at
least as many members as the noise is for, and that each question has one answer, or one for each smaller set, within
the retries of the terms. An answer is on disk before it is sent.

Proof: docs/proofs/masked_sums.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from tulle import __version__
from tulle.fast.install import install
from tulle.federated.certificates import check_certificate, read_certificate, verify_signature
from tulle.federated.client_side.admission import check_promise, refuse_other_columns
from tulle.federated.client_side.approval import check_approved
from tulle.federated.client_side.client_identity import ClientIdentity
from tulle.federated.client_side.client_ledger import ClientLedger
from tulle.federated.client_side.linear_study import LinearTerms
from tulle.federated.client_side.masked_plan import check_masked_plan, guess_plan, plan_left
from tulle.federated.client_side.masked_query import is_query
from tulle.federated.client_side.masked_reports import masked_client_report
from tulle.federated.client_side.masked_state import MaskedState, check_turn, digest_of_query
from tulle.federated.client_side.masks import Mask, MaskKey
from tulle.federated.client_side.noise_share import GaussianShare
from tulle.federated.encoding import WireError, decode, encode
from tulle.federated.masked_terms import (
    MASKED_MESSAGES,
    Accepted,
    AskName,
    AskSum,
    Begin,
    EndStudy,
    MaskedAnswer,
    MaskedTerms,
    Named,
    Propose,
    Review,
    Seat,
    Seated,
    Study,
)
from tulle.federated.messages import RefusedError
from tulle.federated.question_data import unpack
from tulle.federated.questions import CLASSES
from tulle.files.durable_writes import locked, write_durably
from tulle.files.number_text import rounded_up
from tulle.ledgers.on_disk import FileLedger
from tulle.ledgers.spending import note_release
from tulle.monitoring.log_events import log_event
from tulle.monitoring.logged_account import open_logged_account
from tulle.reports.report import PrivacyReport
from tulle.trusted.curator import Curator
from tulle.trusted.facts import PublicFacts
from tulle.trusted.fit import Order, open_account
from tulle.trusted.plan import Plan
from tulle.trusted.rows import RowNumbers, Rows

install()

# What may be in a message to a client.
MASKED_CLASSES: tuple[type, ...] = (*MASKED_MESSAGES, MaskedTerms, LinearTerms, Seat, Study, GaussianShare, *CLASSES)

# Answers take seconds; anyone who holds the lock for longer hangs.
_PATIENCE = 600.0


class RowsOfOne(Rows):
    """The rows of one client among those of all: row numbers beyond its own are other clients'.

    Poisson batches hold each row by itself, so the numbers below n_i of a batch of all rows are a batch of these rows.
    """

    def batch(self, numbers: RowNumbers) -> Rows:
        return super().batch(numbers[numbers < sum(self.sizes())])


@dataclass(eq=False)
class _Joined:
    """A study that a client takes part in, as long as its process lives."""

    study: Study
    place: int  # its seat
    rows: Rows
    public: PublicFacts
    key: MaskKey
    epsilon: float
    entry: int | None  # on the ledger
    seeded: bool
    answered: int = 0  # answers in this process, and before it
    curator: Curator | None = None
    secrets: dict[int, bytes] = field(default_factory=dict)  # agreed on with other members


class MaskedStudies:
    """Answers the messages of studies of masked sums, for one client. Not for several threads at a time.

    Parameters
    ----------
    X, y, groups :
        As in `Client`, checked.
    rows_per_person : int
        At least 1. Studies that protect people with fewer rows are refused.
    ledger : FileLedger or None
        Billed before the first answer of a study. None: every study is refused.
    state : path
        An existing folder for what must outlive the process.
    name : str
        The client's name.
    identity : ClientIdentity or None
        Its certificate and key, and the certificate of the authority. None: every study is refused.
    approved : frozenset of str or None
        Digests of terms (`tulle.federated.client_side.approval`). None: any terms.
    max_epsilon : float or None
        The most that one study may cost, > 0. None: what the ledger's cap leaves.
    seed : int or None
        As in `Client`.
    tell : callable
        Called with a line of text: for the client's own people.
    """

    def __init__(
        self,
        X: Any,
        y: Any,
        groups: Any,
        rows_per_person: int,
        ledger: FileLedger | None,
        state: Path,
        name: str,
        *,
        identity: ClientIdentity | None,
        approved: frozenset[str] | None,
        max_epsilon: float | None,
        seed: int | None,
        tell: Callable[[str], None],
    ) -> None:
        self._X, self._y, self._groups, self._rows_per_person = X, y, groups, rows_per_person
        self._ledger, self._state, self._name = ledger, state, name
        self._identity, self._approved, self._max_epsilon, self._tell = identity, approved, max_epsilon, tell
        self._seed = seed
        self._joined: dict[str, _Joined] = {}

    def answer(self, message: Any, raw: bytes) -> Any:
        """The reply to one of `tulle.federated.masked_terms.MASKED_MESSAGES`, which was sent as `raw`.

        Raises
        ------
        RefusedError, BudgetExceededError
            Where it is refused. No reason depends on any row.
        """
        with np.errstate(all="ignore"):  # a warning about somebody's extreme row would be a release
            return self._replies[type(message)](self, message, raw)

    def _named(self, asked: AskName, raw: bytes) -> Named:
        return Named(self._name)

    # --- before the bill: public figures, the ledger and the terms alone ---

    def _propose(self, asked: Propose, raw: bytes) -> Seated:
        terms = asked.terms
        self._check_terms(terms, self._X.shape[0])
        self._quote(terms, guess_plan(terms, self._X.shape[0]))
        return Seated(self._name, self._seat(terms))

    def _check_terms(self, terms: MaskedTerms, n_rows: int) -> tuple[FileLedger, ClientIdentity]:
        """Raise unless the terms are such as this client accepts, with so many rows in all."""
        check_approved(terms.digest, self._approved, terms.describe_fully, self._tell)
        if self._ledger is None:
            raise RefusedError("terms", "this client has no ledger to bill; it takes part in no masked study")
        if self._identity is None:
            raise RefusedError("trust", "this client has no certificate; it takes part in no masked study")
        if self._identity.authority_fingerprint != terms.authority:
            raise RefusedError("trust", "the study names another certificate authority than this client trusts")
        if self._rows_per_person > terms.rows_per_person:
            raise RefusedError(
                "terms",
                f"the study protects people with {terms.rows_per_person} row(s), and people here have up to "
                f"{self._rows_per_person}; raise rows_per_person in the terms",
            )
        if self._X.shape[1] != terms.model.n_features:
            raise RefusedError("terms", "the rows here do not go with these terms")
        check_promise(terms.budget, self._max_epsilon, n_rows, self._ledger)
        return self._ledger, self._identity

    def _quote(self, terms: MaskedTerms, plan: Plan) -> None:
        """Raise where the ledger would refuse the study."""
        assert self._ledger is not None
        try:
            # As before a bill: other processes may have spent since.
            self._ledger.refresh().quote(
                self._words(terms), (plan,), (terms.epsilon, terms.delta), terms.rows_per_person
            )
        except ValueError as error:  # units of another size were billed before
            raise RefusedError("terms", str(error)) from None

    def _words(self, terms: MaskedTerms) -> str:
        return f"federated study {terms.study!r} (masked sums)"

    def _seat(self, terms: MaskedTerms) -> Seat:
        assert self._identity is not None
        place = self._place(terms.digest, "mask-key")
        if not place.exists():
            write_durably(place, MaskKey.draw(), 0o600)
        key = MaskKey(place.read_bytes()).public.hex()
        certificate = self._identity.certificate_der.hex()
        unsigned = Seat(terms.digest, self._name, int(self._X.shape[0]), key, certificate, "00")
        return replace(unsigned, signature=self._identity.sign(unsigned.statement).hex())

    # --- the study: everybody's seat, and the plan ---

    def _review(self, asked: Review, raw: bytes) -> Accepted:
        study = asked.study
        _, epsilon = self._check_study(study)
        state = self._read(study.digest)
        if state is None or not state.billed:  # a study that was billed costs nothing more
            self._quote(study.terms, study.plan)
        return Accepted(self._name, study.digest, epsilon)

    def _check_study(self, study: Study) -> tuple[int, float]:
        """This client's place and the epsilon that the plan proves; raises unless all of the study is as it must be."""
        terms = study.terms
        _, identity = self._check_terms(terms, study.n_rows)
        for seat in study.seats:
            self._check_seat(seat, terms, identity)
        places = {seat.client: place for place, seat in enumerate(study.seats)}
        place = places.get(self._name)
        if place is None:
            raise RefusedError("not invited", "this client has no seat in the study")
        key = self._place(terms.digest, "mask-key")
        mine = study.seats[place]
        if not key.exists() or mine.key != MaskKey(key.read_bytes()).public.hex():
            raise RefusedError("trust", "the seat of this client has a key that is not its own")
        if mine.n_rows != self._X.shape[0]:
            raise RefusedError("terms", "this client has another number of rows than when it took its seat")
        return place, check_masked_plan(study)

    def _check_seat(self, seat: Seat, terms: MaskedTerms, identity: ClientIdentity) -> None:
        if seat.terms != terms.digest:
            raise RefusedError("trust", f"the seat of {seat.client!r} is one of other terms")
        try:
            certificate = read_certificate(bytes.fromhex(seat.certificate))
            check_certificate(certificate, identity.authority, seat.client)
            verify_signature(certificate, seat.statement, bytes.fromhex(seat.signature))
        except ValueError as error:
            raise RefusedError("trust", f"the seat of {seat.client!r} is not certified: {error}") from None

    def _begin(self, asked: Begin, raw: bytes) -> Accepted:
        study = asked.study
        joined = self._joined.get(study.digest)
        if joined is None:
            joined = self._joined[study.digest] = self._open(study)
            report = self.report(study.digest)
            write_durably(self._place(study.digest, "privacy.json"), report.to_json().encode(), 0o600)
            self._tell(
                f"joined {study.terms.study!r}, {len(study.seats)} clients: {study.terms.describe()}; epsilon = "
                f"{rounded_up(joined.epsilon)}, delta = {rounded_up(study.terms.delta)} for all of it"
            )
            log_event(__name__, "federated.client.enrolled", study=study.digest, n_clients=len(study.seats))
        return Accepted(self._name, study.digest, joined.epsilon, joined.seeded)

    def _open(self, study: Study) -> _Joined:
        terms = study.terms
        place, epsilon = self._check_study(study)
        with refuse_other_columns(terms.study, self._tell):
            task = terms.model.task(self._X, self._y, self._groups, self._rows_per_person)
        with locked(self._place(study.digest, "lock"), _PATIENCE):
            state = self._read(study.digest)
            if state is not None and state.n_rows != self._X.shape[0]:
                raise RefusedError("terms", "the rows are others than when this client joined")
            if state is not None and state.over:
                raise RefusedError("answered", "this study is over")
            ledger = self._ledger_of(study, bill_again=state is None or not state.billed)
            if state is None:
                if ledger.find_entry() is not None:
                    # It is unknown which questions were answered, and no mask may hide two answers: their difference
                    # has the noise of one client alone.
                    raise RefusedError("answered", "what this client knew of the study is gone; propose a new study")
                state = MaskedState(study.digest, terms.digest, int(self._X.shape[0]))
                self._write(state)
            with open_logged_account(self._order(study, study.plan), __name__, ledgers=(ledger,)) as account:
                note_release()
                seeded = account.seeded
            if not state.billed:
                state = replace(state, billed=True)
                self._write(state)  # should the process end before this, the study is billed again
        return _Joined(
            study=study,
            place=place,
            rows=RowsOfOne.of_blocks(task.rows.blocks),
            public=terms.model.public(study.n_rows, terms.rows_per_person),
            key=MaskKey(self._place(terms.digest, "mask-key").read_bytes()),
            epsilon=epsilon,
            entry=ledger.number,
            seeded=seeded,
            answered=sum(count for _, count in state.used),
        )

    def _order(self, study: Study, plan: Plan) -> Order:
        terms = study.terms
        return Order(
            what=f"{self._words(terms)}{self._ending(study)}",
            plans=(plan,),
            delta=terms.delta,
            rows_per_unit=terms.rows_per_person,
            seed=self._seed,
            budget=terms.budget,
        )

    def _ending(self, study: Study) -> str:
        return f", client {self._name!r} {study.digest}"

    def _ledger_of(
        self, study: Study, answered: int = 0, *, bill_again: bool = False, number: int | None = None
    ) -> ClientLedger:
        """The ledger to bill. Its noise differs from that of other studies by the number of its entry, and from that
        before a restart by how many answers were given."""
        assert self._ledger is not None
        return ClientLedger(self._ledger, self._ending(study), (answered,), bill_again=bill_again, number=number)

    # --- questions ---

    def _sum(self, asked: AskSum, raw: bytes) -> MaskedAnswer:
        joined = self._joined.get(asked.study)
        if joined is None:
            raise RefusedError("not enrolled", "this client has not joined the study; begin it first")
        query, digest = self._read_query(asked, joined.study.terms.model), hashlib.sha256(raw).hexdigest()
        with locked(self._place(asked.study, "lock"), _PATIENCE):
            state = self._read(asked.study)
            if state is None:
                raise RefusedError("not enrolled", "what this client knew of the study is gone")
            if sum(count for _, count in state.used) < joined.answered:
                raise RefusedError("failed", "what this client knew of the study is older than what it did")
            if digest == state.question and state.answer is not None:
                self._tell(f"{joined.study.terms.study!r}: sent answer {asked.number} again")
                return state.answer
            retries = check_turn(asked, state, joined.study, joined.place)
            try:
                answer = self._answer(joined, state, asked, query, raw)
                # Written down before it is sent: every answer that left is on disk.
                used = dict(state.used) | {asked.release: state.count(asked.release) + 1}
                self._write(
                    replace(
                        state,
                        used=tuple(sorted(used.items())),
                        retries=retries,
                        number=asked.number,
                        attempt=asked.attempt,
                        members=asked.members,
                        question=digest,
                        query=digest_of_query(asked),
                        answer=answer,
                    )
                )
            except BaseException:
                joined.curator = None  # nothing was sent: a new one counts from the state on disk
                raise
            joined.answered += 1
        log_event(__name__, "federated.client.answered", study=asked.study, round=asked.number)
        return answer

    def _read_query(self, asked: AskSum, model: LinearTerms) -> Any:
        try:
            query = unpack(asked.query)
        except Exception:  # any fault of the bytes that were sent
            query = None
        if not is_query(query, model):
            raise RefusedError("malformed", "no such question is answered")
        return query

    def _answer(self, joined: _Joined, state: MaskedState, asked: AskSum, query: Any, raw: bytes) -> MaskedAnswer:
        if joined.curator is None:
            joined.curator = self._curate(joined, state)
        secrets = [
            (self._secret(joined, other), joined.place < other) for other in asked.members if other != joined.place
        ]
        hidden = joined.curator.ask(asked.release, query, then=Mask(secrets, raw))
        return MaskedAnswer(self._name, asked.study, asked.number, asked.attempt, hidden.grid, hidden.values)

    @staticmethod
    def _secret(joined: _Joined, other: int) -> bytes:
        if other not in joined.secrets:
            joined.secrets[other] = joined.key.agree(bytes.fromhex(joined.study.seats[other].key))
        return joined.secrets[other]

    def _curate(self, joined: _Joined, state: MaskedState) -> Curator:
        """The curator of all answers that are left."""
        plan = plan_left(joined.study.plan, dict(state.used))
        answered = sum(count for _, count in state.used)
        ledger = self._ledger_of(joined.study, answered, number=joined.entry)
        with open_account(self._order(joined.study, plan), ledgers=(ledger,)) as account:
            return account.curate(joined.rows, joined.public, plan)

    def _end(self, asked: EndStudy, raw: bytes) -> Accepted:
        joined = self._joined.pop(asked.study, None)
        if self._read(asked.study) is not None:  # also where the client was started again, and has not joined since
            with locked(self._place(asked.study, "lock"), _PATIENCE):
                state = self._read(asked.study)
                if state is not None and not state.over:
                    # Without the key, answers that the server may have kept cannot be unmasked later.
                    self._place(state.terms, "mask-key").unlink(missing_ok=True)
                    self._write(replace(state, over=True, answer=None, question=""))
                    name = f"the study {asked.study}" if joined is None else repr(joined.study.terms.study)
                    self._tell(f"{name} is over")
        return Accepted(self._name, asked.study)

    # --- what outlives the process ---

    def _place(self, digest: str, suffix: str) -> Path:
        return self._state / f"{digest}.{suffix}"

    def _read(self, study: str) -> MaskedState | None:
        place = self._place(study, "masked")
        if not place.exists():
            return None
        try:
            state = decode(place.read_bytes(), (MaskedState, MaskedAnswer))
        except WireError:
            state = None
        if not isinstance(state, MaskedState) or state.study != study:
            raise RefusedError("failed", "what this client knew of the study is damaged")
        return state

    def _write(self, state: MaskedState) -> None:
        write_durably(self._place(state.study, "masked"), encode(replace(state, version=__version__)), 0o600)

    # --- for the client's own people ---

    def report(self, study: str) -> PrivacyReport:
        """What this client promises its people about a study that it has joined, by its digest."""
        joined = self._joined[study]
        billed = () if self._ledger is None or joined.entry is None else (self._ledger.describe_entry(joined.entry),)
        return masked_client_report(joined.study, self._name, joined.seeded, billed)

    def answered(self, study: str) -> Mapping[str, int]:
        """How many answers of each release were written down."""
        state = self._read(study)
        return {} if state is None else dict(state.used)

    _replies: ClassVar[dict[type, Callable[[Any, Any, bytes], Any]]] = {
        AskName: _named,
        Propose: _propose,
        Review: _review,
        Begin: _begin,
        AskSum: _sum,
        EndStudy: _end,
    }
