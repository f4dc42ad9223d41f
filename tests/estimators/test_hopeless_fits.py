"""Fits that are expected to learn nothing: a warning before anything is spent."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from test_sparse import both

import tulle.trusted.fit
from tulle import Bounds, Budget, Ledger, SparseClassifier
from tulle.estimators.beforehand import is_hopeless
from tulle.methods.loss_functions import resolve_loss

GUESSING = r"rows of .* features at epsilon = .*: the model is expected to be no better than guessing"


def leukemia_like(shape: tuple[int, int] = (72, 7129)) -> tuple[Any, Any]:
    """Far more features than rows."""
    return np.random.default_rng(0).standard_normal(shape), np.arange(shape[0]) % 2


def guessing_is_expected(model: Any, shape: tuple[int, int]) -> bool:
    """Whether a fit of rows of this shape would warn, from the model and the shape alone."""
    loss = resolve_loss(model.loss, "classification" if isinstance(model, SparseClassifier) else "regression")
    return is_hopeless(model._request(loss, shape[0]).plan_all(shape))


@both
@pytest.mark.parametrize(
    "method",
    [
        "auto",
        "fit_again",
        "screen_refine",
        "hard_thresholding",
        "frank_wolfe",
        "coordinate_descent",
        "knowledge_transfer",
    ],
)
@pytest.mark.parametrize("bounds", [Bounds(normalise=True, label=1.0), Bounds(row_l2=90.0, label=1.0)], ids=str)
def test_a_fit_that_can_only_guess_warns_before_it_spends(
    monkeypatch: pytest.MonkeyPatch, cls: Any, method: Any, bounds: Bounds
) -> None:
    """72 rows of 7,129 features at epsilon = 1. As an error, the warning leaves an open ledger unbilled."""
    rows, labels = leukemia_like()
    model = cls(1.0, 1e-5, method=method, bounds=bounds)
    assert guessing_is_expected(model, rows.shape)
    with pytest.warns(UserWarning, match=f"^72 {GUESSING}, .* use more rows, fewer features or a larger epsilon"):
        model.fit(rows, labels)

    def refuse(*arguments: Any) -> Any:
        raise AssertionError("a generator was made: noise would have been drawn")

    monkeypatch.setattr(tulle.trusted.fit, "keyed_generator", refuse)
    with Ledger(Budget(10.0, 1e-5)) as ledger, warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="no better than guessing"):
            clone(model).fit(rows, labels)
    assert ledger.fits == []


def test_the_warning_names_the_line_that_called_fit() -> None:
    """Not a line within tulle."""
    rows, labels = leukemia_like((30, 2000))
    with pytest.warns(UserWarning, match="no better than guessing") as caught:
        SparseClassifier(0.1, 1e-5, bounds=Bounds(row_l2=1.0)).fit(rows, labels)
    assert [one.filename for one in caught if "guessing" in str(one.message)] == [__file__]


@both
def test_whether_a_fit_warns_does_not_depend_on_the_rows(cls: Any) -> None:
    """Rows that one feature explains and rows of zeros: both warn, or neither does."""
    for n, expected in ((30, True), (3000, False)):
        labels = np.arange(n) % 2
        clear = np.zeros((n, 40))
        clear[:, 0] = 2 * labels - 1
        for rows in (clear, np.zeros((n, 40))):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                cls(1.0, 1e-5, n_nonzero=2, bounds=Bounds(row_l2=1.0, label=1.0)).fit(rows, labels)
            assert any("no better than guessing" in str(one.message) for one in caught) == expected


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0, None])
def test_the_demo_does_not_warn(epsilon: float | None) -> None:
    """20,242 rows of 47,236 features with row_l2 = 1, as in examples/demo.py, at all of its budgets."""
    rows = sp.random_array((20_242, 47_236), density=1e-6, random_state=np.random.default_rng(0), format="csr")
    model = SparseClassifier(epsilon, 1e-5, n_nonzero=1000, bounds=Bounds(row_l2=1.0))
    assert epsilon is None or not guessing_is_expected(model, rows.shape)
    if epsilon is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model.fit(rows, np.arange(20_242) % 2)


@both
def test_a_model_without_weights_says_so(cls: Any) -> None:
    """Post-processing of what is released: a warning that names the line that called fit, and a line of the report."""
    rows, labels = np.zeros((50, 3)), np.arange(50) % 2
    with pytest.warns(
        UserWarning, match="^all weights are zero: the model predicts a constant for all rows; "
    ) as caught:
        model = cls(None, method="hard_thresholding").fit(rows, labels)
    assert [one.filename for one in caught] == [__file__]
    assert "All weights are zero: the model predicts a constant." in " ".join(str(model.privacy_).split())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        clear = cls(None, method="hard_thresholding").fit(labels[:, None] - 0.5, labels)
    assert caught == []
    assert "weights are zero" not in str(clear.privacy_)


def test_undeclared_bounds_warn_only_if_no_bound_could_help() -> None:
    """Before they are estimated, the best shape that the rows can have counts: few of many dense features."""
    assert guessing_is_expected(SparseClassifier(0.1, 1e-5, n_nonzero=2), (72, 7129))
    for method, epsilon in (("auto", 5.0), ("screen_refine", 8.0)):
        model = SparseClassifier(epsilon, 1e-5, n_nonzero=2, method=method)
        assert not guessing_is_expected(model, (72, 7129))
        assert guessing_is_expected(model.set_params(bounds=Bounds(row_l2=1.0)), (72, 7129))
    assert guessing_is_expected(SparseClassifier(0.1, 1e-5), (72, 7129))
