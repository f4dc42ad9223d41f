"""The page of a comparison: methods against epsilon, judged on private rows. It is never for release."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tulle.reports.comparison_format import FORMAT, describe_public_rows
from tulle.reports.number_format import delta_is, epsilon_is, format_rounded_up, number, readable, setting
from tulle.reports.pages.charts import MOST_LINES, Measured, error_chart
from tulle.reports.pages.markup import Markup, breakable, element, join_markup
from tulle.reports.pages.page import listing, notice, page, section, table
from tulle.reports.report import About

INTERNAL = "INTERNAL: NOT FOR RELEASE. This page contains values that no privacy guarantee covers."


def comparison_page(comparison: Mapping[str, Any], about: About) -> str:
    """The page of a comparison of methods. Errors on private rows are not private: the page says that it is internal.

    Parameters
    ----------
    comparison : mapping
        What ``tulle compare`` writes into comparison.json.
    about : About

    Returns
    -------
    str
        One self-contained HTML file.
    """
    rows = checked_rows(comparison)
    facts = [
        ("Rows", f"{comparison['n_train']:,} for training, {comparison['n_test']:,} for testing"),
        ("Features", f"{comparison['n_features']:,}"),
        ("Trials", f"{comparison['trials']:,} of each setting, from seed {comparison['seed']}"),
    ]
    if public := describe_public_rows(comparison):
        facts.append(("Public rows", public))
    if about.ledger:
        facts.append(("Ledger", about.ledger))
    body = join_markup(
        [
            section("results", "Results", *comparison_parts(comparison)),
            section("details", "Proved ε and sparsity of the models", _details(rows, comparison)),
            section("reading", "How to read this", _reading(comparison)),
        ]
    )
    return page(
        about=replace(about, data=about.data or str(comparison["data"])),
        kind="Comparison of methods · internal",
        title="Methods compared at several ε",
        facts=facts,
        body=body,
        banner=INTERNAL,
    )


def checked_rows(comparison: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The cells of a comparison; an error where the mapping is none."""
    if comparison.get("format") != FORMAT:
        raise ValueError(
            f"this is not a comparison of tulle: its format is {comparison.get('format')!r}, not {FORMAT!r}; pass the "
            "contents of a comparison.json written by `tulle compare`"
        )
    rows: Sequence[Mapping[str, Any]] = comparison["rows"]
    if not rows:
        raise ValueError("the comparison is empty: run `tulle compare` with at least one method and one epsilon")
    return rows


def comparison_parts(comparison: Mapping[str, Any]) -> list[Markup]:
    """The chart and the table of a comparison."""
    rows = checked_rows(comparison)
    metric = str(comparison["metric"])
    lines = _measured(rows)
    references = _references(comparison)
    parts = []
    if lines:
        parts.append(
            error_chart(lines, references, metric, f"{metric} against ε", _described(lines, references, metric))
        )
    if len(lines) > MOST_LINES:
        hidden = ", ".join(line.label for line in lines[MOST_LINES:])
        parts.append(element("p", f"The chart shows at most {MOST_LINES} methods; only in the table: {hidden}."))
    parts.append(_table(rows, comparison))
    return parts


def _value(row: Mapping[str, Any], name: str) -> float:
    """A figure of a cell; JSON has words for values that are not finite, and null for those not measured."""
    found = row.get(name)
    return math.nan if found is None else float(found)


def _measured(rows: Sequence[Mapping[str, Any]]) -> list[Measured]:
    lines = []
    for method in _methods(rows):
        cells = sorted(
            (_value(row, "epsilon"), _value(row, "mean"), _value(row, "standard_error"))
            for row in rows
            if row["method"] == method and math.isfinite(_value(row, "mean"))
        )
        if cells:
            epsilons, means, errors = zip(*cells)
            lines.append(Measured(method, epsilons, means, tuple(e if math.isfinite(e) else 0.0 for e in errors)))
    return lines


def _methods(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(str(row["method"]) for row in rows))


def _references(comparison: Mapping[str, Any]) -> list[tuple[str, float]]:
    named = (("no privacy", comparison.get("no_privacy")), ("null model", comparison.get("null_model")))
    return [(name, _value(found, "mean")) for name, found in named if found and math.isfinite(_value(found, "mean"))]


def _described(lines: Sequence[Measured], references: Sequence[tuple[str, float]], metric: str) -> str:
    """The chart in one sentence, for screen readers."""
    best = min(lines, key=lambda line: line.means[-1])
    words = f"At the largest ε, {setting(best.epsilons[-1])}, {best.label} has the smallest {metric}, "
    words += number(best.means[-1], 3)
    for name, value in references:
        words += f"; {name}: {number(value, 3)}"
    return f"{words}. Points are means over trials, whiskers one standard error."


def _table(rows: Sequence[Mapping[str, Any]], comparison: Mapping[str, Any]) -> Markup:
    epsilons = sorted({_value(row, "epsilon") for row in rows})
    cells = {(str(row["method"]), _value(row, "epsilon")): row for row in rows}
    least = {
        epsilon: min((_value(row, "mean") for row in rows if _value(row, "epsilon") == epsilon), default=math.nan)
        for epsilon in epsilons
    }
    several = len(_methods(rows)) > 1
    body: list[list[str]] = []
    for method in _methods(rows):
        line: list[str] = [breakable(method)]
        for epsilon in epsilons:
            row = cells.get((method, epsilon))
            line.append(_cell(row, several and row is not None and _value(row, "mean") == least[epsilon]))
        body.append(line)
    private = comparison.get("no_privacy")
    if private:
        label = join_markup(["no privacy", element("span", str(private.get("method", "")), class_="under")])
        body.append([label, *[_cell(private, best=False)] * len(epsilons)])
    null = comparison.get("null_model")
    if null:
        body.append(["null model (uses no features)", *[_cell(null, best=False)] * len(epsilons)])
    caption = f"{comparison['metric']}: mean ± standard error over {comparison['trials']:,} trials; smaller is better"
    if several:
        caption += ". ★ smallest mean in the column"
    head = ["Method", *(epsilon_is(setting(epsilon)) for epsilon in epsilons)]
    return table(caption, head, body, numeric=range(1, len(head)), form="fixed")


def _cell(row: Mapping[str, Any] | None, best: bool) -> Markup:
    if row is None or not math.isfinite(_value(row, "mean")):
        return element("span", "—", element("span", " not measured", class_="hidden"))
    error = _value(row, "standard_error")
    words = number(_value(row, "mean"), 3)
    spread = f"±\u00a0{number(error, 2)}" if math.isfinite(error) and error > 0 else ""
    mark = join_markup([element("span", "★ ", aria_hidden="true"), element("span", "best: ", class_="hidden")])
    return join_markup(
        [
            element("span", mark if best else "", words, class_="best" if best else None),
            element("span", spread, class_="under") if spread else "",
        ]
    )


def _details(rows: Sequence[Mapping[str, Any]], comparison: Mapping[str, Any]) -> Markup:
    body = [
        (
            breakable(str(row["method"])),
            setting(_value(row, "epsilon")),
            _proved(row),
            _counted(row, "nonzero"),
            _counted(row, "trials"),
        )
        for row in rows
    ]
    private = comparison.get("no_privacy")
    if private:
        body.append((Markup("no privacy"), "none", Markup("none"), _counted(private, "nonzero"), "—"))
    caption = f"At {delta_is(format_rounded_up(float(comparison['delta'])))}. A proved ε is rounded up."
    head = ("Method", "ε\u00a0asked", "ε\u00a0proved", "Non-zero weights", "Trials")
    parts = [table(caption, head, body, numeric={1, 2, 3, 4}, form="fixed")]
    for title, told in (("Warnings", _warnings(comparison)), ("Fits that failed", _failures(comparison))):
        if told:
            parts += [element("h3", title), listing(told)]
    return join_markup(parts)


def _warnings(comparison: Mapping[str, Any]) -> list[str]:
    return [str(words) for words in comparison.get("warnings", ())]


def _failures(comparison: Mapping[str, Any]) -> list[str]:
    failed = comparison.get("failed", ())
    reasons = Counter((str(cell["method"]), str(cell["reason"])) for cell in failed)
    return [f"{method}, {_times(count)}: {reason}" for (method, reason), count in reasons.items()]


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _proved(row: Mapping[str, Any]) -> Markup:
    proved, asked = _value(row, "proved"), _value(row, "epsilon")
    more = element("span", "more than asked", class_="under") if proved > asked * (1 + 1e-9) else ""
    return join_markup(["—" if math.isnan(proved) else format_rounded_up(proved), more])


def _counted(row: Mapping[str, Any], name: str) -> str:
    value = _value(row, name)
    return readable(f"{value:.1f}".removesuffix(".0")) if math.isfinite(value) else "—"


def _reading(comparison: Mapping[str, Any]) -> Markup:
    metric = str(comparison["metric"])
    meaning = (
        "Test error is the share of test rows that are predicted wrongly."
        if comparison.get("task") == "classification"
        else f"{metric} is the squared error on the test rows divided by that of always predicting their mean."
    )
    items = [
        meaning,
        "The null model uses no features; a method that does not beat it has learnt nothing useful.",
        "A standard error measures how much the mean varies with noise and splits. Two means whose difference is below "
        "two or three standard errors may be in this order by chance.",
    ]
    told = notice(
        "Why this page is internal",
        "Each model was fitted with the noise of its ε, drawn from a known seed; the errors were measured on private "
        "rows without noise, and choosing a method by them uses those rows again. Show this page only to people who "
        "may see the rows. To choose settings within a budget, use tulle's PrivateSearch; to release a score, "
        "private_score.",
        loud=False,
    )
    return join_markup([listing(items), told])
