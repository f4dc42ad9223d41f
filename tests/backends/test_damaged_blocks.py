"""Folders of blocks that are damaged: refused before anything is billed."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import test_block_folder
from test_block_folder import D, N

from tulle.backends.block_folder import MANIFEST, BlockFolder, is_block_folder, open_blocks
from tulle.backends.block_writer import write_blocks
from tulle.files.tables import TableError

folder = test_block_folder.folder


def resealed(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change a manifest and make its own checksum right again."""
    manifest = json.loads((path / MANIFEST).read_text())
    del manifest["sha256"]
    change(manifest)
    seal = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    (path / MANIFEST).write_text(json.dumps({**manifest, "sha256": seal}))


def overwritten(path: Path, name: str, place: int, value: Any) -> None:
    """Change one number of an array in its file."""
    array = np.load(path / name)
    array[place] = value
    np.save(path / name, array)


OPENING: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no manifest": (lambda p: (p / MANIFEST).unlink(), "not finished; convert the rows again"),
    "half a manifest": (lambda p: os.truncate(p / MANIFEST, 100), "cannot be read"),
    "another manifest": (lambda p: (p / MANIFEST).write_text("[]"), "cannot be read"),
    "an edited manifest": (
        lambda p: (p / MANIFEST).write_text((p / MANIFEST).read_text().replace('"sparse": true', '"sparse": false')),
        "has changed since",
    ),
    "a newer format": (lambda p: resealed(p, lambda m: m.update(format="tulle blocks 3")), "reads 'tulle blocks 2'"),
    "a missing entry": (lambda p: resealed(p, lambda m: m.pop("shape")), "cannot be read"),
    "more rows than blocks": (lambda p: resealed(p, lambda m: m.update(shape=[N + 1, D])), "number of rows"),
    "falling starts": (lambda p: resealed(p, lambda m: m.update(starts=[0, 20, 10, 30, 40, 50])), "number of rows"),
    "wider than its columns": (lambda p: resealed(p, lambda m: m.update(shape=[N, D + 1])), "do not match"),
    "longer blocks": (lambda p: resealed(p, lambda m: m.update(starts=[0, 9, 20, 30, 40, 50])), "do not match"),
    "other types": (lambda p: resealed(p, lambda m: m.update(dtype="int64")), "description of columns is invalid"),
    "a name short": (
        lambda p: resealed(p, lambda m: m.update(feature_names=["a"])),
        "description of columns is invalid",
    ),
    "a file elsewhere": (
        lambda p: resealed(p, lambda m: m["files"].update({"../x": m["files"]["000000.target.npy"]})),
        "list of files",
    ),
    "a missing file": (lambda p: (p / "000002.row_values.npy").unlink(), "FileNotFoundError"),
    "a short file": (lambda p: os.truncate(p / "000002.row_values.npy", 100), "has 100 bytes"),
    "another target": (lambda p: overwritten(p, "000001.target.npy", 0, "xxxx"), "is not what was written"),
}


@pytest.mark.parametrize("case", OPENING)
def test_a_folder_that_is_not_whole_is_refused(folder: BlockFolder, case: str) -> None:
    """On opening, with its name, and with what to do."""
    harm, message = OPENING[case]
    harm(Path(folder.path))
    with pytest.raises(TableError, match=message) as raised:
        open_blocks(folder.path)
    assert str(raised.value).startswith(folder.path)
    assert "convert" in str(raised.value)


# Too large in the last place and too small in the first: indices still rise, so that nothing but their bounds is wrong.
INDICES = {
    "a row too large": ("column_rows", -1, 10),
    "a row below 0": ("column_rows", 0, -1),
    "a column too large": ("row_columns", -1, D),
    "a column far below 0": ("row_columns", 0, -(2**31)),
    "falling rows": ("column_rows", 0, 9),
    "a start too large": ("row_starts", 4, 10**6),
    "a start below 0": ("column_starts", 1, -5),
    "a first start": ("column_starts", 0, 1),
    "a last start": ("row_starts", -1, 2),
    "twice the same column": ("row_columns", 1, None),
    "no number": ("column_values", 0, np.nan),
    "an infinite number": ("row_values", -1, np.inf),
}


@pytest.mark.parametrize("case", INDICES)
@pytest.mark.parametrize("before", [False, True], ids=["unused", "used"])
def test_no_index_is_followed_outside_of_its_block(folder: BlockFolder, case: str, before: bool) -> None:
    """Compiled code follows indices blindly. Files that change after a block's first use are looked at again."""
    part, place, value = INDICES[case]
    name = f"000003.{part}.npy"
    if before:
        folder.X.block(3)
    size = os.stat(Path(folder.path) / name).st_size
    value = np.load(Path(folder.path) / name)[0] if value is None else value
    overwritten(Path(folder.path), name, place, value)
    assert os.stat(Path(folder.path) / name).st_size == size
    again = folder if before else open_blocks(folder.path)
    again.X.block(2)
    for look in (lambda: again.X.block(3), again.X.check):
        with pytest.raises(TableError, match="block 3 have invalid indices; it is damaged, so convert"):
            look()


@pytest.mark.parametrize("part", ["column_starts", "row_starts"])
@pytest.mark.parametrize(
    ("place", "value"),
    [(0, 1), (4, 10**6), (4, -(10**6)), (-1, 10**6), (-1, 5)],
    ids=["first", "far beyond", "far before", "last too large", "last too small"],
)
def test_no_start_is_followed_outside_of_its_block(tmp_path: Path, part: str, place: int, value: int) -> None:
    """Of a diagonal, whose indices rise however they are divided: nothing but where lines start is wrong."""
    folder = write_blocks(tmp_path / "a.blocks", [sp.csr_array(np.eye(10))])
    overwritten(tmp_path / "a.blocks", f"000000.{part}.npy", place, value)
    with pytest.raises(TableError, match="block 0 have invalid indices"):
        folder.X.block(0)


def test_dense_numbers_that_are_not_finite_are_found(tmp_path: Path) -> None:
    """As in sparse blocks; and a number of a block that is not there is the caller's mistake."""
    folder = write_blocks(tmp_path / "a.blocks", [np.ones((6, 2))], rows_per_block=3)
    overwritten(Path(folder.path), "000001.dense.npy", 2, np.nan)
    folder.X.block(0)
    with pytest.raises(TableError, match="block 1 contains numbers that are not finite"):
        folder.X.check()
    for k in (-1, 2):
        with pytest.raises(IndexError, match="of 2 does not exist"):
            folder.X.block(k)


@pytest.mark.parametrize("array", [np.ones(3, np.float32), np.ones((3, 3))], ids=["type", "shape"])
def test_another_array_in_the_place_of_a_file_is_refused(folder: BlockFolder, array: Any) -> None:
    """Also after the folder was opened."""
    np.save(Path(folder.path) / "000000.row_values.npy", array)
    with pytest.raises(TableError, match="is not the array that was written"):
        folder.X.block(0)


def test_verify_finds_a_changed_number(folder: BlockFolder) -> None:
    """One that is finite and in its place, which nothing else could see."""
    folder.verify()
    overwritten(Path(folder.path), "000002.row_values.npy", 0, 0.125)
    for look in (folder.X.check, folder.verify):
        with pytest.raises(TableError, match=r"000002\.row_values\.npy has changed"):
            look()


def test_pickles_in_the_place_of_targets_are_not_loaded(folder: BlockFolder, tmp_path: Path) -> None:
    """They can run code."""
    touched = tmp_path / "ran"

    class Bomb:
        def __reduce__(self) -> Any:
            return Path.touch, (touched,)

    path = Path(folder.path) / "000000.target.npy"
    np.save(path, np.array([Bomb()], dtype=object), allow_pickle=True)
    resealed(Path(folder.path), lambda m: m["files"]["000000.target.npy"].update(size=path.stat().st_size))
    with pytest.raises(TableError, match="ValueError"):
        open_blocks(folder.path)
    assert not touched.exists()


def test_other_folders_and_files_are_no_blocks(tmp_path: Path, folder: BlockFolder) -> None:
    """What is left of blocks is one, so that it is refused as such."""
    assert is_block_folder(folder.path)
    (Path(folder.path) / MANIFEST).unlink()
    assert is_block_folder(folder.path)
    assert not is_block_folder(tmp_path)
    assert not is_block_folder(tmp_path / "absent")
    with pytest.raises(TableError, match="no such folder"):
        open_blocks(tmp_path / "absent")
