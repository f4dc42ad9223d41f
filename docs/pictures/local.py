"""Local privacy: `python docs/pictures/local.py [labels] [wall]`, about half an hour on two cores.

`labels`, after figure 1 of Wang and Xu (ICML 2019): relative error against n where labels alone are private, x uniform
on {-1, 1}^p, the s* non-zero weights uniform on [0, 1], noise uniform on [-0.05, 0.05], δ = 1e-3 for the Gaussian.
Labels are clipped to √s* + 1. The paper's algorithm has its printed T = ⌈log(n/p)⌉ and η = 0.2.

`wall`: error against p at a fixed n where whole rows are private, |w*| = 1 and five non-zero weights; and how much
less variance PrivUnit has than the hemisphere, measured on answers.

What is measured is kept in the folder that TULLE_PICTURE_CACHE names, if any.
"""

from __future__ import annotations

import math
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from draw import BLUE, GREEN, GREY, INK, ORANGE, save
from joblib import Memory, Parallel, delayed

from tulle import Bounds
from tulle.events import FloatArray
from tulle.local import LabelPrivateSparseRegressor, LocalSparseRegressor, OneRoundSparseRegressor
from tulle.local.ball import PrivUnit
from tulle.local.uniforms import SeededUniforms

TRIALS = 10
USERS = (2_000, 4_000, 8_000, 16_000, 32_000)
USUAL = {"p": 1_000, "s*": 10, "ε": 1.0}
VARIED: dict[str, tuple[float, ...]] = {"p": (250, 500, 1_000, 2_000), "s*": (5, 10, 20), "ε": (0.5, 1.0, 2.0, 4.0)}
CHOSEN, GAUSSIAN, PAPER = "chosen randomiser", "Gaussian, the same fit after", "Gaussian and IHT as printed"
STYLES: dict[str, dict[str, Any]] = {
    CHOSEN: {"linestyle": "-", "marker": "o", "markersize": 4, "linewidth": 2.0},
    GAUSSIAN: {"linestyle": "--", "marker": "^", "markersize": 4, "linewidth": 1.3},
    PAPER: {"linestyle": ":", "marker": "s", "markersize": 3, "linewidth": 1.3},
}
PURPLE = "#7a3fa0"

memory = Memory(os.environ.get("TULLE_PICTURE_CACHE"), verbose=0)


def _rows(n: int, p: int, s: int, seed: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    rng = np.random.default_rng([n, p, s, seed])
    X = rng.integers(0, 2, (n, p), dtype=np.int8) * 2.0 - 1.0
    weights = np.zeros(p)
    weights[rng.choice(p, s, replace=False)] = rng.uniform(0, 1, s)
    return X, X @ weights + rng.uniform(-0.05, 0.05, n), weights


@memory.cache
def _label_errors(n: int, p: int, s: int, epsilon: float, seed: int) -> dict[str, float]:
    """The relative error of each method on one data set."""
    warnings.simplefilter("ignore")
    X, y, weights = _rows(n, p, s, seed)
    common: dict[str, Any] = {"n_nonzero": s, "bounds": Bounds(label=math.sqrt(s) + 1), "fit_intercept": False}
    paper: dict[str, Any] = {"refit": False, "step": 0.2, "n_iter": max(1, math.ceil(math.log(n / p)))}
    models = {
        CHOSEN: LabelPrivateSparseRegressor(epsilon, **common, random_state=seed),
        GAUSSIAN: LabelPrivateSparseRegressor(epsilon, 1e-3, randomiser="gaussian", **common, random_state=seed),
        PAPER: LabelPrivateSparseRegressor(epsilon, 1e-3, randomiser="gaussian", **common, **paper, random_state=seed),
    }
    size = float(np.linalg.norm(weights))
    return {name: float(np.linalg.norm(model.fit(X, y).coef_ - weights)) / size for name, model in models.items()}


def labels() -> None:
    """Figure 1: relative error against n for several p, s* and ε."""
    figure, panels = plt.subplots(1, 3, figsize=(13, 4.6), layout="constrained", sharey=True)
    rows: list[tuple[object, ...]] = []
    for axes, (name, values) in zip(panels, VARIED.items()):
        for value, colour in zip(values, (ORANGE, BLUE, GREEN, PURPLE)):
            at = USUAL | {name: value}
            setting = (int(at["p"]), int(at["s*"]), float(at["ε"]))
            means: dict[str, list[float]] = {method: [] for method in STYLES}
            for n in USERS:
                found = Parallel(n_jobs=2)(delayed(_label_errors)(n, *setting, seed) for seed in range(TRIALS))
                for method in STYLES:
                    errors = [one[method] for one in found]
                    means[method].append(float(np.mean(errors)))
                    deviation = float(np.std(errors, ddof=1)) / math.sqrt(TRIALS)
                    rows.append((name, *setting, n, method, f"{np.mean(errors):.6g}", f"{deviation:.3g}"))
            for method, style in STYLES.items():
                axes.plot(USERS, means[method], color=colour, **style)
            axes.plot([], [], color=colour, linewidth=4, label=f"{name} = {value:g}")
        others = ", ".join(f"{other} = {value:g}" for other, value in USUAL.items() if other != name)
        axes.set(xscale="log", yscale="log", xlabel="users n", title=f"{name} varies; {others}")
        axes.title.set_fontsize(11)
        axes.set_xticks(USERS, [f"{n:,}" for n in USERS], fontsize=9)
        axes.minorticks_off()
        axes.legend(frameon=False, fontsize=9, loc="lower left")
    panels[0].set_ylabel("relative error |ŵ − w*| / |w*|")
    handles = [plt.Line2D([], [], color=INK, label=method, **style) for method, style in STYLES.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    header = ("panel", "p", "s", "epsilon", "n", "method", "relative_error", "standard_error")
    save(figure, "label_privacy", header, rows)


# --- whole rows ------------------------------------------------------------------------------------------------------

WALL_USERS, WALL_TRIALS, NON_ZERO = 100_000, 6, 5
FEATURES = (6, 12, 25, 50, 100, 200, 400)
WALL_EPSILONS = (1.0, 4.0)
PRIV_UNIT, HEMISPHERE, ONE_ROUND = "LDP-IHT, PrivUnit", "LDP-IHT, hemisphere", "one round, PrivUnit"


@memory.cache
def _row_errors(p: int, epsilon: float, seed: int) -> dict[str, float]:
    warnings.simplefilter("ignore")
    X, y, weights = _rows(WALL_USERS, p, NON_ZERO, seed)
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
    for epsilon, colour in zip(WALL_EPSILONS, (ORANGE, BLUE)):
        found = {
            p: Parallel(n_jobs=2)(delayed(_row_errors)(p, epsilon, seed) for seed in range(WALL_TRIALS))
            for p in FEATURES
        }
        for name, (line, marker) in styles.items():
            means = [float(np.mean([one[name] for one in found[p]])) for p in FEATURES]
            axes.plot(
                FEATURES, means, line, marker=marker, markersize=4, color=colour, label=f"{name}, ε = {epsilon:g}"
            )
            for p, mean in zip(FEATURES, means):
                deviation = float(np.std([one[name] for one in found[p]], ddof=1)) / math.sqrt(WALL_TRIALS)
                rows.append(("error", name, p, epsilon, WALL_USERS, f"{mean:.6g}", f"{deviation:.3g}"))
        least = [math.sqrt(p / (WALL_USERS * epsilon**2)) for p in FEATURES]
        axes.plot(FEATURES, least, color=colour, linewidth=6, alpha=0.18)
    axes.plot([], [], color=GREY, linewidth=6, alpha=0.4, label="√(p/(nε²)), up to a constant: no method avoids it")
    axes.axhline(1.0, color=GREY, linewidth=1)
    axes.annotate("the zero model", (FEATURES[0], 1.0), (0, 4), textcoords="offset points", fontsize=9)
    axes.set(xscale="log", yscale="log", xlabel="features p", ylabel="error |ŵ − w*|, |w*| = 1", ylim=(1.2e-4, None))
    axes.set_title(f"whole rows private, {WALL_USERS:,} users", fontsize=11)
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


PICTURES: dict[str, Callable[[], None]] = {"labels": labels, "wall": wall}

if __name__ == "__main__":
    for name in sys.argv[1:] or PICTURES:
        PICTURES[name]()
