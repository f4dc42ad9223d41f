"""Which of many unlikely events happen, at the cost of those that do. Proof: docs/proofs/lazy_noise.md, lemma 1."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import numpy.typing as npt

from tulle.trusted.exact_noise import ERROR, EXPONENTIAL, Draws

Indices = npt.NDArray[np.intp]


def draw_events(size: int, one_in: int, generator: np.random.Generator) -> Indices:
    """Which of `size` independent events happen, each with the chance 1 / one_in; in increasing order.

    Costs what happens: how many do not happen before the next one that does is the whole part of an exponential draw
    over log(1 / (1 - chance)), decided exactly.
    """
    if one_in == 1:
        return np.arange(size)
    found: list[Indices] = []
    last = -1
    while last < size:
        expected = (size - last) / one_in
        draws = Draws.fresh(int(expected + 3 * math.sqrt(expected)) + 8, generator)
        ahead = last + np.cumsum(_gaps(draws, one_in) + 1)
        found.append(ahead[ahead < size])
        last = int(ahead[-1])
    return np.concatenate(found)


def _gaps(draws: Draws, one_in: int) -> Indices:
    """How many events do not happen before one that does."""
    rate = -math.log1p(-1 / one_in)
    exponential = EXPONENTIAL.noise(draws)
    gaps = exponential / rate
    nearest = np.rint(gaps)
    whole = np.floor(gaps)
    doubtful = np.abs(gaps - nearest) < 4 * ERROR * (1.0 + exponential) / rate
    for place in np.flatnonzero(doubtful & (nearest > 0)):
        count = int(nearest[place])

        def border(count: int = count, side: bool = bool(draws.sides[place])) -> Decimal:
            # The chance that nothing happens `count` times; the uniform number is that chance, or 1 minus it.
            nothing = (1 - 1 / Decimal(one_in)) ** count
            return nothing if side else 1 - nothing

        whole[place] = count if draws.is_below(int(place), border) == bool(draws.sides[place]) else count - 1
    return np.minimum(whole, 2.0**62).astype(np.intp)
