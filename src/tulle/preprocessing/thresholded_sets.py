"""Sets that are learnt from private rows: the keys (words, categories) that enough rows hold, and no others.

    mass    of a key: mean over rows of v, where the keys of a row have v > 0 and |v| <= 1
    release mass + Gaussian noise, of the keys for which this is above a threshold

The masses of keys that several people hold are a Gaussian release. Which keys there are at all depends on the rows,
too, so a key that one person alone holds must not be seen: the threshold is so high that this happens with a chance of
at most `left`, which is a part of the delta that is promised. Adjacency: replace-one.

Vouched for on use: the bill names it. Proof: docs/proofs/thresholded_sets.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import log_ndtr

from tulle.accounting.mechanism_words import THRESHOLDED, describe_mechanism
from tulle.trusted.events import FloatArray
from tulle.trusted.exact_noise import NORMAL, add_noise
from tulle.trusted.facts import PublicFacts
from tulle.trusted.mechanisms import PRICES, Gaussian, Sensitivity, Then, from_units
from tulle.trusted.queries import Query, vouch_for_query
from tulle.trusted.rows import Block, Rows

# Squares of a key's mass in one unit are looked at in steps of this factor; bounds are rounded up to the next one.
_STEP = 1.002

# Squares of entries are added up in whole parts of this.
_STEPS = 2.0**50


@dataclass(frozen=True, eq=False)
class HeldMasses:
    """Exact masses of the keys in the rows. How many there are depends on the rows, so that no array stands for them:
    a mechanism that is not made for them fails. `shape` is public: that of as many keys as there could be."""

    values: FloatArray
    shape: tuple[int, int]
    most_keys: int
    rows_per_unit: int


@vouch_for_query
@dataclass(frozen=True, eq=False)
class KeyMasses(Query):
    """The mass of each key, for `ThresholdedGaussian` alone.

    A row counts if each of its entries is 0 or from (1 - 1e-8) / √most_keys to 1, and its length is at most 1; any
    other row counts as nothing. Of the keys that rows other than a unit's hold: what a unit's m rows add is a vector of
    length at most m without negative entries, and two of these are at most √2 m apart.
    """

    most_keys: int

    def sensitivity(self, public: PublicFacts) -> Sensitivity:
        return Sensitivity(l2=math.sqrt(2.0) * public.rows_per_unit / public.n_rows * (1.0 + 2.0**-48))

    def size(self, public: PublicFacts) -> float:
        return 1.0 + 2.0**-48

    def evaluate(self, rows: Rows, public: PublicFacts) -> HeldMasses:
        total = rows.reduce(self._sum_block)
        shape = (self.most_keys * public.n_rows, 1)
        return HeldMasses(total / public.n_rows, shape, self.most_keys, public.rows_per_unit)

    def _sum_block(self, block: Block) -> FloatArray:
        n_rows, n_keys = block.n_rows, len(block.gather(np.zeros((block.n_rows, 1))))
        keys = sp.csr_array(block.columns(np.arange(n_keys)))
        row = np.repeat(np.arange(n_rows), np.diff(keys.indptr))
        entries = np.asarray(keys.data)
        wrong = (entries != 0) & ~((entries >= (1.0 - 1e-8) / math.sqrt(self.most_keys)) & (entries <= 1.0))
        # Squares rounded up to whole steps: their sums are exact, in any order of addition.
        squares = np.where(wrong, 2.0 * _STEPS, np.ceil(entries**2 * _STEPS))
        fits = np.bincount(row, np.minimum(squares, 2.0 * _STEPS), minlength=n_rows) <= _STEPS
        return np.asarray(np.bincount(keys.indices, np.where(fits[row], entries, 0.0), minlength=n_keys), np.float64)


@dataclass(frozen=True)
class ThresholdedGaussian(Gaussian):
    """Masses + N(0, σ²), of keys that are held and whose noisy mass is above a threshold; 0 for all others.

    `left` bounds the chance that a key is released which one unit alone holds. The answer goes to `then`, which knows
    the names of keys and must drop the others: their number depends on the rows.
    """

    left: float = 1e-12
    most_keys: int = 1
    rows_per_unit: int = 1

    @property
    def inexact(self) -> float:
        """For two neighbours, the distance from the Gaussian release about keys that other units hold too."""
        return self.left

    def threshold(self, sensitivity: Sensitivity, count: int) -> float:
        """In units of the mean over rows; 0 without noise."""
        grid, scale = self.grid_and_scale(sensitivity, count)
        if not scale:
            return 0.0
        one_row = sensitivity.l2 / math.sqrt(2.0) / self.rows_per_unit
        found = find_threshold(scale / one_row, self.left, self.most_keys, self.rows_per_unit)
        return one_row * found + 2.0 * grid  # an answer and its noise are rounded to the grid

    def release(self, exact: Any, sensitivity: Sensitivity, generator: np.random.Generator, then: Then | None) -> Any:
        if then is None or not isinstance(exact, HeldMasses):
            raise TypeError("a thresholded set is asked for by KeyMasses, and goes to what knows the names of keys")
        if (exact.most_keys, exact.rows_per_unit) != (self.most_keys, self.rows_per_unit):
            raise ValueError("the rows have keys, or units rows, that the threshold of the plan is not for")
        count = math.prod(exact.shape)
        grid, scale = self.grid_and_scale(sensitivity, count)
        noisy = exact.values.copy()
        if scale:
            noisy = from_units(add_noise(noisy, scale, grid, NORMAL, generator), grid)
        # A key that no row holds which counts (surplus rows of a person have keys, too) is never released.
        released = (exact.values > 0) & (noisy > self.threshold(sensitivity, count))
        return then(np.where(released, noisy, 0.0))


PRICES[ThresholdedGaussian] = PRICES[Gaussian]


@describe_mechanism.register
def _(mechanism: ThresholdedGaussian) -> str:
    return THRESHOLDED


@lru_cache(maxsize=256)
def find_threshold(sigma: float, left: float, most_keys: int, rows_per_unit: int) -> float:
    """The threshold for noise of standard deviation `sigma` > 0, rounded up, where one row's masses have length 1.

    It bounds the chance that any key passes which one unit alone holds. Let v be the masses of these keys: |v| <= m,
    and every v_k >= (1 - 1e-8) / √most_keys. The chance is at most Σ_k Q((T - v_k) / σ), and with s_k = v_k² that is
    Σ_k s_k (Q((T - √s_k) / σ) / s_k) <= m² max over s of Q((T - √s) / σ) / s, s from the least v_k² to m².
    """
    if not left > 0:
        raise ValueError("a set of values that are found needs a part of delta; use a larger delta")
    least, most = (1.0 - 2.1e-8) / most_keys, float(rows_per_unit) ** 2
    squares = np.minimum(least * _STEP ** np.arange(math.ceil(math.log(most / least) / math.log(_STEP)) + 2), most)
    lower, upper = squares[:-1], np.sqrt(squares[1:])

    def exceeds(threshold: float) -> bool:
        logs = log_ndtr((upper - threshold) / sigma) - np.log(lower)
        return bool(math.log(most) + float(logs.max()) > math.log(left) - 1e-9)

    low, high = 0.0, rows_per_unit + 40.0 * sigma  # beyond which noise has a chance below all floats
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if exceeds(middle) else (low, middle)
    return high
