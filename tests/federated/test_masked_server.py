"""The server of masked sums: methods run on sums, drop-outs are asked again, nobody is billed in vain."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from masked_house import NAMES, D, Hospitals, join_all, rows_of, said

from tulle import Bounds, Budget, FileLedger, SparseClassifier, SparseRegressor
from tulle.fast.sparse_weights import SparseWeights
from tulle.federated.client_side.client import Client
from tulle.federated.client_side.linear_study import linear_terms
from tulle.federated.client_side.masked_study import MASKED_CLASSES
from tulle.federated.encoding import decode, encode
from tulle.federated.link import DirectLink, Link
from tulle.federated.masked_terms import Accepted, AskName, AskSum, Begin, EndStudy, MaskedAnswer, Propose
from tulle.federated.messages import Refused
from tulle.federated.server_side.masked_server import MaskedFit, MaskedServer
from tulle.federated.server_side.masked_simulation import simulate_masked
from tulle.federated.server_side.masked_sums import MaskedClients
from tulle.federated.server_side.server import StudyStoppedError
from tulle.methods import CoordinateDescent, HardThresholding, ScreenRefine, StochasticHardThresholding
from tulle.survival.person_periods import expand_periods
from tulle.trusted.accountants import epsilon
from tulle.trusted.events import NoisePerSensitivity
from tulle.trusted.mechanisms import Gaussian
from tulle.trusted.plan import Plan, Release

pytestmark = pytest.mark.usefixtures("no_power_cuts")

METHOD = HardThresholding(n_iter=4, noise="gaussian", step=1.0)


@pytest.fixture
def hospitals(tmp_path: Path) -> Hospitals:
    return Hospitals(tmp_path)


@dataclass
class FlakyLink(Link):
    """Clients in this process, some of which do not hear, or do not answer, some questions."""

    clients: dict[str, Any]
    # Questions, by their number or by number and attempt, that never reach a client.
    deaf: dict[str, set[Any]] = field(default_factory=dict)
    mute: dict[str, set[int]] = field(default_factory=dict)  # and those whose first answer is lost on its way
    sent: list[tuple[str, Any, bytes]] = field(default_factory=list)

    def connected(self) -> tuple[str, ...]:
        return tuple(self.clients)

    def ask(self, message: bytes, whom: Sequence[str], seconds: float) -> Iterator[tuple[str, bytes]]:
        number, attempt = question_number(message)
        for name in whom:
            if self.deaf.get(name, set()) & {number, (number, attempt)}:
                continue
            if name not in self.clients:  # it has left meanwhile
                continue
            answered = self.clients[name](message)
            self.sent.append((name, number, answered))
            if number in self.mute.get(name, ()):
                self.mute[name].discard(number)
                continue
            yield name, answered


def question_number(raw: bytes) -> tuple[int | None, int | None]:
    message = decode(raw, MASKED_CLASSES)
    return (message.number, message.attempt) if isinstance(message, AskSum) else (None, None)


def link_of(clients: dict[str, Client], **flaws: Any) -> FlakyLink:
    return FlakyLink({name: client.answer for name, client in clients.items()}, **flaws)


def server(hospitals: Hospitals, terms: Any, method: Any = METHOD, **other: Any) -> MaskedServer:
    settings = {"authority": hospitals.authority, "n_nonzero": 2, "seconds": 0.2, "patience": 1.0}
    return MaskedServer(terms, method, **(settings | {"clients": hospitals.names} | other))


def outcome(one: MaskedServer, link: Link) -> MaskedFit | str:
    """What a study gives, or why it ends without a model."""
    try:
        return one.run(link)
    except (StudyStoppedError, AttributeError) as error:
        return str(error)


# --- a whole study ---------------------------------------------------------------------------------------------------


def test_a_study_gives_a_model_and_every_ledger_has_its_plan(hospitals: Hospitals) -> None:
    terms = hospitals.terms(epsilon=8.0)
    fit = server(hospitals, terms).run(link_of(hospitals.start_all()))
    assert isinstance(fit, MaskedFit)
    assert 0.99 * 8.0 <= fit.privacy.epsilon == epsilon(fit.study.plan, terms.delta) <= 8.0
    assert len(fit.records) == 4
    assert all(record.members == NAMES and record.attempts == 1 for record in fit.records)
    for name in NAMES:
        (entry,) = hospitals.entries(name)
        assert fit.study.digest in entry.what
    model = fit.model()
    assert np.count_nonzero(model.coef_) <= 2
    assert model.predict(rows_of("ada")[0]).shape == (40,)
    assert "Trust model: masked sums" in str(fit.privacy)


PARTS = {name: rows_of(name, 400) for name in NAMES[:3]}
MODEL = linear_terms(D, step=1.0, classes=("a", "b"), row_l2=2.0)


@pytest.mark.parametrize(
    "method",
    [
        HardThresholding(noise="gaussian"),
        StochasticHardThresholding(batch=100),
        StochasticHardThresholding(variant="scsg", batch=50),
    ],
)
def test_methods_run_on_masked_sums_as_on_rows_in_memory(method: Any) -> None:
    """With little noise both come to the same model, whatever is drawn."""
    fit = simulate_masked(MODEL, PARTS, epsilon=300.0, delta=1e-4, method=method, n_nonzero=2, seed=0)
    X, y = (np.concatenate([part[k] for part in PARTS.values()]) for k in (0, 1))
    central = SparseClassifier(300.0, 1e-4, method=method, n_nonzero=2, bounds=Bounds(row_l2=2.0), random_state=0)
    central.fit(X, y)
    model = fit.model()
    assert np.array_equal(np.flatnonzero(model.coef_), np.flatnonzero(central.coef_))
    assert np.mean(model.predict(X) == central.predict(X)) > 0.97
    assert [line.count for line in fit.privacy.bill] == [line.count for line in central.privacy_.bill]


def test_moments_of_a_regression_run_on_masked_sums() -> None:
    parts = {name: (rows_of(name, 400)[0], rows_of(name, 400)[0] @ [0, 1, 0, 0, -1, 0]) for name in NAMES[:3]}
    model = linear_terms(D, step=1.0, loss="squared", row_l2=2.0, label=2.0)
    method = ScreenRefine(noise="gaussian", refinement="statistics", rescale_share=0.0)
    fit = simulate_masked(model, parts, epsilon=50.0, delta=1e-4, method=method, n_nonzero=2, seed=0)
    assert isinstance(fit.model(), SparseRegressor)
    assert sorted(np.flatnonzero(fit.model().coef_)) == [1, 4]
    assert fit.model().score(*parts["ada"]) > 0.9
    assert len(fit.records) == 3  # start, screening and moments


def test_hazards_run_on_masked_sums_of_person_periods() -> None:
    """Three periods: people with large x[0] have their event early."""
    edges, parts = (0.0, 1.0, 2.0, 3.0), {}
    rng = np.random.default_rng(0)
    for name in NAMES[:3]:
        X = rng.uniform(-1, 1, (400, 4))
        times = rng.exponential(np.exp(-3 * X[:, 0]))
        rows = expand_periods(X, np.column_stack([times, np.ones(400)]), edges, period_value=2.0, half_periods=False)
        # Rows that count as nothing have a label of no class.
        parts[name] = (rows.X, np.array([-1 if one is None else one for one in rows.y]), rows.groups)
    model = linear_terms(7, step=1.0, fit_intercept=False, classes=(0, 1), row_l2=2.9)
    method = HardThresholding(noise="gaussian", n_iter=8)
    fit = simulate_masked(model, parts, epsilon=30.0, delta=1e-5, rows_per_person=3, method=method, n_nonzero=7, seed=0)
    hazard = fit.model().coef_[0][3:]
    assert np.argmax(np.abs(hazard)) == 0
    assert hazard[0] > 0
    assert "one person with at most 3 rows" in fit.privacy.unit


@pytest.mark.parametrize(
    ("method", "text"),
    [
        (CoordinateDescent(noise="selection"), "no sum with Gaussian noise"),
        (ScreenRefine(), "no sum with Gaussian noise"),
        (StochasticHardThresholding(batch=50, sampling="without_replacement"), "sampling='poisson'"),
    ],
)
def test_methods_that_need_more_than_sums_are_refused_before_the_bill(
    hospitals: Hospitals, method: Any, text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        server(hospitals, hospitals.terms(), method).run(link_of(hospitals.start_all()))
    assert not any(hospitals.entries(name) for name in NAMES)


# --- drop-outs -------------------------------------------------------------------------------------------------------


def test_a_client_that_drops_out_costs_a_retry_and_the_study_goes_on(hospitals: Hospitals) -> None:
    clients = hospitals.start_all()
    link = link_of(clients, deaf={"cyd": {2}})
    fit = server(hospitals, hospitals.terms()).run(link)
    assert [record.attempts for record in fit.records] == [1, 2, 1, 1]
    assert [len(record.members) for record in fit.records] == [5, 4, 5, 5]
    used = {name: sum(client.masked.answered(fit.study.digest).values()) for name, client in clients.items()}
    assert used == {"ada": 5, "ben": 5, "cyd": 3, "dan": 5, "eve": 5}
    assert all(len(hospitals.entries(name)) == 1 for name in NAMES)


def test_an_answer_that_was_lost_is_sent_again_and_costs_no_retry(hospitals: Hospitals) -> None:
    clients = hospitals.start_all()
    link = link_of(clients, mute={"cyd": {2}})
    fit = server(hospitals, hospitals.terms()).run(link)
    assert [record.attempts for record in fit.records] == [1, 1, 1, 1]
    first, second = (raw for name, number, raw in link.sent if (name, number) == ("cyd", 2))
    assert first == second


def test_without_retries_left_the_study_stops_and_goes_on_from_its_journal(hospitals: Hospitals) -> None:
    clients, terms = hospitals.start_all(), hospitals.terms()
    journal = hospitals.folder / "journal"
    link = link_of(clients, deaf={"cyd": {2}, "dan": {3}})
    first = server(hospitals, terms, journal=journal, patience=0.5)
    with pytest.raises(StudyStoppedError, match=r"question 3: 4 clients answered .* 0 retries are left"):
        first.run(link)
    assert first.may_be_billed
    link.deaf = {}
    # All are started again, too; no client is billed twice.
    link.clients = {name: client.answer for name, client in hospitals.start_all().items()}
    second = server(hospitals, terms, journal=journal)
    fit = second.run(link)
    assert [record.number for record in fit.records] == [3, 4]
    assert all(len(hospitals.entries(name)) == 1 for name in NAMES)


def test_a_server_that_stops_in_a_retry_goes_on_with_the_same_set(hospitals: Hospitals) -> None:
    clients, terms = hospitals.start_all(), hospitals.terms()
    link = link_of(clients, deaf={"cyd": {2}, "dan": {(2, 2)}})
    journal = hospitals.folder / "journal"
    with pytest.raises(StudyStoppedError, match="question 2: 3 clients answered"):
        server(hospitals, terms, journal=journal, patience=0.5).run(link)
    link.deaf = {}
    try:
        records = server(hospitals, terms, journal=journal).run(link).records
    except StudyStoppedError:  # no client answers for another set
        records = ()
    assert [(record.number, record.members, record.attempts) for record in records][:1] == [
        (2, ("ada", "ben", "dan", "eve"), 2)
    ]


def test_a_server_that_is_killed_after_any_question_ends_with_the_same_sums(hospitals: Hospitals) -> None:
    clients, terms = hospitals.start_all(), hospitals.terms()
    journal = hospitals.folder / "journal"

    def killed(record: Any) -> None:
        raise KeyboardInterrupt

    link = link_of(clients)
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            server(hospitals, terms, journal=journal, progress=killed).run(link)
    fit = server(hospitals, terms, journal=journal).run(link)
    assert [record.number for record in fit.records] == [4]
    assert {number for _, number, _ in link.sent if number} == {1, 2, 3, 4}


def test_a_finished_study_gives_its_model_again_when_nobody_is_there(hospitals: Hospitals) -> None:
    """A server that is killed between its last sum and the file of the model; clients have left, or know it as over."""
    terms, journal = hospitals.terms(), hospitals.folder / "journal"
    clients = hospitals.start_all()
    link = link_of(clients)

    def seeded(raw: bytes) -> bytes:
        answer = clients["eve"].answer(raw)
        return encode(replace(decode(answer, (Accepted,)), seeded=True)) if b'"Begin"' in raw else answer

    link.clients["eve"] = seeded
    first = server(hospitals, terms, journal=journal).run(link)
    assert first.privacy.seeded
    for there in ({}, clients):
        again = outcome(server(hospitals, terms, journal=journal), link_of(there))
        assert isinstance(again, MaskedFit), again
        assert np.array_equal(again.weights, first.weights)
        assert again.privacy.seeded
    assert all(len(hospitals.entries(name)) == 1 for name in NAMES)


def test_a_journal_goes_on_with_the_method_and_the_model_that_it_began_with(hospitals: Hospitals) -> None:
    journal = hospitals.folder / "journal"
    server(hospitals, hospitals.terms(), journal=journal).run(link_of(hospitals.start_all()))
    for other in ({"n_nonzero": 3}, {"method": HardThresholding(n_iter=3, noise="gaussian", step=1.0)}):
        with pytest.raises(ValueError, match="another method or number of weights"):
            server(hospitals, hospitals.terms(), journal=journal, **other).run(link_of({}))


def test_a_journal_is_held_by_one_server_at_a_time(hospitals: Hospitals) -> None:
    """Two would ask two questions under one number. The second one neither asks nor bills anybody."""
    terms, journal = hospitals.terms(), hospitals.folder / "journal"
    link, refusals = link_of(hospitals.start_all()), []

    def start_another(record: Any) -> None:
        try:
            server(hospitals, terms, journal=journal, patience=0.1).run(link_of({}))
        except (ValueError, StudyStoppedError) as error:
            refusals.append(str(error))

    first = server(hospitals, terms, journal=journal, progress=start_another).run(link)
    assert ["another server" in why for why in refusals] == [True] * len(first.records)
    assert all(len(hospitals.entries(name)) == 1 for name in NAMES)


def test_a_server_that_waited_for_its_journal_reads_what_was_written_since(hospitals: Hospitals) -> None:
    terms, journal = hospitals.terms(), hospitals.folder / "journal"
    waiting = server(hospitals, terms, journal=journal)
    first = server(hospitals, terms, journal=journal).run(link_of(hospitals.start_all()))
    again = outcome(waiting, link_of({}))
    assert isinstance(again, MaskedFit), again
    assert np.array_equal(again.weights, first.weights)


def test_a_file_is_no_journal(hospitals: Hospitals) -> None:
    journal = hospitals.folder / "journal"
    journal.write_bytes(b"")
    with pytest.raises(ValueError, match="name another"):
        server(hospitals, hospitals.terms(), journal=journal)


def test_a_journal_of_other_terms_is_refused(hospitals: Hospitals) -> None:
    journal = hospitals.folder / "journal"
    server(hospitals, hospitals.terms(), journal=journal).run(link_of(hospitals.start_all()))
    with pytest.raises(ValueError, match="another study"):
        server(hospitals, hospitals.terms(epsilon=1.0), journal=journal)


def test_a_client_that_is_started_again_in_the_middle_goes_on(hospitals: Hospitals) -> None:
    clients = hospitals.start_all()
    link = link_of(clients)

    def restart(record: Any) -> None:
        link.clients["ben"] = hospitals.start("ben").answer

    # No client is missing, so that nothing waits so long; on a busy machine a client may need seconds to begin again.
    patient = {"seconds": 30.0, "patience": 60.0}
    fit = server(hospitals, hospitals.terms(), progress=restart, **patient).run(link)
    assert all(record.attempts == 1 for record in fit.records)
    assert len(hospitals.entries("ben")) == 1


@pytest.mark.parametrize("reply", [7, None, (), SparseWeights.zeros(2, 1)])
def test_answers_that_are_no_messages_do_not_end_a_study(hospitals: Hospitals, reply: Any) -> None:
    link = link_of(hospitals.start_all())
    honest = link.clients["eve"]
    link.clients["eve"] = lambda raw: encode(reply) if question_number(raw)[0] else honest(raw)
    fit = outcome(server(hospitals, hospitals.terms()), link)
    assert isinstance(fit, MaskedFit), fit
    assert [record.attempts for record in fit.records] == [2, 1, 1, 1]
    assert fit.records[0].rejected["malformed"] >= 1


def refusing(client: Client, kinds: tuple[bytes, ...]) -> Any:
    """A client that refuses messages of some kinds."""

    def answer(raw: bytes) -> bytes:
        return (
            encode(Refused(client.name, "failed", "no")) if any(kind in raw for kind in kinds) else client.answer(raw)
        )

    return answer


def test_a_client_that_refuses_to_begin_costs_no_retry(hospitals: Hospitals) -> None:
    """Its budget was spent since the dry run: those who have paid go on without it."""
    clients = hospitals.start_all()
    link = link_of(clients)
    link.clients["eve"] = refusing(clients["eve"], (b'"Begin"',))
    fit = outcome(server(hospitals, hospitals.terms(retries=0)), link)
    assert isinstance(fit, MaskedFit), fit
    assert all(record.members == NAMES[:4] and record.attempts == 1 for record in fit.records)
    assert all(len(hospitals.entries(name)) == (name != "eve") for name in NAMES)


def test_a_client_that_refuses_questions_costs_one_retry(hospitals: Hospitals) -> None:
    clients = hospitals.start_all()
    link = link_of(clients)
    link.clients["eve"] = refusing(clients["eve"], (b'"AskSum"',))
    fit = server(hospitals, hospitals.terms(retries=1)).run(link)
    assert [record.attempts for record in fit.records] == [2, 1, 1, 1]
    assert fit.records[0].rejected["refused: failed"] <= 2  # it is not asked ten times a second


def test_a_client_that_does_not_answer_any_more_costs_one_retry(hospitals: Hospitals) -> None:
    """It stays connected, and is busy for ever."""

    class Stuck(FlakyLink):
        def ask(self, message: bytes, whom: Sequence[str], seconds: float) -> Iterator[tuple[str, bytes]]:
            if question_number(message)[0]:
                self.deaf = {"eve": {None, 1, 2, 3, 4}}
            return super().ask(message, whom, seconds)

    clients = {name: client.answer for name, client in hospitals.start_all().items()}
    fit = server(hospitals, hospitals.terms(retries=1)).run(Stuck(clients))
    assert [record.attempts for record in fit.records] == [2, 1, 1, 1]


def test_with_enough_clients_one_that_is_gone_is_not_waited_for_with_all_patience(hospitals: Hospitals) -> None:
    """It leaves between the dry run and the bill, or before a server that was killed is there again."""
    clients = hospitals.start_all()

    class Leaving(FlakyLink):
        looks = 0

        def connected(self) -> tuple[str, ...]:
            self.looks += 1
            assert self.looks < 100, "it waits for ever"
            return super().connected()

        def ask(self, message: bytes, whom: Sequence[str], seconds: float) -> Iterator[tuple[str, bytes]]:
            if b'"Begin"' in message:
                self.clients.pop("eve", None)
            return super().ask(message, whom, seconds)

    link = Leaving({name: client.answer for name, client in clients.items()})
    fit = server(hospitals, hospitals.terms(retries=0), patience=1e9).run(link)
    assert all(record.members == NAMES[:4] for record in fit.records)


def test_a_client_that_was_started_again_forgets_its_key_at_the_end(hospitals: Hospitals) -> None:
    """Nothing was asked of it in between: it knows the study from what it wrote down alone."""
    clients = hospitals.start_all()
    study = join_all(clients, hospitals.terms())
    key = hospitals.folder / "ben" / "state" / f"{study.terms.digest}.mask-key"
    assert key.exists()
    again = hospitals.start("ben")
    assert isinstance(said(again, EndStudy(study.digest)), Accepted)
    assert not key.exists()
    reply = said(again, Begin(study))
    assert isinstance(reply, Refused)


# --- who takes part --------------------------------------------------------------------------------------------------


def test_an_unmet_quorum_bills_nobody(hospitals: Hospitals) -> None:
    clients = {name: hospitals.start(name) for name in NAMES[:2]}
    one = server(hospitals, hospitals.terms(), patience=0.3)
    with pytest.raises(StudyStoppedError, match=r"2 clients are willing.* no client was billed"):
        one.run(link_of(clients))
    assert not one.may_be_billed
    assert not any(hospitals.entries(name) for name in NAMES)


def test_those_who_refuse_are_left_out_if_enough_remain(hospitals: Hospitals) -> None:
    clients = hospitals.start_all()
    clients["eve"] = hospitals.start("eve", max_epsilon=0.1)
    fit = server(hospitals, hospitals.terms(), patience=0.5).run(link_of(clients))
    assert [seat.client for seat in fit.study.seats] == list(NAMES[:4])
    assert not hospitals.entries("eve")


def test_a_client_that_comes_back_with_an_approval_is_asked_again(hospitals: Hospitals) -> None:
    """A steward reads the terms in what the client says as it refuses them, and starts it again."""
    terms = hospitals.terms()
    clients = hospitals.start_all(approved=[terms.digest])
    clients["eve"] = hospitals.start("eve", approved=[])
    link = link_of(clients)

    def refuse_and_leave(raw: bytes) -> bytes:
        answer = clients["eve"].answer(raw)
        if b'"Propose"' in raw:
            del link.clients["eve"]
            link.clients["eve, later"] = hospitals.start("eve", approved=[terms.digest]).answer
        return answer

    link.clients["eve"] = refuse_and_leave
    fit = server(hospitals, terms, patience=2.0).run(link)
    assert [seat.client for seat in fit.study.seats] == list(NAMES)


def test_the_dry_run_sees_what_other_processes_have_spent(hospitals: Hospitals) -> None:
    """Else a client says yes, the others pay, and it refuses the bill."""
    clients = hospitals.start_all()
    other = FileLedger(hospitals.folder / "eve" / "ledger", "rows")
    plan = Plan((Release("fit", Gaussian(NoisePerSensitivity(0.35)), 1),))
    other.bill("another study", (plan,), (9.9, 1e-3))
    reply = said(clients["eve"], Propose(hospitals.terms()))
    assert isinstance(reply, Refused)
    assert reply.why == "cap"


def test_a_client_that_cannot_pay_when_it_comes_to_it_is_left_out_before_the_bill(hospitals: Hospitals) -> None:
    """It was willing, and refuses the study: the others are asked again, and only then billed."""
    clients = hospitals.start_all()
    link = link_of(clients)
    willing = clients["eve"].answer

    def changed(raw: bytes) -> bytes:
        return willing(raw) if b'"Propose"' in raw or b'"AskName"' in raw else Client.answer(bare, raw)

    bare = hospitals.start("eve", identity=None)
    link.clients["eve"] = changed
    fit = server(hospitals, hospitals.terms()).run(link)
    assert [seat.client for seat in fit.study.seats] == list(NAMES[:4])
    assert all(len(hospitals.entries(name)) == (name != "eve") for name in NAMES)


def test_a_seat_that_is_not_certified_is_left_out(hospitals: Hospitals, tmp_path: Path) -> None:
    false = Hospitals(tmp_path / "false", names=("zoe",))
    clients = hospitals.start_all()
    identity = replace(false.identity("zoe"), authority=hospitals.identity("ada").authority)
    X, y = rows_of("ada")
    impostor = false.start("zoe", identity=identity, X=X, y=y)
    link = link_of(clients | {"zoe": impostor})
    fit = server(hospitals, hospitals.terms(), clients=None, n_clients=6, patience=0.5).run(link)
    assert [seat.client for seat in fit.study.seats] == list(NAMES)


def test_a_name_that_the_transport_does_not_certify_is_not_believed(hospitals: Hospitals) -> None:
    class Certified(FlakyLink):
        def certified_name(self, connection: str) -> str | None:
            return connection

    clients = hospitals.start_all()
    # It comes first, and would have the seat where names are believed.
    link = Certified({"mallory": clients["ada"].answer, **{name: client.answer for name, client in clients.items()}})
    fit = server(hospitals, hospitals.terms()).run(link)
    assert {name for name, number, _ in link.sent if number} == set(NAMES)
    assert len(fit.records) == 4


def test_a_client_does_not_speak_on_another_ones_connection(hospitals: Hospitals) -> None:
    """Ada's answers come on the connection that eve has proved to be hers."""

    class Certified(FlakyLink):
        def certified_name(self, connection: str) -> str | None:
            return connection

    clients = hospitals.start_all()
    answers = {name: client.answer for name, client in clients.items() if name != "ada"}
    link = Certified({**answers, "eve": clients["ada"].answer})
    reached = MaskedClients(link, 1.0, 1.0)
    assert reached.connections()["eve"] == "eve"
    assert reached.ask(AskName(), ["eve"], 1.0) == []
    assert reached.rejected == {"unknown client": 1}
    fit = server(hospitals, hospitals.terms(), clients=None, n_clients=4, patience=0.5).run(link)
    assert [seat.client for seat in fit.study.seats] == ["ben", "cyd", "dan"]


def test_a_wrong_answer_stops_the_study_with_a_message(hospitals: Hospitals) -> None:
    """One client's numbers: masks do not cancel, and the sum is beyond its bound (with a chance of 1 - 1e-9)."""
    clients = hospitals.start_all()
    link = link_of(clients)
    honest = clients["eve"].answer

    def spoiling(raw: bytes) -> bytes:
        reply = decode(honest(raw), REPLIES) if question_number(raw)[0] else None
        if not isinstance(reply, MaskedAnswer):
            return honest(raw)
        return encode(replace(reply, values=np.full_like(reply.values, 2**61)))

    from masked_house import MASKED_REPLIES, Refused, Seat

    REPLIES = (*MASKED_REPLIES, Seat, Refused)
    link.clients["eve"] = spoiling
    with pytest.raises(StudyStoppedError, match="none that clients of these terms can have"):
        server(hospitals, hospitals.terms()).run(link)


@pytest.mark.parametrize(
    "wrong",
    [
        {"seconds": 0.0},
        {"patience": -1.0},
        {"n_nonzero": 0},
        {"clients": ("ada", "ben")},
        {"clients": None, "n_clients": 2},
    ],
)
def test_settings_of_no_server(hospitals: Hospitals, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must be|name more clients"):
        server(hospitals, hospitals.terms(), **wrong)


def test_an_authority_that_is_not_that_of_the_terms(hospitals: Hospitals) -> None:
    with pytest.raises(ValueError, match="another certificate authority"):
        server(hospitals, hospitals.terms(authority="0" * 64))


def test_core_modules_need_no_cryptography_until_a_study_begins() -> None:
    import subprocess

    code = "import tulle.federated, sys; sys.exit('cryptography' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0


def test_direct_links_certify_nothing(hospitals: Hospitals) -> None:
    client = hospitals.start("ada")
    link = DirectLink({"ada": client.answer})
    assert link.certified_name("ada") is None
    assert said(client, Propose(hospitals.terms())).client == "ada"
    assert Budget(1.0).delta == 0
