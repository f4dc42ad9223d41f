"""Audits by betting of models, estimators, mechanisms and channels. Seeds are fixed."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin

import tulle.audit.targets
import tulle.estimators.request
from tulle import Bounds, SparseRegressor
from tulle.accounting.calibration import calibrate
from tulle.audit import (
    Pair,
    SequentialResult,
    TargetError,
    audit_channel_sequentially,
    audit_estimator_sequentially,
    audit_mechanism_sequentially,
    audit_model,
    audit_model_sequentially,
    worst_case_pairs,
)
from tulle.audit.claimed_curves import GaussianClaim, MovedClaim, Profile, RangeClaim
from tulle.audit.judges import BoundedRange, GaussianCurve, choose_judge
from tulle.audit.sequential_targets import pilot_claim
from tulle.local.user_side.label_randomisers import GaussianLabel, RandomisedResponse
from tulle.methods import FrankWolfe, HardThresholding
from tulle.methods.loss_functions import Squared
from tulle.trusted.events import NoisePerSensitivity
from tulle.trusted.mechanisms import Gaussian, Laplace, TopK

BOUNDS = Bounds(row_l2=1.0, row_linf=1.0, label=1.0)
OPPOSITE = [one for one in worst_case_pairs(Squared(), BOUNDS.known(1), 6, 1) if "opposite labels" in one.name]
STEP = HardThresholding(noise="gaussian", n_iter=1, damping=0.0)


def small_model(method: Any = STEP, **change: Any) -> SparseRegressor:
    words: dict[str, Any] = {"n_nonzero": 1, "bounds": BOUNDS, "method": method, "fit_intercept": False} | change
    return SparseRegressor(3.0, 1e-5, **words)


def audited(model: Any = None, **change: Any) -> SequentialResult:
    words: dict[str, Any] = {"n_features": 1, "pairs": OPPOSITE, "judge": "gaussian", "most_runs": 400, "seed": 0}
    return audit_model_sequentially(small_model() if model is None else model, **words | change)


@pytest.fixture
def a_third_of_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan as before: what is drawn is less than what is billed."""
    drawn = Gaussian.release

    def release(self: Any, *arguments: Any) -> Any:
        return drawn(replace(self, noise=NoisePerSensitivity(self.noise.value / 3)), *arguments)

    monkeypatch.setattr(Gaussian, "release", release)


# --- models ----------------------------------------------------------------------------------------------------------


def test_a_model_is_tested_against_the_mu_of_its_plan() -> None:
    """The claims are those of `audit_model`. A false alarm has probability 0.05 at most, the seed drawn anew."""
    result = audited()
    mu = audit_model(small_model(), n_features=1, pairs=OPPOSITE, judge="gaussian", runs=16, seed=0).claimed_mu
    assert result.claim.startswith(f"μ = {mu!r}")
    assert not result.refuted
    assert result.runs > 300
    assert audited(judge="any", most_runs=24).claim == "(ε = 3.0, δ = 1e-05)"
    assert audited(judge="any", most_runs=24, claimed=0.5).claim == "(ε = 0.5, δ = 1e-05)"
    assert audited(judge="curve", most_runs=24, claimed_curve=[(1.0, 0.0)]).claim == "(ε = 1.0, δ = 0.0)"
    assert audited(most_runs=24, claimed_mu=2.0).claim == "μ = 2.0"


def test_a_choice_is_tested_against_its_range() -> None:
    one = audited(small_model(FrankWolfe(1.0, n_iter=1, noise="selection")), judge="bounded_range", most_runs=24)
    assert one.claim.startswith("range ")


@pytest.mark.usefixtures("a_third_of_the_noise")
def test_a_third_of_the_noise_is_found_in_a_hundred_fits() -> None:
    """A fixed audit needs the 400 of docs/audit.md."""
    for seed in range(3):
        result = audited(seed=seed)
        assert result.refuted
        assert result.decided_after is not None
        assert result.decided_after <= 100


def test_the_pilot_chooses_the_pair_and_the_folder_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resumed audit makes no second pilot, which could choose another pair."""
    pilots: list[list[str]] = []
    strongest = tulle.audit.targets._strongest_pair

    def counted(request: Any, judge: Any, pairs: Any, *given: Any) -> Pair:
        pilots.append([pair.name for pair in pairs])
        return strongest(request, judge, pairs, *given)

    monkeypatch.setattr(tulle.audit.targets, "_strongest_pair", counted)
    words: dict[str, Any] = {"pairs": None, "pilot_runs": 40, "folder": tmp_path, "seed": None}
    first = audited(most_runs=24, **words)
    assert any(name in first.pair for name in pilots[0])
    more = audited(most_runs=60, **words)
    assert len(pilots) == 1
    assert more.pair == first.pair
    assert more.history[: len(first.history)] == first.history
    with pytest.raises(ValueError, match="contains another audit"):
        audited(most_runs=60, **words | {"n_features": 2, "judge": "any"})


@pytest.mark.parametrize(
    ("model", "change", "message"),
    [
        (SparseRegressor(None), {}, "no guarantee to audit"),
        (None, {"judge": "magic"}, "judge must be"),
        (None, {"claimed": 1.0}, "judge='gaussian' tests a claim of mu-GDP"),
        (None, {"judge": "any", "claimed_mu": 1.0}, "claimed_mu is tested by"),
        (None, {"judge": "bounded_range"}, "tests a plan of one choice"),
        (small_model(bounds=None), {}, "bounds are estimated"),
        (small_model(calibration="published"), {}, "claims an epsilon and no mu"),
        (None, {"judge": "curve", "claimed_curve": lambda error: 1 - error}, "a list of"),
        (None, {"most_runs": 23}, "most_runs must be at least 24"),
        (None, {"confidence": 0.0}, "confidence must lie"),
    ],
)
def test_what_audit_model_refuses_is_refused_before_any_fit(
    monkeypatch: pytest.MonkeyPatch, model: Any, change: dict[str, Any], message: str
) -> None:
    monkeypatch.setattr(tulle.audit.targets, "collect", lambda *_: pytest.fail("a pilot was made"))
    with pytest.raises(ValueError, match=message):
        audited(model, pairs=None, **change)


def test_a_plan_with_too_little_noise_raises_and_does_not_raise_the_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        tulle.estimators.request,
        "calibrate",
        lambda releases, budget: tuple(r.scaled(0.3) for r in calibrate(releases, budget)),
    )
    with pytest.raises(RuntimeError, match="more than"):
        audited()


def test_a_model_without_power_names_the_judge_that_needs_fewer_runs() -> None:
    result = audit_model(small_model(), n_features=1, pairs=OPPOSITE, runs=64, seed=0)
    assert result.plan_mu == pytest.approx(0.719, abs=0.001)
    assert f"judge gaussian, which tests the plan's μ = {result.plan_mu:.4g}, needs " in str(result)
    assert type(result).from_dict(result.to_dict()).to_dict() == result.to_dict()
    gaussian = audit_model(small_model(), n_features=1, pairs=OPPOSITE, runs=64, judge="gaussian", seed=0)
    assert "judge gaussian, which tests" not in str(gaussian)
    unknown = audit_model(small_model(bounds=None), n_features=1, pairs=OPPOSITE, runs=16, seed=0)
    assert unknown.plan_mu is None


# --- claims with a distance ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("claim", [GaussianClaim(1.0), RangeClaim(1.0), Profile(((1.0, 0.05),))], ids=repr)
def test_a_claim_up_to_a_distance_allows_what_lies_that_far(claim: Any) -> None:
    """Rates that keep the claim, moved by the distance in the worse direction, are allowed; the lines lie above."""
    moved = MovedClaim(claim, 0.03)
    assert moved.text != claim.text
    rates = np.linspace(0, 1, 401)
    inside = rates[rates >= 0.03]
    np.testing.assert_allclose(moved.allowed(inside - 0.03), np.minimum(claim.allowed(inside) + 0.03, 1.0), atol=1e-12)
    for touched in np.linspace(0.01, 0.99, 50):
        line = moved.allowed(touched) + moved.slope(touched) * (rates - touched)
        assert np.all(line >= moved.allowed(rates) - 1e-9)


def test_the_distance_of_finite_precision_is_part_of_the_tested_curve() -> None:
    """As in the judges of a fixed size."""
    for judge in (GaussianCurve(1.0, 0.01), BoundedRange(1.0, 0.01)):
        curve = judge.curve(0.0, 0.0)
        assert isinstance(curve, MovedClaim)
        assert curve.distance == 0.01
        assert replace(judge, moved=0.0).curve(0.0, 0.0) == curve.claim
    assert choose_judge("any", delta=0.1, claimed=2.0, claimed_mu=None).curve(2.0, 0.1) == Profile(((2.0, 0.1),))


# --- estimators ------------------------------------------------------------------------------------------------------


class NoisyMean(RegressorMixin, BaseEstimator):
    """Right for rows and labels in [-1, 1] with `scale` = 2 / epsilon; noise of its own, which no seed repeats."""

    def __init__(self, scale: float = 2.0) -> None:
        self.scale = scale

    def fit(self, X: Any, y: Any) -> NoisyMean:
        noise = np.random.default_rng().laplace(scale=self.scale)
        self.coef_ = np.array([np.clip(np.clip(X[:, 0], -1, 1) * y, -1, 1).sum() + noise])
        return self


def test_an_estimator_is_audited_on_the_worst_ready_pair(tmp_path: Path) -> None:
    """A quarter of the noise is missed, or sound code refuted, with probability 0.05 at most."""
    words: dict[str, Any] = {"claimed": 1.0, "delta": 0.0, "pilot_runs": 64, "most_runs": 400}
    found = audit_estimator_sequentially(NoisyMean(0.5), folder=tmp_path, **words)
    assert found.refuted
    assert found.pair.startswith("NoisyMean, ")
    again = audit_estimator_sequentially(NoisyMean(0.5), folder=tmp_path, **words)  # not repeated by its seed
    assert replace(again, seconds=0.0) == replace(found, seconds=0.0)
    assert not audit_estimator_sequentially(NoisyMean(2.5), **words | {"most_runs": 200}).refuted


def test_bad_estimators_and_claims_are_refused() -> None:
    with pytest.raises(ValueError, match="pass one claim"):
        audit_estimator_sequentially(NoisyMean())
    with pytest.raises(ValueError, match="omit delta"):
        audit_estimator_sequentially(NoisyMean(), claimed_mu=1.0, delta=0.1, pilot_runs=-1)  # before the pilot
    with pytest.raises(TargetError, match="is no estimator"):
        audit_estimator_sequentially(3.0, claimed_mu=1.0)
    silent = type("Silent", (NoisyMean,), {"fit": lambda self, X, y: setattr(self, "coef_", 1.0) or self})
    with pytest.raises(TargetError, match="no noise, or always the same"):
        audit_estimator_sequentially(silent(), claimed_range=1.0, pilot_runs=16)


def test_a_pilot_ranks_by_the_claimed_epsilon_or_by_how_well_a_pair_is_told_apart() -> None:
    assert pilot_claim(2.0, 0.1) == {"judge": "any", "claimed": 2.0, "delta": 0.1}
    assert pilot_claim(None, None)["claimed_mu"] == 0.0


# --- mechanisms and channels -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mechanism", "true", "false"),
    [
        (Gaussian(NoisePerSensitivity(1.0)), {"claimed_mu": 1.0}, {"claimed_mu": 0.5}),
        (Laplace(NoisePerSensitivity(1.0)), {"claimed": 1.0, "delta": 0.0}, {"claimed": 0.5, "delta": 0.0}),
        (TopK(NoisePerSensitivity(2.0)), {"claimed_range": 1.0}, {"claimed_range": 0.4}),
    ],
    ids=["gaussian", "laplace", "top-k"],
)
def test_a_mechanism_keeps_its_claim_and_half_of_it_is_refuted(mechanism: Any, true: Any, false: Any) -> None:
    """A false alarm has probability 0.05 at most, the seed drawn anew."""
    assert not audit_mechanism_sequentially(mechanism, **true, most_runs=1_000, seed=0).refuted
    found = audit_mechanism_sequentially(mechanism, **false, most_runs=4_000, seed=0)
    assert found.refuted
    assert "answers one sensitivity apart" in found.pair


def test_a_mechanism_without_noise_or_without_a_claim_is_refused() -> None:
    with pytest.raises(ValueError, match="finite noise > 0"):
        audit_mechanism_sequentially(Gaussian(NoisePerSensitivity(0.0)), claimed_mu=1.0)
    with pytest.raises(ValueError, match="pass one claim"):
        audit_mechanism_sequentially(Gaussian(NoisePerSensitivity(1.0)))
    with pytest.raises(ValueError, match="omit delta"):
        audit_mechanism_sequentially(Gaussian(NoisePerSensitivity(1.0)), claimed_mu=1.0, delta=0.1)


def test_a_channel_keeps_its_epsilon_and_half_of_it_is_refuted() -> None:
    """A false alarm has probability 0.05 at most, the seed drawn anew."""
    channel = RandomisedResponse(1.0, 1.0, 2)
    sound = audit_channel_sequentially(channel, most_runs=1_000, seed=0)
    assert not sound.refuted
    assert sound.claim == "(ε = 1.0, δ = 0.0)"
    assert audit_channel_sequentially(channel, claimed=0.5, most_runs=2_000, seed=0).refuted
    with_delta = GaussianLabel(1.0, 2.0, 1e-2)
    assert audit_channel_sequentially(with_delta, most_runs=24, seed=0).claim == "(ε = 1.0, δ = 0.01)"
    with pytest.raises(ValueError, match="must have 1 numbers"):
        audit_channel_sequentially(with_delta, [1.0, 2.0])
    with pytest.raises(ValueError, match="must be finite"):
        audit_channel_sequentially(with_delta, [math.nan])
