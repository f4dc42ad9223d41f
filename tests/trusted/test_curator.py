"""The curator: charges before it draws, answers by the mechanism of the plan, and lets nothing else out."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from tulle.estimators.bounds import GRID, QuantileScores, quantile_releases
from tulle.estimators.progress import show_answers
from tulle.fast.coordinate_path import CoordinatePath
from tulle.fast.gumbel_on_demand import GumbelOnDemand
from tulle.methods.exact_steps import curvature_along_gradient
from tulle.methods.gradient_queries import ClippedGradient, CoordinateScores, Step
from tulle.methods.loss_functions import Logistic, facts_without_model
from tulle.methods.thresholds import HardThreshold
from tulle.trusted.curator import Curator, summation_slack
from tulle.trusted.events import NoisePerSensitivity
from tulle.trusted.facts import PublicFacts
from tulle.trusted.mechanisms import (
    Exact,
    Gaussian,
    GumbelMax,
    LaplaceMax,
    Mechanism,
    PermuteAndFlip,
    Sensitivity,
    TopK,
)
from tulle.trusted.plan import Plan, PlanError, Release
from tulle.trusted.queries import Magnitudes, Query, vouch_for_query
from tulle.trusted.randomness import keyed_generator
from tulle.trusted.rows import Rows

N, D = 12, 5


class Constant(Query):
    """An answer that is known, with a sensitivity that is known."""

    def __init_subclass__(cls, foreign: bool = False) -> None:
        if not foreign:
            vouch_for_query(cls)

    def __init__(self, answer: np.ndarray, l2: float = 1.0, l1: float = math.inf) -> None:
        self.answer, self.l1, self.l2, self.asked = answer, l1, l2, 0

    def sensitivity(self, public: PublicFacts) -> Sensitivity:
        return Sensitivity(l1=self.l1, l2=self.l2, linf=self.l2)

    def size(self, public: PublicFacts) -> float:
        return float(np.linalg.norm(self.answer))

    def evaluate(self, rows: Rows, public: PublicFacts) -> np.ndarray:
        self.asked += 1
        return self.answer.copy()


vouch_for_query(Constant)


class Foreign(Constant, foreign=True):
    """A query of another package, which could state any sensitivity."""


@pytest.mark.parametrize("wrap", [lambda query: query, Magnitudes], ids=["itself", "inside another"])
def test_a_query_of_another_package_gets_no_noisy_answer(rows: Rows, wrap: Any) -> None:
    """By exact type, also inside a query of the trusted package; without noise, where nothing is promised, it does."""
    query = Foreign(np.ones((D, 1)))
    release = Release("step", Gaussian(NoisePerSensitivity(1.0)), 1)
    with pytest.raises(PlanError, match=r"'step' is asked by (Foreign|Magnitudes), which trusted code does not answer"):
        curator(rows, release).ask("step", wrap(query))
    assert query.asked == 0
    assert curator(rows, release.scaled(0.0)).ask("step", wrap(query)).shape == (D, 1)


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
            def release(self, *arguments: object) -> object:
                raise ZeroDivisionError

        one = curator(rows, Release("step", Breaks(), 1))
        with pytest.raises(ZeroDivisionError):
            one.ask("step", step_query())
        with pytest.raises(PlanError, match="more than the 1 times"):
            one.ask("step", step_query())


@pytest.mark.parametrize("mechanism", [Gaussian(), TopK()], ids=lambda m: type(m).__name__)
def test_a_query_without_sensitivity_gets_no_noisy_answer(rows: Rows, mechanism: Mechanism) -> None:
    query = curvature_along_gradient(ClippedGradient(np.zeros((D, 1)), 1.0), 2)
    with pytest.raises(PlanError, match="'curvature' is asked by ExactFollowUp, which trusted code does not answer"):
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


def test_roundings_next_to_public_weights_join_the_sensitivity(rows: Rows) -> None:
    """w - step × gradient is rounded to floats near w, however small the gradient is: on both of two data sets."""
    seen: list[Sensitivity] = []

    class Spy(Gaussian):
        def release(self, exact: np.ndarray, sensitivity: Sensitivity, *rest: object) -> np.ndarray:
            seen.append(sensitivity)
            return exact

    one = curator(rows, Release("x", Spy(), 2))
    for size in (1.0, 1e12):
        one.ask("x", Constant(np.full((4, 1), size), l1=3.0, l2=2.0))
    for sensitivity, size in zip(seen, (1.0, 1e12)):
        # Two data sets, four roundings of half a unit of 2^-52 each; the length of four equal numbers is twice theirs.
        least = 4 * 2.0**-52 * 2 * size
        raised = Sensitivity(3.0, 2.0, 2.0).times(summation_slack(N))
        assert sensitivity.l2 == raised.l2 + 2 * least
        assert sensitivity.linf == raised.linf + 2 * least
        assert sensitivity.l1 == raised.l1 + 2 * 2 * least


def test_what_nothing_moves_has_no_roundings_either(rows: Rows) -> None:
    assert Sensitivity(0.0, 0.0, 0.0).with_errors(1.0, 9) == Sensitivity(0.0, 0.0, 0.0)
    assert Sensitivity(1.0, 2.0, 3.0).with_errors(1.0, 9) == Sensitivity(4.0, 3.0, 4.0)
    assert Sensitivity(l2=2.0).with_errors(1.0, 9) == Sensitivity(l2=3.0)


NOISY_MAXIMA = (GumbelMax(), LaplaceMax(), PermuteAndFlip())


class Scores(Constant):
    """A constant with a bound on its largest entry, far from the one on its length."""

    def sensitivity(self, public: PublicFacts) -> Sensitivity:
        return Sensitivity(l1=1.0, l2=1.0, linf=1.0)

    def size(self, public: PublicFacts) -> float:
        return 1e6

    def largest(self, public: PublicFacts) -> float:
        return 1e3


def test_a_query_says_its_length_where_it_has_no_word_on_its_largest_entry() -> None:
    query = Constant(np.full((4, 1), 3.0))
    assert query.largest(facts()) == query.size(facts()) == 6.0


@pytest.mark.parametrize("mechanism", NOISY_MAXIMA, ids=lambda mechanism: type(mechanism).__name__)
def test_scores_that_are_not_numbers_are_chosen_no_more_than_others(rows: Rows, mechanism: Mechanism) -> None:
    """What is not finite counts as 0, where arg-maxima would pick it always."""

    class SaidToBeSmall(Constant):
        def size(self, public: PublicFacts) -> float:
            return 1e3

    scores = np.array([[math.nan], [math.inf], [-math.inf], [1e3]])
    assert curator(rows, Release("x", mechanism, 1)).ask("x", SaidToBeSmall(scores)) == [3]


@pytest.mark.parametrize("size", [1e151, math.nan, math.inf])
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
    n_rows = N

    def __init__(self) -> None:
        self.scales: list[float] = []

    def draw(self, scale: float, generator: np.random.Generator) -> int:
        self.scales.append(scale)
        return 2


def test_scores_on_demand_reach_the_mechanism_with_the_noise_of_their_sensitivity(rows: Rows) -> None:
    """And are on the bill as an array of their shape would be."""
    scores = OnDemand()

    class Lazy(Scores):
        def evaluate(self, rows: Rows, public: PublicFacts) -> OnDemand:  # type: ignore[override]
            return scores

    one = curator(rows, Release("x", GumbelOnDemand(NoisePerSensitivity(3.0), 1, 5, N), 1))
    np.testing.assert_array_equal(one.ask("x", Lazy(np.zeros((5, 1)))), [2])
    assert scores.scales == pytest.approx([3.0 * (summation_slack(N) + 2.0**-49 * 1e3)], rel=1e-15)
    with pytest.raises(PlanError, match="more than the 1 times"):
        one.ask("x", Lazy(np.zeros((5, 1))))
    few = curator(rows, Release("x", GumbelOnDemand(NoisePerSensitivity(3.0), 1, 5, N - 1), 1))
    with pytest.raises(PlanError, match="fewer candidates or rows"):
        few.ask("x", Lazy(np.zeros((5, 1))))
    assert len(scores.scales) == 1


@pytest.mark.parametrize("mechanism", NOISY_MAXIMA, ids=lambda mechanism: type(mechanism).__name__)
def test_a_noisy_maximum_answers_with_a_number_alone(rows: Rows, mechanism: Mechanism) -> None:
    """Along a walk as a method asks it; without noise it is the best vertex."""
    query = CoordinateScores(CoordinatePath(np.zeros((D, 1))).point, 0.5)
    exact = curator(rows, Release("vertex", mechanism.scaled(0.0), 1)).ask("vertex", query)
    np.testing.assert_array_equal(exact, [np.argmax(query.evaluate(rows, facts()))])
    noisy = curator(rows, Release("vertex", mechanism, 1)).ask("vertex", query)
    assert noisy.shape == (1,)
    assert noisy.dtype.kind == "i"
    assert 0 <= noisy[0] < 2 * D


def test_answers_lie_on_the_grid_of_their_noise(rows: Rows) -> None:
    mechanism = Gaussian(NoisePerSensitivity(2.0))
    answer = curator(rows, Release("step", mechanism, 1)).ask("step", step_query())
    cells = answer / mechanism.grid_and_scale(step_query().sensitivity(facts()).times(1 + 1e-9), answer.size)[0]
    np.testing.assert_array_equal(cells, np.round(cells))


def test_a_witness_sees_what_was_released_and_nothing_else(rows: Rows) -> None:
    seen: list[tuple[str, object]] = []
    plan = Plan((Release("step", Gaussian(), 2),))
    ask = Curator(rows, facts(), plan, keyed_generator(0)).ask
    shown = show_answers(ask, lambda name, answer: seen.append((name, answer)))
    answers = [shown("step", step_query()) for _ in range(2)]
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


@pytest.mark.parametrize("entry", [1e200, 1.7e308])
def test_no_warning_tells_of_an_extreme_row_that_is_not_clipped_yet(entry: float) -> None:
    """Bounds are estimated from rows as they are, and squares of such entries overflow."""
    X = np.full((20, 3), 0.1)
    X[0] = entry
    plan = Plan((), quantile_releases(("row_l2",), 1.0))
    rows = Rows(sp.csr_array(X), np.ones(20))
    one = Curator(rows, facts_without_model(20, 3, 1), plan, keyed_generator(0))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        one.ask("row_l2 quantile", QuantileScores(GRID, 0.5, "row_l2"))
    assert [str(warning.message) for warning in seen] == []
