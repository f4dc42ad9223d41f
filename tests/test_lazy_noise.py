"""Noise that is drawn only where it can matter has the law of noise that is drawn everywhere.

Statistical tests fix their seed. Each p-value is compared with ALPHA = 1e-7, and no test looks at more than 20 of them:
a false alarm has probability at most 2e-6 a test, were the seed drawn anew. Each is paired with wrong versions, which
must be rejected at the same level.

Few lines are drawn in full, because that is cheaper. `in_order` makes order cost nothing, so that few lines go the way
of many; the law must not depend on it.
"""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta, chi2, chi2_contingency, chisquare, expon, ks_2samp, kstest, norm, spearmanr

import tulle.mechanisms
from tulle import order_statistics
from tulle.events import NoisePerSensitivity
from tulle.mechanisms import Gaussian, HardThreshold, SampledGaussian, Sensitivity, SparseAnswer, rounding_grid
from tulle.order_statistics import Background, dense_noisy_largest, noisy_largest
from tulle.randomness import keyed_generator
from tulle.weights import SparseWeights

ALPHA = 1e-7
DRAWS = 1200

CHEAP_ORDER = {
    "_SHARE": math.inf,
    "_PART": 0.0,
    "_ORDERED": 0.0,
    "_LISTED": 0.0,
    "_FEW": 3,
    "_FEW_FOR_MANY": 3,
    "_TOO_FEW": 0,
}


@pytest.fixture
def in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise is drawn in falling order, and lines are listed, however few there are."""
    for name, value in CHEAP_ORDER.items():
        monkeypatch.setattr(order_statistics, name, value)


class Proxy:
    """A generator of which some kinds of draws are changed."""

    def __init__(self, generator: np.random.Generator, **changed: Callable[[Any], Any]) -> None:
        self._generator = generator
        self._changed = changed

    def __getattr__(self, name: str) -> Any:
        draw = getattr(self._generator, name)
        change = self._changed.get(name)
        return draw if change is None else lambda *arguments: change(draw(*arguments))


# --- noise in falling order ------------------------------------------------------------------------------------------


def falling(size: int, counts: list[int], generator: Any) -> tuple[np.ndarray, np.ndarray]:
    """Places and noise of several draws in a row."""
    noise = order_statistics._FallingNoise(size)
    places, values = zip(*(noise.draw(count, generator) for count in counts))
    return np.concatenate(places), np.concatenate(values)


def tails(noise: np.ndarray) -> np.ndarray:
    return 2 * norm.sf(np.abs(noise))


SIZES = [(1, [1]), (7, [2, 5]), (7, [7]), (50, [3, 9, 1]), (1000, [40, 2]), (16_000_000, [30, 70])]


class TestFallingNoise:
    @pytest.mark.parametrize(("size", "counts"), SIZES, ids=str)
    @pytest.mark.parametrize(("factor", "accepted"), [(1.0, True), (1.2, False)])
    def test_magnitudes_are_order_statistics(self, size: int, counts: list[int], factor: float, accepted: bool) -> None:
        """The i-th smallest of m uniform tail probabilities is Beta(i, m - i + 1); of 1.2 m it is not (KS)."""
        generator = Proxy(keyed_generator(1), standard_exponential=lambda draws: draws / factor)
        drawn = np.array([tails(falling(size, counts, generator)[1]) for _ in range(3 * DRAWS)])
        ranks = sorted({0, sum(counts) // 2, sum(counts) - 1})
        pvalues = [kstest(drawn[:, i], beta(i + 1, size - i).cdf).pvalue for i in ranks]
        assert bool(min(pvalues) > ALPHA) is accepted

    @pytest.mark.parametrize(("size", "counts"), SIZES[1:], ids=str)
    def test_gaps_are_independent_exponentials(self, size: int, counts: list[int]) -> None:
        """Rényi backwards: (m - i + 1) × (clock i - clock i-1) are iid (KS, rank correlations of neighbours)."""
        drawn = np.array([tails(falling(size, counts, keyed_generator(2, (i,)))[1]) for i in range(500)])
        clocks = -np.log1p(-drawn)
        gaps = np.diff(clocks, axis=1, prepend=0.0) * (size - np.arange(sum(counts)))
        assert kstest(gaps.ravel(), expon.cdf).pvalue > ALPHA
        assert spearmanr(gaps[:, 0], gaps[:, 1]).pvalue > ALPHA
        assert spearmanr(gaps[:, :-1].ravel(), gaps[:, 1:].ravel()).pvalue > ALPHA
        assert spearmanr(clocks[:, 0], clocks[:, 1]).pvalue < ALPHA

    @pytest.mark.parametrize(("size", "counts"), [(6, [2, 2]), (6, [6]), (9, [2, 2]), (12, [2, 1, 1])], ids=str)
    @pytest.mark.parametrize(
        ("kind", "accepted"), [("right", True), ("with replacement", False), ("favours few", False)]
    )
    def test_places_are_uniform_and_distinct(
        self, size: int, counts: list[int], kind: str, accepted: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Every ordered pair of the first and of the last place is as likely (chi-square)."""

        def repeated(used: Any, count: int, size: int, generator: Any) -> np.ndarray:
            return np.concatenate([used, generator.integers(0, size, count)])

        def few(used: Any, count: int, size: int, generator: Any) -> np.ndarray:
            order = np.argsort(generator.random(size) * (1 + 0.3 * (np.arange(size) > size // 2)))
            return np.concatenate([used, order[~np.isin(order, used)][:count]])

        wrong = {"with replacement": repeated, "favours few": few}
        if kind in wrong:
            monkeypatch.setattr(order_statistics, "_more_places", wrong[kind])
        generator = keyed_generator(3)
        places = np.array([falling(size, counts, generator)[0] for _ in range(4 * DRAWS)])
        pairs = np.bincount(places[:, 0] * size + places[:, -1], minlength=size * size).reshape(size, size)
        distinct = np.trace(pairs) == 0
        assert bool(distinct) is (kind != "with replacement")
        apart = pairs[~np.eye(size, dtype=bool)]
        assert bool(distinct and chisquare(apart).pvalue > ALPHA) is accepted

    @pytest.mark.parametrize(("factor", "accepted"), [(1.0, True), (0.9, False)])
    def test_signs_are_fair_and_independent(self, factor: float, accepted: bool) -> None:
        """All patterns of 6 signs are as likely; signs that are negative more often are noticed (chi-square)."""
        generator = Proxy(keyed_generator(4), random=lambda draws: factor * draws)
        signs = np.array([falling(100, [4, 2], generator)[1] > 0 for _ in range(6 * DRAWS)])
        patterns = np.bincount(signs @ 2 ** np.arange(6), minlength=64)
        assert bool(chisquare(patterns).pvalue > ALPHA) is accepted

    @pytest.mark.parametrize("counts", [[], [1], [5, 3], [30]], ids=str)
    @pytest.mark.parametrize("block", [7, 1000])
    def test_some_in_order_and_then_the_rest_is_iid_noise(
        self, counts: list[int], block: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Put in their places they are iid N(0, 1): single values, sums of squares, the largest, neighbours (KS)."""
        monkeypatch.setattr(order_statistics, "_BLOCK", block)
        generator, size = keyed_generator(5), 40
        rows = []
        for _ in range(DRAWS):
            noise = order_statistics._FallingNoise(size)
            drawn = [noise.draw(count, generator) for count in counts] + list(noise.rest(generator))
            places = np.concatenate([place for place, _ in drawn])
            np.testing.assert_array_equal(np.sort(places), np.arange(size))
            rows.append(np.concatenate([values for _, values in drawn])[np.argsort(places)])
        values = np.array(rows)
        assert kstest(values.ravel(), norm.cdf).pvalue > ALPHA
        assert kstest((values**2).sum(axis=1), chi2(size).cdf).pvalue > ALPHA
        assert kstest(values.sum(axis=1) / math.sqrt(size), norm.cdf).pvalue > ALPHA
        assert kstest(np.abs(values).max(axis=1), lambda x: (2 * norm.cdf(x) - 1) ** size).pvalue > ALPHA
        assert chisquare(np.bincount(np.abs(values).argmax(axis=1), minlength=size)).pvalue > ALPHA
        assert spearmanr(values[:, 3], values[:, 17]).pvalue > ALPHA

    def test_the_rest_without_its_ceiling_is_noticed(self) -> None:
        """Were the rest drawn without regard to what is drawn already, sums of squares would be too large (KS)."""
        generator, sums = keyed_generator(6), []
        for _ in range(DRAWS):
            noise = order_statistics._FallingNoise(40)
            first = noise.draw(10, generator)[1]
            noise.ceiling = math.inf
            sums.append((first**2).sum() + sum((values**2).sum() for _, values in noise.rest(generator)))
        assert kstest(sums, chi2(40).cdf).pvalue < ALPHA

    def test_a_draw_of_nothing_is_not_infinite(self) -> None:
        """An exponential draw of exactly 0, which has a probability of 2^-53, gives a large and finite magnitude."""
        values = falling(10, [3], Proxy(keyed_generator(0), standard_exponential=np.zeros_like))[1]
        assert np.all(np.isfinite(values))
        assert np.abs(values).max() < 40

    def test_long_sums_lose_no_digits(self) -> None:
        """A million clocks in one draw: the last one is right to the last digits, which a plain sum would lose."""
        size, count = 4_000_000, 1_000_000
        steps = keyed_generator(7).standard_exponential(count) / np.arange(size, size - count, -1)
        noise = order_statistics._FallingNoise(size)
        noise.draw(count, keyed_generator(7))
        exact = math.fsum(steps)
        assert abs(noise._sum - exact) <= 2 * np.spacing(exact)
        assert abs(np.cumsum(steps)[-1] - exact) > 2 * np.spacing(exact)


# --- against the full draw -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """Means of lines: of those that are listed, and of all others.

    Attributes
    ----------
    listed : dict
        From line to mean.
    means : array or None
        Of the lines that are not listed; None for 0.
    """

    n_lines: int
    keep: int
    listed: dict[int, float] = field(default_factory=dict)
    means: np.ndarray | None = None
    free: int = 0
    factor: float = 1.0

    @property
    def free_from(self) -> int:
        return self.n_lines - self.free

    @property
    def dense(self) -> np.ndarray:
        means = np.zeros(self.n_lines) if self.means is None else self.factor * self.means
        means[list(self.listed)] = list(self.listed.values())
        return means

    @property
    def sparse(self) -> SparseWeights:
        lines = np.array(sorted(self.listed), dtype=np.intp)
        return SparseWeights(lines, np.array([[self.listed[line]] for line in lines]).reshape(-1, 1), self.n_lines)


SCALE = 0.7


def spread(n_lines: int, size: float, seed: int = 0) -> np.ndarray:
    return size * np.random.default_rng(seed).standard_normal(n_lines)


ZEROS = {
    "nothing listed": Case(40, 4),
    "few listed, small": Case(40, 4, {3: 0.1, 4: -0.2, 30: 0.3}),
    "few listed, large": Case(40, 4, {0: 2.0, 17: -1.5, 39: 1.0}),
    "more listed than kept": Case(40, 3, dict(zip(range(5, 15), spread(10, 0.7)))),
    "one line not listed": Case(12, 3, dict(zip(range(1, 12), spread(11, 0.7)))),
    "all listed": Case(12, 3, dict(enumerate(spread(12, 0.7)))),
    "fewer not listed than kept": Case(12, 6, dict(zip(range(3, 12), spread(9, 0.3)))),
    "more kept than there is": Case(6, 9, {1: 0.5, 2: -0.5}),
    "as many kept as there are": Case(7, 6, {2: 0.3, 6: 4.0}, free=1),
    "intercept": Case(41, 4, {40: 3.0}, free=1),
    "intercept and listed": Case(42, 4, {2: 1.0, 39: -0.5, 40: 3.0, 41: 0.0}, free=2),
    "one kept": Case(30, 1, {7: 0.5}),
}
BACKGROUNDS = {
    f"spread {size}{label}": Case(60, 4, listed, spread(60, size), free=free)
    for size in (0.05, 0.7, 7.0)
    for label, listed, free in (
        ("", {}, 0),
        (", listed", {3: 0.4, 10: -1.0, 11: 0.2}, 0),
        (", intercept", {9: 0.1, 60 - 1: 2.0}, 1),
    )
}
BACKGROUNDS |= {
    "largest are listed": Case(
        60, 4, dict.fromkeys(np.argsort(-np.abs(spread(60, 1.5)))[:20].tolist(), 0.1), spread(60, 1.5)
    ),
    "factor": Case(60, 4, {3: 0.4}, spread(60, 1.0), factor=-0.6),
    "few values": Case(60, 4, {}, np.repeat([0.0, 0.5, -0.5, 1.5], 15)),
    "heavy tail": Case(60, 4, {}, spread(60, 0.2) / np.abs(spread(60, 1.0, 1))),
    "no spread": Case(60, 4, {1: 0.0}, np.full(60, 1.1)),
    "background, all kept": Case(10, 12, {1: 0.0}, spread(10, 1.0)),
}
CASES = ZEROS | BACKGROUNDS
# The same means, all of them listed in an array.
DENSE = {name: CASES[name] for name in BACKGROUNDS if "listed" not in name and name != "factor"} | {
    "nothing": Case(40, 4),
    "all kept": Case(6, 9),
    "intercept": Case(41, 4, {40: 3.0}, free=1),
}


def draw_sparse(case: Case, generator: Any, scale: float = SCALE, draws: int = DRAWS) -> np.ndarray:
    """Thresholded values, a draw in each line."""
    background = None if case.means is None else Background(case.means[:, None].copy()).times(case.factor)
    answers = [
        noisy_largest(case.sparse, background, scale, case.keep, case.free_from, generator) for _ in range(draws)
    ]
    return np.array([answer.to_dense()[:, 0] for answer in answers])


def draw_dense(case: Case, generator: Any, scale: float = SCALE, draws: int = DRAWS) -> np.ndarray:
    means = case.dense[:, None]
    answers = [dense_noisy_largest(means, scale, case.keep, case.free_from, generator) for _ in range(draws)]
    return np.array([answer.to_dense()[:, 0] for answer in answers])


def draw_in_full(case: Case, seed: int, draws: int = 4 * DRAWS) -> np.ndarray:
    noise = np.random.default_rng(seed).standard_normal((case.n_lines, draws))
    return HardThreshold(case.keep, case.free_from)(case.dense[:, None] + SCALE * noise).T


def statistics(values: np.ndarray, case: Case) -> dict[str, np.ndarray]:
    """What is compared: numbers by a KS test; places and counts, which are integers, by a chi-square test."""
    below = values[:, : case.free_from]
    magnitudes = np.abs(below)
    order = np.argsort(-magnitudes, axis=1)[:, : case.keep]
    first, last = order[:, 0], order[:, -1]
    rows = np.arange(len(values))
    unlisted = np.setdiff1d(np.arange(case.free_from), list(case.listed))
    numbers = {
        "largest": below[rows, first],
        "smallest": below[rows, last],
        "border": magnitudes[rows, last],
        "squares": (below**2).sum(axis=1),
        "sum": below.sum(axis=1),
        "product": below[rows, first] * below[rows, last],
        "ratio": magnitudes[rows, last] / magnitudes[rows, first],
        "place of the largest": first,
        "place of the smallest": last,
        "distance": np.abs(first - last),
        "not listed": (below[:, unlisted] != 0).sum(axis=1),
        "positive": (below > 0).sum(axis=1),
    }
    numbers |= {f"line {line}": values[:, line] for line in sorted(case.listed)[:2]}
    return numbers | {f"free {line}": values[:, line] for line in range(case.free_from, case.n_lines)}


def pvalue_of(one: np.ndarray, other: np.ndarray) -> float:
    """That two samples come from one law."""
    if one.dtype.kind == "f":
        return float(ks_2samp(one, other, method="asymp").pvalue)
    table = np.array([np.bincount(sample, minlength=max(one.max(), other.max()) + 1) for sample in (one, other)])
    # Cells with few draws are put together.
    order = np.argsort(-table.sum(axis=0))
    table = table[:, order]
    few = table.sum(axis=0) < 30
    table = np.column_stack([table[:, ~few], table[:, few].sum(axis=1)])
    table = table[:, table.sum(axis=0) > 0]
    return 1.0 if table.shape[1] < 2 else float(chi2_contingency(table).pvalue)


def least_pvalue(values: np.ndarray, reference: np.ndarray, case: Case) -> float:
    ours, full = statistics(values, case), statistics(reference, case)
    assert len(ours) <= 20
    return min(pvalue_of(ours[name], full[name]) for name in ours)


def both_ways(cases: dict[str, Case], few: dict[str, Case]) -> Any:
    """All cases in order; and some of them as it comes, which is in full for so few lines."""
    return pytest.mark.parametrize(
        ("name", "way"), [*((name, "in order") for name in cases), *((name, "as it comes") for name in few)]
    )


class TestLaw:
    @pytest.fixture(autouse=True)
    def costs(self, way: str, request: pytest.FixtureRequest) -> None:
        if way == "in order":
            request.getfixturevalue("in_order")

    @both_ways(CASES, ZEROS)
    def test_of_listed_means(self, name: str, way: str) -> None:
        case = CASES[name]
        values = draw_sparse(case, keyed_generator(10))
        assert np.all((values[:, : case.free_from] != 0).sum(axis=1) == min(case.keep, case.free_from))
        assert least_pvalue(values, draw_in_full(case, 11), case) > ALPHA

    @both_ways(DENSE, {"intercept": DENSE["intercept"]})
    def test_of_dense_means(self, name: str, way: str) -> None:
        case = DENSE[name]
        values = draw_dense(case, keyed_generator(12))
        assert np.all((values[:, : case.free_from] != 0).sum(axis=1) == min(case.keep, case.free_from))
        assert least_pvalue(values, draw_in_full(case, 13), case) > ALPHA


@pytest.mark.usefixtures("in_order")
class TestWrongVersionsAreRejected:
    """The comparison above notices each of these mistakes, where noise is drawn in order."""

    @pytest.mark.parametrize("name", ["few listed, small", "spread 0.7, listed"])
    def test_scale(self, name: str) -> None:
        case = CASES[name]
        assert least_pvalue(draw_sparse(case, keyed_generator(20), 1.1 * SCALE), draw_in_full(case, 21), case) < ALPHA
        assert least_pvalue(draw_dense(case, keyed_generator(20), 1.1 * SCALE), draw_in_full(case, 21), case) < ALPHA

    @pytest.mark.parametrize("name", ["nothing listed", "few listed, small", "spread 0.05", "no spread"])
    def test_more_lines_than_there_are(self, name: str) -> None:
        """Order statistics of 20 per cent more."""
        generator = Proxy(keyed_generator(22), standard_exponential=lambda draws: draws / 1.2)
        assert least_pvalue(draw_sparse(CASES[name], generator), draw_in_full(CASES[name], 23), CASES[name]) < ALPHA

    @pytest.mark.parametrize("name", ["nothing listed", "few listed, large", "spread 0.05", "spread 0.7, intercept"])
    def test_one_sign_only(self, name: str) -> None:
        generator = Proxy(keyed_generator(24), random=np.ones_like)
        assert least_pvalue(draw_sparse(CASES[name], generator), draw_in_full(CASES[name], 25), CASES[name]) < ALPHA

    @pytest.mark.parametrize("name", ["nothing listed", "few listed, small", "spread 0.7"])
    def test_places_that_are_not_uniform(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        right = order_statistics._more_places

        def wrong(used: Any, count: int, size: int, generator: Any) -> np.ndarray:
            more = right(used, count, size, generator)
            return np.concatenate([used, np.sort(more[len(used) :])])

        monkeypatch.setattr(order_statistics, "_more_places", wrong)
        values = draw_sparse(CASES[name], keyed_generator(26))
        assert least_pvalue(values, draw_in_full(CASES[name], 27), CASES[name]) < ALPHA

    @pytest.mark.parametrize("name", ["spread 0.7", "spread 0.7, listed", "no spread"])
    @pytest.mark.parametrize("draw", [draw_sparse, draw_dense])
    def test_a_bound_that_is_too_small(self, name: str, draw: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """Lines whose means are larger than believed are given up too early. Few are drawn at a time, so it shows."""
        right = order_statistics._Part.__post_init__

        def wrong(part: Any) -> None:
            right(part)
            part.bound = part.bound if part.bound == math.inf else 0.0

        monkeypatch.setattr(order_statistics._Part, "__post_init__", wrong)
        monkeypatch.setattr(order_statistics._Part, "_count", lambda *_: 1)
        assert least_pvalue(draw(CASES[name], keyed_generator(28)), draw_in_full(CASES[name], 29), CASES[name]) < ALPHA


@pytest.mark.usefixtures("in_order")
class TestEachLineIsDrawnOnce:
    CASE = BACKGROUNDS["spread 0.7, listed"]

    def drawn(self) -> np.ndarray:
        """All lines, each as often as it is drawn over the background: nothing is too small to be kept."""
        case = self.CASE
        kept = order_statistics._Kept(10 * case.n_lines)
        Background(case.means[:, None]).draw(0, case.sparse.lines, SCALE, kept, keyed_generator(30))  # type: ignore[index]
        return np.bincount(kept.lines, minlength=case.n_lines)

    def test_and_listed_lines_are_not(self) -> None:
        listed = np.isin(np.arange(self.CASE.n_lines), self.CASE.sparse.lines)
        np.testing.assert_array_equal(self.drawn(), ~listed)

    def test_two_parts_that_have_a_line_in_common_are_noticed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        right = order_statistics._OverMeans._part
        monkeypatch.setattr(order_statistics._OverMeans, "_part", lambda over, level, _: right(over, level, math.inf))
        assert self.drawn().max() > 1


class TestOneAtATime:
    """However few are drawn at a time, and whatever is guessed of the border, the law is the same."""

    @pytest.mark.parametrize("count", [1, 1000])
    @pytest.mark.parametrize("guess", [-math.inf, 1.5, 50.0])
    @pytest.mark.parametrize("name", ["spread 0.7, intercept", "largest are listed", "factor"])
    @pytest.mark.usefixtures("in_order")
    def test_guesses_change_the_cost_alone(
        self, count: int, guess: float, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(order_statistics._Part, "_count", lambda *_: count)
        monkeypatch.setattr(order_statistics._Sample, "likely_border", lambda *_: guess)
        case = BACKGROUNDS[name]
        values = draw_sparse(case, keyed_generator(40), draws=DRAWS // 3)
        assert least_pvalue(values, draw_in_full(case, 41), case) > ALPHA


def test_columns_are_drawn_apart() -> None:
    """Several columns: each has its own law, and neighbours are independent (KS, rank correlation)."""
    case = ZEROS["few listed, large"]
    lines, draws = case.sparse.lines, 2 * DRAWS
    answer = noisy_largest(
        SparseWeights(lines, np.tile(case.sparse.values, draws), case.n_lines),
        None,
        SCALE,
        case.keep,
        case.n_lines,
        keyed_generator(50),
    )
    values = answer.to_dense().T
    assert least_pvalue(values, draw_in_full(case, 51), case) > ALPHA
    squares = (values**2).sum(axis=1)
    assert spearmanr(squares[::2], squares[1::2]).pvalue > ALPHA
    assert spearmanr(squares, np.abs(values).max(axis=1)).pvalue < ALPHA


@pytest.mark.usefixtures("in_order")
def test_columns_of_different_backgrounds() -> None:
    """Each column has its own means, lists and levels."""
    means = np.column_stack([spread(60, 0.7), spread(60, 7.0), np.zeros(60)])
    listed = {3: (0.4, 0.1, 0.0), 59: (3.0, -3.0, 0.5)}
    exact = SparseWeights(np.array(list(listed)), np.array(list(listed.values())), 60)
    background = Background(means)
    generator = keyed_generator(52)
    for draw in ("sparse", "dense"):
        full = means.copy()
        full[exact.lines] = exact.values
        values = np.array(
            [
                (
                    noisy_largest(exact, background, SCALE, 4, 59, generator)
                    if draw == "sparse"
                    else dense_noisy_largest(full, SCALE, 4, 59, generator)
                ).to_dense()
                for _ in range(DRAWS)
            ]
        )
        for column in range(3):
            own = {line: mean[column] for line, mean in listed.items()}
            case = Case(60, 4, own, means[:, column], free=1)
            assert least_pvalue(values[:, :, column], draw_in_full(case, 53), case) > ALPHA


@pytest.mark.parametrize(("factor", "accepted"), [(1.0, True), (1.1, False)])
@pytest.mark.parametrize("dense", [True, False])
def test_on_the_grid_it_is_the_mechanism(factor: float, accepted: bool, dense: bool) -> None:
    """Rounded to the mechanism's grid, answers have the law of its releases: values, and the support (chi-square)."""
    case = ZEROS["intercept and listed"]
    grid, then = rounding_grid(SCALE), HardThreshold(case.keep, case.free_from)
    mechanism = Gaussian(NoisePerSensitivity(SCALE / 3.0))
    released = mechanism.release(
        np.tile(case.dense[:, None], 2 * DRAWS), Sensitivity(l2=3.0), keyed_generator(60), then
    ).T
    ours = (draw_dense if dense else draw_sparse)(case, keyed_generator(61), factor * SCALE)
    cells = [np.round(np.abs(values) / grid).astype(int) for values in (ours, released)]
    pvalues = [pvalue_of(*(each[:, line] for each in cells)) for line in (2, 39, 40, 41)]
    pvalues += [pvalue_of(*(each[:, : case.free_from].sum(axis=1) for each in cells))]
    pvalues += [pvalue_of(*(each[:, : case.free_from].argmax(axis=1) for each in cells))]
    assert bool(min(pvalues) > ALPHA) is accepted


# --- many lines ------------------------------------------------------------------------------------------------------

MANY = 16_000_000


def listed_among_many(listed: int, size: float) -> SparseWeights:
    lines = np.unique(np.random.default_rng(0).integers(0, MANY - 1, listed))
    values = size * np.random.default_rng(1).standard_normal((len(lines) + 1, 1))
    return SparseWeights(np.append(lines, MANY - 1), values, MANY)


class Counting(Proxy):
    """Counts the numbers that are drawn."""

    def __init__(self, generator: np.random.Generator) -> None:
        super().__init__(generator)
        self.drawn = 0

    def __getattr__(self, name: str) -> Any:
        draw = super().__getattr__(name)

        def counted(*arguments: Any) -> Any:
            drawn = draw(*arguments)
            self.drawn += np.size(drawn)
            return drawn

        return counted


def test_sixteen_million_lines_need_little() -> None:
    """What is listed and kept is drawn and held, and nothing of the length of a column: 128 MB."""
    exact = listed_among_many(8000, 0.3)
    generator = Counting(keyed_generator(70))
    noisy_largest(exact, None, 1.0, 100, MANY - 1, generator)  # type: ignore[arg-type]
    assert generator.drawn < len(exact.lines) + 1000
    tracemalloc.start()
    answer = noisy_largest(exact, None, 1.0, 100, MANY - 1, keyed_generator(71))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000
    assert len(answer.lines) == 101


@pytest.mark.parametrize(("factor", "accepted"), [(1.0, True), (1.01, False)])
def test_law_of_the_largest_of_many(factor: float, accepted: bool) -> None:
    """The i-th largest magnitude of 16 million, i = 1, 50 and 100, and where the largest one is (KS)."""
    nothing = SparseWeights.zeros(MANY, 1)
    generator, drawn, places = keyed_generator(72), [], []
    for _ in range(1000):
        answer = noisy_largest(nothing, None, factor, 100, MANY, generator)
        magnitudes = np.abs(answer.values[:, 0])
        drawn.append(np.sort(tails(magnitudes)))
        places.append(answer.lines[np.argmax(magnitudes)])
    pvalues = [kstest(np.array(drawn)[:, i], beta(i + 1, MANY - i).cdf).pvalue for i in (0, 49, 99)]
    assert bool(min(pvalues) > ALPHA) is accepted
    assert kstest(np.array(places) / MANY, "uniform").pvalue > ALPHA


@pytest.mark.parametrize("size", [0.1, 1.0, 5.0])
def test_law_of_dense_means_of_many_lines(size: float) -> None:
    """40,000 lines, as it comes: listed, in order, and against the full draw (KS, chi-square)."""
    means = spread(40_000, size)
    generator = keyed_generator(73)
    case = Case(40_000, 20, {}, means)
    background = Background(means[:, None])
    reference = np.random.default_rng(74)
    full, ours, over = [], [], []
    for _ in range(400):
        noisy = means + reference.standard_normal(len(means))
        top = np.argpartition(np.abs(noisy), len(noisy) - 20)[len(noisy) - 20 :]
        full.append(noisy[top])
        ours.append(dense_noisy_largest(means[:, None], 1.0, 20, 40_000, generator).values[:, 0])
        over.append(noisy_largest(SparseWeights.zeros(40_000, 1), background, 1.0, 20, 40_000, generator).values[:, 0])
    small = Case(20, 20)
    for answers in (ours, over):
        values, expected = (np.array([sorted(row) for row in rows]) for rows in (answers, full))
        for name in ("largest", "border", "squares", "sum"):
            pvalue = pvalue_of(statistics(values, small)[name], statistics(expected, small)[name])
            assert pvalue > ALPHA, name
    assert case.keep == 20


@pytest.mark.parametrize("size", [0.1, 1.0, 10.0])
def test_dense_means_of_many_lines_need_few_draws(size: float) -> None:
    means = spread(300_000, size)
    generator = Counting(keyed_generator(75))
    dense_noisy_largest(means[:, None], 1.0, 100, len(means), generator)  # type: ignore[arg-type]
    assert generator.drawn < len(means) / 8
    background = Background(means[:, None])
    generator = Counting(keyed_generator(76))
    noisy_largest(SparseWeights.zeros(len(means), 1), background, 1.0, 100, len(means), generator)  # type: ignore[arg-type]
    assert generator.drawn < len(means) / 16


def test_means_that_fool_the_sample_cost_no_more_than_a_full_draw() -> None:
    """The sampled lines are all zero and the others large: what is guessed is wrong, and the answer is not."""
    means = np.random.default_rng(0).uniform(50.0, 60.0, 100_000)
    means[:: math.isqrt(len(means))] = 0.0
    generator = Counting(keyed_generator(77))
    answer = dense_noisy_largest(means[:, None], 1.0, 100, len(means), generator)  # type: ignore[arg-type]
    assert generator.drawn < 2 * len(means)
    assert np.abs(answer.values).min() > 59.0


def test_the_compiled_loop_finds_the_same_lines() -> None:
    """Whether numba is loaded changes nothing; also where there are more lines than there was room for."""
    from tulle import kernels

    column = spread(20_000, 1.0)
    for cut in (0.0, 1.0, 3.0, 10.0):
        expected = np.flatnonzero(np.abs(column) > cut)
        np.testing.assert_array_equal(order_statistics._lines_above(column, cut, 10), expected)
        room = np.zeros(3, dtype=np.intp)
        assert kernels.lines_above(column, cut, room) == len(expected)
        np.testing.assert_array_equal(room[: len(expected)], expected[:3])


# --- structure and edges ---------------------------------------------------------------------------------------------


@st.composite
def problems(draw: st.DrawFn) -> tuple[SparseWeights, np.ndarray | None, int, int]:
    """Listed lines, a background or none, how many are kept, and from where all are."""
    n_lines, outputs = draw(st.integers(1, 30)), draw(st.integers(1, 3))
    free_from = draw(st.integers(max(0, n_lines - 2), n_lines))
    lines = sorted(draw(st.sets(st.integers(0, n_lines - 1))) | set(range(free_from, n_lines)))
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    sizes = draw(st.sampled_from([0.0, 0.1, 1.0, 100.0]))
    values = sizes * generator.standard_normal((len(lines), outputs))
    means = draw(st.sampled_from([None, 0.0, 0.1, 1.0, 100.0]))
    background = None if means is None else means * generator.standard_normal((n_lines, outputs))
    exact = SparseWeights(np.array(lines, dtype=np.intp), values, n_lines)
    return exact, background, draw(st.integers(0, n_lines + 2)), free_from


def with_costs(cheap: bool) -> pytest.MonkeyPatch:
    patch = pytest.MonkeyPatch()
    for name, value in CHEAP_ORDER.items() if cheap else ():
        patch.setattr(order_statistics, name, value)
    return patch


def dense_of(exact: SparseWeights, means: np.ndarray | None) -> np.ndarray:
    dense = np.zeros(exact.shape) if means is None else means.copy()
    dense[exact.lines] = exact.values
    return dense


@given(problems(), st.booleans(), st.integers(0, 100))
def test_the_answer_holds_what_it_should(problem: Any, cheap: bool, seed: int) -> None:
    """Lines that strictly increase, all free ones, and of each column as many others as are kept, near their means."""
    exact, means, keep, free_from = problem
    background = None if means is None else Background(means)
    patch = with_costs(cheap)
    try:
        sparse = noisy_largest(exact, background, 1e-3, keep, free_from, keyed_generator(seed))
        dense = dense_noisy_largest(dense_of(exact, means), 1e-3, keep, free_from, keyed_generator(seed))
    finally:
        patch.undo()
    for answer in (sparse, dense):
        assert answer.shape == exact.shape
        assert np.all(np.diff(answer.lines) > 0)
        assert np.all(answer.lines[len(answer.lines) - (exact.n_lines - free_from) :] >= free_from)
        values = answer.to_dense()
        assert np.all((values[:free_from] != 0).sum(axis=0) == min(keep, free_from))
        assert np.all(values[free_from:] != 0)
        near = np.abs(values - dense_of(exact, means)) < 0.01
        assert np.all(near[values != 0])


@given(problems())
def test_without_noise_it_is_the_threshold(problem: Any) -> None:
    exact, means, keep, free_from = problem
    full = dense_of(exact, means)
    kept = HardThreshold(keep, free_from)(full)
    background = None if means is None else Background(means)
    sparse = noisy_largest(exact, background, 0.0, keep, free_from, keyed_generator(0))
    dense = dense_noisy_largest(full, 0.0, keep, free_from, keyed_generator(0))
    # Where magnitudes are equal (both are 0), any of them may be kept.
    np.testing.assert_array_equal(np.asarray(sparse), kept)
    np.testing.assert_array_equal(np.asarray(dense), kept)


def test_few_lines_are_the_full_draw_bit_by_bit() -> None:
    """Where all noise is drawn, it is the noise that the mechanism would have drawn."""
    means = spread(500, 1.0)[:, None]
    noise = keyed_generator(80).standard_normal(500)
    expected = HardThreshold(7, 499)(means + 0.3 * np.append(noise[1:], noise[0])[:, None])
    np.testing.assert_array_equal(np.asarray(dense_noisy_largest(means, 0.3, 7, 499, keyed_generator(80))), expected)


def test_the_same_generator_gives_the_same_answer() -> None:
    exact = listed_among_many(100, 1.0)
    one, two = (noisy_largest(exact, None, 1.0, 10, MANY - 1, keyed_generator(81)) for _ in range(2))
    np.testing.assert_array_equal(one.lines, two.lines)
    np.testing.assert_array_equal(one.values, two.values)


def test_free_lines_have_no_part_in_the_threshold() -> None:
    """A huge intercept does not take the place of a feature, nor does it set the border."""
    exact = SparseWeights(np.array([0, 999, 1000]), np.array([[5.0], [1e9], [-1e9]]), 1001)
    for seed in range(20):
        answer = noisy_largest(exact, None, 1.0, 3, 999, keyed_generator(seed))
        assert len(answer.lines) == 5
        np.testing.assert_array_equal(answer.lines[-2:], [999, 1000])
        np.testing.assert_allclose(answer.values[-2:, 0], [1e9, -1e9], atol=10.0)


def test_nothing_kept_and_nothing_listed() -> None:
    for outputs in (1, 2):
        answer = noisy_largest(SparseWeights.zeros(9, outputs), None, 1.0, 0, 9, keyed_generator(0))
        assert answer.shape == (9, outputs)
        assert len(answer.lines) == 0
        only_free = dense_noisy_largest(np.ones((9, outputs)), 1.0, 3, 0, keyed_generator(0))
        np.testing.assert_array_equal(only_free.lines, np.arange(9))


def test_a_background_times_a_factor_shares_its_lists() -> None:
    background = Background(spread(1000, 1.0)[:, None])
    twice = background.times(2.0).times(-1.5)
    assert twice.factor == -3.0
    assert background.factor == 1.0
    assert twice.means is background.means
    assert twice._levels is background._levels


def test_a_background_times_nothing_is_none() -> None:
    exact = SparseWeights(np.array([2]), np.array([[1.0]]), 50)
    answers = [
        noisy_largest(exact, background, 1.0, 5, 50, keyed_generator(3))
        for background in (None, Background(spread(50, 9.0)[:, None]).times(0.0))
    ]
    np.testing.assert_array_equal(np.asarray(answers[0]), np.asarray(answers[1]))


@pytest.mark.parametrize("scale", [-1.0, math.nan])
def test_a_scale_that_is_none_raises(scale: float) -> None:
    with pytest.raises(ValueError, match="at least 0"):
        noisy_largest(SparseWeights.zeros(9, 1), None, scale, 2, 9, keyed_generator(0))
    with pytest.raises(ValueError, match="at least 0"):
        dense_noisy_largest(np.zeros((9, 1)), scale, 2, 9, keyed_generator(0))


def test_free_lines_that_are_not_listed_raise() -> None:
    exact = SparseWeights(np.array([2, 8]), np.ones((2, 1)), 9)
    with pytest.raises(ValueError, match="all lines from 7 on"):
        noisy_largest(exact, None, 1.0, 2, 7, keyed_generator(0))


def test_a_background_of_another_shape_raises() -> None:
    with pytest.raises(ValueError, match="does not go with"):
        noisy_largest(SparseWeights.zeros(9, 1), Background(np.zeros((8, 1))), 1.0, 2, 9, keyed_generator(0))


def test_a_mechanism_leaves_noise_undrawn_where_every_line_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Means far above the noise decide; of 20,000 lines few normals are drawn."""
    n_lines, keep = 20_000, 10
    means = np.zeros((n_lines + 1, 1))
    large = np.arange(7, n_lines, n_lines // keep)[:keep]
    means[large, 0], means[-1, 0] = 1e3, 5.0
    listed = SparseWeights(np.arange(n_lines + 1), means, n_lines + 1)
    mechanism = SampledGaussian(NoisePerSensitivity(1.0))
    asked: list[int] = []
    draw = tulle.mechanisms.dense_noisy_largest
    monkeypatch.setattr(
        tulle.mechanisms, "dense_noisy_largest", lambda *given: asked.append(len(given[0])) or draw(*given)
    )
    answer = mechanism.release(
        SparseAnswer(listed), Sensitivity(l2=1.0), np.random.default_rng(0), HardThreshold(keep, n_lines)
    )
    assert asked == [n_lines + 1]
    assert answer.lines.tolist() == [*large, n_lines]
    assert np.abs(answer.values[:-1, 0] - 1e3).max() < 6
