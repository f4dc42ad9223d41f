"""fit(X, y, public=...): what is refused before anything is billed, pipelines, and that nothing of it is kept."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import tulle
from tulle import Bounds, Budget, Ledger, PublicFrequencies, SparseClassifier, SparseRegressor
from tulle.backends.block_writer import write_blocks
from tulle.methods import KnowledgeTransfer

N, D, M = 400, 12, 60
# Found again wherever it is copied to.
MARK = 0.7310585786300049


def uniform(n: int, seed: int) -> Any:
    return np.random.default_rng(seed).uniform(-1, 1, (n, D))


X, PUBLIC = uniform(N, 0), uniform(M, 1)
PUBLIC[:, 3] = MARK
Y = (X[:, 0] > 0).astype(int)
TARGET = X[:, 0] - X[:, 1]

# The spelled-out methods that use it, and both kinds of teacher.
USERS: dict[str, Any] = {
    "auto": "auto",
    "fit again": "fit_again",
    "sparse teacher": "knowledge_transfer",
    "dense teacher": KnowledgeTransfer(variant="dense"),
}


def classifier(method: Any = "auto", **settings: Any) -> SparseClassifier:
    return SparseClassifier(
        **{"epsilon": 2.0, "bounds": Bounds(row_linf=1.0), "method": method, "random_state": 0} | settings
    )


def public_line(model: Any) -> str:
    (line,) = [line for line in model.privacy_.assumptions if "public" in line and "private rows" in line]
    return str(line)


# --- what works ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", USERS)
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array, sp.csc_array, np.float32])
def test_rows_in_every_form_give_the_same_model(method: str, kind: Any) -> None:
    rows = PUBLIC.astype(np.float32)
    fitted = classifier(USERS[method]).fit(X, Y, public=kind(rows))
    expected = classifier(USERS[method]).fit(X, Y, public=rows.astype(float))
    np.testing.assert_allclose(fitted.coef_, expected.coef_, rtol=1e-6, atol=1e-9)
    assert fitted.privacy_.epsilon <= 2.0
    assert "public" in public_line(fitted)


@pytest.mark.parametrize("method", ["auto", "fit_again"])
def test_frequencies_leave_features_out(method: str) -> None:
    """A feature that the public source does not have gets no weight, where private rows hardly have it either."""
    frequencies = np.ones(D)
    frequencies[5:] = 0
    fitted = classifier(method).fit(X * (0.1 + frequencies), Y, public=PublicFrequencies(frequencies))
    assert fitted.support_.max() < 5
    assert "frequencies" in public_line(fitted)


def test_regression() -> None:
    model = SparseRegressor(2.0, bounds=Bounds(row_linf=1.0, label=2.0), random_state=0)
    assert "Public rows" in public_line(model.fit(X, TARGET, public=PUBLIC))


def test_a_fit_with_public_rows_leaves_the_next_one_without() -> None:
    model = classifier()
    model.fit(X, Y, public=PUBLIC)
    again = model.fit(X, Y)
    np.testing.assert_array_equal(again.coef_, classifier().fit(X, Y).coef_)
    assert not any("Public" in line for line in again.privacy_.assumptions)


def test_rows_on_disk(tmp_path: Path) -> None:
    """Public rows in memory beside private rows in a folder of blocks."""
    folder = write_blocks(tmp_path / "rows", [(X, Y)], rows_per_block=90)
    there = classifier().fit(folder.X, folder.y, public=PUBLIC)
    np.testing.assert_allclose(there.coef_, classifier().fit(X, Y, public=PUBLIC).coef_, rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match="are the private rows"):
        classifier().fit(folder.X, folder.y, public=folder.X)


# --- refusals, before anything is billed -----------------------------------------------------------------------------


@pytest.fixture
def unspent() -> Iterator[Ledger]:
    """An open ledger on which nothing is billed until the end of the test."""
    with Ledger(Budget(100.0, 1e-2)) as ledger:
        yield ledger
    assert ledger.fits == []


def test_a_fit_with_public_rows_is_billed_once() -> None:
    with Ledger(Budget(100.0, 1e-2)) as ledger:
        classifier().fit(X, Y, public=PUBLIC)
    assert [what for what, _ in ledger.fits] == ["SparseClassifier.fit"]


def changed(value: float) -> Any:
    rows = PUBLIC.copy()
    rows[7, 2] = value
    return rows


REFUSED: dict[str, tuple[Any, str]] = {
    "the private rows": (X, "are the private rows"),
    "a part of them": (X[:50], "are the private rows"),
    "every other one of them": (X[::2], "are the private rows"),
    "too few columns": (PUBLIC[:, 1:], r"public has 11 columns, the private rows 12"),
    "a wide sparse array": (sp.csr_array((M, D + 1)), r"public has 13 columns, the private rows 12"),
    "NaN": (changed(np.nan), "public contains NaN"),
    "infinite": (changed(np.inf), "public contains infinity"),
    "all zero": (np.zeros((M, D)), "all public rows are zero"),
    "all zero, sparse": (sp.csr_array((M, D)), "all public rows are zero"),
    "few rows": (PUBLIC[:19], "public has 19 rows; pass at least 20"),
    "no rows": (PUBLIC[:0], "public has 0 rows"),
    "one row": (PUBLIC[0], "1D array"),
    "words in cells": (np.full((M, D), "word"), "could not convert|numeric"),
    "a file's name": ("public.csv", "public must be rows"),
    "frequencies of another width": (PublicFrequencies(np.ones(D + 1)), "frequencies of 13 features"),
}


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize("method", ["auto", "knowledge_transfer"])
@pytest.mark.usefixtures("unspent")
def test_bad_public_rows(what: str, method: str) -> None:
    public, words = REFUSED[what]
    for model, labels in (
        (classifier(method), Y),
        (SparseRegressor(method=method, bounds=Bounds(row_linf=1.0, label=2.0)), TARGET),
    ):
        with pytest.raises((ValueError, TypeError), match=words):
            model.fit(X, labels, public=public)
        assert not hasattr(model, "coef_")


def test_sparse_private_rows_as_public_ones(unspent: Ledger) -> None:
    rows = sp.csr_array(X)
    shared = sp.csr_array((rows.data, rows.indices, rows.indptr), shape=rows.shape)
    for public in (rows, shared):
        with pytest.raises(ValueError, match="are the private rows"):
            classifier().fit(rows, Y, public=public)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (-np.ones(D), ">= 0 and not all zero"),
        (np.zeros(D), ">= 0 and not all zero"),
        ([1.0, np.nan], "must be finite"),
        ([1.0, np.inf], "must be finite"),
        (np.ones((3, D)), "one number for each feature"),
        ([], "one number for each feature"),
        (3.0, "one number for each feature"),
        (["a", "b"], "one number for each feature"),
    ],
    ids=["negative", "all zero", "NaN", "infinite", "2-D", "empty", "a number", "words"],
)
def test_bad_frequencies(values: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        PublicFrequencies(values)


@pytest.mark.parametrize(
    "method",
    ["frank_wolfe", "hard_thresholding", "coordinate_descent", "two_stage", "stochastic_hard_thresholding"],
)
def test_methods_that_make_no_use_of_it(unspent: Ledger, method: str) -> None:
    with pytest.raises(ValueError, match="makes no use of public rows; use method='auto', 'fit_again' or 'know"):
        classifier(method).fit(X, Y, public=PUBLIC)


def test_knowledge_transfer_takes_one_set_of_public_rows(unspent: Ledger) -> None:
    with pytest.raises(ValueError, match="given already; omit public="):
        classifier(KnowledgeTransfer(features=PUBLIC)).fit(X, Y, public=PUBLIC)
    with pytest.raises(ValueError, match="needs public rows, not frequencies"):
        classifier("knowledge_transfer").fit(X, Y, public=PublicFrequencies(np.ones(D)))


# --- nothing of it is kept -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", USERS)
def test_nothing_of_the_public_rows_is_kept(tmp_path: Path, method: str) -> None:
    """Their numbers are in no file of the model, nor among its parameters; a model that has them shows that they would
    be found."""
    mark = np.float64(MARK).tobytes()
    model = classifier(USERS[method]).fit(X, Y, public=PUBLIC)
    assert mark not in pickle.dumps(model)
    tulle.save(model, tmp_path / "model.npz")
    with zipfile.ZipFile(tmp_path / "model.npz") as archive:  # its members are packed
        contents = [archive.read(name) for name in archive.namelist()]
    assert any(model.coef_[model.coef_ != 0][:1].tobytes() in content for content in contents)
    assert not any(mark in content or repr(MARK).encode() in content for content in contents)
    assert not any(value is PUBLIC for value in model.get_params(deep=True).values())
    assert not any(isinstance(value, np.ndarray) for value in model.get_params(deep=True).values())
    assert repr(classifier(USERS[method])) == repr(model)
    model.kept = PUBLIC
    assert mark in pickle.dumps(model)


# --- scikit-learn ----------------------------------------------------------------------------------------------------


def halve(rows: Any) -> Any:
    return rows / 2


def pipeline(model: Any) -> Any:
    return make_pipeline(FunctionTransformer(halve), model)


def test_a_pipeline_hands_it_on_by_the_name_of_the_step() -> None:
    """As they are: public rows must have gone through the steps before."""
    fitted = pipeline(classifier()).fit(X, Y, sparseclassifier__public=halve(PUBLIC))[-1]
    np.testing.assert_array_equal(fitted.coef_, classifier().fit(halve(X), Y, public=halve(PUBLIC)).coef_)
    assert "Public rows" in public_line(fitted)


def test_metadata_routing_reaches_the_estimator() -> None:
    with sklearn.config_context(enable_metadata_routing=True):
        asking = pipeline(classifier().set_fit_request(public=True))
        fitted = asking.fit(X, Y, public=halve(PUBLIC))[-1]
        with pytest.raises(sklearn.exceptions.UnsetMetadataPassedError, match="public"):
            pipeline(classifier()).fit(X, Y, public=halve(PUBLIC))
    np.testing.assert_array_equal(fitted.coef_, classifier().fit(halve(X), Y, public=halve(PUBLIC)).coef_)
    assert "Public rows" in public_line(fitted)
