"""How one row swaps the support of DPSL-KT's teacher: `python docs/pictures/support_swap.py [redraw]`, a few minutes.

Left and middle: the pair of examples/audit_dpsl_kt.py, exactly. Right: random neighbours of the paper's own synthetic
data. No data set is needed.
"""

from __future__ import annotations

import csv
import sys

import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse as sp
from draw import BLUE, GREY, HERE, INK, ORANGE, save

from tulle.datasets import dpsl_kt_figure2
from tulle.trusted.events import FloatArray

sys.path.insert(0, str(HERE.parent.parent / "examples"))
from audit_dpsl_kt import PENALTY, N, neighbours

Row = tuple[object, ...]

# Of the paper's figure 2, and how many weights the teacher keeps; lambda is tulle's default with c1 = 1 at (1, 0.01).
ROWS, FEATURES, TRUE_WEIGHTS, KEPT = 800, 1000, 10, (10, 20, 50)
DATA_SETS, NEIGHBOURS, STEPS = 20, 20, 100
HEADER = ("what", "data_set", "weights_kept", "penalty", "label", "distance", "bound", "support_changed")


# --- the pair ---------------------------------------------------------------------------------------------------------


def sparse_teacher(X: FloatArray, y: FloatArray, penalty: float) -> FloatArray:
    """The exact minimiser of the penalised mean squared error / 2 with one non-zero weight."""
    scores, squares = X.T @ y / len(y), (X**2).mean(axis=0) + penalty
    best = int(np.argmax(scores**2 / squares))
    theta = np.zeros(X.shape[1])
    theta[best] = scores[best] / squares[best]
    return theta


def claimed_bound(n: int, s: int, gamma: float, curvature: float) -> float:
    """How far the teacher moves at most, according to the paper: 2 sqrt(s) gamma / (n lambda)."""
    return float(2 * np.sqrt(s) * gamma / (n * curvature))


def sliding_label(labels: FloatArray) -> tuple[FloatArray, FloatArray]:
    """How far the sparse and the dense teacher are from those at label -1, as the label of one row slides to 1."""
    (X, first), (_, last) = neighbours()
    row = int(np.flatnonzero(first != last)[0])
    sparse, dense = [], []
    for label in (-1.0, *labels):
        y = first.copy()
        y[row] = label
        sparse.append(sparse_teacher(X, y, PENALTY))
        dense.append(np.linalg.solve(X.T @ X / N + PENALTY * np.eye(2), X.T @ y / N))
    distances = [np.linalg.norm(np.array(theta[1:]) - theta[0], axis=1) for theta in (sparse, dense)]
    return distances[0], distances[1]


# --- random neighbours ------------------------------------------------------------------------------------------------


def _kept(columns: FloatArray, s: int) -> FloatArray:
    """The s largest magnitudes of each column."""
    top = np.argpartition(np.abs(columns), len(columns) - s, axis=0)[len(columns) - s :]
    kept = np.zeros_like(columns)
    np.put_along_axis(kept, top, np.take_along_axis(columns, top, axis=0), axis=0)
    return kept


def teachers(
    X: FloatArray, y: FloatArray, replaced: FloatArray, rows: FloatArray, labels: FloatArray, s: int, penalty: float
) -> FloatArray:
    """IGHT as `HardThresholding(penalty=...)` runs it without privacy, on many neighbours of (X, y) at once.

    In column b, row `replaced[b]` is (rows[b], labels[b]).
    """
    each, transposed = np.arange(len(replaced)), np.ascontiguousarray(X.T)
    targets = np.repeat(y[:, None], len(each), axis=1)
    targets[replaced, each] = labels

    def margins(weights: FloatArray) -> FloatArray:
        found = np.asarray(sp.csr_array(weights.T) @ transposed).T  # few weights are not zero
        found[replaced, each] = np.einsum("bd,db->b", rows, weights)
        return found

    w = np.zeros((X.shape[1], len(each)))
    for _ in range(STEPS):
        residuals = margins(w) - targets
        own = residuals[replaced, each].copy()
        residuals[replaced, each] = 0.0
        gradient = (transposed @ residuals + rows.T * own) / len(y)
        staying = np.where(w != 0, gradient, 0.0)
        curvature = np.zeros(len(each))
        for along in (np.where(w != 0, gradient, _kept(gradient, s)), staying):
            square = np.maximum((along**2).sum(axis=0), 1e-300)
            curvature = np.maximum(curvature, (margins(along) ** 2).mean(axis=0) / square)
        step = 1 / np.maximum(curvature + penalty, 1e-12)
        w = _kept(w * (1 - step * penalty) - step * gradient, s)
    return w


def random_neighbours(
    seed: int, s: int, penalty: float, count: int = NEIGHBOURS
) -> tuple[FloatArray, FloatArray, float]:
    """How far the teacher moves, whether its support changes, and gamma, when a random row is replaced by a fresh one.

    gamma is the largest entry of any row's gradient at the teacher: the least that the paper can take for these rows.
    """
    problem = dpsl_kt_figure2(ROWS, FEATURES, TRUE_WEIGHTS, seed=seed)
    rng = np.random.default_rng(1000 + seed)
    replaced = rng.integers(0, ROWS, count + 1)
    rows = rng.uniform(-1, 1, (count + 1, FEATURES))
    labels = rows @ problem.weights + rng.normal(0, np.sqrt(0.1), count + 1)
    rows[0], labels[0] = problem.X[replaced[0]], problem.y[replaced[0]]  # the first is the data set itself
    w = teachers(problem.X, problem.y, replaced, rows, labels, s, penalty)
    gamma = float(np.abs((problem.X @ w[:, 0] - problem.y)[:, None] * problem.X).max())
    changed = ((w[:, 1:] != 0) != (w[:, :1] != 0)).any(axis=0)
    return np.linalg.norm(w[:, 1:] - w[:, :1], axis=0), changed, gamma


def default_penalty(s: int) -> float:
    """The default lambda of `KnowledgeTransfer("published")` with c1 = 1 at epsilon = 1, delta = 0.01."""
    return float(np.sqrt(s * np.log(FEATURES) * np.log(100) / ROWS))


def measure() -> list[Row]:
    rows: list[Row] = []
    for s in KEPT:
        for penalty in (0.0, default_penalty(s)):
            for seed in range(DATA_SETS):
                distances, changed, gamma = random_neighbours(seed, s, penalty)
                bound = f"{claimed_bound(ROWS, s, gamma, penalty):.4g}" if penalty else ""
                rows += [
                    ("neighbour", seed, s, f"{penalty:.4g}", "", f"{distance:.4g}", bound, int(swapped))
                    for distance, swapped in zip(distances, changed)
                ]
            mine = rows[-DATA_SETS * NEIGHBOURS :]
            above = np.mean([float(str(row[5])) > float(str(row[6])) for row in mine]) if penalty else np.nan
            print(
                s, penalty, "changed", np.mean([int(str(row[7])) for row in mine]), "above the bound", above, flush=True
            )
    return rows


# --- the picture ------------------------------------------------------------------------------------------------------


def levels(axes: plt.Axes) -> None:
    """Level lines of both objectives, and the sparse minimiser that jumps from one axis to the other."""
    ends = []
    for (X, y), colour, label, style in zip(neighbours(), (BLUE, ORANGE), ("+1", "−1"), ("-", (0, (5, 5)))):
        centre = X.T @ y / N / (1 + PENALTY)
        best = sparse_teacher(X, y, PENALTY)
        for radius in (0.1, 0.175, float(np.linalg.norm(best - centre)), 0.33):
            axes.add_patch(plt.Circle(tuple(centre), radius, fill=False, color=colour, linestyle=style, linewidth=1.2))
        axes.plot(*centre, "+", color=colour, markersize=9)
        axes.plot(*best, "o", color=colour, markersize=9, zorder=5, label=f"the label is {label}")
        ends.append(best)
    axes.axhline(0, color=INK, linewidth=2.5, zorder=2)
    axes.axvline(0, color=INK, linewidth=2.5, zorder=2)
    jump = float(np.linalg.norm(ends[0] - ends[1]))
    axes.annotate("", ends[1], ends[0], arrowprops={"arrowstyle": "<->", "color": INK, "shrinkA": 6, "shrinkB": 6})
    axes.annotate(f"{jump:.3f}", (0.094, 0.104), color=INK, rotation=-45, ha="center", va="center")
    axes.set(xlim=(-0.12, 0.63), ylim=(-0.12, 0.72), aspect="equal", xlabel="$\\theta_1$", ylabel="$\\theta_2$")
    axes.grid(False)
    axes.legend(frameon=False, loc="upper right", fontsize=9)
    axes.set_title("One label of 1,000: the same level lines,\nthe other axis", loc="left", fontsize=11)


def sliding(axes: plt.Axes) -> list[Row]:
    """How far the teacher moves as the label slides, against the paper's bound."""
    labels = np.r_[np.linspace(-0.999, -0.001, 40), np.linspace(0.001, 1, 40)]
    sparse, dense = sliding_label(labels)
    bound = claimed_bound(N, 1, 1 + 1 / (1 + PENALTY), PENALTY)
    for side in (labels < 0, labels > 0):
        axes.plot(labels[side], sparse[side], color=ORANGE, linewidth=2.5, label="one weight kept" if side[0] else None)
    axes.plot(labels, dense, color=BLUE, linewidth=1.5, label="both weights kept")
    axes.axhline(bound, color=GREY, linestyle="--", linewidth=1.5)
    axes.annotate(f"the paper's bound: {bound:.4f}", (1, bound), (0, 4), textcoords="offset points", ha="right")
    axes.annotate(f"{sparse[-1]:.3f}", (0.5, sparse[-1]), (0, -14), textcoords="offset points", color=ORANGE)
    axes.set(yscale="log", ylim=(1e-6, 1.5), xlabel="the label of one row", xticks=(-1, -0.5, 0, 0.5, 1))
    axes.set_ylabel("distance to the teacher at label −1")
    axes.legend(frameon=False, loc="lower right", fontsize=9)
    axes.set_title("As that label slides from −1 to 1", loc="left", fontsize=11)
    rows: list[Row] = []
    for what, distances in (("sliding label, sparse", sparse), ("sliding label, dense", dense)):
        rows += [
            (what, "", 1 if "sparse" in what else 2, PENALTY, f"{x:.4g}", f"{y:.4g}", f"{bound:.4g}", "")
            for x, y in zip(labels, distances)
        ]
    return rows


def strips(axes: plt.Axes, rows: list[Row]) -> None:
    """Distances of random neighbours, over the bound."""
    rng = np.random.default_rng(0)
    for place, s in enumerate(KEPT):
        mine = [row for row in rows if int(str(row[2])) == s and row[6] != ""]
        over = np.array([float(str(row[5])) / float(str(row[6])) for row in mine])
        changed = np.array([int(str(row[7])) for row in mine], dtype=bool)
        x = place + rng.uniform(-0.3, 0.3, len(mine))
        for side, colour, words in ((~changed, BLUE, "the same support"), (changed, ORANGE, "another support")):
            axes.plot(
                x[side],
                over[side],
                "o",
                color=colour,
                markersize=3,
                alpha=0.6,
                rasterized=True,
                label=None if place else words,
            )
        axes.annotate(f"{100 * changed.mean():.0f} % swapped", (place, 4.5), ha="center", fontsize=9, color=INK)
    axes.axhline(1, color=GREY, linestyle="--", linewidth=1.5)
    axes.set(
        yscale="log",
        ylim=(0.0015, 7),
        xticks=range(len(KEPT)),
        xlabel="weights kept, s",
        ylabel="distance over the paper's bound",
    )
    axes.set_xticklabels([str(s) for s in KEPT])
    axes.legend(frameon=False, loc="lower right", fontsize=9, markerscale=2)
    axes.set_title("A random row replaced by a fresh one,\nthe paper's synthetic data", loc="left", fontsize=11)


def main(redraw: bool = False) -> None:
    """Measure and draw; `redraw` takes the random neighbours from the CSV file of the last time."""
    if redraw:
        with (HERE / "support_swap.csv").open(newline="") as file:
            measured: list[Row] = [tuple(row) for row in csv.reader(file) if row[0] == "neighbour"]
    else:
        measured = measure()
    figure, panels = plt.subplots(1, 3, figsize=(14.5, 4.7), layout="constrained")
    levels(panels[0])
    slid = sliding(panels[1])
    strips(panels[2], measured)
    save(figure, "support_swap", HEADER, [*slid, *measured])


if __name__ == "__main__":
    main(redraw="redraw" in sys.argv[1:])
