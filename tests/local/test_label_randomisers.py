"""Randomisers of labels and classes: constants, exact epsilon, the law that is drawn, and what a server can be told.

Laws are computed, not sampled, wherever that is possible: an answer is a function of its uniforms, so that the law of
the answers is how often each comes as uniforms run through a fine regular grid. Each statistical test rejects a right
law with probability below 1e-6, were its seed drawn anew; each is paired with a wrong constant, which it must reject.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from decimal import Decimal, localcontext
from functools import cache, cached_property
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_ndtr, ndtr
from scipy.stats import chisquare, laplace, norm
from scipy.stats.qmc import Sobol

from tulle.audit import audit_channel
from tulle.local.user_side.channel import Channel
from tulle.local.user_side.label_randomisers import (
    GaussianLabel,
    Hybrid,
    LabelChannel,
    LaplaceLabel,
    Piecewise,
    RandomisedResponse,
    TwoPoint,
    best_label_channel,
)
from tulle.local.user_side.uniforms import SeededUniforms

ALPHA = 1e-6
LARGEST_Z = 5.0  # passed with probability 6e-7
EPSILONS = (0.5, 1.0, 2.0, 4.0)
PURE = {cls.name: cls for cls in (TwoPoint, Piecewise, Hybrid, LaplaceLabel)}


def make(name: str, epsilon: float, bound: float) -> LabelChannel:
    return GaussianLabel(epsilon, bound, 1e-3) if name == "gaussian" else PURE[name](epsilon, bound)


def answers(channel: Channel, value: float, users: int, seed: int) -> np.ndarray:
    """What users with one and the same label answer."""
    uniforms = SeededUniforms(seed, [0]).draw(1, users * channel.n_uniforms).reshape(users, channel.n_uniforms)
    return channel.answer(np.full((users, 1), value), uniforms)[:, 0]


@cache
def regular(n_uniforms: int, log_size: int = 19) -> np.ndarray:
    """Points that fill the unit cube evenly, each in the middle of its cell."""
    return Sobol(n_uniforms, scramble=False).random_base2(log_size) + 2.0 ** -(log_size + 1)


def computed(channel: Channel, value: float) -> np.ndarray:
    """The answers to a value as uniforms run through a regular grid."""
    uniforms = regular(channel.n_uniforms)
    return channel.answer(np.full((len(uniforms), 1), value), uniforms)[:, 0]


def turning_point(is_below: Callable[[float], bool]) -> float:
    """The uniform below which a statement holds, and above which it does not, to the last bit."""
    low, high = 0.0, 1.0
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (middle, high) if is_below(middle) else (low, middle)
    return high


def log_ratio(*factors: float) -> Decimal:
    """Log of the first half of the factors over the second, exact for the floats that are given."""
    half = len(factors) // 2
    with localcontext() as context:
        context.prec = 50
        logs = [Decimal(factor).ln() for factor in factors]
        return sum(logs[:half], Decimal(0)) - sum(logs[half:], Decimal(0))


# --- constants -------------------------------------------------------------------------------------------------------


def digits(number: float, like: str) -> str:
    """A number written with as many decimals as another one."""
    return f"{number:.{len(like.partition('.')[2])}f}"


@pytest.mark.parametrize(
    ("epsilon", "gaussian_3", "gaussian_5", "laplace_", "two_point", "piecewise"),
    [
        (0.5, "85.0", "197.8", "32.0", "16.7", "21.2"),
        (1.0, "26.5", "55.7", "8.0", "4.68", "5.22"),
        (2.0, "8.35", "15.9", "2.0", "1.72", "1.23"),
        (4.0, "2.71", "4.68", "0.50", "1.08", "0.24"),
    ],
)
def test_variances_for_the_worst_label(
    epsilon: float, gaussian_3: str, gaussian_5: str, laplace_: str, two_point: str, piecewise: str
) -> None:
    """In units of B², to the digits of the specification's table."""
    bound = 3.0
    table = {
        GaussianLabel(epsilon, bound, 1e-3): gaussian_3,
        GaussianLabel(epsilon, bound, 1e-5): gaussian_5,
        LaplaceLabel(epsilon, bound): laplace_,
        TwoPoint(epsilon, bound): two_point,
        Piecewise(epsilon, bound): piecewise,
    }
    for channel, expected in table.items():
        assert digits(channel.worst_variance / bound**2, expected) == expected, channel


@pytest.mark.parametrize(("epsilon", "expected"), [(1.0, "4.289"), (2.0, "1.042"), (4.0, "0.219")])
def test_the_hybrids_variance(epsilon: float, expected: str) -> None:
    """The closed form of Wang et al. (2019), the same for every label above 0.61."""
    root = math.exp(epsilon / 2)
    closed_form = (root + 3) / (3 * root * (root - 1)) + (root**2 + 1) ** 2 / (root * (root**2 - 1) ** 2)
    assert Hybrid(epsilon, 2.0).worst_variance / 4 == pytest.approx(closed_form, rel=1e-8)
    assert digits(closed_form, expected) == expected


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 0.5, 0.6, 0.609])
def test_below_061_the_hybrid_is_the_two_point_channel(epsilon: float) -> None:
    """No mixture is better there, and the simpler one is chosen."""
    assert Hybrid(epsilon, 1.0).mixing == 0
    assert type(best_label_channel(epsilon, 2.5)) is TwoPoint
    assert best_label_channel(epsilon, 2.5).bound == 2.5


@pytest.mark.parametrize("epsilon", [0.612, 0.7, 1.0, 1.29, 2.0, 8.0, 16.0])
def test_above_061_the_hybrid_is_chosen(epsilon: float) -> None:
    """It has less variance for the worst label than either of its parts, and than Laplace noise."""
    chosen = best_label_channel(epsilon, 2.5)
    assert type(chosen) is Hybrid
    assert chosen.mixing == pytest.approx(1 - math.exp(-epsilon / 2))
    for cls in (TwoPoint, Piecewise, LaplaceLabel):
        assert chosen.worst_variance < cls(epsilon, 2.5).worst_variance


@pytest.mark.parametrize(("epsilon", "first", "second"), [(1.28, TwoPoint, Piecewise), (1.30, Piecewise, TwoPoint)])
def test_piecewise_passes_two_point_at_129(epsilon: float, first: Any, second: Any) -> None:
    """Where the two published channels change places."""
    assert first(epsilon, 1.0).worst_variance < second(epsilon, 1.0).worst_variance


# --- epsilon, exactly ------------------------------------------------------------------------------------------------

# At 15.94 a chance that is rounded up, not down, passes the room.
MANY_EPSILONS = [1e-6, 1e-5, 1e-3, 0.1, 0.5, 1.0, 2.0, 5.0, 9.0, 12.0, 14.0, 15.94, 16.0]


@pytest.mark.parametrize("epsilon", MANY_EPSILONS)
def test_the_two_points_have_odds_of_e_to_the_epsilon(epsilon: float) -> None:
    """The coin's turning point gives the chance to the last bit: never above e^epsilon, and hardly below."""
    channel = TwoPoint(epsilon, 2.0)

    def chance(value: float) -> float:
        return turning_point(lambda u: channel.answer(np.array([[value]]), np.array([[u]])).item() == 1)

    up, down = chance(2.0), chance(-2.0)
    assert up == 1 - down
    for odds in (log_ratio(up, down), log_ratio(1 - down, 1 - up)):
        assert Decimal(epsilon) - Decimal("1e-8") <= odds <= Decimal(epsilon)
    assert chance(0.0) == 0.5
    inner = [chance(value) for value in (-9.0, -2.0, -1.0, -1e-9, 0.0, 1e-9, 1.0, 2.0, 9.0)]
    assert inner == sorted(inner)
    assert inner[0] == inner[1] == down
    assert inner[-1] == inner[-2] == up


@pytest.mark.parametrize("epsilon", MANY_EPSILONS)
@pytest.mark.parametrize("n_classes", [2, 3, 10, 1000])
def test_classes_have_odds_of_e_to_the_epsilon(epsilon: float, n_classes: int) -> None:
    """The true class against each of the others, from where the coins turn."""
    channel = RandomisedResponse(epsilon, 1.0, n_classes)
    for code in (0, 1, n_classes - 1):
        truth = turning_point(
            lambda u, code=code: channel.answer(np.array([[code]]), np.array([[u, 0.5]])).item() == code
        )
        odds = log_ratio(truth, float(n_classes - 1), 1 - truth, 1.0)
        assert Decimal(epsilon) - Decimal("1e-8") <= odds <= Decimal(epsilon)


@pytest.mark.parametrize("n_classes", [2, 3, 7])
def test_other_classes_are_equally_likely(n_classes: int) -> None:
    """A false answer is each of the other classes equally often, and never the true one."""
    channel = RandomisedResponse(1.0, 1.0, n_classes)
    places = (np.arange(n_classes * (n_classes - 1) * 100) + 0.5) / (n_classes * (n_classes - 1) * 100)
    for code in range(n_classes):
        uniforms = np.column_stack([np.full_like(places, 0.999), places])
        given_ = channel.answer(np.full((len(places), 1), code), uniforms)[:, 0]
        expected = np.full(n_classes, n_classes * 100)
        expected[code] = 0
        np.testing.assert_array_equal(np.bincount(given_, minlength=n_classes), expected)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0, 12.0, 16.0])
def test_the_piecewise_density_has_two_heights(epsilon: float) -> None:
    """Measured on the points themselves: a window of one height, the rest of the interval of another, e^epsilon apart;
    together they fill [-C, C], whatever the label."""
    channel = Piecewise(epsilon, 2.0)
    places = (np.arange(1000) + 0.5) / 1000
    for share in (-1.0, -0.3, 0.0, 0.8, 1.0):

        def points(near: float, share: float = share) -> np.ndarray:
            return channel.point(np.full(1000, share), np.column_stack([np.full(1000, near), places]))

        inside, outside = points(1e-9), points(1 - 1e-9)
        window = 1000 / 999 * (inside[-1] - inside[0])
        steps = np.diff(inside)
        np.testing.assert_allclose(steps, window / 1000, rtol=1e-9)
        low, high = inside[0] - window / 2000, inside[-1] + window / 2000
        assert not np.any((outside > low) & (outside < high))
        # The rest of the interval, without the window, is filled evenly.
        closed_up = np.where(outside > (low + high) / 2, outside - window, outside)
        length = 1000 / 999 * (closed_up[-1] - closed_up[0])
        np.testing.assert_allclose(np.diff(closed_up), length / 1000, rtol=1e-7)
        assert window + length == pytest.approx(2 * channel.reach, rel=1e-12)
        chance = turning_point(lambda u, points=points, low=low: bool(abs(points(u)[500] - points(1e-9)[500]) < 1e-12))
        ratio = math.log(chance / window) - math.log((1 - chance) / length)
        # The widths are measured: to 1e-12 of the interval, which is so much of the window.
        assert ratio == pytest.approx(epsilon, abs=1e-8 + 1e-11 / window)


def wide_bins(channel: LabelChannel, values: tuple[float, ...]) -> np.ndarray:
    """Chances of the answers to each value, in 32 bins that are the same for all."""
    given_ = [computed(channel, value) for value in values]
    most = max(float(np.quantile(np.abs(each), 0.99)) for each in given_)
    edges = np.r_[-np.inf, np.linspace(-most, most, 31), np.inf]
    return np.array([np.histogram(each, edges)[0] for each in given_]) / len(given_[0])


def furthest_apart(laws: np.ndarray) -> float:
    """The greatest log of a ratio of chances, over all pairs of laws and all bins of two percent or more."""
    ratios = [first[large] / second[large] for first in laws for second in laws if any(large := first >= 0.02)]
    return float(np.log(np.concatenate(ratios).max()))


@pytest.mark.parametrize("name", PURE)
@pytest.mark.parametrize("epsilon", [0.3, *EPSILONS])
def test_no_two_labels_have_answers_further_apart_than_epsilon(name: str, epsilon: float) -> None:
    """The law of the answers, computed to half a percent: for the worst pair of labels some answers are e^epsilon times
    as likely, and none are more."""
    laws = wide_bins(PURE[name](epsilon, 2.0), (-2.0, -1.1, 0.0, 0.3, 2.0, 50.0))
    np.testing.assert_allclose(laws.sum(axis=1), 1.0)
    assert epsilon - 0.01 <= furthest_apart(laws) <= epsilon + 0.005
    np.testing.assert_array_equal(laws[4], laws[5])
    # Half of the bound apart they are harder to tell.
    assert furthest_apart(laws[2:4]) < (0.7 * epsilon if name in ("two_point", "laplace") else epsilon + 0.005)


@pytest.mark.parametrize("delta", [1e-2, 1e-3])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_gaussian_channel_has_its_delta(epsilon: float, delta: float) -> None:
    """The law of the answers, computed: of all events beyond a threshold the worst has the delta, but for the grid."""
    channel = GaussianLabel(epsilon, 2.0, delta)
    first, second = (np.sort(computed(channel, value)) for value in (2.0, -2.0))
    thresholds = np.unique(np.r_[first, second])
    beyond = [1 - np.searchsorted(given_, thresholds) / len(given_) for given_ in (first, second)]
    assert np.max(beyond[0] - math.exp(epsilon) * beyond[1]) == pytest.approx(
        delta, rel=0.01, abs=math.exp(epsilon) * 2.0**-19
    )


@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-9])
@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 16.0])
def test_the_gaussian_scale_is_the_exact_one(epsilon: float, delta: float) -> None:
    """delta(epsilon) of Balle and Wang at the channel's own scale: never above, and within 1e-5 of it."""
    mu = 2 / GaussianLabel(epsilon, 1.0, delta).scale
    exact = ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu))
    assert delta * (1 - 1e-5) <= exact <= delta


@pytest.mark.parametrize("value", [-3.0, 0.0, 1.2, 3.0, 1e9])
def test_noise_is_the_quantile_of_its_uniform(value: float) -> None:
    """Laplace noise of scale 2B/epsilon and Gaussian noise of scale 2B/mu, at every quantile, but for the grid."""
    levels = np.r_[2.0**-53, 1e-9, np.linspace(1e-4, 1 - 1e-4, 501), 1 - 1e-9, 1 - 2.0**-53]
    gaussian = GaussianLabel(1.5, 3.0, 1e-5)
    for channel, law in (
        (LaplaceLabel(1.5, 3.0), laplace(scale=2 * 3.0 / 1.5)),
        (gaussian, norm(scale=math.sqrt(gaussian.worst_variance))),
    ):
        uniforms = np.full((len(levels), channel.n_uniforms), 0.5)
        uniforms[:, 0] = levels
        given_ = channel.answer(np.full((len(levels), 1), value), uniforms)[:, 0]
        expected = np.clip(value, -3.0, 3.0) + law.ppf(levels)
        # Half a unit for the noise, and one for the value, which is rounded by chance.
        np.testing.assert_allclose(channel.unit * given_[1:-1], expected[1:-1], rtol=1e-8, atol=1.501 * channel.unit)
        assert np.all(np.diff(given_) >= 0)
        assert channel.unit <= law.std() * 2.0**-11


def test_which_part_of_the_hybrid_answers_does_not_depend_on_the_label() -> None:
    """The first uniform alone decides, at the stated chance, and the parts answer as they do by themselves."""
    channel = Hybrid(1.5, 2.0)
    two_point, piecewise = TwoPoint(1.5, 2.0), Piecewise(1.5, 2.0)
    rest = SeededUniforms(4, range(300)).draw(300, 2)
    for value in (-2.0, -0.7, 0.0, 1.9, 2.0, 77.0):
        values = np.full((300, 1), value)

        def said(first: float, values: np.ndarray = values) -> np.ndarray:
            return channel.unit * channel.answer(values, np.column_stack([np.full(300, first), rest]))[:, 0]

        turns = turning_point(lambda u, said=said: not np.array_equal(said(u), said(1 - 2.0**-53)))
        assert turns == pytest.approx(1 - math.exp(-1.5 / 2), abs=1e-12)
        np.testing.assert_allclose(said(0.999), two_point.unit * two_point.answer(values, rest)[:, 0], rtol=1e-12)
        shares = np.clip(values[:, 0] / 2.0, -1, 1)
        np.testing.assert_allclose(said(1e-6), 2.0 * piecewise.point(shares, rest), atol=0.501 * channel.unit)


# --- answers ---------------------------------------------------------------------------------------------------------

NAMES = [*PURE, "gaussian"]


@pytest.mark.parametrize("name", NAMES)
def test_every_label_has_the_same_lattice_of_answers(name: str) -> None:
    """No answer tells a label by its last digits: about the middle every whole number is answered to every label."""
    channel = make(name, 1.0, 2.0)
    # Beyond the half unit about 0 a two-point channel has nothing; other ranges are well filled by 2^19 points.
    inner = {"two_point": 1, "piecewise": 4096, "hybrid": 4096, "laplace": 2000, "gaussian": 2000}[name]
    every = np.array([-1, 1]) if name == "two_point" else np.arange(-inner, inner + 1)
    for value in (-2.0, -1.234567, 0.0, 1e-5, 1.9, 2.0):
        found = np.unique(computed(channel, value))
        np.testing.assert_array_equal(found[np.abs(found) <= inner], every)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("epsilon", [1e-6, 0.7, 3.0, 16.0])
def test_answers_are_whole_numbers_within_the_largest(name: str, epsilon: float) -> None:
    """Integers, and possible ones; the largest is neither passed at the ends of the uniforms nor far from reached."""
    channel = make(name, epsilon, 2.0)
    ends = np.array([2.0**-53, 0.2, 0.7, 1 - 2.0**-53])
    if channel.n_uniforms > 3:
        ends = ends[[0, 3]]
    cube = np.array(np.meshgrid(*[ends] * channel.n_uniforms)).reshape(channel.n_uniforms, -1).T
    every = []
    for value in (-2.0, 0.0, 0.3, 2.0, 1e300):
        given_ = channel.answer(np.full((len(cube), 1), value), cube)
        assert given_.dtype == np.int64
        assert given_.shape == (len(cube), 1)
        assert all(channel.possible(answer) for answer in given_)
        every.append(np.abs(given_).max())
    assert max(every) <= channel.largest
    if not (name == "hybrid" and epsilon < 0.61):  # then it is a two-point channel with room for more
        assert max(every) >= 0.8 * channel.largest
    if name in ("laplace", "gaussian"):  # every label gives the last answers on either side
        assert min(every) == channel.largest


@pytest.mark.parametrize("name", NAMES)
def test_impossible_answers_are_known(name: str) -> None:
    """Numbers beyond the largest, and more or fewer numbers than one."""
    channel = make(name, 1.0, 2.0)
    assert channel.possible(np.array([channel.largest]))
    assert channel.possible(np.array([-channel.largest]))
    beyond = channel.largest + 1
    for wrong in ([beyond], [-beyond], [2**62], [-(2**63)], [1, 1], [], [[1]]):
        assert not channel.possible(np.array(wrong, dtype=np.int64)), wrong
    assert channel.possible(np.array([0])) == (name != "two_point")


def test_impossible_classes_are_known() -> None:
    """Classes are numbered from 0."""
    channel = RandomisedResponse(1.0, 1.0, 3)
    assert all(channel.possible(np.array([code])) for code in range(3))
    for wrong in ([3], [-1], [0, 1], [], [[1]]):
        assert not channel.possible(np.array(wrong, dtype=np.int64)), wrong


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_depends_on_the_users_own_label_and_uniforms_alone(name: str) -> None:
    """Many users at once answer what each of them answers alone."""
    channel = make(name, 1.0, 2.0)
    values = np.random.default_rng(0).normal(size=(30, 1))
    uniforms = SeededUniforms(0, range(30)).draw(30, channel.n_uniforms)
    alone = [channel.answer(values[[user]], uniforms[[user]])[0] for user in range(30)]
    np.testing.assert_array_equal(channel.answer(values, uniforms), alone)


# --- unbiasedness and variance ---------------------------------------------------------------------------------------


def z_score(numbers: np.ndarray, expected: float) -> float:
    return float((numbers.mean() - expected) / (numbers.std() / math.sqrt(len(numbers))))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("value", [0.0, 0.6, -1.7, 2.0, 5.0, -1e300])
def test_answers_are_unbiased(name: str, epsilon: float, value: float) -> None:
    """Within the bound, at it, and beyond it, where a label counts as the bound."""
    channel = make(name, epsilon, 2.0)
    estimates = channel.unit * answers(channel, value, 150_000, seed=1)
    expected = float(np.clip(value, -2.0, 2.0))
    assert abs(z_score(estimates, expected)) < LARGEST_Z
    if abs(expected) == 2.0:
        for factor in (2 / 3, 1.5):
            assert abs(z_score(estimates, factor * expected)) > LARGEST_Z


def stated_variance(channel: LabelChannel, share: float) -> float:
    """The variance for a label of `share` bounds, from the papers."""
    if isinstance(channel, TwoPoint):
        return channel.worst_variance - (share * channel.bound) ** 2
    return channel.variance(share) if isinstance(channel, Piecewise) else channel.worst_variance


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("epsilon", [1.0, 3.0])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_variances_are_what_is_stated(name: str, epsilon: float, share: float) -> None:
    """Drawn answers have the stated variance, and not 2/3 or 3/2 of it; none has more than for the worst label."""
    channel = make(name, epsilon, 2.0)
    squares = (channel.unit * answers(channel, 2.0 * share, 100_000, seed=2) - 2.0 * share) ** 2
    stated = stated_variance(channel, share)
    assert stated <= channel.worst_variance * (1 + 1e-9)
    for factor, right in ((1.0, True), (2 / 3, False), (1.5, False)):
        # A two-point answer to 0 has but one square.
        spread = max(squares.std() / math.sqrt(len(squares)), 1e-9 * stated)
        assert (abs(squares.mean() - factor * stated) < LARGEST_Z * spread) == right, factor


def test_the_worst_label_is_the_worst() -> None:
    """For 0 with two points, for the bound with a piecewise density; below 0.61 the hybrid's is the two points'."""
    assert TwoPoint(1.0, 2.0).worst_variance == stated_variance(TwoPoint(1.0, 2.0), 0.0)
    assert Piecewise(1.0, 2.0).worst_variance == stated_variance(Piecewise(1.0, 2.0), 1.0)
    assert Hybrid(0.4, 2.0).worst_variance == TwoPoint(0.4, 2.0).worst_variance


# --- classes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3, 10])
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_indicators_of_classes_are_unbiased(n_classes: int, epsilon: float) -> None:
    """Their rows sum to 1, their means are the true class, and their variances together are what is stated."""
    channel = RandomisedResponse(epsilon, 1.0, n_classes)
    for code in (0, n_classes - 1):
        given_ = answers(channel, float(code), 100_000, seed=code)
        estimates = channel.indicators(given_)
        assert estimates.shape == (100_000, n_classes)
        np.testing.assert_allclose(estimates[:100].sum(axis=1), 1.0)
        for other in range(n_classes):
            assert abs(z_score(estimates[:, other], float(other == code))) < LARGEST_Z
        assert estimates.var(axis=0).sum() == pytest.approx(channel.worst_variance, rel=0.03)
        truth = 1 / (1 + (n_classes - 1) * math.exp(-epsilon))
        expected = np.full(n_classes, (1 - truth) / (n_classes - 1))
        expected[code] = truth
        observed = np.bincount(given_, minlength=n_classes)
        assert chisquare(observed, 100_000 * expected).pvalue > ALPHA
        for odds in (2 / 3, 1.5):
            wrong = expected.copy()
            wrong[code] *= odds
            assert chisquare(observed, 100_000 * wrong / wrong.sum()).pvalue < ALPHA


def test_indicators_without_debiasing_lean() -> None:
    """The bare shares of answers are told from unbiased estimates by the same score."""
    given_ = answers(RandomisedResponse(2.0, 1.0, 3), 1.0, 100_000, seed=1)
    assert abs(z_score((given_ == 1).astype(float), 1.0)) > LARGEST_Z


@pytest.mark.parametrize(("value", "code"), [(-5.0, 0), (99.0, 3), (math.nan, 0), (1e308, 3), (2.0, 2), (-0.0, 0)])
def test_labels_that_are_no_class_count_as_the_nearest(value: float, code: int) -> None:
    """With the same uniforms they answer what that class answers."""
    channel = RandomisedResponse(1.0, 1.0, 4)
    np.testing.assert_array_equal(answers(channel, value, 200, seed=0), answers(channel, float(code), 200, seed=0))


# --- any label of a user ---------------------------------------------------------------------------------------------


@given(
    value=st.one_of(
        st.floats(),
        st.sampled_from([0.0, -0.0, 1e308, -1.7e308, 1e-320, -5e-324, math.nan, math.inf, -math.inf]),
    ),
    epsilon=st.floats(1e-6, 16.0),
    bound=st.sampled_from([1e-100, 1.0, 1e100]),
    name=st.sampled_from([*NAMES, "randomised_response"]),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=300, deadline=None)
def test_extreme_labels_are_answered_like_others(
    value: float, epsilon: float, bound: float, name: str, seed: int
) -> None:
    """No error, no warning, a possible answer; beyond the bound it is the bound's, and NaN is 0."""
    classes = name == "randomised_response"
    channel: Channel = RandomisedResponse(epsilon, 1.0, 5) if classes else make(name, epsilon, bound)
    uniforms = SeededUniforms(seed, [0]).draw(1, channel.n_uniforms)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        answer = channel.answer(np.array([[value]]), uniforms)
    assert channel.possible(answer[0])
    low, high = (0.0, 4.0) if classes else (-bound, bound)
    counted = 0.0 if math.isnan(value) else min(max(value, low), high)
    np.testing.assert_array_equal(answer, channel.answer(np.array([[counted]]), uniforms))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("value", "counted"), [(math.nan, 0.0), (1e308, 2.0), (math.inf, 2.0), (-math.inf, -2.0), (2.5, 2.0), (-0.0, 0.0)]
)
def test_labels_beyond_the_bound_answer_what_the_bound_answers(name: str, value: float, counted: float) -> None:
    """With the same uniforms, and without a warning; what is not a number counts as 0."""
    channel = make(name, 1.0, 2.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        given_ = answers(channel, value, 500, seed=3)
    np.testing.assert_array_equal(given_, answers(channel, counted, 500, seed=3))


# --- audits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*PURE, "randomised_response"])
def test_an_audit_finds_epsilon_and_no_more(name: str) -> None:
    """What an attacker can tell from answers is at least 0.9 epsilon, and never above it."""
    channel: Channel = RandomisedResponse(1.0, 1.0, 3) if name == "randomised_response" else make(name, 1.0, 2.0)
    result = audit_channel(channel, runs=100_000, seed=1)
    assert not result.refuted
    assert 0.9 <= result.epsilon <= 1.0


def test_an_audit_of_the_gaussian_channel() -> None:
    """At its delta an attacker can tell a good part of epsilon, and no more than it."""
    result = audit_channel(GaussianLabel(1.0, 2.0, 1e-2), runs=100_000, seed=1)
    assert not result.refuted
    assert 0.5 <= result.epsilon <= 1.0


def leaky(name: str) -> Channel:
    """A channel with a planted bug: chances of one and a half times the epsilon that is promised."""

    class Leaky(RandomisedResponse if name == "randomised_response" else PURE[name]):  # type: ignore[misc]
        kept_epsilon = property(lambda self: 1.5 * self.epsilon)

        @cached_property
        def _parts(self) -> tuple[TwoPoint, Piecewise]:
            return TwoPoint(1.5 * self.epsilon, self.bound), Piecewise(1.5 * self.epsilon, self.bound)

    return Leaky(1.0, 1.0, 3) if name == "randomised_response" else Leaky(1.0, 2.0)


@pytest.mark.parametrize("name", [*PURE, "randomised_response"])
def test_an_audit_refutes_a_channel_with_too_little_noise(name: str) -> None:
    """Chances of 1.5 epsilon are found out."""
    result = audit_channel(leaky(name), runs=50_000, seed=1)
    assert result.refuted
    assert result.epsilon > 1.2


def test_an_audit_takes_two_labels_of_ones_own() -> None:
    """Closer labels are harder to tell apart; the same ones cannot be."""
    channel = TwoPoint(2.0, 1.0)
    close = audit_channel(channel, 0.5, -0.5, runs=50_000, seed=1)
    same = audit_channel(channel, 0.5, 0.5, runs=50_000, seed=1)
    assert same.epsilon < 0.1 < close.epsilon < 1.0


# --- bad parameters --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0, -1, 9e-7, math.nan, math.inf, 51, 16.001, True, "1", None])
@pytest.mark.parametrize("name", [*NAMES, "randomised_response"])
def test_a_bad_epsilon_is_refused(name: str, epsilon: Any) -> None:
    """The message says which parameter and what range."""
    with pytest.raises(ValueError, match=r"epsilon=.*finite number > 0 from 1e-06 to 16, got"):
        _ = RandomisedResponse(epsilon, 1.0, 3) if name == "randomised_response" else make(name, epsilon, 1.0)


@pytest.mark.parametrize("bound", [0, -1.0, 1e-101, 1e101, math.nan, math.inf, True, "1", None])
@pytest.mark.parametrize("name", NAMES)
def test_a_bad_bound_is_refused(name: str, bound: Any) -> None:
    """The message says which parameter and what range."""
    with pytest.raises(ValueError, match=r"bound=.*finite number > 0 from 1e-100 to 1e\+100, got"):
        make(name, 1.0, bound)


@pytest.mark.parametrize("delta", [0, 0.0, 1.0, 1, -0.1, 1e-101, math.nan, math.inf, None, "0.1", True])
def test_a_bad_delta_is_refused(delta: Any) -> None:
    """Gaussian noise has a delta strictly between 0 and 1."""
    with pytest.raises(ValueError, match=r"GaussianLabel needs a delta in \[1e-100, 1\)"):
        GaussianLabel(1.0, 1.0, delta)


@pytest.mark.parametrize("n_classes", [1, 0, -2, 2.0, "3", None, True])
def test_a_bad_number_of_classes_is_refused(n_classes: Any) -> None:
    """At least two."""
    with pytest.raises(ValueError, match=r"n_classes=.*integer >= 2"):
        RandomisedResponse(1.0, 1.0, n_classes)


def test_a_bound_on_classes_is_refused() -> None:
    """There is nothing to bound."""
    with pytest.raises(ValueError, match=r"no bound: use bound=1\.0"):
        RandomisedResponse(1.0, 2.0, 3)


@pytest.mark.parametrize("name", NAMES)
def test_every_channel_but_the_gaussian_is_pure(name: str) -> None:
    """Their delta is 0 as computed: finite precision takes nothing, and epsilon keeps a little room instead."""
    channel = make(name, 1.0, 2.0)
    assert channel.delta == (1e-3 if name == "gaussian" else 0.0)
    assert channel.rounding == channel.arithmetic_delta == 0
    assert 0 < channel.epsilon - channel.kept_epsilon < 1e-8
    assert 0 < 1.0 - RandomisedResponse(1.0, 1.0, 1000).kept_epsilon < 1e-8
    assert RandomisedResponse(1.0, 1.0, 1000).delta == 0


def test_more_classes_than_the_lattice_serves_are_refused() -> None:
    RandomisedResponse(1.0, 1.0, 2**22)
    with pytest.raises(ValueError, match="must be at most 4,194,304"):
        RandomisedResponse(1.0, 1.0, 2**22 + 1)


# --- the law as computed, point by point of the lattice of uniforms --------------------------------------------------


def counts(answer: Callable[[np.ndarray], np.ndarray], largest: int) -> np.ndarray:
    """How many of 2^52 uniforms give each answer, -largest to largest, where answers rise with the uniform."""
    wanted = np.arange(-largest, largest + 2)
    low, high = np.zeros(len(wanted), dtype=np.int64), np.full(len(wanted), 2**52)
    for _ in range(53):  # the first uniform whose answer is `wanted` or more
        middle = (low + high) // 2
        reached = (answer((np.minimum(middle, 2**52 - 1) + 0.5) * 2.0**-52) >= wanted) | (middle == 2**52)
        low, high = np.where(reached, low, np.minimum(middle + 1, high)), np.where(reached, middle, high)
    return np.diff(high)


def law_of(channel: Piecewise | Hybrid, value: float) -> np.ndarray:
    """The chances of all answers of the piecewise part, in units of 2^-104."""
    first = np.full(2 * channel.largest + 2, 0.0)  # the hybrid's: always the piecewise part
    parts = []
    for near in (2.0**-53, 1 - 2.0**-53):

        def answer(place: np.ndarray, near: float = near) -> np.ndarray:
            columns = [np.full(len(place), near), place]
            columns = [first, *columns] if isinstance(channel, Hybrid) else columns
            return channel.answer(np.full((len(place), 1), value), np.column_stack(columns))[:, 0]

        parts.append(counts(answer, channel.largest).astype(object))
    kept = (channel._parts[1] if isinstance(channel, Hybrid) else channel).kept_epsilon
    inside = math.floor(1 / (1 + math.exp(-kept / 2)) * 2.0**52)
    law = inside * parts[0] + (2**52 - inside) * parts[1]
    assert law.sum() == 2**104
    return law


@pytest.mark.parametrize("cls", [Piecewise, Hybrid])
@pytest.mark.parametrize("epsilon", [0.7, 1.0, 4.0, 16.0])
def test_no_answer_of_the_lattice_passes_epsilon(cls: type[Piecewise | Hybrid], epsilon: float) -> None:
    """Every answer's chance is counted in whole points of the lattice, for labels that lie anyhow: no two are more than
    e^epsilon apart, so that no delta is needed; and some are nearly so."""
    channel = cls(epsilon, 2.0)
    laws = [law_of(channel, value) for value in (-2.0, -1.2345678, -1e-9, 0.0, 0.7, 1.999, 2.0)]
    least, most = np.min(laws, axis=0), np.max(laws, axis=0)
    assert np.all(least > 0)
    ratio = max(log_ratio(float(high), float(low)) for low, high in zip(least, most))
    assert epsilon - 1e-6 <= ratio <= epsilon


@pytest.mark.parametrize("n_classes", [3, 7, 1000])
def test_other_classes_keep_epsilon_on_the_lattice(n_classes: int) -> None:
    """The rarest false answer against the true one, in whole points."""
    channel = RandomisedResponse(2.0, 1.0, n_classes)

    def other(place: np.ndarray) -> np.ndarray:
        columns = np.column_stack([np.full(len(place), 1 - 2.0**-53), place])
        return channel.answer(np.zeros((len(place), 1)), columns)[:, 0]

    points = counts(other, n_classes - 1)[n_classes:]
    assert points.sum() == 2**52
    truth = channel.chance
    assert log_ratio(truth, 2.0**52, 1 - truth, float(points.min())) <= 2


def uniforms_of(bits: int) -> np.ndarray:
    """Uniforms whose bits these are, 208 of them, and one that rounds a label down."""
    chunks = [(bits >> (52 * k)) % 2**52 for k in (3, 2, 1, 0)]
    return np.array([[*((chunk + 0.5) * 2.0**-52 for chunk in chunks), 1 - 2.0**-53]])


@pytest.mark.parametrize("epsilon", [1e-6, 1.0, 16.0])
def test_the_last_laplace_answers_have_their_chances_to_twenty_digits(epsilon: float) -> None:
    """Under 52 bits an answer out there named its side for certain; now each label gives it, at the chance that the law
    has: the first of 2^208 draws that reaches it is where it should be."""
    channel = LaplaceLabel(epsilon, 2.0)
    steps = Decimal(channel.scale * channel.steps)
    for value, place in ((-2.0, channel.largest), (2.0, channel.largest), (2.0, channel.largest - 1)):
        low, high = 0, 2**208
        while high - low > 1:
            middle = (low + high) // 2
            reached = channel.answer(np.array([[value]]), uniforms_of(middle)).item() >= place
            low, high = (low, middle) if reached else (middle, high)
        noise = place - math.copysign(channel.steps, value)
        with localcontext() as context:
            context.prec = 80
            expected = (-(Decimal(noise) - Decimal("0.5")) / steps).exp() / 2
            assert abs((2**208 - high) / Decimal(2) ** 208 / expected - 1) < Decimal("1e-20")


def test_a_label_between_two_units_is_rounded_by_chance_and_never_past_the_bound() -> None:
    """Without bias: at a small epsilon the bound itself is one unit."""
    channel = LaplaceLabel(1e-6, 1.0)
    assert channel.steps == 1
    coins = (np.arange(1000) + 0.5) / 1000
    uniforms = np.column_stack([*np.full((4, 1000), 0.5), coins])
    middle = channel.answer(np.zeros((1, 1)), uniforms[:1]).item()
    for share in (-1.0, -0.25, 0.0, 0.5, 1.0):
        given_ = channel.answer(np.full((1000, 1), share), uniforms) - middle
        assert given_.mean() == pytest.approx(share, abs=1e-9)
        assert np.abs(given_).max() <= 1
