"""The certificate of a minimiser in floats: what rounding can hide of a gradient, and where descent ends at the latest.

Proof: docs/proofs/objective_perturbation.md, lemma 8 and theorem 2.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.integrate import quad

from tulle.fast.install import install
from tulle.methods.loss_functions import Huber, Logistic, Loss, Poisson, Squared, SquaredHinge
from tulle.trusted import hooks, objectives
from tulle.trusted.facts import PublicFacts
from tulle.trusted.objectives import Minimiser, PenalisedSum, RowTerms
from tulle.trusted.rows import Rows

install()

LOSSES: tuple[Loss, ...] = (Logistic(), SquaredHinge(), Squared(), Huber(0.7), Poisson())


def problem(
    loss: Loss,
    n: int = 60,
    d: int = 4,
    tau: float = 0.4,
    penalty: float = 2.0,
    centre: float = 0.0,
    label: float = 3.0,
    seed: int = 0,
    storage: Any = np.asarray,
) -> tuple[PenalisedSum, Minimiser, PublicFacts]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, d)) / math.sqrt(d)
    y = rng.choice([-1.0, 1.0], n) if loss.kind == "classification" else rng.integers(0, 4, n).astype(float)
    public = PublicFacts(n, d, d, loss, None, 1.0, 1.0, label, False)
    query = Minimiser(np.arange(d), tau, 1.0, penalty, np.full(d, centre))
    objective = query.evaluate(Rows(storage(X), y), public)
    assert isinstance(objective, PenalisedSum)
    return objective, query, public


def exact_gradient(objective: PenalisedSum, theta: np.ndarray, linear_term: np.ndarray) -> list[Fraction]:
    """Of the squared loss with its slopes cut, without any rounding."""
    tau, penalty = Fraction(objective.terms.slope_clip), Fraction(objective.penalty)
    at = [Fraction(value) for value in theta]
    total = [Fraction(b) + penalty * (t - Fraction(c)) for b, t, c in zip(linear_term, at, objective.centre)]
    for part in objective.parts.items:
        for row, y in zip(part.features, part.targets):
            z = [Fraction(value) for value in row]
            slope = sum(a * b for a, b in zip(z, at)) - Fraction(y)
            slope = max(-tau, min(tau, slope))
            total = [one + slope * value for one, value in zip(total, z)]
    return total


def length(values: list[Fraction]) -> float:
    return math.sqrt(float(sum(value**2 for value in values)))


@pytest.mark.parametrize("far", [1.0, 1e4, 1e8, 1e11])
@pytest.mark.parametrize("wide", [False, True])
def test_what_rounding_hides_is_bounded(far: float, wide: bool) -> None:
    """Compared with fractions: never more than is counted, and above a hundredth of it in float64.

    Margins are small differences of large terms, so that slopes are not cut, and rows are equal, so that all of them
    lose the same. The sum over rows is rounded too, and has an allowance of its own.
    """
    rng, n = np.random.default_rng(1), 2000
    public = PublicFacts(n, 2, 2, Squared(), None, 1.0, 1.0, 3.0, False)
    query = Minimiser(np.arange(2), 0.4, 1.0, 2.0, np.zeros(2))
    error = objectives._WIDE_ERROR if wide else objectives._ERROR
    ratios = []
    for r in rng.uniform(0.5, 0.7, 5):
        objective = query.evaluate(Rows(np.tile([r, -r], (n, 1)), np.full(n, 0.1)), public)
        theta = far * (1 + rng.random()) + rng.normal(size=2) / 10
        linear_term = -objective._gradient(theta, np.zeros(2))  # as where an answer is accepted
        computed = objective._gradient(theta, linear_term, wide=wide)
        exact = exact_gradient(objective, theta, linear_term)
        hidden = objective._hidden(theta, error)
        off = length([Fraction(one) - other for one, other in zip(computed, exact)])
        assert off <= hidden + 8 * n * 2.0**-53 * 0.4
        ratios.append(off / hidden)
    assert wide or max(ratios) > 0.01


def test_wider_floats_hide_less() -> None:
    """Where numpy has any: a term that float64 loses, next to a large one in a margin, is found."""
    if objectives._WIDE_ERROR == objectives._ERROR:
        pytest.skip("this machine has no wider floats")
    terms = RowTerms(problem(Squared())[0].terms.loss, math.inf, 1.0)
    part = objectives.Part(np.array([[1.0, 1.0, 1.0]]), np.zeros(1))
    theta = np.array([2.0**54, 1.0, -(2.0**54)])
    assert terms.gradient(part, theta)[0] == 0.0
    assert terms.wide_gradient(part, theta)[0] == 1.0
    assert terms.wide_gradient(part, theta).dtype == np.float64


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.parametrize("storage", [np.asarray, sp.csr_array], ids=["dense", "csr"])
def test_both_gradients_agree(loss: Loss, storage: Any) -> None:
    objective, _, _ = problem(loss, storage=storage)
    theta, linear_term = np.linspace(-1, 2, 4), np.arange(4.0)
    narrow, wide = (objective._gradient(theta, linear_term, wide=wide) for wide in (False, True))
    np.testing.assert_allclose(narrow, wide, rtol=1e-12)


def test_a_gradient_that_rounding_could_hide_is_no_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proposal whose computed gradient is zero is still refused where it lies so far away that margins are noise."""
    objective, _, _ = problem(Logistic())
    theta = np.full(4, 1e13)
    monkeypatch.setitem(hooks._HOOKS, "solver", lambda of, linear: theta)
    monkeypatch.setattr(PenalisedSum, "_gradient", lambda self, *_: np.zeros(4))
    descended: list[np.ndarray] = []
    monkeypatch.setattr(PenalisedSum, "_descend", lambda self, start, *_: descended.append(start) or start)
    objective.minimise(np.ones(4))
    assert len(descended) == 1
    theta /= 1e13
    objective.minimise(np.ones(4))
    assert len(descended) == 1


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.parametrize("size", [1.0, 1e6, 1e12])
def test_a_long_linear_term_is_certified_in_floats(loss: Loss, size: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer's gradient, in wider floats, is what is counted at most, whichever way it was found."""
    objective, query, public = problem(loss)
    linear_term = size * np.array([1.0, -2.0, 0.5, 3.0])
    moves = query.sensitivity(public).objective
    assert moves is not None
    counted = 1.25 * objective.tolerance + moves.rounding * float(np.linalg.norm(linear_term))
    for solver in (hooks.get("solver"), None):
        monkeypatch.setitem(hooks._HOOKS, "solver", solver)
        theta = objective.minimise(linear_term)
        assert np.linalg.norm(objective._gradient(theta, linear_term, wide=True)) <= counted


@pytest.mark.parametrize("far", [0.0, 1e3, 1e9])
@pytest.mark.parametrize("size", [1.0, 1e8])
def test_plain_steps_end_near_the_minimiser(far: float, size: float) -> None:
    """Where nothing is accepted, both loops run to their end, and the point is as near as the certificate promises.

    The minimiser is known: all slopes are cut, so that the gradient is linear.
    """
    n, d, tau, penalty = 9, 3, 1e-3, 4.0
    public = PublicFacts(n, d, d, Squared(), None, 1.0, 1.0, 2.0, False)
    query = Minimiser(np.arange(d), tau, 1.0, penalty, np.full(d, far))
    X = np.full((n, d), 0.5)
    objective = query.evaluate(Rows(X, np.full(n, -2.0)), public)
    linear_term = size * np.array([-1.0, -2.0, -3.0])  # margins are positive: every slope is +tau
    exact = [Fraction(far) - (Fraction(b) + n * Fraction(tau) / 2) / Fraction(penalty) for b in linear_term]
    theta = objective._descend(objective.centre + 1.0, linear_term, enough=-1.0)
    moves = query.sensitivity(public).objective
    assert moves is not None
    reached = moves.minimiser / 2 + moves.rounding * float(np.linalg.norm(linear_term)) / penalty
    assert length([Fraction(one) - other for one, other in zip(theta, exact)]) <= reached


@pytest.mark.parametrize("centre", [0.0, 1e6])
def test_plain_steps_end_near_the_minimiser_of_rows_with_curvature(centre: float) -> None:
    """Ridge regression, no slope cut: the minimiser solves a linear system, in fractions."""
    n, d, penalty = 6, 2, 0.5
    rng = np.random.default_rng(3)
    X, y = rng.uniform(-0.7, 0.7, (n, d)), rng.uniform(-1, 1, n)
    public = PublicFacts(n, d, d, Squared(), None, 1.0, 1.0, 1.0, False)
    query = Minimiser(np.arange(d), 1e8, 1.0, penalty, np.full(d, centre))
    objective = query.evaluate(Rows(X, y), public)
    linear_term = np.array([3.0, -20.0])
    theta = objective._descend(objective.centre.copy(), linear_term, enough=-1.0)
    moves = query.sensitivity(public).objective
    assert moves is not None
    reached = moves.minimiser / 2 + moves.rounding * float(np.linalg.norm(linear_term)) / penalty
    # The distance is at most the gradient's length / penalty, and here it is computed without rounding.
    assert length(exact_gradient(objective, theta, linear_term)) / penalty <= reached


def test_gradients_whose_squares_underflow_are_no_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    """A solver that proposes nonsense where every square is below all floats."""
    n, tau = 40, 1e-165
    public = PublicFacts(n, 2, 2, Squared(), None, 1.0, 1.0, tau, False)
    query = Minimiser(np.arange(2), tau, 1.0, 1.0, np.zeros(2))
    objective = query.evaluate(Rows(np.full((n, 2), 0.6), np.full(n, tau)), public)
    monkeypatch.setitem(hooks._HOOKS, "solver", lambda of, linear: np.array([-1e-163, 2e-163]))
    theta = objective.minimise(np.zeros(2))
    exact = exact_gradient(objective, theta, np.zeros(2))
    assert max(abs(value) for value in exact) <= 1.25 * Fraction(objective.tolerance)


def test_a_machine_with_narrower_floats_refuses_at_every_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only where the wide gradient is asked for, which depends on rows."""
    objective, _, _ = problem(Logistic())
    (part,) = objective.parts.items
    monkeypatch.setattr(objectives, "_WIDE_ERROR", 2.0**-53)
    for question in (objective.terms.gradient, objective.terms.wide_gradient):
        with pytest.raises(ValueError, match="narrower"):
            question(part, np.zeros(4))
    replace(objective.terms, wide_error=2.0**-53).gradient(part, np.zeros(4))


def test_a_penalty_that_is_too_small_for_floats_is_refused() -> None:
    """Before any row is looked at; not where there is no privacy."""
    public = PublicFacts(10**6, 3, 3, Squared(), None, 1.0, 1.0, 1.0, False)
    query = Minimiser(np.arange(3), 0.3, 1.0, 1e-9, np.zeros(3))
    with pytest.raises(ValueError, match="too small for floats"):
        query.sensitivity(public)
    replace(query, penalty=1e-4).sensitivity(public)
    replace(query, slope_clip=math.inf).sensitivity(public)


@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_without_privacy_the_solver_is_believed(scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds on rows may be declared all the same; slopes are not cut, and targets may have any size."""

    def closed(*_: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(PenalisedSum, "_descend", closed)
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-0.5, 0.5, (300, 3)), scale * rng.normal(size=300)
    public = PublicFacts(300, 3, 3, Squared(), None, 1.0, 1.0, math.inf, False)
    query = Minimiser(np.arange(3), math.inf, 1.0, 0.1, np.zeros(3))
    theta = query.evaluate(Rows(X, y), public).minimise(np.zeros(3))
    np.testing.assert_allclose(theta, np.linalg.solve(X.T @ X + 0.1 * np.eye(3), X.T @ y), rtol=1e-6)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_the_fall_of_a_loss_is_bounded(loss: Loss) -> None:
    """f(0) - f(m) by integration of slopes, for all margins and all targets within the bound."""
    convex = loss.convex
    assert convex is not None
    bound = 1.0 if convex.one_sided else 2.5
    falls = []
    for y in np.linspace(-bound, bound, 11):
        for margin in (-40.0, -3.0, -1.0, 0.5, 1.0, 2.5, 40.0):
            slope = lambda m, y=y: float(convex.slope(np.array([[m]]), np.array([y]))[0, 0])  # noqa: E731
            falls.append(-quad(slope, 0.0, margin, limit=200, points=[0.9 * margin])[0])
    assert max(falls) <= convex.fall(2.5) + 1e-9
    if not isinstance(loss, Poisson):
        assert max(falls) >= 0.45 * convex.fall(2.5)
    else:
        assert math.isinf(convex.fall(2.5))  # targets below 0 pull without an end


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.parametrize("centre", [0.0, 40.0])
@pytest.mark.parametrize("penalty", [1e-3, 1.0, 100.0])
def test_the_minimiser_lies_within_reach(loss: Loss, centre: float, penalty: float) -> None:
    """Of the centre, but for twice the linear term over the penalty; some minimiser gets a third of the way."""
    nearest = 0.0
    for seed in range(3):
        objective, query, public = problem(loss, penalty=penalty, centre=centre, seed=seed)
        away = (2 * query._reach(public) - penalty * float(np.linalg.norm(objective.centre))) / penalty
        for size in (0.0, 1.0, 100.0):
            linear_term = size * np.random.default_rng(seed).normal(size=4)
            moved = float(np.linalg.norm(objective.minimise(linear_term) - objective.centre))
            slack = 2 * objective.tolerance / penalty
            assert moved <= away + 2 * float(np.linalg.norm(linear_term)) / penalty + slack
            nearest = max(nearest, moved / (away + 2 * float(np.linalg.norm(linear_term)) / penalty))
    assert nearest > 0.02


def test_the_tolerance_is_never_below_what_descent_can_reach() -> None:
    """Many rows and a short linear term: the bound on points that descent meets decides."""
    public = PublicFacts(10**8, 3, 3, Squared(), None, 1.0, 1.0, 1.0, False)
    query = Minimiser(np.arange(3), 0.3, 1.0, 1e-4, np.zeros(3))
    descent = query._step_rounding(public) * query._reach(public)
    assert descent > query._rounding(public)
    assert query._tolerance(public) == descent
