"""What everyone may know before a fit, and all that a method gets to know besides its private answers."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tulle.losses import Loss, Squared
from tulle.privacy import Budget


@dataclass(frozen=True)
class PublicFacts:
    """Public quantities of a fit.

    Attributes
    ----------
    n_rows, n_features, n_nonzero : int
        n, d and s (non-zero weights per output).
    loss : Loss
    budget : Budget or None
        What the method itself may spend; None for a fit without privacy.
    row_l2, row_linf, label : float
        Bounds on the features of a row in two norms and on |y|, declared or privately estimated. inf only without
        privacy.
    fit_intercept : bool
        Whether the model has a constant column besides the features.
    rows_per_unit : int
        How many rows one unit of privacy (a row, a person) has at most.
    estimated : bool
        Whether bounds were estimated privately. What a method then asks may depend on them only in ways that
        `tulle.fitting.possible_publics` foresees: it is billed before they are known.
    as_published : bool
        Whether to run the algorithm with the noise that its paper prints: sensitivities then do not shrink with the
        public weights, and nothing is asked that the paper does not ask.
    normalised : bool
        Whether every row was scaled to the length row_l2.
    spent : float
        The pure epsilon that estimated bounds cost, which is not in `budget`.
    exact_only : bool
        Whether no answer may have a part of delta for finite precision.
    """

    n_rows: int
    n_features: int
    n_nonzero: int
    loss: Loss
    budget: Budget | None
    row_l2: float
    row_linf: float
    label: float
    fit_intercept: bool
    rows_per_unit: int = 1
    as_published: bool = False
    estimated: bool = False
    normalised: bool = False
    spent: float = 0.0
    exact_only: bool = False

    @classmethod
    def without_model(cls, n_rows: int, n_features: int, rows_per_unit: int) -> PublicFacts:
        """The facts of rows that are asked something but that no model is fitted to."""
        return cls(
            n_rows=n_rows,
            n_features=n_features,
            n_nonzero=1,
            loss=Squared(),
            budget=None,
            row_l2=math.inf,
            row_linf=math.inf,
            label=math.inf,
            fit_intercept=False,
            rows_per_unit=rows_per_unit,
        )

    @property
    def n_parameters(self) -> int:
        """Weights of one output, the intercept's included."""
        return self.n_features + self.fit_intercept

    def row_bound(self, intercept_value: float) -> float:
        """The ℓ2 bound of a row with its constant column."""
        return math.hypot(self.row_l2, intercept_value)

    def entry_bound(self, intercept_value: float) -> float:
        """The ℓ∞ bound of a row with its constant column."""
        return max(self.row_linf, intercept_value)
