"""Rows at clients, for each trust model: how they are dealt, and what a table of them shows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_tables import forget_rows
from tiny_data import write_census

from tulle.experiments.catalogue import Published, published, stated
from tulle.experiments.dependencies import sources
from tulle.experiments.examples import Examples
from tulle.experiments.federated_clients import Clients, deal_rows
from tulle.experiments.reproduction import experiment, reproduce

OF = published("federated-rcv1")
SMALL = """
title = "A few rows at three clients"
paper = "Nobody (never)"
kind = "clients"
metric = "test error"
trials = 1

[settings]
clients = 3

[[data]]
name = "census"
source = "load_a9a"
task = "classification"
epsilons = [50]
bounds = { row_l2 = 2.0, row_linf = 1.0 }
fit_intercept = false

[[settings.methods]]
name = "central"
trust = "central"
method = "hard_thresholding"

[[settings.methods]]
name = "aggregator"
trust = "aggregator"
deal = "skewed"
method = "hard_thresholding"

[[settings.methods]]
name = "masked"
trust = "masked"
deal = "even"
colluding = 1

[[settings.methods]]
name = "curious"
trust = "curious"
deal = "even"
terms = { rounds = 2, local_steps = 1, n_nonzero = 5, clip = 0.5 }
memory = true
margin_noise = 0.28
average = 0.5
"""


@pytest.fixture
def census(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Published:
    (tmp_path / "data").mkdir()
    write_census(tmp_path / "data")
    monkeypatch.setenv("TULLE_DATA", str(tmp_path / "data"))
    forget_rows()
    return stated("small", SMALL)


@pytest.mark.parametrize("how", ["even", "skewed"])
def test_every_row_is_at_one_client(how: str) -> None:
    """Skewed: in very different numbers, and with very different shares of the classes."""
    y = np.where(np.arange(500) % 3 == 0, 1.0, -1.0)
    rows = Examples(np.arange(500.0)[:, None], y)
    parts = deal_rows(rows, 10, how, 3)
    assert sorted(np.concatenate([X[:, 0] for X, _ in parts.values()])) == list(range(500))
    assert all((own == y[X[:, 0].astype(int)]).all() for X, own in parts.values())
    sizes = [len(own) for _, own in parts.values()]
    shares = [float(np.mean(own == 1.0)) for _, own in parts.values() if len(own)]
    if how == "even":
        assert set(sizes) == {50}
        assert max(shares) - min(shares) < 0.35
    else:
        assert max(sizes) > 3 * min(sizes)
        assert max(shares) - min(shares) > 0.5
    again, other = deal_rows(rows, 10, how, 3), deal_rows(rows, 10, how, 4)
    assert all((parts[name][0] == again[name][0]).all() for name in parts)
    assert any(len(parts[name][0]) != len(other[name][0]) or (parts[name][0] != other[name][0]).any() for name in parts)


def test_a_small_table_runs_from_the_file_to_the_page(census: Published, tmp_path: Path) -> None:
    """A trusted aggregator has the central fit's error; only settings that were chosen on rows are called so."""
    pytest.importorskip("cryptography")
    values = reproduce(census, tmp_path / "small", jobs=1)
    assert values["failed"] == []
    [panel] = values["panels"]
    assert {one["name"]: one["role"] for one in panel["series"]} == {
        "central": "honest", "aggregator": "honest", "masked": "honest", "curious": "oracle",
    }  # fmt: skip
    found = {one["name"]: one["points"][0]["mean"] for one in panel["series"]}
    assert found["aggregator"] == found["central"]
    assert all(0 <= error <= 0.5 for name, error in found.items() if name != "curious")


def test_cells_depend_on_their_own_settings(census: Published) -> None:
    """The number of clients changes nothing of a central fit; trials have the same rows and noise for all lines."""
    task = Clients(census)
    central, *others = task.cells()
    more = Clients(replace(census, settings={**census.settings, "clients": 4}))
    assert more.depends(central) == task.depends(central)
    assert all(more.depends(cell) != task.depends(cell) for cell in others)
    methods = [{**one, "average": 0.2} if "average" in one else one for one in census.settings["methods"]]
    averaged = Clients(replace(census, settings={**census.settings, "methods": methods}))
    assert [cell.method for cell in task.cells() if averaged.depends(cell) != task.depends(cell)] == ["curious"]
    renamed = replace(census, settings={**census.settings, "methods": [{**methods[0], "name": "other"}, *methods[1:]]})
    assert Clients(renamed).depends(Clients(renamed).cells()[0]) == averaged.depends(central)


def test_code_that_cells_depend_on_has_their_methods() -> None:
    task = experiment(OF)
    needed = {cell.method: sources().needed(task.sources(cell)) for cell in task.cells()}
    assert "tulle.methods.fit_again" in needed["central, default method"]
    assert "tulle.methods.masked_default" in needed["masked sums, default method"]
    assert "tulle.federated.server_side.simulation" in needed["curious server, even clients"]


def test_the_page_has_every_line_at_every_epsilon() -> None:
    assert len(experiment(OF).cells()) == 7 * 5 * 3
    assert len(experiment(OF.faster()).cells()) == 7


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('trust = "masked"', 'trust = "mask"', "trust = 'mask' of masked is unknown; choose among central"),
        ('trust = "masked"\n', "", "trust = 'nothing' of masked is unknown"),
        ('deal = "skewed"', 'deal = "skew"', "deal = 'skew' of aggregator is unknown; choose among even, skewed"),
        ('deal = "skewed"\n', "", "deal = 'nothing' of aggregator is unknown"),
    ],
)
def test_what_a_file_misspells_is_refused(old: str, new: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Clients(stated("small", SMALL.replace(old, new, 1)))


def test_rows_of_one_data_set_are_dealt(census: Published) -> None:
    with pytest.raises(ValueError, match="clients share the rows of one data set, got 2"):
        Clients(replace(census, data=census.data * 2))
