"""Public features: rows without private data, on which a private teacher may be queried at no cost.

They are drawn from a distribution that was chosen without looking at private rows, or are real rows whose features are
public already. Nothing in here is private, and nothing in here costs anything.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_array
from sklearn.utils.extmath import randomized_svd, row_norms

from tulle.backends.known_bounds import KnownBounds
from tulle.trusted.events import FloatArray
from tulle.trusted.facts import PublicFacts

# So many columns are compared to tell whether two sets of rows share memory.
_COMPARED = 8

# Up to so many features second moments are formed and taken apart; beyond, directions are found by random projections.
_FEW_FEATURES = 1000


@runtime_checkable
class FeatureDistribution(Protocol):
    """A law of features, known without looking at private rows."""

    def draw(self, n_rows: int, n_features: int, generator: np.random.Generator) -> FloatArray:
        """Rows of shape (n_rows, n_features); n_rows may be 0."""
        ...

    def stretch(self, n_features: int) -> float:
        """The spectral norm of E[x x'], >= 0."""
        ...


@dataclass(frozen=True)
class UniformFeatures:
    """Independent features, uniform on an interval.

    Parameters
    ----------
    low, high : float, default=-1.0 and 1.0
        Finite, low < high.
    """

    low: float = -1.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if not -math.inf < self.low < self.high < math.inf:
            raise ValueError(f"UniformFeatures needs finite low < high, got {self.low!r} and {self.high!r}")

    def draw(self, n_rows: int, n_features: int, generator: np.random.Generator) -> FloatArray:
        return generator.uniform(self.low, self.high, (n_rows, n_features))

    def stretch(self, n_features: int) -> float:
        return (self.high - self.low) ** 2 / 12 + n_features * ((self.high + self.low) / 2) ** 2


@dataclass(frozen=True, eq=False)
class GaussianFeatures:
    """Gaussian features of a known covariance.

    Parameters
    ----------
    covariance : float, array of shape (d,) or array of shape (d, d), default=1.0
        One variance for all features, a variance for each (>= 0), or a symmetric positive semi-definite matrix.
    mean : float or array of shape (d,), default=0.0
    """

    covariance: Any = 1.0
    mean: Any = 0.0

    def __post_init__(self) -> None:
        covariance, mean = self._arrays()
        if not (np.isfinite(covariance).all() and np.isfinite(mean).all()):
            raise ValueError("GaussianFeatures needs a finite covariance and a finite mean")
        if covariance.ndim == 2 and covariance.shape[0] != covariance.shape[1]:
            raise ValueError(f"GaussianFeatures(covariance=...) has shape {covariance.shape}; a matrix must be square")
        if covariance.ndim > 2 or mean.ndim > 1:
            raise ValueError(f"GaussianFeatures: covariance has shape {covariance.shape} and mean {mean.shape}")
        if covariance.ndim < 2 and covariance.min() < 0:
            raise ValueError("GaussianFeatures(covariance=...) holds a negative variance")
        if covariance.ndim == 2:
            size = float(np.abs(covariance).max(initial=0.0))
            if not np.allclose(covariance, covariance.T, rtol=0, atol=1e-9 * size):
                raise ValueError("GaussianFeatures(covariance=...) must be symmetric")
            if np.linalg.eigvalsh(covariance).min(initial=0.0) < -1e-9 * size * len(covariance):
                raise ValueError("GaussianFeatures(covariance=...) has a negative eigenvalue")

    def _arrays(self) -> tuple[FloatArray, FloatArray]:
        return np.asarray(self.covariance, dtype=np.float64), np.asarray(self.mean, dtype=np.float64)

    def draw(self, n_rows: int, n_features: int, generator: np.random.Generator) -> FloatArray:
        covariance, mean = self._arrays()
        for name, array in (("covariance", covariance), ("mean", mean)):
            if array.ndim and len(array) != n_features:
                raise ValueError(f"GaussianFeatures({name}=...) is for {len(array)} features, not {n_features}")
        rows = generator.standard_normal((n_rows, n_features))
        if n_rows == 0:
            return rows
        if covariance.ndim == 2:
            values, vectors = np.linalg.eigh(covariance)
            rows = rows @ (vectors * np.sqrt(np.maximum(values, 0.0))).T
        else:
            rows *= np.sqrt(covariance)
        return rows + mean

    def stretch(self, n_features: int) -> float:
        covariance, mean = self._arrays()
        mean = np.broadcast_to(mean, (n_features,))
        matrix = covariance if covariance.ndim == 2 else np.diag(np.broadcast_to(covariance, (n_features,)))
        return float(np.linalg.eigvalsh(matrix + np.outer(mean, mean))[-1])


def check_features(features: Any, n_features: int) -> None:
    """Raise unless `features` is a distribution or finite rows of the right width."""
    if isinstance(features, FeatureDistribution):
        features.draw(0, n_features, np.random.default_rng(0))  # it says what does not fit
        return
    if isinstance(features, str):
        raise TypeError(f"public features are a distribution such as UniformFeatures(-1, 1), or rows, not {features!r}")
    rows = check_array(
        features, accept_sparse="csr", dtype=np.float64, ensure_min_samples=2, input_name="public features"
    )
    if rows.shape[1] != n_features:
        raise ValueError(f"the public features have {rows.shape[1]} columns, the private rows {n_features}")


def _are_the_same(first: Any, second: Any) -> bool:
    """Whether two sets of rows are one object, or share memory. Looks at no value."""
    if first is second:
        return True
    ours = _arrays_of(second)
    return any(np.shares_memory(one, other) for one in _arrays_of(first) for other in ours)


def _arrays_of(rows: Any) -> list[FloatArray]:
    """The arrays that rows are kept in: of a DataFrame of pandas its first columns, where they are arrays."""
    if sp.issparse(rows):
        rows = getattr(rows, "data", None)
    if type(rows).__module__.split(".")[0] == "pandas" and hasattr(rows, "iloc"):
        columns = [rows.iloc[:, k].values for k in range(min(rows.shape[1], _COMPARED))]
        return [column for column in columns if isinstance(column, np.ndarray)]
    if not isinstance(rows, np.ndarray):
        return []
    return [rows]


def check_not_private(features: Any, X: Any) -> None:
    """Raise if the public features are the private rows themselves. Looks at no value."""
    if features is not None and _are_the_same(features, X):
        raise ValueError(
            "the public features are the private rows that are fitted to; public features must be known without them"
        )


def public_rows(features: Any, public: PublicFacts, n_rows: int | None, seed: int) -> Any:
    """The public rows, CSR or dense, made to obey the bounds that the private rows obey.

    From a distribution `n_rows` are drawn (None: as many as there are private rows), from a public seed.
    """
    if isinstance(features, FeatureDistribution):
        rows = features.draw(n_rows or public.n_rows, public.n_features, np.random.default_rng(seed))
    else:
        rows = check_array(features, accept_sparse="csr", dtype=np.float64)
    return KnownBounds(public.row_l2, public.row_linf, math.inf, public.normalised).clip_copy(rows)


def largest_second_moment(features: Any, public: PublicFacts) -> float:
    """The spectral norm of E[x x'] of a distribution, or of the mean of x x' over given rows."""
    if isinstance(features, FeatureDistribution):
        return features.stretch(public.n_features)
    rows = public_rows(features, public, None, 0)
    _, values, _ = randomized_svd(rows, 1, n_iter=8, random_state=0)
    return float(values[0]) ** 2 / rows.shape[0]


def even_directions(rows: Any, count: int) -> tuple[FloatArray, float]:
    """The `count` directions in which public rows vary most, of shape (features, count), half-way to equal variance,
    and the part of the rows' squared length that they hold.

    A direction of variance v is divided by v^(1/4), relative to the first. Without that a penalty and equal noise would
    silence all but the first few; with the full v^(1/2) noise in the last ones would drown the rest. Directions in
    which rows hardly vary are left out.
    """
    total = float(row_norms(rows, squared=True).sum())
    if rows.shape[1] <= _FEW_FEATURES:
        moments = rows.T @ rows
        squares, directions = np.linalg.eigh(moments.toarray() if sp.issparse(moments) else moments)
        values, directions = np.sqrt(np.maximum(squares[::-1], 0.0))[:count], directions[:, ::-1][:, :count]
    else:
        # In single precision: directions are a choice of coordinates, and any choice is sound.
        _, values, lines = randomized_svd(rows.astype(np.float32), count, n_iter=6, random_state=0)
        values, directions = values.astype(np.float64), lines.T.astype(np.float64)
    varies = values > 1e-6 * max(float(values[0]), 1e-300)
    varies[0] = True
    values, directions = np.maximum(values[varies], 1e-300), directions[:, varies]
    return np.asarray(directions * np.sqrt(values[0] / values)), float((values**2).sum() / max(total, 1e-300))


def leading_directions(rows: Any, count: int) -> FloatArray:
    """The directions of `even_directions` alone."""
    return even_directions(rows, count)[0]
