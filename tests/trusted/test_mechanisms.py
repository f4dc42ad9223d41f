"""Mechanisms: each draws exactly the law it is billed for.

Statistical tests fix their seed and have a false-alarm probability of ALPHA each, were the seed drawn anew; each is
paired with noise of 2/3 and 3/2 of the right scale, which must be rejected at the same level.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations, combinations_with_replacement, permutations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax
from scipy.stats import chisquare, expon, fisher_exact, gumbel_r, ks_2samp, kstest, laplace, norm

from tulle.accounting.mechanism_words import describe_mechanism
from tulle.fast import thresholded_noise
from tulle.fast.gumbel_on_demand import GumbelOnDemand
from tulle.fast.lazy_noise import Background
from tulle.fast.sparse_weights import SparseWeights
from tulle.fast.thresholded_noise import SparseAnswer
from tulle.methods.gradient_queries import ClippedGradient, Step
from tulle.methods.loss_functions import Squared
from tulle.methods.published_noise import NoiseWithoutProof
from tulle.methods.thresholds import HardThreshold, largest
from tulle.trusted.accountants import epsilon
from tulle.trusted.curator import Curator
from tulle.trusted.events import (
    BoundedRangeEvent,
    ExposedEvent,
    GaussianEvent,
    LaplaceEvent,
    NoisePerSensitivity,
    PureEvent,
)
from tulle.trusted.exact_noise import ChoiceLaw
from tulle.trusted.facts import PublicFacts
from tulle.trusted.mechanisms import (
    Exact,
    Gaussian,
    GumbelMax,
    Laplace,
    LaplaceMax,
    Mechanism,
    NoisyMax,
    PermuteAndFlip,
    SampledGaussian,
    Sensitivity,
    TopK,
    price_of,
)
from tulle.trusted.plan import Plan, PlanError, Release
from tulle.trusted.randomness import keyed_generator
from tulle.trusted.rows import Rows

ALPHA = 1e-5
DRAWS = 20_000
NOISE = 1.7
_UNIT = NoisePerSensitivity(1.0)
# All different, so that a mechanism that reads the wrong norm draws the wrong law.
SENSITIVITY = Sensitivity(l1=9.0, l2=3.1, linf=0.4)

Cdf = Callable[[np.ndarray], np.ndarray]


def fits(values: np.ndarray, cdf: Cdf) -> bool:
    """Kolmogorov-Smirnov. The grid and what it adds to the scale, one part in 4096, are far too fine to be seen."""
    return bool(kstest(values, cdf).pvalue > ALPHA)


def pooled_chi_square(observed: np.ndarray, expected: np.ndarray) -> bool:
    bins = np.minimum(np.floor(np.cumsum(expected) / 20), math.floor(expected.sum() / 20) - 1).astype(int)
    bins = np.unique(np.maximum(bins, 0), return_inverse=True)[1]
    observed, expected = np.bincount(bins, observed), np.bincount(bins, expected)
    assert len(expected) > 5
    return bool(chisquare(observed, expected).pvalue > ALPHA)


def release(mechanism: Mechanism, exact: np.ndarray, seed: int, then: HardThreshold | None = None) -> Any:
    return mechanism.release(exact, SENSITIVITY, keyed_generator(seed), then)


ADDITIVE = {
    "gaussian": (Gaussian, NOISE * SENSITIVITY.l2, norm(scale=NOISE * SENSITIVITY.l2).cdf),
    "laplace": (Laplace, NOISE * SENSITIVITY.l1, laplace(scale=NOISE * SENSITIVITY.l1).cdf),
}
FACTORS = [(1.0, True), (2 / 3, False), (3 / 2, False)]


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("factor", "accepted"), FACTORS)
@pytest.mark.parametrize("kind", ADDITIVE)
class TestAdditiveNoise:
    def test_law(self, kind: str, factor: float, accepted: bool, seed: int) -> None:
        """exact + noise of scale noise × sensitivity in the right norm (Kolmogorov-Smirnov, alpha = 1e-5)."""
        mechanism, _, cdf = ADDITIVE[kind]
        exact = 12.345
        values = release(mechanism(NoisePerSensitivity(factor * NOISE)), np.full((DRAWS, 1), exact), seed)
        assert fits(values[:, 0], lambda x: cdf(x - exact)) is accepted

    def test_law_after_a_threshold(self, kind: str, factor: float, accepted: bool, seed: int) -> None:
        """The one value kept of 10 has the law of the largest of 10 magnitudes (Kolmogorov-Smirnov, alpha = 1e-5)."""
        mechanism, _, cdf = ADDITIVE[kind]
        drawn = release(
            mechanism(NoisePerSensitivity(factor * NOISE)), np.zeros((12, DRAWS // 2)), seed, HardThreshold(1, 10)
        )
        kept = np.abs(drawn[:10]).max(axis=0)
        assert np.all((drawn[:10] != 0).sum(axis=0) == 1)

        def cdf_of_largest(x: np.ndarray) -> np.ndarray:
            return np.where(x > 0, 2 * cdf(np.maximum(x, 0)) - 1, 0.0) ** 10

        assert fits(kept, cdf_of_largest) is accepted
        assert fits(drawn[10:].ravel(), cdf) is accepted


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("factor", "accepted"), FACTORS)
def test_law_of_noise_without_a_proof(factor: float, accepted: bool, seed: int) -> None:
    """exact + N(0, (noise × what the paper claims)²), whatever the query states (Kolmogorov-Smirnov, alpha = 1e-5)."""
    claimed, exact = 0.7, 12.345
    mechanism = NoiseWithoutProof(NoisePerSensitivity(factor * NOISE), claimed)
    for sensitivity in (SENSITIVITY, Sensitivity(l2=0.0)):
        values = mechanism.release(np.full((DRAWS, 1), exact), sensitivity, keyed_generator(seed), None)
        scale = NOISE * claimed
        assert bool(kstest((values[:, 0] - exact) / scale, norm.cdf).pvalue > ALPHA) is accepted


def test_noise_without_a_proof_promises_nothing() -> None:
    """However much of it there is: one exposed answer, epsilon = inf. Scaled to nothing it adds nothing."""
    mechanism = NoiseWithoutProof(NoisePerSensitivity(NOISE), 0.7)
    for one in (mechanism, mechanism.scaled(1e6), mechanism.scaled(0.0), NoiseWithoutProof()):
        assert price_of(one) == (ExposedEvent(), 1)
        assert epsilon([Release("responses", one, 1)], 0.5) == math.inf
        assert describe_mechanism(one) == "Gaussian noise without a proof"
    assert mechanism.scaled(2.0) == NoiseWithoutProof(NoisePerSensitivity(2 * NOISE), 0.7)
    exact = np.array([[1.0], [2.0]])
    np.testing.assert_array_equal(release(mechanism.scaled(0.0), exact, 0), exact)


@pytest.mark.parametrize(("factor", "accepted"), FACTORS)
def test_gaussian_law_on_chosen_coordinates_through_the_curator(factor: float, accepted: bool) -> None:
    """A Step restricted to a support gets noise × step × 2 C / n on each chosen coordinate (alpha = 1e-5)."""
    n, d = 4, 2 * DRAWS
    public = PublicFacts(n, d, d // 2, Squared(), None, 1.0, 1.0, 1.0, False, as_published=True)
    rows = Rows(np.full((n, d), 1 / math.sqrt(d)), np.full(n, 1.0))
    support = np.zeros((d, 1), dtype=bool)
    support[::2] = True
    bound, clip, step = 0.8, 0.5, 3.0
    query = Step(ClippedGradient(np.zeros((d, 1)), clip, "l2", 0.0, support, bound), step)
    plan = Plan((Release("values", Gaussian(NoisePerSensitivity(factor * NOISE)), 1),))
    answer = Curator(rows, public, plan, keyed_generator(3)).ask("values", query)
    exact = query.evaluate(rows, public)
    sigma = NOISE * step * 2 * clip * bound / n
    assert len(np.unique(exact[support])) == 1
    centre = exact[support][0]
    assert fits(answer[support], lambda x: norm.cdf(x, centre, sigma)) is accepted


class TestTopK:
    SCORES = np.array([0.0, 0.3, 0.5, 1.1, -0.7, 0.9])

    def frequencies(self, noise: float, seed: int) -> np.ndarray:
        exact = np.tile(self.SCORES[:, None], DRAWS)
        chosen = release(TopK(NoisePerSensitivity(noise), 1, DRAWS), exact, seed)
        assert np.all(chosen.sum(axis=0) == 1)
        return chosen.sum(axis=1)

    @property
    def probabilities(self) -> np.ndarray:
        """The exponential mechanism of range eps0 = 2 / noise: softmax of scores × eps0 / (2 Δ)."""
        (event, count) = price_of(TopK(NoisePerSensitivity(NOISE)))
        assert isinstance(event, BoundedRangeEvent)
        assert count == 1
        return softmax(self.SCORES * event.epsilon / (2 * SENSITIVITY.linf))

    @pytest.mark.parametrize("seed", [0, 1])
    @pytest.mark.parametrize(("factor", "accepted"), FACTORS)
    def test_noisy_max_is_the_exponential_mechanism(self, factor: float, accepted: bool, seed: int) -> None:
        """Chi-square, alpha = 1e-5."""
        observed = self.frequencies(factor * NOISE, seed)
        assert (chisquare(observed, DRAWS * self.probabilities).pvalue > ALPHA) is np.bool_(accepted)

    def test_the_wrong_sign_of_the_noise_is_rejected(self) -> None:
        """argmin of -score + Gumbel is another law than the exponential mechanism (alpha = 1e-5)."""
        gumbel = -np.log(keyed_generator(0).standard_exponential((6, DRAWS)))
        wrong = np.argmin(-self.SCORES[:, None] + NOISE * SENSITIVITY.linf * gumbel, axis=0)
        right = np.argmax(self.SCORES[:, None] + NOISE * SENSITIVITY.linf * gumbel, axis=0)
        expected = DRAWS * self.probabilities
        assert chisquare(np.bincount(right, minlength=6), expected).pvalue > ALPHA
        assert chisquare(np.bincount(wrong, minlength=6), expected).pvalue < ALPHA

    @pytest.mark.parametrize("k", [2, 3])
    @pytest.mark.parametrize(("factor", "accepted"), FACTORS)
    def test_top_k_is_sampling_without_replacement(self, k: int, factor: float, accepted: bool) -> None:
        """Frequencies of the sets against k exponential mechanisms in a row (chi-square, alpha = 1e-5)."""
        weights = np.exp(self.SCORES[:5] / (NOISE * SENSITIVITY.linf))
        sets = list(combinations(range(5), k))
        exact = np.array([sum(sequence_probability(weights, order) for order in permutations(s)) for s in sets])
        assert exact.sum() == pytest.approx(1.0)
        mechanism = TopK(NoisePerSensitivity(factor * NOISE), k, DRAWS)
        chosen = release(mechanism, np.tile(self.SCORES[:5, None], DRAWS), 5)
        codes = 2 ** np.arange(5) @ chosen
        observed = np.array([(codes == sum(2**i for i in s)).sum() for s in sets])
        assert observed.sum() == DRAWS
        assert (chisquare(observed, DRAWS * exact).pvalue > ALPHA) is np.bool_(accepted)

    @pytest.mark.parametrize(("k", "columns"), [(1, 1), (4, 1), (4, 3)])
    def test_every_choice_is_on_the_bill(self, k: int, columns: int) -> None:
        assert price_of(TopK(NoisePerSensitivity(4.0), k, columns)) == (BoundedRangeEvent(0.5), k * columns)

    def test_columns_are_chosen_apart(self) -> None:
        exact = np.array([[0.0, 5.0], [5.0, 0.0], [1.0, 1.0]])
        chosen = release(TopK(NoisePerSensitivity(0.0), 2, 2), exact, 0)
        np.testing.assert_array_equal(chosen, [[False, True], [True, False], [True, True]])

    def test_another_number_of_columns_than_billed_raises(self) -> None:
        with pytest.raises(ValueError, match="holds 1 columns but the query has 2"):
            release(TopK(), np.zeros((3, 2)), 0)

    def test_more_than_there_is_chooses_all(self) -> None:
        assert release(TopK(k=5), np.zeros((3, 1)), 0).all()


def sequence_probability(weights: np.ndarray, order: tuple[int, ...]) -> float:
    probability, left = 1.0, float(weights.sum())
    for i in order:
        probability *= float(weights[i]) / left
        left -= float(weights[i])
    return probability


def winners(law: Any, scores: np.ndarray) -> np.ndarray:
    """The chance of each candidate to have the largest score + noise of a law of scale 1, by quadrature.

    Gauss-Legendre on pieces that end at the scores, where densities have kinks: exact to about 1e-13, relatively.
    """
    kinks = np.r_[scores, np.arange(scores.min() - 60, scores.max() + 60)]
    edges = np.unique(kinks)
    nodes, weights = np.polynomial.legendre.leggauss(20)
    half = np.diff(edges)[:, None] / 2
    t = (edges[:-1, None] + half + half * nodes).ravel()
    w = (half * weights).ravel()
    cdfs = law.cdf(t[:, None] - scores)
    beaten = np.stack([np.delete(cdfs, i, axis=1).prod(axis=1) for i in range(len(scores))], axis=1)
    return np.asarray(w @ (law.pdf(t[:, None] - scores) * beaten))


def permute_and_flip(scores: np.ndarray) -> np.ndarray:
    """McKenna and Sheldon's algorithm at scale 1, over all orders: the first candidate whose coin shows heads.

    The coin of a candidate shows heads with probability exp(score - best score), so a best one always ends it.
    """
    heads = np.exp(scores - scores.max())
    chances = np.zeros(len(scores))
    orders = list(permutations(range(len(scores))))
    for order in orders:
        reached = 1.0
        for i in order:
            chances[i] += reached * heads[i] / len(orders)
            reached *= 1 - heads[i]
    return chances


# The mechanism, its law at scale 1 in closed form where there is one, and the law of its noise.
NOISY_MAXIMA: dict[str, tuple[type[NoisyMax], Callable[[np.ndarray], np.ndarray], Any]] = {
    "gumbel": (GumbelMax, softmax, gumbel_r()),
    "laplace": (LaplaceMax, lambda scores: winners(laplace(), scores), laplace()),
    "permute and flip": (PermuteAndFlip, permute_and_flip, expon()),
}
every_noisy_max = pytest.mark.parametrize("kind", NOISY_MAXIMA)


def neighbours_of(scores: np.ndarray) -> list[np.ndarray]:
    """Every score moves by -1, 0 or 1 sensitivities."""
    return [scores + np.array(moves) for moves in product([-1.0, 0.0, 1.0], repeat=len(scores))]


def log_ratios(chances: Callable[[np.ndarray], np.ndarray], scale: float, candidates: int) -> np.ndarray:
    """log P(outcome | scores) / P(outcome | neighbour), a line for each pair of neighbouring scores on a grid.

    Scores are in units of the sensitivity. Ties, near ties and gaps of many scales are all on the grid.
    """
    known: dict[bytes, np.ndarray] = {}

    def log_chances(scores: np.ndarray) -> np.ndarray:
        key = (scores - scores.max()).round(12).tobytes()  # a common shift changes nothing
        if key not in known:
            known[key] = np.log(chances((scores - scores.max()) / scale))
        return known[key]

    gaps = [0.0, 1.0, 2.0, round(1.5 * scale, 6), round(12 * scale, 6)]
    grid = [-np.array((0.0, *rest)) for rest in combinations_with_replacement(gaps, candidates - 1)]
    return np.array([log_chances(u) - log_chances(v) for u in grid for v in neighbours_of(u)])


class TestNoisyMax:
    SCORES = np.array([0.0, 0.3, 0.5, 1.1, -0.7, 0.9])
    SCALE = NOISE * SENSITIVITY.linf

    def frequencies(self, mechanism: type[NoisyMax], noise: float, seed: int) -> np.ndarray:
        exact = np.tile(self.SCORES[:, None], DRAWS)
        chosen = release(mechanism(NoisePerSensitivity(noise), DRAWS), exact, seed)
        assert chosen.shape == (DRAWS,)
        return np.bincount(chosen, minlength=len(self.SCORES))

    def fits(self, observed: np.ndarray, kind: str) -> bool:
        expected = DRAWS * NOISY_MAXIMA[kind][1](self.SCORES / self.SCALE)
        return bool(chisquare(observed, expected).pvalue > ALPHA)

    @pytest.mark.parametrize("seed", [0, 1])
    @pytest.mark.parametrize(("factor", "accepted"), FACTORS)
    @every_noisy_max
    def test_law(self, kind: str, factor: float, accepted: bool, seed: int) -> None:
        """Gumbel: softmax(score / scale); exponential noise: the algorithm's coins (chi-square, alpha = 1e-5)."""
        observed = self.frequencies(NOISY_MAXIMA[kind][0], factor * NOISE, seed)
        assert self.fits(observed, kind) is accepted

    @pytest.mark.parametrize("other", NOISY_MAXIMA)
    @every_noisy_max
    def test_each_law_is_told_from_the_others(self, kind: str, other: str) -> None:
        """Chi-square, alpha = 1e-5: a mechanism that drew another's noise would be rejected."""
        assert self.fits(self.frequencies(NOISY_MAXIMA[kind][0], NOISE, 2), other) is (kind == other)

    @pytest.mark.parametrize("kind", ["gumbel", "permute and flip"])
    def test_the_wrong_sign_of_the_noise_is_rejected(self, kind: str) -> None:
        """score - Gumbel is not the exponential mechanism, nor score - exponential permute and flip (alpha = 1e-5)."""
        mechanism = NOISY_MAXIMA[kind][0]

        law = mechanism.LAW

        class WrongSign(mechanism):  # type: ignore[misc, valid-type]
            LAW = ChoiceLaw(lambda draws: -law.noise(draws), lambda value, side: -law.noise_exactly(value, side))

        assert self.fits(self.frequencies(mechanism, NOISE, 0), kind)
        assert not self.fits(self.frequencies(WrongSign, NOISE, 0), kind)

    @pytest.mark.parametrize("kind", ["gumbel", "permute and flip"])
    @given(st.lists(st.sampled_from([0.0, 0.0, -0.1, -1.0, -3.0, 0.7]) | st.floats(-5, 5), min_size=1, max_size=5))
    def test_the_closed_forms_are_the_laws_of_noisy_maxima(self, kind: str, scores: list[float]) -> None:
        """The exponential mechanism is the maximum with Gumbel noise, permute and flip that with exponential noise."""
        _, chances, law = NOISY_MAXIMA[kind]
        found = chances(np.array(scores))
        assert found.sum() == pytest.approx(1.0, abs=1e-12)
        np.testing.assert_allclose(found, winners(law, np.array(scores)), rtol=1e-9)

    @pytest.mark.parametrize("noise", [0.5, 1.7, 9.0])
    @every_noisy_max
    def test_no_outcome_moves_by_more_than_its_pure_epsilon(self, kind: str, noise: float) -> None:
        """Over neighbouring scores of 2 and 3 candidates, and of 4 at one noise; the bound is attained, so 2/3 of it
        would be passed."""
        mechanism, chances, _ = NOISY_MAXIMA[kind]
        event, count = price_of(mechanism(NoisePerSensitivity(noise)))
        assert count == 1
        # Integrals of four candidates take most of the time, and noise only scales the scores.
        numbers = (2, 3, 4) if noise == 1.7 else (2, 3)
        worst = max(float(np.abs(log_ratios(chances, noise, candidates)).max()) for candidates in numbers)
        assert worst <= event.pure_epsilon() * (1 + 1e-9)
        assert worst > 0.99 * event.pure_epsilon()

    @pytest.mark.parametrize("noise", [0.5, 1.7, 9.0])
    @every_noisy_max
    def test_only_gumbel_noise_has_a_range_of_its_pure_epsilon(self, kind: str, noise: float) -> None:
        """All log-ratios of a pair lie in an interval of length 2 / noise: so billed, and true of no other noise."""
        mechanism, chances, _ = NOISY_MAXIMA[kind]
        event = price_of(mechanism(NoisePerSensitivity(noise)))[0]
        spread = max(float(np.ptp(log_ratios(chances, noise, candidates), axis=1).max()) for candidates in (2, 3))
        assert (spread <= 2 / noise * (1 + 1e-9)) is (kind == "gumbel")
        assert spread > 0.99 * 2 / noise
        assert type(event) is (BoundedRangeEvent if kind == "gumbel" else PureEvent)
        assert event.epsilon == 2 / noise

    @every_noisy_max
    def test_columns_are_chosen_apart(self, kind: str) -> None:
        """Gaps of a hundred scales: each column's best, with a draw of its own."""
        exact = np.array([[0.0, 99.0, 0.0], [99.0, 0.0, 0.0], [1.0, 1.0, 99.0]])
        mechanism = NOISY_MAXIMA[kind][0]
        np.testing.assert_array_equal(release(mechanism(NoisePerSensitivity(NOISE), 3), exact, 0), [1, 0, 2])
        ties = release(mechanism(NoisePerSensitivity(NOISE), 200), np.zeros((4, 200)), 0)
        assert set(ties) == {0, 1, 2, 3}

    @every_noisy_max
    def test_without_noise_the_choice_is_exact(self, kind: str) -> None:
        exact = np.array([[0.1, 5.0], [0.3, 4.0], [0.2, -1.0]])
        mechanism = NOISY_MAXIMA[kind][0](columns=2).scaled(0.0)
        np.testing.assert_array_equal(mechanism.release(exact, Sensitivity(), keyed_generator(0), None), [1, 0])
        assert price_of(mechanism)[0].pure_epsilon() == math.inf

    @every_noisy_max
    def test_another_number_of_columns_than_billed_raises(self, kind: str) -> None:
        """Before anything is drawn, for arrays and for scores on demand."""
        mechanism = NOISY_MAXIMA[kind][0]
        with pytest.raises(ValueError, match="holds 1 columns but the query has 2"):
            release(mechanism(), np.zeros((3, 2)), 0)
        for columns in (2, 3):
            scores = OnDemand()
            with pytest.raises(ValueError, match=f"holds {columns} columns but the query has 1"):
                mechanism(columns=columns).release(scores, SENSITIVITY, keyed_generator(0), None)
            assert scores.asked == []

    @pytest.mark.parametrize("smallest", [0.0, 5e-324])
    @every_noisy_max
    def test_noise_that_is_asked_for_never_underflows_to_none(self, kind: str, smallest: float) -> None:
        mechanism = NOISY_MAXIMA[kind][0](NoisePerSensitivity(0.5), 100)
        chosen = mechanism.release(np.zeros((2, 100)), Sensitivity(linf=smallest), keyed_generator(0), None)
        assert set(chosen) == {0, 1}


class OnDemand:
    """Scores on demand that write down what they are asked."""

    shape = (5, 1)
    n_rows = 9

    def __init__(self) -> None:
        self.asked: list[float] = []

    def to_dense(self) -> np.ndarray:
        return np.arange(5.0)[:, None]

    def draw(self, scale: float, generator: np.random.Generator) -> int:
        self.asked.append(scale)
        return 3


class TestScoresOnDemand:
    @pytest.mark.parametrize("noise", [NOISE, 0.0])
    def test_gumbel_noise_passes_its_scale_on(self, noise: float) -> None:
        scores = OnDemand()
        chosen = GumbelOnDemand(NoisePerSensitivity(noise), 1, 5, 9).release(
            scores, SENSITIVITY, keyed_generator(0), None
        )
        np.testing.assert_array_equal(chosen, [3])
        assert scores.asked == [noise * SENSITIVITY.linf]

    @pytest.mark.parametrize(("candidates", "rows"), [(4, 9), (5, 8)])
    def test_of_more_candidates_or_rows_than_are_planned_are_refused(self, candidates: int, rows: int) -> None:
        """What finite precision takes of delta is planned for so many."""
        scores = OnDemand()
        with pytest.raises(PlanError, match="fewer candidates or rows"):
            GumbelOnDemand(_UNIT, 1, candidates, rows).release(scores, SENSITIVITY, keyed_generator(0), None)
        assert scores.asked == []

    @pytest.mark.parametrize("candidates", [1, 10, 10_000, 10_000_000])
    @pytest.mark.parametrize("rows", [1, 1000, 10**7])
    def test_what_finite_precision_takes_is_what_the_proof_counts(self, rows: int, candidates: int) -> None:
        """docs/proofs/scores_on_demand.md, lemma 4, in units of 2^-53: at least that, and not much more."""
        ratio, root = rows / (2 * NOISE), math.sqrt(candidates)
        counted = 75 * ratio + 11_000 + 2 * root + 64 + 600 * (3 * (0.04 * root + 140) + 1) + 1
        stated = GumbelOnDemand(NoisePerSensitivity(NOISE), 1, candidates, rows).inexact
        assert counted <= stated * 2.0**53 < 1.01 * counted

    def test_only_scores_on_demand_have_a_part_for_finite_precision(self) -> None:
        """More of it for more columns and less noise; none without noise, or where scores are arrays."""
        one = GumbelOnDemand(NoisePerSensitivity(NOISE), 1, 1000, 500)
        assert 0 < one.scaled(2.0).inexact < one.inexact < one.scaled(0.5).inexact < 1e-9
        assert GumbelOnDemand(one.noise, 3, 1000, 500).inexact == pytest.approx(3 * one.inexact)
        assert GumbelOnDemand(one.noise, 10**9, 1000, 10**15).inexact == 1.0
        for other in (
            one.scaled(0.0),
            GumbelOnDemand(),
            GumbelMax(),
            LaplaceMax(),
            PermuteAndFlip(),
            TopK(),
            Gaussian(),
            Laplace(),
        ):
            assert other.inexact == 0.0

    def test_a_plan_adds_up_what_its_answers_take(self) -> None:
        one = GumbelOnDemand(NoisePerSensitivity(NOISE), 1, 1000, 500)
        plan = Plan((Release("vertex", one, 7), Release("update", Gaussian(), 7), Release("again", one, 2)))
        assert plan.inexact == pytest.approx(9 * one.inexact)

    @pytest.mark.parametrize("noise", [NOISE, 0.0])
    @pytest.mark.parametrize("mechanism", [GumbelMax, LaplaceMax, PermuteAndFlip, GumbelOnDemand])
    def test_a_plan_without_room_for_them_takes_all_scores(self, mechanism: type[NoisyMax], noise: float) -> None:
        """What nobody planned for is not drawn on demand: noise goes on the array, with the same draws."""
        scores, one = OnDemand(), mechanism(NoisePerSensitivity(noise))
        for seed in range(20):
            chosen = one.release(scores, SENSITIVITY, keyed_generator(seed), None)
            expected = one.release(scores.to_dense(), SENSITIVITY, keyed_generator(seed), None)
            np.testing.assert_array_equal(chosen, expected)
        assert scores.asked == []

    def test_without_a_sensitivity_nothing_is_drawn(self) -> None:
        scores = OnDemand()
        with pytest.raises(ValueError, match="states no sensitivity"):
            GumbelOnDemand(_UNIT, 1, 5, 9).release(scores, Sensitivity(l1=1.0, l2=1.0), keyed_generator(0), None)
        assert scores.asked == []


class TestFinitePrecision:
    @pytest.mark.parametrize("then", [None, HardThreshold(3, 40)], ids=["all", "thresholded"])
    @pytest.mark.parametrize("kind", ADDITIVE)
    def test_what_leaves_lies_on_the_grid(self, kind: str, then: HardThreshold | None) -> None:
        """The grid of all 100 numbers, also where few are kept."""
        mechanism = ADDITIVE[kind][0](NoisePerSensitivity(NOISE))
        values = release(mechanism, np.random.default_rng(0).normal(size=(50, 2)), 0, then)
        cells = values / mechanism.grid_and_scale(SENSITIVITY, 100)[0]
        np.testing.assert_array_equal(cells, np.round(cells))
        assert np.any(cells % 2)

    @pytest.mark.parametrize("count", [1, 100, 10_000])
    def test_the_grid_joins_the_sensitivity_in_the_norm_of_the_noise(self, count: int) -> None:
        """Rounding moves each of `count` numbers by up to a unit: √count in ℓ2, count in ℓ1. Commonly 1/4096 in all."""
        for mechanism, moved, coordinates in (
            (Gaussian(NoisePerSensitivity(NOISE)), SENSITIVITY.l2, math.sqrt(count)),
            (Laplace(NoisePerSensitivity(NOISE)), SENSITIVITY.l1, count),
        ):
            grid, scale = mechanism.grid_and_scale(SENSITIVITY, count)
            assert scale >= NOISE * (moved + grid * coordinates) * (1 - 1e-15)
            assert NOISE * moved < scale <= NOISE * moved * (1 + 1 / 4096)

    @pytest.mark.parametrize("then", [None, HardThreshold(3, 40)], ids=["all", "thresholded"])
    @pytest.mark.parametrize("kind", ADDITIVE)
    def test_the_size_of_the_answer_shows_nowhere(self, kind: str, then: HardThreshold | None) -> None:
        """Adding whole units to the answer adds them to what is released, to the last bit."""
        mechanism = ADDITIVE[kind][0](NoisePerSensitivity(NOISE))
        grid, _ = mechanism.grid_and_scale(SENSITIVITY, 50)
        exact = np.random.default_rng(0).normal(size=(50, 1))
        one = release(mechanism, exact, 0)
        for shift in (1.0, -7.0, 2.0**30, 2.0**44):
            other = release(mechanism, np.rint(exact / grid) * grid + shift * grid, 0, None)
            np.testing.assert_array_equal(other / grid, one / grid + shift)
        if then is not None:
            np.testing.assert_array_equal(release(mechanism, exact, 0, then), then(one))

    @pytest.mark.parametrize("mechanism", [Gaussian(), Laplace()], ids=lambda m: type(m).__name__)
    def test_without_noise_the_answer_is_exact(self, mechanism: Mechanism) -> None:
        exact = np.random.default_rng(0).normal(size=(7, 2))
        answer = mechanism.scaled(0.0).release(exact, Sensitivity(), keyed_generator(0), None)
        np.testing.assert_array_equal(answer, exact)

    def test_without_noise_the_choice_is_exact(self) -> None:
        exact = np.array([[0.1], [0.3], [0.2]])
        answer = TopK(k=2).scaled(0.0).release(exact, Sensitivity(), keyed_generator(0), None)
        np.testing.assert_array_equal(answer[:, 0], [False, True, True])

    @pytest.mark.parametrize(
        ("mechanism", "enough"),
        [
            (Gaussian(), Sensitivity(l2=1.0)),
            (Laplace(), Sensitivity(l1=1.0)),
            (TopK(), Sensitivity(linf=1.0)),
            (GumbelMax(), Sensitivity(linf=1.0)),
            (LaplaceMax(), Sensitivity(linf=1.0)),
            (PermuteAndFlip(), Sensitivity(linf=1.0)),
        ],
        ids=lambda value: type(value).__name__ if isinstance(value, Mechanism) else "",
    )
    def test_a_query_without_sensitivity_in_the_norm_needed_is_not_answered(
        self, mechanism: Mechanism, enough: Sensitivity
    ) -> None:
        exact = np.zeros((3, 1))
        mechanism.release(exact, enough, keyed_generator(0), None)
        others = {"l1": 1.0, "l2": 1.0, "linf": 1.0}
        needed = next(name for name in others if getattr(enough, name) < math.inf)
        with pytest.raises(ValueError, match="states no sensitivity"):
            mechanism.release(exact, Sensitivity(**{**others, needed: math.inf}), keyed_generator(0), None)


class TestHardThreshold:
    @given(st.integers(1, 8), st.integers(1, 6), st.integers(0, 2), st.integers(1, 3), st.integers(0, 2**32))
    def test_keeps_the_largest_of_each_column_and_all_free_lines(
        self, d: int, keep: int, free: int, columns: int, seed: int
    ) -> None:
        values = np.random.default_rng(seed).normal(size=(d + free, columns))
        kept = HardThreshold(keep, d)(values)
        np.testing.assert_array_equal(kept[d:], values[d:])
        for column in range(columns):
            top = np.argsort(-np.abs(values[:d, column]))[:keep]
            expected = np.zeros(d)
            expected[top] = values[top, column]
            np.testing.assert_array_equal(kept[:d, column], expected)

    @given(st.integers(1, 8), st.integers(1, 6), st.integers(0, 2), st.integers(1, 3), st.integers(0, 2**32))
    def test_of_few_lines_is_that_of_all(self, d: int, keep: int, free: int, columns: int, seed: int) -> None:
        """Lines that are not listed are 0, and are kept by nobody; nothing that is 0 is listed afterwards."""
        rng = np.random.default_rng(seed)
        values = rng.normal(size=(d + free, columns)) * (rng.random((d + free, 1)) < 0.6)
        found = HardThreshold(keep, d).sparsely(SparseWeights.from_dense(values))
        np.testing.assert_array_equal(found.to_dense(), HardThreshold(keep, d)(values))
        assert np.all(np.any(found.values != 0, axis=1))

    def test_leaves_its_argument_alone(self) -> None:
        values = np.array([[1.0], [2.0]])
        HardThreshold(1, 2)(values)
        np.testing.assert_array_equal(values, [[1.0], [2.0]])

    @given(st.lists(st.integers(-5, 5), min_size=1, max_size=12), st.integers(1, 14))
    def test_largest_returns_k_sorted_indices_of_the_largest(self, scores: list[int], k: int) -> None:
        chosen = largest(np.array(scores, dtype=float), k)
        assert len(chosen) == min(k, len(scores))
        assert np.all(np.diff(chosen) > 0)
        assert sorted((scores[i] for i in chosen), reverse=True) == sorted(scores, reverse=True)[:k]


class TestSparseAnswers:
    """Answers of which few lines are listed, over a background or over zeros."""

    def answer(self, with_background: bool, columns: int = 2) -> tuple[SparseAnswer, np.ndarray]:
        """An answer of twelve lines, the last of which is free of thresholds, and the same as an array."""
        rng = np.random.default_rng(3)
        listed = SparseWeights(np.array([1, 4, 5, 11]), 9 * rng.normal(size=(4, columns)), 12)
        means = rng.normal(size=(12, columns))
        dense = -2.0 * means if with_background else np.zeros((12, columns))
        dense[listed.lines] = listed.values
        return SparseAnswer(listed, Background(means).times(-2.0) if with_background else None), dense

    @pytest.mark.parametrize("with_background", [False, True])
    def test_unlisted_lines_are_the_background_s(self, with_background: bool) -> None:
        answer, dense = self.answer(with_background)
        assert answer.shape == dense.shape
        np.testing.assert_array_equal(answer.to_dense(), dense)

    @pytest.mark.parametrize("lazy", [True, False])
    @pytest.mark.parametrize("with_background", [False, True])
    def test_without_noise_the_threshold_is_that_of_the_array(self, lazy: bool, with_background: bool) -> None:
        answer, dense = self.answer(with_background)
        mechanism, then = SampledGaussian(NoisePerSensitivity(0.0), lazy=lazy), HardThreshold(3, 11)
        found = mechanism.release(answer, SENSITIVITY, keyed_generator(0), then)
        assert isinstance(found, SparseWeights) is not with_background
        np.testing.assert_allclose(np.asarray(found), then(dense), rtol=1e-14)
        np.testing.assert_array_equal(mechanism.release(answer, SENSITIVITY, keyed_generator(0), None), dense)

    @pytest.mark.parametrize("with_background", [False, True])
    def test_all_noise_is_drawn_where_that_is_asked_for_or_nothing_is_thresholded(self, with_background: bool) -> None:
        """The same draws as on the array, threshold and grid included."""
        answer, dense = self.answer(with_background)
        noise, then = NoisePerSensitivity(NOISE), HardThreshold(3, 11)
        for lazy, threshold in ((True, None), (False, None), (False, then)):
            found = SampledGaussian(noise, lazy=lazy).release(answer, SENSITIVITY, keyed_generator(5), threshold)
            expected = SampledGaussian(noise).release(dense, SENSITIVITY, keyed_generator(5), threshold)
            np.testing.assert_array_equal(np.asarray(found), expected)

    @pytest.mark.parametrize("lazy", [True, False])
    @pytest.mark.parametrize("with_background", [False, True])
    def test_what_leaves_is_thresholded_and_on_the_grid(self, lazy: bool, with_background: bool) -> None:
        """At most three features of a column and the free line; no line is listed that is all zero."""
        answer, _ = self.answer(with_background)
        mechanism = SampledGaussian(NoisePerSensitivity(NOISE), lazy=lazy)
        grid, _ = mechanism.grid_and_scale(SENSITIVITY, 24)
        for seed in range(50):
            released = mechanism.release(answer, SENSITIVITY, keyed_generator(seed), HardThreshold(3, 11))
            assert isinstance(released, SparseWeights) is lazy
            found = SparseWeights.of(released)
            np.testing.assert_array_equal(found.values / grid, np.round(found.values / grid))
            assert np.all(np.count_nonzero(found.to_dense()[:11], axis=0) <= 3)
            assert np.all(np.any(found.values != 0, axis=1))

    @pytest.mark.parametrize(("factor", "accepted"), [(1.0, True), (2 / 3, False), (1.5, False)])
    @pytest.mark.parametrize("lazy", [True, False])
    def test_law_of_a_line_that_no_threshold_removes(self, lazy: bool, factor: float, accepted: bool) -> None:
        """The free line, over its mean, in as many columns as there are draws."""
        answer, dense = self.answer(True, 2000)
        mechanism = SampledGaussian(NoisePerSensitivity(factor * NOISE), lazy=lazy)
        found = np.asarray(mechanism.release(answer, SENSITIVITY, keyed_generator(1), HardThreshold(3, 11)))[11]
        p_value = float(kstest((found - dense[11]) / (NOISE * SENSITIVITY.l2), "norm").pvalue)
        assert (p_value > ALPHA) is accepted


@pytest.mark.parametrize(
    ("mechanism", "events"),
    [
        (Gaussian(NoisePerSensitivity(2.0)), (GaussianEvent(NoisePerSensitivity(2.0)), 1)),
        (Laplace(NoisePerSensitivity(2.0)), (LaplaceEvent(NoisePerSensitivity(2.0)), 1)),
        (TopK(NoisePerSensitivity(2.0)), (BoundedRangeEvent(1.0), 1)),
        (TopK(NoisePerSensitivity(0.0)), (BoundedRangeEvent(math.inf), 1)),
        (GumbelMax(NoisePerSensitivity(2.0)), (BoundedRangeEvent(1.0), 1)),
        (GumbelMax(NoisePerSensitivity(2.0), 3), (BoundedRangeEvent(1.0), 3)),
        (GumbelMax(NoisePerSensitivity(0.0)), (BoundedRangeEvent(math.inf), 1)),
        (LaplaceMax(NoisePerSensitivity(2.0)), (PureEvent(1.0), 1)),
        (LaplaceMax(NoisePerSensitivity(2.0), 3), (PureEvent(1.0), 3)),
        (PermuteAndFlip(NoisePerSensitivity(4.0), 2), (PureEvent(0.5), 2)),
        (PermuteAndFlip(NoisePerSensitivity(0.0)), (PureEvent(math.inf), 1)),
        (Exact(), (ExposedEvent(), 1)),
    ],
)
def test_the_bill_of_one_release(mechanism: Mechanism, events: tuple[object, int]) -> None:
    assert price_of(mechanism) == events
    assert describe_mechanism(mechanism) != type(mechanism).__name__


def test_exact_answers_come_back_untouched_and_are_billed_as_such_at_any_noise() -> None:
    exact = np.array([[0.1234567]])
    assert Exact().release(exact, Sensitivity(), keyed_generator(0), None) is exact
    assert price_of(Exact().scaled(1e6)) == (ExposedEvent(), 1)


def test_sensitivities_scale_in_all_norms() -> None:
    assert SENSITIVITY.times(2.0) == Sensitivity(18.0, 6.2, 0.8)
    assert Sensitivity(l2=1.0).times(3.0) == Sensitivity(l2=3.0)


@pytest.mark.parametrize("mechanism", [Gaussian(), Laplace()])
def test_noise_that_is_asked_for_never_underflows_to_none(mechanism: Mechanism) -> None:
    """A sensitivity below all floats, or none at all, still gets noise; only a noise of 0 gets none."""
    for smallest in (0.0, 5e-324):
        sensitivity = Sensitivity(l1=smallest, l2=smallest, linf=smallest)
        released = mechanism.scaled(0.5).release(np.zeros((50, 1)), sensitivity, keyed_generator(0), None)
        assert np.count_nonzero(released) > 25
        assert np.abs(released).max() < 1e-190
        np.testing.assert_array_equal(
            mechanism.scaled(0.0).release(np.zeros((50, 1)), sensitivity, keyed_generator(0), None), 0.0
        )


def test_a_negative_sensitivity_is_refused() -> None:
    with pytest.raises(ValueError, match="states no sensitivity"):
        Gaussian().release(np.zeros((2, 1)), Sensitivity(l2=-1.0), keyed_generator(0), None)


class TestLongAnswers:
    """Of long answers that are thresholded, noise that cannot matter is not drawn; nobody can tell."""

    means = np.concatenate([np.linspace(-2.5, 2.5, 40), [0.7, -0.3]])[:, None]
    then = HardThreshold(5, free_from=40)

    def answers(
        self, monkeypatch: pytest.MonkeyPatch, lazily: bool, noise: float, runs: int = 4000, many: int = 10**9
    ) -> np.ndarray:
        monkeypatch.setattr(thresholded_noise, "_LONG", 10 if lazily else 10**9)
        monkeypatch.setattr(thresholded_noise, "_MANY_LINES", many)
        generator = keyed_generator(5 + lazily)
        mechanism = Gaussian(NoisePerSensitivity(noise))
        return np.hstack(
            [mechanism.release(self.means.copy(), Sensitivity(l2=1.0), generator, self.then) for _ in range(runs)]
        )

    def smallest_p(self, one: np.ndarray, other: np.ndarray) -> float:
        """Of how often lines survive, what they are then, and what the free lines are: 82 two-sample tests."""
        values = [ks_2samp(a, b).pvalue for a, b in zip(one, other)]
        kept = [
            fisher_exact([[(a != 0).sum(), (a == 0).sum()], [(b != 0).sum(), (b == 0).sum()]])[1]
            for a, b in zip(one[:40], other[:40])
        ]
        return float(min(*values, *kept))

    @pytest.mark.parametrize("many", [10**9, 10], ids=["listed lines", "all lines"])
    def test_have_the_same_law(self, many: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """False alarms: below 1 in 10,000 (82 tests at 1e-6)."""
        lazy, full = (self.answers(monkeypatch, lazily, 1.0, many=many) for lazily in (True, False))
        assert ((lazy[:40] != 0).sum(axis=0) == 5).all()
        assert self.smallest_p(lazy, full) > 1e-6

    @pytest.mark.parametrize("factor", [2 / 3, 3 / 2], ids=["two thirds", "three halves"])
    def test_a_wrong_scale_is_seen(self, factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
        lazy = self.answers(monkeypatch, True, factor)
        full = self.answers(monkeypatch, False, 1.0)
        assert self.smallest_p(lazy, full) < 1e-6

    def test_lie_on_the_grid(self, monkeypatch: pytest.MonkeyPatch) -> None:
        answers = self.answers(monkeypatch, True, 1.0, runs=20)
        grid, _ = Gaussian().grid_and_scale(Sensitivity(l2=1.0), self.means.size)
        np.testing.assert_array_equal(answers / grid, np.round(answers / grid))
