"""Time and memory of a fit against five of its sizes: `python docs/pictures/growth.py`, from docs/speed/growth.csv.

benchmarks/growth.py measures that table; this only draws it.
"""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from draw import BLUE, GREEN, INK, ORANGE
from speed_tables import AXES, METHODS, SPEED, exponent, lines

STYLES = dict(zip(METHODS, ((INK, "P"), (BLUE, "o"), (ORANGE, "s"), (GREEN, "^"), ("#8b4fb0", "D"))))
LABELS = {"seconds": "CPU seconds of a fit", "megabytes": "MB beyond the data"}


def place_labels(heights: list[float], least: float) -> list[float]:
    """Heights, moved apart to a least distance from each other, in the order they have."""
    order = np.argsort(heights)
    placed = np.array(heights, dtype=float)[order]
    for _ in range(200):  # pushes both of a pair that is too close, until none is
        gaps = np.diff(placed)
        short = np.maximum(least - gaps, 0.0) / 2
        if short.max(initial=0.0) < 1e-9:
            break
        placed[:-1] -= short
        placed[1:] += short
    result = np.empty(len(placed))
    result[order] = placed
    return list(result)


def draw() -> None:
    measured = lines()
    figure, grid = plt.subplots(2, len(AXES), figsize=(13.5, 6.4), layout="constrained", sharey="row", sharex="col")
    for column, (axis, label) in enumerate(AXES.items()):
        for line, (measure, title) in enumerate(LABELS.items()):
            panel = grid[line, column]
            here = {name: measured[axis, name, measure] for name in METHODS if (axis, name, measure) in measured}
            for name, points in here.items():
                colour, marker = STYLES[name]
                panel.plot(*zip(*points), marker=marker, ms=4, color=colour, lw=1.5, label=METHODS[name])
            panel.set(xscale="log", yscale="log")
            panel.tick_params(labelsize=9)
            if line:
                panel.set_xlabel(label)
            if not column:
                panel.set_ylabel(title)
    for panels, measure in zip(grid, LABELS):
        bottom, top = np.log(panels[0].get_ylim())
        for panel, axis in zip(panels, AXES):
            names = [name for name in METHODS if (axis, name, measure) in measured]
            ends = [float(np.log(measured[axis, name, measure][-1][1])) for name in names]
            for name, height in zip(names, place_labels(ends, 0.055 * (top - bottom))):
                panel.annotate(
                    f"{exponent(measured[axis, name, measure]):.2f}",
                    (1.02, (height - bottom) / (top - bottom)),
                    xycoords="axes fraction",
                    va="center",
                    fontsize=8.5,
                    color=STYLES[name][0],
                )
        panels[0].set_ylim(*np.exp((bottom, top)))
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False, fontsize=10)
    note = "Both scales are logarithmic. Next to each line: its exponent over its upper half (1 is linear, 0 is flat)."
    figure.supxlabel(note, fontsize=9, color=INK)
    figure.savefig(SPEED / "growth.svg", metadata={"Date": None})
    figure.savefig(SPEED / "growth.png")
    print("wrote growth.svg, .png")


if __name__ == "__main__":
    draw()
