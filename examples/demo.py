"""A private classifier in one minute, on synthetic data: `make demo`.

A sparse text-like data set of RCV1's shape, a private classifier at three budgets and the non-private one, the
privacy report, and a chart in build/demo.png.
"""

from __future__ import annotations

import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from tulle import Bounds, SparseClassifier
from tulle.datasets import rcv1_like

OUTPUT = Path(__file__).resolve().parent.parent / "build" / "demo.png"


def main() -> None:
    print("Making a data set of RCV1's shape: 23,808 documents, 47,236 words ...", flush=True)
    data = rcv1_like(n=23_808, seed=1)
    train, test = slice(0, 20_242), slice(20_242, None)

    print(f"\n{'ε':>5}  {'test accuracy':>13}  {'non-zeros':>9}  {'seconds':>7}")
    accuracy = {}
    for epsilon in (0.5, 2.0, 8.0, None):
        model = SparseClassifier(epsilon, 1e-5, n_nonzero=1000, bounds=Bounds(row_l2=1.0))
        start = time.perf_counter()
        model.fit(data.X[train], data.y[train])
        seconds = time.perf_counter() - start
        accuracy[epsilon] = model.score(data.X[test], data.y[test])
        name = "none" if epsilon is None else f"{epsilon:g}"
        print(f"{name:>5}  {accuracy[epsilon]:>13.3f}  {len(model.support_):>9,}  {seconds:>7.2f}", flush=True)
        if epsilon == 2.0:
            report = str(model.privacy_)
    print("\nWhat is promised about each person at ε = 2 (model.privacy_):\n")
    print(report)

    private = {epsilon: value for epsilon, value in accuracy.items() if epsilon is not None}
    figure, axes = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
    axes.plot(list(private), list(private.values()), marker="o", color="#0b6fb8", label="private, 1,000 weights")
    axes.axhline(accuracy[None], color="#8a8a8a", linewidth=1, label="no privacy, 1,000 weights")
    axes.axhline(0.5, color="#8a8a8a", linewidth=1, linestyle=":", label="guessing")
    axes.set(xlabel="privacy loss ε (δ = 1e-5)", ylabel="test accuracy", xscale="log", ylim=(0.45, 1.0))
    axes.set_xticks(list(private), [f"{epsilon:g}" for epsilon in private])
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title("Generated text-like data: 20,242 rows, 47,236 features", loc="left", fontsize=11)
    axes.legend(frameon=False, loc="center right")
    OUTPUT.parent.mkdir(exist_ok=True)
    figure.savefig(OUTPUT, dpi=120)
    print(f"\nPicture: {OUTPUT.relative_to(Path.cwd()) if OUTPUT.is_relative_to(Path.cwd()) else OUTPUT}")


if __name__ == "__main__":
    main()
