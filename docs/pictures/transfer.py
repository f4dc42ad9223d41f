"""Knowledge transfer with half of the rows public, next to the paper's table 3: `python docs/pictures/transfer.py`.

Needs the folder with the data sets in TULLE_DATA.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse as sp
from draw import BLUE, GREEN, GREY, INK, right_label, save
from joblib import Parallel, delayed

from tulle import Bounds, SparseClassifier, SparseRegressor
from tulle.datasets import load_imdb_ratings, load_rcv1_subset
from tulle.experiments.catalogue import published
from tulle.methods import KnowledgeTransfer

Row = tuple[object, ...]

# The constant c1 of the published noise is the best of these, by looking at test rows.
CONSTANTS = (0.1, 0.3, 1.0, 3.0)
PUBLISHED, SPARSE, DENSE = "DPSL-KT as published", "knowledge transfer, sparse", "knowledge transfer, dense"
STYLES: dict[str, dict[str, Any]] = {
    SPARSE: {"color": BLUE, "linewidth": 2.5},
    DENSE: {"color": GREEN, "linewidth": 2.5},
}
# What the paper prints, by method: test error on RCV1, half of the rows public.
TABLE_3 = published("dpsl-kt-table3").data[0].printed_series()
EPSILONS = (2.0, 4.0, 6.0, 8.0)
CASES = {
    "RCV1 subset, 20,000 sampled features": 10,
    "RCV1 subset, all 47,236 features": 5,
    "IMDB ratings": 5,
}
WITHOUT = "auto, private half alone"
PLAIN = "no privacy, private half alone"


def _parallel(jobs: Iterable[Any]) -> list[Any]:
    return list(Parallel(n_jobs=2)(jobs))


@lru_cache(maxsize=1)
def _halves(case: str, trial: int) -> tuple[Any, ...]:
    """Private rows and targets, public rows, test rows and targets."""
    data = load_imdb_ratings() if case.startswith("IMDB") else load_rcv1_subset()
    rng = np.random.default_rng(trial)
    X, test = sp.csr_array(data.X_train), sp.csr_array(data.X_test)
    if "sampled" in case:
        chosen = np.sort(rng.choice(X.shape[1], 20_000, replace=False))
        X, test = X[:, chosen], test[:, chosen]
    order = rng.permutation(X.shape[0])
    private, public = order[: len(order) // 2], order[len(order) // 2 :]
    return X[private], data.y_train[private], X[public], test, data.y_test


def _loss(case: str, name: str, constant: float, epsilon: float, trial: int) -> float:
    """Test error, or 1 - R² for the ratings."""
    warnings.simplefilter("ignore")
    X, y, public, test, targets = _halves(case, trial)
    ratings = case.startswith("IMDB")
    method: Any = "auto"
    if name == PUBLISHED:
        method = KnowledgeTransfer("published", public, published_constant=constant, n_iter=30)
    elif name in (SPARSE, DENSE):
        method = KnowledgeTransfer("sparse" if name == SPARSE else "dense", public)
    model = (SparseRegressor if ratings else SparseClassifier)(
        None if name == PLAIN else epsilon,
        1e-6 if ratings else 1e-5,
        n_nonzero=1000 if ratings else 500,
        method="screen_refine" if name == PLAIN else method,
        bounds=Bounds(row_l2=1.0, label=1.0) if ratings else Bounds(row_l2=1.0),
        random_state=trial,
    )
    return float(1 - model.fit(X, y).score(test, targets))


def half_public() -> None:
    """Real data with half of the rows public, next to the paper's table 3."""
    figure, panels = plt.subplots(1, 3, figsize=(13, 4.3), layout="constrained")
    rows: list[Row] = []
    for axes, (case, trials) in zip(panels, CASES.items()):

        def losses(name: str, epsilon: float, seeds: range, constant: float = 1.0, case: str = case) -> list[float]:
            return _parallel(delayed(_loss)(case, name, constant, epsilon, seed) for seed in seeds)

        found: dict[tuple[str, float], list[float]] = {}
        for epsilon in EPSILONS:
            for name in (DENSE, SPARSE, WITHOUT):
                found[name, epsilon] = losses(name, epsilon, range(trials))
            if "sampled" in case:
                seeds = range(trials, trials + 1)
                best = min(CONSTANTS, key=lambda c: np.mean(losses(PUBLISHED, epsilon, seeds, c)))
                found[PUBLISHED, epsilon] = losses(PUBLISHED, epsilon, range(trials), best)
            print(case, epsilon, {name: round(float(np.mean(v)), 4) for (name, e), v in found.items() if e == epsilon})
        plain = float(np.mean(losses(PLAIN, 1.0, range(trials))))
        rows += [(case, name, e, np.mean(v), np.std(v)) for (name, e), v in found.items()]
        rows.append((case, PLAIN, "", plain, 0.0))
        for name, style in {
            SPARSE: STYLES[SPARSE],
            DENSE: STYLES[DENSE],
            WITHOUT: {"color": GREY, "linewidth": 2},
        }.items():
            means = [float(np.mean(found[name, e])) for e in EPSILONS]
            axes.plot(EPSILONS, means, marker="o", markersize=5, label=name, **style)
        axes.axhline(plain, color=GREY, linewidth=1)
        axes.annotate(PLAIN, (EPSILONS[-1], plain), (0, -13), **right_label())
        if (PUBLISHED, EPSILONS[0]) in found:
            means = [float(np.mean(found[PUBLISHED, e])) for e in EPSILONS]
            words = f"{PUBLISHED}, run here: {min(means):.2f} to {max(means):.2f}"
            axes.annotate(words, (EPSILONS[-1], 0.131), (0, -13), **right_label())
        if not case.startswith("IMDB"):
            printed = [point.mean for point in TABLE_3["DPSL-KT"].points]
            axes.plot(EPSILONS, printed, "x", color=INK, label="paper's table 3: DPSL-KT")
            for name in ("DPSL-KT", "DP-IGHT"):
                rows += [(case, f"paper: {name}", point.x, point.mean, "") for point in TABLE_3[name].points]
        axes.set_title(f"{case}, {'1,000' if case.startswith('IMDB') else '500'} weights", fontsize=10)
        ratings = case.startswith("IMDB")
        axes.set(
            xlabel="privacy loss ε", ylim=(0, 0.65 if ratings else 0.131), ylabel="1 − R²" if ratings else "test error"
        )
        axes.set_xticks(EPSILONS)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    save(figure, "transfer_half_public", ("data", "method", "epsilon", "loss", "standard_deviation"), rows)


if __name__ == "__main__":
    # As a module of its own, so that worker processes import it once and keep the data that they have read.
    import transfer

    warnings.simplefilter("ignore")
    transfer.half_public()
