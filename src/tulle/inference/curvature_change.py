"""How the curvature changes between the weights where it was released and those that are estimated.

The equation that estimates solve holds with the mean of the curvature on the way from one to the other
(docs/proofs/inference.md, lemma 3). That mean is taken to be a multiple of the released curvature. The multiple follows
from the mean and the spread of margins, which the released curvature has, if margins are taken to be normal.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import expit

from tulle.methods.loss_functions import Logistic, Poisson
from tulle.trusted.events import FloatArray
from tulle.trusted.losses import AnyLoss

# Beyond these the multiple is a guess, and none is as good.
_LEAST, _MOST = 0.5, 2.0
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


def _mean_logistic(mean: float, variance: float) -> float:
    """The mean of p (1 - p) where the log-odds of p are normal."""
    margins = mean + math.sqrt(max(variance, 0.0)) * _NODES
    return float(_NODE_WEIGHTS @ (expit(margins) * expit(-margins)) / _NODE_WEIGHTS.sum())
