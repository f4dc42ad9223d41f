"""Intervals of weights on a page: a forest plot, and the table."""

from __future__ import annotations

import math
from typing import Any

from tulle.reports.number_format import number, setting
from tulle.reports.pages.charts import SQUARE, WIDE, Scale, figure, segment, shaped, written
from tulle.reports.pages.markup import Markup, breakable, element, join_markup
from tulle.reports.pages.page import listing, table

# As many lines are drawn; the table has all of them.
_MOST_DRAWN = 60
_LONGEST = {True: 34, False: 20}


def interval_parts(drawn: Any, listed: Any) -> list[Markup]:
    """The chart of one `tulle.inference.WeightSummary` and the table of another, which may be in other units."""
    notes = [*listed.notes, "“Privacy” is the part of an interval's width that is due to noise."]
    parts = [forest_chart(drawn)] if any(not math.isnan(line.low) for line in drawn.lines) else []
    return [*parts, _listed(listed), listing(notes)]


def forest_chart(summary: Any) -> Markup:
    """A line for each weight: its estimate, its interval, and where it would be without an effect."""
    percent = f"{100 * summary.level:g}\u00a0%"
    lines = [line for line in summary.lines if not math.isnan(line.low)][:_MOST_DRAWN]
    logarithmic = summary.scale != "weight"
    values = [value for line in lines for value in (line.low, line.estimate, line.high)] + [summary.null_value]
    ends = [value for value in values if math.isfinite(value) and (value > 0 or not logarithmic)]
    low, high, ticks = _logarithmic(ends) if logarithmic else _linear(ends)
    words = f"Estimates (squares) and {percent} intervals of each {summary.scale}; the vertical line is "
    words += f"{setting(summary.null_value)}, no effect."
    if any(_is_open(end, logarithmic) for line in lines for end in (line.low, line.high)):
        words += " Arrows are open ends."
    if any(math.isnan(line.low) for line in summary.lines):
        words += " Weights without an interval are not drawn."

    def draw(width: int) -> tuple[Markup, float]:
        wide = width == WIDE
        left, right = (230.0, width - 180.0) if wide else (130.0, width - 14.0)
        step, top = 24.0, 16.0
        bottom = top + step * len(lines)
        x = Scale(low, high, left, right, logarithmic)
        parts = [segment(x.place(tick), top, x.place(tick), bottom, "grid") for tick in ticks]
        parts += [written(x.place(tick), bottom + 20, setting(tick), "middle", "soft") for tick in ticks]
        none = x.place(summary.null_value)
        parts.append(segment(none, top - 6, none, bottom + 4, "reference dashed"))
        for k, line in enumerate(lines):
            y = top + step * (k + 0.5)
            most = _LONGEST[wide]
            name = line.name if len(line.name) <= most else f"{line.name[: most - 1]}…"
            parts.append(written(left - 10, y + 4, name, "end"))
            opened = [_is_open(end, logarithmic) for end in (line.low, line.high)]
            start, stop = left if opened[0] else x.place(line.low), right if opened[1] else x.place(line.high)
            parts.append(segment(start, y, stop, y, "whisker s0"))
            for end, is_open, inwards in ((start, opened[0], 7), (stop, opened[1], -7)):
                ticks_of = ((-4, inwards), (4, inwards)) if is_open else ((-4, 0),)
                parts += [segment(end, y if is_open else y + 4, end + by, y + up, "whisker s0") for up, by in ticks_of]
            parts.append(shaped(x.place(line.estimate), y, SQUARE, "marker s0"))
            if wide:
                interval = f"{number(line.estimate, 3)} ({number(line.low, 3)} to {number(line.high, 3)})"
                parts.append(written(right + 12, y + 4, interval, "start", "soft"))
        parts.append(segment(left, bottom, right, bottom, "frame"))
        label = f"{summary.scale}{' (logarithmic)' if logarithmic else ''}"
        parts.append(written((left + right) / 2, bottom + 42, label, "middle"))
        return join_markup(parts), bottom + 52

    return figure("forest", "The weights and their intervals", words, draw)


def _is_open(end: float, logarithmic: bool) -> bool:
    """Whether an interval has no end there: a ratio of 0 is that of a weight of -inf."""
    return math.isinf(end) or (logarithmic and end <= 0)


def _linear(ends: list[float]) -> tuple[float, float, list[float]]:
    """The ends of an axis that has all values, and round numbers on it."""
    low, high = min(ends), max(ends)
    span = (high - low) or 1.0
    step = 10.0 ** math.floor(math.log10(span))
    step *= next(part for part in (0.1, 0.2, 0.25, 0.5, 1.0, 2.0) if span / (part * step) <= 6)
    first, last = math.floor(low / step), math.ceil(high / step)
    return first * step, last * step, [k * step for k in range(first, last + 1)]


def _logarithmic(ends: list[float]) -> tuple[float, float, list[float]]:
    """The same where every value is above 0: 1, 2 and 5 times powers of ten; powers alone if they are many."""
    low, high = max(min(ends), 1e-6), min(max(ends), 1e6)
    marks = [part * 10.0**power for power in range(-7, 8) for part in (1.0, 2.0, 5.0)]
    first = max(mark for mark in marks if mark <= low * (1 + 1e-9))
    last = min(mark for mark in marks if mark >= high * (1 - 1e-9))
    last = last if last > first else 2 * first
    within = [mark for mark in marks if first <= mark <= last]
    few = [mark for mark in within if math.isclose(math.log10(mark), round(math.log10(mark)))]
    return first, last, within if len(within) <= 7 else few


def _listed(summary: Any) -> Markup:
    percent = f"{100 * summary.level:g}\u00a0%"
    head = (
        "Feature",
        summary.scale.capitalize(),
        "Std. error",
        f"Low ({percent})",
        f"High ({percent})",
        "p",
        "Privacy",
    )
    rows = [
        (
            element("bdi", breakable(line.name)),
            *(_shown(value) for value in (line.estimate, line.standard_error, line.low, line.high)),
            "–" if math.isnan(line.p_value) else "< 0.001" if line.p_value < 0.001 else f"{line.p_value:.3f}",
            "–" if math.isnan(line.privacy_share) else f"{100 * line.privacy_share:.0f}\u00a0%",
        )
        for line in summary.lines
    ]
    return table("Estimates and intervals", head, rows, numeric={1, 2, 3, 4, 5, 6})


def _shown(value: float) -> str:
    return "–" if math.isnan(value) else number(value, 4)
