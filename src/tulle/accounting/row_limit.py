"""How many rows a private sum may have: beyond, the raised sensitivity does not cover the rounding of sums.

Looked at where the public facts of rows are put together, before anything is billed. Proof:
docs/proofs/floating_point.md, lemma 1.
"""

from __future__ import annotations

# `tulle.trusted.curator.summation_slack` covers n rows and r further roundings of a contribution if r + n² 2^-53 <= 9.
# This leaves room for four.
MOST_ROWS = 200_000_000


def check_row_count(n_rows: int) -> None:
    """Raise where there are too many rows for a private sum in float64. The number of rows is public."""
    if n_rows > MOST_ROWS:
        raise ValueError(
            f"{n_rows:,} rows are more than the {MOST_ROWS:,} for which the rounding of sums is covered by the noise; "
            "fit on fewer rows, drawn at random, or use epsilon=None for a fit without privacy"
        )
