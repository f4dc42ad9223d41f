"""The keyed (AES) stream beside numpy's generators: time per Gaussian draw."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
from timing import Line, print_lines, ratio

from tulle.randomness import keyed_generator


def measure(size: int = 47_236) -> Iterator[Line]:
    keyed = partial(keyed_generator().standard_normal, size)
    for name, other, target in (
        ("SFC64, numpy's fastest", np.random.Generator(np.random.SFC64()), "<= 1.5"),
        ("PCG64, numpy's default", np.random.default_rng(), "(no target)"),
    ):
        times = ratio(keyed, partial(other.standard_normal, size), repeats=40)
        yield f"Gaussian draws from the keyed stream, times {name}", times, target


if __name__ == "__main__":
    print_lines(measure())
