"""Warnings about what is asked for, from public quantities alone and before anything is spent."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from tulle import Bounds, Budget, Ledger, PrivateSearch, SparseClassifier, SparseRegressor, private_score
from tulle.files.error_messages import PrivacyWarning
from tulle.ledgers.ledger import BudgetExceededError

N = 400
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (N, 3))
Y = X[:, 0] - X[:, 1] + 0.1 * RNG.standard_normal(N)
BOUNDS = Bounds(row_linf=1.0, label=3.0)
PEOPLE = np.arange(N) // 2


def messages(act: Callable[[], Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        act()
    return [str(warning.message) for warning in caught if __file__ == warning.filename]


def regressor(epsilon: float | None = 1.0, **bounds: Any) -> SparseRegressor:
    settings = {"row_linf": 1.0, "label": 3.0, **bounds}
    return SparseRegressor(epsilon, 1e-5, n_nonzero=2, bounds=Bounds(**settings), random_state=0)


LARGE: dict[str, Callable[[float], Any]] = {
    "a regression": lambda epsilon: regressor(epsilon).fit(X, Y),
    "a classification": lambda epsilon: SparseClassifier(epsilon, bounds=BOUNDS, random_state=0).fit(X, Y > 0),
    "bounds": lambda epsilon: Bounds.estimate(X, epsilon=epsilon, random_state=0),
    "a score": lambda epsilon: private_score(regressor(1.0).fit(X, Y), X, Y, epsilon=epsilon, random_state=0),
    "a search": lambda epsilon: PrivateSearch(
        regressor(), {"n_nonzero": [1, 2]}, budget=Budget(epsilon, 1e-5), random_state=0
    ).fit(X, Y),
}


@pytest.mark.parametrize("what", LARGE)
def test_an_epsilon_above_20_warns(what: str) -> None:
    """Once, at the user's own line; not at 20."""
    found = [text for text in messages(lambda: LARGE[what](20.5)) if "is above 20" in text]
    assert found == [
        "epsilon = 20.5 is above 20: odds about a person may change by a factor of e^20.5, which is hardly a "
        "guarantee; use a smaller epsilon"
    ]
    assert not any("is above 20" in text for text in messages(lambda: LARGE[what](20.0)))


def test_a_fit_without_privacy_has_no_epsilon_to_warn_of() -> None:
    assert messages(lambda: regressor(None, row_linf=1e8).fit(X, Y)) == []


@pytest.mark.parametrize(
    ("name", "value", "warns"),
    [
        ("row_l2", 1e6, False),
        ("row_l2", 1.1e6, True),
        ("row_linf", 2e6, True),
        ("row_linf", 1e-7, True),
        ("label", 1e9, False),
        ("label", 2e9, True),
        ("label", 1e-7, True),
    ],
)
def test_bounds_beyond_reason_warn(name: str, value: float, warns: bool) -> None:
    """By public limits; the fit goes on."""
    found = [text for text in messages(lambda: regressor(**{name: value}).fit(X, Y)) if "outside of" in text]
    assert len(found) == warns
    assert all(text.startswith(f"Bounds({name}={value:g}) is outside of [1e-06, ") for text in found)


def test_warnings_come_before_anything_is_spent() -> None:
    """As errors they stop the fit, and no ledger is billed; and a refused fit has warned before."""
    with Ledger(Budget(100.0, 1e-3)) as ledger:
        for act in (lambda: regressor(30.0).fit(X, Y), lambda: regressor(row_l2=1e9).fit(X, Y)):
            with warnings.catch_warnings(action="error"), pytest.raises((PrivacyWarning, UserWarning)):
                act()
    assert ledger.fits == []
    with Ledger(Budget(1.0, 1e-3)), pytest.raises(BudgetExceededError), pytest.warns(PrivacyWarning, match="above 20"):
        regressor(30.0).fit(X, Y)


def test_one_row_of_each_person_is_said() -> None:
    """In a warning and in the report's unit; with more rows a person, or without ids, the words are others."""
    model = regressor()
    (said,) = messages(lambda: model.fit(X, Y, groups=PEOPLE))
    assert said.startswith("groups are given and rows_per_person is 1: one row of each person is used, the first")
    assert model.privacy_.unit.startswith("one person, of whom one row is used (how many rows they have is not prot")
    assert messages(lambda: model.fit(X, Y)) == []
    assert model.privacy_.unit.startswith("one row; ")
    several = regressor(rows_per_person=2)
    assert not any("groups" in said for said in messages(lambda: several.fit(X, Y, groups=PEOPLE)))
    assert several.privacy_.unit.startswith("one person with at most 2 rows")


def test_what_is_said_of_one_row_is_true() -> None:
    """The first row of a person counts, and all that is in the others is nothing."""
    other = X.copy()
    other[1::2] = RNG.uniform(-1, 1, (N // 2, 3))
    one, two = (regressor().fit(rows, Y, groups=PEOPLE) for rows in (X, other))
    np.testing.assert_array_equal(one.coef_, two.coef_)


UNITS = "rows are dense and no bound on them is declared"


def test_dense_rows_without_a_declared_bound_are_warned_of() -> None:
    """One column in other units would outweigh all others: by the form of the rows alone, before the bill."""
    fit = SparseRegressor(1.0, 1e-5, bounds=Bounds(label=3.0), random_state=0).fit
    found = [text for text in messages(lambda: fit(X, Y)) if UNITS in text]
    assert len(found) == 1
    assert "tulle.Schema" in found[0]
    assert "PrivateScaler" in found[0]
    for quiet in (lambda: fit(sp.csr_array(X), Y), lambda: fit(X[:, :1], Y), lambda: regressor().fit(X, Y)):
        assert not any(UNITS in text for text in messages(quiet))
    with Ledger(Budget(1e-3, 1e-9)), pytest.raises(BudgetExceededError), pytest.warns(UserWarning, match=UNITS):
        fit(X, Y)
