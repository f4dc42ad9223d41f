"""The arrays that the compiled loops of `tulle.fast.kernels` work on."""

from __future__ import annotations

from typing import Any, NamedTuple


class Data(NamedTuple):
    """The rows as columns, and what clips them. The constant column, if any, is number len(starts) - 1."""

    starts: Any  # int64, (columns + 1,)
    rows: Any
    entries: Any
    units: Any  # (parameters,) or (1,): slope sums are divided by it
    row_scale: Any
    row_size: Any  # the largest |entry| / unit of a row
    cap: Any
    level: float  # what one row adds to a slope sum, at most
    targets: Any
    constant: float  # entry of the constant column
    loss: int
    threshold: float  # Huber's
    curvature: float


class Path(NamedTuple):
    """Where the path is: margins and remembered slopes."""

    z: Any
    slopes: Any  # remembered; off by what `since` says
    scaled: Any  # row_scale × slopes
    now: Any  # scale, largest |z|, sum of z², entries read for exact sums since all slopes were fresh
    drift: Any  # (3,), see above
    since: Any  # (2,): drift[0] and drift[2] of the remembered slopes since all of them were fresh


class Weights(NamedTuple):
    """Upper bounds of all log-weights, in blocks of columns of like spread."""

    order: Any  # columns by falling spread
    place: Any  # the inverse
    spread: Any
    length: Any
    log: Any  # at the block's stamp; grows with the drift since
    relative: Any  # exp(log - top of the block)
    first: Any  # (blocks + 1,), where blocks begin
    top: Any
    total: Any  # sum of `relative` over a block
    widest: Any  # largest spread of a block
    longest: Any
    size: Any  # entries in the columns of a block
    wasted: Any  # entries read for candidates of the block that were not taken
    stamp: Any  # (blocks, 3), the drift when its log-weights were taken
    log_block: Any  # work space
    block: Any
    mean: Any  # spread and length, averaged by weight: what a unit of drift costs


class Draw(NamedTuple):
    """The law of a draw: coordinates with weight exp(f(sharpness × g))."""

    kind: int
    sharpness: float
    bounded_at: float  # the sharpness that stored bounds are for: the same, or larger where weights grow with it
