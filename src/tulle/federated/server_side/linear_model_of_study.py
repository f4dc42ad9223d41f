"""The estimator of a finished linear study."""

from __future__ import annotations

from typing import Any

import numpy as np

from tulle.federated.client_side.linear_study import LinearTerms
from tulle.reports.report import PrivacyReport
from tulle.trusted.events import FloatArray
from tulle.trusted.plan import Budget


def make_linear_model(
    linear: LinearTerms,
    budget: Budget | None,
    n_nonzero: int,
    weights: FloatArray,
    n_steps: int,
    n_passes: float,
    privacy: PrivacyReport,
) -> Any:
    """A fitted `SparseClassifier` or `SparseRegressor`.

    Parameters
    ----------
    linear : LinearTerms
    budget : Budget or None
        None for a study without privacy.
    n_nonzero : int
    weights : array of shape (features + 1, outputs)
        The last line is the intercept.
    n_steps : int
        Iterations, for `n_iter_`.
    n_passes : float
        About how often each row was read.
    privacy : PrivacyReport
    """
    from tulle.estimators.request import Fitted
    from tulle.estimators.sparse import SparseClassifier, SparseRegressor

    settings: dict[str, Any] = {
        "epsilon": None if budget is None else budget.epsilon,
        "delta": None if budget is None else budget.delta,
        "n_nonzero": n_nonzero,
        "loss": linear.loss,
        "bounds": linear.bounds,
        "fit_intercept": linear.fit_intercept,
    }
    model: Any = (SparseRegressor if linear.classes is None else SparseClassifier)(**settings)
    if linear.classes is not None:
        model.classes_ = np.unique(np.asarray(linear.classes))
    model.n_features_in_ = linear.n_features
    model._keep(Fitted(weights, None, n_steps, n_passes, n_steps, privacy))
    return model
