"""Walks: the weights, norms and moves that queries and those who follow a walk rely on."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tulle.walk import Walk

amounts = st.sampled_from([0.0, 1.0, -1.0, 1e-9, 1e6]) | st.floats(-3, 3)
shrinks = st.sampled_from([1.0, 1 / 3, 0.5, 1e-4]) | st.floats(0.01, 1.0)


@st.composite
def moves(draw: st.DrawFn, parameters: int, outputs: int) -> tuple[float, np.ndarray, np.ndarray]:
    coordinates = draw(st.lists(st.integers(0, parameters - 1), min_size=outputs, max_size=outputs))
    added = draw(st.lists(amounts, min_size=outputs, max_size=outputs))
    return draw(shrinks), np.array(coordinates), np.array(added)


@given(st.data(), st.integers(1, 5), st.integers(1, 3), st.integers(0, 12))
def test_weights_and_norms_are_those_of_dense_weights(
    data: st.DataObject, parameters: int, outputs: int, length: int
) -> None:
    """After every move: all weights times shrink, then an amount on one coordinate of each output."""
    size = parameters * outputs
    start = np.array(data.draw(st.lists(amounts, min_size=size, max_size=size))).reshape(parameters, outputs)
    before, dense, walk = start.copy(), start.copy(), Walk(start)
    largest = np.abs(start).max()  # what rounding errors are relative to, shrunk as the weights are
    for count in range(length + 1):
        near = {"rtol": 1e-12, "atol": 1e-13 * largest}
        np.testing.assert_allclose(walk.weights, dense, **near)
        np.testing.assert_allclose(walk.scale * walk.unscaled, dense, **near)
        one, two = walk.norms()
        assert one == pytest.approx(np.abs(dense).sum(axis=0).max(), rel=1e-12, abs=1e-12 * largest)
        assert two == pytest.approx(np.linalg.norm(dense, axis=0).max(), rel=1e-6, abs=1e-6 * largest)
        assert len(walk.moves) == count
        shrink, coordinates, added = data.draw(moves(parameters, outputs))
        walk.move(shrink, coordinates, added)
        dense = shrink * dense
        dense[coordinates, np.arange(outputs)] += added
        largest = max(shrink * largest, np.abs(dense).max())
    np.testing.assert_array_equal(start, before)
    assert walk.start is start


def test_the_moves_lead_from_the_start_to_the_weights() -> None:
    """Whoever follows a walk reads them alone."""
    rng = np.random.default_rng(0)
    walk = Walk(rng.normal(size=(4, 2)))
    for _ in range(20):
        walk.move(rng.uniform(0.5, 1.0), rng.integers(0, 4, 2), rng.normal(size=2))
    followed = walk.start.copy()
    for shrink, coordinates, added in walk.moves:
        followed *= shrink
        followed[coordinates, [0, 1]] += added
    np.testing.assert_allclose(walk.weights, followed, rtol=1e-12)


@pytest.mark.parametrize("shrink", [0.0, -0.5, 1.0 + 1e-9, 2.0, math.nan, math.inf])
def test_a_shrink_outside_of_zero_and_one_raises_and_moves_nothing(shrink: float) -> None:
    walk = Walk(np.ones((2, 1)))
    with pytest.raises(ValueError, match=r"factor in \(0, 1\]"):
        walk.move(shrink, np.array([0]), np.array([1.0]))
    np.testing.assert_array_equal(walk.weights, np.ones((2, 1)))
    assert walk.moves == []
    assert walk.norms() == (2.0, math.sqrt(2))


def test_a_shrink_of_one_is_a_step_of_coordinate_descent() -> None:
    walk = Walk(np.zeros((3, 1)))
    for amount in (0.5, -2.0):
        walk.move(1.0, np.array([1]), np.array([amount]))
    np.testing.assert_array_equal(walk.weights, [[0.0], [-1.5], [0.0]])
    assert walk.scale == 1.0


def test_frank_wolfe_steps_stay_accurate_over_thousands_of_moves() -> None:
    """The scale falls to 1e-7; weights and norms are still those of a dense recomputation."""
    rng = np.random.default_rng(0)
    walk, dense = Walk(np.zeros((50, 1))), np.zeros((50, 1))
    for t in range(1, 4001):
        step, j, sign = 2 / (t + 2), int(rng.integers(50)), float(rng.choice([-1.0, 1.0]))
        walk.move(1 - step, np.array([j]), np.array([3 * step * sign]))
        dense *= 1 - step
        dense[j] += 3 * step * sign
    assert walk.scale < 1e-6
    np.testing.assert_allclose(walk.weights, dense, rtol=1e-9, atol=1e-12)
    one, two = walk.norms()
    assert one == pytest.approx(np.abs(dense).sum(), rel=1e-9)
    assert two == pytest.approx(np.linalg.norm(dense), rel=1e-9)
