"""Figure 3 of the federated paper: which studies there are, what is chosen, and what is shown of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tulle.experiments import federated_rounds, reproduction
from tulle.experiments.catalogue import published
from tulle.experiments.cells import Cell, Finished
from tulle.experiments.federated_rounds import (
    DATA,
    Rounds,
    RoundsTuning,
    client_rows,
    grids_of,
    paper_epsilon,
    tried_settings,
)
from tulle.trusted.accountants import epsilon as proved_epsilon
from tulle.trusted.events import NoisePerSensitivity
from tulle.trusted.mechanisms import Gaussian
from tulle.trusted.plan import Release

OF = published("dp-sgd-ht-figure3")
SGD, GD = "DP-FedSGD-HT (oracle-tuned, not private)", "DP-FedGD-HT (oracle-tuned, not private)"
PLAIN, PAPER = "FedSGD-HT, no privacy", "DP-FedSGD-HT, paper's noise (oracle-tuned, not private)"


@pytest.fixture
def no_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(federated_rounds, "images_digest", lambda: "rows")


def test_every_client_has_two_digits_and_every_row_one_client() -> None:
    y = np.random.default_rng(0).integers(0, 10, 500).astype(float)
    rows = client_rows(y, 10)
    assert sorted(np.concatenate(list(rows.values()))) == list(range(500))
    assert all(len(set(y[own])) == 2 for own in rows.values())
    assert [sum(digit in y[own] for own in rows.values()) for digit in range(10)] == [2] * 10


def test_no_method_has_more_settings_to_choose_from_than_the_one_without_noise() -> None:
    """At one ε; a method that takes another's settings has none of its own."""
    counts = {one["name"]: sum(len(tried_settings(grid)) for grid in grids_of(one)) for one in OF.settings["methods"]}
    assert counts == {PLAIN: 16, SGD: 9, PAPER: 0, GD: 5}
    assert len(RoundsTuning(Rounds(OF)).cells()) == 16 + 2 * 9 + 2 * 5
    assert len(Rounds(OF).cells()) == 3 * (1 + 3 * 2)


def test_the_papers_noise_proves_more_than_it_claims() -> None:
    """Without batches its accountant is exact but for Rényi orders; replacing a row moves a sum twice as far."""
    found = paper_epsilon(4.0, 1e-5, 6000, None, 600)
    assert found > 4.0

    def replaced(noise: float) -> float:
        return proved_epsilon((Release("step", Gaussian(NoisePerSensitivity(noise / 2)), 600),), 1e-5)

    # For one row added or removed the same noise proves a little less than 4: halving the sensitivity doubles z.
    assert replaced(2 * 30.0) < replaced(30.0)
    low, high = 1.0, 1000.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if replaced(middle) > found else (low, middle)
    assert 3.3 < replaced(2 * low) <= 4.0


def test_the_best_settings_are_those_of_the_greatest_accuracy_and_failures_are_none(no_images: None) -> None:
    tuning = RoundsTuning(Rounds(OF))
    cells = tuning.cells()
    finished = [
        Finished(cell, {} if k == 3 else {"round 20": 0.99 if k == 4 else 0.1 + k / 100}, 1.0, "no" if k == 3 else "")
        for k, cell in enumerate(cells)
    ]
    best = tuning.best(finished)
    assert best[DATA, PLAIN, None] == tuning._place(cells[4])[1]
    assert set(best) == {(DATA, PLAIN, None), *((DATA, name, epsilon) for name in (SGD, GD) for epsilon in (4.0, 6.0))}


def test_a_panel_has_the_study_without_noise_and_the_true_epsilon_of_the_papers(no_images: None) -> None:
    task = Rounds(OF)
    finished = [
        Finished(
            cell,
            {f"round {at}": str(0.5 + cell.trial / 10) for at in OF.settings["shown"]}
            | {"proved": None if cell.epsilon is None else cell.epsilon * (1.6 if cell.method == PAPER else 1)},
            1.0,
        )
        for cell in task.cells()
    ]
    panels = task.panels(finished)
    assert [panel.name for panel in panels] == [f"{DATA}, ε = 4", f"{DATA}, ε = 6"]
    for panel in panels:
        assert {one.name: one.role for one in panel.series} == {
            PLAIN: "reference", SGD: "oracle", PAPER: "unsound", GD: "oracle",
        }  # fmt: skip
        assert all([point.x for point in one.points] == OF.settings["shown"] for one in panel.series)
        assert all(point.mean == pytest.approx(0.6) for one in panel.series for point in one.points)
    notes = {one.name: one.points[0].note for one in panels[0].series}
    assert notes == {PLAIN: "", SGD: "", PAPER: "true ε 6.4", GD: ""}


def test_cells_depend_on_their_own_settings(no_images: None) -> None:
    chosen = {(DATA, SGD, 4.0): {"step": 1.0}}
    one, other = Rounds(OF, chosen), Rounds(OF, {(DATA, SGD, 4.0): {"step": 3.0}})
    for name, same in ((SGD, False), (PAPER, False), (GD, True)):
        cell = Cell(DATA, name, 4.0, 0)
        assert (one.depends(cell) == other.depends(cell)) is same
    longer = Rounds(replace(OF, settings={**OF.settings, "rounds": 70}), chosen)
    cell = RoundsTuning(one).cells()[0]
    assert longer.depends(Cell(DATA, PLAIN, None, 0)) != one.depends(Cell(DATA, PLAIN, None, 0))
    assert RoundsTuning(longer).depends(cell) == RoundsTuning(one).depends(cell)


def test_a_small_study_runs_from_the_file_to_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two clients, one round: settings are chosen, and each point is an accuracy."""
    pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    y = np.tile(np.arange(2.0), 12)
    X = rng.uniform(0, 1, (24, 784))
    few = SimpleNamespace(X_train=X, y_train=y, X_test=X[:20], y_test=y[:20])
    monkeypatch.setattr(federated_rounds, "images", lambda: few)
    monkeypatch.setattr(federated_rounds, "images_digest", lambda: "rows")
    monkeypatch.setattr(reproduction, "_forget_rows", lambda: None)
    monkeypatch.setattr("os.fsync", lambda handle: None)
    private: dict[str, Any] = {"name": "private", "tune": {"batch": ["all"], "step": [0.1], "clip": [1.0]}}
    like = {"name": "like it", "like": "private", "noise": "paper"}
    settings = {
        **OF.settings,
        "rounds": 1, "tuning_rounds": 1, "local_steps": 1, "shown": [1], "window": 5, "epsilons": [4],
        "clients": 2,
        "methods": [private, like],
    }  # fmt: skip
    values = reproduction.reproduce(replace(OF, settings=settings, trials=1), tmp_path, jobs=1)
    assert values["failed"] == []
    (panel,) = values["panels"]
    notes = {one["name"]: one["points"][0]["note"] for one in panel["series"]}
    assert notes["private"] == ""
    assert "true ε" in notes["like it"]
    assert all(0 <= one["points"][0]["mean"] <= 1 for one in panel["series"])
    assert values["tuned"][0]["settings"] == {"batch": "all", "step": 0.1, "clip": 1.0}
    assert values["tuned"][0]["ends"] == {}
