"""Symmetric matrices that were released with Gaussian noise of known size: what of them is noise, and taking it off.

A matrix is released as its upper triangle with off-diagonal entries times sqrt(2) (`ClippedSum`, times="itself"). Noise
of scale s on that vector is noise of standard deviation s on diagonal entries and s / sqrt(2) on others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tulle.trusted.events import FloatArray


@dataclass(frozen=True, eq=False)
class Denoised:
    """A matrix after its noise was taken off as far as can be, and how far it may still be from the exact one.

    Attributes
    ----------
    matrix, inverse : array
        Positive definite, and its inverse.
    floor : float
        No eigenvalue is below it.
    n_floored : int
        How many eigenvalues were raised to it: as many directions the noise hides.
    on_diagonal, off_diagonal : float
        The mean square error that is left of one entry.
    """

    matrix: FloatArray
    inverse: FloatArray
    floor: float
    n_floored: int
    on_diagonal: float
    off_diagonal: float

    def spread_along(self, squares: FloatArray) -> FloatArray:
        """The variance of (error) v in each coordinate, errors of entries taken as independent, where v has these mean
        squares."""
        return np.asarray(self.on_diagonal * squares + self.off_diagonal * (squares.sum() - squares))


def denoise(noisy: FloatArray, scale: float) -> Denoised:
    """Take off noise of this scale (>= 0).

    Diagonal entries stay as they are. The eigenvalues of the rest, whose noise is a Wigner matrix with a spectrum
    inside ±2 t sqrt(p), t = scale / sqrt(2), are shrunk as is best in mean square for large p: those inside to 0, one
    of y t sqrt(p) outside to sqrt(y² - 4) t sqrt(p). What they are short of the exact ones by is estimated, too:
    2 - 1/x² for each that is left, y = x + 1/x, in units of t² p, and what the squares of all entries exceed the
    noise and what is left by.
    """
    size = len(noisy)
    kept = np.diag(np.diag(noisy))
    rest, off = noisy - kept, 0.0
    if scale > 0 and size > 1:
        unit = scale * math.sqrt(size / 2)
        values, vectors = np.linalg.eigh(rest)
        outside = np.sqrt(np.maximum((values / unit) ** 2 - 4, 0.0))
        x = (np.abs(values) / unit + outside) / 2
        shrunk = np.sign(values) * outside * unit
        lost = unit**2 * np.where(outside > 0, 2 - 1 / np.maximum(x, 1.0) ** 2, 0.0).sum()
        hidden = (rest**2).sum() - size * (size - 1) * scale**2 / 2 - (shrunk**2).sum()
        off = min((lost + max(hidden, 0.0)) / (size * (size - 1)), scale**2 / 2)
        rest = (vectors * shrunk) @ vectors.T
    values, vectors = np.linalg.eigh(kept + rest)
    # Without noise what is not positive is rounding.
    floor = scale if scale > 0 else max(float(values[-1]), 1e-300) * 1e-12
    raised = np.maximum(values, floor)
    return Denoised(
        (vectors * raised) @ vectors.T,
        (vectors / raised) @ vectors.T,
        floor,
        int((values < floor).sum()),
        scale**2,
        off,
    )


@dataclass(frozen=True, eq=False)
class GradientSpread:
    """The sum over rows of gradient × gradient', estimated, and how much of it may still be noise.

    Attributes
    ----------
    matrix : array
        Positive semi-definite.
    factor_error : float
        The standard deviation of its ratio to the curvature.
    entry_error : float
        That of noise in the form q' matrix q, for |q| = 1.
    """

    matrix: FloatArray
    factor_error: float
    entry_error: float


def estimate_spread(noisy: FloatArray, scale: float, curvature: FloatArray, usual: tuple[float, float] | None) -> GradientSpread:
    """The spread of gradients behind a noisy one.

    If the model is right the spread is a multiple of the curvature: 1 for classes, the dispersion for counts, the
    residual variance for squared loss. The multiple takes one number of the noisy matrix, and is told well. How far the
    spread is from it, as for models that are not right, is kept as far as it exceeds the noise (James and Stein).

    Parameters
    ----------
    noisy : array
    scale : float
        Of the noise, >= 0.
    curvature : array
        Positive definite.
    usual : tuple of (float, float) or None
        The multiple where it is known beforehand, and how far it may commonly be from that.
    """
    size, square = len(noisy), float((curvature**2).sum())
    factor, error = float((noisy * curvature).sum()) / square, scale / math.sqrt(square)
    if usual is not None and error > 0:
        near, far = usual[0], usual[1] ** 2
        factor, error = (factor * far + near * error**2) / (far + error**2), math.sqrt(1 / (1 / far + 1 / error**2))
    # One that noise has made negative, or nearly so, is at least what it may be short by.
    factor = max(factor, error, 0.0)
    rest = noisy - factor * curvature
    noise = scale**2 * size * (size + 1) / 2
    part = max(0.0, 1.0 - noise / max(float((rest**2).sum()), 1e-300))
    values, vectors = np.linalg.eigh(factor * curvature + part * rest)
    return GradientSpread((vectors * np.maximum(values, 0.0)) @ vectors.T, error, part * scale)
