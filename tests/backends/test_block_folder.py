"""Folders of blocks: what goes in comes out, in little memory; a folder that is not whole is refused."""

from __future__ import annotations

import errno
import os
import pickle
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import tulle.backends.block_writer
import tulle.backends.partial_folder
from tulle.backends.block_folder import BlockFolder, open_blocks
from tulle.backends.block_writer import BlockWriter, write_blocks
from tulle.files.durable_writes import write_durably
from tulle.files.tables import TableError
from tulle.trusted.intake import select_first_rows

N, D = 50, 12


def sparse_rows(seed: int = 0, n: int = N, d: int = D) -> Any:
    """Some rows; about one in three entries is there, and the first row and the last column are empty."""
    rng = np.random.default_rng(seed)
    values = np.where(rng.random((n, d)) < 1 / 3, rng.standard_normal((n, d)), 0.0)
    values[0] = values[:, -1] = 0.0
    return sp.csr_array(values)


def cut(n: int, sizes: list[int]) -> Iterator[slice]:
    """Slices of these sizes, again and again, to n."""
    start, turn = 0, 0
    while start < n:
        yield slice(start, start + sizes[turn % len(sizes)])
        start, turn = start + sizes[turn % len(sizes)], turn + 1


def joined(folder: BlockFolder, by: int = 1) -> Any:
    """All rows: from the columns (0) or from the rows (1) of sparse blocks, or dense."""
    blocks = [folder.X.block(k) for k in range(folder.X.n_blocks)]
    if not folder.X.sparse:
        return np.vstack(blocks)
    return sp.csr_array(sp.vstack([block[by] for block in blocks], format="csr"))


def assert_same(found: Any, expected: Any) -> None:
    """The same rows, entry by entry, in the same form."""
    assert type(found) is type(expected) or not sp.issparse(expected)
    if not sp.issparse(expected):
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == expected.dtype
        return
    assert found.shape == expected.shape
    for part in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(found, part), getattr(expected, part))


@pytest.fixture
def folder(tmp_path: Path) -> BlockFolder:
    """Five blocks of sparse rows with targets and people."""
    y, people = np.where(np.arange(N) % 3, "home", "ward"), np.arange(N) // 2
    parts = cut(N, [7])
    X = sparse_rows()
    return write_blocks(tmp_path / "a.blocks", ((X[p], y[p], people[p]) for p in parts), rows_per_block=10)


# --- what goes in comes out ------------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 40),
    sizes=st.lists(st.integers(1, 17), min_size=1, max_size=4),
    rows_per_block=st.integers(1, 45),
    kind=st.sampled_from(["sparse", "float64", "float32"]),
)
def test_rows_come_back_whatever_the_batches_and_blocks(
    tmp_path_factory: Any, seed: int, n: int, sizes: list[int], rows_per_block: int, kind: str
) -> None:
    """Values, columns, targets and people are the same to the bit; blocks begin where the public size says."""
    X = sparse_rows(seed, n) if kind == "sparse" else sparse_rows(seed, n).toarray().astype(kind)
    rng = np.random.default_rng(seed)
    y, people = rng.standard_normal(n), rng.choice(["a", "bb", "ccc"], n)
    path = tmp_path_factory.mktemp("blocks") / "a.blocks"
    batches = ((X[p], y[p], people[p]) for p in cut(n, sizes))
    folder = write_blocks(path, batches, rows_per_block=rows_per_block)
    assert folder.X.starts == (*range(0, n, rows_per_block), n)
    assert folder.shape == folder.X.shape == (n, D) == (len(folder.X), D)
    assert folder.X.dtype == X.dtype
    for by in (0, 1):
        assert_same(joined(folder, by), X)
    assert folder.y is not None
    assert folder.groups is not None
    np.testing.assert_array_equal(folder.y, y)
    np.testing.assert_array_equal(folder.groups, people)
    folder.verify()


@pytest.mark.parametrize("size", [np.float32, np.float64])
def test_an_id_is_one_person_whatever_type_a_block_has(size: type, tmp_path: Path) -> None:
    """Up to the largest whole number that floats tell from its neighbours; beyond, floats are refused."""
    most = 2 ** (np.finfo(size).nmant + 1)
    for ids, refused in ((most - 10 + np.arange(10), False), (most - 4 + 2 * np.arange(10), True)):
        with BlockWriter(tmp_path / "a.blocks", rows_per_block=10, replace=True) as writer:
            for groups in (ids, ids.astype(size)):
                writer.append(np.ones((10, 2)), np.zeros(10), groups)
        if refused:
            with pytest.raises(ValueError, match="large whole numbers as floats"):
                _ = open_blocks(tmp_path / "a.blocks").groups
        else:
            people = open_blocks(tmp_path / "a.blocks").groups
            assert people is not None
            assert select_first_rows(people, 1).tolist() == [True] * 10 + [False] * 10


def test_the_width_may_grow_to_the_last_batch(tmp_path: Path) -> None:
    """As in a file whose largest index stands in its last line: earlier blocks get the columns that they lack."""
    X = sparse_rows()
    batches = (X[:20, :5], X[20:40, :9], X[40:])
    expected = sp.vstack([sp.csr_array((b.data, b.indices, b.indptr), shape=(b.shape[0], D)) for b in batches])
    with BlockWriter(tmp_path / "a.blocks", rows_per_block=8) as writer:
        for batch in batches:
            writer.append(batch)
    assert {len(np.load(path)) for path in (tmp_path / "a.blocks").glob("*.column_starts.npy")} == {D + 1}
    folder = open_blocks(tmp_path / "a.blocks")
    for by in (0, 1):
        np.testing.assert_array_equal(joined(folder, by).toarray(), expected.toarray())
    folder.verify()


def test_entries_in_two_parts_are_added_and_the_callers_are_left_alone(tmp_path: Path) -> None:
    """Two halves of an entry would each pass a bound that their sum breaks."""
    X = sp.csr_array((np.array([1.0, 2.0, 3.0]), np.array([2, 2, 0]), np.array([0, 3])), shape=(1, 3))
    path = Path(write_blocks(tmp_path / "a.blocks", [X]).path)
    assert np.load(path / "000000.row_values.npy").tolist() == [3.0, 3.0]
    assert np.load(path / "000000.row_columns.npy").tolist() == [0, 2]
    assert np.load(path / "000000.column_values.npy").tolist() == [3.0, 3.0]
    assert X.data.tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("sparse", [True, False], ids=["sparse", "dense"])
def test_whoever_appends_may_use_the_same_array_again(tmp_path: Path, sparse: bool) -> None:
    """A batch is written, or copied until it is."""
    with BlockWriter(tmp_path / "a.blocks", rows_per_block=4) as writer:
        rows = np.empty((1, 2))
        y = np.empty(1)
        for k in range(4):
            rows[:] = y[:] = k + 1
            X = sp.csr_array(rows) if sparse else rows
            writer.append(X, y)
            X[0, 0] = y[0] = 99.0
    folder = open_blocks(tmp_path / "a.blocks")
    found = joined(folder)
    assert (found.toarray() if sparse else found)[:, 0].tolist() == [1.0, 2.0, 3.0, 4.0]
    assert folder.y is not None
    assert folder.y.tolist() == [1.0, 2.0, 3.0, 4.0]


def test_blocks_are_maps_that_are_let_go(folder: BlockFolder) -> None:
    """No copy in memory, nothing that can be written to, and nothing left open when the block is dropped."""

    def n_maps() -> int:
        return Path("/proc/self/maps").read_text().count(folder.path)

    block = folder.X.block(1)
    assert n_maps() == 6
    for matrix in block:
        assert not any(array.flags.owndata or array.flags.writeable for array in (matrix.data, matrix.indices))
        assert (matrix.indices.dtype, matrix.indptr.dtype) == (np.int32, np.int32)
    del block, matrix
    assert n_maps() == 0
    assert not any(folder.path in os.path.realpath(one) for one in Path("/proc/self/fd").iterdir())


def test_an_opened_folder_can_go_to_another_process(folder: BlockFolder) -> None:
    """It is a path and some figures, not its rows."""
    sent = pickle.dumps(folder.X)
    assert len(sent) < 10_000
    assert_same(pickle.loads(sent).block(2)[1], folder.X.block(2)[1])


def test_the_usual_block_size_follows_the_columns_of_dense_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing of the rows themselves; sparse rows that are too long for it are refused before memory is full."""
    monkeypatch.setattr(tulle.backends.block_writer, "_BLOCK_BYTES", 8 * 4 * 6)
    assert write_blocks(tmp_path / "dense", [np.ones((20, 4))]).X.starts == (0, 6, 12, 18, 20)
    assert write_blocks(tmp_path / "single", [np.ones((20, 4), np.float32)]).X.starts == (0, 12, 20)
    monkeypatch.setattr(tulle.backends.block_writer, "_SPARSE_ROWS", 9)
    assert write_blocks(tmp_path / "sparse", [sparse_rows(n=20)]).X.starts == (0, 9, 18, 20)
    monkeypatch.setattr(tulle.backends.block_writer, "_MOST_ENTRIES", 10)
    with pytest.raises(ValueError, match="--rows-per-block"):
        write_blocks(tmp_path / "long", [sparse_rows(n=20)])
    assert write_blocks(tmp_path / "long", [sparse_rows(n=20)], rows_per_block=20).X.n_blocks == 1


def outside() -> Any:
    """A row with an entry beyond its last column."""
    X = sp.csr_array(np.ones((1, 3)))
    X.indices[2] = 10**6
    return X


BAD: dict[str, tuple[Callable[[], list[Any]], str]] = {
    "nan": (lambda: [np.ones((3, 2)), np.array([[1.0, np.nan]])], "row 3 .*not finite"),
    "sparse infinity": (lambda: [sp.csr_array([[0.0, 0.0], [0.0, np.inf]])], "row 1 .*not finite"),
    "an overflowing sum": (
        lambda: [sp.csr_array((np.array([1e308, 1e308]), np.array([0, 0]), np.array([0, 2])), shape=(1, 1))],
        "row 0 .*not finite",
    ),
    "an index outside": (lambda: [outside()], "column index|indices"),
    "one dimension": (lambda: [np.ones(3)], "two dimensions"),
    "another width": (lambda: [np.ones((1, 2)), np.ones((1, 3))], "3 features, expected 2"),
    "two kinds": (lambda: [np.ones((1, 2)), sp.csr_array(np.ones((1, 2)))], "all rows must be sparse"),
    "lost digits": (lambda: [np.ones((1, 2), np.float32), np.ones((1, 2))], "append a single type"),
    "words": (lambda: [np.array([["a", "b"]])], "must be numbers"),
    "a target short": (lambda: [(np.ones((3, 2)), [1, 2])], "shape"),
    "a missing target": (lambda: [(np.ones((2, 2)), [1.0, np.nan])], "row 1 is not finite"),
    "objects": (lambda: [(np.ones((1, 2)), [None])], "numbers or text"),
    "targets for some": (lambda: [(np.ones((1, 2)), [1.0]), np.ones((1, 2))], "absent from all"),
    "words and numbers": (lambda: [(np.ones((1, 2)), [1.0]), (np.ones((1, 2)), ["a"])], "absent from all"),
    "nothing": (lambda: [], "nothing to write"),
    "no rows": (lambda: [np.ones((0, 3))], "nothing to write"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_rows_are_refused_and_leave_nothing(tmp_path: Path, case: str) -> None:
    """Neither the folder nor the hidden one beside it."""
    batches, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        write_blocks(tmp_path / "a.blocks", batches(), rows_per_block=1)
    assert list(tmp_path.iterdir()) == []


def test_bad_sizes_and_names_are_refused(tmp_path: Path) -> None:
    """Before anything is written, where that can be known."""
    sizes: list[dict[str, Any]] = [{"rows_per_block": 0}, {"n_features": 0}, {"rows_per_block": 2**31}]
    for size in sizes:
        with pytest.raises(ValueError, match="must be from 1 to"):
            BlockWriter(tmp_path / "a.blocks", **size)
    with pytest.raises(ValueError, match="3 feature names for 12"):
        write_blocks(tmp_path / "a.blocks", [sparse_rows()], feature_names=["a", "b", "c"])
    with pytest.raises(ValueError, match="12 features, expected 4"):
        write_blocks(tmp_path / "a.blocks", [sparse_rows()], n_features=4)
    assert list(tmp_path.iterdir()) == []


# --- the folder ------------------------------------------------------------------------------------------------------


def test_the_folder_is_for_its_owner_alone(folder: BlockFolder) -> None:
    """Private rows are not for everybody on the machine, whatever the umask is."""
    assert stat.S_IMODE(os.stat(folder.path).st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in Path(folder.path).iterdir()} == {0o600}


def test_the_manifest_comes_last_and_the_name_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All files are on the disk before the manifest says so; a crash before it leaves nothing that looks whole."""
    synced: list[str] = []
    written: list[str] = []
    fsync = os.fsync

    def seen(handle: int) -> None:
        synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{handle}")))
        fsync(handle)

    def last(path: Path, content: bytes, mode: int) -> None:
        if path.name == "blocks.json":
            written.append(path.parent.name)
            assert not (tmp_path / "a.blocks").exists()
            assert {one.name for one in path.parent.iterdir()} <= {*synced}
            assert path.parent.name in synced
        write_durably(path, content, mode)

    monkeypatch.setattr(os, "fsync", seen)
    monkeypatch.setattr(tulle.backends.partial_folder, "write_durably", last)
    write_blocks(tmp_path / "a.blocks", [sparse_rows()], rows_per_block=20)
    assert written == ["blocks"]
    assert synced[-1] == tmp_path.name
    assert [path.name for path in tmp_path.iterdir()] == ["a.blocks"]


@pytest.mark.parametrize("what", ["error", "interrupt", "manifest", "name"])
def test_a_failure_leaves_what_was_there(folder: BlockFolder, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Replacing is all or nothing."""

    def batches() -> Iterator[Any]:
        yield sparse_rows(1)
        if what == "error":
            raise RuntimeError
        if what == "interrupt":
            raise KeyboardInterrupt

    def full(*arguments: Any, **settings: Any) -> None:
        raise OSError(28, "No space left on device")

    if what == "manifest":
        monkeypatch.setattr(tulle.backends.partial_folder, "write_durably", full)
    if what == "name":
        monkeypatch.setattr(Path, "rename", full)
    with pytest.raises((RuntimeError, KeyboardInterrupt, TableError)) as raised:
        write_blocks(folder.path, batches(), rows_per_block=10, replace=True)
    if what in ("manifest", "name"):
        assert "No space left" in str(raised.value)
    monkeypatch.undo()
    assert [path.name for path in Path(folder.path).parent.iterdir()] == ["a.blocks"]
    assert_same(joined(open_blocks(folder.path)), sparse_rows())


def test_only_blocks_are_replaced_and_only_when_asked(folder: BlockFolder, tmp_path: Path) -> None:
    """Anything else in the place, and anything that a link leads to, stays."""
    with pytest.raises(TableError, match="--replace"):
        write_blocks(folder.path, [sparse_rows(1)])
    assert_same(joined(write_blocks(folder.path, [sparse_rows(1)], replace=True)), sparse_rows(1))
    other = tmp_path / "thesis"
    other.mkdir()
    (other / "chapter.txt").write_text("one")
    (tmp_path / "link").symlink_to(folder.path)
    for name in ("thesis", "thesis/chapter.txt", "link"):
        with pytest.raises(TableError, match="not replaced"):
            write_blocks(tmp_path / name, [sparse_rows()], replace=True)
    with pytest.raises(TableError, match="does not exist"):
        write_blocks(tmp_path / "absent" / "a.blocks", [sparse_rows()])
    assert (other / "chapter.txt").read_text() == "one"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.blocks", "link", "thesis"]


def test_two_writers_of_one_folder_exclude_each_other(tmp_path: Path) -> None:
    """The second is refused at once; the first goes on."""
    with BlockWriter(tmp_path / "a.blocks", rows_per_block=2) as writer:
        writer.append(sparse_rows())
        with pytest.raises(TableError, match="another process is writing this folder"):
            write_blocks(tmp_path / "a.blocks", [sparse_rows()])
    assert_same(joined(open_blocks(tmp_path / "a.blocks")), sparse_rows())
    assert [path.name for path in tmp_path.iterdir()] == ["a.blocks"]


def test_the_bytes_of_a_block_depend_on_its_rows_alone(tmp_path: Path) -> None:
    """Not on the batches, whose longest word is in another block, nor on the number of threads."""
    words = np.array(["a", "bb", "c", "dddddddd"])
    X = np.arange(8.0).reshape(4, 2)
    for name, sizes, jobs in (("a", [4], 1), ("b", [1], 1), ("c", [3], 3)):
        parts = cut(4, sizes)
        write_blocks(tmp_path / name, ((X[p], words[p], words[p]) for p in parts), rows_per_block=2, jobs=jobs)
    found = [{file.name: file.read_bytes() for file in (tmp_path / name).iterdir()} for name in "abc"]
    assert found[0] == found[1] == found[2]
    assert np.load(tmp_path / "a" / "000000.target.npy").dtype == "<U2"


def test_rows_on_disk_are_not_made_an_array_in_memory(tmp_path: Path) -> None:
    """Whoever wants one array is told so, instead of getting an array of one object."""
    folder = write_blocks(tmp_path / "rows.blocks", [(np.ones((4, 2)), np.arange(4.0))])
    with pytest.raises(TypeError, match="on disk, but the function called needs them as one array"):
        np.asarray(folder.X)


def test_what_is_short_is_not_called_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_blocks(tmp_path / "rows.blocks", [(np.ones((4, 2)), np.arange(4.0))])

    def no_memory(*_: object, **__: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(np, "memmap", no_memory)
    with pytest.raises(TableError, match="Cannot allocate memory") as told:
        folder.X.block(0)
    assert "damaged" not in str(told.value)


def test_changed_values_are_found_before_they_are_used(tmp_path: Path) -> None:
    """Sparse rows lie there twice. Clipping goes by one copy, batches read the other: both must be as written."""
    X = sp.random_array((20, 10), density=0.5, format="csr", random_state=np.random.default_rng(0))
    folder = write_blocks(tmp_path / "rows.blocks", [(X, np.arange(20.0))])
    place = tmp_path / "rows.blocks" / "000000.row_values.npy"
    content = np.load(place)
    place.chmod(0o600)
    np.save(place, 1e6 * content)
    with pytest.raises(TableError, match=r"row_values\.npy has changed since it was written"):
        folder.X.check()
