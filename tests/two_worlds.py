"""Fast subjects of audits, many runs at a time, each exactly at the boundary of a claim."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from tulle.trusted.events import FloatArray


@dataclass(frozen=True)
class Additive:
    """A number with noise of scale 1 that moves by `shift`, and numbers that are noise alone.

    Gaussian noise is exactly shift-GDP, Laplace noise exactly shift-DP, logistic noise has exactly the range `shift`.
    """

    law: str
    shift: float
    width: int = 1

    def fingerprint(self) -> str:
        return repr(self)

    def __call__(self, world: int, count: int, generator: np.random.Generator) -> FloatArray:
        released: FloatArray = getattr(generator, self.law)(size=(count, self.width))
        released[:, 0] += self.shift * (world == 0)
        return released


@dataclass(frozen=True)
class Response:
    """Randomised response that keeps the truth with odds e^epsilon, and with probability `delta` says which it kept.

    Exactly (epsilon, delta)-DP. With delta = 0 it is a choice between two items whose range is 2 epsilon.
    """

    epsilon: float
    delta: float = 0.0

    def fingerprint(self) -> str:
        return repr(self)

    def __call__(self, world: int, count: int, generator: np.random.Generator) -> FloatArray:
        kept, shown = generator.random((2, count, 1))
        answer = np.where(kept < expit(self.epsilon), world, 1 - world)
        return np.where(shown < self.delta, 10.0 + world, answer)
