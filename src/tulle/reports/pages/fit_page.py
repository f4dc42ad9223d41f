"""The page of one fit: the promise, the bill, the assumptions, the chosen features, an audit; to be read and signed."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np

import tulle
from tulle.pages.comparison_page import INTERNAL, comparison_parts
from tulle.pages.figures import (
    belief_after,
    delta_is,
    epsilon_is,
    number,
    odds_factor,
    one_in,
    percent_up,
    promise,
    readable,
    setting,
)
from tulle.pages.markup import Markup, breakable, element, joined
from tulle.pages.page import bar, listing, notice, page, section, signature, table, without_hashes
from tulle.pages.svg import Attack, attack_chart, epsilon_scale
from tulle.pages.weights import blocks, fingerprint, weight_blocks
from tulle.report import About, PrivacyReport, finite, rounded_down

_BELIEFS = (0.01, 0.1, 0.5)


def fit_page(
    model: Any,
    about: About,
    *,
    audit: Mapping[str, Any] | None = None,
    comparison: Mapping[str, Any] | None = None,
    internal: bool = False,
) -> str:
    """The page of a fitted model.

    Parameters
    ----------
    model : estimator
        Fitted: `coef_`, `intercept_` and `privacy_` are read, `classes_` and `feature_names_in_` where there are any.
    about : About
        Who asked what, when and of which data. Long hexadecimal numbers are left out of the public form.
    audit : mapping or None, default=None
        `AuditResult.to_dict()`. The figures of an audit that ran on private rows are not private; leave it out of a
        public page then. `audit_model` and ``tulle audit`` run on data sets that they make themselves.
    comparison : mapping or None, default=None
        What ``tulle compare`` writes into comparison.json; for internal pages alone.
    internal : bool, default=False
        Whether to show what is not for release: errors on private rows, and what the ledger says.

    Returns
    -------
    str
        One self-contained HTML file.
    """
    if comparison is not None and not internal:
        raise ValueError(
            "a public page cannot show a comparison: its errors were measured on private rows and no promise covers "
            "them; leave comparison out, or make an internal page with internal=True"
        )
    report = getattr(model, "privacy_", None)
    if not isinstance(report, PrivacyReport) or not hasattr(model, "named_weights"):
        raise ValueError(
            f"{type(model).__name__} is not a fitted linear model of tulle: it needs privacy_ and named_weights; fit "
            "it first, or pass a search's best_estimator_"
        )
    if not internal:
        public = {name: without_hashes(text) for name, text in asdict(about).items()}
        about = replace(About(**public), ledger="")
    weights = blocks(model)
    sections = [
        section("promise", "The promise", *_warnings(report), *_promise(report)),
        section("bill", "The bill", *_bill(report)),
        section("assumptions", "What the promise rests on", listing(report.assumptions)),
        section("seen", "Who saw what", listing(report.who_saw_what)),
        section("features", "The chosen features", _by_chance(report), weight_blocks(model, weights)),
    ]
    if comparison is not None:
        told = element("p", "Errors on private rows, measured without noise: the promise does not cover them.")
        sections.append(section("accuracy", "Accuracy against ε (internal)", told, *comparison_parts(comparison)))
    if audit is not None:
        sections.append(section("audit", "The audit", *_audit(audit, report)))
    sections.append(section("verify", "How to verify this page", _verify(model, report, about, internal), signature()))
    most = max(len(block.weights) for block in weights)
    per_class = " (in the class with most)" if len(weights) > 1 else ""
    facts = [
        ("Model", type(model).__name__),
        ("Non-zero weights", f"{most:,} of {model.n_features_in_:,}{per_class}"),
        ("Library", f"tulle {tulle.__version__}"),
    ]
    if about.ledger:
        facts.append(("Ledger", about.ledger))
    return page(
        about=about,
        kind="Privacy report · internal" if internal else "Privacy report · public form: only what was released",
        title="Privacy report",
        facts=facts,
        body=joined(sections),
        banner=INTERNAL if internal else "",
    )


# --- the promise ------------------------------------------------------------------------------------------------------


def _warnings(report: PrivacyReport) -> list[Markup]:
    """What must be known before signing."""
    boxes = []
    if report.asked is None:
        boxes.append(
            notice(
                "Nothing is promised",
                "This fit used no noise (epsilon=None). The model may reveal any row that it was trained on, and so "
                "may the weights on this page.",
            )
        )
        return boxes
    asked_epsilon, asked_delta = report.asked
    proved = f"{epsilon_is(promise(report.epsilon))} at {delta_is(promise(report.delta))}"
    if math.isinf(report.epsilon):
        boxes.append(notice("Nothing is proved", "For the noise that was drawn there is no proof of any ε."))
    elif report.epsilon > asked_epsilon * (1 + 1e-9) or report.delta > asked_delta * (1 + 1e-9):
        boxes.append(
            notice(
                "The proved promise is weaker than the one that was asked for",
                f"Asked for was {epsilon_is(promise(asked_epsilon))} at {delta_is(promise(asked_delta))}; the noise "
                f"that was drawn proves {proved} only.",
            )
        )
    if report.seeded:
        boxes.append(
            notice(
                "The noise came from a seed",
                "Towards whoever knows the seed, can guess it, or sees another fit with the same seed, nothing is "
                "promised. For a model that leaves the house, fit without a seed (random_state=None).",
            )
        )
    if report.calibration == "published":
        boxes.append(
            notice(
                "The noise is a paper’s own",
                'calibration="published" runs the noise that was printed, not noise that was calibrated to the ε asked '
                "for. What counts is the ε that is proved here.",
            )
        )
    slack = report.floating_point_slack
    if slack > report.delta:  # no part of it
        weakened = delta_is(promise(min(report.delta + slack, 1.0), 2))
        boxes.append(
            notice(
                "Finite precision weakens this promise",
                "This report is of an earlier version, whose δ leaves out what rounding in computers takes: up to "
                f"{promise(min(slack, 1.0), 2)}. Instead of {delta_is(promise(report.delta))} count with {weakened}.",
            )
        )
    return boxes


def _promise(report: PrivacyReport) -> list[Markup]:
    if report.asked is None:
        return [_covered(report)]
    bounded = math.isfinite(report.epsilon)
    parts = [_lead(report)] if bounded else []
    asked = [
        element("dd", epsilon_is(promise(report.asked[0])), class_="large"),
        element("dd", delta_is(promise(report.asked[1]))),
    ]
    proved = [
        element("dd", epsilon_is(promise(report.epsilon)) if bounded else "nothing", class_="large"),
        element("dd", delta_is(promise(report.delta))),
    ]
    figures = (
        element("div", element("dt", "Asked for"), *asked),
        element("div", element("dt", "Proved for the noise drawn"), *proved, class_="proved"),
    )
    parts.append(element("dl", *figures, class_="figures"))
    parts.append(epsilon_scale(report.epsilon, report.asked[0]))
    if bounded:
        parts += [_example(report), _exception(report)]
    parts.append(_covered(report))
    return parts


def _lead(report: PrivacyReport) -> Markup:
    return element(
        "p",
        "Whoever sees this model, even knowing everybody else’s data, can change the odds that they give to any "
        "statement about one protected unit by a factor of at most ",
        element("strong", odds_factor(report.epsilon)),
        ".",
        class_="lead",
    )


def _example(report: PrivacyReport) -> Markup:
    rows = [(percent_up(prior), percent_up(belief_after(prior, report.epsilon))) for prior in _BELIEFS]
    before, after = rows[1]
    words = (
        f"For example: someone who knows the data of everybody else, and thinks it {before} likely that a given person "
        f"is in group A, can come to think it at most {after} likely after seeing the model."
    )
    caption = "How far a belief about one unit can rise, rounded up"
    return joined(
        [
            element("p", words),
            table(caption, ("Thought likely before", "at most, after"), rows, numeric={1}, form="slim"),
        ]
    )


def _exception(report: PrivacyReport) -> Markup:
    slack = report.floating_point_slack
    part = ""
    if 0 < slack <= report.delta:
        of_delta = "All of δ" if slack == report.delta else f"Of δ, {promise(slack, 2)}"
        part = f" {of_delta} is for rounding in computers."
    if report.delta == 0:
        return element("p", "The bound holds without exception (δ = 0).")
    return element(
        "p",
        f"This leaves a small exception, {delta_is(promise(report.delta))}: but for a chance of at most "
        f"{one_in(report.delta)}, the model is as good as drawn by a procedure that always keeps this bound. For that "
        "chance nothing is promised.",
        part,
    )


def _covered(report: PrivacyReport) -> Markup:
    terms = (
        ("Protected unit", report.unit),
        ("Method", report.method),
        ("Proof", f"{report.accountant}; calibration: {report.calibration}"),
    )
    listed = (element("div", element("dt", name), element("dd", text)) for name, text in terms)
    limits = (
        "Not limited by any such promise: what a model teaches about people in general. It would teach nearly the "
        "same without this person’s data."
    )
    told = element("p", limits, class_="soft") if report.asked is not None else ""
    return joined([element("dl", *listed, class_="terms"), told])


# --- the bill ---------------------------------------------------------------------------------------------------------


def _bill(report: PrivacyReport) -> list[Markup]:
    if not report.bill:
        return [element("p", "The bill is empty.")]
    whole = [value for value in (report.epsilon, *(line.epsilon_alone for line in report.bill)) if math.isfinite(value)]
    most = max(whole, default=0.0) or 1.0
    rows = [
        (
            joined([breakable(line.release), element("span", line.mechanism, class_="under")]),
            f"{line.count:,}",
            number(line.noise_per_sensitivity),
            promise(line.epsilon_alone, 4),
            bar(min(line.epsilon_alone / most, 1.0)),
        )
        for line in report.bill
    ]
    head = ("Release, and what draws its noise", "Times", "Noise / sensitivity", "ε if alone", "Beside the whole")
    caption = "Everything that left the trusted part of the code"
    total = f"All lines together cost {epsilon_is(promise(report.epsilon))} at {delta_is(promise(report.delta))}. "
    if math.isinf(report.epsilon):
        total = "No ε is proved for all lines together. "
    words = (
        f"{total}The lines need not add up to it: each says what its releases would cost if nothing else had been "
        f"released. A full bar is {epsilon_is(promise(most, 4))}."
    )
    return [table(caption, head, rows, numeric={1, 2, 3}, bars=4), element("p", words, class_="soft")]


def _by_chance(report: PrivacyReport) -> Markup:
    if report.asked is None:
        return element("p", "They were chosen without noise, and may say who was in the data.")
    return element(
        "p",
        "Features were chosen, and weights fitted, with noise: a single feature may be here by chance, and a single "
        "weight may be far off. The promise covers which features these are, their signs and their sizes.",
    )


# --- the audit --------------------------------------------------------------------------------------------------------


def _audit(audit: Mapping[str, Any], report: PrivacyReport) -> list[Markup]:
    delta, confidence = float(audit["delta"]), float(audit["confidence"])
    epsilon = float(audit["epsilon"])
    claimed = None if audit["claimed"] is None else float(audit["claimed"])
    sure = f"with {setting(100 * confidence)}\u00a0% confidence"
    found = f"The attack proves, {sure}, that at least {epsilon_is(readable(rounded_down(epsilon)))} is given away"
    found += f" at {delta_is(promise(delta))}"
    if epsilon == 0:
        found = f"The attack could not tell the two worlds apart, {sure}, at {delta_is(promise(delta))}"
    parts = []
    if claimed is None:
        parts.append(element("p", f"{found}. Nothing was claimed that it could refute."))
    elif epsilon > claimed:
        words = f"{found}: more than the claimed {epsilon_is(setting(claimed))}."
        parts.append(notice("The claim is false", words))
    else:
        words = f"{found}. The claim was {epsilon_is(setting(claimed))}: no violation was found. An audit can refute a "
        words += "promise and never prove one; the proof is the accountant’s."
        parts.append(element("p", words))
    if claimed is not None and report.asked is not None and not math.isclose(claimed, report.epsilon, rel_tol=1e-3):
        words = f"The audit tested {epsilon_is(setting(claimed))}; for this fit "
        parts.append(element("p", f"{words}{epsilon_is(promise(report.epsilon))} is proved."))
    drawn = _attack(audit, claimed, delta)
    if drawn is not None:
        words = "The attack’s hit rate against its false-hit rate, both logarithmic. "
        if claimed is not None:
            words += "A curve that enters the shaded area, with its band, would refute the claim."
        parts.append(attack_chart(drawn, "The attack against what the claim allows", words.strip()))
    terms = (
        ("Attack", str(audit["attack"])),
        ("The two worlds told apart", str(audit["pair"])),
        (
            "Runs",
            f"{int(audit['runs']):,}; they could show at most {epsilon_is(number(float(audit['best_possible']), 3))}",
        ),
    )
    listed = (element("div", element("dt", name), element("dd", text)) for name, text in terms)
    return [*parts, element("dl", *listed, class_="terms")]


def _attack(audit: Mapping[str, Any], claimed: float | None, delta: float) -> Attack | None:
    """The attack's curve, as `AuditResult.plot` draws it; None where it has none."""
    from tulle.audit.evidence import allowed_hit_rate, clopper_pearson

    false_rates, hit_rates = (np.asarray(audit[name], dtype=np.float64) for name in ("false_rates", "hit_rates"))
    if not len(false_rates):
        return None
    runs = int(audit["runs"])
    low, high = clopper_pearson(np.round(hit_rates * runs), runs, 0.025)
    # The axes begin at a power of ten: rates of few hits are mostly luck.
    smallest = 10.0 ** math.floor(math.log10(max(100 / max(runs, 1000), 1e-6)))
    grid = np.geomspace(smallest, 1, 120) if claimed is not None and math.isfinite(claimed) else np.zeros(0)
    allowed = allowed_hit_rate(grid, claimed, delta) if claimed is not None and len(grid) else np.zeros(0)
    claim = "" if claimed is None else epsilon_is(setting(claimed))
    return Attack(false_rates, hit_rates, low, high, grid, allowed, smallest, claim)


# --- verifying --------------------------------------------------------------------------------------------------------


def _verify(model: Any, report: PrivacyReport, about: About, internal: bool) -> Markup:
    weights = fingerprint(model)
    stated = asdict(about) if internal else {name: text for name, text in asdict(about).items() if name != "ledger"}
    values = {
        "format": "tulle report page 1",
        "tulle": tulle.__version__,
        "form": "internal" if internal else "public",
        "about": stated,
        "model": {"class": type(model).__name__, "n_features": int(model.n_features_in_), "sha256": weights},
        "privacy": report.to_dict(),
    }
    # "<" could close the element, or open a comment in it; in JSON it only occurs inside strings.
    written = json.dumps(finite(values), ensure_ascii=True, allow_nan=False).replace("<", "\\u003c")
    steps = [
        joined(
            [
                "This page belongs to the model whose weights have the fingerprint ",
                element("code", weights),
                " (SHA-256). ",
                element("code", "tulle.pages.fingerprint(model)"),
                " computes it from a model.",
            ]
        ),
        joined(
            [
                "The same report for machines is in this file, as JSON, in the element ",
                element("code", "tulle-report"),
                "; the fingerprint of that text is ",
                element("code", hashlib.sha256(written.encode()).hexdigest()),
                ".",
            ]
        ),
        "The bill and the method are enough to compute ε anew: noise per sensitivity and times are all that the "
        "accountant reads.",
        "The assumptions above cannot be read off a file. Ask whoever prepared the rows about each of them.",
    ]
    script = element("script", Markup(written), type="application/json", id="tulle-report")
    return joined([listing(steps, "ol"), script])
