"""Concordance on private rows: from noisy counts of people by risk and by when they left."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tulle.survival.simulated_counts import draw_counts
from tulle.trusted.events import FloatArray
from tulle.trusted.queries import Query
from tulle.tuning.metrics import CellCounts, Interval, Metric, quietly

_DRAWS = 1000
# Parts of the largest risk that cells end at: in ratios of sqrt 2 on either side of 0.
_PARTS = 2.0 ** (-np.arange(1.0, 12.0) / 2)
_EDGES = np.concatenate([-_PARTS, [0.0], _PARTS[::-1]])
_CELLS = len(_EDGES) + 1


def tabulate(risk: FloatArray, exits: npt.NDArray[np.intp], n_periods: int) -> FloatArray:
    """Counts of people by risk, in the order of all different ones, and by their cell of `SparseHazard.find_exits`."""
    _, place = np.unique(risk, return_inverse=True)
    table = np.zeros((int(place.max(initial=0)) + 1, 2 * n_periods + 1))
    np.add.at(table, (place, exits), 1.0)
    return table


def find_concordance(table: FloatArray, n_periods: int) -> float:
    """Of pairs of an event and of somebody who lived through its period: the part in which the event's risk is larger.

    Parameters
    ----------
    table : array of shape (..., risks, 2 K + 1)
        Counts, risks rising. Pairs of one risk count one half.
    n_periods : int
    """
    return float(_concordance(table[None], n_periods)[0])


def _concordance(tables: FloatArray, n_periods: int) -> FloatArray:
    events = tables[..., :n_periods]
    ends = tables[..., n_periods:]
    # Those who lived through period k: with an event in a later one, or observed for more than k periods.
    later_events = np.flip(np.cumsum(np.flip(events, -1), -1), -1) - events
    later_ends = np.flip(np.cumsum(np.flip(ends, -1), -1), -1)[..., 1:]
    through = later_events + later_ends
    below = np.cumsum(through, axis=-2) - through / 2
    pairs = (events.sum(axis=-2) * through.sum(axis=-2)).sum(axis=-1)
    concordant = (events * below).sum(axis=(-2, -1))
    with np.errstate(all="ignore"):
        return np.where(pairs > 0, concordant / pairs, 0.5)


class Concordance(Metric):
    """The chance that of two people the one with the earlier event has the larger risk, for `SparseHazard`.

    Risks are counted in cells in ratios of sqrt 2, on either side of 0; two people of one cell count one half.

    Parameters
    ----------
    n_periods : int
    largest : float
        The largest magnitude of a risk, by the model's weights and the bound on rows.
    """

    name = "concordance"
    kind = "survival"

    def __init__(self, n_periods: int, largest: float) -> None:
        self.n_periods = n_periods
        self.largest = largest

    @property
    def query(self) -> Query:
        return CellCounts(self.answers)

    @property
    def answers(self) -> int:
        return _CELLS * (2 * self.n_periods + 1)

    def figures(self, model: Any, X: Any, y: Any, label: float) -> FloatArray:
        risk = np.nan_to_num(np.asarray(quietly(model.predict, X), dtype=np.float64), nan=0.0)
        cell = np.searchsorted(self.largest * _EDGES, risk, side="right")
        return (cell * (2 * self.n_periods + 1) + y).astype(np.float64)[:, None]

    def score(self, answer: FloatArray) -> float:
        return find_concordance(self._table(answer), self.n_periods)

    def interval(self, answer: FloatArray, n_rows: int, scale: float, error: float) -> Interval:
        """By simulation from the released counts, which says how far sampling and noise move the value."""
        table = self._table(answer)
        counts = np.maximum(table, 0.0)
        # Cut-off noise would add people to every cell: as many are taken away from all.
        counts *= min(1.0, max(float(table.sum()), 1.0) / max(float(counts.sum()), 1.0))
        drawn = draw_counts(counts, scale, _DRAWS)
        moved = _concordance(drawn, self.n_periods) - _concordance(counts[None], self.n_periods)
        low, high = np.quantile(moved, [error / 2, 1 - error / 2])
        value = self.score(answer)
        return min(max(value - float(high), 0.0), 1.0), min(max(value - float(low), 0.0), 1.0)

    def _table(self, answer: FloatArray) -> FloatArray:
        return np.asarray(answer).reshape(_CELLS, 2 * self.n_periods + 1)
