"""The auditor: its bounds hold, it finds leaks, and it finds none in sound code."""

from __future__ import annotations

import json
import math
import runpy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import binom, binomtest

import tulle.audit.targets
import tulle.estimators.request
import tulle.trusted.curator
from tulle import Bounds, Budget, Ledger, SparseClassifier, SparseRegressor
from tulle.accounting.bounds_from_counts import allowed_hit_rate, choose_threshold
from tulle.accounting.calibration import calibrate
from tulle.accounting.gaussian_budget import gaussian_mu
from tulle.audit import (
    AuditResult,
    Pair,
    SequentialResult,
    audit_function,
    audit_mechanism,
    audit_model,
    audit_model_sequentially,
    audit_one_run,
    best_possible,
    clopper_pearson,
    epsilon_lower_bound,
    one_run_bound,
    worst_case_pairs,
)
from tulle.audit.attacks import ATTACKS, counted_verdict, strongest_verdict
from tulle.audit.judges import GaussianCurve
from tulle.audit.one_run import one_run_p_value
from tulle.audit.targets import ModelAudit, _FunctionRuns, _ModelRuns
from tulle.backends.known_bounds import KnownBounds
from tulle.estimators.request import clip_and_plan
from tulle.methods import (
    CoordinateDescent,
    FitAgain,
    FrankWolfe,
    HardThresholding,
    KnowledgeTransfer,
    ScreenRefine,
    StochasticHardThresholding,
)
from tulle.methods.loss_functions import Huber, Logistic, Loss, Softmax, Squared
from tulle.transfer.public_knowledge import read_public
from tulle.trusted.events import NoisePerSensitivity
from tulle.trusted.mechanisms import Gaussian, Laplace, Mechanism, TopK
from tulle.trusted.randomness import keyed_generator
from tulle.trusted.rows import Rows
from tulle.trusted.sampling import Sampler, Scheme

ROOT = Path(__file__).resolve().parents[2]
DELTA = 1e-5


# --- evidence --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("hits", "runs"), [(0, 10), (3, 10), (10, 10), (1, 1000), (500, 1000), (999, 1000)])
def test_clopper_pearson_equals_scipys(hits: int, runs: int) -> None:
    low, high = clopper_pearson(hits, runs, 0.025)
    interval = binomtest(hits, runs).proportion_ci(0.95, method="exact")
    np.testing.assert_allclose([low, high], [interval.low, interval.high], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("runs", [20, 100, 400])
@pytest.mark.parametrize("rates", [(0.6, 0.3), (0.2, 0.2), (0.05, 0.01), (0.999, 0.5)])
def test_the_bound_is_wrong_no_more_often_than_stated(runs: int, rates: tuple[float, float]) -> None:
    """Summed exactly over all pairs of counts: the probability of a bound above the truth is at most 1 - confidence."""
    rate, false_rate = rates
    truth = max(math.log((rate - DELTA) / false_rate), 0.0)
    counts = np.arange(runs + 1)
    hits, false_hits = np.meshgrid(counts, counts, indexing="ij")
    wrong = epsilon_lower_bound(hits, false_hits, runs, DELTA, 0.95) > truth + 1e-12
    probability = np.outer(binom.pmf(counts, runs, rate), binom.pmf(counts, runs, false_rate))
    assert probability[wrong].sum() <= 0.05


def test_a_shorter_confidence_interval_would_be_wrong_too_often() -> None:
    """The check above has teeth: hit rates taken as they are counted fail it."""
    counts = np.arange(201)
    hits, false_hits = np.meshgrid(counts, counts, indexing="ij")
    with np.errstate(divide="ignore", invalid="ignore"):
        wrong = np.log(hits / np.maximum(false_hits, 1e-9)) > math.log(2) + 1e-12
    probability = np.outer(binom.pmf(counts, 200, 0.6), binom.pmf(counts, 200, 0.3))
    assert probability[wrong].sum() > 0.3


def test_best_possible_is_what_a_perfect_attack_proves() -> None:
    assert best_possible(1000, 0.0, 0.95) == float(epsilon_lower_bound(1000, 0, 1000, 0.0, 0.95))
    assert best_possible(10_000, 0.0, 0.95) > best_possible(1000, 0.0, 0.95) > best_possible(1000, 0.5, 0.95)
    assert best_possible(1000, 0.0, 0.999) < best_possible(1000, 0.0, 0.95)


def test_a_threshold_is_chosen_where_it_proves_most() -> None:
    """Scores that tell the worlds apart above 3 only: the threshold falls there."""
    rng = np.random.default_rng(0)
    other = rng.uniform(0, 3, 5000)
    scores = np.where(rng.random(5000) < 0.2, 3.5, rng.uniform(0, 3, 5000))
    threshold, bound = choose_threshold(scores, other, 0.0, 0.95)
    assert 2.99 < threshold <= 3.5
    assert bound > 4


def test_the_allowed_curve_is_the_definition_of_privacy() -> None:
    rates = np.linspace(0, 1, 50)
    allowed = allowed_hit_rate(rates, 1.0, 0.01)
    np.testing.assert_allclose(
        allowed, np.clip(np.minimum(math.e * rates + 0.01, 1 - (1 - 0.01 - rates) / math.e), 0, 1)
    )
    assert np.all(allowed_hit_rate(rates, math.inf, 0.0) == 1.0)


# --- attacks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ATTACKS)
def test_every_attack_finds_the_leak_it_is_made_for(name: str) -> None:
    """A leak in one number, in a sum of numbers and in the support, each found by the attacks that can see it."""
    rng = np.random.default_rng(1)
    first, second = rng.standard_normal((2, 4000, 5))
    if "support" in name:
        first[:, 2] *= rng.random(4000) < 0.8
        second[:, 2] *= rng.random(4000) < 0.2
    else:
        first[:, 2] += 3.0
    score = ATTACKS[name](first[:2000], second[:2000])
    above = (score(first[2000:]) > np.median(score(second[2000:]))).mean()
    assert above > 0.75 or "support" in name
    assert score(first[2000:]).mean() > score(second[2000:]).mean() + 0.5 * score(second[2000:]).std()


def test_worlds_that_are_the_same_are_not_told_apart() -> None:
    """300 audits of equal worlds at delta = 0: a bound above 0 in 5 % at most (more than 31 have probability 1e-4)."""
    rng = np.random.default_rng(2)
    alarms = 0
    for _ in range(300):
        first, second = rng.standard_normal((2, 400, 3))
        alarms += strongest_verdict(first, second, 0.0, 0.95).epsilon > 0
    assert alarms <= 31


# --- mechanisms ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_four_million_draws_come_within_a_fifth_of_the_truth(epsilon: float) -> None:
    """The Gaussian mechanism at delta = 1e-5; an unlucky draw below 0.8 has probability below 1e-2 over seeds."""
    noise = NoisePerSensitivity(1 / gaussian_mu(epsilon, DELTA))
    result = audit_mechanism(Gaussian(noise), delta=DELTA, claimed=epsilon, runs=4_000_000, seed=7)
    assert 0.8 * epsilon <= result.epsilon <= epsilon
    assert not result.refuted


@pytest.mark.parametrize(
    ("mechanism", "epsilon", "delta"),
    [
        (Gaussian(NoisePerSensitivity(1 / gaussian_mu(1.0, DELTA))), 1.0, DELTA),
        (Laplace(NoisePerSensitivity(1.0)), 1.0, 0.0),
        (TopK(NoisePerSensitivity(2.0)), 1.0, 0.0),
    ],
    ids=["gaussian", "laplace", "top-k"],
)
def test_noise_that_is_too_small_is_refuted_and_the_right_noise_is_not(
    mechanism: Mechanism, epsilon: float, delta: float
) -> None:
    """Half the noise proves more than is claimed; the right noise does not (a false alarm has probability 1e-4)."""
    runs = 1_000_000 if isinstance(mechanism, Gaussian) else 100_000
    sound, small = (
        audit_mechanism(mechanism.scaled(f), delta=delta, claimed=epsilon, runs=runs, confidence=0.9999, seed=1)
        for f in (1.0, 0.5)
    )
    assert not sound.refuted
    assert sound.epsilon > 0.6 * epsilon
    assert small.refuted


# --- your own function -----------------------------------------------------------------------------------------------

X = np.zeros((4, 1))
WORLDS = ((X, np.array([0.0, 0, 0, 1])), (X, np.array([0.0, 0, 0, 0])))


def noisy_sum(X: Any, y: Any, rng: np.random.Generator) -> float:
    return float(y.sum() + rng.laplace(scale=2.0))


def leaky_sum(X: Any, y: Any, rng: np.random.Generator) -> Any:
    return [y.sum() + rng.laplace(scale=2.0), y.max()]


def test_a_sound_function_passes_and_a_leaky_one_does_not() -> None:
    """Laplace noise of scale 2 on a sum that moves by 1 is 0.5-DP; its maximum beside it gives everything away."""
    sound = audit_function(noisy_sum, *WORLDS, delta=0.0, claimed=0.5, runs=20_000, seed=0)
    leaky = audit_function(leaky_sum, *WORLDS, delta=0.0, claimed=0.5, runs=2_000, seed=0)
    assert 0.2 < sound.epsilon <= 0.5
    assert not sound.refuted
    assert leaky.refuted
    assert leaky.epsilon > 0.99 * leaky.best_possible


def test_jobs_and_interruptions_do_not_change_the_result(tmp_path: Path) -> None:
    """One process, two processes, and a run that was stopped early and resumed: the same bound from one seed."""
    arguments: dict[str, Any] = {"delta": 0.0, "runs": 2_000, "seed": 3}
    plain = audit_function(noisy_sum, *WORLDS, **arguments)
    parallel = audit_function(noisy_sum, *WORLDS, n_jobs=2, **arguments)
    stopped = audit_function(noisy_sum, *WORLDS, seconds=0.0, folder=tmp_path / "audit", **arguments)
    finished_batches = len(list((tmp_path / "audit").glob("*.npy")))
    resumed = audit_function(noisy_sum, *WORLDS, folder=tmp_path / "audit", **arguments)
    assert plain.epsilon == parallel.epsilon == resumed.epsilon
    assert stopped.runs < plain.runs
    assert 0 < finished_batches < len(list((tmp_path / "audit").glob("*.npy")))


def test_a_folder_of_another_audit_is_refused(tmp_path: Path) -> None:
    audit_function(noisy_sum, *WORLDS, delta=0.0, runs=16, seed=1, folder=tmp_path)
    with pytest.raises(ValueError, match="contains another audit"):
        audit_function(noisy_sum, *WORLDS, delta=0.0, runs=16, seed=2, folder=tmp_path)
    with pytest.raises(ValueError, match="contains another audit"):
        audit_function(leaky_sum, *WORLDS, delta=0.0, runs=16, folder=tmp_path)
    with pytest.raises(ValueError, match="contains another audit"):  # going on until a claim falls is not one look
        audit_function(noisy_sum, *WORLDS, delta=0.0, runs=32, seed=1, folder=tmp_path)
    with pytest.raises(ValueError, match="contains another audit"):
        audit_function(noisy_sum, WORLDS[0], (X, np.array([0.0, 0, 1, 1])), delta=0.0, runs=16, folder=tmp_path)


def test_a_folder_tells_models_and_functions_of_one_name_apart(tmp_path: Path) -> None:
    """The same estimator at another epsilon, and another function under the same name, are other subjects."""
    arguments: dict[str, Any] = {"runs": 16, "pilot_runs": 16, "n_features": 1, "seed": 1, "folder": tmp_path / "model"}
    pairs = worst_case_pairs(Squared(), BOUNDS.known(1), 6, 1)[:1]
    audit_model(small_model(), pairs=pairs, **arguments)
    with pytest.raises(ValueError, match="contains another audit"):
        audit_model(small_model().set_params(epsilon=50.0), pairs=pairs, **arguments)

    def noisy_sum(X: Any, y: Any, rng: np.random.Generator) -> float:
        return float(y.sum() + rng.normal())

    another = noisy_sum
    folder = tmp_path / "function"
    audit_function(lambda X, y, rng: rng.normal(), *WORLDS, delta=0.0, runs=16, seed=1, folder=folder)
    with pytest.raises(ValueError, match="contains another audit"):
        audit_function(another, *WORLDS, delta=0.0, runs=16, seed=1, folder=folder)


def test_a_fingerprint_survives_the_process_and_sees_the_code() -> None:
    """Functions compiled anew from the same text, inner functions included, are one subject; another text is not."""

    def fingerprint(text: str) -> str:
        space: dict[str, Any] = {"__name__": "script"}
        exec(f"def fit(X, y, rng):\n    return sum({text} for v in y)", space)
        return _FunctionRuns(space["fit"], WORLDS).fingerprint()

    assert fingerprint("v") == fingerprint("v") != fingerprint("v + 1")


@pytest.mark.parametrize("noise", [0.0, math.inf])
def test_a_mechanism_without_noise_or_without_answer_is_refused(noise: float) -> None:
    with pytest.raises(ValueError, match="finite noise > 0"):
        audit_mechanism(Gaussian(NoisePerSensitivity(noise)), delta=DELTA)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_number_that_is_not_finite_can_be_the_leak(value: float) -> None:
    result = audit_function(
        lambda X, y, rng: value if y.max() else rng.normal(), *WORLDS, delta=0.0, claimed=1.0, runs=400
    )
    assert result.refuted


def test_sparse_rows_reach_the_function_as_they_are() -> None:
    sparse = sp.csr_array(np.eye(4))
    changed = sparse.copy()
    changed.data[0] = 2.0
    seen: list[bool] = []

    def fit(X: Any, y: Any, rng: np.random.Generator) -> float:
        seen.append(sp.issparse(X))
        return float(X.sum() + 0.01 * rng.normal())

    y = np.zeros(4)
    assert audit_function(fit, (sparse, y), (changed, y), delta=0.0, claimed=1.0, runs=200).refuted
    assert all(seen)
    with pytest.raises(ValueError, match="not neighbours"):
        audit_function(fit, (sparse, y), (2 * sparse, y), delta=0.0, runs=16)


def test_the_curve_of_a_sound_choice_stays_below_what_is_allowed() -> None:
    """Scores that tie are counted alike in both worlds: beyond sampling error no point passes the allowed curve."""
    for mechanism in (TopK(NoisePerSensitivity(2.0)), Laplace(NoisePerSensitivity(1.0))):
        result = audit_mechanism(mechanism, delta=0.0, claimed=1.0, runs=50_000, seed=0)
        slack = 5 / np.sqrt(np.maximum(result.false_rates, 1e-3) * 50_000)
        assert np.all(result.hit_rates <= allowed_hit_rate(result.false_rates * (1 + slack), 1.0, 0.0) * (1 + slack))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"second": (X, np.array([1.0, 1, 1, 1]))}, "differ in 3 rows and are not neighbours"),
        ({"second": (np.zeros((3, 1)), np.zeros(3))}, "differ in shape"),
        ({"confidence": 1.0}, "confidence must lie"),
        ({"delta": 1.0}, "delta must lie"),
        ({"runs": 4}, "needs at least 8 runs"),
    ],
)
def test_bad_questions_get_clear_answers(change: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"first": WORLDS[0], "second": WORLDS[1], "delta": 0.0, "runs": 16} | change
    with pytest.raises(ValueError, match=message):
        audit_function(noisy_sum, **arguments)


def test_several_rows_may_differ_if_a_person_has_several() -> None:
    second = (X, np.array([1.0, 1, 0, 1]))
    audit_function(noisy_sum, WORLDS[0], second, delta=0.0, runs=16, max_differing_rows=2)


def test_the_worlds_of_the_dpsl_kt_example_meet_the_assumptions_of_the_paper() -> None:
    """One label differs, the design is perfectly conditioned, and still the teacher changes its feature.

    The teacher is the global minimiser over one-sparse weights, by brute force. From the answers that the paper would
    release, Gaussian noise of its sigma on 1000 rows, nobody could prove less than epsilon = 100 at the same delta.
    """
    example = runpy.run_path(str(ROOT / "examples" / "audit_dpsl_kt.py"))
    (X, y), (X_other, y_other) = example["neighbours"]()
    assert (X_other == X).all()
    assert (y != y_other).sum() == 1
    np.testing.assert_array_equal(X.T @ X / len(X), np.eye(2))  # the paper's assumptions hold with all constants 1
    answers = np.random.default_rng(0).uniform(-1, 1, (len(X), 2))
    for method, curvature, gamma in ((example["PUBLISHED"], 1.0, 1.5), (example["UNPENALISED"], 0.0, 2.0)):
        assert (method.penalty, method.gradient_bound) == (curvature, gamma)
        teachers = []
        for labels in (y, y_other):
            options = [(X[:, j] @ labels / len(X) / (1 + curvature), j) for j in (0, 1)]
            values = [np.mean((labels - w * X[:, j]) ** 2) / 2 + curvature * w**2 / 2 for w, j in options]
            w, j = options[int(np.argmin(values))]
            teachers.append(w * np.eye(2)[j])
            # No entry of a gradient at the teacher is larger than gamma says.
            assert np.abs(X * (X @ teachers[-1] - labels)[:, None]).max() <= gamma
        moved = float(np.linalg.norm(teachers[0] - teachers[1]))
        covered = 2 * gamma / (len(X) * (curvature or 1.0))
        assert moved > 100 * covered
        sigma = math.sqrt(2 * math.log(2.5 / 1e-5)) * covered * math.sqrt(len(X) / 3)
        mu = float(np.linalg.norm(answers @ (teachers[0] - teachers[1]))) / sigma
        assert mu > gaussian_mu(100.0, 1e-5)


@pytest.mark.parametrize("name", ["published", "unpenalised"])
def test_dpsl_kt_as_published_is_refuted(name: str) -> None:
    """Claimed (1, 1e-5): audited above 2 from the student's two numbers alone, and no run is guessed wrong.

    Were the claim true the bound would exceed 1 with probability 0.05 at most, the seed drawn anew.
    """
    example = runpy.run_path(str(ROOT / "examples" / "audit_dpsl_kt.py"))
    result = example["audit"](example[name], runs=64, n_jobs=1, seed=0)
    assert result.claimed == 1.0
    assert result.refuted
    assert result.epsilon > 2


def test_the_sound_variant_withstands_the_same_attack() -> None:
    """The bound exceeds the promised 1 with probability 0.05 at most, the seed drawn anew."""
    example = runpy.run_path(str(ROOT / "examples" / "audit_dpsl_kt.py"))
    result = example["audit"](example["sound"], runs=400, n_jobs=1, seed=0)
    assert not result.refuted
    assert result.epsilon < 1


# --- models ----------------------------------------------------------------------------------------------------------

BOUNDS = Bounds(row_l2=1.0, row_linf=1.0, label=1.0)


# The pair that tells most on one feature: where it is given, no pilot has to look for it.
OPPOSITE = [one for one in worst_case_pairs(Squared(), BOUNDS.known(1), 6, 1) if "opposite labels" in one.name]


# Bets refute a true claim with probability 1e-5 at most, whatever the seed; large violations show in a hundred runs.
SURE = 1 - 1e-5


def less_noise(factor: float, release: str | None = None) -> Callable[..., Any]:
    """`calibrate` with a part of the noise, of one release or of all of them; the bill as before."""

    def damaged(releases: Any, budget: Budget) -> Any:
        return tuple(r.scaled(factor) if release in (None, r.name) else r for r in calibrate(releases, budget))

    return damaged


def bet_on_model(
    model: Any, pairs: list[Pair], monkeypatch: pytest.MonkeyPatch, damage: Callable[..., Any], most_runs: int = 500
) -> SequentialResult:
    """Bets against the mu of the sound plan, with the fits of a damaged one."""
    unknown = dict.fromkeys(("claimed", "claimed_mu", "claimed_range", "claimed_curve"))
    judge = ModelAudit.of(model, 6, pairs[0].X.shape[1], pairs, "gaussian", **unknown).judge
    assert isinstance(judge, GaussianCurve)
    words: dict[str, Any] = {"judge": "gaussian", "claimed_mu": judge.claimed_mu, "confidence": SURE, "seed": 0}
    with monkeypatch.context() as patch:
        patch.setattr(tulle.estimators.request, "calibrate", damage)
        return audit_model_sequentially(model, pairs=pairs, most_runs=most_runs, **words)


def small_model(noise: Any = "gaussian", **parameters: Any) -> SparseRegressor:
    method = HardThresholding(noise=noise, **parameters)
    return SparseRegressor(1.0, DELTA, n_nonzero=1, bounds=BOUNDS, method=method, fit_intercept=False)


@pytest.mark.parametrize(
    ("noise", "n_features", "pair"),
    [("gaussian", 1, "opposite"), ("selection", 6, "one feature lifted and all others lowered")],
)
def test_hard_thresholding_keeps_its_promise_and_the_audit_is_awake(noise: str, n_features: int, pair: str) -> None:
    """The fast version of examples/audit_tulle.py: no violation at (3, 1e-5), and a bound that is not zero.

    At 3 a tenth of the runs shows more than at 1. The selection spends nearly all of its cost on choosing one feature
    of 6, so the attack is on the choice.
    """
    method = HardThresholding(noise=noise, selection_share=0.95, damping=0.0, n_iter=1)  # type: ignore[arg-type]
    bounds = Bounds(row_linf=1.0, label=1.0)
    model = SparseRegressor(3.0, DELTA, n_nonzero=1, bounds=bounds, method=method, fit_intercept=False)
    pairs = [one for one in worst_case_pairs(Squared(), bounds.known(n_features), 6, n_features) if pair in one.name]
    result = audit_model(model, n_features=n_features, runs=1_500, pilot_runs=100, pairs=pairs, seed=0)
    assert 0.3 < result.epsilon <= 3.0


ONE_STEP = {
    "vertex": FrankWolfe(1.0, n_iter=1, noise="selection"),
    "select": CoordinateDescent(1, noise="selection", selection_share=0.02),
    "gradient": CoordinateDescent(1, noise="gaussian"),
}


def one_step_model(method: Any) -> SparseRegressor:
    return SparseRegressor(1.0, DELTA, n_nonzero=1, bounds=BOUNDS, method=method, fit_intercept=False)


@pytest.mark.parametrize("method", ONE_STEP.values(), ids=ONE_STEP)
def test_the_l1_family_keeps_its_promise_and_the_audit_is_awake(method: Any) -> None:
    """One step on one feature: a choice between two vertices, a value after a choice that leaves none, a gradient."""
    model = one_step_model(method).set_params(epsilon=3.0)
    result = audit_model(model, n_features=1, runs=1_000, pairs=OPPOSITE, seed=0)
    assert 0.3 < result.epsilon <= 3.0


@pytest.mark.parametrize("method", ONE_STEP.values(), ids=ONE_STEP)
def test_a_step_of_the_l1_family_with_too_little_noise_is_found(monkeypatch: pytest.MonkeyPatch, method: Any) -> None:
    """A fifth of the noise, the bill as before; with all of it the same bets refute nothing."""
    assert bet_on_model(one_step_model(method), OPPOSITE, monkeypatch, less_noise(0.2)).refuted
    assert not bet_on_model(one_step_model(method), OPPOSITE, monkeypatch, calibrate, 250).refuted


@pytest.mark.parametrize("perturbation", ["output", "objective"])
def test_a_private_teacher_keeps_its_promise_and_the_audit_is_awake(
    monkeypatch: pytest.MonkeyPatch, perturbation: Any
) -> None:
    """Noise once, on the minimiser or on its objective; a tenth of it is found out, the bill as before."""
    model = one_step_model(KnowledgeTransfer("dense", perturbation=perturbation)).set_params(epsilon=3.0)
    result = audit_model(model, n_features=1, runs=1_000, pairs=OPPOSITE, seed=0)
    assert 0.3 < result.epsilon <= 3.0
    assert bet_on_model(model, OPPOSITE, monkeypatch, less_noise(0.1)).refuted


def on_batches(scheme: Scheme, n: int, batch: int, steps: int, claim: float) -> tuple[SparseRegressor, Pair]:
    """Steps from 0 on random batches of one feature; one row is like all others, or pulls against them all."""
    method = StochasticHardThresholding(batch=batch, passes=steps * batch / n, sampling=scheme, step=1.0)
    rest, X = np.full(n - 1, -1.0), np.ones((n, 1))
    pair = Pair("a row against or with all others", X, np.r_[1.0, rest], X, np.r_[-1.0, rest])
    # A large delta: what tells batches with a row from batches without it is rare.
    return one_step_model(method).set_params(epsilon=claim, delta=0.01), pair


@pytest.mark.parametrize(("scheme", "steps"), [("poisson", 1), ("without_replacement", 1), ("shuffled", 2)])
def test_steps_on_random_batches_keep_their_promise_and_the_audit_is_awake(scheme: Scheme, steps: int) -> None:
    """Two rows of four, each scheme with its own noise; of shuffled rows both batches."""
    model, pair = on_batches(scheme, 4, 2, steps, 3.0)
    result = audit_model(model, n_features=1, runs=1_500, pilot_runs=16, pairs=[pair], seed=0)
    assert 0.2 < result.epsilon <= 3.0


def audited_step(runs: int) -> float:
    """The epsilon of one step on one row of ten, claimed 1 for Poisson batches, by how often it is large.

    Large is three standard deviations above where it lies if the row in the batch is one of the others.
    """
    model, pair = on_batches("poisson", 10, 1, 1, 1.0)
    request = model._request(Squared(), 10)
    planned = clip_and_plan(request, Rows(*pair.world(0)), (10, 1), {})
    public, plan = planned.public, planned.plan
    bound = request.method.settings(public).clip
    large = -bound + 3 * plan.releases[0].mechanism.noise.value * 2 * bound
    scores = [_ModelRuns(request, pair)(world, runs, keyed_generator(0, (world,)))[:, 1] for world in (0, 1)]
    return counted_verdict("large", scores[0], scores[1], large, 0.01, 0.99).epsilon


def test_runs_of_one_plan_end_with_all_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an attack looks at holds every weight that was released, the intercept's included."""
    model, pair = on_batches("poisson", 10, 1, 1, 1.0)
    request = model._request(Squared(), 10)
    weights = np.array([[1.25], [-3.5]])
    monkeypatch.setattr(tulle.audit.targets, "run_plan", lambda *_: weights)
    np.testing.assert_array_equal(_ModelRuns(request, pair)(0, 3, keyed_generator(0)), [[0.0, 1.25, -3.5]] * 3)


def test_batches_of_a_fixed_size_with_the_noise_of_poisson_batches_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that is drawn takes another one's place: the sum moves by two bounds, and the noise covers one.

    Claimed 1 and really 6.5. Whoever shuffles rows, or draws fixed numbers of them, and takes the noise from an
    accountant of Poisson batches does this. A false alarm has probability 1e-2, a miss less than 1e-3.
    """
    assert audited_step(1_500) <= 1.0
    monkeypatch.setattr(
        tulle.trusted.curator, "Sampler", lambda sampling: Sampler(replace(sampling, scheme="without_replacement"))
    )
    assert audited_step(1_500) > 1.0


@pytest.mark.parametrize(
    "damage",
    [
        less_noise(0.2),
        lambda releases, budget: calibrate(releases, Budget(6.0, budget.delta)),
    ],
    ids=["a fifth of the noise", "calibrated to another budget"],
)
def test_noise_that_is_too_small_is_found_through_a_whole_fit(
    monkeypatch: pytest.MonkeyPatch, damage: Callable[..., Any]
) -> None:
    assert bet_on_model(small_model(), OPPOSITE, monkeypatch, damage).refuted


def test_a_whole_fit_with_all_of_its_noise_passes_the_same_bets(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not bet_on_model(small_model(), OPPOSITE, monkeypatch, calibrate, 250).refuted


# Nearly all of the cost in the refinement of one feature, or in the choice of one among 6.
REFINING = ScreenRefine(1, "selection", screening_share=0.02, start_share=0.0, rescale_share=0.0)
CHOOSING = ScreenRefine(1, "selection", screening_share=0.95, start_share=0.0, rescale_share=0.0)


def screen_refine(epsilon: float, method: ScreenRefine, n_features: int, pair: str) -> tuple[Any, list[Pair]]:
    bounds = Bounds(row_linf=1.0)
    model = SparseClassifier(epsilon, DELTA, n_nonzero=1, bounds=bounds, method=method, fit_intercept=False)
    pairs = worst_case_pairs(Logistic(), bounds.known(n_features), 6, n_features)
    return model, [one for one in pairs if pair in one.name]


@pytest.mark.parametrize(
    ("method", "n_features", "pair"),
    [
        pytest.param(REFINING, 1, "one row against all others", id="refinement"),
        pytest.param(CHOOSING, 6, "one feature lifted and all others lowered", id="choice"),
    ],
)
def test_screen_refine_keeps_its_promise_and_the_audit_is_awake(
    method: ScreenRefine, n_features: int, pair: str
) -> None:
    """The fast version of examples/audit_tulle.py: no violation at (3, 1e-5), and a bound that is not zero."""
    model, pairs = screen_refine(3.0, method, n_features, pair)
    result = audit_model(model, n_features=n_features, runs=1_500, pairs=pairs, seed=0)
    assert 0.3 < result.epsilon <= 3.0


@pytest.mark.parametrize(
    ("method", "n_features", "pair", "release"),
    [
        pytest.param(REFINING, 1, "one row against all others", "refine", id="refinement"),
        pytest.param(CHOOSING, 6, "one feature lifted and all others lowered", "select", id="choice"),
    ],
)
def test_a_part_of_screen_refine_with_too_little_noise_is_found(
    monkeypatch: pytest.MonkeyPatch, method: ScreenRefine, n_features: int, pair: str, release: str
) -> None:
    """A fifth of the noise of one release, the others sound; with all of it the same bets refute nothing."""
    case = screen_refine(1.0, method, n_features, pair)
    assert bet_on_model(*case, monkeypatch, less_noise(0.2, release)).refuted
    assert not bet_on_model(*case, monkeypatch, calibrate, 250).refuted


def fit_with_public_rows(pair: str) -> tuple[Any, list[Pair]]:
    """The default method at epsilon = 1 with public rows in two directions, on either path after its check."""
    public = read_public(np.random.default_rng(0).standard_normal((40, 2)) * np.array([1.0, 0.3]), 2)
    method, bounds = FitAgain(rescale_share=0.0).with_public(public), Bounds(row_l2=1.0)
    model = SparseClassifier(1.0, DELTA, n_nonzero=1, bounds=bounds, method=method, fit_intercept=False)
    return model, [one for one in worst_case_pairs(Logistic(), bounds.known(2), 6, 2) if pair in one.name]


# A row of no length or of the largest moves the check, and opposite rows move the fit. The fit after it starts from a
# noisy centre, in which an attack that is not told the centre sees nothing: tests/sensitivity_replay.py does.
PUBLIC_PARTS = [("check", "far beyond the bounds"), ("fit", "opposite rows")]


@pytest.mark.parametrize("pair", sorted({pair for _, pair in PUBLIC_PARTS}))
def test_fit_again_with_public_rows_keeps_its_promise(pair: str) -> None:
    """All answers are seen: those to the check, the fit on either path and the fit that follows."""
    model, pairs = fit_with_public_rows(pair)
    assert not audit_model(model, n_features=2, runs=300, pairs=pairs, seed=0).refuted


@pytest.mark.parametrize(("release", "pair"), PUBLIC_PARTS)
def test_a_part_of_a_fit_with_public_rows_with_too_little_noise_is_found(
    monkeypatch: pytest.MonkeyPatch, release: str, pair: str
) -> None:
    """A hundredth of the noise of one release, the others sound."""
    assert bet_on_model(*fit_with_public_rows(pair), monkeypatch, less_noise(0.01, release), 300).refuted


@pytest.mark.parametrize(
    "method",
    [ScreenRefine(noise="gaussian"), ScreenRefine(noise="gaussian", refinement="statistics")],
    ids=["objective", "statistics"],
)
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_answers_whose_shape_varies_can_be_audited(method: ScreenRefine, fit_intercept: bool) -> None:
    """A score that the grid rounds to zero leaves a feature out, and the refinement of the others is shorter."""
    model = SparseRegressor(1.0, DELTA, n_nonzero=1, bounds=BOUNDS, method=method, fit_intercept=fit_intercept)
    assert not audit_model(model, n_features=1, runs=60, pilot_runs=8, seed=0).refuted


def test_bounds_taken_from_the_data_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted classic: rows are not clipped, so a row far beyond the bound shouts through the noise."""
    monkeypatch.setattr(KnownBounds, "clip", lambda self, rows, loss: None)
    monkeypatch.setattr("tulle.trusted.clipped_sum.ClippedSum._clip", lambda self, slopes, block: slopes)
    result = audit_model(small_model(), n_features=1, runs=250, pilot_runs=60, seed=0)
    assert result.refuted
    assert "far beyond the bounds" in result.pair


def test_undeclared_bounds_and_classifiers_are_audited_too() -> None:
    regressor = SparseRegressor(1.0, DELTA, n_nonzero=1)
    classifier = SparseClassifier(1.0, DELTA, n_nonzero=1, bounds=Bounds(row_l2=1.0))
    for model in (regressor, classifier):
        assert not audit_model(model, runs=60, pilot_runs=8, seed=0).refuted


def test_pairs_that_are_no_neighbours_are_refused() -> None:
    with pytest.raises(ValueError, match="not neighbours"):
        Pair("all rows", np.zeros((3, 1)), np.zeros(3), np.ones((3, 1)), np.zeros(3))
    with pytest.raises(ValueError, match="at least 3 rows"):
        worst_case_pairs(Squared(), BOUNDS.known(1), 2, 1)


def test_an_audit_bills_no_ledger() -> None:
    """Its rows are made up: declared or estimated bounds, nothing of anybody's is spent."""
    with Ledger(Budget(1.0, DELTA)) as ledger:
        for bounds in (BOUNDS, None):
            audit_model(small_model().set_params(bounds=bounds), runs=16, pilot_runs=8, seed=0)
    assert ledger.fits == []


def test_a_model_without_a_budget_cannot_be_audited() -> None:
    with pytest.raises(ValueError, match="no guarantee to audit"):
        audit_model(SparseRegressor(None))


@pytest.mark.parametrize("loss", [Squared(), Huber(), Logistic(), Softmax(3)])
def test_worst_case_pairs_are_neighbours_within_reach_of_every_bound(loss: Loss) -> None:
    """They differ in the first row at most, hold two labels at least, and reach the row bound."""
    known = KnownBounds(2.0, 1.5, 3.0, False)
    pairs = worst_case_pairs(loss, known, 6, 3)
    assert len({pair.name for pair in pairs}) == len(pairs) >= 8
    for pair in pairs:
        np.testing.assert_array_equal(pair.X[1:], pair.X_other[1:])
        np.testing.assert_array_equal(pair.y[1:], pair.y_other[1:])
        assert len(np.unique(pair.y[1:])) >= 2
        assert (pair.X[0] != pair.X_other[0]).any() or pair.y[0] != pair.y_other[0]
    assert max(np.abs(pair.X[0]).max() for pair in pairs) > 1e5
    assert any(np.abs(pair.X[0]).max() == 1.5 for pair in pairs)
    assert any((pair.X[0] == 0).all() for pair in pairs)


# --- one run ---------------------------------------------------------------------------------------------------------


def test_the_p_value_without_delta_is_a_binomial_tail() -> None:
    assert one_run_p_value(100, 50, 40, 1.0, 0.0) == pytest.approx(binom.sf(39, 50, math.e / (1 + math.e)))
    assert one_run_p_value(100, 50, 40, 1.0, 1e-4) > one_run_p_value(100, 50, 40, 1.0, 0.0)
    assert one_run_p_value(100, 50, 40, 2.0, 1e-4) > one_run_p_value(100, 50, 40, 1.0, 1e-4)


def test_one_run_bounds_grow_with_right_guesses() -> None:
    bounds = [one_run_bound(1000, 300, right, 1e-5, 0.95) for right in (150, 200, 250, 300)]
    assert bounds[0] == 0.0
    assert bounds == sorted(bounds)
    assert one_run_p_value(1000, 300, 250, bounds[2] + 1e-6, 1e-5) > 0.05


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"guesses": 0}, "guesses must be an even number"),
        ({"guesses": 7}, "guesses must be an even number"),
        ({"guesses": 100}, "guesses must be an even number"),
        ({"delta": -0.1}, "delta must lie in"),
        ({"score": lambda out: out[:3]}, "one number per row"),
    ],
)
def test_bad_one_run_audits_get_clear_answers(change: dict[str, Any], message: str) -> None:
    rows = np.zeros((30, 1))
    arguments: dict[str, Any] = {"score": lambda out: out, "delta": 0.0} | change
    with pytest.raises(ValueError, match=message):
        audit_one_run(lambda X, y, rng: y, (rows, np.ones(30)), (rows, np.zeros(30)), **arguments)


def test_one_run_finds_randomised_response_out_within_its_epsilon() -> None:
    """epsilon = 1 on 3,000 bits: the bound passes 1 in 5 % of 40 runs (more than 8: probability 4e-4), and is near."""
    m, keep = 3_000, math.e / (1 + math.e)

    def respond(X: Any, y: Any, rng: np.random.Generator) -> Any:
        return np.where(rng.random(m) < keep, y, 1 - y)

    rows = np.zeros((m, 1))
    results = [
        audit_one_run(
            respond, (rows, np.ones(m)), (rows, np.zeros(m)), lambda out: out, delta=0.0, claimed=1.0, seed=seed
        )
        for seed in range(40)
    ]
    assert sum(result.refuted for result in results) <= 8
    assert np.median([result.epsilon for result in results]) > 0.75


def test_one_run_refutes_a_model_with_a_tenth_of_the_noise() -> None:
    """400 canaries, each a feature of its own with either label: sound noise passes, too little is found."""
    m = 400

    def fit(scale: float) -> Callable[[Any, Any, np.random.Generator], Any]:
        def run(X: Any, y: Any, rng: np.random.Generator) -> Any:
            return X.T @ y / m + scale * (2 / m / gaussian_mu(1.0, DELTA)) * rng.standard_normal(m)

        return run

    versions = (np.eye(m), np.ones(m)), (np.eye(m), -np.ones(m))
    sound, small = (
        audit_one_run(fit(scale), *versions, lambda w: w, delta=DELTA, claimed=1.0, seed=0) for scale in (1.0, 0.1)
    )
    assert not sound.refuted
    assert small.refuted


# --- results ---------------------------------------------------------------------------------------------------------


def test_a_result_is_a_table_json_and_a_picture(tmp_path: Path) -> None:
    result = audit_mechanism(Gaussian(NoisePerSensitivity(1.0)), delta=DELTA, claimed=1.0, runs=50_000, seed=0)
    assert result.refuted
    text = str(result)
    for word in ("THE CLAIM IS FALSE", "confidence 0.95", "likelihood ratio", "50,000 on each data set", "largest ε"):
        assert word in text
    plain = json.loads(result.to_json())
    assert plain["epsilon"] == result.epsilon
    assert plain["refuted"] is True
    assert len(plain["hit_rates"]) == len(plain["false_rates"]) > 20
    for suffix in ("png", "svg"):
        result.plot(tmp_path / f"audit.{suffix}")
        assert (tmp_path / f"audit.{suffix}").stat().st_size > 5_000


def test_a_result_without_a_claim_refutes_nothing() -> None:
    result = AuditResult(3.0, 0.0, 0.95, None, "attack", "pair", 100, 4.0, 1.0)
    assert not result.refuted
    assert "nothing was claimed" in str(result)


def test_verbose_shows_progress(capsys: pytest.CaptureFixture[str]) -> None:
    audit_function(noisy_sum, *WORLDS, delta=0.0, runs=64, verbose=1)
    assert "batches" in capsys.readouterr().err


def test_streams_of_the_two_worlds_differ() -> None:
    """World and batch number key the noise: no run repeats another's."""
    draws = [keyed_generator(5, (world, index)).random() for world in (0, 1) for index in range(10)]
    assert len(set(draws)) == 20
