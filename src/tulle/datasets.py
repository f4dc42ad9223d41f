"""Data: synthetic twins of the papers' sets, and readers for real files in a folder that the user names.

Real data is looked for in the folder named by the environment variable ``TULLE_DATA``, or in the one passed in.
"""

from __future__ import annotations

import bz2
import gzip
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from tulle.events import FloatArray


class LinearProblem(NamedTuple):
    """Rows and targets drawn from a known sparse model."""

    X: FloatArray
    y: FloatArray
    weights: FloatArray


def dp_ight_figure1(n: int, d: int, s: int, *, logistic: bool = False, seed: int = 0) -> LinearProblem:
    """The synthetic data of figure 1 of the DP-IGHT paper (Wang and Gu, IJCAI 2019).

    Features uniform on (-2, 2), each row scaled down to ‖x‖₂ <= 2 s; `s` weights uniform on (-1, 1); noise variance 0.1
    (linear) or labels 0 and 1 drawn by the logistic model.
    """
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, d))
    X *= np.minimum(1.0, 2 * s / np.linalg.norm(X, axis=1))[:, None]
    return _with_targets(X, s, logistic, rng)


def dpsl_kt_figure2(n: int, d: int, s: int, *, logistic: bool = False, seed: int = 0) -> LinearProblem:
    """The synthetic data of figure 2 of the DPSL-KT paper (Wang and Gu, AAAI 2020).

    Features uniform on (-1, 1); weights and targets as in `dp_ight_figure1`.
    """
    rng = np.random.default_rng(seed)
    return _with_targets(rng.uniform(-1, 1, (n, d)), s, logistic, rng)


class SparseProblem(NamedTuple):
    """Sparse rows and targets drawn from a known sparse model."""

    X: Any
    y: FloatArray
    weights: FloatArray


def lasso_domain(
    n: int, d: int, s: int = 5, *, density: float = 0.1, noise: float = 0.05, seed: int = 0
) -> SparseProblem:
    """Data from the domain of the private LASSO: entries and targets in [-1, 1], weights in the unit ℓ1-ball.

    Each entry is ±1 with probability `density`, else 0; `s` weights of ±1/s; targets with Gaussian noise, cut at ±1.
    """
    rng = np.random.default_rng(seed)
    counts = rng.binomial(d, density, n)
    # Columns may repeat within a row; they are then counted once.
    columns = rng.integers(0, d, int(counts.sum()))
    signs = rng.choice([-1.0, 1.0], len(columns))
    X = sp.csr_array((signs, columns, np.r_[0, np.cumsum(counts)]), shape=(n, d))
    X.sum_duplicates()
    np.clip(X.data, -1.0, 1.0, out=X.data)
    weights = np.zeros(d)
    weights[rng.choice(d, s, replace=False)] = rng.choice([-1.0, 1.0], s) / s
    y = np.clip(X @ weights + rng.normal(0, noise, n), -1.0, 1.0)
    return SparseProblem(X, y, weights)


def _with_targets(X: FloatArray, s: int, logistic: bool, rng: np.random.Generator) -> LinearProblem:
    n, d = X.shape
    weights = np.zeros(d)
    weights[rng.choice(d, s, replace=False)] = rng.uniform(-1, 1, s)
    margins = X @ weights
    y = rng.random(n) < 1 / (1 + np.exp(-margins)) if logistic else margins + rng.normal(0, np.sqrt(0.1), n)
    return LinearProblem(X, y.astype(float), weights)


class TextProblem(NamedTuple):
    """Sparse rows of norm 1 with labels -1 and +1."""

    X: Any
    y: FloatArray


def rcv1_like(
    n: int = 20_242, d: int = 47_236, per_row: int = 74, *, noise: float = 0.05, seed: int = 0
) -> TextProblem:
    """A sparse text-like classification problem of RCV1's shape.

    Words follow a power law and each topic prefers some of them; rows have norm 1; a share `noise` of the labels is
    flipped.
    """
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(n) < 0.5, -1.0, 1.0)
    frequency = 1.0 / (np.arange(d) + 20.0)
    preference = rng.normal(0, 1, d)  # how much more often a word occurs in documents of class +1
    columns = np.empty((n, per_row), dtype=np.int64)
    for sign in (-1.0, 1.0):
        weights = np.cumsum(frequency * np.exp(0.3 * sign * preference))
        rows = y == sign
        draws = rng.random((int(rows.sum()), per_row)) * weights[-1]
        columns[rows] = np.minimum(np.searchsorted(weights, draws), d - 1)
    X = sp.csr_array((np.ones(n * per_row), columns.ravel(), np.arange(0, n * per_row + 1, per_row)), shape=(n, d))
    X.sum_duplicates()
    # Rare words weigh more, as in TF-IDF, but by a rule that looks at no data.
    X.data = (1 + np.log(X.data)) * np.log(1.0 / frequency[X.indices])
    norms = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
    X = sp.csr_array(sp.diags_array(1 / norms) @ X)
    flipped = rng.random(n) < noise
    return TextProblem(X, np.where(flipped, -y, y))


def data_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """The folder with real data: the one passed in, or the one that TULLE_DATA names."""
    name = folder or os.environ.get("TULLE_DATA")
    if not name:
        raise FileNotFoundError("name the folder with the data sets: set TULLE_DATA or pass folder=...")
    return Path(name)


class Split(NamedTuple):
    """Training and test rows."""

    X_train: Any
    y_train: FloatArray
    X_test: Any
    y_test: FloatArray


def load_rcv1_subset(folder: str | os.PathLike[str] | None = None) -> Split:
    """The RCV1 subset (23,808 × 47,236, labels ±1) in its fixed split of 20,242 training and 3,566 test rows.

    Read from ``rcv1_subset.svm.bz2`` in LIBSVM format. Other documents than LIBSVM's rcv1_train.binary.
    """
    X, y = _read_svmlight(folder, "rcv1_subset.svm.bz2", 47_236)
    order = np.random.default_rng(0).permutation(23_808)
    train, test = order[:20_242], order[20_242:]
    return Split(X[train], y[train], X[test], y[test])


def load_imdb_ratings(folder: str | os.PathLike[str] | None = None) -> Split:
    """Film reviews (25,000 + 25,000 × 74,849) and their ratings, (stars - 5.5) / 4.5 in [-1, 1].

    Word counts c become 1 + log c, and rows are normalised: both row by row, looking at no other row. Read from
    ``imdb_train.svm.bz2`` and ``imdb_test.svm.bz2`` (Maas et al. 2011).
    """
    parts: list[Any] = []
    for name in ("imdb_train.svm.bz2", "imdb_test.svm.bz2"):
        X, y = _read_svmlight(folder, name, 74_849)
        X.data = 1.0 + np.log(X.data)
        norms = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
        parts += [sp.csr_array(sp.diags_array(1 / np.maximum(norms, 1e-300)) @ X), (y - 5.5) / 4.5]
    return Split(*parts)


def load_a9a(folder: str | os.PathLike[str] | None = None) -> Split:
    """Adult census (32,561 + 16,281 × 123 indicators, labels ±1); ``a9a_train.svm.bz2`` and ``a9a_test.svm.bz2``."""
    train, test = (_read_svmlight(folder, f"a9a_{part}.svm.bz2", 123) for part in ("train", "test"))
    return Split(*train, *test)


def load_pneumonia(folder: str | os.PathLike[str] | None = None, *, validation: bool = False) -> Split:
    """Chest X-rays of 28 × 28 pixels in [0, 1], labels 0 and 1: training and test part of ``pneumoniamnist.npz``.

    With `validation` the training part holds the validation part too: 5,232 images instead of 4,708.
    """
    parts = {"train": ["train", "val"] if validation else ["train"], "test": ["test"]}
    with np.load(data_folder(folder) / "pneumoniamnist.npz") as file:
        images, labels = (
            [np.concatenate([file[f"{name}_{what}"] for name in names]) for names in parts.values()]
            for what in ("images", "labels")
        )
    rows = [part.reshape(len(part), -1) / 255.0 for part in images]
    return Split(rows[0], labels[0].ravel().astype(float), rows[1], labels[1].ravel().astype(float))


# Round numbers above the largest value of each of Covertype's ten measurements, in UCI's order of columns.
_COVERTYPE_RANGES = np.array([4000, 360, 90, 1500, 800, 7500, 255, 255, 255, 7500])


def load_covertype(folder: str | os.PathLike[str] | None = None) -> Split:
    """Covertype (464,809 + 116,203 × 54): class 2 (1) against the rest (0), in a fixed random split.

    The ten measurements are divided by public round numbers, so that all entries lie in about [-1, 1]. Read from
    ``covtype.data.gz`` in UCI's layout.
    """
    with gzip.open(data_folder(folder) / "covtype.data.gz") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.float32)
    X, y = table[:, :54].astype(np.float64), (table[:, 54] == 2).astype(float)
    X[:, :10] /= _COVERTYPE_RANGES
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[: int(0.8 * len(y))], order[int(0.8 * len(y)) :]
    return Split(X[train], y[train], X[test], y[test])


def load_golub(folder: str | os.PathLike[str] | None = None) -> Split:
    """Leukaemia gene expression (48 + 24 × 7,129), ALL (0) against AML (1), in a fixed random split.

    Values become sign(v) log(1 + |v|), entry by entry. Read from ``golub.csv.gz``.
    """
    with gzip.open(data_folder(folder) / "golub.csv.gz", "rt") as file:
        next(file)
        lines = [line.rstrip().split(",") for line in file]
    values = np.array([line[1:] for line in lines], dtype=float)
    X, y = np.sign(values) * np.log1p(np.abs(values)), np.array([line[0] == "AML" for line in lines], dtype=float)
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[:48], order[48:]
    return Split(X[train], y[train], X[test], y[test])


def _read_svmlight(folder: str | os.PathLike[str] | None, name: str, n_features: int) -> tuple[Any, FloatArray]:
    from sklearn.datasets import load_svmlight_file

    with bz2.open(data_folder(folder) / name) as file:
        X, y = load_svmlight_file(file, n_features=n_features)
    return X, y  # its indices have 32 bits, and keep them when rows are chosen: liblinear takes no others
