"""One iteration of DP-IHT with the full gradient, next to the loop that people write with numpy and scipy.

The usual loop multiplies twice, draws d normals and keeps the s largest sums. The law of an iteration is the same here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from gradient import CLIP, KEPT, usual_gradient
from timing import LARGE, SMALL, Line, n_threads, named, print_lines, seconds, text_rows, timed_fit

from tulle import Bounds, SparseClassifier
from tulle.methods import HardThresholding
from tulle.trusted.events import FloatArray

STEP_SIZE, NOISE = 100.0, 1.0
SHAPES = {SMALL: (">= 2", 40), LARGE: (">= 3.3", 6)}
ROUNDS = 5


def usual_loop(X: Any, y: FloatArray, steps: int) -> None:
    generator = np.random.default_rng(0)
    n, d = X.shape
    w = np.zeros(d)
    for _ in range(steps):
        noisy = w - STEP_SIZE * (usual_gradient(X, y, w) / n + NOISE / n * generator.standard_normal(d))
        top = np.argpartition(np.abs(noisy), d - KEPT)[d - KEPT :]
        w = np.zeros(d)
        w[top] = noisy[top]


def measure() -> Iterator[Line]:
    for shape, (target, steps) in SHAPES.items():
        X, y = text_rows(shape)
        method = HardThresholding(n_iter=steps, step=STEP_SIZE, clip=CLIP, noise="gaussian")
        model = SparseClassifier(
            4.0, 1e-5, n_nonzero=KEPT, method=method, bounds=Bounds(row_l2=1.0), fit_intercept=False
        )
        for count in (1, 2):
            with n_threads(count):
                rounds = [
                    seconds(lambda X=X, y=y: usual_loop(X, y, 3)) / 3 / timed_fit(model, X, y).per_step  # type: ignore[misc]
                    for _ in range(ROUNDS)
                ]
            what = f"DP-IHT, {named(shape)}, {count} thread{'s' * (count > 1)}: usual loop, times an iteration"
            yield what, float(np.median(rounds)), target if count == 2 else "(no target)"


if __name__ == "__main__":
    print_lines(measure())
