"""A client's end of a connection over gRPC (extra `federated`).

The client opens the connection, outwards, and answers one message at a time with the code that is installed here.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tulle.federated.certificates import check_certificate, read_certificate, read_private_key
from tulle.federated.grpc_protocol import GOODBYE, GREETING, JOIN, LIMITS, Certificates, grpc, keep_alive, pack, unpack
from tulle.federated.link import Answer
from tulle.federated.server_addresses import is_this_machine, split_address
from tulle.monitoring.log_events import log_event

# A server that vanished without a word is noticed after the sum of both. The server's own limit allows this.
_LOOKS_MS, _NO_ANSWER_MS = 30_000, 20_000
# Between two attempts to reach a server, and how long one may take: firewalls often drop packets without an answer.
_PAUSE_SECONDS, _ATTEMPT_SECONDS = 1.0, 20.0
_LONGEST_REASON = 300


class _NoStudyError(ConnectionError):
    """The server can be reached, and will not say otherwise however often it is asked."""


def connect(
    address: str,
    answer: Answer,
    *,
    certificates: Certificates | None = None,
    server_name: str | None = None,
    proxy: str | None = None,
    insecure: bool = False,
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
    certificates : tuple of path, optional
        Files in PEM format: of the study's authority, this client's certificate and its private key. The server must
        then have a certificate of the same authority for its host.
    server_name : str, optional
        The host in the server's certificate, where it is not that of `address`, as through a tunnel.
    proxy : str, optional
        HOST:PORT or http://USER:PASSWORD@HOST:PORT of an HTTP proxy that the connection goes through (CONNECT). By
        default the environment variables grpc_proxy, https_proxy, http_proxy and no_proxy decide; a server on this
        machine is reached directly.
    insecure : bool, default=False
        Connect to another machine without certificates: anyone on the network path can read and change messages.
    retry_seconds : float, default=60
        At least 0: how long the server may stay away, or refuse a second connection of this client.
    forever : bool, default=False
        Go on after goodbyes and absences of any length, until the process ends.
    told : callable of str, optional
        Is told when the server is there, and when it is gone.

    Raises
    ------
    ConnectionError
        The server stayed away, or refuses this client, or the process at the address is no server of a study.
    ValueError
        A certificate is not that of a client of this authority, or has expired.
    """
    split_address(address)
    if not retry_seconds >= 0:
        raise ValueError(f"retry_seconds must be at least 0, got {retry_seconds}")
    if certificates is None and not insecure and not is_this_machine(address):
        raise ValueError(f"{address} is another machine: pass certificates, or insecure=True")
    credentials = None if certificates is None else _read(certificates)
    options = _options(address, server_name, proxy)
    tell = told or (lambda text: None)
    seen, ever, refused = time.monotonic(), False, False

    def greeted() -> None:
        nonlocal ever, refused
        ever, refused = True, False
        tell(f"connected to {address}")
        log_event(__name__, "federated.client.connected")

    while True:
        left = seen + retry_seconds - time.monotonic()
        wait = _ATTEMPT_SECONDS if forever else min(max(left, 0.1), _ATTEMPT_SECONDS)
        stream = _Stream(address, answer, greeted)
        with _channel(address, credentials, options) as channel:
            goodbye = stream.run(channel, wait)
        if stream.is_greeted:
            log_event(__name__, "federated.client.disconnected", reason="goodbye" if goodbye else "lost")
            tell(f"{address} said goodbye" if goodbye else f"{address} is gone; looking for it")
            if goodbye and not forever:
                return
            seen = time.monotonic()
        elif stream.is_second and not refused:
            refused = True
            tell(f"{address} has another connection under this client's name; trying again until that ends")
            log_event(__name__, "federated.client.refused", reason="second connection")
        left = seen + retry_seconds - time.monotonic()
        if left <= 0 and not forever and not stream.is_greeted:
            raise ConnectionError(_explain(address, certificates, retry_seconds, ever, stream))
        time.sleep(_PAUSE_SECONDS if forever or stream.is_greeted else min(_PAUSE_SECONDS, left))


class _Stream:
    """One attempt to reach a server, and the messages that follow."""

    def __init__(self, address: str, answer: Answer, greeted: Callable[[], None]) -> None:
        self._address, self._answer, self._greeted = address, answer, greeted
        self.is_greeted = False
        self.is_second = False
        self.reason = ""

    def run(self, channel: Any, seconds: float) -> bool:
        """Answer messages until the connection ends; whether it ended with a goodbye."""
        answers: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        received = channel.stream_stream(JOIN)(iter(answers.get, None))
        limit = threading.Timer(seconds, received.cancel)
        limit.daemon = True
        limit.start()
        try:
            for raw in received:
                if not self.is_greeted:
                    if raw != GREETING:
                        raise _NoStudyError(
                            f"the server at {self._address} speaks another version of the protocol; install the "
                            "versions of tulle that the study asks for"
                        )
                    limit.cancel()
                    self.is_greeted = True
                    self._greeted()
                elif raw == GOODBYE:
                    return True
                else:
                    asked = unpack(raw)
                    if asked is None or asked[0] == 0:
                        return False  # no message of this protocol: the connection ends here
                    answers.put(pack(asked[0], self._answer(asked[1])))
        except grpc.RpcError as error:
            self._note(error)
        finally:
            limit.cancel()
            answers.put(None)  # or gRPC's thread would wait for it for ever
            received.cancel()
        return False

    def _note(self, error: Any) -> None:
        """Why a connection ended; raises where another attempt cannot help."""
        code = error.code()
        text = "".join(letter for letter in error.details() or "" if letter.isprintable())[:_LONGEST_REASON]
        if code in (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED):
            raise _NoStudyError(f"{self._address} refuses this client: {text}") from None
        if code == grpc.StatusCode.UNIMPLEMENTED:
            raise _NoStudyError(
                f"what listens at {self._address} is no server of a study; see whether host and port are right"
            ) from None
        self.is_second = code == grpc.StatusCode.ALREADY_EXISTS
        self.reason = "" if code == grpc.StatusCode.CANCELLED else text


def _read(files: Certificates) -> Any:
    """Credentials of a client; raises ValueError if the server would refuse them anyway."""
    authority, certificate, key = (Path(file).read_bytes() for file in files)
    own = read_certificate(certificate)
    check_certificate(own, read_certificate(authority))
    if read_private_key(key).public_key() != own.public_key():
        raise ValueError(f"{files[2]} is not the private key of {files[1]}")
    return grpc.ssl_channel_credentials(authority, key, certificate)


def _options(address: str, server_name: str | None, proxy: str | None) -> list[tuple[str, Any]]:
    options: list[tuple[str, Any]] = [
        *LIMITS,
        *keep_alive(_LOOKS_MS, _NO_ANSWER_MS),
    ]
    if server_name is not None:
        options.append(("grpc.ssl_target_name_override", server_name))
    if proxy is not None:
        options.append(("grpc.http_proxy", _proxy_address(proxy)))
    elif is_this_machine(address):
        options.append(("grpc.enable_http_proxy", 0))
    return options


def _proxy_address(proxy: str) -> str:
    full = proxy if "://" in proxy else f"http://{proxy}"
    try:
        parts = urlsplit(full)
        usable = parts.scheme == "http" and bool(parts.hostname) and parts.port is not None
    except ValueError:
        usable = False
    if not usable:  # without quoting it: it may hold a password
        raise ValueError(
            "a proxy is HOST:PORT or http://USER:PASSWORD@HOST:PORT; proxies under https:// are not usable"
        )
    return full


def _channel(address: str, credentials: Any, options: list[tuple[str, Any]]) -> Any:
    if credentials is None:
        return grpc.insecure_channel(address, options)
    return grpc.secure_channel(address, credentials, options)


def _explain(address: str, certificates: Certificates | None, seconds: float, ever: bool, stream: _Stream) -> str:
    if stream.is_second:
        return (
            f"{address} has had another connection under this client's name for {seconds:g} seconds; see whether the "
            "client runs twice, or whether somebody else has its key"
        )
    if ever:
        return f"the server at {address} was gone for {seconds:g} seconds"
    tls = (
        f"whether it has a certificate that {certificates[0]} vouches for, and accepts {certificates[1]}"
        if certificates is not None
        else "whether it speaks TLS and you must name certificates"
    )
    reason = f" (gRPC: {stream.reason})" if stream.reason else ""
    return f"no server at {address} within {seconds:g} seconds; see whether host and port are right and {tls}{reason}"
