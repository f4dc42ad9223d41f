"""One step of DP-SGD-HT on a batch of 256 sparse rows, beside the loop that people write with numpy and scipy.

The usual loop takes the batch out of a CSR matrix, multiplies twice, draws d normals and keeps the s largest sums.
Steps are timed from the second one on. Here the law of a step is the same, noise and threshold included.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.special import expit

from tulle import Bounds, SparseClassifier
from tulle.datasets import rcv1_like
from tulle.events import FloatArray
from tulle.fitting import run_fit
from tulle.methods import StochasticHardThresholding

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


class _Clock:
    def __init__(self) -> None:
        self.times: list[float] = []

    def __call__(self, name: str, answer: Any) -> None:
        self.times.append(time.perf_counter())


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
    clock = _Clock()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        X, targets, loss = model._prepare(X, y)
        run_fit(model._request(loss, X.shape[0]), X, targets, witness=clock)
    return (clock.times[-1] - clock.times[0]) / (len(clock.times) - 1)


def measure() -> Iterator[tuple[str, float, str]]:
    shapes = (
        (20_242, 47_236, 74, STEPS, ">= 3.3"),
        (200_000, 1_000_000, 100, 60, ">= 11"),
        (20_000, 16_000_000, 74, 10, "> 1"),
    )
    for n, d, per_row, steps, target in shapes:
        X, y = rcv1_like(n, d, per_row)
        usual, ours = usual_loop(X, y, steps), tulle_steps(X, y, steps, lazy=True)
        yield f"batch of 256, {n:,} × {d:,}: usual loop / a step of DP-SGD-HT", usual / ours, target
        dense = tulle_steps(X, y, steps, lazy=False)
        yield f"batch of 256, {n:,} × {d:,}: dense noise / noise that can matter", dense / ours, "> 1"


if __name__ == "__main__":
    for what, ratio, target in measure():
        print(f"{what:<78} {ratio:>10.3g}  {target}")
