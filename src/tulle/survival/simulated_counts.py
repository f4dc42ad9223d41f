"""Counts like released ones, drawn anew with sampling and noise, for intervals. Sees released counts alone."""

from __future__ import annotations

import numpy as np

from tulle.trusted.events import FloatArray

# Larger counts hardly vary, relative to themselves; and numpy draws no Poisson numbers of a mean beyond 9e18.
_LARGEST_MEAN = 1e15
# At most this many numbers are drawn, so that memory is bounded by public figures.
_MOST_NUMBERS, _LEAST_DRAWS = 10_000_000, 200


def draw_counts(counts: FloatArray, scale: float, n_draws: int) -> FloatArray:
    """Tables like this one, of shape (draws, *table): Poisson numbers of these means, with Laplace noise.

    Parameters
    ----------
    counts : array
        Not negative.
    scale : float
        Of the noise.
    n_draws : int
        At most; fewer for large tables, and never fewer than 200.
    """
    generator = np.random.default_rng(0)  # of a computation on released counts, the same each time
    draws = max(min(n_draws, _MOST_NUMBERS // counts.size), _LEAST_DRAWS)
    means = np.broadcast_to(np.minimum(counts, _LARGEST_MEAN), (draws, *counts.shape))
    return np.asarray(generator.poisson(means) + generator.laplace(0.0, scale, means.shape))
