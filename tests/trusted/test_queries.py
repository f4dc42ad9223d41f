"""Queries: no pair of neighbours moves an answer by more than the declared sensitivity, and some pair moves it so far.

Neighbours have the same number of rows and differ in one row, or in the rows of one unit. Rows are clipped to the
bounds as a fit clips them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from pairwise import reduce_to_pairs

from tulle.estimators.bounds import GRID, Bounds, QuantileScores
from tulle.fast.coordinate_path import CoordinatePath
from tulle.fast.exact_answers import Known
from tulle.fast.scores_on_demand import FollowedScores, can_follow
from tulle.fast.sparse_weights import SparseWeights
from tulle.methods.exact_steps import curvature_along_gradient
from tulle.methods.feasible_sets import Polytope
from tulle.methods.gradient_queries import (
    BatchGradient,
    ClippedGradient,
    CoordinateGradient,
    CoordinateScores,
    Curvature,
    Engine,
    SecondMoments,
    Step,
)
from tulle.methods.loss_functions import (
    Huber,
    Logistic,
    Loss,
    OneVsRest,
    Poisson,
    Softmax,
    Squared,
    SquaredHinge,
    facts_without_model,
)
from tulle.methods.thresholds import HardThreshold
from tulle.trusted.clipped_sum import Kind, compute_scores
from tulle.trusted.facts import PublicFacts
from tulle.trusted.losses import Norm
from tulle.trusted.queries import Magnitudes, Query, VertexScores
from tulle.trusted.rows import Rows

ROUNDING = 1 + 1e-9
LABEL = 2.0

LOSSES: dict[str, Loss] = {
    "squared": Squared(),
    "huber": Huber(0.7),
    "poisson": Poisson(2.0),
    "logistic": Logistic(),
    "squared hinge": SquaredHinge(),
    "softmax": Softmax(3),
    "one vs rest": OneVsRest(SquaredHinge(), 3),
}
STORAGES: dict[str, Callable[[np.ndarray], Any]] = {"dense": np.array, "csr": sp.csr_array}

BOUNDS = {
    "l2": Bounds(row_l2=1.5, label=LABEL),
    "linf": Bounds(row_linf=0.5, label=LABEL),
    "both": Bounds(row_l2=1.0, row_linf=0.75, label=LABEL),
    "normalised": Bounds(row_l2=1.25, normalise=True, label=LABEL),
    "any label": Bounds(row_l2=1.5),
}

# At the bound, far beyond it, empty, and where squares overflow or underflow.
ENTRIES = (0.0, 0.5, -0.5, 1.0, -1.25, 1.5, 1e6, -1e30, 1e200, -1.7e308, 1e-8, 1e-160, 2.7e-162, -1.5e-162, 5e-324)


def targets_of(loss: Loss) -> st.SearchStrategy[float]:
    if loss.n_outputs > 1:
        return st.integers(0, loss.n_outputs - 1).map(float)
    if loss.kind == "classification":
        return st.sampled_from([-1.0, 1.0])
    extreme = st.sampled_from([0.0, LABEL, -LABEL, 1e300, -1e300, 5e-324, math.inf, math.nan]) | st.floats(-3, 3)
    return extreme.map(abs) if isinstance(loss, Poisson) else extreme


@st.composite
def some_rows(draw: st.DrawFn, n: int, d: int, loss: Loss) -> tuple[np.ndarray, np.ndarray]:
    entry = st.sampled_from(ENTRIES) | st.floats(-2, 2)
    one_hot = st.builds(lambda i, v: np.eye(d)[i] * v, st.integers(0, d - 1), entry)
    any_row = st.lists(entry, min_size=d, max_size=d).map(np.array)
    X = np.array(draw(st.lists(any_row | one_hot, min_size=n, max_size=n))).reshape(n, d)
    return X, np.array(draw(st.lists(targets_of(loss), min_size=n, max_size=n)))


@st.composite
def neighbours(draw: st.DrawFn, loss: Loss, storage: str, clip: bool = True) -> tuple[Rows, Rows, PublicFacts, float]:
    """Two data sets that differ in the rows of one unit, the public facts, and the intercept's entry."""
    n, d, unit = draw(st.integers(3, 6)), draw(st.integers(1, 4)), draw(st.integers(1, 3))
    X, y = draw(some_rows(n, d, loss))
    X2, y2 = X.copy(), y.copy()
    X2[:unit], y2[:unit] = draw(some_rows(unit, d, loss))
    known = BOUNDS[draw(st.sampled_from(sorted(BOUNDS)))].known(d)
    a = draw(st.sampled_from([0.0, 0.0, 0.3, 1.0, 5.0]))
    pair = [Rows(STORAGES[storage](M), t) for M, t in ((X, y), (X2, y2))]
    if clip:
        for rows in pair:
            known.clip(rows, loss)
    public = PublicFacts(
        n,
        d,
        min(2, d),
        loss,
        None,
        known.row_l2,
        known.row_linf,
        known.label,
        fit_intercept=a > 0,
        rows_per_unit=unit,
        as_published=draw(st.booleans()),
    )
    return pair[0], pair[1], public, a


@st.composite
def weights_of(draw: st.DrawFn, public: PublicFacts) -> np.ndarray:
    entry = st.sampled_from([0.0, 0.0, 1.0, -0.5, 20.0, 1e-9]) | st.floats(-3, 3)
    size = public.n_parameters * public.loss.n_outputs
    return np.array(draw(st.lists(entry, min_size=size, max_size=size))).reshape(-1, public.loss.n_outputs)


@st.composite
def gradients(draw: st.DrawFn, public: PublicFacts, a: float, norm: Norm, on_support: bool) -> ClippedGradient:
    weights = draw(weights_of(public))
    clip = draw(st.sampled_from([0.01, 0.3, 0.5, 1.0, 10.0]))
    if not on_support:
        return ClippedGradient(weights, clip, norm, a)
    chosen = draw(st.lists(st.booleans(), min_size=weights.size, max_size=weights.size))
    support = np.array(chosen).reshape(weights.shape)
    support[public.n_features :] = True
    return ClippedGradient(weights, clip, norm, a, support, draw(st.sampled_from([0.1, 0.6, 2.0])))


def answer(query: Query, rows: Rows, public: PublicFacts) -> np.ndarray:
    """The exact answer; of scores on demand all of them, by the sums from which they are drawn."""
    with np.errstate(all="ignore"):
        exact = query.evaluate(rows, public)
    if isinstance(exact, FollowedScores):
        return compute_scores(exact._follower.sums() * exact._reach, exact._kind)[:, None]
    return np.asarray(exact)


def moved(query: Query, first: Rows, second: Rows, public: PublicFacts) -> np.ndarray:
    return answer(query, first, public) - answer(query, second, public)


def assert_within(query: Query, first: Rows, second: Rows, public: PublicFacts) -> None:
    """In every norm for which the query declares a sensitivity, and it declares one."""
    change = moved(query, first, second, public)
    assert np.all(np.isfinite(change))
    declared = query.sensitivity(public)
    found = {"l1": np.abs(change).sum(), "l2": np.linalg.norm(change), "linf": np.abs(change).max()}
    assert any(getattr(declared, norm) < math.inf for norm in found)
    for norm, distance in found.items():
        assert distance <= getattr(declared, norm) * ROUNDING


every_loss = pytest.mark.parametrize("loss", LOSSES)
every_storage = pytest.mark.parametrize("storage", STORAGES)
KINDS: list[tuple[Norm, bool]] = [("l2", False), ("linf", False), ("l2", True)]


@every_storage
@every_loss
class TestNoNeighbourMovesFurther:
    @pytest.mark.parametrize(("norm", "on_support"), KINDS)
    @given(data=st.data())
    @settings(max_examples=30)
    def test_clipped_gradient(self, loss: str, storage: str, norm: Norm, on_support: bool, data: st.DataObject) -> None:
        first, second, public, a = data.draw(neighbours(LOSSES[loss], storage))
        query = data.draw(gradients(public, a, norm, on_support))
        assert_within(query, first, second, public)
        for rows in (first, second):
            size = np.linalg.norm(answer(query, rows, public))
            assert size <= query.size(public) * ROUNDING

    @given(data=st.data(), size=st.sampled_from([0.01, 1.0, 30.0]), penalty=st.sampled_from([0.0, 0.5]))
    @settings(max_examples=20)
    def test_step_and_magnitudes(
        self, loss: str, storage: str, data: st.DataObject, size: float, penalty: float
    ) -> None:
        first, second, public, a = data.draw(neighbours(LOSSES[loss], storage))
        norm, on_support = data.draw(st.sampled_from(KINDS))
        step = Step(data.draw(gradients(public, a, norm, on_support)), size, penalty)
        assert_within(step, first, second, public)
        assert_within(Magnitudes(step), first, second, public)

    @given(data=st.data())
    @settings(max_examples=20)
    def test_curvature(self, loss: str, storage: str, data: st.DataObject) -> None:
        first, second, public, a = data.draw(neighbours(LOSSES[loss], storage))
        bound = data.draw(st.sampled_from([None, 0.2, 3.0]))
        assert_within(Curvature(data.draw(weights_of(public)), a, bound), first, second, public)


# --- along a walk ---

SCORES: tuple[Kind, ...] = ("vertices", "simplex", "magnitudes")
ENGINES: dict[str, tuple[Engine, str]] = {
    "plain dense": ("plain", "dense"),
    "plain csr": ("plain", "csr"),
    "incremental": ("incremental", "csr"),
}
WALKED = [
    (loss, engine) for loss in LOSSES for engine in ENGINES if engine != "incremental" or can_follow(LOSSES[loss])
]
every_engine = pytest.mark.parametrize(("loss", "engine"), WALKED)


@st.composite
def walks(draw: st.DrawFn, public: PublicFacts) -> CoordinatePath:
    """From zero or from anywhere, a few moves on."""
    outputs = public.loss.n_outputs
    start = draw(weights_of(public) | st.just(np.zeros((public.n_parameters, outputs))))
    walk = CoordinatePath(start)
    for _ in range(draw(st.integers(0, 3))):
        a_move(draw, walk)
    return walk


def a_move(draw: st.DrawFn, walk: CoordinatePath) -> None:
    parameters, outputs = walk.unscaled.shape
    shrink = draw(st.sampled_from([1.0, 1.0, 1 / 3, 0.9, 1e-3]))
    coordinates = draw(st.lists(st.integers(0, parameters - 1), min_size=outputs, max_size=outputs))
    amount = st.sampled_from([0.0, 1.0, -20.0, 1e-9]) | st.floats(-3, 3)
    walk.move(shrink, np.array(coordinates), np.array(draw(st.lists(amount, min_size=outputs, max_size=outputs))))


@st.composite
def settings_along(draw: st.DrawFn, public: PublicFacts, a: float, engine: str) -> dict[str, Any]:
    """What queries along a walk have in common."""
    unit = st.sampled_from([1.0, 0.2, 3.0, 1e-3])
    units = draw(st.none() | st.lists(unit, min_size=public.n_parameters, max_size=public.n_parameters))
    return {
        "clip": draw(st.sampled_from([0.01, 0.3, 0.5, 1.0, 10.0])),
        "intercept_value": a,
        "units": None if units is None else np.array(units),
        "engine": ENGINES[engine][0],
    }


def assert_bounded(query: Query, rows: Rows, public: PublicFacts) -> None:
    found = answer(query, rows, public)
    assert np.abs(found).max() <= query.largest(public) * ROUNDING
    assert np.linalg.norm(found) <= query.size(public) * ROUNDING


def is_followed(query: Query, rows: Rows, public: PublicFacts) -> bool:
    with np.errstate(all="ignore"):
        return isinstance(query.evaluate(rows, public), FollowedScores)


@every_engine
class TestNoNeighbourMovesFurtherAlongAWalk:
    """Asked before and after a move, as a method does: what is kept of the first answer must not spoil the second."""

    @pytest.mark.parametrize("kind", SCORES)
    @given(data=st.data(), reach=st.sampled_from([0.1, 1.0, 50.0]))
    @settings(max_examples=12)
    def test_coordinate_scores(self, loss: str, engine: str, kind: Kind, data: st.DataObject, reach: float) -> None:
        first, second, public, a = data.draw(neighbours(LOSSES[loss], ENGINES[engine][1]))
        path = data.draw(walks(public))
        shared = data.draw(settings_along(public, a, engine))
        for _ in range(2):
            query = CoordinateScores(**{**shared, "point": path.point}, kind=kind, reach=reach)
            assert is_followed(query, first, public) is (engine == "incremental")
            assert_within(query, first, second, public)
            for rows in (first, second):
                assert_bounded(query, rows, public)
            a_move(data.draw, path)

    @given(data=st.data())
    @settings(max_examples=15)
    def test_coordinate_gradient(self, loss: str, engine: str, data: st.DataObject) -> None:
        first, second, public, a = data.draw(neighbours(LOSSES[loss], ENGINES[engine][1]))
        outputs = public.loss.n_outputs
        j = data.draw(st.lists(st.integers(0, public.n_parameters - 1), min_size=outputs, max_size=outputs))
        path = data.draw(walks(public))
        shared = data.draw(settings_along(public, a, engine))
        for _ in range(2):
            query = CoordinateGradient(**{**shared, "point": path.point}, coordinates=np.array(j))
            assert_within(query, first, second, public)
            declared = query.sensitivity(public)
            assert declared.linf <= declared.l2 <= declared.l1 < math.inf
            for rows in (first, second):
                assert_bounded(query, rows, public)
            a_move(data.draw, path)


@st.composite
def polytopes(draw: st.DrawFn, parameters: int) -> Polytope:
    vertex = st.lists(st.sampled_from([0.0, 1.0, -2.0, 0.01]), min_size=parameters, max_size=parameters)
    vertices = np.array(draw(st.lists(vertex, min_size=1, max_size=5)))
    vertices[0, 0] = 1.0  # not all of them at the origin
    return Polytope(vertices=draw(st.sampled_from([np.array, sp.csr_array, sp.csc_array]))(vertices))


@every_storage
@every_loss
@given(data=st.data())
@settings(max_examples=20)
def test_no_neighbour_moves_vertex_scores_further(loss: str, storage: str, data: st.DataObject) -> None:
    """Of dense and of sparse vertices, not all on the polytope's radius."""
    first, second, public, a = data.draw(neighbours(LOSSES[loss], storage))
    polytope = data.draw(polytopes(public.n_parameters))
    query = VertexScores(data.draw(gradients(public, a, "linf", False)), polytope.vertices)
    assert_within(query, first, second, public)
    for rows in (first, second):
        assert_bounded(query, rows, public)


@every_storage
@pytest.mark.parametrize("of", ["row_l2", "row_linf", "label"])
@given(data=st.data(), quantile=st.floats(0.05, 0.95), clip=st.booleans())
def test_no_neighbour_moves_quantile_scores_further(
    storage: str, of: str, data: st.DataObject, quantile: float, clip: bool
) -> None:
    """Clipped or not: bounds are estimated on rows as they come."""
    first, second, public, _ = data.draw(neighbours(Squared(), storage, clip))
    assert_within(QuantileScores(GRID, quantile, of), first, second, public)


# --- worst cases: the sensitivity is no larger than it need be ---


def worst_pair(
    loss: Loss, unit: int, a: float, flip_label: bool, n: int = 8, storage: str = "dense"
) -> tuple[Rows, Rows, PublicFacts]:
    """All rows at the bound on the first feature; one unit's rows are replaced by their mirror image."""
    known = Bounds(row_l2=1.5, label=LABEL).known(3)
    X = np.tile([1.5, 0.0, 0.0], (n, 1))
    y = np.full(n, {"regression": LABEL, "classification": 1.0}[loss.kind])
    X2, y2 = X.copy(), y.copy()
    if flip_label:
        y2[:unit] = 0.0 if loss.n_outputs > 1 or isinstance(loss, Poisson) else -y2[:unit]
    else:
        X2[:unit] *= -1
    pair = [Rows(STORAGES[storage](M), t) for M, t in ((X, y), (X2, y2))]
    for rows in pair:
        known.clip(rows, loss)
    facts = PublicFacts(n, 3, 1, loss, None, 1.5, 1.5, LABEL, a > 0, unit)
    return pair[0], pair[1], facts


def attained(query: Query, first: Rows, second: Rows, public: PublicFacts, norm: str) -> float:
    """The part of the declared sensitivity that a pair of neighbours uses."""
    change = moved(query, first, second, public)
    distance = {"l1": np.abs(change).sum(), "l2": np.linalg.norm(change), "linf": np.abs(change).max()}[norm]
    return float(distance / getattr(query.sensitivity(public), norm))


FLIPS = [(loss, 0.0, False) for loss in LOSSES] + [
    (loss, a, True) for loss in ("squared", "huber", "poisson", "logistic", "squared hinge") for a in (0.0, 0.75, 4.0)
]


@pytest.mark.parametrize("unit", [1, 3])
@pytest.mark.parametrize(("loss", "a", "flip_label"), FLIPS)
class TestWorstCases:
    """Within 1 % of the declared sensitivity, so that one of 2/3 would be exceeded and one of 3/2 not be reached."""

    @pytest.mark.parametrize("norm", ["l2", "linf"])
    def test_clipped_gradient(self, loss: str, a: float, flip_label: bool, unit: int, norm: Norm) -> None:
        first, second, public = worst_pair(LOSSES[loss], unit, a, flip_label)
        weights = np.zeros((public.n_parameters, public.loss.n_outputs))
        query = ClippedGradient(weights, 0.4, norm, a)
        assert 0.99 < attained(query, first, second, public, norm) <= ROUNDING

    def test_clipped_gradient_on_a_support(self, loss: str, a: float, flip_label: bool, unit: int) -> None:
        first, second, public = worst_pair(LOSSES[loss], unit, a, flip_label)
        weights = np.zeros((public.n_parameters, public.loss.n_outputs))
        support = np.ones(weights.shape, dtype=bool)
        support[1:3] = False
        query = ClippedGradient(weights, 0.4, "l2", a, support, 0.9)
        assert 0.99 < attained(query, first, second, public, "l2") <= ROUNDING
        assert 0.99 < attained(Step(query, 7.0, 0.1), first, second, public, "l2") <= ROUNDING

    def test_magnitudes(self, loss: str, a: float, flip_label: bool, unit: int) -> None:
        """A step from weights far enough from 0 that both signs of the gradient leave them positive."""
        first, second, public = worst_pair(LOSSES[loss], unit, a, flip_label)
        public = replace(public, as_published=True)
        weights = np.zeros((public.n_parameters, public.loss.n_outputs))
        weights[0] = 1e-3
        step = Step(ClippedGradient(weights, 1e-2, "linf", a), 0.05)
        if a > public.row_linf:
            pytest.skip("the largest entry of a row is then the intercept's, which is not scored")
        assert 0.99 < attained(Magnitudes(step), first, second, public, "linf") <= ROUNDING

    def test_vertex_scores(self, loss: str, a: float, flip_label: bool, unit: int) -> None:
        first, second, public = worst_pair(LOSSES[loss], unit, a, flip_label)
        weights = np.zeros((public.n_parameters, public.loss.n_outputs))
        vertices = np.vstack([0.5 * np.eye(public.n_parameters), -3.0 * np.eye(public.n_parameters)])
        for kind in (np.array, sp.csr_array):
            query = VertexScores(ClippedGradient(weights, 0.4, "linf", a), Polytope(vertices=kind(vertices)).vertices)
            assert 0.99 < attained(query, first, second, public, "linf") <= ROUNDING

    @pytest.mark.parametrize("in_units", [False, True])
    @pytest.mark.parametrize("engine", ENGINES)
    def test_along_a_walk(self, loss: str, a: float, flip_label: bool, unit: int, engine: str, in_units: bool) -> None:
        """Scores of all kinds, and a coordinate's gradient in all norms."""
        if (loss, engine) not in WALKED:
            pytest.skip("followed losses have one output and are of tulle's own")
        first, second, public = worst_pair(LOSSES[loss], unit, a, flip_label, storage=ENGINES[engine][1])
        units = np.array([0.5, 2.0, 1.0, 0.9])[: public.n_parameters] if in_units else None
        common: dict[str, Any] = {"clip": 0.3, "intercept_value": a, "units": units, "engine": ENGINES[engine][0]}
        walk = CoordinatePath(np.zeros((public.n_parameters, public.loss.n_outputs)))
        for kind in SCORES:
            scores = CoordinateScores(walk.point, **common, kind=kind, reach=7.0)
            assert 0.99 < attained(scores, first, second, public, "linf") <= ROUNDING
        sizes = np.array([1.5, 0, 0, a])[: public.n_parameters] / (1.0 if units is None else units)
        longest = np.full(public.loss.n_outputs, sizes.argmax())
        gradient = CoordinateGradient(walk.point, **common, coordinates=longest)
        for norm in ("l1", "l2", "linf"):
            assert 0.99 < attained(gradient, first, second, public, norm) <= ROUNDING


@every_storage
@pytest.mark.parametrize("on_support", [False, True])
@pytest.mark.parametrize("huge", [1e155, 1e200, 1.7e308])
def test_a_row_whose_norm_overflows_cannot_smuggle_an_intercept_past_the_clip(
    huge: float, on_support: bool, storage: str
) -> None:
    """Its features vanish, but its constant column is still there, with a slope of 20 clips."""
    X, y = np.tile([0.5, 0.5], (4, 1)), np.full(4, -LABEL)
    X2, y2 = X.copy(), y.copy()
    X2[0], y2[0] = huge, LABEL
    known = Bounds(row_l2=1.0, label=LABEL).known(2)
    first, second = (Rows(STORAGES[storage](M), t) for M, t in ((X, y), (X2, y2)))
    for rows in (first, second):
        known.clip(rows, Squared())
    public = PublicFacts(4, 2, 1, Squared(), None, 1.0, 1.0, LABEL, True)
    support = np.ones((3, 1), dtype=bool) if on_support else None
    query = ClippedGradient(np.zeros((3, 1)), 0.1, "l2", 5.0, support, 5.0 if on_support else None)
    assert_within(query, first, second, public)


@pytest.mark.parametrize("a", [0.5, 1.5, 6.0])
def test_a_row_bound_without_the_intercept_would_be_exceeded(a: float) -> None:
    """The change of the worst pair is larger than 2 clip row_l2 / n, by exactly the constant column."""
    first, second, public = worst_pair(Logistic(), 1, a, flip_label=True)
    query = ClippedGradient(np.zeros((4, 1)), 0.5, "l2", a)
    change = float(np.linalg.norm(moved(query, first, second, public)))
    without = 2 * 0.5 * public.row_l2 / public.n_rows
    assert change > 1.04 * without
    assert change == pytest.approx(without * math.hypot(1.5, a) / 1.5, rel=1e-9)
    assert query.sensitivity(public).l2 >= change / ROUNDING


@pytest.mark.parametrize("unit", [1, 3])
@pytest.mark.parametrize("of", ["row_l2", "row_linf", "label"])
def test_worst_case_of_quantile_scores(of: str, unit: int) -> None:
    X, y = np.full((10, 2), 0.01), np.full(10, 0.01)
    X2, y2 = X.copy(), y.copy()
    X2[:unit], y2[:unit] = 100.0, 100.0
    public = PublicFacts(10, 2, 1, Squared(), None, math.inf, math.inf, math.inf, False, unit)
    assert attained(QuantileScores(GRID, 0.1, of), Rows(X, y), Rows(X2, y2), public, "linf") == pytest.approx(1.0)


@pytest.mark.parametrize("unit", [1, 3])
def test_worst_case_of_curvature(unit: int) -> None:
    """From nothing to a row at its bound along the direction: one squared bound, not two."""
    known = Bounds(row_l2=1.5).known(3)
    X = np.zeros((8, 3))
    X2 = X.copy()
    X2[:unit, 0] = 1.5
    first, second = Rows(X, np.zeros(8)), Rows(X2, np.zeros(8))
    for rows in (first, second):
        known.clip(rows, Squared())
    public = PublicFacts(8, 3, 1, Squared(), None, 1.5, 1.5, LABEL, False, unit)
    query = Curvature(np.array([[2.0], [0.0], [0.0]]))
    assert query.sensitivity(public).l1 == pytest.approx(1.5**2 * unit / 8)
    for norm in ("l1", "l2", "linf"):
        assert 0.99 < attained(query, first, second, public, norm) <= ROUNDING


def test_curvature_of_a_row_beyond_the_bound_counts_as_the_bound() -> None:
    """The bound may be one for the features in play alone, and rows on them longer."""
    public = PublicFacts(2, 2, 1, Squared(), None, 1.5, 1.5, LABEL, False)
    rows = Rows(np.array([[1.5, 0.0], [0.0, 0.0]]), np.zeros(2))
    found = Curvature(np.array([[1.0], [0.0]]), row_bound=0.5).evaluate(rows, public)
    assert found[0, 0] == pytest.approx(0.5**2 / 2)


# --- tightening ---


class TestTightening:
    def facts(self, loss: Loss, as_published: bool = False) -> PublicFacts:
        return PublicFacts(10, 3, 1, loss, None, 2.0, 1.0, LABEL, False, as_published=as_published)

    @pytest.mark.parametrize("norm", ["l2", "linf"])
    def test_the_first_logistic_step_has_half_the_sensitivity(self, norm: Norm) -> None:
        query = ClippedGradient(np.zeros((3, 1)), 1.0, norm)
        tight, loose = (getattr(query.sensitivity(self.facts(Logistic(), p)), norm) for p in (False, True))
        assert loose == pytest.approx(2 * 1.0 * (2.0 if norm == "l2" else 1.0) / 10)
        assert tight == pytest.approx(loose / 2)

    def test_later_steps_know_what_the_public_weights_allow(self) -> None:
        """|m| <= min(K2 |w|_2, Kinf |w|_1): here 2 × 0.5 against 1 × 0.7, so the second."""
        weights = np.array([[0.3], [0.4], [0.0]])
        level = ClippedGradient(weights, 1.0).level(self.facts(Logistic()))
        assert level == pytest.approx(2.0 / (1 + math.exp(-0.7)))
        level = ClippedGradient(weights, 100.0).level(self.facts(Squared()))
        assert level == pytest.approx(2.0 * (LABEL + 0.7))

    def test_a_clip_below_the_bound_stays(self) -> None:
        assert ClippedGradient(np.zeros((3, 1)), 0.2).level(self.facts(Logistic())) == pytest.approx(0.4)

    def test_the_bound_is_enforced_on_a_loss_that_lies(self) -> None:
        """A loss of the user's own that understates its slopes loses accuracy and breaks no promise."""

        class Liar(Squared):
            def slope_bound(self, margin_bound: float, label_bound: float, norm: Norm = "l2") -> float:
                return 0.1

        public = self.facts(Liar())
        X, y = np.tile([2.0, 0.0, 0.0], (10, 1)), np.full(10, LABEL)
        X2 = X.copy()
        X2[0] *= -1
        query = ClippedGradient(np.zeros((3, 1)), 5.0)
        change = np.linalg.norm(moved(query, Rows(X, y), Rows(X2, y), public))
        assert change == pytest.approx(query.sensitivity(public).l2, rel=1e-9)
        assert query.sensitivity(public).l2 == pytest.approx(2 * 0.1 * 2.0 / 10)


class TestTheLevelAlongAWalk:
    """What contributions are clipped to: what the public weights allow, rounded up to a grid of 2^(1/16)."""

    def facts(self, loss: Loss, a: float, as_published: bool = False) -> PublicFacts:
        return PublicFacts(10, 3, 1, loss, None, 2.0, 0.75, LABEL, a > 0, as_published=as_published)

    @every_loss
    @given(data=st.data(), clip=st.sampled_from([0.05, 0.6, 3.0, 1e3]), a=st.sampled_from([0.0, 0.3, 1.0]))
    def test_is_at_most_a_sixteenth_of_an_octave_above_the_slope_bound(
        self, loss: str, data: st.DataObject, clip: float, a: float
    ) -> None:
        """And it is the level that `ClippedGradient` has, where that is not rounded."""
        public = self.facts(LOSSES[loss], a)
        walk = data.draw(walks(public))
        level = CoordinateScores(walk.point, clip, a).level(public)
        exact = ClippedGradient(walk.weights, clip, "linf", a).level(public)
        entry = max(0.75, a)
        assert exact * (1 - 1e-6) <= level <= clip * entry
        assert level <= exact * 2 ** (1 / 16) * (1 + 1e-6)

    def test_is_the_same_while_the_bound_moves_little(self) -> None:
        """Whoever follows the walk starts afresh when it changes: in 40 small moves, a few times."""
        public, walk = self.facts(Logistic(), 0.0), CoordinatePath(np.zeros((3, 1)))
        levels = []
        for _ in range(40):
            levels.append(CoordinateScores(walk.point, 10.0).level(public))
            walk.move(1.0, np.array([0]), np.array([0.05]))
        assert levels == sorted(levels)
        assert 5 < len(set(levels)) < 14
        steps = 16 * np.log2(np.array(levels) / 0.75)
        np.testing.assert_allclose(steps, np.round(steps), atol=1e-9)
        assert levels[0] == pytest.approx(0.5 * 0.75)

    @every_loss
    @given(data=st.data(), clip=st.sampled_from([0.05, 3.0]), a=st.sampled_from([0.0, 1.0]))
    @settings(max_examples=20)
    def test_as_published_it_is_clip_times_entry_bound(
        self, loss: str, data: st.DataObject, clip: float, a: float
    ) -> None:
        public = self.facts(LOSSES[loss], a, as_published=True)
        walk, entry = data.draw(walks(public)), max(0.75, a)
        scores, gradient = CoordinateScores(walk.point, clip, a, reach=5.0), CoordinateGradient(walk.point, clip, a)
        assert scores.level(public) == gradient.level(public) == clip * entry
        assert scores.sensitivity(public).linf == pytest.approx(5 * 2 * clip * entry / 10)
        assert gradient.sensitivity(public).l2 == pytest.approx(2 * clip * entry / 10)
        vertices = VertexScores(ClippedGradient(walk.weights, clip, "linf", a), 5 * np.eye(3))
        assert vertices.sensitivity(public).linf == pytest.approx(5 * 2 * clip * entry / 10)

    def test_a_loss_that_lies_is_clipped_to_its_word(self) -> None:
        """At most 2^(1/16) above it; and nothing gets through where the word is negative."""
        for said, most in ((0.1, 0.1 * 2 ** (1 / 16)), (-1.0, 0.0)):

            class Liar(Squared):
                def slope_bound(self, margin_bound: float, label_bound: float, norm: Norm = "l2") -> float:
                    return said  # noqa: B023

            public = replace(self.facts(Liar(), 0.0), n_rows=1)
            query = CoordinateScores(CoordinatePath(np.zeros((3, 1))).point, 5.0)
            found = answer(query, Rows(np.full((1, 3), 0.75), np.full(1, LABEL)), public)
            assert np.abs(found).max() <= query.largest(public) * ROUNDING <= most * 0.75 * ROUNDING
            assert bool(np.any(found)) is (said > 0)


# --- answers ---


def by_hand(
    X: np.ndarray, y: np.ndarray, loss: Loss, weights: np.ndarray, a: float, units: np.ndarray, level: float
) -> np.ndarray:
    """The mean over rows of slope × row / unit, slopes cut so that no entry of a row passes the level."""
    full = np.hstack([X, np.full((len(X), 1), a)]) if a else X
    in_units = full / units
    sizes = np.abs(in_units).max(axis=1)
    cap = np.where(sizes > 0, level / np.where(sizes > 0, sizes, 1.0), np.inf)[:, None]
    slopes = np.clip(loss.slope(full @ weights, y), -cap, cap)
    return np.asarray(in_units.T @ slopes / len(X))


def with_long_indices(X: np.ndarray) -> Any:
    """As files with more than 2^31 entries are read."""
    columns = sp.csc_array(X)
    columns.indices, columns.indptr = columns.indices.astype(np.int64), columns.indptr.astype(np.int64)
    return columns


WALKED_STORAGES: dict[str, Callable[[np.ndarray], Any]] = {
    **STORAGES,
    "csc": sp.csc_array,
    "csc 64": with_long_indices,
}


@reduce_to_pairs()
@pytest.mark.parametrize("clip", [0.2, 100.0])
@pytest.mark.parametrize("a", [0.0, 0.5])
@pytest.mark.parametrize("in_units", [False, True])
@every_loss
def test_answers_along_a_walk(loss: str, in_units: bool, a: float, clip: float) -> None:
    """Every storage and engine gives what the formula says, at every point of the walk."""
    rng = np.random.default_rng(0)
    n, d, f = 20, 4, LOSSES[loss]
    X = rng.uniform(-1, 1, size=(n, d)) * (rng.random((n, d)) < 0.7)
    X[3] = 0.0
    y = rng.integers(0, 3, n).astype(float) if f.n_outputs > 1 else np.where(rng.random(n) < 0.5, -1.0, 1.0)
    y = np.abs(y) if isinstance(f, Poisson) else y
    public = PublicFacts(n, d, 2, f, None, 2.0, 1.0, 1.0, a > 0)
    units = rng.uniform(0.3, 3.0, public.n_parameters) if in_units else None
    places: list[tuple[str, Engine]] = [("dense", "plain"), ("csr", "plain"), ("csc", "plain")]
    places += [("csr", "incremental"), ("csc", "incremental"), ("dense", "incremental"), ("csr", "auto")]
    places += [("csc 64", "plain"), ("csc 64", "incremental")]
    everywhere = [(Rows(WALKED_STORAGES[storage](X), y), engine) for storage, engine in places]
    walk = CoordinatePath(rng.normal(size=(public.n_parameters, f.n_outputs)))
    for t in range(4):
        if t:
            moved_to = rng.integers(0, public.n_parameters, f.n_outputs)
            walk.move([1.0, 0.5, 0.9][t - 1], moved_to, rng.normal(size=f.n_outputs))
        level = CoordinateScores(walk.point, clip, a, units).level(public)
        g = by_hand(X, y, f, walk.weights, a, np.ones(public.n_parameters) if units is None else units, level)
        expected = {"vertices": 3 * np.vstack([-g, g]), "simplex": -3 * g, "magnitudes": 3 * np.abs(g)}
        j = rng.integers(0, public.n_parameters, f.n_outputs)
        entry = g[j, np.arange(f.n_outputs)] * (1.0 if units is None else units[j])
        for rows, engine in everywhere:
            for kind in SCORES:
                query = CoordinateScores(walk.point, clip, a, units, engine=engine, kind=kind, reach=3.0)
                np.testing.assert_allclose(answer(query, rows, public), expected[kind], atol=1e-12)
            one = CoordinateGradient(walk.point, clip, a, units, engine=engine, coordinates=j)
            np.testing.assert_allclose(answer(one, rows, public), entry[None, :], atol=1e-12)


@every_storage
@pytest.mark.parametrize("kind", [np.array, sp.csr_array, sp.csc_array])
def test_vertex_scores_are_minus_the_slope_towards_each_vertex(kind: Callable[[np.ndarray], Any], storage: str) -> None:
    rng = np.random.default_rng(0)
    X, y, vertices = rng.uniform(-1, 1, (9, 3)), rng.normal(size=9), rng.normal(size=(5, 3))
    public = PublicFacts(9, 3, 1, Squared(), None, 2.0, 1.0, 10.0, False)
    gradient, rows = ClippedGradient(np.ones((3, 1)), 100.0, "linf"), Rows(STORAGES[storage](X), y)
    found = VertexScores(gradient, Polytope(vertices=kind(vertices)).vertices).evaluate(rows, public)
    np.testing.assert_allclose(found, -vertices @ X.T @ (X.sum(axis=1) - y)[:, None] / 9, atol=1e-12)


def test_vertices_of_a_gradient_clipped_in_another_norm_have_no_sensitivity() -> None:
    public = PublicFacts(9, 3, 1, Squared(), None, 2.0, 1.0, 10.0, False)
    query = VertexScores(ClippedGradient(np.ones((3, 1)), 1.0, "l2"), np.eye(3))
    declared = query.sensitivity(public)
    assert declared.l1 == declared.l2 == declared.linf == math.inf


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan, 1e300])
@pytest.mark.parametrize("engine", ["plain", "incremental"])
def test_stored_zeros_of_an_empty_row_count_as_nothing(engine: Engine, bad: float) -> None:
    """Without a bound on labels: 0 × inf is not a number, and one record would spoil every score."""
    X, y = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]), np.array([bad, 1.0, 0.0, 1.0])
    stored = sp.csr_array((X.ravel(), np.tile([0, 1], 4), np.arange(0, 9, 2)), shape=X.shape)
    assert stored.nnz == X.size
    public = PublicFacts(4, 2, 1, Squared(), None, 1.0, 1.0, math.inf, False)
    query = CoordinateScores(CoordinatePath(np.full((2, 1), 0.25)).point, 0.5, engine=engine)
    without = answer(query, Rows(stored, np.r_[0.0, y[1:]]), public)
    np.testing.assert_array_equal(answer(query, Rows(stored, y), public), without)
    assert np.all(without != 0)


def test_queries_of_one_walk_that_differ_have_answers_of_their_own() -> None:
    """Units, constant column and loss: none is taken from what was kept of the query before."""
    X, y = np.array([[1.0, 0.5], [0.0, -1.0], [0.5, 0.0]]), np.array([1.0, -1.0, 1.0])
    walk = CoordinatePath(np.full((3, 1), 0.25))
    rows = Rows(sp.csr_array(X), y)
    for loss in (Squared(), Logistic(), Squared()):
        public = PublicFacts(3, 2, 1, loss, None, 2.0, 1.0, 1.0, True)
        for a, units in ((0.5, np.ones(3)), (0.5, None), (0.25, None), (0.5, np.array([0.5, 2.0, 3.0]))):
            query = CoordinateScores(walk.point, 0.4, a, units, engine="incremental")
            assert is_followed(query, rows, public)
            plain = answer(replace(query, engine="plain"), Rows(X, y), public)
            np.testing.assert_allclose(answer(query, rows, public), plain, atol=1e-13)


def test_followed_or_not_is_decided_by_public_figures_and_what_can_be_followed() -> None:
    """Sparse rows, one output, a loss that the kernels know, margins whose squares have a sum."""
    X, y = sp.csr_array(np.eye(3)), np.ones(3)
    public = PublicFacts(3, 3, 1, Squared(), None, 1.0, 1.0, 1.0, False)

    def followed(matrix: Any = X, loss: Loss = public.loss, start: float = 0.0, **settings: Any) -> bool:
        walk = CoordinatePath(np.full((3, loss.n_outputs), start))
        return is_followed(CoordinateScores(walk.point, 1.0, **settings), Rows(matrix, y), replace(public, loss=loss))

    assert followed(engine="incremental")
    assert followed(sp.csr_array((3, 3)), engine="incremental")  # the entries of the rows decide nothing
    assert not followed(engine="plain")
    assert not followed()
    for other in ({"matrix": np.eye(3)}, {"loss": Softmax(3)}, {"loss": Poisson()}, {"start": 1e100}):
        assert not followed(**other, engine="incremental")


@reduce_to_pairs()
@every_storage
@every_loss
@pytest.mark.parametrize("a", [0.0, 0.5])
def test_an_unclipped_gradient_is_the_gradient_of_the_mean_loss(loss: str, storage: str, a: float) -> None:
    """Against finite differences of the mean loss; on a support the same, restricted."""
    rng = np.random.default_rng(0)
    n, d, f = 20, 4, LOSSES[loss]
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.7)
    y = rng.integers(0, 3, n).astype(float) if f.n_outputs > 1 else np.where(rng.random(n) < 0.5, -1.0, 1.0)
    y = np.abs(y) if isinstance(f, Poisson) else y
    w = rng.normal(size=(d + (a > 0), f.n_outputs))
    public = PublicFacts(n, d, 2, f, None, math.inf, math.inf, math.inf, a > 0, as_published=True)
    rows = Rows(STORAGES[storage](X), y)

    def objective(weights: np.ndarray) -> float:
        return float(f.value(X @ weights[:d] + (a * weights[d] if a else 0.0), y).mean())

    h, expected = 1e-6, np.zeros_like(w)
    for index in np.ndindex(w.shape):
        shift = np.zeros_like(w)
        shift[index] = h
        expected[index] = (objective(w + shift) - objective(w - shift)) / (2 * h)
    np.testing.assert_allclose(ClippedGradient(w, math.inf, "l2", a).evaluate(rows, public), expected, atol=1e-6)
    support = rng.random(w.shape) < 0.5
    support[d:] = True
    on = ClippedGradient(w, math.inf, "l2", a, support, 1.0).evaluate(rows, public)
    np.testing.assert_allclose(on, np.where(support, expected, 0.0), atol=1e-6)


@pytest.mark.parametrize("support", [None, np.array([[True], [True]])])
def test_tiny_slopes_are_clipped_too(support: np.ndarray | None) -> None:
    """Slopes of 1e-170, whose squares underflow, at a clip of 1e-180."""
    public = replace(facts_without_model(1, 2, 1), row_l2=1e40, row_linf=1e40, label=1.0)
    rows = Rows(np.array([[0.6e40, 0.8e40]]), np.array([1e-170]))
    gradient = ClippedGradient(np.zeros((2, 1)), 1e-180, "l2", 0.0, support, None if support is None else 1e40)
    largest = np.abs(answer(gradient, rows, public)).max()
    assert 0.79e-140 < largest <= 0.8e-140 * (1 + 1e-9) <= gradient.level(public)


@pytest.mark.parametrize("storage", [np.asarray, sp.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize("kind", ["all", "support", "batch"])
def test_rows_whose_squares_vanish_are_clipped_too(kind: str, storage: Any) -> None:
    """Entries of 1e-170 make a row of computed length 0, and a slope of 1e206 more of it than any clip allows."""
    public = replace(facts_without_model(1, 2, 1), row_l2=1.5, row_linf=1.5, label=1e300)
    rows = Rows(storage(np.array([[3e-170, 4e-170]])), np.array([1e206]))
    support = np.array([[True], [True]]) if kind == "support" else None
    query: Any = ClippedGradient(np.zeros((2, 1)), 0.5, "l2", 0.0, support, None if support is None else 1.5)
    if kind == "batch":
        query = BatchGradient(SparseWeights(np.arange(0), np.zeros((0, 1)), 2), 0.5)
        answered = query.evaluate(rows.batch(np.array([0])), public).to_dense()
    else:
        answered = answer(query, rows, public)
    assert np.linalg.norm(answered) <= 0.5 * 1.5


@pytest.mark.parametrize(("norm", "bound"), [("l2", 1.5), ("linf", 1.0)])
def test_clipping_scales_a_row_and_keeps_its_direction(norm: Norm, bound: float) -> None:
    public = PublicFacts(1, 2, 1, Squared(), None, 1.5, 1.0, 100.0, False)
    row = np.array([[0.9, -0.6]])
    found = ClippedGradient(np.zeros((2, 1)), 0.25, norm).evaluate(Rows(row, np.array([50.0])), public)[:, 0]
    size = np.linalg.norm(found) if norm == "l2" else np.abs(found).max()
    assert size == pytest.approx(0.25 * bound)
    assert found / np.linalg.norm(found) == pytest.approx(-row[0] / np.linalg.norm(row))


@every_storage
def test_a_step_shrinks_features_by_the_penalty_and_not_the_intercept(storage: str) -> None:
    public = PublicFacts(2, 2, 1, Squared(), None, 1.0, 1.0, 1.0, True)
    weights = np.array([[1.0], [2.0], [3.0]])
    gradient = ClippedGradient(weights, 0.3, "l2", 0.5)
    rows = Rows(STORAGES[storage](np.array([[1.0, 0.0], [0.0, 1.0]])), np.array([0.5, -0.5]))
    found = Step(gradient, 0.1, 0.4).evaluate(rows, public)
    np.testing.assert_allclose(
        found, weights * [[0.96], [0.96], [1.0]] - 0.1 * gradient.evaluate(rows, public), rtol=1e-12
    )
    np.testing.assert_array_equal(weights, [[1.0], [2.0], [3.0]])
    np.testing.assert_allclose(Magnitudes(Step(gradient, 0.1, 0.4)).evaluate(rows, public), np.abs(found[:2]))


@pytest.mark.parametrize("penalty", [0.0, 0.5, 3.0, 30.0])
def test_the_size_of_a_step_bounds_it(penalty: float) -> None:
    """Also where step × penalty passes 2 and the shrunken weights are longer than the weights."""
    public = PublicFacts(4, 2, 1, Squared(), None, 1.0, 1.0, 1.0, False)
    step = Step(ClippedGradient(np.array([[3.0], [-1.0]]), 0.5), 1.0, penalty)
    found = step.evaluate(Rows(np.full((4, 2), 0.5), np.ones(4)), public)
    assert np.linalg.norm(found) <= step.size(public) * ROUNDING


KINDS_OF_QUERY = ("gradient", "support", "quantile", "curvature", "vertex", *SCORES, "followed", "coordinate")


def along(kind: str, weights: np.ndarray, a: float) -> Query:
    """Queries along a walk that has arrived at some weights, and its like with vertices."""
    if kind == "vertex":
        return VertexScores(ClippedGradient(weights, 0.5, "linf", a), 2 * np.eye(len(weights)))
    if kind == "coordinate":
        return CoordinateGradient(CoordinatePath(weights).point, 0.5, a, coordinates=np.array([1]))
    score: Kind = next((one for one in SCORES if one == kind), "vertices")
    return CoordinateScores(
        CoordinatePath(weights).point, 0.5, a, engine="incremental" if kind == "followed" else "plain", kind=score
    )


@every_storage
@pytest.mark.parametrize("kind", KINDS_OF_QUERY)
def test_surplus_rows_count_as_nothing(storage: str, kind: str) -> None:
    """What stands in an inactive row cannot be told from the answer."""
    public = PublicFacts(4, 2, 1, Squared(), None, 1.0, 1.0, 1.0, False)
    support = np.array([[True], [False]])
    query: Query = {
        "gradient": ClippedGradient(np.ones((2, 1)), 0.5),
        "support": ClippedGradient(np.ones((2, 1)), 0.5, "l2", 0.0, support, 0.5),
        "quantile": QuantileScores(GRID, 0.5, "row_l2"),
        "curvature": Curvature(np.ones((2, 1))),
    }.get(kind) or along(kind, np.ones((2, 1)), 0.0)
    active = np.array([True, True, False, False])
    answers = []
    for surplus in (0.0, 0.7, 1e6, 1.7e308):
        X = np.vstack([np.full((2, 2), 0.5), np.full((2, 2), surplus)])
        rows = Rows(STORAGES[storage](X), np.r_[0.2, 0.3, surplus, surplus], active)
        answers.append(answer(query, rows, public))
    for other in answers[1:]:
        np.testing.assert_array_equal(answers[0], other)


@every_storage
def test_surplus_rows_add_nothing_to_the_constant_column(storage: str) -> None:
    """They are zeros, and a row of zeros has a slope of its own where there is an intercept."""
    public = PublicFacts(4, 2, 1, Squared(), None, 1.0, 1.0, 1.0, True)
    query = ClippedGradient(np.ones((3, 1)), 5.0, intercept_value=1.0)
    X, y = np.full((4, 2), 0.5), np.full(4, 0.2)
    active = np.array([True, True, False, False])
    np.testing.assert_array_equal(
        answer(query, Rows(STORAGES[storage](X), y, active), public),
        answer(query, Rows(STORAGES[storage](X[:2]), y[:2]), public),
    )


@every_storage
@pytest.mark.parametrize("kind", ["gradient", "support", "vertices", "followed", "coordinate"])
@pytest.mark.parametrize("clip", [10.0**-133.6, 10.0**-133.1, 1e-120])
def test_a_clip_so_small_that_products_lose_their_digits(storage: str, kind: str, clip: float) -> None:
    """The slope of a row that is scaled down from 1e139 is below all floats before its entry lifts it up again."""
    public = PublicFacts(1, 2, 1, Squared(), None, 1e-50, 1e-50, 1.0, False)
    query: Query = {
        "gradient": ClippedGradient(np.zeros((2, 1)), clip),
        "support": ClippedGradient(np.zeros((2, 1)), clip, "l2", 0.0, np.array([[True], [False]]), 1e-50),
        "vertices": CoordinateScores(CoordinatePath(np.zeros((2, 1))).point, clip, engine="plain"),
        "followed": CoordinateScores(CoordinatePath(np.zeros((2, 1))).point, clip, engine="incremental"),
        "coordinate": CoordinateGradient(CoordinatePath(np.zeros((2, 1))).point, clip, coordinates=np.array([0])),
    }[kind]
    answers = []
    for sign in (-1.0, 1.0):
        rows = Rows(STORAGES[storage](np.array([[9e139, 0.0]])), np.array([sign]))
        rows.clip_rows(1e-50)
        answers.append(answer(query, rows, public))
    moved = np.abs(answers[0] - answers[1]).max()
    sensitivity = query.sensitivity(public)
    assert moved <= min(sensitivity.l2, sensitivity.linf) * ROUNDING


@every_storage
@pytest.mark.parametrize("intercept_value", [0.0, 0.5])
def test_surplus_rows_are_in_no_second_moment(storage: str, intercept_value: float) -> None:
    """Neither with their features nor with their targets."""
    public = PublicFacts(4, 2, 1, Squared(), None, 1.0, 1.0, 1.0, bool(intercept_value))
    query = SecondMoments(np.arange(2), 1.0, intercept_value)
    active = np.array([True, True, False, False])
    answers = []
    for surplus in (0.0, 0.7, 1e6, 1.7e308):
        X = np.vstack([np.full((2, 2), 0.5), np.full((2, 2), surplus)])
        answers.append(answer(query, Rows(STORAGES[storage](X), np.r_[0.2, 0.3, surplus, -surplus], active), public))
    for other in answers[1:]:
        np.testing.assert_array_equal(other, answers[0])
    assert query.as_matrix(answers[0])[-1, -1] == pytest.approx((0.2**2 + 0.3**2) / 4)


@every_storage
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("kind", KINDS_OF_QUERY)
def test_a_label_that_is_not_finite_moves_an_answer_no_further_than_another(
    storage: str, bad: float, kind: str
) -> None:
    """Behind the estimator's checks, which refuse it. Entries that are not finite: test_curator.py."""
    X, y = np.tile([0.5, -0.5, 0.25], (6, 1)), np.linspace(-1, 1, 6)
    X2, y2 = X.copy(), y.copy()
    y2[0] = bad
    known = Bounds(row_l2=1.0, label=LABEL).known(3)
    first, second = (Rows(STORAGES[storage](M), t) for M, t in ((X, y), (X2, y2)))
    with np.errstate(all="ignore"):
        for rows in (first, second):
            known.clip(rows, Squared())
    public = PublicFacts(6, 3, 1, Squared(), None, 1.0, 1.0, LABEL, True)
    weights = np.array([[0.1], [0.2], [0.0], [0.3]])
    support = np.array([[True], [True], [False], [True]])
    query: Query = {
        "gradient": ClippedGradient(weights, 0.5, "l2", 0.3),
        "support": ClippedGradient(weights, 0.5, "l2", 0.3, support, 0.5),
        "quantile": QuantileScores(GRID, 0.5, "label"),
        "curvature": Curvature(weights, 0.3),
    }.get(kind) or along(kind, weights, 0.3)
    assert_within(query, first, second, public)


@pytest.mark.parametrize("of", ["row_l2", "row_linf", "label"])
def test_quantile_scores_are_distances_of_ranks(of: str) -> None:
    """0 for the cell (t_{k-1}, t_k] that holds the quantile, elsewhere minus the ranks that are missing."""
    X, y = np.array([[3.0, 4.0], [0.0, 1.0], [0.0, 0.0], [6.0, 8.0]]), np.array([5.0, -1.0, 0.0, -10.0])
    values = {"row_l2": [5, 1, 0, 10], "row_linf": [4, 1, 0, 8], "label": [5, 1, 0, 10]}[of]
    public = PublicFacts(4, 2, 1, Squared(), None, math.inf, math.inf, math.inf, False)
    grid = np.array([0.5, 1.0, 4.0, 5.0, 20.0, 40.0])
    found = QuantileScores(grid, 0.75, of).evaluate(Rows(X, y), public)
    counts = [sum(v <= t for v in values) for t in grid]
    expected = [-max(3 - c, below - 3, 0) for below, c in zip([0, *counts], counts)]
    np.testing.assert_array_equal(found[:, 0], expected)


def test_curvature_is_the_mean_square_of_margins_along_a_direction() -> None:
    X = np.random.default_rng(0).normal(size=(9, 3)) * 0.1
    direction = np.array([[1.0], [-2.0], [0.5], [3.0]])
    public = PublicFacts(9, 3, 1, Squared(), None, 1.0, 1.0, LABEL, True)
    found = Curvature(direction, 0.2).evaluate(Rows(X, np.zeros(9)), public)
    expected = np.mean((X @ direction[:3] + 0.2 * direction[3]) ** 2) / (direction**2).sum()
    assert found[0, 0] == pytest.approx(expected)
    assert Curvature(np.zeros((4, 1))).evaluate(Rows(X, np.zeros(9)), public) == 0.0


def test_the_curvature_along_a_gradient_has_no_sensitivity() -> None:
    public = PublicFacts(9, 3, 1, Squared(), None, 1.0, 1.0, LABEL, False)
    declared = curvature_along_gradient(ClippedGradient(np.zeros((3, 1)), 1.0), 1).sensitivity(public)
    assert declared.l1 == declared.l2 == declared.linf == math.inf


def test_the_curvature_along_a_gradient_reads_the_features_in_play() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 5)), rng.normal(size=30)
    public = PublicFacts(30, 5, 2, Squared(), None, math.inf, math.inf, math.inf, False)
    gradient = ClippedGradient(np.zeros((5, 1)), math.inf)
    exact = -X.T @ y / 30
    direction = HardThreshold(2, 5)(exact[:, None])
    found = curvature_along_gradient(gradient, 2).evaluate(Rows(X, y), public)
    assert found[0, 0] == pytest.approx(float(((X @ direction) ** 2).mean() / (direction**2).sum()))


class Negative(Squared):
    """A loss of a user's own that states a nonsensical bound on its slopes."""

    def slope_bound(self, margin_bound: float, label_bound: float, norm: Norm = "l2") -> float:
        return -1.0


def test_a_negative_slope_bound_lets_nothing_through() -> None:
    """The clip level is then 0: no contribution, no sensitivity, and not the level's magnitude with a wrong sign."""
    public = PublicFacts(3, 1, 1, Negative(), None, 1.0, 1.0, 1.0, False)
    query = ClippedGradient(np.zeros((1, 1)), 0.5)
    assert query.sensitivity(public).l2 == 0.0
    np.testing.assert_array_equal(query.evaluate(Rows(np.ones((3, 1)), np.ones(3)), public), 0.0)


def test_known_values_do_not_depend_on_rows() -> None:
    """What is answered is a copy."""
    values = np.array([[1.0, -2.0], [0.5, 1e9]])
    query = Known(values)
    public = PublicFacts(3, 2, 1, Squared(), None, 1.0, 1.0, 1.0, False)
    rng = np.random.default_rng(0)
    answers = [query.evaluate(Rows(rng.normal(size=(3, 2)), rng.normal(size=3)), public) for _ in range(2)]
    for answer in answers:
        np.testing.assert_array_equal(answer, values)
    answers[0][0, 0] = 7.0
    assert values[0, 0] == 1.0
    assert math.isinf(query.sensitivity(public).l2), "no noisy answer is sold"


@pytest.mark.parametrize("quantile", [0.0, 1.0, -1.0, 1e16, np.inf, np.nan])
def test_a_quantile_is_between_none_and_all_rows(quantile: float) -> None:
    """Ranks are counts minus quantile × n: next to 2^53 a count of 1 is rounded to 2, more than the sensitivity."""
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        QuantileScores(GRID, quantile, "row_l2")
