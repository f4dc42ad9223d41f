"""Randomisers of vectors in a ball: constants, exact epsilon, the law that is drawn, and what a server can be told.

Each statistical test rejects a right law with probability below 1e-6, were its seed drawn anew; each is paired with a
wrong constant, which the same test must reject.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import gammaln
from scipy.stats import beta, kstest

from tulle.audit import audit_channel
from tulle.local.user_side.ball import PrivUnit, best_cap, cap_share, mean_component
from tulle.local.user_side.uniforms import SeededUniforms

ALPHA = 1e-6
LARGEST_Z = 5.0  # passed with probability 6e-7

BALLS = {"hemisphere": PrivUnit.hemisphere, "priv_unit": PrivUnit.best}


def answers(channel: PrivUnit, value: Any, users: int, seed: int) -> np.ndarray:
    """What users with one and the same value answer."""
    uniforms = SeededUniforms(seed, [0]).draw(1, users * channel.n_uniforms).reshape(users, channel.n_uniforms)
    return channel.answer(np.tile(np.asarray(value, dtype=float), (users, 1)), uniforms)


def some_direction(dimension: int, seed: int = 3) -> np.ndarray:
    vector = np.random.default_rng(seed).normal(size=dimension)
    return vector / np.linalg.norm(vector)


# --- constants -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epsilon", "hemisphere", "priv_unit", "gain"),
    [
        (0.5, 161.8, 158.6, 1.04),
        (1.0, 85.7, 79.5, 1.16),
        (2.0, 52.0, 40.2, 1.67),
        (4.0, 41.1, 20.9, 3.88),
        (8.0, 39.6, 11.5, 11.8),
    ],
)
def test_norms_of_answers_at_a_thousand_dimensions(
    epsilon: float, hemisphere: float, priv_unit: float, gain: float
) -> None:
    """Norms in units of the radius, and the gain in variance, to the digits of the specification's table."""
    norms = [math.sqrt(make(epsilon, 2.5, 1000).worst_variance) / 2.5 for make in BALLS.values()]
    assert [round(norm, 1) for norm in norms] == [hemisphere, priv_unit]
    assert float(f"{(norms[0] / norms[1]) ** 2:.3g}") == gain


@pytest.mark.parametrize("dimension", [1, 2, 3, 10, 100, 1000, 100_000])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 6.0])
def test_the_hemisphere_has_the_published_norm(dimension: int, epsilon: float) -> None:
    """r B_p in both of its closed forms, Duchi's and the one of Wang and Xu."""
    p = dimension
    duchi = math.sqrt(math.pi) * math.exp(gammaln((p + 1) / 2) - gammaln(p / 2))
    wang = math.sqrt(math.pi) / 2 * p * math.exp(gammaln((p - 1) / 2 + 1) - gammaln(p / 2 + 1))
    channel = PrivUnit.hemisphere(epsilon, 3.0, dimension)
    for closed_form in (duchi, wang):
        expected = 3.0 * closed_form * (math.exp(epsilon) + 1) / (math.exp(epsilon) - 1)
        assert channel.unit * channel.largest == pytest.approx(expected, rel=1e-8)


def test_constants_of_the_specification() -> None:
    """B(p=100, eps=1), and height and norm of the best cap at p=100, eps=4."""
    hemisphere, best = PrivUnit.hemisphere(1.0, 1.0, 100), PrivUnit.best(4.0, 1.0, 100)
    assert f"{1 / hemisphere.mean:.3f}" == "27.053"
    assert f"{best.cap:.5f}" == "0.15107"
    assert f"{1 / best.mean:.4f}" == "6.6195"


def of_the_sphere(height: float, dimension: int, weight: float = 0.0) -> float:
    """The integral of t^weight over the part of the sphere with t >= height, by quadrature over the angle."""
    low = math.asin(height)
    high = min(math.pi / 2, low + 60 / math.sqrt(dimension))

    def density(angle: float) -> float:
        return math.sin(angle) ** weight * math.exp((dimension - 2) * math.log(max(math.cos(angle), 1e-300)))

    whole = math.sqrt(math.pi) * math.exp(gammaln((dimension - 1) / 2) - gammaln(dimension / 2))
    return quad(density, low, high, epsabs=0, epsrel=1e-11, limit=200)[0] / whole


@pytest.mark.parametrize(
    ("dimension", "height"),
    [(2, 0.0), (2, 0.9), (3, 0.3), (3, 0.999), (10, 0.0), (10, 0.8), (1000, 0.05), (1000, 0.2), (100_000, 0.02)],
)
def test_share_and_mean_agree_with_quadrature(dimension: int, height: float) -> None:
    """The share of the sphere in the cap, and the mean component of an answer."""
    share = of_the_sphere(height, dimension)
    assert cap_share(height, dimension) == pytest.approx(share, rel=1e-8)
    moment = of_the_sphere(height, dimension, 1.0)
    chance = 0.7
    expected = chance * moment / share - (1 - chance) * moment / (1 - share)
    assert mean_component(chance, height, share, dimension) == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("dimension", [2, 3, 7, 100, 10_000])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 10.0])
def test_no_other_cap_has_less_noise(dimension: int, epsilon: float) -> None:
    """The best cap against a fine grid of heights, all of them as private."""
    best = PrivUnit.best(epsilon, 1.0, dimension)
    heights = np.r_[0.0, np.geomspace(1e-3, 0.999, 400)]
    heights = [height for height in heights if cap_share(height, dimension) > 1e-8]
    norms = [math.sqrt(PrivUnit(epsilon, 1.0, dimension, float(height)).worst_variance) for height in heights]
    assert math.sqrt(best.worst_variance) <= min(norms) * (1 + 1e-6)
    # And the grid is fine enough to come close: the best is no figment.
    assert math.sqrt(best.worst_variance) >= min(norms) * (1 - 1e-2)


@pytest.mark.parametrize("dimension", [1, 2, 3, 4, 5, 10, 1000, 100_000])
@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 0.5, 5.0, 10.0, 14.5, 16.0])
def test_the_best_cap_exists_at_every_epsilon(dimension: int, epsilon: float) -> None:
    """It is a height in [0, 1) that is at least as good as the hemisphere, and the same at every call."""
    best = PrivUnit.best(epsilon, 1.0, dimension)
    assert 0 <= best.cap < 1
    assert best.cap == best_cap.__wrapped__(epsilon, dimension)
    assert best.worst_variance <= PrivUnit.hemisphere(epsilon, 1.0, dimension).worst_variance * (1 + 1e-9)


# --- epsilon, exactly ------------------------------------------------------------------------------------------------


def log_density_ratio(channel: PrivUnit) -> Decimal:
    """Log of the density inside of the cap over the one outside, of just the floats that answers are drawn with."""
    with localcontext() as context:
        context.prec = 50
        chance, share = Decimal(channel.chance), Decimal(channel.share)
        return (chance / (1 - chance)).ln() - (share / (1 - share)).ln()


@pytest.mark.parametrize("dimension", [1, 2, 3, 10, 1000, 100_000])
@pytest.mark.parametrize("epsilon", [1e-6, 0.01, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0, 12.0, 16.0])
def test_densities_differ_by_e_to_the_epsilon_and_no_more(dimension: int, epsilon: float) -> None:
    """Never above, and within 1e-8 below, whatever the height of the cap."""
    heights = {0.0} if dimension == 1 else {0.0, 0.5 / math.sqrt(dimension), 2 / (2 + math.sqrt(dimension))}
    channels = [PrivUnit(epsilon, 1.0, dimension, height) for height in heights]
    for channel in [*channels, PrivUnit.best(epsilon, 1.0, dimension)]:
        assert Decimal(epsilon) - Decimal("1e-8") <= log_density_ratio(channel) <= Decimal(epsilon)


def test_chances_are_rounded_down() -> None:
    """At a thousand epsilons: odds keep below e^epsilon even where a last bit of the chance is worth 1e-9 of them."""
    for epsilon in [*np.geomspace(1e-6, 15.0, 500).tolist(), *np.linspace(15.0, 16.0, 500).tolist()]:
        channel = PrivUnit.hemisphere(epsilon, 1.0, 5)
        assert channel.chance * 2**52 == round(channel.chance * 2**52)
        assert log_density_ratio(channel) <= Decimal(epsilon)


@pytest.mark.parametrize("epsilon", [np.float32(1.0), np.float16(2.0), np.int64(3), np.float32(0.1)])
def test_an_epsilon_of_few_bits_is_kept_too(epsilon: Any) -> None:
    """An epsilon of another type of number is the same promise."""
    for channel in (PrivUnit.hemisphere(epsilon, 1.0, 5), PrivUnit.best(epsilon, 1.0, 5)):
        assert float(epsilon) - 1e-8 <= log_density_ratio(channel) <= Decimal(float(epsilon))


def test_a_wrong_chance_has_another_ratio() -> None:
    """The ratio tells a chance that forgets the share, and one of twice the epsilon."""

    class Forgetful(PrivUnit):
        chance = property(lambda self: 1 / (1 + math.exp(-self.epsilon)))  # type: ignore[assignment]

    class Doubled(PrivUnit):
        kept_epsilon = property(lambda self: 2 * self.epsilon)

    assert log_density_ratio(Forgetful(1.0, 1.0, 10, 0.3)) > 2.4
    assert float(log_density_ratio(Doubled(1.0, 1.0, 10, 0.3))) == pytest.approx(2.0)


def turning_point(is_below: Any) -> float:
    """The uniform below which a statement holds, and above which it does not, to the last bit."""
    low, high = 0.0, 1.0
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (middle, high) if is_below(middle) else (low, middle)
    return high


@pytest.mark.parametrize("dimension", [2, 3, 20])
@pytest.mark.parametrize("kind", BALLS)
def test_answers_are_drawn_with_the_stated_chance_share_and_sign(kind: str, dimension: int) -> None:
    """Driven uniform by uniform: the coin for the cap turns at its chance, heights end at the cap, the sign's coin
    turns at 1/2 + |v|/(2r), whatever the value."""
    channel = BALLS[kind](2.0, 5.0, dimension)
    direction = some_direction(dimension)
    rest = np.full(dimension, 0.3)

    def along(coin: float, inside: float, height: float, length: float = 5.0) -> float:
        uniforms = np.r_[coin, inside, height, rest][None, :]
        return float((channel.answer(length * direction[None, :], uniforms) @ direction)[0] / channel.largest)

    tolerance = 1.0 / channel.largest * math.sqrt(dimension)
    assert turning_point(lambda u: along(0.1, u, 0.5) > channel.cap) == pytest.approx(channel.chance, abs=1e-15)
    edges = [along(0.1, 0.1, 2.0**-54), along(0.1, 0.1, 1 - 2.0**-53), along(0.1, 1 - 1e-9, 2.0**-54)]
    edges.append(along(0.1, 1 - 1e-9, 1 - 2.0**-53))
    np.testing.assert_allclose(edges[1:3], channel.cap, atol=tolerance)
    # Half of a part of the sphere lies above the median of that part.
    for inside, low, high in ((0.1, channel.cap, 1.0), (1 - 1e-9, -1.0, channel.cap)):
        middle = along(0.1, inside, 0.5)
        share = beta.cdf((1 + np.array([low, middle, high])) / 2, (dimension - 1) / 2, (dimension - 1) / 2)
        assert share[1] - share[0] == pytest.approx(share[2] - share[1], rel=0.02)
    for length in (0.01, 2.0, 4.9):
        turns = turning_point(lambda u, length=length: along(u, 0.1, 0.001, length) > 0)
        assert turns == pytest.approx(0.5 + length / 10, abs=1e-15)
    assert along(1 - 2.0**-53, 0.1, 0.001) > 0
    assert along(1 - 2.0**-53, 0.1, 0.001, 1e300) > 0


# --- the law that is drawn -------------------------------------------------------------------------------------------


def cap_mixture(t: np.ndarray, channel: PrivUnit, odds: float = 1.0) -> np.ndarray:
    """The exact distribution of the component along the value's direction, with a multiple of the right odds."""
    half = (channel.dimension - 1) / 2
    uniform = partial(beta.cdf, a=half, b=half)
    outside = uniform((1 + channel.cap) / 2)
    right = channel.chance / (1 - channel.chance)
    chance = right * odds / (1 + right * odds)
    below = uniform((1 + t) / 2)
    return np.where(
        t < channel.cap,
        (1 - chance) * below / outside,
        (1 - chance) + chance * (below - outside) / (1 - outside),
    )


@pytest.mark.parametrize("kind", BALLS)
@pytest.mark.parametrize(("dimension", "epsilon"), [(2, 0.5), (3, 1.0), (10, 2.0), (200, 1.0)])
def test_the_component_along_the_value(kind: str, dimension: int, epsilon: float) -> None:
    """Its law is the mixture of cap and rest with the right odds, and not with 2/3 or 3/2 of them."""
    channel = BALLS[kind](epsilon, 2.0, dimension)
    direction = some_direction(dimension)
    along = answers(channel, 2.0 * direction, 20_000, seed=dimension) @ direction / channel.largest
    for odds, right in ((1.0, True), (2 / 3, False), (1.5, False)):
        pvalue = kstest(along, partial(cap_mixture, channel=channel, odds=odds)).pvalue
        assert (pvalue > ALPHA) == right, odds


@pytest.mark.parametrize("kind", BALLS)
def test_the_direction_across_the_value_is_uniform(kind: str) -> None:
    """Across the value no direction is preferred, and it does not depend on the component along."""
    dimension = 5
    channel = BALLS[kind](2.0, 1.0, dimension)
    direction = np.array([0.6, 0.0, -0.8, 0.0, 0.0])
    drawn = answers(channel, direction, 20_000, seed=1) / channel.largest
    along = drawn @ direction
    across = drawn - along[:, None] * direction
    across /= np.linalg.norm(across, axis=1, keepdims=True)
    basis = np.linalg.svd(direction[None, :])[2][1:]
    for axis in [*basis, *(np.array([[1, 1, 0, 0], [1, -1, 1, 1]]) @ basis / [[math.sqrt(2)], [2.0]])]:
        law = beta((dimension - 2) / 2, (dimension - 2) / 2)
        component = across @ axis
        assert kstest((1 + component) / 2, law.cdf).pvalue > ALPHA
        # A law that is a little narrower is told apart.
        assert kstest((1 + 0.9 * component) / 2, law.cdf).pvalue < ALPHA
        for with_ in (along, along**2):
            assert abs(np.corrcoef(component, with_)[0, 1]) * math.sqrt(len(component)) < LARGEST_Z


@pytest.mark.parametrize("length", [0.0, 0.3, 0.8, 1.0])
def test_the_angle_of_an_answer_in_the_plane(length: float) -> None:
    """For every length of the value: the two caps mixed with 1/2 ± |v|/(2r), and not with 1/2 ± |v|/r."""
    channel = PrivUnit(1.5, 2.0, 2, 0.7)
    at = 0.4
    value = 2.0 * length * np.array([math.cos(at), math.sin(at)])
    drawn = answers(channel, value, 30_000, seed=round(10 * length))
    # Where there is no direction the first axis serves.
    angles = np.arctan2(drawn[:, 1], drawn[:, 0]) - (at if length else 0.0)
    angles = np.mod(angles, 2 * math.pi)
    width = math.acos(0.7)  # of half a cap
    inside, outside = channel.chance / (2 * width), (1 - channel.chance) / (2 * (math.pi - width))

    def cap_about(centre: float, angle: np.ndarray) -> np.ndarray:
        """Integral of a cap's density from 0 to an angle."""
        grid = np.linspace(0, 2 * math.pi, 200_001)
        middles = (grid[1:] + grid[:-1]) / 2
        near = np.abs(np.mod(middles - centre + math.pi, 2 * math.pi) - math.pi) < width
        return np.interp(angle, grid, np.r_[0.0, np.cumsum(np.where(near, inside, outside) * np.diff(grid))])

    def law(angle: np.ndarray, towards: float) -> np.ndarray:
        return towards * cap_about(0.0, angle) + (1 - towards) * cap_about(math.pi, angle)

    assert kstest(angles, partial(law, towards=0.5 + length / 2)).pvalue > ALPHA
    assert kstest(angles, partial(law, towards=0.5 + length / 2 + 0.1)).pvalue < ALPHA


# --- answers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dimension", [1, 2, 3, 17, 1000])
@pytest.mark.parametrize("kind", BALLS)
def test_answers_are_whole_numbers_of_one_length(kind: str, dimension: int) -> None:
    """Integers, none beyond the largest, of the norm that is stated but for rounding; and possible."""
    channel = BALLS[kind](1.0, 7.0, dimension)
    drawn = answers(channel, 3.0 * some_direction(dimension), 500, seed=4)
    assert drawn.dtype == np.int64
    assert drawn.shape == (500, dimension)
    assert np.abs(drawn).max() <= channel.largest
    norms = np.linalg.norm(drawn, axis=1)
    assert np.abs(norms - channel.largest).max() <= 0.5 * math.sqrt(dimension)
    # The grid is fine: rounding adds less than a thousandth to an entry of typical size, or a hundredth where many
    # entries could cross its borders.
    assert channel.largest >= (1000 if dimension < 64 else 60) * math.sqrt(dimension)
    assert all(channel.possible(answer) for answer in drawn)
    assert channel.unit * channel.largest == pytest.approx(math.sqrt(channel.worst_variance))


def test_impossible_answers_are_known() -> None:
    """Another norm, another shape, numbers beyond the largest."""
    channel = PrivUnit.best(1.0, 1.0, 4)
    proper = answers(channel, [0.1, 0.2, 0.3, 0.4], 1, seed=0)[0]
    assert channel.possible(proper)
    grown = proper.copy()
    grown[np.argmax(np.abs(proper))] += 4 * np.sign(grown[np.argmax(np.abs(proper))])
    wrong = [2 * proper, proper // 2, 0 * proper, grown, proper[:3], proper[None, :], np.r_[proper, 0]]
    wrong += [np.full(4, channel.largest), np.array([channel.largest + 1, 0, 0, 0]), np.array([2**62, 0, 0, 0])]
    for answer in wrong:
        assert not channel.possible(answer), answer
    line = PrivUnit.hemisphere(1.0, 1.0, 1)
    assert line.possible(np.array([line.largest]))
    assert not line.possible(np.array([line.largest - 1]))


def test_no_answer_tells_a_value_by_its_last_digits() -> None:
    """Whatever one value answers often, another answers too: the lattice is the same for all values."""
    channel = PrivUnit.hemisphere(0.5, 1.0, 2)
    seen = []
    for number, value in enumerate(([0.6, 0.2], [-0.1, 0.77], [0.0, 0.0], [1e9, 3.0])):
        drawn = answers(channel, value, 250_000, seed=number)
        seen.append(np.unique(drawn @ [10_000, 1], return_counts=True))
    for points, counts in seen:
        often = points[counts >= 25]
        assert len(often) > 500
        for others, _ in seen:
            # Each of them is expected at least 25/e^epsilon times: a few in a thousand may be missing.
            assert np.isin(often, others).mean() > 0.99


def test_an_answer_depends_on_the_users_own_value_and_uniforms_alone() -> None:
    """Many users at once answer what each of them answers alone."""
    channel = PrivUnit.best(1.0, 1.0, 6)
    rng = np.random.default_rng(0)
    values, uniforms = rng.normal(size=(20, 6)) / 3, SeededUniforms(0, range(20)).draw(20, 9)
    together = channel.answer(values, uniforms)
    alone = [channel.answer(values[[user]], uniforms[[user]])[0] for user in range(20)]
    np.testing.assert_array_equal(together, alone)
    before = values.copy()
    channel.answer(values, uniforms)
    np.testing.assert_array_equal(values, before)


def test_answering_takes_every_uniform_it_asks_for() -> None:
    """Each of the uniforms matters, and there are as many as are stated."""
    channel = PrivUnit.best(1.0, 1.0, 6)
    uniforms = np.full((1, channel.n_uniforms), 0.4)
    value = 0.5 * some_direction(6)[None, :]
    usual = channel.answer(value, uniforms)
    for place in range(channel.n_uniforms):
        other = uniforms.copy()
        other[0, place] = 0.95
        assert not np.array_equal(channel.answer(value, other), usual)


# --- unbiasedness and variance ---------------------------------------------------------------------------------------


def largest_z(channel: PrivUnit, drawn: np.ndarray, expected: np.ndarray) -> float:
    """The z-score that is furthest out, over projections on the value, on axes and on a fixed direction."""
    dimension = channel.dimension
    towards = expected / np.linalg.norm(expected) if np.any(expected) else np.eye(dimension)[0]
    axes = np.vstack([towards, np.eye(dimension)[:3], some_direction(dimension, seed=9)])
    projected = channel.unit * drawn @ axes.T
    errors = projected.mean(axis=0) - axes @ expected
    return float(np.max(np.abs(errors) / (projected.std(axis=0) / math.sqrt(len(drawn)))))


@pytest.mark.parametrize("kind", BALLS)
@pytest.mark.parametrize(("dimension", "epsilon"), [(1, 1.0), (2, 1.0), (3, 4.0), (30, 2.0)])
@pytest.mark.parametrize("length", [0.0, 0.4, 1.0, 3.0, 1e200])
def test_answers_are_unbiased(kind: str, dimension: int, epsilon: float, length: float) -> None:
    """Within the ball, at its bound, and beyond it, where the value is scaled down to the bound."""
    channel = BALLS[kind](epsilon, 2.0, dimension)
    direction = some_direction(dimension)
    drawn = answers(channel, 2.0 * length * direction, 40_000, seed=7)
    expected = 2.0 * min(length, 1.0) * direction
    assert largest_z(channel, drawn, expected) < LARGEST_Z
    if length > 0:
        # Two thirds and three halves of the unit are another value's.
        for factor in (2 / 3, 1.5):
            assert largest_z(channel, drawn, factor * expected) > LARGEST_Z


@pytest.mark.parametrize("kind", BALLS)
@pytest.mark.parametrize("length", [0.0, 0.5, 1.0])
def test_the_variance_is_what_is_stated(kind: str, length: float) -> None:
    """worst_variance at 0, and less by |v|² elsewhere: the norm of an answer never changes."""
    channel = BALLS[kind](1.0, 2.0, 10)
    drawn = channel.unit * answers(channel, 2.0 * length * some_direction(10), 20_000, seed=3)
    assert drawn.var(axis=0).sum() == pytest.approx(channel.worst_variance - (2.0 * length) ** 2, rel=5e-3)


@pytest.mark.parametrize("length", [0.5, 1.0])
def test_priv_unit_beats_the_hemisphere_by_its_gain(length: float) -> None:
    """Errors of means of drawn answers at eps = 4 and p = 1000: 3.88 times as large, squared, with the hemisphere."""
    value = length * some_direction(1000)
    batches, users = 6, 250
    errors = {}
    for kind, make in BALLS.items():
        channel = make(4.0, 1.0, 1000)
        means = channel.unit * answers(channel, value, batches * users, seed=5).reshape(batches, users, -1).mean(axis=1)
        errors[kind] = float(np.mean(np.sum((means - value) ** 2, axis=1)))
    # 6,000 squares on either side: a standard deviation of 2.6 percent.
    assert errors["hemisphere"] / errors["priv_unit"] == pytest.approx(3.88, rel=5 * 0.026)


# --- any row of a user -----------------------------------------------------------------------------------------------

EXTREME = st.sampled_from(
    [0.0, -0.0, 1.0, -0.5, 1e308, -1.7e308, 1e-320, -5e-324, 1e154, 1e-160, math.nan, math.inf, -math.inf]
)


@given(
    value=st.lists(EXTREME, min_size=1, max_size=6),
    epsilon=st.sampled_from([1e-3, 1.0, 12.0]),
    bound=st.sampled_from([1e-100, 1.0, 1e100]),
    kind=st.sampled_from(sorted(BALLS)),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=300, deadline=None)
def test_extreme_values_are_answered_like_others(
    value: list[float], epsilon: float, bound: float, kind: str, seed: int
) -> None:
    """No error, no warning, a possible answer; and a value that is not finite answers what 0 answers."""
    channel = BALLS[kind](epsilon, bound, len(value))
    uniforms = SeededUniforms(seed, [0]).draw(1, channel.n_uniforms)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        answer = channel.answer(np.array([value]), uniforms)
    assert channel.possible(answer[0])
    if not np.all(np.isfinite(value)):
        np.testing.assert_array_equal(answer, channel.answer(np.zeros((1, len(value))), uniforms))


@pytest.mark.parametrize("row", [[0.0, -0.0, 0.0], [math.nan, 1.0, 2.0], [math.inf, 0.0, 1.0], [5e-324, 0.0, 0.0]])
def test_what_has_no_direction_answers_what_zero_answers(row: list[float]) -> None:
    """Also in a whole group of such users."""
    channel = PrivUnit.best(1.0, 1.0, 3)
    np.testing.assert_array_equal(answers(channel, row, 200, seed=0), answers(channel, np.zeros(3), 200, seed=0))


@pytest.mark.parametrize("scale", [3.0, 1e20, 1e300])
def test_values_beyond_the_bound_answer_what_the_bound_answers(scale: float) -> None:
    """With the same uniforms: a value says nothing of how far beyond the bound it lies."""
    channel = PrivUnit.best(1.0, 2.0, 4)
    direction = np.array([0.5, -0.5, 0.5, 0.5])
    beyond, at = (answers(channel, length * direction, 300, seed=1) for length in (2.0 * scale, 2.0))
    assert np.abs(beyond - at).max() <= 1
    assert np.mean(beyond != at) < 0.01


# --- audits ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LeakyBall(PrivUnit):
    """A planted bug: chances of one and a half times the epsilon that is promised."""

    @property
    def kept_epsilon(self) -> float:
        return 1.5 * self.epsilon


@pytest.mark.parametrize(("dimension", "kind"), [(1, "hemisphere"), (2, "hemisphere"), (3, "priv_unit")])
def test_an_audit_finds_epsilon_and_no_more(dimension: int, kind: str) -> None:
    """What an attacker can tell from answers is at least 0.9 epsilon, and never above it."""
    result = audit_channel(BALLS[kind](1.0, 2.0, dimension), runs=120_000, seed=1)
    assert not result.refuted
    assert 0.9 <= result.epsilon <= 1.0


@pytest.mark.parametrize("dimension", [1, 3])
def test_an_audit_refutes_a_randomiser_with_too_large_a_chance(dimension: int) -> None:
    """Chances of 1.5 epsilon are found out."""
    right = PrivUnit.best(1.0, 2.0, dimension)
    result = audit_channel(LeakyBall(1.0, 2.0, dimension, right.cap), runs=60_000, seed=1)
    assert result.refuted
    assert result.epsilon > 1.1


# --- bad parameters --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0, -1, 0.0, 9e-7, math.nan, math.inf, 51, 16.001, True, "1", None, 1j])
def test_a_bad_epsilon_is_refused(epsilon: Any) -> None:
    """The message says which parameter and what range."""
    for make in BALLS.values():
        with pytest.raises(ValueError, match=r"epsilon=.*finite number > 0 from 1e-06 to 16, got"):
            make(epsilon, 1.0, 3)


@pytest.mark.parametrize("bound", [0, -2.0, 1e-101, 1e101, 10**400, math.nan, math.inf, True, "1", None])
def test_a_bad_bound_is_refused(bound: Any) -> None:
    """The message says which parameter and what range."""
    with pytest.raises(ValueError, match=r"bound=.*finite number > 0 from 1e-100 to 1e\+100, got"):
        PrivUnit.best(1.0, bound, 3)


@pytest.mark.parametrize("dimension", [0, -1, 2.0, "3", None, True, math.nan])
def test_a_bad_dimension_is_refused(dimension: Any) -> None:
    """Dimensions are integers from 1."""
    with pytest.raises(ValueError, match=r"dimension=.*integer >= 1"):
        PrivUnit.best(1.0, 1.0, dimension)


@pytest.mark.parametrize("cap", [1.0, -0.1, 2, math.nan, math.inf, "0"])
def test_a_bad_cap_is_refused(cap: Any) -> None:
    """Heights lie in [0, 1)."""
    with pytest.raises(ValueError, match=r"cap=.*\[0, 1\)"):
        PrivUnit(1.0, 1.0, 3, cap)


def test_caps_that_are_empty_are_refused() -> None:
    """Caps that next to nothing of the sphere lies in, and any cap in one dimension."""
    with pytest.raises(ValueError, match=r"almost no mass in 100000 dimensions; use PrivUnit\.best"):
        PrivUnit(1.0, 1.0, 100_000, 0.9)
    # 52 random bits cannot tell such a cap from no cap.
    with pytest.raises(ValueError, match="almost no mass in 1000 dimensions"):
        PrivUnit(1.0, 1.0, 1000, 0.35)
    with pytest.raises(ValueError, match="in one dimension there is no cap"):
        PrivUnit(1.0, 1.0, 1, 0.2)
