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
from tulle.federated.messages import Enrol, Enrolled, Refused, Round, Update, check_name, invitation
from tulle.federated.server_side.study_counts import StudyCounts
from tulle.federated.server_side.study_report import study_report
from tulle.federated.terms import Terms
from tulle.files.durable_writes import write_durably
from tulle.methods.public_start import START_ASSUMPTION, read_start
from tulle.monitoring.log_events import log_event
from tulle.reports.report import PrivacyReport
from tulle.reports.words import warn_of_large_epsilon

Weighting = Literal["rows", "equal"]


class StudyStoppedError(RuntimeError):
    """A study that cannot go on: too few clients. With a journal it goes on when it is run again."""


@dataclass(frozen=True)
class RoundRecord:
    """What became of a round.

    Attributes
    ----------
    number : int
        From 1.
    answered : tuple of str
        The clients whose answers counted.
    missing : tuple of str
        Enrolled clients that were gone, late or refused.
    rejected : dict of str to int
        Messages that did not count, by reason.
    seconds : float
    bytes_received : int
        Of all answers that counted.
    """

    number: int
    answered: tuple[str, ...]
    missing: tuple[str, ...]
    rejected: dict[str, int]
    seconds: float
    bytes_received: int


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


@dataclass(frozen=True, eq=False)
class FederatedFit:
    """What a study gave.

    Attributes
    ----------
    terms : Terms
    weights : SparseWeights
        As the study remembers them; the last line is the intercept, times its constant column, where there is one.
    rounds : tuple of RoundRecord
        Of this run of the server.
    clients : tuple of Enrolled
        Who enrolled, and what each promised its own people.
    privacy : PrivacyReport
        The promise to everybody: the largest of the clients' promises, since each person is at one client.
    """

    terms: Terms
    weights: SparseWeights
    rounds: tuple[RoundRecord, ...]
    clients: tuple[Enrolled, ...]
    privacy: PrivacyReport

    def model(self) -> Any:
        """The fitted estimator of a linear study, to predict with and to save.

        Returns
        -------
        SparseClassifier or SparseRegressor
        """
        linear = self.terms.model
        if not isinstance(linear, LinearTerms):
            raise TypeError(
                "the study fitted a network; tulle.federated.client_side.network_study.network_of makes a module of it"
            )
        from tulle.estimators.request import Fitted
        from tulle.estimators.sparse import SparseClassifier, SparseRegressor

        settings: dict[str, Any] = {
            "epsilon": self.terms.epsilon,
            "delta": self.terms.delta,
            "n_nonzero": self.terms.n_nonzero,
            "loss": linear.loss,
            "bounds": linear.bounds,
            "fit_intercept": linear.fit_intercept,
        }
        dense = self.weights.to_dense()
        d = linear.n_features
        constant = linear.intercept_value * dense[d:] if linear.fit_intercept else np.zeros((1, dense.shape[1]))
        model: Any = (SparseRegressor if linear.classes is None else SparseClassifier)(**settings)
        if linear.classes is not None:
            model.classes_ = np.unique(np.asarray(linear.classes))
        model.n_features_in_ = d
        weights = np.vstack([dense[:d], constant])
        model._keep(Fitted(weights, None, self.terms.steps, self._passes(), self.terms.steps, self.privacy))
        return model

    def _passes(self) -> float:
        """About how often each row was read, of the client that read its rows most often."""
        terms = self.terms
        return max(
            (
                (terms.steps * client.batch + terms.rounds * terms.count_snapshot_rows(client.n_rows)) / client.n_rows
                for client in self.clients
            ),
            default=0.0,
        )


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
        A round counts if so many answer, at least 1; else the same round is asked again.
    seconds : float, default=60.0
        How long a round waits for answers, > 0.
    patience : float, default=600.0
        How long to wait until `min_clients` answer before `StudyStoppedError`, > 0.
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
            clients = tuple(weighting)  # nobody else takes part
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
        self._asked: set[str] = set()  # connections that have said whether they take part
        self._may_have_billed: set[str] = set()  # connections that were asked to enrol, and did not refuse
        self._enrolled: dict[str, Enrolled] = {}  # by connection
        self._known: dict[str, Enrolled] = {}  # by name, of all who ever took part
        self._rejected: Counter[str] = Counter()
        self.counts = StudyCounts(terms.rounds)
        self._read()  # a journal of another study is told before anybody is waited for

    @property
    def may_be_billed(self) -> bool:
        """Whether a client may have billed the study: one that was asked to enrol and did not refuse, now or in an
        earlier run of the same journal."""
        return self.terms.budget is not None and bool(self._may_have_billed or self._known)

    def run(self, link: Link) -> FederatedFit:
        """Run the study, or what is left of it.

        Parameters
        ----------
        link : Link

        Returns
        -------
        FederatedFit

        Raises
        ------
        StudyStoppedError
            Where fewer than `min_clients` answered for longer than `patience`.
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
        self._rejected = Counter()
        received = attempts = 0
        while True:
            self._enrol(link)
            waiting = [at for at in link.connected() if self._is_waited_for(at, updates)]
            for at, raw in link.ask(question, waiting, self._seconds):
                update = self._received(at, raw, number)
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

    def _enrol(self, link: Link) -> None:
        """Ask those who are new to take part."""
        new = [at for at in link.connected() if at not in self._asked]
        if not new:
            return
        self._may_have_billed.update(new)  # before it is sent: an answer may be lost
        for at, raw in link.ask(encode(Enrol(self.terms, self._invited())), new, self._seconds):
            self._asked.add(at)  # anyone who refuses is not asked again; anyone who is late is
            about = self._message(raw, Enrolled)
            if about is None:
                if _is_refusal(raw):
                    self._may_have_billed.discard(at)
                continue
            if about.study != self.terms.digest or not self._keeps_terms(about):
                self._rejected["other terms"] += 1
            elif self._allowed is not None and about.client not in self._allowed:
                self._rejected["unknown client"] += 1
            else:
                # A client that came back has another connection; the old one no longer speaks for it.
                self._enrolled = {other: told for other, told in self._enrolled.items() if told.client != about.client}
                self._enrolled[at] = about
                self._known[about.client] = _worse(self._known.get(about.client, about), about)

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

    def _received(self, at: str, raw: bytes, number: int) -> Update | None:
        """The update in some bytes, if it counts."""
        update = self._message(raw, Update)
        if update is None:
            return None
        terms = self.terms
        if update.client != self._enrolled[at].client:
            self._rejected["unknown client"] += 1
        elif update.study != terms.digest or update.number != number:
            self._rejected["other round"] += 1
        elif not self._possible(update.weights):
            self._rejected["impossible"] += 1
        else:
            return update
        return None

    def _possible(self, weights: SparseWeights) -> bool:
        """Whether a client that keeps to the terms can have such a model."""
        keep = self.terms.model.threshold(self.terms.remembered)
        features = weights.values[weights.lines < keep.free_from]
        # As a client accepts them of a server: one client's numbers must not make all others refuse.
        finite = weights.shape == self.terms.model.shape and bool(np.all(np.abs(weights.values) <= LARGEST_WEIGHT))
        return finite and int(np.count_nonzero(features, axis=0).max(initial=0)) <= keep.keep

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
        decode(raw, (Refused,))
    except WireError:
        return False
    return True


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
