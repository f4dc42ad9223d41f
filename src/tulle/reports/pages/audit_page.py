"""The page of an audit: the verdict, the trade-off curve that was claimed and the one that was observed, the power, and
what an audit does not say."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tulle.accounting.bounds_from_counts import allowed_hit_rate, clopper_pearson, gaussian_hit_rate
from tulle.files.number_text import rounded_down
from tulle.reports.number_format import delta_is, epsilon_is, format_rounded_up, number, readable, setting
from tulle.reports.pages.charts import Attack, attack_chart, tradeoff_chart
from tulle.reports.pages.markup import Markup, element, join_markup
from tulle.reports.pages.page import listing, notice, page, section
from tulle.trusted.events import FloatArray

# Limits of every audit.
NOT_SAID = (
    "A passing audit proves no privacy. It shows that this attack, with these runs, on this pair of data sets, found "
    "no violation. Privacy is proved by the accounting, not by an audit.",
    "Another attack, another pair of data sets or more runs may find a violation.",
    "Only the audited program is tested: not how it is called, what else is published about the same rows, or where "
    "its random numbers come from.",
)
_NOT_SAID_IN_ONE_RUN = (
    "A passing audit proves no privacy. It shows that this score, with these canaries, in one run, found no violation. "
    "Privacy is proved by the accounting, not by an audit.",
    "Another score, other canaries or more of them may find a violation.",
    NOT_SAID[2],
    "The confidence is that of one look at one run, with a number of guesses that was fixed beforehand.",
)
_ONE_LOOK = "The confidence is that of one look at runs whose number was fixed beforehand."


def audit_page(audit: Mapping[str, Any], title: str = "") -> str:
    """The page of an audit.

    Parameters
    ----------
    audit : mapping
        `AuditResult.to_dict()`.
    title : str, default=""
        The heading; "" is "Privacy audit".

    Returns
    -------
    str
        One self-contained HTML file. It shows what an attack saw on the two audited data sets: where these hold rows of
        persons, the page is for the holder of the rows alone.
    """
    not_said = _NOT_SAID_IN_ONE_RUN if _is_one_run(audit) else (*NOT_SAID, _ONE_LOOK)
    sections = [
        section("verdict", "The verdict", verdict(audit)),
        section("curve", "The trade-off curve", *attack_parts(audit, tradeoff=True)),
        section("power", "The power of this audit", *_power(audit)),
        section("not-said", "What this audit does not say", listing(not_said)),
        section("how", "How it was made", audit_terms(audit)),
    ]
    claimed = None if audit["claimed"] is None else float(audit["claimed"])
    refuted = bool(audit["refuted"])
    facts = [
        ("Subject", str(audit["pair"])),
        (
            "Claimed",
            "nothing" if claimed is None else f"{_claim(audit)} at {delta_is(format_rounded_up(audit['delta']))}",
        ),
        ("Shown by the attack", _shown(audit)),
        ("Verdict", "the claim is false" if refuted else "no violation was found, which proves no privacy"),
    ]
    return page(
        about=None,
        kind="Result of an audit · a lower bound on ε",
        title=title.strip() or "Privacy audit",
        facts=facts,
        body=join_markup(sections),
    )


def verdict(audit: Mapping[str, Any]) -> Markup:
    """What the attack proved, and what that says about the claim."""
    delta, epsilon = float(audit["delta"]), float(audit["epsilon"])
    claimed = None if audit["claimed"] is None else float(audit["claimed"])
    sure = _confidence(audit)
    found = f"The attack proves, {sure}, that the privacy loss is at least "
    found += f"{epsilon_is(readable(rounded_down(epsilon)))} at {delta_is(format_rounded_up(delta))}"
    if epsilon == 0:
        both = "versions of the canaries" if _is_one_run(audit) else "data sets"
        found = f"The attack did not distinguish the two {both}, {sure}, at {delta_is(format_rounded_up(delta))}"
    refuted = claimed is not None and epsilon > claimed
    if audit["judge"] not in ("any", "gaussian"):
        refuted = bool(audit["refuted"])
    if audit.get("mu") is not None:
        mu = float(audit["mu"])
        refuted = mu > float(audit["claimed_mu"])
        if mu > 0:
            found = f"The attack proves, {sure}, that a true guarantee of μ-GDP has a μ of at least "
            found += f"{readable(rounded_down(mu))}, which is {epsilon_is(readable(rounded_down(epsilon)))} at "
            found += delta_is(format_rounded_up(delta))
    if claimed is None:
        return element("p", f"{found}. There was no claim to refute.")
    if refuted:
        more = f"{found}: more than the claimed {_claim(audit)}."
        if epsilon <= claimed:  # a judge of another measure than epsilon
            more = f"The counts of the attack contradict the claim, {sure}. The claim was {_claim(audit)}."
        return notice("The claim is false", more)
    words = f"{found}. The claim was {_claim(audit)}: no violation was found. An audit can refute a "
    words += "guarantee but never prove one; the proof is the accountant’s."
    return join_markup([element("p", words), *(notice(text[0], text[1], loud=False) for text in _shortfall(audit))])


def _is_one_run(audit: Mapping[str, Any]) -> bool:
    return audit.get("guesses") is not None


def _claim(audit: Mapping[str, Any]) -> str:
    claim = epsilon_is(setting(float(audit["claimed"])))
    return f"μ\u00a0=\u00a0{setting(float(audit['claimed_mu']))} ({claim})" if audit.get("mu") is not None else claim


def _shown(audit: Mapping[str, Any]) -> str:
    shown = f"ε ≥ {readable(rounded_down(float(audit['epsilon'])))}"
    if audit.get("mu") is not None:
        shown = f"μ ≥ {readable(rounded_down(float(audit['mu'])))}, which is {shown}"
    return f"{shown}, {_confidence(audit)}"


def _confidence(audit: Mapping[str, Any]) -> str:
    return f"with {setting(100 * float(audit['confidence']))}\u00a0% confidence"


def _shortfall(audit: Mapping[str, Any]) -> list[tuple[str, str]]:
    """That the audit had no power, where that is so."""
    short = list(audit.get("power") or ())[1:]
    return [("Little was tested", _sentence(text)) for text in short]


def _power(audit: Mapping[str, Any]) -> list[Markup]:
    stated = list(audit.get("power") or ())
    if not stated:
        return [element("p", "The power of this kind of audit is not stated.")]
    return [element("p", _sentence(text)) for text in stated]


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}.".replace(" >= ", "\u00a0≥\u00a0").replace("ε = ", "ε\u00a0=\u00a0")


def attack_parts(audit: Mapping[str, Any], tradeoff: bool = False) -> list[Markup]:
    """The attack's curve against the limit of the claim; `tradeoff` adds the trade-off curve on linear axes."""
    drawn = _attack(audit)
    if drawn is None:
        return [element("p", "The audit was one run, and its attack has no curve.")] if tradeoff else []
    limit = (
        "" if not len(drawn.grid) else "A curve that enters the shaded area, with its band, would contradict the claim."
    )
    words = f"The attack’s hit rate against its false-hit rate, both logarithmic. {limit}".strip()
    parts = [attack_chart(drawn, "Hit rates of the attack and the limit of the claim", words)]
    if tradeoff:
        words = "How often the attack misses the first data set, against how often it takes the second one for the "
        words += (
            "first. The lower the curve, the better the attack. The band holds at each point by itself; the verdict "
        )
        words += "counts one point, which was fixed on other runs."
        linear = np.linspace(0, 1, 401)
        drawn = replace(drawn, grid=linear, allowed=_limit(audit, linear)[0]) if len(drawn.grid) else drawn
        parts.insert(0, tradeoff_chart(drawn, "Trade-off curve of the attack and the one that is claimed", words))
    return parts


def _attack(audit: Mapping[str, Any]) -> Attack | None:
    """The attack's curve, as `AuditResult.plot` draws it; None where it has none."""
    false_rates, hit_rates = (np.asarray(audit[name], dtype=np.float64) for name in ("false_rates", "hit_rates"))
    if not len(false_rates):
        return None
    runs = int(audit["runs"])
    low, high = clopper_pearson(np.round(hit_rates * runs), runs, 0.025)
    # The axes begin at a power of ten: rates of few hits are mostly luck.
    smallest = 10.0 ** math.floor(math.log10(max(100 / max(runs, 1000), 1e-6)))
    claimed = audit["claimed"]
    grid = np.geomspace(smallest, 1, 120) if claimed is not None and math.isfinite(float(claimed)) else np.zeros(0)
    allowed, claim = _limit(audit, grid)
    return Attack(false_rates, hit_rates, low, high, grid, allowed, smallest, claim)


def _limit(audit: Mapping[str, Any], grid: FloatArray) -> tuple[FloatArray, str]:
    """The largest hit rates that the claim allows, and the claim in words."""
    if not len(grid):
        return grid, ""
    if audit.get("claimed_mu") is not None:
        claimed_mu = float(audit["claimed_mu"])
        return gaussian_hit_rate(grid, claimed_mu), f"μ\u00a0=\u00a0{setting(claimed_mu)}"
    claimed = float(audit["claimed"])
    return allowed_hit_rate(grid, claimed, float(audit["delta"])), epsilon_is(setting(claimed))


def audit_terms(audit: Mapping[str, Any]) -> Markup:
    """The judge, the attack, the data sets and the runs."""
    judge = str(audit["judge"])
    if judge == "any":
        judge = "any: nothing is assumed about the release"
    if audit.get("mu") is not None:
        judge = "Gaussian: it bounds the μ that is claimed, and no ε of another claim. Judge any, which assumes "
        free = epsilon_is(readable(rounded_down(float(audit["epsilon_any"]))))
        judge += f"nothing, gives at least {free} on the same runs, {_confidence(audit)} by itself"
    most = epsilon_is(number(float(audit["best_possible"]), 3))
    made = f"{int(audit['runs']):,}"
    if _is_one_run(audit):
        made = f"one, with {made} canaries and {int(audit['guesses']):,} guesses"
    return terms(
        (
            ("Judge", judge),
            ("Attack", str(audit["attack"])),
            ("The rows" if _is_one_run(audit) else "The two data sets", str(audit["pair"])),
            ("Runs", f"{made}; the largest ε they could show is {most}"),
        )
    )


def terms(named: Sequence[tuple[str, str]]) -> Markup:
    """Names and what they mean, in a list."""
    return element(
        "dl", *(element("div", element("dt", name), element("dd", text)) for name, text in named), class_="terms"
    )
