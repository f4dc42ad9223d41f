"""Studies that start from public weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from test_federated_server import CLASSES, PLAIN, PRIVATE, TARGETS, D, X, Y, model_of

from tulle import Bounds, SparseClassifier, SparseRegressor
from tulle.federated.client_side.linear_study import linear_terms
from tulle.federated.server_side.server import Server
from tulle.federated.server_side.simulation import simulate
from tulle.federated.terms import Terms
from tulle.methods import StochasticHardThresholding
from tulle.methods.public_start import START_ASSUMPTION

START = np.zeros(D)
START[[2, 3]] = [0.4, -0.3]


@pytest.fixture(autouse=True)
def no_power_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda handle: None)


@pytest.mark.parametrize("kind", TARGETS)
def test_one_client_from_a_start_is_the_central_fit_from_it(kind: str) -> None:
    """Without noise, under one seed, as from 0; the intercept starts from its own number."""
    outputs = 3 if kind == "three classes" else 1
    start: Any = (np.tile(START, (outputs, 1)), np.full(outputs, 0.25))
    method = StochasticHardThresholding(
        batch=40, passes=2.0, step=2.0, memory=4, damping=0.0, average=0.0, clip=0.5, start=start
    )
    regression = kind == "regression"
    estimator: Any = SparseRegressor if regression else SparseClassifier
    bounds = Bounds(row_l2=2.0, label=1.0) if regression else Bounds(row_l2=2.0)
    central = estimator(None, n_nonzero=4, method=method, bounds=bounds, random_state=7).fit(X, TARGETS[kind])
    terms = Terms("s", model_of(kind), 10, 1, 4, 2.0, 0.5, 40, None, None)
    found = simulate(terms, {"one": (X, TARGETS[kind])}, seed=7, start=start).model()
    np.testing.assert_allclose(found.coef_, central.coef_, rtol=0, atol=1e-13)
    np.testing.assert_allclose(found.intercept_, central.intercept_, rtol=0, atol=1e-13)
    assert CLASSES[kind] is None or len(found.classes_) == max(outputs, 2)


def test_the_report_says_so_and_the_promise_is_the_same() -> None:
    terms = replace(PRIVATE, rounds=2)
    fits = [simulate(terms, {"one": (X, Y)}, seed=1, start=start) for start in (START, None)]
    assert START_ASSUMPTION in fits[0].privacy.assumptions
    assert START_ASSUMPTION not in fits[1].privacy.assumptions
    assert fits[0].privacy.epsilon == fits[1].privacy.epsilon
    assert not np.array_equal(fits[0].weights.to_dense(), fits[1].weights.to_dense())


def test_starts_that_no_client_would_take_are_refused() -> None:
    with pytest.raises(ValueError, match=r"at most 4 weights other than 0 for each output.*larger memory"):
        Server(PLAIN, start=np.ones(D))
    Server(replace(PLAIN, memory=D), start=np.ones(D))
    with pytest.raises(ValueError, match=r"Server\(start=...\) must be an array of shape \(20,\)"):
        Server(PLAIN, start=np.ones(D + 1))
    with pytest.raises(ValueError, match="finite numbers"):
        Server(PLAIN, start=np.full(D, np.nan))
    plain = linear_terms(D, step=2.0, fit_intercept=False, classes=("a", "b"), row_l2=2.0)
    with pytest.raises(ValueError, match="the model has none"):
        Server(replace(PLAIN, model=plain), start=(START, 1.0))
