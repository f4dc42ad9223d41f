"""Gaussian noise and a hard threshold in one: only noise that can pass the threshold is drawn.

Trusted: it sees exact answers. Noise of many lines is drawn in falling order of magnitude, as far down as it could
still matter; all other noise exists in law alone. What is returned has exactly the law of the full draw, whatever the
data and whatever is guessed here to save work (docs/proofs/order_statistics.md).
"""

from __future__ import annotations

import copy
import functools
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from tulle.events import FloatArray
from tulle.weights import SparseWeights

Lines = npt.NDArray[np.intp]

# Costs, in draws of one normal: to list a line, to draw one in falling order of magnitude, and to have one more part.
_LISTED, _ORDERED, _PART = 2.0, 6.0, 6000.0

# At most this share of a part is drawn in order. The proof of what finite precision does rests on it, and on _PART.
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


def _tail(magnitude: float) -> float:
    """P(|N(0, 1)| > magnitude)."""
    return math.erfc(max(magnitude, 0.0) * math.sqrt(0.5))


class _FallingNoise:
    """The noise of `size` lines, in falling order of magnitude, drawn as far as asked for."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.drawn = 0
        self.ceiling = math.inf  # of the magnitudes that are not drawn
        self._sum = 0.0
        self._places: Lines = np.zeros(0, dtype=np.intp)

    def draw(self, count: int, generator: np.random.Generator) -> tuple[Lines, FloatArray]:
        """The next magnitudes, with fair signs, and whose they are: numbers below `size`."""
        left = self.size - self.drawn
        count = min(count, left)
        # Rényi: of k exponential clocks the first rings after Exponential / k, and the others are as fresh then.
        steps = np.empty(count + 1)
        steps[0] = self._sum
        np.divide(generator.standard_exponential(count), np.arange(left, left - count, -1), out=steps[1:])
        sums = np.cumsum(steps)
        # What the roundings of a long sum have lost.
        lost = steps[1:] - (sums[1:] - sums[:-1])
        sums[1:] += np.cumsum(lost)
        # A clock shows -log(1 - tail probability). A draw of exactly 0 must not become an infinite magnitude.
        magnitudes = -ndtri(0.5 * (1e-300 - np.expm1(-sums[1:])))
        self._places = _more_places(self._places, count, self.size, generator)
        self._sum = float(sums[-1])
        self.drawn += count
        self.ceiling = float(magnitudes[-1])
        noise = np.where(generator.random(count) < 0.5, -magnitudes, magnitudes)
        return self._places[self.drawn - count :], noise

    def rest(self, generator: np.random.Generator) -> Iterator[tuple[Lines, FloatArray]]:
        """All noise that is not drawn, in no order, a block at a time."""
        left = np.ones(self.size if self.drawn else 0, dtype=bool)
        left[self._places] = False
        for start in range(0, self.size, _BLOCK):
            places = np.arange(start, min(start + _BLOCK, self.size))
            if self.drawn:
                places = places[left[places]]
            noise = generator.standard_normal(len(places))
            while self.drawn and len(over := np.flatnonzero(np.abs(noise) > self.ceiling)):
                noise[over] = generator.standard_normal(len(over))
            yield places, noise
        self.drawn = self.size


def _more_places(used: Lines, count: int, size: int, generator: np.random.Generator) -> Lines:
    """The used numbers and then `count` others below `size`, in random order, all of them distinct."""
    wanted = len(used) + count
    if 2 * wanted > size:
        return np.concatenate([used, generator.permutation(np.delete(np.arange(size), used))[:count]])
    numbers = used
    while (missing := wanted - len(numbers)) > 0:
        # Numbers in the order in which they first come up. Some come up again, so a few more are drawn.
        spare = int(1.5 * missing * wanted / size) + 4
        more = generator.integers(0, size, missing + spare)
        numbers = np.concatenate([numbers, more]) if len(numbers) else more
        bits = len(numbers).bit_length()
        keys = np.sort((numbers << bits) | np.arange(len(numbers)))
        in_order = keys >> bits
        again = keys[1:][in_order[1:] == in_order[:-1]] & ((1 << bits) - 1)
        if len(again):
            first = np.ones(len(numbers), dtype=bool)
            first[again] = False
            numbers = numbers[first]
    return numbers[:wanted]


class _Kept:
    """The `keep` largest magnitudes of a column so far; `keep` is at least 1."""

    def __init__(self, keep: int) -> None:
        self.keep = keep
        self.border = -math.inf  # what another magnitude has to exceed
        self.lines: Lines = np.zeros(0, dtype=np.intp)
        self.values: FloatArray = np.zeros(0)

    def add(self, lines: Lines, values: FloatArray) -> None:
        if self.border == -math.inf and len(values) > 8 * self.keep:
            # What `keep` of the first ones reach. Few of the others do, so that few need a closer look.
            magnitudes = np.abs(values)
            some = len(values) // 4
            floor = np.partition(magnitudes[:some], some - self.keep)[some - self.keep]
            above = np.flatnonzero(magnitudes >= floor)
            lines, values = lines[above], values[above]
        lines, values = np.concatenate([self.lines, lines]), np.concatenate([self.values, values])
        magnitudes = np.abs(values)
        if len(values) > self.keep:
            top = np.argpartition(magnitudes, len(values) - self.keep)[len(values) - self.keep :]
            lines, values, magnitudes = lines[top], values[top], magnitudes[top]
        self.lines, self.values = lines, values
        if len(values) == self.keep:
            self.border = float(magnitudes.min())


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
    """

    size: int
    bound: float
    means: Callable[[Lines], FloatArray | float]
    find: Callable[[Lines], tuple[Lines, npt.NDArray[np.bool_] | None]]

    def __post_init__(self) -> None:
        self._noise = _FallingNoise(self.size)

    def draw(self, goal: float, scale: float, kept: _Kept, generator: np.random.Generator) -> None:
        """Down to where nothing that is left can exceed the goal or the border, whichever is higher."""
        while self._noise.drawn < self.size:
            target = max(goal, kept.border)
            if self.bound + scale * self._noise.ceiling <= target:
                return
            count = self._count((target - self.bound) / scale, goal > -math.inf, kept.keep)
            total = self._noise.drawn + count
            in_order = _PART + _ORDERED * total < self.size and total < _SHARE * self.size
            for places, noise in [self._noise.draw(count, generator)] if in_order else self._noise.rest(generator):
                values = self.means(places) + scale * noise
                high = places
                if kept.border > -math.inf:
                    above = np.flatnonzero(np.abs(values) > kept.border)
                    high, values = places[above], values[above]
                lines, own = self.find(high)
                kept.add(lines if own is None else lines[own], values if own is None else values[own])

    def _count(self, target: float, is_likely: bool, keep: int) -> int:
        """How many to draw next, for a target in units of the noise: about as many as are needed, and in doubt few."""
        expected = self.size * _tail(target)
        count = max(int(expected + 3.0 * math.sqrt(expected)) + 8 - self._noise.drawn, 16)
        # With `keep` of its own a part sets a border, which may make all that is left superfluous.
        return count if is_likely or self.bound == math.inf else min(count, max(keep, self._noise.drawn, 16))


def _draw_zeros(n_lines: int, listed: Lines, scale: float, kept: _Kept, generator: np.random.Generator) -> None:
    """The lines that are not listed, all of mean 0."""
    before = listed - np.arange(len(listed))  # for each listed line, how many before it are not

    def find(places: Lines) -> tuple[Lines, None]:
        return places + np.searchsorted(before, places, side="right"), None

    _Part(n_lines - len(listed), 0.0, lambda places: 0.0, find).draw(-math.inf, scale, kept, generator)


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
    """Magnitudes of some lines of a column, which tell about all of them. What is chosen by it affects the cost alone.

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
        # Beside a large mean, noise of its own sign alone can pass the border.
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
    if len(column) < _LONG and "tulle.kernels" not in sys.modules:
        return np.flatnonzero(np.abs(column) > cut)
    from tulle import kernels

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

    def draw(self, column: int, listed: Lines, scale: float, kept: _Kept, generator: np.random.Generator) -> None:
        """The lines of a column that are not listed."""
        border = self._samples[column].likely_border(abs(self.factor), scale, kept.keep)
        over = _OverMeans(self.means[:, column], self.factor, listed, scale, kept, generator)
        over.draw(self._levels[column], border)


@dataclass
class _OverMeans:
    """The lines of a column that are not listed, over their means × factor."""

    means: FloatArray
    factor: float
    listed: Lines
    scale: float
    kept: _Kept
    generator: np.random.Generator

    def draw(self, levels: list[_Level], goal: float) -> None:
        """From the largest means to all lines: of each level what can matter and is not of the level above it."""
        sizes = [len(self.means), *(len(level.lines) for level in levels)]
        cuts = [*(level.cut for level in levels), math.inf]
        parts, above = [], len(cuts)
        while above > 0:
            cut = cuts[above - 1]
            share = _tail((max(goal, self.kept.border) - abs(self.factor) * cut) / self.scale)
            # As many levels at once as cost less than a part of their own.
            now = above - 1
            while now > 0 and _ORDERED * share * sizes[now - 1] < _PART:
                now -= 1
            parts.append(self._part(levels[now - 1] if now else None, cut))
            parts[-1].draw(goal, self.scale, self.kept, self.generator)
            above = now
        for part in parts:
            part.draw(-math.inf, self.scale, self.kept, self.generator)

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

        return _Part(len(means), abs(self.factor) * cut, lambda places: self.factor * means[places], find)


def noisy_largest(
    exact: SparseWeights,
    background: Background | None,
    scale: float,
    keep: int,
    free_from: int,
    generator: np.random.Generator,
) -> SparseWeights:
    """The `keep` largest magnitudes of each column of means + scale × N(0, I), and all lines from `free_from` on.

    Costs what is listed and kept, not the number of lines.

    Parameters
    ----------
    exact : SparseWeights
        The means of the lines that it lists; all lines from `free_from` on must be among them.
    background : Background or None
        The means of all other lines; None for 0.
    scale : float
        At least 0. For 0 the answer is the threshold of the means, where lines of mean 0 need not be listed.
    keep : int
        At least 0; where there are fewer lines, all are kept.
    free_from : int
        From 0 to n_lines.
    generator : numpy.random.Generator
    """
    n_lines, outputs = exact.shape
    free = int(np.searchsorted(exact.lines, free_from))
    if len(exact.lines) - free != n_lines - free_from:
        raise ValueError(f"all lines from {free_from} on are kept whatever they are, so all of them must be listed")
    if background is not None and background.means.shape != exact.shape:
        raise ValueError(f"a background of shape {background.means.shape} does not go with weights of {exact.shape}")
    if background is not None and background.factor == 0:
        background = None
    noisy = _with_noise(exact.values, scale, generator)
    columns = []
    for column in range(outputs if keep else 0):
        kept = _Kept(keep)
        kept.add(exact.lines[:free], noisy[:free, column])
        if scale == 0 and background is not None:
            unlisted = np.delete(np.arange(n_lines), exact.lines)
            kept.add(unlisted, background.factor * background.means[unlisted, column])
        elif scale > 0 and background is None:
            _draw_zeros(n_lines, exact.lines, scale, kept, generator)
        elif scale > 0 and background is not None:
            background.draw(column, exact.lines, scale, kept, generator)
        columns.append(kept)
    return _together(columns, exact.lines[free:], noisy[free:], n_lines)


def dense_noisy_largest(
    exact: FloatArray, scale: float, keep: int, free_from: int, generator: np.random.Generator
) -> SparseWeights:
    """`noisy_largest` for means that are given in full, in an array of shape (n_lines, outputs).

    Reads every mean once, and draws noise for those that can matter.
    """
    noisy = _with_noise(exact[free_from:], scale, generator)
    columns = []
    for means in exact[:free_from].T if keep and free_from else ():
        kept = _Kept(keep)
        if scale == 0:
            kept.add(np.arange(free_from), means)
        else:
            over = _OverMeans(means, 1.0, np.zeros(0, dtype=np.intp), scale, kept, generator)
            sample = _Sample(means)
            border = sample.likely_border(1.0, scale, keep)
            first = sample.first_list(border, scale) if free_from > _FEW else None
            over.draw([] if first is None else _levels(means, sample, first, _FEW), border)
        columns.append(kept)
    return _together(columns, np.arange(free_from, len(exact)), noisy, len(exact))


def _with_noise(values: FloatArray, scale: float, generator: np.random.Generator) -> FloatArray:
    if not scale >= 0:
        raise ValueError(f"the scale of noise must be at least 0, not {scale}")
    return values if scale == 0 else values + scale * generator.standard_normal(values.shape)


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
