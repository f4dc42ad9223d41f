"""A client's share of the noise on a sum that only all clients of a set together can show.

Every client rounds its clipped sum to a public grid, adds Gaussian noise that is rounded to the same grid, and masks
the whole numbers. The sum of the shares of honest clients is, up to a total variation of less than 1e-300, a rounding
of the sum of their normal draws: the noise of one Gaussian answer. Proof: docs/proofs/masked_sums.md.

Vouched for on use: it states a price that holds for masked answers only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tulle.accounting.mechanism_words import describe_mechanism
from tulle.federated.client_side.masks import Mask
from tulle.trusted.events import Event, GaussianEvent, SampledGaussianEvent
from tulle.trusted.exact_noise import NORMAL, add_noise
from tulle.trusted.mechanisms import PRICES, Gaussian, Sensitivity, Then
from tulle.trusted.plan import PlanError
from tulle.trusted.sampling import Sampling

# The least standard deviation of a share in units of the grid: from there on the sum of rounded draws and the rounded
# sum of draws cannot be told apart (lemma 2 of the proof page).
LEAST_STEPS = 32.0
# No draw of exact noise is larger, in standard deviations: 1024 bits give none beyond 40.
_LARGEST_DRAW = 41.0
# Units of one client are whole numbers that float64 holds exactly, and the sum of all is far below the modulus.
_MOST_UNITS, _MOST_TOTAL = 2.0**52, 2.0**62
# The scale is rounded in a few operations; noise is never smaller than the proof needs.
_ROUNDED_UP = 1 + 2.0**-48


@dataclass(frozen=True)
class GridOnly:
    """In place of a mask: the grid of an answer, and the largest sum of so many clients in units of it. No noise is
    drawn, and nothing that depends on rows is returned."""

    n_clients: int

    def __call__(self, answer: Any) -> Any:
        raise TypeError("the grid of a masked answer is asked for without an answer")


@dataclass(frozen=True)
class GaussianShare(Gaussian):
    """A sum over the rows of one client, with its share of Gaussian noise, under a mask.

    Parameters
    ----------
    noise : NoisePerSensitivity
        The standard deviation of the noise of `shares` clients together, per how far the sum over all clients' rows can
        move; with batches, when the replaced unit is in the batch.
    shares : int
        At least 1. How many honest clients every set has at least: each share has 1 / shares of the variance.
    rows : int
        At least 1. The rows of all clients, which sums are divided by, or expected batches are drawn from. Public.
    batches : Sampling or None
        How every client draws its batches: each row by itself, with the same chance at all clients. None: all rows.
    """

    shares: int = 1
    rows: int = 1
    batches: Sampling | None = None

    # As for batches in `SampledGaussian`; for all rows it is more than is needed, by less than one part in a thousand.
    ROUNDINGS = 2.0

    def __post_init__(self) -> None:
        if not (self.shares >= 1 and self.rows >= 1):
            raise ValueError(f"shares and rows must be at least 1, got {self.shares} and {self.rows}")
        if self.batches is not None and (self.batches.scheme != "poisson" or self.batches.n_rows != self.rows):
            raise ValueError("clients draw Poisson batches of the rows of all clients")

    @property
    def sampling(self) -> Sampling | None:
        return self.batches

    def units(self, sensitivity: Sensitivity, count: int) -> tuple[float, float, float]:
        """The grid, the standard deviation of a share in units of it, and the largest entry of the exact total in
        units: from public quantities. An answer of `count` numbers.

        An exact total is a mean of n rows, each with a contribution of norm C at most; replacing one moves it by C / n
        or more in what the query states. So no entry is above n times the sensitivity.
        """
        grid, scale = self.grid_and_scale(sensitivity, count)
        if not 0 < scale < math.inf:
            raise PlanError("a masked sum needs noise")
        steps = scale / grid / math.sqrt(self.shares) * _ROUNDED_UP
        most = self.rows * sensitivity.l2 / grid + 1.0
        if not (steps >= LEAST_STEPS and most + _LARGEST_DRAW * steps <= _MOST_UNITS):
            raise ValueError(
                "a masked sum has no grid for so many rows, features and clients; lower the number of features, or "
                "the budget"
            )
        return grid, steps, most

    def bound_total(self, sensitivity: Sensitivity, count: int, n_clients: int) -> tuple[float, float]:
        """The grid, and what no entry of the sum of all clients' units can surpass. Below the modulus, or an error."""
        grid, steps, most = self.units(sensitivity, count)
        total = most + n_clients * (_LARGEST_DRAW * steps + 1.0)
        if not total <= _MOST_TOTAL:
            raise ValueError("the sum of so many clients could wrap around; lower the number of clients or of rows")
        return grid, total

    def release(self, exact: Any, sensitivity: Sensitivity, generator: np.random.Generator, then: Then | None) -> Any:
        if type(then) is GridOnly:
            return self.bound_total(sensitivity, math.prod(exact.shape), then.n_clients)
        # By exact type: without the mask, a share of the noise is all that protects the answer.
        if type(then) is not Mask:
            raise PlanError("a share of noise protects an answer under a mask only")
        exact = exact if isinstance(exact, np.ndarray) else exact.to_dense()
        grid, steps, _ = self.units(sensitivity, exact.size)
        self.bound_total(sensitivity, exact.size, then.n_members)
        noisy = add_noise(exact, steps * grid, grid, NORMAL, generator)
        return then.hide(noisy.ravel().astype(np.int64), grid)


def _price(share: GaussianShare) -> tuple[Event, int]:
    """That of the noise of all honest shares together, which is what anyone can see of a masked answer."""
    batches = share.batches
    if batches is None or batches.unit_rate == 1:
        return GaussianEvent(share.noise), 1
    return SampledGaussianEvent(share.noise, batches.unit_rate, "poisson"), 1


PRICES[GaussianShare] = _price


@describe_mechanism.register
def _(share: GaussianShare) -> str:
    rows = "" if share.batches is None else f", Poisson batches of about {share.batches.batch:,}"
    return f"Gaussian by {share.shares} shares, masked{rows}"
