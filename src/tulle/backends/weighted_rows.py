"""Rows with a weight and an offset each, in memory.

Vouched for on use: privacy rests on weights in [0, 1] and on offsets within their bound, and the report says that they
were used. Sums over rows are clipped by trusted code for all weights. Of objectives, which trusted code minimises,
each row's slopes are multiplied by its weight here: gradients and curvatures of a row only shrink. Proof:
docs/proofs/weighted_rows.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from tulle.backends.weighted_targets import WeightedTargets, clip_offsets, clip_weights, is_certified
from tulle.fast.rows_in_memory import RowsInMemory
from tulle.trusted.events import FloatArray
from tulle.trusted.objectives import Minimiser, Part
from tulle.trusted.rows import Mask, Pieces

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class CarriedNumbers:
    """The private numbers of each row besides its features and its target: as given, finite.

    Attributes
    ----------
    weights : array of shape (n,)
        Clipped to [0, 1] wherever they are used.
    offsets : array of shape (n,) or None
        Clipped to `offset_bound`; None: all are 0.
    offset_bound : float
        Declared, >= 0.
    """

    weights: FloatArray
    offsets: FloatArray | None = None
    offset_bound: float = 0.0


@dataclass(frozen=True, eq=False)
class WeightedFeatures:
    """The features of some rows, as the matrix that a weighted objective multiplies by.

    `matrix @ theta` has the offsets added to it, and `matrix.T @ slopes` multiplies slopes by weights first: with it
    the gradient of a sum of losses f(<z, theta>, y) is that of w f(<z, theta> + o, y).
    """

    plain: Any  # dense or CSR
    weights: FloatArray
    offsets: FloatArray | None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.plain.shape)

    def __matmul__(self, theta: FloatArray) -> FloatArray:
        margins = np.asarray(self.plain @ theta)
        return margins if self.offsets is None else margins + self.offsets

    @property
    def T(self) -> _Transposed:
        return _Transposed(self)

    def astype(self, dtype: Any) -> WeightedFeatures:
        """The same in other floats."""
        return WeightedFeatures(self.plain.astype(dtype), self.weights, self.offsets)


@dataclass(frozen=True, eq=False)
class _Transposed:
    of: WeightedFeatures

    def __matmul__(self, slopes: FloatArray) -> FloatArray:
        return np.asarray(self.of.plain.T @ (self.of.weights * slopes))


class WeightedRows(RowsInMemory):
    """Rows of which each has a weight and an offset, from `carry` on; before it, rows like any others.

    Parameters
    ----------
    matrix, targets, active
        As for `Rows`.
    numbers : CarriedNumbers
    """

    def __init__(self, matrix: Any, targets: FloatArray, active: Mask | None, numbers: CarriedNumbers) -> None:
        super().__init__(matrix, targets, active)
        self._offset_bound = numbers.offset_bound
        self._weights = clip_weights(numbers.weights)
        self._offsets = None if numbers.offsets is None else clip_offsets(numbers.offsets, numbers.offset_bound)

    def carry(self, class_weights: Callable[[FloatArray], FloatArray] | None = None) -> None:
        """Have the targets carry weights and offsets: last, since clipping makes new targets.

        Parameters
        ----------
        class_weights : callable or None, default=None
            A further weight in [0, 1] of each row, as a function of its target and of public values.
        """
        start = 0
        for block in self.blocks:
            part, start = slice(start, start + block.n_rows), start + block.n_rows
            weights = self._weights[part]
            if class_weights is not None:
                weights = weights * clip_weights(class_weights(np.asarray(block.targets)))
            offsets = None if self._offsets is None else self._offsets[part]
            block.targets = WeightedTargets.make(block.targets, weights, offsets, self._offset_bound)

    def derive(self, make: Callable[[Any], Sequence[T]]) -> Pieces[T]:
        """Parts of an objective, with the weights and offsets of their rows."""
        question = getattr(getattr(make, "func", None), "__self__", None)
        public = getattr(make, "keywords", {}).get("public")
        if not (isinstance(make, partial) and isinstance(question, Minimiser) and public is not None):
            raise TypeError("of rows with weights only the parts of a minimiser are known to be private")
        shifted = self._offsets is not None and public.budget is not None
        if shifted and not is_certified(question, public, self._offset_bound):
            raise ValueError("the minimiser cannot be certified for rows with offsets; declare a smaller bound")
        return Pieces(piece for block in self._in_runs(make) for piece in _weigh(make(block), block.targets))


def _weigh(parts: Sequence[Any], targets: FloatArray) -> Iterator[Any]:
    """The parts of one block, in the order of its rows, with their weights and offsets."""
    if not isinstance(targets, WeightedTargets) or targets.weights is None:
        raise TypeError("these rows carry no weights yet")
    start = 0
    for part in parts:
        own = targets[start : start + len(part.targets)]
        start += len(part.targets)
        yield Part(WeightedFeatures(part.features, own.weights, own.offsets), np.asarray(part.targets))
