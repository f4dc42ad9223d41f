"""Pictures of the ℓ1 family: `python docs/pictures/lasso.py [risk]`, part of `make pictures`. No data set is needed."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse as sp
from draw import BLUE, GREY, ORANGE, save
from joblib import Parallel, delayed

from tulle import Bounds, SparseRegressor
from tulle.datasets import lasso_domain
from tulle.methods import FrankWolfe
from tulle.trusted.events import FloatArray

SIZES = {100: (2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000), 10_000: (4_000, 8_000, 16_000, 32_000, 64_000)}
EPSILON, DELTA = 1.0, 1e-6


def _onto_ball(v: FloatArray) -> FloatArray:
    """The nearest point of the unit ℓ1-ball."""
    sizes = np.sort(np.abs(v))[::-1]
    excess = np.cumsum(sizes) - 1.0
    if excess[-1] <= 0:
        return v
    last = np.flatnonzero(sizes * np.arange(1, len(v) + 1) > excess)[-1]
    return np.sign(v) * np.maximum(np.abs(v) - excess[last] / (last + 1), 0.0)


def _least_risk(X: Any, y: FloatArray, start: FloatArray, steps: int = 150) -> float:
    """The least mean squared error / 2 in the unit ℓ1-ball: accelerated projected gradients from the true weights."""
    transposed = sp.csr_array(X.T)
    v = np.random.default_rng(0).standard_normal(X.shape[1])
    for _ in range(15):
        v = transposed @ (X @ v) / len(y)
        curvature = float(np.linalg.norm(v))
        v /= curvature
    w, ahead, momentum = start, start, 1.0
    for _ in range(steps):
        new = _onto_ball(ahead - transposed @ (X @ ahead - y) / (1.05 * curvature * len(y)))
        faster = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        ahead, w, momentum = new + (momentum - 1) / faster * (new - w), new, faster
    return float(np.mean((y - X @ w) ** 2) / 2)


def _excess(n: int, d: int, trial: int) -> tuple[float, float]:
    """Excess risk of the private model, and of the constant 0."""
    warnings.simplefilter("ignore")
    X, y, weights = lasso_domain(n, d, seed=trial)
    least = _least_risk(X, y, weights)
    model = SparseRegressor(
        EPSILON,
        DELTA,
        n_nonzero=d,
        method=FrankWolfe(radius=1.0, noise="selection"),
        bounds=Bounds(row_linf=1.0, label=1.0),
        fit_intercept=False,
        random_state=trial,
    ).fit(X, y)
    return float(np.mean((y - model.predict(X)) ** 2) / 2 - least), float(np.mean(y**2) / 2 - least)


def risk(trials: int = 5) -> None:
    """Excess risk of private Frank-Wolfe against n, for few and for many features."""
    figure, axes = plt.subplots(figsize=(6.6, 4.6), layout="constrained")
    rows: list[tuple[object, ...]] = []
    for (d, sizes), colour in zip(SIZES.items(), (BLUE, ORANGE)):
        means = []
        for n in sizes:
            found = np.array(Parallel(n_jobs=2)(delayed(_excess)(n, d, trial) for trial in range(trials)))
            means.append(found[:, 0].mean())
            rows.append((d, n, found[:, 0].mean(), found[:, 0].std(), found[:, 1].mean()))
            print(*rows[-1], flush=True)
        # Where nothing can be learnt yet there is no rate: the slope is that of the second half of the sizes.
        half = len(sizes) // 2
        slope = np.polyfit(np.log(sizes[half:]), np.log(means[half:]), 1)[0]
        axes.plot(sizes, means, "o-", color=colour, label=f"d = {d:,}: slope {slope:.2f} from n = {sizes[half]:,} on")
        rows.append((d, "slope", slope, "", ""))
    ends = np.array([sizes[0], 128_000])
    axes.plot(ends, 0.25 * ends ** (-2 / 3), color=GREY, linestyle="--", label="the theorem's rate, slope −2/3")
    axes.axhline(float(rows[0][4]), color=GREY, linewidth=1)  # type: ignore[arg-type]
    axes.annotate("the zero model", (128_000, float(rows[0][4])), (0, 3), textcoords="offset points", ha="right")  # type: ignore[arg-type]
    axes.set(xscale="log", yscale="log", xlabel="rows n", ylabel="excess empirical risk")
    axes.set_title(f"Private LASSO on the unit ℓ1-ball, ε = {EPSILON:g}, δ = {DELTA:g}", fontsize=11)
    axes.legend(frameon=False)
    save(figure, "excess_risk", ("d", "n", "excess_risk", "standard_deviation", "zero_model"), rows)


PICTURES: dict[str, Callable[[], None]] = {"risk": risk}

if __name__ == "__main__":
    # As a module of its own, so that worker processes can import it.
    import lasso

    for picture in sys.argv[1:] or list(lasso.PICTURES):
        lasso.PICTURES[picture]()
