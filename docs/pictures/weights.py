"""Draws weights_error: test error of the default against the number of weights. Needs TULLE_DATA."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
from development_sets import SETS

from tulle import SparseClassifier

HERE = Path(__file__).parent
COLOURS = {1.0: "#1f6fb4", 4.0: "#3a3a3a"}
PANELS = {
    "rcv1": ("RCV1 subset, 20,242 rows", (100, 300, 1000, 3000, 10_000, 47_236), 5),
    "reuters_acq": ("Reuters acquisitions, 2,000 rows", (30, 100, 300, 1000, 3000, 9947), 10),
    "mnist_even": ("MNIST, even or odd, 10,000 rows", (10, 30, 100, 200, 400, 784), 3),
}


def errors(name: str, epsilon: float, weights: int | None, seeds: int) -> list[float]:
    """Test errors of some seeds."""
    one, found = SETS[name], []
    for seed in range(seeds):
        data = one.split(seed)
        model = SparseClassifier(epsilon, one.delta, n_nonzero=weights, bounds=one.bounds, random_state=seed)
        found.append(float(1 - model.fit(data.X_train, data.y_train).score(data.X_test, data.y_test)))
    return found


def main() -> None:
    figure, panels = plt.subplots(1, len(PANELS), figsize=(11.5, 3.8), layout="constrained")
    lines: list[tuple[object, ...]] = []
    for axes, (name, (title, sizes, seeds)) in zip(panels, PANELS.items()):
        for epsilon, colour in COLOURS.items():
            means = []
            for size in sizes:
                found = errors(name, epsilon, size, seeds)
                means.append(float(np.mean(found)))
                lines.append((name, epsilon, size, means[-1], float(np.std(found))))
            axes.plot(sizes, means, "o-", color=colour, label=f"ε = {epsilon:g}")
            default = errors(name, epsilon, None, seeds)
            lines.append((name, epsilon, "default", float(np.mean(default)), float(np.std(default))))
            axes.axhline(float(np.mean(default)), color=colour, linestyle=":", linewidth=1.2)
        axes.set(xscale="log", yscale="log", title=title, xlabel="number of weights")
        axes.grid(True, which="both", alpha=0.25)
        axes.yaxis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%.2f"))
        axes.yaxis.set_minor_formatter(matplotlib.ticker.FormatStrFormatter("%.2f"))
    panels[0].set_ylabel("test error (dotted: default number)")
    panels[0].legend(frameon=False)
    for ending in ("png", "svg"):
        figure.savefig(HERE / f"weights_error.{ending}", dpi=130)
    with (HERE / "weights_error.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["set", "epsilon", "weights", "mean test error", "standard deviation"])
        writer.writerows(lines)


if __name__ == "__main__":
    main()
