"""The client's side of a study: it holds rows, takes noisy steps, and keeps its own books.

The server is curious at best. Regardless of the messages that it gets, a client runs its own code, at the noise that it
calibrated itself for its own rows. It bills the whole study to its own ledger, on disk, before the first step, and
answers every round at most once. An answer is on disk before it is sent: a client that is killed and started again
sends the same bytes again, or takes the steps of a round of which nothing was ever sent.

Proof: docs/proofs/federated.md.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tulle import __version__
from tulle.fast.sparse_weights import SparseWeights
from tulle.federated.client_side.admission import Admission, refuse_other_columns
from tulle.federated.client_side.approval import read_approved
from tulle.federated.client_side.client_identity import ClientIdentity
from tulle.federated.client_side.client_reports import client_report
from tulle.federated.client_side.local_steps import LARGEST_WEIGHT, take_local_steps
from tulle.federated.client_side.masked_study import MASKED_CLASSES, MaskedStudies
from tulle.federated.client_side.study_plan import (
    SNAPSHOT,
    STEP,
    get_noise,
    plan_rounds_left,
)
from tulle.federated.client_side.study_state import StudyState
from tulle.federated.client_side.summing import Summing
from tulle.federated.encoding import OlderVersionError, WireError, decode, encode
from tulle.federated.masked_terms import MASKED_MESSAGES, MaskedAnswer
from tulle.federated.messages import (
    AskWilling,
    Enrol,
    Enrolled,
    Reason,
    Refused,
    RefusedError,
    Round,
    Update,
    Willing,
    check_name,
    invitation,
    model_terms,
)
from tulle.federated.questions import CLASSES, MESSAGES, Summed
from tulle.federated.terms import Task, Terms
from tulle.files import array_checks
from tulle.files.durable_writes import locked, write_durably
from tulle.files.error_messages import describe_error
from tulle.files.number_text import rounded_up
from tulle.ledgers.ledger import BudgetExceededError
from tulle.ledgers.on_disk import FileLedger
from tulle.ledgers.spending import note_release
from tulle.monitoring.log_events import log_event
from tulle.monitoring.logged_account import open_logged_account
from tulle.reports.report import PrivacyReport, bill_lines
from tulle.trusted import intake
from tulle.trusted.curator import Curator
from tulle.trusted.fit import Account, open_account
from tulle.trusted.plan import Plan
from tulle.trusted.randomness import keyed_generator

_LONGEST_LINE = 1000

# Steps of one round take seconds to minutes; anyone who holds the lock for longer hangs.
_PATIENCE = 600.0


@dataclass(eq=False)
class _Study:
    """A study that a client takes part in, as long as its process lives."""

    terms: Terms
    task: Task
    plan: Plan
    enrolled: Enrolled
    entry: int | None  # on the ledger
    answered: set[int] = field(default_factory=set)
    curator: Curator | None = None
    coins: np.random.Generator = field(default_factory=np.random.default_rng)  # for ties


class Client:
    """One holder of rows.

    Parameters
    ----------
    name : str
        The name by which the server knows it. Where the server lists its clients, a random one keeps others from
        speaking for it.
    X : array or sparse array of shape (n, d)
        Finite; at least 2 rows.
    y : array of shape (n,)
        Labels or numbers.
    ledger : FileLedger or None
        The ledger of these rows, which every study is billed to before anything of it is answered; None only with
        `without_privacy`.
    state : path
        A folder for what must outlive the process. Without it the client bills its studies again. An old copy must
        never be put back: rounds that were answered since would be answered again, unbilled.
    groups : array of shape (n,) or None, default=None
        Person ids, one for each row; a person's rows beyond `rows_per_person` are left out.
    rows_per_person : int, default=1
        The unit of the promise is a person with at most this many rows, at least 1.
    max_epsilon : float or None, default=None
        The most that one study may cost, > 0. None: what the ledger's cap leaves.
    without_privacy : bool, default=False
        Take part in studies without noise, which may reveal any row.
    trusts_aggregator : bool, default=False
        Send exact sums over rows to a server that is trusted to add the noise
        (`tulle.federated.server_side.aggregator`).
    identity : ClientIdentity or None, default=None
        Its certificate and key, for studies of masked sums; without one they are refused.
    approved : collection of str or None, default=None
        Digests of terms (`Terms.digest`, 64 hexadecimal digits) that a data steward approved: all others are refused,
        and `tell` gets their text with their digest. An empty one refuses all. None: any terms within the cap and
        `max_epsilon`. Not with `trusts_aggregator`: its fits have no terms that could be read before.
    seed : int or None, default=None
        Batches and noise come from it and, where there is a ledger, from a nonce that is drawn when the ledger is
        opened: then no seed repeats noise. Without a ledger, anyone who knows the seed can repeat them.
    tell : callable or None, default=None
        Called with a line of text about everything that is answered or refused: for the client's own people.
    """

    def __init__(
        self,
        name: str,
        X: Any,
        y: Any,
        *,
        ledger: FileLedger | None,
        state: str | os.PathLike[str],
        groups: Any = None,
        rows_per_person: int = 1,
        max_epsilon: float | None = None,
        without_privacy: bool = False,
        trusts_aggregator: bool = False,
        identity: ClientIdentity | None = None,
        approved: Collection[str] | None = None,
        seed: int | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        from sklearn.utils import check_consistent_length

        self.name = check_name(name)
        if (ledger is None) != without_privacy:
            raise ValueError(
                "give a ledger to bill; or none, and without_privacy=True, for rows that need no protection"
            )
        if max_epsilon is not None and not 0 < max_epsilon < math.inf:
            raise ValueError(f"max_epsilon must be a finite number > 0 or None, got {max_epsilon!r}")
        if not (type(rows_per_person) is int and rows_per_person >= 1):
            raise ValueError(f"rows_per_person must be an integer >= 1, got {rows_per_person!r}")
        if approved is not None and trusts_aggregator:
            raise ValueError("approved is for studies with terms; leave it out, or leave out trusts_aggregator")
        self._X = array_checks.read_rows(X)
        if self.n_rows < 2:
            raise ValueError(f"a client needs at least 2 rows, got {self.n_rows}; see whether the file is complete")
        self._y = intake.read_cells(y, "y")
        array_checks.check_values(self._y, "y")
        self._groups = None if groups is None else intake.read_cells(groups, "groups")
        check_consistent_length(self._X, self._y, self._groups)
        # An id that is missing is refused here, on the client's own screen: no answer to a server depends on it.
        active = None if self._groups is None else intake.select_first_rows(self._groups, rows_per_person)
        self.ledger = ledger
        self._state = Path(state)
        self._state.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._rows_per_person, self._seed = rows_per_person, seed
        self._tell = tell or (lambda line: None)
        self._admission = Admission(
            self.name,
            self.n_rows,
            int(self._X.shape[1]),
            isinstance(self._X, np.ndarray),
            rows_per_person,
            max_epsilon,
            ledger,
            self._state,
            seed,
            read_approved(approved),
            self._tell,
        )
        self._studies: dict[str, _Study] = {}
        self.n_answers = 0  # rounds and sums that were answered, in this process
        self._summing = Summing(
            self._X,
            self._y,
            active,
            rows_per_person,
            ledger,
            self._state,
            self.name,
            trusts_aggregator=trusts_aggregator,
            max_epsilon=max_epsilon,
            tell=self._tell,
        )
        self.masked = MaskedStudies(
            self._X,
            self._y,
            self._groups,
            rows_per_person,
            ledger,
            self._state,
            self.name,
            identity=identity,
            approved=read_approved(approved),
            max_epsilon=max_epsilon,
            seed=seed,
            tell=self._tell,
        )
        self._lock = threading.Lock()

    @property
    def n_rows(self) -> int:
        return int(self._X.shape[0])

    def answer(self, raw: bytes) -> bytes:
        """The answer to any message of a server: what was agreed on, or a refusal.

        Parameters
        ----------
        raw : bytes

        Returns
        -------
        bytes
            To be sent as it is.
        """
        with self._lock:
            try:
                reply = self._reply(raw)
            except (WireError, ImportError) as error:
                reply = self._refusal("malformed", str(error))
            except RefusedError as error:
                reply = self._refusal(error.why, str(error))
            except BudgetExceededError as error:
                reply = self._refusal("cap", "the ledger of these rows does not allow it", told=str(error))
            except Exception as error:
                # What an error says may be about rows: the server does not learn it.
                reply = self._refusal("failed", "it failed", told=describe_error(error))
            return encode(reply)

    def _refusal(self, why: Reason, text: str, told: str = "") -> Refused:
        self._tell(f"refused ({why}): {(told or text)[:_LONGEST_LINE]}")
        log_event(__name__, "federated.client.refused", reason=why)
        return Refused(self.name, why, text[:_LONGEST_LINE])

    def _reply(self, raw: bytes) -> Any:
        message = decode(
            raw, {AskWilling, Enrol, Round, Terms, SparseWeights, *model_terms(raw), *CLASSES, *MASKED_CLASSES}
        )
        if isinstance(message, AskWilling):
            if message.invited and invitation(message.terms.digest, self.name) not in message.invited:
                raise RefusedError("not invited", "the server does not list a client of this name")
            return self._enrol(message.terms) if isinstance(message, Enrol) else self._say_willing(message.terms)
        if isinstance(message, Round):
            reply: Any = self._round(message, hashlib.sha256(raw).hexdigest())
            self.n_answers += 1
            return reply
        if isinstance(message, MESSAGES):
            reply = self._summing.answer(message)
            self.n_answers += isinstance(reply, Summed)
            return reply
        if isinstance(message, MASKED_MESSAGES):
            reply = self.masked.answer(message, raw)
            self.n_answers += isinstance(reply, MaskedAnswer)
            return reply
        raise WireError("no message for a client")

    # --- enrolling: the whole study is billed before anything of it is answered ---

    def _say_willing(self, terms: Terms) -> Willing:
        """A dry run of enrolling, without the rows, the bill and the state on disk."""
        if terms.digest not in self._studies:
            plan = self._admission.plan(terms)
            state = self._read(terms.digest)
            self._admission.check_state(state, self._admission.first_state(terms, plan))
            self._admission.quote(terms, plan, bill_again=state is None)
            self._tell(f"would take part in {terms.study!r}, which nothing was billed for so far")
            log_event(__name__, "federated.client.willing", study=terms.digest, n_rounds=terms.rounds)
        return Willing(terms.digest, self.name, self._admission.n_rows)

    def _enrol(self, terms: Terms) -> Enrolled:
        study = self._studies.get(terms.digest)
        if study is None:
            study = self._studies[terms.digest] = self._open(terms)
            report = self.report(terms.digest)
            write_durably(self._place(terms.digest, "privacy.json"), report.to_json().encode(), 0o600)
            promise = self._promise(study.enrolled)
            self._tell(f"enrolled in {terms.study!r}: {terms.describe()}; {promise}; digest {terms.digest}")
            log_event(__name__, "federated.client.enrolled", study=terms.digest, n_rounds=terms.rounds)
        return study.enrolled

    def _promise(self, enrolled: Enrolled) -> str:
        if enrolled.epsilon is None or enrolled.delta is None:
            return "no privacy"
        return f"epsilon = {rounded_up(enrolled.epsilon)}, delta = {rounded_up(enrolled.delta)} for all of it"

    def _open(self, terms: Terms) -> _Study:
        public = self._admission
        plan = public.plan(terms)
        with refuse_other_columns(terms.study, self._tell):
            task = terms.model.task(self._X, self._y, self._groups, self._rows_per_person)
        n = self.n_rows
        if left_out := n - sum(int(block.active.sum()) for block in task.rows.blocks):
            self._tell(
                f"{terms.study!r}: {left_out:,} of {n:,} rows count as nothing (no label of the study, or surplus)"
            )
        new = public.first_state(terms, plan)
        with locked(self._place(terms.digest, "lock"), _PATIENCE):
            state = self._read(terms.digest)
            public.check_state(state, new)
            # A study whose state is gone is billed again: it is unknown which of its rounds were answered. So is one
            # that this ledger does not know, regardless of its state.
            ledgers = public.ledgers(terms, bill_again=state is None)
            about = {"n_rows": n, "n_features": int(self._X.shape[1])}
            with open_logged_account(public.order(terms, plan), __name__, about, ledgers=ledgers) as account:
                if terms.budget is not None:
                    note_release()
                enrolled = self._describe(terms, plan, account)
            if state is None:
                self._write(new)  # should the process end before this, the study is billed again
        return _Study(terms, task, plan, enrolled, ledgers[0].number if ledgers else None)

    def _describe(self, terms: Terms, plan: Plan, account: Account) -> Enrolled:
        """What this client promises."""
        budget = terms.budget
        alone: tuple[float, ...] = ()
        if budget is not None and terms.snapshot_batch is not None:
            alone = tuple(line.epsilon_alone for line in bill_lines(plan, budget.delta))
        return Enrolled(
            study=terms.digest,
            client=self.name,
            n_rows=self.n_rows,
            batch=min(terms.batch or self.n_rows, self.n_rows),
            epsilon=None if budget is None else account.promise.epsilon,
            delta=None if budget is None else budget.delta,
            noise=get_noise(plan, STEP),
            rows_per_person=self._rows_per_person,
            seeded=account.seeded,
            grouped=self._groups is not None,
            snapshot_noise=get_noise(plan, SNAPSHOT),
            epsilons_alone=alone,
        )

    # --- rounds ---

    def _round(self, asked: Round, digest: str) -> Update:
        study = self._studies.get(asked.study)
        if study is None:
            raise RefusedError("not enrolled", "enrol this client first, with the terms of the study")
        with locked(self._place(asked.study, "lock"), _PATIENCE):
            state = self._read(asked.study)
            if state is None:
                raise RefusedError("not enrolled", "what this client knew of the study is gone")
            if not study.answered <= set(state.answered):
                raise RefusedError("failed", "what this client knew of the study is older than what it did")
            if asked.number in state.answered:
                if digest == state.question and state.weights is not None:
                    self._tell(f"{study.terms.study!r}: sent round {asked.number} again")
                    return Update(asked.study, asked.number, self.name, state.weights)
                raise RefusedError("answered", f"round {asked.number} was answered; there is one answer")
            if not max(state.answered, default=0) < asked.number <= study.terms.rounds:
                raise RefusedError("out of turn", f"the study has {study.terms.rounds} rounds, one after another")
            self._check_weights(study, asked.weights)
            try:
                weights = self._steps(study, asked.weights, len(state.answered))
                # Written down before it is sent: every answer that left is on disk, and a round is answered once.
                self._write(replace(state, answered=(*state.answered, asked.number), question=digest, weights=weights))
            except BaseException:
                study.curator = None  # nothing was sent: a new one counts from the state on disk
                raise
            study.answered.add(asked.number)
        self._tell(f"{study.terms.study!r}: answered round {asked.number} of {study.terms.rounds}")
        log_event(__name__, "federated.client.answered", study=asked.study, round=asked.number)
        return Update(asked.study, asked.number, self.name, weights)

    def _check_weights(self, study: _Study, weights: SparseWeights) -> None:
        """Raise unless a step may start from these weights."""
        terms = study.terms
        free = terms.model.threshold(terms.remembered).free_from
        if weights.shape != terms.model.shape or not np.all(np.abs(weights.values) <= LARGEST_WEIGHT):
            raise RefusedError(
                "weights",
                f"weights must be at most {LARGEST_WEIGHT:g} in magnitude and of the shape {terms.model.shape}",
            )
        if np.count_nonzero(weights.values[weights.lines < free], axis=0).max(initial=0) > terms.remembered:
            raise RefusedError("weights", f"at most {terms.remembered} weights may differ from zero")

    def _steps(self, study: _Study, weights: SparseWeights, answered: int) -> SparseWeights:
        """K noisy steps from the server's weights."""
        if study.curator is None:
            study.curator = self._curate(study, answered)
        return take_local_steps(study.terms, study.task, study.curator, study.coins, weights)

    def _curate(self, study: _Study, answered: int) -> Curator:
        """The curator of all answers that are left when some rounds were answered."""
        terms = study.terms
        plan = plan_rounds_left(study.plan, terms, answered)
        ledgers, generator = self._admission.ledgers(terms, answered, number=study.entry), None
        if not ledgers:  # without noise a study draws the batches of a central fit under the same seed
            generator = keyed_generator(self._seed, (answered,) if answered else ())
        with open_account(self._admission.order(terms, plan), ledgers=ledgers, generator=generator) as account:
            for ledger in ledgers:
                assert ledger.number is not None  # it was billed
                study.coins = keyed_generator(self._seed, (*ledger.stream(ledger.number), 1))
            return account.curate(study.task.rows, study.task.public, plan)

    # --- what outlives the process ---

    def _place(self, study: str, suffix: str) -> Path:
        assert re.fullmatch("[0-9a-f]{64}", study), "a study is known by the digest of its terms"
        return self._state / f"{study}.{suffix}"

    def _read(self, study: str) -> StudyState | None:
        place = self._place(study, "study")
        if not place.exists():
            return None
        try:
            state = decode(place.read_bytes(), (StudyState, SparseWeights))
        except OlderVersionError:
            # Its rounds cost more than was billed: it is not gone on with under the promise of today.
            self._tell(
                f"an earlier version of tulle took part in this study: the delta that it promised and billed left the "
                f"finite-precision part out. Delete {place.name} to begin the study anew, which is billed again"
            )
            raise RefusedError("terms", "this client began the study with an earlier version of tulle") from None
        if not isinstance(state, StudyState) or state.study != study:
            raise RefusedError("failed", "what this client knew of the study is damaged")
        return state

    def _write(self, state: StudyState) -> None:
        write_durably(self._place(state.study, "study"), encode(replace(state, version=__version__)), 0o600)

    # --- for the client's own people ---

    def report(self, study: str) -> PrivacyReport:
        """What this client promises its people about a study that it is enrolled in.

        Parameters
        ----------
        study : str
            The digest of its terms.
        """
        about = self._studies[study]
        billed = () if self.ledger is None or about.entry is None else (self.ledger.describe_entry(about.entry),)
        return client_report(about.terms, about.enrolled, about.plan, billed)

    def answered(self, study: str) -> tuple[int, ...]:
        """The rounds of a study that were answered, by the digest of its terms."""
        state = self._read(study)
        return () if state is None else state.answered

    def __repr__(self) -> str:
        return f"Client({self.name!r})"  # never the rows
