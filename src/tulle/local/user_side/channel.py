"""What every local randomiser is: a channel that one user's value passes, and that is epsilon-private by itself.

Adjacency is the whole record of a user, replaced by any other: for every two values and every set of answers,
P(answer | value) <= e^epsilon P(answer | other value) + delta. No curator, no sum, no other user is needed for that.
`delta` is all of it: what finite precision takes is a part of it, and most channels take none.

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

from tulle.local.user_side.uniforms import FloatArray

IntArray = npt.NDArray[np.int64]

# Chances are computed in float64 from special functions that err by some 1e-13: epsilon is kept by this
# much room, relative to it and in all.
ROOM, _ROOM_NEAR_ZERO = 1e-10, 1e-13

# Beyond these chances are too close to 1/2 or to 1 for 52 random bits, and nothing is said or nothing is hidden.
LEAST_EPSILON, MOST_EPSILON = 1e-6, 16.0
_LEAST_BOUND, _MOST_BOUND = 1e-100, 1e100


def check_positive(what: str, value: Any, least: float = 0.0, most: float = math.inf) -> None:
    """Raise unless a public parameter is a finite number > 0, within limits."""
    number = isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_))
    if not (number and 0 < value < math.inf and least <= value <= most):
        limit = "" if math.isinf(most) else f" from {least:g} to {most:g}"
        raise ValueError(f"{what} must be a finite number > 0{limit}, got {value!r:.60}")


def check_epsilon(what: str, value: Any) -> None:
    """Raise unless a channel can have this epsilon."""
    check_positive(what, value, LEAST_EPSILON, MOST_EPSILON)


def check_count(what: str, value: Any, least: int) -> None:
    """Raise unless a public parameter is a whole number from `least` on."""
    if isinstance(value, (bool, np.bool_)) or not (isinstance(value, (int, np.integer)) and value >= least):
        raise ValueError(f"{what} must be an integer >= {least}, got {value!r:.60}")


def on_lattice(chance: float) -> float:
    """The largest chance that 52 random bits have exactly, and that is no larger.

    A likelier answer's chance is rounded down so that odds never pass e^epsilon, however close to 1 it is.
    """
    return math.floor(chance * 2.0**52) * 2.0**-52


@dataclass(frozen=True)
class Channel(ABC):
    """A randomiser of one user's value.

    Parameters
    ----------
    epsilon : float
        In [1e-6, 16].
    bound : float
        In [1e-100, 1e100]: values beyond it, in magnitude or Euclidean norm, are scaled down to it.
    """

    name: ClassVar[str]

    epsilon: float
    bound: float

    def __post_init__(self) -> None:
        check_epsilon(f"{type(self).__name__}(epsilon=...)", self.epsilon)
        check_positive(f"{type(self).__name__}(bound=...)", self.bound, _LEAST_BOUND, _MOST_BOUND)
        # A float32 would pull chances down to its own precision.
        object.__setattr__(self, "epsilon", float(self.epsilon))
        object.__setattr__(self, "bound", float(self.bound))

    @property
    def delta(self) -> float:
        """The delta of the promise, all of it: a purely private channel has that of its arithmetic, if any."""
        return self.arithmetic_delta

    @property
    def arithmetic_delta(self) -> float:
        """The part of `delta` that is there for finite precision (lemma 3 of docs/proofs/floating_point.md)."""
        return min(1.0, (1 + math.exp(self.epsilon)) * self.rounding)

    @property
    def width(self) -> int:
        """How many numbers a value has."""
        return 1

    @property
    def kept_epsilon(self) -> float:
        """The epsilon that chances are computed with, a little below the promised one."""
        return self.epsilon * (1 - ROOM) - _ROOM_NEAR_ZERO

    @property
    @abstractmethod
    def n_uniforms(self) -> int:
        """How many uniforms one answer takes."""

    @property
    @abstractmethod
    def unit(self) -> float:
        """What 1 in an answer stands for: `unit` times an answer estimates the value without bias, up to rounding."""

    @property
    @abstractmethod
    def largest(self) -> int:
        """No answer holds a larger magnitude than this, for any value."""

    @property
    @abstractmethod
    def worst_variance(self) -> float:
        """The variance of `unit` times an answer, summed over its numbers, for the worst value."""

    @property
    def rounding(self) -> float:
        """Upper bound on the total variation distance between the channel as computed and one that keeps the promise
        exactly; 0 where the channel as computed keeps it."""
        return 0.0

    @abstractmethod
    def answer(self, values: FloatArray, uniforms: FloatArray) -> IntArray:
        """The answers of many users at once.

        Parameters
        ----------
        values : array of shape (users, width)
            Any values: NaN counts as 0 (and so does a vector with an entry that is not finite), and values beyond the
            bound are scaled down to it.
        uniforms : array of shape (users, n_uniforms)

        Returns
        -------
        array of int of shape (users, width)
        """

    def possible(self, answer: IntArray) -> bool:
        """Whether an answer lies within what this channel gives: what a server asks of strangers' messages."""
        within = (-self.largest <= answer) & (answer <= self.largest)
        return answer.shape == (self.width,) and bool(np.all(within))


@dataclass(frozen=True)
class Unrandomised(Channel):
    """The value itself, clipped: for simulations without privacy. It has no name on the wire, and no user answers it.

    Parameters
    ----------
    epsilon : float
        inf.
    bound : float
        In (0, inf).
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
    def arithmetic_delta(self) -> float:
        return 0.0

    def answer(self, values: FloatArray, uniforms: FloatArray) -> IntArray:
        lengths = np.maximum(np.linalg.norm(values, axis=1, keepdims=True) / self.bound, 1.0)
        return np.round(np.nan_to_num(values / lengths) / self.unit).astype(np.int64)
