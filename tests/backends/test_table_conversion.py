"""Files converted into folders of blocks: the rows that would have been read, whatever the number of files and jobs."""

from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_block_folder import N, assert_same, joined, sparse_rows
from test_tables import csr_npz, npz, parquet

import tulle.backends.table_conversion
from tulle.backends.table_conversion import convert_table
from tulle.files.tables import TableError, read_table
from tulle.files.tables import input_files as files

CSV = "id,age,sick,dose\n" + "".join(f"p{k // 2},{k},{'yes' if k % 3 else 'perhaps'},{k / 7!r}\n" for k in range(60))
SVM = "".join(f"{k % 2} qid:{k // 3} {k % 5 + 1}:{k / 7!r} {k % 4 + 8}:1\n" for k in range(60))
GOOD: dict[str, tuple[Callable[[], bytes], dict[str, Any]]] = {
    "a.csv": (CSV.encode, {"target": "sick", "groups": "id"}),
    "b.csv": (CSV.encode, {"target": "age", "ignore": ["id", "sick"]}),
    "c.csv.gz": (lambda: gzip.compress(CSV.encode()), {"ignore": ["id", "sick"]}),
    "a.svm": (SVM.encode, {}),
    "b.svm.gz": (lambda: gzip.compress(SVM.encode()), {"groups": "qid", "n_features": 20}),
    "a.npz": (lambda: npz(X=sparse_rows().toarray(), y=np.arange(N), groups=np.arange(N) % 5), {}),
    "b.npz": (lambda: csr_npz(sparse_rows(), y=np.where(np.arange(N) % 2, "a", "b")), {}),
    "a.parquet": (
        lambda: parquet(x=np.arange(60.0), y=[f"c{k % 3}" for k in range(60)], who=np.arange(60) // 2),
        {"target": "y", "groups": "who"},
    ),
}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are read in many batches."""
    monkeypatch.setattr(files, "BLOCK_BYTES", 200)
    monkeypatch.setattr("tulle.files.tables.parquet._FEWEST_ROWS", 7)
    monkeypatch.setattr("tulle.files.tables.parquet.BLOCK_BYTES", 8)


@pytest.mark.parametrize("name", GOOD)
def test_a_converted_file_is_the_table_that_would_have_been_read(tmp_path: Path, small: None, name: str) -> None:
    """The same arrays, names and fingerprint."""
    make, settings_ = GOOD[name]
    (tmp_path / name).write_bytes(make())
    table = read_table(tmp_path / name, **settings_)
    folder = convert_table(tmp_path / name, tmp_path / "a.blocks", rows_per_block=13, **settings_)
    assert folder.X.n_blocks > 3
    assert_same(joined(folder), table.X)
    assert (folder.feature_names, folder.content) == (table.feature_names, table.content)
    for found, expected in ((folder.y, table.y), (folder.groups, table.groups)):
        assert (found is None) == (expected is None)
        if found is not None and expected is not None:
            assert_same(found, expected)
    folder.verify()


WRONG: dict[str, tuple[str, str, dict[str, Any]]] = {
    "a late cell": ("a.csv", CSV.replace("55,", "fifty,"), {"target": "sick", "ignore": ["id"]}),
    "a late target": ("a.csv", CSV + "p,1,7,1\n", {"target": "sick", "ignore": ["id"]}),
    "an empty table": ("a.csv", "a,b\n", {}),
    "an unknown target": ("a.csv", CSV, {"target": "ill"}),
    "a late index": ("a.svm", SVM + "1 qid:1 30:1\n", {"n_features": 20}),
    "no features": ("a.svm", "1\n2\n", {}),
    "no rows": ("a.svm", "# nothing\n", {}),
    "ignored columns": ("a.svm", SVM, {"ignore": ["x"]}),
    "another format": ("a.svm", "PAR1PAR1", {}),
    "too few features": ("a.csv", CSV, {"n_features": 0}),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_read_cannot_be_converted(tmp_path: Path, small: None, case: str) -> None:
    """For the same reason, in the same words; and nothing is left beside the file."""
    name, content, settings_ = WRONG[case]
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(TableError) as read:
        read_table(path, **settings_)
    with pytest.raises(TableError) as converted:
        convert_table(path, tmp_path / "a.blocks", rows_per_block=5, **settings_)
    assert str(converted.value) == str(read.value)
    assert [one.name for one in tmp_path.iterdir()] == [name]


def test_an_index_that_asks_for_too_much_memory_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not when a block with so many columns is to be written."""
    (tmp_path / "a.svm").write_text(SVM + "1 2000000000:1\n")
    monkeypatch.setattr("tulle.files.tables.free_memory.free_memory", lambda: 10**9)
    with pytest.raises(TableError, match="does not fit into the memory"):
        convert_table(tmp_path / "a.svm", tmp_path / "a.blocks")


def test_a_file_that_changes_makes_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of one state and half of another is no table."""
    path = tmp_path / "a.svm"
    path.write_text(SVM)
    fingerprint = files.Source.fingerprint

    def grown(source: files.Source, progress: files.Progress) -> str:
        path.write_text(SVM + SVM)
        return fingerprint(source, progress)

    monkeypatch.setattr(files.Source, "fingerprint", grown)
    with pytest.raises(TableError, match="changed while it was being read"):
        convert_table(path, tmp_path / "a.blocks")
    assert [one.name for one in tmp_path.iterdir()] == ["a.svm"]


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("kind", ["csv", "svm", "parquet"])
def test_converting_takes_no_more_memory_for_a_longer_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, jobs: int
) -> None:
    """Four times the rows, each of a person of its own: the peak is that of a few blocks, not of the rows."""
    monkeypatch.setattr(files, "BLOCK_BYTES", 1 << 13)
    monkeypatch.setattr(
        tulle.backends.table_conversion, "open_blocks", lambda path: None
    )  # which holds all targets and people
    monkeypatch.setattr("tulle.files.tables.parquet.BLOCK_BYTES", 1 << 13)
    monkeypatch.setattr("tulle.files.tables.parquet._BUFFER_BYTES", 1 << 12)
    numbers = np.random.default_rng(0).random((8000, 20))
    values = numbers.round(3).astype(str)
    header, lines, settings_ = "", [""], dict[str, Any]()
    if kind == "csv":
        header, lines = "id," + ",".join(f"c{k}" for k in range(20)) + "\n", [",".join(row) for row in values]
        settings_["groups"] = "id"
        lines = [f"person{k},{line}\n" for k, line in enumerate(lines)]
    elif kind == "svm":
        lines = ["1 " + " ".join(f"{k + 1}:{value}" for k, value in enumerate(row)) + "\n" for row in values]
    peaks = {}
    for k, n in enumerate((8000, 2000, 8000)):  # the first for imports and caches alone
        path = tmp_path / f"{n}.{kind}"
        if kind == "parquet":
            path.write_bytes(parquet(**{f"c{k}": numbers[:n, k] for k in range(20)}))
        else:
            path.write_text(header + "".join(lines[:n]))
        tracemalloc.start()
        convert_table(path, tmp_path / f"{k}.blocks", rows_per_block=250, jobs=jobs, **settings_)
        peaks[n] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peaks[8000] < 1.3 * peaks[2000]
    assert peaks[8000] < 8000 * 20 * 8  # of the rows
