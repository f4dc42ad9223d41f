"""The fit without privacy (epsilon=None) of 20 classes next to scikit-learn's SGDClassifier on the same rows.

Uses the 20 newsgroups where TULLE_DATA names their folder, otherwise generated rows of about the same shape. Processor
time, one thread.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from development_sets import read_news
from sklearn.linear_model import SGDClassifier
from timing import Line, n_threads, print_lines, ratio, text_rows

from tulle import SparseClassifier


def read_rows() -> tuple[str, Any, Any]:
    try:
        return "20 newsgroups, 11,314 × 32,768", *read_news()[:2]
    except FileNotFoundError:
        X, _ = text_rows((11_314, 32_768, 140))
        return "generated rows, 11,314 × 32,768", X, np.random.default_rng(0).integers(20, size=X.shape[0])


def measure() -> Iterator[Line]:
    with n_threads(1):
        name, X, y = read_rows()
        first, second = SparseClassifier(epsilon=None), SGDClassifier(loss="log_loss", random_state=0)
        times = ratio(partial(first.fit, X, y), partial(second.fit, X, y), rounds=3, clock=time.process_time)
        yield f"{name}: fit of 20 classes without privacy, times SGDClassifier's", times, "<= 8"


if __name__ == "__main__":
    print_lines(measure())
