"""What a privacy officer goes through before signing: adjacency, bounds, public inputs, threats, a checklist."""

from __future__ import annotations

import math
from typing import Any

from tulle.reports.number_format import delta_is, epsilon_is, format_rounded_up, number, one_in
from tulle.reports.pages.markup import Markup, element, join_markup
from tulle.reports.pages.page import listing, notice, table
from tulle.reports.pages.tradeoff_chart import tradeoff_chart
from tulle.reports.release_words import describe_release
from tulle.reports.report import ORIGINS, About, PrivacyReport
from tulle.reports.undermining import Mark, find_peeks, find_public_inputs, find_threats
from tulle.reports.words import LABELS_DECLARED, LABELS_PUBLISHED
from tulle.trusted.gaussian import gaussian_epsilon

_BOUNDS = {
    "row_l2": "Euclidean norm of a row",
    "row_linf": "Magnitude of an entry",
    "label": "Magnitude of the target",
}
_LONGEST_TITLE = 160
# Chances above this part of 1 / rows are not far below it.
_SMALL_DELTA = 0.1


def adjacency_parts(report: PrivacyReport) -> list[Markup]:
    """What the stated ε compares: replace-one, zero-out where it is proved, and μ with its curve."""
    at = delta_is(format_rounded_up(report.delta))
    replaced = (
        f"{epsilon_is(format_rounded_up(report.epsilon))} at {at}: one unit's data is replaced by any other data. "
        "Ledgers count this one."
    )
    terms = [("Replace-one", replaced)]
    if report.zero_out is not None:
        words = f"{epsilon_is(format_rounded_up(report.zero_out))} at {at}: one unit's rows count as nothing, and the "
        terms.append(("Zero-out", f"{words}number of rows stays the same. Proved for every release on the bill."))
    if report.mu is not None:
        implied = gaussian_epsilon(report.mu, report.delta)
        words = f"μ\u00a0=\u00a0{format_rounded_up(report.mu)} for replace-one, at every δ."
        if implied > report.epsilon * 1.001:
            words += f" At the stated δ it gives {epsilon_is(format_rounded_up(implied))}; the ε above is sharper."
        terms.append(("Gaussian differential privacy", words))
    parts = [
        element(
            "dl", *(element("div", element("dt", name), element("dd", said)) for name, said in terms), class_="terms"
        )
    ]
    if report.mu is not None:
        description = (
            "Someone tests, knowing the data of everyone else, whether the model was fitted to one or another data of "
            "one unit. No test lies below either curve: a test with few false alarms must miss often. The shaded area "
            "cannot be reached."
        )
        parts.append(tradeoff_chart(report.mu, report.epsilon, report.delta, description))
    return parts


def release_parts(report: PrivacyReport) -> Markup:
    """What each line of the bill tells about people."""
    told = dict.fromkeys((line.release, describe_release(line)) for line in report.bill)
    rows = [(element("span", name), sentence) for name, sentence in told]
    return table("What each release tells about people", ("Release", "In plain words"), rows)


def bound_parts(report: PrivacyReport) -> list[Markup]:
    """Who stated which bound."""
    if not report.bounds:
        return [element("p", "This report does not list bounds one by one; see the assumptions.")]
    rows = [(_BOUNDS.get(line.what, line.what), number(line.value), ORIGINS[line.origin]) for line in report.bounds]
    words = "Noise is proportional to these bounds, and rows are clipped to them."
    return [
        element("p", words),
        table("Bounds and who stated them", ("Bound", "Value", "Stated by"), rows, numeric={1}),
    ]


def input_parts(report: PrivacyReport, about: About) -> list[Markup]:
    """What the model was fitted to: target, ignored columns, public rows, steps that peeked."""
    public, peeks = find_public_inputs(report), find_peeks(report)
    terms = (
        ("Target", about.target.strip() or "not stated"),
        ("Ignored columns", about.ignored.strip() or "not stated"),
        ("Public rows, features or weights", " ".join(public) or "none were used"),
    )
    listed = (element("div", element("dt", name), element("dd", element("bdi", said))) for name, said in terms)
    parts = [element("dl", *listed, class_="terms")]
    if peeks:
        parts.append(notice("Steps that the guarantee does not cover", *peeks))
    elif report.asked is not None:
        words = "No step of the pipeline that tulle saw learnt from private rows without noise. What was done to the "
        parts.append(element("p", f"{words}rows before tulle read them is not known to this report."))
    return parts


_MARKS: dict[Mark, str] = {"proved": "proved", "declared by you": "declared", "not covered": "uncovered"}


def threat_parts(report: PrivacyReport) -> list[Markup]:
    """What could undermine the guarantee, each with who answers for it."""
    rows = []
    for threat in find_threats(report):
        mark = element("span", threat.mark, class_=f"mark {_MARKS[threat.mark]}")
        # On a line of its own: phones have no room for a third column.
        rows.append((join_markup([f"{threat.name} ", element("br"), mark]), threat.why))
    words = "“Proved”: a proof covers it, and code enforces it. “Declared by you”: it holds if what was declared is "
    words += "true. “Not covered”: this report says nothing about it."
    return [element("p", words), table("Threats to the guarantee", ("Threat", "In this fit"), rows)]


def checklist(report: PrivacyReport, model: Any) -> tuple[str, ...]:
    """Questions to answer before signing, with what the report knows about each."""
    if report.asked is None:
        return ("There is no guarantee to sign: this fit used no noise.",)
    origins = {line.origin for line in report.bounds}
    far = "" if report.n_rows is None or report.delta == 0 else _compare_delta(report.delta, report.n_rows)
    labels = {
        LABELS_PUBLISHED: " The classes were taken from the rows.",
        LABELS_DECLARED: " The classes were declared beforehand.",
    }
    said = next((words for line, words in labels.items() if line in report.assumptions), "")
    return (
        f"Is {epsilon_is(format_rounded_up(report.epsilon))} within the limit for these people, together with all "
        "earlier releases about them?" + ("" if report.billed else " This fit is on no ledger on disk."),
        f"Is {delta_is(format_rounded_up(report.delta))} far below one divided by the number of people?{far}",
        f"Is the protected unit what you mean by a person? It is {report.unit.partition(';')[0]}.",
        "Was every declared bound, range and category known without looking at the rows?"
        + (" Some bounds were declared by the user or in a schema." if origins & {"declared", "schema"} else ""),
        "Is the noise free of a seed? " + ("No: do not release this model." if report.seeded else "Yes."),
        "Was anything fitted to these rows before the model, or chosen by looking at them?"
        + (" Yes: see what the model was fitted to." if find_peeks(report) else ""),
        "Are public rows, features and start weights public, and chosen without looking at private rows?"
        + ("" if find_public_inputs(report) else " None were used."),
        f"May the target, the classes and the names of all {int(model.n_features_in_):,} features be known?{said}",
        "Did you go through all threats above that are declared by you or not covered?",
    )


def _compare_delta(delta: float, n_rows: int) -> str:
    words = f" δ is {one_in(delta)}, and there are {n_rows:,} rows"
    return f"{words}: too large." if delta > _SMALL_DELTA / n_rows * (1 + 1e-9) else f"{words}."


def sign_parts(report: PrivacyReport, model: Any, title: str, fingerprint: str, internal: bool) -> list[Markup]:
    """The checklist, and a block to sign that states what the signature covers. It stays on one sheet."""
    short = title if len(title) <= _LONGEST_TITLE else f"{title[:_LONGEST_TITLE]}…"
    proved = "no guarantee: this fit used no noise"
    if report.asked is not None:
        proved = "nothing is proved"
    if report.asked is not None and math.isfinite(report.epsilon):
        unit = report.unit.partition(";")[0]
        proved = f"{epsilon_is(format_rounded_up(report.epsilon))}, {delta_is(format_rounded_up(report.delta))}, "
        proved += f"replace-one adjacency, for {unit}"
    facts = (
        ("Report", element("bdi", short)),
        ("Form", "internal, not for release" if internal else "public"),
        ("Proved", proved),
        ("Weights (SHA-256)", element("code", fingerprint)),
    )
    stated = (element("div", element("dt", name), element("dd", value)) for name, value in facts)
    lines = ("Checked by", "Date", "Role", "Signature")
    block = element(
        "div",
        element("dl", *stated, class_="terms"),
        element("div", *(element("div", line) for line in lines), class_="signature"),
        class_="sign",
    )
    return [element("div", listing(checklist(report, model), "ol"), class_="checks"), block]
