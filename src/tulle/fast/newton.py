"""Newton's method for penalised sums over rows: a few passes where gradient descent takes thousands.

Checked, not trusted: `tulle.trusted.objectives` evaluates the gradient at the answer itself and goes on alone where it
is too long. A bug here costs time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np
import scipy.linalg

from tulle.trusted.events import FloatArray
from tulle.trusted.objectives import Part, PenalisedSum, RowTerms

_STEPS = 60
_CONJUGATE_STEPS = 400
# Up to this many parameters the Hessian is formed and factorised.
_DIRECT = 128

# What was last computed of each part, and where: one step asks for the same margins many times.
_LAST: WeakKeyDictionary[Part, dict[str, tuple[FloatArray, FloatArray]]] = WeakKeyDictionary()
# The points of the last parts, as long as any part has them.
_POINTS: WeakValueDictionary[str, FloatArray] = WeakValueDictionary()


def remember(part: Part, what: str, at: FloatArray, compute: Callable[[], FloatArray]) -> FloatArray:
    """What was last computed under this name at the same point, or computed anew.

    Parts share one copy of a point: a copy for each of vectors that are as long as rows are wide would take more memory
    than the rows.
    """
    last = _LAST.setdefault(part, {})
    known = last.get(what)
    if known is None or not np.array_equal(known[0], at):
        point = _POINTS.get(what)
        if point is None or not np.array_equal(point, at):
            point = _POINTS[what] = at.copy()
        known = last[what] = (point, compute())
    return known[1]


def margins_of(part: Part, theta: FloatArray) -> FloatArray:
    return remember(part, "margins", theta, lambda: np.asarray(part.features @ theta))


def plain_features(part: Part) -> Any:
    """The matrix of a part, without the offsets of rows that have any."""
    return getattr(part.features, "plain", part.features)


def weigh(part: Part, values: FloatArray) -> FloatArray:
    """A value of each row times the weight of the row, where rows have weights."""
    weights = getattr(part.features, "weights", None)
    return values if weights is None else weights * values


@dataclass(frozen=True)
class NewtonTerms(RowTerms):
    """What one part adds to the derivatives that Newton's method needs."""

    def gradient(self, part: Part, theta: FloatArray) -> FloatArray:
        return np.asarray(part.features.T @ self.slopes(margins_of(part, theta), part.targets))

    def second(self, part: Part, theta: FloatArray) -> FloatArray:
        """f_tau'' by a difference quotient: any loss, kinks included; it only steers the direction."""

        def compute() -> FloatArray:
            width, margins = 1e-5, margins_of(part, theta)
            rise = self.slopes(margins + width, part.targets) - self.slopes(margins - width, part.targets)
            return np.clip(rise / (2 * width), 0.0, self.curvature)

        return remember(part, "second", theta, compute)

    def hessian(self, part: Part, theta: FloatArray) -> FloatArray:
        plain = plain_features(part)
        features = plain if isinstance(plain, np.ndarray) else plain.toarray()
        return np.asarray(features.T @ (weigh(part, self.second(part, theta))[:, None] * features))

    def hessian_times(self, part: Part, theta: FloatArray, v: FloatArray) -> FloatArray:
        return np.asarray(part.features.T @ (self.second(part, theta) * (plain_features(part) @ v)))

    def slope_along(self, part: Part, theta: FloatArray, direction: FloatArray, step: float) -> float:
        """The derivative along a direction, a step away from theta."""
        along = remember(part, "along", direction, lambda: np.asarray(plain_features(part) @ direction))
        return float(weigh(part, self.slopes(margins_of(part, theta) + step * along, part.targets)) @ along)


@dataclass(frozen=True)
class _Search:
    """The search for the minimiser of an objective + <linear_term, theta>."""

    of: PenalisedSum
    terms: NewtonTerms
    linear_term: FloatArray

    def gradient(self, theta: FloatArray) -> FloatArray:
        start = self.linear_term + self.of.penalty * (theta - self.of.centre)
        return np.asarray(self.of.parts.sum(partial(self.terms.gradient, theta=theta), start))

    def direction(self, theta: FloatArray, gradient: FloatArray, length: float) -> FloatArray:
        parts, penalty = self.of.parts, self.of.penalty
        if len(gradient) <= _DIRECT:
            hessian = parts.sum(partial(self.terms.hessian, theta=theta), penalty * np.eye(len(gradient)))
            try:
                return np.asarray(-scipy.linalg.cho_solve(scipy.linalg.cho_factor(hessian), gradient))
            except (scipy.linalg.LinAlgError, ValueError):  # too ill-conditioned for floats
                return -gradient / self.of.steepest

        def product(v: FloatArray) -> FloatArray:
            return np.asarray(parts.sum(partial(self.terms.hessian_times, theta=theta, v=v), penalty * v))

        # A rough direction costs few products and is soon replaced by the next one. Rougher ones cost as many products
        # in all, and more gradients.
        return conjugate_gradient(product, -gradient, 0.1 * length)

    def step(self, theta: FloatArray, direction: FloatArray, start: float) -> float:
        """A step at which the derivative along the direction has (almost) vanished; it increases with the step."""

        def derivative(step: float) -> float:
            moved = theta + step * direction
            total = float((self.linear_term + self.of.penalty * (moved - self.of.centre)) @ direction)
            along = partial(self.terms.slope_along, theta=theta, direction=direction, step=step)
            return float(self.of.parts.sum(along, total))

        low, high = 0.0, 1.0
        while (slope := derivative(high)) < 0.5 * start and high < 1e6:
            low, high = high, 2 * high
        for _ in range(60):
            if abs(slope) <= 0.1 * abs(start) or (high == 1.0 and slope <= 0):
                return high
            middle = (low + high) / 2
            at_middle = derivative(middle)
            if at_middle <= 0:
                low = middle
                if at_middle >= 0.5 * start:
                    return middle
            else:
                high, slope = middle, at_middle
        return low or high


def minimise(objective: PenalisedSum, linear_term: FloatArray) -> FloatArray:
    """Newton steps with a line search from the centre, until the gradient is short enough to be accepted."""
    terms = objective.terms
    search = _Search(objective, NewtonTerms(terms.loss, terms.slope_clip, terms.curvature), linear_term)
    theta = objective.centre.copy()
    gradient = search.gradient(theta)
    for _ in range(_STEPS):
        length = float(np.linalg.norm(gradient))
        if not length > objective.tolerance / 2:  # the rest is for rounding
            break
        direction = search.direction(theta, gradient, length)
        theta = theta + search.step(theta, direction, float(gradient @ direction)) * direction
        gradient = search.gradient(theta)  # margins afresh, so that rounding does not build up
    return theta


def conjugate_gradient(product: Callable[[FloatArray], FloatArray], target: FloatArray, wanted: float) -> FloatArray:
    """An approximate solution of H p = target with a residual of length `wanted`."""
    solution = np.zeros_like(target)
    residual = target.copy()
    search = residual.copy()
    square = float(residual @ residual)
    for _ in range(_CONJUGATE_STEPS):
        image = product(search)
        curve = float(search @ image)
        if not 0 < curve < math.inf:  # out of what floats can hold
            break
        step = square / curve
        solution += step * search
        residual -= step * image
        following = float(residual @ residual)
        if not math.sqrt(following) > wanted:
            break
        search = residual + (following / square) * search
        square = following
    return solution
