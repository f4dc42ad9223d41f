"""Public weights that a fit starts from: the parameter `start` of every method that iterates (θ₀ in the papers).

Weights are public like all settings, so they cost nothing. Any start is safe: queries at it are clipped to a level that
depends on public facts and not on the weights, and the rounding of sums with large weights is in the sensitivity
(`tulle.trusted.queries.Affine.size`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from tulle.trusted.events import FloatArray
from tulle.trusted.facts import PublicFacts

# Products of weights with rows and with each other stay within what floats can hold.
LARGEST_START = 1e50

START_ASSUMPTION = (
    "The fit started from given weights (start=...), which are public: they are not protected, and they must not come "
    "from the same private rows unless that fit is billed too."
)


def read_start(
    owner: str, start: Any, n_features: int, n_outputs: int, fit_intercept: bool
) -> tuple[FloatArray, FloatArray] | None:
    """Weights of shape (features, outputs) and intercepts of shape (outputs,) of a parameter `start`.

    Parameters
    ----------
    owner : str
        Whose parameter it is, for errors.
    start : None, array or tuple
        None: no start, and None is returned. An array of shape (features,) or (features, outputs): weights, and
        intercepts of 0. A tuple (coef, intercept) as a fitted model has them: of shapes (features,) or
        (outputs, features), and a number or (outputs,).
    n_features, n_outputs : int
    fit_intercept : bool
        Without one, intercepts other than 0 are refused.
    """
    if start is None:
        return None
    if hasattr(start, "coef_"):
        raise TypeError(f"{owner}(start=...) takes weights, not a model: pass start=(model.coef_, model.intercept_)")
    pair = isinstance(start, tuple) and len(start) == 2 and np.ndim(_dense(start[0])) >= 1
    coef = _read_numbers(owner, start[0] if pair else start)
    intercept = _read_numbers(owner, start[1] if pair else 0.0)
    transposed = (n_outputs, n_features)
    if coef.shape == (n_features,) and n_outputs == 1:
        coef = coef[:, None]
    elif coef.shape == transposed and (pair or transposed != (n_features, n_outputs)):
        coef = coef.T
    elif coef.shape != (n_features, n_outputs) or pair:
        shape = f"({n_features},) or " if n_outputs == 1 else ""
        raise ValueError(
            f"{owner}(start=...) must be an array of shape {shape}({n_features}, {n_outputs}), features by outputs, or "
            f"a tuple (coef, intercept) as a fitted model has them; got weights of shape {coef.shape}"
        )
    if intercept.size not in (1, n_outputs) or intercept.ndim > 1:
        raise ValueError(f"{owner}(start=...) must have 1 or {n_outputs} intercepts, got {intercept.size}")
    if not fit_intercept and np.any(intercept != 0):
        raise ValueError(f"{owner}(start=...) has an intercept, and the model has none; use fit_intercept=True")
    return np.array(coef), np.broadcast_to(intercept.reshape(-1), (n_outputs,)).copy()


def read_method_start(method: Any, public: PublicFacts) -> tuple[FloatArray, FloatArray] | None:
    """The same of a method's own parameter."""
    loss = public.loss
    return read_start(type(method).__name__, method.start, public.n_features, loss.n_outputs, public.fit_intercept)


def first_weights(method: Any, public: PublicFacts, intercept_value: float) -> FloatArray:
    """Where a method starts, of shape (parameters, outputs), in its own units of the constant column; 0 by default."""
    weights = np.zeros((public.n_parameters, public.loss.n_outputs))
    given = read_method_start(method, public)
    if given is not None:
        weights[: public.n_features] = given[0]
        if public.fit_intercept:
            weights[public.n_features :] = given[1] / intercept_value
    return weights


def _dense(values: Any) -> Any:
    return values.toarray() if sp.issparse(values) else values


def _read_numbers(owner: str, values: Any) -> FloatArray:
    try:
        numbers = np.asarray(_dense(values), dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{owner}(start=...) must hold numbers, got {type(values).__name__}") from None
    if not np.all(np.abs(numbers) <= LARGEST_START):  # false for NaN, too
        raise ValueError(f"{owner}(start=...) must hold finite numbers of at most {LARGEST_START:g} in magnitude")
    return numbers
