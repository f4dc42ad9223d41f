"""The two-stage baseline of the papers, and the method that `auto` chooses."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fits import (
    estimator_for,
)
from screened_rows import BOUNDS, BUDGETS, OwnLogistic, facts, problem
from sklearn.base import clone

from tulle import Bounds, SparseClassifier
from tulle.files.error_messages import PrivacyWarning
from tulle.methods import Auto, CoordinateDescent, FitAgain, HardThresholding, ScreenRefine, TwoStage
from tulle.methods.loss_functions import Huber, Logistic, OneVsRest, Poisson, Softmax, Squared, SquaredHinge

# --- two stage -------------------------------------------------------------------------------------------------------


def test_two_stage_is_the_baseline_of_the_papers() -> None:
    """One round of noisy maxima, the whole loss, unscaled rows, half of the cost each, and nothing else."""
    public = facts(n_nonzero=6, row_l2=2.0, row_linf=1.0)
    run = TwoStage().settings(public)
    assert run.selection
    assert run.rescale is None
    assert (run.rounds, run.screening_share, run.start_share, run.centre) == (1, 0.5, 0.0, 0.0)
    assert run.refine.slope_clip == 1.0
    assert run.refine.row_bound == pytest.approx(2.0 * math.hypot(1, 0.25))
    assert [release.name for release in TwoStage().releases(public)] == ["select", "refine"]
    unit = 0.25 * run.refine.row_bound**2
    assert run.refine.penalty == pytest.approx(6 * unit)
    assert TwoStage(constant=2.5).settings(public).refine.penalty == pytest.approx(15 * unit)
    assert TwoStage().settings(facts(loss=Squared(), label=3.0)).refine.slope_clip == 3.0
    assert TwoStage().get_params() == {"constant": 1.0}
    assert clone(TwoStage(constant=2.0)).constant == 2.0


@pytest.mark.parametrize(("eps", "delta"), BUDGETS)
@pytest.mark.parametrize("loss", ["logistic", "squared", "squared_hinge"])
def test_two_stage_noise_as_published(eps: float, delta: float, loss: str) -> None:
    """Kifer, Smith and Thakurta 2012 at half of epsilon: epsilon/2 over s pure choices, and G sqrt(8 log(2/delta) +
    4 e) / e on the linear term; the report has the true epsilon of this noise, and warns if it is the larger one."""
    X, y = problem(loss, n=50)
    model = estimator_for(loss)(
        eps, delta, n_nonzero=3, method="two_stage", loss=loss, calibration="published", bounds=BOUNDS, random_state=0
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y)
    lines = {line.release: line for line in model.privacy_.bill}
    assert 2 / lines["select"].noise_per_sensitivity == pytest.approx(eps / 2 / 3)
    e = eps / 2
    deviation = math.sqrt(8 * math.log(2 / delta) + 4 * e) / e
    assert 2 * lines["refine"].noise_per_sensitivity == pytest.approx(deviation)
    true = model.privacy_.epsilon
    assert model.privacy_.asked == (eps, delta)
    warned = [str(one.message) for one in caught if issubclass(one.category, PrivacyWarning)]
    assert (true > eps) == bool(warned)
    if warned:
        assert f"for epsilon = {eps:g} proves only epsilon = {true:.4g}" in warned[0]
    assert 0.3 * eps < true < 4 * eps


def test_two_stage_as_published_says_how_much_it_proves_of_people() -> None:
    """The paper's noise is for one row: for people with five rows each it proves over 2 where 1 is claimed."""
    X, y = problem("logistic", n=50)
    bounds = replace(BOUNDS, rows_per_person=5)
    model = SparseClassifier(1.0, 1e-5, n_nonzero=3, method="two_stage", calibration="published", bounds=bounds)
    with pytest.warns(PrivacyWarning, match=r"the published noise for epsilon = 1 proves only epsilon = 2\.\d"):
        model.fit(X, y)
    assert 2 < model.privacy_.epsilon < 3
    assert "MORE than requested" in " ".join(str(model.privacy_).split())


@pytest.mark.usefixtures("no_noise")
def test_published_noise_that_no_paper_prints() -> None:
    """screen_refine is tulle's own, and the papers' formulas need a delta."""
    X, y = problem("logistic")
    with pytest.raises(ValueError, match="no paper prints noise for 'screen_refine'; use method='two_stage'"):
        SparseClassifier(method="screen_refine", calibration="published", bounds=BOUNDS).fit(X, y)
    with pytest.raises(ValueError, match="the published noise needs delta > 0"):
        SparseClassifier(1.0, 0.0, method="two_stage", calibration="published", bounds=BOUNDS).fit(X, y)


# --- auto ------------------------------------------------------------------------------------------------------------

DENSE = {"row_l2": 10.0, "row_linf": 1.0, "n_nonzero": 2}


@pytest.mark.parametrize(
    ("change", "chosen"),
    [
        pytest.param({}, FitAgain, id="text-classification"),
        pytest.param({"n_nonzero": 100}, FitAgain, id="text-classification-all-features"),
        pytest.param({"loss": Squared()}, FitAgain, id="text-regression"),
        pytest.param({"loss": Poisson()}, FitAgain, id="text-counts"),
        pytest.param({"loss": OneVsRest(SquaredHinge(), 3)}, ScreenRefine, id="several-classes"),
        pytest.param({"loss": Softmax(3)}, HardThresholding, id="softmax"),
        pytest.param({"loss": OwnLogistic()}, HardThresholding, id="own-loss"),
        pytest.param({"loss": OneVsRest(OwnLogistic(), 3)}, HardThresholding, id="own-loss-several-classes"),
        pytest.param({"budget": None}, HardThresholding, id="no-privacy"),
        pytest.param({"budget": None, "n_nonzero": 100}, ScreenRefine, id="no-privacy-all-features"),
        pytest.param({"budget": None, "n_nonzero": 100, "loss": Softmax(3)}, HardThresholding, id="no-privacy-softmax"),
        pytest.param({"as_published": True}, HardThresholding, id="published"),
        pytest.param(DENSE, ScreenRefine, id="dense-classification"),
        pytest.param({**DENSE, "n_nonzero": 100}, FitAgain, id="dense-classification-all-features"),
        pytest.param(
            {"row_l2": 2.0, "row_linf": 1.0, "n_nonzero": 4, "n_features": 4}, FitAgain, id="four-equal-features-all"
        ),
        pytest.param({**DENSE, "loss": Squared()}, FitAgain, id="dense-regression-few-features"),
        pytest.param({**DENSE, "loss": Squared(), "n_features": 299}, FitAgain, id="dense-regression-299-features"),
        pytest.param({**DENSE, "loss": Squared(), "n_features": 300}, HardThresholding, id="dense-regression"),
        pytest.param(
            {**DENSE, "loss": Squared(), "n_features": 300, "n_rows": 40},
            CoordinateDescent,
            id="dense-regression-few-rows",
        ),
        pytest.param({**DENSE, "loss": Huber(), "n_nonzero": 90}, FitAgain, id="dense-regression-many-weights"),
        pytest.param(
            {"row_l2": 10.0, "row_linf": 0.2, "loss": Huber(), "n_features": 400, "n_nonzero": 50, "n_rows": 1000},
            CoordinateDescent,
            id="dense-regression-many-weights-small-entries",
        ),
    ],
)
def test_auto_chooses_by_public_facts(change: dict[str, Any], chosen: type) -> None:
    """The rule, case by case; a fit goes on with the method that was chosen."""
    public = facts(**change)
    method = Auto().resolve(public)
    assert type(method) is chosen
    names = {
        HardThresholding: "hard thresholding (DP-IGHT)",
        ScreenRefine: "screen and refine",
        FitAgain: "fit, keep, fit again",
        CoordinateDescent: "greedy coordinate descent",
    }
    assert method.describe(public).startswith(names[chosen])
    assert Auto().releases(public) == method.releases(public)


def test_how_many_weights_auto_keeps() -> None:
    """All features, or a quarter of them where rows are scarce, unless another method is at work; by public facts
    alone."""
    public = facts(n_rows=1000, n_features=300)
    for loss in (Logistic(), Squared()):
        assert Auto().default_nonzero(replace(public, loss=loss)) == 75
        assert Auto().default_nonzero(replace(public, loss=loss, n_rows=20_000)) == 300
    dense = replace(public, row_l2=math.sqrt(300))
    assert Auto().default_nonzero(dense) == 75
    assert Auto().default_nonzero(replace(dense, n_rows=20_000)) == 300  # enough rows for each
    others = [replace(dense, loss=Squared()), replace(public, loss=OneVsRest(SquaredHinge(), 3))]
    for other in [*others, replace(public, budget=None)]:
        assert Auto().default_nonzero(other) == ScreenRefine().default_nonzero(other) < 300
    for other in (replace(public, as_published=True), replace(public, loss=Softmax(3))):
        assert Auto().default_nonzero(other) == HardThresholding().default_nonzero(other)


@pytest.mark.parametrize("loss", ["logistic", "squared"])
@pytest.mark.parametrize("n_nonzero", [5, None])
@pytest.mark.parametrize("shape", [(300, 10), (5000, 300), (20_000, 2000)], ids=str)
def test_whatever_bounds_are_estimated_the_plan_was_billed(
    loss: str, n_nonzero: int | None, shape: tuple[int, int]
) -> None:
    """The method may follow from estimated bounds: it is one of those that were planned before they were known."""
    model = estimator_for(loss)(1.0, 1e-6, n_nonzero=n_nonzero)
    request = model._request({"logistic": Logistic(), "squared": Squared()}[loss], shape[0])
    planned = request.plan_all(shape)
    billed = {one.plan.releases for one in planned}
    for flatness in np.linspace(0, 1, 9):
        guess = {"row_l2": math.sqrt(shape[1]) ** flatness, "row_linf": 1.0, "label": 1.0}
        known = request.bounds.known(shape[1], {of: guess[of] for of in request.wanted})
        assert request.plan(shape, known, planned[0].plan.together).plan.releases in billed


@pytest.mark.parametrize("loss", ["logistic", "squared"])
@pytest.mark.parametrize("budget", [2.0, None])
def test_auto_is_the_method_that_it_names(loss: str, budget: float | None) -> None:
    """The report of a fit by default names the method, and the weights are those of that method."""
    X, y = problem(loss)
    model = estimator_for(loss)(budget, n_nonzero=3, bounds=Bounds(row_l2=2.0, label=4.0), random_state=0)
    auto = clone(model).fit(X, y)
    name = "hard_thresholding" if budget is None else "fit_again"
    assert auto.privacy_.method.startswith(name.replace("_", " ").replace("fit again", "fit, keep, fit again"))
    np.testing.assert_array_equal(auto.coef_, clone(model).set_params(method=name).fit(X, y).coef_)


def test_auto_with_published_noise_is_that_of_the_hard_thresholding_paper() -> None:
    """calibration="published" means what it meant before there was a choice."""
    X, y = problem("logistic")
    bounds = Bounds(row_l2=2.0)
    auto, plain = (
        SparseClassifier(4.0, 1e-5, n_nonzero=3, method=method, calibration="published", bounds=bounds, random_state=0)
        for method in ("auto", "hard_thresholding")
    )
    for model in (auto, plain):
        with pytest.warns(PrivacyWarning, match=r"the published noise for epsilon = 4 proves only epsilon = 4\.84"):
            model.fit(X, y)
    assert auto.privacy_ == plain.privacy_
    np.testing.assert_array_equal(auto.coef_, plain.coef_)
