"""Addresses of servers: HOST:PORT, and whether one is on this machine."""

from __future__ import annotations

from contextlib import suppress
from ipaddress import ip_address


def split_address(address: str) -> tuple[str, int]:
    """The host and the port of HOST:PORT; a host that is an IPv6 address stands in brackets."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or "/" in host or not port.isascii() or not port.isdigit() or not 0 < int(port) <= 65535:
        raise ValueError(f"an address is HOST:PORT, as in localhost:8080, not {address!r}")
    return host.strip("[]"), int(port)


def join_address(host: str, port: int) -> str:
    """HOST:PORT."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_this_machine(address: str) -> bool:
    """Whether a message to an address never leaves the machine."""
    return is_loopback(split_address(address)[0])


def is_loopback(host: str) -> bool:
    """Whether a host is reached from this machine only."""
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"
