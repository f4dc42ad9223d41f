"""How a series is drawn: its colour, shape and stroke, the same in every panel and in the legend."""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from dataclasses import dataclass

from tulle.reports.pages.charts import DIAMOND, DISC, ON_ITS_TIP, SQUARE, TRIANGLE, Shape, path, segment, shaped
from tulle.reports.pages.markup import Markup, join_markup
from tulle.reports.pages.page import SERIES
from tulle.reports.series import Results, Role

_STAR: Shape = tuple(
    (size * math.sin(k * math.pi / 5), -size * math.cos(k * math.pi / 5)) for k, size in enumerate((1.35, 0.55) * 5)
)

_RIGHT: Shape = ((1.15, 0.0), (-0.8, 1.05), (-0.8, -1.05))

_LEFT: Shape = ((-1.15, 0.0), (0.8, 1.05), (0.8, -1.05))

_SHAPES = (DISC, SQUARE, TRIANGLE, DIAMOND, ON_ITS_TIP, _STAR, _RIGHT, _LEFT)

# Strokes of crosses: ×, +, both, and each inside a shape.
_TIMES: tuple[Shape, ...] = (((-1.0, -1.0), (1.0, 1.0)), ((-1.0, 1.0), (1.0, -1.0)))

_PLUS: tuple[Shape, ...] = (((-1.25, 0.0), (1.25, 0.0)), ((0.0, -1.25), (0.0, 1.25)))

_CROSSES: tuple[tuple[tuple[Shape, ...], Shape | None], ...] = (
    (_TIMES, None),
    (_PLUS, None),
    ((*_TIMES, *_PLUS), None),
    (_TIMES, SQUARE),
    (_PLUS, DIAMOND),
    (_TIMES, DISC),
    (_PLUS, SQUARE),
    (_PLUS, DISC),
)

_STROKES: dict[Role, str] = {
    "unsound": "curve series dashed",
    "oracle": "curve series thin dotted",
    "honest": "curve series bold",
}

_REFERENCES = ("reference", "reference dashed", "reference dotted", "reference dashed dotted")


@dataclass(frozen=True)
class SeriesStyle:
    """How a series is drawn, in every panel and in the legend.

    Attributes
    ----------
    role : str
    colour, shape : int
        Of the method: names up to the first comma are of one method. Of a reference, `shape` counts the dashes.
    """

    role: Role
    colour: int = 0
    shape: int = 0

    @property
    def stroke(self) -> str:
        """The class of its line; "" where it has none."""
        if self.role == "reference":
            return _REFERENCES[self.shape % len(_REFERENCES)]
        stroke = _STROKES.get(self.role, "")
        return f"{stroke} s{self.colour}" if stroke else ""

    def marker(self, x: float, y: float) -> Markup:
        if self.role == "reference":
            return Markup("")
        colour = f"s{self.colour}"
        if self.role == "paper":
            strokes, around = _CROSSES[self.shape]
            size = 4.6 if around is None else 3.6
            parts = [path(((x + size * dx, y + size * dy) for dx, dy in one), f"cross {colour}") for one in strokes]
            return join_markup(parts if around is None else [*parts, shaped(x, y, around, f"cross {colour}", 5.2)])
        class_, size = {"unsound": ("marker hollow", 4.4), "oracle": ("marker", 3.2)}.get(self.role, ("marker", 4.6))
        return shaped(x, y, _SHAPES[self.shape], f"{class_} {colour}", size)

    def sample(self, x: float, y: float) -> Markup:
        """Its line and marker for the legend."""
        line = segment(x, y, x + 30, y, self.stroke) if self.stroke else Markup("")
        return join_markup([line, self.marker(x + 15, y)])


def choose_styles(results: Results) -> dict[tuple[str, Role], SeriesStyle]:
    """A look for each series by name and role, the same in all panels; no two of 64 of one role have the same."""
    methods: dict[str, int] = {}
    found: dict[tuple[str, Role], SeriesStyle] = {}
    for name, role in dict.fromkeys((one.name, one.role) for panel in results.panels for one in panel.series):
        if role == "reference":
            found[name, role] = SeriesStyle(role, shape=sum(1 for look in found.values() if look.role == role))
        else:
            k = methods.setdefault(re.split(r",| · ", name)[0].strip(), len(methods))
            found[name, role] = _free_look(role, k, {look for look in found.values() if look.role == role})
    return found


def _free_look(role: Role, k: int, taken: Collection[SeriesStyle]) -> SeriesStyle:
    """The colour and shape of method k; where they are taken, another shape, and then another colour."""
    shapes, colours = len(_SHAPES), len(SERIES["light"])
    looks = [
        SeriesStyle(role, (k + n // shapes) % colours, (k + k // colours * 4 + 3 * n) % shapes)
        for n in range(shapes * colours)
    ]
    return next((look for look in looks if look not in taken), looks[0])
