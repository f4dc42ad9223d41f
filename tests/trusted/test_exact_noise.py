"""Noise without rounding errors: errors of each law, borders of the grid, near ties, and the grid itself.

The reference is decimal arithmetic with more digits. Words are planted next to borders, so that the float64
transformation alone would have to guess.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Iterator
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, chisquare, geom, kstest, norm

from tulle.fast import rare_events
from tulle.fast.rare_events import draw_events
from tulle.trusted import exact_noise
from tulle.trusted.exact_noise import (
    EXPONENTIAL,
    GUMBEL,
    LAPLACE,
    LAPLACE_CHOICE,
    NORMAL,
    ChoiceLaw,
    Draws,
    SymmetricLaw,
    add_noise,
    choose_largest,
    decimal_normal_tail,
    decimal_pi,
    grid_and_scale,
    in_units,
    round_noise,
)
from tulle.trusted.randomness import keyed_generator

ALPHA = 1e-6
SYMMETRIC = {"normal": NORMAL, "laplace": LAPLACE}
CHOICES = {"gumbel": GUMBEL, "exponential": EXPONENTIAL, "laplace": LAPLACE_CHOICE}
every_symmetric = pytest.mark.parametrize("law", SYMMETRIC.values(), ids=SYMMETRIC)
every_choice = pytest.mark.parametrize("law", CHOICES.values(), ids=CHOICES)


class Planted:
    """A generator that gives planted words, one after another."""

    def __init__(self, words: list[int]) -> None:
        self.words: Iterator[int] = iter(words)

    def integers(self, low: int, high: int, size: int | None = None, dtype: Any = None) -> Any:
        assert (low, high, dtype) == (0, 2**64, np.uint64)
        if size is None:
            return np.uint64(next(self.words))
        return np.array([next(self.words) for _ in range(size)], dtype=np.uint64)


def planted(heads: list[int], more: list[int] | None = None, side: int = 0) -> Draws:
    """Draws whose numbers begin with `heads` in units of 2^-64, all on one side; `more` words follow."""
    words = np.array([2 * head + side for head in heads], dtype=np.uint64)
    return Draws(words, Planted(more or []))  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def many_digits() -> Iterator[None]:
    with localcontext(decimal.Context(prec=120)):
        yield


def middle(draws: Draws, place: int) -> Decimal:
    """The middle of what is known of a number."""
    number, bits = draws.cell(place)
    return Decimal(2 * number + 1) / Decimal(2) ** (bits + 1)


# --- uniform numbers -------------------------------------------------------------------------------------------------


class TestDraws:
    def test_a_word_is_63_bits_of_a_number_below_a_half_and_a_side(self) -> None:
        draws = planted([2**62, 2**63 - 1, 2**46])
        np.testing.assert_array_equal(draws.values, [(2.0**62 + 0.5) / 2**64, 0.5, (2.0**46 + 0.5) / 2**64])
        assert [draws.cell(place) for place in range(3)] == [(2**62, 64), (2**63 - 1, 64), (2**46, 64)]
        assert not draws.sides.any()
        assert planted([5, 2**60], [1], side=1).sides.all()

    def test_short_numbers_get_more_words_until_47_bits_are_known(self) -> None:
        draws = planted([2**46 - 1, 1, 0, 0, 2**50], [7, 8, 2**63, 0, 2**46])
        assert draws.cell(0) == ((2**46 - 1 << 64) + 7, 128)
        assert draws.cell(1) == ((1 << 64) + 8, 128)
        assert draws.cell(2) == (2**63, 128)
        assert draws.cell(3) == (2**46, 192)
        assert draws.cell(4) == (2**50, 64)

    def test_a_number_of_zeros_alone_ends(self) -> None:
        """The probability is 2^-960; a loop in trusted code has an end."""
        draws = planted([0], [0] * 15)
        assert draws.cell(0) == (0, 1024)
        assert 0 < draws.values[0] < 1e-300
        assert np.isfinite(NORMAL.noise(draws)[0])
        assert not draws.is_below(0, lambda: Decimal(0))

    @given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=20))
    def test_values_are_within_2_to_the_minus_47_of_all_that_is_known(self, words: list[int]) -> None:
        draws = Draws(np.array(words, dtype=np.uint64), keyed_generator(0))
        for place, value in enumerate(draws.values):
            number, bits = draws.cell(place)
            low, high = Fraction(number, 2**bits), Fraction(number + 1, 2**bits)
            assert abs(Fraction(value) - low) <= Fraction(2**-46 * 1.01) * low
            assert abs(Fraction(value) - high) <= Fraction(2**-46 * 1.01) * high

    def test_sides_are_fair_and_apart_from_the_numbers(self) -> None:
        """Chi-square of the side and of the first three bits; false alarm 1e-6."""
        draws = Draws.fresh(40_000, keyed_generator(1))
        assert chisquare(np.bincount((draws.values * 16).astype(int) + 8 * draws.sides)).pvalue > ALPHA
        assert kstest(2 * draws.values, "uniform").pvalue > ALPHA

    @pytest.mark.parametrize(("bits_equal", "below"), list(product([0, 64, 192], [True, False])))
    def test_is_below_draws_as_many_bits_as_decide(self, bits_equal: int, below: bool) -> None:
        """A border that agrees with a number in its first 64 + `bits_equal` bits and then does not."""
        words = bits_equal // 64
        head, tail = 2**60 + 12345, [(1 << 63) + k for k in range(words)]
        number = head
        for word in tail:
            number = number << 64 | word
        bits = 64 + bits_equal
        border = (Decimal(number) + (2 if below else -1)) / Decimal(2) ** bits
        generator = Planted(tail)
        draws = Draws(np.array([2 * head], dtype=np.uint64), generator)  # type: ignore[arg-type]
        assert draws.is_below(0, lambda: +border) is below
        assert draws.cell(0)[1] == bits

    def test_is_below_inside_a_cell_looks_at_the_next_word(self) -> None:
        border = (Decimal(2**60) + Decimal("0.25")) / Decimal(2) ** 64
        for word, below in ((2**62 - 2**50, True), (2**62 + 2**50, False)):
            assert planted([2**60], [word]).is_below(0, lambda: border) is below

    def test_what_a_user_does_to_decimal_arithmetic_changes_nothing(self) -> None:
        with localcontext(decimal.Context(prec=3, rounding=decimal.ROUND_UP, Emin=-5, Emax=5)) as context:
            context.traps[decimal.Inexact] = True
            assert planted([2**60], [2**61]).is_below(0, lambda: (Decimal(2**60) + Decimal(1) / 3) / Decimal(2) ** 64)
            chosen = choose_largest(np.zeros((3, 1)), 1.0, 1, GUMBEL, Planted([2**60] * 3 + [1, 2, 3] * 9))  # type: ignore[arg-type]
        assert chosen.sum() == 1


# --- laws ------------------------------------------------------------------------------------------------------------


def words_to_try() -> np.ndarray:
    """Random ones, and all magnitudes of heads: short ones, ones next to powers of two, the largest."""
    some = np.random.default_rng(0).integers(0, 2**64, 40, dtype=np.uint64).tolist()
    powers = [2 * head + side for k in range(1, 63, 4) for head in (2**k, 2**k - 1) for side in (0, 1)]
    powers += [2 * head + side for head in (2**46, 2**46 - 1, 2**47) for side in (0, 1)]
    largest = [2 * (2**63 - k) + side for k in (1, 2, 3, 1000, 2**11) for side in (0, 1)]
    return np.array([*some, *(word for word in powers if word < 2**64), *largest], dtype=np.uint64)


class TestErrors:
    """Within 2^-46 × (1 + magnitude), of every number that is possible given the bits that are known."""

    LIMIT = Decimal(2) ** -46

    def check_normal(self, draws: Draws) -> None:
        """The tails of the magnitude with its error more and less lie on either side of all that the number can be."""
        for place, value in enumerate(NORMAL.noise(draws)):
            number, bits = draws.cell(place)
            magnitude = abs(Decimal(float(value)))
            error = self.LIMIT * (1 + magnitude)
            assert decimal_normal_tail(magnitude + error) * 2**bits < number or number == 0
            assert magnitude < error or decimal_normal_tail(magnitude - error) * 2**bits > number + 1
            assert magnitude == 0 or (value < 0) == draws.sides[place]

    def check_choice(self, law: ChoiceLaw, draws: Draws) -> None:
        for place, value in enumerate(law.noise(draws)):
            number, bits = draws.cell(place)
            for end in (number, number + 1):
                true = law.noise_exactly(Decimal(end) / 2**bits, bool(draws.sides[place]))
                assert abs(Decimal(float(value)) - true) < self.LIMIT * (1 + abs(true))

    def test_normal(self) -> None:
        self.check_normal(Draws(words_to_try(), keyed_generator(1)))

    @every_choice
    def test_noise_of_choices(self, law: ChoiceLaw) -> None:
        self.check_choice(law, Draws(words_to_try(), keyed_generator(1)))

    @pytest.mark.parametrize("more", [1, 2, 7, 15])
    def test_numbers_of_many_zeros(self, more: int) -> None:
        """64 × `more` zeros and then ones: far out in every tail."""
        heads, words = [0, 1], [*([0] * (more - 1) + [2**63 + 1]), *([0] * (more - 1) + [2**64 - 1])]
        for side in (0, 1):
            draws = planted(heads, words * 2, side)
            with localcontext(decimal.Context(prec=400)):
                for law in (LAPLACE_CHOICE, GUMBEL, EXPONENTIAL):
                    self.check_choice(law, draws)
        self.check_normal(draws)

    @every_symmetric
    def test_the_tail_is_the_inverse_of_the_magnitude(self, law: SymmetricLaw) -> None:
        for u in (1e-300, 1e-30, 1e-5, 0.01, 0.2, 0.4999):
            magnitude = Decimal(float(law.magnitudes(np.array([u]))[0]))
            assert float(law.tail(magnitude)) == pytest.approx(u, rel=1e-11)

    def test_decimal_normal_tail_and_pi(self) -> None:
        assert str(decimal_pi())[:52] == "3.14159265358979323846264338327950288419716939937510"
        assert decimal_normal_tail(Decimal(0)) == Decimal("0.5")
        for z in (0.1, 1.0, 5.0, 20.0):
            assert float(decimal_normal_tail(Decimal(z))) == pytest.approx(norm.sf(z), rel=1e-12)
        one = decimal_normal_tail(Decimal(9))
        with localcontext() as context:
            context.prec = 120
            assert abs(one / decimal_normal_tail(Decimal(9)) - 1) < Decimal("1e-57")


# --- rounding to whole units -----------------------------------------------------------------------------------------


def is_nearest(law: SymmetricLaw, draws: Draws, place: int, steps: float, value: float) -> bool:
    """Whether a whole number is the nearest to steps × the magnitude of the middle of what is known, by its borders."""
    u, half = middle(draws, place), Decimal("0.5")
    below = value == 0 or law.tail((Decimal(value) - half) / Decimal(steps)) > u
    return below and law.tail((Decimal(value) + half) / Decimal(steps)) <= u


class TestRounding:
    @pytest.mark.parametrize("steps", [0.02, 0.7, 3.0, 4097.5, 1e6 / 3])
    @every_symmetric
    def test_equals_decimal_rounding(self, law: SymmetricLaw, steps: float) -> None:
        words = np.random.default_rng(3).integers(0, 2**64, 40, dtype=np.uint64)
        draws = Draws(words, keyed_generator(3))
        found = round_noise(law, draws, steps)
        for place, value in enumerate(found):
            assert is_nearest(law, draws, place, steps, abs(value))
            assert value == 0 or (value < 0) == bool(words[place] & np.uint64(1))

    @pytest.mark.parametrize("below", [0, 1, 5, 1000])
    @pytest.mark.parametrize("steps", [1.0, 300.0, 1e5, 2.0**32])
    @pytest.mark.parametrize("side", [0, 1])
    @every_symmetric
    def test_next_to_a_border_more_bits_decide(self, law: SymmetricLaw, side: int, steps: float, below: int) -> None:
        """The border between below and below + 1, as a number: cells around it, and next words on its either side."""
        if below > 30 * steps:
            return
        border = law.tail((below + Decimal("0.5")) / Decimal(steps)) * Decimal(2) ** 128
        head, word = divmod(int(border), 2**64)
        cases = [(head - 1, None, 1), (head + 1, None, 0), (head, word - 1, 1), (head, word + 1, 0)]
        for number, following, more in cases:
            draws = planted([number], [following, 2**63] if following is not None else [2**63, 2**63], side)
            expected = (below + more) * (-1 if side else 1)
            assert round_noise(law, draws, steps)[0] == expected
            if following is not None:
                assert draws.cell(0)[1] >= 128  # the slow way decided

    @every_symmetric
    def test_the_slow_and_the_fast_way_agree(self, law: SymmetricLaw, monkeypatch: pytest.MonkeyPatch) -> None:
        words = np.random.default_rng(4).integers(0, 2**64, 300, dtype=np.uint64)
        fast = round_noise(law, Draws(words, keyed_generator(4)), 1000.3)
        monkeypatch.setattr(exact_noise, "ERROR", 2.0**-9)  # everything is in doubt, over several borders
        slow = round_noise(law, Draws(words[:30], keyed_generator(4)), 1000.3)
        np.testing.assert_array_equal(slow, fast[:30])

    def test_so_many_steps_that_everything_is_in_doubt(self) -> None:
        """2^46 steps: an error of float64 spans many borders, and decimal arithmetic finds the right one."""
        draws = Draws(np.random.default_rng(5).integers(0, 2**64, 12, dtype=np.uint64), keyed_generator(5))
        found = round_noise(NORMAL, draws, 2.0**46)
        for place, value in enumerate(found):
            assert is_nearest(NORMAL, draws, place, 2.0**46, abs(value))
        with pytest.raises(ValueError, match="cannot be rounded exactly"):
            round_noise(NORMAL, draws, 2.0**47)

    @pytest.mark.parametrize(("factor", "accepted"), [(1.0, True), (2 / 3, False), (3 / 2, False)])
    @every_symmetric
    def test_law_on_a_coarse_grid(self, law: SymmetricLaw, factor: float, accepted: bool) -> None:
        """Half a unit of scale: the chances of -3 to 3 (chi-square; false alarm 1e-6)."""
        drawn = round_noise(law, Draws.fresh(50_000, keyed_generator(6)), 0.5 * factor)
        edges = np.abs(np.arange(-3, 3) + 0.5) / 0.5
        tails = np.array([float(law.tail(Decimal(float(edge)))) for edge in edges])
        below = np.r_[0.0, np.where(np.arange(6) < 3, tails, 1 - tails), 1.0]
        counts = np.bincount((np.clip(drawn, -3, 3) + 3).astype(int), minlength=7)
        assert bool(chisquare(counts, 50_000 * np.diff(below)).pvalue > ALPHA) is accepted


class TestAddNoise:
    @given(st.floats(-1e20, 1e20), st.integers(-40, 40), st.integers(0, 100))
    def test_whole_units_of_an_answer_are_whole_units_of_the_sum(self, exact: float, power: int, seed: int) -> None:
        """The result is in_units(exact) + noise that does not know of exact, to the nearest float."""
        grid = 2.0**power
        noise, noisy = (
            add_noise(np.full((1, 1), answer), 100.3 * grid, grid, NORMAL, keyed_generator(seed))
            for answer in (0.0, exact)
        )
        np.testing.assert_array_equal(noise, np.rint(noise))
        np.testing.assert_array_equal(noisy, in_units(np.array([[exact]]), grid) + noise)

    def test_answers_that_no_float_holds_in_units_are_cut(self) -> None:
        with np.errstate(over="ignore"):
            units = in_units(np.array([1e308, -1e308, 5.0]), 2.0**-1000)
        np.testing.assert_array_equal(units[:2], [1e300, -1e300])
        assert np.isfinite(units).all()

    @given(st.floats(-1e10, 1e10), st.floats(0, 100), st.integers(-20, 20))
    def test_rounding_parts_two_answers_by_a_unit_at_most(self, one: float, apart: float, power: int) -> None:
        grid = 2.0**power
        units = in_units(np.array([one, one + apart]), grid)
        assert abs(units[1] - units[0]) <= Fraction(abs((one + apart) - one)) / Fraction(grid) + 1 + 1e-9


# --- the grid --------------------------------------------------------------------------------------------------------

noises = st.floats(1e-12, 1e5)
moves = st.one_of(st.just(0.0), st.floats(1e-200, 1e100))
counts = st.integers(1, 10**7)


class TestGridAndScale:
    @given(noises, moves, counts, st.booleans())
    def test_properties(self, noise: float, moved: float, count: int, l1: bool) -> None:
        """A power of two; the scale covers the sensitivity and one unit of each number; as many steps as can be."""
        coordinates = float(count) if l1 else math.sqrt(count)
        grid, scale = grid_and_scale(noise, moved, coordinates)
        assert math.frexp(grid)[0] == 0.5
        assert scale >= noise * (moved + grid * coordinates) * (1 - 1e-15)
        assert scale > 0
        steps = scale / grid
        assert steps <= 2.0**32 or steps <= 2.01 * noise * coordinates
        if noise * coordinates < 2.0**18 and moved:
            assert scale <= noise * moved * (1 + 1.01 / 4096)

    @given(st.lists(st.floats(-100, 100), min_size=1, max_size=9), st.integers(0, 2**32), st.booleans())
    def test_the_scale_covers_what_rounding_adds(self, answer: list[float], seed: int, l1: bool) -> None:
        """Two answers that are `moved` apart are no further apart on the grid than the scale is made for."""
        one = np.array(answer)
        other = one + np.random.default_rng(seed).normal(size=len(one))
        order = 1 if l1 else 2
        moved = float(np.linalg.norm(one - other, order))
        grid, scale = grid_and_scale(2.0, moved, float(np.linalg.norm(np.ones(len(one)), order)))
        apart = np.linalg.norm((in_units(one, grid) - in_units(other, grid)) * grid, order)
        assert 2.0 * apart <= scale * (1 + 1e-12)

    def test_rounding_can_need_all_of_what_it_is_given(self) -> None:
        """All numbers of one answer just below a border and of the other just above."""
        grid, scale = grid_and_scale(1.0, 1e-9, 100.0)  # 100 numbers in ℓ1, or 10,000 in ℓ2
        for order, count in ((1, 100), (2, 10_000)):
            below = np.full(count, grid * 0.5 * (1 - 1e-12))
            above = np.full(count, grid * 0.5 * (1 + 1e-12))
            apart = np.linalg.norm((in_units(above, grid) - in_units(below, grid)) * grid, order)
            assert apart == pytest.approx(grid * 100)
            assert apart + 1e-9 == pytest.approx(scale, rel=1e-6)

    @pytest.mark.parametrize(("noise", "moved"), [(1e-130, 0.0), (1e-300, 1e-200), (1e-130, 1e-290), (5e-324, 1.0)])
    def test_noise_never_underflows_to_none(self, noise: float, moved: float) -> None:
        grid, scale = grid_and_scale(noise, moved, 3.0)
        assert grid > 0
        assert scale / grid >= 1e-20 or noise < 1e-100
        assert scale > 0
        assert np.isfinite(add_noise(np.ones((3, 1)), scale, grid, NORMAL, keyed_generator(0))).all()

    def test_much_noise_on_very_many_numbers(self) -> None:
        """More steps than are common; noise is still rounded, and no error comes after the bill."""
        grid, scale = grid_and_scale(1e7, 1.0, 1e4)
        assert 2.0**32 < scale / grid < 2.0**46
        noise = add_noise(np.zeros((200, 1)), scale, grid, NORMAL, keyed_generator(0)) * grid
        assert kstest(noise[:, 0] / scale, norm.cdf).pvalue > ALPHA


# --- events that happen ----------------------------------------------------------------------------------------------


class TestDrawEvents:
    @pytest.mark.parametrize("one_in", [2, 3, 7, 1023])
    def test_each_happens_with_its_chance_and_by_itself(self, one_in: int) -> None:
        """Counts are binomial, places uniform, gaps geometric (false alarm 1e-6 each)."""
        generator, size = keyed_generator(7), 4 * one_in
        runs = [draw_events(size, one_in, generator) for _ in range(3000)]
        sizes = np.bincount([len(run) for run in runs], minlength=20)[:20]
        expected = 3000 * binom.pmf(np.arange(20), size, 1 / one_in)
        few = expected < 10
        observed = np.r_[sizes[~few], 3000 - sizes[~few].sum()]
        assert chisquare(observed, np.r_[expected[~few], 3000 - expected[~few].sum()]).pvalue > ALPHA
        places = np.concatenate(runs)
        assert all(np.all(np.diff(run) > 0) for run in runs)
        assert places.min() >= 0
        assert places.max() < size
        cells = np.bincount(places * 4 // size, minlength=4)
        assert chisquare(cells).pvalue > ALPHA

    def test_all_of_them_and_none(self) -> None:
        np.testing.assert_array_equal(draw_events(5, 1, keyed_generator(0)), np.arange(5))
        assert len(draw_events(0, 3, keyed_generator(0))) == 0
        assert len(draw_events(3, 2**33 - 1, keyed_generator(0))) == 0

    @pytest.mark.parametrize(("one_in", "accepted"), [(1000, True), (1100, False)])
    def test_gaps_are_geometric(self, one_in: int, accepted: bool) -> None:
        gaps = rare_events._gaps(Draws.fresh(30_000, keyed_generator(8)), one_in)
        uniform = geom.cdf(gaps, 1 / 1000) + np.random.default_rng(0).random(30_000) * geom.pmf(gaps + 1, 1 / 1000)
        assert bool(kstest(uniform, "uniform").pvalue > ALPHA) is accepted

    @pytest.mark.parametrize("one_in", [2, 7, 2**20, 2**33 - 1])
    @pytest.mark.parametrize("count", [1, 2, 17])
    @pytest.mark.parametrize("side", [0, 1])
    def test_next_to_a_border_more_bits_decide(self, one_in: int, count: int, side: int) -> None:
        """A gap of `count` or more has the chance (1 - 1/one_in)^count; the cells around that number."""
        nothing = (1 - 1 / Decimal(one_in)) ** count
        border = nothing if side else 1 - nothing
        if not Decimal(2) ** -17 < border < Decimal("0.5"):
            return
        whole = int(border * Decimal(2) ** 128)
        near = ((whole - 2**64, True), (whole + 2**64, False), (whole - 1, True), (whole + 1, False))
        for (number, following), is_below in ((divmod(known, 2**64), is_below) for known, is_below in near):
            draws = planted([number], [following, 2**63, 2**63], side)
            # On side 1 small numbers are long gaps, on side 0 short ones.
            assert rare_events._gaps(draws, one_in)[0] == (count if is_below == bool(side) else count - 1)


# --- choices ---------------------------------------------------------------------------------------------------------


class TestChoices:
    @every_choice
    def test_equals_a_decimal_choice(self, law: ChoiceLaw) -> None:
        """20 random columns of 9 scores, k from 1 to 8."""
        scores, scale = np.random.default_rng(9).normal(size=(9, 20)), 0.7
        for k in (1, 4, 8):
            found = choose_largest(scores, scale, k, law, keyed_generator(k))
            draws = Draws.fresh(scores.size, keyed_generator(k))
            noise = [law.noise_exactly(*draws.exactly(place)) for place in range(scores.size)]
            exact = np.array(
                [Decimal(float(score)) + Decimal(scale) * each for score, each in zip(scores.ravel(), noise)]
            ).reshape(scores.shape)
            for column in range(20):
                expected = np.argsort(exact[:, column])[9 - k :]
                np.testing.assert_array_equal(np.flatnonzero(found[:, column]), np.sort(expected))

    @pytest.mark.parametrize("winner", [0, 1, 2])
    @pytest.mark.parametrize("side", [0, 1])
    @every_choice
    def test_ties_in_the_first_64_bits_are_decided_by_the_next(self, law: ChoiceLaw, winner: int, side: int) -> None:
        """Three equal scores with equal words, and a fourth far below: words that follow tell them apart."""
        head = 2 * (2**61 + 7) + side
        small, large = 5, 2**64 - 5
        # Noise falls with the number on side 1 of all laws but Laplace, where the sign is the side.
        rising = side == 0
        if law is LAPLACE_CHOICE:
            rising = side == 1
        if law is GUMBEL:
            rising = not rising
        best, others = (large, small) if rising else (small, large)
        # 256 bits are asked for of each contested one, in order of the candidates.
        more = [word for j in range(3) for word in [best + j if j == winner else others + j, 1, 1]]
        generator = Planted([head, head, head, 2**62, *more])
        scores = np.array([[1.0], [1.0], [1.0], [-200.0]])
        chosen = choose_largest(scores, 1.0, 1, law, generator)  # type: ignore[arg-type]
        np.testing.assert_array_equal(np.flatnonzero(chosen[:, 0]), [winner])

    @pytest.mark.parametrize("k", [1, 2, 3])
    def test_contested_places_are_filled_by_the_best_of_those_in_doubt(self, k: int) -> None:
        """One sure winner, three that float64 cannot tell apart, one sure loser."""
        head = 2 * (2**61 + 7) + 1
        scores = np.array([[50.0], [1.0], [1.0], [1.0], [-200.0]])
        # Gumbel noise of side 1: larger numbers are later clocks' smaller exponentials, and so larger noise.
        more = [word for last in (3, 1, 2) for word in (2**62 + last, 1, 1)]
        generator = Planted([head, head, head, head, 2**62, *(more if k > 1 else [])])
        chosen = choose_largest(scores, 1.0, k, GUMBEL, generator)  # type: ignore[arg-type]
        np.testing.assert_array_equal(np.flatnonzero(chosen[:, 0]), sorted([0, 1, 3][:1] + [1, 3][: k - 1]))

    def test_scores_that_drown_the_noise_in_float64_are_told_apart_by_it(self) -> None:
        """Equal scores of 1e30, noise of scale 1e-200: each of two is chosen in half of all runs (binomial, 1e-6)."""
        scores = np.full((2, 100), 1e30)
        with np.errstate(all="ignore"):
            chosen = choose_largest(scores, 1e-200, 1, GUMBEL, keyed_generator(10))
        assert np.all(chosen.sum(axis=0) == 1)
        assert ALPHA < binom.cdf(chosen[0].sum(), 100, 0.5) < 1 - ALPHA

    def test_a_score_that_is_better_by_the_last_bit_wins_where_noise_is_nothing(self) -> None:
        scores = np.array([[1.0], [np.nextafter(1.0, 2.0)]])
        for seed in range(5):
            assert choose_largest(scores, 1e-250, 1, GUMBEL, keyed_generator(seed))[1, 0]

    def test_none_and_all(self) -> None:
        scores = np.zeros((3, 2))
        assert not choose_largest(scores, 1.0, 0, GUMBEL, keyed_generator(0)).any()
        assert choose_largest(scores, 1.0, 3, GUMBEL, keyed_generator(0)).all()
        assert choose_largest(scores, 1.0, 7, GUMBEL, keyed_generator(0)).all()

    @settings(deadline=None, max_examples=10)
    @given(st.integers(2, 6), st.integers(1, 3), st.integers(0, 2**32))
    def test_that_everything_is_in_doubt_changes_nothing(self, size: int, columns: int, seed: int) -> None:
        """All candidates decided in decimal arithmetic: the same choice as with the fast way first."""
        scores = np.random.default_rng(seed).normal(size=(size, columns))
        fast = choose_largest(scores, 1.0, 2, GUMBEL, keyed_generator(seed))
        patch = pytest.MonkeyPatch()
        patch.setattr(exact_noise, "ERROR", 1e6)
        try:
            slow = choose_largest(scores, 1.0, 2, GUMBEL, keyed_generator(seed))
        finally:
            patch.undo()
        np.testing.assert_array_equal(slow, fast)
