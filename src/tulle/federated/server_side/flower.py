"""Clients on other machines, reached through a Flower SuperLink (extra `flower`).

A SuperLink is Flower's message server; institutions that run Flower have one. Here it carries bytes and nothing else.
`FlowerLink` takes the place of the server process of an app: it starts a run with an app that has no code. `connect`
takes the place of a node, and runs only code that is installed at the client. The bytes are not read here.
"""

from __future__ import annotations

import hashlib
import io
import queue
import secrets
import ssl
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tulle.federated.client_side.flower_node import ClientNode
from tulle.federated.link import Answer, Link
from tulle.federated.server_addresses import split_address
from tulle.federated.superlink import (
    GOODBYE,
    HEARTBEAT_SECONDS,
    QUESTION,
    CallError,
    Control,
    Pause,
    Runtime,
    only_record,
    pack,
    pull_record,
    push,
    unpack,
)
from tulle.monitoring.log_events import log_event

# isort: split
# Flower's settings are made in superlink.py, before it is imported.
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Metadata, RecordDict
from flwr.app.message import make_message
from flwr.common.constant import SUPERLINK_NODE_ID, SubStatus
from flwr.proto import runtime_pb2 as runtime
from flwr.proto.control_pb2 import StartRunRequest, StopRunRequest
from flwr.proto.fab_pb2 import Fab
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor, SuperExecAuthHttpInterceptor

# How long a SuperLink keeps a message for a client that is busy, at least.
_KEPT_SECONDS = 12 * 3600.0
# How long clients are given to leave.
_GOODBYE_SECONDS = 2.0
# Between two attempts to reach a SuperLink.
_PAUSE_SECONDS = 1.0
# Attempts to start a run before the SuperLink's own executor takes it.
_ATTEMPTS = 10

# An app, as a SuperLink asks for one in each run, without code: the modules that it names do not exist.
_APP = """\
[project]
name = "tulle-study"
version = "1.0.0"
description = "{nonce}"
license = "Apache-2.0"
[tool.flwr.app]
publisher = "tulle"
[tool.flwr.app.components]
serverapp = "no_code:none"
clientapp = "no_code:none"
"""


class FlowerLink(Link):
    """A server's way to clients that are connected to the same SuperLink, open from `with` to its end.

    Parameters
    ----------
    address : str, default="127.0.0.1:8000"
        HOST:PORT of the SuperLink.
    certificate : path, optional
        Of the certification authority that signed the SuperLink's certificate, in PEM format. None: without TLS.
    secret : path, optional
        The file that the SuperLink was given as `--superexec-auth-secret-file`, if it was: only those who have it can
        run studies.

    Raises
    ------
    ConnectionError
        From `with`: no SuperLink is there, or it refuses to start a run.
    """

    def __init__(
        self,
        address: str = "127.0.0.1:8000",
        *,
        certificate: str | Path | None = None,
        secret: str | Path | None = None,
    ) -> None:
        split_address(address)
        self.address = address
        self._certificate = None if certificate is None else _existing(certificate)
        self._secret = None if secret is None else Path(secret).read_bytes()
        self._calls: Any = None
        self._run = 0
        self._lock = threading.Lock()
        # Who is asked something, from before it is sent until there is an answer or none can come.
        self._busy: set[str] = set()
        # The questions that were sent, by the id of the message: who was asked, and who waits for the answer. None is
        # in it before the SuperLink has it: asked for an answer too early, a SuperLink says that there will be none.
        self._open: dict[str, tuple[str, queue.SimpleQueue[tuple[str, bytes | None]]]] = {}
        self._news, self._closed = threading.Event(), threading.Event()

    def __enter__(self) -> FlowerLink:
        self._start_run()
        self._closed.clear()
        for work in (self._collect, self._send_heartbeats):
            threading.Thread(target=work, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *more: object) -> None:
        """Tell clients to go, and end the run. A server that is interrupted may be started again: clients wait."""
        interrupted = kind is not None and not issubclass(kind, Exception)
        try:
            if not interrupted:
                self._say_goodbye()
        finally:
            self._closed.set()
            self._news.set()
            ended = SubStatus.COMPLETED if kind is None else SubStatus.STOPPED
            with suppress(CallError):
                self._calls.PushTaskOutput(runtime.PushTaskOutputRequest(sub_status=ended, details=""))
            self._calls.close()

    def connected(self) -> tuple[str, ...]:
        calls = self._calls
        try:
            nodes = calls.GetNodes(runtime.GetNodesRequest()).nodes
        except CallError as error:
            if error.is_refusal:
                self._start_again(calls)
            return ()
        # A node with a key of its own keeps its id if it comes back.
        return tuple(f"{node.node_id} since {node.last_activated_at}" for node in nodes)

    def ask(self, message: bytes, whom: Sequence[str], seconds: float) -> Iterator[tuple[str, bytes]]:
        end = time.monotonic() + seconds
        there = set(self.connected())
        answers: queue.SimpleQueue[tuple[str, bytes | None]] = queue.SimpleQueue()
        content = pack(message)
        with self._lock:
            free = [name for name in dict.fromkeys(whom) if name in there and name not in self._busy]
            self._busy.update(free)
        if not free:
            return
        asked = {name: self._message(name, QUESTION, content, seconds) for name in free}
        try:
            self._push(list(asked.values()))
        except CallError:
            with self._lock:
                self._busy.difference_update(free)
            return
        with self._lock:
            self._open.update({each.metadata.message_id: (name, answers) for name, each in asked.items()})
        self._news.set()
        for _ in free:
            try:
                name, answer = answers.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                return  # the late ones stay in self._open: they are busy until they have answered
            if answer is not None:
                yield name, answer

    # --- messages ---

    def _message(self, name: str, kind: str, content: Any, seconds: float) -> Any:
        told = Metadata(
            run_id=self._run,
            message_id="",
            src_node_id=SUPERLINK_NODE_ID,
            dst_node_id=int(name.partition(" ")[0]),
            reply_to_message_id="",
            group_id="",
            created_at=time.time(),
            ttl=max(seconds, _KEPT_SECONDS),
            message_type=kind,
        )
        return make_message(told, content)

    def _push(self, messages: list[Any]) -> None:
        push(self._calls, SUPERLINK_NODE_ID, self._run, messages, runtime.PushAppMessagesRequest)

    def _settle(self, question: str, answer: bytes | None) -> None:
        with self._lock:
            waiting = self._open.pop(question, None)
            if waiting is not None:
                self._busy.discard(waiting[0])
        if waiting is not None:
            waiting[1].put((waiting[0], answer))

    def _collect(self) -> None:
        """Pull answers as long as the link is open. Answers that are no longer awaited are pulled too."""
        arriving: dict[str, tuple[str, str]] = {}  # of questions: the ids of the answer and of its record
        pause = Pause()
        while not self._closed.is_set():
            with self._lock:
                waiting = [question for question in self._open if question not in arriving]
            with suppress(CallError):  # `connected` sees to a SuperLink that is gone
                if waiting and self._pull(waiting, arriving):
                    pause.reset()
                for question, (answer, record) in list(arriving.items()):
                    self._finish(question, answer, record, arriving)
            if self._news.wait(pause.next() if self._open else None):
                self._news.clear()
                pause.reset()

    def _pull(self, waiting: list[str], arriving: dict[str, tuple[str, str]]) -> bool:
        """Whether there were answers. What they consist of may come later."""
        pulled = self._calls.PullMessages(runtime.PullAppMessagesRequest(message_ids=waiting))
        for message, tree in zip(pulled.messages_list, pulled.message_object_trees):
            question, record = message.metadata.reply_to_message_id, only_record(tree)
            if message.HasField("error") or record is None:  # refused, gone, or no answer of ours
                self._settle(question, None)
            else:
                arriving[question] = message.metadata.message_id, record
        return bool(pulled.messages_list)

    def _finish(self, question: str, answer: str, record: str, arriving: dict[str, tuple[str, str]]) -> None:
        try:
            raw = pull_record(self._calls, SUPERLINK_NODE_ID, self._run, record)
        except LookupError:
            raw = b""  # not a record: settled without an answer
        except CallError as error:
            if not error.is_refusal:
                raise
            raw = b""  # of a run that has ended: it must not keep other answers waiting
        if raw is not None:
            del arriving[question]
            self._settle(question, unpack(raw))
            self._calls.ConfirmMessageReceived(
                ConfirmMessageReceivedRequest(
                    node=Node(node_id=SUPERLINK_NODE_ID), run_id=self._run, message_object_id=answer
                )
            )

    def _say_goodbye(self) -> None:
        """To all; the busy ones find it when they are done, and are not waited for."""
        names = self.connected()
        if not names:
            return
        with self._lock:
            busy = set(self._busy)
        with suppress(CallError):
            self._push([self._message(name, GOODBYE, RecordDict(), 0.0) for name in names])
        end = time.monotonic() + _GOODBYE_SECONDS
        while time.monotonic() < end and {*self.connected()} & ({*names} - busy):
            time.sleep(0.05)

    # --- the run ---

    def _start_run(self) -> None:
        try:
            with Control(self.address, self._certificate) as control:
                self._run, token = self._claim(control)
            token_of = RuntimeTokenHttpInterceptor(token)
            self._calls = Runtime(self.address, self._certificate, token_of)
            self._calls.PullTaskInput(runtime.PullTaskInputRequest())  # the run begins
        except CallError as error:
            why = _refused(self.address, error) if error.is_refusal else _nobody(self.address, self._certificate)
            raise ConnectionError(why) from None

    def _claim(self, control: Any) -> tuple[int, str]:
        """Start a run and take its server process's place. Other runs at the SuperLink are left alone."""
        signed = () if self._secret is None else (_signature(self._secret),)
        with Runtime(self.address, self._certificate, *signed) as calls:
            for _ in range(_ATTEMPTS):
                app = _app_without_code()
                digest = hashlib.sha256(app).hexdigest()
                run = control.StartRun(StartRunRequest(fab=Fab(hash_str=digest, content=app))).run_id
                token = ""
                try:
                    # Flower means AgentApps; the SuperLink compares the hash of any app.
                    token = calls.AcquireTask(runtime.AcquireTaskRequest(agentapp_fab_hashes=[digest])).token
                finally:
                    if not token:
                        control.StopRun(StopRunRequest(run_id=run))
                if token:
                    return run, token
        raise ConnectionError(
            f"the SuperLink at {self.address} runs apps itself, and took the study's place; "
            "start it with --isolation process"
        )

    def _start_again(self, lost: Any) -> None:
        """A SuperLink that was started again knows nothing of the run. What it was asked is lost."""
        with self._lock:
            if self._calls is not lost or self._closed.is_set():
                return
            with suppress(ConnectionError):
                self._start_run()
                lost.close()
            forgotten = list(self._open)
        for question in forgotten:
            self._settle(question, None)

    def _send_heartbeats(self) -> None:
        while not self._closed.wait(HEARTBEAT_SECONDS):
            with suppress(CallError):
                self._calls.SendTaskHeartbeat(runtime.SendTaskHeartbeatRequest())


def connect(
    address: str,
    answer: Answer,
    *,
    certificate: str | Path | None = None,
    node_key: str | Path | None = None,
    retry_seconds: float = 60.0,
    forever: bool = False,
    told: Callable[[str], None] | None = None,
) -> None:
    """Answer the studies at a SuperLink until one says goodbye.

    A SuperLink that is away is looked for every second. One that is there is asked for messages however long there are
    none: a server that was interrupted may be started again, and go on.

    Parameters
    ----------
    address : str
        HOST:PORT of the SuperLink.
    answer : callable of bytes to bytes
        What answers a message, one at a time. It runs in this thread; what it raises ends the connection and is
        raised here.
    certificate : path, optional
        Of the certification authority that signed the SuperLink's certificate, in PEM format. With it the SuperLink
        must show that it is the one that the address names, and no third party can read the messages.
    node_key : path, optional
        An EC private key in OpenSSH format (`ssh-keygen -t ecdsa -b 384 -N ""`), for a SuperLink with
        `--enable-supernode-auth`; its public key must be registered there (`flwr supernode register`). None: the node
        registers itself, with a key that is used once.
    retry_seconds : float, default=60
        At least 0: how long the SuperLink may stay away.
    forever : bool, default=False
        Go on after goodbyes and absences of any length, until the process ends.
    told : callable of str, optional
        Is told when the SuperLink is there, when it is gone, and that a message was refused.

    Raises
    ------
    ConnectionError
        The SuperLink stayed away or refuses this node, or the process at the address is no SuperLink.
    """
    split_address(address)
    if not retry_seconds >= 0:
        raise ValueError(f"retry_seconds must be at least 0, got {retry_seconds}")
    authority = None if certificate is None else _existing(certificate)
    key = None if node_key is None else _read_key(Path(node_key))
    tell = told or (lambda text: None)
    seen, ever = time.monotonic(), False
    while True:
        joined, goodbye = False, False
        try:
            with ClientNode(address, authority, key, tell) as node:
                joined = ever = True
                tell(f"connected to {address}")
                log_event(__name__, "federated.client.connected")
                goodbye = node.answer_all(answer)
        except CallError as error:
            if error.is_refusal and not joined:
                raise ConnectionError(_refused(address, error)) from None
        if joined:
            seen = time.monotonic()
            log_event(__name__, "federated.client.disconnected", reason="goodbye" if goodbye else "lost")
            tell(f"{address} said goodbye" if goodbye else f"{address} is gone; looking for it")
            if goodbye and not forever:
                return
        elif not forever and time.monotonic() - seen >= retry_seconds:
            raise ConnectionError(_nobody(address, certificate, retry_seconds, ever))
        time.sleep(_PAUSE_SECONDS)


def _app_without_code() -> bytes:
    """One that no other run has: the SuperLink finds the run by its hash."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("pyproject.toml", _APP.format(nonce=secrets.token_hex(16)))
    return file.getvalue()


def _signature(secret: bytes) -> Any:
    return SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods={"/flwr.proto.Runtime/AcquireTask"})


def _read_key(path: Path) -> Any:
    try:
        key = load_ssh_private_key(path.read_bytes(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError(
            f'{path} is not an EC private key in OpenSSH format; make one with ssh-keygen -t ecdsa -b 384 -N ""'
        )
    return key


def _existing(certificate: str | Path) -> Path:
    Path(certificate).read_bytes()  # tells a missing file by its name
    try:
        ssl.create_default_context(cafile=str(certificate))
    except ssl.SSLError:
        raise ValueError(f"{certificate} is not a certificate in PEM format") from None
    return Path(certificate)


def _refused(address: str, error: CallError) -> str:
    if error.status in (401, 403, 412):
        known = (
            "; a SuperLink with --enable-supernode-auth needs the key of a node that is registered there, one with "
            "--superexec-auth-secret-file its secret, and any a clock that is not ahead of its own"
        )
    else:
        known = "; see whether host and port are right, and whether it is a SuperLink"
    return f"what listens at {address} refuses the study ({error}){known}"


def _nobody(address: str, certificate: str | Path | None, seconds: float | None = None, ever: bool = False) -> str:
    if ever:
        return f"the SuperLink at {address} was gone for {seconds:g} seconds"
    tls = (
        f"whether it has the certificate that {certificate} vouches for"
        if certificate is not None
        else "whether it speaks TLS and you must name a certificate"
    )
    within = "" if seconds is None else f" within {seconds:g} seconds"
    return f"no SuperLink at {address}{within}; see whether host and port are right and {tls}"
