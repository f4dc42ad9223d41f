"""Where noise comes from: a keyed cryptographic stream.

Whoever attacks a private release may know all rows but one, and so may work out much of the noise that was drawn. With
an ordinary generator the past stream predicts the future one. AES in counter mode, keyed from the operating system,
does not allow that and costs hardly more (benchmarks/noise.py).

Two releases with the same noise can be subtracted from each other. So only an integer repeats noise, which somebody
chose on purpose: copies of a generator object would repeat it by accident. Under a ledger in a file not even an integer
does, since an older copy of the file may be put back: each opening mixes a nonce into the key.
"""

from __future__ import annotations

import numbers
import os
import secrets
from typing import Any

import numpy as np

# A hook for tests: 32 hexadecimal digits in place of every nonce, so that fits under a ledger file can be repeated. In
# the environment, since command lines are tested in processes of their own. Reports name it (`fixed_nonce_told`).
_FIXED_NONCE = "TULLE_TEST_NONCE"


def seed_of(random_state: Any) -> int | None:
    """The seed that a random_state stands for; None: the operating system keys the noise.

    A RandomState or a Generator gives none. Clones of an estimator hold copies of it in the same state and would draw
    the same noise, so whatever it could give would be mixed with fresh bytes; these alone are as good.
    """
    if random_state is None or isinstance(random_state, (np.random.RandomState, np.random.Generator)):
        return None
    if isinstance(random_state, numbers.Integral) and int(random_state) >= 0:
        return int(random_state)
    raise ValueError(f"random_state must be None, an integer >= 0, a RandomState or a Generator, got {random_state!r}")


def nonce() -> tuple[int, ...]:
    """128 bits of the operating system's, as words for a stream; what a test hook says where there is one."""
    fixed = os.environ.get(_FIXED_NONCE)
    drawn = bytes.fromhex(fixed) if fixed else secrets.token_bytes(16)
    return tuple(int.from_bytes(drawn[k : k + 4], "big") for k in range(0, 16, 4))


def nonce_is_fixed() -> bool:
    """Whether a test hook stands in for nonces."""
    return bool(os.environ.get(_FIXED_NONCE))


def fixed_nonce_told() -> tuple[str, ...]:
    """What a privacy report says of the test hook, where it is there."""
    line = f"The nonce of ledgers was fixed by a test hook ({_FIXED_NONCE}): this fit is not private."
    return (line,) if nonce_is_fixed() else ()


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
