"""What an experiment found, as tables and pictures have it: panels of series of points.

Every kind of experiment makes `Results`; `tulle.reports.pages` turns them into a page and a picture, `table` into
Markdown.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

from tulle.files.csv_cells import write_csv
from tulle.files.number_text import finite
from tulle.reports.markdown_tables import markdown_table

_RESULTS_DEPEND_ON = "nothing"

# Whose figures a series shows. "paper": printed in the paper. "unsound": run here with the paper's noise, whose proved
# ε is in each point's note. "oracle": sound noise, settings chosen on the private rows for free. "honest": sound noise,
# all of it on the bill. "reference": without privacy, or a model that looks at nothing.
Role = Literal["paper", "unsound", "oracle", "honest", "reference"]


@dataclass(frozen=True)
class Point:
    """A mean over trials.

    Attributes
    ----------
    x : float
        The place on the panel's axis.
    mean : float
    error : float or None
        Its standard error; None where it is not known (figures that a paper prints without one).
    note : str
        What a reader must know of this point, such as "true ε 4.85".
    """

    x: float
    mean: float
    error: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Series:
    """One line of a table, and one curve of a picture."""

    name: str
    role: Role
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Panel:
    """One table, and one panel of the picture.

    Attributes
    ----------
    name : str
        The data, with the fixed settings.
    x, y : str
        What the axes mean, such as "ε" and "test error".
    series : tuple of Series
        Not all have a point at each x. References without a budget have the same mean at each.
    log_x, log_y : bool
    """

    name: str
    x: str
    y: str
    series: tuple[Series, ...]
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True)
class Results:
    """A table or figure of a paper, reproduced.

    Attributes
    ----------
    name, title, paper : str
    command : str
        That made it.
    trials : int
    substitute : str
        Where the data is not the paper's: what it is instead; "" where it is the paper's.
    panels : tuple of Panel
    notes : tuple of str
    warnings : tuple of str
        Of the fits.
    failed : tuple of str
        Cells that failed, and why.
    machine : mapping
        Where and with what it was found.
    promise : str
        What every ε refers to: the δ, and which data sets are neighbours. An ε means nothing without it.
    """

    name: str
    title: str
    paper: str
    command: str
    trials: int
    substitute: str
    panels: tuple[Panel, ...]
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    machine: tuple[tuple[str, Any], ...] = ()
    promise: str = ""


# The description of each role for readers.
ROLES: dict[Role, str] = {
    "paper": "printed",
    "unsound": "paper's noise",
    "oracle": "oracle-tuned, not private",
    "honest": "sound",
    "reference": "reference",
}
# A table with more places than this has one line a point.
_MOST_COLUMNS = 8


def one_panel_a_value(panels: Iterable[Panel]) -> tuple[Panel, ...]:
    """Panels "p varies; ..." with series "method, p = 250" as one panel for each value, which is easier to read."""
    found = []
    for panel in panels:
        values = dict.fromkeys(one.name.rpartition(", ")[2] for one in panel.series)
        for value in values:
            quantity = value.partition(" = ")[0]
            series = tuple(
                replace(one, name=one.name.removesuffix(f", {value}"))
                for one in panel.series
                if one.name.endswith(f", {value}")
            )
            found.append(replace(panel, name=panel.name.replace(f"{quantity} varies", value), series=series))
    return tuple(found)


# --- as JSON and CSV -------------------------------------------------------------------------------------------------


def as_dict(results: Results) -> dict[str, Any]:
    """The results as JSON has them; `from_dict` reads them back."""
    return finite({**asdict(results), "machine": dict(results.machine)})


def from_dict(values: Mapping[str, Any]) -> Results:
    """What `as_dict` wrote; other keys are passed over."""
    panels = tuple(
        Panel(**{**panel, "series": tuple(_series(one) for one in panel["series"])}) for panel in values["panels"]
    )
    kept: dict[str, Any] = {field.name: values[field.name] for field in fields(Results)}
    kept |= {name: tuple(kept[name]) for name in ("notes", "warnings", "failed")}
    return Results(**{**kept, "panels": panels, "machine": tuple(kept["machine"].items())})


def _series(values: Mapping[str, Any]) -> Series:
    def point(found: Mapping[str, Any]) -> Point:
        error = None if found["error"] is None else float(found["error"])
        return Point(float(found["x"]), float(found["mean"]), error, found["note"])

    return Series(values["name"], values["role"], tuple(point(found) for found in values["points"]))


def csv_table(results: Results) -> str:
    """The results as CSV, one line a point."""
    lines = [
        (panel.name, one.name, one.role, point.x, point.mean, point.error, point.note)
        for panel in results.panels
        for one in panel.series
        for point in one.points
    ]
    return write_csv(("panel", "series", "role", "x", "mean", "standard error", "note"), lines)


# --- as Markdown -----------------------------------------------------------------------------------------------------


def places(panel: Panel) -> list[float]:
    """All x of a panel, rising."""
    return sorted({point.x for one in panel.series for point in one.points})


def is_wide(panel: Panel) -> bool:
    """Whether a panel has more places than a table has room for columns."""
    return len(places(panel)) > _MOST_COLUMNS


def mean_words(point: Point, role: Role) -> str:
    """The mean to four decimals, or to three or four digits where it is large or small; as printed for a paper's."""
    return _figure(point.mean, None if role == "paper" else _size(point))


def error_words(point: Point, role: Role) -> str:
    """The standard error, to the decimals of its mean; "" where there is none."""
    if point.error is None:
        return ""
    words = _figure(point.error, None if role == "paper" else _size(point))
    vanishes = point.error > 0 and not words.strip("0.")
    return f"{point.error:.1g}" if vanishes else words


def _size(point: Point) -> float:
    """The larger of a mean and its error: what decides on decimals."""
    return max(abs(point.mean), abs(point.error or 0.0))


def _figure(value: float, size: float | None) -> str:
    if not math.isfinite(value):
        return {math.inf: "∞", -math.inf: "−∞"}.get(value, "not a number")
    if size is None:
        return f"{value:.5g}"
    if math.isfinite(size) and (size == 0 or 0.01 <= size < 1e6):
        decimals = 4 if size < 10 else 2 if size < 100 else 1 if size < 1000 else 0
        return f"{round(value, decimals) + 0.0:.{decimals}f}"  # the sum takes the sign off −0
    return f"{value:.3g}"


def table(results: Results) -> str:
    """The results as Markdown: series down, places across, and with what they were found below."""
    text = [f"# {_plain(results.title)}", f"Paper: {_plain(results.paper).rstrip('.')}."]
    if results.substitute:
        text.append(f"**{_plain(results.substitute)}**")
    trials = f"Mean ± standard error of {results.trials:,} trial{'s' if results.trials != 1 else ''}."
    text.append(f"{trials} Every ε is at {_plain(results.promise)}." if results.promise else trials)
    for panel in results.panels:
        text += [f"## {_plain(panel.name)}", _panel_table(panel)]
    if results.command:
        text += ["Made with", f"```text\n{results.command}\n```"]
    told_of = {"Notes": results.notes, "Warnings of the fits": results.warnings, "Failed": results.failed}
    for title, told in told_of.items():
        if told:
            text.append("\n".join([f"{title}:", "", *(f"- {_plain(line)}" for line in told)]))
    if results.machine:
        text.append(f"Machine: {'; '.join(f'{_plain(name)} {_plain(str(value))}' for name, value in results.machine)}.")
    return "\n\n".join(text) + "\n"


def _panel_table(panel: Panel) -> str:
    across = places(panel)
    if not across:
        return "No results."
    x, y = _plain(panel.x), _plain(panel.y)
    if is_wide(panel):
        lines = [
            [_plain(one.name), ROLES[one.role], f"{point.x:g}", _cell(point, one.role)]
            for one in panel.series
            for point in one.points
        ]
        return markdown_table(["series", "role", x, y], lines)
    lines = []
    for one in panel.series:
        cells = {point.x: _cell(point, one.role) for point in one.points}
        lines.append([_plain(one.name), ROLES[one.role], *(cells.get(place, "") for place in across)])
    return markdown_table([y, "role", *(f"{x} = {place:g}" for place in across)], lines)


def _cell(point: Point, role: Role) -> str:
    error, note = error_words(point, role), _plain(point.note)
    return mean_words(point, role) + (f" ± {error}" if error else "") + (f" ({note})" if note else "")


def _plain(text: str) -> str:
    """Text in one line that is no HTML and no emphasis."""
    return " ".join(text.split()).replace("<", "&lt;").replace("*", "\\*")
