"""Exact composition of purely private releases."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
from scipy.special import gammaln

from tulle.trusted.accountants import Accountant, vouch_for
from tulle.trusted.events import FloatArray
from tulle.trusted.plan import Composition


class OptimalPureAccountant(Accountant):
    """Exact composition of randomised responses, the worst releases of their pure epsilons.

    No better bound holds for releases of which nothing but a pure epsilon is known (Kairouz, Oh, Viswanath 2015;
    docs/proofs/accounting.md, theorem 2'). Where epsilons differ every combination of answers is written out, as long
    as there are not too many.
    """

    name = "optimal composition of pure releases"

    # Combinations of answers that are still written out.
    _MANY_ANSWERS = 2**17
    # Chances are held as floats, and must be so precisely down to well below delta.
    _LEAST_DELTA = 1e-200

    def supports(self, composition: Composition, delta: float) -> bool:
        return (
            delta >= self._LEAST_DELTA
            and math.isfinite(sum(count * event.pure_epsilon() for event, count in composition))
            and math.prod(count + 1 for count in _pure_uses(composition).values()) <= self._MANY_ANSWERS
        )

    def epsilon(self, composition: Composition, delta: float) -> float:
        if not self.supports(composition, delta):
            return math.inf
        losses, chances, size = _randomised_responses(composition)
        # Chances err by a few units in the last place of the logarithms they are made of, losses by a few units of the
        # largest of them. The first is taken off delta, the second put on the result.
        room = delta * (1 - 4e-15 * (100 + size))

        def profile(j: int) -> float:
            """The delta at the j-th loss. All terms are positive: nothing cancels."""
            return float(np.sum(chances[:j] * -np.expm1(losses[j] - losses[:j])))

        low, high = 0, len(losses) - 1
        if profile(high) <= room:
            return 0.0
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if profile(middle) <= room else (low, middle)
        # Between two losses the profile is linear in exp(epsilon).
        slope = float(np.sum(chances[:high] * np.exp(losses[low] - losses[:high])))
        share = (room - profile(low)) / slope
        solved = losses[low] + math.log1p(-share) if share < 1 else -math.inf
        return float(max(solved, losses[high]) + 1e-15 * losses[0])


def _pure_uses(composition: Composition) -> Counter[float]:
    """How often each pure epsilon > 0 occurs."""
    uses: Counter[float] = Counter()
    for event, count in composition:
        if event.pure_epsilon() > 0:
            uses[event.pure_epsilon()] += count
    return uses


def _randomised_responses(composition: Composition) -> tuple[FloatArray, FloatArray, float]:
    """The positive privacy losses of all answers together, falling, and a last 0; their chances; a size of logarithms.

    A response of pure epsilon e has the loss e with odds exp(e) : 1, and else -e.
    """
    losses, logs, size = np.zeros(1), np.zeros(1), 0.0
    for epsilon, count in _pure_uses(composition).items():
        false = np.arange(count + 1.0)
        factorials = gammaln(false + 1)
        binomials = factorials[-1] - factorials - factorials[::-1]
        losses = np.add.outer(losses, (count - 2 * false) * epsilon).ravel()
        logs = np.add.outer(logs, binomials - count * math.log1p(math.exp(-epsilon)) - false * epsilon).ravel()
        size += float(factorials[-1])
    order = np.argsort(-losses, kind="stable")[: np.count_nonzero(losses > 0)]
    return np.append(losses[order], 0.0), np.append(np.exp(logs[order]), 0.0), size


vouch_for(OptimalPureAccountant())
