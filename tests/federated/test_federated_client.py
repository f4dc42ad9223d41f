"""A client of a study: its rounds, each once, what it refuses, and a whole study against the books."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from client_house import REPLIES, SOME, TERMS, ZERO, D, House, N, X, Y, answer, ask, enrol, refused, said, weights
from hypothesis import given, settings
from hypothesis import strategies as st

from tulle import Budget, FileLedger
from tulle.fast.sparse_weights import SparseWeights
from tulle.federated.client_side.client import Client
from tulle.federated.client_side.linear_study import LinearTerms
from tulle.federated.encoding import MAGIC, decode, encode
from tulle.federated.link import DirectLink
from tulle.federated.messages import AskWilling, Enrol, Enrolled, Refused, Round, Update, Willing
from tulle.federated.questions import AskLabels, AskShape
from tulle.federated.server_side.server import Server, StudyStoppedError
from tulle.federated.server_side.simulation import simulate
from tulle.federated.terms import Terms
from tulle.reports.report import PrivacyReport
from tulle.trusted.accountants import proof
from tulle.trusted.clipped_sum import ClippedSum
from tulle.trusted.curator import Curator
from tulle.trusted.plan import Plan

pytestmark = pytest.mark.usefixtures("no_power_cuts")


# --- rounds: each once -----------------------------------------------------------------------------------------------


def test_the_last_round_is_sent_again_bit_for_bit_to_the_same_question_only(house: House) -> None:
    client = house.start()
    enrol(client)
    question = encode(Round(TERMS.digest, 1, ZERO))
    first = client.answer(question)
    assert client.answer(question) == first
    restarted = house.start()
    enrol(restarted)
    assert restarted.answer(question) == first
    for other in (SOME, SparseWeights.from_dense(1e-300 * SOME.to_dense())):
        refused(ask(client, 1, other), "answered")
    answer(client, 2)
    refused(decode(client.answer(question), REPLIES), "answered")  # it keeps one answer, and gives no second one
    assert client.answered(TERMS.digest) == (1, 2)


@pytest.mark.parametrize("number", [0, -1, 4, 2**70, -(2**70)])
def test_rounds_that_the_study_does_not_have_are_refused(house: House, number: int) -> None:
    client = house.start()
    enrol(client)
    before = house.files
    refused(ask(client, number), "out of turn")
    assert house.files == before


@pytest.mark.parametrize("number", ["true", "1.0", '"1"', "null", '{"float":"inf"}', "1e0"])
def test_numbers_that_are_none_are_refused(house: House, number: str) -> None:
    client = house.start()
    enrol(client)
    raw = encode(Round(TERMS.digest, 1, ZERO))
    changed = raw.replace(b'"number":1', f'"number":{number}'.encode())
    head = len(MAGIC)
    length = int.from_bytes(raw[head : head + 8], "little") + len(changed) - len(raw)
    changed = changed[:head] + length.to_bytes(8, "little") + changed[head + 8 :]
    refused(decode(client.answer(changed), REPLIES), "malformed")
    answer(client, 1)


def test_rounds_may_be_missed_and_are_then_gone(house: House) -> None:
    client = house.start()
    enrol(client)
    answer(client, 2)
    refused(ask(client, 1), "out of turn")
    answer(client, 3)
    for number in (1, 3, 4):
        assert isinstance(ask(client, number, SOME), Refused)
    assert client.answered(TERMS.digest) == (2, 3)


def test_two_processes_on_one_folder_never_answer_a_round_twice(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked at the same moment: with one question, one answer in two copies; with two, one answer and a refusal."""
    plain = Client._steps

    def slow(self: Client, *args: Any) -> SparseWeights:
        time.sleep(0.05)
        return plain(self, *args)

    monkeypatch.setattr(Client, "_steps", slow)
    clients = [house.start(), house.start()]
    both = at_once([lambda c=c: c.answer(encode(Enrol(TERMS))) for c in clients])
    assert both[0] == both[1]
    assert len(house.entries) == 1
    for number in (1, 2, 3):
        starts = (ZERO, ZERO) if number == 2 else (ZERO, SOME)
        questions = [encode(Round(TERMS.digest, number, start)) for start in starts]
        replies = at_once([lambda c=c, q=q: c.answer(q) for c, q in zip(clients, questions)])
        updates = {raw for raw in replies if isinstance(decode(raw, REPLIES), Update)}
        assert len(updates) == 1
        if number != 2:
            (no,) = (reply for reply in map(read, replies) if isinstance(reply, Refused))
            assert no.why == "answered"
        assert clients[0].answered(TERMS.digest) == tuple(range(1, number + 1))


def read(raw: bytes) -> Any:
    return decode(raw, REPLIES)


def at_once(calls: list[Callable[[], bytes]]) -> list[bytes]:
    """What some calls give that are made at the same time."""
    found: dict[int, bytes] = {}
    ready = threading.Barrier(len(calls))

    def run(k: int) -> None:
        ready.wait()
        found[k] = calls[k]()

    threads = [threading.Thread(target=run, args=(k,)) for k in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[k] for k in range(len(calls))]


# --- weights that a server chooses -----------------------------------------------------------------------------------

BAD_WEIGHTS = {
    "a line too few": weights(np.eye(D)[0]),
    "a line too many": weights(np.eye(D + 2)[0]),
    "two outputs": SparseWeights.zeros(D + 1, 2),
    "no output": SparseWeights.zeros(D + 1, 0),
    "not a number": weights(np.r_[math.nan, np.zeros(D)]),
    "infinite": weights(np.r_[np.zeros(D), math.inf]),
    "minus infinite": weights(np.r_[-math.inf, np.zeros(D)]),
    "beyond 1e100": weights(np.r_[1.1e100, np.zeros(D)]),
    "the largest": weights(np.r_[-1.7e308, np.zeros(D)]),
    "too many": weights(np.r_[np.ones(5), np.zeros(D - 4)]),
    "far too many": weights(np.full(D + 1, 1e-300)),
    "far too long": SparseWeights(np.array([2**40]), np.ones((1, 1)), 2**41),
}


@pytest.mark.parametrize("what", BAD_WEIGHTS)
def test_weights_that_no_round_starts_from_are_refused(house: House, what: str) -> None:
    client = house.start()
    enrol(client)
    before = house.files
    refused(ask(client, 1, BAD_WEIGHTS[what]), "weights")
    assert house.files == before
    answer(client, 1)  # and the round is not lost


def test_as_many_weights_as_are_remembered_and_the_intercept_may_be_sent(house: House) -> None:
    terms = replace(TERMS, memory=6)
    client = house.start()
    enrol(client, terms)
    answer(client, 1, weights(np.r_[np.ones(6), np.zeros(D - 6), 1.0]), terms)
    refused(ask(client, 2, weights(np.r_[np.ones(7), np.zeros(D - 7), 1.0]), terms), "weights")


@pytest.mark.parametrize("size", [1e15, 1e100, 5e-324])
def test_weights_of_any_size_are_answered_with_a_model_that_has_its_shape(house: House, size: float) -> None:
    client = house.start()
    enrol(client)
    start = np.zeros(D + 1)
    start[[0, 1, 2, D]] = size, -size, size, size
    found = answer(client, 1, weights(start))
    assert np.isfinite(found).all()
    assert np.count_nonzero(found[:D]) <= TERMS.n_nonzero


@pytest.mark.parametrize("terms", [TERMS, replace(TERMS, memory=7)], ids=["paper", "memory"])
def test_an_answer_has_no_more_weights_than_are_remembered(house: House, terms: Terms) -> None:
    client = house.start()
    enrol(client, terms)
    for number in (1, 2, 3):
        found = answer(client, number, terms=terms)
        assert 1 <= np.count_nonzero(found[:D]) <= terms.remembered


# --- what a client agrees to -----------------------------------------------------------------------------------------


def test_a_client_with_a_ledger_takes_part_in_no_study_without_noise(house: House) -> None:
    terms = replace(TERMS, epsilon=None, delta=None)
    client = house.start()
    before = house.files
    refused(said(client, Enrol(terms)), "terms")
    refused(ask(client, 1, terms=terms), "not enrolled")
    assert house.files == before


def test_a_client_without_a_ledger_takes_part_in_no_private_study(house: House) -> None:
    client = house.start(without_privacy=True)
    refused(said(client, Enrol(TERMS)), "terms")
    about = enrol(client, replace(TERMS, epsilon=None, delta=None))
    assert (about.epsilon, about.delta, about.noise) == (None, None, 0.0)


def test_a_study_may_cost_no_more_than_its_people_allow(house: House) -> None:
    client = house.start(max_epsilon=1.9)
    refused(said(client, Enrol(TERMS)), "terms")
    assert not house.entries
    enrol(client, replace(TERMS, epsilon=1.9))
    assert len(house.entries) == 1


@pytest.mark.parametrize(("delta", "allowed"), [(0.9, False), (1 / N, False), (0.99 / N, True)])
def test_delta_must_be_below_one_in_all_rows(house: House, delta: float, allowed: bool) -> None:
    reply = said(house.start(), Enrol(replace(TERMS, delta=delta)))
    assert isinstance(reply, Enrolled if allowed else Refused)
    assert len(house.entries) == allowed


@pytest.mark.parametrize(
    ("bounds", "allowed"),
    [({}, False), ({"row_linf": 1.0}, True), ({"normalise": True}, True), ({"row_l2": 2.0}, True)],
)
def test_rows_must_have_a_bound(house: House, bounds: dict[str, Any], allowed: bool) -> None:
    terms = replace(TERMS, model=LinearTerms(D, ("a", "b"), fit_intercept=False, **bounds))
    reply = said(house.start(), Enrol(terms))
    assert isinstance(reply, Enrolled if allowed else Refused), reply
    assert len(house.entries) == allowed


@pytest.mark.parametrize(
    "model",
    [
        LinearTerms(D + 1, ("a", "b"), row_l2=2.0, fit_intercept=False),
        LinearTerms(2**31 - 1, ("a", "b"), row_l2=2.0, fit_intercept=False),
        LinearTerms(D - 1, ("a", "b"), row_l2=2.0, fit_intercept=False),
    ],
    ids=["more features", "far more features", "fewer features"],
)
def test_terms_that_do_not_go_with_the_rows_are_refused_without_saying_why(house: House, model: LinearTerms) -> None:
    client = house.start()
    reply = refused(said(client, Enrol(replace(TERMS, model=model))), "terms")
    assert reply.text == "the rows here do not go with these terms"
    assert not house.entries
    assert any("do not go with" in line and line != reply.text for line in house.told)


@pytest.mark.parametrize(
    "model",
    [
        LinearTerms(D, (0, 1), row_l2=2.0, fit_intercept=False),
        LinearTerms(D, ("1.0", "b"), row_l2=2.0, fit_intercept=False),
        LinearTerms(D, None, "squared", row_l2=2.0, label=1.0, fit_intercept=False),
        LinearTerms(D, None, "poisson", row_l2=2.0, label=1.0, fit_intercept=False),
    ],
    ids=["numbers", "words", "regression", "counts"],
)
def test_whether_a_client_enrols_says_nothing_of_its_labels(tmp_path: Path, model: LinearTerms) -> None:
    """Nor does an answer: words for numbers, numbers for words and numbers below zero make no error."""
    terms = replace(TERMS, model=model)
    replies = set()
    for k, y in enumerate((Y, np.where(Y == "a", 0, 1), np.linspace(-5, 5, N), np.full(N, "x"))):
        folder = tmp_path / str(k)
        folder.mkdir()
        client = House(folder, X, y).start()
        replies.add(client.answer(encode(Enrol(terms))))
        answer(client, 1, SparseWeights.zeros(D, 1), terms)
    assert len(replies) == 1


def test_what_goes_wrong_with_rows_is_told_here_and_not_to_the_server(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = house.start()
    enrol(client)
    rows = [str(value) for value in X[0]]

    def broken(*args: Any, **more: Any) -> Any:
        raise ValueError(f"row 12345 holds {X[0]}, {rows[0]}")

    monkeypatch.setattr(ClippedSum, "evaluate", broken)
    raw = client.answer(encode(Round(TERMS.digest, 1, ZERO)))
    assert refused(read(raw), "failed").text == "it failed"
    assert b"12345" not in raw
    assert rows[0].encode() not in raw
    # Its type and place in the code: what a library says may quote a row, also on the client's own console.
    assert any("ValueError (test_federated_client.py, line " in line for line in house.told)
    assert not any("12345" in line or rows[0] in line for line in house.told)
    for kind in (RuntimeError, MemoryError, ZeroDivisionError, KeyError, UnicodeError):

        def also(*args: Any, kind: type[Exception] = kind, **more: Any) -> Any:
            raise kind() if kind is UnicodeError else kind("row 12345")

        monkeypatch.setattr(LinearTerms, "task", also)
        raw = client.answer(encode(Enrol(replace(TERMS, study=kind.__name__))))
        assert isinstance(read(raw), Refused)
        assert b"12345" not in raw


def test_refusals_hold_nothing_of_the_rows(tmp_path: Path) -> None:
    """The same bytes, whoever's rows they are."""
    questions = [
        encode(Enrol(replace(TERMS, epsilon=None, delta=None))),
        encode(Enrol(replace(TERMS, delta=0.5))),
        encode(Enrol(replace(TERMS, model=LinearTerms(D, (3, 4), row_l2=1.0, fit_intercept=False)))),
        encode(Round(TERMS.digest, 1, ZERO)),
        b"nonsense",
        encode(Enrol(TERMS)),
        encode(Round(TERMS.digest, 7, ZERO)),
        encode(Round(TERMS.digest, 1, BAD_WEIGHTS["too many"])),
    ]
    found = []
    for name, rows, y in (("one", X, Y), ("other", 50 * X[::-1], np.full(N, "0x5eC2e7"))):
        folder = tmp_path / name
        folder.mkdir()
        client = House(folder, rows, y).start()
        found.append([client.answer(question) for question in questions])
        assert b"0x5eC2e7" not in b"".join(found[-1])
    assert found[0] == found[1]


def test_a_client_shows_no_rows(house: House) -> None:
    client = house.start()
    assert repr(client) == str(client) == "Client('ada')"


def rows_with(value: float) -> np.ndarray:
    changed = X.copy()
    changed[3, 4] = value
    return changed


@pytest.mark.parametrize(
    "change",
    [
        {"X": rows_with(math.nan)},
        {"X": rows_with(math.inf)},
        {"X": sp.csr_array(rows_with(-math.inf))},
        {"y": np.where(np.arange(N) == 3, math.nan, 1.0)},
        {"y": np.where(np.arange(N) == 3, math.inf, 1.0)},
        {"X": X[:1], "y": Y[:1]},
        {"X": X[:0], "y": Y[:0]},
        {"y": Y[:-1]},
        {"groups": np.arange(N - 1)},
        {"rows_per_person": 0},
        {"rows_per_person": True},
        {"max_epsilon": 0.0},
        {"max_epsilon": math.nan},
        {"max_epsilon": math.inf},
    ],
)
def test_bad_rows_and_settings_are_told_when_a_client_is_made(house: House, change: dict[str, Any]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of many texts
        house.start(**change)


@pytest.mark.parametrize("name", ["", " ada", "a\nb", "x" * 101, None])
def test_bad_names_are_told_when_a_client_is_made(tmp_path: Path, name: Any) -> None:
    with pytest.raises(ValueError, match="name must be 1 to 100"):
        Client(name, X, Y, ledger=None, state=tmp_path, without_privacy=True)


def test_a_ledger_or_no_privacy_but_not_both_and_not_neither(house: House) -> None:
    ledger = house.start().ledger
    for both in ({"ledger": None}, {"ledger": ledger, "without_privacy": True}):
        with pytest.raises(ValueError, match="give a ledger to bill"):
            Client("ada", X, Y, state=house.folder / "s", **both)


# --- any message -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> tuple[House, Client]:
    """A client in the middle of a study, with a ledger that allows no other."""
    home = House(tmp_path_factory.mktemp("target"), cap=Budget(2.0, 1e-3))
    client = home.start()
    enrol(client)
    answer(client, 1)
    return home, client


SENT = [
    encode(message)
    for message in (AskWilling(TERMS), Enrol(TERMS), Round(TERMS.digest, 2, SOME), Round(TERMS.digest, 1, ZERO))
]


@given(data=st.data(), sample=st.sampled_from(SENT))
@settings(max_examples=150)
def test_no_bytes_make_a_client_raise_or_spend(
    target: tuple[House, Client], data: st.DataObject, sample: bytes
) -> None:
    home, client = target
    if data.draw(st.booleans()):
        raw = bytearray(sample)
        for _ in range(data.draw(st.integers(1, 3))):
            at = data.draw(st.integers(0, len(raw)))
            kind = data.draw(st.sampled_from(["flip", "cut", "put", "digit"]))
            if kind == "cut":
                del raw[at:]
            elif kind == "put":
                raw[at:at] = data.draw(st.binary(min_size=1, max_size=6))
            elif at < len(raw):
                raw[at] = data.draw(st.integers(0, 255)) if kind == "flip" else ord(data.draw(st.sampled_from("0129")))
        sent = bytes(raw)
    else:
        sent = data.draw(st.sampled_from([b"", MAGIC, b"tulle federated 1\n"])) + data.draw(st.binary(max_size=100))
    reply = read(client.answer(sent))
    assert isinstance(reply, (Willing, Enrolled, Update, Refused))
    assert len(home.entries) == 1
    if isinstance(reply, Update):
        assert reply.number in (1, 2, 3)


def test_messages_for_others_are_refused(house: House) -> None:
    client = house.start()
    about = enrol(client)
    for message in (about, ask(client, 1), Refused("ada", "cap", ""), Willing(TERMS.digest, "ada", N), ZERO, TERMS):
        refused(read(client.answer(encode(message))), "malformed")


def test_a_client_that_trusts_no_aggregator_sends_no_sums(house: House) -> None:
    client = house.start()
    before = house.files
    for question in (AskShape(), AskLabels()):
        refused(read(client.answer(encode(question))), "trust")
    assert house.files == before


def test_a_message_that_is_too_long_is_refused(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    client = house.start()
    assert decode.__defaults__ is not None
    monkeypatch.setattr(decode, "__defaults__", (100,))
    reply = client.answer(encode(Enrol(TERMS)))
    monkeypatch.undo()
    refused(read(reply), "malformed")
    assert not house.entries


# --- a whole study, against the books --------------------------------------------------------------------------------


def test_no_more_is_released_than_was_billed(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often a server asks, whatever it sends and however often the client is restarted."""
    asked = 0
    plain = Curator.ask

    def counted(self: Curator, *args: Any, **more: Any) -> Any:
        nonlocal asked
        asked += 1
        return plain(self, *args, **more)

    monkeypatch.setattr(Curator, "ask", counted)
    generator = np.random.default_rng(0)
    released: set[tuple[int, bytes]] = set()
    client = house.start()
    for _ in range(60):
        if generator.random() < 0.2:
            client = house.start()
        enrol(client)
        reply = ask(client, int(generator.integers(-1, 6)), SOME if generator.random() < 0.5 else ZERO)
        if isinstance(reply, Update):
            released.add((reply.number, encode(reply.weights)))
    assert len(released) == len({number for number, _ in released}) <= TERMS.rounds
    assert asked == TERMS.local_steps * len(released)
    assert len(house.entries) == 1


def test_a_server_runs_a_client_through_its_study(house: House) -> None:
    client = house.start()
    fit = Server(TERMS, patience=1.0).run(DirectLink({"x": client.answer}))
    assert client.answered(TERMS.digest) == (1, 2, 3)
    assert fit.privacy.epsilon == house.entries[0].epsilon
    plan = Plan(client._studies[TERMS.digest].plan.releases)
    assert fit.privacy.epsilon == proof(plan, 1e-3)[0]


def test_a_simulation_keeps_its_books_in_a_folder(tmp_path: Path) -> None:
    """And goes no further than the budget, which is each client's cap."""
    parts = {"a": (X[:20], Y[:20]), "b": (X[20:], Y[20:])}
    fit = simulate(TERMS, parts, folder=tmp_path)
    ledgers = {name: FileLedger(tmp_path / f"{name}.ledger", name) for name in parts}
    assert {name: ledger.entries[0].epsilon for name, ledger in ledgers.items()} == {
        about.client: about.epsilon for about in fit.clients
    }
    with pytest.raises(StudyStoppedError, match="cap"):
        simulate(replace(TERMS, study="second"), parts, folder=tmp_path)


def test_the_clients_own_people_find_its_promise_beside_its_state(house: House) -> None:
    client = house.start()
    enrolled = enrol(client)
    place = house.folder / "state" / f"{TERMS.digest}.privacy.json"
    assert place.stat().st_mode & 0o777 == 0o600
    report = PrivacyReport.from_dict(json.loads(place.read_text()))
    assert report == client.report(TERMS.digest)
    assert (report.epsilon, report.delta) == (enrolled.epsilon, enrolled.delta)
    assert report.epsilon == pytest.approx(house.entries[0].epsilon, rel=1e-12)
    assert report.who_saw_what[0].startswith("Trust model: curious server")
    assert [(line.count, line.noise_per_sensitivity) for line in report.bill] == [(TERMS.steps, enrolled.noise)]
