"""Sparse models of known features and randomised labels: gradients, penalties and steps are what they say.

Nothing here is random but the data, whose seeds are fixed; where a choice by cross-validation is tested, margins are so
wide that fresh seeds would fail less than once in 10,000.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.integrate import quad
from scipy.special import expit
from sklearn.linear_model import Lasso, LogisticRegression, Ridge

from tulle.local.server_side.noisy_labels import (
    IDENTITY_LINK,
    LOGISTIC_LINK,
    SOFTMAX_LINK,
    TANH_LINK,
    Link,
    NoisyLabels,
    _ridge,
    best_sparsity,
    hard_thresholding,
    lasso,
    link_of,
)
from tulle.local.user_side.responses import RESPONSES, Response

N, D = 60, 7
ARCTAN = Response("arctan", lambda m: 3 * np.arctan(m / 2), lambda m: 1.5 / (1 + m**2 / 4))
STEEPER = Response("logistic", lambda m: expit(5 * m), lambda m: 5 * expit(5 * m) * expit(-5 * m))
LINKS: dict[str, Link] = {
    "identity": IDENTITY_LINK,
    "logistic": LOGISTIC_LINK,
    "softmax": SOFTMAX_LINK,
    "tanh": TANH_LINK,
    "own": link_of(ARCTAN),
}
every_link = pytest.mark.parametrize("name", LINKS)


def some(link: Link, outputs: int = 1, intercept: bool = True, sparse: bool = False, seed: int = 0) -> NoisyLabels:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, D)) * (rng.random((N, D)) < 0.7)
    return NoisyLabels(sp.csr_array(X) if sparse else X, 3 * rng.normal(size=(N, outputs)), link, intercept)


def noisy(n: int, d: int, support: list[int], noise: float, seed: int = 0, scale: float = 1.0) -> NoisyLabels:
    """A linear model of features of variance 1."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return NoisyLabels(
        X, (scale * X[:, support].sum(axis=1) + noise * rng.normal(size=n))[:, None], IDENTITY_LINK, True
    )


# --- losses ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
@pytest.mark.parametrize("intercept", [False, True], ids=["without intercept", "with intercept"])
@every_link
def test_the_gradient_is_that_of_the_loss(name: str, intercept: bool, sparse: bool) -> None:
    """Central differences of the mean loss agree with it to 1e-6, and twice the gradient does not."""
    data = some(LINKS[name], 3 if name == "softmax" else 1, intercept, sparse)
    weights = np.random.default_rng(1).normal(size=data.shape)
    if not intercept:
        weights[-1] = 0.0
    numeric = np.zeros(data.shape)
    for at in np.ndindex(*data.shape):
        if at[0] == D and not intercept:
            continue
        shift = np.zeros(data.shape)
        shift[at] = 1e-5
        numeric[at] = (data.loss(weights + shift) - data.loss(weights - shift)) / 2e-5
    np.testing.assert_allclose(data.gradient(weights), numeric, atol=1e-6)
    assert not np.allclose(2 * data.gradient(weights), numeric, atol=1e-2)


@every_link
def test_the_curvature_is_the_largest_slope(name: str) -> None:
    """No difference quotient of the mean passes it, and some pair of margins comes within a tenth."""
    link, outputs = LINKS[name], 2 if name == "softmax" else 1
    rng = np.random.default_rng(2)
    first = np.vstack([rng.normal(size=(2000, outputs)), np.zeros((1, outputs))])
    step = 1e-4 * (np.array([[1.0, -1.0]]) if outputs == 2 else np.ones((1, 1)))
    quotients = np.linalg.norm(link.mean(first + step) - link.mean(first), axis=1) / np.linalg.norm(step)
    assert quotients.max() <= link.curvature * (1 + 1e-6)
    assert quotients.max() >= 0.9 * link.curvature


@pytest.mark.parametrize("margin", [-6.0, -0.7, 0.0, 0.3, 2.0, 6.0])
def test_a_response_of_ones_own_is_integrated(margin: float) -> None:
    """Its potential is the integral from 0 to the margin, as quad has it; rows with several margins add them up."""
    link = link_of(ARCTAN)
    exact = quad(lambda m: float(ARCTAN.value(np.array(m))), 0, margin)[0]
    assert float(link.potential(np.array([[margin]]))[0]) == pytest.approx(exact, abs=1e-6)
    assert float(link.potential(np.array([[margin, 1.0]]))[0]) == pytest.approx(
        exact + quad(lambda m: float(ARCTAN.value(np.array(m))), 0, 1.0)[0], abs=1e-6
    )


@pytest.mark.parametrize("name", RESPONSES)
def test_named_responses_have_their_own_links(name: str) -> None:
    """The mean of the link is the response's value."""
    margins = np.linspace(-4, 4, 9)[:, None]
    np.testing.assert_allclose(link_of(RESPONSES[name]).mean(margins), RESPONSES[name].value(margins), atol=1e-15)


def test_a_response_of_ones_own_is_not_taken_for_another_of_its_name() -> None:
    """Whatever a response is called, its own function is fitted."""
    margins = np.array([[0.4]])
    assert float(link_of(STEEPER).mean(margins)[0, 0]) == pytest.approx(float(expit(2.0)))


def test_losses_of_unbiased_estimates_are_those_of_labels_on_average() -> None:
    """The loss is linear in the targets, so that noise of mean 0 cancels."""
    data = some(LOGISTIC_LINK)
    noise = np.random.default_rng(3).normal(size=data.targets.shape)
    weights = np.random.default_rng(4).normal(size=data.shape)
    up, down = (NoisyLabels(data.X, data.targets + sign * noise, data.link, True) for sign in (1, -1))
    assert (up.loss(weights) + down.loss(weights)) / 2 == pytest.approx(data.loss(weights), abs=1e-12)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
def test_margins_of_few_weights_are_those_of_all(sparse: bool) -> None:
    """Columns without a weight are skipped, and nothing changes by it."""
    data = some(IDENTITY_LINK, sparse=sparse)
    weights = np.zeros(data.shape)
    weights[[2, -1]] = [[1.5], [0.25]]
    X = data.X.toarray() if sparse else data.X
    np.testing.assert_allclose(data.margins(weights)[:, 0], 1.5 * X[:, 2] + 0.25, atol=1e-13)


@pytest.mark.parametrize("intercept", [False, True])
def test_the_largest_eigenvalue_is_bounded_from_above_and_closely(intercept: bool) -> None:
    """Of the mean of x x', with or without the constant's line: within a quarter, never below."""
    for seed in range(5):
        data = some(IDENTITY_LINK, intercept=intercept, seed=seed)
        rows = np.hstack([data.X, np.ones((N, 1))]) if intercept else data.X
        exact = float(np.linalg.eigvalsh(rows.T @ rows / N)[-1])
        assert exact <= data.largest_eigenvalue <= 1.25 * exact


# --- hard thresholding -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("intercept", [False, True])
def test_without_refit_it_is_the_papers_update(intercept: bool) -> None:
    """w + step/n * sum of (y - <x, w>) x, the largest magnitudes kept: the algorithm with its sign put right."""
    data = some(IDENTITY_LINK, intercept=intercept)
    rows = np.hstack([data.X, np.full((N, 1), float(intercept))])
    weights = np.zeros(D + 1)
    for _ in range(6):
        weights = weights + 0.3 / N * rows.T @ (data.targets[:, 0] - rows @ weights)
        weights[np.argsort(-np.abs(weights[:-1]))[3:]] = 0.0
    found = hard_thresholding(data, 3, n_iter=6, step=0.3, refit=False)
    np.testing.assert_allclose(found[:, 0], weights, atol=1e-12)
    assert np.count_nonzero(found[:-1]) == 3
    assert np.any(found[:-1] != 0)


@pytest.mark.parametrize("name", ["identity", "logistic", "tanh", "own"])
def test_the_first_step_is_the_best_along_the_gradient_for_the_identity_and_none_overshoots(name: str) -> None:
    """One step from zero lowers the loss; for the identity neither 0.9 nor 1.1 of it is lower."""
    data = some(LINKS[name])
    step = hard_thresholding(data, 3, n_iter=1, refit=False)
    assert data.loss(step) < data.loss(np.zeros(data.shape))
    if name == "identity":
        assert data.loss(step) < min(data.loss(0.9 * step), data.loss(1.1 * step))


@pytest.mark.parametrize("noise", [0.1, 5.0, 30.0])
@pytest.mark.parametrize("n_iter", [1, 2, 20])
def test_kept_weights_are_the_ridge_fit_of_their_columns(noise: float, n_iter: int) -> None:
    """However many steps: scikit-learn's Ridge on the support, with the ridge of least GCV error, agrees to 1e-3."""
    data = noisy(300, 12, [1, 4], noise)
    found = hard_thresholding(data, 12, n_iter=n_iter)
    penalty = _ridge(data.X, data.targets, True)
    exact = Ridge(alpha=300 * penalty).fit(data.X, data.targets[:, 0])
    size = float(np.abs(exact.coef_).max())
    np.testing.assert_allclose(found[:-1, 0], exact.coef_, atol=1e-3 * size)
    assert float(found[-1, 0]) == pytest.approx(float(exact.intercept_), abs=2e-3)


@every_link
def test_the_support_is_found_with_exact_labels(name: str) -> None:
    """Targets that are the means of a sparse model lead back to its support, for every link and each output."""
    link, outputs = LINKS[name], 3 if name == "softmax" else 1
    X = np.random.default_rng(5).normal(size=(2000, 30))
    weights = np.zeros((31, outputs))
    weights[[2, 11], 0] = [1.0, -1.0]
    weights[[5, 20], outputs - 1] = [1.0, 1.0]
    data = NoisyLabels(X, link.mean(X @ weights[:-1]), link, True)
    found = hard_thresholding(data, 2 if outputs > 1 else 4, n_iter=20)
    for output in (0, outputs - 1):
        assert set(np.flatnonzero(weights[:-1, output])) <= set(np.flatnonzero(found[:-1, output]))


def test_no_intercept_stays_none() -> None:
    """Neither a step nor a refit nor the LASSO gives one where none is wanted."""
    linear = noisy(200, 5, [1, 2], 0.5)
    data = NoisyLabels(linear.X, linear.targets + 1.0, IDENTITY_LINK, False)
    for found in (hard_thresholding(data, 3), hard_thresholding(data, 3, refit=False), lasso(data), lasso(data, 0.1)):
        assert np.any(found[:-1] != 0)
        assert found[-1, 0] == 0


def test_sparse_rows_give_the_same_weights() -> None:
    """CSR and dense features: IHT and the LASSO agree to 1e-5."""
    for fit in (partial(hard_thresholding, n_nonzero=3), partial(lasso, penalty=0.1)):
        np.testing.assert_allclose(fit(some(IDENTITY_LINK, sparse=True)), fit(some(IDENTITY_LINK)), atol=1e-5)


# --- the ridge -------------------------------------------------------------------------------------------------------


def gcv(X: Any, y: Any, centred: bool, ridges: Any) -> Any:
    """Generalised cross-validation errors by hat matrices."""
    if centred:
        X, y = X - X.mean(axis=0), y - y.mean()
    errors = []
    for ridge in ridges:
        hat = X @ np.linalg.solve(X.T @ X / len(X) + ridge * np.eye(X.shape[1]), X.T) / len(X)
        errors.append(float(np.mean((y - hat @ y) ** 2)) / (1 - np.trace(hat) / len(X)) ** 2)
    return np.array(errors)


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("noise", [0.1, 3.0, 20.0])
def test_the_ridge_has_the_least_cross_validation_error(noise: float, centred: bool) -> None:
    """Of ridges from 1e-6 to 100 largest eigenvalues, by hat matrices: the same one."""
    data = noisy(80, 6, [1, 4], noise)
    X = data.X + 1.0
    ridge = _ridge(X, data.targets, centred)
    moved = X - X.mean(axis=0) if centred else X
    candidates = np.linalg.eigvalsh(moved.T @ moved / len(X))[-1] * np.geomspace(1e-6, 1e2, 33)
    errors = gcv(X, data.targets[:, 0], centred, candidates)
    assert ridge == pytest.approx(candidates[np.argmin(errors)], rel=1e-6)


def test_the_ridge_is_small_for_signal_and_large_for_noise() -> None:
    """Below a thousandth where labels are nearly exact, above 1 where they are noise; none for no columns."""
    X = np.random.default_rng(0).normal(size=(400, 5))
    assert _ridge(X, X[:, :1], True) < 1e-3
    assert np.median([_ridge(X, np.random.default_rng(s).normal(size=(400, 1)), True) for s in range(15)]) > 1
    assert _ridge(X[:, :0], X[:, :1], True) == 0.0
    assert np.isfinite(_ridge(np.zeros((5, 2)), np.ones((5, 1)), True))


# --- how many weights ------------------------------------------------------------------------------------------------


def test_as_many_weights_are_chosen_as_there_are() -> None:
    """Four of fifty: 4 or 8 are chosen; of one: 1 or 2; and never more than the most."""
    assert best_sparsity(noisy(1500, 50, [3, 9, 20, 41], 1.0), 50) in (4, 8)
    assert best_sparsity(noisy(1500, 50, [3], 1.0), 50) in (1, 2)
    assert best_sparsity(noisy(1500, 50, [3, 9, 20, 41], 1.0), 2) == 2


def test_labels_that_are_noise_call_for_few() -> None:
    """In the median of nine data sets at most two of fifty."""
    assert np.median([best_sparsity(noisy(300, 50, [], 1.0, seed), 50) for seed in range(9)]) <= 2


def test_two_users_are_enough_to_choose() -> None:
    """Nobody is held out of fewer than three: one weight."""
    assert best_sparsity(noisy(2, 5, [0], 1.0), 5) == 1


# --- the LASSO -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("penalty", [0.02, 0.2, 1.0])
@pytest.mark.parametrize("intercept", [False, True])
def test_the_lasso_is_scikit_learns(penalty: float, intercept: bool) -> None:
    """Weights and intercept agree to 1e-4 at the same penalty, and not at twice the penalty."""
    linear = noisy(200, 7, [1, 4], 1.0, scale=3.0)
    data = NoisyLabels(linear.X, linear.targets + 1.0, IDENTITY_LINK, intercept)
    found = lasso(data, penalty)
    for factor, equal in ((1, True), (2, False)):
        exact = Lasso(alpha=factor * penalty, fit_intercept=intercept, tol=1e-10, max_iter=100_000)
        exact.fit(data.X, data.targets[:, 0])
        assert np.allclose(found[:-1, 0], exact.coef_, atol=1e-4) is equal
        if equal:
            assert found[-1, 0] == pytest.approx(exact.intercept_, abs=1e-3)


@pytest.mark.parametrize("classes", [2, 3])
def test_the_lasso_of_classes_is_scikit_learns(classes: int) -> None:
    """Logistic regression with an l1 penalty, two classes and three, without intercept: to 2e-3."""
    rng = np.random.default_rng(6)
    X = rng.normal(size=(200, 5))
    codes = np.clip(np.round(X[:, 0] + 0.7 * rng.normal(size=200)) + 1, 0, classes - 1).astype(int)
    targets = (codes[:, None] == np.arange(classes)).astype(float)
    data = NoisyLabels(
        X, targets if classes > 2 else targets[:, 1:], SOFTMAX_LINK if classes > 2 else LOGISTIC_LINK, False
    )
    model = LogisticRegression(
        l1_ratio=1.0, C=1 / (200 * 0.05), solver="saga", fit_intercept=False, tol=1e-7, max_iter=5000
    )
    np.testing.assert_allclose(lasso(data, 0.05)[:-1].T, model.fit(X, codes).coef_, atol=2e-3)


@every_link
def test_no_slope_passes_the_penalty(name: str) -> None:
    """The optimality conditions, for every link: |slope| <= penalty, and equal, with the opposite sign, inside."""
    data = some(LINKS[name], 3 if name == "softmax" else 1, seed=7)
    data = NoisyLabels(data.X, data.link.mean(data.targets / 3), data.link, True)
    penalty = 0.04
    found = lasso(data, penalty, n_iter=5000)
    slope = data.gradient(found)
    inside = found[:-1] != 0
    assert inside.any()
    assert not inside.all()
    assert np.abs(slope[:-1]).max() <= penalty + 1e-3
    np.testing.assert_allclose(slope[:-1][inside], -penalty * np.sign(found[:-1][inside]), atol=1e-3)
    np.testing.assert_allclose(slope[-1], 0.0, atol=1e-3)


def test_the_penalty_is_chosen_for_prediction() -> None:
    """Cross-validation keeps the support and predicts better than the constant; of noise it keeps little."""
    data, fresh = noisy(400, 30, [4, 8], 1.0, seed=1), noisy(2000, 30, [4, 8], 1.0, seed=2)
    found = lasso(data)
    assert {4, 8} <= set(np.flatnonzero(found[:-1, 0]))
    assert np.mean((fresh.targets - fresh.margins(found)) ** 2) < 1.3
    kept = [np.count_nonzero(lasso(noisy(400, 30, [], 1.0, seed=seed))[:-1]) for seed in range(5)]
    assert np.median(kept) <= 6


def test_a_penalty_beyond_the_largest_slope_leaves_the_constant_alone() -> None:
    """All weights are 0, and the intercept is the mean."""
    data = some(IDENTITY_LINK)
    found = lasso(data, 100.0)
    assert not found[:-1].any()
    assert found[-1, 0] == pytest.approx(float(data.targets.mean()), abs=1e-4)
