"""Where a transport proves names, a message that states another one counts for nobody."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tulle.federated import Client, Server, StudyStoppedError, Terms, linear_terms
from tulle.federated.link import DirectLink
from tulle.federated.server_side.client_requests import ConnectedClients

TERMS = Terms("names", linear_terms(3, step=0.5, classes=(0, 1), row_l2=2.0), 2, 1, 2, 0.5, 1.0, None, None, None)


class ProvedLink(DirectLink):
    """The name of each connection is proved: it is the connection's own."""

    def certified_name(self, connection: str) -> str | None:
        return connection


def client(name: str, folder: Path) -> Client:
    X = np.random.default_rng(0).uniform(-1, 1, (30, 3))
    state = folder / name
    return Client(
        name, X, (X[:, 0] > 0).astype(int), ledger=None, state=state, without_privacy=True, trusts_aggregator=True
    )


def test_without_proof_any_name_is_believed(tmp_path: Path) -> None:
    link = DirectLink({"west": client("north", tmp_path).answer})
    assert link.certified_name("west") is None
    assert link.may_speak_for("west", "north")
    assert Server(TERMS, clients=["north"], patience=1.0).run(link).rounds[-1].answered == ("north",)


def test_a_study_believes_proved_names_alone(tmp_path: Path) -> None:
    """North is told apart from a client that says it is north, which is counted and left out."""
    false, true = client("north", tmp_path / "false"), client("north", tmp_path / "true")
    with pytest.raises(StudyStoppedError, match="1 × unknown client"):
        Server(TERMS, clients=["north"], patience=0.3).run(ProvedLink({"west": false.answer}))
    fit = Server(TERMS, patience=1.0).run(ProvedLink({"west": false.answer, "north": true.answer}))
    assert [record.answered for record in fit.rounds] == [("north",), ("north",)]
    assert fit.rounds[0].rejected == {"unknown client": 1}
    assert (false.n_answers, true.n_answers) == (0, 2)


def test_a_client_under_anothers_name_does_not_count_towards_the_quorum(tmp_path: Path) -> None:
    """South would be billed for a study that lacks a client."""
    asked: list[bytes] = []
    south = client("south", tmp_path)

    def answer(raw: bytes) -> bytes:
        asked.append(raw)
        return south.answer(raw)

    link = ProvedLink({"west": client("north", tmp_path).answer, "south": answer})
    with pytest.raises(StudyStoppedError, match="1 × unknown client"):
        Server(TERMS, min_clients=2, patience=0.3).run(link)
    assert not any(b'"Enrol"' in raw for raw in asked)


def test_an_aggregator_believes_proved_names_alone(tmp_path: Path) -> None:
    answers = {"west": client("north", tmp_path / "false").answer, "south": client("south", tmp_path).answer}
    clients = ConnectedClients(ProvedLink(answers), 1.0, 0.2)
    clients.gather(None, 1)
    assert list(clients.shapes) == ["south"]
    with pytest.raises(TimeoutError, match="north did not answer"):
        ConnectedClients(ProvedLink(answers), 1.0, 0.2).gather(["north"], 1)


def test_a_client_that_is_started_again_while_others_are_waited_for_is_the_same(tmp_path: Path) -> None:
    """Two living connections of one name are told; an earlier one that has ended is none."""
    north, south = client("north", tmp_path).answer, client("south", tmp_path).answer

    class Restarted(DirectLink):
        looks = 0

        def connected(self) -> tuple[str, ...]:
            self.looks += 1
            return ("first",) if self.looks < 4 else ("second", "third")

    clients = ConnectedClients(Restarted({"first": north, "second": north, "third": south}), 1.0, 5.0)
    clients.gather(None, 1)
    assert list(clients.shapes) == ["north"]
    clients.gather(["north", "south"], 1)
    assert list(clients.shapes) == ["north", "south"]
    with pytest.raises(ValueError, match="two connections say that they are client 'north'"):
        ConnectedClients(DirectLink({"first": north, "second": north}), 1.0, 1.0).gather(None, 1)
