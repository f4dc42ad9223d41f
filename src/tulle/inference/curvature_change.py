"""How the curvature changes between the weights where it was released and those that are estimated.

The equation that estimates solve holds with the mean of the curvature on the way from one to the other
(docs/proofs/inference.md, lemma 3). That mean is taken to be a multiple of the released curvature. The multiple follows
from the mean and the spread of margins, which the released curvature has, if margins are taken to be normal.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from tulle.methods.loss_functions import Logistic, Poisson
from tulle.trusted.events import FloatArray
from tulle.trusted.losses import AnyLoss

# Beyond these the multiple is a guess, and none is as good.
_LEAST, _MOST = 0.5, 2.0
# How much larger than the largest entry noise may make the usual one.
_NOISY = 1.5
# Between the two ends: Simpson's rule.
_PLACES, _SHARES = (0.0, 0.5, 1.0), (1 / 6, 4 / 6, 1 / 6)
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


def find_steady(
    loss: AnyLoss, curvature: FloatArray, start: FloatArray, moved: FloatArray, reach: FloatArray, largest: float
) -> npt.NDArray[np.bool_]:
    """For which weights a straight line from the start is good enough, at both ends of their intervals.

    A feature that nearly decides the outcome has rows of hardly any curvature at the true weights, and of far more at
    weights that a penalty keeps shorter. There a straight line says little about the true weight. The line is compared
    with the loss's own slopes in the average row, with the feature at its usual size: that where it is not 0 if all
    entries are of one sign, else its root mean square, with both signs. They may differ by half of an interval's reach.

    Parameters
    ----------
    loss, curvature, start, moved
        As for `mean_change`.
    reach : array of shape (p,)
        How far the intervals extend to each side.
    largest : float
        No entry is larger.
    """
    if not isinstance(loss, (Logistic, Poisson)) or not curvature[-1, -1] > 0:
        return np.ones(len(start), dtype=bool)
    means = curvature[-1] / curvature[-1, -1]
    of_one_sign = np.diag(curvature) / np.where(curvature[-1] == 0, 1e-300, curvature[-1])
    # Of one sign it is at most the largest entry; noise may have made it more.
    one_sign = np.abs(of_one_sign) <= _NOISY * largest
    one_sign[-1] = True
    of_both = np.sqrt(np.maximum(np.diag(curvature), 0.0) / curvature[-1, -1])
    size = np.where(one_sign, np.clip(of_one_sign, -largest, largest), of_both)
    size[-1] = 1.0
    rest = means @ start - means * start
    signs = (1.0, -1.0)

    def slope(margins: FloatArray) -> FloatArray:
        return loss.slope(margins[:, None], np.ones(len(margins)))[:, 0]

    def height(weights: FloatArray) -> FloatArray:
        """How much the sum of slopes changes from the start, over the curvature there."""
        rise, bend = np.zeros(len(start)), np.zeros(len(start))
        for sign in signs:
            used = np.where(one_sign & (sign < 0), 0.0, sign * size)
            rise += used * (slope(rest + used * weights) - slope(rest + used * start))
            bend += used**2 * loss.curvature_at(rest + used * start)
        return np.asarray(rise / np.maximum(bend, 1e-300))

    found = np.ones(len(start), dtype=bool)
    for end in (moved - reach, moved + reach):
        found &= (height(start + end - reach / 2) <= end) & (height(start + end + reach / 2) >= end)
    return found


def _mean_logistic(mean: float, variance: float) -> float:
    """The mean of p (1 - p) where the log-odds of p are normal."""
    margins = mean + math.sqrt(max(variance, 0.0)) * _NODES
    return float(_NODE_WEIGHTS @ (expit(margins) * expit(-margins)) / _NODE_WEIGHTS.sum())
