"""Local studies behind scikit-learn's interface: what they learn, what they refuse, and that nobody answers twice.

Statistical tests fix their seeds; margins are such that a fresh seed would fail one of them less than once in 1,000.
"""

from __future__ import annotations

import hashlib
import json
import math
import pickle
import warnings
from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from pairwise import reduce_to_pairs
from scipy.special import expit
from sklearn.base import clone
from sklearn.linear_model import Lasso, LogisticRegression

import tulle.local.estimators.simulated_study
from tulle import Bounds
from tulle.files.error_messages import PrivacyWarning
from tulle.local import (
    LabelPrivateSparseClassifier,
    LabelPrivateSparseRegressor,
    LocalSparseRegressor,
    OneRoundSparseRegressor,
    Response,
)
from tulle.local.server_side.expectations import expectation
from tulle.local.server_side.noisy_labels import IDENTITY_LINK, NoisyLabels, hard_thresholding
from tulle.local.server_side.study_server import Server
from tulle.local.user_side.responses import RESPONSES
from tulle.local.user_side.uniforms import SeededUniforms, SystemUniforms

Array = NDArray[np.float64]

ARCTAN = Response("arctan", lambda m: 2 * np.arctan(m), lambda m: 2 / (1 + m**2))
SIGNS = Bounds(row_linf=1.0, label=2.0)
pytestmark = pytest.mark.filterwarnings("ignore:.*is expected to have noise:UserWarning")

WHOLE_ROW: list[Any] = [LocalSparseRegressor, OneRoundSparseRegressor]
REGRESSORS: list[Any] = [*WHOLE_ROW, LabelPrivateSparseRegressor]
ESTIMATORS: list[Any] = [*REGRESSORS, LabelPrivateSparseClassifier]


def over(estimators: list[Any]) -> Any:
    return pytest.mark.parametrize("cls", estimators, ids=lambda cls: cls.__name__)


def signs(n: int = 300, d: int = 6, seed: int = 0) -> Array:
    return np.random.default_rng(seed).choice([-1.0, 1.0], (n, d))


def labels_for(cls: Any, X: Any) -> Any:
    """Numbers or classes that two features decide."""
    X = X.toarray() if sp.issparse(X) else np.asarray(X)
    if cls is LabelPrivateSparseClassifier:
        return np.where(X[:, 1] - X[:, 4] > 0, "up", "down")
    return 0.8 * X[:, 1] - 0.6 * X[:, 4]


def model_of(cls: Any, epsilon: float | None = 1.0, **settings: Any) -> Any:
    if cls is not LabelPrivateSparseClassifier:
        settings = {"bounds": SIGNS, **settings}
    return cls(epsilon, **{"n_nonzero": 2, "random_state": 0, **settings})


def fitted(cls: Any, epsilon: float | None = 1.0, X: Any = None, **settings: Any) -> Any:
    X = signs() if X is None else X
    return model_of(cls, epsilon, **settings).fit(X, labels_for(cls, X))


@pytest.fixture
def nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any attempt to ask somebody, or to draw, fails the test."""

    def refuse(*arguments: Any) -> Any:
        raise AssertionError("somebody was asked")

    monkeypatch.setattr(tulle.local.estimators.simulated_study.Population, "answer", refuse)
    for source in (SystemUniforms, SeededUniforms):
        monkeypatch.setattr(source, "draw", refuse)


# --- one answer a user -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("declared", [True, False], ids=["declared bounds", "searched bounds"])
@pytest.mark.parametrize("epsilon", [1.0, None])
@over(ESTIMATORS)
def test_every_user_answers_once(
    cls: Any, epsilon: float | None, declared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over all rounds, the ones that search for bounds included."""
    answers: Counter[str] = Counter()
    received = Server.receive_many

    def count(self: Server, users: Any, values: Any) -> None:
        answers.update(users)
        received(self, users, values)

    monkeypatch.setattr(Server, "receive_many", count)
    bounds = {} if declared or cls is LabelPrivateSparseClassifier else {"bounds": None}
    model = fitted(cls, epsilon, **bounds)
    assert answers == Counter(str(number) for number in range(300))
    assert model.n_answers_ == 300
    rounds = (8 if epsilon is None else 2) if cls is LocalSparseRegressor else 1  # 300 users make little noise or much
    assert model.n_iter_ == rounds + (0 if not bounds else 6 if cls is LabelPrivateSparseRegressor else 12)


@pytest.mark.filterwarnings("ignore:finite precision leaves room")
@over(ESTIMATORS)
def test_a_users_row_decides_that_users_answer_alone(cls: Any) -> None:
    """In the first round, all that another row of user 7 changes is the answer of user 7."""
    X = signs()
    seen: list[dict[str, Any]] = []
    received = Server.receive_many

    def keep(self: Server, users: Any, values: Any) -> None:
        if self.round == 1:
            seen.append(dict(zip(users, map(tuple, values))))
        received(self, users, values)

    for change in (False, True):
        y = labels_for(cls, X)
        rows = X.copy()
        if change:
            rows[7], y[7] = -5 * rows[7], y[:7][y[:7] != y[7]][0]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Server, "receive_many", keep)
            settings = {"n_rounds": 1} if cls is LocalSparseRegressor else {}
            model_of(cls, 16.0, **settings).fit(rows, y)
    first, second = seen
    assert {user for user in first if first[user] != second[user]} == {"7"}


# --- without noise ---------------------------------------------------------------------------------------------------


def places(n: int, seed: int) -> Array:
    """Where users 0, 1, … of a simulated study lie in [0, 1)."""
    digests = [hashlib.sha256(json.dumps([f"simulation {seed}", str(i)]).encode()).digest() for i in range(n)]
    return np.array([int.from_bytes(digest[:8], "big") >> 11 for digest in digests]) * 2.0**-53


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(
    "response", ["identity", "logistic", "tanh", ARCTAN], ids=lambda one: getattr(one, "name", one)
)
def test_without_noise_it_is_clipped_iterative_hard_thresholding(response: Any, intercept: bool) -> None:
    """Written out in plain numpy on the same groups: weights agree to 1e-6."""
    rng = np.random.default_rng(1)
    X, rounds, n_nonzero = rng.normal(size=(400, 30)), 4, 3
    f = response if isinstance(response, Response) else RESPONSES[response]
    y = np.asarray(f.value(X[:, 0] - X[:, 5])) + 0.1 * rng.normal(size=400)
    bounds = Bounds(row_l2=5.0, label=1.5)
    model = LocalSparseRegressor(
        None,
        n_nonzero=n_nonzero,
        n_rounds=rounds,
        response=response,
        bounds=bounds,
        fit_intercept=intercept,
        random_state=3,
    ).fit(X, y)

    rows = np.hstack([X, np.ones((400, 1))]) if intercept else X
    width, slope = rows.shape[1], float(f.slope(np.zeros(1))[0])
    row = math.sqrt(25.0 + intercept)
    largest = (1 if response == "identity" else 2) * 1.5 / slope * math.sqrt(width) / row
    group = np.floor(places(400, 3) * rounds).astype(int)
    w = np.zeros(width)
    for t in range(rounds):
        some = rows[group == t]
        margins = some @ w
        gradients = ((f.value(margins) - y[group == t]) * f.slope(margins))[:, None] * some
        radius = 0.5 * row * 1.5 * slope * max(0.7**t, 0.3)
        gradients *= np.minimum(1.0, radius / np.maximum(np.linalg.norm(gradients, axis=1), 1e-12))[:, None]
        w = w - 2 / (t + 2) * width / (row * slope) ** 2 * gradients.mean(axis=0)
        kept = n_nonzero * (1 if t == rounds - 1 else 8)
        w[np.argsort(-np.abs(w[:30]))[kept:]] = 0.0
        w *= min(1.0, largest / np.linalg.norm(w))
    np.testing.assert_allclose(model.coef_, w[:30], atol=1e-6)
    assert model.intercept_ == pytest.approx(w[30] if intercept else 0.0, abs=1e-6)
    assert list(model.support_) == list(np.flatnonzero(w[:30]))
    np.testing.assert_allclose(model.predict(X), f.value(X @ w[:30] + model.intercept_), atol=1e-5)


@pytest.mark.parametrize("moment", [None, 0.5])
def test_without_noise_one_round_is_the_thresholded_mean_of_y_x(moment: float | None) -> None:
    """Over the second moment: 1 for features of magnitude 1, unless another is given."""
    X = signs(500)
    y = labels_for(LocalSparseRegressor, X) + 0.3
    model = OneRoundSparseRegressor(None, n_nonzero=2, second_moment=moment, bounds=SIGNS, weight_bound=1e6).fit(X, y)
    mean = X.T @ y / 500 / (moment or 1.0)
    mean[np.argsort(-np.abs(mean))[2:]] = 0.0
    np.testing.assert_allclose(model.coef_, mean, atol=1e-6)
    assert model.intercept_ == pytest.approx(y.mean() / (moment or 1.0), abs=1e-6)


def test_without_noise_labels_are_exact_but_clipped() -> None:
    """IHT on the very labels; those beyond the bound are at the bound."""
    X = signs(200)
    y = 3 * labels_for(LocalSparseRegressor, X)
    model = fitted(LabelPrivateSparseRegressor, None, X)
    model = model.set_params(n_nonzero=3).fit(X, y)
    data = NoisyLabels(X, np.clip(y, -2.0, 2.0)[:, None], IDENTITY_LINK, True)
    assert np.abs(y).max() > 2
    np.testing.assert_allclose(model.coef_, hard_thresholding(data, 3)[:-1, 0], atol=1e-6)


def test_without_noise_the_lasso_is_scikit_learns() -> None:
    """At the same penalty, with an intercept."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(300, 10))
    y = X[:, 1] - 0.5 * X[:, 4] + 0.2 + 0.1 * rng.normal(size=300)
    model = LabelPrivateSparseRegressor(None, solver="lasso", penalty=0.1, bounds=Bounds(label=100.0)).fit(X, y)
    exact = Lasso(alpha=0.1, tol=1e-10).fit(X, y)
    np.testing.assert_allclose(model.coef_, exact.coef_, atol=1e-4)
    assert model.intercept_ == pytest.approx(exact.intercept_, abs=1e-4)


@pytest.mark.parametrize("classes", [2, 3])
def test_without_noise_the_lasso_of_classes_is_scikit_learns(classes: int) -> None:
    """Logistic regression with an l1 penalty, at the same penalty; classes keep their names."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(200, 6))
    codes = np.clip(np.round(X[:, 0] + 0.5 * rng.normal(size=200)) + 1, 0, classes - 1).astype(int)
    y = np.array(["a", "b", "c"])[codes]
    model = LabelPrivateSparseClassifier(None, solver="lasso", penalty=0.03, fit_intercept=False).fit(X, y)
    exact = LogisticRegression(
        l1_ratio=1.0, C=1 / (200 * 0.03), solver="saga", fit_intercept=False, tol=1e-7, max_iter=5000
    ).fit(X, y)
    np.testing.assert_allclose(model.coef_, exact.coef_, atol=3e-3)
    np.testing.assert_allclose(model.predict_proba(X), exact.predict_proba(X), atol=3e-3)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), model.predict_proba(X))
    assert list(model.classes_) == ["a", "b", "c"][:classes]
    assert set(model.predict(X)) <= set(y)


# --- data and models -------------------------------------------------------------------------------------------------


@over(ESTIMATORS)
def test_sparse_rows_and_other_floats_give_the_same_model(cls: Any) -> None:
    """Dense, CSR, CSC and float32: the same answers, and weights up to rounding."""
    X = signs() * (np.random.default_rng(5).random((300, 6)) < 0.8)
    dense = fitted(cls, 2.0, X)
    for other in (sp.csr_array(X), sp.csc_array(X), X.astype(np.float32)):
        model = fitted(cls, 2.0, other)
        np.testing.assert_allclose(model.coef_, dense.coef_, atol=1e-5)
        np.testing.assert_allclose(model.intercept_, dense.intercept_, atol=1e-5)
        assert np.all(model.predict(other) == dense.predict(X)) or cls is not LabelPrivateSparseClassifier


@over(ESTIMATORS)
def test_names_of_columns_are_kept(cls: Any) -> None:
    """feature_names_in_ are a DataFrame's columns."""
    frame = pd.DataFrame(signs(), columns=list("abcdef"))
    model = model_of(cls).fit(frame, labels_for(cls, frame.to_numpy()))
    assert list(model.feature_names_in_) == list("abcdef")
    assert model.n_features_in_ == 6


@over(ESTIMATORS)
def test_a_seed_repeats_a_study_and_none_does_not(cls: Any) -> None:
    """The same weights from 7 and 7; others from 8, from no seed, and from two generators in the same state."""

    def weights(seed: Any) -> Any:
        return fitted(cls, 0.5, random_state=seed, n_nonzero=6).coef_

    np.testing.assert_array_equal(weights(7), weights(7))
    assert not np.allclose(weights(np.random.default_rng(1)), weights(np.random.default_rng(1)))
    assert not np.allclose(weights(7), weights(8))
    assert not np.allclose(weights(None), weights(None))


@over(ESTIMATORS)
def test_models_are_cloned_pickled_and_made_sparse(cls: Any) -> None:
    """Predictions stay what they are."""
    X = signs()
    model = fitted(cls)
    predicted = model.predict(X)
    np.testing.assert_array_equal(clone(model).fit(X, labels_for(cls, X)).predict(X), predicted)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), predicted)
    assert str(again.privacy_) == str(model.privacy_)
    assert sp.issparse(model.sparsify().coef_)
    np.testing.assert_array_equal(model.predict(X), predicted)
    assert not sp.issparse(model.densify().coef_)
    np.testing.assert_array_equal(model.predict(X), predicted)
    assert (
        clone(model_of(cls, response=ARCTAN) if cls in REGRESSORS else model).get_params().keys()
        == model.get_params().keys()
    )


@over(ESTIMATORS)
def test_answers_on_public_features_can_be_published(cls: Any) -> None:
    """With the study's own report; not where nothing is promised."""
    public = signs(20, seed=9)
    data = fitted(cls).release_synthetic(public)
    assert data.privacy.epsilon <= 1.0
    np.testing.assert_array_equal(data.y, fitted(cls).predict(public))
    with pytest.raises(ValueError, match="no epsilon is proved"):
        fitted(cls, None).release_synthetic(public)


@over(ESTIMATORS)
def test_as_many_weights_as_are_asked_for(cls: Any) -> None:
    """support_ holds the features with a weight: n_nonzero of them, or all where there are fewer."""
    for wanted in (1, 3, 100):
        model = fitted(cls, 0.5, n_nonzero=wanted)
        assert len(model.support_) == min(wanted, 6)
        assert list(model.support_) == list(np.flatnonzero(np.any(np.atleast_2d(model.coef_) != 0, axis=0)))


@over(ESTIMATORS)
def test_progress_is_shown_if_asked_for(cls: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Rounds on standard error, nothing on standard output, and nothing at all by default."""
    fitted(cls, verbose=1)
    shown = capsys.readouterr()
    rounds = 2 if cls is LocalSparseRegressor else 1
    assert f"round {rounds} of {rounds}" in shown.err
    assert shown.out == ""
    fitted(cls)
    assert capsys.readouterr() == ("", "")


# --- refusals --------------------------------------------------------------------------------------------------------

BAD: list[tuple[list[Any], str, Any]] = [
    *((ESTIMATORS, "epsilon", value) for value in (0, -1.0, math.nan, math.inf, 17.0, 1e-7, "1", True)),
    *((ESTIMATORS, "n_nonzero", value) for value in (0, -1, 1.5, "2")),
    *((ESTIMATORS, "random_state", value) for value in (-1, "seed")),
    *(([LocalSparseRegressor], "n_rounds", value) for value in (0, 2.0, True)),
    (WHOLE_ROW, "ball", "cube"),
    ([OneRoundSparseRegressor], "ball", None),
    *(([LocalSparseRegressor], "settings", value) for value in ("printed", None, "theorem")),
    *((WHOLE_ROW, name, value) for name in ("radius", "weight_bound") for value in (0, -1, math.inf, math.nan)),
    *(([LocalSparseRegressor], "step", value) for value in (0, -1, math.inf)),
    *(([OneRoundSparseRegressor], "second_moment", value) for value in (0, -1, math.inf)),
    *((REGRESSORS, "response", value) for value in ("cubic", None, ["identity"])),
    *((REGRESSORS, "bounds", value) for value in (Bounds(normalise=True), Bounds(rows_per_person=2))),
    *(([LabelPrivateSparseRegressor], "delta", value) for value in (1.0, 1, -0.1, math.nan, "1e-5")),
    *(([LabelPrivateSparseRegressor], "randomiser", value) for value in ("cauchy", None)),
    *((ESTIMATORS[2:], "solver", value) for value in ("newton", None)),
    *((ESTIMATORS[2:], "penalty", value) for value in (-1.0, math.inf, "auto")),
    *((ESTIMATORS[2:], "n_iter", value) for value in (0, 1.5)),
    *((ESTIMATORS[2:], "step", value) for value in (0, math.inf)),
    *((ESTIMATORS[2:], "ball", value) for value in (0, -1.0, math.inf, math.nan, "unit")),
    *((ESTIMATORS[2:], "start", value) for value in ("random", None, 0)),
]
CASES = [(cls, name, value) for group, name, value in BAD for cls in group]
SAYS = {"bounds": "(normalise them before|rows_per_person=1)"}


@pytest.mark.parametrize(
    ("cls", "name", "value"), CASES, ids=[f"{cls.__name__}-{name}-{value!r:.40}" for cls, name, value in CASES]
)
def test_wrong_parameters_are_told_before_anybody_is_asked(
    cls: Any, name: str, value: Any, nobody_answers: None
) -> None:
    """A ValueError that names the parameter."""
    with pytest.raises(ValueError, match=SAYS.get(name, name)):
        fitted(cls, **({name: value} if name != "epsilon" else {}), **({"epsilon": value} if name == "epsilon" else {}))


@pytest.mark.parametrize(
    ("name", "value"), [("delta", -1.0), ("delta", math.nan), ("randomiser", "cauchy"), ("randomiser", None)]
)
def test_wrong_parameters_are_told_without_privacy_too(name: str, value: Any, nobody_answers: None) -> None:
    """A comparison without noise is no place for mistakes."""
    with pytest.raises(ValueError, match=name):
        fitted(LabelPrivateSparseRegressor, None, **{name: value})


def test_gaussian_noise_without_a_delta_is_refused(nobody_answers: None) -> None:
    """delta=0 admits none of it."""
    with pytest.raises(ValueError, match="needs a delta > 0"):
        fitted(LabelPrivateSparseRegressor, 1.0, delta=0.0, randomiser="gaussian")


def test_a_large_delta_is_warned_of_where_it_is_promised() -> None:
    """At 1/n and above for Gaussian noise; other randomisers promise no delta."""
    with pytest.warns(PrivacyWarning, match="not below 1 / "):
        fitted(LabelPrivateSparseRegressor, 1.0, delta=1 / 300, randomiser="gaussian")
    fitted(LabelPrivateSparseRegressor, 1.0, delta=1 / 301, randomiser="gaussian")
    fitted(LabelPrivateSparseRegressor, 1.0, delta=0.5)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("where", ["X", "y"])
@over(ESTIMATORS)
def test_numbers_that_are_not_finite_are_refused(cls: Any, where: str, bad: float, nobody_answers: None) -> None:
    """In features and in labels."""
    X = signs()
    y: Any = X[:, 0].copy() if cls in REGRESSORS else (X[:, 0] > 0).astype(float)
    (X if where == "X" else y)[3] = bad
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        model_of(cls).fit(X, y)


def test_one_class_is_refused(nobody_answers: None) -> None:
    """Nobody need answer to learn that."""
    with pytest.raises(ValueError, match="one class"):
        LabelPrivateSparseClassifier().fit(signs(), np.ones(300))


@over(ESTIMATORS)
def test_one_user_is_refused(cls: Any, nobody_answers: None) -> None:
    """Two at least."""
    with pytest.raises(ValueError, match="minimum of 2"):
        model_of(cls).fit(signs(1), np.ones(1))


@reduce_to_pairs()
@pytest.mark.parametrize("n", [2, 3, 10])
@pytest.mark.parametrize("solver", ["iht", "lasso"])
@over(ESTIMATORS)
def test_few_users_are_enough_not_to_fail(cls: Any, solver: str, n: int) -> None:
    """Empty groups, empty folds, and everybody searching for bounds: weights are finite."""
    settings = {"solver": solver} if cls in ESTIMATORS[2:] else {}
    if cls in REGRESSORS:
        settings["bounds"] = None
    X = signs(n)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for seed in range(3):
            model = model_of(cls, n_nonzero=None, **settings).set_params(random_state=seed).fit(X, np.arange(n) % 2)
            assert np.all(np.isfinite(model.coef_))
            assert model.n_answers_ == n


@reduce_to_pairs()
@pytest.mark.parametrize("solver", ["iht", "lasso"])
@pytest.mark.parametrize("kind", ["zeros", "constant columns", "empty rows", "huge"])
@over(ESTIMATORS)
def test_degenerate_rows_are_taken(cls: Any, kind: str, solver: str) -> None:
    """Nothing to learn from, or rows far beyond their bounds: finite weights, and no error."""
    X = signs()
    X = {"zeros": 0 * X, "constant columns": np.ones_like(X), "empty rows": X * (np.arange(300) % 2)[:, None]}.get(
        kind, 1e120 * X if cls in WHOLE_ROW else 1e20 * X
    )
    settings = {"solver": solver} if cls in ESTIMATORS[2:] else {}
    model = model_of(cls, n_nonzero=None, **settings).fit(X, labels_for(cls, signs()))
    assert np.all(np.isfinite(model.coef_))


def test_a_response_that_is_flat_at_zero_is_refused() -> None:
    """Steps and radii are set by its slope there."""
    with pytest.raises(ValueError, match="finite slope > 0 at 0"):
        Response("cube", lambda m: m**3, lambda m: 3 * m**2)
    with pytest.raises(ValueError, match="finite slope > 0 at 0"):
        Response("falling", lambda m: -m, lambda m: -np.ones_like(m))


# --- warnings --------------------------------------------------------------------------------------------------------


@over(ESTIMATORS)
def test_too_few_users_are_warned_of_before_anybody_is_asked_and_by_shape_alone(cls: Any, nobody_answers: None) -> None:
    """The same words for any data of that shape, at the line that called fit."""
    messages = []
    for scale, seed in ((1.0, 0), (100.0, 1)):
        X = scale * signs(30, 400, seed)
        model = model_of(cls, 0.1, random_state=None)
        y = labels_for(cls, X)
        with (
            pytest.warns(UserWarning, match="is expected to have noise") as caught,
            pytest.raises(AssertionError, match="somebody was asked"),
        ):
            model.fit(X, y)
        messages.append(str(caught[0].message))
        assert caught[0].filename == __file__
    assert messages[0] == messages[1]
    classes = (len(np.unique(y)),) if cls is LabelPrivateSparseClassifier else ()
    assert str(expectation(model.protocol(400, 30, *classes), 30)) in messages[0]
    assert not any(hasattr(model, name) for name in ("expected_", "coef_", "privacy_"))


def test_fewer_users_than_p_over_epsilon_squared_are_warned_of(nobody_answers: None) -> None:
    """Whole rows, however small the noise is made by a tiny radius; one user more, and there is silence."""
    floor = 7 / 0.5**2
    settings = {"radius": 1e-9, "step": 1e-9, "weight_bound": 1.0}
    for n, warns in ((int(floor) - 1, True), (int(floor) + 1, False)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with pytest.raises(AssertionError, match="somebody was asked"):
                fitted(LocalSparseRegressor, 0.5, signs(n), **settings)
        assert any("p/ε²" in str(one.message) for one in caught) is warns


@over(ESTIMATORS)
def test_enough_users_are_not_warned_of(cls: Any) -> None:
    """2,000 of them for six features at epsilon = 4."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted(cls, 4.0, signs(2000))


# --- learning --------------------------------------------------------------------------------------------------------


def error(model: Any, X: Array, y: Any) -> float:
    truth = np.zeros(X.shape[1])
    truth[[1, 4]] = 0.8, -0.6
    return float(np.sum((model.fit(X, y).coef_ - truth) ** 2))


def mean_error(cls: Any, epsilon: float, n: int, d: int, seeds: int, **settings: Any) -> float:
    total = 0.0
    for seed in range(seeds):
        X = signs(n, d, seed)
        total += error(model_of(cls, epsilon, **{"random_state": seed, **settings}), X, labels_for(cls, X))
    return total / seeds


@pytest.mark.parametrize("declared", [True, False], ids=["declared bounds", "searched bounds"])
@over(ESTIMATORS)
def test_the_support_is_found_among_many_users(cls: Any, declared: bool) -> None:
    """Two of twelve features, at epsilon = 2, 20,000 users."""
    bounds = {} if declared or cls is LabelPrivateSparseClassifier else {"bounds": None}
    model = fitted(cls, 2.0, signs(20_000, 12), **bounds)
    assert list(model.support_) == [1, 4]
    coefficients = np.ravel(model.coef_)
    assert coefficients[1] > 0 > coefficients[4]


def test_whole_rows_cost_users_for_every_feature() -> None:
    """Ten times the features, several times the error; eight times the users, a fraction of it."""
    few, many = (mean_error(LocalSparseRegressor, 2.0, 4_000, d, 3) for d in (6, 60))
    assert many > 3 * few
    assert mean_error(LocalSparseRegressor, 2.0, 32_000, 6, 2) < few / 2


def test_labels_alone_hardly_mind_features() -> None:
    """Fifty times the features, less than three times the error (a logarithm); a tenth of what whole rows pay."""
    few, many = (mean_error(LabelPrivateSparseRegressor, 1.0, 4_000, d, 4) for d in (6, 300))
    assert many < 3 * few
    assert mean_error(LocalSparseRegressor, 1.0, 4_000, 60, 2) > 10 * many


def test_auto_has_far_less_error_than_gaussian_noise() -> None:
    """Where noise dominates, at epsilon = 1 and delta = 1e-3: less than half."""
    settings = {"n_nonzero": 50, "n_iter": 1, "step": 1.0, "refit": False}
    auto = mean_error(LabelPrivateSparseRegressor, 1.0, 900, 50, 4, **settings)
    gaussian = mean_error(LabelPrivateSparseRegressor, 1.0, 900, 50, 4, delta=1e-3, randomiser="gaussian", **settings)
    assert auto < gaussian / 2


def test_the_best_cap_beats_the_hemisphere() -> None:
    """On average, at epsilon = 4."""
    settings = {"n_nonzero": 30}
    best, hemisphere = (
        mean_error(OneRoundSparseRegressor, 4.0, 3_000, 30, 4, ball=ball, **settings)
        for ball in ("priv_unit", "hemisphere")
    )
    assert best < 0.8 * hemisphere


RESPONSE_CASES = ["logistic", "tanh", ARCTAN]


@pytest.mark.parametrize("response", RESPONSE_CASES, ids=["logistic", "tanh", "own"])
@pytest.mark.parametrize("cls", [LocalSparseRegressor, LabelPrivateSparseRegressor], ids=lambda cls: cls.__name__)
def test_generalised_responses_are_learnt(cls: Any, response: Any) -> None:
    """y = f(<x, w>) + noise: the error falls with users, and the support is found in the end."""
    f = response if isinstance(response, Response) else RESPONSES[response]
    errors = []
    for n, seeds in ((100, 6), (12_000, 1)):
        total = 0.0
        for seed in range(seeds):
            X = signs(n, 6, seed)
            y = f.value(0.8 * X[:, 1] - 0.6 * X[:, 4]) + 0.1 * np.random.default_rng(seed).normal(size=n)
            bounds = Bounds(row_linf=1.0, label=float(f.value(np.array(1.8))))
            model = cls(2.0, n_nonzero=2, response=response, bounds=bounds, random_state=seed)
            total += error(model, X, y)
        errors.append(total / seeds)
    assert errors[1] < 0.6 * errors[0]
    assert errors[1] < 0.2
    assert list(model.support_) == [1, 4]
    np.testing.assert_allclose(model.predict(X[:50]), f.value(X[:50] @ model.coef_ + model.intercept_))


def test_probabilities_are_those_of_the_margins() -> None:
    """Two classes: the logistic function; three: softmax, and the largest is predicted."""
    X = signs(500)
    two = fitted(LabelPrivateSparseClassifier, 4.0, X)
    np.testing.assert_allclose(two.predict_proba(X)[:, 1], expit(two.decision_function(X)))
    three = LabelPrivateSparseClassifier(4.0, n_nonzero=2).fit(X, (X[:, 0] > 0).astype(int) + (X[:, 1] > 0))
    np.testing.assert_allclose(three.predict_proba(X).sum(axis=1), 1.0)
    np.testing.assert_array_equal(three.predict(X), three.predict_proba(X).argmax(axis=1))
    assert three.coef_.shape == (3, 6)


def test_several_classes_are_learnt() -> None:
    """Three classes at epsilon = 2: far better than chance, where chance is a half at best."""
    X = signs(8_000, 20)
    y = (X[:, 3] > 0).astype(int) + (X[:, 7] > 0)
    for solver in ("iht", "lasso"):
        model = LabelPrivateSparseClassifier(2.0, n_nonzero=2, solver=solver, penalty=0.02, random_state=0)  # type: ignore[arg-type]
        assert model.fit(X, y).score(X, y) > 0.9
