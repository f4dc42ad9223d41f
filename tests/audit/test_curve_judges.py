"""Judges of bounded ranges and of whole curves, and runs that are split several times."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import logit
from scipy.stats import binom, binomtest, norm
from two_worlds import Additive, Response

from tulle import Bounds, SparseRegressor
from tulle.audit import AuditResult, audit_function, audit_model, range_lower_bound
from tulle.audit.attacks import spread_thresholds, strongest_verdict
from tulle.audit.claimed_curves import FunctionClaim, GaussianClaim, Profile, RangeClaim, epsilon_of_range
from tulle.audit.judged_runs import judge_runs
from tulle.audit.judges import ANY_LAW, BoundedRange, GaussianCurve, Judge, WholeCurve, judge_of_model, range_of_plan
from tulle.audit.runner import Schedule, Subject
from tulle.methods import FrankWolfe, HardThresholding
from tulle.methods.loss_functions import Squared
from tulle.trusted.events import NoisePerSensitivity
from tulle.trusted.gaussian import gaussian_delta
from tulle.trusted.mechanisms import GumbelMax, TopK
from tulle.trusted.plan import Plan, Release

DELTA = 1e-5
RANGE = RangeClaim(1.0)
X = np.zeros((4, 1))
WORLDS = ((X, np.array([0.0, 0, 0, 1])), (X, np.array([0.0, 0, 0, 0])))


def judged(subject: Subject, judge: Judge, runs: int, seed: int, **change: Any) -> AuditResult:
    settings: dict[str, Any] = {"delta": 0.0, "confidence": 0.9, "claimed": None} | change
    return judge_runs(subject, Schedule(runs, runs, seed), "two worlds", judge=judge, **settings)


# --- curves ----------------------------------------------------------------------------------------------------------


def test_each_claim_allows_what_its_worst_release_does_and_no_more() -> None:
    """The curves of randomised response with a delta, of two Gaussian and of two logistic laws."""
    thresholds = np.linspace(-6, 6, 41)
    np.testing.assert_allclose(GaussianClaim(0.7).allowed(norm.sf(thresholds)), norm.sf(thresholds - 0.7), rtol=1e-9)
    odds = 1 / (1 + np.exp(thresholds))
    np.testing.assert_allclose(RangeClaim(0.7).allowed(odds), 1 / (1 + np.exp(thresholds - 0.7)), rtol=1e-9)
    truth, delta = math.e / (1 + math.e), 0.1
    for false_rate, hit_rate in (
        (0.0, delta),
        ((1 - delta) * (1 - truth), delta + (1 - delta) * truth),
        (1 - delta, 1.0),
    ):
        assert float(Profile(((1.0, delta),)).allowed(np.array(false_rate))) == pytest.approx(hit_rate, rel=1e-12)
    both = Profile(((1.0, 0.0), (0.0, 0.1)))
    assert float(both.allowed(np.array(0.01))) == pytest.approx(0.01 * math.e)
    assert float(both.allowed(np.array(0.4))) == pytest.approx(0.5)


@pytest.mark.parametrize("claim", [Profile(((1.0, 0.01), (0.2, 0.1))), GaussianClaim(1.3), RangeClaim(2.0)], ids=repr)
def test_a_line_with_the_stated_slope_lies_above_the_curve(claim: Any) -> None:
    rates = np.linspace(0.001, 0.999, 199)
    touched = claim.allowed(rates)[:, None] + claim.slope(rates)[:, None] * (rates[None, :] - rates[:, None])
    assert np.all(touched >= claim.allowed(rates)[None, :] - 1e-12)


def test_the_epsilon_of_a_range_is_that_of_two_logistic_laws() -> None:
    """The supremum of P - e^epsilon Q over half-lines is delta; a pure epsilon at delta = 0."""
    rates = np.geomspace(1e-7, 1 - 1e-7, 400_001)
    for span, delta in ((0.5, 1e-3), (2.0, 1e-5), (4.0, 0.01)):
        found = epsilon_of_range(span, delta)
        assert np.max(RangeClaim(span).allowed(rates) - math.exp(found) * rates) == pytest.approx(delta, rel=1e-4)
    assert epsilon_of_range(1.5, 0.0) == 1.5
    assert epsilon_of_range(0.1, 0.5) == 0.0


def test_the_epsilon_that_a_claim_implies() -> None:
    assert gaussian_delta(GaussianClaim(1.0).epsilon(DELTA), 1.0) == pytest.approx(DELTA, rel=1e-5)
    assert GaussianClaim(1.0).epsilon(0.0) == math.inf
    assert RangeClaim(1.0).epsilon(0.01) == epsilon_of_range(1.0, 0.01)
    assert Profile(((1.0, 0.01), (0.5, 0.1))).epsilon(0.01) == pytest.approx(1.0)
    assert Profile(((1.0, 0.01),)).epsilon(0.0) == math.inf
    assert Profile(((1.0, 0.0),)).epsilon(0.9) == 0.0
    pure = FunctionClaim(lambda error: max(0.0, 1 - math.e * error, (1 - error) / math.e))
    assert pure.epsilon(0.0) == pytest.approx(1.0)


# --- bounds ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("hits", "false_hits"), [(60, 30), (100, 0), (5, 1), (30, 60)])
def test_the_range_of_counts_is_that_of_two_exact_intervals(hits: int, false_hits: int) -> None:
    low = binomtest(hits, 100).proportion_ci(0.95, method="exact").low
    high = binomtest(false_hits, 100).proportion_ci(0.95, method="exact").high
    assert float(range_lower_bound(hits, false_hits, 100, 0.95)) == pytest.approx(logit(low) - logit(high), rel=1e-9)
    moved = logit(max(low - 0.001, 0)) - logit(high + 0.001)
    assert BoundedRange(1.0, moved=0.001).bound(hits, false_hits, 100, 0.0, 0.95) == pytest.approx(moved, rel=1e-9)


def test_all_bounds_of_a_curve_fail_together_with_the_stated_probability() -> None:
    """Half of the failure for the threshold that was chosen, the rest evenly; the largest excess is the verdict."""
    rng = np.random.default_rng(0)
    scores, other = rng.standard_normal((2, 500))
    scores += 2.0
    thresholds = np.array([0.5, 1.0, 2.0, 3.0])
    excess = -math.inf
    for threshold, share in zip(thresholds, (1 / 2, 1 / 6, 1 / 6, 1 / 6)):
        hits, false_hits = int((scores >= threshold).sum()), int((other >= threshold).sum())
        low = binomtest(hits, 500).proportion_ci(1 - 0.1 * share, method="exact").low
        high = binomtest(false_hits, 500).proportion_ci(1 - 0.1 * share, method="exact").high
        # The event, and its complement with the worlds exchanged.
        excess = max(excess, low - norm.cdf(norm.ppf(high) + 1.0), 1 - high - norm.cdf(norm.ppf(1 - low) + 1.0))
    assert WholeCurve(GaussianClaim(1.0)).count(scores, other, thresholds, DELTA, 0.9)[0] == pytest.approx(excess)
    moved = WholeCurve(GaussianClaim(1.0), moved=0.01).count(scores, other, thresholds, DELTA, 0.9)[0]
    assert moved < excess - 0.01


def test_a_curve_holds_for_both_orders_of_the_worlds() -> None:
    """A claim that limits rare events alone: the complement, with the worlds exchanged, is tested too."""
    scores, other = np.repeat([1.0, 0.0], [900, 100]), np.repeat([1.0, 0.0], [500, 500])
    # Of the event (q, p) = (0.5, 0.9), which is allowed; of its complement (0.1, 0.5), which is not.
    rare = WholeCurve(FunctionClaim(lambda error: max(0.0, 1 - 3 * error)))
    assert rare.claim.allowed(np.array(0.5)) == 1.0
    assert rare.count(scores, other, np.array([0.5]), 0.0, 0.99)[0] > 0
    no_rare = WholeCurve(FunctionClaim(lambda error: max(0.0, 1 - 9 * error)))
    assert no_rare.count(scores, other, np.array([0.5]), 0.0, 0.99)[0] <= 0


def test_the_judge_of_curves_chooses_events_that_can_prove_something() -> None:
    """An event with rates 0.76 and 0.24 is taken, where 0.72 is allowed, and not one that always happens."""
    judge = WholeCurve(Profile(((1.0, 0.0),)))
    hits, false_hits = np.array([380, 500, 0]), np.array([120, 500, 0])
    assert np.argmax(judge.promise(hits, false_hits, 500, 0.0, 0.9995)) == 0
    assert np.argmax(judge.bound(hits, false_hits, 500, 0.0, 0.9995)) != 0
    assert judge.pilot() == GaussianCurve(0.0)
    assert GaussianCurve(1.0).pilot() == GaussianCurve(1.0)


def test_thresholds_of_a_curve_cover_rare_and_frequent_events() -> None:
    scores = np.arange(1000.0)
    found = spread_thresholds(5.5, scores, scores)
    assert found[0] == 5.5
    assert len(found) == 16
    assert found.min() < 20
    assert found.max() > 980


# --- verdicts --------------------------------------------------------------------------------------------------------

SOUND: list[tuple[Any, Judge, float]] = [
    (Additive("standard_normal", 1.0), GaussianCurve(1.0), DELTA),
    (Additive("standard_normal", 1.0, 3), WholeCurve(GaussianClaim(1.0)), DELTA),
    (Additive("laplace", 1.0), WholeCurve(Profile(((1.0, 0.0),))), 0.0),
    (Additive("logistic", 1.0), BoundedRange(1.0), 0.0),
    (Additive("logistic", 1.0), WholeCurve(RangeClaim(1.0)), 0.0),
    (Response(0.5), BoundedRange(1.0), 0.0),
    (Response(1.0, 0.05), WholeCurve(Profile(((1.0, 0.05),))), 0.05),
    (Response(1.0), ANY_LAW, 0.0),
]


@pytest.mark.parametrize("splits", [1, 2])
def test_sound_claims_at_their_boundary_are_refuted_no_more_often_than_stated(splits: int) -> None:
    """200 audits at confidence 0.9, with each judge: if one in ten were wrong, over 36 would have probability 1e-4."""
    alarms = 0
    for number in range(200):
        subject, judge, delta = SOUND[number % len(SOUND)]
        claimed = 1.0 if judge is ANY_LAW else None
        result = judged(subject, judge, 160, number, delta=delta, claimed=claimed, splits=splits)
        alarms += result.refuted
    assert binom.sf(36, 200, 0.1) < 2e-4
    assert alarms <= 36


PLANTED: list[tuple[str, Any, Judge, float]] = [
    ("2/3 of the noise", Additive("standard_normal", 1.5), GaussianCurve(1.0), DELTA),
    ("2/3 of the noise, curve", Additive("standard_normal", 1.5), WholeCurve(GaussianClaim(1.0)), DELTA),
    ("twice the sensitivity", Additive("laplace", 2.0), WholeCurve(Profile(((1.0, 0.0),))), 0.0),
    ("a delta that was forgotten", Response(1.0, 0.05), WholeCurve(Profile(((1.0, 0.0),))), 0.0),
    ("a choice with half the noise", Response(1.0), BoundedRange(1.0), 0.0),
    ("a choice with half the noise, curve", Response(1.0), WholeCurve(RangeClaim(1.0)), 0.0),
]


@pytest.mark.parametrize(("subject", "judge", "delta"), [row[1:] for row in PLANTED], ids=[row[0] for row in PLANTED])
@pytest.mark.parametrize("splits", [1, 2])
def test_planted_bugs_are_found(subject: Any, judge: Judge, delta: float, splits: int) -> None:
    """2,000 runs at confidence 0.999, three seeds."""
    for seed in range(3):
        assert judged(subject, judge, 2_000, seed, delta=delta, confidence=0.999, splits=splits).refuted


def test_a_violation_where_no_mu_is_exceeded_is_found_by_the_curve() -> None:
    """Claimed are (0, 0.1) and (1.2, 0) at once: each alone lets randomised response of epsilon 1 pass, or nearly."""
    subject = Response(1.0)
    claim = Profile(((1.2, 0.0), (0.0, 0.3)))
    assert judged(subject, WholeCurve(claim), 4_000, 0, confidence=0.999).refuted
    assert not judged(subject, WholeCurve(Profile(((1.2, 0.0),))), 4_000, 0, confidence=0.999).refuted


def test_the_epsilon_of_a_curve_audit_assumes_nothing_and_refutes_nothing() -> None:
    result = judged(Response(1.0), WholeCurve(RangeClaim(1.0)), 20_000, 0)
    assert result.refuted
    assert 0.8 < result.epsilon < 1.0 < result.best_possible
    assert result.claimed == 1.0


# --- several parts ---------------------------------------------------------------------------------------------------


def test_each_part_is_counted_by_an_attack_of_the_others_at_a_corrected_confidence() -> None:
    """Part 0 leaks above 0, part 1 below: each attack fails on the other part, and all runs in one choice would not."""
    rng = np.random.default_rng(2)
    first, second = rng.standard_normal((2, 2_000, 1))
    first[:1_000] += 2.0
    first[1_000:] -= 2.0
    assert strongest_verdict(first, second, DELTA, 0.95, GaussianCurve(1.0), splits=2).bound <= 0
    first[1_000:] += 4.0
    verdict = strongest_verdict(first, second, DELTA, 0.95, GaussianCurve(1.0), splits=2)
    alone = [
        strongest_verdict(one, two, DELTA, 0.975, GaussianCurve(1.0))
        for one, two in ((first, second), (np.roll(first, 1_000, axis=0), np.roll(second, 1_000, axis=0)))
    ]
    assert verdict.bound == max(one.bound for one in alone)
    assert verdict.attack.endswith("strongest of 2 parts")
    assert verdict.runs == 1_000


def test_all_judges_but_any_count_two_parts_unless_told_otherwise() -> None:
    for judge, parts in ((ANY_LAW, 1), (BoundedRange(9.0), 2), (GaussianCurve(9.0), 2), (WholeCurve(RANGE), 2)):
        default, told = (judged(Response(1.0), judge, 64, 0, delta=DELTA, **own) for own in ({}, {"splits": parts}))
        assert default.attack == told.attack
        assert default.epsilon == told.epsilon
        assert ("of 2 parts" in default.attack) == (parts == 2)


@pytest.mark.parametrize("splits", [0, 1.5, math.nan, True, "2"])
def test_a_number_of_parts_that_is_none_is_refused(splits: Any) -> None:
    with pytest.raises(ValueError, match="splits must be a whole number"):
        judged(Response(1.0), ANY_LAW, 16, 0, splits=splits)


def test_too_many_parts_for_the_runs_are_refused() -> None:
    with pytest.raises(ValueError, match="8 for each part"):
        judged(Response(1.0), ANY_LAW, 16, 0, splits=8)


# --- functions and models --------------------------------------------------------------------------------------------


def choice(X: Any, y: Any, rng: np.random.Generator) -> float:
    return float(rng.random() < 1 / (1 + math.exp(-(2 * y.sum() - 1))))


def never(X: Any, y: Any, rng: np.random.Generator) -> float:
    raise AssertionError("ran")


@pytest.mark.parametrize(
    ("claims", "message"),
    [
        ({"judge": "bounded_range"}, "pass claimed_range and not claimed"),
        ({"judge": "bounded_range", "claimed": 1.0}, "an r-DP release can have a range of 2 r"),
        ({"judge": "bounded_range", "claimed_mu": 1.0}, "claimed_mu is tested by judge='gaussian'"),
        ({"judge": "bounded_range", "claimed_range": -1.0}, "claimed_range must be a number in"),
        ({"judge": "bounded_range", "claimed_range": math.nan}, "claimed_range must be a number in"),
        ({"judge": "gaussian", "claimed_range": 1.0}, "claimed_range is tested by judge='bounded_range'"),
        ({"judge": "any", "claimed_range": 1.0}, "judge='any' tests claimed, an epsilon"),
        ({"judge": "any", "claimed_curve": [(1.0, 0.0)]}, "claimed_curve is tested by judge='curve'"),
        ({"judge": "curve"}, "pass one claim, one of"),
        ({"judge": "curve", "claimed": 1.0}, "claimed is one epsilon at one delta"),
        ({"judge": "curve", "claimed_mu": 1.0, "claimed_range": 1.0}, "got claimed_mu and claimed_range"),
        ({"judge": "curve", "claimed_curve": 1.0}, "must be a function"),
        ({"judge": "curve", "claimed_curve": []}, "list of pairs"),
        ({"judge": "curve", "claimed_curve": [1.0]}, "list of pairs"),
        ({"judge": "curve", "claimed_curve": [(1.0, 1.0)]}, r"delta in \[0, 1\)"),
        ({"judge": "curve", "claimed_curve": [(math.nan, 0.0)]}, "epsilon in"),
        ({"judge": "curve", "claimed_curve": lambda error: 1.0}, "must be a trade-off curve"),
        ({"judge": "curve", "claimed_curve": lambda error: math.nan}, "must be a trade-off curve"),
        ({"judge": "curve", "claimed_curve": lambda error: error * (1 - error)}, "must be a trade-off curve"),
    ],
)
def test_a_claim_of_the_wrong_kind_is_refused_before_any_run(claims: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        audit_function(never, *WORLDS, delta=0.0, **claims)


def test_results_state_their_judge_and_survive_json(tmp_path: Path) -> None:
    by_range = audit_function(choice, *WORLDS, delta=0.0, judge="bounded_range", claimed_range=1.0, runs=800, seed=0)
    by_curve = audit_function(
        choice, *WORLDS, delta=0.0, judge="curve", claimed_curve=lambda error: 1 - error, runs=800, seed=0, splits=2
    )
    assert by_range.refuted
    assert by_range.range is not None
    assert 1.0 < by_range.range < 2.0
    assert by_range.epsilon == pytest.approx(by_range.range)
    assert by_range.epsilon_any is not None
    assert by_range.epsilon_any < 1.0
    assert by_curve.refuted
    for words in ("audited  range >= 1.", "judge    bounded_range: ", "claimed range = 1 (ε = 1 at this δ)", "FALSE"):
        assert words in str(by_range)
    for words in ("judge    curve: ", "claimed curve <lambda> (", "above what the claim allows", "of 2 parts"):
        assert words in str(by_curve)
    for result in (by_range, by_curve):
        assert AuditResult.from_dict(json.loads(result.to_json())) == result
        with pytest.raises(ValueError, match="no audit can have these values"):
            AuditResult.from_dict(result.to_dict() | {"mu": 1.0})
        result.plot(tmp_path / "audit.svg")


def test_runs_in_a_folder_are_not_tested_against_another_curve_or_split(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"delta": 0.0, "judge": "curve", "runs": 16, "folder": tmp_path, "claimed_range": 1.0}
    audit_function(choice, *WORLDS, **settings)
    for change in ({"claimed_range": 2.0}, {"splits": 1}):
        with pytest.raises(ValueError, match="contains another audit"):
            audit_function(choice, *WORLDS, **(settings | change))


def test_the_range_of_a_plan_is_that_of_its_one_choice() -> None:
    noise = NoisePerSensitivity(4.0)
    assert range_of_plan(Plan((Release("choice", GumbelMax(noise), 1),))) == 0.5
    for plan in (
        Plan((Release("choice", GumbelMax(noise), 2),)),
        Plan((Release("choice", TopK(noise, 2), 1),)),
        Plan((Release("choice", GumbelMax(noise), 1),), (Release("other", GumbelMax(noise), 1),)),
    ):
        with pytest.raises(ValueError, match="a plan of one choice"):
            range_of_plan(plan)


def test_models_are_judged_by_the_range_or_the_curve_of_their_plan() -> None:
    bounds = Bounds(row_linf=1.0, label=1.0)
    settings: dict[str, Any] = {"n_nonzero": 1, "bounds": bounds, "fit_intercept": False}
    one = SparseRegressor(1.0, DELTA, method=FrankWolfe(1.0, n_iter=1, noise="selection"), **settings)
    request = one._request(Squared(), 6)
    found = judge_of_model(request, (6, 1), "bounded_range", None, None)
    assert isinstance(found, BoundedRange)
    # A choice is (r, 0)-DP and a little less at the model's delta.
    assert 1.0 <= found.claimed_range < 1.02
    assert found.moved == request.plan_all((6, 1))[0].plan.inexact
    steps = SparseRegressor(1.0, DELTA, method=HardThresholding(noise="gaussian"), **settings)
    whole = judge_of_model(steps._request(Squared(), 6), (6, 1), "curve", None, None)
    assert isinstance(whole, WholeCurve)
    assert whole.claim == GaussianClaim(whole.claim.mu)  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="a plan of one choice"):
        audit_model(steps, judge="bounded_range", n_features=1, runs=16)
    published = SparseRegressor(
        1.0, DELTA, method=HardThresholding(noise="gaussian"), calibration="published", **settings
    )
    with pytest.raises(ValueError, match="claims an epsilon and no range; use judge='any', or pass claimed_range"):
        audit_model(published, judge="bounded_range", n_features=1, runs=16)
