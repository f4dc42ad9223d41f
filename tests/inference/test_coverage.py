"""Intervals cover as often as they say, over a few hundred small fits; and statsmodels has the same without noise.

Seeds are fixed. A share of covered weights has a standard deviation of at most sqrt(0.05 × 0.95 / 240) = 0.014 (those
of one fit depend on each other a little): the limits below are more than 3 of these from 0.95.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import statsmodels.api as statsmodels
from interval_fits import LOSSES, draw, model, truth

from tulle import Bounds

# Rows and epsilon at which noise is larger than the sampling error: without it, intervals cover about 70 %.
SETTINGS = {"logistic": (1500, 1.0), "squared": (1500, 1.0), "poisson": (3000, 2.0)}


@pytest.fixture(scope="module")
def fits() -> dict[str, list[tuple[np.ndarray, ...]]]:
    """Of 80 fits of each loss: whether weights are covered, p-values, the part of widths that privacy costs, and errors
    in standard errors."""
    found = {}
    for loss in LOSSES:
        n, epsilon = SETTINGS[loss]
        tables = []
        for seed in range(80):
            X, y = draw(loss, n, seed)
            lines = model(loss, epsilon, random_state=seed).fit(X, y).summary().lines
            inside = [line.low <= true <= line.high for line, true in zip(lines, truth(loss))]
            errors = [(line.estimate - true) / line.standard_error for line, true in zip(lines, truth(loss))]
            others = (np.array([getattr(line, name) for line in lines]) for name in ("p_value", "privacy_share"))
            tables.append((np.array(inside), *others, np.array(errors)))
        found[loss] = tables
    return found


@pytest.mark.parametrize("loss", LOSSES)
def test_intervals_cover(fits: dict, loss: str) -> None:
    covered = np.mean([inside for inside, *_ in fits[loss]])
    assert 0.905 <= covered <= 0.995


@pytest.mark.parametrize("loss", LOSSES)
def test_estimates_are_not_shrunk(fits: dict, loss: str) -> None:
    """The mean error over 80 fits, in standard errors, has a standard deviation of 0.11."""
    errors = np.mean([errors for *_, errors in fits[loss]], axis=0)
    assert np.abs(errors).max() < 0.45


def test_noise_is_a_good_part_of_the_width(fits: dict) -> None:
    """Else the coverage above would say nothing about it."""
    assert all(np.median([share for _, _, share, _ in fits[loss]]) > 0.4 for loss in LOSSES)


def test_p_values_of_no_effect_are_small_as_rarely_as_they_should_be(fits: dict) -> None:
    """240 of them: P(p < 0.05) = 0.05 gives at most 24 (0.1) but for a probability of 5e-4."""
    small = [p_values[2] < 0.05 for loss in LOSSES for _, p_values, *_ in fits[loss]]
    assert len(small) == 240
    assert np.mean(small) <= 0.1


def test_effects_are_found(fits: dict) -> None:
    assert np.mean([p_values[0] < 0.05 for _, p_values, *_ in fits["logistic"]]) > 0.9


def draw_categories(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The indicators of four of five values of two categories, the first of which decides nearly by itself, and ±1."""
    rng = np.random.default_rng((seed, n))
    first, second = rng.integers(0, 5, (2, n))
    X = np.hstack([of[:, None] == np.arange(4) for of in (first, second)]).astype(float)
    log_odds = np.array([-4.1, -1.8, -0.9, -0.2, -0.6])[first] + np.array([0.8, 0.4, 0.0, -0.4, 0.0])[second]
    return X, np.where(rng.random(n) < 1 / (1 + np.exp(-log_odds)), 1.0, -1.0)


@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_every_weight_of_a_category_is_covered(loss: str) -> None:
    """Entries between the features of a category are below the noise of the curvature, and are not 0. Over 100 fits the
    mean error in standard errors has a standard deviation of 0.1, of nine weights; what takes such entries for 0 is off
    by 0.7 (squared), and a straight line for the first weight by 0.8 (logistic)."""
    truth = model(loss, None).fit(*draw_categories(400_000, 99)).inference_.estimates
    bounds = Bounds(row_linf=1.0, label=1.0 if loss == "squared" else None)
    covered, errors = [], []
    for seed in range(100):
        fitted = model(loss, 2.5, bounds=bounds, random_state=seed).fit(*draw_categories(6000, seed))
        found = fitted.inference_
        errors.append((found.estimates - truth) / np.sqrt(np.diag(found.covariance)))
        covered.append([line.low <= true <= line.high for line, true in zip(fitted.summary().lines, truth)])
    assert np.abs(np.mean(errors, axis=0)).max() < 0.45
    # A coverage of 0.95 gives less with a probability of 1e-4; without intervals, as in one fit or two, it is none.
    assert np.mean(covered, axis=0).min() > 0.85


def test_residuals_beyond_the_label_bound_count() -> None:
    """Targets of ±1 of which one in ten is +1: its residual is nearly 2. 80 fits with hardly any noise, four weights: a
    share of 0.95 is below 0.9 with a probability of 1e-4; cut at the bound, residuals give 0.75."""
    covered = []
    for seed in range(80):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-1, 1, (2000, 3))
        y = np.where(rng.random(2000) < 0.1 + 0.05 * X[:, 0], 1.0, -1.0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted = model("squared", 200.0, bounds=Bounds(row_linf=1.0, label=1.0), random_state=seed).fit(X, y)
        covered += [line.low <= t <= line.high for line, t in zip(fitted.summary().lines, (0.1, 0.0, 0.0, -0.8))]
    assert np.mean(covered) > 0.9


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_without_noise_they_are_those_of_statsmodels(loss: str, fit_intercept: bool) -> None:
    """Sandwich standard errors, the ones that need no right model; and its estimates."""
    X, y = draw(loss, 800, 3)
    family = {
        "logistic": statsmodels.families.Binomial(),
        "squared": statsmodels.families.Gaussian(),
        "poisson": statsmodels.families.Poisson(),
    }[loss]
    design = np.column_stack([X, np.ones(len(X))]) if fit_intercept else X
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = statsmodels.GLM(y, design, family=family).fit(tol=1e-12, cov_type="HC0")
    ours = model(loss, None, fit_intercept=fit_intercept).fit(X, y)
    lines = ours.summary().lines
    np.testing.assert_allclose([line.estimate for line in lines], theirs.params, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose([line.standard_error for line in lines], theirs.bse, rtol=1e-4)
    np.testing.assert_allclose([[line.low, line.high] for line in lines], theirs.conf_int(), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose([line.p_value for line in lines], theirs.pvalues, rtol=1e-2, atol=1e-6)
    assert all(line.privacy_share == pytest.approx(0, abs=1e-6) for line in lines)


@pytest.mark.parametrize("loss", LOSSES)
def test_large_budgets_come_close_to_no_noise(loss: str) -> None:
    X, y = draw(loss, 4000, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        private = model(loss, 200.0).fit(X, y).summary().lines
    plain = model(loss, None).fit(X, y).summary().lines
    for line, exact in zip(private, plain):
        assert abs(line.estimate - exact.estimate) < 0.5 * exact.standard_error
        assert line.standard_error == pytest.approx(exact.standard_error, rel=0.15)
