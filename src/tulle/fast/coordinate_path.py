"""A walk: weights that change by one coordinate and one scale at a time. Public, like every iterate of a method.

Frank-Wolfe and greedy coordinate descent move like this. Whoever follows a walk can keep margins and slopes of rows up
to date by looking at the rows that hold the moved feature alone.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tulle.events import FloatArray


class Move(NamedTuple):
    """One move: all weights times `shrink`, then `amounts[k]` is added to coordinate `coordinates[k]` of output k."""

    shrink: float
    coordinates: npt.NDArray[np.intp]
    amounts: FloatArray


class Walk:
    """Weights of shape (parameters, outputs), held as scale × unscaled, with all moves so far.

    Parameters
    ----------
    start : array of shape (parameters, outputs)
        The first weights; already public.

    Attributes
    ----------
    start : array
    scale : float
    unscaled : array of shape (parameters, outputs)
    moves : list of Move
    """

    def __init__(self, start: FloatArray) -> None:
        self.start = start
        self.scale = 1.0
        self.unscaled = start.copy()
        self.moves: list[Move] = []
        # Lists of plain floats: this is read once a step, by loops of a few microseconds.
        self._sums: list[float] = np.abs(start).sum(axis=0).tolist()
        self._squares: list[float] = (start**2).sum(axis=0).tolist()

    def move(self, shrink: float, coordinates: npt.NDArray[np.intp], amounts: FloatArray) -> None:
        """Shrink all weights by a factor in (0, 1], then add an amount to one coordinate of each output."""
        if not 0 < shrink <= 1:
            raise ValueError(f"a walk shrinks by a factor in (0, 1], got {shrink}")
        moved = coordinates.tolist()
        if not 0 <= min(moved) <= max(moved) < len(self.unscaled):  # compiled loops do not look again
            raise ValueError(f"a walk of {len(self.unscaled)} coordinates has no {coordinates}")
        self.scale *= shrink
        for output, (coordinate, amount) in enumerate(zip(moved, amounts.tolist())):
            before = float(self.unscaled[coordinate, output])
            after = before + amount / self.scale
            self.unscaled[coordinate, output] = after
            self._sums[output] += abs(after) - abs(before)
            self._squares[output] += after * after - before * before
        self.moves.append(Move(shrink, coordinates, amounts))

    def __reduce__(self) -> tuple[Any, ...]:
        """What goes to another process is a walk that starts where this one stands: the way there is of no use to
        whoever did not follow it."""
        return Walk, (self.weights,)

    @property
    def weights(self) -> FloatArray:
        return self.scale * self.unscaled

    def norms(self) -> tuple[float, float]:
        """The largest ℓ1 and ℓ2 norms of an output's weights, up to rounding."""
        return self.scale * max(self._sums), self.scale * math.sqrt(max(0.0, *self._squares))
