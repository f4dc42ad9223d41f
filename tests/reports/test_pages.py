"""Pages: all that an officer must know is there, nothing else is, no text becomes code, no figure is understated."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from page_samples import (
    ABOUT,
    COMPARISON,
    EPSILONS,
    HOSTILE_NAMES,
    METHODS,
    REPORT,
    fitted,
    hostile,
    released,
    three_classes,
)
from page_samples import audit as sample_audit

from tulle.estimators.bounds import Bounds
from tulle.experiments.comparison import Comparison, compare
from tulle.experiments.examples import Examples
from tulle.reports import number_format as figures
from tulle.reports.number_format import format_rounded_up
from tulle.reports.pages import audit_page, comparison_page, fingerprint, fit_page
from tulle.reports.pages.charts import Scale
from tulle.reports.pages.page import PALETTE, SERIES, without_hashes
from tulle.reports.report import About, PrivacyReport

VOID = {"meta", "br", "hr", "wbr", "col"}


class Tree(HTMLParser):
    """The elements of a page with their attributes and texts; complains about tags that do not match."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None], list[str]]] = []
        self._open: list[int] = []
        self.feed(page)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(attrs) == len(dict(attrs)), f"an attribute is there twice: {attrs}"
        self.elements.append((tag, dict(attrs), []))
        if tag not in VOID:
            self._open.append(len(self.elements) - 1)

    def handle_endtag(self, tag: str) -> None:
        assert self.elements[self._open.pop()][0] == tag

    def handle_data(self, data: str) -> None:
        data_block = bool(self._open) and self.elements[self._open[-1]][0] == "script"
        for k in self._open[-1:] if data_block else self._open:
            self.elements[k][2].append(data)

    def all(self, tag: str, **attributes: str) -> list[str]:
        """The texts of the elements of a kind."""
        return [
            re.sub(r"\s+", " ", "".join(text))
            for found, held, text in self.elements
            if found == tag and all(held.get(name.rstrip("_")) == value for name, value in attributes.items())
        ]

    @property
    def text(self) -> str:
        """What is read, without styles and data."""
        return " ".join(self.all("header") + self.all("main") + self.all("aside") + self.all("footer"))


def page_of(report: PrivacyReport = REPORT, **options: Any) -> Tree:
    return Tree(fit_page(released([0.0, 2.0], report=report), ABOUT, **options))


def every_page() -> dict[str, str]:
    """One page of each kind."""
    nothing = replace(REPORT, epsilon=math.inf, asked=None, calibration="none", bill=())
    return {
        "public": fit_page(fitted(), ABOUT, audit=sample_audit()),
        "internal": fit_page(fitted(), ABOUT, audit=sample_audit(), comparison=COMPARISON, internal=True),
        "hostile": fit_page(hostile(), About(*HOSTILE_NAMES[:6])),
        "classes": fit_page(three_classes(), ABOUT),
        "no promise": fit_page(released([1.0], report=nothing), About()),
        "comparison": comparison_page(COMPARISON, ABOUT),
        "audit": audit_page(sample_audit() | {"pair": HOSTILE_NAMES[0], "attack": HOSTILE_NAMES[1]}, HOSTILE_NAMES[2]),
    }


PAGES = ("public", "internal", "hostile", "classes", "no promise", "comparison", "audit")


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return every_page()


# --- figures ----------------------------------------------------------------------------------------------------------


class TestFigures:
    @pytest.mark.parametrize(
        ("text", "read"),
        [
            ("1e-05", "10⁻⁵"),
            ("2.5e+300", "2.5\u00a0×\u00a010³⁰⁰"),
            ("-3.25", "−3.25"),
            ("-1e-07", "−10⁻⁷"),
            ("12345", "12,345"),
            ("-1234567.5", "−1,234,567.5"),
            ("inf", "∞"),
            ("0", "0"),
        ],
    )
    def test_are_written_for_people(self, text: str, read: str) -> None:
        assert figures.readable(text) == read

    @pytest.mark.parametrize(
        ("value", "read"),
        [
            (0.123456, "0.1235"),
            (99.99999, "100.0"),
            (-1234.56, "−1,235"),
            (0.0, "0"),
            (1e-5, "10⁻⁵"),
            (1e300, "10³⁰⁰"),
        ],
    )
    def test_have_few_digits(self, value: float, read: str) -> None:
        assert figures.number(value) == read

    @given(st.floats(1e-9, 1e9))
    @example(0.1 + 0.2)
    @example(123456789.5)
    def test_of_a_promise_are_never_printed_below_it(self, value: float) -> None:
        printed = figures.format_rounded_up(value).replace(",", "")
        mantissa, _, power = printed.partition("\u00a0×\u00a0")
        if mantissa.startswith("10") and set(mantissa[2:]) <= set("⁰¹²³⁴⁵⁶⁷⁸⁹⁻") and len(mantissa) > 2:
            mantissa, power = "1", mantissa
        exponent = power[2:].translate(str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")) or "0"
        assert value <= float(f"{mantissa}e{exponent}") <= value * (1 + 1.1e-4)

    @given(st.floats(1e-15, 0.0099))
    @example(1e-5)
    @example(1e-6)
    @example(1 / 150_000)
    def test_one_in_so_many_is_never_a_smaller_chance(self, chance: float) -> None:
        times = int(figures.one_in(chance).removeprefix("1 in ").replace(",", ""))
        assert chance <= 1 / times <= chance * 1.02

    def test_round_chances_stay_round(self) -> None:
        assert figures.one_in(1e-5) == "1 in 100,000"
        assert figures.one_in(0.25) == "25\u00a0%"

    @given(st.floats(0.001, 0.999), st.floats(1e-3, 30))
    def test_the_belief_is_the_one_that_randomised_response_reaches(self, prior: float, epsilon: float) -> None:
        """A yes or no that is told truly with odds e^epsilon is an epsilon-private release that attains the bound."""
        true = math.exp(epsilon) / (1 + math.exp(epsilon))
        posterior = prior * true / (prior * true + (1 - prior) * (1 - true))
        assert figures.belief_after(prior, epsilon) == pytest.approx(posterior, rel=1e-9)
        printed = float(figures.percent_up(posterior).removesuffix("\u00a0%"))
        assert 100 * posterior <= printed <= min(100.0, 100 * posterior * 1.011)

    def test_a_huge_epsilon_has_its_factor_in_words(self) -> None:
        assert figures.odds_factor(1000.0) == "e to the power of 1,000"
        assert figures.belief_after(0.1, 1000.0) == 1.0


# --- the guarantee ----------------------------------------------------------------------------------------------------


class TestPromise:
    def test_says_what_changes_by_which_factor(self) -> None:
        text = page_of().text
        assert "by a factor of at most 2.72." in text
        assert "with 10\u00a0% probability" not in text  # spaces are folded by the reader
        assert (
            "believes with 10 % probability that a given person is in group A, can raise that to at most 23.2 %" in text
        )
        assert "1 in 100,000" in text
        assert "Of δ, 10⁻¹² is for floating-point rounding." in text

    def test_asked_and_proved_are_rounded_alike(self) -> None:
        """An asked delta of one third must not look smaller than the same delta proved."""
        third = page_of(replace(REPORT, delta=1e-5 / 3, asked=(1.0, 1e-5 / 3))).all("dd")
        assert third.count("δ = 3.3334 × 10⁻⁶") == 2

    def test_asked_and_proved_stand_side_by_side(self) -> None:
        assert page_of(replace(REPORT, asked=(3.0, 1e-5))).all("dd", class_="large") == ["ε = 3", "ε = 1"]

    @given(st.floats(1e-3, 600))
    def test_the_printed_epsilon_is_never_below_the_proved_one(self, epsilon: float) -> None:
        (_, proved) = page_of(replace(REPORT, epsilon=epsilon, asked=(1000.0, 1e-5))).all("dd", class_="large")
        assert float(proved.removeprefix("ε = ")) >= epsilon

    @pytest.mark.parametrize(
        ("report", "title"),
        [
            (replace(REPORT, asked=None, epsilon=math.inf, calibration="none"), "No privacy guarantee"),
            (replace(REPORT, epsilon=math.inf), "Nothing is proved"),
            (replace(REPORT, epsilon=1.01), "The proved guarantee is weaker than the one requested"),
            (replace(REPORT, delta=1e-4), "The proved guarantee is weaker than the one requested"),
            (replace(REPORT, seeded=True), "The noise came from a seed"),
            (replace(REPORT, calibration="published"), "The noise scale is a paper’s"),
            (replace(REPORT, floating_point_slack=1.1e-5), "Finite precision weakens this guarantee"),
            (replace(REPORT, floating_point_slack=1.0), "Finite precision weakens this guarantee"),
            (
                replace(REPORT, delta=0.0, asked=(1.0, 0.0), floating_point_slack=1e-20),
                "Finite precision weakens this guarantee",
            ),
        ],
    )
    def test_what_weakens_it_has_a_box(self, report: PrivacyReport, title: str) -> None:
        assert page_of(report).all("h3") == [f"Attention: {title}"]

    def test_a_sound_promise_has_no_box(self) -> None:
        assert page_of().all("h3") == []
        pure = replace(REPORT, delta=0.0, asked=(1.0, 0.0), floating_point_slack=0.0)
        assert page_of(pure).all("h3") == []
        assert "without exception (δ = 0)" in page_of(pure).text

    @pytest.mark.parametrize("slack", [1e-12, 1e-7, 1e-5])
    def test_what_finite_precision_takes_is_a_part_of_delta(self, slack: float) -> None:
        """No second delta to be added up, and nothing that weakens the one that stands there."""
        tree = page_of(replace(REPORT, delta=1e-5, floating_point_slack=slack))
        assert tree.all("h3") == []
        said = "All of δ" if slack == 1e-5 else f"Of δ, {format_rounded_up(slack, 2)}"
        assert f"{said} is for floating-point rounding." in tree.text
        assert "Of δ" not in page_of(replace(REPORT, floating_point_slack=0.0)).text

    def test_an_earlier_report_is_counted_with_both(self) -> None:
        """One whose finite-precision part is larger than its delta cannot have counted it."""
        text = page_of(replace(REPORT, delta=1e-5, floating_point_slack=0.5)).text
        assert "by an earlier version" in text
        assert "use δ = 0.51" in text
        assert "Of δ" not in text

    def test_without_one_there_is_neither_factor_nor_example(self) -> None:
        for report in (replace(REPORT, epsilon=math.inf), replace(REPORT, asked=None, epsilon=math.inf)):
            text = page_of(report).text
            assert "factor of at most" not in text
            assert "likely" not in text

    def test_the_bill_has_its_figures_and_says_that_lines_do_not_add_up(self) -> None:
        tree = page_of()
        cells = tree.all("td")
        for figure in ("12", "15.30", "0.93", "20.00", "0.1"):
            assert figure in cells
        assert "need not add up" in tree.text
        widths = re.findall(r"left:0;width:([\d.]+)%", fit_page(released([1.0]), ABOUT))
        assert [float(width) for width in widths] == pytest.approx([10, 93], abs=0.02)

    def test_a_line_without_proof_fills_its_bar(self) -> None:
        endless = replace(REPORT, epsilon=math.inf, bill=(replace(REPORT.bill[0], epsilon_alone=math.inf),))
        page = fit_page(released([1.0], report=endless), ABOUT)
        assert "left:0;width:100.00%" in page
        assert "∞" in Tree(page).all("td")

    @pytest.mark.parametrize("epsilon", [1e-4, 0.01, 1.0, 100.0, 5000.0, math.inf])
    def test_every_epsilon_has_a_place_on_the_scale(self, epsilon: float) -> None:
        page = fit_page(released([1.0], report=replace(REPORT, epsilon=epsilon, asked=(epsilon, 1e-5))), ABOUT)
        for wide in re.findall(r'<svg class="(?:wide|narrow)" viewBox="0 0 (\d+)', page):
            places = re.findall(r'<path d="M([\d.]+) [\d.]+L[^"]*" class="proved"', page)
            assert places
            assert all(0 <= float(place) <= 700 for place in places), wide

    def test_holds_unit_method_assumptions_and_who_saw_what(self) -> None:
        text = page_of().text
        for words in (REPORT.unit, REPORT.method, REPORT.accountant, *REPORT.assumptions, *REPORT.who_saw_what):
            assert words in text

    def test_what_is_not_stated_is_said_to_be_missing(self) -> None:
        assert Tree(fit_page(released([1.0]), About())).all("dd")[:3] == ["not stated"] * 3
        assert Tree(fit_page(released([1.0]), About(), internal=True)).all("dd")[:4] == ["not stated"] * 4


# --- public and internal ----------------------------------------------------------------------------------------------


class TestForms:
    def test_a_public_page_is_a_function_of_what_was_released(self) -> None:
        """A model that has nothing but its released attributes gives the same page as the estimator."""
        model = fitted()
        bare = released(
            model.coef_,
            intercept=model.intercept_,
            report=model.privacy_,
            classes=model.classes_,
            feature_names_in_=model.feature_names_in_,
        )
        assert fit_page(bare, ABOUT) == fit_page(model, ABOUT)

    def test_a_public_page_names_no_ledger_and_no_hash(self) -> None:
        digest = "8f" * 32
        about = replace(ABOUT, data=f"visits.csv (sha256:{digest})", purpose=f"file {digest.upper()}")
        public = fit_page(released([1.0]), about)
        assert "visits.ledger" not in public
        assert digest not in public.lower()
        assert "visits.csv ([hash omitted])" in Tree(public).text
        internal = fit_page(released([1.0]), about, internal=True)
        assert "visits.ledger" in Tree(internal).text
        assert digest in internal

    def test_text_that_is_no_hash_stays(self) -> None:
        for text in ("visits.csv", "deadbeef", "2026-11-12", "a" * 31):
            assert without_hashes(text) == text

    def test_a_public_page_refuses_a_comparison(self) -> None:
        with pytest.raises(ValueError, match="internal=True"):
            fit_page(released([1.0]), ABOUT, comparison=COMPARISON)

    def test_an_unfitted_model_is_refused(self) -> None:
        with pytest.raises(ValueError, match="fit it first"):
            fit_page(object(), ABOUT)

    @pytest.mark.parametrize("name", PAGES)
    def test_internal_pages_say_so_and_public_ones_do_not(self, name: str, pages: dict[str, str]) -> None:
        tree = Tree(pages[name])
        internal = name in ("internal", "comparison")
        assert [("NOT FOR RELEASE" in words) for words in tree.all("aside")] == [True] * internal
        assert tree.all("title")[0].startswith("NOT FOR RELEASE") == internal
        assert ("test error" in tree.text) == internal

    def test_internal_pages_show_errors_beside_both_references(self, pages: dict[str, str]) -> None:
        for name in ("internal", "comparison"):
            text = Tree(pages[name]).text
            assert "0.0987" in text
            assert "0.488" in text


# --- no text becomes code ---------------------------------------------------------------------------------------------


class TestSafety:
    @pytest.mark.parametrize("name", PAGES)
    def test_nothing_is_loaded_and_nothing_runs(self, name: str, pages: dict[str, str]) -> None:
        page = pages[name]
        tree = Tree(page)
        for tag, attributes, _ in tree.elements:
            assert tag not in ("img", "link", "iframe", "object", "embed", "form", "input", "base", "video", "audio")
            assert not any(attribute.startswith("on") for attribute in attributes)
            assert not {"src", "srcset", "xlink:href", "action", "data", "background"} & set(attributes)
            assert attributes.get("href", "#").startswith("#")  # type: ignore[union-attr]
            assert tag != "script" or attributes["type"] == "application/json"
        (style,) = tree.all("style")
        assert "url(" not in style
        assert "@import" not in style
        (policy,) = [held["content"] for tag, held, _ in tree.elements if held.get("http-equiv")]
        assert policy is not None
        assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; img-src data:;")

    def test_hostile_names_are_read_as_they_are_written(self) -> None:
        tree = Tree(fit_page(hostile(), About(*HOSTILE_NAMES[:6])))
        names = tree.all("bdi")
        for name in (*HOSTILE_NAMES[:8], HOSTILE_NAMES[14]):
            assert re.sub(r"\s+", " ", name) in names
        assert "nul\ufffd and bell\ufffd" in names
        assert "half a character \ufffd" in names
        assert "x" * 160 + "…" in names
        assert "4,840 characters" in tree.text
        assert tree.text.count("(its name is empty)") == 2

    def test_every_page_can_be_written(self, pages: dict[str, str]) -> None:
        for page in pages.values():
            assert page.encode("utf-8").decode("utf-8") == page

    def test_json_that_closes_its_element_stays_inside(self) -> None:
        about = replace(ABOUT, title="</script><script>alert(1)</script><!--")
        page = fit_page(released([1.0]), about)
        (script,) = re.findall(r'<script type="application/json" id="tulle-report">(.*?)</script>', page, re.DOTALL)
        assert json.loads(script)["about"]["title"] == about.title

    @given(st.text(max_size=60))
    def test_any_text_is_only_text(self, text: str) -> None:
        """The elements of a page do not depend on what is typed in."""
        about = About(title=text, asked_by=text, purpose=text, data=text, ledger=text)
        report = replace(REPORT, method=text, unit=text, assumptions=(text,), accountant=text)
        model = released([1.0], report=report, feature_names_in_=np.array([text], dtype=object))
        plain = released([1.0], feature_names_in_=np.array(["x"], dtype=object))
        kinds = Counter(tag for tag, _, _ in Tree(fit_page(model, about, internal=True)).elements)
        expected = Counter(tag for tag, _, _ in Tree(fit_page(plain, replace(ABOUT), internal=True)).elements)
        for optional in ("wbr", "bdi", "span", "div", "dt", "dd"):  # an empty name, an empty ledger, a long name
            kinds.pop(optional, None)
            expected.pop(optional, None)
        assert kinds == expected


# --- structure --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PAGES)
class TestStructure:
    def test_one_title_landmarks_and_a_language(self, name: str, pages: dict[str, str]) -> None:
        tree = Tree(pages[name])
        assert [len(tree.all(tag)) for tag in ("h1", "main", "footer")] == [1, 1, 1]
        assert [held["lang"] for tag, held, _ in tree.elements if tag == "html"] == ["en"]
        ids = Counter(held["id"] for _, held, _ in tree.elements if "id" in held)
        assert not [found for found, count in ids.items() if count > 1]
        targets = [held["href"] for tag, held, _ in tree.elements if tag == "a"]
        assert targets == ["#report"]
        assert ids["report"] == 1

    def test_headings_descend_one_by_one(self, name: str, pages: dict[str, str]) -> None:
        levels = [int(tag[1]) for tag, _, _ in Tree(pages[name]).elements if re.fullmatch("h[1-6]", tag)]
        assert levels[0] == 1
        assert all(after - before <= 1 for before, after in pairwise(levels))

    def test_charts_are_described(self, name: str, pages: dict[str, str]) -> None:
        tree = Tree(pages[name])
        texts = {held["id"]: "".join(text) for _, held, text in tree.elements if "id" in held}
        charts = [held for tag, held, _ in tree.elements if tag == "svg"]
        assert len(charts) == {"public": 8, "internal": 10, "no promise": 0, "audit": 4}.get(name, 2)
        for held in charts:
            assert held["role"] == "img"
            title, description = str(held["aria-labelledby"]).split()
            assert texts[title]
            assert len(texts[description]) > 40

    def test_tables_have_captions_scopes_and_a_named_region(self, name: str, pages: dict[str, str]) -> None:
        tree = Tree(pages[name])
        assert len(tree.all("caption")) == len(tree.all("table"))
        assert all(held.get("scope") in ("row", "col") for tag, held, _ in tree.elements if tag == "th")
        regions = [held for _, held, _ in tree.elements if held.get("role") == "region"]
        assert len(regions) == len(tree.all("table"))
        assert all(held["tabindex"] == "0" and held["aria-label"] for held in regions)


def contrast(one: str, other: str) -> float:
    """The contrast ratio of two colours, after WCAG 2."""

    def luminance(colour: str) -> float:
        parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    bright, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


class TestColours:
    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_text_has_a_contrast_of_4_5(self, scheme: str) -> None:
        colours = PALETTE[scheme]
        grounds = ("paper", "card", "quiet")
        pairs = [*product(("ink", "soft", "link"), grounds), ("ink", "loud"), ("loud_ink", "loud")]
        for text, ground in [*pairs, ("banner_ink", "banner")]:
            assert contrast(colours[text], colours[ground]) >= 4.5, (scheme, text, ground)

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_marks_have_a_contrast_of_3(self, scheme: str) -> None:
        colours = PALETTE[scheme]
        for mark, ground in product(("mark", "other", "edge", "loud_edge"), ("paper", "card")):
            assert contrast(colours[mark], colours[ground]) >= 3, (scheme, mark, ground)
        for name in ("mark", "other", "soft"):  # lines that cross areas
            for area in ("band", "forbidden"):
                assert contrast(colours[name], colours[area]) >= 3, (scheme, name, area)
        for colour in SERIES[scheme]:
            assert contrast(colour, colours["paper"]) >= 3, (scheme, colour)

    def test_the_measure_is_the_standard_one(self) -> None:
        assert contrast("#000000", "#ffffff") == pytest.approx(21)
        assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)


# --- features ---------------------------------------------------------------------------------------------------------


class TestFeatures:
    def test_the_largest_come_first_with_sign_and_size(self) -> None:
        page = fit_page(released([0.5, 0.0, -2.0, 1.0], feature_names_in_=np.array(list("abcd"))), ABOUT)
        tree = Tree(page)
        assert [name for name in tree.all("bdi") if name in "abcd"] == ["c", "d", "a"]
        assert [cell for cell in tree.all("td") if cell.startswith(("+", "−"))] == ["−2.000", "+1.000", "+0.5000"]
        bars = re.findall(r'class="bar( negative)?" style="left:([\d.]+)%;width:([\d.]+)%"', page)
        assert [("negative" in sign, float(left), float(width)) for sign, left, width in bars] == [
            (True, 0, 50),
            (False, 50, 25),
            (False, 50, 12.5),
        ]
        assert "by chance" in tree.text

    def test_without_names_they_have_numbers(self) -> None:
        page = fit_page(released([0.0, 3.0]), ABOUT)
        assert "x1" in Tree(page).all("bdi")
        assert "x0 is the first column" in page

    def test_thirty_are_shown_and_the_rest_is_folded(self) -> None:
        tree = Tree(fit_page(released(np.arange(1.0, 101.0)), ABOUT))
        assert tree.all("summary") == ["The next 70 weights"]
        assert len(re.findall(r"x\d+\+", tree.all("details")[0])) == 70

    def test_a_hundred_thousand_are_capped_and_it_is_said(self) -> None:
        page = fit_page(released(np.linspace(1, 2, 100_000)), ABOUT)
        assert len(page) < 1_000_000
        tree = Tree(page)
        assert (
            "Of 100,000 weights the largest 1,000 are on this page; the other 99,000 are in the model file."
            in tree.text
        )
        assert sum(bool(re.fullmatch(r"x\d+", name)) for name in tree.all("bdi")) == 1000

    def test_each_class_has_its_block(self) -> None:
        tree = Tree(fit_page(three_classes(), ABOUT))
        assert tree.all("h3") == ["Class “red”", "Class “<b>green</b>”", "Class “”"]
        assert "Intercept: −1.250. Non-zero weights: 0." in tree.text
        assert "35 of 50 (in the class with most)" in tree.text
        assert tree.all("summary") == ["The next 5 weights of class “red”"]

    def test_many_classes_are_capped_and_it_is_said(self) -> None:
        tree = Tree(fit_page(released(np.ones((80, 2)), intercept=np.zeros(80), classes=np.arange(80)), ABOUT))
        assert len(tree.all("h3")) == 50
        assert "The other 30 classes" in tree.text

    def test_two_classes_are_named(self) -> None:
        model = released([[1.0, -1.0]], intercept=np.zeros(1), classes=np.array(["no", "yes"]))
        assert "favours class “yes” as its feature grows, a negative one “no”" in Tree(fit_page(model, ABOUT)).text

    def test_sparse_weights_give_the_same_page(self) -> None:
        dense = three_classes()
        assert fit_page(three_classes().sparsify(), ABOUT) == fit_page(dense, ABOUT)
        line = released([0.0, 1.5, -2.0])
        page = fit_page(line, ABOUT)
        assert fit_page(line.sparsify(), ABOUT) == page

    def test_a_teacher_is_told(self) -> None:
        model = released([1.0, 0.0], teacher_coef_=np.array([1.0, 2.0]), teacher_intercept_=0.0)
        assert "with 2 non-zero weights" in Tree(fit_page(model, ABOUT)).text

    def test_weights_that_are_no_numbers_are_written(self) -> None:
        cells = Tree(fit_page(released([math.inf, math.nan, 1.0]), ABOUT)).all("td")
        assert {"+∞", "not a number", "+1.000"} <= set(cells)


# --- verifying --------------------------------------------------------------------------------------------------------


class TestVerifying:
    def test_machines_read_the_report(self) -> None:
        for internal in (False, True):
            page = fit_page(fitted(), ABOUT, internal=internal)
            (script,) = Tree(page).all("script")
            values = json.loads(script)
            assert PrivacyReport.from_dict(values["privacy"]) == fitted().privacy_
            assert values["model"]["sha256"] == fingerprint(fitted())
            assert ("ledger" in values["about"]) == internal
            (raw,) = re.findall(r'id="tulle-report">(.*?)</script>', page, re.DOTALL)
            codes = Tree(page).all("code")
            assert hashlib.sha256(raw.encode()).hexdigest() in codes
            assert fingerprint(fitted()) in codes

    def test_infinity_is_readable_json(self) -> None:
        (script,) = page_of(replace(REPORT, epsilon=math.inf)).all("script")
        values = json.loads(script, parse_constant=pytest.fail)
        assert PrivacyReport.from_dict(values["privacy"]).epsilon == math.inf

    def test_a_fingerprint_belongs_to_the_weights(self) -> None:
        one = released([[1.0, 0.0, -2.0]], intercept=np.zeros(1), classes=np.array(["a", "b"]))
        prints = {fingerprint(one)}
        one.sparsify()
        assert {fingerprint(one)} == prints
        for change in (
            {"coef_": np.array([[1.0, 0.0, np.nextafter(-2.0, 0)]])},
            {"coef_": np.array([[1.0, -2.0, 0.0]])},
            {"coef_": np.array([[1.0, 0.0, -2.0, 0.0]])},
            {"intercept_": np.full(1, 5e-324)},
            {"classes_": np.array(["b", "a"])},
            {"teacher_coef_": np.array([[1.0, 0.0, -2.0]]), "teacher_intercept_": np.zeros(1)},
        ):
            other = released([[1.0, 0.0, -2.0]], intercept=np.zeros(1), classes=np.array(["a", "b"]))
            for name, value in change.items():
                setattr(other, name, value)
            prints.add(fingerprint(other))
        assert len(prints) == 7

    def test_there_are_lines_to_sign_on(self) -> None:
        assert "Checked byDateRoleSignature" in page_of().all("div", class_="signature")


# --- the audit --------------------------------------------------------------------------------------------------------


class TestAudit:
    def test_says_what_was_shown_and_what_that_means(self) -> None:
        text = page_of(audit=sample_audit()).text
        shown = f"{math.floor(1e4 * sample_audit()['epsilon']) / 1e4:.4f}"
        assert (
            f"The attack proves, with 95 % confidence, that the privacy loss is at least ε = {shown} at δ = 10⁻⁵"
            in text
        )
        assert "no violation was found" in text
        assert "20,000" in text or "10,000" in text

    def test_a_refuted_claim_has_a_box(self) -> None:
        false = sample_audit() | {"claimed": 0.1, "refuted": True}
        tree = page_of(audit=false)
        assert tree.all("h3") == ["Attention: The claim is false"]
        assert "more than the claimed ε = 0.1" in tree.text
        assert "The audit tested ε = 0.1; for this fit ε = 1 is proved." in tree.text

    def test_an_attack_that_shows_nothing_says_so(self) -> None:
        text = page_of(audit=sample_audit() | {"epsilon": 0.0}).text
        assert "The attack did not distinguish the two data sets, with 95 % confidence" in text
        assert "proves" not in text.split("The audit", 1)[1].split("How to verify")[0]

    def test_the_page_says_which_judge_gave_which_bound(self) -> None:
        """What the Gaussian judge shows is about a μ, in words, in the box of a false claim and in the drawn limit."""
        gaussian = {"judge": "gaussian", "mu": 0.30059, "claimed_mu": 0.25, "epsilon_any": 0.41239, "epsilon": 1.1336}
        tree = page_of(audit=sample_audit() | gaussian | {"claimed": 0.9266})
        assert "a true guarantee of μ-GDP has a μ of at least 0.3005, which is ε = 1.133 at δ = 10⁻⁵" in tree.text
        assert tree.all("h3") == ["Attention: The claim is false"]
        assert "more than the claimed μ = 0.25 (ε = 0.9266)" in tree.text
        assert "Gaussian: it bounds the μ that is claimed, and no ε of another claim" in tree.text
        assert "gives at least ε = 0.4123 on the same runs, with 95 % confidence by itself" in tree.text
        assert "limit for μ = 0.25" in tree.text
        assert "The claim is false" not in page_of(audit=sample_audit() | gaussian | {"claimed_mu": 0.31}).text
        nothing = page_of(audit=sample_audit() | gaussian | {"mu": 0.0, "epsilon": 0.0}).text
        assert "did not distinguish" in nothing
        assert "any: nothing is assumed about the release" in page_of(audit=sample_audit()).text

    @pytest.mark.parametrize("claimed", [None, math.inf, "inf"])
    def test_without_a_finite_claim_no_line_is_drawn_for_it(self, claimed: Any) -> None:
        assert "curve claim" in fit_page(released([1.0]), ABOUT, audit=sample_audit())
        page = fit_page(released([1.0]), ABOUT, audit=sample_audit() | {"claimed": claimed})
        assert "curve claim" not in page
        assert "curve attack" in page

    def test_without_a_curve_there_is_none(self) -> None:
        page = fit_page(released([1.0]), ABOUT, audit=sample_audit() | {"false_rates": [], "hit_rates": []})
        assert "curve attack" not in page
        assert "The audit" in Tree(page).all("h2")

    def test_the_drawn_curve_is_the_attack(self) -> None:
        """The points of the path are the rates, on axes from 0.001 to 1 (20,000 runs) over 380 places."""
        found = sample_audit() | {"runs": 20_000, "false_rates": [0.01, 0.1, 1.0], "hit_rates": [0.1, 0.5, 1.0]}
        page = fit_page(released([1.0]), ABOUT, audit=found)
        path = re.findall(r'<path d="M([^"]*)" class="curve attack"', page)[0]
        points = [tuple(map(float, point.split())) for point in path.split("L")]
        x, y = Scale(0.001, 1, 58, 438, logarithmic=True), Scale(0.001, 1, 394, 14, logarithmic=True)
        rates = ((0.01, 0.1), (0.1, 0.5), (1.0, 1.0))
        assert points == [pytest.approx((x.place(a), y.place(b)), abs=0.06) for a, b in rates]


# --- comparisons ------------------------------------------------------------------------------------------------------


def with_rows(*rows: dict[str, Any], **more: Any) -> dict[str, Any]:
    return COMPARISON | {"rows": list(rows)} | more


def cell(method: str, epsilon: float, mean: Any, error: Any = 0.01, proved: float = 0.1) -> dict[str, Any]:
    return COMPARISON["rows"][0] | {
        "method": method, "epsilon": epsilon, "mean": mean, "standard_error": error, "proved": proved,
    }  # fmt: skip


class TestComparison:
    def test_every_cell_is_in_the_table(self) -> None:
        tree = Tree(comparison_page(COMPARISON, About()))
        assert tree.all("dd")[3] == COMPARISON["data"]
        cells = tree.all("td")
        for row in COMPARISON["rows"]:
            words = f"{figures.number(row['mean'], 3)}± {figures.number(row['standard_error'], 2)}"
            assert words in [found.removeprefix("★ best: ") for found in cells]

    def test_the_best_is_marked_in_words(self) -> None:
        tree = Tree(comparison_page(COMPARISON, ABOUT))
        best = [found for found in tree.all("td") if found.startswith("★ best: ")]
        assert len(best) == len(EPSILONS)
        means = {row["epsilon"]: row["mean"] for row in COMPARISON["rows"] if row["method"] == METHODS[0]}
        assert [found.split("± ")[0] for found in best] == [
            f"★ best: {figures.number(means[epsilon], 3)}" for epsilon in EPSILONS
        ]

    def test_equals_are_both_best_and_one_method_alone_is_not(self) -> None:
        tied = with_rows(cell("a", 1.0, 0.25), cell("b", 1.0, 0.25), cell("c", 1.0, 0.3))
        assert sum("★" in found for found in Tree(comparison_page(tied, ABOUT)).all("td")) == 2
        assert "★" not in comparison_page(with_rows(cell("a", 1.0, 0.25)), ABOUT)

    @pytest.mark.parametrize("mean", [None, "nan", "inf", math.nan])
    def test_what_was_not_measured_is_a_dash(self, mean: Any) -> None:
        rows = (cell("a", 1.0, mean, mean), cell("b", 1.0, 0.3), cell("b", 2.0, 0.2))
        tree = Tree(comparison_page(with_rows(*rows), ABOUT))
        assert sum(found == "— not measured" for found in tree.all("td")) == 2
        assert "nan" not in "".join(tree.all("svg"))

    def test_a_promise_that_was_not_kept_is_told(self) -> None:
        text = Tree(comparison_page(with_rows(cell("a", 1.0, 0.25, proved=1.5)), ABOUT)).text
        assert "1.5more than asked" in text
        assert "more than asked" not in Tree(comparison_page(COMPARISON, ABOUT)).text

    def test_whiskers_are_one_standard_error_long(self) -> None:
        """On a linear axis a whisker twice as long is an error twice as large, and its middle is the mean."""
        rows = (cell("a", 1.0, 0.3, 0.02), cell("a", 2.0, 0.2, 0.04))
        page = comparison_page(with_rows(*rows, null_model={"mean": 0.5}), ABOUT)
        wide = page[page.index('<svg class="wide"') : page.index('<svg class="narrow"')]
        whiskers = re.findall(r'<line x1="([\d.]+)" y1="([\d.]+)" x2="\1" y2="([\d.]+)" class="whisker s0">', wide)
        lengths = [float(foot) - float(top) for _, top, foot in whiskers]
        assert lengths[1] / lengths[0] == pytest.approx(2, abs=0.02)
        middles = [(float(foot) + float(top)) / 2 for _, top, foot in whiskers]
        curve = re.findall(r'<path d="M([^"]*)" class="curve series s0"', wide)[0]
        assert [float(point.split()[1]) for point in curve.split("L")] == pytest.approx(middles, abs=0.11)

    def test_errors_far_apart_get_a_logarithmic_axis(self) -> None:
        far = with_rows(cell("a", 0.1, 5000.0, 100.0), cell("a", 1.0, 0.5), metric="1 − R²", task="regression")
        assert "1,000" in re.findall(r"<text[^>]*>([^<]*)</text>", comparison_page(far, ABOUT))
        near = re.findall(r"<text[^>]*>([^<]*)</text>", comparison_page(COMPARISON, ABOUT))
        assert "1,000" not in near
        assert "0.5" in near

    def test_more_methods_than_lines_are_in_the_table_and_told(self) -> None:
        many = with_rows(*(cell(f"m{k}", 1.0, 0.1 + 0.01 * k) for k in range(11)))
        tree = Tree(comparison_page(many, ABOUT))
        assert "only in the table: m8, m9, m10." in tree.text
        assert "m10" in tree.all("th")

    def test_warnings_and_failures_are_told(self) -> None:
        failed = [{"method": "two_stage", "epsilon": 1.0, "trial": k, "reason": "too few rows"} for k in range(3)]
        text = Tree(comparison_page(COMPARISON | {"warnings": ["few rows"], "failed": failed}, ABOUT)).text
        assert "two_stage, 3 times: too few rows" in text
        assert "few rows" in text
        assert "Fits that failed" not in Tree(comparison_page(COMPARISON, ABOUT)).text

    def test_what_the_runner_writes_can_be_read(self, tmp_path: Path) -> None:
        """A real comparison, through its file."""
        rng = np.random.default_rng(0)
        X = rng.uniform(-1, 1, (300, 4))
        examples = Examples(X, np.where(X[:, 0] > 0, "a", "b"))
        subject = Comparison(
            "made.csv",
            examples,
            "classification",
            methods=("screen_refine",),
            epsilons=(5.0,),
            trials=2,
            settings={"bounds": Bounds(row_linf=1.0)},
        )
        compare(subject, tmp_path, jobs=1)
        written = json.loads((tmp_path / "comparison.json").read_text(encoding="utf-8"))
        tree = Tree(comparison_page(written, ABOUT))
        assert figures.number(written["rows"][0]["mean"], 3) in tree.text
        assert "screen_refine" in tree.all("th")

    def test_something_else_is_refused(self) -> None:
        with pytest.raises(ValueError, match="not a comparison of tulle: its format is 'x'"):
            comparison_page({"format": "x"}, ABOUT)
        with pytest.raises(ValueError, match="is empty"):
            comparison_page(with_rows(), ABOUT)

    @given(
        st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(1e-3, 1e3)), min_size=1, max_size=12),
        st.floats(0, 10),
    )
    def test_any_errors_can_be_drawn_inside_the_chart(
        self, cells: list[tuple[float, float, float]], null: float
    ) -> None:
        rows = (cell(f"m{k % 3}", epsilon, mean, error) for k, (mean, error, epsilon) in enumerate(cells))
        page = comparison_page(with_rows(*rows, null_model={"mean": null}), ABOUT)
        for form, width in (("wide", 700), ("narrow", 340)):
            drawing = page[page.index(f'<svg class="{form}"') :].split("</svg>")[0]
            height = float(re.findall(rf'viewBox="0 0 {width} ([\d.]+)"', drawing)[0])
            for across in re.findall(r' (?:x|x1|x2)="([^"]*)"', drawing):
                assert 0 <= float(across) <= width
            for down in re.findall(r' (?:y|y1|y2)="([^"]*)"', drawing):
                assert 0 <= float(down) <= height
