"""Local privacy of whole rows: `python docs/pictures/local.py`, about a quarter of an hour on two cores.

Error against p at a fixed n, |w*| = 1 and five non-zero weights; and how much less variance PrivUnit has than the
hemisphere, measured on answers. Measurements are kept in the folder that TULLE_PICTURE_CACHE names, if any.
"""

from __future__ import annotations

import math
import os
import warnings
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from draw import BLUE, GREEN, GREY, ORANGE, save
from joblib import Memory, Parallel, delayed

from tulle import Bounds
from tulle.experiments.label_error import Study, label_problem
from tulle.local import LocalSparseRegressor, OneRoundSparseRegressor
from tulle.local.user_side.ball import PrivUnit
from tulle.local.user_side.uniforms import SeededUniforms

USERS, TRIALS, NON_ZERO = 100_000, 6, 5
FEATURES = (6, 12, 25, 50, 100, 200, 400)
EPSILONS = (1.0, 4.0)
PRIV_UNIT, HEMISPHERE, ONE_ROUND = "LDP-IHT, PrivUnit", "LDP-IHT, hemisphere", "one round, PrivUnit"

memory = Memory(os.environ.get("TULLE_PICTURE_CACHE"), verbose=0)


@memory.cache
def _row_errors(p: int, epsilon: float, seed: int) -> dict[str, float]:
    warnings.simplefilter("ignore")
    X, y, weights = label_problem(Study(USERS, p, NON_ZERO), 0.05, (USERS, p, NON_ZERO, seed))
    length = float(np.linalg.norm(weights))
    y, weights = y / length, weights / length
    common: dict[str, Any] = {
        "n_nonzero": NON_ZERO,
        "bounds": Bounds(row_linf=1.0, label=2.0),
        "fit_intercept": False,
        "random_state": seed,
    }
    models = {
        PRIV_UNIT: LocalSparseRegressor(epsilon, **common),
        HEMISPHERE: LocalSparseRegressor(epsilon, ball="hemisphere", **common),
        ONE_ROUND: OneRoundSparseRegressor(epsilon, **common),
    }
    return {name: float(np.linalg.norm(model.fit(X, y).coef_ - weights)) for name, model in models.items()}


@memory.cache
def _variance_gain(epsilon: float, dimension: int = 1_000, users: int = 4_000) -> float:
    """The hemisphere's variance over PrivUnit's, from answers to one and the same vector."""
    value = np.tile(np.r_[0.6, np.zeros(dimension - 2), -0.3], (users, 1))
    variances = []
    for channel in (PrivUnit.hemisphere(epsilon, 1.0, dimension), PrivUnit.best(epsilon, 1.0, dimension)):
        uniforms = SeededUniforms(0, range(users)).draw(users, channel.n_uniforms)
        variances.append(float((channel.unit * channel.answer(value, uniforms)).var(axis=0).sum()))
    return variances[0] / variances[1]


def wall() -> None:
    """Error against p for whole rows; PrivUnit against the hemisphere."""
    figure, (axes, gains) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained", width_ratios=(1.7, 1))
    rows: list[tuple[object, ...]] = []
    styles = {PRIV_UNIT: ("-", "o"), HEMISPHERE: ("--", "^"), ONE_ROUND: (":", "s")}
    for epsilon, colour in zip(EPSILONS, (ORANGE, BLUE)):
        found = {
            p: Parallel(n_jobs=2)(delayed(_row_errors)(p, epsilon, seed) for seed in range(TRIALS)) for p in FEATURES
        }
        for name, (line, marker) in styles.items():
            means = [float(np.mean([one[name] for one in found[p]])) for p in FEATURES]
            axes.plot(
                FEATURES, means, line, marker=marker, markersize=4, color=colour, label=f"{name}, ε = {epsilon:g}"
            )
            for p, mean in zip(FEATURES, means):
                deviation = float(np.std([one[name] for one in found[p]], ddof=1)) / math.sqrt(TRIALS)
                rows.append(("error", name, p, epsilon, USERS, f"{mean:.6g}", f"{deviation:.3g}"))
        least = [math.sqrt(p / (USERS * epsilon**2)) for p in FEATURES]
        axes.plot(FEATURES, least, color=colour, linewidth=6, alpha=0.18)
    axes.plot([], [], color=GREY, linewidth=6, alpha=0.4, label="√(p/(nε²)), up to a constant: no method avoids it")
    axes.axhline(1.0, color=GREY, linewidth=1)
    axes.annotate("the zero model", (FEATURES[0], 1.0), (0, 4), textcoords="offset points", fontsize=9)
    axes.set(xscale="log", yscale="log", xlabel="features p", ylabel="error |ŵ − w*|, |w*| = 1", ylim=(1.2e-4, None))
    axes.set_title(f"whole rows private, {USERS:,} users", fontsize=11)
    axes.set_xticks(FEATURES, [str(p) for p in FEATURES])
    axes.minorticks_off()
    axes.legend(frameon=False, fontsize=8, loc="lower right", ncols=2)

    epsilons = np.array([0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0])
    measured = [_variance_gain(float(epsilon)) for epsilon in epsilons]
    fine = np.linspace(0.3, 8.2, 60)
    exact = [(PrivUnit.best(e, 1.0, 1000).mean / PrivUnit.hemisphere(e, 1.0, 1000).mean) ** 2 for e in fine]
    gains.plot(fine, exact, color=GREY, linewidth=1.5, label="from the constants")
    gains.plot(epsilons, measured, "o", color=GREEN, label="measured on 4,000 answers")
    for epsilon, gain in zip(epsilons, measured):
        rows.append(("variance gain", "PrivUnit", 1_000, epsilon, 4_000, f"{gain:.5g}", ""))
        if epsilon in (1, 4, 8):
            gains.annotate(f"{gain:.3g}", (epsilon, gain), (-6, 6), textcoords="offset points", ha="right", fontsize=9)
    gains.set(xlabel="ε", ylabel="hemisphere's variance over PrivUnit's", yscale="log")
    gains.set_yticks([1, 2, 4, 8, 12], ["1", "2", "4", "8", "12"])
    gains.minorticks_off()
    gains.set_title("p = 1,000", fontsize=11)
    gains.legend(frameon=False, fontsize=9, loc="upper left")
    save(figure, "whole_rows", ("panel", "method", "p", "epsilon", "n", "mean", "standard_error"), rows)


if __name__ == "__main__":
    wall()
