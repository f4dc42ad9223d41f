"""Class weights from noisy counts: class_weight="balanced", as a release on the plan and the bill.

    counts   c_k = the part of the rows that are of class k, with Gaussian noise of standard deviation σ
    weights  min_j c_j / c_k, counts below 2 σ raised to it: 1 for the rarest class, less for others

Replacing a row takes 1/n from one count and adds it to another: the vector moves by at most sqrt(2) / n. Proof:
docs/proofs/weighted_rows.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tulle.accounting.gaussian_budget import gaussian_mu
from tulle.preprocessing.private_step import gaussian_release
from tulle.trusted.clipped_sum import ClippedSum, RowFunction, SeenRows
from tulle.trusted.curator import Ask
from tulle.trusted.events import FloatArray
from tulle.trusted.facts import PublicFacts
from tulle.trusted.plan import Release

_NAME = "class counts"
# What it takes of the cost: enough to tell 300 rows, within these limits.
_ROWS, _SHARES = 300.0, (0.01, 0.05)


def number_of_class(targets: FloatArray, n_classes: int) -> FloatArray:
    """The number of each row's class, from 0: two classes are coded as -1 and +1, more by their numbers."""
    return np.asarray((targets > 0) if n_classes == 2 else targets, dtype=np.float64)


@dataclass(frozen=True)
class ClassIndicators(RowFunction):
    """1 in the place of the row's class, else 0."""

    n_classes: int

    def values(self, seen: SeenRows, targets: FloatArray, public: PublicFacts) -> FloatArray:
        numbers = number_of_class(np.asarray(targets), self.n_classes)
        return np.asarray(numbers[:, None] == np.arange(self.n_classes), dtype=np.float64)


@dataclass(frozen=True)
class ClassFactors:
    """The weight in [0, 1] of each row, by its class."""

    factors: tuple[float, ...]

    def __call__(self, targets: FloatArray) -> FloatArray:
        numbers = number_of_class(targets, len(self.factors)).astype(int)
        return np.asarray(self.factors)[np.clip(numbers, 0, len(self.factors) - 1)]


@dataclass(frozen=True)
class ClassBalance:
    """Weights that make up for unequal classes, learnt from private labels.

    Parameters
    ----------
    n_classes : int
        At least 2.
    """

    n_classes: int

    def default_share(self, public: PublicFacts) -> float:
        """The part of the cost (of the squared mu) that it takes."""
        if public.budget is None:
            return _SHARES[0]
        mu = gaussian_mu(public.budget.epsilon, public.budget.delta)
        least, most = _SHARES
        return min(max((_ROWS / (public.n_rows * mu)) ** 2, least), most)

    def releases(self, square: float) -> tuple[Release, ...]:
        """What it will ask, for a squared mu of `square`."""
        return (gaussian_release(_NAME, square),)

    def learn(self, ask: Ask, public: PublicFacts, mu: float) -> ClassFactors:
        """Ask, and make weights of the answer. `mu` is what the answer costs; inf without privacy."""
        question = ClippedSum(ClassIndicators(self.n_classes), (self.n_classes, 1), 1.0, times="one", non_negative=True)
        noisy = np.asarray(ask(_NAME, question))[:, 0]
        noise = math.sqrt(2) * public.rows_per_unit / (public.n_rows * mu)
        counts = np.maximum(noisy, max(2 * noise, 1 / public.n_rows))
        return ClassFactors(tuple(float(factor) for factor in counts.min() / counts))
