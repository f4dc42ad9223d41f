"""Steps without privacy: one gradient a step, sparse weights, and the same iterates as the algorithm written out."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from tulle import SparseClassifier
from tulle.fast.compiled_rows import SparseBlock
from tulle.fast.sparse_weights import SparseWeights
from tulle.methods import HardThresholding, thresholds
from tulle.methods.thresholds import HardThreshold
from tulle.trusted.events import FloatArray

N, D, CLASSES = 150, 40, 4


def _rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D)) * (rng.random((N, D)) < 0.4)
    return X, (X[:, :CLASSES] + 0.3 * rng.normal(size=(N, CLASSES))).argmax(axis=1)


def _written_out(X: np.ndarray, y: np.ndarray, n_iter: int, keep: int, penalty: float) -> np.ndarray:
    """Normalised iterative hard thresholding of the softmax loss, on dense arrays."""
    Z, threshold = np.hstack([X, np.ones((N, 1))]), HardThreshold(keep, D)
    w = np.zeros((D + 1, CLASSES))
    for _ in range(n_iter):
        margins = Z @ w
        p = np.exp(margins - margins.max(axis=1, keepdims=True))
        gradient = Z.T @ (p / p.sum(axis=1, keepdims=True) - np.eye(CLASSES)[y]) / N
        entering = np.where(w != 0, gradient, threshold(gradient))
        staying = np.where(w != 0, gradient, 0.0)
        # The softmax loss is at most half as curved as a square.
        curvature = max(
            0.5 * float(((Z @ v) ** 2).sum() / N / max(float((v**2).sum()), 1e-300)) for v in (entering, staying)
        )
        pull = penalty * np.vstack([w[:-1], np.zeros((1, CLASSES))])  # the intercept is free of the penalty
        w = threshold(w - (gradient + pull) / (curvature + penalty))
    return w


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array, sp.csc_array])
@pytest.mark.parametrize("penalty", [0.0, 0.1])
def test_steps_without_privacy_are_those_of_the_algorithm(kind: type, penalty: float) -> None:
    X, y = _rows()
    method = HardThresholding(n_iter=6, penalty=penalty)
    model = SparseClassifier(None, n_nonzero=5, method=method).fit(kind(X), y)
    expected = _written_out(X, y, 6, 5, penalty)
    np.testing.assert_allclose(model.coef_.T, expected[:-1], atol=1e-10)
    np.testing.assert_allclose(model.intercept_, expected[-1], atol=1e-10)


class OtherSums(SparseBlock):
    """A block whose margins are added up in another way."""

    def _product(self, weights: FloatArray) -> FloatArray:
        return np.asarray(self._csc @ weights) + 1.0


def test_sparse_weights_have_the_margins_of_the_block() -> None:
    """Also where a block adds up margins in its own order, as that of rows at clients: no faster way goes around it."""
    X, y = _rows()
    dense = np.random.default_rng(1).normal(size=(D + 1, CLASSES)) * (np.arange(D + 1) % 3 == 0)[:, None]
    for kind in (SparseBlock, OtherSums):
        block = kind(sp.csr_array(X), y.astype(float), np.ones(N, dtype=bool))
        found = block.margins_at(SparseWeights.from_dense(dense), 0.5)
        np.testing.assert_allclose(found, block.margins(dense, 0.5), atol=1e-12)
        expected = X @ dense[:-1] + 0.5 * dense[-1] + (kind is OtherSums)
        np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("share", [1.0, 0.01])
@pytest.mark.parametrize("keep", [1, 50, 3000])
def test_a_sample_of_lines_changes_nothing_that_is_kept(
    monkeypatch: pytest.MonkeyPatch, share: float, keep: int
) -> None:
    """Also where most entries are zero, so that the sample gives no cut, and where the sample misses all large ones."""
    rng = np.random.default_rng(1)
    values = rng.standard_t(2, size=(20_000, 3)) * (rng.random((20_000, 3)) < share)
    values[::3] *= 1e-3  # the sample takes every third line
    found = HardThreshold(keep, 19_999)(values)
    sparse = HardThreshold(keep, 19_999).to_sparse(values)
    monkeypatch.setattr(thresholds, "_SAMPLED_LINES", len(values))
    np.testing.assert_array_equal(found, HardThreshold(keep, 19_999)(values))
    np.testing.assert_array_equal(sparse.to_dense(), found)
    assert np.count_nonzero(found[:-1], axis=0).tolist() == [
        min(keep, count) for count in np.count_nonzero(values[:-1], axis=0)
    ]
