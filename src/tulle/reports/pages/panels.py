"""Results as small multiples: one panel next to another, one legend below, as a file of its own or inside a page.

Colour and shape say which method a series is of, the stroke says whose figures it shows: crosses are printed in the
paper, dashes have the paper's noise, dots were tuned on the private rows, bold lines are sound, grey is for reference.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from tulle.reports.number_format import setting
from tulle.reports.pages.charts import (
    WIDE,
    Place,
    Scale,
    apart,
    figure,
    path,
    segment,
    written,
)
from tulle.reports.pages.markup import Markup, element, join_markup
from tulle.reports.pages.page import DRAWING
from tulle.reports.pages.panel_axes import (
    DRAWING_ORDER,
    Axis,
    drawn_points,
    horizontal_axis,
    vertical_axis,
    whisker_length,
)
from tulle.reports.pages.series_styles import SeriesStyle, choose_styles
from tulle.reports.series import Panel, Point, Results, Role, Series, places

_STANDALONE = 840
# The most panels in a row of a picture of its own; a page has room for two, a phone for one.
_MOST_COLUMNS = 3
_GAP = 26.0
# Sizes of letters: of plain words, of bold words, and of the title.
_WORDS, _STRONG, _TITLE = 12.5, 13.2, 17.5  # bold letters are wider than their size says
_LINE = 17.0
_MOST_MARKERS = 10

_SAID: dict[Role, str] = {
    "paper": "crosses: printed in the paper",
    "unsound": "dashed: the paper's noise, its true ε in the table",
    "oracle": "dotted: oracle-tuned, not private",
    "honest": "bold: sound",
    "reference": "grey: references",
}


def figure_svg(results: Results) -> str:
    """The results as one SVG file, to be looked at on light and dark screens.

    Parameters
    ----------
    results : Results

    Returns
    -------
    str
        With its own style and ground; it asks for nothing.
    """
    title, description = _described(results)
    parts: list[Markup] = []
    down = 0.0
    about = f"{results.paper}. Every ε is at {results.promise}." if results.promise else results.paper
    for words, class_, size in ((results.title, "title", _TITLE), (about, "soft", _WORDS)):
        for line in _wrapped(words, _STANDALONE - 32, size):
            down += 22.0 if class_ == "title" else _LINE
            parts.append(written(16, down, line, class_=class_))
        down += 4.0
    drawn, height = _drawing(results, _STANDALONE - 32.0, _columns(len(results.panels)))
    parts.append(element("g", drawn, transform=f"translate(16 {down:.0f})"))
    height += down
    for line in _wrapped(_key_of_strokes(results), _STANDALONE - 32):
        height += _LINE
        parts.append(written(16, height, line, class_="soft"))
    height += 16
    whole = element(
        "svg",
        element("title", title, id="title"),
        element("desc", description, id="desc"),
        element("style", Markup(DRAWING)),
        element("rect", width="100%", height="100%", class_="ground"),
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {_STANDALONE} {height:.0f}",
        width=_STANDALONE,
        height=f"{height:.0f}",
        role="img",
        aria_labelledby="title desc",
    )
    return f"{whole}\n"


def figure_inline(results: Results) -> Markup:
    """The results as a figure of a page, drawn for a wide and for a narrow screen."""
    title, description = _described(results)

    def draw(width: int) -> tuple[Markup, float]:
        columns = min(len(results.panels), 2 if width == WIDE else 1)
        return _drawing(results, float(width), max(columns, 1))

    return figure("results", title, f"{description} {_key_of_strokes(results)}", draw)


def _columns(count: int) -> int:
    """Panels in a row: as few rows as there can be, and no row much shorter than the others."""
    return 2 if count == 4 else max(1, min(count, _MOST_COLUMNS))


def _described(results: Results) -> tuple[str, str]:
    """The picture's name, and its content."""
    axes = dict.fromkeys(f"{panel.y} against {panel.x}" for panel in results.panels)
    several = f" in {len(results.panels)} panels" if len(results.panels) > 1 else ""
    words = f"{'; '.join(axes)}{several}. " if axes else ""
    return results.title, f"{words[:1].upper()}{words[1:]}The tables contain every value."


def _key_of_strokes(results: Results) -> str:
    there = {one.role for panel in results.panels for one in panel.series}
    said = [words for role, words in _SAID.items() if role in there]
    if any(whisker_length(point) for panel in results.panels for one in panel.series for point in one.points):
        said.append("whiskers: one standard error")
    if any(vertical_axis(panel).leaves_out(panel) for panel in results.panels):
        said.append("arrows at an edge: values beyond it")
    return f"{'; '.join(said)}.".capitalize() if said else ""


def _room(text: str, size: float = _WORDS) -> float:
    """The pixels that text takes at most, in the widest of the fonts that pages name."""
    return size * sum(_letter(letter) for letter in text)


def _letter(letter: str) -> float:
    """The width of a letter as a share of its size."""
    if letter in " .,:;'’|!iljI()[]-/":
        return 0.4
    if letter in "mwMW@%—…" or ord(letter) > 0x2E80:
        return 1.0
    return 0.7 if letter.isupper() else 0.64


def _wrapped(text: str, width: float, size: float = _WORDS) -> list[str]:
    """Text in lines that fit; words that fit in none are parted."""
    lines: list[str] = []
    for word in text.split():
        if lines and _room(f"{lines[-1]} {word}", size) <= width:
            lines[-1] += f" {word}"
            continue
        lines.append("")
        for letter in word:
            if lines[-1] and _room(lines[-1] + letter, size) > width:
                lines.append("")
            lines[-1] += letter
    return lines


def _shortened(text: str, width: float) -> str:
    """Text in one line that fits."""
    if _room(text) <= width:
        return text
    kept = next((k for k in range(len(text), 0, -1) if _room(f"{text[:k]}…") <= width), 1)
    return f"{text[:kept].rstrip()}…"


# --- the drawing -----------------------------------------------------------------------------------------------------


def _drawing(results: Results, width: float, columns: int) -> tuple[Markup, float]:
    """The part between the title and the explanation of strokes: the substitute, the panels, the legend."""
    looks = choose_styles(results)
    parts: list[Markup] = []
    down = 0.0
    for line in _wrapped(results.substitute, width, _STRONG):
        down += _LINE
        parts.append(written(0, down, line, class_="alarm"))
    down += 12.0 if results.substitute else 4.0
    each = (width - _GAP * (columns - 1)) / columns
    tall = min(max(0.66 * each, 190.0), 340.0)
    for start in range(0, len(results.panels), columns):
        row = results.panels[start : start + columns]
        heads = [_wrapped(panel.name, each, _STRONG) for panel in row]
        head = _LINE * max(map(len, heads))
        for k, (panel, lines) in enumerate(zip(row, heads)):
            left = k * (each + _GAP)
            for n, line in enumerate(lines):
                parts.append(written(left, down + _LINE * (n + 1), line, class_="strong"))
            parts.append(_panel(panel, looks, left, down + head, each, tall))
        down += head + tall + 78.0
    legend, height = _legend(looks, width, down)
    return join_markup([*parts, legend]), height


def _legend(looks: Mapping[tuple[str, Role], SeriesStyle], width: float, top: float) -> tuple[Markup, float]:
    """Samples with names, in as many columns as the longest name leaves room for."""
    if not looks:
        return Markup(""), top
    longest = max(_room(name) for name, _ in looks)
    columns = max(1, min(3, len(looks), int(width / (longest + 56))))
    each = width / columns
    rows = math.ceil(len(looks) / columns)
    parts = []
    for k, ((name, _), look) in enumerate(looks.items()):
        x, y = each * (k // rows), top + 20.0 * (k % rows) + 8
        parts.append(element("g", look.sample(x, y), written(x + 40, y + 4, _shortened(name, each - 44)), class_="key"))
    return join_markup(parts), top + 20.0 * rows + 6


def _panel(
    panel: Panel, looks: Mapping[tuple[str, Role], SeriesStyle], left: float, top: float, width: float, tall: float
) -> Markup:
    """One panel: what the upright axis means above it, the level axis below."""
    log_y = " (log)" if vertical_axis(panel).logarithmic else ""
    parts = [written(left, top + _LINE, _shortened(f"{panel.y}{log_y}", width), class_="soft")]
    if not places(panel):
        return join_markup([*parts, written(left, top + 2.5 * _LINE, "no results")])
    upright, level = vertical_axis(panel), horizontal_axis(panel)
    room = max(_room(setting(tick)) for tick in upright.ticks) + 12
    last = _room(setting(level.ticks[-1])) / 2 if level.ticks else 0.0
    y = upright.scale(top + 30 + tall, top + 30)
    x = level.scale(left + room, left + width - max(6.0, last - 4))
    for tick in upright.ticks:
        parts.append(segment(x.start, y.place(tick), x.stop, y.place(tick), "grid"))
        parts.append(written(x.start - 8, y.place(tick) + 4, setting(tick), "end", "soft"))
    widest = max((_room(setting(tick)) for tick in level.ticks), default=0.0) + 6
    for tick in apart(level.ticks, x, widest):
        parts.append(segment(x.place(tick), y.start, x.place(tick), y.start + 5, "frame"))
        parts.append(written(x.place(tick), y.start + 19, setting(tick), "middle", "soft"))
    parts.append(path([(x.start, y.stop), (x.start, y.start), (x.stop, y.start)], "frame"))
    log_x = " (log)" if level.logarithmic and len(places(panel)) > 1 else ""
    named = _shortened(f"{panel.x}{log_x}", width)
    middle = min((x.start + x.stop) / 2, left + width - _room(named) / 2)
    parts.append(written(middle, y.start + 37, named, "middle"))
    plot = _Plot(panel, upright, x, y)
    ordered = sorted(panel.series, key=lambda one: DRAWING_ORDER.index(one.role))
    drawn = [
        element("g", element("title", one.name), plot.drawn(one, looks[one.name, one.role]), class_="line")
        for one in ordered
    ]
    return element("g", *parts, *drawn, *plot.arrows(looks), *plot.labels(), class_="panel")


@dataclass(frozen=True)
class _Plot:
    """The inside of a panel."""

    panel: Panel
    upright: Axis
    x: Scale
    y: Scale

    @property
    def _measured(self) -> list[Series]:
        return [one for one in self.panel.series if one.role != "reference"]

    def _place(self, one: Series, x: float) -> float:
        """The place of a point: series are a little apart, so that whiskers do not hide each other."""
        found = places(self.panel)
        at = self.x.place(x)
        if one.role == "reference" or len(found) > 12:
            return at
        ends = [self.x.place(place) for place in found]
        nearest = min((right - left for left, right in pairwise(ends)), default=self.x.stop - self.x.start)
        count = len(self._measured)
        step = 0.85 * nearest / count if len(found) == 1 else min(2.2, 0.35 * nearest / count)
        return at + (self._measured.index(one) - (count - 1) / 2) * step

    def _height(self, value: float) -> float:
        """The height of a value, beyond the edges too, where lines are cut off at them."""
        if not self.upright.beyond(value):
            return self.y.place(value)
        if not math.isfinite(value) or (self.upright.logarithmic and value <= 0):
            return self.y.stop - 1e4 if value > 0 else self.y.start + 1e4
        size = self.y.start - self.y.stop
        if self.upright.logarithmic:
            share = math.log(value / self.y.low) / math.log(self.y.high / self.y.low)
        else:
            share = (value - self.y.low) / (self.y.high - self.y.low)
        return self.y.start - min(max(share, -100.0), 100.0) * size

    def drawn(self, one: Series, look: SeriesStyle) -> Markup:
        points = drawn_points(one)
        if one.role == "reference" and len({point.mean for point in points}) == 1:
            if self.upright.beyond(points[0].mean):
                return Markup("")
            height = self.y.place(points[0].mean)
            return segment(self.x.start, height, self.x.stop, height, look.stroke)
        parts = []
        if look.stroke:
            track = [(self._place(one, point.x), self._height(point.mean)) for point in points]
            parts += [path(piece, look.stroke) for piece in _cut(track, self.y.stop, self.y.start)]
        # Markers on a curve of many points would hide the curve.
        stride = 1 if one.role == "paper" else math.ceil(len(points) / _MOST_MARKERS)
        for k, point in enumerate(points):
            if not self.upright.beyond(point.mean):
                at = self._place(one, point.x)
                marker = look.marker(at, self.y.place(point.mean)) if k % stride == 0 else Markup("")
                parts += [self._whisker(at, point, look), marker]
        return join_markup(parts)

    def _whisker(self, at: float, point: Point, look: SeriesStyle) -> Markup:
        length = whisker_length(point)
        if length == 0:
            return Markup("")
        class_ = "reference" if look.role == "reference" else f"whisker s{look.colour}"
        ends = (point.mean - length, point.mean + length)
        parts = [segment(at, self.y.place(ends[0]), at, self.y.place(ends[1]), class_)]
        for end in ends:
            if not self.upright.beyond(end):
                parts.append(segment(at - 3, self.y.place(end), at + 3, self.y.place(end), class_))
        return join_markup(parts)

    def arrows(self, looks: Mapping[tuple[str, Role], SeriesStyle]) -> list[Markup]:
        """An arrow for each point beyond an edge; those at one place stand side by side."""
        sides: dict[tuple[float, int], list[tuple[Series, Point]]] = {}
        for one in self._measured:
            for point in drawn_points(one):
                side = self.upright.beyond(point.mean)
                if side:
                    sides.setdefault((point.x, side), []).append((one, point))
        parts = []
        for (x, side), found in sides.items():
            step = min(10.0, 0.8 * (self.x.stop - self.x.start) / len(places(self.panel)) / len(found))
            for k, (one, point) in enumerate(found):
                beside = self.x.place(x) + (k - (len(found) - 1) / 2) * step
                at = self._place(one, x) if len(places(self.panel)) == 1 else beside
                at = min(max(at, self.x.start + 5), self.x.stop - 5)
                look = looks[one.name, one.role]
                told = element("title", f"{one.name}, {self.panel.x} = {point.x:g}: {point.mean:.4g}")
                parts.append(element("g", told, self._arrow(at, side, look), class_="beyond"))
        return parts

    def _arrow(self, at: float, side: int, look: SeriesStyle) -> Markup:
        edge = self.y.stop if side > 0 else self.y.start
        tip, base, foot = edge + side * 1.0, edge + side * 8.0, edge + side * 15.0
        head = path([(at - 4, base), (at + 4, base), (at, tip)], f"marker s{look.colour}", closed=True)
        return join_markup([segment(at, base, at, foot, f"whisker s{look.colour}"), head])

    # --- the names of levels for reference, where they hide least; curves have theirs in the key ---

    def labels(self) -> list[Markup]:
        taken: list[tuple[float, float, float, float]] = []
        parts = []
        for one in self.panel.series:
            points = [point for point in drawn_points(one) if not self.upright.beyond(point.mean)]
            if one.role == "reference" and points and len({point.mean for point in one.points}) == 1:
                words = _shortened(one.name, 0.62 * (self.x.stop - self.x.start))
                box = min(self._boxes(words, points), key=partial(self._hidden, taken=taken))
                taken.append(box)
                parts.append(written(box[0] + 2, box[3] - 4, words, class_="soft halo"))
        return parts

    def _boxes(self, words: str, points: Sequence[Point]) -> Iterable[tuple[float, float, float, float]]:
        """Where a label may stand: above or below the line, at its right end first; left, top, right, bottom."""
        wide = _room(words)
        for k in range(13):
            left = self.x.start + 4 + (1 - k / 12) * (self.x.stop - self.x.start - wide - 8)
            nearest = min(points, key=lambda point: abs(self.x.place(point.x) - left - wide / 2))
            height = self.y.place(nearest.mean)
            for top in (height - 18, height + 3):
                if self.y.stop <= top <= self.y.start - 15:
                    yield left, top, left + wide, top + 15

    def _hidden(
        self, box: tuple[float, float, float, float], taken: Sequence[tuple[float, float, float, float]]
    ) -> float:
        """How much a label at that place would hide: other labels above all."""
        left, top, right, bottom = box
        hidden = sum(1000.0 for a, b, c, d in taken if left < c and a < right and top < d and b < bottom)
        for one in self.panel.series:
            track = [(self._place(one, point.x), self._height(point.mean)) for point in drawn_points(one)]
            if one.role == "reference" and len({point.mean for point in one.points}) == 1 and track:
                track = [(self.x.start, track[0][1]), (self.x.stop, track[0][1])]
            hidden += sum(6 for x, y in track if left - 5 < x < right + 5 and top - 5 < y < bottom + 5)
            if one.role != "paper":
                along = [
                    (a[0] + share * (b[0] - a[0]), a[1] + share * (b[1] - a[1]))
                    for a, b in pairwise(track)
                    for share in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
                ]
                hidden += sum(1 for x, y in along if left < x < right and top < y < bottom)
        return hidden


def _cut(track: Sequence[Place], top: float, bottom: float) -> list[list[Place]]:
    """The pieces of a line between two heights."""
    pieces: list[list[Place]] = []
    for (x1, y1), (x2, y2) in pairwise(track):
        if max(y1, y2) < top or min(y1, y2) > bottom:
            continue

        def at(height: float, x1: float = x1, y1: float = y1, x2: float = x2, y2: float = y2) -> Place:
            inside = min(max(height, top), bottom)
            return (x1 + (x2 - x1) * (inside - y1) / (y2 - y1) if y1 != y2 else x1, inside)

        start = (x1, y1) if top <= y1 <= bottom else at(y1)
        stop = (x2, y2) if top <= y2 <= bottom else at(y2)
        if pieces and pieces[-1][-1] == start:
            pieces[-1].append(stop)
        else:
            pieces.append([start, stop])
    return pieces
