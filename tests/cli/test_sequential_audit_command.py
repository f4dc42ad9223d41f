"""`tulle audit --sequential`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from commands_and_files import one_line
from test_audit_command import ESTIMATORS

FUNCTIONS = """
from pathlib import Path
import numpy as np

calls = [0]

def leaky(X, y, rng):
    return y.sum() + rng.normal(0, 0.2)

def noisy(X, y, rng):
    return rng.normal(0, 100.0, 1)

def stopped(X, y, rng):
    calls[0] += 1
    if calls[0] > 150 and Path("stop").exists():
        raise KeyboardInterrupt
    return y.sum() + rng.normal(0, 0.6)

def broken(X, y, rng):
    return {}["nothing"]

def fixed(X, y, rng):
    return y.sum()
"""
NEIGHBOURS = (
    "\ndef neighbours():\n    X = np.zeros((4, 1))\n    return (X, np.zeros(4)), (X, np.array([1.0, 0, 0, 0]))\n"
)


@pytest.fixture
def functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(FUNCTIONS + ESTIMATORS)
    Path("pair.py").write_text(FUNCTIONS + NEIGHBOURS)


@pytest.mark.usefixtures("functions")
@pytest.mark.parametrize("file", ["mine.py", "pair.py"])
def test_a_function_that_leaks_is_refuted_and_the_audit_stops(run: Any, file: str) -> None:
    """Exit code 1, the same values in the file and on standard output, progress on standard error, and a page."""
    words = ("audit", f"{file}:leaky", "--claimed", 1, "--delta", 0, "--sequential", "--seed", 1)
    ran = run(*words, "--json", "-o", "audit.json", "--page", "audit.html")
    assert ran.code == 1
    assert ran.values["refuted"]
    assert ran.values["decided_after"] <= ran.values["runs"] < 200
    assert json.loads(Path("audit.json").read_text()) | {"seconds": 0} == ran.values | {"seconds": 0}
    assert "The claim is false" in Path("audit.html").read_text()
    text = run(*words)
    assert "THE CLAIM IS FALSE, decided after" in text.out
    assert "evidence 1 of 20" in text.err


@pytest.mark.usefixtures("functions")
def test_what_does_not_leak_is_not_refuted(run: Any) -> None:
    ran = run("audit", "mine.py:noisy", "--claimed", 1, "--sequential", "--most-runs", 100, "--seed", 1, "--quiet")
    assert ran.code == 0
    assert "no violation was found in" in ran.out
    assert "100 at most" in ran.out


@pytest.mark.usefixtures("functions")
@pytest.mark.parametrize(
    ("claim", "text"),
    [
        (("--judge", "gaussian", "--claimed-mu", 0.5), "μ = 0.5"),
        (("--judge", "bounded_range", "--claimed-range", 0.5), "range 0.5"),
        (("--judge", "curve", "--claimed-curve", "1:0,0.1:0.2"), "(ε = 1.0, δ = 0.0), (ε = 0.1, δ = 0.2)"),
        (("--judge", "curve", "--claimed-mu", 0.5), "μ = 0.5"),
    ],
)
def test_every_judge_has_its_claim_sequential_or_not(run: Any, claim: tuple[Any, ...], text: str) -> None:
    words = ("audit", "pair.py:leaky", *claim, "--seed", 1, "--quiet", "--json")
    ran = run(*words, "--sequential")
    assert ran.code == 1
    assert ran.values["claim"] == text
    fixed = run(*words, "--runs", 400)
    assert fixed.code == 1
    assert fixed.values["judge"] == claim[1]


@pytest.mark.usefixtures("functions")
def test_an_estimator_and_a_method_are_audited(run: Any) -> None:
    """The estimator's noise is its own, and the folder keeps the pair that was chosen for it."""
    words = ("audit", "mine.py:weak", "--claimed", 1, "--delta", 0, "--task", "regression", "--sequential", "--quiet")
    found = run(*words, "--resume", "kept", "--json")
    assert found.code == 1
    assert "Mean, " in found.values["pair"]
    assert run(*words, "--resume", "kept", "--json").values | {"seconds": 0} == found.values | {"seconds": 0}
    method = ("--method", "two_stage", "--epsilon", 2, "--features", 1, "--most-runs", 24, "--seed", 0, "--quiet")
    ran = run("audit", *method, "--sequential", "--json")
    assert ran.code == 0
    assert ran.values["claim"] == "(ε = 2.0, δ = 1e-05)"


def test_a_saved_model_is_audited_with_its_own_settings(run: Any, place: Path) -> None:
    ran = run("audit", place / "m_outcome", "--sequential", "--most-runs", 24, "--features", 1, "--quiet", "--json")
    assert ran.code == 0
    assert ran.values["claim"].startswith("(ε = 3.0, δ = ")


@pytest.mark.usefixtures("functions")
def test_ctrl_c_leaves_a_folder_that_is_resumed(run: Any) -> None:
    """The end is that of an audit that was never stopped."""
    words = (
        "audit",
        "pair.py:stopped",
        "--judge",
        "gaussian",
        "--claimed-mu",
        1,
        "--sequential",
        "--seed",
        1,
        "--json",
    )
    whole = run(*words, "--quiet").values
    assert whole["runs"] > 80
    Path("stop").touch()
    stopped = run(*words, "--quiet", "--resume", "kept")
    assert stopped.code == 130
    assert "the same command continues with the finished runs in kept" in stopped.values["error"]["message"]
    kept = len(list(Path("kept").glob("batch-*.npy")))
    assert kept >= 4
    Path("stop").unlink()
    resumed = run(*words, "--quiet", "--resume", "kept")
    assert resumed.values | {"seconds": 0} == whole | {"seconds": 0}


@pytest.mark.usefixtures("functions")
@pytest.mark.parametrize(
    ("subject", "words", "message"),
    [
        ("leaky", ("--sequential",), "--sequential tests a claim: pass it with --claimed"),
        ("leaky", ("--judge", "bounded_range"), "tests a claim: pass it with --claimed-range"),
        ("leaky", ("--judge", "curve"), "--claimed-mu or --claimed-range or --claimed-curve"),
        ("leaky", ("--claimed", 1, "--sequential", "--runs", 100), "limit its runs with --most-runs, and omit --runs"),
        ("leaky", ("--claimed", 1, "--most-runs", 100), "--most-runs belongs to --sequential"),
        ("leaky", ("--claimed", 1, "--sequential", "--most-runs", 23), "--most-runs must be >= 24"),
        ("leaky", ("--claimed", 1, "--sequential", "--plot", "a.png"), "--page draws the evidence"),
        ("leaky", ("--claimed-range", 1), "--claimed-range is tested by --judge bounded_range or curve"),
        ("leaky", ("--judge", "curve", "--claimed", 1), "--claimed is tested by --judge any"),
        ("leaky", ("--judge", "curve", "--claimed-mu", 1, "--claimed-range", 1), "pass one claim, and not"),
        ("leaky", ("--judge", "curve", "--claimed-curve", "1;0"), "must be pairs epsilon:delta"),
        ("leaky", ("--judge", "curve", "--claimed-curve", "1:2"), "delta in [0, 1)"),
        ("leaky", ("--judge", "bounded_range", "--claimed-range", "inf"), "--claimed-range must be a number in"),
        ("broken", ("--claimed", 1, "--sequential"), "broken(X, y, rng) must return numbers, and failed: KeyError"),
        ("fixed", ("--claimed", 1, "--sequential"), "the same numbers in 64 runs"),
    ],
)
def test_audits_that_cannot_be(run: Any, subject: str, words: tuple[Any, ...], message: str) -> None:
    ran = run("audit", f"mine.py:{subject}", *words, "--quiet", "--json")
    assert ran.code == 2
    assert message in ran.values["error"]["message"]


@pytest.mark.usefixtures("functions")
def test_a_report_refuses_a_test_that_bounds_nothing(run: Any, place: Path) -> None:
    run("audit", "mine.py:noisy", "--claimed", 1, "--sequential", "--most-runs", 24, "--quiet", "-o", "audit.json")
    said = one_line(run("report", place / "m_outcome", "--audit", "audit.json", "-o", "report.html"), "report")
    assert "is of an audit with --sequential, which tests a claim and bounds no epsilon" in said
