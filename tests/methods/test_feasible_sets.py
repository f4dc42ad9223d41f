"""Convex sets: their linear oracles against brute force, their longest points, and what they refuse."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import clone

from tulle.methods import FrankWolfe
from tulle.methods.feasible_sets import (
    Box,
    CappedL1Ball,
    FeasibleSet,
    KSupportBall,
    L1Ball,
    L2Ball,
    LqBall,
    Polytope,
    Simplex,
)

Array = NDArray[np.float64]

P = 7  # parameters
VERTICES = np.random.default_rng(5).normal(size=(9, P))

SETS: list[FeasibleSet] = [
    L1Ball(2.5),
    Simplex(2.5),
    CappedL1Ball(2.5, 1),
    CappedL1Ball(2.5, 3),
    CappedL1Ball(2.5, P),
    CappedL1Ball(2.5, 20),
    Polytope(vertices=VERTICES),
    Polytope(vertices=sp.csr_array(np.where(np.abs(VERTICES) > 0.7, VERTICES, 0.0))),
    L2Ball(2.5),
    LqBall(2.5, 1.1),
    LqBall(2.5, 1.5),
    LqBall(2.5, 2.0),
    Box(2.5),
    KSupportBall(2.5, 1),
    KSupportBall(2.5, 3),
    KSupportBall(2.5, 20),
]
each = pytest.mark.parametrize("feasible", SETS, ids=lambda s: f"{type(s).__name__}-{getattr(s, 'k', '')}")


def dense(polytope: Any) -> Array:
    vertices = polytope.vertices
    return np.asarray(vertices.toarray() if sp.issparse(vertices) else vertices)


def extreme_points(feasible: Any, count: int, rng: np.random.Generator) -> Array:
    """Points of a set, one in each line, written down from its definition: among them are all kinds of its extremes."""
    r = feasible.radius
    signs = rng.choice([-1.0, 1.0], (count, P))
    if isinstance(feasible, Polytope):
        return dense(feasible)[rng.integers(0, feasible.vertices.shape[0], count)]
    if isinstance(feasible, (L1Ball, Simplex)):
        one = np.eye(P)[rng.integers(0, P, count)]
        return r * (one if isinstance(feasible, Simplex) else one * signs)
    if isinstance(feasible, Box):
        return r * signs
    if isinstance(feasible, (CappedL1Ball, KSupportBall)):
        places = rng.permuted(np.tile(np.arange(P), (count, 1)), axis=1) < feasible.k
        if isinstance(feasible, CappedL1Ball):
            return r / feasible.k * signs * places
        points = rng.normal(size=(count, P)) * places
        return r * points / np.linalg.norm(points, axis=1, keepdims=True)
    q = getattr(feasible, "q", 2.0)
    points = rng.normal(size=(count, P)) ** 3
    return r * points / (np.abs(points) ** q).sum(axis=1, keepdims=True) ** (1 / q)


def contains(feasible: Any, point: Array, slack: float = 1e-9) -> bool:
    """Whether a point lies in the set: by its definition, or for k-support and polytopes by all half-spaces tried."""
    r = feasible.radius * (1 + slack)
    size = np.abs(point)
    if isinstance(feasible, Simplex):
        return bool(np.all(point >= 0) and abs(point.sum() - feasible.radius) <= slack * r)
    if isinstance(feasible, CappedL1Ball):
        return bool(size.sum() <= r and size.max() <= r / feasible.k)
    if isinstance(feasible, L1Ball):
        return bool(size.sum() <= r)
    if isinstance(feasible, Box):
        return bool(size.max() <= r)
    if isinstance(feasible, (L2Ball, LqBall)):
        q = getattr(feasible, "q", 2.0)
        return bool((size**q).sum() ** (1 / q) <= r)
    if isinstance(feasible, KSupportBall):  # an extreme point has at most k non-zeros and its length
        return bool(np.count_nonzero(point) <= feasible.k and np.linalg.norm(point) <= r)
    return bool(np.any(np.all(np.isclose(dense(feasible), point, rtol=0, atol=1e-12), axis=1)))


def value(direction: Array, points: Array) -> Array:
    return np.asarray(np.einsum("ij,ij->j", direction, points))


@each
def test_the_oracle_finds_the_least_point_of_the_set(feasible: Any) -> None:
    """Its point lies in the set, and none of 20,000 extreme points is lower in any of 12 directions."""
    rng = np.random.default_rng(0)
    directions = np.hstack([rng.normal(size=(P, 6)), rng.normal(size=(P, 6)) ** 5])
    points = feasible.least(directions)
    assert points.shape == directions.shape
    assert all(contains(feasible, point) for point in points.T)
    others = extreme_points(feasible, 20_000, rng) @ directions
    assert np.all(value(directions, points) <= others.min(axis=0) + 1e-9)


@each
def test_the_oracle_is_nearly_reached_by_brute_force(feasible: Any) -> None:
    """The best of 200,000 extreme points comes near the oracle's value: it promises nothing out of reach."""
    rng = np.random.default_rng(1)
    direction = rng.normal(size=(P, 1))
    found = extreme_points(feasible, 200_000, rng) @ direction[:, 0]
    least = float(value(direction, feasible.least(direction))[0])
    assert least < 0
    # Of finitely many extreme points all are found; on a curved border none is hit exactly.
    near = 0.9 if isinstance(feasible, (L2Ball, LqBall, KSupportBall)) else 1 - 1e-12
    assert found.min() <= near * least


@each
@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
def test_no_point_is_longer_than_longest(feasible: Any, norm: Any) -> None:
    """20,000 extreme points stay within `longest`, and one of the set's points attains it."""
    rng = np.random.default_rng(2)
    order = {"l1": 1, "l2": 2, "linf": np.inf}[norm]
    longest = feasible.longest(P, norm)
    lengths = np.linalg.norm(extreme_points(feasible, 20_000, rng), ord=order, axis=1)
    assert lengths.max() <= longest * (1 + 1e-12)
    if getattr(feasible, "k", 1) > P:  # fewer coordinates than k: a bound that no point attains
        return
    flat, spike = np.ones((P, 1)), np.eye(P)[:, :1]
    tried = [np.linalg.norm(feasible.least(-v)[:, 0], ord=order) for v in (flat, spike, flat + 1e-3 * spike)]
    assert max(*tried, lengths.max()) == pytest.approx(longest, rel=1e-6)


@each
def test_the_zero_direction_gives_a_finite_point_of_the_set(feasible: Any) -> None:
    """No gradient at all, on both outputs or on one of them."""
    rng = np.random.default_rng(3)
    directions = np.column_stack([np.zeros(P), rng.normal(size=P), np.zeros(P)])
    points = feasible.least(directions)
    assert np.all(np.isfinite(points))
    assert all(contains(feasible, point) for point in points.T)
    np.testing.assert_allclose(points[:, [1]], feasible.least(directions[:, [1]]), rtol=1e-12)


@each
@pytest.mark.parametrize("outputs", [1, 3])
def test_the_start_is_a_point_of_the_set(feasible: Any, outputs: int) -> None:
    """Of the right shape, the same for each output, and 0 where 0 is in the set."""
    start = feasible.start((P, outputs))
    assert start.shape == (P, outputs)
    assert all(contains(feasible, point) for point in start.T)
    assert np.any(start) == isinstance(feasible, (Simplex, Polytope))


@each
@pytest.mark.parametrize("scale", [1e-170, 1e-20, 1e20, 1e200])
def test_the_length_of_the_direction_does_not_matter(feasible: Any, scale: float) -> None:
    """Gradients of labels in any unit lead to the same point."""
    direction = np.random.default_rng(4).normal(size=(P, 2))
    np.testing.assert_allclose(feasible.least(scale * direction), feasible.least(direction), rtol=1e-9, atol=1e-12)


@each
@pytest.mark.parametrize("n_iter", [1, 2, 3])
def test_mixtures_of_extreme_points_have_few_nonzeros(feasible: Any, n_iter: int) -> None:
    """n_nonzero bounds the non-zeros of a mixture of the start and that many of the oracle's points."""
    rng = np.random.default_rng(6)
    for _ in range(20):
        points = np.hstack([feasible.start((P, 1)), feasible.least(rng.normal(size=(P, n_iter)))])
        assert np.count_nonzero(points @ rng.uniform(0.1, 1, n_iter + 1)) <= feasible.n_nonzero(n_iter)


def test_balls_that_are_the_l1_ball() -> None:
    """k = 1 is the ℓ1-ball, for both sets that have a k; and sets of one number differ from it."""
    directions = np.random.default_rng(7).normal(size=(P, 50))
    wanted = L1Ball(3.0).least(directions)
    for same in (CappedL1Ball(3.0, 1), KSupportBall(3.0, 1)):
        np.testing.assert_allclose(same.least(directions), wanted, rtol=1e-12)
        assert [same.longest(P, norm) for norm in ("l1", "l2")] == [3.0, 3.0]
        assert same.n_nonzero(4) == L1Ball(3.0).n_nonzero(4) == 4
    for other in (CappedL1Ball(3.0, 2), KSupportBall(3.0, 2), L2Ball(3.0), Box(3.0), LqBall(3.0)):
        assert not np.allclose(other.least(directions), wanted)


def test_sets_that_are_the_same_by_definition() -> None:
    """q = 2 is the ℓ2-ball, k = d of the k-support ball too, k = d of the capped ball is a box."""
    directions = np.random.default_rng(8).normal(size=(P, 50))
    ball = L2Ball(3.0).least(directions)
    np.testing.assert_allclose(LqBall(3.0, 2.0).least(directions), ball, rtol=1e-9)
    np.testing.assert_allclose(KSupportBall(3.0, P).least(directions), ball, rtol=1e-9)
    np.testing.assert_array_equal(CappedL1Ball(3.0, P).least(directions), Box(3.0 / P).least(directions))
    vertices = np.vstack([3.0 * np.eye(P), -3.0 * np.eye(P)])
    np.testing.assert_array_equal(Polytope(vertices=vertices).least(directions), L1Ball(3.0).least(directions))
    np.testing.assert_array_equal(Polytope(vertices=vertices[:P]).least(directions), Simplex(3.0).least(directions))


@pytest.mark.parametrize("convert", [np.array, np.ndarray.tolist, sp.csr_array, sp.coo_array, sp.csc_array])
def test_a_polytope_is_the_same_from_any_container(convert: Any) -> None:
    """Lists, arrays and sparse arrays of vertices: the same radius, vertices and oracle."""
    points = np.round(VERTICES)
    polytope: Any = Polytope(vertices=convert(points))
    assert polytope.radius == pytest.approx(np.abs(points).sum(axis=1).max(), rel=1e-12)
    np.testing.assert_array_equal([polytope.point(k) for k in range(len(points))], points)
    directions = np.random.default_rng(9).normal(size=(P, 5))
    np.testing.assert_array_equal(polytope.least(directions), points[(points @ directions).argmin(axis=0)].T)
    assert polytope.selectable
    assert polytope.coordinates is None


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.float32])
@pytest.mark.parametrize("convert", [np.array, sp.csr_array], ids=["dense", "csr"])
def test_the_radius_of_a_polytope_of_small_numbers(dtype: Any, convert: Any) -> None:
    """|v|_1 scales the noise: |-128| is 128 in a byte too, and 120 + 120 is 240."""
    polytope = Polytope(vertices=convert(np.array([[-128, 0, 0], [120, 120, 0], [1, 0, 0]], dtype=dtype)))
    assert polytope.radius == pytest.approx(240.0, rel=1e-12)
    assert polytope.longest(3, "l2") == pytest.approx(math.hypot(120, 120))
    assert Polytope(vertices=convert(np.array([[-128, 0], [1, 0]], dtype=dtype))).radius >= 128.0


@pytest.mark.parametrize("convert", [np.array, sp.csr_array], ids=["dense", "csr"])
def test_a_polytope_keeps_its_own_vertices(convert: Any) -> None:
    """Vertices that grow after their radius was taken would make noise too small: they cannot."""
    points = convert(np.eye(3))
    polytope: Any = Polytope(vertices=points)
    points *= 10.0
    if sp.issparse(points):
        points.data[:] = 10.0
    largest = max(float(np.abs(polytope.point(k)).sum()) for k in range(3))
    assert largest == 1.0 <= polytope.radius < 1.1


# --- refusals --------------------------------------------------------------------------------------------------------

BAD_NUMBERS = [0, 0.0, -1.0, math.inf, -math.inf, math.nan, "1", None, True, [1.0]]


@pytest.mark.parametrize("cls", [L1Ball, Simplex, CappedL1Ball, L2Ball, LqBall, Box, KSupportBall])
@pytest.mark.parametrize("radius", BAD_NUMBERS, ids=repr)
def test_a_radius_is_a_positive_number(cls: Any, radius: Any) -> None:
    """The message holds the value."""
    with pytest.raises(ValueError, match="radius must be a finite number > 0, got "):
        cls(radius)


@pytest.mark.parametrize("cls", [CappedL1Ball, KSupportBall])
@pytest.mark.parametrize("k", [0, -1, 1.5, "2", None], ids=repr)
def test_k_is_a_positive_integer(cls: Any, k: Any) -> None:
    """numpy integers are fine."""
    with pytest.raises(ValueError, match=rf"{cls.__name__}\(k=...\) must be an integer >= 1, got "):
        cls(1.0, k)
    assert cls(1.0, np.int64(3)).k == 3


@pytest.mark.parametrize("q", [1, 1.0, 0.5, 2.1, math.inf, math.nan, "1.5", None], ids=repr)
def test_q_lies_above_1_and_up_to_2(q: Any) -> None:
    """The message says what to use for q = 1."""
    with pytest.raises(ValueError, match=r"LqBall\(q=...\) must lie in \(1, 2\], got .*; use L1Ball for q = 1"):
        LqBall(1.0, q)


@pytest.mark.parametrize(
    ("vertices", "message"),
    [
        (None, "finite vertices|vertices of shape"),
        (np.ones(3), r"vertices of shape \(vertices, features\), got shape \(3,\)"),
        (np.ones((2, 2, 2)), r"got shape \(2, 2, 2\)"),
        (np.ones((0, 3)), r"got shape \(0, 3\)"),
        (sp.csr_array((0, 3)), r"got shape \(0, 3\)"),
        ([[1.0, math.nan]], "finite vertices"),
        ([[1.0, math.inf]], "finite vertices"),
        (sp.csr_array([[1.0, math.nan]]), "finite vertices"),
        (np.zeros((2, 3)), "radius must be a finite number > 0, got 0"),
        (np.full((1, 3), 1e308), "radius must be a finite number > 0, got inf"),
        ([["a", "b"]], "could not convert string to float"),
    ],
    ids=["none", "1-d", "3-d", "empty", "empty-csr", "nan", "inf", "nan-csr", "zero", "overflow", "words"],
)
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_vertices_that_make_no_polytope(vertices: Any, message: str) -> None:
    """Each with words."""
    with pytest.raises(ValueError, match=message):
        Polytope(vertices=vertices)


@each
def test_sets_are_frozen_copied_pickled_and_cloned(feasible: Any) -> None:
    """A set travels with the method that holds it, and says the same afterwards."""
    with pytest.raises(AttributeError):
        feasible.radius = 1.0
    directions = np.random.default_rng(10).normal(size=(P, 5))
    method = FrankWolfe(feasible=feasible)
    for other in (copy.deepcopy(feasible), pickle.loads(pickle.dumps(feasible)), clone(method).feasible):
        np.testing.assert_array_equal(other.least(directions), feasible.least(directions))
        assert other.radius == feasible.radius
