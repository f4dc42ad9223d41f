"""The penalised logistic loss with few non-zero weights: its value, its minimiser on given columns, and a search.

    F(w) = the mean of log(1 + exp(-y <x, w>)) over rows of norm 1 + penalty/2 |w|²

Nothing here is private: it says how far released weights are from the best that can be found.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.special import expit

from tulle.estimators.bounds import Bounds
from tulle.estimators.sparse import SparseClassifier
from tulle.experiments.examples import Examples
from tulle.methods.hard_thresholding import HardThresholding
from tulle.trusted.events import FloatArray

Support = tuple[int, ...]

# The largest curvature of the logistic loss, on rows of norm 1.
_CURVATURE = 0.25


def support_of(w: FloatArray) -> Support:
    """The columns whose weights are not zero."""
    return tuple(int(j) for j in np.flatnonzero(w))


def longest_step(penalty: float) -> float:
    """1 / the smoothness of F."""
    return 1 / (_CURVATURE + penalty)


@dataclass(frozen=True, eq=False)
class Objective:
    """F, on all weights or on those of the unit ball.

    Attributes
    ----------
    columns : array of shape (n, p)
        The rows, each of norm 1 (or 0) and times its label, ±1. By columns: few are in play at a time.
    penalty : float
        > 0.
    in_ball : bool
        Whether weights have to lie in the unit ball.
    """

    columns: FloatArray
    penalty: float
    in_ball: bool

    @classmethod
    def on(cls, rows: Examples, penalty: float, in_ball: bool) -> Objective:
        """F on rows with labels 0 and 1."""
        norms = np.sqrt(np.asarray(rows.X.multiply(rows.X).sum(axis=1)).ravel())
        scale = np.where(rows.y == 1, 1.0, -1.0) / np.maximum(norms, 1e-300)
        return cls(np.asfortranarray((sp.diags_array(scale) @ rows.X).toarray()), penalty, in_ball)

    def logistic(self, w: FloatArray) -> float:
        """The mean logistic loss, without the penalty."""
        at = np.flatnonzero(w)
        return float(np.logaddexp(0.0, -self.columns[:, at] @ w[at]).mean())

    def value(self, w: FloatArray) -> float:
        """F(w)."""
        return self.logistic(w) + self.penalty / 2 * float(w @ w)

    def gradient(self, w: FloatArray) -> FloatArray:
        """Of F, in all columns."""
        return np.asarray(self.penalty * w - expit(-self.columns @ w) @ self.columns / len(self.columns))

    def scaled_in(self, w: FloatArray) -> FloatArray:
        """The weights, scaled down into the ball if they have to lie there."""
        return w / max(1.0, float(np.linalg.norm(w))) if self.in_ball else w

    def minimiser(self, support: Support) -> FloatArray:
        """The minimiser on some columns: by Newton's steps, for the weights and for the ridge that brings them into
        the ball.
        """
        chosen = list(support)
        Z, theta, ridge = self.columns[:, chosen], np.zeros(len(chosen)), self.penalty
        for _ in range(50):
            q = expit(-Z @ theta)
            gradient = ridge * theta - q @ Z / len(Z)
            curvature = (Z.T * (q * (1 - q))) @ Z / len(Z) + ridge * np.eye(len(chosen))
            theta = theta - np.linalg.solve(curvature, gradient)
            length = float(np.linalg.norm(theta))
            outside = self.in_ball and (length > 1 or ridge > self.penalty)
            if np.linalg.norm(gradient) < 1e-8 and not (outside and abs(length - 1) > 1e-7):
                break
            if outside:
                # Of 1/|theta| - 1, which is nearly linear in the ridge.
                slope = float(theta @ np.linalg.solve(curvature, theta)) / length**3
                ridge = max(self.penalty, ridge + (1 - 1 / length) / slope)
        w = np.zeros(self.columns.shape[1])
        w[chosen] = theta
        return self.scaled_in(w)

    def best(self, supports: Iterable[Support]) -> FloatArray:
        """The minimiser on whichever of some supports is best."""
        return min(map(self.minimiser, supports), key=self.value)


# --- the best without privacy ----------------------------------------------------------------------------------------


def promising_supports(rows: Examples, k: int, penalty: float, n_iter: int, in_ball: bool) -> set[Support]:
    """Good supports of `k` columns: of iterative hard thresholding, of a greedy search, and of swaps from there on."""
    objective = Objective.on(rows, penalty, in_ball)
    starts = {support_of(_greedy(objective, k))}
    for step in (None, longest_step(penalty)):
        model = SparseClassifier(
            None,
            n_nonzero=k,
            method=HardThresholding(n_iter, step, penalty=penalty, ball=1.0 if in_ball else None),
            bounds=Bounds(normalise=True),
            fit_intercept=False,
            random_state=0,
        )
        starts.add(support_of(model.fit(rows.X, rows.y).coef_.ravel()))
    return starts | {support_of(swapped(objective, objective.minimiser(start))) for start in starts}


def swapped(objective: Objective, w: FloatArray) -> FloatArray:
    """Minimisers with one column for another (of the three that then promise most), as long as that helps."""
    while True:
        tried = [w]
        for j in support_of(w):
            fewer = tuple(i for i in support_of(w) if i != j)
            steepest = _steepest(objective, objective.minimiser(fewer), 4)
            tried += [objective.minimiser((*fewer, new)) for new in steepest if new != j][:3]
        best = min(tried, key=objective.value)
        if objective.value(best) > objective.value(w) - 1e-9:
            return w
        w = best


def _greedy(objective: Objective, k: int) -> FloatArray:
    w = np.zeros(objective.columns.shape[1])
    for _ in range(k):
        w = objective.minimiser((*support_of(w), *_steepest(objective, w, 1)))
    return w


def _steepest(objective: Objective, w: FloatArray, count: int) -> list[int]:
    """The columns of weight 0 with the largest gradients."""
    steep = np.where(w == 0, np.abs(objective.gradient(w)), -1.0)
    return [int(j) for j in np.argsort(-steep)[:count]]
