"""Pairwise masks: what hides a client's answer from everyone, and cancels in the sum over a set of clients.

Two members of a set agree on a secret (X25519, then HKDF with both public keys). For each question both derive the same
stream of uniform numbers modulo 2^64 from it (HKDF with SHA-256, then AES-256 in counter mode); one adds the stream,
the other subtracts it. The stream depends on every byte of the question: the study, the number of the question, the
attempt, the members, the query. So answers to two different questions, or of members that were told different sets,
have masks that do not cancel.
Proof: docs/proofs/masked_sums.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]

_LABEL = b"tulle masked sum 1\n"
_LABEL_OF_PAIR = b"tulle masked pair 1\n"
_KEY_BYTES = 32


class MaskedVector(NamedTuple):
    """A masked answer: whole numbers modulo 2^64, and the grid that they count."""

    values: IntArray
    grid: float


class MaskKey:
    """One client's key of one study.

    Parameters
    ----------
    private : bytes
        32 bytes of an X25519 private key. Anyone who has it can unmask what the client sent to the server.
    """

    def __init__(self, private: bytes) -> None:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        self._key = X25519PrivateKey.from_private_bytes(private)

    @staticmethod
    def draw() -> bytes:
        """A new private key, from the operating system's generator."""
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        return X25519PrivateKey.generate().private_bytes_raw()

    @property
    def public(self) -> bytes:
        return self._key.public_key().public_bytes_raw()

    def agree(self, other: bytes) -> bytes:
        """The secret that is shared with the holder of another public key.

        Different public keys can give one and the same X25519 secret: the highest bit is not read, and points of small
        order add nothing. A colluding client whose key is such a twin of an honest one's would have the same streams
        with this client, and where one is added and the other subtracted nothing would be masked. So both public keys
        go into the secret: it is another one for each pair of keys.

        Raises
        ------
        ValueError
            Where the key is no point that a secret can be agreed on with.
        """
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

        shared = self._key.exchange(X25519PublicKey.from_public_bytes(other))
        return _derive(shared, _LABEL_OF_PAIR + b"".join(sorted((self.public, other))))


class Mask:
    """What hides one client's answer to one question.

    Parameters
    ----------
    secrets : sequence of (bytes, bool)
        The secret shared with each other member of the set, and whether this client adds the stream (True) or subtracts
        it: of two members exactly one adds.
    question : bytes
        The question, as it was sent to all members.
    """

    def __init__(self, secrets: Sequence[tuple[bytes, bool]], question: bytes) -> None:
        self._secrets, self._digest = tuple(secrets), hashlib.sha256(question).digest()

    @property
    def n_members(self) -> int:
        """How many members the set has, this one included."""
        return len(self._secrets) + 1

    def __call__(self, answer: Any) -> Any:
        raise TypeError("a mask hides whole numbers of a grid; only a masked mechanism uses it")

    def hide(self, units: IntArray, grid: float) -> MaskedVector:
        """Whole numbers and the streams of all pairs, modulo 2^64."""
        hidden = units.view(np.uint64).copy()
        # Streams of clients that work out different grids must not cancel: their whole numbers count different units.
        info = _LABEL + self._digest + float(grid).hex().encode()
        for secret, adds in self._secrets:
            stream = _stream(secret, info, hidden.size)
            if adds:
                hidden += stream
            else:
                hidden -= stream
        return MaskedVector(hidden.view(np.int64), grid)


def _derive(secret: bytes, info: bytes) -> bytes:
    """A key of a secret, another one for each `info`."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(hashes.SHA256(), _KEY_BYTES, salt=None, info=info).derive(secret)


def _stream(secret: bytes, info: bytes, count: int) -> npt.NDArray[np.uint64]:
    """So many uniform numbers modulo 2^64, as both holders of the secret derive them for one question."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    key = _derive(secret, info)
    # Every key is for one stream: the counter starts at 0.
    encryptor = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    return np.frombuffer(encryptor.update(bytes(8 * count)), dtype="<u8")


def add_up(answers: Sequence[IntArray]) -> IntArray:
    """The sum of masked answers modulo 2^64, as signed numbers: where all members of a set are there, their masks
    cancel."""
    total = np.zeros(len(answers[0]), dtype=np.uint64)
    for answer in answers:
        total += answer.view(np.uint64)
    return total.view(np.int64)
