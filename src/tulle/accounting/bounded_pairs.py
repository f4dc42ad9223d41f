"""Dominating pairs of releases whose privacy loss is bounded: Laplace noise, pure privacy, bounded range.

All three have a loss with one density, an exponential, between -span and span, and an atom at each end, where the one
at -span is exp(-span) times the other. Proofs: docs/proofs/bounded_losses.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

# More than the rounding of a few functions. Mass that is moved up makes two laws easier to tell apart, never harder.
_ROUNDED_UP = 1 + 1e-12

# Places at which the mean square of a loss is estimated. It steers the grid, and any number is valid.
_MIDPOINTS = (np.arange(64) + 0.5) / 64


@dataclass(frozen=True)
class BoundedLossPair:
    """A pair of laws (P, Q) by the law of its loss log(dP/dQ) under P.

    The loss has the density body / 2 × exp((l - span) / 2) between -span and span, the chance `atom` of being span and
    atom × exp(-span) of being -span. It is its own mirror image: mass m at l > 0 stands for mass m exp(-l) at -l.

    Parameters
    ----------
    span : float
        The largest loss, in (0, inf).
    body, atom : float
        >= 0, with body × (1 - exp(-span)) + atom × (1 + exp(-span)) = 1.
    """

    span: float
    body: float
    atom: float

    @classmethod
    def randomised_response(cls, epsilon: float) -> BoundedLossPair:
        """Of all (epsilon, 0)-DP releases."""
        return cls(epsilon, 0.0, 1 / (1 + math.exp(-epsilon)))

    @classmethod
    def laplace(cls, epsilon: float) -> BoundedLossPair:
        """Of two Laplace laws that are epsilon scales apart."""
        return cls(epsilon, 0.5, 0.5)

    @classmethod
    def logistic(cls, epsilon: float) -> BoundedLossPair:
        """Of two logistic laws that are epsilon scales apart: of all releases of bounded range epsilon."""
        return cls(epsilon, -1 / math.expm1(-epsilon), 0.0)

    @property
    def distance(self) -> float:
        return self.span

    @property
    def total_variation(self) -> float:
        return self.body * math.expm1(-self.span / 2) ** 2 - self.atom * math.expm1(-self.span)

    def masses(self, losses: FloatArray) -> tuple[FloatArray, float]:
        """P's mass at losses > 0, moved to the given ones, and the mass that is moved to infinity, none.

        `losses` rise from 0 to span or more. The mass between two neighbours goes to both of them, in the parts that
        leave P's mass and Q's as they are.
        """
        low = losses[:-1]
        width = np.clip(self.span - low, 0.0, np.diff(losses))
        # From the upper ends, and with exponents <= 0 alone: a wide cell must not overflow.
        scale = self.body * np.exp(np.minimum(low + width - self.span, 0.0) / 2)
        mass = -scale * np.expm1(-width / 2)
        # What P has more than exp(loss at the lower end) Q: nothing cancels.
        excess = scale * np.expm1(-width / 2) ** 2
        last = min(int(np.searchsorted(losses, self.span)), len(low)) - 1
        mass[last] += self.atom
        excess[last] -= self.atom * math.expm1(min(float(low[last]) - self.span, 0.0))
        higher = np.minimum(excess / -np.expm1(-np.diff(losses)) * _ROUNDED_UP, mass)
        chances = np.append(mass - higher, 0.0)
        chances[1:] += higher
        return chances, 0.0

    def spread(self) -> float:
        """What a grid must resolve: the mean of the squared loss, about."""
        losses = self.span * _MIDPOINTS
        density = self.body / 2 * np.exp((losses - self.span) / 2) * (1 + np.exp(-losses))
        ends = self.atom * (1 + math.exp(-self.span)) * self.span**2
        return float(np.mean(density * losses**2) * self.span) + ends

    def quantile(self, share: float) -> float:
        """A loss that P passes with a chance of at most `share`; here never."""
        return self.span * _ROUNDED_UP

    def renyi(self, orders: FloatArray) -> FloatArray:
        """An upper bound on the Rényi divergence at each order, the same both ways.

        The mean of exp(b loss), b = order - 1, is exp(-span / 2) (body sinh(c) / (b + 1/2) + 2 atom cosh(c)) with
        c = (b + 1/2) span.
        """
        b = orders - 1.0
        middle = b + 0.5
        grown = middle * self.span
        with np.errstate(divide="ignore"):
            ends = np.log(-np.expm1(-2 * grown)) + np.log(self.body / 2) - np.log(middle)
            log_mean = np.logaddexp(ends, np.log1p(np.exp(-2 * grown)) + np.log(self.atom)) + b * self.span
        rounding = 1e-13 * (1 + grown) / b
        # No pure release costs more than the other two (Bun and Steinke 2016).
        return np.minimum(np.maximum(log_mean / b, 0.0) + rounding, np.minimum(orders * self.span**2 / 2, self.span))
