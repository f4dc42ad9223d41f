"""The power of an audit, stated before its runs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from tulle.accounting.bounds_from_counts import choose_threshold, epsilon_lower_bound, mu_lower_bound
from tulle.accounting.gaussian_budget import gaussian_mu
from tulle.audit import audit_function, audit_one_run, expected_power
from tulle.audit.result import AuditResult

X, Y = np.zeros((4, 1)), np.array([1.0, 0, 0, 0])


def noisy(X: Any, y: Any, rng: np.random.Generator) -> float:
    return float(y.sum() + rng.normal(scale=3.73))


@pytest.mark.parametrize("judge", ["any", "gaussian"])
def test_a_gaussian_release_of_the_stated_epsilon_is_seen_as_often_as_stated(judge: str) -> None:
    """And one of the claimed epsilon is not. 400 audits of the best event: fewer than 86 % with probability < 1 %."""
    claimed_mu = gaussian_mu(1.0, 1e-5)
    claim: dict[str, Any] = {"claimed": 1.0} if judge == "any" else {"claimed_mu": claimed_mu}
    power = expected_power(4_000, delta=1e-5, judge=judge, **claim)
    assert power.gaussian is not None
    rng, counted = np.random.default_rng(0), 2_000

    def share_refuted(epsilon: float) -> float:
        mu = gaussian_mu(epsilon, 1e-5)
        thresholds = np.linspace(-3, 6, 200)
        expected = [np.round(counted * norm.sf(thresholds - mean)) for mean in (mu, 0.0)]
        if judge == "any":
            best = thresholds[np.argmax(epsilon_lower_bound(*expected, counted, 1e-5, 0.95))]
        else:
            best = thresholds[np.argmax(mu_lower_bound(*expected, counted, 0.95))]
        hits, false = (rng.binomial(counted, norm.sf(best - mean), 400) for mean in (mu, 0.0))
        if judge == "any":
            return float((epsilon_lower_bound(hits, false, counted, 1e-5, 0.95) > 1.0).mean())
        return float((mu_lower_bound(hits, false, counted, 0.95) > claimed_mu).mean())

    assert share_refuted(power.gaussian) > 0.86
    assert share_refuted(1.0) < 0.08


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
    assert "cannot be refuted, whatever the release" in str(power)


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
    assert "this audit had no power; " in str(result)
    assert "does not prove privacy" in str(result)
    assert result.to_dict()["power"] == [str(result.power), result.power.shortfall]  # type: ignore[union-attr]
    assert AuditResult.from_dict(result.to_dict()).power == result.power


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
