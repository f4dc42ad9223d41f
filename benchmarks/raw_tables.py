"""Raw cells of CSV files, next to pandas.read_csv and pyarrow.csv.read_csv, which infer types. In CPU time.

The table has words, quoted cells with delimiters and line breaks, dates, blanks and numbers. Our time includes the
fingerprint of the file, which the other readers do not compute. The peak of memory is taken in fresh processes, beyond
what their imports take, on ten times the rows, and compared with the size of the table that is returned.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pyarrow import csv as arrow_csv
from timing import Line, print_lines, ratio

from tulle.files.tables.raw_cells import read_raw

_ROWS, _COLUMNS = 50_000, 60
_LONGER = 10
_WORDS = ("yes", "no", "", "naïve", "Zürich, CH", 'say "hi"', "two\nlines", "日本")

_PEAK = """
import sys
import pyarrow.csv, pyarrow.parquet
from process_memory import megabytes
from tulle.files.tables import parquet, raw_delimited
from tulle.files.tables.raw_cells import read_raw
before = megabytes("VmRSS")
columns, _, _ = read_raw(sys.argv[1], lambda header: header)
print((megabytes("VmHWM") - before) / (sum(cells.nbytes for cells in columns.values()) / 2**20))
"""


def _table(rng: np.random.Generator) -> pd.DataFrame:
    columns: dict[str, Any] = {}
    for place in range(0, _COLUMNS, 5):
        columns[f"answer {place}"] = rng.integers(1, 6, _ROWS)
        columns[f"word {place}"] = rng.choice(_WORDS, _ROWS)
        columns[f"day {place}"] = pd.Timestamp("2000-01-01") + pd.to_timedelta(rng.integers(0, 9000, _ROWS), unit="D")
        columns[f"income {place}"] = np.where(rng.random(_ROWS) < 0.1, np.nan, rng.lognormal(10, 1, _ROWS).round(2))
        columns[f"score {place}"] = rng.normal(size=_ROWS).round(3)
    return pd.DataFrame(columns)


def _ratio(ours: Callable[[], Any], theirs: Callable[[], Any]) -> float:
    return ratio(ours, theirs, rounds=9, clock=time.process_time)


def _peak(path: Path) -> float:
    command = [sys.executable, "-c", _PEAK, str(path)]
    run = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parent)
    return float(run.stdout)


def measure() -> Iterator[Line]:
    table = _table(np.random.default_rng(0))
    shape = f"{_ROWS:,} × {_COLUMNS}"
    breaks = arrow_csv.ParseOptions(newlines_in_values=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        table.to_csv(path, index=False)

        def ours() -> Any:
            return read_raw(path, lambda header: header)

        yield f"raw CSV {shape}: times pandas.read_csv", _ratio(ours, lambda: pd.read_csv(path)), "<= 1.5"
        times = _ratio(ours, lambda: arrow_csv.read_csv(path, parse_options=breaks))
        yield f"raw CSV {shape}: times pyarrow.csv.read_csv", times, "<= 1.5"
        times = _ratio(lambda: read_raw(path, lambda header: header, plain=True), lambda: pd.read_csv(path))
        yield f"raw CSV {shape}, by the standard library: times pandas.read_csv", times, "(no target)"
        longer = pd.concat([table] * _LONGER)
        longer.to_csv(path, index=False)
        yield f"raw CSV {_LONGER * _ROWS:,} × {_COLUMNS}: peak memory, in tables", _peak(path), "<= 2.5"
        path = Path(folder) / "table.parquet"
        longer.to_parquet(path, index=False)
        yield f"raw Parquet {_LONGER * _ROWS:,} × {_COLUMNS}: peak memory, in tables", _peak(path), "<= 2.5"


if __name__ == "__main__":
    print_lines(measure())
