"""`tulle fit`: models, bad files, dangerous options, ledgers."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from commands_and_files import DATASET, NAMES, N, files_of, fit_words, numbers, one_line, table

from tulle import FileLedger, SparseClassifier, SparseRegressor, load
from tulle.estimators.saving import load_saved
from tulle.reports.report import PrivacyReport

FILES = ("model.npz", "report.html", "privacy.json", "weights.csv")


# --- fit -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", ["outcome.csv", "outcome.csv.gz", "outcome.parquet", "outcome.npz", "outcome.svm"])
def test_fit_and_predict_on_every_format(run: Any, place: Path, tmp_path: Path, data: str) -> None:
    """The same rows in each format give a model, its four files, and predictions that are the model's."""
    words = fit_words(place, tmp_path / "m", data=data, target=data.startswith(("outcome.csv", "outcome.p")))
    ran = run(*words, "--json")
    assert (ran.code, ran.err) == (0, "")
    values = ran.values
    assert sorted(path.name for path in (tmp_path / "m").iterdir()) == sorted(FILES)
    assert (values["n_rows"], values["n_features"], values["n_nonzero"]) == (N, 4, 2)
    assert values["model"] == str(tmp_path / "m" / "model.npz")
    assert values["ledger"] == ""
    assert "warnings" not in values
    model, about = load_saved(values["model"])
    assert isinstance(model, SparseClassifier)
    assert model.privacy_ == PrivacyReport.from_dict(values["privacy"])
    assert 0.9 < model.privacy_.epsilon <= 1
    assert model.privacy_.asked == (1.0, 1e-5)
    assert not model.privacy_.seeded
    target = "outcome" if "--target" in words else ""
    title = f"Model of outcome on {data}" if target else f"Private model on {data}"
    assert (about.title, about.data, about.asked_by, about.ledger) == (title, data, "", "")
    assert (about.target, about.ignored) == (target, "none")
    assert about.made.endswith("+00:00")
    predicted = run("predict", tmp_path / "m", place / data, "--json", "--quiet")
    X = table()[[*NAMES]].to_numpy()
    assert predicted.values == {"n_rows": N, "prediction": model.set_params().predict(plain(model, X)).tolist()}


def plain(model: Any, X: Any) -> Any:
    """Rows under the names that the model knows."""
    return pd.DataFrame(X, columns=model.feature_names_in_) if hasattr(model, "feature_names_in_") else X


def test_fit_says_what_it_did(run: Any, place: Path, tmp_path: Path) -> None:
    """In text: what is proved, the largest weights, where the files are; and the files agree with each other."""
    ran = run(*fit_words(place, tmp_path / "m", "--by", "A. Smith", "--purpose", "triage", "--title", "Out"))
    assert (ran.code, ran.err) == (0, "")
    assert "Fitted 600 rows of 4 features: 2 features have a weight." in ran.out
    assert "Proved: ε = " in ran.out
    assert f"Written: {tmp_path / 'm' / 'model.npz'}, report.html, privacy.json, weights.csv" in ran.out
    model, about = load_saved(tmp_path / "m" / "model.npz")
    assert (about.title, about.asked_by, about.purpose) == ("Out", "A. Smith", "triage")
    report = PrivacyReport.from_dict(json.loads((tmp_path / "m" / "privacy.json").read_text()))
    assert report == model.privacy_
    with (tmp_path / "m" / "weights.csv").open() as file:
        lines = [*csv.DictReader(file)]
    kept = {NAMES[k]: model.coef_[0, k] for k in model.support_}
    assert {line["feature"]: float(line["weight"]) for line in lines} == kept
    assert abs(float(lines[0]["weight"])) >= abs(float(lines[1]["weight"]))
    page = (tmp_path / "m" / "report.html").read_text(encoding="utf-8")
    assert "A. Smith" not in page  # names of analysts are for internal reports
    assert "triage" in page


def test_progress_goes_to_standard_error(run: Any, place: Path, tmp_path: Path) -> None:
    """Unless --quiet says otherwise; standard output holds the outcome alone."""
    words = [word for word in fit_words(place, tmp_path / "m") if word != "--quiet"]
    ran = run(*words)
    assert "answers" in ran.err
    assert ran.out.startswith("Fitted 600 rows")


def test_fit_of_several_classes(run: Any, place: Path) -> None:
    """Weights of each class, by magnitude, in the file and in the model."""
    model = load(place / "m_triage" / "model.npz")
    with (place / "m_triage" / "weights.csv").open() as file:
        lines = [*csv.DictReader(file)]
    classes = [str(name) for name in model.classes_]
    assert classes == ["green", "red", "yellow"]
    assert len(lines) == np.count_nonzero(model.coef_)
    for line in lines:
        assert model.coef_[classes.index(line["class"]), NAMES.index(line["feature"])] == float(line["weight"])
    sizes = [abs(float(line["weight"])) for line in lines]
    assert sizes == sorted(sizes, reverse=True)


def test_fit_of_numbers(place: Path) -> None:
    """A regression, with its bound on the target."""
    model = load(place / "m_cost" / "model.npz")
    assert isinstance(model, SparseRegressor)
    assert model.bounds.label == 3.0
    assert model.score(*numbers("cost")) > 0.5


def test_a_fit_without_privacy_says_so(run: Any, place: Path, tmp_path: Path) -> None:
    """Whoever asks for it gets it, in words that nobody can miss."""
    ran = run(*fit_words(place, tmp_path / "m", "--epsilon", "none"))
    assert ran.code == 0
    assert "No privacy: this fit used no noise." in ran.out
    assert load(tmp_path / "m" / "model.npz").privacy_.asked is None


@pytest.mark.parametrize(
    ("target", "more", "estimator", "message"),
    [
        ("outcome", (), SparseClassifier, ""),
        ("triage", (), SparseClassifier, ""),
        ("two", (), SparseClassifier, ""),
        ("codes", ("--task", "classification"), SparseClassifier, ""),
        ("codes", ("--task", "regression"), SparseRegressor, ""),
        (
            "codes",
            (),
            None,
            "the target contains numbers: pass --task regression, or --task classification if they are",
        ),
        ("outcome", ("--task", "regression"), None, "contains text; --task regression needs numbers"),
        ("same", (), None, "at least two classes"),
        ("cost", ("--task", "classification"), None, "Unknown label type"),
    ],
)
def test_the_task_is_guessed_only_where_it_is_plain(
    run: Any, tmp_path: Path, target: str, more: Any, estimator: Any, message: str
) -> None:
    """Words, or two values, are classes; other numbers could be either, and the user must say."""
    frame = table()
    frame["two"] = np.where(frame["outcome"] == "home", 7, 3)
    frame["codes"] = np.digitize(frame["cost"], (-0.5, 0.5))
    frame["same"] = "home"
    frame[[*NAMES, target]].to_csv(tmp_path / "data.csv", index=False)
    options = ("--target", target, "--epsilon", 3, "--row-linf", 1, "--label-bound", 3, "--quiet", *more)
    ran = run("fit", tmp_path / "data.csv", *options, "-o", tmp_path / "m")
    if estimator is None:
        assert message in one_line(ran, "fit")
        assert not (tmp_path / "m").exists()
    else:
        assert ran.code == 0
        assert isinstance(load(tmp_path / "m" / "model.npz"), estimator)


def test_people_with_several_rows(run: Any, tmp_path: Path) -> None:
    """--groups and --rows-per-person: the promise is to people, and ids are no features."""
    frame = table()
    frame["person"] = np.arange(N) // 3
    frame[[*NAMES, "person", "outcome"]].to_csv(tmp_path / "data.csv", index=False)
    words = ("--target", "outcome", "--groups", "person", "--rows-per-person", 2, "--epsilon", 3, "--row-linf", 1)
    ran = run("fit", tmp_path / "data.csv", *words, "-o", tmp_path / "m", "--json", "--quiet")
    assert ran.values["n_features"] == 4
    assert "2 rows" in ran.values["privacy"]["unit"]


def test_a_number_of_features_that_rows_decided_was_published(run: Any, place: Path, tmp_path: Path) -> None:
    """Of an svmlight file without --n-features, read at once or by way of blocks; and of no other."""
    said = f"The number of features, {len(NAMES)}, was published"
    assert run("convert", place / "outcome.svm", tmp_path / "counted.blocks").code == 0
    assert run("convert", place / "outcome.svm", tmp_path / "known.blocks", "--n-features", len(NAMES)).code == 0
    for number, (data, more, published) in enumerate(
        (
            (place / "outcome.svm", (), True),
            (place / "outcome.svm", ("--n-features", len(NAMES)), False),
            (tmp_path / "counted.blocks", (), True),
            (tmp_path / "known.blocks", (), False),
            (place / "outcome.npz", (), False),
        )
    ):
        folder = tmp_path / f"m{number}"
        ran = run("fit", data, "--epsilon", 1, "--row-linf", 1, "--quiet", "--json", *more, "-o", folder)
        assert ran.code == 0
        for text in (ran.out, *((folder / name).read_text() for name in ("privacy.json", "report.html"))):
            assert (said in text) == published
        assert (said in str(load(folder / "model.npz").privacy_)) == published


# --- faults of a file ------------------------------------------------------------------------------------------------


def damaged(kind: str, place: Path, path: Path) -> Path:
    """A bad file, by what is wrong with it; its path with the right suffix."""
    text = (place / "outcome.csv").read_text().splitlines()
    suffix, _, what = kind.partition(" ")
    path = path / f"bad.{suffix}"
    binary = {"npz": "outcome.npz", "parquet": "outcome.parquet", "svm": "outcome.svm", "csv.gz": "outcome.csv.gz"}
    content = (place / binary.get(suffix, "outcome.csv")).read_bytes()
    if what == "corrupt":
        # Values in a Parquet file have no checksum unless its writer was asked for one; its directory is at the end.
        middle = len(content) - 600 if suffix == "parquet" else len(content) // 2
        content = (
            content[:middle] + bytes(255 - byte for byte in content[middle : middle + 400]) + content[middle + 400 :]
        )
    elif what == "truncated":
        content = content[: len(content) // 2]
    elif what == "empty":
        content = b""
    elif what == "huge index":
        content += b"1 99999999999:1\n"
    elif what == "index that fills the memory":
        content += b"1 2147483646:1\n"
    elif what == "index from 0":
        content = content.replace(b" 1:", b" 0:")
    elif what == "wrong type":
        content = "\n".join([*text[:5], "0.1,tall,0.2,0.3,home", *text[5:]]).encode()
    elif what == "NaN":
        content = "\n".join([*text[:5], "0.1,,0.2,0.3,home", *text[5:]]).encode()
    elif what == "infinity":
        content = "\n".join([*text[:5], "0.1,inf,0.2,0.3,home", *text[5:]]).encode()
    elif what == "NaN target":
        content = "\n".join([*text[:5], "0.1,0.1,0.2,0.3,", *text[5:]]).encode()
    elif what == "Windows-1252":
        content = "\n".join([text[0].replace("dose", "Größe"), *text[1:]]).encode("cp1252")
    elif what == "header-less":
        content = "\n".join(text[1:]).encode()
    elif what == "duplicate columns":
        content = "\n".join([text[0].replace("dose", "age"), *text[1:]]).encode()
    elif what == "short row":
        content = "\n".join([*text[:5], "0.1,0.2", *text[5:]]).encode()
    elif what == "objects":
        np.savez(path, X=np.array([[object()]] * 4), y=np.arange(4), allow_pickle=True)
        return path
    elif what == "other":
        content = (place / "outcome.parquet").read_bytes()
    path.write_bytes(content)
    return path


BAD = [
    *("npz corrupt", "npz truncated", "npz empty", "npz objects", "npz other"),
    *("parquet corrupt", "parquet truncated", "parquet empty"),
    *("svm huge index", "svm index from 0", "svm corrupt", "svm empty"),
    *("csv.gz corrupt", "csv.gz truncated"),
    *("csv wrong type", "csv NaN", "csv infinity", "csv NaN target", "csv Windows-1252", "csv header-less"),
    *("csv duplicate columns", "csv short row", "csv empty", "csv other", "xlsx unknown"),
]


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_file_costs_nothing(run: Any, place: Path, tmp_path: Path, ledger: Path, kind: str) -> None:
    """Exit code 2, one line that names the file, nothing billed, nothing written; the same in JSON."""
    path = damaged(kind, place, tmp_path)
    target = ["--target", "outcome"] if kind.startswith(("csv", "parquet", "xlsx")) else []
    budget = ["--epsilon", 1, "--row-linf", 1, "--ledger", ledger, "--dataset", DATASET]
    words = ["fit", path, *target, *budget, "--quiet", "-o", tmp_path / "models" / "m"]
    before = files_of(ledger)
    message = one_line(run(*words), "fit")
    assert message.startswith(str(path))
    assert len(message) < 600
    ran = run(*words, "--json")
    # Which row it is goes to standard error alone.
    without = re.sub(r", (line|row) [0-9]+", "", message)
    assert (ran.code, ran.values["error"]["message"]) == (2, without)
    assert ran.err == ("" if without == message else f"tulle fit: {message}\n")
    assert files_of(ledger) == before
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize("kind", ["npz truncated", "parquet corrupt", "svm huge index", "csv wrong type", "csv NaN"])
def test_no_prediction_for_a_bad_file(run: Any, place: Path, tmp_path: Path, kind: str) -> None:
    """Predictions are made for all rows or for none."""
    path = damaged(kind, place, tmp_path)
    message = one_line(run("predict", place / "m_outcome", path, "--quiet", "-o", tmp_path / "out.csv"), "predict")
    assert message.startswith(str(path))
    assert not (tmp_path / "out.csv").exists()


def test_an_encoding_can_be_named(run: Any, place: Path, tmp_path: Path) -> None:
    """The advice for a file from old Windows works."""
    path = damaged("csv Windows-1252", place, tmp_path)
    assert "--encoding" in one_line(run(*fit_words(tmp_path, tmp_path / "m", data=path.name)), "fit")
    assert run(*fit_words(tmp_path, tmp_path / "m", "--encoding", "cp1252", data=path.name)).code == 0
    assert list(load(tmp_path / "m" / "model.npz").feature_names_in_) == ["age", "Größe", "sodium", "weight"]


# --- options that are wrong, or dangerous ----------------------------------------------------------------------------

WRONG: dict[str, tuple[tuple[Any, ...], str]] = {
    "epsilon 0": (("--epsilon", 0), "epsilon must be a finite number > 0, got 0.0"),
    "epsilon -1": (("--epsilon", -1), "epsilon must be a finite number > 0, got -1.0"),
    "epsilon nan": (("--epsilon", "nan"), "epsilon must be a finite number > 0, got nan"),
    "epsilon inf": (("--epsilon", "inf"), "epsilon must be a finite number > 0, got inf"),
    "delta 2": (("--delta", 2), "delta must lie in [0, 1), got 2.0"),
    "delta -1": (("--delta=-1e-9",), "delta must lie in [0, 1), got -1e-09"),
    "delta nan": (("--delta", "nan"), "delta must lie in [0, 1), got nan"),
    "method": (("--method", "magic"), "method='magic' is unknown; choose one of ['auto'"),
    "loss": (("--loss", "squared"), "loss='squared' is unknown for classification"),
    "n-nonzero": (("--n-nonzero", 0), "n_nonzero must be an integer >= 1 or None, got 0"),
    "row-l2": (("--row-l2", -1), "Bounds(row_l2=...) must be a finite number > 0, got -1.0"),
    "row-linf": (("--row-linf", "nan"), "Bounds(row_linf=...) must be a finite number > 0, got nan"),
    "rows-per-person": (("--rows-per-person", 0), "Bounds(rows_per_person=...) must be an integer >= 1, got 0"),
    "seed": (("--seed", -1), "random_state must be None, an integer >= 0"),
    "target": (("--target", "outcomes"), "no column is named 'outcomes'"),
    "ignore": (("--ignore", "nothing"), "no column is named 'nothing'"),
    "encoding": (("--encoding", "klingon"), "--encoding 'klingon' is unknown"),
    "delimiter": (("--delimiter", "ab"), "--delimiter must be one character"),
    "n-features": (("--n-features", 7), "4 features, expected 7"),
    "by": (("--by", "A. Smith\n  2  forged"), "--by must be printable text on one line"),
    "purpose": (("--purpose", "\udcff"), "--purpose must be printable text on one line"),
    "title": (("--title", "\x1b[2J"), "--title must be printable text on one line"),
    "data set": (("--dataset", "visits 2025"), "has no account for 'visits 2025'; did you mean 'visits 2026'?"),
    "ledger": (("--ledger", "nowhere"), "no such ledger"),
}


@pytest.mark.parametrize("way", WRONG)
def test_wrong_options_cost_nothing(run: Any, place: Path, tmp_path: Path, ledger: Path, way: str) -> None:
    """Exit code 2 and one line that says what to change; nothing billed, nothing written."""
    options, message = WRONG[way]
    words = fit_words(place, tmp_path / "m", "--ledger", ledger, "--dataset", DATASET)
    before = files_of(ledger)
    assert message in one_line(run(*words, *options), "fit")
    assert files_of(ledger) == before
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("option", [("--ledger", "budget"), ("--dataset", "visits")])
def test_a_ledger_and_its_data_set_go_together(run: Any, place: Path, tmp_path: Path, option: Any) -> None:
    """One without the other would bill nothing, or somebody else."""
    message = one_line(run(*fit_words(place, tmp_path / "m", *option)), "fit")
    assert message.startswith("pass both --ledger FOLDER and --dataset NAME")


def test_a_model_is_replaced_only_where_that_is_said(run: Any, place: Path, tmp_path: Path, ledger: Path) -> None:
    """Refused before the ledger is billed; with --replace no old report stays beside the new model."""
    words = fit_words(place, tmp_path / "m", "--ledger", ledger, "--dataset", DATASET)
    assert run(*words).code == 0
    old = {name: (tmp_path / "m" / name).read_bytes() for name in FILES}
    (tmp_path / "m-internal.html").write_text("of the old model")
    before = files_of(ledger)
    assert "exists; choose another folder with -o, or pass --replace" in one_line(run(*words), "fit")
    assert files_of(ledger) == before
    assert (tmp_path / "m" / "model.npz").read_bytes() == old["model.npz"]
    assert run(*words, "--replace").code == 0
    new = {path.name: path.read_bytes() for path in (tmp_path / "m").iterdir()}
    assert new.keys() == old.keys()
    assert all(new[name] != old[name] for name in ("model.npz", "report.html", "weights.csv"))
    assert not (tmp_path / "m-internal.html").exists()
    assert len(FileLedger(ledger, DATASET).entries) == 2


def test_a_folder_that_cannot_be_made_is_refused_before_anything_is_billed(
    run: Any, place: Path, tmp_path: Path, ledger: Path
) -> None:
    """A file stands where the folder should be."""
    (tmp_path / "file").write_text("in the way")
    before = files_of(ledger)
    for output in (tmp_path / "file", tmp_path / "file" / "m"):
        one_line(run(*fit_words(place, output, "--ledger", ledger, "--dataset", DATASET)), "fit")
    assert files_of(ledger) == before


def test_a_folder_that_cannot_be_written_to_is_refused_before_anything_is_billed(
    run: Any, place: Path, tmp_path: Path, ledger: Path, monkeypatch: Any
) -> None:
    """It is there, or can be made, and takes no file: a disk that is full, or rights that are missing."""
    written = Path.write_bytes

    def refusing(path: Path, content: bytes) -> int:
        if tmp_path / "m" in path.parents:
            raise PermissionError(13, "Permission denied", str(path))
        return written(path, content)

    before = files_of(ledger)
    monkeypatch.setattr(Path, "write_bytes", refusing)
    message = one_line(run(*fit_words(place, tmp_path / "m", "--ledger", ledger, "--dataset", DATASET)), "fit")
    assert message.endswith("Permission denied")
    assert files_of(ledger) == before
    assert not (tmp_path / "m").exists()


def test_a_large_delta_is_warned_of(run: Any, place: Path, tmp_path: Path) -> None:
    """In text on standard error; in JSON as part of the one object."""
    ran = run(*fit_words(place, tmp_path / "a", "--delta", 0.01))
    assert ran.code == 0
    assert "tulle: warning: delta = 0.01 is not below 1 / (number of rows)" in ran.err
    ran = run(*fit_words(place, tmp_path / "b", "--delta", 0.01, "--json"))
    assert (ran.code, ran.err) == (0, "")
    (warning,) = ran.values["warnings"]
    assert warning.startswith("delta = 0.01 is not below")


def test_warnings_stand_beside_an_error_too(run: Any, place: Path, tmp_path: Path, ledger: Path) -> None:
    """What was said before the refusal is part of the one object."""
    words = fit_words(place, tmp_path / "m", "--delta", 0.5, "--ledger", ledger, "--dataset", DATASET)
    ran = run(*words, "--json")
    assert (ran.code, ran.err) == (3, "")
    assert "delta = 0.5 is not below" in ran.values["warnings"][0]


def test_a_fit_within_a_rho(run: Any, place: Path, tmp_path: Path, ledger: Path) -> None:
    words = ["fit", place / "outcome.csv", "--target", "outcome", "--row-linf", 1, "--n-nonzero", 2, "--quiet"]
    billed = ["--ledger", ledger, "--dataset", DATASET]
    ran = run(*words, "--rho", 0.05, *billed, "-o", tmp_path / "model")
    assert ran.code == 0, ran.err
    assert "Proved: ρ = 0.05, ε = " in ran.out
    assert "(asked: ρ = 0.05," in ran.out
    written = json.loads((tmp_path / "model" / "privacy.json").read_text())
    assert 0.0495 < written["rho"] <= written["asked_rho"] == 0.05
    assert "ρ\u00a0=\u00a00.05 (zCDP)" in (tmp_path / "model" / "report.html").read_text()
    for wrong in (("--rho", 0.05, "--epsilon", 1), (), ("--rho", -1)):
        assert run(*words, *wrong, *billed, "-o", tmp_path / "other").code == 2
        assert not (tmp_path / "other").exists()
