"""Loaders of the papers' own data: small files in each format, right and damaged, and the real ones where they are."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import re
import struct
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file

from tulle import datasets
from tulle.datasets import (
    available,
    load_e2006,
    load_medmnist,
    load_mnist,
    load_pneumonia,
    load_rcv1,
    standard,
    where_to_get,
)
from tulle.datasets.locations import FILES, find

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".bz2": bz2.compress,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
}


def real(loader: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not available(loader), reason=f"the files of {loader} are not in TULLE_DATA")


# --- LIBSVM's format -------------------------------------------------------------------------------------------------

RCV1 = standard._Size(train=12, test=40, features=9)
E2006 = standard._Size(train=8, test=5, features=30)


def svm(X: np.ndarray, y: Sequence[float] | np.ndarray) -> bytes:
    buffer = io.BytesIO()
    dump_svmlight_file(X, y, buffer, zero_based=False)
    return buffer.getvalue()


def sparse_rows(n: int, d: int, seed: int) -> np.ndarray:
    """Rows with whole entries, so that text holds them exactly; the first one is the row's number, from 1."""
    rng = np.random.default_rng(seed)
    X = np.where(rng.random((n, d)) < 0.4, rng.integers(1, 9, (n, d)), 0).astype(float)
    X[:, 0] = np.arange(1, n + 1)
    return X


@pytest.fixture
def rcv1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    """A small RCV1 in `tmp_path`, and what is in it."""
    monkeypatch.setattr(standard, "_RCV1", RCV1)
    data = {}
    for part, n in (("train", RCV1.train), ("test", RCV1.test)):
        data[f"X_{part}"] = sparse_rows(n, RCV1.features, seed=n)
        data[f"y_{part}"] = np.random.default_rng(n).choice([-1.0, 1.0], n)
        text = svm(data[f"X_{part}"], data[f"y_{part}"])
        (tmp_path / f"rcv1_{part}.binary").write_bytes(text)
    return data


def pack(path: Path, ending: str) -> Path:
    """The file packed, in place of the plain one."""
    packed = path.with_name(path.name + ending)
    content = path.read_bytes()
    path.unlink()
    packed.write_bytes(PACKERS[ending](content))
    return packed


@pytest.mark.parametrize("ending", PACKERS)
def test_rcv1_is_read_plain_and_packed(ending: str, tmp_path: Path, rcv1: dict[str, np.ndarray]) -> None:
    """All rows, in order, with 32-bit indices as liblinear wants them."""
    for name in FILES["load_rcv1"]:
        pack(tmp_path / name, ending)
    found = load_rcv1(tmp_path, test_rows=None)
    for part in ("train", "test"):
        X = getattr(found, f"X_{part}")
        assert X.format == "csr"
        assert X.indices.dtype == np.int32
        np.testing.assert_array_equal(X.toarray(), rcv1[f"X_{part}"])
        np.testing.assert_array_equal(getattr(found, f"y_{part}"), rcv1[f"y_{part}"])


def test_blocks_of_text_join_to_the_same_rows(
    tmp_path: Path, rcv1: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With blocks of a few lines nothing is lost or doubled at their edges."""
    monkeypatch.setattr(standard, "_BLOCK", 60)
    found = load_rcv1(tmp_path, test_rows=None)
    np.testing.assert_array_equal(found.X_test.toarray(), rcv1["X_test"])
    np.testing.assert_array_equal(found.y_test, rcv1["y_test"])


def test_the_sample_of_test_rows_is_fixed_and_without_repeats(tmp_path: Path, rcv1: dict[str, np.ndarray]) -> None:
    """15 of 40 rows of the file, in its order, the same each time; not simply the first ones."""
    first, again = (load_rcv1(tmp_path, test_rows=15) for _ in range(2))
    np.testing.assert_array_equal(first.X_test.toarray(), again.X_test.toarray())
    chosen = [int(number) - 1 for number in first.X_test.toarray()[:, 0]]
    assert chosen == sorted(set(chosen))
    assert len(chosen) == 15
    assert chosen != list(range(15))
    np.testing.assert_array_equal(first.X_test.toarray(), rcv1["X_test"][chosen])
    np.testing.assert_array_equal(first.y_test, rcv1["y_test"][chosen])
    assert first.X_train.shape == (RCV1.train, RCV1.features)


@pytest.mark.parametrize("test_rows", [0, -1, 41])
def test_an_impossible_sample_is_refused(test_rows: int, tmp_path: Path, rcv1: dict[str, np.ndarray]) -> None:
    """Not more rows than there are, and not none."""
    with pytest.raises(ValueError, match=r"test_rows must lie in 1\.\.40"):
        load_rcv1(tmp_path, test_rows=test_rows)


def test_lines_that_are_not_sampled_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """16 MB of text, from which 20 rows are taken: never more than a small part of it is held."""
    monkeypatch.setattr(standard, "_RCV1", standard._Size(train=2, test=16_000, features=9))
    (tmp_path / "rcv1_train.binary").write_bytes(b"1 1:1\n-1 2:1\n")
    line = b"+1 " + b"1:0." + b"3" * 992 + b"\n"
    (tmp_path / "rcv1_test.binary.bz2").write_bytes(bz2.compress(line * 16_000))
    load_rcv1(tmp_path, test_rows=1)  # imports come first
    tracemalloc.start()
    try:
        found = load_rcv1(tmp_path, test_rows=20)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.X_test.shape == (20, 9)
    assert peak < 2e6  # 20 lines are 20 kB


DAMAGED_LINES = {
    "a feature too many": (b"1 3:1 10:1\n", r"not in LIBSVM's format with 9 features.*contains 10"),
    "feature 0": (b"1 0:1 3:1\n", r"not in LIBSVM's format.*Invalid index 0"),
    "features out of order": (b"1 3:1 2:1\n", r"not in LIBSVM's format"),
    "a word": (b"1 3:one\n", r"not in LIBSVM's format"),
    "a value cut off": (b"1 3\n", r"not in LIBSVM's format"),
    "nan": (b"1 3:nan\n", r"row 5: a value that is not a finite number"),
    "infinite": (b"1 2:1 3:inf\n", r"row 5: a value that is not a finite number"),
    "label nan": (b"nan 3:1\n", r"row 5: a value that is not a finite number"),
    "label 2": (b"2 3:1\n", r"row 5: a label that is not one of -1, \+1"),
    "label 0": (b"0 3:1\n", r"row 5: a label that is not one of -1, \+1"),
    "a remark": (b"# nothing\n", r"1 lines contain no row"),
}


@pytest.mark.parametrize("part", ["train", "test"])
@pytest.mark.parametrize("what", DAMAGED_LINES)
def test_a_damaged_line_is_told(what: str, part: str, tmp_path: Path, rcv1: dict[str, np.ndarray]) -> None:
    """Line 5 of a file is replaced; the message names the file and what is wrong."""
    line, message = DAMAGED_LINES[what]
    path = tmp_path / f"rcv1_{part}.binary"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:4], line, *lines[5:]]))
    with pytest.raises(ValueError, match=rf"rcv1_{part}\.binary.*{message}"):
        load_rcv1(tmp_path, test_rows=None)


def test_the_row_that_is_told_is_the_row_of_the_file(tmp_path: Path, rcv1: dict[str, np.ndarray]) -> None:
    """In a sample too, here of all rows but one that is not the last: the number counts the file's rows."""
    path = tmp_path / "rcv1_test.binary"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:-1], b"5 1:1\n"]))
    with pytest.raises(ValueError, match="row 40: a label"):
        load_rcv1(tmp_path, test_rows=39)


@pytest.mark.parametrize("test_rows", [None, 5])
@pytest.mark.parametrize(("change", "count"), [(lambda lines: lines[:-1], 39), (lambda lines: [*lines, lines[0]], 41)])
def test_a_wrong_number_of_rows_is_told(
    change: Callable[[list[bytes]], list[bytes]],
    count: int,
    test_rows: int | None,
    tmp_path: Path,
    rcv1: dict[str, np.ndarray],
) -> None:
    """One row less or more: told also where only a sample is kept."""
    path = tmp_path / "rcv1_test.binary"
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))
    with pytest.raises(ValueError, match=rf"rcv1_test\.binary has {count} rows, not 40"):
        load_rcv1(tmp_path, test_rows=test_rows)


def test_blank_lines_are_no_rows(tmp_path: Path, rcv1: dict[str, np.ndarray]) -> None:
    """An empty line at the end does no harm."""
    path = tmp_path / "rcv1_test.binary"
    path.write_bytes(path.read_bytes() + b"\n \n")
    assert load_rcv1(tmp_path, test_rows=None).X_test.shape == (RCV1.test, RCV1.features)


@pytest.mark.parametrize("ending", [".bz2", ".gz", ".xz"])
@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda packed: packed[: len(packed) // 2], id="truncated"),
        pytest.param(lambda packed: packed[:40] + bytes(30) + packed[70:], id="overwritten"),
        pytest.param(lambda packed: b"1 1:1\n" * 12, id="not packed"),
        pytest.param(lambda packed: b"", id="empty"),
    ],
)
def test_a_damaged_packed_file_is_told(
    damage: Callable[[bytes], bytes], ending: str, tmp_path: Path, rcv1: dict[str, np.ndarray]
) -> None:
    """Whatever the packer says of it, the error is a ValueError with the file's name."""
    path = pack(tmp_path / "rcv1_train.binary", ending)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=rf"rcv1_train\.binary\{ending}"):
        load_rcv1(tmp_path, test_rows=None)


def test_an_error_of_the_system_is_not_called_damage(tmp_path: Path) -> None:
    """A file that may not be read, or is gone, is no damaged one."""
    with pytest.raises(FileNotFoundError), standard._open(tmp_path / "gone.bz2"):
        pass


def test_e2006_is_read_with_targets_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any finite target; a test file that does not use the last features has all columns."""
    monkeypatch.setattr(standard, "_E2006", E2006)
    train, test = sparse_rows(E2006.train, 30, seed=0), sparse_rows(E2006.test, 30, seed=1)
    test[:, 25:] = 0
    y_train, y_test = np.linspace(-7, -0.5, E2006.train), np.linspace(-6.3, -0.7, E2006.test)
    (tmp_path / "E2006.train.bz2").write_bytes(bz2.compress(svm(train, y_train)))
    (tmp_path / "E2006.test").write_bytes(svm(test, y_test))
    found = load_e2006(tmp_path)
    np.testing.assert_array_equal(found.X_train.toarray(), train)
    np.testing.assert_array_equal(found.X_test.toarray(), test)
    np.testing.assert_allclose(found.y_train, y_train, rtol=1e-12)
    np.testing.assert_allclose(found.y_test, y_test, rtol=1e-12)
    (tmp_path / "E2006.test").write_bytes(b"nan 1:1\n" * E2006.test)
    with pytest.raises(ValueError, match=r"E2006\.test, row 1: a value that is not a finite number"):
        load_e2006(tmp_path)


def test_the_published_sizes_are_those_of_libsvms_page() -> None:
    """So that a file that is not the published one is not taken for it."""
    assert standard._Size(20_242, 677_399, 47_236) == standard._RCV1
    assert standard._Size(16_087, 3_308, 150_360) == standard._E2006
    assert standard._Size(60_000, 10_000, 784) == standard._MNIST


# --- idx -------------------------------------------------------------------------------------------------------------

MNIST = standard._Size(train=6, test=4, features=9)


def idx(values: np.ndarray, magic: int | None = None) -> bytes:
    header = [0x0800 + values.ndim if magic is None else magic, *values.shape]
    return struct.pack(f">{len(header)}I", *header) + values.astype(np.uint8).tobytes()


@pytest.fixture
def mnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    """A small MNIST in `tmp_path`, and what is in it by file."""
    monkeypatch.setattr(standard, "_MNIST", MNIST)
    rng, data = np.random.default_rng(0), {}
    for part, n in (("train", MNIST.train), ("t10k", MNIST.test)):
        data[f"{part}-images-idx3-ubyte"] = rng.integers(0, 256, (n, 3, 3))
        data[f"{part}-labels-idx1-ubyte"] = rng.integers(0, 10, n)
    for name, values in data.items():
        (tmp_path / name).write_bytes(idx(values))
    return data


@pytest.mark.parametrize("inner", ["", "mnist"])
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_mnist_is_read_from_the_folder_and_one_inside(
    inner: str, ending: str, tmp_path: Path, mnist: dict[str, np.ndarray]
) -> None:
    """Pixels / 255 and digits, plain and packed."""
    (tmp_path / "mnist").mkdir()
    for name in FILES["load_mnist"]:
        packed = pack(tmp_path / name, ending)
        packed.rename(tmp_path / inner / packed.name)
    found = load_mnist(tmp_path)
    np.testing.assert_array_equal(found.X_train, mnist["train-images-idx3-ubyte"].reshape(6, 9) / 255)
    np.testing.assert_array_equal(found.X_test, mnist["t10k-images-idx3-ubyte"].reshape(4, 9) / 255)
    np.testing.assert_array_equal(found.y_train, mnist["train-labels-idx1-ubyte"])
    np.testing.assert_array_equal(found.y_test, mnist["t10k-labels-idx1-ubyte"])
    assert found.y_train.dtype == found.X_train.dtype == np.float64


def test_mnist_is_centred_labelled_and_cut_as_asked(tmp_path: Path, mnist: dict[str, np.ndarray]) -> None:
    plain, asked = load_mnist(tmp_path), load_mnist(tmp_path, centred=True, even=True, test_rows=3)
    np.testing.assert_allclose(asked.X_train, 2 * plain.X_train - 1, atol=1e-15)
    np.testing.assert_allclose(asked.X_test, 2 * plain.X_test[:3] - 1, atol=1e-15)
    np.testing.assert_array_equal(asked.y_train > 0, plain.y_train % 2 == 0)
    np.testing.assert_array_equal(asked.y_test, np.where(plain.y_test[:3] % 2 == 0, 1.0, -1.0))
    for test_rows in (0, 5):
        with pytest.raises(ValueError, match=r"test_rows must lie in 1\.\.4 or be None"):
            load_mnist(tmp_path, test_rows=test_rows)


DAMAGED_IDX = {
    "magic": (lambda values: idx(values, 0x0801), r"begins with 2049, not with 2051"),
    "type": (lambda values: idx(values, 0x0D03), r"begins with 3331, not with 2051"),
    "rows": (lambda values: idx(values[:-1]), r"holds 5 × 3 × 3 bytes, not 6 × 3 × 3"),
    "pixels": (lambda values: idx(values[:, :, :2]), r"holds 6 × 3 × 2 bytes, not 6 × 3 × 3"),
    "truncated": (lambda values: idx(values)[:-1], r"is truncated: 53 of 54 bytes"),
    "header truncated": (lambda values: idx(values)[:10], r"is truncated: 10 bytes, and its header has 16"),
    "empty": (lambda values: b"", r"is truncated: 0 bytes"),
    "more": (lambda values: idx(values) + b"\0", r"has more bytes than its header states"),
}


@pytest.mark.parametrize("what", DAMAGED_IDX)
def test_damaged_images_are_told(what: str, tmp_path: Path, mnist: dict[str, np.ndarray]) -> None:
    """The header's every number is checked, and the length after it."""
    damage, message = DAMAGED_IDX[what]
    name = "train-images-idx3-ubyte"
    (tmp_path / name).write_bytes(damage(mnist[name]))
    with pytest.raises(ValueError, match=f"{name} {message}"):
        load_mnist(tmp_path)


def test_damaged_labels_are_told(tmp_path: Path, mnist: dict[str, np.ndarray]) -> None:
    """A label above 9, and images in the place of labels."""
    path = tmp_path / "t10k-labels-idx1-ubyte"
    path.write_bytes(idx(np.array([1, 2, 10, 3])))
    with pytest.raises(ValueError, match=r"t10k-labels-idx1-ubyte: label 10 is not a digit"):
        load_mnist(tmp_path)
    path.write_bytes(idx(mnist["t10k-images-idx3-ubyte"]))
    with pytest.raises(ValueError, match=r"begins with 2051, not with 2049"):
        load_mnist(tmp_path)


def test_a_packed_idx_file_that_ends_early_is_told(tmp_path: Path, mnist: dict[str, np.ndarray]) -> None:
    """The packer's own end is missing, although all pixels can be there."""
    path = pack(tmp_path / "train-images-idx3-ubyte", ".gz")
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(ValueError, match=r"train-images-idx3-ubyte\.gz is damaged"):
        load_mnist(tmp_path)


# --- npz -------------------------------------------------------------------------------------------------------------


def medmnist(rows: tuple[int, int, int] = (5, 3, 4), *, colours: bool = False) -> dict[str, np.ndarray]:
    shape = (2, 2, 3) if colours else (2, 2)
    rng, arrays = np.random.default_rng(0), {}
    for part, n in zip(("train", "val", "test"), rows, strict=True):
        arrays[f"{part}_images"] = rng.integers(0, 256, (n, *shape), dtype=np.uint8)
        arrays[f"{part}_labels"] = rng.integers(0, 3, (n, 1), dtype=np.uint8)
    return arrays


@pytest.mark.parametrize("colours", [False, True])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_medmnist_is_read(colours: bool, save: Callable[..., None], tmp_path: Path) -> None:
    """Grey images and coloured ones, one row per image."""
    arrays = medmnist(colours=colours)
    save(tmp_path / "bloodmnist.npz", **arrays)
    found = load_medmnist(tmp_path, name="bloodmnist")
    np.testing.assert_array_equal(found.X_train, arrays["train_images"].reshape(5, -1) / 255)
    np.testing.assert_array_equal(found.X_test, arrays["test_images"].reshape(4, -1) / 255)
    np.testing.assert_array_equal(found.y_train, arrays["train_labels"].ravel())
    assert found.X_test.shape[1] == (12 if colours else 4)
    both = load_medmnist(tmp_path, name="bloodmnist", validation=True, centred=True)
    expected = np.concatenate([arrays["train_images"], arrays["val_images"]]).reshape(8, -1)
    np.testing.assert_allclose(both.X_train, expected / 127.5 - 1, atol=1e-15)
    np.testing.assert_array_equal(both.y_train[5:], arrays["val_labels"].ravel())
    assert both.X_test.min() < -0.2


def test_of_several_labels_one_is_chosen(tmp_path: Path) -> None:
    """Without a choice, and with one that is not there, the error says how many there are."""
    arrays = medmnist()
    for part in ("train", "val", "test"):
        arrays[f"{part}_labels"] = np.eye(14, dtype=int)[6 : 6 + len(arrays[f"{part}_images"])]
    np.savez(tmp_path / "chestmnist.npz", **arrays)
    found = load_medmnist(tmp_path, name="chestmnist", label=6)
    np.testing.assert_array_equal(found.y_test, arrays["test_labels"][:, 6])
    with pytest.raises(ValueError, match=r"14 labels per image; choose one"):
        load_medmnist(tmp_path, name="chestmnist")
    for label in (14, -1):
        with pytest.raises(ValueError, match=rf"there is no label={label}"):
            load_medmnist(tmp_path, name="chestmnist", label=label)


DAMAGED_NPZ: dict[str, tuple[dict[str, Any], str]] = {
    "pickled images": ({"val_images": np.array([None, "x", 3], dtype=object)}, r"objects instead of numbers"),
    "pickled labels": ({"test_labels": np.array([{}] * 4, dtype=object)}, r"objects instead of numbers"),
    "volumes": ({"train_images": np.zeros((5, 2, 2, 2), np.uint8)}, r"train_images is uint8 of shape \(5, 2, 2, 2\)"),
    "floats": ({"test_images": np.zeros((4, 2, 2))}, r"test_images is float64"),
    "no images": ({"val_images": np.zeros((0, 2, 2), np.uint8)}, r"val_images is uint8 of shape \(0, 2, 2\)"),
    "another shape": ({"val_images": np.zeros((3, 2, 1), np.uint8)}, r"images of val differ in shape"),
    "labels missing": ({"test_labels": np.zeros((3, 1), np.uint8)}, r"test_labels is uint8 of shape \(3, 1\)"),
    "label nan": ({"test_labels": np.full((4, 1), np.nan)}, r"test_labels is float64"),
}


@pytest.mark.parametrize("what", DAMAGED_NPZ)
def test_wrong_arrays_are_told(what: str, tmp_path: Path) -> None:
    """Types, shapes and numbers of labels; what is pickled is not opened."""
    change, message = DAMAGED_NPZ[what]
    np.savez(tmp_path / "pneumoniamnist.npz", **{**medmnist(), **change}, allow_pickle=True)
    with pytest.raises(ValueError, match=rf"pneumoniamnist\.npz.*{message}"):
        load_medmnist(tmp_path)


def test_nothing_pickled_is_run(tmp_path: Path) -> None:
    """An array whose pickle would make a folder is refused without making it."""

    class Mischief:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(tmp_path / "made"),)

    mischief = np.array([Mischief()] * 5, dtype=object)
    np.savez(tmp_path / "pneumoniamnist.npz", **{**medmnist(), "train_images": mischief}, allow_pickle=True)
    with pytest.raises(ValueError, match="objects instead of numbers"):
        load_medmnist(tmp_path)
    assert not (tmp_path / "made").exists()
    mischief.dump(tmp_path / "pneumoniamnist.npz")  # a pickle under the name of an archive
    with pytest.raises(ValueError, match=r"not an .npz file"):
        load_medmnist(tmp_path)
    assert not (tmp_path / "made").exists()


def test_a_damaged_archive_is_told(tmp_path: Path) -> None:
    """Cut short, with bytes overwritten, or without one of its arrays."""
    arrays = medmnist((500, 30, 40))
    path = tmp_path / "pneumoniamnist.npz"
    np.savez_compressed(path, **arrays)
    right = path.read_bytes()
    path.write_bytes(right[: len(right) // 2])
    with pytest.raises(ValueError, match=r"pneumoniamnist\.npz is truncated, or not an .npz file"):
        load_medmnist(tmp_path)
    path.write_bytes(right[:300] + bytes(200) + right[500:])
    with pytest.raises(ValueError, match=r"pneumoniamnist\.npz is damaged"):
        load_medmnist(tmp_path)
    del arrays["val_labels"]
    np.savez(path, **arrays)
    with pytest.raises(ValueError, match=r"pneumoniamnist\.npz has no val_labels"):
        load_medmnist(tmp_path)


# --- which files, and where they are ---------------------------------------------------------------------------------

# `load_packaged` reads a pip package, and no files.
LOADERS = sorted(name for name in datasets.__all__ if name.startswith("load_") and name != "load_packaged")


def test_every_loader_states_its_files() -> None:
    """None is forgotten, none is invented."""
    assert sorted(FILES) == LOADERS


@pytest.mark.filterwarnings("ignore:loadtxt")
@pytest.mark.parametrize("loader", LOADERS)
def test_the_stated_files_are_those_that_are_read(loader: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With empty files under the stated names no loader misses a file; without any one of them it does."""
    monkeypatch.delenv("TULLE_DATA", raising=False)
    assert not available(loader)
    assert not available(loader, tmp_path)
    for name in FILES[loader]:
        (tmp_path / name).write_bytes(b"")
    assert available(loader, tmp_path)
    monkeypatch.setenv("TULLE_DATA", str(tmp_path))
    assert available(loader)
    with pytest.raises(Exception) as found:  # noqa: PT011 - each format has its own word for an empty file
        getattr(datasets, loader)()
    assert not isinstance(found.value, FileNotFoundError)
    for name in FILES[loader]:
        (tmp_path / name).rename(tmp_path / "aside")
        assert not available(loader)
        (tmp_path / "aside").rename(tmp_path / name)
    (tmp_path / FILES[loader][0]).unlink()
    with pytest.raises(FileNotFoundError, match=FILES[loader][0]):
        getattr(datasets, loader)()


@pytest.mark.parametrize("loader", LOADERS)
def test_where_to_get_is_one_sentence_with_a_source(loader: str) -> None:
    """It can stand in a message: it names what to get and where."""
    text = where_to_get(loader)
    assert text.startswith(("Get ", "Create "))
    assert text.endswith(".")
    assert "\n" not in text
    assert "https://" in text or "R package" in text


@pytest.mark.parametrize("loader", LOADERS)
def test_the_page_names_loader_files_and_source(loader: str) -> None:
    """docs/data.md has what the code looks for and where the code sends people."""
    page = (Path(__file__).parents[2] / "docs/data.md").read_text(encoding="utf-8")
    for name in (loader, *FILES[loader]):
        assert re.search(rf"`{re.escape(name)}\b", page), name
    for address in re.findall(r"https?://[^\s),]+", where_to_get(loader)):
        assert f"({address.rstrip('.')})" in page, address


@pytest.mark.parametrize("size", ["_RCV1", "_E2006", "_MNIST"])
def test_the_page_has_the_sizes_that_are_checked(size: str) -> None:
    """In the form of its table."""
    of = getattr(standard, size)
    page = (Path(__file__).parents[2] / "docs/data.md").read_text(encoding="utf-8")
    assert f"| {of.train:,} + {of.test:,} × {of.features:,} |" in page


@pytest.mark.parametrize("loader", ["load_rcv1", "load_e2006", "load_mnist", "load_medmnist"])
def test_a_missing_file_is_told_with_the_folder_the_names_and_the_source(loader: str, tmp_path: Path) -> None:
    """All that is needed to put it right."""
    with pytest.raises(FileNotFoundError) as error:
        getattr(datasets, loader)(tmp_path)
    for part in (str(tmp_path), *FILES[loader], where_to_get(loader)):
        assert part in str(error.value)


def test_without_a_folder_the_loader_says_how_to_name_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """And where the data is to be had."""
    monkeypatch.delenv("TULLE_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match=r"load_e2006: .*set TULLE_DATA or pass folder=.*regression\.html"):
        load_e2006()


def test_only_what_is_missing_is_named(tmp_path: Path) -> None:
    """One of two files is there; a folder of the other's name is no file."""
    (tmp_path / "rcv1_train.binary.xz").write_bytes(b"")
    (tmp_path / "rcv1_test.binary").mkdir()
    with pytest.raises(FileNotFoundError) as error:
        find("load_rcv1", tmp_path)
    message = str(error.value).partition(" in ")[0]
    assert "rcv1_test.binary" in message
    assert "rcv1_train" not in message


def test_files_with_a_fixed_ending_are_not_looked_for_packed_again(tmp_path: Path) -> None:
    """The readers of those open that one name alone."""
    for name in ("golub.csv.gz.bz2", "golub.csv", "pneumoniamnist.npz.gz"):
        (tmp_path / name).write_bytes(b"")
    assert not available("load_golub", tmp_path)
    assert not available("load_medmnist", tmp_path)


@pytest.mark.parametrize("ask", [available, where_to_get, find])
def test_an_unknown_loader_is_refused(ask: Callable[[str], Any]) -> None:
    """A misspelt name is no missing file."""
    with pytest.raises(ValueError, match=r"'load_rcv2' is not a loader of tulle\.datasets; choose one of load_a9a"):
        ask("load_rcv2")


# --- the real files --------------------------------------------------------------------------------------------------


@real("load_mnist")
def test_the_real_mnist() -> None:
    """As published: shapes, the number of each digit in the test part, pixels over the whole range."""
    data = load_mnist()
    assert data.X_train.shape == (60_000, 784)
    assert data.X_test.shape == (10_000, 784)
    assert np.bincount(data.y_test.astype(int)).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert (data.X_train.min(), data.X_train.max()) == (0.0, 1.0)
    assert data.X_train.mean() == pytest.approx(0.1307, abs=5e-5)  # the mean that everyone normalises by


@real("load_medmnist")
@pytest.mark.parametrize("options", [{}, {"validation": True, "centred": True}])
def test_the_two_readers_of_pneumoniamnist_agree(options: dict[str, bool]) -> None:
    """The general reader gives what the one for this set gives."""
    for general, own in zip(load_medmnist(**options), load_pneumonia(**options), strict=True):
        np.testing.assert_array_equal(general, own)


@real("load_rcv1")
def test_the_real_rcv1() -> None:
    """Rows of norm 1, both labels, the sampled number of test rows."""
    data = load_rcv1()
    assert data.X_test.shape == (20_000, 47_236)
    norms = np.sqrt(data.X_train.multiply(data.X_train).sum(axis=1))
    np.testing.assert_allclose(norms, 1.0, atol=1e-4)


@real("load_e2006")
def test_the_real_e2006() -> None:
    """Logarithms of volatilities."""
    data = load_e2006()
    assert data.X_test.shape == (3_308, 150_360)
    assert -10 < data.y_train.min() < data.y_train.max() < 1
