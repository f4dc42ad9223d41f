"""A fit to a Dask DataFrame from Parquet files, few large and many small ones, next to the same rows in memory.

Also whether weights are the same to the last bit: of 8 and of 2,000 files, and where a worker is killed in the middle
of a fit. Needs the extra `dask`; without it there are no lines.
"""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from timing import Line, print_lines, ratio

from tulle import Bounds, SparseClassifier

ROWS, FEATURES, PEOPLE = 1_000_000, 30, 600_000
FEW, MANY = 8, 2_000
ROUNDS = 3
NAMES = [f"x{k}" for k in range(FEATURES)]


def write(folder: Path, count: int) -> Path:
    """The rows as so many files."""
    import pandas as pd

    rng = np.random.default_rng(0)
    rows = rng.uniform(-1, 1, (ROWS, FEATURES))
    label = rows[:, 3] - rows[:, 7] + 0.3 * rng.standard_normal(ROWS) > 0
    frame = pd.DataFrame(rows, columns=NAMES)
    frame = frame.assign(label=np.where(label, "yes", "no"), person=rng.integers(0, PEOPLE, ROWS))
    folder.mkdir()
    for k, numbers in enumerate(np.array_split(np.arange(ROWS), count)):
        frame.iloc[numbers].to_parquet(folder / f"{k:05d}.parquet")
    return folder


def fit(frame: Any) -> Any:
    """A fit as documented, of a DataFrame of pandas or of Dask."""
    bounds = Bounds(row_linf=1.0, rows_per_person=2)
    model = SparseClassifier(2.0, 1e-7, n_nonzero=5, bounds=bounds, classes=["no", "yes"], random_state=0)
    return model.fit(frame[NAMES], frame["label"], groups=frame["person"])


def fit_and_kill(frame: Any, client: Any) -> Any:
    """A fit whose worker with the most data is killed while the tenth sum is on its way."""
    import tulle.backends.dask as on_dask

    total, sums = on_dask._total, []

    def interrupted(*given: Any) -> Any:
        sums.append(1)
        if len(sums) == 10:
            held = client.has_what()
            address = max(held, key=lambda worker: len(held[worker]))
            os.kill(client.run(os.getpid, workers=[address])[address], signal.SIGKILL)
        return total(*given)

    on_dask._total = interrupted  # type: ignore[assignment]
    try:
        found = fit(frame)
    finally:
        on_dask._total = total
    assert len(sums) > 10
    return found


def differing(one: Any, other: Any) -> float:
    """How many weights differ, the intercept included."""
    return float(np.sum(one.coef_ != other.coef_) + np.sum(one.intercept_ != other.intercept_))


def measure() -> Iterator[Line]:
    if find_spec("distributed") is None:
        return
    import dask.dataframe as dd
    import pandas as pd
    from distributed import Client, LocalCluster

    with (
        tempfile.TemporaryDirectory() as scratch,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        few, many = (write(Path(scratch) / str(count), count) for count in (FEW, MANY))
        here, frames = pd.read_parquet(few), {count: dd.read_parquet(at) for count, at in ((FEW, few), (MANY, many))}
        expected, shape = fit(here), f"{ROWS:,} × {FEATURES} from Parquet"
        for count, frame in frames.items():
            what = f"weights that differ from memory, {shape}, {count:,} partitions"
            yield what, differing(fit(frame), expected), "<= 0"
        killed = differing(fit_and_kill(frames[MANY], client), expected)
        yield f"weights that differ from memory, {shape}, {MANY:,} partitions, a worker killed", killed, "<= 0"
        client.wait_for_workers(2, timeout=60)
        one, other = (partial(fit, frame) for frame in frames.values())
        yield f"a fit to {shape}, {MANY:,} partitions, times {FEW}", ratio(other, one, ROUNDS), "<= 3"
        in_memory = partial(fit, here)
        yield f"a fit to {shape}, {FEW} partitions, times in memory", ratio(one, in_memory, ROUNDS), "(no target)"
        read = ratio(lambda: fit(pd.read_parquet(many)), in_memory, ROUNDS)
        yield f"reading {MANY:,} files with pandas and a fit, times a fit in memory", read, "(no target)"


if __name__ == "__main__":
    print_lines(measure())
