"""Gaussian noise and a hard threshold in one: only noise that can pass the threshold is drawn.

Vouched for on use: it sees exact answers. Noise is a function of a uniform number, and large only where that number
begins with many zeros. Lines are drawn level by level: first those whose numbers begin with most zeros, as far down as
noise could still matter; all other noise exists in law alone. The result has exactly the law of the full draw,
for any data and any guesses that are made here to save work (docs/proofs/lazy_noise.md). Means, noise and borders are
whole units of a public grid (`tulle.trusted.exact_noise`).
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from tulle.fast import compiled
from tulle.fast.rare_events import draw_events
from tulle.fast.sparse_weights import SparseWeights
from tulle.trusted.events import FloatArray
from tulle.trusted.exact_noise import NORMAL, Draws, in_units, round_noise

Lines = npt.NDArray[np.intp]

# Costs, in draws of one normal: to list a line, to draw one by levels, and to have one more part.
_LISTED, _ORDERED, _PART = 0.5, 4.0, 1500.0

# At most this share of a part is drawn by levels.
_SHARE = 0.1

# Lists of no more lines than this are not divided further; one that serves many draws is.
_FEW, _FEW_FOR_MANY = 16384, 4096

# A background lists one line in so many first; of a list, one line in so many makes the next.
_FIRST_LIST, _NEXT_LIST = 16, 4

# So many lines are drawn at a time, for the sake of the caches.
_BLOCK = 16384

# Columns that are longer are read by a compiled loop even if the compiler has to be loaded for it.
_LONG = 4_000_000

# Cuts of a sample that rest on too few lines to rely on.
_TOO_FEW = 3

# The levels of uniform numbers of 63 bits and a side that are told apart.
_MOST_ZEROS = 32


def _tail(magnitude: float) -> float:
    """P(|N(0, 1)| > magnitude); 1 where that is no number, as between means that are not finite."""
    return math.erfc(max(0.0, magnitude) * math.sqrt(0.5))


class _FallingNoise:
    """The noise of `size` lines in whole units, in falling levels of magnitude, drawn as far as asked for.

    A line of level k has a uniform number with k zeros before its first one. It is at least 2^-(k+2), so that the noise
    is at most that of this number.

    Parameters
    ----------
    size : int
    steps : float
        The scale of the noise in units.
    """

    def __init__(self, size: int, steps: float) -> None:
        self.size = size
        self.drawn = 0
        self.ceiling = math.inf  # of the magnitudes that are not drawn, in units
        self._steps = steps
        self._level: int | None = None  # the lowest that is drawn
        self._places: Lines = np.zeros(0, dtype=np.intp)  # that are drawn, in order

    def draw(self, count: int, generator: np.random.Generator) -> tuple[Lines, FloatArray]:
        """The noise of the next levels, of about `count` lines or more, and whose it is: numbers below `size`."""
        found: list[tuple[Lines, FloatArray]] = []
        if self._level is None:
            # All numbers that begin with so many zeros are taken together: nothing bounds their noise.
            first = min(_MOST_ZEROS, max(0, math.floor(math.log2(self.size / max(count, 1)))))
            found.append(self._next_level(first, 2**first, is_exact=False, generator=generator))
        while self.drawn < self.size and sum(len(places) for places, _ in found) < count:
            assert self._level is not None
            level = self._level - 1
            # Of numbers with at most k zeros, 1 in 2^(k+1) - 1 has k.
            found.append(self._next_level(level, 2 ** (level + 1) - 1, is_exact=True, generator=generator))
        return np.concatenate([places for places, _ in found]), np.concatenate([noise for _, noise in found])

    def _next_level(
        self, level: int, one_in: int, *, is_exact: bool, generator: np.random.Generator
    ) -> tuple[Lines, FloatArray]:
        """The lines of a level, or of all levels from it on: one in `one_in` of those that are not drawn."""
        chosen = draw_events(self.size - self.drawn, one_in, generator)
        # Numbers among the places that are not drawn, as places.
        places = chosen + np.searchsorted(self._places - np.arange(len(self._places)), chosen, side="right")
        zeros, rest = np.uint64(level), generator.integers(0, 2**64, len(places), dtype=np.uint64)
        words = rest >> zeros
        if is_exact:
            words |= np.uint64(1) << (np.uint64(63) - zeros)
        self._level = level
        self._places = np.sort(np.concatenate([self._places, places]))
        self.drawn += len(places)
        self.ceiling = math.ceil(self._steps * -float(ndtri(2.0 ** -(level + 1))) * (1 + 2.0**-40)) + 1.0
        if level == 0:
            self.drawn = self.size
        return places, round_noise(NORMAL, Draws(words, generator), self._steps)

    def rest(self, generator: np.random.Generator) -> Iterator[tuple[Lines, FloatArray]]:
        """All noise that is not drawn, in no order, a block at a time."""
        left = np.ones(self.size if self.drawn else 0, dtype=bool)
        left[self._places] = False
        # Their numbers do not begin with as many zeros as the lowest level that is drawn.
        bits = 0 if self._level is None else self._level
        for start in range(0, self.size, _BLOCK):
            places = np.arange(start, min(start + _BLOCK, self.size))
            if self.drawn:
                places = places[left[places]]
            words = generator.integers(0, 2**64, len(places), dtype=np.uint64)
            if bits:
                begin = generator.integers(1, 2**bits, len(places), dtype=np.uint64)
                words = (words >> np.uint64(bits)) | (begin << np.uint64(64 - bits))
            yield places, round_noise(NORMAL, Draws(words, generator), self._steps)
        self.drawn = self.size


class _Kept:
    """The `keep` largest magnitudes of a column so far, at least 1; of equal ones those of the first lines."""

    def __init__(self, keep: int) -> None:
        self.keep = keep
        self.lines: Lines = np.zeros(0, dtype=np.intp)
        self.values: FloatArray = np.zeros(0)

    @property
    def border(self) -> float:
        """What another magnitude has to reach; minus infinity where there is room."""
        return -math.inf if len(self.values) < self.keep else float(np.abs(self.values).min())

    def add(self, lines: Lines, values: FloatArray) -> None:
        near = np.abs(values) >= self.border
        lines, values = np.concatenate([self.lines, lines[near]]), np.concatenate([self.values, values[near]])
        if len(values) > self.keep:
            magnitudes = np.abs(values)
            border = np.partition(magnitudes, len(values) - self.keep)[len(values) - self.keep]
            above, equal = np.flatnonzero(magnitudes > border), np.flatnonzero(magnitudes == border)
            first = equal[np.argsort(lines[equal], kind="stable")][: self.keep - len(above)]
            chosen = np.concatenate([above, first])
            lines, values = lines[chosen], values[chosen]
        self.lines, self.values = lines, values


@dataclass
class _Part:
    """Lines whose means are at most `bound` in magnitude, and others that do not count: they are drawn elsewhere.

    Attributes
    ----------
    size : int
        How many lines there are, counted or not.
    bound : float
    means : function
        Of places, which are numbers below `size`.
    find : function
        Of places: their lines, and which of these count; None for all.
    steps : float
        The scale of the noise.
    """

    size: int
    bound: float
    means: Callable[[Lines], FloatArray | float]
    find: Callable[[Lines], tuple[Lines, npt.NDArray[np.bool_] | None]]
    steps: float

    def __post_init__(self) -> None:
        self._noise = _FallingNoise(self.size, self.steps)

    def draw(self, goal: float, kept: _Kept, generator: np.random.Generator) -> None:
        """Down to where nothing that is left can reach the goal or the border, whichever is higher."""
        while self._noise.drawn < self.size:
            target = max(goal, kept.border)
            if self.bound + self._noise.ceiling < target:
                return
            count = self._count((target - self.bound) / self.steps, goal > -math.inf, kept.keep)
            total = self._noise.drawn + count
            by_levels = _PART + _ORDERED * total < self.size and total < _SHARE * self.size
            for places, noise in [self._noise.draw(count, generator)] if by_levels else self._noise.rest(generator):
                values = self.means(places) + noise
                high = places
                if kept.border > -math.inf:
                    near = np.flatnonzero(np.abs(values) >= kept.border)
                    high, values = places[near], values[near]
                lines, own = self.find(high)
                kept.add(lines if own is None else lines[own], values if own is None else values[own])

    def _count(self, target: float, is_likely: bool, keep: int) -> int:
        """How many to draw next, for a target in units of the noise: about as many as are needed, and in doubt few."""
        expected = self.size * _tail(target)
        count = max(int(expected + 3.0 * math.sqrt(expected)) + 8 - self._noise.drawn, 16)
        # With `keep` of its own a part sets a border, which may make all that is left superfluous.
        return count if is_likely or self.bound == math.inf else min(count, max(keep, self._noise.drawn, 16))


def _draw_zeros(n_lines: int, listed: Lines, steps: float, kept: _Kept, generator: np.random.Generator) -> None:
    """The lines that are not listed, all of mean 0."""
    before = listed - np.arange(len(listed))  # for each listed line, how many before it are not

    def find(places: Lines) -> tuple[Lines, None]:
        return places + np.searchsorted(before, places, side="right"), None

    _Part(n_lines - len(listed), 0.0, lambda places: 0.0, find, steps).draw(-math.inf, kept, generator)


@functools.lru_cache(maxsize=16)
def _sampled(n_lines: int) -> tuple[int, Lines, list[float]]:
    """How far apart sampled lines are; 1, 2, 4, and so on to all of them; and how many of all lines that stands for."""
    step = max(1, math.isqrt(n_lines))
    some = -(-n_lines // step)
    sampled = np.append(2 ** np.arange((some - 1).bit_length()), some)
    return step, some - sampled, (n_lines / some * sampled).tolist()


@functools.lru_cache(maxsize=16)
def _expected(n_lines: int, keep: int) -> tuple[int, float, list[float], list[float]]:
    """From which cut of a sample on there are enough lines to rely on; how many noisy magnitudes a border should have
    above it; how many means are near each cut; and how far noise lifts that many of them alone, in its units.
    """
    counts = np.array(_sampled(n_lines)[2])
    first = min(_TOO_FEW, len(counts) - 1)
    between = 0.5 * np.diff(counts[first:])
    near = np.append(between, 0.0) + np.append(counts[first], between)
    wanted = keep + 3.0 * math.sqrt(keep) + 3.0
    lifted = np.where(2.0 * wanted < near, -ndtri(np.minimum(wanted / near, 0.5)), -math.inf)
    return first, wanted, near.tolist(), lifted.tolist()


class _Sample:
    """Magnitudes of some lines of a column. Choices that are based on them affect only the cost.

    Attributes
    ----------
    cuts, counts : list of float
        About how many lines exceed a cut in magnitude: from few lines to half of them, and then all, which exceed 0.
    """

    def __init__(self, column: FloatArray) -> None:
        self._n_lines = len(column)
        step, places, self.counts = _sampled(len(column))
        self.cuts: list[float] = np.sort(np.abs(column[::step]))[places].tolist()
        self.cuts[-1] = 0.0

    def likely_border(self, factor: float, scale: float, keep: int) -> float:
        """What `keep` noisy magnitudes will exceed, most likely, for means × factor; -inf if there is no telling."""
        first, wanted, near, lifted = _expected(self._n_lines, keep)
        cuts = [factor * cut for cut in self.cuts[first:]]
        border = max(cut + scale * up for cut, up in zip(cuts, lifted))
        if border == -math.inf:
            return border
        # Where the mean is large, only noise of the same sign can pass the border.
        signs = [count * (1.0 + math.exp(-2.0 * border * cut / scale / scale)) for cut, count in zip(cuts, near)]
        step = scale
        while step > 0.05 * scale:
            higher = border + step
            if sum(count * _tail((higher - cut) / scale) for cut, count in zip(cuts, signs)) > 2.0 * wanted:
                border = higher
            step *= 0.5
        return border

    def first_list(self, border: float, scale: float) -> int | None:
        """Which cut has few means above it and seldom noise that lifts others to the border; None if none has."""
        costs = [
            _LISTED * count + _PART * (count > _FEW) + _ORDERED * self._n_lines * _tail((border - cut) / scale)
            for cut, count in zip(self.cuts, self.counts)
        ]
        best = min(costs)
        return costs.index(best) if best < self._n_lines else None


@dataclass(frozen=True)
class _Level:
    """All lines whose means exceed a cut in magnitude, and their means."""

    cut: float
    lines: Lines
    means: FloatArray


def _lines_above(column: FloatArray, cut: float, expected: int) -> Lines:
    """The lines of a column that exceed a cut in magnitude."""
    if len(column) < _LONG and not compiled.is_loaded():
        return np.flatnonzero(np.abs(column) > cut)
    from tulle.fast import kernels

    lines = np.empty(4 * expected + 1024, dtype=np.intp)
    found = kernels.lines_above(column, cut, lines)
    if found > len(lines):
        lines = np.empty(found, dtype=np.intp)
        kernels.lines_above(column, cut, lines)
    return lines[:found].copy()


def _levels(column: FloatArray, sample: _Sample, first: int, few: int) -> list[_Level]:
    """The lines above a cut, and of these the ones above ever higher cuts, until few are left."""
    cut = sample.cuts[first]
    lines = _lines_above(column, cut, int(sample.counts[first]))
    levels = [_Level(cut, lines, column[lines])]
    while (size := len(levels[-1].lines)) > few:
        lines, means = levels[-1].lines, levels[-1].means
        magnitudes = np.abs(means)
        some = np.sort(magnitudes[:: max(1, size // 256)])
        cut = float(some[len(some) - 1 - len(some) // _NEXT_LIST])
        higher = np.flatnonzero(magnitudes > cut)
        if 2 * len(higher) > size:  # those looked at were not like the others
            cut = float(np.median(magnitudes))
            higher = np.flatnonzero(magnitudes > cut)
        levels.append(_Level(cut, lines[higher], means[higher]))
    return levels


class Background:
    """Public means of all lines, prepared once for many draws.

    Of each column the lines of the largest means are listed, and of these again, so that a draw can pass over lines
    whose means are too small to matter.

    Parameters
    ----------
    means : array of shape (n_lines, outputs)
        Finite, at least one line. Not copied.
    """

    def __init__(self, means: FloatArray) -> None:
        self.means = means
        self.factor = 1.0
        self._norm = float(np.linalg.norm(means))
        self._samples = [_Sample(column) for column in means.T]
        self._levels = []
        for column, sample in zip(means.T, self._samples):
            first = int(np.searchsorted(sample.counts, len(column) / _FIRST_LIST))
            self._levels.append(_levels(column, sample, first, _FEW_FOR_MANY))

    @property
    def norm(self) -> float:
        """The ℓ2 norm of all means."""
        return abs(self.factor) * self._norm

    def times(self, factor: float) -> Background:
        """The means multiplied by a factor. Costs nothing."""
        other = copy.copy(self)
        other.factor = self.factor * factor
        return other

    def draw(
        self, column: int, listed: Lines, steps: float, grid: float, kept: _Kept, generator: np.random.Generator
    ) -> None:
        """The lines of a column that are not listed."""
        border = self._samples[column].likely_border(abs(self.factor) / grid, steps, kept.keep)
        over = _OverMeans(self.means[:, column], self.factor, grid, listed, steps, kept, generator)
        over.draw(self._levels[column], border)


@dataclass
class _OverMeans:
    """The lines of a column that are not listed, over their means × factor, rounded to whole units."""

    means: FloatArray
    factor: float
    grid: float
    listed: Lines
    steps: float
    kept: _Kept
    generator: np.random.Generator

    def draw(self, levels: list[_Level], goal: float) -> None:
        """From the largest means to all lines: of each level what can matter and is not of the level above it."""
        sizes = [len(self.means), *(len(level.lines) for level in levels)]
        cuts = [*(level.cut for level in levels), math.inf]
        parts, above = [], len(cuts)
        while above > 0:
            cut = cuts[above - 1]
            share = _tail((max(goal, self.kept.border) - abs(self.factor) * cut / self.grid) / self.steps)
            # As many levels at once as cost less than a part of their own.
            now = above - 1
            while now > 0 and _ORDERED * share * sizes[now - 1] < _PART:
                now -= 1
            parts.append(self._part(levels[now - 1] if now else None, cut))
            parts[-1].draw(goal, self.kept, self.generator)
            above = now
        for part in parts:
            part.draw(-math.inf, self.kept, self.generator)

    def _part(self, level: _Level | None, cut: float) -> _Part:
        """The lines of a level, or all, of which those above a cut are drawn elsewhere; so are the listed."""
        means = self.means if level is None else level.means

        def find(places: Lines) -> tuple[Lines, npt.NDArray[np.bool_] | None]:
            lines = places if level is None else level.lines[places]
            own = np.abs(means[places]) <= cut
            if len(self.listed):
                nearest = np.minimum(np.searchsorted(self.listed, lines), len(self.listed) - 1)
                own &= self.listed[nearest] != lines
            return lines, own

        def units(places: Lines) -> FloatArray:
            return in_units(self.factor * means[places], self.grid)

        # Half a unit is for rounding, and a little for the product.
        bound = math.inf if math.isinf(cut) else abs(self.factor) * cut / self.grid * (1 + 2.0**-50) + 0.5
        return _Part(len(means), bound, units, find, self.steps)


def noisy_largest(
    exact: SparseWeights,
    background: Background | None,
    scale: float,
    grid: float,
    keep: int,
    free_from: int,
    generator: np.random.Generator,
) -> SparseWeights:
    """The `keep` largest magnitudes of each column of means + scale × N(0, I), and all lines from `free_from` on.

    Means and noise are rounded to the grid before they are added up; returns whole units of it. The cost grows with the
    listed and kept lines, not with the number of all lines.

    Parameters
    ----------
    exact : SparseWeights
        The means of the lines that it lists; all lines from `free_from` on must be among them.
    background : Background or None
        The means of all other lines; None for 0.
    scale, grid : float
        > 0.
    keep : int
        At least 0; where there are fewer lines, all are kept.
    free_from : int
        From 0 to n_lines.
    generator : numpy.random.Generator
    """
    n_lines, outputs = exact.shape
    free = int(np.searchsorted(exact.lines, free_from))
    if len(exact.lines) - free != n_lines - free_from:
        raise ValueError(f"all lines from {free_from} on are always kept, so all of them must be listed")
    if background is not None and background.means.shape != exact.shape:
        raise ValueError(f"a background of shape {background.means.shape} does not go with weights of {exact.shape}")
    steps = scale / grid
    listed = in_units(exact.values, grid)
    noisy = listed + round_noise(NORMAL, Draws.fresh(listed.size, generator), steps).reshape(listed.shape)
    columns = []
    for column in range(outputs if keep else 0):
        kept = _Kept(keep)
        kept.add(exact.lines[:free], noisy[:free, column])
        if background is None:
            _draw_zeros(n_lines, exact.lines, steps, kept, generator)
        else:
            background.draw(column, exact.lines, steps, grid, kept, generator)
        columns.append(kept)
    return _together(columns, exact.lines[free:], noisy[free:], n_lines)


def dense_noisy_largest(
    exact: FloatArray, scale: float, grid: float, keep: int, free_from: int, generator: np.random.Generator
) -> SparseWeights:
    """`noisy_largest` for means that are given in full, in an array of shape (n_lines, outputs).

    Reads every mean once, and draws noise for those that can matter.
    """
    steps = scale / grid
    free = in_units(exact[free_from:], grid)
    free = free + round_noise(NORMAL, Draws.fresh(free.size, generator), steps).reshape(free.shape)
    columns = []
    for means in exact[:free_from].T if keep and free_from else ():
        kept = _Kept(keep)
        over = _OverMeans(means, 1.0, grid, np.zeros(0, dtype=np.intp), steps, kept, generator)
        sample = _Sample(means)
        border = sample.likely_border(1.0 / grid, steps, keep)
        first = sample.first_list(border * grid, scale) if free_from > _FEW else None
        over.draw([] if first is None else _levels(means, sample, first, _FEW), border)
        columns.append(kept)
    return _together(columns, np.arange(free_from, len(exact)), free, len(exact))


def _together(columns: list[_Kept], free: Lines, free_values: FloatArray, n_lines: int) -> SparseWeights:
    """What the columns keep, and the free lines, which come after all others."""
    if len(columns) == 1:
        order = np.argsort(columns[0].lines)
        lines = np.concatenate([columns[0].lines[order], free])
        return SparseWeights(lines, np.concatenate([columns[0].values[order, None], free_values]), n_lines)
    lines = np.unique(np.concatenate([free, *(kept.lines for kept in columns)]))
    values = np.zeros((len(lines), free_values.shape[1]))
    for column, kept in enumerate(columns):
        values[np.searchsorted(lines, kept.lines), column] = kept.values
    values[len(lines) - len(free) :] = free_values
    return SparseWeights(lines, values, n_lines)
