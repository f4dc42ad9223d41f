"""Workers of a process with an open ledger do not fit unbilled, however and whenever they were started."""

from __future__ import annotations

import multiprocessing
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
import pytest

import tulle.ledgers.open_markers as markers
from tulle import Bounds, Budget, Ledger, SparseClassifier
from tulle.ledgers.ledger import BudgetExceededError
from tulle.ledgers.open_markers import (
    MarkerError,
    Process,
    leave_marker,
    take_marker_away,
    this_process,
    why_not_to_fit,
)

CAP = Budget(20.0, 1e-5)

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="ancestors are read from /proc")


def fit() -> str:
    """One private fit, in whatever process calls this: "fitted", or why not."""
    X = np.random.default_rng(0).uniform(-1, 1, (200, 3))
    try:
        SparseClassifier(1.0, 1e-6, bounds=Bounds(row_linf=1.0), method="two_stage").fit(X, X[:, 0] > 0)
    except BudgetExceededError as error:
        return str(error)
    return "fitted"


def fit_in_a_grandchild() -> str:
    """The same in a process that this one starts."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(fit)


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Markers of these tests alone."""
    place = tmp_path / "markers"
    monkeypatch.setattr(markers, "FOLDERS", (place,))
    return place


# --- pools -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", ["forkserver", "spawn", "fork"])
def test_workers_of_every_kind_are_refused(start: str) -> None:
    """Started before the ledger or under it; once it is closed they may fit."""
    context = multiprocessing.get_context(start)
    with context.Pool(1) as early:
        early.apply(os.getpid)
        with Ledger(CAP) as ledger, context.Pool(1) as late:
            for pool in (early, late):
                said = pool.apply(fit)
                assert f"a ledger is open in another process, number {os.getpid()}" in said
                assert "n_jobs=1, or joblib's threading backend" in said
        assert ledger.fits == []
        assert early.apply(fit) == "fitted"


def test_a_worker_of_an_early_worker_is_refused() -> None:
    """Neither of the two was told anything by its environment."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as early:
        early.submit(os.getpid).result()
        with Ledger(CAP):
            assert "a ledger is open in another process" in early.submit(fit_in_a_grandchild).result()


# --- processes that are told when to fit -----------------------------------------------------------------------------

_WAITING = """
import os, sys
sys.path.insert(0, {tests!r})
import tulle.ledgers.open_markers as markers
from pathlib import Path
from test_open_markers import fit
markers.FOLDERS = tuple(map(Path, {folders!r})) or markers.FOLDERS
{before}
print("ready", os.getpid(), os.getppid(), flush=True)
sys.stdin.readline()
print(fit(), flush=True)
"""
# The first process ends, and with it what /proc could say of the second one's ancestors.
_ORPHANED = "if os.fork(): os._exit(0)\nimport time; time.sleep(0.5)"


@contextmanager
def waiting(before: str = "", folders: tuple[str, ...] = (), **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A process that was started before any ledger, and fits when it gets a line."""
    script = _WAITING.format(tests=str(Path(__file__).parent), before=before, folders=folders)
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    try:
        assert _pipe(process.stdout).readline().startswith("ready")
        yield process
    finally:
        _pipe(process.stdin).close()
        _pipe(process.stdout).close()
        process.wait()


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def ask(process: subprocess.Popen[str]) -> str:
    _pipe(process.stdin).write("\n")
    _pipe(process.stdin).flush()
    return _pipe(process.stdout).readline().strip()


def test_a_worker_with_another_folder_for_temporary_files_is_refused(tmp_path: Path) -> None:
    """TMPDIR decided where markers were looked for."""
    with waiting(TMPDIR=str(tmp_path)) as worker, Ledger(CAP):
        assert "a ledger is open in another process" in ask(worker)


def test_a_process_whose_parent_has_died_is_refused_while_a_ledger_is_open(folder: Path) -> None:
    """Who started it cannot be told any more."""
    with waiting(_ORPHANED, (str(folder),)) as worker, Ledger(CAP):
        said = ask(worker)
    assert f"a ledger is open in another process, number {os.getpid()}" in said
    assert "is unknown whether" in said


def test_a_process_whose_parent_has_died_may_fit_where_no_ledger_is_open(folder: Path) -> None:
    """Nor is it kept from fitting by a ledger that was closed."""
    with waiting(_ORPHANED, (str(folder),)) as worker:
        with Ledger(CAP):
            pass
        assert ask(worker) == "fitted"


def test_a_shell_that_is_older_than_the_ledgers_process_is_free(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was started before a process cannot come from it, whoever its parent is."""
    folder.mkdir(mode=0o700)
    here = this_process()
    parent = markers._seen(os.getppid())
    assert parent is not None
    monkeypatch.setattr(markers, "_REAPERS", (parent.name,))
    later = Process(here.number, here.start + 1, here.space)
    monkeypatch.setattr(Process, "is_alive", True)
    (folder / str(later)).touch()
    assert why_not_to_fit() == ""
    (folder / str(later)).unlink()
    earlier = Process(here.number + 10**6, here.start - 1, here.space)
    (folder / str(earlier)).touch()
    assert "is unknown whether" in why_not_to_fit()


def test_a_worker_that_outlives_its_parent_goes_by_what_it_inherited(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is gone, and so is its marker: it may have been killed with its ledger open."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    here = this_process()
    monkeypatch.setenv("TULLE_LEDGER_PROCESS", str(Process(gone.pid, here.start, here.space)))
    assert "remove TULLE_LEDGER_PROCESS from its environment" in why_not_to_fit()
    assert f"process {gone.pid}, above this one, had a ledger open" in fit()


def test_a_ledger_of_its_own_does_not_make_a_worker_forget_its_parents(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a process inherited is handed on while its own ledger is open, and kept afterwards."""
    here = this_process()
    above = Process(os.getppid(), here.start - 1, here.space)
    monkeypatch.setenv("TULLE_LEDGER_PROCESS", str(above))
    leave_marker()
    assert os.environ["TULLE_LEDGER_PROCESS"] == f"{above},{here}"
    take_marker_away()
    assert os.environ["TULLE_LEDGER_PROCESS"] == str(above)


# --- markers ---------------------------------------------------------------------------------------------------------


def test_a_marker_carries_number_and_start_and_goes_with_the_ledger(folder: Path) -> None:
    """And the folder is closed to others."""
    with Ledger(CAP), Ledger(CAP):
        (marker,) = folder.iterdir()
        number, start, _ = marker.name.split("-")
        assert (int(number), int(start)) == (os.getpid(), this_process().start)
        assert f"process {number}, started at {start}" in marker.read_text()
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert list(folder.iterdir()) == []


def test_a_reused_number_is_no_ancestor_and_its_marker_is_removed(folder: Path) -> None:
    """The parent's number with another start: the process that had a ledger open is gone."""
    folder.mkdir(mode=0o700)
    here, parent = this_process(), markers._seen(os.getppid())
    assert parent is not None
    reused = folder / str(Process(parent.number, parent.start - 1, here.space))
    reused.touch()
    assert why_not_to_fit() == ""
    assert not reused.exists()
    right = folder / str(Process(parent.number, parent.start, here.space))
    right.touch()
    assert f"number {parent.number}" in why_not_to_fit()


def test_markers_of_the_dead_and_of_another_boot_are_removed(folder: Path) -> None:
    """A process that was killed with its ledger open stands in nobody's way for ever; foreign files stay."""
    folder.mkdir(mode=0o700)
    here = this_process()
    gone = subprocess.Popen(["true"])
    gone.wait()
    killed = subprocess.Popen(["sleep", "60"])
    os.kill(killed.pid, signal.SIGKILL)
    while (state := markers._seen(killed.pid)) is not None and state.state != "Z":
        time.sleep(0.01)
    assert state is not None
    dead = [
        Process(gone.pid, here.start, here.space),
        Process(killed.pid, state.start, here.space),  # not yet buried by its parent
        Process(os.getppid(), 1, "0" * 12 + ".0"),
    ]
    for process in dead:
        (folder / str(process)).touch()
    (folder / "a note").touch()
    elsewhere = folder / str(Process(os.getpid(), here.start + 10**9, here.space.partition(".")[0] + ".other"))
    elsewhere.touch()  # of a container that shares the folder: it cannot be told whether it runs
    assert why_not_to_fit() == ""
    killed.wait()
    assert sorted(place.name for place in folder.iterdir()) == sorted(["a note", elsewhere.name])


def test_without_proc_any_marker_of_a_living_process_counts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ancestors cannot be read there; with no marker the fit runs."""
    monkeypatch.setattr(markers, "_PROC", folder / "none")
    assert fit() == "fitted"
    with Ledger(CAP) as ledger:
        assert fit() == "fitted"
    assert len(ledger.fits) == 1
    sleeper = subprocess.Popen(["sleep", "60"])
    (folder / str(Process(sleeper.pid, 0, ""))).touch()
    assert f"a ledger is open in another process, number {sleeper.pid}" in fit()
    sleeper.kill()
    sleeper.wait()
    assert fit() == "fitted"
    assert list(folder.iterdir()) == []


def test_a_marker_that_was_cleared_away_is_left_again_by_the_next_fit(folder: Path) -> None:
    """Systems delete what seems unused in such folders."""
    with Ledger(CAP):
        (marker,) = folder.iterdir()
        marker.unlink()
        fit()
        assert marker.exists()


@pytest.mark.parametrize("kind", ["link", "file", "open"])
def test_folders_that_others_could_write_are_not_used(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one is; where there is none, no ledger is opened."""
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    bad = tmp_path / "bad"
    if kind == "link":
        bad.symlink_to(tmp_path / "elsewhere")
    elif kind == "file":
        bad.touch()
    else:
        bad.mkdir()
        bad.chmod(0o777)
    monkeypatch.setattr(markers, "FOLDERS", (bad, tmp_path / "good"))
    with Ledger(CAP):
        assert len([*tmp_path.glob("good/*")]) == 1
    assert list((tmp_path / "elsewhere").iterdir()) == []
    monkeypatch.setattr(markers, "FOLDERS", (bad,))
    with pytest.raises(MarkerError, match=r"none of .*bad can be used"), Ledger(CAP):
        pass
    assert fit() == "fitted"


def test_the_folder_does_not_depend_on_the_environment(tmp_path: Path) -> None:
    """Neither TMPDIR nor the folder of a login session."""
    code = "import tulle.ledgers.open_markers as m; print(*m.FOLDERS)"
    settings = [{}, {"TMPDIR": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)}]
    said = [subprocess.check_output([sys.executable, "-c", code], env={**os.environ, **one}) for one in settings]
    assert said[0] == said[1]
