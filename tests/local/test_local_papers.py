"""Algorithms 1 and 2 of Wang and Xu (ICML 2019), written from their description in plain numpy, against tulle's.

The reference is given the groups of users and the randomised answers, so that both have the same noise. Without noise
tulle rounds each answer to 2^-30 of its bound, which is less than 1e-9 in the means of the groups below. Data are drawn
from fixed seeds; nothing else is random.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tulle import Bounds
from tulle.local import LabelPrivateSparseRegressor, LocalSparseRegressor, OneRoundSparseRegressor
from tulle.local.estimators.simulated_study import Population, simulate
from tulle.local.server_side.expectations import expectation
from tulle.local.server_side.protocols import LdpIht
from tulle.local.user_side.ball import PrivUnit
from tulle.local.user_side.responses import RESPONSES
from tulle.local.user_side.uniforms import SeededUniforms

N, P, SPARSITY, NOISE = 4_000, 60, 3, 0.05
LABEL = math.sqrt(SPARSITY) + NOISE
TRUE = np.zeros(P)
TRUE[[4, 17, 42]] = [0.6, -0.5, 0.4]
SEEDS = pytest.mark.parametrize("seed", [0, 1])

Randomiser = Callable[[Any, Any], Any]


def problem(seed: int) -> tuple[Any, Any]:
    """Features uniform on {-1, 1}, |w*| <= 1, labels with bounded noise: the paper's model."""
    rng = np.random.default_rng(seed)
    X = rng.choice([-1.0, 1.0], (N, P))
    return X, X @ TRUE + rng.uniform(-NOISE, NOISE, N)


# --- the paper, in numpy ---------------------------------------------------------------------------------------------


def threshold(w: Any, s: int) -> Any:
    """H_s: the s largest magnitudes."""
    kept = np.zeros_like(w)
    top = np.argsort(-np.abs(w), kind="stable")[:s]
    kept[top] = w[top]
    return kept


def project(w: Any, radius: float) -> Any:
    """Onto the ball of this radius about 0."""
    length = math.sqrt(float(w @ w))
    return w if length <= radius else radius / length * w


def reference_ldp_iht(X: Any, y: Any, groups: Any, s_star: int, eta: float, randomise: Randomiser) -> Any:
    """Algorithm 1; `randomise` turns the gradients of a group into the answers of its users."""
    w = np.zeros(X.shape[1])
    for t in range(groups.max() + 1):
        users = np.flatnonzero(groups == t)
        gradients = np.array([X[i] * (X[i] @ w - y[i]) for i in users])
        w = project(threshold(w - eta * randomise(gradients, users).mean(axis=0), 8 * s_star), 1.0)
    return w


def reference_label_ldp_iht(X: Any, sent: Any, s: int, eta: float, rounds: int, start: Any) -> Any:
    """Algorithm 2 on the labels that users sent, with the sign of its line 5 put right."""
    w = start
    for _ in range(rounds):
        w = project(threshold(w + eta / len(X) * (X.T @ (sent - X @ w)), s), 1.0)
    return w


# --- LDP-IHT ---------------------------------------------------------------------------------------------------------


def groups_of(seed: int, rounds: int) -> Any:
    """Which round asks each user: by the hash of the names of study and user."""
    digests = [hashlib.sha256(json.dumps([f"simulation {seed}", str(i)]).encode()).digest() for i in range(N)]
    return np.array([int.from_bytes(digest[:8], "big") >> 11 for digest in digests]) * rounds >> 53


def theorem(epsilon: float | None, **settings: Any) -> LocalSparseRegressor:
    given = {"n_nonzero": SPARSITY, "step": 0.4, "bounds": Bounds(row_linf=1.0, label=LABEL), "fit_intercept": False}
    return LocalSparseRegressor(epsilon, settings="theorem", **{**given, **settings})


PRINTED_ROUNDS = math.ceil(math.log(N / P))
# Rows have norm sqrt(p), margins are at most sqrt(8 s*) in the unit ball, labels at most LABEL.
PRINTED_RADIUS = math.sqrt(P) * (math.sqrt(8 * SPARSITY) + LABEL)


@SEEDS
def test_ldp_iht_without_noise_is_algorithm_1(seed: int) -> None:
    """Weights agree to 1e-9, and there are 8 s* of them."""
    X, y = problem(seed)
    model = theorem(None, random_state=seed).fit(X, y)
    w = reference_ldp_iht(X, y, groups_of(seed, PRINTED_ROUNDS), SPARSITY, 0.4, lambda gradients, users: gradients)
    np.testing.assert_allclose(model.coef_, w, atol=1e-9, rtol=0)
    assert len(model.support_) == 8 * SPARSITY
    assert model.intercept_ == 0
    assert model.n_iter_ == PRINTED_ROUNDS == 5
    assert set(np.flatnonzero(TRUE)) <= set(model.support_)


@pytest.mark.parametrize("epsilon", [1.0, 8.0])
@SEEDS
def test_ldp_iht_with_the_same_noise_is_algorithm_1(seed: int, epsilon: float) -> None:
    """The hemisphere's answers to the reference's own gradients, drawn from the same uniforms; weights to 1e-9."""
    X, y = problem(seed)
    channel = PrivUnit.hemisphere(epsilon, PRINTED_RADIUS, P)

    def randomise(gradients: Any, users: Any) -> Any:
        assert np.linalg.norm(gradients, axis=1).max() <= PRINTED_RADIUS
        return channel.unit * channel.answer(gradients, SeededUniforms(seed, users).draw(len(users), P + 3))

    model = theorem(epsilon, random_state=seed)
    with pytest.warns(UserWarning, match="users"):
        model.fit(X, y)
    w = reference_ldp_iht(X, y, groups_of(seed, PRINTED_ROUNDS), SPARSITY, 0.4, randomise)
    np.testing.assert_allclose(model.coef_, w, atol=1e-9, rtol=0)
    assert np.linalg.norm(model.coef_) == pytest.approx(1.0)  # the projection took part
    assert model.privacy_.epsilon <= epsilon * (1 + 1e-9)


def test_the_theorems_settings_are_as_printed() -> None:
    """One step, one radius that clips nothing, 8 s* weights, the unit ball, the hemisphere and ⌈log(n/p)⌉ rounds."""
    protocol = theorem(1.0).protocol(P, N)
    assert [protocol.step_size(t) for t in range(9)] == [0.4] * 9
    assert [protocol.channel(t).bound for t in range(9)] == pytest.approx([PRINTED_RADIUS] * 9)
    assert [protocol.kept(t) for t in range(5)] == [8 * SPARSITY] * 5
    assert (protocol.largest_weight, protocol.n_gradients, protocol.ball) == (1.0, 5, "hemisphere")
    assert theorem(1.0).protocol(P, P).n_gradients == 1


def test_what_is_given_takes_the_place_of_the_theorems_settings() -> None:
    """Rounds, radius, ball and randomiser."""
    model = theorem(1.0, n_rounds=3, radius=2.0, weight_bound=5.0, ball="priv_unit", bounds=None)
    protocol = model.protocol(P, N)
    assert (protocol.n_gradients, protocol.first_radius, protocol.largest_weight) == (3, 2.0, 5.0)
    assert protocol.ball == "priv_unit"
    assert protocol.n_searching == 0


@pytest.mark.parametrize(
    ("missing", "named"),
    [
        ({"n_nonzero": None}, "n_nonzero"),
        ({"step": None}, "step"),
        ({"n_nonzero": None, "step": None}, r"n_nonzero.*step"),
        ({"bounds": Bounds(label=1.0)}, r"row_linf.*radius"),
        ({"bounds": Bounds(row_l2=1.0)}, r"label=.*radius"),
        ({"bounds": None}, "bounds"),
        ({"fit_intercept": True}, "fit_intercept=False"),
    ],
)
def test_a_theorem_that_cannot_be_evaluated_names_what_is_missing(missing: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=f"settings='theorem'.*{named}"):
        theorem(1.0, **missing).protocol(P, N)


@pytest.mark.parametrize("name", RESPONSES)
@pytest.mark.parametrize("intercept", [False, True])
def test_no_gradient_within_the_bounds_is_longer_than_the_longest(name: str, intercept: bool) -> None:
    """Drawn weights and rows at their bounds, and the worst ones: the constant radius of one round clips nothing."""
    rng, response, d = np.random.default_rng(5), RESPONSES[name], 12
    protocol = LdpIht(
        None,
        d,
        Bounds(row_linf=0.5, label=1.5),
        intercept,
        response=response,
        working=4,
        weight_bound=1.3,
        constant_radius=True,
    )
    w = rng.normal(size=(2_000, d)) * (np.argsort(rng.random((2_000, d))) < 4)
    X = rng.choice([-0.5, 0.5], (2_000, d))
    w[:1_000] = np.sign(X[:1_000]) * (np.arange(d) < 4) * 0.5
    if intercept:
        X, w = np.hstack([X, np.ones((2_000, 1))]), np.hstack([w, np.ones((2_000, 1))])
    w *= 1.3 / np.linalg.norm(w, axis=1, keepdims=True)
    margins = np.sum(X * w, axis=1)
    slopes = response.gradient_slope(margins, -1.5 * np.sign(margins))
    lengths = np.abs(slopes) * np.linalg.norm(X, axis=1)
    assert lengths.max() <= protocol.first_radius * (1 + 1e-12)
    if name == "identity":
        assert lengths.max() > 0.99 * protocol.first_radius


def test_expected_noise_follows_constant_steps() -> None:
    """Short constant steps add up: on labels that are all 0 the 480 weights of eight studies spread as expected, within
    a fifth, which is six standard errors."""
    X, weights = problem(0)[0], []
    model = theorem(8.0, n_nonzero=P, weight_bound=LABEL, radius=2.0, n_rounds=6)
    for seed in range(8):
        weights.append(model.set_params(random_state=seed).fit(X, np.zeros(N)).coef_)
    measured = float(np.sqrt(np.mean(np.square(weights))))
    assert measured == pytest.approx(LABEL * model.expected_.noise, rel=0.2)
    one_step = expectation(model.set_params(n_rounds=1).protocol(P, N // 6), N // 6).noise
    assert measured > 1.2 * LABEL * one_step


# --- theorem 1 -------------------------------------------------------------------------------------------------------


@SEEDS
def test_one_round_with_the_same_noise_is_theorem_1(seed: int) -> None:
    """The thresholded mean of randomised y x, features of variance 1; weights to 1e-9."""
    X, y = problem(seed)
    radius = math.sqrt(P) * LABEL
    model = OneRoundSparseRegressor(
        8.0,
        n_nonzero=SPARSITY,
        second_moment=1.0,
        ball="hemisphere",
        bounds=Bounds(row_linf=1.0, label=LABEL),
        weight_bound=1e9,
        fit_intercept=False,
        random_state=seed,
    ).fit(X, y)
    channel = PrivUnit.hemisphere(8.0, radius, P)
    answers = channel.unit * channel.answer(-y[:, None] * X, SeededUniforms(seed, range(N)).draw(N, P + 3))
    np.testing.assert_allclose(model.coef_, threshold(-answers.mean(axis=0), SPARSITY), atol=1e-9, rtol=0)


# --- label-LDP-IHT ---------------------------------------------------------------------------------------------------


def labels_only(epsilon: float | None, **settings: Any) -> LabelPrivateSparseRegressor:
    given = {
        "randomiser": "gaussian",
        "n_nonzero": SPARSITY,
        "step": 0.2,
        "n_iter": PRINTED_ROUNDS,
        "refit": False,
        "ball": 1.0,
        "bounds": Bounds(label=LABEL),
        "fit_intercept": False,
    }
    return LabelPrivateSparseRegressor(epsilon, None if epsilon is None else 1e-4, **{**given, **settings})


def sent_labels(model: LabelPrivateSparseRegressor, X: Any, y: Any, seed: int) -> Any:
    """What the same study's users send, in their order."""
    protocol = model.protocol(P, N)
    simulate(protocol, Population(X, y, RESPONSES, seed))
    users, answers = protocol.by_number()
    assert list(users) == list(range(N))
    return protocol.channel.unit * answers


def first_weights(start: str, seed: int) -> Any:
    if start == "zero":
        return np.zeros(P)
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,))).standard_normal(P)


@pytest.mark.parametrize("start", ["zero", "normal"])
@SEEDS
def test_label_ldp_iht_without_noise_is_algorithm_2(seed: int, start: str) -> None:
    """On the labels themselves; weights to 1e-9, in the unit ball."""
    X, y = problem(seed)
    model = labels_only(None, start=start, random_state=seed).fit(X, y)
    w = reference_label_ldp_iht(X, y, SPARSITY, 0.2, PRINTED_ROUNDS, first_weights(start, seed))
    np.testing.assert_allclose(model.coef_, w, atol=1e-9, rtol=0)
    assert np.linalg.norm(model.coef_) <= 1 + 1e-12


@pytest.mark.parametrize("start", ["zero", "normal"])
@pytest.mark.parametrize("step", [0.2, 1.0])
@SEEDS
def test_label_ldp_iht_with_the_same_noise_is_algorithm_2(seed: int, step: float, start: str) -> None:
    """On the labels that users sent; weights to 1e-9."""
    X, y = problem(seed)
    model = labels_only(0.5, step=step, start=start, random_state=seed).fit(X, y)
    sent = sent_labels(model, X, y, seed)
    assert np.std(sent - y) > 1
    w = reference_label_ldp_iht(X, sent, SPARSITY, step, PRINTED_ROUNDS, first_weights(start, seed))
    np.testing.assert_allclose(model.coef_, w, atol=1e-9, rtol=0)
    if start == "normal" or step == 1.0:  # the projection took part
        free = labels_only(0.5, step=step, start=start, ball=None, random_state=seed).fit(X, y)
        assert np.linalg.norm(free.coef_) > 1.01


@pytest.mark.parametrize("refit", [False, True])
def test_weights_stay_in_the_ball_with_an_intercept_too(refit: bool) -> None:
    """Whatever the step and whether weights are fitted anew; a large ball changes nothing."""
    X, y = problem(3)
    settings = {"refit": refit, "step": None, "fit_intercept": True, "n_nonzero": None, "random_state": 3}
    small, large, none = (labels_only(4.0, **settings, ball=ball).fit(X, y + 1) for ball in (0.3, 1e6, None))
    assert math.hypot(float(np.linalg.norm(small.coef_)), small.intercept_) == pytest.approx(0.3)
    np.testing.assert_array_equal(large.coef_, none.coef_)


def test_a_normal_start_is_drawn_anew_without_a_seed() -> None:
    """With one it repeats, and another seed has another."""
    X, y = problem(4)
    still = {"start": "normal", "step": 1e-9, "n_iter": 1}
    first, again, other, fresh = (
        labels_only(None, **still, random_state=seed).fit(X, y).coef_ for seed in (1, 1, 2, None)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert not np.array_equal(first, fresh)
