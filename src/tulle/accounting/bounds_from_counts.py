"""From counts to a bound: what two worlds' hit rates say about epsilon or mu, at a stated confidence.

For any set A of outcomes, (epsilon, delta)-DP means P(A) <= e^epsilon Q(A) + delta. The set is fixed on other runs than
those that are counted, so the counts are binomial, and Clopper-Pearson bounds for both of them, each failing with half
of the allowed probability, give epsilon >= log((P_low - delta) / Q_high). Likewise mu-GDP means
Phi^-1(P(A)) - Phi^-1(Q(A)) <= mu, and the same bounds give mu >= Phi^-1(P_low) - Phi^-1(Q_high). A bounded range limits
logit(P(A)) - logit(Q(A)) in the same way. Proofs: docs/proofs/audit.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv, expit, logit, ndtr, ndtri

from tulle.trusted.events import FloatArray

# The least confidence at which right guesses of both worlds are counted together: docs/proofs/audit.md, lemma 3a.
LEAST_CONFIDENCE = 0.75

# bound(hits, false_hits, runs, delta, confidence): what counts prove.
Bound = Callable[[npt.ArrayLike, npt.ArrayLike, int, float, float], FloatArray]


def clopper_pearson(hits: npt.ArrayLike, runs: int, failure: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    """One-sided bounds on a hit rate from below and from above, each wrong with probability at most `failure`."""
    hits, failure = np.asarray(hits, dtype=float), np.asarray(failure, dtype=float)
    low = np.where(hits > 0, betaincinv(np.maximum(hits, 1), runs - np.maximum(hits, 1) + 1, failure), 0.0)
    high = np.where(
        hits < runs, betaincinv(np.minimum(hits, runs - 1) + 1, runs - np.minimum(hits, runs - 1), 1 - failure), 1.0
    )
    return low, high


def rate_bounds(
    hits: npt.ArrayLike, false_hits: npt.ArrayLike, runs: int, confidence: npt.ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """The hit rate from below and the false-hit rate from above, both true with probability `confidence`."""
    failure = (1 - np.asarray(confidence, dtype=float)) / 2
    low, _ = clopper_pearson(hits, runs, failure)
    _, high = clopper_pearson(false_hits, runs, failure)
    return low, high


def epsilon_lower_bound(
    hits: npt.ArrayLike, false_hits: npt.ArrayLike, runs: int, delta: float, confidence: float
) -> FloatArray:
    """The epsilon that hit counts prove, each of the two counts out of `runs`.

    Parameters
    ----------
    hits, false_hits : int or array of int
        How often the event happened in the world that it speaks for, and in the other.
    runs : int
        Runs in each world.
    delta : float
        In [0, 1).
    confidence : float
        In (0, 1); the bound is wrong with probability at most 1 - confidence.
    """
    low, high = rate_bounds(hits, false_hits, runs, confidence)
    with np.errstate(divide="ignore"):
        return np.maximum(np.log(np.maximum(low - delta, 0.0)) - np.log(high), 0.0)


def mu_lower_bound(
    hits: npt.ArrayLike, false_hits: npt.ArrayLike, runs: int, confidence: float, moved: float = 0.0
) -> FloatArray:
    """The mu that hit counts prove of a release that is mu-GDP, each of the two counts out of `runs`.

    Every mu for which the release is mu-GDP is at least this. Below 0 where the counts prove nothing.

    Parameters
    ----------
    hits, false_hits : int or array of int
        How often the event happened in the world that it speaks for, and in the other.
    runs : int
        Runs in each world.
    confidence : float
        In (0, 1); the bound is wrong with probability at most 1 - confidence.
    moved : float, default=0.0
        How far, in total variation, each world may lie from a release that is mu-GDP (finite precision).
    """
    low, high = rate_bounds(hits, false_hits, runs, confidence)
    return np.asarray(ndtri(np.maximum(low - moved, 0.0)) - ndtri(np.minimum(high + moved, 1.0)))


def range_lower_bound(
    hits: npt.ArrayLike, false_hits: npt.ArrayLike, runs: int, confidence: float, moved: float = 0.0
) -> FloatArray:
    """The bounded range that hit counts prove, each of the two counts out of `runs`.

    Every range that the release has is at least this. Below 0 where the counts prove nothing.

    Parameters
    ----------
    hits, false_hits : int or array of int
        How often the event happened in the world that it speaks for, and in the other.
    runs : int
        Runs in each world.
    confidence : float
        In (0, 1); the bound is wrong with probability at most 1 - confidence.
    moved : float, default=0.0
        As in `mu_lower_bound`.
    """
    low, high = rate_bounds(hits, false_hits, runs, confidence)
    return np.asarray(logit(np.maximum(low - moved, 0.0)) - logit(np.minimum(high + moved, 1.0)))


def right_guess_rate(hits: npt.ArrayLike, false_hits: npt.ArrayLike, runs: int, confidence: float) -> FloatArray:
    """The mean of P(A) and 1 - Q(A) from below: how often a guess of the world by the event is right, in both worlds
    together. One bound of twice the runs takes the place of two that hold at once.

    -inf for a confidence below 3/4, at which it is not proved (docs/proofs/audit.md, lemma 3a).
    """
    right = np.asarray(hits) + (runs - np.asarray(false_hits))
    low, _ = clopper_pearson(right, 2 * runs, 1 - confidence)
    return low if confidence >= LEAST_CONFIDENCE else np.full_like(low, -math.inf)


def mu_of_right_guesses(
    hits: npt.ArrayLike, false_hits: npt.ArrayLike, runs: int, confidence: float, moved: float = 0.0
) -> FloatArray:
    """As `mu_lower_bound`, from the rate of right guesses: mu-GDP means that it is at most Phi(mu / 2)."""
    return mu_of_guess_rate(right_guess_rate(hits, false_hits, runs, confidence) - moved)


def range_of_right_guesses(
    hits: npt.ArrayLike, false_hits: npt.ArrayLike, runs: int, confidence: float, moved: float = 0.0
) -> FloatArray:
    """As `range_lower_bound`, from the rate of right guesses: a range r means that its logit is at most r / 2."""
    return range_of_guess_rate(right_guess_rate(hits, false_hits, runs, confidence) - moved)


# Of the allowed failure, the part for pairs of runs that are guessed right: hardly any are both guessed wrong.
_SHARE_OF_RIGHT = 0.8


def paired_guess_rate(both_right: int, both_wrong: int, pairs: int, confidence: float) -> float:
    """The rate of `right_guess_rate` from below, where runs are in pairs, one of each world, and pairs are independent
    of each other. The two runs of a pair may depend on each other in any way; the same noise makes the bound close.

    Parameters
    ----------
    both_right, both_wrong : int
        In how many pairs the event happened in the world that it speaks for alone, and in the other alone.
    pairs : int
    confidence : float
        In (0, 1).
    """
    low, _ = clopper_pearson(both_right, pairs, _SHARE_OF_RIGHT * (1 - confidence))
    _, high = clopper_pearson(both_wrong, pairs, (1 - _SHARE_OF_RIGHT) * (1 - confidence))
    return (1.0 + float(low) - float(high)) / 2


def mu_of_guess_rate(rate: npt.ArrayLike) -> FloatArray:
    """The least mu that allows this rate of right guesses; -inf where it is 0 or less."""
    return np.asarray(2.0 * ndtri(np.maximum(rate, 0.0)))


def range_of_guess_rate(rate: npt.ArrayLike) -> FloatArray:
    """The least range that allows this rate of right guesses; -inf where it is 0 or less."""
    return np.asarray(2.0 * logit(np.maximum(rate, 0.0)))


def best_possible(runs: int, delta: float, confidence: float) -> float:
    """The largest epsilon that this many runs in each world can ever show: an attack that never errs."""
    return float(epsilon_lower_bound(runs, 0, runs, delta, confidence))


def choose_threshold(
    scores: FloatArray,
    other: FloatArray,
    delta: float,
    confidence: float,
    candidates: int = 2000,
    bound: Bound = epsilon_lower_bound,
) -> tuple[float, float]:
    """The threshold t whose event {score >= t} would prove most on these runs, and what it would prove."""
    pooled = np.sort(np.concatenate([scores, other]))
    # Evenly in rank and, for rare events, evenly in the logarithm of the rank from the top.
    ranks = np.concatenate([np.linspace(0, 1, candidates), 1 - np.geomspace(1 / len(pooled), 1, candidates)])
    thresholds = np.unique(pooled[np.clip((ranks * len(pooled)).astype(int), 0, len(pooled) - 1)])
    hits = len(scores) - np.searchsorted(np.sort(scores), thresholds, side="left")
    false_hits = len(other) - np.searchsorted(np.sort(other), thresholds, side="left")
    bounds = bound(hits, false_hits, min(len(scores), len(other)), delta, confidence)
    best = int(np.argmax(bounds))
    return float(thresholds[best]), float(bounds[best])


def allowed_hit_rate(false_rate: FloatArray, epsilon: float, delta: float) -> FloatArray:
    """The largest hit rate that (epsilon, delta)-DP allows at each false-hit rate."""
    if math.isinf(epsilon):
        return np.ones_like(false_rate)
    first = math.exp(epsilon) * false_rate + delta
    second = 1 - math.exp(-epsilon) * (1 - delta - false_rate)
    return np.clip(np.minimum(first, second), 0.0, 1.0)


def gaussian_hit_rate(false_rate: FloatArray, mu: float) -> FloatArray:
    """The largest hit rate that mu-GDP allows at each false-hit rate."""
    return np.asarray(ndtr(ndtri(false_rate) + mu))


def range_hit_rate(false_rate: FloatArray, span: float) -> FloatArray:
    """The largest hit rate that a bounded range allows at each false-hit rate: odds grow by e^span at most."""
    return np.asarray(expit(logit(false_rate) + span))
