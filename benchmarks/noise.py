"""The keyed (AES) stream beside numpy's generators: time per Gaussian draw."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from tulle.randomness import keyed_generator


def _seconds(generator: np.random.Generator, size: int = 47_236, repeats: int = 40) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        generator.standard_normal(size)
    return time.perf_counter() - start


def measure(rounds: int = 7) -> Iterator[tuple[str, float, str]]:
    keyed = keyed_generator()
    for name, other, target in (
        ("SFC64, numpy's fastest", np.random.Generator(np.random.SFC64()), "<= 1.5"),
        ("PCG64, numpy's default", np.random.default_rng(), "(no target)"),
    ):
        ratios = [_seconds(keyed) / _seconds(other) for _ in range(rounds)]
        yield f"Gaussian draws from the keyed stream, times {name}", float(np.median(ratios)), target
