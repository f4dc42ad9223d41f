"""Following a walk: the sums, the upper bounds and the draws of the sparse engine against plain recomputation.

The reference is dense numpy at the walk's weights and shares no code with the engine. Statistical tests fix their seeds
and would fail a correct engine with probability 1e-6 each (`FALSE_ALARM`); for each kind of check a planted mistake is
shown to fail it.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from followed_walks import (
    FALSE_ALARM,
    LOSSES,
    Problem,
    Rationed,
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
from pairwise import reduce_to_pairs

from tulle import Budget
from tulle.accounting.calibration import calibrate
from tulle.fast.coordinate_path import CoordinatePath
from tulle.fast.gumbel_on_demand import GumbelOnDemand
from tulle.fast.scores_on_demand import FollowedScores, Follower, Kind, can_follow
from tulle.methods import noise_scales as geometry
from tulle.methods.gradient_queries import CoordinateGradient, CoordinateScores
from tulle.methods.loss_functions import Logistic, Loss, OneVsRest, Poisson, Softmax, Squared, SquaredHinge
from tulle.trusted import queries
from tulle.trusted.events import FloatArray, NoisePerSensitivity
from tulle.trusted.facts import PublicFacts
from tulle.trusted.mechanisms import GumbelMax
from tulle.trusted.plan import Release
from tulle.trusted.rows import Rows

# --- looking at the engine's state without touching it ---


def staleness(follower: Follower, sums: FloatArray) -> float:
    """By how much a sum over remembered slopes is further from the true one than the engine allows for, at most."""
    data, path, weights = follower._data, follower._path, follower._weights
    shape = (len(path.z), len(data.starts) - 1)
    remembered = sp.csc_array((data.entries, data.rows.astype(np.int64), data.starts), shape=shape).T @ path.scaled
    if data.constant:
        remembered = np.append(remembered, data.constant * path.slopes.sum())
    allowed = [follower._kernels._error(data, path, weights, j) for j in range(len(sums))]
    return float((np.abs(remembered / data.units - sums) - np.array(allowed)).max())


# --- sums ---


@reduce_to_pairs()
@pytest.mark.parametrize("level", [0.3, 50.0], ids=["clipped", "hardly clipped"])
@pytest.mark.parametrize("scaled", [False, True], ids=["rows as they are", "rows scaled"])
@pytest.mark.parametrize("units", [False, True], ids=["no units", "units"])
@pytest.mark.parametrize("intercept_value", [0.0, 0.6], ids=["no intercept", "intercept"])
@every_kind
@every_loss
def test_sums_are_those_of_a_dense_recomputation(
    loss: Loss, kind: Kind, intercept_value: float, units: bool, scaled: bool, level: float
) -> None:
    """`sum_of` and `sums` are exact at every step of walks from zero and from elsewhere, draws in between or not."""
    for seed in (1, 2):
        rows = problem(loss, seed, intercept_value=intercept_value, units=units, scaled=scaled)
        generator = np.random.default_rng(100 + seed)
        start = np.zeros((rows.parameters, 1))
        if seed == 2:
            start[generator.integers(rows.parameters, size=5), 0] = generator.standard_normal(5)
        walk = CoordinatePath(start)
        follower = rows.follower(walk)
        for step, _ in enumerate(random_moves(walk, generator, 12, [])):
            follower.follow(walk.point, level)
            exact = rows.sums(walk, level)
            size = max(1.0, np.abs(exact).max(), np.abs(walk.weights).max())
            one_by_one = [follower.sum_of(j) for j in range(rows.parameters)]
            np.testing.assert_allclose(one_by_one, exact, rtol=0, atol=1e-12 * size)
            if step % 3 == 1:
                follower.draw(kind, 0.5, generator)
            if step % 5 == 4:
                np.testing.assert_allclose(follower.sums(), exact, rtol=0, atol=1e-12 * size)


def storages(dense: FloatArray) -> dict[str, Any]:
    csr, csc = sp.csr_array(dense), sp.csc_array(dense)
    turned = [np.arange(a, b)[::-1] for a, b in zip(csc.indptr, csc.indptr[1:])]
    order = np.concatenate(turned)
    line, column = np.nonzero(dense)
    twice = np.concatenate([dense[line, column] * 0.25, dense[line, column] * 0.75])
    wide = (csc.data, csc.indices.astype(np.int64), csc.indptr.astype(np.int64))
    wide_rows = (csr.data, csr.indices.astype(np.int64), csr.indptr.astype(np.int64))
    read_only = csc.copy()
    for array in (read_only.data, read_only.indices, read_only.indptr):
        array.flags.writeable = False
    return {
        "csr": csr,
        "csc": csc,
        "csr, 64 bit indices": sp.csr_array(wide_rows, shape=dense.shape),
        "csc, 64 bit indices": sp.csc_array(wide, shape=dense.shape),
        "unsorted": sp.csc_array((csc.data[order], csc.indices[order], csc.indptr), shape=dense.shape),
        "duplicates": sp.coo_array((twice, (np.tile(line, 2), np.tile(column, 2))), shape=dense.shape),
        "explicit zeros": sp.csc_array((np.append(csc.data, 0.0), np.append(csc.indices, 0), csc.indptr + 0)),
        "float32": csr.astype(np.float32),
        "read only": read_only,
    }


@pytest.mark.parametrize("storage", storages(np.eye(2)).keys())
def test_sums_do_not_depend_on_how_rows_are_stored(storage: str) -> None:
    """Index types, the order of entries, duplicates and float32: sums agree and draws go on."""
    generator = np.random.default_rng(3)
    dense = generator.integers(-4, 5, (30, 12)) * (generator.random((30, 12)) < 0.4) / 4.0
    matrix = storages(dense)[storage]
    if storage == "explicit zeros":
        matrix = sp.csc_array(dense)
        matrix.data[::3] = 0.0
        dense = matrix.toarray()
    if storage == "duplicates":
        matrix = matrix.tocsr()
    targets = targets_for(Logistic(), 30, generator)
    rows = Problem(Rows(matrix, targets), dense, targets, Logistic(), 0.0, None)
    walk = CoordinatePath(np.zeros((12, 1)))
    follower = rows.follower(walk)
    for _ in random_moves(walk, generator, 10, []):
        follower.follow(walk.point, 0.4)
        follower.draw("vertices", 1.0, Rationed(4, 500))  # type: ignore[arg-type]
        np.testing.assert_allclose(follower.sums(), rows.sums(walk, 0.4), rtol=0, atol=1e-12)


# --- upper bounds ---


@pytest.mark.parametrize("sharpness", [1e-6, 0.02, 1.0, 40.0, 1e6])
@every_kind
@every_loss
def test_upper_bounds_hold_at_every_step(loss: Loss, kind: Kind, sharpness: float) -> None:
    """No true log-weight passes its bound and no remembered sum its error, with nothing refreshed for the test.

    Rows outnumber the entries of a column by far, so that single sums are often taken anew while all other slopes
    stay stale.
    """
    for seed, (intercept_value, units) in enumerate(itertools.product((0.0, 0.6), (False, True))):
        rows = problem(loss, seed, 300, 60, 0.03, intercept_value, units, scaled=seed % 2 == 1)
        generator = np.random.default_rng(200 + seed)
        walk, drawn, level = CoordinatePath(np.zeros((rows.parameters, 1))), list[int](), (0.3, 50.0)[seed // 2]
        follower = rows.follower(walk)
        for step, _ in enumerate(random_moves(walk, generator, 40, drawn)):
            follower.follow(walk.point, level)
            exact = rows.sums(walk, level)
            if step:
                assert excess(follower, exact, kind, sharpness) <= 1e-9 * max(1.0, sharpness)
                assert staleness(follower, exact) <= 1e-9
            for _ in range(1 + step % 4):
                drawn[:] = [follower.draw(kind, sharpness, generator)[0]]
                assert excess(follower, exact, kind, sharpness) <= 1e-9 * max(1.0, sharpness)
            if step % 2:
                drawn.clear()


def stale_rows() -> tuple[Problem, CoordinatePath, Follower]:
    """Columns 0 and 1 share rows whose slopes are remembered at margin 3, while the margin has shrunk to 1.5."""
    dense = np.zeros((400, 4))
    dense[:10, :2], dense[10:20, 2], dense[20:40, 3] = 1.0, 1.0, 0.5
    targets = -np.ones(400)
    rows = Problem(Rows(sp.csr_array(dense), targets), dense, targets, Logistic(), 0.0, None)
    walk = CoordinatePath(np.array([[0.0], [3.0], [0.0], [0.0]]))
    follower = rows.follower(walk)
    follower.follow(walk.point, 1.0)
    follower.draw("vertices", 1.0, np.random.default_rng(0))
    walk.move(0.5, np.array([2]), np.array([0.1]))
    follower.follow(walk.point, 1.0)
    return rows, walk, follower


def test_a_bound_from_a_sum_of_its_own_outlives_stale_slopes() -> None:
    """A row that is moved back to where its slope was remembered has changed all the same.

    Sums of columns 0 and 1 are taken exactly at margin 1.5, slopes stay remembered at margin 3, and the next move
    brings the margin back to 3. The bounds and the law of the next draw must know of it.
    """
    rows, walk, follower = stale_rows()
    put_back = saved(follower)
    counts, generator = np.zeros(8), np.random.default_rng(1)
    for seed in range(20):
        put_back()
        for _ in range(20):
            follower.draw("vertices", 1.0, generator)
        then = CoordinatePath(walk.weights)
        then.move(1.0, np.array([1]), np.array([1.5]))
        moved = follower._kernels.advance
        moved(follower._data, follower._path, follower._weights, 1.0, 1, 1.5)
        exact = rows.sums(then, 1.0)
        assert excess(follower, exact, "vertices", 1.0) <= 1e-9
        assert staleness(follower, exact) <= 1e-9
        counts += tally(follower, "vertices", 1.0, 400, 50 + seed, saved(follower))
    assert p_value(counts, law(exact, "vertices", 1.0)) > FALSE_ALARM


@pytest.mark.parametrize("radius", [1e3, 1e9, 1e15, 1e50, 1e90])
@every_loss
def test_bounds_keep_their_digits_however_far_margins_move(loss: Loss, radius: float) -> None:
    """Drift beyond all clipping: bounds that are taken exactly must not be stored as differences of huge numbers."""
    rows = problem(loss, 5, 200, 400, 0.03)
    walk, generator = CoordinatePath(np.zeros((400, 1))), np.random.default_rng(6)
    follower = rows.follower(walk)
    follower.follow(walk.point, 1.0)
    follower.draw("vertices", 0.4, generator)
    for t in range(1, 6):
        coordinate, sign = follower.draw("vertices", 0.4, generator)
        walk.move(1 - 2 / (t + 2), np.array([coordinate]), np.array([2 / (t + 2) * radius * sign]))
        follower.follow(walk.point, 1.0)
        for _ in range(3):
            follower.draw("vertices", 0.4, generator)
            now = np.array([follower.sum_of(j) for j in range(400)])
            assert excess(follower, now, "vertices", 0.4) <= 1e-9


def test_margins_that_cancel_leave_the_bound_of_their_length() -> None:
    """Large margins that cancel must not take the sum of squares below that of what is left."""
    generator = np.random.default_rng(7)
    for seed in range(20):
        entries = 1 + generator.random(50)
        dense = np.stack([entries, np.zeros(50)], axis=1)
        rows = Problem(Rows(sp.csr_array(dense), 9 * entries), dense, 9 * entries, Squared(), 0.0, None)
        walk = CoordinatePath(np.zeros((2, 1)))
        follower = rows.follower(walk)
        follower.follow(walk.point, 100.0)
        for shrink, amount in ((0.9, 1e7 * (1 + seed)), (0.8, 0.01 - 0.8e7 * (1 + seed))):
            follower.draw("vertices", 0.1, generator)
            walk.move(shrink, np.array([0]), np.array([amount]))
            follower.follow(walk.point, 100.0)
        scale, _, squares, _ = follower._path.now
        margins = scale * follower._path.z
        assert scale * np.sqrt(squares) >= np.linalg.norm(margins) * (1 - 1e-12)


def tight_walk(plant: Callable[[Follower], None]) -> float:
    """The largest excess along a walk on which the bounds of drift are attained: rows all alike, one column."""
    worst = -np.inf
    dense = np.hstack([np.full((16, 1), 0.5), np.zeros((16, 1))])
    targets = np.full(16, 40.0)
    rows = Problem(Rows(sp.csr_array(dense), targets), dense, targets, Squared(), 0.0, None)
    walk, generator = CoordinatePath(np.array([[20.0], [0.0]])), np.random.default_rng(8)
    follower = rows.follower(walk)
    follower.follow(walk.point, 1e3)
    follower.draw("vertices", 0.1, generator)
    for shrink, coordinate, amount in ((0.5, 1, 1.0), (1.0, 0, -6.0), (0.9, 1, 0.0), (1.0, 0, -3.0)):
        walk.move(shrink, np.array([coordinate]), np.array([amount]))
        plant(follower)
        follower.follow(walk.point, 1e3)
        plant(follower)
        exact = rows.sums(walk, 1e3)
        worst = max(worst, excess(follower, exact, "vertices", 0.1), staleness(follower, exact))
    return worst


def _halved_row_size(follower: Follower) -> None:
    follower._data.row_size[:] = 0.25


def _halved_spread(follower: Follower) -> None:
    follower._weights.widest[0], follower._weights.longest[0] = 4.0, 1.0


def _frozen_since(follower: Follower) -> None:
    follower._path.since[:] = 0.0


def _stamps_moved_on(follower: Follower) -> None:
    follower._weights.stamp[:] = follower._path.drift


def _forgotten_margins(follower: Follower) -> None:
    follower._path.now[1:3] = 0.0


PLANTED = {
    "half of a row's size": _halved_row_size,
    "half of a column's spread": _halved_spread,
    "staleness forgotten": _frozen_since,
    "drift forgotten": _stamps_moved_on,
    "margins forgotten": _forgotten_margins,
}


def test_bounds_of_drift_are_attained() -> None:
    """On rows all alike nothing is wasted, so that any smaller constant is caught below."""
    assert -0.01 < tight_walk(lambda follower: None) <= 1e-9


@pytest.mark.parametrize("plant", PLANTED.values(), ids=PLANTED.keys())
def test_a_planted_mistake_breaks_a_bound(plant: Callable[[Follower], None]) -> None:
    assert tight_walk(plant) > 0.1


# --- whole walks ---


def small_problem(loss: Loss = Logistic()) -> Problem:  # noqa: B008
    generator = np.random.default_rng(21)
    dense = generator.standard_normal((12, 3)) * (generator.random((12, 3)) < 0.6)
    dense = np.clip(dense, -1.5, 1.5)
    targets = targets_for(loss, 12, generator)
    return Problem(Rows(sp.csr_array(dense), targets), dense, targets, loss, 0.0, None)


def released(
    query: CoordinateScores, rows: Problem, public: PublicFacts, noise: float, generator: np.random.Generator
) -> int:
    mechanism = GumbelOnDemand(NoisePerSensitivity(noise), 1, 2 * public.n_parameters, public.n_rows)
    exact = query.evaluate(rows.rows, public)
    return int(mechanism.release(exact, query.sensitivity(public), generator, None)[0])


def step_towards(walk: CoordinatePath, number: int, parameters: int, t: int, radius: float) -> None:
    sign = 1.0 if number < parameters else -1.0
    walk.move(1 - 2 / (t + 2), np.array([number % parameters]), np.array([2 / (t + 2) * radius * sign]))


@pytest.mark.parametrize("engine", ["incremental", "plain"])
def test_private_walks_have_one_law_whatever_the_engine(engine: queries.Engine) -> None:
    """The first three vertices of private Frank-Wolfe walks, against the law computed over all 6³ paths.

    Both engines are held to the same exact law, which is more than to compare them with each other.
    """
    rows, radius, noise = small_problem(), 3.0, 0.3
    public, expected = rows.public(1.5), np.zeros((6, 6, 6))
    for path in itertools.product(range(6), repeat=3):
        walk, chance = CoordinatePath(np.zeros((3, 1))), 1.0
        for t, number in enumerate(path, 1):
            query = CoordinateScores(walk.point, 0.5, reach=radius)
            scale = noise * query.sensitivity(public).linf
            odds = law(rows.sums(walk, query.level(public)), "vertices", radius / len(rows.targets) / scale)
            chance *= odds[number]
            step_towards(walk, number, 3, t, radius)
        expected[path] = chance
    counts, generator = np.zeros((6, 6, 6)), np.random.default_rng(22)
    for _ in range(4000):
        walk, path = CoordinatePath(np.zeros((3, 1))), []
        query = CoordinateScores(walk.point, 0.5, engine=engine, reach=radius)
        for t in range(1, 4):
            path.append(released(replace(query, point=walk.point), rows, public, noise, generator))
            step_towards(walk, path[-1], 3, t, radius)
        counts[tuple(path)] += 1
    assert expected.max() < 0.3
    assert p_value(counts.ravel(), expected.ravel()) > FALSE_ALARM


@every_kind
@every_loss
def test_without_noise_both_engines_walk_the_same_path(loss: Loss, kind: Kind) -> None:
    """Step by step the same vertex, and for coordinate descent the same slope to rounding."""
    rows = problem(loss, 23, intercept_value=0.5, units=kind == "magnitudes")
    rows.rows.clip_entries(4.0)
    rows.dense = np.clip(rows.dense, -4.0, 4.0)
    public, generator = rows.public(), np.random.default_rng(24)
    walk = CoordinatePath(np.zeros((rows.parameters, 1)))
    both = []
    for engine in ("incremental", "plain"):
        shared: dict[str, Any] = {"point": walk.point, "clip": 0.8, "intercept_value": 0.5, "units": rows.units}
        both.append(
            (
                CoordinateScores(**shared, engine=engine, kind=kind, reach=2.0),
                CoordinateGradient(**shared, engine=engine),
            )
        )
    for t in range(1, 26):
        both = [(replace(scores, point=walk.point), replace(slope, point=walk.point)) for scores, slope in both]
        first, second = (released(scores, rows, public, 0.0, generator) for scores, _ in both)
        assert first == second
        coordinate = np.array([first % rows.parameters])
        slopes = [replace(slope, coordinates=coordinate).evaluate(rows.rows, public)[0, 0] for _, slope in both]
        np.testing.assert_allclose(slopes[0], slopes[1], rtol=0, atol=1e-12 * max(1.0, np.abs(walk.weights).max()))
        if kind == "magnitudes":
            walk.move(1.0, coordinate, np.array([-2.0 * slopes[0]]))
        else:
            step_towards(walk, first, rows.parameters, t, 2.0)


@every_loss
def test_the_level_may_change_on_the_way(loss: Loss) -> None:
    """After a change of level, and of sharpness with it, sums, bounds and the law are those of the new level."""
    rows = problem(loss, 25, intercept_value=0.4)
    walk, generator = CoordinatePath(np.zeros((41, 1))), np.random.default_rng(26)
    follower = rows.follower(walk)
    moves = random_moves(walk, generator, 12, [])
    for step, _ in enumerate(moves):
        level = (0.2, 1.5, 0.7)[step // 4]
        follower.follow(walk.point, level)
        exact = rows.sums(walk, level)
        for _ in range(3):
            follower.draw("vertices", 0.5 / level, generator)
            assert excess(follower, exact, "vertices", 0.5 / level) <= 1e-9
        if step % 4 == 0:
            counts = tally(follower, "vertices", 0.5 / level, 1500, 27 + step, saved(follower))
            assert p_value(counts, law(exact, "vertices", 0.5 / level)) > FALSE_ALARM


@every_kind
@every_loss
def test_bounds_outlive_a_change_of_level(loss: Loss, kind: Kind) -> None:
    """Where the sharpness stays, bounds are not made anew: what the new caps do to the slopes is charged to them.

    Levels rise, so that sums grow, and fall, which the weights of a simplex may grow by as well. Nothing is drawn
    between the change and the check, so that no bound is tightened in the meantime.
    """
    rows, generator = problem(loss, 25, intercept_value=0.4), np.random.default_rng(26)
    walk = CoordinatePath(np.zeros((41, 1)))
    follower, bites = rows.follower(walk), 0
    list(random_moves(walk, generator, 6, []))
    follower.follow(walk.point, 0.1)
    follower.draw(kind, 2.0, generator)
    before = follower._draw
    for level in (0.15, 0.4, 0.3, 1.2, 0.2):
        held = upper_bounds(follower)
        follower.follow(walk.point, level)
        exact = rows.sums(walk, level)
        assert excess(follower, exact, kind, 2.0) <= 1e-9
        assert staleness(follower, exact) <= 1e-9
        bites += bool((log_weights(exact, kind, before.bounded_at) > held + 0.01).any())  # the old ones do not hold
    assert bites >= 2
    assert follower._draw is before  # never made anew
    put_back = saved(follower)

    def restart() -> None:
        put_back()
        follower._draw = before

    counts = tally(follower, kind, 2.0, 1500, 27, restart)
    assert p_value(counts, law(rows.sums(walk, 0.2), kind, 2.0)) > FALSE_ALARM


def test_a_draw_uses_its_generator_alone() -> None:
    """Same seed, same path; another seed, another; numpy's and Python's global generators stay as they are."""
    before, python_before = np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002
    paths = []
    for seed in (28, 28, 29):
        rows = problem(Logistic(), 27)
        walk, generator = CoordinatePath(np.zeros((40, 1))), np.random.default_rng(seed)
        follower, path = rows.follower(walk), []
        for t in range(1, 16):
            follower.follow(walk.point, 0.5)
            path.append(follower.draw("vertices", 0.5, generator))
            walk.move(1 - 2 / (t + 2), np.array([path[-1][0]]), np.array([path[-1][1]]))
        paths.append(path)
    assert paths[0] == paths[1] != paths[2]
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002
    assert python_before == random.getstate()


# --- when it is used ---


class _MyLogistic(Logistic):
    pass


def test_only_losses_that_the_kernels_know_are_followed() -> None:
    """A subclass may say anything of its slope; Poisson's curvature is of no use; the others have several outputs."""
    assert all(can_follow(loss) for loss in LOSSES.values())
    assert not any(can_follow(loss) for loss in (_MyLogistic(), Poisson(), Softmax(3), OneVsRest(SquaredHinge(), 3)))


def followed(rows: Rows, public: PublicFacts, walk: CoordinatePath, **settings: Any) -> bool:
    answer = CoordinateScores(walk.point, 0.5, **settings).evaluate(rows, public)
    assert answer.shape == (2 * public.n_features, public.loss.n_outputs)
    return isinstance(answer, FollowedScores)


def test_what_cannot_be_followed_is_read_in_full() -> None:
    """Dense rows, several blocks, several outputs, unknown losses, huge margins and engine="plain"."""
    base = small_problem()
    public, walk = base.public(1.5), CoordinatePath(np.zeros((3, 1)))
    sparse, wanted = sp.csr_array(base.dense), {"engine": "incremental"}
    assert followed(base.rows, public, walk, **wanted)
    assert not followed(base.rows, public, walk, engine="plain")
    assert not followed(Rows(base.dense, base.targets), public, walk, **wanted)
    two = Rows(sparse, base.targets)
    two.blocks = [Rows(sparse[:6], base.targets[:6]).blocks[0], Rows(sparse[6:], base.targets[6:]).blocks[0]]
    assert not followed(two, public, walk, **wanted)
    for loss in (_MyLogistic(), Poisson(2.0)):
        assert not followed(base.rows, replace(public, loss=loss), walk, **wanted)
    classes = Rows(sparse, np.arange(12.0) % 3)
    for several in (Softmax(3), OneVsRest(SquaredHinge(), 3)):
        assert not followed(classes, replace(public, loss=several), CoordinatePath(np.zeros((3, 3))), **wanted)
    assert not followed(base.rows, public, CoordinatePath(np.full((3, 1), 1e101)), **wanted)
    assert not followed(base.rows, replace(public, row_linf=np.inf), CoordinatePath(np.ones((3, 1))), **wanted)


def test_rows_without_a_single_entry_are_followed_too() -> None:
    """What is stored in the rows decides nothing."""
    base, walk = small_problem(), CoordinatePath(np.zeros((3, 1)))
    empty = Rows(sp.csr_array((12, 3)), base.targets)
    assert followed(empty, base.public(1.5), walk, engine="incremental")


class TestChosenEngine:
    """ "auto" is resolved by public figures, before the bill (`tulle.methods.noise_scales.choose_engine`)."""

    PUBLIC = PublicFacts(1000, 50, 5, Logistic(), Budget(1.0, 1e-6), 1.0, 1.0, 1.0, False)

    def choose(self, n_iter: int, engine: queries.Engine = "auto", **facts: Any) -> str:
        return geometry.choose_engine(engine, n_iter, 100, replace(self.PUBLIC, **facts))

    def test_auto_follows_where_that_saves_enough(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert self.choose(100) == "plain"
        monkeypatch.setattr(geometry, "_WORTH_FOLLOWING", 100 * 1000 * 50)
        assert (self.choose(99), self.choose(100)) == ("plain", "incremental")
        assert self.choose(99, budget=None) == "plain"
        assert self.choose(100, budget=None) == "incremental"

    def test_auto_falls_back_where_finite_precision_would_take_too_much(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(geometry, "_WORTH_FOLLOWING", 0)
        for budget, spent, expected in (
            (Budget(1.0, 1e-6), 0.0, "incremental"),
            (Budget(10.0, 1e-6), 0.0, "plain"),
            (Budget(1.0, 1e-6), 9.0, "plain"),
            (Budget(1.0, 1e-12), 0.0, "plain"),
            (Budget(1.0, 0.0), 0.0, "plain"),
            (Budget(1000.0, 1e-6), 0.0, "plain"),
        ):
            assert self.choose(100, budget=budget, spent=spent) == expected

    def test_what_the_user_says_counts_but_where_many_fits_share_a_bill(self) -> None:
        assert self.choose(1, engine="incremental") == "incremental"
        assert self.choose(10**9, engine="plain") == "plain"
        assert self.choose(1, engine="incremental", exact_only=True) == "plain"
        assert self.choose(1, engine="incremental", loss=Softmax(3)) == "plain"

    @pytest.mark.parametrize("epsilon", [0.01, 0.5, 2.0, 10.0, 30.0])
    @pytest.mark.parametrize("delta", [1e-3, 1e-7, 1e-10])
    def test_it_counts_on_less_noise_than_any_plan_has(self, epsilon: float, delta: float) -> None:
        """So that a plan which was chosen here is never refused for finite precision."""
        budget = Budget(epsilon, delta)
        for n_iter in (1, 2, 3, 4, 6, 8, 12, 20, 100, 1000):
            least = 0.8 * min(math.sqrt(n_iter) / geometry.budget_mu(budget), 2 * n_iter / epsilon)
            plan = calibrate((Release("vertex", GumbelMax(), n_iter),), budget)
            assert plan[0].mechanism.noise.value > least


def test_a_walk_is_followed_by_one_follower_at_a_time() -> None:
    """The follower is kept while the same walk is asked about and made anew for another walk, other units or when
    rows change."""
    base, first, second = small_problem(), CoordinatePath(np.zeros((3, 1))), CoordinatePath(np.zeros((3, 1)))
    public = base.public(1.5)

    def follower(walk: CoordinatePath, units: FloatArray | None = None) -> Follower:
        return (
            CoordinateScores(walk.point, 0.5, units=units, engine="incremental").evaluate(base.rows, public)._follower
        )

    kept = follower(first)
    assert follower(first) is kept
    assert follower(second) is not kept
    assert follower(first) is not kept
    doubled = follower(first, np.full(3, 2.0))
    np.testing.assert_allclose(2 * doubled.sums(), follower(first).sums(), rtol=1e-14)
    kept = follower(first)
    base.rows.clip_entries(0.1)
    assert follower(first) is not kept
    assert np.abs(follower(first)._data.entries).max() <= 0.1
