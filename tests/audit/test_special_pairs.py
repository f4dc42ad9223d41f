"""Pairs for random batches, intercepts, choices among many features and estimated bounds; and batches of equal rows."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from tulle.audit import Pair, even_lead, worst_case_pairs
from tulle.audit.likelihood import KnownWorlds, WatchedRows
from tulle.backends.known_bounds import KnownBounds
from tulle.estimators.request import PlannedFit
from tulle.fast.sparse_weights import SparseWeights
from tulle.methods import HardThresholding
from tulle.methods.gradient_queries import BatchGradient, ClippedGradient
from tulle.methods.loss_functions import Logistic, Squared
from tulle.trusted.facts import PublicFacts
from tulle.trusted.mechanisms import Gaussian, Mechanism, SampledGaussian, TopK
from tulle.trusted.objectives import Minimiser
from tulle.trusted.plan import Budget, Plan, Release
from tulle.trusted.queries import Magnitudes
from tulle.trusted.rows import Rows
from tulle.trusted.sampling import Sampling

EMPTY = "opposite labels, all others empty"
WRONG = "a row that raises one score and lowers all others, wrong by the intercept"
FAR = "opposite rows and a label far beyond the bounds"
LIFTED = "a row that raises one score and lowers all others, others hold weights"
STEP = BatchGradient(SparseWeights.zeros(1, 1), 0.25)


def special_pair(loss: Any, name: str, n_rows: int, n_features: int, lead: int = 0) -> Pair:
    made = worst_case_pairs(loss, KnownBounds(9.0, 1.0, 1.0, False), n_rows, n_features, special=True, lead=lead)
    (pair,) = [one for one in made if one.name == name]
    return pair


def known_worlds(pair: Pair, mechanism: Mechanism, loss: Any, intercept: bool = False, alike: bool = True) -> Any:
    n, d = pair.X.shape
    public = PublicFacts(n, d, 1, loss, Budget(1.0, 1e-5), 1.0, 1.0, 1.0, intercept, 1)
    rows = tuple(Rows(X.copy(), y.copy()) for X, y in (pair.world(0), pair.world(1)))
    planned = PlannedFit(public, HardThresholding(), Plan((Release("x", mechanism, 1),)))
    return KnownWorlds(planned, rows, pair.kinds() if alike else None), public  # type: ignore[arg-type]


def ratio(known: KnownWorlds, answer: float, asked: WatchedRows | None = None) -> float:
    ratios: list[float] = []
    known.watch(lambda name, query, then=None: np.array([[answer]]), ratios, asked)("x", STEP)
    return ratios[0]


def batches(scheme: Any, n_rows: int, batch: int) -> Mechanism:
    return SampledGaussian(batches=Sampling(scheme, n_rows, batch))


# --- batches ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("scheme", "batch"), [("poisson", 4), ("without_replacement", 3)])
def test_batches_of_equal_rows_are_asked_once_and_weigh_the_same(scheme: Any, batch: int) -> None:
    pair = special_pair(Squared(), EMPTY, 5, 1)
    mechanism = batches(scheme, 5, batch)
    together, one_by_one = (known_worlds(pair, mechanism, Squared(), alike=alike)[0] for alike in (True, False))
    assert len(together._batches["x"][0]) < len(one_by_one._batches["x"][0])
    np.testing.assert_allclose(np.exp(together._batches["x"][0]).sum(), 1.0)
    for answer in (-0.3, 0.1, 2.0):
        assert ratio(together, answer) == pytest.approx(ratio(one_by_one, answer), rel=1e-9)


def test_many_batches_of_few_kinds_of_rows_have_a_ratio() -> None:
    pair = special_pair(Squared(), EMPTY, 10, 1)
    assert known_worlds(pair, batches("poisson", 10, 9), Squared())[0].has_densities
    assert not known_worlds(pair, batches("poisson", 10, 9), Squared(), alike=False)[0].has_densities


def test_a_poisson_batch_of_all_rows_is_one_batch() -> None:
    pair = special_pair(Squared(), EMPTY, 30, 1)
    known, _ = known_worlds(pair, batches("poisson", 30, 30), Squared())
    assert len(known._batches["x"][0]) == 1
    assert ratio(known, -0.1) == pytest.approx(-ratio(known, 0.1), rel=1e-9)


def test_only_of_a_shuffled_epoch_the_attacker_knows_who_is_in_a_batch() -> None:
    """No secrecy is claimed for it. Of other batches it is claimed, and a ratio that used them would refute it."""
    pair = special_pair(Squared(), EMPTY, 4, 1)
    rows = WatchedRows(*pair.world(0))
    shuffled, _ = known_worlds(pair, batches("shuffled", 4, 2), Squared())
    rows.batch(np.array([2, 3]))
    assert ratio(shuffled, 0.3, rows) == 0.0
    rows.batch(np.array([0, 3]))
    # A row of two in the batch: means of -1/8 and 1/8, noise of 1/4.
    assert ratio(shuffled, 0.3, rows) == pytest.approx((-2 * 0.3 * 0.125) / 0.25**2, rel=1e-6)
    for scheme in ("poisson", "without_replacement"):
        known, _ = known_worlds(pair, batches(scheme, 4, 2), Squared())
        assert ratio(known, 0.3, rows) == ratio(known, 0.3)
        assert 0 > ratio(known, 0.3) > ratio(shuffled, 0.3, rows)


# --- pairs -----------------------------------------------------------------------------------------------------------


def test_the_first_of_many_features_is_as_likely_as_all_others_together() -> None:
    noise, d = 2.5, 20
    pair = special_pair(Logistic(), LIFTED, 60, d, even_lead(noise, d))
    known, public = known_worlds(pair, TopK(), Logistic())
    query = Magnitudes(ClippedGradient(np.zeros((d, 1)), 0.5, "linf", 0.0))
    scale = noise * query.resolve(public).sensitivity(public).linf
    chances = []
    for ask in known._everybody:
        weights = np.exp(ask("x", query)[:, 0] / scale)
        chances.append(weights[0] / weights.sum())
    logits = np.log(np.array(chances) / (1 - np.array(chances)))
    assert logits[0] - logits[1] == pytest.approx(2 / noise, rel=0.01)  # the whole range
    assert abs(logits.sum()) < 0.25  # half-way between the two, as near as whole rows come to it


def test_a_row_that_is_wrong_by_the_intercept_moves_the_gradient_of_the_whole_loss() -> None:
    """By more than labels do: these move it by half of what two rows can."""
    pair = special_pair(Logistic(), WRONG, 1000, 2)
    known, public = known_worlds(pair, Gaussian(), Logistic(), intercept=True)
    query = Minimiser(np.array([0]), 1.0, np.hypot(1.0, 0.25), 1.0, np.zeros(2), 0.25)
    moves = query.sensitivity(public).objective
    assert moves is not None
    objectives = [ask("x", query) for ask in known._everybody]
    for noise in ([0.0, 0.0], [13.0, 0.0], [0.0, 13.0]):
        theta = objectives[0].minimise(np.array(noise))
        first, second = (one.parts.sum(partial(one.terms.gradient, theta=theta), np.zeros(2)) for one in objectives)
        assert np.linalg.norm(first - second) > 0.7 * moves.gradient


def test_rows_far_beyond_the_bounds_are_opposite_and_others_are_empty() -> None:
    pair = special_pair(Squared(), FAR, 6, 2)
    assert pair.X[0, 0] == -pair.X_other[0, 0] == 1e12
    assert not pair.X[1:].any()
    np.testing.assert_array_equal(pair.y, pair.y_other)


def test_a_lead_beyond_the_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="lead must lie in"):
        special_pair(Logistic(), LIFTED, 6, 2, 3)
    special_pair(Logistic(), LIFTED, 6, 2, 2)
