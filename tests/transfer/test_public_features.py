"""Public features: draws have the law that is stated, and rows obey the bounds that private rows obey.

Statistical tests fix their seed; the false-alarm probability, were the seed drawn anew, is stated with each.
"""

from __future__ import annotations

import math
import re
from functools import partial
from typing import Any

import fits
import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import kstest, norm, uniform

from tulle import Bounds, SparseClassifier, SparseRegressor
from tulle.methods import KnowledgeTransfer
from tulle.methods.loss_functions import Logistic, Squared
from tulle.transfer.public_features import (
    FeatureDistribution,
    GaussianFeatures,
    UniformFeatures,
    check_features,
    check_not_private,
    even_directions,
    largest_second_moment,
    leading_directions,
    public_rows,
)

ALPHA = 1e-5
D = 4
# A covariance with a direction of no variance at all.
FACTOR = np.array([[1.0, 0.5, 0.0], [0.0, 2.0, 0.0], [0.3, 0.0, 0.1], [0.0, 0.0, 0.0]])
COVARIANCE = FACTOR @ FACTOR.T
MEAN = np.array([0.0, 3.0, -1.0, 0.5])

LAWS: dict[str, tuple[FeatureDistribution, Any, Any]] = {
    "uniform": (UniformFeatures(), 0.0, np.eye(D) / 3),
    "uniform, off centre": (UniformFeatures(0.5, 2.0), 1.25, np.eye(D) * 1.5**2 / 12),
    "gaussian": (GaussianFeatures(), 0.0, np.eye(D)),
    "one variance": (GaussianFeatures(0.25, 2.0), 2.0, np.eye(D) / 4),
    "a variance for each": (GaussianFeatures([1.0, 4.0, 0.0, 0.5], MEAN), MEAN, np.diag([1.0, 4.0, 0.0, 0.5])),
    "a matrix": (GaussianFeatures(COVARIANCE, MEAN), MEAN, COVARIANCE),
}
facts = partial(fits.facts, n_rows=50, n_features=D, n_nonzero=2, row_l2=math.inf, row_linf=math.inf)

# --- laws ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LAWS)
def test_means_and_covariances_are_those_stated(name: str) -> None:
    """Within 5 standard deviations each (false alarm 2e-5 over all entries), and half or twice of it is not."""
    law, mean, covariance = LAWS[name]
    n = 40_000
    rows = law.draw(n, D, np.random.default_rng(0))
    assert rows.shape == (n, D)
    mean = np.broadcast_to(mean, D)
    variances = np.diag(covariance)
    off = np.abs(rows.mean(axis=0) - mean)
    assert np.all(off <= 5 * np.sqrt(variances / n) + 1e-12)
    # The variance of a product of two features is at most that of Gaussian ones here.
    spread = np.sqrt((np.outer(variances, variances) + covariance**2) / n)
    found = (rows - mean).T @ (rows - mean) / n
    assert np.all(np.abs(found - covariance) <= 5 * spread + 1e-12)
    for factor in (0.5, 2.0):
        assert np.any(np.abs(found - factor * covariance) > 5 * spread + 1e-12)


@pytest.mark.parametrize(("factor", "accepted"), [(1.0, True), (2 / 3, False), (3 / 2, False)])
def test_the_laws_themselves(factor: float, accepted: bool) -> None:
    """Kolmogorov and Smirnov's test (alpha = 1e-5), which rejects 2/3 and 3/2 of the width."""
    generator = np.random.default_rng(1)
    flat = UniformFeatures(-2.0, 2.0).draw(2_000, 5, generator).ravel()
    normal = GaussianFeatures(4.0).draw(2_000, 5, generator).ravel()
    assert bool(kstest(factor * flat, uniform(-2.0, 4.0).cdf).pvalue > ALPHA) is accepted
    assert bool(kstest(factor * normal, norm(scale=2.0).cdf).pvalue > ALPHA) is accepted


@pytest.mark.parametrize("name", LAWS)
def test_the_stretch_is_the_spectral_norm_of_the_second_moment(name: str) -> None:
    """By numpy, of covariance + mean mean'."""
    law, mean, covariance = LAWS[name]
    mean = np.broadcast_to(mean, D)
    assert law.stretch(D) == pytest.approx(np.linalg.norm(covariance + np.outer(mean, mean), 2))
    assert isinstance(law, FeatureDistribution)


@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array], ids=["dense", "csr"])
def test_the_stretch_of_rows_is_that_of_their_mean_square(convert: Any) -> None:
    """|X|² / m in the spectral norm, for rows that are given."""
    rows = np.random.default_rng(0).normal(size=(60, 8)) * np.linspace(3, 1, 8)
    expected = np.linalg.norm(rows, 2) ** 2 / 60
    public = fits.facts(n_features=rows.shape[1], row_l2=math.inf, row_linf=math.inf)
    assert largest_second_moment(convert(rows), public) == pytest.approx(expected, rel=1e-6)
    assert largest_second_moment(UniformFeatures(), public) == pytest.approx(1 / 3)


# --- rows ------------------------------------------------------------------------------------------------------------


def test_a_distribution_gives_as_many_rows_as_are_asked_for_and_the_same_ones_again() -> None:
    """As many as there are private rows if nobody says; from the public seed alone."""
    draw = partial(public_rows, UniformFeatures(), facts())
    assert draw(None, 0).shape == (50, D)
    assert draw(7, 0).shape == (7, D)
    np.testing.assert_array_equal(draw(7, 3), draw(7, 3))
    assert np.all(draw(7, 3) != draw(7, 4))


@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array, sp.csc_array], ids=["dense", "csr", "csc"])
@pytest.mark.parametrize(
    ("row_l2", "row_linf"), [(math.inf, math.inf), (1.5, math.inf), (math.inf, 0.7), (1.5, 0.7)], ids=str
)
@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=["squared", "logistic"])
def test_given_rows_are_clipped_as_private_rows_are(convert: Any, row_l2: float, row_linf: float, loss: Any) -> None:
    """Entries first, then lengths; rows within the bounds stay as they are, and so does what was given."""
    given = np.random.default_rng(0).normal(size=(30, D)) * (np.arange(30 * D).reshape(30, D) % 3 > 0)
    given[0] = 0.0
    before = given.copy()
    rows = public_rows(convert(given), facts(row_l2=row_l2, row_linf=row_linf, loss=loss), None, 0)
    assert sp.issparse(rows) == (convert is not np.asarray)
    found = rows.toarray() if sp.issparse(rows) else rows
    expected = np.clip(given, -row_linf, row_linf)
    lengths = np.linalg.norm(expected, axis=1, keepdims=True)
    expected = expected * np.minimum(1.0, row_l2 / np.maximum(lengths, 1e-300))
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert np.abs(found).max() <= row_linf
    assert np.linalg.norm(found, axis=1).max() <= row_l2
    np.testing.assert_array_equal(given, before)


@pytest.mark.parametrize("features", [UniformFeatures(-3, 3), GaussianFeatures(5.0)], ids=["uniform", "gaussian"])
def test_drawn_rows_are_clipped_too(features: Any) -> None:
    rows = public_rows(features, facts(row_l2=1.2, row_linf=0.7), 200, 0)
    assert np.abs(rows).max() <= 0.7
    assert 1.19 < np.linalg.norm(rows, axis=1).max() <= 1.2


@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array], ids=["dense", "csr"])
def test_rows_are_normalised_where_private_rows_are(convert: Any) -> None:
    """Every row that is not empty has the length row_l2."""
    given = np.random.default_rng(0).normal(size=(30, D)) * np.logspace(-3, 3, 30)[:, None]
    given[4] = 0.0
    rows = public_rows(convert(given), facts(row_l2=2.0, row_linf=2.0, normalised=True), None, 0)
    found = rows.toarray() if sp.issparse(rows) else rows
    lengths = np.linalg.norm(found, axis=1)
    np.testing.assert_allclose(np.delete(lengths, 4), 2.0, rtol=1e-9)
    assert lengths[4] == 0
    np.testing.assert_allclose(found[0] / 2.0, given[0] / np.linalg.norm(given[0]), rtol=1e-9)


# --- directions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize("count", [1, 3, 6])
def test_leading_directions_span_what_the_svd_says(convert: Any, count: int) -> None:
    """Orthogonal, in the span of the first right singular vectors, and half-way to equal variance."""
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(12, 12)))[0]
    rows = rng.normal(size=(300, 12)) @ (basis * 0.5 ** np.arange(12)).T
    directions = leading_directions(convert(rows), count)
    assert directions.shape == (12, count)
    _, values, vectors = np.linalg.svd(rows, full_matrices=False)
    leading = vectors[:count].T
    np.testing.assert_allclose(directions - leading @ (leading.T @ directions), 0.0, atol=2e-2)
    gram = directions.T @ directions
    np.testing.assert_allclose(gram, np.diag(values[0] / values[:count]), rtol=1e-2, atol=1e-2)
    # Rows vary along them as the square root of their singular values.
    np.testing.assert_allclose(
        np.linalg.norm(rows @ directions, axis=0), np.sqrt(values[0] * values[:count]), rtol=1e-2
    )


def test_directions_in_which_rows_do_not_vary_are_left_out() -> None:
    """Rows of rank 2 have two; rows of no variance at all one, which is finite."""
    rows = np.outer(np.arange(9.0), np.ones(6)) + np.outer(np.ones(9), np.arange(6.0))
    for given, rank in ((rows, 2), (np.zeros((9, 6)), 1)):
        directions = leading_directions(given, 5)
        assert directions.shape == (6, rank)
        assert np.all(np.isfinite(directions))


@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize("d", [12, 1200], ids=["moments", "projections"])
def test_directions_hold_the_share_that_is_stated(convert: Any, d: int) -> None:
    """The squared length of the rows' parts in the span of the directions, over that of the rows."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(150, 12)) * 0.7 ** np.arange(12) @ rng.normal(size=(12, d))
    for count in (1, 4, 9):
        directions, held = even_directions(convert(rows), count)
        basis = directions / np.linalg.norm(directions, axis=0)
        np.testing.assert_allclose(basis.T @ basis, np.eye(count), atol=1e-4)
        assert held == pytest.approx(np.square(rows @ basis).sum() / np.square(rows).sum(), rel=1e-3)
        assert 0 < held < 1
    assert even_directions(convert(rows), 12)[1] == pytest.approx(1.0, rel=1e-4)


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: UniformFeatures(1.0, 1.0), "UniformFeatures needs finite low < high, got 1.0 and 1.0"),
        (lambda: UniformFeatures(2.0, 1.0), "UniformFeatures needs finite low < high, got 2.0 and 1.0"),
        (lambda: UniformFeatures(-math.inf, 1.0), "UniformFeatures needs finite low < high, got -inf and 1.0"),
        (lambda: UniformFeatures(math.nan, 1.0), "UniformFeatures needs finite low < high, got nan and 1.0"),
        (lambda: GaussianFeatures(math.nan), "GaussianFeatures needs a finite covariance and a finite mean"),
        (lambda: GaussianFeatures(1.0, math.inf), "GaussianFeatures needs a finite covariance and a finite mean"),
        (lambda: GaussianFeatures(-1.0), "GaussianFeatures(covariance=...) holds a negative variance"),
        (lambda: GaussianFeatures([1.0, -1.0]), "GaussianFeatures(covariance=...) holds a negative variance"),
        (lambda: GaussianFeatures(np.ones((2, 3))), "has shape (2, 3); a matrix must be square"),
        (lambda: GaussianFeatures([[1.0, 0.5], [0.0, 1.0]]), "GaussianFeatures(covariance=...) must be symmetric"),
        (lambda: GaussianFeatures([[1.0, 2.0], [2.0, 1.0]]), "GaussianFeatures(covariance=...) has a negative eigen"),
        (lambda: GaussianFeatures(np.ones((2, 2, 2))), "covariance has shape (2, 2, 2)"),
        (lambda: GaussianFeatures(1.0, np.ones((2, 2))), "mean (2, 2)"),
    ],
)
def test_laws_that_make_no_sense(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        make()


@pytest.mark.parametrize("tiny", [1e-14, 1e-30])
def test_a_matrix_that_is_symmetric_but_for_rounding_is_fine(tiny: float) -> None:
    """A covariance of rank 2, disturbed by less than its rounding: its negative eigenvalues count as 0."""
    disturbed = COVARIANCE + tiny * np.triu(np.ones((D, D)), 1)
    rows = GaussianFeatures(disturbed).draw(10, D, np.random.default_rng(0))
    assert np.all(np.isfinite(rows))


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (np.ones((5, 3)), "the public features have 3 columns, the private rows 4"),
        (sp.csr_array(np.ones((5, 9))), "the public features have 9 columns, the private rows 4"),
        (np.ones((1, D)), "Found array with 1 sample(s)"),
        (np.full((5, D), np.nan), "Input public features contains NaN"),
        (np.full((5, D), np.inf), "Input public features contains infinity"),
        (np.ones(D), "Expected 2D array, got 1D array instead"),
        (GaussianFeatures(np.eye(3)), "GaussianFeatures(covariance=...) is for 3 features, not 4"),
        (GaussianFeatures(1.0, np.ones(5)), "GaussianFeatures(mean=...) is for 5 features, not 4"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_features_that_do_not_fit(features: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        check_features(features, D)


@pytest.mark.parametrize(
    "features", [UniformFeatures(), GaussianFeatures(COVARIANCE), np.ones((5, D)), [[0.0] * D] * 2]
)
def test_features_that_fit(features: Any) -> None:
    check_features(features, D)


@pytest.mark.parametrize("form", ["array", "part", "csr", "integers", "list", "frame"])
def test_private_rows_are_refused_as_public_features(form: str) -> None:
    """The object that is fitted to, or a part of its memory, is no set of public features, whatever it is made of."""
    dense = np.random.default_rng(0).integers(-1, 2, (40, 4)).astype(float)
    forms: dict[str, Any] = {
        "array": lambda: dense,
        "part": lambda: dense,
        "csr": lambda: sp.csr_array(dense),
        "integers": lambda: dense.astype(int),
        "list": dense.tolist,
        "frame": lambda: pytest.importorskip("pandas").DataFrame(dense, columns=list("abcd")),
    }
    X = forms[form]()
    features = X[5:] if form == "part" else X
    method = KnowledgeTransfer(features=features)
    labels = {SparseRegressor: dense[:, 0], SparseClassifier: dense[:, 0] > 0}
    for estimator, y in labels.items():
        model = estimator(1.0, 1e-4, n_nonzero=2, method=method, bounds=Bounds(row_linf=1.0, label=1.0))
        with pytest.raises(ValueError, match="the public features are the private rows"):
            model.fit(X, y)


def test_other_rows_of_the_same_table_are_taken() -> None:
    """Two halves of one array share its memory, and no row."""
    X = np.random.default_rng(0).uniform(-1, 1, (40, 4))
    check_not_private(X[20:], X[:20])
    check_not_private(sp.csr_array(X[20:]), sp.csr_array(X[:20]))
    check_not_private(UniformFeatures(), X)
