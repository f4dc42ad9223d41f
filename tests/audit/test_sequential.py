"""Audits by betting: valid at any time, quick where the violation is large, and resumed without loss."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import binom, norm
from two_worlds import Additive, Response

from tulle.audit import SequentialResult, TargetError, audit_function, audit_sequentially
from tulle.audit.betting import FRACTIONS, Bet, best_bet, growth
from tulle.audit.claimed_curves import ClaimedCurve, GaussianClaim, Profile, RangeClaim
from tulle.audit.runner import Subject
from tulle.audit.sequential import _Gambler, bet_on_runs
from tulle.trusted.events import FloatArray

X = np.zeros((4, 1))
WORLDS = ((X, np.array([0.0, 0, 0, 1])), (X, np.array([0.0, 0, 0, 0])))
PURE, GAUSSIAN, RANGE = Profile(((1.0, 0.0),)), GaussianClaim(1.0), RangeClaim(1.0)
WITH_DELTA = Profile(((1.0, 0.05),))


def bets(subject: Subject, claim: ClaimedCurve, seed: int, **change: Any) -> SequentialResult:
    return bet_on_runs(subject, claim, "two worlds", seed=seed, **change)


# --- bets ------------------------------------------------------------------------------------------------------------


def rates_at_the_boundary(claim: ClaimedCurve) -> tuple[FloatArray, FloatArray]:
    """Hit and false-hit rates of releases that keep a claim exactly, from their laws and not from the claim's curve."""
    places = np.linspace(-5, 5, 101)
    if claim is GAUSSIAN:
        return norm.cdf(places + 1.0), norm.cdf(places)
    if claim is RANGE:
        return expit(places + 1.0), expit(places)
    delta = 0.05 if claim is WITH_DELTA else 0.0
    truth = math.e / (1 + math.e)
    # Randomised response that shows the truth with probability delta; its events, and mixtures of them.
    corners = np.array([(delta, 0.0), (delta + (1 - delta) * truth, (1 - delta) * (1 - truth)), (1.0, 1 - delta)])
    mixed = np.vstack([w * corners[:-1] + (1 - w) * corners[1:] for w in np.linspace(0, 1, 50)])
    return mixed[:, 0], mixed[:, 1]


@pytest.mark.parametrize("claim", [PURE, WITH_DELTA, GAUSSIAN, RANGE], ids=repr)
def test_the_capital_does_not_grow_on_average_under_a_true_claim(claim: ClaimedCurve) -> None:
    """Summed exactly over the four outcomes of a pair of runs, for bets of every kind and releases at the boundary."""
    hit_rates, false_rates = rates_at_the_boundary(claim)
    used = 0
    for hit in (0.1, 0.5, 0.9, 0.999):
        for false in (0.001, 0.01, 0.1, 0.45):
            bet = best_bet(claim, hit, false)
            used += bet.size > 0
            mean: FloatArray = np.zeros((len(FRACTIONS), len(hit_rates)))
            for x in (False, True):
                for y in (False, True):
                    chance = np.where(x, hit_rates, 1 - hit_rates) * np.where(y, false_rates, 1 - false_rates)
                    mean += np.exp(bet.log_factors(np.array([x]), np.array([y]))) * chance
            assert mean.max() <= 1 + 1e-9
    assert used >= 8


def test_a_bet_grows_as_fast_as_the_claim_is_far_away() -> None:
    """At the rates that it is made for, the mean of the logarithm is the divergence from the nearest allowed rates."""
    for claim, hit, false in ((GAUSSIAN, 0.9, 0.2), (PURE, 0.6, 0.1), (PURE, 0.95, 0.5), (RANGE, 0.9, 0.2)):
        bet = best_bet(claim, hit, false)
        weights = np.array([(1 - hit) * (1 - false), (1 - hit) * false, hit * (1 - false), hit * false])
        outcomes = np.array([[0, 0, 1, 1], [0, 1, 0, 1]], dtype=bool)
        expected = float(growth(claim, np.array([hit]), np.array([false]), points=2_000)[0])
        assert float(bet.log_factors(*outcomes)[-1] @ weights) == pytest.approx(expected, rel=1e-3)
        assert expected > 0.005


def test_no_bet_is_made_where_the_claim_allows_the_rates() -> None:
    for claim in (PURE, GAUSSIAN, RANGE):
        assert best_bet(claim, 0.5, 0.4).size == 0
        assert float(growth(claim, np.array([0.5]), np.array([0.4]))[0]) == 0
    np.testing.assert_array_equal(Bet(0.5, 0.5, 1.0, 0.0).log_factors(np.array([True]), np.array([False])), 0)


def test_bets_are_chosen_before_the_runs_that_they_are_on() -> None:
    """Three rounds that are the same in both worlds, then one that tells them apart: nothing was bet on it."""
    gambler = _Gambler(PURE, 0.95)
    for _ in range(3):
        gambler.add(np.zeros((16, 1)), np.zeros((16, 1)))
    gambler.add(np.ones((64, 1)), np.zeros((64, 1)))
    assert gambler.history[-1] == (112, 1.0)
    gambler.add(np.ones((64, 1)), np.zeros((64, 1)))
    assert gambler.decided_after is not None
    assert gambler.decided_after > 112


def test_the_capital_is_the_average_of_the_bets() -> None:
    """Worlds that are always told apart: the product of the factors, averaged, and the first run at which it is 20."""
    gambler = _Gambler(PURE, 0.95)
    ones, zeros = np.ones((16, 1)), np.zeros((16, 1))
    gambler.add(ones, zeros)
    bet = best_bet(PURE, 8.5 / 9, 0.5 / 9)  # half of the runs chose: 8 hits of 8, and none
    factors = np.exp(bet.log_factors(np.array([True]), np.array([False])))[:, 0]
    gambler.add(ones, zeros)
    assert gambler.history[1] == (32, pytest.approx(np.mean(factors**16), rel=1e-9))
    needed = next(n for n in range(1, 17) if np.mean(factors**n) >= 20)
    assert needed > 1
    assert gambler.decided_after == 16 + needed


# --- verdicts --------------------------------------------------------------------------------------------------------

SOUND: list[tuple[Any, ClaimedCurve]] = [
    (Additive("standard_normal", 1.0), GAUSSIAN),
    (Additive("standard_normal", 1.0, 3), GAUSSIAN),
    (Additive("laplace", 1.0), PURE),
    (Additive("logistic", 1.0), RANGE),
    (Response(1.0), PURE),
    (Response(0.5), RANGE),
    (Response(1.0, 0.05), WITH_DELTA),
    (Response(1.0), Profile(((1.0, 0.0), (0.5, 0.4)))),
]


def test_sound_claims_at_their_boundary_are_refuted_no_more_often_than_stated() -> None:
    """200 audits at confidence 0.9, looked at after every run: over 36 alarms would have probability 1e-4."""
    alarms = sum(
        bets(*SOUND[number % len(SOUND)], number, confidence=0.9, most_runs=240).refuted for number in range(200)
    )
    assert binom.sf(36, 200, 0.1) < 2e-4
    assert alarms <= 36


PLANTED: list[tuple[str, Any, ClaimedCurve, int]] = [
    ("2/3 of the noise", Additive("standard_normal", 1.5), GAUSSIAN, 2_000),
    ("a third of the noise", Additive("standard_normal", 3.0), GAUSSIAN, 200),
    ("twice the sensitivity", Additive("standard_normal", 2.0), GAUSSIAN, 200),
    ("twice the epsilon", Response(2.0), PURE, 200),
    ("a delta that was forgotten", Response(1.0, 0.1), PURE, 2_000),
    ("a choice with half the noise", Response(1.0), RANGE, 2_000),
    ("a choice with a quarter of the noise", Response(2.0), RANGE, 200),
]


@pytest.mark.parametrize(("subject", "claim", "most"), [row[1:] for row in PLANTED], ids=[row[0] for row in PLANTED])
def test_planted_bugs_are_found(subject: Any, claim: ClaimedCurve, most: int) -> None:
    """Five seeds. Large violations within a tenth of the 2,000 runs that a fixed audit makes."""
    for seed in range(5):
        result = bets(subject, claim, seed, most_runs=2_000)
        assert result.refuted
        assert result.decided_after is not None
        assert result.decided_after <= min(result.runs, most)
        assert result.p_value <= 0.05 * (1 + 1e-9)


# --- functions -------------------------------------------------------------------------------------------------------


def noisy(scale: float) -> Any:
    def noisy_sum(X: Any, y: Any, rng: np.random.Generator) -> float:
        return float(y.sum() + scale * rng.standard_normal())

    return noisy_sum


def audited(fit: Any, **change: Any) -> SequentialResult:
    return audit_sequentially(fit, *WORLDS, **({"claimed_mu": 1.0, "seed": 0, "most_runs": 2_000} | change))


def test_a_result_says_how_many_runs_were_needed() -> None:
    found, sound = audited(noisy(0.5)), audited(noisy(1.0), most_runs=200)
    assert found.refuted
    assert found.capital >= 20
    assert f"THE CLAIM IS FALSE, decided after {found.decided_after} runs" in str(found)
    assert not sound.refuted
    assert "no violation was found in 1" in str(sound)
    assert sound.runs <= 200
    assert found.history[-1][0] == found.runs
    plain = json.loads(found.to_json())
    assert plain["refuted"] is True
    assert plain["decided_after"] == found.decided_after
    assert plain["history"][0] == [16, 1.0]


def same(one: SequentialResult, other: SequentialResult) -> bool:
    return replace(one, seconds=0.0, most_runs=0) == replace(other, seconds=0.0, most_runs=0)


def test_an_audit_that_was_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    """Stopped by time, or by `most_runs`: the end is that of an audit that was never stopped."""
    whole = audited(noisy(0.6))
    assert audited(noisy(0.6), folder=tmp_path / "time", seconds=0.0).runs == 16
    assert same(audited(noisy(0.6), folder=tmp_path / "time"), whole)
    for most in (24, 50, 2_000):
        by_runs = audited(noisy(0.6), folder=tmp_path / "runs", most_runs=most)
    assert same(by_runs, whole)
    assert same(audited(noisy(0.6), folder=tmp_path / "runs", seed=None), whole)
    assert same(audited(noisy(0.6), n_jobs=2), whole)


def test_a_folder_of_another_claim_is_refused(tmp_path: Path) -> None:
    audited(noisy(1.0), folder=tmp_path, most_runs=24)
    with pytest.raises(ValueError, match="contains another audit"):
        audited(noisy(1.0), folder=tmp_path, most_runs=24, claimed_mu=2.0)


def test_progress_shows_the_evidence(capsys: pytest.CaptureFixture[str]) -> None:
    audited(noisy(1.0), most_runs=24, verbose=1)
    assert "evidence 1 of 20" in capsys.readouterr().err


# --- bad input -------------------------------------------------------------------------------------------------------


def test_a_function_that_raises_loses_no_finished_round(tmp_path: Path) -> None:
    calls = [0]
    fails_at = [90]

    def fit(X: Any, y: Any, rng: np.random.Generator) -> float:
        calls[0] += 1
        if calls[0] == fails_at[0]:
            raise RuntimeError("no more memory")
        return float(y.sum() + 0.6 * rng.standard_normal())

    first_runs = 4  # of each call, and not counted
    with pytest.raises(TargetError, match="RuntimeError"):
        audited(fit, folder=tmp_path)
    calls[0], fails_at[0] = 0, 0
    resumed = audited(fit, folder=tmp_path)
    assert calls[0] == first_runs + 2 * resumed.runs - 2 * 40  # rounds of 16, 8, 8 and 8 runs were kept
    assert same(resumed, audited(fit))


@dataclass(frozen=True)
class Released:
    """Runs that are all the same in each world."""

    values: tuple[float, float]

    def fingerprint(self) -> str:
        return repr(self)

    def __call__(self, world: int, count: int, generator: np.random.Generator) -> FloatArray:
        return np.full((count, 1), self.values[world])


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_number_that_is_not_finite_can_be_the_leak(value: float) -> None:
    assert audited(lambda X, y, rng: value if y.max() and rng.random() < 0.9 else rng.normal(), most_runs=200).refuted
    assert not bets(Released((value, value)), PURE, 0, most_runs=100).refuted
    assert bets(Released((value, 0.0)), PURE, 0, most_runs=100).refuted


def test_runs_without_noise_are_refuted_only_if_they_tell_the_data_sets_apart() -> None:
    assert bets(Released((1.0, 0.0)), GAUSSIAN, 0, most_runs=100).refuted
    constant = bets(Released((1.0, 1.0)), GAUSSIAN, 0, most_runs=100)
    assert not constant.refuted
    assert constant.capital == 1.0


@pytest.mark.parametrize(
    ("where", "sequential"), [("runs", True), ("worlds", True), ("batches", True), ("runs", False), ("worlds", False)]
)
def test_answers_of_different_sizes_are_refused(where: str, sequential: bool) -> None:
    calls = [0]

    def fit(X: Any, y: Any, rng: np.random.Generator) -> Any:
        calls[0] += 1
        extra = {"runs": calls[0] % 2, "worlds": int(y.max()), "batches": int(calls[0] > 36)}[where]
        return rng.normal(size=2 + extra)

    settings: dict[str, Any] = {"claimed_mu": 1.0, "most_runs": 100} if sequential else {"delta": 0.0, "runs": 64}
    audit: Any = audit_sequentially if sequential else audit_function
    with pytest.raises(ValueError, match=r"2 (values|numbers) in one run and 3 in another"):
        audit(fit, *WORLDS, **settings)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"claimed_mu": None}, "pass one claim, one of claimed, claimed_mu, claimed_range, claimed_curve; got none"),
        ({"claimed": 1.0, "delta": 0.0}, "got claimed and claimed_mu"),
        ({"claimed": 1.0, "claimed_mu": None}, "claimed is an epsilon at a delta: pass delta"),
        ({"delta": 1e-5}, "omit delta"),
        ({"claimed_mu": math.inf}, "claimed_mu must be a number in"),
        ({"claimed_mu": None, "claimed_curve": lambda error: 1 - error}, "a list of"),
        ({"most_runs": 23}, "most_runs must be at least 24"),
        ({"most_runs": math.nan}, "most_runs must be at least 24"),
        ({"confidence": 1.0}, "confidence must lie"),
        ({"max_differing_rows": 0}, "not neighbours"),
    ],
)
def test_bad_questions_get_clear_answers_before_any_run(change: dict[str, Any], message: str) -> None:
    def never(X: Any, y: Any, rng: np.random.Generator) -> float:
        raise AssertionError("ran")

    with pytest.raises(ValueError, match=message):
        audited(never, **change)
