"""Raw cells of Parquet files, folders and globs of them, and of addresses that fsspec opens."""

from __future__ import annotations

import datetime
import decimal
import hashlib
import sys
from pathlib import Path
from typing import Any

import pytest
from test_raw_cells import every, listed, refused

from tulle.files.tables import TableError
from tulle.files.tables.raw_cells import open_raw, read_raw

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def written(path: Path, table: Any = None, **columns: Any) -> Path:
    """A Parquet file with the given columns."""
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns) if table is None else table, path)
    return path


def test_types_are_those_of_the_file(tmp_path: Path) -> None:
    day = datetime.date(2020, 1, 2)
    kinds = {
        "whole": pa.array([1, None], pa.int32()),
        "number": pa.array([1.5, float("nan")], pa.float32()),
        "money": pa.array([decimal.Decimal("1.20"), None]),
        "yes": pa.array([True, None]),
        "day": pa.array([day, None]),
        "moment": pa.array([datetime.datetime(2020, 1, 2), None], pa.timestamp("us", "Europe/Zurich")),
        "word": pa.array(["007", None]),
        "nothing": pa.nulls(2),
    }
    columns, n_rows, content = read_raw(path := written(tmp_path / "t.parquet", **kinds), every)
    assert n_rows == 2
    assert content == f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
    assert {name: cells.type for name, cells in columns.items()} == {name: kind.type for name, kind in kinds.items()}
    assert all(columns[name].slice(0, 1).equals(kind.slice(0, 1)) for name, kind in kinds.items())


def test_text_of_any_kind_becomes_strings(tmp_path: Path) -> None:
    words = ["é", None, "x"]
    wrong = [b"\xff,", None, "é".encode()]
    path = written(
        tmp_path / "t.parquet",
        plain=pa.array(words),
        large=pa.array(words, pa.large_string()),
        few=pa.array(words).dictionary_encode(),
        bytes=pa.array(wrong),
        fixed=pa.array([b"ab", None, b"c\xff"], pa.binary(2)),
        # Marked as text, but no UTF-8.
        false=pa.array(wrong).view(pa.string()),
        numbers=pa.array([5, None, 5]).dictionary_encode(),
    )
    replaced = ["\ufffd,", None, "é"]
    columns, _, _ = read_raw(path, every)
    assert {str(cells.type) for cells in columns.values()} == {"string", "int64"}
    assert listed(path) == {
        "plain": words,
        "large": words,
        "few": words,
        "bytes": replaced,
        "fixed": ["ab", None, "c\ufffd"],
        "false": replaced,
        "numbers": [5, None, 5],
    }


def test_columns_that_are_no_cells_are_refused_together(tmp_path: Path) -> None:
    path = written(tmp_path / "t.parquet", a=[[1], [2]], b=[{"c": 1}, {"c": 2}], d=[1, 2])
    message = refused(path)
    assert "2 columns cannot be read" in message
    assert "list<" in message
    assert "struct<c: int64>" in message
    assert listed(path, lambda header: ["d"]) == {"d": [1, 2]}


def test_names_with_dots(tmp_path: Path) -> None:
    path = written(tmp_path / "t.parquet", **{"a": [1], "a.b": [2], "b": [{"a": 3}]})
    assert listed(path, lambda header: ["a"]) == {"a": [1]}
    assert listed(path, lambda header: ["a.b"]) == {"a.b": [2]}


def test_names_must_be_unique(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], names=["a", "", "a"])
    message = refused(written(tmp_path / "t.parquet", table))
    assert "no name for column 2" in message
    assert "columns 1, 3 have the same name" in message


def test_no_rows_are_refused(tmp_path: Path) -> None:
    assert "no rows" in refused(written(tmp_path / "t.parquet", a=pa.array([], pa.int64())))


def test_rows_come_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tulle.files.tables.parquet._FEWEST_ROWS", 2)
    monkeypatch.setattr("tulle.files.tables.parquet.BLOCK_BYTES", 1)
    path = written(tmp_path / "t.parquet", a=list(range(7)))
    with open_raw(path, every) as table:
        for _ in range(2):
            assert [batch.n_rows for batch in table.batches()] == [2, 2, 2, 1]
    assert listed(path) == {"a": list(range(7))}


# --- several files -------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder as Spark writes it, one part of which has no rows."""
    made = tmp_path / "table"
    written(made / "part-00001.snappy.parquet", b=["y"], a=[2])
    written(made / "part-00000.snappy.parquet", a=[1], b=["x"])
    written(made / "part-00002.snappy.parquet", a=pa.array([], pa.int64()), b=pa.array([], pa.string()))
    for name in ("_SUCCESS", "_metadata", ".part-00000.snappy.parquet.crc"):
        (made / name).write_bytes(b"")
    return made


def test_a_folder_and_a_glob(folder: Path) -> None:
    assert listed(folder) == listed(folder / "part-*.parquet") == {"a": [1, 2], "b": ["x", "y"]}
    contents = [read_raw(path, every)[2] for path in (folder, folder / "*.parquet")]
    assert contents[0] == contents[1]
    assert contents[0].startswith("sha256:")
    assert "only as Parquet" in refused(folder, format="csv")


def test_other_columns_in_a_part_are_refused_by_its_name(folder: Path) -> None:
    part = written(folder / "part-00003.parquet", a=[1], c=["x"])
    with pytest.raises(
        TableError,
        match=r"part-00003\.parquet: not the same columns as in 'part-00000.*': it lacks 'b' and it also has 'c'",
    ):
        read_raw(folder, every)
    written(part, a=["1"], b=["x"])
    with pytest.raises(TableError, match=r"part-00003\.parquet, column 'a': the column contains string, but int64 in"):
        read_raw(folder, every)
    assert listed(folder, lambda header: ["b"]) == {"b": ["x", "y", "x"]}
    part.write_bytes(b"PAR1 not really")
    with pytest.raises(TableError, match=r"part-00003\.parquet: the file is truncated or damaged"):
        read_raw(folder, every)


def test_other_files_in_a_folder_are_refused(folder: Path) -> None:
    (folder / "day=1").mkdir()
    (folder / "notes.txt").write_bytes(b"x")
    assert "1 folders and 1 files that are not Parquet" in refused(folder)
    assert listed(folder / "*.parquet") == {"a": [1, 2], "b": ["x", "y"]}


def test_a_part_that_changes_is_refused(folder: Path) -> None:
    with open_raw(folder, every) as table:
        written(folder / "part-00001.snappy.parquet", a=[2, 3], b=["y", "z"])
        with pytest.raises(TableError, match=r"part-00001\.snappy\.parquet: changed"):
            list(table.batches())


# --- addresses -----------------------------------------------------------------------------------------------------


@pytest.fixture
def memory() -> Any:
    fsspec = pytest.importorskip("fsspec")
    system = fsspec.filesystem("memory")
    yield system
    system.rm("/raw", recursive=True)


def test_addresses(memory: Any, folder: Path) -> None:
    memory.pipe("/raw/t.csv", b"a,b\n1,x\n")
    assert listed("memory://raw/t.csv") == {"a": ["1"], "b": ["x"]}
    for path in folder.iterdir():
        memory.pipe(f"/raw/table/{path.name}", path.read_bytes())
    for address in ("memory://raw/table", "memory://raw/table/part-*.parquet"):
        assert listed(address) == {"a": [1, 2], "b": ["x", "y"]}
        assert read_raw(address, every)[2] == read_raw(folder, every)[2]
    memory.pipe("/raw/empty.csv", b"")
    for address in ("memory://raw/none.csv", "memory://raw/*.svm", "memory://raw/empty.csv", "klingon://raw/t.csv"):
        assert refused(address)


def test_addresses_need_fsspec(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    assert "need fsspec" in refused("s3://bucket/t.csv")
