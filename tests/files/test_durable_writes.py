"""Files that are written whole, are on the disk before anything else happens, and have one writer at a time."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from tulle.files.durable_writes import LockError, locked, name_file, write_durably


def test_a_file_reaches_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The content, then the name, then the folder: after a power cut the file is the old one or the new one."""
    steps: list[str] = []
    sync, replace = os.fsync, os.replace

    def syncing(handle: int) -> None:
        steps.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "content")
        sync(handle)

    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(os, "replace", lambda *places: (steps.append("name"), replace(*places))[1])
    write_durably(tmp_path / "file", b"new")
    assert steps == ["content", "name", "folder"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failing_disk_leaves_the_old_file(tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing that is half written."""
    write_durably(tmp_path / "file", b"old")

    def failing(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, step, failing)
    with pytest.raises(OSError, match="No space"):
        write_durably(tmp_path / "file", b"new")
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {"file": b"old"}


def test_a_lock_that_keeps_nobody_out_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some file systems grant every lock."""
    monkeypatch.setattr("fcntl.flock", lambda *_: None)
    with pytest.raises(LockError, match=r"have no effect.*state\.lock"), locked(tmp_path / "state.lock"):
        raise AssertionError("two processes would be here")


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EBADF])
def test_a_file_that_cannot_be_locked_is_named(tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", failing)
    with pytest.raises(LockError, match=r"cannot be locked.*state\.lock"), locked(tmp_path / "state.lock"):
        raise AssertionError("it is not locked")


def test_a_lock_that_is_held_is_waited_for_and_then_told(tmp_path: Path) -> None:
    """With the name of the file; afterwards it is free."""
    told = pytest.raises(TimeoutError, match=r"has held .*state\.lock for 0\.05 seconds")
    with locked(tmp_path / "state.lock"), told, locked(tmp_path / "state.lock", 0.05):
        raise AssertionError("two holders")
    with locked(tmp_path / "state.lock", 0.05):
        pass


@pytest.mark.parametrize("step", ["open", "fsync", "replace"])
def test_an_error_of_a_write_names_the_file_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Not the partial file, of which the user knows nothing; the old content stays."""
    path = tmp_path / "model.npz"
    path.write_bytes(b"before")

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, step, full)
    with pytest.raises(OSError, match="No space left") as caught:
        write_durably(path, b"after")
    monkeypatch.undo()
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(path))
    assert path.read_bytes() == b"before"
    assert os.listdir(tmp_path) == ["model.npz"]


def test_kinds_of_errors_stay(tmp_path: Path) -> None:
    """A missing folder is a FileNotFoundError; what has no number of the system's is left alone."""
    with pytest.raises(FileNotFoundError) as caught:
        write_durably(tmp_path / "no" / "file", b"")
    assert caught.value.filename == str(tmp_path / "no" / "file")
    with pytest.raises(TimeoutError, match="ours"), name_file("x"):
        raise TimeoutError("ours")
