"""The base class of faster blocks of rows: cached answers, and sparse weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from tulle.fast.coordinate_path import PathPoint
from tulle.fast.sparse_weights import SparseWeights
from tulle.trusted.events import FloatArray
from tulle.trusted.losses import Norm
from tulle.trusted.rows import Block, Mask, RowNumbers


class _KeptWeights:
    """A copy of weights to compare others with: of few that are not zero, these alone."""

    def __init__(self, weights: FloatArray) -> None:
        self._shape = weights.shape
        places = np.flatnonzero(weights)
        self._places = places if 2 * len(places) < weights.size else None
        self._values = weights.copy() if self._places is None else weights.ravel()[places]

    def equal(self, weights: FloatArray) -> bool:
        if weights.shape != self._shape:
            return False
        if self._places is None:
            return np.array_equal(self._values, weights)
        places = np.flatnonzero(weights)
        return np.array_equal(places, self._places) and np.array_equal(weights.ravel()[places], self._values)


class FastBlock(Block, ABC):
    """A block that remembers its last answers, and knows weights that are sparse or change along a path."""

    def __init__(self, targets: FloatArray, active: Mask) -> None:
        # Not the constructor of the plain block: entries are held in other ways.
        self.targets, self.active, self._scale = targets, active, None
        self._borrowed = True  # whether the entries are somebody else's, to be copied before they are changed
        self._forget()

    def _forget(self) -> None:
        self._known_norms: dict[Norm, FloatArray] = {}
        self._last_margins: tuple[_KeptWeights, float, FloatArray] | None = None
        self._margins_at: tuple[PathPoint, float, FloatArray] | None = None
        self._kept: tuple[tuple[Any, ...], Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # What travels or is copied is rows: what was remembered of a question may be changing meanwhile. A copy shares
        # the entries, and must not change them.
        forgotten: dict[str, Any] = {"_known_norms": {}, "_last_margins": None, "_margins_at": None, "_kept": None}
        return {**self.__dict__, **forgotten, "_borrowed": True}

    @abstractmethod
    def _take(self, numbers: RowNumbers) -> FastBlock:
        """Some rows of X with their targets, entries clipped."""

    @abstractmethod
    def _clip_entries(self, bound: float) -> None: ...

    @abstractmethod
    def _add_column(self, to: FloatArray, feature: int, amount: float) -> None:
        """Adds amount × a column of the rows as they now are."""

    def take(self, numbers: RowNumbers) -> Block:
        batch = self._take(numbers)
        batch._scale = None if self._scale is None else self._scale[numbers]
        self.norms("l2")  # once for all batches
        batch._known_norms = {norm: norms[numbers] for norm, norms in self._known_norms.items()}
        return batch

    def clip_entries(self, bound: float) -> None:
        self._clip_entries(bound)
        self._forget()

    def clip_rows(self, bound: float, entry_bound: float, normalise: bool) -> None:
        super().clip_rows(bound, entry_bound, normalise)
        self._forget()

    def clip_targets(self, low: float, high: float) -> None:
        super().clip_targets(low, high)
        self._kept = None

    def kept_for(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """What was made for the very same objects, such as a path that is followed; only the last one is kept."""
        known = self._kept is not None and all(one is other for one, other in zip(self._kept[0], key, strict=True))
        if self._kept is None or not known:
            self._kept = (key, make())
        return self._kept[1]

    def norms(self, norm: Norm) -> FloatArray:
        if norm not in self._known_norms:
            self._known_norms[norm] = super().norms(norm)
        return self._known_norms[norm]

    def margins(self, weights: FloatArray, intercept_value: float) -> FloatArray:
        if self._last_margins is not None:
            last_weights, last_value, last = self._last_margins
            if last_value == intercept_value and last_weights.equal(weights):
                return last
        margins = super().margins(weights, intercept_value)
        self._last_margins = (_KeptWeights(weights), intercept_value, margins)
        return margins

    def margins_at(self, weights: SparseWeights, intercept_value: float) -> FloatArray:
        """`margins`, of weights that are zero almost everywhere."""
        return self.margins(weights.to_dense(), intercept_value)

    def margins_along(self, point: PathPoint, intercept_value: float) -> FloatArray:
        """The margins at a point of a path, from those at the last question: only moved columns are read."""
        last, last_value, margins = self._margins_at or (None, None, np.empty(0))
        moves = None if last_value != intercept_value else point.moves_since(last)
        if moves is None:
            margins, moves = self.margins(point.start, intercept_value).copy(), point.moves_since(None) or []
        for move in moves:
            margins *= move.shrink
            for output, (coordinate, amount) in enumerate(zip(move.coordinates, move.amounts)):
                if coordinate == self._n_features():
                    margins[:, output] += amount * intercept_value
                else:
                    self._add_column(margins[:, output], coordinate, amount)
        self._margins_at = (point, intercept_value, margins)
        return margins

    def gather_sparsely(self, slopes: FloatArray) -> SparseWeights:
        """`gather`, on the features that any row has; zero on all others."""
        return SparseWeights(np.arange(self._n_features()), self.gather(slopes), self._n_features())
