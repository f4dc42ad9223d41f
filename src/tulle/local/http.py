"""A local study over HTTP, on the standard library alone.

    GET  /question?after=3   the question of the first round after round 3, when it opens; 204: not yet; 410: over
    POST /answer/<user>      an answer; the reply says whether it counts

Put it behind a proxy that speaks TLS: users' names are what keeps others from answering for them.
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from tulle.local.server import Receipt, Server
from tulle.local.user import RefusedError, User
from tulle.local.wire import Reason, decode_question

# How long a question that is not open yet is waited for before the user asks again, and a silent line is kept.
_WAIT_SECONDS = 5.0
_IDLE_SECONDS = 30.0

_STATUS: dict[Reason, int] = {"oversized": 413, "late": 409, "duplicate": 409, "not asked": 409, "unknown user": 404}


class HttpStudy:
    """Serves a study until it is over, and closes the server then.

    Parameters
    ----------
    server : Server
    host : str, default="127.0.0.1"
    port : int, default=0
        0 takes a free one; `url` says which.

    Examples
    --------
    >>> from tulle import Bounds, Budget
    >>> from tulle.local import HttpStudy, LdpIht, Server
    >>> protocol = LdpIht(Budget(1.0), 3, Bounds(row_linf=1.0, label=1.0), True)
    >>> with HttpStudy(Server(protocol, ["anna", "ben"], "a study")) as study:
    ...     study.run(seconds_per_round=0.01)  # nobody answers
    >>> protocol.weights
    array([0., 0., 0., 0.])
    """

    def __init__(self, server: Server, host: str = "127.0.0.1", port: int = 0) -> None:
        self.server = server
        self._listener = _Listener((host, port), _handler_of(server))
        self.url = f"http://{host}:{self._listener.server_address[1]}"

    def __enter__(self) -> HttpStudy:
        threading.Thread(target=self._listener.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._listener.shutdown()
        self._listener.server_close()
        self.server.close()

    def run(self, seconds_per_round: float, verbose: int = 0) -> None:
        """Close each round when everyone in its group was heard, or when its time is up.

        Parameters
        ----------
        seconds_per_round : float
            Who has not answered by then is late.
        verbose : int, default=0
            1 shows progress on standard error: counts, nothing that a user said.
        """
        server = self.server
        while not server.finished:
            with server.changed:
                server.changed.wait_for(lambda: server.everyone_heard, timeout=seconds_per_round)
                number = server.round
                server.close_round()
            if verbose:
                rejected = sum(server.rejected.values())
                print(
                    f"round {number} of {server.protocol.n_rounds}: {server.accepted:,} answers so far, "
                    f"{rejected:,} rejected",
                    file=sys.stderr,
                    flush=True,
                )


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing is written about users who hang up: who answers when is nobody's business."""


def _handler_of(server: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = _IDLE_SECONDS
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            after = parse_qs(query).get("after", ["0"])[0]
            if path != "/question" or not (after.isascii() and after.isdecimal()) or len(after) > 9:
                return self._reply(404, b"")
            with server.changed:
                server.changed.wait_for(lambda: server.finished or server.round > int(after), timeout=_WAIT_SECONDS)
                question, is_open = server.question, server.round > int(after)
            if question is None:
                return self._reply(410, b"")
            return self._reply(200, question) if is_open else self._reply(204, b"")

        def do_POST(self) -> None:
            user = unquote(self.path.removeprefix("/answer/"))
            length = self.headers.get("Content-Length", "")
            if not self.path.startswith("/answer/") or not (length.isascii() and length.isdecimal()):
                self.close_connection = True
                server.reject("malformed", "no such address, or no length")
                return self._reply(400, b"")
            if len(length) > 12 or int(length) > max(server.most_bytes, 1):
                self.close_connection = True  # what follows is not read
                return self._receipt(server.reject("oversized", f"{length:.20} bytes", user))
            return self._receipt(server.receive(self.rfile.read(int(length)), user))

        def _receipt(self, receipt: Receipt) -> None:
            said = {"accepted": receipt.accepted, "reason": receipt.reason, "text": receipt.text[:200]}
            status = 200 if receipt.reason is None else _STATUS.get(receipt.reason, 400)
            self._reply(status, json.dumps(said).encode())

        def _reply(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            if self.close_connection:
                self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words: Any) -> None:
            """No log: who answers when is nobody's business."""

    return Handler


_LINES = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}


class HttpUserClient:
    """A user's line to a server. What could not be sent is sent again as it is; no second answer is drawn.

    Parameters
    ----------
    url : str
        Beginning with http:// or https://.
    attempts : int, default=5
        How often a lost connection is tried again.
    """

    def __init__(self, url: str, attempts: int = 5) -> None:
        parts = urlsplit(url)
        if parts.scheme not in _LINES or not parts.hostname:
            raise ValueError(f"a server's address begins with http:// or https://, not {url!r}")
        if attempts < 1:
            raise ValueError(f"attempts must be at least 1, got {attempts}")
        self._line_to = _LINES[parts.scheme]
        self._address = (parts.hostname, parts.port)
        self._attempts = attempts
        self._line: http.client.HTTPConnection | None = None
        self._repeated = False

    def question(self, after: int) -> bytes | None:
        """The next question after a round, when it opens; None where the study is over."""
        while True:
            status, body = self._request("GET", f"/question?after={after}", None)
            if status == 410:
                return None
            if status == 200:
                return body
            if status != 204:
                raise ConnectionError(f"the server replied with status {status}")

    def send(self, user: str, answer: bytes) -> bool:
        """Send an answer; whether it counts."""
        self._repeated = False
        status, reply = self._request("POST", f"/answer/{quote(user, safe='')}", answer)
        # The reply to an earlier attempt may have been lost, and the answer counted.
        return status == 200 or (self._repeated and status == 409 and b'"duplicate"' in reply)

    def _request(self, verb: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        for attempt in range(self._attempts):
            self._repeated = attempt > 0
            try:
                if self._line is None:
                    self._line = self._line_to(*self._address, timeout=_IDLE_SECONDS + _WAIT_SECONDS)
                self._line.request(verb, path, body)
                reply = self._line.getresponse()
                return reply.status, reply.read()
            except (OSError, http.client.HTTPException):
                self.close()
                if attempt == self._attempts - 1:
                    raise
                time.sleep(0.1 * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    def __enter__(self) -> HttpUserClient:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up; the next request dials again."""
        if self._line is not None:
            self._line.close()
        self._line = None


def answer_for(url: str, users: Sequence[User]) -> int:
    """Answer for users that one process hosts, until the study is over; how many answers counted."""
    after, counted = 0, 0
    with HttpUserClient(url) as client:
        while (question := client.question(after)) is not None:
            asked = decode_question(question)
            after = asked.round
            for user in users:
                if asked.is_for(user.name):
                    with suppress(RefusedError):  # one user's no is not another's
                        counted += client.send(user.name, user.answer(question))
    return counted
