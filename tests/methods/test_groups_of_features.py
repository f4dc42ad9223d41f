"""Thresholds that keep whole groups of features: the reference on plain arrays, bad labels, noise on all of a group."""

from __future__ import annotations

from collections import Counter
from typing import Any

import fits
import numpy as np
import pytest
from fits import SLOPES, Array, RecordingCurator, assert_storage_does_not_matter, facts, model_for, problem, signed
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tulle import Bounds, SparseClassifier
from tulle.fast.sparse_weights import SparseWeights
from tulle.methods import HardThresholding, StochasticHardThresholding
from tulle.methods.thresholds import GroupThreshold, HardThreshold

recorder = fits.recorder
D = fits.D
GROUPS = ["a", "a", "b", "c", "c", "c", "b", "d", "d", "e", "a", "e"]
CODES = np.unique(GROUPS, return_inverse=True)[1]


def keep_groups(w: Array, labels: Any, keep: int) -> Array:
    """The reference: the groups in the order of their norms, the first `keep` of them."""
    names = sorted(set(labels), key=lambda name: -np.linalg.norm(w[[label == name for label in labels]]))
    return np.where([label in names[:keep] for label in labels], w, 0.0)


def plain_group_ight(X: Array, y: Array, loss: str, labels: Any, *, keep: int, n_iter: int, step: float) -> Array:
    """Gradient steps on plain arrays, the best groups kept."""
    w = np.zeros(X.shape[1])
    for _ in range(n_iter):
        w = keep_groups(w - step * (X.T @ SLOPES[loss](X @ w, y) / len(X)), labels, keep)
    return w


@pytest.mark.parametrize("loss", ["logistic", "squared"])
@pytest.mark.parametrize("keep", [1, 2, 9])
@pytest.mark.parametrize(
    "labels", [GROUPS, CODES, np.array(GROUPS, dtype=object)], ids=["strings", "numbers", "objects"]
)
def test_without_noise_it_is_the_reference(loss: str, keep: int, labels: Any) -> None:
    """To 1e-9, in both methods; batches are all rows there."""
    X, y = problem(loss)
    expected = plain_group_ight(X, signed(loss, y), loss, GROUPS, keep=keep, n_iter=9, step=0.8)
    batches: dict[str, Any] = {"batch": len(X), "passes": 9.0, "memory": keep, "average": 0.0, "sampling": "shuffled"}
    for method in (
        HardThresholding(n_iter=9, step=0.8, groups=labels),
        StochasticHardThresholding(step=0.8, groups=labels, **batches),
    ):
        model = model_for(loss, None, method, n_nonzero=keep, loss=loss, fit_intercept=False, bounds=None).fit(X, y)
        np.testing.assert_allclose(np.ravel(model.coef_), expected, rtol=0, atol=1e-9)
    assert len(set(np.asarray(GROUPS)[expected != 0])) == min(keep, 5)


@given(arrays(float, (8, 2), elements=st.floats(-3, 3)), st.integers(1, 5))
def test_groups_of_one_feature_are_the_plain_threshold(values: Array, keep: int) -> None:
    """But for ties; and sparse weights are thresholded as dense ones are."""
    plain, grouped = HardThreshold(keep, 7)(values), GroupThreshold(keep, 7, np.arange(7)[::-1].copy())
    np.testing.assert_allclose(np.sort(np.abs(grouped(values)), axis=0), np.sort(np.abs(plain), axis=0), atol=1e-150)
    sparse = grouped.sparsely(SparseWeights.from_dense(values)).to_dense()
    np.testing.assert_allclose(np.abs(sparse).sum(axis=0), np.abs(plain).sum(axis=0), atol=1e-12)


PRIVATE: dict[str, Any] = {
    "gaussian": (HardThresholding(n_iter=3, groups=GROUPS), 1e-5),
    "laplace": (HardThresholding(n_iter=3, groups=GROUPS), 0.0),
    "sgd": (StochasticHardThresholding(batch=30, passes=1.0, groups=GROUPS), 1e-5),
    "svrg": (StochasticHardThresholding("svrg", passes=3.0, memory=1, groups=GROUPS), 1e-5),
}


@pytest.mark.parametrize("name", PRIVATE)
def test_whole_groups_are_kept_and_all_their_weights_get_noise(recorder: type[RecordingCurator], name: str) -> None:
    """Rows that hold nothing: the weights of two groups are noise, none of them is 0; what was asked is the plan.

    Noise that cannot pass a threshold may stay undrawn; that of a small weight in a large group passes it.
    """
    method, delta = PRIVATE[name]
    model = model_for("classification", 1.0, method, delta=delta, n_nonzero=2, fit_intercept=False)
    model.fit(np.zeros((120, D)), np.arange(120) % 2)
    held = set(np.asarray(GROUPS)[model.coef_[0] != 0])
    assert len(held) == 2
    assert np.count_nonzero(model.coef_) == sum(label in held for label in GROUPS)
    planned = {release.name: release.answers for release in method.releases(recorder.facts[-1])}
    assert Counter(asked.name for asked in recorder.asked) == planned
    assert model.privacy_.epsilon <= 1.0
    assert "of 5 groups" in model.privacy_.method


@pytest.mark.parametrize("name", ["gaussian", "sgd"])
def test_storage_does_not_matter(name: str) -> None:
    X, y = problem("regression", n=200)
    X[np.abs(X) < 0.5] = 0.0
    method, delta = PRIVATE[name]
    assert_storage_does_not_matter(model_for("regression", 50.0, method, delta=delta, n_nonzero=2), X, y)


@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize("cls", [HardThresholding, StochasticHardThresholding])
@pytest.mark.parametrize(
    "labels",
    [
        GROUPS[:-1],
        [GROUPS],
        "a",
        3,
        np.ones(D),
        [*GROUPS[:-1], None],
        [*range(D - 1), "a", 2.0][:D],
        np.full(D, np.nan),
    ],
    ids=["too few", "nested", "text", "number", "floats", "none", "mixed with a float", "nan"],
)
@pytest.mark.parametrize("n_nonzero", [2, None])
def test_bad_labels_are_refused_before_anything_is_released(cls: Any, labels: Any, n_nonzero: int | None) -> None:
    X, y = problem("classification")
    if isinstance(labels, list) and "a" in labels and len(set(map(type, labels))) > 1 and None not in labels:
        labels = np.array(labels, dtype=object)
    with pytest.raises(ValueError, match=rf"{cls.__name__}\(groups=...\) must hold one label.* of the 12 features"):
        model_for("classification", 1.0, cls(groups=labels), n_nonzero=n_nonzero).fit(X, y)


def test_selection_noise_is_refused() -> None:
    X, y = problem("classification")
    with pytest.raises(ValueError, match="chooses single features; use noise='gaussian', 'laplace' or 'auto'"):
        model_for("classification", 1.0, HardThresholding(noise="selection", groups=GROUPS)).fit(X, y)


def test_defaults_count_groups() -> None:
    """By default about as many features are kept in groups as alone."""
    labels = np.arange(100) // 10
    alone, grouped = (HardThresholding(groups=g).default_nonzero(facts()) for g in (None, labels))
    assert grouped == round(alone / 10)
    assert not HardThresholding(groups=labels).settings(facts(n_nonzero=1, row_l2=10.0)).selection


def test_a_category_is_found() -> None:
    """Of four one-hot coded categories one decides: its columns are kept, and no other."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 6, (4_000, 4))
    X = np.hstack([np.eye(6)[codes[:, k]] for k in range(4)])
    y = codes[:, 2] < 3
    method = HardThresholding(groups=np.repeat(np.arange(4), 6))
    model = SparseClassifier(2.0, n_nonzero=1, method=method, bounds=Bounds(row_l2=2.0), random_state=0).fit(X, y)
    assert set(model.support_) == set(range(12, 18))
    assert model.score(X, y) > 0.99
