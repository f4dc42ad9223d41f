"""The axes of a panel: what they reach over, and where they are marked."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median

from tulle.reports.pages.charts import Scale
from tulle.reports.series import Panel, Point, Role, Series, places

_MOST_TICKS = 8

# Series that are drawn later lie above.
DRAWING_ORDER: tuple[Role, ...] = ("reference", "unsound", "oracle", "honest", "paper")


def whisker_length(point: Point) -> float:
    """The standard error; 0 where there is none to draw."""
    return point.error if point.error is not None and math.isfinite(point.error) else 0.0


@dataclass(frozen=True)
class Axis:
    """What one axis reaches over, and where it is marked."""

    low: float
    high: float
    ticks: tuple[float, ...]
    logarithmic: bool = False

    def scale(self, start: float, stop: float) -> Scale:
        return Scale(self.low, self.high, start, stop, self.logarithmic)

    def beyond(self, value: float) -> int:
        """1 for a value above the axis, -1 for one below, 0 for one on it."""
        return 1 if value > self.high else -1 if value < self.low else 0

    def leaves_out(self, panel: Panel) -> bool:
        return any(
            self.beyond(point.mean) for one in panel.series if one.role != "reference" for point in drawn_points(one)
        )


def drawn_points(series: Series) -> list[Point]:
    """Points that have a place, by rising x; an infinite mean has one beyond the edge."""
    return sorted((point for point in series.points if not math.isnan(point.mean)), key=lambda point: point.x)


def vertical_axis(panel: Panel) -> Axis:
    """The upright axis: from 0 where that wastes little, and without the few that would flatten all others."""
    shown = [point for one in panel.series for point in drawn_points(one) if math.isfinite(point.mean)]
    if not shown:
        return Axis(0.0, 1.0, (0.0, 0.5, 1.0))
    if panel.log_y and any(point.mean > 0 for point in shown):
        return _logarithmic(*_decades(panel))
    limit = _limit(panel)
    kept = [point for point in shown if abs(point.mean) <= limit]
    reach = max(abs(point.mean) for point in kept)
    ends = [point.mean + sign * min(whisker_length(point), reach / 2) for point in kept for sign in (-1, 1)]
    low, high = min(ends), max(ends)
    if 0 <= low < 0.7 * high or min(point.mean for point in kept) >= 0 > low:
        low = 0.0
    if high < 0 and high > 0.7 * low:
        high = 0.0
    return _linear(low, high)


def _decades(panel: Panel) -> tuple[float, float]:
    """The ends of a logarithmic axis; references reach at most a decade beyond the other series."""
    found: dict[bool, list[float]] = {True: [], False: []}
    for one in panel.series:
        found[one.role == "reference"] += [point.mean for point in drawn_points(one) if 0 < point.mean < math.inf]
    low, high = (end(found[True] + found[False]) for end in (min, max))
    if found[False]:
        low, high = max(low, min(found[False]) / 10), min(high, 10 * max(found[False]))
    return low, high


def _limit(panel: Panel) -> float:
    """The largest mean, by size, that a linear axis shows.

    Values far beyond the references and beyond twice the worst of the median sound series (four times that of the
    median series, where none is sound) would press all else onto the axis.
    """
    worst: dict[Role, list[float]] = {role: [] for role in DRAWING_ORDER}
    for one in panel.series:
        means = [abs(point.mean) for point in drawn_points(one) if math.isfinite(point.mean)]
        if means:
            worst[one.role].append(max(means))
    sound, all_worst = worst["honest"] + worst["oracle"], [0.0, *(value for found in worst.values() for value in found)]
    everything = max(all_worst)
    others = [value for role in DRAWING_ORDER if role != "reference" for value in worst[role]]
    usual = 2 * median(sound) if sound else 4 * median(others or all_worst)
    limit = max(1.5 * max(worst["reference"] or [0.0]), usual)
    return limit if 0 < 1.5 * limit < everything else everything


def _linear(low: float, high: float) -> Axis:
    """From the tick below to the tick above."""
    if high <= low:
        low, high = (low - abs(low) / 2, low + abs(low) / 2) if low else (0.0, 1.0)
    step = 10.0 ** math.floor(math.log10(high - low))
    step *= next(part for part in (0.1, 0.2, 0.25, 0.5, 1.0, 2.0) if (high - low) / (part * step) <= 6)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    # Of 3 * 0.1 only its ten first digits are meant.
    ticks = tuple(float(f"{k * step:.10g}") for k in range(first, last + 1))
    return Axis(ticks[0], ticks[-1], ticks)


def _logarithmic(low: float, high: float) -> Axis:
    """Powers of ten, or 1, 2 and 5 of each where there are few."""
    first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    if high > 30 * low:
        first = max(first, last - 12)  # smaller values lie below the edge
        stride = math.ceil((last - first) / 6)
        ticks = tuple(10.0**power for power in range(first, last + 1, stride))
        return Axis(10.0**first, 10.0**last, ticks, logarithmic=True)
    steps = [float(f"{part}e{power}") for power in range(first - 1, last + 2) for part in (1, 2, 5)]
    start = max(step for step in steps if step <= low * (1 + 1e-9))
    stop = min(step for step in steps if step >= high * (1 - 1e-9) and step > start)
    return Axis(start, stop, tuple(step for step in steps if start <= step <= stop), logarithmic=True)


def horizontal_axis(panel: Panel) -> Axis:
    """The level axis, a little wider than its values."""
    found = places(panel)
    low, high = found[0], found[-1]
    if panel.log_x and low > 0:
        margin = (high / low) ** 0.05 if high > low else 2.0
        decades = _logarithmic(low, high).ticks if len(found) > _MOST_TICKS else found
        return Axis(low / margin, high * margin, tuple(tick for tick in decades if low <= tick <= high), True)
    margin = 0.05 * (high - low) if high > low else 1.0
    ticks = _linear(low, high).ticks if len(found) > _MOST_TICKS else found
    return Axis(low - margin, high + margin, tuple(tick for tick in ticks if low <= tick <= high))
