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

import tulle.local.simulation
from tulle import Bounds, Budget, Ledger
from tulle.events import ExposedEvent, GaussianEvent, PureEvent
from tulle.local import (
    LabelPrivateSparseClassifier,
    LabelPrivateSparseRegressor,
    LocalSparseRegressor,
    OneRoundSparseRegressor,
)
from tulle.local.billing import LocalAnswer, bill, promise, releases, report
from tulle.local.channel import Unrandomised
from tulle.local.labels import GaussianLabel, RandomisedResponse, TwoPoint
from tulle.local.protocols import LabelCollection, LdpIht
from tulle.local.uniforms import SeededUniforms, SystemUniforms
from tulle.privacy import BudgetExceededError, PrivacyWarning, gaussian_delta

N, D = 400, 3
RNG = np.random.default_rng(0)
X = RNG.choice([-1.0, 1.0], (N, D))
Y = X[:, 0] + 0.1 * RNG.normal(size=N)
CLASSES = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0)
BOUNDS = Bounds(row_linf=1.0, label=1.5)

ignore_few_users = pytest.mark.filterwarnings("ignore:.*is expected to carry noise:UserWarning")
imprecise = pytest.mark.filterwarnings("ignore:finite precision leaves room")
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

    monkeypatch.setattr(tulle.local.simulation.Population, "answer", refuse)
    for source in (SystemUniforms, SeededUniforms):
        monkeypatch.setattr(source, "draw", refuse)


# --- what is proved --------------------------------------------------------------------------------------------------


@imprecise
@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 8.0, 16.0])
@pytest.mark.parametrize("declared", [True, False], ids=["declared bounds", "searched bounds"])
@every_estimator
def test_pure_channels_prove_the_epsilon_that_was_asked_for(cls: Any, declared: bool, epsilon: float) -> None:
    """No more than asked, all but all of it, and delta is 0."""
    model = cls(epsilon)
    if cls is not LabelPrivateSparseClassifier:
        model.set_params(bounds=BOUNDS if declared else None)
    report = model.fit(X, labels_for(model)).privacy_
    assert 0.99 * epsilon <= report.epsilon <= epsilon
    assert report.delta == 0
    assert report.asked == (epsilon, 0.0)
    assert report.calibration == "rigorous"


@pytest.mark.parametrize("randomiser", ["two_point", "piecewise", "hybrid", "laplace"])
def test_named_channels_are_pure_whatever_delta_says(randomiser: str) -> None:
    """A delta that is not needed is not promised away."""
    report = LabelPrivateSparseRegressor(0.7, 1e-4, randomiser=randomiser, bounds=BOUNDS).fit(X, Y).privacy_
    assert 0.99 * 0.7 <= report.epsilon <= 0.7
    assert report.delta == 0
    assert report.bill[-1].mechanism == f"{randomiser.replace('_', ' ')}, one answer"


@imprecise
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 16.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-3])
@pytest.mark.parametrize("declared", [True, False], ids=["declared bounds", "searched bounds"])
def test_gaussian_noise_proves_the_budget(declared: bool, delta: float, epsilon: float) -> None:
    """(epsilon, delta) is kept and nearly used up; the proof is the Gaussian's exact one, at the noise of the bill."""
    model = LabelPrivateSparseRegressor(epsilon, delta, randomiser="gaussian", bounds=BOUNDS if declared else None)
    report = model.fit(X, Y).privacy_
    assert 0.99 * epsilon <= report.epsilon <= epsilon
    assert report.delta == delta
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
    assert math.isinf(LocalAnswer.through(GaussianLabel(1.0, 1.0, 1e-5)).events[0].pure_epsilon())


def test_the_promise_is_the_dearest_answer() -> None:
    """At a delta of 0.2 a pure answer about bounds is cheaper than the Gaussian one; some users give the latter."""
    protocol = LabelCollection(Budget(1.0, 0.2), D, Bounds(), True, randomiser="gaussian")
    alone = [line.epsilon_alone for line in report(protocol, "a method", 10, 10).bill]
    assert alone[0] < 0.9 * alone[1]
    assert promise(protocol) == max(alone)


def test_channels_are_accounted_for_as_what_they_are() -> None:
    """Pure ones by their epsilon, the Gaussian by its noise over a sensitivity of two bounds, exact ones not at all."""
    assert LocalAnswer.through(TwoPoint(0.3, 2.0)).events == (PureEvent(0.3), 1)
    assert LocalAnswer.through(RandomisedResponse(0.3, 1.0, 4)).events == (PureEvent(0.3), 1)
    channel = GaussianLabel(1.0, 5.0, 1e-5)
    event, uses = LocalAnswer.through(channel).events
    assert isinstance(event, GaussianEvent)
    assert uses == 1
    assert event.gaussian_mu() == pytest.approx(2 * 5.0 / math.sqrt(channel.worst_variance))
    assert LocalAnswer.through(Unrandomised(math.inf, 1.0, 2)).events == (ExposedEvent(), 1)


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
    assert f"In a real study nobody but the user sees the user's {'row' if whole else 'label'}" in seen
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
    assert "Nobody but the user saw the user's label." in real.who_saw_what
    assert "simulat" not in str(real)
    assert "a server cannot check that" in real.assumptions[-1]


def test_a_promise_that_finite_precision_spoils_is_told_before_anybody_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At epsilon = 16 the slack is above 1e-5; at 1 it is not, but above a tiny delta."""
    LabelPrivateSparseRegressor(1.0, bounds=Bounds(label=1.0)).fit(X, np.ones(N))
    monkeypatch.setattr(tulle.local.simulation.Population, "answer", None)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyWarning)
        with pytest.raises(PrivacyWarning, match=r"finite precision leaves room for a delta of 0\.004"):
            LabelPrivateSparseRegressor(16.0, bounds=Bounds(label=1.0)).fit(X, np.ones(N))
        with pytest.raises(PrivacyWarning, match="finite precision leaves room"):  # 1.7e-9, but 1e-12 is asked for
            LabelPrivateSparseRegressor(1.0, 1e-12, randomiser="gaussian", bounds=Bounds(label=1.0)).fit(X, np.ones(N))


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
    assert any(text.startswith("Bounds were searched for") and "row" in text for text in searched.assumptions)
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
    assert read["delta"] == 0
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
    for word in ("andomised", "Nobody but", "promise covers", "protected", "Local privacy"):
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
@pytest.mark.parametrize("delta", [0.0, 1e-5])
@every_whole_row_estimator
def test_whole_row_studies_are_billed_their_epsilon(cls: Any, delta: float, declared: bool) -> None:
    """One costs what it asks for, two cost two of it, in pure ledgers and others."""
    with Ledger(Budget(1.0, delta)) as ledger:
        cls(0.3, bounds=BOUNDS if declared else None).fit(X, Y)
        first = ledger.epsilon
        cls(0.3, bounds=BOUNDS if declared else None).fit(X, Y)
        assert first <= 0.3 * (1 + 1e-9) or delta > 0
        if delta == 0:
            assert first >= 0.99 * 0.3
            assert 0.99 * 0.6 <= ledger.epsilon <= 0.6 * (1 + 1e-9)
        assert first < ledger.epsilon
        assert ledger.fits[0][0] == f"{cls.__name__}.fit"


@every_whole_row_estimator
def test_a_study_beyond_the_cap_asks_nobody(cls: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of two that together pass the cap is stopped before anybody is asked, and is not billed."""
    with Ledger(Budget(1.0)) as ledger:
        cls(0.7, bounds=BOUNDS).fit(X, Y)
        spent = ledger.epsilon
        monkeypatch.setattr(tulle.local.simulation.Population, "answer", _asked)
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
    with Ledger(Budget(1.0)) as ledger:
        with pytest.raises(AssertionError, match="somebody was asked"):
            LocalSparseRegressor(0.5, bounds=BOUNDS).fit(X, Y)
        assert ledger.epsilon == pytest.approx(0.5)


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
        with Ledger(Budget(2.0)):
            return [cls(0.7, n_nonzero=D, bounds=BOUNDS, random_state=5).fit(X, Y).coef_ for _ in range(2)]

    first, second = two()
    assert not np.allclose(first, second)
    for once, again in zip((first, second), two()):
        np.testing.assert_array_equal(once, again)


def test_a_bill_is_for_the_dearest_group_alone() -> None:
    """Groups are disjoint: searching for bounds adds nothing, and a study without budget or of labels has no price."""
    with Ledger(Budget(1.0)) as ledger:
        bill("a study", LdpIht(Budget(0.4), D, Bounds(), True))
        assert ledger.epsilon == pytest.approx(0.4)
        for protocol in (LdpIht(None, D, BOUNDS, True), LabelCollection(Budget(0.1), D, BOUNDS, True)):
            with pytest.raises(BudgetExceededError):
                bill("a study", protocol)
        assert ledger.epsilon == pytest.approx(0.4)
