"""Studies in processes of their own, over gRPC with certificates on loopback: crashes, strangers, malicious servers."""

from __future__ import annotations

import csv
import json
import math
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import pytest

import tulle
from tulle import Budget, FileLedger
from tulle.cli import main
from tulle.fast.sparse_weights import SparseWeights
from tulle.federated import Terms, linear_terms
from tulle.federated.client_side.study_state import StudyState
from tulle.federated.encoding import decode, encode
from tulle.federated.messages import Enrol, Enrolled, Refused, Round, Update
from tulle.federated.server_side.grpc_link import GrpcLink
from tulle.federated.study_authority import make_certificates

# Loopback answers in milliseconds; this is for a machine that is busy with other things.
PATIENCE = 30.0
NAMES = ("north", "south", "west", "capped", "other", "stranger 0", "stranger 1")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


FEATURES = 20


@dataclass
class Place:
    """A folder with what a study needs, and the processes that were started in it."""

    folder: Path
    port: int = field(default_factory=free_port)
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def rows(self, name: str, n: int = 200, d: int = FEATURES) -> str:
        """A file of rows that three features explain."""
        generator = np.random.default_rng(zlib.crc32(name.encode()))
        X = generator.normal(size=(n, d)) / math.sqrt(d)
        y = np.where(X[:, :3] @ [3.0, -3.0, 2.0] > 0, "ward", "home")
        lines = [",".join([*(f"{value:.6f}" for value in row), label]) for row, label in zip(X, y)]
        head = ",".join([*(f"f{j}" for j in range(d)), "outcome"])
        (self.folder / f"{name}.csv").write_text("\n".join([head, *lines]) + "\n")
        return f"{name}.csv"

    def start(self, *words: str, log: str) -> subprocess.Popen[bytes]:
        """A process whose output goes into files."""
        with (self.folder / f"{log}.out").open("ab") as out, (self.folder / f"{log}.err").open("ab") as err:
            process = subprocess.Popen([sys.executable, *words], cwd=self.folder, stdout=out, stderr=err)
        self.running.append(process)
        return process

    @property
    def listening(self) -> str:
        keys = "--tls-ca tls/authority.pem --tls-certificate tls/server/server.pem --tls-key tls/server/server.key"
        return f"--host localhost --port {self.port} {keys}"

    def link(self) -> GrpcLink:
        tls = self.folder / "tls"
        files = (tls / "authority.pem", tls / "server/server.pem", tls / "server/server.key")
        return GrpcLink("localhost", self.port, certificates=files)

    def server_words(self, rounds: int) -> list[str]:
        study = f"--study trial --features {FEATURES} --classes home,ward --row-l2 2 --delta 1e-6 --n-nonzero 3"
        run = f"--epsilon 2 --rounds {rounds} -o model --json"
        return f"federated server {study} {run} {self.listening}".split()

    def server(self, *words: str, rounds: int) -> subprocess.Popen[bytes]:
        return self.start("-m", "tulle", *self.server_words(rounds), *words, log="server")

    def client_words(self, name: str, cap: float = 3.0, rows: str | None = None) -> list[str]:
        """Of a client with a ledger, which is opened where it is not."""
        ledger = self.folder / f"{name}.json"
        if not ledger.exists():
            FileLedger.create(ledger, name, Budget(cap, 1e-5))
        told = f"--target outcome --server localhost:{self.port} --retry-seconds {PATIENCE}"
        told += f" --tls-ca tls/authority.pem --tls-certificate tls/clients/{name}.pem --tls-key tls/clients/{name}.key"
        books = f"--ledger {name}.json --dataset {name} --state {name}-state"
        return f"federated client --data {rows or self.rows(name)} {told} {books}".split()

    def client(self, name: str, *words: str, **settings: Any) -> subprocess.Popen[bytes]:
        return self.start("-m", "tulle", *self.client_words(name, **settings), *words, log=name)

    def strangers(self, *answers: str) -> subprocess.Popen[bytes]:
        """Clients in one process that say what they like: expressions of `raw`."""
        code = "import os, threading, time\nfrom tulle.federated.client_side.grpc_connection import connect\n"
        for number, answer in enumerate(answers):
            files = tuple(
                f"tls/{file}"
                for file in ("authority.pem", *(f"clients/stranger {number}.{end}" for end in ("pem", "key")))
            )
            words = f"args=('localhost:{self.port}', lambda raw: {answer}), kwargs={{'certificates': {files}}}"
            code += f"threading.Thread(target=connect, {words}).start()\n"
        return self.start("-c", code, log="strangers")

    def rounds(self) -> list[dict[str, str]]:
        """What the server has written of its rounds; whole lines only, as it may be writing."""
        path = self.folder / "model" / "rounds.csv"
        text = path.read_text() if path.exists() else ""
        return list(csv.DictReader(text[: text.rfind("\n") + 1].splitlines()))

    def entries(self, name: str) -> int:
        return len(FileLedger(self.folder / f"{name}.json", name).entries)

    def answered(self, name: str) -> list[int]:
        """The rounds that a client's own disk says were answered."""
        (path,) = (self.folder / f"{name}-state").glob("*.study")
        return list(decode(path.read_bytes(), (StudyState, SparseWeights)).answered)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.err").read_text()

    def until(self, holds: Callable[[], Any], seconds: float = 2 * PATIENCE) -> None:
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, {path.name: path.read_text()[-600:] for path in self.folder.glob("*.err")}
            time.sleep(0.005)

    def ended(self, process: subprocess.Popen[bytes], code: int = 0) -> None:
        """Wait for a process, which must end so."""
        self.until(lambda: process.poll() is not None)
        assert process.returncode == code, {
            path.name: path.read_text()[-600:] for path in self.folder.iterdir() if path.suffix in (".err", ".out")
        }


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    make_certificates(tmp_path / "tls", server=["localhost"], clients=NAMES)
    try:
        yield place
    finally:
        for process in place.running:
            process.kill()  # stopped ones too
        for process in place.running:
            process.wait()


def took_part(rounds: list[dict[str, str]], name: str, column: str = "answered") -> list[int]:
    return [int(line["round"]) for line in rounds if name in line[column].split(";")]


def check_books(place: Place, name: str, rounds: int) -> None:
    """One bill; on disk every round that the server counted, and beyond these only such as the server did not hear."""
    assert place.entries(name) == 1
    own, lines = place.answered(name), place.rounds()
    assert len(own) == len(set(own)) <= rounds
    assert set(took_part(lines, name)) <= set(own) <= {*took_part(lines, name), *took_part(lines, name, "missing")}


def test_metrics_and_logs_of_a_study_name_no_client(place: Place) -> None:
    """The server's pages while it runs, and the logs of both sides; a client's own log has the name of its ledger."""
    metrics, rounds = free_port(), 250
    names = ("north", "south")
    clients = [place.client(name, "--log-json", f"{name}.log", "-q") for name in names]
    words = ("--clients", ",".join(names), "--metrics", str(metrics), "--log-json", "server.log")
    server = place.server(*words, rounds=rounds)
    place.until(lambda: len(place.rounds()) >= 5)
    pages = {}
    for page in ("metrics", "healthz"):
        with urlopen(f"http://127.0.0.1:{metrics}/{page}", timeout=10) as answer:
            pages[page] = answer.read().decode()
    assert int(float(pages["metrics"].split("\ntulle_federated_rounds_closed ")[1].split("\n")[0])) >= 4
    assert json.loads(pages["healthz"]) == {"status": "ok", "readable": True, "writable": True}
    for process in (server, *clients):
        place.ended(process)
    log = (place.folder / "server.log").read_text()
    events = [json.loads(line)["event"] for line in log.splitlines()]
    assert events.count("federated.round") == rounds
    assert {"federated.begin", "federated.end", "service.begin"} < set(events)
    assert not any(name in text for name in names for text in (pages["metrics"], log))
    own = (place.folder / "north.log").read_text()
    assert own.count('"federated.client.answered"') == rounds
    assert "south" not in own


def test_a_killed_client_comes_back_and_a_slow_one_is_waited_for_no_longer_than_agreed(place: Place) -> None:
    """Three clients. One is killed: rounds go on without it. Another is stopped: one is too few, and the study waits.
    The first is started again with its ledger and state: the study goes on, and in the end the stopped one too."""
    rounds = 250
    clients = {name: place.client(name) for name in ("north", "south", "west")}
    server = place.server("--clients", "north,south,west", "--seconds", "2", rounds=rounds)
    place.until(lambda: len(place.rounds()) >= 5)
    clients["north"].kill()
    place.until(lambda: took_part(place.rounds(), "north", "missing"))
    clients["west"].send_signal(signal.SIGSTOP)
    killed_at = len(place.rounds())
    assert took_part(place.rounds(), "north")
    assert killed_at < rounds - 50, "the study was over too soon to tell anything"
    again = place.client("north")
    place.until(lambda: max(took_part(place.rounds(), "north")) > killed_at)
    clients["west"].send_signal(signal.SIGCONT)
    place.ended(server)
    place.ended(again)
    for name in ("south", "west"):
        place.ended(clients[name])

    lines = place.rounds()
    assert [int(line["round"]) for line in lines] == list(range(1, rounds + 1))
    for name in clients:
        check_books(place, name, rounds)
        assert max(took_part(lines, name)) == rounds, name
    assert took_part(lines, "west", "missing"), "nothing waits for who was stopped"
    values = json.loads((place.folder / "server.out").read_text())
    counts = {client["name"]: client["answered"] for client in values["clients"]}
    assert counts == {name: len(took_part(lines, name)) for name in clients}
    model = tulle.load(place.folder / values["model"])
    assert model.privacy_.asked == (2.0, 1e-6)
    assert 1.9 < model.privacy_.epsilon <= 2.0
    assert "curious server" in " ".join(model.privacy_.who_saw_what)
    assert sorted(path.name for path in (place.folder / "model").iterdir()) == [
        "model.npz",
        "privacy.json",
        "report.html",
        "rounds.csv",
        "weights.csv",
    ]
    assert "enrolled in 'trial'" in place.log("north")
    assert "Ledger: north: cap epsilon = 3" in (place.folder / "north.out").read_text()


def test_who_may_not_cannot_or_will_not_take_part_does_not_stop_a_study(place: Place) -> None:
    """Beside two honest clients: one whose cap does not allow it (exit code 3, nothing billed), one with other columns,
    one that sends garbage, and one that never says anything."""
    rounds = 20
    asked = place.folder / "asked"
    place.strangers(f"(open({str(asked)!r}, 'a').close(), os.urandom(len(raw)))[1]", "time.sleep(1000)")
    server = place.server("--min-clients", "2", "--seconds", "2", rounds=rounds)
    place.until(asked.exists)  # else a fast study can end before a stranger has started
    good = [place.client(name) for name in ("north", "south")]
    capped = place.client("capped", cap=1.0)
    other = place.client("other", rows=place.rows("other", d=FEATURES - 1))
    place.ended(server)
    for process in good:
        place.ended(process)
    place.ended(capped, code=3)
    place.ended(other, code=5)

    lines = place.rounds()
    for name in ("north", "south"):
        check_books(place, name, rounds)
        assert max(took_part(lines, name)) == rounds
    said = " ".join(line["rejected"] for line in lines)
    assert "refused: cap" in said
    assert "refused: terms" in said
    assert "malformed" in said
    for name in ("capped", "other"):
        assert place.entries(name) == 0
        assert not took_part(lines, name)
        assert not list((place.folder / f"{name}-state").glob("*.study"))
    assert "refused (cap)" in place.log("capped")
    assert "The ledger refused" in (place.folder / "capped.out").read_text()
    assert "the study has 20 features, and these rows have 19" in place.log("other")
    values = json.loads((place.folder / "server.out").read_text())
    assert [client["name"] for client in values["clients"]] == ["north", "south"]


def test_a_killed_server_goes_on_from_its_journal(place: Place) -> None:
    """The clients wait for it; no round is billed or answered twice."""
    rounds = 150
    clients = {name: place.client(name) for name in ("north", "south")}
    words = ("--clients", "north,south", "--journal", "journal")
    first = place.server(*words, rounds=rounds)
    place.until(lambda: len(place.rounds()) >= 20)
    first.kill()
    first.wait()
    before = len(place.rounds())
    assert 20 <= before < rounds - 50
    second = place.server(*words, rounds=rounds)
    place.ended(second)
    for process in clients.values():
        place.ended(process)
    numbers = [int(line["round"]) for line in place.rounds()]
    # A kill between the journal and the table of rounds loses a line of the latter.
    assert len(numbers) == len(set(numbers)) >= rounds - 1
    assert numbers == sorted(numbers)
    for name in clients:
        assert place.entries(name) == 1
        assert place.answered(name) == list(range(1, rounds + 1))
        assert "is gone; looking for it" in place.log(name)
    # A finished study is there to be read again, and other terms are told.
    other = place.server(*words, "--replace", "--patience", "1", rounds=rounds + 1)
    place.ended(other, code=2)
    assert "the journal of another study, or of other terms" in (place.folder / "server.out").read_text()


def test_a_terminated_server_and_client_say_what_was_billed(place: Place) -> None:
    """In the middle of a study: exit code 143, and the bill is told; a server that waits has billed nobody."""
    waiting = place.server("--min-clients", "2", rounds=5)
    place.until((place.folder / "model").exists)
    waiting.terminate()
    place.ended(waiting, code=143)
    assert "billed" not in (place.folder / "server.out").read_text()
    assert not (place.folder / "model").exists()
    server = place.server("--min-clients", "1", rounds=100_000)
    client = place.client("north")
    place.until(lambda: len(place.rounds()) >= 2)
    client.terminate()
    place.ended(client, code=143)
    assert "The budget is spent: a study or a fit was billed" in place.log("north")
    server.terminate()
    place.ended(server, code=143)
    assert "clients may have billed the study" in (place.folder / "server.out").read_text()
    assert place.entries("north") == 1


def test_a_malicious_server_gets_nothing_but_refusals(place: Place) -> None:
    """It has the client's agreement to five rounds, and asks for whatever else it can think of."""
    terms = Terms(
        study="trial",
        model=linear_terms(FEATURES, step=1.0, classes=("home", "ward"), row_l2=2.0),
        rounds=5,
        local_steps=1,
        n_nonzero=3,
        step=1.0,
        clip=0.5,
        batch=None,
        epsilon=2.0,
        delta=1e-6,
    )
    kinds = (Enrolled, Update, Refused, SparseWeights)
    with place.link() as link:
        client = place.client("north", cap=2.2)
        assert link.wait_for(1, 2 * PATIENCE)

        def heard(message: Any) -> Any:
            raw = message if isinstance(message, bytes) else encode(message)
            ((_, answer),) = link.ask(raw, link.connected(), PATIENCE)
            return decode(answer, kinds)

        def books() -> list[dict[str, bytes]]:
            state = place.folder / "north-state"
            return [
                {
                    path.name: path.read_bytes()
                    for path in folder.rglob("*")
                    if path.is_file() and path.suffix != ".lock"
                }
                for folder in (place.folder / "north.json", state)
            ]

        nothing = SparseWeights.zeros(*terms.model.shape)
        first = Round(terms.digest, 1, nothing)
        assert isinstance(heard(first), Refused)  # before it has agreed to anything
        assert isinstance(heard(Enrol(terms)), Enrolled)
        answer = heard(first)
        assert isinstance(answer, Update)
        before = books()
        assert place.entries("north") == 1

        again = heard(first)
        assert np.array_equal(again.weights.to_dense(), answer.weights.to_dense())  # the same, and no other
        one = np.zeros(terms.model.shape)
        one[0] = 1.0
        steeper = replace(terms, step=2.0)
        longer = replace(terms, rounds=6)
        attacks: list[Any] = [
            Round(terms.digest, 1, SparseWeights.from_dense(one)),
            *(Round(terms.digest, number, nothing) for number in (0, -1, 6, 10**9, 2**70)),
            *(Enrol(other) for other in (steeper, longer, replace(terms, study="another"))),
            *(Enrol(replace(terms, epsilon=epsilon)) for epsilon in (1.5, 50.0)),
            Enrol(replace(terms, epsilon=None, delta=None)),
            Enrol(replace(terms, epsilon=0.1, delta=0.5)),
            Enrol(replace(terms, model=replace(terms.model, row_l2=None))),
            *(Round(other.digest, 1, nothing) for other in (steeper, longer)),
            Round("../../etc/passwd", 2, nothing),
            Round(terms.digest, 2, SparseWeights.from_dense(np.ones(terms.model.shape))),
            Round(terms.digest, 2, SparseWeights.from_dense(np.inf * one)),
            Round(terms.digest, 2, SparseWeights.zeros(3, 1)),
            b"",
            b"\0" * 1000,
            os.urandom(10_000),
            pickle.dumps(print),
            encode(first)[:-1],
            encode(first) + b"x",
            encode(first).replace(b'"Round"', b'"Popen"'),
            encode(answer),
        ]
        for attack in attacks:
            assert isinstance(heard(attack), Refused), attack
            assert books() == before, attack
        for number in range(2, 6):
            assert isinstance(heard(Round(terms.digest, number, nothing)), Update)
        before = books()
        for attack in (first, Round(terms.digest, 5, SparseWeights.from_dense(one)), Round(terms.digest, 6, nothing)):
            assert isinstance(heard(attack), Refused)
        assert books() == before
        assert place.answered("north") == [1, 2, 3, 4, 5]
        assert place.entries("north") == 1
    place.ended(client, code=3)
    refused = place.log("north").count("refused (")
    assert refused == len(attacks) + 4


def test_wrong_addresses_are_told_by_the_commands(
    place: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A port that is taken, and a server that is not there: one line, exit code 2, no folder left behind."""
    monkeypatch.chdir(place.folder)
    with place.link():
        assert main(place.server_words(rounds=5)) == 2
    told = json.loads(capsys.readouterr().out)
    assert f"localhost:{place.port} is in use" in told["error"]["message"]
    assert not (place.folder / "model").exists()
    assert main([*place.client_words("north"), "--retry-seconds", "0.5", "--quiet"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"tulle federated: no server at localhost:{place.port} within 0.5 seconds")
    assert "(north: cap epsilon = 3" in line
    assert place.entries("north") == 0


def test_a_trusted_aggregator_fits_over_the_network(place: Place) -> None:
    """A central method on sums from two processes, which have agreed to it and bill it."""
    trusting = [place.client(name, "--trust-aggregator") for name in ("north", "south")]
    words = "--study trial --trust aggregator --classes home,ward --row-l2 2 --epsilon 2 --delta 1e-6 --n-nonzero 3"
    run = f"--method hard_thresholding {place.listening} --clients north,south -o model --json"
    server = place.start("-m", "tulle", "federated", "server", *f"{words} {run}".split(), log="server")
    place.ended(server)
    for process in trusting:
        place.ended(process)
    values = json.loads((place.folder / "server.out").read_text())
    assert (values["n_rows"], values["n_features"], values["n_nonzero"]) == (400, FEATURES, 3)
    model = tulle.load(place.folder / values["model"])
    assert list(model.classes_) == ["home", "ward"]
    assert "Trusted aggregator" in " ".join(model.privacy_.who_saw_what)
    assert [place.entries(name) for name in ("north", "south")] == [1, 1]
