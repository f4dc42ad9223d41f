"""The page of a table or figure of a paper, run again: the picture, the figures, and with what they were found."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tulle.reports.number_format import readable, setting
from tulle.reports.pages.markup import Markup, breakable, element, join_markup
from tulle.reports.pages.page import listing, notice, page, section, table
from tulle.reports.pages.panels import figure_inline
from tulle.reports.series import ROLES, Panel, Point, Results, Series, error_words, is_wide, mean_words, places

# What a measure's name says about which end of it is the good one.
_SMALL = ("error", "loss", "1 − r²", "1 - r²", "risk", "gap", "excess", "distance", "deviance", "seconds", "time")
_LARGE = ("accuracy", "auc", "recall", "precision", "f1", "r²", "power", "found")


def results_page(results: Results) -> str:
    """The page of results. What they were measured on is public, and so is the page.

    Parameters
    ----------
    results : Results

    Returns
    -------
    str
        One self-contained HTML file.
    """
    shown: list[str] = []
    if results.substitute:
        shown.append(notice("Not the paper's data", results.substitute))
    if results.panels:
        shown.append(figure_inline(results))
    parts = [
        section("results", "Results", *shown),
        section("figures", "Every figure", *(_panel(panel, results) for panel in results.panels)),
    ]
    if results.notes:
        parts.append(section("notes", "Notes", listing(results.notes)))
    parts.append(section("reading", "How to read this", _reading(results)))
    parts.append(section("made", "How these results were computed", _made(results)))
    facts = [("Paper", results.paper), ("Trials", f"{results.trials:,} of each setting"), ("Name", results.name)]
    if results.promise:
        facts.append(("Every ε is at", results.promise))
    return page(
        about=None,
        kind="A table or figure of a paper, reproduced",
        title=results.title,
        facts=facts,
        body=join_markup(parts),
    )


def _panel(panel: Panel, results: Results) -> Markup:
    """The figures of one panel under its name; where there are many, folded."""
    heading = element("h3", element("bdi", breakable(panel.name)))
    across = places(panel)
    if not across:
        return join_markup([heading, element("p", "No results.")])
    best = _best(panel, across)
    caption = f"{panel.name}. {_sentence(panel.y)}: mean ± standard error over {results.trials:,} trials"
    if best:
        caption += f". ★ {'smallest' if _smaller_is_better(panel.y) else 'largest'} sound mean at its {panel.x}"
    if results.substitute:
        caption += ". Not the paper's data: see the notice at the top"
    if is_wide(panel):
        rows = [
            (_named(one), setting(point.x), _cell(one, point, best=(one.name, point.x) in best))
            for one in panel.series
            for point in one.points
        ]
        written = table(caption, ["Series", panel.x, panel.y], rows, numeric={1, 2})
        return join_markup([heading, element("details", element("summary", f"All {len(rows):,} figures"), written)])
    rows_across = []
    for one in panel.series:
        points = {point.x: point for point in one.points}
        cells = [_cell(one, points.get(x), best=(one.name, x) in best) for x in across]
        rows_across.append([_named(one), *cells])
    head = ["Series", *(f"{panel.x}\u00a0=\u00a0{setting(x)}" for x in across)]
    return join_markup([heading, table(caption, head, rows_across, numeric=range(1, len(head)), form="fixed")])


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}"


def _named(one: Series) -> Markup:
    return join_markup([element("bdi", breakable(one.name)), element("span", ROLES[one.role], class_="under")])


def _cell(one: Series, point: Point | None, *, best: bool) -> Markup:
    if point is None:
        return element("span", "—", element("span", " none", class_="hidden"))
    error = error_words(point, one.role)
    mark = join_markup([element("span", "★ ", aria_hidden="true"), element("span", "best: ", class_="hidden")])
    return join_markup(
        [
            element(
                "span", mark if best else "", _figure(mean_words(point, one.role)), class_="best" if best else None
            ),
            element("span", f"±\u00a0{_figure(error)}", class_="under") if error else "",
            element("span", point.note, class_="under") if point.note else "",
        ]
    )


def _figure(words: str) -> str:
    return readable(words) if words[-1:].isdigit() else words


def _smaller_is_better(measure: str) -> bool | None:
    """Which end of a measure is the good one; None where its name does not say."""
    name = measure.lower()
    if any(word in name for word in _SMALL):
        return True
    return False if any(word in name for word in _LARGE) else None


def _best(panel: Panel, across: Sequence[float]) -> set[tuple[str, float]]:
    """Series and places of the best sound means, where there are several to choose among."""
    smaller = _smaller_is_better(panel.y)
    sound = [one for one in panel.series if one.role == "honest"]
    if smaller is None or len(sound) < 2:
        return set()
    found = set()
    for x in across:
        means = {one.name: point.mean for one in sound for point in one.points if point.x == x}
        means = {name: mean for name, mean in means.items() if not math.isnan(mean)}
        if len(means) > 1:
            best = (min if smaller else max)(means.values())
            found |= {(name, x) for name, mean in means.items() if mean == best}
    return found


_MEANINGS = {
    "paper": "“printed”: the values in the paper.",
    "unsound": "“paper's noise”: run here with the noise that the paper states for its ε. The ε that it proves, "
    "its true ε, is below each value; it does not cover settings chosen on the private rows.",
    "oracle": "“oracle-tuned, not private”: settings were chosen on the private rows without privacy cost, as in the "
    "papers. No guarantee covers such values.",
    "honest": "“sound”: the noise proves the ε of the column, and all that a fit learns from its rows is on the bill.",
    "reference": "“reference”: without privacy, or a model that uses no data.",
}


def _reading(results: Results) -> Markup:
    there = {one.role for panel in results.panels for one in panel.series}
    items = [words for role, words in _MEANINGS.items() if role in there]
    items.append(
        "A standard error measures how much a mean varies between trials. Two means whose difference is below two "
        "or three standard errors may be in this order by chance."
    )
    return listing(items)


def _made(results: Results) -> Markup:
    parts = [element("pre", results.command)] if results.command else []
    if results.machine:
        facts = (
            element("div", element("dt", name), element("dd", element("bdi", str(value))))
            for name, value in results.machine
        )
        parts.append(element("dl", *facts, class_="facts"))
    for title, told in (("Warnings of the fits", results.warnings), ("Cells that failed", results.failed)):
        if told:
            parts += [element("h3", title), listing(told)]
    return join_markup(parts)
