"""Every exact answer moves by no more than its mechanism was told, whatever one person's rows are, and every fit ends.

See tests/sensitivity_replay.py for how it is found out. TULLE_REPLAY_SECONDS=600 draws pairs for so long in all, from
other seeds with TULLE_REPLAY_SEED; `pytest -s` prints how many there were and the worst ratios.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sensitivity_replay import (
    METHODS,
    Conversation,
    Pair,
    Tally,
    compile_kernels,
    draw_pair,
    in_folders,
    in_memory,
    replay,
    time_limit,
)

from tulle import Bounds
from tulle.audit.replay import copy_exact
from tulle.methods import FitAgain
from tulle.trusted.clipped_sum import ClippedSum
from tulle.trusted.mechanisms import Gaussian, Sensitivity

SECONDS = float(os.environ.get("TULLE_REPLAY_SECONDS", "0"))
SEED = int(os.environ.get("TULLE_REPLAY_SEED", "23"))
PAIRS, PAIRS_ON_DISK = 10, 3


@pytest.fixture(autouse=True, scope="module")
def kernels() -> None:
    compile_kernels()


def numbers(at_least: int) -> Iterator[int]:
    """As many as are asked for, or as there is time for."""
    end = time.monotonic() + SECONDS / (2 * len(METHODS))
    for number in count():
        if number >= at_least and time.monotonic() >= end:
            return
        yield number


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("place", ["memory", "disk"])
def test_no_answer_moves_further_than_its_sensitivity(method: str, place: str) -> None:
    tally, which = Tally(), list(METHODS).index(method)
    on_disk = place == "disk"
    with in_folders() as folders:
        for number in numbers(PAIRS_ON_DISK if on_disk else PAIRS):
            seed = [SEED, which, on_disk, number]
            replay(draw_pair(np.random.default_rng(seed), method, seed), tally, folders if on_disk else in_memory)
    print(f"{method}, {place}: {tally}")
    assert not tally.violations
    assert tally.pairs


@pytest.mark.parametrize("method", ["frank wolfe, incremental", "coordinate descent, incremental"])
@pytest.mark.parametrize("storage", [sp.csr_array, sp.csc_array])
@pytest.mark.parametrize("bound", [0.01, 1.0])
def test_one_row_does_not_decide_whether_a_fit_ends(method: str, storage: type, bound: float) -> None:
    """A row that is too long to count, with an entry as large as floats are."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (300, 4)) * (rng.random((300, 4)) < 0.5)
    y = (X[:, 0] > 0).astype(int)
    other = X.copy()
    other[5] = [1.7e308, 0.0, 0.0, 0.0]
    settings = {"epsilon": 1.0, "n_nonzero": 2, "bounds": Bounds(row_l2=bound)}
    pair = Pair("one row of 1.7e308", method, "logistic", (storage(X), storage(other)), (y, y), None, settings)
    tally = Tally()
    replay(pair, tally)
    assert tally.pairs == 1
    assert not tally.violations
    with time_limit(60.0, pair):  # with noise of its own too
        pair.fit(1, in_memory)


def test_surplus_rows_of_a_person_count_as_nothing_by_default() -> None:
    """With one row a person, whatever the others are; all that is released is the same."""
    rng = np.random.default_rng(0)
    X, groups = rng.standard_normal((60, 5)), np.arange(60) % 20
    y = (X[:, 0] > 0).astype(int)
    other = X.copy()
    other[20:] = 1.7e308 * rng.choice([-1.0, 1.0], (40, 5))
    settings = {"epsilon": 8.0, "n_nonzero": 2, "bounds": Bounds(row_l2=1.0)}
    for method in ("hard thresholding, gaussian", "screen and refine", "batches, shuffled"):
        pair = Pair(
            "surplus rows",
            method,
            "logistic",
            (X, other),
            (y, np.where(groups == np.arange(60), y, 1 - y)),
            groups,
            settings,
        )
        tally = Tally()
        replay(pair, tally)
        assert tally.pairs == 1
        assert not tally.violations
        assert max(ratio for name, ratio in tally.worst.items() if name != "certificate") == 0.0


def test_both_paths_after_a_check_are_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether private rows are like public ones is one of the answers: those of the first rows decide for the others.
    Both ways were gone, in public directions and by features alone."""
    check, paths = FitAgain._check, Counter[str]()

    def counted(self: FitAgain, ask: Any, public: Any) -> Any:
        view = check(self, ask, public)
        paths["failed" if view is None else "features" if view.mixing is None else "directions"] += 1
        return view

    monkeypatch.setattr(FitAgain, "_check", counted)
    tally = Tally()
    for number in range(30):
        replay(draw_pair(np.random.default_rng([41, number]), "fit again, public", number), tally)
    assert not tally.violations
    assert tally.worst.keys() >= {"Gaussian", "gradient", "certificate"}
    assert tally.worst["Gaussian"] > 0.5  # somebody's row moved a check or a spread by half of what was allowed
    assert min(paths[path] for path in ("failed", "features", "directions")) >= 2
    assert all(count % 2 == 0 for count in paths.values())  # a neighbour goes the same way


# --- the replay itself ----------------------------------------------------------------------------------------------


def test_an_answer_that_moves_too_far_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """With half the sensitivity some pair gives it away."""
    honest = ClippedSum.sensitivity
    monkeypatch.setattr(ClippedSum, "sensitivity", lambda query, public: honest(query, public).times(0.5))
    tally = Tally()
    for number in range(60):
        replay(draw_pair(np.random.default_rng([1, number]), "hard thresholding, gaussian", number), tally)
        if tally.violations:
            break
    assert tally.violations


def test_a_fit_that_does_not_end_is_seen() -> None:
    with pytest.raises(AssertionError, match=r"not done after 0.2 s: a slow fit"), time_limit(0.2, "a slow fit"):
        time.sleep(20)


def test_the_same_rows_move_nothing() -> None:
    pair = draw_pair(np.random.default_rng(3), "hard thresholding, gaussian")
    same = Pair("same", pair.method, pair.loss, pair.rows[:1] * 2, pair.targets[:1] * 2, pair.groups, pair.settings)
    tally = Tally()
    replay(same, tally)
    assert tally.worst == {"Gaussian": 0.0}


def test_the_hooks_are_gone_afterwards() -> None:
    release = Gaussian.release
    with Conversation("none", Tally()).listens():
        assert Gaussian.release is not release
    assert Gaussian.release is release


def test_exact_answers_are_copied() -> None:
    """A mechanism may go on with its answer in place."""
    answer = np.ones((2, 1))
    assert copy_exact(answer, Gaussian(1.0)) is not answer
    assert Sensitivity(l2=1.0) == Sensitivity(l2=1.0)  # as they are compared
