"""`tulle.trusted.fit.open_account`, with a log of requests, proofs, bills and refusals.

All of it is known before a row is looked at, except whether the release ends: of an error after the bill only the type
is logged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import MappingProxyType
from typing import Any

import numpy as np

from tulle.monitoring.log_events import ProgressSteps, log_event
from tulle.trusted.billing import BillingLedger
from tulle.trusted.curator import Ask
from tulle.trusted.fit import Account, Order, RowHolders, open_account
from tulle.trusted.mechanisms import Then
from tulle.trusted.queries import Query

# What a refusal is called. Other errors before the bill are about settings or structure.
_REASONS = {"BudgetExceededError": "cap", "PlanError": "plan", "UnclearChargeError": "unclear charge"}


@contextmanager
def open_logged_account(
    order: Order,
    logger: str,
    about: Mapping[str, Any] = MappingProxyType({}),
    *,
    holders: RowHolders | None = None,
    ledgers: Sequence[BillingLedger] | None = None,
    generator: np.random.Generator | None = None,
) -> Iterator[Account]:
    """Open an account and log what becomes of it.

    Parameters
    ----------
    order : Order
    logger : str
        The `__name__` of the module that asks.
    about : mapping of str to value
        Further fields of the first event, such as n_rows and method.
    holders, ledgers, generator
        As in `tulle.trusted.fit.open_account`.
    """
    what = leading_name(order.what)
    asked = {} if order.budget is None else {"asked_epsilon": float(order.budget.epsilon), "asked_delta": order.delta}
    log_event(logger, "release.begin", what=what, **{**asked, **about})
    with ExitStack() as stack:
        try:
            account = stack.enter_context(open_account(order, holders=holders, ledgers=ledgers, generator=generator))
        except Exception as error:
            kind = type(error).__name__
            log_event(logger, "release.refused", what=what, error=kind, reason=_REASONS.get(kind, "input"))
            raise
        log_event(
            logger,
            "release.billed",
            what=what,
            proved_epsilon=float(account.promise.epsilon),
            proved_delta=float(order.delta),
            releases=release_names(order),
            n_ledgers=len(account.entries),
        )
        try:
            yield account
        except BaseException as error:
            log_event(logger, "release.failed", what=what, error=type(error).__name__)
            raise
    log_event(logger, "release.end", what=what)


def release_names(order: Order) -> tuple[str, ...]:
    """The names of all releases that an order can lead to, each once."""
    every = (release.name for plan in order.plans for release in plan)
    return tuple(dict.fromkeys(every))[:100]


def leading_name(what: str) -> str:
    """The first name in the text of a bill. The rest is left out: for a federated client it has the client's name."""
    found = re.match(r"[A-Za-z_][A-Za-z0-9_.]*", what)
    return "release" if found is None else found.group()[:64]


def log_answers(ask: Ask, logger: str, what: str, total: int) -> Ask:
    """`ask`, with a line in the log for each tenth of the planned answers. No answer is looked at."""
    steps = ProgressSteps(total)

    def ask_and_count(name: str, query: Query, then: Then | None = None) -> Any:
        answer = ask(name, query, then=then)
        if steps.advance():
            log_event(logger, "release.progress", what=what, done=steps.done, total=steps.total)
        return answer

    return ask_and_count
