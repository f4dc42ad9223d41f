"""The trade-off curve of a guarantee: how often any test about one unit must be wrong."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr, ndtri

from tulle.reports.pages.charts import WIDE, Scale, figure, path, segment, written
from tulle.reports.pages.markup import Markup, join_markup
from tulle.trusted.events import FloatArray

_TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)


def gaussian_misses(mu: float, false_alarms: FloatArray) -> FloatArray:
    """The least rate of misses at each rate of false alarms in [0, 1] that mu-GDP allows: Φ(Φ⁻¹(1 - α) - μ)."""
    return np.asarray(ndtr(ndtri(1 - false_alarms) - mu))


def budget_corners(epsilon: float, delta: float) -> list[tuple[float, float]]:
    """The corners of the same curve for (epsilon, delta)-differential privacy: straight lines are between them.

    Misses are at least max(1 - δ - e^ε α, (1 - δ - α) / e^ε, 0) (Wasserman and Zhou 2010).
    """
    even = (1 - delta) / (1 + math.exp(min(epsilon, 700.0)))
    return [(0.0, 1 - delta), (even, even), (1 - delta, 0.0), (1.0, 0.0)]


def tradeoff_chart(mu: float, epsilon: float, delta: float, description: str) -> Markup:
    """The curve of a mu, that of an epsilon and delta, and that of guessing; no test lies below either curve."""
    grid = np.concatenate([[0.0], np.geomspace(1e-6, 0.5, 60), 1 - np.geomspace(0.5, 1e-6, 60)[1:], [1.0]])

    def draw(width: int) -> tuple[Markup, float]:
        wide = width == WIDE
        side = 300.0 if wide else 250.0
        x, y = Scale(0.0, 1.0, 52.0, 52.0 + side), Scale(0.0, 1.0, 26.0 + side, 26.0)
        misses = gaussian_misses(mu, grid)
        places = [(x.place(alarm), y.place(miss)) for alarm, miss in zip(grid, misses)]
        parts = [path([*places, (x.place(0.0), y.place(0.0))], "forbidden", closed=True)]
        for tick in _TICKS:
            parts.append(segment(x.start, y.place(tick), x.stop, y.place(tick), "grid"))
            parts.append(written(x.start - 8, y.place(tick) + 4, f"{tick:g}", "end", "soft"))
            parts.append(segment(x.place(tick), y.start, x.place(tick), y.start + 5, "frame"))
            parts.append(written(x.place(tick), y.start + 20, f"{tick:g}", "middle", "soft"))
        parts.append(path([(x.start, y.stop), (x.start, y.start), (x.stop, y.start)], "frame"))
        parts.append(path([(x.start, y.stop), (x.stop, y.start)], "reference dashed"))
        corners = budget_corners(epsilon, delta)
        parts.append(path([(x.place(alarm), y.place(miss)) for alarm, miss in corners], "curve claim dotted"))
        parts.append(path(places, "curve attack"))
        parts.append(written(2, 14, "rate of misses"))
        parts.append(written((x.start + x.stop) / 2, y.start + 42, "rate of false alarms", "middle"))
        keys = (("curve attack", "least for μ"), ("curve claim dotted", "least for ε and δ"))
        left, top = (x.stop + 28, 40.0) if wide else (x.start, y.start + 68)
        for row, (class_, words) in enumerate((*keys, ("reference dashed", "guessing"))):
            parts.append(segment(left, top + 22 * row, left + 22, top + 22 * row, class_))
            parts.append(written(left + 29, top + 22 * row + 4, words))
        return join_markup(parts), y.start + (54 if wide else 124)

    return figure("trade-off", "The trade-off curve", description, draw)
