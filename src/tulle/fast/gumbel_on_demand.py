"""The exponential mechanism on scores that are looked up one at a time. Vouched for on use: it draws answers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from tulle.trusted.mechanisms import PRICES, GumbelMax, Sensitivity, Then, check_columns
from tulle.trusted.plan import PlanError


@runtime_checkable
class ScoresOnDemand(Protocol):
    """Scores of candidates that are looked up one at a time, from which an exponential mechanism is drawn."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(candidates, 1)."""
        ...

    @property
    def n_rows(self) -> int:
        """Over how many rows scores are sums."""
        ...

    def draw(self, scale: float, generator: np.random.Generator) -> int:
        """A candidate with probability proportional to exp(score / scale); the best one for scale 0."""
        ...


@dataclass(frozen=True)
class GumbelOnDemand(GumbelMax):
    """Noisy max with Gumbel noise on `ScoresOnDemand`; on arrays it is `GumbelMax`.

    Parameters
    ----------
    noise : NoisePerSensitivity
    columns : int
        The number of columns that the query will have.
    candidates, rows : int
        How many candidates there are at most, and over how many rows scores are means. 0 candidates: every draw is from
        arrays, and exact.
    """

    candidates: int = 0
    rows: int = 0

    def release(
        self, exact: Any, sensitivity: Sensitivity, generator: np.random.Generator, then: Then | None
    ) -> npt.NDArray[np.intp]:
        if not self.candidates or not isinstance(exact, ScoresOnDemand):
            return super().release(exact, sensitivity, generator, then)
        check_columns(exact, self.columns)
        scores, scale = exact, self._scale(sensitivity.linf)
        if scores.shape[0] > self.candidates or (scale and scores.n_rows > self.rows):
            raise PlanError("noisy max (Gumbel): the plan allows for scores on demand of fewer candidates or rows")
        return np.array([scores.draw(scale, generator)])

    @property
    def inexact(self) -> float:
        """Scores on demand are drawn by proposals in float64: docs/proofs/scores_on_demand.md, lemma 4."""
        if not self.candidates or self.noise.value == 0:
            return 0.0
        # No score is more than n / (2 noise) of the scale: a mean moves by two bounds / n at least.
        largest_score = self.rows / (2.0 * self.noise.value)
        cells = 0.04 * math.sqrt(self.candidates) + 140.0
        once = 75.0 * largest_score + 11_100.0 + 2.0 * math.sqrt(self.candidates) + 600.0 * (3.0 * cells + 1.0)
        return min(1.0, self.columns * 2.0**-53 * once)


PRICES[GumbelOnDemand] = PRICES[GumbelMax]
