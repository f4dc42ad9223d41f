"""Hard thresholding: the plan it keeps, the method it is without noise, and the papers' noise with its true epsilon.

How its defaults scale is in test_stepwise_methods.py.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import fits
import numpy as np
import pytest
import scipy.sparse as sp
from fits import (
    BUT_POISSON,
    SLOPES,
    Array,
    RecordingCurator,
    estimator_for,
    signed,
    the_examples_of_the_rule,
    to_digits,
)
from pairwise import reduce_to_pairs
from sklearn.base import clone

from tulle import Bounds, Budget, SparseClassifier, SparseRegressor
from tulle.datasets import dp_ight_figure1
from tulle.files.error_messages import PrivacyWarning
from tulle.methods import HardThresholding
from tulle.methods.hard_thresholding import Settings
from tulle.methods.loss_functions import Logistic, Loss, Softmax, Squared

recorder = fits.recorder
problem = partial(fits.problem, n=120, n_classes=None)
facts = partial(fits.facts, n_nonzero=5, row_l2=1.0)


# --- the plan --------------------------------------------------------------------------------------------------------


@reduce_to_pairs()
@pytest.mark.parametrize("epsilon", [1.0, None])
@pytest.mark.parametrize("noise", ["gaussian", "selection"])
@pytest.mark.parametrize("n_iter", [None, 1, 7])
@pytest.mark.parametrize("step", [None, 0.5])
def test_what_is_asked_equals_the_plan(
    recorder: type[RecordingCurator], epsilon: float | None, noise: Any, n_iter: int | None, step: float | None
) -> None:
    """Names and counts that the curator was asked for are those of releases(), and those of the report's bill."""
    X, y = problem("classification")
    method = HardThresholding(n_iter=n_iter, noise=noise, step=step)
    model = SparseClassifier(epsilon, n_nonzero=3, method=method, bounds=Bounds(row_l2=2.0), random_state=0).fit(X, y)
    planned = {release.name: release.count for release in method.releases(recorder.facts[-1])}
    assert Counter(asked.name for asked in recorder.asked) == planned
    assert {line.release: line.count for line in model.privacy_.bill} == planned
    names = {"step"} if noise == "gaussian" else {"select", "values"}
    # Without privacy a step and its size are one answer, from one gradient.
    apart = step is None and not (epsilon is None and noise == "gaussian")
    assert set(planned) == names | ({"curvature"} if apart else set())
    assert set(planned.values()) == {model.n_iter_}
    assert n_iter in (None, model.n_iter_)


@pytest.mark.parametrize("noise", ["gaussian", "selection"])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-5), (3.0, 1e-9), (20.0, 1e-5)])
def test_the_proved_epsilon_is_just_below_the_budget(noise: Any, n_classes: int, epsilon: float, delta: float) -> None:
    """Calibration spends nearly all of the budget and never more, whatever the noise and the number of outputs."""
    X, _ = problem("regression")
    y = np.arange(len(X)) % n_classes
    method = HardThresholding(noise=noise)
    model = SparseClassifier(epsilon, delta, n_nonzero=4, method=method, bounds=Bounds(row_l2=2.0)).fit(X, y)
    assert 0.99 * epsilon < model.privacy_.epsilon <= epsilon
    assert model.privacy_.delta == delta


# --- without noise ---------------------------------------------------------------------------------------------------


def plain_ight(
    X: Array,
    y: Array,
    loss: str,
    *,
    keep: int,
    n_iter: int,
    step: float,
    constant: float,
    penalty: float = 0.0,
    ball: float = math.inf,
) -> tuple[Array, float]:
    """The papers' loop on plain arrays, with a constant column that is never thresholded or penalised."""
    n, d = X.shape
    A = np.column_stack([X, np.full(n, constant)])
    w = np.zeros(d + 1)
    for _ in range(n_iter):
        shrunk = np.append(w[:d], 0.0)
        w = w - step * (A.T @ SLOPES[loss](A @ w, y) / n + penalty * shrunk)
        smallest = np.argsort(-np.abs(w[:d]))[keep:]
        w[smallest] = 0.0
        w *= min(1.0, ball / np.linalg.norm(w))
    return w[:d], constant * w[d]


@reduce_to_pairs()
@pytest.mark.parametrize("loss", BUT_POISSON)
@pytest.mark.parametrize("noise", ["gaussian", "selection", "laplace"])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("options", [{}, {"penalty": 0.3}, {"ball": 0.7}], ids=["plain", "penalty", "ball"])
@pytest.mark.parametrize("keep", [1, 3])
def test_without_noise_it_is_the_non_private_method(
    recorder: type[RecordingCurator],
    loss: str,
    noise: Any,
    fit_intercept: bool,
    options: dict[str, float],
    keep: int,
) -> None:
    """epsilon=None is IGHT to 1e-10."""
    X, y = problem(loss)
    method = HardThresholding(n_iter=9, step=0.8, noise=noise, **options)
    model = estimator_for(loss)(None, n_nonzero=keep, method=method, loss=loss, fit_intercept=fit_intercept).fit(X, y)
    constant = method.settings(recorder.facts[-1]).intercept_value
    assert (constant > 0) == fit_intercept
    coef, intercept = plain_ight(X, signed(loss, y), loss, keep=keep, n_iter=9, step=0.8, constant=constant, **options)
    np.testing.assert_allclose(np.ravel(model.coef_), coef, rtol=0, atol=1e-10)
    np.testing.assert_allclose(np.ravel(model.intercept_), intercept, rtol=0, atol=1e-10)
    assert np.count_nonzero(coef) == keep


@pytest.mark.parametrize("loss", BUT_POISSON)
@pytest.mark.parametrize("noise", ["gaussian", "selection"])
@pytest.mark.parametrize("keep", [1, 3])
def test_without_noise_bounds_that_hold_change_nothing(
    recorder: type[RecordingCurator], loss: str, noise: Any, keep: int
) -> None:
    """epsilon=None clips nothing: declared bounds that hold for every row leave IGHT as it is."""
    X, y = problem(loss)
    bounds = Bounds(row_l2=1.001 * float(np.linalg.norm(X, axis=1).max()), row_linf=1.0, label=5.0)
    method = HardThresholding(n_iter=9, step=0.8, noise=noise)
    model = estimator_for(loss)(None, n_nonzero=keep, method=method, loss=loss, bounds=bounds).fit(X, y)
    constant = method.settings(recorder.facts[-1]).intercept_value
    coef, intercept = plain_ight(X, signed(loss, y), loss, keep=keep, n_iter=9, step=0.8, constant=constant)
    np.testing.assert_allclose(np.ravel(model.coef_), coef, rtol=0, atol=1e-10)
    np.testing.assert_allclose(np.ravel(model.intercept_), intercept, rtol=0, atol=1e-10)


def test_without_privacy_the_default_step_converges() -> None:
    """Normalised steps find the least-squares solution on the true support."""
    X, y = problem("regression", n=300)
    model = SparseRegressor(None, n_nonzero=3).fit(X, y)
    assert model.support_.tolist() == [0, 3, 7]
    A = np.column_stack([X[:, [0, 3, 7]], np.ones(len(X))])
    best = np.linalg.lstsq(A, y, rcond=None)[0]
    np.testing.assert_allclose([*model.coef_[[0, 3, 7]], model.intercept_], best, rtol=0, atol=1e-4)


# --- the rows' format ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", ["gaussian", "selection"])
@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_dense_csr_and_csc_give_the_same_weights(noise: Any, kind: str) -> None:
    """The format of the rows changes nothing, with the same seed and rows that are clipped in both norms."""
    X, y = problem(kind, n=200)
    X[np.abs(X) < 0.5] = 0.0
    bounds = Bounds(row_l2=1.5, row_linf=0.8, label=1.0)
    model = estimator_for(kind)(20.0, n_nonzero=3, method=HardThresholding(noise=noise), bounds=bounds, random_state=3)
    dense = clone(model).fit(X, y)
    for convert in (sp.csr_array, sp.csc_array, sp.csr_matrix, np.asfortranarray):
        other = clone(model).fit(convert(X), y)
        np.testing.assert_array_equal(other.support_, dense.support_)
        np.testing.assert_allclose(other.coef_, dense.coef_, rtol=0, atol=1e-12)
        np.testing.assert_allclose(other.intercept_, dense.intercept_, rtol=0, atol=1e-12)


@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize("epsilon", [None, 20.0])
def test_float32_is_close_to_float64(convert: Any, epsilon: float | None) -> None:
    """Rows in single precision change weights by no more than their rounding, or by one line of the released grid."""
    X, y = problem("classification", n=300)
    method = HardThresholding(n_iter=5, step=1.0, noise="gaussian")
    model = SparseClassifier(epsilon, n_nonzero=12, method=method, bounds=Bounds(row_l2=4.0), random_state=0)
    double = clone(model).fit(convert(X), y)
    single = clone(model).fit(convert(X.astype(np.float32)), y)
    assert not np.array_equal(double.coef_, 0 * double.coef_)
    np.testing.assert_allclose(single.coef_, double.coef_, rtol=0, atol=1e-5 if epsilon is None else 0.02)


# --- threshold, ball, penalty ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", ["gaussian", "selection"])
@pytest.mark.parametrize("n_nonzero", [1, 3, 12, 50])
@pytest.mark.parametrize("n_classes", [2, 4])
def test_at_most_n_nonzero_weights_per_output_and_a_free_intercept(noise: Any, n_nonzero: int, n_classes: int) -> None:
    """Each output keeps at most n_nonzero weights; with labels of unequal shares every intercept stays non-zero."""
    X, _ = problem("classification")
    y = np.minimum(np.arange(len(X)) % 7, n_classes - 1)
    method = HardThresholding(noise=noise, n_iter=3, step=1.0)
    model = SparseClassifier(50.0, n_nonzero=n_nonzero, method=method, bounds=Bounds(row_l2=2.0), random_state=1).fit(
        X, y
    )
    kept = np.count_nonzero(model.coef_, axis=1)
    assert np.all(kept <= n_nonzero)
    assert kept.max() >= min(n_nonzero, 12) - 1  # the released grid can round a kept weight to zero, hardly two
    assert np.all(model.intercept_ != 0)


def test_the_intercept_is_kept_though_it_is_the_smallest_weight() -> None:
    """One weight is kept among features that all outweigh the intercept; the intercept survives."""
    X, y = problem("regression", n=300)
    model = SparseRegressor(None, n_nonzero=1, method=HardThresholding(n_iter=1, step=0.1)).fit(X, y)
    assert model.support_.tolist() == [3]
    assert 0 < abs(model.intercept_) < abs(model.coef_[3])
    assert SparseRegressor(None, n_nonzero=1, fit_intercept=False).fit(X, y).intercept_ == 0.0


@pytest.mark.parametrize("noise", ["gaussian", "selection"])
@pytest.mark.parametrize("ball", [0.05, 1.0])
def test_weights_lie_in_the_ball(noise: Any, ball: float) -> None:
    """Weights are projected onto the ball, and reach its border where noise pushes them out of it."""
    X, y = problem("regression")
    method = HardThresholding(noise=noise, ball=ball, n_iter=4, step=1.0)
    model = SparseRegressor(
        0.05, n_nonzero=4, method=method, bounds=Bounds(row_l2=2.0, label=4.0), fit_intercept=False, random_state=0
    ).fit(X, y)
    assert np.linalg.norm(model.coef_) == pytest.approx(ball, rel=1e-12)


def test_the_penalty_shrinks_weights_and_costs_nothing() -> None:
    """The same seed with a penalty: the same bill, smaller weights."""
    X, y = problem("regression")
    bounds = Bounds(row_l2=2.0, label=4.0)
    free, penalised = (
        SparseRegressor(
            5.0, method=HardThresholding(noise="gaussian", n_iter=8, step=0.5, penalty=p), bounds=bounds, random_state=0
        ).fit(X, y)
        for p in (0.0, 1.5)
    )
    assert free.privacy_.bill == penalised.privacy_.bill
    assert np.linalg.norm(penalised.coef_) < 0.8 * np.linalg.norm(free.coef_)


# --- the papers' noise -----------------------------------------------------------------------------------------------

# privacy.md section 2: epsilon, delta, sigma n / G of the paper and exact at T = 10, 50, 100, the true epsilon of
# Remark 5.3 and of Corollary 5.8, to the digits given there.
TABLE = """
0.8 1e-2 17.67 39.52 55.89 14.04 31.39 44.39 0.59 1.57
1   1e-2 14.27 31.92 45.13 11.88 26.56 37.56 0.78 2.11
2   1e-2 7.46  16.67 23.58 7.06  15.79 22.33 1.86 5.43
4   1e-2 4.02  8.98  12.70 4.23  9.46  13.38 4.30 14.9
8   1e-2 2.25  5.03  7.12  2.58  5.78  8.17  9.76 44.3
10  1e-2 1.89  4.22  5.97  2.21  4.95  7.00  12.7 64.2
0.8 1e-5 27.28 61.01 86.28 28.92 64.67 91.46 0.85 1.87
1   1e-5 21.92 49.01 69.30 23.59 52.76 74.61 1.08 2.40
2   1e-5 11.18 24.99 35.35 12.61 28.20 39.88 2.29 5.30
4   1e-5 5.80  12.96 18.33 6.84  15.29 21.62 4.84 12.3
8   1e-5 3.09  6.90  9.76  3.80  8.49  12.00 10.3 30.5
10  1e-5 2.54  5.68  8.03  3.16  7.07  10.00 13.1 41.8
"""
ROWS = [line.split() for line in TABLE.strip().splitlines()]


def fit_with_noise(epsilon: float, delta: float, calibration: Any, **method: Any) -> SparseClassifier:
    """A small fit; fewer than 1 / delta rows, so that delta itself causes no warning."""
    X, y = problem("classification", n=50)
    return SparseClassifier(
        epsilon,
        delta,
        method=HardThresholding(noise="gaussian", step=1.0, **method),
        calibration=calibration,
        bounds=Bounds(row_l2=2.0),
    ).fit(X, y)


def published_fit(true_epsilon: float, epsilon: float, delta: float, **method: Any) -> SparseClassifier:
    """A published fit, which must warn exactly if its noise proves a larger epsilon than was asked for."""
    if true_epsilon <= epsilon:
        return fit_with_noise(epsilon, delta, "published", **method)
    with pytest.warns(PrivacyWarning, match=f"the published noise for epsilon = {epsilon:g} proves only epsilon = "):
        return fit_with_noise(epsilon, delta, "published", **method)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}-{row[1]}")
@pytest.mark.parametrize(("steps", "place"), [(10, 0), (50, 1), (100, 2)])
def test_noise_and_true_epsilon_of_remark_5_3(row: list[str], steps: int, place: int) -> None:
    """The noise drawn is the paper's and the exact one, to the table's digits, with the true epsilon in the report."""
    epsilon, delta, true_epsilon = float(row[0]), float(row[1]), row[8]
    published = published_fit(float(true_epsilon), epsilon, delta, n_iter=steps)
    assert 2 * published.privacy_.bill[0].noise_per_sensitivity == to_digits(row[2 + place])
    assert published.privacy_.epsilon == to_digits(true_epsilon)
    assert published.privacy_.asked == (epsilon, delta)
    rigorous = fit_with_noise(epsilon, delta, "rigorous", n_iter=steps)
    assert 2 * rigorous.privacy_.bill[0].noise_per_sensitivity == to_digits(row[5 + place])
    assert 0.99 * epsilon < rigorous.privacy_.epsilon <= epsilon


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}-{row[1]}")
@pytest.mark.parametrize("steps", [10, 100])
def test_true_epsilon_of_corollary_5_8(row: list[str], steps: int) -> None:
    """Corollary 5.8 proves much more than it claims, at any number of steps, and warns."""
    epsilon, delta = float(row[0]), float(row[1])
    model = published_fit(math.inf, epsilon, delta, published_rule="corollary_5.8", n_iter=steps)
    assert model.privacy_.epsilon == to_digits(row[9])
    sigma = math.sqrt(steps * math.log(1 / delta)) / epsilon
    assert 2 * model.privacy_.bill[0].noise_per_sensitivity == pytest.approx(sigma, rel=1e-12)


def test_corollary_5_6_names_what_it_needs() -> None:
    """Its gradient bound has constants of a data model; none is made up, and rows beyond it are clipped."""
    X, y = problem("regression")

    def fit(cls: Any = SparseRegressor, **method: Any) -> Any:
        method = {"noise": "gaussian", "n_iter": 3, "published_rule": "corollary_5.6", **method}
        bounds = Bounds(row_l2=2.0, label=3.0)
        return cls(4.0, 1e-5, method=HardThresholding(**method), bounds=bounds, calibration="published").fit(X, y)

    with pytest.raises(ValueError, match="needs weight_norm and label_noise: its gradient bound is row_l2"):
        fit()
    with pytest.raises(ValueError, match="needs label_noise: "):
        fit(weight_norm=1.0)
    with pytest.raises(ValueError, match="is for a regression and has a clip of its own; leave clip=None"):
        fit(weight_norm=1.0, label_noise=0.1, clip=2.0)
    with pytest.warns(PrivacyWarning, match="the published noise for epsilon = 4 proves only epsilon = 4.84"):
        model = fit(weight_norm=0.01, label_noise=0.0)  # nearly all rows are clipped, and the guarantee still holds
    assert "slopes clipped at 0.0" in model.privacy_.method


@pytest.mark.parametrize(
    ("epsilon", "delta", "constant"),
    [(0.1, 1e-3, 1.75), (0.1, 1e-5, 3.29), (1, 1e-3, 3.84), (1, 1e-5, 4.84), (8, 1e-3, 8.54), (8, 1e-5, 8.01)],
)
def test_the_smallest_valid_constant_of_ldp(epsilon: float, delta: float, constant: float) -> None:
    """Half a digit above the table's constant [LDP] keeps its promise, half a digit below it warns."""
    enough = published_fit(0.0, epsilon, delta, published_rule="ldp", published_constant=constant + 0.005)
    assert 0.98 * epsilon < enough.privacy_.epsilon <= epsilon
    little = published_fit(math.inf, epsilon, delta, published_rule="ldp", published_constant=constant - 0.005)
    assert epsilon < little.privacy_.epsilon < 1.02 * epsilon


def test_the_report_of_a_published_fit_says_that_it_proves_more() -> None:
    """The printed report names both figures and says which is larger."""
    report = published_fit(4.84, 4.0, 1e-5).privacy_
    assert report.calibration == "published"
    assert "ε = 4, δ = 1e-05 was requested; ε = 4.84" in " ".join(str(report).split())
    assert "MORE than requested" in " ".join(str(report).split())


@pytest.mark.parametrize(
    ("noise", "bounds"), [("selection", Bounds(row_l2=1.0)), ("auto", Bounds(row_linf=1.0))], ids=["asked", "auto"]
)
def test_no_paper_prints_selection_noise(noise: Any, bounds: Bounds) -> None:
    """Published calibration refuses selection noise, be it asked for or chosen by the rule."""
    X, y = problem("classification")
    model = SparseClassifier(n_nonzero=1, method=HardThresholding(noise=noise), bounds=bounds, calibration="published")
    with pytest.raises(ValueError, match="no paper prints noise for noise='selection'"):
        model.fit(X, y)


# --- defaults --------------------------------------------------------------------------------------------------------


@the_examples_of_the_rule
def test_auto_noise_follows_the_rule_of_error_scales(
    d: int, s: int, row_l2: float, row_linf: float, selection: bool
) -> None:
    """Gaussian noise for ℓ2-normalised text, selection for dense bounded designs: the four examples of privacy.md."""
    public = facts(n_features=d, n_nonzero=s, row_l2=row_l2, row_linf=row_linf)
    assert HardThresholding().settings(public).selection is selection
    names = {release.name for release in HardThresholding().releases(public)}
    assert names - {"curvature"} == ({"select", "values"} if selection else {"step"})
    for noise in ("gaussian", "selection"):
        assert HardThresholding(noise=noise).settings(public).selection is (noise == "selection")


def test_auto_noise_is_gaussian_without_privacy() -> None:
    """Without a budget there is nothing to choose."""
    public = facts(n_nonzero=1, row_l2=10.0, row_linf=1.0)
    assert HardThresholding().settings(public).selection
    assert not HardThresholding().settings(replace(public, budget=None)).selection


@pytest.mark.parametrize("kind", ["classification", "regression"])
@pytest.mark.parametrize("bounds", [Bounds(row_l2=1.0, label=2.0), Bounds(row_linf=1.0, label=2.0)], ids=["l2", "linf"])
def test_settings_do_not_look_at_data(kind: str, bounds: Bounds) -> None:
    """Two data sets of one shape, one tiny and one huge, get the same settings, bill and number of steps."""
    X, y = problem(kind)
    model = estimator_for(kind)(bounds=bounds, n_nonzero=2)
    other = 1 - y if kind == "classification" else 1e4 * y
    small, large = clone(model).fit(1e-6 * X, y), clone(model).fit(1e6 * X[::-1], other)
    assert small.privacy_.method == large.privacy_.method
    assert small.privacy_.bill == large.privacy_.bill
    assert (small.n_iter_, small.n_passes_) == (large.n_iter_, large.n_passes_)


def test_settings_are_a_function_of_the_public_facts() -> None:
    """Equal facts give equal settings; changed facts (rows, budget, bounds) change them."""
    method = HardThresholding(noise="gaussian")
    before: Settings = method.settings(facts())
    assert method.settings(facts()) == before
    assert clone(method).settings(facts()) == before
    for change in ({"n_rows": 10**7}, {"budget": Budget(10.0, 1e-5)}, {"row_l2": 2.0}, {"rows_per_unit": 9}):
        assert method.settings(facts(**change)) != before, change


@pytest.mark.parametrize(
    ("parameter", "value", "setting"),
    [("n_iter", 4, "n_iter"), ("step", 0.25, "step"), ("clip", 0.125, "clip"), ("clip_decay", 0.5, "clip_decay")],
)
def test_what_the_user_sets_is_what_runs(parameter: str, value: float, setting: str) -> None:
    """Parameters given replace the defaults, also through set_params of the estimator around them."""
    model = SparseClassifier(method=HardThresholding()).set_params(**{f"method__{parameter}": value})
    assert getattr(model.method.settings(facts()), setting) == value
    assert getattr(HardThresholding().settings(facts()), setting) != value


def test_a_label_bound_of_other_units_does_not_change_the_steps() -> None:
    """The number of steps and their size are free of the units of the labels."""
    one, other = (
        HardThresholding().settings(facts(loss=loss, label=label))
        for loss, label in ((Squared(), 1.0), (Squared(), 1024.0))
    )
    assert (one.n_iter, one.step, one.intercept_value) == (other.n_iter, other.step, other.intercept_value)
    assert other.clip == 1024 * one.clip


@pytest.mark.parametrize("loss", [Logistic(), Squared()], ids=["logistic", "squared"])
def test_more_rows_per_person_mean_smaller_default_steps(loss: Loss) -> None:
    """The noise grows with the rows of a person, and the default step pays attention to it."""
    method = HardThresholding(noise="gaussian", n_iter=10)
    one, nine = (method.settings(facts(loss=loss, label=1.0, rows_per_unit=k)) for k in (1, 9))
    assert one.step is not None
    assert nine.step is not None
    assert nine.step < one.step


# --- accuracy --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "d", "s", "bounds", "trials", "largest_error"),
    [
        pytest.param(1000, 1000, 10, Bounds(row_l2=20.0, row_linf=1.2, label=5.0), 10, 0.20, id="1000-1000-10"),
        pytest.param(5000, 5000, 30, Bounds(row_l2=60.0, row_linf=1.6, label=12.0), 3, 0.09, id="5000-5000-30"),
    ],
)
def test_selection_noise_recovers_the_weights_of_figure_1(
    n: int, d: int, s: int, bounds: Bounds, trials: int, largest_error: float
) -> None:
    """Synthetic data of DP-IGHT figure 1 at epsilon = 2, delta = 0.01: mean relative error below a threshold."""
    errors = []
    for seed in range(trials):
        X, y, weights = dp_ight_figure1(n, d, s, seed=seed)
        model = SparseRegressor(
            2.0,
            0.01,
            n_nonzero=s,
            method=HardThresholding(noise="selection"),
            bounds=bounds,
            fit_intercept=False,
            random_state=seed,
        )
        with pytest.warns(PrivacyWarning, match=r"delta = 0\.01 is not below 1 / \(number of rows\)"):
            model.fit(X, y)
        errors.append(np.linalg.norm(model.coef_ - weights) / np.linalg.norm(weights))
    assert np.mean(errors) <= largest_error


def test_without_privacy_declared_bounds_do_not_slow_the_fit() -> None:
    """On many dense features the constant column must not dwarf all others: it did, and steps were far too short."""
    rng = np.random.default_rng(0)
    X = rng.normal(0, 0.1, (800, 2_500))
    y = X[:, :6] @ np.array([4.0, -4, 4, -4, 4, -4]) + 0.1 * rng.standard_normal(800) > 0.2
    scores = [
        SparseClassifier(None, n_nonzero=6, bounds=bounds).fit(X, y).score(X, y)
        for bounds in (None, Bounds(row_linf=1.0))
    ]
    assert scores[1] > scores[0] - 0.005


# --- several classes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "steps"), [(100, 20), (30_000, 36), (10**6, 60)])
def test_defaults_for_several_classes(n: int, steps: int) -> None:
    """All features, slopes of all classes clipped together at 0.3, and many short steps, by public facts alone."""
    public = facts(loss=Softmax(5), n_rows=n, n_features=40, budget=Budget(1.0, 1e-5))
    method = HardThresholding()
    assert method.default_nonzero(public) == 40
    settings = method.settings(replace(public, n_nonzero=40))
    assert (settings.n_iter, settings.clip, settings.selection) == (steps, 0.3, False)


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        (HardThresholding(), {"budget": None}),
        (HardThresholding(), {"as_published": True}),
        (HardThresholding(), {"budget": Budget(1.0, 0.0)}),
        (HardThresholding(noise="selection"), {}),
        (HardThresholding(noise="laplace"), {}),
    ],
    ids=["no privacy", "published", "pure", "selection", "laplace"],
)
def test_other_noise_has_the_defaults_of_two_classes(method: HardThresholding, changes: dict[str, Any]) -> None:
    public = facts(loss=Softmax(5), n_rows=20_000, n_features=5000, budget=Budget(1.0, 1e-5), row_linf=1.0)
    changed = replace(public, **changes)
    assert method.default_nonzero(changed) < 5000
    assert method.settings(changed).clip != 0.3
