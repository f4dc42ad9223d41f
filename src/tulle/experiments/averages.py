"""Means over the trials of a cell, with what a reader must know of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, stdev

from tulle.experiments.cells import Finished
from tulle.files.number_text import rounded_up
from tulle.reports.series import Point, Role

_RESULTS_DEPEND_ON = "nothing"

Places = Mapping[tuple[str, str, float | None], Sequence[Finished]]
"""The trials that succeeded, by data, method and ε."""


def by_place(finished: Iterable[Finished]) -> Places:
    """The trials that succeeded, by data, method and ε."""
    found: dict[tuple[str, str, float | None], list[Finished]] = {}
    for one in finished:
        if not one.failed:
            found.setdefault((one.cell.data, one.cell.method, one.cell.epsilon), []).append(one)
    return found


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """The mean and its standard error: 0 where there is one value, infinite where a fit diverged."""
    if not all(map(math.isfinite, values)):
        return fmean(values), math.inf
    return fmean(values), stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def averaged(x: float, scores: Sequence[float], role: Role, trials: Sequence[Finished]) -> Point:
    """The mean of some trials' scores; of unsound noise with the ε that is proved for it.

    Parameters
    ----------
    x : float
        The place of the point.
    scores : sequence of float
        One a trial.
    role : Role
    trials : sequence of Finished
        Of one data set, method and ε.
    """
    mean, error = mean_and_error(scores)
    return Point(x, mean, error if len(scores) > 1 else None, _true_epsilon(role, trials))


def _true_epsilon(role: Role, trials: Sequence[Finished]) -> str:
    """The ε that is proved for the noise that a paper prints; "" for sound noise, which keeps its ε."""
    if role == "reference":
        return ""
    proved, asked = max(float(one.values["proved"]) for one in trials), trials[0].cell.epsilon or 0.0
    if role == "unsound":
        return "no ε is proved" if math.isinf(proved) else f"true ε {rounded_up(proved, 3)}"
    if proved > asked * (1 + 1e-9):
        raise AssertionError(f"{trials[0].cell.method} claims ε = {asked:g} but proves {proved:g}")
    return ""
