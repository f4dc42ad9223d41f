"""Weights of columns from private rows: what IDF is for text, released with noise.

    mass    m_j = mean over rows of |x_j| / |x|, with Gaussian noise of standard deviation σ
    weight  w_j = max(m_j, floor σ)^(-power)
    rows    x_j w_j / |x|, scaled to length 1

Common words dominate a row and say little; noise in the weights of rare words is cut off by the floor. Proof:
docs/proofs/private_preprocessing.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.extmath import row_norms

from tulle.accounting.gaussian_budget import gaussian_mu
from tulle.files.array_checks import read_rows
from tulle.preprocessing.private_step import Ones, PrivateStep, RowBounds, gaussian_release, scale_rows
from tulle.trusted.clipped_sum import ClippedSum, bound_change
from tulle.trusted.curator import Ask
from tulle.trusted.facts import PublicFacts
from tulle.trusted.plan import Release

_NAME = "column masses"

# The share is this divided by rows times mu, within limits (by errors on IMDB and 20 newsgroups, epsilon 0.5 and 2).
_ENOUGH = 350.0


def _at_length_1(X: Any) -> Any:
    """Rows scaled to length 1; zeros of those whose squares overflow or vanish."""
    lengths = np.asarray(row_norms(X))
    with np.errstate(all="ignore"):
        return scale_rows(X, np.where((lengths > 1e-140) & (lengths < 1e140), 1 / lengths, 0.0))


class PrivateWeights(PrivateStep):
    """Weight columns by a power of how common they are, privately; rows are scaled to length 1.

    Parameters
    ----------
    power : float, default=0.5
        In [0, 2]: weight = mass^(-power). 0 leaves all columns as they are.
    floor : float, default=3.0
        In [0, 100]: masses below so many standard deviations of their noise are raised to that.

    Attributes
    ----------
    weights_ : array of shape (d,)
        Released with noise. The largest is 1.

    Notes
    -----
    For sparse rows that are not weighted yet: counts or indicators of words or codes. It does harm where rows are
    weighted already. Use it as a step of `tulle.PrivatePipeline`.
    """

    learnt = ("weights_",)

    def __init__(self, power: float = 0.5, floor: float = 3.0) -> None:
        self.power = power
        self.floor = floor

    def check(self, X: Any) -> None:
        for name, most in (("power", 2.0), ("floor", 100.0)):
            value = getattr(self, name)
            if not (isinstance(value, (int, float)) and 0 <= value <= most):
                raise ValueError(f"PrivateWeights({name}=...) must lie in [0, {most:g}], got {value!r}")

    def default_share(self, public: PublicFacts) -> float:
        """5 %, and up to 10 % where rows are few for the budget: weights that drown in noise are worth nothing."""
        if public.budget is None:
            return 0.05
        mu = gaussian_mu(public.budget.epsilon, public.budget.delta)
        return min(max(_ENOUGH / (public.n_rows * mu), 0.05), 0.1)

    def releases(self, square: float, public: PublicFacts) -> tuple[Release, ...]:
        return (gaussian_release(_NAME, square),)

    def prepare(self, X: Any) -> Any:
        """Magnitudes of rows at length 1: hashed words have signs, and would cancel out."""
        return abs(_at_length_1(X))

    def learn(self, ask: Ask, public: PublicFacts, mu: float) -> None:
        query = ClippedSum(Ones(), (public.n_features, 1), 1.0)
        noisy = np.asarray(ask(_NAME, query)).ravel()
        sigma = bound_change(1.0, public) / mu  # of the noise, which is public
        weights = np.maximum(noisy, max(self.floor * sigma, 1e-9)) ** -self.power
        self.weights_ = weights / weights.max()

    def transform(self, X: Any) -> Any:
        """Weighted rows at length 1."""
        rows = X if sp.issparse(X) or isinstance(X, np.ndarray) else read_rows(X)
        self.check_columns(rows)
        rows = _at_length_1(rows)
        weighted = sp.csr_array(rows @ sp.diags_array(self.weights_)) if sp.issparse(rows) else rows * self.weights_
        return _at_length_1(weighted)

    def bounds(self, n_features: int) -> RowBounds:
        return RowBounds(1.0 + 1e-9, 1.0 + 1e-9)

    def describe(self) -> str:
        return (
            f"PrivateWeights multiplied columns by released masses to the power of -{self.power:g} (floor at "
            f"{self.floor:g} standard deviations of noise) and scaled rows to length 1."
        )
