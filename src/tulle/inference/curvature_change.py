"""How the curvature changes between the weights where it was released and those that are estimated.

The equation that estimates solve holds with the mean of the curvature on the way from one to the other
(docs/proofs/inference.md, lemma 3). That mean is taken to be a multiple of the released curvature. The multiple follows
from the mean and the spread of margins, which the released curvature has, if margins are taken to be normal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import expit, logit

from tulle.methods.loss_functions import Logistic, Poisson
from tulle.trusted.events import FloatArray
from tulle.trusted.losses import AnyLoss

# Beyond these the multiple is a guess, and none is as good.
_LEAST, _MOST = 0.5, 2.0
# How much larger than the largest entry noise may make the usual one.
_NOISY = 1.5
# Of a margin: slopes are straight there, up to rounding.
_FARTHEST = 30.0
# Between the two ends: Simpson's rule.
_PLACES, _SHARES = (0.0, 0.5, 1.0), (1 / 6, 4 / 6, 1 / 6)
CurveKind = Literal["line", "logistic", "poisson"]

_NODES, _NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(21)


def mean_change(
    loss: AnyLoss, curvature: FloatArray, start: FloatArray, moved: FloatArray, covariance: FloatArray
) -> float:
    """The mean curvature between `start` and `start + moved`, as a multiple of that at the start.

    Parameters
    ----------
    loss : loss
    curvature : array of shape (p, p)
        At the start; the constant column is the last, with the entry 1.
    start, moved : array of shape (p,)
    covariance : array of shape (p, p)
        Of the error of start + moved, which adds to the spread of margins and is taken off it.
    """
    if not isinstance(loss, (Logistic, Poisson)) or not curvature[-1, -1] > 0:
        return 1.0
    # Of rows, each counted as often as the second derivative of its loss at the start.
    moments = curvature / curvature[-1, -1]
    means = moments[-1]
    spreads = moments - np.outer(means, means)
    surplus = float((spreads * covariance).sum())

    def multiple(place: float) -> float:
        step = place * moved
        if isinstance(loss, Poisson):
            return math.exp(min(float(means @ step + step @ spreads @ step / 2), 5.0))
        end = start + step
        noise = place * surplus
        return _mean_logistic(float(means @ end), float(end @ spreads @ end) - noise) / at_start

    at_start = _mean_logistic(float(means @ start), float(start @ spreads @ start)) if isinstance(loss, Logistic) else 1
    mean = sum(share * multiple(place) for place, share in zip(_PLACES, _SHARES))
    return min(max(mean, _LEAST), _MOST)


@dataclass(frozen=True, eq=False)
class SlopeCurves:
    """How the sum of slopes depends on each weight by itself, all else as in the average row.

    The equation of the estimates is a straight line: it takes the curvature as constant. A feature that nearly decides
    the outcome has rows of hardly any curvature at the true weight, and of far more at a weight that a penalty keeps
    shorter. There a weight on the straight line stands for another weight: the one at which the loss's own slopes, in
    the average row with the feature at its usual size, change by as much as they do on the line. The usual size is that
    where the feature is not 0 if all its entries are of one sign, else its root mean square, with both signs.

    Slopes are bounded, so that a line can leave their range: the weight is then infinite, as in any model where a
    feature decides the outcome by itself.

    Attributes
    ----------
    kind : {"line", "logistic", "poisson"}
        Whose slopes; "line" where slopes are straight, or nothing is known about the average row.
    table : array of shape (4, p)
        For each weight: where the line touches the curve, the margin of the average row without the feature, the
        feature's usual size (0: a straight line), and 1 where it has both signs.
    """

    kind: CurveKind
    table: FloatArray

    @classmethod
    def straight(cls, size: int) -> SlopeCurves:
        """As many straight lines."""
        return cls("line", np.zeros((4, size)))

    @classmethod
    def find(cls, loss: AnyLoss, curvature: FloatArray, start: FloatArray, largest: float) -> SlopeCurves:
        """The curves of features in the average row.

        Parameters
        ----------
        loss, curvature, start
            As for `mean_change`.
        largest : float
            No entry of a feature is larger.
        """
        kinds: dict[type, CurveKind] = {Logistic: "logistic", Poisson: "poisson"}
        kind = kinds.get(type(loss))
        if kind is None or not curvature[-1, -1] > 0:
            return cls.straight(len(start))
        means = curvature[-1] / curvature[-1, -1]
        of_one_sign = np.diag(curvature) / np.where(curvature[-1] == 0, 1e-300, curvature[-1])
        # Of one sign it is at most the largest entry; noise may have made it more.
        one_sign = np.abs(of_one_sign) <= _NOISY * largest
        one_sign[-1] = True
        of_both = np.sqrt(np.maximum(np.diag(curvature), 0.0) / curvature[-1, -1])
        size = np.where(one_sign, np.clip(of_one_sign, -largest, largest), np.minimum(of_both, largest))
        size[-1] = 1.0
        others = np.clip(means @ start - means * start, -_FARTHEST, _FARTHEST)
        table = np.array([start, others, size, ~one_sign], dtype=np.float64)
        return cls(kind, table if np.isfinite(table).all() else np.zeros_like(table))

    def find_weights(self, on_line: FloatArray) -> FloatArray:
        """The weights that those on the straight lines stand for: -inf or inf beyond the range of slopes."""
        start, others, size, both = self.table
        bent = (size != 0) & (self.kind != "line")
        u = np.where(bent, size, 1.0)
        moved, at = (on_line - start) * u, start * u  # as margins
        with np.errstate(all="ignore"):
            if self.kind == "poisson":
                one, two = at + np.log1p(np.maximum(moved, -1.0)), np.arcsinh(np.sinh(at) + moved * np.cosh(at))
            else:
                chance = np.clip(expit(others + at) + moved * _bend(others + at), 0.0, 1.0)
                one = logit(chance) - others
                both_bend = (_bend(others + at) + _bend(others - at)) / 2
                gap = np.clip((expit(others + at) - expit(others - at)) / 2 + moved * both_bend, -0.5, 0.5)
                two = _margin_of_gap(2 * gap, others)
            found = np.where(both > 0, two, one) / u
        return np.where(bent, found, on_line)

    def find_on_line(self, weights: FloatArray) -> FloatArray:
        """The inverse of `find_weights`, for finite weights."""
        start, others, size, both = self.table
        bent = (size != 0) & (self.kind != "line")
        u = np.where(bent, size, 1.0)
        at, to = start * u, weights * u
        with np.errstate(all="ignore"):
            if self.kind == "poisson":
                one, two = np.expm1(to - at), (np.sinh(to) - np.sinh(at)) / np.cosh(at)
            else:
                rise = expit(others + to) - expit(others + at)
                one = rise / _bend(others + at)
                two = (rise - expit(others - to) + expit(others - at)) / (_bend(others + at) + _bend(others - at))
            found = start + np.where(both > 0, two, one) / u
        return np.where(bent, found, weights)

    def find_rates(self, weights: FloatArray) -> FloatArray:
        """By how much a finite weight changes with the one on the line."""
        start, others, size, both = self.table
        at, to = start * size, weights * size
        if self.kind == "line":
            return np.ones(len(weights))
        with np.errstate(all="ignore"):
            if self.kind == "poisson":
                found = np.where(both > 0, np.cosh(at) / np.cosh(to), np.exp(at - to))
            else:
                before, after = (_bend(others + m) + np.where(both > 0, _bend(others - m), 0.0) for m in (at, to))
                found = before / after
        return np.where(np.isfinite(found), found, 1.0)


@dataclass(frozen=True, eq=False)
class AverageRow:
    """A curvature and weights, in a model whose last column is constantly 1: that column has the features' means.

    Attributes
    ----------
    loss : loss
    curvature : array of shape (q, q)
    start : array of shape (q,)
    change : array of shape (q, p)
        What makes such weights of the p fitted ones.
    """

    loss: AnyLoss
    curvature: FloatArray
    start: FloatArray
    change: FloatArray

    @classmethod
    def of_intercept(cls, loss: AnyLoss, curvature: FloatArray, start: FloatArray, value: float) -> AverageRow:
        """Where the last of the fitted columns is constant already, with this value."""
        units = np.append(np.ones(len(start) - 1), value)
        return cls(loss, curvature / np.outer(units, units), start * units, np.diag(units))

    @classmethod
    def of_periods(
        cls, loss: AnyLoss, curvature: FloatArray, start: FloatArray, periods: int, value: float
    ) -> AverageRow:
        """Where a row has this value in one of the first `periods` columns, else 0: the sum of these is constant."""
        constant = np.append(np.full(periods, 1 / value), np.zeros(len(start) - periods))
        rows = np.vstack([np.eye(len(start)), constant])
        change = np.vstack([np.eye(len(start)), np.zeros(len(start))])
        return cls(loss, rows @ curvature @ rows.T, change @ start, change)

    def mean_change(self, moved: FloatArray, covariance: FloatArray) -> float:
        """As the function `mean_change`, of fitted weights."""
        return mean_change(
            self.loss, self.curvature, self.start, self.change @ moved, self.change @ covariance @ self.change.T
        )

    def find_curves(self, largest: float) -> SlopeCurves:
        """Of the fitted weights, the intercept's in units of a constant of 1."""
        found = SlopeCurves.find(self.loss, self.curvature, self.start, largest)
        return SlopeCurves(found.kind, found.table[:, : self.change.shape[1]])


def _bend(margins: FloatArray) -> FloatArray:
    """The second derivative of the logistic loss."""
    return np.asarray(expit(margins) * expit(-margins))


def _margin_of_gap(gap: FloatArray, others: FloatArray) -> FloatArray:
    """The u at which expit(others + u) - expit(others - u) is this: a quadratic equation in e^u."""
    size = np.abs(gap) * np.cosh(others)
    root = size + np.sqrt(size**2 + 1 - gap**2)
    return np.asarray(np.sign(gap) * np.log(root / (1 - np.abs(gap))))


def _mean_logistic(mean: float, variance: float) -> float:
    """The mean of p (1 - p) where the log-odds of p are normal."""
    margins = mean + math.sqrt(max(variance, 0.0)) * _NODES
    return float(_NODE_WEIGHTS @ _bend(margins) / _NODE_WEIGHTS.sum())
