"""Warnings before anything is spent: weak guarantees, poor accuracy, and what private steps expect to find."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tulle.estimators.bounds import reliable
from tulle.estimators.method_run import find_mu
from tulle.reports.words import (
    USER,
    warn_of_bounds,
    warn_of_doubt,
    warn_of_guessing,
    warn_of_large_epsilon,
    warn_of_one_row_each,
    warn_of_published_noise,
    warn_of_units,
    warn_of_unreasonable_bounds,
)
from tulle.trusted.facts import PublicFacts
from tulle.trusted.fit import Proved

if TYPE_CHECKING:
    from tulle.estimators.request import FitRequest, PlannedFit


def warn_beforehand(request: FitRequest, planned: Sequence[PlannedFit]) -> None:
    """Warn, from public quantities and before anything is spent, of weak guarantees and of poor accuracy."""
    if request.grouped and request.bounds.rows_per_person == 1:
        warn_of_one_row_each()
    if request.budget is None:
        return
    warn_of_large_epsilon(request.budget.epsilon, USER)
    warn_of_unreasonable_bounds(request.bounds)
    first = planned[0]
    failed = first.method.failed_conditions(first.public, request.budget) if request.published else ()
    promise = Proved.of([one.plan for one in planned], request.delta).epsilon
    rho = request.promised_rho(planned)
    warn_of_published_noise(request.budget, promise, failed, first.method.only_published, rho)
    if is_hopeless(planned):
        warn_of_guessing(first.public, request.budget)
    whole = _with_whole_budget(request, first)
    doubts = [step.doubt(whole, find_mu(step.releases(1.0, first.public), first)) for step, _ in request.steps]
    for doubt in (*doubts, first.method.doubt(first.public, first.plan.releases[first.of_steps :])):
        if doubt:
            warn_of_doubt(doubt)
    wanted, bounds = request.wanted, request.bounds
    each = request.spent_on_bounds / max(len(wanted), 1)
    if request.dense and set(wanted) & {"row_l2", "row_linf"}:
        warn_of_units()
    if wanted and not reliable(first.public.n_rows, bounds.quantile, each, bounds.rows_per_person):
        warn_of_bounds(first.public.n_rows, wanted, each)


def expectations(request: FitRequest, planned: Sequence[PlannedFit]) -> list[str]:
    """What private steps are expected to find, from public quantities."""
    first = planned[0]
    found = []
    for step, _ in request.steps:
        mu = find_mu(step.releases(1.0, first.public), first)
        found.append(step.expect(_with_whole_budget(request, first), mu))
    return [line for line in found if line is not None]


def _with_whole_budget(request: FitRequest, one: PlannedFit) -> PublicFacts:
    """The public facts of a plan with the budget of steps and model together."""
    return replace(one.public, budget=request.budget)


def is_hopeless(planned: Sequence[PlannedFit]) -> bool:
    """Whether no common feature can be distinguished from noise, for any bounds."""
    return max(one.method.signal_to_noise(one.public, one.plan.releases[one.of_steps :]) for one in planned) < 1
