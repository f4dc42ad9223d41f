"""What a local study costs, and what its report says: each figure is that of the channels, and no word is false.

No test here is statistical.
"""

from __future__ import annotations

import json
import math
import warnings
from typing import Any

import numpy as np
import pytest

import tulle.local.estimators.simulated_study
from tulle import Bounds, Budget, Ledger
from tulle.files.error_messages import PrivacyWarning
from tulle.files.number_text import rounded_up
from tulle.ledgers.ledger import BudgetExceededError
from tulle.local import (
    LabelPrivateSparseClassifier,
    LabelPrivateSparseRegressor,
    LocalSparseRegressor,
    OneRoundSparseRegressor,
)
from tulle.local.estimators.local_bill import LocalAnswer, bill, promise, releases, report
from tulle.local.server_side.protocols import LabelCollection, LdpIht
from tulle.local.user_side.answer_format import Question
from tulle.local.user_side.channel import Unrandomised
from tulle.local.user_side.label_randomisers import GaussianLabel, RandomisedResponse, TwoPoint
from tulle.local.user_side.responses import RESPONSES
from tulle.local.user_side.uniforms import SeededUniforms, SystemUniforms
from tulle.local.user_side.user import RefusedError, check_question
from tulle.reports.report import PrivacyReport
from tulle.trusted.events import ExposedEvent, GaussianEvent, PureEvent
from tulle.trusted.gaussian import gaussian_delta
from tulle.trusted.mechanisms import price_of

N, D = 400, 3
RNG = np.random.default_rng(0)
X = RNG.choice([-1.0, 1.0], (N, D))
Y = X[:, 0] + 0.1 * RNG.normal(size=N)
CLASSES = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0)
BOUNDS = Bounds(row_linf=1.0, label=1.5)

ignore_few_users = pytest.mark.filterwarnings("ignore:.*is expected to have noise:UserWarning")
imprecise = pytest.mark.filterwarnings("ignore:delta = .* which finite precision needs")
pytestmark = ignore_few_users


def labels_for(model: Any) -> Any:
    return CLASSES if isinstance(model, LabelPrivateSparseClassifier) else Y


WHOLE_ROW: list[Any] = [LocalSparseRegressor, OneRoundSparseRegressor]
LABELS: list[Any] = [LabelPrivateSparseRegressor, LabelPrivateSparseClassifier]
every_estimator = pytest.mark.parametrize("cls", [*WHOLE_ROW, *LABELS], ids=lambda cls: cls.__name__)
every_whole_row_estimator = pytest.mark.parametrize("cls", WHOLE_ROW, ids=lambda cls: cls.__name__)
every_label_estimator = pytest.mark.parametrize("cls", LABELS, ids=lambda cls: cls.__name__)


@pytest.fixture
def nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any attempt to ask somebody, or to draw, fails the test."""

    def refuse(*arguments: Any) -> Any:
        raise AssertionError("somebody was asked")

    monkeypatch.setattr(tulle.local.estimators.simulated_study.Population, "answer", refuse)
    for source in (SystemUniforms, SeededUniforms):
        monkeypatch.setattr(source, "draw", refuse)


# --- guarantees ------------------------------------------------------------------------------------------------------


@imprecise
@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 8.0, 16.0])
@pytest.mark.parametrize("declared", [True, False], ids=["declared bounds", "searched bounds"])
@every_estimator
def test_pure_channels_prove_the_epsilon_that_was_asked_for(cls: Any, declared: bool, epsilon: float) -> None:
    """No more than asked and all but all of it. Delta is 0, or what the arithmetic of whole rows takes, and no more."""
    model = cls(epsilon)
    if cls is not LabelPrivateSparseClassifier:
        model.set_params(bounds=BOUNDS if declared else None)
    report = model.fit(X, labels_for(model)).privacy_
    assert 0.99 * epsilon <= report.epsilon <= epsilon
    assert report.delta == report.floating_point_slack == report.asked[1]
    assert report.asked[0] == epsilon
    assert (report.delta == 0) is (cls in LABELS)
    assert report.delta < 1e-9 * math.exp(epsilon)
    assert report.calibration == "rigorous"


@pytest.mark.parametrize("randomiser", ["two_point", "piecewise", "hybrid", "laplace"])
def test_named_channels_are_pure_whatever_delta_says(randomiser: str) -> None:
    """A delta that is not needed is not promised away."""
    report = LabelPrivateSparseRegressor(0.7, 1e-4, randomiser=randomiser, bounds=BOUNDS).fit(X, Y).privacy_
    assert 0.99 * 0.7 <= report.epsilon <= 0.7
    assert report.delta == report.floating_point_slack == 0
    assert report.bill[-1].mechanism == f"{randomiser.replace('_', ' ')}, one answer"


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 16.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 1e-3])
@pytest.mark.parametrize("declared", [True, False], ids=["declared bounds", "searched bounds"])
def test_gaussian_noise_proves_the_budget(declared: bool, delta: float, epsilon: float) -> None:
    """(epsilon, delta) is kept and nearly used up; the proof is the Gaussian's exact one, at the noise of the bill."""
    model = LabelPrivateSparseRegressor(epsilon, delta, randomiser="gaussian", bounds=BOUNDS if declared else None)
    report = model.fit(X, Y).privacy_
    assert 0.99 * epsilon <= report.epsilon <= epsilon
    assert report.delta == report.asked[1] == delta
    assert report.floating_point_slack == 0
    line = report.bill[-1]
    assert line.mechanism == "gaussian, one answer"
    exact = gaussian_delta(epsilon, 1 / line.noise_per_sensitivity)
    assert exact <= delta
    assert exact >= 0.98 * delta
    assert gaussian_delta(epsilon, 1.1 / line.noise_per_sensitivity) > delta


def test_gaussian_noise_has_a_default_delta() -> None:
    """min(1e-5, 1/(10 n)), and the report is not a pure one."""
    report = LabelPrivateSparseRegressor(1.0, randomiser="gaussian", bounds=BOUNDS).fit(X, Y).privacy_
    assert report.delta == 1e-5
    assert math.isinf(price_of(LocalAnswer.through(GaussianLabel(1.0, 1.0, 1e-5)))[0].pure_epsilon())


def test_the_promise_is_the_dearest_answer() -> None:
    """At a delta of 0.2 a pure answer about bounds is cheaper than the Gaussian one; some users give the latter."""
    protocol = LabelCollection(Budget(1.0, 0.2), D, Bounds(), True, randomiser="gaussian")
    alone = [line.epsilon_alone for line in report(protocol, "a method", 10, 10).bill]
    assert alone[0] < 0.9 * alone[1]
    assert promise(protocol) == max(alone)


def test_channels_are_accounted_for_as_what_they_are() -> None:
    """Pure ones by their epsilon, the Gaussian by its noise over a sensitivity of two bounds, exact ones not at all."""
    assert price_of(LocalAnswer.through(TwoPoint(0.3, 2.0))) == (PureEvent(0.3), 1)
    assert price_of(LocalAnswer.through(RandomisedResponse(0.3, 1.0, 4))) == (PureEvent(0.3), 1)
    channel = GaussianLabel(1.0, 5.0, 1e-5)
    event, uses = price_of(LocalAnswer.through(channel))
    assert isinstance(event, GaussianEvent)
    assert uses == 1
    assert event.gaussian_mu() == pytest.approx(2 * 5.0 / math.sqrt(channel.worst_variance))
    assert price_of(LocalAnswer.through(Unrandomised(math.inf, 1.0, 2))) == (ExposedEvent(), 1)


def test_estimates_through_a_channel_are_its_answers() -> None:
    """A release of many users' values has one line each, in units of the channel."""
    channel = TwoPoint(1.0, 2.0)
    given = LocalAnswer.through(channel).release(
        np.zeros((50, 1)),
        None,
        np.random.default_rng(0),
        None,  # type: ignore[arg-type]
    )
    assert given.shape == (50, 1)
    assert set(np.unique(np.abs(given))) == {channel.unit}
    assert abs(given.sum()) < 50 * channel.unit


def test_releases_are_one_answer_each() -> None:
    """Bounds where they are searched for, and gradients or labels; counts are 1, since a user is in one group."""
    searched = releases(LdpIht(Budget(1.0), D, Bounds(), True))
    assert [(line.name, line.count) for line in searched] == [("bounds", 1), ("gradient", 1)]
    assert [line.name for line in releases(LdpIht(Budget(1.0), D, BOUNDS, True))] == ["gradient"]
    assert [line.name for line in releases(LabelCollection(Budget(1.0), D, Bounds(), True))] == ["bounds", "label"]
    assert [line.name for line in releases(LabelCollection(None, D, Bounds(), True, n_classes=2))] == ["label"]


# --- the report ------------------------------------------------------------------------------------------------------


@every_estimator
def test_the_report_names_unit_users_and_what_was_seen(cls: Any) -> None:
    """The unit is a user's row or label; labels-only studies say that features are known."""
    model = cls(1.0)
    report = model.fit(X, labels_for(model)).privacy_
    whole = cls in WHOLE_ROW
    assert report.unit.startswith(f"one user's {'row' if whole else 'label'}, replaced by any other")
    assert f"{N} users were asked, {N} answered" in report.unit
    seen, said = " ".join(report.who_saw_what), " ".join(report.assumptions)
    assert ("features" in seen) is not whole
    assert "the process that ran fit held all rows" in seen
    assert f"In a real study only the user sees the user's {'row' if whole else 'label'}" in seen
    assert said.startswith("Local privacy, simulated")
    assert ("Only labels are protected" in said) is not whole
    assert "at most one question" in said
    assert ("set of class labels was taken from the rows, and the fit published it" in said) is (
        cls is LabelPrivateSparseClassifier
    )


def test_the_report_of_a_real_study_speaks_of_users() -> None:
    """Nobody but they saw rows, and their randomness is not the server's to vouch for."""
    protocol = LabelCollection(Budget(1.0), D, Bounds(label=1.0), True)
    real = report(protocol, "a method", 10, 10)
    assert "Only the user saw the user's label." in real.who_saw_what
    assert "simulat" not in str(real)
    assert "a server cannot check that" in real.assumptions[-1]


def test_a_delta_of_arithmetic_that_promises_nothing_is_told_before_anybody_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of whole rows at epsilon = 16 it is above 1/n; at 8 it is not, and labels have none."""
    LabelPrivateSparseRegressor(16.0, bounds=Bounds(label=1.0)).fit(X, np.ones(N))
    LocalSparseRegressor(8.0, bounds=BOUNDS).fit(X, Y)
    monkeypatch.setattr(tulle.local.estimators.simulated_study.Population, "answer", None)
    rows, y = np.zeros((3000, 20)), np.zeros(3000)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyWarning)
        with pytest.raises(PrivacyWarning, match=r"delta = 0\.0027, which finite precision needs, is not below 1 / "):
            LocalSparseRegressor(16.0, bounds=BOUNDS, fit_intercept=False).fit(rows, y)


# --- one delta -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "n_features"), [(1.0, 3), (4.0, 20), (8.0, 20), (1.0, 1000), (8.0, 1000)])
@pytest.mark.parametrize("ball", ["priv_unit", "hemisphere"])
def test_whole_rows_state_the_delta_of_their_arithmetic_everywhere(ball: Any, epsilon: float, n_features: int) -> None:
    """Channel, user, protocol, report, JSON, words and bill have one and the same."""
    protocol = LdpIht(Budget(epsilon), n_features, BOUNDS, False, ball=ball)
    channel = protocol.make_channel(1.0)
    delta = (1 + math.exp(epsilon)) * channel.rounding
    assert 0 < delta < 1e-5
    about = report(protocol, "a method", 10, 10)
    assert delta == channel.delta == protocol.delta == about.delta == about.floating_point_slack
    assert json.loads(about.to_json())["delta"] == delta
    assert about.epsilon == about.bill[-1].epsilon_alone == epsilon
    assert any(f"All of δ = {rounded_up(delta)} is for finite precision" in line for line in about.assumptions)
    assert PrivacyReport.from_dict(json.loads(about.to_json())) == about
    question = Question("s", 1, 0.0, 1.0, *protocol.ask())
    check_question(question, n_features, epsilon, delta, RESPONSES)
    with pytest.raises(RefusedError, match=f"delta = {delta:g}"):
        check_question(question, n_features, epsilon, delta * (1 - 1e-9), RESPONSES)
    with Ledger(Budget(epsilon, 2 * delta)) as ledger:
        bill("a study", protocol)
        assert ledger.share >= 0.5 - 1e-9
    with Ledger(Budget(epsilon, 0.9 * delta)), pytest.raises(BudgetExceededError):
        bill("a study", protocol)
    with (
        Ledger(Budget(2 * epsilon)),
        pytest.raises(BudgetExceededError, match="use a method whose noise needs no delta"),
    ):
        bill("a study", protocol)


def test_in_one_dimension_whole_rows_need_no_delta() -> None:
    """Two answers, whose odds 52 bits have exactly."""
    assert LdpIht(Budget(2.0), 1, BOUNDS, False).delta == 0
    assert report(LdpIht(Budget(2.0), 1, BOUNDS, False), "a method", 10, 10).delta == 0


def test_a_delta_that_is_asked_for_has_room_for_finite_precision_or_is_refused() -> None:
    """The printed one is the one asked for, of which a tenth at most is arithmetic's."""
    needed = LdpIht(Budget(4.0), 20, BOUNDS, False).delta
    about = report(LdpIht(Budget(4.0, 10.01 * needed), 20, BOUNDS, False), "a method", 10, 10)
    assert about.delta == about.asked[1] == 10.01 * needed
    assert about.epsilon <= 4.0
    assert about.floating_point_slack <= needed
    assert about.floating_point_slack == pytest.approx(needed, rel=1e-6)
    with pytest.raises(ValueError, match=r"finite precision would use 1\.6e-08 of delta = .*fewer features"):
        LdpIht(Budget(4.0, 9.9 * needed), 20, BOUNDS, False)


def test_a_study_of_which_finite_precision_leaves_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="leaves no privacy guarantee; use a smaller epsilon or fewer features"):
        LdpIht(Budget(16.0), 200_000, BOUNDS, False)


@pytest.mark.parametrize("seed", [None, 3])
@every_estimator
def test_the_report_tells_where_randomness_came_from(cls: Any, seed: int | None) -> None:
    """A seed is a simulation and not private; the operating system's source is."""
    model = cls(1.0, random_state=seed)
    report = model.fit(X, labels_for(model)).privacy_
    said = " ".join(report.assumptions)
    assert report.seeded is (seed is not None)
    assert ("came from a seed" in said) is (seed is not None)
    assert ("operating system" in said) is (seed is None)


def test_the_report_tells_of_bounds_that_were_searched_for() -> None:
    """With their values, and as a line of the bill; declared ones are not mentioned."""
    searched = LocalSparseRegressor(1.0, random_state=0).fit(X, Y).privacy_
    assert [line.release for line in searched.bill] == ["bounds", "gradient"]
    assert any(text.startswith("Bounds were estimated") and "row" in text for text in searched.assumptions)
    declared = LocalSparseRegressor(1.0, bounds=BOUNDS).fit(X, Y).privacy_
    assert [line.release for line in declared.bill] == ["gradient"]
    assert not any("searched" in text for text in declared.assumptions)


@pytest.mark.parametrize("epsilon", [2.0, None])
@every_estimator
def test_the_report_is_json(cls: Any, epsilon: float | None) -> None:
    """Infinite figures as text, all others as they are."""
    model = cls(epsilon)
    report = model.fit(X, labels_for(model)).privacy_
    read = json.loads(report.to_json())
    assert read["epsilon"] == ("inf" if epsilon is None else report.epsilon)
    assert len(read["bill"]) == len(report.bill)
    assert read["delta"] == report.delta
    assert (read["delta"] > 0) is (cls in WHOLE_ROW and epsilon is not None)
    assert "Privacy report" in str(report)


@every_estimator
def test_without_an_epsilon_nothing_is_promised_or_said_to_be_hidden(cls: Any) -> None:
    """epsilon is inf, nothing was asked for, and no sentence speaks of protection or randomised answers."""
    model = cls(None)
    report = model.fit(X, labels_for(model)).privacy_
    assert math.isinf(report.epsilon)
    assert report.asked is None
    assert report.calibration == "none"
    assert math.isinf(report.bill[-1].epsilon_alone)
    said = " ".join([*report.who_saw_what, *report.assumptions, report.method])
    for word in ("andomised", "Only the user", "guarantee covers", "protected", "Local privacy"):
        assert word not in said
    assert "none." in str(report)


def test_slack_is_that_of_the_coarsest_channel() -> None:
    """What rounding adds to delta is tiny, positive, and grows with the width of answers."""
    few, many = (
        LocalSparseRegressor(1.0, bounds=Bounds(row_l2=1.0, label=1.0)).fit(np.zeros((20, d)), np.zeros(20)).privacy_
        for d in (2, 200)
    )
    assert 0 < few.floating_point_slack < many.floating_point_slack < 1e-6


# --- ledgers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("declared", [True, False], ids=["declared bounds", "searched bounds"])
@pytest.mark.parametrize("delta", [1e-9, 1e-5])
@every_whole_row_estimator
def test_whole_row_studies_are_billed_their_epsilon(cls: Any, delta: float, declared: bool) -> None:
    """One costs what it asks for, two cost two of it at most, under caps with a small delta and others."""
    with Ledger(Budget(1.0, delta)) as ledger:
        cls(0.3, bounds=BOUNDS if declared else None).fit(X, Y)
        first = ledger.epsilon
        cls(0.3, bounds=BOUNDS if declared else None).fit(X, Y)
        assert 0.2 < first <= 0.3 * (1 + 1e-6)
        assert first < ledger.epsilon <= 0.6 * (1 + 1e-6)
        assert ledger.fits[0][0] == f"{cls.__name__}.fit"


@every_whole_row_estimator
def test_a_study_beyond_the_cap_asks_nobody(cls: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of two that together pass the cap is stopped before anybody is asked, and is not billed."""
    with Ledger(Budget(1.0, 1e-6)) as ledger:
        cls(0.7, bounds=BOUNDS).fit(X, Y)
        spent = ledger.epsilon
        monkeypatch.setattr(tulle.local.estimators.simulated_study.Population, "answer", _asked)
        with pytest.raises(BudgetExceededError, match="nothing was released"):
            cls(0.7, bounds=BOUNDS).fit(X, Y)
        assert ledger.epsilon == spent


def _asked(*arguments: Any) -> None:
    raise AssertionError("somebody was asked")


@every_label_estimator
def test_label_studies_are_refused_in_a_ledger(cls: Any, nobody_answers: None) -> None:
    """A ledger speaks of whole rows, and these show the features: no cap is large enough."""
    model = cls(0.01)
    with Ledger(Budget(1e6, 0.1)) as ledger:
        with pytest.raises(BudgetExceededError):
            model.fit(X, labels_for(model))
        assert ledger.epsilon == 0


@every_estimator
def test_studies_without_noise_are_refused_in_a_ledger(cls: Any, nobody_answers: None) -> None:
    """epsilon=None has no price."""
    model = cls(None)
    with Ledger(Budget(1e6, 0.1)), pytest.raises(BudgetExceededError):
        model.fit(X, labels_for(model))


def test_studies_are_billed_before_anybody_is_asked(nobody_answers: None) -> None:
    """A study that dies on the first question has been billed."""
    with Ledger(Budget(1.0, 1e-6)) as ledger:
        with pytest.raises(AssertionError, match="somebody was asked"):
            LocalSparseRegressor(0.5, bounds=BOUNDS).fit(X, Y)
        assert 0.4 < ledger.epsilon <= 0.5 * (1 + 1e-9)


def test_a_wrong_seed_is_told_before_anything_is_billed(nobody_answers: None) -> None:
    """Nothing was asked, and nothing is owed."""
    with Ledger(Budget(1.0)) as ledger:
        with pytest.raises(ValueError, match="random_state"):
            LocalSparseRegressor(0.5, bounds=BOUNDS, random_state=-1).fit(X, Y)
        assert ledger.epsilon == 0


@every_whole_row_estimator
def test_studies_that_share_a_seed_differ_within_a_ledger(cls: Any) -> None:
    """Otherwise the difference of two answers would hold no noise; another ledger repeats both."""

    def two() -> list[Any]:
        with Ledger(Budget(2.0, 1e-6)):
            return [cls(0.7, n_nonzero=D, bounds=BOUNDS, random_state=5).fit(X, Y).coef_ for _ in range(2)]

    first, second = two()
    assert not np.allclose(first, second)
    for once, again in zip((first, second), two()):
        np.testing.assert_array_equal(once, again)


def test_a_bill_is_for_the_dearest_group_alone() -> None:
    """Groups are disjoint: searching for bounds adds nothing, and a study without budget or of labels has no price."""
    with Ledger(Budget(1.0, 1e-6)) as ledger:
        bill("a study", LdpIht(Budget(0.4), D, Bounds(), True))
        spent = ledger.epsilon
        assert 0.3 < spent <= 0.4 * (1 + 1e-9)
        for protocol in (LdpIht(None, D, BOUNDS, True), LabelCollection(Budget(0.1), D, BOUNDS, True)):
            with pytest.raises(BudgetExceededError):
                bill("a study", protocol)
        assert ledger.epsilon == spent
