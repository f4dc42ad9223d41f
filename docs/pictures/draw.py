"""Draws the pictures of the documentation from real runs: `make pictures`.

    python docs/pictures/draw.py [rcv1] [synthetic] [audit]

The RCV1 picture needs the folder with the data set in TULLE_DATA; the others need nothing.
"""

from __future__ import annotations

import csv
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression

from tulle import Bounds, SparseClassifier, SparseRegressor
from tulle.datasets import dp_ight_figure1, load_rcv1_subset
from tulle.files.error_messages import PrivacyWarning
from tulle.methods import HardThresholding

HERE = Path(__file__).parent

# Wang and Gu, IJCAI 2019, table 3: test error of DP-IGHT on RCV1 (20,242 training rows, s = 500, delta = 0.01).
PUBLISHED_DP_IGHT = {2: 0.1168, 4: 0.0956, 6: 0.0841, 8: 0.0797, 10: 0.0762}

INK, BLUE, ORANGE, GREY, GREEN = "#222222", "#0b6fb8", "#d1600a", "#8a8a8a", "#2a8f4f"
plt.rcParams.update(
    {
        "font.size": 11,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": GREY,
        "axes.labelcolor": INK,
        "axes.grid": True,
        "grid.color": "#e6e6e6",
        "figure.dpi": 110,
        "svg.hashsalt": "tulle",
    }
)


def _mean_and_deviation(axes: plt.Axes, x: list[float], runs: list[list[float]], **style: object) -> None:
    mean, deviation = np.mean(runs, axis=1), np.std(runs, axis=1)
    axes.plot(x, mean, marker="o", **style)
    axes.fill_between(x, mean - deviation, mean + deviation, color=style["color"], alpha=0.18, linewidth=0)


def save(figure: plt.Figure, name: str, header: tuple[str, ...], rows: list[tuple[object, ...]]) -> None:
    figure.savefig(HERE / f"{name}.svg", metadata={"Date": None})
    figure.savefig(HERE / f"{name}.png")
    write(name, header, rows)
    print(f"wrote {name}.svg, .png, .csv")


def write(name: str, header: tuple[str, ...], rows: list[tuple[object, ...]]) -> None:
    with (HERE / f"{name}.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def rcv1() -> None:
    """Test error against epsilon on the RCV1 subset."""
    data = load_rcv1_subset()
    epsilons, seeds = [0.5, 1, 2, 4, 6, 8, 10], range(10)
    bounds = Bounds(row_l2=1.0)

    def error(model: SparseClassifier | LogisticRegression) -> float:
        return float(1 - model.fit(data.X_train, data.y_train).score(data.X_test, data.y_test))

    without = error(SparseClassifier(None, n_nonzero=1000, bounds=bounds))
    dense = error(LogisticRegression(C=10.0, solver="liblinear"))
    rows: list[tuple[object, ...]] = [("none", "tulle without privacy", without, 0.0)]
    rows.append(("none", "scikit-learn LogisticRegression", dense, 0.0))

    figure, axes = plt.subplots(figsize=(7.6, 4.6), layout="constrained")
    lines: tuple[tuple[str, int | None, str, str], ...] = (
        ("auto", 1000, BLUE, "tulle, 1,000 weights (proved ε, δ = 1e-5)"),
        ("auto", None, INK, "tulle, number of weights by default"),
        ("hard_thresholding", 1000, GREEN, "hard thresholding, 1,000 weights"),
    )
    for method, weights, colour, words in lines:
        settings: dict[str, Any] = {"n_nonzero": weights, "method": method, "bounds": bounds}
        models = [[SparseClassifier(e, 1e-5, random_state=k, **settings) for k in seeds] for e in epsilons]
        runs = [[error(model) for model in line] for line in models]
        name = f'tulle method="{method}" n_nonzero={weights}'
        rows += [(e, name, float(np.mean(r)), float(np.std(r))) for e, r in zip(epsilons, runs)]
        _mean_and_deviation(axes, epsilons, runs, color=colour, label=words)
    axes.plot(
        list(PUBLISHED_DP_IGHT),
        list(PUBLISHED_DP_IGHT.values()),
        color=ORANGE,
        marker="s",
        linestyle="--",
        label="DP-IGHT as published (claimed ε, δ = 0.01,\n500 weights, RCV1's other documents)",
    )
    axes.axhline(without, color=GREY, linestyle="-", linewidth=1)
    axes.axhline(dense, color=GREY, linestyle=":", linewidth=1)
    words = f"no privacy: 1,000 weights {without:.3f}, all 47,236 weights {dense:.3f}"
    axes.annotate(words, (10, dense), (0, -12), **right_label())
    axes.set(xlabel="privacy loss ε", ylabel="test error", xlim=(0, 10.3), ylim=(0, 0.155))
    axes.set_title("RCV1 subset: 20,242 rows, 47,236 features, mean of 10 seeds", loc="left", fontsize=11)
    axes.legend(frameon=False, loc="upper right")
    save(figure, "rcv1_error", ("epsilon", "model", "test_error", "standard_deviation"), rows)


def right_label() -> dict[str, object]:
    return {"textcoords": "offset points", "ha": "right", "fontsize": 9, "color": INK}


def synthetic() -> None:
    """Relative error against epsilon on the data of DP-IGHT's figure 1, linear model."""
    settings = {(1000, 1000, 10): (1.2, 5.0), (5000, 5000, 30): (1.6, 12.0)}
    epsilons, trials = [2, 4, 6, 8, 10], range(10)
    rows: list[tuple[object, ...]] = []
    figure, panels = plt.subplots(1, 2, figsize=(9.6, 4.3), layout="constrained", sharey=True)
    for axes, ((n, d, s), (row_linf, label)) in zip(panels, settings.items()):
        bounds = Bounds(row_l2=2.0 * s, row_linf=row_linf, label=label)
        errors: dict[tuple[str, float], list[float]] = {}
        for trial in trials:
            problem = dp_ight_figure1(n, d, s, seed=trial)
            for noise in ("gaussian", "selection"):
                for epsilon in (*epsilons, None):
                    method = HardThresholding(noise=noise)
                    model = SparseRegressor(
                        epsilon,
                        0.01,
                        n_nonzero=s,
                        method=method,
                        bounds=bounds,
                        fit_intercept=False,
                        random_state=trial,
                    ).fit(problem.X, problem.y)
                    distance = np.linalg.norm(model.coef_ - problem.weights) / np.linalg.norm(problem.weights)
                    errors.setdefault((noise, epsilon or np.inf), []).append(float(distance))
        for noise, colour, words in (
            ("gaussian", ORANGE, "Gaussian noise on the whole step (the papers')"),
            ("selection", BLUE, "private selection, noise on chosen weights"),
        ):
            _mean_and_deviation(axes, epsilons, [errors[noise, e] for e in epsilons], color=colour, label=words)
        limit = float(np.mean(errors["selection", np.inf]))
        axes.axhline(limit, color=GREY, linewidth=1)
        axes.annotate(f"no privacy: {limit:.3f}", (10, limit), (0, 4), **right_label())
        axes.set_title(f"n = {n:,}, d = {d:,}, s = {s}", loc="left", fontsize=11)
        axes.set(xlabel="privacy loss ε (δ = 0.01)", xlim=(1.7, 10.3), ylim=(0, 1.05))
        rows += [(n, d, s, e, noise, float(np.mean(r)), float(np.std(r))) for (noise, e), r in errors.items()]
    panels[0].set_ylabel("relative error ‖ŵ − w*‖ / ‖w*‖")
    panels[1].legend(frameon=False, loc="upper right")
    save(
        figure,
        "synthetic_error",
        ("n", "d", "s", "epsilon", "noise", "relative_error", "standard_deviation"),
        rows,
    )


def audit() -> None:
    """The attacks on DPSL-KT and on hard thresholding, and the table of all audits."""
    sys.path.insert(0, str(HERE.parent.parent / "examples"))
    from audit_tulle import audits

    rows = []
    for name, result in audits():
        picture = {"dpsl-kt-as-published": "audit_dpsl_kt", "hard-thresholding-gaussian": "audit_hard_thresholding"}
        if name in picture:
            for suffix in ("svg", "png"):
                result.plot(HERE / f"{picture[name]}.{suffix}")
        rows.append((name, result.claimed, round(result.epsilon, 3), round(result.best_possible, 3), result.runs))
        print(*rows[-1], flush=True)
    write("audits", ("subject", "claimed", "audited", "possible", "runs"), rows)


PICTURES: dict[str, Callable[[], None]] = {"rcv1": rcv1, "synthetic": synthetic, "audit": audit}

if __name__ == "__main__":
    # delta = 0.01 is the papers' setting, and above 1/n.
    warnings.simplefilter("ignore", PrivacyWarning)
    for name in sys.argv[1:] or list(PICTURES):
        PICTURES[name]()
