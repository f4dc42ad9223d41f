"""Where a user's randomness comes from: the operating system, or a seed where a study is only simulated.

Everything a randomiser draws is a function of a fixed number of uniforms. So a user's draws have their own place in
the stream of a seed, in any process that hosts the user, and a simulation of many users can take all of them at once.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


class Uniforms(Protocol):
    """A source of numbers that are uniform on (0, 1)."""

    def draw(self, users: int, each: int) -> FloatArray:
        """Numbers for the next `users` users, `each` for everyone: shape (users, each)."""


class SystemUniforms:
    """Uniforms from the operating system's cryptographic source: they cannot be predicted or repeated."""

    def draw(self, users: int, each: int) -> FloatArray:
        words = np.frombuffer(secrets.token_bytes(8 * users * each), dtype=np.uint64)
        return open_interval(words).reshape(users, each)


class SeededUniforms:
    """Uniforms that a seed and a user's number determine. For simulations: a user whose seed is known has no privacy.

    Parameters
    ----------
    seed : int
        At least 0.
    numbers : sequence of int
        The numbers of the users that will be drawn for, in this order; each at least 0 and used once.
    """

    def __init__(self, seed: int, numbers: Sequence[int] | npt.NDArray[np.intp]) -> None:
        self._key = np.random.SeedSequence(seed).generate_state(2, np.uint64)
        self._numbers = iter(numbers)

    def draw(self, users: int, each: int) -> FloatArray:
        words = np.empty((users, each), dtype=np.uint64)
        for place in range(users):
            number = next(self._numbers, None)
            if number is None:
                raise ValueError(f"there are numbers for {place} of {users} users: every user needs exactly one")
            # The second of four words that count: every user has 2^64 draws to itself.
            counter = np.array([0, number, 0, 0], dtype=np.uint64)
            words[place] = np.random.Philox(key=self._key, counter=counter).random_raw(each)
        return open_interval(words)


def open_interval(words: npt.NDArray[np.uint64]) -> FloatArray:
    """52 of 64 random bits as the middle of a cell of (0, 1): never 0, never 1, symmetric about 1/2, and exact.

    For a chance c that is a whole multiple of 2^-52, a number lies below c with exactly that chance.
    """
    return ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
