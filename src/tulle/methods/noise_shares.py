"""Noise for shares of a privacy cost, before it is calibrated.

The cost of a plan is about a sum of mu²: 1 / noise² for Gaussian noise and (2 / noise)² / 4 for one choice. Where all
is purely private it is a sum of epsilon: 1 / noise for Laplace noise and 2 / noise for one choice. The noises here are
such that shares which add up to 1 cost 1 in all. Untrusted: a calibrated plan is proved again.
"""

from __future__ import annotations

import math

from tulle.trusted.events import NoisePerSensitivity
from tulle.trusted.mechanisms import Gaussian, Laplace, Mechanism, TopK


def additive_noise(share: float, pure: bool) -> Mechanism:
    """Gaussian noise on values, or Laplace noise, for a share of the cost."""
    return Laplace(NoisePerSensitivity(1 / share)) if pure else Gaussian(NoisePerSensitivity(math.sqrt(1 / share)))


def choice_noise(share: float, k: int, columns: int, pure: bool) -> TopK:
    """The choice of k coordinates in each of so many columns, for a share of the cost."""
    choices = k * columns
    return TopK(NoisePerSensitivity(2 * choices / share if pure else math.sqrt(choices / share)), k, columns)
