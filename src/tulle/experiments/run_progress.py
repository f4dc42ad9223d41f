"""How far a run of cells is, and how long it will take."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping, Sequence

from tulle.experiments.cells import Cell, Finished

_RESULTS_DEPEND_ON = "nothing"


class Progress:
    """Done of all, failures and the time left, on standard error: in place on a terminal, else a line now and then."""

    def __init__(self, cells: list[Cell], finished: Mapping[Cell, Finished], jobs: int, shown: bool) -> None:
        self._cells, self._finished, self._jobs = cells, finished, jobs
        self._shown = shown
        self._in_place = sys.stderr.isatty()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> None:
        if self._shown:
            self._thread.start()

    def __exit__(self, *error: object) -> None:
        if self._shown:
            self._stop.set()
            self._thread.join()
            self._show(end="\n")

    def _tick(self) -> None:
        while not self._stop.wait(0.5 if self._in_place else 10.0):
            self._show(end="" if self._in_place else "\n")

    def _show(self, end: str) -> None:
        text = progress_line(self._cells, list(self._finished.values()), self._jobs)
        print(f"\r\x1b[K{text}" if self._in_place else text, end=end, file=sys.stderr, flush=True)


def progress_line(cells: Sequence[Cell], finished: Sequence[Finished], jobs: int) -> str:
    """How far it is, and how long it will take if cells go on as those of the same method did."""
    seconds: dict[str, list[float]] = {}
    for one in finished:
        seconds.setdefault(one.cell.method, []).append(one.seconds)
    done = {one.cell for one in finished}
    failures = sum(bool(one.failed) for one in finished)
    text = f"{len(done)}/{len(cells)} cells" + (f", {failures} failed" if failures else "")
    left = [cell for cell in cells if cell not in done]
    if not left or not finished:
        return text
    overall = sum(one.seconds for one in finished) / len(finished)
    each = [sum(known) / len(known) if (known := seconds.get(cell.method)) else overall for cell in left]
    return f"{text}, about {_duration(sum(each) / jobs)} left"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
