"""A threshold with a border for each layer: its shares, its two forms, and that no noise is left undrawn under it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tulle.fast import thresholded_noise
from tulle.fast.sparse_weights import SparseWeights
from tulle.fast.thresholded_noise import SparseAnswer
from tulle.methods.thresholds import HardThreshold, ThresholdByLayer
from tulle.trusted.events import NoisePerSensitivity
from tulle.trusted.mechanisms import Gaussian, SampledGaussian, Sensitivity
from tulle.trusted.sampling import Sampling

LAYERS = st.lists(st.integers(1, 60), min_size=1, max_size=6)


@given(LAYERS, st.integers(0, 400))
def test_the_shares_add_up_and_are_proportional_to_sizes(layers: list[int], more: int) -> None:
    keep = len(layers) + more
    shares = ThresholdByLayer(keep, sum(layers), tuple(layers)).shares
    assert sum(shares) == min(keep, sum(layers))
    for share, size in zip(shares, layers):
        assert 1 <= share <= size
        # Those below one are lifted to one, at the cost of the others.
        assert abs(share - min(keep, sum(layers)) * size / sum(layers)) <= len(layers)


def test_exact_shares_are_kept_and_the_rest_goes_to_the_largest_remainders() -> None:
    assert ThresholdByLayer(10, 100, (50, 30, 20)).shares == (5, 3, 2)
    assert ThresholdByLayer(10, 100, (33, 33, 34)).shares == (3, 3, 4)
    assert ThresholdByLayer(3, 100, (98, 1, 1)).shares == (1, 1, 1)


@given(st.integers(0, 2**32 - 1), LAYERS, st.integers(0, 40), st.integers(0, 3))
def test_each_layer_keeps_its_largest_and_the_sparse_form_agrees(
    seed: int, layers: list[int], more: int, free: int
) -> None:
    lines = sum(layers)
    then = ThresholdByLayer(len(layers) + more, lines, tuple(layers))
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((lines + free, 2)) * (rng.random((lines + free, 1)) < 0.7)
    kept = then(values)
    starts = np.cumsum([0, *layers])
    for share, low, high in zip(then.shares, starts, starts[1:]):
        for column in range(2):
            layer = values[low:high, column]
            ranks = np.argsort(np.argsort(-np.abs(layer), kind="stable"))
            np.testing.assert_array_equal(kept[low:high, column], np.where(ranks < share, layer, 0.0))
    np.testing.assert_array_equal(kept[lines:], values[lines:])
    sparse = then.sparsely(SparseWeights.from_dense(values))
    np.testing.assert_array_equal(sparse.to_dense(), kept)
    assert sparse.values.any(axis=1).all()


def test_one_layer_is_the_ordinary_threshold() -> None:
    values = np.random.default_rng(0).standard_normal((50, 1))
    np.testing.assert_array_equal(ThresholdByLayer(7, 50, (50,))(values), HardThreshold(7, 50)(values))


@pytest.mark.parametrize("layers", [(), (5, 0), (5, 4), (5, 6)])
def test_layers_must_fill_the_lines(layers: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="do not make 10 lines"):
        ThresholdByLayer(10, 10, layers)


def test_fewer_than_one_weight_a_layer_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one of each"):
        ThresholdByLayer(1, 10, (5, 5))


@pytest.mark.parametrize("noise", [0.0, 1.0])
@pytest.mark.parametrize("form", ["all rows", "batch", "sparse batch"])
def test_mechanisms_never_take_one_border_for_all_layers(noise: float, form: str) -> None:
    # The second layer's values are tiny: one border for all would leave nothing of it.
    lines = thresholded_noise._LONG + 2
    exact = np.concatenate([np.full(lines // 2, 1e9), np.full(lines // 2, 1.0)])[:, None]
    exact[: lines // 2] += np.arange(lines // 2)[:, None]
    then = ThresholdByLayer(20, lines, (lines // 2, lines // 2))
    per = NoisePerSensitivity(noise)
    mechanism = Gaussian(per) if form == "all rows" else SampledGaussian(per, Sampling("poisson", 10, 5))
    asked = SparseAnswer(SparseWeights(np.arange(lines), exact, lines)) if form == "sparse batch" else exact
    answer = np.asarray(mechanism.release(asked, Sensitivity(l2=1.0), np.random.default_rng(0), then))
    assert np.count_nonzero(answer[: lines // 2]) == 10
    assert np.count_nonzero(answer[lines // 2 :]) == 10
