"""The one entry point: what it refuses, what it bills before it draws, and what an account may be asked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import tulle.accounting.calibration  # noqa: F401  # the accountants of a fit
from tulle.fast.gumbel_on_demand import GumbelOnDemand
from tulle.ledgers.ledger import Ledger
from tulle.methods.gradient_queries import ClippedGradient
from tulle.methods.loss_functions import Logistic
from tulle.trusted import accountants
from tulle.trusted.accountants import epsilon
from tulle.trusted.curator import Ask
from tulle.trusted.events import NoisePerSensitivity, pure_gaussian_mu
from tulle.trusted.facts import PublicFacts
from tulle.trusted.fit import Order, open_account
from tulle.trusted.gaussian import gaussian_epsilon
from tulle.trusted.mechanisms import Gaussian, Laplace, SampledGaussian, TopK
from tulle.trusted.plan import Budget, Plan, PlanError, Promise, Release
from tulle.trusted.rows import Rows
from tulle.trusted.sampling import Sampling

DELTA = 1e-5
PUBLIC = PublicFacts(6, 2, 2, Logistic(), None, 1.0, 1.0, 1.0, False)
QUERY = ClippedGradient(np.zeros((2, 1)), 0.5)


def rows() -> Rows:
    return Rows(np.eye(6, 2), np.array([1.0, -1.0, 1.0, 1.0, -1.0, 1.0]))


def steps(count: int, noise: float = 10.0) -> Plan:
    return Plan((Release("step", Gaussian(NoisePerSensitivity(noise)), count),))


def with_first(plan: Plan, noise: float = 10.0) -> Plan:
    return Plan(plan.releases, (Release("first", Laplace(NoisePerSensitivity(noise)), 1),))


def order(*plans: Plan, budget: Budget | None = None, seed: int | None = 1) -> Order:
    return Order("a test", plans, DELTA, 1, seed, budget)


def ask_steps(count: int) -> Any:
    def questions(ask: Ask) -> list[Any]:
        return [ask("step", QUERY) for _ in range(count)]

    return questions


class Book:
    """A ledger that writes down what it is told, and in which order."""

    repeats = True

    def __init__(self, refuses: bool = False) -> None:
        self.told: list[tuple[str, Any]] = []
        self.refuses = refuses

    def quote(self, what: str, plans: Sequence[Plan], promise: Promise, rows_per_unit: int) -> None:
        self.told.append(("quote", promise))
        if self.refuses:
            raise ValueError("full")

    def bill(self, what: str, plans: Sequence[Plan], promise: Promise, rows_per_unit: int = 1) -> int:
        self.told.append(("bill", promise))
        return 7

    def confirm(self, plan: Plan, promise: Promise, number: int) -> None:
        self.told.append(("confirm", (number, promise)))

    def stream(self, number: int) -> tuple[int, ...]:
        return (number,)


def test_a_plan_is_proved_billed_asked_and_receipted() -> None:
    book, plan = Book(), steps(3)
    with open_account(order(plan), ledgers=[book]) as account:
        assert [name for name, _ in book.told] == ["quote", "bill"], "billed before anything can be asked"
        answers = account.ask(rows(), PUBLIC, plan, ask_steps(3))
    price = (epsilon(plan, DELTA), DELTA)
    assert book.told == [("quote", price), ("bill", price), ("confirm", (7, price))]
    assert len({answer.tobytes() for answer in answers}) == 3
    receipt = account.receipt()
    assert (receipt.plan, receipt.promise.epsilon, receipt.seeded) == (plan, price[0], True)


def test_a_plan_above_its_budget_is_refused_before_it_is_billed() -> None:
    book, plan = Book(), steps(3)
    budget = Budget(epsilon(plan, DELTA) / 1.01, DELTA)
    with pytest.raises(PlanError, match="proves epsilon"), open_account(order(plan, budget=budget), ledgers=[book]):
        pass
    assert book.told == []


def test_all_ledgers_are_billed_or_none() -> None:
    first, second = Book(), Book(refuses=True)
    with pytest.raises(ValueError, match="full"), open_account(order(steps(1)), ledgers=[first, second]):
        pass
    assert [name for name, _ in first.told] == ["quote"]


def test_noise_without_a_bill_is_refused() -> None:
    with pytest.raises(PlanError, match="must be billed"), open_account(order(steps(1)), ledgers=[]):
        pass


def test_the_dearest_plan_is_billed_and_no_dearer_one_can_be_asked() -> None:
    book, cheap, dear = Book(), steps(1), steps(2)
    with open_account(order(cheap, dear), ledgers=[book]) as account:
        assert book.told[-1] == ("bill", (epsilon(dear, DELTA), DELTA))
        for ask in (account.confirm, lambda plan: account.curate(rows(), PUBLIC, plan)):
            with pytest.raises(PlanError, match="was not billed"):
                ask(steps(3))
        account.confirm(cheap)
        account.ask(rows(), PUBLIC, cheap, ask_steps(1))
    assert account.receipt().promise.epsilon == epsilon(dear, DELTA)


@pytest.mark.parametrize("first", ["ask", "curate"])
@pytest.mark.parametrize("second", ["ask", "curate"])
def test_a_plan_is_asked_once(first: str, second: str) -> None:
    """Also where the first curator was asked nothing yet: two curators would answer twice what was billed once."""
    plan = steps(1)

    def use(account: Any, how: str) -> Any:
        arguments = (ask_steps(1),) if how == "ask" else ()
        return getattr(account, how)(rows(), PUBLIC, plan, *arguments)

    with Ledger(Budget(9.0, 1e-3)), open_account(order(plan)) as account:
        use(account, first)
        with pytest.raises(PlanError, match="asked for once"):
            use(account, second)


def test_a_curator_of_an_account_answers_what_is_planned_and_no_more() -> None:
    plan = steps(2)
    with open_account(order(plan), ledgers=[Book()]) as account:
        curator = account.curate(rows(), PUBLIC, plan)
        curator.ask("step", QUERY)
        with pytest.raises(PlanError, match="released"):
            curator.settle()
        curator.ask("step", QUERY)
        with pytest.raises(PlanError, match="more than the 2 times"):
            curator.ask("step", QUERY)
        with pytest.raises(PlanError, match="not in its plan"):
            curator.ask("another", QUERY)
    with pytest.raises(PlanError, match="no receipt"):
        account.receipt()


def test_preliminary_releases_come_first_and_once() -> None:
    plan = with_first(steps(1))
    with open_account(order(plan), ledgers=[Book()]) as account:
        with pytest.raises(PlanError, match="after its preliminary releases"):
            account.ask(rows(), PUBLIC, plan, ask_steps(1))
        with pytest.raises(PlanError, match="released"):  # nothing was asked
            account.ask_first(rows(), PUBLIC, lambda ask: None)
        with pytest.raises(PlanError, match="asked for once"):
            account.ask_first(rows(), PUBLIC, lambda ask: None)


def test_other_preliminary_releases_are_refused() -> None:
    plan = with_first(steps(1))
    with pytest.raises(PlanError, match="different preliminary"), open_account(order(plan, steps(1)), ledgers=[Book()]):
        pass
    with (
        open_account(order(plan), ledgers=[Book()]) as account,
        pytest.raises(PlanError, match="not those that were billed"),
    ):
        account.confirm(with_first(steps(1), noise=20.0))


def test_a_plan_that_is_not_asked_whole_has_no_receipt() -> None:
    plan = steps(2)
    with open_account(order(plan), ledgers=[Book()]) as account:
        with pytest.raises(PlanError, match="released"):
            account.ask(rows(), PUBLIC, plan, ask_steps(1))
        with pytest.raises(PlanError, match="no receipt"):
            account.receipt()


class Holders:
    """Somebody who holds rows elsewhere."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def bill(self, *about: Any) -> None:
        self.told.append("bill")

    def confirm(self, *about: Any) -> None:
        self.told.append("confirm")

    def close(self) -> None:
        self.told.append("close")


def test_holders_of_rows_are_billed_confirmed_and_closed_also_after_an_error() -> None:
    holders, plan = Holders(), steps(1)
    with pytest.raises(ZeroDivisionError), open_account(order(plan), holders=holders, ledgers=[Book()]) as account:
        account.ask(rows(), PUBLIC, plan, lambda ask: 1 / 0)
    assert holders.told == ["bill", "confirm", "close"]


def test_equal_seeds_draw_other_noise_under_another_entry() -> None:
    class Second(Book):
        def stream(self, number: int) -> tuple[int, ...]:
            return (number, 1)

    def drawn(book: Book, seed: int) -> bytes:
        plan = steps(1)
        with open_account(order(plan, seed=seed), ledgers=[book]) as account:
            return bytes(account.ask(rows(), PUBLIC, plan, ask_steps(1))[0].tobytes())

    assert drawn(Book(), 1) == drawn(Book(), 1)
    assert drawn(Book(), 1) != drawn(Second(), 1)
    assert drawn(Book(), 1) != drawn(Book(), 2)


def test_an_epsilon_that_is_no_number_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither of an accountant among others, nor of the only one."""
    plan, sound = steps(1), epsilon(steps(1), DELTA)

    class Broken(accountants.GaussianAccountant):
        name = "broken"

        def epsilon(self, composition: Any, delta: float) -> float:
            return math.nan

    for others in ([*accountants.ACCOUNTANTS], []):
        monkeypatch.setattr(accountants, "ACCOUNTANTS", [Broken(), *others])
        accountants.best_accountant.cache_clear()
        if others:
            assert epsilon(plan, DELTA) == sound
        else:
            with pytest.raises(ValueError, match="empty"), open_account(order(plan), ledgers=[Book()]):
                pass
    accountants.best_accountant.cache_clear()


def together(plan: Plan, noise: float = 10.0) -> Plan:
    return Plan(plan.releases, with_first(plan, noise).preliminary, together=True)


def test_preliminary_releases_are_added_up_or_composed() -> None:
    """Composed, all squares of mu add up, which proves less than the sum of epsilons; nothing else is looked at."""
    plan = steps(3)
    first = (Release("first", TopK(NoisePerSensitivity(20.0)), 1),)  # a range of 0.1
    added, composed = (epsilon(Plan(plan.releases, first, way), DELTA) for way in (False, True))
    mu = math.sqrt(3 / 10.0**2 + pure_gaussian_mu(0.05) ** 2)
    assert composed == pytest.approx(gaussian_epsilon(mu, DELTA), rel=1e-9)
    assert added == pytest.approx(0.1 + epsilon(plan, DELTA), rel=1e-9)
    assert composed < added


def test_composed_plans_are_proved_by_the_gaussian_accountant_alone() -> None:
    """A sharper proof at one epsilon bounds no trade-off curve, and the plan is chosen in view of the first answers."""
    sampling = Sampling("poisson", 1000, 10)
    plan = Plan((Release("step", SampledGaussian(NoisePerSensitivity(2.0), sampling), 5),))
    assert epsilon(plan, DELTA) < 0.5 * gaussian_epsilon(math.sqrt(5 / 4), DELTA)
    assert epsilon(together(plan), DELTA) > gaussian_epsilon(math.sqrt(5 / 4), DELTA)


def test_how_first_answers_are_composed_is_the_same_for_all_plans() -> None:
    with (
        pytest.raises(PlanError, match="different preliminary releases"),
        open_account(order(with_first(steps(1)), together(steps(1))), ledgers=[Book()]),
    ):
        pass
    with open_account(order(with_first(steps(3)), with_first(steps(1))), ledgers=[Book()]) as account:
        account.ask_first(rows(), PUBLIC, lambda ask: ask("first", QUERY))
        with pytest.raises(PlanError, match="preliminary releases are not those that were billed"):
            account.confirm(together(steps(1)))


def test_answers_that_are_not_exact_are_not_composed_with_preliminary_ones() -> None:
    """How delta is divided between mu and finite precision could hang on the answers: nothing is proved then."""
    mechanism = GumbelOnDemand(NoisePerSensitivity(30.0), 1, 1000, 20_000)
    releases = (Release("vertex", mechanism, 20),)
    first = with_first(steps(1)).preliminary
    assert math.isfinite(epsilon(Plan(releases, first), DELTA))
    assert epsilon(Plan(releases, first, together=True), DELTA) == math.inf
