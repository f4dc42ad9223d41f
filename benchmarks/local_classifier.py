"""Accuracy of `LocalSparseClassifier` against the number of users: the table of docs/local.md.

python benchmarks/local_classifier.py
"""

from __future__ import annotations

import warnings

import numpy as np

from tulle import Bounds
from tulle.local import LocalSparseClassifier

USERS, EPSILONS, FEATURES, FRESH, SEEDS = (2_000, 10_000, 50_000), (1.0, 2.0, 4.0, None), 20, 10_000, 3


def accuracy(epsilon: float | None, n: int, seed: int) -> float:
    """Uniform features, three of which matter, and logistic labels."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n + FRESH, FEATURES))
    y = rng.uniform(size=len(X)) < 1 / (1 + np.exp(-6 * (X[:, 0] - X[:, 1] + X[:, 2])))
    bounds = Bounds(row_l2=1.1 * float(np.sqrt(FEATURES / 3)), row_linf=1.0)
    model = LocalSparseClassifier(epsilon, n_nonzero=3, bounds=bounds, random_state=seed).fit(X[:n], y[:n])
    return float(model.score(X[n:], y[n:]))


def main() -> None:
    warnings.simplefilter("ignore")  # studies that are too small say so
    for n in USERS:
        means = [np.mean([accuracy(epsilon, n, seed) for seed in range(SEEDS)]) for epsilon in EPSILONS]
        print(f"| {n:,} |", " | ".join(f"{mean:.3f}" for mean in means), "|", flush=True)


if __name__ == "__main__":
    main()
