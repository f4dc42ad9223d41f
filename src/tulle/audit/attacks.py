"""Attacks: ways to turn what was released into one score that tells two worlds apart.

An attack is fitted on some runs; its threshold, its direction, and which attack is used at all are chosen on others;
and the bound is counted on a third, untouched part. However an attack was found, the bound is valid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

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
    first: FloatArray, second: FloatArray, delta: float, confidence: float, judge: Judge = ANY_LAW
) -> Verdict:
    """The bound of the attack that looks best on the first half of the runs, counted on the second half.

    Parameters
    ----------
    first, second : arrays of shape (runs, released numbers)
        What was released in the two worlds.
    delta : float
    confidence : float
    judge : Judge
        How counts become a bound, for the choice and for the verdict.
    """
    runs = min(len(first), len(second))
    learnt, chosen = runs // 4, runs // 2
    best: tuple[float, str, Score, float, bool] | None = None
    for name, fit in ATTACKS.items():
        score = fit(first[:learnt], second[:learnt])
        for swapped in (False, True):
            scores = _oriented(score, first[learnt:chosen], second[learnt:chosen], swapped)
            # With more confidence than the bound itself: else luck in rare events would choose the threshold.
            threshold, promise = choose_threshold(*scores, delta, 1 - (1 - confidence) / 100, bound=judge.bound)
            if best is None or promise > best[0]:
                best = (promise, name, score, threshold, swapped)
    assert best is not None
    _, name, score, threshold, swapped = best
    return counted_verdict(
        name, *_oriented(score, first[chosen:runs], second[chosen:runs], swapped), threshold, delta, confidence, judge
    )


def _oriented(score: Score, first: FloatArray, second: FloatArray, swapped: bool) -> tuple[FloatArray, FloatArray]:
    """High scores speak for the first world; swapped, low scores speak for the second."""
    return (-score(second), -score(first)) if swapped else (score(first), score(second))


def counted_verdict(
    name: str,
    scores: FloatArray,
    other: FloatArray,
    threshold: float,
    delta: float,
    confidence: float,
    judge: Judge = ANY_LAW,
) -> Verdict:
    """The bound of the event {score >= threshold}, fixed beforehand, on these runs."""
    runs = min(len(scores), len(other))
    scores, other = scores[:runs], other[:runs]
    hits, false_hits = int((scores >= threshold).sum()), int((other >= threshold).sum())
    bound = float(judge.bound(hits, false_hits, runs, delta, confidence))
    return Verdict(name, bound, judge.epsilon(bound, delta), runs, scores, other)
