"""Queries that no noise is added to: parts of fits without privacy, and of a paper's algorithm that has no proof.

They state no sensitivity, so that a plan with them costs what exact answers cost: an infinite epsilon.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tulle.trusted.events import FloatArray
from tulle.trusted.facts import PublicFacts
from tulle.trusted.mechanisms import Sensitivity
from tulle.trusted.queries import Query
from tulle.trusted.rows import Block, Rows


class ExactQuery(Query):
    """A query without a sensitivity. The curator answers it only where the mechanism costs an infinite epsilon."""

    def sensitivity(self, public: PublicFacts) -> Sensitivity:
        return Sensitivity()

    def size(self, public: PublicFacts) -> float:
        return math.inf

    @abstractmethod
    def evaluate(self, rows: Rows, public: PublicFacts) -> Any: ...


class FollowUp(Protocol):
    """Further queries that follow from the exact answer to one, and the last word on all answers."""

    def queries(self, answer: FloatArray, public: PublicFacts) -> list[Query]: ...

    def finish(
        self, answer: FloatArray, answers: list[FloatArray], largest_target: float, public: PublicFacts
    ) -> Any: ...


@dataclass(frozen=True)
class LargestTarget:
    """The largest |target|."""

    def of_block(self, block: Block) -> float:
        return float(np.abs(block.targets).max(initial=0.0))


@dataclass(frozen=True, eq=False)
class ExactFollowUp(ExactQuery):
    """Queries that follow from an exact answer."""

    query: Query
    follow_up: FollowUp

    def evaluate(self, rows: Rows, public: PublicFacts) -> Any:
        answer = self.query.resolve(public).evaluate(rows, public)
        answers = [query.resolve(public).evaluate(rows, public) for query in self.follow_up.queries(answer, public)]
        return self.follow_up.finish(answer, answers, rows.reduce(LargestTarget().of_block, max), public)


@dataclass(frozen=True, eq=False)
class Known(ExactQuery):
    """Values that are known already, for a mechanism to draw noise on. No row is looked at.

    Parameters
    ----------
    values : array of shape (lines, columns)
    """

    values: FloatArray

    def evaluate(self, rows: Rows, public: PublicFacts) -> FloatArray:
        return self.values.copy()
