"""Rows that do not fit: blocks on disk under a memory limit, and two million rows of a million features.

    python benchmarks/scale.py                  both parts, one after the other: 9 GB of disk, a quarter of an hour
    python benchmarks/scale.py out_of_core      at least 8 GB of blocks, fits under a limit of 3 GB and without one
    python benchmarks/scale.py million          2,000,000 × 1,000,000, 100 non-zeros a row

Rows are drawn and written a block at a time. Each fit is a process of its own. The limit is one on address space
(RLIMIT_AS), which the kernel enforces on everything that a process has, mapped files included; while a limited fit
runs, the blocks are dropped from the system's cache again and again, so that it cannot read from there what does not
fit into its limit. Writes docs/speed/scale.csv. The folders lie in `--folder` and are deleted at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from process_memory import megabytes

TABLE = Path(__file__).resolve().parent.parent / "docs/speed/scale.csv"
COLUMNS = (
    *("part", "way", "method", "n", "d", "per_row", "s", "gigabytes", "limit_megabytes", "outcome"),
    *("seconds", "cpu_seconds", "passes", "seconds_per_pass", "megabytes_per_second", "of_bandwidth"),
    *("disk_gigabytes", "peak_megabytes", "found", "error", "best_error"),
)
METHODS = ("hard_thresholding", "screen_refine")
EPSILON, DELTA = 1.0, 1e-5


@dataclass(frozen=True)
class Size:
    """A planted problem.

    Attributes
    ----------
    rows, features, per_row : int
        n, d and columns drawn for a row; one that is drawn twice counts once.
    planted : int
        Weights that are not zero, and that a fit is asked for.
    block : int
        Rows of a block.
    iterations : int or None
        T of hard thresholding; None: its default, which grows with the number of rows.
    """

    rows: int
    features: int
    per_row: int
    planted: int = 50
    block: int = 1 << 15
    iterations: int | None = None


SIZES = {"out_of_core": Size(2_200_000, 100_000, 170, iterations=8), "million": Size(2_000_000, 1_000_000, 100)}
TEST_ROWS = 20_000
# The density of column j is 1 / (j + START): a power law, as of words.
START = 20.0


# --- the rows --------------------------------------------------------------------------------------------------------


def planted_weights(size: Size) -> npt.NDArray[np.float64]:
    """Weights of alternating signs, on columns from common ones to rare ones; most rows have a few of them."""
    last = min(size.features - 1, 2_000)
    places = np.unique(np.geomspace(START, last, size.planted).astype(int))
    free = np.setdiff1d(np.arange(int(START), size.features), places)
    places = np.sort(np.append(places, free[: size.planted - len(places)]))
    weights = np.zeros(size.features)
    weights[places] = 2.0 * np.where(np.arange(len(places)) % 2, -1.0, 1.0)
    return weights


def draw(size: Size, weights: npt.NDArray[np.float64], rows: int, seed: int) -> tuple[Any, npt.NDArray[np.float64]]:
    """Rows of at most `per_row` entries, all 1 / sqrt(per_row), and labels -1 and +1 by the logistic model."""
    rng = np.random.default_rng(seed)
    # The inverse of the power law's distribution function.
    span = np.log((size.features + START) / START)
    columns = (START * np.expm1(span * rng.random((rows, size.per_row)))).astype(np.int32)
    np.minimum(columns, size.features - 1, out=columns)
    ends = np.arange(0, rows * size.per_row + 1, size.per_row)
    X = sp.csr_array((np.ones(columns.size), columns.ravel(), ends), shape=(rows, size.features))
    X.sum_duplicates()
    X.data[:] = 1.0
    margins = X @ weights
    X.data[:] = 1 / np.sqrt(size.per_row)
    return X, np.where(rng.random(rows) < 1 / (1 + np.exp(-margins)), 1.0, -1.0)


def write(size: Size, folder: Path) -> Any:
    """The folder of blocks, opened."""
    from tulle.backends.block_writer import write_blocks

    weights = planted_weights(size)

    def batches() -> Iterator[tuple[Any, Any]]:
        for start in range(0, size.rows, size.block):
            yield draw(size, weights, min(size.block, size.rows - start), seed=1 + start // size.block)

    return write_blocks(folder, batches(), rows_per_block=size.block, n_features=size.features)


# --- one fit, in its own process -------------------------------------------------------------------------------------


def gigabytes_from_disk() -> float:
    """What the system fetched from the disk for this process, mapped files included; not what was in its cache."""
    (line,) = (line for line in Path("/proc/self/io").read_text().splitlines() if line.startswith("read_bytes"))
    return int(line.split()[1]) / 1e9


def model_of(method: str, size: Size) -> Any:
    from tulle import Bounds, SparseClassifier
    from tulle.methods import HardThresholding, ScreenRefine

    methods = {"hard_thresholding": HardThresholding(n_iter=size.iterations), "screen_refine": ScreenRefine()}
    bounds = Bounds(row_l2=1.0, row_linf=1 / np.sqrt(size.per_row))
    return SparseClassifier(
        EPSILON, DELTA, n_nonzero=size.planted, method=methods[method], bounds=bounds, random_state=1
    )


def in_memory(X: Any) -> Any:
    """All blocks as one CSR array, with no more memory than it takes."""
    blocks = range(X.n_blocks)
    ends = np.cumsum([0, *(X.block(k)[1].nnz for k in blocks)])
    entries, columns = np.empty(ends[-1]), np.empty(ends[-1], dtype=np.int32)
    starts = np.zeros(X.shape[0] + 1, dtype=np.int32 if ends[-1] < 2**31 else np.int64)
    for k in blocks:
        block = X.block(k)[1]
        entries[ends[k] : ends[k + 1]] = block.data
        columns[ends[k] : ends[k + 1]] = block.indices
        starts[X.starts[k] + 1 : X.starts[k + 1] + 1] = ends[k] + block.indptr[1:]
    return sp.csr_array((entries, columns, starts), shape=X.shape)


def fit(way: str, method: str, size: Size, folder: Path) -> dict[str, Any]:
    """A fit on blocks, or on the same rows read into memory; what it took and what it found."""
    from tulle.backends.block_folder import open_blocks

    data = open_blocks(folder)
    model = model_of(method, size)
    try:
        X = in_memory(data.X) if way == "memory" else data.X
        start, cpu = time.perf_counter(), time.process_time()
        model.fit(X, data.y)
    except MemoryError as error:
        return {"outcome": f"MemoryError: {error}", "peak_megabytes": megabytes("VmHWM")}
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    peak, disk = megabytes("VmHWM"), gigabytes_from_disk()
    weights = planted_weights(size)
    X_test, y_test = draw(size, weights, TEST_ROWS, seed=0)
    best = np.where(X_test @ weights > 0, 1.0, -1.0)
    return {
        "outcome": "fitted",
        "seconds": seconds,
        "cpu_seconds": cpu,
        "passes": int(model.n_iter_),  # what reads only the columns of chosen features is not counted
        "seconds_per_pass": seconds / model.n_iter_,
        "disk_gigabytes": disk,
        "peak_megabytes": peak,
        "found": float(np.mean(np.isin(np.flatnonzero(weights), model.support_))),
        "error": float(1 - model.score(X_test, y_test)),
        "best_error": float(np.mean(best != y_test)),
    }


# --- a limit, and a cache that does not help -------------------------------------------------------------------------


def drop_from_cache(folder: Path) -> None:
    for file in folder.iterdir():
        number = os.open(file, os.O_RDONLY)
        os.posix_fadvise(number, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(number)


@contextlib.contextmanager
def cold(folder: Path) -> Iterator[None]:
    """Drops the files of a folder from the system's cache, except pages that a process has mapped, twice a second."""
    done = threading.Event()

    def work() -> None:
        while not done.wait(0.5):
            drop_from_cache(folder)

    drop_from_cache(folder)
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def read_seconds(folder: Path, files: list[str]) -> float:
    """The time to read some files once, as quickly as one thread can."""
    room = bytearray(1 << 22)
    start = time.perf_counter()
    for name in files:
        with (folder / name).open("rb", buffering=0) as file:
            while file.readinto(room):
                pass
    return time.perf_counter() - start


def limited(command: list[str], limit_megabytes: int | None) -> subprocess.CompletedProcess[str]:
    """Runs a process with one thread under a limit on its address space, from before its first import."""

    def limit() -> None:
        if limit_megabytes is not None:
            resource.setrlimit(resource.RLIMIT_AS, (limit_megabytes * 10**6, limit_megabytes * 10**6))

    # The allocator's own heap for each thread would count in full.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, preexec_fn=limit)


def in_process(call: dict[str, Any], limit_megabytes: int | None) -> dict[str, Any]:
    """What a fit says in a process of its own."""
    command = [sys.executable, "-W", "ignore", __file__, "--one", json.dumps(call)]
    answer = limited(command, limit_megabytes)
    if answer.returncode:
        short = next((words for words in ("MemoryError", "Cannot allocate memory") if words in answer.stderr), None)
        if short is not None:
            return {"outcome": short}
        raise RuntimeError(answer.stderr)
    return dict(json.loads(answer.stdout.splitlines()[-1]))


# --- both parts ------------------------------------------------------------------------------------------------------


def run(part: str, size: Size, place: Path, limit_megabytes: int) -> Iterator[dict[str, Any]]:
    """Writes the blocks, fits, and yields one line for each fit."""
    with tempfile.TemporaryDirectory(dir=place) as temporary:
        folder = Path(temporary) / "rows.blocks"
        start = time.perf_counter()
        matrix = write(size, folder).X
        print(
            f"{part}: wrote {matrix.nbytes / 1e9:.1f} GB in {time.perf_counter() - start:.0f} s",
            file=sys.stderr,
            flush=True,
        )
        # A pass over all rows reads them by columns.
        columns = sorted(file.name for file in folder.iterdir() if ".column_" in file.name)
        bytes_per_pass = sum((folder / name).stat().st_size for name in columns)
        ways: list[tuple[str, int | None, tuple[str, ...]]] = [("blocks", None, METHODS)]
        if part == "out_of_core":
            ways = [("blocks", limit_megabytes, METHODS), ("memory", limit_megabytes, METHODS[:1]), *ways]
        for way, limit, methods in ways:
            for method in methods:
                with cold(folder) if limit else contextlib.nullcontext():
                    if not limit:
                        read_seconds(folder, columns)  # into the cache, as far as it has room
                    bandwidth = bytes_per_pass / read_seconds(folder, columns)
                    call = {"way": way, "method": method, "size": asdict(size), "folder": str(folder)}
                    found = in_process(call, limit)
                if "seconds_per_pass" in found:
                    rate = bytes_per_pass / found["seconds_per_pass"]
                    found |= {"megabytes_per_second": rate / 1e6, "of_bandwidth": rate / bandwidth}
                about = {"part": part, "way": way, "method": method, "n": size.rows, "d": size.features}
                about |= {"per_row": size.per_row, "s": size.planted, "limit_megabytes": limit}
                yield about | {"gigabytes": matrix.nbytes / 1e9} | found


def save(rows: list[dict[str, Any]], path: Path) -> None:
    """Replaces the lines of the parts that were run."""
    parts = {str(row["part"]) for row in rows}
    kept: list[dict[str, Any]] = []
    if path.exists():
        with path.open(newline="") as file:
            kept = [row for row in csv.DictReader(file) if row["part"] not in parts]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        table.writeheader()
        every = kept + [{column: shown(row.get(column)) for column in COLUMNS} for row in rows]
        table.writerows(sorted(every, key=lambda row: list(SIZES).index(row["part"])))


def shown(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def main() -> None:
    parser = argparse.ArgumentParser(description="Fits on rows that do not fit into memory.")
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(SIZES)} (default: both)")
    parser.add_argument("--rows", type=int, help="rows instead of the part's own")
    parser.add_argument("--features", type=int, help="features instead of the part's own")
    parser.add_argument("--per-row", type=int, help="entries a row instead of the part's own")
    parser.add_argument("--planted", type=int, help="weights that are not zero (default: 50)")
    parser.add_argument("--block", type=int, help=f"rows of a block (default: {Size.block})")
    parser.add_argument("--iterations", type=int, help="T of hard thresholding")
    parser.add_argument("--limit", type=int, default=3_000, help="megabytes of a limited fit (default: 3000)")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where to write the blocks")
    parser.add_argument("--table", type=Path, default=TABLE, help="where to write (default: docs/speed/scale.csv)")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        call = json.loads(asked.one)
        print(json.dumps(fit(call["way"], call["method"], Size(**call["size"]), Path(call["folder"]))))
        return
    if not set(asked.parts) <= set(SIZES):
        parser.error(f"parts are {', '.join(SIZES)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that the folder is deleted
    names = ("rows", "features", "per_row", "planted", "block", "iterations")
    changed = {name: getattr(asked, name) for name in names if getattr(asked, name) is not None}
    for part in asked.parts or SIZES:
        rows: list[dict[str, Any]] = []
        for row in run(part, Size(**(asdict(SIZES[part]) | changed)), asked.folder, asked.limit):
            print(json.dumps(row, ensure_ascii=False), flush=True)
            rows.append(row)
            save(rows, asked.table)


if __name__ == "__main__":
    main()
