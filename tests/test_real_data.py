"""Accuracy on real data. Reads the folder that the environment variable TULLE_DATA names."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from tulle import Bounds, SparseClassifier
from tulle.datasets import Split, load_rcv1_subset
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


@pytest.mark.parametrize(("epsilon", "largest_error"), [(2.0, 0.095), (8.0, 0.075)])
def test_rcv1_test_error_with_default_settings(rcv1: Split, epsilon: float, largest_error: float) -> None:
    """Hard thresholding as it comes, 1000 words, δ = 1e-5: the mean over 5 seeds beats the issue's threshold."""
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
