"""Privacy events: what one release costs, in the three currencies that our accountants use.

Every event speaks of *replace-one* adjacency: two data sets of the same public size that differ in the
record of one person. dp-accounting has no exponential mechanism, and its two accountants read the number in
``GaussianDpEvent`` in two different ways (see `GaussianEvent.to_dp_accounting`); these few records are what tulle
composes instead.

Proofs: docs/proofs/events.md.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr, ndtri

from tulle.privacy_loss import SampledGaussianPair

FloatArray = npt.NDArray[np.float64]

Library = Literal["rdp", "pld"]

# (shift, ((multiplicity, mu²), ...)): see `Event.gaussian_parts`.
GaussianParts = tuple[float, tuple[tuple[float, float], ...]]


@dataclass(frozen=True)
class NoisePerSensitivity:
    """Noise scale divided by the replace-one sensitivity of the query (``z_sens`` in the literature).

    The other convention in use, noise scale divided by the bound on one record (``z_rec``), is twice as large
    and a frequent source of wrong epsilons. tulle passes neither as a bare number: it passes this type.

    Parameters
    ----------
    value : float
        In [0, inf]. 0 is no noise at all, inf is an answer that is pure noise.
    """

    value: float

    def __post_init__(self) -> None:
        if not self.value >= 0:
            raise ValueError(f"noise per sensitivity must be >= 0, got {self.value}")

    @property
    def per_record_bound(self) -> float:
        """The same noise divided by the bound on one record: replacing a record moves a sum by two bounds."""
        return 2.0 * self.value

    def times(self, factor: float) -> NoisePerSensitivity:
        """The noise multiplied by `factor` (0 gives no noise, whatever it was)."""
        return NoisePerSensitivity(0.0 if factor == 0 else self.value * factor)


class Event(ABC):
    """The privacy cost of one release."""

    @abstractmethod
    def gaussian_mu(self) -> float:
        """A mu such that the release is mu-GDP: its trade-off curve lies above that of N(0,1) against N(mu,1)."""

    def gaussian_parts(self) -> GaussianParts:
        """A shift c and Gaussians (m_k, mu_k²) whose sum bounds the release at every epsilon.

        For neighbours and any real e the hockey-stick divergence at e is at most the sum of m_k times that of N(0,1)
        against N(mu_k,1) at e - c. Such sums compose: shifts and mu² add up, multiplicities multiply
        (docs/proofs/objective_perturbation.md, lemma 3). One Gaussian without a shift is mu-GDP.
        """
        return 0.0, ((1.0, self.gaussian_mu() ** 2),)

    @abstractmethod
    def renyi(self, orders: FloatArray) -> FloatArray:
        """An upper bound on the Rényi divergence at each order (> 1), in both directions."""

    @abstractmethod
    def pure_epsilon(self) -> float:
        """An epsilon for which the release is (epsilon, 0)-DP; inf where there is none."""

    def dominating_pair(self) -> SampledGaussianPair | None:
        """Two laws that are as easy to tell apart as any neighbours' answers, at every threshold, or None."""
        return None

    @abstractmethod
    def to_dp_accounting(self, library: Library) -> Any:
        """The event as dp-accounting's `library` accountant under REPLACE_ONE understands it, or None."""


@dataclass(frozen=True)
class GaussianEvent(Event):
    """Gaussian noise of standard deviation `noise` times the ℓ2 sensitivity."""

    noise: NoisePerSensitivity

    def gaussian_mu(self) -> float:
        return math.inf if self.noise.value == 0 else 1.0 / self.noise.value

    def renyi(self, orders: FloatArray) -> FloatArray:
        return orders * self.gaussian_mu() ** 2 / 2.0

    def pure_epsilon(self) -> float:
        return 0.0 if math.isinf(self.noise.value) else math.inf

    def dominating_pair(self) -> SampledGaussianPair:
        return SampledGaussianPair(self.gaussian_mu(), 0.0, 1.0)

    def to_dp_accounting(self, library: Library) -> Any:
        from dp_accounting import dp_event

        if math.isinf(self.noise.value):
            return dp_event.NoOpDpEvent()
        # Under REPLACE_ONE dp-accounting 0.6 takes the number as noise per sensitivity in the Rényi accountant,
        # but as noise per record bound in the PLD accountant.
        multiplier = self.noise.value if library == "rdp" else self.noise.per_record_bound
        return dp_event.GaussianDpEvent(multiplier)


@dataclass(frozen=True)
class SampledGaussianEvent(Event):
    """Gaussian noise on a sum over a batch of rows that is drawn afresh, in secret, for this one answer.

    The precondition on the batch, and why it must stay secret with its size: docs/proofs/sampled_gaussian.md.

    Parameters
    ----------
    noise : NoisePerSensitivity
        Standard deviation divided by how far the sum over one batch can move when the unit's rows in it are replaced.
        For Poisson batches what a unit adds to a sum must be bounded by half of that in norm, as it is where every
        row is clipped to a ball about 0: there a batch may also lack the unit's rows without others in their place.
    rate : float
        The chance, in (0, 1], that any row of the unit is in the batch.
    scheme : {"poisson", "without_replacement"}
        Whether rows are drawn independently of each other, or a fixed number of them, all sets equally likely.
    """

    noise: NoisePerSensitivity
    rate: float
    scheme: Literal["poisson", "without_replacement"]

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise ValueError(f"the chance of being in a batch must lie in (0, 1], got {self.rate}")
        if self.scheme not in ("poisson", "without_replacement"):
            raise ValueError(f"batches are drawn by 'poisson' or 'without_replacement', not {self.scheme!r}")

    def gaussian_mu(self) -> float:
        # Sampling only helps; batches of a fixed size have losses as large as all rows, so that no smaller mu serves.
        return GaussianEvent(self.noise).gaussian_mu()

    def renyi(self, orders: FloatArray) -> FloatArray:
        if self.noise.value == 0 or math.isinf(self.noise.value):
            return GaussianEvent(self.noise).renyi(orders)
        return self.dominating_pair().renyi(orders)

    def pure_epsilon(self) -> float:
        return GaussianEvent(self.noise).pure_epsilon()

    def dominating_pair(self) -> SampledGaussianPair:
        if self.scheme == "without_replacement" or self.rate == 1:
            # The unit takes another row's place in the batch: the sum moves by the whole sensitivity. (A batch of all
            # rows is both, and this pair is the tamer one.)
            return SampledGaussianPair(self.gaussian_mu(), 0.0, self.rate)
        # The unit comes on top of the others: the sum moves by its own bound, in opposite directions for neighbours.
        per_record = self.gaussian_mu() / 2
        return SampledGaussianPair(per_record, -per_record, self.rate)

    def to_dp_accounting(self, library: Library) -> Any:
        from dp_accounting import dp_event

        if math.isinf(self.noise.value):
            return dp_event.NoOpDpEvent()
        if self.noise.value == 0:
            return dp_event.NonPrivateDpEvent()
        # dp-accounting 0.6 has Poisson batches in its PLD accountant alone, and others in its Rényi accountant, which
        # wants the number of rows.
        if self.scheme == "poisson" and library == "pld":
            return dp_event.PoissonSampledDpEvent(self.rate, dp_event.GaussianDpEvent(self.noise.per_record_bound))
        return None


@dataclass(frozen=True)
class LaplaceEvent(Event):
    """Laplace noise of scale `noise` times the ℓ1 sensitivity."""

    noise: NoisePerSensitivity

    def pure_epsilon(self) -> float:
        return math.inf if self.noise.value == 0 else 1.0 / self.noise.value

    def gaussian_mu(self) -> float:
        return pure_gaussian_mu(self.pure_epsilon())

    def renyi(self, orders: FloatArray) -> FloatArray:
        shift = self.pure_epsilon()
        if math.isinf(shift):
            return np.full_like(orders, math.inf)
        # Mironov 2017, table II, written with logarithms so that large orders do not overflow.
        first = np.log(orders / (2 * orders - 1)) + (orders - 1) * shift
        second = np.log((orders - 1) / (2 * orders - 1)) - orders * shift
        rounding = 1e-13 * (1 + orders * shift) / (orders - 1)
        return np.maximum(np.logaddexp(first, second) / (orders - 1), 0.0) + rounding

    def to_dp_accounting(self, library: Library) -> Any:
        from dp_accounting import dp_event

        if self.noise.value == 0:
            return dp_event.NonPrivateDpEvent()
        return dp_event.LaplaceDpEvent(self.noise.value) if library == "rdp" else None


@dataclass(frozen=True)
class BoundedRangeEvent(Event):
    """An exponential mechanism: for neighbours the log-ratios of all outcomes lie in an interval of this length.

    Parameters
    ----------
    epsilon : float
        The range, in [0, inf].
    """

    epsilon: float

    def __post_init__(self) -> None:
        if not self.epsilon >= 0:
            raise ValueError(f"the range must be >= 0, got {self.epsilon}")

    def pure_epsilon(self) -> float:
        return self.epsilon

    def gaussian_mu(self) -> float:
        # The worst trade-off curve of a range is that of two logistic laws shifted by it, and the Gaussian
        # isoperimetric profile is at least 4 phi(0) p (1 - p): docs/proofs/events.md, lemma 3.
        return self.epsilon * math.sqrt(2 * math.pi) / 4

    def renyi(self, orders: FloatArray) -> FloatArray:
        concentrated = orders * self.epsilon**2 / 8
        if self.epsilon < 1e-3 or self.epsilon > 500:
            return concentrated
        # The supremum over where the interval lies is attained at exp(t) = b A / ((b + 1) B); see lemma 2.
        b = orders - 1.0
        log_a = self.epsilon + np.log(-np.expm1(-orders * self.epsilon))
        log_b = np.log(-np.expm1(-b * self.epsilon))
        t = np.clip(np.log(b / orders) + log_a - log_b, 0.0, self.epsilon)
        exact = (b * t + log_a - np.log(orders) - np.log(np.expm1(self.epsilon))) / b
        rounding = 1e-13 * (1.0 + b * self.epsilon) / b
        return np.minimum(concentrated, np.maximum(exact, 0.0) + rounding)

    def to_dp_accounting(self, library: Library) -> Any:
        from dp_accounting import dp_event

        return dp_event.ZCDpEvent(self.epsilon**2 / 8) if library == "rdp" else None


@dataclass(frozen=True)
class PureEvent(Event):
    """A release that is (epsilon, 0)-DP and about which nothing more is known.

    Report-noisy-max with Laplace noise and permute-and-flip are such releases. What is billed is randomised response,
    of which every other one is a post-processing (docs/proofs/events.md, lemma 5).

    Parameters
    ----------
    epsilon : float
        In [0, inf].
    """

    epsilon: float

    def __post_init__(self) -> None:
        if not self.epsilon >= 0:
            raise ValueError(f"epsilon must be >= 0, got {self.epsilon}")

    def pure_epsilon(self) -> float:
        return self.epsilon

    def gaussian_mu(self) -> float:
        return pure_gaussian_mu(self.epsilon)

    def renyi(self, orders: FloatArray) -> FloatArray:
        if math.isinf(self.epsilon):
            return np.full_like(orders, math.inf)
        b = orders - 1.0
        # The expectation less 1, as a product: nothing cancels for a small epsilon or near order 1. Where it would
        # overflow, its logarithm is taken term by term, and there epsilon is by far the largest of the terms.
        half = self.epsilon / 2
        large = orders * self.epsilon > 300
        tame = np.where(large, 0.0, half)
        excess = 2 * np.sinh(orders * tame) * np.sinh(b * tame) / np.cosh(tame)
        tails = np.log1p(np.exp(-2 * half)) - np.log1p(np.exp(-2 * (orders + b) * half))
        exact = np.where(large, self.epsilon - tails / b, np.log1p(excess) / b)
        return np.minimum(exact * (1 + 1e-13), self.epsilon)

    def to_dp_accounting(self, library: Library) -> Any:
        from dp_accounting import dp_event

        if self.epsilon > 700:
            return dp_event.NonPrivateDpEvent()
        # dp-accounting 0.6 answers with one of two buckets at random with probability p, and truly otherwise: the odds
        # of the true one are 2 / p - 1. Its PLD accountant forgets how often this event is used and bills it once.
        return dp_event.RandomizedResponseDpEvent(2 / (1 + math.exp(self.epsilon)), 2) if library == "rdp" else None


@dataclass(frozen=True)
class ObjectivePerturbationEvent(Event):
    """The minimiser of a penalised convex objective with a random Gaussian linear term, released once.

    The privacy loss is at most the log-determinant ratio plus the largest of a few Gaussian privacy losses: one for
    each way in which the rows of the replaced unit can be at or off their gradient bounds
    (docs/proofs/objective_perturbation.md, theorem 1).

    Parameters
    ----------
    noise : NoisePerSensitivity
        The linear term's standard deviation divided by how far the objective's gradient can move.
    log_determinant : float
        Bound on the logarithm of the ratio of the two Hessians' determinants, in [0, inf).
    one_sided : bool
        Whether a row's gradient always points the same way along the row (true of classification losses: a larger
        margin never costs more). Without it rows can pull either way, and more cases must be counted.
    rows_per_unit : int
        At least 1.
    certificate : float
        The Gaussian noise that hides how far the solver stopped from the exact minimiser is this many times `noise`
        (per its own sensitivity), > 0.
    """

    noise: NoisePerSensitivity
    log_determinant: float
    one_sided: bool
    rows_per_unit: int
    certificate: float

    def __post_init__(self) -> None:
        if not self.log_determinant >= 0:
            raise ValueError(f"the log-determinant must be >= 0, got {self.log_determinant}")

    def _mu(self) -> float:
        return math.inf if self.noise.value == 0 else 1.0 / self.noise.value

    def gaussian_mu(self) -> float:
        return 0.0 if self._mu() == self.log_determinant == 0 else math.inf

    def gaussian_parts(self) -> GaussianParts:
        square = self._mu() ** 2
        hidden = square / self.certificate**2
        if math.isinf(square):
            parts: tuple[tuple[float, float], ...] = ((1.0, math.inf),)
        elif self.rows_per_unit > 1:  # 4^k ways to be at a bound, none beyond mu
            ways = 4.0**self.rows_per_unit if self.rows_per_unit < 500 else math.inf
            parts = ((ways, square + hidden),)
        elif self.one_sided:  # both rows at their bounds, one of them, none
            parts = ((1.0, square + hidden), (2.0, square / 4 + hidden), (1.0, hidden))
        else:  # the rows pull together or apart, each in two directions
            parts = ((2.0, square + hidden), (2.0, square / 2 + hidden))
        return self.log_determinant, parts

    def renyi(self, orders: FloatArray) -> FloatArray:
        shift, parts = self.gaussian_parts()
        if any(math.isinf(square) for _, square in parts):
            return np.full_like(orders, math.inf)
        b = orders - 1.0
        if self.rows_per_unit > 1:  # in logarithms: 4^k is soon out of what floats can hold
            bound = self.rows_per_unit * math.log(4) / b + orders * parts[0][1] / 2
        else:
            exponents = [math.log(times) + orders * b * square / 2 for times, square in parts]
            bound = np.logaddexp.reduce(exponents, axis=0) / b
            # At small orders the two-dimensional bound is the smaller one: mu²/2 + mu R with R of Rayleigh's law.
            mu = self._mu()
            t = mu * b
            tail = 0.5 * math.log(2 * math.pi) + np.log(np.maximum(t, 1e-300)) + t**2 / 2 + log_ndtr(t)
            rayleigh = mu**2 / 2 + np.logaddexp(0.0, tail) / b + orders * (mu / self.certificate) ** 2 / 2
            bound = np.minimum(bound, rayleigh)
        return shift + bound + 1e-13 * (1 + np.abs(bound))

    def pure_epsilon(self) -> float:
        return math.inf

    def to_dp_accounting(self, library: Library) -> Any:
        return None


@dataclass(frozen=True)
class ExposedEvent(Event):
    """An answer without noise: nothing is promised."""

    def gaussian_mu(self) -> float:
        return math.inf

    def renyi(self, orders: FloatArray) -> FloatArray:
        return np.full_like(orders, math.inf)

    def pure_epsilon(self) -> float:
        return math.inf

    def to_dp_accounting(self, library: Library) -> Any:
        from dp_accounting import dp_event

        return dp_event.NonPrivateDpEvent()


def pure_gaussian_mu(epsilon: float) -> float:
    """The smallest mu for which every (epsilon, 0)-DP release is mu-GDP (docs/proofs/events.md, lemma 4)."""
    if epsilon > 700:
        return math.inf
    if epsilon < 1e-4:  # 1 / (1 + exp(epsilon)) rounds to 1/2; the tangent at 0 is above by less than one part in 1e9
        return epsilon * math.sqrt(2 * math.pi) / 2
    return 2.0 * float(-ndtri(1.0 / (1.0 + math.exp(epsilon))))
