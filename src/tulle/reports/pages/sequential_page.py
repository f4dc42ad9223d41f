"""The page of an audit by betting: the verdict, the evidence over the runs, and what an audit does not say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tulle.reports.number_format import setting
from tulle.reports.pages.audit_page import NOT_SAID, terms
from tulle.reports.pages.charts import evidence_chart
from tulle.reports.pages.markup import Markup, element, join_markup
from tulle.reports.pages.page import listing, notice, page, section

_NOT_SAID = (
    *NOT_SAID,
    "It bounds no ε: that a claim was not refuted says less than the bound of an audit of a fixed size.",
    "The confidence holds however often the evidence was looked at, for one test. To throw runs away because the "
    "evidence fell, and to begin again, is a second test.",
)


def sequential_page(audit: Mapping[str, Any], title: str = "") -> str:
    """The page of an audit by betting.

    Parameters
    ----------
    audit : mapping
        `SequentialResult.to_dict()`.
    title : str, default=""
        The heading; "" is "Privacy audit by betting".

    Returns
    -------
    str
        One self-contained HTML file. It shows what an attack saw on the two audited data sets: where these hold rows of
        persons, the page is for the holder of the rows alone.
    """
    refuted = bool(audit["refuted"])
    words = (
        "The evidence against the claim after each round of runs, from 1 at the start. A true claim lets it ever reach "
        f"the dashed line, {_wanted(audit)}, with probability {_short(1 - float(audit['confidence']))} at most."
    )
    chart = evidence_chart(
        [(int(runs), float(capital)) for runs, capital in audit["history"]],
        1 / (1 - float(audit["confidence"])),
        None if audit["decided_after"] is None else int(audit["decided_after"]),
        words,
    )
    facts = [
        ("Subject", str(audit["pair"])),
        ("Claimed", str(audit["claim"])),
        ("Evidence", f"{_evidence(audit)}, where {_wanted(audit)} refutes"),
        ("Verdict", "the claim is false" if refuted else "no violation was found, which proves no privacy"),
    ]
    how = (
        ("Last attack", str(audit["attack"])),
        ("The two data sets", str(audit["pair"])),
        ("Runs", f"{int(audit['runs']):,} on each data set were made, {int(audit['most_runs']):,} at most"),
        ("p-value", f"{_short(float(audit['p_value']))}, valid at any time"),
    )
    sections = [
        section("verdict", "The verdict", _verdict(audit)),
        section("evidence", "The evidence over the runs", chart),
        section("not-said", "What this audit does not say", listing(_NOT_SAID)),
        section("how", "How it was made", terms(how)),
    ]
    return page(
        about=None,
        kind="Result of an audit · a test of one claim",
        title=title.strip() or "Privacy audit by betting",
        facts=facts,
        body=join_markup(sections),
    )


def _verdict(audit: Mapping[str, Any]) -> Markup:
    sure = f"with {setting(100 * float(audit['confidence']))}\u00a0% confidence"
    if audit["refuted"]:
        return notice(
            "The claim is false",
            f"The runs contradict the claim {audit['claim']}, {sure}. That was sure after "
            f"{int(audit['decided_after']):,} runs on each data set.",
        )
    words = (
        f"The claim was {audit['claim']}. No violation was found in {int(audit['runs']):,} runs on each data set. An "
    )
    return element("p", words + "audit can refute a guarantee but never prove one; the proof is the accountant’s.")


def _evidence(audit: Mapping[str, Any]) -> str:
    return _short(float(audit["capital"]))


def _wanted(audit: Mapping[str, Any]) -> str:
    return _short(1 / (1 - float(audit["confidence"])))


def _short(value: float) -> str:
    return setting(float(f"{value:.4g}"))
