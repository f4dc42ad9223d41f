"""Conversions that were killed: the same call goes on, and the folder has the bytes of one that was not killed."""

from __future__ import annotations

import gzip
import multiprocessing
import os
import shutil
import signal
import stat
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_table_conversion import CSV, SVM
from test_tables import parquet

import tulle.backends.block_writer
import tulle.backends.table_conversion
from tulle import Schema
from tulle.backends import partial_folder
from tulle.backends.block_files import write_array
from tulle.backends.block_writer import write_blocks
from tulle.backends.partial_folder import FinishedBlock, PartialFolder
from tulle.backends.table_conversion import convert_table
from tulle.files.tables import TableError, input_files, numeric_rows

SCHEMA: dict[str, Any] = {
    "columns": {"age": {"range": [0, 60]}, "dose": {"range": [0, 9]}},
    "target": {"column": "sick", "classes": ["yes", "perhaps"]},
    "person": {"column": "id", "rows": 2},
}
QUOTED = CSV.replace("yes", '"y,es\n"')
INPUTS: dict[str, tuple[dict[str, bytes], dict[str, Any]]] = {
    "csv": ({"a.csv": CSV.encode()}, {"target": "sick", "groups": "id"}),
    "quoted": ({"a.csv": b"\xef\xbb\xbf" + QUOTED.encode()}, {"target": "sick", "groups": "id"}),
    "packed": ({"a.csv.gz": gzip.compress(CSV.encode())}, {"target": "sick", "groups": "id"}),
    "several": ({"a.csv": CSV.encode(), "b.csv": CSV.encode()}, {"target": "sick", "ignore": ["id"]}),
    "svm": ({"a.svm": SVM.encode(), "b.svm": (SVM + "1 qid:4 40:1\n").encode()}, {"groups": "qid"}),
    "parquet": (
        {f"{k}.parquet": parquet(x=np.arange(60.0) + k, who=[f"p{i}" for i in range(60)]) for k in range(2)},
        {"groups": "who"},
    ),
    "schema": ({"a.csv": CSV.replace("p7,", ",").encode()}, {"schema": SCHEMA}),
}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are read in many batches, CSV by pyarrow."""
    monkeypatch.setattr(input_files, "BLOCK_BYTES", 200)
    monkeypatch.setattr(numeric_rows, "_SMALL_FILE", 0)
    monkeypatch.setattr("tulle.files.tables.parquet._FEWEST_ROWS", 7)
    monkeypatch.setattr("tulle.files.tables.parquet.BLOCK_BYTES", 8)


def written(folder: Path, kind: str) -> list[Path]:
    for name, content in INPUTS[kind][0].items():
        (folder / name).write_bytes(content)
    return [folder / name for name in INPUTS[kind][0]]


def convert(files: list[Path], folder: Path, kind: str, **more: Any) -> list[int]:
    """Convert, and say how many rows an earlier conversion had converted."""
    resumed: list[int] = []
    settings = dict(INPUTS[kind][1])
    if "schema" in settings:
        settings["schema"] = Schema(**settings["schema"])
    convert_table(files, folder, **{"rows_per_block": 13, "on_resume": resumed.append, "jobs": 2} | settings | more)
    return resumed


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def killed(work: Callable[[], Any]) -> None:
    """Run in a process that kills itself."""
    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL


def die(*_: Any, **__: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def dying(function: Callable[..., Any], turn: int, *, after: bool = False) -> Callable[..., Any]:
    """A function that kills the process when it is called for the `turn`-th time, or after that."""
    turns = count(1)

    def called(*given: Any, **more: Any) -> Any:
        mine = next(turns)  # by one thread at a time: two could both pass the turn by
        if mine == turn and not after:
            die()
        found = function(*given, **more)
        if mine == turn:
            die()
        return found

    return called


MOMENTS: dict[str, tuple[Any, str, int, bool]] = {
    "before a journal": (partial_folder, "write_durably", 1, False),
    "before the first block is noted": (PartialFolder, "add", 1, False),
    "after the first block": (PartialFolder, "add", 1, True),
    "before the third block is noted": (PartialFolder, "add", 3, False),
    "after the last block": (PartialFolder, "take_name", 1, False),
    "in a file": (np.lib.format, "write_array_header_1_0", 9, True),
    "before the manifest": (partial_folder, "write_durably", 2, False),
    "after the manifest": (partial_folder, "write_durably", 2, True),
    "before the name": (Path, "rename", 1, False),
    "before it is tidied up": (Path, "rename", 1, True),
}


def kill_at(monkeypatch: pytest.MonkeyPatch, moment: str, work: Callable[[], Any]) -> None:
    place, name, turn, after = MOMENTS[moment]
    with monkeypatch.context() as patched:
        patched.setattr(place, name, dying(getattr(place, name), turn, after=after))
        killed(work)


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("kind", INPUTS)
def test_a_killed_conversion_goes_on_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, moment: str
) -> None:
    """Wherever it was killed. What is left meanwhile is for the owner alone, and is gone in the end."""
    files = written(tmp_path, kind)
    convert(files, tmp_path / "whole", kind)
    whole = content(tmp_path / "whole")
    kill_at(monkeypatch, moment, lambda: convert(files, tmp_path / "b", kind))
    for path in (tmp_path / ".b.partial").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)
    if moment == "before it is tidied up":
        assert content(tmp_path / "b") == whole
        shutil.rmtree(tmp_path / "b")
    else:
        assert not (tmp_path / "b").exists()
    resumed = convert(files, tmp_path / "b", kind)
    n_rows = sum(len(np.load(path)) for path in targets(tmp_path / "b"))
    # Blocks of svmlight files get their last columns in the end; those that a kill met there are converted again.
    last = [] if kind == "svm" else [n_rows]
    expected = {"after the first block": [13], "before the third block is noted": [26], "after the last block": last}
    assert resumed == expected.get(moment, resumed)
    assert content(tmp_path / "b") == whole
    assert not (tmp_path / ".b.partial").exists()


def targets(folder: Path) -> Iterator[Path]:
    """A file of each block with one entry a row."""
    yield from sorted(folder.glob("*.groups.npy")) or sorted(folder.glob("*.target.npy"))


def test_the_hidden_folder_is_for_its_owner_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the umask is."""
    before = os.umask(0o022)
    try:
        killed_after_a_block(tmp_path, monkeypatch)
    finally:
        os.umask(before)
    left = tmp_path / ".b.partial"
    assert {stat.S_IMODE(path.stat().st_mode) for path in (left, left / "blocks")} == {0o700}
    assert {stat.S_IMODE(path.stat().st_mode) for path in left.rglob("*") if path.is_file()} == {0o600}


def test_a_conversion_killed_again_and_again_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block more each time."""
    files = written(tmp_path, "several")
    convert(files, tmp_path / "whole", "several")
    for _ in range(5):
        kill_at(monkeypatch, "after the first block", lambda: convert(files, tmp_path / "b", "several"))
    assert convert(files, tmp_path / "b", "several", jobs=1) == [5 * 13]
    assert content(tmp_path / "b") == content(tmp_path / "whole")


@pytest.mark.parametrize("kind", ["csv", "quoted", "parquet"])
def test_rows_in_blocks_are_not_parsed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Reading begins with the batch of the next row: in CSV by its byte, in Parquet by its row group."""
    files = killed_after_a_block(tmp_path, monkeypatch, kind)
    seen: list[int] = []
    prepare = numeric_rows._Rows.prepare

    def counted(self: Any, columns: Any) -> Any:
        seen.append(len(columns[0]))
        return prepare(self, columns)

    monkeypatch.setattr(numeric_rows._Rows, "prepare", counted)
    convert(files, tmp_path / "b", kind)
    total = 120 if kind == "parquet" else 60
    assert total - 26 <= sum(seen) < total - 12


def killed_after_a_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str = "csv", **more: Any) -> list[Path]:
    files = written(tmp_path, kind)
    kill_at(monkeypatch, "before the third block is noted", lambda: convert(files, tmp_path / "b", kind, **more))
    return files


CHANGED: dict[str, tuple[Callable[[Path], Any], dict[str, Any], str]] = {
    "a cell": (lambda path: path.write_bytes(CSV.replace("59,", "58,").encode()), {}, "other input"),
    "more rows": (lambda path: path.write_bytes((CSV + "p,1,yes,2\n").encode()), {}, "other input"),
    "the target": (lambda _: None, {"target": "age", "ignore": ["sick"]}, "other options"),
    "how it is read": (lambda _: None, {"labels": True}, "other options"),
    "the size of blocks": (lambda _: None, {"rows_per_block": 12}, "other rows per block"),
}


@pytest.mark.parametrize("case", CHANGED)
def test_other_input_is_never_mixed_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    """It is refused, in a file of the same size and time too, and what was written stays for the right one."""
    (path,) = killed_after_a_block(tmp_path, monkeypatch)
    change, more, message = CHANGED[case]
    before = path.stat()
    change(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(TableError, match=f"unfinished conversion with {message}; run that one again.*--restart"):
        convert([path], tmp_path / "b", "csv", **more)
    assert len(list((tmp_path / ".b.partial" / "blocks").glob("*.dense.npy"))) >= 2
    assert convert([path], tmp_path / "b", "csv", restart=True, **more) == []
    convert([path], tmp_path / "whole", "csv", **more)
    assert content(tmp_path / "b") == content(tmp_path / "whole")


def test_another_version_does_not_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may write other bytes."""
    files = killed_after_a_block(tmp_path, monkeypatch)
    monkeypatch.setattr(tulle.backends.table_conversion, "__version__", "0.0.9")
    with pytest.raises(TableError, match="with other tulle version"):
        convert(files, tmp_path / "b", "csv")


def test_rows_of_a_file_that_changes_meanwhile_are_not_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed after the change, and continued when the file is again what it was: its blocks have its own rows."""
    monkeypatch.setattr(input_files, "BLOCK_BYTES", 1 << 12)
    path = tmp_path / "a.csv"
    right = "x\n" + "1000000000\n" * 40_000
    path.write_text(right)
    convert_table(path, tmp_path / "whole", rows_per_block=4000)
    add, noted = PartialFolder.add, []

    def change_then_die(self: PartialFolder, block: Any) -> None:
        add(self, block)
        noted.append(block)
        if len(noted) == 1:
            path.write_text(right.replace("1000000000", "2000000000"))
        if len(noted) == 9:
            die()

    def work() -> None:
        with suppress(TableError):
            convert_table(path, tmp_path / "b", rows_per_block=4000, jobs=1)
        die()

    with monkeypatch.context() as patched:
        patched.setattr(PartialFolder, "add", change_then_die)
        killed(work)
    path.write_text(right)
    convert_table(path, tmp_path / "b", rows_per_block=4000)
    same = content(tmp_path / "b") == content(tmp_path / "whole")
    assert same  # the difference of the bytes would take long to show


def test_a_suffix_that_says_how_to_read_is_part_of_the_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a header, .tsv means tabs and .csv commas: the same bytes are other columns."""
    path, schema = tmp_path / "a.csv", Schema({"0": {"hashed": 4}, "1": {"hashed": 4}})
    path.write_text("".join(f"{k}\t{k + 1},{k + 2}\n" for k in range(60)))
    more: dict[str, Any] = {"schema": schema, "header": False, "rows_per_block": 13}
    kill_at(monkeypatch, "after the first block", lambda: convert_table(path, tmp_path / "b", **more))
    path = path.rename(tmp_path / "a.tsv")
    with pytest.raises(TableError, match="unfinished conversion with other suffixes"):
        convert_table(path, tmp_path / "b", **more)


def test_a_file_that_was_moved_or_touched_is_the_same_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What counts is its bytes."""
    (path,) = killed_after_a_block(tmp_path, monkeypatch)
    moved = path.rename(tmp_path / "moved.csv")
    os.utime(moved)
    assert convert([moved], tmp_path / "b", "csv") == [26]


@pytest.mark.parametrize("harm", ["a bit", "cut off", "deleted"])
def test_a_damaged_block_is_converted_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: str) -> None:
    """Every file is checked before it is taken over; blocks before the damage are kept."""
    files = killed_after_a_block(tmp_path, monkeypatch)
    second = tmp_path / ".b.partial" / "blocks" / "000001.dense.npy"
    raw = bytearray(second.read_bytes())
    raw[-1] ^= 1
    if harm == "deleted":
        second.unlink()
    else:
        second.write_bytes(raw if harm == "a bit" else raw[:-8])
    assert convert(files, tmp_path / "b", "csv") == [13]
    convert(files, tmp_path / "whole", "csv")
    assert content(tmp_path / "b") == content(tmp_path / "whole")


@pytest.mark.parametrize("harm", ["cut off", "a digit", "a line lost"])
def test_a_damaged_journal_is_followed_up_to_the_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    """A line counts if it and all lines before it are what was written."""
    files = killed_after_a_block(tmp_path, monkeypatch)
    journal = tmp_path / ".b.partial" / "journal"
    lines = journal.read_bytes().splitlines(keepends=True)
    assert len(lines) == 3
    if harm == "cut off":
        lines[2] = lines[2][:-20]
    elif harm == "a digit":
        lines[2] = lines[2].replace(b'"taken": 26', b'"taken": 27')
    else:
        lines = [lines[0], lines[2]]
    journal.write_bytes(b"".join(lines))
    try:
        resumed = convert(files, tmp_path / "b", "csv")
    except TableError as error:
        raise AssertionError("a damaged journal was followed") from error
    assert resumed == ([] if harm == "a line lost" else [13])
    convert(files, tmp_path / "whole", "csv")
    assert content(tmp_path / "b") == content(tmp_path / "whole")


def test_rows_of_no_file_do_not_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a killed `write_blocks` left is deleted by the next one; what a conversion left is not."""
    batches = [np.ones((4, 2)), np.zeros((4, 2))]
    kill_at(monkeypatch, "after the first block", lambda: write_blocks(tmp_path / "b", batches, rows_per_block=4))
    assert write_blocks(tmp_path / "b", batches[1:]).shape == (4, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b"]
    shutil.rmtree(tmp_path / "b")
    killed_after_a_block(tmp_path, monkeypatch)
    with pytest.raises(TableError, match="contains an unfinished conversion of a file"):
        write_blocks(tmp_path / "b", batches)


@pytest.mark.parametrize("turn", [1, 2])
@pytest.mark.parametrize("after", [False, True])
def test_a_folder_that_was_being_replaced_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turn: int, after: bool
) -> None:
    """Killed before, between and after the two renames: the old folder is there again, or the new one."""
    files = written(tmp_path, "csv")
    write_blocks(tmp_path / "b", [np.ones((4, 2))])
    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", dying(Path.rename, turn, after=after))
        killed(lambda: convert(files, tmp_path / "b", "csv", replace=True))
    with pytest.raises(TableError, match="exists; choose another folder"):
        convert(files, tmp_path / "b", "csv")
    found = content(tmp_path / "b")
    convert(files, tmp_path / "b", "csv", replace=True)
    assert (found == content(tmp_path / "b")) == (turn == 2 and after)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "b"]


def test_two_conversions_to_one_folder_exclude_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second is refused while the first runs, whatever it is of; the lock of a killed one is free."""
    files = written(tmp_path, "csv")
    add = PartialFolder.add
    refused: list[str] = []

    def meanwhile(self: PartialFolder, block: Any) -> None:
        add(self, block)
        if not refused:
            refused.append("")
            with suppress(TableError):
                convert(files, tmp_path / "b", "csv", restart=True)
                refused.append("it was not refused")
                raise KeyboardInterrupt
            with pytest.raises(TableError) as raised:
                convert(files, tmp_path / "b", "csv")
            refused.append(str(raised.value))

    monkeypatch.setattr(PartialFolder, "add", meanwhile)
    with suppress(KeyboardInterrupt):
        convert(files, tmp_path / "b", "csv")
    words = "another process is writing this folder; wait until it has finished, or choose another folder"
    assert refused[1:] == [f"{tmp_path / 'b'}: {words}"]
    assert (tmp_path / "b").is_dir()


@pytest.mark.parametrize("whose", ["a link", "a file", "another user's"])
def test_rows_are_not_written_to_a_place_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    """In a folder that others may write to, somebody could have made the hidden folder before."""
    files, place, elsewhere = written(tmp_path, "csv"), tmp_path / ".b.partial", tmp_path / "elsewhere"
    elsewhere.mkdir()
    if whose == "a link":
        place.symlink_to(elsewhere)
    elif whose == "a file":
        place.write_text("")
    else:
        place.mkdir()
        monkeypatch.setattr(os, "geteuid", lambda: place.stat().st_uid + 1)
    refused = ""
    try:
        convert(files, tmp_path / "b", "csv")
    except TableError as error:
        refused = str(error)
    assert "is a link, a file or another user's folder; delete it" in refused
    assert not (tmp_path / "b").exists()
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("end", ["discard", "take_name"])
def test_the_lock_is_deleted_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    """A process that begins as soon as the lock is gone finds an empty place, and nothing that it writes is deleted."""
    one, others = PartialFolder(tmp_path / "b", True, {"input": 1}), list[PartialFolder]()
    unlink, scandir = os.unlink, os.scandir

    def lock_first(path: Any = ".") -> Any:
        """A folder may list its files in any order."""
        with scandir(path) as entries:
            return nullcontext(iter(sorted(entries, key=lambda entry: entry.name != "lock")))

    def begin_another(path: Any, **where: Any) -> None:
        unlink(path, **where)
        if Path(path).name == "lock" and not others:
            others.append(PartialFolder(tmp_path / "b", True, {"input": 2}, restart=True))
            write_one(others[0])

    write_one(one)
    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", lock_first)
        patched.setattr(os, "unlink", begin_another)
        if end == "discard":
            one.discard()
        else:
            one.take_name(b"{}")
    others[0].release()
    again = PartialFolder(tmp_path / "b", True, {"input": 2})
    again.release()
    assert len(again.finished) == 1


def write_one(folder: PartialFolder) -> None:
    """Write a block of one file."""
    stored = write_array(folder.blocks / "000000.dense.npy", [np.ones((2, 3))])
    folder.add(FinishedBlock(2, {"000000.dense.npy": stored}, None))


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_full_disk_leaves_finished_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int) -> None:
    """With room again, the same call goes on. The message says what is left, and where."""
    files = written(tmp_path, "csv")
    write, calls = tulle.backends.block_writer.write_block, []

    def full(*given: Any) -> Any:
        calls.append(None)
        if len(calls) > 2:
            raise OSError(28, "No space left on device")
        return write(*given)

    with monkeypatch.context() as patched:
        patched.setattr(tulle.backends.block_writer, "write_block", full)
        with pytest.raises(TableError, match=r"b: cannot be written \(No space left on device\)") as raised:
            convert(files, tmp_path / "b", "csv", jobs=jobs)
    (note,) = raised.value.__notes__
    assert str(tmp_path / ".b.partial") in note
    assert "run the same command again to continue" in note
    (resumed,) = convert(files, tmp_path / "b", "csv")
    assert resumed == 26
    convert(files, tmp_path / "whole", "csv")
    assert content(tmp_path / "b") == content(tmp_path / "whole")
