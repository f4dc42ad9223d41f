"""Random batches: every row is in a batch as often as is billed, and independently of others where that is billed.

Statistical tests fix their seed. A false alarm has probability at most ALPHA = 1e-6 a test, were the seed drawn anew:
each looks at one p-value, or at several that share it. Wrong laws must be rejected at the same level.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, chi2, chi2_contingency, chisquare

from tulle.accounting.mechanism_words import describe_mechanism
from tulle.trusted.events import GaussianEvent, NoisePerSensitivity, SampledGaussianEvent
from tulle.trusted.mechanisms import Gaussian, SampledGaussian, price_of
from tulle.trusted.plan import Bill, Plan, PlanError, Release
from tulle.trusted.randomness import keyed_generator
from tulle.trusted.sampling import SCHEMES, Sampler, Sampling, Scheme, _poisson

ALPHA = 1e-6
DRAWS = 8000

Batch = tuple[int, ...]
every_scheme = pytest.mark.parametrize("scheme", SCHEMES)


def drawn(scheme: Scheme, n: int, b: int, count: int = DRAWS, seed: int = 0) -> list[Batch]:
    """Batches of one sampler, in their order."""
    sampler, generator = Sampler(Sampling(scheme, n, b)), keyed_generator(seed)
    return [tuple(sampler.draw(generator).tolist()) for _ in range(count)]


def membership(batches: list[Batch], n: int) -> np.ndarray:
    """Which rows are in which batch."""
    inside = np.zeros((len(batches), n))
    for number, batch in enumerate(batches):
        inside[number, list(batch)] = 1.0
    return inside


def subsets(n: int) -> Iterator[Batch]:
    for size in range(n + 1):
        yield from combinations(range(n), size)


def p_value(batches: list[Batch], chances: dict[Batch, float]) -> float:
    """Of how often each batch came up; 0 where one came up that has no chance."""
    counts = Counter(batches)
    possible = {batch: chance for batch, chance in chances.items() if chance > 0}
    if set(counts) - set(possible):
        return 0.0
    if len(possible) == 1:
        return 1.0
    found = [counts[batch] for batch in possible]
    return float(chisquare(found, len(batches) * np.array(list(possible.values()))).pvalue)


def poisson_chances(n: int, rate: float) -> dict[Batch, float]:
    return {batch: rate ** len(batch) * (1 - rate) ** (n - len(batch)) for batch in subsets(n)}


def equal_chances(n: int, b: int) -> dict[Batch, float]:
    return {batch: 1 / math.comb(n, b) for batch in combinations(range(n), b)}


SMALL = [(n, b) for n in range(1, 5) for b in range(1, n + 1)]


# --- Poisson ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "b"), SMALL)
def test_poisson_subsets_have_the_chances_of_independent_coins(n: int, b: int) -> None:
    assert p_value(drawn("poisson", n, b), poisson_chances(n, b / n)) > ALPHA


@pytest.mark.parametrize("factor", [1.1, 0.9])
@pytest.mark.parametrize(("n", "b"), [(n, b) for n, b in SMALL if b < n])
def test_another_rate_is_told_from_the_right_one(n: int, b: int, factor: float) -> None:
    """A tenth more or less, in as many draws."""
    generator = keyed_generator(1)
    batches = [tuple(_poisson(n, factor * b / n, generator).tolist()) for _ in range(DRAWS)]
    assert p_value(batches, poisson_chances(n, b / n)) < ALPHA


class Scripted:
    """A generator whose exponential draws are known, and 0 from there on."""

    def __init__(self, draws: list[float]) -> None:
        self._draws = draws

    def standard_exponential(self, count: int) -> np.ndarray:
        now, self._draws = self._draws[:count], self._draws[count:]
        return np.array(now + [0.0] * (count - len(now)))


@pytest.mark.parametrize("part", [0.0, 0.5, 0.999])
@pytest.mark.parametrize(("n", "b"), [(n, b) for n, b in SMALL if b < n])
def test_exponential_draws_rounded_down_are_the_gaps_of_poisson_batches(n: int, b: int, part: float) -> None:
    """P(k <= Exponential / -log(1 - q) < k + 1) = q (1 - q)^k: with such gaps the law is exact, not nearly so."""
    unit = -math.log1p(-b / n)
    for batch in subsets(n):
        gaps = np.diff([-1, *batch]) - 1
        script = [*((gaps + part + 1e-9) * unit).tolist(), n * unit * 1.001]
        generator: Any = Scripted(script)
        assert tuple(_poisson(n, b / n, generator).tolist()) == batch


def test_batches_that_need_more_draws_than_expected_are_completed() -> None:
    """Gaps of 0 throughout: all rows, though half of them were expected."""
    generator: Any = Scripted([])
    np.testing.assert_array_equal(_poisson(2000, 0.5, generator), np.arange(2000))


def test_every_row_is_in_a_poisson_batch_with_the_same_chance() -> None:
    n, b = 40, 6
    counts = membership(drawn("poisson", n, b), n).sum(axis=0)
    variance = DRAWS * b / n * (1 - b / n)
    assert chi2.sf(((counts - DRAWS * b / n) ** 2 / variance).sum(), n) > ALPHA


def pair_p_value(scheme: Scheme, n: int, b: int) -> float:
    """Of the covariances of all pairs of rows, which are uncorrelated and 0 on average if rows are independent."""
    deviations = membership(drawn(scheme, n, b), n) - b / n
    products = (deviations.T @ deviations)[np.triu_indices(n, 1)] / (b / n * (1 - b / n))
    return float(chi2.sf((products**2).sum() / DRAWS, len(products)))


def test_rows_are_in_poisson_batches_independently_of_each_other() -> None:
    """Rows of fixed-size batches are not, and neither are those of shuffled epochs."""
    assert pair_p_value("poisson", 30, 7) > ALPHA
    assert pair_p_value("without_replacement", 30, 7) < ALPHA
    assert pair_p_value("shuffled", 30, 6) < ALPHA


def size_p_value(scheme: Scheme, n: int, b: int) -> float:
    """Of the sizes of batches against the binomial law; sizes that are seldom expected are taken together."""
    sizes = np.bincount([len(batch) for batch in drawn(scheme, n, b)], minlength=n + 1)
    expected = DRAWS * binom.pmf(np.arange(n + 1), n, b / n)
    common = np.flatnonzero(expected >= 10)
    first, last = common[0], common[-1] + 1
    found, wanted = (np.r_[a[:first].sum(), a[first:last], a[last:].sum()] for a in (sizes.astype(float), expected))
    kept = wanted > 1e-9
    assert found[~kept].sum() == 0
    return float(chisquare(found[kept], wanted[kept] * (DRAWS / wanted[kept].sum())).pvalue)


@pytest.mark.parametrize(("n", "b"), [(5, 1), (30, 7), (50, 49), (200, 100), (1000, 3), (100_000, 20)])
def test_sizes_of_poisson_batches_are_binomial(n: int, b: int) -> None:
    assert size_p_value("poisson", n, b) > ALPHA


def test_sizes_of_other_batches_are_not() -> None:
    assert size_p_value("without_replacement", 30, 7) < ALPHA


def test_poisson_batches_cost_time_of_the_batch_and_not_of_all_rows() -> None:
    """One row in 10^14: no array of all rows could be made."""
    sizes = [len(batch) for batch in drawn("poisson", 10**15, 10, 300)]
    assert 2500 < sum(sizes) < 3500  # Poisson(3000): beyond 9 standard deviations


# --- fixed sizes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "b"), [*SMALL, (6, 3)])
def test_fixed_size_batches_are_all_equally_likely(n: int, b: int) -> None:
    """And no other set of rows ever comes up."""
    assert p_value(drawn("without_replacement", n, b), equal_chances(n, b)) > ALPHA


def test_fixed_size_batches_of_one_release_are_independent() -> None:
    batches = drawn("without_replacement", 4, 2, 2 * DRAWS)
    assert pairs_p_value(list(zip(batches[::2], batches[1::2]))) > ALPHA


def pairs_p_value(pairs: list[tuple[Batch, Batch]]) -> float:
    """Of independence of the first and the second of a pair."""
    names = sorted({one for pair in pairs for one in pair})
    table = np.zeros((len(names), len(names)))
    for first, second in pairs:
        table[names.index(first), names.index(second)] += 1
    return float(chi2_contingency(table).pvalue)


# --- shuffled epochs -------------------------------------------------------------------------------------------------

EPOCHS = [(1, 1), (2, 1), (5, 2), (6, 2), (6, 3), (7, 3), (7, 7), (23, 4)]


@pytest.mark.parametrize(("n", "b"), EPOCHS)
def test_a_shuffled_epoch_covers_every_row_once(n: int, b: int) -> None:
    """Whatever is left over makes a smaller last batch; the next epoch starts with all rows again."""
    each = Sampling("shuffled", n, b).answers_per_release
    assert each == math.ceil(n / b)
    batches = drawn("shuffled", n, b, 5 * each)
    for start in range(0, len(batches), each):
        epoch = batches[start : start + each]
        assert sorted(row for batch in epoch for row in batch) == list(range(n))
        assert [len(batch) for batch in epoch[:-1]] == [b] * (each - 1)


@pytest.mark.parametrize(("n", "b"), [(4, 1), (4, 2), (5, 2), (6, 3)])
def test_the_orders_of_epochs_are_equally_likely_and_independent(n: int, b: int) -> None:
    """One p-value each, of the first batch, the second, and the first ones of two epochs in a row."""
    each = math.ceil(n / b)
    batches = drawn("shuffled", n, b, DRAWS * each)
    assert p_value(batches[::each], equal_chances(n, b)) > ALPHA / 3
    assert p_value(batches[1::each], equal_chances(n, min(b, n - b))) > ALPHA / 3
    firsts = batches[::each]
    assert pairs_p_value(list(zip(firsts[::2], firsts[1::2]))) > ALPHA / 3


# --- all of them -----------------------------------------------------------------------------------------------------


@every_scheme
@pytest.mark.parametrize(("n", "b"), [(1, 1), (5, 5), (9, 1), (40, 13)])
def test_numbers_are_distinct_rising_and_integers(scheme: Scheme, n: int, b: int) -> None:
    sampler, generator = Sampler(Sampling(scheme, n, b)), keyed_generator(2)
    for _ in range(30):
        batch = sampler.draw(generator)
        assert batch.dtype == np.intp
        assert np.all(np.diff(batch) > 0)
        assert np.all((batch >= 0) & (batch < n))
        if b == n:
            np.testing.assert_array_equal(batch, np.arange(n))


@every_scheme
def test_batches_come_from_the_generator_alone(scheme: Scheme) -> None:
    """The same generator gives the same batches, another one gives others, and no two in a row are alike."""
    batches = drawn(scheme, 500, 50, 8)
    assert batches == drawn(scheme, 500, 50, 8)
    assert not set(batches) & set(drawn(scheme, 500, 50, 8, seed=1))
    assert len(set(batches)) == 8


# --- how likely a unit is in a batch ---------------------------------------------------------------------------------

BRUTE: dict[str, Callable[[int, int], dict[Batch, float]]] = {
    "poisson": lambda n, b: poisson_chances(n, b / n),
    "without_replacement": equal_chances,
}


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("n", range(1, 8))
@pytest.mark.parametrize("scheme", BRUTE)
def test_the_rate_of_a_unit_counted_over_all_batches(scheme: Scheme, n: int, k: int) -> None:
    """Any of its k rows; a unit of more rows than there are has them all."""
    for b in range(1, n + 1):
        chances = BRUTE[scheme](n, b)
        counted = sum(chance for batch, chance in chances.items() if set(batch) & set(range(k)))
        assert Sampling(scheme, n, b, k).unit_rate == pytest.approx(counted, rel=1e-12)
        assert (Sampling(scheme, n, b, k).unit_rate == 1) is (b == n or (scheme != "poisson" and b + k > n))


@pytest.mark.parametrize("scheme", BRUTE)
def test_small_rates_keep_their_digits(scheme: Scheme) -> None:
    """Where 1 - (1 - q)^k computed as it stands has none left."""
    for k in (1, 2, 10):
        assert Sampling(scheme, 10**15, 1, k).unit_rate == pytest.approx(k * 1e-15, rel=1e-12, abs=0.0)


@pytest.mark.parametrize("k", [1, 3])
def test_a_shuffled_epoch_holds_everybody(k: int) -> None:
    assert Sampling("shuffled", 10, 3, k).unit_rate == 1.0


# --- bills -----------------------------------------------------------------------------------------------------------


def release(scheme: Scheme | None, count: int, n: int = 7, b: int = 3) -> Release:
    mechanism = Gaussian() if scheme is None else SampledGaussian(batches=Sampling(scheme, n, b))
    return Release("step", mechanism, count)


@pytest.mark.parametrize(
    ("scheme", "each"), [(None, 1), ("poisson", 1), ("without_replacement", 1), ("shuffled", 3)], ids=str
)
def test_one_use_is_one_answer_or_the_answers_of_an_epoch(scheme: Scheme | None, each: int) -> None:
    """Neither more nor, but for what is left of the last epoch, fewer."""
    item = release(scheme, 2)
    assert (item.answers_each, item.answers) == (each, 2 * each)
    bill = Bill(Plan((item,)))
    for used in range(2 * each):
        if used <= each:
            with pytest.raises(PlanError, match="but planned"):
                bill.settle()
        else:
            bill.settle()
        bill.charge("step")
    bill.settle()
    with pytest.raises(PlanError, match=f"more than the {2 * each} times"):
        bill.charge("step")


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("b", [3, 6, 7])
def test_a_release_costs_what_its_batches_are(b: int, k: int) -> None:
    """Chance is counted on where batches are drawn afresh, at the rate of a unit; not in epochs, nor for all rows."""
    noise = NoisePerSensitivity(2.0)
    for scheme in SCHEMES:
        batches = Sampling(scheme, 7, b, k)
        event, uses = price_of(SampledGaussian(noise, batches))
        assert uses == 1
        if scheme == "shuffled" or batches.unit_rate == 1:
            assert event == GaussianEvent(noise)
        else:
            assert event == SampledGaussianEvent(noise, batches.unit_rate, scheme)


# --- errors and words ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [0, -1, 11])
@every_scheme
def test_a_batch_has_at_least_one_row_and_at_most_all(scheme: Scheme, batch: int) -> None:
    with pytest.raises(ValueError, match=f"a batch of 10 rows must have 1 to 10 of them, got {batch}"):
        Sampling(scheme, 10, batch)


def test_unknown_schemes_are_refused() -> None:
    wanted = r"sampling must be one of \['poisson', 'without_replacement', 'shuffled'\], got 'bootstrap'"
    with pytest.raises(ValueError, match=wanted):
        Sampling("bootstrap", 10, 3)  # type: ignore[arg-type]


def test_the_bill_says_how_batches_are_drawn() -> None:
    labels = [describe_mechanism(SampledGaussian(batches=Sampling(scheme, 10_000, 1500))) for scheme in SCHEMES]
    assert labels == [
        "Gaussian, Poisson batches of about 1,500",
        "Gaussian, batches of 1,500",
        "Gaussian, shuffled epochs of 7 batches",
    ]


@pytest.mark.parametrize(
    "rows", [(100, np.int8(10)), (np.int8(100), 10), (100_000, np.float16(100)), (100, 10, np.int8(1)), (100, 10.0)]
)
def test_rows_are_counted_in_integers_of_python(rows: Any) -> None:
    """Quotients of int8 are float16: the chance of being in a batch would be rounded."""
    with pytest.raises(ValueError, match="a batch of"):
        Sampling("poisson", *rows)
