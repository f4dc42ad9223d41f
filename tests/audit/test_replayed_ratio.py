"""The likelihood ratio of whole fits, by replay."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import joblib
import numpy as np
import pytest
from scipy.stats import norm

from tulle import Bounds, PrivatePipeline, SparseRegressor
from tulle.accounting.gaussian_budget import gaussian_mu
from tulle.audit import TargetError, audit_function, audit_model, worst_case_pairs
from tulle.audit.replayed_ratio import RatioRecording, ReplayedRuns, _refused_searches
from tulle.fast.sparse_weights import SparseWeights
from tulle.methods import HardThresholding
from tulle.methods.gradient_queries import BatchGradient
from tulle.methods.loss_functions import Squared
from tulle.preprocessing import PrivateScaler
from tulle.trusted.curator import Curator
from tulle.trusted.events import NoisePerSensitivity
from tulle.trusted.facts import PublicFacts
from tulle.trusted.mechanisms import Gaussian, ObjectivePerturbation, SampledGaussian, Sensitivity
from tulle.trusted.plan import Budget, Plan, Release
from tulle.trusted.randomness import keyed_generator
from tulle.trusted.rows import Rows
from tulle.trusted.sampling import Sampler, Sampling
from tulle.tuning.best_of_trials import TrialCount

DELTA = 1e-5
ONE_STEP = HardThresholding(noise="gaussian", n_iter=1, damping=0.0)
X = np.zeros((4, 1))
FIRST, SECOND = (X, np.array([1.0, 0.0, 0.0, 0.0])), (X, np.zeros(4))
RATIO: dict[str, Any] = {"delta": DELTA, "judge": "gaussian", "attack": "likelihood_ratio"}


def far_rows() -> tuple[Any, Any]:
    made = worst_case_pairs(Squared(), Bounds(row_linf=1.0, label=1.0).known(1), 6, 1, special=True)
    (pair,) = [one for one in made if one.name == "opposite rows and a label far beyond the bounds"]
    return pair.world(0), pair.world(1)


def noisy_sum(X: Any, y: Any, rng: np.random.Generator, noise: float = 2.0, seen: list[float] | None = None) -> Any:
    exact = np.array([[y.sum()]])
    answer = Gaussian(NoisePerSensitivity(noise)).release(exact, Sensitivity(l2=1.0), rng, None)
    if seen is not None:
        seen.append(float(answer[0, 0]))
    return answer


@pytest.mark.parametrize("world", [0, 1])
def test_the_ratio_is_that_of_two_densities_of_the_recorded_answer(world: int) -> None:
    """Also where the run was on the second data set: the ratio is of the first over the second."""
    seen: list[float] = []
    runs = ReplayedRuns(partial(noisy_sum, seen=seen), (FIRST, SECOND))(world, 3, keyed_generator(1))
    assert seen[::3] == seen[1::3] == seen[2::3]  # played with the same answers, on both data sets
    assert len(set(seen)) == 3  # and each run has noise of its own
    expected = [norm.logpdf(one, 1.0, 2.0) - norm.logpdf(one, 0.0, 2.0) for one in seen[::3]]
    np.testing.assert_allclose(runs[:, 0], expected, rtol=1e-9)


def test_half_of_the_noise_is_found_and_all_of_it_is_not() -> None:
    """mu = 1/2, and 1 where 1/2 is claimed. A false alarm has probability 5 %; with seed 0 there is none."""
    sound = audit_function(noisy_sum, FIRST, SECOND, claimed_mu=0.5, runs=500, seed=0, **RATIO)
    assert not sound.refuted
    assert sound.runs == 500  # all are counted
    assert sound.attack == "likelihood ratio"
    loud = audit_function(partial(noisy_sum, noise=1.0), FIRST, SECOND, claimed_mu=0.5, runs=500, seed=0, **RATIO)
    assert loud.refuted


def scaled_step(X: Any, y: Any, rng: np.random.Generator) -> Any:
    model = SparseRegressor(n_nonzero=1, method=ONE_STEP, bounds=Bounds(label=1.0), fit_intercept=False)
    steps = [("scale", PrivateScaler(rounds=4)), ("model", model)]
    seed = int(rng.integers(2**62))
    return PrivatePipeline(steps, epsilon=4.0, delta=DELTA, random_state=seed).fit(X, y).model_.coef_


def step_within_estimates(X: Any, y: Any, rng: np.random.Generator) -> Any:
    seed = int(rng.integers(2**62))
    model = SparseRegressor(4.0, DELTA, n_nonzero=1, method=ONE_STEP, fit_intercept=False, random_state=seed)
    return model.fit(X, y).coef_


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("fit", [scaled_step, step_within_estimates])
def test_the_answers_of_a_whole_fit_tell_worlds_apart_nearly_as_the_claim_allows(fit: Any) -> None:
    """The spread of the log-ratio is the mu of a Gaussian release: 120 runs know it to 7 % (standard error)."""
    runs = ReplayedRuns(fit, far_rows())(0, 120, keyed_generator(3))
    assert 0.75 < runs[:, 0].std() / gaussian_mu(4.0, DELTA) < 1.25


def batch_step(X: Any, y: Any, rng: np.random.Generator, batch: int) -> Any:
    public = PublicFacts(len(y), 1, 1, Squared(), Budget(1.0, DELTA), 1.0, 1.0, 1.0, False, 1)
    plan = Plan((Release("step", SampledGaussian(batches=Sampling("poisson", len(y), batch)), 1),))
    curator = Curator(Rows(np.ones((4, 1)), y.copy()), public, plan, rng)
    return curator.ask("step", BatchGradient(SparseWeights.zeros(1, 1), 0.25))


def test_who_is_in_a_batch_is_secret_unless_all_are() -> None:
    """A replay has the same batches on both data sets; a ratio that knew them would refute sound claims."""
    with pytest.raises(TargetError, match="random batches are secret"):
        ReplayedRuns(partial(batch_step, batch=2), (FIRST, SECOND))(0, 1, keyed_generator(0))
    assert ReplayedRuns(partial(batch_step, batch=4), (FIRST, SECOND))(0, 3, keyed_generator(0)).all()


@pytest.mark.parametrize(
    ("fit", "change", "message"),
    [
        (lambda X, y, rng: y.sum() + rng.normal(), {}, "asked none of them"),
        (lambda X, y, rng: noisy_sum(X, y, rng, 2.0 + y.sum()), {}, "knows no ratio of this function"),
        (noisy_sum, {"judge": "any", "claimed_mu": None, "claimed": 1.0}, "is for judge='gaussian'"),
        (noisy_sum, {"splits": 2}, "splits=1"),
        (noisy_sum, {"attack": "best"}, "attack must be"),
    ],
)
def test_functions_and_judges_without_a_ratio_are_refused(fit: Any, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        audit_function(fit, FIRST, SECOND, runs=16, **({"claimed_mu": 0.5} | RATIO | change))


def test_estimated_bounds_of_a_model_lead_to_the_function() -> None:
    model = SparseRegressor(4.0, DELTA, n_nonzero=1, method=ONE_STEP, fit_intercept=False)
    with pytest.raises(ValueError, match="of estimated ones audit_function knows the ratio"):
        audit_model(model, judge="gaussian", claimed_mu=1.0, attack="likelihood_ratio", runs=16)


def test_randomness_of_its_own_is_refused() -> None:
    """On equal data sets the ratio of such a function would lean to the recorded one, and refute sound claims."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (60, 3))
    y = np.clip(X[:, 0], -1, 1)

    def halves(X: Any, y: Any, rng: np.random.Generator, source: Any = None) -> Any:
        chosen = np.random.default_rng(source).permutation(len(y))[:30]
        model = SparseRegressor(1.0, 1e-5, bounds=Bounds(row_linf=1.0, label=1.0), n_nonzero=1, random_state=0)
        return model.fit(X[chosen], y[chosen]).coef_

    def seeded(X: Any, y: Any, rng: np.random.Generator) -> Any:
        return halves(X, y, rng, int(rng.integers(2**62)))

    same = ((X, y), (X, y))
    with pytest.raises(TargetError, match="it is random in other ways than by noise"):
        ReplayedRuns(halves, same).log_ratio(0, np.random.default_rng(0))
    assert ReplayedRuns(seeded, same).log_ratio(0, np.random.default_rng(0)) == 0.0


def test_a_search_is_refused() -> None:
    """Its trials are secret, and its claim rests on that."""
    draw = TrialCount.draw
    runs = ReplayedRuns(lambda X, y, rng: TrialCount(3.0).draw(rng), ((np.ones((2, 1)), np.ones(2)),) * 2)
    with pytest.raises(TargetError, match="the trials of a search are secret"):
        runs.log_ratio(0, np.random.default_rng(0))
    assert TrialCount.draw is draw


def whole_fit(X: Any, y: Any, rng: np.random.Generator) -> Any:
    seed = int(rng.integers(2**62))
    return SparseRegressor(1.0, DELTA, bounds=Bounds(row_l2=1.0, label=1.0), random_state=seed).fit(X, y).coef_


@pytest.mark.filterwarnings("ignore")
def test_audits_in_several_threads_leave_no_hook_behind() -> None:
    """Each would take the hooks of the other for the originals, and leave known noise to all later fits."""
    originals = (Gaussian.release, ObjectivePerturbation.release, Curator.ask, Sampler.draw, TrialCount.draw)
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.5, 0.5, (40, 3))
    worlds = (X, np.clip(X[:, 0], -1, 1)), (np.vstack([-X[:1], X[1:]]), np.clip(X[:, 0], -1, 1))
    with joblib.parallel_config(backend="threading"):
        found = audit_function(whole_fit, *worlds, claimed_mu=1.0, runs=64, n_jobs=4, seed=1, **RATIO)
    alone = audit_function(whole_fit, *worlds, claimed_mu=1.0, runs=64, seed=1, **RATIO)
    assert found.mu == alone.mu
    assert originals == (Gaussian.release, ObjectivePerturbation.release, Curator.ask, Sampler.draw, TrialCount.draw)


def test_a_fit_in_a_thread_that_ran_before_keeps_its_own_noise() -> None:
    """And its answers are not recorded; a thread that the replayed fit starts is part of it."""
    recording = RatioRecording(np.random.default_rng(0))
    with ThreadPoolExecutor(1) as before:
        before.submit(int).result()
        with _refused_searches(), recording.record():
            of_stranger = before.submit(noisy_sum, *FIRST, np.random.default_rng(3)).result()
            assert before.submit(TrialCount(3.0).draw, np.random.default_rng(0)).result() >= 1
            assert len(recording) == 0
            with ThreadPoolExecutor(1) as started:
                of_fit = started.submit(noisy_sum, *FIRST, np.random.default_rng(3)).result()
    assert len(recording) == 1
    assert of_stranger == noisy_sum(*FIRST, np.random.default_rng(3)) != of_fit
