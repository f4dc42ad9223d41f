"""Following a walk: the sums, the upper bounds and the draws of the sparse engine against plain recomputation.

The reference is dense numpy at the walk's weights and shares no code with the engine. Statistical tests fix their seeds
and would fail a correct engine with probability 1e-6 each (`FALSE_ALARM`); for each kind of check a planted mistake is
shown to fail it.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy import stats

from tulle import Budget, following, queries
from tulle.bounds import KnownBounds
from tulle.events import FloatArray, NoisePerSensitivity
from tulle.following import FollowedScores, Follower, Kind, can_follow
from tulle.losses import Huber, Logistic, Loss, OneVsRest, Poisson, Softmax, Squared, SquaredHinge
from tulle.mechanisms import GumbelMax
from tulle.methods import geometry
from tulle.privacy import Release, calibrate
from tulle.public import PublicFacts
from tulle.queries import CoordinateGradient, CoordinateScores
from tulle.rows import Rows
from tulle.walk import Walk

FALSE_ALARM = 1e-6
LOSSES: dict[str, Loss] = {
    "squared": Squared(),
    "huber": Huber(0.7),
    "logistic": Logistic(),
    "squared hinge": SquaredHinge(),
}
KINDS: tuple[Kind, ...] = ("vertices", "simplex", "magnitudes")

every_loss = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
every_kind = pytest.mark.parametrize("kind", KINDS)


# --- the reference ---


@dataclass
class Problem:
    """Rows, and the same rows as a dense array with row scaling and the constant column."""

    rows: Rows
    dense: FloatArray
    targets: FloatArray
    loss: Loss
    intercept_value: float
    units: FloatArray | None

    @property
    def parameters(self) -> int:
        return self.dense.shape[1]

    def follower(self, walk: Walk) -> Follower:
        return Follower(self.rows.blocks[0], walk, self.loss, self.intercept_value, self.units)

    def sums(self, walk: Walk, level: float) -> FloatArray:
        """All slope sums at the walk's weights, each row's contribution cut at `level`."""
        unit = np.ones(self.parameters) if self.units is None else self.units
        sizes = (np.abs(self.dense) / unit).max(axis=1)
        with np.errstate(all="ignore"):
            cap = np.where(sizes > 0, level / sizes, np.inf)
            slopes = self.loss.slope(self.dense @ walk.weights, self.targets)[:, 0]
        slopes = np.where(np.isfinite(slopes) & self.rows.blocks[0].active, slopes, 0.0)
        return self.dense.T @ np.clip(slopes, -cap, cap) / unit

    def public(self, row_linf: float = 4.0) -> PublicFacts:
        return PublicFacts(
            n_rows=len(self.targets),
            n_features=self.parameters - bool(self.intercept_value),
            n_nonzero=1,
            loss=self.loss,
            budget=None,
            row_l2=100.0,
            row_linf=row_linf,
            label=3.0,
            fit_intercept=bool(self.intercept_value),
        )


def targets_for(loss: Loss, n: int, generator: np.random.Generator) -> FloatArray:
    noise = generator.standard_normal(n)
    return np.sign(noise) if loss.kind == "classification" else 2 * noise


def problem(
    loss: Loss,
    seed: int = 0,
    n: int = 60,
    features: int = 40,
    density: float = 0.12,
    intercept_value: float = 0.0,
    units: bool = False,
    scaled: bool = False,
) -> Problem:
    generator = np.random.default_rng(seed)
    entries = generator.standard_normal((n, features)) * (generator.random((n, features)) < density)
    entries *= np.exp(generator.standard_normal(features))[None, :] / 2  # popular, weighty and empty columns
    entries[:, -1] = 0.0
    targets = targets_for(loss, n, generator)
    rows = Rows(sp.csr_array(entries), targets)
    if scaled:
        rows.clip_rows(1.0)
        norms = np.linalg.norm(entries, axis=1)
        entries = entries * np.where(norms > 1, 1 / np.maximum(norms, 1), 1.0)[:, None]
    if intercept_value:
        entries = np.hstack([entries, np.full((n, 1), intercept_value)])
    scale = np.exp(generator.uniform(-1, 1, entries.shape[1])) if units else None
    return Problem(rows, entries, targets, loss, intercept_value, scale)


def random_moves(walk: Walk, generator: np.random.Generator, steps: int, drawn: list[int]) -> Iterator[None]:
    """Moves of all sorts, each made when asked for: towards a vertex, along an axis, back to an earlier weight.

    `drawn` may be filled with coordinates to move next; otherwise they are chosen at random.
    """
    last = 1.0
    for _ in range(steps):
        sort = generator.choice(["towards", "along", "restore", "cancel"], p=[0.5, 0.2, 0.2, 0.1])
        coordinate = drawn.pop() if drawn else int(generator.integers(len(walk.unscaled)))
        shrink, amount = 1.0, float(generator.standard_normal())
        if sort == "towards":
            shrink = last = float(generator.uniform(0.3, 1.0))
            amount *= 4
        elif sort in ("restore", "cancel"):
            held = np.flatnonzero(walk.unscaled[:, 0])
            if len(held):
                coordinate = int(generator.choice(held))
                amount = float(walk.weights[coordinate, 0]) * (1 / last - 1 if sort == "restore" else -1.0)
        walk.move(shrink, np.array([coordinate]), np.array([amount]))
        yield


def log_weights(sums: FloatArray, kind: Kind, sharpness: float) -> FloatArray:
    if kind == "simplex":
        return -sharpness * sums
    return sharpness * np.abs(sums) if kind == "magnitudes" else np.logaddexp(sharpness * sums, -sharpness * sums)


def law(sums: FloatArray, kind: Kind, sharpness: float) -> FloatArray:
    """Softmax over all candidates, +e_j before -e_j."""
    scores = {"simplex": -sums, "magnitudes": np.abs(sums), "vertices": np.concatenate([-sums, sums])}[kind]
    weights = np.exp(sharpness * (scores - scores.max()))
    return weights / weights.sum()


def p_value(counts: FloatArray, probabilities: FloatArray) -> float:
    """Of Pearson's test; cells that expect fewer than 8 are put together."""
    order = np.argsort(probabilities)
    counts, expected = counts[order], counts.sum() * probabilities[order]
    rare = int(np.searchsorted(np.cumsum(expected), 8.0)) + 1
    rare = max(rare, int(np.searchsorted(expected, 8.0)))
    counts = np.append(counts[rare:], counts[:rare].sum())
    expected = np.append(expected[rare:], expected[:rare].sum())
    assert len(counts) > 1, "too few cells to tell"
    return float(stats.chi2.sf(((counts - expected) ** 2 / expected).sum(), len(counts) - 1))


# --- looking at the engine's state without touching it ---


def upper_bounds(follower: Follower) -> FloatArray:
    """What the engine holds for upper bounds of the present log-weights, at the sharpness that it holds them for."""
    weights, drift = follower._weights, follower._path.drift - follower._weights.stamp
    loosened = weights.widest * drift[:, 0] + drift[:, 1] + weights.longest * drift[:, 2]
    bounds = np.empty(len(weights.order))
    bounds[weights.order] = weights.log + follower._draw.bounded_at * np.repeat(loosened, np.diff(weights.first))
    return bounds


def excess(follower: Follower, sums: FloatArray, kind: Kind, sharpness: float) -> float:
    """By how much a true log-weight passes its upper bound, at most, at this sharpness or that of the bounds."""
    sharpest = follower._draw.bounded_at
    assert sharpness <= sharpest * (1 + 1e-12)
    weights = np.maximum(log_weights(sums, kind, sharpness), log_weights(sums, kind, sharpest))
    return float((weights - upper_bounds(follower)).max())


def staleness(follower: Follower, sums: FloatArray) -> float:
    """By how much a sum over remembered slopes is further from the true one than the engine allows for, at most."""
    data, path, weights = follower._data, follower._path, follower._weights
    shape = (len(path.z), len(data.starts) - 1)
    remembered = sp.csc_array((data.entries, data.rows.astype(np.int64), data.starts), shape=shape).T @ path.scaled
    if data.constant:
        remembered = np.append(remembered, data.constant * path.slopes.sum())
    allowed = [follower._kernels._error(data, path, weights, j) for j in range(len(sums))]
    return float((np.abs(remembered / data.units - sums) - np.array(allowed)).max())


def saved(follower: Follower) -> Callable[[], None]:
    """Keeps the state of now; the answer puts it back."""
    arrays = [a for part in (follower._path, follower._weights) for a in part]
    copies = [a.copy() for a in arrays]

    def put_back() -> None:
        for array, copy in zip(arrays, copies):
            np.copyto(array, copy)

    return put_back


def candidate(follower: Follower, drawn: tuple[int, float]) -> int:
    return drawn[0] if drawn[1] > 0 else drawn[0] + len(follower._weights.order)


def tally(
    follower: Follower,
    kind: Kind,
    sharpness: float,
    draws: int,
    seed: int,
    before_each: Callable[[], None] = lambda: None,
) -> FloatArray:
    """How often each candidate is drawn."""
    counts = np.zeros(len(follower._weights.order) * (2 if kind == "vertices" else 1))
    generator = np.random.default_rng(seed)
    for _ in range(draws):
        before_each()
        counts[candidate(follower, follower.draw(kind, sharpness, generator))] += 1
    return counts


class Rationed:
    """A generator that gives out so many arrays of uniforms: a loop without end fails instead of hanging."""

    def __init__(self, seed: int, rations: int) -> None:
        self.generator = np.random.default_rng(seed)
        self.left = rations

    def random(self, size: int) -> FloatArray:
        self.left -= 1
        assert self.left >= 0, "the draw does not come to an end"
        return self.generator.random(size)

    def integers(self, *arguments: Any, **options: Any) -> Any:
        return self.generator.integers(*arguments, **options)


# --- sums ---


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
        walk = Walk(start)
        follower = rows.follower(walk)
        for step, _ in enumerate(random_moves(walk, generator, 12, [])):
            follower.catch_up(level)
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
    walk = Walk(np.zeros((12, 1)))
    follower = rows.follower(walk)
    for _ in random_moves(walk, generator, 10, []):
        follower.catch_up(0.4)
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
        walk, drawn, level = Walk(np.zeros((rows.parameters, 1))), list[int](), (0.3, 50.0)[seed // 2]
        follower = rows.follower(walk)
        for step, _ in enumerate(random_moves(walk, generator, 40, drawn)):
            follower.catch_up(level)
            exact = rows.sums(walk, level)
            if step:
                assert excess(follower, exact, kind, sharpness) <= 1e-9 * max(1.0, sharpness)
                assert staleness(follower, exact) <= 1e-9
            for _ in range(1 + step % 4):
                drawn[:] = [follower.draw(kind, sharpness, generator)[0]]
                assert excess(follower, exact, kind, sharpness) <= 1e-9 * max(1.0, sharpness)
            if step % 2:
                drawn.clear()


def stale_rows() -> tuple[Problem, Walk, Follower]:
    """Columns 0 and 1 share rows whose slopes are remembered at margin 3, while the margin has shrunk to 1.5."""
    dense = np.zeros((400, 4))
    dense[:10, :2], dense[10:20, 2], dense[20:40, 3] = 1.0, 1.0, 0.5
    targets = -np.ones(400)
    rows = Problem(Rows(sp.csr_array(dense), targets), dense, targets, Logistic(), 0.0, None)
    walk = Walk(np.array([[0.0], [3.0], [0.0], [0.0]]))
    follower = rows.follower(walk)
    follower.catch_up(1.0)
    follower.draw("vertices", 1.0, np.random.default_rng(0))
    walk.move(0.5, np.array([2]), np.array([0.1]))
    follower.catch_up(1.0)
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
        then = Walk(walk.weights)
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
    walk, generator = Walk(np.zeros((400, 1))), np.random.default_rng(6)
    follower = rows.follower(walk)
    follower.catch_up(1.0)
    follower.draw("vertices", 0.4, generator)
    for t in range(1, 6):
        coordinate, sign = follower.draw("vertices", 0.4, generator)
        walk.move(1 - 2 / (t + 2), np.array([coordinate]), np.array([2 / (t + 2) * radius * sign]))
        follower.catch_up(1.0)
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
        walk = Walk(np.zeros((2, 1)))
        follower = rows.follower(walk)
        follower.catch_up(100.0)
        for shrink, amount in ((0.9, 1e7 * (1 + seed)), (0.8, 0.01 - 0.8e7 * (1 + seed))):
            follower.draw("vertices", 0.1, generator)
            walk.move(shrink, np.array([0]), np.array([amount]))
            follower.catch_up(100.0)
        scale, _, squares, _ = follower._path.now
        margins = scale * follower._path.z
        assert scale * np.sqrt(squares) >= np.linalg.norm(margins) * (1 - 1e-12)


def tight_walk(plant: Callable[[Follower], None]) -> float:
    """The largest excess along a walk on which the bounds of drift are attained: rows all alike, one column."""
    worst = -np.inf
    dense = np.hstack([np.full((16, 1), 0.5), np.zeros((16, 1))])
    targets = np.full(16, 40.0)
    rows = Problem(Rows(sp.csr_array(dense), targets), dense, targets, Squared(), 0.0, None)
    walk, generator = Walk(np.array([[20.0], [0.0]])), np.random.default_rng(8)
    follower = rows.follower(walk)
    follower.catch_up(1e3)
    follower.draw("vertices", 0.1, generator)
    for shrink, coordinate, amount in ((0.5, 1, 1.0), (1.0, 0, -6.0), (0.9, 1, 0.0), (1.0, 0, -3.0)):
        walk.move(shrink, np.array([coordinate]), np.array([amount]))
        plant(follower)
        follower.catch_up(1e3)
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


# --- the law of a draw ---


def stale_state(loss: Loss, kind: Kind, sharpness: float, level: float = 0.6) -> tuple[FloatArray, Follower]:
    """A follower some moves after its last full gather, and the true sums."""
    rows = problem(loss, 9, 120, 30, 0.1, intercept_value=0.4, units=True, scaled=True)
    walk, generator = Walk(np.zeros((31, 1))), np.random.default_rng(10)
    follower = rows.follower(walk)
    for t in range(1, 9):
        follower.catch_up(level)
        coordinate, sign = follower.draw(kind, sharpness, generator)
        walk.move(1 - 1 / (t + 6), np.array([coordinate]), np.array([3.0 * sign / (t + 6)]))
    follower.catch_up(level)
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
        follower = rows.follower(Walk(np.zeros((1, 1))))
        follower.catch_up(2.0)
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
    walk = Walk(np.zeros((columns, 1)))
    follower = rows.follower(walk)
    follower.catch_up(1e4)
    assert follower.draw("vertices", sharpness, generator) == (leader, 1.0)
    weights = follower._weights
    block = int(np.searchsorted(weights.first, weights.place[leader], side="right")) - 1
    assert (weights.first[block + 1] - weights.first[block] > 4) == (beside == "in the leader's block")
    best = float(np.dot(dense[:, leader], targets) / np.dot(dense[:, leader], dense[:, leader]))
    walk.move(1.0, np.array([leader]), np.array([best]))
    follower.catch_up(1e4)
    exact = rows.sums(walk, 1e4)
    expected = law(exact, "vertices", sharpness)
    counts = tally(follower, "vertices", sharpness, 6000, 19, saved(follower))
    assert p_value(counts, expected) > FALSE_ALARM
    assert p_value(tally(follower, "vertices", sharpness, 6000, 20), expected) > FALSE_ALARM
    uniform = np.full(2 * columns, 1 / (2 * columns))
    assert p_value(counts, uniform) < FALSE_ALARM


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
    mechanism = GumbelMax(NoisePerSensitivity(noise), 1, 2 * public.n_parameters, public.n_rows)
    exact = query.evaluate(rows.rows, public)
    return int(mechanism.release(exact, query.sensitivity(public), generator, None)[0])


def step_towards(walk: Walk, number: int, parameters: int, t: int, radius: float) -> None:
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
        walk, chance = Walk(np.zeros((3, 1))), 1.0
        for t, number in enumerate(path, 1):
            query = CoordinateScores(walk, 0.5, reach=radius)
            scale = noise * query.sensitivity(public).linf
            odds = law(rows.sums(walk, query.level(public)), "vertices", radius / len(rows.targets) / scale)
            chance *= odds[number]
            step_towards(walk, number, 3, t, radius)
        expected[path] = chance
    counts, generator = np.zeros((6, 6, 6)), np.random.default_rng(22)
    for _ in range(4000):
        walk, path = Walk(np.zeros((3, 1))), []
        query = CoordinateScores(walk, 0.5, engine=engine, reach=radius)
        for t in range(1, 4):
            path.append(released(query, rows, public, noise, generator))
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
    walk = Walk(np.zeros((rows.parameters, 1)))
    both = []
    for engine in ("incremental", "plain"):
        shared: dict[str, Any] = {"walk": walk, "clip": 0.8, "intercept_value": 0.5, "units": rows.units}
        both.append(
            (
                CoordinateScores(**shared, engine=engine, kind=kind, reach=2.0),
                CoordinateGradient(**shared, engine=engine),
            )
        )
    for t in range(1, 26):
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
    walk, generator = Walk(np.zeros((41, 1))), np.random.default_rng(26)
    follower = rows.follower(walk)
    moves = random_moves(walk, generator, 12, [])
    for step, _ in enumerate(moves):
        level = (0.2, 1.5, 0.7)[step // 4]
        follower.catch_up(level)
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
    walk = Walk(np.zeros((41, 1)))
    follower, bites = rows.follower(walk), 0
    list(random_moves(walk, generator, 6, []))
    follower.catch_up(0.1)
    follower.draw(kind, 2.0, generator)
    before = follower._draw
    for level in (0.15, 0.4, 0.3, 1.2, 0.2):
        held = upper_bounds(follower)
        follower.catch_up(level)
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
        walk, generator = Walk(np.zeros((40, 1))), np.random.default_rng(seed)
        follower, path = rows.follower(walk), []
        for t in range(1, 16):
            follower.catch_up(0.5)
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


def followed(rows: Rows, public: PublicFacts, walk: Walk, **settings: Any) -> bool:
    answer = CoordinateScores(walk, 0.5, **settings).evaluate(rows, public)
    assert answer.shape == (2 * public.n_features, public.loss.n_outputs)
    return isinstance(answer, FollowedScores)


def test_what_cannot_be_followed_is_read_in_full() -> None:
    """Dense rows, several blocks, several outputs, unknown losses, huge margins and engine="plain"."""
    base = small_problem()
    public, walk = base.public(1.5), Walk(np.zeros((3, 1)))
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
        assert not followed(classes, replace(public, loss=several), Walk(np.zeros((3, 3))), **wanted)
    assert not followed(base.rows, public, Walk(np.full((3, 1), 1e101)), **wanted)
    assert not followed(base.rows, replace(public, row_linf=np.inf), Walk(np.ones((3, 1))), **wanted)


def test_rows_without_a_single_entry_are_followed_too() -> None:
    """What is stored in the rows decides nothing."""
    base, walk = small_problem(), Walk(np.zeros((3, 1)))
    empty = Rows(sp.csr_array((12, 3)), base.targets)
    assert followed(empty, base.public(1.5), walk, engine="incremental")


class TestChosenEngine:
    """ "auto" is resolved by public figures, before the bill (`tulle.methods.geometry.chosen_engine`)."""

    PUBLIC = PublicFacts(1000, 50, 5, Logistic(), Budget(1.0, 1e-6), 1.0, 1.0, 1.0, False)

    def choose(self, n_iter: int, engine: queries.Engine = "auto", **facts: Any) -> str:
        return geometry.chosen_engine(engine, n_iter, 100, replace(self.PUBLIC, **facts))

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
    base, first, second = small_problem(), Walk(np.zeros((3, 1))), Walk(np.zeros((3, 1)))
    public = base.public(1.5)

    def follower(walk: Walk, units: FloatArray | None = None) -> Follower:
        return CoordinateScores(walk, 0.5, units=units, engine="incremental").evaluate(base.rows, public)._follower

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
    walk = Walk(np.zeros((16, 1)))
    follower = Follower(poisoned.blocks[0], walk, Squared(), 0.5, None)
    clean = Rows(sp.csr_array(base.dense[~gone, :-1]), base.targets[~gone])
    reference = Problem(clean, base.dense[~gone], base.targets[~gone], Squared(), 0.5, None)
    for _ in random_moves(walk, generator, 15, []):
        follower.catch_up(0.5)
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
        walk = Walk(np.zeros((9, 1)))
        list(random_moves(walk, generator, 6, []))
        for _ in range(2):
            dense, targets = base.dense.copy(), base.targets.copy()
            dense[0] = generator.choice(extremes, 8, p=[0.4, 0.2, 0.2, 0.06, 0.06, 0.06, 0.01, 0.01])
            targets[0] = generator.choice([-1.0, 1.0]) if loss.kind == "classification" else generator.choice(extremes)
            rows = Rows(sp.csr_array(dense), targets)
            bounds.clip(rows, loss)
            follower = Follower(rows.blocks[0], walk, loss, 1.0, scale)
            follower.catch_up(level)
            sums.append(follower.sums())
            assert np.all(np.isfinite(sums[-1]))
        largest = max(largest, float(np.abs(sums[0] - sums[1]).max()))
    assert 1.2 * level < largest <= 2 * level * (1 + 1e-12)


def corner(dense: FloatArray, intercept_value: float = 0.0, active: Any = None) -> tuple[Problem, Walk]:
    targets = np.where(np.arange(len(dense)) % 2, 1.0, -1.0)
    rows = Problem(Rows(sp.csr_array(dense), targets, active), dense, targets, Logistic(), intercept_value, None)
    if intercept_value:
        rows.dense = np.hstack([dense, np.full((len(dense), 1), intercept_value)])
    return rows, Walk(np.zeros((rows.parameters, 1)))


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
            follower.catch_up(level)
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
    follower.catch_up(1.0)
    expected = law(rows.sums(walk, 1.0), "vertices", 1.0)
    assert p_value(tally(follower, "vertices", 1.0, 3000, 36), expected) > FALSE_ALARM
    if name != "some rows do not count":
        np.testing.assert_allclose(expected, expected[0])


def test_an_infinite_slope_counts_as_nothing_even_where_nothing_is_clipped() -> None:
    """Without privacy the level is infinite; a target that is not finite must not reach the sums."""
    rows = Rows(sp.csr_array(np.ones((3, 2))), np.array([1.0, np.inf, 2.0]))
    follower = Follower(rows.blocks[0], Walk(np.zeros((2, 1))), Squared(), 0.0, None)
    follower.catch_up(np.inf)
    np.testing.assert_array_equal(follower.sums(), [-3.0, -3.0])
    assert follower.sum_of(1) == -3.0


# --- draws that end ---


@every_kind
def test_a_draw_ends_whatever_the_state_is(kind: Kind) -> None:
    """Bounds that are no numbers never accept a candidate: after a public number of proposals all sums are taken."""
    rows = problem(Logistic(), intercept_value=0.6)
    walk = Walk(np.zeros((rows.parameters, 1)))
    follower = rows.follower(walk)
    follower.catch_up(0.5)
    follower.draw(kind, 2.0, np.random.default_rng(0))
    for array in (follower._path.drift, follower._weights.spread):
        array[:] = np.nan
    coordinate, sign = follower.draw(kind, 2.0, Rationed(1, 1000))  # type: ignore[arg-type]
    assert 0 <= coordinate < rows.parameters
    assert sign in (-1.0, 1.0)


@every_kind
def test_a_draw_from_all_sums_has_the_same_law(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = problem(Squared(), intercept_value=0.6, features=12, density=0.4)
    walk = Walk(np.zeros((rows.parameters, 1)))
    follower = rows.follower(walk)
    follower.catch_up(0.5)
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
    walk = Walk(np.zeros((rows.parameters, 1)))
    follower = rows.follower(walk)
    follower.catch_up(0.5)
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
    walk = Walk(np.zeros((2, 1)))
    follower = Follower(rows.blocks[0], walk, Logistic(), 0.0, None)  # type: ignore[arg-type]
    follower.catch_up(1e-100)
    walk.move(1.0, np.array([0]), np.array([1e200]))
    follower.catch_up(1e-100)
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
    walk = Walk(np.r_[np.zeros(6), np.ones(int(intercept_value > 0))][:, None])
    both = [Follower(one.blocks[0], walk, Squared(), intercept_value, None) for one in (rows, kept)]  # type: ignore
    for step, _ in enumerate(random_moves(walk, generator, 12, [])):
        for follower in both:
            follower.catch_up(0.005)
            follower.draw("vertices", 1e3, Rationed(step, 200))  # type: ignore[arg-type]
        np.testing.assert_allclose(both[0].sums(), both[1].sums(), rtol=1e-9, atol=1e-15)
        np.testing.assert_array_equal(both[0]._path.z[active], both[1]._path.z)
    assert intercept_value or both[0]._path.z[5] == 0.0
