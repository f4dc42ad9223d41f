"""Following a path over sparse rows: margins, slopes and a draw among all coordinates, at the cost of what a move
touches.

Trusted: it holds private rows, and is a part of the curator's side. What leaves is the coordinate that an exponential
mechanism draws, with exactly the law of the full draw (docs/proofs/scores_on_demand.md).
"""

from __future__ import annotations

import math
import sys
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from tulle.fast import compiled
from tulle.fast.compiled_rows import SparseBlock
from tulle.fast.coordinate_path import PathPoint
from tulle.fast.kernel_arrays import Data, Draw, Path, Weights
from tulle.trusted.clipped_sum import LEAST_LEVEL, ClippedSum, Kind, SignedScores, compute_scores
from tulle.trusted.events import FloatArray
from tulle.trusted.exact_noise import GUMBEL, choose_largest
from tulle.trusted.facts import PublicFacts
from tulle.trusted.losses import (
    AnyLoss,
    ConvexHuber,
    ConvexLogistic,
    ConvexSquared,
    ConvexSquaredHinge,
)
from tulle.trusted.rows import Rows

# Six uniforms a candidate; after 16 × 32 candidates all sums are taken anew (what finite precision does grows with
# them), and after 64 × 32 the draw is made from all sums.
_UNIFORMS, _ROUNDS, _MOST_ROUNDS = 192, 16, 64

# Where all log-weights are below the one, bounds are made for draws that are sharper by the other.
_STANDS_OUT, _ROOM = 2.0, 1.4


# The names that losses of a bounded curvature have in the kernels.
_IN_KERNELS: dict[type, str] = {
    ConvexSquared: "SQUARED",
    ConvexHuber: "HUBER",
    ConvexLogistic: "LOGISTIC",
    ConvexSquaredHinge: "SQUARED_HINGE",
}


def can_follow(loss: AnyLoss) -> bool:
    """Whether the kernels know a loss: tulle's own with one output and a bounded curvature, not subclasses, nor of rows
    that have weights or offsets (`tulle.methods.weighted_loss`)."""
    return loss.n_outputs == 1 and type(loss.convex) in _IN_KERNELS and not getattr(loss, "weighted", False)


def _kernels() -> Any:
    """The compiled loops. Says so, once, where they have to be compiled first."""
    known = compiled.is_loaded()
    from tulle.fast import kernels

    if not known:
        folder = FilePath(kernels.draw_coordinate.stats.cache_path or "")
        if not any(folder.glob("kernels.draw_coordinate-*.nbi")):
            print("tulle: compiling its sparse kernels, about 15 s, once on this machine", file=sys.stderr, flush=True)
    return kernels


class Follower:
    """Margins and slopes of one block of sparse rows, at a point of a path that moves on.

    Parameters
    ----------
    block : SparseBlock
    start : array of shape (parameters, 1)
        Where the path starts; of one output.
    loss : AnyLoss
        One that `can_follow` knows.
    intercept_value : float
        Entry of the constant column, the last coordinate; 0 for none.
    units : array of shape (parameters,) or None
        Slope sums are divided by it.
    """

    def __init__(
        self, block: SparseBlock, start: FloatArray, loss: AnyLoss, intercept_value: float, units: FloatArray | None
    ) -> None:
        self._kernels = _kernels()
        self.n_rows = block.n_rows
        self._point: PathPoint | None = None  # the last point that was followed; None: the start
        self._draw: Any = None
        k, convex = self._kernels, loss.convex
        assert convex is not None
        self._kinds: dict[Kind, int] = {"vertices": k.VERTICES, "simplex": k.SIMPLEX, "magnitudes": k.MAGNITUDES}
        starts, rows, entries, row_scale = block.columns_in_place()
        self._active = block.active
        n_rows, parameters = block.n_rows, len(start)
        self._data = Data(
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
            loss=getattr(k, _IN_KERNELS[type(convex)]),
            threshold=convex.threshold if isinstance(convex, ConvexHuber) else math.inf,
            curvature=convex.curvature_within(math.inf, math.inf),
        )
        self._kernels.measure_rows(self._data, self._data.row_size)
        z = np.zeros(n_rows)
        if start.any():
            # One row's margin that is not a number would be in sums over all rows.
            z = np.nan_to_num(block.margins(start, intercept_value)[:, 0], nan=0.0, posinf=0.0, neginf=0.0)
        now = np.array([1.0, np.abs(z).max(initial=0.0), float(z @ z), 0.0])
        self._path = Path(z, np.zeros(n_rows), np.zeros(n_rows), now, np.zeros(3), np.zeros(2))
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
        return Weights(
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

    def follow(self, point: PathPoint, level: float) -> bool:
        """Go to a point of the path, with contributions of rows cut at `level`; False where it lies behind."""
        moves = point.moves_since(self._point)
        if moves is None:
            return False
        if level != self._data.level:
            with np.errstate(divide="ignore"):
                cap = np.where(self._data.row_size > 0, level / self._data.row_size, 0.0)
            # A little inwards, so that rounding never lets a contribution pass the level; inactive rows count as
            # nothing.
            cap = np.where(self._active, cap * (1 - 2.0**-50), 0.0)
            self._data = self._data._replace(level=level)
            self._kernels.change_caps(self._data, self._path, self._weights, cap)
        for move in moves:
            self._kernels.advance(
                self._data, self._path, self._weights, move.shrink, move.coordinates[0], move.amounts[0]
            )
        self._point = point
        return True

    def sums(self) -> FloatArray:
        """All slope sums at the present point."""
        sums = np.empty(len(self._weights.order))
        self._kernels.all_sums(self._data, self._path, sums)
        return sums

    def sum_of(self, coordinate: int) -> float:
        """One slope sum at the present point."""
        return float(self._kernels.exact_sum(self._data, self._path, coordinate))

    def draw(self, kind: Kind, sharpness: float, generator: np.random.Generator) -> tuple[int, float]:
        """A coordinate, and a sign for vertices, with probability proportional to exp(sharpness × score).

        The score of coordinate j is |g_j| ("magnitudes") or -g_j ("simplex"); for "vertices" each coordinate has two,
        of scores -g_j (sign +1) and +g_j (sign -1).

        For any rows, it ends after a public number of proposals. The proposals refused until then are independent of
        the final draw, so that a draw from all sums instead has the same law.
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
        scores = sharpness * compute_scores(sums, kind)
        best = int(np.argmax(choose_largest(scores[:, None], 1.0, 1, GUMBEL, generator)))
        return best % len(sums), 1.0 if best < len(sums) else -1.0

    def _bounds_for(self, kind: int, sharpness: float) -> Any:
        """The law of the draw, with the bounds that are there if they can be used.

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
        self._draw = Draw(kind, sharpness, sharpness)
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
    """Scores of a path's coordinates or vertices, for `tulle.fast.gumbel_on_demand.GumbelOnDemand` to draw from.

    Candidates are numbered as in the array of scores of `tulle.trusted.clipped_sum.SignedScores`.
    """

    def __init__(self, follower: Follower, kind: Kind, reach: float, parameters: int) -> None:
        self._follower = follower
        self._kind = kind
        self._reach = reach
        self._parameters = parameters

    @property
    def n_rows(self) -> int:
        return self._follower.n_rows

    @property
    def shape(self) -> tuple[int, int]:
        return self._parameters * (2 if self._kind == "vertices" else 1), 1

    def to_dense(self) -> FloatArray:
        """The scores of all candidates; sums that are not finite count as nothing, as in `Curator.ask`."""
        sums = np.nan_to_num(self._follower.sums(), nan=0.0, posinf=0.0, neginf=0.0)
        return self._reach * compute_scores(sums, self._kind)[:, None]

    def draw(self, scale: float, generator: np.random.Generator) -> int:
        if scale == 0:
            return int(np.argmax(compute_scores(self._follower.sums(), self._kind)))
        coordinate, sign = self._follower.draw(self._kind, self._reach / scale, generator)
        return coordinate if sign > 0 else coordinate + self._parameters


def find_follower(query: ClippedSum, rows: Rows, public: PublicFacts) -> Follower | None:
    """The follower of the path that a sum is asked on; None where it cannot be followed or has moved on."""
    point, block = query.path, rows.only_block()
    if not isinstance(point, PathPoint) or not isinstance(block, SparseBlock):
        return None
    margins = point.norms[0] * public.entry_bound(query.intercept_value)
    # Squares of margins over the path's scale, and scores over the level, must be numbers.
    moderate = margins < 1e100 and point.scale > 1e-50 and LEAST_LEVEL < query.level < 1e100
    if public.loss.n_outputs > 1 or not can_follow(public.loss) or not moderate:
        return None
    # All points of a path, and of no other, share the array that it starts from.
    key = (point.start, query.intercept_value, query.units, public)
    follower: Follower = block.kept_for(
        key, lambda: Follower(block, point.start, public.loss, query.intercept_value, query.units)
    )
    return follower if follower.follow(point, query.level) else None


def find_scores(query: SignedScores, rows: Rows, public: PublicFacts) -> FollowedScores | None:
    """The hook "scores_on_demand"."""
    follower = find_follower(query.query, rows, public)
    if follower is None:
        return None
    return FollowedScores(follower, query.kind, query.reach / public.n_rows, public.n_parameters)


def sum_along_path(query: ClippedSum, rows: Rows, public: PublicFacts) -> FloatArray | None:
    """The hook "sum_along_path": the sum of one coordinate alone."""
    follower = None if query.coordinates is None else find_follower(query, rows, public)
    if follower is None or query.coordinates is None:
        return None
    coordinate = int(query.coordinates[0])
    unit = 1.0 if query.units is None else query.units[coordinate]
    return np.array([[follower.sum_of(coordinate) * unit / public.n_rows]])
