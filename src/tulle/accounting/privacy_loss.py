"""Privacy loss distributions: the law of the log-ratio of two neighbouring answers, and how such laws add up.

A pair of laws (P, Q) dominates a release when no neighbours are easier to tell apart than P from Q, at any threshold.
The loss of the pair is log(dP/dQ) under P, and the losses of releases that follow each other add up. So the epsilon of
many releases is read off a sum of independent losses, which is as sharp as the pairs are. This module has the pair of
each event, losses on a grid, and their sum, by fast Fourier transforms.

Losses are moved to the grid upwards, and the errors of transforms are bounded and added: the result is not below the
epsilon of the pairs, except for a few units in the last place. Proofs: docs/proofs/sampled_gaussian.md,
docs/proofs/bounded_losses.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy import fft

from tulle.accounting.bounded_pairs import BoundedLossPair
from tulle.accounting.choices import merge_choices
from tulle.accounting.sampled_pairs import SampledGaussianPair, sampled_pair
from tulle.trusted.accountants import Accountant, vouch_for
from tulle.trusted.events import (
    BoundedRangeEvent,
    Event,
    GaussianEvent,
    LaplaceEvent,
    PureEvent,
    SampledGaussianEvent,
)
from tulle.trusted.plan import Composition

FloatArray = npt.NDArray[np.float64]


class DominatingPair(Protocol):
    """Two laws that no neighbours' answers are easier to tell apart than, at any threshold, the same both ways."""

    @property
    def distance(self) -> float:
        """0 where the two laws are the same; how far they are apart otherwise."""

    @property
    def total_variation(self) -> float: ...

    def masses(self, losses: FloatArray) -> tuple[FloatArray, float]:
        """P's mass at losses > 0, moved to the given ones, which rise from 0, and the mass moved to infinity."""

    def spread(self) -> float:
        """The mean square of the loss, roughly: a grid must resolve it."""

    def quantile(self, share: float) -> float:
        """A loss that P passes with a chance of at most `share`."""

    def renyi(self, orders: FloatArray) -> FloatArray:
        """An upper bound on the Rényi divergence at each order, the same both ways."""


Parts = Sequence[tuple[DominatingPair, int]]


def find_dominating_pair(event: Event) -> DominatingPair | None:
    """Two laws at least as easy to tell apart, at every threshold, as neighbours' answers; None where none is known.

    By exact type. What states nothing finer is a randomised response if it is pure, otherwise a Gaussian of its mu.
    """
    mu, pure = event.gaussian_mu(), event.pure_epsilon()
    if mu == 0 or pure == 0:
        return SampledGaussianPair(0.0, 0.0, 1.0)
    if type(event) is SampledGaussianEvent and mu < math.inf:
        return sampled_pair(event)
    if type(event) is LaplaceEvent and pure < math.inf:
        return BoundedLossPair.laplace(pure)
    if type(event) is BoundedRangeEvent and pure < math.inf:
        return BoundedLossPair.logistic(pure)
    if pure < math.inf:
        return BoundedLossPair.randomised_response(pure)
    return SampledGaussianPair(mu, 0.0, 1.0) if mu < math.inf else None


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


def loss_grid(pair: DominatingPair, interval: float, beyond: float) -> LossGrid:
    """The losses of a pair on a grid that they pass with a chance of at most `beyond`."""
    n = max(math.ceil(pair.quantile(beyond) / interval), 1)
    losses = interval * np.arange(n + 1.0)
    above, infinite = pair.masses(losses)
    below = above * np.exp(-losses)
    nothing = max(1.0 - float(above[1:].sum() + below[1:].sum()) - infinite, 0.0)
    return LossGrid(interval, np.concatenate([below[:0:-1], [nothing], above[1:]]), infinite)


def pairs_epsilon(parts: Parts, delta: float) -> float:
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
    window = window.up_to_the_largest(grids)
    while 0 < (found := composed_epsilon(grids, delta, window)) < _CLOSE * known:
        known = found
        window = Window.around(moments, delta, known).up_to_the_largest(grids)
        window = replace(window, low=max(window.low, window.high - _MANY_POINTS * interval))
    return min(found, known)


def largest_sum(parts: Sequence[tuple[LossGrid, int]]) -> float:
    """The largest sum of finite losses on these grids."""
    return sum(count * grid.interval * (len(grid.chances) // 2) for grid, count in parts)


@dataclass(frozen=True, eq=False)
class Moments:
    """Upper bounds on log E exp(b × sum of losses), at rising exponents b: what steers the transform."""

    exponents: FloatArray
    logs: FloatArray

    @classmethod
    def of(cls, parts: Parts, exponents: FloatArray) -> Moments:
        divergence = sum((count * pair.renyi(1 + exponents) for pair, count in parts), np.zeros_like(exponents))
        return cls(exponents, exponents * divergence)

    def proved(self, delta: float) -> FloatArray:
        """The epsilon that each of them proves (Canonne, Kamath, Steinke 2020, prop. 12)."""
        b = self.exponents
        return (self.logs - math.log(delta) - np.log1p(b)) / b - np.log1p(1 / b)

    def refined(self, parts: Parts, delta: float) -> Moments:
        """With more exponents about the one that proves the least."""
        b, best = self.exponents, int(np.argmin(self.proved(delta)))
        more = Moments.of(parts, np.geomspace(b[max(best - 1, 0)], b[min(best + 1, len(b) - 1)], 33)[1:-1])
        exponents, logs = np.append(b, more.exponents), np.append(self.logs, more.logs)
        order = np.argsort(exponents)
        return Moments(exponents[order], logs[order])


@dataclass(frozen=True)
class Window:
    """The range of sums of losses that is computed, and the tilt that is used.

    The result is valid for any values; good ones make it sharp.

    Attributes
    ----------
    tilt : float
        Chances are multiplied by exp(tilt × loss) before they are transformed, > 0. Sums near epsilon are then likely
        ones, and the rounding of the transform, which is relative to all chances together, is far below delta.
    low, high : float
        The range of sums.
    tail : float
        The exponent at which the chance of sums beyond `high` is bounded.
    """

    tilt: float
    low: float
    high: float
    tail: float

    def up_to_the_largest(self, grids: Sequence[tuple[LossGrid, int]]) -> Window:
        """With an end at the largest sum on the grids where it is near: bounded losses on a grid can add up to a little
        more than the losses themselves, and a bound on what lies beyond would be of no use there."""
        largest, uses = largest_sum(grids), sum(count for _, count in grids)
        near = largest <= self.high + 2 * uses * grids[0][0].interval
        return replace(self, high=max(self.high, largest)) if near else self

    @classmethod
    def around(cls, moments: Moments, delta: float, epsilon: float) -> Window:
        """For a sum of losses with these moments, and an epsilon near by."""
        b, growth, rest = moments.exponents, moments.logs, math.log(1 / delta)
        reach = (growth + rest - math.log(_SPARED)) / b
        last = int(np.argmin(reach))
        # The least tilt under which epsilon is at most exp(4) times less likely than the likeliest sum.
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
    if largest_sum(parts) <= losses[-1]:
        beyond = 0.0
    room = delta - beyond + math.expm1(log_finite)
    return _least_epsilon(losses, np.maximum(tilted_sum, 0.0) * untilt, rounding * untilt, room)


def _least_epsilon(losses: FloatArray, chances: FloatArray, errors: FloatArray, room: float) -> float:
    """The least epsilon >= 0 with sum of chances × (1 - exp(epsilon - loss)) over larger losses <= room.

    The chances are wrong by a vector of norm 1 times `errors`.
    """

    def above(j: int) -> tuple[FloatArray, float]:
        """The remainders of larger losses at the j-th, and how much errors can hide of them (Cauchy and Schwarz)."""
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


# Below this the rounding of transforms is felt, and Rényi curves do as well.
_LEAST_DELTA = 1e-40
# Beyond this the losses of one release, about mu² / 2, are too large to be told apart to a digit that matters.
_LARGEST_MU = 1e6


def losses_epsilon(composition: Composition, delta: float) -> float:
    """The epsilon of the pairs of a composition; inf where one has none."""
    parts = []
    for event, count in composition:
        pair = find_dominating_pair(event)
        if pair is None or pair.distance > _LARGEST_MU:
            return math.inf
        if pair.distance > 0:
            parts.append((pair, count))
    return pairs_epsilon(parts, delta)


class PrivacyLossAccountant(Accountant):
    """Privacy losses added up as random variables: all but exact for the pairs of laws that dominate the events.

    For plans of Gaussian answers, some about random batches; where none is, the Gaussian accountant is exact and
    faster. Valid for adaptive releases, because dominating pairs compose (docs/proofs/sampled_gaussian.md, theorem 7).
    """

    name = "privacy loss distributions"
    sharp = True

    def supports(self, composition: Composition, delta: float) -> bool:
        return (
            delta >= _LEAST_DELTA
            and any(type(event) is SampledGaussianEvent for event, _ in composition)
            and not any(_is_bounded(event) for event, _ in composition)
            and all(isinstance(event, GaussianEvent) or event.gaussian_mu() < math.inf for event, _ in composition)
        )

    def epsilon(self, composition: Composition, delta: float) -> float:
        return losses_epsilon(composition, delta) if self.supports(composition, delta) else math.inf


def _is_bounded(event: Event) -> bool:
    """Whether the privacy loss of an event is bounded, and more is not stated of it than a Gaussian's."""
    return not isinstance(event, GaussianEvent) and event.pure_epsilon() < math.inf


class MixedLossAccountant(Accountant):
    """The same for plans with Laplace noise, purely private releases or choices of bounded range.

    Where it gains: if something else than choices has a bounded loss, unless all is purely private and no more is
    known (the optimal composition is exact); if batches are random; or if few choices go with Gaussian answers. Many
    are taken for one Gaussian release. Rényi curves can prove less for choices, so that this accountant is not sharp.
    """

    name = "privacy loss distributions of mixed releases"

    # Up to this many choices, a sum of bounded losses is less than one Gaussian release.
    _FEW_CHOICES = 6

    def supports(self, composition: Composition, delta: float) -> bool:
        kinds = {type(event) for event, _ in composition}
        bounded = {type(event) for event, _ in composition if _is_bounded(event)}
        if delta < _LEAST_DELTA or not bounded or kinds == {PureEvent}:
            return False
        if any(find_dominating_pair(event) is None for event, _ in composition):
            return False
        if bounded == {BoundedRangeEvent} and SampledGaussianEvent not in kinds:
            return kinds != bounded and self._choices(composition) <= self._FEW_CHOICES
        return True

    def epsilon(self, composition: Composition, delta: float) -> float:
        if not self.supports(composition, delta):
            return math.inf
        if self._choices(composition) > self._FEW_CHOICES:
            composition = merge_choices(composition)
        return losses_epsilon(composition, delta)

    @staticmethod
    def _choices(composition: Composition) -> int:
        return sum(count for event, count in composition if type(event) is BoundedRangeEvent)


vouch_for(PrivacyLossAccountant())
vouch_for(MixedLossAccountant())
