"""Data: synthetic twins of the papers' sets, and readers for real files in a folder that the user names.

Real data is looked for in the folder named by the environment variable ``TULLE_DATA``, or in the one passed in.
"""

from __future__ import annotations

import bz2
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
    from sklearn.datasets import load_svmlight_file

    path = data_folder(folder) / "rcv1_subset.svm.bz2"
    with bz2.open(path) as file:
        X, y = load_svmlight_file(file, n_features=47_236)
    order = np.random.default_rng(0).permutation(23_808)
    train, test = order[:20_242], order[20_242:]
    return Split(X[train], y[train], X[test], y[test])
