"""Releases about rows that an audit made up: billed to a ledger of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tulle.estimators.method_run import ask_of_parts
from tulle.estimators.progress import Witness, show_answers
from tulle.estimators.request import PlannedFit
from tulle.trusted.curator import Ask, Curator
from tulle.trusted.events import FloatArray
from tulle.trusted.plan import Plan, Promise
from tulle.trusted.rows import Rows


class AuditLedger:
    """The ledger of an audit's synthetic rows, which are no person's data: it allows any release, one per ledger."""

    repeats = True

    def quote(self, what: str, plans: Sequence[Plan], promise: Promise, rows_per_unit: int) -> None:
        return

    def bill(self, what: str, plans: Sequence[Plan], promise: Promise, rows_per_unit: int = 1) -> int:
        return 0

    def confirm(self, plan: Plan, promise: Promise, number: int) -> None:
        return

    def stream(self, number: int) -> tuple[int, ...]:
        return ()


def run_plan(
    planned: PlannedFit,
    rows: Rows,
    generator: np.random.Generator,
    witness: Witness | None,
    watch: Callable[[Ask], Ask] | None = None,
) -> FloatArray:
    """Let a method ask what its plan holds, of rows that an audit made up; returns its weights. Rows are divided as in
    a fit, where the method divides them. `watch` sees every question with its answer, except for a method that divides
    rows: which row is in which part is secret."""
    curator = Curator(rows, planned.public, Plan(planned.plan.releases), generator)
    ask, split = show_answers(curator.ask, witness), planned.method.split(planned.public)
    if watch is not None and split is None:
        ask = watch(ask)
    if split is not None:
        ask = ask_of_parts(ask, rows, split, int(generator.integers(2**62)))
    weights = planned.method.run(ask, planned.public)
    curator.settle()
    return weights
