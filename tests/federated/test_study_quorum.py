"""Before anybody is billed: a dry run among clients, which looks at no row, and terms that were approved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from client_house import LINEAR, REPLIES, TERMS, ZERO, House, N, X, Y, answer, ask, enrol, refused, said

from tulle import Budget, FileLedger
from tulle.fast.sparse_weights import SparseWeights
from tulle.federated import Client, LinearTerms, Server, StudyStoppedError, Terms
from tulle.federated.client_side.client_ledger import ClientLedger
from tulle.federated.encoding import decode, encode
from tulle.federated.link import Link
from tulle.federated.messages import AskWilling, Enrol, Enrolled, Refused, Round, Update, Willing, invitation
from tulle.ledgers.spending import count_releases
from tulle.trusted.plan import Plan

pytestmark = pytest.mark.usefixtures("no_power_cuts")


@dataclass
class Recorded(Link):
    """Clients in this process, and what each was asked."""

    clients: dict[str, Client]
    asked: list[tuple[str, type]] = field(default_factory=list)

    def connected(self) -> tuple[str, ...]:
        return tuple(self.clients)

    def ask(self, message: bytes, whom: Sequence[str], seconds: float) -> Iterator[tuple[str, bytes]]:
        kind = type(decode(message, (AskWilling, Enrol, Round, Terms, LinearTerms, SparseWeights)))
        for name in whom:
            self.asked.append((name, kind))
            yield name, self.clients[name].answer(message)


def make_client(folder: Path, name: str, cap: float = 100.0, **settings: Any) -> Client:
    path = folder / f"{name}.ledger"
    ledger = FileLedger(path, name) if path.exists() else FileLedger.create(path, name, Budget(cap, 2e-3))
    return Client(name, X, Y, ledger=ledger, state=folder / name, **settings)


def count_entries(*clients: Client) -> list[int]:
    return [len(client.ledger.refresh().entries) for client in clients if client.ledger is not None]


# --- the quorum ------------------------------------------------------------------------------------------------------


def test_an_unmet_quorum_bills_nobody(tmp_path: Path) -> None:
    """Two would take part and three are needed; the third has too small a cap."""
    names = {"ada": 100.0, "ben": 100.0, "poor": 0.1}
    clients = {name: make_client(tmp_path, name, cap) for name, cap in names.items()}
    link, server = Recorded(clients), Server(TERMS, min_clients=3, patience=0.01)
    released = count_releases()
    with pytest.raises(StudyStoppedError, match=r"2 of at least 3 .*1 × refused: cap.*no client was billed"):
        server.run(link)
    assert not server.may_be_billed
    assert count_entries(*clients.values()) == [0, 0, 0]
    assert count_releases() == released
    assert {kind for _, kind in link.asked} == {AskWilling}
    assert [name for name, _ in link.asked] == ["ada", "ben", "poor"]  # who has answered is not asked again
    for client in clients.values():
        assert client.answered(TERMS.digest) == ()
        assert not list((tmp_path / client.name).iterdir())


def test_one_name_on_two_connections_is_one_client(tmp_path: Path) -> None:
    ada = make_client(tmp_path, "ada")
    with pytest.raises(StudyStoppedError, match="1 of at least 2"):
        Server(TERMS, min_clients=2, patience=0.01).run(Recorded({"one": ada, "two": ada}))
    assert count_entries(ada) == [0]


def test_a_client_that_left_again_does_not_count(tmp_path: Path) -> None:
    ada, ben = make_client(tmp_path, "ada"), make_client(tmp_path, "ben")
    link = Recorded({"ada": ada})
    server = Server(TERMS, min_clients=2, patience=0.01)
    server._find_willing(link)
    link.clients = {"ben": ben}
    with pytest.raises(StudyStoppedError, match="1 of at least 2"):
        server.run(link)
    assert count_entries(ada, ben) == [0, 0]


def test_only_those_who_are_willing_and_listed_are_asked_to_enrol(tmp_path: Path) -> None:
    """Late ones too: they are asked whether they would, and then to enrol."""
    clients = {name: make_client(tmp_path, name, 0.1 if name == "poor" else 100.0) for name in ("ada", "poor", "eve")}
    late = make_client(tmp_path, "late")
    link = Recorded(clients)

    def progress(record: Any, weights: Any) -> None:
        if record.number == 1:
            link.clients = {**clients, "late": late}

    fit = Server(TERMS, clients=["ada", "poor", "late"], patience=0.01, progress=progress).run(link)
    assert [record.answered for record in fit.rounds] == [("ada",), ("ada", "late"), ("ada", "late")]
    assert fit.rounds[0].rejected == {"refused: cap": 1, "refused: not invited": 1}
    assert [kind for name, kind in link.asked if name == "late"] == [AskWilling, Enrol, Round, Round]
    assert [kind for name, kind in link.asked if name in ("poor", "eve")] == [AskWilling, AskWilling]
    assert count_entries(*clients.values(), late) == [1, 0, 0, 1]


def test_a_stranger_who_would_take_part_is_not_counted(tmp_path: Path) -> None:
    """It says a name that is not listed, or other terms."""
    ada, server = make_client(tmp_path, "ada"), Server(TERMS, clients=["ada", "ben"], min_clients=2, patience=0.01)

    @dataclass
    class Strangers(Recorded):
        def connected(self) -> tuple[str, ...]:
            return (*self.clients, "x", "y", "z")

        def ask(self, message: bytes, whom: Sequence[str], seconds: float) -> Iterator[tuple[str, bytes]]:
            yield from super().ask(message, [name for name in whom if name in self.clients], seconds)
            said_of = {
                "x": Willing(TERMS.digest, "eve", N),
                "y": Willing("0" * 64, "ben", N),
                "z": Update(TERMS.digest, 1, "ben", ZERO),
            }
            yield from ((name, encode(words)) for name, words in said_of.items() if name in whom)

    with pytest.raises(StudyStoppedError, match="1 × unknown client, 1 × other terms, 1 × malformed"):
        server.run(Strangers({"ada": ada}))
    assert count_entries(ada) == [0]


class Crash(Exception):
    """What a test stops a server with."""


@pytest.mark.parametrize("when", [0, 1])
def test_a_study_that_was_interrupted_goes_on_with_those_who_have_paid(tmp_path: Path, when: int) -> None:
    """After a round, or after all have enrolled: the server knows that they may have paid, and nobody bills twice,
    though all caps have no room for a second study."""
    clients = {name: make_client(tmp_path, name, cap=2.1) for name in ("ada", "ben")}
    journal = tmp_path / "journal"

    def crash(*_: Any) -> None:
        raise Crash

    server = Server(TERMS, journal=journal, min_clients=2, patience=0.01, progress=crash)
    if when == 0:
        server._averaged = crash  # type: ignore[method-assign]
    with pytest.raises(Crash):
        server.run(Recorded(clients))
    assert journal.exists()
    again = {name: make_client(tmp_path, name) for name in clients}
    for client in again.values():
        refused_one = said(client, AskWilling(replace(TERMS, study="another")))
        assert isinstance(refused_one, Refused)
        assert refused_one.why == "cap"
    server = Server(TERMS, journal=journal, min_clients=2, patience=0.01)
    with pytest.raises(StudyStoppedError, match="may have billed it in an earlier run"):
        server.run(Recorded({}))
    assert server.may_be_billed
    link = Recorded(again)
    fit = Server(TERMS, journal=journal, min_clients=2, patience=0.01).run(link)
    assert [record.number for record in fit.rounds] == [1, 2, 3][when:]
    assert count_entries(*again.values()) == [1, 1]


# --- the dry run -----------------------------------------------------------------------------------------------------


def test_a_dry_run_bills_nothing_and_writes_nothing(house: House) -> None:
    client = house.start()
    before = house.files
    assert said(client, AskWilling(TERMS)) == Willing(TERMS.digest, "ada", N)
    assert house.files == before
    assert not list((house.folder / "state").iterdir())
    refused(ask(client, 1), "not enrolled")
    enrol(client)
    answer(client, 1)
    assert said(client, AskWilling(TERMS)) == Willing(TERMS.digest, "ada", N)
    assert said(house.start(), AskWilling(TERMS)) == Willing(TERMS.digest, "ada", N)
    assert len(house.entries) == 1


class Unread:
    """Rows or labels of which nothing may be looked at."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"a dry run looked at rows: {name}")


@pytest.mark.parametrize("change", [{}, {"epsilon": 1000.0}, {"delta": 0.1}, {"model": replace(LINEAR, n_features=3)}])
def test_a_dry_run_has_no_rows_and_no_labels(house: House, change: dict[str, Any]) -> None:
    """Every attribute of a client that holds rows raises when it is touched; so do the methods that prepare them."""
    client = house.start()
    terms = replace(TERMS, **change)
    n_held = 0
    for holder in (client, client._summing):
        for name, value in vars(holder).copy().items():
            if isinstance(value, np.ndarray):
                object.__setattr__(holder, name, Unread())
                n_held += 1
    assert n_held == 4
    reply = said(client, AskWilling(terms))
    assert isinstance(reply, Refused if change else Willing)
    assert getattr(reply, "why", "") in ("", "cap", "terms")
    assert house.entries == ()


def test_a_dry_run_says_the_same_whatever_the_rows_are(tmp_path: Path) -> None:
    """Replayed with other rows and labels: the same bytes, and the same as an enrolment decides."""
    questions = [
        TERMS,
        replace(TERMS, epsilon=None, delta=None),
        replace(TERMS, delta=0.5),
        replace(TERMS, epsilon=200.0),
        replace(TERMS, model=replace(LINEAR, n_features=7)),
        replace(TERMS, model=replace(LINEAR, classes=("x", "y"))),
        replace(TERMS, model=LinearTerms(X.shape[1], (3, 4), fit_intercept=False)),
    ]
    found = []
    for name, rows, y in (("one", X, Y), ("other", 50 * X[::-1], np.full(N, "0x5eC2e7")), ("3", 0 * X, np.arange(N))):
        (tmp_path / name).mkdir()
        client = House(tmp_path / name, rows, y).start()
        found.append([])
        for terms in questions:
            found[-1].append(client.answer(encode(AskWilling(terms))))
            enrolled, willing = said(client, Enrol(terms)), decode(found[-1][-1], REPLIES)
            assert isinstance(enrolled, Enrolled) == isinstance(willing, Willing)
            if isinstance(enrolled, Refused):
                assert enrolled == willing
    assert found[0] == found[1] == found[2]
    assert [type(decode(raw, REPLIES)) for raw in found[0]] == [Willing, *[Refused] * 4, Willing, Refused]


def test_who_is_not_listed_does_not_say_whether_it_would(house: House) -> None:
    client = house.start()
    refused(said(client, AskWilling(TERMS, (invitation(TERMS.digest, "bob"),))), "not invited")
    assert isinstance(said(client, AskWilling(TERMS, (invitation(TERMS.digest, "ada"),))), Willing)


def test_the_price_of_a_dry_run_is_the_price_that_is_billed(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same plan, promise and unit, to the last bit."""
    prices: list[Any] = []
    quote, bill = ClientLedger.quote, FileLedger.bill

    def quoted(self: ClientLedger, what: str, plans: Sequence[Plan], *price: Any) -> None:
        prices.append((what, tuple(plans), *price))
        quote(self, what, plans, *price)

    def billed(self: FileLedger, what: str, plans: Sequence[Plan], *price: Any) -> int:
        prices.append((what, tuple(plans), *price))
        return bill(self, what, plans, *price)

    monkeypatch.setattr(ClientLedger, "quote", quoted)
    monkeypatch.setattr(FileLedger, "bill", billed)
    client = house.start(rows_per_person=2)
    assert isinstance(said(client, AskWilling(TERMS)), Willing)
    assert isinstance(said(client, Enrol(TERMS)), Enrolled)
    assert len(prices) == 3
    assert prices[0] == prices[1] == prices[2]


@pytest.mark.parametrize("share", [0.999, 1.001])
def test_a_dry_run_refuses_where_the_bill_would_pass_the_cap(tmp_path: Path, share: float) -> None:
    """Caps just below and just above one study, and another process that spends between the two questions."""
    (tmp_path / "whole").mkdir()
    whole = House(tmp_path / "whole", cap=Budget(2.0, 1e-3))
    enrol(whole.start())
    (tmp_path / "part").mkdir()
    part = House(tmp_path / "part", cap=Budget(2.0 * share, 1e-3))
    client = part.start()
    assert isinstance(said(client, AskWilling(TERMS)), Willing) == (share > 1)
    other = part.start()
    assert isinstance(said(other, Enrol(TERMS)), Enrolled) == (share > 1)
    refused(said(client, AskWilling(replace(TERMS, study="second"))), "cap")
    assert len(part.entries) == (share > 1)


def test_a_study_whose_state_is_gone_is_quoted_as_it_is_billed(tmp_path: Path) -> None:
    """It would be billed again, for which there is no room."""
    house = House(tmp_path, cap=Budget(2.5, 1e-3))
    enrol(house.start())
    house.state_of(TERMS).unlink()
    refused(said(house.start(), AskWilling(TERMS)), "cap")
    refused(said(house.start(), Enrol(TERMS)), "cap")


def test_a_dry_run_refuses_what_an_enrolment_of_before_rules_out(house: House) -> None:
    enrol(house.start())
    refused(said(house.start(rows_per_person=2), AskWilling(TERMS)), "terms")


@pytest.mark.parametrize(
    "parts",
    [{"study": 3}, {"client": "a\nb"}, {"n_rows": 0}, {"n_rows": 1.5}, {"n_rows": True}, {"n_rows": 2**53}],
)
def test_what_a_willing_client_says_is_checked(parts: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"name|rows"):
        Willing(**({"study": TERMS.digest, "client": "a", "n_rows": 5} | parts))


def test_a_client_without_a_ledger_is_willing_too(house: House) -> None:
    client = house.start(without_privacy=True)
    assert isinstance(said(client, AskWilling(replace(TERMS, epsilon=None, delta=None))), Willing)
    refused(said(client, AskWilling(TERMS)), "terms")


# --- approval --------------------------------------------------------------------------------------------------------


def test_terms_that_were_not_approved_are_refused_and_told(house: House) -> None:
    client = house.start(approved=[TERMS.digest])
    other = replace(TERMS, study="other", penalty=0.125)
    for message in (AskWilling(other), Enrol(other)):
        house.told.clear()
        reply = refused(said(client, message), "terms")
        assert other.digest in reply.text
        (words,) = [line for line in house.told if line.startswith("These terms were not approved:")]
        assert f"digest: {other.digest}" in words
        assert other.describe() in words
        assert "penalty = 0.125" in words
    assert house.entries == ()
    assert isinstance(said(client, AskWilling(TERMS)), Willing)
    enrol(client)
    answer(client, 1)


CHANGES: dict[str, Any] = {
    "study": "t",
    "model": replace(LINEAR, row_l2=2.5),
    "rounds": 4,
    "local_steps": 3,
    "n_nonzero": 3,
    "step": 1.0000000000000002,
    "clip": 0.26,
    "batch": 9,
    "epsilon": 2.0000000000000004,
    "delta": 1.1e-3,
    "memory": 5,
    "penalty": 1e-9,
    "snapshot_batch": 10,
    "difference_clip": 0.3,
}


@pytest.mark.parametrize("name", [part.name for part in fields(Terms)])
def test_terms_that_changed_after_their_approval_are_refused(house: House, name: str) -> None:
    """Whatever changed, however little; and someone who reads the terms sees what."""
    more = {"snapshot_batch": 8} if name == "difference_clip" else {}
    before = replace(TERMS, **more)
    after = replace(before, **{name: CHANGES[name]})
    client = house.start(approved=[before.digest])
    refused(said(client, Enrol(after)), "terms")
    refused(said(client, AskWilling(after)), "terms")
    assert house.entries == ()
    assert after.describe_fully() != before.describe_fully()


@pytest.mark.parametrize("part", [part.name for part in fields(LinearTerms)])
def test_all_of_a_model_is_told(part: str) -> None:
    values = {"classes": ("a", "c"), "loss": "squared_hinge", "normalise": True, "label": 2.0}
    model = LinearTerms(12, ("a", "b"), row_linf=1.0, intercept_value=1.0)
    object.__setattr__(model, part, values.get(part, 17))
    assert replace(TERMS, model=LINEAR).describe_fully() != replace(TERMS, model=model).describe_fully()
    assert f"  {part} = {values.get(part, 17)!r}\n" in replace(TERMS, model=model).describe_fully() + "\n"


def test_nothing_is_approved_by_an_empty_list_and_everything_without_one(house: House) -> None:
    refused(said(house.start(approved=()), AskWilling(TERMS)), "terms")
    assert isinstance(said(house.start(), AskWilling(TERMS)), Willing)
    assert isinstance(said(house.start(approved=[f" {TERMS.digest.upper()} "]), AskWilling(TERMS)), Willing)


def test_a_restarted_client_needs_the_approval_too(house: House) -> None:
    enrol(house.start())
    refused(said(house.start(approved=["0" * 64]), Enrol(TERMS)), "terms")


@pytest.mark.parametrize("length", [0, 16, 63, 65])
def test_only_whole_digests_approve(house: House, length: int) -> None:
    for digits in (TERMS.digest + "0", "x" * 65):
        with pytest.raises(ValueError, match="64 hexadecimal digits"):
            house.start(approved=[digits[:length]])


def test_approval_settings_that_make_no_sense_are_told(house: House) -> None:
    with pytest.raises(TypeError, match="collection of digests"):
        house.start(approved=TERMS.digest)
    with pytest.raises(ValueError, match="trusts_aggregator"):
        house.start(approved=[TERMS.digest], trusts_aggregator=True)
