"""What is taken off noisy matrices, and what is said to be left, against exact ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tulle.inference.noisy_matrices import denoise, estimate_spread


def noise(p: int, scale: float, rng: Any) -> Any:
    upper = np.triu(rng.standard_normal((p, p)), 1) * scale / np.sqrt(2)
    return upper + upper.T + np.diag(rng.standard_normal(p) * scale)


def exact(kind: str, p: int) -> Any:
    if kind == "diagonal":
        return np.diag(np.linspace(60, 100, p))
    means = np.append(np.full(p - 1, 0.5), 1.0)  # features that are not centred, and a constant
    return np.diag(np.append(np.full(p - 1, 50.0), 0.0)) + 300 * np.outer(means, means)


@pytest.mark.parametrize("kind", ["diagonal", "means"])
def test_less_is_left_than_there_was(kind: str) -> None:
    """A mean over 100 draws of 66 entries: the ratio is known to a few per cent, and asked to be below 0.6."""
    rng, p, scale = np.random.default_rng(0), 12, 15.0
    true = exact(kind, p)
    before, after = [], []
    for _ in range(100):
        noisy = true + noise(p, scale, rng)
        off = ~np.eye(p, dtype=bool)
        off[-1] = off[:, -1] = False
        before.append(((noisy - true) ** 2)[off].mean())
        after.append(((denoise(noisy, scale, True).matrix - true) ** 2)[off].mean())
    assert np.mean(after) < 0.6 * np.mean(before)


@pytest.mark.parametrize("kind", ["diagonal", "means"])
def test_errors_along_a_vector_are_as_large_as_is_said(kind: str) -> None:
    """The mean square of (matrix - exact) v over 300 draws, as a share of what is said: at most a third above
    it, and at least half, since errors of means and of entries are counted one by one. v has mean 0."""
    rng, p, scale = np.random.default_rng(1), 12, 3.0
    true, errors = exact(kind, p), np.append(np.linspace(0.5, 1, p - 1), 0.7)
    met, said = [], []
    for _ in range(300):
        found = denoise(true + noise(p, scale, rng), scale, True)
        if found.n_floored == 0:
            met.append(((found.matrix - true) @ (errors * rng.standard_normal(p)))[:-1] ** 2)
            said.append(np.diag(found.error_covariance(np.diag(errors**2)))[:-1])
    assert len(met) > 250
    assert 0.5 < np.mean(met) / np.mean(said) < 1.33


def test_the_noise_along_a_vector_has_the_covariance_that_is_said() -> None:
    """Over 20,000 draws an entry of a covariance has an error of at most 1.1 % of the largest: 4 of these."""
    rng, p, scale = np.random.default_rng(2), 3, 2.0
    v = np.array([1.0, -0.5, 2.0])
    drawn = np.array([noise(p, scale, rng) @ v for _ in range(20_000)])
    said = denoise(np.eye(p) * 100, scale, True).noise_covariance(v)
    np.testing.assert_allclose(np.cov(drawn.T), said, atol=0.045 * said.max())


def test_without_noise_nothing_is_changed() -> None:
    matrix = exact("means", 5)
    found = denoise(matrix, 0.0, True)
    np.testing.assert_allclose(found.matrix, matrix, rtol=1e-12)
    np.testing.assert_allclose(found.inverse @ matrix, np.eye(5), atol=1e-9)
    assert found.n_floored == 0
    assert not found.error_covariance(np.eye(5)).any()
    assert not found.noise_covariance(np.ones(5)).any()


def test_hidden_directions_are_counted_and_the_answer_stays_positive() -> None:
    found = denoise(np.diag([100.0, 1.0, -5.0]), 10.0, False)
    assert found.n_floored == 2
    assert np.linalg.eigvalsh(found.matrix)[0] >= 10.0 * (1 - 1e-9)


@pytest.mark.parametrize("scale", [0.0, 5.0, 500.0])
def test_the_spread_of_gradients_is_found(scale: float) -> None:
    """Exact without noise; near a multiple of the curvature where noise hides the rest; never negative."""
    rng, curvature = np.random.default_rng(2), denoise(exact("diagonal", 6), 0.0, False)
    wrong = 2 * curvature.matrix + np.diag([90.0, 0, 0, 0, 0, -40.0])
    found = estimate_spread(wrong + noise(6, scale, rng), scale, curvature, None)
    assert np.linalg.eigvalsh(found.matrix)[0] >= -1e-9
    if scale == 0:
        np.testing.assert_allclose(found.matrix, wrong, rtol=1e-12)
        assert found.factor_error == 0
        assert not found.errors.any()
    ratio = np.sum(found.matrix * curvature.matrix) / np.sum(curvature.matrix**2)
    assert ratio == pytest.approx(2, abs=0.2 + 5 * found.factor_error)


def test_variances_that_differ_are_found_where_noise_is_small_and_doubted_where_it_is_not() -> None:
    """A weight whose variance is four times that of a right model, at noise of 2 % and of 20 times a variance: 200
    draws, means of which are known to 2 % of a variance."""
    rng, curvature = np.random.default_rng(3), denoise(np.eye(5) * 100.0, 0.0, False)
    true = np.diag([400.0, 100, 100, 100, 100])
    for scale, low, high, doubt in ((2.0, 3.8, 4.2, 0.05), (2000.0, 0.0, 30.0, 0.29)):
        met, errors = [], []
        for _ in range(200):
            found = estimate_spread(true + noise(5, scale, rng), scale, curvature, None)
            met.append(found.matrix[0, 0] / 100)
            errors.append((found.errors / np.diag(curvature.inverse @ found.matrix @ curvature.inverse))[1])
        assert low < np.mean(met) < high
        assert (np.median(errors) < doubt) == (scale == 2.0)


def test_a_multiple_that_is_known_beforehand_is_used_where_noise_hides_it() -> None:
    curvature = denoise(exact("diagonal", 4), 0.0, False)
    found = estimate_spread(50 * curvature.matrix, 1e5, curvature, (1.0, 0.1))
    assert 0.9 < np.sum(found.matrix * curvature.matrix) / np.sum(curvature.matrix**2) < 1.5
