"""Events: each currency is an upper bound on the true cost of one release, and no looser than it claims."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import laplace, norm

from tulle.accounting.crosscheck import library_epsilon, to_dp_accounting
from tulle.trusted.events import (
    BoundedRangeEvent,
    Event,
    ExposedEvent,
    GaussianEvent,
    LaplaceEvent,
    NoisePerSensitivity,
    PureEvent,
    pure_gaussian_mu,
)
from tulle.trusted.gaussian import gaussian_delta

RANGES = (1e-4, 1e-3, 0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
ORDERS = 1.0 + np.geomspace(1e-3, 1e4, 60)


def range_envelope(span: float, log_g: np.ndarray) -> np.ndarray:
    """The largest delta at epsilon = log g that a mechanism of this bounded range can have."""
    return (np.exp(span / 2) - np.exp(log_g / 2)) ** 2 / np.expm1(span)


def brute_force_renyi(span: float, order: float, points: int = 200_001) -> float:
    """The Rényi divergence of a bounded range, maximised over a grid of where the interval lies."""
    t = np.linspace(0.0, span, points)
    with np.errstate(divide="ignore"):
        up = np.log(np.maximum(np.expm1(span) - np.expm1(t), 0.0)) - np.log(np.expm1(span)) + (order - 1) * t
        down = np.log(np.expm1(t)) - np.log(np.expm1(span)) + (order - 1) * (t - span)
    return float(np.logaddexp(up, down).max() / (order - 1))


class TestNoisePerSensitivity:
    def test_inverse(self) -> None:
        assert NoisePerSensitivity(4.0).inverse == 0.25
        assert NoisePerSensitivity(0.0).inverse == math.inf

    @pytest.mark.parametrize("value", [-1.0, -math.inf, math.nan])
    def test_negative_noise_is_refused(self, value: float) -> None:
        with pytest.raises(ValueError, match="must be >= 0"):
            NoisePerSensitivity(value)

    @pytest.mark.parametrize("value", [0.0, 1.0, math.inf])
    def test_times_zero_is_no_noise_whatever_it_was(self, value: float) -> None:
        assert NoisePerSensitivity(value).times(0.0) == NoisePerSensitivity(0.0)

    def test_times_multiplies(self) -> None:
        assert NoisePerSensitivity(2.0).times(1.5) == NoisePerSensitivity(3.0)


class TestGaussian:
    @pytest.mark.parametrize("noise", [0.3, 1.0, 7.0])
    def test_renyi_is_the_divergence_of_two_gaussians(self, noise: float) -> None:
        """Integrated numerically for one order; 2/3 and 3/2 of the noise give another number."""
        order, x = 3.0, np.linspace(-60, 60, 400_001)
        log_ratio = order * norm.logpdf(x) + (1 - order) * norm.logpdf(x, 1 / noise)
        true = np.log(np.trapezoid(np.exp(log_ratio), x)) / (order - 1)

        def claimed(factor: float) -> float:
            return float(GaussianEvent(NoisePerSensitivity(factor * noise)).renyi(np.array([order]))[0])

        assert claimed(1.0) == pytest.approx(true, rel=1e-6)
        assert claimed(2 / 3) > true * 1.1
        assert claimed(3 / 2) < true * 0.9

    def test_has_no_pure_epsilon(self) -> None:
        assert GaussianEvent(NoisePerSensitivity(1e9)).pure_epsilon() == math.inf


class TestLaplace:
    @pytest.mark.parametrize("noise", [0.2, 1.0, 5.0])
    @pytest.mark.parametrize("order", [1.5, 3.0, 20.0])
    def test_renyi_is_the_divergence_of_two_laplace_laws(self, noise: float, order: float) -> None:
        x = np.concatenate([np.linspace(-60, 0, 200_001), np.linspace(0, 1, 20_001), np.linspace(1, 61, 200_001)])
        log_ratio = order * laplace.logpdf(x, 0, noise) + (1 - order) * laplace.logpdf(x, 1, noise)
        true = np.log(np.trapezoid(np.exp(log_ratio), x)) / (order - 1)
        claimed = [LaplaceEvent(NoisePerSensitivity(f * noise)).renyi(np.array([order]))[0] for f in (2 / 3, 1, 3 / 2)]
        assert claimed[1] == pytest.approx(true, rel=1e-3)
        assert claimed[0] > true * 1.05
        assert claimed[2] < true * 0.95

    @pytest.mark.parametrize("noise", [1e-3, 0.1, 1.0, 100.0])
    def test_renyi_never_passes_the_pure_epsilon(self, noise: float) -> None:
        event = LaplaceEvent(NoisePerSensitivity(noise))
        curve = event.renyi(ORDERS)
        assert np.all(curve <= event.pure_epsilon() + 1e-9)
        assert np.all(np.isfinite(curve))

    @pytest.mark.parametrize("noise", [0.1, 1.0, 10.0])
    def test_the_gaussian_dominates_the_exact_profile(self, noise: float) -> None:
        """The profile of one Laplace release is 1 - exp((e - epsilon) / 2); a mu of 2/3 would not dominate it."""
        event = LaplaceEvent(NoisePerSensitivity(noise))
        span = event.pure_epsilon()
        e = np.linspace(0.0, span, 50)
        exact = -np.expm1((e - span) / 2)
        mu = event.gaussian_mu()
        assert all(gaussian_delta(x, mu) >= y - 1e-12 for x, y in zip(e, exact))
        assert any(gaussian_delta(x, 2 / 3 * mu) < y - 1e-6 for x, y in zip(e, exact))


class TestBoundedRange:
    @pytest.mark.parametrize("span", RANGES)
    def test_the_gaussian_dominates_the_envelope(self, span: float) -> None:
        """Lemma 3, for every g in [1/E, E]: delta at a negative epsilon is part of the trade-off curve too."""
        mu = BoundedRangeEvent(span).gaussian_mu()
        for log_g in np.linspace(-span, span, 401):
            assert gaussian_delta(log_g, mu) >= range_envelope(span, log_g) - 1e-12

    @pytest.mark.parametrize("span", [s for s in RANGES if s <= 10])
    def test_a_smaller_gaussian_does_not_dominate(self, span: float) -> None:
        """2/3 of the constant is too small for all ranges."""
        mu = BoundedRangeEvent(span).gaussian_mu()
        grid = np.linspace(-span, span, 401)
        assert any(gaussian_delta(g, mu * 2 / 3) < range_envelope(span, g) * (1 - 1e-3) for g in grid)

    def test_the_constant_is_tight(self) -> None:
        """At g = 1, where the envelope is the total variation of two logistic laws: no smaller mu serves."""
        for span in RANGES:
            if span <= 20:
                mu = BoundedRangeEvent(span).gaussian_mu()
                assert gaussian_delta(0.0, 0.999 * mu) < range_envelope(span, np.float64(0.0))
                assert gaussian_delta(0.0, mu) == pytest.approx(range_envelope(span, np.float64(0.0)), rel=1e-6)

    @pytest.mark.parametrize("span", RANGES)
    @pytest.mark.parametrize("order", [1.001, 1.1, 2.0, 5.0, 32.0, 300.0, 1e4])
    def test_renyi_lies_between_brute_force_and_the_concentrated_bound(self, span: float, order: float) -> None:
        claimed = float(BoundedRangeEvent(span).renyi(np.array([order]))[0])
        # Evaluating the brute force loses about 1e-15 / (order - 1) to cancellation.
        assert claimed >= brute_force_renyi(span, order) - 1e-13 / (order - 1)
        assert claimed <= order * span**2 / 8 * (1 + 1e-12)

    @pytest.mark.parametrize("span", [0.1, 1.0, 5.0])
    @pytest.mark.parametrize("order", [1.1, 2.0, 32.0, 300.0])
    def test_renyi_is_the_supremum_and_no_more(self, span: float, order: float) -> None:
        """A range of 2/3 or 3/2 has another curve, so the comparison can fail."""
        true = brute_force_renyi(span, order)
        claimed = [BoundedRangeEvent(f * span).renyi(np.array([order]))[0] for f in (2 / 3, 1, 3 / 2)]
        assert claimed[1] == pytest.approx(true, rel=1e-4)
        assert claimed[0] < true * 0.9
        assert claimed[2] > true * 1.1

    @given(st.floats(1e-3, 30), st.lists(st.floats(-3, 3), min_size=2, max_size=6), st.data())
    def test_an_exponential_mechanism_costs_no_more(
        self, span: float, scores: list[float], data: st.DataObject
    ) -> None:
        """P ∝ exp(span u / 2) with |u - u'| <= 1 against the Rényi curve, at three orders."""
        moves = data.draw(st.lists(st.floats(-1, 1), min_size=len(scores), max_size=len(scores)))
        u, v = np.array(scores), np.array(scores) + np.array(moves)
        p, q = (s * span / 2 - np.logaddexp.reduce(s * span / 2) for s in (u, v))
        orders = np.array([1.5, 4.0, 64.0])
        divergence = [np.logaddexp.reduce(a * p + (1 - a) * q) / (a - 1) for a in orders]
        assert np.all(BoundedRangeEvent(span).renyi(orders) >= np.array(divergence) - 1e-9)

    @pytest.mark.parametrize("span", [-1e-9, -1.0, math.nan])
    def test_a_negative_range_is_refused(self, span: float) -> None:
        with pytest.raises(ValueError, match="must be >= 0"):
            BoundedRangeEvent(span)


def response_renyi(epsilon: float, order: float) -> Decimal:
    """The Rényi divergence of randomised response in sixty digits."""
    with localcontext() as context:
        context.prec, context.Emax, context.Emin = 60, 10**12, -(10**12)
        e, a = Decimal(epsilon), Decimal(order)
        moment = ((a * e).exp() + ((1 - a) * e).exp()) / (1 + e.exp())
        return moment.ln() / (a - 1)


class TestPure:
    @pytest.mark.parametrize("epsilon", [1e-9, 1e-4, 0.01, 0.1, 1.0, 5.0, 50.0, 299.0, 301.0, 5000.0])
    @pytest.mark.parametrize("order", [1.0001, 1.1, 2.0, 5.0, 32.0, 300.0, 1e4, 1e7])
    def test_renyi_is_that_of_randomised_response(self, epsilon: float, order: float) -> None:
        """Never below it, and above by no more than one part in 1e12."""
        true = response_renyi(epsilon, order)
        claimed = Decimal(float(PureEvent(epsilon).renyi(np.array([order]))[0]))
        # Where it is epsilon up to the last digit of floats, the claim is epsilon itself.
        assert claimed >= min(true, Decimal(epsilon))
        assert claimed <= true * (1 + Decimal("1e-12"))

    @pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 5.0])
    @pytest.mark.parametrize("order", [1.1, 2.0, 10.0])
    def test_another_epsilon_has_another_curve(self, epsilon: float, order: float) -> None:
        true = float(response_renyi(epsilon, order))
        low, high = (PureEvent(f * epsilon).renyi(np.array([order]))[0] for f in (2 / 3, 3 / 2))
        assert low < true * 0.9
        assert high > true * 1.1

    @pytest.mark.parametrize("epsilon", [0.0, 1e-300, 1e-3, 1.0, 50.0, 1e5, 1e300])
    def test_renyi_grows_with_the_order_up_to_the_pure_epsilon(self, epsilon: float) -> None:
        curve = PureEvent(epsilon).renyi(ORDERS)
        assert np.all(np.diff(curve) >= -1e-12 * curve[1:])
        assert np.all((curve >= 0) & (curve <= epsilon))

    @pytest.mark.parametrize("epsilon", [1e-4, 1e-3, 0.1, 1.0, 10.0])
    def test_costs_no_less_than_what_is_known_better(self, epsilon: float) -> None:
        """Laplace noise and exponential mechanisms of the same pure epsilon, in every currency."""
        worst = PureEvent(epsilon)
        for event in (LaplaceEvent(NoisePerSensitivity(1 / epsilon)), BoundedRangeEvent(epsilon)):
            assert event.pure_epsilon() == pytest.approx(worst.pure_epsilon(), rel=1e-12)
            # The Gaussian of a large range is not the least one.
            assert epsilon > 1 or event.gaussian_mu() <= worst.gaussian_mu() * (1 + 1e-12)
            # What the other events put on top of their curves for rounding.
            assert np.all(event.renyi(ORDERS) <= worst.renyi(ORDERS) + 2e-13 * (1 + ORDERS * epsilon) / (ORDERS - 1))

    @given(st.floats(1e-3, 30), st.lists(st.floats(-1, 1), min_size=2, max_size=6), st.data())
    def test_a_pure_release_costs_no_more(self, epsilon: float, lean: list[float], data: st.DataObject) -> None:
        """Any two laws whose ratios stay within exp(±epsilon), at three orders."""
        weights = data.draw(st.lists(st.floats(1e-3, 1), min_size=len(lean), max_size=len(lean)))
        # Half the epsilon for the weights and half for what normalising them does.
        p = np.log(weights) - np.log(np.sum(weights))
        q = p + np.array(lean) * epsilon / 2
        q -= np.logaddexp.reduce(q)
        orders = np.array([1.5, 4.0, 64.0])
        divergence = [np.logaddexp.reduce(a * p + (1 - a) * q) / (a - 1) for a in orders]
        assert np.all(PureEvent(epsilon).renyi(orders) >= np.array(divergence) - 1e-9)

    @pytest.mark.parametrize("epsilon", [-1e-9, -1.0, math.nan])
    def test_a_negative_epsilon_is_refused(self, epsilon: float) -> None:
        with pytest.raises(ValueError, match="must be >= 0"):
            PureEvent(epsilon)

    def test_the_ends(self) -> None:
        nothing, everything = PureEvent(0.0), PureEvent(math.inf)
        assert nothing.gaussian_mu() == nothing.pure_epsilon() == 0.0
        assert np.all(nothing.renyi(ORDERS) == 0.0)
        assert everything.gaussian_mu() == everything.pure_epsilon() == math.inf
        assert np.all(np.isinf(everything.renyi(ORDERS)))


@pytest.mark.parametrize("span", [1e-17, 1e-8, 0.99e-4, 1.01e-4])
def test_pure_gaussian_mu_of_a_small_epsilon_does_not_vanish(span: float) -> None:
    """Between the tangent at 0 and the first two terms of the series, where 1 / (1 + exp(epsilon)) is all but 1/2."""
    tangent = span * math.sqrt(2 * math.pi) / 2
    assert tangent * (1 - span**2 / 12) * (1 - 1e-11) <= pure_gaussian_mu(span) <= tangent * (1 + 1e-11)


@pytest.mark.parametrize("span", [1e-6, 0.1, 1.0, 8.0, 20.0])
def test_pure_gaussian_mu_dominates_randomised_response_and_is_the_least(span: float) -> None:
    """Lemma 4: the two-point law {+-epsilon} is the worst pure mechanism; a mu 0.1 % smaller does not dominate it."""
    mu = pure_gaussian_mu(span)
    e = np.linspace(0, span, 101)
    exact = -np.expm1(e - span) / (1 + np.exp(-span))
    assert all(gaussian_delta(x, mu) >= y - 1e-12 for x, y in zip(e, exact))
    assert any(gaussian_delta(x, 0.999 * mu) < y for x, y in zip(e, exact))


def test_pure_gaussian_mu_of_a_huge_epsilon_promises_nothing() -> None:
    assert pure_gaussian_mu(701.0) == math.inf


@pytest.mark.parametrize(
    "event",
    [LaplaceEvent(NoisePerSensitivity(1.0)), BoundedRangeEvent(0.5), PureEvent(0.5)],
    ids=lambda e: type(e).__name__,
)
def test_what_the_pld_accountant_lacks_is_said_and_not_guessed(event: Event) -> None:
    assert to_dp_accounting(event, "pld") is None
    assert library_epsilon(((event, 1),), 1e-5, "pld") is None


def test_exposed_rows_cost_everything_in_every_currency() -> None:
    event = ExposedEvent()
    assert event.gaussian_mu() == event.pure_epsilon() == math.inf
    assert np.all(np.isinf(event.renyi(ORDERS)))
