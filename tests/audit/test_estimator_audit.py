"""Audits of estimators of other libraries, and the first runs of a target. Seeds are fixed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import tulle.audit.first_runs
from tulle.audit import (
    Pair,
    TargetError,
    audit_estimator,
    audit_estimator_sequentially,
    audit_function,
    audit_sequentially,
)

X, Y = np.zeros((4, 1)), np.array([1.0, 0, 0, 0])
WORLDS = (X, Y), (X, 0 * Y)


class NoisyMean(RegressorMixin, BaseEstimator):
    """The sum of x y with Laplace noise; right for labels and rows in [-1, 1] with `scale` = 2 / epsilon."""

    def __init__(self, scale: float = 2.0, clip: bool = True, random_state: Any = None) -> None:
        self.scale = scale
        self.clip = clip
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> NoisyMean:
        products = X[:, 0] * y
        if self.clip:
            products = np.clip(products, -1, 1)
        rng = np.random.default_rng(self.random_state)
        self.coef_ = np.array([products.sum() + rng.laplace(scale=self.scale)])
        self.words_ = "not a number"
        self._exact = products
        return self


class NoisyVote(ClassifierMixin, NoisyMean):
    pass


FAST: dict[str, Any] = {"delta": 0.0, "claimed": 1.0, "runs": 1_000, "pilot_runs": 100, "seed": 0}


@pytest.mark.parametrize("kind", [NoisyMean, NoisyVote])
def test_a_sound_estimator_passes_and_one_with_a_fifth_of_the_noise_does_not(kind: Any) -> None:
    """On ready pairs; the false-alarm rate is 5 % and the seed is fixed."""
    assert not audit_estimator(kind(), **FAST).refuted
    found = audit_estimator(kind(scale=0.4), **FAST)
    assert found.refuted
    assert kind.__name__ in found.pair


def test_rows_beyond_the_bounds_are_among_the_ready_pairs() -> None:
    found = audit_estimator(NoisyMean(clip=False), **FAST)
    assert found.refuted
    assert "a row far beyond the bounds" in found.pair


def test_a_pair_of_ones_own_and_a_function_that_makes_estimators() -> None:
    rows = np.ones((3, 1))
    pair = Pair("mine", rows, np.array([1.0, 0, 0]), rows, np.array([-1.0, 0, 0]))
    assert audit_estimator(lambda seed: NoisyMean(0.4, random_state=seed), pair, **FAST).refuted
    assert audit_estimator(lambda: NoisyMean(0.4), (pair.world(0), pair.world(1)), **FAST).refuted
    with pytest.raises(ValueError, match="not neighbours"):
        audit_estimator(NoisyMean(), ((rows, np.zeros(3)), (rows, np.ones(3))), **FAST)


def test_every_run_has_a_seed_of_its_own_and_the_same_audit_has_the_same_ones() -> None:
    """Also where the seed is a parameter of a step; an integer in random_state is not the seed of all runs."""
    steps = make_pipeline(FunctionTransformer(), NoisyMean(0.4, random_state=7))
    made = tulle.audit.estimator_audit._EstimatorFit(steps, None).make(3)
    assert made.get_params()["noisymean__random_state"] == 3
    arguments = FAST | {"released": lambda model: model[-1].coef_, "task": "regression"}
    first, second = (audit_estimator(steps, **arguments) for _ in range(2))
    assert first.refuted
    assert first.epsilon == second.epsilon


def test_all_public_fitted_numbers_are_released() -> None:
    """And nothing else: neither private attributes nor words."""
    shown = tulle.audit.estimator_audit._numbers(NoisyMean().fit(np.ones((3, 1)), np.ones(3)))
    assert shown.shape == (1,)

    class Leaky(NoisyMean):
        def fit(self, X: Any, y: Any) -> Leaky:
            super().fit(X, y)
            self.n_iter_ = int(y.sum())
            return self

    assert audit_estimator(Leaky(), **FAST).epsilon > 3


def test_a_folder_tells_settings_apart(tmp_path: Path) -> None:
    arguments = FAST | {"runs": 16, "folder": tmp_path}
    audit_estimator(NoisyMean(), WORLDS, **arguments)
    with pytest.raises(ValueError, match="contains another audit"):
        audit_estimator(NoisyMean(scale=3.0), WORLDS, **arguments)


kept = NoisyMean()


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (lambda: kept, "returned the same estimator twice, which keeps state"),
        (lambda: NoisyMean().fit(np.ones((2, 1)), np.ones(2)), "returned a fitted estimator"),
        (lambda: 3, "has no fit"),
        (3, "is no estimator"),
        (lambda: BaseEstimator(), "has no fit"),
        (lambda: NoisyMean(random_state=0), "the same numbers in 64 runs"),
        (lambda: type("Bare", (), {"fit": lambda self, X, y: self})(), "pass task= or a pair"),
    ],
)
def test_bad_estimators_get_clear_answers(estimator: Any, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        audit_estimator(estimator, **FAST)


def test_an_estimator_without_fitted_numbers_asks_for_them() -> None:
    bare = type("Bare", (), {"fit": lambda self, X, y: self})
    with pytest.raises(TargetError, match="pass released="):
        audit_estimator(lambda: bare(), task="regression", **FAST)
    with pytest.raises(ValueError, match="task must be"):
        audit_estimator(NoisyMean(), task="ranking", **FAST)


# --- the first runs of a function ------------------------------------------------------------------------------------


def raises(X: Any, y: Any, rng: Any) -> Any:
    raise RuntimeError(f"row {X[0]}")


def words(X: Any, y: Any, rng: Any) -> Any:
    return "words"


def not_finite(X: Any, y: Any, rng: Any) -> Any:
    return np.nan


def noiseless(X: Any, y: Any, rng: Any) -> Any:
    return y.sum()


def same_seed(X: Any, y: Any, rng: Any) -> Any:
    return y.sum() + np.random.default_rng(0).normal()


def sizes(X: Any, y: Any, rng: Any) -> Any:
    return rng.normal(size=1 + int(y.sum()))


def changes_rows(X: Any, y: Any, rng: Any) -> Any:
    y += 1
    return rng.normal()


history: list[float] = []


def remembers(X: Any, y: Any, rng: Any) -> Any:
    history.append(float(y.sum()))
    return sum(history) + rng.normal()


@pytest.mark.parametrize(
    ("fit", "message"),
    [
        (raises, r"must return numbers, and failed: RuntimeError \(test_estimator_audit.py, line"),
        (words, "must return numbers, and failed: ValueError"),
        (not_finite, "no finite number"),
        (noiseless, "no noise, or always the same"),
        (same_seed, "no noise, or always the same"),
        (sizes, "1 numbers in one run and 2 in another"),
        (changes_rows, "changes X or y"),
        (remembers, r"keeps state between runs \(history changed"),
    ],
)
@pytest.mark.parametrize("sequential", [False, True], ids=["fixed", "sequential"])
def test_a_target_that_cannot_be_audited_is_refused_before_the_runs(fit: Any, message: str, sequential: bool) -> None:
    audit: Any = audit_sequentially if sequential else audit_function
    words: dict[str, Any] = {"claimed": 1.0, "most_runs": 2_000} if sequential else {"runs": 2_000}
    with pytest.raises(TargetError, match=message) as refused:
        audit(fit, (X.copy(), Y.copy()), (X.copy(), 0 * Y), delta=0.0, **words)
    assert "row [" not in str(refused.value)  # messages of other code may quote rows


class Warm:
    """A function with state of its own."""

    def __init__(self) -> None:
        self.total = 0.0
        self.generator = np.random.default_rng()

    def __call__(self, X: Any, y: Any, rng: Any) -> float:
        self.total += y.sum()
        return float(self.total + rng.normal())

    def noisy(self, X: Any, y: Any, rng: Any) -> float:
        return float(y.sum() + self.generator.normal())


def test_state_of_objects_is_found_and_randomness_of_their_own_is_allowed() -> None:
    with pytest.raises(TargetError, match=r"total changed"):
        audit_function(Warm(), *WORLDS, delta=0.0, runs=16)
    closed = Warm()
    with pytest.raises(TargetError, match=r"closed.total changed"):
        audit_function(lambda X, y, rng: closed(X, y, rng), *WORLDS, delta=0.0, runs=16)
    assert audit_function(Warm().noisy, *WORLDS, delta=0.0, runs=16).runs == 8


def test_rare_events_are_not_taken_for_no_noise() -> None:
    """Something differs within 64 runs of each data set, but with a probability of 1e-6."""
    result = audit_function(lambda X, y, rng: rng.random() < 0.1, *WORLDS, delta=0.0, runs=100, seed=0)
    assert result.runs == 50


def test_a_slow_target_says_how_long_it_takes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By a clock that runs 100 seconds in each run."""
    clock = [0.0]
    monkeypatch.setattr(tulle.audit.first_runs.time, "monotonic", lambda: clock[0])

    def slow(X: Any, y: Any, rng: Any) -> float:
        clock[0] += 100.0
        return float(rng.normal())

    with pytest.warns(UserWarning, match=r"takes about 1e\+02 s a run: 40 runs take about 67 min; limit the time"):
        audit_function(slow, *WORLDS, delta=0.0, runs=20)
    audit_function(slow, *WORLDS, delta=0.0, runs=20, verbose=1)
    assert "40 runs take about 67 min" in capsys.readouterr().err
    with pytest.raises(TargetError, match="1000 s are enough for 5 runs on each data set, and an audit needs 8"):
        audit_function(slow, *WORLDS, delta=0.0, runs=20, seconds=1000.0)
    # Batches are so short that the limit is kept to within a fifth.
    begin = clock[0]
    result = audit_function(slow, *WORLDS, delta=0.0, runs=2_000, seconds=20_000.0)
    assert clock[0] - begin < 24_000
    assert 20 <= result.runs < 80
    # By betting: the limit is never passed by a round that was begun, but for the first one.
    with pytest.warns(UserWarning, match="at most 48 runs take about 80 min"):
        audit_sequentially(slow, *WORLDS, claimed_mu=1.0, most_runs=24)
    with pytest.raises(TargetError, match="1000 s are enough for 5 runs on each data set, and an audit needs 24"):
        audit_sequentially(slow, *WORLDS, claimed_mu=1.0, seconds=1000.0)
    begin = clock[0]
    found = audit_sequentially(slow, *WORLDS, claimed_mu=1.0, seconds=20_000.0)
    assert clock[0] - begin <= 20_000 + 4 * 100  # and the first runs, which are not counted
    assert found.runs >= 72


@pytest.mark.filterwarnings("ignore:SlowMean takes about")
@pytest.mark.parametrize(
    "audit",
    [
        lambda model: audit_estimator(model, delta=0.0, claimed=1.0, runs=20_000, pilot_runs=16, seconds=4_000.0),
        lambda model: audit_estimator_sequentially(model, claimed=1.0, delta=0.0, pilot_runs=16, seconds=4_000.0),
    ],
    ids=["fixed", "sequential"],
)
def test_the_pilot_is_part_of_the_time_limit(audit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that runs 4 seconds in each fit; a pilot of ten pairs takes more than 1,000."""
    clock = [0.0]
    monkeypatch.setattr(tulle.audit.first_runs.time, "monotonic", lambda: clock[0])

    class SlowMean(NoisyMean):
        def fit(self, X: Any, y: Any) -> NoisyMean:
            clock[0] += 4.0
            return super().fit(X, y)

    audit(SlowMean(scale=2.5))
    assert 3_000 < clock[0] < 4_300


@pytest.mark.parametrize("name", ["pair.json", "audit.json"])
@pytest.mark.parametrize("text", ["", "{", "[1]", "{}"])
def test_a_damaged_file_of_a_folder_says_what_to_do(name: str, text: str, tmp_path: Path) -> None:
    words = FAST | {"runs": 16, "pilot_runs": 16, "folder": tmp_path / "runs"}
    audit_estimator(NoisyMean(), **words)
    (tmp_path / "runs" / name).write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=rf"{name} is damaged: restore it .* or delete .*runs and run the audit again"):
        audit_estimator(NoisyMean(), **words)


def test_a_fast_target_says_nothing(recwarn: pytest.WarningsRecorder) -> None:
    begin = time.monotonic()
    audit_function(lambda X, y, rng: rng.normal(), *WORLDS, delta=0.0, runs=200)
    assert time.monotonic() >= begin
    assert not recwarn.list
