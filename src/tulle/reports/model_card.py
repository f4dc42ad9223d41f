"""A model card in Markdown: what the model is for, what it takes, and what remains unknown about it.

From what the fit released. Accuracy is stated only where a private score was paid for.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Mapping
from typing import Any

from tulle.reports.markdown_tables import markdown_table
from tulle.reports.number_format import delta_is, epsilon_is, format_rounded_up, number
from tulle.reports.pages.fit_page import keep_public
from tulle.reports.pages.weight_tables import blocks
from tulle.reports.report import ORIGINS, About, PrivacyReport

_MOST_LISTED = 50
# But for "|", which `markdown_table` takes care of.
_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!~$])")


def model_card(model: Any, about: About, *, score: Mapping[str, Any] | None = None) -> str:
    """The card of a fitted model.

    Parameters
    ----------
    model : estimator
        Fitted.
    about : About
        Who asked what. Who asked, the state of the ledger and hashes of files are left out.
    score : mapping or None, default=None
        What `PrivateScore.to_json` holds. Whether it is of this model is not checked.

    Raises
    ------
    ValueError
        Where the score was not paid for: noise from a seed, or none.
    """
    report: PrivacyReport = model.privacy_
    about = keep_public(about)
    title = about.title.strip() or about.default_title() or "Model card"
    parts = [
        f"# {_text(title)}",
        "## Task",
        _listed(_task(model, about)),
        "## Privacy",
        _listed(_privacy(report)),
        "## Columns",
        *_columns(model, report),
        "## Intervals",
        *_intervals(model),
        "## Accuracy",
        _accuracy(score),
        "## Limits",
        _listed(_limits(report)),
    ]
    return "\n\n".join(parts) + "\n"


def _text(text: str) -> str:
    """Text that no reader of Markdown takes for structure or for HTML."""
    line = " ".join("".join(one if one.isprintable() else " " for one in text).split())
    return _SPECIAL.sub(r"\\\1", html.escape(line, quote=False))


def _listed(lines: list[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _task(model: Any, about: About) -> list[str]:
    classes = getattr(model, "classes_", None)
    kind = "regression" if classes is None else "classification"
    lines = [
        f"A linear model for {kind} ({type(model).__name__}).",
        f"Target: {_text(about.target) or 'not stated'}.",
        f"Purpose: {_text(about.purpose) or 'not stated'}.",
        f"Data: {_text(about.data) or 'not stated'}. Ignored columns: {_text(about.ignored) or 'not stated'}.",
    ]
    if classes is not None:
        shown = ", ".join(_text(str(label)) for label in classes[:_MOST_LISTED])
        more = f" and {len(classes) - _MOST_LISTED:,} more" if len(classes) > _MOST_LISTED else ""
        lines.append(f"Classes: {shown}{more}.")
    return lines


def _privacy(report: PrivacyReport) -> list[str]:
    if report.asked is None:
        return ["None: this model was fitted without noise and may reveal any row that it was trained on."]
    if math.isinf(report.epsilon):
        return ["Nothing is proved for the noise that was drawn."]
    lines = [
        f"{epsilon_is(format_rounded_up(report.epsilon))}, {delta_is(format_rounded_up(report.delta))} is proved for "
        f"{_text(report.unit)}.",
        "The privacy report has the bill, the assumptions, and what could undermine the guarantee.",
    ]
    return [*lines, "**The noise came from a seed: not for release.**"] if report.seeded else lines


def _columns(model: Any, report: PrivacyReport) -> list[str]:
    every = blocks(model)
    kept = max(len(block.weights) for block in every)
    words = f"{int(model.n_features_in_):,} features, of which {kept:,} have a weight"
    parts = [f"{words}{' in the class with most' if len(every) > 1 else ''}."]
    for block in every[:_MOST_LISTED]:
        if block.weights:
            head = (f"feature (class {_text(block.label)})" if block.label else "feature", "weight")
            rows = [(_text(name) or "(no name)", number(value)) for name, value in block.weights[:_MOST_LISTED]]
            parts.append(markdown_table(head, rows))
    bounds = [f"{_text(line.what)} at most {number(line.value)}: {ORIGINS[line.origin]}" for line in report.bounds]
    return [*parts, *([f"Bounds: {'; '.join(bounds)}."] if bounds else [])]


def _intervals(model: Any) -> list[str]:
    if not hasattr(model, "inference_"):
        return ["None: this fit has no standard errors. Any single weight may be far off, or chosen by chance."]
    summary = model.summary()
    rows = [
        (_text(line.name), *(number(value) for value in (line.estimate, line.low, line.high)))
        for line in summary.lines[:_MOST_LISTED]
    ]
    head = f"{100 * summary.level:g} % intervals, for features as the model takes them; sampling and noise are in them."
    return [head, markdown_table(("feature", "estimate", "low", "high"), rows), *summary.notes]


def _accuracy(score: Mapping[str, Any] | None) -> str:
    if score is None:
        return (
            "Not stated: a score on private rows is a release of its own, and no private score was given for this card."
        )
    report = PrivacyReport.from_dict(score["privacy"])
    if not report.bill or report.asked is None or not math.isfinite(report.epsilon) or report.seeded:
        raise ValueError("the score was not paid for: its noise came from a seed, or there was none")
    value, low, high = (number(float(score[name])) for name in ("value", "low", "high"))
    interval = f"{100 * float(score['confidence']):g} % interval {low} to {high}"
    billed = f" Billed as {'; '.join(map(_text, report.billed))}." if report.billed else ""
    return (
        f"{_text(str(score['metric']))}: {value}, {interval}, on {int(score['n_rows']):,} private rows. This score is "
        f"a release besides the model and costs {epsilon_is(format_rounded_up(report.epsilon))} more.{billed} That it "
        "is of this model is the word of the person who made this card."
    )


def _limits(report: PrivacyReport) -> list[str]:
    lines = [
        "The weights are noisy. A feature may have been chosen by chance."
        if report.asked is not None
        else "The weights reveal rows that the model was trained on.",
        "The model says nothing about causes, and nothing about people unlike those in the data.",
        "Who may be harmed by wrong predictions was not examined: TO BE FILLED IN.",
    ]
    if report.asked is not None:
        lines.append("Each further release about the same people adds to the information about them.")
    return lines
