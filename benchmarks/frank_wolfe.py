"""Private Frank-Wolfe on sparse rows: following the walk, beside reading all rows in every step. The law is the same.

"scipy loop" is the loop that people write: two sparse products and 2 d Gumbel draws a step. "plain engine" is tulle's
own loop that reads all rows (it gathers along columns and keeps margins). Steps are timed from the second one on; the
whole fit has the conversion to columns, clipping and the first full gather in it.
"""

from __future__ import annotations

import time
import tracemalloc
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.special import expit

from tulle import Bounds, SparseClassifier
from tulle.datasets import load_rcv1_subset, rcv1_like
from tulle.events import FloatArray, NoisePerSensitivity
from tulle.fitting import run_fit
from tulle.mechanisms import GumbelMax
from tulle.methods import FrankWolfe
from tulle.privacy import Budget, Release, calibrate

RADIUS, DELTA = 50.0, 1e-5


def scipy_loop(X: Any, y: FloatArray, n_iter: int, noise: float, seed: int) -> FloatArray:
    """Private Frank-Wolfe for the logistic loss with scores in full; `noise` is the Gumbel scale over 2 radius / n."""
    generator = np.random.default_rng(seed)
    d = X.shape[1]
    w = np.zeros(d)
    for t in range(1, n_iter + 1):
        slopes = -y * expit(-y * (X @ w))
        scores = RADIUS / len(y) * (X.T @ slopes)
        gumbel = noise * 2 * RADIUS / len(y) * -np.log(generator.standard_exponential((2, d)))
        number = int(np.argmax(np.concatenate([-scores, scores]) + gumbel.ravel()))
        w *= 1 - 2 / (t + 2)
        w[number % d] += 2 / (t + 2) * (RADIUS if number < d else -RADIUS)
    return w


class _Clock:
    """Notes when answers come."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def __call__(self, name: str, answer: Any) -> None:
        self.times.append(time.perf_counter())

    def per_step(self) -> float:
        return (self.times[-1] - self.times[0]) / (len(self.times) - 1)


def _fit(X: Any, y: FloatArray, epsilon: float, n_iter: int, engine: str) -> tuple[float, float, Any]:
    """Seconds a step, seconds of the whole fit, and the model."""
    method = FrankWolfe(radius=RADIUS, n_iter=n_iter, noise="selection", clip=1.0, engine=engine)  # type: ignore[arg-type]
    model = SparseClassifier(epsilon, DELTA, method=method, bounds=Bounds(row_l2=1.0), fit_intercept=False)
    clock = _Clock()
    X, targets, loss = model._prepare(X, y)
    start = time.perf_counter()
    model._keep(run_fit(model._request(loss, X.shape[0]), X, targets, witness=clock))
    return clock.per_step(), time.perf_counter() - start, model


def _measure(
    name: str, X: Any, y: FloatArray, n_iter: int, epsilons: dict[float, str], plain_steps: int
) -> Iterator[tuple[str, float, str]]:
    _fit(X[:500], y[:500], 1.0, 3, "incremental")  # compiled from here on
    for epsilon, target in epsilons.items():
        noise = calibrate((Release("v", GumbelMax(NoisePerSensitivity(1.0)), n_iter),), Budget(epsilon, DELTA))
        start = time.perf_counter()
        scipy_loop(X, y, plain_steps, noise[0].mechanism.noise.value, 0)
        usual = (time.perf_counter() - start) / plain_steps
        plain, _, _ = _fit(X, y, epsilon, plain_steps, "plain")
        step, whole, model = _fit(X, y, epsilon, n_iter, "incremental")
        loss = float(np.logaddexp(0, -y * model.decision_function(X)).mean())
        what = f"{name}, eps {epsilon:g}"
        yield f"{what}: scipy loop's step, times a followed one (loss {loss:.3f})", usual / step, target
        yield f"{what}: plain engine's step, times a followed one", plain / step, ">= 1"
        yield f"{what}: {n_iter} scipy steps, times the whole fit", usual * n_iter / whole, ">= 1"


def measure() -> Iterator[tuple[str, float, str]]:
    warnings.simplefilter("ignore")  # that models of noise alone are no better than guessing is known here
    try:
        data = load_rcv1_subset()
        name, X, y = "RCV1 subset", data.X_train, data.y_train
    except FileNotFoundError:
        name, (X, y) = "rows of RCV1's shape", rcv1_like()
    yield from _measure(name, X, y, 4000, {1.0: ">= 45", 10.0: ">= 45", 100.0: ">= 45", 1000.0: ">= 1"}, 100)
    X, y = rcv1_like(200_000, 1_000_000, 100)
    by_chance = np.where(np.random.default_rng(12345).random(len(y)) < 0.5, -1.0, 1.0)
    targets = {1.0: ">= 150", 10.0: ">= 150", 100.0: ">= 1"}
    yield from _measure("200,000 x 1,000,000, random labels", X, by_chance, 1000, targets, 6)
    yield from _measure("200,000 x 1,000,000", X, y, 1000, targets, 6)
    tracemalloc.start()
    _fit(X, y, 1.0, 20, "incremental")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    columns = X.data.nbytes + X.indices.nbytes + (X.shape[1] + 1) * X.indptr.itemsize
    vectors = (peak - columns) / (8 * X.shape[1])
    yield "200,000 x 1,000,000: peak memory beyond one transposed copy, in vectors of length d", vectors, "a few"
