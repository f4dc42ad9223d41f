"""Gaussian answers about random batches: the claimed cost against all batches written out, other code, and the tables.

Neighbours drawn at random are drawn from a fixed seed and compared with statements that hold for every one of them, so
that no test here can fail by chance.
"""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise, product
from typing import Any, Literal

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

import tulle.accounting.privacy_loss
from tulle.accounting.calibration import calibrate
from tulle.accounting.crosscheck import library_epsilon, to_dp_accounting
from tulle.accounting.optimal_pure import OptimalPureAccountant
from tulle.accounting.privacy_loss import (
    LossGrid,
    Moments,
    PrivacyLossAccountant,
    Window,
    composed_epsilon,
    find_dominating_pair,
    loss_grid,
)
from tulle.accounting.renyi import RenyiAccountant
from tulle.accounting.sampled_pairs import SampledGaussianPair
from tulle.ledgers.ledger import Ledger
from tulle.methods.published_noise import (
    TrueEpsilon,
    scsg_failed_conditions,
    scsg_noise,
    sgd_failed_conditions,
    sgd_noise,
    true_epsilon_table,
)
from tulle.trusted.accountants import GaussianAccountant, best_accountant, epsilon
from tulle.trusted.events import (
    BoundedRangeEvent,
    Event,
    GaussianEvent,
    LaplaceEvent,
    NoisePerSensitivity,
    PureEvent,
    SampledGaussianEvent,
)
from tulle.trusted.gaussian import gaussian_delta
from tulle.trusted.mechanisms import Gaussian, SampledGaussian, price_of
from tulle.trusted.plan import Budget, Plan, Release
from tulle.trusted.sampling import Sampling

Scheme = Literal["poisson", "without_replacement"]
SCHEMES: tuple[Scheme, ...] = ("poisson", "without_replacement")
DELTA = 1e-5
# Weights and means of a mixture of Gaussians.
Mixture = tuple[np.ndarray, np.ndarray]


def sampled(scheme: Scheme, noise: float, rate: float) -> SampledGaussianEvent:
    return SampledGaussianEvent(NoisePerSensitivity(noise), rate, scheme)


def losses_epsilon(*parts: tuple[Event, int], delta: float = DELTA) -> float:
    return PrivacyLossAccountant().epsilon(parts, delta)


# --- all batches written out -----------------------------------------------------------------------------------------


def batches(scheme: str, n: int, batch: int) -> Iterator[tuple[float, tuple[int, ...]]]:
    """Every batch with its chance."""
    if scheme == "without_replacement":
        every = list(combinations(range(n), batch))
        yield from ((1 / len(every), rows) for rows in every)
        return
    rate = batch / n
    for drawn in product((0, 1), repeat=n):
        yield rate ** sum(drawn) * (1 - rate) ** (n - sum(drawn)), tuple(i for i in range(n) if drawn[i])


def answer_law(scheme: str, records: Sequence[float], batch: int) -> Mixture:
    """The sums over a random batch, before noise."""
    drawn = list(batches(scheme, len(records), batch))
    sums = np.round([sum(records[i] for i in rows) for _, rows in drawn], 9)
    means, which = np.unique(sums, return_inverse=True)
    return np.bincount(which, weights=[chance for chance, _ in drawn]), means


def density(law: Mixture, sigma: float, x: np.ndarray) -> np.ndarray:
    weights, means = law
    return norm.pdf(x[..., None], means, sigma) @ weights


def hockey_stick(p: np.ndarray, q: np.ndarray, eps: float, cell: float) -> float:
    """The divergence of two densities on a grid of cells; to about 1e-6, with the kinks."""
    return float(np.sum(np.maximum(p - math.exp(eps) * q, 0.0)) * cell)


def true_deltas(first: Mixture, second: Mixture, sigma: float, epsilons: Sequence[float]) -> list[float]:
    """At each epsilon the larger of both directions."""
    reach = max(np.abs(first[1]).max(), np.abs(second[1]).max()) + 9 * sigma
    x, cell = np.linspace(-reach, reach, 6001, retstep=True)
    p, q = density(first, sigma, x), density(second, sigma, x)
    return [max(hockey_stick(p, q, eps, cell), hockey_stick(q, p, eps, cell)) for eps in epsilons]


def claimed_event(scheme: str, n: int, batch: int, rows_per_unit: int, noise: float) -> tuple[Event, float]:
    """The event of a mechanism, and its standard deviation for records in [-1, 1]."""
    mechanism = SampledGaussian(NoisePerSensitivity(noise), Sampling(scheme, n, batch, rows_per_unit))  # type: ignore[arg-type]
    event, uses = price_of(mechanism)
    assert uses == 1
    return event, noise * 2 * rows_per_unit


def neighbours(n: int, rows_per_unit: int, many: int) -> Iterator[tuple[list[float], list[float]]]:
    """The extreme ones, and random ones, of records in [-1, 1]; the unit's rows come first."""
    for unit, other, others in product((-1.0, 0.0, 1.0), (-1.0, 1.0), (-1.0, 0.0, 1.0)):
        rest = [others] * (n - rows_per_unit)
        yield [unit] * rows_per_unit + rest, [other] * rows_per_unit + rest
    rng = np.random.default_rng(7)
    for _ in range(many):
        rest = list(rng.choice([-1.0, 1.0, *rng.uniform(-1, 1, 2)], n - rows_per_unit))
        yield list(rng.uniform(-1, 1, rows_per_unit)) + rest, list(rng.uniform(-1, 1, rows_per_unit)) + rest
        yield list(rng.choice([-1.0, 1.0], rows_per_unit)) + rest, list(rng.choice([-1.0, 1.0], rows_per_unit)) + rest


CASES = [
    (scheme, n, batch, rows, noise)
    for scheme in SCHEMES
    for n, batch, rows in ((5, 2, 1), (5, 2, 2), (6, 1, 1), (6, 3, 2))
    for noise in (0.25, 0.6, 2.0)
]


@pytest.mark.parametrize(("scheme", "n", "batch", "rows", "noise"), CASES)
class TestEveryBatchWrittenOut:
    """Records in [-1, 1], exact mixtures over all batches. What is claimed is enough, and is reached."""

    DELTAS = (0.2, 0.02, 1e-3)

    def test_no_neighbours_cost_more_than_claimed(
        self, scheme: str, n: int, batch: int, rows: int, noise: float
    ) -> None:
        event, sigma = claimed_event(scheme, n, batch, rows, noise)
        claimed = [losses_epsilon((event, 1), delta=delta) for delta in self.DELTAS]
        for one, other in neighbours(n, rows, 8):
            laws = answer_law(scheme, one, batch), answer_law(scheme, other, batch)
            found = true_deltas(*laws, sigma, claimed)
            assert all(true <= delta * (1 + 1e-4) + 2e-6 for true, delta in zip(found, self.DELTAS))

    def test_the_worst_neighbours_reach_what_is_claimed(
        self, scheme: str, n: int, batch: int, rows: int, noise: float
    ) -> None:
        """With 1 % less epsilon there are neighbours that pass delta; one row of several is not always the worst."""
        if rows > 1:
            return  # that all of a unit's rows are in a batch with any of them is a bound, and not reached
        event, sigma = claimed_event(scheme, n, batch, rows, noise)
        one, other = [1.0] + [-1.0] * (n - 1), [-1.0] + [-1.0] * (n - 1)
        laws = answer_law(scheme, one, batch), answer_law(scheme, other, batch)
        if scheme == "poisson":  # the others are there or not, so that what they add up to is known best when it is 0
            laws = (
                answer_law(scheme, [1.0] + [0.0] * (n - 1), batch),
                answer_law(scheme, [-1.0] + [0.0] * (n - 1), batch),
            )
        claimed = [losses_epsilon((event, 1), delta=delta) for delta in self.DELTAS]
        found = true_deltas(*laws, sigma, [0.99 * eps for eps in claimed])
        assert all(true > delta for true, delta, eps in zip(found, self.DELTAS, claimed) if eps > 0)

    def test_the_renyi_curve_is_enough(self, scheme: str, n: int, batch: int, rows: int, noise: float) -> None:
        event, sigma = claimed_event(scheme, n, batch, rows, noise)
        orders = np.array([1.1, 2.0, 5.0, 30.0])
        curve = event.renyi(orders)
        for one, other in neighbours(n, rows, 1):
            laws = answer_law(scheme, one, batch), answer_law(scheme, other, batch)
            reach = 40 * n + 12 * sigma  # at order 30 the integrand peaks 60 differences of means away, 20 here
            x, cell = np.linspace(-reach, reach, 4001, retstep=True)
            logs = [logsumexp(norm.logpdf(x[:, None], means, sigma), b=weights, axis=1) for weights, means in laws]
            for p, q in (logs, logs[::-1]):
                true = [(logsumexp(a * p + (1 - a) * q) + math.log(cell)) / (a - 1) for a in orders]
                assert np.all(np.array(true) <= curve * (1 + 1e-6) + 1e-9)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(("noise", "delta"), [(0.4, 0.05), (0.4, 0.3), (1.0, 0.02)])
def test_two_steps_where_the_second_hangs_on_the_first(scheme: Scheme, noise: float, delta: float) -> None:
    """Two batches of one row in three. What the rows say in the second step depends on the first answer."""
    event, sigma = claimed_event(scheme, 3, 1, 1, noise)
    x, cell = np.linspace(-2 - 7 * sigma, 2 + 7 * sigma, 1201, retstep=True)
    rest = [-1.0, -1.0] if scheme == "without_replacement" else [0.0, 0.0]

    def step(unit: float, turn: float) -> np.ndarray:
        return density(answer_law(scheme, [turn * value for value in (unit, *rest)], 1), sigma, x)

    def both(unit: float) -> np.ndarray:
        """The joint law: the second question is the same, or turned round where the first answer was positive."""
        second = np.where((x > 0)[:, None], step(unit, -1.0)[None, :], step(unit, 1.0)[None, :])
        return step(unit, 1.0)[:, None] * second

    p, q = both(1.0), both(-1.0)
    assert cell**2 * p.sum() == pytest.approx(1.0, abs=1e-6)
    claimed = losses_epsilon((event, 2), delta=delta)
    worst = max(hockey_stick(p, q, claimed, cell**2), hockey_stick(q, p, claimed, cell**2))
    assert worst <= delta * (1 + 1e-3)
    once = losses_epsilon((event, 1), delta=delta)
    assert max(hockey_stick(p, q, once, cell**2), hockey_stick(q, p, once, cell**2)) > 1.2 * delta


@pytest.mark.parametrize("noise", [0.2, 0.5, 1.5])
@pytest.mark.parametrize("rows", [1, 2])
def test_an_epoch_of_disjoint_batches_is_one_gaussian_release(noise: float, rows: int) -> None:
    """Four rows, shuffled, in two batches of two: the joint law of both answers, over all orders.

    As two random batches of half the rows it would be sold for too little: a unit is always in one of them.
    """
    mechanism = SampledGaussian(NoisePerSensitivity(noise), Sampling("shuffled", 4, 2, rows))
    event, uses = price_of(mechanism)
    assert mechanism.sampling.answers_per_release == 2
    sigma = noise * 2 * rows
    x, cell = np.linspace(-2 - 7 * sigma, 2 + 7 * sigma, 601, retstep=True)

    def law(records: Sequence[float]) -> np.ndarray:
        halves = [(set(half), set(range(4)) - set(half)) for half in combinations(range(4), 2)]
        sums = [[sum(records[i] for i in part) for part in halves_] for halves_ in halves]
        return np.mean([np.outer(norm.pdf(x, a, sigma), norm.pdf(x, b, sigma)) for a, b in sums], axis=0)

    def passed(parts: tuple[tuple[Event, int], ...], delta: float) -> bool:
        eps = best_accountant(parts, delta)[0]
        return hockey_stick(p, q, eps, cell**2) <= delta + 1e-4

    p, q = (law([unit] * rows + [-1.0] * (4 - rows)) for unit in (1.0, -1.0))
    assert all(passed(((event, uses),), delta) for delta in (0.01, 0.1, 0.3, 0.8, 0.9))
    if noise == 0.2:
        amplified = ((sampled("without_replacement", noise, 0.5), 2),)
        assert not all(passed(amplified, delta) for delta in (0.01, 0.1, 0.3, 0.8, 0.9))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(("n", "batch", "rows"), [(5, 2, 1), (5, 2, 2), (6, 3, 2), (6, 1, 4), (4, 3, 2), (7, 2, 3)])
def test_the_rate_is_that_of_any_row_of_the_unit(scheme: Scheme, n: int, batch: int, rows: int) -> None:
    """Summed over all batches; one row's rate is another number wherever a unit has several."""
    held = sum(chance for chance, drawn in batches(scheme, n, batch) if set(drawn) & set(range(rows)))
    event, _ = claimed_event(scheme, n, batch, rows, 1.0)
    if held > 1 - 1e-12:
        assert event == GaussianEvent(NoisePerSensitivity(1.0))
    else:
        assert isinstance(event, SampledGaussianEvent)
        assert event.scheme == scheme
        assert event.rate == pytest.approx(held, rel=1e-12)
        assert rows == 1 or event.rate > 1.2 * batch / n


# --- the event -------------------------------------------------------------------------------------------------------


class TestEvent:
    @pytest.mark.parametrize("scheme", SCHEMES)
    def test_the_ends(self, scheme: Scheme) -> None:
        orders = np.array([1.5, 100.0])
        nothing, everything = sampled(scheme, math.inf, 0.1), sampled(scheme, 0.0, 0.1)
        assert nothing.gaussian_mu() == nothing.pure_epsilon() == 0.0
        assert np.all(nothing.renyi(orders) == 0)
        assert everything.gaussian_mu() == everything.pure_epsilon() == math.inf
        assert np.all(np.isinf(everything.renyi(orders)))
        assert sampled(scheme, 3.0, 0.1).pure_epsilon() == math.inf
        assert sampled(scheme, 4.0, 0.1).gaussian_mu() == 0.25
        for account in (losses_epsilon, lambda *parts: best_accountant(parts, DELTA)[0]):
            assert account((nothing, 10)) == 0.0
            assert account((everything, 1)) == math.inf
            assert account((nothing, 10), (everything, 1)) == math.inf

    @pytest.mark.parametrize("rate", [0.0, -0.1, 1.0 + 1e-9, math.nan])
    def test_a_rate_is_a_chance_above_zero(self, rate: float) -> None:
        with pytest.raises(ValueError, match=r"must lie in \(0, 1\]"):
            sampled("poisson", 1.0, rate)

    def test_an_unknown_scheme_is_refused(self) -> None:
        """Shuffled epochs are no random batches: nothing is gained by them."""
        with pytest.raises(ValueError, match="not 'shuffled'"):
            SampledGaussianEvent(NoisePerSensitivity(1.0), 0.1, "shuffled")  # type: ignore[arg-type]

    def test_the_mu_of_the_unsampled_answer_serves_and_none_that_is_much_smaller(self) -> None:
        """Lemma 3: the profile of the worst pair lies below the Gaussian's, and far out comes as close as one likes."""
        event = sampled("without_replacement", 0.5, 0.3)
        mu = event.gaussian_mu()

        def profile(eps: float) -> float:
            return 0.3 * gaussian_delta(math.log1p(math.expm1(eps) / 0.3), 2.0)

        assert all(profile(e) <= gaussian_delta(e, mu) for e in np.linspace(0, 30, 61))
        assert profile(15.0) > gaussian_delta(15.0, 0.9 * mu)


def direct_renyi(event: SampledGaussianEvent, orders: np.ndarray) -> np.ndarray:
    """The Rényi divergence by sums over a fine grid, without any of the library's formulas.

    For batches of a fixed size: the pair ((1-q) N(0) + q N(mu), N(0)) where the first is larger, and mirrored.
    """
    noise, rate = event.noise.value, event.rate
    if event.scheme == "poisson":
        shifts, middle = (1 / (2 * noise), -1 / (2 * noise)), 0.0
    else:
        shifts, middle = (1 / noise, 0.0), 1 / (2 * noise)
    found = []
    for order in orders:
        # Where the integrand may peak, and how sharply the ratio of the two laws bends.
        reach = max(60.0, order * 1.2 / noise + 40.0)
        x = middle + np.geomspace(1e-6, reach, 400_001)
        x = np.unique(np.concatenate([middle + np.linspace(0, min(reach, 300.0), 400_001), x]))
        logs = [
            np.logaddexp(math.log1p(-rate) + norm.logpdf(x), math.log(rate) + norm.logpdf(x - shift))
            for shift in shifts
        ]
        weights = np.log(np.diff(x, prepend=x[0]) / 2 + np.diff(x, append=x[-1]) / 2)
        p, q = logs
        there, back = (logsumexp(order * a + (1 - order) * b + weights) for a, b in ((p, q), (q, p)))
        rest = 1 - sum(float(np.sum(np.exp(log + weights))) for log in logs)
        total = np.logaddexp(np.logaddexp(there, back), math.log(max(rest, 1e-300)))
        found.append(total / (order - 1))
    return np.array(found)


class TestRenyi:
    @pytest.mark.parametrize("scheme", SCHEMES)
    @pytest.mark.parametrize("rate", [0.003, 0.1, 0.6])
    @pytest.mark.parametrize("noise", [0.2, 1.0, 8.0])
    def test_above_a_fine_sum_and_close_to_it(self, scheme: Scheme, rate: float, noise: float) -> None:
        """Never below; within 1 % where it can matter: where order × divergence is not beyond all log(1/delta)."""
        event = sampled(scheme, noise, rate)
        orders = np.array([1.5, 2.0, 6.0, 30.0])
        true, claimed = direct_renyi(event, orders), event.renyi(orders)
        assert np.all(claimed >= true * (1 - 1e-5) - 1e-9)
        assert np.all((claimed <= true * 1.01 + 1e-8) | ((orders - 1) * true > 50))

    @pytest.mark.parametrize("scheme", SCHEMES)
    def test_wrong_conventions_have_other_curves(self, scheme: Scheme) -> None:
        event, orders = sampled(scheme, 1.0, 0.05), np.array([2.0, 4.0])
        true = direct_renyi(event, orders)
        for wrong in (sampled(scheme, 2.0, 0.05), sampled(scheme, 1.0, 0.03)):
            assert np.all(wrong.renyi(orders) < 0.6 * true)

    @pytest.mark.parametrize("scheme", SCHEMES)
    @pytest.mark.parametrize("rate", [1e-6, 1e-3, 0.1, 0.9, 1.0])
    @pytest.mark.parametrize("noise", [0.05, 0.5, 5.0, 100.0, 1e4])
    def test_from_order_one_to_ten_million(self, scheme: Scheme, rate: float, noise: float) -> None:
        """Finite, rising, positive, below the unsampled answer's."""
        orders = 1.0 + np.geomspace(1e-4, 1e7, 100)
        curve = sampled(scheme, noise, rate).renyi(orders)
        assert np.all(np.isfinite(curve) & (curve > 0))
        assert np.all(np.diff(curve) > -1e-3 * curve[1:])
        assert np.all(curve <= orders / noise**2 / 2 * (1 + 1e-12))
        # Near order 1 the divergence is half the mean square of the loss, about rate² / noise² where noise is large.
        if noise >= 100:
            assert curve[0] == pytest.approx(rate**2 / noise**2 / 2, rel=0.03)

    @pytest.mark.parametrize(("rate", "noise"), [(0.01, 1.0), (0.1, 3.0), (0.3, 0.5)])
    def test_above_the_optimistic_losses_of_the_library(self, rate: float, noise: float) -> None:
        from dp_accounting.pld import privacy_loss_distribution as pld

        event = sampled("poisson", noise, rate)
        lower = pld.from_gaussian_mechanism(
            2 * noise,
            pessimistic_estimate=False,
            value_discretization_interval=1e-4,
            sampling_prob=rate,
            use_connect_dots=False,
            neighboring_relation=pld.NeighborRel.REPLACE_ONE,
        )._pmf_remove.to_dense_pmf()
        losses = (lower._lower_loss + np.arange(lower.size)) * 1e-4
        for order in (1.5, 3.0, 10.0):
            below = logsumexp((order - 1) * losses, b=lower._probs) / (order - 1)
            claimed = float(event.renyi(np.array([order]))[0])
            assert below <= claimed <= 1.05 * below + 1e-3


# --- the accountant --------------------------------------------------------------------------------------------------


class TestAccountant:
    @pytest.mark.parametrize("noise", [0.3, 1.0, 6.0])
    @pytest.mark.parametrize("count", [1, 30, 2000])
    @pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-9])
    @pytest.mark.parametrize("scheme", SCHEMES)
    def test_all_rows_are_a_plain_gaussian(self, scheme: Scheme, noise: float, count: int, delta: float) -> None:
        """Never below the exact epsilon, and at most a thousandth above."""
        exact = GaussianAccountant().epsilon(((GaussianEvent(NoisePerSensitivity(noise)), count),), delta)
        found = losses_epsilon((sampled(scheme, noise, 1.0), count), delta=delta)
        assert exact * (1 - 1e-6) <= found <= exact * 1.001 + 1e-9

    @pytest.mark.parametrize(("rate", "noise", "count"), [(0.01, 2.0, 1000), (0.1, 5.0, 100), (0.5, 3.0, 3)])
    @pytest.mark.parametrize("delta", [1e-3, 1e-6])
    def test_agrees_with_the_library_on_poisson_batches(
        self, rate: float, noise: float, count: int, delta: float
    ) -> None:
        """And not with what it says for the other convention of noise, which is twice as large."""
        found = losses_epsilon((sampled("poisson", noise, rate), count), delta=delta)
        theirs = library_epsilon(((sampled("poisson", noise, rate), count),), delta, "pld")
        other = library_epsilon(((sampled("poisson", noise / 2, rate), count),), delta, "pld")
        assert theirs is not None
        assert other is not None
        assert found == pytest.approx(theirs, rel=2e-3)
        assert other > 1.5 * found

    @pytest.mark.parametrize(("rate", "noise", "count"), [(0.01, 1.0, 1000), (0.1, 5.0, 100)])
    def test_below_the_librarys_renyi_bound_for_fixed_batches(self, rate: float, noise: float, count: int) -> None:
        from dp_accounting import NeighboringRelation, SelfComposedDpEvent, dp_event
        from dp_accounting.rdp import RdpAccountant

        theirs = RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE)
        one = dp_event.SampledWithoutReplacementDpEvent(1000, int(1000 * rate), dp_event.GaussianDpEvent(noise))
        theirs.compose(SelfComposedDpEvent(one, count))
        found = losses_epsilon((sampled("without_replacement", noise, rate), count))
        curve = RenyiAccountant().epsilon(((sampled("without_replacement", noise, rate), count),), DELTA)
        assert found < curve < theirs.get_epsilon(DELTA) * (1 + 1e-9)

    def test_what_dp_accounting_lacks_is_said_and_not_guessed(self) -> None:
        fixed, poisson = sampled("without_replacement", 1.0, 0.1), sampled("poisson", 1.0, 0.1)
        assert to_dp_accounting(fixed, "pld") is to_dp_accounting(fixed, "rdp") is None
        assert to_dp_accounting(poisson, "rdp") is None
        assert library_epsilon(((poisson, 3),), DELTA, "rdp") is None
        for scheme in SCHEMES:
            assert library_epsilon(((sampled(scheme, 0.0, 0.1), 1),), DELTA, "pld") == math.inf
            assert library_epsilon(((sampled(scheme, math.inf, 0.1), 1),), DELTA, "pld") == 0.0

    @pytest.mark.parametrize("scheme", SCHEMES)
    def test_grows_with_uses_and_rate_and_falls_with_noise_and_delta(self, scheme: Scheme) -> None:
        uses = [losses_epsilon((sampled(scheme, 1.0, 0.02), count)) for count in (1, 2, 10, 100, 1000, 10_000)]
        rates = [losses_epsilon((sampled(scheme, 1.0, rate), 100)) for rate in (1e-4, 1e-3, 0.01, 0.1, 0.5, 1.0)]
        noises = [losses_epsilon((sampled(scheme, z, 0.02), 300)) for z in (4.0, 2.0, 1.0, 0.5, 0.25, 0.1)]
        deltas = [
            losses_epsilon((sampled(scheme, 1.0, 0.02), 300), delta=d) for d in (0.1, 1e-3, 1e-6, 1e-12, 1e-25, 1e-39)
        ]
        for values in (uses, rates, noises, deltas):
            assert all(a < b for a, b in pairwise(values))

    @pytest.mark.parametrize(("rate", "noise", "count"), [(0.01, 1.0, 1000), (0.1, 5.0, 100), (0.5, 0.5, 3)])
    def test_batches_of_a_fixed_size_cost_more_than_poisson_ones(self, rate: float, noise: float, count: int) -> None:
        """Lemma 3; at rate 1 both are all rows."""
        fixed, poisson = (losses_epsilon((sampled(scheme, noise, rate), count)) for scheme in SCHEMES[::-1])
        assert fixed > 1.05 * poisson
        orders = np.array([1.01, 2.0, 10.0, 1000.0])
        curves = [sampled(scheme, noise, rate).renyi(orders) for scheme in SCHEMES]
        assert np.all(curves[0] <= curves[1] * (1 + 1e-6))

    @pytest.mark.parametrize("scheme", SCHEMES)
    def test_a_mixture_costs_more_than_its_parts_and_less_than_their_sum(self, scheme: Scheme) -> None:
        batch, all_rows = (sampled(scheme, 1.0, 0.02), 500), (GaussianEvent(NoisePerSensitivity(5.0)), 3)
        both = losses_epsilon(batch, all_rows)
        assert losses_epsilon(all_rows, batch) == pytest.approx(both, rel=1e-9)
        apart = losses_epsilon(batch), GaussianAccountant().epsilon((all_rows,), DELTA)
        assert max(apart) < both < sum(apart)
        assert best_accountant((batch, all_rows), DELTA)[1] == "privacy loss distributions"
        # Two events of a kind are one of twice the count.
        halves = losses_epsilon((batch[0], 200), (batch[0], 300), all_rows)
        assert halves == pytest.approx(both, rel=1e-6)

    def test_with_bounded_losses_the_other_accountant_does_better_than_renyi_curves(self) -> None:
        batch = (sampled("poisson", 1.0, 0.02), 500)
        for other in (LaplaceEvent(NoisePerSensitivity(20.0)), BoundedRangeEvent(0.1), PureEvent(0.1)):
            composition = (batch, (other, 2))
            assert not PrivacyLossAccountant().supports(composition, DELTA)
            assert losses_epsilon(*composition) == math.inf
            found, name = best_accountant(composition, DELTA)
            assert name == "privacy loss distributions of mixed releases"
            assert losses_epsilon(batch) < found < 0.95 * RenyiAccountant().epsilon(composition, DELTA)
        assert not PrivacyLossAccountant().supports(((GaussianEvent(NoisePerSensitivity(1.0)), 1),), DELTA)

    def test_a_tiny_delta_is_left_to_renyi_curves(self) -> None:
        parts = ((sampled("poisson", 1.0, 0.02), 500),)
        at = {delta: best_accountant(parts, delta) for delta in (1e-12, 1e-39, 1e-41, 0.0)}
        assert at[1e-12][1] == at[1e-39][1] == "privacy loss distributions"
        assert at[1e-41][1] == "Rényi differential privacy"
        assert at[1e-12][0] < at[1e-39][0] < at[1e-41][0] < 1.1 * at[1e-39][0]
        assert at[0.0][0] == math.inf

    @pytest.mark.parametrize("scheme", SCHEMES)
    def test_extreme_settings_are_answered(self, scheme: Scheme) -> None:
        """No warnings, no overflow: hardly any noise, hardly any rate, very many uses, all noise."""
        with np.errstate(all="raise", under="ignore", divide="raise"):
            for noise, rate, count, delta in (
                (0.01, 0.5, 3, 1e-5),
                (1e-4, 0.01, 100, 1e-5),
                (1e-7, 0.01, 100, 1e-5),
                (1e4, 1e-6, 10**6, 1e-12),
                (0.2, 1e-6, 10**4, 1e-5),
                (50.0, 0.999, 10**5, 0.3),
                (0.5, 1e-9, 10, 1e-39),
            ):
                found = best_accountant(((sampled(scheme, noise, rate), count),), delta)[0]
                unsampled = GaussianAccountant().epsilon(((GaussianEvent(NoisePerSensitivity(noise)), count),), delta)
                assert 0 <= found <= unsampled

    def test_rare_batches_that_delta_covers_cost_nothing(self) -> None:
        assert losses_epsilon((sampled("without_replacement", 0.1, 1e-7), 99)) == 0.0
        assert losses_epsilon((sampled("without_replacement", 0.1, 1e-7), 110)) > 5.0

    def test_no_library_is_loaded_for_it(self) -> None:
        code = (
            "import sys\nfrom tulle.trusted.events import NoisePerSensitivity, SampledGaussianEvent\n"
            "import tulle.accounting.privacy_loss\nfrom tulle.trusted.accountants import best_accountant\n"
            "print(best_accountant(((SampledGaussianEvent(NoisePerSensitivity(1.0), 0.1, 'poisson'), 9),), 1e-5)[1])\n"
            "assert 'dp_accounting' not in sys.modules"
        )
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
        assert run.stdout.strip() == "privacy loss distributions"


class TestSumOfLosses:
    """The transform alone, on losses whose exact composition is known: randomised responses."""

    @staticmethod
    def responses(span: float) -> LossGrid:
        true = 1 / (1 + math.exp(-span))
        return LossGrid(span, np.array([1 - true, 0.0, true]), 0.0)

    @pytest.mark.parametrize("delta", [0.1, 1e-3, 1e-6, 1e-12, 1e-60])
    @pytest.mark.parametrize(
        ("span", "count"), [(0.1, 50), (0.01, 10_000), (1e-3, 100_000), (1.0, 100), (0.05, 100_000)]
    )
    def test_never_below_the_exact_sum_and_hardly_above(self, span: float, count: int, delta: float) -> None:
        exponents = np.geomspace(1e-4, 1e8, 121)
        moments = Moments(exponents, exponents * count * PureEvent(span).renyi(1 + exponents))
        window = Window.around(moments, delta, float(moments.proved(delta).min()))
        found = composed_epsilon([(self.responses(span), count)], delta, window)
        exact = OptimalPureAccountant().epsilon(((PureEvent(span), count),), delta)
        # The other accountant puts its own rounding on top.
        assert exact * (1 - 1e-14) - 1e-13 * span * count <= found <= exact * (1 + 1e-4)

    @pytest.mark.parametrize("tilt", [1e-3, 0.3, 2.0, 9.0, 300.0, 1e4])
    @pytest.mark.parametrize(
        ("low", "high"), [(-8.0, 12.0), (0.0, 6.0), (2.0, 4.5), (-3.0, 2.5), (4.0, 5.0), (-5.0, -1.0)]
    )
    @pytest.mark.parametrize("tail", [0.5, 5.0, 50.0])
    def test_whatever_the_window_the_result_is_valid(self, tilt: float, low: float, high: float, tail: float) -> None:
        """Windows that miss epsilon, tilts that drown it in rounding: the result is larger then, never smaller."""
        exact = OptimalPureAccountant().epsilon(((PureEvent(0.1), 100),), 1e-6)
        found = composed_epsilon([(self.responses(0.1), 100)], 1e-6, Window(tilt, low, high, tail))
        assert found >= exact * (1 - 1e-12)

    @pytest.mark.parametrize("scheme", SCHEMES)
    @pytest.mark.parametrize("interval", [1e-3, 0.05, 0.7])
    def test_losses_on_a_grid_are_larger_at_every_threshold(self, scheme: Scheme, interval: float) -> None:
        """Lemma 5, both signs of epsilon: the grid's profile lies above the pair's, and near it if the grid is fine."""
        pair = find_dominating_pair(sampled(scheme, 0.7, 0.2))
        grid = loss_grid(pair, interval, 1e-12)
        assert grid.chances.sum() + grid.infinite == pytest.approx(1.0, abs=1e-12)
        losses = interval * grid.numbers
        for eps in np.linspace(-2.0, 2.0, 41):
            above = losses > eps
            found = grid.infinite + float(np.sum(grid.chances[above] * -np.expm1(eps - losses[above])))
            true = pair_profile(pair, abs(eps))
            if eps < 0:
                true = -math.expm1(eps) + math.exp(eps) * true
            assert found >= true - 1e-8
            if interval == 1e-3:
                assert found <= true + 1e-6


def pair_profile(pair: SampledGaussianPair, eps: float) -> float:
    """The hockey-stick divergence of the mixtures at eps >= 0, where the first is the larger one."""
    x = np.linspace(pair.middle, pair.middle + 15.0, 40_001)
    q = (1 - pair.rate) * norm.pdf(x) + pair.rate * norm.pdf(x - pair.down)
    p = (1 - pair.rate) * norm.pdf(x) + pair.rate * norm.pdf(x - pair.up)
    return float(np.trapezoid(np.maximum(p - math.exp(eps) * q, 0.0), x))


# --- calibration and ledgers -----------------------------------------------------------------------------------------


def plan(scheme: str, n: int, batch: int, count: int, name: str = "step", noise: float = 1.0) -> Release:
    return Release(name, SampledGaussian(NoisePerSensitivity(noise), Sampling(scheme, n, batch)), count)  # type: ignore[arg-type]


class TestCalibration:
    @pytest.mark.parametrize("scheme", SCHEMES)
    @pytest.mark.parametrize("eps", [0.01, 0.5, 4.0, 60.0])
    @pytest.mark.parametrize(("n", "batch", "count"), [(20_242, 256, 1581), (3308, 10, 6616), (500, 250, 4)])
    def test_meets_the_budget_and_wastes_at_most_a_thousandth(
        self, scheme: str, eps: float, n: int, batch: int, count: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """In few evaluations, each of which adds up losses."""
        asked = []
        real = tulle.accounting.privacy_loss.pairs_epsilon

        def counted(*arguments: Any) -> float:
            asked.append(arguments)
            return real(*arguments)

        monkeypatch.setattr(tulle.accounting.privacy_loss, "pairs_epsilon", counted)
        (found,) = calibrate([plan(scheme, n, batch, count)], Budget(eps, 1.1e-5))
        assert 0.999 * eps <= epsilon([found], 1.1e-5) <= eps
        assert epsilon([found.scaled(2 / 3)], 1.1e-5) > 1.2 * eps
        assert len(asked) <= 18

    def test_two_kinds_of_batches_keep_their_proportions(self) -> None:
        lines = [plan("poisson", 20_242, 2024, 33, "snapshot", 3.0), plan("poisson", 20_242, 202, 330, "step", 1.0)]
        one, other = calibrate(lines, Budget(2.0, DELTA))
        assert one.mechanism.noise.value == pytest.approx(3 * other.mechanism.noise.value)
        assert 0.999 * 2.0 <= epsilon([one, other], DELTA) <= 2.0

    def test_with_a_line_about_all_rows(self) -> None:
        lines = [plan("without_replacement", 1000, 50, 100), Release("once", Gaussian(NoisePerSensitivity(4.0)), 1)]
        found = calibrate(lines, Budget(1.0, DELTA))
        assert 0.999 <= epsilon(found, DELTA) <= 1.0

    def test_delta_zero_says_what_to_do(self) -> None:
        with pytest.raises(ValueError, match="with delta = 0 use pure mechanisms only"):
            calibrate([plan("poisson", 100, 10, 5)], Budget(1.0, 0.0))


class TestLedger:
    @pytest.mark.parametrize("scheme", SCHEMES)
    @pytest.mark.parametrize("fits", [1, 2, 6])
    def test_never_counts_less_than_the_exact_sum(self, scheme: str, fits: int) -> None:
        """Each fit costs (0.5, 1e-5); its currency is fixed by the first, and the sum of fits is proved from above."""
        lines = calibrate([plan(scheme, 5000, 100, 500)], Budget(0.5, DELTA))
        with Ledger(Budget(4.0, DELTA)) as ledger:
            for _ in range(fits):
                ledger.bill("a fit", [Plan(tuple(lines))], (0.5, DELTA))
        event, _ = price_of(lines[0].mechanism)
        exact = losses_epsilon((event, 500 * fits))
        assert exact <= ledger.epsilon
        # The Rényi currency is not wasteful: plain sums would be 0.5 a fit, at a delta that adds up too.
        assert fits < 6 or ledger.epsilon < 0.75 * 0.5 * fits

    def test_a_fit_beyond_the_cap_is_refused(self) -> None:
        lines = calibrate([plan("poisson", 5000, 100, 500)], Budget(0.5, DELTA))
        with Ledger(Budget(0.6, DELTA)) as ledger:
            ledger.bill("a fit", [Plan(tuple(lines))], (0.5, DELTA))
            with pytest.raises(tulle.ledgers.ledger.BudgetExceededError):
                ledger.bill("another", [Plan(tuple(lines))], (0.5, DELTA))


# --- the tables of the specification ---------------------------------------------------------------------------------


def digits(value: float, like: str) -> str:
    """The value with as many decimals as `like` has."""
    text = f"{value:.{len(like.partition('.')[2])}f}"
    return text.removeprefix("0") if like.startswith(".") else text


class TestVectors:
    @pytest.mark.parametrize(
        ("scheme", "rate", "noise", "count", "expected"),
        [
            ("without_replacement", 256 / 20_242, 1.0, 1581, "3.650"),
            ("poisson", 256 / 20_242, 1.0, 1581, "2.014"),
            ("without_replacement", 0.1, 5.0, 100, ".791"),
            ("poisson", 0.1, 5.0, 100, ".725"),
            ("without_replacement", 0.01, 1.0, 1000, "2.20"),
            ("poisson", 0.01, 1.0, 1000, "1.21"),
        ],
    )
    def test_sampled_gaussians(self, scheme: Scheme, rate: float, noise: float, count: int, expected: str) -> None:
        """Section 10 and 1.3; noise per sensitivity, so that z_rec = 2 and 10 are 1 and 5."""
        assert digits(best_accountant(((sampled(scheme, noise, rate), count),), DELTA)[0], expected) == expected

    def test_calibrated_noise(self) -> None:
        """Section 3: n = 20242, b = 256, T = 1581, (4, 1e-5): z_rec = 1.136 for Poisson batches, z_sens = .956."""
        noises = [
            calibrate([plan(scheme, 20_242, 256, 1581)], Budget(4.0, DELTA))[0].mechanism.noise for scheme in SCHEMES
        ]
        assert f"{2 * noises[0].value:.3f}" == "1.136"
        assert f"{noises[1].value:.3f}" == "0.956"

    # data, b, T, z_sens printed, true epsilons for batches of a fixed size and Poisson ones, z_sens required for each.
    SGD = (
        ("RCV1", 10, 40484, ".786 .409 .181", "1.01 13.1 374", ".45 1.09 23.1", ".630 .536 .435", ".320 .269 .218"),
        ("RCV1", 50, 8097, "1.758 .913 .404", ".59 1.76 25.7", ".44 .91 2.73", ".862 .667 .515", ".487 .344 .259"),
        ("RCV1", 256, 1581, "3.978 2.067 .914", ".49 1.14 4.40", ".44 .90 2.23", "1.413 .956 .661", "1.007 .569 .342"),
        (
            "RCV1",
            1024,
            395,
            "7.953 4.132 1.827",
            ".46 1.00 2.91",
            ".44 .90 2.22",
            "2.400 1.481 .892",
            "2.009 1.088 .525",
        ),
        ("E2006", 10, 6616, "1.945 1.011 .447", ".57 1.61 18.8", ".44 .90 2.55", ".908 .693 .529", ".525 .359 .267"),
        (
            "E2006",
            100,
            662,
            "6.152 3.197 1.413",
            ".47 1.04 3.23",
            ".44 .90 2.22",
            "1.954 1.242 .788",
            "1.554 .848 .435",
        ),
    )

    @pytest.mark.parametrize(("data", "b", "steps", "printed", "fixed", "poisson", "need_fixed", "need_poisson"), SGD)
    def test_the_table_of_sgd(
        self, data: str, b: int, steps: int, printed: str, fixed: str, poisson: str, need_fixed: str, need_poisson: str
    ) -> None:
        """Section 3, twenty passes. The noise that it requires is enough, and 0.6 % less is not.

        It is not the least: dp-accounting with a fine grid finds 1.9945 and not 2 for the 1.554 of the last line.
        """
        rows = [row for row in table() if (row.data, row.batches) == (data, (b,))]
        assert [row.uses for row in rows] == [(steps,)] * 3
        assert [digits(row.noise[0], text) for row, text in zip(rows, printed.split())] == printed.split()
        assert [digits(row.without_replacement, text) for row, text in zip(rows, fixed.split())] == fixed.split()
        assert [digits(row.poisson, text) for row, text in zip(rows, poisson.split())] == poisson.split()
        for scheme, needed in (("without_replacement", need_fixed), ("poisson", need_poisson)):
            for row, noise in zip(rows, needed.split()):
                for factor, enough in ((1.0, True), (0.994, False)):
                    event = sampled(scheme, factor * float(noise), b / row.n_rows)  # type: ignore[arg-type]
                    assert (best_accountant(((event, steps),), DELTA)[0] <= row.claim) is enough

    # B, b, J, then (batches of a fixed size)/(Poisson) for the claims 2, 4, 10, with the printed and the intended
    # constants. Two figures of the second line differ from the specification's .68 and 3.3, which its coarse grid
    # (1e-3 and 1e-2 apart) had rounded up; dp-accounting with a fine one finds ours.
    SCSG = (
        (2024, 202, 33, "1.2/.65 8.0/1.45 87/11.8", ".40/.32 1.1/.65 11.7/1.8"),
        (2024, 67, 33, "3.7/.67 34/3.3 317/50", ".49/.31 3.2/.65 50/5.0"),
        (404, 40, 167, "7.5/.74 69/6.5 557/99", ".62/.32 6.5/.72 99/10.1"),
        (10_121, 506, 6, ".93/.64 3.6/1.3 32/5.4", ".36/.31 .88/.63 5.0/1.6"),
    )

    @pytest.mark.parametrize(("B", "b", "epochs", "printed", "intended"), SCSG)
    def test_the_table_of_scsg(self, B: int, b: int, epochs: int, printed: str, intended: str) -> None:
        """Section 4, ten passes, epochs of fixed length: α = 1 + 2 log(1/delta)/eps."""
        rows = [row for row in table() if row.batches == (B, b)]
        assert [row.uses for row in rows] == [(epochs, epochs * (B // b))] * 6
        for row, cell in zip(rows, [*printed.split(), *intended.split()]):
            found = (row.without_replacement, row.poisson)
            assert [digits(value, text) for value, text in zip(found, cell.split("/"))] == cell.split("/")


_rows: list[TrueEpsilon] = []


def table() -> list[TrueEpsilon]:
    """Both tables, computed once."""
    if not _rows:
        _rows.extend(true_epsilon_table())
    return _rows


class TestPublishedNoise:
    def test_side_conditions_are_the_lemmas(self) -> None:
        """Section 3's forms: α <= log(n³ eps / (n² b eps + 10 α T b³)) and S = 10 b² α T / (n² eps) >= 1.5."""
        n, delta = 20_242, 1e-5
        for b, T, eps in product((1, 10, 50, 200, 1000), (400, 5000, 60_000), (2.0, 6.0, 10.0)):
            order = 1 + 2 * math.log(1 / delta) / eps
            large = 10 * b**2 * order * T / (n**2 * eps)
            most = math.log(n**3 * eps / (n**2 * b * eps + 10 * order * T * b**3))
            failed = sgd_failed_conditions(n, b, T, eps, delta)
            assert sgd_noise(n, b, T, eps, delta) ** 2 == pytest.approx(large)
            assert any("less than 1.5" in words for words in failed) == (large < 1.5)
            assert any("more than log" in words for words in failed) == (order > most)
            assert all(f"{order:.3g}" in words and f"{most:.3g}" in words for words in failed if "log" in words)

    @pytest.mark.parametrize(
        ("n", "eps", "passes", "feasible"),
        [
            (20_242, 6, 80, range(48, 57)),
            (20_242, 10, 50, range(184, 247)),
            (3308, 6, 80, range(8, 10)),
            (3308, 10, 50, range(31, 41)),
            (20_242, 10, 20, range(0)),
            (20_242, 4, 100, range(0)),
            (3308, 8, 20, range(0)),
            (16_193, 2, 100, range(0)),
        ],
    )
    def test_batches_for_which_the_theorem_of_sgd_holds(self, n: int, eps: float, passes: int, feasible: range) -> None:
        """Section 3, exhaustively."""
        good = [b for b in range(1, n) if not sgd_failed_conditions(n, b, round(passes * n / b), eps, 1e-5)]
        assert good == list(feasible)

    def test_every_tabled_setting_fails_its_own_theorem(self) -> None:
        assert len(table()) == 18 + 24
        assert all(row.failed for row in table())
        assert sum(row.without_replacement > row.claim for row in table()) >= 12

    @pytest.mark.parametrize("passes", [10, 20])
    @pytest.mark.parametrize("eps", [2.0, 6.0, 10.0])
    def test_the_theorem_of_scsg_never_holds_for_fixed_lengths(self, passes: int, eps: float) -> None:
        """Section 4: a grid of B and b at ten and twenty passes."""
        n = 20_242
        for large in np.unique(np.geomspace(2, n, 40).astype(int)):
            for small in np.unique(np.geomspace(1, large, 25).astype(int)):
                epochs = max(passes * n // (3 * int(large)), 1)
                assert scsg_failed_conditions(n, int(large), int(small), epochs, eps, 1e-5, "II")

    def test_the_constants_are_swapped_in_print(self) -> None:
        """The proof needs 20 / sigma1² + 80 / sigma2² = 1 / sigma²; the printed constants give 2.125 / sigma²."""
        n, B, b, J, eps = 20_242, 2024, 67, 33, 4.0
        order = 1 + 2 * math.log(1 / DELTA) / eps
        variance = 2 * B * order * J / (b * n**2 * eps)
        for intended, total in ((True, 1.0), (False, 2.125)):
            snapshot, difference = scsg_noise(n, B, b, J, eps, DELTA, "II", intended)
            first, second = (snapshot * 2 / B) ** 2, (difference * 4 / b) ** 2
            assert (20 / first + 80 / second) * variance == pytest.approx(total)

    def test_geometric_lengths_are_paid_for_with_a_constant_and_half_of_delta(self) -> None:
        """The smallest C >= 1 with 1 - (1 - delta/2)^(1/J) >= exp(-(C - 1 - log C)), and 2/delta in α: in sigma²."""
        fixed, geometric = (scsg_noise(1000, 100, 10, 20, 2.0, DELTA, option) for option in ("II", "I"))  # type: ignore[arg-type]
        with_one, with_two = (1 + math.log(top / DELTA) for top in (1, 2))
        constant = (geometric[0] / fixed[0]) ** 2 * with_one / with_two
        assert (geometric[1] / fixed[1]) ** 2 * with_one / with_two == pytest.approx(constant)
        allowed = 1 - (1 - DELTA / 2) ** (1 / 20)
        assert math.exp(-(constant - 1 - math.log(constant))) == pytest.approx(allowed, rel=1e-6)
        assert constant > 1

    @pytest.mark.parametrize("option", ["I", "II"])
    def test_side_conditions_of_scsg_have_the_order_of_the_noise(self, option: Literal["I", "II"]) -> None:
        """What is compared with the logarithm is the α of the option: of delta/2 where lengths are random."""
        n, B, b, J, eps = 20_242, 2024, 67, 33, 4.0
        order = 1 + 2 * math.log((2 if option == "I" else 1) / DELTA) / eps
        failed = scsg_failed_conditions(n, B, b, J, eps, DELTA, option)
        assert [words for words in failed if f"α = {order:.3g} " in words] == [w for w in failed if "α" in w] != []
