"""The certification authority of a study, for people who have none: keys and certificates as files in a folder.

    FOLDER/authority.pem             for the server and every client
    FOLDER/private/authority.key     signs certificates; stays with the person who issues them
    FOLDER/server/server.pem, .key   for the server
    FOLDER/clients/NAME.pem, .key    for the client NAME

Keys are ECDSA on P-256, in files that only their owner can read. No file is ever overwritten.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from tulle.federated.certificates import import_cryptography, read_certificate, read_private_key
from tulle.federated.messages import check_name
from tulle.files.claimed_names import claim_name

AUTHORITY, AUTHORITY_KEY = "authority.pem", "private/authority.key"
SERVER, SERVER_KEY = "server/server.pem", "server/server.key"

# X.509 has no longer common names.
_LONGEST_NAME = 64
# Names become names of files, on any system.
_FILE_NAME = re.compile(r"\w[\w .@+-]*")
# The clocks of the machines may differ by so much.
_CLOCKS = timedelta(hours=1)


def client_files(name: str) -> tuple[str, str]:
    """Where in the folder a client's certificate and its key are."""
    return f"clients/{name}.pem", f"clients/{name}.key"


def make_certificates(
    folder: str | os.PathLike[str], *, server: Sequence[str] = (), clients: Sequence[str] = (), days: int = 365
) -> tuple[Path, ...]:
    """Write certificates of a study, and create its authority where the folder has none.

    Parameters
    ----------
    folder : path
        Made where it is missing.
    server : sequence of str, default=()
        Host names and IP addresses under which clients reach the server; () makes no certificate of the server.
    clients : sequence of str, default=()
        Names of clients, of at most 64 characters: letters, digits, spaces and ``. _ @ + -``.
    days : int, default=365
        How long the certificates are valid, at least 1; none is valid for longer than its authority.

    Returns
    -------
    tuple of Path
        The files that were written.

    Raises
    ------
    ValueError
        A name cannot be one, or a file exists; then nothing was written.
    """
    if not (type(days) is int and 1 <= days <= 36_500):
        raise ValueError(f"days must be an integer from 1 to 36,500, got {days!r}")
    if not server and not clients:
        raise ValueError("name the hosts of the server, or clients, to make certificates for")
    x509, _, _ = import_cryptography()
    root = Path(folder)
    hosts = [_host(text, x509) for text in server]
    names = [_checked_name(name) for name in clients]
    if len(set(names)) < len(names):
        raise ValueError("a client is named twice")
    wanted = [*([SERVER, SERVER_KEY] if hosts else []), *(file for name in names for file in client_files(name))]
    is_new = not os.path.lexists(root / AUTHORITY)
    for file in [*wanted, *([AUTHORITY_KEY] if is_new else [])]:
        if os.path.lexists(root / file):
            raise ValueError(f"{root / file} exists and is not overwritten; move it away first, or choose another name")
    written: list[Path] = []
    authority, signer = _create_authority(root, days, written) if is_new else _read_authority(root)
    if hosts:
        subject, usage = _common_name(server[0][:_LONGEST_NAME]), x509.oid.ExtendedKeyUsageOID.SERVER_AUTH
        _issue(root, (SERVER, SERVER_KEY), subject, usage, hosts, authority, signer, days, written)
    for name in names:
        usage = x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH
        _issue(root, client_files(name), _common_name(name), usage, [], authority, signer, days, written)
    return tuple(written)


def _checked_name(name: str) -> str:
    check_name(name)
    if len(name) > _LONGEST_NAME or not _FILE_NAME.fullmatch(name) or name.endswith("."):
        raise ValueError(
            f"a client's name in a certificate is at most {_LONGEST_NAME} letters, digits, spaces and . _ @ + -, and "
            f"starts with a letter or digit, got {name!r}"
        )
    return name


def _host(text: str, x509: Any) -> Any:
    """A host of the server, as an alternative name of its certificate."""
    try:
        return x509.IPAddress(ip_address(text.strip("[]")))
    except ValueError:
        pass
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?", text):
        raise ValueError(f"the server's host is a name such as study.example.org or an IP address, got {text!r}")
    return x509.DNSName(text)


def _create_authority(root: Path, days: int, written: list[Path]) -> tuple[Any, Any]:
    from cryptography.hazmat.primitives.asymmetric import ec

    x509, hashes, serialization = import_cryptography()
    key = ec.generate_private_key(ec.SECP256R1())
    # A name of its own: the authorities of two studies can be told apart.
    subject = _common_name(f"tulle study {secrets.token_hex(4)}")
    usage = _key_usage(key_cert_sign=True, crl_sign=True)
    now = datetime.now(UTC)
    certificate = (
        _builder(subject, subject, key.public_key(), now, now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    root.mkdir(parents=True, exist_ok=True)
    (root / AUTHORITY_KEY).parent.mkdir(mode=0o700, exist_ok=True)
    # The certificate last: where it is, the authority is complete.
    _write(root / AUTHORITY_KEY, _key_bytes(key), 0o600, written)
    _write(root / AUTHORITY, certificate.public_bytes(serialization.Encoding.PEM), 0o644, written)
    return certificate, key


def _read_authority(root: Path) -> tuple[Any, Any]:
    if not (root / AUTHORITY_KEY).exists():
        raise ValueError(
            f"{root / AUTHORITY} is there, but not {AUTHORITY_KEY}, which signs certificates; put it back while you "
            "issue them"
        )
    authority = read_certificate((root / AUTHORITY).read_bytes())
    key = read_private_key((root / AUTHORITY_KEY).read_bytes())
    if key.public_key() != authority.public_key():
        raise ValueError(f"{root / AUTHORITY_KEY} is not the key of {root / AUTHORITY}")
    if authority.not_valid_after_utc <= datetime.now(UTC):
        raise ValueError(f"{root / AUTHORITY} has expired; make certificates in a new folder")
    return authority, key


def _issue(
    root: Path,
    files: tuple[str, str],
    subject: Any,
    usage: Any,
    hosts: list[Any],
    authority: Any,
    signer: Any,
    days: int,
    written: list[Path],
) -> None:
    """Write the certificate of a server or a client, and its key."""
    from cryptography.hazmat.primitives.asymmetric import ec

    x509, hashes, serialization = import_cryptography()
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    end = min(now + timedelta(days=days), authority.not_valid_after_utc)
    builder = (
        _builder(subject, authority.subject, key.public_key(), now, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(digital_signature=True), critical=True)
        # One use alone: a client's certificate cannot pass for the server's, nor the reverse.
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
    certificate = builder.sign(signer, hashes.SHA256())
    place, place_of_key = (root / file for file in files)
    place.parent.mkdir(mode=0o700, exist_ok=True)
    _write(place_of_key, _key_bytes(key), 0o600, written)
    _write(place, certificate.public_bytes(serialization.Encoding.PEM), 0o644, written)


def _builder(subject: Any, issuer: Any, key: Any, start: datetime, end: datetime) -> Any:
    x509, _, _ = import_cryptography()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start - _CLOCKS)
        .not_valid_after(end)
    )


def _key_usage(**allowed: bool) -> Any:
    x509, _, _ = import_cryptography()
    names = (
        "digital_signature content_commitment key_encipherment data_encipherment key_agreement key_cert_sign crl_sign "
        "encipher_only decipher_only"
    )
    return x509.KeyUsage(**{name: allowed.get(name, False) for name in names.split()})


def _common_name(text: str) -> Any:
    x509, _, _ = import_cryptography()
    return x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, text)])


def _key_bytes(key: Any) -> bytes:
    _, _, serialization = import_cryptography()
    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return bytes(key.private_bytes(serialization.Encoding.PEM, form, plain))


def _write(place: Path, content: bytes, mode: int, written: list[Path]) -> None:
    if not claim_name(place.parent, place.name, content, mode):
        raise ValueError(f"{place} was created by another process at the same time; choose another name")
    written.append(place)
