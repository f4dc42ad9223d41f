"""The page of one fit: the guarantee, the bill, the assumptions, the chosen features, an audit; to read and sign."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import tulle
from tulle.files.number_text import finite
from tulle.reports.number_format import (
    belief_after,
    delta_is,
    epsilon_is,
    format_rounded_up,
    number,
    odds_factor,
    one_in,
    percent_up,
    rho_is,
    setting,
)
from tulle.reports.pages.audit_page import attack_parts, audit_terms, verdict
from tulle.reports.pages.charts import epsilon_scale, renyi_chart
from tulle.reports.pages.comparison_page import INTERNAL, comparison_parts
from tulle.reports.pages.forest import interval_parts
from tulle.reports.pages.ledger_page import earlier_releases
from tulle.reports.pages.markup import Markup, breakable, element, join_markup
from tulle.reports.pages.officer_sections import (
    adjacency_parts,
    bound_parts,
    input_parts,
    release_parts,
    sign_parts,
    threat_parts,
)
from tulle.reports.pages.page import bar, listing, notice, page, section, table, without_hashes
from tulle.reports.pages.weight_tables import blocks, fingerprint, weight_blocks
from tulle.reports.report import About, PrivacyReport

_BELIEFS = (0.01, 0.1, 0.5)


def fit_page(
    model: Any,
    about: About,
    *,
    audit: Mapping[str, Any] | None = None,
    comparison: Mapping[str, Any] | None = None,
    internal: bool = False,
    schema: Any = None,
    ledger: Any = None,
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
        Whether to show parts that are not for release: errors on private rows, who asked, earlier releases and the
        remaining budget of the ledger.
    schema : tulle.Schema or None, default=None
        What encoded the rows: the table of intervals, where the model has any, is then in the user's units.
    ledger : FileLedger or None, default=None
        Whose entries to list, with the names of analysts; for internal pages alone.

    Returns
    -------
    str
        One self-contained HTML file.
    """
    if comparison is not None and not internal:
        raise ValueError(
            "a public page cannot show a comparison: its errors were measured on private rows and are not covered by "
            "the privacy guarantee; omit comparison, or pass internal=True"
        )
    if ledger is not None and not internal:
        raise ValueError(
            "a public page cannot list the entries of a ledger: they name analysts and other releases; omit ledger, or "
            "pass internal=True"
        )
    report = getattr(model, "privacy_", None)
    if not isinstance(report, PrivacyReport) or not hasattr(model, "named_weights"):
        raise ValueError(
            f"{type(model).__name__} is not a fitted linear model of tulle: it needs privacy_ and named_weights; fit "
            "it first, or pass a search's best_estimator_"
        )
    about = about if internal else keep_public(about)
    title = about.title.strip() or about.default_title() or "Privacy report"
    weights, digest = blocks(model), fingerprint(model)
    proved = report.asked is not None and math.isfinite(report.epsilon)
    sections = [
        section("guarantee", "The privacy guarantee", *_warnings(report), *_guarantee(report)),
        *([section("adjacency", "What the guarantee compares", *adjacency_parts(report))] if proved else []),
        section("bill", "The bill", *_bill(report)),
        *([section("renyi", "The Rényi curve", *_curve(report))] if report.renyi else []),
        section("inputs", "What the model was fitted to", *input_parts(report, about)),
        *([section("bounds", "Who stated which bound", *bound_parts(report))] if report.asked is not None else []),
        section("assumptions", "Assumptions of the guarantee", listing(report.assumptions)),
        section("seen", "Who saw what", listing(report.who_saw_what)),
        section("features", "The chosen features", _by_chance(report), weight_blocks(model, weights)),
    ]
    if hasattr(model, "inference_"):
        told = "" if schema is None else "The chart is for features as the model takes them, the table for one unit of "
        told += "" if schema is None else "each column."
        drawn = model.summary(names=None if schema is None else schema.get_feature_names_out())
        parts = interval_parts(drawn, model.summary(schema=schema))
        sections.append(
            section("intervals", "The weights with intervals", *([element("p", told)] if told else []), *parts)
        )
    if comparison is not None:
        told = element("p", "Errors on private rows, measured without noise; the guarantee does not cover them.")
        sections.append(section("accuracy", "Accuracy against ε (internal)", told, *comparison_parts(comparison)))
    if audit is not None:
        sections.append(section("audit", "The audit", *_audit(audit, report)))
    if report.asked is not None:
        sections.append(section("threats", "What could undermine the guarantee", *threat_parts(report)))
    sections.append(section("verify", "How to verify this page", _verify(model, report, about, internal, digest)))
    if ledger is not None:
        sections.append(section("ledger", "Earlier releases, remaining budget (internal)", *earlier_releases(ledger)))
    signed = sign_parts(report, model, title, digest, internal)
    sections.append(section("sign", "Before you sign", *signed))
    most = max(len(block.weights) for block in weights)
    per_class = " (in the class with most)" if len(weights) > 1 else ""
    facts = [
        ("Model", type(model).__name__),
        ("Non-zero weights", f"{most:,} of {model.n_features_in_:,}{per_class}"),
        ("Library", f"tulle {report.version}" if report.version else "a version of tulle that reports did not name"),
    ]
    facts += [("Billed as", text) for text in report.billed]
    if about.ledger:
        facts.append(("Ledger", about.ledger))
    return page(
        about=about,
        kind="Privacy report · internal" if internal else "Privacy report · public form: only what was released",
        title=title,
        facts=facts,
        body=join_markup(sections),
        banner=INTERNAL if internal else "",
        foot=f"Weights {digest[:16]}…",
    )


def keep_public(about: About) -> About:
    """Who asked for a fit, without the parts for internal pages: names of analysts, the ledger, hashes of files."""
    public = {name: without_hashes(text) for name, text in asdict(about).items()}
    return replace(About(**public), ledger="", asked_by="")


# --- the guarantee ----------------------------------------------------------------------------------------------------


def _warnings(report: PrivacyReport) -> list[Markup]:
    """Warnings to read before signing."""
    boxes = []
    if report.asked is None:
        boxes.append(
            notice(
                "No privacy guarantee",
                "This fit used no noise (epsilon=None). The model may reveal any row that it was trained on, and so "
                "may the weights on this page.",
            )
        )
        return boxes
    proved = f"{epsilon_is(format_rounded_up(report.epsilon))} at {delta_is(format_rounded_up(report.delta))}"
    if math.isinf(report.epsilon):
        boxes.append(notice("Nothing is proved", "For the noise that was drawn there is no proof of any ε."))
    elif report.is_weaker() or report.delta > report.asked[1] * (1 + 1e-9):
        if report.asked_rho is not None and report.rho is not None:
            proved = f"{rho_is(format_rounded_up(report.rho))}, which is {proved}"
        boxes.append(
            notice(
                "The proved guarantee is weaker than the one requested",
                f"Requested: {_requested(report)} at {delta_is(format_rounded_up(report.asked[1]))}. The noise drawn "
                f"proves only {proved}.",
            )
        )
    if report.seeded:
        boxes.append(
            notice(
                "The noise came from a seed",
                "There is no guarantee against anyone who knows or can guess the seed, or who sees another fit with "
                "the same seed. To release a model, fit it without a seed (random_state=None).",
            )
        )
    if report.calibration == "published":
        boxes.append(
            notice(
                "The noise scale is a paper’s",
                'calibration="published" uses the noise printed in the paper, not noise calibrated to the requested '
                f"{'ε' if report.asked_rho is None else 'ρ'}. The ε proved here is the one that holds.",
            )
        )
    slack = report.floating_point_slack
    if slack > report.delta:  # no part of it
        weakened = delta_is(format_rounded_up(min(report.delta + slack, 1.0), 2))
        boxes.append(
            notice(
                "Finite precision weakens this guarantee",
                "This report was written by an earlier version, whose δ omits the part due to floating-point rounding, "
                f"up to {format_rounded_up(min(slack, 1.0), 2)}. Instead of "
                f"{delta_is(format_rounded_up(report.delta))} use {weakened}.",
            )
        )
    return boxes


def _guarantee(report: PrivacyReport) -> list[Markup]:
    if report.asked is None:
        return [_covered(report)]
    bounded = math.isfinite(report.epsilon)
    parts = [_lead(report)] if bounded else []
    asked = [
        element("dd", _requested(report), class_="large"),
        element("dd", delta_is(format_rounded_up(report.asked[1]))),
    ]
    proved = [
        element("dd", epsilon_is(format_rounded_up(report.epsilon)) if bounded else "nothing", class_="large"),
        element("dd", delta_is(format_rounded_up(report.delta))),
    ]
    if report.rho is not None:
        proved.append(element("dd", f"{rho_is(format_rounded_up(report.rho))} (zCDP)"))
    figures = (
        element("div", element("dt", "Requested"), *asked),
        element("div", element("dt", "Proved for the noise drawn"), *proved, class_="proved"),
    )
    parts.append(element("dl", *figures, class_="figures"))
    parts.append(epsilon_scale(report.epsilon, report.asked[0] if report.asked_rho is None else None))
    if bounded:
        parts += [_example(report), _exception(report)]
    parts.append(_covered(report))
    return parts


def _requested(report: PrivacyReport) -> str:
    """The measure that was asked for, without its delta."""
    if report.asked_rho is not None:
        return rho_is(format_rounded_up(report.asked_rho))
    return epsilon_is(format_rounded_up(report.asked[0] if report.asked is not None else math.inf))


def _lead(report: PrivacyReport) -> Markup:
    return element(
        "p",
        "Anyone who sees this model, even knowing the data of everyone else, can change their odds for any statement "
        "about one "
        "protected unit by a factor of at most ",
        element("strong", odds_factor(report.epsilon)),
        ".",
        class_="lead",
    )


def _example(report: PrivacyReport) -> Markup:
    rows = [(percent_up(prior), percent_up(belief_after(prior, report.epsilon))) for prior in _BELIEFS]
    before, after = rows[1]
    words = (
        f"For example: someone who knows the data of everyone else, and believes with {before} probability that a "
        "given person is "
        f"in group A, can raise that to at most {after} after seeing the model."
    )
    caption = "Largest change of a belief about one unit, rounded up"
    return join_markup(
        [
            element("p", words),
            table(caption, ("Probability before", "at most, after"), rows, numeric={1}, form="slim"),
        ]
    )


def _exception(report: PrivacyReport) -> Markup:
    slack = report.floating_point_slack
    part = ""
    if 0 < slack <= report.delta:
        of_delta = "All of δ" if slack == report.delta else f"Of δ, {format_rounded_up(slack, 2)}"
        what = report.slack_is_for
        part = f" {of_delta} is for {'floating-point rounding' if what == 'finite precision' else what}."
    if report.delta == 0:
        return element("p", "The bound holds without exception (δ = 0).")
    return element(
        "p",
        f"There is a small exception, {delta_is(format_rounded_up(report.delta))}: except with probability at most "
        f"{one_in(report.delta)}, the model is distributed as if drawn by a procedure that always meets this bound. In "
        "that exceptional case there is no guarantee.",
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
        "The guarantee does not limit what a model reveals about people in general. It would reveal nearly the same "
        "without this person’s data."
    )
    told = element("p", limits, class_="soft") if report.asked is not None else ""
    return join_markup([element("dl", *listed, class_="terms"), told])


# --- the bill ---------------------------------------------------------------------------------------------------------


def _bill(report: PrivacyReport) -> list[Markup]:
    if not report.bill:
        return [element("p", "The bill is empty.")]
    whole = [value for value in (report.epsilon, *(line.epsilon_alone for line in report.bill)) if math.isfinite(value)]
    most = max(whole, default=0.0) or 1.0
    rows = [
        (
            join_markup([breakable(line.release), element("span", line.mechanism, class_="under")]),
            f"{line.count:,}",
            number(line.noise_per_sensitivity),
            format_rounded_up(line.epsilon_alone, 4),
            bar(min(line.epsilon_alone / most, 1.0)),
        )
        for line in report.bill
    ]
    head = ("Release and mechanism", "Times", "Noise / sensitivity", "ε if alone", "Relative size")
    caption = "All releases by the trusted code"
    total = f"All releases together cost {epsilon_is(format_rounded_up(report.epsilon))} at "
    total += f"{delta_is(format_rounded_up(report.delta))}. "
    if math.isinf(report.epsilon):
        total = "No ε is proved for all releases together. "
    words = (
        f"{total}The rows need not add up to the total: each gives the cost of its releases if nothing else had been "
        f"released. A full bar is {epsilon_is(format_rounded_up(most, 4))}."
    )
    figures = table(caption, head, rows, numeric={1, 2, 3}, bars=4)
    return [figures, element("p", words, class_="soft"), release_parts(report)]


def _curve(report: PrivacyReport) -> list[Markup]:
    """The Rényi curve of the whole bill, for readers who add it to that of other releases."""
    words = "The Rényi divergence that is proved for all releases together, at the marked orders, rounded up. It adds "
    words += "up over releases about the same rows. "
    if report.rho is not None:
        words += f"All of it is at most α × {format_rounded_up(report.rho)} at every order α > 1: zero-concentrated "
        words += f"differential privacy with {rho_is(format_rounded_up(report.rho))}."
    else:
        words += "No ρ of zero-concentrated differential privacy is proved for these releases."
    rows = [(setting(order), format_rounded_up(value, 4)) for order, value in report.renyi]
    can_be_drawn = len(report.renyi) > 1 and all(value > 0 for _, value in report.renyi)
    drawn = renyi_chart(report.renyi, words) if can_be_drawn else element("p", words, class_="soft")
    return [drawn, table("The same values", ("Order α", "ε(α)"), rows, numeric={1}, form="slim")]


def _by_chance(report: PrivacyReport) -> Markup:
    if report.asked is None:
        return element("p", "They were chosen without noise, and may reveal who is in the data.")
    return element(
        "p",
        "Features were chosen, and weights fitted, with noise: any single feature may be listed by chance, and any "
        "single weight may be far off. The guarantee covers the set of features, their signs and their weights.",
    )


# --- the audit --------------------------------------------------------------------------------------------------------


def _audit(audit: Mapping[str, Any], report: PrivacyReport) -> list[Markup]:
    parts = [verdict(audit)]
    claimed = None if audit["claimed"] is None else float(audit["claimed"])
    if claimed is not None and report.asked is not None and not math.isclose(claimed, report.epsilon, rel_tol=1e-3):
        words = f"The audit tested {epsilon_is(setting(claimed))}; for this fit "
        parts.append(element("p", f"{words}{epsilon_is(format_rounded_up(report.epsilon))} is proved."))
    return [*parts, *attack_parts(audit), audit_terms(audit)]


# --- verifying --------------------------------------------------------------------------------------------------------


_INTERNAL_FIELDS = ("ledger", "asked_by")


def _verify(model: Any, report: PrivacyReport, about: About, internal: bool, weights: str) -> Markup:
    stated = {name: text for name, text in asdict(about).items() if internal or name not in _INTERNAL_FIELDS}
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
        join_markup(
            [
                "This page belongs to the model whose weights have the fingerprint ",
                element("code", weights),
                " (SHA-256). ",
                element("code", "tulle.reports.pages.fingerprint(model)"),
                " computes it from a model.",
            ]
        ),
        join_markup(
            [
                "The same report is in this file as JSON, in the element ",
                element("code", "tulle-report"),
                "; the fingerprint of that text is ",
                element("code", hashlib.sha256(written.encode()).hexdigest()),
                ".",
            ]
        ),
        join_markup(
            [
                "A signed page comes with a second file, whose name is that of the page with .sig added. ",
                element("code", "tulle verify report.html --key PUBLIC_KEY"),
                " checks that no byte of the page has changed since the holder of the key signed it; it does not check "
                "that ε is right. Get the public key from its holder, not together with this page.",
            ]
        ),
        "The bill and the method suffice to recompute ε: the accountant uses only noise per sensitivity and the number "
        "of uses.",
        "The assumptions above cannot be verified from a file. Confirm each with the person who prepared the rows.",
    ]
    script = element("script", Markup(written), type="application/json", id="tulle-report")
    return join_markup([listing(steps, "ol"), script])
