"""What a model that was fitted with `inference=True` says about its errors. Looks at no row of the fit."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from tulle.estimators.linear_model import LinearModel
from tulle.inference.evidence import Evidence, check_level
from tulle.inference.interval_fit import IntervalFit
from tulle.inference.weight_summary import WeightSummary, summarise
from tulle.methods import Method, resolve_method
from tulle.methods.loss_functions import Logistic, Poisson, resolve_loss
from tulle.trusted.events import FloatArray


def _has_intervals(model: Any) -> bool:
    if not (model.inference or hasattr(model, "inference_")):
        raise AttributeError("intervals are there after a fit with inference=True")
    return True


class WithIntervals(LinearModel):
    """Summaries and intervals, for models that were fitted with `inference=True`."""

    inference: bool
    inference_: Evidence
    loss: Any
    method: Any

    def _method(self) -> Method:
        """The method that is asked for."""
        if not isinstance(self.inference, (bool, np.bool_)):
            raise ValueError(f"inference must be True or False, got {self.inference!r}")
        if not self.inference:
            return resolve_method(self.method)
        if isinstance(self.method, IntervalFit):
            return resolve_method(self.method)
        if self.method != "auto":
            raise ValueError(f"inference=True has a method of its own; omit method={self.method!r}")
        return IntervalFit()

    def _keep_evidence(self, evidence: Evidence | None) -> None:
        self.__dict__.pop("inference_", None)
        if evidence is not None:
            self.inference_ = evidence

    @available_if(_has_intervals)
    def summary(
        self, level: float = 0.95, *, names: Any = None, schema: Any = None, ratios: bool = False
    ) -> WeightSummary:
        """Weights with standard errors, intervals, p-values, and the part of the width that privacy costs.

        A function of what the fit released: it looks at no row and costs nothing.

        Parameters
        ----------
        level : float, default=0.95
            The coverage of the intervals, in (0, 1). Each holds by itself, not all of them together.
        names : sequence of str of length d, or None, default=None
            The names of all features, public. None: those of the table or of the schema, or "x0", "x1", ...
        schema : tulle.Schema or None, default=None
            The fitted schema that encoded the rows: weights are then for one unit of the user's columns. With private
            steps after the schema, whose units are not known, omit it.
        ratios : bool, default=False
            Whether to show odds ratios (logistic loss) or rate ratios (Poisson) instead of weights.

        Returns
        -------
        WeightSummary
            Print it, or use `to_frame`.
        """
        check_is_fitted(self)
        ratio = ""
        if ratios:
            kind = type(resolve_loss(self.loss, "classification" if is_classifier(self) else "regression"))
            ratio = {Logistic: "odds ratio", Poisson: "rate ratio"}.get(kind, "")
            if not ratio:
                raise ValueError("ratios=True is for the logistic and the Poisson loss; weights of others are no logs")
        if names is None and schema is not None:
            names = schema.get_feature_names_out()
        return summarise(
            self.inference_,
            self._names_of_features(names),
            level,
            None if schema is None else schema.units(),
            ratio,
        )

    @available_if(_has_intervals)
    def predict_interval(self, X: Any, level: float = 0.95, *, offset: Any = None) -> FloatArray:
        """Intervals for the mean of rows like these: of the target, of counts, or of the second class's probability.

        They are intervals of the model's mean, not of a new person's target, which varies around it.

        Parameters
        ----------
        X : array or sparse array of shape (m, d)
            Rows in memory, as for `predict`. Those that the model was fitted to are private, and so are intervals for
            them.
        level : float, default=0.95
            In (0, 1).
        offset : array of shape (m,) or None, default=None
            As for `predict`.

        Returns
        -------
        array of shape (m, 2)
            The lower and the upper end; NaN where a weight of the row has no interval, or an open one.
        """
        check_is_fitted(self)
        check_level(level)
        model: Any = self  # one that takes offsets
        evidence, margins = self.inference_, model._margins(X, offset)[:, 0]
        rows = self._columns_of(self._checked(X), evidence.features)
        reach = evidence.margin_errors(rows, level)
        loss = resolve_loss(self.loss, "classification" if is_classifier(self) else "regression")
        ends = np.column_stack([margins - reach, margins + reach])
        if isinstance(loss, Logistic):
            return np.column_stack([loss.probabilities(ends[:, [k]])[:, 1] for k in range(2)])
        return loss.mean(ends)
