"""CPU time for reading files, compared with the readers of pandas (CSV and Parquet) and scikit-learn (svmlight).

Every cell is checked: tulle's readers refuse cells that are empty, infinite or words, and name their places. Their time
includes the fingerprint of the file, and they round numbers correctly, which pandas does not do by default. Peak memory
is measured in fresh processes, beyond what their imports take, on ten times the rows: blocks and parsers take some
30 MB for any size, which would be most of it for a small table.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file, load_svmlight_file
from timing import Line, print_lines, ratio

from tulle.files.tables import numeric_rows, read_table

_ROWS, _COLUMNS = 20_000, 100
_LONGER = 10

_PEAK = """
import sys
from pathlib import Path
import scipy.sparse, sklearn.datasets
from tulle.files.tables import read_table
import pyarrow.csv
import tulle.files.tables.numeric_rows
def now(figure):
    # Not ru_maxrss: a process inherits that from the one that starts it, and would seem to take nothing.
    return 1024 * int(Path("/proc/self/status").read_text().partition(figure + ":")[2].split()[0])
before = now("VmRSS")
X = read_table(sys.argv[1]).X
size = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes if hasattr(X, "indptr") else X.nbytes
print((now("VmHWM") - before) / size)
"""


def _ratio(ours: Callable[[], Any], theirs: Callable[[], Any]) -> float:
    return ratio(ours, theirs, rounds=9, clock=time.process_time)


def _peak(path: Path) -> float:
    run = subprocess.run([sys.executable, "-c", _PEAK, str(path)], capture_output=True, text=True, check=True)
    return float(run.stdout)


def measure() -> Iterator[Line]:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(_ROWS, _COLUMNS)), columns=[f"c{place}" for place in range(_COLUMNS)])
    rounded = frame.round(3)
    worded = rounded.assign(y=np.where(rounded["c0"] > 0, "yes", "no"))
    shape = f"{_ROWS:,} × {_COLUMNS}"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        for what, table, target in (
            ("3 decimals and words as target", worded, "y"),
            ("3 decimals", rounded, None),
            ("17 digits", frame, None),
        ):
            table.to_csv(path, index=False)
            times = _ratio(partial(read_table, path, target=target), partial(pd.read_csv, path))
            yield f"CSV {shape}, {what}: times pandas.read_csv", times, "<= 1.5"
        with patch.object(numeric_rows, "_SMALL_FILE", path.stat().st_size + 1):
            times = _ratio(partial(read_table, path), partial(pd.read_csv, path))
        yield f"CSV {shape}, 17 digits, by the standard library: times pandas.read_csv", times, "(no target)"
        header, _, body = path.read_text().partition("\n")
        path.write_text(f"{header}\n{body * _LONGER}")
        yield f"CSV {_LONGER * _ROWS:,} × {_COLUMNS}: peak memory, in tables", _peak(path), "<= 2.5"

        path = Path(folder) / "table.parquet"
        frame.to_parquet(path)
        times = _ratio(lambda: read_table(path), lambda: pd.read_parquet(path).to_numpy())
        yield f"Parquet {shape}: times pandas.read_parquet", times, "(no target)"

        path = Path(folder) / "table.svm"
        X = sp.random_array((_ROWS, 47_236), density=74 / 47_236, format="csr", random_state=rng)
        dump_svmlight_file(X, np.zeros(_ROWS), str(path), zero_based=False)
        times = _ratio(lambda: read_table(path), lambda: load_svmlight_file(str(path), zero_based=False))
        yield f"svmlight {_ROWS:,} rows of 74 entries: times scikit-learn's reader", times, "<= 1.3"
        path.write_text(path.read_text() * _LONGER)
        yield f"svmlight {_LONGER * _ROWS:,} rows of 74 entries: peak memory, in tables", _peak(path), "<= 2.5"


if __name__ == "__main__":
    print_lines(measure())
