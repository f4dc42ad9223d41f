"""Sparse models of known features and randomised labels. Post-processing: no label is in reach, only what users sent.

So nothing here costs privacy: any number of iterations, all rows in each of them, and settings chosen by
cross-validation on the randomised labels. Labels enter through unbiased estimates t of them, and the loss of a row with
margin m is F(m) - t m with F' = f, the response: convex, and on average that of the true labels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logsumexp, softmax

from tulle.local.user_side.responses import RESPONSES, Response
from tulle.methods.thresholds import HardThreshold, project_on_ball
from tulle.trusted.events import FloatArray


@dataclass(frozen=True)
class Link:
    """A response with its integral, on margins of shape (rows, outputs).

    Attributes
    ----------
    mean : callable
        f.
    potential : callable
        F, of each row.
    curvature : float
        The largest slope of f.
    """

    mean: Callable[[FloatArray], FloatArray]
    potential: Callable[[FloatArray], FloatArray]
    curvature: float


IDENTITY_LINK = Link(lambda m: m, lambda m: (m**2).sum(axis=1) / 2, 1.0)
LOGISTIC_LINK = Link(expit, lambda m: np.logaddexp(0.0, m).sum(axis=1), 0.25)
SOFTMAX_LINK = Link(lambda m: softmax(m, axis=1), lambda m: logsumexp(m, axis=1), 0.5)
TANH_LINK = Link(np.tanh, lambda m: (np.logaddexp(m, -m) - np.log(2)).sum(axis=1), 1.0)

_LINKS = {"identity": IDENTITY_LINK, "logistic": LOGISTIC_LINK, "tanh": TANH_LINK}

# Nodes of the quadrature that integrates a response of the user's own.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)


def link_of(response: Response) -> Link:
    """The link of a response; the integral of the user's own is computed."""
    if RESPONSES.get(response.name) == response:
        return _LINKS[response.name]

    def potential(margins: FloatArray) -> FloatArray:
        at = margins[..., None] * (_NODES + 1) / 2
        return np.asarray((margins / 2 * (response.value(at) @ _WEIGHTS)).sum(axis=1))

    steepest = float(np.max(response.slope(np.linspace(-10, 10, 2001))))
    return Link(lambda margins: np.asarray(response.value(margins)), potential, steepest)


@dataclass(frozen=True, eq=False)
class NoisyLabels:
    """Known features with unbiased estimates of labels.

    Attributes
    ----------
    X : array or sparse array of shape (n, d)
    targets : array of shape (n, outputs)
    link : Link
    fit_intercept : bool
    """

    X: Any
    targets: FloatArray
    link: Link
    fit_intercept: bool

    @property
    def shape(self) -> tuple[int, int]:
        """Of weights: a line for each feature, and the intercept's."""
        return self.X.shape[1] + 1, self.targets.shape[1]

    def margins(self, weights: FloatArray) -> FloatArray:
        support = np.flatnonzero(np.any(weights[:-1] != 0, axis=1))
        if 4 * len(support) > len(weights):
            return np.asarray(self.X @ weights[:-1]) + weights[-1]
        return np.asarray(self.X[:, support] @ weights[support]) + weights[-1]

    def gradient(self, weights: FloatArray) -> FloatArray:
        """Of the mean loss."""
        slopes = (self.link.mean(self.margins(weights)) - self.targets) / self.X.shape[0]
        last = slopes.sum(axis=0) if self.fit_intercept else np.zeros(self.shape[1])
        return np.vstack([self.X.T @ slopes, last])

    def loss(self, weights: FloatArray) -> float:
        """The mean loss: that of the true labels on average, up to a constant."""
        margins = self.margins(weights)
        return float(np.mean(self.link.potential(margins) - (self.targets * margins).sum(axis=1)))

    @cached_property
    def largest_eigenvalue(self) -> float:
        """Of the mean of x x' with its constant, a little above."""
        vector = np.random.default_rng(0).standard_normal(self.shape[0])
        value = 0.0
        for _ in range(20):
            if not self.fit_intercept:
                vector[-1] = 0.0
            vector /= max(float(np.linalg.norm(vector)), 1e-300)
            products = np.asarray(self.X @ vector[:-1]) + vector[-1]
            vector = np.r_[self.X.T @ products, products.sum()] / len(products)
            value = float(np.linalg.norm(vector))
        return 1.2 * value

    def rows(self, chosen: Any) -> NoisyLabels:
        return NoisyLabels(self.X[chosen], self.targets[chosen], self.link, self.fit_intercept)


def hard_thresholding(
    data: NoisyLabels,
    n_nonzero: int,
    *,
    n_iter: int = 20,
    step: float | None = None,
    refit: bool = True,
    ball: float | None = None,
    start: FloatArray | None = None,
) -> FloatArray:
    """Iterative hard thresholding on randomised labels.

    With `step`, `refit=False` and `ball=1.0` it is algorithm 2 of Wang and Xu (ICML 2019), with the sign of its
    gradient put right; their experiments start from standard normal weights.

    Parameters
    ----------
    data : NoisyLabels
    n_nonzero : int
        Weights that are kept, for each output.
    n_iter : int, default=20
        At most so many steps; with `refit` it ends when the support stays.
    step : float or None, default=None
        None: the step that is best along the gradient's largest entries (normalised IHT).
    refit : bool, default=True
        Whether the weights that are kept are fitted anew after each step, with a small ridge that is chosen by
        generalised cross-validation.
    ball : float or None, default=None
        The radius of the ball that weights, the intercept's included, are projected onto at the end of each step.
    start : array of the shape of weights, or None, default=None
        None: 0.
    """
    weights = np.zeros(data.shape) if start is None else start
    keep = HardThreshold(n_nonzero, data.shape[0] - 1)
    support = None
    for _ in range(n_iter):
        gradient = data.gradient(weights)
        size = _best_step(data, keep(gradient)) if step is None else step
        moved = keep(weights - size * gradient)
        if refit:
            chosen = moved[:-1] != 0
            if support is not None and np.array_equal(chosen, support):
                break
            support = chosen
            moved = _refitted(data, moved, chosen)
        weights = moved if ball is None else project_on_ball(moved, ball)
    return weights


def best_sparsity(data: NoisyLabels, most: int, seed: int = 0, ball: float | None = None) -> int:
    """How many weights predict a held-out third of the randomised labels best: 1, 2, 4, … up to `most`."""
    order = np.random.default_rng(seed).permutation(data.X.shape[0])
    third = len(order) // 3
    train, test = data.rows(np.sort(order[third:])), data.rows(np.sort(order[:third]))
    if third == 0:
        return 1
    # All of them: on noisy labels losses go up and down, and the first rise means little.
    sizes = [2**k for k in range(most.bit_length())]
    losses = [test.loss(hard_thresholding(train, size, n_iter=5, ball=ball)) for size in sizes]
    return sizes[int(np.argmin(losses))]


def _best_step(data: NoisyLabels, direction: FloatArray) -> float:
    """The minimiser along a direction, if the loss were as curved as it can be."""
    moved = data.margins(direction)
    curved = data.link.curvature * float(np.mean((moved**2).sum(axis=1)))
    return float((direction**2).sum()) / curved if curved > 0 else 1.0


def _refitted(data: NoisyLabels, start: FloatArray, chosen: Any) -> FloatArray:
    """The minimiser on the chosen weights, with a ridge."""
    support = np.flatnonzero(chosen.any(axis=1))
    columns = data.X[:, support]
    free = np.vstack([chosen[support], np.full(data.shape[1], data.fit_intercept)])
    small = NoisyLabels(columns, data.targets, data.link, data.fit_intercept)
    ridge = data.link.curvature * _ridge(columns, data.targets, data.fit_intercept)

    def objective(values: FloatArray) -> tuple[float, FloatArray]:
        weights = np.zeros(free.shape)
        weights[free] = values
        penalised = np.vstack([weights[:-1], np.zeros(free.shape[1])])
        slope = small.gradient(weights) + ridge * penalised
        return small.loss(weights) + ridge / 2 * float((penalised**2).sum()), slope[free]

    lines = np.r_[support, data.shape[0] - 1]
    found = minimize(objective, start[lines][free], jac=True, method="L-BFGS-B", options={"maxiter": 200})
    weights, part = np.zeros(data.shape), np.zeros(free.shape)
    part[free] = found.x
    weights[lines] = part
    return weights


def _ridge(columns: Any, targets: FloatArray, centred: bool) -> float:
    """The ridge of least generalised cross-validation error for a linear fit of these columns."""
    n, width = columns.shape
    if width == 0:
        return 0.0
    gram = np.asarray((columns.T @ columns).toarray() if hasattr(columns, "toarray") else columns.T @ columns) / n
    products = np.asarray(columns.T @ targets) / n
    square = (targets**2).mean(axis=0)
    if centred:
        means = np.asarray(columns.mean(axis=0)).ravel()
        gram = gram - np.outer(means, means)
        products = products - np.outer(means, targets.mean(axis=0))
        square = targets.var(axis=0)
    values, vectors = np.linalg.eigh(gram)
    values = np.maximum(values, 0.0)
    coordinates = vectors.T @ products
    top = float(values[-1])
    if top < 1e-150:  # constant columns, or nearly so
        return 0.0
    best = (np.inf, top)
    for ridge in top * np.geomspace(1e-6, 1e2, 33):
        shrunk = 1 / (values + ridge)
        residual = square.sum() - float(((2 * shrunk - values * shrunk**2)[:, None] * coordinates**2).sum())
        freedom = 1 - (values * shrunk).sum() / n
        best = min(best, (max(residual, 0.0) / max(freedom, 1e-9) ** 2, float(ridge)))
    return best[1]


def lasso(data: NoisyLabels, penalty: float | None = None, *, n_iter: int = 300, seed: int = 0) -> FloatArray:
    """The LASSO on randomised labels.

    Parameters
    ----------
    data : NoisyLabels
    penalty : float or None, default=None
        At least 0. None: chosen by three-fold cross-validation on the randomised labels.
    n_iter : int, default=300
        Accelerated proximal steps at most.
    seed : int, default=0
        How rows are split for cross-validation.
    """
    if penalty is not None:
        return _proximal(data, penalty, np.zeros(data.shape), n_iter)
    constant = np.zeros(data.shape)
    if data.fit_intercept:
        constant = _refitted(data, constant, np.zeros((data.shape[0] - 1, data.shape[1]), dtype=bool))
    largest = float(np.abs(data.gradient(constant)[:-1]).max())
    fold = np.random.default_rng(seed).permutation(np.arange(data.X.shape[0]) % 3)
    parts = [(data.rows(np.flatnonzero(fold != k)), data.rows(np.flatnonzero(fold == k))) for k in range(3)]
    found = [constant] * len(parts)
    best, chosen, worse = np.inf, largest, 0
    for one in max(largest, 1e-300) * np.geomspace(1.0, 0.02, 12):  # from the sparsest on, each started from the last
        found = [_proximal(train, one, weights, n_iter // 3, 1e-3) for (train, _), weights in zip(parts, found)]
        loss = sum(test.loss(weights) for (_, test), weights in zip(parts, found))
        best, chosen, worse = (loss, one, 0) if loss < best else (best, chosen, worse + 1)
        if worse == 2:
            break
    return _proximal(data, chosen, constant, n_iter)


def _proximal(data: NoisyLabels, penalty: float, start: FloatArray, n_iter: int, tolerance: float = 1e-6) -> FloatArray:
    step = 1 / max(data.link.curvature * data.largest_eigenvalue, 1e-300)
    weights = ahead = start
    momentum = 1.0
    for _ in range(n_iter):
        moved = ahead - step * data.gradient(ahead)
        fresh = np.sign(moved) * np.maximum(np.abs(moved) - step * penalty, 0.0)
        fresh[-1] = moved[-1]
        change = fresh - weights
        if float(np.abs(change).max()) <= tolerance * max(float(np.abs(fresh).max()), 1e-12):
            return fresh
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        # Momentum that points uphill is dropped (O'Donoghue and Candès 2015).
        uphill = float(((ahead - fresh) * change).sum()) > 0
        ahead = fresh + (0.0 if uphill else (momentum - 1) / following) * change
        weights, momentum = fresh, 1.0 if uphill else following
    return weights
