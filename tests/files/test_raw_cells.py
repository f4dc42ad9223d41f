"""Raw cells of CSV files: what is read, by pyarrow and by the standard library alike, and what is refused."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import hashlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from test_imports import loaded_by

from tulle.files.tables import TableError, input_files, raw_cells, raw_delimited
from tulle.files.tables.raw_cells import open_raw, read_raw

pytest.importorskip("pyarrow")

Read = Callable[..., "dict[str, list[str]] | str"]


def every(header: Sequence[str]) -> Sequence[str]:
    """Chooses all columns."""
    return header


def listed(path: Path, choose: Any = every, **given: Any) -> dict[str, list[Any]]:
    """The columns as lists."""
    columns, n_rows, _ = read_raw(path, choose, **given)
    found = {name: cells.tolist() for name, cells in columns.items()}
    assert all(len(cells) == n_rows for cells in found.values())
    return found


def refused(path: Path, choose: Any = every, **given: Any) -> str:
    """The message of a refusal without the file's name; nothing is chained to it."""
    with pytest.raises(TableError) as raised:
        read_raw(path, choose, **given)
    assert raised.value.__cause__ is raised.value.__context__ is None
    assert str(raised.value).startswith(str(path))
    return str(raised.value).removeprefix(str(path))


@pytest.fixture(params=[False, True], ids=["pyarrow", "standard library"])
def read(request: pytest.FixtureRequest, tmp_path: Path) -> Read:
    """Reads bytes as a file of a name; the message in place of the table where they are refused."""

    def cells(content: bytes, name: str = "table.csv", choose: Any = every, **given: Any) -> Any:
        path = tmp_path / name
        path.write_bytes(content)
        with contextlib.suppress(TableError):
            return listed(path, choose, plain=request.param, **given)
        return refused(path, choose, plain=request.param, **given)

    return cells


# --- cells ---------------------------------------------------------------------------------------------------------


def test_no_type_is_inferred(read: Read) -> None:
    assert read(b"a,b,c\n007,NA,1e3\n012,,true\n") == {"a": ["007", "012"], "b": ["NA", ""], "c": ["1e3", "true"]}


def test_quoted_cells(read: Read) -> None:
    content = b'a,b\n"x,y","say ""hi"""\n"two\nlines","and\r\nmore"\n5" pipe,y\n"tail"end, x \n"",\n'
    assert read(content) == {
        "a": ["x,y", "two\nlines", '5" pipe', "tailend", ""],
        "b": ['say "hi"', "and\r\nmore", "y", " x ", ""],
    }


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_line_ends_and_blank_lines(read: Read, end: bytes) -> None:
    content = end + b"a,b" + end + end + b"1,2" + end + end + b"3,4"
    for text in (content, content + end, content + end + end):
        assert read(text) == {"a": ["1", "3"], "b": ["2", "4"]}


def test_blank_lines_of_one_column_are_no_rows(read: Read) -> None:
    assert read(b'a\nx\n\n""\n \n') == {"a": ["x", "", " "]}


def test_bytes_that_are_not_utf8_are_replaced(read: Read) -> None:
    assert read(b"a,b\n\xe9,x\n\xf0\x9f\x98,\xff\xfe\n\xc3\xa9,y\n") == {
        "a": ["\ufffd", "\ufffd", "é"],
        "b": ["x", "\ufffd\ufffd", "y"],
    }


def test_a_byte_order_mark_is_skipped_once(read: Read) -> None:
    mark = b"\xef\xbb\xbf"
    assert read(mark + b"a\n" + mark + b"x\n") == {"a": ["\ufeffx"]}
    assert read(mark + b"x\n", header=False) == {"0": ["x"]}
    assert read(mark + mark + b"x\n", header=False) == {"0": ["\ufeffx"]}


def test_other_encodings(read: Read) -> None:
    text = "a,b\né,日本\nx,\U0001f600\n"
    assert read(text.encode("utf-16"), encoding="utf-16") == {"a": ["é", "x"], "b": ["日本", "\U0001f600"]}
    assert read("a\né\n".encode("cp1252") + b"\x81\n", encoding="cp1252") == {"a": ["é", "\ufffd"]}
    assert "--encoding 'klingon' is unknown" in read(b"a\nx\n", encoding="klingon")


def test_delimiters(read: Read) -> None:
    assert read(b'"a,x";b\n1,2;3\n') == {"a,x": ["1,2"], "b": ["3"]}
    assert read(b"a\tb\n1,2\t3\n", "table.tsv") == {"a": ["1,2"], "b": ["3"]}
    assert read(b"a|b\n1|2\n", delimiter="|") == {"a": ["1"], "b": ["2"]}
    assert read("a§b\n1§2\n".encode(), delimiter="§") == {"a": ["1"], "b": ["2"]}
    # Without a header the first line is somebody's row, and is not looked at.
    assert read(b"a;b;c\n", header=False) == {"0": ["a;b;c"]}
    assert read(b"a;b\tc\n", "table.tsv", header=False) == {"0": ["a;b"], "1": ["c"]}
    assert "--delimiter must be" in read(b"a\n1\n", delimiter=",,")
    assert "--delimiter must be" in read(b"a\n1\n", delimiter="\0")


def test_chosen_columns_are_read_in_their_order(read: Read) -> None:
    seen = []

    def choose(header: Sequence[str]) -> list[str]:
        seen.append(tuple(header))
        return ["c", "a", "c"]

    found = read(b" a ,b,c\n1,2,3\n", choose=choose)
    assert list(found.items()) == [("c", ["3"]), ("a", ["1"])]
    assert seen == [("a", "b", "c")]


def test_packed_files(read: Read) -> None:
    content = b"a,b\n1,x\n"
    assert read(gzip.compress(content), "table.csv.gz") == read(bz2.compress(content), "table.csv.bz2")
    assert read(gzip.compress(content), "table.csv.gz") == {"a": ["1"], "b": ["x"]}


def test_many_blocks_and_a_row_longer_than_a_block(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_files, "BLOCK_BYTES", 64)
    rows = [(f'{place}é"', "x\r\n" * (60 if place == 90 else place % 5)) for place in range(200)]
    quoted = "".join('"' + a.replace('"', '""') + '","' + b + '"\n' for a, b in rows)
    assert read(f"a,b\n{quoted}".encode()) == {"a": [a for a, _ in rows], "b": [b for _, b in rows]}


def test_text_beyond_32_bit_offsets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_files, "BLOCK_BYTES", 64)
    monkeypatch.setattr(raw_cells, "_MOST_TEXT", 1000)
    monkeypatch.setattr(raw_cells, "_JOINED_AT_ONCE", 3)
    words = [f"word {place}" for place in range(500)]
    path = tmp_path / "table.csv"
    path.write_text("\n".join(["a", *words]))
    columns, _, _ = read_raw(path, every)
    assert str(columns["a"].type) == "large_string"
    assert columns["a"].to_pylist() == words


def test_long_cells(read: Read) -> None:
    long = "ab" * 150_000  # more than the csv module takes unless told otherwise
    assert read(f"a,b\n{long},1\n".encode()) == {"a": [long], "b": ["1"]}


# --- both parsers --------------------------------------------------------------------------------------------------

_PIECES = [b'"', b'""', b",", b"\r", b"\n", b"\r\n", b"\n\n", b"a", b" ", b"\xc3\xa9", b"\xc3", b"\xa9", b"\xff"]
_PIECES += [
    b"\xf0\x9f\x98\x80",
    b"\xf0\x9f",
    b"\xef\xbb\xbf",
    b"\xef\xbb",
    b"x,y\n",
    b'"q",1\n',
    b"\0",
    b"\xed\xa0\x80",
]
_BYTES = st.lists(st.sampled_from(_PIECES), max_size=40).map(b"".join)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(begin=st.sampled_from([b"", b"a,b\n", b"\xef\xbb\xbfa,b\r\n", b"h\n"]), body=_BYTES, header=st.booleans())
@example(begin=b"a,b\n", body=b'x,"y', header=True)
@example(begin=b"a,b\n", body=b'x,y\n"', header=True)
@example(begin=b"", body=b"\xef\xbb\xef\xbb\xbf,\n", header=False)
def test_both_parsers_give_the_same_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begin: bytes, body: bytes, header: bool
) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(begin + body)
    found: list[Any] = []
    for block in (32, 1 << 20):
        monkeypatch.setattr(input_files, "BLOCK_BYTES", block)
        for plain in (True, False):
            try:
                found.append(listed(path, header=header, plain=plain))
            except TableError as error:
                found.append(str(error))
    assert found[0] == found[1]
    assert found[2] == found[3]
    # Of two faults, the one in the earlier block is told.
    assert found[0] == found[2] or (isinstance(found[0], str) and isinstance(found[2], str))


@pytest.mark.parametrize("header", [True, False])
def test_pyarrow_reads_good_files_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header: bool) -> None:
    def unused(*_: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr(raw_delimited.CsvCells, "_plain_rows", unused)
    path = tmp_path / "table.csv"
    path.write_bytes(b'\xef\xbb\xbfa,b\r\n"x\r\ny",\xff\r\n\r\n"""",z')
    assert listed(path, header=header)["b" if header else "1"][-2:] == ["\ufffd", "z"]


def test_without_pyarrow_the_standard_library_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.csv", None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    path = tmp_path / "table.csv"
    path.write_bytes(b"a\nx\n\xff\n")
    columns, _, _ = read_raw(path, every)
    assert columns["a"].dtype == object
    assert columns["a"].tolist() == ["x", "\ufffd"]


def test_importing_the_reader_loads_nothing_heavy() -> None:
    assert not {"pyarrow", "fsspec", "pandas"} & set(loaded_by("import tulle.files.tables.raw_delimited"))


# --- an open table -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plain", [False, True])
def test_an_open_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plain: bool) -> None:
    monkeypatch.setattr(input_files, "BLOCK_BYTES", 64)
    path = tmp_path / "table.csv"
    content = b"a,b\n" + b"1,x\n" * 100
    path.write_bytes(content)
    with open_raw(path, lambda header: header[1:], plain=plain) as table:
        assert (table.name, table.header, table.columns) == (str(path), ("a", "b"), ("b",))
        batches = table.batches()
        next(batches)
        batches.close()
        sizes = [batch.n_rows for batch in table.batches()]  # from the first row again
        assert len(sizes) > 1
        assert sum(sizes) == 100
        assert table.fingerprint() == f"sha256:{hashlib.sha256(content).hexdigest()}"


def test_choose_is_asked_before_rows_are_read(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(b"a,b\n1,2,3\n")

    def choose(header: Sequence[str]) -> Sequence[str]:
        raise TableError("no such schema")

    with pytest.raises(TableError, match="no such schema"):
        read_raw(path, choose)
    assert "no column is named 'x', 'y'" in refused(path, lambda header: ["x", "a", "y"])
    assert "no column is chosen" in refused(path, lambda header: [])


def test_progress(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(b"a\n1\n")
    read_raw(path, every, progress=True)
    assert "table.csv: 100% read" in capsys.readouterr().err


# --- refusals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", ": the file is empty"),
        (b"\r\n\n", ": only blank lines"),
        (b"a,b\n\n", ": a header but no rows"),
        (b"1,2\n3,4\n", ", line 1: the first line has only numbers"),
        (
            b",b,a,b,a,\n1,2,3,4,5,6\n",
            ": the header has no name for columns 1, 6 (often row numbers); columns 2, 4 have",
        ),
        (b'a,b\n"x\ny",1\n\nSECRET,2,3\n', ", line 5: a row with more or fewer cells"),
        (b"a,b\n1,2\nSECRET", ", line 3: a row with more or fewer cells"),
        (b'a,b\n1,2\n3,"SECRET\n1,2\n', ", line 3: a quotation mark that begins here is not closed"),
        (b'a,"SECRET\n1,2\n', ", line 1: a quotation mark that begins here is not closed"),
        (b"a\0,b\r1,2\rSECRET,2\r", ", line 1: a NUL character"),
        ("a,b\nSECRET,1\n".encode("utf-16"), ", line 1: a NUL character"),
        (b"PAR1" + b"SECRET" * 10, ": this is not csv but a Parquet file"),
    ],
)
def test_what_is_refused(read: Read, content: bytes, message: str) -> None:
    found = read(content)
    assert isinstance(found, str)
    assert found.startswith(message)
    assert "SECRET" not in found


def test_rows_that_do_not_end_are_refused(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_files, "BLOCK_BYTES", 64)
    monkeypatch.setattr(input_files, "LONGEST_LINE", 1000)
    assert "line 3: no row ends within" in read(b'a,b\n1,2\n3,"' + b"SECRET\n" * 1000 + b'"\n')


@pytest.mark.parametrize("name", ["table.csv.gz", "table.csv.bz2"])
def test_damaged_packed_files_are_refused(read: Read, name: str) -> None:
    pack = gzip.compress if name.endswith("gz") else bz2.compress
    content = pack(b"a,b\n" + b"".join(b"%d,SECRET\n" % place for place in range(10_000)))
    assert "truncated or damaged" in read(content[: len(content) // 2], name)
    assert "not compressed as" in read(b"a,b\n1,2\n", name)


def test_other_files_are_refused(tmp_path: Path) -> None:
    assert "no such file" in refused(tmp_path / "none.csv")
    assert "no file matches" in refused(tmp_path / "*.csv")
    path = tmp_path / "table.svm"
    path.write_bytes(b"1 1:2\n")
    assert "svmlight files have no columns with names" in refused(path)
    assert "--format must be one of" in refused(path, format="words")
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_bytes(b"a\nx\n")
    assert "only as Parquet" in refused(tmp_path / "*.csv")
    assert listed(tmp_path / "a*.csv") == {"a": ["x"]}
    assert "no Parquet files in this folder" in refused(tmp_path)


def test_a_nul_in_a_cell_is_replaced(read: Read) -> None:
    """A refusal would depend on one person's cell."""
    assert read(b"a,b\n1,x\0y\n\0,2\n") == {"a": ["1", "\ufffd"], "b": ["x\ufffdy", "2"]}
