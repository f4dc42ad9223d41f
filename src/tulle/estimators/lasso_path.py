"""LASSO paths: one private model for each of several radii of the ℓ1-ball, for one budget in all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from tulle.bounds import Bounds
from tulle.estimators import Seed, SparseClassifier, SparseRegressor
from tulle.events import FloatArray
from tulle.fitting import run_fit
from tulle.losses import Loss
from tulle.methods.frank_wolfe import RadiusPath
from tulle.report import PrivacyReport


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
    epsilon, delta
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
    >>> from tulle.paths import lasso_path
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
        method=RadiusPath(radii, n_iter=n_iter, noise=noise),
        loss=loss,
        bounds=bounds,
        fit_intercept=fit_intercept,
        random_state=random_state,
    )
    X, targets, resolved = estimator._prepare(X, y)
    if resolved.n_outputs > 1:
        raise ValueError("lasso_path is for two classes; the labels hold more")
    fitted = run_fit(estimator._request(resolved, X.shape[0]), X, targets)
    return LassoPath(np.array(sorted(radii), dtype=float), fitted.weights[:-1], fitted.weights[-1], fitted.privacy)
