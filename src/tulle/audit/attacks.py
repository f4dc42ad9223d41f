"""Attacks: ways to turn what was released into one score that tells two worlds apart.

An attack is fitted on some runs; its threshold, its direction, and which attack is used at all are chosen on others;
and the bound is counted on a third, untouched part. However an attack was found, the bound is valid.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tulle.accounting.bounds_from_counts import choose_threshold
from tulle.audit.judges import ANY_LAW, Judge
from tulle.trusted.events import FloatArray

Score = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True)
class Verdict:
    """What an attack proved on the runs that it was not chosen on: the judge's own bound, and the epsilon it gives."""

    attack: str
    bound: float
    epsilon: float
    runs: int
    scores: FloatArray
    other: FloatArray


def linear_score(first: FloatArray, second: FloatArray) -> Score:
    """Fisher's linear discriminant with a small ridge: the likelihood ratio where the noise is Gaussian."""
    both = np.vstack([first, second])
    scale = both.std(axis=0)
    scale[scale == 0] = 1.0
    difference = (first.mean(axis=0) - second.mean(axis=0)) / scale
    centred = np.vstack([first - first.mean(axis=0), second - second.mean(axis=0)]) / scale
    covariance = centred.T @ centred / len(centred)
    direction = np.linalg.solve(covariance + 1e-3 * np.eye(len(scale)), difference) / scale
    return lambda runs: runs @ direction


def coordinate_score(first: FloatArray, second: FloatArray) -> Score:
    """The one released number whose means differ most, in standard errors."""
    spread = np.sqrt(first.var(axis=0) + second.var(axis=0)) + 1e-12
    gap = (first.mean(axis=0) - second.mean(axis=0)) / spread
    best = int(np.argmax(np.abs(gap)))
    sign = 1.0 if gap[best] >= 0 else -1.0
    return lambda runs: sign * runs[:, best]


def _on_support(fit: Callable[[FloatArray, FloatArray], Score]) -> Callable[[FloatArray, FloatArray], Score]:
    def fitted(first: FloatArray, second: FloatArray) -> Score:
        score = fit((first != 0).astype(float), (second != 0).astype(float))
        return lambda runs: score((runs != 0).astype(float))

    return fitted


ATTACKS: dict[str, Callable[[FloatArray, FloatArray], Score]] = {
    "linear discriminant": linear_score,
    "one coordinate": coordinate_score,
    "support membership": _on_support(coordinate_score),
    "linear discriminant of the support": _on_support(linear_score),
}


def strongest_verdict(
    first: FloatArray,
    second: FloatArray,
    delta: float,
    confidence: float,
    judge: Judge = ANY_LAW,
    splits: int = 1,
) -> Verdict:
    """The bound of the attack that looks best on other runs than those on which it is counted.

    Parameters
    ----------
    first, second : arrays of shape (runs, released numbers)
        What was released in the two worlds.
    delta : float
    confidence : float
    judge : Judge
        How counts become a bound, for the choice and for the verdict.
    splits : int, default=1
        1: the first half of the runs chooses, the second half is counted. k > 1: each of k parts is counted with an
        attack that was chosen on all others, at k times the confidence's distance from 1, and the largest bound is
        taken.
    """
    runs = min(len(first), len(second))
    if splits == 1:
        half = runs // 2
        return _verdict_on(first[:half], second[:half], first[half:runs], second[half:runs], delta, confidence, judge)
    parts = np.array_split(np.arange(runs), splits)
    each = split_confidence(confidence, splits)
    verdicts = []
    for part in parts:
        others = np.setdiff1d(np.arange(runs), part)
        verdicts.append(_verdict_on(first[others], second[others], first[part], second[part], delta, each, judge))
    best = max(verdicts, key=lambda verdict: verdict.bound)
    return replace(best, attack=f"{best.attack}, strongest of {splits} parts", epsilon=max(v.epsilon for v in verdicts))


def split_confidence(confidence: float, splits: int) -> float:
    """The confidence of each of several bounds that are true together with the stated one (union bound)."""
    return 1 - (1 - confidence) / splits


def _verdict_on(
    first: FloatArray,
    second: FloatArray,
    counted: FloatArray,
    counted_other: FloatArray,
    delta: float,
    confidence: float,
    judge: Judge,
) -> Verdict:
    """The attack that looks best on `first` and `second`, counted on the other runs."""
    learnt = len(first) // 2
    best: tuple[float, str, Score, float, bool, Judge] | None = None
    for name, fit in ATTACKS.items():
        score = fit(first[:learnt], second[:learnt])
        for swapped, way in itertools.product((False, True), judge.ways(confidence)):
            scores = orient(score, first[learnt:], second[learnt:], swapped)
            # With more confidence than the bound itself: else luck in rare events would choose the threshold.
            threshold, promise = choose_threshold(*scores, delta, 1 - (1 - confidence) / 100, bound=way.promise)
            if best is None or promise > best[0]:
                best = (promise, name, score, threshold, swapped, way)
    assert best is not None
    _, name, score, threshold, swapped, judge = best
    thresholds = spread_thresholds(threshold, *orient(score, first[learnt:], second[learnt:], swapped))
    return counted_verdict(name, *orient(score, counted, counted_other, swapped), thresholds, delta, confidence, judge)


def spread_thresholds(best: float, scores: FloatArray, other: FloatArray, points: int = 16) -> FloatArray:
    """The best threshold first, then others at hit rates and miss rates from 1 % to 50 %, from the same runs."""
    pooled = np.concatenate([scores, other])
    rare = np.geomspace(0.01, 0.5, points // 2)
    return np.concatenate([[best], np.quantile(pooled, np.concatenate([1 - rare, rare[:-1]]))])


def orient(score: Score, first: FloatArray, second: FloatArray, swapped: bool) -> tuple[FloatArray, FloatArray]:
    """High scores speak for the first world; swapped, low scores speak for the second."""
    return (-score(second), -score(first)) if swapped else (score(first), score(second))


def counted_verdict(
    name: str,
    scores: FloatArray,
    other: FloatArray,
    thresholds: npt.ArrayLike,
    delta: float,
    confidence: float,
    judge: Judge = ANY_LAW,
) -> Verdict:
    """The bound of the events {score >= threshold}, fixed beforehand, on these runs."""
    runs = min(len(scores), len(other))
    scores, other = scores[:runs], other[:runs]
    bound, epsilon = judge.count(scores, other, np.atleast_1d(thresholds), delta, confidence)
    return Verdict(name, bound, epsilon, runs, scores, other)


def paired_verdict(
    name: str, scores: FloatArray, other: FloatArray, threshold: float, delta: float, confidence: float, judge: Judge
) -> Verdict:
    """The bound of one event {score >= threshold}, fixed beforehand, on runs that are in pairs."""
    bound, epsilon = judge.count_pairs(scores, other, threshold, delta, confidence)
    return Verdict(name, bound, epsilon, len(scores), scores, other)
