"""The gradient of a sparse model on sparse rows, next to the two products of scipy that people write.

Both take margins, clipped slopes and their sum over rows. The weights are on the features of the largest gradients at
zero, which are popular ones: few features, but many entries. "Of the read bandwidth" counts each entry of the rows
once, value and index: 12 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np
from scipy.special import expit
from timing import LARGE, SMALL, Line, n_threads, named, print_lines, ratio, read_seconds, seconds, text_rows

from tulle.methods.loss_functions import Logistic
from tulle.trusted.events import FloatArray
from tulle.trusted.rows import Block, Rows

KEPT, CLIP, ROUNDS = 100, 0.5, 15
TARGETS = {(SMALL, 2): ">= 2.4", (LARGE, 2): ">= 4.5"}


def usual_gradient(X: Any, y: FloatArray, weights: FloatArray) -> FloatArray:
    slopes = np.clip(-y * expit(-y * (X @ weights)), -CLIP, CLIP)
    return np.asarray(X.T @ slopes)


def gradient(block: Block, weights: FloatArray) -> FloatArray:
    slopes = np.clip(Logistic().slope(block.margins(weights, 0.0), block.targets), -CLIP, CLIP)
    return block.gather(slopes)


def sparse_weights(X: Any, y: FloatArray, seed: int) -> FloatArray:
    """Weights of both signs on the features of the largest gradients."""
    weights = np.zeros(X.shape[1])
    largest = np.argsort(-np.abs(X.T @ y))[:KEPT]
    weights[largest] = np.random.default_rng(seed).normal(size=KEPT)
    return weights


def measure() -> Iterator[Line]:
    for shape in (SMALL, LARGE):
        X, y = text_rows(shape)
        block = Rows(X, y).blocks[0]
        both = [sparse_weights(X, y, seed) for seed in (0, 1)]
        usual = partial(usual_gradient, X, y, both[0])
        # Margins of the last weights are remembered: two weights in turn, so that each time they are taken anew.
        weights = cycle(w[:, None] for w in both)
        ours = lambda block=block, weights=weights: gradient(block, next(weights))  # noqa: E731
        np.testing.assert_allclose(gradient(block, both[0][:, None])[:, 0], usual(), rtol=1e-9, atol=1e-9)
        for count in (1, 2):
            with n_threads(count):
                times = ratio(usual, ours, ROUNDS)
            what = f"gradient, {named(shape)}, {KEPT} weights, {count} thread{'s' * (count > 1)}"
            yield f"{what}: scipy's two products, times ours", times, TARGETS.get((shape, count), "(no target)")
        entries = np.ones(3 * X.nnz // 2)  # 12 bytes for each entry of X
        for count in (1, 2):
            shares = []
            for _ in range(ROUNDS):
                with n_threads(count):
                    shares.append(read_seconds(entries, count) / seconds(ours))
            what = f"gradient, {named(shape)}, {count} thread{'s' * (count > 1)}"
            yield f"{what}: of the read bandwidth", float(np.median(shares)), "(no target)"


if __name__ == "__main__":
    print_lines(measure())
