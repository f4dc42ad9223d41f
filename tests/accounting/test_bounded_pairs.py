"""Pairs of bounded losses: each against its definition, and their sums against other code and fine grids."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
from scipy.signal import fftconvolve
from scipy.stats import laplace, logistic, norm

from tulle.accounting.bounded_pairs import BoundedLossPair
from tulle.accounting.calibration import calibrate
from tulle.accounting.choices import ChoicesAccountant
from tulle.accounting.optimal_pure import OptimalPureAccountant
from tulle.accounting.privacy_loss import (
    MixedLossAccountant,
    PrivacyLossAccountant,
    find_dominating_pair,
    loss_grid,
    losses_epsilon,
)
from tulle.accounting.renyi import RenyiAccountant
from tulle.accounting.sampled_pairs import SampledGaussianPair
from tulle.trusted.accountants import GaussianAccountant, best_accountant, epsilon
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
from tulle.trusted.mechanisms import Gaussian, Laplace, TopK
from tulle.trusted.plan import Budget, Composition, Release

SPANS = (1e-6, 1e-3, 0.1, 1.0, 4.0, 20.0)
DELTA = 1e-5


def gaussian(noise: float) -> GaussianEvent:
    return GaussianEvent(NoisePerSensitivity(noise))


def laplace_event(noise: float) -> LaplaceEvent:
    return LaplaceEvent(NoisePerSensitivity(noise))


def batch(noise: float, rate: float) -> SampledGaussianEvent:
    return SampledGaussianEvent(NoisePerSensitivity(noise), rate, "poisson")


def response_profile(span: float, eps: float) -> float:
    return max(-math.expm1(eps - span), 0.0) / (1 + math.exp(-span))


def laplace_profile(span: float, eps: float) -> float:
    return max(-math.expm1((eps - span) / 2), 0.0)


def range_profile(span: float, eps: float) -> float:
    """Lemma 1 of docs/proofs/events.md, times exp(-span) above and below the line."""
    return max(-math.expm1((eps - span) / 2), 0.0) ** 2 / -math.expm1(-span)


@dataclass(frozen=True)
class Kind:
    pair: Callable[[float], BoundedLossPair]
    profile: Callable[[float, float], float]  # the divergence at eps >= 0


KINDS = {
    "response": Kind(BoundedLossPair.randomised_response, response_profile),
    "laplace": Kind(BoundedLossPair.laplace, laplace_profile),
    "range": Kind(BoundedLossPair.logistic, range_profile),
}


def both_signs(kind: Kind, span: float, eps: float) -> float:
    """Of a pair that is its own mirror image."""
    if eps >= 0:
        return kind.profile(span, eps)
    return -math.expm1(eps) + math.exp(eps) * kind.profile(span, -eps)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("span", SPANS)
class TestOnePair:
    @pytest.mark.parametrize("steps", [0.4, 1.0, 7.3, 2000.0])
    def test_on_a_grid_it_is_larger_at_every_threshold(self, kind: str, span: float, steps: float) -> None:
        """Grids coarser than the span, of which it is a multiple, and of which it is none; near where it is fine."""
        interval = span / steps
        grid = loss_grid(KINDS[kind].pair(span), interval, 1e-12)
        assert grid.infinite == 0
        assert np.all(grid.chances >= 0)
        assert grid.chances.sum() == pytest.approx(1.0, abs=1e-12)
        losses = interval * grid.numbers
        for eps in np.linspace(-1.1 * span, 1.1 * span, 45):
            above = losses > eps
            found = float(np.sum(grid.chances[above] * -np.expm1(eps - losses[above])))
            true = both_signs(KINDS[kind], span, eps)
            assert found >= true * (1 - 1e-12) - 2e-16
            if steps == 2000:
                assert found <= true + 1e-6 * min(span, 1)

    def test_both_masses_stay_what_they_are(self, kind: str, span: float) -> None:
        """Of P and of Q = exp(-loss) P beyond a loss of 0: a grid moves neither."""
        pair = KINDS[kind].pair(span)
        coarse, fine = (pair.masses(span / steps * np.arange(steps + 2.0)) for steps in (3, 5000))
        for weight in (0.0, 1.0):
            totals = [
                float(np.sum(mass * np.exp(-weight * span / steps * np.arange(steps + 2.0))))
                for (mass, _), steps in ((coarse, 3), (fine, 5000))
            ]
            assert totals[0] == pytest.approx(totals[1], rel=1e-9)

    def test_total_variation_is_the_profile_at_zero(self, kind: str, span: float) -> None:
        found = KINDS[kind].pair(span).total_variation
        assert found == pytest.approx(KINDS[kind].profile(span, 0.0), rel=1e-10)

    @pytest.mark.parametrize("order", [1.0001, 1.1, 2.0, 10.0, 1000.0])
    def test_the_renyi_divergence(self, kind: str, span: float, order: float) -> None:
        """Never below a sum over a fine grid of the same loss by definition, which errs by one part in a million."""
        pair = KINDS[kind].pair(span)
        places = np.linspace(-span, span, 200_001)
        middle = (places[1:] + places[:-1]) / 2
        mass = np.diff(pair.body * np.exp((places - span) / 2))
        ends = pair.atom * np.array([1.0, math.exp(-span)])
        losses, masses = np.append(middle, [span, -span]), np.append(mass, ends)
        b = order - 1
        # Mean of exp(b l) - 1 - (1 - exp(-l)): the last bracket has mean 0, and the rest is >= 0 and of order l².
        shifted = float(np.sum(masses * np.exp(b * (losses - span)))) if b * span > 1 else 0.0
        if b * span > 1:
            true = (math.log(shifted) + b * span) / b
        else:
            true = math.log1p(float(np.sum(masses * (np.expm1(b * losses) + b * np.expm1(-losses))))) / b
        found = float(pair.renyi(np.array([order]))[0])
        assert found >= true * (1 - 1e-5)
        assert found <= true * 1.001 + 2e-13 * (1 + order * span) / b
        assert found <= span


@pytest.mark.parametrize(("kind", "law"), [("laplace", laplace), ("range", logistic)])
@pytest.mark.parametrize("span", [0.1, 1.0, 4.0])
def test_the_losses_are_those_of_two_shifted_laws(kind: str, law: object, span: float) -> None:
    """Chances of loss intervals, by the densities themselves; and not those of a law of another kind."""
    x = np.linspace(-45, 45 + span, 1_000_001)
    p, q = law.pdf(x - span), law.pdf(x)  # type: ignore[attr-defined]
    losses, cell = np.log(p) - np.log(q), x[1] - x[0]
    for name, pair_of in KINDS.items():
        pair = pair_of.pair(span)
        worst = 0.0
        for low in np.linspace(-0.95, 0.9, 12) * span:
            true = float(np.sum(p[losses > low])) * cell
            found = pair.atom + pair.body * -math.expm1((low - span) / 2)
            worst = max(worst, abs(true - found))
        assert (worst < 1e-4) == (name == kind)


class TestWhichPair:
    def test_by_type(self) -> None:
        assert find_dominating_pair(gaussian(4.0)) == SampledGaussianPair(0.25, 0.0, 1.0)
        assert find_dominating_pair(batch(4.0, 0.1)) == SampledGaussianPair(0.125, -0.125, 0.1)
        assert find_dominating_pair(laplace_event(4.0)) == BoundedLossPair.laplace(0.25)
        assert find_dominating_pair(PureEvent(0.5)) == BoundedLossPair.randomised_response(0.5)
        assert find_dominating_pair(BoundedRangeEvent(0.5)) == BoundedLossPair.logistic(0.5)

    def test_what_states_a_mu_alone_is_a_gaussian(self) -> None:
        class Stated(ObjectivePerturbationEvent):
            def gaussian_mu(self) -> float:
                return 0.3

        event = Stated(NoisePerSensitivity(5.0), 0.01, True, 1, 30.0)
        assert find_dominating_pair(event) == SampledGaussianPair(0.3, 0.0, 1.0)
        exact = GaussianAccountant().epsilon(((gaussian(1 / 0.3), 4),), DELTA)
        assert exact <= losses_epsilon(((event, 4),), DELTA) <= 1.001 * exact
        # With random batches as well, and with Laplace noise.
        assert PrivacyLossAccountant().supports(((event, 1), (batch(1.0, 0.1), 1)), DELTA)
        assert MixedLossAccountant().supports(((event, 1), (laplace_event(1.0), 1)), DELTA)

    def test_a_subclass_that_says_no_more_is_a_randomised_response(self) -> None:
        class Rounded(LaplaceEvent):
            pass

        class Merged(BoundedRangeEvent):
            pass

        for event in (Rounded(NoisePerSensitivity(2.0)), Merged(0.5)):
            assert find_dominating_pair(event) == BoundedLossPair.randomised_response(0.5)

    @pytest.mark.parametrize(
        "event",
        [
            ExposedEvent(),
            gaussian(0.0),
            laplace_event(0.0),
            batch(0.0, 0.5),
            PureEvent(math.inf),
            BoundedRangeEvent(math.inf),
        ],
        ids=lambda e: type(e).__name__,
    )
    def test_no_promise_has_no_pair(self, event: Event) -> None:
        assert find_dominating_pair(event) is None
        assert losses_epsilon(((gaussian(1.0), 1), (event, 1)), DELTA) == math.inf
        assert not MixedLossAccountant().supports(((PureEvent(0.1), 1), (gaussian(2.0), 1), (event, 1)), DELTA)

    @pytest.mark.parametrize(
        "event",
        [gaussian(math.inf), laplace_event(math.inf), batch(math.inf, 0.5), PureEvent(0.0), BoundedRangeEvent(0.0)],
    )
    def test_nothing_costs_nothing(self, event: Event) -> None:
        alone = losses_epsilon(((gaussian(2.0), 1),), DELTA)
        assert losses_epsilon(((gaussian(2.0), 1), (event, 5)), DELTA) == alone
        assert losses_epsilon(((event, 5),), DELTA) == 0.0


# --- sums ------------------------------------------------------------------------------------------------------------


def loss_law(event: Event, cell: float, reach: int) -> np.ndarray:
    """Chances of losses rounded down to multiples of a cell, from -reach to reach, by distribution functions."""
    edges = cell * np.arange(-reach, reach + 2)
    if isinstance(event, GaussianEvent):
        mu = event.gaussian_mu()
        below = norm.cdf((edges - mu**2 / 2) / mu)
    else:
        span = event.pure_epsilon()
        inside = np.clip(edges, -span, span)
        if isinstance(event, BoundedRangeEvent):
            below = 1 - -np.expm1((inside - span) / 2) / -math.expm1(-span)
        elif isinstance(event, LaplaceEvent):
            below = 0.5 * np.exp((inside - span) / 2)
        else:
            below = np.full_like(edges, 1 / (1 + math.exp(span)))
        # A loss of span itself lies below an edge that is larger, one of -span below one that is larger than -span.
        below = np.where(edges > span, 1.0, np.where(edges > -span, below, 0.0))
    return np.diff(below)


def rounded_down(composition: Composition, delta: float, cell: float) -> float:
    """A lower bound on the epsilon of the pairs: each loss is taken for less than it is, by up to a cell."""
    law, uses = np.ones(1), 0
    for event, count in composition:
        for _ in range(count):
            law, uses = np.maximum(fftconvolve(law, loss_law(event, cell, int(9 / cell))), 0.0), uses + 1
    losses = cell * (np.arange(len(law)) - len(law) // 2)
    at = np.arange(0.0, 9.0, cell / 4)
    profile = np.array([np.sum(law * np.maximum(-np.expm1(np.minimum(e - losses, 0.0)), 0.0)) for e in at[::40]])
    start = 40 * max(int(np.argmax(profile <= delta)) - 1, 0)
    for e in at[start:]:
        if float(np.sum(law * -np.expm1(np.minimum(e - losses, 0.0)))) <= delta:
            return float(e)
    return math.inf


MIXES: tuple[Composition, ...] = (
    ((gaussian(2.0), 1), (laplace_event(2.0), 2)),
    ((gaussian(1.5), 2), (BoundedRangeEvent(0.4), 3)),
    ((gaussian(3.0), 1), (PureEvent(0.3), 4)),
    ((gaussian(3.0), 1), (PureEvent(0.3), 2), (BoundedRangeEvent(0.5), 2), (laplace_event(3.0), 1)),
    ((laplace_event(3.0), 6),),
    ((BoundedRangeEvent(0.6), 5), (laplace_event(2.5), 2)),
)


@pytest.mark.parametrize("delta", [1e-2, 1e-4])
@pytest.mark.parametrize("mix", range(len(MIXES)))
def test_a_sum_against_convolutions_on_a_fine_grid(mix: int, delta: float) -> None:
    """Never below losses rounded down, and at most half a percent above what they converge to."""
    composition = MIXES[mix]
    found = losses_epsilon(composition, delta)
    uses = sum(count for _, count in composition)
    low = rounded_down(composition, delta, 2e-3)
    assert low <= found <= (low + uses * 2e-3) * 1.005
    # The mean of what rounding down and rounding up give is nearer still.
    assert found == pytest.approx(low + uses * 1e-3, rel=5e-3)


@pytest.mark.parametrize("delta", [0.1, 1e-3, 1e-6, 1e-12, 1e-30])
@pytest.mark.parametrize(("span", "count"), [(0.1, 50), (0.013, 777), (1.0, 10), (0.002, 5000), (3.0, 3), (0.5, 1)])
def test_many_randomised_responses_against_the_exact_sum(span: float, count: int, delta: float) -> None:
    exact = OptimalPureAccountant().epsilon(((PureEvent(span), count),), delta)
    found = losses_epsilon(((PureEvent(span), count),), delta)
    assert exact * (1 - 1e-12) - 1e-13 * span * count <= found <= exact * 1.005 + 1e-12
    # Responses that are told apart by their epsilon are added up as well.
    halves = losses_epsilon(((PureEvent(span), count), (PureEvent(span * (1 + 1e-9)), 1)), delta)
    assert halves >= found * (1 - 1e-3)


@pytest.mark.parametrize("noise", [0.5, 2.0, 20.0])
@pytest.mark.parametrize("delta", [1e-2, 1e-6])
def test_one_laplace_answer_in_closed_form(noise: float, delta: float) -> None:
    exact = max(1 / noise + 2 * math.log1p(-delta), 0.0)
    assert exact * (1 - 1e-12) <= losses_epsilon(((laplace_event(noise), 1),), delta) <= exact * 1.001


@pytest.mark.parametrize("span", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("delta", [1e-2, 1e-6])
def test_one_choice_in_closed_form(span: float, delta: float) -> None:
    exact = max(2 * math.log(math.exp(span / 2) - math.sqrt(delta * math.expm1(span))), 0.0)
    assert exact * (1 - 1e-12) <= losses_epsilon(((BoundedRangeEvent(span), 1),), delta) <= exact * 1.001


@pytest.mark.parametrize(("noise", "laplaces", "sigma"), [(5.0, 10, 3.0), (1.0, 1, 2.0), (20.0, 200, 5.0)])
@pytest.mark.parametrize("delta", [1e-3, 1e-6])
def test_between_the_two_estimates_of_the_library(noise: float, laplaces: int, sigma: float, delta: float) -> None:
    """dp-accounting's losses of Laplace noise per sensitivity, with a Gaussian and two randomised responses."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    span, low_high = 0.2, []
    for pessimistic in (False, True):
        options = {"pessimistic_estimate": pessimistic, "value_discretization_interval": 1e-4}
        one = pld.from_laplace_mechanism(noise, **options).self_compose(laplaces)
        answers = pld.from_randomized_response(2 / (1 + math.exp(span)), 2, pessimistic, 1e-4).self_compose(2)
        whole = one.compose(answers).compose(pld.from_gaussian_mechanism(sigma, **options))
        low_high.append(whole.get_epsilon_for_delta(delta))
    found = losses_epsilon(((laplace_event(noise), laplaces), (PureEvent(span), 2), (gaussian(sigma), 1)), delta)
    assert low_high[0] - 1e-3 <= found <= low_high[1] * 1.003


@pytest.mark.parametrize("delta", [0.02, 0.2])
@pytest.mark.parametrize("span", [0.5, 2.0])
def test_releases_that_depend_on_each_other_cost_no_more(span: float, delta: float) -> None:
    """An exponential mechanism whose scores hang on a noisy count, then a response that hangs on the choice."""
    sigma = 1.2
    x, cell = np.linspace(-9.0, 10.0, 3001, retstep=True)

    def law(member: int) -> np.ndarray:
        """The joint law of (count, choice among 3, response), choices and responses along the other axes."""
        count = norm.pdf(x, member, sigma) * cell
        move = np.where(x > 0.5, 1.0, -1.0) * (1.0 if member else -1.0)
        scores = np.stack([move, -move, 0.3 * move], axis=1) * span / 4
        choice = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        true = 1 / (1 + math.exp(-span))
        told = np.array([true, 1 - true, true]) if member else np.array([1 - true, true, 1 - true])
        response = np.stack([told, 1 - told], axis=1)
        return np.asarray(count[:, None, None] * choice[:, :, None] * response[None])

    p, q = law(1), law(0)
    eps = losses_epsilon(((gaussian(sigma), 1), (BoundedRangeEvent(span), 1), (PureEvent(span), 1)), delta)
    for one, other in ((p, q), (q, p)):
        assert float(np.maximum(one - math.exp(eps) * other, 0.0).sum()) <= delta
    assert float(np.maximum(p - math.exp(0.3 * eps) * q, 0.0).sum()) > delta


# --- where it is used ------------------------------------------------------------------------------------------------


class TestWhereItIsUsed:
    USED: Sequence[Composition] = (
        ((gaussian(2.0), 1), (laplace_event(5.0), 3)),
        ((gaussian(2.0), 1), (PureEvent(0.1), 3)),
        ((gaussian(2.0), 1), (BoundedRangeEvent(0.5), 2)),
        ((gaussian(2.0), 1), (BoundedRangeEvent(0.1), 50), (laplace_event(5.0), 1)),
        ((laplace_event(15.0), 40),),
    )
    NOT_USED: Sequence[Composition] = (
        ((gaussian(2.0), 3),),
        ((gaussian(2.0), 1), (BoundedRangeEvent(0.1), 50)),
        ((BoundedRangeEvent(0.5), 2),),
        ((PureEvent(0.5), 2), (PureEvent(0.3), 9)),
        ((batch(2.0, 0.1), 4), (gaussian(2.0), 1)),
    )

    @pytest.mark.parametrize("composition", USED)
    def test_where_it_gains(self, composition: Composition) -> None:
        found, name = best_accountant(composition, DELTA)
        assert name == "privacy loss distributions of mixed releases"
        others = (RenyiAccountant(), GaussianAccountant(), ChoicesAccountant())
        assert found < 0.995 * min(one.epsilon(composition, DELTA) for one in others)

    @pytest.mark.parametrize("composition", NOT_USED)
    def test_where_others_do_as_well(self, composition: Composition) -> None:
        assert not MixedLossAccountant().supports(composition, DELTA)
        assert MixedLossAccountant().epsilon(composition, DELTA) == math.inf

    @pytest.mark.parametrize("delta", [0.0, 1e-41])
    def test_no_delta_to_speak_of(self, delta: float) -> None:
        assert not MixedLossAccountant().supports(((gaussian(2.0), 1), (PureEvent(0.1), 3)), delta)

    @pytest.mark.parametrize("many", [7, 40])
    def test_many_choices_are_one_gaussian(self, many: int) -> None:
        """Where a sum of their losses would be larger."""
        composition = ((gaussian(2.0), 1), (BoundedRangeEvent(1 / math.sqrt(many)), many), (laplace_event(20.0), 1))
        found = MixedLossAccountant().epsilon(composition, DELTA)
        assert found < losses_epsilon(composition, DELTA)

    @pytest.mark.parametrize("eps", [0.1, 1.0, 8.0])
    def test_calibration_meets_the_budget_and_wastes_little(self, eps: float) -> None:
        def noise(value: float) -> NoisePerSensitivity:
            return NoisePerSensitivity(value)

        lines = (
            Release("step", Gaussian(noise(2.0)), 5),
            Release("select", TopK(noise(20.0), 50), 1),
            Release("score", Laplace(noise(4.0)), 1),
        )
        found = calibrate(lines, Budget(eps, 1e-6))
        assert 0.999 * eps <= epsilon(found, 1e-6) <= eps

    @pytest.mark.parametrize("span", [1e-9, 1e-3, 50.0, 600.0])
    @pytest.mark.parametrize("count", [1, 3, 10_000])
    def test_extreme_settings_are_answered(self, span: float, count: int) -> None:
        events = (PureEvent(span), BoundedRangeEvent(span), laplace_event(1 / span))
        with np.errstate(all="raise", under="ignore"):
            for event, delta in product(events, (0.3, 1e-5, 1e-39)):
                found = losses_epsilon(((event, count), (gaussian(30.0), 1)), delta)
                assert 0 <= found <= count * span * 1.05 + 1.0
