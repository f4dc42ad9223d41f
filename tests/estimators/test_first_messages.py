"""Messages that newcomers meet in Python: they say what to do, by means that keep the promise."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.model_selection import GridSearchCV

from tulle import Bounds, Budget, Ledger, PrivatePipeline, Schema, SparseClassifier, SparseRegressor
from tulle.ledgers.ledger import BudgetExceededError
from tulle.methods import METHODS

X = np.random.default_rng(0).uniform(-1, 1, (500, 4))
Y = np.where(X[:, 0] > 0, "yes", "no")
BOUNDS = Bounds(row_linf=1.0, label=1.0)


@pytest.mark.parametrize("form", ["array", "sparse", "DataFrame", "objects", "list"])
def test_missing_numbers_are_for_a_schema_or_a_private_step(form: str) -> None:
    """No imputer of scikit-learn is named, which would look at other rows."""
    holes = X.copy()
    holes[3, 2] = np.nan
    forms: dict[str, Any] = {
        "array": holes,
        "sparse": sp.csr_array(holes),
        "DataFrame": pd.DataFrame(holes),
        "objects": pd.DataFrame(holes).astype(object).where(np.isfinite(holes), None),
        "list": holes.tolist(),
    }
    with pytest.raises(ValueError, match="Input X contains NaN") as refused:
        SparseClassifier(bounds=BOUNDS).fit(forms[form], Y)
    said = str(refused.value)
    assert all(
        word in said for word in ("tulle.Schema", "tulle.PrivatePipeline", "PrivateImputer", "would be a release")
    )
    assert not re.search("SimpleImputer|imputer transformer|HistGradientBoosting|dropna", said)


def test_text_is_for_a_schema() -> None:
    with pytest.raises(
        ValueError, match=r"text in column 'ward' .*; declare its categories or words in a tulle.Schema"
    ):
        SparseClassifier(bounds=BOUNDS).fit(pd.DataFrame({"age": X[:, 0], "ward": Y}), Y)


@pytest.mark.parametrize("cls", [SparseClassifier, SparseRegressor])
@pytest.mark.filterwarnings("ignore:.*no better than guessing")
def test_methods_for_delta_0_are_named(cls: Any) -> None:
    """Those that the message names, and no others, fit with their defaults."""
    targets = Y if cls is SparseClassifier else X[:, 0]
    said, pure = set(), set()
    for name in METHODS:
        try:
            model = cls(1.0, 0.0, method=name, bounds=BOUNDS).fit(X, targets)
        except ValueError as error:
            said.add(str(error).split("pure mechanisms only")[1])
        else:
            assert model.privacy_.delta == 0
            pure.add(name)
    (words,) = said
    assert set(re.findall("'([a-z_]+)'", words)) == pure


def test_a_fit_that_needs_a_delta_is_told_what_to_do() -> None:
    with (
        Ledger(Budget(3.0, 0.0)),
        pytest.raises(BudgetExceededError, match="needs no delta, such as method='auto' with delta=0"),
    ):
        SparseClassifier(bounds=BOUNDS).fit(X, Y)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"classes": [np.str_("yes")]}, "got ['yes']"),
        ({"classes": np.array(["yes", "yes"])}, "got ['yes', 'yes']"),
        ({"class_weight": {np.str_("ja"): 1.0}}, "class_weight names 'ja'"),
        ({"class_weight": {np.str_("yes"): np.float64(-2)}}, "got -2.0 for 'yes'"),
        ({"always": [np.str_("age")]}, "always names 'age'"),
        ({"method": np.str_("lasso")}, "method='lasso'"),
        ({"epsilon": np.float64(-1.0)}, "got -1.0"),
        ({"delta": np.float64(2.0)}, "got 2.0"),
    ],
    ids=lambda given: "" if isinstance(given, dict) else given,
)
def test_messages_do_not_show_types_of_numpy(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as refused:
        SparseClassifier(bounds=BOUNDS).set_params(**settings).fit(X, Y)
    assert "np." not in str(refused.value)


def test_a_class_that_is_not_there_is_named_plainly() -> None:
    labels = np.array(["a", "b", "c"])[np.arange(len(X)) % 3]
    model = SparseClassifier(None, bounds=BOUNDS).fit(X, labels)
    with pytest.raises(ValueError, match=r"of='z' is none of the model's classes \['a', 'b', 'c'\]"):
        model.named_weights(of=np.str_("z"))


def test_workers_under_a_ledger_are_the_last_word() -> None:
    """scikit-learn reports that the model may be misconfigured; the reason is the error that is raised."""
    search = GridSearchCV(SparseClassifier(0.5, bounds=BOUNDS), {"n_nonzero": [1, 2]}, n_jobs=2, cv=2)
    with (
        pytest.raises(
            BudgetExceededError, match=r"^fits in other processes .* released nothing. .*n_jobs=1"
        ) as refused,
        Ledger(Budget(3.0, 1e-5)) as ledger,
    ):
        search.fit(X, Y)
    assert "misconfigured" in str(refused.value.__cause__)
    assert ledger.share == 0


def test_other_errors_leave_a_ledger_as_they_are() -> None:
    with pytest.raises(ValueError, match=r"^other$"), Ledger(Budget(3.0, 1e-5)):
        raise ValueError("other")


def test_a_schema_bounds_the_rows_of_a_pipeline() -> None:
    """Nothing is spent on estimates of what the schema says; bounds of the model come first."""
    schema = Schema({"a": {"range": [-1, 1]}, "b": {"range": [-1, 1]}, "*": "ignore"})
    frame = pd.DataFrame(X, columns=list("abcd"))
    for given, stated in (
        (None, "Euclidean norm 1.414 (declared)"),
        (Bounds(row_l2=0.5), "Euclidean norm 0.5 (declared)"),
    ):
        model = SparseClassifier(bounds=given, classes=["no", "yes"])
        fitted = PrivatePipeline([("schema", schema), ("model", model)], epsilon=8.0).fit(frame, Y)
        assert not any("quantile" in line.release for line in fitted.privacy_.bill)
        assert any(stated in line for line in fitted.privacy_.assumptions)
