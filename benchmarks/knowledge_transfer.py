"""Knowledge transfer next to what it is made of, on rows of RCV1's shape, half of them public."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from timing import SMALL, Line, print_lines, ratio, seconds, text_rows

from tulle import Bounds, SparseClassifier
from tulle.methods import KnowledgeTransfer
from tulle.transfer.public_features import leading_directions


def measure(rounds: int = 3) -> Iterator[Line]:
    X, y = text_rows(SMALL)
    half = X.shape[0] // 2
    rows, targets, public = X[:half], y[:half], X[half:]

    def model(method: Any) -> SparseClassifier:
        return SparseClassifier(2.0, 1e-5, n_nonzero=500, method=method, bounds=Bounds(row_l2=1.0), random_state=0)

    sparse, dense = model(KnowledgeTransfer(features=public)), model(KnowledgeTransfer("dense", public, directions=400))
    plain = model("screen_refine")
    times = ratio(lambda: sparse.fit(rows, targets), lambda: plain.fit(rows, targets), rounds)
    yield "knowledge transfer, sparse: a fit, times screen and refine", times, "a few"
    times = ratio(lambda: dense.fit(rows, targets), lambda: leading_directions(public, 400), rounds)
    yield "knowledge transfer, dense in 400 directions: a fit, times finding the directions", times, "<= 2"
    answers = seconds(lambda: dense.release_synthetic(public)) / seconds(lambda: dense.fit(rows, targets))
    yield f"{public.shape[0]:,} synthetic answers, times the fit", answers, "<= 0.1"


if __name__ == "__main__":
    print_lines(measure())
