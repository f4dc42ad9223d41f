"""How the curvature changes on the way to the estimates, against that of rows that are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tulle.inference.curvature_change import SlopeCurves, mean_change
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
    curves = SlopeCurves.find(Squared(), np.eye(3), np.zeros(3), 1.0)
    np.testing.assert_array_equal(curves.find_weights(np.array([-9.0, 0.0, 9.0])), [-9.0, 0.0, 9.0])


@pytest.mark.parametrize("start", [-1.5, 0.5])
@pytest.mark.parametrize("loss", [Logistic(), Poisson()], ids=["logistic", "poisson"])
def test_a_weight_on_the_line_stands_for_the_one_with_the_same_slopes(loss: Any, start: float) -> None:
    """For an indicator that is independent of other features: against the sum of slopes of the rows themselves, at a
    weight 1.6 below the start, where a straight line is off by a quarter and more."""
    Z, weights = rows("indicators"), np.array([start, 0.2, -0.3, -0.8])
    at_start = curvature(loss, Z, weights)
    there = weights - [1.6, 0, 0, 0]
    labels = np.ones(len(Z))
    rise = [Z[:, 0] @ loss.slope((Z @ at)[:, None], labels)[:, 0] for at in (weights, there)]
    on_line = weights.copy()
    on_line[0] += (rise[1] - rise[0]) / at_start[0, 0]
    assert on_line[0] - there[0] > 0.4
    found = SlopeCurves.find(loss, at_start, weights, 1.0).find_weights(on_line)
    assert found[0] == pytest.approx(there[0], abs=0.12)
    np.testing.assert_allclose(found[1:], weights[1:], atol=1e-9)  # where a line touches its curve


def test_features_of_both_signs_and_of_common_size_are_nearly_on_the_line() -> None:
    Z, loss = rows("normal"), Logistic()
    start = np.array([0.8, -0.5, 0.0, 0.3])
    curves = SlopeCurves.find(loss, curvature(loss, Z, start), start, 3.0)
    assert curves.table[3].tolist() == [1, 1, 1, 0]
    np.testing.assert_allclose(curves.find_weights(start + 0.3), start + 0.3, atol=0.05)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["logistic", "poisson"]),
    st.lists(st.floats(-3, 3), min_size=4, max_size=4),
    st.floats(-1, 1).filter(lambda size: abs(size) > 0.05),
    st.booleans(),
)
def test_curves_are_inverted_and_rise(kind: Any, numbers: list[float], size: float, both: bool) -> None:
    start, others, first, second = numbers
    curves = SlopeCurves(kind, np.array([[start] * 2, [others] * 2, [size] * 2, [float(both)] * 2]))
    weights = np.array([first, second])
    on_line = curves.find_on_line(weights)
    np.testing.assert_allclose(curves.find_weights(on_line), weights, atol=1e-6)
    assert (on_line[0] - on_line[1]) * (first - second) >= 0
    step = 1e-5
    rates = (curves.find_weights(on_line + step) - curves.find_weights(on_line - step)) / (2 * step)
    np.testing.assert_allclose(curves.find_rates(weights), rates, rtol=1e-3)


def test_beyond_the_range_of_slopes_a_weight_is_infinite() -> None:
    """Of an indicator with a margin of -2 at the start: slopes change by at most 0.12 downwards, 0.88 upwards."""
    table = np.array([[-1.0], [-1.0], [1.0], [0.0]])
    curves = SlopeCurves("logistic", table)
    bend = float(np.exp(-2) / (1 + np.exp(-2)) ** 2)
    least = -1 - (1 / (1 + np.exp(2))) / bend
    assert curves.find_weights(np.array([least - 0.01]))[0] == -np.inf
    assert -20 < curves.find_weights(np.array([least + 0.01]))[0] < -4
    assert curves.find_weights(np.array([100.0]))[0] == np.inf
    assert SlopeCurves("poisson", table).find_weights(np.array([-2.1]))[0] == -np.inf
