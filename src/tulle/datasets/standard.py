"""The papers' own data in the formats it is published in, from a folder that the user names.

Nothing is fetched. The error names a file that is missing, damaged, or not the one that its name says;
`tulle.datasets.locations` knows the names and where to get the files.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import zipfile
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from tulle.datasets.locations import find
from tulle.datasets.readers import Split
from tulle.trusted.events import FloatArray


@dataclass(frozen=True)
class _Size:
    """What the files hold if they are the published ones."""

    train: int
    test: int
    features: int


# As LIBSVM's data pages and MNIST's headers state them.
_RCV1 = _Size(20_242, 677_399, 47_236)
_E2006 = _Size(16_087, 3_308, 150_360)
_MNIST = _Size(60_000, 10_000, 28 * 28)

# Text is parsed in blocks of about so many bytes, so that little memory is needed in addition to the result.
_BLOCK = 1 << 23


def load_rcv1(folder: str | os.PathLike[str] | None = None, *, test_rows: int | None = 20_000) -> Split:
    """RCV1 as on LIBSVM's page (20,242 training rows × 47,236, labels ±1), with a fixed sample of its test rows.

    Read from ``rcv1_train.binary`` and ``rcv1_test.binary``, plain or packed (.bz2, .gz, .xz). The test file is read
    line by line and only the sampled lines are kept; all its lines are counted.

    Parameters
    ----------
    folder : path, optional
        The folder with the files; else the one that the environment variable ``TULLE_DATA`` names.
    test_rows : int or None, default=20_000
        How many of the 677,399 test rows, in the file's order: a sample from a fixed seed. None: all of them.

    Returns
    -------
    Split
        Rows in CSR format.

    Raises
    ------
    FileNotFoundError
        Where a file is missing; the message says where to get it.
    ValueError
        Where a file is damaged or another one.
    """
    chosen = None
    if test_rows is not None:
        if not 1 <= test_rows <= _RCV1.test:
            raise ValueError(f"test_rows must lie in 1..{_RCV1.test} or be None, not {test_rows}")
        chosen = np.sort(np.random.default_rng(0).choice(_RCV1.test, test_rows, replace=False))
    train, test = find("load_rcv1", folder)
    return Split(
        *_read_libsvm(train, _RCV1.train, _RCV1.features, labels=(-1, 1)),
        *_read_libsvm(test, _RCV1.test, _RCV1.features, labels=(-1, 1), chosen=chosen),
    )


def load_e2006(folder: str | os.PathLike[str] | None = None) -> Split:
    """E2006-tfidf as on LIBSVM's page (16,087 + 3,308 × 150,360): financial reports, and the log of the volatility.

    Read from ``E2006.train`` and ``E2006.test``, plain or packed (.bz2, .gz, .xz); values as in the files.

    Parameters
    ----------
    folder : path, optional
        The folder with the files; else the one that the environment variable ``TULLE_DATA`` names.

    Returns
    -------
    Split
        Rows in CSR format.

    Raises
    ------
    FileNotFoundError
        Where a file is missing; the message says where to get it.
    ValueError
        Where a file is damaged or another one.
    """
    train, test = find("load_e2006", folder)
    return Split(*_read_libsvm(train, _E2006.train, _E2006.features), *_read_libsvm(test, _E2006.test, _E2006.features))


def load_mnist(
    folder: str | os.PathLike[str] | None = None,
    *,
    centred: bool = False,
    even: bool = False,
    test_rows: int | None = None,
) -> Split:
    """MNIST (60,000 + 10,000 × 784): pixels in [0, 1] and the digits.

    Read from ``train-images-idx3-ubyte``, ``train-labels-idx1-ubyte``, ``t10k-images-idx3-ubyte`` and
    ``t10k-labels-idx1-ubyte``, plain or packed (.gz, .bz2, .xz), in the folder or in ``mnist`` inside it.

    Parameters
    ----------
    folder : path, optional
        The folder with the files; else the one that the environment variable ``TULLE_DATA`` names.
    centred : bool, default=False
        Whether pixels lie in [-1, 1]: their range is public, and its middle a better origin.
    even : bool, default=False
        Whether the labels are 1 for even digits and -1 for odd ones.
    test_rows : int or None, default=None
        How many of the test rows, the first ones of the file, in 1..10,000; None: all of them.

    Returns
    -------
    Split

    Raises
    ------
    FileNotFoundError
        Where a file is missing; the message says where to get it.
    ValueError
        Where a file is damaged or another one.
    """
    if test_rows is not None and not 1 <= test_rows <= _MNIST.test:
        raise ValueError(f"test_rows must lie in 1..{_MNIST.test} or be None, not {test_rows}")
    side = int(_MNIST.features**0.5)
    files = find("load_mnist", folder)
    parts: list[Any] = []
    for (images, labels), rows in zip((files[:2], files[2:]), (_MNIST.train, _MNIST.test), strict=True):
        digits = _read_idx(labels, (rows,))
        if digits.max() > 9:
            raise ValueError(f"{labels}: label {digits.max()} is not a digit")
        pixels = _read_idx(images, (rows, side, side)).reshape(rows, -1) / 255.0
        if centred:
            pixels *= 2
            pixels -= 1
        parts += [pixels, np.where(digits % 2 == 0, 1.0, -1.0) if even else digits.astype(float)]
    data = Split(*parts)
    return data._replace(X_test=data.X_test[:test_rows], y_test=data.y_test[:test_rows])


def load_medmnist(
    folder: str | os.PathLike[str] | None = None,
    *,
    name: str = "pneumoniamnist",
    validation: bool = False,
    centred: bool = False,
    label: int | None = None,
) -> Split:
    """A set of flat images of MedMNIST: pixels in [0, 1], one row per image, and the labels as numbers.

    Read from ``{name}.npz``. Colours are next to each other: 28 × 28 × 3 pixels are 2,352 features.

    Parameters
    ----------
    folder : path, optional
        The folder with the file; else the one that the environment variable ``TULLE_DATA`` names.
    name : str, default="pneumoniamnist"
        The set, as its file is named: "pathmnist", "organamnist_64", ...
    validation : bool, default=False
        Whether the training part holds the validation part too.
    centred : bool, default=False
        Whether pixels lie in [-1, 1]: their range is public, and its middle a better origin.
    label : int, optional
        Which label to take where images have several (chestmnist has 14).

    Returns
    -------
    Split

    Raises
    ------
    FileNotFoundError
        Where the file is missing; the message says where to get it.
    ValueError
        Where the file is damaged, or holds no flat images, or several labels per image and `label` names none.
    """
    (path,) = find("load_medmnist", folder, files=(f"{name}.npz",))
    arrays = _read_npz(path, [f"{part}_{what}" for part in ("train", "val", "test") for what in ("images", "labels")])
    pixels, classes = {}, {}
    for part in ("train", "val", "test"):
        images, labels = arrays[f"{part}_images"], arrays[f"{part}_labels"]
        flat = images.ndim == 3 or (images.ndim == 4 and images.shape[3] == 3)
        if images.dtype != np.uint8 or not flat or not len(images):
            raise ValueError(
                f"{path}: {part}_images is {images.dtype} of shape {images.shape}, "
                "not uint8 of shape (n, height, width) or (n, height, width, 3)"
            )
        if images.shape[1:] != arrays["train_images"].shape[1:]:
            raise ValueError(f"{path}: images of {part} differ in shape from those of train")
        classes[part] = _one_label(path, f"{part}_labels", labels, len(images), label)
        pixels[part] = images.reshape(len(images), -1)
    parts: list[Any] = []
    for names in (("train", "val") if validation else ("train",), ("test",)):
        rows = np.concatenate([pixels[one] for one in names]) / 255.0
        parts += [2 * rows - 1 if centred else rows, np.concatenate([classes[one] for one in names])]
    return Split(*parts)


def _one_label(path: Path, name: str, labels: npt.NDArray[Any], rows: int, label: int | None) -> FloatArray:
    if labels.dtype.kind not in "ui" or labels.ndim not in (1, 2) or len(labels) != rows:
        raise ValueError(
            f"{path}: {name} is {labels.dtype} of shape {labels.shape}, not whole numbers for {rows} images"
        )
    columns = labels.reshape(rows, -1)
    if label is None and columns.shape[1] != 1:
        raise ValueError(
            f"{path}: {name} holds {columns.shape[1]} labels per image; choose one of them with label=0, 1, ..."
        )
    if label is not None and not 0 <= label < columns.shape[1]:
        raise ValueError(f"{path}: {name} holds {columns.shape[1]} labels per image; there is no label={label}")
    return columns[:, label or 0].astype(float)


# --- formats ---------------------------------------------------------------------------------------------------------


@contextmanager
def _open(path: Path) -> Iterator[IO[bytes]]:
    """The bytes of a file, unpacked as its name says; what a packer finds damaged becomes a ValueError."""
    unpack: Any = {".bz2": bz2.open, ".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    try:
        with unpack(path, "rb") as file:
            yield file
    except (EOFError, zlib.error, lzma.LZMAError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    except OSError as error:
        # bz2 and gzip report bad bytes as an OSError without a number; the system's own errors have one.
        if error.errno is not None:
            raise
        raise ValueError(f"{path} is damaged: {error}") from error


def _read_libsvm(
    path: Path,
    n_rows: int,
    n_features: int,
    *,
    labels: Collection[float] | None = None,
    chosen: npt.NDArray[np.integer[Any]] | None = None,
) -> tuple[Any, FloatArray]:
    """Rows and targets of a file in LIBSVM's format: all, or those whose numbers (from 0, sorted) are `chosen`."""
    rows: list[Any] = []
    targets: list[FloatArray] = []
    for numbers, lines in _blocks(path, n_rows, chosen):
        X, y = _parsed(path, numbers, lines, n_features)
        bad = ~np.isfinite(y)
        bad[np.searchsorted(X.indptr, np.flatnonzero(~np.isfinite(X.data)), side="right") - 1] = True
        _refuse(path, numbers, bad, "a value that is not a finite number")
        if labels is not None:
            wanted = ", ".join(f"{label:+g}" for label in labels)
            _refuse(path, numbers, ~np.isin(y, list(labels)), f"a label that is not one of {wanted}")
        rows.append(X)
        targets.append(y)
    return sp.vstack(rows, format="csr"), np.concatenate(targets)


def _blocks(
    path: Path, n_rows: int, chosen: npt.NDArray[np.integer[Any]] | None
) -> Iterator[tuple[list[int], list[bytes]]]:
    """The wanted lines in blocks, each with the numbers of its rows from 1; the file's rows are counted to the end."""
    wanted = iter(range(n_rows) if chosen is None else chosen.tolist())
    following = next(wanted, None)
    numbers: list[int] = []
    lines: list[bytes] = []
    size = count = 0
    with _open(path) as file:
        for line in file:
            if line.isspace():
                continue
            count += 1
            if count - 1 != following:
                continue
            following = next(wanted, None)
            numbers.append(count)
            lines.append(line)
            size += len(line)
            if size >= _BLOCK:
                yield numbers, lines
                numbers, lines, size = [], [], 0
    if count != n_rows:
        raise ValueError(f"{path} has {count:,} rows, not {n_rows:,}: it is incomplete, or a different file")
    if lines:
        yield numbers, lines


def _parsed(path: Path, numbers: Sequence[int], lines: Sequence[bytes], n_features: int) -> tuple[Any, FloatArray]:
    from sklearn.datasets import load_svmlight_file

    where = f"{path}, rows {numbers[0]:,} to {numbers[-1]:,}"
    try:
        X, y = load_svmlight_file(io.BytesIO(b"".join(lines)), n_features=n_features, zero_based=False)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{where}: not in LIBSVM's format with {n_features:,} features: {error}") from error
    if len(y) != len(lines):
        raise ValueError(f"{where}: {len(lines) - len(y)} lines contain no row")
    return X, y  # its indices have 32 bits, as those of `tulle.datasets.readers`


def _refuse(path: Path, numbers: Sequence[int], bad: npt.NDArray[np.bool_], what: str) -> None:
    if bad.any():
        raise ValueError(f"{path}, row {numbers[int(np.argmax(bad))]:,}: {what}")


def _read_idx(path: Path, shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    """Bytes in idx format: a number for the type and the number of axes, the length of each axis, then the bytes."""
    magic = 0x0800 + len(shape)
    length = 4 * (1 + len(shape))
    with _open(path) as file:
        header = file.read(length)
        if len(header) < length:
            raise ValueError(f"{path} is truncated: {len(header)} bytes, and its header has {length}")
        found, *axes = (int(word) for word in np.frombuffer(header, dtype=">u4"))
        if found != magic:
            raise ValueError(
                f"{path} begins with {found}, not with {magic}: not an idx file of bytes with {len(shape)} axes"
            )
        if tuple(axes) != shape:
            raise ValueError(f"{path} holds {_by(axes)} bytes, not {_by(shape)}: another file")
        size = int(np.prod(shape))
        values = np.frombuffer(file.read(size), dtype=np.uint8)
        if len(values) < size:
            raise ValueError(f"{path} is truncated: {len(values):,} of {size:,} bytes after the header")
        if file.read(1):
            raise ValueError(f"{path} has more bytes than its header states")
    return values.reshape(shape)


def _by(axes: Sequence[int]) -> str:
    return " × ".join(f"{axis:,}" for axis in axes)


def _read_npz(path: Path, names: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
    """Named arrays of an .npz file; pickled ones are refused, since unpickling runs code."""
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path} is truncated, or not an .npz file")
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in names if name in file}
    except (ValueError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is damaged, or contains objects instead of numbers: {error}") from error
    missing = [name for name in names if name not in arrays]
    if missing:
        raise ValueError(f"{path} has no {', '.join(missing)}")
    return arrays
