"""The server's side of a study: it sends a model, averages what comes back, thresholds, and goes on.

It never sees a row. Clients that are gone, late, refuse or send garbage are counted and left out of a round. With a
journal a study goes on after a crash where it stopped.
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tulle import __version__
from tulle.fast.sparse_weights import SparseWeights
from tulle.federated.client_side.linear_study import LinearTerms
from tulle.federated.client_side.local_steps import LARGEST_WEIGHT
from tulle.federated.client_weights import check_all_weighted, check_weights
from tulle.federated.encoding import ADDED_LATER, WireError, decode, encode
from tulle.federated.link import Link
from tulle.federated.messages import (
    AskWilling,
    Enrol,
    Enrolled,
    Refused,
    Round,
    Update,
    Willing,
    check_name,
    invitation,
)
from tulle.federated.server_side.federated_fit import FederatedFit, RoundRecord
from tulle.federated.server_side.study_counts import StudyCounts
from tulle.federated.server_side.study_report import study_report
from tulle.federated.server_side.update_limits import UpdateLimits
from tulle.federated.terms import Terms
from tulle.files.durable_writes import write_durably
from tulle.methods.public_start import START_ASSUMPTION, read_start
from tulle.monitoring.log_events import log_event
from tulle.reports.words import warn_of_large_epsilon

Weighting = Literal["rows", "equal"]


class StudyStoppedError(RuntimeError):
    """A study that cannot go on: too few clients. With a journal it goes on when it is run again."""


@dataclass(frozen=True, eq=False)
class Journal:
    """What a server knows after any crash: the model after so many rounds, and who has taken part."""

    study: str
    done: int
    weights: SparseWeights
    averaged: SparseWeights
    n_averaged: int
    clients: tuple[Enrolled, ...] = ()
    version: str = field(default="", metadata=ADDED_LATER)  # of tulle


class Server:
    """Runs a study over a link.

    Parameters
    ----------
    terms : Terms
    clients : sequence of str or None, default=None
        The names of those who may take part; None: anyone who enrols.
    journal : path or None, default=None
        A file that is replaced after each round. If it exists, the study goes on where it stopped.
    min_clients : int, default=1
        A study begins if so many would take part, and a round counts if so many answer, at least 1; else the same
        round is asked again.
    seconds : float, default=60.0
        How long a round waits for answers, > 0.
    patience : float, default=600.0
        How long to wait until `min_clients` would take part, and in each round until they answer, before
        `StudyStoppedError`, > 0.
    weighting : {"rows", "equal"} or mapping of str to float, default="rows"
        Whether a client counts by its number of rows, or alike; or public weights p_i by clients' names, > 0, with sum
        1. A round's mean is over those who answered. What clients send is private already: no weight costs anything.
    average : float, default=0.0
        In [0, 1]: the result is the mean of the models of the last so many rounds (thresholded once more); 0: the last.
    progress : callable or None, default=None
        Called with each `RoundRecord`, and the model after it.
    start : None, array or tuple, default=None
        Public weights that the first round of a linear model starts from, at most `memory` (or `n_nonzero`) of them for
        each output other than 0: of shape (features,) or (features, outputs), or a tuple (coef, intercept) as a fitted
        model has them. They must not come from the same clients' rows unless that fit is billed too. None: 0, and for a
        network its own start.
    """

    def __init__(
        self,
        terms: Terms,
        *,
        clients: Sequence[str] | None = None,
        journal: str | os.PathLike[str] | None = None,
        min_clients: int = 1,
        seconds: float = 60.0,
        patience: float = 600.0,
        weighting: Weighting | Mapping[str, float] = "rows",
        average: float = 0.0,
        progress: Callable[[RoundRecord, SparseWeights], None] | None = None,
        start: Any = None,
    ) -> None:
        if not isinstance(terms, Terms):
            raise TypeError(f"a server needs the terms of a study, got {terms!r}")
        if not (type(min_clients) is int and min_clients >= 1):
            raise ValueError(f"min_clients must be an integer >= 1, got {min_clients!r}")
        if not (seconds > 0 and patience > 0):
            raise ValueError(f"seconds and patience must be > 0, got {seconds!r} and {patience!r}")
        if isinstance(weighting, str) and weighting not in ("rows", "equal"):
            raise ValueError(f"weighting must be 'rows', 'equal' or weights by client, got {weighting!r}")
        if not isinstance(weighting, str):
            weighting = check_weights(weighting)
            check_all_weighted(weighting, weighting if clients is None else clients)
            clients = tuple(weighting)  # no other client takes part
        if not 0 <= average <= 1:
            raise ValueError(f"average must lie in [0, 1], got {average!r}")
        if terms.budget is not None:
            warn_of_large_epsilon(terms.budget.epsilon)
        self.terms = terms
        self._allowed = None if clients is None else frozenset(check_name(name) for name in clients)
        self._journal = None if journal is None else Path(journal)
        self._min_clients, self._seconds, self._patience = min_clients, seconds, patience
        self._weighting, self._average = weighting, average
        self._progress = progress
        self._start = None if start is None else _first_weights(terms, start)
        self._willing: dict[str, str] = {}  # names by connection, of those who would take part
        self._asked: set[str] = set()  # connections that have said whether they take part
        self._may_have_billed: set[str] = set()  # connections that were asked to enrol, and did not refuse
        self._enrolled: dict[str, Enrolled] = {}  # by connection
        self._known: dict[str, Enrolled] = {}  # by name, of all who ever took part
        self._rejected: Counter[str] = Counter()
        self._limits = UpdateLimits(terms)
        self.counts = StudyCounts(terms.rounds)
        # A journal of another study is refused before waiting for clients.
        self._goes_on = self._read() is not None

    @property
    def may_be_billed(self) -> bool:
        """Whether a client may have billed the study: one that was asked to enrol and did not refuse, now or in an
        earlier run of the same journal."""
        return self.terms.budget is not None and bool(self._may_have_billed or self._goes_on)

    def run(self, link: Link) -> FederatedFit:
        """Run the study, or the rest of it.

        Parameters
        ----------
        link : Link

        Returns
        -------
        FederatedFit

        Raises
        ------
        StudyStoppedError
            Where fewer than `min_clients` were willing to take part, or answered a round, for longer than `patience`.
            In the first case no client was asked to enrol, and none was billed, except in an earlier run of the same
            journal.
        """
        terms, model = self.terms, self.terms.model
        journal = self._read()
        if journal is not None:
            self._known = {client.client: client for client in journal.clients}
        else:
            start = model.start(terms.n_nonzero) if self._start is None else self._start
            nothing = SparseWeights.zeros(*model.shape)
            journal = Journal(terms.digest, 0, start, nothing, 0)
        about = {"study": terms.digest, "n_rounds": terms.rounds}
        log_event(__name__, "federated.begin", method=terms.method, done=journal.done, **about)
        if journal.done < terms.rounds:
            self._wait_for_quorum(link)
            if not self._goes_on:  # a server that is killed from now on must not say that no client was billed
                self._write(journal)
        records: list[RoundRecord] = []
        first_averaged = terms.rounds - math.ceil(self._average * terms.rounds)
        while journal.done < terms.rounds:
            weights, record = self._round(link, journal.done + 1, journal.weights)
            clients = tuple(self._known[name] for name in sorted(self._known))
            journal = replace(journal, done=record.number, weights=weights, clients=clients)
            if record.number > first_averaged:
                journal = replace(journal, averaged=journal.averaged.plus(weights), n_averaged=journal.n_averaged + 1)
            self._write(journal)
            records.append(record)
            self.counts.add(record)
            if self._progress is not None:
                self._progress(record, weights)
        final = journal.averaged.scaled(1 / journal.n_averaged) if journal.n_averaged else journal.weights
        final = model.threshold(terms.n_nonzero).sparsely(final)
        log_event(__name__, "federated.end", n_clients=len(journal.clients), **about)
        report = study_report(terms, journal.clients)
        if self._start is not None:
            report = replace(report, assumptions=(*report.assumptions, START_ASSUMPTION))
        return FederatedFit(terms, final, tuple(records), journal.clients, report)

    def _round(self, link: Link, number: int, weights: SparseWeights) -> tuple[SparseWeights, RoundRecord]:
        """Ask until enough have answered."""
        began = time.monotonic()
        question = encode(Round(self.terms.digest, number, weights))
        updates: dict[str, Update] = {}
        received = attempts = 0
        while True:
            self._enrol(link)
            waiting = [at for at in link.connected() if self._is_waited_for(at, updates)]
            for at, raw in link.ask(question, waiting, self._seconds):
                update = self._received(at, raw, number, weights)
                if update is not None and update.client not in updates:
                    updates[update.client] = update
                    received += len(raw)
            if len(updates) >= self._min_clients:
                break
            if time.monotonic() - began > self._patience:
                log_event(__name__, "federated.stopped", round=number, answered=len(updates))
                raise StudyStoppedError(
                    f"round {number}: {len(updates)} of at least {self._min_clients} clients answered within "
                    f"{self._patience:g} seconds ({self._words()}); start more clients, or run it again from its "
                    "journal"
                )
            attempts += 1
            if attempts == 1:  # of many, five a second
                log_event(__name__, "federated.retry", round=number, answered=len(updates))
            time.sleep(0.2)
        answered = tuple(sorted(updates))
        enrolled = {about.client for about in self._enrolled.values()} | set(self._known)
        record = RoundRecord(
            number,
            answered,
            tuple(sorted(enrolled - set(answered))),
            dict(self._rejected),
            time.monotonic() - began,
            received,
        )
        self._rejected = Counter()  # after and not before: refusals to take part belong to the first round
        return self._averaged([updates[name] for name in answered]), record

    def _is_waited_for(self, at: str, updates: dict[str, Update]) -> bool:
        about = self._enrolled.get(at)
        return about is not None and about.client not in updates

    def _averaged(self, updates: Sequence[Update]) -> SparseWeights:
        """The mean of the clients' models by their weights, thresholded."""
        shares = [self._share(update.client) for update in updates]
        total = SparseWeights.zeros(*self.terms.model.shape)
        for update, share in zip(updates, shares):
            total = total.plus(update.weights, share / sum(shares))
        return self.terms.model.threshold(self.terms.remembered).sparsely(total)

    def _share(self, client: str) -> float:
        if isinstance(self._weighting, str):
            return self._known[client].n_rows if self._weighting == "rows" else 1
        return self._weighting[client]

    # --- who takes part, and what counts ---

    def _wait_for_quorum(self, link: Link) -> None:
        """Wait until enough clients would take part: one that enrols in a study that never begins pays for nothing."""
        began = time.monotonic()
        while len(names := {self._willing[at] for at in self._find_willing(link)}) < self._min_clients:
            if time.monotonic() - began > self._patience:
                log_event(__name__, "federated.stopped", round=0, answered=len(names))
                billed = "clients may have billed it in an earlier run" if self._goes_on else "no client was billed"
                raise StudyStoppedError(
                    f"{len(names)} of at least {self._min_clients} clients would take part, asked for "
                    f"{self._patience:g} seconds ({self._words()}); {billed}; start more clients, or ask for less"
                )
            time.sleep(0.2)

    def _find_willing(self, link: Link) -> list[str]:
        """Connections of clients that would take part, and have not said so to `Enrol` yet; new ones are asked."""
        new = [at for at in link.connected() if at not in self._asked and at not in self._willing]
        if new:
            for at, raw in link.ask(encode(AskWilling(self.terms, self._invited())), new, self._seconds):
                about = self._message(raw, Willing)
                if about is not None and about.study != self.terms.digest:
                    self._rejected["other terms"] += 1
                elif about is not None and not self._may_take_part(link, at, about.client):
                    self._rejected["unknown client"] += 1
                elif about is not None:
                    self._willing[at] = about.client
                if at not in self._willing:
                    self._asked.add(at)  # anyone who refuses is not asked again; anyone who is late is
        return [at for at in link.connected() if at in self._willing and at not in self._asked]

    def _enrol(self, link: Link) -> None:
        """Have those enrol who are new and willing."""
        new = self._find_willing(link)
        if not new:
            return
        self._may_have_billed.update(new)  # before it is sent: an answer may be lost
        for at, raw in link.ask(encode(Enrol(self.terms, self._invited())), new, self._seconds):
            self._asked.add(at)
            about = self._message(raw, Enrolled)
            if about is None:
                if _is_refusal(raw):
                    self._may_have_billed.discard(at)
                continue
            if about.study != self.terms.digest or not self._keeps_terms(about):
                self._rejected["other terms"] += 1
            elif not self._may_take_part(link, at, about.client):
                self._rejected["unknown client"] += 1
            else:
                # A client that came back has another connection; the old one no longer speaks for it.
                self._enrolled = {other: told for other, told in self._enrolled.items() if told.client != about.client}
                self._enrolled[at] = about
                self._known[about.client] = _worse(self._known.get(about.client, about), about)

    def _may_take_part(self, link: Link, at: str, client: str) -> bool:
        return link.may_speak_for(at, client) and (self._allowed is None or client in self._allowed)

    def _invited(self) -> tuple[str, ...]:
        return tuple(sorted(invitation(self.terms.digest, name) for name in self._allowed or ()))

    def _keeps_terms(self, about: Enrolled) -> bool:
        """Whether a client promises its people what the study says."""
        budget = self.terms.budget
        if budget is None or about.epsilon is None:
            return budget is None and about.epsilon is None
        before = self._known.get(about.client)
        same = before is None or (before.n_rows, before.rows_per_person) == (about.n_rows, about.rows_per_person)
        return same and about.epsilon <= budget.epsilon * (1 + 1e-9) and about.delta == budget.delta

    def _received(self, at: str, raw: bytes, number: int, start: SparseWeights) -> Update | None:
        """The update in some bytes, if it counts; `start`: the model that the round began with."""
        update = self._message(raw, Update)
        if update is None:
            return None
        terms = self.terms
        if update.client != self._enrolled[at].client:
            self._rejected["unknown client"] += 1
        elif update.study != terms.digest or update.number != number:
            self._rejected["other round"] += 1
        elif not self._possible(update.weights, start, self._enrolled[at]):
            self._rejected["impossible"] += 1
        else:
            return update
        return None

    def _possible(self, weights: SparseWeights, start: SparseWeights, client: Enrolled) -> bool:
        """Whether a client that keeps to the terms can have such a model after a round from `start`."""
        keep = self.terms.model.threshold(self.terms.remembered)
        features = weights.values[weights.lines < keep.free_from]
        # As a client accepts them of a server: one client's numbers must not make all others refuse.
        finite = weights.shape == self.terms.model.shape and bool(np.all(np.abs(weights.values) <= LARGEST_WEIGHT))
        few = int(np.count_nonzero(features, axis=0).max(initial=0)) <= keep.keep
        return finite and few and self._limits.contain(weights, start, client)

    def _message(self, raw: bytes, kind: type[Any]) -> Any:
        try:
            message = decode(raw, (kind, Refused, SparseWeights))
        except WireError:
            self._rejected["malformed"] += 1
            return None
        if isinstance(message, Refused):
            self._rejected[f"refused: {message.why}"] += 1
            return None
        if not isinstance(message, kind):
            self._rejected["malformed"] += 1
            return None
        return message

    def _words(self) -> str:
        return ", ".join(f"{count} × {why}" for why, count in self._rejected.items()) or "nothing was rejected"

    # --- the journal ---

    def _read(self) -> Journal | None:
        if self._journal is None or not self._journal.exists():
            return None
        try:
            journal = decode(self._journal.read_bytes(), (Journal, SparseWeights, Enrolled))
        except WireError as error:
            raise ValueError(f"{self._journal.name} is no journal of a study: {error}") from None
        if not isinstance(journal, Journal) or journal.study != self.terms.digest:
            raise ValueError(f"{self._journal.name} is the journal of another study, or of other terms; name another")
        return journal

    def _write(self, journal: Journal) -> None:
        if self._journal is not None:
            write_durably(self._journal, encode(replace(journal, version=__version__)))


def _first_weights(terms: Terms, start: Any) -> SparseWeights:
    """Given weights as a study's first model; raise where no client would start from them."""
    linear = terms.model
    if not isinstance(linear, LinearTerms):
        raise ValueError("Server(start=...) is for linear models; a network's terms have their own start")
    given = read_start("Server", start, linear.n_features, linear.shape[1], linear.fit_intercept)
    assert given is not None
    if np.count_nonzero(given[0], axis=0).max(initial=0) > terms.remembered:
        raise ValueError(
            f"Server(start=...) must have at most {terms.remembered} weights other than 0 for each output, as many as "
            "clients take; use a larger memory, or keep the largest"
        )
    constant = given[1][None] / linear.intercept_value if linear.fit_intercept else given[1][None][:0]
    return SparseWeights.from_dense(np.vstack([given[0], constant]))


def _is_refusal(raw: bytes) -> bool:
    try:
        return isinstance(decode(raw, (Refused,)), Refused)
    except WireError:
        return False


def _worse(before: Enrolled, now: Enrolled) -> Enrolled:
    """What a client that enrolled twice has promised for all of its rounds."""
    return replace(
        now,
        epsilon=None if before.epsilon is None or now.epsilon is None else max(before.epsilon, now.epsilon),
        noise=min(before.noise, now.noise),
        snapshot_noise=min(before.snapshot_noise, now.snapshot_noise),
        epsilons_alone=tuple(map(max, before.epsilons_alone, now.epsilons_alone)),
        seeded=before.seeded or now.seeded,
        grouped=before.grouped and now.grouped,
    )
