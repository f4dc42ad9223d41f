"""Whole jobs as users run them, next to the same job by other programs: ratios of times within one run.

    python benchmarks/whole_jobs.py [job ...]           a few minutes
    python benchmarks/whole_jobs.py --large [job ...]   also 200,000 and 2,000,000 rows: half an hour, 10 GB

    report       a CSV file of a mixed table to a model and its report, from the start of the process to its end, next
                 to a script with pandas and scikit-learn that stores a model without privacy
    default      the default fit, next to liblinear, saga, skglm and Opacus
    no_privacy   epsilon=None, next to liblinear and SGDClassifier
    public       a fit with 3,000 public rows, next to the fit to all rows as private ones
    regression   the default fit of a regression on 500 dense features, next to scikit-learn's Lasso
    blocks       a pass over a folder of blocks, next to reading its files; they are in the page cache
    dask         a gradient on a Dask cluster, next to reading as many bytes of memory on as many threads

Fits have rows of RCV1's shape: 47,236 features, 74 entries a row, columns by a power law. Libraries run in the
interpreters that OPACUS_PYTHON and SKGLM_PYTHON name, and are left out without them; a library is also left out where
one of its fits would take more than five minutes, by its time on fewer rows. Times of fits and of whole processes are
CPU times with one thread; those of passes are by the clock. Run as a script, this writes docs/speed/whole_jobs.csv.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import cluster
import numpy as np
import other_libraries
import scale
from timing import Line, n_threads, read_seconds, seconds, text_rows

TABLE = Path(__file__).resolve().parent.parent / "docs/speed/whole_jobs.csv"
FEATURES, PER_ROW = 47_236, 74
TEST_ROWS = 1_000
ROUNDS = 5
# A library is left out above the size where one of its fits would take longer than this.
LONGEST_FIT = 300.0


@dataclass(frozen=True)
class Sizes:
    """The numbers of rows of each job."""

    report: tuple[int, ...] = (20_000, 200_000)
    default: tuple[int, ...] = (2_000, 20_000)
    no_privacy: tuple[int, ...] = (20_000,)
    public: tuple[int, ...] = (20_000,)
    regression: tuple[int, ...] = (20_000,)
    blocks: tuple[int, ...] = (100_000,)
    dask: tuple[int, ...] = (100_000,)


USUAL = Sizes()
LARGE = Sizes(
    default=(2_000, 20_000, 200_000, 2_000_000),
    no_privacy=(20_000, 200_000),
    public=(20_000, 200_000),
    blocks=(100_000, 1_000_000),
    dask=(100_000, 1_000_000),
)


@dataclass(frozen=True)
class Result:
    """One comparison.

    Attributes
    ----------
    job, next_to : str
        Our job and that of the other program.
    rows : int
        n.
    times : float or None
        Our time over the other one's; None where the other program was left out.
    seconds, other_seconds : float or None
        Medians.
    megabytes, other_megabytes : float or None
        Peak memory of the processes, libraries included.
    target : str
        Of `times`.
    note : str
        Why a program was left out, or the share of the read bandwidth.
    """

    job: str
    rows: int
    next_to: str
    times: float | None = None
    seconds: float | None = None
    other_seconds: float | None = None
    megabytes: float | None = None
    other_megabytes: float | None = None
    target: str = "(no target)"
    note: str = ""

    @property
    def what(self) -> str:
        return f"{self.job}, {self.rows:,} rows, times {self.next_to}"


# --- a CSV file to a report -------------------------------------------------------------------------------------------

NUMBERS = {"age": (18, 95), "income": (0, 150_000), "weight": (35, 180), "height": (140, 210), "visits": (0, 50)}
WORDS = {
    "ward": ["surgery", "medicine", "oncology", "paediatrics", "geriatrics", "emergency"],
    "insurer": ["public", "private", "none", "unknown"],
    "language": ["de", "fr", "it", "en", "pt", "es", "sq", "tr"],
    "admission": ["planned", "emergency", "transfer"],
}
BOOLEANS = ("smoker", "lives alone")
PLAIN_SCRIPT = """
import sys
import joblib
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder

table = pd.read_csv(sys.argv[1])
y = table.pop("readmitted")
words = [name for name in table if not pd.api.types.is_numeric_dtype(table[name])]
numbers = [name for name in table if name not in words]
columns = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), words), (MinMaxScaler((-1, 1)), numbers))
model = make_pipeline(columns, LogisticRegression(l1_ratio=1.0, solver="liblinear"))
joblib.dump(model.fit(table, y), sys.argv[2])
"""


def write_table(path: Path, n: int) -> None:
    """A table of numbers, words and yes and no, whose target depends on two of the columns."""
    import pandas as pd

    rng = np.random.default_rng(0)
    columns: dict[str, Any] = {name: rng.integers(low, high + 1, n) for name, (low, high) in NUMBERS.items()}
    columns |= {name: rng.choice(words, n) for name, words in WORDS.items()}
    columns |= {name: rng.choice(["yes", "no"], n) for name in BOOLEANS}
    margins = (columns["age"] - 60) / 20 + (columns["smoker"] == "yes") - 0.5
    columns["readmitted"] = np.where(rng.random(n) < 1 / (1 + np.exp(-margins)), "yes", "no")
    pd.DataFrame(columns).to_csv(path, index=False)


def write_schema(path: Path) -> None:
    from tulle import Schema

    kinds: dict[str, Any] = {name: {"range": list(ends)} for name, ends in NUMBERS.items()}
    kinds |= {name: {"categories": words} for name, words in WORDS.items()}
    kinds |= dict.fromkeys(BOOLEANS, "boolean")
    schema = Schema(kinds, target={"column": "readmitted", "classes": ["no", "yes"]})
    path.write_text(schema.to_toml(), encoding="utf-8")


def process_seconds(command: Sequence[str]) -> float:
    """The CPU time of a process, from its start to its end."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    environment = {**os.environ, **threads}
    # Without byte code on disk every process would compile the modules it imports, which installed packages do once.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    before = os.times()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    after = os.times()
    return (after.children_user - before.children_user) + (after.children_system - before.children_system)


def cpu_seconds(work: Callable[[], Any]) -> float:
    return seconds(work, clock=time.process_time)


def alternated(first: Callable[[], float], second: Callable[[], float]) -> tuple[float, float, float]:
    """The median of ratios, and the median of each, of turns after one turn that is not counted."""
    turns = np.array([(first(), second()) for _ in range(ROUNDS + 1)])[1:]
    return float(np.median(turns[:, 0] / turns[:, 1])), *np.median(turns, axis=0).tolist()


def report(sizes: Sequence[int]) -> Iterator[Result]:
    for n in sizes:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            table, schema = folder / "table.csv", folder / "columns.toml"
            write_table(table, n)
            write_schema(schema)
            fit = [sys.executable, "-m", "tulle", "fit", str(table), "--schema", str(schema), "--epsilon", "1"]
            fit += ["-o", str(folder / "model"), "--replace", "--quiet"]
            plain = [sys.executable, "-c", PLAIN_SCRIPT, str(table), str(folder / "model.joblib")]
            found = alternated(partial(process_seconds, fit), partial(process_seconds, plain))
            assert (folder / "model" / "report.html").exists()
        next_to = "pandas and scikit-learn without privacy"
        yield Result("CSV to model and report", n, next_to, *found, target="<= 2.0")


# --- fits -------------------------------------------------------------------------------------------------------------


def save_rows(n: int, folder: str) -> None:
    X, y = text_rows((n + TEST_ROWS, FEATURES, PER_ROW))
    parts = {"X_train": X[:n], "y_train": y[:n], "X_test": X[n:], "y_test": y[n:], "entry": 1.0}
    other_libraries.save_parts(parts, Path(folder))


def fits(job: str, ours: str, others: dict[str, str], sizes: Sequence[int]) -> Iterator[Result]:
    """A fit next to those of other racers, with the target of each. Ours runs again before each of them."""
    last: dict[str, tuple[int, float]] = {}  # the rows and the longest fit of each racer
    for n in sizes:
        with tempfile.TemporaryDirectory() as folder:
            save_rows(n, folder)
            for name, target in others.items():
                next_to = f"{name} ({other_libraries.RACERS[name].what})"
                fewer, took = last.get(name, (n, 0.0))
                expected = took * n / fewer
                if expected > LONGEST_FIT:
                    yield Result(job, n, next_to, note=f"not run: a fit would take {expected / 60:.0f} minutes or more")
                    continue
                own = other_libraries.timed_in_process(ours, folder)
                other = other_libraries.timed_in_process(name, folder)
                if own is None or other is None:
                    continue
                last[name] = n, other["seconds"]
                yield Result(
                    job,
                    n,
                    next_to,
                    own["seconds"] / other["seconds"],
                    own["seconds"],
                    other["seconds"],
                    own["megabytes"],
                    other["megabytes"],
                    target,
                )


def default(sizes: Sequence[int]) -> Iterator[Result]:
    others = {"liblinear": "<= 2.0", "saga": "<= 1.0", "skglm": "(no target)", "opacus": "<= 1.0"}
    yield from fits("default fit", "tulle", others, sizes)


def no_privacy(sizes: Sequence[int]) -> Iterator[Result]:
    others = {"liblinear": "(no target)", "SGDClassifier": "(no target)"}
    yield from fits("fit with epsilon=None", "tulle, no privacy", others, sizes)


def public(sizes: Sequence[int]) -> Iterator[Result]:
    job = f"fit with {other_libraries.PUBLIC_ROWS:,} of the rows public"
    yield from fits(job, "tulle, public rows", {"tulle": "(no target)"}, sizes)


def regression(sizes: Sequence[int]) -> Iterator[Result]:
    from sklearn.linear_model import Lasso

    data = other_libraries.dense_numbers(500)
    for n in sizes:
        X, y = data["X_train"][:n], data["y_train"][:n]
        lasso = Lasso(alpha=1e-4)

        ours = partial(other_libraries.tulle_fit, "regression", X, y, data["entry"], 1.0, 1, None)
        with n_threads(1):
            found = alternated(partial(cpu_seconds, ours), partial(cpu_seconds, partial(lasso.fit, X, y)))
        yield Result("default fit of a regression, 500 dense features", n, "Lasso (scikit-learn, alpha = 1e-4)", *found)


# --- passes -----------------------------------------------------------------------------------------------------------


def share(times: float) -> str:
    return f"{1 / times:.2g} of the read bandwidth"


def blocks(sizes: Sequence[int]) -> Iterator[Result]:
    """All that a fit does, the checks and the time after its last pass included, divided by its passes."""
    for n in sizes:
        size = scale.Size(n, FEATURES, PER_ROW, iterations=8)
        with tempfile.TemporaryDirectory() as place:
            for found in scale.run("blocks", size, Path(place), 0):
                times = 1 / found["of_bandwidth"]
                yield Result(
                    f"a pass over blocks on disk, page cache warm, {found['method'].replace('_', ' ')}",
                    n,
                    "reading the files once",
                    times,
                    found["seconds_per_pass"],
                    found["seconds_per_pass"] / times,
                    found["peak_megabytes"],
                    note=share(times),
                )


def dask(sizes: Sequence[int]) -> Iterator[Result]:
    if find_spec("distributed") is None:
        print("dask is left out: it needs the extra dask", file=sys.stderr)
        return
    for n in sizes:
        for gradient in cluster.gradients(n, (8,)):
            entries = np.ones(gradient.n_bytes // 8)
            times, took, reading = alternated(partial(seconds, gradient.on_cluster), partial(read_seconds, entries, 2))
            job = f"a gradient in {gradient.partitions} partitions of two Dask workers"
            yield Result(job, n, "reading its bytes on two threads", times, took, reading, note=share(times))


# --- all of them ------------------------------------------------------------------------------------------------------

JOBS: dict[str, Callable[[Sequence[int]], Iterator[Result]]] = {
    "report": report,
    "default": default,
    "no_privacy": no_privacy,
    "public": public,
    "regression": regression,
    "blocks": blocks,
    "dask": dask,
}
COLUMNS = tuple(Result.__dataclass_fields__)


def measure() -> Iterator[Line]:
    for name, job in JOBS.items():
        for result in job(getattr(USUAL, name)):
            if result.times is None:
                print(f"{result.what}: {result.note}", file=sys.stderr)
            else:
                yield result.what, result.times, result.target


def shown(value: Any) -> str:
    return "" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)


def save(results: Sequence[Result], path: Path) -> None:
    """Replaces the lines that were measured again."""
    kept: dict[tuple[str, ...], dict[str, str]] = {}
    if path.exists():
        with path.open(newline="") as file:
            kept = {(row["job"], row["rows"], row["next_to"]): row for row in csv.DictReader(file)}
    for result in results:
        row = {name: shown(value) for name, value in asdict(result).items()}
        kept[row["job"], row["rows"], row["next_to"]] = row
    first = {job: place for place, job in enumerate(dict.fromkeys(job for job, _, _ in kept))}
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        table.writeheader()
        table.writerows(sorted(kept.values(), key=lambda row: (first[row["job"]], int(row["rows"]))))


def main() -> None:
    parser = argparse.ArgumentParser(description="Whole jobs next to the same by other programs.")
    parser.add_argument("jobs", nargs="*", metavar="job", help=f"one of {', '.join(JOBS)}; all without any")
    parser.add_argument("--large", action="store_true", help="also the largest sizes")
    parser.add_argument("--table", type=Path, default=TABLE, help="where to write (default: docs/speed/whole_jobs.csv)")
    asked = parser.parse_args()
    if not set(asked.jobs) <= set(JOBS):
        parser.error(f"jobs are {', '.join(JOBS)}")
    for name in asked.jobs or JOBS:
        for result in JOBS[name](getattr(LARGE if asked.large else USUAL, name)):
            measured = result.note if result.times is None else f"{result.times:.3g}"
            print(f"{result.what:<100} {measured:>10}", flush=True)
            save([result], asked.table)


if __name__ == "__main__":
    main()
