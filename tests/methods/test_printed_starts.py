"""Algorithms as their papers print them, from a given θ₀: fits against plain versions of test_printed_algorithms."""

from __future__ import annotations

import math
from typing import Any

import fits
import numpy as np
import pytest
from fits import Array, D, problem
from scipy.special import expit
from test_printed_algorithms import (
    BOUNDS,
    DELTA,
    SETS,
    SLOPES,
    Tape,
    fit_as_published,
    keep_largest,
    printed_frank_wolfe,
    printed_scsg,
    printed_sgd,
    printed_transfer,
    tape,
    with_and_without_noise,
)

from tulle import SparseClassifier, SparseRegressor
from tulle.methods import FrankWolfe, HardThresholding, KnowledgeTransfer, StochasticHardThresholding
from tulle.transfer.public_features import UniformFeatures

recorder, tape = fits.recorder, tape

START = np.array([0.3, 0, 0, -0.5, 0, 0, 0, 0.1, 0, 0.2, 0, 0])
pytestmark = pytest.mark.filterwarnings("ignore:.*no better than guessing:UserWarning")


def printed_ight(tape: Tape, X: Array, y: Array, *, s: int, eta: float, T: int, eps: float, start: Array) -> Array:
    """Algorithm 1 with Remark 5.3's sigma = sqrt(T) G / (n (sqrt(log(1/delta) + eps) - sqrt(log(1/delta))))."""
    n, d = X.shape
    L = math.log(1 / DELTA)
    sigma = math.sqrt(T) * math.sqrt(D) / (n * (math.sqrt(L + eps) - math.sqrt(L)))
    w = start
    for _ in range(T):
        u = -sigma * tape.normal((d, 1))[:, 0]
        w = keep_largest(w - eta * (X.T @ SLOPES["classification"](X @ w, y) / n + u), s)
    return w


@with_and_without_noise
def test_hard_thresholding_is_as_printed(tape: Tape) -> None:
    X, y = problem("classification")
    method = HardThresholding(9, 0.7, clip=1.0, noise="gaussian", start=START)
    model = fit_as_published(SparseClassifier(4.0, DELTA, n_nonzero=3, method=method, bounds=BOUNDS), X, y)
    tape.rewind()
    expected = printed_ight(tape, X, y, s=3, eta=0.7, T=9, eps=4.0, start=START)
    np.testing.assert_allclose(model.coef_.ravel(), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("variant", "B"), [("sgd", None), ("scsg", 60), ("svrg", 150)])
@with_and_without_noise
def test_batches_are_as_printed(tape: Tape, variant: Any, B: int | None) -> None:
    X, y = problem("classification")
    settings: dict[str, Any] = {"step": 0.7, "clip": 1.0, "penalty": 0.1, "lazy_noise": False}
    method = StochasticHardThresholding(variant, 30, B, passes=4.0, start=START, **settings)
    model = fit_as_published(SparseClassifier(4.0, DELTA, n_nonzero=3, method=method, bounds=BOUNDS), X, y)
    tape.rewind()
    common: dict[str, Any] = {"k": 3, "eta": 0.7, "b": 30, "eps": 4.0, "ridge": 0.1, "start": START}
    if B is None:
        expected = printed_sgd(tape, X, y, T=20, **common)
    else:
        lengths = (B // 30,) * round(4.0 * 150 / (2 * B))
        expected = printed_scsg(tape, X, y, B=B, lengths=lengths, option="II", **common)
    assert tape.all_read
    np.testing.assert_allclose(model.coef_.ravel(), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["l1", "polytope"])
@with_and_without_noise
def test_frank_wolfe_is_as_printed(tape: Tape, name: str) -> None:
    """From a point of the set that is none of its vertices; slopes are those of the set."""
    X, y = problem("classification")
    feasible, vertices, _ = SETS[name]
    start = vertices[:4].T @ [0.4, 0.3, 0.2, 0.1]
    method = FrankWolfe(feasible=feasible, n_iter=12, noise="selection", start=start)
    model = fit_as_published(SparseClassifier(20.0, DELTA, n_nonzero=D, method=method, bounds=BOUNDS), X, y)
    tape.rewind()
    settings: dict[str, Any] = {"target": "classification", "vertices": vertices, "T": 12, "L1": expit(2.0)}
    expected = printed_frank_wolfe(tape, X, y, start=start, eps=20.0, **settings)
    np.testing.assert_allclose(model.coef_.ravel(), expected, rtol=1e-9, atol=1e-12)


@with_and_without_noise
def test_knowledge_transfer_is_as_printed(tape: Tape) -> None:
    X, y = problem("regression")
    public = UniformFeatures(-1, 1).draw(90, D, np.random.default_rng(0))
    steps: dict[str, Any] = {"n_iter": 3, "teacher_step": 0.3, "student_iter": 2, "student_step": 0.4}
    method = KnowledgeTransfer("published", UniformFeatures(-1, 1), n_public=90, penalty=0.3, start=START, **steps)
    model = fit_as_published(SparseRegressor(20.0, DELTA, n_nonzero=3, method=method, bounds=BOUNDS), X, y)
    tape.rewind()
    expected = printed_transfer(
        tape, X, y, "regression", public, s=3, beta=1 / 3, gamma=4.0, curvature=0.3, ridge=0.3, eta1=0.3, eta2=0.4,
        T1=3, T2=2, eps=20.0, start=START,
    )  # fmt: skip
    np.testing.assert_allclose(model.coef_.ravel(), expected, rtol=1e-9, atol=1e-12)
