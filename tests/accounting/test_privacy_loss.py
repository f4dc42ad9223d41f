"""The pieces of the sum of losses that only show where they are wrong: infinite losses, rounding, total variation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from tulle.accounting.privacy_loss import LossGrid, MixedLossAccountant, Window, _least_epsilon, composed_epsilon
from tulle.accounting.sampled_pairs import SampledGaussianPair
from tulle.trusted.accountants import best_accountant
from tulle.trusted.events import BoundedRangeEvent, GaussianEvent, LaplaceEvent, NoisePerSensitivity, PureEvent
from tulle.trusted.plan import Composition

INTERVAL = 0.5
WINDOW = Window(tilt=1.0, low=-8.0, high=8.0, tail=1.0)


def grid(infinite: float) -> LossGrid:
    """Losses of -1, 0 and 1 in units of the interval, and now and then an infinite one."""
    return LossGrid(INTERVAL, (1 - infinite) * np.array([0.2, 0.3, 0.5]), infinite)


@pytest.mark.parametrize("count", [1, 3])
def test_an_infinite_loss_is_paid_out_of_delta(count: int) -> None:
    """Its chance over all uses is gone from delta; where that is all of delta, nothing is proved."""
    infinite = 0.01
    ever = 1 - (1 - infinite) ** count
    assert composed_epsilon([(grid(infinite), count)], 0.9 * ever, WINDOW) == math.inf
    # Sums on the grid, by hand: the law of the sum, and the least epsilon at the remaining delta.
    law = np.array([1.0])
    for _ in range(count):
        law = np.convolve(law, grid(infinite).chances)
    sums = INTERVAL * np.arange(-count, count + 1)
    delta = ever + 0.3 * float(law[sums > 0].sum())

    def profile(epsilon: float) -> float:
        return float(np.sum(law * np.maximum(-np.expm1(epsilon - sums), 0.0))) + ever

    found = composed_epsilon([(grid(infinite), count)], delta, WINDOW)
    assert profile(found) <= delta * (1 + 1e-9)
    assert profile(found - 0.01) > delta


def test_what_rounding_can_hide_counts_as_a_loss() -> None:
    """Chances of zero that may be wrong by 1e-3 at a loss of 2: epsilon 0 needs a delta of 1e-3 × (1 - e^-2)."""
    losses, chances = np.array([0.0, 1.0, 2.0]), np.zeros(3)
    errors = np.array([0.0, 0.0, 1e-3])
    needed = -1e-3 * math.expm1(-2.0)
    assert _least_epsilon(losses, chances, errors, 1.001 * needed) == 0
    assert _least_epsilon(losses, chances, errors, 0.999 * needed) > 0
    assert _least_epsilon(losses, chances, 0 * errors, 0.999 * needed) == 0


@pytest.mark.parametrize("rate", [0.01, 0.3, 1.0])
@pytest.mark.parametrize("mu", [0.1, 1.0, 3.0])
def test_the_total_variation_of_a_sampled_gaussian(rate: float, mu: float) -> None:
    """Half the integral of the difference of the two densities, one of which may be mirrored."""
    for up, down in ((mu, 0.0), (mu / 2, -mu / 2)):
        pair = SampledGaussianPair(up, down, rate)

        def difference(x: float, up: float = up, down: float = down) -> float:
            return 0.5 * rate * abs(norm.pdf(x - up) - norm.pdf(x - down))

        exact = quad(difference, -12, 15, limit=200, points=[(up + down) / 2])[0]
        assert pair.total_variation == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize(
    "composition",
    [
        ((LaplaceEvent(NoisePerSensitivity(7.2515)), 10),),
        ((GaussianEvent(NoisePerSensitivity(100.0)), 1), (PureEvent(0.5), 20)),
        ((GaussianEvent(NoisePerSensitivity(3.0)), 2), (BoundedRangeEvent(0.4), 5)),
    ],
    ids=["laplace", "pure", "choices"],
)
def test_the_epsilon_of_bounded_losses_falls_as_delta_grows(composition: Composition) -> None:
    """Also where the window ends at the largest sum of losses, which a grid can pass by a little."""
    found = [MixedLossAccountant().epsilon(composition, delta) for delta in np.geomspace(1e-6, 0.05, 40)]
    assert np.all(np.diff(found) <= 1e-3 * np.array(found[:-1]))


def test_ten_laplace_answers_are_sharp_near_the_largest_sum() -> None:
    """dp-accounting says 0.6073 to 0.6075."""
    found = MixedLossAccountant().epsilon(((LaplaceEvent(NoisePerSensitivity(7.2515)), 10),), 0.018823)
    assert 0.6072 < found < 0.611


def test_huge_ranges_do_not_overflow() -> None:
    for huge in (3e5, 1e8, 1e160):
        found = best_accountant(((PureEvent(huge), 1), (GaussianEvent(NoisePerSensitivity(5.0)), 1)), 1e-6)[0]
        assert huge <= found * (1 + 1e-9) < math.inf
