"""The gradient on dense rows, as a part of the speed at which this machine reads memory.

One pass at full speed would be 1: the rows are counted once, however often they are read. The usual way is two products
of BLAS, which read them twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle

import numpy as np
from gradient import gradient
from scipy.special import expit
from timing import Line, n_threads, print_lines, ratio, read_seconds, seconds

from tulle.trusted.rows import Rows

SHAPES = ((100_000, 1_000, 20), (40_000, 2_000, 100), (400_000, 200, 20))
ROUNDS = 9


def measure() -> Iterator[Line]:
    rng = np.random.default_rng(0)
    for n, d, kept in SHAPES:
        X, y = rng.standard_normal((n, d)), np.sign(rng.standard_normal(n))
        rows = Rows(X, y)
        both = [np.zeros((d, 1)), np.zeros((d, 1))]
        for w in both:
            w[rng.choice(d, kept, replace=False)] = rng.standard_normal((kept, 1))
        weights = cycle(both)  # margins of the last weights are remembered

        def ours(rows: Rows = rows, weights: cycle[np.ndarray] = weights) -> None:  # type: ignore[type-arg]
            w = next(weights)
            rows.reduce(lambda block: gradient(block, w))

        def usual(X: np.ndarray = X, y: np.ndarray = y, w: np.ndarray = both[0][:, 0]) -> None:  # type: ignore[type-arg]
            X.T @ np.clip(-y * expit(-y * (X @ w)), -0.5, 0.5)

        for count in (1, 2):
            what = f"dense gradient, {n:,} × {d:,}, {kept} weights, {count} thread{'s' * (count > 1)}"
            shares = []
            with n_threads(count):
                ours()
                for _ in range(ROUNDS):
                    shares.append(read_seconds(X, count) / seconds(ours))
                yield f"{what}: of the read bandwidth", float(np.median(shares)), ">= 0.65"
                yield f"{what}: two BLAS products, times ours", ratio(usual, ours, ROUNDS), "(no target)"


if __name__ == "__main__":
    print_lines(measure())
