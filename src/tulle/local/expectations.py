"""What can be expected of a study, from public quantities, before anybody is asked: users answer only once."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tulle.local.protocols import LabelCollection, LdpIht, Protocol


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


def expectation(protocol: Protocol, n_users: int) -> Expectation:
    """What can be expected of a protocol with so many users."""
    answering = max(n_users * (1 - (protocol.bounds.estimate_share if protocol.n_searching else 0.0)), 1.0)
    whole_row = isinstance(protocol, LdpIht)
    if isinstance(protocol, LdpIht):
        # A step of 1/curvature times a radius of row × label × steepness, over the largest weight and the root of the
        # dimension that an answer spreads over, is 1; averaging with weights 2/(t + 2) wastes a quarter of the users.
        channel = protocol.make_channel(1.0)
        lost = 1.0 if protocol.n_gradients == 1 else 4 / 3
        noise = protocol.clipping * math.sqrt(channel.worst_variance * lost / answering)
    else:
        assert isinstance(protocol, LabelCollection)
        channel_variance = protocol.make_channel(1.0).worst_variance
        noise = math.sqrt((1 + channel_variance) / answering)
    return Expectation(noise, n_users, protocol.dimension, whole_row, protocol.epsilon)
