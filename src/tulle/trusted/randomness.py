"""Where noise comes from: a keyed cryptographic stream.

An attacker may know all rows but one, and so much of the noise that was drawn. An ordinary generator's past predicts
its future; AES in counter mode, keyed from the operating system, does not allow that (benchmarks/noise.py).

Two releases with the same noise can be subtracted from each other. So only an integer repeats noise, which somebody
chose on purpose. Under a ledger in a file not even an integer does: `tulle.ledgers.nonces`.
"""

from __future__ import annotations

import numbers
import secrets
from typing import Any

import numpy as np


def seed_of(random_state: Any) -> int | None:
    """The seed that a random_state stands for; None: the operating system keys the noise.

    A RandomState or a Generator gives none. Clones of an estimator hold copies of it in the same state and would draw
    the same noise, so a seed from it would have to be mixed with fresh bytes; these alone are as good.
    """
    if random_state is None or isinstance(random_state, (np.random.RandomState, np.random.Generator)):
        return None
    if isinstance(random_state, numbers.Integral) and int(random_state) >= 0:
        return int(random_state)
    raise ValueError(f"random_state must be None, an integer >= 0, a RandomState or a Generator, got {random_state!r}")


def keyed_generator(seed: int | None = None, stream: tuple[int, ...] = ()) -> np.random.Generator:
    """A generator on AES-128 in counter mode.

    A seed of None takes a fresh key from the operating system. An integer makes the noise reproducible, and known to
    everyone who knows the integer. `stream` tells apart generators that share a seed: ledgers number fits with it.
    """
    from randomgen import AESCounter

    if seed is None:
        key = secrets.randbits(128)
    else:
        words = np.random.SeedSequence(seed, spawn_key=stream).generate_state(2, np.uint64)
        key = int(words[0]) | int(words[1]) << 64
    return np.random.Generator(AESCounter(key=key))
