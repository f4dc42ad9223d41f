"""Linear and logistic models of a study: the same rows, queries and losses as in a central fit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from tulle.accounting.row_limit import check_row_count
from tulle.estimators.bounds import LARGEST_BOUND, SMALLEST_BOUND, Bounds
from tulle.fast.install import install
from tulle.fast.sparse_weights import SparseWeights
from tulle.federated.client_side.row_by_row import make_rows
from tulle.federated.terms import ModelTerms, Task
from tulle.files import class_labels
from tulle.methods.gradient_queries import BatchGradient
from tulle.methods.loss_functions import Loss, resolve_loss
from tulle.methods.noise_scales import intercept_entry
from tulle.methods.thresholds import HardThreshold
from tulle.trusted import intake
from tulle.trusted.events import FloatArray
from tulle.trusted.facts import PublicFacts

install()

Label = str | int | float | bool

_MOST_FEATURES = 2**31
_MOST_CLASSES = 1000


@dataclass(frozen=True)
class LinearTerms(ModelTerms):
    """The public settings of a linear model, known before anybody's rows are seen.

    Parameters
    ----------
    n_features : int
        d, at least 1. All clients have the same columns in the same order.
    classes : tuple of str or numbers, or None, default=None
        The class labels, at least two; None for a regression. Rows with another label count as nothing.
    loss : str, default="logistic"
        The name of one of `tulle.methods.loss_functions`, for classification or for regression.
    row_l2, row_linf, label, normalise :
        As in `tulle.Bounds`. With privacy one of the first two, or `normalise`, must be declared: nothing is estimated
        from rows. Slopes are clipped in any case.
    fit_intercept : bool, default=True
    intercept_value : float, default=0.0
        The entry of the constant column: in [1e-50, 1e50] with an intercept, else 0. `linear_terms` chooses it.
    """

    takes_snapshots: ClassVar[bool] = True

    n_features: int
    classes: tuple[Label, ...] | None = None
    loss: str = "logistic"
    row_l2: float | None = None
    row_linf: float | None = None
    label: float | None = None
    normalise: bool = False
    fit_intercept: bool = True
    intercept_value: float = 0.0

    def __post_init__(self) -> None:
        if not (type(self.n_features) is int and 1 <= self.n_features < _MOST_FEATURES):
            raise ValueError(f"n_features must be an integer >= 1, got {self.n_features!r}")
        if self.classes is not None:
            alike = {type(name) if isinstance(name, str) else float for name in self.classes}
            keys = {class_labels.get_text_key(name) for name in self.classes}
            if not 2 <= len(keys) == len(self.classes) <= _MOST_CLASSES or len(alike) > 1:
                raise ValueError(f"classes must be at least two different words, or numbers, got {self.classes!r}")
        if not (isinstance(self.normalise, bool) and isinstance(self.fit_intercept, bool)):
            raise ValueError("normalise and fit_intercept are True or False")
        if not isinstance(self.loss, str):
            raise ValueError(f"loss must be the name of a loss, got {self.loss!r}")
        a = self.intercept_value
        if not (isinstance(a, float) and (SMALLEST_BOUND <= a <= LARGEST_BOUND if self.fit_intercept else a == 0)):
            raise ValueError(
                f"intercept_value must lie in [{SMALLEST_BOUND:g}, {LARGEST_BOUND:g}] with an intercept, and be 0 "
                f"without one, got {a!r}"
            )
        _ = self.bounds, self.resolved_loss  # both check themselves

    @property
    def bounds(self) -> Bounds:
        return Bounds(self.row_l2, self.row_linf, self.label, self.normalise)

    @property
    def resolved_loss(self) -> Loss:
        if self.classes is None:
            return resolve_loss(self.loss, "regression")
        return resolve_loss(self.loss, "classification", len(self.classes))

    @property
    def shape(self) -> tuple[int, int]:
        return self.n_features + self.fit_intercept, self.resolved_loss.n_outputs

    def start(self, n_nonzero: int) -> SparseWeights:
        return SparseWeights.zeros(*self.shape)

    def threshold(self, keep: int) -> HardThreshold:
        return HardThreshold(min(keep, self.n_features), free_from=self.n_features)

    def public(self, n_rows: int, rows_per_person: int = 1) -> PublicFacts:
        """The public facts of a client with so many rows."""
        check_row_count(n_rows)
        known = self.bounds.known(self.n_features)
        return PublicFacts(
            n_rows=n_rows,
            n_features=self.n_features,
            n_nonzero=1,
            loss=self.resolved_loss,
            budget=None,
            row_l2=known.row_l2,
            row_linf=known.row_linf,
            label=known.label,
            fit_intercept=self.fit_intercept,
            rows_per_unit=rows_per_person,
            normalised=known.normalise,
        )

    def check_bounded(self) -> None:
        """Raise unless noise can be calibrated: every row's part of a gradient has a bound."""
        if self.bounds.missing(("row_l2",)):
            raise ValueError("declare row_l2, row_linf or normalise: nothing is estimated from the clients' rows")

    def targets(self, y: Any) -> tuple[FloatArray, np.ndarray[Any, np.dtype[np.bool_]]]:
        """Targets as the loss wants them, and which rows have one."""
        labels = intake.read_cells(y, "y")
        if self.classes is None:
            return intake.mask_unlabelled(intake.read_numbers(labels), None)
        # As files are read: at some clients all labels may have been numbers, and at others one was a word.
        code = intake.ClassCodes(
            class_labels.check_classes(self.classes, class_labels.get_text_key), self.resolved_loss.n_outputs > 1
        )
        return intake.mask_unlabelled(code(labels, class_labels.get_text_key), None)

    def level(self, clip: float) -> float:
        return clip * self.public(1).row_bound(self.intercept_value)

    def facts(self, n_rows: int, n_features: int, dense: bool, rows_per_person: int) -> PublicFacts:
        if n_features != self.n_features:
            raise ValueError(f"the study has {self.n_features:,} features, and these rows have {n_features:,}")
        return self.public(n_rows, rows_per_person)

    def task(self, X: Any, y: Any, groups: Any, rows_per_person: int) -> LinearTask:
        public = self.facts(X.shape[0], X.shape[1], isinstance(X, np.ndarray), rows_per_person)
        targets, known = self.targets(y)
        if groups is not None:
            known &= intake.select_first_rows(groups, rows_per_person)
        rows = make_rows(X, targets, known)
        self.bounds.known(self.n_features).clip(rows, self.resolved_loss)
        return LinearTask(rows, public, self.intercept_value)


def linear_terms(n_features: int, *, step: float, fit_intercept: bool = True, **public: Any) -> LinearTerms:
    """`LinearTerms` with the constant column that a central fit with such steps would have.

    Parameters
    ----------
    n_features : int
    step : float
        The η of the study, > 0.
    fit_intercept : bool, default=True
    **public :
        As in `LinearTerms`.
    """
    without = LinearTerms(n_features, fit_intercept=False, **public)
    if not fit_intercept:
        return without
    facts = without.public(1)
    a = intercept_entry(replace(facts, fit_intercept=True), step)
    return replace(without, fit_intercept=True, intercept_value=float(a))


@dataclass(frozen=True, eq=False)
class LinearTask(Task):
    """Rows of a linear model. Gradients are those of `tulle.methods.StochasticHardThresholding`."""

    intercept_value: float

    def gradient(self, at: SparseWeights, clip: float) -> BatchGradient:
        return BatchGradient(at, clip, self.intercept_value)

    def gradient_change(self, at: SparseWeights, anchor: SparseWeights, clip: float, most: float) -> BatchGradient:
        return BatchGradient(at, clip, self.intercept_value, anchor, most)
