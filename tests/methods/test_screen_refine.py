"""Screen and refine: the plan it keeps, the method it is without noise, its rounds, and what is not allowed."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import fits
import numpy as np
import pytest
import scipy.sparse as sp
from fits import (
    SLOPES,
    STARTS,
    Array,
    RecordingCurator,
    clipped_scores,
    estimator_for,
    is_classification,
    plain_rescaled,
    ridge_fit,
    shortened,
    signed,
)
from pairwise import reduce_to_pairs
from screened_rows import BOUNDS, BUDGETS, OwnLogistic, facts, problem
from sklearn.base import clone

import tulle.estimators.request
import tulle.trusted.fit
from tulle import Bounds, Budget, Ledger, SparseClassifier, SparseRegressor
from tulle.accounting.calibration import calibrate
from tulle.estimators.bounds import GRID
from tulle.files.error_messages import PrivacyWarning
from tulle.methods import ScreenRefine, TwoStage
from tulle.methods.loss_functions import (
    LOSSES,
    Huber,
    Logistic,
    Loss,
    OneVsRest,
    Poisson,
    Squared,
    SquaredHinge,
)
from tulle.methods.noise_scales import budget_mu
from tulle.methods.screen_refine import Settings
from tulle.trusted.accountants import epsilon
from tulle.trusted.facts import PublicFacts
from tulle.trusted.mechanisms import ObjectivePerturbation, price_of
from tulle.trusted.plan import Release, compose

# Many of these tests use small data sets at small budgets; see tests/estimators/test_sparse.py.
pytestmark = pytest.mark.filterwarnings("ignore:.*no better than guessing:UserWarning")

recorder = fits.recorder


# --- the plan --------------------------------------------------------------------------------------------------------

CONFIGURATIONS: list[tuple[str, int, dict[str, Any]]] = [
    *((loss, 2, {"noise": noise}) for loss in SLOPES for noise in ("gaussian", "selection")),
    *(("logistic", 2, {"noise": noise, "rounds": k}) for noise in ("gaussian", "selection") for k in (2, 3)),
    *(("squared_hinge", 3, {"noise": noise, "rounds": k}) for noise in ("gaussian", "selection") for k in (1, 2)),
    *(("squared", 2, {"refinement": "statistics", "noise": noise}) for noise in ("gaussian", "selection")),
    ("squared", 2, {"refinement": "statistics", "rounds": 3}),
    ("squared", 2, {"rescale_share": 0.2, "start_share": 0.0}),
    ("huber", 2, {"rounds": 2, "centre": 0.5}),
]


def labels_of(loss: str, n_classes: int, n: int = 150) -> tuple[Array, Array]:
    X, y = problem(loss, n)
    return X, y if n_classes == 2 else np.arange(n) % n_classes


@reduce_to_pairs()
@pytest.mark.parametrize(("loss", "n_classes", "parameters"), CONFIGURATIONS, ids=str)
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize(("budget", "people"), [(1.0, 1), (1.0, 3), (None, 1)], ids=["rows", "people", "exact"])
def test_what_is_asked_equals_the_plan(
    recorder: type[RecordingCurator],
    loss: str,
    n_classes: int,
    parameters: dict[str, Any],
    fit_intercept: bool,
    budget: float | None,
    people: int,
) -> None:
    """Names and counts that the curator was asked for are those of releases(), and those of the report's bill."""
    X, y = labels_of(loss, n_classes)
    method = ScreenRefine(**({"rounds": 2} if budget is None else {}) | parameters)
    bounds = replace(BOUNDS, rows_per_person=people)
    model = estimator_for(loss)(
        budget, n_nonzero=6, method=method, loss=loss, bounds=bounds, fit_intercept=fit_intercept, random_state=0
    ).fit(X, y)
    public = recorder.facts[-1]
    rounds, outputs = method.settings(public).rounds, public.loss.n_outputs
    planned = {release.name: release.count for release in method.releases(public)}
    assert Counter(asked.name for asked in recorder.asked) == planned
    assert {line.release: line.count for line in model.privacy_.bill} == planned
    assert (model.n_iter_, outputs) == (rounds, n_classes if n_classes > 2 else 1)
    assert parameters.get("rounds") in (None, rounds)
    selection = parameters.get("noise") == "selection"
    wanted = {"select" if selection else "screen": rounds}
    if fit_intercept and parameters.get("start_share", 0.02):
        wanted["start"] = 1
    wanted["moments" if "refinement" in parameters else "refine"] = rounds * outputs
    # Without privacy nothing is cut, and nothing rescaled.
    if budget is not None and parameters.get("rescale_share", is_classification(loss) or not selection):
        wanted |= {"spread": outputs, "rescale": outputs}
    assert planned == wanted


@pytest.mark.parametrize(("loss", "n_classes", "parameters"), CONFIGURATIONS, ids=str)
@pytest.mark.parametrize(("eps", "delta"), BUDGETS)
def test_the_proved_epsilon_is_just_below_the_budget(
    loss: str, n_classes: int, parameters: dict[str, Any], eps: float, delta: float
) -> None:
    """Calibration spends nearly all of the budget and never more, whatever the settings and the number of outputs."""
    X, y = labels_of(loss, n_classes)
    for people in (1, 3):
        bounds = replace(BOUNDS, rows_per_person=people)
        model = estimator_for(loss)(
            eps, delta, n_nonzero=4, method=ScreenRefine(**parameters), loss=loss, bounds=bounds, random_state=0
        )
        report = model.fit(X, y).privacy_
        assert 0.99 * eps < report.epsilon <= eps
        assert report.delta == delta


@reduce_to_pairs()
@pytest.mark.parametrize(
    "loss", [Logistic(), Squared(), OneVsRest(SquaredHinge(), 3)], ids=lambda loss: type(loss).__name__
)
@pytest.mark.parametrize(
    "parameters",
    [{}, {"screening_share": 0.1}, {"start_share": 0.3, "rescale_share": 0.3}, {"curvature": 2.0, "rounds": 3}],
    ids=str,
)
@pytest.mark.parametrize("noise", ["gaussian", "selection"])
@pytest.mark.parametrize("eps", [0.05, 1.0, 30.0])
def test_a_plan_costs_its_budget(loss: Loss, parameters: dict[str, Any], noise: Any, eps: float) -> None:
    """The same without rows, over more settings."""
    budget = Budget(eps, 1e-5)
    releases = ScreenRefine(noise=noise, **parameters).releases(facts(loss=loss, budget=budget))
    assert 0.99 * eps < epsilon(calibrate(releases, budget), budget.delta) <= eps


@pytest.mark.parametrize("noise", ["gaussian", "selection"])
@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("loss", [Logistic(), OneVsRest(SquaredHinge(), 3)], ids=["two", "three"])
def test_the_cost_is_divided_as_the_parameters_say(noise: Any, rounds: int, loss: Loss) -> None:
    """Each part's sum of mu² (a choice of range r is (r/2)²) is its share, over all rounds and outputs together, and
    the curvature that a penalty allows is in proportion to the mu of its own release."""
    public = facts(loss=loss)
    method = ScreenRefine(rounds, noise, screening_share=0.3, start_share=0.1, rescale_share=0.2, curvature=0.6)
    squares, curvatures = {}, {}
    for release in method.releases(public):
        _, uses = price_of(release.mechanism)
        squares[release.name] = uses * release.count / release.mechanism.noise.value**2
        curvatures[release.name] = math.expm1(getattr(release.mechanism, "log_determinant", 0.0))
    assert sum(squares.values()) == pytest.approx(1.0)
    assert squares["start"] == pytest.approx(0.1)
    assert squares["screen" if noise == "gaussian" else "select"] == pytest.approx(0.7 * 0.3)
    assert squares["refine"] == pytest.approx(0.7 * 0.7)
    assert squares["spread"] + squares["rescale"] == pytest.approx(0.2)
    assert public.budget is not None
    half = budget_mu(public.budget) / 2
    uses = rounds * loss.n_outputs
    assert curvatures["refine"] == pytest.approx(0.6 * half * math.sqrt(0.7 * 0.7 / uses))
    assert curvatures["rescale"] == pytest.approx(0.8 * half * math.sqrt(0.75 * 0.2 / loss.n_outputs))


@pytest.mark.parametrize("noise", ["gaussian", "selection"])
@pytest.mark.parametrize("loss", [Logistic(), OneVsRest(SquaredHinge(), 3)], ids=["two", "three"])
def test_no_part_is_free(noise: Any, loss: Loss) -> None:
    """Each release adds to the proved epsilon, rescaling and spread included: nothing that reads rows is for free."""
    public = facts(loss=loss)
    method = ScreenRefine(2, noise, start_share=0.15, rescale_share=0.3, screening_share=0.5)
    assert public.budget is not None
    plan = calibrate(method.releases(public), public.budget)
    whole = epsilon(plan, 1e-5)
    for dropped in plan:
        assert epsilon([release for release in plan if release is not dropped], 1e-5) < 0.99 * whole, dropped.name


@pytest.mark.parametrize("method", [ScreenRefine(noise="gaussian"), ScreenRefine(noise="selection"), TwoStage()])
@pytest.mark.parametrize("people", [2, 7])
def test_all_rows_of_a_person_count_in_the_refinement(method: ScreenRefine, people: int) -> None:
    """Its cost knows how many rows move, in rigorous and in published plans; each may be at a bound of its own."""
    public = facts(rows_per_unit=people)
    assert public.budget is not None
    plans = [method.releases(public)]
    if isinstance(method, TwoStage):
        plans.append(method.published(public, public.budget))
    for plan in plans:
        parts = [release.mechanism for release in plan if isinstance(release.mechanism, ObjectivePerturbation)]
        assert parts
        assert all(part.rows_per_unit == people for part in parts)


# --- without noise ---------------------------------------------------------------------------------------------------


def start_of(loss: str, slope: float, public: PublicFacts, run: Settings) -> float:
    """The constant model of a mean slope, less what of it would be noise."""
    if public.budget is not None:
        scale = 2 * run.clip / (public.n_rows * budget_mu(public.budget) * math.sqrt(run.start_share))
        slope = float(np.clip(slope, scale - run.clip, run.clip - scale)) * slope**2 / (slope**2 + scale**2)
    return float(STARTS[loss](slope))


def plain_screen_refine(X: Array, y: Array, loss: str, keep: int, public: PublicFacts, run: Settings) -> Any:
    """Screen by the exact gradient at the current model, ridge fit on the support, rescale: on plain arrays."""
    n, d = X.shape
    a, slope = run.refine.intercept_value, SLOPES[loss]
    w, intercept = np.zeros(d), 0.0
    if a:
        intercept = start_of(loss, float(np.clip(slope(np.zeros(n), y), -run.clip, run.clip).mean()), public, run)
    support: list[int] = []
    for number in range(1, run.rounds + 1):
        scores = clipped_scores(X, slope(X @ w + intercept, y), run.clip, run.selection, a, public)
        scores[support] = 0.0
        new = np.argsort(-np.abs(scores))[: math.ceil(number * keep / run.rounds) - len(support)]
        support = sorted([*support, *new])
        centre = w.copy()
        if run.centre:
            centre[new] += scores[new] * run.centre / (np.linalg.norm(scores[new]) * run.refine.row_bound)
        rows = shortened(X[:, support], run.refine.row_bound, a)
        middle = np.append(centre[support], intercept / a) if a else centre[support]
        theta = ridge_fit(rows, y, loss, run.refine.slope_clip, run.refine.penalty, middle)
        w[support], intercept = theta[: len(support)], a * theta[-1] if a else 0.0
    if run.rescale is not None:
        w, intercept = plain_rescaled(X, y, loss, w, intercept, run.rescale)
    return w, intercept


@reduce_to_pairs()
@pytest.mark.parametrize("loss", list(SLOPES))
@pytest.mark.parametrize("noise", ["gaussian", "selection"])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize(("rounds", "keep"), [(1, 4), (2, 4), (2, 3)])
@pytest.mark.parametrize("bounds", [None, BOUNDS], ids=["free", "bounded"])
def test_without_privacy_it_is_the_non_private_method(
    recorder: type[RecordingCurator],
    loss: str,
    noise: Any,
    fit_intercept: bool,
    rounds: int,
    keep: int,
    bounds: Bounds | None,
) -> None:
    """epsilon=None: the exact gradient's largest entries, then the ridge fit on them; rounds of unequal size too."""
    X, y = problem(loss)
    X *= 0.7  # so that all rows keep within the bounds
    method = ScreenRefine(rounds, noise)
    model = estimator_for(loss)(
        None, n_nonzero=keep, method=method, loss=loss, fit_intercept=fit_intercept, bounds=bounds
    ).fit(X, y)
    public = recorder.facts[-1]
    run = method.settings(public)
    assert run.rescale is None
    assert (run.clip, run.refine.slope_clip) == (math.inf, math.inf)
    targets = signed(loss, y if bounds is None else np.clip(y, -4, 4))
    coef, intercept = plain_screen_refine(X, targets, loss, keep, public, run)
    np.testing.assert_allclose(np.ravel(model.coef_), coef, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(np.ravel(model.intercept_), intercept, rtol=1e-5, atol=1e-7)
    assert np.count_nonzero(coef) == keep


@pytest.fixture
def without_noise(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A private fit whose noise is taken away after it was planned; the report says so, and it warns.

    Trusted code, which refuses a rigorous plan that proves too little, is told that the plan is none.
    """
    request, order = tulle.estimators.request, tulle.estimators.request.FitRequest.order
    monkeypatch.setattr(request, "calibrate", lambda releases, budget: tuple(r.scaled(0.0) for r in releases))
    monkeypatch.setattr(request.FitRequest, "order", lambda self, planned: replace(order(self, planned), budget=None))
    with pytest.warns(PrivacyWarning, match="proves nothing: the fit is not private"):
        yield


@reduce_to_pairs()
@pytest.mark.usefixtures("without_noise")
@pytest.mark.parametrize("loss", list(SLOPES))
@pytest.mark.parametrize("noise", ["gaussian", "selection"])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("rounds", [None, 2])
def test_with_no_noise_a_private_fit_is_the_method_that_it_describes(
    recorder: type[RecordingCurator], loss: str, noise: Any, fit_intercept: bool, rounds: int | None
) -> None:
    """Private defaults, clipped slopes and rows, a centre, and the rescaling; just the noise is left out.

    The solver stops where the noise that hides the rest would have been small: hence the tolerance.
    """
    X, y = problem(loss)
    method = ScreenRefine(rounds, noise)
    model = estimator_for(loss)(
        3.0, n_nonzero=4, method=method, loss=loss, fit_intercept=fit_intercept, bounds=BOUNDS
    ).fit(X, y)
    public = recorder.facts[-1]
    run = method.settings(public)
    assert (run.rescale is not None) == (is_classification(loss) or noise == "gaussian")
    targets = signed(loss, np.clip(y, -4, 4))
    coef, intercept = plain_screen_refine(shortened(X, 2.5), targets, loss, 4, public, run)
    np.testing.assert_allclose(np.ravel(model.coef_), coef, rtol=2e-3, atol=2e-5)
    np.testing.assert_allclose(np.ravel(model.intercept_), intercept, rtol=2e-3, atol=2e-5)
    assert np.count_nonzero(coef) == 4


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_second_moments_without_noise_are_least_squares(fit_intercept: bool) -> None:
    """refinement="statistics" solves the normal equations on the chosen features."""
    X, y = problem("squared")
    method = ScreenRefine(1, refinement="statistics")
    model = SparseRegressor(None, n_nonzero=3, method=method, fit_intercept=fit_intercept).fit(X, y)
    support = model.support_
    A = np.column_stack([X[:, support], np.ones(len(X))]) if fit_intercept else X[:, support]
    best = np.linalg.lstsq(A, y, rcond=None)[0]
    found = [*model.coef_[support], model.intercept_] if fit_intercept else model.coef_[support]
    np.testing.assert_allclose(found, best, rtol=1e-8)


# --- the rows' format ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["logistic", "squared"])
@pytest.mark.parametrize(
    "parameters",
    [{"noise": "gaussian"}, {"noise": "selection"}, {"rounds": 2}, {"refinement": "statistics"}],
    ids=str,
)
def test_dense_csr_and_csc_give_the_same_weights(loss: str, parameters: dict[str, Any]) -> None:
    """The format of the rows changes nothing, with the same seed and rows that are clipped in both norms."""
    if loss == "logistic" and "refinement" in parameters:
        return
    X, y = problem(loss, n=200)
    X[np.abs(X) < 0.5] = 0.0
    bounds = Bounds(row_l2=1.5, row_linf=0.8, label=1.0)
    model = estimator_for(loss)(
        20.0, n_nonzero=4, method=ScreenRefine(**parameters), loss=loss, bounds=bounds, random_state=3
    )
    dense = clone(model).fit(X, y)
    assert len(dense.support_) == 4
    for convert in (sp.csr_array, sp.csc_array, sp.csr_matrix, np.asfortranarray):
        other = clone(model).fit(convert(X), y)
        np.testing.assert_array_equal(other.support_, dense.support_)
        np.testing.assert_allclose(other.coef_, dense.coef_, rtol=1e-6)
        np.testing.assert_allclose(other.intercept_, dense.intercept_, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("noise", ["gaussian", "selection"])
@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_surplus_rows_of_a_person_do_not_matter(noise: Any, loss: str) -> None:
    """A person's rows beyond rows_per_person can hold anything: the same seed gives the same model."""
    X, y = problem(loss, n=240)
    people, surplus = np.repeat(np.arange(60), 4), np.arange(240) % 4 >= 2
    model = estimator_for(loss)(
        5.0, n_nonzero=4, method=ScreenRefine(noise=noise), bounds=replace(BOUNDS, rows_per_person=2), random_state=0
    )
    other_X, other_y = X.copy(), y.copy()
    other_X[surplus], other_y[surplus] = 100.0, y[surplus][::-1]
    one, other = (clone(model).fit(*data, groups=people) for data in ((X, y), (other_X, other_y)))
    np.testing.assert_array_equal(one.coef_, other.coef_)
    np.testing.assert_array_equal(one.intercept_, other.intercept_)
    assert not np.array_equal(one.coef_, clone(model).fit(other_X, other_y).coef_)


# --- public quantities alone -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["logistic", "squared"])
@pytest.mark.parametrize("noise", ["gaussian", "selection"])
@pytest.mark.parametrize("bounds", [BOUNDS, None], ids=["declared", "estimated"])
def test_the_bill_does_not_look_at_data(loss: str, noise: Any, bounds: Bounds | None) -> None:
    """Two data sets of one shape, one tiny and one huge: the same bill, also where the bounds are estimated."""
    X, y = problem(loss)
    model = estimator_for(loss)(2.0, bounds=bounds, n_nonzero=2, method=ScreenRefine(noise=noise), random_state=0)
    other = (1e5 * X[::-1], 1 - y if loss == "logistic" else 1e5 * y)
    small, large = clone(model).fit(1e-2 * X, y), clone(model).fit(*other)
    assert small.privacy_.bill == large.privacy_.bill
    assert small.privacy_.epsilon == large.privacy_.epsilon
    assert (small.n_iter_, small.n_passes_) == (large.n_iter_, large.n_passes_)
    if bounds is not None:
        assert small.privacy_.method == large.privacy_.method


@pytest.mark.parametrize("loss", [Logistic(), Squared(), Poisson(), Huber(), OneVsRest(SquaredHinge(), 3)], ids=repr)
@pytest.mark.parametrize("method", [ScreenRefine(noise="gaussian"), ScreenRefine(noise="selection"), TwoStage()])
def test_the_cost_of_a_plan_does_not_depend_on_the_bounds(loss: Loss, method: ScreenRefine) -> None:
    """Estimated bounds of any size lead to the same noises and determinants: what is billed is what is spent."""
    plans: list[tuple[Release, ...]] = []
    for row_l2, row_linf, label in ((1.0, 1.0, 1.0), (1e-3, 1e-4, 1e6), (1e6, 1e5, 1e-3), (7.0, 7.0, 3.0)):
        public = facts(loss=loss, row_l2=row_l2, row_linf=row_linf, label=label)
        plans.append(method.releases(public))
        run = method.settings(public)
        first = method.settings(facts(loss=loss))
        assert run.refine.log_determinant == first.refine.log_determinant
        for part, uses in ((run.refine, run.rounds), (run.rescale and run.rescale.constants, 1)):
            if part is not None:  # what the query will state is what the plan allows
                curvature = (loss.binary if isinstance(loss, OneVsRest) else loss).curvature_within(
                    part.slope_clip, label
                )
                stated = math.log1p(curvature * part.row_bound**2 / part.penalty)
                assert stated == pytest.approx(part.log_determinant, rel=1e-9), uses
    assert len({compose(plan) for plan in plans}) == 1


@reduce_to_pairs()
@pytest.mark.parametrize("loss", ["logistic", "squared"])
@pytest.mark.parametrize("method", ["auto", "screen_refine", "two_stage"])
@pytest.mark.parametrize("rows", ["flat", "spiky"])
@pytest.mark.parametrize("n_nonzero", [2, None])
def test_estimated_bounds_are_within_the_bill_whatever_they_turn_out_to_be(
    loss: str, method: Any, rows: str, n_nonzero: int | None
) -> None:
    """In an open ledger: the plan that the estimates lead to costs no more than was billed for it."""
    rng = np.random.default_rng(0)
    X = np.sign(rng.standard_normal((400, 30))) if rows == "flat" else np.eye(30)[rng.integers(0, 30, 400)]
    y = X[:, 0] > 0 if loss == "logistic" else 1e3 * X[:, 0]
    with Ledger(Budget(2.0, 1e-5)) as ledger:
        model = estimator_for(loss)(2.0, 1e-5, n_nonzero=n_nonzero, method=method, random_state=0).fit(X, y)
    assert ledger.epsilon <= 2.0
    assert model.privacy_.epsilon <= 2.0


@reduce_to_pairs()
@pytest.mark.parametrize("loss", ["logistic", "squared"])
@pytest.mark.parametrize("method", ["auto", "screen_refine", "two_stage", "hard_thresholding"])
@pytest.mark.parametrize("shape", [(400, 30), (72, 7129), (20_000, 1000)], ids=str)
@pytest.mark.parametrize("n_nonzero", [3, None])
def test_every_bound_leads_to_a_plan_that_was_billed(
    loss: str, method: Any, shape: tuple[int, int], n_nonzero: int | None
) -> None:
    """Over the grid that bounds are estimated on: the method, the number of weights and the noise may follow the
    estimates, but every plan is one of those that are billed before the estimates are known."""
    model = estimator_for(loss)(1.0, 1e-5, method=method, n_nonzero=n_nonzero)
    request = model._request(LOSSES[loss](), shape[0])
    billed = {compose(one.plan) for one in request.plan_all(shape)}
    for row_l2 in GRID[10:40:4]:
        for row_linf in GRID[10:40:4]:
            estimates = {"row_l2": row_l2, "row_linf": row_linf, "label": 3.0}
            known = request.bounds.known(shape[1], {of: estimates[of] for of in request.wanted})
            assert compose(request.plan(shape, known).plan) in billed


def test_settings_are_a_function_of_the_public_facts() -> None:
    """Equal facts give equal settings; changed facts (rows, budget, bounds) change them."""
    method = ScreenRefine(noise="gaussian")
    before = method.settings(facts())
    assert method.settings(facts()) == before
    assert clone(method).settings(facts()) == before
    changes: list[dict[str, Any]] = [{"n_rows": 10**7}, {"budget": Budget(10.0, 1e-5)}, {"row_l2": 2.0}]
    for change in [*changes, {"rows_per_unit": 9}, {"loss": Squared()}]:
        assert method.settings(facts(**change)) != before, change


def test_defaults() -> None:
    """The defaults that the docstring states, from public facts."""
    text, dense = facts(n_rows=20_000, n_features=40_000, n_nonzero=500), facts(row_l2=10.0)
    one = ScreenRefine().settings(text)
    assert not one.selection
    assert (one.rounds, one.clip, one.screening_share, one.rescale_share) == (1, 0.5, 0.5, 0.03)
    assert one.centre == 8.0
    assert one.refine.row_bound == pytest.approx(math.hypot(0.2, 0.05))
    assert 0.25 <= one.refine.slope_clip <= 0.5
    two = ScreenRefine().settings(dense)
    assert two.selection
    assert (two.rounds, two.clip, two.screening_share, two.rescale_share, two.centre) == (2, 0.5, 0.65, 0.1, 0.0)
    assert two.refine.slope_clip == 0.5
    regression = ScreenRefine(noise="gaussian").settings(facts(loss=Squared(), label=6.0))
    assert (regression.rounds, regression.clip, regression.refine.slope_clip) == (1, 1.5, 2.0)
    assert regression.rescale is not None
    assert (regression.rescale_share, regression.rescale.constants.slope_clip) == (0.03, 1.5)
    assert regression.centre == 4.0 * 6.0
    assert ScreenRefine(noise="selection").settings(facts(loss=Squared(), label=6.0)).rescale is None
    assert ScreenRefine().settings(facts(budget=None, n_nonzero=10)).rounds == 5
    assert ScreenRefine().default_nonzero(facts(n_features=300)) == int(1000 / (2 * math.log(300)))
    assert ScreenRefine().default_nonzero(facts(n_rows=2, n_features=5000)) == 1
    assert ScreenRefine().default_nonzero(facts(n_rows=10**6, n_features=5)) == 5
    assert ScreenRefine().default_nonzero(facts(row_l2=10.0)) == int(1000 * budget_mu(Budget(1.0, 1e-5)) / 60)
    assert ScreenRefine().default_nonzero(facts(row_l2=10.0, n_nonzero=99)) == 4  # it replaces n_nonzero
    assert ScreenRefine().bounds_wanted() == ("row_l2", "row_linf")
    assert ScreenRefine(noise="gaussian").bounds_wanted() == ("row_l2",)


@pytest.mark.parametrize(
    ("parameter", "value", "setting"),
    [
        ("rounds", 3, lambda run: run.rounds),
        ("clip", 0.125, lambda run: run.clip),
        ("slope_clip", 0.125, lambda run: run.refine.slope_clip),
        ("screening_share", 0.25, lambda run: run.screening_share),
        ("start_share", 0.5, lambda run: run.start_share),
        ("rescale_share", 0.25, lambda run: run.rescale_share),
        ("centre", 3.0, lambda run: run.centre),
        (
            "curvature",
            0.125,
            lambda run: math.expm1(run.refine.log_determinant) / (budget_mu(facts().budget) / 2 * math.sqrt(0.475)),
        ),
        ("row_bound", 0.5, lambda run: run.refine.row_bound / math.hypot(1, 0.25)),
    ],
)
def test_what_the_user_sets_is_what_runs(parameter: str, value: float, setting: Any) -> None:
    """Parameters given replace the defaults, also through set_params of the estimator around them."""
    model = SparseClassifier(method=ScreenRefine(noise="gaussian")).set_params(**{f"method__{parameter}": value})
    assert setting(model.method.settings(facts())) == pytest.approx(value)
    assert setting(ScreenRefine(noise="gaussian").settings(facts())) != pytest.approx(value)


@pytest.mark.parametrize("noise", ["gaussian", "selection"])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_defaults_scale_with_features_and_labels(noise: Any, loss: str) -> None:
    """Rows times 8, their bounds too: an eighth of the weights. Labels times 8: eight times the weights."""
    X, y = problem(loss, n=400)
    bounds = Bounds(row_l2=2.5, row_linf=1.0, label=4.0)

    def fit(rows: float, labels: float) -> Any:
        scaled = replace(bounds, row_l2=2.5 * rows, row_linf=rows, label=4.0 * labels)
        target = y if loss == "logistic" else labels * y
        method = ScreenRefine(noise=noise)
        return estimator_for(loss)(5.0, n_nonzero=3, method=method, bounds=scaled, random_state=0).fit(rows * X, target)

    one, rows = fit(1, 1), fit(8, 1)
    assert np.count_nonzero(one.coef_) > 0
    np.testing.assert_allclose(8 * rows.coef_, one.coef_, rtol=1e-6)
    np.testing.assert_allclose(rows.intercept_, one.intercept_, rtol=1e-6)
    if loss == "squared":
        labels = fit(1, 8)
        np.testing.assert_allclose(labels.coef_, 8 * one.coef_, rtol=1e-6)
        np.testing.assert_allclose(labels.intercept_, 8 * one.intercept_, rtol=1e-6)


# --- rounds ----------------------------------------------------------------------------------------------------------


@reduce_to_pairs()
@pytest.mark.parametrize("noise", ["gaussian", "selection"])
@pytest.mark.parametrize("budget", [5.0, None])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(("n_nonzero", "rounds"), [(6, 2), (6, 3), (4, 3), (5, 4), (9, 4), (12, 2), (12, 5)])
def test_rounds_choose_other_features_each_time(
    recorder: type[RecordingCurator],
    noise: Any,
    budget: float | None,
    n_classes: int,
    n_nonzero: int,
    rounds: int,
) -> None:
    """Supports grow by disjoint parts up to n_nonzero; no round drops a feature, and none is chosen twice."""
    X, y = labels_of("squared_hinge", n_classes, 200)
    model = SparseClassifier(
        budget,
        n_nonzero=n_nonzero,
        method=ScreenRefine(rounds, noise, rescale_share=0.0),
        loss="squared_hinge",
        bounds=BOUNDS,
        random_state=1,
    ).fit(X, y)
    kept = np.count_nonzero(model.coef_, axis=1)
    assert np.all(kept <= n_nonzero)
    # On the released grid a score can vanish, hardly two; a choice cannot.
    assert kept.min() >= n_nonzero - (noise == "gaussian" and budget is not None)
    outputs = len(model.coef_)
    for k in range(outputs):
        supports = [set(query.features) for name, query, _ in recorder.asked if name == "refine" and query.output == k]
        assert len(supports) == model.n_iter_ <= rounds
        assert all(before <= after for before, after in pairwise(supports))
        assert len(supports[-1]) <= n_nonzero
        per_round = math.ceil(n_nonzero / model.n_iter_)
        assert all(len(after) - len(before) <= per_round for before, after in zip([set(), *supports], supports))


def test_a_later_round_is_screened_at_the_refined_model(recorder: type[RecordingCurator]) -> None:
    """Its gradient is taken at the weights that the round before released."""
    X, y = problem("logistic")
    method = ScreenRefine(2, "gaussian", rescale_share=0.0)
    SparseClassifier(5.0, n_nonzero=4, method=method, bounds=BOUNDS, random_state=1).fit(X, y)
    screens = [query for name, query, _ in recorder.asked if name == "screen"]
    refined = [query for name, query, _ in recorder.asked if name == "refine"]
    assert np.count_nonzero(screens[0].weights[:-1]) == 0
    np.testing.assert_array_equal(np.flatnonzero(screens[1].weights[:-1, 0]), refined[0].features)


# --- refusals --------------------------------------------------------------------------------------------------------


@reduce_to_pairs()
@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize("loss", ["logistic", "squared"])
@pytest.mark.parametrize("budget", [1.0, None])
@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        *(("rounds", value, "must be an integer >= 1") for value in (0, -1, 2.5, "many")),
        *(("screening_share", value, "must lie in (0, 1)") for value in (0, 1, np.nan, "half", True)),
        *(("start_share", value, "must lie in [0, 1)") for value in (-0.1, 1, np.nan, None)),
        *(("rescale_share", value, "must lie in [0, 1)") for value in (-0.1, 1, np.nan)),
        *(("curvature", value, "must lie in (0, 4]") for value in (0, 4.1, np.nan)),
        *(("clip", value, "must be a finite number > 0") for value in (0, -1.0, np.nan, np.inf)),
        *(("slope_clip", value, "must be a finite number > 0") for value in (0, -1.0, np.nan, np.inf)),
        *(("row_bound", value, "must be a finite number > 0") for value in (0, -1.0, np.nan, np.inf)),
        *(("centre", value, "must be a finite number >= 0") for value in (-1.0, np.nan, np.inf)),
        *(("noise", value, "must be one of ('auto', 'gaussian', 'selection')") for value in ("laplace", None)),
        ("refinement", "magic", "must be one of ('objective', 'statistics', 'steps')"),
    ],
    ids=str,
)
def test_ranges_of_parameters(loss: str, budget: float | None, name: str, value: Any, message: str) -> None:
    """Each parameter, with its name, its range and the value in the message."""
    X, y = problem(loss)
    with pytest.raises(ValueError, match=re.escape(f"ScreenRefine({name}=...) {message}, got {value!r}")):
        estimator_for(loss)(budget, method=ScreenRefine(**{name: value}), bounds=BOUNDS).fit(X, y)


@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize(
    ("method", "loss", "labels", "message"),
    [
        (ScreenRefine(start_share=0.5, rescale_share=0.5), "logistic", 2, "leave nothing for screening and refining"),
        (ScreenRefine(refinement="statistics"), "logistic", 2, "refinement='statistics') needs loss='squared', not"),
        (ScreenRefine(), "logistic", 3, "ScreenRefine rests on the convexity of the loss in one margin at a time"),
        (TwoStage(), "logistic", 3, "TwoStage rests on the convexity of the loss in one margin at a time"),
        (TwoStage(constant=0), "logistic", 2, "TwoStage(constant=...) must be a finite number > 0, got 0"),
        (TwoStage(constant=np.inf), "logistic", 2, "TwoStage(constant=...) must be a finite number > 0, got inf"),
    ],
    ids=["shares", "statistics", "softmax", "softmax-two-stage", "constant-0", "constant-inf"],
)
def test_combinations_that_cannot_be(method: Any, loss: str, labels: int, message: str) -> None:
    """Refused with words, before noise is drawn."""
    X, y = labels_of(loss, labels)
    with pytest.raises(ValueError, match=re.escape(message)):
        SparseClassifier(method=method, loss=loss, bounds=BOUNDS).fit(X, y)


@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize("method", ["screen_refine", "two_stage"])
def test_a_loss_of_the_users_own_is_refused(method: Any) -> None:
    """Clipping cannot enforce convexity."""
    X, y = problem("logistic")
    with pytest.raises(ValueError, match=r"which is not known of OwnLogistic\(\); use method='hard_thresholding'"):
        SparseClassifier(method=method, loss=OwnLogistic(), bounds=BOUNDS).fit(X, y)
