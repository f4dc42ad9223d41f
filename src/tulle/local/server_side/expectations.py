"""What can be expected of a study, from public quantities, before anybody is asked: users answer only once."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tulle.local.server_side.protocols import LdpIht, Protocol
from tulle.local.user_side.responses import IDENTITY


@dataclass(frozen=True)
class Expectation:
    """The noise on a weight, in units of the weight that one feature would have if it explained labels all alone.

    Attributes
    ----------
    noise : float
        Standard deviation.
    n_users : int
    users_needed : int
        How many users it takes to see such a feature among the noises on all weights.
    n_weights : int
        Among which the non-zero ones are looked for.
    whole_row : bool
        Whether features are private too.
    epsilon : float
    """

    noise: float
    n_users: int
    users_needed: int
    n_weights: int
    whole_row: bool
    epsilon: float

    @property
    def hopeless(self) -> bool:
        """Whether even such a feature would drown: the largest of as many noises as there are weights is larger."""
        return self.n_users < self.users_needed

    @property
    def floor(self) -> float:
        """p/ε²: up to a constant, what every method needs to learn from wholly private rows (Wang and Xu 2019)."""
        return self.n_weights / self.epsilon**2 if self.whole_row else 0.0

    def __str__(self) -> str:
        text = (
            f"{self.n_users:,} users, {self.n_weights:,} weights, epsilon = {self.epsilon:g}: each weight is expected "
            f"to have noise of {self.noise:.3g} times the weight of a feature that alone explains the labels, and "
            f"detecting that feature among the others takes about {self.users_needed:,} users"
        )
        if self.floor > 0:
            text += (
                f"; every method needs p/ε² = {self.floor:,.1f} users, times a constant, where whole rows are private"
            )
        return text


# More users than there are: steps of the user's own can be so long that no number is enough.
_EVERYBODY = 2**50


def expectation(protocol: Protocol, n_users: int) -> Expectation:
    """What can be expected of a protocol with so many users."""

    def drowned(users: int) -> bool:
        return noise(protocol, users) * math.sqrt(2 * math.log(2 * protocol.dimension)) > 1

    low, high = 0, 1
    while drowned(high) and high < _EVERYBODY:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if drowned(middle) else (low, middle)
    return Expectation(
        noise(protocol, n_users), n_users, high, protocol.dimension, isinstance(protocol, LdpIht), protocol.epsilon
    )


def noise(protocol: Protocol, n_users: int) -> float:
    """The standard deviation of a weight in which there is nothing but noise, over the largest weight."""
    answering = max(n_users * (1 - (protocol.bounds.estimate_share if protocol.n_searching else 0.0)), 1.0)
    variance = protocol.make_channel(1.0).worst_variance
    if isinstance(protocol, LdpIht):
        return _noise_of_gradients(protocol, variance * protocol.n_gradients / answering)
    return math.sqrt((1 + variance) / answering)


def _noise_of_gradients(protocol: LdpIht, variance: float) -> float:
    """Round by round: each adds its own noise, and pulls back what there was, as far as clipping lets it."""
    rounds, d = protocol.n_gradients, protocol.dimension
    first, radius = _first_step_and_radius(protocol)
    pulls = _first_pull(protocol)
    square = 0.0
    for number in range(rounds):
        step, share = protocol.step_share(number), protocol.radius_share(number)
        # E[m clip(m)] / E[m²] of a Gaussian margin m; weights are kept within the largest one's norm.
        margin = math.sqrt(2 * d * min(square, 1 / d))
        pull = 1.0 if margin == 0 else math.erf(radius * share / margin)
        square = (1 - step * pulls * pull) ** 2 * min(square, 1 / d) + (step * first * share) ** 2 * variance
    return math.sqrt(square)


def _first_step_and_radius(protocol: LdpIht) -> tuple[float, float]:
    """The first step times its radius, spread over all weights, over the largest weight; the radius over the longest
    gradient. Defaults where bounds are searched for and not known yet."""
    if protocol.n_searching:
        return protocol.clipping * (1.0 if protocol.response == IDENTITY else 0.5), protocol.clipping
    size = protocol.step_size(0) * protocol.first_radius / (math.sqrt(protocol.dimension) * protocol.largest_weight)
    return size, protocol.first_radius / (protocol.row_bound * protocol.label_bound * protocol.response.steepness)


def _first_pull(protocol: LdpIht) -> float:
    """Which part of an error the first step takes back where nothing is clipped. Steps of the default length, and
    decaying ones, start by taking back all of it."""
    if protocol.step is None or not protocol.constant_step or protocol.n_searching:
        return 1.0
    return min(protocol.step * protocol.curvature, 1.0)


# Rounds that are tried, and how long the noise on all weights together may be for the more of them.
_ROUNDS, _MOST_NOISE = (8, 4, 2), 0.22


def best_rounds(protocol: LdpIht, n_users: int) -> int:
    """How many rounds to make of so many users: many correct correlated features and clipping, few are less noisy."""
    for rounds in _ROUNDS:
        if noise(replace(protocol, n_gradients=rounds), n_users) * math.sqrt(protocol.dimension) <= _MOST_NOISE:
            return rounds
    return _ROUNDS[-1]
