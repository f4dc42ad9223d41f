"""Whole rows of two classes: LDP-IHT with the logistic loss against plain numpy, classes, and a study over messages."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import check_grad

from tulle import Bounds, load, save
from tulle.local import LocalSparseClassifier, Server, User
from tulle.local.user_side.ball import PrivUnit
from tulle.local.user_side.responses import KNOWN_TO_USERS, LOGISTIC_LOSS, RESPONSES
from tulle.local.user_side.uniforms import SeededUniforms

pytestmark = pytest.mark.filterwarnings("ignore:.*is expected to have noise:UserWarning")

N, P, S, ROUNDS = 600, 8, 2, 4
BOUNDS = Bounds(row_linf=1.0)


def problem(seed: int = 0, n: int = N, p: int = P) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.choice([-1.0, 1.0], (n, p))
    return X, np.where(X[:, 1] - X[:, 4] + 0.5 * rng.normal(size=n) > 0, "yes", "no")


def reference(X: Any, y: Any, seed: int, channel_of: Any) -> Any:
    """Rounds of gradients of log(1 + exp(-y <x, w>)), clipped to a radius; steps 4 p / |x|² times 2/(t + 2)."""
    row = math.sqrt(X.shape[1])
    digests = [hashlib.sha256(json.dumps([f"simulation {seed}", str(i)]).encode()).digest() for i in range(len(X))]
    group = np.array([int.from_bytes(digest[:8], "big") >> 11 for digest in digests]) * ROUNDS >> 53
    w = np.zeros(X.shape[1])
    for t in range(ROUNDS):
        users = np.flatnonzero(group == t)
        gradients = np.array([-y[i] * X[i] / (1 + math.exp(y[i] * (X[i] @ w))) for i in users])
        radius = 0.5 * row * 0.5 * max(0.7**t, 0.3)
        gradients *= np.minimum(1, radius / np.linalg.norm(gradients, axis=1))[:, None]
        w = w - 4.0 * 2 / (t + 2) * channel_of(radius)(gradients, users).mean(axis=0)
        w[np.argsort(-np.abs(w))[S if t == ROUNDS - 1 else 8 * S :]] = 0.0
        w *= min(1.0, 4.0 / np.linalg.norm(w))
    return w


def model(epsilon: float | None, seed: int = 0, **settings: Any) -> LocalSparseClassifier:
    given = {"n_nonzero": S, "n_rounds": ROUNDS, "bounds": BOUNDS, "fit_intercept": False, "random_state": seed}
    return LocalSparseClassifier(epsilon, **{**given, **settings})


@pytest.mark.parametrize("seed", [0, 1])
def test_without_noise_it_is_the_reference(seed: int) -> None:
    """Weights agree with plain numpy to 1e-8: answers that are not randomised are rounded to a grid all the same."""
    X, y = problem(seed)
    w = reference(X, np.where(y == "yes", 1, -1), seed, lambda radius: lambda gradients, users: gradients)
    np.testing.assert_allclose(model(None, seed).fit(X, y).coef_[0], w, atol=1e-8, rtol=0)


@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_with_the_same_noise_it_is_the_reference(epsilon: float) -> None:
    """The randomiser's answers to the reference's own gradients, drawn from the same uniforms; weights to 1e-9."""
    X, y = problem()

    def channel_of(radius: float) -> Any:
        channel = PrivUnit.best(epsilon, radius, P)
        return lambda gradients, users: (
            channel.unit * channel.answer(gradients, SeededUniforms(0, users).draw(len(users), channel.n_uniforms))
        )

    w = reference(X, np.where(y == "yes", 1, -1), 0, channel_of)
    fitted = model(epsilon).fit(X, y)
    np.testing.assert_allclose(fitted.coef_[0], w, atol=1e-9, rtol=0)
    assert fitted.privacy_.epsilon <= epsilon * (1 + 1e-9)
    assert fitted.n_answers_ == N


@pytest.mark.parametrize("y", [-1.0, 1.0])
def test_the_slope_is_that_of_the_logistic_loss(y: float) -> None:
    for margin in (-3.0, 0.0, 0.4, 50.0):
        error = check_grad(
            lambda m: float(np.logaddexp(0, -y * m[0])),
            lambda m: LOGISTIC_LOSS.gradient_slope(m, np.array([y])),
            np.array([margin]),
        )
        assert error < 1e-6
    assert LOGISTIC_LOSS.steepness == 0.5
    extreme = LOGISTIC_LOSS.gradient_slope(np.array([-1e308, 1e308, np.inf]), np.array([y, y, y]))
    assert np.all(np.isin(extreme, [0, 1, -1]))


def test_every_user_answers_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the rounds that search for a bound too; a class needs none."""
    answers: Counter[str] = Counter()
    received = Server.receive_many

    def count(self: Server, users: Any, values: Any) -> None:
        answers.update(users)
        received(self, users, values)

    monkeypatch.setattr(Server, "receive_many", count)
    X, y = problem()
    for bounds, searching in ((BOUNDS, 0), (None, 6)):
        answers.clear()
        fitted = model(4.0, bounds=bounds).fit(X, y)
        assert answers == Counter(map(str, range(N)))
        assert fitted.n_iter_ == ROUNDS + searching


def test_a_study_between_a_server_and_users_is_the_simulation() -> None:
    """Users know the loss by its name, and say -1 or 1; the messages of a real study lead to the same weights."""
    X, y = problem(n=80)
    estimator = model(2.0, n_rounds=2)
    protocol = estimator.protocol(P, 80)
    server = Server(protocol, [str(i) for i in range(80)], "simulation 0")
    while not server.finished:
        for name in list(server.asked):
            i = int(name)
            uniforms = SeededUniforms(0, np.array([i]))
            user = User(name, X[i], 1.0 if y[i] == "yes" else -1.0, max_epsilon=2.0, uniforms=uniforms)
            server.receive(user.answer(server.question))
        server.close_round()
    np.testing.assert_array_equal(protocol.weights, estimator.fit(X, y).coef_[0])


def test_classes_and_probabilities() -> None:
    X, y = problem()
    fitted = model(None).fit(X, y)
    assert fitted.classes_.tolist() == ["no", "yes"]
    assert fitted.score(X, y) > 0.6
    assert set(fitted.predict(X)) == {"no", "yes"}
    np.testing.assert_allclose(fitted.predict_proba(X).sum(axis=1), 1.0)
    declared = model(None, classes=["no", "yes"]).fit(X, np.where(np.arange(N) < 3, "other", y))
    assert declared.classes_.tolist() == ["no", "yes"]
    with pytest.raises(ValueError, match=r"Only binary classification is supported.*3 classes; declare two"):
        model(None).fit(X, np.arange(N) % 3)
    with pytest.raises(ValueError, match="at least two classes"):
        model(None).fit(X, np.ones(N))


@pytest.mark.parametrize(
    ("name", "value"), [("n_rounds", 0), ("step", -1.0), ("radius", math.inf), ("ball", "cube"), ("n_nonzero", 0)]
)
def test_bad_settings_are_refused(name: str, value: Any) -> None:
    X, y = problem()
    with pytest.raises(ValueError, match=name):
        model(1.0, **{name: value}).fit(X, y)
    with pytest.raises(TypeError, match="bounds must be a Bounds"):
        model(1.0, bounds=3).fit(X, y)


def test_sparse_rows_and_a_saved_model(tmp_path: Any) -> None:
    X, y = problem()
    dense, sparse = model(4.0).fit(X, y), model(4.0).fit(sp.csr_array(X), y)
    np.testing.assert_array_equal(dense.coef_, sparse.coef_)
    save(dense, tmp_path / "model.npz")
    again = load(tmp_path / "model.npz")
    np.testing.assert_array_equal(again.predict(X), dense.predict(X))


def test_the_loss_is_no_response_of_regressions() -> None:
    assert set(KNOWN_TO_USERS) - set(RESPONSES) == {"logistic_loss"}


def test_it_learns() -> None:
    """Two of 8 features, 20,000 users, epsilon = 2."""
    X, y = problem(n=20_000)
    fitted = model(2.0).fit(X, y)
    assert fitted.support_.tolist() == [1, 4]
    assert fitted.coef_[0, 1] > 0 > fitted.coef_[0, 4]
