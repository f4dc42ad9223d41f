"""What the tests of private steps fit, and a curator that keeps what it answered."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray

import tulle.trusted.fit
from tulle import Bounds, PrivatePipeline, SparseClassifier
from tulle.methods import HardThresholding
from tulle.methods.loss_functions import facts_without_model
from tulle.preprocessing import PrivateImputer, PrivateScaler, PrivateWeights
from tulle.trusted.curator import Curator
from tulle.trusted.plan import Plan
from tulle.trusted.rows import Rows

Array = NDArray[np.float64]

GAUSSIAN = HardThresholding(n_iter=2, noise="gaussian")
STEPS = {"column masses": PrivateWeights(), "quartiles": PrivateScaler()}
EVERY_STEP = {"weights": PrivateWeights(), "scaler": PrivateScaler(), "imputer": PrivateImputer(2.0)}


def private(step: Any, epsilon: float | None = 1.0, *, method: Any = GAUSSIAN, bounds: Any = None, **more: Any) -> Any:
    """A pipeline of one private step and a classifier of two classes."""
    model = SparseClassifier(classes=[False, True], method=method, bounds=bounds)
    return PrivatePipeline([("step", step), ("model", model)], epsilon, **{"random_state": 0, **more})


def step_of(pipeline: Any) -> Any:
    """The fitted step."""
    return pipeline.steps_[0][1]


def table(n: int = 400, d: int = 5, seed: int = 0) -> tuple[Array, NDArray[np.bool_]]:
    """Dense columns, the first of which decides the label."""
    X = np.random.default_rng(seed).normal(size=(n, d))
    return X, X[:, 0] > 0


def words(n: int = 400, d: int = 30, seed: int = 0) -> tuple[Any, NDArray[np.bool_]]:
    """Counts of words, common ones first."""
    rng = np.random.default_rng(seed)
    X = rng.poisson(2.0 / (1 + np.arange(d)), (n, d)).astype(float)
    return sp.csr_array(X), X[:, 0] > 1


def bounded(rows_per_person: int) -> Bounds:
    return Bounds(rows_per_person=rows_per_person)


class Answered(NamedTuple):
    """One answer to a private step: the exact one, and what was released."""

    name: str
    exact: Array
    released: Array


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[Answered]:
    """All answers to private steps during the test."""
    found: list[Answered] = []

    class Keeping(Curator):
        def ask(self, name: str, query: Any, then: Any = None) -> Any:
            if name not in STEPS:
                return super().ask(name, query, then)
            exact = query.evaluate(self._rows, self._public).copy()
            released = super().ask(name, query)
            found.append(Answered(name, exact, np.array(released)))
            return released

    monkeypatch.setattr(tulle.trusted.fit, "Curator", Keeping)
    return found


def query_of(step: Any, d: int, n: int = 100) -> Any:
    """The first query of a step."""
    asked: list[Any] = []

    def ask(name: str, query: Any, then: Any = None) -> Any:
        asked.append(query)
        return np.zeros(query.shape)

    step.learn(ask, facts_without_model(n, d, 1), 1.0)
    return asked[0]


def learn_exactly(step: Any, X: Any, active: Any = None) -> Any:
    """The step, which learnt from rows without noise."""
    n, d = X.shape
    public = facts_without_model(n, d, 1)
    plan = tuple(release.scaled(0.0) for release in step.releases(1.0, public))
    curator = Curator(Rows(step.prepare(X), np.zeros(n), active), public, Plan(plan), np.random.default_rng(0))
    step.learn(curator.ask, public, math.inf)
    curator.settle()
    return step
