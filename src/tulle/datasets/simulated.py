"""Data drawn from a seed: the synthetic settings of the papers, and twins of real sets."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.linalg import hadamard

from tulle.trusted.events import FloatArray


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


def lasso_lower_bound(
    coded: int, columns: int, *, orthogonal: int | None = None, consensus: float = 0.999, seed: int = 0
) -> LinearProblem:
    """The instance of the lower bound for the private LASSO (Talwar, Thakurta and Zhang, NIPS 2015, theorem 3.1).

    `coded` rows of a fingerprinting code with label 1, and `orthogonal` rows with label 0 whose columns are orthogonal
    vectors of signs: the sum of squared errors is sum_j (<x_j, w> - 1)² + orthogonal × |w|². A model of small error in
    the unit ℓ1-ball has weights of the columns' common signs, spread over many columns; to find these is to find who
    is in the code. `weights` has the consensus's signs over the number of columns.

    The paper takes its code from another one, with 1000 m² columns for m / log(m) rows. Here a share `consensus` of the
    columns has one random sign in all coded rows, and each other one has entries +1 with a probability drawn from the
    arcsine law, as in Tardos' code, whose columns are not padded further.

    Parameters
    ----------
    coded : int
        Rows of the code, at least 1.
    columns : int
        At least 1.
    orthogonal : int or None, default=None
        A power of two, at least `columns`. None: the smallest, at least coded × columns / 1000, as in the paper.
    consensus : float, default=0.999
        In [0, 1].
    seed : int, default=0
    """
    if orthogonal is None:
        orthogonal = 2 ** math.ceil(math.log2(max(columns, coded * columns / 1000)))
    if not (coded >= 1 and columns >= 1 and 0 <= consensus <= 1):
        raise ValueError("lasso_lower_bound needs coded >= 1, columns >= 1 and consensus in [0, 1]")
    if orthogonal < columns or orthogonal & (orthogonal - 1):
        raise ValueError(f"orthogonal={orthogonal} must be a power of two, at least columns={columns}")
    rng = np.random.default_rng(seed)
    signs = rng.choice([-1.0, 1.0], columns)
    code = np.tile(signs, (coded, 1))
    free = rng.permutation(columns)[math.ceil(consensus * columns) :]
    chances = np.sin(rng.uniform(0, np.pi / 2, len(free))) ** 2
    code[:, free] = np.where(rng.random((coded, len(free))) < chances, 1.0, -1.0)
    zeros = hadamard(orthogonal)[:, rng.permutation(orthogonal)[:columns]].astype(float)
    y = np.r_[np.ones(coded), np.zeros(orthogonal)]
    return LinearProblem(np.vstack([code, zeros]), y, signs / columns)


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
