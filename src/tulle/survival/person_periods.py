"""Times until an event as rows of one period each: hazards in discrete time are then a classification.

    edges   e_0 < e_1 < ... < e_K, declared: period k is (e_(k-1), e_k]
    row     of a person and a period: an indicator of the period, and the person's features
    label   1 if the event is in the period, 0 if the person has lived through it, none otherwise
    weight  1, and 1/2 (with label 0) in the period in which a person was lost to observation

Every person has K rows, regardless of their time, so that the number of rows says nothing about anybody. Rows after the
event, and after a person was lost to observation, have no label and count as nothing. Each of a person's rows is a
function of that person's features, time and event. The unit of privacy is the person, with K rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from tulle.files.array_checks import read_finite_numbers, read_rows
from tulle.trusted.events import FloatArray
from tulle.trusted.intake import read_cells
from tulle.trusted.plan import is_number

_MOST_PERIODS = 1000


@dataclass(frozen=True, eq=False)
class PersonPeriods:
    """Rows of persons and periods, for a classifier of two classes.

    Attributes
    ----------
    X : csr_array of shape (n K, K + d)
        Indicators of periods first. The rows of one person follow each other.
    y : array of shape (n K,)
        1, 0, or None for a row that counts as nothing.
    groups : array of shape (n K,)
        The number of the person.
    sample_weight : array of shape (n K,)
        1, and 1/2 in the period in which observation ends.
    """

    X: sp.csr_array
    y: npt.NDArray[Any]
    groups: npt.NDArray[Any]
    sample_weight: FloatArray


def check_edges(edges: Any) -> FloatArray:
    """The ends of periods as an array; raises where they are none."""
    given = list(edges) if isinstance(edges, (Sequence, np.ndarray)) and not isinstance(edges, str) else []
    numbers = np.array([float(edge) if is_number(edge) else np.nan for edge in given])
    if not (2 <= len(numbers) <= _MOST_PERIODS + 1 and np.isfinite(numbers).all() and (np.diff(numbers) > 0).all()):
        raise ValueError(
            "edges must be the ends of the periods, 2 to 1,001 rising numbers such as [0, 30, 60, 90], declared "
            "without looking at the rows"
        )
    return numbers


def read_outcomes(y: Any) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
    """Times and events.

    Parameters
    ----------
    y : array of shape (n, 2), DataFrame of two columns, or structured array
        Time first, then 1 for an event and 0 for the end of observation; of a structured array the field of type bool
        is the event.
    """
    names = getattr(getattr(y, "dtype", None), "names", None)
    if names is not None:
        flags = [name for name in names if y.dtype[name].kind == "b"]
        if len(names) != 2 or len(flags) != 1:
            raise ValueError("a structured y must have two fields, a time and an event of type bool")
        columns = [y[name] for name in names if name not in flags] + [y[flags[0]]]
    elif hasattr(y, "iloc") and getattr(y, "ndim", 0) == 2:
        columns = [y.iloc[:, place] for place in range(y.shape[1])]
    else:
        columns = list(np.asarray(y, dtype=object).T) if np.ndim(y) == 2 else []
    if len(columns) != 2:
        raise ValueError("y must have two columns: time, and 1 for an event or 0 for the end of observation")
    times = read_finite_numbers(read_cells(columns[0], "time"), "time")
    events = read_finite_numbers(read_cells(columns[1], "event"), "event")
    return times, events > 0.5


def find_periods(
    times: FloatArray, events: npt.NDArray[np.bool_], edges: FloatArray
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
    """How many periods each person has lived through, and whether the event is in the next one.

    Times before the first edge are in the first period; an event after the last edge is not observed.
    """
    last = len(edges) - 1
    holds = np.searchsorted(edges[1:], times, side="left")  # the period that holds the time
    through = np.searchsorted(edges[1:], times, side="right")  # those that ended by then
    happens = events & (holds < last)
    return np.where(happens, holds, through).astype(np.intp), happens


def expand_periods(
    X: Any, y: Any, edges: Any, *, period_value: float = 1.0, half_periods: bool = True
) -> PersonPeriods:
    """Rows of persons and periods, as `SparseHazard` fits them: for federated studies, searches and other methods.

    Parameters
    ----------
    X : array or sparse array of shape (n, d)
        One row for each person.
    y : array of shape (n, 2)
        Times and events.
    edges : sequence of float
        The ends of the periods: 2 to 1,001 rising numbers.
    period_value : float, default=1.0
        The entry of the indicators of periods, above 0.
    half_periods : bool, default=True
        Whether the period in which observation ends counts, with label 0 and a weight of 1/2. Without it, as where a
        method takes no weights, it does not count, and hazards come out too large where many are lost.

    Returns
    -------
    PersonPeriods
        Fit with ``Bounds(rows_per_person=K)``, K = len(edges) - 1, and with the groups.
    """
    edges = check_edges(edges)
    n_periods = len(edges) - 1
    rows = sp.csr_array(read_rows(X))
    times, events = read_outcomes(y)
    through, happens = find_periods(times, events, edges)
    if len(through) != rows.shape[0]:
        raise ValueError(f"X has {rows.shape[0]} rows and y {len(through)}")
    period = np.tile(np.arange(n_periods), len(through))
    before = np.repeat(through, n_periods)
    labels = np.full(len(period), None, dtype=object)
    labels[period < before] = 0
    here, happened = period == before, np.repeat(happens, n_periods)
    labels[here & happened] = 1
    weights = np.ones(len(period))
    if half_periods:
        inside = here & ~happened & np.repeat(times > edges[np.minimum(through, n_periods)], n_periods)
        labels[inside], weights[inside] = 0, 0.5
    people = np.arange(len(period)) // n_periods
    return PersonPeriods(stack_periods(rows, n_periods, period_value), labels, people, weights)


def stack_periods(rows: sp.csr_array, n_periods: int, period_value: float) -> sp.csr_array:
    """Each row once for each period, behind the indicators of these."""
    n_rows = rows.shape[0]
    numbers = np.arange(n_rows * n_periods)
    entries = np.full(len(numbers), period_value)
    indicators = sp.csr_array((entries, (numbers, numbers % n_periods)), shape=(len(numbers), n_periods))
    return sp.csr_array(sp.hstack([indicators, rows[numbers // n_periods]], format="csr"))


def period_names(edges: FloatArray) -> list[str]:
    """What each period is called."""
    return [f"period ({low:g}, {high:g}]" for low, high in pairwise(edges)]
