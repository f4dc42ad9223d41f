"""Private Frank-Wolfe on sparse rows: following the path, next to reading all rows in every step. The law is the same.

"scipy loop" is the loop that people write: two sparse products and 2 d Gumbel draws a step. "plain engine" is tulle's
own loop that reads all rows (it gathers along columns and keeps margins). Steps are timed from the second one on; the
whole fit has the conversion to columns, clipping and the first full gather in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from scipy.special import expit
from timing import LARGE, Line, TimedFit, named, print_lines, rcv1, seconds, text_rows, timed_fit

from tulle import Bounds, SparseClassifier
from tulle.accounting.calibration import calibrate
from tulle.methods import FrankWolfe
from tulle.trusted.events import FloatArray, NoisePerSensitivity
from tulle.trusted.mechanisms import GumbelMax
from tulle.trusted.plan import Budget, Release

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


def _fit(X: Any, y: FloatArray, epsilon: float, n_iter: int, engine: str) -> TimedFit:
    method = FrankWolfe(radius=RADIUS, n_iter=n_iter, noise="selection", clip=1.0, engine=engine)  # type: ignore[arg-type]
    model = SparseClassifier(epsilon, DELTA, method=method, bounds=Bounds(row_l2=1.0), fit_intercept=False)
    return timed_fit(model, X, y)


def _measure(
    name: str, X: Any, y: FloatArray, n_iter: int, epsilons: dict[float, str], plain_steps: int
) -> Iterator[Line]:
    _fit(X[:500], y[:500], 1.0, 3, "incremental")  # compiled from here on
    for epsilon, target in epsilons.items():
        noise = calibrate((Release("v", GumbelMax(NoisePerSensitivity(1.0)), n_iter),), Budget(epsilon, DELTA))
        scale = noise[0].mechanism.noise.value
        usual = seconds(partial(scipy_loop, X, y, plain_steps, scale, 0)) / plain_steps
        plain = _fit(X, y, epsilon, plain_steps, "plain").per_step
        followed = _fit(X, y, epsilon, n_iter, "incremental")
        loss = float(np.logaddexp(0, -y * followed.model.decision_function(X)).mean())
        what = f"{name}, eps {epsilon:g}"
        yield f"{what}: scipy loop's step, times a followed one (loss {loss:.3f})", usual / followed.per_step, target
        yield f"{what}: plain engine's step, times a followed one", plain / followed.per_step, ">= 1"
        yield f"{what}: {n_iter} scipy steps, times the whole fit", usual * n_iter / followed.whole, ">= 1"


def measure() -> Iterator[Line]:
    yield from _measure(*rcv1(), 4000, {1.0: ">= 45", 10.0: ">= 45", 100.0: ">= 45", 1000.0: ">= 1"}, 100)
    X, y = text_rows(LARGE)
    by_chance = np.where(np.random.default_rng(12345).random(len(y)) < 0.5, -1.0, 1.0)
    targets = {1.0: ">= 150", 10.0: ">= 150", 100.0: ">= 1"}
    yield from _measure(f"{named(LARGE)}, random labels", X, by_chance, 1000, targets, 6)
    yield from _measure(named(LARGE), X, y, 1000, targets, 6)


if __name__ == "__main__":
    print_lines(measure())
