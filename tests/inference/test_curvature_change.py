"""How the curvature changes on the way to the estimates, against that of rows that are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tulle.inference.curvature_change import find_steady, mean_change
from tulle.methods.loss_functions import Logistic, Poisson, Squared


def rows(kind: str, n: int = 40_000) -> Any:
    """With a constant column of 1, the last."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 3)) if kind == "normal" else (rng.random((n, 3)) < [0.2, 0.3, 0.5]).astype(float)
    return np.column_stack([X, np.ones(n)])


def curvature(loss: Any, Z: Any, weights: Any) -> Any:
    return (Z * loss.curvature_at(Z @ weights)[:, None]).T @ Z


@pytest.mark.parametrize("loss", [Logistic(), Poisson()], ids=["logistic", "poisson"])
@pytest.mark.parametrize("kind", ["normal", "indicators"])
def test_the_mean_curvature_is_about_the_one_of_the_rows(loss: Any, kind: str) -> None:
    """From shrunk weights to the true ones, by the constant's entry: the sum of second derivatives."""
    Z, start = rows(kind), np.array([0.3, -0.2, 0.0, -0.4])
    moved = np.array([0.3, -0.2, 0.0, -0.5])
    at_start = curvature(loss, Z, start)
    mean = np.mean([curvature(loss, Z, start + place * moved) for place in np.linspace(0, 1, 21)], axis=0)
    exact = mean[-1, -1] / at_start[-1, -1]
    found = mean_change(loss, at_start, start, moved, np.zeros((4, 4)))
    assert abs(exact - 1) > 0.02
    assert found == pytest.approx(exact, abs=0.5 * abs(exact - 1))


def test_squared_loss_has_the_same_curvature_everywhere() -> None:
    assert mean_change(Squared(), np.eye(3), np.zeros(3), np.ones(3), np.eye(3)) == 1.0
    assert find_steady(Squared(), np.eye(3), np.zeros(3), np.ones(3), 100 * np.ones(3), 1.0).all()


def test_a_feature_that_nearly_decides_is_not_steady() -> None:
    """An indicator with a weight of -4: where the penalty holds it at -1.5 there is far more curvature than there."""
    Z, loss = rows("indicators"), Logistic()
    start, moved = np.array([-1.5, 0.2, -0.3, -0.8]), np.array([-0.8, 0.05, -0.05, 0.0])
    reach = np.array([0.5, 0.3, 0.3, 0.3])
    steady = find_steady(loss, curvature(loss, Z, start), start, moved, reach, 1.0)
    assert steady.tolist() == [False, True, True, True]


def test_features_of_both_signs_and_of_common_size_are_steady() -> None:
    Z, loss = rows("normal"), Logistic()
    start, moved = np.array([0.8, -0.5, 0.0, 0.3]), np.array([0.2, -0.1, 0.0, 0.0])
    assert find_steady(loss, curvature(loss, Z, start), start, moved, np.full(4, 0.4), 3.0).all()
