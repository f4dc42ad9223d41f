"""A private fit beside scikit-learn's non-private ℓ1 logistic regression on the same rows.

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
    for epsilon in (1.0, 2.0, 8.0):
        private = SparseClassifier(epsilon, 1e-5, n_nonzero=1000, bounds=Bounds(row_l2=1.0))
        times = ratio(partial(private.fit, X, y), partial(liblinear.fit, X, y))
        yield f"{name}: private fit at epsilon {epsilon:g}, times liblinear's l1 fit", times, "<= 1.0"


if __name__ == "__main__":
    print_lines(measure())
