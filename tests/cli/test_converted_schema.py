"""`tulle convert --schema`: raw tables as blocks, and `tulle fit` and `tulle predict` on them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from test_schema_option import SCHEMA, fit, visits

from tulle import Budget, FileLedger, Schema, load
from tulle.backends.block_folder import open_blocks

WITH_PEOPLE = SCHEMA.replace('id = "ignore"\n', "") + '[person]\ncolumn = "id"\nrows = 2\n'
REGRESSION = """\
[columns]
job = { categories = ["clerk", "nurse"], other = true }
"*" = "ignore"

[target]
column = "age"
range = [18, 95]
"""


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Visits with a few targets and ids missing: whole, in parts of other forms, and schemas."""
    folder: Path = tmp_path_factory.mktemp("raw")
    frame = visits().astype(str)
    frame["id"] = [f"p{k // 3}" if k % 17 else "" for k in range(len(frame))]
    frame.loc[::23, "outcome"] = "perhaps"
    frame.to_csv(folder / "visits.csv", index=False)
    frame[:150].to_csv(folder / "a.csv", index=False)
    frame[150:][frame.columns[::-1]].to_parquet(folder / "b.parquet")
    visits(1, 50).drop(columns=["outcome", "id"]).to_csv(folder / "new.csv", index=False)
    for name, text in (("columns", SCHEMA), ("people", WITH_PEOPLE), ("regression", REGRESSION)):
        (folder / f"{name}.toml").write_text(text, encoding="utf-8")
    return folder


def convert(
    run: Any, raw: Path, folder: Path, *more: Any, schema: str = "columns", files: Any = ("visits.csv",)
) -> Any:
    words = [*(raw / name for name in files), folder, "--schema", raw / f"{schema}.toml", "--rows-per-block", 90]
    return run("convert", *words, "--quiet", *more)


@pytest.mark.parametrize("schema", ["columns", "people", "regression"])
@pytest.mark.parametrize("files", [("visits.csv",), ("a.csv", "b.parquet")], ids=["one", "several"])
def test_a_converted_raw_table_is_fitted_like_the_table(
    run: Any, raw: Path, tmp_path: Path, schema: str, files: tuple[str, ...]
) -> None:
    """The same weights, from blocks of sparse rows; the model takes raw rows, and the report names the schema."""
    assert convert(run, raw, tmp_path / "v.blocks", schema=schema, files=files).code == 0
    for name, data, more in (
        ("file", raw / "visits.csv", ["--schema", raw / f"{schema}.toml"]),
        ("blocks", tmp_path / "v.blocks", []),
    ):
        ran = run("fit", data, "--epsilon", 5, "--seed", 1, "--quiet", "-o", tmp_path / name, *more)
        assert (ran.code, ran.err) == (0, "")
    models = [load(tmp_path / name / "model.npz") for name in ("file", "blocks")]
    assert type(models[1].steps[0][1]) is Schema
    np.testing.assert_allclose(models[1].steps[1][1].coef_, models[0].steps[1][1].coef_, atol=1e-6)
    assert "A declared schema of" in (tmp_path / "blocks" / "report.html").read_text()
    if schema == "regression":
        return
    done = [run("predict", tmp_path / name, raw / "new.csv", "--quiet", "--json") for name in ("file", "blocks")]
    assert json.loads(done[0].out) == json.loads(done[1].out)
    done = [
        run("predict", tmp_path / "blocks", data, "--quiet", "--json")
        for data in (raw / "visits.csv", tmp_path / "v.blocks")
    ]
    assert json.loads(done[0].out) == json.loads(done[1].out)


def test_rows_of_no_target_or_person_count_as_nothing(run: Any, raw: Path, tmp_path: Path) -> None:
    """By the rules of the schema, in blocks as in memory."""
    convert(run, raw, tmp_path / "v.blocks", schema="people", files=("a.csv", "b.parquet"))
    folder = open_blocks(tmp_path / "v.blocks")
    frame = pd.read_csv(raw / "visits.csv", dtype=str, keep_default_na=False)
    schema = Schema.from_file(raw / "people.toml").fit(frame)
    assert folder.y is not None
    assert folder.groups is not None
    assert folder.y.tolist() == schema.labels(frame).tolist()
    assert None in folder.y.tolist()
    people = schema.people(frame)
    assert people is not None
    assert folder.groups.tolist() == people.tolist()
    assert folder.schema.to_dict() == schema.to_dict()
    found = np.vstack([folder.X.block(k)[1].toarray() for k in range(folder.X.n_blocks)])
    np.testing.assert_array_equal(found, schema.transform(frame).toarray())
    convert(run, raw, tmp_path / "r.blocks", schema="regression")
    masked: Any = open_blocks(tmp_path / "r.blocks").y
    expected = Schema.from_file(raw / "regression.toml").fit(frame).labels(frame)
    np.testing.assert_array_equal(masked.mask, np.ma.getmaskarray(expected))
    np.testing.assert_array_equal(masked.compressed(), np.ma.MaskedArray(expected).compressed())


def test_addresses_are_converted(run: Any, raw: Path, tmp_path: Path) -> None:
    """Through fsspec, a folder of Parquet files and a CSV file: the same blocks as from disk."""
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    memory.pipe("/raw/a.csv", (raw / "a.csv").read_bytes())
    memory.pipe("/raw/more/b.parquet", (raw / "b.parquet").read_bytes())
    words = ["--schema", raw / "columns.toml", "--rows-per-block", 90, "--quiet"]
    ran = run("convert", "memory://raw/a.csv", "memory://raw/more", tmp_path / "m.blocks", *words)
    assert (ran.code, ran.err) == (0, "")
    convert(run, raw, tmp_path / "v.blocks", files=("a.csv", "b.parquet"))
    found, expected = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("m.blocks", "v.blocks")
    )
    assert found == expected


def test_raw_files_that_differ_are_refused_before_anything_is_written(run: Any, raw: Path, tmp_path: Path) -> None:
    """By the file and the column, and never by a cell."""
    frame = visits().astype(str)

    def refused(name: str, message: str, first: str = "a.csv") -> None:
        words = [first if first.startswith("/") else raw / first, tmp_path / name, tmp_path / "x.blocks"]
        ran = run("convert", *words, "--schema", raw / "columns.toml", "--quiet")
        assert ran.code == 2
        assert str(tmp_path / name) in ran.err
        assert message in ran.err
        assert not {"pilot", "unknown", "p17"} & set(ran.err.replace(",", " ").split())
        assert not (tmp_path / "x.blocks").exists()
        assert not list(tmp_path.glob(".x*"))

    frame.drop(columns="job").to_csv(tmp_path / "less.csv", index=False)
    refused("less.csv", "columns of the schema that are not in the table: 'job'")
    frame.assign(more=1).to_parquet(tmp_path / "more.parquet")
    refused("more.parquet", "columns that the schema does not declare")
    frame.to_csv(tmp_path / "bare.csv", index=False, header=False)
    refused("bare.csv", "--no-header")
    frame.assign(age=1.5).to_parquet(tmp_path / "typed.parquet")
    refused("typed.parquet", "column 'age': the column contains double, but string in 'b.parquet'", "b.parquet")


def test_schemas_and_folders_that_do_not_go_together(run: Any, raw: Path, tmp_path: Path) -> None:
    """One line each, with what to change."""
    private = tmp_path / "private.toml"
    private.write_text(SCHEMA.replace('["clerk", "nurse"], other = true', '"private", most = 9'), encoding="utf-8")
    ran = run("convert", raw / "a.csv", tmp_path / "p.blocks", "--schema", private, "--quiet")
    assert (ran.code, "found privately" in ran.err) == (2, True)
    ran = convert(run, raw, tmp_path / "v.blocks", "--missing")
    assert (ran.code, "omit --missing" in ran.err) == (2, True)
    assert convert(run, raw, tmp_path / "v.blocks").code == 0
    ran = run("fit", tmp_path / "v.blocks", "--schema", raw / "columns.toml", "--epsilon", 1, "-o", tmp_path / "m")
    assert (ran.code, "encoded already" in ran.err) == (2, True)
    ran = run("fit", tmp_path / "v.blocks", "--classes", "never,always", "--epsilon", 1, "-o", tmp_path / "m")
    assert (ran.code, "declares the classes; omit --classes" in ran.err) == (2, True)
    fit(run, raw, tmp_path, "--schema", raw / "columns.toml")
    convert(run, raw, tmp_path / "r.blocks", schema="regression")
    ran = run("predict", tmp_path / "m", tmp_path / "r.blocks", "--quiet")
    assert (ran.code, "was not converted with the schema of this model" in ran.err) == (2, True)
    visits(0, 20)[["age"]].assign(age=1.0, y=[0, 1] * 10).to_csv(tmp_path / "n.csv", index=False)
    run(
        "fit",
        tmp_path / "n.csv",
        "--target",
        "y",
        "--row-linf",
        1,
        "--epsilon",
        "none",
        "-o",
        tmp_path / "n",
        "--quiet",
    )
    ran = run("predict", tmp_path / "n", tmp_path / "r.blocks", "--quiet")
    assert (ran.code, "but this model has none" in ran.err) == (2, True)


def test_cells_without_a_value_are_for_steps_that_take_them(run: Any, tmp_path: Path) -> None:
    """The folder declares them; a fit without such a step is refused before the ledger is billed."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(400, 3)), columns=["a", "b", "c"])
    frame["y"] = np.where(frame["a"] > 0, "yes", "no")
    frame.loc[::7, "b"] = np.nan
    frame.to_csv(tmp_path / "rows.csv", index=False)
    words = ["--target", "y", "--rows-per-block", 90, "--quiet"]
    ran = run("convert", tmp_path / "rows.csv", tmp_path / "v.blocks", *words)
    assert (ran.code, "a cell has no value" in ran.err) == (2, True)
    assert run("convert", tmp_path / "rows.csv", tmp_path / "v.blocks", *words, "--missing").code == 0
    ledger = tmp_path / "budget"
    FileLedger.create(ledger, "rows", Budget(30.0, 1e-3))
    common = ["--epsilon", 5, "--seed", 1, "--classes", "no,yes", "--quiet"]
    billed = [*common, "--ledger", ledger, "--dataset", "rows"]
    ran = run("fit", tmp_path / "v.blocks", *billed, "--row-linf", 1, "-o", tmp_path / "x")
    assert (ran.code, "--private-scaler" in ran.err) == (2, True)
    assert len(FileLedger(ledger, "rows").entries) == 0
    assert not (tmp_path / "x").exists()
    assert run("fit", tmp_path / "v.blocks", *common, "--private-scaler", "-o", tmp_path / "b").code == 0
    run("fit", tmp_path / "rows.csv", *common, "--target", "y", "--private-scaler", "-o", tmp_path / "f")
    models = [load(tmp_path / name / "model.npz").model_ for name in ("f", "b")]
    np.testing.assert_allclose(models[1].coef_, models[0].coef_, atol=1e-6)
    done = [
        json.loads(run("predict", tmp_path / "b", data, "--quiet", "--json").out)
        for data in (tmp_path / "rows.csv", tmp_path / "v.blocks")
    ]
    assert done[0] == done[1]
    frame.fillna(0).to_csv(tmp_path / "full.csv", index=False)
    run("fit", tmp_path / "full.csv", *common, "--target", "y", "--row-linf", 1, "-o", tmp_path / "full")
    ran = run("predict", tmp_path / "full", tmp_path / "v.blocks", "--quiet")
    assert (ran.code, "was converted with --missing" in ran.err) == (2, True)
