"""Tables whose features may have no value (`read_table(missing=True)`), for steps that fill them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tulle.files.tables import TableError, numeric_rows, read_table
from tulle.files.tables import input_files as files

NAN, INF = np.nan, np.inf
CELLS = {
    "": NAN,
    " ": NAN,
    '""': NAN,
    "NA": NAN,
    "n/a": NAN,
    "null": NAN,
    "nan": NAN,
    "inf": INF,
    "-inf": -INF,
    "1e999": INF,
    "2.5": 2.5,
    '"-3"': -3.0,
    " 4 ": 4.0,
}


def write(path: Path, rows: list[list[str]], labels: list[str]) -> Path:
    lines = [",".join([*row, label, f"p{k}"]) for k, (row, label) in enumerate(zip(rows, labels))]
    path.write_text("\n".join(["a,b,y,who", *lines]) + "\n")
    return path


@settings(max_examples=60)
@given(
    rows=st.lists(st.lists(st.sampled_from([*CELLS]), min_size=2, max_size=2), min_size=1, max_size=12),
    block=st.sampled_from([32, 64, 1 << 22]),
    words=st.booleans(),
    small=st.sampled_from([0, 1 << 20]),
)
def test_every_cell_is_read_by_itself(rows: list[list[str]], block: int, words: bool, small: int) -> None:
    """Whatever stands in other cells, in the same block of the file or in another, and by either parser."""
    labels = [("yes, of course", "no")[k % 2] if words else str(k % 2) for k in range(len(rows))]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "BLOCK_BYTES", block)
        patch.setattr(numeric_rows, "_SMALL_FILE", small)
        quoted = [f'"{label}"' if words else label for label in labels]
        path = write(Path(folder) / "rows.csv", rows, quoted)
        found = read_table(path, target="y", groups="who", missing=True, labels=words)
    np.testing.assert_array_equal(found.X, [[CELLS[cell] for cell in row] for row in rows])
    assert found.y is not None
    assert found.groups is not None
    assert found.y.tolist() == (labels if words else [float(label) for label in labels])
    assert found.groups.tolist() == [f"p{k}" for k in range(len(rows))]


@pytest.mark.parametrize("small", [0, 1 << 20], ids=["pyarrow", "standard library"])
@pytest.mark.parametrize(
    ("rows", "labels", "message"),
    [
        ([["", "2"]], [""], "a target is missing"),
        ([["", "2"]], ["inf"], "a target is not a finite number"),
        ([["", "2"], ["secret", "3"]], ["1", "2"], "line 3, column 'a': a cell is not a number"),
        ([["", "2,5"]], ["1"], "5 cells, but the first line has 4"),
        ([["", '"2,5"']], ["1"], "a decimal comma"),
    ],
)
def test_what_is_no_number_is_refused_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: list[list[str]], labels: list[str], message: str, small: int
) -> None:
    """Targets and ids must be there, and words are none that a step could fill."""
    monkeypatch.setattr(numeric_rows, "_SMALL_FILE", small)
    path = write(tmp_path / "rows.csv", rows, labels)
    with pytest.raises(TableError, match=message) as refused:
        read_table(path, target="y", groups="who", missing=True)
    assert "secret" not in str(refused.value)


def _parquet(path: Path, X: Any) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    holes = [[None if np.isnan(value) else value for value in column] for column in X.T]
    pq.write_table(pa.table({"a": holes[0], "b": holes[1], "y": [1.0, 2.0, 3.0]}), path)


@pytest.mark.parametrize("kind", ["parquet", "npz"])
def test_other_formats(tmp_path: Path, kind: str) -> None:
    X = np.array([[NAN, 1.0], [INF, -2.0], [3.0, NAN]])
    path = tmp_path / f"rows.{kind}"
    if kind == "npz":
        np.savez(path, X=X, y=np.arange(3.0))
    else:
        _parquet(path, X)
    with pytest.raises(TableError, match="2 columns cannot be read"):
        read_table(path, target="y")
    np.testing.assert_array_equal(read_table(path, target="y", missing=True).X, X)
