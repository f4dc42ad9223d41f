"""What the tests of intervals fit."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit

from tulle import Bounds, SparseClassifier, SparseRegressor

WEIGHTS = np.array([0.8, -0.5, 0.0])
INTERCEPT = 0.2
LABELS: dict[str, float | None] = {"logistic": None, "squared": 4.0, "poisson": 8.0}
LOSSES = tuple(LABELS)


def draw(loss: str, n: int, seed: int, d: int = 3) -> tuple[Any, Any]:
    """Rows with entries in (-1, 1), and targets whose model has these weights; of counts, half of them."""
    rng = np.random.default_rng((seed, n, d))
    X = rng.uniform(-1, 1, (n, d))
    margins = X[:, :3] @ WEIGHTS + INTERCEPT
    if loss == "logistic":
        return X, (rng.random(n) < expit(margins)).astype(float)
    if loss == "squared":
        return X, margins + 0.8 * rng.standard_normal(n)
    return X, rng.poisson(np.exp(margins / 2)).astype(float)


def truth(loss: str) -> Any:
    return np.append(WEIGHTS, INTERCEPT) * (0.5 if loss == "poisson" else 1.0)


def model(loss: str, epsilon: float | None, **settings: Any) -> Any:
    bounds = Bounds(row_linf=1.0, label=LABELS[loss]) if epsilon is not None else None
    settings = {"bounds": bounds, "inference": True, "random_state": 0, **settings}
    if loss == "logistic":
        return SparseClassifier(epsilon, **settings)
    return SparseRegressor(epsilon, loss=loss, **settings)
