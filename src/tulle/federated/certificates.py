"""Certificates of a study: how they are read and checked, and how bytes are signed with their keys.

A client of a study is known by the common name of its certificate. A certificate counts if the study's certification
authority issued it directly, for client authentication alone: a server's certificate is no client's, and a client's is
no server's. All cryptography is that of the package `cryptography`, imported on use.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tulle.federated.messages import check_name
from tulle.files.install_hints import install_hint

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

# A certificate takes about 1 kB. Larger input is not parsed.
_MOST_BYTES = 2**16
_BEGIN = b"-----BEGIN CERTIFICATE-----"
_FEWEST_RSA_BITS = 2048
_CURVES = {"secp256r1": "SHA256", "secp384r1": "SHA384"}
_HASHES = ("sha256", "sha384", "sha512")


def import_cryptography() -> tuple[Any, Any, Any]:
    """The modules `x509`, `hashes` and `serialization`; an `ImportError` that says what to install without them."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
    except ImportError as error:
        raise ImportError(
            f"certificates need the package cryptography: {install_hint('federated')}", name=error.name
        ) from error
    return x509, hashes, serialization


def read_certificate(content: bytes) -> Certificate:
    """The one certificate in some bytes.

    Parameters
    ----------
    content : bytes
        In PEM or DER format, at most 65,536 bytes.

    Returns
    -------
    cryptography.x509.Certificate

    Raises
    ------
    ValueError
        The bytes hold no certificate, or several.
    """
    x509, _, _ = import_cryptography()
    if len(content) > _MOST_BYTES:
        raise ValueError(f"a certificate has at most {_MOST_BYTES:,} bytes, got {len(content):,}")
    n_blocks = content.count(_BEGIN)
    if n_blocks > 1:
        raise ValueError("the file has several certificates; pass one with the certificate alone")
    try:
        if n_blocks:
            return x509.load_pem_x509_certificate(content)
        return x509.load_der_x509_certificate(content)
    except Exception as error:  # of several classes, with texts for those who know the format
        raise ValueError("no certificate in PEM or DER format can be read") from error


def read_private_key(content: bytes) -> Any:
    """The private key in the bytes of a PEM file that is not encrypted; raises ValueError otherwise."""
    _, _, serialization = import_cryptography()
    try:
        return serialization.load_pem_private_key(content, password=None)
    except Exception as error:  # of several classes; their texts must not quote a secret
        raise ValueError("no private key in PEM format, without a passphrase, can be read") from error


def fingerprint(certificate: Certificate) -> str:
    """The SHA-256 hash of a certificate in DER format, 64 hexadecimal digits.

    The same as ``openssl x509 -in FILE -outform DER | sha256sum``.
    """
    _, _, serialization = import_cryptography()
    return hashlib.sha256(certificate.public_bytes(serialization.Encoding.DER)).hexdigest()


def certified_name(certificate: Certificate) -> str:
    """The name of a client: the only common name in the subject of its certificate.

    Raises
    ------
    ValueError
        There is no common name, or several, or it is none that a client may have.
    """
    x509, _, _ = import_cryptography()
    found: list[Any]
    try:
        found = [one.value for one in certificate.subject.get_attributes_for_oid(x509.oid.NameOID.COMMON_NAME)]
    except Exception as error:
        raise ValueError("the subject of the certificate cannot be read") from error
    if len(found) != 1:
        raise ValueError(f"the certificate of a client has one common name, this one has {len(found)}")
    return check_name(found[0])


def check_certificate(
    certificate: Certificate, authority: Certificate, name: str | None = None, now: datetime | None = None
) -> str:
    """Check that a certificate is that of a client of a study.

    Parameters
    ----------
    certificate : cryptography.x509.Certificate
    authority : cryptography.x509.Certificate
        Of the study's certification authority, which must have issued `certificate` itself.
    name : str or None, default=None
        The client's name, which must be the certificate's common name; None accepts any.
    now : datetime or None, default=None
        With a time zone; None is the present time. Both certificates must be valid then.

    Returns
    -------
    str
        The client's name.

    Raises
    ------
    ValueError
        The certificate is not that client's; the message says why.
    """
    x509, _, _ = import_cryptography()
    now = datetime.now(UTC) if now is None else now
    uses = x509.oid.ExtendedKeyUsageOID
    issuer = _extensions(authority, "the authority's certificate")
    basic = issuer.get(x509.BasicConstraints)
    usage = issuer.get(x509.KeyUsage)
    if basic is None or not basic.ca or (usage is not None and not usage.key_cert_sign):
        raise ValueError("the authority's certificate is none of a certification authority")
    _check_times(authority, now, "the authority's certificate")
    own = _extensions(certificate, "the certificate")
    found = certified_name(certificate)
    if name is not None and found != name:
        raise ValueError(f"the certificate is that of {found!r}, not of {name!r}")
    try:
        certificate.verify_directly_issued_by(authority)
        hashed = certificate.signature_hash_algorithm
    except Exception as error:  # a wrong signature, another issuer, a kind of key that is not known
        raise ValueError(f"the certificate of {found!r} was not issued by this study's authority") from error
    if hashed is not None and hashed.name not in _HASHES:
        raise ValueError(f"the certificate of {found!r} is signed with {hashed.name}; use SHA-256, SHA-384 or SHA-512")
    _check_times(certificate, now, f"the certificate of {found!r}")
    basic, usage, extended = (own.get(kind) for kind in (x509.BasicConstraints, x509.KeyUsage, x509.ExtendedKeyUsage))
    if basic is not None and basic.ca:
        raise ValueError(f"the certificate of {found!r} is that of an authority, and not a client's")
    stated = () if extended is None else tuple(extended)  # without any, TLS would accept it for every use
    if uses.CLIENT_AUTH not in stated:
        raise ValueError(f"the certificate of {found!r} is not for client authentication (extended key usage)")
    if uses.SERVER_AUTH in stated or uses.ANY_EXTENDED_KEY_USAGE in stated:
        raise ValueError(f"the certificate of {found!r} could also be a server's (extended key usage); issue two")
    if usage is not None and not usage.digital_signature:
        raise ValueError(f"the key of {found!r} is not for digital signatures (key usage)")
    _signature_settings(_public_key(certificate))
    return found


def sign(private_key: Any, data: bytes) -> bytes:
    """Sign bytes with the key of a certificate.

    Parameters
    ----------
    private_key : private key of cryptography
        ECDSA on P-256 or P-384, RSA of 2,048 bits or more (signed with PSS), or Ed25519.
    data : bytes

    Returns
    -------
    bytes
    """
    return bytes(private_key.sign(data, *_signature_settings(private_key.public_key())))


def verify_signature(certificate: Certificate, data: bytes, signature: bytes) -> None:
    """Raise ValueError unless the key of a certificate signed these bytes. The certificate itself is not checked."""
    key = _public_key(certificate)
    settings = _signature_settings(key)
    try:
        key.verify(signature, data, *settings)
    except Exception as error:
        raise ValueError("the signature is not that of the certificate's key over these bytes") from error


def _signature_settings(key: Any) -> tuple[Any, ...]:
    """What signatures of a public key are made and verified with; raises ValueError for keys that are not accepted."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa

    _, hashes, _ = import_cryptography()
    if isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name in _CURVES:
        return (ec.ECDSA(getattr(hashes, _CURVES[key.curve.name])()),)
    if isinstance(key, rsa.RSAPublicKey) and key.key_size >= _FEWEST_RSA_BITS:
        digest = hashes.SHA256()
        return padding.PSS(padding.MGF1(digest), salt_length=digest.digest_size), digest
    if isinstance(key, ed25519.Ed25519PublicKey):
        return ()
    raise ValueError(
        f"a key of this kind is not accepted; use ECDSA on P-256 or P-384, RSA of at least {_FEWEST_RSA_BITS:,} bits, "
        "or Ed25519"
    )


def _public_key(certificate: Certificate) -> Any:
    try:
        return certificate.public_key()
    except Exception as error:  # of a kind that is not known, or malformed
        raise ValueError("the key of the certificate cannot be read") from error


def _check_times(certificate: Certificate, now: datetime, which: str) -> None:
    if now < certificate.not_valid_before_utc:
        raise ValueError(f"{which} is valid from {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC only")
    if now > certificate.not_valid_after_utc:
        raise ValueError(f"{which} expired at {certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC; issue a new one")


def _extensions(certificate: Certificate, which: str) -> dict[Any, Any]:
    """Extensions by class. An unknown critical extension may restrict the certificate, so it is refused."""
    x509, _, _ = import_cryptography()
    known = (x509.BasicConstraints, x509.KeyUsage, x509.ExtendedKeyUsage, x509.SubjectAlternativeName)
    try:
        found = list(certificate.extensions)
    except Exception as error:  # malformed, or one of them twice
        raise ValueError(f"the extensions of {which} cannot be read") from error
    for one in found:
        if one.critical and not isinstance(one.value, known):
            raise ValueError(f"{which} has a critical extension that is not known here: {one.oid.dotted_string}")
    return {type(one.value): one.value for one in found}
