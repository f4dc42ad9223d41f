"""The peak memory of fits, beyond the user's rows and one transposed copy of them, in vectors of length d.

Copies of the columns that a method works on are counted too: popular columns together can be half of the rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

from timing import LARGE, Line, named, peak_bytes, print_lines, rcv1, text_rows, transposed_bytes

from tulle import Bounds, SparseClassifier
from tulle.methods import FrankWolfe, HardThresholding, StochasticHardThresholding

KEPT = 100


def measure() -> Iterator[Line]:
    warnings.simplefilter("ignore")  # that models of noise alone are no better than guessing is known here
    for name, X, y in (rcv1(), (named(LARGE), *text_rows(LARGE))):
        for method, target in (
            (HardThresholding(n_iter=5, noise="gaussian"), "<= 6"),
            ("screen_refine", "<= 6"),
            (FrankWolfe(radius=50.0, n_iter=20, noise="selection", engine="incremental"), "<= 6"),
            (StochasticHardThresholding(batch=256, passes=2560 / X.shape[0]), "<= 6"),
        ):
            model = SparseClassifier(4.0, 1e-5, n_nonzero=KEPT, method=method, bounds=Bounds(row_l2=1.0))
            model.fit(X[:500], y[:500])  # imports and compiled loops are not counted
            peak = peak_bytes(lambda model=model, X=X, y=y: model.fit(X, y))  # type: ignore[misc]
            vectors = (peak - transposed_bytes(X)) / (8 * X.shape[1])
            what = method if isinstance(method, str) else type(method).__name__
            yield f"memory of {what}, {name}: peak beyond a transposed copy, in vectors of length d", vectors, target


if __name__ == "__main__":
    print_lines(measure())
