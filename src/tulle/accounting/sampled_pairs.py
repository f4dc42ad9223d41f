"""The pairs of laws that dominate Gaussian answers, about all rows or about random batches.

Proofs: docs/proofs/sampled_gaussian.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.special import erf, log_ndtr

from tulle.trusted.events import SampledGaussianEvent

FloatArray = npt.NDArray[np.float64]

# Nodes for Rényi divergences: this far apart near the middle, by a ratio further out, and by another far out, where P
# has hardly any mass and only very large orders look.
_STEP, _EVEN_UP_TO = 0.02, 6.0
_RATIO, _FAR_RATIO = 1 + _STEP / _EVEN_UP_TO, 1.01

# Beyond this many standard deviations a Gaussian's mass is below 1e-196: far below any delta that is supported.
_FAR = 30.0


@dataclass(frozen=True)
class SampledGaussianPair:
    """The pair of laws that dominates a Gaussian answer about a random batch, noise 1.

    Without the unit in the batch the answer is N(0, 1); with it, it is N(up, 1) or N(down, 1):

        P = (1 - rate) N(0, 1) + rate N(up, 1),    Q = (1 - rate) N(0, 1) + rate N(down, 1).

    Only the side on which P is larger is used; it begins half-way between `up` and `down`. The other side is its mirror
    image: mass m of P at a loss l stands for mass m exp(-l) at -l, and the rest has a loss of 0. Places on the line are
    measured from half-way.

    Parameters
    ----------
    up, down : float
        Means, up > 0 >= down, up + down >= 0. (mu, 0) for batches of a fixed size, (mu/2, -mu/2) for Poisson batches.
    rate : float
        The chance that the unit is in the batch, in (0, 1].
    """

    up: float
    down: float
    rate: float

    @property
    def distance(self) -> float:
        """The mu of the same answer about all rows."""
        return self.up - self.down

    @property
    def middle(self) -> float:
        return (self.up + self.down) / 2

    @property
    def total_variation(self) -> float:
        return self.rate * float(erf(self.distance / math.sqrt(8)))

    def _log_ratios(self, places: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Logarithms of the densities of N(up, 1), N(down, 1) and Q, each relative to N(0, 1)."""
        up = self.up * places + self.up * self.down / 2
        down = self.down * places + self.up * self.down / 2
        if self.down == 0:
            return up, down, np.zeros_like(places)
        with np.errstate(divide="ignore"):
            return up, down, np.logaddexp(np.log1p(-self.rate), math.log(self.rate) + down)

    def loss(self, places: FloatArray) -> FloatArray:
        """log(dP/dQ) at places >= 0. It rises from 0."""
        up, _, q = self._log_ratios(places)
        with np.errstate(divide="ignore"):
            # P/Q - 1 is rate (e^up - e^down) / Q, and e^up - e^down = e^up (1 - e^-(up - down)): nothing cancels.
            return np.logaddexp(0.0, math.log(self.rate) + up + np.log(-np.expm1(-self.distance * places)) - q)

    def place(self, losses: FloatArray) -> FloatArray:
        """Where the loss has these values, >= 0."""
        with np.errstate(divide="ignore"):
            growth = losses + np.log(-np.expm1(-losses))  # of exp(loss) - 1, in logarithms
            if self.down == 0:
                return np.logaddexp(0.0, growth - math.log(self.rate)) / self.up
            # up * place = loss/2 + asinh((1 - rate)/rate exp(up²/2) sinh(loss/2))
            sinh = np.log1p(-self.rate) - math.log(self.rate) + self.up**2 / 2 + growth - losses / 2 - math.log(2)
            return (losses / 2 + np.logaddexp(sinh, 0.5 * np.logaddexp(0.0, 2 * sinh))) / self.up

    def split(self, places: FloatArray, losses: FloatArray) -> tuple[FloatArray, float]:
        """P's mass beyond the middle, moved to some places of known loss, and the mass that is moved to infinity.

        The mass between two neighbouring places goes to both of them, in the parts that leave P's mass and Q's mass
        as they are. That makes the two laws easier to tell apart, never harder (lemma 5). `places` start at 0.
        """
        rate, ends = self.rate, np.append(places + self.middle, math.inf)
        nothing = _log_mass(ends)
        with_up = _log_mass(ends - self.up)
        up, down, q = self._log_ratios(places)
        mass = (1 - rate) * np.exp(nothing) + rate * np.exp(with_up)
        # What P has more than exp(loss at the lower place) Q, as a sum of differences that are all >= 0.
        if self.down == 0:
            excess = rate * (np.exp(with_up) - np.exp(up + nothing))
        else:
            with_down = _log_mass(ends - self.down)
            apart = np.exp(with_up - q) - np.exp(up + nothing - q) + np.exp(down + nothing - q) - np.exp(with_down - q)
            excess = rate * (1 - rate) * apart + rate**2 * (np.exp(down + with_up - q) - np.exp(up + with_down - q))
        # Losses can be too small to differ; then it does not matter which of two places the mass goes to.
        parts = np.maximum(-np.expm1(-np.append(np.diff(losses), math.inf)), 1e-300)
        higher = np.clip(excess / parts, 0.0, mass)
        chances = mass - higher
        chances[1:] += higher[:-1]
        return chances, float(higher[-1])

    def masses(self, losses: FloatArray) -> tuple[FloatArray, float]:
        return self.split(self.place(losses), losses)

    def spread(self) -> float:
        """What a grid must resolve: the mean of the squared loss, or of the squared mu where that is less."""
        losses, chances = _nodes(self)
        return float(np.sum(chances * (1 + np.exp(-losses)) * np.minimum(losses, self.distance) ** 2))

    def quantile(self, share: float) -> float:
        """A loss that P passes with a chance of at most `share`, about the least."""
        losses, chances = _nodes(self)
        beyond = np.cumsum(chances[::-1])[::-1]
        return float(losses[min(int(np.searchsorted(-beyond, -share)), len(losses) - 1)])

    def renyi(self, orders: FloatArray) -> FloatArray:
        """An upper bound on the Rényi divergence at each order, the same both ways.

        E(order) - 1 is the mean of (1 - exp(-(order - 1) loss)) (exp(order loss) - 1) over Q beyond the middle: a sum
        over places, and a closed form for what lies beyond the last one (lemma 6).
        """
        unsampled = orders * self.distance**2 / 2
        if self.rate == 1:
            return unsampled
        above = orders - 1.0
        losses, log_weights, last = _renyi_nodes(self, float(np.max(orders)) * self.up)
        grown = np.multiply.outer(orders, losses)
        exponents = grown + log_weights
        # Beyond the last place the loss grows no faster than there, and Q has no more mass than N(0, 1).
        end = np.array([last])
        _, down, q = self._log_ratios(end)
        slope = self.up - self.down * self.rate * math.exp(float(down[0] - q[0]))
        start = last + self.middle
        beyond = orders * (float(self.loss(end)[0]) - slope * start + orders * slope**2 / 2)
        beyond += log_ndtr(orders * slope - start)
        largest = np.maximum(exponents.max(axis=1), beyond)
        terms = np.exp(exponents - largest[:, None])
        terms *= np.expm1(-grown)
        terms *= np.expm1(-np.multiply.outer(above, losses))
        log_excess = largest + np.log(terms.sum(axis=1) + np.exp(beyond - largest))
        bound = np.logaddexp(0.0, log_excess) / above
        return np.minimum(unsampled, bound * (1 + 1e-12) + 1e-14 * unsampled)  # more than rounding can hide


def sampled_pair(event: SampledGaussianEvent) -> SampledGaussianPair:
    """The pair of an answer about a random batch, with some noise."""
    mu = event.gaussian_mu()
    if event.scheme == "without_replacement" or event.rate == 1:
        # The unit takes another row's place: the sum moves by the whole sensitivity. A batch of all rows is both.
        return SampledGaussianPair(mu, 0.0, event.rate)
    # The unit comes on top of the others: the sum moves by its own bound, in opposite directions for neighbours.
    per_record = mu / 2
    return SampledGaussianPair(per_record, -per_record, event.rate)


def _log_mass(ends: FloatArray) -> FloatArray:
    """Logarithms of the masses of N(0, 1) between neighbouring ends."""
    low, high = ends[:-1], ends[1:]
    # Both ends are looked at from the side on which the tails are small.
    mirrored = low + high < 0
    larger = log_ndtr(np.where(mirrored, high, -low))
    smaller = log_ndtr(np.where(mirrored, low, -high))
    with np.errstate(divide="ignore"):
        return larger + np.log(-np.expm1(np.minimum(smaller - larger, 0.0)))


def _geometric(first: float, last: float, ratio: float) -> FloatArray:
    """Places from `first` on to `last` or a little further, each so many times the one before."""
    count = max(math.ceil(math.log(last / first) / math.log(ratio)), 0)
    return first * ratio ** np.arange(count + 1.0)


def _near_places(pair: SampledGaussianPair) -> FloatArray:
    even = np.arange(0.0, _EVEN_UP_TO - _STEP / 2, _STEP)
    return np.concatenate([even, _geometric(_EVEN_UP_TO, pair.up - pair.middle + _FAR, _RATIO)])


@lru_cache(maxsize=64)
def _nodes(pair: SampledGaussianPair) -> tuple[FloatArray, FloatArray]:
    """Losses and P's masses at places that cover all but 1e-190 of P."""
    places = _near_places(pair)
    losses = pair.loss(places)
    return losses, pair.split(places, losses)[0]


@lru_cache(maxsize=64)
def _renyi_nodes(pair: SampledGaussianPair, reach: float) -> tuple[FloatArray, FloatArray, float]:
    """Losses, logarithms of Q's masses, and the last place: where the loss is a straight line, or past `reach`.

    Past the near places all the mass beyond one of them is moved to the next.
    """
    near = _near_places(pair)
    losses, chances = _nodes(pair)
    with np.errstate(divide="ignore"):
        logs = np.log(chances) - losses
    straight = pair.up / 2 + (math.log1p(-pair.rate) - math.log(pair.rate) + 40) / pair.up - pair.middle
    far = _geometric(float(near[-1]), max(min(straight, reach), float(near[-1])), _FAR_RATIO)
    losses = np.append(losses, pair.loss(far[1:]))
    logs = np.append(logs, log_ndtr(-far[:-1] - pair.middle))
    return losses, logs, float(far[-1])
