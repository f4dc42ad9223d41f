"""Knowledge transfer beside the paper's figure and table: `python docs/pictures/transfer.py [figure2] [half_public]`.

`figure2` takes the other methods' figures from methods_synthetic.csv, same data and seeds. `half_public` needs
TULLE_DATA.
"""

from __future__ import annotations

import csv
import math
import sys
import warnings
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse as sp
from compare import COLOURS, SETTINGS, Setting, relative_error
from draw import BLUE, GREEN, GREY, HERE, INK, right_label, save
from joblib import Parallel, delayed

from tulle import Bounds, SparseClassifier, SparseRegressor
from tulle.datasets import load_imdb_ratings, load_rcv1_subset
from tulle.methods import KnowledgeTransfer
from tulle.public_features import UniformFeatures

Row = tuple[object, ...]

# The constant c1 of the published noise is the best of these, by looking at the true weights or at test rows.
CONSTANTS = (0.1, 0.3, 1.0, 3.0, 10.0)
PUBLISHED, SPARSE, DENSE = "DPSL-KT as published", "knowledge transfer, sparse", "knowledge transfer, dense"
# The theorem's gamma bounds a row's gradient: by the label bound, for regression. With 1 there is less noise than that.
LESS_NOISE = "DPSL-KT, γ = 1"
MAGENTA = "#b3008f"
STYLES: dict[str, dict[str, Any]] = {
    SPARSE: {"color": BLUE, "linewidth": 2.5},
    DENSE: {"color": GREEN, "linewidth": 2.5},
    PUBLISHED: {"color": MAGENTA, "linewidth": 2.5, "linestyle": "--"},
    LESS_NOISE: {"color": MAGENTA, "linewidth": 1.2, "linestyle": ":"},
}
OTHERS = {
    "auto": "auto",
    "hard_thresholding": "DP-IGHT",
    "frank_wolfe": "Frank-Wolfe",
    "two_stage": "two stage",
}


def _parallel(jobs: Iterable[Any]) -> list[Any]:
    return list(Parallel(n_jobs=2)(jobs))


# --- figure 2 --------------------------------------------------------------------------------------------------------


def _published(constant: float, features: Any, gamma: float | None = None) -> KnowledgeTransfer:
    return KnowledgeTransfer("published", features, gradient_bound=gamma, published_constant=constant, n_iter=30)


def _panel(setting: Setting, logistic: bool, trials: int) -> dict[tuple[str, float], list[float]]:
    features = UniformFeatures(-1, 1)
    found: dict[tuple[str, float], list[float]] = {}

    def measure(method: KnowledgeTransfer, epsilon: float, seeds: range) -> list[float]:
        return _parallel(delayed(relative_error)(setting, logistic, method, epsilon, seed) for seed in seeds)

    for epsilon in setting.epsilons[logistic]:
        found[SPARSE, epsilon] = measure(KnowledgeTransfer(features=features), epsilon, range(trials))
        found[DENSE, epsilon] = measure(KnowledgeTransfer("dense", features), epsilon, range(trials))
        # The constant is chosen on data sets of its own (one, where they are large), by the error itself.
        own = range(trials, trials + (3 if setting.n < 1000 else 1))
        for name, gamma in ((PUBLISHED, None),) if logistic else ((PUBLISHED, None), (LESS_NOISE, 1.0)):
            tried = {c: np.mean(measure(_published(c, features, gamma), epsilon, own)) for c in CONSTANTS}
            best = min(tried, key=lambda c: tried[c])
            found[name, epsilon] = measure(_published(best, features, gamma), epsilon, range(trials))
    return found


def figure2(trials: int = 10) -> None:
    """Relative error against epsilon on the settings of DPSL-KT's figure 2."""
    with (HERE / "methods_synthetic.csv").open(newline="") as file:
        measured = [row for row in csv.DictReader(file) if row["figure"] == "DPSL-KT fig. 2"]
    settings = [setting for setting in SETTINGS if setting.name == "DPSL-KT fig. 2"]
    figure, panels = plt.subplots(1, 4, figsize=(14.5, 4.6), layout="constrained", sharey=True)
    rows: list[Row] = []
    cases = [(setting, logistic) for setting in settings for logistic in (False, True)]
    for axes, (setting, logistic) in zip(panels, cases):
        kind, epsilons = "logistic" if logistic else "linear", setting.epsilons[logistic]
        others = {
            (row["method"], float(row["epsilon"])): float(row["relative_error"])
            for row in measured
            if row["model"] == kind and int(row["n"]) == setting.n
        }
        for method, words in OTHERS.items():
            means = [others[method, epsilon] for epsilon in epsilons]
            colour = INK if method == "auto" else COLOURS[method]
            axes.plot(epsilons, means, color=colour, label=words, linewidth=1.2, marker=".")
        found = _panel(setting, logistic, trials)
        for method, style in STYLES.items():
            if (method, epsilons[0]) not in found:
                continue
            means = [float(np.mean(found[method, epsilon])) for epsilon in epsilons]
            axes.plot(epsilons, means, label=method, marker="o", markersize=5, **style)
            rows += [
                (kind, setting.n, setting.d, setting.s, method, epsilon, mean, np.std(found[method, epsilon]))
                for epsilon, mean in zip(epsilons, means)
            ]
        axes.axhline(others["auto", math.inf], color=GREY, linewidth=1)
        axes.annotate("no privacy", (epsilons[-1], others["auto", math.inf]), (0, 3), **right_label())
        axes.set_title(f"{kind}, n = {setting.n:,}, d = {setting.d:,}, s = {setting.s}", fontsize=10)
        axes.set(xlabel="privacy loss ε (δ = 0.01)", ylim=(0, 1.3))
        print(kind, setting.n, flush=True)
    panels[0].set_ylabel("relative error ‖ŵ − w*‖ / ‖w*‖")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    header = ("model", "n", "d", "s", "method", "epsilon", "relative_error", "standard_deviation")
    save(figure, "transfer_figure2", header, rows)


# --- real data, half of it public ------------------------------------------------------------------------------------

# Wang and Gu (AAAI 2020), table 3: test error of DPSL-KT and of DP-IGHT on RCV1, half of the rows public.
TABLE_3 = {2.0: (0.1105, 0.1179), 4.0: (0.0974, 0.1026), 6.0: (0.0885, 0.0922), 8.0: (0.0787, 0.0824)}
EPSILONS = (2.0, 4.0, 6.0, 8.0)
CASES = {
    "RCV1 subset, 20,000 sampled features": 10,
    "RCV1 subset, all 47,236 features": 5,
    "IMDB ratings": 5,
}
WITHOUT = "auto, private half alone"
PLAIN = "no privacy, private half alone"


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
        method = _published(constant, public)
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
    """Real data with half of the rows public, beside the paper's table 3."""
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
                best = min(CONSTANTS[:4], key=lambda c: np.mean(losses(PUBLISHED, epsilon, seeds, c)))
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
            axes.plot(EPSILONS, [TABLE_3[e][0] for e in EPSILONS], "x", color=INK, label="paper's table 3: DPSL-KT")
            rows += [(case, "paper: DPSL-KT", e, TABLE_3[e][0], "") for e in EPSILONS]
            rows += [(case, "paper: DP-IGHT", e, TABLE_3[e][1], "") for e in EPSILONS]
        axes.set_title(f"{case}, {'1,000' if case.startswith('IMDB') else '500'} weights", fontsize=10)
        ratings = case.startswith("IMDB")
        axes.set(
            xlabel="privacy loss ε", ylim=(0, 0.65 if ratings else 0.131), ylabel="1 − R²" if ratings else "test error"
        )
        axes.set_xticks(EPSILONS)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    save(figure, "transfer_half_public", ("data", "method", "epsilon", "loss", "standard_deviation"), rows)


PICTURES = {"figure2": figure2, "half_public": half_public}

if __name__ == "__main__":
    # As a module of its own, so that worker processes import it once and keep the data that they have read.
    import transfer

    warnings.simplefilter("ignore")
    for picture in sys.argv[1:] or list(transfer.PICTURES):
        transfer.PICTURES[picture]()
