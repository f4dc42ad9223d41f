"""Questions to clients as data: a method of a query with its keywords, and the shape that its answer has."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tulle.estimators import bounds
from tulle.fast import exact_answers
from tulle.fast.coordinate_path import PathPoint
from tulle.fast.newton import NewtonTerms
from tulle.fast.sparse_weights import SparseWeights
from tulle.methods import row_functions
from tulle.trusted import clipped_sum, hooks, objectives
from tulle.trusted.facts import PublicFacts


@dataclass(frozen=True)
class Expected:
    """The shape of an answer: () for a number; of a matrix of few lines where `sparse`."""

    shape: tuple[int, ...]
    sparse: bool = False

    def fits(self, value: Any) -> bool:
        """Whether a value can be such an answer: numbers that are finite, of the shape."""
        if self.sparse:
            return isinstance(value, SparseWeights) and value.shape == self.shape and _finite(value.values)
        if not self.shape:
            return isinstance(value, float) and math.isfinite(value)
        return isinstance(value, np.ndarray) and value.shape == self.shape and _finite(value)


def _finite(values: npt.NDArray[Any]) -> bool:
    return values.dtype == np.float64 and bool(np.isfinite(values).all())


@dataclass(frozen=True)
class Allowed:
    """A method that clients answer: its keywords, and the shape of what it makes of one block, or of one part."""

    keywords: tuple[str, ...]
    expected: Callable[..., Expected]


def _sum_of_rows(of: clipped_sum.ClippedSum, public: PublicFacts) -> Expected:
    if of.coordinates is not None:
        return Expected((1, of.shape[1]))
    return Expected(of.shape, sparse=of.in_batches and of.times == "rows" and hooks.get("batches") is not None)


# Every method of a query that is asked of blocks of rows.
OF_ROWS: dict[tuple[type, str], Allowed] = {
    (clipped_sum.ClippedSum, "_contribution"): Allowed(("public",), _sum_of_rows),
    (bounds.QuantileScores, "_counts"): Allowed((), lambda of: Expected(of.grid.shape)),
    (exact_answers.LargestTarget, "of_block"): Allowed((), lambda of: Expected(())),
}

# What a sum is made of at each row: clients run no other row functions.
ROW_FUNCTIONS: tuple[type, ...] = (
    row_functions.LossSlopes,
    row_functions.RowWeights,
    row_functions.SlopeChanges,
    row_functions.SquaredMargins,
    row_functions.FeaturesAndTarget,
    row_functions.RootsOfMoments,
)

# Parts that are made of blocks and kept with them, for many sums.
DERIVED: dict[tuple[type, str], Allowed] = {
    (objectives.Minimiser, "_parts"): Allowed(("public",), lambda of, **_: Expected(())),
}

# Sums over the parts that were made.
OF_PARTS: dict[tuple[type, str], Allowed] = {
    (objectives.RowTerms, "gradient"): Allowed(("theta",), lambda of, theta: Expected(theta.shape)),
    (objectives.RowTerms, "wide_gradient"): Allowed(("theta",), lambda of, theta: Expected(theta.shape)),
    (NewtonTerms, "gradient"): Allowed(("theta",), lambda of, theta: Expected(theta.shape)),
    (NewtonTerms, "hessian"): Allowed(("theta",), lambda of, theta: Expected((*theta.shape, *theta.shape))),
    (NewtonTerms, "hessian_times"): Allowed(("theta", "v"), lambda of, theta, v: Expected(v.shape)),
    (NewtonTerms, "slope_along"): Allowed(("theta", "direction", "step"), lambda of, **_: Expected(())),
}


@dataclass(frozen=True, eq=False)
class Scattered:
    """A dense matrix, or the weights at a point of a path, most lines of which are zero."""

    weights: SparseWeights


@dataclass(frozen=True, eq=False)
class Question:
    """A method of an object, with keywords, that is summed over rows or parts."""

    of: Any
    method: str
    keywords: tuple[tuple[str, Any], ...]


def find_function(question: Question, allowed: Mapping[tuple[type, str], Allowed]) -> Callable[[Any], Any]:
    """The function that a question stands for, of those that are installed here.

    Raises
    ------
    ValueError
        Where it is none that is answered.
    """
    of = unpack(question.of)
    entry = allowed.get((type(of), question.method))
    keywords = dict(question.keywords)
    if entry is None or len(keywords) < len(question.keywords) or set(keywords) != set(entry.keywords):
        raise ValueError("no such question is answered")
    return partial(getattr(of, question.method), **keywords)


def pack(of: Any) -> Any:
    """An object as it travels: weights as their lines that are not zero, and nothing that the client does not read."""
    changed: dict[str, Any] = {}
    for part in fields(of):
        value = getattr(of, part.name)
        if isinstance(value, clipped_sum.RowFunction):
            changed[part.name] = pack(value)
        elif isinstance(value, PathPoint):
            changed[part.name] = None if part.name == "path" else Scattered(SparseWeights.from_dense(np.asarray(value)))
        elif isinstance(value, np.ndarray) and value.ndim == 2 and value.dtype == np.float64:
            changed[part.name] = Scattered(SparseWeights.from_dense(value))
    return replace(of, **changed) if changed else of


def unpack(of: Any) -> Any:
    """An object as it was before `pack`, except for fields that the client does not read."""
    if not is_dataclass(of) or isinstance(of, type):
        return of
    parts = {part.name: getattr(of, part.name) for part in fields(of)}
    dense: dict[str, Any] = {
        name: value.weights.to_dense() for name, value in parts.items() if isinstance(value, Scattered)
    }
    dense |= {name: unpack(value) for name, value in parts.items() if type(value) in ROW_FUNCTIONS}
    return replace(of, **dense) if dense else of
