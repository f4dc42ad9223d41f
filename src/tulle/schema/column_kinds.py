"""Kinds of columns: how the cells of one column become features, cell by cell, by public settings alone.

Every kind has a rule for cells that hold nothing it knows (blank, unparseable, an unknown category): its `missing`
value, or 0 in all of its features. No rule looks at another row. What a column adds at most to the square of a row's
length is known (`largest_square`: 1, or 2 with an indicator), so a schema bounds its rows before there are any.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from tulle.schema.cell_rules import (
    FALSE,
    TRUE,
    FloatArray,
    cells_of,
    days_of,
    map_distinct,
    numbers_of,
    read_days,
    read_exact,
    read_text,
)

# Days in a unit that weights of a date are reported in.
UNITS = {"day": 1.0, "week": 7.0, "month": 365.25 / 12, "year": 365.25}


class ColumnKind(ABC):
    """How a column is read."""

    word: ClassVar[str]  # what it is called in a schema

    @property
    @abstractmethod
    def width(self) -> int:
        """How many features it gives."""

    @abstractmethod
    def encode(self, column: Any) -> Any:
        """Features of shape (rows, width), dense or CSR."""

    @abstractmethod
    def names(self, column: str) -> list[str]:
        """Their names."""

    @property
    def largest_square(self) -> float:
        """The largest square of the length of a row on its features."""
        return 1.0

    def known(self, column: Any) -> Any:
        """Whether each cell holds something that the kind knows. For `tulle schema check` alone."""
        return np.array([read_text(cell) is not None for cell in cells_of(column)], dtype=bool)

    def unit(self) -> tuple[float, float]:
        """(middle, half): feature = (value - middle) / half in the user's unit; (0, 1) where it has none."""
        return 0.0, 1.0


def _with_indicator(values: FloatArray, indicator: bool) -> FloatArray:
    """A column of values, NaN where there is none, and one that says where there is none."""
    blank = np.isnan(values)
    found = np.where(blank, 0.0, values)
    return np.column_stack([found, blank.astype(np.float64)]) if indicator else found[:, None]


@dataclass(frozen=True)
class Range(ColumnKind):
    """Numbers in [low, high], clipped to it and mapped to [-1, 1].

    Parameters
    ----------
    low, high : float
        Finite, low < high. Known without looking at the rows.
    missing : float or None, default=None
        In [low, high]: what a cell without a number counts as. None: the middle.
    indicator : bool, default=False
        Whether there is a second feature, 1 where a cell holds no number.
    """

    low: float
    high: float
    missing: float | None = None
    indicator: bool = False
    word: ClassVar[str] = "range"

    def __post_init__(self) -> None:
        if not -math.inf < self.low < self.high < math.inf:
            raise ValueError("range must be two finite numbers, the smaller one first")
        if not math.isfinite(self.high - self.low):
            raise ValueError("range is too wide for floating-point numbers")
        middle, half = self.unit()
        if not (self.low < middle < self.high and half > 0):
            raise ValueError("range is too narrow for floating-point numbers")
        if self.missing is not None and not self.low <= self.missing <= self.high:
            raise ValueError("missing must lie in the range")

    @property
    def width(self) -> int:
        return 1 + self.indicator

    @property
    def largest_square(self) -> float:
        return 1.0 + self._missing_feature**2 if self.indicator else 1.0

    @property
    def _missing_feature(self) -> float:
        middle, half = self.unit()
        return 0.0 if self.missing is None else max(-1.0, min(1.0, (self.missing - middle) / half))

    def unit(self) -> tuple[float, float]:
        return self.low / 2 + self.high / 2, (self.high - self.low) / 2

    def encode(self, column: Any) -> FloatArray:
        return self.scale(numbers_of(column))

    def scale(self, numbers: FloatArray) -> FloatArray:
        """Features of numbers, NaN where there is none."""
        middle, half = self.unit()
        with np.errstate(all="ignore"):  # independent of the user's setting for underflow
            scaled = np.clip((np.clip(numbers, self.low, self.high) - middle) / half, -1.0, 1.0)
        features = _with_indicator(scaled, True)
        features[:, 0] += features[:, 1] * self._missing_feature
        return features if self.indicator else features[:, :1]

    def names(self, column: str) -> list[str]:
        return [column, f"{column} is missing"][: self.width]

    def known(self, column: Any) -> Any:
        numbers = numbers_of(column)
        return (numbers >= self.low) & (numbers <= self.high)


@dataclass(frozen=True)
class Number(ColumnKind):
    """Sparse numbers in [-bound, bound], clipped to it and divided by it; 0 stays 0, and so does a missing number."""

    bound: float
    indicator: bool = False
    word: ClassVar[str] = "number"

    def __post_init__(self) -> None:
        if not 0 < self.bound < math.inf:
            raise ValueError("number must be the largest magnitude, a finite number > 0")

    @property
    def width(self) -> int:
        return 1 + self.indicator

    def unit(self) -> tuple[float, float]:
        return 0.0, self.bound

    def encode(self, column: Any) -> Any:
        with np.errstate(all="ignore"):
            numbers = np.clip(numbers_of(column), -self.bound, self.bound) / self.bound
        return sp.csr_array(_with_indicator(numbers, self.indicator))

    def names(self, column: str) -> list[str]:
        return [column, f"{column} is missing"][: self.width]

    def known(self, column: Any) -> Any:
        return np.abs(numbers_of(column)) <= self.bound


@dataclass(frozen=True)
class Categories(ColumnKind):
    """One feature for each declared category, 1 where the cell holds it, else 0.

    Parameters
    ----------
    values : tuple of str, or of numbers
        At least one, all different. Text is compared without blanks around it; numbers by their values, so that 7, 7.0
        and "7" are one. As text, "007" is another category than "7".
    other : bool, default=False
        Whether there is a feature for cells that hold another category.
    missing : str, number or None, default=None
        The category of a cell that holds nothing. None: 0 in all features.
    indicator : bool, default=False
        Whether there is a feature for cells that hold nothing.
    """

    values: tuple[Any, ...]
    other: bool = False
    missing: Any = None
    indicator: bool = False
    word: ClassVar[str] = "categories"

    def __post_init__(self) -> None:
        if not self.values or not (self.numeric or all(isinstance(value, str) for value in self.values)):
            raise ValueError("categories must be text, or numbers, at least one")
        keys = [self.key(value) for value in self.values]
        if None in keys or len(set(keys)) < len(keys):
            raise ValueError("categories must be different, and not blank")
        if self.missing is not None and self.key(self.missing) not in keys:
            raise ValueError("missing must be one of the categories")
        if self.missing is not None and self.indicator:
            raise ValueError("missing and indicator exclude each other for categories; choose one")

    @property
    def numeric(self) -> bool:
        """Whether they are numbers."""
        return all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in self.values)

    def key(self, cell: Any) -> Any:
        """What a cell is compared by; None where it holds nothing."""
        if not self.numeric:
            return read_text(cell)
        number = read_exact(cell)
        return read_text(cell) if math.isnan(number) else number

    @property
    def width(self) -> int:
        return len(self.values) + self.other + self.indicator

    def places(self, column: Any) -> Any:
        """Which category each cell holds, counted from 0; -1: another, -2: nothing."""
        place_of = {self.key(value): place for place, value in enumerate(self.values)}
        place_of[None] = -2 if self.missing is None else place_of[self.key(self.missing)]
        found = map_distinct(column, lambda cell: place_of.get(self.key(cell), -1))
        return np.array(found, dtype=np.intp)

    def encode(self, column: Any) -> Any:
        places = self.places(column)
        places = np.where(places == -1, len(self.values) if self.other else -3, places)
        places = np.where(places == -2, self.width - 1 if self.indicator else -3, places)
        chosen = np.flatnonzero(places >= 0)
        ones = np.ones(len(chosen))
        return sp.csr_array((ones, (chosen, places[chosen])), shape=(len(places), self.width))

    def names(self, column: str) -> list[str]:
        words = [read_text(value) or "" for value in self.values]
        more = ["(other)"] * self.other + ["(missing)"] * self.indicator
        return [f"{column} = {word}" for word in (*words, *more)]

    def known(self, column: Any) -> Any:
        return self.places(column) >= 0


@dataclass(frozen=True)
class Boolean(ColumnKind):
    """1 for true, 0 for false and for a cell that holds neither.

    Parameters
    ----------
    true, false : tuple of str
        Words, in any case of letters. Defaults: true, t, yes, y, 1 and false, f, no, n, 0.
    missing : bool, default=False
        What a cell that holds neither counts as.
    indicator : bool, default=False
        Whether there is a second feature, 1 where a cell holds neither.
    """

    true: tuple[str, ...] = TRUE
    false: tuple[str, ...] = FALSE
    missing: bool = False
    indicator: bool = False
    word: ClassVar[str] = "boolean"

    def __post_init__(self) -> None:
        yes, no = ({(read_text(word) or "").lower() for word in words} for words in (self.true, self.false))
        if not yes or not no or yes & no or "" in yes | no:
            raise ValueError("boolean must be true, or the words for true and for false, all different")
        if not isinstance(self.missing, bool):
            raise ValueError("missing must be true or false")

    @property
    def width(self) -> int:
        return 1 + self.indicator

    @property
    def largest_square(self) -> float:
        return 2.0 if self.missing and self.indicator else 1.0

    def _truth(self, column: Any) -> FloatArray:
        """1, 0, or NaN."""
        values = dict.fromkeys(((read_text(word) or "").lower() for word in self.false), 0.0)
        values |= dict.fromkeys(((read_text(word) or "").lower() for word in self.true), 1.0)
        found = map_distinct(column, lambda cell: values.get((read_text(cell) or "").lower(), math.nan))
        return np.array(found, dtype=np.float64)

    def encode(self, column: Any) -> Any:
        truth = self._truth(column)
        features = _with_indicator(truth, self.indicator)
        features[:, 0] += np.isnan(truth) & self.missing
        return sp.csr_array(features)

    def names(self, column: str) -> list[str]:
        return [column, f"{column} is missing"][: self.width]

    def known(self, column: Any) -> Any:
        return ~np.isnan(self._truth(column))


@dataclass(frozen=True)
class Date(ColumnKind):
    """Dates and times from `since` to `until`, clipped to these and mapped to [-1, 1].

    Parameters
    ----------
    since, until : str
        ISO 8601, since < until.
    unit : {"day", "week", "month", "year"}, default="day"
        The unit that weights are reported in.
    pattern : str or None, default=None
        How dates are written, as for `datetime.strptime`. None: ISO 8601.
    missing : str or None, default=None
        The date that a cell without one counts as. None: the middle.
    indicator : bool, default=False
        Whether there is a second feature, 1 where a cell holds no date.
    """

    since: str
    until: str
    unit_name: str = "day"
    pattern: str | None = None
    missing: str | None = None
    indicator: bool = False
    word: ClassVar[str] = "date"

    def __post_init__(self) -> None:
        if not isinstance(self.unit_name, str) or self.unit_name not in UNITS:
            raise ValueError(f"unit must be one of {', '.join(UNITS)}")
        if not self._days(self.since) < self._days(self.until):
            raise ValueError("date must be two dates in the form 2026-12-31, the earlier one first")
        if self.pattern is not None:
            moment = datetime(2001, 2, 3, tzinfo=UTC)
            try:
                days = read_days(moment.strftime(self.pattern), self.pattern)
            except (TypeError, ValueError):
                days = math.nan
            if days != read_days(moment):
                raise ValueError("format must describe a whole date for datetime.strptime, as in '%d.%m.%Y'")
        self._range  # noqa: B018  (checks `missing`)

    @staticmethod
    def _days(text: str) -> float:
        return read_days(text) if isinstance(text, str) else math.nan

    @property
    def _range(self) -> Range:
        missing = None if self.missing is None else self._days(self.missing)
        return Range(self._days(self.since), self._days(self.until), missing, self.indicator)

    @property
    def width(self) -> int:
        return self._range.width

    @property
    def largest_square(self) -> float:
        return self._range.largest_square

    def unit(self) -> tuple[float, float]:
        middle, half = self._range.unit()
        return middle / UNITS[self.unit_name], half / UNITS[self.unit_name]

    def encode(self, column: Any) -> FloatArray:
        return self._range.scale(days_of(column, self.pattern))

    def names(self, column: str) -> list[str]:
        return self._range.names(column)

    def known(self, column: Any) -> Any:
        days = days_of(column, self.pattern)
        return (days >= self._range.low) & (days <= self._range.high)


@dataclass(frozen=True)
class Ignore(ColumnKind):
    """A column that is not used."""

    word: ClassVar[str] = "ignore"

    @property
    def width(self) -> int:
        return 0

    @property
    def largest_square(self) -> float:
        return 0.0

    def encode(self, column: Any) -> Any:
        return np.zeros((len(column), 0))

    def names(self, column: str) -> list[str]:
        return []
