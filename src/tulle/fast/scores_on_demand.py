"""Following a walk over sparse rows: margins, slopes and a draw among all coordinates, at the cost of what a move
touches.

Trusted: it holds private rows, and is a part of the curator's side. What leaves is the coordinate that an exponential
mechanism draws, with exactly the law of the full draw (docs/proofs/scores_on_demand.md).
"""

from __future__ import annotations

import math
import sys
from pathlib import Path as FilePath
from typing import Any, Literal

import numpy as np

from tulle.events import FloatArray
from tulle.exact_noise import GUMBEL, choose_largest
from tulle.losses import Huber, Logistic, Loss, Squared, SquaredHinge
from tulle.rows import SparseBlock
from tulle.walk import Walk

Kind = Literal["vertices", "simplex", "magnitudes"]

# Six uniforms a candidate; after 16 × 32 candidates all sums are taken anew (what finite precision does grows with
# them), and after 64 × 32 the draw is made from all sums.
_UNIFORMS, _ROUNDS, _MOST_ROUNDS = 192, 16, 64

# Where all log-weights are below the one, bounds are made for draws that are sharper by the other.
_STANDS_OUT, _ROOM = 2.0, 1.4


def can_follow(loss: Loss) -> bool:
    """Whether the kernels know a loss: tulle's own with one output and a bounded curvature, not subclasses."""
    return type(loss) in (Squared, Huber, Logistic, SquaredHinge)


def _kernels() -> Any:
    """The compiled loops. Says so, once, where they have to be compiled first."""
    known = "tulle.kernels" in sys.modules
    from tulle import kernels

    if not known:
        folder = FilePath(kernels.draw_coordinate.stats.cache_path or "")
        if not any(folder.glob("kernels.draw_coordinate-*.nbi")):
            print("tulle: compiling its sparse kernels, about 15 s, once on this machine", file=sys.stderr, flush=True)
    return kernels


class Follower:
    """The state of one walk over one block of sparse rows.

    Parameters
    ----------
    block : SparseBlock
    walk : Walk
        Of one output.
    loss : Loss
        One that `can_follow` knows.
    intercept_value : float
        Entry of the constant column, the last coordinate; 0 for none.
    units : array of shape (parameters,) or None
        Slope sums are divided by it.
    """

    def __init__(
        self, block: SparseBlock, walk: Walk, loss: Loss, intercept_value: float, units: FloatArray | None
    ) -> None:
        self._kernels = _kernels()
        self._walk = walk
        self._moved = 0
        self._draw: Any = None
        k = self._kernels
        losses = {Squared: k.SQUARED, Huber: k.HUBER, Logistic: k.LOGISTIC, SquaredHinge: k.SQUARED_HINGE}
        self._kinds: dict[Kind, int] = {"vertices": k.VERTICES, "simplex": k.SIMPLEX, "magnitudes": k.MAGNITUDES}
        starts, rows, entries, row_scale = block.columns_in_place()
        self._active = block.active
        n_rows, parameters = block.n_rows, len(walk.unscaled)
        self._data = self._kernels.Data(
            starts=starts,
            rows=rows,
            entries=entries,
            units=np.ones(1) if units is None else np.ascontiguousarray(units, dtype=float),
            row_scale=row_scale,
            row_size=np.zeros(n_rows),
            cap=np.zeros(n_rows),
            level=0.0,
            targets=np.ascontiguousarray(block.targets, dtype=float),
            constant=float(intercept_value),
            loss=losses[type(loss)],
            threshold=float(getattr(loss, "threshold", math.inf)),
            curvature=float(loss.curvature),
        )
        self._kernels.measure_rows(self._data, self._data.row_size)
        z = np.zeros(n_rows)
        if walk.start.any():
            # One row's margin that is not a number would be in sums over all rows.
            z = np.nan_to_num(block.margins(walk.start, intercept_value)[:, 0], nan=0.0, posinf=0.0, neginf=0.0)
        now = np.array([1.0, np.abs(z).max(initial=0.0), float(z @ z), 0.0])
        self._path = self._kernels.Path(z, np.zeros(n_rows), np.zeros(n_rows), now, np.zeros(3), np.zeros(2))
        self._weights = self._blocks_of_columns(parameters)
        self._entries = len(entries) + n_rows * (intercept_value != 0)

    def _blocks_of_columns(self, parameters: int) -> Any:
        spread, length = np.zeros(parameters), np.zeros(parameters)
        self._kernels.measure_columns(self._data, spread, length)
        order = np.argsort(-spread, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(parameters)
        # Popular columns drift most and stand alone; further down blocks grow, to about sqrt(parameters) columns.
        largest, first = max(64, 2 * math.isqrt(parameters)), [0]
        while first[-1] < parameters:
            first.append(min(parameters, first[-1] + max(1, min(largest, first[-1] // 8))))
        begin, blocks = np.array(first[:-1]), len(first) - 1
        counts = np.append(np.diff(self._data.starts), len(self._data.targets))[order]
        return self._kernels.Weights(
            order=order,
            place=place,
            spread=spread,
            length=length,
            log=np.zeros(parameters),
            relative=np.zeros(parameters),
            first=np.array(first),
            top=np.zeros(blocks),
            total=np.ones(blocks),
            widest=np.maximum.reduceat(spread[order], begin),
            longest=np.maximum.reduceat(length[order], begin),
            size=np.add.reduceat(counts, begin),
            wasted=np.zeros(blocks, dtype=np.int64),
            stamp=np.zeros((blocks, 3)),
            log_block=np.zeros(blocks),
            block=np.zeros(blocks),
            mean=np.zeros(2),
        )

    def catch_up(self, level: float) -> None:
        """Follow the walk's moves so far, with contributions of rows cut at `level`."""
        if level != self._data.level:
            with np.errstate(divide="ignore"):
                cap = np.where(self._data.row_size > 0, level / self._data.row_size, 0.0)
            # A little inwards, so that rounding never lets a contribution pass the level; inactive rows count as
            # nothing.
            cap = np.where(self._active, cap * (1 - 2.0**-50), 0.0)
            self._data = self._data._replace(level=level)
            self._kernels.change_caps(self._data, self._path, self._weights, cap)
        for move in self._walk.moves[self._moved :]:
            self._kernels.advance(
                self._data, self._path, self._weights, move.shrink, int(move.coordinates[0]), float(move.amounts[0])
            )
        self._moved = len(self._walk.moves)

    def sums(self) -> FloatArray:
        """All slope sums at the walk's weights."""
        sums = np.empty(len(self._weights.order))
        self._kernels.all_sums(self._data, self._path, sums)
        return sums

    def sum_of(self, coordinate: int) -> float:
        """One slope sum at the walk's weights."""
        return float(self._kernels.exact_sum(self._data, self._path, coordinate))

    def draw(self, kind: Kind, sharpness: float, generator: np.random.Generator) -> tuple[int, float]:
        """A coordinate, and a sign for vertices, with probability proportional to exp(sharpness × score).

        The score of coordinate j is |g_j| ("magnitudes") or -g_j ("simplex"); for "vertices" each coordinate has two,
        of scores -g_j (sign +1) and +g_j (sign -1).

        Whatever the rows are, it ends after a public number of proposals. What was refused until then says nothing of
        who is drawn in the end, so that a draw from all sums instead has the same law.
        """
        wanted = self._bounds_for(self._kinds[kind], sharpness)
        for k in range(_MOST_ROUNDS):
            uniforms = generator.random(_UNIFORMS)
            coordinate, sign = self._kernels.draw_coordinate(
                self._data, self._path, self._weights, wanted, uniforms, self._entries
            )
            if coordinate >= 0:
                return int(coordinate), float(sign)
            if coordinate == self._kernels.TOO_MUCH_WORK or k % _ROUNDS == _ROUNDS - 1:
                wanted = self._refreshed(wanted.kind, sharpness)
        return self._draw_from_all(kind, sharpness, generator)

    def _draw_from_all(self, kind: Kind, sharpness: float, generator: np.random.Generator) -> tuple[int, float]:
        """The same draw from all sums at once: the largest score with Gumbel noise."""
        sums = np.nan_to_num(self.sums(), nan=0.0, posinf=0.0, neginf=0.0)  # as in `Curator.ask`
        scores = sharpness * scores_of(sums, kind)
        best = int(np.argmax(choose_largest(scores[:, None], 1.0, 1, GUMBEL, generator)))
        return best % len(sums), 1.0 if best < len(sums) else -1.0

    def _bounds_for(self, kind: int, sharpness: float) -> Any:
        """What is drawn, from the bounds that are there if they will do.

        Magnitudes and pairs of vertices weigh more the sharper the draw is, and their log-weights grow no faster than
        in proportion. So bounds that were made for a sharper draw hold, and those for a blunter one are stretched. On a
        simplex weights can fall.
        """
        known = self._draw
        if known is None or known.kind != kind:
            return self._refreshed(kind, sharpness)
        factor = sharpness / known.bounded_at
        if factor != 1 and (kind == self._kernels.SIMPLEX or not 0.4 <= factor <= 1.2):
            return self._refreshed(kind, sharpness)
        if factor <= 1:
            return known._replace(sharpness=sharpness)
        self._stretch(known, factor)
        return self._draw._replace(sharpness=sharpness)

    def _refreshed(self, kind: int, sharpness: float) -> Any:
        self._draw = self._kernels.Draw(kind, sharpness, sharpness)
        self._kernels.refresh_all(self._data, self._path, self._weights, self._draw)
        if kind != self._kernels.SIMPLEX:
            self._stretch(self._draw, 1.0)
        return self._draw._replace(sharpness=sharpness)

    def _stretch(self, known: Any, factor: float) -> None:
        """Bounds for a draw sharper by a factor, and with room for more where no candidate stands out."""
        factor *= _ROOM if self._weights.top.max() < _STANDS_OUT else 1.0
        if factor > 1:
            self._kernels.sharpen(self._weights, factor)
            self._draw = known._replace(bounded_at=known.bounded_at * factor)


class FollowedScores:
    """Scores of a walk's coordinates or vertices, for `tulle.mechanisms.GumbelMax` to draw from on demand.

    Candidates are numbered as in the array of scores of `tulle.queries.CoordinateScores`.
    """

    def __init__(self, follower: Follower, kind: Kind, reach: float, parameters: int) -> None:
        self._follower = follower
        self._kind = kind
        self._reach = reach
        self._parameters = parameters

    @property
    def shape(self) -> tuple[int, int]:
        return self._parameters * (2 if self._kind == "vertices" else 1), 1

    def draw(self, scale: float, generator: np.random.Generator) -> int:
        if scale == 0:
            return int(np.argmax(scores_of(self._follower.sums(), self._kind)))
        coordinate, sign = self._follower.draw(self._kind, self._reach / scale, generator)
        return coordinate if sign > 0 else coordinate + self._parameters


def scores_of(sums: FloatArray, kind: Kind) -> FloatArray:
    """The scores of all candidates, up to a positive factor: +e_j first, then -e_j, where there are both."""
    if kind == "magnitudes":
        return np.abs(sums)
    return -sums if kind == "simplex" else np.concatenate([-sums, sums])
