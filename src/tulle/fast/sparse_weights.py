"""Weights of which few lines are not zero, kept as those lines: nothing here costs what all of the lines would."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tulle.trusted.events import FloatArray


@dataclass(frozen=True, eq=False)
class SparseWeights:
    """A matrix of n_lines × outputs that is zero outside of some lines.

    Attributes
    ----------
    lines : array of int, shape (k,)
        Strictly increasing, from 0 to n_lines - 1.
    values : array of shape (k, outputs)
    n_lines : int
    """

    lines: npt.NDArray[np.intp]
    values: FloatArray
    n_lines: int

    def __post_init__(self) -> None:
        if (
            not isinstance(self.n_lines, (int, np.integer))
            or self.lines.dtype.kind != "i"
            or self.values.dtype != np.float64
        ):
            raise ValueError("lines are integers, values float64, and their number is an int")
        if self.values.ndim != 2 or self.lines.shape != self.values.shape[:1]:
            raise ValueError(f"{self.lines.shape} lines do not go with values of the shape {self.values.shape}")
        if not np.all(self.lines[1:] > self.lines[:-1]):
            raise ValueError("lines must be strictly increasing")
        if len(self.lines) and not 0 <= self.lines[0] <= self.lines[-1] < self.n_lines:
            raise ValueError(f"lines must lie between 0 and {self.n_lines - 1}")

    @classmethod
    def zeros(cls, n_lines: int, outputs: int) -> SparseWeights:
        return cls(np.zeros(0, dtype=np.intp), np.zeros((0, outputs)), n_lines)

    @classmethod
    def from_dense(cls, array: FloatArray) -> SparseWeights:
        """The lines of an array of shape (n_lines, outputs) that are not all zero."""
        lines = np.flatnonzero(array.any(axis=1))
        return cls(lines, array[lines], len(array))

    @classmethod
    def of(cls, weights: SparseWeights | FloatArray) -> SparseWeights:
        """Weights in this form, whichever form they have."""
        return weights if isinstance(weights, SparseWeights) else cls.from_dense(weights)

    @property
    def shape(self) -> tuple[int, int]:
        return self.n_lines, self.values.shape[1]

    def to_dense(self) -> FloatArray:
        dense = np.zeros(self.shape)
        dense[self.lines] = self.values
        return dense

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError("the dense form of sparse weights is always a copy")
        return self.to_dense() if dtype is None else self.to_dense().astype(dtype, copy=False)

    def scaled(self, factor: float) -> SparseWeights:
        return SparseWeights(self.lines, factor * self.values, self.n_lines)

    def plus(self, other: SparseWeights, factor: float = 1.0) -> SparseWeights:
        """self + factor × other."""
        if self.shape != other.shape:
            raise ValueError(f"weights of the shapes {self.shape} and {other.shape} cannot be added")
        if not len(self.lines):
            return other.scaled(factor)
        # The shorter list is looked up in the longer one, and lines that are not found are inserted.
        terms = [(self.lines, self.values), (other.lines, factor * other.values)]
        (few, few_values), (many, many_values) = sorted(terms, key=lambda term: len(term[0]))
        places = np.searchsorted(many, few)
        new = np.append(many, -1)[places] != few
        places = places + np.cumsum(new) - new
        old = np.ones(len(many) + np.count_nonzero(new), dtype=bool)
        old[places[new]] = False
        lines, values = np.empty(len(old), dtype=np.intp), np.zeros((len(old), self.shape[1]))
        lines[old], lines[places] = many, few
        values[old] = many_values
        values[places] += few_values
        return SparseWeights(lines, values, self.n_lines)

    def __add__(self, other: SparseWeights) -> SparseWeights:
        return self.plus(other)

    def norms(self) -> tuple[float, float]:
        """The largest ℓ1 and the largest ℓ2 norm of a column."""
        l1 = np.abs(self.values).sum(axis=0).max(initial=0.0)
        return float(l1), float(np.sqrt(np.square(self.values).sum(axis=0)).max(initial=0.0))

    def norm(self) -> float:
        """The ℓ2 norm of all values."""
        return float(np.linalg.norm(self.values))

    def pruned(self) -> SparseWeights:
        """The same matrix without the lines that are listed and all zero."""
        held = self.values.any(axis=1)
        return SparseWeights(self.lines[held], self.values[held], self.n_lines)
