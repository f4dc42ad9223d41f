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
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import scipy.linalg

from tulle.events import FloatArray
from tulle.losses import Loss
from tulle.pieces import Pieces, bytes_of

# Rows are summed in parts of at most this many, and the parts' sums are added up in pairs: what rounding does then
# hardly grows with the number of rows, whatever blocks they lie in.
PART_ROWS = 4096

_NEWTON_STEPS = 60
_CONJUGATE_STEPS = 400
# Up to this many parameters the Hessian is formed and factorised.
_DIRECT = 128


@dataclass(frozen=True, eq=False)
class Part:
    """Some rows: their features in play (dense or CSR), already clipped, and their targets.

    It remembers what was last made of it, since one step of a solver asks for the same margins many times.
    """

    features: Any
    targets: FloatArray
    _last: dict[str, tuple[FloatArray, FloatArray]] = field(default_factory=dict, repr=False)

    def __sizeof__(self) -> int:
        return bytes_of(self)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": {}}  # it may be changing while it is copied

    def kept(self, what: str, at: FloatArray, make: Callable[[], FloatArray]) -> FloatArray:
        """What was last made under this name at the same point, or made anew."""
        known = self._last.get(what)
        if known is None or not np.array_equal(known[0], at):
            known = self._last[what] = (at.copy(), make())
        return known[1]

    def margins(self, theta: FloatArray, what: str = "margins") -> FloatArray:
        return self.kept(what, theta, lambda: np.asarray(self.features @ theta))


@dataclass(frozen=True)
class Terms:
    """What one part adds to F's derivatives.

    Parameters
    ----------
    loss : Loss
        Of one output, convex.
    slope_clip : float
        tau, in (0, inf].
    curvature : float
        Upper bound of f_tau'', > 0.
    """

    loss: Loss
    slope_clip: float
    curvature: float

    def slopes(self, margins: FloatArray, targets: FloatArray) -> FloatArray:
        slopes = self.loss.slope(margins[:, None], targets)[:, 0]
        return np.clip(np.nan_to_num(slopes, nan=0.0), -self.slope_clip, self.slope_clip)

    def gradient(self, part: Part, theta: FloatArray) -> FloatArray:
        return np.asarray(part.features.T @ self.slopes(part.margins(theta), part.targets))

    def second(self, part: Part, theta: FloatArray) -> FloatArray:
        """f_tau'' by a difference quotient: any loss, kinks included; it only steers Newton's direction."""

        def made() -> FloatArray:
            width, margins = 1e-5, part.margins(theta)
            rise = self.slopes(margins + width, part.targets) - self.slopes(margins - width, part.targets)
            return np.clip(rise / (2 * width), 0.0, self.curvature)

        return part.kept("second", theta, made)

    def hessian(self, part: Part, theta: FloatArray) -> FloatArray:
        features = part.features if isinstance(part.features, np.ndarray) else part.features.toarray()
        return np.asarray(features.T @ (self.second(part, theta)[:, None] * features))

    def hessian_times(self, part: Part, theta: FloatArray, v: FloatArray) -> FloatArray:
        return np.asarray(part.features.T @ (self.second(part, theta) * (part.features @ v)))

    def slope_along(self, part: Part, theta: FloatArray, direction: FloatArray, step: float) -> float:
        """The derivative along a direction, a step away from theta."""
        along = part.margins(direction, "along")
        return float(self.slopes(part.margins(theta) + step * along, part.targets) @ along)


@dataclass(frozen=True, eq=False)
class PenalisedSum:
    """F above, and its minimiser.

    Parameters
    ----------
    parts : Pieces of Part
    n_rows : int
        How many rows the parts have in all.
    terms : Terms
    row_bound : float
        Upper bound of the length of a row, > 0. With inf (no privacy) Newton's answer is taken as it is.
    penalty : float
        > 0.
    centre : array of shape (parameters,)
    tolerance : float
        The length of the gradient at which the solver stops, > 0.
    """

    parts: Pieces[Part]
    n_rows: int
    terms: Terms
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

    def _gradient(self, theta: FloatArray, linear_term: FloatArray) -> FloatArray:
        # Terms and keywords, not self or a closure: what is summed may travel to where the parts are.
        start = linear_term + self.penalty * (theta - self.centre)
        return np.asarray(self.parts.sum(partial(self.terms.gradient, theta=theta), start))

    # --- Newton ---

    def _newton(self, linear_term: FloatArray) -> tuple[FloatArray, FloatArray]:
        theta = self.centre.copy()
        gradient = self._gradient(theta, linear_term)
        for _ in range(_NEWTON_STEPS):
            length = float(np.linalg.norm(gradient))
            if not length > self.tolerance:
                break
            direction = self._direction(theta, gradient, length)
            step = self._line_search(theta, direction, linear_term, float(gradient @ direction))
            theta = theta + step * direction
            gradient = self._gradient(theta, linear_term)  # margins afresh, so that rounding does not build up
        return theta, gradient

    def _direction(self, theta: FloatArray, gradient: FloatArray, length: float) -> FloatArray:
        if len(gradient) <= _DIRECT:
            start = self.penalty * np.eye(len(gradient))
            hessian = self.parts.sum(partial(self.terms.hessian, theta=theta), start)
            try:
                return np.asarray(-scipy.linalg.cho_solve(scipy.linalg.cho_factor(hessian), gradient))
            except (scipy.linalg.LinAlgError, ValueError):  # too ill-conditioned for floats: the slow road will do
                return -gradient / self._steepest()

        def product(v: FloatArray) -> FloatArray:
            return np.asarray(self.parts.sum(partial(self.terms.hessian_times, theta=theta, v=v), self.penalty * v))

        # A rough direction costs few products and is soon replaced by the next one.
        return _conjugate_gradient(product, -gradient, 0.25 * length)

    def _line_search(
        self,
        theta: FloatArray,
        direction: FloatArray,
        linear_term: FloatArray,
        start: float,
    ) -> float:
        """A step at which the derivative along the direction has (almost) vanished; it increases with the step."""

        def derivative(step: float) -> float:
            moved = theta + step * direction
            total = float((linear_term + self.penalty * (moved - self.centre)) @ direction)
            along = partial(self.terms.slope_along, theta=theta, direction=direction, step=step)
            return float(self.parts.sum(along, total))

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
        return self.n_rows * self.terms.curvature * self.row_bound**2 + self.penalty

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
            gradient = self._gradient(ahead, linear_term)
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
