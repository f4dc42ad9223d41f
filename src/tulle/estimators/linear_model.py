"""What all fitted linear models share: rows are checked, margins, named and sparse weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from tulle.backends.input_kinds import find_lazy, find_spread
from tulle.backends.rows_elsewhere import Spread
from tulle.estimators.bounds import Bounds
from tulle.estimators.pipeline_checks import Protects
from tulle.files import array_checks
from tulle.files.error_messages import show_setting
from tulle.reports.report import PrivacyReport
from tulle.transfer.synthetic import SyntheticData
from tulle.trusted import intake
from tulle.trusted.events import FloatArray
from tulle.trusted.rows import Rows

Seed = int | np.random.RandomState | np.random.Generator | None


def _margins_of(coef: Any, intercept: Any, bounds: Bounds | None, X: Any) -> FloatArray:
    """The margin of each row and output. Holds no model, so that it can travel to where rows are."""
    weights = np.atleast_2d(coef.toarray() if sp.issparse(coef) else coef)
    if bounds is not None and bounds.normalise:
        rows = _normalise(bounds, X)
        with_intercept = np.vstack([weights.T, np.atleast_1d(intercept)])
        return np.vstack([block.margins(with_intercept, 1.0) for block in rows.blocks])
    support = np.flatnonzero(np.any(weights != 0, axis=0))
    return np.asarray(X[:, support] @ weights[:, support].T, dtype=np.float64) + np.atleast_1d(intercept)


def _answer_rows(margins: Callable[[Any], FloatArray], answer: Callable[[FloatArray], Any], X: Any) -> Any:
    return answer(margins(X))


def _first_or_all(n_classes: int, margins: FloatArray) -> FloatArray:
    """Margins as `decision_function` gives them."""
    return margins[:, 0] if n_classes == 2 else margins


def _choose_classes(classes: npt.NDArray[Any], margins: FloatArray) -> npt.NDArray[Any]:
    chosen = (margins[:, 0] > 0).astype(int) if len(classes) == 2 else margins.argmax(axis=1)
    return np.asarray(classes[chosen])


def find_probabilities(loss: Any, margins: FloatArray) -> FloatArray:
    """The probability of each class, by a loss that has them."""
    return np.asarray(loss.probabilities(margins))


def find_means(loss: Any, margins: FloatArray) -> FloatArray:
    """The expected target of each row, of one output."""
    return np.asarray(loss.mean(margins)[:, 0])


def _normalise(bounds: Bounds, X: Any) -> Rows:
    """Rows to predict for, normalised as the rows of the fit were; a model of other rows would be meant else."""
    known = bounds.known(X.shape[1])
    rows = Rows(X, np.zeros(X.shape[0]))
    rows.clip_rows(known.row_l2, known.row_linf, normalise=True)
    return rows


class LinearModel(BaseEstimator):
    """What all fitted linear models share, however they were fitted: rows are checked, margins, sparse weights."""

    coef_: Any
    intercept_: Any
    support_: npt.NDArray[np.intp]
    n_features_in_: int
    bounds: Bounds | None
    privacy_: PrivacyReport
    _protects: Protects = "rows"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _checked(self, X: Any) -> Any:
        """Rows to predict for, through the intake."""
        rows = array_checks.read_rows(X, estimator=self)
        validate_data(self, X, "no_validation", reset=False, skip_check_array=True)
        return rows

    def _check_to_fit(self, X: Any, y: Any) -> tuple[Any, intake.Cells]:
        """Rows and labels to fit to, through the intake: labels are not read any further here."""
        rows = array_checks.read_rows(X, least_rows=2, estimator=self)
        validate_data(self, X, y, reset=True, skip_check_array=True)  # sets n_features_in_ and feature_names_in_
        array_checks.warn_of_column(y, "y")
        labels = intake.read_cells(y, "y")
        array_checks.check_same_length(rows, labels)
        return rows, labels

    def _shape_weights(self, weights: FloatArray) -> tuple[FloatArray, Any]:
        """coef_ and intercept_ of weights of shape (features + 1, outputs)."""
        raise NotImplementedError

    def _spread(self, X: Any, y: Any) -> Spread | None:
        """Rows that are elsewhere, checked; None where they are an array."""
        spread = find_spread(X, y)
        if spread is None:
            return None
        if spread.shape[0] < 2 or spread.shape[1] < 1:
            raise ValueError(f"{type(self).__name__} needs at least 2 rows and 1 feature, got the shape {spread.shape}")
        spread.check()
        self.n_features_in_ = spread.shape[1]
        self.__dict__.pop("feature_names_in_", None)
        if spread.feature_names is not None:
            self.feature_names_in_ = np.asarray(spread.feature_names, dtype=object)
        return spread

    def _margins(self, X: Any, offset: Any = None) -> FloatArray:
        """The margins of rows in this process; `offset` is for models that take one."""
        check_is_fitted(self)
        margins = partial(_margins_of, self.coef_, self.intercept_, self.bounds)
        if (spread := find_spread(X)) is None:
            return margins(self._checked(X))
        if spread.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {spread.shape[1]} features, but {type(self).__name__} is expecting {self.n_features_in_} "
                "features as input"
            )
        spread.check_names(getattr(self, "feature_names_in_", None))
        return spread.map(margins)

    def _columns_of(self, X: Any, features: npt.NDArray[np.intp]) -> FloatArray:
        """Rows to predict for, as margins take them, on some features; dense."""
        if self.bounds is not None and self.bounds.normalise:
            parts = [block.columns(features) for block in _normalise(self.bounds, X).blocks]
        else:
            parts = [X[:, features]]
        return np.vstack([part.toarray() if sp.issparse(part) else part for part in parts]).astype(np.float64)

    def _respond(
        self, X: Any, answer: Callable[[FloatArray], Any], offset: Any = None, columns: Sequence[Any] | None = None
    ) -> Any:
        """What a function of margins answers for rows: lazily for a Dask collection. The function holds no model, so
        that it can travel to where rows are."""
        if (lazy := find_lazy(X)) is None:
            return answer(self._margins(X, offset))
        if offset is not None:
            raise ValueError("offset is for rows in memory; predict without it, or partition by partition")
        lazy.check_columns(self.n_features_in_, getattr(self, "feature_names_in_", None), type(self).__name__)
        weights = sp.csr_array(self.coef_.reshape((1, -1)) if np.ndim(self.coef_) == 1 else self.coef_)
        margins = partial(_margins_of, weights, self.intercept_, self.bounds)
        return lazy.map(partial(_answer_rows, margins, answer), self.n_features_in_, columns)

    def _answer(self) -> Callable[[FloatArray], npt.NDArray[Any]]:
        """The predictions for rows of given margins, as a function that holds no model."""
        raise NotImplementedError

    def release_synthetic(self, X_public: Any) -> SyntheticData:
        """The private teacher's answers on public features, as a data set that may be published.

        Answers are a function of what the fit released and of `X_public`, so any number of them on any public features
        costs nothing more than the fit did.

        Parameters
        ----------
        X_public : array or sparse array of shape (m, d)
            Features that are public already, or drawn without looking at private rows. Never private rows: they are
            part of the data set.

        Returns
        -------
        SyntheticData
            With `X`, `y`, `margins`, the report `privacy`, and `save`.
        """
        check_is_fitted(self)
        if math.isinf(self.privacy_.epsilon):
            raise ValueError(
                "no epsilon is proved for this fit, and its predictions may reveal any training row; fit with an "
                "epsilon, and with a sound variant of the method"
            )
        X = self._checked(X_public)
        coef = getattr(self, "teacher_coef_", self.coef_)
        margins = _margins_of(coef, getattr(self, "teacher_intercept_", self.intercept_), self.bounds, X)
        report = replace(
            self.privacy_,
            assumptions=(
                *self.privacy_.assumptions,
                f"This is a data set of {X.shape[0]:,} rows. Its features were passed as public and are not "
                "protected. Its targets are the fitted teacher's predictions for them: a function of what the fit "
                "released.",
            ),
        )
        return SyntheticData(X, self._answer()(margins), margins, report)

    def named_weights(self, names: Any = None, *, of: Any = None) -> list[tuple[str, float]]:
        """The non-zero weights with the names of their features, by falling magnitude.

        A function of what the fit released, names apart: naming costs nothing.

        Parameters
        ----------
        names : sequence of str of length d, or None, default=None
            The names of all features, such as ``vectorizer.get_feature_names_out()``. Public, or they are a release of
            their own. None: those of the table that the model was fitted to, or "x0", "x1", ...
        of : class label or None, default=None
            The class that positive weights speak for. None: the second of two classes; of more classes one must be
            said. Regressors have none.

        Returns
        -------
        list of (str, float)
        """
        check_is_fitted(self)
        weights = self._weights_of(self.coef_.toarray() if sp.issparse(self.coef_) else np.asarray(self.coef_), of)
        names = self._names_of_features(names)
        support = np.flatnonzero(weights)
        # Stable: features of equal weight keep their order.
        ordered = support[np.argsort(-np.abs(weights[support]), kind="stable")]
        return [(str(names[feature]), float(weights[feature])) for feature in ordered]

    def _names_of_features(self, names: Any) -> Any:
        """One name for each feature: those given, those of the table, or "x0", "x1", ..."""
        count = self.n_features_in_
        if names is None:
            names = getattr(self, "feature_names_in_", getattr(self, "weight_names_", None))
        if names is None:
            names = [f"x{feature}" for feature in range(count)]
        if isinstance(names, str) or len(names) != count:
            given = repr(names) if isinstance(names, str) else f"{len(names):,} names"
            raise ValueError(f"names must have one name for each of the model's {count:,} features, got {given}")
        return names

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[Any]:
        """The names of the features that the model uses, those of `support_`, in the order of the columns.

        Parameters
        ----------
        input_features : sequence of str of length d, or None, default=None
            As `names` of `named_weights`.

        Returns
        -------
        array of str
        """
        check_is_fitted(self)
        return np.asarray(self._names_of_features(input_features), dtype=object)[self.support_]

    def _weights_of(self, coef: FloatArray, of: Any) -> FloatArray:
        """The weights of all features, for a class where there are classes; shape (features,)."""
        if of is not None:
            raise ValueError(f"{type(self).__name__} has no classes; omit of={show_setting(of)}")
        return coef.ravel()

    def sparsify(self) -> Any:
        """Hold `coef_` as a sparse array (2-dimensional for classifiers, 1-dimensional for regressors).

        Returns
        -------
        self
        """
        check_is_fitted(self)
        self.coef_ = sp.csr_array(self.coef_) if np.ndim(self.coef_) == 2 else sp.coo_array(self.coef_)
        return self

    def densify(self) -> Any:
        """Hold `coef_` as a dense array again.

        Returns
        -------
        self
        """
        check_is_fitted(self)
        if sp.issparse(self.coef_):
            self.coef_ = self.coef_.toarray()
        return self


class LinearClassifier(ClassifierMixin, LinearModel):
    """Classes by the sign of a margin, or by the largest."""

    classes_: npt.NDArray[Any]

    def _shape_weights(self, weights: FloatArray) -> tuple[FloatArray, Any]:
        return weights[:-1].T.copy(), weights[-1].copy()

    def _weights_of(self, coef: FloatArray, of: Any) -> FloatArray:
        classes = self.classes_.tolist()
        if of is None and len(classes) > 2:
            raise ValueError(f"the model has {len(classes)} classes; choose one with of=..., one of {classes}")
        if of is not None and of not in classes:
            raise ValueError(f"of={show_setting(of)} is none of the model's classes {classes}")
        if len(classes) == 2:
            return coef[0] if of is None or of == classes[1] else -coef[0]
        return coef[classes.index(of)]

    def decision_function(self, X: Any) -> Any:
        """The margin of each row: of shape (n,) for two classes, else (n, classes). Of a Dask collection lazily, as in
        `predict`."""
        return self._decide(X)

    def _decide(self, X: Any, offset: Any = None) -> Any:
        check_is_fitted(self)
        answer = partial(_first_or_all, len(self.classes_))
        return self._respond(X, answer, offset, self.classes_.tolist())

    def predict(self, X: Any) -> Any:
        """The most likely class of each row. Of a Dask collection a Dask array, or a Series with the index of a
        DataFrame: nothing is computed before it is asked for."""
        check_is_fitted(self)
        return self._respond(X, self._answer())

    def _answer(self) -> Callable[[FloatArray], npt.NDArray[Any]]:
        return partial(_choose_classes, self.classes_)
