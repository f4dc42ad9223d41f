"""The front door: scikit-learn estimators. They check input, hand over to `tulle.estimators.request`, and predict."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from sklearn.base import RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from tulle.backends.input_kinds import gather, take_together
from tulle.backends.rows_elsewhere import Spread
from tulle.estimators.array_types import ColumnLike, MaybeColumn, RowsLike
from tulle.estimators.beforehand import expectations
from tulle.estimators.bounds import Bounds
from tulle.estimators.budget_reading import read_budget
from tulle.estimators.column_settings import RULES_DECLARED, ColumnNames, read_rules
from tulle.estimators.fit_callbacks import CallbackSupportMixin, with_callbacks
from tulle.estimators.interval_reading import WithIntervals
from tulle.estimators.linear_model import LinearClassifier, Seed, find_means, find_probabilities
from tulle.estimators.memory_check import check_memory
from tulle.estimators.parameter_docs import CLASSES, document
from tulle.estimators.pipeline_checks import warn_of_peeks
from tulle.estimators.progress import Progress
from tulle.estimators.request import FitRequest, Fitted, run_fit
from tulle.estimators.row_numbers import NO_INPUTS, RowInputs, read_inputs, read_offset
from tulle.files import array_checks, class_labels
from tulle.files.own_types import register
from tulle.inference.interval_fit import IntervalFit
from tulle.methods.column_rules import ColumnRules
from tulle.methods.hard_thresholding import HardThresholding
from tulle.methods.loss_functions import Loss, Poisson, resolve_loss
from tulle.preprocessing.private_step import PrivateStep
from tulle.reports.words import CONSTANT_MODEL, warn_of_constant_model
from tulle.transfer.public_features import check_not_private
from tulle.transfer.public_knowledge import PublicFrequencies, read_public
from tulle.transfer.students import ThresholdedStudent, register_student_fit
from tulle.trusted import intake
from tulle.trusted.events import FloatArray
from tulle.trusted.randomness import seed_of


def classes_of(estimator: Any, labels: Callable[[], intake.Cells]) -> npt.NDArray[Any]:
    """The classes that an estimator declares; where it does not, those among the labels, at least two."""
    if estimator.classes is not None:
        return class_labels.check_classes(estimator.classes)
    classes = class_labels.find_classes(labels())
    if len(classes) < 2:
        raise ValueError(
            f"{type(estimator).__name__} needs rows of at least two classes, but the labels have one class; declare "
            "classes=... to fit any set of labels"
        )
    return classes


class _SparseLinearModel(CallbackSupportMixin, WithIntervals):
    """What the classifier and the regressor share: everything but labels and predictions."""

    def __init__(
        self,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        *,
        rho: float | None = None,
        n_nonzero: int | None = None,
        method: Any = "auto",
        loss: str | Loss = "squared",
        bounds: Bounds | None = None,
        calibration: Literal["rigorous", "published"] = "rigorous",
        fit_intercept: bool = True,
        always: Any = None,
        feature_groups: Any = None,
        inference: bool = False,
        random_state: Seed = None,
        verbose: int = 0,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.rho = rho
        self.n_nonzero = n_nonzero
        self.method = method
        self.loss = loss
        self.bounds = bounds
        self.calibration = calibration
        self.fit_intercept = fit_intercept
        self.always = always
        self.feature_groups = feature_groups
        self.inference = inference
        self.random_state = random_state
        self.verbose = verbose

    def _prepare(self, X: Any, y: Any) -> tuple[Any, FloatArray | None, Loss]:
        """The checked rows, the targets as the loss wants them, and the loss."""
        raise NotImplementedError

    def _fit(
        self,
        X: Any,
        targets: FloatArray | None,
        loss: Loss,
        groups: Any,
        public: Any,
        steps: tuple[tuple[PrivateStep, float | None], ...] = (),
        given: RowInputs = NO_INPUTS,
    ) -> None:
        """Fit to what `_prepare` gave. `steps` learn from the rows first, each for a part of the cost, or None for its
        default; they become fitted. `given` is what rows have besides."""
        preparation = (*warn_of_peeks(self), *(step.describe() for step, _ in steps))
        with np.errstate(all="ignore"):  # a warning, or an error, about somebody's extreme row would be a release
            inputs = read_inputs(self, X, targets, loss, given)
            request = replace(
                self._request(inputs.loss, X.shape[0]),
                preparation=(*preparation, *inputs.said),
                steps=steps,
                balance=inputs.balance,
            )
            if self.inference and isinstance(X, Spread):  # rows elsewhere are not divided
                request = replace(request, method=IntervalFit(split_rows=False))
            rules = self._rules(X.shape[1], given.names)
            if rules:
                method = request.method.with_columns(rules)
                said = (*request.preparation, RULES_DECLARED)
                request = replace(request, method=method, least_nonzero=max(len(rules.always), 1), preparation=said)
            if public is not None:
                knowledge = read_public(public, X.shape[1], getattr(self, "feature_names_in_", None))
                request = replace(request, method=request.method.with_public(knowledge))
            planned = request.plan_all(X.shape)
            check_memory(X, planned, len(steps))
            if self.verbose:
                for line in expectations(request, planned):
                    print(line, file=sys.stderr)
            progress = Progress(self, {sum(release.answers for release in one.plan) for one in planned})
            advance = progress.advance
            self._keep(run_fit(request, X, inputs.targets, groups, advance, planned, numbers=inputs.numbers))
        progress.finish()
        if not len(self.support_):
            warn_of_constant_model()

    def _rules(self, n_features: int, names: ColumnNames) -> ColumnRules:
        """The rules for columns. Names are those of the table that the model is fitted to, or those of a pipeline."""
        known = names if names.features else ColumnNames(tuple(map(str, getattr(self, "feature_names_in_", ()))))
        rules = read_rules(self.always, self.feature_groups, n_features, known)
        if self.n_nonzero is not None and len(rules.always) > self.n_nonzero:
            raise ValueError(f"always= has {len(rules.always):,} features or groups, but n_nonzero={self.n_nonzero}")
        return rules

    def _margins(self, X: Any, offset: Any = None) -> FloatArray:
        margins = super()._margins(X)
        if offset is None:
            return margins
        loss = resolve_loss(self.loss, "classification" if hasattr(self, "classes_") else "regression")
        private = self.epsilon is not None or self.rho is not None
        n_rows = len(margins)
        if margins.shape[1] > 1:
            raise ValueError("offset is for one margin: a regression, or two classes")
        return margins + read_offset(offset, n_rows, self.bounds, loss, private)[:, None]

    # For `PrivatePipeline`. What callbacks leave behind is taken away here, too: it has the time of every answer.
    _fit_with_steps = with_callbacks(_fit)

    def _keep(self, fitted: Fitted) -> None:
        """Become the model that a fit gave."""
        self.n_iter_, self.n_passes_, self.n_thresholds_ = fitted.n_iter, fitted.n_passes, fitted.n_thresholds
        self.privacy_ = fitted.privacy
        self._keep_evidence(fitted.evidence)
        self.coef_, self.intercept_ = self._shape_weights(fitted.weights)
        for left_over in ("teacher_coef_", "teacher_intercept_"):
            self.__dict__.pop(left_over, None)
        if fitted.teacher is not None:
            self.teacher_coef_, self.teacher_intercept_ = self._shape_weights(fitted.teacher)
        self.support_ = np.flatnonzero(np.any(np.atleast_2d(self.coef_) != 0, axis=0))
        if not len(self.support_):
            note = f"{CONSTANT_MODEL.capitalize()}."
            self.privacy_ = replace(self.privacy_, assumptions=(*self.privacy_.assumptions, note))

    def _request(self, loss: Loss, n_rows: int) -> FitRequest:
        return FitRequest(
            what=f"{type(self).__name__}.fit",
            budget=read_budget(self.epsilon, self.delta, self.rho, n_rows),
            n_nonzero=self.n_nonzero,
            method=self._method(),
            loss=loss,
            bounds=Bounds() if self.bounds is None else self.bounds,
            calibration=self.calibration,
            fit_intercept=bool(self.fit_intercept),
            seed=seed_of(self.random_state),
            classes_declared=getattr(self, "classes", None) is not None,
        )


def _has_probabilities(model: Any) -> bool:
    return model.loss == "logistic" or hasattr(model.loss, "probabilities")


@register("model")
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
        rho: float | None = None,
        n_nonzero: int | None = None,
        method: Any = "auto",
        loss: str | Loss = "logistic",
        bounds: Bounds | None = None,
        classes: Any = None,
        class_weight: Any = None,
        calibration: Literal["rigorous", "published"] = "rigorous",
        fit_intercept: bool = True,
        always: Any = None,
        feature_groups: Any = None,
        inference: bool = False,
        random_state: Seed = None,
        verbose: int = 0,
    ) -> None:
        self.classes = classes
        self.class_weight = class_weight
        super().__init__(
            epsilon,
            delta,
            rho=rho,
            n_nonzero=n_nonzero,
            method=method,
            loss=loss,
            bounds=bounds,
            calibration=calibration,
            fit_intercept=fit_intercept,
            always=always,
            feature_groups=feature_groups,
            inference=inference,
            random_state=random_state,
            verbose=verbose,
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # At epsilon = 1 a few hundred rows, as in scikit-learn's checks, cannot be learnt from.
        tags.classifier_tags.poor_score = self.epsilon is not None
        return tags

    @with_callbacks
    def fit(
        self,
        X: RowsLike,
        y: MaybeColumn,
        groups: MaybeColumn = None,
        *,
        public: RowsLike | PublicFrequencies | None = None,
        sample_weight: MaybeColumn = None,
        offset: MaybeColumn = None,
    ) -> SparseClassifier:
        """Fit the model to private rows.

        Parameters
        ----------
        X : array or sparse array of shape (n, d)
            Dense float32 or float64, CSR or CSC; never densified. Or rows elsewhere: the `X` of a folder of blocks
            (`tulle.backends.block_folder.open_blocks`), a Dask array, DataFrame or bag of blocks of rows (extra
            `dask`), or rows at clients (`tulle.federated.server_side.aggregator.RowsAtClients`, with y=None).
        y : array of shape (n,)
            Class labels, each compared by its own type and value (see `tulle.trusted.intake`); for rows on a cluster
            in the same partitions.
        groups : array of shape (n,) or None, default=None
            Person ids, for `Bounds.rows_per_person`.
        public : None, array or sparse array of shape (m, d), or `tulle.PublicFrequencies`, default=None
            Unlabelled public rows with the same columns, at least 20, or how common each feature is. For "auto",
            "fit_again" and "knowledge_transfer". They are not protected, must not be among the private rows nor be
            chosen by looking at these, and are not stored in the model. See docs/public_rows.md.
        sample_weight : array of shape (n,) or None, default=None
            What each row counts; clipped to [0, 1], cell by cell. Means are divided by n, for any weights.
        offset : array of shape (n,) or None, default=None
            A known part of each margin, for two classes; clipped to `Bounds.offset`, which must be declared.

        Returns
        -------
        self
        """
        check_not_private(public, X)
        rows, targets, people = take_together(X, y, groups)
        self._fit(*self._prepare(rows, targets), people, public, given=RowInputs(sample_weight, offset))
        return self

    def _prepare(self, X: Any, y: Any) -> tuple[Any, FloatArray | None, Loss]:
        """The checked rows, the targets as the loss wants them, and the loss; sets `classes_`."""
        check_not_private(getattr(self.method, "features", None), X)
        if (spread := self._spread(X, y)) is not None:
            code, loss = self._code(spread.labels)
            return spread.coded(code), None, loss
        rows, labels = self._check_to_fit(X, y)
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

    def decision_function(self, X: RowsLike, offset: MaybeColumn = None) -> Any:
        """The margin of each row, with its offset: of shape (n,) for two classes, else (n, classes). Of a Dask
        collection lazily, as in `predict`."""
        return self._decide(X, offset)

    def predict(self, X: RowsLike, offset: MaybeColumn = None) -> Any:
        """The most likely class of each row. Of a Dask collection a Dask array, or a Series with the index of a
        DataFrame: nothing is computed before it is asked for."""
        check_is_fitted(self)
        return self._respond(X, self._answer(), offset)

    def score(self, X: RowsLike, y: ColumnLike, sample_weight: MaybeColumn = None, offset: MaybeColumn = None) -> float:
        """The accuracy of predictions. Exact: not private for the rows that are passed."""
        return float(accuracy_score(gather(y), gather(self.predict(X, offset)), sample_weight=sample_weight))

    @available_if(_has_probabilities)
    def predict_proba(self, X: RowsLike, offset: MaybeColumn = None) -> Any:
        """The probability of each class; logistic loss only. Of a Dask collection lazily: a Dask array, or a DataFrame
        with a column for each class."""
        check_is_fitted(self)
        loss: Any = resolve_loss(self.loss, "classification", len(self.classes_))
        return self._respond(X, partial(find_probabilities, loss), offset, self.classes_.tolist())

    @available_if(_has_probabilities)
    def predict_log_proba(self, X: RowsLike, offset: MaybeColumn = None) -> Any:
        """The logarithm of the probability of each class; logistic loss only."""
        return np.log(self.predict_proba(X, offset))


@register("model")
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
    def fit(
        self,
        X: RowsLike,
        y: MaybeColumn,
        groups: MaybeColumn = None,
        *,
        public: RowsLike | PublicFrequencies | None = None,
        sample_weight: MaybeColumn = None,
        offset: MaybeColumn = None,
    ) -> SparseRegressor:
        """Fit the model to private rows.

        Parameters
        ----------
        X : array or sparse array of shape (n, d)
            Dense float32 or float64, CSR or CSC; never densified. Or rows elsewhere, as for `SparseClassifier.fit`.
        y : array of shape (n,)
            Targets; for the Poisson loss, counts >= 0. For rows on a cluster in the same partitions. A row whose target
            is masked (numpy.ma) counts as nothing.
        groups : array of shape (n,) or None, default=None
            Person ids, for `Bounds.rows_per_person`.
        public : None, array or sparse array of shape (m, d), or `tulle.PublicFrequencies`, default=None
            Unlabelled public rows with the same columns, at least 20, or how common each feature is. For "auto",
            "fit_again" and "knowledge_transfer". They are not protected, must not be among the private rows nor be
            chosen by looking at these, and are not stored in the model. See docs/public_rows.md.
        sample_weight : array of shape (n,) or None, default=None
            What each row counts; clipped to [0, 1], cell by cell. Means are divided by n, for any weights.
        offset : array of shape (n,) or None, default=None
            A known part of each prediction, for the Poisson loss of its logarithm, such as log(exposure); clipped to
            `Bounds.offset`, which must be declared.

        Returns
        -------
        self
        """
        check_not_private(public, X)
        rows, targets, people = take_together(X, y, groups)
        self._fit(*self._prepare(rows, targets), people, public, given=RowInputs(sample_weight, offset))
        return self

    def _prepare(self, X: Any, y: Any) -> tuple[Any, FloatArray | None, Loss]:
        """The checked rows, the targets, and the loss."""
        check_not_private(getattr(self.method, "features", None), X)
        if (spread := self._spread(X, y)) is not None:
            loss = resolve_loss(self.loss, "regression")
            _check_counts(loss, spread.smallest_target())
            return spread.coded(intake.AsNumbers()), None, loss
        # Masked: a row without a target, which counts as nothing.
        masked = np.ma.getmaskarray(y) if isinstance(y, np.ma.MaskedArray) else False
        rows, labels = self._check_to_fit(X, y if masked is False else np.ma.filled(y, 0.0))
        targets, loss = self._targets(labels)
        return rows, np.where(masked, np.nan, targets), loss

    def _targets(self, labels: intake.Cells) -> tuple[FloatArray, Loss]:
        """The targets as finite numbers, and the loss."""
        loss, targets = resolve_loss(self.loss, "regression"), array_checks.read_finite_numbers(labels, "y")
        _check_counts(loss, float(targets.min()))
        return targets, loss

    def _shape_weights(self, weights: FloatArray) -> tuple[FloatArray, Any]:
        return weights[:-1, 0].copy(), float(weights[-1, 0])

    def predict(self, X: RowsLike, offset: MaybeColumn = None) -> Any:
        """The predicted target of each row, with its offset. Of a Dask collection lazily, as for a classifier."""
        check_is_fitted(self)
        return self._respond(X, self._answer(), offset)

    def score(self, X: RowsLike, y: ColumnLike, sample_weight: MaybeColumn = None, offset: MaybeColumn = None) -> float:
        """R² of predictions. Exact: not private for the rows that are passed."""
        return float(r2_score(gather(y), gather(self.predict(X, offset)), sample_weight=sample_weight))

    def _answer(self) -> Callable[[FloatArray], npt.NDArray[Any]]:
        return partial(find_means, resolve_loss(self.loss, "regression"))


def _check_counts(loss: Loss, smallest: float) -> None:
    if isinstance(loss, Poisson) and smallest < 0:
        raise ValueError("loss='poisson' needs targets >= 0 (counts), but some are negative; use another loss")


document(
    SparseClassifier,
    loss="logistic",
    losses='"logistic" (softmax for more than two classes), "squared_hinge" (one against the rest), or an object.',
    classes=CLASSES,
    coef_shape="(1, d) or (classes, d)",
    intercept_shape="array of shape (1,) or (classes,)",
)
document(
    SparseRegressor,
    loss="squared",
    losses='"squared", "huber", "poisson", or an object.',
    classes="",
    coef_shape="(d,)",
    intercept_shape="float",
)


def _fit_student(student: Any, rows: Any, responses: FloatArray, n_nonzero: int) -> Any:
    """Fit a student to public rows and to answers already billed.

    A model of this module without privacy is not billed: trusted code lets nothing with noise go unbilled. All other
    students fit in their own way, and everything that they release is billed.
    """
    if isinstance(student, ThresholdedStudent):
        method = HardThresholding(student.n_iter, student.step, start=student.start)
        student = SparseRegressor(None, n_nonzero=n_nonzero, method=method, fit_intercept=False)
    if type(student) not in (SparseClassifier, SparseRegressor) or student.epsilon is not None:
        return student.fit(rows, responses)
    X, targets, loss = student._prepare(rows, responses)
    student._keep(run_fit(student._request(loss, X.shape[0]), X, targets, ledgers=()))
    return student


register_student_fit(_fit_student)
