"""Where noise comes from: a keyed cryptographic stream.

Whoever attacks a private release may know all rows but one, and so may work out much of the noise that was drawn. With
an ordinary generator the past stream predicts the future one. AES in counter mode, keyed from the operating system,
does not allow that and costs hardly more (benchmarks/noise.py).
"""

from __future__ import annotations

import secrets

import numpy as np


def keyed_generator(seed: int | None = None, stream: tuple[int, ...] = ()) -> np.random.Generator:
    """A generator on AES-128 in counter mode.

    Parameters
    ----------
    seed : int or None, default=None
        None takes a fresh key from the operating system. An integer makes the noise reproducible, and known to
        everyone who knows the integer.
    stream : tuple of int, default=()
        Tells apart generators that share a seed. Ledgers number their fits with it, so that two fits under one
        seed never share noise (they could be subtracted from each other).
    """
    from randomgen import AESCounter

    if seed is None:
        key = secrets.randbits(128)
    else:
        words = np.random.SeedSequence(seed, spawn_key=stream).generate_state(2, np.uint64)
        key = int(words[0]) | int(words[1]) << 64
    return np.random.Generator(AESCounter(key=key))
