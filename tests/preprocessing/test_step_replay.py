"""Everything that leaves a pipeline of private steps follows from its settings and from what the curator answered; see
tests/replayed.py and tests/estimators/test_front_replay.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from replayed import differences, replayed
from test_front_replay import METHODS, OTHER_ROWS, PEOPLE, Array, in_form, people, targets, told_in_any_case, usual

from tulle import Bounds, Budget, Ledger, PrivatePipeline, SparseClassifier
from tulle.preprocessing import PrivateImputer, PrivateScaler, PrivateWeights


def told_of_pipeline(folder: Path) -> Callable[[Any], dict[str, Any]]:
    """All that a fitted pipeline of private steps can be turned into."""

    def told(fitted: Any) -> dict[str, Any]:
        pipeline, _ = fitted
        return {
            **told_in_any_case(fitted, folder),
            "its steps": [vars(step) for _, step in pipeline.steps_],
            "the model's": vars(pipeline.model_),
        }

    return told


PRIVATE_STEPS: dict[str, Callable[[], list[Any]]] = {
    "weights": lambda: [PrivateWeights(floor=0.0)],  # with the default all masses of so few rows are raised to it
    "scaler": lambda: [PrivateScaler(rounds=6)],
    "imputer": lambda: [PrivateImputer(2.0, rounds=6)],
    "scaler, weights": lambda: [PrivateScaler(rounds=6), PrivateWeights(floor=0.0)],
}


def with_gaps(X: Array) -> Array:
    """Missing and infinite entries, many of them in rows of their own."""
    X = X.copy()
    X[:40], X[50, 0], X[60:80, 1] = np.nan, np.inf, -np.inf
    return X


@pytest.mark.parametrize("steps", PRIVATE_STEPS)
@pytest.mark.parametrize("other", OTHER_ROWS)
@pytest.mark.parametrize("people_with", PEOPLE)
def test_private_steps_tell_nothing_but_their_answers(
    steps: str, other: str, people_with: str, tmp_path: Path, monkeypatch: Any
) -> None:
    """Neither of rows, nor of what is missing in them, nor of whose they are."""
    rows_each = PEOPLE[people_with]
    method = METHODS[["auto", "hard_thresholding gaussian", "stochastic poisson"][len(other) % 3]]()[0]

    def fit(X: Array, y: Array, groups: Array | None) -> Any:
        model = SparseClassifier(
            classes=[0, 1], method=method, bounds=None if rows_each is None else Bounds(rows_per_person=rows_each)
        )
        named = [(f"step {number}", step) for number, step in enumerate(PRIVATE_STEPS[steps]())]
        sparse = steps == "weights" and other in ("longer", "smallest", "empty")
        with Ledger(Budget(1e9, 0.1)) as ledger:
            pipeline = PrivatePipeline([*named, ("model", model)], 2.0, 1e-6, random_state=1)
            return pipeline.fit(in_form("sparse" if sparse else "dense", X), y, groups), ledger.fits

    ids = [None, None] if rows_each is None else [people(False), people(True)]
    rows = OTHER_ROWS[other]() if steps == "weights" else with_gaps(OTHER_ROWS[other]())
    one, other_rows = replayed(
        lambda: fit(usual(), targets("logistic"), ids[0]),
        lambda: fit(rows, targets("logistic", other), ids[1]),
        told_of_pipeline(tmp_path),
    )
    assert not one.error, one.error
    assert differences(one, other_rows) == []
