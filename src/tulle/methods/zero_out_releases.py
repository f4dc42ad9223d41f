"""Which releases of which methods are clipped sums that move less where a unit counts as nothing than where it is
replaced. Proof: docs/proofs/zero_out.md.

By exact class, since a subclass may ask anything; and by where the class is defined, since an import would make every
measurement depend on these methods: an edit of one would run the experiments of all others again."""

from __future__ import annotations

from collections.abc import Mapping

from tulle.accounting.zero_out import HALF
from tulle.methods.base import Method

# The curvature is a mean of numbers >= 0, which leaving one out moves as far as replacing it.
_SHARES: dict[tuple[str, str], dict[str, float]] = {
    ("hard_thresholding", "HardThresholding"): {"step": HALF, "select": HALF, "values": HALF, "curvature": 1.0},
    ("coordinate_descent", "CoordinateDescent"): {"gradient": HALF},
    ("frank_wolfe", "FrankWolfe"): {"gradient": HALF},
}


def zero_out_shares(method: Method) -> Mapping[str, float]:
    """By name of release, at most what part of its sensitivity an answer of this method moves by; {} for most."""
    package, _, module = type(method).__module__.rpartition(".")
    return _SHARES.get((module, type(method).__qualname__), {}) if package == __package__ else {}
