"""The solver: its certificate is reached on every input, and its answers are the minimisers.

Privacy needs the certificate, |gradient| <= a public tolerance, and nothing else of it. Gradients are checked in
extended precision by a formula of their own.
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
from scipy.optimize import root

from tulle.fast import newton
from tulle.fast.install import install
from tulle.methods.loss_functions import Huber, Logistic, Loss, Poisson, Squared, SquaredHinge
from tulle.trusted import hooks
from tulle.trusted.facts import PublicFacts
from tulle.trusted.losses import ConvexHuber, ConvexLogistic, ConvexLoss, ConvexPoisson, ConvexSquaredHinge
from tulle.trusted.objectives import PART_ROWS, Minimiser, Part, PenalisedSum
from tulle.trusted.rows import Pieces, Rows

install()


def penalised_sum(
    X: Any,
    y: np.ndarray,
    loss: Loss,
    slope_clip: float,
    penalty: float,
    row_bound: float = 1.0,
    centre: np.ndarray | None = None,
    intercept_value: float = 0.0,
    label: float = 10.0,
) -> PenalisedSum:
    """The objective as the curator has it evaluated."""
    n, d = X.shape
    public = PublicFacts(n, d, d, loss, None, row_bound, row_bound, label, intercept_value > 0)
    start = np.zeros(d + (intercept_value > 0)) if centre is None else centre
    query = Minimiser(np.arange(d), slope_clip, row_bound, penalty, start, intercept_value)
    with np.errstate(all="ignore"):
        objective = query.evaluate(Rows(X, y), public)
    assert isinstance(objective, PenalisedSum)
    return objective


def tight(objective: PenalisedSum) -> PenalisedSum:
    """The same at eight times what rounding can make of the gradient's sum, or at its own tolerance if that is less."""
    n = sum(len(part.targets) for part in objective.parts.items)
    additions = PART_ROWS + math.ceil(n / PART_ROWS) + len(objective.centre) + 8
    rounding = 8 * additions * 2.0**-53 * n * objective.terms.slope_clip * objective.row_bound
    return replace(objective, tolerance=min(objective.tolerance, rounding))


def solve(objective: PenalisedSum, linear_term: np.ndarray | None = None) -> np.ndarray:
    with np.errstate(all="ignore"):
        return objective.minimise(np.zeros(objective.shape) if linear_term is None else linear_term)


def cut_slope(loss: Loss | ConvexLoss, tau: float, margins: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """f_tau' in extended precision for the losses in use; slopes that are not numbers count as nothing."""
    if isinstance(loss, (Logistic, ConvexLogistic)):
        slopes = -targets / (1 + np.exp(targets * margins))
    elif isinstance(loss, (SquaredHinge, ConvexSquaredHinge)):
        slopes = -targets * np.maximum(0, 1 - targets * margins)
    elif isinstance(loss, (Poisson, ConvexPoisson)):
        slopes = np.exp(np.minimum(margins, loss.cap)) - targets
    else:
        slopes = margins - targets
        slopes = np.clip(slopes, -loss.threshold, loss.threshold) if isinstance(loss, (Huber, ConvexHuber)) else slopes
    return np.where(np.isnan(slopes), 0, np.clip(slopes, -tau, tau))


def excess(objective: PenalisedSum, theta: np.ndarray, linear_term: np.ndarray | None = None) -> float:
    """The length of the gradient at theta, in units of what is accepted."""
    wide = np.longdouble
    total = objective.penalty * (theta.astype(wide) - objective.centre)
    total = total + (0 if linear_term is None else linear_term)
    with np.errstate(all="ignore"):
        for part in objective.parts.items:
            Z = (part.features if isinstance(part.features, np.ndarray) else part.features.toarray()).astype(wide)
            slopes = cut_slope(
                objective.terms.loss, objective.terms.slope_clip, Z @ theta.astype(wide), part.targets.astype(wide)
            )
            total = total + Z.T @ slopes
    linear = 0.0 if linear_term is None else float(np.linalg.norm(linear_term))
    return float(np.sqrt((total**2).sum()) / (objective.tolerance + objective.rounding * linear))


# What the solver sums differs from the exact gradient by an eighth of the tolerance at most.
CERTIFIED = 1.125


def unit_rows(n: int, d: int, seed: int = 0) -> np.ndarray:
    X = np.random.default_rng(seed).normal(size=(n, d))
    return X / np.linalg.norm(X, axis=1, keepdims=True)


N = 200
X5 = unit_rows(N, 5)
SIGNS = np.where(X5[:, 0] > -0.01, 1.0, -1.0)
WIDE = unit_rows(20, 300)
COUNTS = np.random.default_rng(1).integers(0, 10, N).astype(float)
ONES = np.ones(N)

HOSTILE: dict[str, Callable[[], PenalisedSum]] = {
    "separable": lambda: penalised_sum(X5, SIGNS, Logistic(), 1.0, 1e-6),
    "separable, squared hinge": lambda: penalised_sum(X5, SIGNS, SquaredHinge(), 1.0, 1e-6),
    "separable, slopes cut at 0.01": lambda: penalised_sum(X5, SIGNS, Logistic(), 0.01, 1e-3),
    "a tiny penalty": lambda: penalised_sum(X5, SIGNS, Logistic(), 0.5, 1e-9),
    "a tiny penalty, squared": lambda: penalised_sum(X5, 3 * X5[:, 1], Squared(), 0.5, 1e-9),
    "a large penalty": lambda: penalised_sum(X5, SIGNS, Logistic(), 0.5, 1e9),
    "all rows equal": lambda: penalised_sum(np.tile(X5[:1], (N, 1)), ONES, Logistic(), 0.5, 1e-3),
    "all rows equal, labels apart": lambda: penalised_sum(np.tile(X5[:1], (N, 1)), SIGNS, Squared(), 0.5, 1e-6),
    "one column": lambda: penalised_sum(X5[:, :1], SIGNS, Logistic(), 0.5, 1e-3),
    "more columns than rows": lambda: penalised_sum(unit_rows(20, 100), SIGNS[:20], Logistic(), 0.5, 1e-3),
    "many more columns than rows": lambda: penalised_sum(WIDE, SIGNS[:20], Logistic(), 0.5, 1e-3),
    "many columns, a tiny penalty": lambda: penalised_sum(WIDE, 5 * WIDE[:, 0], Squared(), 0.5, 1e-8),
    "all rows at the kink": lambda: penalised_sum(
        np.tile([[1.0, 0.0]], (N, 1)), np.where(np.arange(N) < N // 2, 1.0, -1.0), Huber(1.0), 1.0, 1e-2
    ),
    "slopes of either sign, all cut": lambda: penalised_sum(X5, 3 * X5[:, 0], Huber(1.0), 0.01, 1e-2),
    "counts": lambda: penalised_sum(X5, COUNTS, Poisson(), 5.0, 0.1),
    "counts without a cap in reach": lambda: penalised_sum(X5, 100 * COUNTS, Poisson(100.0), 500.0, 0.1, label=1e3),
    "tiny rows": lambda: penalised_sum(1e-30 * X5, SIGNS, Logistic(), 0.5, 1e-61, 1e-30),
    "tiny rows, many columns": lambda: penalised_sum(1e-30 * WIDE, SIGNS[:20], Logistic(), 0.5, 1e-61, 1e-30),
    "huge rows": lambda: penalised_sum(1e30 * X5, SIGNS, Logistic(), 0.5, 1e59, 1e30),
    "huge rows, a tiny penalty": lambda: penalised_sum(1e30 * X5, SIGNS, Logistic(), 0.5, 1.0, 1e30),
    "huge rows, many columns": lambda: penalised_sum(1e30 * WIDE, SIGNS[:20], Logistic(), 0.5, 1e59, 1e30),
    "no rows that count": lambda: penalised_sum(np.full((N, 2), math.nan), SIGNS, Logistic(), 0.5, 1.0),
    "an entry that is not finite": lambda: penalised_sum(
        np.where(np.arange(N)[:, None] == 3, math.inf, X5), SIGNS, Logistic(), 0.5, 1.0
    ),
    "targets that are not finite": lambda: penalised_sum(
        X5, np.where(np.arange(N) < 5, math.nan, np.where(np.arange(N) < 9, math.inf, 1.0)), Squared(), 0.5, 0.1
    ),
    "a centre far away": lambda: penalised_sum(X5, SIGNS, Logistic(), 0.5, 1.0, centre=np.full(5, 300.0)),
    "a large constant column": lambda: penalised_sum(X5, SIGNS, Logistic(), 0.5, 1.0, 50.0, intercept_value=49.0),
    "many rows": lambda: penalised_sum(
        unit_rows(3 * PART_ROWS + 7, 3), np.ones(3 * PART_ROWS + 7), Squared(), 9.0, 1.0
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
class TestHostileInputs:
    @pytest.mark.parametrize("asked", [lambda objective: objective, tight], ids=["as asked", "tight"])
    def test_the_certificate_is_reached(self, name: str, asked: Callable[[PenalisedSum], PenalisedSum]) -> None:
        objective = asked(HOSTILE[name]())
        theta = solve(objective)
        assert excess(objective, theta) <= CERTIFIED

    def test_with_a_linear_term_as_large_as_all_gradients_together(self, name: str) -> None:
        """At penalties that plans hold: curvature × row_bound² / penalty is exp(c0) - 1, here at most 1000."""
        objective = HOSTILE[name]()
        least = 1e-3 * objective.terms.curvature * objective.row_bound**2
        penalty = max(objective.penalty, least)
        objective = tight(replace(objective, penalty=penalty, steepest=objective.steepest + penalty))
        n = sum(len(part.targets) for part in objective.parts.items)
        size = n * objective.terms.slope_clip * objective.row_bound
        linear_term = size * np.random.default_rng(0).normal(size=objective.shape)
        theta = solve(objective, linear_term)
        assert excess(objective, theta, linear_term) <= CERTIFIED


class TestAnswers:
    @pytest.mark.parametrize("storage", [np.array, sp.csr_array])
    @pytest.mark.parametrize("d", [1, 5, 200])
    def test_ridge_regression_in_closed_form(self, d: int, storage: Any) -> None:
        """With centre and linear term, and slopes that are never cut; 200 columns go by conjugate gradients."""
        rng = np.random.default_rng(0)
        X, y = 0.5 * unit_rows(60, d), rng.normal(size=60)
        centre, linear_term = rng.normal(size=d), rng.normal(size=d)
        objective = tight(penalised_sum(storage(X), y, Squared(), 100.0, 0.7, centre=centre))
        exact = np.linalg.solve(X.T @ X + 0.7 * np.eye(d), X.T @ y + 0.7 * centre - linear_term)
        theta = solve(objective, linear_term)
        np.testing.assert_allclose(theta, exact, atol=2 * objective.tolerance / objective.penalty)
        assert np.abs(theta - solve(objective)).max() > 0.05

    @pytest.mark.parametrize(
        ("loss", "tau"),
        [(Logistic(), 1.0), (Logistic(), 0.2), (SquaredHinge(), 0.8), (Huber(0.3), 1.0), (Poisson(), 2.0)],
        ids=str,
    )
    def test_the_same_minimum_as_another_solver(self, loss: Loss, tau: float) -> None:
        """scipy's root finder on the gradient's formula."""
        rng = np.random.default_rng(3)
        X = unit_rows(40, 3, 5)
        y = rng.choice([-1.0, 1.0], 40) if loss.kind == "classification" else rng.integers(0, 4, 40).astype(float)
        linear_term, centre = rng.normal(size=3), np.array([0.2, 0.0, -0.3])

        def gradient(theta: np.ndarray) -> np.ndarray:
            return X.T @ cut_slope(loss, tau, X @ theta, y) + 0.5 * (theta - centre) + linear_term

        other = root(gradient, centre, method="hybr", tol=1e-12)
        assert np.linalg.norm(gradient(other.x)) < 1e-9
        theta = solve(tight(penalised_sum(X, y, loss, tau, 0.5, centre=centre)), linear_term)
        np.testing.assert_allclose(theta, other.x, atol=1e-8)

    def test_the_answer_has_the_gradient_of_minus_the_linear_term(self) -> None:
        """What the density of the answer is derived from: the map from b to theta is inverted by the gradient."""
        rng = np.random.default_rng(4)
        objective = penalised_sum(X5, SIGNS, Logistic(), 0.3, 2.0)
        for _ in range(20):
            linear_term = 20 * rng.normal(size=5)
            theta = solve(objective, linear_term)
            found = objective._gradient(theta, np.zeros(5))
            np.testing.assert_allclose(found, -linear_term, atol=objective.tolerance)

    def test_slopes_are_cut(self) -> None:
        """One wrong label, far away: it pulls as hard as the clip lets it."""
        X = np.ones((1, 1))
        for tau in (0.1, 0.7):
            objective = tight(penalised_sum(X, np.array([5.0]), Squared(), tau, 1.0))
            assert solve(objective)[0] == pytest.approx(tau)

    @pytest.mark.parametrize("loss", [Logistic(), Squared(), SquaredHinge()], ids=str)
    def test_factorised_and_iterated_directions_lead_to_one_answer(
        self, loss: Loss, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        objective = tight(penalised_sum(X5, SIGNS, loss, 0.6, 0.01))
        linear_term = np.arange(5.0)
        direct = solve(objective, linear_term)
        monkeypatch.setattr(newton, "_DIRECT", 0)
        iterated = solve(objective, linear_term)
        assert not np.array_equal(direct, iterated)
        np.testing.assert_allclose(direct, iterated, atol=2 * objective.tolerance / objective.penalty)

    def test_parts_of_rows_are_added_up(self) -> None:
        n = PART_ROWS + 100
        X, y = unit_rows(n, 2), np.ones(n)
        objective = penalised_sum(X, y, Logistic(), 0.5, 3.0)
        assert [len(part.targets) for part in objective.parts.items] == [PART_ROWS, 100]
        whole = replace(objective, parts=Pieces([Part(X, y)]))
        np.testing.assert_allclose(solve(objective), solve(whole), atol=2 * objective.tolerance / 3.0)

    def test_without_bounds_newtons_answer_is_taken(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Fits without privacy: no bound on the curvature, so that the slow road is closed."""

        def closed(*_: Any) -> None:
            raise AssertionError

        monkeypatch.setattr(PenalisedSum, "_descend", closed)
        rng = np.random.default_rng(0)
        X, y = rng.normal(size=(50, 3)), 1e6 * rng.normal(size=50)
        objective = penalised_sum(X, y, Squared(), math.inf, 1.0, math.inf, label=math.inf)
        np.testing.assert_allclose(solve(objective), np.linalg.solve(X.T @ X + np.eye(3), X.T @ y), rtol=1e-8)

    def test_the_tolerance_is_public(self) -> None:
        """It follows n, the bounds and the size of theta, and no row."""
        tolerances = {
            penalised_sum(X, y, Logistic(), 0.5, 1.0).tolerance
            for X, y in ((X5, SIGNS), (1e3 * X5, -SIGNS), (0 * X5, ONES), (np.full_like(X5, math.nan), ONES))
        }
        assert len(tolerances) == 1
        # Eight times what n additions in parts can make of it at least, and far below one row's pull.
        assert 8 * 2.0**-53 * PART_ROWS * N * 0.5 < tolerances.pop() < 1e-2 * 0.5


@pytest.mark.parametrize(
    ("loss", "bound"), [(Poisson(), 4.0), (Squared(), 4.0), (Logistic(), 1.0), (SquaredHinge(), 1.0)]
)
def test_targets_are_within_what_the_curvature_is_for(loss: Loss, bound: float) -> None:
    """Whatever the rows went through before: that of counts grows with them, that of signs with their square."""
    y = np.linspace(-100, 100, N)
    y[:3] = math.nan, math.inf, -math.inf
    (part,) = penalised_sum(X5, y, loss, 0.5, 1.0, label=4.0).parts.items
    np.testing.assert_array_equal(part.targets, np.clip(y, -bound, bound))


class TestTheSlowRoad:
    @pytest.mark.parametrize(
        "name",
        [
            "separable, slopes cut at 0.01",
            "a large penalty",
            "all rows equal",
            "many more columns than rows",
            "all rows at the kink",
            "slopes of either sign, all cut",
            "counts",
            "tiny rows",
            "huge rows",
            "a centre far away",
        ],
    )
    def test_alone_it_arrives_in_a_bounded_number_of_steps(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        objective = tight(HOSTILE[name]())
        steps = 0
        plain = PenalisedSum._gradient

        def counted(self: PenalisedSum, *arguments: Any, **keywords: Any) -> np.ndarray:
            nonlocal steps
            steps += 1
            return plain(self, *arguments, **keywords)

        monkeypatch.setattr(PenalisedSum, "_gradient", counted)
        linear_term = objective.terms.slope_clip * objective.row_bound * np.ones(objective.shape)
        enough = objective.tolerance + objective.rounding * float(np.linalg.norm(linear_term))
        theta = objective._descend(objective.centre.copy(), linear_term, enough)
        n = sum(len(part.targets) for part in objective.parts.items)
        condition = 1 + n * objective.terms.curvature * objective.row_bound**2 / objective.penalty
        # (1 - 1 / root)^(steps / 2) falls by twelve decimal orders, from the first gradient to the tolerance.
        assert steps <= 2 * 12 * math.log(10) * math.sqrt(condition) + 10
        assert excess(objective, theta, linear_term) <= CERTIFIED

    def test_it_is_taken_where_newton_stalls(self, monkeypatch: pytest.MonkeyPatch) -> None:
        objective = tight(penalised_sum(X5, SIGNS, Logistic(), 0.5, 1.0))
        right = solve(objective)
        monkeypatch.setattr(newton, "_STEPS", 0)
        slow = solve(objective)
        assert excess(objective, slow) <= CERTIFIED
        np.testing.assert_allclose(slow, right, atol=2 * objective.tolerance / objective.penalty)

    def test_a_short_road_is_not_enough(self) -> None:
        """What is checked can fail: one step does not reach the tolerance."""
        objective = tight(penalised_sum(X5, SIGNS, Logistic(), 0.5, 1.0))
        assert excess(objective, objective.centre) > 1e6
        assert excess(objective, solve(objective) + 1e-6) > 10


def _garbage(objective: PenalisedSum, linear_term: np.ndarray) -> np.ndarray:
    return 10 * np.random.default_rng(0).normal(size=objective.shape)


def _raise(objective: PenalisedSum, linear_term: np.ndarray) -> np.ndarray:
    raise ArithmeticError("on some rows")


def _spoil_inputs(objective: PenalisedSum, linear_term: np.ndarray) -> np.ndarray:
    """Turns the objective that it was given into one whose gradient vanishes at the centre."""
    start = objective.centre.copy()
    linear_term -= objective._gradient(start, linear_term)
    return start


def _spoil_memory(objective: PenalisedSum, linear_term: np.ndarray) -> np.ndarray:
    """Plants margins that make its answer look like the minimiser in the memory of Newton's method."""
    theta = newton.minimise(objective, linear_term)
    lie = theta + 1.0
    for part in objective.parts.items:
        newton.remember(part, "margins", lie, lambda part=part: part.features @ theta)
    return lie


GARBAGE: dict[str, Callable[[PenalisedSum, np.ndarray], Any]] = {
    "noise": _garbage,
    "far away": lambda objective, _: np.full(objective.shape, 1e12),
    "out of range": lambda objective, _: np.full(objective.shape, 1e308),
    "NaN": lambda objective, _: np.full(objective.shape, math.nan),
    "inf": lambda objective, _: np.full(objective.shape, math.inf),
    "one NaN": lambda objective, _: np.where(np.arange(len(objective.centre)) == 0, math.nan, objective.centre),
    "a number": lambda objective, _: 0.0,
    "too long": lambda objective, _: np.zeros(len(objective.centre) + 1),
    "a column": lambda objective, _: objective.centre[:, None],
    "nothing": lambda objective, _: None,
    "text": lambda objective, _: "done",
    "complex": lambda objective, _: objective.centre + 1j,
    "an answer and a gradient of zero": lambda objective, _: (objective.centre, np.zeros(objective.shape)),
    "an error": _raise,
    "the centre moved": lambda objective, _: np.add(objective.centre, 3.0, out=objective.centre),
    "the linear term moved": _spoil_inputs,
    "margins remembered wrongly": _spoil_memory,
}


@pytest.fixture
def solver(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., Any]], None]:
    return lambda function: monkeypatch.setitem(hooks._HOOKS, "solver", function)


@pytest.mark.parametrize("name", GARBAGE)
class TestASolverThatIsWrong:
    """Privacy rests on the certificate, whatever the solver answers and whatever it does to what it was given."""

    @pytest.mark.parametrize("loss", [Logistic(), Huber(0.5)], ids=str)
    def test_the_certificate_is_reached(self, name: str, loss: Loss, solver: Any) -> None:
        objective = tight(penalised_sum(X5, SIGNS, loss, 0.3, 2.0, centre=np.linspace(-1, 1, 5)))
        linear_term = np.linspace(3.0, -4.0, 5)
        right = solve(objective, linear_term)
        centre, given = objective.centre.copy(), linear_term.copy()
        solver(GARBAGE[name])
        try:
            theta = solve(objective, given)
        except (ArithmeticError, TypeError, ValueError) as error:
            raise AssertionError("an error of the solver left, and it can depend on rows") from error
        np.testing.assert_array_equal(objective.centre, centre)
        np.testing.assert_array_equal(given, linear_term)
        assert theta.shape == right.shape
        assert excess(objective, theta, linear_term) <= CERTIFIED
        np.testing.assert_allclose(theta, right, atol=2.5 * objective.tolerance / objective.penalty)


class TestWithoutASolver:
    def test_gradient_descent_alone(self, solver: Any) -> None:
        solver(None)
        objective = tight(penalised_sum(X5, SIGNS, Logistic(), 0.3, 2.0))
        assert excess(objective, solve(objective)) <= CERTIFIED

    def test_nothing_bounds_the_steps_without_privacy(self, solver: Any) -> None:
        solver(None)
        with pytest.raises(RuntimeError, match="no solver is installed"):
            solve(penalised_sum(X5, SIGNS, Squared(), math.inf, 1.0, math.inf, label=math.inf))

    def test_errors_are_shown_without_privacy(self, solver: Any) -> None:
        solver(_raise)
        with pytest.raises(ArithmeticError):
            solve(penalised_sum(X5, SIGNS, Squared(), math.inf, 1.0, math.inf, label=math.inf))

    def test_newton_is_there_without_faster_code(self, monkeypatch: pytest.MonkeyPatch, solver: Any) -> None:
        solver(None)
        monkeypatch.setenv("TULLE_PLAIN", "1")
        install()
        assert hooks.get("solver") is newton.minimise


ENTRIES = (0.0, 1.0, -1.0, 0.3, 1e-8, 1e6, -1e30, 1e150, 1.7e308, 5e-324, math.nan, math.inf)


@settings(max_examples=150)
@given(st.data())
def test_it_never_raises_and_always_certifies(data: st.DataObject) -> None:
    n, d = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 4))
    row = st.lists(st.sampled_from(ENTRIES) | st.floats(-2, 2), min_size=d, max_size=d)
    X = np.array(data.draw(st.lists(row, min_size=n, max_size=n)))
    loss, target = data.draw(
        st.sampled_from(
            [
                (Logistic(), st.sampled_from([-1.0, 1.0, math.nan])),
                (SquaredHinge(), st.sampled_from([-1.0, 1.0])),
                (Squared(), st.floats(-10, 10) | st.sampled_from([math.nan, math.inf, -1e300])),
                (Huber(0.5), st.floats(-10, 10)),
                (Poisson(5.0), st.integers(0, 10).map(float)),
            ]
        )
    )
    y = np.array(data.draw(st.lists(target, min_size=n, max_size=n)))
    objective = penalised_sum(
        data.draw(st.sampled_from([np.array, sp.csr_array]))(X),
        y,
        loss,
        data.draw(st.sampled_from([0.05, 0.5, 3.0])),
        data.draw(st.sampled_from([1e-3, 1.0, 1e3])),
        data.draw(st.sampled_from([0.5, 2.0])),
        intercept_value=0.0 if data.draw(st.booleans()) else 0.7,
    )
    linear_term = data.draw(st.sampled_from([0.0, 1.0, 1e3])) * np.ones(objective.shape)
    theta = solve(objective, linear_term)
    assert np.all(np.isfinite(theta))
    assert excess(objective, theta, linear_term) <= CERTIFIED


def test_conjugate_gradients_solve_to_the_wanted_residual() -> None:
    rng = np.random.default_rng(0)
    factor = rng.normal(size=(30, 30))
    matrix, target = factor @ factor.T + np.eye(30), rng.normal(size=30)
    for wanted in (1e-2, 1e-8):
        solution = newton.conjugate_gradient(lambda v: matrix @ v, target, wanted)
        assert np.linalg.norm(matrix @ solution - target) <= 1.01 * wanted


class TestLimits:
    """Inputs beyond what plans hold by default."""

    def test_rows_whose_fourth_powers_underflow(self) -> None:
        objective = tight(penalised_sum(1e-100 * WIDE, SIGNS[:20], Logistic(), 0.5, 1e-201, 1e-100))
        assert excess(objective, solve(objective)) <= CERTIFIED

    def test_rows_whose_fourth_powers_overflow(self) -> None:
        objective = tight(penalised_sum(1e140 * WIDE, SIGNS[:20], Logistic(), 0.5, 1e279, 1e140))
        assert np.all(np.isfinite(solve(objective)))

    def test_a_penalty_below_the_rounding_of_the_hessian(self) -> None:
        rows = np.tile(unit_rows(1, 40), (50, 1))
        equal = penalised_sum(rows, np.linspace(-0.1, 0.1, 50), Squared(), 1.0, 1e-18)
        with np.errstate(all="ignore"):
            assert np.all(np.isfinite(newton.minimise(equal, np.ones(40))))

    def test_labels_far_larger_than_the_slope_clip(self) -> None:
        y = 1e5 * X5[:, 0] + 1e-3 * np.random.default_rng(0).normal(size=N)
        objective = penalised_sum(X5, y, Squared(), 0.01, 0.1, centre=1e5 * np.eye(5)[0], label=2e5)
        assert excess(objective, solve(objective)) <= CERTIFIED
