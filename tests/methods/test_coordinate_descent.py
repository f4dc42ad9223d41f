"""Greedy coordinate descent: the method it is without noise, the scale of features, and what it finds.

What it has in common with Frank-Wolfe is in test_stepwise_methods.py.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import fits
import numpy as np
import pytest
import scipy.sparse as sp
from fits import (
    BOUNDS,
    BUT_POISSON,
    COORDINATE_DESCENT,
    SCALE,
    Array,
    D,
    RecordingCurator,
    facts,
    is_classification,
    model_for,
    problem,
    run_without_noise,
    signed,
    slopes_of,
)
from pairwise import reduce_to_pairs

from tulle import Bounds, SparseClassifier, SparseRegressor
from tulle.methods import CoordinateDescent
from tulle.methods.loss_functions import LOSSES, Softmax
from tulle.trusted.events import BoundedRangeEvent, GaussianEvent
from tulle.trusted.mechanisms import price_of

pytestmark = pytest.mark.filterwarnings("ignore:.*no better than guessing:UserWarning")

recorder = fits.recorder


# --- the plan --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("share", [0.2, 0.6, 0.9])
def test_the_share_of_choosing_is_what_it_says(n_outputs: int, share: float) -> None:
    """In zCDP, where a choice of range r costs r²/8 and a value 1 / (2 noise²), choices cost `share` of the total."""
    public = facts(loss=Softmax(3)) if n_outputs == 3 else facts()
    select, update = CoordinateDescent(n_iter=9, noise="selection", selection_share=share).releases(public)
    (choice, uses), (value, once) = price_of(select.mechanism), price_of(update.mechanism)
    assert (uses, once) == (n_outputs, 1)
    assert isinstance(choice, BoundedRangeEvent)
    assert isinstance(value, GaussianEvent)
    choosing = uses * (2 / select.mechanism.noise.value) ** 2 / 8
    valuing = 1 / (2 * update.mechanism.noise.value**2)
    assert choosing / (choosing + valuing) == pytest.approx(share, rel=1e-9)


# --- without noise ---------------------------------------------------------------------------------------------------


def plain_descent(
    X: Array,
    slopes: Callable[[Array], Array],
    *,
    n_iter: int,
    step: float,
    constant: float,
    scale: Array | None = None,
    block: int | None = None,
    outputs: int = 1,
) -> Array:
    """Greedy coordinate descent on plain arrays: weights of shape (parameters, outputs).

    Without `block` the steepest coordinate of each output moves, the intercept's among them. With it the running mean
    of the gradients is followed in the `block` steepest features and the intercept.
    """
    d = X.shape[1]
    A = np.column_stack([X, np.full(len(X), constant)]) if constant else X
    u = np.ones(A.shape[1])
    u[:d] = 1.0 if scale is None else scale
    w = np.zeros((A.shape[1], outputs))
    mean = np.zeros_like(w)
    for t in range(1, n_iter + 1):
        g = A.T @ slopes(A @ w) / len(A)
        mean = (1 - t ** (-2 / 3)) * mean + t ** (-2 / 3) * g
        for k in range(outputs):
            if block is None:
                moved = [np.argmax(np.abs(g[:, k]) / u)]
                w[moved, k] -= step * g[moved, k] / u[moved] ** 2
            else:
                moved = [*np.argsort(-np.abs(mean[:d, k]) / u[:d])[:block], *range(d, len(u))]
                w[moved, k] -= step * mean[moved, k] / u[moved] ** 2
    return w


EXACT: dict[str, dict[str, Any]] = {
    "selection": {"noise": "selection"},
    "selection-scaled": {"noise": "selection", "feature_scale": SCALE},
    "gaussian-2": {"noise": "gaussian", "block": 2},
    "gaussian-all": {"noise": "gaussian", "block": 100},
    "gaussian-scaled": {"noise": "gaussian", "block": 3, "feature_scale": SCALE},
}


@reduce_to_pairs()
@pytest.mark.parametrize("loss", BUT_POISSON)
@pytest.mark.parametrize("case", EXACT)
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array], ids=["dense", "csr"])
def test_without_noise_it_is_the_non_private_method(
    recorder: type[RecordingCurator], loss: str, case: str, fit_intercept: bool, convert: Any
) -> None:
    """epsilon=None is greedy coordinate descent to 1e-10, for every loss and kind of noise."""
    X, y = problem(loss)
    method = CoordinateDescent(n_iter=25, step=0.7, **EXACT[case])
    model = model_for(loss, None, method, n_nonzero=D, loss=loss, bounds=None, fit_intercept=fit_intercept).fit(
        convert(X), y
    )
    constant = method.settings(recorder.facts[-1]).intercept_value
    assert (constant > 0) == fit_intercept
    w = plain_descent(
        X,
        slopes_of(loss, y),
        n_iter=25,
        step=0.7,
        constant=constant,
        scale=method.feature_scale,
        block=method.block,
    )
    np.testing.assert_allclose(np.ravel(model.coef_), w[:D, 0], rtol=0, atol=1e-10)
    np.testing.assert_allclose(np.ravel(model.intercept_), constant * w[D:].sum(), rtol=0, atol=1e-10)
    assert np.any(w)


@pytest.mark.parametrize("case", EXACT)
@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
def test_without_noise_on_three_classes(recorder: type[RecordingCurator], case: str, loss: str) -> None:
    """One coordinate, or one block, for each class in a step: softmax, and one against the rest."""
    X, y = problem("classification", n_classes=3)
    method = CoordinateDescent(n_iter=12, step=0.7, **EXACT[case])
    model = model_for("classification", None, method, n_nonzero=D, loss=loss, bounds=None).fit(X, y)
    w = plain_descent(
        X,
        slopes_of(loss, y, n_classes=3),
        n_iter=12,
        step=0.7,
        constant=method.settings(recorder.facts[-1]).intercept_value,
        scale=method.feature_scale,
        block=method.block,
        outputs=3,
    )
    np.testing.assert_allclose(model.coef_, w[:D].T, rtol=0, atol=1e-10)
    np.testing.assert_allclose(
        model.intercept_, method.settings(recorder.facts[-1]).intercept_value * w[D], rtol=0, atol=1e-10
    )


@reduce_to_pairs()
@pytest.mark.parametrize("case", EXACT)
@pytest.mark.parametrize("loss", BUT_POISSON)
@pytest.mark.parametrize(("clip", "last_clip"), [(0.2, 1.0), (0.2, 0.25), (1e6, 1.0)])
@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array], ids=["dense", "csr"])
def test_a_private_plan_without_its_noise(case: str, loss: str, clip: float, last_clip: float, convert: Any) -> None:
    """With a budget's settings and noise times 0: the non-private method on slopes clipped row by row.

    For choices a row is cut where an entry, in units of its feature's scale, passes clip × row_linf, with a clip that
    falls in eight parts; for gradients where its ℓ2 norm passes clip × row bound. The large clip cuts nothing.
    """
    X, y = problem(loss)
    two = 1.001 * float(np.linalg.norm(X, axis=1).max())
    public = facts(n_rows=len(X), n_features=D, n_nonzero=D, loss=LOSSES[loss](), row_l2=two, row_linf=1.0, label=5.0)
    parameters = dict(EXACT[case])
    if clip > 1 and "feature_scale" in parameters:  # entries then never pass row_linf × scale
        parameters["feature_scale"] = SCALE + 1.0
    method = CoordinateDescent(n_iter=15, step=0.7, clip=clip, last_clip=last_clip, **parameters)
    a = method.settings(public).intercept_value
    weights = run_without_noise(method, public, convert(X), signed(loss, y))
    unclipped = slopes_of(loss, y)
    scale = np.ones(D) if method.feature_scale is None else method.feature_scale

    steps = itertools.count()

    def slopes(m: Array) -> Array:
        if parameters["noise"] == "selection":
            part = 8 * next(steps) // 15
            cap = clip * last_clip ** (part / 7) * max(1.0, a) / np.maximum((np.abs(X) / scale).max(axis=1), a)
        else:
            cap = clip * math.hypot(two, a) / np.hypot(np.linalg.norm(X, axis=1), a)
        return np.clip(unclipped(m), -cap[:, None], cap[:, None])

    w = plain_descent(X, slopes, n_iter=15, step=0.7, constant=a, scale=method.feature_scale, block=method.block)
    np.testing.assert_allclose(weights[:, 0], np.append(w[:D, 0], a * w[D, 0]), rtol=0, atol=1e-10)
    free = plain_descent(X, unclipped, n_iter=15, step=0.7, constant=a, scale=method.feature_scale, block=method.block)
    assert np.allclose(w, free, atol=1e-6) == (clip > 1)


def test_it_converges_without_privacy() -> None:
    """Steps of 1 / curvature, one coordinate at a time, reach the least-squares solution."""
    X, y = problem("regression", n=400)
    A = np.column_stack([X, np.ones(len(X))])
    best = np.linalg.lstsq(A, y, rcond=None)[0]
    for noise in ("selection", "gaussian"):
        model = SparseRegressor(None, n_nonzero=D, method=CoordinateDescent(n_iter=3000, step=1.0, noise=noise))
        model.fit(X, y)
        np.testing.assert_allclose([*model.coef_, model.intercept_], best, rtol=0, atol=1e-3)


def test_without_privacy_the_default_finds_the_support() -> None:
    """epsilon=None, n_nonzero=3 and nothing else."""
    X, y = problem("regression", n=400)
    model = SparseRegressor(None, n_nonzero=3, method="coordinate_descent").fit(X, y)
    assert model.support_.tolist() == [0, 3, 7]
    assert model.score(X, y) > 0.97


# --- the scale of features -------------------------------------------------------------------------------------------


def test_features_in_other_units_with_their_scale_give_the_same_model() -> None:
    """Features times u with feature_scale u: the same choices, and weights divided by u, without noise."""
    X, y = problem("regression")
    for noise in ("selection", "gaussian"):
        plain = CoordinateDescent(n_iter=15, step=0.5, noise=noise, block=3)
        scaled = CoordinateDescent(n_iter=15, step=0.5, noise=noise, block=3, feature_scale=SCALE)
        one = SparseRegressor(None, n_nonzero=D, method=plain).fit(X, y)
        other = SparseRegressor(None, n_nonzero=D, method=scaled).fit(X * SCALE, y)
        np.testing.assert_allclose(other.coef_ * SCALE, one.coef_, rtol=0, atol=1e-9)
        without = SparseRegressor(None, n_nonzero=D, method=plain).fit(X * SCALE, y)
        assert not np.allclose(without.coef_ * SCALE, one.coef_, atol=1e-3)


@pytest.mark.parametrize("factor", [1, 4])
def test_the_sensitivity_of_a_value_is_in_the_units_of_its_feature(
    recorder: type[RecordingCurator], factor: float
) -> None:
    """2 C u_j / n for the chosen coordinate, 2 C / n for scores in units."""
    X, y = problem("classification")
    method = CoordinateDescent(n_iter=6, noise="selection", feature_scale=factor * SCALE)
    model_for("classification", 1.0, method).fit(X, y)
    pairs = list(zip(recorder.asked[::2], recorder.asked[1::2]))
    units = np.append(factor * SCALE, 1.0)
    for choice, value in pairs:
        assert (choice.name, value.name) == ("select", "update")
        wanted = choice.sensitivity.linf * units[value.query.coordinates[0]]
        assert value.sensitivity.l2 == pytest.approx(wanted, rel=1e-12)


# --- sparsity --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", [1, 4])
def test_blocks_give_at_most_block_times_t_nonzeros(block: int) -> None:
    """With Gaussian noise a step moves `block` weights."""
    X, y = problem("regression", d=40)
    method = CoordinateDescent(n_iter=3, noise="gaussian", block=block)
    model = model_for("regression", 0.01, method, n_nonzero=40).fit(X, y)
    assert block <= np.count_nonzero(model.coef_) <= 3 * block


# --- no published noise, rows of a person ----------------------------------------------------------------------------


@pytest.mark.parametrize("variant", COORDINATE_DESCENT)
def test_there_is_no_published_calibration(variant: str) -> None:
    """Refused with words, whatever the noise."""
    X, y = problem("classification")
    model = model_for("classification", 1.0, CoordinateDescent(**COORDINATE_DESCENT[variant]), calibration="published")
    with pytest.raises(ValueError, match="no published calibration here; use calibration='rigorous'"):
        model.fit(X, y)


@pytest.mark.parametrize("noise", ["gaussian", "selection"])
def test_noise_scales_with_the_rows_of_a_person(noise: Any) -> None:
    """On rows and labels of zero one step is nothing but noise: with 4 rows per person it is 4 times as large."""
    one, four = (
        model_for(
            "regression",
            1.0,
            CoordinateDescent(n_iter=1, step=0.5, noise=noise, block=D),
            bounds=replace(BOUNDS, rows_per_person=k),
            n_nonzero=D,
            fit_intercept=False,
        ).fit(np.zeros((100, D)), np.zeros(100))
        for k in (1, 4)
    )
    assert np.any(one.coef_)
    np.testing.assert_array_equal(four.coef_, 4 * one.coef_)


# --- accuracy --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "parameters",
    [{}, {"noise": "selection"}, {"noise": "selection", "feature_scale": np.ones(60)}, {"noise": "gaussian"}],
    ids=["default", "selection", "scaled", "gaussian"],
)
@pytest.mark.parametrize("loss", BUT_POISSON)
def test_an_easy_problem_is_learnt(loss: str, parameters: dict[str, Any]) -> None:
    """20,000 rows, 60 features, three that count, epsilon = 2: their support in three seeds of three, and R² > 0.9, or
    90 % right where guessing has 57 %.

    Seeds are fixed; of 40 others none fails in any case (a false-alarm rate below 8 % at 95 % confidence).
    """
    X, y = problem("regression", n=20_000, d=60, seed=1)
    labels = y > 0 if is_classification(loss) else y
    bounds = Bounds(row_linf=1.0, row_l2=5.5, label=4.0)
    for seed in range(3):
        method = CoordinateDescent(**parameters)
        model = model_for(loss, 2.0, method, loss=loss, n_nonzero=3, bounds=bounds, random_state=seed)
        model.fit(X, labels)
        assert model.support_.tolist() == [0, 3, 7]
        assert model.score(X, labels) > 0.9


def test_an_intercept_does_not_diverge_without_privacy() -> None:
    """With declared bounds the constant column was as large as the largest entry, and far more curved than features."""
    rng = np.random.default_rng(0)
    X = rng.random((500, 60)) * (rng.random((500, 60)) < 0.1)
    y = np.where(X[:, 0] - X[:, 1] + 0.05 * rng.standard_normal(500) > 0, 1, -1)
    bounds = Bounds(row_l2=1.0, row_linf=1.0)
    model = SparseClassifier(None, method="coordinate_descent", n_nonzero=5, bounds=bounds).fit(X, y)
    loss = np.mean(np.logaddexp(0, -y * model.decision_function(X)))
    assert loss < 0.62  # guessing is 0.69; it was 50
    assert abs(model.intercept_[0]) < 1.0
