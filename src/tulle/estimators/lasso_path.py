"""LASSO paths: one private model for each of several radii of the ℓ1-ball, for one budget in all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from tulle.estimators.bounds import Bounds
from tulle.estimators.linear_model import Seed
from tulle.estimators.memory_check import check_memory
from tulle.estimators.request import run_fit
from tulle.estimators.sparse import SparseClassifier, SparseRegressor
from tulle.methods.frank_wolfe import RadiusPath
from tulle.methods.loss_functions import Loss
from tulle.reports.report import PrivacyReport
from tulle.trusted.events import FloatArray


class LassoPath(NamedTuple):
    """What `lasso_path` returns.

    Attributes
    ----------
    radii : array of shape (radii,)
    coefs : array of shape (features, radii)
    intercepts : array of shape (radii,)
    privacy : PrivacyReport
        Of all models together.
    """

    radii: FloatArray
    coefs: FloatArray
    intercepts: FloatArray
    privacy: PrivacyReport


def lasso_path(
    X: Any,
    y: Any,
    radii: Sequence[float],
    epsilon: float | None = 1.0,
    delta: float | None = None,
    *,
    rho: float | None = None,
    loss: str | Loss = "squared",
    n_iter: int | None = None,
    noise: Literal["auto", "selection", "gaussian"] = "auto",
    bounds: Bounds | None = None,
    fit_intercept: bool = True,
    random_state: Seed = None,
) -> LassoPath:
    """Private Frank-Wolfe on ℓ1-balls of several radii; the budget covers all of them together.

    Choosing among them by looking at private rows is a further release (`tulle.private_score`).

    Parameters
    ----------
    X : array or sparse array of shape (n, d)
    y : array of shape (n,)
        Numbers; labels of two classes for a classification loss.
    radii : sequence of float
        Each > 0.
    epsilon, delta, rho
        As in `SparseRegressor`: what all models together may cost.
    loss : str or Loss, default="squared"
        "squared", "huber", "logistic", "squared_hinge", or an object.
    n_iter, noise
        As in `tulle.methods.FrankWolfe`, for each radius.
    bounds, fit_intercept, random_state
        As in `SparseRegressor`.

    Returns
    -------
    LassoPath

    Examples
    --------
    >>> import numpy as np
    >>> from tulle import Bounds
    >>> from tulle.estimators.lasso_path import lasso_path
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (5000, 50))
    >>> y = X[:, 3] - X[:, 7]
    >>> path = lasso_path(X, y, [0.5, 2.0], 2.0, bounds=Bounds(row_linf=1.0, label=2.0), random_state=0)
    >>> path.coefs.shape
    (50, 2)
    >>> bool(path.privacy.epsilon <= 2.0)
    True
    """
    radii = tuple(radii)
    kind = getattr(loss, "kind", "classification" if loss in ("logistic", "squared_hinge") else "regression")
    estimator = (SparseClassifier if kind == "classification" else SparseRegressor)(
        epsilon,
        delta,
        rho=rho,
        method=RadiusPath(radii, n_iter=n_iter, noise=noise),
        loss=loss,
        bounds=bounds,
        fit_intercept=fit_intercept,
        random_state=random_state,
    )
    X, targets, resolved = estimator._prepare(X, y)
    if resolved.n_outputs > 1:
        raise ValueError("lasso_path is for two classes; the labels have more")
    request = estimator._request(resolved, X.shape[0])
    planned = request.plan_all(X.shape)
    check_memory(X, planned)
    fitted = run_fit(request, X, targets, planned=planned)
    return LassoPath(np.array(sorted(radii), dtype=float), fitted.weights[:-1], fitted.weights[-1], fitted.privacy)
