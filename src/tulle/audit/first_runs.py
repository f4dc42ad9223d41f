"""The first runs of a target: whether it can be audited at all, and how long the audit will take.

These runs are not counted. They find a target that raises, that releases nothing finite or always the same, whose
release changes in size, that changes its rows, or that keeps state from one run to the next.
"""

from __future__ import annotations

import inspect
import math
import pickle
import random
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from tulle.audit.fingerprints import digest
from tulle.audit.runner import Schedule
from tulle.files.error_messages import describe_error
from tulle.trusted.events import FloatArray
from tulle.trusted.randomness import keyed_generator

Fit = Callable[[Any, Any, np.random.Generator], Any]
Worlds = tuple[tuple[Any, Any], tuple[Any, Any]]

# A release that is the same in so many runs on each data set is taken for one without noise.
SAME_RUNS = 64
# The first runs take no longer than this where the target is slow, except for four of them.
_PATIENCE_S = 10.0
# An audit that takes longer says so.
_LONG_S = 60.0
_FEWEST, _FEWEST_UNTIL_SURE = 8, 24


class TargetError(ValueError):
    """A target that cannot be audited as it is."""


def run_once(fit: Fit, world: tuple[Any, Any], generator: np.random.Generator) -> FloatArray:
    """The numbers that one run released."""
    try:
        return np.ravel(np.asarray(fit(*world, generator), dtype=float))
    except TargetError:
        raise
    except Exception as error:
        # The message of another library may quote a row.
        raise TargetError(
            f"{name_of(fit)}(X, y, rng) must return numbers, and failed: {describe_error(error)}"
        ) from error


def name_of(fit: Fit) -> str:
    return getattr(fit, "__name__", type(fit).__name__)


def check_first_runs(fit: Fit, worlds: Worlds, schedule: Schedule, until_sure: bool = False) -> Schedule:
    """Make a few runs and raise `TargetError` where an audit would be wrong or useless.

    Parameters
    ----------
    fit : callable
    worlds : pair of (X, y)
    schedule : Schedule
    until_sure : bool, default=False
        Whether the audit may stop before it has made all runs.

    Returns
    -------
    Schedule
        With smaller batches where a time limit is so short that whole batches would exceed it.
    """
    name, rows = name_of(fit), digest(*worlds[0], *worlds[1])
    state, times = _state(fit), list[float]()

    def released(world: int, number: int) -> FloatArray:
        begin = time.monotonic()
        run = run_once(fit, worlds[world], keyed_generator(0, (2, number)))
        times.append(time.monotonic() - begin)
        return run

    # The third run has the generator of the first, after a run on the other rows.
    runs = [released(0, 0), released(1, 0), released(0, 0), released(1, 1)]
    if digest(*worlds[0], *worlds[1]) != rows:
        raise TargetError(f"{name} changes X or y, which later runs read: let it copy them")
    sizes = sorted({run.size for run in runs})
    if len(sizes) > 1:
        raise TargetError(
            f"{name} released {sizes[0]} numbers in one run and {sizes[-1]} in another: return arrays of one size, "
            "filled up with zeros"
        )
    if not any(np.isfinite(run).any() for run in runs):
        raise TargetError(f"{name} released no finite number in {len(runs)} runs: check what it does on these rows")
    changed = [part for part, before in state.items() if _state(fit).get(part) != before]
    if changed and not np.array_equal(runs[0], runs[2], equal_nan=True):
        raise TargetError(
            f"{name} keeps state between runs ({', '.join(sorted(changed))} changed, and the same rows with the same "
            "generator gave another release): runs must be independent, so create that state again in each run"
        )
    _check_noise(name, released, runs, times)
    return _within_time(name, schedule, max(1e-9, min(times)), until_sure)  # the first run also imports and compiles


def _check_noise(
    name: str, released: Callable[[int, int], FloatArray], runs: list[FloatArray], times: list[float]
) -> None:
    first = runs[:2]  # of each data set
    if any(not np.array_equal(first[number % 2], run, equal_nan=True) for number, run in enumerate(runs)):
        return
    for number in range(2, SAME_RUNS):
        if sum(times) > _PATIENCE_S:
            return
        if any(not np.array_equal(first[world], released(world, number), equal_nan=True) for world in (0, 1)):
            return
    raise TargetError(
        f"{name} released the same numbers in {SAME_RUNS} runs on each data set: it has no noise, or always the same. "
        "Without noise no epsilon is true, and no audit is needed; if its seed is fixed, take randomness from rng"
    )


def _within_time(name: str, schedule: Schedule, each: float, until_sure: bool) -> Schedule:
    """Say how long the audit will take, and make batches that a time limit can stop."""
    from joblib import effective_n_jobs

    jobs = effective_n_jobs(schedule.n_jobs)
    expected = 2 * schedule.runs * each / jobs
    fewest, at_most = (_FEWEST_UNTIL_SURE, "at most ") if until_sure else (_FEWEST, "")
    told = (
        f"{name} takes about {each:.2g} s a run: {at_most}{2 * schedule.runs:,} runs take about {_duration(expected)}"
    )
    if schedule.seconds is None:
        if schedule.verbose:
            print(told, file=sys.stderr, flush=True)
        elif expected > _LONG_S:
            warnings.warn(f"{told}; limit the time with seconds=, or pass n_jobs=-1", stacklevel=4)
        return schedule
    fitting = math.floor(schedule.seconds * jobs / (2 * each))
    if schedule.folder is not None:  # batches in a folder have one size, and others may follow
        return schedule
    if 2 * fewest * each > max(1.0, schedule.seconds * jobs):
        raise TargetError(
            f"{name} takes about {each:.2g} s a run, so that {schedule.seconds:g} s are enough for {fitting} runs on "
            f"each data set, and an audit needs {fewest}: raise seconds, or use audit_one_run"
        )
    if schedule.verbose:
        runs = min(fitting, schedule.runs)
        print(f"{told}; about {runs:,} on each data set fit into {schedule.seconds:g} s", file=sys.stderr, flush=True)
    # Eight chunks, of four batches each, or more; and in the first chunk as many runs as an audit needs.
    batch = max(_FEWEST // 2, math.floor(schedule.seconds / (32 * each)))
    return replace(schedule, batch=min(schedule.batch, batch))


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _state(fit: Fit) -> dict[str, bytes]:
    """What a function can keep from run to run, by name: closures, attributes, globals. Generators are left out: a
    target may have randomness of its own."""
    found: dict[str, bytes] = {}
    for name, value in _parts(inspect.unwrap(fit)):
        if inspect.ismodule(value):
            continue
        inside = {} if _is_code(value) else getattr(value, "__dict__", {})
        for path, part in ((name, value),) if not inside else ((f"{name}.{key}", inside[key]) for key in inside):
            if isinstance(part, (np.random.Generator, np.random.RandomState, random.Random)):
                continue
            try:
                found[path] = pickle.dumps(part)
            except Exception:  # what cannot be pickled is not looked at
                continue
    return found


def _is_code(value: Any) -> bool:
    return inspect.isroutine(value) or inspect.isclass(value) or inspect.ismodule(value)


def _parts(fit: Any) -> Iterator[tuple[str, Any]]:
    owner = getattr(fit, "__self__", fit if not inspect.isroutine(fit) else None)
    yield from getattr(owner, "__dict__", {}).items()
    function = getattr(fit, "__func__", fit)
    if not inspect.isfunction(function):
        return
    yield from vars(function).items()
    captured = inspect.getclosurevars(function)
    yield from captured.nonlocals.items()
    yield from ((name, value) for name, value in captured.globals.items() if not _is_code(value))
