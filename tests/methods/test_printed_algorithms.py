"""Algorithms as their papers print them: plain numpy, from the papers' descriptions, against fits with published noise.

Noise comes from a tape of standard draws that the fit and the plain version read in the same order, each at its own
scale: the fit's is noise × sensitivity, the plain one's the formula of the paper. So the two agree to 1e-9 only if
steps, schedules and scales of noise are those that are printed. Tapes are drawn from fixed seeds; nothing can fail by
chance.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import fits
import numpy as np
import pytest
from fits import Array, D, problem
from scipy.special import expit

from tulle import Bounds, SparseClassifier, SparseRegressor
from tulle.files.error_messages import PrivacyWarning
from tulle.methods import FrankWolfe, HardThresholding, KnowledgeTransfer, StochasticHardThresholding
from tulle.methods.feasible_sets import L1Ball, Polytope, Simplex
from tulle.methods.published_noise import NoiseWithoutProof
from tulle.transfer.public_features import UniformFeatures
from tulle.trusted.mechanisms import AdditiveNoise, LaplaceMax, _as_array
from tulle.trusted.sampling import Sampler

recorder = fits.recorder

DELTA = 1e-5
BOUNDS = Bounds(row_l2=math.sqrt(D), row_linf=1.0, label=4.0)  # hold for every row of `problem`
pytestmark = pytest.mark.filterwarnings("ignore:.*no better than guessing:UserWarning")
with_and_without_noise = pytest.mark.parametrize("loudness", [0.0, 1.0], ids=["no noise", "the same noise"])


class Tape:
    """Standard draws that are read twice: by the fit, and by the plain version after `rewind`."""

    def __init__(self, loudness: float) -> None:
        self._loudness = loudness
        self.batches: list[Array] = []
        self.rewind()

    def rewind(self) -> None:
        self._generator = np.random.default_rng(11)
        self._read = 0

    def normal(self, shape: tuple[int, ...]) -> Array:
        return self._loudness * self._generator.standard_normal(shape)

    def laplace(self, shape: tuple[int, ...]) -> Array:
        return self._loudness * self._generator.laplace(size=shape)

    def batch(self) -> Array:
        """The rows of the next batch, as the fit drew them."""
        self._read += 1
        return self.batches[self._read - 1]

    @property
    def all_read(self) -> bool:
        return self._read == len(self.batches)


@pytest.fixture
def tape(loudness: float, monkeypatch: pytest.MonkeyPatch) -> Tape:
    """A tape that fits read from during the test, and that keeps the batches they draw."""
    made = Tape(loudness)

    def add_noise(mechanism: Any, exact: Any, sensitivity: Any, generator: Any, then: Any) -> Any:
        values = _as_array(exact)
        scale = mechanism._scale(getattr(sensitivity, mechanism.NORM))
        noisy = values + scale * made.normal(values.shape) if scale else values
        return noisy if then is None else then(noisy)

    def choose(mechanism: Any, exact: Any, sensitivity: Any, generator: Any, then: Any) -> Any:
        scores = _as_array(exact)
        return np.argmax(scores + mechanism._scale(sensitivity.linf) * made.laplace(scores.shape), axis=0)

    def answer(mechanism: Any, exact: Any, sensitivity: Any, generator: Any, then: Any) -> Any:
        return exact + mechanism.noise.value * mechanism.claimed * made.normal(exact.shape)

    draw = Sampler.draw

    def draw_and_keep(sampler: Sampler, generator: Any) -> Any:
        made.batches.append(draw(sampler, generator))
        return made.batches[-1]

    monkeypatch.setattr(AdditiveNoise, "release", add_noise)
    monkeypatch.setattr(LaplaceMax, "release", choose)
    monkeypatch.setattr(NoiseWithoutProof, "release", answer)
    monkeypatch.setattr(Sampler, "draw", draw_and_keep)
    return made


def fit_as_published(estimator: Any, X: Array, y: Array) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return estimator.set_params(calibration="published", fit_intercept=False, random_state=0).fit(X, y)


def keep_largest(w: Array, k: int) -> Array:
    """H_k."""
    kept = w.copy()
    kept[np.argsort(-np.abs(w))[k:]] = 0.0
    return kept


# Slopes in the margin, of labels as they are given: numbers, or classes 0 and 1.
SLOPES = {"regression": lambda m, y: m - y, "classification": lambda m, y: expit(m) - y}


# --- DP-SGD-HT, DP-SCSG-HT and DP-SVRG-HT, Algorithms 1 and 2 of Liang, Tong, Ding, Pan and Bi ------------------------

# Logistic gradients: slopes are below 1, and rows no longer than sqrt(d).
LONGEST_GRADIENT = math.sqrt(D)


def batch_gradient(X: Array, y: Array, x: Array, rows: Any) -> Array:
    return np.asarray(X[rows].T @ (expit(X[rows] @ x) - y[rows]) / len(rows))


def printed_sgd(
    tape: Tape, X: Array, y: Array, *, k: int, eta: float, b: int, T: int, eps: float, ridge: float,
    start: Any = 0.0,
) -> Array:  # fmt: skip
    """Algorithm 1 with Theorem 4.1's sigma² = 40 alpha l² T / (n² eps), alpha = 1 + 2 log(1/delta) / eps."""
    n, d = X.shape
    alpha = 1 + 2 * math.log(1 / DELTA) / eps
    sigma = math.sqrt(40 * alpha * LONGEST_GRADIENT**2 * T / (n**2 * eps))
    x = np.zeros(d) + start
    for _ in range(T):
        rows = tape.batch()
        assert len(rows) == b
        u = -sigma * tape.normal((d, 1))[:, 0]  # the fit's noise is on the step, which goes down
        x = keep_largest(x - eta * (batch_gradient(X, y, x, rows) + u + ridge * x), k)
    return x


def smallest_surplus(J: int) -> float:
    """The smallest C >= 1 with 1 - (1 - delta/2)^(1/J) >= exp(-(C - 1 - log C)), by halving."""
    allowed = -math.expm1(math.log1p(-DELTA / 2) / J)
    low, high = 1.0, 1000.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (low, middle) if math.exp(-(middle - 1 - math.log(middle))) <= allowed else (middle, high)
    return high


def printed_scsg(
    tape: Tape, X: Array, y: Array, *, k: int, eta: float, B: int, b: int, lengths: Any, option: str, eps: float,
    ridge: float, start: Any = 0.0,
) -> Array:  # fmt: skip
    """Algorithm 2 with Theorem 5.1's noise, sigma1² = 160 sigma² and sigma2² = 40 sigma².

    sigma² = 2 C B l² alpha J / (b n² eps).
    Epochs of fixed length (option II): C = 1 and alpha = 1 + 2 log(1/delta) / eps. Of random length (option I): half of
    delta is for epochs that last too long, so that alpha has log(2/delta), and C > 1.
    """
    (n, d), J = X.shape, len(lengths)
    top, C = (1, 1.0) if option == "II" else (2, smallest_surplus(len(lengths)))
    alpha = 1 + 2 * math.log(top / DELTA) / eps
    sigma = math.sqrt(2 * C * B * LONGEST_GRADIENT**2 * alpha * J / (b * n**2 * eps))
    sigma1, sigma2 = math.sqrt(160) * sigma, math.sqrt(40) * sigma
    x = np.zeros(d) + start
    for length in lengths:
        snapshot, rows = x, tape.batch()
        assert len(rows) == B
        mean = batch_gradient(X, y, snapshot, rows) + sigma1 * tape.normal((d, 1))[:, 0]
        for _ in range(length):
            rows = tape.batch()
            assert len(rows) == b
            change = batch_gradient(X, y, x, rows) - batch_gradient(X, y, snapshot, rows)
            u = -sigma2 * tape.normal((d, 1))[:, 0]
            x = keep_largest(x - eta * (change + mean + u + ridge * x), k)
    return x


@pytest.mark.parametrize("eps", [2.0, 10.0])
@with_and_without_noise
def test_sgd_is_as_printed(tape: Tape, eps: float) -> None:
    X, y = problem("classification")
    method = StochasticHardThresholding("sgd", 30, passes=4.0, step=0.7, clip=1.0, penalty=0.1, lazy_noise=False)
    model = fit_as_published(SparseClassifier(eps, DELTA, n_nonzero=3, method=method, bounds=BOUNDS), X, y)
    assert [line.count for line in model.privacy_.bill] == [20]
    tape.rewind()
    expected = printed_sgd(tape, X, y, k=3, eta=0.7, b=30, T=20, eps=eps, ridge=0.1)
    assert tape.all_read
    np.testing.assert_allclose(model.coef_.ravel(), expected, rtol=1e-9, atol=1e-12)
    assert np.count_nonzero(expected) == 3


@pytest.mark.parametrize(
    ("variant", "B", "option"),
    [("scsg", 60, "I"), ("scsg", 60, "II"), ("svrg", 150, "II")],
    ids=["DP-SCSG-HT, option I", "DP-SCSG-HT, option II", "DP-SVRG-HT"],
)
@pytest.mark.parametrize("eps", [2.0, 10.0])
@with_and_without_noise
def test_scsg_is_as_printed(tape: Tape, recorder: Any, variant: Any, B: int, option: Any, eps: float) -> None:
    """Lengths of option I are the public coins of the method, whose law has a test of its own."""
    X, y = problem("classification")
    method = StochasticHardThresholding(
        variant, 30, B, passes=8.0, step=0.7, clip=1.0, penalty=0.1, lazy_noise=False, option=option
    )
    model = fit_as_published(SparseClassifier(eps, DELTA, n_nonzero=3, method=method, bounds=BOUNDS), X, y)
    lengths = method.settings(recorder.facts[-1]).lengths
    assert len(lengths) == round(8.0 * 150 / (2 * B))
    assert (set(lengths) == {B // 30}) is (option == "II")
    assert [line.count for line in model.privacy_.bill] == [len(lengths), sum(lengths)]
    tape.rewind()
    expected = printed_scsg(tape, X, y, k=3, eta=0.7, B=B, b=30, lengths=lengths, option=option, eps=eps, ridge=0.1)
    assert tape.all_read
    np.testing.assert_allclose(model.coef_.ravel(), expected, rtol=1e-9, atol=1e-12)
    assert np.count_nonzero(expected) == 3


# --- private Frank-Wolfe, Algorithm 2 of Talwar, Thakurta and Zhang ---------------------------------------------------


def printed_frank_wolfe(
    tape: Tape, X: Array, y: Array, *, target: str, vertices: Array, start: Array, T: int, L1: float, eps: float
) -> Array:
    """T iterates, T - 1 choices, Laplace noise of scale L1 |C|_1 sqrt(8 T log(1/delta)) / (n eps)."""
    n = len(X)
    scale = L1 * np.abs(vertices).sum(axis=1).max() * math.sqrt(8 * T * math.log(1 / DELTA)) / (n * eps)
    w = start
    for t in range(1, T):
        gradient = X.T @ SLOPES[target](X @ w, y) / n
        alpha = vertices @ gradient - scale * tape.laplace((len(vertices), 1))[:, 0]  # the fit maximises minus alpha
        mu = 2 / (t + 2)
        w = (1 - mu) * w + mu * vertices[np.argmin(alpha)]
    return np.asarray(w)


PAIRS = 1.5 * np.eye(D) - 0.5 * np.roll(np.eye(D), 1, axis=1)
SETS = {
    "l1": (L1Ball(2.0), np.vstack([2 * np.eye(D), -2 * np.eye(D)]), np.zeros(D)),
    "simplex": (Simplex(2.0), 2 * np.eye(D), 2 * np.eye(D)[0]),
    "polytope": (Polytope(vertices=PAIRS), PAIRS, PAIRS[0]),
}


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("target", ["regression", "classification"])
@pytest.mark.parametrize("T", [2, 25])
@with_and_without_noise
def test_frank_wolfe_is_as_printed(tape: Tape, name: str, target: str, T: int) -> None:
    """All three kinds of vertices have |C|_1 = 2, and margins of at most 2 on entries of at most 1."""
    X, y = problem(target)
    feasible, vertices, start = SETS[name]
    estimator = SparseRegressor if target == "regression" else SparseClassifier
    method = FrankWolfe(feasible=feasible, n_iter=T, noise="selection")
    model = fit_as_published(estimator(20.0, DELTA, n_nonzero=D, method=method, bounds=BOUNDS), X, y)
    assert [line.count for line in model.privacy_.bill] == [T - 1]
    tape.rewind()
    L1 = 2 + 4 if target == "regression" else expit(2.0)
    expected = printed_frank_wolfe(tape, X, y, target=target, vertices=vertices, start=start, T=T, L1=L1, eps=20.0)
    np.testing.assert_allclose(model.coef_.ravel(), expected, rtol=1e-9, atol=1e-12)
    assert np.any(expected != start)


# --- DPSL-KT, Algorithm 1 of Wang and Gu ------------------------------------------------------------------------------


def threshold_gradients(
    X: Array, y: Array, target: str, *, s: int, eta: float, T: int, ridge: float = 0.0, start: Any = 0.0
) -> Array:
    """IGHT: T steps of size eta on the mean loss + ridge / 2 |w|²."""
    w = np.zeros(X.shape[1]) + start
    for _ in range(T):
        w = keep_largest(w - eta * (X.T @ SLOPES[target](X @ w, y) / len(X) + ridge * w), s)
    return w


def printed_transfer(
    tape: Tape, X: Array, y: Array, target: str, public: Array, *, s: int, beta: float, gamma: float, curvature: float,
    ridge: float, eta1: float, eta2: float, T1: int, T2: int, eps: float, start: Any = 0.0,
) -> Array:  # fmt: skip
    """Teacher, noisy answers, student; sigma² = 8 m beta s gamma² log(2.5/delta) / (n² eps² curvature²)."""
    teacher = threshold_gradients(X, y, target, s=s, eta=eta1, T=T1, ridge=ridge, start=start)
    n, m = len(X), len(public)
    sigma = math.sqrt(8 * m * beta * s * gamma**2 * math.log(2.5 / DELTA)) / (n * eps * curvature)
    answers = public @ teacher + sigma * tape.normal((m, 1))[:, 0]
    return threshold_gradients(public, answers, "regression", s=s, eta=eta2, T=T2, start=start)


@pytest.mark.parametrize("target", ["regression", "classification"])
@pytest.mark.parametrize(
    ("law", "beta"), [(UniformFeatures(-1, 1), 1 / 3), (None, None)], ids=["a distribution", "public rows"]
)
@pytest.mark.parametrize("ridge", [0.3, 0.0], ids=["theorem 4.3", "corollary 4.7"])
@with_and_without_noise
def test_knowledge_transfer_is_as_printed(tape: Tape, target: str, law: Any, beta: float | None, ridge: float) -> None:
    """Both step sizes and both numbers of steps are set; gamma is row_linf, times the label bound in a regression."""
    X, y = problem(target)
    public = UniformFeatures(-1, 1).draw(90, D, np.random.default_rng(0))
    beta = beta or float(np.linalg.norm(public, 2) ** 2 / 90)
    method = KnowledgeTransfer(
        "published",
        public if law is None else law,
        n_public=90,
        penalty=ridge,
        sparse_eigenvalue=0.2,
        n_iter=7,
        teacher_step=0.6,
        student_iter=11,
        student_step=0.9,
    )
    estimator = SparseRegressor if target == "regression" else SparseClassifier
    model = fit_as_published(estimator(20.0, DELTA, n_nonzero=3, method=method, bounds=BOUNDS), X, y)
    tape.rewind()
    expected = printed_transfer(
        tape, X, y, target, public, s=3, beta=beta, gamma=4.0 if target == "regression" else 1.0,
        curvature=ridge or 0.2, ridge=ridge, eta1=0.6, eta2=0.9, T1=7, T2=11, eps=20.0,
    )  # fmt: skip
    np.testing.assert_allclose(model.coef_.ravel(), expected, rtol=1e-9, atol=1e-12)
    assert np.count_nonzero(expected) == 3


# --- DP-IGHT, Algorithm 1 of Wang and Gu (IJCAI 2019) -----------------------------------------------------------------

WEIGHT_NORM, LABEL_NOISE = 1.5, 0.3


def printed_ight(
    tape: Tape, task: str, X: Array, y: Array, *, s: int, eta: float, T: int, G: float, eps: float
) -> Array:
    """T steps with sigma² = T G² / (n² rho), rho from eps and delta by Remark 5.3, or by Corollary 5.8 for a logistic
    model, sigma² = T G² log(1/delta) / (n eps)².
    """
    (n, d), L = X.shape, math.log(1 / DELTA)
    rho = (math.sqrt(L + eps) - math.sqrt(L)) ** 2 if task == "regression" else eps**2 / L
    sigma = math.sqrt(T * G**2 / (n**2 * rho))
    w = np.zeros(d)
    for _ in range(T):
        u = -sigma * tape.normal((d, 1))[:, 0]  # the fit's noise is on the step, which goes down
        w = keep_largest(w - eta * (X.T @ SLOPES[task](X @ w, y) / n + u), s)
    return w


@pytest.mark.parametrize("eps", [2.0, 10.0])
@pytest.mark.parametrize("task", ["regression", "classification"])
@with_and_without_noise
def test_dp_ight_is_as_printed(tape: Tape, task: str, eps: float) -> None:
    """Corollary 5.6 for the linear model, G = K (sqrt(2 s) |theta*| + nu log n); 5.8 for the logistic one, G = K."""
    X, y = problem(task)
    estimator, more = (SparseClassifier, {"published_rule": "corollary_5.8", "clip": 1.0})
    G = math.sqrt(D)
    if task == "regression":
        estimator, more = (
            SparseRegressor,
            {"published_rule": "corollary_5.6", "weight_norm": WEIGHT_NORM, "label_noise": LABEL_NOISE},
        )
        G *= math.sqrt(2 * 3) * WEIGHT_NORM + LABEL_NOISE * math.log(len(y))
    method = HardThresholding(n_iter=6, step=0.4, noise="gaussian", **more)
    model = fit_as_published(estimator(eps, DELTA, n_nonzero=3, method=method, bounds=BOUNDS), X, y)
    tape.rewind()
    expected = printed_ight(tape, task, X, y, s=3, eta=0.4, T=6, G=G, eps=eps)
    np.testing.assert_allclose(model.coef_.ravel(), expected, rtol=1e-9, atol=1e-12)
    assert np.count_nonzero(expected) == 3
