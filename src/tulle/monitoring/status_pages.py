"""`/healthz` and `/metrics`, the same on every server of tulle.

    GET /healthz    {"status": "ok", "readable": true, "writable": true}, status 200; 503 where one of them is false
    GET /metrics    counters and gauges in the text format of Prometheus

Metrics are counts. No label names a user, a client or a row; data sets are named only where the server has told who
asks (`tulle.ledgers.service`).
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal, Self

from tulle import __version__
from tulle.monitoring.log_events import log_event

# About when the process started: this is imported as a server is made.
_STARTED = time.time()
_TIMEOUT = 10.0
# A store with less room than this takes no more entries for long.
_LEAST_FREE_BYTES = 1 << 20


@dataclass(frozen=True)
class Metric:
    """A metric with its values by label.

    Attributes
    ----------
    name : str
        Ends in _total for a counter.
    kind : {"counter", "gauge"}
    help : str
    values : mapping of str to number
        By the value of the label; under "" where there is no label.
    label : str, default=""
        The name of the label.
    """

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    values: Mapping[str, float]
    label: str = ""

    def lines(self) -> list[str]:
        """The metric in the text format of Prometheus."""
        lines = [f"# HELP {self.name} {self.help}", f"# TYPE {self.name} {self.kind}"]
        for of, value in self.values.items():
            labels = f'{{{self.label}="{_escaped(of)}"}}' if self.label else ""
            lines.append(f"{self.name}{labels} {float(value)!r}")
        return lines


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@dataclass(frozen=True)
class Page:
    """The response for one of the two addresses."""

    status: int
    content_type: str
    body: bytes


def _no_metrics() -> Sequence[Metric]:
    return ()


def _no_store() -> Mapping[str, bool]:
    return {}


@dataclass(frozen=True)
class StatusPages:
    """The two pages of a server.

    Attributes
    ----------
    metrics : callable
        The server's own metrics, now.
    health : callable
        The checks, by name: True where one passes.
    """

    metrics: Callable[[], Sequence[Metric]] = field(default=_no_metrics)
    health: Callable[[], Mapping[str, bool]] = field(default=_no_store)

    def find(self, path: str, more: Sequence[Metric] = ()) -> Page | None:
        """The page of an address, or None where it is none of the two. `more` are metrics for this reader alone."""
        place = path.partition("?")[0]
        if place == "/healthz":
            checks = dict(self.health())
            well = all(checks.values())
            body = {"status": "ok" if well else "failing", **checks}
            return Page(200 if well else 503, "application/json", json.dumps(body).encode())
        if place == "/metrics":
            every = [*_own_metrics(), *self.metrics(), *more]
            text = "\n".join(line for metric in every for line in metric.lines()) + "\n"
            return Page(200, "text/plain; version=0.0.4; charset=utf-8", text.encode())
        return None


def _own_metrics() -> tuple[Metric, ...]:
    return (
        Metric("tulle_info", "gauge", "The version of tulle.", {__version__: 1}, "version"),
        Metric("process_start_time_seconds", "gauge", "When the process started, since 1970.", {"": round(_STARTED)}),
    )


def check_store(path: str | os.PathLike[str] | None) -> dict[str, bool]:
    """Whether a file or folder can be read and written, with room on its disk; of a file that is not there yet, its
    folder. {} for None. Nothing is written."""
    if path is None:
        return {}
    place = Path(path)
    place = place if place.exists() else place.parent
    readable = os.access(place, os.R_OK)
    try:
        writable = os.access(place, os.W_OK) and shutil.disk_usage(place).free >= _LEAST_FREE_BYTES
    except OSError:
        writable = False
    return {"readable": readable, "writable": writable}


class Outcomes:
    """Counts of requests by outcome, for several threads."""

    def __init__(self, *outcomes: str) -> None:
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(outcomes, 0)

    def count(self, outcome: str) -> None:
        """Add one to an outcome that was named at the beginning."""
        with self._lock:
            self._counts[outcome] += 1

    def now(self) -> dict[str, float]:
        """The counts by outcome."""
        with self._lock:
            return dict[str, float](self._counts)


def send_page(handler: BaseHTTPRequestHandler, page: Page) -> None:
    """Write a page as the answer to a request."""
    handler.send_response(page.status)
    handler.send_header("Content-Type", page.content_type)
    handler.send_header("Content-Length", str(len(page.body)))
    handler.send_header("Cache-Control", "no-store")
    handler.end_headers()
    handler.wfile.write(page.body)


class StatusServer(ThreadingHTTPServer):
    """The two pages on a port of their own, for servers that speak another protocol or ask for certificates.

    Parameters
    ----------
    pages : StatusPages
    place : tuple of str and int
        Host and port; 0 takes a free one.

    Examples
    --------
    >>> from tulle.monitoring.status_pages import StatusPages, StatusServer
    >>> with StatusServer(StatusPages(), ("127.0.0.1", 0)) as server:
    ...     port = server.port
    """

    daemon_threads = True

    def __init__(self, pages: StatusPages, place: tuple[str, int]) -> None:
        self.pages = pages
        super().__init__(place, _StatusHandler)

    @property
    def port(self) -> int:
        """The port that it listens at."""
        return int(self.server_address[1])

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=(0.1,), daemon=True).start()
        log_event(__name__, "service.begin", what="StatusServer", port=self.port)
        return self

    def __exit__(self, *error: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that broke off is its client's affair."""


class _StatusHandler(BaseHTTPRequestHandler):
    server: StatusServer
    timeout = _TIMEOUT

    def do_GET(self) -> None:
        page = self.server.pages.find(self.path)
        send_page(self, Page(404, "text/plain", b"no such page\n") if page is None else page)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Addresses of those who ask are not logged."""


def read_place(text: str) -> tuple[str, int]:
    """HOST:PORT, or PORT alone for this machine only.

    Parameters
    ----------
    text : str
        For example "9100" or "0.0.0.0:9100".
    """
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdecimal() and int(port) <= 65535):
        raise ValueError(f"an address for metrics is PORT or HOST:PORT, with a port from 0 to 65535, not {text!r}")
    return host.strip("[]") or "127.0.0.1", int(port)
