"""Where ledgers are told of every release: which are open, and who is billed.

A ledger is another package's; trusted code sees to it that every open one is billed before noise is drawn, or none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from tulle.trusted.plan import Plan, PlanError, Promise


class BillingLedger(Protocol):
    """What trusted code needs of a ledger. `repeats`: whether equal fits in another such ledger draw equal noise."""

    repeats: bool

    def quote(self, what: str, plans: Sequence[Plan], promise: Promise, rows_per_unit: int) -> Any:
        """Raise where the ledger would refuse; of several plans the most expensive counts."""

    def bill(self, what: str, plans: Sequence[Plan], promise: Promise, rows_per_unit: int = 1) -> int:
        """Bill a fit before it draws noise; returns its number."""

    def confirm(self, plan: Plan, promise: Promise, number: int) -> None:
        """Raise unless the plan that the fit of this number settled on costs no more than was billed for it."""

    def stream(self, number: int) -> tuple[int, ...]:
        """Words that tell the noise of the fit of this number from that of others under the same seed."""


# A fit's place in a ledger: the ledger and the number that it gave to the fit.
Entry = tuple[BillingLedger, int]

# Process-wide, not per thread: a fold that joblib runs in another thread is billed too.
open_ledgers: list[BillingLedger] = []

# Stands in for the open ledgers, in this thread alone, while what they were billed for beforehand is carried out.
_prepaid: ContextVar[BillingLedger | None] = ContextVar("tulle_prepaid", default=None)

# Raises where a ledger that is open in another process would have to be billed. Registered by `tulle.ledgers`.
_other_processes: Callable[[bool], None] | None = None


def register_check_of_other_processes(check: Callable[[bool], None]) -> None:
    """Have `check(prepaid)` called before every bill."""
    global _other_processes
    _other_processes = check


@contextmanager
def billed_to(ledger: BillingLedger) -> Iterator[None]:
    """Bill fits to `ledger` instead of the open ledgers, which were billed for all that `ledger` allows."""
    token = _prepaid.set(ledger)
    try:
        yield
    finally:
        _prepaid.reset(token)


def bill_open_ledgers(what: str, plans: Sequence[Plan], promise: Promise, rows_per_unit: int) -> tuple[Entry, ...]:
    """Bill a fit to every open ledger, or raise and bill it to none."""
    ledgers = list(open_ledgers)
    if (prepaid := _prepaid.get()) is not None:
        ledgers = [prepaid]
    if _other_processes is None:  # without it a worker would fit unbilled
        raise PlanError("no check for ledgers of other processes is registered: import tulle.ledgers.ledger")
    _other_processes(prepaid is not None)
    for ledger in ledgers:  # all or none
        ledger.quote(what, plans, promise, rows_per_unit)
    return tuple((ledger, ledger.bill(what, plans, promise, rows_per_unit)) for ledger in ledgers)


def stream_of(entries: Sequence[Entry]) -> tuple[int, ...]:
    """What tells the noise of a billed fit from that of another under the same seed."""
    return tuple(word for ledger, number in entries for word in ledger.stream(number))


def can_be_repeated(entries: Sequence[Entry]) -> bool:
    """Whether a billed fit with a seed could ever draw its noise again: a nonce in its stream forbids it."""
    return all(ledger.repeats for ledger, _ in entries)
