"""Summaries, intervals of predictions, files and pages of models with intervals."""

from __future__ import annotations

import csv
import importlib.util
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from interval_fits import LOSSES, draw, model
from pages import ROOT
from scipy.special import expit

from tulle import Bounds, Schema, SparseClassifier, load, save
from tulle.cli import main
from tulle.estimators.saving import KIND, VERSION
from tulle.files.archive import ArchiveError, read_archive, write_archive
from tulle.inference.evidence import Evidence
from tulle.inference.weight_summary import FIXED_BEFOREHAND, INTERCEPT, summarise
from tulle.reports.pages import fit_page
from tulle.reports.report import About


@pytest.fixture(scope="module")
def fitted() -> Any:
    return model("logistic", 8.0).fit(*draw("logistic", 4000, 0))


def evidence(**changes: Any) -> Evidence:
    base = Evidence(
        features=np.array([1, 3]),
        estimates=np.array([0.5, -1.0, 0.25]),
        covariance=np.array([[0.04, 0.01, 0.0], [0.01, 0.09, 0.0], [0.0, 0.0, 0.01]]),
        sampling=np.array([0.01, 0.09, 0.0025]),
        freedom=np.array([1e12, 10.0, 1e12]),
        determined=np.ones(3, dtype=bool),
        choice="fixed",
        n_rows=100,
    )
    return replace(base, **changes)


NAMES = ["a", "b", "c", "d"]


def test_a_line_is_what_textbooks_say() -> None:
    first, second, intercept = summarise(evidence(), NAMES).lines
    assert (first.name, second.name, intercept.name) == ("b", "d", INTERCEPT)
    assert first.standard_error == pytest.approx(0.2)
    assert (first.low, first.high) == pytest.approx((0.5 - 1.96 * 0.2, 0.5 + 1.96 * 0.2), abs=1e-4)
    assert first.p_value == pytest.approx(0.01242, abs=1e-5)  # of 2.5 standard errors
    assert first.privacy_share == pytest.approx(0.5)
    # Student's t with ten degrees of freedom.
    assert second.high - second.estimate == pytest.approx(2.2281 * 0.3, abs=1e-4)
    assert second.privacy_share == 0


def test_other_levels() -> None:
    narrow, wide = (summarise(evidence(), NAMES, level).lines[0] for level in (0.5, 0.99))
    assert narrow.high - narrow.estimate == pytest.approx(0.67449 * 0.2, abs=1e-4)
    assert wide.high - wide.estimate == pytest.approx(2.57583 * 0.2, abs=1e-4)
    for level in (0.0, 1.0, math.nan, "95"):
        with pytest.raises(ValueError, match="level must lie in"):
            summarise(evidence(), NAMES, level)  # type: ignore[arg-type]


def test_units_of_the_users_columns() -> None:
    """feature = (value - middle) / half, so that weight × feature = weight / half × value - weight × middle / half."""
    middles, halves = np.array([0.0, 50.0, 0.0, 0.0]), np.array([1.0, 10.0, 1.0, 4.0])
    first, second, intercept = summarise(evidence(), NAMES, units=(middles, halves)).lines
    assert (first.estimate, first.standard_error) == pytest.approx((0.05, 0.02))
    assert (second.estimate, second.standard_error) == pytest.approx((-0.25, 0.075))
    assert intercept.estimate == pytest.approx(0.25 - 0.5 * 5)
    assert intercept.standard_error == pytest.approx(math.sqrt(0.01 + 25 * 0.04))
    assert math.isnan(intercept.privacy_share)


def curved(on_line: float, error: float) -> Evidence:
    """The first weight on the curve of a feature of one sign, which cannot be below -1 on the line; others straight."""
    lines = np.array([[on_line, -1.0, 0.25], [error, 0.3, 0.1]])
    return evidence(
        curves=np.vstack([lines, np.zeros((2, 3)), [[1.0, 0.0, 0.0]], np.zeros((1, 3))]), curve_kind="poisson"
    )


def test_an_intercept_that_depends_on_an_open_weight_has_no_interval() -> None:
    middles, halves = np.array([0.0, 50.0, 0.0, 0.0]), np.array([1.0, 10.0, 1.0, 4.0])
    summary = summarise(curved(-0.9, 0.2), NAMES, units=(middles, halves))
    first, second, intercept = summary.lines
    assert (first.low, math.isfinite(first.high)) == (-math.inf, True)
    assert math.isfinite(second.low)
    assert all(math.isnan(value) for value in (intercept.standard_error, intercept.low, intercept.high))
    assert any("intercept that depends" in note for note in summary.notes)
    # One that does not depend on it has its own.
    assert summarise(curved(-0.9, 0.2), NAMES, units=(0 * middles, halves)).lines[2].high == pytest.approx(
        0.446, abs=1e-3
    )


def test_an_interval_beyond_the_range_of_slopes_is_none() -> None:
    summary = summarise(curved(-2.0, 0.2), NAMES)
    assert math.isnan(summary.lines[0].low)
    assert math.isnan(summary.lines[0].high)
    assert any("No interval (–)" in note for note in summary.notes)


def test_ratios() -> None:
    summary = summarise(evidence(), NAMES, ratio="odds ratio")
    assert [line.name for line in summary.lines] == ["b", "d"]
    assert summary.lines[0].estimate == pytest.approx(math.exp(0.5))
    assert summary.lines[0].low == pytest.approx(math.exp(0.5 - 1.96 * 0.2), rel=1e-3)
    assert summary.lines[0].standard_error == pytest.approx(0.2 * math.exp(0.5))
    assert summary.null_value == 1.0


def test_chosen_by_the_same_rows_there_are_no_p_values() -> None:
    summary = summarise(evidence(choice="same rows"), NAMES)
    assert all(math.isnan(line.p_value) for line in summary.lines)
    assert FIXED_BEFOREHAND in summary.notes
    assert "fixed beforehand" in str(summary)
    assert FIXED_BEFOREHAND not in summarise(evidence(choice="split"), NAMES).notes


def test_what_is_not_determined_has_no_interval() -> None:
    summary = summarise(evidence(determined=np.array([True, False, True])), NAMES)
    first, second, _ = summary.lines
    assert math.isfinite(first.low)
    assert second.estimate == -1.0
    assert all(math.isnan(value) for value in (second.standard_error, second.low, second.high, second.p_value))
    assert "–" in str(summary)
    none = summarise(evidence(determined=np.zeros(3, dtype=bool)), NAMES)
    assert any("does not stand out of its noise" in note for note in none.notes)


def test_its_forms(fitted: Any) -> None:
    summary = fitted.summary(names=["age", "<b>", "c & d"])
    frame = summary.to_frame()
    assert isinstance(frame, pd.DataFrame)
    assert frame.index.tolist() == ["age", "<b>", "c & d", INTERCEPT]
    assert frame.loc["age", "low"] < frame.loc["age", "estimate"] < frame.loc["age", "high"]
    assert "&lt;b&gt;" in summary._repr_html_()
    assert "<b>" not in summary._repr_html_()
    assert str(summary).splitlines()[0].split()[:2] == ["feature", "weight"]
    with pytest.raises(ValueError, match="one name for each"):
        fitted.summary(names=["a"])


def test_ratios_are_for_losses_that_have_them(fitted: Any) -> None:
    assert fitted.summary(ratios=True).scale == "odds ratio"
    with pytest.raises(ValueError, match="ratios=True"):
        model("squared", 8.0).fit(*draw("squared", 2000, 0)).summary(ratios=True)


@pytest.mark.parametrize("loss", LOSSES)
def test_intervals_of_predictions(loss: str) -> None:
    """At the average row they are those of the intercept, and they hold the prediction."""
    X, y = draw(loss, 4000, 0)
    fitted = model(loss, 8.0).fit(X, y)
    new = np.vstack([np.zeros(3), X[:20]])
    ends = fitted.predict_interval(new)
    assert ends.shape == (21, 2)
    middle = fitted.predict_proba(new)[:, 1] if loss == "logistic" else fitted.predict(new)
    assert np.all((ends[:, 0] < middle) & (middle < ends[:, 1]))
    mean = {"logistic": expit, "squared": lambda m: m, "poisson": np.exp}[loss]
    line = fitted.summary().lines[-1]
    np.testing.assert_allclose(ends[0], mean(np.array([line.low, line.high])), rtol=0.02)
    narrow = fitted.predict_interval(new, level=0.5)
    assert np.all((narrow[:, 0] > ends[:, 0]) & (narrow[:, 1] < ends[:, 1]))


def test_intervals_of_predictions_normalise_as_predictions_do() -> None:
    X, y = draw("logistic", 4000, 0)
    fitted = model("logistic", 8.0, bounds=Bounds(normalise=True)).fit(X, y)
    np.testing.assert_allclose(fitted.predict_interval(X[:5]), fitted.predict_interval(7 * X[:5]), rtol=1e-9)


# --- files ---


@pytest.mark.parametrize("kind", ["fixed", "chosen"])
def test_a_saved_model_has_the_same_intervals(kind: str, tmp_path: Path) -> None:
    d, settings = (3, {}) if kind == "fixed" else (30, {"n_nonzero": 4})
    X, y = draw("logistic", 2000, 1, d)
    before = model("logistic", 8.0, **settings).fit(X, y)
    save(before, tmp_path / "model.npz")
    after = load(tmp_path / "model.npz")
    assert after.summary() == before.summary()
    np.testing.assert_array_equal(after.predict_interval(X[:5]), before.predict_interval(X[:5]))
    assert after.inference is True


def test_a_model_without_intervals_can_be_read_by_older_versions(tmp_path: Path) -> None:
    save(model("logistic", 8.0, inference=False).fit(*draw("logistic", 500, 1)), tmp_path / "model.npz")
    header, _ = read_archive(tmp_path / "model.npz", KIND, 3)
    assert "inference" not in header
    assert "inference" not in header["settings"]


@pytest.mark.parametrize(
    ("part", "value", "words"),
    [
        ("covariance", -np.eye(4), "covariance"),
        ("covariance", np.eye(3), "do not go together"),
        ("covariance", np.full((4, 4), np.nan), "do not go together"),
        ("freedom", np.zeros(4), "degrees of freedom"),
        ("features", np.array([0, 1, 7]), "features that it does not have"),
        ("features", np.array([0, 1, 1]), "features that it does not have"),
        ("estimates", np.zeros(4), "other weights"),
        ("determined", np.ones(4), "do not go together"),
        ("more", np.ones(4), "which no model has"),
        ("curves", np.zeros((5, 4)), "their curves do not go together"),
        ("curves", np.full((6, 4), np.inf), "their curves do not go together"),
        ("curves", -np.ones((6, 4)), "their curves do not go together"),
    ],
    ids=str,
)
def test_forged_files_are_refused(part: str, value: Any, words: str, fitted: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    save(fitted, path)
    header, arrays = read_archive(path, KIND, VERSION)
    del header["format"]
    write_archive(path, KIND, VERSION, header, {**arrays, f"inference_{part}": value})
    with pytest.raises(ArchiveError, match=words):
        load(path)


@pytest.mark.parametrize(
    "values",
    [
        {"choice": "none", "n_rows": 5},
        {"choice": "fixed", "n_rows": 0},
        {"choice": "fixed", "n_rows": 5, "curve_kind": "cubic"},
        {},
    ],
    ids=str,
)
def test_forged_headers_are_refused(values: Any, fitted: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    save(fitted, path)
    header, arrays = read_archive(path, KIND, VERSION)
    del header["format"]
    write_archive(path, KIND, VERSION, {**header, "inference": values}, arrays)
    with pytest.raises(ArchiveError):
        load(path)


# --- pages and the command line ---


def test_the_page_has_a_forest_plot(fitted: Any) -> None:
    page = fit_page(fitted, About(title="a model"))
    assert "forest-wide-title" in page
    assert "The weights with intervals" in page
    unsure = model("logistic", 0.2)
    with pytest.warns(UserWarning, match="rows are few"):
        unsure.fit(*draw("logistic", 200, 0))
    page = fit_page(unsure, About(title="a model"))
    assert "forest-wide-title" not in page
    assert "does not stand out of its noise" in page


def patients(n: int) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    age, smoker = rng.uniform(30, 90, n), rng.choice(["no", "yes"], n)
    odds = -0.5 + 0.04 * (age - 60) + 0.8 * (smoker == "yes")
    back = np.where(rng.random(n) < expit(odds), "yes", "no")
    return pd.DataFrame({"age": age, "smoker": smoker, "readmitted": back})


SCHEMA = """[columns]
age = { range = [18, 100] }
smoker = "boolean"

[target]
column = "readmitted"
classes = ["no", "yes"]
"""


def test_a_schema_gives_units(tmp_path: Path) -> None:
    """The weight of age is per year, and that of the feature, per 41 years, 41 times as large."""
    (tmp_path / "columns.toml").write_text(SCHEMA)
    schema, table = Schema.from_file(tmp_path / "columns.toml"), patients(6000)
    X = schema.fit_transform(table)
    bounds = Bounds(row_l2=schema.row_l2)
    fitted = SparseClassifier(4.0, bounds=bounds, classes=schema.classes, inference=True, random_state=0)
    fitted.fit(X, schema.labels(table))
    per_year, per_feature = fitted.summary(schema=schema).lines[0], fitted.summary().lines[0]
    assert per_year.name == "age"
    assert per_feature.estimate == pytest.approx(41 * per_year.estimate)
    assert per_year.low < 0.04 < per_year.high


def test_the_command_writes_intervals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "columns.toml").write_text(SCHEMA)
    patients(6000).to_csv(tmp_path / "visits.csv", index=False)
    folder = tmp_path / "model"
    arguments = [
        str(tmp_path / "visits.csv"),
        "--schema",
        str(tmp_path / "columns.toml"),
        "--epsilon",
        "4",
        "--seed",
        "1",
    ]
    assert main(["fit", *arguments, "--intervals", "-o", str(folder)]) == 0
    printed = capsys.readouterr().out
    assert "std. error" in printed
    assert "intervals.csv" in printed
    with (folder / "intervals.csv").open(newline="") as file:
        lines = {line["feature"]: line for line in csv.DictReader(file)}
    assert float(lines["age"]["low"]) < 0.04 < float(lines["age"]["high"])
    written = (folder / "report.html").read_text(encoding="utf-8")
    assert "forest-wide-title" in written
    assert main(["report", str(folder)]) == 0
    again = (folder / "report.html").read_text(encoding="utf-8")
    assert written.count("<tr>") == again.count("<tr>")
    # The folder of a model without intervals has none of another one.
    assert main(["fit", *arguments, "--replace", "-o", str(folder)]) == 0
    assert not (folder / "intervals.csv").exists()


def test_the_tables_of_the_page_are_those_that_were_measured() -> None:
    """`python benchmarks/inference.py tables` was run after the last measurement."""
    spec = importlib.util.spec_from_file_location("inference_benchmark", ROOT / "benchmarks" / "inference.py")
    assert spec is not None
    assert spec.loader is not None
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    for name, lines in benchmark.tables().items():
        assert "\n".join(lines) in benchmark.PAGES[name].read_text(encoding="utf-8")
        assert len(lines) > 4
