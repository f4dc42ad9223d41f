"""The server's end of connections over gRPC, with certificates of clients (extra `federated`).

Under TLS a client is known by the common name of its certificate, which the study's authority has issued. While a
connection of that name lives, a second one is refused: no other process takes a client's place while it is there.
"""

from __future__ import annotations

import errno
import queue
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tulle.federated.certificates import check_certificate, read_certificate, read_private_key
from tulle.federated.grpc_protocol import (
    GOODBYE,
    GREETING,
    LIMITS,
    METHOD,
    SERVICE,
    Certificates,
    grpc,
    keep_alive,
    pack,
    unpack,
)
from tulle.federated.link import Link
from tulle.federated.server_addresses import is_loopback, join_address
from tulle.monitoring.log_events import log_event

# A client that vanished without a word is noticed after the sum of both, in less time than clients look for a server by
# default: its next connection, refused at first, is accepted before it gives up.
_LOOKS_MS, _NO_ANSWER_MS = 20_000, 20_000
# How often clients may look, which is more often than gRPC's servers allow by default.
_FEWEST_MS_BETWEEN_PINGS = 10_000
# How long clients are given to leave, and a server to close.
_GOODBYE_SECONDS, _CLOSING_SECONDS = 2.0, 1.0
# Each connection occupies a thread, which mostly waits.
_MOST_CONNECTIONS = 1000

_OPTIONS = (
    *LIMITS,
    *keep_alive(_LOOKS_MS, _NO_ANSWER_MS),
    ("grpc.http2.min_ping_interval_without_data_ms", _FEWEST_MS_BETWEEN_PINGS),
    ("grpc.so_reuseport", 0),  # or two servers would share a port, and the clients
)

_Answers = queue.SimpleQueue[tuple[str, bytes | None]]


@dataclass(eq=False)
class _Connection:
    """A stream of a client. `question` is the number of the one that it still has, and where its answer goes."""

    key: str
    to_send: queue.SimpleQueue[bytes | None] = field(default_factory=queue.SimpleQueue)
    question: tuple[int, _Answers] | None = None
    is_leaving: bool = False

    @property
    def is_free(self) -> bool:
        return self.question is None and not self.is_leaving


class GrpcLink(Link):
    """A server that clients connect to over gRPC, open from `with` to its end.

    Parameters
    ----------
    host : str, default="127.0.0.1"
        The address of this machine to listen at. The default is reached from this machine only; "0.0.0.0" from all.
    port : int, default=0
        0 to 65535; 0 takes a free one. `address` says which.
    certificates : tuple of path, optional
        Files in PEM format: of the study's authority, the server's certificate and its private key. Clients must then
        have certificates of the same authority.
    insecure : bool, default=False
        Listen to other machines without certificates: anyone on the network path can read and change messages, and
        anyone who reaches the port can be any client.

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
        certificates: Certificates | None = None,
        insecure: bool = False,
    ) -> None:
        if not 0 <= port <= 65535:
            raise ValueError(f"port must be from 0 to 65535, got {port}")
        if certificates is None and not insecure and not is_loopback(host):
            raise ValueError(
                f"{host} is reached from other machines: pass certificates (tulle federated certificates makes them), "
                "or insecure=True"
            )
        self.host = host
        self._port = port
        self._certificates = certificates
        self._authority: Any = None
        self._server: Any = None
        self._lock = threading.Lock()
        self._number = 0
        self._connections: dict[str, _Connection] = {}
        # Of all connections there ever were: an answer is attributed after its connection has ended, too.
        self._names: dict[str, str | None] = {}
        self._living: set[str] = set()
        self._ever: set[str] = set()
        self._is_closing = False

    @property
    def address(self) -> str:
        """HOST:PORT, for `connect`."""
        return join_address(self.host, self._port)

    def __enter__(self) -> GrpcLink:
        credentials = None if self._certificates is None else self._read(self._certificates)
        self._server = grpc.server(
            ThreadPoolExecutor(_MOST_CONNECTIONS), options=_OPTIONS, maximum_concurrent_rpcs=_MOST_CONNECTIONS
        )
        handler = grpc.stream_stream_rpc_method_handler(self._join)  # without serialisers: bytes as they are
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),))
        try:
            if credentials is None:
                self._port = self._server.add_insecure_port(self.address)
            else:
                self._port = self._server.add_secure_port(self.address, credentials)
        except RuntimeError:
            raise self._explain_port() from None
        self._server.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *more: object) -> None:
        """Tell clients to go, and close. A server that is interrupted may be started again: clients wait for it."""
        interrupted = kind is not None and not issubclass(kind, Exception)
        with self._lock:
            self._is_closing = True
            # The busy ones cannot be told: they find out as the connection ends.
            leaving = [] if interrupted else [one for one in self._connections.values() if one.is_free]
            for one in leaving:
                one.is_leaving = True
                one.to_send.put(GOODBYE)
        end = time.monotonic() + _GOODBYE_SECONDS
        try:
            while any(one.key in self._connections for one in leaving) and time.monotonic() < end:
                time.sleep(0.01)
        finally:
            self._server.stop(0.0 if interrupted else _CLOSING_SECONDS).wait(2 * _CLOSING_SECONDS)

    def connected(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(self._connections)

    def certified_name(self, connection: str) -> str | None:
        return self._names[connection]

    def ask(self, message: bytes, whom: Sequence[str], seconds: float) -> Iterator[tuple[str, bytes]]:
        end = time.monotonic() + seconds
        answers: _Answers = queue.SimpleQueue()
        with self._lock:
            self._number += 1
            packed = pack(self._number, message)
            there = [self._connections[key] for key in dict.fromkeys(whom) if key in self._connections]
            free = [one for one in there if one.is_free]
            for one in free:
                one.question = (self._number, answers)
                one.to_send.put(packed)
        for _ in free:
            try:
                key, answer = answers.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                return
            if answer is not None:
                yield key, answer

    # --- one connection, in a thread of gRPC's ---

    def _join(self, received: Iterator[bytes], context: Any) -> Iterator[bytes]:
        """Send questions to a client, and take its answers, until either side ends it."""
        connection = self._admit(context)
        yield GREETING
        while (packed := connection.to_send.get()) is not None:
            yield packed
            if packed == GOODBYE:
                return
            try:
                raw = next(received)
            except (StopIteration, grpc.RpcError):
                return
            self._deliver(connection, raw)

    def _admit(self, context: Any) -> _Connection:
        """A new connection, unless its client may not have one now."""
        name = None if self._authority is None else self._check_client(context)
        with self._lock:
            is_closing, is_second = self._is_closing, name in self._living
            came_back = name in self._ever
            connection = _Connection(str(len(self._names) + 1))
            if not is_closing and not is_second:
                self._names[connection.key] = name
                if name is not None:
                    self._living.add(name)
                    self._ever.add(name)
                self._connections[connection.key] = connection
        if is_closing:
            context.abort(grpc.StatusCode.UNAVAILABLE, "the server is closing")
        if is_second:
            log_event(__name__, "federated.second_connection")
            context.abort(grpc.StatusCode.ALREADY_EXISTS, f"a connection under the name {name!r} is open")
        if came_back:
            log_event(__name__, "federated.taken_over")
        if not context.add_callback(lambda: self._end(connection)):
            self._end(connection)  # it ended before anyone could be told
        return connection

    def _check_client(self, context: Any) -> str:
        """The name in a client's certificate. That TLS accepted it is not enough: a server's must not pass."""
        (pem,) = context.auth_context().get("x509_pem_cert", [b""])
        reason = ""
        try:
            return check_certificate(read_certificate(pem), self._authority)
        except ValueError as error:
            reason = str(error)
        log_event(__name__, "federated.certificate_refused")
        context.abort(grpc.StatusCode.PERMISSION_DENIED, reason.encode("ascii", "backslashreplace").decode())
        raise AssertionError("abort raises")

    def _deliver(self, connection: _Connection, raw: bytes | None) -> None:
        """Pass on what a client said to the question that it has; None: it is gone."""
        with self._lock:
            asked, connection.question = connection.question, None
        if asked is None:
            return
        number, answers = asked
        found = None if raw is None else unpack(raw)
        answers.put((connection.key, found[1] if found is not None and found[0] == number else None))

    def _end(self, connection: _Connection) -> None:
        with self._lock:
            connection.is_leaving = True
            self._connections.pop(connection.key, None)
            name = self._names[connection.key]
            if name is not None:
                self._living.discard(name)
        self._deliver(connection, None)
        connection.to_send.put(None)

    # --- opening ---

    def _read(self, files: Certificates) -> Any:
        authority, certificate, key = (Path(file).read_bytes() for file in files)
        try:
            self._authority = read_certificate(authority)
            read_private_key(key)
        except ValueError as error:
            raise OSError(f"{self._unusable()}: {error}") from None
        try:
            return grpc.ssl_server_credentials([(key, certificate)], authority, require_client_auth=True)
        except Exception:  # of gRPC, without a text
            raise OSError(self._unusable()) from None

    def _unusable(self) -> str:
        return f"cannot listen at {self.address}: see whether the certificates are what they should be"

    def _explain_port(self) -> OSError:
        """Why the port could not be opened, which gRPC does not say."""
        reason: int | None = None
        with socket.socket(socket.AF_INET6 if ":" in self.host else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((self.host, self._port))
            except OSError as error:
                reason = error.errno
        if reason == errno.EADDRINUSE:
            return OSError(f"{self.address} is in use; choose another port, or 0 for a free one")
        if reason == errno.EACCES:
            return OSError(
                f"cannot listen at {self.address}: ports below 1024 need rights; choose another, or grant them"
            )
        if reason is None and self._certificates is not None:
            return OSError(self._unusable())
        return OSError(f"cannot listen at {self.address}: see whether it is an address of this machine")
