"""Objective perturbation: what is billed bounds the exact privacy loss, what is drawn is what is billed.

The exact loss is that of small problems whose densities are known, p(theta) = phi_sigma(grad F) det(hess F): in one
dimension the probability of each cell of a grid is exact, in two the density is summed over one. Bounds are those of
the code under test, from a query's sensitivity through the mechanism's event to the accountants.

Statistical tests fix their seed and have a false-alarm probability of ALPHA each, were the seed drawn anew; each is
paired with noise of 2/3 and 3/2 of the right scale, which must be rejected at the same level.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import brentq, minimize_scalar
from scipy.special import ndtr
from scipy.stats import kstest, norm

from tulle.accounting.calibration import calibrate
from tulle.accounting.crosscheck import to_dp_accounting
from tulle.accounting.gaussian_budget import gaussian_mu
from tulle.accounting.mechanism_words import describe_mechanism
from tulle.accounting.renyi import RenyiAccountant
from tulle.methods.gradient_queries import ClippedGradient, SecondMoments, Step
from tulle.methods.loss_functions import (
    Huber,
    Logistic,
    Loss,
    OneVsRest,
    Poisson,
    Softmax,
    Squared,
    SquaredHinge,
)
from tulle.trusted.accountants import GaussianAccountant, epsilon
from tulle.trusted.clipped_sum import take_clipped_rows
from tulle.trusted.curator import Curator
from tulle.trusted.events import GaussianEvent, NoisePerSensitivity, ObjectivePerturbationEvent
from tulle.trusted.exact_noise import grid_and_scale
from tulle.trusted.facts import PublicFacts
from tulle.trusted.gaussian import gaussian_delta
from tulle.trusted.losses import (
    ConvexHuber,
    ConvexLogistic,
    ConvexLoss,
    ConvexPoisson,
    ConvexSquared,
    ConvexSquaredHinge,
)
from tulle.trusted.mechanisms import (
    Gaussian,
    Laplace,
    Mechanism,
    ObjectivePerturbation,
    ObjectiveSensitivity,
    Sensitivity,
    TopK,
    price_of,
)
from tulle.trusted.objectives import Minimiser, PenalisedSum
from tulle.trusted.plan import Budget, Composition, Plan, Release
from tulle.trusted.queries import Magnitudes, Query
from tulle.trusted.randomness import keyed_generator
from tulle.trusted.rows import Rows

ALPHA = 1e-5
FACTORS = [(1.0, True), (2 / 3, False), (3 / 2, False)]
LABEL = 2.0

# (loss, slope clip)
LOSSES: dict[str, tuple[Loss, float]] = {
    "logistic": (Logistic(), 1.0),
    "logistic, cut": (Logistic(), 0.2),
    "squared": (Squared(), 0.7),
    "squared, hardly cut": (Squared(), 5.0),
    "huber": (Huber(0.5), 0.5),
    "huber, cut": (Huber(1.0), 0.4),
    "squared hinge": (SquaredHinge(), 1.5),
    "poisson": (Poisson(2.0), 1.0),
}

Row = tuple[Any, float]  # features (a number or a vector) and target


def second_derivative(loss: Loss | ConvexLoss, tau: float, margins: np.ndarray, target: float) -> np.ndarray:
    """f_tau'' in closed form, written apart from the package."""
    slopes = loss.slope(margins[:, None], np.full(len(margins), target))[:, 0]
    if isinstance(loss, (Logistic, ConvexLogistic)):
        second = np.exp(-np.abs(margins)) / (1 + np.exp(-np.abs(margins))) ** 2
    elif isinstance(loss, (Squared, ConvexSquared)):
        second = np.ones_like(margins)
    elif isinstance(loss, (Huber, ConvexHuber)):
        second = (np.abs(margins - target) < loss.threshold) * 1.0
    elif isinstance(loss, (SquaredHinge, ConvexSquaredHinge)):
        second = (target * margins < 1) * 1.0
    elif isinstance(loss, (Poisson, ConvexPoisson)):
        second = np.where(margins < loss.cap, np.exp(np.minimum(margins, loss.cap)), 0.0)
    else:
        raise TypeError(loss)
    return np.where(np.abs(slopes) < tau, second, 0.0)


def cut_slope(loss: Loss | ConvexLoss, tau: float, margins: np.ndarray, target: float) -> np.ndarray:
    """f_tau'."""
    return np.clip(loss.slope(margins[:, None], np.full(len(margins), target))[:, 0], -tau, tau)


@dataclass(frozen=True)
class Problem:
    """A penalised sum over rows of length at most 1, and the noise on its linear term, sigma = 2 tau / mu."""

    loss: Loss
    tau: float
    penalty: float
    mu: float
    centre: float = 0.0
    unit: int = 1

    @property
    def sigma(self) -> float:
        return 2 * self.tau / self.mu

    def event(self, n_rows: int, d: int) -> ObjectivePerturbationEvent:
        """What the package bills for it, with a certificate that costs next to nothing."""
        public = PublicFacts(n_rows, d, d, self.loss, None, 1.0, 1.0, LABEL, False, rows_per_unit=self.unit)
        query = Minimiser(np.arange(d), self.tau, 1.0, self.penalty, np.zeros(d))
        moves = query.sensitivity(public).objective
        assert moves is not None
        noise = NoisePerSensitivity(self.sigma / moves.gradient)
        mechanism = ObjectivePerturbation(noise, moves.log_determinant, moves.one_sided, self.unit)
        event, uses = price_of(mechanism)
        assert isinstance(event, ObjectivePerturbationEvent)
        assert uses == 1
        assert event.certificate == 30.0
        return replace(event, certificate=1e6)

    def reach(self, n_rows: int, deviations: float) -> float:
        """How far from the centre theta lies at most while |b| is at most so many deviations."""
        return (n_rows * self.tau + deviations * self.sigma) / self.penalty

    # --- one dimension: exact probabilities ---

    def masses(self, grid: np.ndarray, rows: list[Row]) -> np.ndarray:
        """The probability of each cell: theta lies in it if and only if -grad F(theta) spans b. Never overestimates."""
        gradient = self.penalty * (grid - self.centre)
        for z, y in rows:
            gradient = gradient + z * cut_slope(self.loss, self.tau, z * grid, y)
        ends = gradient / self.sigma
        low, high = ends[:-1], ends[1:]
        return np.where(low > 0, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))

    def pair(self, one: list[Row], other: list[Row], cells: int = 4000) -> tuple[np.ndarray, np.ndarray]:
        reach = self.reach(len(one), 10.0)
        grid = np.linspace(self.centre - reach, self.centre + reach, cells + 1)
        return self.masses(grid, one), self.masses(grid, other)

    # --- two dimensions ---

    def log_density(self, theta: np.ndarray, rows: list[Row]) -> np.ndarray:
        """log p at points of shape (points, 2)."""
        gradient = self.penalty * (theta - self.centre)
        hessian = np.zeros((len(theta), 2, 2)) + self.penalty * np.eye(2)
        for z, y in rows:
            z = np.asarray(z, dtype=float)
            gradient = gradient + cut_slope(self.loss, self.tau, theta @ z, y)[:, None] * z
            second = second_derivative(self.loss, self.tau, theta @ z, y)
            hessian += second[:, None, None] * np.outer(z, z)
        square = (gradient**2).sum(axis=1) / self.sigma**2
        determinant = hessian[:, 0, 0] * hessian[:, 1, 1] - hessian[:, 0, 1] ** 2
        return -square / 2 - math.log(2 * math.pi * self.sigma**2) + np.log(determinant)

    def pair_in_the_plane(self, one: list[Row], other: list[Row], side: int = 400) -> tuple[np.ndarray, np.ndarray]:
        reach = self.reach(len(one), 6.0)
        line = self.centre + reach * (2 * (np.arange(side) + 0.5) / side - 1)
        theta = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
        cell = (2 * reach / side) ** 2
        first, second = (cell * np.exp(self.log_density(theta, rows)) for rows in (one, other))
        return first, second


def exact_delta(masses: tuple[np.ndarray, np.ndarray], at: float) -> float:
    """The hockey-stick divergence of two distributions on cells."""
    return float(np.maximum(masses[0] - math.exp(at) * masses[1], 0.0).sum())


def exact_renyi(masses: tuple[np.ndarray, np.ndarray], order: float) -> float:
    p, q = masses
    kept = (p > 1e-280) & (q > 1e-280)
    terms = order * np.log(p[kept]) + (1 - order) * np.log(q[kept])
    return float(np.logaddexp.reduce(terms)) / (order - 1)


def bound(composition: Composition, at: float) -> float:
    """What the package's mu says of delta at any epsilon."""
    return gaussian_delta(at, math.sqrt(sum(count * event.gaussian_mu() ** 2 for event, count in composition)))


def worst_pairs(loss: Loss) -> list[tuple[Row, Row]]:
    """Flipped labels, opposite rows, an empty row, rows of half the length."""
    if loss.one_sided:
        return [
            ((1.0, 1.0), (1.0, -1.0)),
            ((1.0, 1.0), (-1.0, 1.0)),
            ((1.0, -1.0), (0.0, 1.0)),
            ((1.0, 1.0), (0.5, -1.0)),
            ((1.0, 1.0), (0.5, 1.0)),
        ]
    least = 0.0 if isinstance(loss, Poisson) else -LABEL
    return [
        ((1.0, LABEL), (1.0, least)),
        ((1.0, LABEL), (-1.0, LABEL)),
        ((1.0, 0.3), (0.0, 0.0)),
        ((1.0, LABEL), (-0.5, 0.3)),
        ((-1.0, 0.3), (-1.0, 0.9)),
    ]


def others(loss: Loss, count: int) -> list[Row]:
    """Rows that both data sets have."""
    targets = [1.0, -1.0, -1.0, 1.0] if loss.kind == "classification" else [0.0, 1.1, LABEL, 0.6]
    return list(zip([1.0, 0.7, -0.4, 0.2], targets))[:count]


class TestExactOnALine:
    @pytest.mark.parametrize("name", LOSSES)
    def test_the_bound_holds(self, name: str) -> None:
        """For worst-case pairs of rows in both directions, over noises, penalties, centres and other rows."""
        loss, tau = LOSSES[name]
        curvature = loss.curvature_within(tau, LABEL)
        for mu, relative, count, centre in product((0.3, 1.0, 3.0), (0.2, 2.0, 40.0), (0, 4), (0.0, 1.3)):
            problem = Problem(loss, tau, relative * curvature, mu, centre)
            composition = ((problem.event(count + 1, 1), 1),)
            for one, other in worst_pairs(loss):
                rows = others(loss, count)
                masses = problem.pair([one, *rows], [other, *rows], 1500)
                assert masses[0].sum() == pytest.approx(1.0, abs=1e-9)
                for at in (0.0, 0.5 * mu, mu, 2 * mu, 4 * mu):
                    stated = bound(composition, at)
                    assert exact_delta(masses, at) <= stated + 1e-14, (problem, one, other, at)
                    assert exact_delta(masses[::-1], at) <= stated + 1e-14, (problem, other, one, at)

    @settings(max_examples=150)
    @given(st.data())
    def test_the_bound_holds_for_any_pair(self, data: st.DataObject) -> None:
        loss, tau = LOSSES[data.draw(st.sampled_from(sorted(LOSSES)))]
        length = st.floats(-1, 1) | st.sampled_from([-1.0, 0.0, 1.0])
        target = st.sampled_from([-1.0, 1.0]) if loss.one_sided else st.floats(0, LABEL)
        row = st.tuples(length, target)
        one, other, rest = data.draw(row), data.draw(row), data.draw(st.lists(row, max_size=3))
        curvature = loss.curvature_within(tau, LABEL)
        problem = Problem(
            loss,
            tau,
            curvature * data.draw(st.sampled_from([0.1, 1.0, 10.0])),
            data.draw(st.floats(0.1, 4.0)),
            data.draw(st.floats(-2, 2)),
        )
        composition = ((problem.event(len(rest) + 1, 1), 1),)
        masses = problem.pair([one, *rest], [other, *rest], 1500)
        for at in (-0.5, 0.0, 0.5, 1.0, 2.0, 5.0):
            assert exact_delta(masses, at) <= bound(composition, at) + 1e-14

    def test_the_bound_is_met_by_rows_that_pull_apart(self) -> None:
        """Slopes at their bounds whatever theta is: 99 % of the stated delta and of the stated epsilon."""
        problem = Problem(Logistic(), 0.2, 400.0, 1.0)
        masses = problem.pair([(1.0, 1.0)], [(1.0, -1.0)])
        composition = ((problem.event(1, 1), 1),)
        ratios = [exact_delta(masses, at) / bound(composition, at) for at in (0.0, 1.0, 1.5, 2.0, 3.0)]
        assert min(ratios) > 0.985
        assert max(ratios) <= 1
        stated = GaussianAccountant().epsilon(composition, 1e-5)
        exact = brentq(lambda at: exact_delta(masses, at) - 1e-5, 0.0, 10.0)
        assert 0.998 * stated < exact <= stated

    def test_the_bound_is_met_by_a_two_sided_loss(self) -> None:
        problem = Problem(Huber(0.2), 0.2, 400.0, 1.0)
        masses = problem.pair([(1.0, LABEL)], [(1.0, -LABEL)])
        composition = ((problem.event(1, 1), 1),)
        ratios = [exact_delta(masses, at) / bound(composition, at) for at in (0.0, 2.0, 3.0)]
        assert min(ratios) > 0.95
        assert max(ratios) <= 1

    @pytest.mark.parametrize(
        ("sided", "xi", "least"),
        [
            ("one-sided", (0.02, 0.3), 0.97),
            ("one-sided", (0.3, 0.8), 0.9),
            ("one-sided", (0.8, 4.0), 0.7),
            ("two-sided", (0.02, 0.3), 0.9),
            ("two-sided", (0.3, 4.0), 0.6),
        ],
    )
    def test_a_search_finds_no_pair_beyond_the_bound(self, sided: str, xi: tuple[float, float], least: float) -> None:
        """700 random problems each, near the worst ones: penalties that make the curvature matter, centres that put the
        bend of a row's slope where the threshold is. The worst comes as close to the stated delta as `least` says."""
        rng = np.random.default_rng(5)
        names = [name for name, (loss, _) in LOSSES.items() if loss.one_sided == (sided == "one-sided")]
        worst = 0.0
        for _ in range(700):
            loss, tau = LOSSES[names[rng.integers(len(names))]]
            mu = float(np.exp(rng.uniform(math.log(0.1), math.log(3.0))))
            curvature = float(np.exp(rng.uniform(*np.log(xi)))) * mu / 2
            penalty = loss.curvature_within(tau, LABEL) / curvature
            problem = Problem(loss, tau, penalty, mu, float(rng.normal(0.0, 2.0)))
            pairs = worst_pairs(loss)
            one, other = pairs[rng.integers(len(pairs))]
            masses = problem.pair([one], [other], 1000)
            event = ((problem.event(1, 1), 1),)
            for at in mu * rng.uniform(0.0, 4.0, 3):
                stated = bound(event, at)
                for exact in (exact_delta(masses, at), exact_delta(masses[::-1], at)):
                    assert exact <= stated + 1e-14, (problem, one, other, at)
                    worst = max(worst, exact / stated if stated > 1e-9 else 0.0)
        assert worst > least

    def test_half_the_noise_is_not_enough(self) -> None:
        """The same pair breaks a bound with mu / 2: the check above can fail."""
        problem = Problem(Logistic(), 0.2, 400.0, 1.0)
        masses = problem.pair([(1.0, 1.0)], [(1.0, -1.0)])
        event = problem.event(1, 1)
        halved = replace(event, noise=event.noise.times(2.0))
        assert exact_delta(masses, 1.0) > 10 * bound(((halved, 1),), 1.0)

    @pytest.mark.parametrize("loss", [SquaredHinge(), Squared()], ids=["one-sided", "two-sided"])
    def test_the_determinant_counts(self, loss: Loss) -> None:
        """Where the row's curvature is most of the Hessian, the bound without c0 is broken by an empty row."""
        problem = Problem(loss, 1.0, 0.1, 0.25, -1.1)
        masses = problem.pair([(1.0, -1.0)], [(0.0, 1.0)])
        event = problem.event(1, 1)
        assert event.log_determinant == pytest.approx(math.log(11))
        assert exact_delta(masses, 1.25) <= bound(((event, 1),), 1.25)
        assert exact_delta(masses, 1.25) > 1e3 * bound(((replace(event, log_determinant=0.0), 1),), 1.25)

    @pytest.mark.parametrize("name", LOSSES)
    def test_the_bound_holds_for_two_rows_of_one_person(self, name: str) -> None:
        loss, tau = LOSSES[name]
        curvature = loss.curvature_within(tau, LABEL)
        for mu, relative in product((0.3, 1.0), (0.5, 40.0)):
            problem = Problem(loss, tau, relative * curvature, mu, unit=2)
            composition = ((problem.event(4, 1), 1),)
            rest = others(loss, 2)
            pairs = worst_pairs(loss)
            for (one, other), (also, instead) in product(pairs, pairs):
                masses = problem.pair([one, also, *rest], [other, instead, *rest], 1500)
                for at in (0.0, mu, 2 * mu, 4 * mu):
                    assert exact_delta(masses, at) <= bound(composition, at) + 1e-14
                    assert exact_delta(masses[::-1], at) <= bound(composition, at) + 1e-14

    def test_two_rows_pull_twice_as_hard(self) -> None:
        """The exact delta of a pair that differs in two rows is that of a Gaussian with 2 mu, the event's own mu."""
        problem = Problem(Logistic(), 0.2, 400.0, 0.5, unit=2)
        masses = problem.pair([(1.0, 1.0), (1.0, 1.0)], [(1.0, -1.0), (1.0, -1.0)])
        event = problem.event(2, 1)
        assert 1 / event.noise.value == pytest.approx(1.0)
        for at in (0.0, 1.0, 2.0):
            assert exact_delta(masses, at) == pytest.approx(gaussian_delta(at, 1.0), rel=1e-3)
        as_one_row = Problem(Logistic(), 0.2, 400.0, 0.5).event(2, 1)
        assert exact_delta(masses, 2.0) > 10 * bound(((as_one_row, 1),), 2.0)

    @pytest.mark.parametrize("accountant", [GaussianAccountant(), RenyiAccountant()], ids=lambda a: a.name)
    @pytest.mark.parametrize("name", LOSSES)
    def test_the_stated_epsilon_is_enough(self, accountant: Any, name: str) -> None:
        loss, tau = LOSSES[name]
        for mu, delta in product((0.3, 1.5), (1e-2, 1e-5)):
            problem = Problem(loss, tau, 2 * loss.curvature_within(tau, LABEL), mu)
            stated = accountant.epsilon(((problem.event(1, 1), 1),), delta)
            for one, other in worst_pairs(loss):
                masses = problem.pair([one], [other])
                assert exact_delta(masses, stated) <= delta
                assert exact_delta(masses[::-1], stated) <= delta


def plane_pairs(loss: Loss) -> list[tuple[Row, Row]]:
    """Opposite rows, orthogonal ones, an empty one, a flipped label."""
    y = 1.0 if loss.kind == "classification" else LABEL
    diagonal = (math.sqrt(0.5), math.sqrt(0.5))
    return [
        (((1.0, 0.0), y), ((-1.0, 0.0), y)),
        (((1.0, 0.0), y), ((0.0, 1.0), y)),
        ((diagonal, y), ((0.0, 0.0), y)),
        ((diagonal, y), (diagonal, -y)),
        (((1.0, 0.0), -y), ((0.6, 0.8), y)),
    ]


class TestExactInThePlane:
    # Densities jump where slopes are cut, and so does a sum over a grid; smooth ones are exact to far more digits.
    GRID = 1.5e-2

    @pytest.mark.parametrize("name", ["logistic", "logistic, cut", "squared", "huber", "squared hinge"])
    def test_the_bound_holds(self, name: str) -> None:
        loss, tau = LOSSES[name]
        curvature = loss.curvature_within(tau, LABEL)
        rest: list[Row] = [((0.5, -0.5), 1.0), ((-0.3, 0.9), 1.0)]
        for mu, relative in ((0.5, 5.0), (2.0, 1.0)):
            problem = Problem(loss, tau, relative * curvature, mu, 0.2)
            composition = ((problem.event(3, 2), 1),)
            for one, other in plane_pairs(loss):
                masses = problem.pair_in_the_plane([one, *rest], [other, *rest], 250)
                assert masses[0].sum() == pytest.approx(1.0, abs=self.GRID)
                for at in (0.0, 0.5 * mu, mu, 2 * mu):
                    stated = bound(composition, at) * (1 + self.GRID) + 1e-8
                    assert exact_delta(masses, at) <= stated, (problem, one, other, at)
                    assert exact_delta(masses[::-1], at) <= stated, (problem, other, one, at)

    def test_the_bound_is_met_here_too(self) -> None:
        problem = Problem(Logistic(), 0.2, 400.0, 1.0)
        x = (math.sqrt(0.5), math.sqrt(0.5))
        masses = problem.pair_in_the_plane([(x, 1.0)], [(x, -1.0)])
        assert exact_delta(masses, 2.0) > 0.98 * bound(((problem.event(1, 2), 1),), 2.0)

    def test_no_grid_makes_the_check_pass(self) -> None:
        """What is smooth is summed to six digits: mass 1 and the exact Gaussian delta of slopes at their bounds."""
        problem = Problem(Logistic(), 0.2, 400.0, 1.0)
        masses = problem.pair_in_the_plane([((0.0, 1.0), 1.0)], [((0.0, 1.0), -1.0)], 400)
        assert masses[0].sum() == pytest.approx(1.0, abs=1e-6)
        assert exact_delta(masses, 1.0) == pytest.approx(gaussian_delta(1.0, 1.0), rel=1e-3)


# --- vectors ---------------------------------------------------------------------------------------------------------


def needed(stated: Callable[[float], float], delta: float) -> float:
    """sigma / G = 2 / mu at which the stated delta is the wanted one."""
    return float(brentq(lambda z: math.log(max(stated(2 / z), 1e-300) / delta), 0.5, 60.0))


def perturbation(mu: float, shift: float = 0.0, one_sided: bool = True, certificate: float = 1e9, unit: int = 1) -> Any:
    return ObjectivePerturbationEvent(NoisePerSensitivity(1 / mu), shift, one_sided, unit, certificate)


class TestVectors:
    @staticmethod
    def noise(at: float, delta: float, shift: float, one_sided: bool, certificate: float = 1e9) -> float:
        """sigma / G that the package needs."""
        return needed(lambda mu: bound(((perturbation(mu, shift, one_sided, certificate), 1),), at), delta)

    @pytest.mark.parametrize(
        ("at", "delta", "shift", "one_sided", "two_sided", "plain"),
        [
            (1.0, 1e-5, 0.0, 7.461, 7.461, 7.461),
            (1.0, 1e-5, 0.05, 7.524, 7.934, 7.461),
            (4.0, 1e-5, 0.0, 2.162, 2.162, 2.162),
            (1.0, 1e-2, 0.0, 3.756, 3.756, 3.756),
        ],
    )
    def test_noise_per_gradient_bound(
        self, at: float, delta: float, shift: float, one_sided: float, two_sided: float, plain: float
    ) -> None:
        """sigma / G: no less than a plain Gaussian release needs, and equal to it without curvature."""
        assert 2 / gaussian_mu(at, delta) == pytest.approx(plain, abs=6e-4)
        for sided, expected in ((True, one_sided), (False, two_sided)):
            found = self.noise(at, delta, shift, sided)
            assert found == pytest.approx(expected, abs=6e-4)
            assert 2 / gaussian_mu(at, delta) <= found * (1 + 1e-7)

    def test_what_hides_the_solver_costs_little(self) -> None:
        """With the certificate in use sigma / G grows by six parts in ten thousand."""
        with_it, without = (self.noise(1.0, 1e-5, 0.0, True, c) for c in (ObjectivePerturbation.CERTIFICATE, 1e9))
        assert with_it / without == pytest.approx(math.sqrt(1 + 1 / 900), rel=1e-5)

    @pytest.mark.parametrize("order", [1.001, 1.5, 2.0, 8.0, 64.0])
    @pytest.mark.parametrize("mu", [0.1, 1.0, 3.0])
    @pytest.mark.parametrize("shift", [0.02, 0.2, 3.0])
    def test_the_renyi_curve_is_the_smallest_of_three_bounds(self, mu: float, order: float, shift: float) -> None:
        b = order - 1
        t = mu * b
        moment = quad(lambda r: r * math.exp(-((r - t) ** 2) / 2), max(0.0, t - 12), t + 12, epsrel=1e-11)[0]
        rayleigh = mu**2 / 2 + (t**2 / 2 + math.log(moment)) / b
        exponents = [order * b * square / 2 for square in (mu**2, mu**2 / 4, mu**2 / 4, 0.0)]
        parts = float(np.logaddexp.reduce(exponents)) / b
        event = perturbation(mu, shift)
        found = float(event.renyi(np.array([order]))[0])
        gaussian = order * event.gaussian_mu() ** 2 / 2
        assert found == pytest.approx(min(gaussian, shift + min(rayleigh, parts)), rel=1e-6)


# --- composition -----------------------------------------------------------------------------------------------------


class TestComposition:
    @pytest.mark.parametrize("one_sided", [True, False])
    def test_costs_no_less_than_each_of_its_parts(self, one_sided: bool) -> None:
        release = perturbation(0.8, 0.05, one_sided, 30.0)
        noise = GaussianEvent(NoisePerSensitivity(1.5))
        for accountant, delta in product((GaussianAccountant(), RenyiAccountant()), (1e-2, 1e-6)):
            both = accountant.epsilon(((release, 1), (noise, 2)), delta)
            assert both > accountant.epsilon(((release, 1),), delta)
            assert both > accountant.epsilon(((noise, 2),), delta)
            assert both > 0.05

    @pytest.mark.parametrize("name", LOSSES)
    def test_bounds_the_exact_delta_beside_a_gaussian_release(self, name: str) -> None:
        """The exact delta of both: the Gaussian's at epsilon less the other release's loss, on average over that."""
        loss, tau = LOSSES[name]
        for mu, beside in ((0.5, 0.5), (1.0, 0.3)):
            problem = Problem(loss, tau, 3 * loss.curvature_within(tau, LABEL), mu, 0.3)
            composition = ((problem.event(1, 1), 1), (GaussianEvent(NoisePerSensitivity(1 / beside)), 1))
            for one, other in worst_pairs(loss):
                p, q = problem.pair([one], [other], 800)
                for (first, second), at in product([(p, q), (q, p)], (0.0, 1.0, 2.0)):
                    kept = (first > 1e-13) & (second > 0)
                    losses = np.log(first[kept] / second[kept])
                    exact = sum(m * gaussian_delta(at - x, beside) for m, x in zip(first[kept], losses))
                    assert exact <= bound(composition, at) + 1e-12

    def test_the_composed_bound_is_met_too(self) -> None:
        problem = Problem(Logistic(), 0.2, 400.0, 0.6)
        p, q = problem.pair([(1.0, 1.0)], [(1.0, -1.0)])
        kept = (p > 1e-18) & (q > 0)
        losses = np.log(p[kept] / q[kept])
        composition = ((problem.event(1, 1), 1), (GaussianEvent(NoisePerSensitivity(1 / 0.8)), 1))
        exact = [sum(m * gaussian_delta(at - x, 0.8) for m, x in zip(p[kept], losses)) for at in (0.0, 2.0, 4.5)]
        ratios = [found / bound(composition, at) for found, at in zip(exact, (0.0, 2.0, 4.5))]
        assert min(ratios) > 0.98
        assert max(ratios) <= 1

    @pytest.mark.parametrize("name", ["logistic", "squared", "squared hinge"])
    def test_bounds_the_exact_delta_of_two_releases(self, name: str) -> None:
        loss, tau = LOSSES[name]
        problem = Problem(loss, tau, 3 * loss.curvature_within(tau, LABEL), 0.7, 0.3)
        composition = ((problem.event(1, 1), 2),)
        for one, other in worst_pairs(loss):
            p, q = problem.pair([one], [other], 600)
            both = np.outer(p, p), np.outer(q, q)
            for at in (0.0, 0.7, 1.5):
                assert exact_delta(both, at) <= bound(composition, at) + 1e-14
                assert exact_delta(both[::-1], at) <= bound(composition, at) + 1e-14

    @pytest.mark.parametrize("name", LOSSES)
    def test_the_renyi_curve_bounds_the_exact_divergence(self, name: str) -> None:
        loss, tau = LOSSES[name]
        orders = np.array([1.05, 1.5, 2.0, 4.0, 16.0])
        for mu, relative in product((0.3, 1.0), (0.5, 20.0)):
            problem = Problem(loss, tau, relative * loss.curvature_within(tau, LABEL), mu, 0.3)
            stated = problem.event(3, 1).renyi(orders)
            for one, other in worst_pairs(loss):
                rest = others(loss, 2)
                masses = problem.pair([one, *rest], [other, *rest], 1500)
                for order, most in zip(orders, stated):
                    assert exact_renyi(masses, order) <= most
                    assert exact_renyi(masses[::-1], order) <= most

    def test_the_renyi_curve_is_met_at_large_orders(self) -> None:
        problem = Problem(Logistic(), 0.2, 4000.0, 1.0)
        masses = problem.pair([(1.0, 1.0)], [(1.0, -1.0)])
        stated = problem.event(1, 1).renyi(np.array([6.0]))[0]
        assert exact_renyi(masses, 6.0) > 0.99 * stated

    @pytest.mark.parametrize("accountant", [GaussianAccountant(), RenyiAccountant()], ids=lambda a: a.name)
    @pytest.mark.parametrize(("one_sided", "unit"), [(True, 1), (False, 1), (True, 3)])
    def test_more_noise_costs_less(self, accountant: Any, one_sided: bool, unit: int) -> None:
        costs = [
            accountant.epsilon(
                ((perturbation(1 / z, 0.1, one_sided, 30.0, unit), 2), (GaussianEvent(NoisePerSensitivity(3 * z)), 1)),
                1e-5,
            )
            for z in np.geomspace(0.1, 1e4, 40)
        ]
        assert np.all(np.diff(costs) <= 1e-12)
        assert costs[0] > 20 * costs[-1] > 0
        assert costs[-1] >= 0.2 * (1 - 1e-12)  # the determinants stay

    @pytest.mark.parametrize("accountant", [GaussianAccountant(), RenyiAccountant()], ids=lambda a: a.name)
    def test_people_with_many_rows_cost_more_and_break_nothing(self, accountant: Any) -> None:
        """At the same total mu: only the curvature that each row adds makes the difference."""
        costs = [
            accountant.epsilon(((perturbation(0.01, 0.001 * k, True, 30.0, k), 2),), 1e-5)
            for k in (1, 2, 50, 499, 5000)
        ]
        assert np.all(np.array(costs[1:]) >= costs[:-1])
        assert costs[1] < 0.1

    @pytest.mark.parametrize("one_sided", [True, False])
    def test_without_curvature_many_rows_cost_what_a_gaussian_costs(self, one_sided: bool) -> None:
        for k in (1, 2, 10, 1000):
            assert perturbation(0.7, 0.0, one_sided, 1e9, k).gaussian_mu() == pytest.approx(0.7, rel=1e-12)

    def test_many_rows_are_a_chain_of_single_ones(self) -> None:
        """k rows of mu / k each, with the curvature of one row: k times the mu of one of them."""
        for k in (2, 3, 10):
            together = perturbation(0.6, 0.03 * k, True, 1e9, k).gaussian_mu()
            assert together == pytest.approx(k * perturbation(0.6 / k, 0.03, True, 1e9).gaussian_mu(), rel=1e-9)

    def test_no_noise_promises_nothing(self) -> None:
        event = ObjectivePerturbationEvent(NoisePerSensitivity(0.0), 0.1, True, 1, 30.0)
        for accountant in (GaussianAccountant(), RenyiAccountant()):
            assert accountant.epsilon(((event, 1), (GaussianEvent(NoisePerSensitivity(1.0)), 3)), 1e-5) == math.inf
        assert event.gaussian_mu() == event.pure_epsilon() == math.inf
        nothing = ObjectivePerturbationEvent(NoisePerSensitivity(math.inf), 0.0, True, 1, 30.0)
        assert nothing.gaussian_mu() == 0.0

    def test_the_other_library_is_not_asked(self) -> None:
        assert to_dp_accounting(perturbation(1.0), "rdp") is None
        assert to_dp_accounting(perturbation(1.0), "pld") is None

    @pytest.mark.parametrize(("rows", "certificate"), [(0, 30.0), (-1, 30.0), (1, 0.0), (1, math.nan)])
    def test_no_rows_and_no_certificate_are_refused(self, rows: int, certificate: float) -> None:
        with pytest.raises(ValueError, match="rows per unit must be >= 1 and the certificate > 0"):
            perturbation(1.0, 0.1, True, certificate, rows)

    def test_a_negative_determinant_is_refused(self) -> None:
        for wrong in (-0.1, math.nan):
            with pytest.raises(ValueError, match="log-determinant must be >= 0"):
                perturbation(1.0, wrong)

    @pytest.mark.parametrize(("one_sided", "unit"), [(True, 1), (False, 1), (True, 2), (False, 5)])
    @pytest.mark.parametrize("budget", [Budget(0.5, 1e-6), Budget(1.0, 1e-5), Budget(8.0, 1e-2)], ids=str)
    def test_calibration_meets_the_budget(self, budget: Budget, one_sided: bool, unit: int) -> None:
        share = 0.05 * budget.epsilon
        unit_noise = NoisePerSensitivity(1.0)
        plan = [
            Release("start", Gaussian(NoisePerSensitivity(4.0)), 1),
            Release("select", TopK(NoisePerSensitivity(5.0), 3), 2),
            Release("refine", ObjectivePerturbation(unit_noise, share, one_sided, unit), 3),
            Release("rescale", ObjectivePerturbation(NoisePerSensitivity(3.0), share / 2, one_sided, unit), 1),
        ]
        found = calibrate(plan, budget)
        spent = epsilon(found, budget.delta)
        assert budget.epsilon * (1 - 5e-4) <= spent <= budget.epsilon  # a few choices: losses are added up
        noises = [release.mechanism.noise.value for release in found]
        assert np.array(noises) / noises[2] == pytest.approx([4.0, 5.0, 1.0, 3.0])
        after = found[2].mechanism
        assert isinstance(after, ObjectivePerturbation)
        assert after.log_determinant == share


# --- the mechanism ---------------------------------------------------------------------------------------------------

NOISE = 1.7
MOVES = ObjectiveSensitivity(
    gradient=3.1, log_determinant=0.1, minimiser=1e-3, penalty=40.0, rounding=0.0, one_sided=True, rows_per_unit=1
)
ASKED = Sensitivity(objective=MOVES)


@dataclass(frozen=True)
class Fixed:
    """An objective whose minimiser is zero whatever the linear term, which it keeps."""

    count: int
    seen: list[np.ndarray]

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.count,)

    def minimise(self, linear_term: np.ndarray) -> np.ndarray:
        self.seen.append(linear_term)
        return np.zeros(self.count)


def mechanism(noise: float = NOISE, log_determinant: float = 0.1, one_sided: bool = True) -> ObjectivePerturbation:
    return ObjectivePerturbation(NoisePerSensitivity(noise), log_determinant, one_sided)


def is_normal(values: np.ndarray, scale: float) -> bool:
    """Kolmogorov and Smirnov's test at the level ALPHA."""
    return bool(kstest(values / scale, norm.cdf).pvalue > ALPHA)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("factor", "accepted"), FACTORS)
class TestLaw:
    COUNT = 20_000

    def test_the_linear_term(self, factor: float, accepted: bool, seed: int) -> None:
        """N(0, (noise × gradient)²) on each coordinate."""
        seen: list[np.ndarray] = []
        mechanism(factor * NOISE).release(Fixed(self.COUNT, seen), ASKED, keyed_generator(seed), None)
        assert is_normal(seen[0], NOISE * MOVES.gradient) is accepted

    @pytest.mark.parametrize(("stops", "rounding"), [(1e-9, 0.0), (1e-9, 1e-9), (0.5, 0.0)])
    def test_what_hides_the_solver(
        self, stops: float, rounding: float, factor: float, accepted: bool, seed: int
    ) -> None:
        """30 noise × how far the solver stops and what the linear term's floats and its length add, on a fine grid."""
        moves = replace(MOVES, minimiser=stops, rounding=rounding)
        # The linear term's floats are off by less than 82 × 2^-45 of its scale each, on both of two data sets; and no
        # draw is beyond 40.
        each = 82 * 2.0**-45 + 41 * rounding
        off = 2 * each * factor * NOISE * moves.gradient * math.sqrt(self.COUNT) / moves.penalty
        scale = NOISE * 30 * (stops + off)
        values = mechanism(factor * NOISE).release(
            Fixed(self.COUNT, []), Sensitivity(objective=moves), keyed_generator(seed), None
        )
        grid, _ = grid_and_scale(30 * factor * NOISE, stops + off, math.sqrt(self.COUNT))
        np.testing.assert_array_equal(values / grid, np.round(values / grid))
        assert is_normal(values, scale) is accepted

    def test_the_minimiser_of_rows_without_curvature(self, factor: float, accepted: bool, seed: int) -> None:
        """Empty rows: theta is centre - b / penalty and the noise that hides the solver, through the curator."""
        d, penalty, tau, row_bound = self.COUNT, 7.0, 0.4, 1.5
        public = PublicFacts(4, d, d, Logistic(), None, row_bound, 1.0, 1.0, False)
        centre = np.linspace(-1, 1, d)
        query = Minimiser(np.arange(d), tau, row_bound, penalty, centre)
        moves = query.sensitivity(public).objective
        assert moves is not None
        refine = ObjectivePerturbation(NoisePerSensitivity(factor * NOISE), moves.log_determinant, True)
        curator = Curator(
            Rows(np.zeros((4, d)), np.ones(4)), public, Plan((Release("refine", refine, 1),)), keyed_generator(seed)
        )
        theta = curator.ask("refine", query)
        assert theta.shape == (d,)
        sigma = NOISE * 2 * tau * row_bound
        hiding = 30 * NOISE * moves.minimiser
        assert hiding == pytest.approx(0.1 * sigma / penalty, rel=1e-3)  # half a percent of the variance
        assert is_normal(theta - centre, math.hypot(sigma / penalty, hiding)) is accepted


class TestMechanism:
    def test_the_hiding_noise_is_drawn_apart_from_the_linear_term(self) -> None:
        """Else theta + noise would be a function of b alone. Correlation within 6 deviations: false alarm 2e-9."""
        seen: list[np.ndarray] = []
        hiding = mechanism().release(Fixed(40_000, seen), ASKED, keyed_generator(2), None)
        assert abs(np.corrcoef(hiding, seen[0])[0, 1]) < 6 / math.sqrt(40_000)

    def test_without_noise_the_minimiser_is_exact(self) -> None:
        seen: list[np.ndarray] = []
        answer = mechanism(0.0).release(Fixed(3, seen), Sensitivity(), keyed_generator(0), None)
        np.testing.assert_array_equal(seen[0], 0.0)
        np.testing.assert_array_equal(answer, 0.0)

    def test_without_noise_the_curator_answers_with_the_exact_minimiser(self) -> None:
        rng = np.random.default_rng(0)
        X, y = rng.normal(size=(30, 3)), rng.normal(size=30)
        public = PublicFacts(30, 3, 3, Squared(), None, math.inf, math.inf, math.inf, False)
        query = Minimiser(np.arange(3), math.inf, math.inf, 2.0, np.ones(3))
        plan = Plan((Release("refine", ObjectivePerturbation(NoisePerSensitivity(0.0)), 1),))
        theta = Curator(Rows(X, y), public, plan, keyed_generator(0)).ask("refine", query)
        np.testing.assert_allclose(theta, np.linalg.solve(X.T @ X + 2 * np.eye(3), X.T @ y + 2.0), rtol=1e-9)

    def test_a_query_that_is_no_objective_is_refused(self) -> None:
        with pytest.raises(ValueError, match="not an objective"):
            mechanism().release(np.zeros((3, 1)), Sensitivity(1.0, 1.0, 1.0), keyed_generator(0), None)

    @pytest.mark.parametrize(
        ("planned", "one_sided", "stated", "refused"),
        [
            (0.1, True, {}, False),
            (0.0999, True, {}, True),
            (0.0, True, {}, True),
            (0.1, True, {"one_sided": False}, True),
            (0.1, False, {"one_sided": False}, False),
            (0.1, False, {"one_sided": True}, False),
            (0.1, True, {"log_determinant": 0.2}, True),
            (0.1, True, {"log_determinant": math.nan}, True),
            (0.1, True, {"rows_per_unit": 2}, True),
        ],
    )
    def test_a_query_that_moves_in_more_ways_than_planned_is_refused(
        self, planned: float, one_sided: bool, stated: dict[str, Any], refused: bool
    ) -> None:
        asked = Sensitivity(objective=replace(MOVES, **stated))
        seen: list[np.ndarray] = []
        plan = mechanism(NOISE, planned, one_sided)
        if not refused:
            assert np.any(plan.release(Fixed(5, seen), asked, keyed_generator(0), None))
            return
        with pytest.raises(ValueError, match="more ways than the plan counts"):
            plan.release(Fixed(5, seen), asked, keyed_generator(0), None)
        assert not seen

    @pytest.mark.parametrize("stated", [1, 3])
    def test_other_rows_per_unit_than_planned_are_refused(self, stated: int) -> None:
        """Fewer rows with the same change of log det add more curvature each, and cost more."""
        asked = Sensitivity(objective=replace(MOVES, rows_per_unit=stated))
        plan = replace(mechanism(NOISE, 1.0), rows_per_unit=2)
        with pytest.raises(ValueError, match="more ways than the plan counts"):
            plan.release(Fixed(5, []), asked, keyed_generator(0), None)
        few, many = (perturbation(0.5, 0.2, True, 1e9, rows).gaussian_mu() for rows in (1, 2))
        assert few >= many

    @pytest.mark.parametrize("other", [Gaussian(), Laplace(), TopK()], ids=lambda m: type(m).__name__)
    def test_other_mechanisms_do_not_answer_an_objective(self, other: Mechanism) -> None:
        public = PublicFacts(4, 2, 2, Logistic(), None, 1.0, 1.0, 1.0, False)
        plan = Plan((Release("values", other, 1),))
        curator = Curator(Rows(np.ones((4, 2)), np.ones(4)), public, plan, keyed_generator(0))
        with pytest.raises((ValueError, IndexError)):
            curator.ask("values", Minimiser(np.arange(2), 0.5, 1.0, 1.0, np.zeros(2)))

    @pytest.mark.parametrize("sensitivity", [math.inf, -1.0, math.nan])
    def test_a_gradient_without_bound_is_refused(self, sensitivity: float) -> None:
        moves = replace(MOVES, gradient=sensitivity)
        with pytest.raises(ValueError, match="states no sensitivity"):
            mechanism().release(Fixed(5, []), Sensitivity(objective=moves), keyed_generator(0), None)

    def test_the_bill(self) -> None:
        plan = ObjectivePerturbation(NoisePerSensitivity(2.0), 0.3, True, 4)
        event, uses = price_of(plan)
        assert isinstance(event, ObjectivePerturbationEvent)
        assert 0.3 <= event.log_determinant < 0.3 * (1 + 1e-8)
        noise = NoisePerSensitivity(2.0)
        assert (replace(event, log_determinant=0.3), uses) == (ObjectivePerturbationEvent(noise, 0.3, True, 4, 30.0), 1)
        assert plan.scaled(3.0) == replace(plan, noise=NoisePerSensitivity(6.0))
        assert describe_mechanism(plan) == "objective perturbation"

    def test_the_size_of_the_minimiser_shows_nowhere(self) -> None:
        """Whole units of the grid added to it are added to the answer, to the last bit; nothing is left for delta."""

        class Shifted(Fixed):
            def minimise(self, linear_term: np.ndarray) -> np.ndarray:
                return super().minimise(linear_term) + 2.0**20

        one, other = (kind(20, []) for kind in (Fixed, Shifted))
        answers = [mechanism().release(each, ASKED, keyed_generator(0), None) for each in (one, other)]
        np.testing.assert_array_equal(answers[0] + 2.0**20, answers[1])
        assert mechanism().inexact == 0.0

    def test_the_error_of_the_linear_term_is_hidden_too(self) -> None:
        """A solver that never errs still has noise: what a float linear term moves, over the penalty."""
        moves = replace(MOVES, minimiser=0.0, penalty=1e-6)
        answer = mechanism().release(Fixed(1000, []), Sensitivity(objective=moves), keyed_generator(0), None)
        error = 2.0**-46 * NOISE * moves.gradient * math.sqrt(1000) / 1e-6
        assert answer.std() > 30 * NOISE * error

    def test_one_answer_has_noise_of_its_own(self) -> None:
        generator = keyed_generator(0)
        seen: list[np.ndarray] = []
        answers = [mechanism().release(Fixed(20, seen), ASKED, generator, None) for _ in range(2)]
        assert np.all(seen[0] != seen[1])
        assert not np.array_equal(*answers)


# --- queries ---------------------------------------------------------------------------------------------------------

ROUNDING = 1 + 1e-9
STORAGES: dict[str, Callable[[np.ndarray], Any]] = {"dense": np.array, "csr": sp.csr_array}
ENTRIES = (0.0, 0.5, -0.5, 1.0, -1.5, 1e6, -1e30, 1e150, -1.7e308, 1e-8, 1e-160, -1.5e-162, 5e-324, math.nan, math.inf)
QUERIED: dict[str, Loss] = {
    "squared": Squared(),
    "huber": Huber(0.7),
    "poisson": Poisson(2.0),
    "logistic": Logistic(),
    "squared hinge": SquaredHinge(),
    "one vs rest": OneVsRest(SquaredHinge(), 3),
}


@dataclass(frozen=True)
class Neighbours:
    """Two data sets that differ in the rows of one unit, as the curator holds them."""

    one: Rows
    other: Rows
    public: PublicFacts


@st.composite
def neighbours(draw: st.DrawFn, loss: Loss, storage: str) -> Neighbours:
    n, d, unit = draw(st.integers(3, 6)), draw(st.integers(1, 4)), draw(st.integers(1, 2))
    if loss.n_outputs > 1:
        target = st.integers(0, 2).map(float)
    elif loss.kind == "classification":
        target = st.sampled_from([-1.0, 1.0, 1.0, -1.0, math.nan])
    else:
        target = st.floats(0, LABEL) | st.sampled_from([0.0, LABEL, math.nan, 1e300])
    row = st.lists(st.sampled_from(ENTRIES) | st.floats(-2, 2), min_size=d, max_size=d)
    X = np.array(draw(st.lists(row, min_size=n + unit, max_size=n + unit)))
    y = np.array(draw(st.lists(target, min_size=n + unit, max_size=n + unit)))
    active = np.array(draw(st.lists(st.sampled_from([True, True, True, False]), min_size=n, max_size=n)))
    changed = np.r_[np.arange(n, n + unit), np.arange(unit, n)]
    clip = draw(st.booleans())
    both = []
    for chosen in (np.arange(n), changed):
        with np.errstate(all="ignore"):
            rows = Rows(STORAGES[storage](X[chosen]), y[chosen], active)
            if clip:
                rows.clip_rows(1.5)
            rows.clip_targets(-LABEL if loss.kind == "regression" else -10.0, LABEL)
        both.append(rows)
    return Neighbours(*both, PublicFacts(n, d, d, loss, None, 1.5, 1.5, LABEL, False, rows_per_unit=unit))


@st.composite
def minimisers(draw: st.DrawFn, d: int) -> Minimiser:
    features = np.flatnonzero(draw(st.lists(st.booleans(), min_size=d, max_size=d)))
    assume(len(features))
    a = draw(st.sampled_from([0.0, 0.5, 4.0]))
    mixing = None
    directions = len(features)
    if draw(st.booleans()):
        directions = draw(st.integers(1, 2))
        entries = st.sampled_from([0.0, 1.0, -3.0, 1e200])
        size = len(features) * directions
        mixing = np.array(draw(st.lists(entries, min_size=size, max_size=size))).reshape(-1, directions)
    return Minimiser(
        features,
        slope_clip=draw(st.sampled_from([0.01, 0.4, 1.0, 3.0])),
        row_bound=draw(st.sampled_from([0.1, 1.0, 2.5])),
        penalty=draw(st.sampled_from([0.05, 1.0, 50.0])),
        centre=np.zeros(directions + (a > 0)),
        intercept_value=a,
        mixing=mixing,
        output=draw(st.integers(0, 2)),
    )


def held_rows(objective: PenalisedSum) -> np.ndarray:
    """The rows that an objective sums over, dense."""
    parts = [p.features if isinstance(p.features, np.ndarray) else p.features.toarray() for p in objective.parts.items]
    return np.vstack(parts)


def gradient_of(objective: PenalisedSum, theta: np.ndarray) -> np.ndarray:
    return objective._gradient(theta, np.zeros(objective.shape))


def log_determinant_of(objective: PenalisedSum, theta: np.ndarray) -> float:
    """log det of the Hessian, in closed form."""
    Z = held_rows(objective)
    targets = np.concatenate([part.targets for part in objective.parts.items])
    pairs = zip(Z @ theta, targets)
    weights = [
        second_derivative(objective.terms.loss, objective.terms.slope_clip, np.array([m]), y)[0] for m, y in pairs
    ]
    hessian = objective.penalty * np.eye(len(theta)) + Z.T @ (np.nan_to_num(weights)[:, None] * Z)
    return float(np.linalg.slogdet(hessian)[1])


def objective_of(query: Minimiser, rows: Rows, public: PublicFacts) -> Any:
    """As the curator evaluates it, without warnings."""
    with np.errstate(all="ignore"):
        return query.evaluate(rows, public)


def moves_of(query: Query, public: PublicFacts) -> ObjectiveSensitivity:
    moves = query.sensitivity(public).objective
    assert moves is not None
    return moves


class TestMinimiserQuery:
    @settings(max_examples=50)
    @pytest.mark.parametrize("storage", STORAGES)
    @pytest.mark.parametrize("name", QUERIED)
    @given(data=st.data())
    def test_no_neighbour_moves_it_further(self, name: str, storage: str, data: st.DataObject) -> None:
        """Neither the gradient nor log det of the Hessian, wherever they are taken."""
        pair = data.draw(neighbours(QUERIED[name], storage))
        query = data.draw(minimisers(pair.public.n_features))
        moves = moves_of(query, pair.public)
        with np.errstate(all="ignore"):
            objectives = [query.evaluate(rows, pair.public) for rows in (pair.one, pair.other)]
            scale = data.draw(st.sampled_from([0.0, 0.3, 3.0, 1e4]))
            theta = scale * np.random.default_rng(data.draw(st.integers(0, 99))).normal(size=query.centre.shape)
            gradients = [gradient_of(objective, theta) for objective in objectives]
            determinants = [log_determinant_of(objective, theta) for objective in objectives]
        assert np.all(np.isfinite(gradients))
        assert np.linalg.norm(gradients[0] - gradients[1]) <= moves.gradient * ROUNDING
        assert abs(determinants[0] - determinants[1]) <= moves.log_determinant * ROUNDING + 1e-12

    @pytest.mark.parametrize("unit", [1, 2])
    @pytest.mark.parametrize("a", [0.0, 0.6])
    @pytest.mark.parametrize("name", ["squared", "logistic", "squared hinge", "huber"])
    def test_some_neighbour_moves_the_gradient_so_far(self, name: str, a: float, unit: int) -> None:
        """Rows at the bound with slopes at the clip that pull apart: within 1 % of what is declared."""
        loss, n = QUERIED[name], 5
        public = PublicFacts(n, 2, 2, loss, None, 3.0, 3.0, LABEL, a > 0, rows_per_unit=unit)
        query = Minimiser(np.arange(2), 0.3, 1.0, 2.0, np.zeros(2 + (a > 0)), a)
        X = np.full((n, 2), 2.0)
        y = np.ones(n)
        other = np.where(np.arange(n) < unit, -1.0, y)
        gradients = [gradient_of(objective_of(query, Rows(X, t), public), np.zeros(2 + (a > 0))) for t in (y, other)]
        moved = float(np.linalg.norm(gradients[0] - gradients[1]))
        assert 0.99 * moves_of(query, public).gradient <= moved <= moves_of(query, public).gradient * ROUNDING

    @pytest.mark.parametrize("unit", [1, 2])
    @pytest.mark.parametrize(
        ("name", "tau"), [("squared", 3.0), ("logistic", 1.0), ("logistic", 0.3), ("poisson", 1.0)]
    )
    def test_some_neighbour_moves_the_determinant_so_far(self, name: str, tau: float, unit: int) -> None:
        """Rows at the bound and of the largest curvature against empty ones: within 1 % of what is declared."""
        loss, n, row_bound = QUERIED[name], 3, 2.0
        public = PublicFacts(n, 2, 2, loss, None, 3.0, 3.0, LABEL, False, rows_per_unit=unit)
        # Orthogonal rows: each meets the penalty alone.
        X = np.array([[5.0, 0.0], [0.0, 5.0], [0.0, 0.0]]) * (np.arange(3) < unit)[:, None]
        y = np.full(n, LABEL if loss.kind == "regression" else 1.0)
        # Where the curvature is largest: at the edge of the cut for a clip below 1/2, and for counts.
        margin = {("logistic", 0.3): math.log(0.7 / 0.3), ("poisson", 1.0): math.log(LABEL + 1)}.get((name, tau), 0.0)
        theta = np.full(2, margin * (1 + 1e-6 * (name == "logistic") - 1e-6 * (name == "poisson")) / row_bound)
        query = Minimiser(np.arange(2), tau, row_bound, 40.0, np.zeros(2))
        found = [
            log_determinant_of(objective_of(query, Rows(rows, y), public), theta) for rows in (X, np.zeros_like(X))
        ]
        declared = moves_of(query, public).log_determinant
        assert 0.99 * declared <= found[0] - found[1] <= declared * ROUNDING

    @settings(max_examples=100)
    @pytest.mark.parametrize("storage", STORAGES)
    @given(data=st.data())
    def test_rows_are_never_longer_than_the_bound(self, storage: str, data: st.DataObject) -> None:
        """In exact arithmetic."""
        pair = data.draw(neighbours(Squared(), storage))
        query = data.draw(minimisers(pair.public.n_features))
        with np.errstate(all="ignore"):
            for block in pair.one.blocks:
                clipped = take_clipped_rows(block, query.features, query.intercept_value, query.row_bound, query.mixing)
                rows = clipped if isinstance(clipped, np.ndarray) else clipped.toarray()
                assert rows.shape == (block.n_rows, len(query.centre))
                assert np.all(rows[~block.active] == 0)
                for row in rows:
                    assert sum(Fraction(float(z)) ** 2 for z in row) <= Fraction(query.row_bound) ** 2

    def test_rows_shorter_than_the_bound_stay_as_they_are(self) -> None:
        X = np.array([[0.3, 0.4, 9.0], [3.0, 4.0, 9.0], [0.0, 0.0, 0.0]])
        for storage in STORAGES.values():
            block = Rows(storage(X), np.zeros(3)).blocks[0]
            for a in (0.0, 0.5):
                with np.errstate(divide="ignore"):
                    clipped = take_clipped_rows(block, np.array([0, 1]), a, 1.0)
                rows = clipped if isinstance(clipped, np.ndarray) else clipped.toarray()
                scale = np.array([1.0, math.sqrt(1 - a**2) / 5, 1.0])[:, None]
                np.testing.assert_allclose(rows, np.hstack([X[:, :2] * scale, np.full((3, 1), a)][: 1 + (a > 0)]))

    @pytest.mark.parametrize("a", [0.999999, 1.0, 1.5, 1e9])
    def test_a_constant_is_never_longer_than_the_bound(self, a: float) -> None:
        """One that leaves no room is cut down to the bound, and the features are nothing; in exact arithmetic."""
        X = np.array([[3.0, 4.0], [1e-170, 0.0], [0.0, 0.0], [1e-9, 1e-9]])
        for storage in STORAGES.values():
            block = Rows(storage(X), np.zeros(4)).blocks[0]
            with np.errstate(all="ignore"):
                clipped = take_clipped_rows(block, np.array([0, 1]), a, 1.0)
            rows = clipped if isinstance(clipped, np.ndarray) else clipped.toarray()
            assert all(sum(Fraction(float(z)) ** 2 for z in row) <= 1 for row in rows)
            np.testing.assert_array_equal(rows[:, 2], min(a, 1.0))

    def test_the_solver_sums_what_the_query_says(self) -> None:
        """The gradient against its formula, row by row, intercept, mixing and rows that do not count included."""
        rng = np.random.default_rng(0)
        n, d = 40, 5
        X, y = rng.normal(size=(n, d)), rng.choice([-1.0, 1.0], n)
        active = np.arange(n) % 7 != 3
        public = PublicFacts(n, d, d, Logistic(), None, 9.0, 9.0, 1.0, True)
        features, mixing = np.array([0, 2, 4]), rng.normal(size=(3, 2))
        query = Minimiser(features, 0.45, 1.1, 0.7, np.array([0.3, -0.2, 0.1]), 0.5, mixing)
        objective = query.evaluate(Rows(X, y, active), public)
        theta = rng.normal(size=3)
        expected = 0.7 * (theta - query.centre)
        for x, target in zip(X[active], y[active]):
            mixed = x[features] @ mixing
            z = np.append(mixed * min(1.0, math.sqrt(1.1**2 - 0.5**2) / np.linalg.norm(mixed)), 0.5)
            expected += np.clip(-target / (1 + math.exp(target * (z @ theta))), -0.45, 0.45) * z
        np.testing.assert_allclose(gradient_of(objective, theta), expected, rtol=1e-10)

    @pytest.mark.parametrize("name", QUERIED)
    def test_dense_and_csr_rows_have_one_minimiser(self, name: str) -> None:
        rng = np.random.default_rng(1)
        loss = QUERIED[name]
        X = rng.normal(size=(60, 6)) * (rng.random((60, 6)) < 0.5)
        y = rng.integers(0, 3, 60).astype(float) if loss.n_outputs > 1 else rng.choice([-1.0, 1.0], 60)
        public = PublicFacts(60, 6, 6, loss, None, 2.0, 2.0, LABEL, True)
        query = Minimiser(np.array([0, 1, 3, 5]), 0.6, 1.0, 2.0, np.zeros(5), 0.4, output=1)
        linear = rng.normal(size=5)
        found = [objective_of(query, Rows(s(X), y), public).minimise(linear) for s in STORAGES.values()]
        np.testing.assert_allclose(*found, atol=moves_of(query, public).minimiser)
        assert np.linalg.norm(found[0]) > 0.1

    def test_each_class_has_its_own_targets(self) -> None:
        """One against the rest: the objective of an output is that of the two-class loss."""
        rng = np.random.default_rng(2)
        X, y = rng.normal(size=(30, 2)), rng.integers(0, 3, 30).astype(float)
        public = PublicFacts(30, 2, 2, OneVsRest(SquaredHinge(), 3), None, 2.0, 2.0, 3.0, False)
        for output in range(3):
            query = Minimiser(np.arange(2), 0.6, 1.0, 2.0, np.zeros(2), output=output)
            theta = objective_of(query, Rows(X, y), public).minimise(np.zeros(2))
            alone = replace(public, loss=SquaredHinge())
            signs = np.where(y == output, 1.0, -1.0)
            expected = query.evaluate(Rows(X, signs), alone).minimise(np.zeros(2))
            np.testing.assert_allclose(theta, expected, atol=moves_of(query, public).minimiser)

    def test_what_is_declared(self) -> None:
        """2 G k, k log(1 + beta K² / penalty), and twice the certified distance, from public quantities alone."""
        public = PublicFacts(1000, 4, 2, Logistic(), None, 3.0, 3.0, 1.0, False, rows_per_unit=3)
        query = Minimiser(np.arange(4), 0.3, 2.0, 5.0, np.zeros(4))
        moves = moves_of(query, public)
        assert moves.gradient == pytest.approx(2 * 0.3 * 2.0 * 3)
        assert moves.log_determinant == pytest.approx(3 * math.log1p(0.3 * 0.7 * 4.0 / 5.0))
        assert moves.one_sided
        tolerance = query.evaluate(Rows(np.ones((1000, 4)), np.ones(1000)), public).tolerance
        assert 2 * tolerance / 5.0 <= moves.minimiser <= 3 * tolerance / 5.0
        assert (moves.penalty, moves.rows_per_unit) == (5.0, 3)
        assert objective_of(query, Rows(np.zeros((1000, 4)), -np.ones(1000)), public).tolerance == tolerance
        assert 0 < tolerance < 0.01 * moves.gradient

    @pytest.mark.parametrize("loss", [Softmax(3), OneVsRest(Softmax(2), 3), type("Own", (Logistic,), {})()])
    def test_losses_that_are_not_known_to_be_convex_are_refused(self, loss: Loss) -> None:
        public = PublicFacts(4, 2, 2, loss, None, 1.0, 1.0, 1.0, False)
        query = Minimiser(np.arange(2), 0.5, 1.0, 1.0, np.zeros(2))
        with pytest.raises(ValueError, match="known to be convex"):
            query.sensitivity(public)
        with pytest.raises(ValueError, match="known to be convex"):
            query.evaluate(Rows(np.ones((4, 2)), np.ones(4)), public)

    def test_a_loss_that_claims_to_be_convex_is_refused(self) -> None:
        """What it claims to be must be of a class of the trusted code, exactly."""

        class Bent(ConvexLogistic):
            def slope(self, margins: np.ndarray, targets: np.ndarray) -> np.ndarray:
                return np.sin(100 * margins)

        class Own(Logistic):
            convex = Bent()

        public = PublicFacts(4, 2, 2, Own(), None, 1.0, 1.0, 1.0, False)
        query = Minimiser(np.arange(2), 0.5, 1.0, 1.0, np.zeros(2))
        with pytest.raises(ValueError, match="known to be convex"):
            query.sensitivity(public)
        with pytest.raises(ValueError, match="known to be convex"):
            query.evaluate(Rows(np.ones((4, 2)), np.ones(4)), public)

    def test_a_loss_that_changes_is_the_same_in_bound_and_answer(self) -> None:
        """The slope of the loss itself does not count, and what it says it is counts as it was said first."""

        class Changing(Logistic):
            said = 0

            @property
            def convex(self) -> ConvexLoss:
                Changing.said += 1
                return ConvexLogistic() if Changing.said == 1 else ConvexSquared()

            def slope(self, margins: np.ndarray, targets: np.ndarray) -> np.ndarray:
                raise AssertionError("objective perturbation has its own slopes")

        public = PublicFacts(4, 2, 2, Changing(), None, 1.0, 1.0, 1.0, False)
        query = Minimiser(np.arange(2), 0.5, 1.0, 1.0, np.zeros(2))
        same = PublicFacts(4, 2, 2, Logistic(), None, 1.0, 1.0, 1.0, False)
        assert query.sensitivity(public) == query.sensitivity(same)
        rows = Rows(np.ones((4, 2)), np.array([1.0, -1.0, 1.0, 1.0]))
        answers = [query.evaluate(rows, facts).minimise(np.zeros(2)) for facts in (public, same)]
        assert np.array_equal(*answers)

    def test_the_size_bounds_the_exact_minimiser(self) -> None:
        X, y = np.ones((20, 1)), np.full(20, 1.0)
        public = PublicFacts(20, 1, 1, Logistic(), None, 1.0, 1.0, 1.0, False)
        query = Minimiser(np.arange(1), 0.1, 1.0, 3.0, np.array([-2.0]))
        theta = objective_of(query, Rows(X, y), public).minimise(np.zeros(1))
        assert abs(theta[0]) <= query.size(public)
        assert abs(theta[0] + 2.0) == pytest.approx(20 * 0.1 / 3.0, abs=moves_of(query, public).minimiser)


def to_teacher(problem: Minimiser) -> Minimiser:
    """The minimiser itself, to which noise may be added."""
    return replace(problem, itself=True)


def taught(query: Minimiser, rows: Rows, public: PublicFacts) -> np.ndarray:
    """As the curator evaluates it, without warnings."""
    with np.errstate(all="ignore"):
        return query.evaluate(rows, public).to_dense()[:, 0]


class TestMinimiserItself:
    @settings(max_examples=60)
    @pytest.mark.parametrize("storage", STORAGES)
    @pytest.mark.parametrize("name", QUERIED)
    @given(data=st.data())
    def test_no_neighbour_moves_it_further(self, name: str, storage: str, data: st.DataObject) -> None:
        """Nor is it longer than its size, and the solver's certificate is reached on both data sets."""
        pair = data.draw(neighbours(QUERIED[name], storage))
        problem = data.draw(minimisers(pair.public.n_features))
        query = to_teacher(problem)
        both = [taught(query, rows, pair.public) for rows in (pair.one, pair.other)]
        assert np.all(np.isfinite(both))
        assert np.linalg.norm(both[0] - both[1]) <= query.sensitivity(pair.public).l2 * ROUNDING
        tolerance = query._tolerance(pair.public)
        for theta, rows in zip(both, (pair.one, pair.other)):
            assert np.linalg.norm(theta) <= query.size(pair.public) * ROUNDING
            gradient = gradient_of(objective_of(problem, rows, pair.public), theta)
            assert np.linalg.norm(gradient) <= tolerance * (1 + 1e-6)

    @pytest.mark.parametrize("unit", [1, 2])
    @pytest.mark.parametrize("kind", ["features", "intercept", "mixing"])
    @pytest.mark.parametrize("storage", STORAGES)
    @pytest.mark.parametrize("name", QUERIED)
    def test_some_neighbour_moves_it_so_far(self, name: str, storage: str, kind: str, unit: int) -> None:
        """Within 1 % of 2 G k / penalty: rows of one unit at the bound with slopes at the clip that pull apart.

        All other rows are empty, and a large penalty keeps margins so small that slopes stay at the clip.
        """
        loss, n, tau, bound, penalty = QUERIED[name], 5, 0.3, 1.5, 1000.0
        public = PublicFacts(n, 2, 2, loss, None, 9.0, 9.0, LABEL, kind == "intercept", rows_per_unit=unit)
        a = 0.6 if kind == "intercept" else 0.0
        mixing = np.array([[1.0], [-2.0]]) if kind == "mixing" else None
        centre = np.zeros(1 if kind == "mixing" else 2 + (a > 0))
        query = to_teacher(Minimiser(np.arange(2), tau, bound, penalty, centre, a, mixing, output=1))
        one = np.arange(n) < unit
        X = np.where(one[:, None], [3.0, 7.0], 0.0)
        labels = {"one vs rest": (1.0, 0.0), "poisson": (LABEL, 0.0), "squared": (LABEL, -LABEL)}
        # With a constant column only rows that do not count are empty.
        answers = [
            taught(query, Rows(STORAGES[storage](X), np.where(one, label, 1.0), one), public)
            for label in labels.get(name, (1.0, -1.0))
        ]
        moved = float(np.linalg.norm(answers[0] - answers[1]))
        declared = query.sensitivity(public).l2
        assert declared == pytest.approx(2 * tau * bound * unit / penalty, rel=1e-5)
        assert 0.99 * declared <= moved <= declared * ROUNDING

    @pytest.mark.parametrize("far", [1e8, 1e12, 1e14])
    @pytest.mark.parametrize("itself", [False, True])
    def test_the_certificate_holds_at_a_centre_far_away(self, far: float, itself: bool) -> None:
        """Where a point is itself rounded, the tolerance says so, and with it the noise that hides the rest."""
        rng, n, d = np.random.default_rng(2), 300, 4
        public = PublicFacts(n, d, d, Squared(), None, 1.0, 1.0, LABEL, False)
        query = Minimiser(np.arange(d), 0.5, 1.0, 3.0, np.full(d, far), itself=itself)
        objective = query.evaluate(Rows(rng.uniform(-0.5, 0.5, (n, d)), rng.choice([-1.0, 1.0], n)), public)
        for linear_term in (np.zeros(d), rng.normal(size=d) * 100):
            theta = objective.minimise(linear_term)
            length = np.linalg.norm(gradient_of(objective, theta) + linear_term)
            assert length <= objective.tolerance * (1 + 1e-6)

    @pytest.mark.parametrize("penalty", [0.05, 1.0])
    def test_so_far_among_rows_that_are_not_empty(self, penalty: float) -> None:
        """The other rows' slopes are all cut and of both signs, so that they have no curvature where it moves."""
        n, tau = 401, 0.01
        public = PublicFacts(n, 1, 1, Squared(), None, 1.0, 1.0, LABEL, False)
        query = to_teacher(Minimiser(np.arange(1), tau, 1.0, penalty, np.zeros(1)))
        rest = np.where(np.arange(n - 1) % 2, LABEL, -LABEL)
        answers = [taught(query, Rows(np.ones((n, 1)), np.r_[rest, y]), public) for y in (LABEL, -LABEL)]
        moved = float(np.linalg.norm(answers[0] - answers[1]))
        assert 0.99 * query.sensitivity(public).l2 <= moved <= query.sensitivity(public).l2 * ROUNDING

    def test_the_tolerance_does_not_look_at_rows(self) -> None:
        """It is a function of public facts: a millionth of what a unit can do, or what rounding asks for."""
        public = PublicFacts(1000, 4, 2, Logistic(), None, 3.0, 3.0, 1.0, False, rows_per_unit=3)
        query = to_teacher(Minimiser(np.arange(4), 0.3, 2.0, 5.0, np.zeros(4)))
        assert query._tolerance(public) == pytest.approx(1e-6 * 2 * 0.3 * 2.0 * 3)
        assert query.sensitivity(public).l2 == pytest.approx((1 + 2.5e-6) * 2 * 0.3 * 2.0 * 3 / 5.0)
        many = replace(public, n_rows=10**9)
        assert query._tolerance(many) > query._tolerance(public)
        assert query.sensitivity(many).l2 > query.sensitivity(public).l2

    @pytest.mark.parametrize("name", QUERIED)
    def test_dense_and_csr_rows_have_one_teacher(self, name: str) -> None:
        rng = np.random.default_rng(1)
        loss = QUERIED[name]
        X = rng.normal(size=(60, 6)) * (rng.random((60, 6)) < 0.5)
        y = rng.integers(0, 3, 60).astype(float) if loss.n_outputs > 1 else rng.choice([-1.0, 1.0], 60)
        public = PublicFacts(60, 6, 6, loss, None, 2.0, 2.0, LABEL, True)
        query = to_teacher(Minimiser(np.array([0, 1, 3, 5]), 0.6, 1.0, 2.0, np.zeros(5), 0.4, output=1))
        found = [taught(query, Rows(storage(X), y), public) for storage in STORAGES.values()]
        np.testing.assert_allclose(*found, atol=2.5 * query._tolerance(public) / 2.0)
        assert np.linalg.norm(found[0]) > 0.05

    @pytest.mark.parametrize(("factor", "accepted"), FACTORS)
    @pytest.mark.parametrize("seed", [0, 1])
    def test_its_noise_is_what_its_sensitivity_asks_for(self, factor: float, accepted: bool, seed: int) -> None:
        """Through the curator, N(0, (noise × 2 G / penalty)²) on each of 20,000 coordinates."""
        d, penalty, tau, bound = 20_000, 7.0, 0.4, 1.5
        public = PublicFacts(4, d, d, Logistic(), None, bound, 1.0, 1.0, False)
        plan = Plan((Release("teacher", Gaussian(NoisePerSensitivity(factor * NOISE)), 1),))
        curator = Curator(Rows(np.zeros((4, d)), np.ones(4)), public, plan, keyed_generator(seed))
        theta = curator.ask("teacher", to_teacher(Minimiser(np.arange(d), tau, bound, penalty, np.zeros(d))))
        curator.settle()
        assert theta.shape == (d, 1)
        scale = NOISE * 2 * tau * bound / penalty
        assert is_normal(theta[:, 0], scale) is accepted

    @pytest.mark.parametrize("loss", [Softmax(3), type("Own", (Logistic,), {})()], ids=["softmax", "own"])
    def test_losses_that_are_not_known_to_be_convex_are_refused(self, loss: Loss) -> None:
        public = PublicFacts(4, 2, 2, loss, None, 1.0, 1.0, 1.0, False)
        query = to_teacher(Minimiser(np.arange(2), 0.5, 1.0, 1.0, np.zeros(2)))
        with pytest.raises(ValueError, match="known to be convex"):
            query.evaluate(Rows(np.ones((4, 2)), np.ones(4)), public)


class TestSecondMoments:
    @staticmethod
    def features_of(d: int) -> Iterator[np.ndarray]:
        yield np.arange(d)
        yield np.arange(0, d, 2)

    @settings(max_examples=50)
    @pytest.mark.parametrize("storage", STORAGES)
    @given(data=st.data())
    def test_no_neighbour_moves_them_further(self, storage: str, data: st.DataObject) -> None:
        pair = data.draw(neighbours(Squared(), storage))
        a, row_bound = data.draw(st.sampled_from([(0.0, 1.0), (0.5, 1.0), (4.0, 2.0)]))
        unit = data.draw(st.sampled_from([0.3, 1.0, 5.0]))
        for features in self.features_of(pair.public.n_features):
            query = SecondMoments(features, row_bound, a, unit)
            with np.errstate(all="ignore"):
                answers = [np.nan_to_num(query.evaluate(rows, pair.public)) for rows in (pair.one, pair.other)]
            moved = np.linalg.norm(answers[0] - answers[1])
            assert moved <= query.sensitivity(pair.public).l2 * ROUNDING
            assert np.linalg.norm(answers[0]) <= query.size(pair.public) * ROUNDING

    def test_a_target_that_is_not_a_number_moves_them_no_further_than_another(self) -> None:
        public = PublicFacts(10, 1, 1, Squared(), None, 1.0, 1.0, LABEL, False)
        query = SecondMoments(np.arange(1), 1.0)
        targets = np.full(10, LABEL)
        other = np.where(np.arange(10) == 0, math.nan, targets)
        answers = [np.nan_to_num(query.evaluate(Rows(np.ones((10, 1)), y), public)) for y in (targets, other)]
        assert np.linalg.norm(answers[0] - answers[1]) <= query.sensitivity(public).l2 * ROUNDING

    @pytest.mark.parametrize("rows_per_unit", [1, 3])
    def test_some_neighbour_moves_them_so_far(self, rows_per_unit: int) -> None:
        """Orthogonal rows at the bound with targets small beside them: within 1 % of sqrt(2) R² k / n."""
        n = 10
        public = PublicFacts(n, 2, 2, Squared(), None, 1.0, 1.0, 1.0, False, rows_per_unit=rows_per_unit)
        query = SecondMoments(np.arange(2), 3.0, 0.0, 0.1)
        X = np.zeros((n, 2))
        other = X.copy()
        X[:rows_per_unit, 0] = 7.0
        other[:rows_per_unit, 1] = 7.0
        with np.errstate(divide="ignore"):
            answers = [query.evaluate(Rows(rows, np.zeros(n)), public) for rows in (X, other)]
        moved = float(np.linalg.norm(answers[0] - answers[1]))
        declared = query.sensitivity(public).l2
        assert declared == pytest.approx(math.sqrt(2) * (9.0 + 0.01) * rows_per_unit / n)
        assert 0.99 * declared <= moved <= declared * ROUNDING

    def test_targets_count_in_the_bound(self) -> None:
        """A row and target at their bounds against the same with the target flipped: the off-diagonal moves."""
        public = PublicFacts(1, 1, 1, Squared(), None, 1.0, 1.0, LABEL, False)
        query = SecondMoments(np.arange(1), 2.0, 0.0, 1.0)
        answers = [query.evaluate(Rows(np.array([[5.0]]), np.array([y])), public) for y in (9.0, -9.0)]
        moved = float(np.linalg.norm(answers[0] - answers[1]))
        assert moved == pytest.approx(math.sqrt(2) * 2 * 4.0)
        assert moved == pytest.approx(query.sensitivity(public).l2)

    @pytest.mark.parametrize("a", [0.0, 0.5])
    def test_the_matrix_behind_an_answer(self, a: float) -> None:
        rng = np.random.default_rng(0)
        X, y = rng.normal(size=(30, 4)), rng.normal(size=30)
        public = PublicFacts(30, 4, 4, Squared(), None, 9.0, 9.0, 9.0, a > 0)
        query = SecondMoments(np.array([0, 3]), 50.0, a, 2.0)
        v = np.hstack([X[:, [0, 3]], *([np.full((30, 1), a)] if a else []), 2 * y[:, None]])
        expected = v.T @ v / 30
        for storage in STORAGES.values():
            answer = query.evaluate(Rows(storage(X), y), public)
            np.testing.assert_allclose(query.as_matrix(answer), expected, rtol=1e-12, atol=1e-14)
            assert np.linalg.norm(answer) == pytest.approx(np.linalg.norm(expected))

    @given(st.integers(1, 5), st.booleans(), st.integers(0, 99))
    def test_flattening_and_back(self, d: int, intercept: bool, seed: int) -> None:
        query = SecondMoments(np.arange(d), 1.0, 0.5 * intercept)
        size = d + intercept + 1
        answer = np.random.default_rng(seed).normal(size=(size * (size + 1) // 2, 1))
        matrix = query.as_matrix(answer)
        np.testing.assert_array_equal(matrix, matrix.T)
        upper = matrix[np.triu_indices(size)]
        weights = np.where(np.equal(*np.triu_indices(size)), 1.0, math.sqrt(2))
        np.testing.assert_allclose(upper * weights, answer[:, 0])
        assert np.linalg.norm(matrix) == pytest.approx(np.linalg.norm(answer))


class TestPassedOver:
    def test_features_that_are_passed_over_are_never_chosen(self) -> None:
        """Whatever the rows and the noise say; and the scores of the others stay as they are."""
        rng = np.random.default_rng(0)
        X, y = 1e3 * rng.normal(size=(20, 6)), rng.normal(size=20)
        public = PublicFacts(20, 6, 2, Squared(), None, 1e9, 1e9, 9.0, False)
        step = Step(ClippedGradient(np.zeros((6, 1)), 1.0, "linf"), 1.0)
        over = np.array([[True], [False], [True], [False], [False], [False]])
        plain, passed = (Magnitudes(step, m).evaluate(Rows(X, y), public) for m in (None, over))
        np.testing.assert_array_equal(plain[~over], passed[~over])
        assert Magnitudes(step, over).sensitivity(public) == Magnitudes(step).sensitivity(public)
        for seed in range(50):
            chosen = TopK(NoisePerSensitivity(100.0), 4).release(
                passed, Magnitudes(step, over).sensitivity(public), keyed_generator(seed), None
            )
            assert not np.any(chosen & over)

    def test_it_moves_nothing(self) -> None:
        public = PublicFacts(3, 2, 1, Squared(), None, 1.0, 1.0, 1.0, False)
        query = Magnitudes(Step(ClippedGradient(np.zeros((2, 1)), 1.0, "linf"), 1.0), np.array([[True], [False]]))
        answers = [query.evaluate(Rows(np.ones((3, 2)), y), public) for y in (np.ones(3), np.array([-1.0, 1.0, 1.0]))]
        moved = np.abs(answers[0] - answers[1])
        assert moved[0, 0] == 0
        assert 0 < moved[1, 0] <= query.sensitivity(public).linf * ROUNDING


# --- losses ----------------------------------------------------------------------------------------------------------

CERTIFIED: dict[str, Loss] = {
    "squared": Squared(),
    "huber": Huber(0.7),
    "poisson": Poisson(3.0),
    "logistic": Logistic(),
    "squared hinge": SquaredHinge(),
}


def targets_of(loss: Loss) -> list[float]:
    if loss.kind == "classification":
        return [-1.0, 1.0]
    return [0.0, 0.4, LABEL] if isinstance(loss, Poisson) else [-LABEL, 0.0, 0.4, LABEL]


class TestLosses:
    @pytest.mark.parametrize("tau", [1e-3, 0.01, 0.2, 0.49, 0.5, 0.9, 3.0, math.inf])
    @pytest.mark.parametrize("name", CERTIFIED)
    def test_curvature_within_bounds_the_cut_loss(self, name: str, tau: float) -> None:
        """By difference quotients of the cut slope: no larger anywhere, convex, and met where the loss allows it."""
        loss = CERTIFIED[name]
        margins = np.concatenate([np.linspace(-12, 12, 200_001), np.linspace(-1, 1, 20_001)])
        largest = 0.0
        width = 1e-6
        for y in targets_of(loss):
            rise = cut_slope(loss, tau, margins + width, y) - cut_slope(loss, tau, margins - width, y)
            assert rise.min() >= -1e-12
            largest = max(largest, float(rise.max()) / (2 * width))
            assert second_derivative(loss, tau, margins, y).max() <= loss.curvature_within(tau, LABEL) * (1 + 1e-12)
        stated = loss.curvature_within(tau, LABEL)
        assert largest <= stated * (1 + 1e-4) + 1e-8
        assert stated <= loss.curvature
        assert largest >= 0.9 * stated

    @pytest.mark.parametrize("name", CERTIFIED)
    def test_slopes_never_fall(self, name: str) -> None:
        """Convexity, which clipping cannot enforce: what `PublicFacts.convex_loss` certifies."""
        loss = CERTIFIED[name]
        margins = np.sort(np.random.default_rng(0).normal(size=4000) * 20)
        for y in targets_of(loss):
            assert np.all(np.diff(cut_slope(loss, math.inf, margins, y)) >= -1e-12)

    @pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.8])
    def test_the_constant_margin_minimises_the_constant_model(self, share: float) -> None:
        """From the mean slope at margin 0 alone."""
        n = 1000
        signs = np.where(np.arange(n) < share * n, 1.0, -1.0)
        counts = np.where(np.arange(n) < share * n, 5.0, 1.0)
        numbers = 2 * share + np.random.default_rng(0).uniform(-0.3, 0.3, n)
        cases: list[tuple[Loss, np.ndarray]] = [
            (Logistic(), signs),
            (SquaredHinge(), signs),
            (Squared(), numbers),
            (Poisson(), counts),
        ]
        for loss, y in cases:
            mean_slope = float(loss.slope(np.zeros((n, 1)), y).mean())

            def mean_value(margin: float, loss: Loss = loss, y: np.ndarray = y) -> float:
                return float(loss.value(np.full((n, 1), margin), y).mean())

            best = minimize_scalar(mean_value, bounds=(-8, 8), method="bounded", options={"xatol": 1e-9})
            assert loss.constant_margin(mean_slope) == pytest.approx(float(best.x), abs=1e-4), loss

    @pytest.mark.parametrize("noisy", [-50.0, -0.6, 0.6, 50.0])
    def test_the_constant_margin_is_finite_whatever_the_noise_makes_of_the_slope(self, noisy: float) -> None:
        for loss in CERTIFIED.values():
            assert math.isfinite(loss.constant_margin(noisy))

    @pytest.mark.parametrize("name", CERTIFIED)
    def test_one_sided_where_no_slope_has_the_targets_sign(self, name: str) -> None:
        loss = CERTIFIED[name]
        margins = np.linspace(-20, 20, 4001)
        never = all(np.all(cut_slope(loss, math.inf, margins, y) * y <= 0) for y in targets_of(loss) if y)
        assert loss.one_sided is never
        assert loss.one_sided is (loss.kind == "classification")

    @pytest.mark.parametrize("name", CERTIFIED)
    def test_the_scale_of_margins_is_that_of_the_labels(self, name: str) -> None:
        loss = CERTIFIED[name]
        expected = 5.0 if name in ("squared", "huber") else 1.0
        assert loss.margin_scale(5.0) == expected

    def test_only_losses_of_its_own_are_certified(self) -> None:
        class Steeper(Squared):
            def slope(self, margins: np.ndarray, targets: np.ndarray) -> np.ndarray:
                return 10 * (margins - targets[:, None])

        def convex(loss: Loss) -> ConvexLoss | None:
            return PublicFacts(4, 2, 2, loss, None, 1.0, 1.0, 1.0, False).convex_loss

        for loss in CERTIFIED.values():
            assert convex(loss) is not None
            if loss.kind == "classification":
                assert convex(OneVsRest(loss, 3)) == convex(loss)
        for other in (Steeper(), type("Own", (Logistic,), {})(), Softmax(3), OneVsRest(Steeper(), 3)):
            assert convex(other) is None
        assert convex(type("OwnRest", (OneVsRest,), {})(Logistic(), 3)) is None

    @pytest.mark.parametrize("name", CERTIFIED)
    def test_a_loss_has_the_slope_of_its_convex_part(self, name: str) -> None:
        loss = CERTIFIED[name]
        assert loss.convex is not None
        margins = np.linspace(-20, 20, 401)
        for y in targets_of(loss):
            assert np.array_equal(cut_slope(loss, 0.7, margins, y), cut_slope(loss.convex, 0.7, margins, y))
        assert loss.convex.one_sided is loss.one_sided

    @pytest.mark.parametrize("strange", [-1.0, 0.0, math.inf, math.nan])
    def test_no_parameter_makes_a_slope_fall(self, strange: float) -> None:
        """The trusted losses do not check their parameters: slopes rise with all of them, no faster than is said."""
        margins = np.linspace(-3, 3, 2001)
        for loss in (ConvexHuber(strange), ConvexPoisson(strange)):
            slopes = np.nan_to_num(cut_slope(loss, 2.0, margins, 0.4), nan=0.0)
            rise = np.diff(slopes) / np.diff(margins)
            assert rise.min() >= 0.0
            assert rise.max() <= loss.curvature_within(2.0, LABEL) * (1 + 1e-9)
