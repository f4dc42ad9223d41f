"""Pictures of the stochastic family: `python docs/pictures/stochastic.py [rcv1_subset pneumonia]`, with TULLE_DATA set.

Five-fold validation loss of DP-SGD-HT, DP-SCSG-HT and DP-SVRG-HT, next to full gradients and the paper's tables.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from draw import BLUE, GREEN, GREY, INK, ORANGE, save
from joblib import Parallel, delayed
from sklearn.model_selection import KFold

from tulle import Bounds, SparseClassifier
from tulle.datasets import load_pneumonia, load_rcv1_subset
from tulle.methods import HardThresholding, StochasticHardThresholding

DELTA, PENALTY, FOLDS = 1e-5, 1e-5, 5
EPSILONS, DRAWN = (2.0, 4.0, 6.0, 8.0, 10.0), (4.0, 6.0)
PASSES = (1, 2, 4, 8, 16)
NAMES = {
    "sgd": "DP-SGD-HT",
    "scsg": "DP-SCSG-HT",
    "svrg": "DP-SVRG-HT",
    "full": "the same, full gradients",
    "hard_thresholding": "HardThresholding (DP-GD-HT)",
    "no privacy": "SCSG-HT, no privacy",
}
# What defaults bring: in the tables, not in the pictures.
WITHOUT = {
    "no memory": "DP-SGD-HT, memory=n_nonzero",
    "no difference clip": "DP-SCSG-HT, difference_clip=2",
    "fixed size": "DP-SGD-HT, batches of a fixed size",
    "shuffled": "DP-SGD-HT, shuffled epochs",
}
COLOURS = {
    "sgd": BLUE,
    "scsg": ORANGE,
    "svrg": GREEN,
    "full": "#8b4fb0",
    "hard_thresholding": GREY,
    "no privacy": INK,
}
# Of the paper's table 4: DP-SCSG-HT, the best private method there. (In its table 5 nothing was learnt.)
PUBLISHED = {4: 0.1662, 6: 0.1642}
TITLES = {"rcv1_subset": "RCV1 subset, 1,000 weights", "pneumonia": "PneumoniaMNIST, 200 weights"}
# Weights kept, and whether there is an intercept.
CASES = {"rcv1_subset": (1000, False), "pneumonia": (200, True)}


@lru_cache(maxsize=1)
def _rows(data: str) -> tuple[Any, Any]:
    if data == "rcv1_subset":
        split = load_rcv1_subset()
        return split.X_train, split.y_train
    split = load_pneumonia(validation=True)
    return 2 * split.X_train - 1, split.y_train  # the range of pixels is public, and its middle a better origin


def _method(name: str, passes: int | None, data: str) -> Any:
    if name == "hard_thresholding":  # half of what it reads is for damping
        return HardThresholding(n_iter=max((passes or 0) // 2, 1), penalty=PENALTY)
    if name == "full":
        return StochasticHardThresholding(batch=len(_rows(data)[1]), passes=passes, penalty=PENALTY)
    if name in WITHOUT:
        other: dict[str, dict[str, Any]] = {
            "no memory": {"memory": 1},
            "no difference clip": {"variant": "scsg", "difference_clip": 2.0},
            "fixed size": {"sampling": "without_replacement"},
            "shuffled": {"sampling": "shuffled"},
        }
        return StochasticHardThresholding(penalty=PENALTY, **other[name])
    variant = "scsg" if name == "no privacy" else name
    # Without noise small batches and many steps cost nothing but time.
    batch = 256 if name == "no privacy" else None
    return StochasticHardThresholding(variant=variant, batch=batch, passes=passes, penalty=PENALTY)


def _fold(data: str, name: str, epsilon: float | None, passes: int | None, fold: int) -> tuple[float, float, int]:
    """Validation loss of one fold, with the passes and thresholds that the fit reports."""
    warnings.simplefilter("ignore")
    X, y = _rows(data)
    train, test = list(KFold(FOLDS, shuffle=True, random_state=0).split(X))[fold]
    model = SparseClassifier(
        epsilon,
        DELTA,
        n_nonzero=CASES[data][0],
        method=_method(name, passes, data),
        bounds=Bounds(row_l2=1.0, normalise=True),
        fit_intercept=CASES[data][1],
        random_state=fold,
    ).fit(X[train], y[train])
    signs = np.where(y[test] == model.classes_[1], 1.0, -1.0)
    loss = float(np.logaddexp(0.0, -signs * model.decision_function(X[test])).mean())
    return loss, model.n_passes_, model.n_thresholds_


def _settings() -> Iterator[tuple[str, float | None, int | None]]:
    """Method, epsilon, passes; None for the default of passes."""
    for name in ("sgd", "scsg", "svrg"):
        for epsilon in EPSILONS:
            yield from ((name, epsilon, passes) for passes in ((None, *PASSES) if epsilon in DRAWN else (None,)))
    for name in ("full", "hard_thresholding"):
        yield from ((name, epsilon, passes) for epsilon in DRAWN for passes in (*PASSES, 32))
    yield from (("no privacy", None, passes) for passes in PASSES)
    yield from ((name, epsilon, None) for name in WITHOUT for epsilon in DRAWN)


def draw(data: str) -> None:
    """The table of one data set, and its loss against passes and against thresholds."""
    rows: list[tuple[Any, ...]] = []
    for name, epsilon, passes in _settings():
        found = np.array(Parallel(n_jobs=2)(delayed(_fold)(data, name, epsilon, passes, fold) for fold in range(FOLDS)))
        means = found.mean(axis=0)
        rows.append(
            (
                (NAMES | WITHOUT)[name],
                epsilon or "",
                passes or "default",
                means[1],
                means[2],
                means[0],
                found[:, 0].std(ddof=1),
            )
        )
        print(data, *rows[-1], flush=True)
    picture(data, rows)


def picture(data: str, rows: list[tuple[Any, ...]]) -> None:
    """Draws and saves what was measured."""
    figure, grid = plt.subplots(len(DRAWN), 2, figsize=(9.2, 7.2), layout="constrained", sharey=True)
    for axes, epsilon in zip(grid, DRAWN):
        for panel, column, label in zip(axes, (3, 4), ("passes over the rows", "hard thresholds")):
            for name, title in NAMES.items():
                line = [row for row in rows if row[0] == title and row[1] in (epsilon, "") and row[2] != "default"]
                x, y = [row[column] for row in line], [row[5] for row in line]
                panel.plot(x, y, "o-", color=COLOURS[name], ms=4, label=title)
            if data == "rcv1_subset":  # in the other table the paper's losses are those of the zero model
                level = PUBLISHED[int(epsilon)]
                panel.axhline(level, color=GREY, ls="--", lw=1, label="DP-SCSG-HT in the paper, noise unsound")
            panel.set(xscale="log", xlabel=label)
            panel.xaxis.set_major_formatter("{x:g}")
        axes[0].set_ylabel(f"validation loss, ε = {epsilon:g}")
    top = max(row[5] for row in rows if row[0] != NAMES["hard_thresholding"])
    grid[0, 0].set_ylim(0.95 * min(row[5] for row in rows), min(1.05 * top, 0.72))
    grid[0, 1].legend(frameon=False, fontsize=8)
    figure.suptitle(f"{TITLES[data]}, δ = {DELTA:g}, mean of {FOLDS} folds", fontsize=11)
    head = ("method", "epsilon", "passes_asked", "passes", "thresholds", "loss", "standard_deviation")
    save(figure, f"stochastic_{data}", head, rows)


if __name__ == "__main__":
    # As a module of its own, so that worker processes can import it.
    import stochastic

    for data in sys.argv[1:] or list(stochastic.CASES):
        stochastic.draw(data)
