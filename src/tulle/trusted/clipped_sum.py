"""The sum over rows that nearly every query is: values of a row function, which is not trusted, clipped and added up.

Adjacency is replace-one: the number of rows n is public, and one unit (a row, or a person with at most `rows_per_unit`
rows) is replaced. The sensitivity rests on the clip and the sum, which are here. Proof: docs/proofs/clipped_sum.md.

Blocks are asked by a bound method of a frozen query, with keywords: data that can be sent to where rows are.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from tulle.trusted import hooks
from tulle.trusted.events import FloatArray
from tulle.trusted.facts import PublicFacts
from tulle.trusted.mechanisms import Sensitivity
from tulle.trusted.queries import Mask, Query, vouch_for_query
from tulle.trusted.rows import Block, Rows, square_norms

Features = npt.NDArray[np.intp]

# Squares of shorter rows underflow, and a row that looks empty would not be scaled down.
LEAST_BOUND = 1e-140
# A row whose contribution must be scaled down by more than this counts as nothing.
LEAST_FACTOR = 1e-290
# Slopes are multiplied by the factors of rows, down to 1e-190, and then by entries up to 1e140. Under a clip level
# below this such a product may have no digits left and be rounded up to twice the level: then no row counts.
LEAST_LEVEL = 1e-150


def bound_change(level: float, public: PublicFacts) -> float:
    """How far a mean over n rows, each contributing a vector of norm at most `level`, moves when a unit is replaced."""
    return 2.0 * level * public.rows_per_unit / public.n_rows


def compute_lengths(rows: FloatArray) -> FloatArray:
    """The ℓ2 norm of each row, also where squares of entries underflow: a row that is too long must not look short."""
    largest = np.abs(rows).max(axis=1)
    if rows.shape[1] == 1:
        return np.asarray(largest)
    unit = np.where(largest > 0, largest, 1.0)
    return np.asarray(largest * np.sqrt(((rows / unit[:, None]) ** 2).sum(axis=1)))


def bound_norms(norms: FloatArray, n_features: int, intercept_value: float) -> FloatArray:
    """Upper bounds of the ℓ2 norms of rows with their constant column, given norms computed from squares.

    Squares of entries below 1e-150 vanish or lose their digits. A row of such entries looks empty, and a slope that is
    as huge as they are small would pass unclipped.
    """
    return np.hypot(norms + 1e-150 * math.sqrt(n_features), intercept_value)


def clip_contributions(slopes: FloatArray, norms: FloatArray, level: float) -> FloatArray:
    """Slopes scaled down where the norm of a row's contribution is above `level`."""
    if level < LEAST_LEVEL:
        return np.zeros_like(slopes)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Written so that a norm which is not a number counts as nothing, never as unclipped.
        factor = np.where(norms <= level, 1.0, np.where(norms < np.inf, level / norms, 0.0))
    # Factors below all normal numbers have few digits, and may be rounded up to twice what they should be.
    return slopes * np.where(factor < LEAST_FACTOR, 0.0, factor)[:, None]


class SeenRows:
    """What a row function sees of a block of rows, row by row."""

    def __init__(self, block: Block, intercept_value: float) -> None:
        self._block, self._intercept_value = block, intercept_value

    def margins(self, weights: Any) -> FloatArray:
        """<x, w> of each row and output, for an array of weights, or what faster code and numpy make one of."""
        faster = None if isinstance(weights, np.ndarray) else hooks.get("margins")
        if faster is not None:
            return np.asarray(faster(self._block, weights, self._intercept_value))
        return self._block.margins(np.asarray(weights), self._intercept_value)

    def lengths(self, n_lines: int) -> FloatArray:
        """Upper bounds of the ℓ2 norms of rows with their constant column."""
        return bound_norms(self._block.norms("l2"), n_lines, self._intercept_value)

    def columns(self, features: Features, bound: float) -> FloatArray:
        """Rows on some features and the constant column, scaled down to the length `bound`."""
        columns = take_clipped_rows(self._block, features, self._intercept_value, bound)
        return columns if isinstance(columns, np.ndarray) else np.asarray(columns.toarray())


class RowFunction(ABC):
    """What each row contributes. Not trusted, and data: a frozen dataclass that can be sent to where rows are."""

    @abstractmethod
    def values(self, seen: SeenRows, targets: FloatArray, public: PublicFacts) -> FloatArray:
        """Numbers of shape (rows, outputs). Line i is a function of row i and of public values, and of nothing else:
        no clip can make up for a line that depends on other rows."""


@vouch_for_query
@dataclass(frozen=True, eq=False)
class ClippedSum(Query):
    """The mean over rows of values ⊗ z, each row's contribution clipped. Proof: docs/proofs/clipped_sum.md.

    A row's z is the row with its constant column ("rows"), 1 ("one"), or the values themselves ("itself", where |v|² is
    clipped). Rows that do not count and values that are not finite contribute nothing, and all others are clipped; the
    row function may return anything.
    """

    row_function: RowFunction
    shape: tuple[int, int]  # (lines, outputs) of the sum; "itself": as many lines as the upper triangle of v v' has
    level: float  # C >= 0: what one row's contribution is clipped to
    # The norm in which contributions are scaled down to C; "each": every entry is cut off at C times its unit.
    norm: Literal["l2", "linf", "each"] = "l2"
    times: Literal["rows", "one", "itself"] = "rows"
    intercept_value: float = 0.0  # entry of the constant column, the last line; 0 for no intercept
    support: Mask | None = None  # "l2": answer only there (and in the constant's line), clipped after restriction to it
    units: FloatArray | None = None  # "each" and "rows": line j is measured in units[j] > 0
    coordinates: Features | None = None  # "each" and "rows": answer with this line of each output alone: (1, outputs)
    non_negative: bool = False  # "one": values below 0 count as 0, and a row moves the mean by one bound, not by two
    in_batches: bool = False  # whether one unit's part in a batch is bounded, and few lines of the answer are not zero
    path: Any = None  # for faster code: where on a path of weights the values are taken. Not read here

    def __post_init__(self) -> None:
        by_line, units, at = self.units is not None or self.coordinates is not None, self.units, self.coordinates
        if not (
            (self.level >= 0 and type(self.shape) is tuple and len(self.shape) == 2 and min(self.shape) >= 1)
            and 0 <= self.intercept_value < math.inf
            and (self.times == "one" or not self.non_negative)
            and (self.times != "itself" or (self.norm == "l2" and self.shape[1] == 1))
            and not (self.in_batches and (by_line or self.support is not None))
            and (not by_line or (self.times == "rows" and self.norm == "each"))
            and (units is None or (units.shape == self.shape[:1] and units.dtype == np.float64))
            and (units is None or bool(np.all((units >= 1e-100) & (units <= 1e100))))  # with squares that are > 0
            and (
                self.support is None
                or (self.support.shape == self.shape and (self.times, self.norm, by_line) == ("rows", "l2", False))
            )
        ):
            raise ValueError("no clip is known for this combination of norm, support, units and sign")
        if at is not None and not (at.dtype.kind == "i" and np.all((at >= 0) & (at < self.shape[0]))):
            raise ValueError(f"a model of {self.shape[0]} parameters has no coordinates {self.coordinates}")

    def _entry_units(self) -> FloatArray:
        """The units of all entries of the answer."""
        units = np.ones(self.shape[0]) if self.units is None else self.units
        return np.repeat(units, self.shape[1]) if self.coordinates is None else units[self.coordinates]

    def _one_sided(self) -> bool:
        return self.non_negative or self.times == "itself"

    def sensitivity(self, public: PublicFacts) -> Sensitivity:
        both, one = bound_change(self.level, public), self.level * public.rows_per_unit / public.n_rows
        if self.norm == "l2":
            # Of vectors with inner products >= 0: |v - u|² = |v|² + |u|² - 2 <u, v> <= 2 C².
            l2 = math.sqrt(2) * one if self._one_sided() else both
            # By Cauchy-Schwarz; nothing moves outside of a support and the constant's line, the last if there is one.
            moving = self.shape if self.support is None else (np.count_nonzero(self.support[:-1]) + self.shape[1],)
            return Sensitivity(l1=math.sqrt(math.prod(moving)) * l2, l2=l2)
        moved = one if self._one_sided() else both
        if self.norm == "linf":
            return Sensitivity(linf=moved)
        units = self._entry_units()
        l1, l2 = moved * float(units.sum()), moved * float(np.sqrt((units**2).sum()))
        return Sensitivity(l1, l2, moved * float(units.max()))

    def one_unit(self, public: PublicFacts) -> float:
        return self.size(public) * public.rows_per_unit / public.n_rows if self.in_batches else math.inf

    def size(self, public: PublicFacts) -> float:
        if self.norm == "l2":
            return self.level
        if self.norm == "linf":
            return self.level * math.sqrt(math.prod(self.shape))
        return self.level * float(np.sqrt((self._entry_units() ** 2).sum()))

    def largest(self, public: PublicFacts) -> float:
        return self.level * (float(self._entry_units().max()) if self.norm == "each" else 1.0)

    def evaluate(self, rows: Rows, public: PublicFacts) -> Any:
        faster = None if self.path is None else hooks.get("sum_along_path")
        answer = None if faster is None else faster(self, rows, public)
        if answer is not None:
            return answer
        total, batches = self.total(rows, public), hooks.get("batches")
        if batches is not None and not isinstance(total, np.ndarray):
            return batches.mean(total, public.n_rows)
        total /= public.n_rows
        return total

    def total(self, rows: Rows, public: PublicFacts) -> Any:
        """The sum over rows, not yet divided by their number."""
        return rows.reduce(partial(self._contribution, public=public))

    def _contribution(self, block: Block, public: PublicFacts) -> Any:
        values = self.row_function.values(SeenRows(block, self.intercept_value), block.targets, public)
        slopes, lines = np.asarray(values, dtype=np.float64), self.shape[0] - public.n_features
        # The sensitivity is that of an answer of this shape.
        triangle = (math.isqrt(8 * self.shape[0] + 1) - 1) // 2
        outputs = {"rows": self.shape[1], "one": math.prod(self.shape), "itself": triangle}[self.times]
        fits = self.times != "rows" or bool(self.intercept_value) <= lines <= 1
        if slopes.shape != (block.n_rows, outputs) or not fits:
            raise ValueError(f"values of the shape {slopes.shape} for {block.n_rows} rows do not fit {self.shape}")
        slopes = self._clip(np.where(np.isfinite(slopes) & block.active[:, None], slopes, 0.0), block)
        if self.times == "one":
            return slopes.sum(axis=0)[:, None]
        if self.times == "itself":
            line, column = np.triu_indices(outputs)
            return ((slopes.T @ slopes)[line, column] * np.where(line == column, 1.0, math.sqrt(2)))[:, None]
        return self._gather(block, slopes, public.n_features)

    def _clip(self, slopes: FloatArray, block: Block) -> FloatArray:
        """The values such that no row's contribution is above the level."""
        a, n_lines = self.intercept_value, self.shape[0]
        if self.times == "itself":
            norms = compute_lengths(slopes) * (1.0 + 2.0**-52 * (slopes.shape[1] + 8))
            return clip_contributions(slopes, norms, math.sqrt(self.level) * (1.0 - 2.0**-52))
        if self.times == "one":
            slopes = np.maximum(slopes, 0.0) if self.non_negative else slopes
            if self.norm == "each":
                return np.clip(slopes, -self.level, self.level)
            norms = compute_lengths(slopes) if self.norm == "l2" else np.abs(slopes).max(axis=1)
        elif self.norm == "each":
            return self._cut(slopes, block)
        elif self.norm == "linf":
            norms = np.abs(slopes).max(axis=1) * np.maximum(block.norms("linf"), a)
        elif self.support is None:
            norms = compute_lengths(slopes) * bound_norms(block.norms("l2"), n_lines, a)
        else:
            parts = np.empty_like(slopes)
            for column in range(slopes.shape[1]):
                chosen = np.flatnonzero(self.support[: n_lines - bool(a), column])
                parts[:, column] = slopes[:, column] * bound_norms(block.norms_on(chosen), n_lines, a)
            norms = compute_lengths(parts)
        # Rounded up: a norm is a sum of as many squares.
        return clip_contributions(slopes, norms * (1.0 + 2.0**-52 * math.prod(self.shape)), self.level)

    def _cut(self, slopes: FloatArray, block: Block) -> FloatArray:
        """Slopes cut off where the largest |slope × entry| / unit of a row would be above the level."""
        a = self.intercept_value
        if self.level * (1.0 if self.units is None else self.units.min()) < LEAST_LEVEL:
            return np.zeros_like(slopes)
        if self.units is None:
            sizes = np.maximum(block.norms("linf"), a)
        else:
            sizes = np.maximum(block.norms_in(self.units[: self.shape[0] - bool(a)]), a / self.units[-1])
        cap = np.nan_to_num(self.level / np.maximum(sizes, LEAST_FACTOR))[:, None] * (1 - 2.0**-50)
        cap = np.where(cap < LEAST_FACTOR, 0.0, cap)  # a number below all normal ones may be rounded to twice its size
        return np.clip(slopes, -cap, cap)

    def _gather(self, block: Block, slopes: FloatArray, features: int) -> Any:
        """The sum over rows of slopes ⊗ (row, constant)."""
        batches = hooks.get("batches") if self.in_batches else None
        constant = self.intercept_value * slopes.sum(axis=0)
        if batches is not None:
            return batches.gather(block, slopes, constant, self.shape[0])
        if self.coordinates is not None:
            on = [
                constant[k] if j == features else block.gather_on(slopes[:, k], np.array([j]))[0]
                for k, j in enumerate(self.coordinates)
            ]
            return np.array([on])
        if self.support is None:
            total = block.gather(slopes)
            return total if self.shape[0] == features else np.vstack([total, constant])
        total = np.zeros(self.shape)
        for column in range(total.shape[1]):
            chosen = np.flatnonzero(self.support[:features, column])
            total[chosen, column] = block.gather_on(slopes[:, column], chosen)
        if self.intercept_value:
            total[features:] = constant
        return total


Kind = Literal["vertices", "simplex", "magnitudes"]


def compute_scores(sums: FloatArray, kind: Kind) -> FloatArray:
    """The scores of all candidates, up to a positive factor: +e_j first, then -e_j, where there are both."""
    if kind == "magnitudes":
        return np.abs(sums)
    return -sums if kind == "simplex" else np.concatenate([-sums, sums])


@vouch_for_query
@dataclass(frozen=True, eq=False)
class SignedScores(Query):
    """Scores of the lines of a sum g, in their units, or of the two vertices ±e_j of each; times `reach` > 0.

    That is |g_j| ("magnitudes"), -g_j ("simplex"), or first -g_j for all +e_j and then g_j for all -e_j ("vertices").
    Replacing a unit moves every g_j by at most 2 C units[j] m / n.
    """

    query: ClippedSum
    kind: Kind
    reach: float

    def __post_init__(self) -> None:
        if self.query.norm == "l2" or self.query.times != "rows" or self.query.coordinates is not None:
            raise ValueError("scores are of all lines of a sum that is clipped entry by entry")

    def sensitivity(self, public: PublicFacts) -> Sensitivity:
        return Sensitivity(linf=self.reach * bound_change(self.query.level, public))

    def largest(self, public: PublicFacts) -> float:
        return self.reach * self.query.level

    def size(self, public: PublicFacts) -> float:
        return self.largest(public) * math.sqrt(2 * math.prod(self.query.shape))

    def evaluate(self, rows: Rows, public: PublicFacts) -> Any:
        faster = None if self.query.path is None else hooks.get("scores_on_demand")
        scores = None if faster is None else faster(self, rows, public)
        if scores is not None:
            return scores
        sums = self.query.total(rows, public)
        sums = sums if self.query.units is None else sums / self.query.units[:, None]
        return compute_scores(sums * (self.reach / public.n_rows), self.kind)


def take_clipped_rows(
    block: Block, features: Features, intercept_value: float, bound: float, mixing: FloatArray | None = None
) -> Any:
    """A block's rows on some features (mixed, if asked) and the constant column, dense or CSR, at most `bound` long.

    The constant keeps its value: features have the room sqrt(bound² - constant²). A row that does not count is zero.
    """
    columns = block.columns(features)
    if mixing is not None:
        columns = np.asarray(columns @ mixing)
    norms = bound_norms(np.sqrt(square_norms(columns)), columns.shape[1], 0.0)
    entry = min(intercept_value, bound)
    room = min(bound, math.sqrt(bound - entry) * math.sqrt(bound + entry)) / (1.0 + 2.0**-52 * (columns.shape[1] + 8))
    counted = block.active & (norms < np.inf)  # a length which is not a number counts as nothing
    scale, constant = np.where(counted, np.minimum(1.0, room / norms), 0.0), entry * counted[:, None]
    if isinstance(columns, np.ndarray):
        columns = columns * scale[:, None]
        columns[~np.isfinite(columns)] = 0.0
        return np.hstack([columns, constant]) if intercept_value else columns
    columns.data *= np.repeat(scale, np.diff(columns.indptr))  # a copy of the block's own, made for this question
    return sp.hstack([columns, sp.csr_array(constant)], format="csr") if intercept_value else columns
