"""Hazards of people at several clients: the same rows, and so the same fit, as in one place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from test_aggregator import ENDS, QUICK, Houses, N, X, assert_same

from tulle import Bounds, SparseClassifier
from tulle.survival import expand_periods


def test_hazards_of_people_at_clients(tmp_path: Path) -> None:
    """Each client expands its own people, of whom some have the event in the first or in the second period."""
    people = X[: N // 2]
    times = np.random.default_rng(0).uniform(0, 90, N // 2)
    made = expand_periods(people, np.column_stack([times, times < 70]), [0, 30, 60], half_periods=False)
    assert {None, 0, 1} == set(made.y)
    labels = np.array([-1 if label is None else label for label in made.y])  # -1 is no declared class
    there = Houses(tmp_path, made.X, labels, settings={"rows_per_person": 2}, groups=made.groups)
    bounds = Bounds(row_l2=2.0, rows_per_person=2)
    unfitted = SparseClassifier(
        3.0, method=QUICK, n_nonzero=8, bounds=bounds, classes=[0, 1], fit_intercept=False, random_state=0
    )
    found = assert_same(unfitted, (made.X, labels), there.rows(), groups=made.groups)
    assert "at most 2 rows" in found.privacy_.unit
    assert all(len(there.ledger(name).entries) == 1 for name in ENDS)
