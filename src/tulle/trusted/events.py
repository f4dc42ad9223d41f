"""Privacy events: what one release costs, as a Gaussian trade-off and a pure epsilon.

Adjacency is *replace-one*: two data sets of the same public size that differ in the record of one person.
Proofs: docs/proofs/events.md.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from tulle.trusted import hooks

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class NoisePerSensitivity:
    """Noise scale divided by the replace-one sensitivity of the query, in [0, inf]; 0 is no noise.

    A type of its own, because noise divided by the bound on one record, twice as large, is in use as well: mixing the
    two up makes epsilons wrong.
    """

    value: float

    def __post_init__(self) -> None:
        if not self.value >= 0:
            raise ValueError(f"noise per sensitivity must be >= 0, got {self.value}")
        object.__setattr__(self, "value", float(self.value))  # squares of a float16 underflow

    @property
    def inverse(self) -> float:
        """Sensitivity divided by the noise scale; inf where there is no noise."""
        return math.inf if self.value == 0 else 1.0 / self.value

    def times(self, factor: float) -> NoisePerSensitivity:
        """The noise multiplied by `factor` (0 gives no noise, even of an infinite value)."""
        return NoisePerSensitivity(0.0 if factor == 0 else self.value * factor)


class Event:
    """The privacy cost of one release. What a subclass does not state follows from its pure epsilon alone: the release
    is a post-processing of randomised response (docs/proofs/events.md, lemma 5). Without one nothing is promised."""

    def pure_epsilon(self) -> float:
        """An epsilon for which the release is (epsilon, 0)-DP; inf where there is none."""
        return math.inf

    def gaussian_mu(self) -> float:
        """A mu such that the release is mu-GDP: its trade-off curve lies above that of N(0,1) against N(mu,1)."""
        return pure_gaussian_mu(self.pure_epsilon())

    def renyi(self, orders: FloatArray) -> FloatArray:
        """An upper bound on the Rényi divergence at each order (> 1), in both directions; inf where none is installed
        (`tulle.accounting.renyi`)."""
        curve = hooks.get("renyi")
        return np.full_like(orders, math.inf) if curve is None else np.asarray(curve(self, orders))


@dataclass(frozen=True)
class ExposedEvent(Event):
    """An answer without noise."""


@dataclass(frozen=True)
class GaussianEvent(Event):
    """Gaussian noise of standard deviation `noise` times the ℓ2 sensitivity."""

    noise: NoisePerSensitivity

    def gaussian_mu(self) -> float:
        return self.noise.inverse

    def pure_epsilon(self) -> float:
        return 0.0 if math.isinf(self.noise.value) else math.inf


@dataclass(frozen=True)
class SampledGaussianEvent(GaussianEvent):
    """Gaussian noise on a sum over a batch that is drawn afresh, in secret, for this one answer: see
    docs/proofs/sampled_gaussian.md.

    `noise` is the standard deviation divided by how far the sum over one batch moves when the unit's rows in it are
    replaced; for Poisson batches what a unit adds must be bounded by half of that in norm (rows clipped to a ball
    about 0). `rate` is the chance, in (0, 1], that any row of the unit is in the batch. Batches hold each row
    independently ("poisson") or are of a fixed size, all sets equally likely ("without_replacement").
    """

    rate: float
    scheme: Literal["poisson", "without_replacement"]

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise ValueError(f"the chance of being in a batch must lie in (0, 1], got {self.rate}")
        if self.scheme not in ("poisson", "without_replacement"):
            raise ValueError(f"batches are drawn by 'poisson' or 'without_replacement', not {self.scheme!r}")

    # Of all rows, mu and the pure epsilon: sampling only helps, and for batches of a fixed size no smaller mu serves.


@dataclass(frozen=True)
class LaplaceEvent(Event):
    """Laplace noise of scale `noise` times the ℓ1 sensitivity."""

    noise: NoisePerSensitivity

    def pure_epsilon(self) -> float:
        return self.noise.inverse


@dataclass(frozen=True)
class PureEvent(Event):
    """A release that is (epsilon, 0)-DP and about which nothing more is known."""

    epsilon: float

    def __post_init__(self) -> None:
        if not self.epsilon >= 0:
            raise ValueError(f"epsilon must be >= 0, got {self.epsilon}")

    def pure_epsilon(self) -> float:
        return self.epsilon


@dataclass(frozen=True)
class BoundedRangeEvent(PureEvent):
    """An exponential mechanism: for neighbours all outcomes have log-ratios in an interval of length `epsilon`."""

    def gaussian_mu(self) -> float:
        # The worst trade-off curve of a range is that of two logistic laws shifted by it, and they are furthest apart
        # half-way between them: docs/proofs/events.md, lemma 3.
        return pure_gaussian_mu(self.epsilon / 2)


# F of theorem 1 of docs/proofs/objective_perturbation.md, rounded up, at these xi: for losses whose slopes have one
# sign along a row, and for all others. A test computes the tables anew, with roundings that go up.
# fmt: off
_XI = (
    0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.9, 1, 1.2, 1.4, 1.6, 2, 2.5,
    3, 4
)
_ONE_SIDED = (
    1.0011, 1.0013, 1.0022, 1.0034, 1.0048, 1.0065, 1.0084, 1.0106, 1.0130, 1.0158, 1.0188, 1.0221, 1.0260, 1.0325,
    1.0388, 1.0527, 1.0682, 1.1024, 1.1394, 1.1782, 1.2583, 1.3607, 1.4635, 1.6679
)
_TWO_SIDED = (
    1.0036, 1.0077, 1.0133, 1.0201, 1.0282, 1.0374, 1.0519, 1.0634, 1.0759, 1.0894, 1.1039, 1.1196, 1.1368, 1.1551,
    1.1746, 1.2185, 1.2686, 1.4046, 1.5558, 1.6233, 1.6826, 1.7225, 1.8169, 2.0201
)
# fmt: on


def objective_factor(xi: float, one_sided: bool) -> float:
    """An upper bound of F at xi >= 0. F does not fall as xi grows, nor does F / xi rise."""
    if xi == 0:
        return 1.0
    table = _ONE_SIDED if one_sided else _TWO_SIDED
    place = bisect_left(_XI, xi)
    from_below = table[place - 1] * xi / _XI[place - 1] if place else math.inf
    return min(from_below, table[place] if place < len(_XI) else math.inf)


@dataclass(frozen=True)
class ObjectivePerturbationEvent(Event):
    """The minimiser of a penalised convex objective with a random Gaussian linear term, released once.

    It is as private as the linear term would be on its own, up to a factor near 1: the curvature that one row adds,
    relative to the penalty, makes the law of the minimiser denser at some places
    (docs/proofs/objective_perturbation.md, theorem 1).

    `noise` is the linear term's standard deviation divided by how far the objective's gradient can move;
    `log_determinant` bounds the log-ratio of the Hessians' determinants; `one_sided` says that a row's gradient always
    points the same way along the row, as in classification; the noise that hides how far the solver stopped from the
    minimiser is `certificate` > 0 times `noise`, per its own sensitivity.
    """

    noise: NoisePerSensitivity
    log_determinant: float
    one_sided: bool
    rows_per_unit: int
    certificate: float

    def __post_init__(self) -> None:
        if not self.log_determinant >= 0:
            raise ValueError(f"the log-determinant must be >= 0, got {self.log_determinant}")
        if not (self.rows_per_unit >= 1 and self.certificate > 0):
            raise ValueError(
                f"rows per unit must be >= 1 and the certificate > 0: {self.rows_per_unit}, {self.certificate}"
            )

    def gaussian_mu(self) -> float:
        mu = self.noise.inverse
        if mu in (0.0, math.inf) or self.log_determinant > 700:
            return 0.0 if mu == self.log_determinant == 0 else math.inf
        # Of one row: how much curvature it adds relative to the penalty, per how far it moves the gradient.
        curvature = math.expm1(self.log_determinant / self.rows_per_unit)
        xi = 2 * self.rows_per_unit * curvature / mu * (1 + 1e-12)
        return math.hypot(mu * objective_factor(xi, self.one_sided), mu / self.certificate)


def pure_gaussian_mu(epsilon: float) -> float:
    """The smallest mu for which every (epsilon, 0)-DP release is mu-GDP (docs/proofs/events.md, lemma 4)."""
    if epsilon > 700:
        return math.inf
    if epsilon < 1e-4:  # 1 / (1 + exp(epsilon)) rounds to 1/2; the tangent at 0 is above by less than one part in 1e9
        return epsilon * math.sqrt(2 * math.pi) / 2
    return 2.0 * float(-ndtri(1.0 / (1.0 + math.exp(epsilon))))
