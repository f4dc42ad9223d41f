"""Tables from files: what is read, block by block, and what is refused with its place and with advice.

Whatever a file holds, `read_table` returns a table or raises `TableError`; nothing else comes out of it.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import hashlib
import io
import os
import sys
import traceback
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file
from test_imports import loaded_by

from tulle.files.install_hints import install_hint
from tulle.files.tables import FORMATS, TableError, read_table
from tulle.files.tables import input_files as files

GOOD = "age,dose,sick\n30,2.5,yes\n41,4,no\n"
Write = Callable[[str, "str | bytes"], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a file of the given name and content."""

    def written(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return written


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 64 bytes: a file of a few lines has many."""
    monkeypatch.setattr(files, "BLOCK_BYTES", 64)


def refused(path: Path, **settings: Any) -> str:
    """The message of the refusal; it begins with the file's name as given."""
    with pytest.raises(TableError) as raised:
        read_table(path, **settings)
    message = str(raised.value)
    assert message.startswith(str(path))
    return message.removeprefix(str(path))


def npz(**members: Any) -> bytes:
    """The bytes of an npz file."""
    buffer = io.BytesIO()
    np.savez(buffer, **members)
    return buffer.getvalue()


def csr_npz(X: Any, **others: Any) -> bytes:
    """The members that scipy writes for a sparse matrix, and others."""
    return npz(data=X.data, indices=X.indices, indptr=X.indptr, shape=X.shape, format=X.format.encode(), **others)


def parquet(**columns: Any) -> bytes:
    """The bytes of a Parquet file."""
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer)
    return buffer.getvalue()


# --- CSV: reading ----------------------------------------------------------------------------------------------------


def test_a_csv_file_becomes_features_targets_and_names(write: Write) -> None:
    """Numbers as float64, words as str, names in the order of the columns, and the hash of the bytes."""
    path = write("visits.csv", GOOD)
    table = read_table(path, target="sick")
    np.testing.assert_array_equal(table.X, [[30.0, 2.5], [41.0, 4.0]])
    assert table.X.dtype == np.float64
    assert table.y is not None
    assert table.y.tolist() == ["yes", "no"]
    assert table.y.dtype.kind == "U"
    assert table.feature_names == ("age", "dose")
    assert table.groups is None
    assert table.source == str(path)
    assert table.content == f"sha256:{hashlib.sha256(GOOD.encode()).hexdigest()}"


def test_numeric_targets_ids_and_ignored_columns(write: Write) -> None:
    """A target of numbers is float64; ids stay text, exact beyond 53 bits; ignored words do no harm."""
    content = "id,note,dose,cost\n9007199254740993,a,1,10\n9007199254740992,b,2,20.5\n"
    table = read_table(write("a.csv", content), target="cost", groups="id", ignore=["note"])
    assert table.X.tolist() == [[1.0], [2.0]]
    assert table.y is not None
    assert table.groups is not None
    assert table.y.tolist() == [10.0, 20.5]
    assert table.groups.tolist() == ["9007199254740993", "9007199254740992"]
    assert table.feature_names == ("dose",)


@pytest.mark.parametrize(
    ("content", "settings"),
    [
        (GOOD.replace(",", ";"), {}),
        (GOOD.replace(",", "\t"), {}),
        (GOOD.replace(",", "|"), {"delimiter": "|"}),
        (GOOD.replace("\n", "\r\n"), {}),
        (GOOD.replace("\n", "\r"), {}),
        (GOOD.rstrip("\n"), {}),
        ("\n\n" + GOOD.replace("\n41", "\n\n41") + "\n", {}),
        ("\ufeff" + GOOD, {}),
        (GOOD.encode("utf-16"), {"encoding": "utf-16"}),
        (GOOD.replace(",", " , "), {}),
        ('"age","dose","sick"\n"30","2.5","yes"\n"41","4","no"\n', {}),
        ('age;dose;"sick"\n"30";2.5;yes\n41;4;"no"\n', {}),
    ],
    ids=[
        "semicolon",
        "tab",
        "bar",
        "CRLF",
        "CR",
        "no end",
        "blank lines",
        "BOM",
        "UTF-16",
        "spaces",
        "quoted",
        "mixed",
    ],
)
def test_the_same_table_in_other_dress(write: Write, content: str | bytes, settings: dict[str, Any]) -> None:
    """Delimiters, line ends, marks, quotes and encodings change nothing."""
    table = read_table(write("a.csv", content), target="sick", **settings)
    assert table.X.tolist() == [[30.0, 2.5], [41.0, 4.0]]
    assert table.y is not None
    assert table.y.tolist() == ["yes", "no"]
    assert table.feature_names == ("age", "dose")


def test_windows_1252_is_read_when_it_is_named(write: Write) -> None:
    """Names and classes in another encoding."""
    table = read_table(write("a.csv", "größe,y\n1,é\n".encode("cp1252")), target="y", encoding="cp1252")
    assert table.feature_names == ("größe",)
    assert table.y is not None
    assert table.y.tolist() == ["é"]


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress)])
def test_packed_text_is_unpacked_and_its_packed_bytes_are_hashed(
    write: Write, suffix: str, pack: Callable[[bytes], bytes]
) -> None:
    """.csv.gz, .CSV.BZ2 and their svmlight cousins; the fingerprint is the file's on disk."""
    packed = pack(GOOD.encode())
    table = read_table(write(f"A.CSV{suffix.upper()}", packed), target="sick")
    assert table.X.shape == (2, 2)
    assert table.content == f"sha256:{hashlib.sha256(packed).hexdigest()}"
    assert read_table(write(f"a.svm{suffix}", pack(b"1 2:3\n"))).X.shape == (1, 2)


def test_quoted_cells_may_hold_delimiters_quotes_and_lines(write: Write, small_blocks: None) -> None:
    """Free text that is ignored may hold anything, across blocks too; a lone quotation mark inside a cell is text."""
    rows = [f'"free, ""text""\nof row {row}\n",{row},5" pipe\n' for row in range(40)]
    table = read_table(write("a.csv", "note,x,pipe\n" + "".join(rows)), ignore=["note", "pipe"])
    assert table.X.ravel().tolist() == list(range(40))


@pytest.mark.parametrize("seed", range(20))
def test_the_csv_modules_own_files_are_read_back(write: Write, small_blocks: None, seed: int) -> None:
    """Random text of quotes, blank lines, delimiters and line ends in ignored columns moves no number."""
    rng = np.random.default_rng(seed)
    numbers = rng.normal(size=(30, 2))
    notes = ["".join(rng.choice(list('",;a \n\n'), rng.integers(0, 12))) for _ in range(30)]
    buffer = io.StringIO()
    writer = csv.writer(buffer, delimiter=",;"[seed % 2])
    writer.writerows([["note", "x", "y"], *([note, x, y] for note, (x, y) in zip(notes, numbers.tolist()))])
    table = read_table(write("a.csv", buffer.getvalue()), ignore=["note"])
    np.testing.assert_array_equal(table.X, numbers)


def test_a_file_without_header(write: Write) -> None:
    """Columns are then called "0", "1", …, and the table has no names."""
    path = write("a.csv", "1,2,7\n3,4,8\n")
    table = read_table(path, header=False, target="2", ignore=["0"])
    assert table.X.tolist() == [[2.0], [4.0]]
    assert table.y is not None
    assert table.y.tolist() == [7.0, 8.0]
    assert table.feature_names is None


@pytest.mark.parametrize("block", [1, 7, 64, 1000])
def test_blocks_of_any_size_give_the_same_rows(write: Write, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    """Cut anywhere, inside characters, line ends and numbers, the bytes are those that numpy wrote."""
    monkeypatch.setattr(files, "BLOCK_BYTES", block)
    values = np.random.default_rng(0).normal(size=(60, 3))
    lines = [f"{a!r},{b!r},{c!r},klass {'ä' if a > 0 else 'ö'}" for a, b, c in values.tolist()]
    table = read_table(write("a.csv", "\r\n".join(["a,b,c,y", *lines])), target="y")
    np.testing.assert_array_equal(table.X, values)
    assert table.y is not None
    np.testing.assert_array_equal(table.y == "klass ä", values[:, 0] > 0)


def test_features_are_picked_by_name_in_the_given_order(write: Write) -> None:
    """What `predict` needs: other columns, even words, are left out."""
    table = read_table(write("a.csv", GOOD), features=["dose", "age"])
    assert table.X.tolist() == [[2.5, 30.0], [4.0, 41.0]]
    assert table.feature_names == ("dose", "age")
    assert table.y is None


def test_a_nameless_column_of_row_numbers_can_be_ignored(write: Write) -> None:
    """Its place is its name: pandas writes such a column unless told not to."""
    path = write("a.csv", ",x\n0,5\n1,6\n")
    assert "--ignore 'column 1'" in refused(path)
    assert read_table(path, ignore=["column 1"]).X.tolist() == [[5.0], [6.0]]


# --- CSV: refusals ---------------------------------------------------------------------------------------------------

CSV_REFUSED = {
    "word": (
        GOOD.replace("4,no", "low,no"),
        {},
        ["line 3, column 'dose'", "not a number", "encode", "--ignore 'dose'"],
    ),
    "boolean word": (GOOD.replace("4,no", "True,no"), {}, ["line 3, column 'dose'", "not a number"]),
    "underscore": (GOOD.replace("4,no", "4_0,no"), {}, ["line 3, column 'dose'", "not a number"]),
    "empty cell": (GOOD.replace("4,no", ",no"), {}, ["line 3, column 'dose'", "no value", "release", "constant"]),
    "NaN": (GOOD.replace("4,no", "NaN,no"), {}, ["line 3, column 'dose'", "no value", "release", "constant"]),
    "N/A": (GOOD.replace("4,no", "N/A,no"), {}, ["line 3, column 'dose'", "no value", "constant"]),
    "infinite": (GOOD.replace("4,no", "-inf,no"), {}, ["line 3, column 'dose'", "finite"]),
    "too large": (GOOD.replace("4,no", "1e400,no"), {}, ["line 3, column 'dose'", "finite"]),
    "decimal comma": ("a;y\n1,5;u\n", {"target": "y"}, ["line 2, column 'a'", "decimal comma"]),
    "thousands": ("a;y\n1,234;u\n", {"target": "y"}, ["line 2, column 'a'", "separates thousands", "remove it"]),
    "millions": ("a;y\n-1,234,567.8;u\n", {"target": "y"}, ["line 2, column 'a'", "separates thousands"]),
    "three decimals": ("a;y\n0,1234;u\n", {"target": "y"}, ["line 2, column 'a'", "decimal comma"]),
    "no target": (GOOD, {"target": None, "need_target": True}, ["predicted", "--target", "'age', 'dose', 'sick'"]),
    "wrong delimiter": ("a b\n1;2\n", {"target": None}, ["line 2", "--delimiter ';'"]),
    "cut in a line": (GOOD[:-5], {}, ["line 3", "2 cells", "has 3", "truncated"]),
    "too many cells": (GOOD + "1,2,yes,9\n", {}, ["line 4", "4 cells", "has 3"]),
    "too many, ignored": (GOOD + "1,2,yes,9\n", {"ignore": ["dose"]}, ["line 4", "4 cells"]),
    "open quote": (GOOD + '1,2,"yes\n', {}, ["line 4", "quotation marks"]),
    "missing target": (GOOD.replace("yes", ""), {}, ["line 2, column 'sick'", "target is missing"]),
    "word among numbers": ("a,sick\n1,2\n3,x\n", {}, ["line 3, column 'sick'", "is text", "number"]),
    "number among words": ("a,sick\n1,x\n3,2\n", {}, ["line 3, column 'sick'", "is a number", "text"]),
    "infinite target": ("a,sick\n1,2\n3,inf\n", {}, ["line 3, column 'sick'", "finite"]),
    "missing person": (GOOD.replace("41", " "), {"groups": "age"}, ["line 3, column 'age'", "id is missing"]),
    "Windows-1252": (
        GOOD.replace("no", "né").encode("cp1252"),
        {},
        ["line 3", "a byte", "--encoding cp1252"],
    ),
    "not that encoding": (
        b"a,sick\n1,\x81\n",
        {"encoding": "cp1252"},
        ["line 2", "a byte is not", "--encoding"],
    ),
    "UTF-16": (GOOD.encode("utf-16"), {}, ["line 1", "--encoding utf-16"]),
    "UTF-16, no mark": (GOOD.encode("utf-16-le"), {}, ["line 1", "--encoding utf-16"]),
    "odd UTF-16": (GOOD.encode("utf-16")[:-1], {"encoding": "utf-16"}, ["utf-16", "--encoding"]),
    "unknown encoding": (GOOD, {"encoding": "klingon"}, ["--encoding 'klingon'", "cp1252"]),
    "not an encoding": (GOOD, {"encoding": "hex"}, ["--encoding 'hex'"]),
    "long delimiter": (GOOD, {"delimiter": "||"}, ["--delimiter", "one character"]),
    "no header": ("1,2\n3,4\n", {"target": "1"}, ["line 1", "--no-header"]),
    "repeated names": ("a,b,a,b,c\n1,2,3,4,5\n", {"target": "c"}, ["'a', 'b'", "a unique name"]),
    "no such target": (GOOD, {"target": "Sick"}, ["--target", "'Sick'", "did you mean 'sick'", "'age', 'dose'"]),
    "no such person": (GOOD, {"groups": "person"}, ["--groups", "'person'", "'age', 'dose', 'sick'"]),
    "no such ignored": (GOOD, {"ignore": ["ages"]}, ["--ignore", "'ages'", "did you mean 'age'"]),
    "target ignored": (GOOD, {"ignore": ["sick"]}, ["column 'sick'", "both --target and --ignore"]),
    "person ignored": (GOOD, {"groups": "age", "ignore": ["age"]}, ["column 'age'", "both --groups and --ignore"]),
    "target and person": (GOOD, {"groups": "sick"}, ["column 'sick'", "--target and --groups"]),
    "nothing left": (GOOD, {"ignore": ["age", "dose"]}, ["no column is left"]),
    "absent features": (GOOD, {"features": ["dose", "ag", "w"]}, ["2 of 3", "'ag', 'w'", "did you mean 'age'"]),
    "target is a feature": (GOOD, {"features": ["sick"]}, ["column 'sick'", "--target"]),
    "another number": (GOOD, {"n_features": 5}, ["2 features", "expected 5", "--n-features"]),
    "names and number": (GOOD, {"features": ["age"], "n_features": 5}, ["1 features", "--n-features is 5"]),
    "no feature asked": (GOOD, {"n_features": 0}, ["--n-features must be at least 1"]),
    "header only": ("age,dose,sick\n", {}, ["no rows"]),
    "header only, no end": ("age,dose,sick", {}, ["no rows"]),
    "blank": ("\n\n\n", {}, ["blank lines"]),
    "empty": ("", {}, ["empty"]),
    "NUL": (GOOD.replace("4", "\0"), {}, ["line 3", "NUL"]),
    "zip": (npz(X=np.eye(2)), {}, ["not csv but a zip archive", "--format npz", "CSV"]),
    "gzip": (gzip.compress(GOOD.encode()), {}, ["gzip", ".gz"]),
    "unknown format": (GOOD, {"format": "xls"}, ["--format", "csv, parquet, svmlight, npz", "'xls'"]),
}


@pytest.mark.parametrize("case", CSV_REFUSED)
def test_a_bad_csv_file_is_refused_with_its_place_and_advice(write: Write, case: str) -> None:
    """The message names the line and the column and says what to change."""
    content, settings, parts = CSV_REFUSED[case]
    message = refused(write("a.csv", content), **{"target": "sick", **settings})
    assert all(part in message for part in parts), message


def test_places_are_right_in_later_blocks(write: Write, small_blocks: None) -> None:
    """Line numbers count physical lines from the start of the file, blank ones and those inside cells included."""
    content = 'note,x\n"two\nlines",1\n\n' + "word,2\n" * 200
    assert ", line 205, column 'x': a cell" in refused(write("a.csv", content + "word,seven\n"), ignore=["note"])
    assert ", line 205: 3 cells" in refused(write("a.csv", content + "word,7,8\n"), ignore=["note"])
    assert ", line 205: a byte is" in refused(write("a.csv", content.encode() + b"\xff,7\n"), ignore=["note"])
    assert ", line 205: a NUL" in refused(write("a.csv", content + "\0,7\n"), ignore=["note"])


def test_a_file_without_line_ends_is_refused_before_it_fills_the_memory(
    write: Write, small_blocks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As is a quotation mark that opens and never closes."""
    monkeypatch.setattr(files, "LONGEST_LINE", 1000)
    assert "no row ends within" in refused(write("a.csv", "a" * 5000))
    message = refused(write("b.csv", "a,b\n" + "1,2\n" * 20 + '1,"2\n' + "1,2\n" * 1000))
    assert "unclosed quotation marks" in message
    assert "no row ends within" in refused(write("c.svm", "1 " * 5000))


def test_long_names_are_cut_in_messages(write: Write) -> None:
    """A name of a thousand letters does not fill the screen."""
    assert len(refused(write("a.csv", "x" * 1000 + "\nred\n"))) < 250


def test_all_columns_that_cannot_be_read_are_in_one_message(write: Write, small_blocks: None) -> None:
    """However far apart their first bad cells stand; columns that can be read are not named."""
    lines = ["age,dose,city,weight,sick", *["1,2,Rome,4,yes"] * 30, "1,,Rome,4,", "1,2,Rome,inf,yes", "1,,Rome,4,no"]
    message = refused(write("a.csv", "\n".join(lines)), target="sick")
    assert "4 columns cannot be read" in message
    for part in ("'city' (line 2)", "'dose' (line 32)", "'sick' (line 32)", "'weight' (line 33)"):
        assert part in message
    assert "'age'" not in message
    assert message.count("no value") == 1


def test_all_columns_of_other_formats_are_in_one_message(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """By row, batch after batch; columns of the wrong type are known before any row."""
    monkeypatch.setattr("tulle.files.tables.parquet._FEWEST_ROWS", 2)
    monkeypatch.setattr("tulle.files.tables.parquet.BLOCK_BYTES", 8)
    content = parquet(a=[1.0, np.nan, 3.0, 4.0], b=[1.0, 2.0, 3.0, np.inf], c=[1, 2, 3, None], y=["u", "v", "u", None])
    message = refused(write("a.parquet", content), target="y")
    assert all(f"'{name}' (row {row})" in message for name, row in (("a", 2), ("b", 4), ("c", 4), ("y", 4)))
    typed = refused(write("b.parquet", parquet(a=["x"], b=[1.0], c=[["x"]])))
    assert all(part in typed for part in ("2 columns", "'a'", "'c'", "string", "list"))
    X = np.array([[1.0, np.nan, 3.0], [np.inf, 2.0, 3.0]])
    names = ["a", "b", "c"]
    for message in (
        refused(write("a.npz", npz(X=X, y=[1.0, np.nan], feature_names=names))),
        refused(write("b.npz", csr_npz(sp.csr_array(X), y=[1.0, np.nan], feature_names=names))),
    ):
        assert all(f"'{name}' (row {row})" in message for name, row in (("a", 2), ("b", 1), ("y", 2)))
    message = refused(write("a.svm", "x 1:2\n1 1:nan 3:word\n1 2:inf\n1 1:1 2:2\n"))
    for part in ("'target' (line 1)", "'1' (line 2)", "'3' (line 2)", "'2' (line 3)"):
        assert part in message


def test_what_a_library_says_of_damage_is_not_repeated(write: Write) -> None:
    """Its kind alone, however the error is looked at."""
    with (
        pytest.raises(TableError) as raised,
        files.open_source(str(write("a.npz", b"1"))) as source,
        files.report_damage(source, "the member X"),
    ):
        float("Jane Doe")
    assert "the member X is truncated or damaged (ValueError)" in str(raised.value)
    assert "Jane" not in "".join(traceback.format_exception(raised.value)).replace('float("Jane Doe")', "")


def test_the_same_is_said_without_rows(write: Write) -> None:
    """For JSON and logs: columns, not lines or rows."""
    for content in (GOOD.replace("4,no", "low,no"), GOOD.replace("4,no", "low,"), GOOD + "1,2\n"):
        with pytest.raises(TableError) as raised:
            read_table(write("a.csv", content), target="sick")
        assert "line 3" in str(raised.value) or "line 4" in str(raised.value)
        assert "line 3" not in raised.value.without_rows
        assert "line 4" not in raised.value.without_rows


def test_a_row_that_is_taken_for_a_header_is_not_quoted(write: Write) -> None:
    """A number among the names says that the first line may be somebody's row: columns are told by their places."""
    row = "Jane Doe,17,17,4711\n"
    for settings in ({}, {"target": "sick"}, {"features": ["age"]}):
        message = refused(write("a.csv", row + "1,2,3,4\n"), **settings)
        assert "--no-header" in message
        assert not any(cell in message for cell in ("Jane", "17", "4711"))
    message = refused(write("b.csv", "Jane Doe,17,4711\nx,y,1\n"), target="4711")
    assert "'column 1' (line 2), 'column 2' (line 2)" in message
    assert "Jane" not in message


# --- files -----------------------------------------------------------------------------------------------------------


def test_paths_that_are_no_files_are_refused(tmp_path: Path) -> None:
    """Missing files, folders, pipes and impossible names."""
    assert "no such file" in refused(tmp_path / "absent.csv")
    assert "folder" in refused(tmp_path)
    os.mkfifo(tmp_path / "pipe.csv")
    writer = os.open(tmp_path / "pipe.csv", os.O_RDWR)  # or opening it to read would wait for ever
    assert "not a regular file" in refused(tmp_path / "pipe.csv")
    os.close(writer)
    with pytest.raises(TableError, match="NUL"):
        read_table("a\0.csv")
    assert "cannot be read" in refused(tmp_path / ("a" * 300 + ".csv"))


def test_an_unknown_suffix_asks_for_the_format(write: Write) -> None:
    """And with it the same file is read; an Excel workbook is recognised whatever it is called."""
    path = write("a.data", GOOD)
    message = refused(path)
    assert all(part in message for part in ["'.data'", "--format", *FORMATS])
    assert read_table(path, format="csv", target="sick").X.shape == (2, 2)
    assert "save the workbook as CSV" in refused(write("a.xlsx", npz(X=np.eye(2))))
    assert "Excel" in refused(write("a.xls", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"))


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("a.csv.gz", GOOD.encode(), "remove the suffix .gz"),
        ("a.svm.bz2", b"1 1:2\n", "remove the suffix .bz2"),
        ("a.npz", GOOD.encode(), "--format"),
        ("a.parquet", GOOD.encode(), "--format"),
        ("a.npz", b"\x93NUMPY\x01\x00", "np.savez"),
        ("a.svm", b"PAR1PAR1", "--format parquet"),
        ("a.npz.gz", gzip.compress(npz(X=np.eye(2))), "unpack"),
        ("a.csv.xz", b"\xfd7zXZ\x00\x00\x00", "unpack"),
    ],
)
def test_a_suffix_that_lies_is_refused(write: Write, name: str, content: bytes, part: str) -> None:
    """The first bytes say otherwise, and the message says what to do."""
    assert part in refused(write(name, content))


def test_a_file_that_changes_while_it_is_read_is_refused(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """An export that is still being written has a fingerprint of neither state."""
    path = write("a.csv", GOOD)
    fingerprint = files.Source.fingerprint

    def grown(source: files.Source) -> str:
        path.write_text(GOOD + GOOD)
        return fingerprint(source)

    monkeypatch.setattr(files.Source, "fingerprint", grown)
    assert "changed while it was being read" in refused(path, target="sick")


def test_progress_is_shown_on_standard_error_with_the_time_left(
    write: Write, small_blocks: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only when asked for; it ends at 100% and ends its line, also when the file is refused."""
    path = write("a.csv", "x\n" + "1\n" * 200)
    read_table(path)
    assert capsys.readouterr() == ("", "")
    read_table(path, progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "\ra.csv: 100% read, 0 s left" in err
    assert err.endswith("\n")


def test_reading_loads_nothing_that_is_not_needed(write: Write) -> None:
    """The door loads no numpy; CSV loads neither scikit-learn nor pandas nor pyarrow, svmlight neither of the last."""
    assert loaded_by("import tulle.files.tables").isdisjoint({"numpy", "scipy", "sklearn", "pandas", "pyarrow"})
    path = str(write("a.csv", GOOD))
    loaded = loaded_by(f"from tulle.files.tables import read_table\nread_table({path!r}, target='sick')")
    assert "numpy" in loaded
    assert loaded.isdisjoint({"sklearn", "scipy", "pandas", "pyarrow", "numba"})


# --- memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.parquet", "a.npz", "a.svm"])
def test_a_table_that_does_not_fit_is_refused_before_it_is_read(
    write: Write, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Its size is estimated from the file's first block or header; the message says how much and what to do."""
    for module in ("input_files", "parquet"):
        monkeypatch.setattr(f"tulle.files.tables.{module}.BLOCK_BYTES", 1 << 12)
    n = 20_000
    text = "x,y\n" + "1,2\n" * n
    contents: dict[str, Callable[[], bytes]] = {
        "a.csv": text.encode,
        "a.csv.gz": lambda: gzip.compress(text.encode()),
        "a.parquet": lambda: parquet(x=np.ones(n), y=np.ones(n)),
        "a.npz": lambda: npz(X=np.ones((n, 2))),
        "a.svm": lambda: b"1 1:2 2:3\n" * n,
    }
    path = write(name, contents[name]())
    assert read_table(path).X.shape == (n, 2)
    monkeypatch.setattr("tulle.files.tables.free_memory.free_memory", lambda: 30_000)  # of 320,000 that are needed
    message = refused(path)
    assert "memory" in message
    assert "0.03 MB are free" in message
    assert ("read fewer rows" if name == "a.svm" else "--ignore") in message


def test_free_memory_is_a_plausible_figure() -> None:
    """Between a megabyte and a petabyte where the system says it."""
    from tulle.files.tables.free_memory import free_memory

    free = free_memory()
    assert free is None or 1e6 < free < 1e15


def test_running_out_of_memory_is_told(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the estimate was wrong, the message says so in place of a MemoryError."""

    def full(*arguments: Any, **settings: Any) -> None:
        raise MemoryError

    path = write("a.csv", GOOD)
    monkeypatch.setattr(np, "isfinite", full)
    assert "more memory than is free" in refused(path, target="sick")


@pytest.mark.parametrize("name", ["a.csv", "a.svm"])
def test_reading_peaks_at_little_more_than_the_table(write: Write, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """No second copy of the rows is made: less than 1.5 tables, of which blocks and the parser take some."""
    monkeypatch.setattr(files, "BLOCK_BYTES", 1 << 14)
    values = np.random.default_rng(0).random((2000, 50)).round(3)
    if name == "a.csv":
        path = write(
            name,
            "\n".join([",".join(f"c{place}" for place in range(50)), *(",".join(map(str, row)) for row in values)]),
        )
    else:
        path = write(name, b"")
        dump_svmlight_file(values, np.zeros(2000), str(path), zero_based=False)
    read_table(path)  # imports
    tracemalloc.start()
    X = read_table(path).X
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    size = X.nbytes if name == "a.csv" else X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
    assert size < peak < 1.5 * size


# --- svmlight --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", [1, 50, 1 << 20])
def test_an_svmlight_file_becomes_csr_rows(write: Write, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    """Written by scikit-learn counting from 1, read back exactly, in blocks of any size, with 32-bit indices."""
    monkeypatch.setattr(files, "BLOCK_BYTES", block)
    X = sp.random_array((50, 30), density=0.2, format="csr", random_state=np.random.default_rng(0))
    X.data = X.data.round(6)  # it writes 16 digits
    y = np.arange(50) / 8
    path = write("a.svm", b"")
    dump_svmlight_file(X, y, str(path), zero_based=False, comment="made up", query_id=np.arange(50) // 2)
    table = read_table(path, n_features=33)
    assert isinstance(table.X, sp.csr_array)
    assert table.X.indices.dtype == table.X.indptr.dtype == np.int32
    assert table.X.shape == (50, 33)
    np.testing.assert_array_equal(table.X.toarray()[:, :30], X.toarray())
    np.testing.assert_array_equal(table.y, y)
    assert table.feature_names is None
    assert table.groups is None
    np.testing.assert_array_equal(read_table(path, groups="qid").groups, np.arange(50) // 2)


def test_svmlight_comments_blank_lines_marks_and_empty_rows(write: Write) -> None:
    """Rows without entries count; the largest index is the number of features where none is given."""
    table = read_table(write("a.svm", "\ufeff# head\n1 1:2 3:4 # 9:9\r\n\n-1\n0.5 2:1e-3"))
    assert table.X.toarray().tolist() == [[2.0, 0.0, 4.0], [0.0, 0.0, 0.0], [0.0, 0.001, 0.0]]
    assert table.y is not None
    assert table.y.tolist() == [1.0, -1.0, 0.5]


def test_svmlight_indices_count_from_one_whatever_the_file_holds(write: Write) -> None:
    """Whether one row uses the first feature moves no other: a guess by looking would shift every column."""
    with_first, without = (read_table(write("a.svm", text)).X for text in ("1 1:5\n0 2:1 3:1\n", "1\n0 2:1 3:1\n"))
    np.testing.assert_array_equal(with_first.toarray()[1], without.toarray()[1])


def test_named_features_only_count_where_a_file_has_no_names(write: Write) -> None:
    """A model with names predicts on svmlight and npz rows of the same width."""
    names = ["a", "b", "c", "d"]
    assert read_table(write("a.svm", "1 2:3\n"), features=names).X.shape == (1, 4)
    assert "--n-features is 4" in refused(write("a.svm", "1 5:3\n"), features=names)
    assert read_table(write("a.npz", npz(X=np.eye(4))), features=names).X.shape == (4, 4)
    assert "3 features, expected 4" in refused(write("a.npz", npz(X=np.eye(3))), features=names)


def test_svmlight_indices_count_from_where_the_user_says(write: Any) -> None:
    """From 1, or from 0 with `zero_based`; the same entries either way, and what n_features allows moves with it."""
    one = read_table(write("a.svm", "1 1:2 3:4\n0 2:5\n"))
    zero = read_table(write("b.svm", "1 0:2 2:4\n0 1:5\n"), zero_based=True)
    assert one.X.toarray().tolist() == zero.X.toarray().tolist() == [[2.0, 0.0, 4.0], [0.0, 5.0, 0.0]]
    assert read_table(write("c.svm", "1 0:2 4:1\n"), zero_based=True, n_features=5).X.shape == (1, 5)
    assert "--n-features is 5" in refused(write("d.svm", "1 5:2\n"), zero_based=True, n_features=5)
    assert "at least 0" in refused(write("e.svm", "1 -1:2\n"), zero_based=True)


SVMLIGHT_REFUSED = {
    "huge index": ("1 1:2\n1 999999999999:4\n", {}, ["line 2", "index is too large", "--n-features"]),
    "beyond n_features": ("1 1:2\n1 9:4\n", {"n_features": 5}, ["line 2", "index is too large", "--n-features is 5"]),
    "index 0": ("1 1:2\n1 0:4\n", {}, ["line 2", "count from 1", "--zero-based"]),
    "negative index": ("1 -3:4\n", {}, ["line 1", "index below 1", "count from 1"]),
    "NaN": ("1 1:2\n1 2:nan\n", {}, ["line 2, column '2'", "release", "constant"]),
    "infinite": ("1 1:2\n1 2:1e400\n", {}, ["line 2, column '2'", "finite"]),
    "word": ("1 1:2\n1 2:red\n", {}, ["line 2, column '2'", "not a number"]),
    "no value": ("1 1:2\n1 2:\n", {}, ["line 2, column '2'", "not a number"]),
    "word as target": ("yes 2:1\n", {}, ["line 1, column 'target'", "numbers", "CSV"]),
    "NaN as target": ("nan 2:1\n", {}, ["line 1", "target is missing"]),
    "infinite target": ("1e999 2:1\n", {}, ["line 1, column 'target'", "finite"]),
    "two targets": ("1,2 2:1\n", {}, ["line 1, column 'target'", "not a number"]),
    "repeated index": ("1 2:1 2:3\n", {}, ["line 1", "sort"]),
    "unsorted": ("1 5:1 2:3\n", {}, ["line 1", "sort"]),
    "no colon": ("1 1:2\n\n1 2\n", {}, ["line 3", "index:value"]),
    "a CSV file": (GOOD, {}, ["line 1", "not a number"]),
    "no features": ("1\n0\n", {}, ["--n-features"]),
    "no rows": ("# a\n\n", {}, ["no rows"]),
    "no qid": ("1 qid:3 1:2\n0 1:2\n", {"groups": "qid"}, ["line 2", "qid", "--groups"]),
    "bad qid": ("1 qid:x 1:2\n", {"groups": "qid"}, ["line 1", "whole number"]),
    "groups by name": ("1 1:2\n", {"groups": "person"}, ["--groups 'person'", "qid"]),
    "target by name": ("1 1:2\n", {"target": "y"}, ["--target 'y'", "first value of every line"]),
    "ignored": ("1 1:2\n", {"ignore": ["3"]}, ["--ignore", "no names"]),
    "not ASCII": ("1 1:2\n1 ²:4\n", {}, ["line 2", "index:value"]),
    "random": (b"\xf7\xb1\x9c\x00\x8e", {}, ["line 1", "not a number"]),
}


@pytest.mark.parametrize("case", SVMLIGHT_REFUSED)
def test_a_bad_svmlight_file_is_refused_with_its_line_and_advice(write: Write, case: str) -> None:
    """The message names the line and says what to change."""
    content, settings, parts = SVMLIGHT_REFUSED[case]
    message = refused(write("a.svm", content), **settings)
    assert all(part in message for part in parts), message


def test_svmlight_lines_are_right_in_later_blocks(write: Write, small_blocks: None) -> None:
    """Comments and blank lines count."""
    assert ", line 203: an index" in refused(write("a.svm", "# a\n\n" + "1 1:2\n" * 200 + "1 0:1\n"))


def test_as_many_weights_as_an_index_asks_for_must_fit(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index that 32 bits hold may still ask for more weights than there is memory."""
    monkeypatch.setattr("tulle.files.tables.free_memory.free_memory", lambda: 10**9)
    assert "--n-features" in refused(write("a.svm", "1 2000000000:1\n"))


# --- npz -------------------------------------------------------------------------------------------------------------

ROWS = np.arange(6.0).reshape(3, 2)


def test_an_npz_file_of_dense_rows(write: Write) -> None:
    """X, y, groups and feature_names by their own names, or y and groups by others; integers become float64."""
    members = {"X": ROWS.astype(np.int32), "y": [1, 0, 1], "who": ["p", "p", "q"], "feature_names": ["a", "b"]}
    path = write("a.npz", npz(**members))
    table = read_table(path)
    assert table.X.dtype == np.float64
    np.testing.assert_array_equal(table.X, ROWS)
    assert table.y is not None
    assert table.y.dtype == np.float64
    assert table.feature_names == ("a", "b")
    assert table.groups is None
    other = read_table(path, target="who", groups="y")
    assert other.y is not None
    assert other.groups is not None
    assert other.y.tolist() == ["p", "p", "q"]
    assert other.groups.tolist() == [1, 0, 1]
    picked = read_table(path, features=["b"])
    assert picked.X.tolist() == [[1.0], [3.0], [5.0]]
    assert picked.feature_names == ("b",)
    assert read_table(path, ignore=["a"]).feature_names == ("b",)


def test_the_member_groups_is_read_unless_it_is_ignored(write: Write) -> None:
    """Forgetting that a person has several rows would weaken the promise: it must be said."""
    path = write("a.npz", npz(X=ROWS, y=[[1], [2], [3]], groups=[7, 7, 8]))
    table = read_table(path)
    assert table.groups is not None
    assert table.groups.tolist() == [7, 7, 8]
    without = read_table(path, ignore=["groups", "y"])
    assert without.groups is None
    assert without.y is None


@pytest.mark.parametrize("compressed", [True, False])
def test_an_npz_file_that_scipy_wrote(write: Write, compressed: bool) -> None:
    """CSR rows come back as they were; entries that are stored twice are added up."""
    X = sp.random_array((40, 25), density=0.2, format="csr", random_state=np.random.default_rng(0))
    buffer = io.BytesIO()
    sp.save_npz(buffer, X, compressed=compressed)
    table = read_table(write("a.npz", buffer.getvalue()))
    assert isinstance(table.X, sp.csr_array)
    np.testing.assert_array_equal(table.X.toarray(), X.toarray())
    twice = npz(data=[1.0, 2.0], indices=[1, 1], indptr=[0, 2], shape=[1, 3], y=["u"], feature_names=["a", "b", "c"])
    table = read_table(write("a.npz", twice), features=["b"])
    assert table.X.data.tolist() == [3.0]
    assert table.X.shape == (1, 1)


def claims(shape: tuple[int, ...]) -> bytes:
    """An npz file whose header of X claims a shape, over 24 bytes of numbers."""
    header, buffer = io.BytesIO(), io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("X.npy", header.getvalue() + bytes(24))
    return buffer.getvalue()


def csr_of(data: Any, indices: Any, indptr: Any, shape: Any) -> bytes:
    """An npz file with the members of a CSR matrix."""
    return npz(data=data, indices=indices, indptr=indptr, shape=shape, format=b"csr")


NPZ_REFUSED = {
    "no X": (npz(Z=ROWS, y=[1]), {}, ["member X", "'Z', 'y'", "np.savez"]),
    "no members": (b"PK\x05\x06" + bytes(18), {}, ["not npz, or damaged"]),
    "huge header": (claims((10**15, 3)), {}, ["member X", "(1000000000000000, 3)", "24 bytes"]),
    "negative header": (claims((-1, 3)), {}, ["member X", "damaged"]),
    "one dimension": (npz(X=ROWS[0]), {}, ["shape (2,)", "two dimensions"]),
    "complex": (npz(X=ROWS * 1j), {}, ["X", "complex128", "float64"]),
    "words": (npz(X=ROWS.astype(str)), {}, ["X", "numbers"]),
    "objects": (npz(X=ROWS.astype(object)), {}, ["X", "pickled", "never loaded"]),
    "object targets": (npz(X=ROWS, y=np.array(["a", None, 3], dtype=object)), {}, ["y", "pickled", "astype(str)"]),
    "no rows": (npz(X=ROWS[:0]), {}, ["no rows"]),
    "no columns": (npz(X=ROWS[:, :0]), {}, ["no column is left"]),
    "NaN": (npz(X=np.where(ROWS == 3, np.nan, ROWS)), {}, ["row 2, column '1'", "no value", "release", "constant"]),
    "infinite": (
        npz(X=np.where(ROWS == 3, np.inf, ROWS), feature_names=["a", "b"]),
        {},
        ["row 2, column 'b'"],
    ),
    "targets too few": (npz(X=ROWS, y=[1, 2]), {}, ["member y", "(2,)", "3 rows"]),
    "targets of dates": (npz(X=ROWS, y=np.zeros(3, dtype="M8[s]")), {}, ["member y", "datetime64"]),
    "NaN target": (npz(X=ROWS, y=[1, np.nan, 2]), {}, ["row 2, column 'y'", "missing"]),
    "infinite target": (npz(X=ROWS, y=[1, 2, np.inf]), {}, ["row 3, column 'y'", "finite"]),
    "empty word": (npz(X=ROWS, y=["a", "", "b"]), {}, ["row 2, column 'y'", "missing"]),
    "no person": (npz(X=ROWS, groups=["a", "b", ""]), {}, ["row 3, column 'groups'", "id is missing"]),
    "NaN person": (npz(X=ROWS, groups=[1, np.nan, 2]), {}, ["row 2, column 'groups'", "id is missing"]),
    "no such target": (npz(X=ROWS), {"target": "y"}, ["--target", "'y'", "'X'"]),
    "target ignored": (npz(X=ROWS, y=[1, 2, 3]), {"target": "y", "ignore": ["y"]}, ["'y'", "--ignore"]),
    "ignored, no names": (npz(X=ROWS), {"ignore": ["a"]}, ["--ignore 'a'", "feature_names"]),
    "names too few": (npz(X=ROWS, feature_names=["a"]), {}, ["1 names", "2 columns"]),
    "names repeated": (npz(X=ROWS, feature_names=["a", "a"]), {}, ["'a'", "a unique name"]),
    "names of numbers": (npz(X=ROWS, feature_names=[1, 2]), {}, ["feature_names", "string"]),
    "another number": (npz(X=ROWS), {"n_features": 7}, ["2 features", "expected 7"]),
    "CSC": (csr_npz(sp.csc_array(ROWS)), {}, ["'csc'", "tocsr()"]),
    "format of no word": (npz(data=[1.0], indices=[0], indptr=[0, 1], shape=[1, 2], format=b"\xff"), {}, ["format"]),
    "index beyond": (csr_of([1.0], [5], [0, 1], [1, 2]), {}, ["outside the 2 columns"]),
    "negative index": (csr_of([1.0], [-1], [0, 1], [1, 2]), {}, ["outside the 2 columns"]),
    "rows that overlap": (csr_of([1.0, 2.0], [0, 1], [0, 2, 1], [2, 2]), {}, ["indptr"]),
    "rows that go back": (csr_of([1.0, 2.0], [0, 1], [0, 5, 2], [2, 2]), {}, ["indptr"]),
    "rows too few": (csr_of([1.0, 2.0], [0, 1], [0, 2], [2, 2]), {}, ["indptr"]),
    "real indices": (csr_of([1.0], [0.5], [0, 1], [1, 2]), {}, ["not those of a CSR matrix"]),
    "huge shape": (csr_of([1.0], [0], [0, 1], [1, 10**16]), {}, ["memory", "shape"]),
    "NaN, sparse": (csr_of([1.0, np.nan], [0, 1], [0, 0, 2], [2, 2]), {}, ["row 2, column '1'", "no value"]),
}


@pytest.mark.parametrize("case", NPZ_REFUSED)
def test_a_bad_npz_file_is_refused_with_its_member_and_advice(write: Write, case: str) -> None:
    """The message names the member or the row, and says what to save instead."""
    content, settings, parts = NPZ_REFUSED[case]
    message = refused(write("a.npz", content), **settings)
    assert all(part in message for part in parts), message


class Planted:
    """A pickle that makes a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.path), "w")


def test_pickled_objects_are_never_loaded(write: Write, tmp_path: Path) -> None:
    """An npz file from a stranger can run no code; the planted one would, if it were loaded by numpy's option."""
    trap = tmp_path / "ran"
    planted = np.array([Planted(trap)] * 3, dtype=object)
    for members in ({"X": planted[:, None]}, {"X": ROWS, "y": planted}, {"X": ROWS, "feature_names": planted[:2]}):
        path = write("a.npz", npz(**members))
        assert "never loaded" in refused(path)
        assert not trap.exists()
    with np.load(path, allow_pickle=True) as file:
        assert len(file["feature_names"]) == 2
    assert trap.exists()


# --- Parquet ---------------------------------------------------------------------------------------------------------


def test_a_parquet_file_becomes_a_table(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """Integers, floats, booleans and decimals are numbers; words are targets or ids; batches join up."""
    pa = pytest.importorskip("pyarrow")
    from decimal import Decimal

    monkeypatch.setattr("tulle.files.tables.parquet._FEWEST_ROWS", 2)
    monkeypatch.setattr("tulle.files.tables.parquet.BLOCK_BYTES", 8)
    content = parquet(
        count=pa.array([1, 2, 3, 4, 5], pa.int8()),
        flag=[True, False, True, True, False],
        ratio=pa.array([0.5, 1.5, 2.5, 3.5, 4.5], pa.float32()),
        price=[Decimal("1.25")] * 5,
        note=["words", "that", "are", "left", None],
        person=pa.array([2**60, 2**60 + 1, 3, 4, 5]),
        klass=pa.array(["u", "v", "u", "v", "w"]).dictionary_encode(),
    )
    path = write("a.parquet", content)
    table = read_table(path, target="klass", groups="person", ignore=["note"])
    expected = np.array([[1, 2, 3, 4, 5], [1, 0, 1, 1, 0], [0.5, 1.5, 2.5, 3.5, 4.5], [1.25] * 5]).T
    np.testing.assert_array_equal(table.X, expected)
    assert table.feature_names == ("count", "flag", "ratio", "price")
    assert table.y is not None
    assert table.groups is not None
    assert table.y.tolist() == ["u", "v", "u", "v", "w"]
    assert table.groups.tolist() == [2**60, 2**60 + 1, 3, 4, 5]
    assert table.content == f"sha256:{hashlib.sha256(content).hexdigest()}"
    by_words = read_table(path, target="count", groups="klass", features=["ratio", "flag"])
    np.testing.assert_array_equal(by_words.X, expected[:, [2, 1]])
    assert by_words.y is not None
    assert by_words.groups is not None
    assert by_words.y.dtype == np.float64
    assert by_words.groups.tolist() == ["u", "v", "u", "v", "w"]


PARQUET_REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    "null": ({"a": [1, None]}, {}, ["row 2, column 'a'", "no value", "release", "constant", "--ignore 'a'"]),
    "NaN": ({"a": [1.0, 2.0, np.nan]}, {}, ["row 3, column 'a'", "no value", "release", "constant"]),
    "infinite": ({"a": [1.0, np.inf]}, {}, ["row 2, column 'a'", "not a finite number"]),
    "words": ({"a": [1.0], "b": ["x"]}, {}, ["column 'b'", "string", "encode", "--ignore 'b'"]),
    "lists": ({"a": [[1.0]]}, {}, ["column 'a'", "list"]),
    "bytes as target": ({"a": [1.0], "b": [b"x"]}, {"target": "b"}, ["column 'b'", "binary"]),
    "null target": ({"a": [1, 2], "b": ["x", None]}, {"target": "b"}, ["row 2, column 'b'", "missing"]),
    "NaN target": ({"a": [1, 2], "b": [1.0, np.nan]}, {"target": "b"}, ["row 2, column 'b'", "missing"]),
    "empty target": ({"a": [1, 2], "b": ["x", ""]}, {"target": "b"}, ["row 2, column 'b'", "missing"]),
    "null person": ({"a": [1, 2], "b": ["x", None]}, {"groups": "b"}, ["row 2, column 'b'", "id is missing"]),
    "no such target": ({"height": [1]}, {"target": "hight"}, ["--target", "did you mean 'height'"]),
    "no rows": ({"a": np.zeros(0)}, {}, ["no rows"]),
    "no columns": ({}, {}, ["no column is left"]),
    "absent features": ({"a": [1]}, {"features": ["a", "b"]}, ["1 of 2", "'b'"]),
}


@pytest.mark.parametrize("case", PARQUET_REFUSED)
def test_a_bad_parquet_file_is_refused_with_its_column_and_advice(write: Write, case: str) -> None:
    """The message names the column and, where one row is at fault, the row."""
    columns, settings, parts = PARQUET_REFUSED[case]
    message = refused(write("a.parquet", parquet(**columns)), **settings)
    assert all(part in message for part in parts), message


def test_parquet_rows_are_right_in_later_batches(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows count from the start of the file, whatever is wrong with them."""
    monkeypatch.setattr("tulle.files.tables.parquet._FEWEST_ROWS", 2)
    monkeypatch.setattr("tulle.files.tables.parquet.BLOCK_BYTES", 8)
    good, names = [1.0] * 6, ["u"] * 6
    assert ", row 7, column 'a': " in refused(write("a.parquet", parquet(a=[*good, None])))
    assert ", row 7, column 'a': " in refused(write("b.parquet", parquet(a=[*good, np.nan])))
    for settings in ({"target": "b"}, {"groups": "b"}):
        for word in (None, ""):
            path = write("c.parquet", parquet(a=[*good, 1.0], b=[*names, word]))
            assert ", row 7, column 'b': " in refused(path, **settings)


def test_repeated_names_of_a_parquet_file_are_refused(write: Write) -> None:
    """Columns are picked by name, and a name must say which."""
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(pa.table([pa.array([1]), pa.array([2])], names=["a", "a"]), buffer)
    assert "'a'" in refused(write("a.parquet", buffer.getvalue()))


def test_without_pyarrow_the_message_says_what_to_install(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is needed for Parquet alone."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    assert install_hint("parquet") in refused(write("a.parquet", b"PAR1PAR1"))
    assert read_table(write("a.csv", GOOD), target="sick").X.shape == (2, 2)


# --- damage ----------------------------------------------------------------------------------------------------------


def sound_files() -> dict[str, Callable[[], bytes]]:
    """A small sound file of each kind, with a target called y where a name is needed."""
    rng = np.random.default_rng(0)
    values = rng.random((40, 3))
    text = ("a,b,c,y\n" + "".join(f"{a},{b},{c},w{a > 0.5}\n" for a, b, c in values.tolist())).encode()
    rows = "".join(f"{a} qid:7 1:{b} 9:{c} # x\n" for a, b, c in values.tolist()).encode()
    return {
        "a.csv": lambda: text,
        "q.csv": lambda: text.replace(b",w", b',"w').replace(b"e\n", b'e"\n'),
        "a.csv.gz": lambda: gzip.compress(text),
        "a.csv.bz2": lambda: bz2.compress(text),
        "a.svm": lambda: rows,
        "a.svm.gz": lambda: gzip.compress(rows),
        "a.npz": lambda: npz(X=values, y=values[:, 0], feature_names=["a", "b", "c"]),
        "s.npz": lambda: csr_npz(sp.csr_array(values), y=values[:, 0]),
        "a.parquet": lambda: parquet(a=values[:, 0], b=np.arange(40), y=["u", "v"] * 20),
    }


def settings_for(name: str, number: int = 0) -> dict[str, Any]:
    """The target's name where one is needed; text is read in an encoding that takes every byte half of the time."""
    if ".csv" in name:
        return {"target": "y", "encoding": ("utf-8", "latin-1")[number % 2]}
    return {} if ".svm" in name else {"target": "y"}


@pytest.mark.parametrize("name", sound_files())
def test_truncated_files_are_refused(write: Write, name: str) -> None:
    """Binary and packed files wherever they are cut; text, where a row is cut."""
    content = sound_files()[name]()
    assert read_table(write(name, content), **settings_for(name)).X.shape[0] == 40
    places = np.random.default_rng(1).integers(1, len(content) - 1, 40).tolist()
    if name in ("a.csv", "q.csv", "a.svm"):  # text may be cut where it can still be read: after a row, within a number
        places = [len("a,b,c,y\n0.6"), len(content) - 8] if ".csv" in name else [len("0.6369616873214543 qid:7 1:")]
    for place in places:
        message = refused(write(name, content[:place]), **settings_for(name))
        assert message


@pytest.mark.parametrize("name", sound_files())
def test_damaged_files_give_a_table_or_a_table_error(write: Write, name: str) -> None:
    """A few random bytes are changed, 100 times: nothing but a `TableError` comes out, and most damage is noticed."""
    content, rng = sound_files()[name](), np.random.default_rng(2)
    noticed = 0
    for number in range(100):
        damaged = bytearray(content)
        for place in rng.integers(0, len(content), 5):
            damaged[place] = rng.integers(256)
        try:
            read_table(write(name, bytes(damaged)), **settings_for(name, number))
        except TableError:
            noticed += 1
    assert noticed > 50


@pytest.mark.parametrize("suffix", [suffix for suffixes in FORMATS.values() for suffix in suffixes])
@pytest.mark.parametrize("packing", ["", ".gz", ".bz2"])
def test_random_bytes_are_refused(write: Write, suffix: str, packing: str) -> None:
    """Whatever suffix they carry; also behind a right beginning."""
    if suffix in FORMATS["parquet"]:
        pytest.importorskip("pyarrow")
    rng = np.random.default_rng(3)
    for begin in (b"", b"PK\x03\x04", b"PAR1", b"\x1f\x8b\x08\x00", b"BZh9", b"\xef\xbb\xbf"):
        assert refused(write(f"a{suffix}{packing}", begin + rng.bytes(500)))
