"""`tulle.audit.replay`: what differs, with the same noisy answers, has not come through an answer. No statistics."""

from __future__ import annotations

import contextlib
import logging
import math
import time
import warnings
from typing import Any

import numpy as np
import pytest

from tulle import Bounds, SparseRegressor
from tulle.audit import ReplayResult, replay
from tulle.audit.replay import NOT_FOR_RELEASE
from tulle.audit.visible import is_same
from tulle.methods import HardThresholding, StochasticHardThresholding
from tulle.trusted.clipped_sum import ClippedSum
from tulle.trusted.mechanisms import Gaussian

X = np.random.default_rng(0).uniform(-1, 1, (20, 3))
Y = X[:, 0]
OTHER = np.vstack([[1e6, 0, 0], X[1:]])


def noise(exact: Any, rng: np.random.Generator) -> Any:
    return exact + rng.normal(size=exact.shape)


def sound(X: Any, y: Any, ask: Any) -> Any:
    clipped = X / np.maximum(1, np.linalg.norm(X, axis=1))[:, None]
    return ask("sum", clipped.sum(axis=0), sensitivity=2.0, noise=noise)


def of(fit: Any, **more: Any) -> ReplayResult:
    return replay(fit, (X, Y), (OTHER, Y), **more)


def test_a_sound_function_is_the_same_on_a_neighbour() -> None:
    result = of(sound)
    assert result.sound
    assert result.answers == 1
    assert 0 < result.worst <= 1
    assert "does not prove privacy" in str(result)


def test_a_row_beyond_the_sensitivity_is_found_and_exact_answers_are_marked() -> None:
    result = of(lambda X, y, ask: ask("sum", X.sum(axis=0), sensitivity=2.0, noise=noise))
    assert not result.sound
    assert result.worst > 1e5
    text = str(result)
    assert "VIOLATION: sum: moved by" in text
    assert "exact answers" in text
    assert NOT_FOR_RELEASE in text


@pytest.mark.parametrize(("norm", "expected"), [("l1", 3.0), ("l2", math.sqrt(5)), ("linf", 2.0)])
def test_the_norm_is_that_of_the_sensitivity(norm: str, expected: float) -> None:
    rows = np.zeros((2, 2))
    other = np.array([[1.0, 2.0], [0.0, 0.0]])

    def fit(X: Any, y: Any, ask: Any) -> Any:
        return ask("sum", X.sum(axis=0), sensitivity=1.0, norm=norm, noise=noise)

    assert replay(fit, (rows, np.zeros(2)), (other, np.zeros(2))).worst == pytest.approx(expected)


def printing(X: Any, y: Any, ask: Any) -> Any:
    print(X.max())
    return sound(X, y, ask)


def warning(X: Any, y: Any, ask: Any) -> Any:
    if X.max() > 2:
        warnings.warn("a large row", stacklevel=1)
    return sound(X, y, ask)


def logging_rows(X: Any, y: Any, ask: Any) -> Any:
    logging.getLogger("tulle.test").info("largest %s", X.max())
    return sound(X, y, ask)


def failing(X: Any, y: Any, ask: Any) -> Any:
    if X.max() > 2:
        raise ValueError("too large")
    return sound(X, y, ask)


def exact(X: Any, y: Any, ask: Any) -> Any:
    return {"weights": sound(X, y, ask), "mean": X.mean()}


def last_bit(X: Any, y: Any, ask: Any) -> Any:
    """A difference that no printed number shows."""
    return sound(X, y, ask) * (1 + 1e-15 * (X.max() > 2))


def asks_twice(X: Any, y: Any, ask: Any) -> Any:
    return [sound(X, y, ask) for _ in range(1 + (X.max() > 2))]


def asks_less(X: Any, y: Any, ask: Any) -> Any:
    answers = [sound(X, y, ask) for _ in range(2 - (X.max() > 2))]
    return answers[0]


def asks_another(X: Any, y: Any, ask: Any) -> Any:
    return ask("large" if X.max() > 2 else "small", [0.0], sensitivity=1.0, noise=noise)


def sensitivity_of_rows(X: Any, y: Any, ask: Any) -> Any:
    return ask("sum", X.sum(axis=0), sensitivity=2 * np.linalg.norm(X, axis=1).max(), noise=noise)


def swallows(X: Any, y: Any, ask: Any) -> Any:
    first = sound(X, y, ask)
    if X.max() > 2:
        with contextlib.suppress(AssertionError):
            sound(X, y, ask)
    return first


@pytest.mark.parametrize(
    ("fit", "words"),
    [
        (printing, "out: "),
        (warning, "warnings: "),
        (logging_rows, "logged: "),
        (failing, "error: "),
        (exact, "mean: "),
        (last_bit, "result: "),
        (asks_twice, "more was asked than on the first rows: sum"),
        (asks_less, "1 answers were asked for, and 2 on the first rows"),
        (asks_another, "large was asked in the place of small"),
        (sensitivity_of_rows, "the sensitivity of sum depends on rows"),
        (swallows, "more was asked than on the first rows"),
    ],
)
def test_what_passes_the_answers_by_is_found(fit: Any, words: str) -> None:
    result = of(fit)
    assert not result.sound
    assert any(words in text for text in result.differences), result.differences


def test_a_fit_that_does_not_end_is_found() -> None:
    def slow(X: Any, y: Any, ask: Any) -> Any:
        if X.max() > 2:
            time.sleep(20)
        return sound(X, y, ask)

    assert "not done after 0.2 s" in of(slow, seconds=0.2).differences[0]


def test_other_randomness_is_the_same_in_both_fits() -> None:
    def batches(X: Any, y: Any, ask: Any) -> Any:
        chosen = ask.rng.permutation(len(X))[:5]
        return chosen, sound(X[chosen], y, ask)

    assert of(batches).sound


@pytest.mark.parametrize("method", [HardThresholding(n_iter=2), StochasticHardThresholding()])
def test_an_estimator_of_tulle_is_replayed_without_ado(method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """And with half of the sensitivity it is caught."""

    def fit(X: Any, y: Any, ask: Any) -> Any:
        bounds = Bounds(row_l2=1.0, label=1.0)
        return SparseRegressor(5.0, 1e-6, method=method, bounds=bounds, n_nonzero=2, random_state=1).fit(X, y)

    flipped = (np.vstack([[-1, 0, 0], X[1:]]), Y), (np.vstack([[1, 0, 0], X[1:]]), Y)
    result = replay(fit, *flipped)
    assert result.sound, str(result)
    assert result.answers >= 2
    honest = ClippedSum.sensitivity
    monkeypatch.setattr(ClippedSum, "sensitivity", lambda query, public: honest(query, public).times(1e-3))
    monkeypatch.setattr(ClippedSum, "one_unit", lambda query, public: 0.0)
    assert replay(fit, *flipped).worst > 1


def test_unrelated_rows_are_compared_by_what_is_seen_alone() -> None:
    with pytest.raises(ValueError, match="differ in 20 rows and are not neighbours"):
        replay(sound, (X, Y), (2 * X, Y))
    result = replay(sound, (X, Y), (50 * X, -Y), max_differing_rows=None)
    assert result.sound
    assert result.changes == ()
    assert not replay(exact, (X, Y), (50 * X, -Y), max_differing_rows=None).sound


def test_hooks_are_gone_afterwards_and_bad_norms_are_refused() -> None:
    release = Gaussian.release
    of(sound)
    assert Gaussian.release is release
    result = of(lambda X, y, ask: ask("sum", [1.0], sensitivity=1.0, norm="l3", noise=noise), show=lambda _: {})
    assert result.answers == 0  # refused in both fits


def test_values_are_compared_to_the_last_bit() -> None:
    assert is_same({"a": [np.array([math.nan])]}, {"a": [np.array([math.nan])]})
    assert not is_same(np.zeros(2000), np.r_[np.zeros(1999), 1e-300])
    assert not is_same(0.0, -0.0)
    assert not is_same(1, 1.0)
