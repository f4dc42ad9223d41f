"""Names of features, classes and clients that look like formulas reach no CSV file as formulas."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tulle.cli.federated_output import RoundLog
from tulle.federated.server_side.federated_fit import RoundRecord

BAD = ['=cmd|"/c calc"!A0', "@SUM(A1)", "-dose", "+more"]
CLASSES = ["=yes", "-no"]


def lines_of(path: Path) -> list[list[str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.uniform(-1, 1, (400, 4)), columns=BAD)
    frame["=target"] = np.where(frame[BAD[0]] > frame[BAD[1]], *CLASSES)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    return tmp_path / "rows.csv"


def test_weights_intervals_and_predictions_hold_no_formula(run: Any, rows: Path, tmp_path: Path) -> None:
    """And the model itself knows columns and classes by their names, so that its own rows are still predicted."""
    model = tmp_path / "model"
    words = ("fit", rows, "--target", "=target", "--epsilon", 3, "--row-linf", 1, "--quiet", "-o", model)
    assert run(*words, "--intervals").code == 0
    for name in ("weights.csv", "intervals.csv"):
        cells = [cell for line in lines_of(model / name)[1:] for cell in line]
        named = {cell for cell in cells if cell.lstrip("'") in BAD}
        assert named == {f"'{name}" for name in BAD}
        assert any(cell.startswith("-") for cell in cells)  # negative numbers are numbers
    out = tmp_path / "predictions.csv"
    assert run("predict", model, rows, "--ignore", "=target", "--probabilities", "-o", out).code == 0
    header, *lines = lines_of(out)
    assert header == ["prediction", *(f"probability_{name}" for name in sorted(CLASSES))]
    assert {line[0] for line in lines} == {f"'{name}" for name in CLASSES}
    shown = run("predict", model, rows, "--ignore", "=target")
    assert set(shown.out.splitlines()[1:]) == {f"'{name}" for name in CLASSES}


def test_the_log_of_rounds_holds_no_formula(tmp_path: Path) -> None:
    with RoundLog(tmp_path / "rounds.csv", 1, False, lambda line: None) as log:
        log.add(RoundRecord(1, ("=ward",), ("-clinic",), {"@late": 1}, 0.5, 10), None)
    header, line = lines_of(tmp_path / "rounds.csv")
    assert header[0] == "round"
    assert line[1:3] == ["'=ward", "'-clinic"]
