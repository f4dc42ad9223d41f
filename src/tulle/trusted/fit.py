"""The one entry point to private rows: bill, key the generator, curate, ask, settle, receipt.

Fits, estimates of bounds, scores, searches and federated clients all release through an `Account`. The caller
decides which queries are asked, and in which order. This module ensures that each was billed before, is within a billed
plan, is asked once and is proved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from tulle.trusted.accountants import epsilon, proof, prove
from tulle.trusted.billing import BillingLedger, Entry, bill_open_ledgers, can_be_repeated, stream_of
from tulle.trusted.curator import Ask, Curator
from tulle.trusted.facts import PublicFacts
from tulle.trusted.losses import AnyLoss
from tulle.trusted.plan import Budget, Plan, PlanError, Promise
from tulle.trusted.randomness import keyed_generator
from tulle.trusted.rows import Rows

T = TypeVar("T")


class RowHolders(Protocol):
    """Those who hold rows elsewhere and may keep ledgers of their own."""

    def bill(
        self, what: str, plans: Sequence[Plan], loss: AnyLoss | None, price: Promise, rows_per_unit: int
    ) -> None: ...

    def confirm(self, plan: Plan, price: Promise) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Order:
    """The planned releases, stated before any row is looked at.

    `plans` are all those that preliminary answers can lead to. `budget` is what they may prove; None where the noise is
    a paper's, or where there is none.
    """

    what: str
    plans: tuple[Plan, ...]
    delta: float = 0.0
    rows_per_unit: int = 1
    seed: int | None = None
    budget: Budget | None = None
    loss: AnyLoss | None = None


@dataclass(frozen=True)
class Proved:
    """The promise that holds for all possible preliminary answers: the largest values over all plans.

    Which plan is settled on depends on private answers, so no smaller epsilon may be stated.
    """

    epsilon: float
    arithmetic: float  # the part of delta for finite precision

    @classmethod
    def of(cls, plans: Sequence[Plan], delta: float) -> Proved:
        proofs = [prove(plan, delta) for plan in plans]
        return cls(max(proof[0] for proof in proofs), max(proof[1] for proof in proofs))


@dataclass(frozen=True)
class Receipt:
    """What was released, and what was proved for it. `seeded`: whether its noise could be drawn again."""

    plan: Plan
    promise: Proved
    accountant: str
    seeded: bool


class Account:
    """A release that is on every bill: its noise, and what of it may still be asked."""

    def __init__(
        self,
        order: Order,
        promise: Proved,
        entries: Sequence[Entry],
        generator: np.random.Generator,
        holders: RowHolders | None,
    ) -> None:
        self.order, self.promise, self.generator = order, promise, generator
        self.seeded = order.seed is not None and can_be_repeated(entries)
        self.entries, self._holders = entries, holders
        self._first: Plan | None = Plan((), order.plans[0].preliminary)
        self._curated = False
        self._settled: Plan | None = None

    def ask_first(self, rows: Rows, public: PublicFacts, questions: Callable[[Ask], T]) -> T:
        """What `questions` makes of the answers to the preliminary releases, which are the same in all plans."""
        if self._first is None:
            raise PlanError("preliminary releases are asked for once")
        plan, self._first = self._first, None
        return self._ask_all(Curator(rows, public, plan, self.generator), questions)

    def ask(self, rows: Rows, public: PublicFacts, plan: Plan, questions: Callable[[Ask], T]) -> T:
        """What `questions` makes of the answers to all other releases of a plan that costs no more than was billed."""
        result = self._ask_all(self.curate(rows, public, plan), questions)
        self._settled = plan
        return result

    def curate(self, rows: Rows, public: PublicFacts, plan: Plan) -> Curator:
        """The curator of these releases, where they are asked for over time, and perhaps not all of them."""
        if self._curated or (self._first is not None and plan.preliminary):
            raise PlanError("a plan is asked for once, after its preliminary releases")
        self.confirm(plan)
        self._curated = True
        return Curator(rows, public, Plan(plan.releases), self.generator)

    def confirm(self, plan: Plan) -> None:
        """Raise unless a plan costs no more than was billed."""
        if not _start_alike(plan, self.order.plans[0]):
            raise PlanError("the preliminary releases are not those that were billed")
        price = (epsilon(plan, self.order.delta), self.order.delta)
        if not price[0] <= self.promise.epsilon * (1 + 1e-8):
            raise PlanError("the method's plan depends on the estimated bounds in a way that was not billed")
        for ledger, number in self.entries:
            ledger.confirm(plan, price, number)
        if self._holders is not None:
            self._holders.confirm(plan, price)

    def _ask_all(self, curator: Curator, questions: Callable[[Ask], T]) -> T:
        result = questions(curator.ask)
        curator.settle()
        return result

    def receipt(self) -> Receipt:
        """What was released and proved; raises where the plan was not asked for."""
        if self._settled is None:
            raise PlanError("there is no receipt before all of a plan was released")
        return Receipt(self._settled, self.promise, proof(self._settled, self.order.delta)[1], self.seeded)


@contextmanager
def open_account(
    order: Order,
    *,
    holders: RowHolders | None = None,
    ledgers: Sequence[BillingLedger] | None = None,
    generator: np.random.Generator | None = None,
) -> Iterator[Account]:
    """Prove and bill an order, then key its noise; nothing was drawn if this raises.

    `ledgers` are billed instead of the open ones; none may be billed only where nothing is private, as for a student on
    public rows. `generator` is that of the account that the order is a part of.
    """
    promise = Proved.of(order.plans, order.delta)
    if order.budget is not None and not promise.epsilon <= order.budget.epsilon * (1 + 1e-9):
        raise PlanError(f"the plan of {order.what} proves epsilon = {promise.epsilon:.6g}, more than {order.budget}")
    if not all(_start_alike(plan, order.plans[0]) for plan in order.plans):
        raise PlanError("plans of one order have different preliminary releases")
    entries = _bill(order, (promise.epsilon, order.delta), ledgers)
    if holders is not None:
        holders.bill(order.what, order.plans, order.loss, (promise.epsilon, order.delta), order.rows_per_unit)
    try:
        drawn = keyed_generator(order.seed, stream_of(entries)) if generator is None else generator
        yield Account(order, promise, entries, drawn, holders)
    finally:
        if holders is not None:
            holders.close()


def _start_alike(one: Plan, other: Plan) -> bool:
    """Whether two plans have the same preliminary releases, composed with the others in the same way."""
    return one.preliminary == other.preliminary and one.together == other.together


def _bill(order: Order, price: Promise, ledgers: Sequence[BillingLedger] | None) -> tuple[Entry, ...]:
    about = (order.what, order.plans, price, order.rows_per_unit)
    if ledgers is None:
        return bill_open_ledgers(*about)
    if not ledgers and any(release.mechanism.noise.value for plan in order.plans for release in plan):
        raise PlanError("a private release must be billed")
    for ledger in ledgers:
        ledger.quote(*about)
    return tuple((ledger, ledger.bill(*about)) for ledger in ledgers)
