"""Charges on disks that fail, lie or stop at any step, and races between processes: entries ≥ noise drawn, always.

A shim stands in for the calls by which a charge reaches the disk. The n-th of them fails, or is done and then reported
as failed, or is the last thing that a process does before it is killed.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import tulle.ledgers.chain
from tulle import Budget, FileLedger
from tulle.files.claimed_names import ClaimError
from tulle.ledgers.entries import LedgerFileError
from tulle.ledgers.ledger import BudgetExceededError
from tulle.ledgers.verification import remove_leftovers, verify
from tulle.trusted.events import NoisePerSensitivity
from tulle.trusted.mechanisms import Gaussian
from tulle.trusted.plan import Plan, Release

PLAN = Plan((Release("answer", Gaussian(NoisePerSensitivity(50.0)), 1),))
SHIMMED = ("link", "open", "fsync", "stat", "write", "replace")
STEPS = range(1, 40)


def charge(ledger: FileLedger) -> int:
    return ledger.bill("test", [PLAN], (0.1, 1e-7))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    FileLedger.create(tmp_path / "budget", "visits", Budget(3.0, 1e-5))
    charge(FileLedger(tmp_path / "budget", "visits"))
    return tmp_path / "budget"


class Shim:
    """Counts the calls by which a charge reaches the disk; does something else at the n-th."""

    def __init__(self, at: int, what: Callable[[Callable[[], Any]], Any]) -> None:
        self.at, self.what, self.calls = at, what, 0

    @contextmanager
    def installed(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for name in SHIMMED:
                patch.setattr(os, name, self._wrapped(getattr(os, name)))
            patch.setattr(Path, "read_bytes", self._wrapped(Path.read_bytes))
            yield

    def _wrapped(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            self.calls += 1
            if self.calls == self.at:
                return self.what(lambda: real(*arguments, **named))
            return real(*arguments, **named)

        return call


def fail(number: int, *, after: bool) -> Callable[[Callable[[], Any]], Any]:
    def failing(real: Callable[[], Any]) -> Any:
        if after:
            real()
        raise OSError(number, os.strerror(number))

    return failing


@pytest.mark.parametrize("after", [False, True], ids=["not done", "done and reported as failed"])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EEXIST])
def test_a_disk_that_fails_at_any_step(path: Path, number: int, after: bool) -> None:
    """A charge that returns is in the folder; one that raises may be. The ledger is whole, and goes on."""
    ended = False
    for at in STEPS:
        ledger = FileLedger(path, "visits")
        before = ledger._last.number
        shim = Shim(at, fail(number, after=after))
        charged = 0
        with shim.installed():
            try:
                charge(ledger)
                charged = 1
            except (OSError, LedgerFileError):
                pass
        found = verify(path, "visits").last.number
        assert found - before >= charged, f"step {at}"
        assert found - before <= 1
        assert ledger.n_billed >= found - before  # no message says that nothing was spent
        ended = shim.calls < at
        if ended:
            break
    assert ended, "a charge takes more steps than were tried"
    charge(FileLedger(path, "visits"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are killed by forking")
def test_a_kill_between_any_two_steps(path: Path) -> None:
    """Whatever the killed process leaves behind: entries ≥ noise drawn, and the next process bills at once."""
    ended = False
    for at in STEPS:
        before = FileLedger(path, "visits")._last.number
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:  # pragma: no cover - another process
            try:
                shim = Shim(at, lambda real: os._exit(9))
                ledger = FileLedger(path, "visits")
                with shim.installed():
                    charge(ledger)
                os.write(writing, b"drawn")
            finally:
                os._exit(0)
        os.close(writing)
        drawn = os.read(reading, 5) == b"drawn"
        os.close(reading)
        _, status = os.waitpid(child, 0)
        found = verify(path, "visits").last.number - before
        assert drawn <= found <= 1, f"step {at}"
        ended = os.waitstatus_to_exitcode(status) == 0
        if ended:
            break
    assert ended
    assert drawn
    charge(FileLedger(path, "visits"))
    removed, kept = remove_leftovers(path, "visits")
    assert removed == []
    assert kept  # of just now
    for file in kept:
        os.utime(file, (0, 0))
    assert remove_leftovers(path, "visits") == (kept, [])
    assert not list(path.rglob("*.partial"))


@pytest.mark.parametrize("times", [1, 3])
def test_a_folder_that_does_not_show_the_last_entry(path: Path, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on network file systems: `stat` says for a while that nothing is there, and `link` that the name is taken."""
    ledger = FileLedger(path, "visits")
    charge(FileLedger(path, "visits"))
    (ledger._chain.folder / "last").unlink()
    real, hidden = os.stat, []

    def stale(place: Any, *arguments: Any, **named: Any) -> Any:
        if str(place).endswith("00000002.json") and len(hidden) < times:
            hidden.append(place)
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        return real(place, *arguments, **named)

    monkeypatch.setattr(os, "stat", stale)
    assert charge(ledger) == 2
    assert verify(path, "visits").last.number == 3
    assert len(hidden) == times


def test_a_folder_that_never_shows_the_last_entry(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After some time it is an error that names the entry; nothing is billed twice."""
    ledger = FileLedger(path, "visits")
    charge(FileLedger(path, "visits"))
    (ledger._chain.folder / "last").unlink()
    monkeypatch.setattr(tulle.ledgers.chain, "_PATIENCE", 0.05)
    monkeypatch.setattr(tulle.ledgers.chain.Chain, "_is_taken", lambda self, number: False)
    with pytest.raises(LedgerFileError, match=r"entry 2 .* cannot be created and cannot be read"):
        charge(ledger)
    monkeypatch.undo()
    assert verify(path, "visits").last.number == 2


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_hard_links_is_refused(path: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what to use instead."""
    monkeypatch.setattr(os, "link", lambda *_: fail(number, after=False)(lambda: None))
    with pytest.raises(OSError, match="has no hard links; use another file system, or tulle ledger serve"):
        charge(FileLedger(path, "visits"))
    monkeypatch.undo()
    assert verify(path, "visits").last.number == 1


def test_a_disk_without_room_is_no_spend(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the entry was certainly not written, nobody is told that the budget is spent."""
    ledger = FileLedger(path, "visits")
    monkeypatch.setattr(os, "fsync", fail(errno.ENOSPC, after=False))
    with pytest.raises(OSError, match="No space left"):
        charge(ledger)
    assert ledger.n_billed == 0


def test_a_disk_that_loses_writes_stops_the_fit(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The link is there and its content is not what was written."""
    real = os.link

    def losing(source: Any, target: Any) -> None:
        Path(source).write_bytes(b"")
        real(source, target)

    ledger = FileLedger(path, "visits")
    monkeypatch.setattr(os, "link", losing)
    with pytest.raises(ClaimError, match="does not hold what was just written"):
        charge(ledger)
    assert ledger.n_billed == 1  # it is unclear, and told as spent


def test_the_loser_of_a_race_checks_the_cap_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes see room for one more. The second finds the entry of the first, and is refused."""
    FileLedger.create(tmp_path / "small", "visits", Budget(0.15, 0.0))
    first, second = (FileLedger(tmp_path / "small", "visits") for _ in range(2))
    pure = (0.1, 0.0)
    real, raced = tulle.ledgers.chain.claim_name, []

    def other_first(*arguments: Any) -> bool:
        if not raced:
            raced.append(True)
            second.bill("faster", [PLAN], pure)
        return real(*arguments)

    monkeypatch.setattr(tulle.ledgers.chain, "claim_name", other_first)
    with pytest.raises(BudgetExceededError):
        first.bill("slower", [PLAN], pure)
    assert [entry.what for entry in FileLedger(tmp_path / "small", "visits").entries] == ["faster"]
    assert first.n_billed == 0


def test_an_entry_is_on_the_disk_before_it_has_its_name(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power cut a name without content would be a charge that nobody can read."""
    steps: list[str] = []
    for name in ("fsync", "link"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *a, real=real, name=name: (steps.append(name), real(*a))[1])
    charge(FileLedger(path, "visits"))
    assert steps == ["fsync", "link", "fsync"]


def test_a_charge_lists_no_folder_and_reads_few_entries(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cost does not grow with the ledger: the last entry is found by its number."""
    ledger = FileLedger(path, "visits")
    for _ in range(30):
        charge(ledger)
    read: list[str] = []
    real = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda self: (read.append(self.name), real(self))[1])
    for name in ("listdir", "scandir"):
        monkeypatch.setattr(os, name, lambda *_: pytest.fail("a folder was listed"))
    charge(FileLedger(path, "visits"))
    assert len([name for name in read if name.startswith("0000")]) <= 8


@pytest.mark.skipif(sys.platform == "win32", reason="copies by hard links")
def test_a_backup_by_hard_links_is_a_backup(path: Path, tmp_path: Path) -> None:
    """Entries are never changed, so a copy that shares their files stays what it was."""
    shutil.copytree(path, tmp_path / "backup", copy_function=os.link)
    charge(FileLedger(path, "visits"))
    assert verify(tmp_path / "backup", "visits").last.number == 1
    assert verify(path, "visits").last.number == 2


def test_nothing_is_read_after_noise_was_drawn(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that fails from then on costs neither the model nor its report: the entry is known from the bill."""
    ledger = FileLedger(path, "visits")
    number = charge(ledger)
    head = ledger.head
    monkeypatch.setattr(Path, "read_bytes", lambda self: fail(errno.EIO, after=False)(lambda: None))
    ledger.confirm(PLAN, (0.1, 1e-7), number)
    assert ledger.describe_entry(number) == f"entry {number + 1}, head {head}"
