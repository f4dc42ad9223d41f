"""Shares of noise: their sum is a Gaussian answer, and they are never sent without a mask."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tulle.accounting.calibration import calibrate
from tulle.federated.client_side.masks import Mask, add_up
from tulle.federated.client_side.noise_share import LEAST_STEPS, GaussianShare, GridOnly
from tulle.trusted.events import GaussianEvent, NoisePerSensitivity, SampledGaussianEvent
from tulle.trusted.gaussian import gaussian_epsilon
from tulle.trusted.mechanisms import Gaussian, Sensitivity, price_of
from tulle.trusted.plan import Budget, PlanError, Release
from tulle.trusted.sampling import Sampling

NOISE = NoisePerSensitivity(2.0)
MOVED = Sensitivity(l2=0.01)


def mask(place: int, members: int, question: bytes = b"question") -> Mask:
    """That of one of some members, who share secrets with each other."""
    pairs = [(min(place, k), max(place, k)) for k in range(members) if k != place]
    return Mask([(b"secret %d %d" % pair, pair[0] == place) for pair in pairs], question)


def noisy_sums(share: GaussianShare, members: int, size: int, seed: int) -> np.ndarray:
    """The sums of the answers of so many members to an exact answer of zeros, in units of the noise that is asked."""
    generator = np.random.default_rng(seed)
    hidden = [share.release(np.zeros((size, 1)), MOVED, generator, mask(k, members)) for k in range(members)]
    total = add_up([one.values for one in hidden]) * hidden[0].grid
    assert {one.grid for one in hidden} == {hidden[0].grid}
    return np.asarray(total) / (share.noise.value * MOVED.l2)


# --- the law of the sum ----------------------------------------------------------------------------------------------


def rounded_normal(s: float, reach: int) -> np.ndarray:
    """P(round(N(0, s²)) = k) for |k| <= reach."""
    borders = np.arange(-reach, reach + 2) - 0.5
    return np.diff(stats.norm.cdf(borders / s))


@pytest.mark.parametrize("s", [0.4, 0.5, 0.6, 0.7])
@pytest.mark.parametrize("members", [2, 3, 5])
def test_the_sum_of_rounded_draws_is_a_rounded_sum_of_draws_but_for_an_error_that_vanishes_as_proved(
    s: float, members: int
) -> None:
    """Lemma 2 of the proof page, at scales at which the error can be seen."""
    reach = 60
    one = rounded_normal(s, reach)
    summed = one
    for _ in range(members - 1):
        summed = np.convolve(summed, one)
    middle = len(summed) // 2
    # The rounded sum: the density of Z + W + V at whole numbers, by an integral of its Fourier transform.
    u = np.linspace(-40.0, 40.0, 160_001)
    transform = (np.exp(-((s * u) ** 2) / 2) * np.sinc(u / (2 * np.pi))) ** members
    wanted = [np.trapezoid(transform * np.cos(k * u), u) / (2 * np.pi) for k in range(6)]
    error = np.abs(summed[middle : middle + 6] - wanted).max()
    q = 2 * sum(math.exp(-((s * math.pi * (2 * k + 1)) ** 2) / 2) for k in range(9))
    assert 1e-9 < error <= (1 + q) ** members - 1
    assert error <= 4 * members * math.exp(-((s * math.pi) ** 2) / 2)


def test_a_share_has_as_many_steps_as_the_proof_needs() -> None:
    """At this many steps the error of lemma 2 is below 10^-2000 for 1000 clients."""
    log_q = math.log10(2.01) - (math.pi * LEAST_STEPS) ** 2 / 2 / math.log(10)
    assert log_q + math.log10(2 * 1000) < -2000
    for shares in (1, 2, 31, 998):
        _, steps, _ = GaussianShare(NOISE, shares=shares, rows=1000).units(MOVED, 47_000)
        assert steps >= LEAST_STEPS


@pytest.mark.parametrize(("members", "shares"), [(2, 2), (3, 3), (10, 10), (10, 7), (30, 20)])
def test_the_noise_of_a_sum_has_the_scale_of_one_gaussian_answer_and_no_other(members: int, shares: int) -> None:
    """Seed 1, 20,000 draws; a right scale is rejected with a chance of 1e-6 by each of the two tests."""
    share = GaussianShare(NOISE, shares=shares, rows=1000)
    drawn = noisy_sums(share, members, 20_000, seed=1)
    wanted = math.sqrt(members / shares)

    def accepted(scale: float) -> bool:
        low, high = stats.chi2.ppf([5e-7, 1 - 5e-7], len(drawn))
        return bool(low <= (drawn**2).sum() / scale**2 <= high and stats.kstest(drawn / scale, "norm").pvalue > 1e-6)

    assert accepted(wanted)
    assert not accepted(wanted * 2 / 3)
    assert not accepted(wanted * 3 / 2)


@pytest.mark.parametrize("members", [2, 10, 30])
@pytest.mark.parametrize("size", [1, 300, 47_236])
def test_the_variance_of_a_sum_is_that_of_the_gaussian_mechanism(members: int, size: int) -> None:
    """Rounding included, which adds a twelfth of a unit for each member."""
    share = GaussianShare(NOISE, shares=members, rows=10_000)
    grid, steps, _ = share.units(MOVED, size)
    variance = members * (steps**2 + 1 / 12) * grid**2
    gaussian = (NOISE.value * MOVED.l2) ** 2
    assert gaussian <= variance <= 1.005 * gaussian
    # The plan's price is the exact one of the Gaussian mechanism, so that no other accountant could do with less.
    calibrated = calibrate((Release("sum", share, 5),), Budget(1.0, 1e-6))[0].mechanism
    plain = calibrate((Release("sum", Gaussian(), 5),), Budget(1.0, 1e-6))[0].mechanism
    assert calibrated.noise.value == pytest.approx(plain.noise.value, rel=1e-9)
    assert gaussian_epsilon(math.sqrt(5) / calibrated.noise.value, 1e-6) == pytest.approx(1.0, rel=1e-6)


def test_the_price_is_that_of_all_shares_together() -> None:
    batches = Sampling("poisson", 1000, 100)
    assert price_of(GaussianShare(NOISE, shares=7, rows=1000)) == (GaussianEvent(NOISE), 1)
    sampled = GaussianShare(NOISE, shares=7, rows=1000, batches=batches)
    assert price_of(sampled) == (SampledGaussianEvent(NOISE, 0.1, "poisson"), 1)
    whole = GaussianShare(NOISE, shares=7, rows=1000, batches=Sampling("poisson", 1000, 1000))
    assert price_of(whole) == (GaussianEvent(NOISE), 1)


# --- the grid, and the modulus ---------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    moved=st.floats(1e-12, 1e6),
    noise=st.floats(0.05, 1e3),
    count=st.integers(1, 10**6),
    rows=st.integers(2, 10**6),
    members=st.integers(2, 1000),
    data=st.data(),
)
def test_no_sum_of_honest_clients_wraps_or_surpasses_its_bound(
    moved: float, noise: float, count: int, rows: int, members: int, data: st.DataObject
) -> None:
    shares = data.draw(st.integers(1, members))
    share = GaussianShare(NoisePerSensitivity(noise), shares=shares, rows=rows)
    sensitivity = Sensitivity(l2=moved)
    try:
        grid, total = share.bound_total(sensitivity, count, members)
        _, steps, _ = share.units(sensitivity, count)
    except ValueError:  # no grid: nothing is answered
        return
    # All rows alike, at the largest mean that the sensitivity allows, and the largest draw of every client.
    largest = rows * moved
    units = largest / grid + members * (40.9 * steps + 1)
    assert units <= total <= 2**62
    assert largest / grid + 41 * steps < 2**53
    assert math.frexp(grid)[0] == 0.5  # a power of two


def test_studies_that_could_wrap_are_refused_from_public_figures() -> None:
    share = GaussianShare(NoisePerSensitivity(1e-4), shares=2, rows=10**9)
    with pytest.raises(ValueError, match="no grid for so many rows"):
        share.release(np.zeros((10**4, 1)), MOVED, np.random.default_rng(0), mask(0, 2))


# --- nothing leaves without a mask -----------------------------------------------------------------------------------


@pytest.mark.parametrize("then", [None, np.asarray, lambda answer: answer])
def test_a_share_is_not_released_to_a_function_of_answers(then: object) -> None:
    with pytest.raises(PlanError, match="under a mask only"):
        GaussianShare(NOISE, shares=2, rows=10).release(np.zeros((3, 1)), MOVED, np.random.default_rng(0), then)  # type: ignore[arg-type]


def test_a_share_is_not_released_under_what_only_looks_like_a_mask() -> None:
    class Lookalike(Mask):
        def hide(self, units, grid):  # type: ignore[no-untyped-def]
            return units

    with pytest.raises(PlanError, match="under a mask only"):
        GaussianShare(NOISE, shares=2, rows=10).release(
            np.zeros((3, 1)), MOVED, np.random.default_rng(0), Lookalike([], b"")
        )


def test_the_grid_is_told_without_a_look_at_the_answer() -> None:
    share = GaussianShare(NOISE, shares=3, rows=10)
    answers = [np.zeros((5, 1)), np.full((5, 1), 1e9)]
    told = {share.release(one, MOVED, np.random.default_rng(0), GridOnly(4)) for one in answers}
    assert told == {share.bound_total(MOVED, 5, 4)}


@pytest.mark.parametrize(
    "wrong",
    [{"shares": 0}, {"rows": 0}, {"batches": Sampling("shuffled", 10, 5)}, {"batches": Sampling("poisson", 9, 5)}],
)
def test_shares_of_no_study_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"at least 1|Poisson batches"):
        GaussianShare(NOISE, **({"shares": 2, "rows": 10} | wrong))  # type: ignore[arg-type]


def test_a_masked_sum_without_noise_is_refused() -> None:
    share = GaussianShare(NoisePerSensitivity(0.0), shares=2, rows=10)
    with pytest.raises(PlanError, match="needs noise"):
        share.release(np.zeros((3, 1)), MOVED, np.random.default_rng(0), mask(0, 2))
