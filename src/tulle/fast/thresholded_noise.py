"""Gaussian noise on answers that are thresholded at once, drawn where it can pass the threshold.

Vouched for on use: it sees exact answers. `tulle.trusted.mechanisms` draws all noise where `answer_lazily` is not
installed; the law is the same (docs/proofs/lazy_noise.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from tulle.fast.lazy_noise import Background, dense_noisy_largest, noisy_largest
from tulle.fast.sparse_weights import SparseWeights
from tulle.trusted.events import FloatArray
from tulle.trusted.mechanisms import AdditiveNoise, Gaussian, SampledGaussian, from_units

# Where more lines are listed than this, and none is left out, it pays to look for those whose noise can matter.
_MANY_LINES = 16384

# Of answers that are arrays, noise that cannot pass a threshold is left undrawn where there are more lines than this.
_LONG = 200_000


@dataclass(frozen=True, eq=False)
class SparseAnswer:
    """An exact answer of which few lines differ from public values, so that most of its noise need not be drawn.

    Attributes
    ----------
    listed : SparseWeights
        Lines that depend on rows, and any others for convenience.
    background : Background or None
        The public values of all other lines; None for zero.
    """

    listed: SparseWeights
    background: Background | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return self.listed.shape

    def to_dense(self) -> FloatArray:
        if self.background is None:
            return self.listed.to_dense()
        dense = self.background.factor * self.background.means
        dense[self.listed.lines] = self.listed.values
        return dense


@runtime_checkable
class Threshold(Protocol):
    """The attributes of `tulle.methods.thresholds.HardThreshold` that are used here."""

    @property
    def keep(self) -> int: ...

    @property
    def free_from(self) -> int: ...

    @property
    def one_border(self) -> bool:
        """Whether exactly the `keep` largest magnitudes of each column, and all lines from `free_from` on, are kept."""
        ...

    def sparsely(self, weights: SparseWeights) -> SparseWeights: ...


def answer_lazily(
    mechanism: AdditiveNoise, exact: Any, grid: float, scale: float, then: Any, generator: np.random.Generator
) -> Any:
    """What a threshold leaves of exact + noise of a scale, 0 for none; None where all noise is to be drawn.

    Answers with SparseWeights where the exact answer is a `SparseAnswer`, and with an array where it is one.
    """
    if not isinstance(then, Threshold) or not isinstance(mechanism, Gaussian):
        return None
    if isinstance(exact, SparseAnswer):
        if scale == 0 and exact.background is None:
            return then.sparsely(exact.listed)
        is_lazy = not isinstance(mechanism, SampledGaussian) or mechanism.lazy
        if scale == 0 or not (is_lazy and then.one_border):
            return None
        return _largest(exact, grid, scale, then, generator).pruned()
    if scale == 0 or not then.one_border or len(exact) <= _LONG:
        return None
    listed = SparseWeights(np.arange(len(exact)), exact, len(exact))
    return _largest(SparseAnswer(listed), grid, scale, then, generator).to_dense()


def _largest(
    exact: SparseAnswer, grid: float, scale: float, then: Threshold, generator: np.random.Generator
) -> SparseWeights:
    """What a threshold with one border keeps, without drawing all noise."""
    listed, border = exact.listed, (then.keep, then.free_from, generator)
    if len(listed.lines) == listed.n_lines > _MANY_LINES:
        kept = dense_noisy_largest(listed.values, scale, grid, *border)
    else:
        kept = noisy_largest(listed, exact.background, scale, grid, *border)
    return SparseWeights(kept.lines, from_units(kept.values, grid), kept.n_lines)
