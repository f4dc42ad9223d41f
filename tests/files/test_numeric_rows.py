"""Tables of numbers from CSV: pyarrow and the standard library give the same rows and refuse with the same words."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from test_raw_damage import everything_said
from test_tables import CSV_REFUSED, GOOD, Write, refused, test_places_are_right_in_later_blocks, write

from tulle.files.tables import TableError, input_files, numeric_rows, open_batches, raw_delimited, read_table
from tulle.files.tables.columns import Wanted

pytest.importorskip("pyarrow")
assert write  # a fixture
later_blocks = test_places_are_right_in_later_blocks
del test_places_are_right_in_later_blocks  # or it would be run twice


def outcome(path: Path, monkeypatch: pytest.MonkeyPatch, *, plain: bool, **given: Any) -> Any:
    """The parts of the table, or the message."""
    monkeypatch.setattr(numeric_rows, "_SMALL_FILE", 1 << 60 if plain else 0)
    try:
        table = read_table(path, **given)
    except TableError as error:
        return str(error), error.without_rows
    others = [None if part is None else part.tolist() for part in (table.y, table.groups)]
    return str(table.X.tolist()), *others, table.feature_names  # NaN is not equal to itself, but its text is


@pytest.mark.parametrize("case", CSV_REFUSED)
def test_refusals_do_not_depend_on_the_parser(write: Write, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    content, given, _ = CSV_REFUSED[case]
    path = write("a.csv", content)
    plain, arrow = (outcome(path, monkeypatch, plain=by, **{"target": "sick", **given}) for by in (True, False))
    assert plain == arrow
    assert len(plain) == 2


_CELLS = ["1", "2.5", "-3e2", "+7", ".5", "5.", " 4 ", "1e400", "inf", "-nan", "", "NA", "x", "1,5", '"6"', '"a,b"']
_CELLS += ['"8', '9"', "1_0", "１", '" 1\n"', "é", "\0"]
_ROW = st.tuples(*[st.sampled_from(_CELLS[:7] * 9 + _CELLS)] * 3).map(",".join)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(st.one_of(_ROW, _ROW, _ROW, st.sampled_from(["", "1,2", "1,2,3,4"])), max_size=12),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    given=st.sampled_from([{}, {"target": "c"}, {"groups": "b"}, {"target": "a", "groups": "c", "labels": True}]),
    missing=st.booleans(),
    block=st.sampled_from([1 << 9, 1 << 20]),
)
@example(rows=["1,2,x", "1,2,3"], end="\n", given={"target": "c"}, missing=False, block=1 << 20)
@example(rows=["1,2,3", "1,2,x"], end="\n", given={"target": "c"}, missing=False, block=1 << 20)
@example(rows=["1,2,3", '1,2,"'], end="\n", given={"ignore": ["c"]}, missing=False, block=1 << 20)
@example(rows=["nan,2,3", 'nan,2,"'], end="\n", given={"ignore": ["c"]}, missing=False, block=1 << 20)
@example(rows=["NA,,3", 'NA,,"'], end="\n", given={"ignore": ["c"]}, missing=True, block=1 << 20)
@example(rows=["NA,,3", 'NA,,"'], end="\n", given={}, missing=True, block=1 << 20)
@example(rows=["NA,inf,3", "x,,NA"], end="\n", given={"target": "c"}, missing=True, block=1 << 20)
def test_rows_do_not_depend_on_the_parser(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rows: list[str],
    end: str,
    given: dict[str, Any],
    missing: bool,
    block: int,
) -> None:
    monkeypatch.setattr(input_files, "BLOCK_BYTES", block)
    path = tmp_path / "a.csv"
    path.write_bytes(end.join(["a,b,c", *rows]).encode())
    plain, arrow = (outcome(path, monkeypatch, plain=by, missing=missing, **given) for by in (True, False))
    assert plain == arrow


@pytest.mark.parametrize("cell", ["SECRET", '"SECRET', "1,SECRET", "SECRET\0", "SECRET,,\xe9", '"SECRET;1"'])
@pytest.mark.parametrize("plain", [False, True], ids=["pyarrow", "standard library"])
def test_no_word_of_a_cell_is_said(write: Write, monkeypatch: pytest.MonkeyPatch, cell: str, plain: bool) -> None:
    """Neither in the message nor in what is chained to it: both parsers' own errors quote cells."""
    monkeypatch.setattr(numeric_rows, "_SMALL_FILE", 1 << 60 if plain else 0)
    monkeypatch.setattr(input_files, "BLOCK_BYTES", 1 << 10)
    path = write("a.csv", ("a,b\n" + "1,2\n" * 500 + f"3,{cell}\n").encode("latin-1"))
    for target in (None, "b"):
        with pytest.raises(TableError) as raised:
            read_table(path, target=target)
        assert "SECRET" not in everything_said(raised.value)


def test_pyarrow_reads_good_files_alone(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    def unused(*_: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr(numeric_rows, "_SMALL_FILE", 0)
    monkeypatch.setattr(raw_delimited.CsvCells, "_plain_rows", unused)
    table = read_table(write("a.csv", "id,a,b,y\né,+1, 2.5,u\nJohn,.5,-1E3,v\n"), target="y", groups="id")
    assert table.X.tolist() == [[1.0, 2.5], [0.5, -1000.0]]
    assert table.groups is not None
    assert table.groups.tolist() == ["é", "John"]
    table = read_table(write("c.csv", 'a,b,y\n,NULL,u\ninf,"",v\n#n/a,nAn,\n'), ignore=["y"], missing=True)
    np.testing.assert_array_equal(table.X, [[np.nan] * 2, [np.inf, np.nan], [np.nan] * 2])
    # Numbers that are not finite and words that are missing are told without another look at the cells.
    message = refused(write("b.csv", "id,a,b,y\nx,1,inf,1\n,nan,2,2\n\nx,1,nan,inf\n"), target="y", groups="id")
    for part in ("'b' (line 2)", "'id' (line 3)", "'a' (line 3)", "'y' (line 5)"):
        assert part in message


def test_a_small_file_is_read_without_pyarrow(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    def unused(*_: Any, **__: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr(raw_delimited, "_ArrowParser", unused)
    assert read_table(write("a.csv", GOOD), target="sick").X.shape == (2, 2)
    monkeypatch.setattr(numeric_rows, "_SMALL_FILE", 0)
    with pytest.raises(AssertionError):
        read_table(write("a.csv", GOOD), target="sick")


def test_places_are_right_after_blocks_that_pyarrow_has_read(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numeric_rows, "_SMALL_FILE", 0)
    monkeypatch.setattr(input_files, "BLOCK_BYTES", 64)
    later_blocks(write, None)


@pytest.mark.parametrize("block", [1 << 8, 1 << 12])
def test_columns_are_told_in_the_order_of_their_lines(
    write: Write, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    """Whatever the size of the blocks in which they were found."""
    monkeypatch.setattr(input_files, "BLOCK_BYTES", block)
    lines = ["1,2,3"] * 30
    lines[20], lines[10], lines[5] = "x,2,3", "1,x,3", "1,2,x"
    assert "'c' (line 7), 'b' (line 12), 'a' (line 22)" in refused(write("a.csv", "\n".join(["a,b,c", *lines])))


def test_a_column_with_a_place_for_a_name_cannot_be_ignored_by_it(write: Write) -> None:
    assert "--ignore" not in refused(write("a.csv", "Jane Doe,4711\nx,1\n"))
    assert "--ignore 'name'" in refused(write("a.csv", "name,age\nx,1\n"))


def test_a_cell_that_only_python_reads_changes_no_row(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """pyarrow has handed out blocks by then: no row is lost or read twice."""
    monkeypatch.setattr(numeric_rows, "_SMALL_FILE", 0)
    monkeypatch.setattr(input_files, "BLOCK_BYTES", 64)
    lines = [f"{row},{row % 3}" for row in range(300)]
    lines[200] = '"\n200",2'
    table = read_table(write("a.csv", "x,y\n" + "\n".join(lines)), target="y")
    assert table.X.ravel().tolist() == list(range(300))
    assert table.y is not None
    assert table.y.tolist() == [row % 3 for row in range(300)]


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("content", ["1,2\n", "5,naïve\n"])
def test_the_share_is_that_of_the_rows(
    write: Write, monkeypatch: pytest.MonkeyPatch, plain: bool, content: str
) -> None:
    """Parsers read ahead; what memory a table takes is estimated by the rows that have come."""
    monkeypatch.setattr(numeric_rows, "_SMALL_FILE", 1 << 60 if plain else 0)
    monkeypatch.setattr(input_files, "BLOCK_BYTES", 1 << 13)
    path, n, done = write("a.csv", "x,y\n" + content * 20_000), 20_000, 0
    with open_batches(path, Wanted(target="y")) as (source, batches):
        for batch in batches:
            done += len(batch.X)
            assert source.share == pytest.approx(done / n, rel=0.02, abs=2e-3)
    assert done == n


def test_reading_by_pyarrow_peaks_at_little_more_than_the_table(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks that it reads ahead are as many for every file; its own memory is measured in benchmarks."""
    monkeypatch.setattr(input_files, "BLOCK_BYTES", 1 << 14)
    values = np.random.default_rng(0).random((20_000, 20)).round(3)
    lines = [",".join(f"c{place}" for place in range(20)), *(",".join(map(str, row)) for row in values.tolist())]
    path = write("a.csv", "\n".join(lines))
    monkeypatch.setattr(numeric_rows, "_SMALL_FILE", 0)
    read_table(path)  # imports
    tracemalloc.start()
    X = read_table(path).X
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_array_equal(X, values)
    assert X.nbytes < peak < 1.5 * X.nbytes
