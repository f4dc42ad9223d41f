"""The curvature and the spread of gradients: no neighbour moves them further, and a worst case nearly does."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from tulle.inference.weighted_moments import WeightedMoments
from tulle.methods.gradient_queries import to_symmetric
from tulle.methods.loss_functions import Logistic, Loss, Poisson, Squared
from tulle.trusted.facts import PublicFacts
from tulle.trusted.rows import Rows

D, N = 3, 5
LOSSES: dict[str, tuple[Loss, float, float]] = {  # the loss, where second derivatives and where slopes are cut
    "logistic": (Logistic(), 0.25, 1.0),
    "squared": (Squared(), 1.0, 4.0),
    "poisson": (Poisson(), 3.0, 4.0),
}


def facts(loss: Loss, n_rows: int = N) -> PublicFacts:
    return PublicFacts(n_rows, D, D, loss, None, 2.0, 1.5, 4.0, True)


def query(
    loss: str, factor: Any, weights: Any = (0.4, -1.0, 0.3), bound: float = 1.5, a: float = 0.6
) -> WeightedMoments:
    _, curvature, slope = LOSSES[loss]
    most = curvature if factor == "curvature" else slope
    return WeightedMoments(np.array([0, 2]), np.array(weights), factor, most, bound, a)


@pytest.mark.parametrize("factor", ["curvature", "slope"])
@pytest.mark.parametrize("loss", LOSSES)
@given(data=st.data(), sparse=st.booleans())
@settings(max_examples=25)
def test_no_neighbour_moves_it_further(loss: str, factor: str, data: st.DataObject, sparse: bool) -> None:
    """Rows that were never clipped, with entries and targets that are huge, tiny or no numbers."""
    entry = st.sampled_from([0.0, 1.0, -1.5, 1e-160, 1e20, -1e100, 1e308, math.inf, math.nan]) | st.floats(-2, 2)
    target = st.sampled_from([-1.0, 1.0, 4.0, 1e9, -1e300, math.nan]) | st.floats(-4, 4)
    weight = st.sampled_from([0.0, 1e6, -1e150]) | st.floats(-3, 3)
    X = np.array(data.draw(st.lists(entry, min_size=N * D, max_size=N * D))).reshape(N, D)
    y = np.array(data.draw(st.lists(target, min_size=N, max_size=N)))
    other, label = data.draw(st.lists(entry, min_size=D, max_size=D)), data.draw(target)
    asked = query(loss, factor, data.draw(st.lists(weight, min_size=3, max_size=3)))
    public = facts(LOSSES[loss][0])
    X_other, y_other = np.vstack([[other], X[1:]]), np.append(label, y[1:])
    kind = sp.csr_array if sparse else np.array
    with np.errstate(all="ignore"):
        before, after = (
            asked.evaluate(Rows(kind(M), np.where(np.isfinite(t), t, 0.0)), public)
            for M, t in ((X, y), (X_other, y_other))
        )
    assert np.isfinite(before).all()
    assert np.linalg.norm(before - after) <= asked.sensitivity(public).l2 * (1 + 1e-9)


@pytest.mark.parametrize("factor", ["curvature", "slope"])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_worst_case_comes_close(loss: str, factor: str) -> None:
    """Two rows at their bound that point in orthogonal directions, where the factor is at its largest."""
    bound = 1.5
    # At margin 0 the logistic loss bends most; a slope of nearly 1 needs a margin far on the wrong side.
    reach = {"logistic": 0.0 if factor == "curvature" else 8.0, "squared": 0.0, "poisson": 5.0}[loss]
    asked = query(loss, factor, (reach / bound, reach / bound, 0.0), bound, a=1e-3)
    rows = [np.array([[bound, 0.0, 0.0], [0.0, 0.0, 0.0]]), np.array([[0.0, 0.0, bound], [0.0, 0.0, 0.0]])]
    y = np.array([-1.0 if loss == "logistic" else -4.0, 0.0])
    public = facts(LOSSES[loss][0], n_rows=2)
    first, second = (asked.evaluate(Rows(X, y), public) for X in rows)
    assert np.linalg.norm(first - second) >= 0.99 * asked.sensitivity(public).l2


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
def test_it_is_the_hessian_and_the_sum_of_squared_gradients(loss: str, sparse: bool) -> None:
    """By differences of the loss, where nothing is cut."""
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-0.3, 0.3, (40, D)), rng.choice([-1.0, 1.0], 40)
    theta, (f, _, _) = np.array([0.4, -0.7, 0.3]), LOSSES[loss]
    Z, public = np.column_stack([X[:, [0, 2]], np.full(40, 0.6)]), facts(f, 40)

    def gradient(at: Any) -> Any:
        return Z * f.slope((Z @ at)[:, None], y)

    step = 1e-6
    hessian = np.column_stack(
        [(gradient(theta + step * e) - gradient(theta - step * e)).mean(axis=0) / (2 * step) for e in np.eye(3)]
    )
    rows = Rows(sp.csr_array(X) if sparse else X, y)
    for factor, exact in (("curvature", hessian), ("slope", gradient(theta).T @ gradient(theta) / 40)):
        asked = replace(query(loss, factor, theta), most=math.inf)
        np.testing.assert_allclose(to_symmetric(asked.evaluate(rows, public)), exact, rtol=1e-6, atol=1e-8)
