"""Fits that start from public weights: what `start` may be, that fits begin there, and that it costs nothing."""

from __future__ import annotations

from collections import Counter
from typing import Any

import fits
import numpy as np
import pytest
import scipy.sparse as sp
from fits import BOUNDS, VERTICES, D, RecordingCurator, assert_storage_does_not_matter, model_for, problem
from sklearn.base import clone

from tulle import Bounds, SparseClassifier, SparseRegressor
from tulle.estimators.saving import load, save
from tulle.files.error_messages import PrivacyWarning
from tulle.methods import CoordinateDescent, FrankWolfe, HardThresholding, KnowledgeTransfer, StochasticHardThresholding
from tulle.methods.feasible_sets import (
    Box,
    CappedL1Ball,
    FeasibleSet,
    KSupportBall,
    L1Ball,
    L2Ball,
    LqBall,
    Polytope,
    Simplex,
)
from tulle.methods.public_start import START_ASSUMPTION, read_start
from tulle.transfer.public_features import UniformFeatures
from tulle.trusted.mechanisms import AdditiveNoise

recorder = fits.recorder
pytestmark = pytest.mark.filterwarnings("ignore:.*no better than guessing:UserWarning")

START = np.zeros(D)
START[[1, 3, 5, 9]] = [0.3, -0.6, 0.2, -0.1]

# One step each: what comes out says where it began.
METHODS: dict[str, Any] = {
    "hard thresholding": HardThresholding(n_iter=1, noise="gaussian"),
    "hard thresholding, selection": HardThresholding(n_iter=1, noise="selection"),
    "batches": StochasticHardThresholding(batch=150, passes=1),
    "batches, svrg": StochasticHardThresholding("svrg", batch=150, passes=2),
    "frank wolfe": FrankWolfe(radius=4.0, n_iter=1, noise="selection"),
    "frank wolfe, polytope": FrankWolfe(feasible=Polytope(vertices=np.vstack([VERTICES, -VERTICES])), n_iter=1),
    "frank wolfe, gaussian": FrankWolfe(feasible=L2Ball(4.0), n_iter=1, noise="gaussian"),
    "coordinate descent": CoordinateDescent(n_iter=1, noise="selection"),
    "coordinate descent, gaussian": CoordinateDescent(n_iter=1, noise="gaussian"),
}
every_method = pytest.mark.parametrize("name", METHODS)


def started(name: str, start: Any = (START, 0.2)) -> Any:
    return clone(METHODS[name]).set_params(start=start)


# --- what it may be --------------------------------------------------------------------------------------------------


def test_what_is_read() -> None:
    column = START[:, None]
    for start in (START, list(START), tuple(START), column, (START, 0.0), (START[None], [0.0]), sp.csr_array(column)):
        weights, intercepts = read_start("A", start, D, 1, False) or (None, None)
        np.testing.assert_array_equal(weights, column)
        np.testing.assert_array_equal(intercepts, [0.0])
    three = np.arange(3.0 * D).reshape(D, 3)
    for start in (three, three.T, (three.T, [1.0, 2.0, 3.0]), (sp.csr_array(three.T), 0.5)):
        weights, _ = read_start("A", start, D, 3, True) or (None, None)
        np.testing.assert_array_equal(weights, three)
    # As many features as outputs: an array is (features, outputs), coef_ is (outputs, features).
    square = np.arange(9.0).reshape(3, 3)
    np.testing.assert_array_equal((read_start("A", square, 3, 3, True) or ())[0], square)
    np.testing.assert_array_equal((read_start("A", (square, 0.0), 3, 3, True) or ())[0], square.T)
    assert read_start("A", None, D, 1, True) is None


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (np.zeros(D + 1), r"must be an array of shape \(12,\) or \(12, 1\)"),
        (np.zeros((D, 2)), "got weights of shape"),
        ((np.zeros((D, 1)), 0.0), "tuple"),
        (np.full(D, np.nan), "finite numbers"),
        (np.full(D, 1e51), "at most 1e"),
        ((START, np.inf), "finite numbers"),
        ((START, [1.0, 2.0]), "must have 1 or 1 intercepts"),
        (["a"] * D, "must hold numbers"),
    ],
)
def test_what_is_refused(recorder: type[RecordingCurator], start: Any, message: str) -> None:
    X, y = problem("regression")
    for name in METHODS:
        with pytest.raises(ValueError, match=message):
            model_for("regression", 1.0, started(name, start)).fit(X, y)
    assert not recorder.asked


def test_models_and_intercepts_that_do_not_fit_are_refused() -> None:
    X, y = problem("regression")
    with pytest.raises(TypeError, match=r"pass start=\(model.coef_, model.intercept_\)"):
        model_for("regression", 1.0, HardThresholding(start=SparseRegressor(None).fit(X, y))).fit(X, y)
    with pytest.raises(ValueError, match="has an intercept, and the model has none"):
        model_for("regression", 1.0, HardThresholding(start=(START, 1.0)), fit_intercept=False).fit(X, y)


def test_methods_that_do_not_iterate_say_so(recorder: type[RecordingCurator]) -> None:
    X, y = problem("regression")
    for variant in ("sparse", "dense"):
        method = KnowledgeTransfer(variant, start=START)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="start from nothing"):
            model_for("regression", 1.0, method).fit(X, y)
    assert not recorder.asked


# --- where fits begin ------------------------------------------------------------------------------------------------


@every_method
@pytest.mark.parametrize("epsilon", [None, 1.0])
def test_the_first_question_is_asked_at_the_start(
    recorder: type[RecordingCurator], name: str, epsilon: float | None
) -> None:
    """In the method's units: the last weight is the intercept over the constant column's entry."""
    X, y = problem("regression")
    model_for("regression", epsilon, started(name), n_nonzero=3).fit(X, y)
    query: Any = recorder.asked[0].query
    while not hasattr(query, "weights") and not hasattr(query, "point"):
        query = query.gradient if hasattr(query, "gradient") else query.query
    at = np.asarray(query.point if hasattr(query, "point") else query.weights)
    np.testing.assert_allclose(at[:D, 0], START, atol=1e-15)
    np.testing.assert_allclose(at[D, 0] * query.intercept_value, 0.2, atol=1e-12)


@every_method
def test_what_is_asked_equals_the_plan_and_the_report_says_where_it_began(
    recorder: type[RecordingCurator], name: str
) -> None:
    X, y = problem("classification")
    method = started(name)
    model = model_for("classification", 1.0, method, n_nonzero=3).fit(X, y)
    planned = {release.name: release.count for release in method.releases(recorder.facts[-1])}
    assert Counter(asked.name for asked in recorder.asked) == planned
    assert {line.release: line.count for line in model.privacy_.bill} == planned
    assert START_ASSUMPTION in model.privacy_.assumptions
    without = model_for("classification", 1.0, METHODS[name], n_nonzero=3).fit(X, y)
    assert without.privacy_.epsilon == model.privacy_.epsilon
    assert START_ASSUMPTION not in without.privacy_.assumptions


@every_method
def test_storage_does_not_matter(name: str) -> None:
    X, y = problem("classification")
    assert_storage_does_not_matter(model_for("classification", 1.0, started(name), n_nonzero=4), X, y)


@every_method
def test_zeros_are_the_default(name: str) -> None:
    X, y = problem("classification", n_classes=3)
    default = model_for("classification", 1.0, METHODS[name]).fit(X, y)
    if "polytope" in name:
        return  # which has no 0 by default
    zeros = model_for("classification", 1.0, started(name, np.zeros((D, 3)))).fit(X, y)
    np.testing.assert_array_equal(zeros.coef_, default.coef_)
    np.testing.assert_array_equal(zeros.intercept_, default.intercept_)


def test_steps_from_a_start_are_plain_steps() -> None:
    """H_s(θ₀ - η ∇L(θ₀)), for any θ₀, and a second step from there; without noise."""
    X, y = problem("regression")
    dense = np.linspace(-1, 1, D)
    w = dense
    for n_iter in (1, 2):
        w = w - 0.1 * X.T @ (X @ w - y) / len(X)
        w = np.where(np.abs(w) >= np.sort(np.abs(w))[-4], w, 0.0)
        for method in (
            HardThresholding(n_iter=n_iter, step=0.1, start=dense),
            StochasticHardThresholding(batch=150, passes=n_iter, step=0.1, memory=4, average=0.0, start=dense),
        ):
            model = SparseRegressor(None, n_nonzero=4, method=method, fit_intercept=False).fit(X, y)
            np.testing.assert_allclose(model.coef_, w, atol=1e-12)


def test_a_fit_goes_on_where_another_ended() -> None:
    """Two steps are one step and one more from its weights and intercept, for several outputs too."""
    X, y = problem("classification", n_classes=3)
    method = HardThresholding(n_iter=2, step=0.3)
    whole = SparseClassifier(None, n_nonzero=3, method=method).fit(X, y)
    half = SparseClassifier(None, n_nonzero=3, method=clone(method).set_params(n_iter=1)).fit(X, y)
    rest = clone(half).set_params(method__start=(half.coef_, half.intercept_)).fit(X, y)
    np.testing.assert_allclose(rest.coef_, whole.coef_, atol=1e-14)
    np.testing.assert_allclose(rest.intercept_, whole.intercept_, atol=1e-14)


def test_a_student_starts_where_the_teacher_does() -> None:
    """Without steps to speak of, both stay where they began."""
    X, y = problem("regression")
    method = KnowledgeTransfer(
        "published",
        UniformFeatures(-1, 1),
        penalty=0.1,
        n_iter=1,
        teacher_step=1e-9,
        student_iter=1,
        student_step=1e-12,
        start=START,
    )
    with pytest.warns(PrivacyWarning):
        model = model_for("regression", 1e3, method, n_nonzero=4, calibration="published").fit(X, y)
    np.testing.assert_allclose(model.coef_, START, atol=1e-6)
    assert START_ASSUMPTION in model.privacy_.assumptions


def test_large_weights_are_paid_for_with_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums with large weights lose digits; what that can move is in the sensitivity that the noise is scaled by."""
    told: list[float] = []
    release = AdditiveNoise.release

    def listen(mechanism: Any, exact: Any, sensitivity: Any, generator: Any, then: Any) -> Any:
        told.append(sensitivity.l2)
        return release(mechanism, exact, sensitivity, generator, then)

    monkeypatch.setattr(AdditiveNoise, "release", listen)
    X, y = problem("regression")
    for start in (1.0, 1e20):
        method = HardThresholding(n_iter=1, step=0.1, noise="gaussian", start=start * START)
        model_for("regression", 1.0, method, n_nonzero=3).fit(X, y)
    assert told[0] < 1.0
    assert told[1] > 2.0**-49 * 1e20 * np.linalg.norm(START) > 1e4
    method = HardThresholding(n_iter=1, noise="gaussian", step=1e300, start=1e50 * START)
    with pytest.raises(ValueError, match="so large that sums over rows could overflow"):
        model_for("regression", 1.0, method, n_nonzero=3).fit(X, y)


def test_a_start_is_not_saved_with_a_model(tmp_path: Any) -> None:
    X, y = problem("regression")
    model = model_for("regression", 1.0, HardThresholding(n_iter=1, start=START)).fit(X, y)
    save(model, tmp_path / "model.npz")
    assert "saved without start" in load(tmp_path / "model.npz").method


# --- the set of Frank-Wolfe ------------------------------------------------------------------------------------------

SETS: list[FeasibleSet] = [
    L1Ball(2.0),
    Simplex(2.0),
    CappedL1Ball(2.0, 4),
    KSupportBall(2.0, 3),
    L2Ball(2.0),
    LqBall(2.0, 1.3),
    Box(2.0),
    Polytope(vertices=VERTICES[:, :D]),
    Polytope(vertices=sp.csr_array(VERTICES[:, :D])),
]


@pytest.mark.parametrize("feasible", SETS, ids=repr)
def test_a_set_knows_its_points(feasible: FeasibleSet) -> None:
    """Mixtures of its extreme points are in it; beyond the least in a direction nothing is."""
    rng = np.random.default_rng(3)
    extreme = feasible.least(rng.standard_normal((D, 40)))
    shares = rng.dirichlet(np.ones(40), 5).T
    assert feasible.contains(extreme)
    assert feasible.contains(extreme @ shares)
    assert feasible.contains(feasible.start((D, 2)))
    for k in range(20):
        direction = rng.standard_normal((D, 1))
        beyond = feasible.least(direction) - 1e-6 * direction
        assert not feasible.contains(beyond), k
        assert not feasible.contains(np.hstack([extreme[:, :1], beyond]))


def test_frank_wolfe_starts_in_its_set(recorder: type[RecordingCurator]) -> None:
    X, y = problem("regression")
    outside = FrankWolfe(radius=1.0, noise="selection", n_iter=3, start=START)
    with pytest.raises(ValueError, match=r"is not in L1Ball\(radius=1.0\).*shrink it, or give a larger set"):
        model_for("regression", 1.0, outside).fit(X, y)
    with pytest.raises(ValueError, match="needs declared bounds"):
        model_for("regression", 1.0, clone(outside).set_params(radius=9.0), bounds=Bounds()).fit(X, y)
    assert not recorder.asked

    class Own(FeasibleSet):
        def least(self, direction: Any) -> Any:
            return 0 * direction

        def longest(self, n_parameters: int, norm: Any) -> float:
            return 1.0

    with pytest.raises(ValueError, match="Own has no method contains"):
        model_for("regression", 1.0, FrankWolfe(feasible=Own(1.0), start=START), bounds=BOUNDS).fit(X, y)
