"""LASSO paths: one model for each radius, one budget for all, one line on a ledger."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from pairwise import reduce_to_pairs

import tulle.trusted.fit
from tulle import Bounds, Budget, Ledger, SparseRegressor
from tulle.estimators.lasso_path import LassoPath, lasso_path
from tulle.files.error_messages import PrivacyWarning
from tulle.ledgers.ledger import BudgetExceededError
from tulle.methods import FrankWolfe
from tulle.methods.frank_wolfe import RadiusPath
from tulle.methods.loss_functions import Huber, Squared
from tulle.reports.report import PrivacyReport

pytestmark = pytest.mark.filterwarnings("ignore:.*no better than guessing:UserWarning")

Array = NDArray[np.float64]

N, D = 200, 10
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (N, D))
MARGINS = X[:, 0] - 2 * X[:, 3] + 0.3
Y = MARGINS + 0.1 * RNG.standard_normal(N)
LABELS = (MARGINS > 0).astype(int)
RADII = [2.0, 0.5, 1.0]
BOUNDS = Bounds(row_linf=1.0, row_l2=3.0, label=3.0)


def path(*radii: float, **parameters: Any) -> LassoPath:
    """A path with declared bounds and a seed, unless told otherwise."""
    labels = parameters.pop("y", Y)
    return lasso_path(X, labels, radii or RADII, **{"bounds": BOUNDS, "random_state": 0, "n_iter": 8, **parameters})


@pytest.mark.parametrize("noise", ["auto", "selection", "gaussian"])
@pytest.mark.parametrize("epsilon", [1.0, None])
@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array], ids=["dense", "csr"])
def test_shapes_and_order(noise: Any, epsilon: float | None, convert: Any) -> None:
    """Radii come back sorted, with a column of weights and an intercept for each."""
    got = lasso_path(convert(X), Y, RADII, epsilon, n_iter=8, noise=noise, bounds=BOUNDS, random_state=0)
    np.testing.assert_array_equal(got.radii, [0.5, 1.0, 2.0])
    assert got.coefs.shape == (D, 3)
    assert got.intercepts.shape == (3,)
    assert np.all(np.isfinite(got.coefs))
    assert np.all(np.isfinite(got.intercepts))
    assert isinstance(got.privacy, PrivacyReport)
    assert np.all(got.coefs.any(axis=0))


@reduce_to_pairs()
@pytest.mark.parametrize("noise", ["auto", "selection", "gaussian"])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.3, 1e-6), (1.0, None), (8.0, 1e-4)])
@pytest.mark.parametrize("radii", [(1.0,), (0.5, 1.0, 2.0), tuple(np.linspace(0.1, 3, 12))], ids=len)
def test_one_budget_covers_all_models(noise: Any, epsilon: float, delta: float | None, radii: Any) -> None:
    """The report's epsilon is within [0.99, 1] of the budget, and its bill holds the steps of all radii."""
    report = path(*radii, epsilon=epsilon, delta=delta, noise=noise).privacy
    assert 0.99 * epsilon < report.epsilon <= epsilon
    assert report.delta == (1e-5 if delta is None else delta)
    assert [line.count for line in report.bill] == [8 * len(radii)]
    assert f"a path of {len(radii)} radi" in report.method


def test_the_noise_is_that_of_as_many_steps_of_one_fit() -> None:
    """Three radii of 8 steps have the noise of 24 steps of one radius, and more noise than one radius alone."""
    three = path().privacy.bill[0].noise_per_sensitivity
    method = FrankWolfe(radius=1.0, n_iter=24, noise="auto")
    one = SparseRegressor(1.0, method=method, bounds=BOUNDS).fit(X, Y)
    assert three == one.privacy_.bill[0].noise_per_sensitivity
    assert three > 1.5 * path(1.0).privacy.bill[0].noise_per_sensitivity


@reduce_to_pairs()
@pytest.mark.parametrize("noise", ["auto", "selection", "gaussian"])
@pytest.mark.parametrize("epsilon", [0.05, 5.0, None])
@pytest.mark.parametrize("loss", ["squared", "huber", "logistic", "squared_hinge"])
def test_every_model_lies_in_its_ball(noise: Any, epsilon: float | None, loss: str) -> None:
    """|w|_1 <= radius, the intercept's part included, for models that are not thresholded."""
    y = Y if loss in ("squared", "huber") else LABELS
    for fit_intercept in (True, False):
        got = path(0.3, 1.0, 4.0, y=y, epsilon=epsilon, noise=noise, loss=loss, fit_intercept=fit_intercept)
        sizes = np.abs(got.coefs).sum(axis=0)
        assert np.all(sizes <= got.radii * (1 + 1e-9))
        assert np.all(sizes > 0)
        assert fit_intercept or np.all(got.intercepts == 0)


def test_without_privacy_each_model_is_that_of_its_radius() -> None:
    """epsilon=None: the columns are the fits of FrankWolfe with each radius."""
    got = path(epsilon=None, n_iter=30)
    for k, radius in enumerate(got.radii):
        method = FrankWolfe(radius=float(radius), n_iter=30)
        model = SparseRegressor(None, n_nonzero=D, method=method, bounds=BOUNDS).fit(X, Y)
        np.testing.assert_allclose(got.coefs[:, k], model.coef_, rtol=0, atol=1e-12)
        assert got.intercepts[k] == pytest.approx(model.intercept_, abs=1e-12)
    errors = ((X @ got.coefs + got.intercepts - Y[:, None]) ** 2).mean(axis=0)
    assert errors[0] > errors[1] > errors[2]
    assert math.isinf(got.privacy.epsilon)


@pytest.mark.parametrize("noise", ["selection", "gaussian"])
def test_a_seed_makes_a_path_reproducible(noise: Any) -> None:
    """The same seed gives the same path, another one or none another path."""
    one, same, other, free = (path(noise=noise, random_state=seed).coefs for seed in (0, 0, 1, None))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)
    assert not np.array_equal(one, free)


def test_the_models_of_a_path_have_noise_of_their_own() -> None:
    """The same radius thrice: three different models of one private fit."""
    got = path(1.0, 1.0, 1.0, noise="gaussian", epsilon=0.5)
    assert not np.array_equal(got.coefs[:, 0], got.coefs[:, 1])
    assert not np.array_equal(got.coefs[:, 1], got.coefs[:, 2])


@pytest.mark.parametrize("labels", [LABELS, np.array(["no", "yes"])[LABELS]], ids=["numbers", "words"])
@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
def test_two_classes(labels: Any, loss: str) -> None:
    """Without privacy, weights at a large radius tell the classes apart."""
    got = path(1.0, 8.0, y=labels, loss=loss, epsilon=None, n_iter=200)
    right = ((X @ got.coefs + got.intercepts > 0) == (LABELS > 0)[:, None]).mean(axis=0)
    assert right[1] > 0.95


def test_losses_can_be_objects() -> None:
    """A loss object counts by its kind."""
    np.testing.assert_array_equal(path(loss=Squared()).coefs, path(loss="squared").coefs)
    np.testing.assert_array_equal(path(loss=Huber()).coefs, path(loss="huber").coefs)


def test_an_easy_path_is_learnt() -> None:
    """20,000 rows at epsilon = 4: the truth's radius of 3 explains most of the labels, a tenth of it little.

    The seed is fixed; of 40 others none fails (a false-alarm rate below 8 % at 95 % confidence).
    """
    rng = np.random.default_rng(1)
    rows = rng.uniform(-1, 1, (20_000, 40))
    y = rows[:, 0] - 2 * rows[:, 3]
    got = lasso_path(rows, y, [0.3, 3.0], 4.0, bounds=Bounds(row_linf=1.0, label=3.0), random_state=0)
    part = 1 - ((rows @ got.coefs + got.intercepts - y[:, None]) ** 2).mean(axis=0) / y.var()
    assert part[1] > 0.8
    assert 0.1 < part[0] < 0.3
    assert set(np.argsort(-np.abs(got.coefs[:, 1]))[:2]) == {0, 3}


# --- what it costs ---------------------------------------------------------------------------------------------------


def test_a_ledger_bills_a_path_once() -> None:
    """One line for all radii, at the price of all; a second path would pass the cap and is refused."""
    with Ledger(Budget(1.0, 1e-5)) as ledger:
        got = path(epsilon=1.0, delta=1e-5)
        assert len(ledger.fits) == 1
        assert ledger.epsilon == pytest.approx(got.privacy.epsilon, rel=0.02)
        with pytest.raises(BudgetExceededError, match="nothing was released"):
            path(epsilon=0.5, delta=1e-6)
    assert len(ledger.fits) == 1


def test_undeclared_bounds_are_estimated_within_the_budget() -> None:
    """They are on the same bill."""
    report = path(bounds=None, epsilon=2.0).privacy
    assert 0.99 * 2 < report.epsilon <= 2
    assert [line.release for line in report.bill][:-1] == ["row_l2 quantile", "row_linf quantile", "label quantile"]


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.fixture
def no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """A generator cannot be made."""

    def refuse(*arguments: Any) -> Any:
        raise AssertionError("the error came after noise was drawn")

    monkeypatch.setattr(tulle.trusted.fit, "keyed_generator", refuse)


@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize("epsilon", [1.0, None])
@pytest.mark.parametrize(
    ("radii", "message"),
    [
        ([], "a path needs at least one radius"),
        ([1.0, 0.0], r"FrankWolfe\(radius=...\) must be a finite number > 0, got 0.0"),
        ([1.0, -2.0], r"FrankWolfe\(radius=...\) must be a finite number > 0, got -2.0"),
        ([math.nan], r"FrankWolfe\(radius=...\) must be a finite number > 0, got nan"),
        ([math.inf, 1.0], r"FrankWolfe\(radius=...\) must be a finite number > 0, got inf"),
        (["1"], r"FrankWolfe\(radius=...\) must be a finite number > 0, got '1'"),
    ],
    ids=repr,
)
def test_bad_radii(radii: Any, message: str, epsilon: float | None) -> None:
    """Before noise is drawn."""
    with pytest.raises(ValueError, match=message):
        lasso_path(X, Y, radii, epsilon, bounds=BOUNDS)


@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize(
    ("rows", "labels", "parameters", "message"),
    [
        (X, np.arange(N) % 3, {"loss": "logistic"}, "lasso_path is for two classes; the labels have more"),
        (X, np.arange(N) % 3, {"loss": "squared_hinge"}, "lasso_path is for two classes"),
        (X, np.zeros(N), {"loss": "logistic"}, "at least two classes"),
        (X, Y, {"loss": "magic"}, "loss='magic' is unknown for regression"),
        (np.where(X > 0.99, np.nan, X), Y, {}, "Input X contains NaN"),
        (X, np.where(Y > 1, np.inf, Y), {}, "Input y contains infinity"),
        (X[:, 0], Y, {}, "Expected 2D array"),
        (X[:-1], Y, {}, "inconsistent numbers of samples"),
        (X[:1], Y[:1], {}, "minimum of 2 is required"),
        (X, Y, {"epsilon": 0.0}, "epsilon must be a finite number > 0"),
        (X, Y, {"delta": 1.0}, r"delta must lie in \[0, 1\)"),
        (X, Y, {"n_iter": 0}, r"FrankWolfe\(n_iter=...\) must be an integer >= 1, got 0"),
        (X, Y, {"noise": "loud"}, r"FrankWolfe\(noise=...\) must be one of"),
        (X, Y, {"delta": 0.0, "noise": "gaussian"}, "with delta = 0 use pure mechanisms only"),
    ],
    ids=[
        "three", "three-hinge", "one", "loss", "nan", "inf", "1-d", "short", "one-row", "epsilon", "delta", "n_iter",
        "noise", "pure",
    ],
)  # fmt: skip
def test_bad_input(rows: Any, labels: Any, parameters: dict[str, Any], message: str) -> None:
    """The checks of the estimators, before noise is drawn."""
    with pytest.raises(ValueError, match=message):
        lasso_path(rows, labels, [1.0, 2.0], **{"bounds": BOUNDS, **parameters})


def test_a_large_delta_warns() -> None:
    """delta >= 1/n, as in a fit."""
    with pytest.warns(PrivacyWarning, match=r"delta = 0.5 is not below 1 / \(number of rows\)"):
        lasso_path(X, Y, [1.0], 1.0, 0.5, bounds=BOUNDS, n_iter=3)


def test_the_method_behind_it_is_no_estimators() -> None:
    """RadiusPath prints no published noise, and keeps all features."""
    with pytest.raises(ValueError, match="prints no noise for a path; use calibration='rigorous'"):
        SparseRegressor(1.0, method=RadiusPath((1.0,)), bounds=BOUNDS, calibration="published").fit(X, Y)
    assert RadiusPath((1.0, 2.0)).get_params()["radii"] == (1.0, 2.0)
