"""The rounds of a local study: who is asked, what is made of the answers, and what can be expected beforehand.

Statistical tests fix their seeds. Bound searches with private answers fail on fresh seeds less than once in 10,000; the
measured standard deviations below are of hundreds of weights each, so that a fifth is four standard errors or more.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest

from tulle.estimators.bounds import GRID, Bounds
from tulle.local import LabelPrivateSparseRegressor, LocalSparseRegressor, OneRoundSparseRegressor
from tulle.local.estimators.simulated_study import Population, simulate
from tulle.local.server_side.expectations import expectation
from tulle.local.server_side.protocols import LABEL_CHANNELS, LabelCollection, LdpIht, Protocol, Tally
from tulle.local.server_side.study_server import Server
from tulle.local.user_side.answer_format import ExceedsAsk, GradientAsk, LabelAsk
from tulle.local.user_side.channel import Channel, Unrandomised
from tulle.local.user_side.label_randomisers import Hybrid, LaplaceLabel, Piecewise, RandomisedResponse, TwoPoint
from tulle.local.user_side.responses import LOGISTIC, RESPONSES, TANH
from tulle.trusted.plan import Budget

D = 4
PURE, NONE = Budget(1.0), None
BOUNDS = Bounds(row_l2=3.0, label=2.0)


def iht(budget: Budget | None = PURE, bounds: Bounds = BOUNDS, intercept: bool = True, **settings: Any) -> LdpIht:
    return LdpIht(budget, D, bounds, intercept, **settings)


def labels(budget: Budget | None = PURE, bounds: Bounds = BOUNDS, **settings: Any) -> LabelCollection:
    return LabelCollection(budget, D, bounds, True, **settings)


PROTOCOLS: dict[str, Any] = {
    "iht": iht,
    "iht, one round": lambda: iht(n_gradients=1),
    "iht, bounds searched": lambda: iht(bounds=Bounds()),
    "iht, label searched": lambda: iht(bounds=Bounds(row_linf=1.0, estimate_share=0.3)),
    "labels": labels,
    "labels, bound searched": lambda: labels(bounds=Bounds()),
    "classes": lambda: labels(n_classes=3),
}
every_protocol = pytest.mark.parametrize("name", PROTOCOLS)


def tally(total: Any, count: int) -> Tally:
    return Tally(np.array(np.atleast_1d(total), dtype=np.int64), count)


# --- groups ----------------------------------------------------------------------------------------------------------


@every_protocol
def test_groups_cover_everybody_once(name: str) -> None:
    """Borders rise from 0 to exactly 1, one group a round."""
    protocol: Protocol = PROTOCOLS[name]()
    borders = protocol.borders()
    assert len(borders) == protocol.n_rounds + 1
    assert borders[0] == 0
    assert borders[-1] == 1
    assert np.all(np.diff(borders) > 0)


@every_protocol
def test_searching_takes_its_share_and_the_main_rounds_the_rest_in_equal_parts(name: str) -> None:
    """`estimate_share` of [0, 1] goes to bounds where any are missing, and nothing where none are."""
    protocol: Protocol = PROTOCOLS[name]()
    sizes = np.diff(protocol.borders())
    searching, main = sizes[: protocol.n_searching], sizes[protocol.n_searching :]
    share = protocol.bounds.estimate_share if protocol.n_searching else 0.0
    assert searching.sum() == pytest.approx(share)
    for sizes in (searching, main):
        np.testing.assert_allclose(sizes, sizes.mean() if len(sizes) else 0.0)
    assert len(main) == protocol.n_main


@every_protocol
def test_every_user_is_asked_in_one_round(name: str) -> None:
    """The groups of a whole study, empty answers and all, are a partition of the users, and fixed by names alone."""
    protocol: Protocol = PROTOCOLS[name]()
    users = [str(number) for number in range(300)]
    server = Server(protocol, users, "a study")
    asked: Counter[str] = Counter()
    borders = protocol.borders()
    while not server.finished:
        for user in server.asked:
            digest = hashlib.sha256(json.dumps(["a study", user]).encode()).digest()
            place = (int.from_bytes(digest[:8], "big") >> 11) / 2**53
            assert borders[server.round - 1] <= place < borders[server.round]
        asked.update(server.asked)
        server.close_round()
    assert asked == Counter(users)


# --- searching for bounds --------------------------------------------------------------------------------------------


def found_by_exact_answers(protocol: Protocol, sizes: Any) -> float:
    """The bound that a search finds if everybody in every group answers, without noise."""
    for _ in range(protocol.n_searching):
        ask, channel = protocol.ask()
        assert isinstance(ask, ExceedsAsk)
        assert isinstance(channel, RandomisedResponse)
        protocol.absorb(tally(int(np.sum(sizes > ask.threshold)), len(sizes)))
    return float(next(iter(protocol.found.values())))


SIZES = {
    "log-normal": np.exp(np.random.default_rng(0).normal(0, 2, 2001)),
    "tiny": np.full(100, 1e-9),
    "beyond the grid": np.full(100, 1e30),
    "at a grid's value": np.full(100, float(GRID[17])),
    "above a grid's value": np.full(100, float(GRID[17]) * (1 + 1e-12)),
    "one large": np.r_[np.ones(99), 1e5],
}


@pytest.mark.parametrize("quantile", [0.5, 0.75, 0.95])
@pytest.mark.parametrize("kind", SIZES)
def test_exact_answers_find_the_quantile_on_the_grid(kind: str, quantile: float) -> None:
    """The least value of the grid that no more than 1 - quantile of the users pass; the last one if there is none."""
    sizes = SIZES[kind]
    enough = [value for value in GRID if np.mean(sizes > value) <= 1 - quantile + 1e-12]
    expected = float(enough[0]) if enough else float(GRID[-1])
    assert found_by_exact_answers(labels(NONE, Bounds(quantile=quantile)), sizes) == expected


@pytest.mark.parametrize("make", [labels, iht], ids=["labels", "iht"])
def test_private_answers_find_it_within_two_steps(make: Any) -> None:
    """With 60,000 users at epsilon = 1: the label bound, and the norm of a row with its constant."""
    rng = np.random.default_rng(1)
    X = rng.choice([-5.0, 5.0], (60_000, D))
    y = np.where(rng.random(60_000) < 0.9, 10.0, 200.0)
    settings = {} if make is labels else {"n_gradients": 1}
    protocol = make(PURE, Bounds(), **settings)
    simulate(protocol, Population(X, y, RESPONSES, 2))
    truth = {"label": 10.0, "row": math.hypot(10.0, 1.0)}
    assert set(protocol.found) == ({"label"} if make is labels else {"label", "row"})
    for quantity, value in protocol.found.items():
        assert truth[quantity] / 1.001 <= value <= 2 * truth[quantity]


@pytest.mark.parametrize("seed", range(5))
def test_whatever_is_answered_a_bound_is_a_value_of_the_grid(seed: int) -> None:
    """Totals that no honest users would give lead to some value of the grid all the same."""
    rng = np.random.default_rng(seed)
    protocol = iht(bounds=Bounds())
    while protocol.round <= protocol.n_searching:
        assert protocol.ask()[0].threshold in GRID  # type: ignore[union-attr]
        protocol.absorb(tally(int(rng.integers(-1000, 1000)), int(rng.integers(0, 10))))
    assert set(protocol.found) == {"row", "label"}
    assert set(protocol.found.values()) <= set(GRID)


def test_a_bound_is_not_taken_from_the_data() -> None:
    """The largest label is no power of sqrt(2), and neither it nor the largest norm is found."""
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(3000, D)), rng.normal(size=3000)
    protocol = iht(NONE, Bounds())
    simulate(protocol, Population(X, y, RESPONSES, 0))
    assert set(protocol.found.values()) <= set(GRID)
    assert protocol.found["label"] == pytest.approx(np.quantile(np.abs(y), 0.75), rel=0.7)


def test_only_missing_bounds_are_searched_for() -> None:
    """Rows, labels, both or none; none at all where step, radius and weight bound are given."""
    settled = {"step": 1.0, "radius": 1.0, "weight_bound": 1.0}
    assert iht(bounds=Bounds()).n_searching == 2 * iht(bounds=Bounds(label=1.0)).n_searching
    assert iht(bounds=Bounds(row_linf=1.0)).n_searching == 6
    assert iht().n_searching == iht(bounds=Bounds(), **settled).n_searching == 0
    assert labels(bounds=Bounds(row_l2=1.0)).n_searching == 6
    assert labels(bounds=Bounds(label=1.0)).n_searching == labels(bounds=Bounds(), n_classes=2).n_searching == 0


def test_found_bounds_are_used() -> None:
    """Radius, step and weight bound are those of declared bounds with the same values."""
    searched = iht(bounds=Bounds())
    searched.found.update(row=math.hypot(3.0, 1.0), label=2.0)
    for name in ("first_radius", "curvature", "largest_weight", "label_bound", "row_bound"):
        assert getattr(searched, name) == pytest.approx(getattr(iht(), name))


# --- gradients -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("response", [*RESPONSES.values()], ids=[*RESPONSES])
def test_scales_follow_from_public_bounds(response: Any, intercept: bool) -> None:
    """The row bound with its constant, the curvature, the radius and the weight bound, each as documented."""
    slope = {"identity": 1.0, "logistic": 0.25, "tanh": 1.0}[response.name]
    row, width = math.hypot(3.0, float(intercept)), D + intercept
    several, one = (iht(intercept=intercept, response=response, n_gradients=rounds) for rounds in (8, 1))
    assert several.row_bound == pytest.approx(row)
    assert several.curvature == pytest.approx(row**2 / width * slope**2)
    assert one.first_radius == pytest.approx(row * 2.0 * slope)
    assert several.first_radius == pytest.approx(row * 2.0 * slope / 2)
    margin = (1 if response.name == "identity" else 2) * 2.0 / slope
    assert several.largest_weight == pytest.approx(margin * math.sqrt(width) / row)


def test_given_scales_are_taken() -> None:
    """Step, radius and weight bound of the user's own."""
    protocol = iht(step=0.7, radius=5.0, weight_bound=9.0)
    assert (protocol.step_size(0), protocol.first_radius, protocol.largest_weight) == (0.7, 5.0, 9.0)


def test_steps_and_radii_shrink_as_documented() -> None:
    """2/(t + 2) of the first step; 0.7^t of the first radius, at least 0.3 of it."""
    protocol = iht()
    for t in range(8):
        assert protocol.step_size(t) == pytest.approx(2 / (t + 2) / protocol.curvature)
        assert protocol.channel(t).bound == pytest.approx(protocol.first_radius * max(0.7**t, 0.3))
    assert protocol.channel(4).bound == protocol.channel(7).bound > 0


def test_a_round_moves_against_the_mean_of_its_answers() -> None:
    """weights - step * unit * total / count, for the current round's own channel."""
    protocol = iht(n_nonzero=D, weight_bound=1e9)
    weights = np.zeros(D + 1)
    for number in range(3):
        ask, channel = protocol.ask()
        assert isinstance(ask, GradientAsk)
        np.testing.assert_allclose(ask.weights, weights)
        total = np.arange(1, D + 2) * (number + 1)
        protocol.absorb(tally(total, 10 * (number + 1)))
        weights = weights - protocol.step_size(number) * channel.unit * np.arange(1, D + 2) / 10
        np.testing.assert_allclose(protocol.weights, weights)
        assert np.all(weights < 0)


def test_between_rounds_more_weights_are_kept_than_in_the_end() -> None:
    """`working` times n_nonzero of the largest, at last n_nonzero, and the intercept always."""
    protocol = LdpIht(PURE, 40, BOUNDS, True, n_nonzero=2, n_gradients=2, working=3, weight_bound=1e9)
    total = np.r_[np.arange(1, 41), 1]
    protocol.absorb(tally(total, 10))
    assert list(np.flatnonzero(protocol.weights)) == [34, 35, 36, 37, 38, 39, 40]
    protocol.absorb(tally(0 * total, 10))
    assert list(np.flatnonzero(protocol.weights)) == [38, 39, 40]
    assert protocol.finished


@pytest.mark.parametrize("bound", [0.5, 1e9])
def test_weights_are_kept_within_their_bound(bound: float) -> None:
    """Scaled down to the norm, direction unchanged; shorter ones are left."""
    free, bounded = (iht(n_nonzero=D, weight_bound=limit) for limit in (1e9, bound))
    for protocol in (free, bounded):
        protocol.absorb(tally(np.arange(1, D + 2) * 1000, 1))
    length = float(np.linalg.norm(free.weights))
    assert np.linalg.norm(bounded.weights) == pytest.approx(min(bound, length))
    np.testing.assert_allclose(bounded.weights / np.linalg.norm(bounded.weights), free.weights / length)


@every_protocol
def test_rounds_that_nobody_answered_are_harmless(name: str) -> None:
    """All groups empty: the study ends, weights are 0 and nobody is counted."""
    protocol: Protocol = PROTOCOLS[name]()
    server = Server(protocol, [], "nobody")
    while not server.finished:
        server.close_round()
    assert server.accepted == 0
    if isinstance(protocol, LdpIht):
        assert not protocol.weights.any()
    else:
        assert protocol.answers == {}  # type: ignore[attr-defined]


@pytest.mark.parametrize("step", [1e150, 1e308])
def test_enormous_steps_leave_finite_weights(step: float) -> None:
    """Within their bound, whatever the step."""
    protocol = iht(n_nonzero=D, step=step)
    protocol.absorb(tally(np.arange(1, D + 2) * 1000, 1))
    assert np.all(np.isfinite(protocol.weights))
    assert np.linalg.norm(protocol.weights) <= protocol.largest_weight * (1 + 1e-9)


# --- channels --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 16.0])
@pytest.mark.parametrize("ball", ["priv_unit", "hemisphere"])
def test_with_a_budget_gradients_are_randomised_at_it(ball: Any, epsilon: float) -> None:
    """Every round has the budget's epsilon, no delta but that of its arithmetic, and noise; without one none has."""
    protocol = iht(Budget(epsilon), Bounds(), ball=ball)
    while not protocol.finished:
        _, channel = protocol.ask()
        assert not isinstance(channel, Unrandomised)
        assert channel.epsilon == epsilon
        assert channel.delta == (0 if channel.width == 1 else protocol.delta)
        protocol.absorb(tally(np.zeros(channel.width), 1))
    exact = iht(NONE, ball=ball).ask()[1]
    assert isinstance(exact, Unrandomised)
    assert exact.worst_variance == 0


@pytest.mark.parametrize("randomiser", ["auto", *LABEL_CHANNELS])
def test_with_a_budget_labels_are_randomised_at_it(randomiser: str) -> None:
    """Whatever the randomiser; only the Gaussian one has a delta."""
    delta = 1e-4 if randomiser == "gaussian" else 0.0
    ask, channel = labels(Budget(0.8, delta), randomiser=randomiser).ask()
    assert ask == LabelAsk()
    assert (channel.epsilon, channel.delta, channel.bound) == (0.8, delta, 2.0)
    assert channel.worst_variance > 4.0
    assert isinstance(labels(NONE, randomiser=randomiser).ask()[1], Unrandomised)


@pytest.mark.parametrize("epsilon", [0.05, 0.3, 0.6, 0.62, 1.0, 2.0, 5.0, 16.0])
def test_auto_has_the_least_variance_for_the_worst_label(epsilon: float) -> None:
    """Two points below epsilon = 0.61, the hybrid above; Gaussian noise at delta = 1e-5 has more than any."""
    chosen = labels(Budget(epsilon)).make_channel(2.0)
    others: list[Channel] = [kind(epsilon, 2.0) for kind in (TwoPoint, Piecewise, Hybrid, LaplaceLabel)]
    others.append(labels(Budget(epsilon, 1e-5), randomiser="gaussian").make_channel(2.0))
    assert all(chosen.worst_variance <= other.worst_variance for other in others)
    assert chosen.name == ("two_point" if epsilon < 0.61 else "hybrid")


def test_answers_are_kept_by_name_in_the_round_of_labels_alone() -> None:
    """Gradients and answers about bounds are only added up."""
    assert not iht().keep_each
    protocol = labels(bounds=Bounds())
    while protocol.round <= protocol.n_searching:
        assert not protocol.keep_each
        protocol.absorb(tally(0, 1))
    assert protocol.keep_each
    protocol.absorb(Tally(np.array([3]), 2, {"a": np.array([1]), "b": np.array([2])}))
    assert protocol.answers == {"a": 1, "b": 2}


# --- what can be expected --------------------------------------------------------------------------------------------


def measured_noise(model: Any, n: int, d: int, seeds: int) -> float:
    """The standard deviation of weights on labels that are all 0, over the weight that explains labels all alone."""
    weights = []
    for seed in range(seeds):
        X = np.random.default_rng(seed).choice([-1.0, 1.0], (n, d))
        model.set_params(random_state=seed).fit(X, np.zeros(n))
        weights.append(model.coef_)
    return float(np.sqrt(np.mean(np.square(weights))))


SIGNS = Bounds(row_linf=1.0, label=1.0)


@pytest.mark.parametrize(
    ("rounds", "ball", "epsilon"),
    [
        (1, "priv_unit", 1.0),
        (1, "hemisphere", 4.0),
        (2, "priv_unit", 4.0),
        (8, "priv_unit", 2.0),
        (8, "hemisphere", 4.0),
    ],
)
def test_the_noise_on_weights_of_private_rows_is_as_expected(rounds: int, ball: Any, epsilon: float) -> None:
    """Within a fifth, also where so few users answer that later rounds clip what would pull the noise back."""
    d, n = 20, 8_000
    model: Any = LocalSparseRegressor(epsilon, n_rounds=rounds, n_nonzero=d, ball=ball, bounds=SIGNS)
    expected = expectation(model.protocol(d, n), n).noise
    # A feature of magnitude 1 that explains labels of magnitude 1 has the weight 1.
    assert measured_noise(model, n, d, 8) / expected == pytest.approx(1.0, abs=0.2)


@pytest.mark.parametrize("randomiser", ["auto", "gaussian", "two_point"])
def test_the_noise_on_weights_of_private_labels_is_as_expected(randomiser: str) -> None:
    """Within a fifth, of the first step on all features; labels of mean square 1 are part of it."""
    d, n = 50, 2_000
    settings = {"n_nonzero": d, "step": 1.0, "n_iter": 1, "refit": False, "bounds": SIGNS}
    model: Any = LabelPrivateSparseRegressor(1.0, 1e-4, randomiser=randomiser, **settings)
    if randomiser != "gaussian":
        model.set_params(delta=None)
    expected = expectation(model.protocol(d, n), n).noise
    assert measured_noise(model, n, d, 8) / expected == pytest.approx(1.0, abs=0.2)


def test_more_users_and_a_larger_epsilon_mean_less_noise() -> None:
    """Noise falls with the root of users, or faster where rounds correct each other; searching costs users."""
    one, several = (iht(n_gradients=rounds) for rounds in (1, 8))
    assert expectation(one, 4000).noise == pytest.approx(expectation(one, 1000).noise / 2)
    assert 0 < expectation(several, 4000).noise <= expectation(several, 1000).noise / 2 * (1 + 1e-9)
    assert expectation(iht(Budget(4.0)), 1000).noise < expectation(several, 1000).noise / 2
    searched = expectation(iht(bounds=Bounds(estimate_share=0.75), n_gradients=1), 1000).noise
    assert searched == pytest.approx(2 * expectation(one, 1000).noise)
    assert expectation(iht(NONE), 10).noise == 0


@pytest.mark.parametrize("make", [iht, labels], ids=["iht", "labels"])
def test_hopeless_is_what_has_fewer_users_than_needed(make: Any) -> None:
    """With as many users as are said to be needed a feature is seen, with a fifth fewer it is not."""
    needed = expectation(make(), 2).users_needed
    assert needed > 2
    assert expectation(make(), 2).hopeless
    assert not expectation(make(), needed + 1).hopeless
    assert expectation(make(), int(0.8 * needed)).hopeless


def test_the_floor_is_for_whole_rows() -> None:
    """p/ε² users, with the intercept among the p; labels alone have no such floor."""
    assert expectation(iht(Budget(0.5)), 100).floor == pytest.approx((D + 1) / 0.25)
    assert expectation(labels(), 100).floor == 0
    assert "p/ε²" in str(expectation(iht(), 100))
    assert "p/ε²" not in str(expectation(labels(), 100))


def test_more_weights_are_kept_where_less_noise_is_expected() -> None:
    """The default of n_nonzero grows with users, from 1 to all features; their joint noise is half a weight."""
    model = LocalSparseRegressor(1.0, bounds=SIGNS)
    users = [10**power for power in range(2, 10)]
    kept = [model.protocol(200, count).n_nonzero for count in users]
    assert kept == sorted(kept)
    assert kept[0] == 1
    assert kept[-1] == 200
    for count, some in zip(users, kept):
        noise = expectation(model.protocol(200, count), count).noise
        assert some * noise**2 <= 0.25 or some == 1
        assert (some + 1) * noise**2 > 0.25 or some == 200


@pytest.mark.parametrize("response", [LOGISTIC, TANH])
def test_one_round_divides_by_the_second_moment(response: Any) -> None:
    """The step is 1/(v f'(0)²)."""
    protocol = OneRoundSparseRegressor(second_moment=0.5, response=response, bounds=BOUNDS).protocol(D, 10)
    assert protocol.n_main == 1
    assert protocol.step_size(0) == pytest.approx(2 / response.steepness**2)
