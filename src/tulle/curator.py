"""The curator: holds the private rows and is the only code that evaluates a query on them.

A method is an analyst. It gets `ask` and the public facts, nothing else: each call names a release of the plan, is
charged before its noise is drawn, and comes back noisy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from tulle.mechanisms import HardThreshold, NoisyMax
from tulle.privacy import Bill, Plan
from tulle.public import PublicFacts
from tulle.queries import Query
from tulle.rows import Rows


class Ask(Protocol):
    """All that a method has: ask the curator a query under a release of the plan."""

    def __call__(self, name: str, query: Query, then: HardThreshold | None = None) -> Any: ...


Witness = Callable[[str, Any], None]


def summation_slack(n_rows: int) -> float:
    """By how much more than exact sums the sums of n rows in float64 can move.

    About n roundings per coordinate, each of up to 2^-53 of n contributions, on both data sets
    (docs/proofs/floating_point.md).
    """
    return 1.0 + n_rows * (n_rows + 8.0) * 2.0**-52


class Curator:
    """Answers the queries of one plan.

    Parameters
    ----------
    rows : Rows
    public : PublicFacts
    plan : Plan
    generator : numpy Generator
    witness : callable, default=None
        Called as witness(name, answer) with each answer that was released: progress displays and audits.
    """

    def __init__(
        self,
        rows: Rows,
        public: PublicFacts,
        plan: Plan,
        generator: np.random.Generator,
        witness: Witness | None = None,
    ) -> None:
        self._rows = rows
        self._public = public
        self._bill = Bill(plan)
        self._generator = generator
        self._witness = witness
        self.rounding = 0.0  # total variation distance to ideal arithmetic, from public quantities

    def ask(self, name: str, query: Query, then: HardThreshold | None = None) -> Any:
        """The private answer to `query`, by the mechanism that the plan holds under `name`."""
        release = self._bill.charge(name)
        sensitivity = query.sensitivity(self._public).times(summation_slack(self._public.n_rows))
        with np.errstate(all="ignore"):  # a warning about somebody's extreme row would be a release
            exact = query.evaluate(self._rows, self._public)
            if isinstance(exact, np.ndarray):  # objectives and scores on demand guard themselves
                exact = np.nan_to_num(exact, copy=False, nan=0.0, posinf=0.0, neginf=0.0)
            answer = release.mechanism.release(exact, sensitivity, self._generator, then)
        size = query.largest if isinstance(release.mechanism, NoisyMax) else query.size
        self.rounding += release.mechanism.rounding(exact.shape, size(self._public), sensitivity, then)
        if self._witness is not None:
            self._witness(name, answer)
        return answer

    def settle(self) -> None:
        """Raise unless exactly the plan was released."""
        self._bill.settle()
