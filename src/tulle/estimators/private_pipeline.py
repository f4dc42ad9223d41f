"""One budget for preprocessing and model: their releases are one plan, one calibration, one bill and one report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import validate_data

from tulle.backends.input_kinds import find_lazy, find_spread, is_elsewhere, take_together
from tulle.backends.rows_elsewhere import change_rows
from tulle.estimators.bounds import Bounds
from tulle.estimators.column_settings import ColumnNames
from tulle.estimators.pipeline_checks import check_pipeline
from tulle.estimators.raw_partitions import read_declared_targets, read_raw_rows
from tulle.estimators.row_numbers import RowInputs
from tulle.estimators.sparse import SparseClassifier, SparseRegressor
from tulle.files.array_checks import read_rows
from tulle.preprocessing.private_columns import FindsKeys, PrivateColumns
from tulle.preprocessing.private_step import PrivateStep
from tulle.schema.declared_schema import Schema

_PUBLIC_ELSEWHERE = (
    "public steps take rows in memory, and these are in a folder of blocks or on a cluster (where one tulle.Schema may "
    "come first); transform them block by block before, and leave the public steps out"
)
_RAW_ELSEWHERE = (
    "categories and words are found in rows in memory, and these are in a folder of blocks or on a cluster; hash them "
    "({'hashed': 10} or {'text': 14} in a tulle.Schema) before you write blocks"
)


def _model_has(name: str) -> Any:
    def check(pipeline: Any) -> bool:
        model = getattr(pipeline, "model_", None) or pipeline.steps[-1][1]
        getattr(model, name)  # raises with the model's own words
        return True

    return check


def _describe(public: Sequence[tuple[str, Any]]) -> list[str]:
    """Lines of the report on steps: what a schema declares, and steps that are public by the user's word."""
    lines = []
    for name, step in public:
        kind = type(step)
        if kind is Schema:
            lines += step.describe()
        elif isinstance(step, PrivateStep):
            lines += step.schema_.describe() if kind is PrivateColumns else []
        elif kind.__name__ == "FrozenEstimator" or kind.__module__.split(".")[0] != "sklearn":
            lines.append(f"The step {name} ({kind.__name__}) was declared to learn nothing from the private rows.")
    return lines


def _describe_own(private: Sequence[tuple[str, PrivateStep]]) -> list[str]:
    """Lines of the report on private steps that are not tulle's."""
    return [
        f"The step {name} ({type(step).__name__}) is the user's own: it must treat each row by itself."
        for name, step in private
        if type(step).__module__.split(".")[0] != "tulle"
    ]


class PrivatePipeline(BaseEstimator):
    """Steps that learn from private rows, and a model, under one epsilon.

    Parameters
    ----------
    steps : sequence of (str, step)
        First public steps, which learn nothing from rows (a `tulle.Schema`, HashingVectorizer, Normalizer and others
        that `tulle.check_pipeline` passes); then private ones (`tulle.preprocessing`); last a `SparseClassifier` or
        `SparseRegressor`, whose epsilon and delta are left at their defaults, and row bounds too after private steps:
        the pipeline sets them. Directly after a `Schema` rows are bounded by its `row_l2`, unless the model has bounds.
    epsilon : float or None, default=1.0
        What all of it may cost, in (0, inf); None: no privacy.
    delta : float or None, default=None
        In (0, 1); None: min(1e-5, 1 / (10 rows)).
    shares : mapping from str to float, or None, default=None
        The part of the cost, in (0, 1), that each private step takes, by its name; in squares of mu. None, or a step
        that is not named: 5 to 10 % for weights, by the number of rows and the budget, 10 % for categories and words,
        15 % for scales. The model takes the rest.
    random_state : int, RandomState, Generator or None, default=None
        As in `SparseClassifier`.

    Attributes
    ----------
    model_ : SparseClassifier or SparseRegressor
        Fitted to transformed rows.
    steps_ : list of (str, step)
        The fitted steps before it.
    privacy_ : PrivacyReport
        Of everything: its bill has a line for each release of each step.

    Examples
    --------
    >>> import numpy as np
    >>> from tulle import PrivatePipeline, SparseClassifier
    >>> from tulle.preprocessing import PrivateScaler
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20_000, 4)) * [1.0, 1000.0, 1e-3, 5.0] + [0.0, 2000.0, 0.0, 70.0]
    >>> y = X[:, 1] > 2000
    >>> model = SparseClassifier(classes=[False, True])
    >>> pipeline = PrivatePipeline([("scale", PrivateScaler()), ("model", model)], epsilon=1.0, random_state=0)
    >>> bool(pipeline.fit(X, y).score(X, y) > 0.9)
    True
    >>> [line.release for line in pipeline.privacy_.bill][0]
    'quartiles'
    """

    def __init__(
        self,
        steps: Sequence[tuple[str, Any]],
        epsilon: float | None = 1.0,
        delta: float | None = None,
        *,
        shares: Mapping[str, float] | None = None,
        random_state: Any = None,
    ) -> None:
        self.steps = steps
        self.epsilon = epsilon
        self.delta = delta
        self.shares = shares
        self.random_state = random_state

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Its parameters and, `deep`, its steps by their names, with theirs as "name__parameter"."""
        found: dict[str, Any] = super().get_params(deep=False)
        for name, step in self.steps if deep else ():
            found[name] = step
            found |= {f"{name}__{key}": value for key, value in step.get_params().items()}
        return found

    def set_params(self, **params: Any) -> PrivatePipeline:
        """Set parameters, steps by their names, or parameters of steps."""
        self.steps = params.pop("steps", self.steps)
        self.steps = [(name, params.pop(name, step)) for name, step in self.steps]
        super().set_params(**params)
        return self

    def _split(self) -> tuple[list[tuple[str, Any]], list[tuple[str, PrivateStep]], Any]:
        """Public steps, private steps and the model, checked."""
        names = [name for name, _ in self.steps]
        taken = {*super().get_params(deep=False)}
        if not names or len(set(names)) < len(names) or any("__" in str(name) or name in taken for name in names):
            raise ValueError(
                "steps must be (name, step) pairs, the last one a model; names must be different, without __, and none "
                f"of {', '.join(sorted(taken))}; got {names}"
            )
        *before, (_, model) = self.steps
        if type(model) not in (SparseClassifier, SparseRegressor):
            raise TypeError(
                f"the last step must be a SparseClassifier or a SparseRegressor, got {type(model).__name__}"
            )
        if (model.epsilon, model.delta, model.rho) != (1.0, None, None):
            raise ValueError("one budget covers all steps: give epsilon and delta to PrivatePipeline, not to the model")
        if model.random_state is not None:
            raise ValueError("one seed is for all steps: give random_state to PrivatePipeline, not to the model")
        # A schema that leaves something to be found learns from rows.
        before = [
            (name, PrivateColumns(step) if type(step) is Schema and step.is_private else step) for name, step in before
        ]
        if any(isinstance(step, FindsKeys) for _, step in before[1:]):
            raise ValueError("a step that finds categories or words reads raw rows: it must be the first step")
        private = [(name, step) for name, step in before if isinstance(step, PrivateStep)]
        public = [(name, step) for name, step in before if not isinstance(step, PrivateStep)]
        if [*public, *private] != before:
            raise ValueError("public steps must come before private ones")
        if peeks := check_pipeline(public):
            words = "; ".join(map(str, peeks))
            raise ValueError(f"a step is neither public nor private, and would not be billed: {words}")
        return public, private, model

    def _shares(self, private: Sequence[tuple[str, PrivateStep]]) -> dict[str, float | None]:
        given = dict(self.shares or {})
        if unknown := sorted(set(given) - {name for name, _ in private}):
            raise ValueError(f"shares names {', '.join(unknown)}, which is no private step")
        if any(not 0 < share < 1 for share in given.values()) or sum(given.values()) >= 1:
            raise ValueError("shares must lie in (0, 1), and their sum below 1: the model takes the rest")
        return {name: given.get(name) for name, _ in private}

    def fit(
        self, X: Any, y: Any = None, groups: Any = None, *, sample_weight: Any = None, offset: Any = None
    ) -> PrivatePipeline:
        """Fit all steps to private rows, and bill them together.

        Parameters
        ----------
        X : array or sparse array of shape (n, d), or what the first step takes
            Without public steps also rows elsewhere, as for `SparseClassifier.fit`: the `X` of a folder of blocks or a
            Dask collection. Private steps transform them there, block by block. With a `Schema` as the only public step
            also a Dask DataFrame of raw cells, which workers encode partition by partition.
        y : array of shape (n,) or None, default=None
            For rows on a cluster in the same partitions. None: the target that the `Schema` declares, with its classes
            or its range, and its people with their number of rows.
        groups : array of shape (n,) or None, default=None
            Person ids, as in `SparseClassifier.fit`.
        sample_weight, offset : array of shape (n,) or None, default=None
            As in `SparseClassifier.fit`. Private steps learn from all rows alike.

        Returns
        -------
        self
        """
        public, private, model = self._split()
        shares = self._shares(private)
        raw = isinstance(private[0][1], FindsKeys) if private else False
        elsewhere = is_elsewhere(X)
        by_schema = len(public) == 1 and type(public[0][1]) is Schema
        if elsewhere and (raw or (public and not (by_schema and find_lazy(X) is not None))):
            raise ValueError(_RAW_ELSEWHERE if raw else _PUBLIC_ELSEWHERE)
        model = clone(model)
        if y is None and public and type(public[0][1]) is Schema:
            read_declared_targets(public[0][1], model)
            if not elsewhere:
                y, groups = public[0][1].labels(X), public[0][1].people(X) if groups is None else groups
        if not (public or raw or elsewhere):
            validate_data(self, X, "no_validation", reset=True, skip_check_array=True)  # the names of columns
        steps: list[tuple[str, Any]] = []
        for name, step in public:
            step = clone(step)
            with np.errstate(all="ignore"):  # a warning about somebody's extreme row would be a release
                if elsewhere:
                    X, y, groups = read_raw_rows(step, X, y, groups)
                else:
                    X = step.fit(X, None).transform(X)  # a frozen step has no fit_transform
            steps.append((name, step))
        learning = [(name, clone(step)) for name, step in private]
        if learning:
            first = learning[0][1]
            X, y, groups = take_together(X, y, groups, missing=first.takes_missing)
            spread = None if raw else find_spread(X, y, missing=first.takes_missing)
            if spread is not None:
                X, y = spread, None
            else:
                with np.errstate(all="ignore"):
                    X = first.read(X) if raw else read_rows(X, missing=True)
            for _, step in learning:
                step.check(X.blank() if raw else X if spread is None else spread.no_rows())
            X = change_rows(X, first.mark)
        model.set_params(epsilon=self.epsilon, delta=self.delta, random_state=self.random_state)
        if learning:
            last = learning[-1][1].bounds(X.shape[1])
            given = Bounds() if model.bounds is None else model.bounds
            if (given.row_l2, given.row_linf, given.normalise) != (None, None, False):
                raise ValueError("the last private step bounds the rows; leave row_l2, row_linf and normalise out")
            bounds = Bounds(
                last.row_l2,
                last.row_linf,
                given.label,
                rows_per_person=given.rows_per_person,
                estimate_share=given.estimate_share,
                quantile=given.quantile,
                offset=given.offset,
            )
            model.set_params(bounds=bounds)
        elif steps and type(steps[-1][1]) is Schema:
            # The schema bounds its rows: a public number, and nothing has to be estimated.
            given = Bounds() if model.bounds is None else model.bounds
            if (given.row_l2, given.row_linf, given.normalise) == (None, None, False):
                model.set_params(bounds=replace(given, row_l2=steps[-1][1].row_l2))
        rows, targets, loss = model._prepare(X.blank() if raw else X, y)
        rows = X if raw else rows
        if learning and elsewhere and not steps:
            self._take_columns(model)
        names = getattr(self, "feature_names_in_", None)
        columns: Sequence[str] = ()
        if steps and isinstance(steps[-1][1], Schema):
            names, columns = steps[-1][1].get_feature_names_out(), steps[-1][1].get_columns_of_features()
        elif raw:  # values are not found yet: a column is chosen as a whole
            columns = learning[0][1].schema_.get_columns_of_features()
        shared = tuple((step, shares[name]) for name, step in learning)
        known = ColumnNames(() if names is None else tuple(names), tuple(columns))
        given_rows = RowInputs(sample_weight, offset, known)
        model._fit_with_steps(rows, targets, loss, groups, None, shared, given_rows)
        said = (*model.privacy_.assumptions, *_describe([*steps, *learning]), *_describe_own(learning))
        model.privacy_ = replace(model.privacy_, assumptions=said)
        if raw:
            names = learning[0][1].get_feature_names_out()
            # Of features that are 0 in every row a weight is noise alone. Which these are was released.
            model.coef_[..., learning[0][1].unused()] = 0.0
            model.support_ = np.flatnonzero(np.any(np.atleast_2d(model.coef_) != 0, axis=0))
        if names is not None:  # private steps keep the columns
            model.weight_names_ = names
        self.model_, self.steps_ = model, [*steps, *learning]
        self.privacy_ = model.privacy_
        if hasattr(model, "classes_"):
            self.classes_ = model.classes_
        return self

    def _take_columns(self, model: Any) -> None:
        """Number and names of columns, as of rows in memory: the model sees transformed rows, which have no names."""
        self.__dict__.pop("feature_names_in_", None)
        self.n_features_in_ = model.n_features_in_
        if hasattr(model, "feature_names_in_"):
            self.feature_names_in_ = model.__dict__.pop("feature_names_in_")

    def transform(self, X: Any) -> Any:
        """The rows that the model sees; of rows elsewhere a `tulle.backends.rows_elsewhere.Spread`, and of a Dask
        collection `tulle.backends.lazy_rows.LazyRows`, which `predict` of the model takes."""
        steps = self.fitted_steps()
        if is_elsewhere(X):
            return self._transform_elsewhere(X, [step for _, step in steps])
        if hasattr(self, "n_features_in_"):
            validate_data(self, X, "no_validation", reset=False, skip_check_array=True)
        with np.errstate(all="ignore"):
            for _, step in steps:
                X = step.transform(X)
        return X

    def _transform_elsewhere(self, X: Any, steps: Sequence[Any]) -> Any:
        schema = steps[0] if steps and type(steps[0]) is Schema and find_lazy(X) is not None else None
        private = steps if schema is None else steps[1:]
        if any(not isinstance(step, PrivateStep) for step in private):
            raise ValueError(_PUBLIC_ELSEWHERE)
        if private and isinstance(private[0], FindsKeys):
            raise ValueError(_RAW_ELSEWHERE)
        missing = schema is None and bool(private) and private[0].takes_missing
        if schema is not None:
            schema.find([str(name) for name in getattr(X, "columns", ())])
            rows = find_lazy(X, reader=schema.transform)
        elif (rows := find_lazy(X, missing=missing)) is not None:
            known = getattr(self, "feature_names_in_", None)
            rows.check_columns(self.model_.n_features_in_, known, type(self).__name__)
        else:
            rows = find_spread(X, missing=missing)
            assert rows is not None
            rows.check_names(getattr(self, "feature_names_in_", None))
            for step in private:
                step.check_columns(rows)
        return reduce(lambda changed, step: changed.then(step.transform), private, rows)

    @classmethod
    def restore(cls, steps: Sequence[tuple[str, Any]], name: str, model: Any) -> PrivatePipeline:
        """The fitted pipeline of fitted steps and a fitted model, which is called `name`; as `tulle.load` makes it."""
        unfitted = clone(model).set_params(epsilon=1.0, delta=None, bounds=None, random_state=None)
        found = cls([*steps, (name, unfitted)], model.epsilon, model.delta, random_state=model.random_state)
        found.model_, found.steps_, found.privacy_ = model, list(steps), model.privacy_
        if hasattr(model, "classes_"):
            found.classes_ = model.classes_
        return found

    def fitted_steps(self) -> list[tuple[str, Any]]:
        """The fitted steps before the model."""
        if not hasattr(self, "model_"):
            from sklearn.exceptions import NotFittedError

            raise NotFittedError("this PrivatePipeline is not fitted yet; call fit first")
        return self.steps_

    def predict(self, X: Any, offset: Any = None) -> Any:
        """Predictions of the model for transformed rows."""
        rows = self.transform(X)
        return self.model_.predict(rows, offset)

    @available_if(_model_has("predict_proba"))
    def predict_proba(self, X: Any, offset: Any = None) -> Any:
        """The probability of each class; logistic loss only."""
        rows = self.transform(X)
        return self.model_.predict_proba(rows, offset)

    @available_if(_model_has("decision_function"))
    def decision_function(self, X: Any, offset: Any = None) -> Any:
        """The margins of a classifier."""
        rows = self.transform(X)
        return self.model_.decision_function(rows, offset)

    def score(self, X: Any, y: Any, sample_weight: Any = None, offset: Any = None) -> float:
        """Accuracy of a classifier, R² of a regressor."""
        rows = self.transform(X)
        return float(self.model_.score(rows, np.asarray(y), sample_weight, offset))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        model = self.steps[-1][1]
        own = model.__sklearn_tags__()
        tags.estimator_type, tags.classifier_tags, tags.regressor_tags = (
            own.estimator_type,
            own.classifier_tags,
            own.regressor_tags,
        )
        tags.target_tags.required = True
        return tags
