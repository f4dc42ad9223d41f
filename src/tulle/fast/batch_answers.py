"""Sums over batches of sparse rows, and steps from them, that list few lines: the hooks "margins" and "batches".

The same sums as those of `tulle.trusted.clipped_sum.ClippedSum`: docs/proofs/stochastic_hard_thresholding.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tulle.fast.coordinate_path import PathPoint
from tulle.fast.fast_block import FastBlock
from tulle.fast.lazy_noise import Background
from tulle.fast.sparse_weights import SparseWeights
from tulle.fast.thresholded_noise import SparseAnswer
from tulle.trusted.events import FloatArray
from tulle.trusted.rows import Block


@dataclass(frozen=True, eq=False)
class BatchStart:
    """What a step on a batch starts from: few lines that are listed, and a public background for all.

    Attributes
    ----------
    listed : SparseWeights
    background : Background or None
    size : float
        At least the norm of both together.
    """

    listed: SparseWeights
    background: Background | None
    size: float

    @property
    def shape(self) -> tuple[int, int]:
        return self.listed.shape

    def norm(self) -> float:
        # Not the caller's number alone: what rounding takes of the sensitivity rests on it.
        background = 0.0 if self.background is None else self.background.norm
        return max(self.size, self.listed.norm() + background)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        dense = self.listed.to_dense()
        return dense if self.background is None else dense + self.background.factor * self.background.means


def find_margins(block: Block, point: Any, intercept_value: float) -> FloatArray:
    """The hook "margins": from known margins along a path, or from the few lines that are not zero."""
    if isinstance(point, PathPoint) and isinstance(block, FastBlock):
        return block.margins_along(point, intercept_value)
    if isinstance(point, SparseWeights) and isinstance(block, FastBlock):
        # Blocks of all rows would read other lines than batches, and a row's margin depend on how many rows are asked.
        if point.n_lines != block._n_features() + bool(intercept_value):
            raise ValueError(f"weights of {point.n_lines} lines do not fit the rows and their constant column")
        return block.margins_at(point, intercept_value)
    return block.margins(np.asarray(point), intercept_value)


class BatchAnswers:
    """The hook "batches"."""

    def gather(self, block: Block, slopes: FloatArray, constant: FloatArray, n_lines: int) -> SparseWeights:
        """The sum over rows of slopes ⊗ (row, constant)."""
        if isinstance(block, FastBlock):
            total = block.gather_sparsely(slopes)
        else:
            dense = block.gather(slopes)
            total = SparseWeights(np.arange(len(dense)), dense, len(dense))
        lines, values = total.lines, total.values
        if n_lines > total.n_lines:
            lines, values = np.append(lines, n_lines - 1), np.vstack([values, constant])
        return SparseWeights(lines, values, n_lines)

    def mean(self, total: SparseWeights, n_rows: int) -> SparseAnswer:
        mean = total.scaled(1.0 / n_rows)
        # As in `Curator.ask`: a number that is not finite counts as nothing rather than raise.
        values = np.nan_to_num(mean.values, nan=0.0, posinf=0.0, neginf=0.0)
        return SparseAnswer(SparseWeights(mean.lines, values, mean.n_lines))

    def step(self, start: Any, answer: SparseAnswer, factor: float) -> SparseAnswer:
        """start + factor × answer."""
        if not isinstance(start, BatchStart):
            start = BatchStart(SparseWeights.from_dense(np.asarray(start)), None, 0.0)
        moved = start.listed.plus(answer.listed, factor)
        background = start.background
        if background is None:
            return SparseAnswer(moved)
        values = moved.values + background.factor * background.means[moved.lines]
        return SparseAnswer(SparseWeights(moved.lines, values, moved.n_lines), background)
