"""Guarantees for zero-out adjacency, where one unit's rows count as nothing instead of being replaced.

Vouched for on use: a report prints a second, smaller epsilon only where every release of the plan is a clipped sum that
is covered here. The epsilon of budgets, ledgers and reports is that of replace-one, regardless of the result here.
Proofs: docs/proofs/zero_out.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from tulle.trusted.accountants import epsilon
from tulle.trusted.clipped_sum import ClippedSum
from tulle.trusted.mechanisms import Gaussian, Mechanism, TopK
from tulle.trusted.plan import Plan, Release
from tulle.trusted.queries import Affine, Magnitudes, Query

# Contributions of any sign: replacing one moves a sum by two bounds, leaving one out by one bound.
HALF = 0.5
# Rounding to a grid takes answers this part of the sensitivity further apart at most, and that part is not halved.
_ROUNDED = 2.0**-12
# Noise per sensitivity, times the root of the number of entries, up to which that is so.
_MOST_STEPS = 2.0**18
# Less noise than this is not covered: the grid of an answer could be that of the smallest floats.
_LEAST_NOISE = 1e-6


def zero_out_share(query: Query) -> float | None:
    """How far an answer moves where a unit counts as nothing, as a part of its replace-one sensitivity.

    Of a query that is resolved, by exact type; None where nothing smaller is proved.
    """
    if type(query) is ClippedSum:
        if not (query.non_negative or query.times == "itself"):
            return HALF
        return math.sqrt(0.5) if query.norm == "l2" else 1.0
    return zero_out_share(query.query) if type(query) in (Affine, Magnitudes) else None  # type: ignore[attr-defined]


def zero_out_epsilon(plan: Plan, shares: Mapping[str, float], n_entries: int, delta: float) -> float | None:
    """The epsilon that is proved for zero-out adjacency at a delta; None unless every release is covered.

    Parameters
    ----------
    plan : Plan
        What was released.
    shares : mapping of str to float
        By name of release, what the method vouches for: `zero_out_share` of every query that it asks under that name is
        at most this, in [1/2, 1].
    n_entries : int
        No answer has more entries.
    delta : float
        In [0, 1).
    """
    if plan.preliminary or plan.inexact or not plan.releases:
        return None
    covered = [_scale(release, shares.get(release.name), n_entries) for release in plan.releases]
    if any(release is None for release in covered):
        return None
    found = epsilon(Plan(tuple(release for release in covered if release is not None)), delta)
    return found if math.isfinite(found) else None


def _scale(release: Release, share: float | None, n_entries: int) -> Release | None:
    """A release with its noise relative to what zero-out moves; None where that is not proved to be less."""
    mechanism: Mechanism = release.mechanism
    if share is None or not HALF <= share <= 1 or mechanism.noise.value < _LEAST_NOISE:
        return None
    if type(mechanism) is Gaussian:
        if mechanism.noise.value * math.sqrt(n_entries) > _MOST_STEPS:
            return None
        return release.scaled(1 / min(share * (1 + _ROUNDED), 1.0))
    return release.scaled(1 / share) if type(mechanism) is TopK else None
