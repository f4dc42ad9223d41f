"""The front door: scikit-learn estimators. They check input, hand over to `tulle.fitting`, and predict."""

from __future__ import annotations

import math
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.callback import CallbackSupportMixin, with_callbacks
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from tulle import intake
from tulle.backends import Spread, find_spread
from tulle.bounds import Bounds
from tulle.events import FloatArray
from tulle.fitting import FitRequest, Fitted, possible_plans, run_fit
from tulle.losses import Loss, Poisson, resolve_loss
from tulle.methods import resolve_method
from tulle.pipelines import Protects, warn_of_peeks
from tulle.privacy import Budget, PrivacyReport, PrivacyWarning, default_delta
from tulle.public_features import check_not_private
from tulle.randomness import seed_of
from tulle.rows import Rows
from tulle.synthetic import SyntheticData

Seed = int | np.random.RandomState | np.random.Generator | None

_PARAMETERS = """
    Parameters
    ----------
    epsilon : float or None, default=1.0
        The privacy loss that the fit may cost, in (0, inf). None fits without privacy.
    delta : float or None, default=None
        In [0, 1). None is min(1e-5, 1 / (10 n)). At 1 / n or more a warning says that such a delta allows publishing
        somebody's row.
    n_nonzero : int or None, default=None
        Non-zero weights (per class where there are more than two), at least 1. None: what the method says, for "auto"
        n / (2 log d), or n mu / 60 on dense features of equal size, with mu the budget's Gaussian parameter.
    method : str or object, default="auto"
        The algorithm: "auto" chooses from public quantities alone, "screen_refine", "hard_thresholding",
        "stochastic_hard_thresholding", "frank_wolfe", "coordinate_descent", "knowledge_transfer" or "two_stage"; an
        object of `tulle.methods` carries its own parameters.
    loss : str or `tulle.losses.Loss`, default="{loss}"
        {losses}
    bounds : Bounds or None, default=None
        Bounds on rows and labels. What a method needs and is not declared is estimated privately, for the share of
        epsilon that `Bounds.estimate_share` says.
{classes}    calibration : {{"rigorous", "published"}}, default="rigorous"
        "published" runs the paper's own noise and reports the epsilon that it really has.
    fit_intercept : bool, default=True
        Whether to add a constant column; it counts in every sensitivity and is never thresholded.
    random_state : int, RandomState, Generator or None, default=None
        None draws noise from a cryptographic stream keyed by the operating system. An integer makes the fit
        reproducible, and the promise void towards whoever knows it, can guess it, or sees another fit with the same
        seed. Only an integer repeats noise: a RandomState or a Generator counts as None. Inside a `Ledger`, fits that
        share a seed still get different noise; inside a `FileLedger` no seed repeats noise.
    verbose : int, default=0
        1 shows progress on standard error (step counts only, nothing private). scikit-learn's callbacks
        (``set_callbacks``) are supported too.

    Attributes
    ----------
    coef_ : array of shape {coef_shape}
        Weights; `sparsify` turns them into a sparse array.
    intercept_ : {intercept_shape}
    support_ : array of int
        The features with a non-zero weight.
    teacher_coef_, teacher_intercept_ : as coef_ and intercept_
        After "knowledge_transfer" alone: the private teacher behind the model, which may have more weights than it.
        `release_synthetic` answers with it.
    n_iter_ : int
        Iterations of the method.
    n_passes_ : float
        How often all rows were read.
    n_thresholds_ : int
        How often a hard threshold was applied to weights; 0 for methods that have none.
    privacy_ : PrivacyReport
        What was asked, what is proved, the bill, the assumptions. Print it.
"""


_CLASSES = """    classes : sequence of str or of numbers, or None, default=None
        The class labels that there are, at least two, declared without looking at the rows. They decide all shapes,
        whichever of them the rows hold; rows with another label count as nothing. None takes them from the rows: the
        set of labels is then published by the fit, and somebody who is the only one of a class shows.
"""


def _document(cls: type, **words: str) -> None:
    cls.__doc__ = (cls.__doc__ or "").replace("{parameters}", _PARAMETERS.format(**words).strip("\n").lstrip())


def classes_of(estimator: Any, labels: Callable[[], intake.Cells]) -> npt.NDArray[Any]:
    """The classes that an estimator declares; where it does not, those among the labels, at least two."""
    if estimator.classes is not None:
        return intake.declared_classes(estimator.classes)
    classes = intake.found_classes(labels())
    if len(classes) < 2:
        raise ValueError(
            f"{type(estimator).__name__} needs rows of at least two classes, but the labels hold one class; declare "
            "classes=... to fit whatever the rows hold"
        )
    return classes


def _margins_of(coef: Any, intercept: Any, bounds: Bounds | None, X: Any) -> FloatArray:
    """The margin of each row and output. Holds no model, so that it can travel to where rows are."""
    weights = np.atleast_2d(coef.toarray() if sp.issparse(coef) else coef)
    if bounds is not None and bounds.normalise:
        # Rows to predict for are normalised as the rows of the fit were; a model of other rows would be meant else.
        known = bounds.known(X.shape[1])
        rows = Rows(X, np.zeros(X.shape[0]))
        rows.clip_rows(known.row_l2, known.row_linf, normalise=True)
        with_intercept = np.vstack([weights.T, np.atleast_1d(intercept)])
        return np.vstack([block.margins(with_intercept, 1.0) for block in rows.blocks])
    support = np.flatnonzero(np.any(weights != 0, axis=0))
    return np.asarray(X[:, support] @ weights[:, support].T, dtype=np.float64) + np.atleast_1d(intercept)


class LinearModel(BaseEstimator):
    """What all fitted linear models share, however they were fitted: rows are checked, margins, sparse weights."""

    coef_: Any
    intercept_: Any
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
        rows = intake.entries(X, estimator=self)
        validate_data(self, X, "no_validation", reset=False, skip_check_array=True)
        return rows

    def _checked_to_fit(self, X: Any, y: Any) -> tuple[Any, intake.Cells]:
        """Rows and labels to fit to, through the intake: labels are not read any further here."""
        rows = intake.entries(X, least_rows=2, estimator=self)
        validate_data(self, X, y, reset=True, skip_check_array=True)  # sets n_features_in_ and feature_names_in_
        labels = intake.cells(y, "y")
        intake.check_same_length(rows, labels)
        return rows, labels

    def _shaped(self, weights: FloatArray) -> tuple[FloatArray, Any]:
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

    def _margins(self, X: Any) -> FloatArray:
        check_is_fitted(self)
        margins = partial(_margins_of, self.coef_, self.intercept_, self.bounds)
        if (spread := find_spread(X)) is None:
            return margins(self._checked(X))
        if spread.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {spread.shape[1]} features, but {type(self).__name__} is expecting {self.n_features_in_} "
                "features as input"
            )
        known = getattr(self, "feature_names_in_", None)
        if known is not None and spread.feature_names is not None and list(known) != list(spread.feature_names):
            raise ValueError("The feature names should match those that were passed during fit, in the same order")
        return spread.map(margins)

    def _answers(self, margins: FloatArray) -> npt.NDArray[Any]:
        """What is predicted for rows of these margins."""
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
                "nothing is proved for this fit, and its answers may reveal any row that it was trained on; fit with "
                "an epsilon, and with a sound variant of the method"
            )
        X = self._checked(X_public)
        coef = getattr(self, "teacher_coef_", self.coef_)
        margins = _margins_of(coef, getattr(self, "teacher_intercept_", self.intercept_), self.bounds, X)
        report = replace(
            self.privacy_,
            assumptions=(
                *self.privacy_.assumptions,
                f"This is a data set of {X.shape[0]:,} rows. Its features were given as public and are not protected. "
                "Its targets are the fitted teacher's answers on them: a function of what the fit released.",
            ),
        )
        return SyntheticData(X, self._answers(margins), margins, report)

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
        if names is None:
            names = getattr(self, "feature_names_in_", None)
        if names is None:
            names = [f"x{feature}" for feature in range(len(weights))]
        if isinstance(names, str) or len(names) != len(weights):
            given = repr(names) if isinstance(names, str) else f"{len(names):,} names"
            raise ValueError(f"names must hold one name for each of the model's {len(weights):,} features, got {given}")
        support = np.flatnonzero(weights)
        # Stable: features of equal weight keep their order.
        ordered = support[np.argsort(-np.abs(weights[support]), kind="stable")]
        return [(str(names[feature]), float(weights[feature])) for feature in ordered]

    def _weights_of(self, coef: FloatArray, of: Any) -> FloatArray:
        """The weights of all features, for a class where there are classes; shape (features,)."""
        if of is not None:
            raise ValueError(f"{type(self).__name__} has no classes, and of={of!r} names one; leave it out")
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


class _SparseLinearModel(CallbackSupportMixin, LinearModel):
    """What the classifier and the regressor share: everything but labels and predictions."""

    def __init__(
        self,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        *,
        n_nonzero: int | None = None,
        method: Any = "auto",
        loss: str | Loss = "squared",
        bounds: Bounds | None = None,
        calibration: Literal["rigorous", "published"] = "rigorous",
        fit_intercept: bool = True,
        random_state: Seed = None,
        verbose: int = 0,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.n_nonzero = n_nonzero
        self.method = method
        self.loss = loss
        self.bounds = bounds
        self.calibration = calibration
        self.fit_intercept = fit_intercept
        self.random_state = random_state
        self.verbose = verbose

    def _fit(self, X: Any, targets: FloatArray | None, loss: Loss, groups: Any) -> None:
        preparation = warn_of_peeks(self)
        with np.errstate(all="ignore"):  # a warning, or an error, about somebody's extreme row would be a release
            request = replace(self._request(loss, X.shape[0]), preparation=preparation)
            plans = possible_plans(request, X.shape)
            progress = _Progress(self, {sum(release.answers for release in plan) for plan in plans})
            self._keep(run_fit(request, X, targets, groups, progress.advance))
        progress.finish()

    def _keep(self, fitted: Fitted) -> None:
        """Become the model that a fit gave."""
        self.n_iter_, self.n_passes_, self.n_thresholds_ = fitted.n_iter, fitted.n_passes, fitted.n_thresholds
        self.privacy_ = fitted.privacy
        self.coef_, self.intercept_ = self._shaped(fitted.weights)
        for left_over in ("teacher_coef_", "teacher_intercept_"):
            self.__dict__.pop(left_over, None)
        if fitted.teacher is not None:
            self.teacher_coef_, self.teacher_intercept_ = self._shaped(fitted.teacher)
        self.support_ = np.flatnonzero(np.any(np.atleast_2d(self.coef_) != 0, axis=0))

    def _request(self, loss: Loss, n_rows: int) -> FitRequest:
        return FitRequest(
            what=f"{type(self).__name__}.fit",
            budget=self._budget(n_rows),
            n_nonzero=self.n_nonzero,
            method=resolve_method(self.method),
            loss=loss,
            bounds=Bounds() if self.bounds is None else self.bounds,
            calibration=self.calibration,
            fit_intercept=bool(self.fit_intercept),
            seed=seed_of(self.random_state),
            classes_declared=getattr(self, "classes", None) is not None,
        )

    def _budget(self, n_rows: int) -> Budget | None:
        if self.epsilon is None:
            return None
        delta = default_delta(n_rows) if self.delta is None else self.delta
        budget = Budget(self.epsilon, delta)
        if delta >= 1 / n_rows:
            warnings.warn(
                f"delta = {delta:g} is not below 1 / (number of rows) = {1 / n_rows:.3g}: such a promise would allow "
                "publishing a row chosen at random; use delta=None or a much smaller value",
                PrivacyWarning,
                stacklevel=6,
            )
        return budget


class LinearClassifier(ClassifierMixin, LinearModel):
    """Classes by the sign of a margin, or by the largest."""

    classes_: npt.NDArray[Any]

    def _shaped(self, weights: FloatArray) -> tuple[FloatArray, Any]:
        return weights[:-1].T.copy(), weights[-1].copy()

    def _weights_of(self, coef: FloatArray, of: Any) -> FloatArray:
        classes = self.classes_.tolist()
        if of is None and len(classes) > 2:
            raise ValueError(f"the model has {len(classes)} classes; say of which with of=..., one of {classes}")
        if of is not None and of not in classes:
            raise ValueError(f"of={of!r} is none of the model's classes {classes}")
        if len(classes) == 2:
            return coef[0] if of is None or of == classes[1] else -coef[0]
        return coef[classes.index(of)]

    def decision_function(self, X: Any) -> FloatArray:
        """The margin of each row: of shape (n,) for two classes, else (n, classes)."""
        margins = self._margins(X)
        return margins[:, 0] if len(self.classes_) == 2 else margins

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The most likely class of each row."""
        return self._answers(self._margins(X))

    def _answers(self, margins: FloatArray) -> npt.NDArray[Any]:
        chosen = (margins[:, 0] > 0).astype(int) if len(self.classes_) == 2 else margins.argmax(axis=1)
        return np.asarray(self.classes_[chosen])


def _has_probabilities(model: Any) -> bool:
    return model.loss == "logistic" or hasattr(model.loss, "probabilities")


class SparseClassifier(LinearClassifier, _SparseLinearModel):
    """A private linear classifier with few non-zero weights.

    {parameters}
    classes_ : array
        The class labels: the declared ones in order, or those that the rows hold.

    Examples
    --------
    >>> import numpy as np
    >>> from tulle import Bounds, SparseClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (5000, 200))
    >>> y = X[:, 3] - X[:, 7] > 0
    >>> model = SparseClassifier(epsilon=2.0, n_nonzero=2, bounds=Bounds(row_linf=1.0), random_state=0).fit(X, y)
    >>> model.support_
    array([3, 7])
    >>> bool(model.privacy_.epsilon <= 2.0)
    True
    """

    def __init__(
        self,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        *,
        n_nonzero: int | None = None,
        method: Any = "auto",
        loss: str | Loss = "logistic",
        bounds: Bounds | None = None,
        classes: Any = None,
        calibration: Literal["rigorous", "published"] = "rigorous",
        fit_intercept: bool = True,
        random_state: Seed = None,
        verbose: int = 0,
    ) -> None:
        self.classes = classes
        super().__init__(
            epsilon,
            delta,
            n_nonzero=n_nonzero,
            method=method,
            loss=loss,
            bounds=bounds,
            calibration=calibration,
            fit_intercept=fit_intercept,
            random_state=random_state,
            verbose=verbose,
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # At epsilon = 1 a few hundred rows, as in scikit-learn's checks, cannot be learnt from.
        tags.classifier_tags.poor_score = self.epsilon is not None
        return tags

    @with_callbacks
    def fit(self, X: Any, y: Any, groups: Any = None) -> SparseClassifier:
        """Fit the model to private rows.

        Parameters
        ----------
        X : array or sparse array of shape (n, d)
            Dense float32 or float64, CSR or CSC; never densified. Or rows elsewhere: the `X` of a folder of blocks
            (`tulle.blocks.open_blocks`), a Dask array, DataFrame or bag of blocks of rows (extra `dask`), or rows at
            clients (`tulle.federated.aggregator.RowsAtClients`, with y=None).
        y : array of shape (n,)
            Class labels, each compared by its own type and value (see `tulle.intake`); for rows on a cluster in the
            same partitions.
        groups : array of shape (n,) or None, default=None
            Person ids, for `Bounds.rows_per_person`.

        Returns
        -------
        self
        """
        self._fit(*self._prepare(X, y), groups)
        return self

    def _prepare(self, X: Any, y: Any) -> tuple[Any, FloatArray | None, Loss]:
        """The checked rows, the targets as the loss wants them, and the loss; sets `classes_`."""
        check_not_private(getattr(self.method, "features", None), X)
        if (spread := self._spread(X, y)) is not None:
            code, loss = self._code(spread.labels)
            return spread.coded(code), None, loss
        rows, labels = self._checked_to_fit(X, y)
        return rows, *self._targets(labels)

    def _code(self, labels: Callable[[], intake.Cells]) -> tuple[intake.ClassCodes, Loss]:
        """How labels become targets, and the loss; sets `classes_`. Declared classes are not looked for in the rows."""
        self.classes_ = classes_of(self, labels)
        loss = resolve_loss(self.loss, "classification", len(self.classes_))
        return intake.ClassCodes(self.classes_, loss.n_outputs > 1), loss

    def _targets(self, labels: intake.Cells) -> tuple[FloatArray, Loss]:
        """The targets as the loss wants them, NaN for a row of no class, and the loss; sets `classes_`."""
        code, loss = self._code(lambda: labels)
        return code(labels), loss

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> FloatArray:
        """The probability of each class; logistic loss only."""
        margins = self._margins(X)
        loss: Any = resolve_loss(self.loss, "classification", len(self.classes_))
        return np.asarray(loss.probabilities(margins))

    @available_if(_has_probabilities)
    def predict_log_proba(self, X: Any) -> FloatArray:
        """The logarithm of the probability of each class; logistic loss only."""
        return np.log(self.predict_proba(X))


class SparseRegressor(RegressorMixin, _SparseLinearModel):
    """A private linear regression with few non-zero weights.

    {parameters}
    Examples
    --------
    >>> import numpy as np
    >>> from tulle import Bounds, SparseRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (5000, 200))
    >>> y = X[:, 3] - X[:, 7] + 0.1 * rng.standard_normal(5000)
    >>> model = SparseRegressor(2.0, n_nonzero=2, bounds=Bounds(row_linf=1.0, label=2.0), random_state=0).fit(X, y)
    >>> model.support_
    array([3, 7])
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = self.epsilon is not None
        return tags

    @with_callbacks
    def fit(self, X: Any, y: Any, groups: Any = None) -> SparseRegressor:
        """Fit the model to private rows.

        Parameters
        ----------
        X : array or sparse array of shape (n, d)
            Dense float32 or float64, CSR or CSC; never densified. Or rows elsewhere, as for `SparseClassifier.fit`.
        y : array of shape (n,)
            Targets; for the Poisson loss, counts >= 0. For rows on a cluster in the same partitions.
        groups : array of shape (n,) or None, default=None
            Person ids, for `Bounds.rows_per_person`.

        Returns
        -------
        self
        """
        self._fit(*self._prepare(X, y), groups)
        return self

    def _prepare(self, X: Any, y: Any) -> tuple[Any, FloatArray | None, Loss]:
        """The checked rows, the targets, and the loss."""
        check_not_private(getattr(self.method, "features", None), X)
        if (spread := self._spread(X, y)) is not None:
            loss = resolve_loss(self.loss, "regression")
            _check_counts(loss, spread.smallest_target())
            return spread.coded(intake.AsNumbers()), None, loss
        rows, labels = self._checked_to_fit(X, y)
        return rows, *self._targets(labels)

    def _targets(self, labels: intake.Cells) -> tuple[FloatArray, Loss]:
        """The targets as finite numbers, and the loss."""
        loss, targets = resolve_loss(self.loss, "regression"), intake.finite_numbers(labels, "y")
        _check_counts(loss, float(targets.min()))
        return targets, loss

    def _shaped(self, weights: FloatArray) -> tuple[FloatArray, Any]:
        return weights[:-1, 0].copy(), float(weights[-1, 0])

    def predict(self, X: Any) -> FloatArray:
        """The predicted target of each row."""
        return self._answers(self._margins(X))

    def _answers(self, margins: FloatArray) -> npt.NDArray[Any]:
        return np.asarray(resolve_loss(self.loss, "regression").mean(margins)[:, 0])


def _check_counts(loss: Loss, smallest: float) -> None:
    if isinstance(loss, Poisson) and smallest < 0:
        raise ValueError("loss='poisson' needs targets >= 0 (counts), but some are negative; use another loss")


_document(
    SparseClassifier,
    loss="logistic",
    losses='"logistic" (softmax for more than two classes), "squared_hinge" (one against the rest), or an object.',
    classes=_CLASSES,
    coef_shape="(1, d) or (classes, d)",
    intercept_shape="array of shape (1,) or (classes,)",
)
_document(
    SparseRegressor,
    loss="squared",
    losses='"squared", "huber", "poisson", or an object.',
    classes="",
    coef_shape="(d,)",
    intercept_shape="float",
)


class _Progress:
    """Tells scikit-learn's callbacks, and standard error if asked to, how many of the planned answers were given."""

    def __init__(self, estimator: Any, totals: set[int]) -> None:
        self._estimator = estimator
        self._total = max(totals)
        self._done = 0
        self._start = time.monotonic()
        # How often a method asks can depend on estimated bounds; then callbacks are not told beforehand.
        self._known = len(totals) == 1
        self._context = estimator._init_callback_context(
            task_name="fit", max_subtasks=self._total if self._known else None
        )
        self._context.call_on_fit_task_begin(estimator=estimator)
        self._task: Any = None

    def advance(self, name: str, answer: Any) -> None:
        """Counts an answer, and looks at none."""
        self._done += 1
        task = self._context.subcontext(task_name="answer")
        task.call_on_fit_task_begin(estimator=self._estimator)
        task.call_on_fit_task_end(estimator=self._estimator)
        self._show(self._total, end="")

    def _show(self, total: int, end: str) -> None:
        if self._estimator.verbose:
            left = (time.monotonic() - self._start) / max(self._done, 1) * (total - self._done)
            print(
                f"\r{type(self._estimator).__name__}: {self._done}/{total} answers, {left:.0f} s left ",
                end=end,
                file=sys.stderr,
                flush=True,
            )

    def finish(self) -> None:
        self._context.call_on_fit_task_end(estimator=self._estimator)
        if self._done < self._total and self._known:  # the last epoch of shuffled batches may be left unfinished
            self._show(self._done, end="")
        if self._estimator.verbose:
            print(file=sys.stderr)
