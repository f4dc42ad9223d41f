"""Private sums of more rows than rounding is covered for are refused, before anything is billed."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import tulle.accounting.row_limit
from tulle import Bounds, Budget, Ledger, SparseRegressor
from tulle.accounting.row_limit import MOST_ROWS, check_row_count
from tulle.federated import LinearTerms
from tulle.methods import HardThresholding
from tulle.methods.loss_functions import facts_without_model
from tulle.trusted.curator import summation_slack
from tulle.tuning.private_score import private_score

BOUNDS = Bounds(row_l2=2.0, row_linf=1.0, label=1.0)


def is_covered(n_rows: int, roundings: int) -> bool:
    """Lemma 1 of docs/proofs/floating_point.md in exact arithmetic, for contributions in [0, B]."""
    unit = Fraction(1, 2**53)
    relative = (n_rows + roundings - 1) * unit
    return 2 * n_rows * relative / (1 - relative) <= n_rows * (n_rows + 8) * 2 * unit


def test_the_limit_is_covered_with_four_further_roundings() -> None:
    assert all(is_covered(n, 4) for n in (1, 1000, 10**6, 10**8, MOST_ROWS))
    assert all(is_covered(n, 8) for n in (1, 1000, 10**6, 10**7))
    assert is_covered(268_000_000, 0)
    assert not is_covered(300_000_000, 0)
    assert not is_covered(2 * MOST_ROWS, 4)
    assert summation_slack(MOST_ROWS) >= 1 + MOST_ROWS * (MOST_ROWS + 8) * 2.0**-52


def test_more_rows_are_refused() -> None:
    check_row_count(MOST_ROWS)
    with pytest.raises(ValueError, match=r"200,000,001 rows are more than the 200,000,000"):
        check_row_count(MOST_ROWS + 1)
    with pytest.raises(ValueError, match="rounding of sums"):
        facts_without_model(MOST_ROWS + 1, 3, 1)
    with pytest.raises(ValueError, match="rounding of sums"):
        LinearTerms(n_features=3, classes=("a", "b"), row_l2=1.0, fit_intercept=False).public(MOST_ROWS + 1)


@pytest.fixture
def _few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tulle.accounting.row_limit, "MOST_ROWS", 50)


@pytest.mark.usefixtures("_few_rows")
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("bounds", [BOUNDS, Bounds()], ids=["declared", "estimated"])
def test_nothing_is_billed(bounds: Bounds) -> None:
    generator = np.random.default_rng(0)
    X, y = generator.uniform(-1, 1, (51, 4)), generator.uniform(-1, 1, 51)
    model = SparseRegressor(epsilon=1.0, delta=1e-4, bounds=bounds, method=HardThresholding(n_iter=2))
    ledger = Ledger(Budget(10.0, 1e-3))
    with ledger, pytest.raises(ValueError, match="51 rows are more than the 50"):
        model.fit(X, y)
    assert ledger.fits == []
    with ledger:
        model.fit(X[:50], y[:50])
        assert len(ledger.fits) == 1
        with pytest.raises(ValueError, match="51 rows are more than the 50"):
            private_score(model, X, y, epsilon=0.1, label=1.0)
        assert len(ledger.fits) == 1
    model.set_params(epsilon=None, delta=None).fit(X, y)
    assert math.isinf(model.privacy_.epsilon)
