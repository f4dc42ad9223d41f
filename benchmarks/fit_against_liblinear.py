"""A private fit beside scikit-learn's non-private ℓ1 logistic regression on the same rows, and its memory.

Uses the RCV1 subset where TULLE_DATA names its folder, otherwise generated rows of the same shape.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from tulle import Bounds, SparseClassifier
from tulle.datasets import load_rcv1_subset, rcv1_like


def _seconds(model: Any, X: Any, y: Any) -> float:
    start = time.perf_counter()
    model.fit(X, y)
    return time.perf_counter() - start


def measure(rounds: int = 7) -> Iterator[tuple[str, float, str]]:
    try:
        data = load_rcv1_subset()
        name, X, y = "RCV1 subset", data.X_train, data.y_train
    except FileNotFoundError:
        name, (X, y) = "rows of RCV1's shape", rcv1_like()
    liblinear = LogisticRegression(l1_ratio=1.0, solver="liblinear")
    for epsilon in (1.0, 2.0, 8.0):
        private = SparseClassifier(epsilon, 1e-5, n_nonzero=1000, bounds=Bounds(row_l2=1.0))
        private.fit(X, y)
        ratios = [_seconds(private, X, y) / _seconds(liblinear, X, y) for _ in range(rounds)]
        yield (
            f"{name}: private fit at epsilon {epsilon:g}, times liblinear's l1 fit",
            float(np.median(ratios)),
            "<= 1.0",
        )
    tracemalloc.start()
    private.fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    copy = X.data.nbytes + X.indices.nbytes + (X.shape[1] + 1) * X.indptr.itemsize
    vectors = (peak - copy) / (8 * X.shape[1])
    yield f"{name}: peak memory beyond one transposed copy, in vectors of length d", vectors, "6 (later)"
    chosen = X[:, private.support_]
    copies = (peak - copy) / (chosen.data.nbytes + chosen.indices.nbytes)
    yield f"{name}: the same, in copies of the columns that were chosen", copies, "a few"
