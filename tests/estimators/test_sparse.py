"""The front door: its signature, what a fitted model holds, what its report says, and what scikit-learn expects."""

from __future__ import annotations

import doctest
import importlib
import inspect
import json
import math
import pickle
import re
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from pairwise import reduce_to_pairs
from scipy.special import expit
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from tulle import Bounds, SparseClassifier, SparseRegressor
from tulle.estimators.fit_callbacks import SUPPORTED
from tulle.methods import (
    CoordinateDescent,
    FitAgain,
    FrankWolfe,
    HardThresholding,
    KnowledgeTransfer,
    ScreenRefine,
    TwoStage,
)
from tulle.methods.loss_functions import Huber, Logistic, OneVsRest, Squared, SquaredHinge
from tulle.trusted.rows import Rows

N, D = 400, 12
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (N, D))
MARGINS = X[:, 0] - 2 * X[:, 3] + 0.2
TARGETS = MARGINS + 0.1 * RNG.standard_normal(N)
LABELS = (MARGINS > 0).astype(int)
THREE = np.digitize(MARGINS, [-0.7, 0.7])
BOUNDS = Bounds(row_l2=3.5, row_linf=1.0, label=4.0)

both = pytest.mark.parametrize("cls", [SparseClassifier, SparseRegressor])


def labels_for(cls: type) -> Any:
    return LABELS if cls is SparseClassifier else TARGETS


def fitted(cls: Any, **parameters: Any) -> Any:
    """A model with declared bounds and a seed, unless told otherwise."""
    return cls(**{"bounds": BOUNDS, "random_state": 0, "n_nonzero": 4, **parameters}).fit(X, labels_for(cls))


# --- the surface -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cls", "loss"), [(SparseClassifier, "logistic"), (SparseRegressor, "squared")])
def test_the_signature_stays_as_it_is(cls: type, loss: str) -> None:
    """Names, order, defaults, and all but the budget by keyword only."""
    parameters = inspect.signature(cls).parameters
    assert {name: parameter.default for name, parameter in parameters.items()} == {
        "epsilon": 1.0,
        "delta": None,
        "rho": None,
        "n_nonzero": None,
        "method": "auto",
        "loss": loss,
        "bounds": None,
        **({"classes": None, "class_weight": None} if cls is SparseClassifier else {}),
        "calibration": "rigorous",
        "fit_intercept": True,
        "always": None,
        "feature_groups": None,
        "inference": False,
        "random_state": None,
        "verbose": 0,
    }
    assert list(parameters)[:2] == ["epsilon", "delta"]
    by_keyword = {name for name, p in parameters.items() if p.kind is inspect.Parameter.KEYWORD_ONLY}
    assert by_keyword == set(parameters) - {"epsilon", "delta"}
    assert cls().get_params(deep=False) == {name: parameter.default for name, parameter in parameters.items()}


def test_the_signature_of_bounds_starts_as_ever() -> None:
    """Bounds(row_l2=None, row_linf=None, label=None), and options after it."""
    parameters = inspect.signature(Bounds).parameters
    assert list(parameters)[:3] == ["row_l2", "row_linf", "label"]
    assert [parameters[name].default for name in ("row_l2", "row_linf", "label")] == [None] * 3
    assert {"normalise", "rows_per_person"} <= set(parameters)


@pytest.mark.parametrize(
    "cls",
    [
        SparseClassifier,
        SparseRegressor,
        HardThresholding,
        FitAgain,
        ScreenRefine,
        TwoStage,
        FrankWolfe,
        CoordinateDescent,
        KnowledgeTransfer,
        Bounds,
    ],
)
def test_the_docstring_lists_every_parameter(cls: type) -> None:
    """Each parameter has a line "name : type, default=..." with its real default."""
    text = inspect.getdoc(cls) or ""
    for name, parameter in inspect.signature(cls).parameters.items():
        line = re.search(rf"^\s*{name} : (.+)$", text, re.MULTILINE)
        assert line, name
        assert line.group(1).endswith(f"default={str(parameter.default).replace(chr(39), chr(34))}") or line.group(
            1
        ).endswith(f'default="{parameter.default}"'), line.group(0)


@both
def test_the_docstring_lists_every_fitted_attribute(cls: Any) -> None:
    """What fit sets and ends in an underscore is documented."""
    text = inspect.getdoc(cls) or ""
    public = [name for name in vars(fitted(cls)) if name.endswith("_") and not name.startswith("_")]
    assert {"coef_", "intercept_", "support_", "n_iter_", "n_passes_", "privacy_"} <= set(public)
    undocumented = [name for name in public if not re.search(rf"^\s*(\w+, )*{name}(, \w+)* : ", text, re.MULTILINE)]
    assert set(undocumented) <= {"n_features_in_", "feature_names_in_"}  # scikit-learn's own


@pytest.mark.parametrize(
    "module",
    [
        "tulle",
        "tulle.estimators.sparse",
        "tulle.ledgers.ledger",
        "tulle.methods.hard_thresholding",
        "tulle.methods.fit_again",
        "tulle.methods.screen_refine",
        "tulle.methods.frank_wolfe",
        "tulle.methods.coordinate_descent",
        "tulle.methods.knowledge_transfer",
        "tulle.estimators.lasso_path",
        "tulle.audit",
    ],
)
def test_the_examples_in_docstrings_run(module: str) -> None:
    """There are examples, and they print what they say."""
    result = doctest.testmod(importlib.import_module(module))
    assert result.attempted > 0
    assert result.failed == 0


# --- a fitted model --------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("epsilon", [2.0, None])
def test_fitted_attributes(cls: Any, epsilon: float | None) -> None:
    """Shapes and types of what a fit leaves, private or not."""
    model = fitted(cls, epsilon=epsilon)
    assert model.coef_.shape == ((1, D) if cls is SparseClassifier else (D,))
    assert np.shape(model.intercept_) == ((1,) if cls is SparseClassifier else ())
    assert model.coef_.dtype == np.float64
    np.testing.assert_array_equal(model.support_, np.flatnonzero(np.atleast_2d(model.coef_)[0]))
    assert 0 < len(model.support_) <= 4
    assert isinstance(model.n_iter_, int)
    assert model.n_passes_ >= model.n_iter_ >= 1
    assert model.n_features_in_ == D
    assert math.isinf(model.privacy_.epsilon) == (epsilon is None)


@both
def test_fitting_learns_something(cls: Any) -> None:
    """At a generous epsilon the true features are found and the model scores well; without privacy better still."""
    private, plain = (fitted(cls, epsilon=epsilon, n_nonzero=2) for epsilon in (50.0, None))
    for model in (private, plain):
        assert model.support_.tolist() == [0, 3]
    assert private.score(X, labels_for(cls)) > 0.8
    assert plain.score(X, labels_for(cls)) > 0.95


@both
def test_sparsify_and_densify_change_nothing_but_the_container(cls: Any) -> None:
    """Predictions, pickling and going back all work with a sparse coef_."""
    model = fitted(cls)
    dense, before = model.coef_.copy(), model.predict(X)
    assert model.sparsify() is model
    assert sp.issparse(model.coef_)
    assert model.coef_.nnz == len(model.support_)
    np.testing.assert_array_equal(model.coef_.toarray(), dense)
    np.testing.assert_array_equal(model.predict(X), before)
    np.testing.assert_allclose(model.predict(sp.csr_array(X)), before, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), before)
    assert model.sparsify().densify() is model
    np.testing.assert_array_equal(model.densify().coef_, dense)


@both
def test_predictions_are_the_same_for_every_format(cls: Any) -> None:
    """Dense, CSR and CSC rows, in both precisions."""
    model = fitted(cls)
    want = model.predict(X)
    for rows in (sp.csr_array(X), sp.csc_array(X), np.asfortranarray(X), X.tolist()):
        np.testing.assert_allclose(model.predict(rows), want, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(model.predict(X.astype(np.float32)), want, atol=1e-4)


@reduce_to_pairs()
@both
@pytest.mark.parametrize("convert", [np.array, sp.csr_array, sp.csc_array], ids=["dense", "csr", "csc"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("bounds", [Bounds(row_l2=0.5, row_linf=0.1, label=0.1), Bounds(normalise=True, label=1.0)])
def test_the_rows_are_not_modified(cls: Any, convert: Any, dtype: Any, bounds: Bounds) -> None:
    """Clipping and normalising happen without touching the user's arrays."""
    rows, labels = convert(X.astype(dtype)), labels_for(cls).copy()
    before = rows.copy()
    cls(bounds=bounds, random_state=0).fit(rows, labels)
    assert (abs(rows - before)).max() == 0
    np.testing.assert_array_equal(labels, labels_for(cls))


@both
def test_read_only_rows_can_be_fitted(cls: Any) -> None:
    """Memory-mapped rows, as joblib hands them to workers, cannot be written to."""
    rows, labels = X.copy(), labels_for(cls).copy()
    rows.flags.writeable = labels.flags.writeable = False
    np.testing.assert_array_equal(
        cls(bounds=Bounds(row_linf=0.5, label=1.0), random_state=0).fit(rows, labels).coef_,
        cls(bounds=Bounds(row_linf=0.5, label=1.0), random_state=0).fit(X, labels_for(cls)).coef_,
    )


# --- classes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loss", "objective"),
    [
        ("logistic", "softmax"),
        ("squared_hinge", "one against the rest"),
        (Logistic(), "softmax"),
        (SquaredHinge(), "ovr"),
    ],
    ids=str,
)
@pytest.mark.parametrize("epsilon", [100.0, None])
def test_three_classes(loss: Any, objective: str, epsilon: float | None) -> None:
    """One line of weights per class, n_nonzero each, and predictions that beat guessing by far."""
    model = SparseClassifier(epsilon, n_nonzero=2, loss=loss, bounds=BOUNDS, random_state=0).fit(X, THREE)
    assert model.coef_.shape == (3, D)
    assert model.intercept_.shape == (3,)
    assert np.all(np.count_nonzero(model.coef_, axis=1) <= 2)
    assert model.decision_function(X).shape == (N, 3)
    np.testing.assert_array_equal(model.predict(X), model.decision_function(X).argmax(axis=1))
    assert model.score(X, THREE) > 0.6
    assert hasattr(model, "predict_proba") == (objective == "softmax")
    if epsilon is not None:
        assert 0.99 * epsilon < model.privacy_.epsilon <= epsilon


@pytest.mark.parametrize("noise", ["gaussian", "selection"])
@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
def test_the_budget_of_several_classes_is_composed_honestly(noise: Any, loss: str) -> None:
    """Choosing s weights in each of 3 classes is 3 s choices: their noise grows by sqrt(3), up to the accountant's
    slack; Gaussian noise on a whole step costs the same whatever the number of classes."""
    two, three = (
        fit.privacy_.bill[0].noise_per_sensitivity
        for fit in (
            SparseClassifier(
                2.0, n_nonzero=3, loss=loss, method=HardThresholding(4, 1.0, noise=noise), bounds=BOUNDS
            ).fit(X, labels)
            for labels in (LABELS, THREE)
        )
    )
    assert three / two == pytest.approx(math.sqrt(3) if noise == "selection" else 1.0, rel=0.03)


def test_a_record_touches_all_classes_of_one_against_the_rest() -> None:
    """The slope bound of the sum over classes is sqrt(classes) that of one, and slopes reach it."""
    loss = OneVsRest(SquaredHinge(), 4)
    slopes = loss.slope(np.zeros((5, 4)), np.array([0.0, 1.0, 2.0, 3.0, 0.0]))
    assert np.linalg.norm(slopes, axis=1) == pytest.approx(np.full(5, loss.slope_bound(0.0, math.inf)))
    assert loss.slope_bound(0.0, math.inf) == pytest.approx(2.0)


@pytest.mark.parametrize("names", [("ham", "spam"), ("a", "b", "c")])
def test_class_labels_can_be_words(names: tuple[str, ...]) -> None:
    """Predictions are the user's labels; the weights are those of the same labels as numbers."""
    codes = LABELS if len(names) == 2 else THREE
    words = np.array(names)[codes]
    model = SparseClassifier(50.0, n_nonzero=2, bounds=BOUNDS, random_state=0).fit(X, words)
    assert model.classes_.tolist() == list(names)
    assert set(model.predict(X)) <= set(names)
    assert model.score(X, words) > 0.6
    np.testing.assert_array_equal(
        model.coef_, SparseClassifier(50.0, n_nonzero=2, bounds=BOUNDS, random_state=0).fit(X, codes).coef_
    )


@pytest.mark.parametrize("labels", [LABELS, THREE], ids=["two", "three"])
def test_probabilities_sum_to_one_and_agree_with_predictions(labels: Any) -> None:
    """Rows of predict_proba are distributions, predict is their mode, predict_log_proba their logarithm."""
    model = SparseClassifier(50.0, n_nonzero=2, bounds=BOUNDS, random_state=0).fit(X, labels)
    probabilities = model.predict_proba(X)
    assert probabilities.shape == (N, len(model.classes_))
    assert np.all(probabilities > 0)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    np.testing.assert_array_equal(model.classes_[probabilities.argmax(axis=1)], model.predict(X))
    np.testing.assert_allclose(model.predict_log_proba(X), np.log(probabilities))
    if len(model.classes_) == 2:
        np.testing.assert_allclose(probabilities[:, 1], expit(model.decision_function(X)))


def test_squared_hinge_has_no_probabilities() -> None:
    """The method is absent, before and after fit, so that scikit-learn's scorers see it."""
    model = SparseClassifier(loss="squared_hinge", bounds=BOUNDS)
    for name in ("predict_proba", "predict_log_proba"):
        assert not hasattr(model, name)
        assert not hasattr(model.fit(X, LABELS), name)
        assert hasattr(SparseClassifier(), name)


def test_poisson_predicts_means() -> None:
    """Predictions are positive and follow the counts."""
    rates = np.exp(0.5 + X[:, 0])
    counts = np.random.default_rng(1).poisson(rates).astype(float)
    model = SparseRegressor(None, n_nonzero=1, loss="poisson").fit(X, counts)
    assert model.support_.tolist() == [0]
    assert model.coef_[0] == pytest.approx(1.0, abs=0.2)
    np.testing.assert_allclose(model.predict(X), np.exp(X @ model.coef_ + model.intercept_))


# --- scikit-learn's tools --------------------------------------------------------------------------------------------


@both
def test_pipeline_clone_cross_validation_and_grid_search(cls: Any) -> None:
    """The usual tools run, and a grid reaches the method and the budget."""
    model = cls(5.0, method=HardThresholding(), bounds=BOUNDS, random_state=0)
    pipeline = make_pipeline(FunctionTransformer(), model)
    assert len(cross_val_score(pipeline, X, labels_for(cls), cv=3, error_score="raise")) == 3
    name = cls.__name__.lower()
    search = GridSearchCV(
        pipeline, {f"{name}__method__n_iter": [2, 4], f"{name}__epsilon": [1.0, 50.0]}, cv=2, error_score="raise"
    ).fit(X, labels_for(cls))
    best = search.best_estimator_[-1]
    assert best.n_iter_ == search.best_params_[f"{name}__method__n_iter"]
    assert best.privacy_.asked[0] == search.best_params_[f"{name}__epsilon"]


@both
def test_a_clone_is_unfitted_and_equal_in_parameters(cls: Any) -> None:
    """Also with a method object, a loss object and bounds."""
    loss = Huber(0.5) if cls is SparseRegressor else SquaredHinge()
    model = fitted(cls, method=HardThresholding(n_iter=3), loss=loss)
    copy = clone(model)
    assert not hasattr(copy, "coef_")
    assert copy.bounds == model.bounds
    assert copy.loss == model.loss
    assert copy.method.get_params() == model.method.get_params()
    np.testing.assert_array_equal(copy.fit(X, labels_for(cls)).coef_, model.coef_)


@both
@pytest.mark.parametrize("epsilon", [1.0, None])
def test_a_pickled_model_predicts_the_same_and_keeps_its_report(cls: Any, epsilon: float | None) -> None:
    """Pickling loses nothing, and the copy can be fitted again."""
    model = fitted(cls, epsilon=epsilon)
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.predict(X), model.predict(X))
    assert copy.privacy_ == model.privacy_
    np.testing.assert_array_equal(copy.fit(X, labels_for(cls)).coef_, model.coef_)


def test_a_pickled_model_holds_no_rows() -> None:
    """What is stored with a private model does not grow with the number of rows."""
    sizes = [
        len(pickle.dumps(SparseClassifier(bounds=BOUNDS, n_nonzero=2, random_state=0).fit(X[:n], LABELS[:n])))
        for n in (100, 400)
    ]
    assert abs(sizes[1] - sizes[0]) < 200


# --- the report ------------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("noise", ["gaussian", "selection"])
@pytest.mark.parametrize(
    ("method", "name"),
    [
        (HardThresholding, "hard thresholding"),
        (ScreenRefine, "screen and refine"),
        (FrankWolfe, "private Frank-Wolfe"),
        (CoordinateDescent, "greedy coordinate descent"),
        (KnowledgeTransfer, "knowledge transfer, sparse"),
    ],
)
def test_the_report_holds_what_was_asked_and_what_is_proved(cls: Any, noise: Any, method: Any, name: str) -> None:
    """Asked, proved, the bill, the unit, bounds, who saw what: in attributes, in print, in JSON."""
    model = fitted(cls, epsilon=2.0, delta=1e-6, method=method(noise=noise))
    report = model.privacy_
    assert report.asked == (2.0, 1e-6)
    assert 1.98 < report.epsilon <= 2.0
    assert report.delta == 1e-6
    assert report.calibration == "rigorous"
    assert "one row" in report.unit
    assert f"{N}, is public" in report.unit
    assert name in report.method
    assert all(line.count >= 1 and line.noise_per_sensitivity > 0 for line in report.bill)
    assert all(0 < line.epsilon_alone < report.epsilon or len(report.bill) == 1 for line in report.bill)
    assert report.floating_point_slack == 0
    assert any("without rounding errors" in line for line in report.assumptions)
    text = " ".join(str(report).split())
    for words in ("Guarantee", "The bill", "Assumptions", "Who saw what", "is proved", "ε = 2, δ = 1e-06"):
        assert words in text
    assert "norm 3.464 (declared)" in text or "norm 3.5 (declared)" in text
    assert "entries clipped to 1 (declared)" in text
    assert ("The set of class labels was taken from the rows, and the fit published it" in text) == (
        cls is SparseClassifier
    )
    assert cls is SparseClassifier or "labels to 4 (declared)" in text


@both
@pytest.mark.parametrize("epsilon", [1.0, None])
def test_the_report_as_dict_and_json(cls: Any, epsilon: float | None) -> None:
    """JSON is strict (no NaN or Infinity) and holds the same as the dict."""
    report = fitted(cls, epsilon=epsilon).privacy_

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    values = json.loads(report.to_json(), parse_constant=refuse)
    plain = report.to_dict()
    assert set(values) == set(plain) == set(report.__dataclass_fields__)
    assert values["epsilon"] == (report.epsilon if epsilon else "inf")
    assert values["asked"] == (None if epsilon is None else [1.0, 1e-5])
    assert [line["release"] for line in values["bill"]] == [line.release for line in report.bill]
    assert plain["assumptions"] == report.assumptions


@both
def test_the_report_of_a_fit_without_privacy_promises_nothing(cls: Any) -> None:
    """epsilon=None: infinite, and in words."""
    report = fitted(cls, epsilon=None).privacy_
    assert report.epsilon == math.inf
    assert report.asked is None
    assert report.calibration == "none"
    text = " ".join(str(report).split())
    assert "none. This fit used no noise (epsilon=None); the model may reveal any row" in text
    assert "clipped to" not in " ".join(report.assumptions)


@pytest.mark.parametrize(("n", "delta"), [(50, 1e-5), (400, 1e-5), (30_000, 1 / 300_000)])
def test_the_default_delta(n: int, delta: float) -> None:
    """min(1e-5, 1 / (10 n))."""
    rows = np.arange(2.0 * n).reshape(n, 2) % 7
    model = SparseClassifier(bounds=Bounds(row_l2=1.0)).fit(rows, np.arange(n) % 2)
    assert model.privacy_.delta == pytest.approx(delta, rel=1e-12)


# --- bounds ----------------------------------------------------------------------------------------------------------


@both
def test_normalising_makes_row_lengths_irrelevant(cls: Any) -> None:
    """Rows of any length give the same weights once they are normalised, and the report says so."""
    lengths = np.random.default_rng(5).choice([0.25, 1.0, 64.0], N)[:, None]
    bounds = Bounds(normalise=True, label=4.0)
    one, other = (cls(bounds=bounds, random_state=0).fit(rows, labels_for(cls)) for rows in (X, lengths * X))
    np.testing.assert_array_equal(one.coef_, other.coef_)
    assert any("Rows were normalised to Euclidean norm 1 " in line for line in one.privacy_.assumptions)
    clipped = cls(bounds=Bounds(row_l2=1.0, label=4.0), random_state=0).fit(lengths * X, labels_for(cls))
    assert not np.array_equal(clipped.coef_, one.coef_)


def test_normalised_rows_still_obey_the_entry_bound_that_the_report_states() -> None:
    """Rows that normalising makes longer have no entry above the declared bound on entries."""
    rows = Rows(np.array([[0.3, 0.0, 0.0], [0.2, 0.2, 0.2]]), np.zeros(2))
    known = Bounds(row_l2=1.5, row_linf=1.0, normalise=True).known(3)
    known.clip(rows, Squared())
    assert rows.blocks[0].norms("linf").max() <= known.row_linf


@both
@pytest.mark.parametrize("noise", ["gaussian", "selection"])
@pytest.mark.parametrize("method", [HardThresholding, FrankWolfe, CoordinateDescent])
def test_surplus_rows_of_a_person_do_not_matter(cls: Any, noise: Any, method: Any) -> None:
    """A person's rows beyond rows_per_person can hold anything: the same seed gives the same model."""
    people = np.repeat(np.arange(N // 4), 4)
    surplus = np.arange(N) % 4 >= 2
    bounds = replace(BOUNDS, rows_per_person=2)
    model = cls(5.0, n_nonzero=4, method=method(noise=noise), bounds=bounds, random_state=0)
    labels = labels_for(cls)
    other_rows, other_labels = X.copy(), labels.copy()
    other_rows[surplus] = 100 * RNG.standard_normal((surplus.sum(), D))
    other_labels[surplus] = labels[surplus][::-1]
    one = clone(model).fit(X, labels, groups=people)
    other = clone(model).fit(other_rows, other_labels, groups=people)
    np.testing.assert_array_equal(one.coef_, other.coef_)
    np.testing.assert_array_equal(one.intercept_, other.intercept_)
    assert not np.array_equal(one.coef_, clone(model).fit(other_rows, other_labels).coef_)
    assert "one person with at most 2 rows" in one.privacy_.unit


def test_person_ids_may_be_words_and_come_in_any_order() -> None:
    """The first rows of each person in the order of the data count, whatever the ids look like."""
    rng = np.random.default_rng(9)
    people = rng.integers(0, 60, N)
    words = np.array([f"person-{i}" for i in people])
    model = SparseClassifier(5.0, bounds=replace(BOUNDS, rows_per_person=2), random_state=0)
    by_number, by_word = (clone(model).fit(X, LABELS, groups=ids) for ids in (people, words))
    np.testing.assert_array_equal(by_number.coef_, by_word.coef_)
    seen: Counter[int] = Counter()
    altered = X.copy()
    for row, person in enumerate(people):
        seen[person] += 1
        if seen[person] > 2:
            altered[row] = -7.0
    assert not np.array_equal(altered, X)
    np.testing.assert_array_equal(clone(model).fit(altered, LABELS, groups=people).coef_, by_number.coef_)


@pytest.mark.parametrize("noise", ["gaussian", "selection"])
def test_noise_scales_with_the_rows_of_a_person(noise: Any) -> None:
    """On rows and labels of zero a fit is nothing but noise: with 4 rows per person it is exactly 4 times as large."""
    one, four = (
        SparseRegressor(
            1.0,
            n_nonzero=D,
            method=HardThresholding(n_iter=1, step=0.5, noise=noise),
            bounds=replace(BOUNDS, rows_per_person=k),
            random_state=0,
        ).fit(np.zeros((N, D)), np.zeros(N))
        for k in (1, 4)
    )
    assert np.count_nonzero(one.coef_) > D / 2
    np.testing.assert_array_equal(four.coef_, 4 * one.coef_)
    assert one.privacy_.bill == four.privacy_.bill
    assert "one row" in one.privacy_.unit
    assert "one person with at most 4 rows" in four.privacy_.unit


@pytest.mark.filterwarnings("ignore:.* rows are too few to estimate:UserWarning")
@both
@pytest.mark.parametrize(("noise", "rows"), [("gaussian", ["row_l2"]), ("auto", ["row_l2", "row_linf"])])
@pytest.mark.parametrize("share", [0.1, 0.4])
def test_undeclared_bounds_are_estimated_on_the_bill(cls: Any, noise: Any, rows: list[str], share: float) -> None:
    """Each estimate has a line, together they cost the stated share, and the total stays within the budget."""
    bounds = Bounds(estimate_share=share)
    model = fitted(cls, epsilon=2.0, bounds=bounds, method=HardThresholding(noise=noise))
    report = model.privacy_
    wanted = rows + (["label"] if cls is SparseRegressor else [])
    lines = [line for line in report.bill if line.release.endswith("quantile")]
    assert [line.release for line in lines] == [f"{name} quantile" for name in wanted]
    assert sum(2 / line.noise_per_sensitivity for line in lines) == pytest.approx(share * 2.0)
    # With Gaussian noise alone, bounds and fit are composed where that leaves more; else epsilons are added up.
    added = f"after {share * 2:.4g} of pure ε for the bounds (added up)" in report.accountant
    assert added or noise == "gaussian"
    assert not (added and noise == "gaussian" and share == 0.1)
    assert 0.99 * 2.0 < report.epsilon <= 2.0
    assert "estimated privately" in str(report)


def test_the_estimated_bound_is_near_the_quantile_where_there_are_enough_rows() -> None:
    """With 4000 rows at epsilon = 10 the bound found is within a factor of 2 of the wanted quantile."""
    rng = np.random.default_rng(2)
    rows = rng.standard_normal((4000, 3))
    for seed in range(5):
        found = Bounds.estimate(rows, 100 * rows[:, 0], epsilon=10.0, random_state=seed)
        for bound, values in (
            (found.row_l2, np.linalg.norm(rows, axis=1)),
            (found.row_linf, np.abs(rows).max(axis=1)),
            (found.label, np.abs(100 * rows[:, 0])),
        ):
            assert bound is not None
            assert 0.5 < bound / np.quantile(values, found.quantile) < 2.0


@pytest.mark.parametrize(
    ("cls", "bounds"),
    [
        (SparseClassifier, Bounds(row_l2=1.0)),
        (SparseClassifier, Bounds(row_linf=1.0)),
        (SparseClassifier, Bounds(normalise=True)),
        (SparseRegressor, Bounds(row_l2=1.0, label=1.0)),
    ],
    ids=str,
)
def test_declared_bounds_cost_nothing(cls: Any, bounds: Bounds) -> None:
    """One row bound (and a label bound for regression) is enough: nothing is estimated."""
    report = fitted(cls, bounds=bounds).privacy_
    assert not any("quantile" in line.release for line in report.bill)
    assert "estimated" not in str(report)


def test_labels_outside_the_bound_are_clipped() -> None:
    """Targets beyond the declared bound count as the bound."""
    bounds = replace(BOUNDS, label=1.0)
    one, other = (
        SparseRegressor(bounds=bounds, random_state=0).fit(X, targets)
        for targets in (np.clip(TARGETS, -1, 1), np.where(np.abs(TARGETS) > 1, 1e3 * TARGETS, TARGETS))
    )
    np.testing.assert_array_equal(one.coef_, other.coef_)


# --- seeds -----------------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("make", [np.random.RandomState, np.random.default_rng])
def test_clones_that_were_given_a_generator_draw_noise_of_their_own(cls: Any, make: Any) -> None:
    """Each holds a copy in the same state. Only an integer repeats noise."""
    model = cls(bounds=BOUNDS, n_nonzero=4, random_state=make(3))
    one, other = (clone(model).fit(X, labels_for(cls)) for _ in range(2))
    assert not np.array_equal(one.coef_, other.coef_)
    assert not one.privacy_.seeded
    assert any("keyed by the operating system" in line for line in one.privacy_.assumptions)


@both
def test_a_seed_makes_a_fit_reproducible(cls: Any) -> None:
    """And the report says that the promise is void towards who knows it."""
    one, other = (fitted(cls, random_state=3) for _ in range(2))
    np.testing.assert_array_equal(one.coef_, other.coef_)
    assert one.privacy_.seeded
    assert any(re.search("seed: .*reproducible.* not private against", line) for line in one.privacy_.assumptions)


@both
def test_seeds_differ_from_each_other(cls: Any) -> None:
    """Another seed is other noise, and a generator moves on between fits."""
    assert not np.array_equal(fitted(cls, random_state=1).coef_, fitted(cls, random_state=2).coef_)
    for state in (np.random.RandomState(0), np.random.default_rng(0)):
        assert not np.array_equal(fitted(cls, random_state=state).coef_, fitted(cls, random_state=state).coef_)


@both
def test_without_a_seed_every_fit_has_its_own_noise(cls: Any) -> None:
    """The default cannot be repeated, not even by seeding numpy; the report names the stream."""
    fits = []
    for _ in range(2):
        np.random.seed(0)  # noqa: NPY002
        fits.append(fitted(cls, random_state=None))
    assert not np.array_equal(fits[0].coef_, fits[1].coef_)
    assert not fits[0].privacy_.seeded
    assert any("AES-128 in counter mode" in line for line in fits[0].privacy_.assumptions)


# --- progress --------------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("bounds", [BOUNDS, None], ids=["declared", "estimated"])
@pytest.mark.filterwarnings("ignore:.* rows are too few to estimate:UserWarning")
def test_verbose_shows_counts_and_seconds_and_nothing_else(
    capsys: pytest.CaptureFixture[str], cls: Any, bounds: Bounds | None
) -> None:
    """Every line is "name: done/total answers, s left", the last one complete; nothing goes to standard output."""
    model = fitted(cls, verbose=1, bounds=bounds)
    shown = capsys.readouterr()
    assert shown.out == ""
    lines = [line.strip() for line in re.split(r"[\r\n]", shown.err) if line.strip()]
    total = sum(line.count for line in model.privacy_.bill)
    for number, line in enumerate(lines, start=1):
        assert re.fullmatch(rf"{cls.__name__}: {number}/\d+ answers, \d+ s left", line), line
    assert len(lines) == total
    fitted(cls, verbose=0)
    assert capsys.readouterr() == ("", "")


class Recorder:
    """A callback that keeps what scikit-learn hands it."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.seen: list[dict[str, Any]] = []
        self.states: list[dict[str, Any]] = []

    def setup(self, estimator: Any, context: Any) -> None:
        self.events.append("setup")

    def teardown(self, estimator: Any, context: Any) -> None:
        self.events.append("teardown")

    def on_fit_task_begin(self, estimator: Any, context: Any, **data: Any) -> None:
        self.events.append(f"begin {context.task_name}")
        self.seen.append(data)

    def on_fit_task_end(self, estimator: Any, context: Any, **data: Any) -> bool:
        self.events.append(f"end {context.task_name}")
        self.seen.append(data)
        self.states.append(dict(vars(estimator)))
        return False


@pytest.mark.skipif(not SUPPORTED, reason="scikit-learn before 1.9 has no callbacks")
@both
def test_callbacks_are_called_for_each_answer_and_see_no_rows(cls: Any) -> None:
    """One task for the fit, one for each answer; no X, no y, no array as long as the data on the estimator."""
    recorder = Recorder()
    model = cls(bounds=BOUNDS, random_state=0).set_callbacks(recorder).fit(X, labels_for(cls))
    answers = sum(line.count for line in model.privacy_.bill)
    counts = Counter(recorder.events)
    assert counts == {
        "setup": 1,
        "teardown": 1,
        "begin fit": 1,
        "end fit": 1,
        "begin answer": answers,
        "end answer": answers,
    }
    assert recorder.events[0] == "setup"
    assert recorder.events[-1] == "teardown"
    assert all(value is None for data in recorder.seen for value in data.values())
    held = [value for state in recorder.states for value in state.values() if isinstance(value, np.ndarray)]
    assert all(len(value) < N for value in held if value.ndim)


@pytest.mark.skipif(not SUPPORTED, reason="scikit-learn before 1.9 has no callbacks")
@both
def test_callbacks_change_nothing(cls: Any) -> None:
    """A fit that is watched gives the same weights."""
    plain, watched = (cls(bounds=BOUNDS, random_state=0), cls(bounds=BOUNDS, random_state=0).set_callbacks(Recorder()))
    np.testing.assert_array_equal(plain.fit(X, labels_for(cls)).coef_, watched.fit(X, labels_for(cls)).coef_)


@pytest.mark.parametrize("sparse", [False, True])
def test_predictions_normalise_rows_as_the_fit_did(sparse: bool) -> None:
    """With Bounds(normalise=True) a row and a multiple of it get the same prediction; without, they do not."""
    rng = np.random.default_rng(3)
    X = rng.uniform(0.1, 1.0, (500, 6))
    y = X @ np.array([1.0, -1.0, 0, 0, 0.5, 0])
    rows: Any = sp.csr_array(X) if sparse else X
    for normalise in (True, False):
        bounds = Bounds(row_l2=2.0, label=2.0, normalise=normalise)
        model = SparseRegressor(8.0, bounds=bounds, random_state=0).fit(rows, y)
        same = np.allclose(model.predict(rows), model.predict(3.0 * rows))
        assert same == normalise
    normed = 2.0 * X / np.linalg.norm(X, axis=1, keepdims=True)
    model = SparseRegressor(8.0, bounds=Bounds(row_l2=2.0, label=2.0, normalise=True), random_state=0).fit(rows, y)
    np.testing.assert_allclose(model.predict(rows), normed @ model.coef_ + model.intercept_)
