"""Files that survive a crash: written whole or not at all, and changed by one process at a time."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

_ELSEWHERE = "keep it on a local disk, or on a network file system with locks"


class LockError(OSError):
    """A file cannot be held alone, so that two processes could change it at a time."""


@contextmanager
def name_file(path: str | os.PathLike[str]) -> Iterator[None]:
    """Have errors of the system name a file: those of a write to an open one (a full disk) name none, and those of a
    partial one name what the user never asked for."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.strerror is None:
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error


def write_durably(path: str | os.PathLike[str], content: bytes, mode: int | None = None) -> None:
    """Replace a file at once: anyone who reads it finds the old content or the new one, after a power cut too.

    Parameters
    ----------
    path : path
    content : bytes
    mode : int or None, default=None
        Permissions of the new file; None: what the user's umask leaves of reading and writing for all.
    """
    target = Path(path)
    if target.exists() and not target.is_file():
        # Replacing a device or a pipe would take it from everybody.
        raise OSError(22, "is not a file; pass the path of a file", str(target))
    # A name of its own for each process and moment: two writers never share a half-written file.
    partial = target.with_name(f".{target.name}.{os.getpid()}-{time.monotonic_ns()}.partial")
    with name_file(target):
        try:
            handle = os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666 if mode is None else mode)
            with open(handle, "wb") as file:
                if mode is not None and hasattr(os, "fchmod"):
                    os.fchmod(file.fileno(), mode)  # the umask may have taken something off
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, target)
        finally:
            partial.unlink(missing_ok=True)
        sync_folder(target.parent)


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Make a file's new entry in its folder last through a power cut, where the platform lets one."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def locked(path: str | os.PathLike[str], seconds: float | None = None) -> Iterator[None]:
    """Hold the lock file `path` alone. The system releases the lock when the holder dies, for any reason.

    Raises `LockError`, with the file's name, where it cannot be locked or where locks have no effect.

    Parameters
    ----------
    path : path
        Made where it is missing, and left behind: deleting it would let two processes hold two files of one name.
    seconds : float or None, default=None
        How long to wait for another holder before `TimeoutError`; None waits as long as it takes.
    """
    file: IO[bytes]
    try:
        file = open(os.open(path, os.O_CREAT | os.O_RDWR, 0o666), "r+b")  # noqa: SIM115 - closed below
    except PermissionError:  # a colleague's, which may be locked all the same
        file = open(path, "rb")  # noqa: SIM115
    with file, lock_open_file(file, path, seconds):
        yield


@contextmanager
def lock_open_file(file: IO[bytes], path: str | os.PathLike[str], seconds: float | None = None) -> Iterator[None]:
    """Hold an open file alone until this ends or the file is closed; as in `locked`, which opens it."""
    _wait_for(file, path, seconds)
    try:
        yield
    finally:
        if not file.closed:
            _unlock(file)


def _wait_for(file: IO[bytes], path: str | os.PathLike[str], seconds: float | None) -> None:
    deadline = None if seconds is None else time.monotonic() + seconds
    try:
        while not _try_lock(file):
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(
                    f"another process has held {os.fspath(path)} for {seconds:g} seconds; check what that process does"
                )
            time.sleep(0.01)
        excludes = _excludes(file, path)
    except TimeoutError:
        raise
    except OSError as error:
        raise LockError(error.errno, f"cannot be locked ({error.strerror}); {_ELSEWHERE}", os.fspath(path)) from error
    if not excludes:
        words = f"locks on it have no effect, so two processes could change it at the same time; {_ELSEWHERE}"
        raise LockError(errno.ENOLCK, words, os.fspath(path))


def _excludes(file: IO[bytes], path: str | os.PathLike[str]) -> bool:
    """Whether a lock that is held keeps a second descriptor out: on some file systems all are granted."""
    try:
        with open(path, file.mode) as second:
            # By now the name may be another file's, whose lock is not held here.
            same = os.path.samestat(os.fstat(file.fileno()), os.fstat(second.fileno()))
            return not same or not _try_lock(second)
    except FileNotFoundError:
        return True  # deleted meanwhile: no process can open it any more


def _try_lock(file: IO[bytes]) -> bool:
    try:
        if os.name == "nt":  # pragma: no cover
            import msvcrt

            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _unlock(file: IO[bytes]) -> None:
    if os.name == "nt":  # pragma: no cover
        import msvcrt

        file.seek(0)
        msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)  # type: ignore[attr-defined]
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_UN)
