"""The curator: charges before it draws, answers by the mechanism of the plan, and lets nothing else out."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tulle.curator import Curator, summation_slack
from tulle.events import NoisePerSensitivity
from tulle.losses import Logistic
from tulle.mechanisms import (
    Exact,
    Gaussian,
    GumbelMax,
    HardThreshold,
    Laplace,
    LaplaceMax,
    Mechanism,
    NoisyMax,
    PermuteAndFlip,
    Sensitivity,
    TopK,
    rounding_grid,
)
from tulle.privacy import Plan, PlanError, Release
from tulle.public import PublicFacts
from tulle.queries import ClippedGradient, CoordinateScores, CurvatureAlongGradient, Magnitudes, Query, Step
from tulle.randomness import keyed_generator
from tulle.rows import Rows
from tulle.walk import Walk

N, D = 12, 5


class Constant(Query):
    """An answer that is known, with a sensitivity that is known."""

    def __init__(self, answer: np.ndarray, l2: float = 1.0) -> None:
        self.answer, self.l2, self.asked = answer, l2, 0

    def sensitivity(self, public: PublicFacts) -> Sensitivity:
        return Sensitivity(l2=self.l2, linf=self.l2)

    def size(self, public: PublicFacts) -> float:
        return float(np.linalg.norm(self.answer))

    def evaluate(self, rows: Rows, public: PublicFacts) -> np.ndarray:
        self.asked += 1
        return self.answer.copy()


@pytest.fixture
def rows() -> Rows:
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.4, 0.4, (N, D))
    return Rows(X, np.where(rng.random(N) < 0.5, -1.0, 1.0))


def facts(n_rows: int = N) -> PublicFacts:
    return PublicFacts(n_rows, D, 2, Logistic(), None, 1.0, 1.0, math.inf, False)


def curator(rows: Rows, *releases: Release, public: PublicFacts | None = None, seed: int = 0) -> Curator:
    return Curator(rows, public or facts(), Plan(releases), keyed_generator(seed))


def step_query() -> Step:
    return Step(ClippedGradient(np.full((D, 1), 0.1), 0.5), 2.0)


def test_without_noise_the_answer_is_the_query(rows: Rows) -> None:
    answer = curator(rows, Release("step", Gaussian().scaled(0.0), 1)).ask("step", step_query())
    np.testing.assert_array_equal(answer, step_query().evaluate(rows, facts()))


def test_the_mechanism_of_the_plan_answers(rows: Rows) -> None:
    """The same release by hand, with the same generator, gives the same answer; other noise gives another."""
    noise = NoisePerSensitivity(3.3)  # the scale is no power of two, where the grid jumps
    found = curator(rows, Release("step", Gaussian(noise), 1), seed=4).ask("step", step_query())
    exact, moved = step_query().evaluate(rows, facts()), step_query().sensitivity(facts())
    by_hand = Gaussian(noise).release(exact, moved, keyed_generator(4), None)
    np.testing.assert_allclose(found, by_hand, atol=1e-12)
    assert not np.allclose(found, Gaussian(noise.times(2 / 3)).release(exact, moved, keyed_generator(4), None))


def test_thresholds_are_applied_before_the_answer_leaves(rows: Rows) -> None:
    answer = curator(rows, Release("step", Gaussian(), 1)).ask("step", step_query(), then=HardThreshold(2, D))
    assert np.count_nonzero(answer) <= 2


def test_every_answer_has_fresh_noise(rows: Rows) -> None:
    one = curator(rows, Release("step", Gaussian(), 2))
    assert not np.array_equal(one.ask("step", step_query()), one.ask("step", step_query()))


class TestBill:
    def test_what_is_not_in_the_plan_is_not_evaluated(self, rows: Rows) -> None:
        query = Constant(np.zeros((2, 1)))
        with pytest.raises(PlanError, match="not in its plan"):
            curator(rows, Release("step", Gaussian(), 1)).ask("peek", query)
        assert query.asked == 0

    def test_a_release_beyond_the_plan_is_not_evaluated(self, rows: Rows) -> None:
        query, one = Constant(np.zeros((2, 1))), curator(rows, Release("step", Gaussian(), 2))
        one.ask("step", query)
        one.ask("step", query)
        with pytest.raises(PlanError, match="more than the 2 times"):
            one.ask("step", query)
        assert query.asked == 2

    def test_fewer_releases_than_planned_do_not_settle(self, rows: Rows) -> None:
        one = curator(rows, Release("step", Gaussian(), 2))
        one.ask("step", step_query())
        with pytest.raises(PlanError, match="but planned"):
            one.settle()
        one.ask("step", step_query())
        one.settle()

    def test_a_release_is_charged_even_if_its_answer_fails(self, rows: Rows) -> None:
        class Breaks(Mechanism):
            label = "breaks"
            events = Gaussian().events

            def release(self, *arguments: object) -> object:
                raise ZeroDivisionError

        one = curator(rows, Release("step", Breaks(), 1))
        with pytest.raises(ZeroDivisionError):
            one.ask("step", step_query())
        with pytest.raises(PlanError, match="more than the 1 times"):
            one.ask("step", step_query())


@pytest.mark.parametrize("mechanism", [Gaussian(), TopK()], ids=lambda m: type(m).__name__)
def test_a_query_without_sensitivity_gets_no_noisy_answer(rows: Rows, mechanism: Mechanism) -> None:
    query = CurvatureAlongGradient(ClippedGradient(np.zeros((D, 1)), 1.0), 2)
    with pytest.raises(ValueError, match="states no sensitivity"):
        curator(rows, Release("curvature", mechanism, 1)).ask("curvature", query)
    assert curator(rows, Release("curvature", Exact(), 1)).ask("curvature", query).shape == (1, 1)


def test_a_gradient_clipped_in_one_norm_is_not_answered_in_another(rows: Rows) -> None:
    """TopK needs ℓ∞, and a gradient clipped in ℓ2 declares none."""
    scores = Magnitudes(Step(ClippedGradient(np.zeros((D, 1)), 0.5, "l2"), 1.0))
    with pytest.raises(ValueError, match="states no sensitivity"):
        curator(rows, Release("select", TopK(), 1)).ask("select", scores)


def test_the_noise_covers_what_float_sums_can_move_beyond_exact_ones(rows: Rows) -> None:
    """Many rows: the sensitivity that reaches the mechanism grows by at least n² 2^-53, and by little for few."""
    seen: list[float] = []

    class Spy(Gaussian):
        def release(self, exact: np.ndarray, sensitivity: Sensitivity, *rest: object) -> np.ndarray:
            seen.append(sensitivity.l2)
            return exact

    for n in (N, 10_000_000):
        curator(rows, Release("x", Spy(), 1), public=facts(n)).ask("x", Constant(np.zeros((1, 1)), l2=3.0))
    assert 3.0 < seen[0] < 3.0 * (1 + 1e-12)
    assert 3.0 * (1 + 1e14 * 2.0**-53) <= seen[1] < 3.0 * 1.1


def test_rounding_adds_up_over_releases_and_needs_no_data(rows: Rows) -> None:
    one = curator(rows, Release("step", Gaussian(), 3))
    other = curator(Rows(np.zeros((N, D)), np.ones(N)), Release("step", Gaussian(), 3), seed=9)
    sums = []
    for _ in range(3):
        one.ask("step", step_query())
        other.ask("step", step_query())
        sums.append(one.rounding)
    np.testing.assert_allclose(sums, sums[0] * np.arange(1, 4))
    assert sums[0] > 0
    assert one.rounding == other.rounding


NOISY_MAXIMA = (GumbelMax(), LaplaceMax(), PermuteAndFlip())


class Scores(Constant):
    """A constant with a bound on its largest entry, far from the one on its length."""

    def sensitivity(self, public: PublicFacts) -> Sensitivity:
        return Sensitivity(l1=1.0, l2=1.0, linf=1.0)

    def size(self, public: PublicFacts) -> float:
        return 1e6

    def largest(self, public: PublicFacts) -> float:
        return 1e3


@pytest.mark.parametrize(
    "mechanism", [Gaussian(), Laplace(), TopK(), *NOISY_MAXIMA], ids=lambda mechanism: type(mechanism).__name__
)
def test_rounding_is_told_the_largest_score_for_noisy_maxima_and_the_length_for_others(
    rows: Rows, mechanism: Mechanism
) -> None:
    """A noisy maximum depends on its best two scores alone, everything else on the whole answer."""
    one = curator(rows, Release("x", mechanism, 2))
    query = Scores(np.zeros((7, 1)))
    sensitivity = query.sensitivity(facts()).times(summation_slack(N))
    expected, other = (
        mechanism.rounding((7, 1), size, sensitivity, None)
        for size in ((1e3, 1e6) if isinstance(mechanism, NoisyMax) else (1e6, 1e3))
    )
    assert expected != pytest.approx(other, rel=0.5)
    for asked in (1, 2):
        one.ask("x", query)
        assert one.rounding == pytest.approx(asked * expected)


@pytest.mark.parametrize("mechanism", [TopK(), *NOISY_MAXIMA], ids=lambda mechanism: type(mechanism).__name__)
def test_a_query_says_its_length_where_it_has_no_word_on_its_largest_entry(rows: Rows, mechanism: Mechanism) -> None:
    query = Constant(np.full((4, 1), 3.0))
    assert query.largest(facts()) == query.size(facts()) == 6.0
    one = curator(rows, Release("x", mechanism, 1))
    one.ask("x", query)
    sensitivity = query.sensitivity(facts()).times(summation_slack(N))
    assert one.rounding == pytest.approx(mechanism.rounding((4, 1), 6.0, sensitivity, None))


@pytest.mark.parametrize("mechanism", NOISY_MAXIMA, ids=lambda mechanism: type(mechanism).__name__)
def test_scores_that_are_not_numbers_are_chosen_no_more_than_others(rows: Rows, mechanism: Mechanism) -> None:
    """What is not finite counts as 0, where arg-maxima would pick it always."""

    class SaidToBeSmall(Constant):
        def size(self, public: PublicFacts) -> float:
            return 1e3

    scores = np.array([[math.nan], [math.inf], [-math.inf], [1e3]])
    assert curator(rows, Release("x", mechanism, 1)).ask("x", SaidToBeSmall(scores)) == [3]


@pytest.mark.parametrize("size", [1e151, math.nan])
def test_sums_that_could_overflow_are_not_asked_for(rows: Rows, size: float) -> None:
    """By public figures, and also where weights are not numbers any more."""

    class OfSize(Constant):
        def size(self, public: PublicFacts) -> float:
            return size

    with pytest.raises(ValueError, match="could overflow"):
        curator(rows, Release("x", TopK(), 1)).ask("x", OfSize(np.ones((4, 1))))


class OnDemand:
    """Scores that only tell what is drawn from them."""

    shape = (5, 1)

    def __init__(self) -> None:
        self.scales: list[float] = []

    def draw(self, scale: float, generator: np.random.Generator) -> int:
        self.scales.append(scale)
        return 2


def test_scores_on_demand_reach_the_mechanism_with_the_noise_of_their_sensitivity(rows: Rows) -> None:
    """And are on the bill, and in the rounding, as an array of their shape would be."""
    scores = OnDemand()

    class Lazy(Scores):
        def evaluate(self, rows: Rows, public: PublicFacts) -> OnDemand:  # type: ignore[override]
            return scores

    mechanism = GumbelMax(NoisePerSensitivity(3.0))
    one, like = (curator(rows, Release("x", mechanism, 1)) for _ in range(2))
    np.testing.assert_array_equal(one.ask("x", Lazy(np.zeros((5, 1)))), [2])
    like.ask("x", Scores(np.zeros((5, 1))))
    assert scores.scales == pytest.approx([3.0 * summation_slack(N)], rel=1e-15)
    assert one.rounding == like.rounding > 0
    with pytest.raises(PlanError, match="more than the 1 times"):
        one.ask("x", Lazy(np.zeros((5, 1))))


@pytest.mark.parametrize("mechanism", NOISY_MAXIMA, ids=lambda mechanism: type(mechanism).__name__)
def test_a_noisy_maximum_answers_with_a_number_alone(rows: Rows, mechanism: Mechanism) -> None:
    """Along a walk as a method asks it; without noise it is the best vertex."""
    query = CoordinateScores(Walk(np.zeros((D, 1))), 0.5)
    exact = curator(rows, Release("vertex", mechanism.scaled(0.0), 1)).ask("vertex", query)
    np.testing.assert_array_equal(exact, [np.argmax(query.evaluate(rows, facts()))])
    noisy = curator(rows, Release("vertex", mechanism, 1)).ask("vertex", query)
    assert noisy.shape == (1,)
    assert noisy.dtype.kind == "i"
    assert 0 <= noisy[0] < 2 * D


def test_answers_lie_on_the_grid_of_their_noise(rows: Rows) -> None:
    scale = NoisePerSensitivity(2.0).value * step_query().sensitivity(facts()).l2
    answer = curator(rows, Release("step", Gaussian(NoisePerSensitivity(2.0)), 1)).ask("step", step_query())
    cells = answer / rounding_grid(scale)
    np.testing.assert_array_equal(cells, np.round(cells))


def test_a_witness_sees_what_was_released_and_nothing_else(rows: Rows) -> None:
    seen: list[tuple[str, object]] = []
    plan = Plan((Release("step", Gaussian(), 2),))
    one = Curator(rows, facts(), plan, keyed_generator(0), lambda name, answer: seen.append((name, answer)))
    answers = [one.ask("step", step_query()) for _ in range(2)]
    assert [name for name, _ in seen] == ["step", "step"]
    assert all(witnessed is answer for (_, witnessed), answer in zip(seen, answers))


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e300])
def test_one_bad_record_moves_an_answer_by_no_more_than_the_sensitivity(bad: float) -> None:
    """Behind the estimator's checks, which refuse what is not finite: without noise, the answers are compared."""
    X, y = np.full((N, D), 0.4), np.ones(N)
    X2 = X.copy()
    X2[0, 0] = bad
    pair = [Rows(X, y), Rows(X2, y)]
    with np.errstate(all="ignore"):
        for rows in pair:
            rows.clip_rows(1.0)
    answers = [curator(rows, Release("step", Gaussian().scaled(0.0), 1)).ask("step", step_query()) for rows in pair]
    assert np.linalg.norm(answers[0] - answers[1]) <= step_query().sensitivity(facts()).l2 * (1 + 1e-9)


def test_no_warning_tells_of_an_extreme_row() -> None:
    """A warning about somebody's row would be a release."""
    rows = Rows(np.array([[1e200, 1e-200], [1.0, 0.0]]), np.ones(2))
    public = PublicFacts(2, 2, 1, Logistic(), None, 1.0, 1.0, math.inf, False)
    query = ClippedGradient(np.full((2, 1), 1e150), 0.5)
    with np.errstate(all="raise"):
        Curator(rows, public, Plan((Release("g", Gaussian(), 1),)), keyed_generator(0)).ask("g", query)
