"""Private rows in memory, and the one reduction that everything else is built on.

Rule 5 of the house: whatever an algorithm needs from rows is a sum over rows of a function of one row and of what is
already public. `Rows.reduce` does that sum over blocks; a back end is another way to do it.

Rows are clipped without copying them: entries are clipped in the transposed copy that the gradient needs anyway, and
row norms by a factor per row that is applied to margins and slopes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from tulle.events import FloatArray
from tulle.losses import Norm

_DENSE_BLOCK_BYTES = 1 << 25


class Block(ABC):
    """Some rows with their targets. Trusted: only queries that run inside the curator touch it."""

    def __init__(self, targets: FloatArray, active: npt.NDArray[np.bool_]) -> None:
        self.targets = targets
        self.active = active  # rows that count; a person's surplus rows do not
        self._scale: FloatArray | None = None
        self._raw_norms: dict[Norm, FloatArray] = {}
        self._last_margins: tuple[FloatArray, float, FloatArray] | None = None

    @property
    def n_rows(self) -> int:
        return len(self.targets)

    @abstractmethod
    def _product(self, weights: FloatArray) -> FloatArray:
        """X @ weights, using only the columns in which `weights` is not zero."""

    @abstractmethod
    def _transposed_product(self, slopes: FloatArray) -> FloatArray:
        """Xᵀ @ slopes."""

    @abstractmethod
    def _norms(self, norm: Norm) -> FloatArray:
        """The norm of each row of X."""

    @abstractmethod
    def _squares_on(self, features: npt.NDArray[np.intp]) -> FloatArray:
        """The squared ℓ2 norm of each row of X restricted to some features."""

    @abstractmethod
    def _columns(self, features: npt.NDArray[np.intp]) -> Any:
        """X restricted to some features, as something that can be multiplied."""

    @abstractmethod
    def _clip_entries(self, bound: float) -> None: ...

    @abstractmethod
    def _n_features(self) -> int: ...

    def clip_entries(self, bound: float) -> None:
        """Clip every entry of X to [-bound, bound]. Comes before `clip_rows`."""
        self._clip_entries(bound)
        self._raw_norms = {}

    def clip_rows(self, bound: float, normalise: bool) -> None:
        """Scale rows longer than `bound` down to it; with `normalise`, scale every non-empty row to it."""
        # A computed norm can fall short of the true one by d roundings; divide by an upper bound of the true norm.
        norms = self._norms("l2") * (1 + self._n_features() * 2.0**-52)
        with np.errstate(divide="ignore"):
            scale = bound / norms
        if not normalise:
            scale = np.minimum(scale, 1.0)
        self._scale = np.where(norms > 0, scale, 1.0)
        self._raw_norms = {}

    def norms(self, norm: Norm) -> FloatArray:
        """The norm of each row as it now is, clipped or not."""
        if norm not in self._raw_norms:
            norms = self._norms(norm)
            self._raw_norms[norm] = norms if self._scale is None else norms * self._scale
        return self._raw_norms[norm]

    def norms_on(self, features: npt.NDArray[np.intp]) -> FloatArray:
        """The ℓ2 norm of each row restricted to some features."""
        norms = np.sqrt(self._squares_on(features))
        return norms if self._scale is None else norms * self._scale

    def margins(self, weights: FloatArray, intercept_value: float) -> FloatArray:
        """<x, w> of each row and output; the last line of `weights` belongs to a constant column of that value."""
        if self._last_margins is not None:
            last_weights, last_value, last = self._last_margins
            if last_value == intercept_value and np.array_equal(last_weights, weights):
                return last
        margins = self._product(weights[: self._n_features()])
        if self._scale is not None:
            margins = margins * self._scale[:, None]
        if intercept_value:
            margins = margins + intercept_value * weights[-1]
        self._last_margins = (weights.copy(), intercept_value, margins)
        return margins

    def gather(self, slopes: FloatArray) -> FloatArray:
        """Sum over rows of x times the row's slopes; shape (features, outputs)."""
        return self._transposed_product(self._scaled(slopes))

    def gather_on(self, slopes: FloatArray, features: npt.NDArray[np.intp]) -> FloatArray:
        """The same on some features only, for one output."""
        return np.asarray(self._columns(features).T @ self._scaled(slopes))

    def _scaled(self, slopes: FloatArray) -> FloatArray:
        if self._scale is None:
            return slopes
        return slopes * (self._scale if slopes.ndim == 1 else self._scale[:, None])


class SparseBlock(Block):
    """Rows held as columns (CSC): margins read only the support's columns, and gradients gather along columns."""

    def __init__(self, matrix: Any, targets: FloatArray, active: npt.NDArray[np.bool_]) -> None:
        super().__init__(targets, active)
        self._borrowed = matrix.format == "csc"
        columns = sp.csc_array(matrix)
        if columns.dtype != np.float64:
            columns, self._borrowed = columns.astype(np.float64), False
        if not columns.has_canonical_format:
            columns = columns.copy()
            columns.sum_duplicates()
            self._borrowed = False
        self._csc = columns
        self._transposed = sp.csr_array((columns.data, columns.indices, columns.indptr), shape=columns.shape[::-1])

    def _n_features(self) -> int:
        return int(self._csc.shape[1])

    def _columns(self, features: npt.NDArray[np.intp]) -> Any:
        return self._csc[:, features]

    def _product(self, weights: FloatArray) -> FloatArray:
        support = np.flatnonzero(np.any(weights != 0, axis=1))
        if len(support) == 0:
            return np.zeros((self.n_rows, weights.shape[1]))
        return np.asarray(self._columns(support) @ weights[support])

    def _transposed_product(self, slopes: FloatArray) -> FloatArray:
        if slopes.shape[1] == 1:  # scipy's product with a vector is the faster one
            return np.asarray(self._transposed @ slopes[:, 0])[:, None]
        return np.asarray(self._transposed @ slopes)

    def _norms(self, norm: Norm) -> FloatArray:
        if norm == "l2":
            return np.sqrt(np.bincount(self._csc.indices, self._csc.data**2, minlength=self.n_rows))
        largest = np.zeros(self.n_rows)
        np.maximum.at(largest, self._csc.indices, np.abs(self._csc.data))
        return largest

    def _squares_on(self, features: npt.NDArray[np.intp]) -> FloatArray:
        columns = self._columns(features)
        return np.asarray(np.bincount(columns.indices, columns.data**2, minlength=self.n_rows), dtype=np.float64)

    def _clip_entries(self, bound: float) -> None:
        data = self._csc.data
        if data.size == 0 or max(data.max(), -data.min()) <= bound:
            return
        if self._borrowed:
            data = data.copy()
            self._csc = sp.csc_array((data, self._csc.indices, self._csc.indptr), shape=self._csc.shape)
            self._transposed = sp.csr_array((data, self._csc.indices, self._csc.indptr), shape=self._csc.shape[::-1])
            self._borrowed = False
        np.clip(data, -bound, bound, out=data)


class DenseBlock(Block):
    """Rows of a dense array, float32 or float64; arithmetic is in float64."""

    def __init__(self, matrix: npt.NDArray[Any], targets: FloatArray, active: npt.NDArray[np.bool_]) -> None:
        super().__init__(targets, active)
        self._rows = matrix
        self._entry_bound = np.inf

    def _n_features(self) -> int:
        return int(self._rows.shape[1])

    def _entries(self, rows: npt.NDArray[Any]) -> FloatArray:
        rows = np.asarray(rows, dtype=np.float64)
        return rows if np.isinf(self._entry_bound) else np.clip(rows, -self._entry_bound, self._entry_bound)

    def _columns(self, features: npt.NDArray[np.intp]) -> Any:
        return self._entries(self._rows[:, features])

    def _product(self, weights: FloatArray) -> FloatArray:
        support = np.flatnonzero(np.any(weights != 0, axis=1))
        if 4 * len(support) > len(weights):
            return self._entries(self._rows) @ weights
        return np.asarray(self._columns(support) @ weights[support])

    def _transposed_product(self, slopes: FloatArray) -> FloatArray:
        return self._entries(self._rows).T @ slopes

    def _norms(self, norm: Norm) -> FloatArray:
        entries = self._entries(self._rows)
        if norm == "l2":
            return np.sqrt(np.einsum("ij,ij->i", entries, entries))
        return np.asarray(np.abs(entries).max(axis=1, initial=0.0))

    def _squares_on(self, features: npt.NDArray[np.intp]) -> FloatArray:
        columns = self._columns(features)
        return np.asarray(np.einsum("ij,ij->i", columns, columns))

    def _clip_entries(self, bound: float) -> None:
        if max(self._rows.max(initial=0.0), -self._rows.min(initial=0.0)) > bound:
            self._entry_bound = bound


class Rows:
    """All private rows, as blocks.

    Parameters
    ----------
    matrix : array or sparse array of shape (n, d)
        Dense float32 or float64, CSR or CSC. Not copied where that can be avoided, never densified.
    targets : array of shape (n,)
    active : boolean array of shape (n,) or None
        Rows that count; None means all.
    """

    def __init__(self, matrix: Any, targets: FloatArray, active: npt.NDArray[np.bool_] | None = None) -> None:
        active = np.ones(len(targets), dtype=bool) if active is None else active
        self.blocks: list[Block]
        if sp.issparse(matrix):
            self.blocks = [SparseBlock(matrix, targets, active)]
        else:
            step = max(1, _DENSE_BLOCK_BYTES // (8 * max(1, matrix.shape[1])))
            parts = [slice(start, start + step) for start in range(0, len(targets), step)]
            self.blocks = [DenseBlock(matrix[part], targets[part], active[part]) for part in parts]

    def reduce(self, contribution: Callable[[Block], FloatArray]) -> FloatArray:
        """The sum over rows of a function of one row, computed block by block."""
        total = contribution(self.blocks[0])
        for block in self.blocks[1:]:
            total = total + contribution(block)
        return total

    def clip_entries(self, bound: float) -> None:
        for block in self.blocks:
            block.clip_entries(bound)

    def clip_rows(self, bound: float, normalise: bool = False) -> None:
        for block in self.blocks:
            block.clip_rows(bound, normalise)

    def clip_targets(self, low: float, high: float) -> None:
        for block in self.blocks:
            block.targets = np.clip(block.targets, low, high)
