"""Studies over a Flower SuperLink, which runs as a process of its own on loopback."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import pickle
import socket
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from certificates import write_certificates

from tulle import Budget, FileLedger
from tulle.fast.sparse_weights import SparseWeights
from tulle.federated import Server, Terms, linear_terms
from tulle.federated.client_side.flower_node import ClientNode
from tulle.federated.client_side.study_state import StudyState
from tulle.federated.encoding import decode
from tulle.federated.server_side import flower
from tulle.federated.server_side.flower import FlowerLink, connect
from tulle.federated.superlink import QUESTION, Control, Fleet, Runtime, pack, push
from tulle.files.install_hints import install_hint

# isort: split
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.app.message import make_message
from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.common.serde import metadata_from_proto
from flwr.proto.control_pb2 import RegisterNodeRequest, StartRunRequest, StopRunRequest
from flwr.proto.fab_pb2 import Fab, GetFabRequest
from flwr.proto.fleet_pb2 import ActivateNodeRequest, RegisterNodeFleetRequest
from flwr.proto.message_pb2 import Metadata as ProtoMetadata
from flwr.proto.message_pb2 import ObjectTree
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    AcquireTaskResponse,
    GetNodesRequest,
    PullAppMessagesRequest,
    PullTaskInputRequest,
    PushAppMessagesRequest,
)
from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

# Loopback answers in milliseconds; this is for a machine that is busy with other things.
PATIENCE = 60.0


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@dataclass
class SuperLink:
    """The process `flower-superlink`, as an institution starts it."""

    folder: Path
    words: tuple[str, ...] = ("--insecure", "--isolation", "process")
    port: int = field(default_factory=free_port)
    process: Any = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def log(self) -> str:
        return (self.folder / "superlink.log").read_text()

    def start(self) -> SuperLink:
        program = Path(sys.executable).with_name("flower-superlink")
        words = [program, "--host", "127.0.0.1", "--port", str(self.port), *self.words]
        environment = {
            **os.environ,
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_HOME": str(self.folder),
            "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}",
        }
        with (self.folder / "superlink.log").open("ab") as log:
            self.process = subprocess.Popen(words, env=environment, stdout=log, stderr=log)
        wait_until(lambda: "Uvicorn running" in self.log(), self.log)
        return self

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def wait_until(holds: Callable[[], Any], told: Callable[[], str] = str) -> None:
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, told()[-2000:]
        time.sleep(0.01)


@pytest.fixture(scope="module")
def superlink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SuperLink]:
    """One for all tests whose clients leave it properly."""
    started = SuperLink(tmp_path_factory.mktemp("superlink")).start()
    yield started
    started.kill()


@contextmanager
def connected(
    link: FlowerLink, *answers: Callable[[bytes], bytes], **settings: Any
) -> Iterator[list[threading.Thread]]:
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


def all_left(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()


def echo(message: bytes) -> bytes:
    return b"re: " + message


def ask_all(link: FlowerLink, message: bytes) -> list[bytes]:
    return [answer for _, answer in link.ask(message, link.connected(), PATIENCE)]


# --- the link --------------------------------------------------------------------------------------------------------


def test_everyone_is_asked_at_once_and_told_to_go_at_the_end(superlink: SuperLink) -> None:
    """Three who wait for each other before they answer; when the link closes all three return."""
    all_asked = threading.Barrier(3, timeout=PATIENCE)

    def together(message: bytes) -> bytes:
        all_asked.wait()
        return echo(message)

    with FlowerLink(superlink.address) as link, connected(link, together, together, together) as threads:
        answers = dict(link.ask(b"hello", link.connected(), PATIENCE))
        assert answers == dict.fromkeys(link.connected(), b"re: hello")
        assert len(answers) == 3
        assert {link.certified_name(name) for name in answers} == {None}
    all_left(threads)


def test_bytes_travel_as_they_are(superlink: SuperLink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing, every byte, and 8 MB; to this machine also where others are reached through a proxy."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with FlowerLink(superlink.address) as link, connected(link, lambda message: message) as threads:
        for message in (b"", bytes(range(256)), os.urandom(1 << 20) * 8):
            assert ask_all(link, message) == [message]
    all_left(threads)


def test_a_late_answer_is_never_that_to_a_later_question(superlink: SuperLink) -> None:
    """While a client still has a question it gets no other; its answer to the first is dropped."""
    go = threading.Event()
    seen: list[bytes] = []

    def late(message: bytes) -> bytes:
        seen.append(message)
        if message == b"first":
            assert go.wait(PATIENCE)
        return echo(message)

    with FlowerLink(superlink.address) as link, connected(link, late, echo) as threads:
        assert [answer for _, answer in link.ask(b"first", link.connected(), 2.0)] == [b"re: first"]
        assert [answer for _, answer in link.ask(b"second", link.connected(), 5.0)] == [b"re: second"]
        assert len(link.connected()) == 2
        assert seen == [b"first"]
        go.set()
        end = time.monotonic() + PATIENCE
        while len(answers := ask_all(link, b"third")) < 2:
            assert time.monotonic() < end
            assert answers == [b"re: third"]
        assert answers == [b"re: third", b"re: third"]
        assert b"second" not in seen
    all_left(threads)


def test_no_answer_is_looked_for_before_the_question_is_there(
    superlink: SuperLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A late client is waited for, and a question takes longer to send than the longest pause between two looks."""
    go = threading.Event()
    pushed = Runtime.PushMessages

    def late(message: bytes) -> bytes:
        assert go.wait(PATIENCE)
        return b"late"

    def slowly(self: Any, request: Any) -> Any:
        time.sleep(1.5)
        return pushed(self, request)

    with FlowerLink(superlink.address) as link, connected(link, late) as threads:
        assert not list(link.ask(b"first", link.connected(), 0.1))
        with connected(link, echo) as more:
            monkeypatch.setattr(Runtime, "PushMessages", slowly)
            assert ask_all(link, b"second") == [b"re: second"]
            go.set()
    all_left([*threads, *more])


def test_a_client_that_is_busy_at_the_end_goes_when_it_is_done(superlink: SuperLink) -> None:
    go = threading.Event()

    def late(message: bytes) -> bytes:
        assert go.wait(PATIENCE)
        return b""

    with FlowerLink(superlink.address) as link, connected(link, late) as threads:
        assert not list(link.ask(b"x", link.connected(), 0.5))
    assert threads[0].is_alive()
    go.set()
    all_left(threads)


def test_who_is_gone_is_left_out(superlink: SuperLink) -> None:
    """A client that ends while it is asked, and one that was gone before, are waited for no longer."""

    class Enough(Exception):
        pass

    def ends(message: bytes) -> bytes:
        raise Enough

    def swallowed(address: str) -> None:
        with pytest.raises(Enough):
            connect(address, ends)

    with FlowerLink(superlink.address) as link, connected(link, echo) as threads:
        thread = threading.Thread(target=swallowed, args=(link.address,))
        thread.start()
        assert link.wait_for(2, PATIENCE)
        both = link.connected()
        assert [answer for _, answer in link.ask(b"a", both, 10 * PATIENCE)] == [b"re: a"]
        all_left([thread])
        for whom in (both, (*both, "nobody")):
            assert [answer for _, answer in link.ask(b"b", whom, 10 * PATIENCE)] == [b"re: b"]
        assert len(link.connected()) == 1
    all_left(threads)


def test_an_interrupted_server_says_no_goodbye(superlink: SuperLink) -> None:
    """The next server at the same SuperLink gets answers from the same clients, and says goodbye."""
    told: list[str] = []
    with (
        pytest.raises(KeyboardInterrupt),
        FlowerLink(superlink.address) as first,
        connected(first, echo, told=told.append) as threads,
    ):
        raise KeyboardInterrupt
    with FlowerLink(superlink.address) as second:
        assert second.wait_for(1, PATIENCE)
        assert ask_all(second, b"x") == [b"re: x"]
    all_left(threads)
    assert told == [f"connected to {superlink.address}", f"{superlink.address} said goodbye"]


def test_both_sides_find_a_superlink_that_was_started_again(tmp_path: Path) -> None:
    """It forgets runs and nodes: the server starts another run, and the client is another connection."""
    started = SuperLink(tmp_path).start()
    told: list[str] = []
    try:
        with (
            FlowerLink(started.address) as link,
            connected(link, echo, retry_seconds=PATIENCE, told=told.append) as threads,
        ):
            before = link.connected()
            assert ask_all(link, b"x") == [b"re: x"]
            started.kill()
            assert link.connected() == ()
            assert ask_all(link, b"y") == []
            (tmp_path / "superlink.log").unlink()
            started.start()
            assert link.wait_for(1, PATIENCE)
            assert ask_all(link, b"z") == [b"re: z"]
            assert set(before).isdisjoint(link.connected())
        all_left(threads)
    finally:
        started.kill()
    kinds = [line.replace(started.address, "it") for line in told]
    assert kinds == ["connected to it", "it is gone; looking for it", "connected to it", "it said goodbye"]


def test_a_superlink_that_runs_apps_itself_does_not_get_the_study(tmp_path: Path) -> None:
    """Without options but --insecure it has an executor of its own, which would take the run within a second."""
    started = SuperLink(tmp_path, words=("--insecure",)).start()
    try:
        for _ in range(2):
            with FlowerLink(started.address) as link, connected(link, echo) as threads:
                assert ask_all(link, b"x") == [b"re: x"]
            all_left(threads)
    finally:
        started.process.terminate()
        started.process.wait()


def test_other_runs_at_a_superlink_are_left_alone(superlink: SuperLink) -> None:
    """One that waits for an executor still waits after a study has begun and ended."""
    app = flower._app_without_code()
    words = Fab(hash_str=hashlib.sha256(app).hexdigest(), content=app)
    with Control(superlink.address, None) as control, Runtime(superlink.address, None) as executor:
        other = control.StartRun(StartRunRequest(fab=words)).run_id
        with FlowerLink(superlink.address) as link:
            assert link._run != other
        claimed = executor.AcquireTask(AcquireTaskRequest(supported_task_types=["flwr-serverapp"]))
        assert claimed.task.run_id == other
        control.StopRun(StopRunRequest(run_id=other))


def test_a_run_that_the_superlink_took_is_stopped_and_another_is_started(
    superlink: SuperLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As happens now and then where the SuperLink runs apps itself."""
    acquire, stop = Runtime.AcquireTask, Control.StopRun
    stopped: list[int] = []
    lost = 2

    def faster(self: Any, request: Any) -> Any:
        nonlocal lost
        lost -= 1
        return AcquireTaskResponse() if lost >= 0 else acquire(self, request)

    def noted(self: Any, request: Any) -> Any:
        stopped.append(request.run_id)
        return stop(self, request)

    monkeypatch.setattr(Runtime, "AcquireTask", faster)
    monkeypatch.setattr(Control, "StopRun", noted)
    with FlowerLink(superlink.address) as link:
        assert len({*stopped, link._run}) == 3
    lost = 10**9
    with pytest.raises(ConnectionError, match="start it with --isolation process"), FlowerLink(superlink.address):
        pass


# --- messages of others ----------------------------------------------------------------------------------------------


def other_contents() -> dict[str, RecordDict]:
    """Contents that other servers send, and some that are nearly ours."""
    ours = ConfigRecord({"tulle": b"x"})
    weights = ArrayRecord([np.ones(3)])
    code = ConfigRecord({"tulle": pickle.dumps(print), "lr": 0.1})
    return {
        "weights": RecordDict({"arrays": weights, "config": code}),
        "weights alone": RecordDict({"tulle": weights}),
        "metrics": RecordDict({"tulle": MetricRecord({"tulle": 1.0})}),
        "two records": RecordDict({"tulle": ours, "more": ConfigRecord({"tulle": b"y"})}),
        "two entries": RecordDict({"tulle": code}),
        "text": RecordDict({"tulle": ConfigRecord({"tulle": "x"})}),
        "a list": RecordDict({"tulle": ConfigRecord({"tulle": [b"x"]})}),
        "another name": RecordDict({"tulle": ConfigRecord({"os.system": b"x"})}),
        "no entry": RecordDict({"tulle": ConfigRecord({})}),
        "no record": RecordDict({}),
    }


def answers_of(calls: Any, node: int, run: int, messages: dict[str, tuple[str, RecordDict]]) -> dict[str, Any]:
    """What a node says to messages of any kind, which it gets one after the other."""
    link = FlowerLink()
    link._run = run
    said = {}
    for name, (kind, content) in messages.items():
        message = link._message(f"{node} since", kind, content, PATIENCE)
        push(calls, SUPERLINK_NODE_ID, run, [message], PushAppMessagesRequest)
        pulled: list[Any] = []
        ids = [message.metadata.message_id]
        wait_until(
            lambda ids=ids, pulled=pulled: (
                pulled.extend(  # type: ignore[misc]
                    calls.PullMessages(PullAppMessagesRequest(message_ids=ids)).messages_list
                )
                or pulled
            )
        )
        (said[name],) = pulled
    return said


def test_only_messages_of_ours_reach_the_rows(superlink: SuperLink, monkeypatch: pytest.MonkeyPatch) -> None:
    """All others are answered with the same error, and `answer` is not called; of other types nothing is pulled."""
    seen: list[bytes] = []
    told: list[str] = []
    pulled: list[str] = []
    pull = Fleet.PullObject

    def watched(message: bytes) -> bytes:
        seen.append(message)
        return b"rows"

    def counted(self: Any, request: Any) -> Any:
        pulled.append(request.object_id)
        return pull(self, request)

    monkeypatch.setattr(Fleet, "PullObject", counted)
    kinds = ("train", "evaluate", "query", "system", "query.tulle2", "train.tulle")
    of_other_types = {kind: (kind, pack(b"x")) for kind in kinds}
    of_other_forms = {name: (QUESTION, content) for name, content in other_contents().items()}
    with FlowerLink(superlink.address) as link, connected(link, watched, told=told.append) as threads:
        (node,) = (each.node_id for each in link._calls.GetNodes(GetNodesRequest()).nodes)
        said = answers_of(link._calls, node, link._run, of_other_types)
        assert pulled == []
        said |= answers_of(link._calls, node, link._run, of_other_forms)
        for name, message in said.items():
            assert message.HasField("error"), name
            assert message.error.reason == "this node answers only messages of tulle", name
        assert seen == []
        assert told.count("refused a message that is not of a study of tulle") == len(said)
        assert ask_all(link, b"x") == [b"rows"]
        assert seen == [b"x"]
    all_left(threads)


def test_a_superlink_with_messages_of_no_type_of_flowers_is_refused_too() -> None:
    """Flower's own SuperLink does not pass them on; another may."""
    told: list[str] = []
    node = ClientNode("127.0.0.1:1", None, None, told.append)
    for kind in ("", "QUERY.TULLE", "query.tulle; import os", "../tulle"):
        assert node._reply(ProtoMetadata(message_type=kind), ObjectTree(), echo) is None
    assert told == ["refused a message that is not of a study of tulle"] * 4


def test_no_app_of_a_server_is_fetched_or_run(tmp_path: Path) -> None:
    """A server starts a run with an app that writes a file when it is imported. A Flower node would fetch it to
    answer; this client answers without it. That the SuperLink offers the app, and logs who fetches it, is shown too."""
    started = SuperLink(tmp_path).start()
    marker = tmp_path / "was run"
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("pyproject.toml", flower._APP.format(nonce="x").replace("no_code:none", "planted:app"))
        archive.writestr("planted.py", f"open({str(marker)!r}, 'w').close()\napp = None\n")
    app = file.getvalue()
    digest = hashlib.sha256(app).hexdigest()
    client = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys\nfrom tulle.federated.server_side.flower import connect\n"
            f"try:\n    connect({started.address!r}, bytes.upper, told=print)\n"
            "finally:\n    print(sorted(name for name in sys.modules if 'planted' in name), flush=True)",
        ],
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        env={**os.environ, "FLWR_HOME": str(tmp_path / "home")},
    )
    try:
        with Control(started.address, None) as control:
            run = control.StartRun(StartRunRequest(fab=Fab(hash_str=digest, content=app))).run_id
        with Runtime(started.address, None) as executor:
            token = executor.AcquireTask(AcquireTaskRequest(supported_task_types=["flwr-serverapp"])).token
        with Runtime(started.address, None, RuntimeTokenHttpInterceptor(token)) as calls:
            calls.PullTaskInput(PullTaskInputRequest())
            wait_until(lambda: calls.GetNodes(GetNodesRequest()).nodes, started.log)
            (node,) = (each.node_id for each in calls.GetNodes(GetNodesRequest()).nodes)
            kinds = {"train": ("train", other_contents()["weights"]), "ours": (QUESTION, pack(b"x"))}
            said = answers_of(calls, node, run, kinds)
            assert said["train"].HasField("error")
            assert not said["ours"].HasField("error")
            assert "[Fleet.GetFab]" not in started.log()
            assert "[Fleet.GetRun]" not in started.log()
            private, public = generate_key_pairs()
            with Fleet(started.address, None, NodeAuthHttpInterceptor(private, public)) as other:
                key = public_key_to_bytes(public)
                other.RegisterNode(RegisterNodeFleetRequest(public_key=key))
                other_id = other.ActivateNode(ActivateNodeRequest(public_key=key, heartbeat_interval=10)).node_id
                got = other.GetFab(GetFabRequest(node=Node(node_id=other_id), hash_str=digest, run_id=run))
            assert got.fab.content == app
            assert started.log().count("[Fleet.GetFab]") == 1
        with FlowerLink(started.address):
            pass  # the goodbye
        out, _ = client.communicate(timeout=PATIENCE)
    finally:
        client.kill()
        client.wait()
        started.kill()
    assert out.decode().splitlines()[-1] == "[]"
    assert not marker.exists()
    assert not (tmp_path / "home").exists()


def test_the_app_of_a_study_has_no_code() -> None:
    with zipfile.ZipFile(io.BytesIO(flower._app_without_code())) as archive:
        assert archive.namelist() == ["pyproject.toml"]
    assert flower._app_without_code() != flower._app_without_code()


def test_what_is_no_answer_is_left_out(superlink: SuperLink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replies of other forms, from a node that is not ours."""
    contents = [*other_contents().values(), pack(b"good")]
    replies = iter(contents)

    def reply(self: ClientNode, asked: Any, tree: Any, answer: Any) -> Any:
        return Message(next(replies), reply_to=make_message(metadata_from_proto(asked), RecordDict()))

    monkeypatch.setattr(ClientNode, "_reply", reply)
    with FlowerLink(superlink.address) as link, connected(link, echo) as threads:
        heard = [ask_all(link, b"x") for _ in contents]
    all_left(threads)
    assert heard == [[]] * (len(contents) - 1) + [[b"good"]]


# --- addresses and other servers -------------------------------------------------------------------------------------


def test_addresses_that_cannot_be_are_told(tmp_path: Path) -> None:
    for wrong in ("localhost", "localhost:", ":80", "http://x:80", "x:0", "x:99999"):
        with pytest.raises(ValueError, match="an address is HOST:PORT"):
            connect(wrong, echo)
        with pytest.raises(ValueError, match="an address is HOST:PORT"):
            FlowerLink(wrong)
    nobody = f"127.0.0.1:{free_port()}"
    with pytest.raises(ConnectionError, match=r"no SuperLink at 127.0.0.1:\d+ within 0.5 seconds; see whether host"):
        connect(nobody, echo, retry_seconds=0.5)
    with pytest.raises(ConnectionError, match=r"no SuperLink at 127.0.0.1:\d+; see whether host"), FlowerLink(nobody):
        pass
    for wrong_seconds in (-1.0, float("nan")):
        with pytest.raises(ValueError, match="retry_seconds must be at least 0"):
            connect(nobody, echo, retry_seconds=wrong_seconds)
    with pytest.raises(FileNotFoundError, match="missing"):
        FlowerLink(nobody, secret=tmp_path / "missing")


@contextmanager
def web_server(
    status: int, headers: dict[str, str], body: bytes = b"", times: int = 1
) -> Iterator[tuple[str, list[str]]]:
    """Answers everything alike, and notes what it was asked and each time that it could send its body."""
    asked: list[str] = []

    class Alike(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.path)
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            with suppress(OSError):  # the client has closed the connection
                for _ in range(times):
                    self.wfile.write(body)
                    asked.append("body")

        def log_message(self, *message: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Alike)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "body"), [(404, b"{}"), (200, b"<html>welcome</html>"), (401, b""), (403, b""), (501, b"")]
)
def test_a_server_of_something_else_is_told_at_once(status: int, body: bytes) -> None:
    with web_server(status, {"content-length": str(len(body))}, body) as (address, _):
        with pytest.raises(ConnectionError, match=rf"at {address} refuses the study \(HTTP status {status}\); \w"):
            connect(address, echo, retry_seconds=10 * PATIENCE)
        with pytest.raises(ConnectionError, match="refuses the study"), FlowerLink(address):
            pass


def test_a_server_cannot_send_clients_elsewhere() -> None:
    """A redirect would let it make calls within the client's network."""
    with web_server(404, {"content-length": "0"}) as (inside, asked):
        elsewhere = {"location": f"http://{inside}/", "content-length": "0"}
        with (
            web_server(307, elsewhere) as (address, _),
            pytest.raises(ConnectionError, match=r"refuses the study \(HTTP status 307\)"),
        ):
            connect(address, echo, retry_seconds=10 * PATIENCE)
    assert asked == []


@pytest.mark.parametrize(
    "headers",
    [
        {"content-length": str(1 << 40)},
        {"transfer-encoding": "chunked"},
        {"content-length": str(1 << 26), "content-encoding": "gzip"},
    ],
)
def test_answers_without_end_are_not_read(headers: dict[str, str]) -> None:
    """Larger than any message, of unknown length, or compressed: of 64 MB only what fits into buffers is sent."""
    chunk = b"%x\r\n%s\r\n" % (1 << 20, bytes(1 << 20)) if "transfer-encoding" in headers else bytes(1 << 20)
    with web_server(200, headers, chunk, times=64) as (address, asked):
        with pytest.raises(ConnectionError, match="no SuperLink at"):
            connect(address, echo, retry_seconds=0.0)
        assert asked[0] == "/v1/fleet/register-node"
    assert asked.count("body") < 32


# --- TLS and keys ----------------------------------------------------------------------------------------------------


def write_node_key(path: Path) -> bytes:
    """As `ssh-keygen -t ecdsa` does; the public key as the SuperLink registers it."""
    from cryptography.hazmat.primitives import serialization

    private, public = generate_key_pairs()
    path.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        )
    )
    return public_key_to_bytes(public)


def test_tls_node_keys_and_the_secret(tmp_path: Path) -> None:
    """A SuperLink with all of them: who lacks one is told so, and gets nothing."""
    keys = write_certificates(tmp_path)
    secret = tmp_path / "secret"
    secret.write_bytes(os.urandom(32))
    files = f"--ssl-ca-certfile {keys['authority']} --ssl-certfile {keys['certificate']} --ssl-keyfile {keys['key']}"
    words = f"{files} --isolation process --enable-supernode-auth --superexec-auth-secret-file {secret}"
    started = SuperLink(tmp_path, tuple(words.split())).start()
    address = f"localhost:{started.port}"  # the name in the certificate
    node_key = tmp_path / "node"
    public = write_node_key(node_key)
    ours = {"certificate": keys["authority"]}
    try:
        with pytest.raises(ConnectionError, match=r"certificate that .*stranger vouches for"):
            connect(address, echo, certificate=keys["stranger"], retry_seconds=0.0)
        with pytest.raises(ConnectionError, match="whether it speaks TLS"):
            connect(address, echo, retry_seconds=0.0)
        for settings in ({}, {"node_key": node_key}):  # no key, and one that is not registered
            with pytest.raises(ConnectionError, match=r"refuses the study .*--enable-supernode-auth"):
                connect(address, echo, **ours, **settings, retry_seconds=10 * PATIENCE)
        (tmp_path / "other secret").write_bytes(b"guessed")
        for wrong in ({}, {"secret": tmp_path / "other secret"}):
            link = FlowerLink(address, **ours, **wrong)
            with pytest.raises(ConnectionError, match="refuses the study"), link:
                pass
        with pytest.raises(ConnectionError, match="whether it speaks TLS"), FlowerLink(address, secret=secret):
            pass

        with Control(address, keys["authority"]) as control:
            control.RegisterNode(RegisterNodeRequest(public_key=public))
        names = []
        for _ in range(2):  # the same node, and each time another connection
            with (
                FlowerLink(address, **ours, secret=secret) as link,
                connected(link, echo, **ours, node_key=node_key) as threads,
            ):
                assert ask_all(link, b"x") == [b"re: x"]
                names += link.connected()
            all_left(threads)
        assert len(set(names)) == 2
        assert len({name.partition(" ")[0] for name in names}) == 1
    finally:
        started.kill()


def test_keys_and_certificates_that_are_none_are_told(tmp_path: Path) -> None:
    keys = write_certificates(tmp_path)
    missing = tmp_path / "missing.pem"
    for settings in ({"certificate": missing}, {"node_key": missing}):
        with pytest.raises(FileNotFoundError, match=r"missing\.pem"):
            connect("localhost:80", echo, **settings)
    with pytest.raises(FileNotFoundError, match=r"missing\.pem"):
        FlowerLink(certificate=missing)
    with pytest.raises(ValueError, match="key is not a certificate in PEM format"):
        connect("localhost:80", echo, certificate=keys["key"])
    for wrong in ("authority", "key"):  # a certificate, and a key of another format
        with pytest.raises(ValueError, match="is not an EC private key in OpenSSH format; make one with ssh-keygen"):
            connect("localhost:80", echo, node_key=keys[wrong])


# --- the process -----------------------------------------------------------------------------------------------------


def test_telemetry_is_off_and_the_process_stays_the_callers(superlink: SuperLink) -> None:
    """Even where the environment says otherwise: no event leaves, no signal handler is replaced, nothing is printed."""
    code = f"""
import logging, signal, threading, urllib.request
before = {{number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}}
from tulle.federated.server_side.flower import FlowerLink, connect
from flwr.supercore import telemetry
logging.basicConfig()
sent = []
urllib.request.urlopen = lambda *a, **k: sent.append(a)
with FlowerLink({superlink.address!r}) as link:
    thread = threading.Thread(target=connect, args=(link.address, bytes.upper))
    thread.start()
    assert link.wait_for(1, 30)
    assert [answer for _, answer in link.ask(b"x", link.connected(), 30)] == [b"X"]
thread.join(30)
assert telemetry.FLWR_TELEMETRY_ENABLED == "0"
assert telemetry.create_event(telemetry.EventType.PING, None) == "disabled" and not sent
assert before == {{number: signal.getsignal(number) for number in before}}
"""
    environment = {**os.environ, "FLWR_TELEMETRY_ENABLED": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, env=environment, check=False
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_a_missing_extra_is_named() -> None:
    code = "import sys; sys.modules['flwr'] = None; import tulle.federated.server_side.flower"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 1
    last = ran.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: clients on other machines need Flower: {install_hint('flower')}"), last


def test_the_core_does_not_import_flower() -> None:
    code = "import sys, tulle, tulle.federated; print(json.dumps(sorted(sys.modules)))"
    ran = subprocess.run(
        [sys.executable, "-c", f"import json; {code}"], capture_output=True, text=True, timeout=60, check=True
    )
    assert {"flwr", "grpc", "torch"}.isdisjoint(json.loads(ran.stdout))


# --- studies ---------------------------------------------------------------------------------------------------------

FEATURES = 20
NAMES = ("north", "south", "west")

_CLIENT = """
import sys
import numpy as np
from tulle import FileLedger
from tulle.federated import Client
from tulle.federated.server_side.flower import connect
name, address = sys.argv[1:]
rng = np.random.default_rng(len(name))
X = rng.normal(size=(200, 20)) / np.sqrt(20)
y = np.where(X[:, :3] @ [3.0, -3.0, 2.0] > 0, "ward", "home")
client = Client(name, X, y, ledger=FileLedger(f"{name}.json", name), state=f"{name}-state")
connect(address, client.answer, retry_seconds=60, told=lambda line: print(line, flush=True))
"""


def terms(rounds: int) -> Terms:
    return Terms(
        study="trial",
        model=linear_terms(FEATURES, step=1.0, classes=("home", "ward"), row_l2=2.0),
        rounds=rounds,
        local_steps=1,
        n_nonzero=3,
        step=1.0,
        clip=0.5,
        batch=None,
        epsilon=2.0,
        delta=1e-6,
    )


@dataclass
class Hospitals:
    """Client processes with their ledgers and states, at a SuperLink of their own."""

    folder: Path
    superlink: SuperLink
    running: dict[str, Any] = field(default_factory=dict)

    def start(self, name: str) -> None:
        ledger = self.folder / f"{name}.json"
        if not ledger.exists():
            FileLedger.create(ledger, name, Budget(3.0, 1e-5))
        with (self.folder / f"{name}.out").open("ab") as out:
            self.running[name] = subprocess.Popen(
                [sys.executable, "-c", _CLIENT, name, self.superlink.address], cwd=self.folder, stdout=out, stderr=out
            )

    def command(self, name: str, words: list[str]) -> None:
        with (self.folder / f"{name}.out").open("ab") as out:
            self.running[name] = subprocess.Popen(
                [sys.executable, "-m", "tulle", "federated", *words], cwd=self.folder, stdout=out, stderr=out
            )

    def check_books(self, name: str, rounds: int) -> None:
        """One bill; every round was answered once on the client's own disk."""
        assert len(FileLedger(self.folder / f"{name}.json", name).entries) == 1
        (path,) = (self.folder / f"{name}-state").glob("*.study")
        answered = list(decode(path.read_bytes(), (StudyState, SparseWeights)).answered)
        assert len(answered) == len(set(answered)) <= rounds

    def all_ended(self) -> None:
        for name, process in self.running.items():
            assert process.wait(PATIENCE) == 0, (self.folder / f"{name}.out").read_text()


@pytest.fixture
def hospitals(tmp_path: Path) -> Iterator[Hospitals]:
    there = Hospitals(tmp_path, SuperLink(tmp_path).start())
    try:
        yield there
    finally:
        for process in there.running.values():
            process.kill()
            process.wait()
        there.superlink.kill()


def test_a_study_over_a_superlink_with_a_client_that_is_killed_and_comes_back(hospitals: Hospitals) -> None:
    """Three processes. One is killed after two rounds and is back after four: it enrols again, is not billed again, and
    answers all rounds from then on."""
    rounds = 10
    done: list[Any] = []

    def progress(record: Any, weights: Any) -> None:
        done.append(record)
        if record.number == 2:
            hospitals.running["north"].kill()
        if record.number == 4:
            hospitals.start("north")
            log = hospitals.folder / "north.out"
            wait_until(lambda: log.read_text().count("connected to") == 2, log.read_text)

    for name in NAMES:
        hospitals.start(name)
    server = Server(terms(rounds), clients=NAMES, min_clients=2, seconds=3.0, patience=PATIENCE, progress=progress)
    with FlowerLink(hospitals.superlink.address) as link:
        assert link.wait_for(3, PATIENCE)
        fit = server.run(link)
    hospitals.all_ended()
    assert [record.number for record in done] == list(range(1, rounds + 1))
    assert sorted(client.client for client in fit.clients) == sorted(NAMES)
    taken = {name: [record.number for record in done if name in record.answered] for name in NAMES}
    assert taken["south"] == taken["west"] == list(range(1, rounds + 1))
    assert taken["north"] == [number for number in range(1, rounds + 1) if number not in (3, 4)]
    assert not any(record.rejected for record in done)
    for name in NAMES:
        hospitals.check_books(name, rounds)
    model = fit.model()
    assert 1.9 < model.privacy_.epsilon <= 2.0
    assert "curious server" in " ".join(model.privacy_.who_saw_what)


def test_an_interrupted_study_goes_on_from_its_journal(hospitals: Hospitals) -> None:
    """The clients wait at the SuperLink; no round is billed or answered twice."""
    rounds = 8

    def interrupted(record: Any, weights: Any) -> None:
        if record.number == 3:
            raise KeyboardInterrupt

    for name in NAMES[:2]:
        hospitals.start(name)
    settings: dict[str, Any] = {"min_clients": 2, "journal": hospitals.folder / "journal", "patience": PATIENCE}
    with pytest.raises(KeyboardInterrupt), FlowerLink(hospitals.superlink.address) as link:
        Server(terms(rounds), progress=interrupted, **settings).run(link)
    with FlowerLink(hospitals.superlink.address) as link:
        fit = Server(terms(rounds), **settings).run(link)
    hospitals.all_ended()
    assert fit.rounds[-1].number == rounds
    for name in NAMES[:2]:
        hospitals.check_books(name, rounds)
        assert "is gone" not in (hospitals.folder / f"{name}.out").read_text()


def test_the_commands_run_a_study_over_a_superlink(hospitals: Hospitals) -> None:
    """With two clients that have ledgers of their own."""
    folder, address = hospitals.folder, hospitals.superlink.address
    generator = np.random.default_rng(0)
    flower_words = ["--transport", "flower"]
    for name in NAMES[:2]:
        X = generator.normal(size=(200, FEATURES)) / np.sqrt(FEATURES)
        y = np.where(X[:, 0] > X[:, 1], "ward", "home")
        lines = [",".join([*(f"{value:.6f}" for value in row), label]) for row, label in zip(X, y)]
        head = ",".join([*(f"f{j}" for j in range(FEATURES)), "outcome"])
        (folder / f"{name}.csv").write_text("\n".join([head, *lines]) + "\n")
        FileLedger.create(folder / f"{name}.json", name, Budget(3.0, 1e-5))
        words = f"--data {name}.csv --target outcome --name {name} --server {address} --retry-seconds {PATIENCE}"
        books = f"--ledger {name}.json --dataset {name} --state {name}-state"
        hospitals.command(name, ["client", *flower_words, *f"{words} {books}".split()])
    study = f"--study trial --features {FEATURES} --classes home,ward --row-l2 2 --epsilon 2 --delta 1e-6 --n-nonzero 3"
    run = f"--rounds 5 --superlink {address} --clients north,south -o model --json"
    hospitals.command("server", ["server", *flower_words, *f"{study} {run}".split()])
    hospitals.all_ended()
    with (folder / "model" / "rounds.csv").open() as file:
        assert [line["answered"] for line in csv.DictReader(file)] == ["north;south"] * 5
    for name in NAMES[:2]:
        hospitals.check_books(name, 5)
