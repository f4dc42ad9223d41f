"""Draws the picture of the README: test error on RCV1 against epsilon, measured here and printed in papers.

    python docs/pictures/headline.py

Reads docs/results/state and the papers' tables; writes headline.svg and headline.csv. Nothing is fitted.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from tulle.experiments.catalogue import published
from tulle.reports.series import Point, Series, from_dict

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results/state/reproduction.json"
# Lines of the state page: their words and colours.
OURS = {
    "tulle (auto)": ("tulle, all defaults: proved ε, δ = 1e-5", "#0b6fb8"),
    "tulle (auto), public rows": ("the same with 3,000 public rows", "#2a8f4f"),
}
# Tables of test errors on RCV1, with the δ that they claim.
PAPERS = {
    "dp-ight-table3": ("Wang & Gu 2019, δ = 0.01", "-"),
    "dpsl-kt-table3": ("Wang & Gu 2020, half the rows public, δ = 1e-5", "--"),
}
COLOURS = {"Frank-Wolfe": "#b0b0b0", "Two stage": "#8a8a8a", "DP-IGHT": "#d1600a", "DPSL-KT": "#7a3fa0"}


def measured() -> dict[str, tuple[Point, ...]]:
    """Points on the RCV1 subset, by line."""
    results = from_dict(json.loads(RESULTS.read_text(encoding="utf-8")))
    panel = next(panel for panel in results.panels if panel.name == "RCV1 subset")
    return {one.name: one.points for one in panel.series}


def printed(name: str) -> list[Series]:
    """The private methods of a paper's table."""
    (panel,) = published(name).data
    return [series for method, series in panel.printed_series().items() if method != "IGHT"]


def rows() -> list[tuple[str, str, str, str]]:
    """All that is drawn: source, line, ε and test error."""
    ours = [("state", line, points) for line, points in measured().items() if line in OURS]
    theirs = [(name, series.name, series.points) for name in PAPERS for series in printed(name)]
    return [
        (source, line, f"{point.x:g}", f"{point.mean:.6g}")
        for source, line, points in ours + theirs
        for point in points
    ]


def main() -> None:
    plt.rcParams.update(
        {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "tulle"}
    )
    figure, axes = plt.subplots(figsize=(10.4, 4.4), layout="constrained", facecolor="white")  # white in dark pages too
    lines = measured()
    for line, (words, colour) in OURS.items():
        if line in lines:
            x, means = [point.x for point in lines[line]], [point.mean for point in lines[line]]
            errors = [point.error or 0.0 for point in lines[line]]
            axes.errorbar(x, means, errors, color=colour, marker="o", linewidth=2.2, capsize=3, label=words)
    for name, (paper, style) in PAPERS.items():
        for series in printed(name):
            method = series.name.removesuffix(", printed")
            x, means = [point.x for point in series.points], [point.mean for point in series.points]
            words = f"{method} ({paper})"
            axes.plot(x, means, style, color=COLOURS[method], marker="s", markersize=4, linewidth=1.2, label=words)
    plain = lines["tulle (auto), no privacy"][0].mean
    axes.axhline(plain, color="#444444", linewidth=1, linestyle=":")
    axes.annotate(f"tulle without privacy: {plain:.3f}", (10, plain), (0, -13), textcoords="offset points", ha="right")
    axes.set(xlabel="ε (of the papers: as claimed)", ylabel="test error", xlim=(0, 10.3), ylim=(0, 0.145))
    axes.set_title("RCV1. tulle: a subset of 20,242 documents; papers: RCV1 itself", loc="left", fontsize=10.5)
    axes.grid(color="#e6e6e6")
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.savefig(HERE / "headline.svg", metadata={"Date": None})
    with (HERE / "headline.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("source", "line", "epsilon", "test_error"))
        writer.writerows(rows())


if __name__ == "__main__":
    main()
