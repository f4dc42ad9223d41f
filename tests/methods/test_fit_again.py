"""Fit, keep, fit again: the plan it keeps, the method it is without noise, its defaults, and what is not allowed."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import fits
import numpy as np
import pytest
import scipy.sparse as sp
from fits import (
    SLOPES,
    Array,
    RecordingCurator,
    estimator_for,
    is_classification,
    plain_rescaled,
    ridge_fit,
    shortened,
    signed,
)
from pairwise import reduce_to_pairs
from scipy.stats import chi2
from screened_rows import BOUNDS, BUDGETS, facts, problem
from sklearn.base import clone

import tulle.estimators.request
from tulle import Bounds, Budget, Ledger, PrivatePipeline, PublicFrequencies, SparseClassifier, SparseRegressor
from tulle.accounting.calibration import calibrate
from tulle.datasets import rcv1_like
from tulle.estimators.bounds import GRID
from tulle.files.error_messages import PrivacyWarning
from tulle.methods import FitAgain
from tulle.methods.fit_again import Settings
from tulle.methods.gradient_queries import Curvature
from tulle.methods.loss_functions import LOSSES, Huber, Logistic, Loss, OneVsRest, Poisson, Squared, SquaredHinge
from tulle.methods.noise_scales import budget_mu
from tulle.preprocessing import PrivateScaler
from tulle.transfer.public_knowledge import read_public
from tulle.trusted.accountants import epsilon
from tulle.trusted.curator import Curator
from tulle.trusted.mechanisms import ObjectivePerturbation
from tulle.trusted.plan import Plan, compose
from tulle.trusted.rows import Rows

# Many of these tests use small data sets at small budgets; see tests/estimators/test_sparse.py.
pytestmark = pytest.mark.filterwarnings("ignore:.*no better than guessing:UserWarning")

recorder = fits.recorder

CASES = [*((loss, 2) for loss in SLOPES), ("squared_hinge", 3)]


def labels_of(loss: str, n_classes: int, n: int = 150) -> tuple[Array, Array]:
    X, y = problem(loss, n)
    return X, y if n_classes == 2 else np.arange(n) % n_classes


# --- the plan --------------------------------------------------------------------------------------------------------


@reduce_to_pairs()
@pytest.mark.parametrize(("loss", "n_classes"), CASES)
@pytest.mark.parametrize("n_nonzero", [3, fits.D])
@pytest.mark.parametrize("rounds", [None, 1, 2, 3])
@pytest.mark.parametrize("rescale_share", [None, 0.0])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize(("budget", "people"), [(1.0, 1), (1.0, 3), (None, 1)], ids=["rows", "people", "exact"])
def test_what_is_asked_equals_the_plan(
    recorder: type[RecordingCurator],
    loss: str,
    n_classes: int,
    n_nonzero: int,
    rounds: int | None,
    rescale_share: float | None,
    fit_intercept: bool,
    budget: float | None,
    people: int,
) -> None:
    """Names and counts that the curator was asked for are those of releases(), and those of the report's bill."""
    X, y = labels_of(loss, n_classes)
    method = FitAgain(rounds, rescale_share=rescale_share)
    bounds = replace(BOUNDS, rows_per_person=people)
    model = estimator_for(loss)(
        budget,
        n_nonzero=n_nonzero,
        method=method,
        loss=loss,
        bounds=bounds,
        fit_intercept=fit_intercept,
        random_state=0,
    ).fit(X, y)
    public = recorder.facts[-1]
    outputs = n_classes if n_classes > 2 else 1
    planned = {release.name: release.count for release in method.releases(public)}
    assert Counter(asked.name for asked in recorder.asked) == planned
    assert {line.release: line.count for line in model.privacy_.bill} == planned
    wanted = {"fit": outputs}
    if rounds is None:  # three where rows are scarce
        few = public.n_features < 0.25 * public.n_rows * budget_mu(public.budget)
        rounds = 1 if n_nonzero >= X.shape[1] else 2 if few else 3
    if rounds > 1:
        wanted["fit again"] = (rounds - 1) * outputs
    # Regression is not rescaled, and without privacy nothing is cut.
    if budget is not None and rescale_share is None and is_classification(loss):
        wanted |= {"spread": outputs, "rescale": outputs}
    assert planned == wanted
    assert model.n_iter_ == rounds
    assert np.all(np.count_nonzero(np.atleast_2d(model.coef_), axis=1) == n_nonzero)


@pytest.mark.parametrize(("loss", "n_classes"), CASES)
@pytest.mark.parametrize(("eps", "delta"), BUDGETS)
@pytest.mark.parametrize("n_nonzero", [4, None])
def test_the_proved_epsilon_is_just_below_the_budget(
    loss: str, n_classes: int, eps: float, delta: float, n_nonzero: int | None
) -> None:
    """Calibration spends nearly all of the budget and never more, whatever the settings and the number of outputs."""
    X, y = labels_of(loss, n_classes)
    for people in (1, 3):
        bounds = replace(BOUNDS, rows_per_person=people)
        model = estimator_for(loss)(
            eps, delta, n_nonzero=n_nonzero, method=FitAgain(), loss=loss, bounds=bounds, random_state=0
        )
        report = model.fit(X, y).privacy_
        assert 0.99 * eps < report.epsilon <= eps
        assert report.delta == delta


@pytest.mark.parametrize("loss", [Logistic(), OneVsRest(SquaredHinge(), 3)], ids=["two", "three"])
def test_the_cost_is_divided_as_the_parameters_say(loss: Loss) -> None:
    """Each part's sum of mu² is its share, over all outputs together, and the curvature that a penalty allows is in
    proportion to the mu of its own release."""
    public = facts(loss=loss)
    method = FitAgain(again_share=0.4, rescale_share=0.2, curvature=0.6)
    squares, curvatures = {}, {}
    for release in method.releases(public):
        squares[release.name] = release.count / release.mechanism.noise.value**2
        curvatures[release.name] = math.expm1(getattr(release.mechanism, "log_determinant", 0.0))
    assert sum(squares.values()) == pytest.approx(1.0)
    assert squares["fit"] == pytest.approx(0.8 * 0.6)
    assert squares["fit again"] == pytest.approx(0.8 * 0.4)
    assert squares["spread"] + squares["rescale"] == pytest.approx(0.2)
    half = budget_mu(public.budget) / 2
    assert curvatures["fit"] == pytest.approx(0.6 * half * math.sqrt(0.8 * 0.6 / loss.n_outputs))
    assert curvatures["fit again"] == pytest.approx(0.6 * half * math.sqrt(0.8 * 0.4 / (2 * loss.n_outputs)))


@pytest.mark.parametrize("loss", [Logistic(), OneVsRest(SquaredHinge(), 3)], ids=["two", "three"])
def test_no_part_is_free(loss: Loss) -> None:
    """Each release adds to the proved epsilon, spread and rescaling included."""
    public = facts(loss=loss)
    assert public.budget is not None
    plan = calibrate(FitAgain(rescale_share=0.3).releases(public), public.budget)
    whole = epsilon(plan, 1e-5)
    for dropped in plan:
        assert epsilon([release for release in plan if release is not dropped], 1e-5) < 0.99 * whole, dropped.name


@pytest.mark.parametrize("people", [2, 7])
def test_all_rows_of_a_person_count_in_all_fits(people: int) -> None:
    parts = [release.mechanism for release in FitAgain().releases(facts(rows_per_unit=people))]
    objectives = [part for part in parts if isinstance(part, ObjectivePerturbation)]
    assert len(objectives) == 3
    assert all(part.rows_per_unit == people for part in objectives)


# --- without noise ---------------------------------------------------------------------------------------------------


def plain_fit_again(X: Array, y: Array, loss: str, run: Settings) -> Any:
    """A ridge fit of all features, ridge fits of the largest weights, and the rescaling: on plain arrays."""
    a, d = run.first.intercept_value, X.shape[1]

    def ridge(rows: Array, fit: Any, centre: Array) -> Array:
        constant = fit.intercept_value if a else 0.0
        return ridge_fit(shortened(rows, fit.row_bound, constant), y, loss, fit.slope_clip, fit.penalty, centre)

    w = ridge(X, run.first, np.zeros(d + bool(a)))
    for size, again in zip(run.sizes(None, d), run.again):
        support = np.sort(np.argsort(-np.abs(w[:d]))[:size])
        lines = np.append(support, np.arange(d, len(w)))
        kept = np.zeros_like(w)
        kept[lines] = ridge(X[:, support], again, w[lines])
        w = kept
    coef, intercept = w[:d], a * w[-1] if a else 0.0
    if run.rescale is not None:
        coef, intercept = plain_rescaled(X, y, loss, coef, intercept, run.rescale)
    return coef, intercept


@reduce_to_pairs()
@pytest.mark.parametrize("loss", list(SLOPES))
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("keep", [4, fits.D])
@pytest.mark.parametrize("bounds", [None, BOUNDS], ids=["free", "bounded"])
def test_without_privacy_it_is_the_non_private_method(
    recorder: type[RecordingCurator], loss: str, fit_intercept: bool, keep: int, bounds: Bounds | None
) -> None:
    """epsilon=None: the ridge fit, its largest weights, and the ridge fits of these; nothing is cut."""
    X, y = problem(loss)
    X *= 0.7  # so that all rows keep within the bounds
    method = FitAgain()
    model = estimator_for(loss)(
        None, n_nonzero=keep, method=method, loss=loss, fit_intercept=fit_intercept, bounds=bounds
    ).fit(X, y)
    run = method.settings(recorder.facts[-1])
    assert run.rescale is None
    assert run.first.slope_clip == math.inf
    targets = signed(loss, y if bounds is None else np.clip(y, -4, 4))
    coef, intercept = plain_fit_again(X, targets, loss, run)
    np.testing.assert_allclose(np.ravel(model.coef_), coef, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(np.ravel(model.intercept_), intercept, rtol=1e-5, atol=1e-7)
    assert np.count_nonzero(coef) == keep


@pytest.fixture
def without_noise(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A private fit whose noise is taken away after it was planned; see tests/methods/test_screen_refine.py."""
    request, order = tulle.estimators.request, tulle.estimators.request.FitRequest.order
    monkeypatch.setattr(request, "calibrate", lambda releases, budget: tuple(r.scaled(0.0) for r in releases))
    monkeypatch.setattr(request.FitRequest, "order", lambda self, planned: replace(order(self, planned), budget=None))
    with pytest.warns(PrivacyWarning, match="proves nothing: the fit is not private"):
        yield


@reduce_to_pairs()
@pytest.mark.usefixtures("without_noise")
@pytest.mark.parametrize("loss", list(SLOPES))
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("keep", [4, fits.D])
@pytest.mark.parametrize("parameters", [{}, {"rounds": 2, "slope_clip": 0.4, "row_bound": 1.0}], ids=str)
def test_with_no_noise_a_private_fit_is_the_method_that_it_describes(
    recorder: type[RecordingCurator], loss: str, fit_intercept: bool, keep: int, parameters: dict[str, Any]
) -> None:
    """Private defaults, clipped slopes and rows, the centre, and the rescaling; just the noise is left out.

    The solver stops where the noise that hides the rest would have been small: hence the tolerance.
    """
    X, y = problem(loss)
    method = FitAgain(**parameters, rescale_share=0.05)
    model = estimator_for(loss)(
        3.0, n_nonzero=keep, method=method, loss=loss, fit_intercept=fit_intercept, bounds=BOUNDS
    ).fit(X, y)
    run = method.settings(recorder.facts[-1])
    assert len(run.again) == (method.rounds or (1 if keep == fits.D else 2)) - 1  # rows are not scarce
    assert run.rescale is not None
    assert (run.rescale.length > 0) == is_classification(loss)
    targets = signed(loss, np.clip(y, -4, 4))
    coef, intercept = plain_fit_again(shortened(X, 2.5), targets, loss, run)
    np.testing.assert_allclose(np.ravel(model.coef_), coef, rtol=2e-3, atol=2e-5)
    np.testing.assert_allclose(np.ravel(model.intercept_), intercept, rtol=2e-3, atol=2e-5)
    assert np.count_nonzero(coef) == keep


def test_later_fits_are_centred_at_the_one_before(recorder: type[RecordingCurator]) -> None:
    """On fewer and fewer features with the largest weights, the last of which are those that the model has; and all
    have noise."""
    X, y = problem("logistic")
    method = FitAgain(3, rescale_share=0.0)
    model = SparseClassifier(5.0, n_nonzero=3, method=method, bounds=BOUNDS, random_state=1).fit(X, y)
    first, again, last = (query for _, query, _ in recorder.asked)
    assert np.all(first.centre == 0)
    assert [len(query.features) for query in (first, again, last)] == [12, 6, 3]  # by equal factors
    assert set(last.features) <= set(again.features)
    np.testing.assert_array_equal(last.features, model.support_)
    for query in (again, last):
        assert np.all(query.centre != 0)
        assert len(query.centre) == len(query.features) + 1
    assert not np.allclose(last.centre[:3], model.coef_[0, model.support_])


# --- rows ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["logistic", "squared"])
@pytest.mark.parametrize("n_nonzero", [4, None])
def test_dense_csr_and_csc_give_the_same_weights(loss: str, n_nonzero: int | None) -> None:
    """The format of the rows changes nothing, with the same seed and rows that are clipped in both norms."""
    X, y = problem(loss, n=200)
    X[np.abs(X) < 0.5] = 0.0
    bounds = Bounds(row_l2=1.5, row_linf=0.8, label=1.0)
    model = estimator_for(loss)(20.0, n_nonzero=n_nonzero, method=FitAgain(), loss=loss, bounds=bounds, random_state=3)
    dense = clone(model).fit(X, y)
    for convert in (sp.csr_array, sp.csc_array, sp.csr_matrix, np.asfortranarray):
        other = clone(model).fit(convert(X), y)
        np.testing.assert_array_equal(other.support_, dense.support_)
        np.testing.assert_allclose(other.coef_, dense.coef_, rtol=1e-6)
        np.testing.assert_allclose(other.intercept_, dense.intercept_, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_surplus_rows_of_a_person_do_not_matter(loss: str) -> None:
    """A person's rows beyond rows_per_person can hold anything: the same seed gives the same model."""
    X, y = problem(loss, n=240)
    people, surplus = np.repeat(np.arange(60), 4), np.arange(240) % 4 >= 2
    bounds = replace(BOUNDS, rows_per_person=2)
    model = estimator_for(loss)(5.0, n_nonzero=4, method=FitAgain(), bounds=bounds, random_state=0)
    other_X, other_y = X.copy(), y.copy()
    other_X[surplus], other_y[surplus] = 100.0, y[surplus][::-1]
    one, other = (clone(model).fit(*data, groups=people) for data in ((X, y), (other_X, other_y)))
    np.testing.assert_array_equal(one.coef_, other.coef_)
    np.testing.assert_array_equal(one.intercept_, other.intercept_)


@reduce_to_pairs()
@pytest.mark.parametrize("which", ["nothing at all", "two rows", "one feature", "enormous", "tiny"])
@pytest.mark.parametrize("loss", ["logistic", "squared", "poisson"])
@pytest.mark.parametrize("n_nonzero", [1, None])
@pytest.mark.parametrize("budget", [0.1, 5.0, None])
def test_strange_rows_are_fitted(which: str, loss: str, n_nonzero: int | None, budget: float | None) -> None:
    """Finite weights, whatever the rows hold."""
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (60, 5)), (np.arange(60) % 3 == 0).astype(float)
    X *= {"nothing at all": 0.0, "enormous": 1e200, "tiny": 1e-200}.get(which, 1.0)
    X, y = (X[:2], np.array([0.0, 1.0])) if which == "two rows" else (X[:, :1], y) if which == "one feature" else (X, y)
    model = estimator_for(loss)(
        budget, n_nonzero=n_nonzero, method=FitAgain(), loss=loss, bounds=BOUNDS, random_state=0
    ).fit(X, y)
    assert np.all(np.isfinite(model.coef_))
    assert np.all(np.isfinite(model.intercept_))


def test_unequal_classes_keep_their_base_rate() -> None:
    """Three in a hundred are positive, and rows are ten times as long as the bound of a fit: probabilities are right on
    average. Over 40 seeds the mean probability was 0.0300 with a deviation of 0.0008."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20_000, 10))
    y = rng.random(20_000) < 0.03
    model = SparseClassifier(2.0, 1e-5, method=FitAgain(), bounds=Bounds(row_l2=6.0), random_state=0).fit(X, y)
    assert 0.02 < model.predict_proba(X)[:, 1].mean() < 0.04


# --- public quantities alone -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["logistic", "squared"])
@pytest.mark.parametrize("bounds", [BOUNDS, None], ids=["declared", "estimated"])
def test_the_bill_does_not_look_at_data(loss: str, bounds: Bounds | None) -> None:
    """Two data sets of one shape, one tiny and one huge: the same bill, also where the bounds are estimated."""
    X, y = problem(loss)
    model = estimator_for(loss)(2.0, bounds=bounds, n_nonzero=2, method=FitAgain(), random_state=0)
    other = (1e5 * X[::-1], 1 - y if loss == "logistic" else 1e5 * y)
    small, large = clone(model).fit(1e-2 * X, y), clone(model).fit(*other)
    assert small.privacy_.bill == large.privacy_.bill
    assert small.privacy_.epsilon == large.privacy_.epsilon


@pytest.mark.parametrize("loss", [Logistic(), Squared(), Poisson(), Huber(), OneVsRest(SquaredHinge(), 3)], ids=repr)
@pytest.mark.parametrize("n_nonzero", [6, fits.D])
def test_the_cost_of_a_plan_does_not_depend_on_the_bounds(loss: Loss, n_nonzero: int) -> None:
    """Estimated bounds of any size lead to the same noises and determinants, and to queries that state these."""
    plans = set()
    for row_l2, row_linf, label in ((1.0, 1.0, 1.0), (1e-3, 1e-4, 1e6), (1e6, 1e5, 1e-3), (7.0, 7.0, 3.0)):
        public = facts(loss=loss, row_l2=row_l2, row_linf=row_linf, label=label, n_nonzero=n_nonzero)
        method = FitAgain(rescale_share=0.05)
        plans.add(compose(method.releases(public)))
        run = method.settings(public)
        assert run.rescale is not None
        for part in (run.first, *run.again, run.rescale.constants):
            binary = loss.binary if isinstance(loss, OneVsRest) else loss
            stated = math.log1p(binary.curvature_within(part.slope_clip, label) * part.row_bound**2 / part.penalty)
            assert stated == pytest.approx(part.log_determinant, rel=1e-9)
    assert len(plans) == 1


@pytest.mark.parametrize("loss", ["logistic", "squared"])
@pytest.mark.parametrize("n_nonzero", [3, None])
def test_every_bound_leads_to_the_plan_that_was_billed(loss: str, n_nonzero: int | None) -> None:
    """Over the grid that bounds are estimated on, and in an open ledger."""
    model = estimator_for(loss)(1.0, 1e-5, method="fit_again", n_nonzero=n_nonzero, random_state=0)
    shape = (400, 30)
    request = model._request(LOSSES[loss](), shape[0])
    planned = request.plan_all(shape)
    billed = {compose(one.plan) for one in planned}
    assert len(billed) == 1
    for row_l2 in GRID[10:40:6]:
        known = request.bounds.known(shape[1], {of: {"row_l2": row_l2, "label": 3.0}[of] for of in request.wanted})
        assert compose(request.plan(shape, known, planned[0].plan.together).plan) in billed
    X, y = problem(loss, n=400)
    with Ledger(Budget(1.0, 1e-5)) as ledger:
        model.fit(X, y)
    assert ledger.epsilon <= 1.0


def test_defaults() -> None:
    """The defaults that the docstring states, from public facts."""
    assert FitAgain().bounds_wanted() == ("row_l2",)
    mu = budget_mu(Budget(1.0, 1e-5))
    text = facts(n_rows=20_000, n_features=40_000, n_nonzero=1000)
    one = FitAgain().settings(text)
    assert len(one.again) == 2
    assert one.sizes(None, 40_000) == [round(math.sqrt(40_000 * 1000)), 1000]
    assert (one.first_share, one.again_share) == pytest.approx((0.4 * 0.97, 0.3 * 0.97))
    assert one.check_share == 0.0
    assert one.first.row_bound == pytest.approx(math.hypot(0.1, 0.025))
    assert one.first.slope_clip == pytest.approx(0.1)  # a fifth of 1/2
    q = 1000 / (20_000 * mu * math.sqrt(0.3 * 0.97))
    assert one.again[-1].slope_clip == pytest.approx(0.5 * min(1, math.sqrt(0.2 / q)))
    half = mu * math.sqrt(0.3 * 0.97) / 2
    curvature = 0.6 * q**-0.1 * (1000 / 40_000) ** 0.35 * half
    assert [math.expm1(again.log_determinant) for again in one.again] == pytest.approx([curvature] * 2)
    everything = FitAgain().settings(replace(text, n_nonzero=40_000))
    assert everything.again == ()
    assert everything.first_share == 0.97
    assert everything.first.penalty < one.first.penalty  # a stiffer fit ranks features better
    dense = facts(loss=Squared(), label=6.0, n_rows=4000, n_features=10, n_nonzero=10)
    regression = FitAgain().settings(dense)
    assert regression.first.slope_clip == pytest.approx(1.2)  # a fifth of the label bound
    assert regression.first.row_bound == pytest.approx(math.hypot(1.0, 0.25))
    assert regression.rescale is None
    assert regression.first_share == 1.0
    for n_features, xi in ((10, 1.6), (200, 0.4 * (200 / (4000 * mu)) ** -0.4), (4000, 0.4)):
        one = FitAgain().settings(replace(dense, n_features=n_features, n_nonzero=n_features))
        assert math.expm1(one.first.log_determinant) == pytest.approx(xi * mu / 2)
    assert FitAgain(rescale_share=0.1).settings(dense).rescale is not None
    for n_rows, share in ((100, 0.06), (3000, 30 / (3000 * mu)), (10_000, 0.03)):
        few = FitAgain().settings(facts(n_rows=n_rows)).rescale
        assert few is not None
        assert few.share == pytest.approx(share)


@pytest.mark.parametrize("n_features", [4, 40, 300, 4000])
def test_a_quarter_is_kept_where_rows_are_scarce(n_features: int) -> None:
    """From a feature for four n mu on; at least one, and all without privacy."""
    mu = budget_mu(Budget(1.0, 1e-5))
    enough = math.ceil(n_features / (0.25 * mu)) + 1
    for n_rows, kept in ((enough, n_features), (enough - 2, n_features // 4)):
        assert FitAgain().default_nonzero(facts(n_rows=n_rows, n_features=n_features)) == kept
    assert FitAgain().default_nonzero(facts(n_rows=2, n_features=1)) == 1
    assert FitAgain().default_nonzero(facts(n_rows=2, n_features=n_features, budget=None)) == n_features


def test_penalties_fall_as_the_budget_grows() -> None:
    """Of all fits, from one budget to the next, for both kinds of loss."""
    for loss in (Logistic(), Squared()):
        runs = [FitAgain(3).settings(facts(loss=loss, budget=Budget(eps, 1e-5))) for eps in (0.1, 0.5, 1.0, 2.0, 8.0)]
        penalties = np.array([[fit.penalty / fit.row_bound**2 for fit in (run.first, *run.again)] for run in runs])
        assert penalties.shape == (5, 3)
        assert np.all(np.diff(penalties, axis=0) < 0)


@pytest.mark.parametrize(
    ("parameter", "value", "setting"),
    [
        ("rounds", 5, lambda run: 1 + len(run.again)),
        ("again_share", 0.4, lambda run: 2 * run.again_share / (run.first_share + 2 * run.again_share)),
        ("rescale_share", 0.2, lambda run: run.rescale.share),
        ("slope_clip", 0.3, lambda run: run.first.slope_clip),
        ("slope_clip", 0.15, lambda run: run.again[-1].slope_clip),
        ("row_bound", 0.7, lambda run: math.sqrt(run.first.row_bound**2 - run.intercept_value**2)),
    ],
)
def test_parameters_are_used(parameter: str, value: float, setting: Any) -> None:
    """Parameters given replace the defaults, also through set_params of the estimator around them."""
    model = SparseClassifier(method=FitAgain()).set_params(**{f"method__{parameter}": value})
    assert setting(model.method.settings(facts())) == pytest.approx(value)
    assert setting(FitAgain().settings(facts())) != pytest.approx(value)


# --- with public rows or frequencies ---------------------------------------------------------------------------------

M = 60


def public_of(kind: str, n_features: int = fits.D, seed: int = 9) -> Any:
    """Rows like those of `problem`, but for two features that they do not have; or how common features are."""
    rows = np.random.default_rng(seed).uniform(-1, 1, (M, n_features))
    rows[:, -2:] = 0.0
    forms: dict[str, Any] = {
        "dense": lambda: rows,
        "csr": lambda: sp.csr_array(rows),
        "frequencies": lambda: PublicFrequencies((rows**2).mean(axis=0)),
    }
    return forms[kind]()


# What the two answers to "check" are made to be, so that it is passed, or not; None leaves them as they are.
ANSWERS: dict[str, tuple[float, float] | None] = {"as asked": None, "passed": (1e6, 0.0), "failed": (-1e6, 0.0)}


@pytest.fixture
def answer_check(recorder: type[RecordingCurator], monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Says what becomes of "check" in the fits that follow, whatever the rows."""

    def answer(path: str) -> None:
        ask, given = RecordingCurator.ask, ANSWERS[path]

        def asked(self: RecordingCurator, name: str, query: Any, **then: Any) -> Any:
            released = ask(self, name, query, **then)
            if name != "check" or given is None:
                return released
            return np.array([[given[sum(one.name == "check" for one in self.asked) % 2 - 1]]])

        monkeypatch.setattr(RecordingCurator, "ask", asked)

    return answer


@reduce_to_pairs()
@pytest.mark.parametrize("path", ANSWERS)
@pytest.mark.parametrize("kind", ["dense", "csr", "frequencies"])
@pytest.mark.parametrize(("loss", "n_classes"), CASES)
@pytest.mark.parametrize("n_nonzero", [3, 10, 11, fits.D, None])
@pytest.mark.parametrize("rounds", [None, 1, 2, 3])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("bounds", [BOUNDS, Bounds()], ids=["declared", "estimated"])
@pytest.mark.parametrize("people", [1, 3])
def test_what_is_asked_with_public_knowledge_equals_the_plan(
    recorder: type[RecordingCurator],
    answer_check: Callable[[str], None],
    path: str,
    kind: str,
    loss: str,
    n_classes: int,
    n_nonzero: int | None,
    rounds: int | None,
    fit_intercept: bool,
    bounds: Bounds,
    people: int,
) -> None:
    """Whatever the answer to "check": the plan, the questions, the report and the ledger are the same, and the proved
    epsilon is just below the budget."""
    answer_check(path)
    X, y = labels_of(loss, n_classes, n=600)
    public, outputs = public_of(kind), n_classes if n_classes > 2 else 1
    settings = {"fit_intercept": fit_intercept, "bounds": replace(bounds, rows_per_person=people), "loss": loss}
    model = estimator_for(loss)(1.0, 1e-5, n_nonzero=n_nonzero, method=FitAgain(rounds), random_state=0, **settings)
    with Ledger(Budget(1.0, 1e-5)) as ledger:
        model.fit(X, y, public=public)
    method = FitAgain(rounds).with_public(read_public(public, fits.D))
    planned = {release.name: release.count for release in method.releases(recorder.facts[-1])}
    estimates = {line.release for line in model.privacy_.bill} - set(planned)
    assert bool(estimates) == (bounds == Bounds())
    asked = Counter(one.name for one in recorder.asked)
    assert {name: asked[name] for name in planned} == planned
    assert {line.release: line.count for line in model.privacy_.bill if line.release in planned} == planned
    assert planned["check"] == 2
    assert planned["fit"] == outputs
    assert planned.get("fit again", 0) == (model.n_iter_ - 1) * outputs
    assert model.n_iter_ == (rounds or model.n_iter_)
    assert [what for what, _ in ledger.fits] == [f"{type(model).__name__}.fit"]
    assert 0.99 < model.privacy_.epsilon <= 1.0
    assert 0.95 < ledger.epsilon <= 1.0
    assert np.count_nonzero(np.atleast_2d(model.coef_), axis=1).max() <= (n_nonzero or fits.D)
    first = next(one.query for one in recorder.asked if one.name == "fit")
    if path == "passed":
        np.testing.assert_array_equal(first.features, np.arange(10))
        assert (first.mixing is None) == (kind == "frequencies")
    if path == "failed":
        assert len(first.features) == fits.D
        assert first.mixing is None


@pytest.mark.parametrize("loss", [Logistic(), Squared(), Poisson(), OneVsRest(SquaredHinge(), 3)], ids=repr)
@pytest.mark.parametrize("kind", ["dense", "frequencies"])
@pytest.mark.parametrize("people", [1, 3])
@pytest.mark.parametrize("rounds", [None, 1, 3])
def test_both_paths_ask_for_what_was_planned(loss: Loss, kind: str, people: int, rounds: int | None) -> None:
    """There are no rows at all, so nothing but the released answer to "check" can choose. Either way every question has
    the name, the number, the noise, the determinant and the rows per unit that the plan has."""
    public = facts(loss=loss, rows_per_unit=people, n_nonzero=6)
    method = FitAgain(rounds).with_public(read_public(public_of(kind, public.n_features), public.n_features))
    plan = {release.name: release for release in method.releases(public)}
    starts = {}
    for path in ("passed", "failed"):
        asked: list[tuple[str, Any]] = []
        rng = np.random.default_rng(0)

        def ask(name: str, query: Any, path: str = path, asked: Any = asked, rng: Any = rng) -> Any:
            asked.append((name, query))
            if name == "check":
                assert isinstance(query, Curvature)
                assert query.resolve(public).sensitivity(public).l2 == pytest.approx(
                    query.row_bound**2 * people / public.n_rows
                )
                return np.array([[ANSWERS[path][len(asked) - 1]]])  # type: ignore[index]
            if name == "spread":
                return np.ones((1, 1))
            moves = query.sensitivity(public).objective
            mechanism = plan[name].mechanism
            assert isinstance(mechanism, ObjectivePerturbation)
            assert moves.log_determinant == pytest.approx(mechanism.log_determinant, rel=1e-9)
            assert (moves.rows_per_unit, moves.one_sided) == (mechanism.rows_per_unit, mechanism.one_sided)
            return rng.standard_normal(query.centre.shape)

        weights = method.run(ask, public)
        assert np.count_nonzero(weights[:-1], axis=0).max() <= 6
        assert Counter(name for name, _ in asked) == {name: release.count for name, release in plan.items()}
        starts[path] = next(query for name, query in asked if name == "fit")
    assert len(starts["failed"].features) == 100
    np.testing.assert_array_equal(starts["passed"].features, np.arange(98))
    assert (starts["passed"].mixing is not None) == (kind == "dense")


@pytest.mark.parametrize("kind", ["dense", "frequencies"])
@pytest.mark.parametrize("loss", [Logistic(), Squared(), OneVsRest(SquaredHinge(), 3)], ids=repr)
def test_a_plan_with_public_knowledge_does_not_depend_on_the_bounds(loss: Loss, kind: str) -> None:
    """Estimated bounds of any size lead to the same noises and determinants, though public rows are cut by them."""
    method = FitAgain().with_public(read_public(public_of(kind, 100), 100))
    plans = {
        compose(method.releases(facts(loss=loss, row_l2=row_l2, row_linf=row_linf, label=label)))
        for row_l2, row_linf, label in ((1.0, 1.0, 1.0), (1e-3, 1e-4, 1e6), (1e6, 1e5, 1e-3), (7.0, 7.0, 3.0))
    }
    assert len(plans) == 1


def test_the_check_is_paid_for() -> None:
    """Its share, in two answers, is what the fits do not have; it is more where rows are few; and it is not free."""
    mu, shares = budget_mu(Budget(1.0, 1e-5)), {}
    for n_rows in (300, 4000, 100_000):
        public = facts(n_rows=n_rows)
        method = FitAgain(rescale_share=0.2).with_public(read_public(public_of("dense", 100), 100))
        releases = method.releases(public)
        squares = {one.name: one.count / one.mechanism.noise.value**2 for one in releases}
        assert sum(squares.values()) == pytest.approx(1.0)
        assert squares["fit"] == pytest.approx(0.5 * (0.8 - squares["check"]))
        shares[n_rows] = squares["check"]
        assert public.budget is not None
        plan = calibrate(releases, public.budget)
        without = [release for release in plan if release.name != "check"]
        assert epsilon(without, 1e-5) < (1 - 0.2 * squares["check"]) * epsilon(plan, 1e-5)
    assert shares == pytest.approx({300: 0.04, 4000: 0.8 * (100 / (4000 * mu)) ** 2, 100_000: 0.0016})


@pytest.mark.parametrize(("factor", "accepted"), [(1.0, True), (2 / 3, False), (3 / 2, False)])
def test_the_answers_to_the_check_have_the_noise_that_was_planned(factor: float, accepted: bool) -> None:
    """What differs from fit to fit of the same rows, in units of the noise: chi-squared over 2 x 150 answers, with a
    false alarm of 1e-5; 2/3 and 3/2 of it are told."""
    X, y = problem("logistic", n=60)
    public = facts(n_rows=60, n_features=fits.D, n_nonzero=3, row_l2=4.0, label=1.0)
    method = FitAgain(1, rescale_share=0.0).with_public(read_public(public_of("dense"), fits.D))
    assert public.budget is not None
    plan = Plan(tuple(calibrate(method.releases(public), public.budget)))
    noise = next(release.mechanism.noise.value for release in plan if release.name == "check")
    found: list[list[float]] = []

    def units(curator: Curator) -> Callable[..., Any]:
        found.append([])

        def ask(name: str, query: Any) -> Any:
            released = curator.ask(name, query)
            if name == "check":
                found[-1].append(float(released[0, 0]) / (noise * query.resolve(public).sensitivity(public).l2))
            return released

        return ask

    for seed in range(150):
        curator = Curator(Rows(X, 2 * y - 1), public, plan, np.random.default_rng(seed))
        method.run(units(curator), public)
    spread = np.array(found) - np.mean(found, axis=0)
    assert spread.shape == (150, 2)
    p_value = float(chi2(2 * 149).cdf(np.square(factor * spread).sum()))
    assert (1e-5 / 2 < p_value < 1 - 1e-5 / 2) == accepted


def test_a_method_forgets_the_public_rows_of_a_fit() -> None:
    """A method is an object of the user's: the next fit with it is one without, and says so."""
    X, y = problem("logistic")
    method = FitAgain(rescale_share=0.0)
    model = SparseClassifier(2.0, n_nonzero=3, method=method, bounds=BOUNDS, random_state=0)
    assert any("Public" in line for line in model.fit(X, y, public=public_of("dense")).privacy_.assumptions)
    again = clone(model).set_params(method=method).fit(X, y)
    assert not any("Public" in line for line in again.privacy_.assumptions)
    np.testing.assert_array_equal(
        again.coef_, clone(model).set_params(method=FitAgain(rescale_share=0.0)).fit(X, y).coef_
    )


@pytest.mark.parametrize("loss", ["logistic", "squared"])
@pytest.mark.parametrize("kind", ["dense", "csr", "frequencies"])
def test_a_neighbour_has_the_same_plan(recorder: type[RecordingCurator], loss: str, kind: str) -> None:
    """One row replaced by one as unlike as can be, with the same noise: the same questions of the same sensitivity."""
    X, y = problem(loss, n=600)
    other_X, other_y = X.copy(), y.copy()
    other_X[7], other_y[7] = 1e9, 1 - y[7] if is_classification(loss) else -1e9
    seen = []
    for rows, labels in ((X, y), (other_X, other_y), (X[::-1] ** 3, y)):
        recorder.asked.clear()
        model = estimator_for(loss)(1.0, n_nonzero=3, method=FitAgain(), bounds=BOUNDS, random_state=0)
        model.fit(rows, labels, public=public_of(kind))
        seen.append(([one.name for one in recorder.asked], model.privacy_.bill, model.privacy_.epsilon))
    assert seen[0] == seen[1] == seen[2]


@pytest.mark.parametrize("loss", ["logistic", "squared"])
@pytest.mark.parametrize("kind", ["dense", "frequencies"])
def test_without_privacy_public_knowledge_changes_nothing(loss: str, kind: str) -> None:
    """Private rows say all that public rows could."""
    X, y = problem(loss)
    for n_nonzero in (3, None):
        model = estimator_for(loss)(None, n_nonzero=n_nonzero, method=FitAgain(), bounds=BOUNDS)
        one, other = clone(model).fit(X, y), clone(model).fit(X, y, public=public_of(kind))
        np.testing.assert_array_equal(one.coef_, other.coef_)
        np.testing.assert_array_equal(one.intercept_, other.intercept_)
        assert {line.release for line in other.privacy_.bill} <= {"fit", "fit again"}


@pytest.mark.parametrize("loss", ["logistic", "squared"])
@pytest.mark.parametrize("path", ["passed", "failed"])
def test_dense_and_csr_public_rows_give_the_same_weights(
    answer_check: Callable[[str], None], loss: str, path: str
) -> None:
    """Beside private rows of either format."""
    answer_check(path)
    X, y = problem(loss, n=400)
    X[np.abs(X) < 0.5] = 0.0
    model = estimator_for(loss)(5.0, n_nonzero=4, method=FitAgain(), loss=loss, bounds=BOUNDS, random_state=3)
    dense = clone(model).fit(X, y, public=public_of("dense"))
    for convert in (np.asarray, sp.csr_array):
        for kind in ("dense", "csr"):
            other = clone(model).fit(convert(X), y, public=public_of(kind))
            np.testing.assert_array_equal(other.support_, dense.support_)
            np.testing.assert_allclose(other.coef_, dense.coef_, rtol=1e-6, atol=1e-9)
            np.testing.assert_allclose(other.intercept_, dense.intercept_, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("size", [1e-40, 1e-20, 1e20, 1e40])
@pytest.mark.parametrize("loss", ["logistic", "squared"])
@pytest.mark.parametrize("path", ["passed", "failed"])
def test_public_rows_of_any_length_are_taken(
    answer_check: Callable[[str], None], size: float, loss: str, path: str
) -> None:
    """What is wrong with them is not found out after the check was paid for."""
    answer_check(path)
    X, y = problem(loss)
    model = estimator_for(loss)(1.0, n_nonzero=4, method=FitAgain(), bounds=BOUNDS, random_state=0)
    model.fit(X, y, public=size * public_of("dense"))
    assert np.all(np.isfinite(model.coef_))
    assert np.count_nonzero(model.coef_) == 4


def test_rows_of_another_source_fail_the_check(recorder: type[RecordingCurator]) -> None:
    """Text-like rows pass with public rows of their own kind, in whose directions they are fitted. With columns in
    another order, whose common words are rare among the private rows, they do not, and are fitted to all features.

    At epsilon = 4 the answers are 7 and 12 standard deviations of their noise from the border: a false alarm has
    probability 1e-9. At epsilon = 1 they are 3.5 and 7 from it.
    """
    text = rcv1_like(6000, 3000, 40)
    X, y, similar = text.X[:5000], text.y[:5000], text.X[5000:]
    other = sp.csr_array(similar[:, np.random.default_rng(0).permutation(3000)])
    for public, passes in ((similar, True), (other, False)):
        for seed in range(3):
            recorder.asked.clear()
            model = SparseClassifier(4.0, 1e-6, bounds=Bounds(row_l2=1.0), random_state=seed)
            model.fit(X, y, public=public)
            first = next(one.query for one in recorder.asked if one.name == "fit")
            assert (first.mixing is not None) == passes
            assert passes or len(first.features) == 3000


@pytest.mark.parametrize("loss", [Logistic(), Squared()], ids=repr)
@pytest.mark.parametrize("n_rows", [50, 1000, 100_000])
def test_the_rescaling_shrinks_by_what_is_known_to_be_noise_and_never_lengthens(loss: Loss, n_rows: int) -> None:
    """A function of what was released and of public numbers: weights and intercepts are never longer than without."""
    rescale = FitAgain(rescale_share=0.05).settings(facts(loss=loss, n_rows=n_rows)).rescale
    assert rescale is not None
    assert rescale.own > 0
    assert min(rescale.noise) > 0
    plain = replace(rescale, noise=(0.0, 0.0), own=0.0)
    rng = np.random.default_rng(0)
    for _ in range(50):
        w, theta, unit = (
            rng.standard_normal((7, 1)),
            rng.standard_normal(2) * 10 ** rng.uniform(-4, 2),
            rng.uniform(1, 9),
        )
        less, more = (one.rescaled(w, 0.3, unit, theta) for one in (rescale, plain))
        assert np.linalg.norm(less[:-1]) <= np.linalg.norm(more[:-1])
        assert abs(less[-1, 0]) <= abs(more[-1, 0])


# --- refusals --------------------------------------------------------------------------------------------------------


@reduce_to_pairs()
@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize("budget", [1.0, None])
@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        *(("again_share", value, "must lie in (0, 1)") for value in (0, 1, np.nan, "half", True)),
        *(("rescale_share", value, "must lie in [0, 1)") for value in (-0.1, 1, np.nan)),
        *(("curvature", value, "must lie in (0, 4]") for value in (0, 4.1, np.nan)),
        *(("rounds", value, "must be an integer >= 1") for value in (0, -1, 1.5, True)),
        *(("slope_clip", value, "must be a finite number > 0") for value in (0, -1.0, np.nan, np.inf)),
        *(("row_bound", value, "must be a finite number > 0") for value in (0, -1.0, np.nan, np.inf)),
    ],
    ids=str,
)
def test_ranges_of_parameters(budget: float | None, name: str, value: Any, message: str) -> None:
    """Each parameter, with its name, its range and the value in the message."""
    X, y = problem("logistic")
    with pytest.raises(ValueError, match=re.escape(f"FitAgain({name}=...) {message}, got {value!r}")):
        SparseClassifier(budget, method=FitAgain(**{name: value}), bounds=BOUNDS).fit(X, y)


@pytest.mark.usefixtures("no_noise")
def test_what_it_cannot_do_is_refused() -> None:
    """Several classes by softmax, delta = 0, and printed noise: with words, before noise is drawn."""
    X, y = problem("logistic")
    with pytest.raises(ValueError, match="FitAgain rests on the convexity of the loss in one margin at a time"):
        SparseClassifier(method="fit_again", bounds=BOUNDS).fit(X, np.arange(len(X)) % 3)
    with pytest.raises(ValueError, match="with delta = 0 use pure mechanisms only"):
        SparseClassifier(1.0, 0.0, method="fit_again", bounds=BOUNDS).fit(X, y)
    with pytest.raises(ValueError, match="FitAgain has no published noise"):
        SparseClassifier(method="fit_again", bounds=BOUNDS, calibration="published").fit(X, y)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("n_features", [1, 4, 30])
def test_regression_leaves_room_for_estimated_bounds_and_for_other_steps(epsilon: float, n_features: int) -> None:
    """The penalty is weak. With a weaker one, xi = 2, no noise would be enough next to other releases."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (3000, n_features))
    y = X[:, 0] + 0.1 * rng.standard_normal(3000)
    for share in (0.1, 0.9):
        model = SparseRegressor(epsilon, 1e-5, bounds=Bounds(estimate_share=share), random_state=0).fit(X, y)
        assert 0.99 * epsilon < model.privacy_.epsilon <= epsilon
    steps = [("scale", PrivateScaler()), ("model", SparseRegressor(bounds=Bounds(label=2.0)))]
    both = PrivatePipeline(steps, epsilon=epsilon, delta=1e-5, random_state=0).fit(X, y)
    assert 0.99 * epsilon < both.privacy_.epsilon <= epsilon
