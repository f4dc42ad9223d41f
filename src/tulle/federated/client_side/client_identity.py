"""A client's certificate and key, and the certificate authority that it trusts to certify the others."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tulle.federated.certificates import check_certificate, fingerprint, read_certificate, read_private_key, sign


@dataclass(frozen=True, eq=False, repr=False)
class ClientIdentity:
    """Who a client is, by its certificate.

    Attributes
    ----------
    name : str
        The common name of the certificate.
    certificate, authority : cryptography.x509.Certificate
        Its own, and that of the study's certificate authority.
    key : private key
        Of its own certificate. Signs its seat in a study.
    """

    name: str
    certificate: Any
    authority: Any
    key: Any

    @classmethod
    def read(cls, name: str, certificate: str | Path, key: str | Path, authority: str | Path) -> ClientIdentity:
        """From files in PEM format.

        Raises
        ------
        ValueError
            Where the certificate is not one of the authority for a client of this name.
        """
        own, trusted = (read_certificate(Path(path).read_bytes()) for path in (certificate, authority))
        check_certificate(own, trusted, name)
        return cls(name, own, trusted, read_private_key(Path(key).read_bytes()))

    @property
    def certificate_der(self) -> bytes:
        from cryptography.hazmat.primitives.serialization import Encoding

        return bytes(self.certificate.public_bytes(Encoding.DER))

    @property
    def authority_fingerprint(self) -> str:
        return fingerprint(self.authority)

    def sign(self, data: bytes) -> bytes:
        return sign(self.key, data)
