"""Nonces of ledgers on disk: an older copy may be put back, and a seed must not bring back its noise.

Each opening of a ledger mixes a nonce into the key of the noise.
"""

from __future__ import annotations

import hashlib
import os
import secrets

# A hook for tests: 32 hexadecimal digits in place of every nonce, so that fits under a ledger file can be repeated. In
# the environment, since command lines are tested in processes of their own. Reports name it (`describe_fixed_nonce`).
FIXED_NONCE = "TULLE_TEST_NONCE"


def nonce() -> tuple[int, ...]:
    """128 bits of the operating system's, as words for a stream; what a test hook says where there is one."""
    fixed = os.environ.get(FIXED_NONCE)
    drawn = bytes.fromhex(fixed) if fixed else secrets.token_bytes(16)
    return tuple(int.from_bytes(drawn[k : k + 4], "big") for k in range(0, 16, 4))


def random_id(*words: object) -> str:
    """16 bytes of the operating system's, as hexadecimal digits; under the test hook, those that follow from words."""
    fixed = os.environ.get(FIXED_NONCE)
    if not fixed:
        return secrets.token_hex(16)
    return hashlib.sha256(repr((fixed, *words)).encode()).hexdigest()[:32]


def nonce_is_fixed() -> bool:
    """Whether a test hook stands in for nonces."""
    return bool(os.environ.get(FIXED_NONCE))
