"""`SparseHazard`: the hazard of each period as a logistic model of the period and of features, few of which count.

    P(event in period k | none before) = 1 / (1 + exp(-(a_k + <x, w>)))

It is fitted as a classification of person-periods (person_periods.py), in which a person has K rows. exp(w_j) is the
ratio of the odds of an event in a period for one more of feature j; where events are rare, the hazard ratio.
Proof: docs/proofs/survival.md.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.special import expit
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from tulle.estimators.bounds import Bounds
from tulle.estimators.sparse import SparseClassifier
from tulle.files.array_checks import read_rows
from tulle.inference.interval_fit import IntervalFit
from tulle.inference.weight_summary import WeightSummary, summarise
from tulle.survival.person_periods import (
    check_edges,
    expand_periods,
    find_periods,
    period_names,
    read_outcomes,
)
from tulle.trusted.events import FloatArray
from tulle.trusted.plan import is_number


class SparseHazard(BaseEstimator):
    """Private hazards in discrete time with few non-zero weights. The unit of privacy is a person.

    Parameters
    ----------
    edges : sequence of float
        The ends of the periods: 2 to 1,001 rising numbers, such as [0, 30, 60, 90], declared without looking at times.
        An event at a time t counts in the period (e, f] that holds it; one after the last edge is not observed. A
        person whose observation ends within a period does not count in it; with `inference=False` as half a person.
    epsilon : float or None, default=1.0
        In (0, inf); None: no privacy.
    delta : float or None, default=None
        In (0, 1); None: min(1e-5, 1 / (10 rows)), where rows are those of persons and periods.
    n_nonzero : int or None, default=None
        With `inference=False`: the most weights of features, not counting those of periods; None: by the method.
    row_l2 : float, default=1.0
        Above 0: people's rows are clipped to this length, declared without looking at them.
    normalise : bool, default=False
        Whether shorter rows are stretched to that length.
    inference : bool, default=True
        Whether weights are those of all features, with standard errors and intervals (`summary`). False chooses few
        features for predictions; their weights are then commonly too large, as the loss is cut for less noise.
    method : str or method, default="auto"
        With `inference=False`, as in `SparseClassifier`.
    random_state : int, RandomState, Generator or None, default=None
        As in `SparseClassifier`.

    Attributes
    ----------
    coef_ : array of shape (d,)
        The weights w of features: positive ones bring the event nearer.
    baseline_ : array of shape (K,)
        The logits a_k of periods.
    privacy_ : PrivacyReport
    classifier_ : SparseClassifier
        Fitted to person-periods.

    Examples
    --------
    >>> import numpy as np
    >>> from tulle.survival import SparseHazard
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (20_000, 3)) / 3**0.5
    >>> times = rng.exponential(np.exp(4 - 2 * X[:, 0]))
    >>> y = np.column_stack([np.minimum(times, 120), times <= 120])
    >>> model = SparseHazard([0, 30, 60, 90, 120], epsilon=2.0, random_state=0).fit(X, y)
    >>> int(np.argmax(np.abs(model.coef_)))
    0
    >>> model.predict_survival(X[:2]).shape
    (2, 5)
    """

    def __init__(
        self,
        edges: Any,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        *,
        n_nonzero: int | None = None,
        row_l2: float = 1.0,
        normalise: bool = False,
        inference: bool = True,
        method: Any = "auto",
        random_state: Any = None,
    ) -> None:
        self.edges = edges
        self.epsilon = epsilon
        self.delta = delta
        self.n_nonzero = n_nonzero
        self.row_l2 = row_l2
        self.normalise = normalise
        self.inference = inference
        self.method = method
        self.random_state = random_state

    @property
    def n_periods(self) -> int:
        """K, how many periods the edges make."""
        return len(check_edges(self.edges)) - 1

    def fit(self, X: Any, y: Any) -> SparseHazard:
        """Fit to private rows, one of each person.

        Parameters
        ----------
        X : array or sparse array of shape (n, d)
        y : array of shape (n, 2), DataFrame of two columns, or structured array
            Times, and 1 for an event or 0 for the end of observation.

        Returns
        -------
        self
        """
        edges = check_edges(self.edges)
        if self.inference and (self.method != "auto" or self.n_nonzero is not None):
            raise ValueError(
                "weights with intervals are of all features, by a method of their own; use inference=False"
            )
        if not (is_number(self.row_l2) and 0 < self.row_l2 < math.inf):
            raise ValueError(f"row_l2 must be a finite number > 0, got {self.row_l2!r}")
        with np.errstate(all="ignore"):  # a warning about somebody's extreme row would be a release
            rows = _clip(sp.csr_array(read_rows(X, least_rows=2)), float(self.row_l2), self.normalise)
            halves = not self.inference
            expanded = expand_periods(rows, y, edges, period_value=float(self.row_l2), half_periods=halves)
        n_periods = len(edges) - 1
        kept = None if self.n_nonzero is None else self.n_nonzero + n_periods
        classifier = SparseClassifier(
            self.epsilon,
            self.delta,
            n_nonzero=kept,
            bounds=Bounds(row_l2=math.sqrt(2) * self.row_l2, rows_per_person=n_periods),
            method=IntervalFit(periods=n_periods, period_value=float(self.row_l2)) if self.inference else self.method,
            inference=self.inference,
            fit_intercept=False,
            classes=[0, 1],
            random_state=self.random_state,
        )
        weights = expanded.sample_weight if halves else None
        classifier.fit(expanded.X, expanded.y, groups=expanded.groups, sample_weight=weights)
        self.classifier_ = classifier
        self.privacy_ = classifier.privacy_
        self.baseline_ = float(self.row_l2) * classifier.coef_[0, :n_periods]
        self.coef_ = classifier.coef_[0, n_periods:].copy()
        self.n_features_in_ = len(self.coef_)
        names = getattr(X, "columns", None)
        own = [f"feature {j}" for j in range(len(self.coef_))] if names is None else [str(name) for name in names]
        classifier.weight_names_ = np.array([*period_names(edges), *own], dtype=object)
        return self

    def predict(self, X: Any) -> FloatArray:
        """The risk <x, w> of each row: larger for those whose event comes earlier."""
        check_is_fitted(self, "coef_")
        rows = sp.csr_array(read_rows(X))
        if rows.shape[1] != len(self.coef_):
            raise ValueError(f"X has {rows.shape[1]} features, but SparseHazard was fitted to {len(self.coef_)}")
        return np.asarray(_clip(rows, float(self.row_l2), self.normalise) @ self.coef_)

    @property
    def largest_risk(self) -> float:
        """The largest magnitude that a risk can have: of the weights and of the bound on rows."""
        return float(self.row_l2) * float(np.linalg.norm(self.coef_))

    def predict_hazard(self, X: Any) -> FloatArray:
        """The probability of the event in each period, given none before: of shape (n, K)."""
        risk = self.predict(X)
        return np.asarray(expit(risk[:, None] + self.baseline_))

    def predict_survival(self, X: Any) -> FloatArray:
        """The probability of no event up to each edge: of shape (n, K + 1), 1 at the first."""
        hazard = self.predict_hazard(X)
        return np.hstack([np.ones((len(hazard), 1)), np.cumprod(1 - hazard, axis=1)])

    def summary(
        self, level: float = 0.95, *, names: Any = None, schema: Any = None, ratios: bool = False
    ) -> WeightSummary:
        """Weights of features with standard errors, intervals and p-values. Looks at no row and costs nothing.

        Parameters
        ----------
        level : float, default=0.95
            The coverage of the intervals, in (0, 1).
        names : sequence of str of length d, or None, default=None
            The names of the features, public. None: those of the table or of the schema, or "feature 0", ...
        schema : tulle.Schema or None, default=None
            The fitted schema that encoded the rows: weights are then for one unit of the user's columns.
        ratios : bool, default=False
            Whether to show the ratios of the odds of an event in a period instead: exp of weights. Where events are
            rare in every period, they are hazard ratios.
        """
        check_is_fitted(self, "coef_")
        found, k = self.classifier_, self.n_periods
        if not hasattr(found, "inference_"):
            raise AttributeError("intervals are there after a fit with inference=True")
        shown, units = list(found.weight_names_), None
        if schema is not None:
            middles, halves = schema.units()
            names = schema.get_feature_names_out() if names is None else names
            units = np.append(np.zeros(k), middles), np.append(np.ones(k), halves)
        if names is not None:
            shown[k:] = [str(name) for name in names]
        if len(shown) != k + len(self.coef_):
            raise ValueError(f"{len(shown) - k} names for {len(self.coef_)} features")
        table = summarise(found.inference_, shown, level, units, "hazard odds ratio" if ratios else "")
        return replace(table, lines=table.lines[k:], n_rows=table.n_rows // k)

    def find_exits(self, y: Any) -> npt.NDArray[np.intp]:
        """The cell of each row: the period of its event, from 0, or K + the periods it has lived through."""
        through, happens = find_periods(*read_outcomes(y), check_edges(self.edges))
        return np.where(happens, through, self.n_periods + through)

    def score(self, X: Any, y: Any) -> float:
        """The concordance on public rows: the chance that of two people the one with the earlier event has the larger
        risk. It is exact: for private rows use `tulle.private_score`."""
        from tulle.survival.concordance import find_concordance, tabulate

        return find_concordance(tabulate(self.predict(X), self.find_exits(y), self.n_periods), self.n_periods)


def _clip(rows: sp.csr_array, bound: float, normalise: bool) -> sp.csr_array:
    """Rows of at most, or exactly, a length; zeros of those whose squares overflow."""
    lengths = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
    with np.errstate(all="ignore"):
        factors = np.where(normalise | (lengths > bound), bound / np.where(lengths > 0, lengths, 1.0), 1.0)
    return sp.csr_array(sp.diags_array(np.where(lengths < 1e140, factors, 0.0)) @ rows)
