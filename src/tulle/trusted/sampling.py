"""Random batches of rows: who is in a batch, and how likely a person is.

The curator draws the batch from the secret generator and never shows it: a sampled answer costs less because it is
unknown who was in the batch. Proof: docs/proofs/sampled_gaussian.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Scheme = Literal["poisson", "without_replacement", "shuffled"]
SCHEMES: tuple[Scheme, ...] = ("poisson", "without_replacement", "shuffled")

RowNumbers = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Sampling:
    """How batches are drawn from n rows.

    "poisson": every row by itself with chance batch / n. "without_replacement": `batch` rows, all sets equally likely.
    "shuffled": all rows in a new random order, cut into batches that are used up one after another. Sums over a batch
    are divided by `batch`, however many rows it turns out to hold.
    """

    scheme: Scheme
    n_rows: int  # public
    batch: int  # in [1, n]: the size of a batch, expected (poisson) or exact
    rows_per_unit: int = 1  # of one unit of privacy, at most

    def __post_init__(self) -> None:
        if self.scheme not in SCHEMES:
            raise ValueError(f"sampling must be one of {list(SCHEMES)}, got {self.scheme!r}")
        whole = all(type(one) is int for one in (self.n_rows, self.batch, self.rows_per_unit))  # int8 / int8 is float16
        if not (whole and 1 <= self.batch <= self.n_rows):
            raise ValueError(f"a batch of {self.n_rows} rows must have 1 to {self.n_rows} of them, got {self.batch}")

    @property
    def unit_rate(self) -> float:
        """The chance that a batch holds any row of a given unit."""
        n, b, k = self.n_rows, self.batch, min(self.rows_per_unit, self.n_rows)
        if self.scheme == "poisson":
            return 1.0 if b == n else -math.expm1(k * math.log1p(-b / n))
        if self.scheme == "without_replacement":
            # 1 - C(n-k, b) / C(n, b), as a product over the unit's rows.
            return 1.0 if b + k > n else -math.expm1(sum(math.log1p(-b / (n - i)) for i in range(k)))
        return 1.0

    @property
    def answers_per_release(self) -> int:
        """How many batches one item of the bill buys: those of a shuffled epoch hold each row once in all."""
        return math.ceil(self.n_rows / self.batch) if self.scheme == "shuffled" else 1


class Sampler:
    """Draws the batches of one release, one after another. Trusted: row numbers stay with the curator."""

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        self._order: RowNumbers = np.zeros(0, dtype=np.intp)  # the rest of a shuffled epoch

    def draw(self, generator: np.random.Generator) -> RowNumbers:
        """The row numbers of the next batch, rising."""
        n, b = self._sampling.n_rows, self._sampling.batch
        if self._sampling.scheme == "poisson":
            return _poisson(n, b / n, generator)
        if self._sampling.scheme == "without_replacement":
            return np.sort(generator.choice(n, b, replace=False, shuffle=False))
        if not len(self._order):
            self._order = generator.permutation(n)
        batch, self._order = self._order[:b], self._order[b:]
        return np.sort(batch)


def _poisson(n: int, rate: float, generator: np.random.Generator) -> RowNumbers:
    """Every number below n by itself with chance `rate`, in time of the batch and not of n.

    Gaps between members are geometric, and a geometric number is an exponential one rounded down. No binomial is
    drawn: numpy's is exact to fewer digits.
    """
    if rate >= 1:
        return np.arange(n)
    members: list[RowNumbers] = []
    last = -1
    while last < n:
        expected = rate * (n - last)
        gaps = generator.standard_exponential(int(expected + 4 * math.sqrt(expected)) + 8) / -math.log1p(-rate)
        # A gap beyond n ends the batch however long it is, and its cast would overflow.
        places = last + np.cumsum(1 + np.minimum(gaps, n).astype(np.intp))
        members.append(places[places < n])
        last = int(places[-1])
    return np.concatenate(members)
