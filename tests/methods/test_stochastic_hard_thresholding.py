"""Stochastic hard thresholding: the plan it keeps, the methods it is without noise, and the paper's noise.

Statistical tests fix their seed. A false alarm has probability at most ALPHA = 1e-6 a test, were the seed drawn anew.
"""

from __future__ import annotations

import math
import pickle
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import fits
import numpy as np
import pytest
import scipy.sparse as sp
from fits import (
    Array,
    RecordingCurator,
    assert_storage_does_not_matter,
    estimator_for,
    model_for,
    problem,
    slopes_of,
    target_of,
)
from pairwise import reduce_to_pairs
from scipy.stats import chi2_contingency, chisquare, geom, ks_2samp
from sklearn.base import clone
from test_lazy_noise import CHEAP_ORDER

from tulle import Bounds, Budget, Ledger, SparseClassifier, SparseRegressor
from tulle.audit.targets import run_plan
from tulle.estimators.request import clip_and_plan
from tulle.fast import lazy_noise
from tulle.files.error_messages import PrivacyWarning
from tulle.ledgers.ledger import BudgetExceededError
from tulle.methods import FrankWolfe, HardThresholding, StochasticHardThresholding
from tulle.methods.loss_functions import Logistic, Squared
from tulle.methods.published_noise import scsg_noise, sgd_noise
from tulle.methods.stochastic_hard_thresholding import Variant
from tulle.trusted.accountants import epsilon
from tulle.trusted.randomness import keyed_generator
from tulle.trusted.rows import Rows
from tulle.trusted.sampling import SCHEMES, Sampler, Sampling, Scheme

pytestmark = pytest.mark.filterwarnings("ignore:.*no better than guessing:UserWarning")

recorder = fits.recorder
facts = partial(fits.facts, n_nonzero=5, row_l2=1.0)

ALPHA = 1e-6
VARIANTS: tuple[Variant, ...] = ("sgd", "scsg", "svrg")
STORAGES: dict[str, Callable[[Any], Any]] = {"dense": np.asarray, "csr": sp.csr_array}

every_variant = pytest.mark.parametrize("variant", VARIANTS)
every_scheme = pytest.mark.parametrize("scheme", SCHEMES)
every_storage = pytest.mark.parametrize("storage", STORAGES)
any_number_of_classes = pytest.mark.parametrize("n_classes", [0, 2, 3], ids=["regression", "two", "three"])


def thinned(X: Array) -> Array:
    """With zeros, for the sake of sparse rows, and with one row that has nothing else."""
    X = np.where(np.abs(X) < 0.5, 0.0, X)
    X[5] = 0.0
    return X


# --- the plan --------------------------------------------------------------------------------------------------------


@reduce_to_pairs()
@every_variant
@every_scheme
@every_storage
@pytest.mark.parametrize(
    ("epsilon", "step", "names"),
    [
        (1.0, None, {"step", "curvature"}),
        (1.0, 0.5, {"step"}),
        (None, None, {"step", "curvature", "first curvature"}),
        (None, 0.5, {"step"}),
    ],
    ids=["private", "private-given-step", "exact", "exact-given-step"],
)
def test_what_is_asked_equals_the_plan(
    recorder: type[RecordingCurator],
    variant: Variant,
    scheme: Scheme,
    storage: str,
    epsilon: float | None,
    step: float | None,
    names: set[str],
) -> None:
    """Names and counts; a shuffled release is an epoch of answers. And what the fit says of itself afterwards."""
    X, y = problem("classification")
    method = StochasticHardThresholding(variant, batch=40, sampling=scheme, step=step)
    model = model_for("classification", epsilon, method).fit(STORAGES[storage](thinned(X)), y)
    public = recorder.facts[-1]
    releases = method.releases(public)
    asked = Counter(asked.name for asked in recorder.asked)
    uses = {release.name: math.ceil(asked[release.name] / release.answers_each) for release in releases}
    assert uses == {release.name: release.count for release in releases}
    assert {line.release: line.count for line in model.privacy_.bill} == uses
    assert set(asked) == names | ({"snapshot"} if variant != "sgd" else set())
    settings = method.settings(public)
    assert asked["step"] == model.n_iter_ == model.n_thresholds_ == settings.n_steps == sum(settings.lengths)
    assert asked["snapshot"] == (len(settings.lengths) if variant != "sgd" else 0)
    if "curvature" in names:  # after steps 1, 2, 4, 8, ...
        assert asked["curvature"] == math.floor(math.log2(model.n_iter_)) + 1
    sizes = {"step": 40, "curvature": 40, "snapshot": settings.snapshot_batch or 0, "first curvature": len(X)}
    assert model.n_passes_ == pytest.approx(sum(asked[name] * size for name, size in sizes.items()) / len(X))


@reduce_to_pairs()
@every_variant
@every_scheme
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-5), (8.0, 1e-9)])
def test_the_proved_epsilon_is_just_below_the_budget(
    variant: Variant, scheme: Scheme, epsilon: float, delta: float
) -> None:
    """Calibration spends nearly all of the budget and never more, however batches are drawn."""
    X, y = problem("classification")
    method = StochasticHardThresholding(variant, sampling=scheme, batch=20)
    report = model_for("classification", epsilon, method, delta=delta).fit(X, y).privacy_
    assert 0.99 * epsilon < report.epsilon <= epsilon
    assert report.delta == delta


@every_variant
@every_scheme
def test_finite_precision_hardly_weakens_the_promise(variant: Variant, scheme: Scheme) -> None:
    """Also where a step starts at its snapshot, and no row can move it."""
    X, y = problem("classification")
    report = model_for("classification", 1.0, StochasticHardThresholding(variant, sampling=scheme)).fit(X, y).privacy_
    assert report.floating_point_slack == 0


@every_variant
@every_scheme
@pytest.mark.parametrize("k", [1, 3])
def test_batches_of_the_plan_are_those_of_the_rows_and_of_their_units(variant: Variant, scheme: Scheme, k: int) -> None:
    """n, the size of each kind of batch, and how many rows a person has: what chances follow from."""
    public = facts(rows_per_unit=k)
    method = StochasticHardThresholding(variant, sampling=scheme, batch=50, snapshot_batch=200)
    sizes = {release.name: release.mechanism.sampling for release in method.releases(public)}
    large = {"scsg": 200, "svrg": 1000}
    expected = {"step": 50, "curvature": 50} | ({"snapshot": large[variant]} if variant in large else {})
    assert sizes == {name: Sampling(scheme, 1000, size, k) for name, size in expected.items()}


@every_variant
@every_scheme
def test_every_snapshot_and_every_step_is_on_the_bill(variant: Variant, scheme: Scheme) -> None:
    """Or every epoch that their batches begin."""
    method = StochasticHardThresholding(variant, sampling=scheme, batch=50, snapshot_batch=200, passes=9.0)
    settings = method.settings(facts())
    answers = {"step": settings.n_steps, "snapshot": len(settings.lengths), "curvature": settings.n_questions}
    assert len(settings.lengths) > 1 or variant == "sgd"
    for release in method.releases(facts()):
        assert release.count == math.ceil(answers[release.name] / release.answers_each)


def test_more_rows_of_a_person_need_more_noise_where_chance_is_counted_on() -> None:
    """Per sensitivity, which grows with the rows of a person on top of it."""
    X, y = problem("classification")
    noise: dict[tuple[str, int], float] = {}
    for scheme in SCHEMES:
        for k in (1, 4):
            method = StochasticHardThresholding(sampling=scheme, step=1.0)
            bounds = replace(fits.BOUNDS, rows_per_person=k)
            report = model_for("classification", 1.0, method, bounds=bounds).fit(X, y).privacy_
            noise[scheme, k] = report.bill[0].noise_per_sensitivity
    for scheme in ("poisson", "without_replacement"):
        assert noise[scheme, 4] > 1.5 * noise[scheme, 1]
    assert noise["shuffled", 4] == noise["shuffled", 1]
    assert noise["poisson", 1] < noise["without_replacement", 1] < noise["shuffled", 1]


# --- without noise ---------------------------------------------------------------------------------------------------


def plain_loop(
    X: Array,
    slopes: Callable[[Array, Any], Array],
    outputs: int,
    draw: Callable[[str], Any],
    *,
    lengths: tuple[int, ...],
    sizes: dict[str, int],
    keep: int,
    memory: int,
    step: float,
    constant: float,
    penalty: float = 0.0,
    average: float = 0.0,
) -> tuple[Array, Array]:
    """Algorithms 1 and 2 on plain arrays, with a constant column that is never thresholded or penalised.

    `draw` gives the next batch of a kind; without a size for snapshots it is Algorithm 1.
    """
    n, d = X.shape
    A = np.column_stack([X, np.full(n, constant)])

    def gradient(w: Array, rows: Any, size: int) -> Array:
        return np.asarray(A[rows].T @ slopes(A[rows] @ w, rows) / size)

    def largest(w: Array, k: int) -> Array:
        w = w.copy()
        for column in range(outputs):
            w[np.argsort(-np.abs(w[:d, column]))[k:], column] = 0.0
        return w

    u = x = np.zeros((d + 1, outputs))
    path: list[Array] = []
    for length in lengths:
        snapshot = x
        if "snapshot" in sizes:
            mean = gradient(snapshot, draw("snapshot"), sizes["snapshot"])
        for _ in range(length):
            rows = draw("step")
            v = gradient(x, rows, sizes["step"])
            if "snapshot" in sizes:
                v = v - gradient(snapshot, rows, sizes["step"]) + mean
            v[:d] += penalty * x[:d]
            u = largest(u - step * v, memory)
            x = largest(u, keep)
            path.append(x)
    if average:
        x = largest(np.mean(path[len(path) - round(average * len(path)) :], axis=0), keep)
    return x[:d].T, constant * x[d]


def assert_without_noise_it_is_the_plain_loop(
    recorder: type[RecordingCurator],
    method: StochasticHardThresholding,
    loss: str,
    n_classes: int = 2,
    storage: str = "dense",
    **parameters: Any,
) -> None:
    """With the batches that a generator of the same seed draws: without noise nothing else is drawn."""
    X, y = problem(loss, n_classes=n_classes if fits.is_classification(loss) else None)
    X = thinned(X)
    model = estimator_for(loss)(None, n_nonzero=3, method=method, loss=loss, random_state=7, **parameters)
    model.fit(STORAGES[storage](X), y)
    settings = method.settings(recorder.facts[-1])
    sizes = {"step": settings.batch}
    if settings.snapshot_batch is not None:
        sizes["snapshot"] = settings.snapshot_batch
    generator = keyed_generator(7)
    samplers = {name: Sampler(Sampling(settings.scheme, len(X), size)) for name, size in sizes.items()}
    assert (settings.intercept_value > 0) is parameters.get("fit_intercept", True)
    coef, intercept = plain_loop(
        X,
        lambda margins, rows: slopes_of(loss, y[rows], n_classes)(margins),
        1 if n_classes == 2 else n_classes,
        lambda name: samplers[name].draw(generator),
        lengths=settings.lengths,
        sizes=sizes,
        keep=3,
        memory=settings.memory,
        step=float(settings.step or 0.0),
        constant=settings.intercept_value,
        penalty=method.penalty,
        average=method.average,
    )
    np.testing.assert_allclose(np.atleast_2d(model.coef_), coef, rtol=0, atol=1e-10)
    np.testing.assert_allclose(np.ravel(model.intercept_), intercept, rtol=0, atol=1e-10)
    assert np.count_nonzero(coef) == 3 * len(coef)


# Bounds that hold for every row clip nothing without privacy; neither do those that are not declared.
HOLD = Bounds(row_l2=4.0, row_linf=1.0, label=6.0)
PLAIN: dict[str, Any] = {"memory": 3, "step": 0.8, "average": 0.0, "passes": 4.0}


@reduce_to_pairs()
@every_variant
@pytest.mark.parametrize("loss", ["logistic", "squared", "huber", "squared_hinge"])
@pytest.mark.parametrize("bounds", [None, HOLD], ids=["no bounds", "bounds"])
@pytest.mark.parametrize("batch", [150, 30])
@every_storage
def test_without_noise_it_is_the_paper_s_method(
    recorder: type[RecordingCurator], variant: Variant, loss: str, bounds: Bounds | None, batch: int, storage: str
) -> None:
    """epsilon=None is SGD-HT, SCSG-HT and SVRG-HT to 1e-10, on all rows and on batches."""
    method = StochasticHardThresholding(variant, batch, sampling="poisson", **PLAIN)
    assert_without_noise_it_is_the_plain_loop(recorder, method, loss, storage=storage, bounds=bounds)


@reduce_to_pairs()
@every_variant
@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"], ids=["softmax", "one against the rest"])
@pytest.mark.parametrize("bounds", [None, HOLD], ids=["no bounds", "bounds"])
@every_storage
def test_without_noise_and_with_several_classes_too(
    recorder: type[RecordingCurator], variant: Variant, loss: str, bounds: Bounds | None, storage: str
) -> None:
    method = StochasticHardThresholding(variant, 30, **PLAIN)
    assert_without_noise_it_is_the_plain_loop(recorder, method, loss, 3, storage, bounds=bounds)


@every_variant
@every_scheme
@every_storage
def test_without_noise_however_batches_are_drawn(
    recorder: type[RecordingCurator], variant: Variant, scheme: Scheme, storage: str
) -> None:
    """An uneven size: the last batch of a shuffled epoch is smaller, and is divided by the public size all the same."""
    method = StochasticHardThresholding(variant, 40, sampling=scheme, **PLAIN)
    assert_without_noise_it_is_the_plain_loop(recorder, method, "logistic", storage=storage)


@reduce_to_pairs()
@every_variant
@pytest.mark.parametrize(
    "options",
    [
        {"penalty": 0.3},
        {"average": 0.4},
        {"average": 1.0},
        {"memory": 7},
        {"option": "I", "schedule_seed": 5},
        {"memory": 6, "penalty": 0.1, "average": 0.5},
    ],
    ids=str,
)
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_without_noise_every_option_does_what_it_says(
    recorder: type[RecordingCurator], variant: Variant, options: dict[str, Any], fit_intercept: bool
) -> None:
    method = StochasticHardThresholding(variant, 30, **{**PLAIN, **options})
    assert_without_noise_it_is_the_plain_loop(recorder, method, "squared", fit_intercept=fit_intercept)


@every_variant
@pytest.mark.parametrize("passes", [None, 40.0])
@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_without_privacy_the_default_step_learns(variant: Variant, passes: float | None, kind: str) -> None:
    """And does not diverge, however long it goes on."""
    X, y = problem(kind, n=300)
    method = StochasticHardThresholding(variant, passes=passes)
    model = estimator_for(kind)(None, n_nonzero=3, method=method, random_state=0).fit(X, y)
    assert {0, 3} <= set(model.support_.tolist())
    assert model.score(X, y) > 0.85


# --- the rows' format, and noise that is not drawn -------------------------------------------------------------------


@every_variant
@any_number_of_classes
@pytest.mark.parametrize(("epsilon", "lazy"), [(None, True), (20.0, False)], ids=["exact", "all noise drawn"])
def test_dense_csr_and_csc_give_the_same_weights(
    variant: Variant, n_classes: int, epsilon: float | None, lazy: bool
) -> None:
    """With the same seed and rows that are clipped in both norms; noise as well where all of it is drawn."""
    X, y = problem(target_of(n_classes), n=200, n_classes=n_classes)
    X = thinned(X)
    method = StochasticHardThresholding(variant, lazy_noise=lazy)
    bounds = Bounds(row_l2=1.5, row_linf=0.8, label=1.0)
    model = model_for(target_of(n_classes), epsilon, method, bounds=bounds, n_nonzero=3, random_state=3)
    assert_storage_does_not_matter(model, X, y)


@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array], ids=["dense", "csr"])
def test_float32_is_close_to_float64(convert: Any) -> None:
    X, y = problem("classification", n=300)
    method = StochasticHardThresholding(step=1.0)
    double, single = (
        model_for("classification", None, method, n_nonzero=12).fit(convert(X.astype(kind)), y)
        for kind in (np.float64, np.float32)
    )
    np.testing.assert_allclose(single.coef_, double.coef_, rtol=0, atol=1e-5)


def many_runs(variant: Variant, lazy: bool, runs: int, seed: int, noise: float = 1.0) -> Array:
    """The weights of many fits of a tiny sparse problem under one plan."""
    rng = np.random.default_rng(0)
    n, d = 16, 24
    X = np.zeros((n, d))
    X[np.repeat(np.arange(n), 2), rng.integers(0, d, 2 * n)] = 1.0
    y = 2.0 * X[:, 0] - X[:, 1] + X[:, 5]
    method = StochasticHardThresholding(variant, 4, passes=1.0, memory=5, step=2.0, lazy_noise=lazy)
    bounds = Bounds(row_l2=1.5, row_linf=1.0, label=2.0)
    model = SparseRegressor(20.0, 1e-5, n_nonzero=3, method=method, bounds=bounds)
    request, rows = model._request(Squared(), n), Rows(sp.csr_array(X), y)
    planned = clip_and_plan(request, rows, X.shape, {})
    plan = planned.plan
    plan = replace(plan, releases=tuple(release.scaled(noise) for release in plan.releases))
    generator = keyed_generator(seed)
    return np.array([run_plan(replace(planned, plan=plan), rows, generator, None)[:, 0] for _ in range(runs)])


def law_p_values(one: Array, other: Array) -> list[float]:
    """Of each weight, of the largest, of the intercept; and of how often each feature is chosen."""
    values = [*range(one.shape[1])]
    found = [float(ks_2samp(one[:, j], other[:, j], method="asymp").pvalue) for j in values]
    largest = [np.abs(world[:, :-1]).max(axis=1) for world in (one, other)]
    found.append(float(ks_2samp(*largest, method="asymp").pvalue))
    for j in values[:-1]:
        table = np.array(
            [[np.count_nonzero(world[:, j]), np.count_nonzero(world[:, j] == 0)] for world in (one, other)]
        )
        if np.all(table.sum(axis=0) > 0):
            found.append(float(chi2_contingency(table).pvalue))
    return found


@pytest.mark.parametrize("variant", ["sgd", "svrg"])
def test_noise_that_is_not_drawn_has_the_same_law(monkeypatch: pytest.MonkeyPatch, variant: Variant) -> None:
    """Few lines would be drawn in full, so their order is made to cost nothing. Twice the noise is told apart."""
    for name, value in CHEAP_ORDER.items():
        monkeypatch.setattr(lazy_noise, name, value)
    lazy, full = many_runs(variant, True, 250, 1), many_runs(variant, False, 250, 2)
    found = law_p_values(lazy, full)
    assert min(found) > ALPHA / len(found)
    wrong = law_p_values(many_runs(variant, True, 250, 1, noise=2.0), full)
    assert min(wrong) < ALPHA / len(wrong)


# --- schedules -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("large", "batch"), [(100, 25), (100, 100), (100, 7)])
def test_option_one_draws_geometric_lengths(large: int, batch: int) -> None:
    """P(N = k) = (1 - p) p^k with p = B / (B + b), at most ten times the mean; the first of all is at least 1."""
    mean, cap = large / batch, math.ceil(10 * large / batch)
    drawn: list[int] = []
    firsts = []
    for seed in range(60):
        method = StochasticHardThresholding("scsg", batch, large, passes=20.0, option="I", schedule_seed=seed)
        first, *rest = method.settings(facts()).lengths
        firsts.append(first)
        drawn += rest
    assert min(firsts) == 1
    assert max(drawn) <= cap
    chances = geom.pmf(np.arange(1, cap + 1), 1 / (1 + mean))
    chances = np.append(chances, 1 - chances.sum())
    expected, counts = len(drawn) * chances, np.bincount(drawn, minlength=cap + 1)
    common = int(np.flatnonzero(expected >= 10)[-1])
    found, wanted = (np.append(a[:common], a[common:].sum()) for a in (counts, expected))
    assert chisquare(found, wanted).pvalue > ALPHA
    assert len(drawn) > 2000


def test_the_plan_of_option_one_is_calibrated_to_the_steps_that_were_drawn() -> None:
    """The coins are public and come first: other seeds, other plans, and each keeps the promise."""
    X, y = problem("classification")
    bills = {}
    for seed in range(4):
        method = StochasticHardThresholding("scsg", 10, 50, option="I", schedule_seed=seed, step=0.5)
        model = model_for("classification", 1.0, method).fit(X, y)
        assert 0.99 < model.privacy_.epsilon <= 1.0
        bills[model.n_iter_] = {line.release: line for line in model.privacy_.bill}
        assert bills[model.n_iter_]["step"].count == model.n_iter_
    steps = sorted(bills)
    assert len(steps) >= 3
    noise = [bills[count]["step"].noise_per_sensitivity for count in steps]
    assert noise == sorted(noise)


def test_option_two_has_epochs_of_one_length() -> None:
    for large, batch, length in ((100, 25, 4), (100, 40, 2), (100, 30, 3), (100, 100, 1)):
        settings = StochasticHardThresholding("scsg", batch, large, passes=20.0).settings(facts())
        assert set(settings.lengths) == {length}
        assert len(settings.lengths) == round(20 * 1000 / (large + length * batch))
        other = StochasticHardThresholding("scsg", batch, large, passes=20.0, schedule_seed=9).settings(facts())
        assert other == settings


# --- defaults --------------------------------------------------------------------------------------------------------


@every_variant
@pytest.mark.parametrize("kind", ["classification", "regression"])
@pytest.mark.parametrize("option", ["I", "II"])
def test_settings_do_not_look_at_data(variant: Variant, kind: str, option: Any) -> None:
    """Two data sets of one shape, one tiny and one huge, get the same settings, bill and number of steps."""
    X, y = problem(kind)
    model = model_for(kind, 1.0, StochasticHardThresholding(variant, option=option))
    other = 1 - y if kind == "classification" else 1e4 * y
    small, large = clone(model).fit(1e-6 * X, y), clone(model).fit(1e6 * X[::-1], other)
    assert small.privacy_.method == large.privacy_.method
    assert small.privacy_.bill == large.privacy_.bill
    for name in ("n_iter_", "n_passes_", "n_thresholds_"):
        assert getattr(small, name) == getattr(large, name)


@every_variant
def test_settings_are_a_function_of_the_public_facts(variant: Variant) -> None:
    method = StochasticHardThresholding(variant)
    before = method.settings(facts())
    assert method.settings(facts()) == clone(method).settings(facts()) == before
    changes: list[dict[str, Any]] = [{"n_rows": 10**6}, {"budget": Budget(10.0, 1e-5)}, {"row_l2": 2.0}]
    for change in (*changes, {"rows_per_unit": 9}, {"n_nonzero": 7}, {"fit_intercept": False}):
        assert method.settings(facts(**change)) != before, change


@every_variant
@every_scheme
@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=lambda loss: type(loss).__name__)
def test_the_plan_does_not_depend_on_estimated_bounds(variant: Variant, scheme: Scheme, loss: Any) -> None:
    """So that it can be billed before they are known."""
    method = StochasticHardThresholding(variant, sampling=scheme)
    request = estimator_for(loss.kind)(1.0, n_nonzero=20, method=method)._request(loss, 2000)
    assert "row_l2" in request.wanted
    (plan,) = {one.plan for one in request.plan_all((2000, 100))}
    for length in (1e-3, 1.0, 30.0):
        found = {"row_l2": 4.0 * length, "label": 0.5 / length}
        assert request.plan((2000, 100), request.bounds.known(100, found), plan.together).plan == plan


@every_variant
@any_number_of_classes
def test_bounds_that_are_not_declared_are_estimated(variant: Variant, n_classes: int) -> None:
    X, y = problem(target_of(n_classes), n=2000, n_classes=n_classes)
    with Ledger(Budget(10.0, 1e-4)) as ledger:
        model = model_for(target_of(n_classes), 5.0, StochasticHardThresholding(variant), bounds=None).fit(X, y)
    assert 0.99 * 5 < model.privacy_.epsilon <= 5
    assert np.any(model.coef_)
    assert len(ledger.fits) == 1


@pytest.mark.parametrize(
    ("parameter", "value", "setting"),
    [
        ("batch", 33, "batch"),
        ("snapshot_batch", 333, "snapshot_batch"),
        ("sampling", "shuffled", "scheme"),
        ("step", 0.25, "step"),
        ("clip", 0.125, "clip"),
        ("memory", 9, "memory"),
    ],
)
def test_what_the_user_sets_is_what_runs(parameter: str, value: Any, setting: str) -> None:
    model = SparseClassifier(method=StochasticHardThresholding("scsg")).set_params(**{f"method__{parameter}": value})
    assert getattr(model.method.settings(facts()), setting) == value
    assert getattr(StochasticHardThresholding("scsg").settings(facts()), setting) != value


def test_sizes_beyond_what_there_is_are_taken_as_all() -> None:
    """Batches of more rows than there are, and memories of more features, as `n_nonzero` is; no less than n_nonzero."""
    settings = StochasticHardThresholding("scsg", 5000, 7000, memory=1000).settings(facts())
    assert (settings.batch, settings.snapshot_batch, settings.memory) == (1000, 1000, 100)
    assert StochasticHardThresholding(memory=2).settings(facts()).memory == 5
    assert StochasticHardThresholding("svrg", snapshot_batch=10).settings(facts()).snapshot_batch == 1000
    assert StochasticHardThresholding(snapshot_batch=10).settings(facts()).snapshot_batch is None


@pytest.mark.parametrize("passes", [1e-9, 0.1, 1.0, 3.0, 25.0])
@every_variant
def test_about_as_many_rows_are_read_as_passes_allow(variant: Variant, passes: float) -> None:
    """To the nearest step, or to the nearest snapshot with its steps; one in any case."""
    method = StochasticHardThresholding(variant, passes=passes, step=1.0)
    read, settings = method.n_passes(facts()), method.settings(facts())
    assert settings.n_steps >= 1
    one = (settings.snapshot_batch or 0) + settings.batch * (settings.lengths[0] if variant != "sgd" else 1)
    assert read == one / 1000 or abs(read - passes) <= 0.5001 * one / 1000


# --- rows of all kinds -----------------------------------------------------------------------------------------------


@reduce_to_pairs()
@every_variant
@every_scheme
@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize("epsilon", [1.0, None])
def test_tiny_data_can_be_fitted(variant: Variant, scheme: Scheme, n: int, d: int, epsilon: float | None) -> None:
    rng = np.random.default_rng(n)
    X, y = rng.uniform(-1, 1, (n, d)), rng.uniform(-1, 1, n)
    model = model_for("regression", epsilon, StochasticHardThresholding(variant, sampling=scheme, passes=2.0)).fit(X, y)
    assert np.all(np.isfinite(model.coef_))
    assert np.isfinite(model.intercept_)
    assert epsilon is None or 0.99 < model.privacy_.epsilon <= 1.0


@reduce_to_pairs()
@every_variant
@pytest.mark.parametrize("n_nonzero", [1, 3, 12, 50])
@pytest.mark.parametrize("n_classes", [2, 4])
def test_at_most_n_nonzero_weights_per_output_and_a_free_intercept(
    variant: Variant, n_nonzero: int, n_classes: int
) -> None:
    """Whatever is remembered and averaged."""
    X, _ = problem("classification")
    y = np.minimum(np.arange(len(X)) % 7, n_classes - 1)
    method = StochasticHardThresholding(variant, step=1.0, memory=8, average=0.6)
    model = model_for("classification", 50.0, method, n_nonzero=n_nonzero, random_state=1).fit(X, y)
    kept = np.count_nonzero(model.coef_, axis=1)
    assert np.all(kept <= n_nonzero)
    assert kept.max() >= min(n_nonzero, 12) - 1  # the released grid can round a kept weight to zero, hardly two
    assert np.all(model.intercept_ != 0)


@every_variant
@every_scheme
@every_storage
def test_surplus_rows_of_a_person_change_nothing(variant: Variant, scheme: Scheme, storage: str) -> None:
    """Three rows count; the fourth may be drawn into a batch, and adds nothing there."""
    X, y = problem("regression")
    X, groups = thinned(X), np.arange(len(X)) // 4
    method = StochasticHardThresholding(variant, sampling=scheme, lazy_noise=False)
    model = model_for("regression", 20.0, method, bounds=replace(fits.BOUNDS, rows_per_person=3), n_nonzero=3)
    one = clone(model).fit(STORAGES[storage](X), y, groups=groups)
    X2, y2 = X.copy(), y.copy()
    X2[3::4], y2[3::4] = 50.0, -50.0
    other = clone(model).fit(STORAGES[storage](X2), y2, groups=groups)
    np.testing.assert_allclose(other.coef_, one.coef_, rtol=0, atol=1e-12)
    assert "one person with at most 3 rows" in one.privacy_.unit
    assert not np.allclose(one.coef_, clone(model).fit(STORAGES[storage](X2), y2).coef_)


# --- the paper's noise -----------------------------------------------------------------------------------------------


def published(method: StochasticHardThresholding, claim: float = 10.0) -> Any:
    X, y = problem("classification")
    return model_for("classification", claim, method, calibration="published", delta=1e-5).fit(X, y)


def true_epsilon(method: StochasticHardThresholding, claim: float = 10.0) -> float:
    public = facts(n_rows=150, n_features=12, as_published=True)
    return epsilon(method.published(public, Budget(claim, 1e-5)), 1e-5)


def test_the_published_noise_of_sgd_warns_of_the_true_epsilon_and_of_its_conditions() -> None:
    """Small batches: claim 10, really more. The noise is Theorem 4.1's, and batches are of a fixed size as there."""
    method = StochasticHardThresholding(batch=1, passes=4.0)
    wanted = (
        r"the published noise for epsilon = 10 proves only epsilon = \S+ at delta = 1e-05; .* Its theorem does not "
        r"apply here: the steps: z² = 0\.0\d+ is less than 1\.5"
    )
    with pytest.warns(PrivacyWarning, match=wanted):
        model = published(method)
    (line,) = model.privacy_.bill
    assert line.noise_per_sensitivity == pytest.approx(sgd_noise(150, 1, 600, 10.0, 1e-5))
    assert line.mechanism == "Gaussian, batches of 1"
    assert model.privacy_.epsilon == pytest.approx(true_epsilon(method))
    assert model.privacy_.epsilon > 20
    assert model.privacy_.asked == (10.0, 1e-5)
    assert "MORE than requested" in " ".join(str(model.privacy_).split())


@pytest.mark.parametrize("constants", ["printed", "intended"])
@pytest.mark.parametrize("option", ["I", "II"])
def test_the_published_noise_of_scsg_warns_of_the_true_epsilon_and_of_its_conditions(
    constants: Any, option: Any
) -> None:
    """Both kinds of noise, of either set of constants, and the conditions of both kinds of batches."""
    method = StochasticHardThresholding("scsg", 2, 30, option=option, published_constants=constants)
    with pytest.warns(PrivacyWarning, match="Its theorem does not apply here: the snapshots: .*; the differences: "):
        model = published(method)
    snapshot, step = model.privacy_.bill
    expected = scsg_noise(150, 30, 2, snapshot.count, 10.0, 1e-5, option, intended=constants == "intended")
    assert (snapshot.noise_per_sensitivity, step.noise_per_sensitivity) == pytest.approx(expected)
    assert (snapshot.release, step.release) == ("snapshot", "step")
    assert model.privacy_.epsilon == pytest.approx(true_epsilon(method))
    assert (model.privacy_.epsilon > 10) is (option == "II" and constants == "printed")


def test_conditions_that_hold_are_not_warned_of() -> None:
    """RCV1's 20,242 rows, epsilon = 10, 50 epochs: batches of 184 to 246 are admissible, and no others."""
    public = facts(n_rows=20_242, as_published=True)
    budget = Budget(10.0, 1e-5)
    failed = {
        b: StochasticHardThresholding(batch=b, passes=50.0).failed_conditions(public, budget) for b in (170, 200, 260)
    }
    assert [bool(failed[b]) for b in (170, 200, 260)] == [True, False, True]
    assert "z²" in failed[170][0]


def test_as_published_nothing_is_asked_that_the_paper_does_not_ask(recorder: type[RecordingCurator]) -> None:
    """No curvature, no memory beyond the model, no mean of models; sensitivities are 2 l / b and 4 l / b throughout."""
    with pytest.warns(PrivacyWarning):
        published(StochasticHardThresholding("scsg", 10, 50, memory=12, average=0.5))
    public = recorder.facts[-1]
    settings = StochasticHardThresholding("scsg", 10, 50, memory=12).settings(public)
    assert settings.memory == public.n_nonzero
    assert not settings.damped
    assert settings.scheme == "without_replacement"
    assert {asked.name for asked in recorder.asked} == {"snapshot", "step"}
    level = settings.clip * public.row_bound(settings.intercept_value)
    moved = {"snapshot": 2 * level / 150, "step": 4 * level / 150 * float(settings.step or 0.0)}
    for asked in recorder.asked:  # as of all rows; the curator divides by the batch
        assert asked.sensitivity.l2 == pytest.approx(moved[asked.name])


# --- around it -------------------------------------------------------------------------------------------------------


def test_fits_inside_a_ledger_are_billed() -> None:
    X, y = problem("classification")
    with Ledger(Budget(3.0, 1e-4)) as ledger:
        for variant in VARIANTS:
            model_for("classification", 1.0, StochasticHardThresholding(variant)).fit(X, y)
        assert 1.0 < ledger.epsilon < 3.0
        with pytest.raises(BudgetExceededError, match="would take the ledger"):
            model_for("classification", 3.0, StochasticHardThresholding()).fit(X, y)
    assert len(ledger.fits) == 3


@every_variant
@every_scheme
def test_progress_counts_answers(
    recorder: type[RecordingCurator], variant: Variant, scheme: Scheme, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of them, however many one item of the bill buys, and none that a shuffled epoch has left over."""
    X, y = problem("classification")
    method = StochasticHardThresholding(variant, 30, sampling=scheme, step=0.5)
    model = model_for("classification", 1.0, method, verbose=1).fit(X, y)
    found = re.fullmatch(r"SparseClassifier: (\d+)/(\d+) answers.*\s*", capsys.readouterr().err.split("\r")[-1])
    assert found is not None
    asked = model.n_iter_ + (len(method.settings(recorder.facts[-1]).lengths) if variant != "sgd" else 0)
    assert (int(found[1]), int(found[2])) == (asked, asked)


def test_every_fit_says_how_often_it_thresholded() -> None:
    X, y = problem("classification", n_classes=3)
    assert model_for("classification", 1.0, HardThresholding(n_iter=4, step=0.5)).fit(X, y).n_thresholds_ == 4
    assert model_for("classification", 1.0, "auto").fit(X, y).n_thresholds_ > 0  # a softmax: hard thresholding
    assert model_for("regression", 1.0, "auto").fit(X, y).n_thresholds_ == 0
    assert model_for("classification", 1.0, FrankWolfe(n_iter=3)).fit(X, y).n_thresholds_ == 0


@every_variant
def test_a_pickled_model_predicts_the_same_and_keeps_its_report(variant: Variant) -> None:
    X, y = problem("classification")
    model = model_for("classification", 1.0, StochasticHardThresholding(variant)).fit(X, y)
    other = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(other.predict_proba(X), model.predict_proba(X))
    assert other.privacy_ == model.privacy_
    np.testing.assert_array_equal(other.fit(X, y).coef_, model.coef_)  # the same seed


@every_variant
@every_scheme
def test_the_report_says_what_was_run(variant: Variant, scheme: Scheme) -> None:
    X, y = problem("classification")
    method = StochasticHardThresholding(variant, 30, sampling=scheme)
    text = model_for("classification", 1.0, method, n_nonzero=4).fit(X, y).privacy_.method
    for words in (f"DP-{variant.upper()}-HT", "batches of 30 of 150 rows", f"({scheme.replace('_', ' ')})", "4 of 12"):
        assert words in text
    assert ("snapshots" in text) is (variant != "sgd")


@every_variant
@pytest.mark.parametrize("kind", ["two", "three", "regression"])
def test_it_learns(variant: Variant, kind: str) -> None:
    """20,000 rows, epsilon = 4: far better than guessing."""
    classes = {"two": 2, "three": 3, "regression": 0}[kind]
    X, y = problem(target_of(classes), n=20_000, d=30, seed=2, n_classes=classes or None)
    method = StochasticHardThresholding(variant)
    model = model_for(target_of(classes), 4.0, method, n_nonzero=3, bounds=Bounds(row_linf=1.0, label=4.0)).fit(X, y)
    assert model.score(X, y) > {"two": 0.8, "three": 0.6, "regression": 0.6}[kind]


@pytest.mark.parametrize(
    ("method", "stated"),
    [
        (StochasticHardThresholding(), True),
        (StochasticHardThresholding(sampling="without_replacement"), True),
        (StochasticHardThresholding(sampling="shuffled"), False),
        (HardThresholding(), False),
    ],
)
def test_the_report_says_where_the_promise_counts_on_secret_batches(method: Any, stated: bool) -> None:
    X, y = problem("regression", n=200)[:2]
    report = model_for("regression", 1.0, method).fit(X, y).privacy_
    assert any("kept secret" in line for line in report.assumptions) == stated
