"""What the tests of the methods fit: small problems, public facts, variants of the methods, a curator that records."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import root
from scipy.special import expit, logit, softmax
from sklearn.base import clone

import tulle.trusted.fit
from tulle import Bounds, Budget, SparseClassifier, SparseRegressor
from tulle.methods.feasible_sets import Box, CappedL1Ball, KSupportBall, L1Ball, L2Ball, LqBall, Polytope, Simplex
from tulle.methods.gradient_queries import ClippedGradient
from tulle.methods.loss_functions import Logistic
from tulle.trusted.curator import Curator
from tulle.trusted.facts import PublicFacts
from tulle.trusted.mechanisms import Sensitivity
from tulle.trusted.plan import Plan
from tulle.trusted.rows import Rows

Array = NDArray[np.float64]

D = 12
BOUNDS = Bounds(row_l2=3.0, row_linf=1.0, label=4.0)
VERTICES = np.random.default_rng(8).normal(size=(20, D + 1))
SCALE = np.linspace(2.0, 0.8, D)

# --- problems --------------------------------------------------------------------------------------------------------

# In what follows `target` is "classification", "regression" or the name of a loss.


def is_classification(target: str) -> bool:
    return target in ("classification", "logistic", "squared_hinge")


def target_of(n_classes: int) -> str:
    """No classes are a regression."""
    return "classification" if n_classes else "regression"


def problem(target: str, n: int = 150, d: int = D, seed: int = 0, n_classes: int | None = 2) -> tuple[Array, Array]:
    """Dense rows with entries in (-1, 1); labels that depend on three features and an offset.

    Classes are cut at quantiles, or, where n_classes is None, two of them at 0.
    """
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, d))
    margins = X[:, 0] - 2 * X[:, 3] + 0.5 * X[:, 7] + 0.3 + 0.1 * rng.standard_normal(n)
    if target == "poisson":
        return X, rng.poisson(np.exp(margins / 2)).astype(float)
    if not is_classification(target):
        return X, margins
    if n_classes is None:
        return X, (margins > 0).astype(float)
    # Classes of unequal sizes: equal ones have no slope at all along the intercept, and rounding decides where to go.
    return X, np.digitize(margins, np.quantile(margins, 0.9 * np.arange(1, n_classes) / n_classes)).astype(float)


def signed(target: str, y: Array) -> Array:
    """Labels as losses see them: two classes are -1 and 1."""
    return 2 * y - 1 if is_classification(target) else y


def estimator_for(target: str) -> Any:
    return SparseClassifier if is_classification(target) else SparseRegressor


def model_for(target: str, epsilon: float | None, method: Any, **parameters: Any) -> Any:
    return estimator_for(target)(epsilon, **{"method": method, "bounds": BOUNDS, "random_state": 0, **parameters})


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


# Features, non-zeros and row bounds of the four examples of privacy.md, and whether choices have the smaller error.
the_examples_of_the_rule = pytest.mark.parametrize(
    ("d", "s", "row_l2", "row_linf", "selection"),
    [
        pytest.param(47_236, 500, 1.0, 1.0, False, id="RCV1"),
        pytest.param(150_360, 200, 1.0, 0.3, False, id="E2006"),
        pytest.param(1000, 10, math.sqrt(1000 / 3), 1.0, True, id="uniform"),
        pytest.param(5000, 50, math.sqrt(5000), 1.0, True, id="signs"),
    ],
)

# --- losses on plain arrays ------------------------------------------------------------------------------------------

# Derivatives along the margins, of labels as losses see them.
SLOPES: dict[str, Callable[[Array, Array], Array]] = {
    "squared": lambda m, y: m - y,
    "huber": lambda m, y: np.clip(m - y, -1, 1),
    "poisson": lambda m, y: np.exp(np.minimum(m, 10)) - y,
    "logistic": lambda m, y: expit(m) - (y > 0),
    "squared_hinge": lambda m, y: -y * np.maximum(0, 1 - y * m),
}
BUT_POISSON = [loss for loss in SLOPES if loss != "poisson"]


def slopes_of(loss: str, y: Array, n_classes: int = 2) -> Callable[[Array], Array]:
    """Slopes at margins of shape (rows, outputs): of one output, or of classes (softmax, and one against the rest)."""
    if n_classes == 2:
        column = signed(loss, y)[:, None]
        return lambda m: SLOPES[loss](m, column)
    one_hot = np.eye(n_classes)[y.astype(int)]
    if loss == "logistic":
        return lambda m: softmax(m, axis=1) - one_hot
    return lambda m: SLOPES[loss](m, 2 * one_hot - 1)


# The best constant margin, of the mean slope at margin 0.
STARTS: dict[str, Any] = {
    "squared": lambda slope: -slope,
    "huber": lambda slope: -slope,
    "poisson": lambda slope: math.log(1 - slope),
    "logistic": lambda slope: logit(0.5 - slope),
    "squared_hinge": lambda slope: -slope,
}


def clipped_scores(X: Array, slopes: Array, clip: float, selection: bool, a: float, public: PublicFacts) -> Array:
    """The mean over rows of -slope × row, each row (with its constant column a) clipped in the norm of the noise."""
    if selection:
        norms, bound = np.abs(slopes) * np.maximum(np.abs(X).max(axis=1), a), max(public.row_linf, a)
    else:
        norms, bound = np.abs(slopes) * np.hypot(np.linalg.norm(X, axis=1), a), math.hypot(public.row_l2, a)
    factor = np.minimum(1, clip * bound / np.maximum(norms, 1e-300)) if clip < math.inf else 1.0
    return np.asarray(-X.T @ (factor * slopes) / len(X))


def shortened(rows: Array, bound: float, constant: float = 0.0) -> Array:
    """Rows scaled down to a length; with a constant as their last column, which keeps its value, the others to what
    it leaves."""
    if constant:
        room = math.sqrt(bound**2 - constant**2) if bound < math.inf else math.inf
        return np.column_stack([shortened(rows, room), np.full(len(rows), constant)])
    return rows * np.minimum(1, bound / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300))


def ridge_fit(rows: Array, y: Array, loss: str, tau: float, penalty: float, centre: Array) -> Array:
    """Where the gradient of the penalised sum vanishes."""

    def gradient(theta: Array) -> Array:
        return rows.T @ np.clip(SLOPES[loss](rows @ theta, y), -tau, tau) + penalty * (theta - centre)

    found = root(gradient, centre, method="hybr", options={"xtol": 1e-13, "maxfev": 20000})
    assert np.linalg.norm(gradient(found.x)) < 1e-6 * (1 + len(rows) * min(tau, 10.0))
    return np.asarray(found.x)


def plain_rescaled(X: Array, y: Array, loss: str, coef: Array, intercept: float, run: Any) -> tuple[Array, float]:
    """What the rescaling `run` makes of weights and an intercept, on plain arrays."""
    constants, bound = run.constants, run.spread_bound
    b, length = constants.intercept_value, np.linalg.norm(coef)
    square = np.minimum((X @ coef / length) ** 2, bound**2).mean()
    unit = float(math.sqrt(max(square, 1e-3 * bound**2, min(0.3 * run.spread_noise, bound**2))) * length)
    middle = np.array([run.length * unit, intercept / b] if b else [run.length * unit])
    rows = shortened((X @ coef / unit)[:, None], constants.row_bound, b)
    theta = ridge_fit(rows, y, loss, constants.slope_clip, constants.penalty, middle)
    theta = theta**3 / (theta**2 + np.square(run.noise[: len(theta)]))  # less the noise
    slope = theta[0] * max(1 - (run.own / unit) ** 2, 0.0)
    return coef / unit * max(slope, run.least), float(b * theta[-1]) if b else 0.0


def to_digits(text: str) -> Any:
    """The printed number, to the digits that are printed."""
    places = len(text.partition(".")[2])
    return pytest.approx(float(text), abs=0.505 * 10.0**-places)


# --- variants of the methods -----------------------------------------------------------------------------------------

# Every kind of noise, of choice and of set.
FRANK_WOLFE: dict[str, dict[str, Any]] = {
    "default": {},
    "gumbel": {"noise": "selection", "selection": "gumbel"},
    "laplace": {"noise": "selection", "selection": "laplace"},
    "permute_and_flip": {"noise": "selection", "selection": "permute_and_flip"},
    "simplex": {"noise": "selection", "feasible": Simplex(2.0)},
    "polytope": {"noise": "selection", "feasible": Polytope(vertices=VERTICES)},
    "polytope-laplace": {"noise": "selection", "selection": "laplace", "feasible": Polytope(vertices=VERTICES)},
    "polytope-csr": {"noise": "selection", "feasible": Polytope(vertices=sp.csr_array(VERTICES))},
    "gaussian": {"noise": "gaussian"},
    "gaussian-radius": {"noise": "gaussian", "radius": 2.0},
    "gaussian-not-averaged": {"noise": "gaussian", "averaging": False},
    "gaussian-l1": {"noise": "gaussian", "feasible": L1Ball(2.0)},
    "gaussian-simplex": {"noise": "gaussian", "feasible": Simplex(2.0)},
    "gaussian-polytope": {"noise": "gaussian", "feasible": Polytope(vertices=VERTICES)},
    "gaussian-capped": {"noise": "gaussian", "feasible": CappedL1Ball(2.0, 4)},
    "gaussian-l2": {"noise": "gaussian", "feasible": L2Ball(2.0)},
    "gaussian-lq": {"noise": "gaussian", "feasible": LqBall(2.0, 1.3)},
    "gaussian-box": {"noise": "gaussian", "feasible": Box(2.0)},
    "gaussian-ksupport": {"noise": "gaussian", "feasible": KSupportBall(2.0, 3)},
}
COORDINATE_DESCENT: dict[str, dict[str, Any]] = {
    "default": {},
    "selection": {"noise": "selection"},
    "selection-scaled": {"noise": "selection", "feature_scale": SCALE},
    "selection-share": {"noise": "selection", "selection_share": 0.2, "step": 0.5},
    "selection-one-clip": {"noise": "selection", "clip": 0.3, "last_clip": 1.0},
    "gaussian": {"noise": "gaussian"},
    "gaussian-scaled": {"noise": "gaussian", "feature_scale": SCALE},
    "gaussian-block": {"noise": "gaussian", "block": 2, "step": 0.5},
}

# --- fits that are watched, fits without noise -----------------------------------------------------------------------


class Asked(NamedTuple):
    """One question to a curator, and how far its answer can move."""

    name: str
    query: Any
    sensitivity: Sensitivity


class RecordingCurator(Curator):
    """A curator that keeps what it was asked, and the public facts of each fit."""

    asked: list[Asked]
    facts: list[PublicFacts]

    def __init__(self, rows: Any, public: PublicFacts, *others: Any) -> None:
        super().__init__(rows, public, *others)
        self.facts.append(public)

    def ask(self, name: str, query: Any, **then: Any) -> Any:
        kept = query
        if isinstance(kept, ClippedGradient):  # the method may go on to change its weights in place
            kept = replace(kept, weights=kept.weights.copy())
        self.asked.append(Asked(name, kept, query.sensitivity(self._public)))
        return super().ask(name, query, **then)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> type[RecordingCurator]:
    """The curator that fits use during the test."""
    RecordingCurator.asked, RecordingCurator.facts = [], []
    monkeypatch.setattr(tulle.trusted.fit, "Curator", RecordingCurator)
    return RecordingCurator


def run_without_noise(method: Any, public: PublicFacts, X: Any, targets: Array) -> Array:
    """The weights of a private plan, settings and clipping included, with all noise times 0."""
    plan = Plan(tuple(release.scaled(0.0) for release in method.releases(public)))
    curator = Curator(Rows(X, targets), public, plan, np.random.default_rng(0))
    weights = method.run(curator.ask, public)
    curator.settle()
    return weights


def assert_storage_does_not_matter(model: Any, X: Array, y: Array) -> None:
    """The same model from rows stored in other ways, noise included."""
    dense = clone(model).fit(X, y)
    assert np.any(dense.coef_)
    for convert in (sp.csr_array, sp.csc_array, np.asfortranarray):
        other = clone(model).fit(convert(X), y)
        np.testing.assert_array_equal(other.support_, dense.support_)
        np.testing.assert_allclose(other.coef_, dense.coef_, rtol=0, atol=1e-9)
        np.testing.assert_allclose(other.intercept_, dense.intercept_, rtol=0, atol=1e-9)
