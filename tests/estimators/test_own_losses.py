"""Losses of a user's own: what is asked of them, and what noise does where they lie."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.special import expit
from test_sparse import BOUNDS, LABELS, TARGETS, THREE, N, X

from tulle import SparseClassifier, SparseRegressor
from tulle.methods.gradient_queries import ClippedGradient
from tulle.methods.loss_functions import Huber, Loss, Squared
from tulle.trusted.facts import PublicFacts
from tulle.trusted.rows import Rows


class LogCosh(Loss):
    """log cosh(m - y), a smooth loss that tulle does not have."""

    kind = "regression"
    curvature = 1.0

    def __repr__(self) -> str:
        return "LogCosh()"

    def value(self, margins: Any, targets: Any) -> Any:
        return np.log(np.cosh(margins[:, 0] - targets))

    def slope(self, margins: Any, targets: Any) -> Any:
        return np.tanh(margins - targets[:, None])

    def slope_bound(self, margin_bound: float, label_bound: float, norm: Any = "l2") -> float:
        return math.tanh(margin_bound + label_bound)


class Liar(LogCosh):
    """A loss with enormous slopes that claims tiny ones."""

    def slope(self, margins: Any, targets: Any) -> Any:
        return 1e6 * (margins - targets[:, None])

    def slope_bound(self, margin_bound: float, label_bound: float, norm: Any = "l2") -> float:
        return 1e-3


@pytest.mark.parametrize("epsilon", [50.0, None])
def test_a_loss_of_the_users_own(epsilon: float | None) -> None:
    """A GLM loss object is fitted like the built-in ones, and the report of a private fit names it."""
    model = SparseRegressor(epsilon, n_nonzero=2, loss=LogCosh(), bounds=BOUNDS, random_state=0).fit(X, TARGETS)
    assert model.support_.tolist() == [0, 3]
    assert model.score(X, TARGETS) > 0.3
    named = [line for line in model.privacy_.assumptions if "LogCosh() is the user's own" in line]
    assert len(named) == (0 if epsilon is None else 1)
    built_in = SparseRegressor(epsilon, loss=Huber(), bounds=BOUNDS).fit(X, TARGETS)
    assert not any("the user's own" in line for line in built_in.privacy_.assumptions)


class SoftHinge(Loss):
    """A two-class loss of the user's with probabilities of its own."""

    kind = "classification"
    curvature = 0.25

    def value(self, margins: Any, targets: Any) -> Any:
        return np.logaddexp(0.0, -targets * margins[:, 0])

    def slope(self, margins: Any, targets: Any) -> Any:
        return -targets[:, None] * expit(-targets[:, None] * margins)

    def slope_bound(self, margin_bound: float, label_bound: float, norm: Any = "l2") -> float:
        return 1.0

    def probabilities(self, margins: Any) -> Any:
        return np.hstack([expit(-margins), expit(margins)])


@pytest.mark.parametrize("labels", [LABELS, THREE], ids=["two", "three"])
def test_a_classifiers_own_loss_gives_probabilities_or_says_that_it_has_none(labels: Any) -> None:
    """Where predict_proba is there it works: rows are distributions over all classes."""
    model = SparseClassifier(50.0, loss=SoftHinge(), bounds=BOUNDS, random_state=0).fit(X, labels)
    assert model.score(X, labels) > 0.5
    if hasattr(model, "predict_proba") or labels is LABELS:
        probabilities = model.predict_proba(X)
        assert probabilities.shape == (N, len(model.classes_))
        np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)


@pytest.mark.parametrize("labels", [LABELS, THREE], ids=["two", "three"])
def test_the_report_names_a_classifiers_own_loss(labels: Any) -> None:
    """Also where it is used for one class against the rest."""
    report = SparseClassifier(loss=SoftHinge(), bounds=BOUNDS).fit(X, labels).privacy_
    assert any("SoftHinge" in line and "the user's own" in line for line in report.assumptions)


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("loss", [Liar(), LogCosh(), Squared()], ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("clip", [0.5, 100.0])
@pytest.mark.parametrize("k", [1, 3])
def test_a_loss_that_lies_about_its_slopes_costs_no_privacy(norm: Any, loss: Loss, clip: float, k: int) -> None:
    """Replacing k rows by extreme ones moves the clipped gradient by no more than the stated sensitivity."""
    rng = np.random.default_rng(3)
    public = PublicFacts(
        n_rows=20,
        n_features=4,
        n_nonzero=4,
        loss=loss,
        budget=None,
        row_l2=1.0,
        row_linf=1.0,
        label=1.0,
        fit_intercept=True,
        rows_per_unit=k,
    )
    query = ClippedGradient(rng.standard_normal((5, 1)), clip, norm, intercept_value=0.25)
    allowed = getattr(query.sensitivity(public), norm)
    assert 0 < allowed < math.inf
    rows, targets = rng.standard_normal((20, 4)), rng.standard_normal(20)
    moved = []
    for extreme in (1e-9, 1.0, 1e9):
        for sign in (-1.0, 1.0):
            other_rows, other_targets = rows.copy(), targets.copy()
            rows[:k], targets[:k] = 1e6, -1e6
            other_rows[:k], other_targets[:k] = sign * extreme, 1e6
            answers = [query.evaluate(Rows(r, t), public) for r, t in ((rows, targets), (other_rows, other_targets))]
            difference = np.ravel(answers[0] - answers[1])
            moved.append(np.linalg.norm(difference, None if norm == "l2" else np.inf))
    assert max(moved) <= allowed * (1 + 1e-9)
    assert max(moved) > 0.4 * allowed  # the extreme rows do come close: the bound is not an empty one
