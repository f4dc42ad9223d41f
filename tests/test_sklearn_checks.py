"""scikit-learn's own checks on both estimators: no failures, and no expected failures either."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from tulle import Bounds, SparseClassifier, SparseRegressor

# The checks use features of a few units and labels of a few hundred at most; whatever lies outside is clipped.
BOUNDS = Bounds(row_l2=10.0, row_linf=5.0, label=100.0)

ESTIMATORS = [
    SparseClassifier(),
    SparseRegressor(),
    SparseClassifier(epsilon=None),
    SparseRegressor(epsilon=None),
    SparseClassifier(bounds=BOUNDS),
    SparseRegressor(bounds=BOUNDS),
    SparseClassifier(loss="squared_hinge"),
    SparseRegressor(loss="huber"),
]


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_check(estimator: Any, check: Callable[[Any], None]) -> None:
    """Every check that scikit-learn has for an estimator of this kind passes."""
    check(estimator)


@pytest.mark.parametrize("estimator", [SparseClassifier(), SparseRegressor()], ids=lambda e: type(e).__name__)
def test_the_checks_cover_sparse_rows_and_expect_no_failure(estimator: Any) -> None:
    """The generated list holds the checks on sparse rows, on pickling, on cloning, and nothing is marked xfail."""
    checks = list(estimator_checks_generator(estimator, mark="xfail"))
    names = {getattr(check, "func", check).__name__ for _, check in checks}
    assert {"check_estimator_sparse_array", "check_estimator_sparse_matrix", "check_estimators_pickle"} <= names
    assert {"check_estimator_cloneable", "check_parameters_default_constructible"} <= names
    assert all(isinstance(item, tuple) for item in checks), "pytest.param objects would carry an xfail mark"
