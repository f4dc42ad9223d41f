"""A sequential test of the scale of noise: as few draws as it needs, instead of thousands."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

# The scales that a test has to tell from the stated one.
WRONG_SCALES = (2 / 3, 3 / 2)


def scale_is_right(noise: Iterable[float], law: Literal["laplace", "gaussian"], failure: float = 1e-6) -> bool:
    """Whether independent draws, divided by the stated scale, have scale 1: draws are taken until that is decided.

    The stated scale is refused when the mean of the likelihood ratios of 2/3 and of 3/2 against 1 reaches 1 / failure.
    If it is right, this mean is a martingale that starts at 1, so that it is ever refused with probability `failure` at
    most (Ville). It is accepted when both ratios are at most `failure`. If the scale is 2/3, the reciprocal of its
    ratio is such a martingale, so that it is accepted with probability `failure` at most; likewise 3/2. Raises if the
    draws end before.
    """
    logs = [0.0, 0.0]
    for draw in noise:
        for place, scale in enumerate(WRONG_SCALES):
            moved = abs(draw) * (1 - 1 / scale) if law == "laplace" else draw**2 / 2 * (1 - 1 / scale**2)
            logs[place] += moved - math.log(scale)
        if max(logs) > 0 and math.log(sum(map(math.exp, logs)) / 2) >= -math.log(failure):
            return False
        if max(logs) <= math.log(failure):
            return True
    raise AssertionError("the draws ended before the scale was decided")
