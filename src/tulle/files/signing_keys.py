"""Ed25519 keys in PEM files: created, read, and named by their fingerprints.

All cryptography is that of the package `cryptography`, imported on use. A private key is a PKCS8 file that only its
owner can read, encrypted if a passphrase is given; the public key is in a second file, NAME.pub.
"""

from __future__ import annotations

import hashlib
import os
import stat
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tulle.files.claimed_names import claim_name
from tulle.files.install_hints import install_hint

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

PUBLIC_SUFFIX = ".pub"
_IN_FOLDERS = (PUBLIC_SUFFIX, ".pem")
_END = b"-----END PUBLIC KEY-----"
# A key takes about 120 bytes. Larger files are not read into memory.
_MOST_BYTES = 2**20


class PassphraseError(ValueError):
    """A private key is encrypted, and the passphrase is missing or wrong."""


def _import_cryptography() -> tuple[Any, Any]:
    """The modules for Ed25519 and for PEM files; an `ImportError` that says what to install where they are missing."""
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise ImportError(
            f"signatures need the package cryptography: {install_hint('signing')}", name=error.name
        ) from error
    return ed25519, serialization


def compute_fingerprint(key: Ed25519PublicKey) -> str:
    """The SHA-256 hash, in hexadecimal digits, of a public key in DER form (SubjectPublicKeyInfo).

    The same as ``openssl pkey -pubin -in KEY.pub -outform DER | sha256sum``.
    """
    _, serialization = _import_cryptography()
    der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()


def generate_key(path: str | os.PathLike[str], passphrase: str | None = None) -> str:
    """Create a pair of keys. No existing file is overwritten.

    Parameters
    ----------
    path : path
        File for the private key, with permissions 0600. The public key is written to the same name with ".pub" added.
    passphrase : str or None, default=None
        Encrypts the private key; at least one character. None leaves it unencrypted.

    Returns
    -------
    str
        The fingerprint of the public key, 64 hexadecimal digits.
    """
    ed25519, serialization = _import_cryptography()
    if passphrase == "":
        raise PassphraseError("the passphrase is empty; choose one, or pass None for a key that is not encrypted")
    private, public = Path(path), Path(f"{os.fspath(path)}{PUBLIC_SUFFIX}")
    for place in (private, public):
        if os.path.lexists(place):
            raise ValueError(
                f"{place} exists and is not overwritten: it may be the only copy of a key; choose another name"
            )
    key = ed25519.Ed25519PrivateKey.generate()
    protection = (
        serialization.NoEncryption()
        if passphrase is None
        else serialization.BestAvailableEncryption(passphrase.encode())
    )
    secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, protection)
    shown = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    # The public key first: a private key without it would look complete.
    for place, content, mode in ((public, shown, 0o644), (private, secret, 0o600)):
        if not claim_name(place.parent, place.name, content, mode):
            raise ValueError(f"{place} was created by another process at the same time; choose another name")
    return compute_fingerprint(key.public_key())


def read_private_key(path: str | os.PathLike[str], passphrase: str | None = None) -> Ed25519PrivateKey:
    """The private key in a PEM file.

    Parameters
    ----------
    path : path
    passphrase : str or None, default=None
        Of an encrypted key. It is ignored if the key is not encrypted.
    """
    ed25519, serialization = _import_cryptography()
    name, content = os.fspath(path), _read_small(path)
    if b"-----BEGIN PUBLIC KEY-----" in content:
        raise ValueError(f"{name} is a public key; sign with the private key, whose name has no {PUBLIC_SUFFIX}")
    encrypted = b"-----BEGIN ENCRYPTED PRIVATE KEY-----" in content
    if encrypted and passphrase is None:
        raise PassphraseError(f"{name} is encrypted; give its passphrase")
    try:
        key = serialization.load_pem_private_key(content, passphrase.encode() if encrypted and passphrase else None)
    except Exception:  # the library has several types for damage, and its messages are about its own calls
        if encrypted:
            raise PassphraseError(
                f"{name} cannot be decrypted: the passphrase is wrong, or the file is damaged"
            ) from None
        raise ValueError(f"{name} is not a private key in PEM form; create one with tulle keygen") from None
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise ValueError(f"{name} is not an Ed25519 key; create one with tulle keygen")
    if os.name == "posix" and stat.S_IMODE(os.stat(path).st_mode) & 0o077:
        warnings.warn(f"other users may read the private key {name}; run chmod 600 {name}", UserWarning, stacklevel=2)
    return key


def read_public_keys(paths: Iterable[str | os.PathLike[str]]) -> dict[str, Ed25519PublicKey]:
    """Trusted public keys, by fingerprint.

    Parameters
    ----------
    paths : iterable of paths
        PEM files with one or more public keys, or folders of files that end in ".pub" or ".pem". Every such file must
        be readable: a key that was skipped would look like an unknown one.
    """
    found: dict[str, Ed25519PublicKey] = {}
    for path in map(Path, paths):
        files = sorted(one for one in path.iterdir() if one.suffix in _IN_FOLDERS) if path.is_dir() else [path]
        if not files:
            raise ValueError(f"{path} has no public keys: no file in it ends in {' or '.join(_IN_FOLDERS)}")
        for file in files:
            found |= {compute_fingerprint(key): key for key in _read_public_file(file)}
    if not found:
        raise ValueError("no trusted public key was given")
    return found


def _read_public_file(path: Path) -> list[Ed25519PublicKey]:
    ed25519, serialization = _import_cryptography()
    content = _read_small(path)
    if b"PRIVATE KEY-----" in content:
        raise ValueError(f"{path} contains a private key; verify with the public key {path}{PUBLIC_SUFFIX}")
    *blocks, rest = content.split(_END)
    if not blocks or rest.strip():
        raise ValueError(f"{path} is not a file of public keys in PEM form, as tulle keygen writes it")
    keys = []
    for block in blocks:
        try:
            key = serialization.load_pem_public_key(block.lstrip() + _END + b"\n")
        except Exception:
            raise ValueError(f"{path} has a public key that is damaged") from None
        if not isinstance(key, ed25519.Ed25519PublicKey):
            raise ValueError(f"{path} has a key that is not an Ed25519 key")
        keys.append(key)
    return keys


def _read_small(path: str | os.PathLike[str]) -> bytes:
    with open(path, "rb") as file:
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise ValueError(f"{os.fspath(path)} is too large for a key")
    return content
