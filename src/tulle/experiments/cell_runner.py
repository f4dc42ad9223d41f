"""Runs the cells of an experiment in parallel, each once, and goes on where an earlier run was stopped.

A folder holds

    settings.json   what the folder is of; written first, and a run with other settings is refused
    cells/          one JSON file a finished cell, written whole by the process that ran it, with a checksum of all that
                    it depends on: where code or data changed, what depends on them is run again, and nothing else
    claims/, runs/  locks, one for each running cell and each run: two runs in one folder share the work
    log.jsonl       a line for each cell that was started
    results.csv     the values, times.csv the seconds, machine.json where and with what they were found

Nothing here knows what a cell does: that is a `Task`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tulle.experiments.cells import Cell, Finished, Task
from tulle.experiments.dependencies import sources
from tulle.experiments.machine import machine
from tulle.experiments.run_progress import Progress
from tulle.experiments.stored_cells import Part, joined_checksum
from tulle.files.csv_cells import write_csv
from tulle.files.durable_writes import locked, name_file, write_durably
from tulle.files.error_messages import describe_error
from tulle.files.number_text import finite
from tulle.monitoring.log_events import log_event, muted

_RESULTS_DEPEND_ON = "nothing"

_FORMAT = "tulle experiment 2"
# What a run makes before its settings are written.
_BEFORE_SETTINGS = ("claims", "runs", "start.lock")
# What goes with the cells when a folder is begun afresh.
_MADE_OF_CELLS = (
    "log.jsonl",
    "results.csv",
    "times.csv",
    "machine.json",
    "table.md",
    "comparison.json",
    "report.html",
)
# Seconds between looks at cells that another run is busy with, and at whether a worker's parent still lives.
_PATIENCE = 0.2


class OtherSettingsError(ValueError):
    """The folder belongs to another experiment."""


class InterruptedRun(KeyboardInterrupt):
    """Ctrl-C. What was finished is kept."""


class LostWorkerError(OSError):
    """A worker process was killed from outside."""


# --- the folder ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Folder:
    """Where a run keeps its finished cells.

    Attributes
    ----------
    path : path
    settings : mapping
        The settings of the run.
    wanted : mapping of cells to str
        A checksum of all that each cell depends on: a result with another one is out of date.
    code : mapping of cells to str
        The part of it that is code.
    """

    path: Path
    settings: Mapping[str, Any]
    wanted: Mapping[Cell, str] = field(default_factory=dict)
    code: Mapping[Cell, str] = field(default_factory=dict)

    @cached_property
    def _digest(self) -> str:
        return _digest(self.settings)

    def _name(self, cell: Cell) -> str:
        # The settings too: a run with other settings, which may still be writing, uses other names.
        digest = _digest({"settings": self._digest, "cell": asdict(cell)})
        budget = "" if cell.epsilon is None else f"-{cell.epsilon:g}"
        words = re.sub(r"[^a-zA-Z0-9.]+", "_", f"{cell.data[:24]}-{cell.method[:32]}{budget}-{cell.trial}")
        return f"{words}-{digest[:16]}"

    def _cell_path(self, cell: Cell) -> Path:
        return self.path / "cells" / f"{self._name(cell)}.json"

    def load(self, cell: Cell) -> Finished | None:
        """A finished cell; None where there is none, where its file is damaged, or what it depends on has changed."""
        try:
            kept = json.loads(self._cell_path(cell).read_text(encoding="utf-8"))
            depends = str(kept.pop("depends"))
            finished = Finished(
                Cell(**kept["cell"]), dict(kept["values"]), float(kept["seconds"]), str(kept["failed"]), kept["code"]
            )
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return finished if finished.cell == cell and depends == self.wanted.get(cell, "") else None

    def finished(self, cells: Iterable[Cell]) -> dict[Cell, Finished]:
        """Those of some cells that have a result; a failure is none."""
        return {cell: kept for cell in cells if (kept := self.load(cell)) is not None and not kept.failed}

    def only(self, cell: Cell) -> Folder:
        """This folder for one cell: what other cells depend on need not travel to other processes."""
        return replace(self, wanted={cell: self.wanted.get(cell, "")}, code={cell: self.code.get(cell, "")})

    def is_of_the_past(self, cell: Cell) -> bool:
        """Whether there is a result of the cell that no longer holds."""
        return self._cell_path(cell).exists() and self.load(cell) is None

    def save(self, finished: Finished) -> None:
        kept = {**asdict(finished), "depends": self.wanted.get(finished.cell, "")}
        write_text(self._cell_path(finished.cell), json.dumps(finite(kept), ensure_ascii=False, allow_nan=False))

    def log_start(self, cell: Cell) -> None:
        """One line in one write, which processes can do at the same time."""
        line = json.dumps({"started": asdict(cell), "at": time.time(), "process": os.getpid()}, ensure_ascii=False)
        place = self.path / "log.jsonl"
        handle = os.open(place, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            with name_file(place):
                os.write(handle, f"{line}\n".encode())
        finally:
            os.close(handle)

    @contextmanager
    def claim(self, cell: Cell) -> Iterator[bool]:
        """Whether this process may run the cell; while it does, no other may. A killed process claims nothing."""
        with ExitStack() as held:
            try:
                held.enter_context(locked(self.path / "claims" / self._name(cell), seconds=0))
            except TimeoutError:
                yield False
                return
            yield True

    @contextmanager
    def opened(self, *, restart: bool) -> Iterator[None]:
        """Check or write the settings; while it is open no other run may start the folder afresh."""
        self.path.mkdir(parents=True, exist_ok=True)
        names = sorted(found.name for found in self.path.iterdir())
        foreign = [name for name in names if name not in _BEFORE_SETTINGS and not name.endswith(".partial")]
        if foreign and not (self.path / "settings.json").exists():
            raise OtherSettingsError(
                f"{self.path} contains files that are not of an experiment ({foreign[0]}); choose a new folder"
            )
        for folder in ("claims", "runs"):
            (self.path / folder).mkdir(exist_ok=True)
        ours = self.path / "runs" / f"{os.getpid()}-{time.time_ns()}"
        with ExitStack() as held:
            with locked(self.path / "start.lock"):
                at_work = self._others_at_work()
                if restart and at_work:
                    raise OtherSettingsError(
                        f"another run is using {self.path}; wait for it or stop it before you restart"
                    )
                if restart:
                    self._clear()
                self._check_or_write_settings(replace=restart)
                (self.path / "cells").mkdir(exist_ok=True)
                held.callback(ours.unlink, missing_ok=True)
                held.enter_context(locked(ours))
            yield

    def _others_at_work(self) -> bool:
        """Whether a run holds its lock; the locks of runs that were killed are swept away."""
        for run in list((self.path / "runs").iterdir()):
            try:
                with locked(run, seconds=0):
                    pass
            except TimeoutError:
                return True
            run.unlink(missing_ok=True)
        return False

    def _clear(self) -> None:
        shutil.rmtree(self.path / "cells", ignore_errors=True)
        for name in _MADE_OF_CELLS:
            (self.path / name).unlink(missing_ok=True)

    def _check_or_write_settings(self, *, replace: bool) -> None:
        path = self.path / "settings.json"
        if replace or not path.exists():
            text = json.dumps({"format": _FORMAT, "settings": self.settings}, indent=2, ensure_ascii=False)
            write_text(path, text)
            return
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            known = kept["settings"] if kept["format"] == _FORMAT else None
        except (ValueError, TypeError, KeyError):
            known = None
        advice = "choose another folder, or pass --restart to delete its contents"
        if not isinstance(known, dict):
            raise OtherSettingsError(f"{path} has a format that this version cannot read; {advice}")
        wanted = json.loads(_canonical(self.settings))
        differing = [name for name in sorted({*known, *wanted}) if known.get(name) != wanted.get(name)]
        if differing:
            words = "; ".join(
                f"{name} was {_short(known.get(name))}, now {_short(wanted.get(name))}" for name in differing
            )
            raise OtherSettingsError(f"{self.path} contains results for other settings ({words}); {advice}")


def write_text(path: Path, text: str) -> None:
    """Write a text file that appears whole or not at all."""
    write_durably(path, f"{text.rstrip()}\n".encode())


def _canonical(values: Mapping[str, Any]) -> str:
    return json.dumps(values, sort_keys=True, ensure_ascii=False, allow_nan=False)


def _digest(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(_canonical(values).encode()).hexdigest()


def _short(value: Any) -> str:
    text = "unsaid" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else f"{text[:32]}…"


# --- running ---------------------------------------------------------------------------------------------------------


def run_cells(
    task: Task,
    folder: str | os.PathLike[str],
    *,
    jobs: int | None = None,
    restart: bool = False,
    progress: bool = False,
    part: Part | None = None,
) -> list[Finished]:
    """Run all cells that the folder does not hold yet, and return all of them, in the task's order.

    Parameters
    ----------
    task : Task
    folder : path
        Made where it does not exist. A run that was stopped goes on when called again.
    jobs : int or None, default=None
        Processes, at least 1; None: as many as there are cores.
    restart : bool, default=False
        Throw away what the folder holds.
    progress : bool, default=False
        Show it on standard error.
    part : Part or None, default=None
        Of a file of finished cells: what it has is taken over where it still holds, and it gets all finished cells,
        also where the run is stopped.

    Returns
    -------
    list of Finished
        A cell that failed is among them, and is run again when called again.
    """
    from joblib import cpu_count

    jobs = int(cpu_count()) if jobs is None else jobs
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1, got {jobs}")
    cells = list(task.cells())
    if len(set(cells)) < len(cells):
        raise ValueError("the task lists a cell twice")
    code = code_checksums(task, cells)
    wanted = {
        cell: joined_checksum(code[cell], settings_checksum(task, cell), files_checksum(task, cell)) for cell in cells
    }
    store = Folder(Path(folder), task.fingerprint(), wanted, code)
    with store.opened(restart=restart):
        finished = store.finished(cells)
        if part is not None:
            taken_over = _take_over(store, part, [cell for cell in cells if cell not in finished])
            if taken_over and progress:
                print(f"{len(taken_over)} cells are taken over from earlier results", file=sys.stderr)
            finished |= taken_over
            part.begin(finished, wanted)
        past = sum(store.is_of_the_past(cell) for cell in cells if cell not in finished)
        if past and progress:
            print(
                f"{past} cells are run again: the code, data or settings that they depend on changed", file=sys.stderr
            )
        log_event(__name__, "comparison.begin", done=len(finished), total=len(cells))
        with Progress(cells, finished, jobs, progress), muted():  # cells are not released; their fits would flood a log
            try:
                _run_missing(store, task, cells, finished, jobs, part)
            except KeyboardInterrupt:
                # Workers saved some results that this process does not know of.
                saved = len(store.finished(cells))
                raise InterruptedRun(
                    f"interrupted; {saved} of {len(cells)} cells are saved in {store.path}; the same command "
                    "resumes from there"
                ) from None
            finally:
                if part is not None:
                    for cell, kept in store.finished(cell for cell in cells if cell not in finished).items():
                        part.add(kept, wanted[cell])
                    part.save()
        results = [finished[cell] for cell in cells]
        _write_results(store.path, results)
        failed = sum(bool(one.failed) for one in results)
        log_event(__name__, "comparison.end", done=len(results), total=len(cells), failed=failed)
    return results


def code_checksums(task: Task, cells: Sequence[Cell]) -> dict[Cell, str]:
    """A checksum of the code that each cell depends on."""
    named = {cell: tuple(task.sources(cell)) for cell in cells}
    digests = {modules: sources().digest(modules) for modules in set(named.values())}
    return {cell: digests[modules] for cell, modules in named.items()}


def settings_checksum(task: Task, cell: Cell) -> str:
    return _digest(dict(task.depends(cell)))


def files_checksum(task: Task, cell: Cell) -> str:
    """A checksum of the files that a cell reads; FileNotFoundError where they are not there."""
    return _digest({"files": task.files_digest(cell)})


def _take_over(store: Folder, part: Part, cells: Iterable[Cell]) -> dict[Cell, Finished]:
    """Save earlier results that still hold, and return them."""
    found = {}
    for cell in cells:
        if (earlier := part.earlier(cell, store.wanted[cell])) is not None:
            found[cell] = replace(earlier, cell=cell, code=store.code[cell])
            store.save(found[cell])
    return found


def _run_missing(
    store: Folder, task: Task, cells: list[Cell], finished: dict[Cell, Finished], jobs: int, part: Part | None
) -> None:
    while left := [cell for cell in cells if cell not in finished]:
        for result in _each(store, task, left, min(jobs, len(left))):
            if result is not None:
                finished[result.cell] = result
                if part is not None:
                    part.add(result, store.wanted[result.cell])
        if any(cell not in finished for cell in left):
            time.sleep(_PATIENCE)  # another run is busy with the rest


def _each(store: Folder, task: Task, cells: Iterable[Cell], jobs: int) -> Iterator[Finished | None]:
    """What `_run_cell` gives for each cell, as soon as it does."""
    if jobs == 1:
        yield from (_run_cell(store.only(cell), task, cell) for cell in cells)
        return
    from joblib import Parallel, delayed, parallel_config
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    with (
        parallel_config(backend="loky", inner_max_num_threads=1, initializer=_follow_parent, initargs=(os.getpid(),)),
        Parallel(n_jobs=jobs, batch_size=1, return_as="generator_unordered") as parallel,
    ):
        try:
            # All workers start here, before the first cell: Ctrl-C after it is never lost.
            with _interrupts_ignored():
                list(parallel(delayed(os.getpid)() for _ in range(jobs)))
            yield from parallel(delayed(_run_cell)(store.only(cell), task, cell) for cell in cells)
        except TerminatedWorkerError:
            raise LostWorkerError(
                f"a worker process was killed, perhaps for lack of memory. Finished cells are saved in {store.path}; "
                "the same command with fewer --jobs resumes from there"
            ) from None


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Processes that start in here leave Ctrl-C, which a terminal sends to all, to their parent."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _follow_parent(parent: int) -> None:
    """Make this worker end with its parent, however that ends: loky's workers would wait for work for minutes."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_PATIENCE)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _run_cell(store: Folder, task: Task, cell: Cell) -> Finished | None:
    """Run a cell and keep its result; None where another process is at it."""
    from threadpoolctl import threadpool_limits

    with store.claim(cell) as ours:
        if not ours:
            return None
        kept = store.load(cell)
        if kept is not None and not kept.failed:  # somebody ran it since we looked
            return kept
        store.log_start(cell)
        start = time.perf_counter()
        values: dict[str, Any] = {}
        failed = ""
        try:
            # One thread each: the last digits of a sum depend on how many share it.
            with threadpool_limits(limits=1):
                values = dict(task.run(cell))
        except Exception as error:
            # Results are kept: what a library says may quote a row.
            failed = " ".join(describe_error(error).split())
        took = time.perf_counter() - start
        seconds = round(float(values.pop("seconds", took)), 6)
        finished = Finished(cell, finite(values), seconds, failed, store.code.get(cell, ""))
        store.save(finished)
    return finished


# --- results ---------------------------------------------------------------------------------------------------------

_AXES = ("data", "method", "epsilon", "trial")


def _write_results(folder: Path, results: Sequence[Finished]) -> None:
    names = list(dict.fromkeys(name for one in results for name, value in one.values.items() if _is_plain(value)))
    lines = [
        [*_axes(one.cell), *(one.values.get(name) for name in names), one.failed, one.code[:12]] for one in results
    ]
    write_text(folder / "results.csv", write_csv((*_AXES, *names, "failed", "code"), lines))
    times = [[*_axes(one.cell), round(one.seconds, 4)] for one in results]
    write_text(folder / "times.csv", write_csv((*_AXES, "seconds"), times))
    write_text(folder / "machine.json", json.dumps(machine(), indent=2))


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (str, int, float))


def _axes(cell: Cell) -> list[Any]:
    return [cell.data, cell.method, cell.epsilon, cell.trial]
