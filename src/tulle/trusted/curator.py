"""The curator: holds the private rows and is the only code that evaluates a query on them.

A method is an analyst. It gets `ask` and the public facts, nothing else: each call names a release of the plan, is
charged before its noise is drawn, and comes back noisy.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from tulle.trusted.facts import PublicFacts
from tulle.trusted.mechanisms import Exact, NoisyMax, Sensitivity, Then
from tulle.trusted.plan import Bill, Plan, PlanError
from tulle.trusted.queries import Query, is_answered
from tulle.trusted.rows import Rows
from tulle.trusted.sampling import Sampler, Sampling


class Ask(Protocol):
    """All that a method has: ask the curator a query under a release of the plan."""

    def __call__(self, name: str, query: Query, then: Then | None = None) -> Any: ...


# No private answer is about sums that could become larger: products with the shortest rows stay numbers too.
LARGEST_SUM = 1e150


def summation_slack(n_rows: int) -> float:
    """By how much more than exact sums the sums of n rows in float64 can move: n roundings per coordinate, each of
    up to 2^-53 of n contributions, on both data sets (docs/proofs/floating_point.md)."""
    return 1.0 + n_rows * (n_rows + 8.0) * 2.0**-52


class Curator:
    """Answers the queries of one plan."""

    def __init__(self, rows: Rows, public: PublicFacts, plan: Plan, generator: np.random.Generator) -> None:
        self._rows = rows
        self._public = public
        self._bill = Bill(plan)
        self._generator = generator
        self._samplers: dict[str, tuple[Sampler, PublicFacts]] = {}

    def ask(self, name: str, query: Query, then: Then | None = None) -> Any:
        """The private answer to `query`, by the mechanism that the plan holds under `name`."""
        release = self._bill.charge(name)
        sampling = release.mechanism.sampling
        rows, public, fullest = self._rows, self._public, 1.0
        with np.errstate(all="ignore"):  # a warning about somebody's extreme row would be a release
            if sampling is not None:
                rows, public = self._batch(name, sampling)
                fullest = self._public.n_rows / public.n_rows  # by how much a batch can surpass its expected size
            query = query.resolve(public)
            exposed = isinstance(release.mechanism, Exact) or release.mechanism.noise.value == 0
            if not (exposed or is_answered(query)):
                raise PlanError(f"{name!r} is asked by {type(query).__name__}, which trusted code does not answer")
            sensitivity = query.sensitivity(public)
            if sampling is not None:
                # Batches with a unit are also compared with batches without it: twice the bound on one unit, even where
                # two units differ by less.
                sensitivity = Sensitivity(l2=max(sensitivity.l2, 2.0 * query.one_unit(public)))
            # Sums are over as many rows as there are in all, at most.
            sensitivity = sensitivity.times(summation_slack(self._public.n_rows))
            largest = fullest * (query.largest if isinstance(release.mechanism, NoisyMax) else query.size)(public)
            limit = LARGEST_SUM / self._public.n_rows
            if not (exposed or largest <= limit):
                # Behind this a sum that is not finite would count as nothing, and say by that how large it was.
                raise ValueError("the bounds, the clip or the weights are so large that sums over rows could overflow")
            exact = query.evaluate(rows, public)
            if largest < math.inf:
                # Sums are added to public weights, or divided: a few roundings of numbers of this size, on both sides.
                sensitivity = sensitivity.with_errors(2.0**-49 * largest, math.prod(exact.shape))
            if isinstance(exact, np.ndarray):  # objectives, scores on demand and sparse answers guard themselves
                exact = np.nan_to_num(exact, copy=False, nan=0.0, posinf=0.0, neginf=0.0)
            return release.mechanism.release(exact, sensitivity, self._generator, then)

    def _batch(self, name: str, sampling: Sampling) -> tuple[Rows, PublicFacts]:
        """The rows of the next batch, and the facts of a mean that is divided by the public size of batches."""
        if sampling.n_rows != self._public.n_rows or sampling.rows_per_unit != self._public.rows_per_unit:
            raise PlanError(f"{name!r} plans batches of other rows than there are: {sampling}")
        sampler, public = self._samplers.setdefault(
            name, (Sampler(sampling), replace(self._public, n_rows=sampling.batch))
        )
        return self._rows.batch(sampler.draw(self._generator)), public

    def settle(self) -> None:
        """Raise unless exactly the plan was released."""
        self._bill.settle()
