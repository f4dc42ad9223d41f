"""Gaussian noise and a hard threshold in one: most noise that cannot pass the threshold is left undrawn.

Trusted: it sees exact answers. Noise is a function of a uniform number, and large only where that number begins with
many zeros. Those first bits are drawn for all lines, 64 lines at a time; all other bits only for lines whose noise can
matter. What is returned has exactly the law of the full draw, whatever the data and whatever is guessed here to save
work (docs/proofs/lazy_noise.md).

Values are whole units of a public grid throughout (`tulle.exact_noise`).
"""

from __future__ import annotations

import copy
import math

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from tulle.events import FloatArray
from tulle.exact_noise import NORMAL, Draws, in_units, round_noise
from tulle.weights import SparseWeights

Lines = npt.NDArray[np.intp]
Levels = npt.NDArray[np.uint8]

# Zeros at the beginning of a uniform number are counted up to this.
_MOST_ZEROS = 40

# Where more than one line in so many is kept, all noise is drawn.
_FEW = 8

# Lines that a guess is made from.
_SAMPLE = 4096


def leading_zeros(size: int, most: int, generator: np.random.Generator) -> Levels:
    """How many of the first `most` bits of each of `size` uniform numbers are zero before the first one."""
    zeros = np.zeros(size, dtype=np.uint8)
    running = np.full(-(-size // 64), 2**64 - 1, dtype=np.uint64)
    for _ in range(most):
        running &= generator.integers(0, 2**64, len(running), dtype=np.uint64)
        if not running.any():
            break
        zeros += np.unpackbits(running.view(np.uint8), count=size)
    return zeros


class _FirstBits:
    """The noise of many lines, of which the first bits are drawn.

    Parameters
    ----------
    size, keep : int
        How many lines there are, and how many of them matter in the end.
    steps : float
        The scale of the noise in units of the grid.
    generator : numpy Generator
    """

    def __init__(self, size: int, keep: int, steps: float, generator: np.random.Generator) -> None:
        self._steps = steps
        self._generator = generator
        self._most = min(_MOST_ZEROS, max(1, math.ceil(math.log2(max(size, 2) / max(keep, 1))) + 3))
        self._zeros = leading_zeros(size, self._most, generator)
        # A number with k zeros and then a one is at least 2^-(k+2); noise falls as the number grows. One unit more is
        # for rounding, and beyond the bits that were drawn nothing is known.
        floors = 2.0 ** -(np.arange(self._most + 1) + 2.0)
        self._reach = np.ceil(steps * -ndtri(floors) * (1 + 2.0**-40)) + 1.0
        self._reach[self._most] = math.inf

    def reach(self) -> FloatArray:
        """What the noise of each line does not exceed in magnitude, in units."""
        return self._reach[self._zeros]

    def draw(self, lines: Lines) -> FloatArray:
        """The noise of some lines, each asked for once, in units."""
        words = self._generator.integers(0, 2**64, len(lines), dtype=np.uint64)
        zeros = self._zeros[lines].astype(np.uint64)
        words &= np.uint64(2**64 - 1) >> zeros
        words |= np.where(zeros < self._most, np.uint64(1) << (np.uint64(63) - zeros), np.uint64(0))
        return round_noise(NORMAL, Draws(words, self._generator), self._steps)


class Background:
    """Public means of all lines, for many draws.

    Parameters
    ----------
    means : array of shape (n_lines, outputs)
        Finite, at least one line. Not copied.
    """

    def __init__(self, means: FloatArray) -> None:
        self.means = means
        self.factor = 1.0
        self._norm = float(np.linalg.norm(means))

    @property
    def norm(self) -> float:
        """The ℓ2 norm of all means."""
        return abs(self.factor) * self._norm

    def times(self, factor: float) -> Background:
        """The means multiplied by a factor. Costs nothing."""
        other = copy.copy(self)
        other.factor = self.factor * factor
        return other


class _Kept:
    """The `keep` largest magnitudes of a column so far, at least 1; of equal ones those of the first lines."""

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self.lines: Lines = np.zeros(0, dtype=np.intp)
        self.values: FloatArray = np.zeros(0)

    @property
    def border(self) -> float:
        """What another magnitude has to reach; minus infinity where there is room."""
        return -math.inf if len(self.values) < self._keep else float(np.abs(self.values).min())

    def add(self, lines: Lines, values: FloatArray) -> None:
        near = np.abs(values) >= self.border
        lines, values = np.concatenate([self.lines, lines[near]]), np.concatenate([self.values, values[near]])
        if len(values) > self._keep:
            magnitudes = np.abs(values)
            border = np.partition(magnitudes, len(values) - self._keep)[len(values) - self._keep]
            above, equal = np.flatnonzero(magnitudes > border), np.flatnonzero(magnitudes == border)
            first = equal[np.argsort(lines[equal], kind="stable")][: self._keep - len(above)]
            chosen = np.concatenate([above, first])
            lines, values = lines[chosen], values[chosen]
        self.lines, self.values = lines, values

    def add_noisy(self, lines: Lines, means: FloatArray | float, steps: float, generator: np.random.Generator) -> None:
        """Many lines, with noise on their means; noise that cannot reach the border is left undrawn."""
        size = len(lines)
        if size == 0:
            return
        if _FEW * self._keep > size:
            self.add(lines, means + round_noise(NORMAL, Draws.fresh(size, generator), steps))
            return
        noise = _FirstBits(size, self._keep, steps, generator)
        means = np.broadcast_to(means, size)
        reach = np.abs(means) + noise.reach()
        # A guess at the border: what some more lines than are kept may reach. It decides about the cost alone.
        sample = np.sort(reach[:: max(1, size // _SAMPLE)])
        guess = sample[max(0, len(sample) - 1 - math.ceil(len(sample) * 2.0 * self._keep / size))]
        first = reach >= max(guess, self.border)
        for chosen in (first, None):
            # The second time: all others that can still reach the border. The border only rises.
            now = np.flatnonzero(first if chosen is not None else ~first & (reach >= self.border))
            self.add(lines[now], means[now] + noise.draw(now))


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

    Means and noise are rounded to the grid before they are added up; returns whole units of it.

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
        raise ValueError(f"all lines from {free_from} on are kept whatever they are, so all of them must be listed")
    if background is not None and background.means.shape != exact.shape:
        raise ValueError(f"a background of shape {background.means.shape} does not go with weights of {exact.shape}")
    steps = scale / grid
    listed = in_units(exact.values, grid)
    unlisted = np.ones(n_lines, dtype=bool)
    unlisted[exact.lines] = False
    others = np.flatnonzero(unlisted)
    columns = []
    for column in range(outputs if keep else 0):
        kept = _Kept(keep)
        kept.add_noisy(exact.lines[:free], listed[:free, column], steps, generator)
        means: FloatArray | float = 0.0
        if background is not None:
            means = in_units(background.factor * background.means[others, column], grid)
        kept.add_noisy(others, means, steps, generator)
        columns.append(kept)
    noise = round_noise(NORMAL, Draws.fresh((len(exact.lines) - free) * outputs, generator), steps)
    return _together(columns, exact.lines[free:], listed[free:] + noise.reshape(-1, outputs), n_lines)


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
