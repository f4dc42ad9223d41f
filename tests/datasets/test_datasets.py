"""Synthetic data has the stated shape, norms and sparsity, and readers of real data say what is missing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from tulle.datasets import data_folder, dp_ight_figure1, load_rcv1_subset, rcv1_like


@pytest.mark.parametrize("logistic", [False, True])
def test_figure_1_data_is_what_the_paper_states(logistic: bool) -> None:
    """Shapes, the ℓ2 bound 2s on rows, s weights in (-1, 1), and targets of the stated kind."""
    X, y, weights = dp_ight_figure1(400, 900, 3, logistic=logistic)
    assert X.shape == (400, 900)
    assert y.shape == (400,)
    assert weights.shape == (900,)
    # 900 entries uniform on (-2, 2) have norm about 35: every row is scaled down to exactly 2 s = 6.
    np.testing.assert_allclose(np.linalg.norm(X, axis=1), 6.0)
    assert np.count_nonzero(weights) == 3
    assert np.abs(weights).max() < 1
    if logistic:
        assert set(np.unique(y)) == {0.0, 1.0}
    else:
        residual = y - X @ weights
        # The variance of 400 residuals around 0.1: a chi-square, outside these limits with probability below 1e-9.
        assert 0.06 < residual.var() < 0.16


def test_figure_1_rows_inside_the_bound_are_left_alone() -> None:
    """Rows are scaled down, never up: with a wide bound the entries stay uniform on (-2, 2)."""
    X = dp_ight_figure1(300, 50, 40).X
    assert 1.98 < np.abs(X).max() <= 2.0
    assert np.linalg.norm(X, axis=1).max() < 80


def test_figure_1_logistic_labels_follow_the_model() -> None:
    """Labels drawn by the logistic model agree with the sign of the margin more often than not."""
    X, y, weights = dp_ight_figure1(2000, 50, 10, logistic=True)
    assert np.mean((X @ weights > 0) == (y == 1)) > 0.6


def test_rcv1_like_has_the_stated_shape_norms_and_sparsity() -> None:
    """CSR rows of norm 1 with at most `per_row` words, labels -1 and +1 in equal parts."""
    X, y = rcv1_like(500, 2000, per_row=30)
    assert sp.issparse(X)
    assert X.format == "csr"
    assert X.shape == (500, 2000)
    np.testing.assert_allclose(np.sqrt(X.multiply(X).sum(axis=1)), 1.0)
    words = np.diff(X.indptr)
    assert 5 < words.min() <= words.max() <= 30
    assert set(np.unique(y)) == {-1.0, 1.0}
    assert abs(y.mean()) < 0.3  # six standard deviations


def test_rcv1_like_flips_the_stated_share_of_labels() -> None:
    """With the same seed only labels differ between noise levels, by about that share."""
    clean, noisy = (rcv1_like(2000, 300, per_row=10, noise=noise) for noise in (0.0, 0.3))
    assert (clean.X != noisy.X).nnz == 0
    assert 0.24 < np.mean(clean.y != noisy.y) < 0.36  # six standard deviations


def test_rcv1_like_can_be_learnt() -> None:
    """The classes differ in their words: a plain class-mean rule is right on most clean labels."""
    X, y = rcv1_like(2000, 1000, per_row=40, noise=0.0)
    direction = X[:1000].T @ y[:1000]
    assert np.mean(np.sign(X[1000:] @ direction) == y[1000:]) > 0.8


@pytest.mark.parametrize("seed", [0, 7])
def test_generators_are_reproducible_and_depend_on_the_seed(seed: int) -> None:
    """The same seed gives the same data, another seed other data."""
    for first, again, other in (
        [dp_ight_figure1(20, 10, 2, seed=s).X for s in (seed, seed, seed + 1)],
        [rcv1_like(20, 50, 5, seed=s).X.toarray() for s in (seed, seed, seed + 1)],
    ):
        np.testing.assert_array_equal(first, again)
        assert not np.array_equal(first, other)


def test_without_a_folder_the_error_says_how_to_name_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither an argument nor the variable: the message names both."""
    monkeypatch.delenv("TULLE_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match=r"set TULLE_DATA or pass folder="):
        data_folder()
    with pytest.raises(FileNotFoundError, match=r"set TULLE_DATA or pass folder="):
        load_rcv1_subset()


def test_the_argument_wins_over_the_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """TULLE_DATA names the folder, and a folder passed in comes first."""
    monkeypatch.setenv("TULLE_DATA", "/somewhere")
    assert data_folder() == Path("/somewhere")
    assert data_folder(tmp_path) == tmp_path


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """A folder without the data set: the error holds the path that was looked for."""
    with pytest.raises(FileNotFoundError, match=r"rcv1_subset\.svm\.bz2"):
        load_rcv1_subset(tmp_path)
