"""Features that stay in, and columns that come and go together. See docs/model_features.md."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tulle import Bounds, PrivatePipeline, Schema, SparseClassifier, SparseRegressor

_RNG = np.random.default_rng(0)
WIDE = _RNG.uniform(-1, 1, (2000, 40))
Y_WIDE = WIDE[:, 0] - WIDE[:, 1] + 0.1 * _RNG.standard_normal(2000)
GROUPS = np.repeat(np.arange(10), 4)
RULED = ["auto", "fit_again", "screen_refine", "hard_thresholding"]


@pytest.mark.parametrize("method", RULED)
@pytest.mark.parametrize("epsilon", [0.5, None])
@pytest.mark.parametrize("n_nonzero", [2, 3, 7, None])
@pytest.mark.parametrize("classes", [0, 2, 3])
def test_features_stay_in_whatever_the_rows_say(
    method: str, epsilon: float | None, n_nonzero: int | None, classes: int
) -> None:
    """Of each class, and no more than are asked for in all; the budget is proved."""
    settings: dict[str, Any] = {"always": [17, 30], "n_nonzero": n_nonzero, "method": method, "random_state": 3}
    bounds = Bounds(row_linf=1.0, label=2.0)
    fitted: Any = (
        SparseClassifier(epsilon, classes=range(classes), loss="squared_hinge", bounds=bounds, **settings)
        if classes
        else SparseRegressor(epsilon, bounds=bounds, **settings)
    )
    fitted.fit(WIDE, np.digitize(Y_WIDE, [-0.3, 0.3][: classes - 1]) if classes else Y_WIDE)
    for coef in np.atleast_2d(fitted.coef_):
        assert {17, 30} <= set(np.flatnonzero(coef))
        assert n_nonzero is None or np.count_nonzero(coef) == n_nonzero
    assert any(line.startswith("Features that stay in") for line in fitted.privacy_.assumptions)
    if epsilon is not None:
        assert 0.99 * epsilon <= fitted.privacy_.epsilon <= epsilon
        assert "2 of them in any case" in fitted.privacy_.method


@pytest.mark.parametrize("method", RULED)
def test_where_all_features_are_fixed_nothing_is_spent_on_choosing(method: str) -> None:
    fitted = SparseRegressor(
        1.0, always=[0, 1], n_nonzero=2, method=method, bounds=Bounds(row_linf=1.0, label=2.0), random_state=3
    ).fit(WIDE, Y_WIDE)
    assert fitted.support_.tolist() == [0, 1]
    lines = [line.release for line in fitted.privacy_.bill]
    assert "select" not in lines
    if method in ("auto", "screen_refine"):
        assert lines == ["start", "refine", "spread", "rescale"]


@pytest.mark.parametrize("method", RULED)
@pytest.mark.parametrize("epsilon", [4.0, None])
@pytest.mark.parametrize("always", [None, [38]])
def test_columns_of_a_group_come_and_go_together(method: str, epsilon: float | None, always: Any) -> None:
    fitted = SparseRegressor(
        epsilon,
        n_nonzero=2,
        method=method,
        feature_groups=GROUPS,
        always=always,
        bounds=Bounds(row_linf=1.0, label=2.0),
        random_state=4,
    ).fit(WIDE, Y_WIDE)
    chosen = set(GROUPS[fitted.support_])
    assert len(fitted.support_) == 8
    assert len(chosen) == 2
    assert 0 in chosen, "where the signal is"
    assert always is None or 9 in chosen
    assert "2 of 10 groups of 40 weights" in fitted.privacy_.method


def test_groups_by_name_and_by_label_are_the_same() -> None:
    pandas = pytest.importorskip("pandas")
    names = [f"c{place}" for place in range(40)]
    table = pandas.DataFrame(WIDE, columns=names)
    settings: dict[str, Any] = {"n_nonzero": 2, "bounds": Bounds(row_linf=1.0, label=2.0), "random_state": 4}
    by_name = {f"g{group}": [names[place] for place in np.flatnonzero(group == GROUPS)] for group in range(10)}
    fits = [
        SparseRegressor(4.0, feature_groups=groups, always=["c38"], **settings).fit(table, Y_WIDE).coef_
        for groups in (GROUPS, list(GROUPS), [f"g{group}" for group in GROUPS], by_name)
    ]
    for other in fits[1:]:
        np.testing.assert_array_equal(other, fits[0])
    with pytest.raises(ValueError, match=r"always names 'c40', which is no column of X$"):
        SparseRegressor(4.0, always=["c40"], **settings).fit(table, Y_WIDE)


def test_a_schema_names_columns_and_their_groups() -> None:
    """The dummies of a category by the name of its column."""
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(6)
    table = pandas.DataFrame(
        {
            "age": rng.integers(20, 80, 3000),
            "job": rng.choice(["clerk", "nurse", "cook"], 3000),
            **{f"lab {k}": rng.uniform(0, 1, 3000) for k in range(12)},
        }
    )
    sick = (table["age"] + 30 * (table["job"] == "nurse") + rng.normal(0, 20, 3000)) > 60
    columns: dict[str, Any] = {"age": {"range": [20, 80]}}
    columns["job"] = {"categories": ["clerk", "nurse", "cook"]}
    columns |= {f"lab {k}": {"range": [0, 1]} for k in range(12)}

    def fit(**settings: Any) -> Any:
        classifier = SparseClassifier(classes=[False, True], n_nonzero=3, **settings)
        pipeline = PrivatePipeline([("schema", Schema(columns)), ("model", classifier)], 2.0, random_state=0)
        return pipeline.fit(table, sick.to_numpy())

    fixed = fit(always=["age", "job"], feature_groups="schema")
    names = [name for name, _ in fixed.model_.named_weights()]
    assert {"age", "job = clerk", "job = nurse", "job = cook"} < set(names)
    assert len(names) == 5  # and one more column
    with pytest.raises(ValueError, match="always names 'sex'"):
        fit(always=["sex"])
