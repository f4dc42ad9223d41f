"""What a charge to a ledger on disk costs, with few entries and with 100,000, and whether kills lose any.

Eight processes do nothing but bill. They are killed at random moments until 300 are dead, and all entries are checked.
"""

from __future__ import annotations

import os
import random
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from timing import Line, print_lines

from tulle import Budget, FileLedger
from tulle.ledgers.chain import Chain
from tulle.ledgers.entries import Record, entry_after, to_json
from tulle.ledgers.verification import verify
from tulle.trusted.events import NoisePerSensitivity
from tulle.trusted.mechanisms import Gaussian
from tulle.trusted.plan import Plan, Release

PLAN = Plan((Release("answer", Gaussian(NoisePerSensitivity(5e4)), 1),))
ENTRIES, CHARGES, PROCESSES, KILLS = 100_000, 200, 8, 300


def open_ledger(path: Path) -> FileLedger:
    return FileLedger(path, "visits") if path.exists() else FileLedger.create(path, "visits", Budget(100.0, 1e-6))


def charge(ledger: FileLedger) -> None:
    ledger.bill("charge", [PLAN], (1e-4, 1e-12))


def fill(path: Path) -> None:
    """Write entries as charges do, but without bringing each to the disk."""
    ledger = open_ledger(path)
    charge(ledger)
    chain, (first,) = Chain(path, "visits"), ledger.entries
    last: Record = first
    for _ in range(ENTRIES - 1):
        last = entry_after(last, first, chain.opening.cap)
        (chain.folder / f"{last.number:08d}.json").write_bytes(to_json(last))


def cpu_per_charge(path: Path, *, fresh: bool) -> float:
    """Milliseconds of CPU; `fresh` opens the ledger for each charge, as a new process does."""
    ledger = open_ledger(path)
    start = time.process_time()
    for _ in range(CHARGES):
        charge(open_ledger(path) if fresh else ledger)
    return 1e3 * (time.process_time() - start) / CHARGES


def kill_processes(path: Path, log: Path) -> tuple[int, int]:
    """How many entries there are and how many releases there were, after all processes were killed."""
    rng = random.Random(0)
    open_ledger(path)
    alive: dict[int, float] = {}
    killed = 0
    while killed < KILLS:
        while len(alive) < PROCESSES:
            if (child := os.fork()) == 0:
                handle = os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
                while True:
                    charge(open_ledger(path))
                    os.write(handle, b".")  # the noise would be drawn here
            alive[child] = time.monotonic() + rng.uniform(0.05, 1.0)
        time.sleep(0.005)
        for child in [child for child, due in alive.items() if time.monotonic() > due]:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            del alive[child]
            killed += 1
    for child in alive:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return verify(path, "visits").last.number, log.stat().st_size


def measure() -> Iterator[Line]:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        fill(place / "full")
        for fresh in (False, True):
            few, many = (cpu_per_charge(place / which, fresh=fresh) for which in ("few", "full"))
            how = "opened for it" if fresh else "open"
            yield f"a charge to a ledger, {how}: ms of CPU", few, "<= 10"
            yield f"the same after {ENTRIES:,} entries, times that", many / few, "<= 1.5"
        entries, releases = kill_processes(place / "killed", place / "log")
        yield f"{KILLS} kills over {PROCESSES} processes that bill all the time: releases", releases, "(no target)"
        yield "entries after these kills, for each release; all are whole", entries / releases, ">= 1"


if __name__ == "__main__":
    print_lines(measure())
