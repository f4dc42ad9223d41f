"""Clients on other machines, reached through Flower (extra `federated`).

Flower carries bytes and nothing else. Its direct way from server to client (grpc-bidi) is used although Flower calls it
deprecated, because the one that replaced it sends the server's code to the clients and runs it beside their rows: here
a client runs only what is installed there. Flower's telemetry is switched off.

A message is the one tensor of a `fit` instruction, of the type "tulle"; the answer is the one tensor of its result.
Whatever else a server may ask of a Flower client is refused. What stands in the bytes is not known here.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from tulle.federated.encoding import MOST_BYTES
from tulle.federated.link import Answer, Link
from tulle.monitoring.log_events import log_event

try:
    os.environ["FLWR_TELEMETRY_ENABLED"] = "0"  # read when flwr is imported
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # what fails is told here, in our words
    import grpc
    from flwr.common import FitIns, Parameters, ReconnectIns
    from flwr.common.serde import fit_ins_from_proto, fit_res_to_proto
    from flwr.common.typing import Code, FitRes, Status
    from flwr.proto.transport_pb2 import ClientMessage
    from flwr.proto.transport_pb2_grpc import FlowerServiceStub
    from flwr.server.client_manager import SimpleClientManager
    from flwr.server.superlink.fleet.grpc_bidi.grpc_bridge import GrpcBridgeClosed
    from flwr.server.superlink.fleet.grpc_bidi.grpc_server import start_grpc_server
except ImportError as error:
    raise ImportError(
        f'clients on other machines need Flower: pip install "tulle[federated]" ({error})', name=error.name
    ) from None

_TENSOR = "tulle"
# Which question an answer belongs to.
_NUMBER = "question"

# What Flower and gRPC wrap around a message.
_WRAPPING = 1 << 16
# A machine that vanished without a word is noticed after so long. gRPC's servers cut clients that ask more often.
_SERVER_LOOKS_MS, _CLIENT_LOOKS_MS = 60_000, 310_000
# How long clients are given to take their leave, and a server to close.
_GOODBYE_SECONDS, _CLOSING_SECONDS = 2.0, 1.0
# Between two attempts to reach a server.
_PAUSE_SECONDS = 1.0

# What a server will not say otherwise however often it is asked.
_FINAL = (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)


def _is_news(record: logging.LogRecord) -> bool:
    """Not that a client is gone, for which gRPC logs an error with a traceback."""
    return not (record.exc_info and isinstance(record.exc_info[1], GrpcBridgeClosed))


logging.getLogger("grpc._server").addFilter(_is_news)


class FlowerLink(Link):
    """A server that Flower clients connect to, open from `with` to its end.

    Parameters
    ----------
    host : str, default="127.0.0.1"
        The address of this machine to listen at. The default is reached from this machine only; "0.0.0.0" from all.
    port : int, default=0
        0 to 65535; 0 takes a free one. `address` says which.
    certificates : tuple of path, optional
        Files in PEM format: of the certification authority, the server's certificate and its private key. Without
        them anyone who is on the way can read and change what is said.

    Raises
    ------
    OSError
        From `with`: the address is in use, or not one of this machine; a certificate cannot be read.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        certificates: tuple[str | Path, str | Path, str | Path] | None = None,
    ) -> None:
        if not 0 <= port <= 65535:
            raise ValueError(f"port must be from 0 to 65535, got {port}")
        self.host = host
        self._port = port
        self._certificates = certificates
        self._clients = SimpleClientManager()
        self._server: Any = None
        self._lock = threading.Lock()
        self._busy: set[str] = set()
        self._number = 0

    @property
    def address(self) -> str:
        """HOST:PORT, for `connect`."""
        return _join(self.host, self._port)

    def __enter__(self) -> FlowerLink:
        read = None
        if self._certificates is not None:
            authority, certificate, key = self._certificates
            read = Path(authority).read_bytes(), Path(certificate).read_bytes(), Path(key).read_bytes()
        try:
            self._server = start_grpc_server(
                self._clients,
                self.address,
                max_message_length=MOST_BYTES + _WRAPPING,
                keepalive_time_ms=_SERVER_LOOKS_MS,
                certificates=read,
            )
        except SystemExit:  # Flower's way to say so
            raise OSError(f"{self.address} is in use; choose another port, or 0 for a free one") from None
        except RuntimeError:
            and_keys = "" if read is None else ", and whether the certificates are what they should be"
            raise OSError(
                f"cannot listen at {self.address}: see whether it is an address of this machine{and_keys}"
            ) from None
        self._port = int(self._server.bound_address.rpartition(":")[2])
        return self

    def __exit__(self, kind: type[BaseException] | None, *more: object) -> None:
        """Tell clients to go, and close. A server that is interrupted may be started again: clients wait for it."""

        def part(name: str) -> None:
            self._clients.all()[name].reconnect(ReconnectIns(seconds=0), timeout=None, group_id=None)

        interrupted = kind is not None and not issubclass(kind, Exception)
        try:
            # The busy ones cannot be told: they find out as the connection ends.
            for _ in self._in_threads(part, () if interrupted else self.connected(), _GOODBYE_SECONDS):
                pass
        finally:
            self._server.stop(0.0 if interrupted else _CLOSING_SECONDS).wait(2 * _CLOSING_SECONDS)

    def connected(self) -> tuple[str, ...]:
        return tuple(self._clients.all().copy())

    def ask(self, message: bytes, whom: Sequence[str], seconds: float) -> Iterator[tuple[str, bytes]]:
        with self._lock:
            self._number += 1
            number = self._number
        instruction = FitIns(Parameters([message], _TENSOR), {_NUMBER: number})

        def put(name: str) -> bytes:
            result = self._clients.all()[name].fit(instruction, timeout=None, group_id=None)
            if result.metrics.get(_NUMBER) != number or result.parameters.tensor_type != _TENSOR:
                raise ValueError("no answer to this question")
            (answer,) = result.parameters.tensors
            return answer

        yield from self._in_threads(put, whom, seconds)

    def _in_threads(self, do: Callable[[str], Any], whom: Sequence[str], seconds: float) -> Iterator[tuple[str, Any]]:
        """What comes of doing something with connections, all at once; without those that are busy, fail or are late.

        Flower's own time limit would end the connection of a late client. Here a connection stays busy, and is asked
        nothing, until its client has said something to the question that it still has; that goes into a queue that
        nobody reads any more.
        """
        end = time.monotonic() + seconds
        done: queue.SimpleQueue[tuple[str, bool, Any]] = queue.SimpleQueue()

        def run(name: str) -> None:
            try:
                result = (name, True, do(name))
            except Exception:  # gone, or it said what is no answer
                result = (name, False, None)
            with self._lock:
                self._busy.discard(name)
            done.put(result)

        with self._lock:
            there = self._clients.all()
            free = [name for name in dict.fromkeys(whom) if name in there and name not in self._busy]
            self._busy.update(free)
        for name in free:
            threading.Thread(target=run, args=(name,), daemon=True).start()
        for _ in free:
            try:
                name, answered, result = done.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                return
            if answered:
                yield name, result


def connect(
    address: str,
    answer: Answer,
    *,
    certificate: str | Path | None = None,
    retry_seconds: float = 60.0,
    forever: bool = False,
    told: Callable[[str], None] | None = None,
) -> None:
    """Answer a server until it says goodbye.

    A server that is away is looked for every second: it may be started again, and go on.

    Parameters
    ----------
    address : str
        HOST:PORT of the server.
    answer : callable of bytes to bytes
        What answers a message, one at a time. It runs in this thread; what it raises ends the connection and is
        raised here.
    certificate : path, optional
        Of the certification authority that signed the server's certificate, in PEM format. With it the server must
        show that it is the one that the address names, and nobody else can read what is said.
    retry_seconds : float, default=60
        At least 0: how long the server may stay away.
    forever : bool, default=False
        Go on after goodbyes and absences of any length, until the process ends.
    told : callable of str, optional
        Is told when the server is there, and when it is gone.

    Raises
    ------
    ConnectionError
        The server stayed away, or what is there is none.
    """
    _split(address)
    if not retry_seconds >= 0:
        raise ValueError(f"retry_seconds must be at least 0, got {retry_seconds}")
    authority = None if certificate is None else Path(certificate).read_bytes()
    tell = told or (lambda text: None)
    seen, ever = time.monotonic(), False
    while True:
        left = seen + retry_seconds - time.monotonic()
        wait = 10.0 if forever else max(left, 0.1)
        with _channel(address, authority) as channel:
            try:
                grpc.channel_ready_future(channel).result(timeout=wait)
            except grpc.FutureTimeoutError:
                if forever:
                    continue
                raise ConnectionError(_nobody(address, certificate, retry_seconds, ever)) from None
            tell(f"connected to {address}")
            log_event(__name__, "federated.client.connected")
            ever = True
            goodbye = False
            try:
                goodbye = _answer_all(channel, answer)
            except grpc.RpcError as error:
                if error.code() in _FINAL:
                    raise ConnectionError(
                        f"what listens at {address} is no server of a study; see whether host and port are right"
                    ) from None
            log_event(__name__, "federated.client.disconnected", reason="goodbye" if goodbye else "lost")
            tell(f"{address} said goodbye" if goodbye else f"{address} is gone; looking for it")
            if goodbye and not forever:
                return
        seen = time.monotonic()
        time.sleep(_PAUSE_SECONDS)


def _answer_all(channel: Any, answer: Answer) -> bool:
    """Answer what comes until the connection ends; whether it ended with a goodbye."""
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
    messages = FlowerServiceStub(channel).Join(iter(answers.get, None))
    try:
        for message in messages:
            if message.WhichOneof("msg") == "reconnect_ins":
                return True
            answers.put(_reply(message, answer))
    finally:
        answers.put(None)  # or gRPC's thread would wait for it for ever
        messages.cancel()
    return False


def _reply(message: Any, answer: Answer) -> Any:
    """The answer to a message of ours; to all else, that there is no such thing here."""
    asked = _question(message)
    if asked is None:
        return ClientMessage(fit_res=fit_res_to_proto(_result(Code.FIT_NOT_IMPLEMENTED, [], {})))
    raw, number = asked
    return ClientMessage(fit_res=fit_res_to_proto(_result(Code.OK, [answer(raw)], {_NUMBER: number})))


def _question(message: Any) -> tuple[bytes, int] | None:
    """The bytes of a message and its number, where it is one of ours."""
    if message.WhichOneof("msg") != "fit_ins":
        return None
    try:
        asked = fit_ins_from_proto(message.fit_ins)
    except Exception:  # settings of no kind that Flower knows
        return None
    number, tensors = asked.config.get(_NUMBER), asked.parameters.tensors
    if asked.parameters.tensor_type != _TENSOR or len(tensors) != 1 or type(number) is not int:
        return None
    return tensors[0], number


def _result(code: Any, tensors: list[bytes], metrics: dict[str, Any]) -> Any:
    # Flower asks for the number of rows; it is in no message of ours, as it is for the client to say.
    return FitRes(Status(code, ""), Parameters(tensors, _TENSOR), 0, metrics)


def _channel(address: str, authority: bytes | None) -> Any:
    options = [
        ("grpc.max_send_message_length", MOST_BYTES + _WRAPPING),
        ("grpc.max_receive_message_length", MOST_BYTES + _WRAPPING),
        ("grpc.keepalive_time_ms", _CLIENT_LOOKS_MS),
        # A server that comes back is found within a second or two, however long it was away.
        ("grpc.max_reconnect_backoff_ms", 2000),
        *([("grpc.enable_http_proxy", 0)] if is_this_machine(address) else []),
    ]
    if authority is None:
        return grpc.insecure_channel(address, options)
    return grpc.secure_channel(address, grpc.ssl_channel_credentials(authority), options)


def _nobody(address: str, certificate: str | Path | None, seconds: float, ever: bool) -> str:
    if ever:
        return f"the server at {address} was gone for {seconds:g} seconds"
    tls = (
        f"whether it has the certificate that {certificate} vouches for"
        if certificate is not None
        else "whether it speaks TLS and you must name a certificate"
    )
    return f"no server at {address} within {seconds:g} seconds; see whether host and port are right and {tls}"


def is_this_machine(address: str) -> bool:
    """Whether what is said to an address never leaves the machine."""
    host = _split(address)[0]
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"


def _split(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not host or "/" in host or not port.isascii() or not port.isdigit() or not 0 < int(port) <= 65535:
        raise ValueError(f"an address is HOST:PORT, as in localhost:8080, not {address!r}")
    return host.strip("[]"), int(port)


def _join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
