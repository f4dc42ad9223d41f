"""How many rows a budget needs: test error against rows and epsilon, on data that is made here.

    python docs/pictures/rows_needed.py

Writes rows_needed.csv, which docs/deciding.md shows.
"""

from __future__ import annotations

import csv
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tulle import Bounds, SparseClassifier
from tulle.datasets import rcv1_like

ROWS = (1_000, 3_000, 10_000, 30_000)
EPSILONS = (0.5, 1.0, 2.0, 4.0, None)
N_TEST, SEEDS = 5_000, range(5)


def survey(n: int, seed: int) -> tuple[Any, Any]:
    """Fifty answers between -1 and 1, of which five tell the label, up to noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 50))
    return X, rng.random(n) < 1 / (1 + np.exp(-4 * X[:, :5].sum(axis=1)))


def texts(n: int, seed: int) -> tuple[Any, Any]:
    """Sparse rows of 10,000 words; one label in twenty is wrong."""
    return rcv1_like(n, 10_000, seed=seed)


KINDS: dict[str, tuple[Callable[[int, int], tuple[Any, Any]], Bounds]] = {
    "survey, 50 features": (survey, Bounds(row_linf=1.0)),
    "text, 10,000 words": (texts, Bounds(row_l2=1.0)),
}


def error(kind: str, n: int, epsilon: float | None, seed: int) -> float:
    """The test error of one fit with all defaults."""
    make, bounds = KINDS[kind]
    X, y = make(n + N_TEST, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # these fits measure how few rows are too few
        model = SparseClassifier(epsilon, 1e-6, bounds=bounds, random_state=seed).fit(X[:n], y[:n])
    return 1 - float(model.score(X[n:], y[n:]))


def main() -> None:
    with (Path(__file__).parent / "rows_needed.csv").open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("data", "n", "epsilon", "error", "spread"))
        for kind in KINDS:
            for n in ROWS:
                for epsilon in EPSILONS:
                    errors = [error(kind, n, epsilon, seed) for seed in SEEDS]
                    spread = f"{np.std(errors, ddof=1):.4f}"
                    table.writerow((kind, n, "" if epsilon is None else epsilon, f"{np.mean(errors):.4f}", spread))


if __name__ == "__main__":
    main()
