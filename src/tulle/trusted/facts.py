"""What everyone may know before a fit, and all that a method gets to know besides its private answers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from tulle.trusted.losses import CONVEX, AnyLoss, ConvexLoss
from tulle.trusted.plan import Budget


@dataclass(frozen=True)
class PublicFacts:
    """Public quantities of a fit."""

    n_rows: int
    n_features: int
    n_nonzero: int  # weights per output
    loss: AnyLoss
    budget: Budget | None  # what the method itself may spend; None for a fit without privacy
    # Bounds on the features of a row in two norms and on |y|, declared or estimated privately; inf only without privacy
    row_l2: float
    row_linf: float
    label: float
    fit_intercept: bool  # whether the model has a constant column besides the features
    rows_per_unit: int = 1  # how many rows one unit of privacy (a row, a person) has at most
    # Whether to run the algorithm with the noise that its paper prints: sensitivities then do not shrink with the
    # public weights, and nothing is asked that the paper does not ask.
    as_published: bool = False
    # Whether bounds were estimated privately. What a method then asks may depend on them only in ways that
    # `tulle.estimators.request.FitRequest.plan_all` foresees: it is billed before they are known.
    estimated: bool = False
    normalised: bool = False  # whether every row was scaled to the length row_l2
    spent: float = 0.0  # the pure epsilon that estimated bounds cost, which is not in `budget`
    exact_only: bool = False  # whether no answer may have a part of delta for finite precision

    @cached_property
    def convex_loss(self) -> ConvexLoss | None:
        """What the loss is in objective perturbation, read once, so that a bound and an answer are of the same loss. By
        exact type: clipping cannot enforce convexity, and a subclass may have any slope."""
        convex = self.loss.convex
        return convex if type(convex) in CONVEX else None

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
