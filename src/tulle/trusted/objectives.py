"""Minimisers of penalised sums over private rows, certified. Proof: docs/proofs/objective_perturbation.md.

    F(theta) = sum_i f_tau(<z_i, theta>, y_i) + (penalty / 2) |theta - centre|² ,

where f_tau is the loss with its slope cut at ±tau and continued linearly: still convex, with |f_tau'| <= tau. The rows
z_i are at most `row_bound` long, so each row's gradient is at most tau × row_bound, anywhere.

Privacy needs one thing of a solver: its answer is near the minimiser, by a public distance, on every input (theorem 2).
A solver that is installed (`tulle.fast.newton`) proposes a point. It is accepted if the gradient, evaluated here, and
what rounding can hide of it are short; else gradient descent in wider floats arrives in a public number of steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tulle.trusted import hooks
from tulle.trusted.clipped_sum import LEAST_BOUND, compute_lengths, take_clipped_rows
from tulle.trusted.events import FloatArray
from tulle.trusted.facts import PublicFacts
from tulle.trusted.losses import ConvexLoss
from tulle.trusted.mechanisms import ObjectivePerturbation, ObjectiveSensitivity, Sensitivity
from tulle.trusted.queries import Query, vouch_for_query
from tulle.trusted.rows import Block, Pieces, Rows

# Rows are summed in parts of at most this many, and the parts' sums are added up in pairs: the rounding error
# then hardly grows with the number of rows, for any division of the rows into blocks.
PART_ROWS = 4096
# Relative rounding errors: of float64, and of the widest floats that numpy has here, which may be the same.
_ERROR = 2.0**-53
_WIDE_ERROR = max(float(np.finfo(np.longdouble).eps) / 2, 2.0**-64)


def _length(vector: FloatArray) -> float:
    return float(compute_lengths(vector[None, :].astype(np.float64))[0]) if len(vector) else 0.0


@dataclass(frozen=True, eq=False)
class Part:
    """Some rows: their features in play (dense or CSR), already clipped, and their targets."""

    features: Any
    targets: FloatArray


@dataclass(frozen=True)
class RowTerms:
    """What the rows of a part add to F's gradient: a convex `loss`, its slopes cut at ±`slope_clip` (tau, in (0, inf]);
    `curvature` > 0 is an upper bound of f_tau'', `wide_error` of the error of wide floats wherever the parts are."""

    loss: ConvexLoss
    slope_clip: float
    curvature: float
    wide_error: float = _WIDE_ERROR

    def slopes(self, margins: FloatArray, targets: FloatArray) -> FloatArray:
        if self.wide_error < _WIDE_ERROR:  # at every point, so that it says nothing about rows
            raise ValueError("the floats of this machine are narrower than those of the machine that asks")
        slopes = self.loss.slope(margins[:, None], targets)[:, 0]
        return np.clip(np.nan_to_num(slopes, nan=0.0), -self.slope_clip, self.slope_clip)

    def gradient(self, part: Part, theta: FloatArray) -> FloatArray:
        return np.asarray(part.features.T @ self.slopes(np.asarray(part.features @ theta), part.targets))

    def wide_gradient(self, part: Part, theta: FloatArray) -> FloatArray:
        """The same, computed in the widest floats."""
        wide = Part(part.features.astype(np.longdouble), part.targets)
        return self.gradient(wide, theta.astype(np.longdouble)).astype(np.float64)


@dataclass(frozen=True, eq=False)
class PenalisedSum:
    """F above, and its minimiser.

    An answer is accepted where the gradient is at most `tolerance` + `rounding` × the linear term long; with no privacy
    (no bound on rows or slopes), as the solver gives it. `steepest` is an upper bound of F's curvature.
    """

    parts: Pieces[Part]
    terms: RowTerms
    row_bound: float
    penalty: float
    steepest: float
    centre: FloatArray
    tolerance: float
    rounding: float

    @property
    def shape(self) -> tuple[int, ...]:
        return self.centre.shape

    def to_dense(self) -> FloatArray:
        """The minimiser itself, as a column."""
        return self.minimise(np.zeros(self.shape))[:, None]

    def minimise(self, linear_term: FloatArray) -> FloatArray:
        """A point near the minimiser of F + <linear_term, theta>."""
        private = max(self.row_bound, self.terms.slope_clip) < math.inf
        theta = self._proposal(linear_term, private)
        if not private:
            return theta
        length = _length(self._gradient(theta, linear_term))
        enough = self.tolerance + self.rounding * _length(linear_term)
        if length + self._hidden(theta, _ERROR) <= enough:
            return theta
        nearer = length < _length(self._gradient(self.centre, linear_term))
        return self._descend(theta if nearer else self.centre, linear_term, enough)

    def _hidden(self, theta: FloatArray, error: float) -> float:
        """What rounding can hide of a gradient: in margins, of this relative error, and in the penalty's part."""
        relative = (len(theta) + 8) * error * self.steepest + 8 * _ERROR * self.penalty
        return relative * (_length(theta) + _length(self.centre))

    def _proposal(self, linear_term: FloatArray, private: bool) -> FloatArray:
        """The solver's answer, which nothing is known of; the centre where it is no finite point of the right shape."""
        solver = hooks.get("solver")
        if solver is None and not private:
            raise RuntimeError("no solver is installed, and without bounds on rows gradient descent has no step size")
        try:
            # Copies: what the certificate is for cannot be changed by the solver.
            given = replace(self, centre=self.centre.copy()), linear_term.copy()
            theta = self.centre if solver is None else np.array(solver(*given), dtype=np.float64)
        except Exception:
            if not private:
                raise
            theta = self.centre  # an error that depends on rows must not leave
        return theta if theta.shape == self.shape and np.isfinite(theta).all() else self.centre

    def _gradient(self, theta: FloatArray, linear_term: FloatArray, wide: bool = False) -> FloatArray:
        # Terms and keywords, not self or a closure: the function may be sent to where the parts are.
        start = linear_term + self.penalty * (theta - self.centre)
        of_part = self.terms.wide_gradient if wide else self.terms.gradient
        return np.asarray(self.parts.sum(partial(of_part, theta=theta), start))

    def _descend(self, theta: FloatArray, linear_term: FloatArray, enough: float) -> FloatArray:
        """Nesterov's method, whose gradients fall by a constant factor a step: |grad|² by 1 - 1 / root. Where rounding
        still keeps it from a certificate, plain steps from the centre: they end near the minimiser (theorem 2)."""
        root = math.sqrt(self.steepest / self.penalty)
        fast, plain = ((root - 1) / (root + 1), 230 * root, theta), (0.0, 100 * root**2, self.centre)
        for momentum, steps, start in (fast, plain):
            theta = last = start
            for _ in range(math.ceil(steps)):
                ahead = theta + momentum * (theta - last)
                gradient = self._gradient(ahead, linear_term, wide=True)
                if _length(gradient) + self._hidden(ahead, _WIDE_ERROR) <= enough:
                    return ahead
                last, theta = theta, ahead - gradient / self.steepest
        return theta


@vouch_for_query
@dataclass(frozen=True, eq=False)
class Minimiser(Query):
    """The minimiser of a penalised loss over a few public directions: what objective perturbation perturbs.

    The row z_i of F holds x_i on `features` (mixed by `mixing`, if given) and the constant column's entry, and is
    scaled down to `row_bound` if it is longer. So, for every theta and every row, |gradient| <= tau × row_bound =: G,
    and the Hessian of one row has rank one and norm at most curvature × row_bound².

    Replacing a row moves the gradient by at most 2 G, and log det of the Hessian by at most
    log(1 + curvature × row_bound² / penalty): one row's rank one is taken from, another's added to, something that is
    at least the penalty. Clipping cannot enforce convexity, so losses other than tulle's own are refused.

    The minimiser itself, to which noise may be added too, moves by at most 2 G k / penalty, k rows per unit: F is
    penalty-strongly convex on a fixed space, and the features are public. The solver's answers are within 1.25
    tolerance / penalty of it.

    The features, the centre and the mixing (features × directions; None is one direction for each feature) are public
    already. slope_clip (tau) and row_bound lie in (0, inf], inf only without privacy; the penalty in (0, inf). The
    constant column, with entry `intercept_value`, is the last direction; 0 is no intercept. `output` is the class that
    is compared with the others, for a one-against-the-rest loss.
    """

    features: npt.NDArray[np.intp]
    slope_clip: float
    row_bound: float
    penalty: float
    centre: FloatArray
    intercept_value: float = 0.0
    mixing: FloatArray | None = None
    output: int = 0
    itself: bool = False  # whether noise is to be added to the minimiser itself: it is found to more digits

    def __post_init__(self) -> None:
        if not (0 < self.penalty < math.inf and self.slope_clip > 0 and self.row_bound >= LEAST_BOUND):
            given = f"{self.penalty}, {self.slope_clip} and {self.row_bound}"
            raise ValueError(f"penalty and slope_clip must be > 0 and row_bound at least {LEAST_BOUND:g}, got {given}")

    def _loss(self, public: PublicFacts) -> ConvexLoss:
        if public.convex_loss is None:
            raise ValueError(f"{public.loss!r} is not a loss of tulle's own that is known to be convex in each margin")
        return public.convex_loss

    def _curvature(self, public: PublicFacts) -> float:
        return self._loss(public).curvature_within(self.slope_clip, public.label)

    def _steepest(self, public: PublicFacts) -> float:
        return public.n_rows * self._curvature(public) * self.row_bound**2 + self.penalty

    def _gradient_moves(self, public: PublicFacts) -> float:
        """How far replacing a unit can move the gradient; inf without privacy, where nothing bounds it."""
        return 2.0 * self.slope_clip * self.row_bound * public.rows_per_unit

    def _tolerance(self, public: PublicFacts) -> float:
        """The noise that hides the remaining distance is then a tenth of what the linear term puts on a coordinate of
        average curvature. Of the minimiser itself, a millionth of what a unit can do. Never below the roundings."""
        if math.isinf(self._gradient_moves(public)):  # nothing is to be hidden
            return self._rounding(public)
        least = max(self._rounding(public), self._step_rounding(public) * self._reach(public))
        if self.itself:
            return max(least, 1e-6 * self._gradient_moves(public))
        typical = self.penalty + (self._steepest(public) - self.penalty) / max(len(self.centre), 1)
        hidden = 0.1 * self._gradient_moves(public) / (2.5 * ObjectivePerturbation.CERTIFICATE)
        return max(least, hidden * self.penalty / typical)

    def _step_rounding(self, public: PublicFacts) -> float:
        """What rounding can make of the end of descent, as a gradient, per length of the linear term (theorem 2)."""
        return 4.0 * ((len(self.centre) + 8) * _WIDE_ERROR + 12 * _ERROR) * self._steepest(public) / self.penalty

    def _reach(self, public: PublicFacts) -> float:
        """The length of a linear term that leads as far from 0 as the centre and the rows do (theorem 2)."""
        n, length = public.n_rows, _length(self.centre)
        slope = self.slope_clip * self.row_bound
        fall = self._loss(public).fall(public.label) + slope * length
        return 0.5 * (self.penalty * length + min(n * slope, math.sqrt(2 * n * fall * self.penalty)))

    def _rounding(self, public: PublicFacts) -> float:
        """Eight times what rounding can make of the sum of n gradients by parts; of length 1 each, without privacy."""
        n = public.n_rows
        additions = PART_ROWS + math.ceil(n / PART_ROWS) + len(self.centre) + 8
        rounding = 8 * additions * 2.0**-53 * n
        if math.isinf(self._gradient_moves(public)):
            return rounding
        slope = self.slope_clip + (public.label if public.label < math.inf else 0.0)
        return rounding * slope * self.row_bound

    def sensitivity(self, public: PublicFacts) -> Sensitivity:
        if self._step_rounding(public) > 1 / 256 and self._gradient_moves(public) < math.inf:
            raise ValueError(f"a penalty of {self.penalty:g} is too small for floats to find the minimiser")
        curvature = self._curvature(public) * self.row_bound**2 / self.penalty
        moves = ObjectiveSensitivity(
            gradient=self._gradient_moves(public),
            log_determinant=math.log1p(curvature) * public.rows_per_unit,
            minimiser=2.5 * self._tolerance(public) / self.penalty,
            penalty=self.penalty,
            rounding=self._step_rounding(public),
            one_sided=self._loss(public).one_sided,
            rows_per_unit=public.rows_per_unit,
        )
        l2, root = (moves.gradient + 2.5 * self._tolerance(public)) / self.penalty, math.sqrt(len(self.centre))
        return Sensitivity(l1=root * l2, l2=l2) if self.itself else Sensitivity(objective=moves)  # Cauchy-Schwarz

    def size(self, public: PublicFacts) -> float:
        pull = public.n_rows * self.slope_clip * self.row_bound
        return _length(self.centre) + (pull + 1.25 * self._tolerance(public)) / self.penalty

    def evaluate(self, rows: Rows, public: PublicFacts) -> PenalisedSum:
        return PenalisedSum(
            parts=rows.derive(partial(self._parts, public=public)),
            terms=RowTerms(self._loss(public), self.slope_clip, self._curvature(public)),
            row_bound=self.row_bound,
            penalty=self.penalty,
            steepest=self._steepest(public),
            centre=self.centre,
            tolerance=self._tolerance(public),
            rounding=self._step_rounding(public),
        )

    def _parts(self, block: Block, public: PublicFacts) -> list[Part]:
        features = take_clipped_rows(block, self.features, self.intercept_value, self.row_bound, self.mixing)
        targets = block.targets
        if public.loss.n_outputs > 1:  # one class against the rest
            targets = np.where(targets == self.output, 1.0, -1.0)
        # The curvature's bound is for such targets. Elsewhere they were coded and clipped before: nothing changes.
        bound = 1.0 if self._loss(public).one_sided else public.label
        targets = np.clip(targets, -bound, bound)
        cuts = range(0, block.n_rows, PART_ROWS)
        return [Part(features[k : k + PART_ROWS], targets[k : k + PART_ROWS]) for k in cuts]
