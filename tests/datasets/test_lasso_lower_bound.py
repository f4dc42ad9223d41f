"""The instance of the private LASSO's lower bound: what it is, and that no private fit does what none can do.

With w coded rows of equal signs z and k orthogonal ones the sum of squared errors is w (<z, v> - 1)² + k |v|². Say that
v succeeds if this is at most w / 4; then <z, v> >= 1/2 and |v|² <= w / (4 k). For v that does not depend on z, whose
signs are random, the chance of that is at most exp(-1/4 / (2 |v|²)) <= exp(-k / (2 w)) (Hoeffding). Fits of two codes
differ in w rows, so by group privacy an (ε, δ)-private fit succeeds with a chance of at most
exp(w ε - k / (2 w)) + δ (exp(w ε) - 1) / (exp(ε) - 1). That is elementary, and holds while w ε is small; fingerprinting
codes are for larger w.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tulle import Bounds, SparseRegressor
from tulle.datasets import lasso_lower_bound
from tulle.methods import FrankWolfe

W, P, K = 8, 256, 256
EPSILON, DELTA = 0.1, 1e-6
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def squared_errors(X: Any, y: Any, weights: Any) -> float:
    return float(((X @ weights - y) ** 2).sum())


def error_of(epsilon: float | None, seed: int, n_iter: int | None) -> float:
    X, y, _ = lasso_lower_bound(W, P, orthogonal=K, consensus=1.0, seed=seed)
    method = FrankWolfe(radius=1.0, n_iter=n_iter, noise="selection", clip=2.0)  # no slope in the ball is larger
    bounds = Bounds(row_linf=1.0, label=1.0)
    model = SparseRegressor(
        epsilon, None if epsilon is None else DELTA, n_nonzero=P, method=method, bounds=bounds, fit_intercept=False,
        random_state=seed,
    ).fit(X, y)  # fmt: skip
    assert np.abs(model.coef_).sum() <= 1 + 1e-9
    return squared_errors(X, y, model.coef_)


def test_what_it_is() -> None:
    """Signs everywhere, orthogonal columns, and the error of any weights in closed form."""
    X, y, weights = lasso_lower_bound(20, 100, consensus=0.9, seed=1)
    assert X.shape == (148, 100)
    assert set(np.unique(X)) == {-1.0, 1.0}
    assert y.sum() == 20
    np.testing.assert_array_equal(X[20:].T @ X[20:], 128 * np.eye(100))
    agreeing = np.abs(X[:20].sum(axis=0)) == 20
    assert 90 <= agreeing.sum() < 100
    shared = np.flatnonzero(agreeing & (X[0] == np.sign(weights)))
    assert len(shared) >= 90
    any_weights = np.random.default_rng(0).standard_normal(100)
    expected = ((X[:20] @ any_weights - 1) ** 2).sum() + 128 * (any_weights**2).sum()
    assert squared_errors(X, y, any_weights) == pytest.approx(expected)
    # Of the weights that know the code: at most w (2 τ)² + k / p, τ the share of other columns.
    assert np.abs(weights).sum() == pytest.approx(1.0)
    assert squared_errors(X, y, weights) <= 20 * (2 * 0.1) ** 2 + 128 / 100 + 1e-9
    assert len(lasso_lower_bound(3, 1000, seed=0).X) == 3 + 1024
    assert len(lasso_lower_bound(5000, 3, seed=0).X) == 5000 + 16


@pytest.mark.parametrize(
    "wrong", [{"coded": 0}, {"columns": 0}, {"consensus": 1.1}, {"orthogonal": 96}, {"orthogonal": 64}]
)
def test_what_is_refused(wrong: dict[str, Any]) -> None:
    settings = {"coded": 5, "columns": 90, "orthogonal": 128, "consensus": 0.9} | wrong
    with pytest.raises(ValueError, match=r"lasso_lower_bound|power of two"):
        lasso_lower_bound(settings.pop("coded"), settings.pop("columns"), **settings)


def test_no_private_fit_succeeds_and_the_one_without_privacy_does() -> None:
    """Four private fits; a false alarm has a chance of at most 5e-5, by the bound above."""
    chance = math.exp(W * EPSILON - K / (2 * W)) + DELTA * math.expm1(W * EPSILON) / math.expm1(EPSILON)
    assert 4 * chance < 5e-5
    for seed in range(3):
        assert error_of(EPSILON, seed, None) > W / 4
    assert error_of(EPSILON, 0, 400) > W / 4
    assert error_of(None, 0, 400) <= W / 4


def test_a_fit_with_next_to_no_noise_succeeds() -> None:
    """So the test above finds noise that is far too small."""
    assert error_of(1e6, 0, 400) <= W / 4
