"""rho (zCDP): an upper bound on the Rényi divergence at every order, added up right, and budgets in it."""

from __future__ import annotations

import copy
import math
import pickle
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from tulle import Budget
from tulle.accounting.calibration import calibrate
from tulle.accounting.gaussian_budget import gaussian_mu
from tulle.accounting.zcdp import (
    REPORTED_ORDERS,
    budget_after,
    confirm_rho,
    event_rho,
    implied_epsilon,
    refuse_rho,
    reported_curve,
    rho_of,
    straight_curve,
    total_rho,
)
from tulle.fast.gumbel_on_demand import GumbelOnDemand
from tulle.ledgers.currencies import RhoCurrency, cheapest_currency
from tulle.trusted import plan as plans
from tulle.trusted.accountants import epsilon
from tulle.trusted.events import (
    BoundedRangeEvent,
    Event,
    ExposedEvent,
    GaussianEvent,
    LaplaceEvent,
    NoisePerSensitivity,
    ObjectivePerturbationEvent,
    PureEvent,
    SampledGaussianEvent,
)
from tulle.trusted.gaussian import gaussian_epsilon
from tulle.trusted.mechanisms import (
    Exact,
    Gaussian,
    GumbelMax,
    Laplace,
    LaplaceMax,
    Mechanism,
    ObjectivePerturbation,
    PermuteAndFlip,
    SampledGaussian,
    TopK,
)
from tulle.trusted.plan import Plan, PlanError, Release
from tulle.trusted.sampling import Sampling

SIZES = (1e-4, 0.01, 0.3, 1.0, 3.0, 10.0, 40.0)
ORDERS = 1.0 + np.geomspace(1e-3, 1e4, 60)


def pure_events(size: float) -> list[Event]:
    return [LaplaceEvent(NoisePerSensitivity(1 / size)), PureEvent(size), BoundedRangeEvent(size)]


def randomised_response(size: float, order: float) -> float:
    """Its Rényi divergence, by definition."""
    p = 1 / (1 + math.exp(-size))
    logs = [order * math.log(a) + (1 - order) * math.log(b) for a, b in ((p, 1 - p), (1 - p, p))]
    return float(np.logaddexp(*logs) / (order - 1))


def laplace_divergence(size: float, order: float) -> float:
    """Of Laplace(0, 1) from Laplace(size, 1), by quadrature between the two and in closed form outside."""

    def integrand(x: float) -> float:
        return 0.5 * math.exp(-order * abs(x) - (1 - order) * abs(x - size))

    inside = quad(integrand, 0.0, size, epsabs=0, epsrel=1e-11)[0]
    outside = 0.5 * math.exp((order - 1) * size) + 0.5 * math.exp(-order * size)
    # Left of 0 the ratio is exp(size), right of size it is exp(-size), and the first law has these masses.
    left, right = 0.5 * math.exp((order - 1) * size), 0.5 * math.exp(-size) * math.exp(-(order - 1) * size)
    assert math.isclose(outside, left + right)
    return math.log(inside + left + right) / (order - 1)


class TestOneRelease:
    @pytest.mark.parametrize("size", SIZES)
    def test_rho_is_above_the_curve_at_every_order(self, size: float) -> None:
        rounding = 2e-13 * (1 + ORDERS * size) / (ORDERS - 1)  # what curves add to be safe
        for event in [GaussianEvent(NoisePerSensitivity(1 / size)), *pure_events(size)]:
            assert np.all(event.renyi(ORDERS) <= event_rho(event) * ORDERS * (1 + 1e-9) + rounding)

    @pytest.mark.parametrize("size", [0.01, 0.3, 1.0, 3.0])
    @pytest.mark.parametrize("order", [1.001, 1.5, 2.0, 5.0, 30.0])
    def test_rho_is_above_divergences_by_definition(self, size: float, order: float) -> None:
        laplace, pure, _ = pure_events(size)
        assert laplace_divergence(size, order) <= event_rho(laplace) * order * (1 + 1e-6)
        assert randomised_response(size, order) <= event_rho(pure) * order * (1 + 1e-6)

    @pytest.mark.parametrize("size", [0.3, 1.0, 3.0])
    def test_no_smaller_rho_holds(self, size: float) -> None:
        """Near order 1 Laplace noise and randomised response attain theirs, Gaussian noise at every order."""
        laplace, pure, _ = pure_events(size)
        assert laplace_divergence(size, 1.0001) >= event_rho(laplace) * (1 - 1e-3)
        assert randomised_response(size, 1.0001) >= event_rho(pure) * (1 - 1e-3)
        assert event_rho(GaussianEvent(NoisePerSensitivity(1 / size))) == pytest.approx(size**2 / 2)

    @pytest.mark.parametrize("size", [0.01, 0.3, 1.0])
    def test_no_smaller_rho_holds_for_small_ranges(self, size: float) -> None:
        event = BoundedRangeEvent(size)
        assert max(event.renyi(ORDERS) / ORDERS) >= event_rho(event) * (1 - size / 20)

    @pytest.mark.parametrize("size", SIZES)
    def test_the_order_of_the_three(self, size: float) -> None:
        laplace, pure, choice = (event_rho(event) for event in pure_events(size))
        assert laplace <= pure * (1 + 1e-8)
        assert choice <= pure <= min(size**2 / 2 * (1 + 1e-12), size)

    def test_no_rho(self) -> None:
        noise = NoisePerSensitivity(2.0)

        @dataclass(frozen=True)
        class Another(PureEvent):
            pass

        for event in (
            ExposedEvent(),
            SampledGaussianEvent(noise, 0.1, "poisson"),
            ObjectivePerturbationEvent(NoisePerSensitivity(0.0), 0.1, True, 1, 30.0),
            Another(1.0),
            GaussianEvent(NoisePerSensitivity(0.0)),
            PureEvent(math.inf),
        ):
            assert event_rho(event) == math.inf

    def test_no_cost(self) -> None:
        assert event_rho(GaussianEvent(NoisePerSensitivity(math.inf))) == 0
        assert event_rho(PureEvent(0.0)) == 0


def release(name: str, mechanism: Mechanism, count: int = 1) -> Release:
    return Release(name, mechanism, count)


def noise(value: float) -> NoisePerSensitivity:
    return NoisePerSensitivity(value)


class TestPlans:
    def test_everything_is_added_up(self) -> None:
        plan = Plan(
            (
                release("gaussian", Gaussian(noise(2.0)), 3),  # 3 / 8
                release("top", TopK(noise(4.0), 5, 2), 2),  # 20 choices of range 1/2
                release("laplace", Laplace(noise(0.5))),  # 2 - 1 + e^-2
                release("flip", PermuteAndFlip(noise(2.0))),  # pure 1
            ),
            (release("first", GumbelMax(noise(1.0))),),  # a range of 2
        )
        expected = 3 / 8 + 20 * 0.25 / 8 + 1 + math.exp(-2) + math.tanh(0.5) + 0.5
        assert total_rho(plan) == pytest.approx(expected, rel=1e-11)
        assert total_rho(plan) >= expected

    def test_what_is_not_exact_has_none(self) -> None:
        inexact = GumbelOnDemand(noise(10.0), 1, 100, 1000)
        assert inexact.inexact > 0
        assert total_rho([release("choose", inexact)]) == math.inf
        assert reported_curve(Plan((release("choose", inexact),))) == ()
        with pytest.raises(ValueError, match="use engine='plain'"):
            calibrate([release("choose", inexact)], Budget(rho=0.1, delta=1e-5))

    def test_the_curve_of_a_report(self) -> None:
        plan = Plan((release("gaussian", Gaussian(noise(2.0)), 3),), (release("first", GumbelMax(noise(1.0))),))
        for (order, value), (_, line) in zip(reported_curve(plan), straight_curve(total_rho(plan)), strict=True):
            first = float(BoundedRangeEvent(2.0).renyi(np.array([order]))[0])
            assert 3 / 8 * order + first <= value <= (3 / 8 * order + first) * (1 + 1e-11)
            assert value <= line
        assert reported_curve(Plan((release("seen", Exact()),))) == ()
        sampled = SampledGaussian(noise(2.0), Sampling("poisson", 1000, 10))
        curve = reported_curve(Plan((release("batch", sampled, 30),)))
        assert [order for order, _ in curve] == list(REPORTED_ORDERS)
        assert all(0 < value < order * 30 / 8 for order, value in curve)

    def test_a_plan_with_more_than_was_promised(self) -> None:
        plan = Plan((release("gaussian", Gaussian(noise(2.0)), 3),))
        confirm_rho(plan, 3 / 8 + 1e-11)
        with pytest.raises(PlanError, match="does not cover"):
            confirm_rho(plan, 0.999 * 3 / 8)


class TestImpliedEpsilon:
    @pytest.mark.parametrize("rho", [1e-6, 0.01, 0.5, 3.0, 50.0])
    @pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.01])
    def test_between_the_gaussian_and_the_loose_bound(self, rho: float, delta: float) -> None:
        found = implied_epsilon(rho, delta)
        assert gaussian_epsilon(math.sqrt(2 * rho), delta) <= found
        assert found <= (rho + 2 * math.sqrt(rho * math.log(1 / delta))) * 1.002

    def test_as_dp_accounting_has_it(self) -> None:
        accounting = pytest.importorskip("dp_accounting")
        accountant = accounting.rdp.RdpAccountant(neighboring_relation=accounting.NeighboringRelation.REPLACE_ONE)
        accountant.compose(accounting.ZCDpEvent(0.1))
        assert implied_epsilon(0.1, 1e-5) == pytest.approx(accountant.get_epsilon(1e-5), rel=5e-3)


mechanisms = st.sampled_from(
    [
        lambda z: Gaussian(noise(z)),
        lambda z: Laplace(noise(z)),
        lambda z: TopK(noise(z), 3),
        lambda z: GumbelMax(noise(z), 2),
        lambda z: LaplaceMax(noise(z)),
        lambda z: PermuteAndFlip(noise(z)),
    ]
)
lists_of_releases = st.lists(st.tuples(mechanisms, st.floats(0.1, 30.0), st.integers(1, 40)), min_size=1, max_size=4)


class TestCalibration:
    @given(made=lists_of_releases, rho=st.floats(1e-4, 20.0), delta=st.sampled_from([1e-9, 1e-5, 1e-2]))
    @settings(max_examples=40, deadline=None)
    def test_within_rho_and_no_less(self, made: Any, rho: float, delta: float) -> None:
        """And the epsilon that trusted code proves is within the one that it is told."""
        releases = [release(str(k), make(z), count) for k, (make, z, count) in enumerate(made)]
        budget = Budget(rho=rho, delta=delta)
        found = calibrate(releases, budget)
        assert 0.99 * rho < total_rho(found) <= rho
        assert epsilon(found, delta) <= budget.epsilon * (1 + 1e-9)

    def test_gaussian_noise_in_closed_form(self) -> None:
        (found,) = calibrate([release("step", Gaussian(noise(1.0)), 50)], Budget(rho=0.1, delta=1e-5))
        assert found.mechanism.noise.value == pytest.approx(math.sqrt(50 / 0.2), rel=1e-8)

    def test_no_mix_up_with_the_implied_epsilon(self) -> None:
        """Calibrations are remembered by budget: the looser epsilon must not answer for the rho, nor the reverse."""
        releases, budget = [release("step", Gaussian(noise(1.0)), 7)], Budget(rho=0.2, delta=1e-5)
        same = plans.Budget(budget.epsilon, 1e-5)
        first, second = calibrate(releases, same), calibrate(releases, budget)
        assert total_rho(first) > 0.2 * 1.01
        assert total_rho(second) <= 0.2

    @pytest.mark.parametrize(
        ("mechanism", "words"),
        [
            (SampledGaussian(noise(1.0), Sampling("poisson", 100, 10)), "sampling='shuffled'"),
            (Exact(), "nothing is known"),
        ],
    )
    def test_what_has_no_rho_is_refused(self, mechanism: Mechanism, words: str) -> None:
        releases = [release("first", Gaussian(noise(1.0))), release("second", mechanism)]
        with pytest.raises(ValueError, match=words) as error:
            calibrate(releases, Budget(rho=0.1, delta=1e-5))
        assert "no rho is proved for second" in str(error.value)
        assert "method='hard_thresholding'" in str(error.value)

    def test_objective_perturbation_has_one(self) -> None:
        found = calibrate(
            [release("refine", ObjectivePerturbation(noise(1.0), 0.02, True), 2)], Budget(rho=0.1, delta=1e-5)
        )
        assert 0.0999 < total_rho(found) <= 0.1

    def test_preliminary_releases_are_in_the_budget(self) -> None:
        first = [release("first", Gaussian(noise(4.0)))]
        found = calibrate([release("step", Gaussian(noise(1.0)), 5)], Budget(rho=0.1, delta=1e-5), first)
        assert 0.0999 < total_rho((*first, *found)) <= 0.1

    def test_shuffled_epochs_have_one(self) -> None:
        shuffled = SampledGaussian(noise(1.0), Sampling("shuffled", 100, 10))
        found = calibrate([release("step", shuffled, 5)], Budget(rho=0.1, delta=1e-5))
        assert 0.099 < total_rho(found) <= 0.1


class TestBudget:
    def test_in_epsilon(self) -> None:
        budget = Budget(3.0, 1e-5)
        assert (budget.epsilon, budget.delta, budget.rho) == (3.0, 1e-5, None)
        assert budget == plans.Budget(3.0, 1e-5)
        assert plans.Budget(3.0, 1e-5) == budget
        assert hash(budget) == hash(plans.Budget(3.0, 1e-5))
        assert repr(budget) == repr(plans.Budget(3.0, 1e-5))

    def test_in_rho(self) -> None:
        budget = Budget(rho=np.float32(0.5), delta=1e-5)
        assert type(budget.rho) is float
        assert budget.epsilon == implied_epsilon(0.5, 1e-5)
        assert budget != plans.Budget(budget.epsilon, 1e-5)
        assert plans.Budget(budget.epsilon, 1e-5) != budget
        assert budget != Budget(rho=0.4, delta=1e-5)
        assert budget != 0.5
        assert repr(budget) == "Budget(rho=0.5, delta=1e-05)"
        assert gaussian_mu(budget.epsilon, 1e-5) > 1.0

    def test_copies(self) -> None:
        budget = Budget(rho=0.5, delta=1e-5)
        assert pickle.loads(pickle.dumps(budget)) == budget == copy.deepcopy(budget)
        assert rho_of(replace(budget, delta=1e-6)) is None  # an epsilon and a delta, as it says

    @pytest.mark.parametrize(
        ("given", "words"),
        [
            ({}, "needs an epsilon or a rho"),
            ({"epsilon": 1.0, "rho": 0.1, "delta": 1e-5}, "omit one"),
            ({"rho": 0.0, "delta": 1e-5}, "rho must be a finite number > 0"),
            ({"rho": math.inf, "delta": 1e-5}, "rho must be"),
            ({"rho": math.nan, "delta": 1e-5}, "rho must be"),
            ({"rho": True, "delta": 1e-5}, "rho must be"),
            ({"rho": "0.1", "delta": 1e-5}, "rho must be"),
            ({"rho": 0.1}, "needs a delta in"),
            ({"rho": 0.1, "delta": 1.0}, "needs a delta in"),
            ({"epsilon": -1.0}, "epsilon must be"),
        ],
    )
    def test_bad_ones(self, given: dict[str, Any], words: str) -> None:
        with pytest.raises(ValueError, match=words):
            Budget(**given)

    def test_what_bounds_leave(self) -> None:
        first = [release("bound", GumbelMax(noise(10.0)))]  # a range of 0.2, rho 0.005
        left = budget_after(Budget(rho=0.1, delta=1e-5), first, 0.2)
        assert rho_of(left) == pytest.approx(0.095)
        assert budget_after(Budget(rho=0.1, delta=1e-5), [], 0.0) == Budget(rho=0.1, delta=1e-5)
        assert budget_after(plans.Budget(1.0, 1e-5), first, 0.2) == plans.Budget(0.8, 1e-5)
        with pytest.raises(ValueError, match="estimate_share"):
            budget_after(Budget(rho=0.004, delta=1e-5), first, 0.2)

    def test_refused_where_nothing_is_added_up(self) -> None:
        refuse_rho(None, "a study")
        refuse_rho(Budget(1.0), "a study")
        with pytest.raises(ValueError, match="a study takes a budget in epsilon and delta"):
            refuse_rho(Budget(rho=0.1, delta=1e-5), "a study")


class TestCurrency:
    def test_shares(self) -> None:
        cap = Budget(rho=0.5, delta=1e-6)
        plan = Plan((release("step", Gaussian(noise(2.0)), 2),), (release("first", GumbelMax(noise(2.0))),))
        currency = cheapest_currency(cap, [plan], (9.9, 1e-6))
        assert currency == RhoCurrency(cap)
        assert currency.share(plan, (9.9, 1e-6)) == pytest.approx((0.25 + 0.125) / 0.5)
        assert currency.epsilon(0.4) == implied_epsilon(0.2, 1e-6)
        assert currency.epsilon(0.0) == 0.0
        assert currency.share(Plan((release("seen", Exact()),)), (9.9, 1e-6)) == math.inf
