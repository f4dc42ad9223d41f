"""Charts as inline SVG. Each is drawn twice, for a wide and for a narrow screen, and one of the two is shown."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import isotonic_regression

from tulle.reports.number_format import format_rounded_up, number, setting
from tulle.reports.pages.markup import Markup, element, join_markup
from tulle.reports.pages.page import SERIES
from tulle.trusted.events import FloatArray

WIDE, NARROW = 700, 340
Place = tuple[float, float]


@dataclass(frozen=True)
class Scale:
    """From values to places along one axis.

    Attributes
    ----------
    low, high : float
        The values at the ends, low < high; above 0 where `logarithmic`.
    start, stop : float
        The places of the ends.
    logarithmic : bool
    """

    low: float
    high: float
    start: float
    stop: float
    logarithmic: bool = False

    def place(self, value: float) -> float:
        """The place of a value; values beyond an end lie on it."""
        value = min(max(value, self.low), self.high)
        if self.logarithmic:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.stop - self.start)


def figure(name: str, title: str, description: str, draw: Callable[[int], tuple[Markup, float]]) -> Markup:
    """A figure in both widths. `draw(width)` gives the drawing and its height; `name` makes ids unique on the page."""
    drawn = []
    for form, width in (("wide", WIDE), ("narrow", NARROW)):
        inside, height = draw(width)
        drawn.append(
            element(
                "svg",
                element("title", title, id=f"{name}-{form}-title"),
                element("desc", description, id=f"{name}-{form}-desc"),
                inside,
                class_=form,
                viewBox=f"0 0 {width} {height:g}",
                role="img",
                aria_labelledby=f"{name}-{form}-title {name}-{form}-desc",
            )
        )
    return element("figure", *drawn, element("figcaption", description))


def segment(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    """A straight line."""
    return element("line", x1=f"{x1:.1f}", y1=f"{y1:.1f}", x2=f"{x2:.1f}", y2=f"{y2:.1f}", class_=class_)


def written(x: float, y: float, text: str, anchor: str = "start", class_: str | None = None) -> Markup:
    """Words at a place."""
    return element("text", text, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor, class_=class_)


def path(points: Iterable[Place], class_: str, closed: bool = False, **attributes: str) -> Markup:
    """A line through places."""
    drawn = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return element("path", d=f"M{drawn}{'Z' if closed else ''}", class_=class_, **attributes)


# --- the scale of epsilon ---------------------------------------------------------------------------------------------


def epsilon_scale(proved: float, asked: float | None) -> Markup:
    """Where the proved and the asked epsilon stand between 0.01 and 100."""
    words = f"The proved ε is {format_rounded_up(proved)}" if math.isfinite(proved) else "No ε is proved"
    if asked is not None:
        words += f"; requested was {format_rounded_up(asked)}"

    def draw(width: int) -> tuple[Markup, float]:
        scale = Scale(0.01, 100.0, 26.0, width - 34.0, logarithmic=True)
        axis = 74.0
        parts = [segment(scale.start, axis, scale.stop, axis, "frame")]
        for tick in (0.01, 0.1, 1.0, 10.0, 100.0):
            x = scale.place(tick)
            parts.append(segment(x, axis - 5, x, axis + 5, "frame"))
            parts.append(written(x, axis + 22, setting(tick), "middle"))
            # At 100 the factor has 44 digits, and no room.
            factor = "over 10⁴³" if tick == 100 else number(math.exp(tick), 3)
            parts.append(written(x, axis + 41, f"×{factor}" if tick < 100 else factor, "middle", "soft"))
        parts.append(written(2, axis + 66, "← reveals less about one unit", "start", "soft"))
        parts.append(written(width - 2, axis + 66, "reveals more →", "end", "soft"))
        if asked is not None:
            parts.append(_placed(scale, asked, axis, 16.0, f"asked {format_rounded_up(asked)}", "asked", width))
        label = f"proved {format_rounded_up(proved)}" if math.isfinite(proved) else "nothing is proved"
        parts.append(_placed(scale, proved, axis, 40.0, label, "proved", width))
        return join_markup(parts), axis + 76

    caption = f"{words}. The scale is logarithmic; below each ε is the largest factor by which odds can change."
    return figure("epsilon-scale", "The scale of ε", caption, draw)


def _placed(scale: Scale, value: float, axis: float, row: float, label: str, class_: str, width: int) -> Markup:
    """A marker on the axis with its label above; a value beyond the end points outwards."""
    x = scale.place(value)
    if value > scale.high:
        x += 16
        marker = path(((x - 7, axis - 7), (x + 7, axis), (x - 7, axis + 7)), class_, closed=True)
    elif class_ == "proved":
        marker = path(((x, axis - 8), (x + 8, axis), (x, axis + 8), (x - 8, axis)), class_, closed=True)
    else:
        marker = element("circle", cx=f"{x:.1f}", cy=f"{axis:.1f}", r="11", class_=class_)
    anchor = "start" if x < 60 else "end" if x > width - 75 else "middle"
    lead = segment(x, row + 5, x, axis - 12, "leader")
    return join_markup([lead, marker, written(x, row, label, anchor, "strong halo" if class_ == "proved" else "halo")])


# --- an attack --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Attack:
    """The curve of an attack, what holds its hit rates, and what the claim allows.

    Attributes
    ----------
    false_rates, hit_rates, low, high : array
        The curve and its band.
    grid, allowed : array
        False-hit rates and the largest hit rates that the claim allows; empty where nothing was claimed.
    smallest : float
        Where the axes begin, above 0: rates of few hits are mostly luck.
    claim : str
    """

    false_rates: FloatArray
    hit_rates: FloatArray
    low: FloatArray
    high: FloatArray
    grid: FloatArray
    allowed: FloatArray
    smallest: float
    claim: str


def attack_chart(attack: Attack, title: str, description: str) -> Markup:
    """Hit rate against false-hit rate, both logarithmic."""

    def draw(width: int) -> tuple[Markup, float]:
        side = min(width - 70.0, 380.0)
        x = Scale(attack.smallest, 1.0, 58.0, 58.0 + side, logarithmic=True)
        y = Scale(attack.smallest, 1.0, 14.0 + side, 14.0, logarithmic=True)

        def points(across: FloatArray, up: FloatArray) -> list[Place]:
            order = np.argsort(across, kind="stable")
            return [(x.place(float(a)), y.place(float(u))) for a, u in zip(across[order], up[order])]

        parts = []
        if len(attack.grid):
            edge = points(attack.grid, attack.allowed)
            corners = [(x.stop, y.stop), (x.start, y.stop)]
            parts.append(path([*edge, *corners], "forbidden", closed=True))
        for power in range(round(math.log10(attack.smallest)), 1):
            value, label = 10.0**power, setting(10.0**power)
            parts.append(segment(x.place(value), y.start, x.place(value), y.stop, "grid"))
            parts.append(segment(x.start, y.place(value), x.stop, y.place(value), "grid"))
            parts.append(written(x.place(value), y.start + 18, label, "middle", "soft"))
            parts.append(written(x.start - 8, y.place(value) + 4, label, "end", "soft"))
        band = [*points(attack.false_rates, attack.high), *reversed(points(attack.false_rates, attack.low))]
        parts.append(path(band, "band", closed=True))
        parts.append(segment(x.start, y.start, x.stop, y.stop, "reference dotted"))
        if len(attack.grid):
            parts.append(path(edge, "curve claim dashed"))
        parts.append(path(points(attack.false_rates, attack.hit_rates), "curve attack"))
        parts.append(path([(x.start, y.stop), (x.start, y.start), (x.stop, y.start)], "frame"))
        parts.append(written((x.start + x.stop) / 2, y.start + 38, "false-hit rate (the other data set)", "middle"))
        parts.append(_upright((y.start + y.stop) / 2, "hit rate"))
        parts += _attack_key(attack, x, y, width)
        return join_markup(parts), y.start + (48 if width == WIDE else 56 + 22 * (2 + bool(len(attack.grid))))

    return figure("attack", title, description, draw)


def tradeoff_chart(attack: Attack, title: str, description: str) -> Markup:
    """Misses (1 - hit rate) against false hits, on linear axes from 0 to 1."""

    def draw(width: int) -> tuple[Markup, float]:
        side = min(width - 70.0, 380.0)
        x, y = Scale(0.0, 1.0, 58.0, 58.0 + side), Scale(0.0, 1.0, 14.0 + side, 14.0)

        def points(across: FloatArray, hits: FloatArray) -> list[Place]:
            """From the attack that never says the first to the one that always does."""
            order = np.argsort(across, kind="stable")
            places = [(0.0, 1.0), *zip(across[order], 1.0 - hits[order]), (1.0, 0.0)]
            return [(x.place(float(a)), y.place(float(u))) for a, u in places]

        parts, edge = [], []
        if len(attack.grid):
            edge = points(attack.grid, attack.allowed)
            parts.append(path([*edge, (x.start, y.start)], "forbidden", closed=True))
        for tick in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0):
            parts.append(segment(x.place(tick), y.start, x.place(tick), y.stop, "grid"))
            parts.append(segment(x.start, y.place(tick), x.stop, y.place(tick), "grid"))
            parts.append(written(x.place(tick), y.start + 18, setting(tick), "middle", "soft"))
            parts.append(written(x.start - 8, y.place(tick) + 4, setting(tick), "end", "soft"))
        upper, lower = (points(attack.false_rates, rates) for rates in (attack.low, attack.high))
        parts.append(path([*upper, *reversed(lower)], "band", closed=True))
        parts.append(segment(x.start, y.stop, x.stop, y.start, "reference dotted"))
        if edge:
            parts.append(path(edge, "curve claim dashed"))
        parts.append(path(points(attack.false_rates, attack.hit_rates), "curve attack"))
        parts.append(path([(x.start, y.stop), (x.start, y.start), (x.stop, y.start)], "frame"))
        parts.append(written((x.start + x.stop) / 2, y.start + 38, "false-hit rate (the other data set)", "middle"))
        parts.append(_upright((y.start + y.stop) / 2, "miss rate"))
        parts += _attack_key(attack, x, y, width)
        return join_markup(parts), y.start + (48 if width == WIDE else 56 + 22 * (2 + bool(edge)))

    return figure("tradeoff", title, description, draw)


def _upright(middle: float, label: str) -> Markup:
    return element("text", label, text_anchor="middle", transform=f"translate(14 {middle:.0f}) rotate(-90)")


def _attack_key(attack: Attack, x: Scale, y: Scale, width: int) -> list[Markup]:
    lines = [("curve attack", "attack, with a 95 % band"), ("reference dotted", "guessing")]
    if len(attack.grid):
        lines.insert(1, ("curve claim dashed", f"limit for {attack.claim}"))
    across, down = (x.stop + 24, 40.0) if width == WIDE else (x.start, y.start + 62)
    parts = []
    for k, (class_, label) in enumerate(lines):
        parts.append(segment(across, down + 22 * k, across + 28, down + 22 * k, class_))
        parts.append(written(across + 36, down + 22 * k + 4, label))
    return parts


# --- the evidence of a test by betting --------------------------------------------------------------------------------


def evidence_chart(
    history: Sequence[tuple[int, float]], wanted: float, decided_after: int | None, description: str
) -> Markup:
    """The capital over the runs, on a logarithmic axis, against the line that refutes.

    Parameters
    ----------
    history : sequence of (int, float)
        Runs and capital after each round.
    wanted : float
        The capital that refutes the claim, above 1.
    decided_after : int or None
        The run at which it was reached.
    description : str
    """
    drawn = [(0, 1.0), *((runs, max(capital, 1e-300)) for runs, capital in history)]

    def draw(width: int) -> tuple[Markup, float]:
        wide = width == WIDE
        bottom = 260.0 if wide else 220.0
        _, most, across = _linear_ticks(float(drawn[-1][0]))
        x = Scale(0.0, most, 66.0, width - (150.0 if wide else 20.0))
        low, high, up = _logarithmic_ticks([1.0, wanted, *(capital for _, capital in drawn)])
        y = Scale(low, high, bottom, 30.0, logarithmic=True)
        parts = _axes(x, y, across, up, "runs on each data set")
        parts.append(written(2, 14, "evidence (logarithmic)"))
        parts.append(segment(x.start, y.place(1.0), x.stop, y.place(1.0), "reference dotted"))
        parts.append(segment(x.start, y.place(wanted), x.stop, y.place(wanted), "curve claim dashed"))
        label = f"{setting(float(f'{wanted:.4g}'))} refutes"
        if wide:
            parts.append(written(x.stop + 8, y.place(wanted) + 4, label))
        else:
            parts.append(written(x.stop, y.place(wanted) - 6, label, "end", "halo"))
        places = [(x.place(float(runs)), y.place(capital)) for runs, capital in drawn]
        parts.append(path(places, "curve attack"))
        if decided_after is not None:
            parts.append(shaped(x.place(float(decided_after)), y.place(wanted), DISC, "proved"))
        return join_markup(parts), bottom + 50

    return figure("evidence", "The evidence against the claim over the runs", description, draw)


# --- a Rényi curve ----------------------------------------------------------------------------------------------------


def renyi_chart(curve: Sequence[tuple[float, float]], description: str) -> Markup:
    """The Rényi divergence against its order, both logarithmic; `curve` has orders > 1 and divergences > 0."""
    orders, values = [order for order, _ in curve], [value for _, value in curve]

    def draw(width: int) -> tuple[Markup, float]:
        wide = width == WIDE
        bottom = 190.0 if wide else 170.0
        x = Scale(orders[0], orders[-1], 66.0, width - (120.0 if wide else 20.0), logarithmic=True)
        low, high, ticks = _logarithmic_ticks(values)
        y = Scale(low, high, bottom, 30.0, logarithmic=True)
        parts = _axes(x, y, orders, ticks, "order α (logarithmic)")
        parts.append(written(2, 14, "ε(α) (logarithmic; smaller reveals less)"))
        places = [(x.place(order), y.place(value)) for order, value in curve]
        parts.append(path(places, "curve series s0"))
        parts += [_marker(*place, 0) for place in places]
        return join_markup(parts), bottom + 50

    return figure("renyi", "The Rényi curve", description, draw)


# --- error against epsilon --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measured:
    """One line of a chart: places along epsilon, with standard errors."""

    label: str
    epsilons: tuple[float, ...]
    means: tuple[float, ...]
    errors: tuple[float, ...]


Shape = tuple[Place, ...]
DISC: Shape = tuple((math.cos(k * math.pi / 8), math.sin(k * math.pi / 8)) for k in range(16))
SQUARE: Shape = ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9))
TRIANGLE: Shape = ((0.0, -1.15), (1.05, 0.8), (-1.05, 0.8))
ON_ITS_TIP: Shape = ((0.0, 1.15), (1.05, -0.8), (-1.05, -0.8))
DIAMOND: Shape = ((0.0, -1.25), (1.1, 0.0), (0.0, 1.25), (-1.1, 0.0))
# With whether it is open: eight markers that can be distinguished without colours.
_MARKERS: tuple[tuple[Shape, bool], ...] = (
    (DISC, False),
    (SQUARE, False),
    (TRIANGLE, False),
    (DIAMOND, True),
    (DISC, True),
    (SQUARE, True),
    (ON_ITS_TIP, False),
    (DIAMOND, False),
)
MOST_LINES = len(_MARKERS)


def _marker(x: float, y: float, k: int) -> Markup:
    shape, is_open = _MARKERS[k % len(_MARKERS)]
    return shaped(x, y, shape, f"marker open s{k}" if is_open else f"marker s{k}")


def shaped(x: float, y: float, shape: Shape, class_: str, size: float = 4.6) -> Markup:
    """A shape around a place."""
    return path(((x + size * dx, y + size * dy) for dx, dy in shape), class_, closed=True)


def error_chart(
    lines: Sequence[Measured], references: Sequence[tuple[str, float]], metric: str, title: str, description: str
) -> Markup:
    """A metric against epsilon, one line a method, with levels of reference drawn across."""
    lines = lines[:MOST_LINES]
    values = [
        value
        for line in lines
        for mean, error in zip(line.means, line.errors)
        for value in (mean - error, mean, mean + error)
    ]
    values += [value for _, value in references]
    means = [mean for line in lines for mean in line.means] + [value for _, value in references]
    # Errors of 1 and of 1,000 are not read on one linear axis.
    logarithmic = min(means) > 0 and max(means) > 30 * min(means)
    epsilons = sorted({epsilon for line in lines for epsilon in line.epsilons})

    def draw(width: int) -> tuple[Markup, float]:
        wide = width == WIDE
        right = width - (190.0 if wide else 16.0)
        bottom = 330.0 if wide else 250.0
        x = Scale(min(epsilons) / 1.25, max(epsilons) * 1.25, 62.0 if wide else 52.0, right, logarithmic=True)
        low, high, ticks = _logarithmic_ticks(means) if logarithmic else _linear_ticks(max(values))
        y = Scale(low, high, bottom, 30.0, logarithmic)
        parts = _axes(x, y, epsilons, ticks, "ε (logarithmic)")
        parts.append(written(2, 14, f"{metric} (smaller is better)"))
        keys: list[tuple[str, str, float, int]] = []  # class, words, height, number of the line
        for k, (label, value) in enumerate(references):
            class_ = "reference dotted" if k else "reference dashed"
            parts.append(segment(x.start, y.place(value), x.stop, y.place(value), class_))
            keys.append((class_, f"{label}: {number(value, 3)}", y.place(value), -1))
        for k, line in enumerate(lines):
            places = [
                (x.place(epsilon), mean, error) for epsilon, mean, error in zip(line.epsilons, line.means, line.errors)
            ]
            parts.append(path([(at, y.place(mean)) for at, mean, _ in places], f"curve series s{k}"))
            for at, mean, error in places:
                top, foot = y.place(mean + error), y.place(max(mean - error, y.low))
                if error > 0:
                    parts.append(segment(at, top, at, foot, f"whisker s{k}"))
                    parts += [segment(at - 4, end, at + 4, end, f"whisker s{k}") for end in (top, foot)]
                parts.append(_marker(at, y.place(mean), k))
            keys.append((f"curve series s{k}", line.label, y.place(line.means[-1]), k))
        if wide:
            keys.sort(key=lambda key: key[2])
            heights = _spread([key[2] for key in keys], 19.0, 20.0, bottom)
            for (class_, label, target, k), height in zip(keys, heights):
                parts.append(path([(right + 3, target), (right + 14, height), (right + 20, height)], "leader"))
                parts.append(_key(right + 24, height, class_, label, k, 20))
            return join_markup(parts), max(bottom + 54, heights[-1] + 12)
        for row, (class_, label, _, k) in enumerate(keys):
            parts.append(_key(x.start, bottom + 66 + 22 * row, class_, label, k, 30))
        return join_markup(parts), bottom + 66 + 22 * len(keys)

    return figure("errors", title, description, draw)


def _axes(x: Scale, y: Scale, across: Sequence[float], up: Sequence[float], label: str) -> list[Markup]:
    """Both axes: a line across for each value up, and as many values across as have room."""
    parts = []
    for tick in up:
        parts.append(segment(x.start, y.place(tick), x.stop, y.place(tick), "grid"))
        parts.append(written(x.start - 8, y.place(tick) + 4, setting(tick), "end", "soft"))
    for value in apart(across, x, 36.0):
        parts.append(segment(x.place(value), y.start, x.place(value), y.start + 5, "frame"))
        parts.append(written(x.place(value), y.start + 20, setting(value), "middle", "soft"))
    parts.append(path([(x.start, y.stop), (x.start, y.start), (x.stop, y.start)], "frame"))
    parts.append(written((x.start + x.stop) / 2, y.start + 42, label, "middle"))
    return parts


def _key(x: float, y: float, class_: str, label: str, k: int, most: int) -> Markup:
    """A line's sample with its words next to it."""
    short = label if len(label) <= most else f"{label[: most - 1]}…"
    marker = _marker(x + 11, y, k) if k >= 0 else Markup("")
    return join_markup([segment(x, y, x + 22, y, class_), marker, written(x + 29, y + 4, short)])


def _linear_ticks(highest: float) -> tuple[float, float, list[float]]:
    highest = highest if highest > 0 else 1.0
    step = 10.0 ** math.floor(math.log10(highest))
    step *= next(part for part in (0.1, 0.2, 0.25, 0.5, 1.0, 2.0) if highest / (part * step) <= 6)
    count = math.ceil(highest / step - 1e-9)
    return 0.0, count * step, [k * step for k in range(count + 1)]


def _logarithmic_ticks(means: Sequence[float]) -> tuple[float, float, list[float]]:
    last = math.ceil(math.log10(max(means)) + 1e-9)
    first = max(math.floor(math.log10(min(means))), last - 9)  # smaller values lie on the edge
    stride = max(1, math.ceil((last - first) / 6))
    return 10.0**first, 10.0**last, [10.0**power for power in range(first, last + 1, stride)]


def apart(values: Sequence[float], scale: Scale, least: float) -> list[float]:
    """Those of rising values whose places are far enough from the one kept before."""
    kept: list[float] = []
    for value in values:
        if not kept or scale.place(value) - scale.place(kept[-1]) >= least:
            kept.append(value)
    return kept


def _spread(heights: Sequence[float], least: float, top: float, bottom: float) -> list[float]:
    """Rising heights moved apart: the least squares of moves, then back between top and bottom as far as they fit."""
    steps = least * np.arange(len(heights))
    moved = isotonic_regression(np.asarray(heights) - steps).x + steps
    moved = np.maximum(moved - max(0.0, moved[-1] - bottom), top + steps)
    return [float(height) for height in moved]


assert len(SERIES["light"]) == len(SERIES["dark"]) == MOST_LINES
