"""From what a fit released to the law of its weights' errors: the sandwich, with the known noise in it.

Let S be the sum of the rows' gradients at the true weights, H the curvature, n rows. What was released obeys

    H (true - start) = pull + S + noise,

for squared loss exactly, else up to the change of H between start and the true weights. Only a noisy H + E is known:
(H + E)(true - start) = pull + S + noise + E (true - start). Proof: docs/proofs/inference.md, theorem 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.stats import t as student

from tulle.inference.curvature_change import CurveKind, SlopeCurves
from tulle.inference.noisy_matrices import Denoised, GradientSpread
from tulle.trusted.events import FloatArray

# Of a variance, as what it is for known distances from the start: beyond, too little is known of the curvature.
_MOST_FROM_CURVATURE = 1.0
# What the curvature must tell about a weight, in units of its noise: less may be noise by itself.
_LEAST_TOLD = 2.0
_LEAST_FREEDOM = 4.0
# How often the residual of the released equation is solved for (docs/proofs/inference.md, lemma 2): for equations that
# start at 0, so that the whole weights are at stake, and for those that start at fitted weights. By simulation.
_CORRECTIONS_FROM_ZERO, _CORRECTIONS = 2, 1

# The parts that are no arrays.
_PLAIN = ("choice", "n_rows", "curve_kind")

Choice = Literal["fixed", "split", "same rows"]


@dataclass(frozen=True, eq=False)
class Scores:
    """What of the equation above was released.

    Attributes
    ----------
    start, pull : array of shape (p,)
    noise_variance : float
        Of the noise, in each coordinate.
    hidden : float
        The standard deviation of a further noise on each weight itself.
    """

    start: FloatArray
    pull: FloatArray
    noise_variance: float
    hidden: float


@dataclass(frozen=True, eq=False)
class Estimated:
    """Weights, their covariance, the part that they would have without privacy, and degrees of freedom."""

    weights: FloatArray
    covariance: FloatArray
    sampling: FloatArray
    freedom: FloatArray
    determined: npt.NDArray[np.bool_]


def estimate(
    scores: Scores,
    curvature: Denoised,
    spread: GradientSpread,
    change: Callable[[FloatArray, FloatArray], float] | None = None,
) -> Estimated:
    """The weights without the penalty's bias, and the law of their errors.

    The equation is solved with the denoised matrix, and its residual with the released one is then solved for, once or
    twice: what denoising took off that was no noise, as entries between features of one category, is put back, and what
    it leaves is of second or third order. The price is the whole noise of the released matrix times true - start.

    The errors of earlier solutions add a variance that depends on the one that is looked for: a fixed point. There is
    none where the noise in the curvature is as large as the curvature.

    `change(moved, covariance)` is the mean curvature on the way, as a multiple of that at the start.
    """
    multiple = 1.0
    inverse, before, moved = _solve(scores, curvature, multiple)
    covariance, added = _covariance(scores, curvature, spread, inverse, before)
    for _ in range(8):
        last, multiple = multiple, 1.0 if change is None or added == math.inf else change(moved, covariance)
        if abs(multiple - last) <= 1e-3:
            break
        inverse, before, moved = _solve(scores, curvature, multiple)
        covariance, added = _covariance(scores, curvature, spread, inverse, before)
    told = 1 / np.maximum(np.diag(curvature.inverse), 1e-300) >= _LEAST_TOLD * curvature.scale
    determined = told & (curvature.n_floored == 0 and added <= _MOST_FROM_CURVATURE)
    covariance = covariance + scores.hidden**2 * np.eye(len(moved))
    variances = np.diag(covariance)
    # Satterthwaite: twice the squared mean of a variance over the variance that noise gives its estimate.
    by_factor = np.diag(inverse @ curvature.matrix @ inverse) * spread.factor_error
    uncertain = (by_factor**2 + (spread.errors / multiple**2) ** 2) / np.maximum(variances, 1e-150) ** 2
    freedom = np.maximum(2 / np.maximum(uncertain, 1e-12), _LEAST_FREEDOM)
    sampling = np.diag(inverse @ spread.matrix @ inverse)
    symmetric = (covariance + covariance.T) / 2
    np.fill_diagonal(symmetric, np.maximum(variances, 0.0))
    found = (scores.start + moved, symmetric, np.maximum(sampling, 0.0), freedom)
    # There is an answer for any released values: by now the budget is spent.
    determined &= all(bool(np.isfinite(part).all()) for part in found)
    weights, covariance, sampling, freedom = (np.nan_to_num(part, nan=0.0, posinf=0.0, neginf=0.0) for part in found)
    return Estimated(weights, covariance, sampling, np.maximum(freedom, _LEAST_FREEDOM), determined)


def _solve(scores: Scores, curvature: Denoised, multiple: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The inverse that is used, the solution before the last correction, and the last."""
    inverse = curvature.inverse / multiple
    before = moved = inverse @ scores.pull
    if curvature.scale > 0:
        for _ in range(_CORRECTIONS if scores.start.any() else _CORRECTIONS_FROM_ZERO):
            before, moved = moved, moved + inverse @ (scores.pull - multiple * (curvature.noisy @ moved))
    return inverse, before, moved


def _covariance(
    scores: Scores, curvature: Denoised, spread: GradientSpread, inverse: FloatArray, before: FloatArray
) -> tuple[FloatArray, float]:
    """The covariance of the errors, and by which part the errors of the solution `before` the last add to it: inf where
    there is no fixed point."""
    noise = scores.noise_variance * np.eye(len(before)) + curvature.noise_covariance(before)
    covariance = base = inverse @ (spread.matrix + noise) @ inverse
    for _ in range(100):
        new = base + inverse @ curvature.error_covariance(covariance) @ inverse
        added = float(np.max(np.diag(new) / np.maximum(np.diag(base), 1e-300))) - 1
        if np.allclose(np.diag(new), np.diag(covariance), rtol=1e-4, atol=0.0):
            return new, added
        if not added <= 2 * _MOST_FROM_CURVATURE:
            break
        covariance = new
    return base, math.inf


@dataclass(frozen=True, eq=False)
class Evidence:
    """Estimates of the errors of fitted weights; a function of what was released.

    Attributes
    ----------
    features : int array of shape (s,)
        The features in the model.
    estimates : array of shape (p,)
        Their weights, then the intercept, if there is one.
    covariance : array of shape (p, p)
        Of the estimates' errors, sampling and noise together.
    sampling : array of shape (p,)
        The variances that they would have without privacy.
    freedom : array of shape (p,)
        Degrees of freedom: how well each variance is known.
    determined : bool array of shape (p,)
        For which weights there are intervals: none where the curvature does not stand out of its noise.
    choice : {"fixed", "split", "same rows"}
        Whether features were fixed beforehand, chosen by other rows than those that weights were fitted to, or by the
        same. In the last case nothing is known about the law of chosen features.
    n_rows : int
        Rows that the weights were fitted to.
    curves : array of shape (6, p) or None, default=None
        The weights on straight lines, their standard errors there, and the table of `SlopeCurves`: an interval's ends
        are those on the line, each taken to the curve. None: estimates are on straight lines.
    curve_kind : {"line", "logistic", "poisson"}, default="line"
        Of `SlopeCurves`.
    """

    features: npt.NDArray[np.intp]
    estimates: FloatArray
    covariance: FloatArray
    sampling: FloatArray
    freedom: FloatArray
    determined: npt.NDArray[np.bool_]
    choice: Choice
    n_rows: int
    curves: FloatArray | None = None
    curve_kind: CurveKind = "line"

    def check(self) -> None:
        """Raise where the parts do not go together: a file may contain anything. What a fit computes is not checked,
        since nothing may depend on it after the bill."""
        arrays = (self.estimates, self.covariance, self.sampling, self.freedom)
        p = self.estimates.size
        shapes = [array.shape for array in (*arrays, self.determined)] == [(p,), (p, p), (p,), (p,), (p,)]
        features = self.features.ndim == 1 and len(self.features) in (p, p - 1) and bool((self.features >= 0).all())
        kinds = [array.dtype.kind for array in (*arrays, self.determined, self.features)] == list("ffffbi")
        if not (p and shapes and features and kinds and all(np.isfinite(array).all() for array in arrays)):
            raise ValueError("estimates and their covariance do not go together")
        curves = np.zeros((6, p)) if self.curves is None else self.curves
        if curves.shape != (6, p) or curves.dtype.kind != "f" or not np.isfinite(curves).all() or curves[1].min() < 0:
            raise ValueError("estimates and their curves do not go together")
        if self.curve_kind not in ("line", "logistic", "poisson"):
            raise ValueError(f"curves of the kind {self.curve_kind!r}")
        if not (type(self.n_rows) is int and self.n_rows >= 1):
            raise ValueError(f"a fit to {self.n_rows!r} rows")
        symmetric = np.allclose(self.covariance, self.covariance.T, rtol=1e-6)
        if not (symmetric and (np.diag(self.covariance) >= 0).all() and (self.sampling >= 0).all()):
            raise ValueError("a covariance is symmetric, and variances are not negative")
        if not (self.freedom > 0).all() or self.choice not in ("fixed", "split", "same rows"):
            raise ValueError("an impossible number of degrees of freedom, or way to choose features")

    def to_arrays(self) -> dict[str, Any]:
        """The parts that are arrays, by their names."""
        parts = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in _PLAIN}
        return {name: part for name, part in parts.items() if part is not None}

    def to_values(self) -> dict[str, Any]:
        """The parts that are not."""
        return {name: getattr(self, name) for name in _PLAIN}

    def all_weights(self, n_features: int, fit_intercept: bool) -> FloatArray:
        """The weights of a model, of shape (features + 1, 1); the last line is the intercept (0 without one)."""
        weights = np.zeros((n_features + 1, 1))
        weights[self.features, 0] = self.estimates[: len(self.features)]
        if fit_intercept:
            weights[-1, 0] = self.estimates[-1]
        return weights

    def quantiles(self, level: float) -> FloatArray:
        """By how many standard errors an interval extends to each side."""
        return np.asarray(student.ppf((1 + level) / 2, self.freedom))

    def _lines(self) -> tuple[FloatArray, FloatArray, SlopeCurves]:
        """The weights on straight lines, their standard errors, and the curves."""
        if self.curves is None:
            errors = np.sqrt(np.maximum(np.diag(self.covariance), 0.0))
            return self.estimates, errors, SlopeCurves.straight(len(errors))
        return self.curves[0], self.curves[1], SlopeCurves(self.curve_kind, self.curves[2:])

    def find_ends(self, level: float) -> tuple[FloatArray, FloatArray]:
        """The lower and the upper ends of intervals: -inf or inf where the rows do not limit a weight on that side, NaN
        where the whole interval on the line is beyond the range of slopes."""
        on_line, errors, curves = self._lines()
        reach = self.quantiles(level) * errors
        low, high = curves.find_weights(on_line - reach), curves.find_weights(on_line + reach)
        nothing = np.isnan(low) | np.isnan(high) | (np.isinf(low) & (low == high))
        return np.where(nothing, math.nan, low), np.where(nothing, math.nan, high)

    def p_values(self) -> FloatArray:
        """Of the hypothesis that a weight is 0."""
        on_line, errors, curves = self._lines()
        with np.errstate(all="ignore"):
            distance = np.abs(on_line - curves.find_on_line(np.zeros(len(errors)))) / errors
        return np.asarray(2 * student.sf(distance, self.freedom))

    def margin_errors(self, rows: FloatArray, level: float) -> FloatArray:
        """How far an interval of <x, w> + intercept extends to each side; rows on `features`, of shape (n, s). NaN
        where a row has a weight without an interval, or with an open one."""
        with_constant = len(self.estimates) > len(self.features)
        x = np.hstack([rows, np.ones((len(rows), 1))]) if with_constant else rows
        squares = np.einsum("ij,jk,ik->i", x, self.covariance, x)
        closed = self.determined & np.isfinite(self.find_ends(level)).all(axis=0)
        squares[np.any((x != 0) & ~closed, axis=1)] = math.nan
        return np.asarray(self.quantiles(level).max() * np.sqrt(np.maximum(squares, 0.0)))


def take_to_curves(
    features: npt.NDArray[np.intp], found: Estimated, curves: SlopeCurves, choice: Choice, n_rows: int
) -> Evidence:
    """The evidence on weights that were estimated on straight lines: estimates and their covariance are taken to the
    curves, the latter by the delta method. Where the curve ends before the line does, the estimate is the interval's
    closed end, or the weight on the line if that lies within."""
    on_line, errors = found.weights, np.sqrt(np.diag(found.covariance))
    low, high = (curves.find_weights(on_line + side * 1.96 * errors) for side in (-1, 1))
    estimates = curves.find_weights(on_line)
    open_ended = ~np.isfinite(estimates)
    estimates = np.where(open_ended, np.clip(on_line, low, high), estimates)
    # A curve so steep that no float holds its weight.
    estimates = np.where(np.isfinite(estimates), estimates, on_line)
    rates = np.where(open_ended, 1.0, curves.find_rates(estimates))
    return Evidence(
        features,
        estimates,
        found.covariance * np.outer(rates, rates),
        found.sampling * rates**2,
        found.freedom,
        found.determined,
        choice,
        n_rows,
        np.vstack([on_line, errors, curves.table]),
        curves.kind,
    )


def check_level(level: float) -> None:
    """Raise unless a level of intervals lies in (0, 1)."""
    if not (isinstance(level, (int, float)) and 0 < level < 1 and math.isfinite(level)):
        raise ValueError(f"level must lie in (0, 1), got {level!r}")
