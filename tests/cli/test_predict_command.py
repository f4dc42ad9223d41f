"""`tulle predict`."""

from __future__ import annotations

import csv
import io
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from commands_and_files import NAMES, Ran, one_line, table

from tulle import load


def predictions(ran: Ran) -> list[str]:
    assert (ran.code, ran.err) == (0, "")
    return [line["prediction"] for line in csv.DictReader(io.StringIO(ran.out))]


@pytest.mark.parametrize("kind", ["outcome", "triage", "cost"])
def test_predictions_are_the_models(run: Any, place: Path, tmp_path: Path, kind: str) -> None:
    """On standard output, in JSON and in a file; by folder or by the model's file."""
    frame = table(1, 50)
    frame[[*NAMES]].to_csv(tmp_path / "new.csv", index=False)
    model = load(place / f"m_{kind}" / "model.npz")
    expected = model.predict(frame[[*NAMES]]).tolist()
    words = ("predict", place / f"m_{kind}", tmp_path / "new.csv", "--quiet")
    assert predictions(run(*words)) == [str(value) for value in expected]
    assert run(*words, "--json").values == {"n_rows": 50, "prediction": expected}
    ran = run("predict", place / f"m_{kind}" / "model.npz", *words[2:], "-o", tmp_path / "out.csv")
    assert ran.out == f"Predicted 50 rows: {tmp_path / 'out.csv'}\n"
    written = pd.read_csv(tmp_path / "out.csv")["prediction"].tolist()
    assert written == (pytest.approx(expected, rel=1e-12) if kind == "cost" else expected)


def test_probabilities(run: Any, place: Path, tmp_path: Path) -> None:
    """One column a class, which add up to 1; a regression has none."""
    frame = table(1, 50)[[*NAMES]]
    frame.to_csv(tmp_path / "new.csv", index=False)
    values = run("predict", place / "m_triage", tmp_path / "new.csv", "--probabilities", "--json", "--quiet").values
    expected = load(place / "m_triage" / "model.npz").predict_proba(frame)
    found = [values[f"probability_{name}"] for name in ("green", "red", "yellow")]
    np.testing.assert_array_equal(np.transpose(found), expected)
    assert np.sum(found, axis=0) == pytest.approx(1.0)
    message = one_line(run("predict", place / "m_cost", tmp_path / "new.csv", "--probabilities", "--quiet"), "predict")
    assert "this model has no probabilities" in message


def test_margins(run: Any, place: Path, tmp_path: Path) -> None:
    """One column for two classes, otherwise one a class; with probabilities, too. A regression has none."""
    frame = table(1, 50)[[*NAMES]]
    frame.to_csv(tmp_path / "new.csv", index=False)
    words = (tmp_path / "new.csv", "--margins", "--quiet")
    values = run("predict", place / "m_outcome", *words, "--probabilities", "--json").values
    expected = load(place / "m_outcome" / "model.npz").decision_function(frame)
    assert list(values) == ["n_rows", "prediction", "probability_home", "probability_ward", "margin"]
    assert values["margin"] == expected.tolist()
    of_second = np.log(values["probability_ward"]) - np.log(values["probability_home"])
    np.testing.assert_allclose(values["margin"], of_second, rtol=1e-9)
    values = run("predict", place / "m_triage", *words, "--json").values
    found = np.transpose([values[f"margin_{name}"] for name in ("green", "red", "yellow")])
    np.testing.assert_array_equal(found, load(place / "m_triage" / "model.npz").decision_function(frame))
    assert "this model has no margins" in one_line(run("predict", place / "m_cost", *words), "predict")


def test_columns_are_found_by_name(run: Any, place: Path, tmp_path: Path) -> None:
    """In another order, with others between them and with the target still there: the same predictions."""
    frame = table(1, 50)
    frame[[*NAMES]].to_csv(tmp_path / "plain.csv", index=False)
    frame["extra"] = "words"
    frame[["outcome", "weight", "extra", "sodium", "age", "cost", "dose"]].to_csv(tmp_path / "mixed.csv", index=False)
    words = ("predict", place / "m_outcome")
    expected = predictions(run(*words, tmp_path / "plain.csv", "--quiet"))
    assert predictions(run(*words, tmp_path / "mixed.csv", "--quiet")) == expected
    assert set(expected) == {"home", "ward"}
    frame[["age", "doses", "weight"]] = frame[["age", "dose", "weight"]]
    frame[["age", "doses", "weight"]].to_csv(tmp_path / "fewer.csv", index=False)
    message = one_line(run(*words, tmp_path / "fewer.csv", "--quiet"), "predict")
    assert "2 of 4 features are missing: " in message
    assert "dose" in message


def test_files_without_names_must_have_the_models_features(run: Any, place: Path, tmp_path: Path) -> None:
    """As many as the model has, in its order; otherwise refused."""
    X = table(1, 50)[[*NAMES]].to_numpy()
    np.savez(tmp_path / "right.npz", X=X)
    sp.save_npz(tmp_path / "sparse.npz", sp.csr_matrix(X))
    np.savez(tmp_path / "wide.npz", X=np.hstack([X, X]))
    expected = load(place / "m_outcome" / "model.npz").predict(pd.DataFrame(X, columns=NAMES)).tolist()
    for name in ("right.npz", "sparse.npz"):
        assert predictions(run("predict", place / "m_outcome", tmp_path / name, "--quiet")) == expected
    assert "8 features, expected 4" in one_line(
        run("predict", place / "m_outcome", tmp_path / "wide.npz", "--quiet"), "predict"
    )


def test_files_without_a_header(run: Any, place: Path, tmp_path: Path) -> None:
    """Columns are numbers then: the target is named by its place, and left out by --ignore where it is still there."""
    table()[[*NAMES, "outcome"]].to_csv(tmp_path / "rows.csv", index=False, header=False)
    words = ("--epsilon", 3, "--row-linf", 1, "--quiet", "--no-header")
    assert run("fit", tmp_path / "rows.csv", "--target", 4, *words, "-o", tmp_path / "m").code == 0
    model = load(tmp_path / "m" / "model.npz")
    ran = run("predict", tmp_path / "m", tmp_path / "rows.csv", "--no-header", "--quiet", "--ignore", 4)
    X = table()[[*NAMES]].to_numpy()
    assert predictions(ran) == model.predict(X).tolist()


def test_no_file_is_overwritten_by_accident(run: Any, place: Path, tmp_path: Path) -> None:
    """Neither the rows nor the model; nor is a place that cannot be written found out at the end."""
    shutil.copytree(place / "m_outcome", tmp_path / "m")
    shutil.copy(place / "outcome.csv", tmp_path / "rows.csv")
    words = ("predict", tmp_path / "m", tmp_path / "rows.csv", "--quiet", "-o")
    for output in (tmp_path / "rows.csv", tmp_path / "m" / "model.npz"):
        before = output.read_bytes()
        assert "would be overwritten; choose another file" in one_line(run(*words, output), "predict")
        assert output.read_bytes() == before
    assert "its folder does not exist" in one_line(run(*words, tmp_path / "nowhere" / "x.csv"), "predict")
    assert "it is a folder" in one_line(run(*words, tmp_path), "predict")


@pytest.mark.skipif(os.name == "nt", reason="links and pipes of POSIX")
@pytest.mark.parametrize("kind", ["pipe", "link to a pipe", "link to a file", "link to nothing"])
def test_a_device_or_a_link_is_never_replaced(run: Any, place: Path, tmp_path: Path, kind: str) -> None:
    """A file is replaced as a whole, so that -o /dev/null, given by root, would take it away from everybody."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_text("kept")
    output = tmp_path / kind
    if kind != "pipe":
        output.symlink_to(tmp_path / kind.rpartition(" ")[2])
    before = output.lstat()
    words = ("predict", place / "m_outcome", place / "outcome.csv", "--quiet", "-o", output)
    assert "only a plain file can be replaced" in one_line(run(*words), "predict")
    assert output.lstat() == before
    assert (tmp_path / "file").read_text() == "kept"


def test_what_is_no_model(run: Any, place: Path, tmp_path: Path) -> None:
    """A folder without one, a file of rows, a damaged file: one line each."""
    rows = place / "outcome.csv"
    assert "does not exist; pass a folder written by tulle fit" in one_line(run("predict", tmp_path, rows), "predict")
    assert "is not a tulle model file" in one_line(run("predict", rows, rows), "predict")
    assert "is not a tulle model file" in one_line(run("predict", place / "outcome.npz", rows), "predict")
    (tmp_path / "model.npz").write_bytes((place / "m_outcome" / "model.npz").read_bytes()[:-20])
    assert "is not a tulle model file, or is damaged" in one_line(run("predict", tmp_path, rows), "predict")
