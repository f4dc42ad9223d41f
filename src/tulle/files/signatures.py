"""Detached Ed25519 signatures of models, reports, receipts and other files.

A signature is one JSON file. The signed bytes are the line "tulle signature v1" followed by the canonical JSON of a
statement: the kind of thing, the name, size and SHA-256 of every file, the fingerprint of the key, and what the signer
says. The line keeps the signature from being valid in any other protocol that uses the same key; the names and the
kind keep it from being valid for other files.

A signature proves that no byte changed since the holder of the key signed. It does not prove that an epsilon is right.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

from tulle import __version__
from tulle.files.durable_writes import write_durably
from tulle.files.signing_keys import compute_fingerprint, read_private_key, read_public_keys

SUFFIX = ".sig"
FORMAT = "tulle signature 1"
# Signed with every statement. It changes with the format, so that no signature can be read as one of another version.
_SEPARATOR = b"tulle signature v1\n"
# A folder of 100,000 files needs about 15 MB. Larger files are not read into memory.
_MOST_BYTES = 2**27
_MOST_LISTED = 5

Kind = Literal["model", "report", "receipt", "ledger", "comparison", "folder", "file"]

# What a folder is, by a file in it; the first that is there decides.
_FOLDERS: dict[str, Kind] = {"ledger.json": "ledger", "comparison.json": "comparison", "model.npz": "model"}
_FILES: dict[str, Kind] = {".npz": "model", ".html": "report"}
# How the file begins that `tulle ledger show --receipt` writes.
RECEIPT_FORMAT = "tulle ledger receipt 1"
_RECEIPT = re.compile(rb'\s*\{\s*"format": "tulle ledger receipt [0-9]')


class SignatureError(ValueError):
    """The signature does not hold: files differ from those that were signed, the key is not trusted, or the signature
    is damaged."""


@dataclass(frozen=True)
class SignedFile:
    """One file as it was signed: its name relative to the folder, with "/", its SHA-256 and its size in bytes."""

    name: str
    sha256: str
    size: int


@dataclass(frozen=True)
class Statement:
    """What was signed.

    Attributes
    ----------
    kind : str
        "model", "report", "receipt", "ledger", "comparison", "folder" or "file".
    files : tuple of SignedFile
        Every file, sorted by name.
    key : str
        The fingerprint of the signing key.
    signer, purpose, signed : str
        Who signed, what for, and when (UTC): stated by the signer, and not checked by anyone.
    tulle : str
        The version of tulle that wrote the signature.
    """

    kind: str
    files: tuple[SignedFile, ...]
    key: str
    signer: str
    purpose: str
    signed: str
    tulle: str


def default_signature(path: str | os.PathLike[str]) -> Path:
    """Where the signature of a file or folder is written: next to it, with ".sig" added to its name."""
    place = Path(path)
    if place.name in ("", ".."):  # "." and ".." have no name to add to
        place = Path(os.path.abspath(place))
    return place.with_name(f"{place.name}{SUFFIX}")


# --- signing ---------------------------------------------------------------------------------------------------------


def sign(
    path: str | os.PathLike[str],
    key: str | os.PathLike[str],
    *,
    output: str | os.PathLike[str] | None = None,
    signer: str = "",
    purpose: str = "",
    passphrase: str | None = None,
) -> Statement:
    """Sign a file, or all files of a folder.

    Parameters
    ----------
    path : path
        A file or a folder. Links are refused, and so are an empty file and a folder without files. Empty folders inside
        a folder are not signed.
    key : path
        The private key, as `tulle.files.signing_keys.generate_key` writes it.
    output : path or None, default=None
        The signature file; an older one is replaced. None: next to `path`, with ".sig" added to the name. It must
        not be inside the folder that is signed.
    signer, purpose : str, default=""
        Stated in the signature: who signs, and what for.
    passphrase : str or None, default=None
        Of an encrypted key.

    Returns
    -------
    Statement
        What was signed.

    Examples
    --------
    >>> import os, tempfile
    >>> from tulle.files.signatures import sign, verify
    >>> from tulle.files.signing_keys import generate_key
    >>> folder = tempfile.mkdtemp()
    >>> report, key = os.path.join(folder, "report.html"), os.path.join(folder, "office.key")
    >>> _ = open(report, "w").write("<!doctype html>")
    >>> fingerprint = generate_key(key)
    >>> statement = sign(report, key, signer="Privacy office")
    >>> verify(report, [key + ".pub"]).signer
    'Privacy office'
    """
    target = default_signature(path) if output is None else Path(output)
    _check_outside(path, target)
    private = read_private_key(key, passphrase)
    fingerprint = compute_fingerprint(private.public_key())
    files = tuple(_read_files(Path(path)))
    if not files:
        raise ValueError(f"{os.fspath(path)} has no files to sign")
    if not Path(path).is_dir() and not files[0].size:
        raise ValueError(f"{os.fspath(path)} is empty; there is nothing to sign")
    now = datetime.now(UTC).isoformat(timespec="seconds")
    statement = Statement(find_kind(path), files, fingerprint, signer, purpose, now, __version__)
    signature = private.sign(_signed_bytes(statement))
    write_durably(target, _encode({"format": FORMAT, "signature": signature.hex(), "statement": asdict(statement)}))
    return statement


def _check_outside(path: str | os.PathLike[str], target: Path) -> None:
    """A signature inside the folder that it signs would be a file that was added to it; one in place of the file would
    replace it."""
    inside, subject = Path(os.path.realpath(target)), Path(os.path.realpath(path))
    if inside == subject or subject in inside.parents:
        raise ValueError(f"the signature {target} would change what it signs; write it outside of {os.fspath(path)}")


def find_kind(path: str | os.PathLike[str]) -> Kind:
    """What a file or folder is, by its name or by the files in it."""
    place = Path(path)
    if place.is_dir():
        return next((kind for name, kind in _FOLDERS.items() if (place / name).exists()), "folder")
    if place.suffix == ".json":
        with _open_plain(place) as file:
            return "receipt" if _RECEIPT.match(file.read(64)) else "file"
    return _FILES.get(place.suffix, "file")


def _read_files(path: Path) -> Iterator[SignedFile]:
    """Every file of a folder, sorted by name; of a file, the file itself."""
    if path.is_symlink():
        raise SignatureError(f"{path} is a link; pass the file or folder that it points to")
    if not path.is_dir():
        yield _read_file(path, path.name)
        return
    found: dict[str, Path] = {}
    for folder, folders, names in os.walk(path, onerror=_raise):
        for name in (*folders, *names):
            place = Path(folder, name)
            if place.is_symlink():
                raise SignatureError(f"{place} is a link; links are not signed, since they can point anywhere")
        found |= {Path(folder, name).relative_to(path).as_posix(): Path(folder, name) for name in names}
    for name in sorted(found):
        yield _read_file(found[name], name)


def _raise(error: OSError) -> None:
    raise error  # os.walk would skip a folder that cannot be read, and its files would not be signed


def _read_file(path: Path, name: str) -> SignedFile:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise SignatureError(f"{str(path)!r} has a name that is not text; rename it") from None
    with _open_plain(path) as file:
        digest = hashlib.file_digest(file, "sha256")
        return SignedFile(name, digest.hexdigest(), file.tell())


def _open_plain(path: Path) -> Any:
    """Open a file without following a link, also if one was put there after it was looked at."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise SignatureError(f"{path} is not a plain file")
    return open(handle, "rb")


def _encode(values: Mapping[str, Any]) -> bytes:
    """Canonical JSON: one sequence of bytes for one meaning."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.encode("ascii") + b"\n"


def _signed_bytes(statement: Statement) -> bytes:
    return _SEPARATOR + _encode(asdict(statement))


# --- verifying -------------------------------------------------------------------------------------------------------


def verify(
    path: str | os.PathLike[str],
    keys: Iterable[str | os.PathLike[str]],
    *,
    signature: str | os.PathLike[str] | None = None,
    kind: Kind | None = None,
) -> Statement:
    """Check that a file or folder is, to the last byte, what the holder of a trusted key signed.

    Parameters
    ----------
    path : path
        The file or folder. A file must have the name that it was signed with; a folder may be moved and renamed.
    keys : iterable of paths
        The trusted public keys: PEM files, or folders of them.
    signature : path or None, default=None
        The signature file. None: next to `path`, with ".sig" added to the name.
    kind : str or None, default=None
        What it must be, such as "model"; None accepts any kind.

    Returns
    -------
    Statement
        What was signed, by whom and what for, as the signer stated it.

    Raises
    ------
    SignatureError
        If a file was changed, added, removed or renamed, is a link, the key is not trusted, or the signature is damaged
        or of other files.
    """
    trusted = read_public_keys(keys)
    source = default_signature(path) if signature is None else Path(signature)
    if not os.path.lexists(path):
        raise ValueError(f"{os.fspath(path)} does not exist")
    if not source.exists():
        raise ValueError(f"{source} does not exist; get the signature file, or say where it is (--signature)")
    statement, signed = _read_signature(source)
    if statement.key not in trusted:
        known = ", ".join(sorted(trusted))
        raise SignatureError(
            f"{source} was signed by a key that is not trusted, with fingerprint {statement.key}; trusted: {known}"
        )
    _check_signed(source, trusted[statement.key], signed, statement)
    _check_files(Path(path), statement)
    _check_kind(path, statement, kind)
    return statement


def _check_signed(source: Path, key: Any, signed: bytes, statement: Statement) -> None:
    from cryptography.exceptions import InvalidSignature

    try:
        key.verify(signed, _signed_bytes(statement))
    except InvalidSignature:
        raise SignatureError(f"{source} was changed, or was not made by the key that it names") from None


def _check_kind(path: str | os.PathLike[str], statement: Statement, wanted: Kind | None) -> None:
    here = find_kind(path)
    if statement.kind != here:
        raise SignatureError(f"the signature is for a {statement.kind}, and {os.fspath(path)} is a {here}")
    if wanted is not None and statement.kind != wanted:
        raise SignatureError(f"the signature is for a {statement.kind}, not for a {wanted}")


def _check_files(path: Path, statement: Statement) -> None:
    signed = {file.name: file for file in statement.files}
    here = {file.name: file for file in _read_files(path)}
    wrong = {
        "was changed": [name for name in signed if name in here and here[name] != signed[name]],
        "is missing": [name for name in signed if name not in here],
        "was not signed": [name for name in here if name not in signed],
    }
    if not any(wrong.values()):
        return
    listed = [f"{name!r} {what}" for what, names in wrong.items() for name in names]
    more = f" and {len(listed) - _MOST_LISTED:,} more" if len(listed) > _MOST_LISTED else ""
    raise SignatureError(f"{path} differs from what was signed: {', '.join(listed[:_MOST_LISTED])}{more}")


def _read_signature(source: Path) -> tuple[Statement, bytes]:
    """The statement and the signature in a file that is exactly as `sign` writes it."""
    try:
        with _open_plain(source) as file:
            raw = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise SignatureError(f"{source} cannot be read ({error.strerror}); links are not followed") from error
    if not raw:
        raise SignatureError(f"{source} is empty")
    try:
        if len(raw) > _MOST_BYTES:
            raise ValueError("it is too large")
        values = json.loads(raw.decode("ascii"), object_pairs_hook=_reject_duplicates)
        if not isinstance(values, dict) or not str(values.get("format", "")).startswith(FORMAT[:-1]):
            raise ValueError("it is not a signature of tulle")
        if values["format"] != FORMAT:
            raise ValueError(f"its format is {values['format'][:60]!r}, and this tulle {__version__} reads {FORMAT!r}")
        if set(values) != {"format", "signature", "statement"} or _encode(values) != raw:
            raise ValueError("it is not in the form in which tulle writes signatures")
        if not re.fullmatch("[0-9a-f]{128}", values["signature"]):
            raise ValueError("its signature is not 64 bytes in hexadecimal digits")
        return _read_statement(values["statement"]), bytes.fromhex(values["signature"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        # A part of another type shows as any of these; the messages of libraries say nothing to a user.
        words = f": {error}" if type(error) is ValueError else ""
        raise SignatureError(f"{source} is damaged, or is not a signature{words}") from None


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("a key occurs twice in it")
    return dict(pairs)


def _read_statement(values: Mapping[str, Any]) -> Statement:
    files = tuple(SignedFile(**file) for file in values["files"])
    for file in files:
        if not (isinstance(file.name, str) and type(file.size) is int and re.fullmatch("[0-9a-f]{64}", file.sha256)):
            raise ValueError("it has a file without a name, size or hash")
    statement = Statement(**{**values, "files": files})
    if not all(isinstance(getattr(statement, name), str) for name in ("signer", "purpose", "signed", "tulle")):
        raise ValueError("its statement has parts that are not text")
    if not re.fullmatch("[0-9a-f]{64}", statement.key) or statement.kind not in get_args(Kind):
        raise ValueError("it names no key or no kind")
    names = [file.name for file in files]
    if not names or names != sorted(set(names)):
        raise ValueError("its files are not sorted, or one occurs twice")
    return statement
