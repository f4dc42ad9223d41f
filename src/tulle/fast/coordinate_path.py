"""Weights that change by one coordinate and one scale at a time. Public, like every iterate of a method.

Frank-Wolfe and greedy coordinate descent move like this. Code that follows such a path can keep margins and slopes of
rows up to date by looking at the rows that hold the moved feature alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tulle.trusted.events import FloatArray

# A point holds all weights each time that so many moves were made, or as many as 1/64 of the weights: to read any
# point costs no more than to copy its weights a few times, and all points together hold at most 64 weights a move.
_FEWEST_MOVES, _WEIGHTS_PER_MOVE = 16, 64


class Move(NamedTuple):
    """One move: all weights times `shrink`, then `amounts[k]` is added to coordinate `coordinates[k]` of output k."""

    shrink: float
    coordinates: tuple[int, ...]
    amounts: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class PathPoint:
    """The weights after a number of moves. It never changes: it holds the point before it and the move from there.

    Attributes
    ----------
    start : array of shape (parameters, outputs)
        Where the path starts; read-only.
    n_moves : int
    scale : float
        The product of all shrinks so far.
    norms : tuple of float
        The largest ℓ1 and ℓ2 norms of an output's weights, up to rounding.
    before : PathPoint or None
        The point one move earlier; None at the start.
    move : Move or None
    unscaled : array of shape (parameters, outputs) or None
        The weights over the scale; read-only. None at most points.
    """

    start: FloatArray
    n_moves: int
    scale: float
    norms: tuple[float, float]
    before: PathPoint | None = field(default=None, repr=False)
    move: Move | None = None
    unscaled: FloatArray | None = field(default=None, repr=False)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.start.shape

    def moves_since(self, earlier: PathPoint | None) -> list[Move] | None:
        """The moves that lead here from an earlier point, or from the start; None where no moves do."""
        moves: list[Move] = []
        point, least = self, 0 if earlier is None else earlier.n_moves
        while point.n_moves > least and point.before is not None and point.move is not None:
            moves.append(point.move)
            point = point.before
        moves.reverse()
        return moves if earlier is None or point is earlier else None

    def norm(self) -> float:
        return float(np.linalg.norm(np.asarray(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        moved: list[tuple[Move, float]] = []
        point = self
        while point.unscaled is None and point.before is not None and point.move is not None:
            moved.append((point.move, point.scale))
            point = point.before
        unscaled = (point.start if point.unscaled is None else point.unscaled).copy()
        for move, scale in reversed(moved):
            for output, (coordinate, amount) in enumerate(zip(move.coordinates, move.amounts)):
                unscaled[coordinate, output] += amount / scale
        unscaled *= self.scale
        return unscaled

    def __reduce__(self) -> tuple[Any, ...]:
        """In another process it is an array: the path is not followed there."""
        return np.array, (np.asarray(self),)


class CoordinatePath:
    """Weights of shape (parameters, outputs), held as scale × unscaled, and the point of the path that they are at.

    Parameters
    ----------
    start : array of shape (parameters, outputs)
        The first weights; already public.

    Attributes
    ----------
    scale : float
    unscaled : array of shape (parameters, outputs)
    point : PathPoint
        The present point, for queries.
    """

    def __init__(self, start: FloatArray) -> None:
        self.scale = 1.0
        self.unscaled = start.copy()
        # Lists of plain floats: this is read once a step, by loops of a few microseconds.
        self._sums: list[float] = np.abs(start).sum(axis=0).tolist()
        self._squares: list[float] = (start**2).sum(axis=0).tolist()
        self._moves_between_copies = max(_FEWEST_MOVES, start.size // _WEIGHTS_PER_MOVE)
        self.point = PathPoint(_read_only(start.copy()), 0, 1.0, self._norms())

    def move(self, shrink: float, coordinates: npt.NDArray[np.intp], amounts: FloatArray) -> None:
        """Shrink all weights by a factor in (0, 1], then add an amount to one coordinate of each output."""
        if not 0 < shrink <= 1:
            raise ValueError(f"weights shrink by a factor in (0, 1], got {shrink}")
        move = Move(float(shrink), tuple(coordinates.tolist()), tuple(amounts.tolist()))
        if not 0 <= min(move.coordinates) <= max(move.coordinates) < len(self.unscaled):  # compiled loops do not check
            raise ValueError(f"a path of {len(self.unscaled)} coordinates has no {coordinates}")
        self.scale *= move.shrink
        for output, (coordinate, amount) in enumerate(zip(move.coordinates, move.amounts)):
            before = float(self.unscaled[coordinate, output])
            after = before + amount / self.scale
            self.unscaled[coordinate, output] = after
            self._sums[output] += abs(after) - abs(before)
            self._squares[output] += after * after - before * before
        n_moves, last = self.point.n_moves + 1, self.point
        held = None if n_moves % self._moves_between_copies else _read_only(self.unscaled.copy())
        self.point = PathPoint(last.start, n_moves, self.scale, self._norms(), last, move, held)

    @property
    def weights(self) -> FloatArray:
        return self.scale * self.unscaled

    def _norms(self) -> tuple[float, float]:
        return self.scale * max(self._sums), self.scale * math.sqrt(max(0.0, *self._squares))


def _read_only(weights: FloatArray) -> FloatArray:
    view = weights.view()
    view.flags.writeable = False
    return view
