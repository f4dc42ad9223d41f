"""Greedy coordinate descent: the plan it keeps, the method it is without noise, and what it finds."""

from __future__ import annotations

import itertools
import math
import pickle
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.base import clone

import tulle.fitting
from tulle import Bounds, Budget, SparseClassifier, SparseRegressor
from tulle.curator import Curator
from tulle.events import BoundedRangeEvent, GaussianEvent
from tulle.losses import Huber, Logistic, Loss, Softmax, Squared, SquaredHinge
from tulle.methods import CoordinateDescent
from tulle.privacy import Plan
from tulle.public import PublicFacts
from tulle.rows import Rows

pytestmark = pytest.mark.filterwarnings("ignore:.*no better than guessing:UserWarning")

Array = NDArray[np.float64]

D = 12
BOUNDS = Bounds(row_l2=3.0, row_linf=1.0, label=4.0)
SCALE = np.linspace(2.0, 0.8, D)


def problem(kind: str, n: int = 150, d: int = D, seed: int = 0, n_classes: int = 2) -> tuple[Array, Array]:
    """Dense rows with entries in (-1, 1); targets that depend on three features and an offset."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, d))
    margins = X[:, 0] - 2 * X[:, 3] + 0.5 * X[:, 7] + 0.3 + 0.1 * rng.standard_normal(n)
    if kind == "regression":
        return X, margins
    return X, np.digitize(margins, np.quantile(margins, 0.9 * np.arange(1, n_classes) / n_classes)).astype(float)


def facts(**changes: Any) -> PublicFacts:
    """Public facts of a private fit of 1000 rows and 100 features."""
    base = PublicFacts(
        n_rows=1000,
        n_features=100,
        n_nonzero=100,
        loss=Logistic(),
        budget=Budget(1.0, 1e-5),
        row_l2=5.0,
        row_linf=1.0,
        label=math.inf,
        fit_intercept=True,
    )
    return replace(base, **changes)


class RecordingCurator(Curator):
    """A curator that keeps what it was asked, with its sensitivities, and the public facts of each fit."""

    asked: list[tuple[str, Any, float]]
    facts: list[PublicFacts]

    def __init__(self, rows: Any, public: PublicFacts, *others: Any) -> None:
        super().__init__(rows, public, *others)
        self.facts.append(public)

    def ask(self, name: str, query: Any, **then: Any) -> Any:
        moved = query.sensitivity(self._public)
        self.asked.append((name, query, moved.linf if name == "select" else moved.l2))
        return super().ask(name, query, **then)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> type[RecordingCurator]:
    """The curator that fits use during the test."""
    RecordingCurator.asked, RecordingCurator.facts = [], []
    monkeypatch.setattr(tulle.fitting, "Curator", RecordingCurator)
    return RecordingCurator


VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "selection": {"noise": "selection"},
    "selection-scaled": {"noise": "selection", "feature_scale": SCALE},
    "selection-share": {"noise": "selection", "selection_share": 0.2, "step": 0.5},
    "selection-one-clip": {"noise": "selection", "clip": 0.3, "last_clip": 1.0},
    "gaussian": {"noise": "gaussian"},
    "gaussian-scaled": {"noise": "gaussian", "feature_scale": SCALE},
    "gaussian-block": {"noise": "gaussian", "block": 2, "step": 0.5},
}
every_variant = pytest.mark.parametrize("variant", VARIANTS)


def model_for(kind: str, epsilon: float | None, method: CoordinateDescent, **parameters: Any) -> Any:
    cls = SparseClassifier if kind == "classification" else SparseRegressor
    return cls(epsilon, **{"method": method, "bounds": BOUNDS, "random_state": 0, **parameters})


# --- the plan --------------------------------------------------------------------------------------------------------


@every_variant
@pytest.mark.parametrize("epsilon", [1.0, None])
@pytest.mark.parametrize("n_classes", [0, 2, 3], ids=["regression", "two", "three"])
@pytest.mark.parametrize("n_iter", [None, 1, 7])
def test_what_is_asked_equals_the_plan(
    recorder: type[RecordingCurator], variant: str, epsilon: float | None, n_classes: int, n_iter: int | None
) -> None:
    """Names and counts that the curator was asked for are those of releases(), and those of the report's bill."""
    kind = "classification" if n_classes else "regression"
    X, y = problem(kind, n_classes=n_classes)
    method = CoordinateDescent(**{"n_iter": n_iter, **VARIANTS[variant]})
    model = model_for(kind, epsilon, method).fit(X, y)
    planned = {release.name: release.count for release in method.releases(recorder.facts[-1])}
    assert Counter(name for name, _, _ in recorder.asked) == planned
    assert {line.release: line.count for line in model.privacy_.bill} == planned
    assert set(planned.values()) == {model.n_iter_}
    assert n_iter in (None, model.n_iter_)
    if variant != "default":
        assert set(planned) == ({"gradient"} if variant.startswith("gaussian") else {"select", "update"})
    assert model.n_passes_ == model.n_iter_ * len(planned)


@every_variant
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-5), (8.0, 1e-9)])
def test_the_proved_epsilon_is_just_below_the_budget(
    variant: str, n_classes: int, epsilon: float, delta: float
) -> None:
    """Calibration spends nearly all of the budget and never more, whatever the noise and the number of outputs."""
    X, y = problem("classification", n_classes=n_classes)
    method = CoordinateDescent(n_iter=12, **VARIANTS[variant])
    report = model_for("classification", epsilon, method, delta=delta).fit(X, y).privacy_
    assert 0.99 * epsilon < report.epsilon <= epsilon
    assert report.delta == delta


@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("share", [0.2, 0.6, 0.9])
def test_the_share_of_choosing_is_what_it_says(n_outputs: int, share: float) -> None:
    """In zCDP, where a choice of range r costs r²/8 and a value 1 / (2 noise²), choices cost `share` of the total."""
    public = facts(loss=Softmax(3)) if n_outputs == 3 else facts()
    select, update = CoordinateDescent(n_iter=9, noise="selection", selection_share=share).releases(public)
    (choice, uses), (value, once) = select.mechanism.events, update.mechanism.events
    assert (uses, once) == (n_outputs, 1)
    assert isinstance(choice, BoundedRangeEvent)
    assert isinstance(value, GaussianEvent)
    choosing = uses * (2 / select.mechanism.noise.value) ** 2 / 8
    valuing = 1 / (2 * update.mechanism.noise.value**2)
    assert choosing / (choosing + valuing) == pytest.approx(share, rel=1e-9)


# --- without noise ---------------------------------------------------------------------------------------------------

SLOPES: dict[str, Callable[[Array, Array], Array]] = {
    "squared": lambda m, y: m - y[:, None],
    "huber": lambda m, y: np.clip(m - y[:, None], -1, 1),
    "logistic": lambda m, y: expit(m) - y[:, None],
    "squared_hinge": lambda m, y: -(2 * y - 1)[:, None] * np.maximum(0, 1 - (2 * y - 1)[:, None] * m),
}


def kind_of(loss: str) -> str:
    return "classification" if loss in ("logistic", "squared_hinge") else "regression"


def plain_descent(
    X: Array,
    y: Array,
    slopes: Callable[[Array, Array], Array],
    *,
    n_iter: int,
    step: float,
    constant: float,
    scale: Array | None = None,
    block: int | None = None,
    outputs: int = 1,
) -> Array:
    """Greedy coordinate descent on plain arrays: weights of shape (parameters, outputs).

    Without `block` the steepest coordinate of each output moves, the intercept's among them. With it the running mean
    of the gradients is followed in the `block` steepest features and the intercept.
    """
    d = X.shape[1]
    A = np.column_stack([X, np.full(len(X), constant)]) if constant else X
    u = np.ones(A.shape[1])
    u[:d] = 1.0 if scale is None else scale
    w = np.zeros((A.shape[1], outputs))
    mean = np.zeros_like(w)
    for t in range(1, n_iter + 1):
        g = A.T @ slopes(A @ w, y) / len(A)
        mean = (1 - t ** (-2 / 3)) * mean + t ** (-2 / 3) * g
        for k in range(outputs):
            if block is None:
                moved = [np.argmax(np.abs(g[:, k]) / u)]
                w[moved, k] -= step * g[moved, k] / u[moved] ** 2
            else:
                moved = [*np.argsort(-np.abs(mean[:d, k]) / u[:d])[:block], *range(d, len(u))]
                w[moved, k] -= step * mean[moved, k] / u[moved] ** 2
    return w


EXACT: dict[str, dict[str, Any]] = {
    "selection": {"noise": "selection"},
    "selection-scaled": {"noise": "selection", "feature_scale": SCALE},
    "gaussian-2": {"noise": "gaussian", "block": 2},
    "gaussian-all": {"noise": "gaussian", "block": 100},
    "gaussian-scaled": {"noise": "gaussian", "block": 3, "feature_scale": SCALE},
}


@pytest.mark.parametrize("loss", list(SLOPES))
@pytest.mark.parametrize("case", EXACT)
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array], ids=["dense", "csr"])
def test_without_noise_it_is_the_non_private_method(
    recorder: type[RecordingCurator], loss: str, case: str, fit_intercept: bool, convert: Any
) -> None:
    """epsilon=None is greedy coordinate descent to 1e-10, for every loss and kind of noise."""
    X, y = problem(kind_of(loss))
    method = CoordinateDescent(n_iter=25, step=0.7, **EXACT[case])
    model = model_for(
        kind_of(loss), None, method, n_nonzero=D, loss=loss, bounds=None, fit_intercept=fit_intercept
    ).fit(convert(X), y)
    constant = method.settings(recorder.facts[-1]).intercept_value
    assert (constant > 0) == fit_intercept
    w = plain_descent(
        X,
        y,
        SLOPES[loss],
        n_iter=25,
        step=0.7,
        constant=constant,
        scale=method.feature_scale,
        block=method.block,
    )
    np.testing.assert_allclose(np.ravel(model.coef_), w[:D, 0], rtol=0, atol=1e-10)
    np.testing.assert_allclose(np.ravel(model.intercept_), constant * w[D:].sum(), rtol=0, atol=1e-10)
    assert np.any(w)


@pytest.mark.parametrize("case", EXACT)
@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
def test_without_noise_on_three_classes(recorder: type[RecordingCurator], case: str, loss: str) -> None:
    """One coordinate, or one block, for each class in a step: softmax, and one against the rest."""
    X, y = problem("classification", n_classes=3)
    one_hot = np.eye(3)[y.astype(int)]
    signs = 2 * one_hot - 1
    slopes = {
        "logistic": lambda m, _: softmax(m, axis=1) - one_hot,
        "squared_hinge": lambda m, _: -signs * np.maximum(0, 1 - signs * m),
    }[loss]
    method = CoordinateDescent(n_iter=12, step=0.7, **EXACT[case])
    model = model_for("classification", None, method, n_nonzero=D, loss=loss, bounds=None).fit(X, y)
    w = plain_descent(
        X,
        y,
        slopes,
        n_iter=12,
        step=0.7,
        constant=method.settings(recorder.facts[-1]).intercept_value,
        scale=method.feature_scale,
        block=method.block,
        outputs=3,
    )
    np.testing.assert_allclose(model.coef_, w[:D].T, rtol=0, atol=1e-10)
    np.testing.assert_allclose(
        model.intercept_, method.settings(recorder.facts[-1]).intercept_value * w[D], rtol=0, atol=1e-10
    )


@pytest.mark.parametrize("case", EXACT)
@pytest.mark.parametrize("loss", [Squared(), Huber(), Logistic(), SquaredHinge()], ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize(("clip", "last_clip"), [(0.2, 1.0), (0.2, 0.25), (1e6, 1.0)])
@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array], ids=["dense", "csr"])
def test_a_private_plan_without_its_noise(case: str, loss: Loss, clip: float, last_clip: float, convert: Any) -> None:
    """With a budget's settings and noise times 0: the non-private method on slopes clipped row by row.

    For choices a row is cut where an entry, in units of its feature's scale, passes clip × row_linf, with a clip that
    falls in eight parts; for gradients where its ℓ2 norm passes clip × row bound. The large clip cuts nothing.
    """
    X, y = problem(loss.kind)
    two = 1.001 * float(np.linalg.norm(X, axis=1).max())
    public = facts(n_rows=len(X), n_features=D, n_nonzero=D, loss=loss, row_l2=two, row_linf=1.0, label=5.0)
    parameters = dict(EXACT[case])
    if clip > 1 and "feature_scale" in parameters:  # entries then never pass row_linf × scale
        parameters["feature_scale"] = SCALE + 1.0
    method = CoordinateDescent(n_iter=15, step=0.7, clip=clip, last_clip=last_clip, **parameters)
    a = method.settings(public).intercept_value
    plan = Plan(tuple(release.scaled(0.0) for release in method.releases(public)))
    curator = Curator(
        Rows(convert(X), y if loss.kind == "regression" else 2 * y - 1), public, plan, np.random.default_rng(0)
    )
    weights = method.run(curator.ask, public)
    curator.settle()

    unclipped = SLOPES[{"SquaredHinge": "squared_hinge"}.get(type(loss).__name__, type(loss).__name__.lower())]
    scale = np.ones(D) if method.feature_scale is None else method.feature_scale

    steps = itertools.count()

    def slopes(m: Array, y: Array) -> Array:
        if parameters["noise"] == "selection":
            part = 8 * next(steps) // 15
            cap = clip * last_clip ** (part / 7) * max(1.0, a) / np.maximum((np.abs(X) / scale).max(axis=1), a)
        else:
            cap = clip * math.hypot(two, a) / np.hypot(np.linalg.norm(X, axis=1), a)
        return np.clip(unclipped(m, y), -cap[:, None], cap[:, None])

    w = plain_descent(X, y, slopes, n_iter=15, step=0.7, constant=a, scale=method.feature_scale, block=method.block)
    np.testing.assert_allclose(weights[:, 0], np.append(w[:D, 0], a * w[D, 0]), rtol=0, atol=1e-10)
    free = plain_descent(
        X, y, unclipped, n_iter=15, step=0.7, constant=a, scale=method.feature_scale, block=method.block
    )
    assert np.allclose(w, free, atol=1e-6) == (clip > 1)


def test_it_converges_without_privacy() -> None:
    """Steps of 1 / curvature, one coordinate at a time, reach the least-squares solution."""
    X, y = problem("regression", n=400)
    A = np.column_stack([X, np.ones(len(X))])
    best = np.linalg.lstsq(A, y, rcond=None)[0]
    for noise in ("selection", "gaussian"):
        model = SparseRegressor(None, n_nonzero=D, method=CoordinateDescent(n_iter=3000, step=1.0, noise=noise))
        model.fit(X, y)
        np.testing.assert_allclose([*model.coef_, model.intercept_], best, rtol=0, atol=1e-3)


def test_without_privacy_the_default_finds_the_support() -> None:
    """epsilon=None, n_nonzero=3 and nothing else."""
    X, y = problem("regression", n=400)
    model = SparseRegressor(None, n_nonzero=3, method="coordinate_descent").fit(X, y)
    assert model.support_.tolist() == [0, 3, 7]
    assert model.score(X, y) > 0.97


# --- the scale of features -------------------------------------------------------------------------------------------


def test_features_in_other_units_with_their_scale_give_the_same_model() -> None:
    """Features times u with feature_scale u: the same choices, and weights divided by u, without noise."""
    X, y = problem("regression")
    for noise in ("selection", "gaussian"):
        plain = CoordinateDescent(n_iter=15, step=0.5, noise=noise, block=3)
        scaled = CoordinateDescent(n_iter=15, step=0.5, noise=noise, block=3, feature_scale=SCALE)
        one = SparseRegressor(None, n_nonzero=D, method=plain).fit(X, y)
        other = SparseRegressor(None, n_nonzero=D, method=scaled).fit(X * SCALE, y)
        np.testing.assert_allclose(other.coef_ * SCALE, one.coef_, rtol=0, atol=1e-9)
        without = SparseRegressor(None, n_nonzero=D, method=plain).fit(X * SCALE, y)
        assert not np.allclose(without.coef_ * SCALE, one.coef_, atol=1e-3)


@pytest.mark.parametrize("factor", [1, 4])
def test_the_sensitivity_of_a_value_is_in_the_units_of_its_feature(
    recorder: type[RecordingCurator], factor: float
) -> None:
    """2 C u_j / n for the chosen coordinate, 2 C / n for scores in units."""
    X, y = problem("classification")
    method = CoordinateDescent(n_iter=6, noise="selection", feature_scale=factor * SCALE)
    model_for("classification", 1.0, method).fit(X, y)
    pairs = list(zip(recorder.asked[::2], recorder.asked[1::2]))
    units = np.append(factor * SCALE, 1.0)
    for (name, _, score), (value, query, moved) in pairs:
        assert (name, value) == ("select", "update")
        assert moved == pytest.approx(score * units[query.coordinates[0]], rel=1e-12)


# --- the rows' format ------------------------------------------------------------------------------------------------


@every_variant
@pytest.mark.parametrize("n_classes", [0, 2, 3], ids=["regression", "two", "three"])
def test_dense_csr_and_csc_give_the_same_weights(variant: str, n_classes: int) -> None:
    """The format of the rows changes nothing, with the same seed and rows that are clipped in both norms."""
    kind = "classification" if n_classes else "regression"
    X, y = problem(kind, n=200, n_classes=n_classes)
    X[np.abs(X) < 0.5] = 0.0
    bounds = Bounds(row_l2=1.5, row_linf=0.8, label=1.0)
    method = CoordinateDescent(n_iter=10, engine="plain", **VARIANTS[variant])
    model = model_for(kind, 20.0, method, bounds=bounds, n_nonzero=D, random_state=3)
    dense = clone(model).fit(X, y)
    assert np.any(dense.coef_)
    for convert in (sp.csr_array, sp.csc_array, np.asfortranarray):
        other = clone(model).fit(convert(X), y)
        np.testing.assert_array_equal(other.support_, dense.support_)
        np.testing.assert_allclose(other.coef_, dense.coef_, rtol=0, atol=1e-9)
        np.testing.assert_allclose(other.intercept_, dense.intercept_, rtol=0, atol=1e-9)


# --- sparsity --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [0, 2, 3], ids=["regression", "two", "three"])
@pytest.mark.parametrize("n_iter", [1, 3, 6])
def test_t_choices_give_at_most_t_nonzeros(n_classes: int, n_iter: int) -> None:
    """The rest is exactly 0, not small; noise of a tiny budget visits as many features as it can."""
    kind = "classification" if n_classes else "regression"
    X, y = problem(kind, n_classes=n_classes, d=40)
    method = CoordinateDescent(n_iter=n_iter, noise="selection")
    model = model_for(kind, 0.01, method, n_nonzero=40, fit_intercept=False).fit(X, y)
    kept = np.count_nonzero(np.atleast_2d(model.coef_), axis=1)
    assert 1 <= kept.max() <= n_iter
    assert n_iter < 6 or kept.max() > 3


@pytest.mark.parametrize("block", [1, 4])
def test_blocks_give_at_most_block_times_t_nonzeros(block: int) -> None:
    """With Gaussian noise a step moves `block` weights."""
    X, y = problem("regression", d=40)
    method = CoordinateDescent(n_iter=3, noise="gaussian", block=block)
    model = model_for("regression", 0.01, method, n_nonzero=40).fit(X, y)
    assert block <= np.count_nonzero(model.coef_) <= 3 * block


@every_variant
@pytest.mark.parametrize("n_nonzero", [1, 3, D])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_at_most_n_nonzero_weights_per_output(variant: str, n_nonzero: int, n_classes: int) -> None:
    """Each output keeps at most n_nonzero weights."""
    X, y = problem("classification", n_classes=n_classes)
    method = CoordinateDescent(n_iter=15, **VARIANTS[variant])
    model = model_for("classification", 1.0, method, n_nonzero=n_nonzero).fit(X, y)
    kept = np.count_nonzero(model.coef_, axis=1)
    assert np.all(kept <= n_nonzero)
    assert kept.max() >= min(n_nonzero, 3) - 1


# --- no published noise, rows of a person ----------------------------------------------------------------------------


@every_variant
def test_there_is_no_published_calibration(variant: str) -> None:
    """Refused with words, whatever the noise."""
    X, y = problem("classification")
    model = model_for("classification", 1.0, CoordinateDescent(**VARIANTS[variant]), calibration="published")
    with pytest.raises(ValueError, match="no published calibration here; use calibration='rigorous'"):
        model.fit(X, y)


@every_variant
@pytest.mark.parametrize("n_classes", [2, 3])
def test_sensitivities_grow_with_the_rows_of_a_person(
    recorder: type[RecordingCurator], variant: str, n_classes: int
) -> None:
    """At the first questions, where weights are 0 in any case: 4 rows of a person move answers 4 times as far."""
    X, y = problem("classification", n_classes=n_classes)
    moved, noise = [], []
    for k in (1, 4):
        recorder.asked.clear()
        method = CoordinateDescent(n_iter=3, **{**VARIANTS[variant], "feature_scale": None})
        model = model_for("classification", 1.0, method, bounds=replace(BOUNDS, rows_per_person=k)).fit(X, y)
        moved.append([asked[2] for asked in recorder.asked[: len(model.privacy_.bill)]])
        noise.append([line.noise_per_sensitivity for line in model.privacy_.bill])
    np.testing.assert_allclose(moved[1], 4 * np.array(moved[0]), rtol=1e-12)
    assert noise[0] == noise[1]


@pytest.mark.parametrize("noise", ["gaussian", "selection"])
def test_noise_scales_with_the_rows_of_a_person(noise: Any) -> None:
    """On rows and labels of zero one step is nothing but noise: with 4 rows per person it is 4 times as large."""
    one, four = (
        model_for(
            "regression",
            1.0,
            CoordinateDescent(n_iter=1, step=0.5, noise=noise, block=D),
            bounds=replace(BOUNDS, rows_per_person=k),
            n_nonzero=D,
            fit_intercept=False,
        ).fit(np.zeros((100, D)), np.zeros(100))
        for k in (1, 4)
    )
    assert np.any(one.coef_)
    np.testing.assert_array_equal(four.coef_, 4 * one.coef_)


# --- defaults --------------------------------------------------------------------------------------------------------


@every_variant
@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_settings_do_not_look_at_data(variant: str, kind: str) -> None:
    """Two data sets of one shape, one tiny and one huge, get the same settings, bill and number of steps."""
    X, y = problem(kind)
    method = CoordinateDescent(**VARIANTS[variant])
    small = model_for(kind, 1.0, method).fit(1e-6 * X, y)
    large = model_for(kind, 1.0, method).fit(1e6 * X[::-1], 1 - y if kind == "classification" else 1e4 * y)
    assert small.privacy_.method == large.privacy_.method
    assert small.privacy_.bill == large.privacy_.bill
    assert (small.n_iter_, small.n_passes_) == (large.n_iter_, large.n_passes_)


def test_settings_are_a_function_of_the_public_facts() -> None:
    """Equal facts give equal settings; changed facts (rows, budget, bounds) change them."""
    for noise in ("selection", "gaussian"):
        method = CoordinateDescent(noise=noise)
        before = method.settings(facts())
        assert method.settings(facts()) == before
        assert clone(method).settings(facts()) == before
        changes: list[dict[str, Any]] = [{"row_l2": 7.0}, {"n_features": 300}, {"fit_intercept": False}]
        if noise == "selection":
            changes += [{"n_rows": 10**5}, {"budget": Budget(10.0, 1e-5)}]
        for change in changes:
            assert method.settings(facts(**change)) != before, change


@pytest.mark.parametrize(
    ("d", "s", "row_l2", "row_linf", "selection"),
    [
        pytest.param(47_236, 500, 1.0, 1.0, False, id="RCV1"),
        pytest.param(150_360, 200, 1.0, 0.3, False, id="E2006"),
        pytest.param(1000, 10, math.sqrt(1000 / 3), 1.0, True, id="uniform"),
        pytest.param(5000, 50, math.sqrt(5000), 1.0, True, id="signs"),
    ],
)
def test_auto_noise_follows_the_rule_of_error_scales(
    d: int, s: int, row_l2: float, row_linf: float, selection: bool
) -> None:
    """Gaussian noise for ℓ2-normalised text, choices for dense bounded designs: the four examples of privacy.md."""
    public = facts(n_features=d, n_nonzero=s, row_l2=row_l2, row_linf=row_linf)
    assert CoordinateDescent().settings(public).selection is selection
    for noise in ("gaussian", "selection"):
        assert CoordinateDescent(noise=noise).settings(public).selection is (noise == "selection")


@pytest.mark.parametrize(
    ("parameter", "value"), [("n_iter", 4), ("step", 0.25), ("clip", 0.125), ("last_clip", 0.5), ("block", 3)]
)
def test_what_the_user_sets_is_what_runs(parameter: str, value: Any) -> None:
    """Parameters given replace the defaults, also through set_params of the estimator around them."""
    model = SparseClassifier(method=CoordinateDescent(noise="selection"))
    assert getattr(model.method.settings(facts()), parameter) != value
    model.set_params(**{f"method__{parameter}": value})
    assert getattr(model.method.settings(facts()), parameter) == value


def test_set_params_reaches_the_method_of_an_estimator() -> None:
    """set_params(method__n_iter=...) changes the fit, and a clone keeps it without sharing the object."""
    X, y = problem("classification")
    model = SparseClassifier(method=CoordinateDescent(n_iter=3), bounds=BOUNDS)
    assert model.set_params(method__n_iter=8, method__noise="selection").fit(X, y).n_iter_ == 8
    copy = clone(model)
    assert copy.method is not model.method
    assert copy.method.get_params() == model.method.get_params()
    assert copy.set_params(method__n_iter=2).fit(X, y).n_iter_ == 2
    assert model.method.n_iter == 8


@every_variant
def test_a_pickled_model_predicts_the_same_and_keeps_its_report(variant: str) -> None:
    """Also with the scales of features in its method."""
    X, y = problem("classification")
    model = model_for("classification", 1.0, CoordinateDescent(**{"n_iter": 3, **VARIANTS[variant]})).fit(X, y)
    other = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(other.predict_proba(X), model.predict_proba(X))
    assert other.privacy_ == model.privacy_
    np.testing.assert_array_equal(other.fit(X, y).coef_, model.coef_)  # the same seed


@pytest.mark.parametrize("noise", ["gaussian", "selection"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_defaults_scale_with_the_labels(noise: Any, fit_intercept: bool) -> None:
    """Labels and their bound times 8 give 8 times the weights: every default, and the grid, scales along."""
    X, y = problem("regression", n=400)
    one, eight = (
        model_for(
            "regression",
            5.0,
            CoordinateDescent(noise=noise),
            n_nonzero=3,
            bounds=replace(BOUNDS, label=factor * 2.0),
            fit_intercept=fit_intercept,
        ).fit(X, factor * y)
        for factor in (1, 8)
    )
    assert np.count_nonzero(one.coef_) > 0
    np.testing.assert_allclose(eight.coef_, 8 * one.coef_, rtol=1e-9)
    np.testing.assert_allclose(eight.intercept_, 8 * one.intercept_, rtol=1e-9)


@pytest.mark.parametrize("noise", ["gaussian", "selection"])
@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_defaults_scale_with_the_features(noise: Any, kind: str) -> None:
    """Features and their bounds times 8 give an eighth of the weights and the same intercept and predictions."""
    X, y = problem(kind, n=400)
    one, eight = (
        model_for(
            kind,
            5.0,
            CoordinateDescent(noise=noise),
            n_nonzero=3,
            bounds=Bounds(row_l2=factor * 3.0, row_linf=factor * 1.0, label=2.0),
        ).fit(factor * X, y)
        for factor in (1, 8)
    )
    assert np.count_nonzero(one.coef_) > 0
    np.testing.assert_allclose(8 * eight.coef_, one.coef_, rtol=1e-9)
    np.testing.assert_allclose(eight.intercept_, one.intercept_, rtol=1e-9)


# --- accuracy --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "parameters",
    [{}, {"noise": "selection"}, {"noise": "selection", "feature_scale": np.ones(60)}, {"noise": "gaussian"}],
    ids=["default", "selection", "scaled", "gaussian"],
)
@pytest.mark.parametrize("loss", ["squared", "huber", "logistic", "squared_hinge"])
def test_an_easy_problem_is_learnt(loss: str, parameters: dict[str, Any]) -> None:
    """20,000 rows, 60 features, three that count, epsilon = 2: their support in three seeds of three, and R² > 0.9, or
    90 % right where guessing has 57 %.

    Seeds are fixed; of 40 others none fails in any case (a false-alarm rate below 8 % at 95 % confidence).
    """
    X, y = problem("regression", n=20_000, d=60, seed=1)
    labels = y if kind_of(loss) == "regression" else y > 0
    bounds = Bounds(row_linf=1.0, row_l2=5.5, label=4.0)
    for seed in range(3):
        method = CoordinateDescent(**parameters)
        model = model_for(kind_of(loss), 2.0, method, loss=loss, n_nonzero=3, bounds=bounds, random_state=seed)
        model.fit(X, labels)
        assert model.support_.tolist() == [0, 3, 7]
        assert model.score(X, labels) > 0.9


def test_three_classes_are_learnt() -> None:
    """20,000 rows, epsilon = 4: far more right than the 40 % that guessing has."""
    X, y = problem("classification", n=20_000, d=30, seed=2, n_classes=3)
    for noise in ("selection", "gaussian"):
        model = SparseClassifier(
            4.0, n_nonzero=3, method=CoordinateDescent(noise=noise), bounds=Bounds(row_linf=1.0), random_state=0
        ).fit(X, y)
        assert model.score(X, y) > 0.6
