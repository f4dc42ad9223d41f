"""How far a client that keeps to the terms can move the weights in one round: what lies beyond is no honest update."""

from __future__ import annotations

import math

import numpy as np

from tulle.fast.sparse_weights import SparseWeights
from tulle.federated.client_side.study_plan import STEP, compute_noise_ratio, get_noise, plan_study
from tulle.federated.messages import Enrolled
from tulle.federated.terms import Terms
from tulle.trusted.events import FloatArray

# The chance, at most, that any update of an honest client is refused, over all coordinates, steps and rounds.
_CHANCE = 1e-9
# For grids of the noise, roundings of sums and the factors that break ties, which all are far smaller.
_SLACK = 1.01


class UpdateLimits:
    """Limits of updates, by public figures.

    A local step takes w to H(w - η (λ v + mean + noise)), with v some of the entries of w (`take_local_steps`). Each
    entry of the result is a sum of three parts, as thresholds and the penalty multiply all parts of an entry by one
    factor: by 0, 1 or 1 - η λ, so by at most f = max(1, |1 - η λ|) in magnitude. After K steps

    - the remainder of the server's weight w_j is at most f^K |w_j|; for η λ <= 1 it lies between 0 and w_j;
    - means of clipped gradients add at most f^K K η C B / b: a batch of expected b rows holds more than B of them with
      chance e^-L at most, by Bernstein's inequality, where B = b + L/3 + √(L²/9 + 2 b L), and never more than n;
    - noise of K steps with the standard deviation s adds more than f^K η s √(2 K L) with chance 2 e^-L at most: the
      factors are known before a draw or shrink it after, so that E cosh(u x) of the part x grows by e^(u² η² s² / 2)
      a step. A snapshot's noise is the same in all K steps: K η s' √(2 L).

    L is such that all chances add up to 1e-9 over the whole study of a client. C is the level of a row's gradient, s =
    z 2 C m / b with the client's stated noise z, number of rows n and rows of a person m. A stated noise above what the
    budget needs without any sampling is not believed, nor is an m above n. What else a client states of n and m is
    believed: one that states few rows, or many of a person, is limited less. Where the clip is infinite, as it may be
    without privacy, there is no limit.

    Parameters
    ----------
    terms : Terms
    """

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        lines, outputs = terms.model.shape
        chances = 5 * lines * outputs * terms.rounds * terms.local_steps
        self._log_chance = math.log(chances / _CHANCE)  # L
        self._level = terms.model.level(terms.clip)
        shrink = abs(1.0 - terms.step * terms.penalty)
        self._keeps_side = terms.step * terms.penalty <= 1
        # f^K. In logarithms: a server may choose any penalty.
        growth = terms.local_steps * math.log(max(1.0, shrink))
        self._growth = math.exp(growth) if growth < 700 else math.inf
        self._most_noise: float | None = None

    def contain(self, update: SparseWeights, start: SparseWeights, client: Enrolled) -> bool:
        """Whether K steps of this client may lead from the server's weights to its update, of the same shape."""
        reach = self.reach(client)
        if not reach * self._growth < math.inf:
            return True
        before = _values_at(start, update.lines)
        with np.errstate(over="ignore"):  # infinite: no limit
            if self._keeps_side:
                low, high = np.minimum(before, 0.0), np.maximum(before, 0.0)
            else:
                high = self._growth * np.abs(before)
                low = -high
            return bool(np.all((update.values >= _SLACK * low - reach) & (update.values <= _SLACK * high + reach)))

    def reach(self, client: Enrolled) -> float:
        """The most that means and noise add to a weight in one round of this client; inf for no limit."""
        terms, n = self._terms, client.n_rows
        if not self._level < math.inf:
            return math.inf
        batch, unit = min(terms.batch or n, n), min(client.rows_per_person, n)
        steps = terms.local_steps
        most, wide = self._find_most_noise(), math.sqrt(2 * self._log_chance)
        per_row, noise = self._level, min(client.noise, most)
        moved = 0.0
        if terms.snapshot_batch is not None:
            large = terms.count_snapshot_rows(n)
            held = min(client.snapshot_noise, most * compute_noise_ratio(terms, n))
            sd = held * 2 * per_row * unit / large
            moved = steps * (per_row * self._most_rows(large, n) / large + sd * wide)
            per_row *= terms.difference_clip
        sd = noise * 2 * per_row * unit / batch
        moved += steps * per_row * self._most_rows(batch, n) / batch + math.sqrt(steps) * sd * wide
        return _SLACK * self._growth * terms.step * moved

    def _most_rows(self, batch: int, n_rows: int) -> float:
        third = self._log_chance / 3
        return min(float(n_rows), batch + third + math.sqrt(third**2 + 2 * batch * self._log_chance))

    def _find_most_noise(self) -> float:
        """The noise of a step, per sensitivity, with all rows in every answer: batches need less, and so do snapshots
        that have a larger share of the noise."""
        if self._most_noise is None:
            self._most_noise = _SLACK * get_noise(plan_study(self._terms, 1, 1), STEP)
        return self._most_noise


def _values_at(weights: SparseWeights, lines: np.ndarray) -> FloatArray:
    """The values of some lines."""
    found = np.zeros((len(lines), weights.shape[1]))
    if len(weights.lines):
        places = np.minimum(np.searchsorted(weights.lines, lines), len(weights.lines) - 1)
        held = weights.lines[places] == lines
        found[held] = weights.values[places[held]]
    return found
