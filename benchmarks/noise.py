"""The keyed (AES) stream next to numpy's generators: time per Gaussian draw. And noise without rounding errors."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import numpy as np
from timing import Line, print_lines, ratio

from tulle.trusted.exact_noise import NORMAL, add_noise, grid_and_scale
from tulle.trusted.randomness import keyed_generator


def measure(size: int = 47_236) -> Iterator[Line]:
    keyed = partial(keyed_generator().standard_normal, size)
    for name, other, target in (
        ("SFC64, numpy's fastest", np.random.Generator(np.random.SFC64()), "<= 1.5"),
        ("PCG64, numpy's default", np.random.default_rng(), "(no target)"),
    ):
        times = ratio(keyed, partial(other.standard_normal, size), repeats=40)
        yield f"Gaussian draws from the keyed stream, times {name}", times, target
    means = np.zeros(size)
    grid, scale = grid_and_scale(1.0, 1.0, math.sqrt(size))
    exact = partial(add_noise, means, scale, grid, NORMAL, keyed_generator())
    times = ratio(exact, keyed, repeats=40)
    yield "Gaussian noise without rounding errors, times draws from the keyed stream", times, "(no target)"


if __name__ == "__main__":
    print_lines(measure())
