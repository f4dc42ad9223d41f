"""Centres and scales of dense columns from private rows, without declared ranges.

    quartiles   of every column by bisection: in each round one noisy answer says how many rows are below a threshold
    rows        (x_j - centre_j) / (reach × half the distance of the quartiles), cut off at -1 and 1

Thresholds are points of a fixed grid on the scale of asinh(x / 1e-6), so columns of any unit are found in as many
rounds. Proof: docs/proofs/private_preprocessing.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from tulle.files.array_checks import read_rows
from tulle.preprocessing.private_step import PrivateStep, RowBounds, gaussian_release
from tulle.trusted.clipped_sum import ClippedSum, RowFunction, SeenRows, bound_change
from tulle.trusted.curator import Ask
from tulle.trusted.events import FloatArray
from tulle.trusted.facts import PublicFacts
from tulle.trusted.plan import Release

# Values from -1e12 to 1e12, those near 0 down to 1e-6, and everything beyond as these.
_UNIT, _LARGEST = 1e-6, 1e12
_END = math.asinh(_LARGEST / _UNIT)

# In queries a missing number is this, whose square is finite: rows with numbers that are not would count as nothing.
# Numbers of half this size and more are missing, too.
_BLANK = 1e140

# Where all rows are on one side of a threshold an answer is a quarter away from the value compared with it: noise of
# this standard deviation, a part of the rows, misleads one round of bisection in a thousand.
_MOST_NOISE = 0.08

_NAME, _WANTED = "quartiles", np.array([[0.25], [0.75]])


@dataclass(frozen=True, eq=False)
class Below(RowFunction):
    """Whether each entry is below thresholds (of shape (2, features)), as 1/2 and -1/2, and 1/2 for the row itself.

    A missing entry counts as the wanted part of a row, so that it moves no quartile.
    """

    thresholds: FloatArray

    def values(self, seen: SeenRows, targets: FloatArray, public: PublicFacts) -> FloatArray:
        entries = seen.columns(np.arange(public.n_features), math.inf)
        known = _is_known(entries)
        both = zip(self.thresholds, _WANTED - 0.5)
        below = [np.where(known, np.where(entries < row, 0.5, -0.5), missing) for row, missing in both]
        return np.hstack([*below, np.full((len(targets), 1), 0.5)])


def _level(n_features: int) -> float:
    """How long the values of a row are at most: each of them is at most 1/2."""
    return math.sqrt(2 * n_features + 1) / 2


def _is_known(X: FloatArray) -> Any:
    """Which entries are numbers: neither NaN, nor infinite, nor marked as missing."""
    return np.abs(X) < _BLANK / 2


class _Quartiles(PrivateStep):
    """The noisy quartiles of every column."""

    learnt = ("low_", "high_")
    takes_missing = True
    rounds: int

    def mark(self, X: Any) -> FloatArray:
        return self.prepare(read_dense(X))

    def check(self, X: Any) -> None:
        name = type(self).__name__
        if sp.issparse(X):
            raise ValueError(
                f"{name} is for dense columns, and these rows are sparse. Behind a tulle.Schema omit it: a Schema has "
                "scaled its columns by declared ranges, and filled missing cells. Words and codes are for "
                "PrivateWeights; other sparse numbers are declared in a Schema"
            )
        if X.shape[1] > 5000:
            raise ValueError(f"{name} is for at most 5,000 columns, got {X.shape[1]:,}")
        if not (type(self.rounds) is int and 4 <= self.rounds <= 40):
            raise ValueError(f"{name}(rounds=...) must be a whole number in [4, 40], got {self.rounds!r}")

    def default_share(self, public: PublicFacts) -> float:
        return 0.15

    def releases(self, square: float, public: PublicFacts) -> tuple[Release, ...]:
        return (gaussian_release(_NAME, square, self.rounds),)

    def prepare(self, X: Any) -> FloatArray:
        """Finite rows, missing numbers marked."""
        return np.where(_is_known(X), np.clip(X, -_LARGEST, _LARGEST), _BLANK)

    def learn(self, ask: Ask, public: PublicFacts, mu: float) -> None:
        d = public.n_features
        low, high = np.full((2, d), -_END), np.full((2, d), _END)
        counted = []
        for _ in range(self.rounds):
            middle = (low + high) / 2
            query = ClippedSum(Below(_UNIT * np.sinh(middle)), (2 * d + 1, 1), _level(d), times="one")
            answer = np.asarray(ask(_NAME, query)).ravel()
            # Rows without a label and surplus rows of a person count as nothing: quartiles are those of the others.
            counted.append(2 * answer[-1])
            rows = min(max(float(np.mean(counted)), 0.0), 1.0)
            less = answer[:-1].reshape(2, d) < (_WANTED - 0.5) * rows
            low, high = np.where(less, middle, low), np.where(less, high, middle)
        found = _UNIT * np.sinh((low + high) / 2)
        self.low_, self.high_ = found.min(axis=0), found.max(axis=0)

    def doubt(self, public: PublicFacts, mu: float) -> str | None:
        noise = bound_change(_level(public.n_features), public) * math.sqrt(self.rounds) / mu
        if noise <= _MOST_NOISE:
            return None
        return (
            f"{type(self).__name__}: {public.n_rows:,} rows of {public.n_features:,} columns are few for what the "
            "quartiles may cost, and some columns are expected to get a wrong scale; declare ranges in a tulle.Schema, "
            "or use more rows, fewer columns, a larger epsilon or a larger share"
        )

    @property
    def centre_(self) -> FloatArray:
        """The middle of the quartiles."""
        return np.asarray(self.low_ / 2 + self.high_ / 2)


def read_dense(X: Any) -> FloatArray:
    """Dense rows as numbers, which may be missing."""
    X = read_rows(X, missing=True)
    if sp.issparse(X):
        raise ValueError("rows must be dense, as those that the step learnt from")
    return np.asarray(X, dtype=np.float64)


class PrivateScaler(_Quartiles):
    """Centre and scale dense columns of any unit, privately. Missing numbers (NaN) become 0, the centre.

    Parameters
    ----------
    reach : float, default=3.0
        In [1, 100]: entries further from the centre than so many times half the distance of the quartiles are cut off;
        with 3, about two standard deviations of a normal column.
    rounds : int, default=18
        In [4, 40]: rounds of bisection. Each halves the range in which a quartile lies; all share the cost.

    Attributes
    ----------
    low_, high_ : array of shape (d,)
        The quartiles, released with noise.

    Notes
    -----
    Transformed entries lie in [-1, 1]. A column of which three quarters have one value becomes -1, 0 and 1: below, at
    and above it. Use it as a step of `tulle.PrivatePipeline`; where ranges are known, a `tulle.Schema` is free.
    """

    def __init__(self, reach: float = 3.0, rounds: int = 18) -> None:
        self.reach = reach
        self.rounds = rounds

    def check(self, X: Any) -> None:
        super().check(X)
        if not (isinstance(self.reach, (int, float)) and 1 <= self.reach <= 100):
            raise ValueError(f"PrivateScaler(reach=...) must lie in [1, 100], got {self.reach!r}")

    def transform(self, X: Any) -> FloatArray:
        """Entries in [-1, 1]."""
        X = read_dense(X)
        self.check_columns(X)
        # What bisection cannot tell apart has no width: relative to the value, and never 0.
        least = 2 * _END / 2**self.rounds * np.maximum(np.abs(self.centre_), _UNIT)
        half = np.maximum(self.high_ / 2 - self.low_ / 2, least)
        with np.errstate(all="ignore"):
            scaled = np.clip((np.clip(X, -_LARGEST, _LARGEST) - self.centre_) / (self.reach * half), -1.0, 1.0)
        return np.where(_is_known(X), scaled, 0.0)

    def bounds(self, n_features: int) -> RowBounds:
        return RowBounds(math.sqrt(n_features), 1.0)

    def describe(self) -> str:
        return (
            "PrivateScaler centred and scaled columns by their released quartiles and cut entries off at "
            f"{self.reach:g} times half their distance; missing numbers became the centre."
        )


class PrivateImputer(_Quartiles):
    """Fill missing numbers (NaN) with the middle of the column's quartiles, privately; other entries stay.

    Parameters
    ----------
    row_linf : float
        Above 0: entries are cut off at it afterwards, so that rows are bounded. Known without looking at rows.
    rounds : int, default=18
        In [4, 40], as in `PrivateScaler`.

    Attributes
    ----------
    low_, high_ : array of shape (d,)
        The quartiles, released with noise.
    """

    def __init__(self, row_linf: float, rounds: int = 18) -> None:
        self.row_linf = row_linf
        self.rounds = rounds

    def check(self, X: Any) -> None:
        super().check(X)
        if not (isinstance(self.row_linf, (int, float)) and 0 < self.row_linf <= _LARGEST):
            raise ValueError(f"PrivateImputer(row_linf=...) must lie in (0, {_LARGEST:g}], got {self.row_linf!r}")

    def transform(self, X: Any) -> FloatArray:
        """Rows without missing numbers."""
        X = read_dense(X)
        self.check_columns(X)
        return np.clip(np.where(_is_known(X), X, self.centre_), -self.row_linf, self.row_linf)

    def bounds(self, n_features: int) -> RowBounds:
        return RowBounds(math.sqrt(n_features) * self.row_linf, self.row_linf)

    def describe(self) -> str:
        return "PrivateImputer filled missing numbers with the middle of released quartiles."
