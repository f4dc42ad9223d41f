"""Parts of an objective that are made from runs of rows are those of all rows at once."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from tulle.fast.rows_in_memory import RowsInMemory
from tulle.methods.loss_functions import Logistic
from tulle.trusted.facts import PublicFacts
from tulle.trusted.objectives import Minimiser
from tulle.trusted.rows import Rows

N, D = 700, 40
RNG = np.random.default_rng(0)
MATRIX: Any = sp.random_array((N, D), density=0.2, format="csr", rng=RNG)
TARGETS = np.sign(RNG.standard_normal(N))
ACTIVE = np.arange(N) % 7 != 3
FACTS = PublicFacts(N, D, 5, Logistic(), None, row_l2=1.0, row_linf=1.0, label=1.0, fit_intercept=True)


def parts_of(rows: Rows, features: Any) -> Any:
    question = Minimiser(np.asarray(features), 0.5, 0.4, 1.0, np.zeros(len(features) + 1), 0.2)
    return rows.derive(partial(question._parts, public=FACTS)).items


@pytest.mark.parametrize("bounds", [(), (0.5,), (0.5, 0.7)], ids=["as given", "entries clipped", "rows clipped too"])
@pytest.mark.parametrize("features", [np.arange(D), np.arange(0, D, 2), np.arange(D)[::-1], [3, 5]])
@pytest.mark.parametrize("form", ["csr", "csc"])
def test_parts_of_runs_are_the_parts_of_all_rows(bounds: tuple[float, ...], features: Any, form: str) -> None:
    """To the last bit; a row that does not count is zeros, and the columns are made again as they were."""
    given = MATRIX.asformat(form).copy()
    given.data[5] = np.nan  # its row counts as nothing
    before = given.data.copy()
    runs, whole = RowsInMemory(given, TARGETS, ACTIVE), Rows(given, TARGETS, ACTIVE)
    for rows in (runs, whole):
        for clip, bound in zip((rows.clip_entries, rows.clip_rows), bounds):
            clip(bound)
    made, expected = parts_of(runs, features), parts_of(whole, features)
    assert len(made) == (3 if form == "csr" and len(features) > 2 and features[0] == 0 else 1)
    joined = sp.vstack([part.features for part in made], format="csr")
    np.testing.assert_array_equal(joined.toarray(), expected[0].features.toarray())
    np.testing.assert_array_equal(np.concatenate([part.targets for part in made]), expected[0].targets)
    (again,), (first,) = runs.blocks, whole.blocks
    np.testing.assert_array_equal(again.margins(np.ones((D, 1)), 0.0), first.margins(np.ones((D, 1)), 0.0))
    np.testing.assert_array_equal(again.gather(np.ones((N, 1))), first.gather(np.ones((N, 1))))
    np.testing.assert_array_equal(given.data, before)


def test_columns_are_dropped_while_parts_are_made() -> None:
    rows = RowsInMemory(MATRIX, TARGETS)
    parts_of(rows, np.arange(D))
    assert not {"_csc", "_transposed"} & set(vars(rows.blocks[0]))
