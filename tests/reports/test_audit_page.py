"""The page of an audit: what it shows, and that it claims no privacy."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from page_samples import audit as sample
from test_pages import Tree

from tulle.accounting.bounds_from_counts import allowed_hit_rate, gaussian_hit_rate
from tulle.audit import AuditResult, SequentialResult
from tulle.reports.pages import audit_page, sequential_page


def points(page: str, class_: str) -> Any:
    """The places of the first drawn path of a class: that of the trade-off curve, as (false hits, misses)."""
    path = re.findall(rf'<path d="M([^"]*)" class="{class_}"', page)[0]
    places = np.array([list(map(float, point.split())) for point in path.strip("Z ").split("L")])
    return np.column_stack([(places[:, 0] - 58) / 380, (394 - places[:, 1]) / 380])


@pytest.mark.parametrize("change", [{}, {"claimed": 0.1, "refuted": True}, {"epsilon": 0.0}, {"claimed": None}])
def test_every_page_says_that_a_passing_audit_proves_nothing(change: dict[str, Any]) -> None:
    tree = Tree(audit_page(sample() | change))
    assert "A passing audit proves no privacy" in tree.text
    assert ("The claim is false" in tree.text) == bool(change.get("refuted"))
    for promise in ("is private", "are private", "the guarantee holds", "privacy is shown", "verified"):
        assert promise not in tree.text


def test_the_power_is_on_the_page_and_that_there_was_none() -> None:
    short = [
        "the claim ε = 1 is refuted in 90 % of audits if …",
        "this audit had no power; 100,000 runs would be needed",
    ]
    tree = Tree(audit_page(sample() | {"power": short}))
    assert tree.text.count("This audit had no power; 100,000 runs would be needed.") == 2  # verdict and power
    assert "no power" not in Tree(audit_page(sample() | {"power": short[:1]})).text
    assert "is not stated" in Tree(audit_page(sample() | {"power": []})).text


def test_the_drawn_curves_are_the_attack_and_the_claim() -> None:
    found = sample() | {"false_rates": [0.1, 0.5, 1.0], "hit_rates": [0.3, 0.8, 1.0]}
    page = audit_page(found)
    expected = [(0, 1), (0.1, 0.7), (0.5, 0.2), (1, 0), (1, 0)]
    assert points(page, "curve attack") == pytest.approx(np.array(expected), abs=1e-3)
    claim = points(page, "curve claim dashed")
    assert 1 - claim[1:, 1] == pytest.approx(allowed_hit_rate(claim[1:, 0], 1.0, 1e-5), abs=2e-3)
    gaussian = {"judge": "gaussian", "mu": 0.1, "claimed_mu": 0.5, "epsilon_any": 0.1}
    claim = points(audit_page(found | gaussian), "curve claim dashed")[2:-1]
    assert 1 - claim[:, 1] == pytest.approx(gaussian_hit_rate(np.clip(claim[:, 0], 0, 1), 0.5), abs=4e-3)


@pytest.mark.parametrize("claimed", [None, math.inf])
def test_without_a_finite_claim_no_limit_is_drawn(claimed: float | None) -> None:
    assert "curve claim" not in audit_page(sample() | {"claimed": claimed})


def test_one_run_has_no_curve() -> None:
    page = audit_page(sample() | {"false_rates": [], "hit_rates": [], "power": []})
    assert "has no curve" in page
    assert "<svg" not in page


def test_a_result_writes_its_page(tmp_path: Path) -> None:
    result = AuditResult.from_dict(sample())
    result.save_page(tmp_path / "audit.html", "Sum of visits")
    text = (tmp_path / "audit.html").read_text(encoding="utf-8")
    assert "Sum of visits" in Tree(text).all("h1")
    assert str(result.power).split(" (")[0].replace(" ", "")[10:40] in text.replace("\u00a0", "").replace(" ", "")


def test_a_judge_of_another_measure_is_believed() -> None:
    """Its verdict is not recomputed from epsilon, which can be below the claim where the claim is false."""
    other = sample() | {"judge": "curve", "epsilon": 0.1, "claimed": 1.0, "power": []}
    assert "The counts of the attack contradict the claim" in Tree(audit_page(other | {"refuted": True})).text
    assert "The claim is false" not in audit_page(other | {"refuted": False, "epsilon": 2.0})


# --- audits by betting -----------------------------------------------------------------------------------------------

HISTORY = ((16, 1.0), (24, 0.5), (32, 4.0), (40, 30.0))
SURE = SequentialResult("μ = 1.0", 30.0, 0.95, 40, 37, 2_000, "one coordinate", "two sums", 1.5, HISTORY)
UNSURE = SequentialResult("μ = 1.0", 4.0, 0.95, 32, None, 32, "one coordinate", "two sums", 1.5, HISTORY[:3])


def test_a_page_of_bets_shows_the_evidence_over_the_runs_and_the_line_that_refutes() -> None:
    page = sequential_page(SURE.to_dict())
    places = re.findall(r'<path d="M([^"]*)" class="curve attack"', page)[0].split("L")
    drawn = np.array([list(map(float, place.split())) for place in places])
    # 0 to 40 runs between 66 and 550, and 0.1 to 100 between 260 and 30, logarithmic.
    runs = (drawn[:, 0] - 66) / (550 - 66) * 40
    capital = 10 ** (-1 + (260 - drawn[:, 1]) / (260 - 30) * 3)
    assert runs == pytest.approx([0, 16, 24, 32, 40], abs=0.1)
    assert capital == pytest.approx([1, 1, 0.5, 4, 30], rel=0.02)
    line = re.findall(r'<line x1="66.0" y1="([0-9.]+)" x2="550.0" y2="([0-9.]+)" class="curve claim dashed"', page)[0]
    assert 10 ** (-1 + (260 - float(line[0])) / 230 * 3) == pytest.approx(20, rel=0.02)
    assert line[0] == line[1]
    assert "20 refutes" in page


def test_a_page_of_bets_states_the_verdict_and_what_it_does_not_say() -> None:
    sure, unsure = (Tree(sequential_page(result.to_dict())) for result in (SURE, UNSURE))
    assert "That was sure after 37 runs" in sure.text
    assert "The claim is false" in sure.text
    assert "The claim is false" not in unsure.text
    assert "No violation was found in 32 runs" in unsure.text
    for tree in (sure, unsure):
        assert "A passing audit proves no privacy" in tree.text
        assert "It bounds no ε" in tree.text
        assert "is a second test" in tree.text
        assert "one look" not in tree.text


def test_a_result_of_bets_writes_its_page(tmp_path: Path) -> None:
    SURE.save_page(tmp_path / "audit.html", "Sum of visits")
    assert "Sum of visits" in Tree((tmp_path / "audit.html").read_text(encoding="utf-8")).all("h1")
