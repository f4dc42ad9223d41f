"""Noise comes from AES-128 in counter mode, keyed freshly or from a seed and a stream."""

from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from tulle.ledgers.nonces import nonce, nonce_is_fixed
from tulle.reports.report import describe_fixed_nonce
from tulle.trusted.randomness import keyed_generator, seed_of


def aes_words(key: int, count: int, first_counter: int = 0) -> np.ndarray:
    """64-bit words of AES-128 over a little-endian block counter, by another implementation."""
    encryptor = Cipher(algorithms.AES(key.to_bytes(16, "little")), modes.ECB()).encryptor()
    blocks = [encryptor.update((first_counter + i).to_bytes(16, "little")) for i in range((count + 1) // 2)]
    return np.frombuffer(b"".join(blocks), "<u8")[:count]


def key_of(seed: int, stream: tuple[int, ...] = ()) -> int:
    low, high = np.random.SeedSequence(seed, spawn_key=stream).generate_state(2, np.uint64)
    return int(low) | int(high) << 64


@pytest.mark.parametrize(("seed", "stream"), [(0, ()), (7, ()), (2**63, ()), (7, (0,)), (7, (3, 1))])
def test_the_stream_is_aes_128_in_counter_mode(seed: int, stream: tuple[int, ...]) -> None:
    raw = keyed_generator(seed, stream).bit_generator.random_raw(4096)
    np.testing.assert_array_equal(raw, aes_words(key_of(seed, stream), 4096))
    assert not np.array_equal(raw, aes_words(key_of(seed, stream) ^ 1, 4096))
    assert not np.array_equal(raw, aes_words(key_of(seed, stream), 4096, first_counter=1))


def test_it_is_an_ordinary_numpy_generator() -> None:
    assert type(keyed_generator(0)) is np.random.Generator


def test_the_same_seed_gives_the_same_noise() -> None:
    np.testing.assert_array_equal(keyed_generator(5).standard_normal(100), keyed_generator(5).standard_normal(100))


@pytest.mark.parametrize("other", [(5, (0,)), (5, (1,)), (5, (0, 0)), (6, ())])
def test_another_seed_or_stream_gives_other_noise(other: tuple[int, tuple[int, ...]]) -> None:
    assert not np.any(keyed_generator(5).standard_normal(100) == keyed_generator(*other).standard_normal(100))


def test_streams_differ_from_each_other() -> None:
    draws = {keyed_generator(5, (i, j)).standard_normal() for i in range(20) for j in range(20)}
    assert len(draws) == 400


def test_without_a_seed_every_generator_has_a_fresh_key() -> None:
    """64-bit words of 200 generators; two coincide with probability below 1e-14."""
    assert len({int(keyed_generator().bit_generator.random_raw()) for _ in range(200)}) == 200


def test_fresh_keys_have_128_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr("secrets.randbits", lambda bits: asked.append(bits) or 12345)
    raw = keyed_generator().bit_generator.random_raw(8)
    assert asked == [128]
    np.testing.assert_array_equal(raw, aes_words(12345, 8))


def test_numpys_global_state_plays_no_part() -> None:
    np.random.seed(0)  # noqa: NPY002
    first = keyed_generator().standard_normal(10)
    np.random.seed(0)  # noqa: NPY002
    assert not np.any(keyed_generator().standard_normal(10) == first)


@pytest.mark.parametrize(
    ("state", "seed"),
    [(None, None), (0, 0), (np.int64(7), 7), (np.random.RandomState(3), None), (np.random.default_rng(3), None)],
)
def test_only_integers_are_seeds(state: object, seed: int | None) -> None:
    assert seed_of(state) == seed


@pytest.mark.parametrize("state", [-1, 1.0, "1", (1, 2), np.random])
def test_other_states_are_refused(state: object) -> None:
    with pytest.raises(ValueError, match="random_state must be None, an integer >= 0"):
        seed_of(state)


def test_a_nonce_is_128_fresh_bits_unless_a_test_fixes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 nonces: two of the 256 words coincide with probability below 1e-5."""
    drawn = [nonce() for _ in range(64)]
    assert all(len(words) == 4 and all(0 <= word < 2**32 for word in words) for words in drawn)
    assert len({word for words in drawn for word in words}) == 256
    assert not nonce_is_fixed()
    assert describe_fixed_nonce() == ()
    monkeypatch.setenv("TULLE_TEST_NONCE", "0" * 7 + "1" + "f" * 24)
    assert nonce() == nonce() == (1, 2**32 - 1, 2**32 - 1, 2**32 - 1)
    assert nonce_is_fixed()
    (line,) = describe_fixed_nonce()
    assert line == "The nonce of ledgers was fixed by a test hook (TULLE_TEST_NONCE): this fit is not private."
