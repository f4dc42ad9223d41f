"""Uniforms of local users: open, symmetric, and a user's own whoever else is drawn for.

Each statistical test rejects a right source with probability below 1e-6, were its seed drawn anew.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from scipy.stats import chisquare, kstest

from tulle.local.user_side.uniforms import SeededUniforms, SystemUniforms, open_interval

ALPHA = 1e-6

# Both ends, the middle from either side, and words that fill all 64 bits.
WORDS = np.r_[
    np.array([0, 1, 2**11, 2**12, 2**63 - 1, 2**63, 2**64 - 2**12, 2**64 - 2**11, 2**64 - 1], dtype=np.uint64),
    np.random.default_rng(0).integers(0, 2**64, 10_000, dtype=np.uint64),
]


def test_uniforms_lie_in_the_open_interval() -> None:
    """No word becomes 0 or 1, where quantiles are infinite."""
    numbers = open_interval(WORDS)
    assert numbers.dtype == np.float64
    assert np.all(numbers > 0)
    assert np.all(numbers < 1)


def test_uniforms_are_symmetric_about_one_half() -> None:
    """A word with all its bits flipped becomes 1 minus the number, to the last bit."""
    np.testing.assert_array_equal(open_interval(~WORDS), 1 - open_interval(WORDS))


def test_uniforms_have_fifty_two_bits() -> None:
    """Words that differ in one of the first 52 bits become different numbers, by just that bit's weight."""
    word = np.uint64(0x5555_5555_5555_5000)
    bits = np.arange(52, dtype=np.uint64)
    moved = open_interval(word ^ (np.uint64(2**63) >> bits)) - open_interval(np.array([word]))
    np.testing.assert_array_equal(np.abs(moved), 0.5 ** (bits.astype(float) + 1))


def test_a_chance_is_met_to_the_last_of_sixteen_bits() -> None:
    """Of all words that differ in their first 16 bits alone, just the share c is below c, for every such c."""
    numbers = np.sort(open_interval(np.arange(2**16, dtype=np.uint64) << np.uint64(48)))
    borders = np.arange(2**16 + 1) / 2**16
    np.testing.assert_array_equal(np.searchsorted(numbers, borders), np.arange(2**16 + 1))


# --- seeded ----------------------------------------------------------------------------------------------------------


def drawn(seed: int, numbers: Sequence[int], blocks: Sequence[int], each: int = 7) -> np.ndarray:
    """Draws for users in blocks of given sizes."""
    source = SeededUniforms(seed, numbers)
    return np.vstack([source.draw(block, each) for block in blocks])


@pytest.mark.parametrize(
    ("numbers", "blocks"),
    [([3, 5], [2]), ([5, 3], [2]), ([3, 5], [1, 1]), ([0, 3, 4, 5, 9], [2, 3]), ([5, 1, 3], [1, 0, 2])],
)
def test_a_user_draws_the_same_whoever_is_drawn_for_beside(numbers: list[int], blocks: list[int]) -> None:
    """Neither order nor blocks nor other users change what a user draws: two processes may share the users."""
    together = drawn(11, numbers, blocks)
    alone = np.vstack([SeededUniforms(11, [number]).draw(1, 7) for number in numbers])
    np.testing.assert_array_equal(together, alone)


def test_a_user_who_draws_more_starts_with_the_same_numbers() -> None:
    """The first draws do not depend on how many follow."""
    np.testing.assert_array_equal(drawn(2, [8], [1], 1000)[:, :10], drawn(2, [8], [1], 10))


def test_seeds_and_users_differ() -> None:
    """No number is drawn twice among users and seeds, neighbours and far ones."""
    users = [0, 1, 2, 3, 1000, 2**32, 2**63]
    numbers = np.concatenate([drawn(seed, users, [len(users)], 50).ravel() for seed in (0, 1, 2, 2**31, 2**70)])
    assert len(np.unique(numbers)) == len(numbers) == 5 * 7 * 50


def test_numpy_numbers_name_the_same_users() -> None:
    """An array of user numbers draws what a list of them does."""
    np.testing.assert_array_equal(SeededUniforms(1, np.array([4, 2])).draw(2, 5), drawn(1, [4, 2], [2], 5))


def test_more_users_than_numbers_is_an_error() -> None:
    """Nobody gets numbers that no seed determines."""
    source = SeededUniforms(0, [1, 2])
    with pytest.raises(ValueError, match=r"user|number"):
        source.draw(3, 4)


def test_seeded_uniforms_are_uniform() -> None:
    """Over users, over one user's draws, and jointly for neighbours: chi-square and Kolmogorov-Smirnov."""
    over_users = SeededUniforms(5, range(4000)).draw(4000, 8)
    for numbers in (over_users[:, 0], over_users[:, 7], over_users.ravel(), drawn(5, [17], [1], 30_000).ravel()):
        assert kstest(numbers, "uniform").pvalue > ALPHA
    # Two draws of one user, and the same draw of two users: independent.
    for first, second in (
        (over_users[:, 0], over_users[:, 1]),
        (over_users[:, 3], over_users[:, 4]),
        (over_users[:-1, 0], over_users[1:, 0]),
        (over_users[::2, 5], over_users[1::2, 5]),
    ):
        cells = np.histogram2d(first, second, bins=8, range=[[0, 1], [0, 1]])[0]
        assert chisquare(cells.ravel()).pvalue > ALPHA


def test_the_uniformity_test_rejects_a_slight_lean() -> None:
    """Uniforms to the power of 1.05 are told apart by the same number of draws."""
    assert kstest(drawn(5, [17], [1], 30_000).ravel() ** 1.05, "uniform").pvalue < ALPHA


# --- from the operating system ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 1), (3, 4), (1, 1000), (500, 2), (0, 3)])
def test_system_uniforms_have_the_shape_that_is_asked_for(shape: tuple[int, int]) -> None:
    """One line for each user, all of it in the open interval."""
    numbers = SystemUniforms().draw(*shape)
    assert numbers.shape == shape
    assert numbers.dtype == np.float64
    assert np.all((numbers > 0) & (numbers < 1))


def test_system_uniforms_never_repeat() -> None:
    """80,000 numbers of 52 bits, of several sources and calls, are all different but for a chance of 7e-7."""
    first, second = SystemUniforms(), SystemUniforms()
    numbers = np.concatenate([first.draw(20_000, 1), second.draw(20_000, 1), first.draw(1, 40_000).T])
    assert len(np.unique(numbers)) == 80_000


def test_system_uniforms_are_uniform() -> None:
    """Chi-square over 64 cells; the only test here whose seed nobody fixes, at 1e-9."""
    cells = np.histogram(SystemUniforms().draw(100, 2000), bins=64, range=(0, 1))[0]
    assert chisquare(cells).pvalue > 1e-9
