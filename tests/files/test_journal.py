"""A journal gives back what was appended, after a crash too, and refuses a file that was changed."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import tulle
from tulle.files.journal import Journal, JournalError

LINES = [b'{"a":1}', b"", b"two words", b'{"b":"' + b"x" * 40 + b'"}', b"0" * 64 + b" 3 abc"]


def write(path: Path, lines: list[bytes]) -> bytes:
    journal = Journal(path)
    journal.start()
    for line in lines:
        journal.append(line)
    journal.close()
    return path.read_bytes()


def read(path: Path) -> list[bytes]:
    return [content for _, content in Journal(path).records]


def test_what_was_appended_is_read(tmp_path: Path) -> None:
    """In order, and with line numbers; a second process continues the chain."""
    path = tmp_path / "j"
    write(path, LINES[:2])
    write(path, LINES[2:])
    assert [*Journal(path).records] == [*enumerate(LINES, 2)]


def test_the_disk_confirms_each_record_and_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the bytes of the record are written, and before `append` returns."""
    path, synced = tmp_path / "j", []
    real = os.fsync

    def watch(handle: int) -> None:
        synced.append((os.readlink(f"/proc/self/fd/{handle}"), path.stat().st_size))
        real(handle)

    monkeypatch.setattr("os.fsync", watch)
    journal = Journal(path)
    journal.start()
    assert (str(tmp_path), 0) in synced  # the folder, which holds the name of the file
    for line in LINES:
        journal.append(line)
        assert synced[-1] == (str(path), path.stat().st_size)
    assert len(synced) == 2 + len(LINES)


def test_every_changed_bit_is_refused(tmp_path: Path) -> None:
    """Of every line, the last one and its end among them."""
    path = tmp_path / "j"
    kept = write(path, LINES[:3])
    for bit in range(8 * len(kept)):
        changed = bytearray(kept)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        with pytest.raises(JournalError, match=r"j(, line [0-9]+: the | was made by )"):
            Journal(path)
        assert path.read_bytes() == changed


CHANGES: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "a line removed": lambda lines: lines[:2] + lines[3:],
    "the first line removed": lambda lines: lines[1:],
    "two lines swapped": lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]],
    "a line twice": lambda lines: [*lines[:3], *lines[2:]],
    "a line added": lambda lines: [*lines[:2], b"{}", *lines[2:]],
    "an empty line": lambda lines: [*lines[:2], b"", *lines[2:]],
    "a line cut": lambda lines: [*lines[:2], lines[2][:-1], *lines[3:]],
    "a line without a checksum before all": lambda lines: [b"{}", *lines],
    "a line without a checksum after all": lambda lines: [*lines[:-1], b"{}", b""],
    "another checksum": lambda lines: [*lines[:2], b"0" * 64 + lines[2][64:], *lines[3:]],
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_lines_are_refused(tmp_path: Path, change: str) -> None:
    path = tmp_path / "j"
    lines = write(path, LINES).split(b"\n")
    path.write_bytes(b"\n".join(CHANGES[change](lines)))
    with pytest.raises(JournalError, match=r"line [1-7]: the checksum does not match.*restore the file from a copy"):
        Journal(path)


def test_records_of_another_journal_are_refused(tmp_path: Path) -> None:
    """A line is good in its own place alone."""
    one, two = write(tmp_path / "one", LINES), write(tmp_path / "two", [b"other", *LINES[1:]])
    first, rest = one.split(b"\n")[:2], two.split(b"\n")[2:]
    (tmp_path / "j").write_bytes(b"\n".join([*first, *rest]))
    with pytest.raises(JournalError, match="line 3: the checksum does not match"):
        Journal(tmp_path / "j")


def test_a_file_cut_anywhere_keeps_its_whole_records(tmp_path: Path) -> None:
    """As a crash leaves it. The file is changed by `start`, and not before; then it goes on."""
    path = tmp_path / "j"
    kept = write(path, LINES)
    for cut in range(len(kept)):
        path.write_bytes(kept[:cut])
        journal = Journal(path)
        n_whole = max(kept[:cut].count(b"\n") - 1, 0)
        assert [content for _, content in journal.records] == LINES[:n_whole], cut
        assert path.read_bytes() == kept[:cut]
        journal.start()
        journal.append(b"next")
        journal.close()
        assert read(path) == [*LINES[:n_whole], b"next"]


def test_blocks_that_never_reached_the_disk_are_removed(tmp_path: Path) -> None:
    """Some file systems leave zeros at the end of a file that grew when the power failed."""
    path = tmp_path / "j"
    kept = write(path, LINES)
    path.write_bytes(kept + bytes(4096))
    assert read(path) == LINES
    write(path, [b"next"])
    assert read(path) == [*LINES, b"next"]


@pytest.mark.parametrize("content", [b"-----BEGIN KEY-----", b'{"epsilon": 1}', b"one line", b"a,b\n1,2", b"abc xyz"])
def test_a_file_that_is_no_journal_is_left_alone(tmp_path: Path, content: bytes) -> None:
    """A path by mistake: what has no line break must not be taken for a record that was cut off, and be erased."""
    (tmp_path / "j").write_bytes(content)
    with pytest.raises(JournalError, match=r"line 1: (this is no line of a journal|the checksum does not match)"):
        Journal(tmp_path / "j")
    assert (tmp_path / "j").read_bytes() == content


def test_what_was_read_is_confirmed_by_the_disk_before_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed process leaves records that are in the system's memory alone."""
    path, synced = tmp_path / "j", []
    write(path, LINES)
    journal = Journal(path)
    monkeypatch.setattr("os.fsync", lambda handle: synced.append(os.fstat(handle).st_ino))
    journal.start()
    assert path.stat().st_ino in synced


def test_two_processes_never_write_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second comes between the first one's look at the file and its write: it waits, and is refused then."""
    path, written, check = tmp_path / "j", [], Journal._check_size
    write(path, LINES[:1])
    one, two = Journal(path), Journal(path)
    one.start()
    two.start()

    def append(journal: Journal, line: bytes) -> None:
        with suppress(JournalError):
            journal.append(line)
            written.append(line)

    late = threading.Thread(target=append, args=(two, b"of the second"))

    def check_and_wait(journal: Journal, expected: int) -> None:
        check(journal, expected)
        if journal is one:
            late.start()
            late.join(0.3)

    monkeypatch.setattr(Journal, "_check_size", check_and_wait)
    append(one, b"of the first")
    late.join()
    assert written == [b"of the first"]
    assert read(path) == [LINES[0], *written]


def test_a_newer_journal_says_who_made_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "j"
    with monkeypatch.context() as later:
        later.setattr("tulle.files.journal._FORMAT", "tulle journal 3")
        later.setattr("tulle.files.journal.__version__", "9.8")
        write(path, LINES)
    with pytest.raises(
        JournalError,
        match=rf"made by tulle 9\.8 as 'tulle journal 3'; this is tulle {tulle.__version__}: upgrade tulle",
    ):
        Journal(path)


def test_a_record_is_one_line_and_a_closed_journal_takes_none(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    with pytest.raises(JournalError, match="is closed"):
        journal.append(b"before the start")
    journal.start()
    with pytest.raises(ValueError, match="a record is one line"):
        journal.append(b"a\nb")
    journal.close()
    with pytest.raises(JournalError, match="is closed"):
        journal.append(b"x")
    assert read(tmp_path / "j") == []
