"""Accuracy on real data. Reads the folder that the environment variable TULLE_DATA names."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import numpy as np
import pytest

from tulle import Bounds, SparseClassifier, SparseRegressor
from tulle.datasets import (
    Split,
    load_covertype,
    load_golub,
    load_imdb_ratings,
    load_news20,
    load_rcv1_subset,
)
from tulle.methods import HardThresholding

FOLDER = os.environ.get("TULLE_DATA")

pytestmark = pytest.mark.skipif(
    not (FOLDER and (Path(FOLDER) / "rcv1_subset.svm.bz2").exists()),
    reason=f"real data is missing: TULLE_DATA={FOLDER!r} does not name a folder with rcv1_subset.svm.bz2",
)


@pytest.fixture(scope="module")
def rcv1() -> Split:
    return load_rcv1_subset()


def test_the_subset_is_the_one_that_the_figures_speak_of(rcv1: Split) -> None:
    """20,242 training and 3,566 test rows of 47,236 words, norms at most 1 and labels ±1."""
    assert rcv1.X_train.shape == (20_242, 47_236)
    assert rcv1.X_test.shape == (3_566, 47_236)
    assert set(np.unique(rcv1.y_train)) == set(np.unique(rcv1.y_test)) == {-1.0, 1.0}
    norms = np.sqrt(rcv1.X_train.multiply(rcv1.X_train).sum(axis=1))
    assert norms.max() < 1.00001  # the file holds six digits


def test_newsgroups_are_labelled_by_the_beginning_of_their_names() -> None:
    plain, binary = load_news20(), load_news20(positive="comp.")
    for groups, labels in ((plain.y_train, binary.y_train), (plain.y_test, binary.y_test)):
        assert [group.startswith("comp.") for group in groups] == [label == 1.0 for label in labels]
        assert set(labels) == {-1.0, 1.0}
    assert (plain.X_train != binary.X_train).nnz == 0


def test_the_elevation_is_the_first_measurement_of_covertype() -> None:
    """In metres, moved and divided by round numbers; the other columns and the split are the same."""
    plain, elevation = load_covertype(), load_covertype(elevation=True)
    np.testing.assert_array_equal(plain.X_test[:, 1:], elevation.X_test)
    np.testing.assert_allclose(elevation.y_test * 1100 + 2900, plain.X_test[:, 0] * 4000, rtol=1e-12)
    assert np.abs(elevation.y_train).max() < 1.0


@pytest.mark.parametrize(("epsilon", "largest_error"), [(2.0, 0.095), (8.0, 0.075)])
def test_rcv1_test_error_of_hard_thresholding(rcv1: Split, epsilon: float, largest_error: float) -> None:
    """Hard thresholding as it comes, 1000 words, δ = 1e-5: the mean over 5 seeds stays below a threshold."""
    errors = []
    for seed in range(5):
        model = SparseClassifier(
            epsilon,
            1e-5,
            n_nonzero=1000,
            method=HardThresholding(),
            bounds=Bounds(row_l2=1.0),
            random_state=seed,
        ).fit(rcv1.X_train, rcv1.y_train)
        assert len(model.support_) <= 1000
        assert 0.99 * epsilon < model.privacy_.epsilon <= epsilon
        errors.append(1 - model.score(rcv1.X_test, rcv1.y_test))
    assert np.mean(errors) <= largest_error


@pytest.mark.parametrize(
    ("epsilon", "weights", "largest_error"),
    [(1.0, None, 0.066), (2.0, None, 0.056), (1.0, 1000, 0.070), (2.0, 1000, 0.058)],
)
def test_rcv1_test_error_of_the_default_method(
    rcv1: Split, epsilon: float, weights: int | None, largest_error: float
) -> None:
    """All defaults but the row bound, which the file states, δ = 1e-5, with and without a limit on the weights: the
    mean over 5 seeds."""
    errors = []
    for seed in range(5):
        model = SparseClassifier(epsilon, 1e-5, n_nonzero=weights, bounds=Bounds(row_l2=1.0), random_state=seed)
        model.fit(rcv1.X_train, rcv1.y_train)
        assert len(model.support_) <= (weights or 47_236)
        assert 0.99 * epsilon < model.privacy_.epsilon <= epsilon
        errors.append(1 - model.score(rcv1.X_test, rcv1.y_test))
    assert np.mean(errors) <= largest_error


def test_imdb_ratings_with_the_default_method() -> None:
    """1,000 words, δ = 1e-6: test R² of at least 0.38 at ε = 1 and 0.45 at ε = 2, mean of 5 seeds."""
    data = load_imdb_ratings()
    for epsilon, least in ((1.0, 0.38), (2.0, 0.45)):
        models = [
            SparseRegressor(epsilon, 1e-6, n_nonzero=1000, bounds=Bounds(row_l2=1.0, label=1.0), random_state=seed)
            for seed in range(5)
        ]
        scores = [model.fit(data.X_train, data.y_train).score(data.X_test, data.y_test) for model in models]
        assert all(len(model.support_) <= 1000 for model in models)
        assert np.mean(scores) >= least


def test_golub_is_said_to_be_too_small() -> None:
    """48 people and 7,129 genes: the library says beforehand that nothing can be learnt at ε = 1."""
    data = load_golub()
    with pytest.warns(UserWarning, match="no better than guessing"):
        SparseClassifier(1.0, bounds=Bounds(normalise=True), random_state=0).fit(data.X_train, data.y_train)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        without = SparseClassifier(None, bounds=Bounds(normalise=True)).fit(data.X_train, data.y_train)
    assert without.score(data.X_test, data.y_test) > np.mean(data.y_test == 0)  # the null model's
