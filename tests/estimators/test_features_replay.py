"""Everything that leaves a fit with weights, offsets or rules about columns follows from its settings and from what the
curator answered; see tests/replayed.py and tests/estimators/test_front_replay.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pairwise import draw_cases
from replayed import differences, replayed
from test_front_replay import (
    METHODS,
    N_CLASSES,
    OTHER_ROWS,
    PEOPLE,
    Array,
    D,
    N,
    in_form,
    people,
    targets,
    told_of_model,
    usual,
)

from tulle import Bounds, Budget, Ledger, SparseClassifier, SparseRegressor

# Numbers of rows: the usual ones, and others that are as unlike them as finite numbers can be.
NUMBERS: dict[str, Callable[[], Array]] = {
    "usual": lambda: np.random.default_rng(8).uniform(0, 1, N),
    "zero": lambda: np.zeros(N),
    "one": lambda: np.ones(N),
    "extreme": lambda: np.resize([1.7e308, -1.7e308, 5e-324, 0.5, 1e9, -1.0], N),
    "one row alone": lambda: np.where(np.arange(N) == 7, 1.0, 0.0),
}
# What a fit has of the features of this page.
FEATURES: dict[str, dict[str, Any]] = {
    "weights": {"sample_weight": True},
    "offsets": {"offset": True},
    "weights and offsets": {"sample_weight": True, "offset": True},
    "class weights": {"class_weight": {0: 0.2, 1: 3.0}},
    "balanced": {"class_weight": "balanced"},
    "balanced and weighted": {"class_weight": "balanced", "sample_weight": True},
    "always": {"always": [1, 4]},
    "groups": {"feature_groups": [0, 0, 1, 1, 2, 2], "always": [4]},
    "all": {"sample_weight": True, "offset": True, "class_weight": "balanced", "always": [1]},
}
BOUNDS: dict[str, dict[str, Any]] = {
    "declared": {"row_l2": 1.0, "label": 2.0, "offset": 1.5},
    "estimated": {"offset": 20.0},
}
SOME = (
    "auto",
    "fit_again",
    "screen_refine",
    "screen_refine statistics",
    "hard_thresholding gaussian",
    "hard_thresholding selection",
    "stochastic poisson",
    "stochastic without_replacement",
    "frank_wolfe incremental",
    "coordinate_descent incremental",
    "knowledge_transfer",
    "knowledge_transfer output",
    "two_stage",
)
RULED = ("auto", "fit_again", "screen_refine", "hard_thresholding gaussian")
CASES = draw_cases(
    {
        "feature": [*FEATURES],
        "method": [*SOME],
        "loss": ["logistic", "squared_hinge", "three classes", "squared", "huber", "poisson"],
        "other": [*OTHER_ROWS],
        "numbers": [name for name in NUMBERS if name != "usual"],
        "bounds": [*BOUNDS],
        "form": ["dense", "sparse"],
        "people": [*PEOPLE],
    }
)


def settings_of(case: dict[str, Any]) -> tuple[str, str, dict[str, Any]]:
    """The loss, the method and the features of a case; where a method takes no such feature, another method."""
    feature, loss, method = dict(FEATURES[case["feature"]]), case["loss"], case["method"]
    if method == "screen_refine statistics":
        loss = "squared"
    classes = N_CLASSES.get(loss)
    if classes is None:
        feature.pop("class_weight", None)
    if classes == 3:
        feature.pop("offset", None)
    if "always" in feature and method not in RULED:
        method = RULED[len(method) % len(RULED)]
    if "offset" in feature and method.startswith("knowledge"):
        method = "two_stage" if "always" not in feature else "auto"
    return loss, method, feature


@pytest.mark.parametrize("case", CASES, ids=lambda case: ", ".join(case.values()))
def test_weights_and_offsets_tell_nothing_but_the_answers(
    case: dict[str, Any], tmp_path: Path, monkeypatch: Any
) -> None:
    """Neither what they are, nor how many are clipped, nor that nearly all of them are zero."""
    loss, name, feature = settings_of(case)
    classes, rows_each = N_CLASSES.get(loss), PEOPLE[case["people"]]
    method, calibration = METHODS[name]()
    kind = SparseRegressor if classes is None else SparseClassifier
    known: dict[str, Any] = BOUNDS[case["bounds"]] | ({} if rows_each is None else {"rows_per_person": rows_each})
    settings = {key: feature[key] for key in ("class_weight", "always", "feature_groups") if key in feature}

    def fit(X: Array, y: Array, groups: Array | None, numbers: Array) -> Any:
        with Ledger(Budget(1e9, 0.1)) as ledger:
            model = kind(
                2.0,
                1e-6,
                method=method,
                bounds=Bounds(**known),
                loss="squared_hinge" if classes == 3 else loss,
                n_nonzero=2,
                calibration=calibration,
                random_state=1,
                **({} if classes is None else {"classes": range(classes)}),
                **settings,
            )
            given = {
                key: numbers if key == "sample_weight" else numbers[::-1] for key in feature if key not in settings
            }
            model.fit(in_form(case["form"], X), y, groups, **given)
            return model, ledger.fits

    ids = [None, None] if rows_each is None else [people(False), people(True)]
    one, other = replayed(
        lambda: fit(usual(), targets(loss), ids[0], NUMBERS["usual"]()),
        lambda: fit(OTHER_ROWS[case["other"]](), targets(loss, case["other"]), ids[1], NUMBERS[case["numbers"]]()),
        told_of_model(tmp_path),
    )
    assert not one.error, one.error
    assert differences(one, other) == []


def test_the_cases_have_all_features() -> None:
    assert {case["feature"] for case in CASES} == set(FEATURES)
    assert {settings_of(case)[1] for case in CASES} == set(SOME)
    assert usual().shape == (N, D)
