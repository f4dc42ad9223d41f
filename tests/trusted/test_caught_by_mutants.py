"""Tests written for planted bugs (mutants.py) that nothing else caught, or nothing else caught to the point."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tulle import Budget, Ledger, SparseRegressor
from tulle.methods import HardThresholding
from tulle.methods.gradient_queries import ClippedGradient
from tulle.methods.loss_functions import Squared
from tulle.trusted.accountants import epsilon
from tulle.trusted.events import NoisePerSensitivity
from tulle.trusted.facts import PublicFacts
from tulle.trusted.mechanisms import Gaussian, Laplace
from tulle.trusted.plan import Plan, Release
from tulle.trusted.queries import VertexScores
from tulle.trusted.rows import Rows


def test_a_row_among_many_surplus_rows_pulls_no_harder() -> None:
    """Two of ten rows count. Replacing one moves the mean by 2 C / 10, as is declared, not by 2 C / 2."""
    active = np.arange(10) < 2
    public = PublicFacts(10, 1, 1, Squared(), None, 1.0, 1.0, 1.0, False)
    query = ClippedGradient(np.zeros((1, 1)), 0.5)
    targets = np.ones(10)
    other = np.where(np.arange(10) == 0, -1.0, targets)
    answers = [query.evaluate(Rows(np.ones((10, 1)), y, active), public) for y in (targets, other)]
    assert np.abs(answers[0] - answers[1]).max() == pytest.approx(query.sensitivity(public).l2)


def test_a_row_among_rows_that_pull_little_is_clipped_all_the_same() -> None:
    """The mean gradient is far below the clip level in both data sets; the one row with a large slope is not."""
    public = PublicFacts(5, 1, 1, Squared(), None, 1.0, 1.0, 2.0, False)
    query = ClippedGradient(np.zeros((1, 1)), 0.5)
    answers = [query.evaluate(Rows(np.ones((5, 1)), y * np.eye(5)[0]), public) for y in (2.0, -2.0)]
    assert np.abs(answers[0] - answers[1]).max() == pytest.approx(query.sensitivity(public).l2)


class Explosive(Squared):
    """A loss of a user's own whose slope at large labels makes a gradient beyond all floats."""

    def slope(self, margins: np.ndarray, targets: np.ndarray) -> np.ndarray:
        return np.where(targets > 0.5, 1.5e308, 0.0)[:, None] + 0.0 * margins


@pytest.mark.parametrize("on_support", [False, True])
def test_a_gradient_whose_norm_overflows_is_clipped(on_support: bool) -> None:
    public = PublicFacts(5, 2, 1, Explosive(), None, 2.0, 1.0, 1.0, False)
    support = np.ones((2, 1), dtype=bool) if on_support else None
    query = ClippedGradient(np.zeros((2, 1)), 0.5, "l2", 0.0, support, 2.0 if on_support else None)
    X = np.full((5, 2), 0.9)
    with np.errstate(all="ignore"):
        answers = [query.evaluate(Rows(X, y), public) for y in (np.zeros(5), np.eye(5)[0])]
    assert np.linalg.norm(answers[0] - answers[1]) <= query.sensitivity(public).l2 * (1 + 1e-9)


def test_a_vertex_of_many_features_moves_by_its_l1_norm() -> None:
    """A row of ones at a vertex of four ones: the score moves four times as far as an entry of the gradient."""
    public = PublicFacts(5, 4, 1, Squared(), None, 2.0, 1.0, 2.0, False)
    query = VertexScores(ClippedGradient(np.zeros((4, 1)), 0.5, "linf"), np.ones((1, 4)))
    answers = [query.evaluate(Rows(np.ones((5, 4)), y * np.eye(5)[0]), public) for y in (2.0, -2.0)]
    assert np.abs(answers[0] - answers[1]).max() == pytest.approx(query.sensitivity(public).linf)


def test_one_extreme_row_does_not_set_the_bounds() -> None:
    """Undeclared bounds come from private quantiles: with one seed, one huge record changes none of them."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 3)), rng.normal(size=400)
    X2, y2 = X.copy(), y.copy()
    X2[0], y2[0] = 1e5, 1e5
    method = HardThresholding(n_iter=1, noise="gaussian")
    one, other = (
        SparseRegressor(4.0, n_nonzero=2, method=method, random_state=0).fit(rows, labels).privacy_.assumptions[0]
        for rows, labels in ((X, y), (X2, y2))
    )
    assert "estimated privately" in one
    assert one == other


def test_a_ledger_proves_no_less_than_the_best_accountant_of_everything() -> None:
    """A ledger adds up in one currency; it cannot prove less than the best proof for all its releases at once."""
    delta = 1e-5
    plans = [
        Plan((Release("step", Gaussian(NoisePerSensitivity(6.0)), 1),)),
        Plan((Release("count", Laplace(NoisePerSensitivity(2.0)), 1),)),
    ]
    ledger = Ledger(Budget(4.0, delta))
    for plan in plans:
        pure = epsilon(plan, 0.0)
        promise = (epsilon(plan, delta), delta) if math.isinf(pure) else (pure, 0.0)
        ledger.bill("fit", [plan], promise)
    everything = [release for plan in plans for release in plan]
    assert ledger.epsilon >= epsilon(everything, delta) * (1 - 1e-9)
