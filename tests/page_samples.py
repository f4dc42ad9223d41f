"""Models, audits and comparisons for tests of pages."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from tulle.audit import audit_mechanism
from tulle.estimators.bounds import Bounds
from tulle.estimators.sparse import SparseClassifier, SparseRegressor
from tulle.reports.report import About, BillLine, PrivacyReport
from tulle.trusted.events import NoisePerSensitivity
from tulle.trusted.mechanisms import Gaussian

ABOUT = About(
    title="Who comes back within 30 days",
    asked_by="The privacy office",
    purpose="To plan calls after discharge",
    made="2026-11-12T09:30:00+00:00",
    data="visits.csv",
    ledger="2 of 3 spent; visits.ledger",
)

REPORT = PrivacyReport(
    epsilon=0.9999991,
    delta=1e-5,
    asked=(1.0, 1e-5),
    method="hard thresholding, 12 steps",
    calibration="rigorous",
    accountant="Gaussian differential privacy",
    unit="one row; replace-one adjacency: the number of rows, 1,000, is public",
    bill=(
        BillLine("bound", "noisy max (Gumbel)", 1, 20.0, 0.1),
        BillLine("step", "Gaussian on a vector", 12, 15.3, 0.93),
    ),
    assumptions=("Rows were clipped to Euclidean norm 1 (declared).",),
    who_saw_what=("The method saw the answers on the bill.",),
    seeded=False,
    floating_point_slack=1e-12,
)

HOSTILE_NAMES = (
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "<!--",
    "&amp; &lt;b&gt;",
    "خروج_المريض",  # from right to left
    "\u202eesrever\u202c",  # overrides the direction
    "👩🏽‍⚕️ visits",
    "",
    "   ",
    "nul\x00 and bell\x07",
    "half a character \ud800",
    "x" * 5000,
    "a_very_long_name_" * 20,
    "`'{}${alert(1)}",
)


def released(
    coef: Any, *, intercept: Any = 0.0, report: PrivacyReport = REPORT, classes: Any = None, **more: Any
) -> SparseClassifier | SparseRegressor:
    """A model that has what a fit releases, and nothing else."""
    model = SparseRegressor() if classes is None else SparseClassifier()
    coef = np.asarray(coef, dtype=float)
    attributes = {"coef_": coef, "intercept_": intercept, "privacy_": report, "n_features_in_": coef.shape[-1], **more}
    if classes is not None:
        attributes["classes_"] = np.asarray(classes)
    for name, value in attributes.items():
        setattr(model, name, value)
    return model


def hostile() -> SparseRegressor:
    """A model whose feature names attack the page, with weights of all sizes."""
    weights = np.array(
        [1e300, -1e300, 1e-300, 5e-324, -0.5, 3.0, 1e15, -7.0, 2.0, 1.0, 0.25, -1e-5, 12345.678, 1.0, -1.0]
    )
    return released(weights, feature_names_in_=np.array(HOSTILE_NAMES, dtype=object))


def three_classes() -> SparseClassifier:
    """A model of three classes, one of them without weights."""
    coef = np.zeros((3, 50))
    coef[0, :35] = np.linspace(2, -1.5, 35)
    coef[2, 7] = -4.25
    labels = np.array(["red", "<b>green</b>", ""], dtype=object)
    return released(coef, intercept=np.array([0.5, -1.25, 0.0]), classes=labels)


@lru_cache(maxsize=1)
def fitted() -> SparseClassifier:
    """A real private fit on named features."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, (4000, 60))
    y = np.where(X[:, 3] - X[:, 7] + 0.5 * X[:, 11] > 0, "back", "not back")
    frame = pd.DataFrame(X, columns=[f"visits_to_ward_{k}" for k in range(60)])
    return SparseClassifier(2.0, n_nonzero=40, bounds=Bounds(row_linf=1.0)).fit(frame, y)


@lru_cache(maxsize=1)
def audit() -> dict[str, Any]:
    """A real audit of one Gaussian answer."""
    mechanism = Gaussian(NoisePerSensitivity(3.73))
    return audit_mechanism(mechanism, delta=1e-5, claimed=1.0, runs=20_000, seed=0).to_dict()


METHODS = ("auto", "hard_thresholding", "frank_wolfe")
EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
COMPARISON: dict[str, Any] = {
    "format": "tulle comparison 1",
    "data": "visits.csv",
    "task": "classification",
    "metric": "test error",
    "n_train": 700,
    "n_test": 300,
    "n_features": 60,
    "delta": 1e-5,
    "trials": 5,
    "seed": 0,
    "tulle": "0.1.0",
    "rows": [
        {
            "method": method,
            "epsilon": epsilon,
            "mean": 0.1234 + 0.05 * k + 0.2 / (1 + epsilon),
            "standard_error": 0.0101 + 0.001 * k,
            "trials": 5,
            "proved": 0.9999 * epsilon,
            "nonzero": 20.0,
        }
        for k, method in enumerate(METHODS)
        for epsilon in EPSILONS
    ],
    "no_privacy": {"method": "auto", "mean": 0.0987, "standard_error": 0.0, "nonzero": 20.0},
    "null_model": {"mean": 0.4876},
}
