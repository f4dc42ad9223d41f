"""One step of DP-SGD-HT on a batch of 256 sparse rows, next to the loop that people write with numpy and scipy.

The usual loop takes the batch out of a CSR matrix, multiplies twice, draws d normals and keeps the s largest sums.
Steps are timed from the second one on. Here the law of a step is the same, noise and threshold included.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.special import expit
from timing import LARGE, SMALL, Line, named, print_lines, text_rows, timed_fit

from tulle import Bounds, SparseClassifier
from tulle.methods import StochasticHardThresholding
from tulle.trusted.events import FloatArray

WIDE = (20_000, 16_000_000, 74)
BATCH, KEPT, STEPS, STEP_SIZE, NOISE = 256, 500, 300, 100.0, 1.0


def usual_loop(X: Any, y: FloatArray, steps: int) -> float:
    """Seconds a step."""
    generator = np.random.default_rng(0)
    n, d = X.shape
    w = np.zeros(d)
    start = 0.0
    for t in range(steps + 1):
        if t == 1:
            start = time.perf_counter()
        numbers = np.flatnonzero(generator.random(n) < BATCH / n)
        rows, labels = X[numbers], y[numbers]
        slopes = np.clip(-labels * expit(-labels * (rows @ w)), -0.5, 0.5)
        noisy = w - STEP_SIZE * (rows.T @ slopes / BATCH + NOISE / BATCH * generator.standard_normal(d))
        top = np.argpartition(np.abs(noisy), d - KEPT)[d - KEPT :]
        w = np.zeros(d)
        w[top] = noisy[top]
    return (time.perf_counter() - start) / steps


def tulle_steps(X: Any, y: FloatArray, steps: int, lazy: bool) -> float:
    """Seconds a step of a fit."""
    method = StochasticHardThresholding(
        batch=BATCH,
        passes=BATCH * (steps + 1) / X.shape[0],
        memory=KEPT,
        step=STEP_SIZE,
        clip=0.5,
        average=0.0,
        lazy_noise=lazy,
    )
    model = SparseClassifier(
        4.0, 1e-5, n_nonzero=KEPT, method=method, bounds=Bounds(row_l2=1.0), fit_intercept=False, random_state=0
    )
    return timed_fit(model, X, y).per_step


def measure() -> Iterator[Line]:
    for shape, steps, target in ((SMALL, STEPS, ">= 3.3"), (LARGE, 60, ">= 11"), (WIDE, 10, "> 1")):
        X, y = text_rows(shape)
        times = [(usual_loop(X, y, steps), *(tulle_steps(X, y, steps, lazy) for lazy in (True, False))) for _ in "123"]
        usual, dense = np.median([(usual / lazy, dense / lazy) for usual, lazy, dense in times], axis=0)
        yield f"batch of 256, {named(shape)}: usual loop, times a step of DP-SGD-HT", float(usual), target
        yield f"batch of 256, {named(shape)}: dense noise, times noise that can matter", float(dense), "> 1"


if __name__ == "__main__":
    print_lines(measure())
