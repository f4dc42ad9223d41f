"""Knowledge transfer: the plan it keeps, the method it is without noise, and the paper's variant, which keeps nothing.

Statistical tests fix their seed; the false-alarm probability, were the seed drawn anew, is stated with each.
"""

from __future__ import annotations

import math
import pickle
import re
from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any, ClassVar

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
    ridge_fit,
    run_without_noise,
    shortened,
    signed,
)
from pairwise import reduce_to_pairs
from scipy.stats import kstest, norm
from sklearn.base import BaseEstimator, RegressorMixin, clone

import tulle.trusted.fit
from tulle import Bounds, Budget, Ledger, SparseClassifier, SparseRegressor
from tulle.accounting.calibration import calibrate
from tulle.fast.exact_answers import Known
from tulle.files.error_messages import PrivacyWarning
from tulle.ledgers.ledger import BudgetExceededError
from tulle.methods import KnowledgeTransfer
from tulle.methods.loss_functions import Huber, Logistic, Loss, OneVsRest, Poisson, Squared, SquaredHinge
from tulle.methods.noise_scales import budget_mu
from tulle.methods.published_noise import NoiseWithoutProof
from tulle.transfer.public_features import GaussianFeatures, UniformFeatures, leading_directions
from tulle.transfer.students import can_unshrink
from tulle.trusted import exact_noise
from tulle.trusted.accountants import epsilon
from tulle.trusted.facts import PublicFacts
from tulle.trusted.mechanisms import ObjectivePerturbation, price_of
from tulle.trusted.objectives import Minimiser
from tulle.trusted.plan import compose

# Many of these tests use small data sets at small budgets; see tests/estimators/test_sparse.py.
pytestmark = pytest.mark.filterwarnings("ignore:.*no better than guessing:UserWarning")

ALPHA = 1e-5
BOUNDS = Bounds(row_l2=2.5, row_linf=1.0, label=4.0)
UNIFORM = UniformFeatures()
PUBLIC_ROWS = np.random.default_rng(7).uniform(-1, 1, (60, fits.D))

recorder = fits.recorder
problem = fits.problem
facts = partial(fits.facts, n_nonzero=6, row_l2=1.0, label=2.0)

# --- the plan --------------------------------------------------------------------------------------------------------

VARIANTS: dict[str, dict[str, Any]] = {
    "sparse": {"noise": "gaussian"},
    "sparse, by selection": {"noise": "selection"},
    "sparse, on the minimiser": {"perturbation": "output"},
    "sparse, a law": {"features": UNIFORM, "noise": "selection", "perturbation": "output"},
    "sparse, rows": {"features": PUBLIC_ROWS, "student": "ight", "unshrink": True},
    "dense": {"variant": "dense"},
    "dense, on the minimiser": {"variant": "dense", "perturbation": "output"},
    "dense, a law": {"variant": "dense", "features": GaussianFeatures(0.3)},
    "dense, rows": {"variant": "dense", "features": sp.csr_array(PUBLIC_ROWS)},
    "dense, directions": {"variant": "dense", "features": PUBLIC_ROWS, "directions": 4, "perturbation": "output"},
}
OF_EVERY_LOSS = ("sparse", "sparse, a law", "dense", "dense, directions")
CONFIGURATIONS = [
    *((loss, 2, name) for loss in SLOPES for name in OF_EVERY_LOSS),
    *(("squared_hinge", 3, name) for name in VARIANTS),
    *(("squared", 2, name) for name in VARIANTS if name not in OF_EVERY_LOSS),
    *(("logistic", 2, name) for name in ("sparse, rows", "dense, a law", "sparse, on the minimiser")),
]


ONE_OUTPUT: dict[str, Loss] = {
    "squared": Squared(),
    "huber": Huber(),
    "poisson": Poisson(),
    "logistic": Logistic(),
    "squared_hinge": SquaredHinge(),
}


def labels_of(loss: str, n_classes: int, n: int = 150) -> tuple[Array, Array]:
    X, y = problem(loss, n, n_classes=None)
    return X, y if n_classes == 2 else np.arange(n) % n_classes


@reduce_to_pairs()
@pytest.mark.parametrize(("loss", "n_classes", "name"), CONFIGURATIONS, ids=str)
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize(("budget", "people"), [(1.0, 1), (2.0, 2), (None, 1)], ids=["rows", "people", "exact"])
def test_what_is_asked_equals_the_plan(
    recorder: type[RecordingCurator],
    loss: str,
    n_classes: int,
    name: str,
    fit_intercept: bool,
    budget: float | None,
    people: int,
) -> None:
    """Names, counts and queries are those of releases() and of the bill, and the proof spends 99 % of the budget."""
    X, y = labels_of(loss, n_classes)
    method = KnowledgeTransfer(**VARIANTS[name])
    model = estimator_for(loss)(
        budget,
        n_nonzero=4,
        method=method,
        loss=loss,
        bounds=replace(BOUNDS, rows_per_person=people),
        fit_intercept=fit_intercept,
        random_state=0,
    ).fit(X, y)
    public = next(one for one in recorder.facts if one.row_l2 == 2.5)  # the students' fits come after it
    planned = {release.name: release.count for release in method.releases(public)}
    asked = recorder.asked[: sum(planned.values())]
    outputs = n_classes if n_classes > 2 else 1
    assert Counter(one.name for one in asked) == planned
    assert {line.release: line.count for line in model.privacy_.bill} == planned
    wanted = {"teacher": outputs}
    if method.variant == "sparse":
        selection = method.settings(public).selection
        assert method.noise in ("auto", "selection" if selection else "gaussian")
        wanted["select" if selection else "screen"] = 1
        if fit_intercept:
            wanted["start"] = 1
    assert planned == wanted
    teachers = [one.query for one in asked if one.name == "teacher"]
    assert all(isinstance(query, Minimiser) for query in teachers)
    assert {query.itself for query in teachers} == {method.perturbation == "output"}
    coef = np.atleast_2d(model.coef_)
    assert np.count_nonzero(coef, axis=1).max() <= 4
    assert np.all(np.isfinite(coef))
    assert fit_intercept or not np.any(model.intercept_)
    assert model.n_iter_ == 1
    if budget is not None:
        assert 0.99 * budget < model.privacy_.epsilon <= budget


BUDGETS = [(0.1, 1e-6), (1.0, 1e-5), (4.0, 1e-9), (20.0, 1e-5)]


@reduce_to_pairs()
@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize(
    "loss",
    [Squared(), Huber(), Poisson(), Logistic(), OneVsRest(SquaredHinge(), 3)],
    ids=lambda loss: type(loss).__name__,
)
@pytest.mark.parametrize("people", [1, 2])
def test_a_plan_costs_its_budget(name: str, loss: Loss, people: int) -> None:
    """Within 1 % of the budget and never above it, whatever the variant, the loss and the rows of a person."""
    method = KnowledgeTransfer(**VARIANTS[name])
    for eps, delta in BUDGETS:
        budget = Budget(eps, delta)
        public = facts(loss=loss, budget=budget, n_features=fits.D, n_nonzero=4, rows_per_unit=people)
        assert 0.99 * eps < epsilon(calibrate(method.releases(public), budget), delta) <= eps


@pytest.mark.parametrize("noise", ["gaussian", "selection"])
@pytest.mark.parametrize("perturbation", ["objective", "output"])
@pytest.mark.parametrize("loss", [Logistic(), OneVsRest(SquaredHinge(), 3)], ids=["two", "three"])
def test_the_cost_is_divided_as_the_parameters_say(noise: Any, perturbation: Any, loss: Loss) -> None:
    """Each part's sum of mu² (a choice of range r is (r/2)²) is its share, and the curvature that the penalty allows is
    in proportion to the mu of one teacher."""
    public = facts(loss=loss)
    method = KnowledgeTransfer(perturbation=perturbation, noise=noise, screening_share=0.3)
    squares, curvature = {}, 0.0
    for release in method.releases(public):
        _, uses = price_of(release.mechanism)
        squares[release.name] = uses * release.count / release.mechanism.noise.value**2
        curvature = math.expm1(getattr(release.mechanism, "log_determinant", 0.0))
    assert squares == pytest.approx(
        {"start": 0.02, "screen" if noise == "gaussian" else "select": 0.98 * 0.3, "teacher": 0.98 * 0.7}
    )
    mu = budget_mu(public.budget) * math.sqrt(0.98 * 0.7 / loss.n_outputs)
    assert curvature == pytest.approx(0.0 if perturbation == "output" else 0.45 * mu / 2)


@pytest.mark.parametrize("name", VARIANTS)
def test_no_part_is_free(name: str) -> None:
    """Each release adds to the proved epsilon: nothing that reads rows is for free."""
    public = facts(n_features=fits.D, n_nonzero=4)
    assert public.budget is not None
    method = KnowledgeTransfer(**VARIANTS[name])
    plan = calibrate(method.releases(public), public.budget)
    whole = epsilon(plan, 1e-5)
    for dropped in plan:
        rest = [release for release in plan if release is not dropped]
        assert not rest or epsilon(rest, 1e-5) < 0.995 * whole, dropped.name


@pytest.mark.parametrize("people", [2, 7])
def test_all_rows_of_a_person_count(people: int) -> None:
    """In a perturbed objective by its event, in a minimiser by its sensitivity."""
    public = facts(rows_per_unit=people)
    (teacher,) = (r.mechanism for r in KnowledgeTransfer().releases(public) if r.name == "teacher")
    assert isinstance(teacher, ObjectivePerturbation)
    assert teacher.rows_per_unit == people
    query = Minimiser(np.arange(6), 0.5, 1.0, 10.0, np.zeros(6), itself=True)
    ratio = query.sensitivity(public).l2 / query.sensitivity(replace(public, rows_per_unit=1)).l2
    assert ratio == pytest.approx(people)


@pytest.mark.parametrize(
    "loss",
    [Squared(), Huber(), Poisson(), Logistic(), OneVsRest(SquaredHinge(), 3)],
    ids=lambda loss: type(loss).__name__,
)
@pytest.mark.parametrize("name", VARIANTS)
def test_the_cost_of_a_plan_does_not_depend_on_the_bounds(loss: Loss, name: str) -> None:
    """Estimated bounds of any size lead to the same noises and determinants: what is billed is what is spent."""
    method = KnowledgeTransfer(**VARIANTS[name] | {"noise": VARIANTS[name].get("noise", "gaussian")})
    plans = set()
    for row_l2, row_linf, label in ((1.0, 1.0, 1.0), (1e-3, 1e-4, 1e6), (1e6, 1e5, 1e-3), (7.0, 7.0, 3.0)):
        public = facts(loss=loss, row_l2=row_l2, row_linf=row_linf, label=label, n_features=fits.D, n_nonzero=4)
        plans.add(compose(method.releases(public)))
        if method.perturbation == "objective":  # what the query will state is what the plan allows
            settings = method.settings(public)
            constants = method._constants(public, settings, 0.7 * row_l2, 4)
            curvature = getattr(loss, "binary", loss).curvature_within(constants.slope_clip, label)
            stated = math.log1p(curvature * constants.row_bound**2 / constants.penalty)
            assert stated == pytest.approx(constants.log_determinant, rel=1e-9)
    assert len(plans) == 1


@pytest.mark.parametrize("loss", ["logistic", "squared"])
@pytest.mark.parametrize("name", ["sparse", "sparse, a law", "dense, a law", "dense, directions"])
@pytest.mark.parametrize("bounds", [BOUNDS, None], ids=["declared", "estimated"])
def test_the_bill_does_not_look_at_data(loss: str, name: str, bounds: Bounds | None) -> None:
    """Two data sets of one shape, one tiny and one huge: the same bill, also where the bounds are estimated."""
    X, y = problem(loss)
    method = KnowledgeTransfer(**VARIANTS[name])
    model = estimator_for(loss)(2.0, bounds=bounds, n_nonzero=2, method=method, random_state=0)
    small = clone(model).fit(1e-2 * X, y)
    large = clone(model).fit(1e5 * X[::-1], 1 - y if loss == "logistic" else 1e5 * y)
    assert small.privacy_.bill == large.privacy_.bill
    assert 0.99 * 2 < small.privacy_.epsilon == large.privacy_.epsilon <= 2
    assert (small.n_iter_, small.n_passes_) == (large.n_iter_, large.n_passes_)


# --- without noise ---------------------------------------------------------------------------------------------------


def chosen_by_scores(X: Array, y: Array, loss: str, method: KnowledgeTransfer, public: PublicFacts) -> Any:
    """The s features with the largest exact (clipped) gradient at the best constant model."""
    settings = method.settings(public)
    a = (public.row_l2 / 4 if public.row_l2 < math.inf else 1.0) if public.fit_intercept else 0.0
    slope = SLOPES[loss]
    margin = 0.0
    if a:
        margin = float(STARTS[loss](np.clip(slope(np.zeros(len(X)), y), -settings.clip, settings.clip).mean()))
    slopes = slope(np.full(len(X), margin), y)
    scores = clipped_scores(X, slopes, settings.clip, settings.selection, a, public)
    return np.sort(np.argsort(-np.abs(scores))[: public.n_nonzero])


def plain_teacher(
    X: Array, y: Array, loss: str, length: float, tau: float, penalty: float, intercept: bool
) -> tuple[Array, float]:
    """The ridge fit with cut slopes to rows of at most a length, on plain arrays."""
    a = (length / 4 if length < math.inf else 1.0) if intercept else 0.0
    rows = shortened(X, math.hypot(length, a), a)
    theta = ridge_fit(rows, y, loss, tau, penalty, np.zeros(rows.shape[1]))
    return theta[: X.shape[1]], a * theta[-1] if a else 0.0


@reduce_to_pairs()
@pytest.mark.parametrize("loss", list(SLOPES))
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize(
    "name", ["sparse", "sparse, by selection", "sparse, on the minimiser", "sparse, a law", "dense"]
)
def test_without_privacy_it_is_the_non_private_method(
    recorder: type[RecordingCurator], loss: str, fit_intercept: bool, name: str
) -> None:
    """epsilon=None: the largest entries of X'y by the gradient, then a ridge fit on them; no cut, no noise."""
    X, y = problem(loss, n_classes=None)
    method = KnowledgeTransfer(**VARIANTS[name])
    model = estimator_for(loss)(None, n_nonzero=4, method=method, loss=loss, fit_intercept=fit_intercept).fit(X, y)
    public = recorder.facts[-1]
    targets = signed(loss, y)
    support = np.arange(fits.D) if name == "dense" else chosen_by_scores(X, targets, loss, method, public)
    coef, intercept = plain_teacher(X[:, support], targets, loss, math.inf, math.inf, 0.1, fit_intercept)
    np.testing.assert_allclose(np.ravel(model.teacher_coef_)[support], coef, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(np.ravel(model.teacher_intercept_), intercept, rtol=1e-5, atol=1e-7)
    kept = support[np.argsort(-np.abs(coef))[:4]]
    assert set(model.support_) == set(kept)
    np.testing.assert_array_equal(model.coef_[..., kept], model.teacher_coef_[..., kept])
    assert model.privacy_.epsilon == math.inf


@reduce_to_pairs(always=["alone-output-True-logistic"])
@pytest.mark.parametrize("loss", list(SLOPES))
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("perturbation", ["objective", "output"])
@pytest.mark.parametrize("variant", ["sparse", "alone", "dense", "directions"])
def test_with_no_noise_a_private_fit_is_the_method_that_it_describes(
    loss: str, fit_intercept: bool, perturbation: Any, variant: str
) -> None:
    """Private settings, cut slopes and rows, the penalty of the noise; just the noise is left out.

    Rows are cut to a length that is given, or to three quarters of the median one of public rows in the teacher's
    coordinates.
    """
    X, y = problem(loss, n_classes=None)
    X, targets = shortened(X, 2.5), signed(loss, np.clip(y, -4, 4))
    method = KnowledgeTransfer(
        "sparse" if variant in ("sparse", "alone") else "dense",
        None if variant == "alone" else PUBLIC_ROWS,
        perturbation=perturbation,
        directions=3 if variant == "directions" else None,
        unshrink=False,
        row_bound=0.9 if variant == "alone" else None,
    )
    one = ONE_OUTPUT[loss]
    public = facts(
        n_rows=len(X),
        n_features=fits.D,
        n_nonzero=4,
        loss=one,
        budget=Budget(3.0, 1e-5),
        row_l2=2.5,
        label=4.0,
        fit_intercept=fit_intercept,
    )
    found = run_without_noise(method, public, X, targets)
    mixing = np.eye(fits.D)
    if method.variant == "sparse":
        mixing = mixing[:, chosen_by_scores(X, targets, loss, method, public)]
    public_rows = shortened(PUBLIC_ROWS, 2.5)
    if variant == "directions":
        mixing = leading_directions(public_rows, 3)
    length = method.row_bound or 0.75 * float(np.median(np.linalg.norm(public_rows @ mixing, axis=1)))
    tau = method.settings(public).slope_clip
    bound = math.hypot(length, length / 4) if fit_intercept else length
    curvature = one.curvature_within(tau, 4.0)
    xi = 0.45 if one.one_sided else 0.5
    settings = method.settings(public)
    teaching = (1 - settings.start_share) * (1 - settings.screening_share)
    penalty = curvature * bound**2 / (xi * budget_mu(public.budget) * math.sqrt(teaching) / 2)
    if perturbation == "output":
        penalty = len(X) * 0.3 * curvature * bound**2 / mixing.shape[1]
    theta, intercept = plain_teacher(X @ mixing, targets, loss, length, tau, penalty, fit_intercept)
    tight = 1e-4 if perturbation == "output" else 2e-2  # where the noise would hide how far the solver went
    expected = np.append(mixing @ theta, intercept)
    factor = float(found[:, 0] @ expected / (expected @ expected))
    # Public rows put the length right where the loss is known; tests/transfer/test_students.py is about by how much.
    corrected = variant != "alone" and can_unshrink(one, 4)
    assert factor > 0 if corrected else factor == pytest.approx(1.0, rel=tight)
    np.testing.assert_allclose(found[:, 0], factor * expected, rtol=tight, atol=tight * np.abs(found).max())


def test_directions_by_default() -> None:
    """n mu / 14 of them, at most 500 and as many as there are; none for laws, for no features, and for few features."""
    rows = np.ones((700, 900))
    public = facts(n_rows=1000, n_features=900, n_nonzero=5)
    mu = budget_mu(public.budget)

    def directions(features: Any, **changes: Any) -> int | None:
        method = KnowledgeTransfer("dense", features, directions=changes.pop("directions", "auto"))
        return method.settings(replace(public, **changes)).directions

    assert directions(rows) == round(1000 * mu / 14)
    assert directions(sp.csr_array(rows)) == round(1000 * mu / 14)
    assert directions(rows, n_rows=10**6) == 500
    assert directions(rows[:40]) == min(40, round(1000 * mu / 14))
    assert directions(rows, budget=None) == 500
    assert directions(rows, n_rows=1) == 1
    assert directions(rows, directions=2) == 2
    assert directions(rows[:40], directions=300) == 40
    for none in (directions(None), directions(UNIFORM), directions(rows, directions=None)):
        assert none is None
    assert directions(np.ones((700, 3)), n_features=3, n_rows=10**6) is None


# --- what it learns --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["regression", "classification"])
@pytest.mark.parametrize(
    "name", ["sparse", "sparse, by selection", "sparse, a law", "dense", "dense, a law", "dense, directions"]
)
def test_it_finds_the_model(target: str, name: str) -> None:
    """With 20,000 rows at epsilon = 3 the two large weights are found, with their signs, by every variant."""
    X, y = problem(target, 20_000, n_classes=None)
    parameters = VARIANTS[name]
    if "directions" in parameters:
        parameters = {**parameters, "directions": fits.D}
    model = fits.model_for(target, 3.0, KnowledgeTransfer(**parameters), n_nonzero=3).fit(X, y)
    coef = np.ravel(model.coef_)
    assert {0, 3} <= set(model.support_)
    assert coef[0] > 0 > coef[3]
    assert model.score(X, y) > (0.8 if target == "regression" else 0.85)


@pytest.mark.parametrize("loss", ["logistic", "squared"])
@pytest.mark.parametrize("name", ["sparse", "sparse, by selection", "sparse, rows", "dense", "dense, directions"])
def test_dense_csr_and_csc_give_the_same_weights(loss: str, name: str) -> None:
    """The format of the rows changes nothing, with the same seed and rows that are clipped in both norms."""
    X, y = problem(loss, n=200)
    X[np.abs(X) < 0.5] = 0.0
    bounds = Bounds(row_l2=1.5, row_linf=0.8, label=1.0)
    model = fits.model_for(loss, 20.0, KnowledgeTransfer(**VARIANTS[name]), loss=loss, n_nonzero=4, bounds=bounds)
    dense = clone(model).fit(X, y)
    assert len(dense.support_) == 4
    for convert in (sp.csr_array, sp.csc_array, np.asfortranarray):
        other = clone(model).fit(convert(X), y)
        np.testing.assert_array_equal(other.support_, dense.support_)
        np.testing.assert_allclose(other.coef_, dense.coef_, rtol=1e-4)
        np.testing.assert_allclose(other.intercept_, dense.intercept_, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["sparse, rows", "dense, rows", "dense, directions", "published"])
def test_the_format_of_public_rows_changes_nothing(name: str) -> None:
    """Dense, CSR and CSC, and a list of lists."""
    X, y = problem("regression", 200)
    parameters = VARIANTS.get(name, {"variant": "published", "n_iter": 3})
    models = []
    for convert in (np.asarray, sp.csr_array, sp.csc_array, np.ndarray.tolist):
        method = KnowledgeTransfer(**{**parameters, "features": convert(PUBLIC_ROWS)})
        if name == "published":
            with pytest.warns(PrivacyWarning):
                models.append(fits.model_for("regression", 20.0, method, n_nonzero=4).fit(X, y))
        else:
            models.append(fits.model_for("regression", 20.0, method, n_nonzero=4).fit(X, y))
    for other in models[1:]:
        np.testing.assert_allclose(other.coef_, models[0].coef_, rtol=1e-6, atol=1e-9)
        assert other.privacy_.bill == models[0].privacy_.bill


@pytest.mark.parametrize("name", ["sparse", "sparse, by selection", "dense, a law"])
@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_surplus_rows_of_a_person_do_not_matter(name: str, loss: str) -> None:
    """A person's rows beyond rows_per_person can hold anything: the same seed gives the same model."""
    X, y = problem(loss, n=240)
    people, surplus = np.repeat(np.arange(60), 4), np.arange(240) % 4 >= 2
    bounds = replace(BOUNDS, rows_per_person=2)
    model = fits.model_for(loss, 5.0, KnowledgeTransfer(**VARIANTS[name]), n_nonzero=4, bounds=bounds)
    other_X, other_y = X.copy(), y.copy()
    other_X[surplus], other_y[surplus] = 100.0, y[surplus][::-1]
    one, other = (clone(model).fit(*data, groups=people) for data in ((X, y), (other_X, other_y)))
    np.testing.assert_array_equal(one.teacher_coef_, other.teacher_coef_)
    np.testing.assert_array_equal(one.intercept_, other.intercept_)
    assert not np.array_equal(one.teacher_coef_, clone(model).fit(other_X, other_y).teacher_coef_)


@pytest.mark.parametrize("features", [None, UNIFORM, PUBLIC_ROWS[:, :1]], ids=["none", "law", "rows"])
@pytest.mark.parametrize("perturbation", ["objective", "output"])
def test_a_score_that_noise_rounds_to_nothing_is_no_crash(
    features: Any, perturbation: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Noisy scores lie on a grid, and one of them can be exactly 0: a choice of no feature is a model without one."""
    monkeypatch.setattr(exact_noise, "_FINE", 2.0**-10)  # a grid on which that is common
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (200, 1)), 0.1 * rng.standard_normal(200)
    method = KnowledgeTransfer(features=features, perturbation=perturbation, noise="gaussian")
    sizes = set()
    for seed in range(60):
        model = fits.model_for(
            "regression", 5.0, method, delta=1e-5, n_nonzero=1, fit_intercept=False, random_state=seed
        )
        sizes.add(len(model.fit(X, y).support_))
    assert sizes == {0, 1}


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("epsilon", [1.0, None])
def test_rows_and_labels_that_say_nothing_are_no_crash(name: str, epsilon: float | None) -> None:
    """All rows empty, all labels 0, with and without an intercept."""
    X, y = problem("regression", 60)
    for rows, labels in ((0 * X, y), (X, 0 * y), (0 * X, 0 * y)):
        for fit_intercept in (True, False):
            method = KnowledgeTransfer(**VARIANTS[name])
            model = fits.model_for("regression", epsilon, method, n_nonzero=3, fit_intercept=fit_intercept)
            model.fit(rows, labels)
            assert np.all(np.isfinite(model.coef_))
            assert np.isfinite(model.intercept_)


@pytest.mark.parametrize("rows", [np.zeros((5, fits.D)), np.ones((5, fits.D)), 1e9 * np.eye(fits.D)], ids=str)
@pytest.mark.parametrize("name", ["sparse, rows", "dense, rows", "dense, directions"])
def test_public_rows_that_say_nothing_are_no_crash(rows: Array, name: str) -> None:
    """Empty, all equal, or far beyond the bounds: the fit is kept."""
    X, y = problem("regression", 300)
    method = KnowledgeTransfer(**{**VARIANTS[name], "features": rows, "student": None})
    model = fits.model_for("regression", 2.0, method, n_nonzero=3).fit(X, y)
    assert np.all(np.isfinite(model.teacher_coef_))
    assert 1.98 < model.privacy_.epsilon <= 2


def test_the_report_says_what_was_done() -> None:
    """The variant, where noise went, how many public rows, and that they were taken as public."""
    X, y = problem("regression", 200)
    fit = partial(fits.model_for, "regression", 2.0, n_nonzero=3)
    sparse = fit(KnowledgeTransfer(features=UNIFORM, noise="selection")).fit(X, y).privacy_
    assert sparse.method.startswith("knowledge transfer, sparse: a teacher on features chosen by one-shot selection")
    assert "its noise on its objective" in sparse.method
    assert "200 public rows, 3 of 12 weights kept" in sparse.method
    assert sum("given as public" in line for line in sparse.assumptions) == 1
    dense = fit(KnowledgeTransfer(**VARIANTS["dense, directions"])).fit(X, y).privacy_
    assert "knowledge transfer, dense: a teacher on 4 public directions, its noise on its minimiser" in dense.method
    assert "60 public rows" in dense.method
    alone = fit(KnowledgeTransfer("dense")).fit(X, y).privacy_
    assert "a teacher on all features" in alone.method
    assert "no student" in alone.method
    assert not any("given as public" in line for line in alone.assumptions)
    for report in (sparse, dense, alone):
        assert report.calibration == "rigorous"
        assert "those of a teacher if there is one" in report.who_saw_what[-1]


def test_copies_and_pickles_fit_alike() -> None:
    """clone, get_params and pickle with public features of all kinds."""
    X, y = problem("regression", 100)
    for features in (None, UNIFORM, GaussianFeatures(np.eye(fits.D)), PUBLIC_ROWS, sp.csr_array(PUBLIC_ROWS)):
        model = fits.model_for("regression", 2.0, KnowledgeTransfer("dense", features), n_nonzero=3)
        fitted = clone(model).fit(X, y)
        again = pickle.loads(pickle.dumps(model)).fit(X, y)
        np.testing.assert_array_equal(fitted.coef_, again.coef_)
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict(X), fitted.predict(X))


# --- the paper's variant ---------------------------------------------------------------------------------------------

PUBLISHED = partial(KnowledgeTransfer, "published", UNIFORM, n_iter=3)
REASON = r"theorem 4.3 and corollary 4.7.*one changed row can swap the support: examples/audit_dpsl_kt.py"


def published_facts(**changes: Any) -> PublicFacts:
    defaults = {"n_rows": 800, "n_features": 50, "n_nonzero": 5, "loss": Squared(), "label": 3.0, "row_linf": 0.5}
    return facts(**{**defaults, "as_published": True, "fit_intercept": False, **changes})


def printed_sigma(
    m: int, beta: float, s: int, gamma: float, delta: float, n: int, eps: float, curvature: float
) -> float:
    """[KT], theorem 4.3: sigma² = 8 m beta s gamma² log(2.5/delta) / (n² epsilon² lambda²)."""
    return math.sqrt(8 * m * beta * s * gamma**2 * math.log(2.5 / delta)) / (n * eps * curvature)


@pytest.mark.parametrize(("eps", "delta"), [(0.5, 1e-5), (1.0, 1e-2), (4.0, 1e-6)])
@pytest.mark.parametrize("m", [None, 300])
def test_the_noise_is_the_one_that_is_printed(eps: float, delta: float, m: int | None) -> None:
    """With a penalty of one's own, with corollary 4.7's eigenvalue instead, and with the default penalty."""
    budget = Budget(eps, delta)
    public = published_facts(budget=budget)
    rows = m or 800
    for parameters, gamma, curvature in (
        ({"penalty": 0.3}, 0.5 * 3.0, 0.3),
        ({"penalty": 0.3, "gradient_bound": 2.0}, 2.0, 0.3),
        ({"penalty": 0.0, "sparse_eigenvalue": 0.7}, 1.5, 0.7),
        ({}, 1.5, math.sqrt(5 * math.log(50) * math.log(1 / delta) / (800 * eps))),
        ({"published_constant": 0.2}, 1.5, 0.2 * math.sqrt(5 * math.log(50) * math.log(1 / delta) / (800 * eps))),
    ):
        *teacher, responses = PUBLISHED(n_public=m, **parameters).published(public, budget)
        assert isinstance(responses.mechanism, NoiseWithoutProof)
        sigma = responses.mechanism.noise.value * responses.mechanism.claimed
        assert sigma == pytest.approx(printed_sigma(rows, 1 / 3, 5, gamma, delta, 800, eps, curvature))
        assert all(release.mechanism.noise.value == 0 for release in teacher), "the teacher has no noise"
    assert gamma == 1.5
    classifier = PUBLISHED(penalty=0.3).published(replace(public, loss=Logistic()), budget)[-1].mechanism
    assert isinstance(classifier, NoiseWithoutProof)
    assert classifier.noise.value * classifier.claimed == pytest.approx(
        printed_sigma(800, 1 / 3, 5, 0.5, delta, 800, eps, 0.3)
    )


@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array], ids=["dense", "csr"])
def test_the_noise_on_rows_that_are_given_knows_how_far_they_stretch(convert: Any) -> None:
    """m beta is the squared spectral norm of the rows themselves; of a law, the law's."""
    rows = np.random.default_rng(0).normal(size=(90, 50)) / 10
    budget = Budget(1.0, 1e-5)
    public = published_facts(budget=budget, row_l2=9.0, row_linf=9.0)
    for features, stretched in (
        (convert(rows), np.linalg.norm(rows, 2) ** 2),
        (GaussianFeatures(0.01, 0.2), 800 * (0.01 + 50 * 0.04)),
        (UniformFeatures(0.0, 1.0), 800 * (1 / 12 + 50 / 4)),
    ):
        method = KnowledgeTransfer("published", features, penalty=0.5, gradient_bound=1.0)
        mechanism = method.published(public, budget)[-1].mechanism
        assert isinstance(mechanism, NoiseWithoutProof)
        sigma = mechanism.noise.value * mechanism.claimed
        assert sigma == pytest.approx(printed_sigma(1, stretched, 5, 1.0, 1e-5, 800, 1.0, 0.5), rel=1e-4)


class Listener(RegressorMixin, BaseEstimator):
    """A student that keeps what it was told, and learns nothing."""

    heard: ClassVar[list[Array]] = []

    def fit(self, X: Any, y: Array) -> Listener:
        self.heard.append(y)
        self.coef_ = np.zeros(X.shape[1])
        return self


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_the_student_hears_answers_with_the_printed_noise(
    recorder: type[RecordingCurator], fit_intercept: bool
) -> None:
    """In a fit: Kolmogorov and Smirnov's test (alpha = 1e-5) accepts sigma and rejects 2/3 and 3/2 of it."""
    X, y = problem("regression", 400)
    Listener.heard.clear()
    method = PUBLISHED(n_public=4000, penalty=0.4, student=Listener())
    with pytest.warns(PrivacyWarning):
        fits.model_for("regression", 2.0, method, delta=1e-5, n_nonzero=3, fit_intercept=fit_intercept).fit(X, y)
    (asked,) = (one for one in recorder.asked if one.name == "responses")
    assert isinstance(asked.query, Known)
    noise = Listener.heard[0] - asked.query.values[:, 0]
    sigma = printed_sigma(4000, 1 / 3, 3, 1.0 * 4.0, 1e-5, 400, 2.0, 0.4)
    for factor, accepted in ((1.0, True), (2 / 3, False), (3 / 2, False)):
        assert bool(kstest(noise / (factor * sigma), norm.cdf).pvalue > ALPHA) is accepted


@pytest.mark.parametrize("calibration", ["rigorous", "published"])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("parameters", [{}, {"penalty": 1.0}, {"penalty": 0.0, "sparse_eigenvalue": 0.5}], ids=str)
def test_nothing_is_promised_and_everybody_is_told(calibration: Any, loss: str, parameters: dict[str, Any]) -> None:
    """A warning before the fit, epsilon = inf in the report, why, and where the attack is; whatever the calibration."""
    X, y = problem(loss, 200)
    method = PUBLISHED(n_public=50, **parameters)
    model = fits.model_for(loss, 1.0, method, loss=loss, n_nonzero=3, calibration=calibration)
    with pytest.warns(PrivacyWarning, match=rf"proves nothing: the fit is not private.*{REASON}"):
        report = model.fit(X, y).privacy_
    assert report.epsilon == math.inf
    assert report.asked is not None
    assert report.asked[0] == 1.0
    assert report.calibration == "published"
    assert re.search(REASON, report.assumptions[0])
    assert "docs/proofs/published_transfer.md" in report.assumptions[0]
    assert "variant='sparse' keeps the promise" in report.assumptions[0]
    assert "as published" in report.method
    responses = next(line for line in report.bill if line.release == "responses")
    assert responses.mechanism == "Gaussian noise without a proof"
    assert responses.epsilon_alone == math.inf
    assert "inf" in str(report)
    assert 1 <= np.count_nonzero(model.coef_) <= 3
    assert not hasattr(model, "teacher_coef_")


def test_both_calibrations_are_one_for_the_published_variant() -> None:
    """The same noise, model and report: there is nothing to choose."""
    X, y = problem("regression", 200)
    models = []
    for calibration in ("rigorous", "published"):
        with pytest.warns(PrivacyWarning):
            models.append(
                fits.model_for("regression", 1.0, PUBLISHED(), n_nonzero=3, calibration=calibration).fit(X, y)
            )
    np.testing.assert_array_equal(models[0].coef_, models[1].coef_)
    assert models[0].privacy_ == models[1].privacy_


@pytest.mark.parametrize("calibration", ["rigorous", "published"])
def test_a_ledger_refuses_it_before_noise_is_drawn(monkeypatch: pytest.MonkeyPatch, calibration: Any) -> None:
    """No cap covers epsilon = inf."""

    def no_generator(*arguments: Any) -> Any:
        raise AssertionError("noise was about to be drawn")

    monkeypatch.setattr(tulle.trusted.fit, "keyed_generator", no_generator)
    X, y = problem("regression", 200)
    model = fits.model_for("regression", 1.0, PUBLISHED(), n_nonzero=3, calibration=calibration)
    with Ledger(Budget(1000.0, 0.5)) as ledger:
        with pytest.warns(PrivacyWarning), pytest.raises(BudgetExceededError, match="nothing was released"):
            model.fit(X, y)
        assert ledger.fits == []


def best_subset(X: Array, y: Array, s: int, penalty: float) -> Array:
    """The minimiser of mean squares / 2 + penalty |w|² / 2 over all supports of s features, one by one."""
    n, d = X.shape
    best, weights = math.inf, np.zeros(d)
    for support in map(list, combinations(range(d), s)):
        A = X[:, support]
        w = np.linalg.solve(A.T @ A / n + penalty * np.eye(s), A.T @ y / n)
        value = float(np.mean((y - A @ w) ** 2) / 2 + penalty * w @ w / 2)
        if value < best:
            best, weights = value, np.zeros(d)
            weights[support] = w
    return weights


@pytest.mark.parametrize("penalty", [0.0, 0.2])
@pytest.mark.parametrize("s", [1, 2, 3])
@pytest.mark.parametrize("storage", [np.asarray, sp.csr_array], ids=["dense", "csr"])
def test_without_noise_it_is_the_best_subset(penalty: float, s: int, storage: Any) -> None:
    """epsilon=None: teacher and student are IGHT, which finds the global minimiser here, by brute force."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (1000, 7))
    y = X @ np.array([0, 2.0, 0, -1.5, 0.0, 1.0, 0]) + 0.2 * rng.standard_normal(1000)
    method = KnowledgeTransfer("published", UNIFORM, penalty=penalty, sparse_eigenvalue=0.3, n_iter=200)
    model = SparseRegressor(None, n_nonzero=s, method=method, fit_intercept=False).fit(storage(X), y)
    np.testing.assert_allclose(model.coef_, best_subset(X, y, s, penalty), rtol=1e-3, atol=1e-6)
    assert model.privacy_.epsilon == math.inf
    assert model.privacy_.calibration == "none"


def test_one_row_swaps_the_published_teacher() -> None:
    """Why it is not private: the teacher moves a hundred times further than the printed noise covers."""
    X = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]] * 250)
    y = X.sum(axis=1) / 2
    row = int(np.flatnonzero(X[:, 0] > X[:, 1])[0])
    method = KnowledgeTransfer("published", UNIFORM, penalty=1.0, n_iter=3)
    found = []
    for label in (1.0, -1.0):
        labels = y.copy()
        labels[row] = label
        model = SparseRegressor(None, n_nonzero=1, method=method, fit_intercept=False).fit(X, labels)
        np.testing.assert_allclose(model.coef_, best_subset(X, labels, 1, 1.0), rtol=1e-3)
        found.append(model.coef_)
    covered = 2 * 1.5 / (1000 * 1.0)
    assert np.linalg.norm(found[0] - found[1]) > 100 * covered


@pytest.mark.parametrize("cls", [SparseRegressor, SparseClassifier])
def test_estimated_bounds_do_not_help_the_published_variant(cls: Any) -> None:
    """It stays at inf, one feature or many, and it says so."""
    X, y = problem("regression" if cls is SparseRegressor else "classification", 200)
    for rows in (X, X[:, :1]):
        with pytest.warns(PrivacyWarning, match="proves nothing"):
            model = cls(1.0, method=PUBLISHED(n_public=20), n_nonzero=2, random_state=0).fit(rows, y)
        assert model.privacy_.epsilon == math.inf
        assert np.all(np.isfinite(model.coef_))
