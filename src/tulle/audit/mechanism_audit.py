"""Audits of mechanisms: draws on answers that are one sensitivity apart."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from tulle.accounting.bounds_from_counts import epsilon_lower_bound
from tulle.accounting.mechanism_words import describe_mechanism
from tulle.audit.judged_runs import judge_runs
from tulle.audit.result import AuditResult
from tulle.audit.runner import Schedule
from tulle.fast.install import install
from tulle.trusted.events import FloatArray
from tulle.trusted.mechanisms import Gaussian, Mechanism, Sensitivity, TopK

install()


@dataclass(frozen=True)
class _MechanismRuns:
    """Draws of a mechanism on answers that are one sensitivity apart, many at a time."""

    mechanism: Mechanism
    items: int = 20

    def fingerprint(self) -> str:
        return repr(self)

    def __call__(self, world: int, count: int, generator: np.random.Generator) -> FloatArray:
        unit = Sensitivity(l1=1.0, l2=1.0, linf=1.0)
        if isinstance(self.mechanism, TopK):
            # Every score may move by one: the first item gains, all others lose. Columns are independent draws.
            scores = np.zeros((self.items, count))
            if world == 0:
                scores[0], scores[1:] = 1.0, -1.0
            chosen = replace(self.mechanism, columns=count).release(scores, unit, generator, None)
            return np.asarray(chosen.T, dtype=float)
        # One coordinate per draw: noise is independent over coordinates.
        exact = np.full((count, 1), 1.0 if world == 0 else 0.0)
        return np.asarray(self.mechanism.release(exact, unit, generator, None))


def _first_item(first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray]:
    return first[:, 0], second[:, 0]


def _both_tails(first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Symmetric noise: mirrored at 1/2 the second world is the first, so every draw is evidence twice.

    A sum of independent counts with different rates is no more spread than a binomial of the mean rate (Hoeffding
    1956), so Clopper-Pearson holds for the pooled counts; the two inequalities add up to one for the mean rates.
    """
    return np.concatenate([first[:, 0], 1 - second[:, 0]]), np.concatenate([second[:, 0], 1 - first[:, 0]])


def _best_threshold(mechanism: Mechanism, runs: int, delta: float, confidence: float) -> float:
    """The threshold on the output that will prove most, if the mechanism's law is the one it claims.

    Should the law be another, the threshold is a worse one, and the bound is still valid.
    """
    from scipy.stats import laplace, norm

    if isinstance(mechanism, TopK):
        return 0.5
    law = norm if isinstance(mechanism, Gaussian) else laplace
    scale = mechanism.noise.value
    thresholds = (np.arange(-400, 400) + 0.5) * scale / 8
    hits, false_hits = (np.round(runs * law.sf(thresholds - mean, scale=scale)) for mean in (1.0, 0.0))
    bounds = epsilon_lower_bound(hits, false_hits, runs, delta, confidence)
    return float(thresholds[np.argmax(bounds)])


def mechanism_runs(mechanism: Mechanism) -> tuple[_MechanismRuns, str]:
    """The draws of a mechanism and their name; an error where it has no noise, or no answer."""
    if not 0 < mechanism.noise.value < math.inf:
        raise ValueError(f"only a mechanism with finite noise > 0 can be audited, got {mechanism!r}")
    return _MechanismRuns(mechanism), f"{describe_mechanism(mechanism)}, answers one sensitivity apart"


def audit_mechanism(
    mechanism: Mechanism,
    *,
    delta: float,
    claimed: float | None = None,
    runs: int = 1_000_000,
    confidence: float = 0.95,
    seed: int | None = None,
    n_jobs: int = 1,
    verbose: int = 0,
) -> AuditResult:
    """Audit one use of a mechanism on answers that are one sensitivity apart.

    Parameters
    ----------
    mechanism : Mechanism
        Gaussian, Laplace or TopK, with its noise.
    delta : float
        In [0, 1).
    claimed : float or None, default=None
        The epsilon that is claimed at `delta`.
    runs : int, default=1_000_000
        Draws in each world.
    confidence : float, default=0.95
        In (0, 1).
    seed : int or None, default=None
        For a result that can be repeated.
    n_jobs : int, default=1
        Processes.
    verbose : int, default=0
        1 shows progress.

    Returns
    -------
    AuditResult
    """
    subject, what = mechanism_runs(mechanism)
    # The likelihood ratio increases with the output: additive noise with a log-concave density, or the choice itself.
    schedule = Schedule(runs, min(runs, 100_000), seed, n_jobs, verbose=verbose)
    threshold = _best_threshold(mechanism, runs if isinstance(mechanism, TopK) else 2 * runs, delta, confidence)
    return judge_runs(
        subject,
        schedule,
        what,
        delta=delta,
        confidence=confidence,
        claimed=claimed,
        known=(_first_item if isinstance(mechanism, TopK) else _both_tails, threshold),
    )
