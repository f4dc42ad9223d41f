"""Weights of clients: averages of a curious server, and sums of a trusted aggregator with the sensitivity that follows.

A pair of neighbours that attains the sensitivity is built, and no pair moves a sum by more.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_aggregator import ENDS, QUICK, Houses, X, Y
from test_federated_server import PARTS, PLAIN, PRIVATE, kept
from test_federated_server import X as ROWS
from test_federated_server import Y as LABELS

from tulle import Bounds, SparseClassifier
from tulle.federated.client_weights import check_weights, weigh_sums
from tulle.federated.server_side.aggregator import RowsAtClients
from tulle.federated.server_side.server import Server
from tulle.federated.server_side.simulation import simulate
from tulle.methods import FrankWolfe, HardThresholding, KnowledgeTransfer, ScreenRefine, StochasticHardThresholding
from tulle.trusted.curator import summation_slack
from tulle.trusted.mechanisms import AdditiveNoise

WEIGHTS = {"ada": 0.5, "ben": 0.1, "cy": 0.4}
SIZES = {name: end - begin for name, (begin, end) in ENDS.items()}  # 250, 10 and 340 rows


@pytest.fixture(autouse=True)
def no_power_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda handle: None)


# --- the numbers -----------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(1, 500), st.floats(1e-3, 1.0)), min_size=1, max_size=6))
def test_no_row_counts_more_than_the_noise_covers(clients: list[tuple[int, float]]) -> None:
    """f_i / N is p_i / n_i, never above what N rows may move, and the largest is within 1 / N of it."""
    total = sum(weight for _, weight in clients)
    weights = {str(k): weight / total for k, (_, weight) in enumerate(clients)}
    sizes = {str(k): n for k, (n, _) in enumerate(clients)}
    counted, factors = weigh_sums(check_weights(weights), sizes)
    assert 1 <= counted <= sum(sizes.values())
    for name, factor in factors.items():
        assert 0 < factor <= 1
        # Less than p_i / n_i by no more than what the sums of all rows may round by.
        wanted = weights[name] / sizes[name]
        assert wanted / summation_slack(sum(sizes.values()) + 2) * (1 - 1e-12) <= factor / counted
        assert factor / counted <= wanted * (1 + 1e-12)
        assert factor * summation_slack(sum(sizes.values())) <= summation_slack(counted)
    assert max(factors.values()) > 1 - 1 / counted - 1e-9


def test_weights_by_rows_change_nothing() -> None:
    counted, factors = weigh_sums({name: n / 600 for name, n in SIZES.items()}, SIZES)
    assert counted == 600
    assert set(factors.values()) == {1.0}


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"ada": 0.5, "ben": 0.1, "cy": 0.3}, r"add up to 1, not 0.9"),
        ({"ada": 1.1, "ben": -0.1}, r"client 'ada' must lie in \(0, 1\]"),
        ({"ada": 1.0, "ben": 0.0}, "client 'ben' must lie"),
        ({"ada": math.nan}, "must lie"),
        ({"ada": "1"}, "must lie"),
        ({}, "must be a mapping"),
        ([0.5, 0.5], "must be a mapping"),
    ],
)
def test_weights_that_are_none(weights: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        Server(PLAIN, weighting=weights)
    with pytest.raises(ValueError, match=message):
        Houses(tmp_path, X, Y).rows(weights=weights)


# --- a curious server ------------------------------------------------------------------------------------------------


def test_a_server_averages_by_the_weights() -> None:
    """One step of each client, without noise; weights cost nothing, since what is sent is private already."""
    terms = replace(PLAIN, rounds=1, batch=None)
    parts = {name: (ROWS[part], LABELS[part]) for name, part in PARTS.items()}
    alone = {name: simulate(terms, {name: rows}).weights.to_dense() for name, rows in parts.items()}
    fit = simulate(terms, parts, weighting=WEIGHTS)
    np.testing.assert_allclose(
        fit.weights.to_dense(), kept(sum(WEIGHTS[name] * alone[name] for name in alone), 4), atol=1e-14
    )
    private = replace(PRIVATE, rounds=1)
    epsilons = [simulate(private, parts, weighting=how).privacy.epsilon for how in (WEIGHTS, "rows")]
    assert epsilons[0] == epsilons[1]


def test_clients_without_a_weight_do_not_take_part() -> None:
    terms = replace(PLAIN, rounds=1)
    parts = {name: (ROWS[part], LABELS[part]) for name, part in PARTS.items()}
    fit = simulate(terms, parts, weighting={"ada": 0.7, "cy": 0.3})
    assert {client.client for client in fit.clients} == {"ada", "cy"}
    with pytest.raises(ValueError, match="give each of them a weight"):
        Server(terms, clients=("ada", "ben"), weighting={"ada": 1.0})


# --- a trusted aggregator --------------------------------------------------------------------------------------------

LEVEL = Bounds(row_l2=1.0)


def fit(houses: Houses, method: Any = QUICK, weights: Any = WEIGHTS, **settings: Any) -> tuple[RowsAtClients, Any]:
    rows = houses.rows(weights=weights)
    given = {"n_nonzero": 5, "method": method, "bounds": LEVEL, "random_state": 0, "fit_intercept": False}
    return rows, SparseClassifier(1.0, **{**given, **settings}).fit(rows, None)


def listen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, float]]:
    """Exact answers and the sensitivities that their noise is scaled by."""
    heard: list[tuple[Any, float]] = []
    release = AdditiveNoise.release

    def told(mechanism: Any, exact: Any, sensitivity: Any, generator: Any, then: Any) -> Any:
        heard.append((np.array(exact), sensitivity.l2))
        return release(mechanism, exact, sensitivity, generator, then)

    monkeypatch.setattr(AdditiveNoise, "release", told)
    return heard


def test_sums_are_weighted_means(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first step from 0: minus step × sum_i p_i (mean gradient of client i)."""
    heard = listen(monkeypatch)
    method = HardThresholding(n_iter=1, step=2.0, noise="gaussian")
    rows, _ = fit(Houses(tmp_path, X, Y), method)
    assert rows.shape[0] == math.floor(min(SIZES[name] / weight for name, weight in WEIGHTS.items())) == 100
    dense, signs = X.toarray(), 2 * Y - 1
    dense = dense * np.minimum(1, 1 / np.maximum(np.linalg.norm(dense, axis=1), 1e-300))[:, None]
    mean = sum(
        WEIGHTS[name] * (dense[slice(*ends)] * signs[slice(*ends), None]).mean(axis=0) / 2
        for name, ends in ENDS.items()
    )
    np.testing.assert_allclose(heard[0][0][:, 0], 2.0 * mean, atol=1e-9)


def test_a_replaced_row_moves_a_sum_by_what_is_declared_and_not_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All weights on the smallest client's rows: its row moves the sum by 2 C p / n, within 1 % of the sensitivity;
    rows of others move it by less, in proportion to p_i / n_i."""
    rows = np.zeros((600, 5))
    rows[:, 0] = 1.0
    moved, told = {}, 0.0
    method = HardThresholding(n_iter=1, step=1.0, noise="gaussian")
    labels = np.where(np.arange(600) % 2, "a", "b")
    exact = {}
    for name in (None, *ENDS):
        changed = labels.copy()
        if name is not None:
            row = ENDS[name][0] + 1
            changed[row] = "a" if labels[row] == "b" else "b"
        heard = listen(monkeypatch)
        (folder := tmp_path / str(name)).mkdir()
        houses = Houses(folder, rows, changed)
        fit(houses, method, n_nonzero=1, classes=("a", "b"))
        exact[name], told = heard[0]
        monkeypatch.undo()
        monkeypatch.setattr("os.fsync", lambda handle: None)
    for name in ENDS:
        moved[name] = float(np.linalg.norm(exact[name] - exact[None]))
        assert moved[name] <= told
        assert moved[name] == pytest.approx(2 * 0.5 * WEIGHTS[name] / SIZES[name], rel=1e-9)  # C = 1/2
    assert max(moved.values()) == moved["ben"] > 0.99 * told


def test_the_bill_and_the_report(tmp_path: Path) -> None:
    houses = Houses(tmp_path, X, Y)
    _, model = fit(houses)
    _, other = fit(houses, weights=None)
    assert [line.count for line in model.privacy_.bill] == [line.count for line in other.privacy_.bill]
    assert 0.99 < model.privacy_.epsilon <= 1.0
    assert any("weighted by given public numbers" in line for line in model.privacy_.who_saw_what)
    for name in ENDS:
        assert len(houses.ledger(name).entries) == 2


def test_weights_by_rows_are_the_fit_without_weights(tmp_path: Path) -> None:
    houses = Houses(tmp_path, X, Y)
    by_rows = {name: n / 600 for name, n in SIZES.items()}
    for method in (QUICK, FrankWolfe(n_iter=3)):
        np.testing.assert_array_equal(fit(houses, method, by_rows)[1].coef_, fit(houses, method, None)[1].coef_)


def test_what_needs_rows_that_count_alike_is_refused(tmp_path: Path) -> None:
    houses = Houses(tmp_path, X, Y)
    output = KnowledgeTransfer(perturbation="output")
    for method in (StochasticHardThresholding(batch=20), ScreenRefine(), KnowledgeTransfer(), output):
        with pytest.raises(ValueError, match="sums over all rows"):
            fit(houses, method)
    for name in ENDS:
        assert not houses.ledger(name).entries
    with pytest.raises(ValueError, match="give each of them a weight"):
        houses.rows(weights={"ada": 0.5, "ben": 0.5})
