"""Files converted into folders of blocks: the rows that would have been read, whatever the number of files and jobs."""

from __future__ import annotations

import gzip
import threading
import tracemalloc
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_block_folder import N, assert_same, joined, sparse_rows
from test_tables import csr_npz, npz, parquet

import tulle.backends.block_writer
import tulle.backends.table_conversion
from tulle.backends.block_writer import BlockWriter
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
    """Four times the rows, each of a person of its own: the peak is that of two blocks for each job and one more, as
    documented, also if threads are as slow as they can be. `tracemalloc` does not see what pyarrow holds."""
    monkeypatch.setattr(files, "BLOCK_BYTES", 1 << 13)
    monkeypatch.setattr(
        tulle.backends.table_conversion, "open_blocks", lambda path: None
    )  # which holds all targets and people
    monkeypatch.setattr("tulle.files.tables.parquet.BLOCK_BYTES", 1 << 13)
    monkeypatch.setattr("tulle.files.tables.parquet._BUFFER_BYTES", 1 << 12)
    monkeypatch.setattr("tulle.files.tables.numeric_rows._SMALL_FILE", 0)
    if jobs > 1:
        write_late(monkeypatch, jobs)
    numbers = np.random.default_rng(0).random((16000, 20))
    values = numbers.round(3).astype(str)
    header, lines, settings_ = "", [""], dict[str, Any]()
    if kind == "csv":
        header, lines = "id," + ",".join(f"c{k}" for k in range(20)) + "\n", [",".join(row) for row in values]
        settings_["groups"] = "id"
        lines = [f"person{k},{line}\n" for k, line in enumerate(lines)]
    elif kind == "svm":
        lines = ["1 " + " ".join(f"{k + 1}:{value}" for k, value in enumerate(row)) + "\n" for row in values]
    peaks = {}
    for k, n in enumerate((16000, 4000, 16000)):  # the first for imports and caches alone
        path = tmp_path / f"{n}.{kind}"
        if kind == "parquet":
            path.write_bytes(parquet(**{f"c{k}": numbers[:n, k] for k in range(20)}))
        else:
            path.write_text(header + "".join(lines[:n]))
        tracemalloc.start()
        convert_table(path, tmp_path / f"{k}.blocks", rows_per_block=1000, jobs=jobs, **settings_)
        peaks[n] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    block = sum(path.stat().st_size for path in (tmp_path / "2.blocks").glob("000000.*"))
    assert peaks[16000] < 1.3 * peaks[4000]
    assert peaks[16000] < (2 * jobs + 1) * block


def write_late(monkeypatch: pytest.MonkeyPatch, jobs: int) -> None:
    """Have threads begin to write only when the reader waits for them, `jobs` at a time: no more blocks can be held."""
    write, note = tulle.backends.block_writer.write_block, BlockWriter._note_written
    events: dict[tuple[Path, int], threading.Event] = defaultdict(threading.Event)

    def write_then(folder: Path, k: int, block: Any) -> Any:
        assert events[folder, k].wait(60)
        return write(folder, k, block)

    def note_written(writer: BlockWriter) -> None:
        first = len(writer._starts) - 1 - len(writer._writing)
        for k in range(first, first + jobs):
            events[writer._partial.blocks, k].set()
        note(writer)

    monkeypatch.setattr(tulle.backends.block_writer, "write_block", write_then)
    monkeypatch.setattr(BlockWriter, "_note_written", note_written)


# --- several files and jobs ------------------------------------------------------------------------------------------


def content(folder: Path) -> dict[str, bytes]:
    """All files but the manifest, which has the fingerprint of the input."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.suffix == ".npy"}


def split_csv(text: str, ends: list[int]) -> list[str]:
    """Parts of a table, each with its header."""
    header, *lines = text.splitlines(keepends=True)
    return [header + "".join(lines[first:end]) for first, end in zip([0, *ends], [*ends, len(lines)])]


@pytest.mark.parametrize("jobs", [1, 3])
def test_appended_files_are_one_table(tmp_path: Path, small: None, jobs: int) -> None:
    """In the order given, whatever their forms and the order of their columns."""
    (tmp_path / "whole.csv").write_text(CSV)
    settings_: dict[str, Any] = {"target": "sick", "groups": "id", "rows_per_block": 13}
    convert_table(tmp_path / "whole.csv", tmp_path / "whole", jobs=1, **settings_)
    first, second, third = split_csv(CSV, [7, 40])
    (tmp_path / "z.csv").write_text(first)
    rows = [line.split(",") for line in second.splitlines()]
    turned = "\n".join(",".join(row[::-1]) for row in rows)
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(turned.encode()))
    names, *cells = [line.split(",") for line in third.splitlines()]
    columns: dict[str, Any] = dict(zip(names, map(list, zip(*cells))))
    columns |= {name: list(map(float, columns[name])) for name in ("age", "dose")}
    (tmp_path / "c.parquet").write_bytes(parquet(**columns))
    paths = [tmp_path / name for name in ("z.csv", "b.csv.gz", "c.parquet")]
    folder = convert_table(paths, tmp_path / "parts", jobs=jobs, **settings_)
    assert content(tmp_path / "parts") == content(tmp_path / "whole")
    assert folder.feature_names == ("age", "dose")
    assert folder.content.startswith("sha256:")
    assert convert_table(paths[::-1], tmp_path / "turned", **settings_).content != folder.content


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("jobs", [2, 5])
def test_the_number_of_jobs_changes_no_byte(
    tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch, name: str, jobs: int
) -> None:
    monkeypatch.setattr("tulle.files.tables.numeric_rows._SMALL_FILE", 0)
    make, settings_ = GOOD[name]
    (tmp_path / name).write_bytes(make())
    for count in (1, jobs):
        convert_table(tmp_path / name, tmp_path / str(count), rows_per_block=13, jobs=count, **settings_)
    one, several = ({path.name: path.read_bytes() for path in (tmp_path / str(count)).iterdir()} for count in (1, jobs))
    assert one == several


@pytest.mark.parametrize("size", [37, 64, 1000])
def test_a_quoted_line_end_divides_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Wherever the pieces are cut that are parsed apart."""
    monkeypatch.setattr("tulle.files.tables.numeric_rows._SMALL_FILE", 0)
    monkeypatch.setattr(files, "BLOCK_BYTES", size)
    words = ["plain", "two\nlines", 'a "word", quoted', "x\r\n\r\ny", 'x""\n,']
    lines = [f'{k},"{words[k % 5].replace(chr(34), chr(34) * 2)}",{k / 3!r}' for k in range(80)]
    (tmp_path / "a.csv").write_text("age,note,dose\n" + "\n".join(lines), newline="")
    folder = convert_table(tmp_path / "a.csv", tmp_path / "b", target="note", rows_per_block=7, jobs=3)
    assert folder.y is not None
    assert folder.y.tolist() == [words[k % 5].strip() for k in range(80)]
    np.testing.assert_array_equal(joined(folder)[:, 0], np.arange(80.0))


def test_folders_and_globs_are_read_by_name(tmp_path: Path) -> None:
    """A folder of Parquet files, as Spark writes it, and files of any format for a glob."""
    part = tmp_path / "table"
    part.mkdir()
    for k in (2, 10, 1):
        (part / f"part-{k:03d}.parquet").write_bytes(parquet(x=np.full(3, float(k))))
    (part / "_SUCCESS").write_text("")
    for k, given in enumerate((part, part / "part-*.parquet")):
        assert (
            joined(convert_table(given, tmp_path / f"{k}.blocks"))[:, 0].tolist() == [1.0] * 3 + [2.0] * 3 + [10.0] * 3
        )
    (tmp_path / "b.csv").write_text("x\n5\n")
    (tmp_path / "a.csv").write_text("x\n4\n")
    found = convert_table([part / "part-010.parquet", tmp_path / "*.csv"], tmp_path / "mixed.blocks")
    assert joined(found)[:, 0].tolist() == [10.0] * 3 + [4.0, 5.0]


UNLIKE: dict[str, tuple[Callable[[], bytes], str, str]] = {
    "a column missing": (
        lambda: b"age,sick,id\n1,yes,p\n",
        "b.csv",
        "not the same columns as in 'a.csv': it lacks 'dose'",
    ),
    "a column more": (lambda: b"age,dose,SECRET,sick,id\n1,1,1,yes,p\n", "b.csv", "other columns in 1 place"),
    "no header": (lambda: b"SECRET,31,yes,0.5\n", "b.csv", "if it is a row, pass --no-header"),
    "a target of numbers": (lambda: b"age,dose,sick,id\n1,2,3,p\n", "b.csv", "its target contains numbers, but text"),
    "no target": (lambda: b"age,dose,id\n1,2,p\n", "b.csv", "--target: no column is named 'sick'"),
    "words for numbers": (
        lambda: parquet(age=["SECRET"], dose=[1.0], sick=["yes"], id=["p"]),
        "b.parquet",
        "column 'age': the column contains string, not numbers",
    ),
    "numbers for people": (
        lambda: parquet(age=[1.0], dose=[1.0], sick=["yes"], id=[4711]),
        "b.parquet",
        "its person ids contain int64, but string in 'a.csv'",
    ),
    "sparse rows": (lambda: b"1 qid:1 1:1\n", "b.svm", "its rows are sparse"),
    "an archive": (lambda: npz(X=np.ones((2, 2))), "b.npz", "each is converted alone"),
    "damaged": (lambda: b"PAR1 and nothing PAR1", "b.parquet", "truncated or damaged"),
}


@pytest.mark.parametrize("case", UNLIKE)
def test_files_that_are_not_alike_are_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """With the file and the column, and no cell."""
    make, name, message = UNLIKE[case]
    (tmp_path / "a.csv").write_text(CSV)
    (tmp_path / name).write_bytes(make())

    def unused(*_: Any, **__: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr(tulle.backends.table_conversion, "BlockWriter", unused)
    paths = [tmp_path / "a.csv", tmp_path / name]
    settings_ = {"target": "sick", "groups": "id"} if case != "sparse rows" else {"target": "sick", "ignore": ["id"]}
    with pytest.raises(TableError) as raised:
        convert_table(paths, tmp_path / "b.blocks", **settings_)
    assert message in str(raised.value)
    assert str(raised.value).startswith(str(tmp_path / name))
    assert not {"SECRET", "4711", "31"} & set(str(raised.value).replace("'", " ").replace(",", " ").split())


def test_dense_and_sparse_files_are_not_appended(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x\n1\n")
    (tmp_path / "b.svm").write_text("1 1:1\n")
    with pytest.raises(TableError, match=r"its rows are sparse, and those of 'a\.csv' dense"):
        convert_table([tmp_path / "a.csv", tmp_path / "b.svm"], tmp_path / "b.blocks")


def test_a_file_named_twice_is_refused(tmp_path: Path) -> None:
    """Its rows would count twice, and its people would not be protected."""
    (tmp_path / "a.csv").write_text("x\n1\n")
    (tmp_path / "link.csv").symlink_to(tmp_path / "a.csv")
    for other in ("a.csv", "link.csv"):
        with pytest.raises(TableError, match="named twice"):
            convert_table([tmp_path / "a.csv", tmp_path / other], tmp_path / "b.blocks")


@pytest.mark.parametrize(("when", "name"), [("before", "b.svm"), ("before", "a.svm"), ("while", "b.svm")])
def test_an_input_that_changes_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str, name: str
) -> None:
    """Between its fingerprint and its rows, or while rows are read; the second of two files as well, and the first,
    whose rows are in one block with those of the second."""
    changes = name
    for name in ("a.svm", "b.svm"):
        (tmp_path / name).write_text(SVM)
    take = tulle.backends.table_conversion.BlockWriter.take
    fingerprints = tulle.backends.table_conversion.fingerprint_all

    def grow() -> None:
        (tmp_path / changes).write_text(SVM + SVM)

    def taken(*given: Any) -> None:
        take(*given)
        grow()

    def fingerprinted(*given: Any, **more: Any) -> Any:
        found = fingerprints(*given, **more)
        grow()
        return found

    if when == "while":
        monkeypatch.setattr(tulle.backends.table_conversion.BlockWriter, "take", taken)
    else:
        monkeypatch.setattr(tulle.backends.table_conversion, "fingerprint_all", fingerprinted)
    with pytest.raises(TableError, match=rf"{changes}: changed while it was being read"):
        convert_table([tmp_path / "a.svm", tmp_path / "b.svm"], tmp_path / "b.blocks")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.svm", "b.svm"]


def test_an_input_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x\n1\n")
    for other, message in (("absent.csv", "no such file"), ("*.pq", "no file matches"), ("", "no Parquet files")):
        with pytest.raises(TableError, match=message):
            convert_table(
                [tmp_path / "a.csv", tmp_path / "d" / other], tmp_path / "b.blocks"
            ) if other else convert_table([tmp_path], tmp_path / "b.blocks")
    with pytest.raises(ValueError, match="jobs must be at least 1"):
        convert_table(tmp_path / "a.csv", tmp_path / "b.blocks", jobs=0)
