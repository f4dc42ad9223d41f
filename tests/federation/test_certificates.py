"""Certificates of a study: what is written, what counts as a client's, and what a signature covers."""

from __future__ import annotations

import stat
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tulle.federated.certificates import (
    certified_name,
    check_certificate,
    fingerprint,
    read_certificate,
    read_private_key,
    sign,
    verify_signature,
)
from tulle.federated.study_authority import make_certificates

CLIENT, SERVER, ANY = (
    ExtendedKeyUsageOID.CLIENT_AUTH,
    ExtendedKeyUsageOID.SERVER_AUTH,
    ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE,
)
_USAGES = (
    "content_commitment key_encipherment data_encipherment key_agreement key_cert_sign crl_sign encipher_only "
    "decipher_only"
)
KEY = ec.generate_private_key(ec.SECP256R1())
NOW = datetime.now(UTC)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study") / "certificates"
    make_certificates(folder, server=["localhost", "127.0.0.1", "::1"], clients=["north", "south"])
    return folder


def read(path: Path) -> Any:
    return read_certificate(path.read_bytes())


def issue(
    study: Path,
    *names: str,
    usages: Any = (CLIENT,),
    key: Any = KEY,
    signs: bool | None = True,
    is_authority: bool = False,
    start: datetime = NOW - timedelta(days=1),
    end: datetime = NOW + timedelta(days=1),
    extra: Any = None,
) -> Any:
    """A certificate of the study's authority in which anything may be wrong."""
    authority = read(study / "authority.pem")
    signer = read_private_key((study / "private" / "authority.key").read_bytes())
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name) for name in names]))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    )
    if usages:
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    if signs is not None:
        usage = x509.KeyUsage(digital_signature=signs, **dict.fromkeys(_USAGES.split(), False))
        builder = builder.add_extension(usage, critical=True)
    if extra is not None:
        builder = builder.add_extension(extra, critical=True)
    return builder.sign(signer, hashes.SHA256())


# --- files -----------------------------------------------------------------------------------------------------------


def test_files_of_a_study(study: Path) -> None:
    """Keys are for their owners alone; each certificate has one use; the server's names all of its hosts."""
    files = {str(path.relative_to(study)): path for path in study.rglob("*") if path.is_file()}
    assert sorted(files) == [
        "authority.pem",
        "clients/north.key",
        "clients/north.pem",
        "clients/south.key",
        "clients/south.pem",
        "private/authority.key",
        "server/server.key",
        "server/server.pem",
    ]
    for name, path in files.items():
        assert stat.S_IMODE(path.stat().st_mode) == (0o600 if name.endswith(".key") else 0o644), name
    assert stat.S_IMODE((study / "private").stat().st_mode) == 0o700
    server, north = read(files["server/server.pem"]), read(files["clients/north.pem"])
    for certificate, use in ((server, SERVER), (north, CLIENT)):
        assert list(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [use]
        assert isinstance(certificate.public_key().curve, ec.SECP256R1)
        assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    hosts = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert hosts.get_values_for_type(x509.DNSName) == ["localhost"]
    assert hosts.get_values_for_type(x509.IPAddress) == [ip_address("127.0.0.1"), ip_address("::1")]
    for kind in ("server/server", "clients/north", "clients/south"):
        key = read_private_key(files[f"{kind}.key"].read_bytes())
        assert key.public_key() == read(files[f"{kind}.pem"]).public_key()
    assert fingerprint(north) == north.fingerprint(hashes.SHA256()).hex()


def test_a_client_is_added_later_and_nothing_is_overwritten(tmp_path: Path) -> None:
    make_certificates(tmp_path, server=["localhost"], clients=["north"], days=30)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    written = make_certificates(tmp_path, clients=["west"], days=365)
    assert sorted(path.name for path in written) == ["west.key", "west.pem"]
    authority, west = read(tmp_path / "authority.pem"), read(tmp_path / "clients" / "west.pem")
    assert check_certificate(west, authority, "west") == "west"
    assert west.not_valid_after_utc == authority.not_valid_after_utc, "no longer than the authority"
    for settings in ({"clients": ["east", "north"]}, {"clients": ["east"], "server": ["localhost"]}):
        with pytest.raises(ValueError, match="exists and is not overwritten"):
            make_certificates(tmp_path, **settings)
    assert not (tmp_path / "clients" / "east.key").exists(), "nothing is written where one file is refused"
    assert all(path.read_bytes() == content for path, content in before.items())
    (tmp_path / "private" / "authority.key").rename(tmp_path / "safe.key")
    with pytest.raises(ValueError, match=r"but not private/authority\.key, which signs certificates"):
        make_certificates(tmp_path, clients=["east"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "name the hosts of the server, or clients"),
        ({"clients": ["../north"]}, "at most 64 letters, digits"),
        ({"clients": ["a/b"]}, "at most 64 letters, digits"),
        ({"clients": ["x" * 65]}, "at most 64 letters, digits"),
        ({"clients": [" north"]}, "printable characters without spaces"),
        ({"clients": ["north", "north"]}, "named twice"),
        ({"server": ["http://host"]}, "a name such as study.example.org"),
        ({"server": ["host:443"]}, "a name such as study.example.org"),
        ({"clients": ["north"], "days": 0}, "days must be"),
    ],
)
def test_wrong_names_are_told(tmp_path: Path, settings: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_certificates(tmp_path / "new", **settings)
    assert not (tmp_path / "new").exists()


# --- what counts as a client's certificate ---------------------------------------------------------------------------


def test_a_clients_certificate_counts(study: Path) -> None:
    authority, north = read(study / "authority.pem"), read(study / "clients" / "north.pem")
    assert check_certificate(north, authority, "north") == check_certificate(north, authority) == "north"
    assert certified_name(north) == "north"
    der = read_certificate(north.public_bytes(serialization.Encoding.DER))
    assert fingerprint(der) == fingerprint(north)
    assert check_certificate(issue(study, "ward 7", signs=None), authority, "ward 7") == "ward 7"


def test_the_server_is_no_client(study: Path) -> None:
    with pytest.raises(ValueError, match="not for client authentication"):
        check_certificate(read(study / "server" / "server.pem"), read(study / "authority.pem"))


def test_the_name_must_agree(study: Path) -> None:
    with pytest.raises(ValueError, match="the certificate is that of 'north', not of 'south'"):
        check_certificate(read(study / "clients" / "north.pem"), read(study / "authority.pem"), "south")


def test_another_authority_does_not_count(study: Path, tmp_path: Path) -> None:
    """Neither one with another name, nor one with the same name and another key, nor a client as an authority."""
    authority = read(study / "authority.pem")
    make_certificates(tmp_path, clients=["north"])
    with pytest.raises(ValueError, match="not issued by this study's authority"):
        check_certificate(read(tmp_path / "clients" / "north.pem"), authority, "north")
    key = ec.generate_private_key(ec.SECP256R1())
    forged = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "north")]))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW - timedelta(days=1))
        .not_valid_after(NOW + timedelta(days=1))
        .add_extension(x509.ExtendedKeyUsage([CLIENT]), critical=False)
        .sign(key, hashes.SHA256())
    )
    with pytest.raises(ValueError, match="not issued by this study's authority"):
        check_certificate(forged, authority, "north")
    north = read(study / "clients" / "north.pem")
    with pytest.raises(ValueError, match="none of a certification authority"):
        check_certificate(north, north, "north")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"usages": ()}, "not for client authentication"),
        ({"usages": (SERVER,)}, "not for client authentication"),
        ({"usages": (CLIENT, SERVER)}, "could also be a server's"),
        ({"usages": (CLIENT, ANY)}, "could also be a server's"),
        ({"signs": False}, "not for digital signatures"),
        ({"is_authority": True}, "is that of an authority"),
        ({"end": NOW - timedelta(hours=1)}, "expired at"),
        ({"start": NOW + timedelta(hours=1)}, "is valid from"),
        ({"key": rsa.generate_private_key(65537, 1024)}, "a key of this kind is not accepted"),
        ({"key": ec.generate_private_key(ec.SECP521R1())}, "a key of this kind is not accepted"),
        ({"extra": x509.PolicyConstraints(0, None)}, r"critical extension that is not known here: 2\.5\.29\.36"),
    ],
)
def test_what_is_wrong_with_a_certificate_is_told(study: Path, settings: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_certificate(issue(study, "north", **settings), read(study / "authority.pem"), "north")


def test_one_common_name(study: Path) -> None:
    authority = read(study / "authority.pem")
    for names in ((), ("north", "south")):
        with pytest.raises(ValueError, match="has one common name, this one has"):
            check_certificate(issue(study, *names), authority)
    with pytest.raises(ValueError, match="printable"):
        check_certificate(issue(study, "north\n"), authority)


def test_an_expired_authority_vouches_for_nobody(study: Path) -> None:
    authority = read(study / "authority.pem")
    north = read(study / "clients" / "north.pem")
    with pytest.raises(ValueError, match="authority's certificate expired"):
        check_certificate(north, authority, "north", now=NOW + timedelta(days=366))


def test_what_is_no_certificate_is_told(study: Path) -> None:
    one = (study / "authority.pem").read_bytes()
    with pytest.raises(ValueError, match="several certificates"):
        read_certificate(one + one)
    for content in (b"", b"x", one[:-40], b"0" * 70_000):
        with pytest.raises(ValueError, match=r"no certificate in PEM|at most 65,536 bytes"):
            read_certificate(content)
    with pytest.raises(ValueError, match="no private key"):
        read_private_key(one)


# --- signatures ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key",
    [
        KEY,
        ec.generate_private_key(ec.SECP384R1()),
        rsa.generate_private_key(65537, 2048),
        ed25519.Ed25519PrivateKey.generate(),
    ],
    ids=["P-256", "P-384", "RSA", "Ed25519"],
)
def test_signatures_cover_every_bit(study: Path, key: Any) -> None:
    certificate = issue(study, "north", key=key)
    check_certificate(certificate, read(study / "authority.pem"), "north")
    data = b"round 7: a public key"
    signature = sign(key, data)
    verify_signature(certificate, data, signature)
    other = issue(study, "north", key=ec.generate_private_key(ec.SECP256R1()))
    changed = bytes([signature[0] ^ 1]) + signature[1:]
    for wrong in ((certificate, data + b".", signature), (certificate, data, changed), (other, data, signature)):
        with pytest.raises(ValueError, match="not that of the certificate's key"):
            verify_signature(*wrong)
    with pytest.raises(ValueError, match="not that of the certificate's key"):
        verify_signature(certificate, data, b"")


def test_weak_keys_do_not_sign() -> None:
    with pytest.raises(ValueError, match="a key of this kind is not accepted"):
        sign(rsa.generate_private_key(65537, 1024), b"x")
