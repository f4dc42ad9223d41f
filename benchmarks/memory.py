"""The peak memory of fits, beyond the user's rows and one transposed copy of them, in vectors of length d.

Copies of the columns that a method works on are counted too: popular columns together can be half of the rows. So are
numbers for each row. How much these are is told by a fit of the same rows and as many without entries: all that grows
is such numbers.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from timing import LARGE, Line, named, peak_bytes, print_lines, rcv1, text_rows, transposed_bytes

from tulle import Bounds, SparseClassifier
from tulle.methods import FrankWolfe, HardThresholding, StochasticHardThresholding
from tulle.trusted.events import FloatArray

KEPT = 100


def peak_vectors(model: SparseClassifier, X: Any, y: FloatArray) -> float:
    """The peak of a fit beyond a transposed copy, in vectors of length d."""
    return (peak_bytes(lambda: model.fit(X, y)) - transposed_bytes(X)) / (8 * X.shape[1])


def measure() -> Iterator[Line]:
    warnings.simplefilter("ignore")  # that models of noise alone are no better than guessing is known here
    for name, X, y in (rcv1(), (named(LARGE), *text_rows(LARGE))):
        longer, twice = sp.vstack([X, sp.csr_array(X.shape)], format="csr"), np.concatenate([y, y])
        for called, kept, method in (
            ("the default", None, "auto"),  # with its own number of weights
            ("HardThresholding", KEPT, HardThresholding(n_iter=5, noise="gaussian")),
            ("screen_refine", KEPT, "screen_refine"),
            ("FrankWolfe", KEPT, FrankWolfe(radius=50.0, n_iter=20, noise="selection", engine="incremental")),
            ("StochasticHardThresholding", KEPT, StochasticHardThresholding(batch=256, passes=2560 / X.shape[0])),
        ):
            model = SparseClassifier(
                4.0, 1e-5, n_nonzero=kept, method=method, bounds=Bounds(row_l2=1.0), random_state=0
            )
            model.fit(X[:500], y[:500])  # imports and compiled loops are not counted
            vectors = peak_vectors(model, X, y)
            what = f"memory of {called}, {name}"
            yield f"{what}: peak beyond a transposed copy, in vectors of length d", vectors, "<= 12"
            for_rows = peak_vectors(model, longer, twice) - vectors
            yield f"{what}: numbers for each row in it, in vectors of length d", for_rows, "(no target)"


if __name__ == "__main__":
    print_lines(measure())
