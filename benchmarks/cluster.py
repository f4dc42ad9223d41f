"""What a question costs on a Dask cluster of two workers, next to the same question in memory: one gradient.

Needs the extra `dask`; without it there are no lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from timing import Line, print_lines, ratio, text_rows

from tulle.methods.gradient_queries import ClippedGradient
from tulle.methods.loss_functions import Logistic
from tulle.trusted.facts import PublicFacts
from tulle.trusted.rows import Rows

FEATURES, PER_ROW, CLIP = 20_000, 50, 0.25
ROWS, PARTITIONS = (1_000, 100_000), (2, 32, 500)
ROUNDS = 9


def part(n_rows: int) -> list[Any]:
    """Rows of the same law with their targets, made by the worker that holds them."""
    return [text_rows((n_rows, FEATURES, PER_ROW))]


@dataclass(frozen=True)
class Gradient:
    """The same gradient on a cluster and in memory, and the size of the rows' entries: values and indices."""

    partitions: int
    on_cluster: Callable[[], None]
    in_memory: Callable[[], None]
    n_bytes: int


def gradients(n: int, partitions: Iterable[int]) -> Iterator[Gradient]:
    """Of so many rows in so many partitions, on a cluster of two workers that lives until the last one was taken."""
    import dask.bag
    from dask import delayed
    from distributed import Client, LocalCluster

    from tulle.backends.input_kinds import find_spread

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster):
        X, y = text_rows((n, FEATURES, PER_ROW))
        public = PublicFacts(n, FEATURES, 100, Logistic(), None, 1.0, 1.0, np.inf, False)
        turns = np.random.default_rng(0).choice(FEATURES, (2, 100))
        points = [np.zeros((FEATURES, 1)) for _ in turns]
        for point, chosen in zip(points, turns):
            point[chosen] = 0.1

        def ask(rows: Rows) -> None:
            # Margins at the last weights are remembered: the weights change every time.
            points.reverse()
            ClippedGradient(points[0], CLIP).evaluate(rows, public)

        in_memory = partial(ask, Rows(X, y))
        for count in partitions:
            parts = np.diff(np.linspace(0, n, count + 1).astype(int)).tolist()
            spread = find_spread(dask.bag.from_delayed([delayed(part)(size) for size in parts]))
            assert spread is not None
            yield Gradient(count, partial(ask, spread.rows(None)), in_memory, 12 * X.nnz)


def measure() -> Iterator[Line]:
    if find_spec("distributed") is None:
        return
    for n in ROWS:
        for gradient in gradients(n, PARTITIONS):
            where = f"in {gradient.partitions} partitions on 2 workers"
            times = ratio(gradient.on_cluster, gradient.in_memory, ROUNDS)
            yield f"a gradient of {n:,} × {FEATURES:,} {where}, times in memory", times, "(no target)"


if __name__ == "__main__":
    print_lines(measure())
