"""Rows to learn from, and how models are judged on others."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

METRICS = {"classification": "test error", "regression": "1 − R²"}


@dataclass(frozen=True, eq=False)
class Examples:
    """Rows, their targets, and the ids of the people they are of."""

    X: Any
    y: npt.NDArray[Any]
    groups: npt.NDArray[Any] | None = None

    def __len__(self) -> int:
        return int(self.X.shape[0])

    def chosen(self, rows: npt.NDArray[np.intp]) -> Examples:
        return Examples(self.X[rows], self.y[rows], None if self.groups is None else self.groups[rows])

    def digest(self) -> str:
        """A checksum of all values."""
        return digest_rows(self.X, self.y, *(() if self.groups is None else (self.groups,)))


def digest_rows(X: Any, *columns: npt.NDArray[Any]) -> str:
    """A checksum of all values of rows, and of what else there is for each row."""
    arrays = [X.data, X.indices, X.indptr] if sp.issparse(X) else [X]
    digest = hashlib.sha256(str(X.shape).encode())
    for array in (*arrays, *columns):
        values = np.ascontiguousarray(array)
        values = values.astype(str) if values.dtype.hasobject else values
        digest.update(f"{values.dtype.str}{values.shape}".encode())
        digest.update(values.tobytes())
    return digest.hexdigest()


def judged(metric: str, truth: npt.NDArray[Any], answers: npt.NDArray[Any]) -> float:
    """A metric of answers; less is better. The logistic loss is of margins, and of whether they should be positive."""
    if metric == "test error":
        return float(np.mean(truth != answers))
    if metric == "squared error":
        return float(np.mean((truth - answers) ** 2))
    if metric == "half squared error":
        return float(np.mean((truth - answers) ** 2)) / 2
    if metric == "logistic loss":
        signs = np.where(truth, 1.0, -1.0)
        return float(np.logaddexp(0.0, -signs * answers).mean())
    if metric != "1 − R²":
        raise ValueError(f"unknown metric {metric!r}")
    spread = float(np.sum((truth - truth.mean()) ** 2))
    if spread == 0:
        raise ValueError("all test rows have the same target, so 1 − R² is undefined; use more test rows")
    return float(np.sum((truth - answers) ** 2)) / spread


def null_answers(task: str, targets: npt.NDArray[Any], count: int) -> npt.NDArray[Any]:
    """The commonest class, or the mean, for every row."""
    if task == "regression":
        return np.full(count, targets.mean())
    classes, counts = np.unique(targets, return_counts=True)
    return np.full(count, classes[counts.argmax()])


@contextmanager
def record_warnings() -> Iterator[list[str]]:
    """What fits warn of, each once, kept instead of printed."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield texts
    for warning in caught:
        if issubclass(warning.category, UserWarning) and str(warning.message) not in texts:
            texts.append(str(warning.message))
