"""`tulle fit --sample-weight --class-weight --offset --always --group`: the models that Python fits."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from commands_and_files import NAMES, N, one_line, table

from tulle import Bounds, SparseClassifier, SparseRegressor, load

RNG = np.random.default_rng(7)
SHARE, SHIFT = RNG.uniform(0, 1, N), RNG.uniform(-1, 1, N)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """The usual rows with a weight, an offset and a count each."""
    frame = table()
    frame["share"], frame["shift"] = SHARE, SHIFT
    frame["count"] = RNG.poisson(np.exp(0.5 * frame["dose"] + SHIFT))
    frame.to_csv(tmp_path / "rows.csv", index=False)
    return tmp_path / "rows.csv"


def fit(run: Any, rows: Path, *more: Any, target: str = "outcome", ignore: tuple[str, ...] = ()) -> Any:
    left = {"cost", "outcome", "triage", "count", *ignore} - {target}
    options = [word for name in sorted(left) for word in ("--ignore", name)]
    words = ["fit", rows, "--target", target, *options, "--epsilon", 2, "--row-linf", 1, "--seed", 1, "--quiet"]
    return run(*words, "-o", rows.parent / "m", *more)


def columns_of(rows: Path) -> Any:
    return pd.read_csv(rows)[[*NAMES]]


def test_weights_and_offsets_of_rows(run: Any, rows: Path) -> None:
    """Columns with a role are no features, and predictions have their offsets."""
    ran = fit(run, rows, "--sample-weight", "share", "--offset", "shift", "--offset-bound", 1, "--classes", "home,ward")
    assert (ran.code, ran.err) == (0, "")
    model = load(rows.parent / "m" / "model.npz")
    assert list(model.feature_names_in_) == [*NAMES]
    y = pd.read_csv(rows)["outcome"].to_numpy()
    expected = SparseClassifier(
        2.0, bounds=Bounds(row_linf=1.0, offset=1.0), classes=["home", "ward"], random_state=1
    ).fit(columns_of(rows).to_numpy(), y, sample_weight=SHARE, offset=SHIFT)
    np.testing.assert_array_equal(model.coef_, expected.coef_)
    assert "each clipped to [0, 1]" in " ".join(model.privacy_.assumptions)
    predicted = run("predict", rows.parent / "m", rows, "--offset", "shift", "--probabilities", "--json", "--quiet")
    np.testing.assert_allclose(
        predicted.values["probability_ward"], model.predict_proba(columns_of(rows), SHIFT)[:, 1], rtol=1e-12
    )
    plain = run("predict", rows.parent / "m", rows, "--probabilities", "--json", "--quiet")
    assert plain.values["probability_home"] != predicted.values["probability_home"]


def test_rates(run: Any, rows: Path) -> None:
    more = ("--task", "regression", "--loss", "poisson", "--label-bound", 5, "--offset", "shift", "--offset-bound", 1)
    ran = fit(run, rows, *more, target="count", ignore=("share",))
    assert (ran.code, ran.err) == (0, "")
    model = load(rows.parent / "m" / "model.npz")
    assert isinstance(model, SparseRegressor)
    out = run("predict", rows.parent / "m", rows, "--offset", "shift", "--quiet").out
    predicted = [float(line["prediction"]) for line in csv.DictReader(out.splitlines())]
    np.testing.assert_allclose(predicted, model.predict(columns_of(rows), SHIFT))


@pytest.mark.parametrize(
    ("given", "expected"), [("balanced", "balanced"), ("home=4, ward=1", {"home": 4.0, "ward": 1.0})]
)
def test_weights_of_classes(run: Any, rows: Path, given: str, expected: Any) -> None:
    ran = fit(run, rows, "--class-weight", given, ignore=("share", "shift"))
    assert (ran.code, ran.err) == (0, "")
    model = load(rows.parent / "m" / "model.npz")
    assert model.class_weight == expected
    assert any(line.release == "class counts" for line in model.privacy_.bill) == (given == "balanced")


def test_weights_of_classes_that_are_numbers(run: Any, rows: Path) -> None:
    frame = pd.read_csv(rows)
    frame["outcome"] = (frame["outcome"] == "home").astype(int)
    frame.to_csv(rows, index=False)
    ran = fit(run, rows, "--class-weight", "0=1,1=3", "--classes", "0,1", ignore=("share", "shift"))
    assert (ran.code, ran.err) == (0, "")
    assert load(rows.parent / "m" / "model.npz").class_weight == {0.0: 1.0, 1.0: 3.0}


def test_columns_that_stay_in_and_together(run: Any, rows: Path) -> None:
    ran = fit(run, rows, "--always", "age", "--n-nonzero", 2, ignore=("share", "shift"))
    assert (ran.code, ran.err) == (0, "")
    model = load(rows.parent / "m" / "model.npz")
    assert 0 in model.support_
    assert len(model.support_) == 2
    ran = fit(run, rows, "--group", "age,sodium", "--group", "dose,weight", "--n-nonzero", 1, "--replace",
              ignore=("share", "shift"))  # fmt: skip
    assert (ran.code, ran.err) == (0, "")
    assert load(rows.parent / "m" / "model.npz").support_.tolist() == [1, 3]


def test_a_column_of_a_schema_is_all_its_features(run: Any, rows: Path) -> None:
    frame = pd.read_csv(rows)
    frame["ward"] = np.resize(["north", "south", "east"], N)
    frame[["ward", "dose", "age", "outcome"]].to_csv(rows, index=False)
    ran = run(
        "fit", rows, "--target", "outcome", "--classes", "home,ward", "--categories", "ward=north,south,east",
        "--range", "dose=-1:1", "--range", "age=-1:1", "--always", "ward", "--group", "ward", "--n-nonzero", 1,
        "--epsilon", 2, "--quiet", "-o", rows.parent / "m",
    )  # fmt: skip
    assert (ran.code, ran.err) == (0, "")
    weights = list(csv.DictReader((rows.parent / "m" / "weights.csv").read_text().splitlines()))
    assert {line["feature"] for line in weights} == {"ward = north", "ward = south", "ward = east"}


def test_weights_and_offsets_beside_a_schema(run: Any, rows: Path) -> None:
    """In columns that the schema leaves out; a cell that is no number counts as 0."""
    frame = pd.read_csv(rows)[["dose", "age", "outcome", "share", "shift"]].astype({"share": object})
    frame.loc[:4, "share"] = ["", "none", "inf", "-3", "8"]
    frame.to_csv(rows, index=False)
    words = ["fit", rows, "--target", "outcome", "--classes", "home,ward", "--range", "dose=-1:1", "--range"]
    words += ["age=-1:1", "--offset-bound", 1, "--epsilon", 2, "--seed", 1, "--quiet", "-o", rows.parent / "m"]
    words += ["--sample-weight", "share", "--offset", "shift"]
    assert 'declared as "ignore"' in one_line(run(*words, "--ignore", "share", "--number", "shift=1"), "fit")
    ran = run(*words, "--ignore", "share", "--ignore", "shift")
    assert (ran.code, ran.err) == (0, "")
    X = frame[["dose", "age"]].to_numpy()
    expected = SparseClassifier(
        2.0, bounds=Bounds(row_l2=np.sqrt(2), offset=1.0), classes=["home", "ward"], random_state=1
    ).fit(X, frame["outcome"], sample_weight=np.r_[0, 0, 0, 0, 1, SHARE[5:]], offset=SHIFT)
    found = load(rows.parent / "m" / "model.npz").steps[-1][1]
    np.testing.assert_allclose(found.coef_, expected.coef_, atol=1e-6)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--sample-weight", "shares"), "no column is named 'shares'"),
        (("--offset", "shift"), "Bounds(offset=...)"),
        (("--always", "agee"), "--always: no column is named 'agee'"),
        (("--group", "age,agee"), "--group: no column is named 'agee'"),
        (("--class-weight", "home"), "must be balanced, or look like yes=5,no=1"),
        (("--class-weight", "home=x"), "must be balanced, or look like yes=5,no=1"),
        (("--class-weight", "inn=2"), "names 'inn', which is none of the classes"),
    ],
)
def test_what_is_wrong_is_said(run: Any, rows: Path, more: tuple[str, ...], words: str) -> None:
    ran = fit(run, rows, *more)
    assert words in " ".join(ran.err.split())
    assert ran.code == 2
    assert not (rows.parent / "m").exists()


def test_class_weights_are_for_classes(run: Any, rows: Path) -> None:
    more = ("--task", "regression", "--class-weight", "balanced")
    assert "for classification" in one_line(fit(run, rows, *more, target="cost"), "fit")
    sparse = run("fit", "outcome.svm", "--epsilon", 1, "--sample-weight", "share", "-o", rows.parent / "m")
    assert sparse.code == 2
