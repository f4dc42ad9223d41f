"""The client's side of a study: it holds rows, takes noisy steps, and keeps its own books.

The server is curious at best. Whatever it sends, a client runs its own code, at the noise that it calibrated itself for
its own rows; it bills the whole study to its own ledger, on disk, before the first step, and answers every round of it
at most once. An answer is on disk before it is sent: a client that is killed and started again sends the same bytes
again, or takes the steps of a round of which nothing was ever sent.

Proof: docs/proofs/federated.md.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tulle import intake
from tulle.curator import Curator
from tulle.durable import locked, write_durably
from tulle.events import NoisePerSensitivity
from tulle.failures import own_words, said_of
from tulle.federated.messages import (
    Enrol,
    Enrolled,
    Reason,
    Refused,
    RefusedError,
    Round,
    Update,
    check_delta,
    check_name,
    model_terms,
)
from tulle.federated.questions import CLASSES, MESSAGES
from tulle.federated.summing import Summing
from tulle.federated.terms import Task, Terms
from tulle.federated.wire import OlderVersionError, WireError, decode, encode
from tulle.ledger_file import FileLedger
from tulle.mechanisms import SampledGaussian
from tulle.privacy import BudgetExceededError, Plan, PrivacyReport, Release, bill_lines, calibrate, proof
from tulle.randomness import fixed_nonce_told, keyed_generator
from tulle.report import arithmetic_line, rounded_up
from tulle.sampling import Sampling
from tulle.weights import SparseWeights

STEP = "local step"

# As in the curator.
_LARGEST_SUM = 1e150

_LONGEST_LINE = 1000
LARGEST_WEIGHT = 1e100

# Steps of one round take seconds to minutes; whoever holds the lock for longer hangs.
_PATIENCE = 600.0


@dataclass(frozen=True, eq=False)
class StudyState:
    """What a client knows of a study after any crash.

    Attributes
    ----------
    study : str
        The digest of its terms.
    n_rows : int
        How many rows it was enrolled with.
    rows_per_person : int
        The unit that it promised.
    noise : float
        What it calibrated, per sensitivity of a step.
    answered : tuple of int
        The rounds whose answers were written down, rising. No other answer ever left.
    question : str
        The SHA-256 of the last round that was answered.
    weights : SparseWeights or None
        The last answer.
    """

    study: str
    n_rows: int
    rows_per_person: int
    noise: float
    answered: tuple[int, ...] = ()
    question: str = ""
    weights: SparseWeights | None = None

    def kept(self) -> tuple[str, int, int, float]:
        """What must not change while a study lasts."""
        return self.study, self.n_rows, self.rows_per_person, self.noise


@dataclass(eq=False)
class _Study:
    """A study that a client takes part in, as long as its process lives."""

    terms: Terms
    task: Task
    plan: Plan
    enrolled: Enrolled
    stream: tuple[int, ...]
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
        A folder for what must outlive the process. Whoever deletes it makes the client bill its studies again. An old
        copy must never be put back: rounds that were answered since would be answered again, unbilled.
    groups : array of shape (n,) or None, default=None
        Person ids; a person's rows beyond `rows_per_person` are left out.
    rows_per_person : int, default=1
        The unit of the promise is a person with at most this many rows, at least 1.
    max_epsilon : float or None, default=None
        The most that one study may cost, > 0. None: what the ledger's cap leaves.
    without_privacy : bool, default=False
        Take part in studies without noise, which may reveal any row.
    trusts_aggregator : bool, default=False
        Send exact sums over rows to a server that is trusted to add the noise (`tulle.federated.aggregator`).
    seed : int or None, default=None
        Batches and noise come from it and, where there is a ledger, from a nonce that is drawn when the ledger is
        opened: then no seed repeats noise. Without a ledger, whoever knows the seed can repeat them.
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
        self._X = intake.entries(X, least_rows=2)
        self._y = intake.cells(y, "y")
        intake.check_values(self._y, "y")
        self._groups = None if groups is None else intake.cells(groups, "groups")
        check_consistent_length(self._X, self._y, self._groups)
        self.ledger = ledger
        self._state = Path(state)
        self._state.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._rows_per_person, self._max_epsilon = rows_per_person, max_epsilon
        self._seed = seed
        self._tell = tell or (lambda line: None)
        self._studies: dict[str, _Study] = {}
        self._summing = Summing(
            self._X,
            self._y,
            self._groups,
            rows_per_person,
            ledger,
            self._state,
            self.name,
            trusts_aggregator=trusts_aggregator,
            max_epsilon=max_epsilon,
            tell=self._tell,
        )
        self._lock = threading.Lock()

    @property
    def n_rows(self) -> int:
        return int(self._X.shape[0])

    def answer(self, raw: bytes) -> bytes:
        """The answer to whatever a server sent: what was agreed on, or a refusal.

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
                reply = self._refusal("failed", "it failed", told=said_of(error))
            return encode(reply)

    def _refusal(self, why: Reason, text: str, told: str = "") -> Refused:
        self._tell(f"refused ({why}): {(told or text)[:_LONGEST_LINE]}")
        return Refused(self.name, why, text[:_LONGEST_LINE])

    def _reply(self, raw: bytes) -> Any:
        message = decode(raw, {Enrol, Round, Terms, SparseWeights, *model_terms(raw), *CLASSES})
        if isinstance(message, Enrol):
            return self._enrol(message.terms)
        if isinstance(message, Round):
            return self._round(message, hashlib.sha256(raw).hexdigest())
        if isinstance(message, MESSAGES):
            return self._summing.answer(message)
        raise WireError("no message for a client")

    # --- enrolling: the whole study is billed before anything of it is answered ---

    def _enrol(self, terms: Terms) -> Enrolled:
        study = self._studies.get(terms.digest)
        if study is None:
            study = self._studies[terms.digest] = self._open(terms)
            report = client_report(terms, study.enrolled, study.plan)
            write_durably(self._place(terms.digest, "privacy.json"), report.to_json().encode(), 0o600)
            self._tell(f"enrolled in {terms.study!r}: {terms.describe()}; {self._promise(study.enrolled)}")
        return study.enrolled

    def _promise(self, enrolled: Enrolled) -> str:
        if enrolled.epsilon is None or enrolled.delta is None:
            return "no privacy"
        return f"epsilon = {rounded_up(enrolled.epsilon)}, delta = {rounded_up(enrolled.delta)} for all of it"

    def _open(self, terms: Terms) -> _Study:
        self._check(terms)
        try:
            task = terms.model.task(self._X, self._y, self._groups, self._rows_per_person)
        except (ValueError, TypeError) as error:
            self._tell(f"the rows do not go with {terms.study!r}: {own_words(error) or said_of(error)}")
            raise RefusedError("terms", "the rows here do not go with these terms") from None
        n = self.n_rows
        if left_out := n - sum(int(block.active.sum()) for block in task.rows.blocks):
            self._tell(
                f"{terms.study!r}: {left_out:,} of {n:,} rows count as nothing (no label of the study, or surplus)"
            )
        batches = Sampling("poisson", n, min(terms.batch or n, n), self._rows_per_person)
        planned = (Release(STEP, SampledGaussian(NoisePerSensitivity(1.0), batches), terms.steps),)
        budget = terms.budget
        plan = Plan((planned[0].scaled(0.0),) if budget is None else calibrate(planned, budget))
        enrolled = self._words(terms, task, plan, batches)
        for keep in (terms.n_nonzero, terms.remembered):
            terms.model.threshold(keep)  # an error comes before the bill
        new = StudyState(terms.digest, n, self._rows_per_person, enrolled.noise)
        with locked(self._place(terms.digest, "lock"), _PATIENCE):
            state = self._read(terms.digest)
            if state is not None and state.kept() != new.kept():
                raise RefusedError(
                    "terms", "the rows, their unit or the noise are others than when this client enrolled"
                )
            stream = self._billed(terms, plan, enrolled, again=state is None)
            if state is None:
                self._write(new)
        return _Study(terms, task, plan, enrolled, stream)

    def _billed(self, terms: Terms, plan: Plan, enrolled: Enrolled, *, again: bool) -> tuple[int, ...]:
        """Bill the study, unless the ledger has it already; what tells its noise from that of all others.

        A study whose state is gone is billed again: nobody knows any more which of its rounds were answered. So is one
        that this ledger does not know, whatever the state says; and one, should the process end right after this.
        """
        if self.ledger is None or enrolled.epsilon is None or enrolled.delta is None:
            return ()
        # At its end: what stands before it, the study's name, is the server's.
        known = [k for k, entry in enumerate(self.ledger.refresh().entries) if entry.what.endswith(terms.digest)]
        if again or not known:
            what = f"federated study {terms.study!r} ({terms.method}) {terms.digest}"
            known = [self.ledger.bill(what, [plan], (enrolled.epsilon, enrolled.delta), self._rows_per_person)]
        words = [int(terms.digest[k : k + 8], 16) for k in range(0, 32, 8)]
        return (*self.ledger.stream(known[-1]), *words)

    def _check(self, terms: Terms) -> None:
        """Raise unless the terms are such as this client accepts. Looks at no row but their number."""
        budget = terms.budget
        if budget is None:
            if self.ledger is not None:
                raise RefusedError("terms", "a study without noise; this client takes part in private ones only")
            return
        if self.ledger is None:
            raise RefusedError(
                "terms", "this client has no ledger to bill; it takes part in studies without noise only"
            )
        if self._max_epsilon is not None and budget.epsilon > self._max_epsilon:
            raise RefusedError(
                "terms", f"epsilon = {budget.epsilon:g}; this client allows {self._max_epsilon:g} a study"
            )
        check_delta(budget.delta, self.n_rows, self.ledger)
        check = getattr(terms.model, "check_bounded", None)
        try:
            if check is not None:
                check()
        except ValueError as error:
            raise RefusedError("terms", str(error)) from None

    def _words(self, terms: Terms, task: Task, plan: Plan, batches: Sampling) -> Enrolled:
        """What this client promises; raises where sums could overflow."""
        budget = terms.budget
        promised = None
        if budget is not None:
            promised = proof(plan, budget.delta)[0]
            check_range(terms, task)
        return Enrolled(
            study=terms.digest,
            client=self.name,
            n_rows=self.n_rows,
            batch=batches.batch,
            epsilon=promised,
            delta=None if budget is None else budget.delta,
            noise=plan.releases[0].mechanism.noise.value,
            rows_per_person=self._rows_per_person,
            seeded=self._seed is not None and (self.ledger is None or self.ledger.repeats),
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
                # Written down before it is sent: what left is what is written, and a round is answered once.
                self._write(replace(state, answered=(*state.answered, asked.number), question=digest, weights=weights))
            except BaseException:
                study.curator = None  # nothing was sent: another one counts from what is written down
                raise
            study.answered.add(asked.number)
        self._tell(f"{study.terms.study!r}: answered round {asked.number} of {study.terms.rounds}")
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
        """K noisy steps of hard thresholding."""
        terms = study.terms
        if study.curator is None:
            left = terms.local_steps * (terms.rounds - answered)
            # Without noise, which needs no other words, a study draws the batches of a central fit under the same seed.
            stream = (*study.stream, answered) if study.stream or answered else ()
            study.coins = keyed_generator(self._seed, (*stream, 1))
            study.curator = Curator(
                study.task.rows,
                study.task.public,
                Plan((replace(study.plan.releases[0], count=left),)),
                keyed_generator(self._seed, stream),
            )
        for _ in range(terms.local_steps):
            weights = self._step(study, study.curator, weights)
        return weights

    def _step(self, study: _Study, curator: Curator, start: SparseWeights) -> SparseWeights:
        """H( start - eta × (noisy gradient + penalty) ).

        The noisy gradient is what is released, on its grid; the rest is post-processing. Noise is not added to `start`:
        a server could choose weights so large that sums with them lose the noise and show exact sums by how they are
        rounded.
        """
        terms = study.terms
        keep = terms.model.threshold(terms.remembered)
        at = terms.model.threshold(terms.n_nonzero).sparsely(start)
        gradient = curator.ask(STEP, study.task.gradient(at, terms.clip))
        moved = start.to_dense()
        if terms.penalty:
            moved[: keep.free_from] -= terms.step * terms.penalty * at.to_dense()[: keep.free_from]
        moved += -terms.step * gradient
        if terms.budget is not None:
            # On a grid many are equal: which of them pass the threshold is for chance to say, not for their order.
            moved *= 1.0 + 1e-9 * study.coins.random(moved.shape)
        # What the server's weights make too large for another step is cut: post-processing, as all of this.
        moved = np.clip(np.nan_to_num(moved, nan=0.0), -LARGEST_WEIGHT, LARGEST_WEIGHT)
        return SparseWeights.from_dense(keep(moved))

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
        write_durably(self._place(state.study, "study"), encode(state), 0o600)

    # --- for the client's own people ---

    def report(self, study: str) -> PrivacyReport:
        """What this client promises its people about a study that it is enrolled in.

        Parameters
        ----------
        study : str
            The digest of its terms.
        """
        about = self._studies[study]
        return client_report(about.terms, about.enrolled, about.plan)

    def answered(self, study: str) -> tuple[int, ...]:
        """The rounds of a study that were answered, by the digest of its terms."""
        state = self._read(study)
        return () if state is None else state.answered

    def __repr__(self) -> str:
        return f"Client({self.name!r})"  # never the rows


def check_range(terms: Terms, task: Task) -> None:
    """Raise where sums over rows could overflow, whatever weights they are taken at."""
    if not task.public.n_rows * task.level(terms.clip) < _LARGEST_SUM:
        raise RefusedError("terms", "the clip and the bounds are so large that sums over rows could overflow")


def client_report(terms: Terms, enrolled: Enrolled, plan: Plan) -> PrivacyReport:
    """The promise of one client to its own people."""
    budget = terms.budget
    delta = 0.0 if budget is None else budget.delta
    proved, accountant = proof(plan, delta)
    return PrivacyReport(
        epsilon=proved,
        delta=delta,
        asked=None if budget is None else (budget.epsilon, budget.delta),
        method=terms.describe(),
        calibration="none" if budget is None else "rigorous",
        accountant="none" if budget is None else accountant,
        unit=f"{enrolled.unit} of this client; replace-one adjacency: the number of its rows, {enrolled.n_rows:,}, is "
        "public",
        bill=bill_lines(plan, delta),
        assumptions=assumptions(terms, enrolled.seeded),
        who_saw_what=seen_by_curious_server(terms),
        seeded=enrolled.seeded,
        floating_point_slack=0.0,
    )


def seen_by_curious_server(terms: Terms) -> tuple[str, ...]:
    """Who saw what, for reports."""
    if terms.budget is None:
        return ("Trust model: none. Clients sent models without noise, which may reveal any of their rows.",)
    return (
        "Trust model: curious server. Every client drew its own noise; rows and exact sums over them never left it.",
        "The server, and whoever listens on the way to it, saw each client's noisy models after each of its rounds; "
        "the promise covers all of them, and whatever is made of them.",
    )


def assumptions(terms: Terms, seeded: bool) -> tuple[str, ...]:
    """What the promise of a client, or of all of them, rests on."""
    if terms.budget is None:
        return ("There is no promise: the study was run without noise.",)
    return (
        "A person with rows at several clients is promised what these clients promise, added up.",
        "Every client's number of rows, the terms of the study (features, classes, bounds, settings) and who took part "
        "when are public. What was done to rows before, and how the terms were chosen, is not covered.",
        "Steps are on random batches, which each client drew and kept secret."
        if terms.batch is not None
        else "Every step is on all rows of a client.",
        "The whole study was billed, whether or not a client took part in all of its rounds.",
        f"{arithmetic_line(0.0)} This holds whatever weights the server sends. Running time is not protected.",
        "The noise came from a seed: it is not private against anyone who knows or guesses the seed."
        if seeded
        else "The noise came from AES-128 in counter mode, keyed by each client's operating system.",
        *fixed_nonce_told(),
    )
