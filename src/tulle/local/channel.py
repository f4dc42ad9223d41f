"""What every local randomiser is: a channel that one user's value passes, and that is epsilon-private by itself.

Adjacency is the whole record of a user, replaced by any other: for every two values and every set of answers,
P(answer | value) <= e^epsilon P(answer | other value) + delta. No curator, no sum, no other user is needed for that.

Answers are whole numbers. In the low-order bits of a float the value itself would show; multiples of a `unit` that is
fixed before anyone answers hold none (docs/proofs/ball_randomisers.md), sums of them are exact in any order, and they
are short on the wire.
"""

from __future__ import annotations

import math
import numbers
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tulle.local.uniforms import FloatArray

IntArray = npt.NDArray[np.int64]

# Chances are computed in float64 from special functions that err by some 1e-13: epsilon is kept by this much room.
ROOM = 1e-10

# Beyond it e^epsilon and the constants made of it are no numbers worth computing with.
MOST_EPSILON = 50.0


def check_positive(what: str, value: Any, most: float = math.inf) -> None:
    """Raise unless a public parameter is a finite number > 0."""
    number = isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_))
    if not (number and 0 < value <= most and value < math.inf):
        limit = "" if math.isinf(most) else f" and at most {most:g}"
        raise ValueError(f"{what} must be a finite number > 0{limit}, got {value!r}")


@dataclass(frozen=True)
class Channel(ABC):
    """A randomiser of one user's value.

    Parameters
    ----------
    epsilon : float
        In (0, 50].
    bound : float
        In (0, inf): values beyond it, in magnitude or Euclidean norm, are scaled down to it.
    """

    name: ClassVar[str]

    epsilon: float
    bound: float

    def __post_init__(self) -> None:
        check_positive(f"{type(self).__name__}(epsilon=...)", self.epsilon, MOST_EPSILON)
        check_positive(f"{type(self).__name__}(bound=...)", self.bound)

    @property
    def delta(self) -> float:
        """The delta of the promise; 0 for all channels but the Gaussian one."""
        return 0.0

    @property
    def width(self) -> int:
        """How many numbers a value has."""
        return 1

    @property
    def kept_epsilon(self) -> float:
        """The epsilon that chances are computed with, a little below the promised one."""
        return self.epsilon * (1 - ROOM)

    @property
    @abstractmethod
    def n_uniforms(self) -> int:
        """How many uniforms one answer takes."""

    @property
    @abstractmethod
    def unit(self) -> float:
        """What 1 in an answer stands for: `unit` times an answer estimates the value without bias."""

    @property
    @abstractmethod
    def largest(self) -> int:
        """No answer holds a larger magnitude than this, whatever the value."""

    @property
    @abstractmethod
    def worst_variance(self) -> float:
        """The variance of `unit` times an answer, summed over its numbers, for the worst value."""

    @property
    @abstractmethod
    def rounding(self) -> float:
        """Upper bound on the total variation distance between what is computed and the ideal channel."""

    @abstractmethod
    def answer(self, values: FloatArray, uniforms: FloatArray) -> IntArray:
        """The answers of many users at once.

        Parameters
        ----------
        values : array of shape (users, width)
            Anything: what is not finite counts as 0, what lies beyond the bound is scaled down to it.
        uniforms : array of shape (users, n_uniforms)

        Returns
        -------
        array of int of shape (users, width)
        """

    def possible(self, answer: IntArray) -> bool:
        """Whether this channel can have given an answer: what a server asks of strangers' messages."""
        return answer.shape == (self.width,) and bool(np.all(np.abs(answer) <= self.largest))


@dataclass(frozen=True)
class Unrandomised(Channel):
    """The value itself, clipped: for simulations without privacy. It has no name on the wire, and no user answers it.

    Parameters
    ----------
    epsilon : float
        inf.
    bound : float
        In (0, inf].
    dimension : int
        At least 1.
    """

    name = "unrandomised"

    dimension: int

    def __post_init__(self) -> None:
        if self.epsilon != math.inf:
            raise ValueError("a value that is not randomised has epsilon = inf")
        check_positive("Unrandomised(bound=...)", self.bound)

    @property
    def width(self) -> int:
        return self.dimension

    @property
    def n_uniforms(self) -> int:
        return 1

    @property
    def largest(self) -> int:
        return 2**30

    @property
    def unit(self) -> float:
        return self.bound / self.largest

    @property
    def worst_variance(self) -> float:
        return 0.0

    @property
    def rounding(self) -> float:
        return 0.0

    def answer(self, values: FloatArray, uniforms: FloatArray) -> IntArray:
        lengths = np.maximum(np.linalg.norm(values, axis=1, keepdims=True) / self.bound, 1.0)
        return np.round(np.nan_to_num(values / lengths) / self.unit).astype(np.int64)
