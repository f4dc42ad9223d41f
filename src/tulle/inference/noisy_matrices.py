"""Symmetric matrices that were released with Gaussian noise of known size: what of them is noise, and taking it off.

A matrix is released as its upper triangle with off-diagonal entries times sqrt(2) (`ClippedSum`, times="itself"). Noise
of scale s on that vector is noise of standard deviation s on diagonal entries and s / sqrt(2) on others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tulle.trusted.events import FloatArray

# How far the variance of a weight may commonly be from that of a right model, as a part of it; and the least ratio.
_USUAL_DEPARTURE, _LEAST_RATIO = 0.3, 0.2


@dataclass(frozen=True, eq=False)
class Denoised:
    """A matrix after its noise was taken off as far as can be, and how far it may still be from the exact one.

    Attributes
    ----------
    noisy : array of shape (p, p)
        As it was released.
    matrix, inverse : array of shape (p, p)
        Positive definite, and its inverse.
    n_floored : int
        How many eigenvalues were raised to a floor, the scale of the noise: as many directions the noise hides.
    scale : float
        Of the noise that was in it.
    left : float
        The mean square error that is left of an entry between two features.
    means : array or None
        The features' means, that is their line of the constant column over its own entry; None without a constant.
    """

    noisy: FloatArray
    matrix: FloatArray
    inverse: FloatArray
    n_floored: int
    scale: float
    left: float
    means: FloatArray | None

    def noise_covariance(self, vector: FloatArray) -> FloatArray:
        """The covariance of (noise of the released matrix) v, for a fixed v: exact."""
        half = self.scale**2 / 2
        return half * (np.outer(vector, vector) + float(vector @ vector) * np.eye(len(vector)))

    def error_covariance(self, covariance: FloatArray) -> FloatArray:
        """The covariance of (error of the denoised matrix) v, for a v of mean 0 and this covariance; errors of entries
        between features are taken as independent. An error e of the means is one of means e' + e means' between
        features."""
        squares, noise = np.diag(covariance), self.scale**2
        f = len(squares) - (self.means is not None)
        among = noise * squares[:f] + self.left * (squares[:f].sum() - squares[:f])
        found = np.zeros_like(covariance)
        if self.means is not None:
            line = np.append(self.means, 1.0)
            among = among + noise / 2 * (line @ covariance @ line)
            found = noise / 2 * squares[:f].sum() * np.outer(line, line)
            found[f, f] += noise * squares[f]
        found[np.arange(f), np.arange(f)] += among
        return found


def denoise(noisy: FloatArray, scale: float, constant: bool) -> Denoised:
    """Take off noise of this scale (>= 0).

    Where the last line and column are of a constant column (`constant`), they stay as they are: they have the features'
    means, which make up most of the entries between features where features are not centred. What these add to the
    others is set aside, and noise is removed from the rest.
    """
    released = noisy
    f, left = len(noisy) - constant, 0.0
    means = np.zeros(f)
    if scale > 0:
        matrix, set_aside = noisy.copy(), np.zeros((f, f))
        # A constant's own entry is a count of rows, more or less. Where noise hides even that, nothing is set aside.
        if constant and noisy[f, f] > 4 * scale:
            means = noisy[:f, f] / noisy[f, f]
            set_aside = np.outer(means, means) * noisy[f, f]
        # The noise of the means, in what they add: it is no sign of entries that are not 0.
        of_means = scale**2 * (means**2).sum() * max(f - 1, 0)
        matrix[:f, :f], left = _shrink(noisy[:f, :f] - set_aside, scale, of_means)
        matrix[:f, :f] += set_aside
        noisy = matrix
    values, vectors = np.linalg.eigh(noisy)
    # Without noise, an eigenvalue that is not positive is a rounding error.
    floor = scale if scale > 0 else max(float(values[-1]), 1e-300) * 1e-12
    raised = np.maximum(values, floor)
    inverse = (vectors / raised) @ vectors.T
    n_floored = int((values < floor).sum())
    matrix = (vectors * raised) @ vectors.T
    return Denoised(released, matrix, inverse, n_floored, scale, left, means if constant else None)


def _shrink(noisy: FloatArray, scale: float, more: float) -> tuple[FloatArray, float]:
    """A matrix with less noise in its off-diagonal entries, and the mean square error that remains in one. `more` is
    the sum of squares that other noise adds to them.

    Their noise is a Wigner matrix with a spectrum inside ±2 t sqrt(p), t = scale / sqrt(2). Eigenvalues are shrunk as
    is best in mean square for large p: those inside to 0, one of y t sqrt(p) outside to sqrt(y² - 4) t sqrt(p). Then
    2 - 1/x² is lost for each one kept, y = x + 1/x, in units of t² p; and, in addition, the sum of squares of all
    entries less those of the noise and of the shrunk matrix.
    """
    size = len(noisy)
    kept = np.diag(np.diag(noisy))
    if size < 2:
        return noisy, 0.0
    rest, unit = noisy - kept, scale * math.sqrt(size / 2)
    values, vectors = np.linalg.eigh(rest)
    outside = np.sqrt(np.maximum((values / unit) ** 2 - 4, 0.0))
    x = (np.abs(values) / unit + outside) / 2
    shrunk = np.sign(values) * outside * unit
    lost = unit**2 * np.where(outside > 0, 2 - 1 / np.maximum(x, 1.0) ** 2, 0.0).sum()
    hidden = (rest**2).sum() - size * (size - 1) * scale**2 / 2 - more - (shrunk**2).sum()
    left = min((lost + max(hidden, 0.0)) / (size * (size - 1)), scale**2 / 2)
    return kept + (vectors * shrunk) @ vectors.T, float(left)


@dataclass(frozen=True, eq=False)
class GradientSpread:
    """The sum over rows of gradient × gradient', estimated, and how well the variances that it gives are known.

    Attributes
    ----------
    matrix : array of shape (p, p)
        Positive semi-definite.
    factor_error : float
        The standard deviation of its ratio to the curvature.
    errors : array of shape (p,)
        Those of the variances of weights, the diagonal of inverse × matrix × inverse, besides.
    """

    matrix: FloatArray
    factor_error: float
    errors: FloatArray


def estimate_spread(
    noisy: FloatArray, scale: float, curvature: Denoised, usual: tuple[float, float] | None
) -> GradientSpread:
    """The spread of gradients behind a noisy one.

    If the model is right the spread is a multiple of the curvature: 1 for classes, the dispersion for counts, the
    residual variance for squared loss. The multiple takes one number of the noisy matrix, and is known well. If it is
    not right, as where variances differ, each weight has a multiple of its own: the ratio of its variance by the noisy
    matrix to that by the common multiple. Such a ratio is shrunk towards 1 by the size of its noise, compared with how
    far the ratios of all weights are from 1, and at least as far as they commonly are.

    Parameters
    ----------
    noisy : array
    scale : float
        Of the noise, >= 0.
    curvature : Denoised
    usual : tuple of (float, float) or None
        The multiple where it is known beforehand, and how far it may commonly be from that.
    """
    bend, inverse = curvature.matrix, curvature.inverse
    square = float((bend**2).sum())
    factor, error = float((noisy * bend).sum()) / square, scale / math.sqrt(square)
    if usual is not None and error > 0:
        near, far = usual[0], usual[1] ** 2
        factor, error = (factor * far + near * error**2) / (far + error**2), math.sqrt(1 / (1 / far + 1 / error**2))
    # One that noise has made negative, or nearly so, is at least what it may be short by.
    factor = max(factor, error, 1e-300)
    common = factor * np.diag(inverse)
    found = inverse @ noisy @ inverse
    # The form q' E q of the noise has a standard deviation of scale |q|².
    noise = scale * (inverse**2).sum(axis=0) / common
    away = np.diag(found) / common - 1
    commonly = _USUAL_DEPARTURE if usual is None else usual[1]
    departure = max(float((away**2 - noise**2).mean()), commonly**2)
    part = departure / (departure + noise**2)
    ratios = np.maximum(1 + part * away, _LEAST_RATIO)
    # Between weights as much is kept as of the variances, and the whole has these.
    mixed = factor * inverse + float(part.mean()) * (found - factor * inverse)
    values, vectors = np.linalg.eigh((mixed + mixed.T) / 2)
    mixed = (vectors * np.maximum(values, 0.0)) @ vectors.T
    units = np.sqrt(common * ratios / np.maximum(np.diag(mixed), 1e-300))
    mixed = bend @ (mixed * np.outer(units, units)) @ bend
    if scale == 0:  # nothing to estimate, and an inverse of rounding's size would only add to it
        mixed = noisy
    return GradientSpread(mixed, error, common * np.sqrt(part) * noise)
