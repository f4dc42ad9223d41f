"""The link over gRPC: messages, certificates, seats of clients, and proxies, over loopback."""

from __future__ import annotations

import json
import logging
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from test_certificates import CLIENT, SERVER, issue

from tulle import Budget, FileLedger
from tulle.fast.sparse_weights import SparseWeights
from tulle.federated import Client, Server, StudyStoppedError, Terms, linear_terms
from tulle.federated.client_side.grpc_connection import connect
from tulle.federated.encoding import decode, encode
from tulle.federated.grpc_protocol import GREETING, JOIN, pack, unpack
from tulle.federated.messages import AskWilling, Enrol, Enrolled, Round, Update, Willing
from tulle.federated.server_addresses import is_this_machine
from tulle.federated.server_side.client_requests import ConnectedClients
from tulle.federated.server_side.grpc_link import GrpcLink
from tulle.federated.study_authority import make_certificates
from tulle.files.install_hints import install_hint

# Loopback answers in milliseconds; this is for a machine that is busy with other things.
PATIENCE = 30.0
Answer = Callable[[bytes], bytes]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def connected(link: GrpcLink, *answers: Answer, **settings: Any) -> Iterator[list[threading.Thread]]:
    """Clients in threads, who are there when the block starts."""
    before = len(link.connected())
    threads = [
        threading.Thread(target=connect, args=(link.address, answer), kwargs=settings, daemon=True)
        for answer in answers
    ]
    for thread in threads:
        thread.start()
    assert link.wait_for(before + len(answers), PATIENCE)
    yield threads


def echo(message: bytes) -> bytes:
    return b"re: " + message


def until(holds: Callable[[], Any]) -> None:
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


# --- messages --------------------------------------------------------------------------------------------------------


def test_everyone_is_asked_at_once_and_told_to_go_at_the_end() -> None:
    """Nobody answers before all three have the question; when the link closes all three return."""
    together = threading.Barrier(3)

    def wait_for_others(message: bytes) -> bytes:
        together.wait(PATIENCE)
        return echo(message)

    with GrpcLink() as link, connected(link, *[wait_for_others] * 3) as threads:
        answers = dict(link.ask(b"hello", link.connected(), PATIENCE))
        assert answers == dict.fromkeys(link.connected(), b"re: hello")
        assert len(answers) == 3
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_bytes_travel_as_they_are() -> None:
    """Nothing, every byte, and 40 MB (gRPC's own limit is 4 MB) come back unchanged."""
    with GrpcLink() as link, connected(link, lambda message: message):
        for message in (b"", bytes(range(256)), os.urandom(1 << 20) * 40):
            ((_, answer),) = link.ask(message, link.connected(), PATIENCE)
            assert answer == message


def test_a_late_answer_is_never_that_to_a_later_question() -> None:
    """While a client still has a question it gets no other; its answer to the first is dropped."""
    go = threading.Event()

    def late(message: bytes) -> bytes:
        if message == b"first":
            assert go.wait(PATIENCE)
        return echo(message)

    with GrpcLink() as link, connected(link, late, echo):
        assert [answer for _, answer in link.ask(b"first", link.connected(), 0.3)] == [b"re: first"]
        assert [answer for _, answer in link.ask(b"second", link.connected(), PATIENCE)] == [b"re: second"]
        assert len(link.connected()) == 2
        go.set()
        end = time.monotonic() + PATIENCE
        while len(answers := list(link.ask(b"third", link.connected(), PATIENCE))) < 2:
            assert time.monotonic() < end
        assert [answer for _, answer in answers] == [b"re: third", b"re: third"]


def test_who_is_gone_is_left_out() -> None:
    """A client that ends while it is asked, and one that was gone before, give no error."""

    class Enough(Exception):
        pass

    def ends(message: bytes) -> bytes:
        raise Enough

    def swallowed(link: GrpcLink) -> None:
        with pytest.raises(Enough):
            connect(link.address, ends)

    with GrpcLink() as link, connected(link, echo):
        thread = threading.Thread(target=swallowed, args=(link,))
        thread.start()
        assert link.wait_for(2, PATIENCE)
        both = link.connected()
        assert [answer for _, answer in link.ask(b"a", both, PATIENCE)] == [b"re: a"]
        thread.join(PATIENCE)
        assert [answer for _, answer in link.ask(b"b", both, PATIENCE)] == [b"re: b"]
        assert [answer for _, answer in link.ask(b"c", (*both, "nobody"), PATIENCE)] == [b"re: c"]
        assert len(link.connected()) == 1
        assert [link.certified_name(one) for one in both] == [None, None]


def test_clients_find_a_server_that_was_started_again() -> None:
    """The first is interrupted and says no goodbye; the second, at the same address, gets answers and says goodbye."""
    port = free_port()
    told: list[str] = []
    settings = {"retry_seconds": PATIENCE, "told": told.append}
    with (
        pytest.raises(KeyboardInterrupt),
        GrpcLink(port=port) as first,
        connected(first, echo, **settings) as threads,
    ):
        raise KeyboardInterrupt
    with GrpcLink(port=port) as second:
        assert second.wait_for(1, PATIENCE)
        assert [answer for _, answer in second.ask(b"x", second.connected(), PATIENCE)] == [b"re: x"]
    threads[0].join(PATIENCE)
    address = f"127.0.0.1:{port}"
    assert told == [
        f"connected to {address}",
        f"{address} is gone; looking for it",
        f"connected to {address}",
        f"{address} said goodbye",
    ]


def test_a_server_that_stays_away_is_told() -> None:
    """After it was there, and with how long it was gone."""
    with ThreadPoolExecutor(1) as pool:
        link = GrpcLink()
        link.__enter__()
        gone = pool.submit(connect, link.address, echo, retry_seconds=0.5)
        assert link.wait_for(1, PATIENCE)
        link._server.stop(None).wait()
        with pytest.raises(ConnectionError, match=r"the server at .* was gone for 0\.5 seconds"):
            gone.result(PATIENCE)


def test_looking_for_a_server_leaves_no_threads_behind() -> None:
    """A client that has lost its server three times has about as many threads as at first."""
    port = free_port()
    code = (
        "import threading\nfrom tulle.federated.client_side.grpc_connection import connect\n"
        f"connect('127.0.0.1:{port}', lambda raw: str(threading.active_count()).encode(), retry_seconds={PATIENCE})"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as client:
        try:
            counts = []
            for _ in range(4):
                link = GrpcLink(port=port)
                link.__enter__()
                assert link.wait_for(1, PATIENCE)
                counts += [int(answer) for _, answer in link.ask(b"", link.connected(), PATIENCE)]
                link._server.stop(None).wait()
            assert len(counts) == 4
            assert counts[-1] <= counts[0] + 1
        finally:
            client.kill()


def raw_client(link: GrpcLink, answers: list[Callable[[int], bytes]]) -> threading.Thread:
    """A client that sends any bytes, by the number of the question."""

    def run() -> None:
        with grpc.insecure_channel(link.address) as channel:
            sent: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
            received = channel.stream_stream(JOIN)(iter(sent.get, None))
            assert next(received) == GREETING
            for make in answers:
                asked = unpack(next(received))
                assert asked is not None
                sent.put(make(asked[0]))
            with suppress(grpc.RpcError):
                assert unpack(next(received)) == (0, b"goodbye")
            sent.put(None)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def test_what_is_no_answer_is_left_out() -> None:
    """Answers to other questions, and bytes that are too short to be one; then a good one counts again."""
    wrong: list[Callable[[int], bytes]] = [
        lambda number: pack(number - 1, b"an older one"),
        lambda number: pack(number + 1, b"a later one"),
        lambda number: b"",
        lambda number: b"1234567",
        lambda number: pack(number, b"good"),
    ]
    with GrpcLink() as link:
        thread = raw_client(link, wrong)
        assert link.wait_for(1, PATIENCE)
        heard = [[answer for _, answer in link.ask(b"x", link.connected(), PATIENCE)] for _ in wrong]
    thread.join(PATIENCE)
    assert heard == [[], [], [], [], [b"good"]]


def other_server(*said: bytes, method: str = JOIN, credentials: Any = None) -> tuple[Any, int]:
    """A gRPC server that is not ours and says any bytes."""

    def join(received: Any, context: Any) -> Iterator[bytes]:
        yield from said
        next(received, None)

    service, _, name = method[1:].partition("/")
    server = grpc.server(ThreadPoolExecutor(4))
    handlers = {name: grpc.stream_stream_rpc_method_handler(join)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    if credentials is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        port = server.add_secure_port("localhost:0", credentials)
    server.start()
    return server, port


@pytest.mark.parametrize(
    ("server", "message"),
    [
        ({"method": "/other.Service/Join"}, "is no server of a study"),
        ({"said": [b"hello"]}, "another version of the protocol"),
        ({"said": [pack(0, b"tulle study 2")]}, "another version of the protocol"),
        ({"said": [pack(1, b"a question")]}, "another version of the protocol"),
    ],
)
def test_a_server_of_something_else_is_told_at_once(server: dict[str, Any], message: str) -> None:
    seen: list[bytes] = []
    other, port = other_server(*server.pop("said", ()), **server)
    try:
        with pytest.raises(ConnectionError, match=message):
            connect(f"127.0.0.1:{port}", lambda raw: seen.append(raw) or b"", retry_seconds=PATIENCE)
        assert not seen
    finally:
        other.stop(None)


@pytest.mark.parametrize("wrong", [b"", b"short", pack(0, b"run this")])
def test_only_messages_of_ours_reach_the_rows(wrong: bytes) -> None:
    """Others end the connection, and `answer` is not called."""
    seen: list[bytes] = []
    other, port = other_server(GREETING, wrong, pack(1, b"after it"))
    told: list[str] = []

    def watched(raw: bytes) -> bytes:
        seen.append(raw)
        return b"rows"

    def run() -> None:
        with suppress(ConnectionError):
            connect(f"127.0.0.1:{port}", watched, told=told.append, retry_seconds=0)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    until(lambda: any("is gone" in line for line in told))
    other.stop(None)
    thread.join(PATIENCE)
    assert seen == []


def test_addresses_that_cannot_be_are_told() -> None:
    """In use, not this machine's, no address, nobody there: each in words."""
    with GrpcLink() as link:
        port = int(link.address.rpartition(":")[2])
        with pytest.raises(OSError, match=f"127.0.0.1:{port} is in use; choose another port"), GrpcLink(port=port):
            pass
    there = GrpcLink("192.0.2.1", insecure=True)
    with pytest.raises(OSError, match=r"cannot listen at 192\.0\.2\.1:0: see whether it is an address"), there:
        pass
    with pytest.raises(ValueError, match="from 0 to 65535"):
        GrpcLink(port=70_000)
    for wrong in ("localhost", "localhost:", ":80", "http://x:80", "x:0", "x:99999"):
        with pytest.raises(ValueError, match="an address is HOST:PORT"):
            connect(wrong, echo)
    with pytest.raises(ValueError, match="retry_seconds must be at least 0"):
        connect("localhost:1", echo, retry_seconds=-1)
    with pytest.raises(ConnectionError, match=r"no server at 127.0.0.1:\d+ within 0.5 seconds; see whether host"):
        connect(f"127.0.0.1:{free_port()}", echo, retry_seconds=0.5)


def test_other_machines_need_certificates_or_an_express_word() -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1", "study.example.org"):
        with pytest.raises(ValueError, match="pass certificates"):
            GrpcLink(host)
        GrpcLink(host, insecure=True)
    with pytest.raises(ValueError, match="pass certificates, or insecure=True"):
        connect("192.0.2.1:443", echo)
    with pytest.raises(ConnectionError, match="no server at"):
        connect("192.0.2.1:443", echo, insecure=True, retry_seconds=0)


def test_what_leaves_the_machine() -> None:
    assert all(map(is_this_machine, ("localhost:1", "127.0.0.1:80", "127.8.9.1:80", "[::1]:80")))
    assert not any(map(is_this_machine, ("10.0.0.1:80", "example.org:80", "0.0.0.0:80", "localhost.example.org:80")))


# --- certificates ----------------------------------------------------------------------------------------------------


@dataclass
class Study:
    """A study's certificates, and another study's."""

    folder: Path
    foreign: Path

    @property
    def server(self) -> tuple[Path, Path, Path]:
        return self.folder / "authority.pem", self.folder / "server/server.pem", self.folder / "server/server.key"

    def client(self, name: str) -> tuple[Path, Path, Path]:
        files = self.folder / "clients" / f"{name}.pem", self.folder / "clients" / f"{name}.key"
        return self.folder / "authority.pem", *files

    def link(self) -> GrpcLink:
        return GrpcLink("localhost", certificates=self.server)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    folder = tmp_path_factory.mktemp("certificates")
    for name in ("ours", "theirs"):
        make_certificates(
            folder / name, server=["localhost", "study.example.org"], clients=["north", "south", "west", "localhost"]
        )
    return Study(folder / "ours", folder / "theirs")


def attempt(link: GrpcLink, files: tuple[Path, Path, Path]) -> Any:
    """The stream of a client that checks nothing of its own certificate, as an impostor's would not."""
    authority, certificate, key = (file.read_bytes() for file in files)
    credentials = grpc.ssl_channel_credentials(authority, key, certificate)
    with grpc.secure_channel(link.address, credentials) as channel:
        return next(channel.stream_stream(JOIN)(iter([])))


def test_names_are_those_of_certificates(study: Study) -> None:
    with (
        study.link() as link,
        connected(link, lambda raw: b"n", certificates=study.client("north")),
        connected(link, lambda raw: b"s", certificates=study.client("south")),
    ):
        said = {link.certified_name(at): answer for at, answer in link.ask(b"", link.connected(), PATIENCE)}
        assert said == {"north": b"n", "south": b"s"}
        with pytest.raises(KeyError):
            link.certified_name("another")


def test_without_a_certificate_of_the_study_nobody_gets_in(study: Study) -> None:
    """No certificate, no TLS, another authority's, the server's own: no greeting, and nobody is connected."""
    authority = study.folder / "authority.pem"
    theirs = Study(study.foreign, study.folder).client("north")
    with study.link() as link:
        bare = grpc.ssl_channel_credentials(authority.read_bytes())
        for channel in (grpc.secure_channel(link.address, bare), grpc.insecure_channel(link.address)):
            with channel, pytest.raises(grpc.RpcError):
                next(channel.stream_stream(JOIN)(iter([])))
        for certificate, key in (theirs[1:], study.server[1:]):
            with pytest.raises(grpc.RpcError):
                attempt(link, (authority, certificate, key))
        assert link.connected() == ()
        assert attempt(link, study.client("north")) == GREETING
        with pytest.raises(ConnectionError, match=r"whether it speaks TLS and you must name certificates"):
            connect(link.address, echo, retry_seconds=0)


def written(folder: Path, study: Study, key: Any = None, **settings: Any) -> tuple[Path, Path]:
    """Files of a certificate of the study in which something may be wrong, and of its key."""
    key = ec.generate_private_key(ec.SECP256R1()) if key is None else key
    certificate = issue(study.folder, settings.pop("name", "north"), key=key, **settings)
    pem, kind, plain = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / "x.pem").write_bytes(certificate.public_bytes(pem))
    (folder / "x.key").write_bytes(key.private_bytes(pem, kind, plain))
    return folder / "x.pem", folder / "x.key"


@pytest.mark.parametrize("key", [ec.generate_private_key(ec.SECP384R1()), rsa.generate_private_key(65537, 2048)])
def test_keys_of_other_kinds_connect(study: Study, tmp_path: Path, key: Any) -> None:
    """As institutions issue them with tools of their own."""
    files = study.folder / "authority.pem", *written(tmp_path, study, key, name="ward 7")
    with study.link() as link, connected(link, echo, certificates=files):
        assert [link.certified_name(one) for one in link.connected()] == ["ward 7"]


@pytest.mark.parametrize("usages", [(), (SERVER,), (CLIENT, SERVER)])
def test_a_client_needs_a_certificate_for_clients_alone(study: Study, tmp_path: Path, usages: Any) -> None:
    """TLS itself accepts one without stated uses, and one with both: the server asks for more."""
    files = written(tmp_path, study, usages=usages)
    with study.link() as link, pytest.raises(grpc.RpcError) as refused:
        attempt(link, (study.folder / "authority.pem", *files))
    if SERVER not in usages or CLIENT in usages:
        assert refused.value.code() == grpc.StatusCode.PERMISSION_DENIED
    with pytest.raises(ValueError, match="extended key usage"):
        connect("localhost:1", echo, certificates=(study.folder / "authority.pem", *files))


def test_a_refusal_of_the_server_is_told_at_once(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its reason, where the server knows more than the client."""
    from tulle.federated.client_side import grpc_connection

    monkeypatch.setattr(grpc_connection, "check_certificate", lambda *_: "north")
    certificates = (
        study.folder / "authority.pem",
        study.folder / "clients/north.pem",
        study.folder / "clients/north.key",
    )
    with study.link() as link:
        link._authority = issue(study.folder, "another")
        with pytest.raises(ConnectionError, match="refuses this client: the authority's certificate is none"):
            connect(link.address, echo, certificates=certificates, retry_seconds=PATIENCE)


@pytest.mark.parametrize("usage", [CLIENT, SERVER])
def test_a_client_cannot_pass_for_the_server(study: Study, tmp_path: Path, usage: Any) -> None:
    """A client with the server's host as its name: its certificate is refused by other clients for its use alone."""
    certificate, key = written(tmp_path, study, name="localhost", usages=(usage,))
    pair = (key.read_bytes(), certificate.read_bytes())
    authority = (study.folder / "authority.pem").read_bytes()
    credentials = grpc.ssl_server_credentials([pair], authority, require_client_auth=True)
    told: list[str] = []
    other, port = other_server(GREETING, credentials=credentials)
    settings = {"certificates": study.client("north"), "told": told.append}
    try:
        if usage == SERVER:

            class Enough(Exception):
                pass

            def leave(line: str) -> None:
                told.append(line)
                raise Enough

            with pytest.raises(Enough):
                connect(f"localhost:{port}", echo, **{**settings, "told": leave})
            assert told == [f"connected to localhost:{port}"]
        else:
            with pytest.raises(ConnectionError, match="CERTIFICATE_VERIFY_FAILED"):
                connect(f"localhost:{port}", echo, retry_seconds=0.0, **settings)
            assert told == []
    finally:
        other.stop(None)


def test_the_server_must_be_the_one_that_is_asked_for(study: Study) -> None:
    """Its host is in its certificate, or `server_name` is; and the authority is the study's."""
    with study.link() as link:
        port = link.address.rpartition(":")[2]
        north = study.client("north")
        elsewhere = {"certificates": north, "retry_seconds": 0.0}
        with pytest.raises(ConnectionError, match=r"no server at .* whether it has a certificate that"):
            connect(f"127.0.0.1:{port}", echo, **elsewhere)
        with pytest.raises(ConnectionError, match="no server at"):
            connect(link.address, echo, server_name="other.example.org", **elsewhere)
        with connected(link, echo, server_name="study.example.org", certificates=north):
            assert [answer for _, answer in link.ask(b"x", link.connected(), PATIENCE)] == [b"re: x"]
        foreign = Study(study.foreign, study.folder)
        with pytest.raises(ConnectionError, match=r"no server at .*CERTIFICATE_VERIFY_FAILED"):
            connect(link.address, echo, certificates=foreign.client("north"), retry_seconds=0.0)


def test_certificates_that_cannot_be_are_told(study: Study, tmp_path: Path) -> None:
    authority, certificate, key = study.client("north")
    missing = tmp_path / "missing.pem"
    with pytest.raises(FileNotFoundError, match=r"missing\.pem"):
        connect("localhost:80", echo, certificates=(missing, certificate, key))
    with pytest.raises(ValueError, match="no certificate in PEM or DER format"):
        connect("localhost:80", echo, certificates=(authority, key, certificate))
    with pytest.raises(ValueError, match=r"south\.key is not the private key of"):
        connect("localhost:80", echo, certificates=(authority, certificate, study.client("south")[2]))
    with pytest.raises(ValueError, match="not issued by this study's authority"):
        connect("localhost:80", echo, certificates=(study.foreign / "authority.pem", certificate, key))
    _, certificate, key = study.server
    for wrong in (
        (authority, key, certificate),
        (key, certificate, key),
        (authority, certificate, study.client("north")[2]),
    ):
        with (
            pytest.raises(OSError, match="whether the certificates are what"),
            GrpcLink("localhost", certificates=wrong),
        ):
            pass


# --- seats -----------------------------------------------------------------------------------------------------------


def test_a_second_connection_under_a_living_name_is_refused(study: Study, caplog: pytest.LogCaptureFixture) -> None:
    """It tries again, gives up in words, and the first one is not disturbed; both are logged without the name."""
    caplog.set_level(logging.INFO, "tulle")
    told: list[str] = []
    settings = {"certificates": study.client("north")}
    with study.link() as link, connected(link, lambda raw: b"first", **settings):
        (first,) = link.connected()
        with pytest.raises(grpc.RpcError) as refused:
            attempt(link, study.client("north"))
        assert refused.value.code() == grpc.StatusCode.ALREADY_EXISTS
        with pytest.raises(ConnectionError, match=r"has had another connection under this client's name for 1\.5 sec"):
            connect(link.address, lambda raw: b"second", retry_seconds=1.5, told=told.append, **settings)
        assert told == [f"{link.address} has another connection under this client's name; trying again until that ends"]
        assert link.connected() == (first,)
        assert [answer for _, answer in link.ask(b"x", link.connected(), PATIENCE)] == [b"first"]
    events = [record.__dict__.get("tulle_event") for record in caplog.records]
    assert events.count("federated.second_connection") >= 3
    assert "federated.taken_over" not in events
    assert "north" not in caplog.text


def test_a_newcomer_takes_over_when_the_first_is_gone(study: Study, caplog: pytest.LogCaptureFixture) -> None:
    """It is another connection, with the same name; the take-over is logged."""
    caplog.set_level(logging.INFO, "tulle")
    authority, certificate, key = (file.read_bytes() for file in study.client("north"))
    settings = {"certificates": study.client("north"), "retry_seconds": PATIENCE}
    told: list[str] = []
    with study.link() as link:
        channel = grpc.secure_channel(link.address, grpc.ssl_channel_credentials(authority, key, certificate))
        received = channel.stream_stream(JOIN)(iter(threading.Event().wait, None))
        assert next(received) == GREETING
        (first,) = link.connected()
        second = threading.Thread(
            target=connect, args=(link.address, echo), kwargs={**settings, "told": told.append}, daemon=True
        )
        second.start()
        until(lambda: told)
        assert link.connected() == (first,)
        received.cancel()
        channel.close()
        until(lambda: link.connected() not in ((), (first,)))
        (now,) = link.connected()
        assert (link.certified_name(first), link.certified_name(now)) == ("north", "north")
        assert [answer for _, answer in link.ask(b"x", (first, now), PATIENCE)] == [b"re: x"]
    events = [record.__dict__.get("tulle_event") for record in caplog.records]
    assert events.count("federated.taken_over") == 1


def test_a_client_that_vanished_without_a_word_loses_its_seat(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped process answers no ping: the server ends its connection, and the next one of that name is accepted."""
    from tulle.federated.server_side import grpc_link

    quick = {"grpc.keepalive_time_ms": 1000, "grpc.keepalive_timeout_ms": 1000, "grpc.http2.ping_timeout_ms": 1000}
    monkeypatch.setattr(
        grpc_link, "_OPTIONS", tuple((name, quick.get(name, value)) for name, value in grpc_link._OPTIONS)
    )
    code = (
        "import os, signal\nfrom tulle.federated.client_side.grpc_connection import connect\n"
        "from pathlib import Path\n"
        "def stop(raw):\n    os.kill(os.getpid(), signal.SIGSTOP)\n    return raw\n"
        "connect({!r}, stop, certificates={!r})"
    )
    files = tuple(str(file) for file in study.client("north"))
    with study.link() as link, subprocess.Popen([sys.executable, "-c", code.format(link.address, files)]) as stopped:
        try:
            assert link.wait_for(1, PATIENCE)
            assert list(link.ask(b"x", link.connected(), 0.2)) == []
            until(lambda: not link.connected())
            with connected(link, echo, certificates=study.client("north")):
                assert [answer for _, answer in link.ask(b"x", link.connected(), PATIENCE)] == [b"re: x"]
        finally:
            stopped.kill()


def test_without_certificates_names_are_not_known() -> None:
    """Two connections are two connections; any name may be stated."""
    with GrpcLink() as link, connected(link, echo, echo):
        assert [link.certified_name(one) for one in link.connected()] == [None, None]
        assert all(link.may_speak_for(one, "anyone") for one in link.connected())


# --- a stranger who knows a client's name and its number of rows, and sends 1e99 -------------------------------------

TERMS = Terms(
    "seats",
    linear_terms(6, step=0.5, classes=(0, 1), row_l2=2.0),
    rounds=6,
    local_steps=1,
    batch=None,
    n_nonzero=2,
    step=0.5,
    clip=1.0,
    epsilon=1.0,
    delta=1e-6,
)
N_ROWS = 300


@dataclass
class Impostor:
    """It answers as the client "north", and counts what it was asked."""

    asked: list[str] = field(default_factory=list)

    def answer(self, raw: bytes) -> bytes:
        message = decode(raw, (AskWilling, Enrol, Round, Terms, SparseWeights, type(TERMS.model)))
        self.asked.append(type(message).__name__)
        if type(message) is AskWilling:
            return encode(Willing(message.terms.digest, "north", N_ROWS))
        if isinstance(message, Enrol):
            return encode(Enrolled(message.terms.digest, "north", N_ROWS, N_ROWS, 1.0, 1e-6, 1.0, 1, False))
        large = SparseWeights(np.array([0, 1]), np.full((2, 1), 1e99), message.weights.n_lines)
        return encode(Update(message.study, message.number, "north", large))


def honest(name: str, folder: Path) -> Client:
    generator = np.random.default_rng(len(name))
    X = generator.uniform(-1, 1, (N_ROWS, 6))
    ledger = FileLedger.create(folder / f"{name}.json", name, Budget(3.0, 1e-5))
    return Client(name, X, (X[:, 0] > 0).astype(int), ledger=ledger, state=folder / name)


def slowly(answer: Answer) -> Answer:
    """So that an impostor has time to come."""

    def later(raw: bytes) -> bytes:
        time.sleep(0.15)
        return answer(raw)

    return later


def run_study(link: GrpcLink, **settings: Any) -> Any:
    server = Server(TERMS, clients=["north", "south"], min_clients=2, seconds=10, patience=10, **settings)
    return server.run(link)


@pytest.mark.parametrize("way", ["no certificate", "another name", "another authority", "stolen certificate"])
def test_an_impostor_does_not_get_a_clients_seat(study: Study, tmp_path: Path, way: str) -> None:
    """The study ends with the models of those whose names it bears."""
    impostor = Impostor()
    ways: dict[str, Any] = {
        "no certificate": {},
        "another name": {"certificates": study.client("west")},
        "another authority": {"certificates": Study(study.foreign, study.folder).client("north")},
        "stolen certificate": {"certificates": study.client("north")},
    }

    def intrude(address: str) -> None:
        for _ in range(10):
            try:
                connect(address, impostor.answer, retry_seconds=0.5, **ways[way])
            except ConnectionError:
                continue

    clients = {name: honest(name, tmp_path) for name in ("north", "south")}
    with study.link() as link:
        for name, client in clients.items():
            settings = {"certificates": study.client(name)}
            threading.Thread(
                target=connect, args=(link.address, slowly(client.answer)), kwargs=settings, daemon=True
            ).start()
        assert link.wait_for(2, PATIENCE)
        threading.Thread(target=intrude, args=(link.address,), daemon=True).start()
        if way == "another name":
            assert link.wait_for(3, PATIENCE), "it has a connection of its own"
        fit = run_study(link)
    assert all(record.answered == ("north", "south") for record in fit.rounds)
    assert np.abs(fit.weights.to_dense()).max() < 10
    assert [len(FileLedger(tmp_path / f"{name}.json", name).entries) for name in clients] == [1, 1]
    if way == "another name":
        assert impostor.asked == ["AskWilling"], "it is asked once, before the bill, and counts for nobody"
    else:
        assert impostor.asked == []


def test_an_impostor_that_comes_first_is_no_client(study: Study) -> None:
    """With a certificate of another name, and the true client away."""
    impostor = Impostor()
    with study.link() as link, connected(link, impostor.answer, certificates=study.client("west")):
        server = Server(TERMS, clients=["north"], seconds=5, patience=0.5)
        with pytest.raises(StudyStoppedError, match="1 × unknown client"):
            server.run(link)
        assert "Round" not in impostor.asked


def test_a_trusted_aggregator_believes_certificates(
    study: Study, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A connection that states another client's name is no answer of that client."""
    caplog.set_level(logging.INFO, "tulle")
    X = np.random.default_rng(0).uniform(-1, 1, (20, 3))
    answer = Client(
        "north", X, X[:, 0] > 0, ledger=None, state=tmp_path / "state", without_privacy=True, trusts_aggregator=True
    ).answer
    for name, found in (("west", 0), ("north", 1)):
        with study.link() as link, connected(link, answer, certificates=study.client(name)):
            clients = ConnectedClients(link, PATIENCE, 0.5)
            if found:
                clients.gather(None, 1)
            else:
                with pytest.raises(TimeoutError, match="0 of 1 clients answered"):
                    clients.gather(None, 1)
            assert len(clients.shapes) == found
    assert "federated.unknown_client" in caplog.text


# --- proxies ---------------------------------------------------------------------------------------------------------


@dataclass
class Proxy:
    """An HTTP proxy that knows CONNECT alone, and leads to one port whatever it is asked for."""

    to: int
    asked: list[str] = field(default_factory=list)

    def __enter__(self) -> Proxy:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                inside, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(inside,), daemon=True).start()

    def _serve(self, inside: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += inside.recv(4096)
        self.asked.append(head.decode())
        outside = socket.create_connection(("127.0.0.1", self.to))
        inside.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        threading.Thread(target=self._pass_on, args=(inside, outside), daemon=True).start()
        self._pass_on(outside, inside)

    @staticmethod
    def _pass_on(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("way", ["parameter", "user", "grpc_proxy", "https_proxy"])
def test_a_connection_goes_through_a_proxy(study: Study, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """TLS goes from end to end, and the proxy alone resolves the server's name."""
    for name in ("grpc_proxy", "https_proxy", "http_proxy", "no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    with study.link() as link, Proxy(int(link.address.rpartition(":")[2])) as proxy:
        settings: dict[str, Any] = {"certificates": study.client("north")}
        if way == "parameter":
            settings["proxy"] = f"127.0.0.1:{proxy.port}"
        elif way == "user":
            settings["proxy"] = f"http://staff:secret@127.0.0.1:{proxy.port}"
        else:
            monkeypatch.setenv(way, f"http://127.0.0.1:{proxy.port}")
        thread = threading.Thread(target=connect, args=("study.example.org:443", echo), kwargs=settings, daemon=True)
        thread.start()
        assert link.wait_for(1, PATIENCE)
        ((at, answer),) = link.ask(b"x", link.connected(), PATIENCE)
        assert (link.certified_name(at), answer) == ("north", b"re: x")
        assert proxy.asked[0].startswith("CONNECT study.example.org:443 HTTP/1.1\r\n")
        assert ("Basic" in proxy.asked[0]) == (way == "user")
    thread.join(PATIENCE)


def test_no_proxy_and_this_machine_are_reached_directly(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    with study.link() as link, Proxy(1) as proxy:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{proxy.port}")
        with connected(link, echo, certificates=study.client("north")):
            pass
        monkeypatch.setenv("no_proxy", "192.0.2.1")
        with pytest.raises(ConnectionError):
            connect("192.0.2.1:443", echo, insecure=True, retry_seconds=0)
        assert proxy.asked == []


@pytest.mark.parametrize("wrong", ["https://proxy:8080", "proxy", "http://proxy", "proxy:port", "socks5://proxy:1"])
def test_proxies_that_cannot_be_are_told(wrong: str) -> None:
    with pytest.raises(ValueError, match="a proxy is HOST:PORT or http://"):
        connect("localhost:1", echo, proxy=wrong)


# --- the process -----------------------------------------------------------------------------------------------------


def test_the_process_stays_the_callers() -> None:
    """No signal handler is replaced, nothing is printed, and Flower is not loaded."""
    code = """
import logging, signal, sys, threading
before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
from tulle.federated.client_side.grpc_connection import connect
from tulle.federated.server_side.grpc_link import GrpcLink
logging.basicConfig()
with GrpcLink() as link:
    thread = threading.Thread(target=connect, args=(link.address, bytes.upper))
    thread.start()
    assert link.wait_for(1, 30)
    assert [answer for _, answer in link.ask(b"x", link.connected(), 30)] == [b"X"]
thread.join(30)
assert before == {number: signal.getsignal(number) for number in before}
assert {"flwr", "google.protobuf", "torch"}.isdisjoint(sys.modules)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


@pytest.mark.parametrize("module", ["server_side.grpc_link", "client_side.grpc_connection"])
def test_a_missing_extra_is_named(module: str) -> None:
    code = f"import sys; sys.modules['grpc'] = None; import tulle.federated.{module}"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 1
    last = ran.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: clients on other machines need gRPC: {install_hint('federated')}"), last


def test_the_core_does_not_import_grpc() -> None:
    code = "import json, sys, tulle, tulle.federated; print(json.dumps(sorted(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert {"flwr", "grpc", "cryptography", "torch"}.isdisjoint(json.loads(ran.stdout))
