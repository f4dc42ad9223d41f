"""Accuracy with delta = 0 on dense synthetic rows: the table of docs/hard_thresholding.md.

python benchmarks/pure_thresholding.py
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tulle import Bounds, SparseClassifier, SparseRegressor
from tulle.methods import FrankWolfe, HardThresholding

METHODS = {
    "hard thresholding": HardThresholding(),
    "Frank-Wolfe": FrankWolfe(),
    "laplace": HardThresholding(noise="laplace"),
}
FRESH, MATTER, SEEDS = 2_000, 5, 4


def draw(estimator: Any, n: int, d: int, seed: int) -> tuple[Any, Any]:
    """Uniform features, five of which matter; logistic labels, or a linear model with little noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n + FRESH, d))
    margins = X[:, :MATTER] @ (rng.choice([-1, 1], MATTER) * rng.uniform(1, 2, MATTER))
    if estimator is SparseRegressor:
        return X, margins + 0.1 * rng.standard_normal(len(X))
    return X, rng.uniform(size=len(X)) < 1 / (1 + np.exp(-3 * margins))


def score(estimator: Any, method: Any, n: int, d: int, seed: int) -> float:
    X, y = draw(estimator, n, d, seed)
    bounds = Bounds(row_linf=1.0, row_l2=1.05 * float(np.sqrt(d / 3)), label=5.0)
    model = estimator(1.0, 0.0, n_nonzero=MATTER, method=method, bounds=bounds, random_state=seed).fit(X[:n], y[:n])
    assert model.privacy_.delta == 0
    return float(model.score(X[n:], y[n:]))


def main() -> None:
    for estimator in (SparseClassifier, SparseRegressor):
        for n, d in ((5_000, 50), (20_000, 300)):
            means = {
                name: np.mean([score(estimator, method, n, d, seed) for seed in range(SEEDS)])
                for name, method in METHODS.items()
            }
            print(estimator.__name__, n, d, {name: f"{mean:.3f}" for name, mean in means.items()})


if __name__ == "__main__":
    main()
