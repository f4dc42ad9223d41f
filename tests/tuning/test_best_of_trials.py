"""The best of a secret number of trials: the law of the number, the theorem's bound, and the price that trials keep."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare, logser, nbinom

from tulle import Bounds, Budget, Ledger, SparseClassifier
from tulle.accounting.crosscheck import to_dp_accounting
from tulle.accounting.gaussian_budget import gaussian_mu
from tulle.accounting.renyi import ORDERS
from tulle.ledgers.ledger import BudgetExceededError
from tulle.methods import HardThresholding
from tulle.trusted.accountants import epsilon
from tulle.trusted.billing import billed_to
from tulle.trusted.events import GaussianEvent, NoisePerSensitivity
from tulle.trusted.mechanisms import Gaussian, Laplace, TopK, price_of
from tulle.trusted.plan import Plan, PlanError, Release
from tulle.tuning.best_of_trials import (
    BestOfTrials,
    BestOfTrialsEvent,
    TrialCount,
    TrialLedger,
    TrialPrice,
    affordable_search,
    as_plan,
    cheapest_search,
)

DELTA = 1e-5
LAWS = [TrialCount(10.0), TrialCount(10.0, 1.0), TrialCount(3.0, -0.5), TrialCount(25.0, 4.0), TrialCount(1.2, 0.3)]
law_ids = [f"{law.mean:g} trials, shape {law.shape:g}" for law in LAWS]


def chances(law: TrialCount, count: int) -> np.ndarray:
    """P(K = 1), ..., P(K = count) of scipy's laws; a negative shape has none there and is summed from its product."""
    k = np.arange(1, count + 1)
    if law.shape == 0:
        return logser.pmf(k, 1 - law.gamma)
    if law.shape > 0:
        return nbinom.pmf(k, law.shape, law.gamma) / (1 - nbinom.pmf(0, law.shape, law.gamma))
    weights = np.cumprod((k - 1 + law.shape) / k * (1 - law.gamma))
    return weights / (law.gamma**-law.shape - 1)


def gaussian_plan(mu: float, count: int = 1) -> Plan:
    return Plan((Release("step", Gaussian(NoisePerSensitivity(1 / mu)), count),))


class TestLaw:
    @pytest.mark.parametrize("law", LAWS, ids=law_ids)
    def test_gamma_gives_the_mean(self, law: TrialCount) -> None:
        k = np.arange(1, 200_001)
        assert chances(law, len(k)).sum() == pytest.approx(1.0, rel=1e-9)
        assert (k * chances(law, len(k))).sum() == pytest.approx(law.mean, rel=1e-8)

    @pytest.mark.parametrize("law", LAWS, ids=law_ids)
    def test_draws_follow_the_law_and_no_neighbouring_one(self, law: TrialCount) -> None:
        """A chi-square test on 20,000 draws; false alarms one in a million a law. A mean 40 % up is rejected."""
        generator = np.random.default_rng(3)
        draws = np.array([law.draw(generator) for _ in range(20_000)])
        assert draws.min() >= 1

        def p_value(candidate: TrialCount) -> float:
            expected = chances(candidate, 400) * len(draws)
            cut = max(int(np.argmax(np.cumsum(expected[::-1])[::-1] < 20)), 2)
            observed = np.bincount(np.minimum(draws, cut), minlength=cut + 1)[1:]
            expected = np.append(expected[: cut - 1], len(draws) - expected[: cut - 1].sum())
            return float(chisquare(observed, expected).pvalue)

        assert p_value(law) > 1e-6
        assert p_value(TrialCount(1.4 * law.mean, law.shape)) < 1e-6

    @pytest.mark.parametrize("law", LAWS, ids=law_ids)
    def test_the_largest_uniform_number_still_ends(self, law: TrialCount) -> None:
        """Sums of chances that fall a rounding short of 1 must not loop for ever, and 0 gives one trial."""

        class Extreme:
            def __init__(self, value: float) -> None:
                self.value = value

            def random(self) -> float:
                return self.value

        generator: Any = Extreme(1 - 2.0**-53)
        assert 1 < law.draw(generator) < 100 / law.gamma
        generator = Extreme(0.0)
        assert law.draw(generator) == 1

    @pytest.mark.parametrize("shape", [1e-13, -1e-13, 1e-300, -5e-324])
    def test_a_shape_next_to_0_is_0(self, shape: float) -> None:
        """Divided by itself times something, such a shape is lost in rounding."""
        assert TrialCount(10.0, shape) == TrialCount(10.0)
        assert TrialCount(10.0, 1e-11).gamma == pytest.approx(TrialCount(10.0).gamma, rel=1e-9)

    @pytest.mark.parametrize(
        ("mean", "shape", "message"),
        [
            (1.0, 0.0, "finite number > 1"),
            (0.5, 0.0, "finite number > 1"),
            (math.inf, 0.0, "finite number > 1"),
            (math.nan, 0.0, "finite number > 1"),
            ("ten", 0.0, "finite number > 1"),
            (True, 0.0, "finite number > 1"),
            (10.0, -1.0, r"lie in \(-1, 10\]"),
            (10.0, 11.0, r"lie in \(-1, 10\]"),
            (10.0, math.nan, r"lie in \(-1, 10\]"),
            (10.0, -0.99, "could reach millions"),
            (1e9, 0.0, "could reach millions"),
        ],
    )
    def test_bad_settings(self, mean: Any, shape: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            TrialCount(mean, shape)


class TestTheorem:
    @pytest.mark.parametrize(
        ("alone", "shape", "selected"), [(0.5, 0, 1.00), (1, 0, 1.92), (2, 0, 3.65), (4, 0, 6.84), (1, 1, 2.31)]
    )
    def test_vectors(self, alone: float, shape: float, selected: float) -> None:
        """One Gaussian trial at (alone, 1e-5), ten on average."""
        search = cheapest_search(TrialCount(10.0, shape), gaussian_mu(alone, DELTA), DELTA)
        assert epsilon(as_plan(search), DELTA) == pytest.approx(selected, abs=0.005)

    @pytest.mark.parametrize("law", [law for law in LAWS if law.shape >= 0], ids=str)
    @pytest.mark.parametrize("mu", [0.05, 0.3, 2.0])
    def test_agrees_with_dp_accounting(self, law: TrialCount, mu: float) -> None:
        """Theirs has the second order on a grid of 320, ours in closed form: ours is no larger, and hardly smaller."""
        from dp_accounting import GaussianDpEvent, NeighboringRelation
        from dp_accounting.dp_event import RepeatAndSelectDpEvent
        from dp_accounting.rdp import RdpAccountant

        accountant = RdpAccountant(list(ORDERS), neighboring_relation=NeighboringRelation.REPLACE_ONE)
        accountant.compose(RepeatAndSelectDpEvent(GaussianDpEvent(1 / mu), law.mean, law.shape))
        theirs = accountant.get_epsilon(DELTA)
        ours = epsilon(as_plan(cheapest_search(law, mu, DELTA)), DELTA)
        assert theirs * 0.998 <= ours <= theirs * (1 + 1e-9)

    @pytest.mark.parametrize("law", LAWS, ids=law_ids)
    @pytest.mark.parametrize("lean", [0.02, 0.1, 0.3])
    def test_no_exact_search_costs_more(self, law: TrialCount, lean: float) -> None:
        """The exact law of the best of K draws from 64 outcomes, for a neighbour that leans towards the good ones.

        P(best <= y) = f(P(one <= y)) with f the generating function of K. Divergences in both directions at three
        orders stay within the event's, whose price holds one draw.
        """
        y = np.linspace(-1, 1, 64)

        def best(one: np.ndarray) -> np.ndarray:
            below = 1 - (1 - law.gamma) * np.minimum(np.append(0.0, np.cumsum(one)), 1.0)
            if law.shape == 0:
                return np.diff(np.log(below) / np.log(law.gamma))
            return np.diff((below**-law.shape - 1) / (law.gamma**-law.shape - 1))

        def divergence(p: np.ndarray, q: np.ndarray, order: float) -> float:
            return float(np.log((p**order * q ** (1 - order)).sum()) / (order - 1))

        p, q = (np.exp(sign * lean * y) / np.exp(sign * lean * y).sum() for sign in (1, -1))
        for order in (1.5, 4.0, 20.0):
            for other in (1.2, 3.0, 30.0):
                orders = np.array([order, other])
                mu2 = max(2 * max(divergence(p, q, a), divergence(q, p, a)) / a for a in orders)
                event = BestOfTrialsEvent(law, TrialPrice(math.sqrt(mu2), order, other))
                exact = max(divergence(best(p), best(q), order), divergence(best(q), best(p), order))
                assert exact <= event.renyi(orders)[0]

    def test_nothing_is_claimed_above_the_order_nor_in_other_currencies(self) -> None:
        event = BestOfTrialsEvent(TrialCount(), TrialPrice(0.3, 8.0, 5.0))
        low, at, high = event.renyi(np.array([1.5, 8.0, 8.0 + 1e-9]))
        assert low == at < high == math.inf
        assert event.gaussian_mu() == event.pure_epsilon() == math.inf
        assert to_dp_accounting(event, "rdp") is None

    def test_more_trials_and_larger_shapes_cost_more(self) -> None:
        for laws in ([TrialCount(m) for m in (2, 5, 20, 100)], [TrialCount(10.0, s) for s in (-0.5, 0, 1, 4)]):
            costs = [epsilon(as_plan(cheapest_search(law, 0.2, DELTA)), DELTA) for law in laws]
            assert costs == sorted(costs)


class TestAffordableSearch:
    @pytest.mark.parametrize("law", LAWS, ids=law_ids)
    @pytest.mark.parametrize("budget", [Budget(0.05, 1e-6), Budget(1.0, 1e-5), Budget(8.0, 1e-5), Budget(50.0, 1e-3)])
    def test_spends_the_budget_and_no_more(self, law: TrialCount, budget: Budget) -> None:
        search = affordable_search(law, budget)
        assert 0.999 * budget.epsilon < epsilon(as_plan(search), budget.delta) <= budget.epsilon
        dearer = cheapest_search(law, search.price.mu * 1.001, budget.delta)
        assert epsilon(as_plan(dearer), budget.delta) > budget.epsilon

    def test_pure_budgets_are_refused(self) -> None:
        with pytest.raises(ValueError, match="delta > 0"):
            affordable_search(TrialCount(), Budget(1.0))

    def test_scaling_the_noise_scales_the_price(self) -> None:
        search = affordable_search(TrialCount(), Budget(1.0, DELTA))
        doubled = search.scaled(2.0)
        assert isinstance(doubled, BestOfTrials)
        assert doubled.price.mu == pytest.approx(search.price.mu / 2)
        assert epsilon([Release("search", search.scaled(0.0), 1)], DELTA) == math.inf

    def test_a_search_adds_no_noise_to_an_answer(self) -> None:
        from tulle.trusted.mechanisms import Sensitivity

        with pytest.raises(PlanError, match="consists of trials"):
            BestOfTrials().release(np.ones((1, 1)), Sensitivity(1, 1, 1), np.random.default_rng(0), None)

    @pytest.mark.parametrize("budget", [Budget(0.01, 1e-3), Budget(1.0, 1e-5), Budget(0.001, 0.01)])
    def test_trials_are_planned_at_a_delta_that_leaves_some_epsilon(self, budget: Budget) -> None:
        """Where the budget's delta alone would pay for the price, no epsilon could be found."""
        price = affordable_search(TrialCount(), budget).price
        assert price.delta(budget) <= budget.delta
        assert TrialLedger(price, price.delta(budget)).cap.epsilon > 0


class TestTrialLedger:
    PRICE = TrialPrice(0.4, 12.0, 6.0)

    def bill(self, *plans: Plan) -> TrialLedger:
        ledger = TrialLedger(self.PRICE, DELTA)
        for plan in plans:
            ledger.bill("fit", [plan], (epsilon(plan, DELTA), DELTA))
        return ledger

    def test_the_price_itself_passes(self) -> None:
        assert self.bill(gaussian_plan(0.4)).share == pytest.approx(1.0)
        assert self.bill(gaussian_plan(0.4 / 2, 4)).share == pytest.approx(1.0)
        assert self.bill(gaussian_plan(0.28), gaussian_plan(0.28)).share == pytest.approx(0.98)

    @pytest.mark.parametrize(
        "plans",
        [(gaussian_plan(0.4001),), (gaussian_plan(0.4), gaussian_plan(0.02)), (gaussian_plan(0.4 / 2, 5),)],
        ids=["dearer", "two", "five steps"],
    )
    def test_what_passes_the_price_is_refused(self, plans: tuple[Plan, ...]) -> None:
        with pytest.raises(BudgetExceededError):
            self.bill(*plans)

    def test_the_dearer_order_counts(self) -> None:
        """A Laplace release has a bent curve: its share is that of the order at which it is dearest."""
        plan = Plan((Release("count", Laplace(NoisePerSensitivity(3.0)), 1),))
        event = price_of(plan.releases[0].mechanism)[0]
        gaussian = GaussianEvent(NoisePerSensitivity(1 / self.PRICE.mu))
        ratios = [event.renyi(np.array([a]))[0] / gaussian.renyi(np.array([a]))[0] for a in (12.0, 6.0)]
        assert max(ratios) > 1.05 * min(ratios)
        assert self.PRICE.share(plan) == pytest.approx(max(ratios))

    def test_preliminary_releases_count(self) -> None:
        """The share of a plan is the dearer of two sums over all its releases, those that come first included."""
        step = Release("step", Gaussian(NoisePerSensitivity(5.0)), 3)
        first = Release("quantile", TopK(NoisePerSensitivity(4.0)), 2)
        second = Release("count", Laplace(NoisePerSensitivity(6.0)), 1)
        orders = np.array([12.0, 6.0])
        curve = sum(release.count * price_of(release.mechanism)[0].renyi(orders) for release in (step, first, second))
        by_hand = float(np.max(curve / (orders * 0.4**2 / 2)))
        assert self.PRICE.share(Plan((step,), preliminary=(first, second))) == pytest.approx(by_hand, rel=1e-12)
        assert by_hand > 1.2 * self.PRICE.share(Plan((step,)))

    def test_claims_no_epsilon_of_its_own(self) -> None:
        assert self.bill(gaussian_plan(0.1)).epsilon == math.inf


RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (100, 5))
Y = (X[:, 0] > 0).astype(int)


def model(epsilon: float = 0.3) -> SparseClassifier:
    method = HardThresholding(n_iter=1, noise="gaussian")
    return SparseClassifier(epsilon, DELTA, n_nonzero=2, bounds=Bounds(row_l2=2.0), method=method)


class TestBilledTo:
    def test_fits_are_billed_to_the_stand_in_alone(self) -> None:
        trial = TrialLedger(TrialPrice(0.4, 12.0, 6.0), DELTA)
        with Ledger(Budget(0.1, DELTA)) as ledger, billed_to(trial):
            model().fit(X, Y)
        assert (len(trial.fits), len(ledger.fits)) == (1, 0)

    def test_a_stand_in_refuses_what_it_does_not_allow(self) -> None:
        trial = TrialLedger(TrialPrice(0.05, 12.0, 6.0), DELTA)
        with billed_to(trial), pytest.raises(BudgetExceededError, match="nothing was released"):
            model(2.0).fit(X, Y)

    @pytest.mark.parametrize("fails", [False, True])
    def test_open_ledgers_bill_again_afterwards(self, fails: bool) -> None:
        trial = TrialLedger(TrialPrice(0.4, 12.0, 6.0), DELTA)

        def inside() -> None:
            with billed_to(trial):
                if fails:
                    raise ZeroDivisionError

        with Ledger(Budget(5.0, DELTA)) as ledger:
            if fails:
                with pytest.raises(ZeroDivisionError):
                    inside()
            else:
                inside()
            model().fit(X, Y)
        assert (len(trial.fits), len(ledger.fits)) == (0, 1)

    def test_other_threads_are_not_covered(self) -> None:
        """What another thread fits meanwhile is billed to the open ledgers as ever."""
        trial = TrialLedger(TrialPrice(0.4, 12.0, 6.0), DELTA)
        with Ledger(Budget(5.0, DELTA)) as ledger, billed_to(trial):
            thread = threading.Thread(target=lambda: model().fit(X, Y))
            thread.start()
            thread.join()
        assert (len(trial.fits), len(ledger.fits)) == (0, 1)


def test_a_search_without_a_price_in_the_ledgers_currency_is_told_what_to_do() -> None:
    """After a Gaussian fit a ledger counts mu², in which the best of trials has no figure."""
    plan = as_plan(affordable_search(TrialCount(), Budget(0.5, DELTA)))
    with Ledger(Budget(5.0, DELTA)) as ledger:
        model().fit(X, Y)
        with pytest.raises(BudgetExceededError, match="run it first, or use other noise"):
            ledger.bill("search", [plan], (0.5, DELTA))
    with Ledger(Budget(5.0, DELTA)) as other:
        other.bill("search", [plan], (0.5, DELTA))
        model().fit(X, Y)
    assert other.epsilon < 1.5


def test_the_search_with_the_largest_budget_comes_first() -> None:
    """The first fixes an order for the ledger; a dearer search claims nothing at orders that suit a cheaper one."""
    small, large = (as_plan(affordable_search(TrialCount(), Budget(epsilon, DELTA))) for epsilon in (0.5, 3.0))
    with Ledger(Budget(5.0, DELTA)) as ledger:
        ledger.bill("search", [large], (3.0, DELTA))
        ledger.bill("search", [small], (0.5, DELTA))
    assert ledger.epsilon < 5.0
    with Ledger(Budget(5.0, DELTA)) as other:
        other.bill("search", [small], (0.5, DELTA))
        with pytest.raises(BudgetExceededError, match=r"would take the ledger past its cap .* run it first") as refusal:
            other.bill("search", [large], (3.0, DELTA))
    assert "inf" not in str(refusal.value)
