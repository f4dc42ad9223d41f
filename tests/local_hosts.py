"""What the tests of local studies share: processes that host users, honest and other."""

from __future__ import annotations

import json
import multiprocessing
import random
import socket
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np

from tulle.local.user_side.answer_format import Answer, answer_bytes, decode_question, encode_answer
from tulle.local.user_side.http_client import HttpUserClient, answer_for
from tulle.local.user_side.uniforms import SeededUniforms
from tulle.local.user_side.user import AlreadyAnsweredError, FileRecord, RefusedError, User

# --- processes that race for a record ---------------------------------------------------------------------------------


def race(paths: list[str], question: bytes, n_processes: int) -> list[list[int]]:
    """Which of the files each of several processes was the first to claim."""
    context = multiprocessing.get_context("fork")
    start, wins = context.Barrier(n_processes), context.Queue()
    racers = [context.Process(target=_claim, args=(paths, question, start, wins)) for _ in range(n_processes)]
    for racer in racers:
        racer.start()
    found = [wins.get(timeout=60) for _ in racers]
    for racer in racers:
        racer.join(timeout=60)
    return found


def _claim(paths: list[str], question: bytes, start: Any, wins: Any) -> None:
    won = []
    for number, path in enumerate(paths):
        user = User("anna", [1.0], 1.0, max_epsilon=1.0, record=FileRecord(path))
        start.wait(timeout=60)
        try:
            user.answer(question)
            won.append(number)
        except AlreadyAnsweredError:
            pass
    wins.put(won)


# --- nonsense ---------------------------------------------------------------------------------------------------------

# What a server makes of each kind, if it comes from a user who is asked and has not answered.
NONSENSE = {
    "random bytes": "malformed",
    "cut off": "malformed",
    "NaN": "not finite",
    "oversized": "oversized",
    "another's name": "unknown user",
    "impossible": "impossible",
}


def nonsense(kind: str, study: str, number: int, width: int, user: str) -> bytes:
    """A message of a user that does not count in round `number`. Its bytes depend on nothing but the arguments."""
    forged = encode_answer(Answer(study, number, user, np.zeros(width, dtype=np.int64)))
    if kind == "random bytes":
        return random.Random(f"{study} {user}").randbytes(200)
    if kind == "cut off":
        return forged[:-20]
    if kind == "NaN":
        return json.dumps({**json.loads(forged), "round": float("nan")}).encode()
    if kind == "oversized":
        return forged + b" " * answer_bytes(width)
    if kind == "another's name":
        return encode_answer(Answer(study, number, user + "0", np.zeros(width, dtype=np.int64)))
    assert kind == "impossible"
    return forged


def request(url: str, head: str, body: bytes = b"", timeout: float = 10.0) -> tuple[int, bytes, bool]:
    """Send a request as it stands and wait for the server to hang up: the reply's status and body, and whether it did.

    Status 0: no reply came in time.
    """
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), timeout=timeout) as line:
        line.sendall(head.encode("latin-1") + body)
        received = b""
        try:
            while not _is_whole(received):
                received += (chunk := line.recv(65536))
                if not chunk:
                    break
            closed = line.recv(1) == b""
        except TimeoutError:
            closed = False
    if not _is_whole(received):
        return 0, received, closed
    header, _, content = received.partition(b"\r\n\r\n")
    return int(header.split()[1]), content, closed


def _is_whole(received: bytes) -> bool:
    header, gap, content = received.partition(b"\r\n\r\n")
    lengths = [int(line.split(b":")[1]) for line in header.split(b"\r\n") if line.lower().startswith(b"content-length")]
    return bool(gap) and (not lengths or len(content) >= lengths[0])


def post(url: str, user: str, raw: bytes, most: int) -> int:
    """Post a message; of one that is longer than `most` the length alone, for nobody reads the rest."""
    head = f"POST /answer/{quote(user, safe='')} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    body = raw if len(raw) <= most else b""
    return request(url, head + f"Content-Length: {len(raw)}\r\n\r\n", body)[0]


# --- processes that host users ----------------------------------------------------------------------------------------


class Saboteur(User):
    """A user who sends nonsense: before its answer, or instead of it."""

    def __init__(self, *row: Any, kind: str, url: str, instead: bool, **settings: Any) -> None:
        super().__init__(*row, **settings)
        self._kind, self._url, self._instead = kind, url, instead

    def answer(self, question: bytes) -> bytes:
        asked = decode_question(question)
        width = asked.channel.width
        raw = nonsense(self._kind, asked.study, asked.round, width, self.name)
        assert post(self._url, self.name, raw, answer_bytes(width)) in (400, 404, 413)
        if self._instead:
            raise RefusedError("no other answer comes from here")
        return super().answer(question)


class Stranger(User):
    """A user who answers, and before that sends messages of somebody whom nobody has invited."""

    def __init__(self, *row: Any, url: str, **settings: Any) -> None:
        super().__init__(*row, **settings)
        self._url = url

    def answer(self, question: bytes) -> bytes:
        asked = decode_question(question)
        width = asked.channel.width
        for kind in NONSENSE:
            raw = nonsense(kind, asked.study, asked.round, width, "mallory")
            assert post(self._url, "mallory", raw, answer_bytes(width)) in (400, 404, 413)
        assert request(self._url, "POST /answer/mallory HTTP/1.1\r\nHost: x\r\n\r\n")[0] == 400
        return super().answer(question)


# What a server makes of a stranger's messages in one round.
STRANGE = {"malformed": 3, "not finite": 1, "oversized": 1, "unknown user": 2}


def host(
    url: str,
    seed: int,
    epsilon: float,
    rows: Mapping[int, tuple[Sequence[float], float]],
    saboteurs: Mapping[int, str],
    instead: bool,
    strangers: Sequence[int] = (),
) -> int:
    """Answer for the users with these rows, some of whom do more than that; how many answers counted."""
    users: list[User] = []
    for number, (x, y) in rows.items():
        row = (str(number), x, y)
        settings: dict[str, Any] = {"max_epsilon": epsilon, "uniforms": SeededUniforms(seed, [number])}
        if number in saboteurs:
            users.append(Saboteur(*row, kind=saboteurs[number], url=url, instead=instead, **settings))
        elif number in strangers:
            users.append(Stranger(*row, url=url, **settings))
        else:
            users.append(User(*row, **settings))
    return answer_for(url, users)


def warm_up() -> bool:
    """Load what a host needs."""
    return HttpUserClient is not None
