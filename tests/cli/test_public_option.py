"""`tulle fit --public FILE`: public rows of every format, with the columns of the private file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from commands_and_files import DATASET, NAMES, files_of, fit_words, one_line, table
from sklearn.datasets import dump_svmlight_file

from tulle import Bounds, SparseClassifier, load

M = 80


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the same public rows in all formats, some with columns that are no features."""
    folder: Path = tmp_path_factory.mktemp("public")
    frame = table(5, M)
    X = frame[[*NAMES]]
    X.to_csv(folder / "plain.csv", index=False)
    frame[["triage", "sodium", "outcome", "dose", "weight", "age"]].to_csv(folder / "more.csv", index=False)
    frame.assign(outcome=np.nan).to_parquet(folder / "more.parquet")
    np.savez(folder / "plain.npz", X=X.to_numpy())
    np.savez(folder / "labelled.npz", X=X.to_numpy(), y=np.ones(M))
    sp.save_npz(folder / "sparse.npz", sp.csr_array(X.to_numpy()))
    dump_svmlight_file(X.to_numpy(), np.zeros(M), str(folder / "plain.svm"), zero_based=False)
    dump_svmlight_file(X.to_numpy(), np.zeros(M), str(folder / "zero_based.svm"), zero_based=True)
    X.to_csv(folder / "no_header.csv", index=False, header=False)
    X.drop(columns="dose").to_csv(folder / "missing.csv", index=False)
    np.savez(folder / "narrow.npz", X=X.to_numpy()[:, 1:])
    X[:10].to_csv(folder / "few.csv", index=False)
    return folder


FILES = ["plain.csv", "more.csv", "more.parquet", "plain.npz", "labelled.npz", "sparse.npz", "plain.svm"]


def public_lines(model: Any) -> list[str]:
    return [line for line in model.privacy_.assumptions if line.startswith("Public rows were declared")]


def fit_here(**settings: Any) -> SparseClassifier:
    """The fit of the command, in Python."""
    frame = table()
    model = SparseClassifier(1.0, n_nonzero=2, bounds=Bounds(row_linf=1.0), random_state=3, **settings)
    return model.fit(frame[[*NAMES]], frame["outcome"], public=table(5, M)[[*NAMES]].to_numpy())


@pytest.mark.parametrize("name", FILES)
def test_public_rows_of_every_format(run: Any, place: Path, public: Path, tmp_path: Path, name: str) -> None:
    """The model of the same call in Python, whatever else the file has; the report states the assumption."""
    ran = run(*fit_words(place, tmp_path / "m", "--public", public / name, "--seed", 3))
    assert (ran.code, ran.err) == (0, "")
    model = load(tmp_path / "m" / "model.npz")
    np.testing.assert_allclose(model.coef_, fit_here().coef_, rtol=0, atol=1e-9)
    assert len(public_lines(model)) == 1
    assert "Public rows were declared" in (tmp_path / "m" / "report.html").read_text()


@pytest.mark.parametrize("data", ["outcome.parquet", "outcome.npz", "outcome.svm"])
@pytest.mark.parametrize("name", ["plain.csv", "plain.npz", "plain.svm"])
def test_private_rows_of_every_format(
    run: Any, place: Path, public: Path, tmp_path: Path, data: str, name: str
) -> None:
    words = fit_words(place, tmp_path / "m", "--public", public / name, data=data, target=data.endswith("parquet"))
    assert run(*words).code == 0
    assert len(public_lines(load(tmp_path / "m" / "model.npz"))) == 1


def test_people_and_ignored_columns_may_be_absent(run: Any, place: Path, public: Path, tmp_path: Path) -> None:
    """They are named for the private file alone."""
    table().assign(person=np.arange(600)).to_csv(tmp_path / "visits.csv", index=False)
    more = ["--target", "outcome", "--groups", "person", "--ignore", "cost", "--ignore", "triage"]
    words = fit_words(
        tmp_path, tmp_path / "m", *more, "--public", public / "plain.csv", data="visits.csv", target=False
    )
    assert run(*words).code == 0
    model = load(tmp_path / "m" / "model.npz")
    assert tuple(model.feature_names_in_) == NAMES
    assert len(public_lines(model)) == 1


def test_files_without_a_header(run: Any, public: Path, tmp_path: Path) -> None:
    """Columns are then known by their places."""
    table()[[*NAMES, "outcome"]].to_csv(tmp_path / "rows.csv", index=False, header=False)
    more = ["--target", "4", "--no-header", "--public", public / "no_header.csv", "--seed", 3]
    assert run(*fit_words(tmp_path, tmp_path / "m", *more, data="rows.csv", target=False)).code == 0
    np.testing.assert_allclose(load(tmp_path / "m" / "model.npz").coef_, fit_here().coef_, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "more"), [("plain.csv", []), ("zero_based.svm", ["--zero-based"]), ("plain.npz", ["--format", "npz"])]
)
def test_a_folder_of_blocks(run: Any, place: Path, public: Path, tmp_path: Path, name: str, more: list[str]) -> None:
    """The folder was converted already: options about how files are written are about the public file."""
    assert run("convert", place / "outcome.csv", tmp_path / "b", "--target", "outcome", "--quiet").code == 0
    words = ["--public", public / name, "--seed", 3, *more]
    ran = run(*fit_words(tmp_path, tmp_path / "m", *words, data="b", target=False))
    assert (ran.code, ran.err) == (0, "")
    np.testing.assert_allclose(load(tmp_path / "m" / "model.npz").coef_, fit_here().coef_, rtol=0, atol=1e-9)
    refused = run(*fit_words(tmp_path, tmp_path / "n", "--public", tmp_path / "b", data="b", target=False))
    assert "public rows are held in memory, so pass a file" in one_line(refused, "fit")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("missing.csv", "1 of 4 features are missing: 'dose'"),
        ("narrow.npz", "3 features, expected 4"),
        ("few.csv", "public has 10 rows; pass at least 20"),
        ("nowhere.csv", "nowhere.csv"),
    ],
)
def test_wrong_files_are_refused_before_the_bill(
    run: Any, place: Path, public: Path, ledger: Path, tmp_path: Path, name: str, words: str
) -> None:
    before = files_of(ledger)
    billed = ["--ledger", ledger, "--dataset", DATASET, "--public", public / name]
    assert words in one_line(run(*fit_words(place, tmp_path / "m", *billed)), "fit")
    assert files_of(ledger) == before
    assert not (tmp_path / "m").exists()


def test_the_private_file_as_the_public_one(run: Any, place: Path, ledger: Path, tmp_path: Path) -> None:
    """By a link, too. What a file of another name contains is not compared: nobody pays for that answer."""
    before = files_of(ledger)
    (tmp_path / "link.csv").symlink_to(place / "outcome.csv")
    (tmp_path / "same.csv").hardlink_to(place / "outcome.csv")
    for path in (place / "outcome.csv", tmp_path / "link.csv", tmp_path / "same.csv"):
        billed = ["--ledger", ledger, "--dataset", DATASET, "--public", path]
        message = one_line(run(*fit_words(place, tmp_path / "m", *billed)), "fit")
        assert "is the file of private rows itself" in message
    assert files_of(ledger) == before


def test_a_method_that_makes_no_use_of_it(run: Any, place: Path, public: Path, ledger: Path, tmp_path: Path) -> None:
    before = files_of(ledger)
    more = ["--public", public / "plain.csv", "--method", "frank_wolfe", "--ledger", ledger, "--dataset", DATASET]
    assert "makes no use of public rows" in one_line(run(*fit_words(place, tmp_path / "m", *more)), "fit")
    assert files_of(ledger) == before


def test_no_cell_of_the_public_file_is_quoted(run: Any, place: Path, tmp_path: Path) -> None:
    pd.DataFrame({name: ["secret"] * M for name in NAMES}).to_csv(tmp_path / "words.csv", index=False)
    ran = run(*fit_words(place, tmp_path / "m", "--public", tmp_path / "words.csv"))
    assert "secret" not in one_line(ran, "fit")
