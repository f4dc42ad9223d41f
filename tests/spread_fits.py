"""What the tests of back ends fit: every method, on rows that lie somewhere else than in one array."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from tulle import Bounds, PrivatePipeline, SparseClassifier
from tulle.methods import (
    CoordinateDescent,
    FitAgain,
    FrankWolfe,
    HardThresholding,
    KnowledgeTransfer,
    ScreenRefine,
    StochasticHardThresholding,
    TwoStage,
)
from tulle.preprocessing import PrivateImputer, PrivateScaler, PrivateWeights

SEED = 3
BOUNDED = Bounds(row_l2=1.5)

# Every method, with every kind of question to rows: sums, choices, batches, minimisers, steps that are followed.
METHODS: dict[str, Any] = {
    "hard thresholding, gaussian": HardThresholding(n_iter=3, noise="gaussian"),
    "hard thresholding, selection": HardThresholding(n_iter=3, noise="selection"),
    "fit again": FitAgain(),
    "screen and refine": ScreenRefine(),
    "two stage": TwoStage(),
    "frank wolfe, selection": FrankWolfe(n_iter=4, noise="selection"),
    "frank wolfe, gaussian": FrankWolfe(n_iter=4, noise="gaussian"),
    "coordinate descent, selection": CoordinateDescent(n_iter=4, noise="selection"),
    "coordinate descent, gaussian": CoordinateDescent(n_iter=3, noise="gaussian"),
    "batches, poisson": StochasticHardThresholding(batch=60, passes=0.2, sampling="poisson"),
    "batches, without replacement": StochasticHardThresholding(batch=60, passes=0.2, sampling="without_replacement"),
    "batches, shuffled": StochasticHardThresholding(batch=60, passes=0.2, sampling="shuffled"),
    "batches, svrg": StochasticHardThresholding(variant="svrg", batch=60, passes=1.0),
    "knowledge transfer": KnowledgeTransfer(features=np.random.default_rng(5).uniform(-0.3, 0.3, (200, 100))),
}

# How rows are made to obey their bounds: as they are, rows and entries clipped, all scaled, bounds estimated.
BOUNDS: dict[str, Bounds] = {
    "rows clipped": BOUNDED,
    "entries clipped": Bounds(row_l2=2.0, row_linf=0.4),
    "normalised": Bounds(row_l2=1.0, normalise=True),
    "estimated": Bounds(),
}


def sparse_rows(n: int = 2_000, d: int = 100) -> Any:
    """CSR rows with entries in (-1, 1), some of them without any."""
    rng = np.random.default_rng(SEED)
    rows = sp.random_array((n, d), density=0.1, random_state=rng, format="csr")
    rows.data = rng.uniform(-1, 1, rows.nnz)
    return rows


def margins(X: Any) -> Any:
    """What the labels of `sparse_rows` depend on."""
    weights = np.zeros(X.shape[1])
    weights[:5] = [3.0, -3.0, 2.0, -2.0, 2.0]
    return X @ weights + 0.1 * np.random.default_rng(SEED).standard_normal(X.shape[0])


def model(method: Any = "screen_refine", **settings: Any) -> SparseClassifier:
    """A classifier with so little noise that one row more or less is seen: released values lie on the noise's grid."""
    return SparseClassifier(
        **{"epsilon": 200.0, "delta": 1e-6, "method": method, "n_nonzero": 8, "bounds": BOUNDED, "random_state": SEED}
        | settings
    )


def assert_same_fit(
    unfitted: Any, here: tuple[Any, ...], there: tuple[Any, ...], *, atol: float = 1e-12, **groups: Any
) -> Any:
    """The same weights, bill and predictions of the same rows here and there. Returns the model fitted there."""
    one = clone(unfitted).fit(*here, **groups)
    other = clone(unfitted).fit(*there, **groups)
    assert np.any(one.coef_)
    np.testing.assert_array_equal(other.support_, one.support_)
    np.testing.assert_allclose(other.coef_, one.coef_, rtol=0, atol=atol)
    np.testing.assert_allclose(other.intercept_, one.intercept_, rtol=0, atol=atol)
    assert other.privacy_.epsilon == one.privacy_.epsilon
    assert other.privacy_.bill == one.privacy_.bill
    assert other.n_features_in_ == one.n_features_in_
    expected, found = one.predict(here[0]), other.predict(there[0])
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)
    else:
        np.testing.assert_array_equal(found, expected)
    return other


# Private steps, and of which rows they learn.
STEPS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "weights": ("sparse", (PrivateWeights(),)),
    "weights, dense": ("dense", (PrivateWeights(),)),
    "scaler": ("dense", (PrivateScaler(rounds=6),)),
    "imputer": ("dense", (PrivateImputer(0.8, rounds=6),)),
    "scaler, weights": ("dense", (PrivateScaler(rounds=6), PrivateWeights())),
}


def with_steps(steps: Sequence[Any], method: Any = METHODS["fit again"], **settings: Any) -> PrivatePipeline:
    """Private steps and a classifier, with as little noise as `model` has."""
    classifier = SparseClassifier(method=method, n_nonzero=8, classes=[0.0, 1.0], **settings)
    named = [(f"step {number}", step) for number, step in enumerate(steps)]
    return PrivatePipeline([*named, ("model", classifier)], 200.0, 1e-6, random_state=SEED)


def assert_same_steps(
    unfitted: Any, here: tuple[Any, ...], there: tuple[Any, ...], groups: Any = None, *, predict: bool = True
) -> Any:
    """The same steps, model, bill, report and predictions, but for who saw the rows. Returns what was fitted there."""
    one, other = clone(unfitted).fit(*here, groups), clone(unfitted).fit(*there, groups)
    assert len(one.steps_) == len(other.steps_) > 0
    for (_, step), (_, found) in zip(one.steps_, other.steps_):
        for name in step.learnt:
            np.testing.assert_allclose(getattr(found, name), getattr(step, name), rtol=1e-12)
    assert np.any(one.model_.coef_)
    np.testing.assert_allclose(other.model_.coef_, one.model_.coef_, rtol=0, atol=1e-9)
    np.testing.assert_allclose(other.model_.intercept_, one.model_.intercept_, rtol=0, atol=1e-9)
    assert replace(other.privacy_, who_saw_what=()) == replace(one.privacy_, who_saw_what=())
    assert other.privacy_.who_saw_what != one.privacy_.who_saw_what
    assert vars(other).keys() == vars(one).keys()
    assert vars(other.model_).keys() == vars(one.model_).keys()
    if not predict:
        return other
    np.testing.assert_allclose(other.decision_function(there[0]), one.decision_function(here[0]), rtol=0, atol=1e-9)
    np.testing.assert_array_equal(other.predict(there[0]), one.predict(here[0]))
    assert other.score(there[0], here[1]) == one.score(here[0], here[1])
    return other
