"""`tulle fit --private-scaler` and `--private-weights`: folders of blocks, and cells without a value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from commands_and_files import one_line

from tulle import PrivatePipeline, load

# A loaded model has the names of its columns, and what steps made has none.
pytestmark = pytest.mark.filterwarnings("ignore:X does not have valid feature names:UserWarning")

N = 600
SETTINGS = ["--epsilon", 8, "--seed", 1, "--quiet"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows in different units without gaps and with some, and counts of words."""
    folder = tmp_path_factory.mktemp("steps")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 3)) * [1, 1e4, 1e-2]
    whole = pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=np.where(X[:, 1] > 0, "up", "down"))
    whole.to_csv(folder / "whole.csv", index=False)
    gaps = whole.copy()
    gaps.loc[::7, "a"], gaps.loc[3, "c"], gaps.loc[N // 2 :: 5, "b"] = np.nan, np.inf, np.nan
    gaps.to_csv(folder / "gaps.csv", index=False)
    gaps.to_parquet(folder / "gaps.parquet")
    counts = rng.poisson(0.5, (N, 30))
    lines = [f"{label} " + " ".join(f"{j + 1}:{n}" for j, n in enumerate(row) if n) for label, row in
             zip(np.where(counts[:, 0] > 0, 1, -1), counts)]  # fmt: skip
    (folder / "words.svm").write_text("\n".join(lines))
    return folder


@pytest.mark.parametrize(
    ("file", "reading", "fitting", "option"),
    [
        ("whole.csv", ["--target", "y"], ["--classes", "down,up"], "--private-scaler"),
        ("words.svm", ["--n-features", 30], ["--task", "classification", "--classes", "-1,1"], "--private-weights"),
    ],
)
def test_a_folder_of_blocks_is_fitted_as_its_file(
    run: Any, place: Path, tmp_path: Path, file: str, reading: list[Any], fitting: list[Any], option: str
) -> None:
    """The same model, bill and predictions; the report says who saw the rows."""
    assert run("convert", place / file, tmp_path / "blocks", "--rows-per-block", 130, "--quiet", *reading).code == 0
    fitting = [f"--classes={fitting[-1]}" if word == "--classes" else word for word in fitting[:-1]]
    here = run("fit", place / file, *reading, *fitting, option, *SETTINGS, "-o", tmp_path / "here")
    there = run("fit", tmp_path / "blocks", *fitting, option, *SETTINGS, "-o", tmp_path / "there")
    assert (here.code, here.err, there.code, there.err) == (0, "", 0, "")
    weights, privacy = (
        [(tmp_path / side / name).read_text() for side in ("here", "there")] for name in ("weights.csv", "privacy.json")
    )
    assert weights[0] == weights[1]
    reports = [json.loads(text) for text in privacy]
    saw = [report.pop("who_saw_what") for report in reports]
    for report in reports:
        report.pop("about", None)
    assert reports[0] == reports[1]
    assert "read the rows from a folder" in saw[1][0]
    assert type(load(tmp_path / "there")) is PrivatePipeline
    said = [
        run("predict", tmp_path / "there", rows, "--quiet", "--json") for rows in (place / file, tmp_path / "blocks")
    ]
    assert said[0].values["prediction"] == said[1].values["prediction"]
    assert len(set(said[0].values["prediction"])) == 2


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_private_scaler_fills_cells_without_a_value(run: Any, place: Path, tmp_path: Path, kind: str) -> None:
    """At fit and at predict."""
    words = [place / f"gaps.{kind}", "--target", "y", "--classes", "down,up", "--private-scaler"]
    ran = run("fit", *words, *SETTINGS, "-o", tmp_path / "m")
    assert (ran.code, ran.err) == (0, "")
    frame = pd.read_csv(place / "gaps.csv")
    done = run("predict", tmp_path / "m", place / f"gaps.{kind}", "--quiet", "--json")
    found = np.array(done.values["prediction"])
    assert found.tolist() == load(tmp_path / "m").predict(frame[["a", "b", "c"]].to_numpy()).tolist()
    assert np.mean((found == frame["y"])[frame["b"].notna()]) > 0.9


def test_without_it_they_are_refused_with_the_way_out(run: Any, place: Path, tmp_path: Path) -> None:
    for more in (["--row-linf", 1], ["--private-weights"]):
        ran = run("fit", place / "gaps.csv", "--target", "y", *SETTINGS, "-o", tmp_path / "m", *more)
        message = one_line(ran, "fit")
        assert "cell has no value" in message
        assert "with a schema, and privately with --private-scaler" in message
    assert (
        run("fit", place / "whole.csv", "--target", "y", "--private-weights", *SETTINGS, "-o", tmp_path / "m").code == 0
    )
    assert "cell has no value" in one_line(run("predict", tmp_path / "m", place / "gaps.csv", "--quiet"), "predict")


def test_behind_a_schema_nothing_is_left_to_scale(run: Any, place: Path, tmp_path: Path) -> None:
    columns = [
        "--range",
        "a=-3:3",
        "--range",
        "b=-3e4:3e4",
        "--range",
        "c=-1:1",
        "--target",
        "y",
        "--classes",
        "down,up",
    ]
    ran = run("fit", place / "gaps.csv", *columns, "--private-scaler", *SETTINGS, "-o", tmp_path / "m")
    assert "a schema scales columns by what it declares, and fills blanks; omit" in one_line(ran, "fit")
    assert run("fit", place / "gaps.csv", *columns, *SETTINGS, "-o", tmp_path / "m").code == 0


def test_sparse_files_are_for_weights(run: Any, place: Path, tmp_path: Path) -> None:
    words = ["--task", "classification", "--classes=-1,1", "--n-features", 30, "--private-scaler"]
    ran = run("fit", place / "words.svm", *words, *SETTINGS, "-o", tmp_path / "m")
    assert "Words and codes are for PrivateWeights" in one_line(ran, "fit")
    assert not (tmp_path / "m" / "model.npz").exists()
