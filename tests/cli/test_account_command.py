"""`tulle account`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from commands_and_files import N, fit_words, one_line
from scipy.stats import norm

from tulle import Budget
from tulle.accounting.calibration import calibrate
from tulle.cli.account import PAPERS
from tulle.trusted.accountants import proof
from tulle.trusted.events import NoisePerSensitivity
from tulle.trusted.mechanisms import Gaussian, Laplace, SampledGaussian, TopK
from tulle.trusted.plan import Plan, Release
from tulle.trusted.sampling import Sampling


def gaussian_delta(sigma: float, epsilon: float) -> float:
    """The delta of Gaussian noise by the formula of Balle and Wang (2018), theorem 8."""
    a, b = 1 / (2 * sigma), epsilon * sigma
    return float(norm.cdf(a - b) - math.exp(epsilon) * norm.cdf(-a - b))


def test_noise_of_one_gaussian_answer_is_the_known_figure(run: Any) -> None:
    """3.73 at (1, 1e-5), and the closed formula to many digits; the cost of that noise is the budget again."""
    values = run("account", "noise", "--epsilon", 1, "--delta", "1e-5", "gaussian:1", "--json").values
    sigma = values["bill"][0]["noise_per_sensitivity"]
    assert sigma == pytest.approx(3.73, abs=0.005)
    assert gaussian_delta(sigma, 1.0) == pytest.approx(1e-5, rel=1e-4)
    cost = run("account", "cost", "--delta", "1e-5", f"gaussian:{sigma}", "--json").values
    assert cost["epsilon"] == pytest.approx(1.0, rel=1e-6)
    fifty = run("account", "noise", "--epsilon", 1, "--delta", "1e-5", "gaussian:1x50", "--json").values
    assert fifty["bill"][0]["noise_per_sensitivity"] == pytest.approx(sigma * math.sqrt(50), rel=1e-6)


@pytest.mark.parametrize(
    ("release", "delta", "known"),
    [("laplace:20", 0, 0.05), ("laplace:20x10", 0, 0.5), ("top1:8", 0, 0.25), ("top5:9", 0, 10 / 9)],
)
def test_pure_releases_cost_what_is_known(run: Any, release: str, delta: float, known: float) -> None:
    """Laplace noise b costs 1 / b an answer, the exponential mechanism with Gumbel noise b 2 / b a choice."""
    assert run("account", "cost", "--delta", delta, release, "--json").values["epsilon"] == pytest.approx(known)


BILLS: dict[str, tuple[Any, int]] = {
    "gaussian:8x10": (Gaussian(NoisePerSensitivity(8.0)), 10),
    "laplace:20x3": (Laplace(NoisePerSensitivity(20.0)), 3),
    "top50:9": (TopK(NoisePerSensitivity(9.0), 50), 1),
    "poisson:2:0.01x300": (SampledGaussian(NoisePerSensitivity(2.0), Sampling("poisson", 10**9, 10**7)), 300),
    "fixed:2:0.01x300": (SampledGaussian(NoisePerSensitivity(2.0), Sampling("without_replacement", 10**9, 10**7)), 300),
}


@pytest.mark.parametrize("words", [*([name] for name in BILLS), ["gaussian:8x10", "laplace:20x3", "top50:9"]], ids=str)
def test_costs_are_the_accountants(run: Any, words: list[str]) -> None:
    """The same figure as `tulle.trusted.accountants.proof`, and a bill that names each release as it was written."""
    plan = Plan(tuple(Release(f"{k}", *BILLS[name]) for k, name in enumerate(words)))
    epsilon, accountant = proof(plan, 1e-5)
    values = run("account", "cost", "--delta", "1e-5", *words, "--json").values
    assert values["epsilon"] == epsilon
    assert values["accountant"] == accountant
    assert values["asked"] is None
    written = [f"{k}: {name.rpartition('x')[0] if BILLS[name][1] > 1 else name}" for k, name in enumerate(words, 1)]
    assert [line["release"] for line in values["bill"]] == written
    assert [line["count"] for line in values["bill"]] == [BILLS[name][1] for name in words]
    text = run("account", "cost", "--delta", "1e-5", *words).out
    assert all(line in text for line in written)
    assert accountant in text


def test_noise_is_the_accountants(run: Any) -> None:
    """Ratios are kept, and the budget met as `tulle.accounting.calibration.calibrate` meets it."""
    releases = [Release("a", BILLS["gaussian:8x10"][0], 10), Release("b", BILLS["top50:9"][0], 1)]
    expected = [release.mechanism.noise.value for release in calibrate(releases, Budget(2.0, 1e-6))]
    values = run("account", "noise", "--epsilon", 2, "--delta", "1e-6", "gaussian:8x10", "top50:9", "--json").values
    found = [line["noise_per_sensitivity"] for line in values["bill"]]
    assert found == pytest.approx(expected, rel=1e-9)
    assert found[0] / found[1] == pytest.approx(8 / 9)
    assert 1.99 < values["epsilon"] <= 2


@pytest.mark.parametrize(
    ("release", "message"),
    [
        ("gaussian", "is not a release; write for example gaussian:8x10"),
        ("gaussian:0", "the noise must lie in"),
        ("gaussian:-1", "must be >= 0"),
        ("gaussian:nan", "must be >= 0"),
        ("gaussian:inf", "the noise must lie in"),
        ("gaussian:1e-300", "the noise must lie in"),
        ("gaussian:8x0", "a count in [1, 1e9]"),
        ("gaussian:8x-1", "is not a release"),
        ("gaussian:8x99999999999", "a count in [1, 1e9]"),
        ("gaussian:8:0.1", "only poisson and fixed have a RATE"),
        ("poisson:8", "only poisson and fixed have a RATE"),
        ("poisson:8:0", "only poisson and fixed have a RATE"),
        ("fixed:8:1.5", "only poisson and fixed have a RATE"),
        ("top:8", "write top and a number"),
        ("top0:8", "write top and a number"),
        ("cauchy:3", "unknown mechanism 'cauchy'"),
        ("gaussian:a", "could not convert"),
    ],
)
def test_releases_that_are_none(run: Any, release: str, message: str) -> None:
    """One line that shows what was written, and what can be."""
    said = one_line(run("account", "cost", "--delta", "1e-5", release), "account")
    assert repr(release) in said
    assert message in said


@pytest.mark.parametrize("delta", [1, -1, 2, "nan"])
def test_a_cost_needs_a_delta(run: Any, delta: Any) -> None:
    """In [0, 1)."""
    assert "--delta must lie in [0, 1)" in one_line(run("account", "cost", "--delta", delta, "laplace:1"), "account")


def test_gaussian_noise_proves_nothing_at_delta_0(run: Any) -> None:
    """Infinity is a word in JSON."""
    assert run("account", "cost", "--delta", 0, "gaussian:8", "--json").values["epsilon"] == "inf"


@pytest.mark.parametrize("paper", PAPERS)
def test_what_published_noise_proves(run: Any, paper: str) -> None:
    """Every paper of the list has a verdict, and the verdict agrees with the figure."""
    ran = run("account", "published", paper, "--epsilon", 4, "--delta", "1e-5", "--json")
    assert (ran.code, ran.err) == (0, "")
    values = ran.values
    epsilon = float(values["epsilon"])
    assert values["asked"] == 4
    assert values["bill"]
    if math.isinf(epsilon):
        assert values["verdict"] == "nothing is proved for it"
    elif epsilon > 4:
        assert values["verdict"] == f"that is {epsilon / 4:.3g} times the claim"
    else:
        assert values["verdict"].startswith("the claim holds")
        assert values["verdict"].endswith("fail") == bool(values["failed_conditions"])


def test_the_noise_of_dp_ight_proves_4_84_for_4(run: Any) -> None:
    """Remark 5.3 of its paper prints sqrt(8 T log(1/delta)) / epsilon for T steps: a Gaussian of known cost."""
    values = run("account", "published", "dp-ight", "--epsilon", 4, "--delta", "1e-5", "--steps", 9, "--json").values
    assert values["epsilon"] == pytest.approx(4.84, abs=0.005)
    (line,) = values["bill"]
    assert line["count"] == 9
    assert gaussian_delta(line["noise_per_sensitivity"] / 3, values["epsilon"]) == pytest.approx(1e-5, rel=1e-3)
    text = run("account", "published", "dp-ight", "--epsilon", 4, "--delta", "1e-5").out
    assert "ε = 4.84" in text
    assert "Verdict: that is 1.21 times the claim." in text


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--epsilon", 0), "epsilon must be a finite number > 0"),
        (("--delta", 2), "delta must lie in [0, 1)"),
        (("--steps", 0), "must be an integer >= 1"),
        (("--passes", 2), "--passes does not apply to dp-ight"),
        (("--rows", 1), "--rows must be at least 2"),
        (("--features", 0), "--features at least 1"),
        (("--n-nonzero", 0), "n_nonzero must be an integer >= 1"),
    ],
)
def test_published_noise_of_impossible_fits(run: Any, more: Any, message: str) -> None:
    """One line each."""
    words = ("account", "published", "dp-ight", "--epsilon", 4, "--delta", "1e-5")
    assert message in one_line(run(*words, *more), "account")


def test_a_plan_is_what_a_fit_releases(run: Any, place: Path, tmp_path: Path) -> None:
    """From the numbers of rows and features alone: the bill of the fit, line by line."""
    shape = ("--rows", N, "--features", 4, "--epsilon", 1, "--row-linf", 1, "--n-nonzero", 2)
    planned = run("account", "plan", *shape, "--task", "classification", "--json").values
    fitted = run(*fit_words(place, tmp_path / "m"), "--json").values["privacy"]
    assert planned["bill"] == fitted["bill"]
    assert planned["epsilon"] == fitted["epsilon"]
    assert planned["method"] == fitted["method"]
    assert "pass --task" in one_line(run("account", "plan", *shape), "account")
    assert "method='magic' is unknown" in one_line(
        run("account", "plan", *shape, "--task", "regression", "--method", "magic"), "account"
    )


def test_a_budget_in_rho(run: Any) -> None:
    values = run("account", "noise", "--rho", 0.1, "--delta", "1e-5", "gaussian:1x50", "--json").values
    assert values["bill"][0]["noise_per_sensitivity"] == pytest.approx(math.sqrt(50 / 0.2), rel=1e-8)
    assert 0.0999 < values["rho"] <= values["asked_rho"] == 0.1
    assert values["asked"] is None
    assert values["renyi"][2] == pytest.approx([2.0, 0.2], rel=1e-6)
    said = run("account", "noise", "--rho", 0.1, "--delta", "1e-5", "gaussian:1x50").out
    assert "Zero-concentrated: ρ = 0.1 (asked: 0.1)." in said
    assert values["epsilon"] == pytest.approx(1.7601, abs=1e-3)  # Gaussian, not that of any 0.1-zCDP release


def test_the_rho_of_a_list(run: Any) -> None:
    values = run("account", "cost", "--delta", "1e-5", "gaussian:2x3", "laplace:0.5", "--json").values
    assert values["rho"] == pytest.approx(3 / 8 + 1 + math.exp(-2))
    sampled = run("account", "cost", "--delta", "1e-5", "poisson:2:0.01x300", "--json").values
    assert sampled["rho"] is None
    assert sampled["accountant"] == "privacy loss distributions"
    assert sampled["epsilon"] < 1  # random batches are counted on


def test_printed_noise_for_a_rho(run: Any) -> None:
    values = run("account", "published", "dp-ight", "--rho", 0.1, "--delta", "1e-5", "--json").values
    assert values["rho"] == pytest.approx(0.2)
    assert values["verdict"] == "that is 2 times the claim"


@pytest.mark.parametrize("options", [(), ("--epsilon", 1, "--rho", 0.1), ("--rho", 0)])
def test_one_measure_of_a_budget(run: Any, options: tuple[Any, ...]) -> None:
    ran = run("account", "noise", "--delta", "1e-5", "gaussian:1", *options)
    assert "--rho" in one_line(ran, "account") or "rho must be" in ran.err
