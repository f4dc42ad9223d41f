"""Files that one process alone can create under a name, on file systems whose locks cannot be relied on.

`link()` gives a written file its name, or fails because the name is taken: the one operation that is atomic on local
disks and network file systems alike. Nothing is locked, so no process waits for one that hangs.
"""

from __future__ import annotations

import errno
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tulle.files.durable_writes import sync_folder

PARTIAL = ".partial"

# Files of processes that were killed are deleted after this time; a claim takes milliseconds.
_LEFT_SECONDS = 600.0

_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP)


class ClaimError(OSError):
    """It is unclear whether a file was written under its name."""


def claim_name(folder: Path, name: str, content: bytes, mode: int = 0o600) -> bool:
    """Write a file under a name that no file has yet. False where another process was first.

    When this returns True, the file and its name have reached the disk. Where it raises `ClaimError`, the file may be
    there; where it raises another error, it is not.

    Parameters
    ----------
    folder : Path
    name : str
    content : bytes
        It must differ from what any other process writes.
    mode : int, default=0o600
        Permissions of the file.
    """
    target = folder / name
    partial = folder / f".{name}.{os.getpid()}-{secrets.token_hex(6)}{PARTIAL}"
    try:
        _write(partial, content, mode)
        if (refused := _link(partial, target)) is not None:
            if isinstance(refused, FileExistsError):
                return False
            raise _explain(refused, target) from refused
        try:
            held = target.read_bytes()
            sync_folder(folder)
        except OSError as error:
            raise ClaimError(error.errno, f"may not have reached the disk ({error.strerror})", str(target)) from error
        if held != content:
            raise ClaimError(
                errno.EIO, "does not hold what was just written; its file system loses writes", str(target)
            )
    finally:
        with suppress(OSError):  # it is named and deleted later
            partial.unlink(missing_ok=True)
    return True


def _link(partial: Path, target: Path) -> OSError | None:
    """Give a file its name: None where it has it, and else why not."""
    try:
        os.link(partial, target)
    except OSError as error:
        # On a network, a repeated request fails because the first one succeeded. The link count tells.
        try:
            links = os.stat(partial).st_nlink
        except OSError as unclear:
            words = f"may have been created, or not ({error.strerror}, {unclear.strerror})"
            raise ClaimError(error.errno, words, str(target)) from error
        return error if links == 1 else None
    return None


def _write(partial: Path, content: bytes, mode: int) -> None:
    with open(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode), "wb") as file:
        if hasattr(os, "fchmod"):
            os.fchmod(file.fileno(), mode)  # the umask may have removed permissions
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _explain(error: OSError, target: Path) -> OSError:
    if error.errno in _NO_LINKS:
        words = "cannot be created: its file system has no hard links; use another file system, or tulle ledger serve"
        return OSError(error.errno, words, str(target))
    return OSError(error.errno, f"cannot be created ({error.strerror})", str(target))


def exists(path: Path) -> bool:
    """Whether there is such a file. Unlike `Path.exists`, it raises where a disk does not answer."""
    try:
        os.stat(path)
    except FileNotFoundError:
        return False
    return True


def leftovers(folder: Path) -> Iterator[tuple[Path, bool]]:
    """Unfinished files of processes that were killed, and whether each is old enough to be deleted."""
    for path in sorted(folder.glob(f".*{PARTIAL}")):
        with suppress(FileNotFoundError):  # its process has just deleted it
            yield path, time.time() - path.stat().st_mtime > _LEFT_SECONDS
