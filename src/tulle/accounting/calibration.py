"""Calibration: the least noise that keeps a plan within its budget.

Untrusted: what it finds is proved again by `tulle.trusted.accountants` before anything is released.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

from tulle.accounting.choices import ChoicesAccountant
from tulle.accounting.optimal_pure import OptimalPureAccountant
from tulle.accounting.privacy_loss import MixedLossAccountant, PrivacyLossAccountant
from tulle.accounting.zcdp import check_has_rho, rho_of, total_rho
from tulle.trusted.accountants import epsilon
from tulle.trusted.plan import Budget, Plan, Release, compose

# Accountants that prove plans besides those of the trusted package: importing them adds them.
FURTHER_ACCOUNTANTS = (PrivacyLossAccountant, MixedLossAccountant, OptimalPureAccountant, ChoicesAccountant)


def default_delta(n_rows: int) -> float:
    """The delta of a budget where none is asked for: a tenth of what would allow publishing a row, at most 1e-5."""
    return min(1e-5, 1 / (10 * n_rows))


def calibrate(releases: Sequence[Release], budget: Budget, preliminary: Sequence[Release] = ()) -> tuple[Release, ...]:
    """The releases with the least noise that meets the budget.

    Parameters
    ----------
    releases : sequence of Release
        Their noises are read as relative to each other: all are multiplied by one common factor.
    budget : Budget
    preliminary : sequence of Release
        Releases that come first and keep their noise: all together must meet the budget, composed as Gaussian
        differential privacy.

    Returns
    -------
    tuple of Release
        `epsilon(result, budget.delta)` is at most `budget.epsilon`, and within one part in a million of it; commonly
        within one in two thousand, always within one in a hundred, where privacy losses are added up. For a budget in
        rho: `total_rho(result)` is at most `budget.rho`, and within one part in a million of it.
    """
    return _calibrated(tuple(releases), budget, tuple(preliminary))


# Adding up privacy losses takes time: their calibration ends at this part of the budget.
_ENOUGH = 0.9995


@lru_cache(maxsize=256)  # the same plan is calibrated for every fold, clone and audit run
def _calibrated(releases: tuple[Release, ...], budget: Budget, preliminary: tuple[Release, ...]) -> tuple[Release, ...]:
    rho = rho_of(budget)
    target = budget.epsilon if rho is None else rho
    if rho is not None:
        check_has_rho(releases)

    def spent(log_factor: float) -> float:
        scaled = tuple(r.scaled(math.exp(log_factor)) for r in releases)
        plan = Plan(scaled, preliminary, together=bool(preliminary))
        return epsilon(plan, budget.delta) if rho is None else total_rho((*preliminary, *scaled))

    slow = (PrivacyLossAccountant(), MixedLossAccountant())
    sums = rho is None and not preliminary and any(one.supports(compose(releases), budget.delta) for one in slow)
    low, high = -1.0, 1.0
    while spent(high) > target:
        low, high = high, high + 2 * (high - low)
        if high > 300:
            names = ", ".join(r.name for r in releases)
            advice = (
                "with delta = 0 use pure mechanisms only (Laplace noise, noisy choices), as method='auto', "
                "'hard_thresholding', 'frank_wolfe' and 'knowledge_transfer' do by default"
            )
            if Plan(releases).inexact:
                advice = "finite precision takes more; use engine='plain', fewer iterations or a smaller epsilon"
            raise ValueError(f"no amount of noise on {names} gives {budget}: {advice}")
    while spent(low) <= target:
        low, high = low - 2 * (high - low), low
        if low < -300:
            raise ValueError(f"the plan costs nothing at any noise: {releases}")
    search = _secant_search if sums else _halving_search
    factor = math.exp(search(spent, low, high, target))
    return tuple(r.scaled(factor) for r in releases)


def _halving_search(spent: Callable[[float], float], low: float, high: float, target: float) -> float:
    """The end of a small interval at which at most the target is spent; it is so at `high` and not at `low`."""
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (low, middle) if spent(middle) <= target else (middle, high)
    return high


def _secant_search(spent: Callable[[float], float], low: float, high: float, target: float) -> float:
    """A place at which a little less than the target is spent, in few steps; at most that is at `high`, not at `low`.

    Secants of log(spent), where the same end is kept twice the value there is halved (the Illinois method).
    """

    def excess(place: float) -> float:
        """Log of spent over the middle of the wanted interval, kept within limits in which secants are useful."""
        share = spent(place) / (target * (1 + _ENOUGH) / 2)
        return max(min(math.log(max(share, 1e-300)), 3.0), -3.0)

    above, below, kept = excess(low), excess(high), 0
    while high - low > 1e-9 and spent(high) < _ENOUGH * target:
        middle = (low * below - high * above) / (below - above)
        # Never so close to an end that the interval would not shrink.
        middle = min(max(middle, low + 0.01 * (high - low)), high - 0.01 * (high - low))
        value = excess(middle)
        if spent(middle) <= target:
            high, below = middle, value
            above, kept = (above / 2 if kept > 0 else above), 1
        else:
            low, above = middle, value
            below, kept = (below / 2 if kept < 0 else below), -1
    return high
