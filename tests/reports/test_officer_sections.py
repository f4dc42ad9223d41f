"""What a privacy officer reads before signing: adjacency, bounds, inputs, threats, a checklist and a block to sign."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from page_samples import ABOUT, REPORT, fitted, released
from pages import cells
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from test_pages import Tree, page_of

from tulle import Bounds, Budget, FileLedger, Schema, SparseClassifier, SparseRegressor
from tulle.files.error_messages import PrivacyWarning
from tulle.methods import METHODS
from tulle.reports.pages import fingerprint, fit_page
from tulle.reports.pages.fit_page import keep_public
from tulle.reports.pages.tradeoff_chart import budget_corners, gaussian_misses
from tulle.reports.release_words import describe_release
from tulle.reports.report import NOT_COVERED, About, BillLine, BoundLine, PrivacyReport
from tulle.reports.undermining import find_threats
from tulle.reports.words import LABELS_PUBLISHED
from tulle.trusted.gaussian import gaussian_delta

PEEK = f"{NOT_COVERED} standardscaler (peeks): StandardScaler learns means from private rows, without noise."
PUBLIC = "Public rows were declared. If they are not public, nothing is guaranteed about the people in them."


def text_of(name: str, report: PrivacyReport = REPORT, **options: Any) -> str:
    """The text of one section."""
    page = fit_page(released([0.0, 2.0], report=report), options.pop("about", ABOUT), **options)
    (found,) = re.findall(rf'<section id="{name}".*?</section>', page, re.DOTALL)
    return " ".join(Tree(found).all("section"))


class TestAdjacency:
    def test_replace_one_is_named_and_zero_out_only_where_it_is_proved(self) -> None:
        plain = text_of("adjacency")
        assert "ε = 1 at δ = 10⁻⁵: one unit's data is replaced" in plain
        assert "Ledgers count this one." in plain
        assert "ero-out" not in page_of().text
        assert "ε = 0.51 at δ = 10⁻⁵: one unit's rows count as nothing" in text_of(
            "adjacency", replace(REPORT, zero_out=0.51)
        )

    @pytest.mark.parametrize("zero_out", [0.5100001, 0.33333333])
    def test_the_second_figure_is_rounded_up(self, zero_out: float) -> None:
        (shown,) = re.findall(
            r"ε = ([\d.]+) at δ = 10⁻⁵: one unit's rows", text_of("adjacency", replace(REPORT, zero_out=zero_out))
        )
        assert float(shown) >= zero_out

    def test_a_file_cannot_claim_more_for_zero_out_than_replace_one(self) -> None:
        with pytest.raises(ValueError, match="zero-out adjacency is above"):
            PrivacyReport.from_dict(replace(REPORT, zero_out=1.5).to_dict())

    def test_mu_has_its_curve_and_says_where_epsilon_is_sharper(self) -> None:
        assert "trade-off" not in fit_page(released([1.0]), ABOUT)
        page = fit_page(released([1.0], report=replace(REPORT, mu=0.3)), ABOUT)
        assert page.count("The trade-off curve") == 2
        assert "the ε above is sharper" in text_of("adjacency", replace(REPORT, mu=0.3))
        assert "sharper" not in text_of("adjacency", replace(REPORT, mu=0.2))

    def test_the_curves_are_those_of_the_guarantees(self) -> None:
        """At every rate: δ(ε) of μ is the largest 1 - e^ε α - β over the curve, and corners meet their two lines."""
        alarms = np.linspace(1e-9, 1 - 1e-9, 200_001)
        for mu, epsilon in ((0.3, 0.5), (1.0, 2.0), (2.0, 0.0)):
            most = np.max(1 - gaussian_misses(mu, alarms) - math.exp(epsilon) * alarms)
            assert most == pytest.approx(gaussian_delta(epsilon, mu), abs=1e-6)
        for alarm, miss in budget_corners(1.0, 1e-3):
            lines = (1 - 1e-3 - math.e * alarm, (1 - 1e-3 - alarm) / math.e, 0.0)
            assert miss == pytest.approx(max(lines))

    def test_without_a_guarantee_there_is_nothing_to_compare(self) -> None:
        for report in (replace(REPORT, asked=None), replace(REPORT, epsilon=math.inf)):
            assert 'id="adjacency"' not in fit_page(released([1.0], report=report), ABOUT)


class TestBill:
    def test_every_release_of_every_method_has_a_sentence_of_its_own(self) -> None:
        """By its name: what is said of unknown releases is for methods of users."""
        unknown = {
            describe_release(BillLine("?", words, 1, 1.0, 1.0)) for words in ("Gaussian", "noisy max", "objective")
        }
        rng = np.random.default_rng(0)
        X, y = rng.uniform(-1, 1, (400, 6)), rng.integers(0, 2, 400)
        lines: set[str] = set()
        for method in METHODS:
            for bounds in (Bounds(row_linf=1.0), None):
                model = SparseClassifier(2.0, 1e-5, method=method, bounds=bounds, n_nonzero=2, random_state=0)
                lines |= {line.release for line in quietly(model, X, y).privacy_.bill}
        lines |= {
            line.release
            for line in quietly(SparseClassifier(2.0, inference=True, bounds=Bounds(row_linf=1.0)), X, y).privacy_.bill
        }
        lines |= {line.release for line in quietly(SparseRegressor(2.0), X, X[:, 0]).privacy_.bill}
        lines |= {"quartiles", "column masses", "categories and words", "class counts", "search", "score", "exits"}
        assert len(lines) > 20
        for name in lines:
            assert describe_release(BillLine(name, "Gaussian on a vector", 1, 1.0, 1.0)) not in unknown, name

    def test_an_exact_answer_is_called_one(self) -> None:
        line = BillLine("step", "exact answer, no privacy", 1, 0.0, math.inf)
        assert "may reveal any person's row" in describe_release(line)

    def test_names_of_trials_and_clients_are_looked_up_too(self) -> None:
        plain = describe_release(BillLine("step", "Gaussian on a vector", 1, 1.0, 1.0))
        for name in ("in the trial: step", "hospital: a: step"):
            assert describe_release(BillLine(name, "Gaussian on a vector", 1, 1.0, 1.0)) == plain

    def test_the_page_has_the_sentences(self) -> None:
        page = Tree(fit_page(fitted(), ABOUT)).text
        for line in fitted().privacy_.bill:
            assert describe_release(line) in page


def quietly(model: Any, X: Any, y: Any) -> Any:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X, y)


class TestInputs:
    def test_target_and_ignored_columns_are_shown(self) -> None:
        words = text_of("inputs", about=replace(ABOUT, target="readmitted", ignored="patient, ward"))
        assert "Targetreadmitted" in words
        assert "Ignored columnspatient, ward" in words
        assert text_of("inputs").count("not stated") == 2

    def test_steps_that_peeked_have_a_box(self) -> None:
        """Those that tulle saw, with their names."""
        X = pd.DataFrame(np.random.default_rng(0).uniform(-1, 1, (500, 3)), columns=list("abc"))
        pipeline = make_pipeline(StandardScaler(), SparseClassifier(2.0, bounds=Bounds(row_linf=1.0), n_nonzero=1))
        with pytest.warns(PrivacyWarning):
            pipeline.fit(X, X["a"] > 0)
        page = Tree(fit_page(pipeline[-1], ABOUT))
        assert "Attention: Steps that the guarantee does not cover" in page.all("h3")
        assert "does not cover standardscaler (peeks): StandardScaler learns" in page.text
        assert "No step of the pipeline" in text_of("inputs")

    def test_public_rows_are_shown(self) -> None:
        assert "none were used" in text_of("inputs")
        assert PUBLIC in text_of("inputs", replace(REPORT, assumptions=(PUBLIC,)))
        X = np.random.default_rng(0).uniform(-1, 1, (600, 5))
        model = SparseClassifier(4.0, bounds=Bounds(row_linf=1.0), method="fit_again")
        report = quietly_public(model, X).privacy_
        assert "Public rows were declared" in text_of("inputs", report)


def quietly_public(model: Any, X: Any) -> Any:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X[:400], X[:400, 0] > 0, public=X[400:])


class TestBounds:
    def test_every_origin_is_told(self) -> None:
        lines = tuple(
            BoundLine(what, 2.0, origin)
            for what, origin in (("row_l2", "implied"), ("row_linf", "declared"), ("label", "estimated"))
        )
        words = text_of("bounds", replace(REPORT, bounds=lines))
        assert "Euclidean norm of a row2.000follows from another bound" in words
        assert "Magnitude of an entry2.000declared by the user" in words
        assert "Magnitude of the target2.000estimated privately, on the bill" in words

    @pytest.mark.parametrize(
        ("bounds", "origins"),
        [
            (Bounds(row_linf=1.0, label=1.0), {"row_l2": "implied", "row_linf": "declared", "label": "declared"}),
            (Bounds(row_l2=1.0), {"row_l2": "declared", "row_linf": "implied", "label": "estimated"}),
        ],
    )
    def test_a_fit_says_who_stated_them(self, bounds: Bounds, origins: dict[str, str]) -> None:
        X = np.random.default_rng(0).uniform(-1, 1, (2000, 3))
        report = quietly(SparseRegressor(2.0, bounds=bounds), X, X[:, 0]).privacy_
        assert {line.what: line.origin for line in report.bounds} == origins

    def test_a_file_with_an_unknown_origin_is_refused(self) -> None:
        with pytest.raises(ValueError, match="impossible value or origin"):
            PrivacyReport.from_dict(replace(REPORT, bounds=(BoundLine("row_l2", 1.0, "guessed"),)).to_dict())


class TestThreats:
    def test_the_page_of_the_documentation_has_the_same(self) -> None:
        rows = cells("what_could_undermine_the_guarantee.md", "threat")
        sound = find_threats(replace(REPORT, billed=("entry 1",), bounds=(BoundLine("row_l2", 1.0, "declared"),)))
        assert [row[0] for row in rows] == [threat.name for threat in sound]
        for row, threat in zip(rows, sound):
            assert threat.mark in row[1]

    @pytest.mark.parametrize(
        ("change", "name", "mark"),
        [
            ({"epsilon": math.inf}, "Noise that is too small for the stated ε", "not covered"),
            ({}, "Noise that is too small for the stated ε", "proved"),
            ({}, "Other releases about the same people", "not covered"),
            ({"billed": ("entry 1, head x",)}, "Other releases about the same people", "declared by you"),
            ({"assumptions": (LABELS_PUBLISHED,)}, "Class labels and numbers of rows and features", "not covered"),
            ({}, "Class labels and numbers of rows and features", "declared by you"),
            ({"bounds": (BoundLine("row_l2", 1.0, "estimated"),)}, "Bounds that were read off the data", "proved"),
            (
                {"bounds": (BoundLine("row_l2", 1.0, "schema"),)},
                "Bounds that were read off the data",
                "declared by you",
            ),
            ({}, "Preprocessing that learnt from the rows", "not covered"),
            ({"seeded": True}, "A seed, or a weak source of random numbers", "not covered"),
        ],
    )
    def test_marks_follow_the_fit(self, change: dict[str, Any], name: str, mark: str) -> None:
        (found,) = [threat for threat in find_threats(replace(REPORT, **change)) if threat.name == name]
        assert found.mark == mark

    def test_an_audit_changes_no_mark_and_proves_nothing(self) -> None:
        from page_samples import audit

        assert text_of("threats") == text_of("threats", audit=audit())
        assert "An audit that finds no violation is no proof." in text_of("threats")
        assert text_of("guarantee") == text_of("guarantee", audit=audit())


class TestSigning:
    def test_the_block_states_what_is_signed(self) -> None:
        model = fitted()
        words = Tree(fit_page(model, ABOUT)).all("div", class_="sign")
        assert len(words) == 1
        for part in (ABOUT.title, "ε = ", "δ = ", "replace-one adjacency", fingerprint(model), "Signature"):
            assert part in words[0]
        assert "no guarantee" in page_of(replace(REPORT, asked=None)).all("div", class_="sign")[0]
        assert "nothing is proved" in page_of(replace(REPORT, epsilon=math.inf)).all("div", class_="sign")[0]
        assert "internal, not for release" in page_of(internal=True).all("div", class_="sign")[0]

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"seeded": True}, "No: do not release this model."),
            ({"n_rows": 1000}, "δ is 1 in 100,000, and there are 1,000 rows."),
            ({"n_rows": 50_000}, "δ is 1 in 100,000, and there are 50,000 rows: too large."),
            ({"assumptions": (PEEK,)}, "Yes: see what the model was fitted to."),
            ({}, "This fit is on no ledger on disk."),
            ({"assumptions": (LABELS_PUBLISHED,)}, "The classes were taken from the rows."),
        ],
    )
    def test_the_checklist_says_what_the_report_knows(self, change: dict[str, Any], words: str) -> None:
        assert words in text_of("sign", replace(REPORT, **change))


class TestTitles:
    @pytest.mark.parametrize(
        ("about", "title"),
        [
            (About(), ""),
            (About(target="y"), "Model of y"),
            (About(data="visits"), "Private model on visits"),
            (About(target="y", data="visits", purpose="triage"), "Model of y on visits: triage"),
            (About(purpose="triage"), "Private model: triage"),
            (About(target="a\nb\x00"), "Model of ab"),
        ],
    )
    def test_the_default_says_what_is_known(self, about: About, title: str) -> None:
        assert about.default_title() == title
        assert Tree(fit_page(released([1.0]), about)).all("h1") == [title or "Privacy report"]

    def test_the_running_head_of_paper_cannot_leave_its_string(self) -> None:
        hostile = replace(ABOUT, title='"}</style><script>alert(1)</script>\\')
        page = fit_page(released([1.0]), hostile)
        (style,) = Tree(page).all("style")
        (head,) = re.findall(r'@top-left\{content:"([^"]*)"', style)
        assert re.fullmatch(r"(?:[A-Za-z0-9 ]|\\[0-9a-f]{6})*", head)
        read = re.sub(r"\\([0-9a-f]{6})", lambda found: chr(int(found[1], 16)), head)
        assert read == hostile.title


class TestForms:
    def test_what_is_kept_for_the_public_has_no_analyst_and_no_ledger(self) -> None:
        """Every public form is made of this: the page, the registry entry and the card."""
        assert keep_public(ABOUT) == replace(ABOUT, asked_by="", ledger="")

    def test_names_of_analysts_and_ledgers_are_internal(self, tmp_path: Path) -> None:
        ledger = FileLedger.create(tmp_path, "visits.csv", Budget(3.0, 1e-5))
        ledger = FileLedger(tmp_path, "visits.csv", note="model: an earlier one", analyst="Dr. Other", purpose="p")
        X = np.random.default_rng(0).uniform(-1, 1, (500, 3))
        with ledger:
            SparseClassifier(1.0, 1e-6, bounds=Bounds(row_linf=1.0), n_nonzero=1).fit(X, X[:, 0] > 0)
        model = released([1.0])
        public, internal = fit_page(model, ABOUT), fit_page(model, ABOUT, internal=True, ledger=ledger)
        for word in ("Dr. Other", "an earlier one", ABOUT.asked_by, "Requested by", "visits.ledger", "is spent"):
            assert word in internal
            assert word not in public
        with pytest.raises(ValueError, match="cannot list the entries of a ledger"):
            fit_page(model, ABOUT, ledger=ledger)


def test_an_earlier_report_has_all_sections_that_it_can_have() -> None:
    """Without bounds, μ, rows: nothing is made up."""
    page = Tree(fit_page(released([1.0], report=replace(REPORT, version="")), About()))
    assert "This report does not list bounds one by one; see the assumptions." in page.text
    assert "Gaussian differential privacy" in page.text  # the accountant
    assert "rows." not in text_of("sign").partition("far below")[2][:60]


def test_a_schema_says_which_columns_it_ignores() -> None:
    schema = Schema(
        {"age": {"range": [0, 100]}, "patient": "ignore", "note_*": "ignore"}, target={"column": "y", "classes": [0, 1]}
    )
    assert schema.ignored_columns == ["patient", "note_*"]
