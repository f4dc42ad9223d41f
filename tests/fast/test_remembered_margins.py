"""Margins are remembered for the last weights, and only for these."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from tulle.trusted.rows import Block, Rows

D = 40


@pytest.mark.parametrize("storage", [np.asarray, sp.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize("n_weights", [0, 1, 7, D], ids=lambda count: f"{count} weights")
@pytest.mark.parametrize("outputs", [1, 2])
def test_margins_are_those_of_the_weights(storage: Callable[[Any], Any], n_weights: int, outputs: int) -> None:
    """Weights that are moved, swapped between outputs, made zero or changed in place are other weights."""
    rng = np.random.default_rng(n_weights)
    X = rng.standard_normal((20, D))
    (block,) = Rows(storage(X), np.zeros(20)).blocks
    w = np.zeros((D, outputs))
    w[:n_weights] = rng.standard_normal((n_weights, outputs))

    def assert_right(weights: np.ndarray) -> None:
        for _ in range(2):
            np.testing.assert_allclose(block.margins(weights, 0.0), X @ weights, rtol=0, atol=1e-12)

    assert_right(w)
    assert_right(w[::-1])
    assert_right(w[:, ::-1])
    assert_right(2 * w)
    w[3] += 1.0
    assert_right(w)
    w[3, 0] = 0.0
    assert_right(w)


def test_weights_of_another_shape_are_other_weights() -> None:
    """Also where they are the numbers that were kept of the last ones."""
    (block,) = Rows(sp.csr_array(np.eye(D)), np.zeros(D)).blocks
    w = np.zeros((D, 1))
    w[:2, 0] = 1.0, 2.0
    block.margins(w, 0.0)
    assert block._last_margins is not None
    kept = block._last_margins[0]
    assert kept.equal(w.copy())
    assert not kept.equal(np.array([1.0, 2.0]))


def test_they_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the zeros of the weights are negative ones."""
    (block,) = Rows(sp.csr_array(np.eye(D)), np.zeros(D)).blocks
    asked: list[float] = []
    compute = Block.margins

    def count(self: Block, weights: np.ndarray, intercept_value: float) -> np.ndarray:
        asked.append(intercept_value)
        return compute(self, weights, intercept_value)

    monkeypatch.setattr(Block, "margins", count)
    for n_weights in (3, D):
        w = np.zeros((D, 1))
        w[:n_weights] = 1.0
        asked.clear()
        for weights in (w, w.copy(), np.where(w == 0, -0.0, w)):
            block.margins(weights, 0.0)
        assert asked == [0.0]
