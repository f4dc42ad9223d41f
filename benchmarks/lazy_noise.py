"""Noise and threshold at once, next to the way that people write it: draw all noise, add, argpartition. In CPU time.

The full draw is taken from numpy's PCG64 and from the library's keyed stream; the lazy one always from the keyed
stream. "Touched" lines have a mean of their own, and all others a mean of 0, or one of a background that was prepared
before. Where all are touched, means are normal with a tenth of the noise's size ("small"), normal and as large as the
noise, which is the hardest for a lazy draw, or heavy-tailed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from timing import Line, peak_bytes, print_lines, seconds

from tulle.fast import kernels  # noqa: F401  loaded, as in a fit of many lines
from tulle.fast.lazy_noise import Background, dense_noisy_largest, noisy_largest
from tulle.fast.sparse_weights import SparseWeights
from tulle.trusted.events import FloatArray
from tulle.trusted.exact_noise import grid_and_scale
from tulle.trusted.randomness import keyed_generator

KEEP = 100
SIZES = {47_236: (10, 40), 1_000_000: (1, 6), 16_000_000: (1, 3)}
TOUCHED = {(1_000_000, 8_000): ">= 35", (16_000_000, 8_000): ">= 350"}
ALL = {47_236: ">= 3.5", 1_000_000: ">= 15", 16_000_000: ">= 25"}


def full_draw(means: FloatArray, generator: np.random.Generator) -> Any:
    noisy = generator.standard_normal(len(means))
    noisy += means
    return np.argpartition(np.abs(noisy), len(noisy) - KEEP)[len(noisy) - KEEP :]


def _compare(what: str, target: str, means: FloatArray, lazy: Callable[..., Any], *arguments: Any) -> Iterator[Line]:
    """How many times the time of lazy(*arguments, generator) a full draw takes."""
    fewer, more = SIZES[len(means)]
    own = partial(lazy, *arguments, keyed_generator())
    streams = {"PCG64": np.random.default_rng(), "keyed": keyed_generator()}
    own()
    ratios = []
    for _ in range(7):
        lazily = seconds(own, more, time.process_time)
        ratios.append(
            [seconds(partial(full_draw, means, one), fewer, time.process_time) / lazily for one in streams.values()]
        )
    for stream, ratio in zip(streams, np.median(ratios, axis=0)):
        yield f"{what}: full draw ({stream}), times a lazy one", float(ratio), target


def measure() -> Iterator[Line]:
    data = np.random.default_rng(0)
    for d in SIZES:
        means = data.standard_normal(d)
        grid, scale = grid_and_scale(1.0, 1.0, math.sqrt(d))
        for touched in (1_000, 8_000):
            lines = np.sort(data.choice(d, touched, replace=False))
            exact = SparseWeights(lines, 0.3 * data.standard_normal((touched, 1)), d)
            what, target = f"d = {d:,}, {touched:,} touched", TOUCHED.get((d, touched), "(no target)")
            yield from _compare(what, target, means, noisy_largest, exact, None, scale, grid, KEEP, d)
        peak = peak_bytes(partial(noisy_largest, exact, None, scale, grid, KEEP, d, keyed_generator()))
        yield f"{what}: peak memory, in vectors of length d", peak / means.nbytes, "(no target)"
        background = Background(means[:, None])
        what = f"{what}, background"
        yield from _compare(what, "(no target)", means, noisy_largest, exact, background, scale, grid, KEEP, d)
        for name, all_touched in (
            ("small", 0.1 * means),
            ("as large", means),
            ("heavy-tailed", 0.03 * data.standard_t(1.5, d)),
        ):
            what = f"d = {d:,}, all touched, {name}"
            yield from _compare(what, ALL[d], means, dense_noisy_largest, all_touched[:, None], scale, grid, KEEP, d)


if __name__ == "__main__":
    print_lines(measure())
