"""What can be expected of a study, from public quantities, before anybody is asked: users answer only once."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tulle.local.protocols import LabelCollection, LdpIht, Protocol
from tulle.local.responses import IDENTITY


@dataclass(frozen=True)
class Expectation:
    """The noise on a weight, in units of the weight that one feature would have if it explained labels all alone.

    Attributes
    ----------
    noise : float
        Standard deviation.
    n_users : int
    n_weights : int
        Among which the non-zero ones are looked for.
    whole_row : bool
        Whether features are private too.
    epsilon : float
    """

    noise: float
    n_users: int
    n_weights: int
    whole_row: bool
    epsilon: float

    @property
    def hopeless(self) -> bool:
        """Whether even such a feature would drown: the largest of as many noises as there are weights is larger."""
        return self.noise * math.sqrt(2 * math.log(2 * self.n_weights)) > 1

    @property
    def users_needed(self) -> int:
        """How many users it takes to see such a feature."""
        return math.ceil(self.n_users * self.noise**2 * 2 * math.log(2 * self.n_weights))

    @property
    def floor(self) -> float:
        """p/ε²: with fewer users than that no method whatever learns from wholly private rows (Wang and Xu 2019)."""
        return self.n_weights / self.epsilon**2 if self.whole_row else 0.0

    def __str__(self) -> str:
        text = (
            f"{self.n_users:,} users, {self.n_weights:,} weights, epsilon = {self.epsilon:g}: each weight is expected "
            f"to carry noise of {self.noise:.3g} times the weight of a feature that explains labels all alone, and to "
            f"see that one among the others takes about {self.users_needed:,} users"
        )
        if self.whole_row:
            text += f"; whole rows need far more than p/ε² = {self.floor:,.0f} users, whatever the method"
        return text


def _first_step(protocol: LdpIht) -> float:
    """Step × radius, spread over all weights, over the largest weight."""
    if protocol.n_searching:  # defaults of bounds that nobody knows yet
        return protocol.clipping if protocol.response == IDENTITY else protocol.clipping / 2
    size = protocol.step_size(0) * protocol.first_radius
    return size / (math.sqrt(protocol.dimension) * protocol.largest_weight)


def expectation(protocol: Protocol, n_users: int) -> Expectation:
    """What can be expected of a protocol with so many users."""
    answering = max(n_users * (1 - (protocol.bounds.estimate_share if protocol.n_searching else 0.0)), 1.0)
    whole_row = isinstance(protocol, LdpIht)
    if isinstance(protocol, LdpIht):
        # With steps 2/(t + 2) gradient t weighs (t + 1) / (1 + … + T) in the end.
        weighed = np.arange(1, protocol.n_gradients + 1) / (protocol.n_gradients * (protocol.n_gradients + 1) / 2)
        radii = np.array([protocol.radius_share(number) for number in range(protocol.n_gradients)])
        spread = math.sqrt(protocol.n_gradients * float(((weighed * radii) ** 2).sum()))
        noise = _first_step(protocol) * spread * math.sqrt(protocol.make_channel(1.0).worst_variance / answering)
    else:
        assert isinstance(protocol, LabelCollection)
        channel_variance = protocol.make_channel(1.0).worst_variance
        noise = math.sqrt((1 + channel_variance) / answering)
    return Expectation(noise, n_users, protocol.dimension, whole_row, protocol.epsilon)
