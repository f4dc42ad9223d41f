"""Budgets, plans and bills.

A method states what it will release as a list of `Release` (mechanism, count). Calibration finds the noise for that
list, the run charges a `Bill` as it goes, and the bill must equal the plan. Adjacency is replace-one throughout.
"""

from __future__ import annotations

import math
import numbers
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tulle.trusted.events import Event
from tulle.trusted.mechanisms import Mechanism, price_of


class PlanError(RuntimeError):
    """A method asked for something else than its plan says: a bug in the method, never a user's mistake."""


def is_number(value: Any) -> bool:
    """Whether a parameter is a real number, numpy's included; True and False are not."""
    return isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_))


@dataclass(frozen=True)
class Budget:
    """What may be spent: an epsilon in (0, inf) and a delta in [0, 1), under replace-one adjacency. A delta of 0 admits
    only releases that are purely epsilon-private."""

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        if not (is_number(self.epsilon) and 0 < self.epsilon < math.inf):
            raise ValueError(
                f"epsilon must be a finite number > 0, got {self.epsilon!r}; use epsilon=None for a fit without privacy"
            )
        if not (is_number(self.delta) and 0 <= self.delta < 1):
            raise ValueError(f"delta must lie in [0, 1), got {self.delta!r}; choose it well below 1 / number of rows")
        # A float32 would pull later comparisons down to its own precision.
        object.__setattr__(self, "epsilon", float(self.epsilon))
        object.__setattr__(self, "delta", float(self.delta))


@dataclass(frozen=True)
class Release:
    """One line of a plan: a mechanism that will be used `count` times under one name."""

    name: str
    mechanism: Mechanism
    count: int  # at least 0: below, it would pay for other releases

    @property
    def answers_each(self) -> int:
        """How many answers one use gives: several where each is about other rows, and a row is in one of them."""
        sampling = self.mechanism.sampling
        return 1 if sampling is None else sampling.answers_per_release

    @property
    def answers(self) -> int:
        """How many answers the plan allows in all."""
        return self.count * self.answers_each

    def scaled(self, factor: float) -> Release:
        return replace(self, mechanism=self.mechanism.scaled(factor))


Composition = tuple[tuple[Event, int], ...]
# What a fit proves of itself, (epsilon, delta); unlike a Budget it may be infinite.
Promise = tuple[float, float]


@dataclass(frozen=True)
class Plan:
    """Everything a fit will release.

    `preliminary` releases are purely private and come first; `releases` may be chosen in view of their answers. So the
    two parts are added up as (e1 + e2, delta), or, `together`, composed as Gaussian differential privacy and by no
    other accountant: then the total mu is bounded by the promise, for every choice. It is one or the other for all
    plans that preliminary answers can lead to (docs/proofs/accounting.md, theorem 3).
    """

    releases: tuple[Release, ...]
    preliminary: tuple[Release, ...] = ()
    together: bool = field(default=False, metadata={"added later": True})

    def __post_init__(self) -> None:
        names = [release.name for release in self]
        if len(set(names)) < len(names):
            raise PlanError(f"two releases of one plan share a name: {names}")

    def __iter__(self) -> Iterator[Release]:
        yield from self.preliminary
        yield from self.releases

    @property
    def inexact(self) -> float:
        """What finite precision can move, in total variation: the sum over all answers."""
        return sum(release.answers * release.mechanism.inexact for release in self)


def compose(releases: Iterable[Release]) -> Composition:
    """The events of a list of releases with their multiplicities."""
    total: Counter[Event] = Counter()
    for release in releases:
        if not (type(release.count) is int and release.count >= 0):
            raise PlanError(f"{release.name!r} is planned {release.count!r} times, which is no integer >= 0")
        event, uses = price_of(release.mechanism)
        total[event] += uses * release.count
    return tuple((event, count) for event, count in total.items() if count)


class Bill:
    """What a fit has released so far. A release is charged before its noise is drawn."""

    def __init__(self, plan: Plan) -> None:
        self._planned = {release.name: release for release in plan}
        self._used: Counter[str] = Counter()

    def charge(self, name: str) -> Release:
        """Charge one use of the release called `name`, or raise if the plan holds no such use."""
        release = self._planned.get(name)
        if release is None:
            raise PlanError(f"the method asks for {name!r}, which is not in its plan ({sorted(self._planned)})")
        if self._used[name] >= release.answers:
            raise PlanError(f"the method asks for {name!r} more than the {release.answers} times in its plan")
        self._used[name] += 1
        return release

    def settle(self) -> None:
        """Raise unless exactly the plan was released."""
        planned = {name: release.count for name, release in self._planned.items() if release.count}
        released = {name: math.ceil(uses / self._planned[name].answers_each) for name, uses in self._used.items()}
        if released != planned:
            raise PlanError(f"the method released {released} but planned {planned}")
