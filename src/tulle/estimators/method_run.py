"""What happens between the bill and the receipt of a fit: private steps learn and transform rows, the method asks.

Vouched for on use: private steps see rows here, and a report names them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tulle.backends.rows_elsewhere import Spread
from tulle.backends.weighted_rows import WeightedRows
from tulle.methods.base import RowSplit
from tulle.preprocessing.private_step import run_steps
from tulle.trusted.curator import Ask
from tulle.trusted.mechanisms import Then
from tulle.trusted.plan import PlanError, Release
from tulle.trusted.queries import Query
from tulle.trusted.rows import Rows

if TYPE_CHECKING:
    from tulle.estimators.request import FitRequest, PlannedFit


def run_method(
    request: FitRequest,
    chosen: PlannedFit,
    X: Any,
    rows: Rows,
    first_rows: npt.NDArray[np.bool_] | None,
    ask: Ask,
) -> Any:
    """Let private steps learn and transform the rows, each by itself, and the method fit to these. `first_rows` are
    those of each person that count."""
    public = chosen.public
    factors = None
    if request.balance is not None:
        factors = request.balance.learn(ask, public, find_mu(request.balance.releases(1.0), chosen))
    if request.steps:
        use = _use_elsewhere(rows, first_rows) if isinstance(X, Spread) else _use_in_memory(rows)
        each = [(step, find_mu(step.releases(1.0, public), chosen)) for step, _ in request.steps]
        run_steps(each, ask, public, X, use)
        request.bounds.known(X.shape[1]).clip(rows, request.loss)
    if isinstance(rows, WeightedRows):
        rows.carry(factors)
    split = chosen.method.split(public)
    if split is not None:
        if any(release.mechanism.sampling is not None for release in chosen.plan):
            raise PlanError("a method that divides rows draws no batches of them")
        ask = ask_of_parts(ask, rows, split, request.seed)
    return chosen.method.run(ask, public)


def _use_in_memory(rows: Rows) -> Callable[[Any], None]:
    """What makes transformed arrays the rows that queries are about, with the targets of these and as many of them."""
    targets, active = (np.concatenate([getattr(one, of) for one in rows.blocks]) for of in ("targets", "active"))

    def use(transformed: Any) -> None:
        rows.blocks[:] = Rows(transformed, targets, active).blocks

    return use


def _use_elsewhere(rows: Rows, first_rows: npt.NDArray[np.bool_] | None) -> Callable[[Spread], None]:
    """The same where rows are elsewhere: they are transformed there, block by block."""

    def use(transformed: Spread) -> None:
        vars(rows).update(vars(transformed.rows(first_rows)))

    return use


def ask_of_parts(ask: Ask, rows: Rows, split: RowSplit, seed: int | None) -> Ask:
    """Ask some releases of a part of the rows, and all others of the rest.

    Which rows are drawn for the part depends on their number alone: the same rows on neighbouring data sets. So a
    release about a part is one about all rows, of which some contribute nothing, and its sensitivity holds. It is
    billed as one about all rows.
    """
    n_rows = sum(rows.sizes())
    drawn = np.random.default_rng(None if seed is None else (seed, n_rows)).permutation(n_rows)
    count = split.count(n_rows)
    part, rest = (rows.batch(np.sort(numbers)).blocks for numbers in (drawn[:count], drawn[count:]))

    def ask_part(name: str, query: Query, then: Then | None = None) -> Any:
        rows.blocks[:] = part if name in split.names else rest
        return ask(name, query, then)

    return ask_part


def find_mu(releases: Sequence[Release], chosen: PlannedFit) -> float:
    """What the answers of these names cost together, by the plan: inf without noise."""
    names = {release.name for release in releases}
    own = [release for release in chosen.plan.releases if release.name in names]
    return math.sqrt(sum(release.count * release.mechanism.noise.inverse**2 for release in own))
