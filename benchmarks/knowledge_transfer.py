"""Knowledge transfer beside what it is made of, on rows of RCV1's shape, half of them public."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tulle import Bounds, SparseClassifier
from tulle.datasets import rcv1_like
from tulle.methods import KnowledgeTransfer
from tulle.public_features import leading_directions


def _seconds(job: Callable[[], Any]) -> float:
    start = time.perf_counter()
    job()
    return time.perf_counter() - start


def measure(rounds: int = 3) -> Iterator[tuple[str, float, str]]:
    X, y = rcv1_like()
    half = X.shape[0] // 2
    rows, targets, public = X[:half], y[:half], X[half:]

    def model(method: Any) -> SparseClassifier:
        return SparseClassifier(2.0, 1e-5, n_nonzero=500, method=method, bounds=Bounds(row_l2=1.0), random_state=0)

    sparse, dense = model(KnowledgeTransfer(features=public)), model(KnowledgeTransfer("dense", public, directions=400))
    plain = model("screen_refine").fit(rows, targets)
    ratios = [
        _seconds(lambda: sparse.fit(rows, targets)) / _seconds(lambda: plain.fit(rows, targets)) for _ in range(rounds)
    ]
    yield "knowledge transfer, sparse: a fit, times screen and refine", float(np.median(ratios)), "a few"
    ratios = [
        _seconds(lambda: dense.fit(rows, targets)) / _seconds(lambda: leading_directions(public, 400))
        for _ in range(rounds)
    ]
    what = "knowledge transfer, dense in 400 directions: a fit, times finding the directions"
    yield what, float(np.median(ratios)), "<= 2"
    answers = _seconds(lambda: dense.release_synthetic(public)) / _seconds(lambda: dense.fit(rows, targets))
    yield f"{public.shape[0]:,} synthetic answers, times the fit", answers, "<= 0.1"
