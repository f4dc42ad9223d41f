"""Public rows in memory beside private rows on a cluster: only the method sees them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from collections_of_rows import COLLECTIONS, D, Y, in_memory
from spread_fits import assert_same_fit, model

from tulle import Budget, Ledger, PublicFrequencies
from tulle.methods import KnowledgeTransfer

pytestmark = pytest.mark.usefixtures("client")

PUBLIC = np.random.default_rng(8).uniform(-0.3, 0.3, (200, D))
METHODS: dict[str, Any] = {"fit again": "fit_again", "dense teacher": KnowledgeTransfer(variant="dense")}


@pytest.mark.parametrize("collection", ["array", "bag of csr"])
@pytest.mark.parametrize("method", METHODS)
def test_the_fit_of_the_same_rows_in_memory(method: str, collection: str) -> None:
    here, there = (in_memory(collection), Y), COLLECTIONS[collection](Y)
    found = assert_same_fit(model(METHODS[method]), here, there, public=PUBLIC)
    assert any("public" in line and "private rows" in line for line in found.privacy_.assumptions)


def test_frequencies() -> None:
    frequencies = np.ones(D)
    frequencies[80:] = 0  # private rows have four fifths of the expected share there: the check passes
    rows = in_memory("array"), Y
    found = assert_same_fit(model("auto"), rows, COLLECTIONS["array"](Y), public=PublicFrequencies(frequencies))
    assert found.support_.max() < 80


def test_bad_public_rows_are_refused_before_the_bill() -> None:
    rows, labels = COLLECTIONS["array"](Y)
    with Ledger(Budget(1000.0, 1e-2)) as ledger:
        with pytest.raises(ValueError, match="are the private rows"):
            model("auto").fit(rows, labels, public=rows)
        with pytest.raises(ValueError, match=f"public has {D - 1} columns"):
            model("auto").fit(rows, labels, public=PUBLIC[:, 1:])
        with pytest.raises(ValueError, match="makes no use of public rows"):
            model("frank_wolfe").fit(rows, labels, public=PUBLIC)
    assert ledger.fits == []
