"""DP-IHT on Covertype, after figure 2 of Wang and Xu (ICML 2019): `python docs/pictures/covertype_gap.py`.

Needs the folder with the data set in TULLE_DATA, and about 10 minutes on two cores; what is measured is kept in the
folder that TULLE_PICTURE_CACHE names, if any.

Drawn is first the optimality gap F(ŵ) − F(w*) against n, F(w) = (λ/2)|w|² + the mean logistic loss of the first n rows
(shuffled once; normalised, class 2 against the rest, no intercept), for several k, p and ε. p takes the first p
columns. In the first line of panels all weights lie in the unit ball, as the paper has it: DP-IHT and hard
thresholding project each step, the weights that "auto" released are scaled down. In the second there is no ball. w* is
the best weights with k non-zeros in the same set that were found: exact minimisers on the supports of non-private IHT,
of greedy searches, of swaps of columns, and of the best private runs: no gap is negative, but a better w* may exist.
DP-IHT is run with T = 400, slopes up to 1 and the step 1 / (1/4 + λ). "auto" minimises no penalty: its long weights are
judged by F all the same, and the third line shows what the second is without (λ/2)|w|²; there it can be below w*.
Trials differ in noise alone.
"""

from __future__ import annotations

import math
import os
import warnings
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse as sp
from draw import BLUE, GREEN, GREY, INK, ORANGE, save
from joblib import Memory, Parallel, delayed
from matplotlib.lines import Line2D
from scipy.special import expit

from tulle import Bounds, SparseClassifier
from tulle.datasets import load_covertype
from tulle.events import FloatArray
from tulle.methods import HardThresholding

PENALTY, DELTA, STEPS, TRIALS = 1e-3, 1e-3, 400, 5
STEP = 1 / (0.25 + PENALTY)  # 1 / the smoothness of F
ROWS = (5_000, 20_000, 60_000, 200_000)
# The panels: what varies, and its values. The others are at k = 10, p = 54, epsilon = 1.
VARIED: dict[str, tuple[float, ...]] = {"k": (5, 10, 20), "p": (14, 30, 54), "ε": (0.25, 1.0, 4.0)}
USUAL = {"k": 10, "p": 54, "ε": 1.0}
DP_IHT, PRINTED, DEFAULT, AUTO = "DP-IHT", "DP-IHT, printed noise", "HardThresholding()", "auto"
STYLES: dict[str, dict[str, Any]] = {
    DP_IHT: {"linestyle": "-", "marker": "o", "markersize": 4, "linewidth": 1.8},
    PRINTED: {"linestyle": "", "marker": "x", "markersize": 8},
    DEFAULT: {"linestyle": ":", "marker": "s", "markersize": 3, "linewidth": 1.5},
    AUTO: {"linestyle": "--", "marker": "^", "markersize": 4, "linewidth": 1.3},
}
# The best features are looked for in so many rows; weights on them are fitted to all.
SEARCHED = ROWS[:3]

memory = Memory(os.environ.get("TULLE_PICTURE_CACHE"), verbose=0)


class Cell(NamedTuple):
    """One setting."""

    ball: bool
    method: str
    k: int
    p: int
    epsilon: float
    n: int


@lru_cache(maxsize=1)
def _all_rows() -> tuple[Any, FloatArray]:
    data = load_covertype()
    return sp.csr_array(np.vstack([data.X_train, data.X_test])), np.concatenate([data.y_train, data.y_test])


def _rows(p: int, n: int) -> tuple[Any, FloatArray]:
    X, y = _all_rows()
    return sp.csr_array(X[:n, :p]), y[:n]


def _model(cell: Cell, seed: int) -> SparseClassifier:
    common: dict[str, Any] = {"penalty": PENALTY, "ball": 1.0 if cell.ball else None}
    method: Any = cell.method
    if cell.method == DEFAULT:
        method = HardThresholding(**common)
    elif cell.method in (DP_IHT, PRINTED):
        method = HardThresholding(STEPS, STEP, clip=1.0, noise="gaussian", published_rule="ldp", **common)
    return SparseClassifier(
        cell.epsilon,
        DELTA,
        n_nonzero=cell.k,
        method=method,
        bounds=Bounds(normalise=True),
        calibration="published" if cell.method == PRINTED else "rigorous",
        fit_intercept=False,
        random_state=seed,
    )


@memory.cache
def _released(cell: Cell, seed: int) -> tuple[FloatArray, float]:
    """The weights of one private fit, and the epsilon that is proved for it."""
    warnings.simplefilter("ignore")
    model = _model(cell, seed).fit(*_rows(cell.p, cell.n))
    return model.coef_.ravel(), model.privacy_.epsilon


# --- the best without privacy ----------------------------------------------------------------------------------------


class _Objective:
    """F on n rows of p columns, and its minimisers on a few columns, in the unit ball or not."""

    def __init__(self, p: int, n: int, ball: bool) -> None:
        X, y = _rows(p, n)
        # By columns, each row times its sign: few columns are in play at a time.
        norms = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
        scale = np.where(y == 1, 1.0, -1.0) / np.maximum(norms, 1e-300)
        self.columns = np.asfortranarray((sp.diags_array(scale) @ X).toarray())
        self.n, self.ball = n, ball

    def value(self, w: FloatArray) -> float:
        at = np.flatnonzero(w)
        return float(np.logaddexp(0.0, -self.columns[:, at] @ w[at]).mean() + PENALTY / 2 * w @ w)

    def gradient(self, w: FloatArray) -> FloatArray:
        return np.asarray(PENALTY * w - expit(-self.columns @ w) @ self.columns / self.n)

    def minimiser(self, support: tuple[int, ...]) -> FloatArray:
        """By Newton's steps, for the weights and for the ridge at which they come into the ball."""
        Z, theta, ridge = self.columns[:, list(support)], np.zeros(len(support)), PENALTY
        for _ in range(50):
            q = expit(-Z @ theta)
            gradient = ridge * theta - q @ Z / self.n
            curvature = (Z.T * (q * (1 - q))) @ Z / self.n + ridge * np.eye(len(support))
            theta = theta - np.linalg.solve(curvature, gradient)
            length = float(np.linalg.norm(theta))
            outside = self.ball and (length > 1 or ridge > PENALTY)
            if np.linalg.norm(gradient) < 1e-8 and not (outside and abs(length - 1) > 1e-7):
                break
            if outside:
                slope = theta @ np.linalg.solve(curvature, theta) / length**3
                ridge = max(PENALTY, ridge + (1 - 1 / length) / slope)
        w = np.zeros(self.columns.shape[1])
        w[list(support)] = theta / max(1.0, length) if self.ball else theta
        return w


def _support(w: FloatArray) -> tuple[int, ...]:
    return tuple(int(j) for j in np.flatnonzero(w))


def _steepest(objective: _Objective, w: FloatArray, count: int) -> list[int]:
    """The columns of weight 0 with the largest gradients."""
    steep = np.where(w == 0, np.abs(objective.gradient(w)), -1.0)
    return [int(j) for j in np.argsort(-steep)[:count]]


def _greedy(objective: _Objective, k: int) -> FloatArray:
    w = np.zeros(objective.columns.shape[1])
    for _ in range(k):
        w = objective.minimiser((*_support(w), *_steepest(objective, w, 1)))
    return w


def _swapped(objective: _Objective, w: FloatArray) -> FloatArray:
    """One column for another (of the three that then promise most), as long as that helps."""
    while True:
        tried = [w]
        for j in _support(w):
            fewer = tuple(i for i in _support(w) if i != j)
            without = objective.minimiser(fewer)
            tried += [objective.minimiser((*fewer, new)) for new in _steepest(objective, without, 4) if new != j][:3]
        best = min(tried, key=objective.value)
        if objective.value(best) > objective.value(w) - 1e-9:
            return w
        w = best


@memory.cache
def _candidates(ball: bool, p: int, k: int) -> set[tuple[int, ...]]:
    """Supports that are good without privacy, found in a few numbers of rows."""
    warnings.simplefilter("ignore")
    supports: set[tuple[int, ...]] = set()
    for n in SEARCHED:
        objective = _Objective(p, n, ball)
        supports.add(_support(_greedy(objective, k)))
        for step in (None, STEP):
            method = HardThresholding(STEPS, step, penalty=PENALTY, ball=1.0 if ball else None)
            model = SparseClassifier(
                None, n_nonzero=k, method=method, bounds=Bounds(normalise=True), fit_intercept=False, random_state=0
            ).fit(*_rows(p, n))
            supports.add(_support(model.coef_.ravel()))
        fitted = [objective.minimiser(support) for support in supports]
        supports.add(_support(_swapped(objective, min(fitted, key=objective.value))))
    return supports


@memory.cache
def _gaps(
    ball: bool, p: int, n: int, supports: set[tuple[int, ...]], released: FloatArray
) -> tuple[float, FloatArray, FloatArray]:
    """F(w*), the gaps of the released weights, and the part of them that is logistic loss: without λ."""
    if ball:  # "auto" knows of none
        released = released / np.maximum(1.0, np.linalg.norm(released, axis=1))[:, None]
    objective = _Objective(p, n, ball)
    values = np.array([objective.value(w) for w in released])
    supports = supports | {_support(released[j]) for j in np.argsort(values)[:5]}
    best = min((objective.minimiser(support) for support in supports if support), key=objective.value)
    gaps = values - objective.value(best)
    return objective.value(best), gaps, gaps - PENALTY / 2 * ((released**2).sum(axis=1) - best @ best)


# --- measuring and drawing -------------------------------------------------------------------------------------------


def _cells(ball: bool, n: int) -> list[Cell]:
    cells = []
    for name, values in VARIED.items():
        for value in values:
            at = USUAL | {name: value}
            for method in STYLES:
                if method == PRINTED and name != "ε":
                    continue
                # One fit by "auto" serves for both: scaling it into the ball comes afterwards.
                cells.append(Cell(ball and method != AUTO, method, int(at["k"]), int(at["p"]), float(at["ε"]), n))
    return list(dict.fromkeys(cells))


def measure() -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    searches = list(dict.fromkeys((ball, cell.p, cell.k) for ball in (True, False) for cell in _cells(ball, 0)))
    with Parallel(n_jobs=2) as parallel:
        supports = dict(zip(searches, parallel(delayed(_candidates)(*search) for search in searches)))
        print("looked for the best supports", flush=True)
        for n in ROWS:
            cells = list(dict.fromkeys(_cells(False, n) + _cells(True, n)))
            runs = parallel(delayed(_released)(cell, seed) for cell in cells for seed in range(TRIALS))
            found = {cell: runs[TRIALS * j : TRIALS * (j + 1)] for j, cell in enumerate(cells)}
            jobs = []
            for ball in (True, False):
                groups: dict[tuple[int, int], list[Cell]] = {}
                for cell in _cells(ball, n):
                    groups.setdefault((cell.p, cell.k), []).append(cell)
                jobs += [(ball, p, k, members) for (p, k), members in groups.items()]
            answers = parallel(
                delayed(_gaps)(
                    ball, p, n, supports[ball, p, k], np.array([w for cell in members for w, _ in found[cell]])
                )
                for ball, p, k, members in jobs
            )
            for (ball, p, k, members), (least, *both) in zip(jobs, answers):
                gaps, losses = (part.reshape(len(members), TRIALS) for part in both)
                for cell, gap, loss in zip(members, gaps, losses):
                    setting = ("unit ball" if ball else "no ball", cell.method, k, p, cell.epsilon, n)
                    means = [m for part in (gap, loss) for m in (part.mean(), part.std(ddof=1) / math.sqrt(TRIALS))]
                    rows.append((*setting, found[cell][0][1], TRIALS, least, *means))
            print(f"n = {n:,}", flush=True)
    return rows


HEADER = (
    "weights_in",
    "method",
    "k",
    "p",
    "epsilon",
    "n",
    "proved_epsilon",
    "trials",
    "least_objective",
    "gap",
    "standard_error",
    "excess_logistic_loss",
    "excess_logistic_loss_standard_error",
)
WORDS = {
    DP_IHT: f"DP-IHT, T = {STEPS}, noise that proves ε",
    PRINTED: "DP-IHT, the printed noise (c = 1)",
    DEFAULT: "HardThresholding() as it comes",
    AUTO: 'tulle as it comes (method="auto"), no λ',
}


COLOURS = (ORANGE, BLUE, GREEN)
# The lines of panels: which measurements, from which of their columns on, and what these are.
DRAWN = (
    ("unit ball", 0, "F(ŵ) − F(w*), both in the unit ball"),
    ("no ball", 0, "F(ŵ) − F(w*), no ball"),
    ("no ball", 2, "the same in logistic loss alone, without λ"),
)


def picture(rows: list[tuple[Any, ...]]) -> None:
    """Draws and saves what was measured."""
    figure, grid = plt.subplots(3, len(VARIED), figsize=(13, 11), layout="constrained", sharex=True, sharey="row")
    measured = {row[:6]: row[9:] for row in rows}
    for (line, (place, first, words)), (column, (name, values)) in product(enumerate(DRAWN), enumerate(VARIED.items())):
        axes = grid[line, column]
        for (value, colour), (method, style) in product(zip(values, COLOURS), STYLES.items()):
            at = USUAL | {name: value}
            settings = [(place, method, at["k"], at["p"], at["ε"], n) for n in ROWS]
            if method == PRINTED and name != "ε":
                continue
            points = np.array([(s[-1], *measured[s][first : first + 2]) for s in settings if s in measured])
            axes.errorbar(*points.T, color=colour, elinewidth=1, **style)
        axes.set(xscale="log", yscale="linear" if first else "log")
        axes.set_xticks(ROWS, [f"{n:,}" for n in ROWS], fontsize=9)
        axes.minorticks_off()
        if column == 0:
            axes.set_ylabel(words)
        if line == 0:
            fixed = ", ".join(f"{other} = {USUAL[other]:g}" for other in VARIED if other != name)
            axes.set_title(f"{name} varies; {fixed}", fontsize=11)
            colours = [Line2D([], [], color=c, linewidth=3, label=f"{name} = {v:g}") for v, c in zip(values, COLOURS)]
            axes.legend(handles=colours, frameon=False, fontsize=9, loc="lower left")
        if line == len(DRAWN) - 1:
            axes.axhline(0.0, color=GREY, linewidth=1)
            axes.set_xlabel("rows n")
    lines = [Line2D([], [], color=INK, label=WORDS[method], **style) for method, style in STYLES.items()]
    figure.legend(handles=lines, loc="outside lower center", ncols=4, frameon=False, fontsize=10)
    figure.suptitle(
        f"Covertype, logistic, λ = {PENALTY:g}, δ = {DELTA:g}, mean of {TRIALS} trials and its standard error",
        fontsize=11,
    )
    save(figure, "covertype_gap", HEADER, rows)


def draw() -> None:
    """The optimality gap against the number of rows."""
    picture(measure())


if __name__ == "__main__":
    # As a module of its own, so that worker processes import it once and keep the data that they have read.
    import covertype_gap

    covertype_gap.draw()
