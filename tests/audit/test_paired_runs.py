"""Runs in pairs, one on each data set with the same noise: what their counts prove, and that pairs are independent."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from tulle import Bounds, SparseRegressor
from tulle.accounting.bounds_from_counts import mu_of_guess_rate, mu_of_right_guesses, paired_guess_rate
from tulle.audit import worst_case_pairs
from tulle.audit.judges import ANY_LAW, BoundedRange, GaussianCurve
from tulle.audit.runner import Schedule, collect
from tulle.audit.targets import _ModelRuns
from tulle.methods import HardThresholding
from tulle.methods.loss_functions import Squared
from tulle.trusted.randomness import keyed_generator

BOUNDS = Bounds(row_linf=1.0, label=1.0)


def noise_of_pairs(how: str, rng: np.random.Generator, shape: tuple[int, int]) -> tuple[Any, Any]:
    one, other = rng.normal(size=shape), rng.normal(size=shape)
    return one, {"the same": one, "opposite": -one, "independent": other}[how]


@pytest.mark.parametrize("how", ["the same", "opposite", "independent"])
@pytest.mark.parametrize("threshold", [0.5, 1.5])
def test_pairs_exceed_mu_no_more_often_than_stated(how: str, threshold: float) -> None:
    """Of a 1-GDP release, however the noise of a pair is coupled: 4,000 audits of 100 pairs, 5 % allowed; more than 262
    have probability 1e-5."""
    first, second = noise_of_pairs(how, np.random.default_rng(0), (4000, 100))
    hits, false_hits = first + 1 >= threshold, second >= threshold
    both_right, both_wrong = (hits & ~false_hits).sum(axis=1), (~hits & false_hits).sum(axis=1)
    rates = [paired_guess_rate(right, wrong, 100, 0.95) for right, wrong in zip(both_right, both_wrong)]
    refuted = (mu_of_guess_rate(rates) > 1).sum()
    assert refuted <= 262
    if how == "the same" and threshold == 0.5:
        assert refuted > 5  # and it is not so loose that it could not fail


def test_pairs_with_the_same_noise_prove_more() -> None:
    """The same counts in each world: 540 hits and 430 false hits of 1,000, all in the same runs but 110."""
    paired = mu_of_guess_rate(paired_guess_rate(110, 0, 1000, 0.95))
    assert paired > 1.2 * mu_of_right_guesses(540, 430, 1000, 0.95) > 0
    assert mu_of_guess_rate(paired_guess_rate(400, 290, 1000, 0.95)) < mu_of_right_guesses(540, 430, 1000, 0.95)
    assert mu_of_guess_rate(paired_guess_rate(0, 1000, 1000, 0.95)) == -np.inf


def test_judges_count_pairs_or_say_that_they_do_not() -> None:
    scores, other = np.array([1.0] * 60 + [-1.0] * 40), np.array([1.0] * 20 + [-1.0] * 80)
    rate = paired_guess_rate(40, 0, 100, 0.95)
    bound, epsilon = GaussianCurve(1.0).count_pairs(scores, other, 0.0, 1e-5, 0.95)
    assert bound == mu_of_guess_rate(rate)
    assert epsilon > 0
    assert GaussianCurve(1.0, moved=0.01).count_pairs(scores, other, 0.0, 1e-5, 0.95)[0] < bound
    assert BoundedRange(1.0).count_pairs(scores, other, 0.0, 1e-5, 0.95)[0] == pytest.approx(
        2 * np.log(rate / (1 - rate))
    )
    with pytest.raises(NotImplementedError, match="counts no pairs"):
        ANY_LAW.count_pairs(scores, other, 0.0, 1e-5, 0.95)


def subject(paired: bool, n_features: int = 1) -> _ModelRuns:
    method = HardThresholding(noise="gaussian", n_iter=1, damping=0.0)
    model = SparseRegressor(4.0, 1e-5, n_nonzero=1, bounds=BOUNDS, method=method, fit_intercept=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        request = model._request(Squared(), 6)
    made = worst_case_pairs(Squared(), BOUNDS.known(n_features), 6, n_features)
    return _ModelRuns(request, made[2], paired=paired)


def test_runs_of_a_pair_have_the_same_noise_and_pairs_do_not() -> None:
    first, second = collect(subject(True), Schedule(40, 10, 3, paired=True), "pairs")
    assert np.corrcoef(first[:, 0], second[:, 0])[0, 1] > 0.999
    assert len(np.unique(first[:, 0])) == 40
    first, second = collect(subject(False), Schedule(40, 10, 3), "no pairs")
    assert abs(np.corrcoef(first[:, 0], second[:, 0])[0, 1]) < 0.6  # 4 standard errors


def test_each_run_of_a_pair_has_a_source_of_its_own() -> None:
    """Else a run that draws more in one world than in the other would share draws with the next pair."""
    sources = [keyed_generator(1), keyed_generator(1)]
    subject(True, 40)(0, 3, sources[0])
    sources[1].integers(2**63, size=3)
    assert sources[0].integers(2**63) == sources[1].integers(2**63)
