"""Runs a subject many times in two worlds: in parallel, resumable, with progress, within a time budget."""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tulle.files.durable_writes import name_file, write_durably
from tulle.monitoring.log_events import ProgressSteps, log_event, muted
from tulle.trusted.events import FloatArray
from tulle.trusted.randomness import keyed_generator


class Subject(Protocol):
    """Runs on two data sets, 0 and 1."""

    def __call__(self, world: int, count: int, generator: np.random.Generator) -> FloatArray:
        """What `count` runs released, of shape (count, numbers)."""
        ...

    def fingerprint(self) -> str:
        """Tells this subject from others, so that a folder never mixes the runs of two."""
        ...


@dataclass(frozen=True)
class Schedule:
    """How the runs of an audit are made.

    Attributes
    ----------
    runs : int
        In each world.
    batch : int
        Runs made by one task, from one stream of random numbers.
    seed : int or None
        None takes a fresh one; the result of a seed does not depend on `n_jobs` or on interruptions.
    n_jobs : int
        Processes, as in joblib.
    seconds : float or None
        Stop after this time with the runs that are there.
    folder : path or None
        Save finished batches here and, when called again with the same subject and runs, resume from them.
    verbose : int
        1 shows progress on standard error.
    stream : tuple of int
        Tells the random streams of this schedule from those of another under the same seed.
    paired : bool
        Whether runs of the same number have the same random numbers in both worlds. The subject must then draw those of
        each run from a source of its own, so that pairs are independent of each other.
    """

    runs: int
    batch: int = 500
    seed: int | None = None
    n_jobs: int = 1
    seconds: float | None = None
    folder: str | os.PathLike[str] | None = None
    verbose: int = 0
    stream: tuple[int, ...] = ()
    paired: bool = False


def collect(subject: Subject, schedule: Schedule, what: str, look: str = "") -> tuple[FloatArray, FloatArray]:
    """What the subject released in each of the two worlds. `look` says how it will be judged, where not as usual."""
    from joblib import effective_n_jobs

    # The number of runs too: going on until a claim falls would be many looks at the price of one.
    kept = {"subject": subject.fingerprint() + look, "batch": schedule.batch, "runs": schedule.runs}
    store = Store(schedule.folder, schedule.seed, kept)
    tasks = [(world, index) for index in range(-(-schedule.runs // schedule.batch)) for world in (0, 1)]
    results: dict[tuple[int, int], FloatArray] = {task: store.load(*task) for task in tasks if store.has(*task)}
    missing = [task for task in tasks if task not in results]
    steps, start = ProgressSteps(len(missing)), time.monotonic()
    log_event(__name__, "audit.begin", done=len(results), total=len(tasks))
    # A chunk of a few tasks at a time, so that a time limit or Ctrl-C loses no more than that.
    for chunk in _chunks(missing, 4 * effective_n_jobs(schedule.n_jobs)):
        batches = [
            (world, schedule.batch, (*schedule.stream, 0 if schedule.paired else world, index))
            for world, index in chunk
        ]
        answers = run_batches(subject, batches, store.seed, schedule.n_jobs)
        for task, answer in zip(chunk, answers):
            store.save(*task, answer)
            results[task] = answer
            if steps.advance():
                log_event(__name__, "audit.progress", done=len(results), total=len(tasks))
        spent = time.monotonic() - start
        if schedule.verbose:
            left = spent / (len(results) - len(tasks) + len(missing)) * (len(tasks) - len(results))
            text = f"\r{what}: {len(results)}/{len(tasks)} batches of {schedule.batch}, {left:.0f} s left "
            print(text, end="", file=sys.stderr, flush=True)
        if schedule.seconds is not None and spent > schedule.seconds:
            break
    if schedule.verbose:
        print(file=sys.stderr)
    log_event(__name__, "audit.end", done=len(results), total=len(tasks))
    complete = [index for index in range(len(tasks) // 2) if (0, index) in results and (1, index) in results]
    first, second = (join_runs([results[world, index] for index in complete]) for world in (0, 1))
    join_runs([first[:1], second[:1]])  # checks the sizes
    return first[: schedule.runs], second[: schedule.runs]


def run_batches(
    subject: Subject, batches: Sequence[tuple[int, int, tuple[int, ...]]], seed: int, n_jobs: int
) -> list[FloatArray]:
    """What was released in each batch: (world, number of runs, random stream)."""
    from joblib import Parallel, delayed

    with muted():  # a fit of tulle that is audited runs thousands of times
        return list(Parallel(n_jobs=n_jobs)(delayed(_run_batch)(subject, seed, *batch) for batch in batches))


def _run_batch(subject: Subject, seed: int, world: int, count: int, stream: tuple[int, ...]) -> FloatArray:
    released = np.asarray(subject(world, count, keyed_generator(seed, stream)), dtype=float)
    return released.reshape(count, -1)


def join_runs(parts: list[FloatArray]) -> FloatArray:
    """The runs of several batches; an error where they released different numbers of values."""
    widths = sorted({part.shape[1] for part in parts})
    if len(widths) > 1:
        raise different_sizes(widths)
    return np.concatenate(parts)


def different_sizes(widths: list[int]) -> ValueError:
    """What to do if runs release different numbers of values."""
    return ValueError(
        f"a release must have the same size in every run, on both data sets; it had {widths[0]} values in one "
        f"run and {widths[-1]} in another. Let fit fill up shorter answers, with zeros for example"
    )


def _chunks(items: list[tuple[int, int]], size: int) -> Iterator[list[tuple[int, int]]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


_PAIR = "pair.json"


def choose_once(folder: str | os.PathLike[str] | None, names: Sequence[str], choose: Callable[[], str]) -> str:
    """The pair of data sets that a folder of saved runs was made on; else the one that `choose` names, which is kept.

    An estimator may have randomness of its own, so that a second pilot could choose another pair.
    """
    kept = None if folder is None else Path(folder) / _PAIR
    if kept is None or not kept.exists():
        chosen = choose()
        if kept is not None:
            kept.parent.mkdir(parents=True, exist_ok=True)
            write_durably(kept, json.dumps({"pair": chosen}).encode())
        return chosen
    found = _read_note(kept, "pair")["pair"]
    if found not in names:
        raise _another_audit(kept.parent)
    return found


def _read_note(path: Path, *names: str) -> dict[str, Any]:
    """What a file of an audit's folder says; it has these names."""
    try:
        note = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        note = None
    if isinstance(note, dict) and all(name in note for name in names):
        return note
    raise ValueError(
        f"{path} is damaged: restore it from a copy of the folder, or delete {path.parent} and run the audit again "
        "from the start"
    )


def time_left(seconds: float | None, start: float) -> float | None:
    """The part of a time limit that is left, for an audit that began at `start`, a time of `time.monotonic`."""
    return None if seconds is None else max(0.0, seconds - (time.monotonic() - start))


def _another_audit(folder: Path) -> ValueError:
    return ValueError(
        f"{folder} contains another audit (of another subject, claim, seed, number of runs or judge); choose another "
        "folder or delete it"
    )


class Store:
    """Finished batches on disk, each written whole or not at all.

    `wanted` says what the runs are of; a folder with anything else is refused.
    """

    def __init__(self, folder: str | os.PathLike[str] | None, seed: int | None, wanted: dict[str, Any]) -> None:
        self.seed = secrets.randbits(63) if seed is None else seed
        self._folder = None if folder is None else Path(folder)
        if self._folder is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        note = self._folder / "audit.json"
        if note.exists():
            kept = _read_note(note, "seed")
            if seed not in (None, kept["seed"]) or {name: kept.get(name) for name in wanted} != wanted:
                raise _another_audit(self._folder)
            self.seed = kept["seed"]
        else:
            write_durably(note, json.dumps(wanted | {"seed": self.seed}).encode())

    def _path(self, world: int, index: int) -> Path:
        assert self._folder is not None
        return self._folder / f"batch-{world}-{index}.npy"

    def has(self, world: int, index: int) -> bool:
        return self._folder is not None and self._path(world, index).exists()

    def load(self, world: int, index: int) -> FloatArray:
        return np.asarray(np.load(self._path(world, index)))

    def save(self, world: int, index: int, answer: FloatArray) -> None:
        if self._folder is None:
            return
        partial = self._path(world, index).with_suffix(".partial")
        with name_file(self._path(world, index)):
            with partial.open("wb") as file:
                np.save(file, answer)
            os.replace(partial, self._path(world, index))
