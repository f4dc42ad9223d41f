"""The model card: task, columns, limits; accuracy only where it was paid for."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from page_samples import ABOUT, HOSTILE_NAMES, REPORT, fitted, hostile, released, three_classes

from tulle import Bounds, SparseClassifier, private_score
from tulle.reports.model_card import model_card
from tulle.reports.number_format import number
from tulle.reports.report import About

NOT_STATED = "Not stated: a score on private rows is a release of its own"


def test_says_what_the_model_is() -> None:
    card = model_card(fitted(), replace(ABOUT, target="readmitted", ignored="patient"))
    assert card.startswith("# Who comes back within 30 days\n\n## Task\n\n- A linear model for classification")
    for words in ("Target: readmitted.", "Ignored columns: patient.", "Classes: back, not back.", "60 features"):
        assert words in card
    assert "visits\\_to\\_ward\\_" in card
    assert "row\\_linf at most 1.000: declared by the user" in card
    assert NOT_STATED in card
    assert "no standard errors" in card


def test_names_nothing_internal() -> None:
    card = model_card(fitted(), replace(ABOUT, data="rows " + "8f" * 32))
    assert "visits.ledger" not in card
    assert ABOUT.asked_by not in card
    assert "8f" * 32 not in card


def test_intervals_are_listed_where_there_are_any() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (5000, 3))
    model = SparseClassifier(4.0, inference=True, bounds=Bounds(row_linf=1.0), random_state=0)
    model.fit(X, X[:, 0] + rng.normal(size=5000) > 0)
    card = model_card(model, About())
    assert "95 % intervals" in card
    assert "| feature" in card.split("## Intervals")[1].split("## Accuracy")[0]


class TestAccuracy:
    def test_is_stated_with_its_cost_where_it_was_paid_for(self) -> None:
        X = np.random.default_rng(0).uniform(-1, 1, (500, 60))
        found = private_score(fitted(), X, np.where(X[:, 3] > 0, "back", "not back"), epsilon=0.5)
        read = json.loads(found.to_json())
        card = model_card(fitted(), ABOUT, score=read)
        assert f"accuracy: {number(found.value)}, 95 % interval {number(found.low)} to {number(found.high)}" in card
        assert "costs ε = 0.5 more" in card.replace("\u00a0", " ")
        assert "on 500 private rows" in card
        assert NOT_STATED not in card

    def test_is_refused_where_it_was_not(self) -> None:
        X = np.random.default_rng(0).uniform(-1, 1, (500, 60))
        seeded = private_score(fitted(), X, np.where(X[:, 3] > 0, "back", "not back"), epsilon=0.5, random_state=1)
        values = json.loads(seeded.to_json())
        for change in ({}, {"asked": None}, {"epsilon": "inf"}, {"bill": []}):
            privacy = values["privacy"] | ({} if not change else {"seeded": False}) | change
            with pytest.raises(ValueError, match="was not paid for"):
                model_card(fitted(), ABOUT, score=values | {"privacy": privacy})


def test_names_do_not_become_structure() -> None:
    card = model_card(hostile(), About(title="a\n# b", target=HOSTILE_NAMES[0], purpose="[x](javascript:alert(1))"))
    assert "<script" not in card
    assert "<img" not in card
    assert card.startswith("# a \\# b\n")
    assert "\\[x\\]\\(javascript:alert\\(1\\)\\)" in card
    assert len([line for line in card.splitlines() if line.startswith("#")]) == 7


def test_every_class_has_its_weights() -> None:
    card = model_card(three_classes(), About())
    assert "35 have a weight in the class with most" in card
    assert "feature (class red)" in card


@pytest.mark.parametrize(
    ("report", "words"),
    [
        (replace(REPORT, asked=None), "fitted without noise and may reveal any row"),
        (replace(REPORT, epsilon=math.inf), "Nothing is proved"),
        (replace(REPORT, seeded=True), "not for release"),
    ],
)
def test_what_weakens_the_guarantee_is_said(report: object, words: str) -> None:
    assert words in model_card(released([1.0], report=report), About())  # type: ignore[arg-type]
