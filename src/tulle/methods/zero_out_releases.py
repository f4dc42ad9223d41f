"""Which releases of which methods are clipped sums that move less where a unit counts as nothing than where it is
replaced. By exact class: a subclass may ask anything. Proof: docs/proofs/zero_out.md."""

from __future__ import annotations

from collections.abc import Mapping

from tulle.accounting.zero_out import HALF
from tulle.methods.base import Method
from tulle.methods.coordinate_descent import CoordinateDescent
from tulle.methods.frank_wolfe import FrankWolfe
from tulle.methods.hard_thresholding import HardThresholding

# The curvature is a mean of numbers >= 0, which leaving one out moves as far as replacing it.
_SHARES: dict[type, dict[str, float]] = {
    HardThresholding: {"step": HALF, "select": HALF, "values": HALF, "curvature": 1.0},
    CoordinateDescent: {"gradient": HALF},
    FrankWolfe: {"gradient": HALF},
}


def zero_out_shares(method: Method) -> Mapping[str, float]:
    """By name of release, at most what part of its sensitivity an answer of this method moves by; {} for most."""
    return _SHARES.get(type(method), {})
