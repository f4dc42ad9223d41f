"""Coordinate paths: the weights, norms and moves that queries and code that follows a path rely on."""

from __future__ import annotations

import math
import pickle
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tulle.fast.coordinate_path import CoordinatePath, PathPoint
from tulle.trusted.events import FloatArray

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
    before, dense, path = start.copy(), start.copy(), CoordinatePath(start)
    largest = np.abs(start).max()  # what rounding errors are relative to, shrunk as the weights are
    for count in range(length + 1):
        near = {"rtol": 1e-12, "atol": 1e-13 * largest}
        np.testing.assert_allclose(path.weights, dense, **near)
        np.testing.assert_allclose(path.scale * path.unscaled, dense, **near)
        one, two = path.point.norms
        assert one == pytest.approx(np.abs(dense).sum(axis=0).max(), rel=1e-12, abs=1e-12 * largest)
        assert two == pytest.approx(np.linalg.norm(dense, axis=0).max(), rel=1e-6, abs=1e-6 * largest)
        assert path.point.n_moves == count
        np.testing.assert_array_equal(np.asarray(path.point), path.weights)
        shrink, coordinates, added = data.draw(moves(parameters, outputs))
        path.move(shrink, coordinates, added)
        dense = shrink * dense
        dense[coordinates, np.arange(outputs)] += added
        largest = max(shrink * largest, np.abs(dense).max())
    np.testing.assert_array_equal(start, before)
    assert not np.shares_memory(path.point.start, start), "a frozen query holds nothing that its owner can change"


def test_the_moves_lead_from_the_start_to_the_weights() -> None:
    """Code that follows a path reads them alone."""
    rng = np.random.default_rng(0)
    path = CoordinatePath(rng.normal(size=(4, 2)))
    for _ in range(20):
        path.move(rng.uniform(0.5, 1.0), rng.integers(0, 4, 2), rng.normal(size=2))
    followed = path.point.start.copy()
    for shrink, coordinates, added in path.point.moves_since(None) or []:
        followed *= shrink
        followed[list(coordinates), [0, 1]] += added
    np.testing.assert_allclose(path.weights, followed, rtol=1e-12)


@pytest.mark.parametrize("shrink", [0.0, -0.5, 1.0 + 1e-9, 2.0, math.nan, math.inf])
def test_a_shrink_outside_of_zero_and_one_raises_and_moves_nothing(shrink: float) -> None:
    path = CoordinatePath(np.ones((2, 1)))
    with pytest.raises(ValueError, match=r"factor in \(0, 1\]"):
        path.move(shrink, np.array([0]), np.array([1.0]))
    np.testing.assert_array_equal(path.weights, np.ones((2, 1)))
    assert path.point.n_moves == 0
    assert path.point.norms == (2.0, math.sqrt(2))


def test_a_shrink_of_one_is_a_step_of_coordinate_descent() -> None:
    path = CoordinatePath(np.zeros((3, 1)))
    for amount in (0.5, -2.0):
        path.move(1.0, np.array([1]), np.array([amount]))
    np.testing.assert_array_equal(path.weights, [[0.0], [-1.5], [0.0]])
    assert path.scale == 1.0


def test_frank_wolfe_steps_stay_accurate_over_thousands_of_moves() -> None:
    """The scale falls to 1e-7; weights and norms are still those of a dense recomputation."""
    rng = np.random.default_rng(0)
    path, dense = CoordinatePath(np.zeros((50, 1))), np.zeros((50, 1))
    for t in range(1, 4001):
        step, j, sign = 2 / (t + 2), int(rng.integers(50)), float(rng.choice([-1.0, 1.0]))
        path.move(1 - step, np.array([j]), np.array([3 * step * sign]))
        dense *= 1 - step
        dense[j] += 3 * step * sign
    assert path.scale < 1e-6
    np.testing.assert_allclose(path.weights, dense, rtol=1e-9, atol=1e-12)
    one, two = path.point.norms
    assert one == pytest.approx(np.abs(dense).sum(), rel=1e-9)
    assert two == pytest.approx(np.linalg.norm(dense), rel=1e-9)


def random_path(moves: int, parameters: int = 7) -> tuple[CoordinatePath, list[PathPoint], list[FloatArray]]:
    """A path, and all of its points with the weights that were there."""
    rng = np.random.default_rng(1)
    path = CoordinatePath(rng.normal(size=(parameters, 2)))
    points, weights = [path.point], [path.weights]
    for _ in range(moves):
        path.move(rng.uniform(0.5, 1.0), rng.integers(0, parameters, 2), rng.normal(size=2))
        points.append(path.point)
        weights.append(path.weights)
    return path, points, weights


def test_a_point_stays_as_it_was_while_the_path_moves_on() -> None:
    """To the last bit, before and after the points that hold all weights."""
    _, points, weights = random_path(200)
    assert 2 <= sum(point.unscaled is not None for point in points) <= 20
    for point, expected in zip(points, weights, strict=True):
        np.testing.assert_array_equal(np.asarray(point), expected)


def test_nothing_that_a_point_holds_can_be_changed() -> None:
    _, points, weights = random_path(130)
    with pytest.raises(FrozenInstanceError):
        points[1].scale = 1.0  # type: ignore[misc]
    for held in [points[0].start, *(point.unscaled for point in points if point.unscaled is not None)]:
        with pytest.raises(ValueError, match="read-only"):
            held[0] = 1.0
    np.asarray(points[64])[:] = 0.0
    np.testing.assert_array_equal(np.asarray(points[64]), weights[64])


def test_moves_lead_from_an_earlier_point_of_the_same_path_alone() -> None:
    _, points, _ = random_path(9)
    _, others, _ = random_path(9)
    assert points[9].moves_since(points[9]) == []
    assert points[9].moves_since(points[6]) == [point.move for point in points[7:]]
    assert points[6].moves_since(points[9]) is None
    assert points[9].moves_since(others[6]) is None
    assert points[9].moves_since(others[0]) is None
    assert points[9].moves_since(None) == points[9].moves_since(points[0])


def test_a_point_is_an_array_in_another_process() -> None:
    _, points, weights = random_path(3)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(points[2])), weights[2])


def test_a_long_path_is_forgotten_without_recursion() -> None:
    path = CoordinatePath(np.zeros((2, 1)))
    for _ in range(100_000):
        path.move(1.0, np.array([0]), np.array([1.0]))
    assert "before" not in repr(path.point)
    del path
