"""Data drawn from a seed: the synthetic settings of the papers, and twins of real sets."""

from __future__ import annotations

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
