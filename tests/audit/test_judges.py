"""The Gaussian judge: its bound on mu holds at the stated confidence, false claims are refuted, others are refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, binomtest, norm

import tulle.estimators.request
from tulle import Bounds, SparseRegressor
from tulle.accounting.bounds_from_counts import gaussian_hit_rate
from tulle.accounting.calibration import calibrate
from tulle.accounting.gaussian_budget import gaussian_mu
from tulle.audit import AuditResult, audit_function, audit_model, mu_lower_bound, worst_case_pairs
from tulle.audit.attacks import strongest_verdict
from tulle.audit.judges import ANY_LAW, GaussianCurve, Judge, judge_of_model, mu_of_plan
from tulle.methods import HardThresholding, ScreenRefine
from tulle.methods.loss_functions import Squared
from tulle.trusted.events import NoisePerSensitivity
from tulle.trusted.gaussian import gaussian_delta, gaussian_epsilon
from tulle.trusted.mechanisms import Gaussian, Laplace, TopK, price_of
from tulle.trusted.plan import Plan, PlanError, Release

DELTA = 1e-5
BOUNDS = Bounds(row_linf=1.0, label=1.0)


# --- the bound -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("hits", "false_hits", "runs"), [(60, 30, 100), (1000, 0, 1000), (5, 1, 1000), (30, 60, 100)])
def test_the_mu_of_counts_is_that_of_two_exact_intervals(hits: int, false_hits: int, runs: int) -> None:
    """scipy's exact two-sided intervals at 0.95 have the two one-sided bounds at 0.975, half of the failure each."""
    low = binomtest(hits, runs).proportion_ci(0.95, method="exact").low
    high = binomtest(false_hits, runs).proportion_ci(0.95, method="exact").high
    expected = norm.ppf(low) - norm.ppf(high)
    assert float(mu_lower_bound(hits, false_hits, runs, 0.95)) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("runs", [20, 200])
@pytest.mark.parametrize("rates", [(0.6, 0.3), (0.2, 0.2), (0.05, 0.01), (0.999, 0.5), (0.95, 0.05)])
def test_the_bound_on_mu_is_wrong_no_more_often_than_stated(runs: int, rates: tuple[float, float]) -> None:
    """Summed exactly over all pairs of counts: the probability of a bound above the truth is at most 0.05."""
    rate, false_rate = rates
    truth = norm.ppf(rate) - norm.ppf(false_rate)
    counts = np.arange(runs + 1)
    hits, false_hits = np.meshgrid(counts, counts, indexing="ij")
    wrong = mu_lower_bound(hits, false_hits, runs, 0.95) > truth + 1e-12
    probability = np.outer(binom.pmf(counts, runs, rate), binom.pmf(counts, runs, false_rate))
    assert probability[wrong].sum() <= 0.05


def test_counts_of_extreme_events_prove_something_or_nothing_and_are_never_nan() -> None:
    hits, false_hits = np.meshgrid([0, 1, 99, 100], [0, 1, 99, 100], indexing="ij")
    bounds = mu_lower_bound(hits, false_hits, 100, 0.95)
    assert not np.isnan(bounds).any()
    assert bounds[0].max() == -math.inf
    assert 0 < bounds[3, 0] < math.inf


def test_finite_precision_takes_its_part_of_both_rates() -> None:
    """What lies within 0.01 of a release that is mu-GDP: each rate may be off by as much, against the claim."""
    low = binomtest(60, 100).proportion_ci(0.95, method="exact").low
    high = binomtest(30, 100).proportion_ci(0.95, method="exact").high
    expected = norm.ppf(low - 0.01) - norm.ppf(high + 0.01)
    assert float(mu_lower_bound(60, 30, 100, 0.95, moved=0.01)) == pytest.approx(expected, rel=1e-9)
    assert GaussianCurve(1.0, moved=0.01).bound(60, 30, 100, DELTA, 0.95) == pytest.approx(expected, rel=1e-9)


def test_the_epsilon_of_a_bound_is_below_the_one_that_mu_has() -> None:
    """At the bound's epsilon the delta of mu is above `delta`, within a millionth: no true claim of mu prints less."""
    for mu in (0.05, 0.268, 1.0, 4.0):
        found = GaussianCurve(1.0).epsilon(mu, DELTA)
        assert gaussian_delta(found, mu) > DELTA
        assert found == pytest.approx(gaussian_epsilon(mu, DELTA), rel=1e-6)
    assert GaussianCurve(1.0).epsilon(-math.inf, DELTA) == 0.0


def test_the_allowed_curve_is_the_trade_off_of_two_gaussians() -> None:
    thresholds = np.linspace(-3, 3, 13)
    np.testing.assert_allclose(gaussian_hit_rate(norm.sf(thresholds), 0.7), norm.sf(thresholds - 0.7), rtol=1e-9)


# --- verdicts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mu", [0.5, 2.0])
def test_on_exact_gaussian_pairs_the_bound_exceeds_mu_no_more_often_than_stated(mu: float) -> None:
    """120 audits of 400 runs at confidence 0.9: a bound above mu in a tenth at most.

    If one in ten were wrong, more than 26 would have probability 1e-4 over seeds. The leak is in a sum of two of three
    numbers.
    """
    rng = np.random.default_rng(7)
    alarms = 0
    for _ in range(120):
        first, second = rng.standard_normal((2, 400, 3))
        first[:, :2] += mu / math.sqrt(2)
        alarms += strongest_verdict(first, second, DELTA, 0.9, GaussianCurve(mu)).bound > mu
    assert binom.sf(26, 120, 0.1) < 1e-4
    assert alarms <= 26


def test_the_bound_comes_near_mu() -> None:
    """20,000 runs of N(1, 1) against N(0, 1): the judged half proves at least 0.9, by either order of the worlds."""
    rng = np.random.default_rng(0)
    first, second = rng.standard_normal((2, 20_000, 1))
    first += 1.0
    for worlds in ((first, second), (second, first)):
        assert 0.9 < strongest_verdict(*worlds, DELTA, 0.95, GaussianCurve(1.0)).bound < 1.0


@pytest.mark.parametrize("judge", [ANY_LAW, GaussianCurve(1.0)], ids=["any", "gaussian"])
def test_thresholds_are_chosen_on_other_runs_than_those_that_are_judged(judge: Judge) -> None:
    """The first half leaks at about 0; in the second every run is beyond that, and the worlds are apart at 4.5 alone.

    A threshold that was chosen on the judged runs would find that, and prove a lot from what is then no count of a
    fixed event.
    """
    rng = np.random.default_rng(3)
    first, second = rng.standard_normal((2, 2_000, 1))
    first += 1.0
    first[1_000:], second[1_000:] = 5.0, 4.0
    verdict = strongest_verdict(first, second, DELTA, 0.95, judge)
    assert verdict.epsilon == 0.0
    assert verdict.bound <= 0.0
    assert (verdict.scores > verdict.other).all()


# --- functions -------------------------------------------------------------------------------------------------------

X = np.zeros((4, 1))
WORLDS = ((X, np.array([0.0, 0, 0, 1])), (X, np.array([0.0, 0, 0, 0])))


def sum_with(noise: float) -> Any:
    def noisy_sum(X: Any, y: Any, rng: np.random.Generator) -> float:
        return float(y.sum() + noise * rng.standard_normal())

    return noisy_sum


def judged(noise: float, **change: Any) -> AuditResult:
    arguments: dict[str, Any] = {"delta": DELTA, "judge": "gaussian", "claimed_mu": 1.0, "runs": 4_000, "seed": 0}
    return audit_function(sum_with(noise), *WORLDS, **(arguments | change))


def test_two_thirds_of_the_noise_are_refuted_and_the_right_noise_is_not() -> None:
    """A sum that moves by 1, claimed 1-GDP; a false alarm has probability 1e-5 at most. Judge any refutes neither."""
    sound, small = (judged(noise, confidence=0.99999) for noise in (1.0, 2 / 3))
    assert not sound.refuted
    assert small.refuted
    assert sound.mu is not None
    assert small.mu is not None
    assert 0.6 < sound.mu < 1.0 < small.mu < 1.5
    for result in (sound, small):
        assert result.judge == "gaussian"
        assert result.claimed_mu == 1.0
        assert result.claimed == gaussian_epsilon(1.0, DELTA)
        assert result.epsilon == GaussianCurve(1.0).epsilon(result.mu or 0.0, DELTA)
        assert result.epsilon_any is not None
        assert result.epsilon_any < result.epsilon
        assert result.epsilon_any < result.claimed
        assert result.epsilon < result.best_possible
    by_any = audit_function(sum_with(2 / 3), *WORLDS, delta=DELTA, claimed=sound.claimed, runs=4_000, seed=0)
    assert (by_any.judge, by_any.mu, by_any.claimed_mu, by_any.epsilon_any) == ("any", None, None, None)
    assert not by_any.refuted


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"claimed_mu": None}, "tests a claim of mu-GDP: pass claimed_mu"),
        ({"claimed": 1.0}, "A claim that is an epsilon at one delta is no mu"),
        ({"claimed": 1.0, "claimed_mu": None}, "test it with judge='any'"),
        ({"claimed_mu": math.inf}, "claimed_mu must be a finite number >= 0"),
        ({"claimed_mu": math.nan}, "claimed_mu must be a finite number >= 0"),
        ({"claimed_mu": -1.0}, "claimed_mu must be a finite number >= 0"),
        ({"delta": 0.0}, "an epsilon at a delta > 0"),
        ({"judge": "any"}, "claimed_mu is tested by judge='gaussian'"),
        ({"judge": "normal"}, "judge must be 'any', 'gaussian', 'bounded_range' or 'curve', got 'normal'"),
    ],
)
def test_a_claim_that_is_no_mu_is_refused_before_any_run(change: dict[str, Any], message: str) -> None:
    def never(X: Any, y: Any, rng: np.random.Generator) -> float:
        raise AssertionError("ran")

    arguments: dict[str, Any] = {"delta": DELTA, "judge": "gaussian", "claimed_mu": 1.0} | change
    with pytest.raises(ValueError, match=message):
        audit_function(never, *WORLDS, **arguments)


def test_runs_in_a_folder_are_not_judged_again_by_another_judge(tmp_path: Path) -> None:
    """To choose the judge after a look at the other's result is two looks."""
    kept = judged(1.0, runs=16, folder=tmp_path)
    assert replace(judged(1.0, runs=16, folder=tmp_path), seconds=0.0) == replace(kept, seconds=0.0)
    with pytest.raises(ValueError, match="number of runs or judge"):
        judged(1.0, runs=16, folder=tmp_path, judge="any", claimed_mu=None)


# --- models ----------------------------------------------------------------------------------------------------------


def regressor(method: Any, **parameters: Any) -> SparseRegressor:
    settings = {"n_nonzero": 1, "bounds": BOUNDS, "fit_intercept": False} | parameters
    return SparseRegressor(8.0, DELTA, method=method, **settings)


ONE_STEP = HardThresholding(noise="gaussian", n_iter=1, damping=0.0)
STATISTICS = ScreenRefine(
    1, "selection", refinement="statistics", screening_share=0.02, start_share=0.0, rescale_share=0.0
)
PAIRS = [pair for pair in worst_case_pairs(Squared(), BOUNDS.known(1), 6, 1) if "opposite labels" in pair.name]


@pytest.mark.parametrize("method", [ONE_STEP, STATISTICS, HardThresholding(noise="gaussian")], ids=repr)
def test_the_claimed_mu_of_gaussian_answers_is_that_of_the_budget(method: Any) -> None:
    found = judge_of_model(regressor(method)._request(Squared(), 6), (6, 1), "gaussian", None, None)
    assert isinstance(found, GaussianCurve)
    # The one choice of the statistics is accounted for a little more sharply than by its mu.
    assert found.claimed_mu == pytest.approx(gaussian_mu(8.0, DELTA), rel=5e-3 if method is STATISTICS else 1e-6)


def test_a_model_is_judged_by_the_mu_of_its_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """2/3 of the noise are refuted, the plan as before.

    A false alarm has probability 0.01 at most over seeds. Seed 0 is one.
    """
    arguments: dict[str, Any] = {"n_features": 1, "runs": 640, "pairs": PAIRS, "confidence": 0.99, "seed": 1}
    sound = audit_model(regressor(ONE_STEP), judge="gaussian", **arguments)
    assert sound.claimed_mu == pytest.approx(gaussian_mu(8.0, DELTA), rel=1e-6)
    assert sound.claimed == pytest.approx(8.0, rel=1e-6)
    assert not sound.refuted
    assert sound.epsilon > 4.0
    release = Gaussian.release
    monkeypatch.setattr(
        Gaussian, "release", lambda self, *answer: release(replace(self, noise=self.noise.times(2 / 3)), *answer)
    )
    small = audit_model(regressor(ONE_STEP), judge="gaussian", **arguments)
    assert small.claimed_mu == sound.claimed_mu
    assert small.refuted


def test_a_plan_with_too_little_noise_raises_and_does_not_raise_the_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        tulle.estimators.request,
        "calibrate",
        lambda releases, budget: tuple(r.scaled(2 / 3) for r in calibrate(releases, budget)),
    )
    with pytest.raises(PlanError, match="more than Budget"):
        audit_model(regressor(ONE_STEP), judge="gaussian", n_features=1, runs=16, pairs=PAIRS)


def test_squares_of_mu_add_up_over_a_plan() -> None:
    """Counts, several events and preliminary releases; of finite precision the judge has what the plan says."""
    noise = NoisePerSensitivity(2.0)
    plan = Plan((Release("a", Gaussian(noise), 3), Release("b", Laplace(noise), 2)), (Release("c", TopK(noise), 1),))
    laplace, top = 2 * norm.ppf(1 / (1 + math.exp(-0.5))), price_of(TopK(noise))[0].gaussian_mu()
    assert mu_of_plan(plan) == pytest.approx(math.sqrt(3 * 0.5**2 + 2 * laplace**2 + top**2), rel=1e-9)
    inexact = regressor(HardThresholding(noise="gaussian"))._request(Squared(), 6)
    found = judge_of_model(inexact, (6, 1), "gaussian", None, None)
    assert isinstance(found, GaussianCurve)
    assert found.moved == inexact.plan_all((6, 1))[0].plan.inexact


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (regressor(HardThresholding(noise="gaussian"), bounds=None), r"bounds are estimated \(row_l2"),
        (regressor(HardThresholding(noise="gaussian"), calibration="published"), "claims an epsilon and no mu"),
    ],
    ids=["estimated bounds", "published noise"],
)
def test_a_model_whose_claim_is_no_mu_is_refused(model: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        audit_model(model, judge="gaussian", n_features=1, runs=16, pairs=PAIRS)


def test_a_plan_without_a_mu_is_refused_by_name() -> None:
    plan = Plan(
        (Release("step", Gaussian(NoisePerSensitivity(1.0)), 1), Release("all", Gaussian(NoisePerSensitivity(0.0)), 1))
    )
    with pytest.raises(ValueError, match=r"no mu is claimed for all \(.*use judge='any'"):
        mu_of_plan(plan)


def test_a_mu_of_ones_own_can_be_tested_where_the_plan_has_none() -> None:
    model = regressor(HardThresholding(noise="gaussian"), calibration="published")
    result = audit_model(model, judge="gaussian", claimed_mu=0.5, n_features=1, runs=16, pairs=PAIRS)
    assert result.claimed_mu == 0.5
    with pytest.raises(ValueError, match="is no mu"):
        audit_model(model, judge="gaussian", claimed=1.0, n_features=1, runs=16, pairs=PAIRS)


# --- results ---------------------------------------------------------------------------------------------------------


def test_a_result_says_which_judge_gave_which_bound(tmp_path: Path) -> None:
    small = judged(0.5, runs=2_000)
    text = str(small)
    for words in ("audited  μ >= ", "judge    gaussian: bounds the μ of a claim", "judge any on the same runs"):
        assert words in text
    assert "verdict  claimed μ = 1 (ε = " in text
    assert "THE CLAIM IS FALSE" in text
    assert "judge    any: nothing is assumed" in str(judged(0.5, runs=16, judge="any", claimed_mu=None))
    small.plot(tmp_path / "audit.svg")
    assert (tmp_path / "audit.svg").stat().st_size > 5_000


def test_a_result_survives_json_and_older_results_are_read() -> None:
    small = judged(0.5, runs=64)
    assert AuditResult.from_dict(json.loads(small.to_json())) == small
    older = {
        name: value
        for name, value in judged(0.5, runs=64, judge="any", claimed_mu=None).to_dict().items()
        if name not in ("judge", "mu", "claimed_mu", "epsilon_any")
    }
    assert AuditResult.from_dict(older).judge == "any"


@pytest.mark.parametrize(
    "change", [{"judge": "normal"}, {"judge": "any"}, {"mu": None}, {"mu": -1.0}, {"claimed_mu": "inf"}, {"mu": "nan"}]
)
def test_a_result_that_no_judge_gave_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="no audit can have these values"):
        AuditResult.from_dict(judged(1.0, runs=16).to_dict() | change)
