"""Minimising penalised sums over private rows, to a certified accuracy. Trusted: the solver sees exact sums.

    F(theta) = sum_i f_tau(<z_i, theta>, y_i) + (penalty / 2) |theta - centre|² ,

where f_tau is the loss with its slope cut at ±tau and continued linearly: still convex, with |f_tau'| <= tau. The rows
z_i are at most `row_bound` long, so each row's gradient is at most tau × row_bound, anywhere.

What privacy needs of the solver is its certificate and nothing else: |grad| <= tolerance at the answer, a tolerance
that is public and that is reached on every input (docs/proofs/objective_perturbation.md, theorem 2). Newton steps get
there in a few passes; should they ever stall, accelerated gradient descent arrives after a number of steps that the
public condition number bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg

from tulle.events import FloatArray
from tulle.losses import Loss

# Rows are summed in parts of this many, and the parts' sums are added up: rounding then grows with parts, not rows.
PART_ROWS = 4096

_NEWTON_STEPS = 60
_CONJUGATE_STEPS = 400
# Up to this many parameters the Hessian is formed and factorised.
_DIRECT = 128


@dataclass(frozen=True)
class Part:
    """Some rows: their features in play (dense or CSR), already clipped, and their targets."""

    features: Any
    targets: FloatArray


@dataclass(frozen=True, eq=False)
class PenalisedSum:
    """F above, and its minimiser.

    Parameters
    ----------
    parts : list of Part
    loss : Loss
        Of one output, convex.
    slope_clip : float
        tau, in (0, inf].
    curvature : float
        Upper bound of f_tau'', > 0.
    row_bound : float
        Upper bound of the length of a row, > 0. With inf (no privacy) Newton's answer is taken as it is.
    penalty : float
        > 0.
    centre : array of shape (parameters,)
    tolerance : float
        The length of the gradient at which the solver stops, > 0.
    """

    parts: list[Part]
    loss: Loss
    slope_clip: float
    curvature: float
    row_bound: float
    penalty: float
    centre: FloatArray
    tolerance: float

    @property
    def shape(self) -> tuple[int, ...]:
        return self.centre.shape

    def minimise(self, linear_term: FloatArray) -> FloatArray:
        """The minimiser of F + <linear_term, theta>, up to a gradient of length `tolerance`."""
        theta, gradient = self._newton(linear_term)
        if np.linalg.norm(gradient) <= self.tolerance or math.isinf(self.row_bound):
            return theta
        return self._accelerated(theta, linear_term)

    # --- sums over rows ---

    def _margins(self, theta: FloatArray) -> list[FloatArray]:
        return [np.asarray(part.features @ theta) for part in self.parts]

    def _slopes(self, margins: FloatArray, targets: FloatArray) -> FloatArray:
        slopes = self.loss.slope(margins[:, None], targets)[:, 0]
        return np.clip(np.nan_to_num(slopes, nan=0.0), -self.slope_clip, self.slope_clip)

    def _gradient(self, theta: FloatArray, margins: list[FloatArray], linear_term: FloatArray) -> FloatArray:
        total = linear_term + self.penalty * (theta - self.centre)
        for part, m in zip(self.parts, margins):
            total = total + part.features.T @ self._slopes(m, part.targets)
        return total

    def _second(self, margins: FloatArray, targets: FloatArray) -> FloatArray:
        """f_tau'' by a difference quotient: any loss, kinks included; it only steers Newton's direction."""
        width = 1e-5
        rise = self._slopes(margins + width, targets) - self._slopes(margins - width, targets)
        return np.clip(rise / (2 * width), 0.0, self.curvature)

    # --- Newton ---

    def _newton(self, linear_term: FloatArray) -> tuple[FloatArray, FloatArray]:
        theta = self.centre.copy()
        margins = self._margins(theta)
        gradient = self._gradient(theta, margins, linear_term)
        for _ in range(_NEWTON_STEPS):
            length = float(np.linalg.norm(gradient))
            if not length > self.tolerance:
                break
            second = [self._second(m, part.targets) for m, part in zip(margins, self.parts)]
            direction = self._direction(second, gradient, length)
            along = self._margins(direction)
            step = self._line_search(theta, margins, direction, along, linear_term, float(gradient @ direction))
            theta = theta + step * direction
            margins = self._margins(theta)  # afresh, so that rounding does not build up
            gradient = self._gradient(theta, margins, linear_term)
        return theta, gradient

    def _direction(self, second: list[FloatArray], gradient: FloatArray, length: float) -> FloatArray:
        if len(gradient) <= _DIRECT:
            hessian = self.penalty * np.eye(len(gradient))
            for part, weights in zip(self.parts, second):
                features = part.features if isinstance(part.features, np.ndarray) else part.features.toarray()
                hessian += features.T @ (weights[:, None] * features)
            try:
                return np.asarray(-scipy.linalg.cho_solve(scipy.linalg.cho_factor(hessian), gradient))
            except (scipy.linalg.LinAlgError, ValueError):  # too ill-conditioned for floats: the slow road will do
                return -gradient / self._steepest()

        def product(v: FloatArray) -> FloatArray:
            total = self.penalty * v
            for part, weights in zip(self.parts, second):
                total = total + part.features.T @ (weights * (part.features @ v))
            return total

        # A rough direction costs few products and is soon replaced by the next one.
        return _conjugate_gradient(product, -gradient, 0.25 * length)

    def _line_search(
        self,
        theta: FloatArray,
        margins: list[FloatArray],
        direction: FloatArray,
        along: list[FloatArray],
        linear_term: FloatArray,
        start: float,
    ) -> float:
        """A step at which the derivative along the direction has (almost) vanished; it increases with the step."""

        def derivative(step: float) -> float:
            moved = theta + step * direction
            total = float((linear_term + self.penalty * (moved - self.centre)) @ direction)
            for part, m, a in zip(self.parts, margins, along):
                total += float(self._slopes(m + step * a, part.targets) @ a)
            return total

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

    # --- the slow road that always arrives ---

    def _steepest(self) -> float:
        """Upper bound of the objective's curvature."""
        n = sum(len(part.targets) for part in self.parts)
        return n * self.curvature * self.row_bound**2 + self.penalty

    def _accelerated(self, theta: FloatArray, linear_term: FloatArray) -> FloatArray:
        """Nesterov's method for strongly convex functions: the gradient's length falls by a constant factor a step."""
        steepest = self._steepest()
        root = math.sqrt(steepest / self.penalty)
        momentum = (root - 1) / (root + 1)
        if not np.isfinite(theta).all():
            theta = self.centre
        best, last = theta, theta
        shortest = math.inf
        # |grad|² falls by (1 - 1 / root) a step; 100 decimal orders are beyond what floats can hold.
        for _ in range(math.ceil(230 * root)):
            ahead = theta + momentum * (theta - last)
            gradient = self._gradient(ahead, self._margins(ahead), linear_term)
            length = float(np.linalg.norm(gradient))
            if length < shortest:
                best, shortest = ahead, length
            if length <= self.tolerance:
                break
            last, theta = theta, ahead - gradient / steepest
        return best


def _conjugate_gradient(product: Callable[[FloatArray], FloatArray], target: FloatArray, wanted: float) -> FloatArray:
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
