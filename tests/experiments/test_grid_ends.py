"""Tuned settings at an end of their grid: found, told, and written with the results."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tulle.experiments import catalogue, reproduction
from tulle.experiments.averages import mean_and_error
from tulle.experiments.fits import settings_of
from tulle.experiments.grid_ends import Chosen, describe_ends

GRID = {"n_iter": [5, 20, 60], "step": [1.0, 10.0, 100.0]}

TABLE = """
title = "A tuned table"
paper = "Nobody (never)"
kind = "fits"
metric = "squared error"
trials = 1
tuning_folds = 2
notes = ["Tuned."]

[[data]]
name = "linear"
source = "dp_ight_figure1"
arguments = { n = 60, d = 6, s = 2 }
task = "regression"
metric = "relative error"
n_nonzero = 2
bounds = { row_l2 = 4.0, row_linf = 2.0, label = 4.0 }
epsilons = [50]

[[lines]]
name = "ours (oracle-tuned, not private)"
method = "hard_thresholding"
tune = { n_iter = [1, 2, 3] }

[[lines]]
name = "printed, paper's noise (oracle-tuned, not private)"
method = "hard_thresholding"
parameters = { noise = "gaussian" }
calibration = "published"
tune = [{ n_iter = [1], step = [1e-9] }, { n_iter = [2], step = [1e-8, 1e-7] }]
grid = "printed"
tuning_folds = 1
fit_intercept = false
"""


@pytest.mark.parametrize(
    ("settings", "ends"),
    [
        ({"n_iter": 20, "step": 10.0}, {}),
        ({"n_iter": 5, "step": 10.0}, {"n_iter": "least"}),
        ({"n_iter": 60, "step": 100.0}, {"n_iter": "greatest", "step": "greatest"}),
        ({}, {}),  # the defaults
    ],
)
def test_ends_are_the_least_and_the_greatest_value_that_was_tried(settings: dict[str, Any], ends: Any) -> None:
    assert Chosen("rows", "line", 2.0, settings, [GRID]).ends() == ends


def test_several_grids_are_searched_as_one() -> None:
    """What is the end of one grid need not be one of all; a value without alternatives, or a word, is no end."""
    grids = [{"step": [1.0, 10.0], "clip": [2.0], "batch": ["all"]}, {"step": [100.0, 1000.0], "clip": [2.0]}]
    at = {
        step: Chosen("rows", "line", 2.0, {"step": step, "clip": 2.0, "batch": "all"}, grids) for step in (1, 10, 1000)
    }
    assert {step: one.ends() for step, one in at.items()} == {1: {"step": "least"}, 10: {}, 1000: {"step": "greatest"}}


def test_notes_count_and_name_the_cells_at_an_end() -> None:
    name = "DP-GD-HT (oracle-tuned, not private)"
    cells = [
        Chosen("rows", name, 2.0, {"n_iter": 60, "step": 100.0}, [GRID]),
        Chosen("rows", name, 4.0, {"n_iter": 20, "step": 100.0}, [GRID]),
        Chosen("rows", name, 6.0, {"n_iter": 20, "step": 10.0}, [GRID]),
        Chosen("rows", "as printed", 6.0, {"n_iter": 20, "step": 10.0}, [GRID], printed=True),
    ]
    assert describe_ends(cells) == (
        "Settings at an end of grids of ours: 2 of 3 tuned cells: DP-GD-HT (n_iter 60, the greatest, at ε = 2; "
        "step 100, the greatest, at ε = 2, 4).",
        "Settings at an end of the paper's grid: 0 of 1 tuned cells.",
    )
    assert describe_ends([]) == ()


def test_a_table_says_which_tuned_cells_sit_at_an_end(tmp_path: Path) -> None:
    """In its notes and in reproduction.json, from what was chosen; a paper's grid is tried without the defaults."""
    of = catalogue.stated("tuned", TABLE)
    ours, printed = of.lines
    assert settings_of(ours) == [{}, {"n_iter": 1}, {"n_iter": 2}, {"n_iter": 3}]
    assert settings_of(printed) == [
        {"n_iter": 1, "step": 1e-9},
        {"n_iter": 2, "step": 1e-8},
        {"n_iter": 2, "step": 1e-7},
    ]
    values = reproduction.reproduce(of, tmp_path, jobs=1)
    assert values["failed"] == []
    tuned = {one["line"]: one for one in values["tuned"]}
    # With steps this small the longest is the best.
    assert tuned[printed.name]["settings"] == {"n_iter": 2, "step": 1e-7}
    assert tuned[printed.name]["ends"] == {"n_iter": "greatest", "step": "greatest"}
    expected = Chosen("linear", ours.name, 50.0, tuned[ours.name]["settings"], ours.grids()).ends()
    assert tuned[ours.name]["ends"] == expected
    notes = json.loads((tmp_path / "reproduction.json").read_text())["notes"]
    assert notes[0] == "Tuned."
    assert notes[1].startswith("Settings at an end of grids of ours: ")
    assert notes[2].startswith("Settings at an end of the paper's grid: 1 of 1 tuned cells: printed, paper's noise (")
    assert notes[2] in (tmp_path / "table.md").read_text()
    log = (tmp_path / "run" / "tuning" / "log.jsonl").read_text().splitlines()
    assert len(log) == 2 * 4 + 1 * 3  # folds × settings


def test_a_fit_that_diverged_has_an_infinite_error() -> None:
    assert mean_and_error([1.0, math.inf]) == (math.inf, math.inf)
    assert mean_and_error([1.0, 3.0]) == (2.0, 1.0)


def test_what_a_line_misspells_of_its_grid_is_refused() -> None:
    for old, new, message in (
        ('grid = "printed"', 'grid = "theirs"', "grid = 'theirs' is unknown"),
        ("tuning_folds = 1", "tuning_folds = 6", "tuning_folds must lie between 1 and 5, got 6"),
    ):
        with pytest.raises(ValueError, match=message):
            catalogue.stated("tuned", TABLE.replace(old, new))
