"""Many choices as one Gaussian release: the constants computed anew, and adversaries that come close to them."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from scipy.special import ndtri
from scipy.stats import norm

from tulle.accounting.calibration import calibrate
from tulle.accounting.choices import ChoicesAccountant, choices_square, merge_choices
from tulle.accounting.renyi import RenyiAccountant
from tulle.trusted.accountants import GaussianAccountant, best_accountant, epsilon
from tulle.trusted.events import BoundedRangeEvent, Event, GaussianEvent, NoisePerSensitivity, PureEvent
from tulle.trusted.gaussian import gaussian_delta
from tulle.trusted.mechanisms import Gaussian, TopK
from tulle.trusted.plan import Budget, Composition, Release

DELTA = 1e-6
MOST = 256
# Values of the game are checked this many roots of k to the left, and bounded by a formula beyond.
REACH = 14.0


def gaussian(noise: float) -> GaussianEvent:
    return GaussianEvent(NoisePerSensitivity(noise))


# --- the constants ---------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def values_of_the_game(cells: int = 32) -> tuple[np.ndarray, list[np.ndarray]]:
    """Upper bounds on sup E (y + W)_+ after 0, 1, ..., MOST steps, at places y up to 2 (docs/proofs/many_choices.md).

    In a step the player, at y, names an interval of length 2 about it and goes to one of its ends, at fair odds. Values
    are convex in y: chords between places are above them. Within a cell a step is a concave parabola in where the
    interval lies, whose vertex is known. Every step is multiplied by more than it can be rounded down by.
    """
    h = 2 / cells
    first = math.floor(-(REACH * math.sqrt(MOST) + 4) / h)
    places = h * np.arange(first, cells + 1)
    size, value = len(places), np.maximum(places, 0.0)
    right = np.arange(cells + 1, 2 * cells + 1)
    down = h * np.arange(cells)[:, None] / 2  # the chance of the lower end, at the beginning of a cell
    found = [value]
    for _ in range(MOST):
        wide = np.empty(size + 2 * cells)
        wide[:cells] = value[0]  # values rise
        wide[cells:-cells] = value
        wide[-cells:] = h * right + value[-right - first]  # the value at y is y more than that at -y
        slopes = np.diff(wide) / h
        upper, lower = (sliding_window_view(wide[start:], size)[:cells] for start in (cells, 0))
        above, below = (sliding_window_view(slopes[start:], size)[:cells] for start in (cells, 0))
        level = (1 - down) * upper + down * lower
        rise = (lower - upper) / 2 + (1 - down) * above + down * below
        bend = np.maximum(above - below, 1e-300)
        vertex = np.clip(rise / bend, 0.0, h)
        level += vertex * (rise - vertex * bend / 2)
        value = np.maximum(level.max(axis=0), value) * (1 + 1e-13)
        found.append(value)
    return places, found


def least_square(places: np.ndarray, value: np.ndarray, reach: float) -> float:
    """The least w such that all chords of `value` from -reach to 0 lie below E (y + sqrt(w) N)_+ everywhere.

    A line of slope p and height J at 0 does if J <= sqrt(w) phi(ndtri(p)).
    """
    inside = (places[:-1] >= -reach - 0.1) & (places[1:] <= 1e-12)
    slopes = np.diff(value)[inside] / np.diff(places)[inside]
    heights = value[:-1][inside] - slopes * places[:-1][inside]
    some = slopes > 0
    assert np.all(heights[~some] <= 0)
    return float(np.max(heights[some] / norm.pdf(ndtri(slopes[some])))) ** 2 * (1 + 1e-9)


def log_moment(b: np.ndarray) -> np.ndarray:
    """The largest log E exp(b step) of a step of the game."""
    k = -np.expm1(-2 * b) / 2
    return np.asarray(b / k - 1 + np.log(k / b))


def test_the_constants_are_large_enough() -> None:
    """And no more than 0.03 larger than need be where they begin to hold; one choice: lemma 3 of the page on events."""
    assert choices_square(1) == pytest.approx(math.pi / 2, rel=1e-15)
    assert choices_square(1) >= math.pi / 2 * (1 - 1e-15)
    places, values = values_of_the_game()
    for count in range(2, MOST + 1):
        assert least_square(places, values[count], REACH * math.sqrt(count)) <= choices_square(count), count
    for count in (4, 8, 16, 32, 64, 128, 256):
        found = least_square(places, values[count], REACH * math.sqrt(count))
        assert choices_square(count) <= found + 0.03


@pytest.mark.parametrize("count", range(2, MOST + 1))
def test_far_out_a_formula_is_enough(count: int) -> None:
    """Chernoff's bound against the Gaussian's value, between neighbouring places; beyond 2 k the value is 0."""
    places, w = np.geomspace(REACH * math.sqrt(count), 2 * count, 2000), choices_square(count)
    if places[0] >= 2 * count:
        return
    low, high = places[:-1], places[1:]
    b = low / count
    # Both rise with the place.
    gained = low**2 / 2 * (1 / count - 1 / w) + count * (b**2 / 2 - log_moment(b))
    # This falls or rises slowly: the least of its factors.
    factors = 1 + np.log(low / count) + 0.5 * math.log(w / (2 * math.pi)) - np.log(high**2 / w + 3)
    assert np.all(gained + factors >= 0.1)


@pytest.mark.parametrize("step", [0.01, 0.3, 1.0, 2.5])
def test_the_largest_moment_of_a_step(step: float) -> None:
    up = np.linspace(0, 2, 100_001)
    moments = (1 - up / 2) * np.exp(step * up) + up / 2 * np.exp(step * (up - 2))
    assert float(log_moment(np.array(step))) == pytest.approx(math.log(moments.max()), rel=1e-6)


def test_the_square_grows_by_about_one_a_choice() -> None:
    squares = [choices_square(count) for count in range(2000)]
    assert squares[0] == 0
    assert all(0.9 < b - a < 1.7 for a, b in pairwise(squares))
    assert all(squares[count] <= 1.0075 * count for count in range(300, 2000))
    # Blocks are composed as Gaussian releases: a whole costs no less than its parts do together.
    for count in (257, 300, 511, 512, 513, 1025):
        assert choices_square(count) >= choices_square(256) * (count // 256)
        assert choices_square(count) == pytest.approx(choices_square(256) + choices_square(count - 256))


# --- adversaries -----------------------------------------------------------------------------------------------------


def adversary(span: float, count: int, cells: int, reach: int) -> tuple[np.ndarray, np.ndarray]:
    """Losses x, and what a player who may name an interval at every choice reaches of E (1 - exp(-x - losses))_+.

    All losses are on the grid: this is what a sequence of choices costs, up to rounding, and no bound.
    """
    h = span / cells
    numbers = np.arange(-reach, reach + 1)
    value = -np.expm1(-h * np.maximum(numbers, 0))
    up = h * np.arange(cells + 1.0)
    chance = (math.exp(span) - np.exp(up)) / math.expm1(span)  # of the upper end
    for _ in range(count):
        wide = np.concatenate([np.zeros(cells), value, np.full(cells, value[-1])])  # too low at both ends
        windows = sliding_window_view(wide, len(numbers))
        value = np.max(chance[:, None] * windows[cells:] + (1 - chance[:, None]) * windows[: cells + 1], axis=0)
    return h * numbers, value


def billed_mu(span: float, count: int) -> float:
    return math.sqrt(choices_square(count)) * span / 2


@pytest.mark.parametrize("span", [0.02, 0.3, 1.0, 4.0])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 20, 60, 300])
def test_no_adversary_passes_the_gaussian_and_one_comes_near(span: float, count: int) -> None:
    cells = 16 if count < 100 else 8
    reach = min(cells * count, int(12 * math.sqrt(count) * cells))
    x, value = adversary(span, count, cells, reach)
    mu = billed_mu(span, count)
    gaussian_value = np.array([gaussian_delta(-place, mu) for place in x])
    assert np.all(value <= gaussian_value * (1 + 1e-9) + 1e-14)
    if span <= 1:  # for a large range the Gaussian is not close
        less = np.array([gaussian_delta(-place, 0.96 * mu) for place in x])
        assert np.any(value > less)


@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-8])
@pytest.mark.parametrize(("span", "count", "mu"), [(0.2, 30, 0.5), (0.5, 10, 1.0), (0.1, 100, 0.2)])
def test_a_gaussian_answer_that_is_seen_first_is_covered(span: float, count: int, mu: float, delta: float) -> None:
    """The adversary names intervals in view of a Gaussian answer, which costs more than the other order."""
    composition: Composition = ((gaussian(1 / mu), 1), (BoundedRangeEvent(span), count))
    eps = ChoicesAccountant().epsilon(composition, delta)
    x, value = adversary(span, count, 16, int(16 * 12 * math.sqrt(count)))
    losses = mu**2 / 2 + mu * norm.ppf((np.arange(40_000) + 0.5) / 40_000)

    def total(at: float) -> float:
        return float(np.mean(np.interp(losses - at, x, value)))

    assert total(eps) <= delta * (1 + 1e-2)
    assert total(0.93 * eps) > delta


@pytest.mark.parametrize("span", [0.3, 1.0])
@pytest.mark.parametrize("delta", [0.003, 0.05])
def test_exponential_mechanisms_that_depend_on_each_other(span: float, delta: float) -> None:
    """Seven choices among three; whether a score rises or falls hangs on the answers before. All paths written out."""

    def laws(lead: float) -> list[tuple[float, float]]:
        moves = np.array([1.0, -1.0, -1.0]) if lead <= 0 else np.array([-1.0, 1.0, 1.0])
        start = np.array([0.6, 0.0, 0.1]) if lead <= 0 else np.array([0.0, 0.8, -0.2])
        both = [np.exp(span / 4 * (start + sign * moves)) for sign in (1, -1)]
        return list(zip(*(law / law.sum() for law in both)))

    paths = [(1.0, 1.0)]
    for _ in range(7):
        paths = [(p * a, q * b) for p, q in paths for a, b in laws(math.log(p / q))]
    ratios = [math.log(a / b) for a, b in laws(0.0)]
    assert max(ratios) - min(ratios) == pytest.approx(span)
    eps = ChoicesAccountant().epsilon(((BoundedRangeEvent(span), 7),), delta)

    def divergence(at: float) -> float:
        return max(
            math.fsum(max(p - math.exp(at) * q, 0.0) for p, q in paths),
            math.fsum(max(q - math.exp(at) * p, 0.0) for p, q in paths),
        )

    assert divergence(eps) <= delta
    assert divergence(0.5 * eps) > delta


# --- where it is used ------------------------------------------------------------------------------------------------


class TestMerging:
    def test_choices_of_one_range_are_one_gaussian(self) -> None:
        composition = ((gaussian(2.0), 3), (BoundedRangeEvent(0.2), 10), (BoundedRangeEvent(0.2), 20))
        (kept, (event, count)) = merge_choices(composition)
        assert kept == (gaussian(2.0), 3)
        assert count == 1
        assert event.gaussian_mu() == pytest.approx(0.1 * math.sqrt(30.8), rel=1e-9)
        assert event.gaussian_mu() >= 0.1 * math.sqrt(30.8)

    def test_of_two_ranges_one_is_merged(self) -> None:
        """That of 30 choices: what it saves is more than what the other does. The order could matter for both."""
        composition = ((BoundedRangeEvent(0.2), 30), (BoundedRangeEvent(0.3), 4))
        merged = merge_choices(composition)
        assert (BoundedRangeEvent(0.3), 4) in merged
        assert len(merged) == 2
        both = ChoicesAccountant().epsilon(composition, DELTA)
        mu = math.sqrt(billed_mu(0.2, 30) ** 2 + 4 * BoundedRangeEvent(0.3).gaussian_mu() ** 2)
        assert both == pytest.approx(GaussianAccountant().epsilon(((gaussian(1 / mu), 1),), DELTA), rel=1e-9)

    @pytest.mark.parametrize(
        "composition",
        [
            (),
            ((gaussian(2.0), 3),),
            ((BoundedRangeEvent(0.2), 1), (gaussian(2.0), 1)),
            ((PureEvent(0.2), 30),),
            ((BoundedRangeEvent(0.0), 30),),
            ((BoundedRangeEvent(math.inf), 30),),
        ],
    )
    def test_nothing_to_merge(self, composition: Composition) -> None:
        assert merge_choices(composition) is composition
        assert not ChoicesAccountant().supports(composition, DELTA)

    def test_a_subclass_may_mean_something_else(self) -> None:
        class Other(BoundedRangeEvent):
            pass

        composition: tuple[tuple[Event, int], ...] = ((Other(0.2), 30),)
        assert merge_choices(composition) is composition

    @pytest.mark.parametrize("count", [20, 100, 1000])
    def test_costs_less_than_renyi_curves(self, count: int) -> None:
        composition = ((gaussian(8.0), 1), (BoundedRangeEvent(0.25 / math.sqrt(count)), count))
        found, name = best_accountant(composition, DELTA)
        assert name == "Gaussian differential privacy, choices taken together"
        assert found < 0.97 * RenyiAccountant().epsilon(composition, DELTA)
        assert found > GaussianAccountant().epsilon(((gaussian(1 / math.hypot(0.125, 0.125)), 1),), DELTA)

    def test_no_delta_no_gaussian(self) -> None:
        assert not ChoicesAccountant().supports(((BoundedRangeEvent(0.2), 30),), 0.0)

    @pytest.mark.parametrize("eps", [0.1, 1.0, 8.0])
    def test_calibration(self, eps: float) -> None:
        noise = NoisePerSensitivity(10.0)
        lines = (Release("select", TopK(noise, 100), 3), Release("step", Gaussian(noise), 3))
        found = calibrate(lines, Budget(eps, DELTA))
        assert 0.99999 * eps <= epsilon(found, DELTA) <= eps
