"""Intervals of rows with weights and offsets: statsmodels has the same without noise; with it they cover, privately."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import statsmodels.api as statsmodels
from hypothesis import given, settings
from hypothesis import strategies as st
from interval_fits import LABELS, LOSSES, draw, model, truth

from tulle import Bounds, Budget, Ledger
from tulle.backends.weighted_rows import CarriedNumbers, WeightedRows
from tulle.inference.weighted_moments import WeightedMoments
from tulle.methods.loss_functions import Logistic, Loss, Poisson, Squared
from tulle.methods.weighted_loss import WeightedLoss
from tulle.trusted.facts import PublicFacts

FAMILIES = {
    "logistic": statsmodels.families.Binomial(),
    "squared": statsmodels.families.Gaussian(),
    "poisson": statsmodels.families.Poisson(),
}


def draw_all(loss: str, n: int, seed: int, d: int = 3) -> tuple[Any, Any, Any, Any]:
    """Rows, targets whose margins have offsets, weights that say nothing about targets, and the offsets."""
    rng = np.random.default_rng((seed, n, 7))
    X, _ = draw(loss, n, seed, d)
    weights, offsets = rng.uniform(0, 1, n), rng.uniform(-1, 1, n)
    margins = X[:, :3] @ truth(loss)[:3] + truth(loss)[3] + offsets
    if loss == "logistic":
        y = (rng.random(n) < 1 / (1 + np.exp(-margins))).astype(float)
    else:
        y = margins + 0.8 * rng.standard_normal(n) if loss == "squared" else rng.poisson(np.exp(margins)).astype(float)
    return X, y, weights, offsets


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", ["weights", "offsets", "both"])
def test_without_noise_they_are_those_of_statsmodels(loss: str, kind: str) -> None:
    """The estimates of a weighted fit, and the sandwich whose spread has the squares of the weights."""
    X, y, weights, offsets = draw_all(loss, 600, 1)
    given_weights = None if kind == "offsets" else weights
    given_offsets = None if kind == "weights" else offsets
    w = np.ones(len(y)) if given_weights is None else weights
    o = np.zeros(len(y)) if given_offsets is None else offsets
    Z = np.column_stack([X, np.ones(len(y))])
    theirs = statsmodels.GLM(y, Z, family=FAMILIES[loss], freq_weights=w, offset=o).fit(tol=1e-13)
    mean = theirs.family.link.inverse(Z @ theirs.params + o)
    bend = {"logistic": mean * (1 - mean), "poisson": mean, "squared": np.ones(len(y))}[loss]
    inverse = np.linalg.inv((Z * (w * bend)[:, None]).T @ Z)
    spread = (Z * (w * (mean - y))[:, None]).T @ (Z * (w * (mean - y))[:, None])
    ours = model(loss, None).fit(X, y, sample_weight=given_weights, offset=given_offsets)
    lines = ours.summary().lines
    np.testing.assert_allclose([line.estimate for line in lines], theirs.params, rtol=1e-5, atol=1e-7)
    errors = np.sqrt(np.diag(inverse @ spread @ inverse))
    np.testing.assert_allclose([line.standard_error for line in lines], errors, rtol=1e-4)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("n_nonzero", [None, 4])
def test_they_cover(loss: str, n_nonzero: int | None) -> None:
    """60 fits of at least 4 weights: a share of 0.95 is at least 0.885 but for a probability of 1e-4, or nearly."""
    covered = []
    for seed in range(60):
        X, y, weights, offsets = draw_all(loss, 6000, seed, 3 if n_nonzero is None else 12)
        bounds = Bounds(row_linf=1.0, label=LABELS[loss], offset=1.0)
        fitted = model(loss, 3.0, bounds=bounds, n_nonzero=n_nonzero, random_state=seed)
        fitted.fit(X, y, sample_weight=weights, offset=offsets)
        features = fitted.inference_.features
        if n_nonzero is not None and not {0, 1} <= set(features.tolist()):
            continue  # the weights of others would be those of another model
        true = np.append(np.where(features < 3, truth(loss)[:3][np.minimum(features, 2)], 0.0), truth(loss)[3])
        lines = fitted.summary().lines
        covered += [line.low <= value <= line.high for line, value in zip(lines, true)]
    assert len(covered) > 150
    assert np.mean(covered) > 0.885


def test_class_weights_and_intervals_go_together() -> None:
    X, y = draw("logistic", 3000, 0)
    fitted = model("logistic", 4.0, classes=[0.0, 1.0], class_weight="balanced").fit(X, y)
    assert [line.release for line in fitted.privacy_.bill].count("class counts") == 1
    assert fitted.inference_.determined.all()
    assert fitted.privacy_.epsilon <= 4.0


def test_predictions_have_the_offset() -> None:
    X, y, _, offsets = draw_all("poisson", 4000, 0)
    bounds = Bounds(row_linf=1.0, label=8.0, offset=1.0)
    fitted = model("poisson", 8.0, bounds=bounds).fit(X, y, offset=offsets)
    with_offset = fitted.predict_interval(X[:9], offset=offsets[:9])
    np.testing.assert_allclose(with_offset, fitted.predict_interval(X[:9]) * np.exp(offsets[:9])[:, None])
    means = fitted.predict(X[:9], offset=offsets[:9])
    assert np.all((with_offset[:, 0] < means) & (means < with_offset[:, 1]))


def test_offsets_without_a_bound_are_refused_before_the_bill() -> None:
    X, y, _, offsets = draw_all("poisson", 300, 0)
    with Ledger(Budget(9.0, 0.1)) as ledger, pytest.raises(ValueError, match=r"Bounds\(offset"):
        model("poisson", 1.0).fit(X, y, offset=offsets)
    assert len(ledger.fits) == 0


# --- privacy: the sums that intervals ask of such rows ---

QUERY_LOSSES: dict[str, tuple[Loss, float, float]] = {
    "logistic": (Logistic(), 0.25, 1.0),
    "squared": (Squared(), 1.0, 4.0),
    "poisson": (Poisson(), 3.0, 4.0),
}


def evaluate(loss: str, factor: Any, X: Any, y: Any, weights: Any, offsets: Any, at: Any) -> tuple[Any, float]:
    f, curvature, slope = QUERY_LOSSES[loss]
    most = curvature if factor == "curvature" else slope
    asked = WeightedMoments(np.array([0, 2]), np.asarray(at), factor, most, 1.5, 0.6)
    public = PublicFacts(len(y), 3, 3, WeightedLoss(f, 2.0), None, 2.0, 1.5, 4.0, True)
    rows = WeightedRows(np.array(X), np.array(y), None, CarriedNumbers(np.array(weights), np.array(offsets), 2.0))
    rows.carry()
    with np.errstate(all="ignore"):
        return asked.evaluate(rows, public), asked.sensitivity(public).l2


@pytest.mark.parametrize("factor", ["curvature", "slope"])
@pytest.mark.parametrize("loss", QUERY_LOSSES)
@given(data=st.data())
@settings(max_examples=25)
def test_no_neighbour_moves_them_further(loss: str, factor: str, data: st.DataObject) -> None:
    """A row is replaced with its target, its weight and its offset, all of which may be anything."""
    number = st.sampled_from([0.0, 1.0, -1.5, 1e20, -1e300, math.inf, math.nan]) | st.floats(-3, 3)
    numbers = [data.draw(st.lists(number, min_size=6, max_size=6)) for _ in range(4)]
    at = data.draw(st.lists(st.floats(-3, 3), min_size=3, max_size=3))
    before, after = [], []
    for k, row in enumerate(numbers):
        before.append(row if k else numbers[0])
        after.append(row if k else data.draw(st.lists(number, min_size=6, max_size=6)))
    found = []
    for table in (np.array(before), np.array(after)):
        y = np.where(np.isfinite(table[:, 3]), table[:, 3], 0.0)
        answer, sensitivity = evaluate(loss, factor, table[:, :3], y, table[:, 4], table[:, 5], at)
        found.append(answer)
    assert np.isfinite(found[0]).all()
    assert np.linalg.norm(found[0] - found[1]) <= sensitivity * (1 + 1e-9)


@pytest.mark.parametrize("factor", ["curvature", "slope"])
def test_a_weight_of_one_comes_close(factor: str) -> None:
    """Rows at their bound in orthogonal directions, at margin 0 with an offset of 0, or far on the wrong side by it."""
    offset = [0.0, 0.0] if factor == "curvature" else [2.0, 0.0]
    at = [0.0, 0.0, 0.0] if factor == "curvature" else [4.0, 4.0, 0.0]
    answers = []
    for X in ([[99.0, 0, 0], [0, 0, 0]], [[0, 0, 99.0], [0, 0, 0]]):
        answer, sensitivity = evaluate("logistic", factor, X, [-1.0, 0.0], [1.0, 0.0], offset, at)
        answers.append(answer)
    # The constant's entry is common to both rows: 0.6 in 99.
    assert np.linalg.norm(answers[0] - answers[1]) >= 0.98 * sensitivity
