"""Rows with weights and offsets: none moves an answer further than a row without them, and minimisers are certified.

docs/proofs/weighted_rows.md.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import root
from scipy.special import ndtr

from tulle.backends.weighted_rows import CarriedNumbers, WeightedFeatures, WeightedRows
from tulle.backends.weighted_targets import WeightedTargets, is_certified, largest_fall, raise_penalty
from tulle.fast.sparse_weights import SparseWeights
from tulle.methods.gradient_queries import BatchGradient, ClippedGradient, Curvature, SecondMoments
from tulle.methods.loss_functions import Huber, Logistic, Loss, OneVsRest, Poisson, Softmax, Squared, SquaredHinge
from tulle.methods.weighted_loss import WeightedLoss
from tulle.preprocessing.class_balance import ClassBalance, ClassFactors
from tulle.trusted import hooks
from tulle.trusted import rows as trusted_rows
from tulle.trusted.events import NoisePerSensitivity, ObjectivePerturbationEvent
from tulle.trusted.facts import PublicFacts
from tulle.trusted.gaussian import gaussian_delta
from tulle.trusted.mechanisms import ObjectivePerturbation, price_of
from tulle.trusted.objectives import Minimiser
from tulle.trusted.plan import Budget
from tulle.trusted.rows import Rows

ROUNDING = 1 + 1e-9
D = 3
OFFSET = 3.0
NUMBERS = (0.0, 1.0, -1.0, 0.3, 0.999, 5e-324, 7.0, -2.5, 1e9, -1e300, 1.7e308)
LOSSES: dict[str, Loss] = {
    "squared": Squared(),
    "huber": Huber(0.5),
    "poisson": Poisson(2.0),
    "logistic": Logistic(),
    "squared hinge": SquaredHinge(),
    "softmax": Softmax(3),
    "one against the rest": OneVsRest(SquaredHinge(), 3),
}


def facts(n: int, loss: Loss, budget: Budget | None = None, rows_per_unit: int = 1, label: float = 2.0) -> PublicFacts:
    weighted = WeightedLoss(loss, OFFSET if loss.n_outputs == 1 else 0.0)
    return PublicFacts(n, D, 2, weighted, budget, 1.5, 1.0, label, True, rows_per_unit)


def weighted_rows(X: Any, y: Any, weights: Any, offsets: Any, sparse: bool = False) -> WeightedRows:
    numbers = CarriedNumbers(np.asarray(weights), None if offsets is None else np.asarray(offsets), OFFSET)
    rows = WeightedRows(sp.csr_array(X) if sparse else np.asarray(X), np.asarray(y, dtype=float), None, numbers)
    rows.carry()
    return rows


def questions(outputs: int) -> dict[str, Any]:
    """The sums over rows in which weights and offsets play a part."""
    w = np.random.default_rng(0).normal(size=(D + 1, outputs))
    sparse = SparseWeights.from_dense(w)
    return {
        "l2": ClippedGradient(w, 0.4, "l2", 0.5),
        "linf": ClippedGradient(w, 0.4, "linf", 0.5),
        "batch": BatchGradient(sparse, 0.4, 0.5),
        "change": BatchGradient(sparse, 0.4, 0.5, SparseWeights.from_dense(0.5 * w), 0.3),
        "curvature": Curvature(w[:, :1], 0.5, weighted=True),
        "moments": SecondMoments(np.array([0, 2]), 0.8, 0.5, 0.4),
    }


# --- sums over rows ---


def as_array(answer: Any) -> Any:
    return answer if isinstance(answer, np.ndarray) else answer.to_dense()


@pytest.mark.parametrize("question", questions(1))
@pytest.mark.parametrize("loss", LOSSES)
@given(data=st.data(), sparse=st.booleans())
@settings(max_examples=10)
def test_no_neighbour_moves_a_sum_further_than_declared(
    loss: str, question: str, data: st.DataObject, sparse: bool
) -> None:
    """Whatever weights and offsets the replaced row has, before and after."""
    public = facts(4, LOSSES[loss])
    outputs = public.loss.n_outputs
    number = st.sampled_from(NUMBERS) | st.floats(-2, 2)
    classes = st.sampled_from([0.0, 1.0, 2.0] if outputs > 1 else [-1.0, 1.0])

    def draw(of: Any, count: int) -> Any:
        return np.array(data.draw(st.lists(of, min_size=count, max_size=count)))

    X, y = draw(number, 5 * D).reshape(5, D), draw(classes, 5)
    weights, offsets = draw(number, 5), draw(number, 5) if outputs == 1 else None
    query = questions(outputs)[question].resolve(public)
    answers = []
    for chosen in ([0, 1, 2, 3], [4, 1, 2, 3]):
        rows = weighted_rows(
            X[chosen], y[chosen], weights[chosen], None if offsets is None else offsets[chosen], sparse
        )
        with np.errstate(all="ignore"):
            answers.append(as_array(query.evaluate(rows, public)))
    change, declared = answers[0] - answers[1], query.sensitivity(public)
    assert np.isfinite(change).all()
    assert np.linalg.norm(change) <= declared.l2 * ROUNDING
    assert np.abs(change).max() <= declared.linf * ROUNDING


def test_weights_of_one_move_a_gradient_so_far() -> None:
    """Within 1 % of the sensitivity: large weights count as 1, and offsets make slopes as steep as they can be."""
    X, public = np.array([[1.0, 1.0, 0.5]] * 4), facts(4, Logistic())
    query = ClippedGradient(np.zeros((D, 1)), 0.9, "l2").resolve(public)
    answers = [
        query.evaluate(weighted_rows(X, [sign, 1, 1, 1], [1e9, 0, 0, 0], [-9 * sign, 0, 0, 0]), public)
        for sign in (1.0, -1.0)
    ]
    assert 0.99 < np.linalg.norm(answers[0] - answers[1]) / query.sensitivity(public).l2 <= ROUNDING


@pytest.mark.parametrize("loss", LOSSES)
def test_the_slopes_are_those_of_the_weighted_loss(loss: str) -> None:
    """w f'(m + o, y), row by row; a weight of 0 is a row that does not count."""
    base, rng = LOSSES[loss], np.random.default_rng(1)
    outputs = base.n_outputs
    margins, weights = rng.normal(size=(6, outputs)), np.array([0.0, 1.0, 0.3, -2.0, 5.0, math.nan])
    y = rng.integers(0, 3, 6).astype(float) if outputs > 1 else rng.choice([-1.0, 1.0], 6)
    offsets = None if outputs > 1 else np.array([0.0, 1.0, -9.0, 9.0, math.nan, 2.0])
    carried = WeightedTargets.make(y, weights, offsets, OFFSET)
    counted = np.array([0.0, 1.0, 0.3, 0.0, 1.0, 0.0])
    shift = 0.0 if offsets is None else np.array([0.0, 1.0, -3.0, 3.0, 0.0, 2.0])[:, None]
    found = WeightedLoss(base, OFFSET)
    np.testing.assert_allclose(found.slope(margins, carried), counted[:, None] * base.slope(margins + shift, y))
    np.testing.assert_allclose(found.value(margins, carried), counted * base.value(margins + shift, y))
    some = np.array([4, 1])
    np.testing.assert_array_equal(found.slope(margins[some], carried[some]), found.slope(margins, carried)[some])
    with pytest.raises(TypeError, match="carry no weights"):
        found.slope(margins, y)
    with pytest.raises(TypeError, match="carry no weights"):
        found.slope(margins, carried + 0.0)


def test_counts_of_classes_move_by_root_two() -> None:
    """One row from one class to another: two counts move by 1/n each, and no sample weight plays a part in them."""
    asked: dict[str, Any] = {}

    def ask(name: str, query: Any, then: Any = None) -> Any:
        asked["query"] = query
        return query.evaluate(rows, public)

    public = facts(8, Softmax(3))
    answers = []
    for first in (0.0, 2.0):
        rows = Rows(np.zeros((8, D)), np.array([first, 0, 1, 1, 1, 1, 1, 2]))
        factors = ClassBalance(3).learn(ask, public, math.inf)
        answers.append(asked["query"].evaluate(rows, public))
    np.testing.assert_allclose(factors.factors, (1.0, 1 / 5, 1 / 2))
    moved, declared = np.linalg.norm(answers[0] - answers[1]), asked["query"].sensitivity(public).l2
    assert moved == pytest.approx(math.sqrt(2) / 8)
    assert declared == pytest.approx(moved)


# --- objectives ---


def minimiser(p: int, centre: Any = None, **more: Any) -> Minimiser:
    """Of three features with a constant, or of fewer directions."""
    start = np.zeros(p) if centre is None else np.asarray(centre, dtype=float)
    return Minimiser(np.arange(D), **{"slope_clip": 0.5, "row_bound": 1.2, "penalty": 0.7, "centre": start, **more})


@pytest.mark.parametrize("loss", ["poisson", "logistic", "squared hinge"])
@given(data=st.data(), sparse=st.booleans())
@settings(max_examples=40)
def test_no_neighbour_moves_a_gradient_of_an_objective_further(loss: str, data: st.DataObject, sparse: bool) -> None:
    """At any point, by no more than `ObjectiveSensitivity.gradient`; and the curvature that a row adds is bounded."""
    number = st.sampled_from(NUMBERS) | st.floats(-2, 2)

    def draw(of: Any, count: int) -> Any:
        return np.array(data.draw(st.lists(of, min_size=count, max_size=count)))

    X, y = draw(number, 5 * D).reshape(5, D), draw(st.sampled_from([-1.0, 1.0]), 5)
    weights, offsets, theta = draw(number, 5), draw(number, 5), draw(st.floats(-5, 5), D + 1)
    public, query = facts(4, LOSSES[loss]), minimiser(D + 1, intercept_value=0.4)
    objectives = []
    with np.errstate(all="ignore"):
        for chosen in ([0, 1, 2, 3], [4, 1, 2, 3]):
            rows = weighted_rows(X[chosen], y[chosen], weights[chosen], offsets[chosen], sparse)
            objectives.append(query.evaluate(rows, public))
    nowhere = np.zeros(D + 1)
    moved = np.linalg.norm(objectives[0]._gradient(theta, nowhere) - objectives[1]._gradient(theta, nowhere))
    stated = query.sensitivity(public).objective
    assert stated is not None
    assert moved <= stated.gradient * ROUNDING
    part = objectives[0].parts.items[0]
    plain = part.features.plain if isinstance(part.features.plain, np.ndarray) else part.features.plain.toarray()
    assert np.linalg.norm(plain, axis=1).max() <= query.row_bound * ROUNDING
    assert part.features.weights.min() >= 0
    assert part.features.weights.max() <= 1
    assert np.abs(part.features.offsets).max() <= OFFSET


def gradient_of(rows: dict[str, Any], query: Minimiser, public: PublicFacts, theta: Any) -> Any:
    """Of the weighted objective, by a formula of its own."""
    X, a = rows["X"], query.intercept_value
    room = math.sqrt(query.row_bound**2 - a**2)
    Z = X * np.minimum(1, room / np.maximum(np.linalg.norm(X, axis=1), 1e-300))[:, None]
    Z = np.hstack([Z, np.full((len(X), 1), a)])
    slopes = public.loss.base.slope((Z @ theta + rows["offsets"])[:, None], rows["y"])[:, 0]  # type: ignore[attr-defined]
    cut = rows["weights"] * np.clip(slopes, -query.slope_clip, query.slope_clip)
    return Z.T @ cut + query.penalty * (theta - query.centre)


def some_rows(n: int = 300, seed: int = 2) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "X": rng.normal(size=(n, D)) * 0.6,
        "y": rng.choice([-1.0, 1.0], n),
        "weights": rng.uniform(0, 1, n),
        "offsets": rng.uniform(-OFFSET, OFFSET, n),
    }


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("loss", ["poisson", "logistic", "squared hinge"])
def test_the_minimiser_is_that_of_the_weighted_objective(loss: str, sparse: bool) -> None:
    """With Newton's proposal, with garbage in its place, and in many parts; dense as CSR."""
    rows, public = some_rows(), facts(300, LOSSES[loss])
    query = minimiser(D + 1, intercept_value=0.4)
    term = np.array([3.0, -2.0, 0.5, 1.0])
    expected = root(lambda theta: gradient_of(rows, query, public, theta) + term, np.zeros(D + 1), tol=1e-12).x
    objective = query.evaluate(weighted_rows(rows["X"], rows["y"], rows["weights"], rows["offsets"], sparse), public)
    near = 1.25 * objective.tolerance / query.penalty + 1e-9
    solver = hooks.get("solver")
    assert np.linalg.norm(solver(objective, term) - expected) <= near  # itself, not what descent makes of it
    assert np.linalg.norm(objective.minimise(term) - expected) <= near
    hooks.install("solver", lambda *_: np.full(D + 1, 1e3))
    try:
        assert np.linalg.norm(objective.minimise(term) - expected) <= near
    finally:
        hooks.install("solver", solver)


@pytest.mark.parametrize("n", [300, 9000])
def test_blocks_and_parts_have_the_weights_of_their_rows(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows in many blocks, and blocks in many parts, have the gradients of rows in one."""
    rows, public, theta = some_rows(n), facts(n, Logistic()), np.array([0.5, -1.0, 0.2, 0.3])
    query = minimiser(D + 1, intercept_value=0.4)
    expected = gradient_of(rows, query, public, theta)
    step = ClippedGradient(theta[:, None], math.inf, "l2", 0.4).resolve(public)
    answers = []
    for size in (1 << 25, 8 * D * 37):
        monkeypatch.setattr(trusted_rows, "_DENSE_BLOCK_BYTES", size)
        held = weighted_rows(rows["X"], rows["y"], rows["weights"], rows["offsets"])
        assert len(held.blocks) == (1 if size == 1 << 25 else math.ceil(n / 37))
        gradient = query.evaluate(held, public)._gradient(theta, np.zeros(D + 1))
        np.testing.assert_allclose(gradient, expected, rtol=1e-9)
        answers.append(step.evaluate(held, public))
    np.testing.assert_allclose(answers[0], answers[1], rtol=1e-9)


def test_directions_are_without_offsets_in_large_problems() -> None:
    """Newton's method by products with the Hessian, as from 129 parameters on."""
    rng, d = np.random.default_rng(3), 150
    X, y, w, o = (
        rng.normal(size=(400, d)) / 12,
        rng.choice([-1.0, 1.0], 400),
        rng.uniform(0, 1, 400),
        rng.normal(size=400),
    )
    public = PublicFacts(400, d, d, WeightedLoss(Logistic(), OFFSET), None, 1.5, 1.0, 1.0, False)
    query = Minimiser(np.arange(d), 0.5, 1.2, 0.3, np.zeros(d))
    objective = query.evaluate(weighted_rows(X, y, w, o), public)
    theta = hooks.get("solver")(objective, np.zeros(d))
    assert np.linalg.norm(objective._gradient(theta, np.zeros(d))) <= objective.tolerance


def test_wide_gradients_are_the_same() -> None:
    features = WeightedFeatures(np.arange(6.0).reshape(3, 2), np.array([0.5, 1.0, 0.0]), np.array([1.0, 0.0, 2.0]))
    wide = features.astype(np.longdouble)
    theta = np.array([1.0, -1.0])
    assert features.shape == (3, 2)
    assert (features @ theta).tolist() == [0.0, -1.0, 1.0]
    assert (features.T @ np.ones(3)).tolist() == [2.0, 3.5]
    assert (wide @ theta.astype(np.longdouble)).dtype == np.longdouble
    assert (wide.T @ np.ones(3)).tolist() == [2.0, 3.5]


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array, sp.csc_array])
def test_batches_carry_the_weights_of_their_rows_whether_or_not_all_rows_count(kind: Any) -> None:
    """A row that does not count is left out of its block, and of every batch, by new targets."""
    rng, active = np.random.default_rng(4), np.arange(8) != 5
    weights, offsets, y = rng.uniform(0, 1, 8), rng.uniform(-1, 1, 8), rng.choice([-1.0, 1.0], 8)
    for counted in (active, np.ones(8, dtype=bool)):
        rows = WeightedRows(kind(rng.normal(size=(8, D))), y, counted, CarriedNumbers(weights, offsets, OFFSET))
        rows.carry()
        rows.clip_targets(-0.5, 0.5)
        rows.clip_rows(1.0)
        numbers = np.array([1, 4, 5, 7])
        (block,) = rows.batch(numbers).blocks
        assert isinstance(block.targets, WeightedTargets)
        np.testing.assert_array_equal(block.targets, np.where(counted, y / 2, 0.0)[numbers])
        np.testing.assert_array_equal(block.targets.weights, weights[numbers])
        np.testing.assert_array_equal(block.targets.offsets, offsets[numbers])


def test_the_weight_of_a_row_is_its_own() -> None:
    """Whatever weights, offsets and labels others have: nothing is divided by a sum or a mean of them."""
    rng, X = np.random.default_rng(5), np.ones((6, D))
    weights, offsets, y = rng.uniform(0, 1, 6), rng.uniform(-1, 1, 6), np.array([1.0, -1, 1, 1, -1, 1])
    found = []
    for first in (0.0, 1.0, 1e300):
        y[0], weights[0], offsets[0] = np.sign(first - 0.5), first, -first
        rows = WeightedRows(X, y, None, CarriedNumbers(weights, offsets, OFFSET))
        rows.carry(ClassFactors((0.5, 1.0)))
        found.append([(block.targets.weights[1:], block.targets.offsets[1:]) for block in rows.blocks])
        np.testing.assert_allclose(found[-1][0][0], (weights * np.where(y > 0, 1.0, 0.5))[1:])
        np.testing.assert_allclose(found[-1][0][1], offsets[1:])


def test_rows_must_carry_their_weights_before_they_are_asked() -> None:
    numbers = CarriedNumbers(np.ones(4))
    rows, public = WeightedRows(np.ones((4, D)), np.ones(4), None, numbers), facts(4, Logistic())
    with pytest.raises(TypeError, match="carry no weights yet"):
        minimiser(D).evaluate(rows, public)
    with pytest.raises(TypeError, match="only the parts of a minimiser"):
        rows.derive(lambda block: [block])


# --- the certificate of minimisers with offsets ---

BUDGET = Budget(1.0, 1e-6)


@given(
    loss=st.sampled_from([Logistic(), SquaredHinge(), Poisson(3.0)]),
    n=st.integers(2, 10**7),
    d=st.integers(1, 50_000),
    slope_clip=st.floats(0.35, 2.0),
    row_bound=st.floats(1e-3, 1e3),
    kappa=st.floats(1e-4, 20.0),
    bound=st.floats(1e-3, 30.0),
    length=st.sampled_from([0.0, 1e-3, 1.0, 1e3, 1e6, 1e12]) | st.floats(0, 100),
    size=st.integers(1, 6),
    rows_per_unit=st.integers(1, 5),
)
@settings(max_examples=300)
def test_a_raised_penalty_is_certified_for_any_centre(
    loss: Any, n: int, d: int, slope_clip: float, row_bound: float, kappa: float, bound: float, length: float,
    size: int, rows_per_unit: int,
) -> None:  # fmt: skip
    """Lemma 3: what is planned, from public quantities alone, is never refused when it is asked."""
    public = replace(facts(n, loss, BUDGET, rows_per_unit), n_features=d, fit_intercept=False)
    curvature = loss.curvature_within(slope_clip, public.label)
    given_penalty = curvature * row_bound**2 / kappa
    if curvature * bound > 98 * (slope_clip + public.label):
        with pytest.raises(ValueError, match="too large for slopes"):
            raise_penalty(public, slope_clip, row_bound, given_penalty, curvature, bound)
        return
    penalty = raise_penalty(public, slope_clip, row_bound, given_penalty, curvature, bound)
    assert penalty >= given_penalty
    centre = np.full(min(size, d), length / math.sqrt(min(size, d)) / (slope_clip * row_bound))
    query = Minimiser(np.arange(len(centre)), slope_clip, row_bound, penalty, centre)
    assert is_certified(query, public, bound)


def test_a_penalty_is_raised_only_where_rows_are_many() -> None:
    def raised(n: int, bound: float) -> float:
        return raise_penalty(replace(facts(n, Logistic(), BUDGET), label=math.inf), 0.5, 1.0, 2.5, 0.25, bound) / 2.5

    assert raised(10_000, 2.0) == 1.0
    assert raised(10**8, 0.5) == 1.0  # below log(e - 1) nothing changes
    assert raised(10**8, 5.0) > 1.0


@pytest.mark.parametrize(
    ("loss", "more", "why"),
    [
        (Squared(), {}, "its offsets are taken off targets"),
        (Huber(), {}, "as those"),
        (Softmax(3), {}, "no loss of one margin"),
        (Logistic(), {"itself": True}, "its tolerance is another"),
        (SquaredHinge(), {"slope_clip": 0.01}, "offsets lose digits that slopes need"),
        (Logistic(), {"penalty": 1e-10}, "its minimiser may be too far away"),
    ],
)
def test_what_the_proof_does_not_cover_is_not_certified(loss: Any, more: dict[str, Any], why: str) -> None:
    public = replace(facts(1000, loss, BUDGET), label=math.inf)
    assert not is_certified(minimiser(D, **more), public, OFFSET), why
    rows = weighted_rows(np.ones((1000, D)), np.ones(1000), np.ones(1000), np.ones(1000))
    with pytest.raises(ValueError, match="cannot be certified"):
        rows.derive(partial(minimiser(D, **more)._parts, public=public))


@pytest.mark.parametrize("loss", ["logistic", "squared hinge"])
@pytest.mark.parametrize("penalty", [1e-6, 1e-2, 10.0])
def test_a_minimiser_is_no_further_away_than_the_proof_says(loss: str, penalty: float) -> None:
    """Lemma 2, on rows whose offsets and labels pull as hard as they can: within R + 2 |b| / Lambda of the centre."""
    n, convex = 200, LOSSES[loss].convex
    assert convex is not None
    X, b = np.ones((n, 1)), np.array([0.3])
    query = Minimiser(np.arange(1), 5.0, 1.0, penalty, np.zeros(1))
    public = replace(facts(n, LOSSES[loss]), n_features=1, fit_intercept=False)
    objective = query.evaluate(weighted_rows(X, np.ones(n), np.ones(n), np.full(n, -OFFSET)), public)
    distance = float(np.abs(objective.minimise(b))[0])
    fall = largest_fall(convex, OFFSET)
    reach = min(n * 5.0, math.sqrt(2 * n * fall * penalty)) / penalty
    assert distance <= reach + 2 * 0.3 / penalty
    without = min(n * 5.0, math.sqrt(2 * n * convex.fall(1.0) * penalty)) / penalty
    assert fall > convex.fall(1.0)
    assert reach > without
    value = LOSSES[loss].value(np.array([[-OFFSET]]), np.ones(1))[0]
    assert fall == pytest.approx(value), "the bound is attained"


# --- exact laws of minimisers ---


def masses(rows: WeightedRows, query: Minimiser, public: PublicFacts, grid: Any, sigma: float) -> Any:
    """The probability that the minimiser is in each cell of a line: -b lies between the gradients at its ends."""
    objective = query.evaluate(rows, public)
    ends = np.array([objective._gradient(np.array([theta]), np.zeros(1))[0] for theta in grid]) / sigma
    low, high = ends[:-1], ends[1:]
    return np.where(low > 0, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))


# Feature, label, weight and offset of the row that is replaced, before and after.
PAIRS = [
    ((1.0, 1.0, 1.0, 0.0), (1.0, -1.0, 1.0, 0.0)),
    ((1.0, 1.0, 1e9, -3.0), (1.0, -1.0, 50.0, 3.0)),
    ((1.0, 1.0, 0.6, -3.0), (-1.0, 1.0, 1.0, 2.0)),
    ((1.0, -1.0, 1.0, 9.0), (1.0, -1.0, 0.0, 9.0)),
    ((0.5, 1.0, 1.0, -1.0), (1.0, 1.0, -4.0, 0.0)),
]


@pytest.mark.parametrize("loss", ["logistic", "squared hinge", "poisson"])
@pytest.mark.parametrize("mu", [0.3, 1.0, 3.0])
def test_what_is_billed_bounds_the_exact_loss_of_privacy(loss: str, mu: float) -> None:
    """Of small problems on a line, in both orders; and some pair comes near to it."""
    tau, largest = 1.0, 0.0
    public = PublicFacts(3, 1, 1, WeightedLoss(LOSSES[loss], OFFSET), None, 1.0, 1.0, 2.0, False)
    for penalty in (0.4, 3.0):
        query = Minimiser(np.arange(1), tau, 1.0, penalty, np.zeros(1))
        moves, sigma = query.sensitivity(public).objective, 2 * tau / mu
        assert moves is not None
        noise = NoisePerSensitivity(sigma / moves.gradient)
        event, _ = price_of(ObjectivePerturbation(noise, moves.log_determinant, moves.one_sided))
        assert isinstance(event, ObjectivePerturbationEvent)
        reach = (3 * tau + 9 * sigma) / penalty
        grid = np.linspace(-reach, reach, 1501)
        for pair in PAIRS:
            laws = []
            for row in pair:
                x, y, w, o = np.array([row, (0.7, -1.0, 0.5, 1.0), (-0.4, 1.0, 1.0, -2.0)]).T
                laws.append(masses(weighted_rows(x[:, None], y, w, o), query, public, grid, sigma))
            for first, second in (laws, laws[::-1]):
                for at in (-0.5, 0.0, 0.2 * mu, mu, 2 * mu):
                    exact = float(np.maximum(first - math.exp(at) * second, 0.0).sum())
                    billed = gaussian_delta(at, event.gaussian_mu())
                    assert exact <= billed + 1e-12
                    largest = max(largest, exact / billed if at == 0 else 0.0)
    assert largest > (0.85 if loss == "logistic" else 0.3)
