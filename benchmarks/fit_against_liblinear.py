"""A private fit next to scikit-learn's non-private ℓ1 logistic regression on the same rows.

Uses the RCV1 subset where TULLE_DATA names its folder, otherwise generated rows of the same shape.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from sklearn.linear_model import LogisticRegression
from timing import Line, print_lines, ratio, rcv1

from tulle import Bounds, SparseClassifier


def measure() -> Iterator[Line]:
    name, X, y = rcv1()
    liblinear = LogisticRegression(l1_ratio=1.0, solver="liblinear")
    for weights, target in ((1000, "<= 1.0"), (None, "<= 2.0")):
        for epsilon in (1.0, 8.0):
            private = SparseClassifier(epsilon, 1e-5, n_nonzero=weights, bounds=Bounds(row_l2=1.0))
            times = ratio(partial(private.fit, X, y), partial(liblinear.fit, X, y))
            kept = "number of weights by default" if weights is None else f"{weights:,} weights"
            yield f"{name}: private fit at epsilon {epsilon:g}, {kept}, times liblinear's l1 fit", times, target
    X, y, public = X[3000:], y[3000:], X[:3000]
    for epsilon in (1.0, 8.0):
        private = SparseClassifier(epsilon, 1e-5, n_nonzero=1000, bounds=Bounds(row_l2=1.0))
        times = ratio(partial(private.fit, X, y, public=public), partial(liblinear.fit, X, y))
        yield (
            f"{name}: the same at epsilon {epsilon:g} with 3,000 public rows, times liblinear's l1 fit",
            times,
            "<= 4.0",
        )


if __name__ == "__main__":
    print_lines(measure())
