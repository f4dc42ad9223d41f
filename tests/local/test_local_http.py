"""A study over HTTP: replies, limits, retries, and ten thousand users in eight processes on one machine."""

from __future__ import annotations

import base64
import json
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from local_hosts import NONSENSE, STRANGE, host, nonsense, request, warm_up

import tulle.local.server_side.http_server as over_http
import tulle.local.user_side.http_client as over_client
from tulle import Bounds, Budget
from tulle.local import LocalSparseRegressor
from tulle.local.server_side.http_server import HttpStudy
from tulle.local.server_side.protocols import LdpIht
from tulle.local.server_side.study_server import Receipt, Server
from tulle.local.user_side.answer_format import Answer, decode_answer, encode_answer, place
from tulle.local.user_side.http_client import HttpUserClient, answer_for
from tulle.local.user_side.uniforms import SeededUniforms
from tulle.local.user_side.user import FileRecord, User

BOUNDS = Bounds(row_linf=1.0, label=1.0)
NAMES = ["anna", "ben", "c/d?e#f %41é😀", "dora", "emil", "frieda"]


def small(n_gradients: int = 1, names: list[str] = NAMES) -> Server:
    return Server(LdpIht(Budget(1.0), 3, BOUNDS, True, n_gradients=n_gradients), names, "a study")


def user(name: str, **settings: Any) -> User:
    return User(name, [0.1, 0.2, 0.3], 0.5, **{"max_epsilon": 1.0, **settings})


def forged(name: str, values: Any = (2048, 0, 0, 0), number: int = 1) -> bytes:
    return encode_answer(Answer("a study", number, name, np.array(values)))


@pytest.fixture
def study() -> Iterator[HttpStudy]:
    """One round for six users."""
    with HttpStudy(small()) as served:
        yield served


def ask(url: str, after: int) -> bytes | None:
    """The question, by the user's client."""
    with closing(HttpUserClient(url)) as client:
        return client.question(after)


def say(url: str, raw: bytes | None = None) -> bool:
    """Whether anna's answer counts, by the user's client."""
    with closing(HttpUserClient(url)) as client:
        return client.send("anna", forged("anna") if raw is None else raw)


def get(served: HttpStudy, path: str) -> tuple[int, bytes, bool]:
    return request(served.url, f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")


def post(served: HttpStudy, path: str, body: bytes) -> tuple[int, bytes, bool]:
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    return request(served.url, head, body)


def post_head(served: HttpStudy, path: str, *headers: str) -> tuple[int, bytes, bool]:
    """The head of an answer that does not come; the server hangs up if it has had enough."""
    return request(served.url, "\r\n".join([f"POST {path} HTTP/1.1", "Host: x", *headers, "", ""]), timeout=3.0)


# --- replies ----------------------------------------------------------------------------------------------------------


def test_the_question_is_the_servers(study: HttpStudy) -> None:
    """To the byte, with and without `after`."""
    for path in ("/question", "/question?after=0"):
        assert get(study, path)[:2] == (200, study.server.question)


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/questions", "/question/", "/../etc/passwd", "http://[", "//[", "/answer/anna"),
        *(f"/question?after={after}" for after in ("x", "-1", "1e3", "9" * 10, "%D9%A3")),
    ],
)
def test_what_is_not_there_is_not_found(path: str, study: HttpStudy) -> None:
    """Nothing is served but the question."""
    assert get(study, path)[0] == 404
    assert not study.server.rejected


def test_metrics_and_health_tell_nothing_of_the_open_round(tmp_path: Path) -> None:
    """Counts move when a round is closed, and not with each answer: who answers when is nobody's business."""
    protocol = LdpIht(Budget(1.0), 3, BOUNDS, True, n_gradients=2)
    server = Server(protocol, NAMES, "a study", tmp_path / "journal")
    with HttpStudy(server) as served:
        before = get(served, "/metrics")[1]
        heard = next(name for name in NAMES if name in server.asked)
        assert server.receive(forged(heard)).accepted
        server.reject("malformed", "for a test")
        assert get(served, "/metrics")[1] == before
        assert b"tulle_local_answers_total 0.0\n" in before
        server.close_round()
        after = get(served, "/metrics")[1].decode()
        assert "\ntulle_local_answers_total 1.0\n" in after
        assert '\ntulle_local_rejected_total{reason="malformed"} 1.0\n' in after
        assert not any(name in after for name in NAMES)
        status, body, _ = get(served, "/healthz")
        assert (status, json.loads(body)) == (200, {"status": "ok", "readable": True, "writable": True})


def test_a_round_that_is_not_open_yet_is_told_after_a_while(study: HttpStudy, monkeypatch: pytest.MonkeyPatch) -> None:
    """204, and the user asks again."""
    monkeypatch.setattr(over_http, "WAIT_SECONDS", 0.05)
    assert get(study, "/question?after=1")[:2] == (204, b"")


def test_who_waits_for_a_round_gets_it_when_it_opens() -> None:
    """The reply comes with the end of the round before, long before the waiting is over."""
    server = small(n_gradients=2)
    with HttpStudy(server) as served:
        found: list[bytes | None] = []
        waiting = threading.Thread(target=lambda: found.append(ask(served.url, 1)))
        waiting.start()
        server.close_round()
        waiting.join(4.0)  # less than the server would wait
        assert found == [server.question]


def test_the_end_is_told(study: HttpStudy) -> None:
    """410 to those who ask, also to those who were waiting; an answer is late then, however long it is."""
    found: list[bytes | None] = []
    waiting = threading.Thread(target=lambda: found.append(ask(study.url, 1)))
    waiting.start()
    study.server.close_round()
    waiting.join(4.0)
    assert found == [None]
    assert get(study, "/question")[0] == 410
    assert get(study, "/question?after=7")[0] == 410
    status, body, _ = post(study, "/answer/anna", forged("anna"))
    assert (status, json.loads(body)["reason"]) == (409, "late")
    assert dict(study.server.rejected) == {"late": 1}


REPLIES: dict[str, tuple[str, bytes, int, str | None]] = {
    "proper": ("anna", forged("anna"), 200, None),
    "nonsense": ("anna", b"\x00\xff", 400, "malformed"),
    "nothing": ("anna", b"", 400, "malformed"),
    "impossible": ("anna", forged("anna", [0, 0, 0, 0]), 400, "impossible"),
    "not finite": ("anna", forged("anna").replace(b'"round":1', b'"round":NaN'), 400, "not finite"),
    "another version": ("anna", forged("anna").replace(b'"tulle":1', b'"tulle":2'), 400, "other version"),
    "a round to come": ("anna", forged("anna", number=2), 409, "not asked"),
    "a stranger": ("mallory", forged("mallory"), 404, "unknown user"),
    "in another's name": ("ben", forged("anna"), 404, "unknown user"),
    "too long": ("anna", forged("anna") + b" " * 5000, 413, "oversized"),
}


@pytest.mark.parametrize("kind", REPLIES)
def test_an_answer_gets_the_reply_it_deserves(kind: str, study: HttpStudy) -> None:
    """With the reason, which the server has counted."""
    name, raw, status, reason = REPLIES[kind]
    found, body, _ = post(study, f"/answer/{name}", raw)
    assert found == status
    reply = json.loads(body)
    assert set(reply) == {"accepted", "reason", "text"}
    assert (reply["accepted"], reply["reason"]) == (reason is None, reason)
    assert study.server.accepted == (reason is None)
    assert dict(study.server.rejected) == ({} if reason is None else {reason: 1})


def test_a_second_answer_is_a_conflict(study: HttpStudy) -> None:
    """409, on the same line: it stays open."""
    client = HttpUserClient(study.url)
    assert client.send("anna", forged("anna"))
    line = client._line
    assert not client.send("anna", forged("anna"))
    assert client._line is line
    assert dict(study.server.rejected) == {"duplicate": 1}
    client.close()


def test_names_of_all_kinds_of_letters_reach_the_server(study: HttpStudy) -> None:
    """Slashes, questions marks, percent signs and emoji."""
    client = HttpUserClient(study.url)
    assert all(client.send(name, forged(name)) for name in NAMES)
    client.close()
    assert study.server.accepted == len(NAMES)


# --- lengths ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [None, "", "-1", "+5", "1e3", "0x10", "1,2", "²", "five", "1.0"])
def test_an_answer_without_a_proper_length_is_not_read(length: str | None, study: HttpStudy) -> None:
    """400, and the line is closed: nobody knows where the next request starts."""
    headers = [] if length is None else [f"Content-Length: {length}"]
    status, _, closed = post_head(study, "/answer/anna", *headers)
    assert (status, closed) == (400, True)
    assert dict(study.server.rejected) == {"malformed": 1}


@pytest.mark.parametrize("path", ["/", "/answer", "/answers/anna", "/question", "http://[/answer/anna"])
def test_an_answer_to_another_address_is_counted_and_not_read(path: str, study: HttpStudy) -> None:
    """400, closed."""
    status, _, closed = post_head(study, path, "Content-Length: 10")
    assert (status, closed) == (400, True)
    assert dict(study.server.rejected) == {"malformed": 1}


def test_a_body_in_pieces_of_no_stated_length_is_not_read(study: HttpStudy) -> None:
    """Transfer-Encoding: chunked could be endless."""
    status, _, closed = post_head(study, "/answer/anna", "Transfer-Encoding: chunked")
    assert (status, closed) == (400, True)


@pytest.mark.parametrize("excess", [1, 10**6, 10**12, 10**30])
def test_too_long_an_answer_is_refused_before_a_byte_of_it_is_read(excess: int, study: HttpStudy) -> None:
    """413 comes while the body is still to be sent; closed, counted, and its sender is not waited for."""
    length = study.server.most_bytes + excess
    status, body, closed = post_head(study, "/answer/anna", f"Content-Length: {length}")
    assert (status, closed) == (413, True)
    assert json.loads(body)["reason"] == "oversized"
    assert dict(study.server.rejected) == {"oversized": 1}
    assert study.server._heard == {"anna"}


def test_the_longest_answer_there_can_be_is_read(study: HttpStudy) -> None:
    """At the limit itself."""
    raw = forged("anna")
    assert post(study, "/answer/anna", raw + b" " * (study.server.most_bytes - len(raw)))[0] == 200


def test_nothing_is_written_about_who_does_what(study: HttpStudy, capfd: pytest.CaptureFixture[str]) -> None:
    """Neither requests nor errors nor lines that break off leave a word on the server's console."""
    post(study, "/answer/anna", forged("anna"))
    get(study, "http://[")
    get(study, "/nothing")
    request(study.url, "NONSENSE\r\n\r\n")
    address = study.url.removeprefix("http://").split(":")
    for _ in range(3):
        line = socket.create_connection((address[0], int(address[1])))
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")  # hang up at once
        line.sendall(b"POST /answer/ben HTTP/1.1\r\nContent-Length: 50\r\n\r\nhalf of it")
        line.close()
    ask(study.url, 0)
    assert capfd.readouterr() == ("", "")


# --- many at once -----------------------------------------------------------------------------------------------------


def test_stalled_clients_stop_nobody(study: HttpStudy) -> None:
    """Twenty lines that send half of a request, or nothing, while six users answer and the study ends."""
    address = study.url.removeprefix("http://").split(":")
    lines = [socket.create_connection((address[0], int(address[1]))) for _ in range(20)]
    for line, half in zip(lines, 5 * (b"", b"POST /answer/anna HT", b"GET /question", b"")):
        line.sendall(half)
    lines[0].sendall(b"POST /answer/anna HTTP/1.1\r\nContent-Length: 100\r\n\r\nhalf")
    done: list[int] = []
    hosting = threading.Thread(target=lambda: done.append(answer_for(study.url, [user(name) for name in NAMES])))
    hosting.start()
    study.run(seconds_per_round=30.0)
    hosting.join(10.0)
    for line in lines:
        line.close()
    assert done == [len(NAMES)]
    assert study.server.accepted == len(NAMES)


def test_a_round_ends_when_its_time_is_up_or_everyone_was_heard(capfd: pytest.CaptureFixture[str]) -> None:
    """Who is missing is late; progress is told on standard error if it is wanted, and holds counts alone."""
    server = small(n_gradients=2)
    with HttpStudy(server) as served:
        served.run(seconds_per_round=0.01, verbose=1)
    assert server.finished
    assert server.accepted == 0
    told = capfd.readouterr().err.splitlines()
    assert told == [f"round {number} of 2: 0 answers so far, 0 rejected" for number in (1, 2)]
    server = small()
    for name in NAMES:
        server.receive(forged(name), name)
    with HttpStudy(server) as served:
        running = threading.Thread(target=served.run, args=(1000.0,), daemon=True)
        running.start()
        running.join(10.0)
    assert server.finished


def test_one_users_no_is_not_anothers(study: HttpStudy, tmp_path: Path) -> None:
    """A host goes on with its other users where one refuses the price or has answered before, and where one is late."""
    spent = FileRecord(tmp_path / "ben")
    question = study.server.question
    assert question is not None
    user("ben", record=spent).answer(question)
    users = [user("anna", max_epsilon=0.5), user("ben", record=spent), *(user(name) for name in NAMES[2:])]
    done: list[int] = []
    hosting = threading.Thread(target=lambda: done.append(answer_for(study.url, users)))
    hosting.start()
    with study.server.changed:
        assert study.server.changed.wait_for(lambda: study.server.accepted == len(NAMES) - 2, timeout=20)
    study.server.close_round()
    hosting.join(10.0)
    assert done == [len(NAMES) - 2]
    assert not study.server.rejected


# --- lines that break -------------------------------------------------------------------------------------------------


class Unreliable:
    """A server that notes what is posted, and hangs up on the first requests: before it reads, or before it replies."""

    def __init__(self, drops: int, reply: Callable[[int], bytes]) -> None:
        self.seen: list[bytes] = []
        self._drops, self._reply = drops, reply
        self._door = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._door.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                line, _ = self._door.accept()
            except OSError:
                return
            with line, line.makefile("rb") as reader:
                length = 0
                while (header := reader.readline().strip()) != b"":
                    if header.lower().startswith(b"content-length:"):
                        length = int(header.split(b":")[1])
                self.seen.append(reader.read(length))
                if len(self.seen) > self._drops:
                    body = self._reply(len(self.seen))
                    line.sendall(body)

    def close(self) -> None:
        self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()


@pytest.fixture
def unreliable() -> Iterator[Callable[[int, Callable[[int], bytes]], Unreliable]]:
    """Makes such servers, and closes them."""
    made: list[Unreliable] = []

    def make(drops: int, reply: Callable[[int], bytes]) -> Unreliable:
        made.append(Unreliable(drops, reply))
        return made[-1]

    yield make
    for server in made:
        server.close()


def http_reply(status: int, body: bytes = b"{}") -> bytes:
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Pauses between attempts are noted, not made."""
    pauses: list[float] = []
    monkeypatch.setattr(over_client.time, "sleep", pauses.append)
    return pauses


def test_what_was_lost_is_sent_again_as_it_was(no_pause: list[float], unreliable: Any) -> None:
    """Three lost connections: four times the same bytes, and the user has drawn one answer."""
    question = small().question
    assert question is not None
    server = unreliable(3, lambda _: http_reply(200))
    draws = []

    class Counted:
        def draw(self, users: int, each: int) -> Any:
            draws.append(each)
            return SeededUniforms(0, [len(draws)]).draw(users, each)

    anna = user("anna", uniforms=Counted())
    assert say(server.url, anna.answer(question))
    assert len(server.seen) == 4
    assert len(set(server.seen)) == 1
    assert decode_answer(server.seen[0], 4).user == "anna"
    assert len(draws) == 1
    assert no_pause == [0.1, 0.2, 0.4]


def test_a_host_draws_no_second_answer_for_a_lost_line(no_pause: list[float], unreliable: Any) -> None:
    """From the question to the reply by `answer_for`: two lost answers, the same bytes three times."""
    question = small(names=["anna"]).question
    assert question is not None
    replies = {1: http_reply(200, question), 4: http_reply(200)}
    server = unreliable(0, lambda number: replies.get(number, b""))
    assert answer_for(server.url, [user("anna")]) == 1
    posted = server.seen[1:4]
    assert len(server.seen) == 4  # everybody was asked: no further question is waited for
    assert posted[0] == posted[1] == posted[2] != b""


def test_an_answer_whose_reply_was_lost_counts(no_pause: list[float], unreliable: Any) -> None:
    """The server has it: "duplicate" to the second sending is a yes, and to a first one a no."""
    duplicate = http_reply(409, b'{"accepted": false, "reason": "duplicate", "text": ""}')
    lost, fine = unreliable(1, lambda _: duplicate), unreliable(0, lambda _: duplicate)
    assert say(lost.url)
    assert not say(fine.url)
    late = unreliable(1, lambda _: http_reply(409, b'{"reason": "late"}'))
    assert not say(late.url)


def test_a_line_that_stays_dead_is_given_up(no_pause: list[float], unreliable: Any) -> None:
    """After the attempts that were allowed, with the error of the last."""
    server = unreliable(99, lambda _: b"")
    with pytest.raises((OSError, over_client.http.client.HTTPException)):
        HttpUserClient(server.url, attempts=2).send("anna", b"x")
    assert server.seen == [b"x", b"x"]


def test_a_server_that_says_something_else_is_no_server(unreliable: Any) -> None:
    """A status that the protocol does not know ends it."""
    with pytest.raises(ConnectionError, match="status 500"):
        ask(unreliable(0, lambda _: http_reply(500)).url, 0)


@pytest.mark.parametrize("url", ["ftp://127.0.0.1", "127.0.0.1:80", "https:///question", ""])
def test_an_address_is_one_of_http(url: str) -> None:
    """Nothing else is guessed."""
    with pytest.raises(ValueError, match="begins with http:// or https://"):
        HttpUserClient(url)


def test_a_secure_address_is_not_spoken_to_in_the_clear(no_pause: list[float]) -> None:
    """https:// starts with a handshake: a server of plain HTTP sees no name and no answer."""
    seen: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as door:

        def listen() -> None:
            line, _ = door.accept()
            with line:
                seen.append(line.recv(4096))

        listening = threading.Thread(target=listen, daemon=True)
        listening.start()
        with pytest.raises(OSError, match=r"SSL|EOF|[Cc]onnection"):
            HttpUserClient(f"https://127.0.0.1:{door.getsockname()[1]}", attempts=1).send("anna", b"secret")
        listening.join(10.0)
    assert seen[0][:1] == b"\x16"  # a TLS record
    assert b"anna" not in seen[0]


# --- ten thousand users -----------------------------------------------------------------------------------------------

SEED, EPSILON, DIMENSION, N_HOSTS = 11, 2.0, 10, 8
WIDTH = DIMENSION + 1


class RecordingServer(Server):
    """Keeps every message that was read, with who sent it and what became of it."""

    def __init__(self, *settings: Any) -> None:
        super().__init__(*settings)
        self.messages: list[tuple[bytes, str | None, Receipt]] = []

    def receive(self, raw: bytes, sender: str | None = None) -> Receipt:
        receipt = super().receive(raw, sender)
        self.messages.append((raw, sender, receipt))
        return receipt


@pytest.fixture(scope="module")
def hosts() -> Iterator[ProcessPoolExecutor]:
    """Eight processes for users, and one for worse."""
    with ProcessPoolExecutor(N_HOSTS + 1, mp_context=get_context("spawn")) as pool:
        for warm in [pool.submit(warm_up) for _ in range(N_HOSTS + 1)]:
            assert warm.result(timeout=120)
        yield pool


def population(n: int) -> tuple[Any, Any]:
    """Rows and labels that are real numbers of 53 bits, none like another."""
    rng = np.random.default_rng(n)
    X = rng.uniform(-1, 1, (n, DIMENSION))
    return X, 0.5 * X[:, 3] - 0.4 * X[:, 7] + rng.uniform(-0.05, 0.05, n)


def estimator() -> LocalSparseRegressor:
    return LocalSparseRegressor(EPSILON, n_nonzero=2, n_rounds=8, bounds=BOUNDS, random_state=SEED)


def recording(n: int) -> RecordingServer:
    """The very study that the estimator simulates."""
    protocol = estimator().protocol(DIMENSION, n)
    return RecordingServer(protocol, [str(number) for number in range(n)], f"simulation {SEED}")


def groups_of(server: Server, n: int) -> list[int]:
    """The number of the round that asks each user."""
    places = [place(server.study, str(number)) for number in range(n)]
    return np.searchsorted(server.protocol.borders(), places, side="right").tolist()


def run_hosts(
    pool: ProcessPoolExecutor,
    server: Server,
    X: Any,
    y: Any,
    parts: list[list[int]],
    saboteurs: dict[int, str],
    instead: bool,
    strangers: list[int],
) -> int:
    """Serve a study to processes that host users; how many answers counted, as the hosts know."""
    with HttpStudy(server) as served:
        running = [
            pool.submit(
                host,
                served.url,
                SEED,
                EPSILON,
                {number: (X[number].tolist(), float(y[number])) for number in part},
                {number: saboteurs[number] for number in part if number in saboteurs},
                instead,
                strangers,
            )
            for part in parts
        ]
        served.run(seconds_per_round=60.0)
        return sum(hosted.result(timeout=60) for hosted in running)


def leaked(raw: bytes, numbers: Any) -> list[float]:
    """Which of a user's numbers a message holds: as bytes of 64 or 32 bits, plainly or in base64, or in decimal."""
    values = base64.b64decode(json.loads(raw)["values"])
    found = []
    for number in numbers:
        forms = [struct.pack(kind, number) for kind in ("<d", ">d", "<f", ">f")]
        in_text = (repr(float(number)).encode(), f"{number:.6g}".encode())
        if any(form in values or form in raw for form in forms) or any(text in raw for text in in_text):
            found.append(float(number))
    return found


def windows(data: bytes) -> Any:
    """All runs of eight bytes."""
    every = np.lib.stride_tricks.sliding_window_view(np.frombuffer(data, dtype=np.uint8), 8)
    return np.unique(np.ascontiguousarray(every).view("<u8"))


def test_what_would_leak_is_found() -> None:
    """The search below can fail: a number in any form is found in an answer that holds it."""
    numbers = [0.123456789123456, -0.987654321]
    honest = encode_answer(Answer("s", 1, "anna", np.arange(WIDTH)))
    assert leaked(honest, numbers) == []
    for kind in ("<f4", ">f4", "<f8", ">f8"):
        data = np.array(numbers[1], dtype=kind).tobytes() + bytes(WIDTH * 4)
        values = np.frombuffer(data[: WIDTH * 4], dtype="<i4")
        assert leaked(encode_answer(Answer("s", 1, "anna", values)), numbers) == [numbers[1]]
    assert leaked(honest.replace(b"anna", b"0.123456789123456"), numbers) == [numbers[0]]
    assert leaked(honest.replace(b"anna", b"-0.987654"), numbers) == [numbers[1]]
    assert np.isin(np.array(numbers).view("<u8"), windows(b"abc" + np.array(numbers).tobytes() + b"de")).all()


@pytest.fixture(scope="module")
def big_run(hosts: ProcessPoolExecutor) -> tuple[RecordingServer, dict[str, int], int]:
    """10,000 users in eight processes, a hundred of whom send nonsense before they answer, and a hostile ninth process
    that has eight users of its own and floods the server in every round. Beside the server: what it has to reject."""
    n = 10_000
    X, y = population(n)
    server = recording(n)
    groups = groups_of(server, n)
    strangers = [groups.index(group) for group in range(1, server.protocol.n_rounds + 1)]
    others = [number for number in range(n) if number not in strangers]
    parts = [others[start::N_HOSTS] for start in range(N_HOSTS)]
    # A round must not end between a user's nonsense and its answer: somebody in the same process comes after it.
    last = {max(number for number in part if groups[number] == group) for part in parts for group in set(groups)}
    kinds = list(NONSENSE)
    saboteurs = {
        number: kinds[place % len(kinds)] for place, number in enumerate(sorted(set(others) - last)[::99][:100])
    }
    counted = run_hosts(hosts, server, X, y, [*parts, strangers], saboteurs, False, strangers)
    expected = Counter(NONSENSE[kind] for kind in saboteurs.values())
    for reason, times in STRANGE.items():
        expected[reason] += times * len(strangers)
    assert len(saboteurs) == 100
    return server, dict(expected), counted


def test_ten_thousand_users_give_the_model_that_is_simulated(
    big_run: tuple[RecordingServer, dict[str, int], int],
) -> None:
    """To the last bit, though one message in a hundred is nonsense."""
    server, _, counted = big_run
    X, y = population(10_000)
    model = estimator().fit(X, y)
    assert isinstance(server.protocol, LdpIht)
    assert server.protocol.weights[:-1].tobytes() == model.coef_.tobytes()
    assert server.protocol.weights[-1] == model.intercept_
    assert server.accepted == counted == model.n_answers_ == 10_000
    assert model.support_.tolist() == [3, 7]


def test_nonsense_from_among_ten_thousand_users_is_counted_exactly(
    big_run: tuple[RecordingServer, dict[str, int], int],
) -> None:
    """By reason, none missing and none twice."""
    server, expected, _ = big_run
    assert dict(server.rejected) == expected
    assert sum(expected.values()) == 156


def test_nobodys_row_or_label_is_in_what_was_sent(big_run: tuple[RecordingServer, dict[str, int], int]) -> None:
    """No answer holds a number of its user in any form, nor one of another's to the bit; each has the fields of an
    answer, and one length whatever the row."""
    server, _, _ = big_run
    X, y = population(10_000)
    answers = [raw for raw, _, receipt in server.messages if receipt.accepted]
    assert len(answers) == 10_000
    lengths, blobs, groups = [], [], groups_of(server, 10_000)
    for raw in answers:
        message = json.loads(raw)
        assert set(message) == {"tulle", "message", "study", "round", "user", "values"}
        number = int(message["user"])
        assert message["round"] == groups[number]
        assert leaked(raw, [*X[number], y[number]]) == []
        values = decode_answer(raw, WIDTH).values
        lengths.append(float(np.linalg.norm(values)))
        blobs.append(values.astype("<i4").tobytes())
    assert np.ptp(lengths) <= np.sqrt(WIDTH)  # of 4096: rounding to whole numbers, half of one each
    sent = windows(b"|".join([*blobs, *(raw for raw, _, _ in server.messages)]))
    private = np.concatenate([X.ravel(), y])
    assert not np.isin(private.view("<u8"), sent).any()
    assert not np.isin(private.byteswap().view("<u8"), sent).any()


def test_nonsense_in_place_of_answers_is_as_in_one_process(hosts: ProcessPoolExecutor) -> None:
    """600 users of whom one in thirty sends nonsense alone: rounds end without them, and model and counts are those of
    the same messages given to a server by hand."""
    n = 600
    X, y = population(n)
    kinds = list(NONSENSE)
    saboteurs = {number: kinds[place % len(kinds)] for place, number in enumerate(range(5, n, 30))}
    server, by_hand = recording(n), recording(n)
    parts = [list(range(start, n, N_HOSTS)) for start in range(N_HOSTS)]
    counted = run_hosts(hosts, server, X, y, parts, saboteurs, True, [])
    while not by_hand.finished:
        question = by_hand.question
        assert question is not None
        for name in by_hand.asked:
            number = int(name)
            if number in saboteurs:
                raw = nonsense(saboteurs[number], by_hand.study, by_hand.round, WIDTH, name)
            else:
                uniforms = SeededUniforms(SEED, [number])
                raw = User(name, X[number], y[number], max_epsilon=EPSILON, uniforms=uniforms).answer(question)
            by_hand.receive(raw, name)
        assert by_hand.everyone_heard
        by_hand.close_round()
    assert isinstance(server.protocol, LdpIht)
    assert isinstance(by_hand.protocol, LdpIht)
    assert server.protocol.weights.tobytes() == by_hand.protocol.weights.tobytes()
    assert server.accepted == by_hand.accepted == counted == n - 20
    assert server.rejected == by_hand.rejected == Counter(NONSENSE[kind] for kind in saboteurs.values())
