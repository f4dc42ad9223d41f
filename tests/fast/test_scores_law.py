"""Scores on demand: the law of a draw, in corners and where draws end, too.

Statistical tests fix their seeds and would fail a correct engine with probability 1e-6 each (`FALSE_ALARM`).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from followed_walks import (
    FALSE_ALARM,
    KINDS,
    Problem,
    Rationed,
    candidate,
    every_kind,
    every_loss,
    excess,
    law,
    log_weights,
    p_value,
    problem,
    random_moves,
    saved,
    tally,
    targets_for,
    upper_bounds,
)
from scipy import stats

from tulle.backends.known_bounds import KnownBounds
from tulle.fast import scores_on_demand as following
from tulle.fast.coordinate_path import CoordinatePath
from tulle.fast.scores_on_demand import Follower, Kind
from tulle.methods.loss_functions import Logistic, Loss, Squared
from tulle.trusted.events import FloatArray
from tulle.trusted.rows import Rows

# --- the law of a draw ---


def stale_state(loss: Loss, kind: Kind, sharpness: float, level: float = 0.6) -> tuple[FloatArray, Follower]:
    """A follower some moves after its last full gather, and the true sums."""
    rows = problem(loss, 9, 120, 30, 0.1, intercept_value=0.4, units=True, scaled=True)
    walk, generator = CoordinatePath(np.zeros((31, 1))), np.random.default_rng(10)
    follower = rows.follower(walk)
    for t in range(1, 9):
        follower.follow(walk.point, level)
        coordinate, sign = follower.draw(kind, sharpness, generator)
        walk.move(1 - 1 / (t + 6), np.array([coordinate]), np.array([3.0 * sign / (t + 6)]))
    follower.follow(walk.point, level)
    return rows.sums(walk, level), follower


@pytest.mark.parametrize("sharpness", [0.02, 0.5, 2.0], ids=["near uniform", "in between", "concentrated"])
@every_kind
@every_loss
def test_draws_have_the_law_of_the_exponential_mechanism(loss: Loss, kind: Kind, sharpness: float) -> None:
    """By chi-square: the first draw after a few moves, each time from the same stale state, and then many in a row,
    which tighten the bounds; after that from all sums taken anew."""
    exact, follower = stale_state(loss, kind, sharpness)
    expected = law(exact, kind, sharpness)
    assert p_value(tally(follower, kind, sharpness, 3000, 11, saved(follower)), expected) > FALSE_ALARM
    assert p_value(tally(follower, kind, sharpness, 3000, 12), expected) > FALSE_ALARM
    follower._refreshed(follower._draw.kind, sharpness)
    assert p_value(tally(follower, kind, sharpness, 1000, 13, saved(follower)), expected) > FALSE_ALARM


@every_kind
def test_a_wrong_weight_is_seen_in_the_law(kind: Kind) -> None:
    """One bound lowered by 1 below the truth, or the sharpness off by a third: chi-square rejects both."""
    exact, follower = stale_state(Squared(), kind, 0.5)
    expected = law(exact, kind, 0.5)
    likely = int(np.argmax(log_weights(exact, kind, 0.5)))
    put_back = saved(follower)

    def lower_one_bound() -> None:
        put_back()
        place = follower._weights.place[likely]
        bound = upper_bounds(follower)[likely]
        follower._weights.log[place] -= bound - log_weights(exact, kind, 0.5)[likely] + 1.0
        for b in range(len(follower._weights.top)):
            follower._kernels._sum_block(follower._weights, b)

    assert p_value(tally(follower, kind, 0.5, 6000, 14, lower_one_bound), expected) < FALSE_ALARM
    put_back()
    assert p_value(tally(follower, kind, 2 / 3, 6000, 15), expected) < FALSE_ALARM


def test_signs_follow_the_slope() -> None:
    """-e_j descends where the slope sum is positive: score -g for +e_j and +g for -e_j. One coordinate, exact odds."""
    for target, share in ((1.0, 1 / (1 + np.exp(-1.2))), (-1.0, 1 / (1 + np.exp(1.2)))):
        dense, targets = np.ones((1, 1)), np.array([target])
        rows = Problem(Rows(sp.csr_array(dense), targets), dense, targets, Squared(), 0.0, None)
        path = CoordinatePath(np.zeros((1, 1)))
        follower = rows.follower(path)
        follower.follow(path.point, 2.0)
        counts = tally(follower, "vertices", 0.6, 5000, 16)
        assert stats.binomtest(int(counts[0]), 5000, share).pvalue > FALSE_ALARM


@pytest.mark.parametrize("way", ["too much work", "more draws"])
@every_kind
def test_starting_over_does_not_change_the_law(way: str, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """Draws that give up after one candidate and gather all sums, or ask for more uniforms, time and again."""
    exact, follower = stale_state(Logistic(), kind, 1.0)
    kernels, seen = follower._kernels, []

    def spy(*arguments: Any) -> tuple[int, float]:
        seen.append(kernels.draw_coordinate(*arguments))
        return seen[-1]

    follower._kernels = SimpleNamespace(**{**vars(kernels), "draw_coordinate": spy})
    if way == "too much work":
        follower._entries = 0
    else:
        monkeypatch.setattr(following, "_UNIFORMS", 6)
        monkeypatch.setattr(following, "_ROUNDS", 3)
    counts = tally(follower, kind, 1.0, 4000, 17, saved(follower))
    wanted = kernels.TOO_MUCH_WORK if way == "too much work" else kernels.MORE_DRAWS
    assert sum(coordinate == wanted for coordinate, _ in seen) > 500
    assert p_value(counts, law(exact, kind, 1.0)) > FALSE_ALARM


@pytest.mark.parametrize("beside", ["in the leader's block", "in other blocks"])
def test_others_keep_their_odds_when_the_leader_falls(beside: str) -> None:
    """One column leads by thousands of log units and then falls to nothing: the rest must neither vanish nor go
    uniform. Columns have rows of their own, so that only the leader's sum moves."""
    columns, sharpness = 120, 10.0
    generator = np.random.default_rng(18)
    dense = np.kron(np.eye(columns), np.ones((2, 1)))
    targets = np.repeat(0.2 * generator.random(columns), 2)
    leader = 100
    targets[2 * leader : 2 * leader + 2] = 500.0
    if beside == "in other blocks":
        dense[2 * leader] *= 3.0  # by falling spread, the leader comes first and stands alone
    rows = Problem(Rows(sp.csr_array(dense), targets), dense, targets, Squared(), 0.0, None)
    walk = CoordinatePath(np.zeros((columns, 1)))
    follower = rows.follower(walk)
    follower.follow(walk.point, 1e4)
    assert follower.draw("vertices", sharpness, generator) == (leader, 1.0)
    weights = follower._weights
    block = int(np.searchsorted(weights.first, weights.place[leader], side="right")) - 1
    assert (weights.first[block + 1] - weights.first[block] > 4) == (beside == "in the leader's block")
    best = float(np.dot(dense[:, leader], targets) / np.dot(dense[:, leader], dense[:, leader]))
    walk.move(1.0, np.array([leader]), np.array([best]))
    follower.follow(walk.point, 1e4)
    exact = rows.sums(walk, 1e4)
    expected = law(exact, "vertices", sharpness)
    counts = tally(follower, "vertices", sharpness, 6000, 19, saved(follower))
    assert p_value(counts, expected) > FALSE_ALARM
    assert p_value(tally(follower, "vertices", sharpness, 6000, 20), expected) > FALSE_ALARM
    uniform = np.full(2 * columns, 1 / (2 * columns))
    assert p_value(counts, uniform) < FALSE_ALARM


# --- rows that count as nothing, and corners ---


def test_rows_that_are_not_numbers_count_as_nothing() -> None:
    """Targets that are not numbers and entries that are not finite leave the sums of all other rows alone."""
    base = problem(Squared(), 30, 40, 15, 0.3, intercept_value=0.5)
    generator = np.random.default_rng(31)
    dense, targets = base.dense[:, :-1].copy(), base.targets.copy()
    targets[3], targets[4] = np.nan, np.inf
    dense[5, 2], dense[6, 1], dense[7, 0] = np.inf, np.nan, -np.inf
    poisoned = Rows(sp.csr_array(dense), targets)
    gone = np.isin(np.arange(40), [3, 4, 5, 6, 7])
    walk = CoordinatePath(np.zeros((16, 1)))
    follower = Follower(poisoned.blocks[0], walk.point.start, Squared(), 0.5, None)
    clean = Rows(sp.csr_array(base.dense[~gone, :-1]), base.targets[~gone])
    reference = Problem(clean, base.dense[~gone], base.targets[~gone], Squared(), 0.5, None)
    for _ in random_moves(walk, generator, 15, []):
        follower.follow(walk.point, 0.5)
        follower.draw("vertices", 1.0, Rationed(32, 500))  # type: ignore[arg-type]
        np.testing.assert_allclose(follower.sums(), reference.sums(walk, 0.5), rtol=0, atol=1e-12)


@pytest.mark.parametrize("units", [False, True], ids=["no units", "units"])
@every_loss
def test_neighbouring_rows_move_sums_by_at_most_the_sensitivity(loss: Loss, units: bool) -> None:
    """One row replaced by any other, extreme ones and ones that are not numbers included, after the bounds are
    enforced as in a fit: every sum moves by at most 2 C, and some pair moves one by nearly that."""
    generator, bounds = np.random.default_rng(33), KnownBounds(2.0, 1.0, 2.0, False)
    base = problem(loss, 34, 20, 8, 0.4)
    extremes = [0.0, 1.0, -1.0, 1e6, -1e200, 1e-300, np.nan, np.inf]
    scale = np.exp(generator.uniform(-1, 1, 9)) if units else None
    level, largest = 0.4, 0.0
    for _ in range(40):
        sums = []
        walk = CoordinatePath(np.zeros((9, 1)))
        list(random_moves(walk, generator, 6, []))
        for _ in range(2):
            dense, targets = base.dense.copy(), base.targets.copy()
            dense[0] = generator.choice(extremes, 8, p=[0.4, 0.2, 0.2, 0.06, 0.06, 0.06, 0.01, 0.01])
            targets[0] = generator.choice([-1.0, 1.0]) if loss.kind == "classification" else generator.choice(extremes)
            rows = Rows(sp.csr_array(dense), targets)
            bounds.clip(rows, loss)
            follower = Follower(rows.blocks[0], walk.point.start, loss, 1.0, scale)
            follower.follow(walk.point, level)
            sums.append(follower.sums())
            assert np.all(np.isfinite(sums[-1]))
        largest = max(largest, float(np.abs(sums[0] - sums[1]).max()))
    assert 1.2 * level < largest <= 2 * level * (1 + 1e-12)


def corner(dense: FloatArray, intercept_value: float = 0.0, active: Any = None) -> tuple[Problem, CoordinatePath]:
    targets = np.where(np.arange(len(dense)) % 2, 1.0, -1.0)
    rows = Problem(Rows(sp.csr_array(dense), targets, active), dense, targets, Logistic(), intercept_value, None)
    if intercept_value:
        rows.dense = np.hstack([dense, np.full((len(dense), 1), intercept_value)])
    return rows, CoordinatePath(np.zeros((rows.parameters, 1)))


CORNERS: dict[str, tuple[FloatArray, float, Any]] = {
    "one row": (np.array([[1.0, 0.0, -2.0]]), 0.0, None),
    "one feature": (np.ones((5, 1)), 0.0, None),
    "one entry": (np.ones((1, 1)), 0.0, None),
    "no entries": (np.zeros((5, 4)), 0.0, None),
    "no entries but a constant": (np.zeros((5, 4)), 0.5, None),
    "no row counts": (np.ones((4, 3)), 0.5, np.zeros(4, dtype=bool)),
    "some rows do not count": (np.ones((4, 3)), 0.5, np.array([True, False, True, False])),
    "empty columns": (np.eye(6)[:, [0, 0, 3, 3, 3]] * np.array([1, 0, 1, 0, 0]), 0.0, None),
}


@pytest.mark.parametrize("sharpness", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("level", [0.0, 0.3, 1e9])
@pytest.mark.parametrize("name", CORNERS.keys())
def test_draws_come_to_an_end_in_corners(name: str, level: float, sharpness: float) -> None:
    """Few rows, few columns, no entries, no rows that count, a level of 0, weights that are all alike or far apart."""
    for kind in KINDS:
        rows, walk = corner(*CORNERS[name])
        follower, generator = rows.follower(walk), Rationed(35, 1000)
        for t in range(1, 8):
            follower.follow(walk.point, level)
            coordinate, sign = follower.draw(kind, sharpness, generator)  # type: ignore[arg-type]
            assert 0 <= coordinate < rows.parameters
            exact = rows.sums(walk, level)
            assert law(exact, kind, sharpness)[candidate(follower, (coordinate, sign))] > 1e-9
            assert excess(follower, exact, kind, sharpness) <= 1e-9 * max(1.0, sharpness)
            walk.move(1 - 2 / (t + 2), np.array([coordinate]), np.array([8 / (t + 2) * sign]))


@pytest.mark.parametrize("name", ["no entries", "no row counts", "some rows do not count"])
def test_corners_have_the_right_law(name: str) -> None:
    """Where nothing counts, all candidates are alike."""
    rows, walk = corner(*CORNERS[name])
    follower = rows.follower(walk)
    follower.follow(walk.point, 1.0)
    expected = law(rows.sums(walk, 1.0), "vertices", 1.0)
    assert p_value(tally(follower, "vertices", 1.0, 3000, 36), expected) > FALSE_ALARM
    if name != "some rows do not count":
        np.testing.assert_allclose(expected, expected[0])


def test_an_infinite_slope_counts_as_nothing_even_where_nothing_is_clipped() -> None:
    """Without privacy the level is infinite; a target that is not finite must not reach the sums."""
    rows = Rows(sp.csr_array(np.ones((3, 2))), np.array([1.0, np.inf, 2.0]))
    path = CoordinatePath(np.zeros((2, 1)))
    follower = Follower(rows.blocks[0], path.point.start, Squared(), 0.0, None)
    follower.follow(path.point, np.inf)
    np.testing.assert_array_equal(follower.sums(), [-3.0, -3.0])
    assert follower.sum_of(1) == -3.0


# --- draws that end ---


@every_kind
def test_a_draw_ends_whatever_the_state_is(kind: Kind) -> None:
    """Bounds that are no numbers never accept a candidate: after a public number of proposals all sums are taken."""
    rows = problem(Logistic(), intercept_value=0.6)
    walk = CoordinatePath(np.zeros((rows.parameters, 1)))
    follower = rows.follower(walk)
    follower.follow(walk.point, 0.5)
    follower.draw(kind, 2.0, np.random.default_rng(0))
    for array in (follower._path.drift, follower._weights.spread):
        array[:] = np.nan
    coordinate, sign = follower.draw(kind, 2.0, Rationed(1, 1000))  # type: ignore[arg-type]
    assert 0 <= coordinate < rows.parameters
    assert sign in (-1.0, 1.0)


@every_kind
def test_a_draw_from_all_sums_has_the_same_law(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = problem(Squared(), intercept_value=0.6, features=12, density=0.4)
    walk = CoordinatePath(np.zeros((rows.parameters, 1)))
    follower = rows.follower(walk)
    follower.follow(walk.point, 0.5)
    monkeypatch.setattr(following, "_MOST_ROUNDS", 0)
    sharpness = 0.6
    counts = tally(follower, kind, sharpness, 20_000, 5)
    right = law(rows.sums(walk, 0.5), kind, sharpness)
    assert p_value(counts, right) > FALSE_ALARM
    assert p_value(counts, law(rows.sums(walk, 0.5), kind, 1.3 * sharpness)) < FALSE_ALARM


@pytest.mark.parametrize("rounds", [1, 3])
def test_where_the_draw_is_left_off_does_not_change_its_law(rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Proposals that are refused say nothing of who is drawn in the end: few of them, and then all sums."""
    rows = problem(Squared(), features=12, density=0.4)
    walk = CoordinatePath(np.zeros((rows.parameters, 1)))
    follower = rows.follower(walk)
    follower.follow(walk.point, 0.5)
    monkeypatch.setattr(following, "_UNIFORMS", 6)  # one candidate a round
    monkeypatch.setattr(following, "_MOST_ROUNDS", rounds)
    monkeypatch.setattr(following, "_ROOM", 2.0)  # loose bounds: many candidates are refused
    monkeypatch.setattr(following, "_STANDS_OUT", np.inf)
    taken, all_sums = [], Follower._draw_from_all
    monkeypatch.setattr(Follower, "_draw_from_all", lambda *a: taken.append(0) or all_sums(*a))
    counts = tally(follower, "magnitudes", 0.6, 6_000, 5)
    assert 300 < len(taken) < 5_700
    assert p_value(counts, law(rows.sums(walk, 0.5), "magnitudes", 0.6)) > FALSE_ALARM


def test_a_row_that_must_be_scaled_far_down_moves_by_its_scaled_entries() -> None:
    """Its raw entries times the amount of a move would be beyond all floats."""
    dense = np.array([[1e139, 0.0], [0.0, 1.0], [1.0, 1.0]])
    rows = Rows(sp.csr_array(dense), np.array([1.0, -1.0, 1.0]))
    rows.clip_rows(1e-100)
    walk = CoordinatePath(np.zeros((2, 1)))
    follower = Follower(rows.blocks[0], walk.point.start, Logistic(), 0.0, None)  # type: ignore[arg-type]
    follower.follow(walk.point, 1e-100)
    walk.move(1.0, np.array([0]), np.array([1e200]))
    follower.follow(walk.point, 1e-100)
    np.testing.assert_allclose(follower._path.z, [1e100, 0.0, np.sqrt(0.5) * 1e100], rtol=1e-12)
    assert np.isfinite(follower._path.now).all()
    assert np.isfinite(follower._path.drift).all()


@pytest.mark.parametrize("why", ["surplus", "too long"])
@pytest.mark.parametrize("intercept_value", [0.0, 0.6])
def test_rows_that_do_not_count_are_not_followed(intercept_value: float, why: str) -> None:
    """Margins, drift and sums are those of the rows that count, however large the others are."""
    generator = np.random.default_rng(2)
    dense = generator.standard_normal((20, 6)) * (generator.random((20, 6)) < 0.5)
    targets, active = targets_for(Squared(), 20, generator), np.arange(20) != 5
    dense[5] = 1.7e308
    rows = Rows(sp.csr_array(dense), targets, active if why == "surplus" else None)
    with np.errstate(all="ignore"):
        rows.clip_rows(0.01)
    kept = Rows(sp.csr_array(dense[active]), targets[active])
    kept.clip_rows(0.01)
    walk = CoordinatePath(np.r_[np.zeros(6), np.ones(int(intercept_value > 0))][:, None])
    both = [Follower(one.blocks[0], walk.point.start, Squared(), intercept_value, None) for one in (rows, kept)]  # type: ignore
    for step, _ in enumerate(random_moves(walk, generator, 12, [])):
        for follower in both:
            follower.follow(walk.point, 0.005)
            follower.draw("vertices", 1e3, Rationed(step, 200))  # type: ignore[arg-type]
        np.testing.assert_allclose(both[0].sums(), both[1].sums(), rtol=1e-9, atol=1e-15)
        np.testing.assert_array_equal(both[0]._path.z[active], both[1]._path.z)
    assert intercept_value or both[0]._path.z[5] == 0.0
