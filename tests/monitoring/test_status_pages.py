"""`/healthz` and `/metrics`: what they show, and what they do not."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import numpy as np
import pytest

from tulle import __version__
from tulle.federated.client_side.client import Client
from tulle.federated.client_side.linear_study import linear_terms
from tulle.federated.link import DirectLink
from tulle.federated.server_side.server import Server
from tulle.federated.terms import Terms
from tulle.monitoring import status_pages
from tulle.monitoring.status_pages import Metric, Outcomes, StatusPages, StatusServer, check_store, read_place

# The text format of Prometheus: https://prometheus.io/docs/instrumenting/exposition_formats/
COMMENT = re.compile(r"# (HELP [a-z_]+ .+|TYPE [a-z_]+ (counter|gauge))")
SAMPLE = re.compile(r'[a-z_]+(\{[a-z_]+="([^"\\\n]|\\["\\n])*"\})? -?[0-9.e+-]+')


def get(port: int, page: str) -> tuple[int, str]:
    try:
        with urlopen(f"http://127.0.0.1:{port}{page}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def test_metrics_are_in_the_text_format() -> None:
    """Of labels with quotes and line breaks, too."""
    odd = Metric("tulle_odd_total", "counter", "Odd.", {'a "b"\n\\c': 2}, "reason")
    page = StatusPages(lambda: (odd,)).find("/metrics")
    assert page is not None
    assert page.content_type.startswith("text/plain; version=0.0.4")
    lines = page.body.decode().removesuffix("\n").split("\n")
    assert all((COMMENT if line.startswith("#") else SAMPLE).fullmatch(line) for line in lines), lines
    assert 'tulle_odd_total{reason="a \\"b\\"\\n\\\\c"} 2.0' in lines
    assert f'tulle_info{{version="{__version__}"}} 1.0' in lines
    started = float(next(line for line in lines if line.startswith("process_start")).split()[1])
    assert time.time() - 86400 < started <= time.time() + 1


def test_the_two_pages_and_no_others() -> None:
    with StatusServer(StatusPages(), ("127.0.0.1", 0)) as server:
        assert get(server.port, "/healthz") == (200, '{"status": "ok"}')
        assert get(server.port, "/metrics?x=1")[0] == 200
        assert [get(server.port, page)[0] for page in ("/", "/metrics/", "/healthz/x")] == [404] * 3


def test_a_store_that_fails_is_told() -> None:
    page = StatusPages(health=lambda: {"readable": True, "writable": False}).find("/healthz")
    assert page is not None
    assert (page.status, json.loads(page.body)["status"]) == (503, "failing")


def test_a_store_is_looked_at_and_not_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is not there yet is as well as its folder; a full disk takes no entries."""
    assert check_store(None) == {}
    assert check_store(tmp_path / "journal") == {"readable": True, "writable": True}
    assert check_store(tmp_path / "none" / "journal") == {"readable": False, "writable": False}
    assert list(tmp_path.iterdir()) == []
    full = shutil_usage(free=10)
    monkeypatch.setattr(status_pages.shutil, "disk_usage", lambda place: full)
    assert check_store(tmp_path) == {"readable": True, "writable": False}


class shutil_usage:
    def __init__(self, free: int) -> None:
        self.free = free


def test_outcomes_are_those_that_were_named() -> None:
    counts = Outcomes("read", "refused")
    counts.count("read")
    assert counts.now() == {"read": 1, "refused": 0}
    with pytest.raises(KeyError):
        counts.count("Jane Doe")


@pytest.mark.parametrize(
    ("text", "place"),
    [("9100", ("127.0.0.1", 9100)), ("0.0.0.0:0", ("0.0.0.0", 0)), ("[::1]:9100", ("::1", 9100))],
)
def test_a_port_alone_is_for_this_machine(text: str, place: Any) -> None:
    assert read_place(text) == place


@pytest.mark.parametrize("text", ["", "host", "host:", ":x", "65536", "host:-1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="PORT or HOST:PORT"):
        read_place(text)


def test_a_federated_study_counts_rounds_and_names_no_client(tmp_path: Path) -> None:
    """A client that refuses is a count by its reason."""
    X = np.random.default_rng(0).uniform(-1, 1, (60, 3))
    y = np.where(X[:, 0] > 0, "b", "a")
    model = linear_terms(3, step=2.0, classes=("a", "b"), row_l2=2.0)
    terms = Terms("s", model, 2, 1, 2, 2.0, 0.5, batch=20, epsilon=None, delta=None)
    plain = Client("anna", X, y, ledger=None, state=tmp_path / "anna", without_privacy=True)
    other = Client("benedict", X[:, :2], y, ledger=None, state=tmp_path / "ben", without_privacy=True)
    server = Server(terms, patience=1.0)
    server.run(DirectLink({"one": plain.answer, "two": other.answer}))
    text = "\n".join(line for metric in server.counts.metrics() for line in metric.lines())
    assert "tulle_federated_rounds_closed 2.0" in text
    assert "tulle_federated_answers_total 2.0" in text
    assert 'tulle_federated_rejected_total{reason="refused: terms"} 1.0' in text
    assert "anna" not in text
    assert "benedict" not in text
