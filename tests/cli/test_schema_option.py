"""Raw tables: `tulle schema`, `tulle fit --schema`, short options, private steps, and `tulle predict` on raw rows."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from commands_and_files import one_line
from test_raw_damage import damaged

from tulle import PrivatePipeline, Schema, load
from tulle.cli.model_folder import proved
from tulle.estimators.saving import load_saved

N = 400

SCHEMA = """\
[columns]
age = { range = [18, 95], indicator = true }
job = { categories = ["clerk", "nurse"], other = true }
seen = { date = ["2015-01-01", "2026-12-31"], unit = "year" }
note = { text = 6 }
smoker = "boolean"
id = "ignore"

[target]
column = "outcome"
classes = ["no", "yes"]
"""


def visits(seed: int = 0, n: int = N) -> pd.DataFrame:
    """A table of words, dates, booleans, blanks, and a line break and commas in cells."""
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 96, n)
    return pd.DataFrame(
        {
            "id": [f"p{k}" for k in range(n)],
            "age": np.where(rng.random(n) < 0.1, "unknown", age.astype(str)),
            "job": rng.choice(["clerk", "nurse", "pilot, retired", ""], n),
            "seen": pd.Timestamp("2016-01-01") + pd.to_timedelta(rng.integers(0, 3000, n), unit="D"),
            "note": rng.choice(["well\nand good", "pain, fever", "ß Ł 語"], n),
            "smoker": rng.choice(["yes", "no", "?"], n),
            "outcome": np.where(age > 56, "yes", "no"),
        }
    )


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the table as CSV and Parquet, new rows without a target, and the schema."""
    folder: Path = tmp_path_factory.mktemp("raw")
    visits().to_csv(folder / "visits.csv", index=False)
    visits().to_parquet(folder / "visits.parquet")
    visits(1, 50).drop(columns=["outcome", "id"]).assign(more="x").to_csv(folder / "new.csv", index=False)
    (folder / "columns.toml").write_text(SCHEMA, encoding="utf-8")
    return folder


def fit(run: Any, raw: Path, folder: Path, *more: Any, data: str = "visits.csv") -> Any:
    return run("fit", raw / data, "--epsilon", 5, "--seed", 1, "-o", folder / "m", "--quiet", *more)


@pytest.mark.parametrize("data", ["visits.csv", "visits.parquet"])
def test_a_raw_table_is_fitted_and_new_rows_are_predicted(run: Any, raw: Path, tmp_path: Path, data: str) -> None:
    """The model holds the schema; new rows need neither target nor ignored columns, and may have others."""
    ran = fit(run, raw, tmp_path, "--schema", raw / "columns.toml", data=data)
    assert (ran.code, ran.err) == (0, "")
    model = load(tmp_path / "m" / "model.npz")
    assert type(model.steps[0][1]) is Schema
    expected = model.predict(pd.read_csv(raw / "new.csv", dtype=str, keep_default_na=False))
    done = run("predict", tmp_path / "m", raw / "new.csv", "--probabilities", "--quiet", "--json")
    assert done.code == 0
    assert json.loads(done.out)["prediction"] == expected.tolist()
    assert set(expected.tolist()) <= {"no", "yes"}


def test_csv_and_parquet_give_the_same_model(run: Any, raw: Path, tmp_path: Path) -> None:
    models = []
    for data in ("visits.csv", "visits.parquet"):
        assert fit(run, raw, tmp_path / data, "--schema", raw / "columns.toml", data=data).code == 0
        models.append(load(tmp_path / data / "m" / "model.npz").steps[-1][1])
    np.testing.assert_array_equal(models[0].coef_, models[1].coef_)


def test_the_report_names_the_schema_and_weights_have_the_users_units(run: Any, raw: Path, tmp_path: Path) -> None:
    assert fit(run, raw, tmp_path, "--schema", raw / "columns.toml").code == 0
    page = (tmp_path / "m" / "report.html").read_text(encoding="utf-8")
    assert "A declared schema of 5 columns encoded the rows" in page
    with (tmp_path / "m" / "weights.csv").open(newline="", encoding="utf-8") as file:
        weights = {line["feature"]: line for line in csv.DictReader(file)}
    age = weights["age"]
    assert float(age["weight_per_unit"]) == pytest.approx(float(age["weight"]) / 38.5)
    again = run("report", tmp_path / "m", "--quiet")
    assert again.code == 0
    assert (tmp_path / "m" / "report.html").read_text(encoding="utf-8") == page


def test_json_of_a_draft_has_the_names_of_the_columns(run: Any, raw: Path, tmp_path: Path) -> None:
    """Printed or written to a file, in the order of the header."""
    for more in ((), ("-o", tmp_path / "draft.toml")):
        values = run("schema", raw / "visits.csv", "--json", *more).values
        assert values["columns"] == [*visits().columns]
        assert values["n_columns"] == len(visits().columns)


def test_json_has_the_guarantee_in_words_and_weights_that_compute_margins(run: Any, raw: Path, tmp_path: Path) -> None:
    """Of encoded features, and of one unit of a column, for cells within their ranges: both give the same margins."""
    words = ("--schema", raw / "columns.toml", "--no-private-weights", "--json")
    values = fit(run, raw, tmp_path, *words).values
    pipeline = load(tmp_path / "m" / "model.npz")
    schema, model = (step for _, step in pipeline.steps)
    assert values["proved"] == proved(model.privacy_)
    assert values["classes"] == ["no", "yes"]
    (intercept,) = values["intercepts"]
    assert (intercept["class"], intercept["intercept"]) == ("", float(model.intercept_[0]))
    rows = schema.transform(pd.read_csv(raw / "new.csv", dtype=str, keep_default_na=False)).toarray()
    middles, halves = schema.units()
    natural = rows * halves + middles
    places = {name: k for k, name in enumerate(schema.get_feature_names_out())}
    for X, of, start in (
        (rows, "weight", intercept["intercept"]),
        (natural, "weight_per_unit", intercept["intercept_per_unit"]),
    ):
        margins = start + sum(line[of] * X[:, places[line["feature"]]] for line in values["weights"])
        np.testing.assert_allclose(margins, model.decision_function(rows), rtol=1e-9, atol=1e-9)
    assert intercept["intercept_per_unit"] != intercept["intercept"]


def test_json_has_one_intercept_a_class_and_none_for_units_without_a_schema(
    run: Any, raw: Path, tmp_path: Path
) -> None:
    visits().assign(x=range(len(visits()))).eval("z = x % 3")[["x", "z"]].to_csv(tmp_path / "three.csv", index=False)
    words = ("--target", "z", "--classes", "0,1,2", "--row-linf", 1, "--epsilon", 1, "--quiet", "--json")
    values = run("fit", tmp_path / "three.csv", *words, "-o", tmp_path / "m").values
    assert values["classes"] == [0, 1, 2]
    found = load(tmp_path / "m" / "model.npz").intercept_
    assert values["intercepts"] == [{"class": f"{k}.0", "intercept": found[k]} for k in range(3)]
    assert all("weight_per_unit" not in line for line in values["weights"])


SHORT = ["--range", "age=18:95", "--text", "note", "--boolean", "smoker", "--date", "seen=2015-01-01:2026-12-31"]


def test_the_report_says_which_bounds_and_columns_the_schema_declared(run: Any, raw: Path, tmp_path: Path) -> None:
    # Words are weighted by a private step here, which bounds the rows; without it the schema does.
    words = ("--schema", raw / "columns.toml", "--no-private-weights")
    assert fit(run, raw, tmp_path, *words).code == 0
    saved, about = load_saved(tmp_path / "m" / "model.npz")
    assert {line.what: line.origin for line in saved.steps[-1][1].privacy_.bounds}["row_l2"] == "schema"
    assert (about.target, about.ignored) == ("outcome", "id")
    assert fit(run, raw, tmp_path, *words, "--row-l2", 2, "--replace").code == 0
    saved, _ = load_saved(tmp_path / "m" / "model.npz")
    assert {line.what: line.origin for line in saved.steps[-1][1].privacy_.bounds}["row_l2"] == "declared"


def test_short_options_declare_a_schema(run: Any, raw: Path, tmp_path: Path) -> None:
    words = [*SHORT, "--categories", "job=clerk,nurse", "--ignore", "id", "--target", "outcome", "--classes", "no,yes"]
    ran = fit(run, raw, tmp_path, *words)
    assert (ran.code, ran.err) == (0, "")
    columns = load(tmp_path / "m" / "model.npz").steps[0][1].to_dict()["columns"]
    assert columns["age"] == {"range": [18.0, 95.0]}
    assert columns["job"] == {"categories": ["clerk", "nurse"]}
    assert columns["id"] == "ignore"


def test_a_regression_declares_the_range_of_its_target(run: Any, raw: Path, tmp_path: Path) -> None:
    """A target that is no number counts as nothing."""
    others = ["--ignore", "id", "--ignore", "job", "--ignore", "seen", "--ignore", "note", "--boolean", "smoker"]
    words = ["--range", "age=18:95", "--target", "age", "--categories", "outcome=no,yes", *others]
    ran = fit(run, raw, tmp_path, *words)
    assert (ran.code, ran.err) == (0, "")
    model = load(tmp_path / "m" / "model.npz")
    assert model.steps[-1][1].bounds.label == 95.0


IGNORED = [word for name in ("id", "age", "job", "seen", "smoker") for word in ("--ignore", name)]
TEXT_ALONE = ["--text", "note", *IGNORED, "--target", "outcome", "--classes", "no,yes"]


@pytest.mark.parametrize("more", [["--no-private-weights"], ["--row-l2", "1"], ["--method", "hard_thresholding"]])
def test_text_is_weighted_by_default_and_not_where_something_else_is_said(
    run: Any, raw: Path, tmp_path: Path, more: list[str]
) -> None:
    assert fit(run, raw, tmp_path, *TEXT_ALONE, *more).code == 0
    assert type(load(tmp_path / "m")) is not PrivatePipeline


@pytest.mark.parametrize("flag", [[], ["--private-weights"]], ids=["by default", "asked for"])
def test_private_weights_are_on_the_same_bill(run: Any, raw: Path, tmp_path: Path, flag: list[str]) -> None:
    ran = fit(run, raw, tmp_path, *TEXT_ALONE, *flag)
    assert (ran.code, ran.err) == (0, "")
    model = load(tmp_path / "m" / "model.npz")
    assert type(model) is PrivatePipeline
    assert next(line.release for line in model.privacy_.bill) == "column masses"
    assert 4.95 < model.privacy_.epsilon <= 5.0
    done = run("predict", tmp_path / "m", raw / "new.csv", "--quiet", "--json")
    assert json.loads(done.out)["prediction"] == model.predict(pd.read_csv(raw / "new.csv", dtype=str)).tolist()


def test_a_private_scaler_takes_dense_tables_of_any_unit(run: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 3)) * [1, 1e4, 1e-2]
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=np.where(X[:, 1] > 0, "up", "down"))
    frame.to_csv(tmp_path / "rows.csv", index=False)
    words = ["--target", "y", "--classes", "down,up", "--private-scaler"]
    ran = run("fit", tmp_path / "rows.csv", "--epsilon", 8, "--seed", 1, "-o", tmp_path / "m", "--quiet", *words)
    assert (ran.code, ran.err) == (0, "")
    done = run("predict", tmp_path / "m", tmp_path / "rows.csv", "--quiet", "--json")
    assert np.mean(np.array(json.loads(done.out)["prediction"]) == frame["y"]) > 0.8


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--schema", "columns.toml", "--target", "outcome"], "--schema declares all columns; omit --target"),
        (["--schema", "nowhere.toml"], "nowhere.toml"),
        (["--range", "age=18", "--target", "outcome"], "must look like --range age=18:95"),
        (["--range", "18:95", "--target", "outcome"], "write the column, = and the value"),
        (["--range", "age=18:95", "--target", "outcome"], "declare the target too: --classes"),
        (["--range", "age=18:95", "--text", "age", "--target", "outcome"], "the column 'age' is declared twice"),
        (["--text", "note", "--target", "outcome", "--classes", "no,yes"], "columns that the schema does not declare"),
        (
            ["--schema", "columns.toml", "--task", "regression"],
            "the target of a classification; omit --task regression",
        ),
        (["--schema", "columns.toml", "--private-weights", "--private-scaler"], "pass one of them"),
        (["--schema", "columns.toml", "--private-weights", "--row-l2", "1"], "omit --row-l2"),
    ],
)
def test_contradictions_are_refused_before_anything_is_spent(
    run: Any, raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: list[str], message: str
) -> None:
    monkeypatch.chdir(raw)
    ran = fit(run, raw, tmp_path, *more)
    assert ran.code == 2
    assert message in one_line(ran, "fit")
    assert not (tmp_path / "m").exists()


def test_all_problems_of_the_header_are_told_together(run: Any, raw: Path, tmp_path: Path) -> None:
    visits().drop(columns=["job"]).assign(extra=1).to_csv(tmp_path / "other.csv", index=False)
    ran = run("fit", tmp_path / "other.csv", "--schema", raw / "columns.toml", "--epsilon", 1, "-o", tmp_path / "m")
    message = one_line(ran, "fit")
    assert "not in the table: 'job'" in message
    assert "does not declare" in message
    assert message.endswith(": number 7")


DAMAGED = """\
[columns]
id = { number = 100 }
word = { text = 6 }
[target]
column = "other"
classes = ["secretword1", "secretword2", "secretword3"]
"""


def test_damaged_files_are_refused_without_a_cell_and_nothing_is_billed(run: Any, tmp_path: Path) -> None:
    """Of tests/files/test_raw_damage.py every eighth file: read and billed once, or refused with exit code 2."""
    (tmp_path / "columns.toml").write_text(DAMAGED, encoding="utf-8")
    ledger = ("--ledger", tmp_path / "budget", "--dataset", "damaged")
    assert (
        run("ledger", "open", tmp_path / "budget", "--dataset", "damaged", "--epsilon", 999, "--delta", 0.1).code == 0
    )
    fitted, refused = 0, 0
    for seed in range(0, 500, 8):
        name, content = damaged(seed)
        (tmp_path / name).write_bytes(content)
        words = ("--schema", tmp_path / "columns.toml", "--epsilon", 0.5, "--delta", 1e-6, "--quiet", "--replace")
        ran = run("fit", tmp_path / name, *words, *ledger, "-o", tmp_path / "m")
        fitted, refused = fitted + (ran.code == 0), refused + (ran.code == 2)
        assert ran.code in (0, 2), (seed, ran.err)
        assert "Traceback" not in ran.err
        assert not any(f"secretword{k}" in ran.out + ran.err for k in range(4, 40)), seed
    assert fitted > 5
    assert refused > 20
    shown = json.loads(run("ledger", "show", tmp_path / "budget", "--dataset", "damaged", "--json").out)
    assert json.dumps(shown).count("SparseClassifier.fit") == fitted


# --- tulle schema ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", ["visits.csv", "visits.parquet"])
def test_a_draft_has_every_column_undecided_and_no_cell(run: Any, raw: Path, tmp_path: Path, data: str) -> None:
    ran = run("schema", raw / data, "-o", tmp_path / "draft.toml")
    assert ran.code == 0
    text = (tmp_path / "draft.toml").read_text(encoding="utf-8")
    assert not any(word in text for word in ("nurse", "pilot", "fever", "p17"))
    assert ("inferred from its rows" in text) == data.endswith("parquet")
    ran = fit(run, raw, tmp_path, "--schema", tmp_path / "draft.toml", data=data)
    assert ran.code == 2
    for name in ("age", "job", "seen", "note", "outcome"):
        assert f"'{name}': is still undecided" in one_line(ran, "fit")


def test_a_check_counts_cells_and_says_that_it_is_not_private(run: Any, raw: Path) -> None:
    ran = run("schema", "check", raw / "visits.csv", raw / "columns.toml", "--quiet")
    assert ran.code == 0
    assert ran.out.startswith("NOT PRIVATE")
    counts = json.loads(run("schema", "check", raw / "visits.csv", raw / "columns.toml", "--quiet", "--json").out)
    table = visits()
    assert counts["cells_without_rule"]["age"] == int((table["age"] == "unknown").sum())
    assert counts["cells_without_rule"]["smoker"] == int((table["smoker"] == "?").sum())
    assert counts["cells_without_rule"]["seen"] == 0
    assert counts["not_private"] is True


def test_the_words_of_a_check_are_checked(run: Any, raw: Path, tmp_path: Path) -> None:
    assert "tulle schema check FILE SCHEMA" in one_line(run("schema", "check", raw / "visits.csv"), "schema")
    words = ("schema", "check", raw / "visits.csv", raw / "columns.toml", "-o", tmp_path / "x")
    assert "not for release" in one_line(run(*words), "schema")


# --- cells decide nothing --------------------------------------------------------------------------------------------


def test_strange_cells_are_neither_refused_nor_told(run: Any, raw: Path, tmp_path: Path) -> None:
    """The same exit code, output and warnings, whatever one person's cells hold."""
    outputs = []
    strange = ["", "1e999", "=1+1", "never", "\ufffd" * 99, "", "?"]
    for number, cells in enumerate((["p3", "44", "nurse", "2020-01-01", "pain", "yes", "no"], strange)):
        table = visits().astype(object)
        table.loc[3] = cells
        (tmp_path / str(number)).mkdir()
        table.to_csv(tmp_path / str(number) / "visits.csv", index=False)
        ran = fit(run, tmp_path / str(number), tmp_path / f"{number}m", "--schema", raw / "columns.toml", "--json")
        assert (ran.code, ran.err) == (0, "")
        found = json.loads(ran.out)
        outputs.append((found["n_rows"], found["n_features"], found["privacy"]["assumptions"], found.get("warnings")))
    assert outputs[0] == outputs[1]
