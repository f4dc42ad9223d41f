"""How time and memory of a fit grow with n, d, non-zeros a row, s and T: `python benchmarks/growth.py [--anew]`.

Each point is a process of its own, on rows drawn by `tulle.datasets.rcv1_like` (columns by a power law): a fit that is
not counted, three whose CPU times are, and one under tracemalloc. One axis is varied, the others stay at their middle.
Writes docs/speed/growth.csv, which docs/pictures/growth.py draws. A point that is in the file is not measured again,
so that a run that was stopped goes on where it was; `--anew` starts over.
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from process_memory import megabytes

TABLE = Path(__file__).resolve().parent.parent / "docs/speed/growth.csv"


@dataclass(frozen=True)
class Point:
    """One fit: who, and the five public sizes.

    Attributes
    ----------
    method : str
        A key of `STEPS`.
    n, d, per_row : int
        Rows, features and non-zero entries of a row (a column that is drawn twice counts once).
    s : int
        Weights kept.
    t : int
        T: iterations, rounds of screening, or passes over the rows, as the method counts.
    """

    method: str
    n: int
    d: int
    per_row: int
    s: int
    t: int


SIZES = {
    "n": (2_000, 6_000, 20_000, 60_000, 200_000),
    "d": (10_000, 30_000, 100_000, 300_000, 1_000_000),
    "per_row": (3, 10, 30, 100, 300),
    "s": (10, 30, 100, 300, 1_000),
}
# What T is where it does not vary, and where it does.
STEPS = {
    "hard_thresholding": (20, (2, 6, 20, 60, 200)),
    "screen_refine": (1, (1, 2, 4, 8, 16)),
    "frank_wolfe": (100, (10, 30, 100, 300, 1_000)),
    "stochastic_hard_thresholding": (3, (1, 3, 10, 30, 100)),
}
AXES = (*SIZES, "t")
COLUMNS = (*("axis", "method", "n", "d", "per_row", "s", "t"), *("seconds", "megabytes", "process_megabytes"))
RUNS = 3


def points() -> Iterator[tuple[str, Point]]:
    """Every axis with its points, middle points once for each axis."""
    middle = {axis: values[len(values) // 2] for axis, values in SIZES.items()}
    for axis in AXES:
        for method, (usual, varied) in STEPS.items():
            for value in SIZES.get(axis, varied):
                yield axis, Point(method, **(middle | {"t": usual} | {axis: value}))


# --- one point, in its own process -----------------------------------------------------------------------------------


def model_of(point: Point, seed: int) -> Any:
    from tulle import Bounds, SparseClassifier
    from tulle.methods import FrankWolfe, HardThresholding, ScreenRefine, StochasticHardThresholding

    methods = {
        "hard_thresholding": HardThresholding(n_iter=point.t),
        "screen_refine": ScreenRefine(rounds=point.t),
        "frank_wolfe": FrankWolfe(n_iter=point.t),
        "stochastic_hard_thresholding": StochasticHardThresholding(passes=point.t),
    }
    bounds = Bounds(row_l2=1.0)
    return SparseClassifier(
        1.0, 1e-5, n_nonzero=point.s, method=methods[point.method], bounds=bounds, random_state=seed
    )


def measure(point: Point) -> dict[str, float]:
    """Median CPU seconds of a fit, and the most memory it had: numpy's own, and of the process beyond the data."""
    from timing import peak_bytes, text_rows

    warnings.simplefilter("ignore")
    X, y = text_rows((point.n, point.d, point.per_row))
    model_of(point, 0).fit(X, y)  # imports and compiles what the others use
    ctypes.CDLL(None).malloc_trim(0)  # what was freed goes back, so that it counts when it is taken again
    held = megabytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew: drawing the rows took more than they do
    seconds = []
    for seed in range(1, RUNS + 1):
        start = time.process_time()
        model_of(point, seed).fit(X, y)
        seconds.append(time.process_time() - start)
    process = megabytes("VmHWM") - held
    peak = peak_bytes(lambda: model_of(point, 0).fit(X, y)) / 2**20
    return {"seconds": float(np.median(seconds)), "megabytes": peak, "process_megabytes": process}


# --- all of them -----------------------------------------------------------------------------------------------------


def read(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def run(path: Path, anew: bool, most_entries: int | None) -> None:
    """Measures missing points and writes the table after each."""
    known = {} if anew else {_key(row): {column: row[column] for column in COLUMNS[7:]} for row in read(path)}
    wanted = [
        (axis, point) for axis, point in points() if most_entries is None or point.n * point.per_row <= most_entries
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    for axis, point in wanted:
        key = _key({column: str(value) for column, value in asdict(point).items()})
        if key not in known:
            call = [sys.executable, __file__, "--point", json.dumps(asdict(point))]
            threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
            answer = subprocess.run(call, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, **threads})
            found = json.loads(answer.stdout.splitlines()[-1])
            known[key] = {name: f"{found[name]:.4g}" for name in COLUMNS[7:]}
            print(axis, *key, *known[key].values(), flush=True)
            write(path, wanted, known)
    write(path, wanted, known)


def _key(row: dict[str, str]) -> tuple[str, ...]:
    return tuple(row[column] for column in COLUMNS[1:7])


def write(path: Path, wanted: list[tuple[str, Point]], known: dict[tuple[str, ...], dict[str, str]]) -> None:
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        table.writeheader()
        for axis, point in wanted:
            row = {column: str(value) for column, value in asdict(point).items()}
            if _key(row) in known:
                table.writerow({"axis": axis, **row, **known[_key(row)]})


def main() -> None:
    parser = argparse.ArgumentParser(description="Growth of time and memory of a fit.")
    parser.add_argument("--anew", action="store_true", help="measure again what the table already has")
    parser.add_argument("--table", type=Path, default=TABLE, help="where to write (default: docs/speed/growth.csv)")
    parser.add_argument("--most-entries", type=int, help="leave out points with more entries than this")
    parser.add_argument("--point", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.point:
        print(json.dumps(measure(Point(**json.loads(asked.point)))))
    else:
        run(asked.table, asked.anew, asked.most_entries)


if __name__ == "__main__":
    main()
