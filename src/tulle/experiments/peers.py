"""Private least squares of other papers, to compare with: AdaSSP and iterative Hessian mixing.

Both release statistics of all features, and are meant for few features and many rows. They are here for comparisons on
public data alone: noise is drawn by numpy, and floating-point effects are not accounted for. Rows have a norm of at
most `row_l2` and targets lie in [-label, label]; both are cut to that, row by row. A constant column is added.

Neighbours: "replace" changes one row to any other row, as everywhere in tulle; "zero-out" replaces one row, with its
constant and its target, by zeros, which proves less. AdaSSP can be run for both, iterative Hessian mixing for
"zero-out", as in its paper.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from tulle.accounting.gaussian_budget import gaussian_mu
from tulle.trusted.events import FloatArray

_FAILURE = 0.05  # with which AdaSSP's penalty may be too small; decides accuracy, not privacy


@dataclass(frozen=True)
class LinearFit:
    """Weights and intercept of a fitted linear model."""

    coef_: FloatArray
    intercept_: float

    def predict(self, X: Any) -> FloatArray:
        return np.asarray(X @ self.coef_ + self.intercept_)


@dataclass(frozen=True, eq=False)
class BoundedData:
    """Rows with a constant column, divided so that none is longer than 1, and targets cut to their bound.

    Attributes
    ----------
    rows, targets : array
    length : float
        What rows with their constant were divided by.
    label : float
        The largest absolute target.
    """

    rows: FloatArray
    targets: FloatArray
    length: float
    label: float

    @classmethod
    def of(cls, X: Any, y: FloatArray, row_l2: float, label: float) -> BoundedData:
        """Rows longer than `row_l2` are scaled down to it, each by itself."""
        X = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=float)
        excess = np.maximum(np.linalg.norm(X, axis=1, keepdims=True) / row_l2, 1.0)
        length = math.hypot(row_l2, 1.0)
        return cls(np.column_stack([X / excess, np.ones(len(y))]) / length, np.clip(y, -label, label), length, label)

    def fitted(self, weights: Any) -> LinearFit:
        """The model of rows as they were, given the weights of these rows."""
        weights = weights / self.length
        return LinearFit(weights[:-1], float(weights[-1]))


@dataclass(frozen=True)
class AdaSSP:
    """Sufficient statistics with noise, and a penalty that the noisy smallest eigenvalue chooses.

    Wang, "Revisiting differentially private linear regression", UAI 2018, algorithm 2, with Gaussian noise whose three
    scales are calibrated together: each release has a third of mu². Sensitivities for rows of norm 1 and targets up to
    B: the eigenvalue 1; X'X (its upper triangle) 1 for zero-out and √2 for replacement; X'y B and 2 B.

    Parameters
    ----------
    neighbours : {"replace", "zero-out"}
    """

    neighbours: Literal["replace", "zero-out"] = "replace"

    def fit(self, data: BoundedData, epsilon: float, delta: float, rng: np.random.Generator) -> LinearFit:
        """Weights that are (epsilon, delta)-private for the neighbours of this object.

        Parameters
        ----------
        data : BoundedData
        epsilon, delta : float
            Above 0; delta below 1.
        rng : numpy.random.Generator
        """
        rows, y, label = data.rows, data.targets, data.label
        d, replaced = rows.shape[1], self.neighbours == "replace"
        scale = math.sqrt(3) / gaussian_mu(epsilon, delta)
        moments = rows.T @ rows
        smallest = float(np.linalg.eigvalsh(moments)[0]) + scale * rng.normal() - scale * math.sqrt(math.log(6 / delta))
        spread = scale * (math.sqrt(2) if replaced else 1.0)
        upper = np.triu(rng.normal(scale=spread, size=(d, d)))
        penalty = max(0.0, spread * math.sqrt(d * math.log(2 * d * d / _FAILURE)) - max(smallest, 0.0))
        noisy = moments + upper + np.triu(upper, 1).T + penalty * np.eye(d)
        sums = rows.T @ y + rng.normal(scale=scale * label * (2.0 if replaced else 1.0), size=d)
        return data.fitted(np.linalg.lstsq(noisy, sums, rcond=None)[0])


@dataclass(frozen=True)
class IterativeHessianMixing:
    """Newton steps with Hessians from noisy Gaussian sketches and noisy clipped gradients.

    Lev, Shenfeld, Srinivasan, Ligett and Wilson, "Near-optimal private linear regression via iterative Hessian mixing",
    arXiv 2601.07545, with the settings of its experiments: three steps, sketches of 6 max(d, log(4 T / rho)) rows. For
    "zero-out" alone. Half of epsilon pays for the sketches and the smallest eigenvalue, half for the gradients. Of
    delta, half is for the sketches, a quarter for an eigenvalue that is shown too large, a quarter for the gradients.

    A sketch has rows N(0, X'X + s² I). Zeroing out a row x lowers the variance along one direction by the factor 1 - v,
    with v = x'(X'X + s² I)⁻¹x <= 1 / level where the smallest eigenvalue of the matrix is at least `level`.

    Parameters
    ----------
    n_iter : int
        At least 1.
    """

    n_iter: int = 3

    def fit(self, data: BoundedData, epsilon: float, delta: float, rng: np.random.Generator) -> LinearFit:
        """As `AdaSSP.fit`, for zeroing out a row."""
        rows, y, label = data.rows, data.targets, data.label
        d = rows.shape[1]
        size = math.ceil(6 * max(d, math.log(40 * self.n_iter / delta)))
        level = sketch_level(size, self.n_iter, epsilon / 2, delta / 2)
        margin = math.sqrt(2 * math.log(4 / delta))
        smallest = float(np.linalg.eigvalsh(rows.T @ rows)[0])
        shown = max(0.0, smallest - level / math.sqrt(size) * (margin - rng.normal()))
        spread = math.sqrt(max(0.0, level - shown))
        scale = label * math.sqrt(self.n_iter) / gaussian_mu(epsilon / 2, delta / 4)
        weights = np.zeros(d)
        for _ in range(self.n_iter):
            sketch = _gaussian_sketch(rows, size, rng) + spread * rng.normal(size=(size, d))
            slopes = np.clip(y - rows @ weights, -label, label)
            gradient = rows.T @ slopes + scale * rng.normal(size=d)
            weights = weights + np.linalg.lstsq(sketch.T @ sketch / size, gradient, rcond=None)[0]
        return data.fitted(weights)


def _gaussian_sketch(rows: FloatArray, size: int, rng: np.random.Generator) -> FloatArray:
    """S X for a matrix S of `size` rows of standard Gaussian numbers, in blocks of rows."""
    found = np.zeros((size, rows.shape[1]))
    for start in range(0, len(rows), 4096):
        block = rows[start : start + 4096]
        found += rng.normal(size=(size, len(block))) @ block
    return found


@lru_cache(maxsize=256)
def sketch_level(size: int, count: int, epsilon: float, delta: float) -> float:
    """The smallest eigenvalue at which sketches and the noisy eigenvalue are (epsilon, delta)-private together.

    There are `count` sketches of `size` rows. By Rényi divergences: those of the sketches' rows, and of Gaussian noise
    of the scale level / sqrt(size) on the eigenvalue.
    """

    def spent(log_level: float) -> float:
        return _sketch_epsilon(math.exp(log_level), size, count, delta) - epsilon

    high = math.log(2.0)
    while spent(high) > 0:
        high += 1.0
    return math.exp(float(brentq(spent, math.log(1.0 + 1e-6), high, xtol=1e-10))) * (1 + 1e-6)


def _sketch_epsilon(level: float, size: int, count: int, delta: float) -> float:
    """The epsilon at delta of the sketches and the eigenvalue, by the best order of a Rényi divergence."""

    def at(log_order: float) -> float:
        order = 1.0 + math.exp(log_order)
        if order >= level:
            return math.inf
        along = (order * math.log1p(-1 / level) - math.log1p(-order / level)) / (2 * (order - 1))
        renyi = count * size * along + order * size / (2 * level**2)
        return renyi + math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)

    top = math.log(max(level - 1.0, 1e-6))
    found = minimize_scalar(at, bounds=(top - 30.0, top), method="bounded", options={"xatol": 1e-6})
    return max(float(found.fun), 0.0)


PEERS: Mapping[str, AdaSSP | IterativeHessianMixing] = MappingProxyType(
    {
        "adassp": AdaSSP("replace"),
        "adassp_zero_out": AdaSSP("zero-out"),
        "iterative_hessian_mixing": IterativeHessianMixing(),
    }
)
"""Methods of other papers by the names that lines of tables have for them."""
