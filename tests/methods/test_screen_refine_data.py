"""Screen and refine: rows of every kind, and the accuracy on easy ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import fits
import numpy as np
import pytest
import scipy.sparse as sp
from fits import Array, RecordingCurator, estimator_for
from pairwise import reduce_to_pairs
from scipy.optimize import root
from scipy.special import expit, logit
from screened_rows import BOUNDS, facts, problem
from sklearn.base import clone

from tulle import Bounds, SparseClassifier, SparseRegressor
from tulle.methods import ScreenRefine, TwoStage
from tulle.methods.loss_functions import Logistic, Loss, Squared

recorder = fits.recorder

# --- input that is accepted ------------------------------------------------------------------------------------------


def strange(which: str) -> tuple[Array, Array]:
    """Good input that looks bad; the labels are 0 and 1."""
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (60, 5)), (np.arange(60) % 3 == 0).astype(float)
    if which == "empty rows and constant columns":
        X[:10], X[:, 1], X[10:, 2] = 0.0, 0.0, 3.0
    elif which == "nothing at all":
        X[:] = 0.0
    elif which == "two rows":
        X, y = X[:2], np.array([0.0, 1.0])
    elif which == "one feature":
        X = X[:, :1]
    elif which == "one empty feature":
        X = np.zeros((60, 1))
    elif which == "enormous":
        X = 1e200 * X
    elif which == "tiny":
        X = 1e-200 * X
    return X, y


STRANGE = [
    "empty rows and constant columns",
    "nothing at all",
    "two rows",
    "one feature",
    "one empty feature",
    "enormous",
    "tiny",
]

METHODS: list[Any] = [
    ScreenRefine(noise="gaussian"),
    ScreenRefine(noise="selection"),
    ScreenRefine(rounds=3, noise="gaussian"),
    ScreenRefine(rounds=2, noise="selection"),
    TwoStage(),
]


@reduce_to_pairs()
@pytest.mark.parametrize("which", STRANGE)
@pytest.mark.parametrize("method", METHODS, ids=["gaussian", "selection", "gaussian-3", "selection-2", "two-stage"])
@pytest.mark.parametrize("budget", [0.1, 50.0, None])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_strange_rows_are_fitted(which: str, method: Any, budget: float | None, fit_intercept: bool) -> None:
    """No error once noise is drawn: dense and sparse rows, two losses, some weights and all of them."""
    X, y = strange(which)
    for number, loss in enumerate(("logistic", "squared", "poisson")):
        for n_nonzero in (1, X.shape[1]):
            rows = sp.csr_array(X) if number % 2 else X
            model = estimator_for(loss)(
                budget,
                n_nonzero=n_nonzero,
                method=method,
                loss=loss,
                bounds=BOUNDS,
                fit_intercept=fit_intercept,
                random_state=number,
            ).fit(rows, y)
            assert np.all(np.isfinite(model.coef_))
            assert np.all(np.isfinite(model.intercept_))
            assert fit_intercept or np.all(model.intercept_ == 0)


@pytest.mark.parametrize("loss", [Logistic(), Squared()], ids=["logistic", "squared"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_scores_that_all_vanish_leave_an_empty_support(loss: Loss, fit_intercept: bool) -> None:
    """On the released grid every score can be zero, and then there is nothing to refine: the constant model."""
    public = facts(loss=loss, fit_intercept=fit_intercept)

    def ask(name: str, query: Any, then: Any = None) -> Any:
        if name in ("refine", "rescale"):
            assert len(query.features) == 0
            return np.full(len(query.centre), -0.5)
        answer = np.zeros((1, 1) if name == "spread" else (public.n_parameters, 1))
        return answer if then is None else then(answer)

    weights = ScreenRefine(noise="gaussian").run(ask, public)
    assert np.count_nonzero(weights[:-1]) == 0
    assert (weights[-1, 0] != 0) == fit_intercept


def test_a_noisy_slope_does_not_wipe_out_the_weights() -> None:
    """One empty feature and 40 seeds: its weight is noise, never lost in the rescaling."""
    X, y = np.zeros((50, 1)), np.arange(50.0) % 2
    model = SparseClassifier(1.0, method=ScreenRefine(noise="gaussian"), bounds=BOUNDS)
    assert all(clone(model).set_params(random_state=seed).fit(X, y).coef_.all() for seed in range(40))


@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_the_start_of_few_rows_is_shrunk(recorder: type[RecordingCurator], loss: str) -> None:
    """The noise of a mean of 30 rows at a small budget exceeds every slope: screening starts near the zero model."""
    X, y = problem(loss, n=30)
    for seed in range(20):
        model = estimator_for(loss)(0.5, method=ScreenRefine(noise="gaussian"), bounds=BOUNDS, random_state=seed)
        model.fit(X, y)
    screens = [query for name, query, _ in recorder.asked if name == "screen"]
    assert len(screens) == 20
    assert all(np.all(query.weights == 0) for query in screens)


@reduce_to_pairs()
@pytest.mark.parametrize("label", [1e-50, 1e-12, 1e12, 1e50])
@pytest.mark.parametrize("loss", ["squared", "huber", "poisson"])
@pytest.mark.parametrize("method", METHODS[:2], ids=["gaussian", "selection"])
def test_label_bounds_of_any_size(label: float, loss: str, method: Any) -> None:
    """A bound far from all labels drowns or clips them, and nothing else."""
    X, y = problem(loss)
    model = SparseRegressor(1.0, n_nonzero=3, method=method, loss=loss, bounds=replace(BOUNDS, label=label)).fit(X, y)
    assert np.all(np.isfinite(model.coef_))
    assert np.isfinite(model.intercept_)


@pytest.mark.parametrize("people", [30, 300, 3000])
@pytest.mark.parametrize("method", ["auto", "screen_refine", "two_stage"])
def test_many_rows_of_a_person(people: int, method: Any) -> None:
    """The budget holds for any number of rows, however useless the model."""
    X, y = problem("logistic")
    bounds = replace(BOUNDS, rows_per_person=people)
    model = SparseClassifier(1.0, n_nonzero=2, method=method, bounds=bounds, random_state=0).fit(X, y)
    assert 0.98 < model.privacy_.epsilon <= 1
    assert np.all(np.isfinite(model.coef_))


# --- accuracy --------------------------------------------------------------------------------------------------------

TRUE = [4, 20, 40, 41]


def easy(n: int, loss: str, seed: int) -> tuple[Array, Array]:
    """A hundred features of which four matter."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 100))
    margins = X[:, TRUE] @ np.array([3.0, -3.0, 2.5, 2.5]) + 1.0
    if loss == "squared":
        return X, margins + 0.3 * rng.standard_normal(n)
    return X, (rng.random(n) < expit(margins)).astype(float)


EASY_BOUNDS = Bounds(row_l2=6.4, row_linf=1.0, label=9.0)


@pytest.mark.parametrize("loss", ["logistic", "squared"])
@pytest.mark.parametrize("noise", ["gaussian", "selection"])
def test_an_easy_support_is_found_and_beats_the_null_model(loss: str, noise: Any) -> None:
    """6,000 rows at epsilon = 4, three seeds: the true features and most of what can be explained."""
    for seed in range(3):
        X, y = easy(7000, loss, seed)
        model = estimator_for(loss)(
            4.0, n_nonzero=4, method=ScreenRefine(noise=noise), bounds=EASY_BOUNDS, random_state=seed
        ).fit(X[:6000], y[:6000])
        assert model.support_.tolist() == TRUE
        score = model.score(X[6000:], y[6000:])
        null = max(np.mean(y), 1 - np.mean(y)) if loss == "logistic" else 0.0
        assert score > null + (0.15 if loss == "logistic" else 0.8)


def test_a_last_round_with_room_for_fewer_loses_no_good_feature() -> None:
    """Three features in two rounds (two and one) at an epsilon where choices are clear: three good ones of four."""
    for seed in range(3):
        X, y = easy(6000, "logistic", seed)
        method = ScreenRefine(rounds=2, noise="selection")
        model = SparseClassifier(20.0, n_nonzero=3, method=method, bounds=EASY_BOUNDS, random_state=seed).fit(X, y)
        assert len(model.support_) == 3
        assert set(model.support_) <= set(TRUE)


@pytest.mark.parametrize("noise", ["gaussian", "selection"])
def test_the_intercept_is_right_on_classes_of_unequal_size(noise: Any) -> None:
    """95 % ones and features that say little: the mean probability is theirs, and so is every prediction."""
    rng = np.random.default_rng(2)
    X = rng.uniform(-1, 1, (4000, 50))
    y = (rng.random(4000) < expit(logit(0.95) + 0.5 * X[:, 0])).astype(float)
    for seed in range(3):
        model = SparseClassifier(
            2.0,
            n_nonzero=2,
            method=ScreenRefine(noise=noise),
            bounds=Bounds(row_l2=5.0, row_linf=1.0),
            random_state=seed,
        ).fit(X, y)
        assert 0.88 < model.predict_proba(X)[:, 1].mean() < 0.985
        assert model.score(X, y) >= 0.94


def calibration_slope(margins: Array, y: Array) -> float:
    """The factor on the margins (and an offset beside it) that describes the labels best: 1 is calibrated."""
    A = np.column_stack([margins, np.ones(len(margins))])
    found = root(lambda b: A.T @ (expit(A @ b) - y), np.array([1.0, 0.0]), method="hybr")
    return float(found.x[0])


@pytest.mark.parametrize("noise", ["gaussian", "selection"])
@pytest.mark.parametrize("distortion", [{}, {"slope_clip": 0.3, "row_bound": 0.5}], ids=["default", "distorted"])
def test_rescaling_calibrates_probabilities(noise: Any, distortion: dict[str, float]) -> None:
    """The slope of calibration on fresh rows is near 1; without the rescaling, strongly clipped rows put it far off."""
    X, y = easy(11_000, "logistic", 5)

    def slope(rescale_share: float | None) -> float:
        model = SparseClassifier(
            4.0,
            n_nonzero=4,
            method=ScreenRefine(noise=noise, rescale_share=rescale_share, **distortion),
            bounds=EASY_BOUNDS,
            random_state=0,
        ).fit(X[:7000], y[:7000])
        return calibration_slope(model.decision_function(X[7000:]), y[7000:])

    assert 0.65 < slope(None) < 1.5
    if distortion:
        assert not 0.65 < slope(0.0) < 1.5


# --- the noise that is drawn -----------------------------------------------------------------------------------------


def test_the_refinement_has_the_noise_that_was_billed() -> None:
    """On empty rows a refinement is centre - b / penalty: 4,000 draws have the deviation that the bill states.

    The spread of the estimate is 1.1 %; both limits are six of its deviations away, a false alarm has probability
    below 1e-8. A third of the noise, or the noise without its factor 2, is far outside.
    """
    method = ScreenRefine(noise="selection", rounds=1, start_share=0.0, rescale_share=0.0)
    bounds = Bounds(row_linf=1.0, row_l2=2.0, label=1.0)
    d = 400
    draws = []
    for seed in range(10):
        model = SparseRegressor(
            1.0, 1e-5, n_nonzero=d, method=method, bounds=bounds, fit_intercept=False, random_state=seed
        ).fit(np.zeros((30, d)), np.zeros(30))
        draws.append(model.coef_)
    public = facts(
        n_rows=30,
        n_features=d,
        n_nonzero=d,
        loss=Squared(),
        row_l2=2.0,
        label=1.0,
        fit_intercept=False,
    )
    constants = method.settings(public).refine
    billed = next(line.noise_per_sensitivity for line in model.privacy_.bill if line.release == "refine")
    moves = 2 * constants.slope_clip * constants.row_bound
    wanted = billed * moves / constants.penalty
    # The noise that hides where the solver stopped adds half a percent to the variance at most.
    assert 0.93 * wanted < np.std(draws) < 1.08 * wanted


@pytest.mark.parametrize("noise", ["gaussian", "selection"])
def test_what_is_chosen_on_empty_rows_is_left_to_chance(noise: Any) -> None:
    """Three of 12 features, 40 seeds: all features have their turn (one is left out with probability 1e-4)."""
    X, y = np.zeros((60, 12)), np.arange(60.0) % 2
    model = SparseClassifier(1.0, n_nonzero=3, method=ScreenRefine(1, noise, rescale_share=0.0), bounds=BOUNDS)
    chosen = [tuple(clone(model).set_params(random_state=seed).fit(X, y).support_) for seed in range(40)]
    assert len(set(chosen)) > 30
    assert set().union(*chosen) == set(range(12))
