"""DP-SGD-HT on batches whose sizes change: a release for each size, the same noise in all steps, billed as planned."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import fits
import numpy as np
import pytest
from fits import D, RecordingCurator, assert_storage_does_not_matter, problem
from scipy.special import expit
from test_printed_algorithms import BOUNDS, DELTA, Tape, keep_largest, tape, with_and_without_noise

from tulle import SparseClassifier
from tulle.methods import StochasticHardThresholding
from tulle.trusted.accountants import best_accountant
from tulle.trusted.events import GaussianEvent, NoisePerSensitivity, SampledGaussianEvent
from tulle.trusted.mechanisms import SampledGaussian

recorder, tape = fits.recorder, tape
facts = partial(fits.facts, n_nonzero=5)
pytestmark = pytest.mark.filterwarnings("ignore:.*no better than guessing:UserWarning")

SIZES = (10, 10, 30, 30, 30, 75, 150)
METHOD = StochasticHardThresholding(batch=SIZES, step=0.5, clip=1.0, average=0.0, memory=3, lazy_noise=False)


def fit(method: Any = METHOD, epsilon: float | None = 2.0, **settings: Any) -> Any:
    X, y = problem("classification")
    given = {"n_nonzero": 3, "method": method, "bounds": BOUNDS, "fit_intercept": False, "random_state": 0}
    return SparseClassifier(epsilon, DELTA, **{**given, **settings}).fit(X, y)


@pytest.mark.parametrize("step", [0.5, None])
@pytest.mark.parametrize("scheme", ["poisson", "without_replacement", "shuffled"])
def test_what_is_asked_equals_the_plan(recorder: type[RecordingCurator], scheme: Any, step: float | None) -> None:
    """One release for each size, in the order of the steps; with damping, questions on batches of the largest."""
    method = StochasticHardThresholding(batch=SIZES, sampling=scheme, step=step)
    model = fit(method)
    planned = method.releases(recorder.facts[-1])
    assert {line.release: line.count for line in model.privacy_.bill} == {one.name: one.count for one in planned}
    asked = Counter(asked.name for asked in recorder.asked)
    steps = {"step on 10 rows": 2, "step on 30 rows": 3, "step on 75 rows": 1, "step on 150 rows": 1}
    assert asked == steps | ({"curvature": 3} if step is None else {})
    assert list(dict.fromkeys(one.name for one in recorder.asked if one.name != "curvature")) == list(steps)
    assert model.n_iter_ == 7
    assert 0.99 * 2.0 < model.privacy_.epsilon <= 2.0
    if step is not None:
        assert method.n_passes(recorder.facts[-1]) == pytest.approx(sum(SIZES) / 150)
    assert "batches of 10 to 150 of 150 rows" in model.privacy_.method


def test_the_proved_epsilon_is_that_of_each_size_s_own_rate(recorder: type[RecordingCurator]) -> None:
    """Composed by hand: sampled events of rates 10, 30 and 75 of 150 rows, and one that is about all rows."""
    model = fit(StochasticHardThresholding(batch=SIZES, step=0.5, sampling="poisson"))
    noises = {line.release: line.noise_per_sensitivity for line in model.privacy_.bill}
    events = [
        (SampledGaussianEvent(NoisePerSensitivity(noises["step on 10 rows"]), 10 / 150, "poisson"), 2),
        (SampledGaussianEvent(NoisePerSensitivity(noises["step on 30 rows"]), 30 / 150, "poisson"), 3),
        (SampledGaussianEvent(NoisePerSensitivity(noises["step on 75 rows"]), 75 / 150, "poisson"), 1),
        (GaussianEvent(NoisePerSensitivity(noises["step on 150 rows"])), 1),
    ]
    slack = model.privacy_.delta - model.privacy_.floating_point_slack
    assert best_accountant(tuple(events), slack)[0] == pytest.approx(model.privacy_.epsilon, rel=1e-3)
    # Noise on the mean, noise × 2 C / b, is the same in all steps.
    for release, noise in noises.items():
        assert noise / int(release.split()[2]) == pytest.approx(noises["step on 150 rows"] / 150, rel=1e-12)


@with_and_without_noise
def test_steps_are_those_of_plain_numpy(tape: Tape, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the batches that were drawn, which have the sizes b_t, with the same noise in every step."""
    scales: list[float] = []
    noisy = SampledGaussian._scale

    def listen(mechanism: Any, sensitivity: float) -> float:
        scales.append(noisy(mechanism, sensitivity))
        return scales[-1]

    monkeypatch.setattr(SampledGaussian, "_scale", listen)
    method = StochasticHardThresholding(**(METHOD.get_params() | {"sampling": "without_replacement"}))
    model = fit(method)
    X, y = problem("classification")
    tape.rewind()
    w = np.zeros(D)
    for size, scale in zip(SIZES, scales, strict=True):
        rows = tape.batch()
        assert len(rows) == size
        gradient = X[rows].T @ (expit(X[rows] @ w) - y[rows]) / size
        w = keep_largest(w - 0.5 * gradient + scale * tape.normal((D, 1))[:, 0], 3)
    assert tape.all_read
    np.testing.assert_allclose(model.coef_.ravel(), w, rtol=1e-9, atol=1e-12)


def test_equal_sizes_are_one_size() -> None:
    several = fit(StochasticHardThresholding(batch=[30] * 10))
    one = fit(StochasticHardThresholding(batch=30, passes=2.0))
    np.testing.assert_array_equal(several.coef_, one.coef_)
    assert several.privacy_.bill == one.privacy_.bill
    lone = fit(StochasticHardThresholding(batch=(30,)))
    assert lone.n_iter_ == 1


def test_storage_and_noise_that_is_not_drawn_do_not_matter() -> None:
    X, y = problem("classification")
    for lazy in (True, False):
        method = StochasticHardThresholding(batch=SIZES, step=0.5, lazy_noise=lazy)
        model = SparseClassifier(2.0, DELTA, n_nonzero=3, method=method, bounds=BOUNDS, random_state=0)
        assert_storage_does_not_matter(model, X, y)


def test_without_privacy() -> None:
    """Steps on batches of all rows are those of gradient descent."""
    X, y = problem("classification")
    model = fit(StochasticHardThresholding(batch=(150, 200), step=0.5, average=0.0, memory=3), None)
    w = np.zeros(D)
    for _ in range(2):
        w = keep_largest(w - 0.5 * X.T @ (expit(X @ w) - y) / 150, 3)
    np.testing.assert_allclose(model.coef_.ravel(), w, atol=1e-12)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch": (10, 20), "variant": "scsg"}, "several sizes is for variant='sgd'"),
        ({"batch": (10, 20), "passes": 2.0}, "leave passes=None"),
        ({"batch": ()}, "an integer >= 1, or one for each step"),
        ({"batch": (10, 0)}, "an integer >= 1, or one for each step"),
        ({"batch": (10, 2.5)}, "an integer >= 1, or one for each step"),
        ({"batch": (10, True)}, "an integer >= 1, or one for each step"),
        ({"batch": tuple(range(1, 23))}, "at most 20 different sizes, got 22"),
        ({"batch": "large"}, "must be an integer >= 1"),
    ],
)
def test_sizes_that_are_refused(recorder: type[RecordingCurator], settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit(StochasticHardThresholding(**settings))
    assert not recorder.asked


@pytest.mark.filterwarnings("ignore:the published noise")
def test_the_paper_prints_noise_for_one_size(recorder: type[RecordingCurator]) -> None:
    with pytest.raises(ValueError, match=r"batches of one size; give batch=... one number, or calibration='rigorous'"):
        fit(calibration="published")
    assert not recorder.asked
    fit(StochasticHardThresholding(batch=(30, 30), step=0.5), calibration="published", epsilon=1.0)
