"""One-run auditing with many canaries (Steinke, Nasr, Jagielski 2023, theorem 5.2).

Each of m rows is one of two versions, by a fair coin of its own. One run of the fit; the attacker guesses the coins of
the r rows it is surest of and abstains on the others. If the fit is (epsilon, delta)-DP, the number of right guesses is
hardly larger than a binomial with success rate e^epsilon / (1 + e^epsilon).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.stats import binom

from tulle.audit.neighbours import differing_rows
from tulle.audit.result import AuditResult
from tulle.trusted.events import FloatArray
from tulle.trusted.randomness import keyed_generator


def one_run_p_value(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Upper bound on the probability of so many right guesses under (epsilon, delta)-DP."""
    rate = 1.0 / (1.0 + np.exp(-epsilon))
    tail = float(binom.sf(right - 1, guesses, rate))
    if delta == 0 or right == 0:
        return tail
    below = np.cumsum(binom.pmf(np.arange(right - 1, -1, -1), guesses, rate))
    steepest = float(np.max(below / np.arange(1, right + 1)))
    return min(1.0, tail + 2 * canaries * delta * steepest)


def one_run_bound(canaries: int, guesses: int, right: int, delta: float, confidence: float) -> float:
    """The epsilon that so many right guesses prove at this confidence."""
    failure = 1 - confidence
    if one_run_p_value(canaries, guesses, right, 0.0, delta) > failure:
        return 0.0
    low, high = 0.0, 40.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        refuted = one_run_p_value(canaries, guesses, right, middle, delta) <= failure
        low, high = (middle, high) if refuted else (low, middle)
    return low


def audit_one_run(
    fit: Callable[[Any, Any, np.random.Generator], Any],
    first: tuple[Any, Any],
    second: tuple[Any, Any],
    score: Callable[[Any], FloatArray],
    *,
    delta: float,
    claimed: float | None = None,
    guesses: int | None = None,
    confidence: float = 0.95,
    seed: int | None = None,
) -> AuditResult:
    """Audit a function by one run on rows whose versions were drawn by coins.

    Parameters
    ----------
    fit : callable
        fit(X, y, rng) -> what would be published.
    first, second : tuple (X, y)
        Two versions of every row, of the same shape. Each row is a canary.
    score : callable
        score(published) -> array with a number per row, large where the first version is likely.
    delta : float
        In [0, 1).
    claimed : float or None, default=None
        The epsilon that is claimed at `delta`.
    guesses : int or None, default=None
        How many rows to guess, fixed before the run; None is a third of them. Half of the guesses are for the first
        version (highest scores), half for the second (lowest).
    confidence : float, default=0.95
        In (0, 1).
    seed : int or None, default=None
        For a result that can be repeated.

    Returns
    -------
    AuditResult
        Its `runs` is the number of canaries.
    """
    if not 0 < confidence < 1 or not 0 <= delta < 1:
        raise ValueError(f"confidence must lie in (0, 1) and delta in [0, 1), got {confidence!r} and {delta!r}")
    start = time.monotonic()
    differing_rows(first, second)  # checks the shapes
    (X, y), (X_other, y_other) = ((np.asarray(a), np.asarray(b)) for a, b in (first, second))
    canaries = len(X)
    half = (2 * (canaries // 6) if guesses is None else guesses) // 2
    if not 0 < 2 * half <= canaries or guesses not in (None, 2 * half):
        raise ValueError(f"guesses must be an even number from 2 to the {canaries} rows, got {guesses!r}")
    coins = keyed_generator(seed, (0,)).random(canaries) < 0.5
    rows = np.where(coins.reshape(-1, *[1] * (X.ndim - 1)), X, X_other)
    published = fit(rows, np.where(coins, y, y_other), keyed_generator(seed, (1,)))
    scores = np.asarray(score(published), dtype=float)
    if scores.shape != (canaries,):
        raise ValueError(f"score must return one number per row, {canaries} in all; it returned shape {scores.shape}")
    order = np.argsort(scores)
    right = int(coins[order[-half:]].sum() + (~coins[order[:half]]).sum())
    return AuditResult(
        epsilon=one_run_bound(canaries, 2 * half, right, delta, confidence),
        delta=delta,
        confidence=confidence,
        claimed=claimed,
        attack=f"one run, {right} of {2 * half} guesses right",
        pair=f"{canaries} canaries, each one of two rows by a coin",
        runs=canaries,
        best_possible=one_run_bound(canaries, 2 * half, 2 * half, delta, confidence),
        seconds=time.monotonic() - start,
    )
