"""Files of a few rows in the layouts of real data sets, whose rows can be told apart."""

from __future__ import annotations

import bz2
import io
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file

N_PIXELS, N_INDICATORS = 6, 123


def write_images(folder: Path, n_train: int = 40, n_validation: int = 5, n_test: int = 15, *, moved: int = 0) -> None:
    """pneumoniamnist.npz: pixel 0 numbers the rows, from 0 over all parts; `moved` is added to another pixel of one."""
    n = n_train + n_validation + n_test
    images = np.random.default_rng(0).integers(0, 200, (n, 2, N_PIXELS // 2)).astype(np.uint8)
    images[:, 0, 0] = np.arange(n)
    images[-1, 1, 1] += moved
    parts = dict(zip(("train", "val", "test"), np.split(images, [n_train, n_train + n_validation])))
    numbers = {name: part[:, 0, 0].astype(int) for name, part in parts.items()}
    arrays = {f"{name}_images": part for name, part in parts.items()}
    arrays |= {f"{name}_labels": image_label(number)[:, None] for name, number in numbers.items()}
    np.savez(folder / "pneumoniamnist.npz", **arrays)


def image_label(number: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The label of the row of a number: 0 or 1, not by the order of rows."""
    return (number * 7 % 10 < 5).astype(np.uint8)


def image_numbers(X: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The numbers of rows whose first column was not left out."""
    return np.rint(X[:, 0] * 255).astype(int)


def write_census(folder: Path, n_train: int = 60, n_test: int = 20) -> None:
    """a9a's two files: row i has feature i, and two more that its label of ±1 hangs on."""
    n = n_train + n_test
    X = np.zeros((n, N_INDICATORS))
    X[np.arange(n), np.arange(n)] = 1.0
    y = np.where(np.arange(n) % 3 == 0, -1, 1)
    X[np.arange(n), np.where(y > 0, 110, 111)] = 1.0
    for name, rows in (("train", slice(n_train)), ("test", slice(n_train, n))):
        text = io.BytesIO()
        dump_svmlight_file(sp.csr_array(X[rows]), y[rows], text, zero_based=False)
        (folder / f"a9a_{name}.svm.bz2").write_bytes(bz2.compress(text.getvalue()))


def census_numbers(X: Any) -> npt.NDArray[Any]:
    """The numbers of rows with all their columns."""
    return np.asarray(X[:, :110].argmax(axis=1)).ravel()
