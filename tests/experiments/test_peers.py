"""Methods of other papers that experiments compare with: their noise, and what they give without it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from tulle.accounting.gaussian_budget import gaussian_mu
from tulle.experiments.peers import PEERS, AdaSSP, BoundedData, IterativeHessianMixing, _sketch_epsilon, sketch_level

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (400, 3))
Y = np.clip(X @ [0.3, -0.2, 0.1] + 0.1 + 0.05 * RNG.standard_normal(400), -1, 1)
DATA = BoundedData.of(X, Y, math.sqrt(3), 1.0)


class Recorded:
    """A generator that draws zeros, and keeps the scale and the size of each draw."""

    def __init__(self) -> None:
        self.drawn: list[tuple[float, int]] = []

    def normal(self, scale: float = 1.0, size: Any = ()) -> Any:
        self.drawn.append((scale, int(np.prod(size))))
        return np.zeros(size) if size != () else 0.0


@pytest.mark.parametrize("name", PEERS)
def test_without_noise_it_is_least_squares(name: str) -> None:
    """At an epsilon that leaves next to no noise; sketches keep the fixed point of Newton's steps."""
    fitted = PEERS[name].fit(DATA, 1e6, 1e-5, np.random.default_rng(0))
    exact = np.linalg.lstsq(np.column_stack([X, np.ones(len(Y))]), Y, rcond=None)[0]
    tolerance = 0.02 if name == "iterative_hessian_mixing" else 1e-3
    np.testing.assert_allclose([*fitted.coef_, fitted.intercept_], exact, atol=tolerance)
    np.testing.assert_allclose(fitted.predict(X[:2]), X[:2] @ fitted.coef_ + fitted.intercept_)


@pytest.mark.parametrize("neighbours", ["replace", "zero-out"])
def test_the_three_scales_of_adassp_cost_mu_together(neighbours: Any) -> None:
    """Sensitivities of neighbouring rows of norm 1, of which pairs come close to the largest."""
    recorded = Recorded()
    AdaSSP(neighbours).fit(DATA, 1.0, 1e-5, recorded)  # type: ignore[arg-type]
    mu, (_, eigenvalue), (moments, _), (sums, _) = gaussian_mu(1.0, 1e-5), *recorded.drawn
    assert (
        eigenvalue == 1
    )  # drawn with scale 1 and multiplied; its sensitivity is 1, so it costs the third that is left
    first, second = np.zeros((2, 4))
    first[0], second[1] = 1.0, 0.0 if neighbours == "zero-out" else 1.0
    change = np.triu(np.outer(first, first) - np.outer(second, second))
    other = first * 1.0 if neighbours == "zero-out" else first * 1.0 - second * -1.0
    largest = 2.0 if neighbours == "replace" else 1.0
    assert np.linalg.norm(other) <= largest
    cost = (np.linalg.norm(change) / moments) ** 2 + (largest / sums) ** 2
    assert cost == pytest.approx(2 / 3 * mu**2, rel=1e-9)


@pytest.mark.parametrize(("level", "order"), [(20.0, 3.0), (200.0, 30.0), (50.0, 1.5)])
def test_the_divergence_of_a_sketch_is_that_of_two_gaussians(level: float, order: float) -> None:
    """One row of a sketch along the direction that changes: variances 1 and 1 - 1 / level, both ways round."""

    def divergence(first: float, second: float) -> float:
        def integrand(x: float) -> float:
            return float(np.exp(order * norm.logpdf(x, scale=first) - (order - 1) * norm.logpdf(x, scale=second)))

        return math.log(quad(integrand, -60, 60, points=[0.0], limit=400)[0]) / (order - 1)

    narrow = math.sqrt(1 - 1 / level)
    formula = (order * math.log1p(-1 / level) - math.log1p(-order / level)) / (2 * (order - 1))
    assert divergence(1.0, narrow) == pytest.approx(formula, rel=1e-6)
    assert divergence(narrow, 1.0) <= formula


@pytest.mark.parametrize("epsilon", [0.25, 1.0, 4.0])
def test_the_level_of_sketches_spends_epsilon_and_no_more(epsilon: float) -> None:
    level = sketch_level(60, 3, epsilon, 1e-5)
    assert 0.999 * epsilon <= _sketch_epsilon(level, 60, 3, 1e-5) <= epsilon
    assert _sketch_epsilon(level * 2 / 3, 60, 3, 1e-5) > 1.2 * epsilon


def test_hessian_mixing_draws_the_noise_of_its_gradients() -> None:
    """Three gradients with the noise of one that costs a third of mu²; sketches in blocks of rows."""
    recorded = Recorded()
    IterativeHessianMixing().fit(DATA, 2.0, 1e-5, recorded)  # type: ignore[arg-type]
    sizes = [size for _, size in recorded.drawn]
    rows = math.ceil(6 * max(4, math.log(120 / 1e-5)))
    assert sizes == [1, *[rows * 400, rows * 4, 4] * 3]


def test_rows_and_targets_are_cut() -> None:
    """One row far outside its bounds changes a fit with next to no noise by as much as one at the bounds."""
    far, near = (np.vstack([X, factor * np.ones((1, 3))]) for factor in (1e6, 1.0))
    fits = [
        AdaSSP().fit(BoundedData.of(rows, np.append(Y, label), math.sqrt(3), 1.0), 1e6, 1e-5, np.random.default_rng(0))
        for rows, label in ((far, 1e9), (near, 1.0))
    ]
    np.testing.assert_allclose(fits[0].coef_, fits[1].coef_)
