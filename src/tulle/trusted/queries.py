"""Queries: what may be asked of private rows, each with its sensitivity and the argument for it.

Adjacency is replace-one: the number of rows n is public, and one unit (a row, or a person with at most `rows_per_unit`
rows) is replaced. Almost everything is a sum of `tulle.trusted.clipped_sum`, or made of one. Proof page:
docs/proofs/clipped_sum.md.

`evaluate` is called by the curator alone. `size` bounds the ℓ2 norm of the exact answer from public quantities; only
the statement on floating point uses it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from tulle.trusted import hooks
from tulle.trusted.events import FloatArray
from tulle.trusted.facts import PublicFacts
from tulle.trusted.mechanisms import Sensitivity, has_plain_fields
from tulle.trusted.rows import Rows

Mask = npt.NDArray[np.bool_]
# Below every score, and finite: sums with noise stay numbers.
_PASSED_OVER = -1e200


class Query(ABC):
    """A function of all private rows with a bounded change when one unit is replaced."""

    def resolve(self, public: PublicFacts) -> Query:
        """The query with everything decided that depends on public facts, and so in the one that it is made of, if any.
        The curator asks this one."""
        inner = getattr(self, "query", None)
        return self if inner is None else replace(cast(Any, self), query=inner.resolve(public))

    @abstractmethod
    def sensitivity(self, public: PublicFacts) -> Sensitivity: ...

    def one_unit(self, public: PublicFacts) -> float:
        """Bounds the ℓ2 norm of what one unit adds to the answer, compared with nothing in its place: of batches, which
        may or may not hold the unit. inf where no bound is claimed."""
        return math.inf

    @abstractmethod
    def size(self, public: PublicFacts) -> float: ...

    def largest(self, public: PublicFacts) -> float:
        """Bounds the largest entry of the exact answer, from public quantities."""
        return self.size(public)

    @abstractmethod
    def evaluate(self, rows: Rows, public: PublicFacts) -> Any:
        """The exact answer: an array, an objective for objective perturbation, or scores on demand for a noisy max."""


# Queries that are answered with noise, by exact type: a class of another package could state any sensitivity.
_ANSWERED: set[type[Query]] = set()


def vouch_for_query(query: type[Query]) -> type[Query]:
    """Have queries of this very type answered with noise: their sensitivity is proved on a proof page."""
    _ANSWERED.add(query)
    return query


def is_answered(query: Query) -> bool:
    """Whether a query, and the one that it is made of, may be answered with noise."""
    inner = getattr(query, "query", None)
    return type(query) in _ANSWERED and has_plain_fields(query) and (inner is None or is_answered(inner))


@vouch_for_query
@dataclass(frozen=True, eq=False)
class Affine(Query):
    """start + factor × another query: only that query's sensitivity counts, times |factor|."""

    query: Query
    start: Any  # of the answer's shape: an array, or what has a norm(), an upper bound, and numpy makes an array of
    factor: float
    start_size: float = 0.0  # taken for the norm of `start` where it is larger

    def sensitivity(self, public: PublicFacts) -> Sensitivity:
        return self.query.sensitivity(public).times(abs(self.factor))

    def one_unit(self, public: PublicFacts) -> float:
        return self.query.one_unit(public) * abs(self.factor)

    def size(self, public: PublicFacts) -> float:
        norm = float(np.linalg.norm(self.start)) if isinstance(self.start, np.ndarray) else self.start.norm()
        return max(norm, self.start_size) + abs(self.factor) * self.query.size(public)

    def evaluate(self, rows: Rows, public: PublicFacts) -> Any:
        answer, batches = self.query.evaluate(rows, public), hooks.get("batches")
        if batches is not None and not isinstance(answer, np.ndarray):
            return batches.step(self.start, answer, self.factor)
        answer *= self.factor
        answer += np.asarray(self.start)
        return answer


@vouch_for_query
@dataclass(frozen=True, eq=False)
class Magnitudes(Query):
    """The magnitudes of the features' lines of another query: scores for a selection. ||a| - |b|| <= |a - b|."""

    query: Query
    # (features, outputs): those that score less than all others for any rows. A constant moves nothing.
    passed_over: Mask | None = None

    def sensitivity(self, public: PublicFacts) -> Sensitivity:
        return self.query.sensitivity(public)

    def size(self, public: PublicFacts) -> float:
        return self.query.size(public)

    def evaluate(self, rows: Rows, public: PublicFacts) -> FloatArray:
        scores = np.abs(self.query.evaluate(rows, public)[: public.n_features])
        np.copyto(scores, _PASSED_OVER, where=False if self.passed_over is None else self.passed_over)  # no more scores
        return scores


@vouch_for_query
@dataclass(frozen=True, eq=False)
class VertexScores(Query):
    """Minus the slope of the loss towards each vertex of a polytope: scores for a selection.

    By Hölder's inequality |<v, g> - <v, g'>| <= |v|_1 |g - g'|_inf.
    """

    query: Query  # a gradient g, clipped in ℓ∞
    vertices: Any  # public; an array or sparse array of shape (vertices, lines)

    def _radius(self) -> float:
        """The largest |v|_1, rounded up."""
        lengths = abs(self.vertices.astype(np.float64)).sum(axis=-1)  # in int8, |-128| is -128
        return float(lengths.max()) * (1.0 + 2.0**-52 * self.vertices.shape[-1])

    def sensitivity(self, public: PublicFacts) -> Sensitivity:
        # Scores are sums over parameters, and their rounding is beyond what the curator adds for sums over rows.
        rounding = 1.0 + 2.0**-52 * public.n_parameters * (public.n_rows + 2.0)
        return Sensitivity(linf=rounding * self._radius() * self.query.sensitivity(public).linf)

    def largest(self, public: PublicFacts) -> float:
        return self._radius() * self.query.largest(public)

    def size(self, public: PublicFacts) -> float:
        return self.largest(public) * math.sqrt(self.vertices.shape[0] * public.loss.n_outputs)

    def evaluate(self, rows: Rows, public: PublicFacts) -> FloatArray:
        return np.asarray(self.vertices @ -self.query.evaluate(rows, public))
