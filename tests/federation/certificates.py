"""Certificates for tests: an authority, a server, a client, and an unknown authority with a client of its own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def write_certificates(folder: Path) -> dict[str, Path]:
    """PEM files by name: certificates, and for each "X" that is no authority "X" + "_key" (the server's is "key")."""
    ours, theirs, server, client, foreign = (ec.generate_private_key(ec.SECP256R1()) for _ in range(5))
    plain = serialization.NoEncryption()
    pem, kind = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    files = {
        "authority": _certificate("ours", "ours", ours, ours, authority=True),
        "stranger": _certificate("theirs", "theirs", theirs, theirs, authority=True),
        "certificate": _certificate("server", "ours", server, ours),
        "key": server.private_bytes(pem, kind, plain),
        "client": _certificate("ward 7", "ours", client, ours),
        "client_key": client.private_bytes(pem, kind, plain),
        "foreign": _certificate("ward 7", "theirs", foreign, theirs),
        "foreign_key": foreign.private_bytes(pem, kind, plain),
    }
    for file, content in files.items():
        (folder / file).write_bytes(content)
    return {file: folder / file for file in files}


def _certificate(whose: str, issuer: str, key: Any, signer: Any, *, authority: bool = False) -> bytes:
    now = datetime.now(UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(_name(whose))
        .issuer_name(_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(signer, hashes.SHA256())
    )
    return built.public_bytes(serialization.Encoding.PEM)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
