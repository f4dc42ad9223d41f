"""Every kind of bad input is refused with a message that says what to change, before any noise is drawn."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from pairwise import reduce_to_pairs
from sklearn.exceptions import NotFittedError

import tulle.trusted.fit
from tulle import Bounds, Budget, SparseClassifier, SparseRegressor
from tulle.files.error_messages import PrivacyWarning
from tulle.methods import (
    FitAgain,
    HardThresholding,
    KnowledgeTransfer,
    ScreenRefine,
)
from tulle.methods.loss_functions import Poisson
from tulle.transfer.public_features import UniformFeatures

N, D = 60, 5
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (N, D))
LABELS = {SparseClassifier: (X[:, 0] > 0).astype(float), SparseRegressor: X[:, 0] + 0.1}
BOUNDS = Bounds(row_l2=3.0, label=2.0)

both = pytest.mark.parametrize("cls", [SparseClassifier, SparseRegressor])


@pytest.fixture
def generators(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The generators that fits have made: noise can come from nowhere else."""
    made: list[Any] = []
    original = tulle.trusted.fit.keyed_generator

    def counted(*arguments: Any) -> Any:
        generator = original(*arguments)
        made.append(generator)
        return generator

    monkeypatch.setattr(tulle.trusted.fit, "keyed_generator", counted)
    return made


@pytest.fixture
def no_noise(generators: list[Any]) -> Iterator[None]:
    """Fails the test if a generator was made."""
    yield
    assert generators == [], "the error came after noise was drawn"


def with_entry(array: Any, value: Any) -> Any:
    changed = np.array(array, dtype=float)
    changed.flat[3] = value
    return changed


def test_a_fit_does_make_a_generator(generators: list[Any]) -> None:
    """The fixture that all refusals below rely on sees a good fit."""
    SparseClassifier(bounds=BOUNDS).fit(X, LABELS[SparseClassifier])
    assert len(generators) == 1


# --- rows and labels -------------------------------------------------------------------------------------------------


@reduce_to_pairs()
@both
@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array, sp.csc_array], ids=["dense", "csr", "csc"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    ("value", "message"), [(np.nan, "Input X contains NaN"), (np.inf, "Input X contains infinity")]
)
def test_rows_that_are_not_finite(cls: Any, convert: Any, dtype: Any, value: float, message: str) -> None:
    """NaN and inf in dense and sparse rows, in both precisions, at fit."""
    with pytest.raises(ValueError, match=message):
        cls(bounds=BOUNDS).fit(convert(with_entry(X, value).astype(dtype)), LABELS[cls])


@both
@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize(
    ("value", "message"), [(np.nan, "Input y contains NaN"), (-np.inf, "Input y contains infinity")]
)
def test_labels_that_are_not_finite(cls: Any, value: float, message: str) -> None:
    """NaN and inf in labels."""
    with pytest.raises(ValueError, match=message):
        cls(bounds=BOUNDS).fit(X, with_entry(LABELS[cls], value))


@both
@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize(
    ("rows", "message"),
    [
        pytest.param(X[:, 0], "Expected 2D array, got 1D array instead", id="1-d"),
        pytest.param(X[None], r"Found array with dim 3(, while dim <= 2 is required|\. \w+ expected <= 2)", id="3-d"),
        pytest.param(X[:-1], r"inconsistent numbers of samples: \[59, 60\]", id="too-short"),
        pytest.param(X[:0], r"Found array with 0 sample\(s\).*minimum of 2 is required", id="empty"),
        pytest.param(X[:, :0], r"Found array with 0 feature\(s\).*minimum of 1 is required", id="no-features"),
        pytest.param(sp.csr_array((0, D)), r"Found array with 0 sample\(s\).*minimum of 2", id="empty-csr"),
        pytest.param(np.full((N, D), "word"), "could not convert string to float", id="strings"),
        pytest.param(np.full((N, D), "word", dtype=object), "could not convert string to float", id="object-strings"),
        pytest.param(X + 1j, "Complex data not supported", id="complex"),
        pytest.param([[1.0, 2.0], [3.0]], "inhomogeneous shape", id="ragged"),
    ],
)
def test_rows_of_a_wrong_shape_or_kind(cls: Any, rows: Any, message: str) -> None:
    """Wrong dimensions, lengths and element types."""
    with pytest.raises(ValueError, match=message):
        cls(bounds=BOUNDS).fit(rows, LABELS[cls])


@both
@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize("thing", [object(), {}, [1.0]], ids=["object", "dict", "list"])
def test_object_arrays_of_things_that_are_no_numbers(cls: Any, thing: Any) -> None:
    """An object array that holds no numbers; one that holds numbers is read as numbers."""
    rows = np.empty((N, D), dtype=object)
    for place in np.ndindex(rows.shape):
        rows[place] = thing
    with pytest.raises((TypeError, ValueError), match=r"argument must be a string or a real number|with a sequence"):
        cls(bounds=BOUNDS).fit(rows, LABELS[cls])


@both
def test_object_arrays_of_numbers_are_numbers(cls: Any) -> None:
    """The same weights as from the float array with the same seed."""
    plain, other = (cls(bounds=BOUNDS, random_state=0).fit(rows, LABELS[cls]) for rows in (X, X.astype(object)))
    np.testing.assert_array_equal(plain.coef_, other.coef_)


@both
@pytest.mark.usefixtures("no_noise")
def test_one_row_is_too_few(cls: Any) -> None:
    """n < 2."""
    with pytest.raises(ValueError, match=r"Found array with 1 sample\(s\).*minimum of 2 is required"):
        cls(bounds=BOUNDS).fit(X[:1], LABELS[cls][:1])


@both
@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(lambda y: y[:-1], r"inconsistent numbers of samples: \[60, 59\]", id="too-short"),
        pytest.param(lambda y: np.c_[y, y], r"y should be a 1d array, got an array of shape \(60, 2\)", id="2-d"),
        pytest.param(lambda y: None, "requires y to be passed, but the target y is None", id="none"),
    ],
)
def test_labels_of_a_wrong_shape(cls: Any, make: Any, message: str) -> None:
    """Labels that do not match the rows."""
    with pytest.raises(ValueError, match=message):
        cls(bounds=BOUNDS).fit(X, make(LABELS[cls]))


@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize("label", [0, 1.0, "spam"])
def test_one_class(label: Any) -> None:
    """A classifier that was told no classes needs two, and does not quote the one it found."""
    with pytest.raises(ValueError, match="at least two classes, but the labels have one class; declare") as refusal:
        SparseClassifier(bounds=BOUNDS).fit(X, np.full(N, label))
    assert "spam" not in str(refusal.value)


@pytest.mark.usefixtures("no_noise")
def test_continuous_labels_for_a_classifier() -> None:
    """Regression targets are not classes."""
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        SparseClassifier(bounds=BOUNDS).fit(X, X[:, 0])


@pytest.mark.usefixtures("no_noise")
def test_string_labels_for_a_regression() -> None:
    """Words are no numbers."""
    with pytest.raises(ValueError, match="could not convert string to float"):
        SparseRegressor(bounds=BOUNDS).fit(X, np.array(["a", "b"] * (N // 2)))


@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize("loss", ["poisson", Poisson(cap=3.0)], ids=str)
@pytest.mark.parametrize("epsilon", [1.0, None])
def test_negative_labels_for_poisson(loss: Any, epsilon: float | None) -> None:
    """Counts are not negative."""
    with pytest.raises(ValueError, match=r"loss='poisson' needs targets >= 0 \(counts\), but some are negative"):
        SparseRegressor(epsilon, loss=loss, bounds=BOUNDS).fit(X, np.arange(N) - 1.0)


# --- the budget ------------------------------------------------------------------------------------------------------


@both
@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize("epsilon", [0, 0.0, -1, -1e-9, np.nan, np.inf, "1", [1.0], 1j], ids=repr)
def test_epsilon_must_be_a_positive_number(cls: Any, epsilon: Any) -> None:
    """The message holds the value and says how to fit without privacy."""
    wanted = f"epsilon must be a finite number > 0, got {epsilon!r}; use epsilon=None for a fit without privacy"
    with pytest.raises(ValueError, match=re.escape(wanted)):
        cls(epsilon, bounds=BOUNDS).fit(X, LABELS[cls])
    with pytest.raises(ValueError, match=re.escape(wanted)):
        Budget(epsilon, 1e-5)


@both
@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [(1, 1e-5), (np.float64(1), 1e-5), (np.float32(1), 1e-5), (np.int64(1), 1e-5), (1.0, np.float32(1e-5))],
    ids=repr,
)
def test_numpy_numbers_are_numbers(cls: Any, epsilon: Any, delta: Any) -> None:
    """Epsilons and deltas out of numpy arrays, as grids of settings have them, are accepted."""
    model = cls(epsilon, delta, bounds=BOUNDS).fit(X, LABELS[cls])
    assert 0.99 < model.privacy_.epsilon <= 1


@both
@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize("delta", [1, 1.0, 1.5, -0.1, -1e-12, np.nan, np.inf, "small"], ids=repr)
def test_delta_must_lie_between_0_and_1(cls: Any, delta: Any) -> None:
    """The message holds the value and says what to choose."""
    wanted = f"delta must lie in [0, 1), got {delta!r}; choose it well below 1 / number of rows"
    with pytest.raises(ValueError, match=re.escape(wanted)):
        cls(1.0, delta, bounds=BOUNDS).fit(X, LABELS[cls])


@both
@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize(
    ("method", "message"),
    [
        (FitAgain(), r"no amount of noise on .* with delta = 0 use pure mechanisms only"),
        (ScreenRefine(noise="gaussian"), r"no amount of noise on .* with delta = 0 use pure mechanisms only"),
        (ScreenRefine(noise="selection"), r"no amount of noise on .* with delta = 0 use pure mechanisms only"),
        (
            HardThresholding(noise="gaussian"),
            r"HardThresholding\(noise='gaussian'\) cannot give delta = 0; use noise='selection', 'laplace' or 'auto', "
            "or a delta > 0",
        ),
    ],
    ids=str,
)
def test_delta_0_needs_pure_mechanisms(cls: Any, method: Any, message: str) -> None:
    """No Gaussian noise is purely private: the fit says so instead of searching for ever."""
    with pytest.raises(ValueError, match=message):
        cls(1.0, 0.0, method=method, bounds=BOUNDS).fit(X, LABELS[cls])


@both
@pytest.mark.parametrize(
    "method",
    [
        *(HardThresholding(noise=noise) for noise in ("selection", "laplace", "auto")),
        *(KnowledgeTransfer(variant, UniformFeatures(), n_public=50) for variant in ("sparse", "dense")),
    ],
    ids=str,
)
def test_delta_0_is_kept_by_pure_mechanisms(cls: Any, method: Any) -> None:
    """Methods that have purely private noise: the delta of the report is 0, and its epsilon within the budget."""
    report = cls(1.0, 0.0, method=method, bounds=BOUNDS).fit(X, LABELS[cls]).privacy_
    assert report.delta == 0
    assert 0.99 < report.epsilon <= 1


@both
@pytest.mark.parametrize("delta", [1 / N, 0.5])
def test_a_delta_of_1_in_n_or_more_warns(cls: Any, delta: float) -> None:
    """delta >= 1/n allows publishing somebody's row."""
    with pytest.warns(
        PrivacyWarning, match=rf"delta = {delta:g} is not below 1 / \(number of rows\) = 0.0167.*use delta=None"
    ):
        cls(1.0, delta, bounds=BOUNDS).fit(X, LABELS[cls])


@both
def test_a_delta_just_below_1_in_n_does_not_warn(cls: Any) -> None:
    """Warnings are errors here."""
    assert cls(1.0, 0.999 / N, bounds=BOUNDS).fit(X, LABELS[cls]).privacy_.delta == 0.999 / N


# --- bounds ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["row_l2", "row_linf", "label"])
@pytest.mark.parametrize("value", [0, 0.0, -1.0, np.inf, -np.inf, np.nan, "1", True, [1.0]], ids=repr)
def test_bounds_must_be_positive_and_finite(name: str, value: Any) -> None:
    """Each bound, with its name and value in the message."""
    with pytest.raises(ValueError, match=re.escape(f"Bounds({name}=...) must be a finite number > 0, got {value!r}")):
        Bounds(**{name: value})


@pytest.mark.parametrize("name", ["estimate_share", "quantile"])
@pytest.mark.parametrize("value", [0, 1, -0.1, 1.5, np.nan, "0.5"], ids=repr)
def test_shares_lie_strictly_between_0_and_1(name: str, value: Any) -> None:
    """The part of the budget and the quantile."""
    with pytest.raises(
        ValueError, match=re.escape(f"Bounds({name}=...) must lie strictly between 0 and 1, got {value!r}")
    ):
        Bounds(**{name: value})


@pytest.mark.parametrize("value", [0, -1, 2.0, "2", None], ids=repr)
def test_rows_per_person_is_a_positive_integer(value: Any) -> None:
    """How many rows a person has."""
    with pytest.raises(
        ValueError, match=re.escape(f"Bounds(rows_per_person=...) must be an integer >= 1, got {value!r}")
    ):
        Bounds(rows_per_person=value)


@pytest.mark.parametrize("epsilon", [0, -1.0, np.nan, np.inf, "1", None], ids=repr)
def test_estimating_bounds_needs_a_positive_epsilon(epsilon: Any) -> None:
    """Bounds.estimate is private, always."""
    with pytest.raises(ValueError, match=re.escape(f"epsilon must be a finite number > 0, got {epsilon!r}")):
        Bounds.estimate(X, epsilon=epsilon)


@pytest.mark.parametrize(
    ("rows", "labels", "message"),
    [
        (with_entry(X, np.nan), None, "Input X contains NaN"),
        (with_entry(X, np.inf), None, "Input X contains infinity"),
        (X[:0], None, r"Found array with 0 sample\(s\)"),
        (X[:, 0], None, "Expected 2D array, got 1D array"),
        (X, np.ones((N, 2)), "y should be a 1d array"),
        (X, np.ones(N - 1), "inconsistent numbers of samples|labels"),
        (X, with_entry(np.ones(N), np.nan), "NaN"),
    ],
    ids=["nan", "inf", "empty", "1-d", "2-d-labels", "short-labels", "nan-labels"],
)
def test_estimating_bounds_refuses_bad_rows(rows: Any, labels: Any, message: str) -> None:
    """The same checks as in fit."""
    with pytest.raises(ValueError, match=message):
        Bounds.estimate(rows, labels, epsilon=1.0)


@both
@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize("bounds", [3, (1.0, 2.0), {"row_l2": 1.0}, "l2"], ids=repr)
def test_bounds_of_another_type(cls: Any, bounds: Any) -> None:
    """A number is not a Bounds."""
    with pytest.raises(TypeError, match=re.escape(f"bounds must be a tulle.Bounds or None, got {bounds!r}")):
        cls(bounds=bounds).fit(X, LABELS[cls])


# --- predicting ------------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (X[:, :-1], "X has 4 features, but Sparse.* is expecting 5 features as input"),
        (sp.csr_array(X[:, :-1]), "X has 4 features, but Sparse.* is expecting 5 features as input"),
        (with_entry(X, np.nan), "Input X contains NaN"),
        (with_entry(X, np.inf), "Input X contains infinity"),
        (X[0], "Expected 2D array, got 1D array instead"),
    ],
    ids=["features", "features-csr", "nan", "inf", "1-d"],
)
def test_predicting_on_bad_rows(cls: Any, rows: Any, message: str) -> None:
    """A fitted model checks rows like fit does."""
    model = cls(bounds=BOUNDS).fit(X, LABELS[cls])
    for name in ("predict", "decision_function", "predict_proba") if cls is SparseClassifier else ("predict",):
        with pytest.raises(ValueError, match=message):
            getattr(model, name)(rows)


@both
@pytest.mark.parametrize("name", ["predict", "decision_function", "predict_proba", "sparsify", "densify"])
def test_a_model_that_is_not_fitted(cls: Any, name: str) -> None:
    """Everything that needs weights says that they are missing."""
    if cls is SparseRegressor and name in ("decision_function", "predict_proba"):
        assert not hasattr(cls(), name)
        return
    with pytest.raises(NotFittedError, match=f"This {cls.__name__} instance is not fitted yet"):
        getattr(cls(), name)(*([] if name in ("sparsify", "densify") else [X]))


# --- input that is accepted ------------------------------------------------------------------------------------------


@reduce_to_pairs()
@both
@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array, sp.csc_array], ids=["dense", "csr", "csc"])
@pytest.mark.parametrize("noise", ["gaussian", "selection"])
@pytest.mark.parametrize("epsilon", [1.0, None])
@pytest.mark.parametrize("bounds", [BOUNDS, Bounds(normalise=True), None], ids=["declared", "normalise", "none"])
def test_empty_rows_and_constant_columns_are_fine(
    cls: Any, convert: Any, noise: Any, epsilon: float | None, bounds: Any
) -> None:
    """Rows of zeros, columns of zeros and of one value give finite weights and predictions."""
    rows = X.copy()
    rows[:10] = 0.0
    rows[:, 1] = 0.0
    rows[10:, 2] = 3.0
    model = cls(epsilon, n_nonzero=3, method=HardThresholding(noise=noise), bounds=bounds).fit(
        convert(rows), LABELS[cls]
    )
    assert np.all(np.isfinite(model.coef_))
    assert np.all(np.isfinite(model.intercept_))
    predictions = model.predict_proba(convert(rows)) if cls is SparseClassifier else model.predict(convert(rows))
    assert np.all(np.isfinite(predictions))


@both
@pytest.mark.parametrize("epsilon", [1.0, None])
@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array], ids=["dense", "csr"])
def test_rows_that_are_all_empty_are_fine(cls: Any, epsilon: float | None, convert: Any) -> None:
    """Nothing to learn from but the labels."""
    model = cls(epsilon, bounds=BOUNDS).fit(convert(np.zeros((N, D))), LABELS[cls])
    rows = convert(X)
    assert np.all(np.isfinite(model.predict_proba(rows) if cls is SparseClassifier else model.predict(rows)))
    assert np.all(np.isfinite(model.coef_))
    assert np.all(np.isfinite(model.intercept_))
    if epsilon is None:
        assert np.all(model.coef_ == 0)


def test_constant_targets_are_fine() -> None:
    """A regression on one value predicts it."""
    model = SparseRegressor(None).fit(X, np.full(N, 2.5))
    np.testing.assert_allclose(model.predict(X), 2.5, atol=1e-2)


@both
def test_more_non_zeros_than_features_are_all_features(cls: Any) -> None:
    """n_nonzero above d keeps all of them."""
    model = cls(1.0, n_nonzero=10 * D, bounds=BOUNDS).fit(X, LABELS[cls])
    assert f"{D} of {D} weights kept" in model.privacy_.method


@pytest.mark.parametrize("bounds", [None, Bounds(row_l2=3.0)], ids=["nothing-declared", "label-missing"])
@pytest.mark.parametrize("epsilon", [1.0, 50.0])
@pytest.mark.parametrize("loss", ["squared", "huber", "poisson"])
def test_counts_with_estimated_bounds_can_be_fitted(bounds: Bounds | None, epsilon: float, loss: str) -> None:
    """Counts of any size are good input: no error may come once noise is drawn, whatever bound is found."""
    for scale in (1.0, 1000.0):
        model = SparseRegressor(epsilon, loss=loss, bounds=bounds, random_state=0).fit(X, scale * np.arange(N))
        assert np.all(np.isfinite(model.coef_))
