"""How time and memory of a fit grow with n, d, non-zeros a row, s, T, clients and partitions.

    python benchmarks/growth.py [--anew]

Each point is a process of its own, on rows drawn by `tulle.datasets.rcv1_like` (columns by a power law): a fit that is
not counted, three whose CPU times are, and one under tracemalloc. One axis is varied, the others stay at their middle.
Clients and partitions share a fixed number of rows and are in the same process: the time is that of all of them, of
the server and of Dask's scheduler.
Writes docs/speed/growth.csv, which docs/pictures/growth.py draws. A point that is in the file is not measured again,
so that a run that was stopped continues; `--anew` measures all points.
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from process_memory import megabytes

TABLE = Path(__file__).resolve().parent.parent / "docs/speed/growth.csv"


@dataclass(frozen=True)
class Point:
    """One fit: the method and the public sizes.

    Attributes
    ----------
    method : str
        A key of `STEPS`, or one of `SPREAD`.
    n, d, per_row : int
        Rows, features and non-zero entries of a row (a column that is drawn twice counts once).
    s : int
        Weights kept.
    t : int
        T: iterations, rounds of screening, fits, or passes over the rows, as the method counts.
    parts : int
        Clients or partitions.
    """

    method: str
    n: int
    d: int
    per_row: int
    s: int
    t: int
    parts: int = 1


SIZES = {
    "n": (2_000, 6_000, 20_000, 60_000, 200_000),
    "d": (10_000, 30_000, 100_000, 300_000, 1_000_000),
    "per_row": (3, 10, 30, 100, 300),
    "s": (10, 30, 100, 300, 1_000),
}
# What T is where it does not vary, and where it does.
STEPS = {
    "fit_again": (3, (1, 2, 4, 8, 16)),
    "hard_thresholding": (20, (2, 6, 20, 60, 200)),
    "screen_refine": (1, (1, 2, 4, 8, 16)),
    "frank_wolfe": (100, (10, 30, 100, 300, 1_000)),
    "stochastic_hard_thresholding": (3, (1, 3, 10, 30, 100)),
}
AXES = (*SIZES, "t")
# Clients and partitions: how many, and the fits over them. The sizes are small enough for the work for each part,
# such as a sum or a pair of masks for each two clients, to cost more than reading the rows.
PARTS = {"clients": (3, 7, 17, 41, 100), "partitions": (8, 22, 64, 180, 512)}
SPREAD = {
    "clients": {
        "curious_server": Point("curious_server", 20_000, 2_000, 30, 100, 3),
        "masked_sums": Point("masked_sums", 20_000, 2_000, 30, 100, 3),
    },
    "partitions": {
        "blocks": Point("blocks", 20_000, 10_000, 30, 100, 5),
        "dask": Point("dask", 20_000, 10_000, 30, 100, 5),
    },
}
SETTINGS = tuple(Point.__dataclass_fields__)
MEASURED = ("seconds", "megabytes", "process_megabytes")
COLUMNS = ("axis", *SETTINGS, *MEASURED)
EPSILON, DELTA = 1.0, 1e-5
# A fit longer than this, in CPU seconds, is timed once.
RUNS, LONG = 3, 5.0


def points() -> Iterator[tuple[str, Point]]:
    """Every axis with its points, middle points once for each axis."""
    middle = {axis: values[len(values) // 2] for axis, values in SIZES.items()}
    for axis in AXES:
        for method, (usual, varied) in STEPS.items():
            for value in SIZES.get(axis, varied):
                yield axis, Point(method, **(middle | {"t": usual} | {axis: value}))
    for axis, counts in PARTS.items():
        for point in SPREAD[axis].values():
            for count in counts:
                yield axis, replace(point, parts=count)


# --- one point, in its own process -----------------------------------------------------------------------------------


def model_of(point: Point, seed: int) -> Any:
    from tulle import Bounds, SparseClassifier
    from tulle.methods import FitAgain, FrankWolfe, HardThresholding, ScreenRefine, StochasticHardThresholding

    methods = {
        "fit_again": FitAgain(rounds=point.t),
        "hard_thresholding": HardThresholding(n_iter=point.t),
        "screen_refine": ScreenRefine(rounds=point.t),
        "frank_wolfe": FrankWolfe(n_iter=point.t),
        "stochastic_hard_thresholding": StochasticHardThresholding(passes=point.t),
    }
    method = methods["hard_thresholding" if point.method in SPREAD["partitions"] else point.method]
    bounds = Bounds(row_l2=1.0)
    return SparseClassifier(EPSILON, DELTA, n_nonzero=point.s, method=method, bounds=bounds, random_state=seed)


Fit = Callable[[int], Any]


def over_clients(point: Point, X: Any, y: Any) -> Fit:
    """A study by its seed: clients that draw noise of their own, or masked sums, each pair of clients with a mask."""
    from masked_federated import deal

    from tulle.federated import Terms, linear_terms, simulate, simulate_masked
    from tulle.methods import HardThresholding

    parts = deal((X, y), point.parts, 0)
    step = 30.0
    model = linear_terms(point.d, step=step, classes=(-1.0, 1.0), row_l2=1.0, fit_intercept=False)
    if point.method == "masked_sums":
        return lambda seed: simulate_masked(
            model,
            parts,
            epsilon=EPSILON,
            delta=DELTA,
            n_nonzero=point.s,
            method=HardThresholding(n_iter=point.t, noise="gaussian"),
            seed=seed,
        )
    terms = Terms("growth", model, point.t, 1, point.s, step, 0.2, None, EPSILON, DELTA)
    return lambda seed: simulate(terms, parts, seed=seed)


@contextmanager
def over_partitions(point: Point, X: Any, y: Any) -> Iterator[Fit]:
    """A fit by its seed, on a folder of blocks or on partitions of a Dask cluster in this process."""
    ends = np.linspace(0, point.n, point.parts + 1).astype(int)
    if point.method == "blocks":
        from tulle.backends.block_writer import write_blocks

        with tempfile.TemporaryDirectory() as folder:
            batches = ((X[start:end], y[start:end]) for start, end in pairwise(ends))
            most = int(np.diff(ends).max())
            data = write_blocks(Path(folder) / "rows.blocks", batches, rows_per_block=most, n_features=point.d)
            yield lambda seed: model_of(point, seed).fit(data.X, data.y)
        return
    import dask.bag
    from dask import delayed
    from distributed import Client, LocalCluster

    def part(rows: Any, start: int, end: int) -> list[Any]:
        return [(rows[0][start:end], rows[1][start:end])]

    with (
        LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        rows = client.scatter((X, y), hash=False)
        bag = dask.bag.from_delayed([delayed(part)(rows, start, end) for start, end in pairwise(ends)])
        yield lambda seed: model_of(point, seed).fit(bag, None)


@contextmanager
def fit_of(point: Point) -> Iterator[Fit]:
    """The fit of a point by its seed; the rows are drawn here."""
    from timing import text_rows

    X, y = text_rows((point.n, point.d, point.per_row))
    if point.method in SPREAD["clients"]:
        yield over_clients(point, X, y)
    elif point.method in SPREAD["partitions"]:
        with over_partitions(point, X, y) as fit:
            yield fit
    else:
        yield lambda seed: model_of(point, seed).fit(X, y)


def measure(point: Point) -> dict[str, float]:
    """Median CPU seconds of a fit, and the most memory it had: numpy's own, and of the process beyond the data."""
    from timing import peak_bytes

    warnings.simplefilter("ignore")
    with fit_of(point) as fit:
        fit(0)  # imports and compiles what the others use
        ctypes.CDLL(None).malloc_trim(0)  # what was freed goes back, so that it counts when it is taken again
        held = megabytes("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # sets the peak back: drawing the rows took more than they do
        seconds: list[float] = []
        while len(seconds) < RUNS and (not seconds or seconds[0] < LONG):
            start = time.process_time()
            fit(len(seconds) + 1)
            seconds.append(time.process_time() - start)
        process = megabytes("VmHWM") - held
        peak = peak_bytes(lambda: fit(0)) / 2**20
    return {"seconds": float(np.median(seconds)), "megabytes": peak, "process_megabytes": process}


# --- all of them -----------------------------------------------------------------------------------------------------


def read(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def run(path: Path, anew: bool, most_entries: int | None) -> None:
    """Measures missing points and writes the table after each."""
    known = {} if anew else {_key(row): {column: row[column] for column in MEASURED} for row in read(path)}
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
            known[key] = {name: f"{found[name]:.4g}" for name in MEASURED}
            print(axis, *key, *known[key].values(), flush=True)
            write(path, wanted, known)
    write(path, wanted, known)


def _key(row: dict[str, str]) -> tuple[str, ...]:
    return tuple(row[column] for column in SETTINGS)


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
