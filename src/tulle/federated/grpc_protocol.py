"""What server and clients say to each other over gRPC (extra `federated`): one stream of messages in each direction.

A client opens the stream. The server greets it, then sends questions; the client sends one answer to each. A message is
8 bytes, the number of its question, then bytes that are not known here. Number 0 is for the two messages of the
connection itself, the greeting and the goodbye. There is no protobuf, and no message holds code.
"""

from __future__ import annotations

import os
from pathlib import Path

from tulle.federated.encoding import MOST_BYTES
from tulle.files.install_hints import install_hint

try:
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # failures are reported here, in our words
    import grpc
except ImportError as error:
    raise ImportError(
        f"clients on other machines need gRPC: {install_hint('federated')} ({error})", name=error.name
    ) from None

__all__ = [
    "GOODBYE",
    "GREETING",
    "JOIN",
    "LIMITS",
    "METHOD",
    "SERVICE",
    "Certificates",
    "grpc",
    "keep_alive",
    "pack",
    "unpack",
]

SERVICE, METHOD = "tulle.Study", "Join"
JOIN = f"/{SERVICE}/{METHOD}"

# PEM files: the certificate of the study's authority, the own certificate, and its private key.
Certificates = tuple[str | Path, str | Path, str | Path]

_HEADER = 8

LIMITS = (
    ("grpc.max_send_message_length", MOST_BYTES + _HEADER),
    ("grpc.max_receive_message_length", MOST_BYTES + _HEADER),
)


def keep_alive(every_ms: int, timeout_ms: int) -> tuple[tuple[str, int], ...]:
    """Options with which a machine that vanished is noticed, and idle connections stay open through proxies."""
    return (
        ("grpc.keepalive_time_ms", every_ms),
        ("grpc.keepalive_timeout_ms", timeout_ms),
        ("grpc.http2.ping_timeout_ms", timeout_ms),  # of pings, 60 seconds unless it is set
        ("grpc.http2.max_pings_without_data", 0),
    )


def pack(number: int, message: bytes) -> bytes:
    """A message with the number of its question."""
    return number.to_bytes(_HEADER, "big") + message


def unpack(raw: bytes) -> tuple[int, bytes] | None:
    """The number of the question, and the message; None if the bytes are too short to be one."""
    return None if len(raw) < _HEADER else (int.from_bytes(raw[:_HEADER], "big"), raw[_HEADER:])


# The version of the protocol is in the greeting: another one is reported, not guessed.
GREETING, GOODBYE = pack(0, b"tulle study 1"), pack(0, b"goodbye")
