"""The server of a study of masked sums: it runs an ordinary method on noisy sums, and can read nothing else.

    terms = MaskedTerms("readmission", linear_terms(40, step=1.0, ...), epsilon=1.0, delta=1e-6, least=3, ...)
    fit = MaskedServer(terms, HardThresholding(noise="gaussian")).run(link)

No client is billed before enough clients are willing, and have checked each other's seats and the plan. All that the
server does is post-processing of sums that carry the noise of all members. Proof: docs/proofs/masked_sums.md.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from tulle.accounting.gaussian_budget import gaussian_mu
from tulle.federated.certificates import check_certificate, fingerprint, read_certificate, verify_signature
from tulle.federated.client_side.masked_plan import plan_shares
from tulle.federated.client_side.masked_reports import describe_unit, masked_report
from tulle.federated.client_side.masked_study import RowsOfOne
from tulle.federated.client_side.noise_share import GaussianShare, GridOnly
from tulle.federated.link import Link
from tulle.federated.masked_terms import (
    Begin,
    EndStudy,
    MaskedTerms,
    Propose,
    Review,
    Seat,
    Seated,
    Study,
)
from tulle.federated.messages import Refused, check_name
from tulle.federated.question_data import pack
from tulle.federated.server_side.linear_model_of_study import make_linear_model
from tulle.federated.server_side.masked_journal import MaskedJournal
from tulle.federated.server_side.masked_sums import MaskedClients, MaskedSums, SumRecord
from tulle.federated.server_side.server import StudyStoppedError
from tulle.methods.base import Method
from tulle.monitoring.log_events import log_event
from tulle.reports.report import PrivacyReport
from tulle.reports.words import warn_of_large_epsilon
from tulle.trusted.clipped_sum import ClippedSum
from tulle.trusted.curator import Curator
from tulle.trusted.events import FloatArray
from tulle.trusted.facts import PublicFacts
from tulle.trusted.gaussian import gaussian_epsilon
from tulle.trusted.mechanisms import Then
from tulle.trusted.plan import Budget, Plan, PlanError
from tulle.trusted.queries import Query
from tulle.trusted.rows import Block, Rows


@dataclass(frozen=True, eq=False)
class MaskedFit:
    """What a study of masked sums gave.

    Attributes
    ----------
    study : Study
        Terms, seats and plan.
    weights : array of shape (features + 1, outputs)
        The last line is the intercept, 0 without one.
    n_nonzero : int
        How many weights were kept for each output.
    records : tuple of SumRecord
        One for each question of this run of the server.
    privacy : PrivacyReport
    """

    study: Study
    weights: FloatArray
    n_nonzero: int
    records: tuple[SumRecord, ...]
    privacy: PrivacyReport

    def model(self) -> Any:
        """The fitted estimator, to predict with and to save.

        Returns
        -------
        SparseClassifier or SparseRegressor
        """
        terms, answers = self.study.terms, sum(release.count for release in self.study.plan.releases)
        return make_linear_model(
            terms.model, terms.budget, self.n_nonzero, self.weights, answers, float(answers), self.privacy
        )


class MaskedServer:
    """Runs a study of masked sums over a link.

    Parameters
    ----------
    terms : MaskedTerms
    method : Method or None, default=None
        Any method whose releases are all Gaussian sums over all rows or Poisson batches. None: one that the number of
        rows and features speaks for (`tulle.methods.masked_default`).
    n_nonzero : int or None, default=None
        How many weights the model keeps for each output, at least 1. None: the method's default.
    clients : sequence of str or None, default=None
        The names of those who may take part, all of whom are waited for; None: anyone whom the authority certifies.
    n_clients : int or None, default=None
        Where `clients` is None: how many to wait for. None: as many as the smallest set needs.
    authority : path
        The certificate of the study's certificate authority, PEM.
    journal : path or None, default=None
        A folder for what must outlive the process. If there is a study in it, that goes on where it stopped.
    seconds : float, default=60.0
        How long a set of clients is waited for before fewer are asked, > 0.
    patience : float, default=600.0
        How long to wait for enough clients before `StudyStoppedError`, > 0.
    progress : callable or None, default=None
        Called with each `SumRecord`.
    """

    def __init__(
        self,
        terms: MaskedTerms,
        method: Method | None = None,
        *,
        authority: str | os.PathLike[str],
        n_nonzero: int | None = None,
        clients: Sequence[str] | None = None,
        n_clients: int | None = None,
        journal: str | os.PathLike[str] | None = None,
        seconds: float = 60.0,
        patience: float = 600.0,
        progress: Callable[[SumRecord], None] | None = None,
    ) -> None:
        if not isinstance(terms, MaskedTerms):
            raise TypeError(f"a masked study needs MaskedTerms, got {terms!r}")
        if not (seconds > 0 and patience > 0):
            raise ValueError(f"seconds and patience must be > 0, got {seconds!r} and {patience!r}")
        if n_nonzero is not None and not (type(n_nonzero) is int and n_nonzero >= 1):
            raise ValueError(f"n_nonzero must be an integer >= 1 or None, got {n_nonzero!r}")
        self._clients = None if clients is None else tuple(sorted({check_name(name) for name in clients}))
        wanted = terms.least if n_clients is None else n_clients
        self._wanted = wanted if self._clients is None else len(self._clients)
        if self._wanted < terms.least:
            raise ValueError(f"{self._wanted} clients, and the smallest set has {terms.least}; name more clients")
        self._authority = read_certificate(Path(authority).read_bytes())
        if fingerprint(self._authority) != terms.authority:
            raise ValueError("the terms name another certificate authority than the file holds")
        warn_of_large_epsilon(terms.epsilon)
        self.terms, self._method, self._n_nonzero = terms, method, n_nonzero
        self._seconds, self._patience, self._progress = seconds, patience, progress
        self._journal = None if journal is None else MaskedJournal(Path(journal), terms)
        self.may_be_billed = False

    def run(self, link: Link) -> MaskedFit:
        """Run the study, or the rest of it.

        Raises
        ------
        StudyStoppedError
            Where too few clients take part or answer. Before the first question it is possible that no client has been
            billed: `may_be_billed` says so.
        ValueError
            Where another server runs the study of the journal.
        """
        with nullcontext() if self._journal is None else self._journal.held():
            return self._run(link)

    def _run(self, link: Link) -> MaskedFit:
        clients = MaskedClients(link, self._seconds, self._patience)
        study = None if self._journal is None else self._journal.study
        begun = study is not None
        if study is None:
            study = self._agree(clients)
        public, method = self._prepare(study.seats)
        self.may_be_billed = True
        if self._journal is not None:
            words = f"{public.n_nonzero} weights, {' '.join(repr(method).split())}"
            if begun:
                self._journal.check_settings(words)
            else:
                self._journal.begin(study, words)
        answers = _Answers(study, clients, public, self._journal, self._progress)
        weights = np.asarray(method.run(answers.ask, public))
        clients.ask(EndStudy(study.digest), list(clients.connections().values()), self._seconds)
        log_event(__name__, "federated.end", study=study.digest, n_rounds=answers.number)
        total = f"{len(study.seats)} clients with {study.n_rows:,} rows in all"
        words = f"{method.describe(public)}; {self.terms.describe()}; {total}"
        report = masked_report(study, describe_unit(study), words, answers.seeded, more=method.assumptions(public))
        return MaskedFit(study, weights, public.n_nonzero, tuple(answers.records), report)

    # --- before anybody is billed ---

    def _agree(self, clients: MaskedClients) -> Study:
        """The study that enough clients are willing to take part in, and have checked."""
        end = time.monotonic() + self._patience
        seats: dict[str, Seat] = {}
        refused: dict[str, str] = {}
        asked: set[str] = set()  # connections that have refused: a client that comes back is asked again
        while len(seats) < self._wanted and time.monotonic() < end:
            at = clients.connections()
            names = [name for name in at if self._clients is None or name in self._clients]
            waiting = [at[name] for name in names if name not in seats and at[name] not in asked]
            for connection, reply in clients.ask(Propose(self.terms), waiting, self._seconds):
                if isinstance(reply, Refused):
                    refused[reply.client] = f"{reply.why}: {reply.text}"
                    asked.add(connection)
                elif isinstance(reply, Seated) and self._is_certified(reply.seat):
                    seats[reply.client] = reply.seat
            if len(seats) < self._wanted:
                time.sleep(0.1)
        while True:
            if len(seats) < self.terms.least:
                log_event(__name__, "federated.stopped", round=0, answered=len(seats))
                raise StudyStoppedError(
                    f"{len(seats)} clients are willing to take part, and {self.terms.least} are needed; no client was "
                    f"billed; start more clients{_words(refused)}"
                )
            named = tuple(seats[name] for name in sorted(seats))
            study = Study(self.terms, named, self._plan(named))
            said, no = clients.ask_clients(Review(study), list(seats), self.terms.least)
            if len(said) == len(seats):
                return study
            refused |= no
            seats = {name: seat for name, seat in seats.items() if name in said}

    def _is_certified(self, seat: Seat) -> bool:
        """A seat that other clients would refuse is left out, or it would keep all of them from the study."""
        try:
            certificate = read_certificate(bytes.fromhex(seat.certificate))
            check_certificate(certificate, self._authority, seat.client)
            verify_signature(certificate, seat.statement, bytes.fromhex(seat.signature))
        except ValueError:
            return False
        return seat.terms == self.terms.digest

    def _prepare(self, seats: Sequence[Seat]) -> tuple[PublicFacts, Method]:
        """The public facts of a study with these seats, and the method for them."""
        terms, n_rows = self.terms, sum(seat.n_rows for seat in seats)
        public = replace(terms.model.public(n_rows, terms.rows_per_person), budget=terms.budget)
        known = self._choose(public)
        # Steps and numbers of weights are for the noise that there will be: more than the budget needs, where shares
        # are for fewer clients than take part, and where retries are paid for.
        weights = [(release.count, release.mechanism.noise.inverse**2) for release in known[1].releases(known[0])]
        used = sum(count * weight for count, weight in weights)
        paid = sum((count + terms.retries) * weight for count, weight in weights)
        if terms.shares == len(seats) and not terms.retries:
            return known
        mu = gaussian_mu(terms.epsilon, terms.delta) * math.sqrt(used / paid * terms.shares / len(seats))
        left = max(gaussian_epsilon(mu, terms.delta), 1e-3 * terms.epsilon)  # a mu that delta alone pays for has none
        return self._choose(replace(public, budget=Budget(left, terms.delta)))

    def _choose(self, public: PublicFacts) -> tuple[PublicFacts, Method]:
        method = self._method
        if method is None:
            from tulle.methods.masked_default import masked_default

            method = masked_default(public)
        chosen = min(self._n_nonzero or method.default_nonzero(public), public.n_features)
        public = replace(public, n_nonzero=chosen)
        return public, method.resolve(public)

    def _plan(self, seats: Sequence[Seat]) -> Plan:
        public, method = self._prepare(seats)
        return plan_shares(method.releases(public), self.terms, public.n_rows)


def _words(refused: Mapping[str, str]) -> str:
    return "".join(f"; client {name!r} refuses ({why})" for name, why in sorted(refused.items()))


class _Answers:
    """What a method asks: each question becomes a masked sum."""

    def __init__(
        self,
        study: Study,
        clients: MaskedClients,
        public: PublicFacts,
        journal: MaskedJournal | None,
        progress: Callable[[SumRecord], None] | None,
    ) -> None:
        self._study, self._public, self._journal, self._progress = study, public, journal, progress
        self._clients, self._has_begun = clients, False
        self.seeded = journal is not None and journal.seeded  # whether any client draws its noise from a seed
        self._plan = {release.name: release for release in study.plan.releases}
        pending = None if journal is None else journal.pending
        retries = 0 if journal is None else journal.retries
        note = (lambda asked, retries: None) if journal is None else journal.note
        self._sums = MaskedSums(study, clients, note, pending, retries)
        self.number = 0
        self.records: list[SumRecord] = []

    def ask(self, name: str, query: Query, then: Then | None = None) -> Any:
        """The answer to a query, as a method asks it: a function of one masked sum."""
        release = self._plan.get(name)
        if release is None:
            raise PlanError(f"the method asks for {name!r}, which is not in its plan")
        share = release.mechanism
        assert isinstance(share, GaussianShare)
        batches = share.batches
        public = self._public if batches is None else replace(self._public, n_rows=batches.batch)
        rows = _RowsAtClients(self, name, public.n_rows)
        answer = query.resolve(public).evaluate(rows, public)
        return answer if then is None else then(answer)

    def mean(self, name: str, query: ClippedSum) -> FloatArray:
        """The noisy mean that a clipped sum stands for, of all clients' rows."""
        self.number += 1
        kept = None if self._journal is None else self._journal.read_answer(self.number)
        shape = (1, query.shape[1]) if query.coordinates is not None else query.shape
        if kept is None:
            self._begin()
            grid, most = self._grid(name, query)
            size = int(np.prod(shape))
            kept, record = self._sums.ask(self.number, name, pack(query), grid, most, size)
            if self._journal is not None:
                self._journal.write_answer(self.number, kept)
            self.records.append(record)
            if self._progress is not None:
                self._progress(record)
        return np.array(kept).reshape(shape)

    def _begin(self) -> None:
        """Have all clients bill the study, before its first question of this run. Sums that are all in the journal need
        no client: they may have left, or have been told that the study is over."""
        if self._has_begun:
            return
        study, least = self._study, self._study.terms.least
        said, refused = self._clients.ask_clients(Begin(study), [seat.client for seat in study.seats], least)
        self.seeded |= any(one.seeded for one in said.values())
        if len(said) < least:
            raise StudyStoppedError(
                f"{len(said)} clients began the study, and {least} are needed; those who began have billed it"
                f"{_words(refused)}; start the missing clients, and run it again from its journal"
            )
        if self._journal is not None:
            self._journal.note_seeded(self.seeded)
        self._has_begun = True
        log_event(__name__, "federated.begin", study=study.digest, n_clients=len(study.seats))

    def _grid(self, name: str, query: ClippedSum) -> tuple[float, float]:
        """The grid and the largest sum, as a client's curator finds them, with a row that counts as nothing."""
        nothing = Rows(sp.csr_array((1, self._public.n_features)), np.zeros(1), np.zeros(1, dtype=bool))
        plan = Plan((replace(self._plan[name], count=1),))
        curator = Curator(RowsOfOne.of_blocks(nothing.blocks), self._public, plan, np.random.default_rng(0))
        grid, most = curator.ask(name, query, then=GridOnly(len(self._study.seats)))
        return grid, most


class _RowsAtClients(Rows):
    """The rows of all clients, as a query sees them: one noisy sum over all of them."""

    def __init__(self, answers: _Answers, name: str, n_rows: int) -> None:
        self._answers, self._name, self._n_rows = answers, name, n_rows

    def only_block(self) -> Block | None:
        return None

    def reduce(self, contribution: Callable[[Block], Any], combine: Callable[[Any, Any], Any] | None = None) -> Any:
        function = getattr(contribution, "func", contribution)
        of = getattr(function, "__self__", None)
        if type(of) is not ClippedSum or getattr(function, "__name__", "") != "_contribution":
            raise TypeError(f"clients answer clipped sums under masks, and {contribution!r} is none")
        return self._answers.mean(self._name, of) * self._n_rows
