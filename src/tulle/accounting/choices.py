"""Many choices of one range as one Gaussian release.

One choice of bounded range epsilon is mu-GDP with mu² = (pi / 2) epsilon² / 4. Of k such choices, each made in view of
all that was released before, the whole is mu-GDP with mu² = v epsilon² / 4, where v is k and about one more. Proof:
docs/proofs/many_choices.md.
"""

from __future__ import annotations

import math

from tulle.trusted.accountants import Accountant, GaussianAccountant, vouch_for
from tulle.trusted.events import BoundedRangeEvent, GaussianEvent, NoisePerSensitivity
from tulle.trusted.plan import Composition

# What v is above k, for up to so many choices. `tests/accounting/test_choices.py` computes it with roundings upwards.
_ABOVE = ((1, math.pi / 2 - 1), (4, 0.56), (8, 0.64), (16, 0.71), (32, 0.80), (64, 0.90), (128, 1.03), (256, 1.20))
_BLOCK = _ABOVE[-1][0]

# More than floats can hide.
_ROUNDED_UP = 1 + 1e-12


def choices_square(count: int) -> float:
    """A v for which `count` adaptive choices of range epsilon are mu-GDP with mu² = v epsilon² / 4."""
    blocks, rest = divmod(count, _BLOCK)
    whole = blocks * (_BLOCK + _ABOVE[-1][1])
    return whole + (rest + next(above for most, above in _ABOVE if rest <= most) if rest else 0.0)


def merge_choices(composition: Composition) -> Composition:
    """The composition with all choices of one range replaced by the Gaussian release that they cost.

    Of one range only, the one that saves most: in what order choices of two ranges come could matter, and the proof is
    for one. The others stay, each by itself. The same composition where nothing is saved.
    """
    uses: dict[BoundedRangeEvent, int] = {}
    for event, count in composition:
        if type(event) is BoundedRangeEvent and 0 < event.epsilon < 1e100:  # beyond, squares overflow
            uses[event] = uses.get(event, 0) + count

    def saved(event: BoundedRangeEvent) -> float:
        return (uses[event] * choices_square(1) - choices_square(uses[event])) * event.epsilon**2

    best = max(uses, key=saved, default=None)
    if best is None or saved(best) <= 0:
        return composition
    mu = math.sqrt(choices_square(uses[best])) * best.epsilon / 2 * _ROUNDED_UP
    rest = tuple((event, count) for event, count in composition if event != best)
    return (*rest, (GaussianEvent(NoisePerSensitivity(1 / mu)), 1))


class ChoicesAccountant(Accountant):
    """The Gaussian accountant, with the choices of one range taken together."""

    name = "Gaussian differential privacy, choices taken together"

    def supports(self, composition: Composition, delta: float) -> bool:
        return delta > 0 and merge_choices(composition) is not composition

    def epsilon(self, composition: Composition, delta: float) -> float:
        return GaussianAccountant().epsilon(merge_choices(composition), delta)


vouch_for(ChoicesAccountant())
