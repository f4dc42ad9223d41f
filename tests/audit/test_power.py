"""The power of an audit, stated before its runs."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import norm

from tulle import Bounds, SparseRegressor
from tulle.accounting.bounds_from_counts import (
    choose_threshold,
    epsilon_lower_bound,
    mu_of_right_guesses,
    range_of_right_guesses,
)
from tulle.accounting.gaussian_budget import gaussian_mu
from tulle.audit import Power, audit_function, audit_model, audit_one_run, expected_power
from tulle.audit.attacks import split_confidence, strongest_verdict
from tulle.audit.claimed_curves import epsilon_of_range
from tulle.audit.judges import GaussianCurve
from tulle.audit.result import AuditResult
from tulle.methods import HardThresholding

X, Y = np.zeros((4, 1)), np.array([1.0, 0, 0, 0])
BOUNDS = Bounds(row_linf=1.0, label=1.0)
ONE_STEP = HardThresholding(noise="gaussian", n_iter=1, damping=0.0)


def noisy(X: Any, y: Any, rng: np.random.Generator) -> float:
    return float(y.sum() + rng.normal(scale=3.73))


def share_refuted(power: Power, claim: float, rates: tuple[float, float], seed: int) -> float:
    """Of 1,000 audits of one event that was known beforehand, as the auditor counts it: in as many parts as it takes,
    and by right guesses where the judge has them."""
    rng = np.random.default_rng(seed)
    each = split_confidence(power.confidence, power.splits)
    bounds = []
    for _ in range(power.splits):
        hits, false = (rng.binomial(power.counted, rate, 1_000) for rate in rates)
        if power.judge == "any":
            bounds.append(epsilon_lower_bound(hits, false, power.counted, power.delta, each))
        else:
            count = mu_of_right_guesses if power.judge == "gaussian" else range_of_right_guesses
            bounds.append(count(hits, false, power.counted, each))
    return float((np.max(bounds, axis=0) > claim).mean())


@pytest.mark.parametrize("claimed_mu", [0.1, 0.268, 1.0, 3.0])
@pytest.mark.parametrize("words", [{}, {"splits": 1}, {"splits": 3}, {"attack": "likelihood_ratio"}])
def test_the_gaussian_judge_sees_as_much_as_stated_and_no_more(claimed_mu: float, words: dict[str, Any]) -> None:
    """Of 1,000 audits at most 86 % are refuted with probability 4e-5 if it is 90 %, and at least 94 % with 5e-6; of a
    true claim at least 8 % with 4e-5. All 16 cases together raise a false alarm with probability below 2e-3."""
    power = expected_power(4_000, delta=1e-5, judge="gaussian", claimed_mu=claimed_mu, **words)
    assert power.gaussian is not None
    mu = gaussian_mu(power.gaussian, 1e-5)
    assert 0.86 < share_refuted(power, claimed_mu, (norm.cdf(mu / 2), norm.cdf(-mu / 2)), 0) < 0.94
    assert share_refuted(power, claimed_mu, (norm.cdf(claimed_mu / 2), norm.cdf(-claimed_mu / 2)), 1) < 0.08


@pytest.mark.parametrize(("span", "delta"), [(0.5, 0.0), (1.0, 1e-5), (4.0, 0.0)])
def test_a_choice_of_the_stated_epsilon_is_seen_as_often_as_stated(span: float, delta: float) -> None:
    """False alarms as in the test above."""
    power = expected_power(4_000, delta=delta, judge="bounded_range", claimed_range=span)
    assert power.seen == power.choice
    assert power.choice is not None
    seen = brentq(lambda value: epsilon_of_range(value, delta) - power.choice, 0.0, 60.0)
    assert 0.86 < share_refuted(power, span, (expit(seen / 2), expit(-seen / 2)), 0) < 0.94
    assert share_refuted(power, span, (expit(span / 2), expit(-span / 2)), 1) < 0.08
    assert "a choice between two with ε >= " in str(power)
    assert power.runs_needed is not None
    assert power.runs_needed < 4_000


def test_a_gaussian_release_of_the_stated_epsilon_is_seen_by_the_judge_without_assumptions() -> None:
    """Two quantiles have to hold at once, so that it is seen more often than stated. False alarms as above."""
    power = expected_power(4_000, delta=1e-5, claimed=1.0)
    assert power.gaussian is not None

    def share(epsilon: float) -> float:
        mu, thresholds = gaussian_mu(epsilon, 1e-5), np.linspace(-3, 6, 200)
        expected = [np.round(power.counted * norm.sf(thresholds - mean)) for mean in (mu, 0.0)]
        best = thresholds[np.argmax(epsilon_lower_bound(*expected, power.counted, 1e-5, 0.95))]
        return share_refuted(power, 1.0, (norm.sf(best - mu), norm.sf(best)), 0)

    assert share(power.gaussian) > 0.86
    assert share(1.0) < 0.08


def test_a_real_audit_sees_nearly_as_much() -> None:
    """Attack and threshold are chosen on other runs, which costs power: of 40 audits 20 or fewer are refuted with
    probability 6e-4 if it is 75 %; it is about 78 % (docs/audit.md)."""
    power = expected_power(1_000, delta=1e-5, judge="gaussian", claimed_mu=1.0)
    assert power.gaussian is not None
    rng, mu = np.random.default_rng(0), gaussian_mu(power.gaussian, 1e-5)
    refuted = 0
    for _ in range(40):
        worlds = (rng.normal(mean, 1.0, (1_000, 1)) for mean in (mu, 0.0))
        refuted += strongest_verdict(*worlds, 1e-5, 0.95, GaussianCurve(1.0), 2).bound > 1.0
    assert refuted > 20


def test_randomised_response_of_the_stated_epsilon_is_seen_as_often_as_stated() -> None:
    power = expected_power(2_000, delta=0.0, claimed=1.0)
    assert power.gaussian is None  # a Gaussian release has no epsilon at delta = 0
    assert power.easiest is not None
    rate = 1 / (1 + math.exp(-power.easiest))
    hits, false = (np.random.default_rng(1).binomial(1_000, p, 400) for p in (rate, 1 - rate))
    assert (epsilon_lower_bound(hits, false, 1_000, 0.0, 0.95) > 1.0).mean() > 0.86


def test_more_runs_and_the_gaussian_judge_see_more() -> None:
    seen = [expected_power(runs, delta=1e-5, claimed=1.0).seen for runs in (200, 2_000, 20_000)]
    assert seen == sorted(seen, reverse=True)
    assert seen[-1] > 1.0
    mu = gaussian_mu(1.0, 1e-5)
    assert expected_power(2_000, delta=1e-5, judge="gaussian", claimed_mu=mu).seen < seen[1]
    assert expected_power(2_000, delta=1e-5, claimed=1.0, confidence=0.999).seen > seen[1]


def test_the_runs_that_are_needed_suffice_and_are_not_far_too_many() -> None:
    power = expected_power(1_000, delta=1e-5, claimed=1.0)
    assert not power.has_power
    assert power.runs_needed is not None
    assert expected_power(power.runs_needed, delta=1e-5, claimed=1.0).seen <= 2.0
    assert expected_power(power.runs_needed // 2, delta=1e-5, claimed=1.0).seen > 2.0
    assert power.shortfall == (
        f"this audit had no power; {power.runs_needed:,} runs would be needed to see 2 times the claimed ε"
    )
    enough = expected_power(power.runs_needed, delta=1e-5, claimed=1.0)
    assert enough.has_power
    assert enough.shortfall == ""


def test_few_runs_refute_nothing_and_say_so() -> None:
    power = expected_power(16, delta=1e-5, claimed=4.0)
    assert power.seen == math.inf
    assert "cannot be refuted, for any release" in str(power)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"runs": 7}, "runs must be a whole number >= 8"),
        ({"confidence": 1.0}, "confidence must lie"),
        ({"chance": 0.0}, "chance must lie"),
        ({"delta": 1.0}, "delta must lie"),
        ({"claimed": -1.0}, "finite number >= 0"),
        ({"judge": "none"}, "power is known for"),
        ({"judge": "gaussian"}, "pass claimed_mu"),
        ({"judge": "bounded_range"}, "pass claimed_range"),
        ({"judge": "curve"}, "power is known for"),
        ({"splits": 0}, "splits must be a whole number"),
        ({"splits": 20}, "8 runs for each part but one"),
    ],
)
def test_bad_questions_get_clear_answers(change: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"runs": 100, "delta": 1e-5, "claimed": 1.0} | change
    with pytest.raises(ValueError, match=message):
        expected_power(arguments.pop("runs"), **arguments)


def test_a_result_states_its_power_and_that_it_had_none(capsys: pytest.CaptureFixture[str]) -> None:
    result = audit_function(noisy, (X, Y), (X, 0 * Y), delta=1e-5, claimed=1.0, runs=1_000, seed=0, verbose=1)
    assert "power: the claim ε = 1 is refuted in 90 % of audits" in capsys.readouterr().err  # before the runs
    assert result.power == expected_power(1_000, delta=1e-5, claimed=1.0)
    assert isinstance(result.power, Power)
    assert result.power.counted == result.runs == 500
    assert "this audit had no power; " in str(result)
    assert "does not prove privacy" in str(result)
    assert result.to_dict()["power"] == [str(result.power), result.power.shortfall]
    assert AuditResult.from_dict(result.to_dict()).power == result.power


@pytest.mark.parametrize("splits", [1, 2, 3])
def test_a_result_states_the_power_of_its_own_parts(splits: int) -> None:
    claim: dict[str, Any] = {"delta": 1e-5, "judge": "gaussian", "claimed_mu": 0.3, "splits": splits}
    result = audit_function(noisy, (X, Y), (X, 0 * Y), runs=600, seed=0, **claim)
    assert result.power == expected_power(600, **claim)
    again = AuditResult.from_dict(result.to_dict())
    assert (again.splits, again.power) == (splits, result.power)
    with pytest.raises(ValueError, match="no audit"):
        AuditResult.from_dict(result.to_dict() | {"splits": 0})


def test_an_event_that_is_known_beforehand_counts_all_runs() -> None:
    model = SparseRegressor(4.0, 1e-5, n_nonzero=1, bounds=BOUNDS, method=ONE_STEP, fit_intercept=False)
    words: dict[str, Any] = {"judge": "gaussian", "attack": "likelihood_ratio"}
    result = audit_model(model, n_features=1, runs=100, pilot_runs=8, seed=0, **words)
    assert result.power == expected_power(100, delta=1e-5, claimed_mu=result.claimed_mu, **words)
    assert isinstance(result.power, Power)
    assert result.power.counted == 100
    chosen = expected_power(100, delta=1e-5, claimed_mu=result.claimed_mu, judge="gaussian")
    assert result.power.seen < chosen.seen
    assert result.power.runs_needed is not None
    assert chosen.runs_needed is not None
    assert result.power.runs_needed < chosen.runs_needed


def test_a_refuted_claim_had_power_enough() -> None:
    leak = audit_function(
        lambda X, y, rng: y.sum() + 0.1 * rng.normal(), (X, Y), (X, 0 * Y), delta=1e-5, claimed=1.0, runs=1_000, seed=0
    )
    assert leak.refuted
    assert "had no power" not in str(leak)
    assert "does not prove privacy" not in str(leak)


def test_infinite_claims_have_no_statement() -> None:
    rows = np.zeros((30, 1))
    worlds = (rows, np.ones(30)), (rows, np.zeros(30))
    one_run = audit_one_run(lambda X, y, rng: y, *worlds, lambda out: out, delta=0.0, claimed=math.inf)
    assert one_run.power is None
    assert not one_run.refuted
    infinite = audit_function(noisy, (X, Y), (X, 0 * Y), delta=1e-5, claimed=math.inf, runs=100)
    assert infinite.power is None
    assert infinite.to_dict()["power"] == []


def test_a_threshold_of_the_runs_is_near_the_best_event() -> None:
    """Power is stated for the best event; the one that an audit finds on 5,000 runs shows nearly as much."""
    rng = np.random.default_rng(0)
    mu = gaussian_mu(4.0, 1e-5)
    threshold, _ = choose_threshold(rng.normal(mu, 1, 5_000), rng.normal(0, 1, 5_000), 1e-5, 0.9995)
    rates = [norm.sf(threshold - mean) for mean in (mu, 0.0)]
    found = epsilon_lower_bound(*(np.round(5_000 * rate) for rate in rates), 5_000, 1e-5, 0.95)
    grid = np.linspace(-3, 5, 300)
    best = epsilon_lower_bound(
        np.round(5_000 * norm.sf(grid - mu)), np.round(5_000 * norm.sf(grid)), 5_000, 1e-5, 0.95
    ).max()
    assert found > 0.8 * best


@pytest.mark.parametrize(("column", "claimed"), [(1, 1.0), (3, 4.0)])
def test_the_table_of_powers_is_the_computed_one(column: int, claimed: float) -> None:
    page = (Path(__file__).parents[2] / "docs" / "audit.md").read_text(encoding="utf-8")
    rows = page.partition("| runs | judge | claimed ε = 0.5 | 1 | 2 | 4 |\n")[2].splitlines()[1:10]
    mu = gaussian_mu(claimed, 1e-5)
    words: dict[str, dict[str, Any]] = {
        '"any"': {"claimed": claimed},
        '"gaussian"': {"judge": "gaussian", "claimed_mu": mu},
        "likelihood ratio": {"judge": "gaussian", "claimed_mu": mu, "attack": "likelihood_ratio"},
    }
    for row in rows:
        runs, judge, *seen = (cell.strip() for cell in row.strip("|").split("|"))
        power = expected_power(int(runs.replace(",", "")), delta=1e-5, **words[judge])
        assert f"{power.seen:.3g}" == seen[column]


def test_tables_of_parts_and_of_real_power_are_the_measured_ones() -> None:
    """Those of docs/audit.md are what benchmarks/audit_splits.py wrote."""
    root = Path(__file__).parents[2]
    place = importlib.util.spec_from_file_location("audit_splits", root / "benchmarks" / "audit_splits.py")
    assert place is not None
    assert place.loader is not None
    benchmark = importlib.util.module_from_spec(place)
    sys.modules["audit_splits"] = benchmark  # its dataclass looks itself up
    place.loader.exec_module(benchmark)
    page = (root / "docs" / "audit.md").read_text(encoding="utf-8").splitlines()
    rows = json.loads((root / "docs" / "pictures" / "audit_splits.json").read_text(encoding="utf-8"))
    assert len(rows) == 23
    assert [row["words"] for row in rows if benchmark.line(row) not in page] == []
