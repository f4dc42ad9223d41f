"""Keys: only the owner can read the private one, nothing is overwritten, and what is no key is refused by name."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tulle.files.install_hints import install_hint
from tulle.files.signing_keys import (
    PassphraseError,
    compute_fingerprint,
    generate_key,
    read_private_key,
    read_public_keys,
)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    generate_key(tmp_path / "office.key")
    return tmp_path / "office.key"


def test_a_private_key_is_for_its_owner_alone(tmp_path: Path) -> None:
    """Also if the umask would let everybody read; the public key is for everybody."""
    before = os.umask(0)
    try:
        generate_key(tmp_path / "office.key")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "office.key").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "office.key.pub").stat().st_mode) == 0o644


def test_the_fingerprint_is_the_hash_of_the_public_key(tmp_path: Path) -> None:
    fingerprint = generate_key(tmp_path / "office.key")
    public = serialization.load_pem_public_key((tmp_path / "office.key.pub").read_bytes())
    der = public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    assert fingerprint == hashlib.sha256(der).hexdigest()
    assert set(read_public_keys([tmp_path / "office.key.pub"])) == {fingerprint}
    assert compute_fingerprint(read_private_key(tmp_path / "office.key").public_key()) == fingerprint
    assert generate_key(tmp_path / "other.key") != fingerprint


def test_no_key_is_overwritten(key: Path, tmp_path: Path) -> None:
    kept = key.read_bytes()
    with pytest.raises(ValueError, match=r"office\.key exists and is not overwritten"):
        generate_key(key)
    assert key.read_bytes() == kept
    (tmp_path / "second.key.pub").write_text("somebody's")
    with pytest.raises(ValueError, match=r"second\.key\.pub exists"):
        generate_key(tmp_path / "second.key")
    assert not (tmp_path / "second.key").exists()


def test_a_passphrase_encrypts(tmp_path: Path) -> None:
    """Without it, or with another, the key cannot be read; the public key needs none."""
    path = tmp_path / "office.key"
    fingerprint = generate_key(path, "long and secret")
    assert b"BEGIN ENCRYPTED PRIVATE KEY" in path.read_bytes()
    assert compute_fingerprint(read_private_key(path, "long and secret").public_key()) == fingerprint
    with pytest.raises(PassphraseError, match="is encrypted; give its passphrase"):
        read_private_key(path)
    for wrong in ("long and secre", "", "LONG AND SECRET"):
        with pytest.raises(PassphraseError, match="the passphrase is wrong, or the file is damaged"):
            read_private_key(path, wrong)
    with pytest.raises(PassphraseError, match="the passphrase is empty"):
        generate_key(tmp_path / "another.key", "")
    assert not (tmp_path / "another.key").exists()


def test_a_key_that_others_can_read_is_warned_of(key: Path) -> None:
    key.chmod(0o640)
    with pytest.warns(UserWarning, match="other users may read the private key .*chmod 600"):
        read_private_key(key)


def test_what_is_no_private_key_is_refused(key: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is a public key; sign with the private key"):
        read_private_key(f"{key}.pub")
    for content in (b"", b"nonsense", key.read_bytes()[:60], bytes(2**21)):
        (tmp_path / "bad").write_bytes(content)
        with pytest.raises(ValueError, match="bad is "):
            read_private_key(tmp_path / "bad")
    other = ec.generate_private_key(ec.SECP256R1())
    pem = other.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (tmp_path / "bad").write_bytes(pem)
    with pytest.raises(ValueError, match="is not an Ed25519 key"):
        read_private_key(tmp_path / "bad")


def test_trusted_keys_are_files_and_folders(tmp_path: Path) -> None:
    """One file may have several keys; other files of a folder are passed over."""
    (tmp_path / "keys").mkdir()
    prints = [generate_key(tmp_path / f"{name}.key") for name in "abc"]
    pems = [(tmp_path / f"{name}.key.pub").read_bytes() for name in "abc"]
    (tmp_path / "keys" / "two.pem").write_bytes(pems[0] + b"\n" + pems[1])
    (tmp_path / "keys" / "one.pub").write_bytes(pems[2])
    (tmp_path / "keys" / "README").write_text("whom we trust")
    assert set(read_public_keys([tmp_path / "keys"])) == set(prints)
    assert set(read_public_keys([tmp_path / "keys" / "two.pem"])) == set(prints[:2])
    assert set(read_public_keys([tmp_path / "a.key.pub", tmp_path / "c.key.pub"])) == {prints[0], prints[2]}


def test_what_is_no_trusted_key_is_refused(key: Path, tmp_path: Path) -> None:
    """None is skipped: a folder with a damaged key is an error, not a folder with fewer keys."""
    with pytest.raises(ValueError, match=r"contains a private key; verify with the public key .*office\.key\.pub"):
        read_public_keys([key])
    with pytest.raises(ValueError, match="no trusted public key was given"):
        read_public_keys([])
    (tmp_path / "keys").mkdir()
    with pytest.raises(ValueError, match="has no public keys"):
        read_public_keys([tmp_path / "keys"])
    pem = (tmp_path / "office.key.pub").read_bytes()
    (tmp_path / "keys" / "good.pub").write_bytes(pem)
    for content in (b"", b"nonsense", pem[:-10], pem + b"more", pem[:40] + b"!" + pem[41:], pem[:10] + pem[20:]):
        (tmp_path / "keys" / "bad.pub").write_bytes(content)
        with pytest.raises(ValueError, match=r"bad\.pub "):
            read_public_keys([tmp_path / "keys"])
    other = ec.generate_private_key(ec.SECP256R1()).public_key()
    (tmp_path / "keys" / "bad.pub").write_bytes(
        other.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    with pytest.raises(ValueError, match="a key that is not an Ed25519 key"):
        read_public_keys([tmp_path / "keys"])
    with pytest.raises(FileNotFoundError):
        read_public_keys([tmp_path / "nowhere.pub"])


def test_without_the_package_the_message_says_what_to_install(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['cryptography'] = None\n"
        "from tulle.cli import main\n"
        f"sys.exit(main(['keygen', {str(tmp_path / 'k')!r}, '--no-passphrase']))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 2
    assert f"signatures need the package cryptography: {install_hint('signing')}" in ran.stderr
