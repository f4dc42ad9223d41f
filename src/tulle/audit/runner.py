"""Runs a subject many times in two worlds: in parallel, resumable, with progress, within a time budget."""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from tulle.files.durable_writes import name_file, write_durably
from tulle.monitoring.log_events import ProgressSteps, log_event, muted
from tulle.trusted.events import FloatArray
from tulle.trusted.randomness import keyed_generator


class Subject(Protocol):
    """What is run on two data sets, 0 and 1."""

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
    """

    runs: int
    batch: int = 500
    seed: int | None = None
    n_jobs: int = 1
    seconds: float | None = None
    folder: str | os.PathLike[str] | None = None
    verbose: int = 0
    stream: tuple[int, ...] = ()


def collect(subject: Subject, schedule: Schedule, what: str, look: str = "") -> tuple[FloatArray, FloatArray]:
    """What the subject released in each of the two worlds. `look` says how it will be judged, where not as usual."""
    from joblib import Parallel, delayed, effective_n_jobs

    store = _Store(schedule, subject.fingerprint() + look)
    tasks = [(world, index) for index in range(-(-schedule.runs // schedule.batch)) for world in (0, 1)]
    results: dict[tuple[int, int], FloatArray] = {task: store.load(*task) for task in tasks if store.has(*task)}
    missing = [task for task in tasks if task not in results]
    steps, start = ProgressSteps(len(missing)), time.monotonic()
    log_event(__name__, "audit.begin", done=len(results), total=len(tasks))
    # A chunk of a few tasks at a time, so that a time limit or Ctrl-C loses no more than that.
    for chunk in _chunks(missing, 4 * effective_n_jobs(schedule.n_jobs)):
        with muted():  # a fit of tulle that is audited runs thousands of times
            answers = Parallel(n_jobs=schedule.n_jobs)(
                delayed(_run_batch)(subject, world, schedule.batch, store.seed, (*schedule.stream, world, index))
                for world, index in chunk
            )
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
    first, second = (np.concatenate([results[world, index] for index in complete]) for world in (0, 1))
    return first[: schedule.runs], second[: schedule.runs]


def _run_batch(subject: Subject, world: int, count: int, seed: int, stream: tuple[int, ...]) -> FloatArray:
    released = np.asarray(subject(world, count, keyed_generator(seed, stream)), dtype=float)
    return released.reshape(count, -1)


def _chunks(items: list[tuple[int, int]], size: int) -> Iterator[list[tuple[int, int]]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


class _Store:
    """Finished batches on disk, each written whole or not at all."""

    def __init__(self, schedule: Schedule, fingerprint: str) -> None:
        self.seed = secrets.randbits(63) if schedule.seed is None else schedule.seed
        self._folder = None if schedule.folder is None else Path(schedule.folder)
        if self._folder is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        note = self._folder / "audit.json"
        # The number of runs too: going on until a claim falls would be many looks at the price of one.
        wanted = {"subject": fingerprint, "batch": schedule.batch, "runs": schedule.runs}
        if note.exists():
            kept = json.loads(note.read_text())
            if schedule.seed not in (None, kept["seed"]) or {k: kept[k] for k in wanted} != wanted:
                raise ValueError(
                    f"{self._folder} contains another audit (of another subject, seed, number of runs or judge); "
                    "choose another folder or delete it"
                )
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
