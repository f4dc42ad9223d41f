"""A local study over HTTP, on the standard library alone.

    GET  /question?after=3   the question of the first round after round 3, when it opens; 204: not yet; 410: over
    POST /answer/<user>      an answer; the reply says whether it counts
    GET  /healthz, /metrics  for those who run it; counts are those at the end of the last round

Put it behind a proxy that speaks TLS and keeps no log of addresses: users' names, which are in them, are what keeps
others from answering for them. `tulle.local.user_side.http_client` is the user's end.
"""

from __future__ import annotations

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote

from tulle.local.server_side.study_server import Receipt, Server
from tulle.local.user_side.answer_format import Reason
from tulle.local.user_side.http_client import IDLE_SECONDS, WAIT_SECONDS
from tulle.monitoring.log_events import log_event
from tulle.monitoring.status_pages import Metric, StatusPages, check_store, send_page

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
    ...     study.run(seconds_per_round=0.01)  # no user answers
    >>> protocol.weights
    array([0., 0., 0., 0.])
    """

    def __init__(self, server: Server, host: str = "127.0.0.1", port: int = 0) -> None:
        self.server = server
        self._listener = _Listener((host, port), _handler_of(server))
        self.url = f"http://{host}:{self._listener.server_address[1]}"

    def __enter__(self) -> HttpStudy:
        threading.Thread(target=self._listener.serve_forever, args=(0.02,), daemon=True).start()
        log_event(__name__, "service.begin", what="HttpStudy", port=int(self._listener.server_address[1]))
        return self

    def __exit__(self, *error: object) -> None:
        self._listener.shutdown()
        self._listener.server_close()
        self.server.close()
        log_event(__name__, "service.end", what="HttpStudy")

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
        """Nothing is written about users who hang up: a log must not show who answers when."""


def _metrics_of(server: Server) -> tuple[Metric, ...]:
    """Counts at the end of the last round: a reader who asks every second does not see who answers when."""
    answered, rejected = server.closed_counts
    return (
        Metric("tulle_local_rounds", "gauge", "Rounds of the study.", {"": server.protocol.n_rounds}),
        Metric("tulle_local_round", "gauge", "The round that is open.", {"": server.round}),
        Metric("tulle_local_answers_total", "counter", "Answers that counted.", {"": answered}),
        Metric("tulle_local_rejected_total", "counter", "Messages that did not, by reason.", rejected, "reason"),
    )


def _handler_of(server: Server) -> type[BaseHTTPRequestHandler]:
    pages = StatusPages(lambda: _metrics_of(server), lambda: check_store(server.journal))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = IDLE_SECONDS
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            if (page := pages.find(self.path)) is not None:
                return send_page(self, page)
            path, _, query = self.path.partition("?")
            after = parse_qs(query).get("after", ["0"])[0]
            if path != "/question" or not (after.isascii() and after.isdecimal()) or len(after) > 9:
                return self._reply(404, b"")
            with server.changed:
                server.changed.wait_for(lambda: server.finished or server.round > int(after), timeout=WAIT_SECONDS)
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
            """No log: it would show who answers when."""

    return Handler
