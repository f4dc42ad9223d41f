"""Privacy loss distributions: the law of the log-ratio of two neighbouring answers, and how such laws add up.

A pair of laws (P, Q) dominates a release when no neighbours are easier to tell apart than P from Q, at any threshold.
The loss of the pair is log(dP/dQ) under P, and the losses of releases that follow each other add up. So the epsilon of
many releases is read off a sum of independent losses, which is as sharp as the pairs are. Here are the pairs of
Gaussian answers about random batches, their losses on a grid, and the sum, by fast Fourier transforms.

Every rounding goes one way: what is returned is never below the epsilon of the pairs. Proofs:
docs/proofs/sampled_gaussian.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy import fft
from scipy.special import erf, log_ndtr

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

    Only the side counts on which P is the larger one, which begins half-way between `up` and `down`. The other side is
    its mirror image: mass m of P at a loss l stands for mass m exp(-l) at -l, and what is left is a loss of 0. Places
    on the line are counted from half-way on.

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


# --- losses on a grid ------------------------------------------------------------------------------------------------

# How far apart the losses of a grid are, in roots of the spread of one release. Moving losses to a grid adds at most a
# quarter of the square of this to their mean square, in parts of it: one ten-thousandth.
_FINENESS = 0.02

# Where that would be more points than this, the grid is coarser and the result a little larger.
_MANY_POINTS = 2**19

# The part of delta that is given up for losses beyond the grid, and again for sums beyond the window.
_SPARED = 1e-5

# The exponents b among which the tilt and the window are chosen, and the parts of the best one that are tried as tilts.
# The best itself, which makes epsilon the likeliest sum, can leave so heavy a tail that it wraps around the window.
_EXPONENTS = np.geomspace(1e-4, 1e8, 121)
_TILTS = np.array([0.8, 0.9, 0.95, 0.98, 0.99])

# Where epsilon turns out to be less than this part of what was expected, it is looked for again, nearer by.
_CLOSE = 0.75


@dataclass(frozen=True, eq=False)
class LossGrid:
    """The law of a loss on the multiples of an interval.

    Attributes
    ----------
    interval : float
    chances : array of shape (2 n + 1,)
        Of the losses -n, ..., n times the interval.
    infinite : float
        The chance of an infinite loss.
    """

    interval: float
    chances: FloatArray
    infinite: float

    @property
    def numbers(self) -> npt.NDArray[np.int64]:
        n = len(self.chances) // 2
        return np.arange(-n, n + 1)

    def tilted(self, exponent: float) -> tuple[float, FloatArray]:
        """The logarithm of the mean of exp(exponent × loss), finite losses only, and the chances so weighted."""
        with np.errstate(divide="ignore"):
            logs = np.log(self.chances) + exponent * self.interval * self.numbers
        largest = float(logs.max())
        weighted = np.exp(logs - largest)
        total = float(weighted.sum())
        return largest + math.log(total), weighted / total


def loss_grid(pair: SampledGaussianPair, interval: float, beyond: float) -> LossGrid:
    """The losses of a pair on a grid that they pass with a chance of at most `beyond`."""
    n = max(math.ceil(pair.quantile(beyond) / interval), 1)
    losses = interval * np.arange(n + 1.0)
    above, infinite = pair.split(pair.place(losses), losses)
    below = above * np.exp(-losses)
    nothing = max(1.0 - float(above[1:].sum() + below[1:].sum()) - infinite, 0.0)
    return LossGrid(interval, np.concatenate([below[:0:-1], [nothing], above[1:]]), infinite)


def pairs_epsilon(parts: Sequence[tuple[SampledGaussianPair, int]], delta: float) -> float:
    """An epsilon that holds at `delta` for releases that are dominated by these pairs, each so many times."""
    if sum(count * pair.total_variation for pair, count in parts) <= delta:
        return 0.0
    uses = sum(count for _, count in parts)
    moments = Moments.of(parts, _EXPONENTS).refined(parts, delta)
    known = float(moments.proved(delta).min())
    if known <= 0:
        return 0.0
    window = Window.around(moments, delta, known)
    interval = max(
        _FINENESS * math.sqrt(sum(count * pair.spread() for pair, count in parts) / uses),
        max(pair.quantile(_SPARED * delta / uses) for pair, _ in parts) / _MANY_POINTS,
        (window.high - window.low) / _MANY_POINTS,
    )
    grids = [(loss_grid(pair, interval, _SPARED * delta / uses), count) for pair, count in parts]
    while 0 < (found := composed_epsilon(grids, delta, window)) < _CLOSE * known:
        known = found
        window = Window.around(moments, delta, known)
        window = replace(window, low=max(window.low, window.high - _MANY_POINTS * interval))
    return min(found, known)


@dataclass(frozen=True, eq=False)
class Moments:
    """Upper bounds on log E exp(b × sum of losses), at rising exponents b: what steers the transform."""

    exponents: FloatArray
    logs: FloatArray

    @classmethod
    def of(cls, parts: Sequence[tuple[SampledGaussianPair, int]], exponents: FloatArray) -> Moments:
        divergence = sum((count * pair.renyi(1 + exponents) for pair, count in parts), np.zeros_like(exponents))
        return cls(exponents, exponents * divergence)

    def proved(self, delta: float) -> FloatArray:
        """The epsilon that each of them proves (Canonne, Kamath, Steinke 2020, prop. 12)."""
        b = self.exponents
        return (self.logs - math.log(delta) - np.log1p(b)) / b - np.log1p(1 / b)

    def refined(self, parts: Sequence[tuple[SampledGaussianPair, int]], delta: float) -> Moments:
        """With more exponents about the one that proves the least."""
        b, best = self.exponents, int(np.argmin(self.proved(delta)))
        more = Moments.of(parts, np.geomspace(b[max(best - 1, 0)], b[min(best + 1, len(b) - 1)], 33)[1:-1])
        exponents, logs = np.append(b, more.exponents), np.append(self.logs, more.logs)
        order = np.argsort(exponents)
        return Moments(exponents[order], logs[order])


@dataclass(frozen=True)
class Window:
    """Which sums of losses are looked at, and the tilt under which they are.

    Whatever the numbers are the result is valid; good ones make it sharp.

    Attributes
    ----------
    tilt : float
        Chances are multiplied by exp(tilt × loss) before they are transformed, > 0. Sums near epsilon are then likely
        ones, and the rounding of the transform, which is relative to all chances together, is small beside delta.
    low, high : float
        The range of sums.
    tail : float
        The exponent at which the chance of sums beyond `high` is bounded.
    """

    tilt: float
    low: float
    high: float
    tail: float

    @classmethod
    def around(cls, moments: Moments, delta: float, epsilon: float) -> Window:
        """For a sum of losses with these moments, and an epsilon near by."""
        b, growth, rest = moments.exponents, moments.logs, math.log(1 / delta)
        reach = (growth + rest - math.log(_SPARED)) / b
        last = int(np.argmin(reach))
        # The least tilt of those under which epsilon is not less likely than what is likeliest by a factor of exp(4).
        tilts = _TILTS * b[np.argmin(growth - b * epsilon)]
        unlikely = np.interp(tilts, b, growth) - tilts * epsilon + rest > 4
        tilt = float(tilts[min(int(np.sum(unlikely)), len(tilts) - 1)])
        # By Chernoff's bound, sums that are this far above epsilon and wrapped around add little to delta ...
        above = b > tilt
        width = np.min((growth[above] - b[above] * epsilon + rest - math.log(_SPARED)) / (b[above] - tilt))
        # ... and so do those that far below the end of the window. The moments of mirrored pairs are symmetric.
        high = float(reach[last])
        lower, theirs = np.append(1 + b, [0.0, 1.0]), np.append(growth, [0.0, 0.0])
        width = max(width, np.min((theirs + lower * high + rest - math.log(_SPARED)) / (tilt + lower)))
        return cls(tilt, min(high - float(width), epsilon), high, float(b[last]))


def composed_epsilon(parts: Sequence[tuple[LossGrid, int]], delta: float, window: Window) -> float:
    """An epsilon that holds at `delta` for the sum of independent losses, each so many times, on grids of one interval.

    The transform is circular: sums beyond the window appear at its other end. Those from below only add to delta. Those
    from above would be lost, and Chernoff's bound on their chance is added instead (theorem 7).
    """
    interval = parts[0][0].interval
    first = math.floor(window.low / interval)
    size = int(fft.next_fast_len(math.ceil((window.high - window.low) / interval) + 2, real=True))
    transform, shift = np.ones(size // 2 + 1, dtype=complex), 0
    log_moment = log_beyond = log_finite = 0.0
    for grid, count in parts:
        moment, tilted = grid.tilted(window.tilt)
        # Counted from their mean, the frequencies that matter are turned little: large powers stay precise.
        mean = round(float(np.sum(tilted * grid.numbers)))
        folded = np.bincount((grid.numbers - mean) % size, weights=tilted, minlength=size)
        transform *= fft.rfft(folded) ** count
        shift += count * mean
        log_moment += count * moment
        log_beyond += count * grid.tilted(window.tail)[0]
        log_finite += count * math.log1p(-grid.infinite)
    tilted_sum = np.roll(fft.irfft(transform, size), (shift - first) % size)
    losses = interval * (first + np.arange(float(size)))
    uses = sum(count for _, count in parts)
    # A transform errs by log2(size) units in the last place, in the Euclidean norm; its power by `uses` times as much.
    rounding = 2.0**-52 * (uses + 16) * math.log2(size) * math.sqrt(np.sum(tilted_sum**2))
    untilt = np.exp(np.minimum(log_moment - window.tilt * losses, 300.0))  # where it is more, all is rounding
    beyond = math.exp(min(log_beyond - window.tail * float(losses[-1]), 0.0))
    room = delta - beyond + math.expm1(log_finite)
    return _least_epsilon(losses, np.maximum(tilted_sum, 0.0) * untilt, rounding * untilt, room)


def _least_epsilon(losses: FloatArray, chances: FloatArray, errors: FloatArray, room: float) -> float:
    """The least epsilon >= 0 with sum of chances × (1 - exp(epsilon - loss)) over larger losses <= room.

    The chances are wrong by a vector of norm 1 times `errors`.
    """

    def above(j: int) -> tuple[FloatArray, float]:
        """What is left of larger losses at the j-th, and what errors can hide of it (by Cauchy and Schwarz)."""
        left = -np.expm1(losses[j] - losses[j + 1 :])
        return left, math.sqrt(np.sum((left * errors[j + 1 :]) ** 2))

    def profile(j: int) -> float:
        """At the j-th loss. All terms are positive: nothing cancels."""
        left, hidden = above(j)
        return float(np.sum(left * chances[j + 1 :])) + hidden

    if room <= 0:
        return math.inf
    if losses[-1] <= 0:
        return 0.0
    low, high = int(np.searchsorted(losses, 0.0)), len(losses) - 1
    if profile(low) <= room:
        return float(losses[low])  # 0, or the least loss of the window: nothing is known below
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if profile(middle) <= room else (middle, high)
    # Between two losses the profile is linear in exp(epsilon), and the errors are no larger than at the lower one.
    rest = float(np.sum(chances[high:])) + above(low)[1] - room
    slope = float(np.sum(chances[high:] * np.exp(losses[high] - losses[high:])))
    if rest <= 0 or slope == 0:
        return float(losses[high])
    return float(np.clip(losses[high] + math.log(rest / slope), losses[low], losses[high]))
