"""`tulle audit`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from commands_and_files import fit_words, numbers, one_line

from tulle import load
from tulle.estimators.saving import save

FUNCTIONS = """
import numpy as np
print("a word at import")

def leaky(X, y, rng):
    print("a word in each run")
    return np.append(X.T @ y / len(y) + rng.normal(0, 0.1, X.shape[1]), np.abs(y).max())

def noisy(X, y, rng):
    return rng.normal(0, 100.0, 1)

def broken(X, y, rng):
    return {}["nothing"]

def wordy(X, y, rng):
    return "words"

not_callable = 3
"""

NEIGHBOURS = (
    "\ndef neighbours():\n    X = np.zeros((4, 1))\n    return (X, np.zeros(4)), (X, np.array([9.0, 0, 0, 0]))\n"
)


@pytest.fixture
def functions(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(FUNCTIONS)
    return path


@pytest.mark.parametrize("more", ["", NEIGHBOURS], ids=["worlds made by the audit", "worlds of one's own"])
def test_a_function_that_leaks_is_refuted(run: Any, functions: Path, tmp_path: Path, more: str) -> None:
    """Exit code 1; the object on standard output is one, whatever the function prints; the file holds the same."""
    functions.write_text(FUNCTIONS + more)
    words = ("audit", f"{functions}:leaky", "--claimed", 1, "--runs", 400, "--seed", 1)
    ran = run(*words, "--json", "-o", tmp_path / "audit.json")
    assert ran.code == 1
    values = ran.values
    assert values["refuted"]
    assert 1 < values["epsilon"] <= values["best_possible"]
    assert json.loads((tmp_path / "audit.json").read_text()) | {"seconds": 0} == values | {"seconds": 0}
    assert "a word in each run" in ran.err
    text = run(*words)
    assert text.code == 1
    assert "THE CLAIM IS FALSE" in text.out
    assert "a word" not in text.out


def test_a_function_that_does_not_leak_is_not_refuted(run: Any, functions: Path) -> None:
    """Exit code 0; so too where nothing is claimed."""
    ran = run("audit", f"{functions}:noisy", "--claimed", 1, "--runs", 200, "--seed", 1, "--quiet")
    assert ran.code == 0
    assert "no violation was found" in ran.out
    assert "nothing was claimed" in run("audit", f"{functions}:leaky", "--runs", 200, "--seed", 1, "--quiet").out


@pytest.mark.parametrize(
    ("subject", "more", "message"),
    [
        ("mine.py:broken", (), "broken(X, y, rng) must return numbers, and failed: KeyError (mine.py, line "),
        ("mine.py:wordy", (), "wordy(X, y, rng) must return numbers, and failed: ValueError"),
        ("mine.py:nothing", (), "has no function 'nothing'"),
        ("mine.py:not_callable", (), "has no function 'not_callable'"),
        ("nowhere.py:leaky", (), "nowhere.py does not exist"),
        ("raising.py:leaky", (), "cannot be imported: ZeroDivisionError"),
        ("exiting.py:leaky", (), "cannot be imported: SystemExit (exiting.py, line 2)"),
        ("strange.py:leaky", (), "neighbours() must return ((X, y), (X, y))"),
        ("mine.py:leaky", ("--epsilon", 1), "omit --epsilon, and pass the epsilon that it claims with --claimed"),
        ("mine.py:leaky", ("--claimed", "nan"), "--claimed must be a finite number >= 0"),
        ("mine.py:leaky", ("--judge", "gaussian"), "pass it with --claimed-mu, or use --judge any"),
        ("mine.py:leaky", ("--judge", "gaussian", "--claimed", 1), "an epsilon at one delta is none: use --judge any"),
        ("mine.py:leaky", ("--claimed-mu", 1), "--claimed-mu is tested by --judge gaussian"),
        ("mine.py:leaky", ("--judge", "gaussian", "--claimed-mu", "inf"), "--claimed-mu must be a finite number >= 0"),
        ("mine.py:leaky", ("--runs", 0), "--runs must be >= 16"),
        ("mine.py:leaky", ("--rows", 2), "--rows must be >= 3"),
        ("mine.py:leaky", ("--features", 0), "--features must be >= 1"),
        ("mine.py:leaky", ("--jobs", 0), "--jobs must be a number of processes"),
        ("mine.py:leaky", ("--confidence", 1), "--confidence must be strictly between 0 and 1"),
        ("mine.py:leaky", ("--delta", 2), "delta must lie in [0, 1)"),
        ("mine.py:leaky", ("-o", "nowhere/audit.json"), "its folder does not exist"),
        ("mine.py:leaky", ("--method", "auto"), "choose what to audit"),
    ],
)
def test_audits_that_cannot_be(
    run: Any, functions: Path, monkeypatch: Any, subject: str, more: Any, message: str
) -> None:
    """Mistakes in a user's file are told as the user's, and wrong figures before the runs."""
    monkeypatch.chdir(functions.parent)
    Path("raising.py").write_text("1 / 0")
    Path("exiting.py").write_text("import sys\nsys.exit(5)")
    Path("strange.py").write_text(FUNCTIONS + "\ndef neighbours():\n    return 3\n")
    ran = run("audit", subject, "--runs", 100, "--quiet", *more, "--json")
    assert ran.code == 2
    assert message in ran.values["error"]["message"]


def test_pairs_are_chosen_on_other_runs_than_those_that_are_counted(
    run: Any, functions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under a seed the pilots draw from streams of their own; without one every audit has a fresh seed."""
    import tulle.audit

    seeds = []
    audited = tulle.audit.audit_function
    for module in (tulle.audit, tulle.audit.estimator_audit):  # counted runs, pilots
        monkeypatch.setattr(
            module, "audit_function", lambda *a, **named: (seeds.append(named["seed"]), audited(*a, **named))[1]
        )
    assert run("audit", f"{functions}:noisy", "--runs", 16, "--seed", 1, "--quiet").code == 0
    *pilots, counted = seeds
    assert counted == 1
    assert pilots
    assert counted not in pilots


ESTIMATORS = """
import numpy as np

class Mean:
    _estimator_type = "regressor"
    def __init__(self, scale=2.0):
        self.scale = scale
    def fit(self, X, y):
        self.coef_ = np.clip(X[:, 0] * y, -1, 1).sum() + np.random.default_rng().laplace(scale=self.scale)
        return self

def weak():
    return Mean(0.1)

def fixed(seed):
    model = Mean()
    model.fit = lambda X, y: setattr(model, "coef_", 1.0)
    return model
"""


def test_an_estimator_of_another_library_is_audited(run: Any, tmp_path: Path) -> None:
    """Its class, or a function that makes one; the page is written too."""
    path, page = tmp_path / "theirs.py", tmp_path / "audit.html"
    path.write_text(ESTIMATORS)
    words = ("--delta", 0, "--claimed", 1, "--runs", 400, "--seed", 1, "--task", "regression", "--quiet")
    refuted = run("audit", f"{path}:weak", *words, "--page", page)
    assert refuted.code == 1
    assert "worlds   Mean, " in refuted.out
    assert "The claim is false" in page.read_text()
    assert run("audit", f"{path}:Mean", *words).code == 0
    failed = run("audit", f"{path}:fixed", *words, "--json")
    assert failed.code == 2
    assert "the same numbers in 64 runs" in failed.values["error"]["message"]


def test_an_audit_without_power_says_so_on_paper_and_on_screen(run: Any, functions: Path, tmp_path: Path) -> None:
    page = tmp_path / "audit.html"
    ran = run("audit", f"{functions}:noisy", "--claimed", 1, "--runs", 200, "--seed", 1, "--page", page)
    assert ran.code == 0
    assert "power: the claim ε = 1 is refuted in 90 %" in ran.err  # before the runs
    assert "this audit had no power; " in ran.out
    assert "This audit had no power; " in page.read_text()
    ran = run("audit", f"{functions}:noisy", "--runs", 200, "--page", tmp_path / "nowhere" / "audit.html", "--json")
    assert "cannot be written" in ran.values["error"]["message"]


def test_a_mu_is_tested_by_the_gaussian_judge(run: Any, functions: Path, tmp_path: Path) -> None:
    """Of a function the mu that is passed, exit code 1 where it is refuted; of a method the mu of its plan."""
    gaussian = ("--judge", "gaussian", "--runs", 200, "--seed", 1, "--quiet")
    ran = run("audit", f"{functions}:leaky", *gaussian, "--claimed-mu", 0.5, "-o", tmp_path / "audit.json")
    assert ran.code == 1
    assert "claimed μ = 0.5" in ran.out
    assert json.loads((tmp_path / "audit.json").read_text())["judge"] == "gaussian"
    method = ("--method", "hard_thresholding", "--epsilon", 2, "--task", "regression", "--features", 1)
    values = run("audit", *method, *gaussian, "--json").values
    assert values["judge"] == "gaussian"
    assert values["claimed_mu"] > 0
    assert not values["refuted"]
    published = run("audit", *method, *gaussian, "--calibration", "published")
    assert "claims an epsilon and no mu" in one_line(published, "audit")


def test_a_method_is_audited(run: Any, tmp_path: Path) -> None:
    """With a budget of its own, which a sound method keeps."""
    words = ("--method", "two_stage", "--epsilon", 2, "--runs", 100, "--seed", 0, "--quiet")
    ran = run("audit", *words, "--json", "-o", tmp_path / "audit.json")
    assert ran.code == 0
    assert ran.values["claimed"] == 2
    assert ran.values["delta"] == 1e-5
    assert not ran.values["refuted"]
    assert "method='magic' is unknown" in one_line(run("audit", "--method", "magic", "--quiet"), "audit")
    assert "choose what to audit" in one_line(run("audit"), "audit")


def test_a_saved_model_is_audited_with_its_own_settings(run: Any, place: Path, audited: Path) -> None:
    """Its budget is the claim; settings on the command line would be another model's and are refused."""
    values = json.loads(audited.read_text())
    assert values["claimed"] == 3.0
    assert values["delta"] == load(place / "m_two" / "model.npz").privacy_.delta
    for option in (("--epsilon", 9), ("--delta", 0.1), ("--row-l2", 5), ("--task", "regression"), ("--loss", "huber")):
        assert f"omit {option[0]}" in one_line(run("audit", place / "m_outcome", *option), "audit")
    assert "does not exist; pass a folder" in one_line(run("audit", place / "nowhere"), "audit")


def test_models_that_cannot_be_audited(run: Any, place: Path, tmp_path: Path) -> None:
    """Without privacy there is no claim; of a local model the channel is audited."""
    run(*fit_words(place, tmp_path / "m", "--epsilon", "none"))
    assert "has no guarantee to audit" in one_line(run("audit", tmp_path / "m"), "audit")
    from tulle.local import LabelPrivateSparseClassifier

    X, y = numbers("outcome")
    save(LabelPrivateSparseClassifier(3.0, n_nonzero=2).fit(X, y), tmp_path / "local.npz")
    assert "audit its channel with tulle.audit.audit_channel" in one_line(run("audit", tmp_path / "local.npz"), "audit")


def test_an_audit_goes_on_where_it_was_left(run: Any, functions: Path, tmp_path: Path) -> None:
    """The same function in the same folder: the same result; another function is refused."""
    words = ("--claimed", 1, "--runs", 200, "--seed", 1, "--quiet", "--json", "--resume", tmp_path / "kept")
    first = run("audit", f"{functions}:leaky", *words).values
    assert run("audit", f"{functions}:leaky", *words).values | {"seconds": 0} == first | {"seconds": 0}
    assert "contains another audit" in run("audit", f"{functions}:noisy", *words).values["error"]["message"]
