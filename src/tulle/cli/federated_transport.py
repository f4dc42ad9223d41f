"""How server and clients of a study connect: gRPC with certificates, which is the default, or a Flower SuperLink."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tulle.cli.outcome import UserError

if TYPE_CHECKING:
    from tulle.federated.client_side.client_identity import ClientIdentity
    from tulle.federated.link import Answer
    from tulle.federated.server_side.flower import FlowerLink
    from tulle.federated.server_side.grpc_link import GrpcLink

_PEM = "--tls-ca, --tls-certificate and --tls-key"


def _add_common_arguments(group: argparse._ArgumentGroup, whose: str) -> None:
    group.add_argument(
        "--transport",
        choices=("grpc", "flower"),
        default="grpc",
        help="grpc (default): a connection to the server, with certificates; flower: both use a Flower SuperLink",
    )
    group.add_argument("--tls-ca", metavar="FILE", help="certificate of the study's authority, PEM")
    group.add_argument("--tls-certificate", metavar="FILE", help=f"{whose} certificate, PEM")
    group.add_argument("--tls-key", metavar="FILE", help=f"{whose} private key, PEM")
    group.add_argument(
        "--insecure", action="store_true", help="connect other machines without certificates, as within a VPN"
    )


def add_link_arguments(group: argparse._ArgumentGroup) -> None:
    """Options of a server."""
    group.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="HOST",
        help="default 127.0.0.1: this machine only; 0.0.0.0: all interfaces",
    )
    group.add_argument("--port", type=int, default=8080, metavar="P", help="default 8080; 0: any free port")
    _add_common_arguments(group, "this server's")
    group.add_argument(
        "--superlink", metavar="HOST:PORT", help="with --transport flower: the SuperLink (default 127.0.0.1:8000)"
    )
    group.add_argument(
        "--superlink-secret", metavar="FILE", help="with --transport flower: its --superexec-auth-secret-file"
    )


def add_connection_arguments(group: argparse._ArgumentGroup) -> None:
    """Options of a client."""
    group.add_argument(
        "--name",
        metavar="NAME",
        help="this client's name at the server; with --tls-certificate that of the certificate",
    )
    group.add_argument(
        "--server", required=True, metavar="HOST:PORT", help="address of the server, or of the SuperLink"
    )
    _add_common_arguments(group, "this client's")
    group.add_argument("--server-name", metavar="HOST", help="the host in the server's certificate (default: --server)")
    group.add_argument(
        "--proxy",
        metavar="HOST:PORT",
        help="HTTP proxy to connect through (default: the environment variables https_proxy and no_proxy)",
    )
    group.add_argument("--node-key", metavar="FILE", help="with --transport flower: this node's key, OpenSSH")


def key_files(arguments: argparse.Namespace) -> tuple[str | None, ...]:
    """The files of certificates and keys, which no output may replace."""
    return arguments.tls_ca, arguments.tls_certificate, arguments.tls_key


def open_link(arguments: argparse.Namespace) -> GrpcLink | FlowerLink:
    """The link of a server, which `with` opens."""
    from tulle.federated.server_addresses import is_loopback, is_this_machine

    _check(arguments, ("tls_certificate", "tls_key"), ("superlink", "superlink_secret"))
    if arguments.transport == "flower":
        from tulle.federated.server_side.flower import FlowerLink

        address = arguments.superlink or "127.0.0.1:8000"
        _check_exposure(arguments, is_this_machine(address))
        return FlowerLink(address, certificate=arguments.tls_ca, secret=arguments.superlink_secret)
    from tulle.federated.server_side.grpc_link import GrpcLink

    _check_exposure(arguments, is_loopback(arguments.host))
    return GrpcLink(arguments.host, arguments.port, certificates=_certificates(arguments), insecure=arguments.insecure)


def describe_link(arguments: argparse.Namespace, address: str) -> str:
    """Where a server is reached, and by whom."""
    from tulle.federated.server_addresses import is_this_machine

    if arguments.transport == "flower":
        return f"runs a study at the SuperLink {address}"
    if is_this_machine(address):
        return f"listening at {address} (this machine only; --host 0.0.0.0 accepts other machines)"
    if arguments.tls_ca:
        return f"listening at {address}"
    return (
        f"listening at {address}, without TLS: anyone on the network path can read what clients send, and can "
        "impersonate the server and every client"
    )


def client_name(arguments: argparse.Namespace) -> str:
    """The name of a client: that of its certificate, where it has one."""
    from tulle.federated.server_addresses import is_this_machine

    _check(arguments, ("tls_certificate", "tls_key", "server_name", "proxy"), ("node_key",))
    _check_exposure(arguments, is_this_machine(arguments.server))
    name: str | None = arguments.name
    if arguments.transport == "grpc" and (files := _certificates(arguments)) is not None:
        from tulle.federated.certificates import check_certificate, read_certificate

        authority, own = (read_certificate(Path(file).read_bytes()) for file in files[:2])
        proved = check_certificate(own, authority)
        if name not in (None, proved):
            raise UserError(f"--name is {name!r}, but the certificate is that of {proved!r}; omit --name")
        return proved
    if name is None:
        raise UserError("pass --name NAME, or the certificate that has it: --tls-certificate FILE")
    return name


def read_identity(arguments: argparse.Namespace, name: str) -> ClientIdentity | None:
    """A client's certificate and key, for studies of masked sums; None without them."""
    from tulle.federated.client_side.client_identity import ClientIdentity

    files = arguments.tls_ca, arguments.tls_certificate, arguments.tls_key
    if None in files:
        return None
    authority, certificate, key = files
    return ClientIdentity.read(name, certificate, key, authority)


def connect_client(arguments: argparse.Namespace, answer: Answer, told: Callable[[str], None]) -> None:
    """Answer the server until it says goodbye."""
    usual = {"retry_seconds": arguments.retry_seconds, "forever": arguments.forever, "told": told}
    if arguments.transport == "flower":
        from tulle.federated.server_side import flower

        flower.connect(arguments.server, answer, certificate=arguments.tls_ca, node_key=arguments.node_key, **usual)
        return
    from tulle.federated.client_side import grpc_connection

    grpc_connection.connect(
        arguments.server,
        answer,
        certificates=_certificates(arguments),
        server_name=arguments.server_name,
        proxy=arguments.proxy,
        insecure=arguments.insecure,
        **usual,
    )


def _check(arguments: argparse.Namespace, of_grpc: tuple[str, ...], of_flower: tuple[str, ...]) -> None:
    """Options of the other transport are refused, not ignored; a missing package is reported before files are read."""
    if arguments.transport == "flower":
        import tulle.federated.server_side.flower
    else:
        import tulle.federated.grpc_protocol  # noqa: F401

        _certificates(arguments)
    for name in of_grpc if arguments.transport == "flower" else of_flower:
        if getattr(arguments, name) is not None:
            option = name.replace("_", "-")
            raise UserError(f"--{option} cannot be used with --transport {arguments.transport}; omit it")


def _certificates(arguments: argparse.Namespace) -> tuple[str, str, str] | None:
    files = (arguments.tls_ca, arguments.tls_certificate, arguments.tls_key)
    if any(files) and not all(files):
        raise UserError(f"pass all of {_PEM}")
    return files if all(files) else None


def _check_exposure(arguments: argparse.Namespace, is_local: bool) -> None:
    if arguments.tls_ca or arguments.insecure or is_local:
        return
    wanted = f"{_PEM} (tulle federated certificates makes them)"
    raise UserError(
        "messages to and from other machines would be neither encrypted nor authenticated: pass "
        f"{wanted if arguments.transport == 'grpc' else '--tls-ca FILE'}, or --insecure within a VPN"
    )
