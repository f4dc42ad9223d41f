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
from scipy.stats import beta, chi2, chi2_contingency, chisquare, ks_2samp, kstest, norm, spearmanr

from tulle.fast import lazy_noise, thresholded_noise
from tulle.fast.lazy_noise import Background
from tulle.fast.rare_events import draw_events
from tulle.fast.sparse_weights import SparseWeights
from tulle.fast.thresholded_noise import SparseAnswer
from tulle.methods.thresholds import HardThreshold
from tulle.trusted.events import NoisePerSensitivity
from tulle.trusted.exact_noise import NORMAL, Draws, round_noise
from tulle.trusted.mechanisms import Gaussian, SampledGaussian, Sensitivity
from tulle.trusted.randomness import keyed_generator

ALPHA = 1e-7
DRAWS = 800

# Fine, so that values look like real numbers; what a coarse one does to ties has a test of its own.
GRID = 2.0**-24


def noisy_largest(exact: SparseWeights, background: Background | None, scale: float, *rest: Any) -> SparseWeights:
    """On the fine grid, in numbers and not in units."""
    found = lazy_noise.noisy_largest(exact, background, scale, GRID, *rest)
    return SparseWeights(found.lines, GRID * found.values, found.n_lines)


def dense_noisy_largest(exact: np.ndarray, scale: float, *rest: Any) -> SparseWeights:
    found = lazy_noise.dense_noisy_largest(exact, scale, GRID, *rest)
    return SparseWeights(found.lines, GRID * found.values, found.n_lines)


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
        monkeypatch.setattr(lazy_noise, name, value)


class Proxy:
    """A generator of which some kinds of draws are changed."""

    def __init__(self, generator: np.random.Generator, **changed: Callable[[Any], Any]) -> None:
        self._generator = generator
        self._changed = changed

    def __getattr__(self, name: str) -> Any:
        draw = getattr(self._generator, name)
        change = self._changed.get(name)
        return draw if change is None else lambda *given, **named: change(draw(*given, **named))


# --- noise in falling levels -----------------------------------------------------------------------------------------

STEPS = 2.0**24


def tails(noise: np.ndarray) -> np.ndarray:
    return 2 * norm.sf(np.abs(noise))


class TestFallingNoise:
    @pytest.mark.parametrize("counts", [[], [1], [5, 3], [30], [1, 1, 1, 1, 1]], ids=str)
    @pytest.mark.parametrize("block", [7, 1000])
    def test_some_levels_and_then_the_rest_is_iid_noise(
        self, counts: list[int], block: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Put in their places they are iid N(0, 1): single values, sums of squares, the largest, neighbours (KS)."""
        monkeypatch.setattr(lazy_noise, "_BLOCK", block)
        values = self.vectors(keyed_generator(5), counts)
        assert self.least_pvalue(values) > ALPHA

    def vectors(self, generator: Any, counts: list[int], size: int = 40, wrong: int = 0) -> np.ndarray:
        rows = []
        for _ in range(DRAWS):
            noise, drawn = lazy_noise._FallingNoise(size, STEPS), []
            for count in counts:
                if noise.drawn < size:
                    drawn.append(noise.draw(count, generator))
            if noise.drawn < size:
                noise._level = None if noise._level is None else noise._level + wrong
                drawn += list(noise.rest(generator))
            places = np.concatenate([place for place, _ in drawn])
            np.testing.assert_array_equal(np.sort(places), np.arange(size))
            rows.append(np.concatenate([values for _, values in drawn])[np.argsort(places)] / STEPS)
        return np.array(rows)

    def least_pvalue(self, values: np.ndarray) -> float:
        size = values.shape[1]
        return float(
            min(
                kstest(values.ravel(), norm.cdf).pvalue,
                kstest((values**2).sum(axis=1), chi2(size).cdf).pvalue,
                kstest(values.sum(axis=1) / math.sqrt(size), norm.cdf).pvalue,
                kstest(np.abs(values).max(axis=1), lambda x: (2 * norm.cdf(x) - 1) ** size).pvalue,
                chisquare(np.bincount(np.abs(values).argmax(axis=1), minlength=size)).pvalue,
                spearmanr(values[:, 3], values[:, 17]).pvalue,
                spearmanr(np.abs(values[:, 3]), np.abs(values[:, 17])).pvalue,
            )
        )

    @pytest.mark.parametrize("wrong", [1, 3])
    def test_a_rest_of_another_level_is_noticed(self, wrong: int) -> None:
        """Were the rest drawn as if fewer had been drawn already, large noise would be too common."""
        assert self.least_pvalue(self.vectors(keyed_generator(6), [4], wrong=wrong)) < ALPHA

    @pytest.mark.parametrize("size", [1, 2, 40, 100_000])
    @pytest.mark.parametrize("steps", [1.0, 3.7, STEPS])
    def test_the_ceiling_holds_for_all_that_is_not_drawn(self, size: int, steps: float) -> None:
        for seed in range(10):
            generator = keyed_generator(seed)
            noise = lazy_noise._FallingNoise(size, steps)
            assert noise.ceiling == math.inf
            for count in (1, 3, 10):
                if noise.drawn == size:
                    break
                before = noise.ceiling
                places, values = noise.draw(count, generator)
                assert len(places) >= min(count, size - noise.drawn)
                assert np.all(np.abs(values) <= before)
                assert noise.ceiling < before or steps < 10
            ceiling = noise.ceiling
            for _, values in noise.rest(generator) if noise.drawn < size else ():
                assert np.all(np.abs(values) <= ceiling)
            # And it is no higher than it need be: half of the numbers of the next level are within a fifth of it.
            assert ceiling < steps * 6 + 3

    def test_levels_have_the_zeros_that_they_are_named_for(self) -> None:
        """Level k has numbers from 2^-(k+2) to 2^-(k+1): magnitudes between those of its ends."""
        noise, generator = lazy_noise._FallingNoise(100_000, STEPS), keyed_generator(7)
        noise.draw(1000, generator)
        level = noise._level
        assert level is not None
        for k in range(level - 1, 0, -1):
            values = np.abs(noise._next_level(k, 2 ** (k + 1) - 1, is_exact=True, generator=generator)[1]) / STEPS
            high, low = norm.isf(2.0 ** -(k + 2)), norm.isf(2.0 ** -(k + 1))
            assert np.all((low - 1e-6 <= values) & (values <= high + 1e-6))
            uniform = (norm.sf(values) - norm.sf(high)) / (norm.sf(low) - norm.sf(high))
            assert kstest(uniform, "uniform").pvalue > ALPHA

    def test_a_number_of_zeros_alone_is_finite_noise(self) -> None:
        generator = Proxy(keyed_generator(0), integers=lambda words: words * np.uint64(0))
        values = round_noise(NORMAL, Draws(np.zeros(3, dtype=np.uint64), generator), STEPS)  # type: ignore[arg-type]
        assert np.all(np.abs(values) < 40 * STEPS)


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
# Those that are also drawn in full, which is the same code for all of them.
FEW = {name: ZEROS[name] for name in ("few listed, small", "all listed", "intercept and listed", "one kept")}
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

    @both_ways(CASES, FEW)
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


class OneSided(Draws):
    """Draws whose side is always the same."""

    def __init__(self, words: np.ndarray, generator: np.random.Generator) -> None:
        super().__init__(words & ~np.uint64(1), generator)


@pytest.mark.usefixtures("in_order")
class TestWrongVersionsAreRejected:
    """The comparison above notices each of these mistakes, where noise is drawn in order."""

    @pytest.mark.parametrize("name", ["few listed, small", "spread 0.7, listed"])
    def test_scale(self, name: str) -> None:
        case = CASES[name]
        assert least_pvalue(draw_sparse(case, keyed_generator(20), 1.1 * SCALE), draw_in_full(case, 21), case) < ALPHA
        assert least_pvalue(draw_dense(case, keyed_generator(20), 1.1 * SCALE), draw_in_full(case, 21), case) < ALPHA

    @pytest.mark.parametrize("name", ["nothing listed", "few listed, small", "spread 0.05", "no spread"])
    def test_levels_of_too_few_lines(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """One in 3 taken for one in 4, one in 7 for one in 8, and so on."""
        monkeypatch.setattr(
            lazy_noise, "draw_events", lambda size, one_in, g: draw_events(size, one_in + (one_in > 1), g)
        )
        values = draw_sparse(CASES[name], keyed_generator(22), draws=3 * DRAWS)
        assert least_pvalue(values, draw_in_full(CASES[name], 23), CASES[name]) < ALPHA

    @pytest.mark.parametrize("name", ["nothing listed", "few listed, large", "spread 0.05", "spread 0.7, intercept"])
    def test_one_sign_only(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(lazy_noise, "Draws", OneSided)
        values = draw_sparse(CASES[name], keyed_generator(24))
        assert least_pvalue(values, draw_in_full(CASES[name], 25), CASES[name]) < ALPHA

    @pytest.mark.parametrize("name", ["nothing listed", "few listed, small", "spread 0.7"])
    def test_places_that_are_not_uniform(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(
            lazy_noise, "draw_events", lambda size, one_in, g: np.arange(len(draw_events(size, one_in, g)))
        )
        values = draw_sparse(CASES[name], keyed_generator(26))
        assert least_pvalue(values, draw_in_full(CASES[name], 27), CASES[name]) < ALPHA

    @pytest.mark.parametrize("name", ["spread 0.7", "spread 0.7, listed", "no spread"])
    @pytest.mark.parametrize("draw", [draw_sparse, draw_dense])
    def test_a_bound_that_is_too_small(self, name: str, draw: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """Lines whose means are larger than believed are given up too early. Few are drawn at a time, so it shows."""
        right = lazy_noise._Part.__post_init__

        def wrong(part: Any) -> None:
            right(part)
            part.bound = part.bound if part.bound == math.inf else 0.0

        monkeypatch.setattr(lazy_noise._Part, "__post_init__", wrong)
        monkeypatch.setattr(lazy_noise._Part, "_count", lambda *_: 1)
        assert least_pvalue(draw(CASES[name], keyed_generator(28)), draw_in_full(CASES[name], 29), CASES[name]) < ALPHA


@pytest.mark.usefixtures("in_order")
class TestEachLineIsDrawnOnce:
    CASE = BACKGROUNDS["spread 0.7, listed"]

    def drawn(self) -> np.ndarray:
        """All lines, each as often as it is drawn over the background: nothing is too small to be kept."""
        case = self.CASE
        kept = lazy_noise._Kept(10 * case.n_lines)
        Background(case.means[:, None]).draw(0, case.sparse.lines, SCALE / GRID, GRID, kept, keyed_generator(30))  # type: ignore[index]
        return np.bincount(kept.lines, minlength=case.n_lines)

    def test_and_listed_lines_are_not(self) -> None:
        listed = np.isin(np.arange(self.CASE.n_lines), self.CASE.sparse.lines)
        np.testing.assert_array_equal(self.drawn(), ~listed)

    def test_two_parts_that_have_a_line_in_common_are_noticed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        right = lazy_noise._OverMeans._part
        monkeypatch.setattr(lazy_noise._OverMeans, "_part", lambda over, level, _: right(over, level, math.inf))
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
        monkeypatch.setattr(lazy_noise._Part, "_count", lambda *_: count)
        monkeypatch.setattr(lazy_noise._Sample, "likely_border", lambda *_: guess / GRID)
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
                for _ in range(DRAWS // 2)
            ]
        )
        for column in range(3):
            own = {line: mean[column] for line, mean in listed.items()}
            case = Case(60, 4, own, means[:, column], free=1)
            assert least_pvalue(values[:, :, column], draw_in_full(case, 53), case) > ALPHA


@pytest.mark.parametrize(("factor", "accepted"), [(1.0, True), (1.5, False)])
@pytest.mark.parametrize("dense", [True, False])
def test_it_is_the_mechanism(factor: float, accepted: bool, dense: bool) -> None:
    """Answers have the law of the mechanism's releases: values (KS), and the support (chi-square)."""
    case = ZEROS["intercept and listed"]
    mechanism, then = Gaussian(NoisePerSensitivity(SCALE / 3.0)), HardThreshold(case.keep, case.free_from)
    released = mechanism.release(
        np.tile(case.dense[:, None], 2 * DRAWS), Sensitivity(l2=3.0), keyed_generator(60), then
    ).T
    ours = (draw_dense if dense else draw_sparse)(case, keyed_generator(61), factor * SCALE)
    pvalues = [pvalue_of(*(each[:, line] for each in (ours, released))) for line in (2, 39, 40, 41)]
    pvalues += [pvalue_of(*(np.abs(each[:, : case.free_from]).argmax(axis=1) for each in (ours, released)))]
    assert bool(min(pvalues) > ALPHA) is accepted


@pytest.mark.parametrize("way", ["in order", "as it comes"])
@pytest.mark.parametrize("name", ["few listed, small", "spread 0.7, listed", "intercept"])
def test_ties_go_to_the_first_lines(name: str, way: str, request: pytest.FixtureRequest) -> None:
    """On a grid as coarse as the noise nearly all draws have ties; where they are decided is told by position alone."""
    if way == "in order":
        request.getfixturevalue("in_order")
    case, grid = CASES[name], SCALE
    background = None if case.means is None else Background(case.means[:, None].copy())
    generator = keyed_generator(62)
    answers = [
        lazy_noise.noisy_largest(case.sparse, background, SCALE, grid, case.keep, case.free_from, generator)
        for _ in range(2 * DRAWS)
    ]
    ours = np.array([np.isin(np.arange(case.free_from), answer.lines) for answer in answers])
    noise = np.random.default_rng(63).standard_normal((8 * DRAWS, case.n_lines))
    noisy = np.abs(np.rint(case.dense / grid) + np.rint(noise))[:, : case.free_from]
    order = np.argsort(-noisy, axis=1, kind="stable")[:, : case.keep]
    full = np.zeros(noisy.shape, dtype=bool)
    np.put_along_axis(full, order, True, axis=1)
    for line in range(0, case.free_from, 4):
        assert pvalue_of(ours[:, line].astype(int), full[:, line].astype(int)) > ALPHA
    assert pvalue_of(ours.argmax(axis=1), full.argmax(axis=1)) > ALPHA


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

        def counted(*given: Any, **named: Any) -> Any:
            drawn = draw(*given, **named)
            self.drawn += np.size(drawn)
            return drawn

        return counted


def test_sixteen_million_lines_need_little() -> None:
    """What is listed and kept is drawn and held, and nothing of the length of a column: 128 MB."""
    exact = listed_among_many(8000, 0.3)
    generator = Counting(keyed_generator(70))
    noisy_largest(exact, None, 1.0, 100, MANY - 1, generator)  # type: ignore[arg-type]
    assert generator.drawn < len(exact.lines) + 2000
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
    from tulle.fast import kernels

    column = spread(20_000, 1.0)
    for cut in (0.0, 1.0, 3.0, 10.0):
        expected = np.flatnonzero(np.abs(column) > cut)
        np.testing.assert_array_equal(lazy_noise._lines_above(column, cut, 10), expected)
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
        patch.setattr(lazy_noise, name, value)
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


def test_few_lines_are_the_full_draw_bit_by_bit() -> None:
    """Where all noise is drawn, it is the noise that the mechanism would have drawn."""
    means, generator = spread(500, 1.0)[:, None], keyed_generator(80)
    free, others = (round_noise(NORMAL, Draws.fresh(size, generator), 0.3 / GRID) for size in (1, 499))
    units = np.rint(means / GRID) + np.append(others, free)[:, None]
    expected = GRID * HardThreshold(7, 499)(units)
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
    many = SparseWeights(np.array([0, 1, 2, 3, 999, 1000]), np.array([[90.0, 80.0, 70.0, 60.0, 1e9, -1e9]]).T, 1001)
    for seed in range(5):
        np.testing.assert_array_equal(
            noisy_largest(many, None, 1.0, 3, 999, keyed_generator(seed)).lines, [0, 1, 2, 999, 1000]
        )


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


@pytest.mark.parametrize("cheap", [False, True])
def test_a_background_times_nothing_is_none(cheap: bool) -> None:
    exact = SparseWeights(np.array([2]), np.array([[1.0]]), 50)
    patch = with_costs(cheap)
    try:
        answer = noisy_largest(exact, Background(spread(50, 9.0)[:, None]).times(0.0), 1e-3, 5, 50, keyed_generator(3))
    finally:
        patch.undo()
    assert np.abs(np.asarray(answer)[np.arange(50) != 2]).max() < 0.01


@pytest.mark.parametrize("dense", [False, True])
def test_means_beyond_all_units_change_nothing_but_the_cost(dense: bool) -> None:
    """A grid so fine that means overflow in its units: no error and no number that is none."""
    means = np.array([1e200, -1e150, 0.0, 3.0] * 10)[:, None]
    with np.errstate(all="ignore"):
        if dense:
            answer = lazy_noise.dense_noisy_largest(means, 1e-270, 2.0**-900, 3, 40, keyed_generator(0))
        else:
            nothing = SparseWeights.zeros(40, 1)
            answer = lazy_noise.noisy_largest(nothing, Background(means), 1e-270, 2.0**-900, 3, 40, keyed_generator(0))
    np.testing.assert_array_equal(answer.lines, [0, 1, 4])  # cut to one number: a tie
    assert np.isfinite(answer.values).all()


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
    draw = thresholded_noise.dense_noisy_largest
    monkeypatch.setattr(
        thresholded_noise, "dense_noisy_largest", lambda *given: asked.append(len(given[0])) or draw(*given)
    )
    answer = mechanism.release(
        SparseAnswer(listed), Sensitivity(l2=1.0), np.random.default_rng(0), HardThreshold(keep, n_lines)
    )
    assert asked == [n_lines + 1]
    assert answer.lines.tolist() == [*large, n_lines]
    assert np.abs(answer.values[:-1, 0] - 1e3).max() < 6
