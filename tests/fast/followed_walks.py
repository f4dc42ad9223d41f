"""Walks whose scores are followed, and the plain computation that they are compared with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy import stats

from tulle.fast.coordinate_path import CoordinatePath
from tulle.fast.scores_on_demand import Follower, Kind
from tulle.methods.loss_functions import Huber, Logistic, Loss, Squared, SquaredHinge
from tulle.trusted.events import FloatArray
from tulle.trusted.facts import PublicFacts
from tulle.trusted.rows import Rows

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

    def follower(self, walk: CoordinatePath) -> Follower:
        return Follower(self.rows.blocks[0], walk.point.start, self.loss, self.intercept_value, self.units)

    def sums(self, walk: CoordinatePath, level: float) -> FloatArray:
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


def random_moves(walk: CoordinatePath, generator: np.random.Generator, steps: int, drawn: list[int]) -> Iterator[None]:
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
