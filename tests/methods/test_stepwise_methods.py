"""What Frank-Wolfe and coordinate descent have in common: the plan they keep, public settings, formats, scales.

Some of it holds to the letter for hard thresholding too, on all rows and on batches, and is stated of all of them.
"""

from __future__ import annotations

import math
import pickle
from collections import Counter
from dataclasses import replace
from typing import Any

import fits
import numpy as np
import pytest
from fits import (
    BOUNDS,
    COORDINATE_DESCENT,
    FRANK_WOLFE,
    D,
    RecordingCurator,
    assert_storage_does_not_matter,
    estimator_for,
    facts,
    model_for,
    problem,
    target_of,
    the_examples_of_the_rule,
)
from pairwise import reduce_to_pairs
from sklearn.base import clone

from tulle import Bounds, Budget, Ledger, SparseClassifier
from tulle.methods import CoordinateDescent, FrankWolfe, HardThresholding, StochasticHardThresholding
from tulle.methods.feasible_sets import Box, L1Ball, Simplex
from tulle.methods.frank_wolfe import SELECTIONS
from tulle.methods.loss_functions import Logistic, Loss, Squared
from tulle.trusted.accountants import proof

pytestmark = pytest.mark.filterwarnings("ignore:.*no better than guessing:UserWarning")

recorder = fits.recorder

VARIANTS: dict[str, tuple[Any, dict[str, Any]]] = {
    **{f"frank_wolfe-{name}": (FrankWolfe, parameters) for name, parameters in FRANK_WOLFE.items()},
    **{
        f"coordinate_descent-{name}": (CoordinateDescent, parameters) for name, parameters in COORDINATE_DESCENT.items()
    },
}
every_variant = pytest.mark.parametrize(("method", "parameters"), VARIANTS.values(), ids=VARIANTS)
both_methods = pytest.mark.parametrize("method", [FrankWolfe, CoordinateDescent])
both_and_hard_thresholding = pytest.mark.parametrize("method", [FrankWolfe, CoordinateDescent, HardThresholding])
WITHOUT_SETTINGS: dict[str, Any] = {
    **{
        f"{method.__name__}-{noise}": method(noise=noise)
        for method in (FrankWolfe, CoordinateDescent, HardThresholding)
        for noise in ("gaussian", "selection")
    },
    **{f"on batches-{variant}": StochasticHardThresholding(variant) for variant in ("sgd", "scsg", "svrg")},
}
every_method_without_settings = pytest.mark.parametrize("method", WITHOUT_SETTINGS.values(), ids=WITHOUT_SETTINGS)
both_noises = pytest.mark.parametrize("noise", ["gaussian", "selection"])
any_number_of_classes = pytest.mark.parametrize("n_classes", [0, 2, 3], ids=["regression", "two", "three"])

# What a step with noise="selection" asks for; with Gaussian noise it is one gradient.
CHOICES = {FrankWolfe: {"vertex"}, CoordinateDescent: {"select", "update"}}


# --- the plan --------------------------------------------------------------------------------------------------------


@reduce_to_pairs()
@every_variant
@pytest.mark.parametrize("epsilon", [1.0, None])
@any_number_of_classes
@pytest.mark.parametrize("n_iter", [None, 1, 7])
def test_what_is_asked_equals_the_plan(
    recorder: type[RecordingCurator],
    method: Any,
    parameters: dict[str, Any],
    epsilon: float | None,
    n_classes: int,
    n_iter: int | None,
) -> None:
    """Names and counts that the curator was asked for are those of releases(), and those of the report's bill."""
    X, y = problem(target_of(n_classes), n_classes=n_classes)
    used = method(n_iter=n_iter, **parameters)
    model = model_for(target_of(n_classes), epsilon, used).fit(X, y)
    planned = {release.name: release.count for release in used.releases(recorder.facts[-1])}
    assert Counter(asked.name for asked in recorder.asked) == planned
    assert {line.release: line.count for line in model.privacy_.bill} == planned
    possible = {"gaussian": {"gradient"}, "selection": CHOICES[method]}
    assert set(planned) in ([possible[parameters["noise"]]] if parameters else list(possible.values()))
    assert set(planned.values()) == {model.n_iter_}
    assert n_iter in (None, model.n_iter_)
    assert model.n_passes_ == model.n_iter_ * len(planned)


@reduce_to_pairs()
@every_variant
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-5), (8.0, 1e-9)])
def test_the_proved_epsilon_is_just_below_the_budget(
    method: Any, parameters: dict[str, Any], n_classes: int, epsilon: float, delta: float
) -> None:
    """Calibration spends nearly all of the budget and never more, whatever the noise and the number of outputs."""
    X, y = problem("classification", n_classes=n_classes)
    report = model_for("classification", epsilon, method(n_iter=12, **parameters), delta=delta).fit(X, y).privacy_
    assert 0.99 * epsilon < report.epsilon <= epsilon
    assert report.delta == delta


@pytest.mark.parametrize("name", ["frank_wolfe", "coordinate_descent"])
@pytest.mark.parametrize("epsilon", [1.0, 8.0])
@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=lambda loss: type(loss).__name__)
def test_a_ledger_is_billed_for_every_shape_of_rows(name: str, epsilon: float, loss: Loss) -> None:
    """Whatever bounds are found, the plan that follows costs no more than was billed before they were asked for."""
    request = estimator_for(loss.kind)(epsilon, n_nonzero=20, method=name)._request(loss, 20_000)
    plans = [one.plan for one in request.plan_all((20_000, 1000))]
    ledger = Ledger(Budget(2 * epsilon, 1e-5))
    ledger.bill("fit", plans, (max(proof(plan, request.delta)[0] for plan in plans), request.delta))
    for length in np.geomspace(1, math.sqrt(1000), 14):
        found = {"row_l2": 4.0 * float(length), "row_linf": 4.0, "label": 0.5}
        plan = request.plan((20_000, 1000), request.bounds.known(1000, found)).plan
        ledger.confirm(plan, (proof(plan, request.delta)[0], request.delta), 0)


# --- the rows' format ------------------------------------------------------------------------------------------------


@every_variant
@any_number_of_classes
def test_dense_csr_and_csc_give_the_same_weights(method: Any, parameters: dict[str, Any], n_classes: int) -> None:
    """The format of the rows changes nothing, with the same seed and rows that are clipped in both norms."""
    X, y = problem(target_of(n_classes), n=200, n_classes=n_classes)
    X[np.abs(X) < 0.5] = 0.0
    model = model_for(
        target_of(n_classes),
        20.0,
        method(n_iter=10, engine="plain", **parameters),
        bounds=Bounds(row_l2=1.5, row_linf=0.8, label=1.0),
        n_nonzero=D,
        random_state=3,
    )
    assert_storage_does_not_matter(model, X, y)


# --- sparsity --------------------------------------------------------------------------------------------------------


@reduce_to_pairs()
@any_number_of_classes
@pytest.mark.parametrize(
    ("method", "parameters"),
    [
        *(
            pytest.param(
                FrankWolfe, {"selection": selection, "feasible": feasible}, id=f"frank_wolfe-{selection}-{name}"
            )
            for selection in SELECTIONS
            for name, feasible in (("l1", L1Ball(2.0)), ("simplex", Simplex(2.0)))
        ),
        pytest.param(CoordinateDescent, {}, id="coordinate_descent"),
    ],
)
@pytest.mark.parametrize("n_iter", [1, 3, 6])
def test_t_choices_give_at_most_t_nonzeros(
    n_classes: int, method: Any, parameters: dict[str, Any], n_iter: int
) -> None:
    """The rest is exactly 0, not small; noise of a tiny budget visits as many features as it can.

    The simplex has no 0 to start from, and one more.
    """
    X, y = problem(target_of(n_classes), n_classes=n_classes, d=40)
    used = method(n_iter=n_iter, noise="selection", **parameters)
    model = model_for(target_of(n_classes), 0.01, used, n_nonzero=40, fit_intercept=False).fit(X, y)
    kept = np.count_nonzero(np.atleast_2d(model.coef_), axis=1)
    assert 1 <= kept.max() <= n_iter + isinstance(parameters.get("feasible"), Simplex)
    assert n_iter < 6 or kept.max() > 3


@reduce_to_pairs()
@every_variant
@pytest.mark.parametrize("n_nonzero", [1, 3, D])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_at_most_n_nonzero_weights_per_output(
    method: Any, parameters: dict[str, Any], n_nonzero: int, n_classes: int
) -> None:
    """Each output keeps at most n_nonzero weights."""
    X, y = problem("classification", n_classes=n_classes)
    model = model_for("classification", 1.0, method(n_iter=15, **parameters), n_nonzero=n_nonzero).fit(X, y)
    kept = np.count_nonzero(model.coef_, axis=1)
    assert np.all(kept <= n_nonzero)
    assert kept.max() >= min(n_nonzero, 3) - 1


# --- rows of a person ------------------------------------------------------------------------------------------------


def free_of_choices(method: Any, parameters: dict[str, Any]) -> dict[str, Any]:
    """The variant without what changes the first questions besides the rows of a person: a default radius, which
    follows the noise, and units of features, which follow the feature that was chosen."""
    if method is CoordinateDescent:
        return {**parameters, "feature_scale": None}
    return parameters if "feasible" in parameters else {"radius": 2.0, **parameters}


@every_variant
@pytest.mark.parametrize("n_classes", [2, 3])
def test_sensitivities_grow_with_the_rows_of_a_person(
    recorder: type[RecordingCurator], method: Any, parameters: dict[str, Any], n_classes: int
) -> None:
    """At the first questions, where weights are 0 in any case: 4 rows of a person move answers 4 times as far."""
    X, y = problem("classification", n_classes=n_classes)
    moved, noise = [], []
    for k in (1, 4):
        recorder.asked.clear()
        used = method(n_iter=3, **free_of_choices(method, parameters))
        model = model_for("classification", 1.0, used, bounds=replace(BOUNDS, rows_per_person=k)).fit(X, y)
        first = recorder.asked[: len(model.privacy_.bill)]
        moved.append([(asked.sensitivity.l2, asked.sensitivity.linf) for asked in first])
        noise.append([line.noise_per_sensitivity for line in model.privacy_.bill])
    assert np.all(np.isfinite(np.min(moved[0], axis=1)))
    np.testing.assert_allclose(moved[1], 4 * np.array(moved[0]), rtol=1e-12)
    assert noise[0] == noise[1]


# --- defaults --------------------------------------------------------------------------------------------------------


@every_variant
@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_settings_do_not_look_at_data(method: Any, parameters: dict[str, Any], kind: str) -> None:
    """Two data sets of one shape, one tiny and one huge, get the same settings, bill and number of steps."""
    X, y = problem(kind)
    small = model_for(kind, 1.0, method(**parameters)).fit(1e-6 * X, y)
    other = 1 - y if kind == "classification" else 1e4 * y
    large = model_for(kind, 1.0, method(**parameters)).fit(1e6 * X[::-1], other)
    assert small.privacy_.method == large.privacy_.method
    assert small.privacy_.bill == large.privacy_.bill
    assert (small.n_iter_, small.n_passes_) == (large.n_iter_, large.n_passes_)


@both_noises
@pytest.mark.parametrize(
    ("method", "base", "more"),
    [
        (FrankWolfe, {"loss": Squared(), "label": 1.0}, [{"rows_per_unit": 9}]),
        (CoordinateDescent, {"loss": Squared(), "label": 1.0}, []),
        (CoordinateDescent, {"loss": Logistic()}, []),
    ],
    ids=["frank_wolfe-squared", "coordinate_descent-squared", "coordinate_descent-logistic"],
)
def test_settings_are_a_function_of_the_public_facts(
    noise: Any, method: Any, base: dict[str, Any], more: list[dict[str, Any]]
) -> None:
    """Equal facts give equal settings; changed facts (rows, budget, bounds, rows of a person) change them."""
    used = method(noise=noise)
    before = used.settings(facts(**base))
    assert used.settings(facts(**base)) == before
    assert clone(used).settings(facts(**base)) == before
    changes: list[dict[str, Any]] = [{"row_l2": 7.0}, {"n_features": 300}, {"fit_intercept": False}]
    if noise == "selection":
        changes += [{"n_rows": 10**5}, {"n_rows": 10**7}, {"budget": Budget(10.0, 1e-5)}, *more]
    for change in changes:
        assert used.settings(facts(**base, **change)) != before, change


@the_examples_of_the_rule
@both_methods
def test_auto_noise_follows_the_rule_of_error_scales(
    method: Any, d: int, s: int, row_l2: float, row_linf: float, selection: bool
) -> None:
    """Gaussian noise for ℓ2-normalised text, choices for dense bounded designs: the four examples of privacy.md."""
    public = facts(n_features=d, n_nonzero=s, row_l2=row_l2, row_linf=row_linf)
    assert method().settings(public).selection is selection
    for noise in ("gaussian", "selection"):
        assert method(noise=noise).settings(public).selection is (noise == "selection")


@pytest.mark.parametrize(
    ("method", "parameter", "value", "setting", "result"),
    [
        *(
            (FrankWolfe(), *case)
            for case in (
                ("n_iter", 4, "n_iter", 4),
                ("clip", 0.125, "clip", 0.125),
                ("radius", 0.75, "feasible", L1Ball(0.75)),
                ("feasible", Box(0.75), "feasible", Box(0.75)),
                ("averaging", False, "averaging", False),
            )
        ),
        *(
            (CoordinateDescent(noise="selection"), name, value, name, value)
            for name, value in (("n_iter", 4), ("step", 0.25), ("clip", 0.125), ("last_clip", 0.5), ("block", 3))
        ),
    ],
)
def test_what_the_user_sets_is_what_runs(method: Any, parameter: str, value: Any, setting: str, result: Any) -> None:
    """Parameters given replace the defaults, also through set_params of the estimator around them."""
    model = SparseClassifier(method=clone(method)).set_params(**{f"method__{parameter}": value})
    assert getattr(model.method.settings(facts()), setting) == result
    assert getattr(method.settings(facts()), setting) != result


@both_and_hard_thresholding
def test_set_params_reaches_the_method_of_an_estimator(method: Any) -> None:
    """set_params(method__n_iter=...) changes the fit, and a clone keeps it without sharing the object."""
    X, y = problem("classification")
    model = SparseClassifier(method=method(n_iter=3), bounds=BOUNDS)
    assert model.set_params(method__n_iter=8, method__noise="selection").fit(X, y).n_iter_ == 8
    copy = clone(model)
    assert copy.method is not model.method
    assert copy.method.get_params() == model.method.get_params()
    assert copy.set_params(method__n_iter=2).fit(X, y).n_iter_ == 2
    assert model.method.n_iter == 8


@every_variant
def test_a_pickled_model_predicts_the_same_and_keeps_its_report(method: Any, parameters: dict[str, Any]) -> None:
    """Models with sets of all kinds, and with the scales of features, in their method."""
    X, y = problem("classification")
    model = model_for("classification", 1.0, method(n_iter=3, **parameters)).fit(X, y)
    other = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(other.predict_proba(X), model.predict_proba(X))
    assert other.privacy_ == model.privacy_
    np.testing.assert_array_equal(other.fit(X, y).coef_, model.coef_)  # the same seed


@every_method_without_settings
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_defaults_scale_with_the_labels(method: Any, fit_intercept: bool) -> None:
    """Labels and their bound times 8 give exactly 8 times the weights: every default, and the grid, scales along."""
    X, y = problem("regression", n=400)
    one, eight = (
        model_for(
            "regression",
            5.0,
            method,
            n_nonzero=3,
            bounds=replace(BOUNDS, label=factor * 2.0),
            fit_intercept=fit_intercept,
        ).fit(X, factor * y)
        for factor in (1, 8)
    )
    assert np.count_nonzero(one.coef_) > 0
    np.testing.assert_array_equal(eight.coef_, 8 * one.coef_)
    assert eight.intercept_ == 8 * one.intercept_


@every_method_without_settings
@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_defaults_scale_with_the_features(method: Any, kind: str) -> None:
    """Features and their bounds times 8 give an eighth of the weights and the same intercept and predictions."""
    X, y = problem(kind, n=400)
    one, eight = (
        model_for(
            kind,
            5.0,
            method,
            n_nonzero=3,
            bounds=Bounds(row_l2=factor * 3.0, row_linf=factor * 1.0, label=2.0),
        ).fit(factor * X, y)
        for factor in (1, 8)
    )
    assert np.count_nonzero(one.coef_) > 0
    np.testing.assert_allclose(8 * eight.coef_, one.coef_, rtol=1e-9)
    np.testing.assert_allclose(eight.intercept_, one.intercept_, rtol=1e-9)


# --- accuracy --------------------------------------------------------------------------------------------------------


@both_methods
@both_noises
def test_three_classes_are_learnt(method: Any, noise: Any) -> None:
    """20,000 rows, epsilon = 4: far more right than the 40 % that guessing has."""
    X, y = problem("classification", n=20_000, d=30, seed=2, n_classes=3)
    bounds = Bounds(row_linf=1.0)
    model = SparseClassifier(4.0, n_nonzero=3, method=method(noise=noise), bounds=bounds, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.6
