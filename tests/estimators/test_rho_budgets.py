"""Fits within a rho (zCDP): calibrated to it, billed, in the report; nothing is released where there is none."""

from __future__ import annotations

import json
import math
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from fits import problem
from scipy.special import expit

import tulle.audit.targets
import tulle.estimators.request
from tulle import Bounds, Budget, FileLedger, Ledger, PrivateSearch, SparseClassifier, SparseRegressor, load, save
from tulle.accounting.zcdp import REPORTED_ORDERS, implied_epsilon
from tulle.audit import audit_model
from tulle.estimators.lasso_path import lasso_path
from tulle.federated.encoding import decode, encode
from tulle.federated.questions import CLASSES, check_can_travel
from tulle.files.error_messages import PrivacyWarning
from tulle.ledgers.ledger import BudgetExceededError
from tulle.local.server_side.protocols import LdpIht
from tulle.methods import CoordinateDescent, FrankWolfe, HardThresholding, StochasticHardThresholding
from tulle.reports.pages import fit_page
from tulle.reports.report import About, PrivacyReport
from tulle.trusted.billing import open_ledgers
from tulle.trusted.gaussian import gaussian_epsilon
from tulle.trusted.mechanisms import AdditiveNoise, _as_array
from tulle.trusted.plan import Plan

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

DELTA = 1e-5
BOUNDS = Bounds(row_l2=math.sqrt(12), row_linf=1.0, label=4.0)
X, Y = problem("classification")
TARGET = problem("regression")[1]

METHODS = {
    "auto": "auto",
    "gaussian": HardThresholding(noise="gaussian"),
    "selection": HardThresholding(noise="selection"),
    "one step size": HardThresholding(noise="gaussian", step=0.5),
    "coordinate descent": CoordinateDescent(),
    "frank-wolfe": FrankWolfe(noise="selection"),
    "frank-wolfe, gaussian": FrankWolfe(noise="gaussian"),
    "shuffled batches": StochasticHardThresholding("sgd", 30, sampling="shuffled"),
}


def fit(method: Any = "auto", *, regression: bool = False, rows: Any = X, **settings: Any) -> Any:
    given: dict[str, Any] = {"rho": 0.3, "delta": DELTA, "n_nonzero": 3, "bounds": BOUNDS, "random_state": 0}
    estimator = (SparseRegressor if regression else SparseClassifier)(method=method, **(given | settings))
    return estimator.fit(rows, TARGET if regression else Y)


class Recorder:
    """A ledger that keeps the plans it is told of."""

    repeats = True

    def __init__(self) -> None:
        self.plans: list[Plan] = []
        self.promises: list[tuple[float, float]] = []

    def quote(self, what: str, plans: Any, promise: Any, rows_per_unit: int) -> None:
        pass

    def bill(self, what: str, plans: Any, promise: Any, rows_per_unit: int = 1) -> int:
        self.plans += plans
        self.promises.append(promise)
        return 0

    def confirm(self, plan: Plan, promise: Any, number: int) -> None:
        self.plans.append(plan)

    def stream(self, number: int) -> tuple[int, ...]:
        return (number,)


@pytest.fixture
def recorder() -> Any:
    made = Recorder()
    open_ledgers.append(made)
    yield made
    open_ledgers.remove(made)


def rho_by_hand(plan: Plan) -> float:
    """Of Gaussian answers and Gumbel choices alone."""
    total = 0.0
    for one in plan:
        mechanism: Any = one.mechanism
        uses = one.count * getattr(mechanism, "k", 1) * getattr(mechanism, "columns", 1)
        noise = mechanism.noise.value
        total += uses / (2 * noise**2)  # choices have the range 2 / noise, and (2 / noise)² / 8 is the same
    return total


class TestFits:
    @pytest.mark.parametrize("regression", [False, True])
    @pytest.mark.parametrize("name", METHODS)
    def test_what_is_drawn_is_within_rho_and_no_less(self, name: str, regression: bool, recorder: Recorder) -> None:
        model = fit(METHODS[name], regression=regression)
        planned, settled = recorder.plans
        assert planned == settled
        report = model.privacy_
        assert 0.99 * 0.3 < rho_by_hand(settled) <= 0.3 * (1 + 1e-12)
        assert rho_by_hand(settled) <= report.rho <= 0.3
        assert report.asked_rho == 0.3
        assert recorder.promises == [(report.epsilon, DELTA)]
        assert report.epsilon <= implied_epsilon(0.3, DELTA) == report.asked[0]
        assert [line.count for line in report.bill] == [release.count for release in settled]

    def test_gaussian_fits_have_the_epsilon_of_their_mu(self) -> None:
        """Not the looser one that rho alone would prove."""
        report = fit(METHODS["gaussian"]).privacy_
        assert report.epsilon == pytest.approx(gaussian_epsilon(math.sqrt(0.6), DELTA), rel=1e-6)
        assert report.epsilon < 0.97 * report.asked[0]
        assert "Gaussian differential privacy" in report.accountant

    @pytest.mark.parametrize("name", ["auto", "selection", "coordinate descent"])
    def test_dense_equals_sparse(self, name: str) -> None:
        np.testing.assert_array_equal(fit(METHODS[name]).coef_, fit(METHODS[name], rows=sp.csr_array(X)).coef_)

    @pytest.mark.parametrize("regression", [False, True])
    @pytest.mark.parametrize("declared", [{}, {"row_l2": 3.0}], ids=["none", "rows"])
    def test_estimated_bounds_are_paid_from_rho(
        self, declared: dict[str, float], regression: bool, recorder: Recorder
    ) -> None:
        report = fit(bounds=Bounds(**declared), regression=regression, rho=2.0).privacy_
        assert len(recorder.plans) >= 2
        for plan in recorder.plans:
            assert bool(plan.preliminary) == (regression or not declared)
            assert 0.99 * 2.0 < rho_by_hand(plan) <= 2.0 * (1 + 1e-12)
        assert rho_by_hand(recorder.plans[-1]) <= report.rho <= 2.0
        assert all(value >= order * rho_by_hand(recorder.plans[-1]) * 0.9 for order, value in report.renyi)

    def test_the_budget_in_epsilon_is_not_changed(self) -> None:
        """A fit in epsilon has the same weights with and without the new argument."""
        one = SparseClassifier(2.0, DELTA, n_nonzero=3, bounds=BOUNDS, random_state=0).fit(X, Y)
        other = SparseClassifier(2.0, DELTA, rho=None, n_nonzero=3, bounds=BOUNDS, random_state=0).fit(X, Y)
        np.testing.assert_array_equal(one.coef_, other.coef_)
        assert one.privacy_.asked_rho is None
        assert 0 < one.privacy_.rho < math.inf  # objective perturbation has one
        assert len(one.privacy_.renyi) == len(REPORTED_ORDERS)

    def test_fits_in_epsilon_report_their_rho(self) -> None:
        report = fit(METHODS["gaussian"], rho=None, epsilon=2.0).privacy_
        assert report.asked_rho is None
        assert report.epsilon == pytest.approx(gaussian_epsilon(math.sqrt(2 * report.rho), DELTA), rel=1e-6)
        assert report.renyi == tuple((order, pytest.approx(order * report.rho)) for order in REPORTED_ORDERS)

    def test_none_where_plans_depend_on_answers(self) -> None:
        """Plans of one epsilon need not have one rho, and which is settled on depends on private bounds."""
        report = fit(METHODS["gaussian"], rho=None, epsilon=2.0, bounds=Bounds()).privacy_
        assert report.rho is None
        assert report.renyi == ()

    def test_random_batches_have_a_curve_and_no_rho(self) -> None:
        report = fit(StochasticHardThresholding("sgd", 30), rho=None, epsilon=2.0).privacy_
        assert report.rho is None
        assert len(report.renyi) == len(REPORTED_ORDERS)

    def test_without_privacy(self) -> None:
        report = fit(METHODS["gaussian"], rho=None, epsilon=None).privacy_
        assert (report.rho, report.asked_rho, report.renyi) == (None, None, ())

    def test_lasso_path(self) -> None:
        report = lasso_path(X, TARGET, [0.5, 1.0], delta=DELTA, rho=0.3, bounds=BOUNDS, random_state=0).privacy
        assert 0.99 * 0.3 < report.rho <= 0.3

    def test_an_audit_claims_the_implied_epsilon(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tulle.audit.targets, "_strongest_pair", lambda request, judge, pairs, *given: pairs[0])
        monkeypatch.setattr(tulle.audit.targets, "judge_runs", lambda *given, claimed, **named: claimed)
        model = SparseClassifier(rho=0.3, delta=0.01, method="hard_thresholding", bounds=Bounds(row_l2=1.0))
        assert audit_model(model) == implied_epsilon(0.3, 0.01)


class TestRefusals:
    @pytest.mark.parametrize(
        ("settings", "words"),
        [
            ({"epsilon": 2.0}, "in epsilon or in rho"),
            ({"epsilon": None}, "in epsilon or in rho"),
            ({"rho": 0.0}, "rho must be a finite number > 0"),
            ({"rho": "much"}, "rho must be"),
            ({"delta": 0.0}, "needs a delta in"),
            ({"method": "stochastic_hard_thresholding"}, "no rho is proved for .*sampling='shuffled'"),
            ({"method": "frank_wolfe", "calibration": "published"}, "prints no noise for rho"),
            (
                {"method": HardThresholding(noise="gaussian", published_rule="ldp"), "calibration": "published"},
                "'remark_5.3'",
            ),
            ({"bounds": Bounds(estimate_share=0.9)}, "estimate_share"),
        ],
    )
    def test_before_anything_is_released(self, settings: dict[str, Any], words: str, recorder: Recorder) -> None:
        with pytest.raises(ValueError, match=words):
            fit(**settings)
        assert recorder.plans == []

    def test_a_plan_with_more_rho_than_was_promised(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A method whose plan depends on estimated bounds in a way that was not foreseen stops before its answers."""
        monkeypatch.setattr(
            tulle.estimators.request.FitRequest, "promised_rho", lambda request, planned: 0.9 * request.rho
        )
        with pytest.raises(RuntimeError, match="its rho does not cover"):
            fit()

    def test_searches_ledgers_on_disk_and_local_studies(self, tmp_path: Any) -> None:
        in_rho = Budget(rho=0.1, delta=1e-5)
        with pytest.raises(ValueError, match="PrivateSearch takes a budget in epsilon"):
            PrivateSearch(SparseClassifier(bounds=BOUNDS), {}, in_rho).fit(X, Y)
        with pytest.raises(ValueError, match="estimator has a rho"):
            PrivateSearch(SparseClassifier(rho=0.1, bounds=BOUNDS), {}, Budget(1.0, 1e-5)).fit(X, Y)
        with pytest.raises(ValueError, match="a ledger on disk takes"):
            FileLedger.create(tmp_path / "ledger.json", "visits", in_rho)
        with pytest.raises(ValueError, match="a local study takes"):
            LdpIht(in_rho, 3, BOUNDS, True)


class TestLedgers:
    def test_rho_adds_up_to_a_cap(self) -> None:
        with Ledger(Budget(rho=0.7, delta=DELTA)) as ledger:
            fit()
            fit(METHODS["selection"])
            assert ledger.share == pytest.approx(0.6 / 0.7, rel=1e-6)
            assert ledger.epsilon == pytest.approx(implied_epsilon(0.6, DELTA), rel=1e-6)
            assert str(ledger).startswith("Ledger: cap rho = 0.7, delta = 1e-05")
            with pytest.raises(BudgetExceededError, match=r"cap .rho = 0\.7"):
                fit()
            with pytest.raises(BudgetExceededError, match="It has no rho"):
                fit("stochastic_hard_thresholding", rho=None, epsilon=0.1)

    def test_a_cap_in_epsilon(self) -> None:
        with Ledger(Budget(2 * gaussian_epsilon(math.sqrt(0.6), DELTA), DELTA)) as ledger:
            report = fit(METHODS["gaussian"]).privacy_
            assert ledger.epsilon == pytest.approx(report.epsilon, rel=1e-6)


# --- DP-IGHT's printed noise for rho (Wang and Gu 2019) ---------------------------------------------------------------


def printed_ight(draws: Any, *, s: int, eta: float, T: int, rho: float) -> np.ndarray:
    """theta <- H_s(theta - eta (gradient + u)), every entry of u ~ N(0, T G² / (n² rho)); G the longest gradient."""
    n, d = X.shape
    longest = math.sqrt(d)  # logistic slopes are below 1
    sigma = math.sqrt(T * longest**2 / (n**2 * rho))
    theta = np.zeros(d)
    for _ in range(T):
        u = -sigma * draws.standard_normal((d, 1))[:, 0]  # the fit's noise is on the step, which goes down
        theta = theta - eta * (X.T @ (expit(X @ theta) - Y) / n + u)
        theta[np.argsort(-np.abs(theta))[s:]] = 0.0
    return theta


class TestPublished:
    @pytest.mark.parametrize("loudness", [0.0, 1.0], ids=["no noise", "the same noise"])
    def test_as_printed(self, loudness: float, monkeypatch: pytest.MonkeyPatch) -> None:
        draws = np.random.default_rng(5)

        def add_noise(mechanism: Any, exact: Any, sensitivity: Any, generator: Any, then: Any) -> Any:
            values = _as_array(exact)
            noisy = values + loudness * mechanism._scale(sensitivity.l2) * draws.standard_normal(values.shape)
            return noisy if then is None else then(noisy)

        monkeypatch.setattr(AdditiveNoise, "release", add_noise)
        method = HardThresholding(n_iter=7, step=0.8, clip=1.0, noise="gaussian")
        model = fit(method, rho=0.5, calibration="published", fit_intercept=False)

        class Draws:
            generator = np.random.default_rng(5)

            def standard_normal(self, shape: tuple[int, int]) -> np.ndarray:
                return loudness * self.generator.standard_normal(shape)

        expected = printed_ight(Draws(), s=3, eta=0.8, T=7, rho=0.5)
        np.testing.assert_allclose(model.coef_.ravel(), expected, rtol=1e-9, atol=1e-12)
        assert np.count_nonzero(expected) == 3

    def test_the_report_says_twice_the_rho(self) -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            report = fit(METHODS["one step size"], rho=0.5, calibration="published").privacy_
        assert report.rho == pytest.approx(1.0, rel=1e-9)
        assert report.rho >= 1.0
        said = [str(one.message) for one in caught if one.category is PrivacyWarning]
        assert any("the published noise for rho = 0.5 proves only rho = 1" in text for text in said)
        assert "MORE than requested" in str(report)
        assert "ρ = 0.5, δ = 1e-05 was requested" in str(report)

    def test_the_noise_of_remark_5_3_is_that_of_its_rho(self) -> None:
        rho = 0.5
        epsilon = rho + 2 * math.sqrt(rho * math.log(1 / DELTA))
        in_rho = fit(METHODS["one step size"], rho=rho, calibration="published").privacy_
        in_epsilon = fit(METHODS["one step size"], rho=None, epsilon=epsilon, calibration="published").privacy_
        assert in_rho.bill[0].count == in_epsilon.bill[0].count
        assert in_rho.bill[0].noise_per_sensitivity == pytest.approx(in_epsilon.bill[0].noise_per_sensitivity)
        assert in_rho.epsilon == pytest.approx(in_epsilon.epsilon)


class TestReports:
    def test_json_and_saving(self, tmp_path: Any) -> None:
        model = fit()
        report = model.privacy_
        assert PrivacyReport.from_dict(json.loads(report.to_json())) == report
        save(model, tmp_path / "model.npz")
        read = load(tmp_path / "model.npz")
        assert read.privacy_ == report
        assert read.rho == 0.3

    def test_reports_of_earlier_versions(self) -> None:
        values = fit(rho=None, epsilon=2.0).privacy_.to_dict()
        for name in ("rho", "asked_rho", "renyi"):
            del values[name]
        read = PrivacyReport.from_dict(values)
        assert (read.rho, read.asked_rho, read.renyi) == (None, None, ())
        assert "Rényi curve" not in str(read)

    @pytest.mark.parametrize(
        "changed",
        [
            {"rho": -1.0},
            {"rho": "nan"},
            {"asked_rho": "inf"},
            {"renyi": [[1.0, 1.0]]},
            {"renyi": [[2.0, -1]]},
            {"renyi": [[3, 1], [2, 1]]},
        ],
    )
    def test_impossible_values(self, changed: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match="impossible value"):
            PrivacyReport.from_dict({**fit().privacy_.to_dict(), **changed})

    def test_a_printed_rho_is_rounded_up(self) -> None:
        report = replace(fit().privacy_, rho=0.123452, renyi=((2.0, 0.1231), (3.0, 0.2)))
        assert "ρ = 0.12346 is proved" in " ".join(str(report).split())
        assert "ε(α)  0.124  0.2" in str(report)
        assert "0.12346" in fit_page(fit_with(report), About())

    def test_the_page_has_the_chart(self) -> None:
        page = fit_page(fit(), About())
        assert 'id="renyi-wide-title"' in page
        assert "ρ\u00a0=\u00a00.3 (zCDP)" in page
        assert "No ρ of zero-concentrated" not in page
        plain = fit_page(fit("stochastic_hard_thresholding", rho=None, epsilon=2.0), About())
        assert 'id="renyi-wide-title"' in plain
        assert "No ρ of zero-concentrated" in plain

    def test_a_page_with_the_papers_noise_says_what_is_proved(self) -> None:
        page = fit_page(fit(METHODS["one step size"], rho=0.5, calibration="published"), About())
        assert "weaker than the one requested" in page
        assert "The noise drawn proves only ρ\u00a0=\u00a01" in page

    def test_a_search_has_none_of_one_trial(self) -> None:
        model = SparseClassifier(n_nonzero=3, method=HardThresholding(noise="gaussian"), bounds=BOUNDS)
        search = PrivateSearch(model, {"n_nonzero": [2, 3]}, Budget(4.0, 1e-5), n_trials=2, random_state=0).fit(X, Y)
        assert search.privacy_.rho is None
        assert search.privacy_.renyi == ()


def fit_with(report: PrivacyReport) -> Any:
    model = fit()
    model.privacy_ = report
    return model


def test_clients_are_sent_the_implied_epsilon() -> None:
    budget = Budget(rho=0.1, delta=1e-5)
    check_can_travel(budget)
    received = decode(encode(budget), CLASSES)
    assert (received.epsilon, received.delta) == (budget.epsilon, budget.delta)
