"""Local studies that start from public weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from test_local_papers import (
    LABEL,
    PRINTED_ROUNDS,
    SPARSITY,
    N,
    P,
    groups_of,
    labels_only,
    problem,
    project,
    reference_label_ldp_iht,
    sent_labels,
    theorem,
    threshold,
)

from tulle import Bounds
from tulle.local import LabelPrivateSparseClassifier, LabelPrivateSparseRegressor, LdpIht, LocalSparseRegressor
from tulle.methods.public_start import START_ASSUMPTION
from tulle.trusted.plan import Budget

START = np.zeros(P)
START[[4, 20]] = [0.5, -0.4]
BOUNDS = Bounds(row_linf=1.0, label=LABEL)


def test_ldp_iht_from_a_start_is_algorithm_1_from_it() -> None:
    X, y = problem(0)
    model = theorem(None, random_state=0, start=START).fit(X, y)
    groups, w = groups_of(0, PRINTED_ROUNDS), START
    for t in range(PRINTED_ROUNDS):
        users = np.flatnonzero(groups == t)
        step = X[users].T @ (X[users] @ w - y[users]) / len(users)
        w = project(threshold(w - 0.4 * step, 8 * SPARSITY), 1.0)
    np.testing.assert_allclose(model.coef_, w, atol=1e-9, rtol=0)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_report_says_so_and_every_gradient_is_clipped_as_before() -> None:
    X, y = problem(0)
    settings: dict[str, Any] = {"n_nonzero": 2, "bounds": BOUNDS, "random_state": 0}
    first = LocalSparseRegressor(1.0, start=(1e6 * START, 3.0), **settings).fit(X[:500], y[:500])
    without = LocalSparseRegressor(1.0, **settings).fit(X[:500], y[:500])
    assert START_ASSUMPTION in first.privacy_.assumptions
    assert START_ASSUMPTION not in without.privacy_.assumptions
    assert first.privacy_.epsilon == without.privacy_.epsilon
    protocols = [model.protocol(P, N) for model in (first, without)]
    np.testing.assert_array_equal(protocols[0].weights, np.append(1e6 * START, 3.0))
    assert protocols[0].ask()[1] == protocols[1].ask()[1]  # the randomiser and its radius do not know the start


def test_label_ldp_iht_from_a_start_is_algorithm_2_from_it() -> None:
    X, y = problem(0)
    for epsilon in (None, 0.5):
        model = labels_only(epsilon, start=START, random_state=0).fit(X, y)
        sent = y if epsilon is None else sent_labels(model, X, y, 0)
        w = reference_label_ldp_iht(X, sent, SPARSITY, 0.2, PRINTED_ROUNDS, START)
        np.testing.assert_allclose(model.coef_, w, atol=1e-9, rtol=0)
        assert START_ASSUMPTION in model.privacy_.assumptions


def test_settings_of_the_theorem_are_those_of_the_paper() -> None:
    """With the same seed the same model as with each of them given; what is given takes their place."""
    X, y = problem(0)
    given: dict[str, Any] = {"n_nonzero": SPARSITY, "step": 0.2, "bounds": BOUNDS, "fit_intercept": False}
    by_name = LabelPrivateSparseRegressor(0.5, 1e-4, settings="theorem", random_state=0, **given)
    np.testing.assert_array_equal(by_name.fit(X, y).coef_, labels_only(0.5, random_state=0).fit(X, y).coef_)
    other = clone(by_name).set_params(n_iter=2, ball=0.5).fit(X, y)
    same = labels_only(0.5, random_state=0, n_iter=2, ball=0.5).fit(X, y)
    np.testing.assert_array_equal(other.coef_, same.coef_)


@pytest.mark.parametrize(
    ("missing", "named"),
    [
        ({"n_nonzero": None, "step": None}, r"needs n_nonzero=... \(s.*, step=... \(η"),
        ({"bounds": None}, r"needs bounds=Bounds\(label=...\)"),
        ({"fit_intercept": True}, "use fit_intercept=False"),
        ({"randomiser": "laplace"}, "randomiser='gaussian'"),
        ({"solver": "lasso"}, "solver='iht'"),
        ({"settings": "lemma"}, "settings='lemma' is unknown"),
    ],
)
def test_a_theorem_that_cannot_be_evaluated_names_what_is_missing(missing: dict[str, Any], named: str) -> None:
    X, y = problem(0)
    model = labels_only(0.5, settings="theorem").set_params(**missing)
    with pytest.raises(ValueError, match=named):
        model.fit(X, y)
    assert not hasattr(model, "privacy_")


def test_classes_have_a_start_each() -> None:
    X, y = problem(0)
    classes = np.digitize(y, [-0.4, 0.4])
    start = (np.tile(START, (3, 1)), np.array([0.1, 0.0, -0.1]))
    model = LabelPrivateSparseClassifier(1.0, n_nonzero=2, n_iter=1, step=1e-12, refit=False, start=start)
    model.fit(X, classes)
    np.testing.assert_allclose(model.coef_, start[0], atol=1e-9)
    np.testing.assert_allclose(model.intercept_, start[1], atol=1e-9)


def test_starts_that_are_refused() -> None:
    X, y = problem(0)
    with pytest.raises(ValueError, match=r"choose one of .* or give weights"):
        labels_only(1.0, start="ones").fit(X, y)
    with pytest.raises(ValueError, match="the LASSO is a minimiser"):
        labels_only(1.0, start=START, solver="lasso").fit(X, y)
    with pytest.raises(ValueError, match="must be an array of shape"):
        labels_only(1.0, start=START[1:]).fit(X, y)
    with pytest.raises(ValueError, match="finite numbers"):
        LocalSparseRegressor(1.0, start=np.full(P, np.nan), bounds=BOUNDS).fit(X, y)
    for start in (2 * START, np.full(P, 0.01)):
        with pytest.raises(ValueError, match=r"computes the radius for at most 24 weights of norm 1.*give radius"):
            theorem(1.0, start=start).fit(X, y)
    assert theorem(1.0, start=2 * START, radius=9.0).protocol(P, N).weights[4] == 1.0
    with pytest.raises(ValueError, match="finite numbers"):
        LdpIht(Budget(1.0), P, BOUNDS, True, start=np.full(P + 1, np.inf))
    with pytest.raises(ValueError, match="LdpIht"):
        LdpIht(Budget(1.0), P, BOUNDS, True, start=np.zeros(P + 2))
